"""`/hooks/email`: what a relay of one's own tells, signed as our webhooks are (decisions, sections 13 and 15)."""

import base64
import binascii
import hashlib
import hmac
from typing import Literal

from msgspec import Struct

from appliance import config
from appliance.errors import Invalid
from appliance.feedback.facts import Fact
from appliance.feedback.providers.shared import (
    Fetch,
    Provider,
    Received,
    Told,
    codes,
    forged,
    must_be_fresh,
    read,
    stamp,
)
from appliance.messages import links


class _Body(Struct, frozen=True):
    type: Literal["delivered", "bounced", "soft_bounced", "complained"]
    internet_message_id: str
    recipient: str | None = None
    diagnostic: str | None = None


def signature(secret: str, name: str, sent: str, body: bytes) -> str:
    """Sign a request: `v1,` and the base64 HMAC-SHA256 of id, time and body with points between them."""
    made = hmac.new(_key(secret), f"{name}.{sent}.".encode() + body, hashlib.sha256).digest()
    return "v1," + base64.b64encode(made).decode()


def _key(secret: str) -> bytes:
    """Answer the key of a secret: what follows `whsec_` is base64, anything else is the key itself."""
    if secret.startswith("whsec_"):
        try:
            return base64.b64decode(secret.removeprefix("whsec_"), validate=True)
        except binascii.Error:
            pass
    return secret.encode()


async def _read(received: Received, secret: str, fetch: Fetch) -> Told:
    name, sent = received.headers.get("webhook-id", ""), received.headers.get("webhook-timestamp", "")
    right = signature(secret, name, sent, received.body)
    given = received.headers.get("webhook-signature", "").split(" ")
    if not name or not any(hmac.compare_digest(one.encode(), right.encode()) for one in given):
        raise forged()
    must_be_fresh(stamp(sent))
    body = read(received.body, _Body)
    number = links.message_of(body.internet_message_id)
    if number is None:
        raise Invalid({"internet_message_id": ["must exist"]})
    smtp, enhanced = codes(body.diagnostic)
    return Told((
        Fact(number, body.type, "hook", body.diagnostic or "", smtp, enhanced, body.recipient, name, int(sent) * 1000),
    ))  # fmt: skip


PROVIDER = Provider("email", lambda: config.current().email.feedback_secret, _read)
