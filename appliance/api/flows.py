"""Flows over the API."""

from collections.abc import Callable
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from appliance.accounts import audit, roles
from appliance.accounts.approving import Reject
from appliance.accounts.rate_limits import Rate
from appliance.api import shaping
from appliance.api.auth import require
from appliance.api.declare import Answer, Call, Routes, checked
from appliance.api.reply import Fault, page_headers
from appliance.api.shapes import Design, Json, Moment, Template
from appliance.content import brand as brands
from appliance.content.designs.theme import Look
from appliance.core.clock import iso
from appliance.core.fields import named
from appliance.flows import document, report, scripts, spec, starters, states, store, version_snapshot
from appliance.flows.bulk_simulation import rehearse
from appliance.flows.report import FlowStats
from appliance.flows.requests import Activate, Archive, FlowCreate, FlowPatch, FlowQuery
from appliance.flows.scripts import ScriptResult
from appliance.flows.simulation_request import SCRIPTS
from appliance.flows.steps import BY_TYPE
from appliance.storage import models
from appliance.storage.work import call, commit, render

# What the API answers about flows.


class FlowTrigger(Struct):
    """What starts a flow, and for whom."""

    event: str
    segment_id: int | None
    contact_list_id: int | None
    data: Json


class FlowStep(Struct):
    """A step: the keys of the response form always, those of its kind beside them; sending it back changes nothing."""

    id: int
    type: Annotated[str, Meta(extra_json_schema={"enum": [*BY_TYPE]})]
    subject: str
    body: str
    preheader: str
    duration: Annotated[int, Meta(description="seconds")]
    filters: list[Annotated[Json, named("Filter")]]
    yes: "list[FlowStep]"
    no: "list[FlowStep]"
    event_name: str
    forward_event_data: bool
    template_id: int | None
    from_name: str | UnsetType = UNSET
    from_email: str | UnsetType = UNSET
    reply_to: str | UnsetType = UNSET
    design: Design | UnsetType = UNSET
    transactional: bool | UnsetType = UNSET
    event_data: Json | UnsetType = UNSET
    contact_list_id: int | UnsetType = UNSET
    data_merge: Json | UnsetType = UNSET


class Flow(Struct):
    """An automation: what starts it, and the steps that people take."""

    id: int
    account_id: int
    status: Literal["draft", "active", "paused", "archived"]
    approval_state: Literal["pending_review", "approved", "rejected"]
    approval_note: str | None
    asked_at: Moment | None
    name: str
    goal: str | None
    data: Json
    test: bool
    version: int
    trigger: FlowTrigger
    triggered_count: int
    last_triggered_at: Moment | None
    steps: list[FlowStep]
    sent_count: int
    stats: FlowStats
    paused_at: Moment | None
    created_at: Moment
    updated_at: Moment
    templates: list[Template]
    unpublished_changes: Annotated[
        bool, Meta(description="people changed it in a browser and have not published that: it is shown as it is live")
    ]


class FlowChanged(Flow):
    """A flow just changed; `scripts` says of the rehearsals that are kept with it which come out as expected now."""

    scripts: list[ScriptResult]


class FlowStarter(Struct):
    """A flow to begin from; `POST /flows` takes its key as `starter`, or its parts."""

    key: str
    label: str
    description: str
    name: str
    trigger: Annotated[Json, named("FlowTriggerWrite")]
    steps: list[Annotated[Json, named("FlowStepWrite")]]


class FlowStarters(Struct):
    """The flows to begin from."""

    starters: list[FlowStarter]


class StepField(Struct):
    """One thing that is set about a step."""

    name: str
    label: str
    type: str
    required: bool
    help: str


class StepKind(Struct):
    """A kind of step: the keys that make a step one of its kind, and all that it takes."""

    type: str
    label: str
    icon: str
    claims: list[str]
    keys: list[str]
    branches: list[str]
    fields: list[StepField]


class KnownEvent(Struct):
    """An event that may start a flow."""

    name: str
    group: str
    words: str


class FlowSpec(Struct):
    """Everything that flows can be made of."""

    steps: list[StepKind]
    events: list[KnownEvent]
    trigger: Json
    limits: dict[str, int]


def flow(row: models.Flow, stats: FlowStats) -> Flow:
    """Shape a flow loaded with its trigger and templates (`store.dress`)."""
    started = row.started_by
    # As they are, for a kind of step may have keys that nobody thought of here
    steps: Any = document.shown(row.steps, version_snapshot.words_of(row.written))
    status: Any = row.status
    approval: Any = row.approval_state
    return Flow(
        id=row.id, account_id=row.account_id, status=status, approval_state=approval,
        approval_note=row.approval_note, asked_at=iso(row.asked_at), name=row.name, goal=row.goal,
        data=row.data, test=row.test,
        version=row.version,
        trigger=FlowTrigger(started.event, started.segment_id, started.contact_list_id, started.data),
        triggered_count=started.triggered_count, last_triggered_at=iso(started.last_triggered_at),
        steps=steps, sent_count=row.sent_count, stats=stats,
        paused_at=iso(row.paused_at), created_at=iso(row.created_at) or "", updated_at=iso(row.updated_at) or "",
        templates=[shaping.template(one) for one in row.written], unpublished_changes=row.draft is not None,
    )  # fmt: skip


ROUTES = Routes()
# What a status that is written means as an act
_MOVED = {"active": "activate", "paused": "pause", "archived": "archive", "draft": "revive"}


def _shaped(rows: list[models.Flow]) -> list[Flow]:
    stats = report.stats(rows)
    return [flow(row, stats[row.id]) for row in rows]


async def _shown(row: models.Flow) -> Answer:
    return Answer((await call(_shaped, [row]))[0])


def _require_send(request: Call) -> None:
    """Raise 403 for a credential that may write flows and not let them send."""
    require(request.credential, "campaigns:send")


def _may_move(request: Call, row: models.Flow) -> None:
    """Raise 403 for a test key that would move, change or delete what was live for real, and for an author."""
    role = request.credential.role
    if row.version > 0 and role is not None and not roles.starts(role):
        raise Fault(
            403, "forbidden", "what was live once is moved by those who may send", required_scope="campaigns:send"
        )
    if request.credential.test and row.version > 0 and not row.test:
        raise Fault(403, "forbidden", "a test key moves only what test keys have activated")


@ROUTES.add("GET", "/flows", scope="flows:read", query=FlowQuery, returns=Flow, many=True)
async def index(request: Call) -> Answer:
    """List flows, newest first."""
    page = await call(store.page, request.account_id, request.query)
    return Answer(await call(_shaped, page.rows), headers=page_headers(page))


@ROUTES.add(
    "POST", "/flows", scope="flows:write", reads=FlowCreate, returns=Flow, status=201,
    inside=checked(store.check, parses=True),
)  # fmt: skip
async def create(request: Call) -> Answer:
    """Create a flow; as a draft unless `status` says otherwise."""
    live = request.body.status in ("active", "live")
    if live:
        _require_send(request)
    body, draft = await render(store.prepare, request.account_id, request.body, live)
    return await _shown(await commit(store.create, request.account_id, body, draft, request.by))


@ROUTES.add("GET", "/flows/spec", scope="flows:read", returns=FlowSpec)
async def describe(request: Call) -> Answer:
    """Get the kinds of steps with what they take, and the events that start flows."""
    return Answer(msgspec.convert(spec.spec(), FlowSpec))


@ROUTES.add("GET", "/flows/starters", scope="flows:read", returns=FlowStarters)
async def begin(request: Call) -> Answer:
    """Get flows to begin from, in the colours of the account."""
    made = starters.made(Look(*brands.look(await call(brands.get, request.account_id))))
    return Answer(FlowStarters([FlowStarter(*one) for one in made]))


@ROUTES.add("GET", "/flows/{id}", scope="flows:read", returns=Flow)
async def show(request: Call) -> Answer:
    """Get a flow."""
    return await _shown(await call(store.get, request.account_id, request.id))


@ROUTES.add(
    "PATCH", "/flows/{id}", scope="flows:write", reads=FlowPatch, returns=FlowChanged,
    inside=checked(store.check, parses=True),
)  # fmt: skip
async def update(request: Call) -> Answer:
    """Update a flow; `steps` replaces them all, `status` moves it."""
    before = await call(store.get, request.account_id, request.id)
    wanted = store.LIVE.get(str(request.body.status), request.body.status)
    moves = isinstance(wanted, str) and wanted != before.status
    if moves or before.status == "active":  # each change of a live one goes live
        _may_move(request, before)
    if moves and wanted == "active":
        _require_send(request)
    is_live = "active" in (wanted, before.status)
    draft = await render(store.prepare_change, request.account_id, request.body, request.id, is_live)
    args = (store.update, request.account_id, request.id, request.body, draft, request.by)
    if moves or before.status == "active":
        row = await commit(audit.noting, request.by, f"flow_{_MOVED[str(wanted)] if moves else 'publish'}", *args)
    else:
        row = await commit(*args)
    shown = (await call(_shaped, [row]))[0]
    sees = request.credential.reaches("contacts:read")
    played = await rehearse(scripts.results, row, sees, refuses=False) if SCRIPTS in row.data else []
    return Answer(FlowChanged(**msgspec.structs.asdict(shown), scripts=played))


@ROUTES.add("DELETE", "/flows/{id}", scope="flows:write", returns=Flow)
async def delete(request: Call) -> Answer:
    """Delete a flow: its runs exit, open messages are cancelled, the ledger and its events stay."""
    row = await call(store.get, request.account_id, request.id)
    _may_move(request, row)
    before = await _shown(row)
    await commit(audit.noting, request.by, "flow_delete", store.delete, request.account_id, request.id)
    return before


def _move(
    name: str, scope: str, reads: type[msgspec.Struct] | None, summary: str, verb: Callable[[Call], tuple[Any, ...]],
    rate: Rate = "requests",
) -> None:  # fmt: skip
    async def handler(request: Call) -> Answer:
        _may_move(request, await call(store.get, request.account_id, request.id))
        if name == "activate":
            await render(store.warm, request.account_id, None, request.id)
        told = (request.by, f"flow_{name}", store.moved, request.account_id, request.id)
        return await _shown(await commit(audit.noting, *told, *verb(request)))

    handler.__doc__ = summary
    path = f"/flows/{{id}}/{name}"
    ROUTES.add(
        "POST", path, scope=scope, reads=reads, body_required=False, returns=Flow, rate=rate,
        starts=scope == "flows:write" and name != "ask_approval",
    )(handler)  # fmt: skip


def _skipped(request: Call) -> int | None:
    said = request.body.skip_overdue_seconds
    return said if isinstance(said, int) else None


_move("activate", "campaigns:send", Activate, "Let a flow take people in; a paused one goes on.",
      lambda request: (states.activate, request.by, _skipped(request)), "sends")  # fmt: skip
_move("pause", "flows:write", None, "Let nobody in, and keep everybody where they are.", lambda _: (states.pause,))
_move("archive", "flows:write", Archive, "Put a flow aside; those inside stay, or leave with `take_out`.",
      lambda request: (states.archive, request.body.take_out is True))  # fmt: skip
_move("ask_approval", "flows:write", None, "Let a flow wait for somebody to approve of it.",
      lambda request: (states.ask, request.by))  # fmt: skip
_move(
    "approve", "campaigns:approve", None, "Let a flow go live as it is.", lambda request: (states.approve, request.by)
)
_move("reject", "campaigns:approve", Reject, "Keep a flow from going live as it is; a live one is paused.",
      lambda request: (states.reject, request.body.note or None))  # fmt: skip
