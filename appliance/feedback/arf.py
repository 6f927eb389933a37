"""Reads reports of people who call a message spam: RFC 5965, and what Microsoft sends instead (D29).

Providers take the address out. Whose message it was is told only by what we signed in it: its return path, its
Message-ID, its unsubscribe link. Without one of these, or with two that disagree, nobody complained.
"""

import re
from email.message import Message
from typing import NamedTuple

from appliance import tokens
from appliance.feedback import mime
from appliance.messages import links
from appliance.patterns import late

# What a person says with it: not wanted. `not-spam` takes back, `virus` and `other` are no person's word
_UNWANTED = ("abuse", "fraud", "opt-out", "opt-out-list")
_SIGNED = ("return-path", "list-unsubscribe", "received", "delivered-to", "x-original-to", "errors-to")
_PATH = late(r"\b(b\+[0-9a-f]{20,40})@", re.IGNORECASE)
_LINK = late(r"/u/([A-Za-z0-9_-]{20,60})")
_MAILTO = late(r"unsubscribe\+([0-9a-f]{20,80})@", re.IGNORECASE)


class Complaint(NamedTuple):
    """A message of ours that somebody called spam, and the words for the evidence."""

    message_id: int
    text: str


def read(mail: Message) -> Complaint | None:
    """Answer the complaint that a mail is, or None."""
    report = mime.first(mail, "message/feedback-report")
    if report is None:
        return _of_microsoft(mail)
    fields = next(iter(mime.blocks(mime.text(report))), {})
    kind = fields.get("feedback-type", "").split("(")[0].strip().lower()
    if kind not in _UNWANTED:
        return None
    names = " ".join(fields.get(name, "") for name in ("original-mail-from", "original-envelope-id"))
    number = _ours(names, mime.original(mail))
    words = f"{kind} reported through {fields.get('user-agent', 'an unnamed service')[:200]}"
    return Complaint(number, words) if number is not None else None


def _of_microsoft(mail: Message) -> Complaint | None:
    """Read a report of the Junk Mail Reporting Program: the message as it was, under a header of its own."""
    original = mime.original(mail)
    if not any(name == "x-hmxmroriginalrecipient" for name, _ in original):
        return None
    number = _ours("", original)
    return Complaint(number, "abuse reported through Microsoft JMRP") if number is not None else None


def _ours(text: str, headers: list[tuple[str, str]]) -> int | None:
    """Answer which message our signatures name, in a text and in the headers of what is reported, if they agree."""
    found = {links.message_of(value) for name, value in headers if name == "message-id"}
    said = "\n".join([text, *(value for name, value in headers if name in _SIGNED)])
    found |= {links.returned_to(path) for path in _PATH.findall(said)[:10]}
    found |= {tokens.read(links.UNSUBSCRIBE, token) for token in _LINK.findall(said)[:10]}
    found |= {tokens.read_hex(links.LEAVE, token, 16) for token in _MAILTO.findall(said)[:10]}
    numbers = found - {None}
    return numbers.pop() if len(numbers) == 1 else None
