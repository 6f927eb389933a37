"""What became of the people of a flow over the API: the report, who stands where, and those who are moved by hand."""

from typing import Any, Literal

from msgspec import Struct, structs

from appliance.accounts import audit
from appliance.api.declare import Answer, Call, Routes, checked
from appliance.api.reply import page_headers
from appliance.api.shapes import Json, Moment
from appliance.core import clock
from appliance.flows import enrollment, people, report, run_actions
from appliance.flows.enrollment import Enrolled, EnrollWrite
from appliance.flows.people import ContactRunQuery, Passed, RunQuery, RunStatus
from appliance.flows.report import FlowReport, Range
from appliance.flows.run_actions import Act, RunsChosen, RunsMoved
from appliance.storage.models import Run
from appliance.storage.work import call, commit

# How a person's way through a flow is answered.


class FlowRun(Struct):
    """One person's way through a flow; `step_id` is where they stand, or where it ended."""

    id: int
    account_id: int
    flow_id: int
    flow_name: str
    version: int
    contact_id: int | None
    status: RunStatus
    exit_reason: str | None
    step_id: int | None
    event_id: int | None
    chain_depth: int
    test: bool
    due_at: Moment | None
    ended_at: Moment | None
    created_at: Moment
    updated_at: Moment


class RunStep(Struct):
    """A step that a run came to; without an outcome it waits there. `summary` is what the step did then."""

    step_id: int
    type: str
    summary: str
    outcome: Literal["on", "yes", "no", "skipped", "exited"] | None
    reason: str | None
    message_id: int | None
    message_status: str | None
    entered_at: Moment
    left_at: Moment | None


class FlowRunDetail(FlowRun):
    """A run with what started it and the steps it came to, first to last.

    `event_data` is empty for a credential without `events:read`.
    """

    event_data: Json
    history: list[RunStep]


def shape_run(row: Run) -> FlowRun:
    """Shape a run."""
    return FlowRun(**_fields(row))


def _fields(row: Run) -> dict[str, Any]:
    moments = {name: clock.iso(getattr(row, name)) for name in ("due_at", "ended_at", "created_at", "updated_at")}
    plain = ("id", "account_id", "flow_id", "flow_name", "version", "contact_id", "status", "exit_reason", "event_id",
             "chain_depth", "test")  # fmt: skip
    return {**{name: getattr(row, name) for name in plain}, **moments, "step_id": row.action_id}


def _step(passed: Passed) -> RunStep:
    row = passed.passage
    outcome: Any = row.outcome
    return RunStep(
        row.action_id, passed.type, passed.summary, outcome, row.reason, passed.message_id, passed.message_status,
        str(clock.iso(row.entered_at)), clock.iso(row.left_at),
    )  # fmt: skip


def detailed(row: Run) -> FlowRunDetail:
    """Shape a run with its history."""
    return FlowRunDetail(
        **_fields(row), event_data=row.event_data, history=[_step(passed) for passed in people.history(row)]
    )


ROUTES = Routes()


class ReportQuery(Struct):
    """Of whom: everybody ever, or who came lately."""

    range: Range = "all"


async def _detail(request: Call) -> FlowRunDetail:
    """Return a run; what its event said only to who may read events."""

    def read() -> FlowRunDetail:
        return detailed(people.get(request.account_id, request.id, request.inner))

    found = await call(read)
    return found if request.credential.reaches("events:read") else structs.replace(found, event_data={})


@ROUTES.add("GET", "/flows/{id}/report", scope="flows:read", query=ReportQuery, returns=FlowReport)
async def figures(request: Call) -> Answer:
    """Report what became of the people of a flow at each step, each number with the path to its people."""

    def read() -> FlowReport:
        return report.of(people.flow_of(request.account_id, request.id), request.query.range)

    return Answer(await call(read))


@ROUTES.add("GET", "/flows/{id}/runs", scope="flows:read", query=RunQuery, returns=FlowRun, many=True)
async def index(request: Call) -> Answer:
    """List the runs of a flow, newest first; those of a step in the order in which they came to it."""
    page = await call(people.page, request.account_id, request.id, request.query)
    return Answer([shape_run(row) for row in page.rows], headers=page_headers(page))


@ROUTES.add("GET", "/flows/{id}/runs/{run_id}", scope="flows:read", returns=FlowRunDetail)
async def show(request: Call) -> Answer:
    """Get a run with the steps it came to."""
    return Answer(await _detail(request))


@ROUTES.add("GET", "/contacts/{id}/runs", scope="contacts:read", query=ContactRunQuery, returns=FlowRun, many=True)
async def of_contact(request: Call) -> Answer:
    """List the flows that a contact is or was in, newest first."""
    page = await call(people.of_contact, request.account_id, request.id, request.query)
    return Answer([shape_run(row) for row in page.rows], headers=page_headers(page))


def _moves(act: Act, one_summary: str, many_summary: str) -> None:
    async def single(request: Call) -> Answer:
        await commit(run_actions.one, request.account_id, request.id, request.inner, act, request.by)
        return Answer(await _detail(request))

    async def many(request: Call) -> Answer:
        ids = await call(run_actions.chosen, request.account_id, request.id, request.body)
        changed: list[int] = []
        for start in range(0, len(ids), run_actions.CHUNK):
            some = ids[start : start + run_actions.CHUNK]
            changed += await commit(run_actions.some, request.id, some, act, request.credential.test)
        if changed:
            await commit(run_actions.noted, request.account_id, request.id, act, len(changed), request.by)
        named = request.body.run_ids if isinstance(request.body.run_ids, list) else []
        done = set(changed)
        return Answer(RunsMoved(len(changed), [number for number in dict.fromkeys(named) if number not in done]))

    single.__doc__, many.__doc__ = one_summary, many_summary
    scope, path = "flows:write", "/flows/{id}/runs"
    ROUTES.add("POST", f"{path}/{{run_id}}/{act}", scope=scope, returns=FlowRunDetail, starts=True)(single)
    ROUTES.add(
        "POST", f"{path}/{act}", scope=scope, reads=RunsChosen, returns=RunsMoved, starts=True,
        inside=checked(run_actions.check, either=("run_ids", "step")),
    )(many)  # fmt: skip


_moves("move_on", "Let a waiting run go on at once.", "Let many go on at once: some runs, or all that wait in a step.")
_moves("take_out", "Take a run out of its flow.", "Take many out of a flow: some runs, or all that wait in a step.")


# Lets people into a flow over the API.


@ROUTES.add(
    "POST", "/flows/{id}/enroll", scope="campaigns:send", reads=EnrollWrite, returns=Enrolled, rate="sends",
    inside=checked(enrollment.check, either=("contact_ids", "segment_id")),
)  # fmt: skip
async def enroll(request: Call) -> Answer:
    """Let people into an active flow: named by id, or everybody in a segment now."""
    chosen = await call(enrollment.who, request.account_id, request.id, request.body)
    done, test = Enrolled(), request.credential.test
    # In small parts, so that nobody else's write waits; the same request may be repeated, for who is inside stays so
    for start in range(0, len(chosen), enrollment.CHUNK):
        some = await commit(enrollment.let_in, request.id, chosen[start : start + enrollment.CHUNK], test)
        if some is None:
            break
        done.enrolled += some.enrolled
        done.already_inside += some.already_inside
        done.frequency += some.frequency
    told = {"enrolled": done.enrolled}
    await commit(audit.note, request.by, request.account_id, "flow_enroll", f"flow:{request.id}", told)
    return Answer(done)
