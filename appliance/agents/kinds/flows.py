"""The proposals to start a flow, and to change one that is or was live."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from appliance.accounts import audit
from appliance.accounts.audit import Actor
from appliance.agents.differences import (
    Difference,
    Values,
    compare,
    flatten_steps,
    flatten_translations,
    index_places,
    iter_steps,
    label_field,
)
from appliance.agents.flow_words import Worded, label_key, word_trigger_value
from appliance.agents.kinds import base
from appliance.agents.kinds.base import EmailChange, NoChanges, ProposalKind, Reach, References
from appliance.audience.segments import references
from appliance.content.templates.revisions import to_document
from appliance.core.errors import Invalid
from appliance.core.i18n import gettext, gettext_noop
from appliance.core.validation import Name
from appliance.flows import branches, document, lifecycle, store, triggers
from appliance.flows import versions as flow_versions
from appliance.flows.document import Step
from appliance.flows.steps import BY_TYPE
from appliance.flows.steps.base import MESSAGE_FIELDS
from appliance.flows.store import FlowData, FlowGoal, FlowInput, FlowPatch, FlowSteps, FlowTrigger
from appliance.storage.models import Flow, Template


class FlowChanges(Struct):
    """The changes of a flow, as `PATCH /flows/{id}` takes them; `steps` replaces all steps."""

    name: Name | UnsetType = UNSET
    goal: FlowGoal | None | UnsetType = UNSET
    trigger: FlowTrigger | None | UnsetType = UNSET
    steps: FlowSteps | None | UnsetType = UNSET
    data: FlowData | None | UnsetType = UNSET


def describe_version(flow: Flow) -> str:
    """Return the version of a flow with its status, steps, contents and audience."""
    return base.hash_version([flow.status, flow.version, base.describe_version(flow)])


def _to_patch(changes: FlowChanges) -> FlowPatch:
    return FlowPatch(**msgspec.structs.asdict(changes))


def check_start(account_id: int, flow_id: int, changes: NoChanges) -> None:
    """Raise Invalid if the flow cannot be started for a reason that no approval removes."""
    flow = store.get(account_id, flow_id)
    if flow.status not in ("draft", "paused"):
        raise Invalid({"subject_id": [gettext("must be a draft or paused")]})
    lifecycle.raise_blockers(lifecycle.list_blockers(flow, flow.loaded_trigger, Actor(can_approve=True)))


def prepare_start(account_id: int, flow_id: int, changes: NoChanges) -> Any:
    """Return the compiled messages of the steps."""
    return store.prepare_messages(account_id, flow_id)


def start(account_id: int, flow_id: int, changes: NoChanges, by: Actor, prepared: Any) -> None:
    """Activate the flow as a user does; raises what `lifecycle.activate` raises."""
    args = (account_id, flow_id, lifecycle.activate, by, None, prepared)
    audit.run_and_record(by, "flow_activate", store.apply_action, *args)


def compare_start(account_id: int, flow_id: int, changes: NoChanges) -> list[Difference]:
    """Return the change of the status, and the trigger and steps that start."""
    flow = store.get(account_id, flow_id)
    before = gettext("Draft") if flow.status == "draft" else gettext("Paused")
    status = Difference(label_field("status"), before, gettext("Active"))
    values = _flatten_settings(account_id, _get_settings(flow)).merge(flatten_steps(account_id, _dump_steps(flow)))
    return [status, *compare(Values(), values)]


def _dump_steps(flow: Flow) -> list[Step]:
    """Return the steps of a flow as the API shows them, with the translated texts of their templates."""
    steps = document.dump_steps(flow.steps, flow_versions.get_contents(flow.templates))
    documents = {int(row.action_id or 0): (to_document(row), row.channel) for row in flow.templates}
    return _add_translations(steps, documents)


def _add_translations(steps: list[Step], documents: dict[int, tuple[dict[str, Any], str]]) -> list[Step]:
    """Return dumped steps, at all levels, with the translated texts of the documents of their templates by step id."""
    translated = {number: flatten_translations(*documents[number]) for number in documents}
    for step in iter_steps(steps):
        if step["id"] in translated:
            step["translations"] = translated[step["id"]]
    return steps


def _get_settings(flow: Flow) -> dict[str, Any]:
    trigger = triggers.get_spec(flow.loaded_trigger)
    return {"name": flow.name, "goal": flow.goal, "data": flow.data, "trigger": trigger._asdict()}


def _flatten_settings(account_id: int, settings: dict[str, Any]) -> Values:
    """Return the values of settings of a flow by the names of the request that changes them."""
    values = Values()
    for name, value in settings.items():
        if name == "trigger":
            _flatten_trigger(account_id, (name,), label_field(name), value, values)
        elif name == "goal" and isinstance(value, str):
            values.add((name,), label_field(name), word_trigger_value(account_id, "event", value))
        elif value:
            values.flatten((name,), label_field(name), value)
    return values


def _flatten_trigger(account_id: int, path: tuple[str, ...], label: str, value: Any, values: Values) -> None:
    """Add the values of a trigger below a path, in the words of the flow editor."""
    worded = word_trigger_value(account_id, path[-1], value)
    if isinstance(worded, Worded):
        values.add(path, label, worded)
    elif isinstance(value, Mapping) and value:
        for key, inner in value.items():
            inner_label = f"{label} · {label_key(str(key)) or label_field(str(key))}"
            _flatten_trigger(account_id, (*path, str(key)), inner_label, inner, values)
    else:
        # An id or event that is absent is the same as null.
        values.flatten(path, label, value, keeps_empty=len(path) > 2)


def check_change(account_id: int, flow_id: int, changes: FlowChanges) -> None:
    """Raise Invalid with all faults of a change, or if the flow could be changed without a proposal."""
    flow = store.find(account_id, flow_id)
    if flow.status == "archived" or store.is_new_draft(flow):
        raise Invalid({"subject_id": [gettext("must be active, paused or a draft that was active")]})
    if flow.draft is not None:
        raise Invalid({"subject_id": [gettext("has unpublished changes of a user")]})
    if all(value is UNSET for value in msgspec.structs.astuple(changes)):
        raise Invalid({"changes": [gettext("can't be blank")]})
    own = {step["id"]: step.get("template_id") for _, step in document.walk(flow.steps)}
    for path, raw in _walk_raw(changes.steps, "changes.steps"):
        template_id, number = raw.get("template_id"), raw.get("id")
        if template_id is not None and (not isinstance(number, int) or own.get(number) != template_id):
            # The content of another template could change before the proposal is approved.
            raise Invalid({f"{path}.template_id": [gettext("must be that of the step: give the content instead")]})
    _refuse_secrets(changes.steps)
    try:
        store.check_request(account_id, _to_patch(changes), flow_id)
    except Invalid as error:
        fields = {f"changes.{name}": messages for name, messages in error.fields.items()}
        raise Invalid(fields, reason=error.reason) from None


# Names of fields that are encrypted in a flow. A proposal is stored and shown unencrypted, so it must not contain them.
_SECRET_FIELDS = frozenset(
    field.name for kind in BY_TYPE.values() for field in kind.fields if field.type in ("secret", "secret_object")
)


def _refuse_secrets(steps: Any) -> None:
    """Raise Invalid for each value of a secret field; names without a value keep the stored one."""
    faults: dict[str, list[str]] = {}
    for path, raw in _walk_raw(steps, "changes.steps"):
        for name in sorted(_SECRET_FIELDS & raw.keys()):
            value = raw[name]
            if any(value.values()) if isinstance(value, dict) else value:
                faults[f"{path}.{name}"] = [gettext("is secret: a user sets it in the flow")]
    if faults:
        raise Invalid(faults)


def _walk_raw(steps: Any, path: str) -> list[tuple[str, dict[str, Any]]]:
    """Return (path, step) of all steps of a request, which may be invalid, at all levels."""
    pairs: list[tuple[str, dict[str, Any]]] = []
    pending: list[tuple[str, Any]] = [(path, steps)]
    while pending:
        place, value = pending.pop()
        if isinstance(value, list):
            pending += [(f"{place}[{index}]", item) for index, item in enumerate(value)]
        elif isinstance(value, dict):
            pairs.append((place, value))
            pending += [(f"{place}.{key}", item) for key, item in value.items() if isinstance(item, list)]
    return pairs


def prepare_change(account_id: int, flow_id: int, changes: FlowChanges) -> FlowInput:
    """Return the parsed changes, with the compiled messages of an active flow."""
    is_live = store.find(account_id, flow_id).status == "active"
    return store.prepare_update(account_id, _to_patch(changes), flow_id, is_live)


def change(account_id: int, flow_id: int, changes: FlowChanges, by: Actor, prepared: FlowInput) -> None:
    """Change the flow as a user does: an active one is published; raises what `store.update` raises."""
    args = (account_id, flow_id, _to_patch(changes), prepared, by)
    audit.run_and_record(by, "flow_publish", store.update, *args)


def compare_change(account_id: int, flow_id: int, changes: FlowChanges) -> list[Difference]:
    """Return the values of the flow that differ after the change."""
    flow, parsed = store.get(account_id, flow_id), store.parse_request(account_id, _to_patch(changes), flow_id)
    now = _get_settings(flow)
    after = {name: value for name, value in msgspec.structs.asdict(changes).items() if value is not UNSET}
    after |= {name: (after[name] or "").strip() or None for name in ("name", "goal") if name in after}
    if "data" in after:
        after["data"] = after["data"] or {}
    if parsed.trigger is not None:
        # Keys of the trigger that the request leaves out keep their values, and some follow from others.
        after["trigger"] = parsed.trigger._asdict()
    after.pop("steps", None)
    old = _flatten_settings(account_id, {name: now[name] for name in after})
    new = _flatten_settings(account_id, after)
    if parsed.steps is not None:
        former = _dump_steps(flow)
        old.merge(flatten_steps(account_id, former, former))
        new.merge(flatten_steps(account_id, _dump_proposed(flow, parsed.steps.steps), former))
    return compare(old, new)


def _dump_proposed(flow: Flow, parsed: Sequence[Step]) -> list[Step]:
    """Return the proposed steps as `_dump_steps` would return them once they are stored."""
    rows = list(Template.select().where(Template.flow == flow.id))
    lifecycle.apply_live_contents(flow, rows)
    documents = flow_versions.build_documents(flow.account_id, flow.id, parsed, rows)

    def dump(steps: Sequence[Step]) -> list[Step]:
        dumped_steps = []
        for step in steps:
            props = branches.get_props(step)
            if "content" in props:
                stored, _ = documents[step["id"]]
                props["content"] = {name: stored[name] for name in MESSAGE_FIELDS}
            values = {key: value for key, value in BY_TYPE[step["type"]].dump(props).items() if value is not None}
            nested = {branch.key: dump(branch.steps) for branch in branches.list_branches(step)}
            joined = branches.join_branches(values, nested)
            dumped_steps.append({"id": step["id"], "type": step["type"], **document.EMPTY_STEP, **joined})
        return dumped_steps

    return _add_translations(dump(parsed), documents)


def measure(account_id: int, flow_id: int, changes: Any) -> Reach:
    """Return an empty Reach: the replay of a proposal shows how many contacts a flow reaches."""
    return Reach()


def list_started_emails(account_id: int, flow_id: int, changes: NoChanges) -> list[EmailChange]:
    """Return the emails of the steps of the flow, in their order."""
    return _list_step_emails({}, _dump_steps(store.get(account_id, flow_id)))


def list_changed_emails(account_id: int, flow_id: int, changes: FlowChanges) -> list[EmailChange]:
    """Return the emails of steps that are new or that differ, in their order."""
    flow, parsed = store.get(account_id, flow_id), store.parse_request(account_id, _to_patch(changes), flow_id)
    if parsed.steps is None:
        return []
    before = {step["id"]: _get_email(step) for step in iter_steps(_dump_steps(flow)) if step["type"] == "email"}
    return _list_step_emails(before, _dump_proposed(flow, parsed.steps.steps))


def _list_step_emails(before: dict[int, dict[str, Any]], steps: list[Step]) -> list[EmailChange]:
    places = index_places(steps)
    emails = [
        EmailChange(places[step["id"]], before.get(step["id"]), _get_email(step))
        for step in iter_steps(steps)
        if step["type"] == "email"
    ]
    return [email for email in emails if email.before != email.after]


def _get_email(step: Step) -> dict[str, Any]:
    return {name: step.get(name) for name in MESSAGE_FIELDS}


def find_started_references(account_id: int, flow_id: int, changes: NoChanges) -> References:
    """Return the segments and lists that decide who enters the flow, takes its branches and sees its sections."""
    flow = store.get(account_id, flow_id)
    return _find_references(account_id, triggers.get_spec(flow.loaded_trigger), _dump_steps(flow))


def find_changed_references(account_id: int, flow_id: int, changes: FlowChanges) -> References:
    """Return the segments and lists that the changed trigger and the changed steps name."""
    flow, parsed = store.get(account_id, flow_id), store.parse_request(account_id, _to_patch(changes), flow_id)
    steps = _dump_proposed(flow, parsed.steps.steps) if parsed.steps is not None else []
    return _find_references(account_id, parsed.trigger or triggers.TriggerSpec(), steps)


def _find_references(account_id: int, trigger: triggers.TriggerSpec, steps: list[Step]) -> References:
    named: References = {("segment", trigger.segment_id), ("list", trigger.contact_list_id)}
    named |= references.find_references(account_id, trigger.data.get("where"))
    for step in iter_steps(steps):
        named |= references.find_references(account_id, step.get("filters"))
        named |= references.find_design_references(account_id, step.get("design"))
    return named


START_FLOW = ProposalKind(
    "start_flow",
    gettext_noop("Start flow"),
    "flow",
    ("flows:read",),
    (),
    NoChanges,
    store.get,
    describe_version,
    check_start,
    prepare_start,
    start,
    compare_start,
    measure,
    list_started_emails,
    find_started_references,
    "/flows/{}",
)
CHANGE_FLOW = ProposalKind(
    "change_flow",
    gettext_noop("Change flow"),
    "flow",
    ("flows:read",),
    ("contacts:read", "events:read"),
    FlowChanges,
    store.get,
    describe_version,
    check_change,
    prepare_change,
    change,
    compare_change,
    measure,
    list_changed_emails,
    find_changed_references,
    "/flows/{}",
)
