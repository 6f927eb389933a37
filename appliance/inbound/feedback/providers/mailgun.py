"""`/hooks/mailgun`: Mailgun's webhooks (documentation.mailgun.com, "Securing webhooks", "Event structure").

The signature covers a time and a token, not the event: so a token counts once, with the body it came with.
"""

import hashlib
import hmac
from typing import Any

from msgspec import Struct, field

from appliance.core.errors import Invalid
from appliance.inbound.feedback.providers.shared import (
    Fetch,
    Left,
    Provider,
    Received,
    Told,
    codes,
    forged,
    milliseconds,
    must_be_fresh,
    must_equal,
    read,
    stamp,
    words,
)
from appliance.inbound.feedback.record import Fact, Kind
from appliance.sending.messages import links
from appliance.settings import config

# Mailgun's own codes for what it did not even try: bounced before, complained before
_REASONS: dict[str, tuple[Kind, str | None]] = {
    "suppress-bounce": ("bounced", "5.1.1"),
    "suppress-complaint": ("complained", None),
}
_LEFT = "suppress-unsubscribe"


class _Signature(Struct, frozen=True):
    timestamp: str = ""
    token: str = ""
    signature: str = ""


class _Status(Struct, frozen=True):
    code: int = 0
    message: str | None = None
    description: str | None = None
    enhanced_code: str | None = field(default=None, name="enhanced-code")


class _Headers(Struct, frozen=True):
    message_id: str = field(default="", name="message-id")


class _Message(Struct, frozen=True):
    headers: _Headers = _Headers()


class _Event(Struct, frozen=True):
    event: str = ""
    id: str | None = None
    timestamp: float = 0.0
    recipient: str | None = None
    severity: str | None = None
    reason: str | None = None
    message: _Message = _Message()
    status: _Status = field(default=_Status(), name="delivery-status")


class _Signed(Struct, frozen=True):
    signature: _Signature = _Signature()


class _Body(Struct, frozen=True):
    event: _Event = field(default=_Event(), name="event-data")


async def _read(received: Received, secret: str, fetch: Fetch) -> Told:
    try:
        signed = read(received.body, _Signed).signature
    except Invalid:
        raise forged() from None
    made = hmac.new(secret.encode(), (signed.timestamp + signed.token).encode(), hashlib.sha256).hexdigest()
    must_equal(signed.signature.lower(), made)
    must_be_fresh(stamp(signed.timestamp))
    event = read(received.body, _Body).event
    number = links.message_of(event.message.headers.message_id)
    if number is None:
        return Told(token=signed.token)
    left = event.event == "unsubscribed" or event.reason == _LEFT
    fact = _fact(number, event)
    return Told(
        (fact,) if fact else (), (Left(number, f"left:{event.id or signed.token}", event.recipient),) if left else (),
        signed.token,
    )  # fmt: skip


def _fact(number: int, event: _Event) -> Fact | None:
    status = event.status
    smtp, enhanced = codes(status.message, status.description)
    kind: Any = {"delivered": "delivered", "complained": "complained"}.get(event.event)
    if event.event == "failed" and event.severity == "permanent":
        # Codes from 600 are Mailgun's own; without one that ends in failure what was tried is given up
        smtp = status.code if 200 <= status.code < 600 else smtp
        enhanced = status.enhanced_code or enhanced
        kind, enhanced = _REASONS.get(event.reason or "", (_kind(event, smtp, enhanced), enhanced))
    if kind is None:
        return None
    text = words(status.message, status.description) or words(event.reason)
    return Fact(number, kind, "mailgun", text, smtp, enhanced, event.recipient, event.id,
                milliseconds(event.timestamp))  # fmt: skip


def _kind(event: _Event, smtp: int | None, enhanced: str | None) -> Kind:
    """Return whether it is for good: a bounce by its code, all else (policy, time) only where the address is named."""
    blamed = event.reason == "bounce" or (enhanced or "").startswith("5.1.")
    return "bounced" if blamed and (smtp or 0) >= 500 else "soft_bounced"


PROVIDER = Provider("mailgun", lambda: config.current().email.hooks.mailgun, _read)
