"""`/hooks/sendgrid`: SendGrid's signed event webhook (Twilio SendGrid, "Event Webhook Reference", "Security Features").

ECDSA over the time and the body as it came; the key of the settings is the public one that SendGrid shows.
"""

import base64
import logging
from typing import TYPE_CHECKING

import msgspec
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
    read,
    stamp,
)
from appliance.inbound.feedback.record import Fact, Kind
from appliance.sending.messages import links
from appliance.settings import config

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey


log = logging.getLogger("campanero.hooks")

_SIGNATURE = "x-twilio-email-event-webhook-signature"
_TIMESTAMP = "x-twilio-email-event-webhook-timestamp"
_PEM = ("-----BEGIN PUBLIC KEY-----", "-----END PUBLIC KEY-----")
_LEFT = ("unsubscribe", "group_unsubscribe")
# What SendGrid does not try, by the beginning of its reason
_DROPPED: tuple[tuple[str, Kind, str | None], ...] = (
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
    campanero: str | None = None  # our own argument, where the Message-ID is not told
    id: str | None = field(default=None, name="sg_event_id")
    type: str | None = None
    reason: str | None = None
    status: str | None = None
    response: str | None = None


async def _read(received: Received, secret: str, fetch: Fetch) -> Told:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
    from cryptography.hazmat.primitives.hashes import SHA256

    sent = received.headers.get(_TIMESTAMP, "")
    try:
        signature = base64.b64decode(received.headers.get(_SIGNATURE, ""), validate=True)
        _key(secret).verify(signature, sent.encode() + received.body, ECDSA(SHA256()))
    except (InvalidSignature, ValueError):
        raise forged() from None
    must_be_fresh(stamp(sent))
    facts, left = [], []
    for raw in read(received.body, list[msgspec.Raw]):
        try:
            event = read(raw, _Event)
        except Invalid:
            log.warning("SendGrid told of an event that cannot be read (%s bytes)", len(bytes(raw)))
            continue
        number = links.message_of(event.campanero or event.smtp_id or "")
        if number is None:
            continue
        if event.event in _LEFT or (event.reason or "").lower().startswith("unsubscribed address"):
            left.append(Left(number, f"left:{event.id or event.timestamp}", event.email))
        fact = _fact(number, event)
        facts += [fact] if fact else []
    return Told(tuple(facts), tuple(left))


def _key(secret: str) -> "EllipticCurvePublicKey":
    """Read the verification key as it is shown: base64 of DER, with or without the lines of a PEM."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.hazmat.primitives.serialization import load_der_public_key

    bare = secret.replace(_PEM[0], "").replace(_PEM[1], "")
    try:
        key = load_der_public_key(base64.b64decode("".join(bare.split()), validate=True))
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, EllipticCurvePublicKey):
        log.error("email.hooks.sendgrid is not the verification key that SendGrid shows")
        raise forged()
    return key


def _fact(number: int, event: _Event) -> Fact | None:
    said = event.reason or event.response or ""
    smtp, enhanced = codes(event.status, said)
    kind: Kind
    match event.event:
        case "delivered":
            kind = "delivered"
        case "spamreport":
            kind = "complained"
        case "bounce":
            # Blocked: refused for what was sent or for who sent it, unless the server blames the address
            blamed = event.type != "blocked" or (enhanced or "").startswith("5.1.")
            kind = "bounced" if blamed else "soft_bounced"
        case "dropped":
            reason = said.lower()
            known = next((one for one in _DROPPED if reason.startswith(one[0])), None)
            kind, enhanced = known[1:] if known else ("bounced", "5.3.5")
        case _:
            return None
    return Fact(number, kind, "sendgrid", said, smtp, enhanced, event.email, event.id, milliseconds(event.timestamp))


PROVIDER = Provider("sendgrid", lambda: config.current().email.hooks.sendgrid, _read)
