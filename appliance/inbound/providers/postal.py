"""`/hooks/postal`: webhooks of a Postal server (docs.postalserver.io, "Webhooks").

The signature is RSA (PKCS #1 v1.5, SHA-256) over the raw body, which contains the time when the event happened. A
repeated request has the same body and signature. Postal keeps our Message-ID.
"""

import base64
import logging
import re
from typing import TYPE_CHECKING

from msgspec import Struct

from appliance.core.errors import Invalid
from appliance.inbound.delivery_reports import DeliveryReport, ReportKind
from appliance.inbound.providers.base import (
    Fetch,
    HookPayload,
    HookRequest,
    Provider,
    decode_json,
    find_codes,
    invalid_signature,
    join_texts,
    require_fresh,
    to_milliseconds,
)
from appliance.sending.messages import links
from appliance.settings import config

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey


log = logging.getLogger("campanero.hooks")

_SIGNATURE_HEADER = "x-postal-signature-256"
_PEM_LINE = re.compile(r"-----(?:BEGIN|END) PUBLIC KEY-----")
# Postal's six attempts at a request are 2, 3, 6, 10 and 15 minutes apart, and each waits five seconds for the response.
_RETRY_SECONDS = 36 * 60 + 30


class _Message(Struct, frozen=True):
    direction: str = "outgoing"
    message_id: str | None = None
    to: str | None = None


class _Event(Struct, frozen=True):
    details: str | None = None
    output: str | None = None
    message: _Message | None = None
    original_message: _Message | None = None


class _Body(Struct, frozen=True):
    event: str = ""
    timestamp: float = 0.0
    uuid: str | None = None
    payload: _Event = _Event()


class _Signed(Struct, frozen=True):
    timestamp: float = 0.0


class _JsonWebKey(Struct, frozen=True):
    kty: str
    n: str
    e: str


class _JsonWebKeySet(Struct, frozen=True):
    keys: list[_JsonWebKey]


async def _read(received: HookRequest, secret: str, fetch: Fetch) -> HookPayload:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
    from cryptography.hazmat.primitives.hashes import SHA256

    try:
        signature = base64.b64decode(received.headers.get(_SIGNATURE_HEADER, ""), validate=True)
        _load_key(secret).verify(signature, received.body, PKCS1v15(), SHA256())
    except (InvalidSignature, ValueError):
        raise invalid_signature() from None
    try:
        require_fresh(decode_json(received.body, _Signed).timestamp, _RETRY_SECONDS)
    except Invalid:
        raise invalid_signature() from None
    report = _to_report(decode_json(received.body, _Body))
    return HookPayload((report,) if report else ())


def _load_key(secret: str) -> "RSAPublicKey":
    """Parse a public key: a JSON Web Key Set (RFC 7517) with one key, or the base64 of DER with or without PEM lines.

    Raises NotAllowed if it is invalid.
    """
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey, RSAPublicNumbers
    from cryptography.hazmat.primitives.serialization import load_der_public_key

    try:
        if secret.lstrip().startswith("{"):
            [key] = decode_json(secret, _JsonWebKeySet).keys
            return RSAPublicNumbers(_decode_number(key.e), _decode_number(key.n)).public_key()
        encoded = _PEM_LINE.sub("", secret)
        public_key = load_der_public_key(base64.b64decode("".join(encoded.split()), validate=True))
        if isinstance(public_key, RSAPublicKey):
            return public_key
    except (Invalid, ValueError, UnsupportedAlgorithm):
        log.debug("hooks: email.hooks.postal cannot be parsed")
    log.error("hooks: email.hooks.postal is not the public key of a Postal server")
    raise invalid_signature()


def _decode_number(value: str) -> int:
    """Decode a Base64urlUInt (RFC 7518, section 2)."""
    return int.from_bytes(base64.urlsafe_b64decode(value + "=" * (-len(value) % 4)))


def _to_report(body: _Body) -> DeliveryReport | None:
    """Return the report of an event, or None if the event is a delay, or is about a message that is not ours.

    `MessageBounced` says that a bounce came back later, but not why. So it counts like a temporary failure: several of
    them suppress an address, a single one does not.
    """
    message = body.payload.original_message or body.payload.message or _Message()
    message_id = links.read_message_id(message.message_id or "") if message.direction == "outgoing" else None
    if message_id is None:
        return None
    text = join_texts(body.payload.output) or join_texts(body.payload.details)
    smtp, enhanced = find_codes(body.payload.output)
    at = to_milliseconds(body.timestamp)
    match body.event:
        case "MessageSent":
            return DeliveryReport(message_id, "delivered", "postal", text, smtp, enhanced, message.to, body.uuid, at)
        case "MessageDeliveryFailed":
            # If there is no permanent code of a server, Postal has given up after retries, or did not try to send the
            # message.
            is_permanent = (smtp or 0) >= 500 or (enhanced or "").startswith("5.")
            kind: ReportKind = "bounced" if is_permanent else "soft_bounced"
            return DeliveryReport(message_id, kind, "postal", text, smtp, enhanced, message.to, body.uuid, at)
        case "MessageBounced":
            return DeliveryReport(message_id, "soft_bounced", "postal", "", None, None, message.to, body.uuid, at)
    return None


PROVIDER = Provider("postal", lambda: config.current().email.hooks.postal, _read)
