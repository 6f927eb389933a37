"""Editing a flow step by step, as users do, publishing or discarding the changes, and duplicating a flow.

A flow that was never live changes at once. Changes of an active or paused flow stay in a draft until they are published
or discarded. API clients instead send all steps in one request, which applies at once (`store.update`). Runs keep the
version with which they entered, but the duration of their current wait can be changed (`retime_runs`).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from copy import copy, deepcopy
from typing import Any, NamedTuple

from appliance.accounts import approvals
from appliance.accounts.audit import Actor
from appliance.audience.segments.references import find_flow_references
from appliance.content.templates import revisions, template_edits
from appliance.content.templates import store as templates
from appliance.content.templates.store import NO_STEP_MESSAGES, StepMessages
from appliance.content.templates.validation import TemplateWrite
from appliance.core import clock, signals
from appliance.core.errors import Faults, Invalid, NotFound
from appliance.core.i18n import gettext, pgettext
from appliance.events import log
from appliance.flows import branches, document, jumps, lifecycle, report, store, triggers, versions
from appliance.flows.branches import list_branches, map_branches
from appliance.flows.document import Position, Step
from appliance.flows.lifecycle import Blocker
from appliance.flows.steps import BY_TYPE
from appliance.flows.steps.base import ParseContext, StepKind
from appliance.flows.steps.wait import format_duration
from appliance.flows.triggers import TriggerSpec
from appliance.storage.database import rows
from appliance.storage.models import Flow, Template, Trigger
from appliance.storage.transactions import after_commit, require_write_transaction


class FlowDraft(NamedTuple):
    """A flow with its unpublished changes applied to steps, trigger and goal.

    With `is_separate`, changes are stored as a draft until they are published; otherwise they apply at once.
    """

    flow: Flow
    steps: list[Step]
    trigger: TriggerSpec
    goal: str | None
    is_separate: bool

    @property
    def is_changed(self) -> bool:
        """Return whether there are unpublished changes."""
        return self.flow.draft is not None


def load_draft(account_id: int, flow_id: int) -> FlowDraft:
    """Return a flow with its unpublished changes; raises NotFound."""
    return build_draft(store.find(account_id, flow_id))


def build_draft(flow: Flow) -> FlowDraft:
    """Return a loaded flow with its unpublished changes, which are read from the database."""
    changes = lifecycle.read_draft(flow)
    return FlowDraft(
        flow, changes["steps"], TriggerSpec(**changes["trigger"]), changes["goal"], is_draft_separate(flow)
    )


def is_draft_separate(flow: Flow) -> bool:
    """Return whether changes are stored as a draft: the flow has one, or is active or paused."""
    return flow.draft is not None or (flow.version > 0 and flow.status in ("active", "paused"))


def get_step_template(account_id: int, flow_id: int, step_id: int) -> Template:
    """Return the template of a step, published or not; raises NotFound, also if the step sends nothing."""
    step = document.find_step(load_draft(account_id, flow_id).steps, step_id)
    if step is None or not step.get("template_id"):
        raise NotFound
    return templates.get(account_id, step["template_id"])


def add_contents(steps: Sequence[Step]) -> list[Step]:
    """Return copies of steps with the current content of their templates under `content`, at all levels.

    Each `go_to` has the step that it leads to under `target`.
    """
    return jumps.link_targets(_add_contents(steps, versions.get_contents(versions.list_step_templates(steps))))


def list_blockers(draft: FlowDraft, by: Actor) -> list[tuple[int | None, Blocker]]:
    """Return (step id, blocker) for each blocker that prevents `by` from activating or publishing the draft.

    The step id is None if the blocker does not concern a step.
    """
    flow = copy(draft.flow)
    flow.steps, flow.goal = draft.steps, draft.goal
    if draft.is_separate and flow.approval_state == "approved":
        flow.approval_state = "pending_review"
    blockers = lifecycle.list_blockers(flow, Trigger(**draft.trigger._asdict()), by)
    paths = sorted(((path, step["id"]) for path, step in document.walk(draft.steps)), key=lambda item: -len(item[0]))
    return [
        (next((step_id for path, step_id in paths if blocker.field.startswith(path)), None), blocker)
        for blocker in blockers
    ]


def _add_contents(steps: Sequence[Step], contents: Any) -> list[Step]:
    copies = []
    for step in steps:
        content = {"content": dict(contents.get(step["template_id"], {}))} if step.get("template_id") else {}
        copies.append(map_branches({**step, **content}, lambda nested: _add_contents(nested, contents)))
    return copies


def add_step(account_id: int, flow_id: int, position: Position, kind: str, raw: dict[str, Any], by: Actor) -> int:
    """Insert a new step of a kind and return its id; `raw` has its props, in the form of an API request.

    Raises NotFound. Raises Invalid with all errors of the props, or if the flow is archived, if the position does not
    exist, or if the flow would have too many steps or levels.
    """
    require_write_transaction()
    draft = _open_for_edit(account_id, flow_id)
    new_id = _get_id_generator(draft)
    step_id = new_id()
    props = _parse_step(account_id, BY_TYPE[kind], raw, new_id)
    nested: dict[str, list[Step]] = {key: [] for key in BY_TYPE[kind].list_branches(props)}
    step = {"id": step_id, "type": kind, **branches.join_branches(props, nested)}
    _save_steps(draft, _check_jump(_check_steps(document.insert_step(draft.steps, position, step)), step_id), by)
    return step_id


def change_step(account_id: int, flow_id: int, step_id: int, raw: dict[str, Any], by: Actor) -> None:
    """Replace the props of a step, and change the content fields that `raw` names; its branches and template stay.

    Raises NotFound, or Invalid with all errors or if the flow is archived.
    """
    require_write_transaction()
    draft = _open_for_edit(account_id, flow_id)
    step = _get_step(draft, step_id)
    parsed = _parse_step(account_id, BY_TYPE[step["type"]], raw, _get_id_generator(draft), step)
    content = parsed.pop("content", None)
    if "template_id" in step:
        parsed["template_id"] = step["template_id"]
        if content:
            templates.update(account_id, step["template_id"], TemplateWrite(**content), by.user_id)
            draft = _open_for_edit(account_id, flow_id)
    _save_steps(draft, _check_jump(document.replace_step(draft.steps, _replace_props(step, parsed)), step_id), by)


def _replace_props(step: Step, props: dict[str, Any]) -> Step:
    """Return a step with new props, and with the branches that the props define.

    Raises Invalid if a branch that has steps would be lost.
    """
    keys = BY_TYPE[step["type"]].list_branches(props)
    lost = [branch for branch in list_branches(step) if branch.key not in keys and branch.steps]
    if lost and not keys:
        raise Invalid({"base": [gettext("remove the steps in the branches first: this kind of wait has no branches")]})
    if lost:
        raise Invalid({"base": [gettext("remove the steps in this branch before you remove the branch")]})
    nested = {key: branches.get_branch(step, key) or [] for key in keys}
    return {"id": step["id"], "type": step["type"], **branches.join_branches(props, nested)}


def move_step(account_id: int, flow_id: int, step_id: int, target: Position | int, by: Actor) -> None:
    """Move a step with its branches to a position, or by a number of places among its siblings (negative: up).

    A move beyond the first or last place changes nothing. Raises NotFound, or Invalid if the position does not exist,
    if the flow would have too many levels, or if it is archived.
    """
    require_write_transaction()
    draft = _open_for_edit(account_id, flow_id)
    _get_step(draft, step_id)
    if isinstance(target, Position):
        _save_steps(draft, _check_steps(document.move_step(draft.steps, step_id, target)), by)
        return
    changed = document.shift_step(draft.steps, step_id, target)
    if changed is not None:
        _save_steps(draft, changed, by)


def duplicate_step(account_id: int, flow_id: int, step_id: int, by: Actor) -> int:
    """Insert a copy of a step, with its branches and content, after the step; return the id of the copy.

    Raises NotFound, or Invalid if the flow is archived or would have too many steps.
    """
    require_write_transaction()
    draft = _open_for_edit(account_id, flow_id)
    copied = document.copy_step(_get_step(draft, step_id), _get_id_generator(draft))
    with_content = include_contents(copied)
    _save_steps(
        draft, _check_steps(document.insert_step(draft.steps, Position(document.AFTER, step_id), with_content)), by
    )
    return int(copied["id"])


def include_contents(step: Step) -> Step:
    """Return a copied step, with its branches, marked so that saving it copies the content of its template.

    The mark is an empty `content` beside the `template_id` of the original.
    """
    copied = dict(step)
    if copied.get("template_id"):
        copied["content"] = {}
    return map_branches(copied, lambda nested: [include_contents(child) for child in nested])


def delete_step(account_id: int, flow_id: int, step_id: int, by: Actor) -> list[Step]:
    """Delete a step with everything in its branches; return all steps as they were before, for `restore_steps`.

    Raises NotFound, or Invalid if the flow is archived.
    """
    require_write_transaction()
    draft = _open_for_edit(account_id, flow_id)
    _get_step(draft, step_id)
    previous_steps = deepcopy(draft.steps)
    _save_steps(draft, document.remove_step(draft.steps, step_id), by)
    return previous_steps


def restore_steps(account_id: int, flow_id: int, steps: list[Step], by: Actor) -> None:
    """Replace all steps of a flow with those that `delete_step` returned. Raises NotFound, or Invalid if archived."""
    require_write_transaction()
    _save_steps(_open_for_edit(account_id, flow_id), steps, by)


def change_trigger(account_id: int, flow_id: int, raw: dict[str, Any], by: Actor) -> None:
    """Change the trigger of a flow; raises NotFound, or Invalid with all errors or if the flow is archived."""
    require_write_transaction()
    draft = _open_for_edit(account_id, flow_id)
    faults = Faults()
    spec = triggers.parse_trigger(account_id, raw, faults, "trigger", draft.trigger)
    faults.check()
    if draft.is_separate:
        _save_change(draft.flow, {"trigger": {**spec._asdict(), "data": dict(spec.data)}})
    elif store.set_trigger(draft.flow, spec):
        lifecycle.handle_edit(draft.flow, by)
        store.save(draft.flow)


def change_goal(account_id: int, flow_id: int, goal: str | None, by: Actor) -> None:
    """Change the goal of a flow, the event that completes runs early (None: no goal).

    Raises NotFound, or Invalid if the flow is archived.
    """
    require_write_transaction()
    draft = _open_for_edit(account_id, flow_id)
    if draft.is_separate:
        _save_change(draft.flow, {"goal": goal})
    elif draft.flow.goal != goal:
        draft.flow.goal = goal
        store.save(draft.flow)


def _open_for_edit(account_id: int, flow_id: int) -> FlowDraft:
    draft = load_draft(account_id, flow_id)
    if draft.flow.status == "archived":
        raise Invalid({"base": [gettext("this flow is archived: reopen it as a draft to change it")]})
    return draft


def _get_step(draft: FlowDraft, step_id: int) -> Step:
    step = document.find_step(draft.steps, step_id)
    if step is None:
        raise NotFound
    return step


def _check_steps(steps: list[Step] | None) -> list[Step]:
    if steps is None:
        raise Invalid({"base": [gettext("this position no longer exists")]})
    error = document.check_size(steps)
    if error:
        raise Invalid({"base": [error]})
    return steps


def _check_jump(steps: list[Step], step_id: int) -> list[Step]:
    """Return the steps; raise Invalid if the `go_to` with an id leads to no other step or into a loop without wait."""
    paths = dict(document.walk(steps))
    for path, message in jumps.find_faults(steps, paths):
        step_path, _, key = path.rpartition(".")
        if paths[step_path]["id"] == step_id:
            raise Invalid({key: [message]})
    return steps


def _get_id_generator(draft: FlowDraft) -> Callable[[], int]:
    """Return a function that increases `last_action` of the draft's flow and returns it as a new step id.

    An id is never used twice in a flow; `_save_steps` stores the new `last_action`.
    """

    def generate_id() -> int:
        draft.flow.last_action += 1
        return int(draft.flow.last_action)

    return generate_id


def _parse_step(
    account_id: int, kind: StepKind, raw: dict[str, Any], new_id: Callable[[], int], previous: Step | None = None
) -> dict[str, Any]:
    """Parse the props of a step; raises Invalid with all errors at the keys of the step, without a path."""
    faults = Faults()
    raw_props = {key: value for key, value in raw.items() if key in kind.keys | set(kind.branch_keys)}
    props = kind.parse(raw_props, ParseContext(account_id, "", faults, new_id, previous))
    if faults.fields:
        raise Invalid({name.removeprefix("."): messages for name, messages in faults.fields.items()})
    return props


def _save_steps(draft: FlowDraft, steps: list[Step], by: Actor) -> None:
    flow = draft.flow
    flow.edited_by = by.person_id
    if not draft.is_separate:
        flow.steps = versions.save_contents(flow.account_id, flow.id, steps, by.user_id)
        lifecycle.handle_edit(flow, by)
        store.save(flow)
        return
    flow.save(only=[Flow.last_action, Flow.edited_by])
    _save_change(flow, {"steps": versions.save_draft_contents(flow.account_id, flow.id, steps, by.user_id)})


def _save_change(flow: Flow, changes: dict[str, Any]) -> None:
    """Save changes in the draft; delete the draft if it then equals the live version, including all content.

    `changes` has some of the keys that `lifecycle.read_draft` returns.
    """
    draft = {**lifecycle.read_draft(flow), **changes}
    lifecycle.write_draft(flow, None)
    is_live = draft == lifecycle.read_draft(flow) and not lifecycle.find_changed_templates(flow)
    lifecycle.write_draft(flow, None if is_live else draft)


def get_live_trigger(flow_id: int) -> TriggerSpec:
    """Return the live trigger of a flow."""
    return triggers.get_spec(Trigger.get(Trigger.flow == flow_id))


# The number of runs that one transaction changes; it is small, so that other writes do not wait.
RETIME_BATCH_SIZE = 200
_COUNT_INSIDE = "SELECT action_id, count(*) FROM run WHERE flow_id = ? AND status = 'live' AND test = 0 GROUP BY 1"
_RETIME_RUNS = (
    "UPDATE run SET due_at = p.entered_at + ?3, updated_at = ?4 FROM step_visit p WHERE p.id = run.step_visit_id "
    "AND run.id IN (SELECT id FROM run WHERE flow_id = ?1 AND action_id = ?2 AND status = 'live' AND id > ?5 "
    "AND step_visit_id IS NOT NULL ORDER BY id LIMIT ?6) RETURNING run.id"
)


class Change(NamedTuple):
    """A difference between the draft and the live version.

    `kind` is `added`, `removed`, `changed` or `moved`. `label` names the kind of step, `summary` says what the step
    does, and `detail` what differs. `step_id` is None for a change of the trigger or goal. `waiting` is the number of
    contacts in the step now, and `seconds` the new duration of a changed wait.
    """

    kind: str
    step_id: int | None
    label: str
    summary: str
    detail: str = ""
    waiting: int = 0
    seconds: int | None = None


def find_references(draft: FlowDraft) -> set[tuple[str, int | None]]:
    """Return (kind, id or None) of the segments and lists that the live or the changed flow depends on."""
    changed = copy(draft.flow)
    changed.steps = draft.steps
    trigger = {("segment", draft.trigger.segment_id), ("list", draft.trigger.contact_list_id)}
    return find_flow_references(draft.flow) | find_flow_references(changed) | trigger


def count_inside(flow_id: int) -> dict[int | None, int]:
    """Return the number of live runs in each step of a flow, by step id, without test runs."""
    return dict(rows(_COUNT_INSIDE, (flow_id,)))


def list_changes(account_id: int, flow_id: int) -> list[Change]:
    """Return the unpublished changes of a flow; raises NotFound."""
    draft = load_draft(account_id, flow_id)
    return [*_find_changes(draft)] if draft.is_changed else []


def _find_changes(draft: FlowDraft) -> Iterator[Change]:
    flow = draft.flow
    live_trigger, waiting = get_live_trigger(flow.id), count_inside(flow.id)
    if draft.trigger != live_trigger:
        yield Change("changed", None, gettext("Trigger"), "", _describe_trigger_change(live_trigger, draft.trigger))
    if draft.goal != flow.goal:
        yield Change("changed", None, gettext("Goal"), draft.goal or pgettext("goal", "removed"))
    old_steps = {step["id"]: step for _, step in document.walk(add_contents(flow.steps))}
    new_steps = {step["id"]: step for _, step in document.walk(add_contents(draft.steps))}
    changed_templates = lifecycle.find_changed_templates(flow)
    for step_id, step in new_steps.items():
        if step_id not in old_steps:
            yield _build_change("added", flow, step)
            continue
        seconds = step["duration"] if step["type"] == "wait" and step != old_steps[step_id] else None
        detail = _describe_difference(old_steps[step_id], step, changed_templates.get(step_id))
        if detail:
            yield _build_change("changed", flow, step, detail, waiting.get(step_id, 0), seconds)
        elif _get_neighbours(flow.steps, step_id) != _get_neighbours(draft.steps, step_id, {*old_steps}):
            yield _build_change("moved", flow, step)
    for step_id, step in old_steps.items():
        if step_id not in new_steps:
            yield _build_change("removed", flow, step, waiting=waiting.get(step_id, 0))


def _build_change(
    kind: str, flow: Flow, step: Step, detail: str = "", waiting: int = 0, seconds: int | None = None
) -> Change:  # fmt: skip
    label = gettext(BY_TYPE[step["type"]].label)
    return Change(kind, step["id"], label, report.summarize_step(flow.account_id, step), detail, waiting, seconds)


def _describe_difference(old: Step, new: Step, changed_template: Any) -> str:
    """Return a text that says what differs between two states of a step, "" if nothing does.

    `changed_template` is the step's entry in `lifecycle.find_changed_templates`, or None.
    """
    differences = []
    if old["type"] == "wait" and old["duration"] != new["duration"]:
        differences.append(gettext("was %(duration)s", duration=format_duration(old["duration"])))
    elif _get_settings(old) != _get_settings(new):
        differences.append(gettext("settings"))
    if changed_template is not None:
        row, live = changed_template
        differences.append(
            revisions.translate_label(
                revisions.describe_change([name for name, value in live.items() if getattr(row, name) != value])
            )
        )
    return ", ".join(differences)


def _get_settings(step: Step) -> dict[str, Any]:
    return {key: value for key, value in branches.get_props(step).items() if key not in ("content", "target")}


def _get_neighbours(steps: list[Step], step_id: int, known_ids: set[int] | None = None) -> Any:
    """Return (id of the parent step, branch, ids of the preceding sibling) of a step; the last is a list of 0 or 1 id.

    With `known_ids`, siblings with other ids are ignored, so that an inserted step does not make the next one count as
    moved.
    """
    location = document.locate_step(steps, step_id)
    if location is None:
        return None
    preceding = [
        sibling["id"] for sibling in location.siblings[: location.at] if known_ids is None or sibling["id"] in known_ids
    ]
    return (location.parent["id"] if location.parent else None, location.branch, preceding[-1:])


def _describe_trigger_change(old: TriggerSpec, new: TriggerSpec) -> str:
    if old.event != new.event:
        return gettext("%(new)s instead of %(old)s", new=log.describe(new.event), old=log.describe(old.event))
    names = [name for name in ("segment_id", "contact_list_id", "data") if getattr(old, name) != getattr(new, name)]
    labels = {"segment_id": gettext("segment"), "contact_list_id": gettext("list"), "data": gettext("conditions")}
    return ", ".join(labels[name] for name in names)


def prepare_messages(account_id: int, flow_id: int) -> StepMessages:
    """Compile the messages of a draft; call it before the write transaction that publishes it. Raises NotFound."""
    draft = load_draft(account_id, flow_id)
    return versions.prepare_messages(account_id, draft.steps, draft.flow)


def publish(account_id: int, flow_id: int, by: Actor, messages: StepMessages = NO_STEP_MESSAGES) -> Flow:
    """Publish the draft as the version that new runs follow; if there is no draft, only `updated_at` changes.

    Raises NotFound, or Invalid with all blockers or if the change of an active flow needs approval.
    """
    require_write_transaction()
    draft = load_draft(account_id, flow_id)
    flow = draft.flow
    if flow.draft is not None:
        if flow.status == "active" and not lifecycle.needs_no_approval(flow, by):
            # The live version stays active until the change is approved.
            message = gettext(approvals.OWN_CHANGE if by.can_approve else approvals.APPROVAL_REQUIRED)
            raise Invalid({"base": [message]}, reason="approval_required")
        flow.draft = None
        flow.steps = versions.save_contents(account_id, flow_id, draft.steps, by.user_id)
        flow.goal = draft.goal
        store.set_trigger(flow, draft.trigger)
        lifecycle.handle_edit(flow, by, messages)
    return store.save(flow)


def activate(
    account_id: int, flow_id: int, by: Actor, skip_overdue_seconds: int | None = None,
    messages: StepMessages = NO_STEP_MESSAGES,
) -> Flow:  # fmt: skip
    """Publish the draft and activate the flow, or resume it if it is paused.

    `skip_overdue_seconds` and `messages` are those of `lifecycle.activate`. Raises NotFound, and the errors of
    `publish` and `lifecycle.activate`.
    """
    require_write_transaction()
    publish(account_id, flow_id, by, messages)
    return store.apply_action(account_id, flow_id, lifecycle.activate, by, skip_overdue_seconds, messages)


def publish_changed_template(template: Template, messages: StepMessages) -> None:
    """Publish the changed template of a step if its flow is active; a change made in the browser stays a draft.

    `messages` are the compiled messages of the step. Raises Invalid if the flow has blockers now.
    """
    require_write_transaction()
    flow = Flow.get_by_id(template.flow_id)
    path = next((path for path, step in document.walk(flow.steps) if step.get("template_id") == template.id), None)
    if path is None or flow.deleted_at is not None:
        return
    if flow.version and flow.status in ("active", "paused") and revisions.is_written_by_person(template):
        # Changes made in the browser are saved while the user types; they stay a draft until the user publishes them.
        if flow.draft is None:
            lifecycle.write_draft(flow, lifecycle.read_draft(flow))
        return
    try:
        with lifecycle.hold_back_draft(flow, template) if flow.status == "active" else nullcontext():
            flow.edited_by = revisions.find_author(template)
            lifecycle.handle_edit(flow, Actor(), messages)
    except Invalid as error:
        fields = {name.removeprefix(f"{path}."): messages for name, messages in error.fields.items()}
        raise Invalid(fields, reason=error.reason) from None
    store.save(flow, reload=False)


def discard(account_id: int, flow_id: int, by: Actor) -> None:
    """Discard the unpublished changes and restore the live content in the templates; raises NotFound."""
    require_write_transaction()
    flow = store.find(account_id, flow_id)
    changed_templates = lifecycle.find_changed_templates(flow)
    lifecycle.write_draft(flow, None)
    for row, live in changed_templates.values():
        revision = _find_revision(row.id, live)
        if revision is not None:
            template_edits.restore(account_id, row.id, revision, by.user_id)
    lifecycle.write_draft(store.find(account_id, flow_id), None)


def _find_revision(template_id: int, live: dict[str, Any]) -> int | None:
    row = Template.get_by_id(template_id)
    for number in sorted(revisions.fetch_origins(template_id), reverse=True):
        if revisions.get(row.account_id, template_id, number).document == live:
            return number
    return None


def retime_runs(flow_id: int, step_id: int, seconds: int, after: int) -> int | None:
    """Set a new duration for the next batch of runs that wait in a step: those with the lowest ids above `after`.

    Return the last run id of the batch, or None if no run is left. Runs that have already waited for the new duration
    advance at once.
    """
    require_write_transaction()
    retimed = rows(_RETIME_RUNS, (flow_id, step_id, seconds * 1000, clock.now_ms(), after, RETIME_BATCH_SIZE))
    after_commit(lambda: signals.wake("flows"))
    return max((row[0] for row in retimed), default=None)


def duplicate_flow(account_id: int, flow_id: int, by: Actor) -> Flow:
    """Create a copy of a flow, with its unpublished changes, as a draft; raises NotFound."""
    require_write_transaction()
    draft = load_draft(account_id, flow_id)
    now, name = clock.now_ms(), gettext("%(name)s (copy)", name=draft.flow.name[:240])
    copied = Flow.create(
        account=account_id, name=name, goal=draft.goal, data=draft.flow.data, last_action=draft.flow.last_action,
        edited_by=by.person_id, created_at=now, updated_at=now,
    )  # fmt: skip
    Trigger.create(account=account_id, flow=copied, created_at=now, updated_at=now)
    copied.steps = versions.save_contents(
        account_id, copied.id, [include_contents(step) for step in draft.steps], by.user_id
    )  # fmt: skip
    store.set_trigger(copied, draft.trigger)
    return store.save(copied)
