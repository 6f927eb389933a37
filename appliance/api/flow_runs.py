"""Endpoints of flow runs: the report of a flow, its runs, actions on them, and the enrollment of contacts."""

from typing import Annotated, Any

from msgspec import Meta, Struct, structs

from appliance.accounts import audit
from appliance.api.auth import require_contacts_scope_of_test_key
from appliance.api.endpoints import ApiRequest, ApiResponse, Routes, name_action, validator
from appliance.api.http import page_headers
from appliance.api.schemas import Json, Moment
from appliance.core import clock
from appliance.flows import enrollment, report, runs, store
from appliance.flows.branches import BRANCH_KEY
from appliance.flows.enrollment import EnrollmentResult, EnrollWrite
from appliance.flows.report import FlowReport, Range
from appliance.flows.runs import (
    ContactRunQuery,
    RunAction,
    RunActionResult,
    RunQuery,
    RunSelection,
    RunStatus,
    VisitedStep,
)
from appliance.storage.models import Run
from appliance.storage.transactions import commit, fetch, scan


class FlowRun(Struct):
    """A contact's run through a flow. `step_id` is the current or last step."""

    id: int
    account_id: int
    flow_id: Annotated[int, Meta(description="id of the flow")]
    flow_name: Annotated[str, Meta(description="name of the flow")]
    version: Annotated[int, Meta(description="version of the flow; every change of an active flow creates a new one")]
    contact_id: Annotated[int, Meta(description="id of the contact; null once it is deleted")] | None
    status: Annotated[RunStatus, Meta(description="`live` while the run is active")]
    exit_reason: Annotated[str, Meta(description="why the run ended early, or why the trigger started no run")] | None
    step_id: Annotated[int, Meta(description="id of the current or last step; null if there is none")] | None
    event_id: (
        Annotated[int, Meta(description="id of the event that started the run; null if the contact was added manually")]
        | None
    )
    chain_depth: Annotated[
        int, Meta(description="number of flows before this one, each started by an event of the flow before")
    ]
    test: bool
    due_at: Annotated[Moment, Meta(description="when the run continues; null once it has ended")] | None
    ended_at: Annotated[Moment, Meta(description="when the run ended")] | None
    created_at: Moment
    updated_at: Moment


class RunStep(Struct):
    """A step that a run has entered. While `outcome` is null, the run waits in this step."""

    step_id: Annotated[int, Meta(description="id of the step")]
    type: str
    summary: Annotated[str, Meta(description="description of the step at that time")]
    outcome: (
        Annotated[
            str,
            Meta(pattern=f"^(on|jumped|skipped|exited|{BRANCH_KEY})$"),
            Meta(description="how the contact left the step, or the key of its branch; null while waiting"),
        ]
        | None
    )
    reason: Annotated[str, Meta(description="why the step was skipped or the contact exited")] | None
    message_id: int | None
    message_status: Annotated[str, Meta(description="status of the message sent by the step")] | None
    entered_at: Annotated[Moment, Meta(description="when the contact entered the step")]
    left_at: Annotated[Moment, Meta(description="when the contact left the step; null while waiting")] | None


class FlowRunDetail(FlowRun):
    """A run with the data of the event that started it, and the steps that it has entered, in order.

    `event_data` is empty for a credential without `events:read`.
    """

    event_data: Annotated[Json, Meta(description="data of the event that started the run")]
    history: Annotated[list[RunStep], Meta(description="steps of the run, oldest first")]


def serialize_run(row: Run) -> FlowRun:
    """Return the API representation of a run without its steps."""
    return FlowRun(**_get_run_values(row))


def _get_run_values(row: Run) -> dict[str, Any]:
    moments = {name: clock.iso(getattr(row, name)) for name in ("due_at", "ended_at", "created_at", "updated_at")}
    plain = ("id", "account_id", "flow_id", "flow_name", "version", "contact_id", "status", "exit_reason", "event_id",
             "chain_depth", "test")  # fmt: skip
    return {**{name: getattr(row, name) for name in plain}, **moments, "step_id": row.action_id}


def _serialize_step(passed: VisitedStep) -> RunStep:
    row = passed.visit
    outcome: Any = row.outcome
    return RunStep(
        row.action_id, passed.type, passed.summary, outcome, row.reason, passed.message_id, passed.message_status,
        str(clock.iso(row.entered_at)), clock.iso(row.left_at),
    )  # fmt: skip


def serialize_run_detail(row: Run) -> FlowRunDetail:
    """Return the API representation of a run with the data of its event and the steps that it has entered."""
    return FlowRunDetail(
        **_get_run_values(row),
        event_data=row.event_data,
        history=[_serialize_step(passed) for passed in runs.list_visited_steps(row)],
    )


ROUTES = Routes()


class ReportQuery(Struct):
    """The period that the report of a flow covers."""

    range: Annotated[Range, Meta(description="period of the report, in days")] = "all"


async def _get_run_detail(request: ApiRequest) -> FlowRunDetail:
    """Return the run in the path. Raises NotFound if the flow has no such run.

    `event_data` is empty unless the credential may read events.
    """

    def read() -> FlowRunDetail:
        return serialize_run_detail(runs.get_run(request.account_id, request.id, request.inner_id))

    run_detail = await fetch(read)
    return run_detail if request.credential.has_scope("events:read") else structs.replace(run_detail, event_data={})


@ROUTES.add(
    "GET",
    "/flows/{id}/report",
    scope="flows:read",
    agent_scope="flows:read",
    query_type=ReportQuery,
    response_type=FlowReport,
)
async def get_flow_report(request: ApiRequest) -> ApiResponse:
    """Get the report of a flow by step; each number has the path of its runs."""

    def read() -> FlowReport:
        return report.build_report(store.find(request.account_id, request.id), request.query.range)

    return ApiResponse(await fetch(read))


@ROUTES.add(
    "GET",
    "/flows/{id}/runs",
    scope="flows:read",
    agent_scope="flows:read",
    query_type=RunQuery,
    response_type=FlowRun,
    returns_list=True,
)
async def list_flow_runs(request: ApiRequest) -> ApiResponse:
    """List runs of a flow, newest first; the runs of a `step` are listed in the order in which they reached it."""
    page = await fetch(runs.list_runs, request.account_id, request.id, request.query)
    return ApiResponse([serialize_run(row) for row in page.rows], headers=page_headers(page))


@ROUTES.add(
    "GET", "/flows/{id}/runs/{run_id}", scope="flows:read", agent_scope="flows:read", response_type=FlowRunDetail
)
async def get_flow_run(request: ApiRequest) -> ApiResponse:
    """Get a run with the steps it has reached."""
    return ApiResponse(await _get_run_detail(request))


@ROUTES.add(
    "GET",
    "/contacts/{id}/runs",
    scope="contacts:read",
    agent_scope="contacts:read",
    query_type=ContactRunQuery,
    response_type=FlowRun,
    returns_list=True,
)
async def list_contact_runs(request: ApiRequest) -> ApiResponse:
    """List runs of a contact, newest first."""
    page = await fetch(runs.list_contact_runs, request.account_id, request.id, request.query)
    return ApiResponse([serialize_run(row) for row in page.rows], headers=page_headers(page))


def _add_run_action(act: RunAction, one_summary: str, many_summary: str) -> None:
    async def single(request: ApiRequest) -> ApiResponse:
        await commit(runs.act_on_run, request.account_id, request.id, request.inner_id, act, request.caller)
        return ApiResponse(await _get_run_detail(request))

    async def many(request: ApiRequest) -> ApiResponse:
        ids = await fetch(runs.resolve_runs, request.account_id, request.id, request.body)
        changed: list[int] = []
        for start in range(0, len(ids), runs.ACTION_BATCH_SIZE):
            chunk = ids[start : start + runs.ACTION_BATCH_SIZE]
            changed += await commit(runs.act_on_runs, request.id, chunk, act, request.credential.is_test)
        if changed:
            await commit(runs.audit_bulk_action, request.account_id, request.id, act, len(changed), request.caller)
        requested_ids = request.body.run_ids if isinstance(request.body.run_ids, list) else []
        changed_ids = set(changed)
        return ApiResponse(
            RunActionResult(
                len(changed), [number for number in dict.fromkeys(requested_ids) if number not in changed_ids]
            )
        )

    name_action(single, act, "run", one_summary)
    name_action(many, act, "runs", many_summary)
    scope, path = "flows:write", "/flows/{id}/runs"
    ROUTES.add("POST", f"{path}/{{run_id}}/{act}", scope=scope, response_type=FlowRunDetail, changes_sending=True)(
        single
    )
    ROUTES.add(
        "POST", f"{path}/{act}", scope=scope, body_type=RunSelection, response_type=RunActionResult,
        changes_sending=True, validate=validator(runs.check_selection, either=("run_ids", "step")),
    )(many)  # fmt: skip


_add_run_action(
    "move_on", "Skip the wait of a run.", "Skip the wait of several runs, or of all runs that wait in a step."
)
_add_run_action(
    "take_out", "Remove a run from its flow.", "Remove several runs from a flow, or all runs that wait in a step."
)


@ROUTES.add(
    "POST", "/flows/{id}/enroll", scope="campaigns:send", body_type=EnrollWrite, response_type=EnrollmentResult,
    rate="sends", validate=validator(enrollment.check_enrollment, either=("contact_ids", "segment_id")),
)  # fmt: skip
async def enroll_contacts(request: ApiRequest) -> ApiResponse:
    """Enroll contacts in an active flow: by id, or all current members of a segment.

    A test key also needs `contacts:read`.
    """
    require_contacts_scope_of_test_key(request)
    contact_ids = await scan(enrollment.resolve_contacts, request.account_id, request.id, request.body)
    summary, test = EnrollmentResult(), request.credential.is_test
    # Many small transactions let other writes proceed in between. If one of them fails, the request can be repeated,
    # because a contact in the flow is not enrolled again.
    for start in range(0, len(contact_ids), enrollment.BATCH_SIZE):
        batch_result = await commit(
            enrollment.enroll, request.id, contact_ids[start : start + enrollment.BATCH_SIZE], test
        )
        if batch_result is None:
            break
        summary.enrolled += batch_result.enrolled
        summary.already_inside += batch_result.already_inside
        summary.held_out += batch_result.held_out
        summary.control_group += batch_result.control_group
        summary.frequency += batch_result.frequency
    data = {"enrolled": summary.enrolled}
    await commit(audit.record, request.caller, request.account_id, "flow_enroll", f"flow:{request.id}", data)
    return ApiResponse(summary)
