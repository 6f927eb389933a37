"""What we signed that stands in a mail that came back: which of our messages it names, and whether that is proof.

A Message-ID is quoted by every reply, and the unsubscribe link by most, so they only say which message is meant. The
return path and the unsubscribe address stand in headers alone: only systems that had the message itself know them.
"""

import re
from typing import NamedTuple

from appliance import tokens
from appliance.messages import links

_HEADERS = ("return-path", "list-unsubscribe", "received", "delivered-to", "x-original-to", "errors-to")
_PATH = re.compile(r"\b(b\+[0-9a-f]{20,40})@", re.IGNORECASE)
_LINK = re.compile(r"/u/([A-Za-z0-9_-]{20,60})")
_MAILTO = re.compile(r"unsubscribe\+([0-9a-f]{20,80})@", re.IGNORECASE)
_MAX_TOKENS = 10


class Signed(NamedTuple):
    """The messages that are named by any signature, and those named by one that is proof."""

    named: frozenset[int]
    proven: frozenset[int]


def find(headers: list[tuple[str, str]], text: str = "") -> Signed:
    """Return which messages the signatures name in the headers of an original message, and in a text beside it."""
    told = "\n".join([text, *(value for name, value in headers if name in _HEADERS)])
    proven = {links.returned_to(path) for path in _PATH.findall(told)[:_MAX_TOKENS]}
    proven |= {tokens.read_hex(links.LEAVE, token, 16) for token in _MAILTO.findall(told)[:_MAX_TOKENS]}
    named = {links.message_of(value) for name, value in headers if name == "message-id"}
    named |= {tokens.read(links.UNSUBSCRIBE, token) for token in _LINK.findall(told)[:_MAX_TOKENS]}
    return Signed(frozenset(proven | named) - {None}, frozenset(proven) - {None})  # type: ignore[arg-type]  # None is out
