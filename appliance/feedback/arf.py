"""Reads reports of people who call a message spam: RFC 5965, and what Microsoft sends instead (D29).

Providers often take the address out (RFC 6590). Which message was meant is told by what we signed in it; that somebody
complained is believed if the report names the recipient too, or holds a signature that is proof (`signed`).
"""

from email.message import Message
from typing import NamedTuple

from appliance.feedback import mime, signed

# What a person says with it: not wanted. `not-spam` takes back, `virus` and `other` are no person's word
_UNWANTED = ("abuse", "fraud", "opt-out", "opt-out-list")
_RECIPIENT_HEADERS = ("x-hmxmroriginalrecipient", "delivered-to", "x-original-to", "to")
_MAX_RECIPIENTS = 10


class Complaint(NamedTuple):
    """A message of ours that somebody called spam, and the words for the evidence.

    `recipients` are the addresses that are named; `is_proven` says that it holds without one.
    """

    message_id: int
    text: str
    recipients: tuple[str, ...]
    is_proven: bool


def read(mail: Message, message_id: int | None) -> Complaint | None:
    """Return the complaint that a mail is, or None; `message_id` is the message whose return path it came to."""
    report = mime.first(mail, "message/feedback-report")
    original = mime.original(mail)
    if report is None:
        # The Junk Mail Reporting Program sends the message as it was, with a header of its own
        is_jmrp = any(name == "x-hmxmroriginalrecipient" for name, _ in original)
        return _complaint(message_id, original, {}, "abuse reported through Microsoft JMRP") if is_jmrp else None
    fields = next(iter(mime.blocks(mime.text(report))), {})
    kind = fields.get("feedback-type", "").split("(")[0].strip().lower()
    if kind not in _UNWANTED:
        return None
    words = f"{kind} reported through {fields.get('user-agent', 'an unnamed service')[:200]}"
    return _complaint(message_id, original, fields, words)


def _complaint(
    arrived_at: int | None, original: list[tuple[str, str]], fields: dict[str, str], words: str
) -> Complaint | None:
    """Return a complaint if all signatures name one message, and it is proven or somebody is named."""
    senders = " ".join(fields.get(name, "") for name in ("original-mail-from", "original-envelope-id"))
    found = signed.find(original, senders)
    arrived = frozenset() if arrived_at is None else frozenset({arrived_at})
    numbers, proven = found.named | arrived, found.proven | arrived
    named = "\n".join(
        [fields.get("original-rcpt-to", ""), *(value for name, value in original if name in _RECIPIENT_HEADERS)]
    )
    recipients = tuple(dict.fromkeys(mime.ADDRESS.findall(named)))[:_MAX_RECIPIENTS]
    if len(numbers) != 1 or not (proven or recipients):
        return None
    return Complaint(next(iter(numbers)), words, recipients, bool(proven))
