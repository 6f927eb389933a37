"""Endpoints of flows and their simulations."""

from collections.abc import Callable
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from appliance.accounts import approvals, audit
from appliance.accounts.approvals import ApproveRequest, RejectRequest
from appliance.accounts.request_limits import RequestClass
from appliance.api import flow_rights, schemas
from appliance.api.auth import (
    require_contacts_scope_of_test_key,
    require_scope,
)
from appliance.api.endpoints import ApiRequest, ApiResponse, Routes, name_action, validator
from appliance.api.http import page_headers
from appliance.api.schemas import Design, Json, Moment, Template
from appliance.content import brand as brands
from appliance.content.designs.theme import Look
from appliance.content.templates import agent_drafts
from appliance.core.clock import iso
from appliance.core.validation import PageQuery, schema_name
from appliance.flows import (
    document,
    lifecycle,
    report,
    simulation,
    simulation_bulk,
    split_results,
    split_tests,
    starters,
    store,
    versions,
)
from appliance.flows.lifecycle import ActivateRequest, ArchiveRequest
from appliance.flows.report import FlowStats
from appliance.flows.simulation import ScriptResult
from appliance.flows.simulation_bulk import BulkSimulateRequest, BulkSimulation, run_in_turn
from appliance.flows.simulation_events import SCRIPTS, SimulateRequest
from appliance.flows.simulation_timeline import Simulation
from appliance.flows.split_results import SplitTestResult
from appliance.flows.split_tests import ChooseBranch
from appliance.flows.steps import BY_TYPE
from appliance.flows.store import FlowCreate, FlowPatch, FlowQuery
from appliance.storage import models
from appliance.storage.transactions import commit, fetch, render, scan


class FlowTrigger(Struct):
    """The event that starts a flow, and its conditions."""

    event: Annotated[
        str,
        Meta(
            description="event that starts the flow; `manual` if none is chosen yet, with which the flow "
            "cannot be activated"
        ),
    ]
    segment_id: (
        Annotated[
            int,
            Meta(
                description="id of a segment to which the contact must belong; without an event, entering the "
                "segment starts the flow"
            ),
        ]
        | None
    )
    contact_list_id: Annotated[int, Meta(description="id of the list that the contact joins or leaves")] | None
    data: Annotated[Json, schema_name("FlowTriggerData"), Meta(description="conditions of the trigger")]


class FlowStep(Struct):
    """A step of a flow, with the common keys and the keys of its type. Sending a step back unchanged has no effect."""

    id: Annotated[int, Meta(description="identifier of the step in runs and reports")]
    type: Annotated[
        str,
        Meta(extra_json_schema={"enum": [*BY_TYPE]}),
        Meta(description="type of the step; derived from its keys if absent"),
    ]
    subject: str
    body: str
    preheader: str
    duration: Annotated[int, Meta(description="duration in seconds")]
    filters: Annotated[
        list[Annotated[Json, schema_name("Filter")]],
        Meta(description="filters that choose the branch; they may also refer to the event and the run"),
    ]
    yes: Annotated["list[FlowStep]", Meta(description="steps for contacts that match")]
    no: Annotated["list[FlowStep]", Meta(description="steps for contacts that do not match")]
    event_name: Annotated[str, Meta(description="name of the event that the step records")]
    forward_event_data: Annotated[
        bool, Meta(description="whether the recorded event includes the data of the event that started the run")
    ]
    template_id: Annotated[int, Meta(description="id of the template with the content; null if there is none")] | None
    from_name: str | UnsetType = UNSET
    from_email: str | UnsetType = UNSET
    reply_to: str | UnsetType = UNSET
    design: Annotated[Design, Meta(description="design: sections from top to bottom, and the theme")] | UnsetType = (
        UNSET
    )
    transactional: (
        Annotated[
            bool, Meta(description="whether the message is sent without consent, footer and tracking, as receipts are")
        ]
        | UnsetType
    ) = UNSET
    utm: (
        Annotated[schemas.Utm, Meta(description="UTM parameters of the links; absent for those of the account")]
        | UnsetType
    ) = UNSET
    event_data: Annotated[Json, Meta(description="further data of the recorded event")] | UnsetType = UNSET
    contact_list_id: Annotated[int, Meta(description="id of the list to join or leave")] | UnsetType = UNSET
    data_merge: (
        Annotated[Json, Meta(description="JSON merge patch (RFC 7396) for the contact's `data`")] | UnsetType
    ) = UNSET
    channel: (
        Annotated[Literal["email", "sms"], Meta(description="channel that the contact is unsubscribed from")]
        | UnsetType
    ) = UNSET


class Flow(Struct):
    """An automation: a trigger and steps."""

    id: int
    account_id: int
    status: Annotated[Literal["draft", "active", "paused", "archived"], Meta(description="status")]
    approval_state: Annotated[
        Literal["pending_review", "approved", "rejected"], Meta(description="approval state of the current content")
    ]
    approval_note: Annotated[str, Meta(description="note of the user who rejected it")] | None
    asked_at: Annotated[Moment, Meta(description="since when it waits for approval; null if it does not")] | None
    name: str
    goal: (
        Annotated[
            str,
            Meta(
                description="goal of the flow; the name of an event ends a run when that event happens to the contact"
            ),
        ]
        | None
    )
    data: Annotated[Json, Meta(description="custom data; `scripts` are test scripts saved with the flow")]
    test: Annotated[
        bool, Meta(description="true if the flow was activated by a test key; its messages never leave the machine")
    ]
    version: Annotated[int, Meta(description="version of the flow; every change of an active flow creates a new one")]
    trigger: Annotated[FlowTrigger, Meta(description="trigger and audience of the flow")]
    triggered_count: Annotated[int, Meta(description="number of times that it was triggered")]
    last_triggered_at: Annotated[Moment, Meta(description="when it was last triggered; null for never")] | None
    steps: Annotated[list[FlowStep], Meta(description="steps in order")]
    sent_count: Annotated[
        int, Meta(description="number of messages ever accepted by the next hop, without tests; it never decreases")
    ]
    stats: Annotated[FlowStats, Meta(description="runs and messages of all time, without tests")]
    paused_at: Annotated[Moment, Meta(description="when the flow was paused; null if it is not paused")] | None
    pause_reason: (
        Annotated[
            Literal["slow_conditions"],
            Meta(
                description="why the service paused the flow: `slow_conditions`: checking its conditions on events "
                "took too long; null if a user paused it, or if it is not paused"
            ),
        ]
        | None
    )
    created_at: Moment
    updated_at: Moment
    templates: Annotated[list[Template], Meta(description="templates of its steps; `action_id` is the id of the step")]
    unpublished_changes: Annotated[
        bool,
        Meta(
            description="true if there are edits in the browser that are not published; the flow is returned "
            "as published"
        ),
    ]


class FlowChanged(Flow):
    """An updated flow, and the current results of its saved simulations (`scripts`)."""

    scripts: Annotated[list[ScriptResult], Meta(description="results of the test scripts saved with the flow")]


class FlowStarter(Struct):
    """A predefined flow. `POST /flows` accepts its `key` as `starter`, or its name, trigger and steps."""

    key: Annotated[str, Meta(description="identifier of the starter in `POST /flows`")]
    label: str
    description: Annotated[str, Meta(description="description")]
    name: Annotated[str, Meta(description="name of the new flow")]
    trigger: Annotated[Json, schema_name("FlowTriggerWrite"), Meta(description="trigger")]
    steps: Annotated[list[Annotated[Json, schema_name("FlowStepWrite")]], Meta(description="steps")]
    data: Annotated[Json, Meta(description="custom data; `scripts` are the simulations that show the flow")]


class FlowStarters(Struct):
    """All predefined flows."""

    starters: Annotated[list[FlowStarter], Meta(description="flow starters")]


class StepField(Struct):
    """A key of a step, as a form shows it."""

    name: str
    label: str
    type: str
    required: Annotated[bool, Meta(description="whether the field is required before the flow can be activated")]
    help: Annotated[str, Meta(description="help text")]


class StepKind(Struct):
    """A step type: the keys that identify it, and all keys that it supports."""

    type: str
    label: str
    icon: Annotated[str, Meta(description="name of the icon")]
    claims: Annotated[list[str], Meta(description="keys that identify a step of this type")]
    keys: Annotated[list[str], Meta(description="all keys of the step")]
    branches: Annotated[list[str], Meta(description="keys of the branches")]
    fields: Annotated[list[StepField], Meta(description="fields of the step")]


class KnownEvent(Struct):
    """An event that can start a flow."""

    name: str
    group: Annotated[str, Meta(description="group of the event")]
    words: Annotated[str, Meta(description="description in words")]


class FlowSpec(Struct):
    """The step types and the events from which a flow can be built, and their limits."""

    steps: Annotated[list[StepKind], Meta(description="step types")]
    events: Annotated[list[KnownEvent], Meta(description="events that can start a flow")]
    trigger: Annotated[Json, Meta(description="keys of a trigger")]
    limits: Annotated[dict[str, int], Meta(description="limits")]


def serialize_flow(row: models.Flow, stats: FlowStats) -> Flow:
    """Return the API representation of a flow, which must be loaded with its trigger and templates (`load_details`)."""
    trigger = row.loaded_trigger
    # The steps stay dicts and are not converted to FlowStep, because a step type may have further keys.
    steps: Any = document.dump_steps(row.steps, versions.get_contents(row.templates))
    status: Any = row.status
    approval: Any = row.approval_state
    pause_reason: Any = row.pause_reason if row.status == "paused" else None
    return Flow(
        id=row.id, account_id=row.account_id, status=status, approval_state=approval,
        approval_note=row.approval_note, asked_at=iso(row.asked_at), name=row.name, goal=row.goal,
        data=row.data, test=row.test,
        version=row.version,
        trigger=FlowTrigger(trigger.event, trigger.segment_id, trigger.contact_list_id, trigger.data),
        triggered_count=trigger.triggered_count, last_triggered_at=iso(trigger.last_triggered_at),
        steps=steps, sent_count=row.sent_count, stats=stats,
        paused_at=iso(row.paused_at), pause_reason=pause_reason,
        created_at=iso(row.created_at) or "", updated_at=iso(row.updated_at) or "",
        templates=[schemas.serialize_template(template) for template in row.templates],
        unpublished_changes=row.draft is not None,
    )  # fmt: skip


ROUTES = Routes()
# The action in the audit log for a change to each status.
_ACTION_BY_STATUS = {"active": "activate", "paused": "pause", "archived": "archive", "draft": "revive"}


def _serialize_flows(rows: list[models.Flow]) -> list[Flow]:
    stats = report.load_stats(rows)
    return [serialize_flow(row, stats[row.id]) for row in rows]


async def _flow_response(row: models.Flow) -> ApiResponse:
    return ApiResponse((await fetch(_serialize_flows, [row]))[0])


@ROUTES.add(
    "GET", "/flows", scope="flows:read", agent_scope="flows:read", query_type=FlowQuery, response_type=Flow,
    returns_list=True,
)  # fmt: skip
async def list_flows(request: ApiRequest) -> ApiResponse:
    """List flows, newest first."""
    page = await fetch(store.list_flows, request.account_id, request.query)
    return ApiResponse(await fetch(_serialize_flows, page.rows), headers=page_headers(page))


@ROUTES.add(
    "POST", "/flows", scope="flows:write", agent_scope="flows:write",
    body_type=FlowCreate, response_type=Flow, status=201,
    validate=validator(store.check_request, run=render),
)  # fmt: skip
async def create_flow(request: ApiRequest) -> ApiResponse:
    """Create a flow, as a draft unless `status` is given.

    A branch, and a trigger with conditions on the contact, require `contacts:read` too, and conditions on the data of
    events `events:read`.
    """
    is_live = request.body.status in ("active", "live")
    if is_live:
        flow_rights.require_send_scope(request)
    body, draft = await render(store.prepare_create, request.account_id, request.body, is_live)
    flow_rights.require_conditions_access(request, draft)
    args = (store.create, request.account_id, body, draft, request.caller)
    return await _flow_response(await commit(agent_drafts.run_and_mark, request.caller, "flow_create", *args))


@ROUTES.add("GET", "/flows/spec", scope="flows:read", agent_scope="flows:read", response_type=FlowSpec)
async def describe_flows(request: ApiRequest) -> ApiResponse:
    """Get the step types with their properties, and the events that start flows."""
    return ApiResponse(msgspec.convert(document.build_spec(), FlowSpec))


@ROUTES.add("GET", "/flows/starters", scope="flows:read", agent_scope="flows:read", response_type=FlowStarters)
async def list_flow_starters(request: ApiRequest) -> ApiResponse:
    """Get predefined flows in the colours of the account."""
    starter_flows = starters.build_starters(Look(*brands.build_look(await fetch(brands.get, request.account_id))))
    return ApiResponse(FlowStarters([FlowStarter(*starter) for starter in starter_flows]))


@ROUTES.add("GET", "/flows/{id}", scope="flows:read", agent_scope="flows:read", response_type=Flow)
async def get_flow(request: ApiRequest) -> ApiResponse:
    """Get a flow."""
    return await _flow_response(await fetch(store.get, request.account_id, request.id))


@ROUTES.add(
    "PATCH", "/flows/{id}", scope="flows:write", agent_scope="flows:write",
    body_type=FlowPatch, response_type=FlowChanged,
    validate=validator(store.check_request, run=render),
)  # fmt: skip
async def update_flow(request: ApiRequest) -> ApiResponse:
    """Update a flow; `steps` replaces all steps, `status` changes its state.

    Steps, trigger and goal of an active flow require `campaigns:send` too, because they take effect at once. A new
    branch, and new conditions of the trigger on the contact, require `contacts:read` too, and new conditions on the
    data of events `events:read`.
    """
    before = await fetch(store.get, request.account_id, request.id)
    new_status = store.STATUS_ALIASES.get(str(request.body.status), request.body.status)
    changes_status = isinstance(new_status, str) and new_status != before.status
    if changes_status or before.status == "active":  # A change of an active flow takes effect at once.
        flow_rights.require_can_change(request, before)
    changed = (request.body.steps, request.body.trigger, request.body.goal)
    if before.status == "active" and not before.test and any(value is not UNSET for value in changed):
        require_scope(request.credential, "campaigns:send")
    if changes_status and new_status == "active":
        flow_rights.require_send_scope(request)
    is_live = "active" in (new_status, before.status)
    draft = await render(store.prepare_update, request.account_id, request.body, request.id, is_live)
    flow_rights.require_conditions_access(request, draft, before)
    args = (store.update, request.account_id, request.id, request.body, draft, request.caller)
    if changes_status or before.status == "active":
        row = await commit(
            audit.run_and_record,
            request.caller,
            f"flow_{_ACTION_BY_STATUS[str(new_status)] if changes_status else 'publish'}",
            *args,
        )
    else:
        row = await commit(agent_drafts.run_and_mark, request.caller, "flow_update", *args)
    serialized = (await fetch(_serialize_flows, [row]))[0]
    can_read_contacts = request.credential.can_read_contacts
    script_results = (
        await run_in_turn(simulation.run_scripts, row, can_read_contacts, refuses=False) if SCRIPTS in row.data else []
    )
    return ApiResponse(FlowChanged(**msgspec.structs.asdict(serialized), scripts=script_results))


@ROUTES.add("DELETE", "/flows/{id}", scope="flows:write", response_type=Flow)
async def delete_flow(request: ApiRequest) -> ApiResponse:
    """Delete a flow. Its runs exit and open messages are cancelled; sent messages and events are kept."""
    row = await fetch(store.get, request.account_id, request.id)
    flow_rights.require_can_change(request, row)
    response = await _flow_response(row)
    await commit(audit.run_and_record, request.caller, "flow_delete", store.delete, request.account_id, request.id)
    return response


def _add_transition(
    name: str,
    scope: str,
    reads: type[msgspec.Struct] | None,
    summary: str,
    verb: Callable[[ApiRequest], tuple[Any, ...]],
    rate: RequestClass = "requests",
) -> None:
    async def handler(request: ApiRequest) -> ApiResponse:
        flow_rights.require_can_change(request, await fetch(store.get, request.account_id, request.id))
        args: tuple[Any, ...] = (store.apply_action, request.account_id, request.id, *verb(request))
        if name == "activate":
            require_contacts_scope_of_test_key(request)
            args = (*args, await render(store.prepare_messages, request.account_id, request.id))

        def write() -> models.Flow:
            if reads in (ActivateRequest, ApproveRequest):
                approvals.require_unchanged(store.get(request.account_id, request.id), request.body.updated_at)
            flow: models.Flow = audit.run_and_record(request.caller, f"flow_{name}", *args)
            return flow

        return await _flow_response(await commit(write))

    name_action(handler, name, "flow", summary)
    path = f"/flows/{{id}}/{name}"
    ROUTES.add(
        "POST", path, scope=scope, body_type=reads, body_required=False, response_type=Flow, rate=rate,
        changes_sending=scope == "flows:write" and name != "ask_approval",
        has_conflicts=reads in (ActivateRequest, ApproveRequest),
    )(handler)  # fmt: skip


def _get_skip_overdue_seconds(request: ApiRequest) -> int | None:
    seconds = request.body.skip_overdue_seconds
    return seconds if isinstance(seconds, int) else None


_add_transition("activate", "campaigns:send", ActivateRequest, "Activate a draft or resume a paused flow.",
      lambda request: (lifecycle.activate, request.caller, _get_skip_overdue_seconds(request)), "sends")  # fmt: skip
_add_transition(
    "pause",
    "flows:write",
    None,
    "Pause a flow: no contact enters, and runs stay in their steps.",
    lambda _: (lifecycle.pause,),
)
_add_transition("archive", "flows:write", ArchiveRequest, "Archive a flow; its runs continue unless `take_out` is set.",
      lambda request: (lifecycle.archive, request.body.take_out is True))  # fmt: skip
_add_transition("ask_approval", "flows:write", None, "Request approval of a flow.",
      lambda request: (lifecycle.request_approval, request.caller))  # fmt: skip
_add_transition(
    "approve",
    "campaigns:approve",
    ApproveRequest,
    "Approve a flow in its current state, or as it was read.",
    lambda request: (lifecycle.approve, request.caller),
)


@ROUTES.add(
    "POST", "/flows/{id}/winner", scope="campaigns:send", body_type=ChooseBranch, response_type=SplitTestResult,
    validate=validator(split_tests.check_choice, run=fetch),
)  # fmt: skip
async def choose_flow_winner(request: ApiRequest) -> ApiResponse:
    """Choose the branch of a random split that all contacts take from now on, or continue the test.

    Contacts in the flow keep their branch.
    """
    flow_rights.require_can_change(request, await fetch(store.get, request.account_id, request.id))
    decision = await scan(split_results.find_decision, request.account_id, request.id, request.body)
    await commit(split_tests.choose, request.account_id, request.id, request.body, decision, request.caller)
    return ApiResponse(await scan(split_results.load_result, request.account_id, request.id, request.body.step))


_add_transition(
    "reject",
    "campaigns:approve",
    RejectRequest,
    "Reject a flow in its current state; an active one is paused.",
    lambda request: (lifecycle.reject, request.body.note or None),
)


_validate_simulation = validator(simulation.check_simulation, run=render, access=flow_rights.require_simulation_access)
_validate_bulk_simulation = validator(
    simulation_bulk.check_bulk_simulation, run=render, access=flow_rights.require_bulk_simulation_access
)


@ROUTES.add(
    "POST", "/flows/{id}/simulate", scope="flows:read", agent_scope="flows:read",
    body_type=SimulateRequest, body_required=False,
    response_type=Simulation, rate="renders", validate=_validate_simulation,
)  # fmt: skip
async def simulate_flow(request: ApiRequest) -> ApiResponse:
    """Simulate a flow for one real contact or a sample contact; nothing is sent or stored.

    A real contact (`contact_id`) requires `contacts:read` too, and with branches on the data of events `events:read`.
    """
    flow_rights.require_simulation_access(request)
    can_read_contacts = request.credential.can_read_contacts
    return ApiResponse(
        await run_in_turn(simulation.simulate, request.account_id, request.id, request.body, can_read_contacts)
    )


@ROUTES.add(
    "POST", "/flows/{id}/simulate_all", scope="flows:read", agent_scope="flows:read",
    body_type=BulkSimulateRequest, body_required=False,
    response_type=BulkSimulation, rate="renders", validate=_validate_bulk_simulation,
)  # fmt: skip
async def simulate_flow_in_bulk(request: ApiRequest) -> ApiResponse:
    """Simulate a flow for all contacts that recently met its trigger, counting the paths taken.

    Also requires `contacts:read` and `events:read`.
    """
    flow_rights.require_bulk_simulation_access(request)
    return ApiResponse(await run_in_turn(simulation_bulk.simulate_bulk, request.account_id, request.id, request.body))


@ROUTES.add(
    "GET", "/flows/{id}/scripts", scope="flows:read", agent_scope="flows:read",
    query_type=PageQuery, response_type=ScriptResult,
    returns_list=True, rate="renders",
)  # fmt: skip
async def list_flow_script_results(request: ApiRequest) -> ApiResponse:
    """Run the saved simulations of a flow (`data.scripts`) and compare them with the expected results."""
    can_read_contacts = request.credential.can_read_contacts
    page = await run_in_turn(simulation.list_results, request.account_id, request.id, request.query, can_read_contacts)
    return ApiResponse(page.rows, headers=page_headers(page))
