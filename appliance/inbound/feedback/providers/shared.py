"""What every provider's hook is made of: what came in, what it told, and how a signature or a date is refused."""

import hmac
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import msgspec

from appliance.core import clock
from appliance.core.errors import Invalid, NotAllowed
from appliance.inbound.feedback.record import Fact
from appliance.settings import config
from appliance.settings.config import seconds

T = TypeVar("T")
# Answers the body behind an https address
Fetch = Callable[[str], Awaitable[bytes]]

_LATEST = 253_402_300_799  # the last second of 9999
_SMTP = re.compile(r"(?<![\d.])([245]\d\d)(?=[ -])")
_ENHANCED = re.compile(r"(?<![\d.])([245]\.\d{1,3}\.\d{1,3})(?![\d.])")


class Received(NamedTuple):
    """A request to a hook: header names in lower case, the body as it came."""

    headers: Mapping[str, str]
    body: bytes


class Left(NamedTuple):
    """The recipient of a message opted out with the provider; counts once under the provider's own name for it."""

    message_id: int
    key: str
    recipient: str | None  # as reported; believed if it is the recipient of that message


class Told(NamedTuple):
    """What a request says, once it is believed; `token` may come again with the same body only."""

    facts: tuple[Fact, ...] = ()
    left: tuple[Left, ...] = ()
    token: str | None = None


class Provider(NamedTuple):
    """One hook: its name in the path, what opens it (empty: closed), and what reads a request."""

    name: str
    secret: Callable[[], str]
    read: Callable[[Received, str, Fetch], Awaitable[Told]]


def forged() -> NotAllowed:
    """Return the one refusal of whatever is not signed as it should be."""
    return NotAllowed("the signature of this request is missing, wrong or too old")


def must_equal(given: str, right: str) -> None:
    """Refuse a signature or password that is not the right one, in the same time for every wrong one."""
    if not hmac.compare_digest(given.encode(), right.encode()):
        raise forged()


def must_be_fresh(moment: float) -> None:
    """Refuse what was signed (seconds since 1970) longer ago, or further ahead, than the settings allow."""
    if not abs(clock.now() - moment) <= seconds(config.current().email.hooks.max_age):
        raise forged()


def stamp(text: str) -> float:
    """Read the digits of a time that was signed."""
    if not (text.isascii() and text.isdecimal() and len(text) <= 12):
        raise forged()
    return float(text)


def read(body: bytes | str | msgspec.Raw, kind: type[T]) -> T:
    """Read JSON of somebody who is believed; raises Invalid."""
    try:
        return msgspec.json.decode(body, type=kind, strict=False)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Invalid({"base": ["is invalid"]}) from None


def moment(iso: str) -> int | None:
    """Read a time as providers write it, in ms; None for what is none."""
    try:
        return clock.parse(iso)
    except ValueError:
        return None


def milliseconds(seconds: float) -> int | None:
    """Turn a time in seconds, as providers tell it, into ms; None for what is none."""
    return int(seconds * 1000) if 0 < seconds < _LATEST else None


def codes(*texts: Any) -> tuple[int | None, str | None]:
    """Find the basic and the enhanced code in the words of a server."""
    whole = " ".join(str(text) for text in texts if text)
    smtp, enhanced = _SMTP.search(whole), _ENHANCED.search(whole)
    return int(smtp[1]) if smtp else None, enhanced[1] if enhanced else None


def words(*texts: str | None) -> str:
    """Join what was said, each once."""
    return ": ".join(dict.fromkeys(text.strip() for text in texts if text and text.strip()))
