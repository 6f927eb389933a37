"""What provider webhooks share: requests, payloads, signatures, and parsing."""

import hmac
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import msgspec

from appliance.core import clock
from appliance.core.errors import Invalid, NotAllowed
from appliance.inbound.delivery_reports import DeliveryReport
from appliance.settings import config
from appliance.settings.config import parse_seconds

T = TypeVar("T")
# Returns the body of an https URL
Fetch = Callable[[str], Awaitable[bytes]]

_MAX_UNIX_SECONDS = 253_402_300_799  # the last second of 9999
_SMTP = re.compile(r"(?<![\d.])([245]\d\d)(?=[ -])")
_ENHANCED = re.compile(r"(?<![\d.])([245]\.\d{1,3}\.\d{1,3})(?![\d.])")


class HookRequest(NamedTuple):
    """A webhook request: header names in lower case, the body as received."""

    headers: Mapping[str, str]
    body: bytes


class ProviderOptOut(NamedTuple):
    """An opt-out with the provider, which counts once by the provider's key."""

    message_id: int
    key: str
    recipient: str | None  # as reported; accepted if it is the recipient of that message


class HookPayload(NamedTuple):
    """The contents of a verified request; a `token` may only come again with the same body."""

    reports: tuple[DeliveryReport, ...] = ()
    opt_outs: tuple[ProviderOptOut, ...] = ()
    token: str | None = None


class Provider(NamedTuple):
    """A webhook: its name in the path, its secret (empty: disabled), and its reader."""

    name: str
    secret: Callable[[], str]
    read: Callable[[HookRequest, str, Fetch], Awaitable[HookPayload]]


def invalid_signature() -> NotAllowed:
    """Return the error for all requests without a valid signature."""
    return NotAllowed("the signature of this request is missing, wrong or too old")


def require_equal(actual: str, expected: str) -> None:
    """Raise NotAllowed for a wrong signature or password, compared in constant time."""
    if not hmac.compare_digest(actual.encode(), expected.encode()):
        raise invalid_signature()


def require_fresh(moment: float) -> None:
    """Raise if a signing time (Unix seconds) is outside of the allowed age."""
    if not abs(clock.now() - moment) <= parse_seconds(config.current().email.hooks.max_age):
        raise invalid_signature()


def parse_timestamp(text: str) -> float:
    """Parse the digits of a signed time."""
    if not (text.isascii() and text.isdecimal() and len(text) <= 12):
        raise invalid_signature()
    return float(text)


def decode_json(body: bytes | str | msgspec.Raw, kind: type[T]) -> T:
    """Decode JSON of a verified request. Raises Invalid."""
    try:
        return msgspec.json.decode(body, type=kind, strict=False)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Invalid({"base": ["is invalid"]}) from None


def parse_time(iso: str) -> int | None:
    """Return an ISO time in ms, or None if it is invalid."""
    try:
        return clock.parse(iso)
    except ValueError:
        return None


def to_milliseconds(seconds: float) -> int | None:
    """Convert Unix seconds into ms, or return None if they are out of range."""
    return int(seconds * 1000) if 0 < seconds < _MAX_UNIX_SECONDS else None


def find_codes(*texts: Any) -> tuple[int | None, str | None]:
    """Return the basic and the enhanced code in the text of a server."""
    text = " ".join(str(text) for text in texts if text)
    smtp, enhanced = _SMTP.search(text), _ENHANCED.search(text)
    return int(smtp[1]) if smtp else None, enhanced[1] if enhanced else None


def join_texts(*texts: str | None) -> str:
    """Join texts without duplicates."""
    return ": ".join(dict.fromkeys(text.strip() for text in texts if text and text.strip()))
