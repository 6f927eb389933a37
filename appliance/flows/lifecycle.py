"""The status of a flow: transitions (docs/decisions.md#12), blockers of activation, and the effect on its messages.

A flow is ending when it is deleted, or archived with all contacts removed (`pending_end` is the reason). The request
ends a first batch of its runs. The background job ends the others in short transactions, and continues after a restart.

A worker never sends messages of a flow that is not active (`queue.claim_one`). So pausing a flow writes only one row,
however many contacts are in it. Afterwards its due messages are held in batches, and released when it is active again.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, cast

from msgspec import UNSET, Meta, Struct, UnsetType

from appliance.accounts import approvals
from appliance.accounts.audit import Actor
from appliance.content.templates import revisions
from appliance.content.templates import store as templates
from appliance.content.templates.store import NO_STEP_MESSAGES, StepMessages
from appliance.core import clock, signals
from appliance.core.errors import CurrentState, Invalid, Transition, Unavailable, possible_actions, refuse_transition
from appliance.core.i18n import gettext, gettext_noop
from appliance.core.validation import LastRead, default
from appliance.flows import event_waits, jumps, run_ends, triggers, versions
from appliance.flows.branches import get_props
from appliance.flows.document import Step, walk
from appliance.flows.steps import BY_TYPE
from appliance.sending.messages import preview, senders
from appliance.sending.messages.ledger import FLOWS_DUE_NOW
from appliance.sending.messages.preview import PreviewWarning
from appliance.settings import config
from appliance.storage import transactions
from appliance.storage.database import fetch_one, rows, run
from appliance.storage.models import Account, Flow, Template, TemplateRevision, Trigger
from appliance.storage.models import Step as tables_Step
from appliance.storage.models.message import CANCEL_OPEN
from appliance.storage.transactions import after_commit, require_write_transaction

# In the order of docs/decisions.md#3: the code of the first blocker becomes the `reason` of the error.
_BLOCKER_CODES = ("content_required", "sender_not_ready", "approval_required", "preflight_failed")
_CONTENT_KEYS = frozenset({"subject", "body"})


class ActivateRequest(Struct):
    """Options for activating a flow: the version that was read, and what happens to messages of a pause."""

    skip_overdue_seconds: (
        Annotated[
            int,
            Meta(ge=0, le=31_622_400),
            Meta(
                description="messages that were due longer ago than this number of seconds are dropped; null to "
                "drop none"
            ),
        ]
        | None
        | UnsetType
    ) = UNSET
    updated_at: LastRead | UnsetType = UNSET


class ArchiveRequest(Struct):
    """Options for archiving a flow: contacts in it stay at their step, unless `take_out` ends their runs."""

    take_out: Annotated[bool, default(False), Meta(description="whether active runs exit")] | UnsetType = UNSET


class Blocker(Struct):
    """An error that keeps a flow from being activated.

    `code` is a reason of docs/decisions.md#3, and `field` the path of the field to change.
    """

    code: str
    message: str
    field: str


def list_blockers(flow: Flow, trigger: Trigger, by: Actor) -> list[Blocker]:
    """Return everything that prevents `by` from activating a flow, in the order of `_BLOCKER_CODES`."""
    blockers = [
        *_find_step_blockers(flow),
        *_find_sender_blockers(flow),
        *_find_approval_blockers(flow, by),
        *_find_trigger_blockers(flow, trigger),
    ]
    return sorted(blockers, key=lambda blocker: _BLOCKER_CODES.index(blocker.code))


def raise_blockers(blockers: list[Blocker]) -> None:
    """Raise Invalid with all blockers, if there are any; the code of the first is the reason."""
    if not blockers:
        return
    fields: dict[str, list[str]] = {}
    for blocker in blockers:
        fields.setdefault(blocker.field, []).append(blocker.message)
    raise Invalid(
        fields,
        reason=blockers[0].code,
        blockers=[{"code": blocker.code, "message": blocker.message, "field": blocker.field} for blocker in blockers],
    )


def list_unfinished(account_id: int, steps: Sequence[Step]) -> Iterator[tuple[str, Step, PreviewWarning]]:
    """Yield (path, step, warning) for each unfinished text or link in the emails of steps.

    The steps must contain their content (`drafts.add_contents`).
    """
    for path, step in walk(steps):
        if step["type"] == "email":
            for warning in preview.find_unfinished(account_id, step.get("content") or {}):
                yield path, step, warning


def _find_step_blockers(flow: Flow) -> Iterator[Blocker]:
    if not flow.steps:
        yield Blocker("content_required", "can't be blank", "steps")
    for path, message in jumps.find_faults(flow.steps, dict(walk(flow.steps))):
        yield Blocker("preflight_failed", message, path)
    contents = versions.get_contents(versions.list_step_templates(flow.steps))
    for path, step in walk(flow.steps):
        props = get_props(step)
        if "template_id" in props:
            props["content"] = contents.get(props["template_id"], {})
        for key, message in BY_TYPE[step["type"]].list_missing(props, flow.account_id):
            code = "content_required" if key in _CONTENT_KEYS else "preflight_failed"
            yield Blocker(code, message, f"{path}.{key}" if key else path)


def _find_sender_blockers(flow: Flow) -> Iterator[Blocker]:
    account, settings = Account.get_by_id(flow.account_id), config.current()
    templates = {row.id: row for row in versions.list_step_templates(flow.steps)}
    reported = set()
    for path, step in walk(flow.steps):
        if step["type"] == "sms":
            problems = senders.find_sms_problems(account, "capture" if flow.test else settings.sms.transport)
        elif step["type"] == "email":
            sender = senders.resolve_email(account, templates[step["template_id"]].from_email)
            transport = "capture" if flow.test else settings.email.transport
            problems = senders.find_email_problems(account, sender, transport, marketing=not step["transactional"])
        else:
            continue
        for key, message in problems:
            field = key if key == "base" else f"{path}.{key}"
            if (field, message) not in reported:
                reported.add((field, message))
                yield Blocker("sender_not_ready", message, field)


def _find_approval_blockers(flow: Flow, by: Actor) -> Iterator[Blocker]:
    if message := approvals.find_blocker(flow, by):
        yield Blocker("approval_required", message, "base")


def _find_trigger_blockers(flow: Flow, trigger: Trigger) -> Iterator[Blocker]:
    spec = triggers.get_spec(trigger)
    for key, message in (*triggers.list_missing(spec), *triggers.list_broken_conditions(flow.account_id, spec)):
        yield Blocker("preflight_failed", message, f"trigger.{key}")


TRANSITIONS = {
    "draft": ("active", "archived"),
    "active": ("paused", "archived"),
    "paused": ("active", "archived"),
    "archived": ("draft",),
}
ACTIONS = {
    "activate": Transition(
        gettext_noop("A flow with the status %(status)s cannot be activated."), "active", ("draft", "paused")
    ),
    "pause": Transition(gettext_noop("A flow with the status %(status)s cannot be paused."), "paused", ("active",)),
    "archive": Transition(
        gettext_noop("A flow with the status %(status)s cannot be archived."), "archived", ("draft", "active", "paused")
    ),
}
# The hint of the error, by rejected action and current status
_HINTS = {("activate", "archived"): "Make it a draft first: PATCH its `status`."}


def change_status(flow: Flow, to: str, by: Actor, messages: StepMessages = NO_STEP_MESSAGES) -> None:
    """Change the status of a flow; the caller saves the flow.

    An archived flow keeps its contacts. `messages` are as in `activate`. Raises the errors of `activate`, `pause` and
    `restore_draft`.
    """
    if to == "active":
        activate(flow, by, messages=messages)
    elif to == "paused":
        pause(flow)
    elif to == "archived":
        archive(flow, take_out=False)
    else:
        restore_draft(flow)


def restore_draft(flow: Flow) -> None:
    """Make an archived flow a draft again; raises Invalid (`invalid_transition`). The caller saves the flow."""
    require_write_transaction()
    check_transition(flow, "draft")
    flow.status, flow.paused_at = "draft", None


def undo_status_change(flow: Flow, to: str, by: Actor, messages: StepMessages = NO_STEP_MESSAGES) -> None:
    """Undo pausing, resuming or archiving a flow: return it to its former status `to`. The caller saves the flow.

    `messages` are as in `activate`. Raises Invalid (`invalid_transition`) if that is no longer possible, and the errors
    of `activate`.
    """
    require_write_transaction()
    paused_at = flow.paused_at
    if flow.status == "archived":
        restore_draft(flow)
        if to == "paused" and flow.version:
            flow.status, flow.paused_at = "paused", paused_at
            return
    if to != flow.status:
        change_status(flow, to, by, messages)


def check_transition(flow: Flow, to: str) -> None:
    """Raise Invalid (`invalid_transition`) unless a flow's status may change to `to`."""
    if to in TRANSITIONS[flow.status]:
        return
    raise Invalid(
        {"status": [gettext("cannot change from %(status)s to %(to)s", status=flow.status, to=to)]},
        reason="invalid_transition",
        **cast(Any, {"from": flow.status, "to": to, "allowed": list(TRANSITIONS[flow.status])}),
    )


def _check_action(flow: Flow, action: str) -> None:
    """Raise Invalid (`invalid_transition`) unless a flow's status allows an action of `ACTIONS`."""
    if flow.status not in ACTIONS[action].sources:
        hint = _HINTS.get((action, flow.status), "")
        current_state = CurrentState(
            flow.status, list(TRANSITIONS[flow.status]), possible_actions(ACTIONS, flow.status)
        )
        raise refuse_transition(current_state, action, ACTIONS[action], hint)


def activate(
    flow: Flow, by: Actor, skip_overdue_seconds: int | None = None, messages: StepMessages = NO_STEP_MESSAGES
) -> None:
    """Activate a flow: contacts may enter, and those in it continue. The caller saves the flow.

    Runs that were due more than `skip_overdue_seconds` ago are ended, and such messages are dropped; None ends and
    drops nothing. `messages` are the messages of steps that were compiled before the write transaction. Raises Invalid
    (`invalid_transition`, or with all blockers), or Unavailable while contacts are being removed.
    """
    require_write_transaction()
    _check_action(flow, "activate")
    if flow.pending_end is not None:
        raise Unavailable(gettext("Contacts are still being removed from this flow."), "unavailable", retry_after=2)
    trigger = Trigger.get(Trigger.flow == flow.id)
    # A flow that a test key activates accepts only test runs, even if it accepted others before.
    flow.test = by.is_test
    raise_blockers(list_blockers(flow, trigger, by))
    now = clock.now_ms()
    flow.drop_before = None if skip_overdue_seconds is None else now - skip_overdue_seconds * 1000
    approvals.mark_approved(flow)
    flow.status, flow.paused_at, flow.pause_reason = "active", None, None
    versions.publish(flow, messages)
    triggers.restart_listening(flow.id)
    event_waits.start_catch_up(flow.id)
    after_commit(lambda: signals.wake("flows"))


def pause(flow: Flow) -> None:
    """Pause an active flow: no contact enters, and contacts in it stay at their step. The caller saves the flow.

    Raises Invalid (`invalid_transition`).
    """
    require_write_transaction()
    _check_action(flow, "pause")
    flow.status, flow.paused_at, flow.pause_reason = "paused", clock.now_ms(), None


def archive(flow: Flow, take_out: bool) -> None:
    """Archive a flow. The caller saves the flow.

    Contacts in it stay at their step, or, with `take_out`, their runs are ended in batches (`close_batch`).
    """
    require_write_transaction()
    flow.status, flow.paused_at = "archived", flow.paused_at or clock.now_ms()
    if take_out:
        flow.pending_end = "flow_archived"


def request_approval(flow: Flow, by: Actor) -> None:
    """Request the approval of a flow. The caller saves the flow.

    Raises Invalid with all blockers other than the approval, or if the flow was rejected and not changed since.
    """
    require_write_transaction()
    trigger = Trigger.get(Trigger.flow == flow.id)
    raise_blockers(list_blockers(flow, trigger, Actor(can_approve=True)))
    approvals.request_approval(flow, by)


def approve(flow: Flow, by: Actor) -> None:
    """Approve the current state of a flow; raises NotAllowed if `by` may not approve it. The caller saves the flow."""
    require_write_transaction()
    approvals.approve(flow, by)


def reject(flow: Flow, note: str | None) -> None:
    """Reject the current state of a flow, and pause it if it is active. The caller saves the flow.

    `note` is the reason that users see.
    """
    require_write_transaction()
    approvals.reject(flow, note)
    if flow.status == "active":
        pause(flow)


def handle_edit(flow: Flow, by: Actor, messages: StepMessages = NO_STEP_MESSAGES) -> None:
    """Apply the consequences of a change of a flow's steps, trigger or content. The caller saves the flow.

    An active flow is published as a new version, which new runs follow; if the change needs approval, the flow is
    paused instead. Any other flow needs a new approval. `messages` are as in `activate`. Raises Invalid with all
    blockers.
    """
    require_write_transaction()
    if flow.status != "active":
        flow.approval_state = "pending_review"
        return
    if not needs_no_approval(flow, by):
        flow.approval_state = "pending_review"
        pause(flow)
        return
    trigger = Trigger.get(Trigger.flow == flow.id)
    raise_blockers(list_blockers(flow, trigger, Actor(can_approve=True)))
    approvals.mark_approved(flow)
    versions.publish(flow, messages)


def needs_no_approval(flow: Flow, by: Actor) -> bool:
    """Return whether a change by `by` needs no approval: the account does not require it, or `by` may approve it."""
    return not flow.account.approval_required or approvals.can_approve(flow, by)


# Templates contain the content as users edit it. While another change of a live flow is published, the live content is
# written into the templates. Afterwards the unpublished edits are written again, on top of what was published.

Content = dict[str, Any]


@contextmanager
def hold_back_draft(flow: Flow, changed: Template | None = None) -> Iterator[None]:
    """Keep the unpublished edits of a flow out of its templates while the `with` block publishes the flow.

    The templates get the live content before the block, and the unpublished edits again after it. If an API client has
    just changed the template `changed`, that change (its last revision) is published, but not its earlier edits.
    """
    require_write_transaction()
    held_back = []
    for row, live in find_changed_templates(flow).values() if flow.draft is not None and flow.version else ():
        own, author = revisions.to_document(row), _get_revision_author(row)
        published = live
        if changed is not None and row.id == changed.id:
            row, previous_revision = changed, revisions.get(row.account_id, row.id, row.revision - 1)
            author = previous_revision.user_id
            published = live | {name: value for name, value in own.items() if value != previous_revision.document[name]}
        templates.write_silently(row, published)
        unpublished = {name: value for name, value in own.items() if value != published[name]}
        held_back.append((row.id, unpublished, author))
    yield
    for template_id, unpublished, author in held_back:
        templates.write_silently(Template.get_by_id(template_id), unpublished, author)


def _get_revision_author(row: Template) -> int | None:
    revision = TemplateRevision.get(TemplateRevision.template == row.id, TemplateRevision.number == row.revision)
    author: int | None = revision.user_id
    return author


def find_changed_templates(flow: Flow) -> dict[int, tuple[Template, Content]]:
    """Return (template, live content) by step id, for the templates whose content differs from the live version."""
    changed = {}
    for action_id, template_id, pinned in load_live_contents(flow):
        row = Template.get_by_id(template_id)
        if revisions.to_document(row) != pinned:
            changed[action_id] = (row, pinned)
    return changed


def load_live_contents(flow: Flow) -> list[tuple[int, int, Content]]:
    """Return (step id, template id, content) for each step of the live version that sends a message."""
    query = (
        tables_Step.select(tables_Step.action_id, tables_Step.template, TemplateRevision.document)
        .join(TemplateRevision, on=(tables_Step.content == TemplateRevision.id))
        .where(tables_Step.flow == flow.id, tables_Step.version == flow.version, tables_Step.template.is_null(False))
    )
    return [tuple(row) for row in query.tuples()]


def apply_live_contents(flow: Flow, rows: Sequence[Template]) -> None:
    """Set the live content on loaded templates, because API clients see the live version. Do not save these objects.

    Do nothing for a flow without unpublished changes.
    """
    if flow.draft is None or not flow.version:
        return
    contents = {number: content for _, number, content in load_live_contents(flow)}
    for row in rows:
        for name, value in contents.get(row.id, {}).items():
            setattr(row, name, value)


def read_draft(flow: Flow) -> dict[str, Any]:
    """Return a flow's draft, or the current state of the flow if it has none.

    Keys: `steps`, `last_action`, `goal` and `trigger`.
    """
    if flow.draft is not None:
        return dict(flow.draft)
    spec = triggers.get_spec(Trigger.get(Trigger.flow == flow.id))
    return {
        "steps": flow.steps, "last_action": flow.last_action, "goal": flow.goal,
        "trigger": {**spec._asdict(), "data": dict(spec.data)},
    }  # fmt: skip


def write_draft(flow: Flow, draft: dict[str, Any] | None) -> None:
    """Save the draft of a flow, in the form of `read_draft`; None deletes it."""
    require_write_transaction()
    flow.draft = draft
    flow.save(only=[Flow.draft])


_BATCH_SIZE = 300
_OPEN_MESSAGES = "m.run_id IS NOT NULL AND m.flow_id = {flow} AND m.status IN ('queued', 'held')"
_LIVE_RUNS = "r.flow_id = {flow} AND r.status = 'live'"
_SELECT_OPEN_MESSAGES = f"SELECT m.id FROM message m WHERE {_OPEN_MESSAGES.format(flow=':flow')}"
_NEEDS_HOLD = (
    "flow.deleted_at IS NULL AND flow.status != 'active' "
    "AND EXISTS (SELECT 1 FROM message m WHERE {open} AND m.due_at <= :now)"
)
_NEEDS_RELEASE = (
    "flow.deleted_at IS NULL AND flow.status = 'active' "
    "AND EXISTS (SELECT 1 FROM message m WHERE {open} AND m.due_at IS NULL)"
)
# A message that is being sent may return to the queue for a retry, so `pending_end` must stay set until it is final.
_HAS_SENDING = (
    "EXISTS (SELECT 1 FROM message m WHERE m.run_id IS NOT NULL AND m.flow_id = flow.id AND m.status = 'sending')"
)
_NEEDS_CLOSING = (
    f"flow.pending_end IS NOT NULL AND NOT {_HAS_SENDING} "
    "OR (flow.pending_end IS NOT NULL OR flow.deleted_at IS NOT NULL) "
    "AND (EXISTS (SELECT 1 FROM message m WHERE {open}) OR EXISTS (SELECT 1 FROM run r WHERE {live}))"
)
# `drop_before` is cleared once no row is overdue; otherwise a clock that is set back could make other rows overdue.
_HAS_CAUGHT_UP = (
    "flow.deleted_at IS NULL AND flow.status = 'active' AND flow.drop_before IS NOT NULL "
    "AND NOT EXISTS (SELECT 1 FROM run r WHERE {live} AND r.due_at < flow.drop_before) "
    "AND NOT EXISTS (SELECT 1 FROM message m WHERE {open} AND (m.due_at IS NULL "
    "OR max(m.due_at, m.created_at) < flow.drop_before))"
)
_SELECT_FLOWS = "SELECT id FROM flow WHERE hidden = 0 AND ({what})"


def settle_messages() -> bool:
    """Process one batch of each flow that is ending, was paused or was resumed; return whether there was any."""
    has_settled = False
    for condition, settle_batch in (
        (_NEEDS_CLOSING, close_batch),
        (_NEEDS_HOLD, hold_messages),
        (_NEEDS_RELEASE, release_messages),
        (_HAS_CAUGHT_UP, finish_catch_up),
    ):
        for flow_id in _list_flows(condition):
            has_settled = True
            transactions.write(settle_batch, flow_id)
    return has_settled


def is_settling_due() -> bool:
    """Return whether `settle_messages` has anything to do."""
    return any(
        _list_flows(condition, "LIMIT 1") for condition in (_NEEDS_CLOSING, _NEEDS_HOLD, _NEEDS_RELEASE, _HAS_CAUGHT_UP)
    )


def hold_messages(flow_id: int) -> int:
    """Hold up to `_BATCH_SIZE` due messages of a flow that is not active; return their number.

    Held messages have no due time.
    """
    require_write_transaction()
    return run(
        f"UPDATE message SET status = 'held', due_at = NULL, updated_at = :now WHERE id IN ({_SELECT_OPEN_MESSAGES} "
        "AND m.due_at <= :now LIMIT :most) AND EXISTS (SELECT 1 FROM flow WHERE id = :flow AND status != 'active')",
        {"flow": flow_id, "now": clock.now_ms(), "most": _BATCH_SIZE},
    )


def release_messages(flow_id: int) -> int:
    """Queue up to `_BATCH_SIZE` messages of an active flow that `hold_messages` held; return their number."""
    require_write_transaction()
    after_commit(lambda: signals.wake("outbox"))
    return run(
        f"UPDATE message SET status = 'queued', due_at = :due, updated_at = :now WHERE id IN ({_SELECT_OPEN_MESSAGES} "
        "AND m.due_at IS NULL LIMIT :most) AND EXISTS (SELECT 1 FROM flow WHERE id = :flow AND status = 'active')",
        {"flow": flow_id, "now": clock.now_ms(), "most": _BATCH_SIZE, "due": FLOWS_DUE_NOW},
    )


def finish_catch_up(flow_id: int) -> int:
    """Clear `drop_before` of an active flow once no run or message is overdue; return 1 if it was cleared, else 0."""
    require_write_transaction()
    condition = _HAS_CAUGHT_UP.format(
        open=_OPEN_MESSAGES.format(flow="flow.id"), live=_LIVE_RUNS.format(flow="flow.id")
    )
    return run(f"UPDATE flow SET drop_before = NULL WHERE id = ? AND {condition}", (flow_id,))


def close_batch(flow_id: int) -> bool:
    """End one batch of the runs and open messages of a flow that is deleted or has a `pending_end`.

    A batch has up to `_BATCH_SIZE` runs and as many messages. A message is cancelled, or becomes uncertain if an
    earlier attempt may have been accepted. Return whether there were any. If there were none, and no message is being
    sent, clear `pending_end`.
    """
    require_write_transaction()
    over = fetch_one(
        "SELECT CASE WHEN deleted_at IS NOT NULL THEN 'flow_deleted' ELSE pending_end END, pending_end FROM flow "
        "WHERE id = ?",
        (flow_id,),
    )
    if over is None or over[0] is None:
        return False
    now = clock.now_ms()
    live_runs = rows(f"SELECT r.id FROM run r WHERE {_LIVE_RUNS.format(flow='?')} LIMIT ?", (flow_id, _BATCH_SIZE))
    ended = run_ends.end_runs([row[0] for row in live_runs], "exited", over[0], now)
    cancelled = run(
        f"UPDATE message SET {CANCEL_OPEN}, updated_at = :now WHERE id IN ({_SELECT_OPEN_MESSAGES} LIMIT :most)",
        {"flow": flow_id, "now": now, "most": _BATCH_SIZE},
    )
    has_closed = bool(ended) or cancelled > 0
    if over[1] is not None and not has_closed:
        run(f"UPDATE flow SET pending_end = NULL WHERE id = ? AND NOT {_HAS_SENDING}", (flow_id,))
    return has_closed


def _list_flows(condition_template: str, limit: str = "") -> list[int]:
    condition = condition_template.format(
        open=_OPEN_MESSAGES.format(flow="flow.id"), live=_LIVE_RUNS.format(flow="flow.id")
    )
    flow_rows = rows(
        f"{_SELECT_FLOWS.format(what=condition)} {limit}", {"now": clock.now_ms()} if ":now" in condition else {}
    )
    return [row[0] for row in flow_rows]
