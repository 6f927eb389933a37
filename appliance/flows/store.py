"""Flows in the database: listing, creating, updating and deleting them."""

from contextlib import nullcontext
from typing import Annotated, Any, Literal, NamedTuple

from msgspec import UNSET, Meta, Struct, UnsetType
from peewee import fn

from appliance.accounts import agents
from appliance.accounts.audit import Actor
from appliance.content.templates.store import NO_STEP_MESSAGES, StepMessages
from appliance.core import clock, signals
from appliance.core.errors import Conflict, Faults, Invalid, NotAllowed, NotFound
from appliance.core.i18n import gettext, gettext_noop
from appliance.core.validation import Data, EventName, LastRead, Line, Name, PageQuery, Short, default, schema_name
from appliance.flows import document, entry_caps, lifecycle, simulation_events, starters, triggers, versions
from appliance.flows.document import ParsedSteps
from appliance.flows.steps.base import SERVICE_MESSAGES_OFF
from appliance.flows.versions import NO_CONTENTS, PreparedContents
from appliance.sending.messages import sms_rules
from appliance.storage.database import Page, contains_words, paginate, rows
from appliance.storage.models import Flow, Trigger
from appliance.storage.transactions import after_commit, require_write_transaction, snapshot

TriggerInput = Annotated[Any, schema_name("FlowTriggerWrite")]
StatusFilter = Literal["draft", "active", "paused", "archived", "live"]


FlowGoal = Annotated[
    Line,
    Meta(description="goal of the flow; the name of an event ends a run when that event happens to the contact"),
]
FlowTrigger = Annotated[TriggerInput, Meta(description="trigger and audience of the flow")]
FlowSteps = Annotated[document.StepsWrite, Meta(description="steps in order")]
FlowData = Annotated[Data, Meta(description="custom data; `scripts` are test scripts saved with the flow")]


class FlowCreate(Struct):
    """A new flow; all fields are optional."""

    name: Annotated[Name, default("Untitled flow")] | UnsetType = UNSET
    goal: FlowGoal | None | UnsetType = UNSET
    trigger: FlowTrigger | None | UnsetType = UNSET
    steps: FlowSteps | None | UnsetType = UNSET
    data: FlowData | None | UnsetType = UNSET
    status: (
        Annotated[
            Literal["draft", "active", "live"],
            default("draft"),
            Meta(description="default: `draft`; `active` activates the flow at once, if nothing blocks it"),
        ]
        | UnsetType
    ) = UNSET
    starter: (
        Annotated[
            Short, Meta(description="key of the flow starter to begin from; the other keys of the request override it")
        ]
        | UnsetType
    ) = UNSET


class FlowPatch(Struct):
    """A change of a flow; `steps` replaces all steps.

    With `updated_at` as last read, the change is rejected if the flow has been changed since then.
    """

    name: Name | UnsetType = UNSET
    goal: FlowGoal | None | UnsetType = UNSET
    trigger: FlowTrigger | None | UnsetType = UNSET
    steps: FlowSteps | None | UnsetType = UNSET
    data: FlowData | None | UnsetType = UNSET
    status: (
        Annotated[StatusFilter, Meta(description="changes the status, as the actions do; `live` is `active`")]
        | UnsetType
    ) = UNSET
    updated_at: LastRead | UnsetType = UNSET


class FlowQuery(PageQuery):
    """Filters and page of the flow list."""

    status: Annotated[StatusFilter, Meta(description="only those with this status")] | UnsetType = UNSET
    event: Annotated[EventName, Meta(description="only flows that this event starts")] | UnsetType = UNSET
    search: Annotated[Short, Meta(description="search words for the name")] | UnsetType = UNSET


DEFAULT_NAME = gettext_noop("Untitled flow")
# A test flow sends nothing to contacts, but its runs depend on their data. By changing its content repeatedly, a key
# without contacts:read could find out the data unnoticed (T45 in docs/threats.md).
TEST_FLOW_REFUSED = "Changing an active flow of a test key needs the contacts:read scope."
STATUS_ALIASES = {"live": "active"}
# The columns by which a list of flows can be ordered; a minus before the name reverses the order
ORDERS = {"name": fn.name_order(Flow.name), "entered": Flow.entered_count, "updated": Flow.updated_at,
          "created": Flow.created_at}  # fmt: skip


class FlowInput(NamedTuple):
    """The trigger and steps of a request (None: not in the request), parsed outside of the write transaction.

    `base_updated_at` is the `updated_at` of the flow at that time; if the flow has changed since, they are parsed
    again. `contents` and `messages` are the prepared contents and compiled messages of the steps.
    """

    trigger: triggers.TriggerSpec | None
    steps: ParsedSteps | None
    base_updated_at: int = 0
    contents: PreparedContents = NO_CONTENTS
    messages: StepMessages = NO_STEP_MESSAGES


def list_flows(account_id: int, query: FlowQuery, order: str = "-created") -> Page:
    """Return a page of an account's flows with details, without the hidden flows of campaigns.

    `order` is a name of `ORDERS`, with a minus for descending; the default is newest first.
    """
    column = ORDERS[order.removeprefix("-")]
    ordering = [column.desc(), Flow.id.desc()] if order.startswith("-") else [column.asc(), Flow.id.asc()]
    with snapshot():
        page = paginate(select_flows(account_id, query).order_by(*ordering), query.page, query.size())
        return page._replace(rows=load_details(list(page.rows)))


def select_flows(account_id: int, query: FlowQuery) -> Any:
    """Return an unordered query of an account's flows that match the filters, without hidden and deleted ones."""
    flows = _select_visible(account_id)
    if isinstance(query.status, str):
        flows = flows.where(Flow.status == STATUS_ALIASES.get(query.status, query.status))
    if isinstance(query.event, str):
        flows = flows.where(Flow.id.in_(Trigger.select(Trigger.flow).where(Trigger.event == query.event)))
    if isinstance(query.search, str) and query.search.strip():
        flows = flows.where(contains_words(query.search, Flow.name))
    return flows


def count_by_status(account_id: int) -> dict[str, int]:
    """Return the number of an account's flows by status, without statuses that no flow has."""
    query = _select_visible(account_id).select(Flow.status, fn.count(Flow.id)).group_by(Flow.status)
    return dict(query.tuples())


def list_awaiting_approval(account_id: int) -> list[Flow]:
    """Return an account's flows that wait for approval, the longest waiting first."""
    return list(_select_visible(account_id).where(Flow.asked_at.is_null(False)).order_by(Flow.asked_at))


def get(account_id: int, flow_id: int) -> Flow:
    """Return a flow with the details of `load_details`, all read from one snapshot; raises NotFound."""
    with snapshot():
        return load_details([find(account_id, flow_id)])[0]


def _select_visible(account_id: int) -> Any:
    return Flow.select().where(Flow.account == account_id, ~Flow.hidden, Flow.deleted_at.is_null())


def find(account_id: int, flow_id: int) -> Flow:
    """Return a flow that is neither hidden nor deleted, without the details of `load_details`; raises NotFound."""
    flow: Flow | None = _select_visible(account_id).where(Flow.id == flow_id).first()
    if flow is None:
        raise NotFound
    return flow


def load_details(flows: list[Flow]) -> list[Flow]:
    """Set `loaded_trigger` and `templates` on each flow, and return the flows.

    `templates` are the templates of the current steps. If a flow has unpublished changes, the templates have the
    published content; do not save these objects.
    """
    ids = [flow.id for flow in flows]
    triggers_by_flow = {row.flow_id: row for row in Trigger.select().where(Trigger.flow.in_(ids))}
    templates = versions.load_templates_by_flow(ids)
    for flow in flows:
        flow.loaded_trigger, flow.templates = triggers_by_flow[flow.id], templates[flow.id]
        lifecycle.apply_live_contents(flow, flow.templates)
    return flows


def parse_request(account_id: int, request: FlowCreate | FlowPatch, flow_id: int | None = None) -> FlowInput:
    """Parse the trigger and steps of a request, and check its data; `flow_id` is the flow to change.

    Raises NotFound, or Invalid with all errors.
    """
    flow = find(account_id, flow_id) if flow_id is not None else None
    faults = Faults()
    trigger = steps = None
    if request.trigger is not UNSET:
        previous = triggers.get_spec(Trigger.get(Trigger.flow == flow.id)) if flow is not None else None
        is_cleared = request.trigger is None
        trigger = (
            triggers.TriggerSpec()
            if is_cleared
            else triggers.parse_trigger(account_id, request.trigger, faults, "trigger", previous)
        )
    if request.steps is not UNSET:
        known_steps = (flow.steps, flow.last_action) if flow is not None else ((), 0)
        steps = document.parse_steps(account_id, request.steps, faults, *known_steps)
    if isinstance(request.data, dict):
        simulation_events.check_scripts(request.data, faults)
        if error := sms_rules.find_quiet_hours_fault(request.data.get("quiet_hours")):
            faults.add("data.quiet_hours", error)
    _raise_faults(faults)
    return FlowInput(trigger, steps, flow.updated_at if flow is not None else 0)


def check_request(account_id: int, request: FlowCreate | FlowPatch, flow_id: int | None = None) -> None:
    """Raise NotFound, or Invalid with all errors in starter, trigger, steps and data of a request."""
    if isinstance(request, FlowCreate):
        parse_create(account_id, request)
    else:
        parse_request(account_id, request, flow_id)


def prepare_create(account_id: int, request: FlowCreate, live: bool = False) -> tuple[FlowCreate, FlowInput]:
    """Parse a request as `parse_create` does, prepare its contents, and compile its messages if `live`.

    Call it outside of the write transaction.
    """
    body, parsed = parse_create(account_id, request)
    return body, _prepare_input(account_id, parsed, None, live)


def prepare_update(account_id: int, request: FlowPatch, flow_id: int, live: bool) -> FlowInput:
    """Parse a change as `parse_request` does, prepare its contents, and compile its messages if `live`.

    Call it outside of the write transaction.
    """
    return _prepare_input(account_id, parse_request(account_id, request, flow_id), find(account_id, flow_id), live)


def prepare_messages(account_id: int, flow_id: int) -> StepMessages:
    """Compile the messages of a flow's current steps, for its activation; raises NotFound."""
    flow = find(account_id, flow_id)
    return versions.prepare_messages(account_id, flow.steps, flow)


def _prepare_input(account_id: int, parsed: FlowInput, flow: Flow | None, live: bool) -> FlowInput:
    steps = parsed.steps.steps if parsed.steps is not None else flow.steps if flow is not None else []
    contents = versions.prepare_contents(account_id, steps, flow)
    messages = versions.prepare_messages(account_id, steps, flow) if live else NO_STEP_MESSAGES
    return parsed._replace(contents=contents, messages=messages)


def parse_create(account_id: int, request: FlowCreate) -> tuple[FlowCreate, FlowInput]:
    """Return a request completed by its starter, and its parsed trigger and steps.

    Raises Invalid with all errors, also for an unknown starter.
    """
    faults = Faults()
    body = faults.collect(apply_starter, account_id, request)
    if body is not None:
        return body, parse_request(account_id, body)
    faults.collect(parse_request, account_id, request)
    raise Invalid(faults.fields)


def _raise_faults(faults: Faults) -> None:
    """Raise Invalid with the errors, if there are any.

    If all are about disabled transactional messages, the reason is `transactional_disabled`.
    """
    if faults.fields and all(messages == [gettext(SERVICE_MESSAGES_OFF)] for messages in faults.fields.values()):
        raise Invalid(faults.fields, reason="transactional_disabled")
    faults.check()


def apply_starter(account_id: int, request: FlowCreate) -> FlowCreate:
    """Return a request completed from its starter: name, trigger, steps and data, unless the request has its own.

    The simulations in the starter's data refer to its steps, so a request with its own steps gets none of them. Raises
    Invalid for an unknown starter.
    """
    if not isinstance(request.starter, str):
        return request
    starter = starters.find_starter(account_id, request.starter)
    if starter is None:
        raise Invalid({"starter": [gettext("is not included in the list")]})
    return FlowCreate(
        name=starter.name if request.name is UNSET else request.name, goal=request.goal,
        trigger=starter.trigger if request.trigger is UNSET else request.trigger,
        steps=starter.steps if request.steps is UNSET else request.steps,
        data=starter.data if request.data is UNSET and request.steps is UNSET else request.data, status=request.status,
    )  # fmt: skip


def create(account_id: int, request: FlowCreate, parsed: FlowInput, by: Actor) -> Flow:
    """Create a flow, and activate it if the request says so; raises Invalid with all errors or blockers.

    `parsed` is the FlowInput that `prepare_create` returned.
    """
    require_write_transaction()
    _check_agent(by, request)
    now = clock.now_ms()
    name = request.name.strip() if isinstance(request.name, str) else DEFAULT_NAME
    flow = Flow.create(account=account_id, name=name, edited_by=by.person_id, created_at=now, updated_at=now)
    Trigger.create(account=account_id, flow=flow, created_at=now, updated_at=now)
    _apply_request(flow, request, parsed, by)
    if STATUS_ALIASES.get(str(request.status), request.status) == "active":
        lifecycle.activate(flow, by, messages=parsed.messages)
    return save(flow)


def update(account_id: int, flow_id: int, request: FlowPatch, parsed: FlowInput, by: Actor) -> Flow:
    """Update a flow and change it to the status of the request, if it has one.

    `parsed` is from `prepare_update`. The changes apply at once; unpublished changes of users stay unpublished. Raises
    NotFound, Conflict if the flow was changed after `request.updated_at`, NotAllowed if `by` may not change what test
    runs send, Unavailable while contacts are being removed from the flow, or Invalid with all errors or blockers.
    """
    require_write_transaction()
    flow = find(account_id, flow_id)
    _check_agent(by, request, flow)
    if request.updated_at is not UNSET and request.updated_at < flow.updated_at:
        raise Conflict(gettext("This flow was changed since it was read."), updated_at=clock.iso(flow.updated_at))
    if parsed.base_updated_at != flow.updated_at:
        parsed = parse_request(account_id, request, flow_id)._replace(messages=parsed.messages)
    status = STATUS_ALIASES.get(str(request.status), request.status)
    new_status = status if isinstance(status, str) and status != flow.status else None
    publishes = new_status == "active" or parsed.steps is not None or parsed.trigger is not None
    with lifecycle.hold_back_draft(flow) if publishes else nullcontext():
        if new_status is not None and new_status != "active":
            lifecycle.change_status(flow, new_status, by)
        if _apply_request(flow, request, parsed, by):
            if flow.status == "active" and flow.test and not by.can_read_contacts:
                raise NotAllowed(TEST_FLOW_REFUSED, required_scope="contacts:read")
            flow.edited_by = by.person_id
            lifecycle.handle_edit(flow, by, parsed.messages)
        if new_status == "active":
            lifecycle.change_status(flow, new_status, by, parsed.messages)
    return save(flow)


def is_new_draft(flow: Flow) -> bool:
    """Return whether a flow is a draft that was never live."""
    return bool(flow.status == "draft" and flow.version == 0)


def _check_agent(by: Actor, request: FlowCreate | FlowPatch, flow: Flow | None = None) -> None:
    """Raise NotAllowed if an agent would change a status, or a flow that is or was live."""
    if not by.is_agent:
        return
    if isinstance(request.status, str) and request.status != "draft":
        raise NotAllowed(gettext(agents.NO_STATUS), reason="agent_drafts_only")
    if flow is not None:
        agents.require_draft(flow, by, is_new_draft(flow))


def apply_action(account_id: int, flow_id: int, action: Any, *arguments: Any) -> Flow:
    """Call a function of `lifecycle` with a flow and the arguments, then save and return the flow.

    Raises NotFound, and the errors of the function.
    """
    require_write_transaction()
    flow = find(account_id, flow_id)
    with (
        lifecycle.hold_back_draft(flow)
        if action in (lifecycle.activate, lifecycle.undo_status_change)
        else nullcontext()
    ):
        action(flow, *arguments)
    return save(flow)


def delete(account_id: int, flow_id: int) -> Flow:
    """Delete a flow and return it as it was before; raises NotFound.

    A first batch of the flow's runs and open messages is ended now, and the rest by the flow worker
    (`lifecycle.settle_messages`). The flow's messages stay in the ledger.
    """
    require_write_transaction()
    previous = get(account_id, flow_id)
    flow = find(account_id, flow_id)
    flow.status, flow.deleted_at = "archived", clock.now_ms()
    save(flow, reload=False)
    return previous


def save(flow: Flow, reload: bool = True) -> Flow:
    """Save a flow with a new `updated_at`: now, or 1 ms after the previous value if that is later.

    Counters of runs are not saved, because only the engine changes them. If the flow is ending, the first batch of its
    runs is ended. Returns the flow with details, or without `reload` the same object.
    """
    require_write_transaction()
    flow.updated_at = max(clock.now_ms(), flow.updated_at + 1)
    flow.save(only=_SAVED_FIELDS)
    if flow.pending_end is not None or flow.deleted_at is not None:
        lifecycle.close_batch(flow.id)
        after_commit(lambda: signals.wake("flows"))
    return get(flow.account_id, flow.id) if reload else flow


_SAVED_FIELDS = [
    Flow.test, Flow.status, Flow.draft, Flow.approval_state, Flow.approval_note, Flow.asked_at, Flow.asked_by,
    Flow.edited_by, Flow.name, Flow.goal, Flow.steps, Flow.last_action, Flow.version, Flow.data, Flow.paused_at,
    Flow.pause_reason, Flow.drop_before, Flow.pending_end, Flow.deleted_at, Flow.updated_at,
]  # fmt: skip


def _apply_request(flow: Flow, request: FlowCreate | FlowPatch, parsed: FlowInput, by: Actor) -> bool:
    """Apply a request to a flow, without saving it; return whether trigger, steps or content changed."""
    if isinstance(request.name, str):
        flow.name = request.name.strip()
    if request.goal is not UNSET:
        flow.goal = (request.goal or "").strip() or None
    if request.data is not UNSET:
        flow.data = request.data or {}
    is_changed = parsed.trigger is not None and set_trigger(flow, parsed.trigger)
    if parsed.steps is not None:
        old_steps, old_revisions = flow.steps, _list_revisions(flow.id)
        flow.steps = versions.save_contents(flow.account_id, flow.id, parsed.steps.steps, by.user_id, parsed.contents)
        flow.last_action = parsed.steps.last_action
        is_changed = is_changed or old_steps != flow.steps or old_revisions != _list_revisions(flow.id)
    return is_changed


def set_trigger(flow: Flow, spec: triggers.TriggerSpec) -> bool:
    """Save the trigger of a flow; return whether it changed.

    If an active flow gets a trigger with another event, or a changed date trigger, only later events start the flow. If
    the limit of entries an hour changes, planned entries are cleared, so that the next contacts begin at once. If the
    holdout group changes, its measurement starts again.
    """
    row = Trigger.get(Trigger.flow == flow.id)
    if triggers.get_spec(row) == spec:
        return False
    values = {**spec._asdict(), "data": dict(spec.data), "updated_at": clock.now_ms()}
    if row.data.get("max_per_hour") != spec.data.get("max_per_hour"):
        values["entry_places"] = entry_caps.clear_plan(row.entry_places)
    if row.data.get("holdout") != spec.data.get("holdout"):
        # With another share the group is another one, whose measurement starts now.
        values["held_since"] = clock.now_ms()
    Trigger.update(**values).where(Trigger.id == row.id).execute()
    if flow.status == "active" and (row.event != spec.event or spec.event == triggers.DATE):
        triggers.restart_listening(flow.id)
    return True


def _list_revisions(flow_id: int) -> list[tuple[int, int]]:
    return rows("SELECT id, revision FROM template WHERE flow_id = ? AND removed_at IS NULL ORDER BY id", (flow_id,))
