"""The status of a flow: transitions (docs/decisions.md#12), what blocks going live, and what a status does to messages.

A flow ends when it is deleted, or archived with all contacts removed (`pending_end` is the reason). The request ends a
batch of its runs, and the background job the rest in short transactions, continued after a restart. A worker never
sends messages of a flow that is not active (`queue.claim_one`). Its due rows are held in batches here and released when
it is active again, so that a pause writes one row, however many contacts are inside.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

from msgspec import Struct

from appliance.accounts import approvals
from appliance.accounts.audit import Actor
from appliance.content.templates import revisions
from appliance.content.templates import store as templates
from appliance.content.templates.store import NO_STEP_MESSAGES, StepMessages
from appliance.core import clock, signals
from appliance.core.errors import CurrentState, Invalid, Transition, Unavailable, possible_actions, refuse_transition
from appliance.flows import document, run_ends, triggers, versions
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
from appliance.storage.transactions import after_commit, require_write_transaction

# In the order of docs/decisions.md#3: the code of the first blocker is the reason of a refusal
_BLOCKER_CODES = ("content_required", "sender_not_ready", "approval_required", "preflight_failed")
_CONTENT_KEYS = frozenset({"subject", "body"})


class Blocker(Struct):
    """One error: a reason of docs/decisions.md#3, its message, and the field to go to."""

    code: str
    message: str
    field: str


def list_blockers(flow: Flow, trigger: Trigger, by: Actor) -> list[Blocker]:
    """Return everything that keeps a user from taking a flow live."""
    blockers = [
        *_find_step_blockers(flow),
        *_find_sender_blockers(flow),
        *_find_approval_blockers(flow, by),
        *_find_trigger_blockers(flow, trigger),
    ]
    return sorted(blockers, key=lambda blocker: _BLOCKER_CODES.index(blocker.code))


def raise_blockers(blockers: list[Blocker]) -> None:
    """Raise Invalid with every blocker, if there is any; the code of the first is the reason."""
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
    """Yield (path, step, warning) for each unfinished item in the emails of steps, which include their content."""
    for path, step in walk(steps):
        if step["type"] == "email":
            for warning in preview.find_unfinished(account_id, step.get("content") or {}):
                yield path, step, warning


def _find_step_blockers(flow: Flow) -> Iterator[Blocker]:
    if not flow.steps:
        yield Blocker("content_required", "can't be blank", "steps")
    contents = versions.get_contents(versions.list_step_templates(flow.steps))
    for path, step in walk(flow.steps):
        props = document.get_props(step)
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
    "activate": Transition("activated", "active", ("draft", "paused")),
    "pause": Transition("paused", "paused", ("active",)),
    "archive": Transition("archived", "archived", ("draft", "active", "paused")),
}
# Hints by action and status
_HINTS = {("activate", "archived"): "Make it a draft first: PATCH its `status`."}


def change_status(flow: Flow, to: str, by: Actor, messages: StepMessages = NO_STEP_MESSAGES) -> None:
    """Move a flow to a status; raises Invalid (`invalid_transition`, or with all blockers). The caller saves it."""
    if to == "active":
        activate(flow, by, messages=messages)
    elif to == "paused":
        pause(flow)
    elif to == "archived":
        archive(flow, take_out=False)
    else:
        restore_draft(flow)


def restore_draft(flow: Flow) -> None:
    """Restore an archived flow as a draft; the caller saves it."""
    require_write_transaction()
    check_transition(flow, "draft")
    flow.status, flow.paused_at = "draft", None


def undo_status_change(flow: Flow, to: str, by: Actor) -> None:
    """Undo pausing, resuming or archiving a flow: it gets its former status back. The caller saves it.

    Raises Invalid if its status changed since, it was never live, or it cannot go live any more.
    """
    require_write_transaction()
    paused_at = flow.paused_at
    if flow.status == "archived":
        restore_draft(flow)
        if to == "paused" and flow.version:
            flow.status, flow.paused_at = "paused", paused_at
            return
    if to != flow.status:
        change_status(flow, to, by)


def check_transition(flow: Flow, to: str) -> None:
    """Raise Invalid (`invalid_transition`) unless a flow may move to a status."""
    if to in TRANSITIONS[flow.status]:
        return
    raise Invalid(
        {"status": [f"cannot change from {flow.status} to {to}"]},
        reason="invalid_transition",
        **cast(Any, {"from": flow.status, "to": to, "allowed": list(TRANSITIONS[flow.status])}),
    )


def _check_action(flow: Flow, action: str) -> None:
    """Raise Invalid (`invalid_transition`) unless a flow allows an action now."""
    if flow.status not in ACTIONS[action].sources:
        hint = _HINTS.get((action, flow.status), "")
        current_state = CurrentState(
            flow.status, list(TRANSITIONS[flow.status]), possible_actions(ACTIONS, flow.status)
        )
        raise refuse_transition("flow", current_state, action, ACTIONS[action], hint)


def activate(
    flow: Flow, by: Actor, skip_overdue_seconds: int | None = None, messages: StepMessages = NO_STEP_MESSAGES
) -> None:
    """Activate a flow: contacts may enter, and those inside continue; raises Invalid with all blockers.

    Messages that were due more than `skip_overdue_seconds` ago are dropped. `messages` are those compiled before the
    write transaction. The caller saves the flow.
    """
    require_write_transaction()
    _check_action(flow, "activate")
    if flow.pending_end is not None:
        raise Unavailable("Contacts are still being removed from this flow.", "unavailable", retry_after=2)
    trigger = Trigger.get(Trigger.flow == flow.id)
    # A flow that a test key activates accepts test runs only, whatever it was before.
    flow.test = by.is_test
    raise_blockers(list_blockers(flow, trigger, by))
    now = clock.now_ms()
    flow.drop_before = None if skip_overdue_seconds is None else now - skip_overdue_seconds * 1000
    approvals.mark_approved(flow)
    flow.status, flow.paused_at = "active", None
    versions.publish(flow, messages)
    triggers.restart_listening(flow.id)
    after_commit(lambda: signals.wake("flows"))


def pause(flow: Flow) -> None:
    """Pause a flow: no contact enters, and all inside stay where they are. The caller saves the flow."""
    require_write_transaction()
    _check_action(flow, "pause")
    flow.status, flow.paused_at = "paused", clock.now_ms()


def archive(flow: Flow, take_out: bool) -> None:
    """Archive a flow; contacts inside stay where they are, or leave. The caller saves the flow."""
    require_write_transaction()
    flow.status, flow.paused_at = "archived", flow.paused_at or clock.now_ms()
    if take_out:
        flow.pending_end = "flow_archived"


def request_approval(flow: Flow, by: Actor) -> None:
    """Request approval of a flow; raises Invalid with all other blockers. The caller saves it."""
    require_write_transaction()
    trigger = Trigger.get(Trigger.flow == flow.id)
    raise_blockers(list_blockers(flow, trigger, Actor(can_approve=True)))
    approvals.request_approval(flow, by)


def approve(flow: Flow, by: Actor) -> None:
    """Approve a flow as it is now; raises NotAllowed for a user who may not. The caller saves it."""
    require_write_transaction()
    approvals.approve(flow, by)


def reject(flow: Flow, note: str | None) -> None:
    """Reject a flow as it is now, and pause it if it is live; the caller saves it."""
    require_write_transaction()
    approvals.reject(flow, note)
    if flow.status == "active":
        pause(flow)


def handle_edit(flow: Flow, by: Actor, messages: StepMessages = NO_STEP_MESSAGES) -> None:
    """Apply the consequences of a change of content or audience; the caller saves the flow.

    A live flow is published as a new version for new runs. If the change needs approval the flow is paused instead.
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
    """Return whether a change by this actor needs no approval."""
    return not flow.account.approval_required or approvals.can_approve(flow, by)


# Unpublished content of a live flow. The templates hold the content as users edit it. While another change of the flow
# is published, the templates hold the live content; afterwards the unpublished edits are written again, on top of what
# was published.

Content = dict[str, Any]


@contextmanager
def hold_back_draft(flow: Flow, changed: Template | None = None) -> Iterator[None]:
    """Publish a flow without the unpublished content of its templates.

    Of the template that an API client just `changed`, only that change is published.
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
    """Return by step the templates that differ from the live ones, each with its live content."""
    changed = {}
    for action_id, template_id, pinned in load_live_contents(flow):
        row = Template.get_by_id(template_id)
        if revisions.to_document(row) != pinned:
            changed[action_id] = (row, pinned)
    return changed


def load_live_contents(flow: Flow) -> list[tuple[int, int, Content]]:
    """Return for each step of the live version that sends: its id, its template, and its content."""
    query = (
        tables_Step.select(tables_Step.action_id, tables_Step.template, TemplateRevision.document)
        .join(TemplateRevision, on=(tables_Step.content == TemplateRevision.id))
        .where(tables_Step.flow == flow.id, tables_Step.version == flow.version, tables_Step.template.is_null(False))
    )
    return [tuple(row) for row in query.tuples()]


def apply_live_contents(flow: Flow, rows: Sequence[Template]) -> None:
    """Set the live content on loaded templates, as API clients see a flow; they must not be saved."""
    if flow.draft is None or not flow.version:
        return
    contents = {number: content for _, number, content in load_live_contents(flow)}
    for row in rows:
        for name, value in contents.get(row.id, {}).items():
            setattr(row, name, value)


def read_draft(flow: Flow) -> dict[str, Any]:
    """Return the unpublished changes of a flow, or its live version if there are none."""
    if flow.draft is not None:
        return dict(flow.draft)
    spec = triggers.get_spec(Trigger.get(Trigger.flow == flow.id))
    return {
        "steps": flow.steps, "last_action": flow.last_action, "goal": flow.goal,
        "trigger": {**spec._asdict(), "data": dict(spec.data)},
    }  # fmt: skip


def write_draft(flow: Flow, draft: dict[str, Any] | None) -> None:
    """Save unpublished changes of a flow, or None."""
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
# A message that a worker is sending may return for a retry; until then the flow must stay marked as ended.
_HAS_SENDING = (
    "EXISTS (SELECT 1 FROM message m WHERE m.run_id IS NOT NULL AND m.flow_id = flow.id AND m.status = 'sending')"
)
_NEEDS_CLOSING = (
    f"flow.pending_end IS NOT NULL AND NOT {_HAS_SENDING} "
    "OR (flow.pending_end IS NOT NULL OR flow.deleted_at IS NOT NULL) "
    "AND (EXISTS (SELECT 1 FROM message m WHERE {open}) OR EXISTS (SELECT 1 FROM run r WHERE {live}))"
)
# Without overdue rows from the resume the limit is cleared; otherwise a clock set back could make other rows overdue.
_HAS_CAUGHT_UP = (
    "flow.deleted_at IS NULL AND flow.status = 'active' AND flow.drop_before IS NOT NULL "
    "AND NOT EXISTS (SELECT 1 FROM run r WHERE {live} AND r.due_at < flow.drop_before) "
    "AND NOT EXISTS (SELECT 1 FROM message m WHERE {open} AND (m.due_at IS NULL "
    "OR max(m.due_at, m.created_at) < flow.drop_before))"
)
_SELECT_FLOWS = "SELECT id FROM flow WHERE hidden = 0 AND ({what})"


def settle_messages() -> bool:
    """Process a batch of each: flows that are over, paused or resumed; return whether there were any."""
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
    """Return whether a flow has messages or runs that `settle_messages` should change."""
    return any(
        _list_flows(condition, "LIMIT 1") for condition in (_NEEDS_CLOSING, _NEEDS_HOLD, _NEEDS_RELEASE, _HAS_CAUGHT_UP)
    )


def hold_messages(flow_id: int) -> int:
    """Hold some due messages of a flow that is not active, without a due time; return how many."""
    require_write_transaction()
    return run(
        f"UPDATE message SET status = 'held', due_at = NULL, updated_at = :now WHERE id IN ({_SELECT_OPEN_MESSAGES} "
        "AND m.due_at <= :now LIMIT :most) AND EXISTS (SELECT 1 FROM flow WHERE id = :flow AND status != 'active')",
        {"flow": flow_id, "now": clock.now_ms(), "most": _BATCH_SIZE},
    )


def release_messages(flow_id: int) -> int:
    """Queue some held messages of an active flow again; return how many."""
    require_write_transaction()
    after_commit(lambda: signals.wake("outbox"))
    return run(
        f"UPDATE message SET status = 'queued', due_at = :due, updated_at = :now WHERE id IN ({_SELECT_OPEN_MESSAGES} "
        "AND m.due_at IS NULL LIMIT :most) AND EXISTS (SELECT 1 FROM flow WHERE id = :flow AND status = 'active')",
        {"flow": flow_id, "now": clock.now_ms(), "most": _BATCH_SIZE, "due": FLOWS_DUE_NOW},
    )


def finish_catch_up(flow_id: int) -> int:
    """Stop dropping overdue messages of an active flow once none is left; return the number of flows changed."""
    require_write_transaction()
    condition = _HAS_CAUGHT_UP.format(
        open=_OPEN_MESSAGES.format(flow="flow.id"), live=_LIVE_RUNS.format(flow="flow.id")
    )
    return run(f"UPDATE flow SET drop_before = NULL WHERE id = ? AND {condition}", (flow_id,))


def close_batch(flow_id: int) -> bool:
    """End some runs and cancel some open messages of a flow that is over; return whether there were any.

    A message that may have been accepted before stays uncertain.
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
        "UPDATE message SET status = CASE WHEN uncertain_count > 0 THEN 'uncertain' ELSE 'cancelled' END, due_at = "
        "NULL, "
        f"updated_at = :now WHERE id IN ({_SELECT_OPEN_MESSAGES} LIMIT :most)",
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
