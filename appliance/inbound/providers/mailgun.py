"""`/hooks/mailgun`: Mailgun's webhooks (documentation.mailgun.com, "Securing webhooks", "Event structure").

The signature covers a time and a token but not the event, so a token is accepted again only with the same body.
"""

import hashlib
import hmac
from typing import Any

from msgspec import Struct, field

from appliance.core.errors import Invalid
from appliance.inbound.delivery_reports import DeliveryReport, ReportKind
from appliance.inbound.providers.base import (
    Fetch,
    HookPayload,
    HookRequest,
    Provider,
    ProviderOptOut,
    decode_json,
    find_codes,
    invalid_signature,
    join_texts,
    parse_timestamp,
    require_equal,
    require_fresh,
    to_milliseconds,
)
from appliance.sending.messages import links
from appliance.settings import config

# Mailgun's reasons why it did not try to send a message: the address bounced before, or its owner complained before
_SUPPRESSION_REASONS: dict[str, tuple[ReportKind, str | None]] = {
    "suppress-bounce": ("bounced", "5.1.1"),
    "suppress-complaint": ("complained", None),
}
_UNSUBSCRIBED = "suppress-unsubscribe"


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


async def _read(received: HookRequest, secret: str, fetch: Fetch) -> HookPayload:
    try:
        signed = decode_json(received.body, _Signed).signature
    except Invalid:
        raise invalid_signature() from None
    expected = hmac.new(secret.encode(), (signed.timestamp + signed.token).encode(), hashlib.sha256).hexdigest()
    require_equal(signed.signature.lower(), expected)
    require_fresh(parse_timestamp(signed.timestamp))
    event = decode_json(received.body, _Body).event
    message_id = links.read_message_id(event.message.headers.message_id)
    if message_id is None:
        return HookPayload(token=signed.token)
    has_opted_out = event.event == "unsubscribed" or event.reason == _UNSUBSCRIBED
    report = _to_report(message_id, event)
    return HookPayload(
        (report,) if report else (),
        (ProviderOptOut(message_id, f"left:{event.id or signed.token}", event.recipient),) if has_opted_out else (),
        signed.token,
    )


def _to_report(message_id: int, event: _Event) -> DeliveryReport | None:
    status = event.status
    smtp, enhanced = find_codes(status.message, status.description)
    kind: Any = {"delivered": "delivered", "complained": "complained"}.get(event.event)
    if event.event == "failed" and event.severity == "permanent":
        # Codes from 600 are Mailgun's own. Without the code of a permanent failure, Mailgun gave up after retries.
        smtp = status.code if 200 <= status.code < 600 else smtp
        enhanced = status.enhanced_code or enhanced
        kind, enhanced = _SUPPRESSION_REASONS.get(event.reason or "", (_bounce_kind(event, smtp, enhanced), enhanced))
    if kind is None:
        return None
    text = join_texts(status.message, status.description) or join_texts(event.reason)
    return DeliveryReport(message_id, kind, "mailgun", text, smtp, enhanced, event.recipient, event.id,
                to_milliseconds(event.timestamp))  # fmt: skip


def _bounce_kind(event: _Event, smtp: int | None, enhanced: str | None) -> ReportKind:
    """Return `bounced` if the SMTP code is permanent and the failure is about the address, else `soft_bounced`.

    The reason or the enhanced code shows whether it is about the address.
    """
    is_address_fault = event.reason == "bounce" or (enhanced or "").startswith("5.1.")
    return "bounced" if is_address_fault and (smtp or 0) >= 500 else "soft_bounced"


PROVIDER = Provider("mailgun", lambda: config.current().email.hooks.mailgun, _read)
