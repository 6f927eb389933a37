"""Types and helper functions for the webhooks of email providers: requests, payloads, signatures and parsing."""

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
# Downloads an https URL and returns the body of the response.
Fetch = Callable[[str], Awaitable[bytes]]

_MAX_UNIX_SECONDS = 253_402_300_799  # The last second of the year 9999.
_SMTP = re.compile(r"(?<![\d.])([245]\d\d)(?=[ -])")
_ENHANCED = re.compile(r"(?<![\d.])([245]\.\d{1,3}\.\d{1,3})(?![\d.])")


class HookRequest(NamedTuple):
    """A webhook request: its headers by name in lower case, and its body as received."""

    headers: Mapping[str, str]
    body: bytes


class ProviderOptOut(NamedTuple):
    """An opt-out that a provider reports. `key` is unique at the provider, and each key counts only once."""

    message_id: int
    key: str
    recipient: str | None  # The reported address, which must be the recipient of the message.


class HookPayload(NamedTuple):
    """The contents of a verified request. A `token` is accepted again only with the same body."""

    reports: tuple[DeliveryReport, ...] = ()
    opt_outs: tuple[ProviderOptOut, ...] = ()
    token: str | None = None


class Provider(NamedTuple):
    """The webhook of an email provider.

    `name` is its name in the path. `secret` returns the configured secret, "" if the webhook is disabled. `read`
    verifies a request with the secret and returns its contents.
    """

    name: str
    secret: Callable[[], str]
    read: Callable[[HookRequest, str, Fetch], Awaitable[HookPayload]]


def invalid_signature() -> NotAllowed:
    """Return the error for every request without a valid signature; it does not reveal what is wrong."""
    return NotAllowed("the signature of this request is missing, wrong or too old")


def require_equal(actual: str, expected: str) -> None:
    """Raise NotAllowed if a signature or password is not the expected one; they are compared in constant time."""
    if not hmac.compare_digest(actual.encode(), expected.encode()):
        raise invalid_signature()


def require_fresh(moment: float) -> None:
    """Raise NotAllowed if a signing time (Unix seconds) is more than `network.hook_max_age` in the past or future."""
    if not abs(clock.now() - moment) <= parse_seconds(config.current().network.hook_max_age):
        raise invalid_signature()


def parse_timestamp(text: str) -> float:
    """Parse a signing time in Unix seconds; raises NotAllowed if the text is not 1 to 12 digits."""
    if not (text.isascii() and text.isdecimal() and len(text) <= 12):
        raise invalid_signature()
    return float(text)


def decode_json(body: bytes | str | msgspec.Raw, kind: type[T]) -> T:
    """Decode JSON into a type; raises Invalid if it is malformed or has other types."""
    try:
        return msgspec.json.decode(body, type=kind, strict=False)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Invalid({"base": ["is invalid"]}) from None


def parse_time(iso: str) -> int | None:
    """Return an ISO 8601 time as Unix milliseconds, or None if it is invalid."""
    try:
        return clock.parse(iso)
    except ValueError:
        return None


def to_milliseconds(seconds: float) -> int | None:
    """Convert Unix seconds to milliseconds, or return None if they are not between 1970 and 9999."""
    return int(seconds * 1000) if 0 < seconds < _MAX_UNIX_SECONDS else None


def find_codes(*texts: Any) -> tuple[int | None, str | None]:
    """Return the first SMTP code and the first enhanced code (RFC 3463) in the texts of a server, or None for each."""
    text = " ".join(str(text) for text in texts if text)
    smtp, enhanced = _SMTP.search(text), _ENHANCED.search(text)
    return int(smtp[1]) if smtp else None, enhanced[1] if enhanced else None


def join_texts(*texts: str | None) -> str:
    """Join the non-empty texts with colons, each only once."""
    return ": ".join(dict.fromkeys(text.strip() for text in texts if text and text.strip()))
