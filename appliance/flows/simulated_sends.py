"""Messages of a rehearsal leave: looked at again as right before they would, rendered, and taken by who gets them."""

from collections.abc import Iterator, Sequence, Set
from typing import NamedTuple

from appliance.content.designs.merge import MergeError
from appliance.core import clock
from appliance.core.errors import Permanent, SenderRefused
from appliance.flows.timeline import Rendered
from appliance.sending.messages import hot
from appliance.sending.messages.ledger import COLUMNS, Claim, Outcome
from appliance.sending.messages.prepare import Workshop
from appliance.sending.sms import gsm
from appliance.storage import disk_guard, work
from appliance.storage.models import Message
from appliance.storage.open import rows

_PROCESS = "rehearsal"
_DUE = (
    f"SELECT {COLUMNS} FROM message WHERE run_id IN (SELECT value FROM json_each(?)) "
    "AND status IN ('queued', 'held') AND due_at <= ? ORDER BY due_at, id"
)


class Gone(NamedTuple):
    """A message that left, or would not, with the step that made it; `note` says what would stand in its way."""

    message_id: int
    step_id: int | None
    message: Rendered
    note: str | None


def leave(runs: str, workshop: Workshop, but: Set[int] = frozenset()) -> Iterator[Gone]:
    """Let the messages of some runs (ids as JSON) that are due now leave one after the other, each rendered."""
    for claim in [Claim._make(row) for row in rows(_DUE, (runs, clock.now_ms()))]:
        if claim.id not in but:
            yield _one(claim, workshop)


def leave_unseen(runs: str) -> int:
    """Let them leave all together, without being rendered; returns how many were due."""
    found = [Claim._make(row) for row in rows(_DUE, (runs, clock.now_ms()))]
    marked = work.write(hot.step, [], found, _PROCESS) if found else set()
    work.write(hot.step, [Outcome(claim, sender="") for claim in found if claim.id in marked], [], _PROCESS)
    return len(marked)


def show(message: Message, note: str | None = None, workshop: Workshop | None = None) -> Gone:
    """Return a message as it stands."""
    filled, is_sms = None, message.channel == "sms"
    if workshop is not None:
        try:
            filled = workshop.view(message)
        except (MergeError, ValueError) as fault:
            note = note or f"the message cannot be shown: {fault}"
    subject = filled.subject if filled else message.subject
    shown = Rendered(
        message.channel, message.status, message.skip_reason, message.recipient, message.sender,
        None if is_sms else subject, filled.html if filled and not is_sms else None, filled.text if filled else None,
        clock.iso(message.due_at) if message.status == "held" else None,
        gsm.count(filled.text).parts if filled and is_sms else None,
    )  # fmt: skip
    return Gone(message.id, message.step_id, shown, note)


def _one(claim: Claim, workshop: Workshop) -> Gone:
    marked = work.write(hot.step, [], [claim], _PROCESS)
    if claim.id not in marked:
        return show(Message.get_by_id(claim.id), _why_not(claim))
    outcome, note = _made(claim, workshop)
    work.write(hot.step, [outcome], [], _PROCESS)
    return show(Message.get_by_id(claim.id), note, workshop if outcome.skip_reason is None else None)


def _why_not(claim: Claim) -> str | None:
    """Return what keeps a message waiting that nobody refused, and that does not know its time."""
    message = Message.get_by_id(claim.id)
    if message.status not in ("queued", "held") or (message.status == "held" and message.due_at > clock.now_ms()):
        return None
    return disk_guard.trouble() or "it would wait for its turn"


def _made(claim: Claim, workshop: Workshop) -> tuple[Outcome, str | None]:
    try:
        made = workshop.draft(claim).prepared
    except SenderRefused as refused:
        # Only who it is from is wrong with it: what it says is shown, and what follows is rehearsed
        subject = workshop.view(Message.get_by_id(claim.id)).subject
        words = f"it would wait until its sender is put right: {refused.text}"
        return Outcome(claim, subject=subject, sender=""), words
    except (MergeError, ValueError) as fault:
        words = fault.words() if isinstance(fault, MergeError) else str(fault)
        return Outcome(claim, Permanent(words), skip_reason="render_error"), f"the message cannot be made: {words}"
    return Outcome(
        claim, subject=made.subject, sender=made.sender, internet_message_id=made.internet_message_id,
        # What an SMS takes counts for the parts of a day, and that it said how to opt out for the next one
        prepared=made if claim.channel == "sms" else None,
    ), None  # fmt: skip


def waiting(runs: str) -> int | None:
    """Return when the next of their messages that still waits is due (ms)."""
    found: Sequence[tuple[int | None, ...]] = rows(
        "SELECT min(due_at) FROM message WHERE run_id IN (SELECT value FROM json_each(?)) AND status "
        "IN ('queued', 'held')",
        (runs,),
    )
    return found[0][0]
