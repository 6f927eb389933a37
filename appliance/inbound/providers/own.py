"""`/hooks/email`: reports from the operator's own relay, signed like our webhooks (docs/decisions.md#13 and #15)."""

from typing import Literal

from msgspec import Struct

from appliance.core import addresses, crypto
from appliance.core.errors import Faults
from appliance.inbound.delivery_reports import DeliveryReport
from appliance.inbound.providers.base import (
    Fetch,
    HookPayload,
    HookRequest,
    Provider,
    decode_json,
    find_codes,
    invalid_signature,
    parse_timestamp,
    require_fresh,
)
from appliance.sending.messages import links
from appliance.settings import config


class _Body(Struct, frozen=True):
    type: Literal["delivered", "bounced", "soft_bounced", "complained"]
    internet_message_id: str
    recipient: str | None = None
    diagnostic: str | None = None


async def _read(received: HookRequest, secret: str, fetch: Fetch) -> HookPayload:
    webhook_id, timestamp = received.headers.get("webhook-id", ""), received.headers.get("webhook-timestamp", "")
    signature = received.headers.get("webhook-signature", "")
    if not webhook_id or not crypto.has_valid_signature(secret, webhook_id, timestamp, received.body, signature):
        raise invalid_signature()
    require_fresh(parse_timestamp(timestamp))
    body = decode_json(received.body, _Body)
    message_id = links.read_message_id(body.internet_message_id)
    faults = Faults()
    if message_id is None:
        faults.add("internet_message_id", "must exist")
    try:
        addresses.parse_email(addresses.address_in_header(body.recipient or ""))
    except ValueError:
        faults.add("recipient", "is invalid" if (body.recipient or "").strip() else "can't be blank")
    faults.check()
    assert message_id is not None  # Otherwise `faults.check` raises.
    smtp, enhanced = find_codes(body.diagnostic)
    return HookPayload(
        (
            DeliveryReport(
                message_id,
                body.type,
                "hook",
                body.diagnostic or "",
                smtp,
                enhanced,
                body.recipient,
                webhook_id,
                int(timestamp) * 1000,
            ),
        )
    )


PROVIDER = Provider("email", lambda: config.current().email.feedback_secret, _read)
