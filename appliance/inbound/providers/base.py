"""Types and helper functions for the webhooks of email providers: requests, payloads, signatures and parsing."""

import base64
import hmac
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import msgspec

from appliance.core import clock
from appliance.core.errors import Invalid, NotAllowed
from appliance.inbound.delivery_reports import DeliveryReport
from appliance.settings import config
from appliance.settings.config import parse_seconds

log = logging.getLogger("campanero.hooks")

T = TypeVar("T")
# Downloads an https URL and returns the body of the response.
Fetch = Callable[[str], Awaitable[bytes]]

_SECRET_HEADER = "x-hook-secret"  # noqa: S105 - the name of a header
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
    """The contents of a verified request. If it has a `token`, that token is accepted again only with the same body."""

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


def require_password(received: HookRequest, secret: str) -> None:
    """Raise NotAllowed unless a request has the secret of a provider that does not sign its requests.

    The secret is the password in the URL of the webhook, with any user name (RFC 7617), a bearer token (RFC 6750), or
    the value of the header `X-Hook-Secret`.
    """
    scheme, _, credentials = received.headers.get("authorization", "").partition(" ")
    password = ""
    if scheme.lower() == "bearer":
        password = credentials.strip()
    elif scheme.lower() == "basic":
        try:
            password = base64.b64decode(credentials, validate=True).decode().partition(":")[2]
        except ValueError:  # The credentials are not base64, not ASCII, or not UTF-8.
            password = ""
    require_equal(received.headers.get(_SECRET_HEADER) or password, secret)


def require_fresh(moment: float, retry_seconds: float = 0) -> None:
    """Raise NotAllowed if a signing time (Unix seconds) is more than `network.hook_max_age` in the past or future.

    `retry_seconds` is added to the limit for the past, for providers that repeat requests with the first signature.
    """
    age, max_age = clock.now() - moment, parse_seconds(config.current().network.hook_max_age)
    if not -max_age <= age <= max_age + retry_seconds:
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


def decode_events(body: bytes, kind: type[T], label: str) -> list[T]:
    """Decode one event, or each event of a list; log and leave out those that have other types.

    Raises Invalid if the body is malformed. `label` is the name of the provider in the log.
    """
    is_list = body.lstrip()[:1] == b"["
    events = []
    for raw in decode_json(body, list[msgspec.Raw]) if is_list else [decode_json(body, msgspec.Raw)]:
        try:
            events.append(decode_json(raw, kind))
        except Invalid:
            if not is_list:
                raise
            log.warning("hooks: %s event cannot be read bytes=%s", label, len(bytes(raw)))
    return events


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
