"""`/hooks/sendgrid`: SendGrid's signed event webhook (Twilio SendGrid, "Event Webhook Reference", "Security Features").

The signature is ECDSA over the time and the raw body. The setting is the public key, as SendGrid displays it.
"""

import base64
import logging
from typing import TYPE_CHECKING

from msgspec import Struct, field

from appliance.inbound.delivery_reports import DeliveryReport, ReportKind
from appliance.inbound.providers.base import (
    Fetch,
    HookPayload,
    HookRequest,
    Provider,
    ProviderOptOut,
    decode_events,
    find_codes,
    invalid_signature,
    parse_timestamp,
    require_fresh,
    to_milliseconds,
)
from appliance.sending.messages import links
from appliance.settings import config

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey


log = logging.getLogger("campanero.hooks")

_SIGNATURE_HEADER = "x-twilio-email-event-webhook-signature"
_TIMESTAMP_HEADER = "x-twilio-email-event-webhook-timestamp"
_PEM = ("-----BEGIN PUBLIC KEY-----", "-----END PUBLIC KEY-----")
_UNSUBSCRIBE_EVENTS = ("unsubscribe", "group_unsubscribe")
# Results for messages that SendGrid did not try to send, by the beginning of its reason
_DROP_REASONS: tuple[tuple[str, ReportKind, str | None], ...] = (
    ("bounced address", "bounced", "5.1.1"),
    ("invalid", "bounced", "5.1.3"),
    ("spam reporting address", "complained", None),
    ("spam content", "bounced", "5.7.1"),
)


class _Event(Struct, frozen=True):
    event: str = ""
    email: str | None = None
    timestamp: int = 0
    smtp_id: str | None = field(default=None, name="smtp-id")
    campanero: str | None = None  # Our custom argument, for events without a Message-ID.
    id: str | None = field(default=None, name="sg_event_id")
    type: str | None = None
    reason: str | None = None
    status: str | None = None
    response: str | None = None


async def _read(received: HookRequest, secret: str, fetch: Fetch) -> HookPayload:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
    from cryptography.hazmat.primitives.hashes import SHA256

    timestamp = received.headers.get(_TIMESTAMP_HEADER, "")
    try:
        signature = base64.b64decode(received.headers.get(_SIGNATURE_HEADER, ""), validate=True)
        _load_key(secret).verify(signature, timestamp.encode() + received.body, ECDSA(SHA256()))
    except (InvalidSignature, ValueError):
        raise invalid_signature() from None
    require_fresh(parse_timestamp(timestamp))
    reports, opt_outs = [], []
    for event in decode_events(received.body, _Event, "SendGrid"):
        message_id = links.read_message_id(event.campanero or event.smtp_id or "")
        if message_id is None:
            continue
        if event.event in _UNSUBSCRIBE_EVENTS or (event.reason or "").lower().startswith("unsubscribed address"):
            opt_outs.append(ProviderOptOut(message_id, f"left:{event.id or event.timestamp}", event.email))
        report = _to_report(message_id, event)
        reports += [report] if report else []
    return HookPayload(tuple(reports), tuple(opt_outs))


def _load_key(secret: str) -> "EllipticCurvePublicKey":
    """Parse a verification key, the base64 of DER with or without PEM lines; raises NotAllowed if it is invalid."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.hazmat.primitives.serialization import load_der_public_key

    encoded = secret.replace(_PEM[0], "").replace(_PEM[1], "")
    try:
        key = load_der_public_key(base64.b64decode("".join(encoded.split()), validate=True))
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, EllipticCurvePublicKey):
        log.error("hooks: email.hooks.sendgrid is not the verification key that SendGrid shows")
        raise invalid_signature()
    return key


def _to_report(message_id: int, event: _Event) -> DeliveryReport | None:
    text = event.reason or event.response or ""
    smtp, enhanced = find_codes(event.status, text)
    kind: ReportKind
    match event.event:
        case "delivered":
            kind = "delivered"
        case "spamreport":
            kind = "complained"
        case "bounce":
            # The type `blocked` is about the content or the sender, unless the enhanced code is about the address.
            is_address_fault = event.type != "blocked" or (enhanced or "").startswith("5.1.")
            kind = "bounced" if is_address_fault else "soft_bounced"
        case "dropped":
            reason = text.lower()
            drop_reason = next((candidate for candidate in _DROP_REASONS if reason.startswith(candidate[0])), None)
            kind, enhanced = drop_reason[1:] if drop_reason else ("bounced", "5.3.5")
        case _:
            return None
    return DeliveryReport(
        message_id, kind, "sendgrid", text, smtp, enhanced, event.email, event.id, to_milliseconds(event.timestamp)
    )


PROVIDER = Provider("sendgrid", lambda: config.current().email.hooks.sendgrid, _read)
