"""Flows: found, listed, made, edited, deleted."""

from contextlib import nullcontext
from typing import Any, NamedTuple

from msgspec import UNSET
from peewee import fn

from appliance.accounts.acting import By
from appliance.content.templates import revisions
from appliance.core import clock, wake_ups
from appliance.core.errors import Conflict, Faults, Invalid, NotFound
from appliance.core.pagination import Page, paginate
from appliance.flows import (
    document,
    drafts,
    paused_messages,
    simulation_request,
    starters,
    states,
    triggers,
    version_snapshot,
)
from appliance.flows.document import Steps
from appliance.flows.requests import FlowCreate, FlowPatch, FlowQuery
from appliance.flows.steps.writing import NO_SERVICE_MESSAGES
from appliance.sending.messages import quiet
from appliance.storage.models import Flow, Template, Trigger
from appliance.storage.open import rows
from appliance.storage.work import after_commit, snapshot, writing

UNTITLED = "Untitled flow"
LIVE = {"live": "active"}
# By what a list of flows may be ordered; a minus before it turns that round
ORDERS = {"name": fn.lower(Flow.name), "entered": Flow.entered_count, "updated": Flow.updated_at,
          "created": Flow.created_at}  # fmt: skip


class Draft(NamedTuple):
    """What a request says a flow shall be, read before the writer has to; `read_at` is the flow that it was read of."""

    start: triggers.Start | None
    steps: Steps | None
    read_at: int = 0


def page(account_id: int, query: FlowQuery, order: str = "-created") -> Page:
    """List flows, newest first or in one of `ORDERS`; those of campaigns are none."""
    column = ORDERS[order.removeprefix("-")]
    way = [column.desc(), Flow.id.desc()] if order.startswith("-") else [column.asc(), Flow.id.asc()]
    with snapshot():
        result = paginate(matching(account_id, query).order_by(*way), query.page, query.size())
        return result._replace(rows=dress(list(result.rows)))


def matching(account_id: int, query: FlowQuery) -> Any:
    """Return the flows that a query lets through, as a query without an order."""
    found = _select(account_id)
    if isinstance(query.status, str):
        found = found.where(Flow.status == LIVE.get(query.status, query.status))
    if isinstance(query.event, str):
        found = found.where(Flow.id.in_(Trigger.select(Trigger.flow).where(Trigger.event == query.event)))
    if isinstance(query.search, str) and query.search.strip():
        found = found.where(Flow.name.contains(query.search.strip()))
    return found


def counted(account_id: int) -> dict[str, int]:
    """Count the flows of an account by their status."""
    asked = _select(account_id).select(Flow.status, fn.count(Flow.id)).group_by(Flow.status)
    return dict(asked.tuples())


def to_approve(account_id: int) -> list[Flow]:
    """Return the flows that wait for somebody to approve of them."""
    return list(_select(account_id).where(Flow.asked_at.is_null(False)).order_by(Flow.asked_at))


def get(account_id: int, flow_id: int) -> Flow:
    """Return a flow with its trigger and templates, all of one moment; raises NotFound."""
    with snapshot():
        return dress([_find(account_id, flow_id)])[0]


def _select(account_id: int) -> Any:
    return Flow.select().where(Flow.account == account_id, ~Flow.hidden, Flow.deleted_at.is_null())


def _find(account_id: int, flow_id: int) -> Flow:
    found: Flow | None = _select(account_id).where(Flow.id == flow_id).first()
    if found is None:
        raise NotFound
    return found


def dress(flows: list[Flow]) -> list[Flow]:
    """Add what belongs to flows: `started_by`, and the templates of their steps as `written`."""
    ids = [flow.id for flow in flows]
    started = {row.flow_id: row for row in Trigger.select().where(Trigger.flow.in_(ids))}
    written = version_snapshot.of_flows(ids)
    for flow in flows:
        flow.started_by, flow.written = started[flow.id], written[flow.id]
        states.show_live(flow, flow.written)
    return flows


def read(account_id: int, request: FlowCreate | FlowPatch, flow_id: int | None = None) -> Draft:
    """Read trigger and steps of a request, for a flow as it is now; raises NotFound, or Invalid with all faults."""
    before = _find(account_id, flow_id) if flow_id is not None else None
    faults = Faults()
    start = steps = None
    if request.trigger is not UNSET:
        had = triggers.of(Trigger.get(Trigger.flow == before.id)) if before is not None else None
        cleared = request.trigger is None
        start = triggers.Start() if cleared else triggers.check(account_id, request.trigger, faults, "trigger", had)
    if request.steps is not UNSET:
        known = (before.steps, before.last_action) if before is not None else ((), 0)
        steps = document.read(account_id, request.steps, faults, *known)
    if isinstance(request.data, dict):
        simulation_request.check_scripts(request.data, faults)
        if words := quiet.fault(request.data.get("quiet_hours")):
            faults.add("data.quiet_hours", words)
    _check(faults)
    return Draft(start, steps, before.updated_at if before is not None else 0)


def check(account_id: int, request: FlowCreate | FlowPatch, flow_id: int | None = None) -> None:
    """Look at starter, trigger, steps and data of a request; raises NotFound, or Invalid with all faults."""
    if isinstance(request, FlowCreate):
        begin(account_id, request)
    else:
        read(account_id, request, flow_id)


def prepare(account_id: int, request: FlowCreate, live: bool = False) -> tuple[FlowCreate, Draft]:
    """Read a request as `begin` does and look at its words as `warm` does: in one go, so that they are still known."""
    body, draft = begin(account_id, request)
    warm(account_id, draft, live=live)
    return body, draft


def prepare_change(account_id: int, request: FlowPatch, flow_id: int, live: bool) -> Draft:
    """Read a change of a flow as `read` does and look at its words as `warm` does, in one go."""
    draft = read(account_id, request, flow_id)
    warm(account_id, draft, flow_id, live)
    return draft


def begin(account_id: int, request: FlowCreate) -> tuple[FlowCreate, Draft]:
    """Return a request with what its starter says where it says nothing itself, and read it; raises as `read`."""
    faults = Faults()
    body = faults.of(begun, account_id, request)
    if body is not None:
        return body, read(account_id, body)
    faults.of(read, account_id, request)
    raise Invalid(faults.fields)


def warm(account_id: int, draft: Draft | None, flow_id: int | None = None, live: bool = True) -> None:
    """Look at the words of a draft before the writer has to; and at the messages of a flow, if it goes `live` then."""
    flow = _find(account_id, flow_id) if flow_id is not None else None
    steps = draft.steps.steps if draft is not None and draft.steps is not None else flow.steps if flow else []
    version_snapshot.warm_contents(account_id, steps)
    if live:
        version_snapshot.warm(account_id, steps, flow)


def _check(faults: Faults) -> None:
    """Raise what was found; that the account sends no service messages has a reason of its own."""
    if faults.fields and all(words == [NO_SERVICE_MESSAGES] for words in faults.fields.values()):
        raise Invalid(faults.fields, reason="transactional_disabled")
    faults.check()


def begun(account_id: int, request: FlowCreate) -> FlowCreate:
    """Return a request with what its starter says where it says nothing itself; raises Invalid for an unknown one."""
    if not isinstance(request.starter, str):
        return request
    said = starters.find(account_id, request.starter)
    if said is None:
        raise Invalid({"starter": ["is not included in the list"]})
    return FlowCreate(
        name=said.name if request.name is UNSET else request.name, goal=request.goal,
        trigger=said.trigger if request.trigger is UNSET else request.trigger,
        steps=said.steps if request.steps is UNSET else request.steps, data=request.data, status=request.status,
    )  # fmt: skip


def create(account_id: int, request: FlowCreate, draft: Draft, by: By) -> Flow:
    """Make a flow, and let it go live where that is asked; raises Invalid with all faults."""
    writing()
    now = clock.now_ms()
    name = request.name.strip() if isinstance(request.name, str) else UNTITLED
    flow = Flow.create(account=account_id, name=name, edited_by=by.user_id, created_at=now, updated_at=now)
    Trigger.create(account=account_id, flow=flow, created_at=now, updated_at=now)
    _apply(flow, request, draft, by)
    if LIVE.get(str(request.status), request.status) == "active":
        states.activate(flow, by)
    return saved(flow)


def update(account_id: int, flow_id: int, request: FlowPatch, draft: Draft, by: By) -> Flow:
    """Change a flow and move it where `status` says; raises NotFound, Conflict, or Invalid."""
    writing()
    flow = _find(account_id, flow_id)
    if request.updated_at is not UNSET and request.updated_at < flow.updated_at:
        raise Conflict("it was changed by somebody else since it was read", updated_at=clock.iso(flow.updated_at))
    if draft.read_at != flow.updated_at:
        draft = read(account_id, request, flow_id)
    wanted = LIVE.get(str(request.status), request.status)
    to = wanted if isinstance(wanted, str) and wanted != flow.status else None
    publishes = to == "active" or draft.steps is not None or draft.start is not None
    with states.hold_apart(flow) if publishes else nullcontext():
        if to is not None and to != "active":
            states.move(flow, to, by)
        if _apply(flow, request, draft, by):
            flow.edited_by = by.user_id
            states.edited(flow, by)
        if to == "active":
            states.move(flow, to, by)
    return saved(flow)


def moved(account_id: int, flow_id: int, verb: Any, *arguments: Any) -> Flow:
    """Do a verb of `states` to a flow; raises NotFound, and what the verb raises."""
    writing()
    flow = _find(account_id, flow_id)
    with states.hold_apart(flow) if verb in (states.activate, states.put_back) else nullcontext():
        verb(flow, *arguments)
    return saved(flow)


def delete(account_id: int, flow_id: int) -> Flow:
    """Delete a flow and answer it as it was: its runs exit, open messages are cancelled, the ledger stays."""
    writing()
    before = get(account_id, flow_id)
    flow = _find(account_id, flow_id)
    flow.status, flow.deleted_at = "archived", clock.now_ms()
    saved(flow, gone=True)
    return before


def saved(flow: Flow, gone: bool = False) -> Flow:
    """Save a flow as changed now; its time of change only ever grows. What counts people is not ours to write."""
    writing()
    flow.updated_at = max(clock.now_ms(), flow.updated_at + 1)
    flow.save(only=_OURS)
    if flow.closing is not None or flow.deleted_at is not None:
        paused_messages.close_some(flow.id)
        after_commit(lambda: wake_ups.ring("flows"))
    return flow if gone else get(flow.account_id, flow.id)


_OURS = [
    Flow.test, Flow.status, Flow.draft, Flow.approval_state, Flow.approval_note, Flow.asked_at, Flow.asked_by,
    Flow.edited_by, Flow.name, Flow.goal, Flow.steps, Flow.last_action, Flow.version, Flow.data, Flow.paused_at,
    Flow.drop_before, Flow.closing, Flow.deleted_at, Flow.updated_at,
]  # fmt: skip


def _apply(flow: Flow, request: FlowCreate | FlowPatch, draft: Draft, by: By) -> bool:
    """Write what a request says into a flow; returns whether content or audience changed."""
    if isinstance(request.name, str):
        flow.name = request.name.strip()
    if request.goal is not UNSET:
        flow.goal = (request.goal or "").strip() or None
    if request.data is not UNSET:
        flow.data = request.data or {}
    touched = draft.start is not None and retrigger(flow, draft.start)
    if draft.steps is not None:
        had, said = flow.steps, _revisions(flow.id)
        flow.steps = version_snapshot.place_words(flow.account_id, flow.id, draft.steps.steps, by.user_id)
        flow.last_action = draft.steps.last_action
        touched = touched or had != flow.steps or said != _revisions(flow.id)
    return touched


def retrigger(flow: Flow, start: triggers.Start) -> bool:
    """Write what starts a flow; returns whether that is something else than before."""
    row = Trigger.get(Trigger.flow == flow.id)
    if triggers.of(row) == start:
        return False
    values = {**start._asdict(), "data": dict(start.data), "updated_at": clock.now_ms()}
    Trigger.update(**values).where(Trigger.id == row.id).execute()
    if flow.status == "active" and (row.event != start.event or start.event == triggers.DATE):
        triggers.opened(flow.id)
    return True


def _revisions(flow_id: int) -> list[tuple[int, int]]:
    return rows("SELECT id, revision FROM template WHERE flow_id = ? AND removed_at IS NULL ORDER BY id", (flow_id,))


def publish_changed_template(template: Template) -> None:
    """Let a live flow use the changed template of one of its steps; raises Invalid if the flow cannot stay live."""
    writing()
    flow = Flow.get_by_id(template.flow_id)
    path = next((path for path, step in document.walk(flow.steps) if step.get("template_id") == template.id), None)
    if path is None or flow.deleted_at is not None:
        return
    if flow.version and flow.status in ("active", "paused") and revisions.is_by_person(template):
        # What people write in a browser is not finished with each pause: it waits until they publish it
        if flow.draft is None:
            drafts.keep(flow, drafts.of(flow))
        return
    try:
        with states.hold_apart(flow, template) if flow.status == "active" else nullcontext():
            flow.edited_by = revisions.author(template)
            states.edited(flow, By())
    except Invalid as refused:
        fields = {name.removeprefix(f"{path}."): words for name, words in refused.fields.items()}
        raise Invalid(fields, reason=refused.reason) from None
    saved(flow, gone=True)
