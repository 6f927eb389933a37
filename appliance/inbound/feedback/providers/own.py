"""`/hooks/email`: what a relay of one's own tells, signed as our webhooks are (docs/decisions.md#13 and #15)."""

from typing import Literal

from msgspec import Struct

from appliance.core import addresses, crypto
from appliance.core.errors import Faults
from appliance.inbound.feedback.providers.shared import (
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
from appliance.inbound.feedback.record import Fact
from appliance.sending.messages import links
from appliance.settings import config


class _Body(Struct, frozen=True):
    type: Literal["delivered", "bounced", "soft_bounced", "complained"]
    internet_message_id: str
    recipient: str | None = None
    diagnostic: str | None = None


async def _read(received: Received, secret: str, fetch: Fetch) -> Told:
    name, sent = received.headers.get("webhook-id", ""), received.headers.get("webhook-timestamp", "")
    given = received.headers.get("webhook-signature", "")
    if not name or not crypto.is_signed(secret, name, sent, received.body, given):
        raise forged()
    must_be_fresh(stamp(sent))
    body = read(received.body, _Body)
    number = links.message_of(body.internet_message_id)
    faults = Faults()
    if number is None:
        faults.add("internet_message_id", "must exist")
    try:
        addresses.email(addresses.in_header(body.recipient or ""))
    except ValueError:
        faults.add("recipient", "is invalid" if (body.recipient or "").strip() else "can't be blank")
    faults.check()
    assert number is not None  # without faults there is one
    smtp, enhanced = codes(body.diagnostic)
    return Told((
        Fact(number, body.type, "hook", body.diagnostic or "", smtp, enhanced, body.recipient, name, int(sent) * 1000),
    ))  # fmt: skip


PROVIDER = Provider("email", lambda: config.current().email.feedback_secret, _read)
