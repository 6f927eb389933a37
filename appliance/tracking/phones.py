"""Plays the phone of the recipient of a captured SMS, and its network: by the ways of the real ones."""

from collections.abc import Callable
from typing import Any, NamedTuple

from appliance.core.errors import Invalid
from appliance.inbound.conversations import receiving
from appliance.inbound.feedback import receipts
from appliance.inbound.feedback.record import InHand
from appliance.sending.messages import capture_inbox as inbox
from appliance.sending.sms.codes import Incoming, Receipt
from appliance.storage.models import Captured, Message
from appliance.storage.open import rows, scalar
from appliance.storage.work import writing

# What the network tells: a status, and the reason in the codes of the interface that most providers speak
_RECEIPTS = {
    "deliver": ("delivered", None, ""),
    "fail": ("undelivered", "30008", "Unknown error (simulated)"),
    "bounce": ("undelivered", "30005", "Unknown destination handset (simulated)"),
    "soft_bounce": ("undelivered", "30003", "Unreachable destination handset (simulated)"),
}
_WORDS = {"stop": "STOP", "start": "START", "help": "HELP", "reply": "Thank you!"}
ACTIONS = (*_RECEIPTS, *_WORDS)
# So many stand on the screen of a phone before the one that is looked at, and so many behind it
_SHOWN = 12
_OURS = "SELECT received_at, source, id FROM captured WHERE account_id = ? AND channel = 'sms' AND rcpt_to = ?"
_OF_US = "AND mail_from = ? AND id"
_THEIRS = (
    "SELECT created_at, body, NULL FROM incoming WHERE account_id = ? AND sender = ? AND recipient = ? "
    "AND body IS NOT NULL AND created_at >= ? AND created_at < ? ORDER BY id LIMIT ?"
)
_EVER = 2**62


class Bubble(NamedTuple):
    """What stands on a phone: when, which words, and of which captured message (theirs have none)."""

    at: int
    text: str
    captured_id: int | None


def thread(captured: Captured) -> list[Bubble]:
    """Return what a phone shows around a captured SMS, the oldest first: what came from us there, and what was written.

    As on a phone, each of our senders has a thread of its own.
    """
    whose = (captured.account_id, captured.rcpt_to, captured.mail_from, captured.id)
    since = inbox.emptied_to(captured.account_id)
    before = rows(f"{_OURS} {_OF_US} < ? AND id > ? ORDER BY id DESC LIMIT ?", (*whose, since, _SHOWN))
    behind = rows(f"{_OURS} {_OF_US} >= ? ORDER BY id LIMIT ?", (*whose, _SHOWN + 1))
    ours = [Bubble(at, bytes(source).decode(), number) for at, source, number in (*reversed(before), *behind)]
    first = ours[0].at if len(before) == _SHOWN else 0
    last = ours[-1].at if len(behind) > _SHOWN else _EVER
    theirs = rows(_THEIRS, (*whose[:-1], first, last, 2 * _SHOWN))
    shown = [*ours, *map(Bubble._make, theirs)]
    return sorted(shown, key=lambda bubble: (bubble.at, bubble.captured_id is None))


def play(message: Message, action: str, words: str | None) -> Callable[[], Any]:
    """Return what writes an act, one of ACTIONS; raises Invalid for a reply that says nothing."""
    if action in _RECEIPTS:
        return lambda: _told(message, Receipt(message.provider_id or "", *_named(message, action)))
    said = _WORDS[action] if words is None or action != "reply" else words
    if not said.strip():
        raise Invalid({"text": ["can't be blank"]})
    heard = Incoming(None, message.recipient or "", message.sender or "", said)
    return lambda: receiving.receive(message.provider, heard, test=message.test, account_id=message.account_id)


def _named(message: Message, action: str) -> tuple[str, int, str | None, str]:
    status, code, text = _RECEIPTS[action]
    return status, message.id, code, text


def _told(message: Message, receipt: Receipt) -> None:
    writing()
    if scalar("SELECT status FROM message WHERE id = ?", (message.id,)) == "sending":
        raise InHand  # it is kept already and its row says so in a moment: whoever plays wants to see what follows
    receipts.apply(message.provider, receipt)
