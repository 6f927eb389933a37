"""The proposals to start a flow, and to change one that is or was live."""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from appliance.accounts import audit
from appliance.accounts.audit import Actor
from appliance.agents.differences import (
    Difference,
    compare,
    flatten_steps,
    flatten_translations,
    index_places,
    iter_steps,
    label_field,
)
from appliance.agents.flow_words import Worded, label_key, word_trigger_value
from appliance.agents.kinds import base
from appliance.agents.kinds.base import EmailChange, NoChanges, ProposalKind, Reach
from appliance.content.templates.revisions import to_document
from appliance.core.errors import Invalid
from appliance.core.i18n import gettext, gettext_noop
from appliance.core.validation import Name
from appliance.flows import branches, document, lifecycle, store
from appliance.flows import versions as flow_versions
from appliance.flows.document import Step
from appliance.flows.steps import BY_TYPE
from appliance.flows.steps.base import MESSAGE_FIELDS
from appliance.flows.store import FlowData, FlowGoal, FlowInput, FlowPatch, FlowSteps, FlowTrigger
from appliance.storage.models import NESTED_STEP_KEYS, Flow


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
    translated = {row.id: flatten_translations(to_document(row), row.channel) for row in flow.templates}
    steps = _add_translations(_dump_steps(flow), translated)
    return [status, *compare({}, _flatten_settings(flow)), *compare({}, flatten_steps(account_id, steps))]


def _add_translations(steps: list[Step], translated: dict[int, dict[str, str]]) -> list[Step]:
    """Return dumped steps with the translated texts of their templates, at all levels."""
    return [
        {
            key: _add_translations(value, translated) if key in NESTED_STEP_KEYS and isinstance(value, list) else value
            for key, value in {**step, "translations": translated.get(step.get("template_id") or 0, {})}.items()
        }
        for step in steps
    ]


def _dump_steps(flow: Flow) -> list[dict[str, Any]]:
    return document.dump_steps(flow.steps, flow_versions.get_contents(flow.templates))


def _flatten_settings(flow: Flow) -> dict[str, Any]:
    trigger = flow.loaded_trigger
    return _flatten_request(
        flow.account_id,
        {
            "name": flow.name, "goal": flow.goal, "data": flow.data,
            "trigger": {"event": trigger.event, "contact_list_id": trigger.contact_list_id,
                        "segment_id": trigger.segment_id, "data": trigger.data},
        },
    )  # fmt: skip


def _flatten_request(account_id: int, values: dict[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if name == "trigger" and isinstance(value, dict):
            # An id or event that is absent is the same as null.
            for key, inner in value.items():
                flat |= {f"{label_field('trigger')} · {label}": text for label, text in _leaves(account_id, key, inner)}
        elif name == "goal" and isinstance(value, str):
            flat[label_field(name)] = word_trigger_value(account_id, "event", value)
        else:
            flat |= dict(_leaves(None, name, value))
    return flat


def _leaves(account_id: int | None, name: str, value: Any) -> list[tuple[str, Any]]:
    """Return the single values in a nested value as (label, value).

    `account_id` is given for values of a trigger, which are returned as `Worded`; None for all others.
    """
    label = label_field(name)
    if account_id is not None:
        label = label_key(name) or label
        value = word_trigger_value(account_id, name, value)
    if isinstance(value, Worded):
        return [(label, value)]
    if isinstance(value, dict):
        return [
            (f"{label} · {inner}", text)
            for key, item in value.items()
            for inner, text in _leaves(account_id, str(key), item)
        ]
    if isinstance(value, list):
        return [
            (f"{label} · {inner}", text)
            for index, item in enumerate(value, start=1)
            for inner, text in _leaves(account_id, str(index), item)
        ]
    return [] if document.is_absent(value) else [(label, value)]


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
        template_id = raw.get("template_id")
        if template_id is not None and own.get(raw.get("id")) != template_id:
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
    flow = store.get(account_id, flow_id)
    given = {name: value for name, value in msgspec.structs.asdict(changes).items() if value is not UNSET}
    names = [name for name in given if name != "steps"]
    before, after = {}, {}
    if names:
        prefixes = tuple(label_field(name) for name in names)
        before = {label: text for label, text in _flatten_settings(flow).items() if label.startswith(prefixes)}
        after = _flatten_request(account_id, {name: given[name] for name in names})
    if "steps" in given:
        before |= flatten_steps(account_id, _dump_steps(flow))
        after |= flatten_steps(account_id, _dump_proposed(flow, changes))
    return compare(before, after)


def _dump_proposed(flow: Flow, changes: FlowChanges) -> list[Step]:
    """Return the proposed steps as the API would show them once they are stored, with their whole content."""
    parsed = store.parse_request(flow.account_id, FlowPatch(steps=changes.steps), flow.id).steps
    contents = flow_versions.get_contents(flow.templates)
    own = {step["id"]: contents.get(step["template_id"], {}) for _, step in document.walk(flow.steps)
           if step.get("template_id")}  # fmt: skip

    def dump(steps: Sequence[Step]) -> list[Step]:
        dumped_steps = []
        for step in steps:
            props = branches.get_props(step)
            if "content" in props or step["id"] in own:
                props["content"] = {**own.get(step["id"], {}), **(props.get("content") or {})}
            values = {key: value for key, value in BY_TYPE[step["type"]].dump(props).items() if value is not None}
            nested = {branch.key: dump(branch.steps) for branch in branches.list_branches(step)}
            joined = branches.join_branches(values, nested)
            dumped_steps.append({"id": step["id"], "type": step["type"], **document.EMPTY_STEP, **joined})
        return dumped_steps

    return dump(parsed.steps if parsed is not None else ())


def measure(account_id: int, flow_id: int, changes: Any) -> Reach:
    """Return an empty Reach: the replay of a proposal shows how many contacts a flow reaches."""
    return Reach()


def list_started_emails(account_id: int, flow_id: int, changes: NoChanges) -> list[EmailChange]:
    """Return the emails of the steps of the flow, in their order."""
    return _list_step_emails({}, _dump_steps(store.get(account_id, flow_id)))


def list_changed_emails(account_id: int, flow_id: int, changes: FlowChanges) -> list[EmailChange]:
    """Return the emails of steps that are new or that differ, in their order."""
    if changes.steps is UNSET:
        return []
    flow = store.get(account_id, flow_id)
    before = {step["id"]: _get_email(step) for step in iter_steps(_dump_steps(flow)) if step["type"] == "email"}
    return _list_step_emails(before, _dump_proposed(flow, changes))


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
    "/flows/{}",
)
