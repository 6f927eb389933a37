"""`/hooks/mailjet`: Mailjet's event callbacks (dev.mailjet.com, "Webhook", "Event types", "Securing your webhooks").

Mailjet does not sign requests. The secret is the password in the URL of the webhook. Mailjet replaces the Message-ID,
so our messages have their id as the `CustomID`, which comes back in each event. Events are posted one by one or, with
the option to group them, as a list.
"""

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
    join_texts,
    require_password,
    to_milliseconds,
)
from appliance.sending.messages import links
from appliance.settings import config

# Results by the `error` of a `bounce` or `blocked` event, with an enhanced code for the cause. The other errors are
# temporary, or about Mailjet's own filters.
_ERRORS: dict[str, tuple[ReportKind, str | None]] = {
    "user unknown": ("bounced", "5.1.1"),
    "mailbox inactive": ("bounced", "5.2.1"),
    "quota exceeded": ("soft_bounced", "4.2.2"),
    "invalid domain": ("bounced", "5.1.2"),
    "no mail host": ("bounced", "5.1.2"),
    "typofix": ("bounced", "5.1.3"),
    "spam reporter": ("complained", None),
    "sender blocked": ("bounced", "5.7.1"),
    "content blocked": ("bounced", "5.7.1"),
    "policy issue": ("bounced", "5.7.1"),
    "relay/access denied": ("bounced", "5.7.1"),
    "blacklisted": ("bounced", "5.3.5"),
    "preblocked": ("bounced", "5.3.5"),
    "duplicate in campaign": ("bounced", "5.3.5"),
}

_DELAY = "greylisted"  # Mailjet tries again.


class _Event(Struct, frozen=True):
    event: str = ""
    email: str | None = None
    custom_id: str = field(default="", name="CustomID")
    time: float = 0.0
    hard_bounce: bool = False
    error: str | None = None
    error_related_to: str | None = None
    comment: str | None = None
    smtp_reply: str | None = None


async def _read(received: HookRequest, secret: str, fetch: Fetch) -> HookPayload:
    require_password(received, secret)
    reports, opt_outs = [], []
    for event in decode_events(received.body, _Event, "Mailjet"):
        message_id = links.read_message_id(event.custom_id)
        if message_id is None:
            continue
        if event.event == "unsub":
            opt_outs.append(ProviderOptOut(message_id, f"left:{message_id}:{event.time}", event.email))
        report = _to_report(message_id, event)
        reports += [report] if report else []
    return HookPayload(tuple(reports), tuple(opt_outs))


def _to_report(message_id: int, event: _Event) -> DeliveryReport | None:
    text = join_texts(event.comment, event.smtp_reply) or join_texts(event.error_related_to, event.error)
    smtp, enhanced = find_codes(event.comment, event.smtp_reply)
    kind: ReportKind
    match event.event:
        case "sent":  # accepted by the server of the recipient
            kind = "delivered"
        case "spam":
            kind = "complained"
        case "bounce" | "blocked" if event.error != _DELAY:
            fallback: ReportKind = "bounced" if event.hard_bounce else "soft_bounced"
            kind, cause = _ERRORS.get(event.error or "", (fallback, None))
            enhanced = enhanced or cause
        case _:
            return None
    return DeliveryReport(
        message_id, kind, "mailjet", text, smtp, enhanced, event.email, f"{event.event}:{message_id}",
        to_milliseconds(event.time),
    )  # fmt: skip


PROVIDER = Provider("mailjet", lambda: config.current().email.hooks.mailjet, _read)
