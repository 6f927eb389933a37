"""`/hooks/postmark`: Postmark's webhooks (postmarkapp.com/developer, "Webhooks overview", "Bounce API").

Postmark does not sign requests. The secret is the password in the URL of the webhook, with any user name, or the value
of a custom header. Postmark replaces the Message-ID, so our messages have their id in the metadata.
"""

from typing import Any

from msgspec import Struct, field

from appliance.inbound.delivery_reports import DeliveryReport, ReportKind
from appliance.inbound.providers.base import (
    Fetch,
    HookPayload,
    HookRequest,
    Provider,
    ProviderOptOut,
    decode_json,
    find_codes,
    join_texts,
    parse_time,
    require_password,
)
from appliance.sending.messages import links
from appliance.settings import config

# Final results by Postmark's type, with an enhanced code if the type shows the cause. Other types are delays, automatic
# replies, or reports about other mail.
_BOUNCES: dict[str, tuple[ReportKind, str | None]] = {
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


async def _read(received: HookRequest, secret: str, fetch: Fetch) -> HookPayload:
    require_password(received, secret)
    body = decode_json(received.body, _Body)
    message_id = links.read_message_id(str((body.metadata or {}).get("campanero", "")))
    if message_id is None:
        return HookPayload()
    opt_out = ProviderOptOut(
        message_id, f"left:{body.id or body.message_id}:{body.changed_at}", body.email or body.recipient
    )
    if body.record_type == "SubscriptionChange":
        is_opt_out = body.suppress_sending and body.suppression_reason == "ManualSuppression"
        return HookPayload(opt_outs=(opt_out,) if is_opt_out else ())
    report = _to_report(message_id, body)
    return HookPayload((report,) if report else (), opt_outs=(opt_out,) if body.type == "Unsubscribe" else ())


def _to_report(message_id: int, body: _Body) -> DeliveryReport | None:
    if body.record_type == "Delivery":
        kind: ReportKind = "delivered"
        text, enhanced = body.details or "", None
    elif body.record_type in ("Bounce", "SpamComplaint") and body.type in _BOUNCES:
        kind, enhanced = _BOUNCES[body.type]
        text = join_texts(body.details, body.description) or join_texts(body.name)
    else:
        return None
    smtp, text_code = find_codes(body.details)
    key = f"{body.record_type}:{body.id or body.message_id}"
    recipient = body.email or body.recipient
    return DeliveryReport(message_id, kind, "postmark", text, smtp, text_code or enhanced, recipient, key,
                parse_time(body.bounced_at or body.delivered_at or ""))  # fmt: skip


PROVIDER = Provider("postmark", lambda: config.current().email.hooks.postmark, _read)
