"""`/hooks/postmark`: Postmark's webhooks (postmarkapp.com/developer, "Webhooks overview", "Bounce API").

Postmark signs nothing: its requests carry the password that stands in their URL (any name, the secret as password) or
in a header of ours. It replaces the Message-ID, so our messages carry metadata of their own.
"""

import base64
from typing import Any

from msgspec import Struct, field

from appliance.inbound.feedback.providers.shared import (
    Fetch,
    Left,
    Provider,
    Received,
    Told,
    codes,
    moment,
    must_equal,
    read,
    words,
)
from appliance.inbound.feedback.record import Fact, Kind
from appliance.sending.messages import links
from appliance.settings import config

_HEADER = "x-hook-secret"
# What ends a message, by Postmark's type; whatever is not here is a delay, an answering machine or none of ours.
# A code of its own where the type itself says what happened
_BOUNCES: dict[str, tuple[Kind, str | None]] = {
    "HardBounce": ("bounced", None),
    "BadEmailAddress": ("bounced", "5.1.3"),
    "SoftBounce": ("soft_bounced", None),
    "DnsError": ("soft_bounced", None),
    "Unknown": ("soft_bounced", None),
    "Blocked": ("bounced", "5.7.1"),
    "SpamNotification": ("bounced", "5.7.1"),
    "VirusNotification": ("bounced", "5.7.1"),
    "DMARCPolicy": ("bounced", "5.7.1"),
    "ManuallyDeactivated": ("bounced", "5.3.5"),
    "SpamComplaint": ("complained", None),
}


class _Body(Struct, frozen=True, rename="pascal"):
    record_type: str = ""
    id: int | None = field(default=None, name="ID")
    message_id: str = field(default="", name="MessageID")
    type: str = ""
    name: str | None = None
    description: str | None = None
    details: str | None = None
    email: str | None = None
    recipient: str | None = None
    bounced_at: str | None = None
    delivered_at: str | None = None
    changed_at: str | None = None
    suppress_sending: bool = False
    suppression_reason: str | None = None
    metadata: dict[str, Any] | None = None


async def _read(received: Received, secret: str, fetch: Fetch) -> Told:
    must_equal(received.headers.get(_HEADER) or _password(received.headers.get("authorization", "")), secret)
    body = read(received.body, _Body)
    number = links.message_of(str((body.metadata or {}).get("campanero", "")))
    if number is None:
        return Told()
    left = Left(number, f"left:{body.id or body.message_id}:{body.changed_at}", body.email or body.recipient)
    if body.record_type == "SubscriptionChange":
        own_act = body.suppress_sending and body.suppression_reason == "ManualSuppression"
        return Told(left=(left,) if own_act else ())
    fact = _fact(number, body)
    return Told((fact,) if fact else (), left=(left,) if body.type == "Unsubscribe" else ())


def _password(header: str) -> str:
    scheme, _, given = header.partition(" ")
    try:
        return base64.b64decode(given, validate=True).decode().partition(":")[2] if scheme.lower() == "basic" else ""
    except ValueError:  # not base64 (with letters beyond ASCII too), or not UTF-8
        return ""


def _fact(number: int, body: _Body) -> Fact | None:
    if body.record_type == "Delivery":
        kind: Kind = "delivered"
        said, enhanced = body.details or "", None
    elif body.record_type in ("Bounce", "SpamComplaint") and body.type in _BOUNCES:
        kind, enhanced = _BOUNCES[body.type]
        said = words(body.details, body.description) or words(body.name)
    else:
        return None
    smtp, found = codes(body.details)
    key = f"{body.record_type}:{body.id or body.message_id}"
    return Fact(number, kind, "postmark", said, smtp, found or enhanced, body.email or body.recipient, key,
                moment(body.bounced_at or body.delivered_at or ""))  # fmt: skip


PROVIDER = Provider("postmark", lambda: config.current().email.hooks.postmark, _read)
