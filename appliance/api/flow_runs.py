"""What became of the people of a flow over the API: the report, who stands where, and those who are moved by hand."""

from msgspec import Struct, structs

from appliance.api.declare import Answer, Call, Routes
from appliance.api.nested_faults import checked
from appliance.api.reply import page_headers
from appliance.api.run_shapes import FlowRun, FlowRunDetail, detailed, shaped
from appliance.db.work import call, commit
from appliance.flows import people, report, run_actions
from appliance.flows.figures import FlowReport, Range
from appliance.flows.people import ContactRunQuery, RunQuery
from appliance.flows.run_actions import Act, RunsChosen, RunsMoved

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
    return Answer([shaped(row) for row in page.rows], headers=page_headers(page))


@ROUTES.add("GET", "/flows/{id}/runs/{run_id}", scope="flows:read", returns=FlowRunDetail)
async def show(request: Call) -> Answer:
    """Get a run with the steps it came to."""
    return Answer(await _detail(request))


@ROUTES.add("GET", "/contacts/{id}/runs", scope="contacts:read", query=ContactRunQuery, returns=FlowRun, many=True)
async def of_contact(request: Call) -> Answer:
    """List the flows that a contact is or was in, newest first."""
    page = await call(people.of_contact, request.account_id, request.id, request.query)
    return Answer([shaped(row) for row in page.rows], headers=page_headers(page))


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
