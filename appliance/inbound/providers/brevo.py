"""`/hooks/brevo`: Brevo's webhooks (developers.brevo.com, "Transactional webhooks", "Secure webhook calls").

Brevo does not sign requests. The secret is the password in the URL of the webhook, or a bearer token. Brevo replaces
the Message-ID, so our messages have their id in `X-Mailin-custom`, which comes back in each event. A batched webhook
posts a list of events ("Batched webhooks").
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
    require_password,
    to_milliseconds,
)
from appliance.sending.messages import links
from appliance.settings import config

# Results by Brevo's event, with an enhanced code where the event shows the cause. A message is `blocked` because its
# address is on Brevo's blocklist, for any of several reasons.
_REPORTS: dict[str, tuple[ReportKind, str | None]] = {
    "delivered": ("delivered", None),
    "hard_bounce": ("bounced", None),
    "soft_bounce": ("soft_bounced", None),
    "invalid_email": ("bounced", "5.1.3"),
    "blocked": ("bounced", "5.3.5"),
    "error": ("bounced", "5.3.5"),
    "spam": ("complained", None),
    "complaint": ("complained", None),
}


class _Event(Struct, frozen=True):
    event: str = ""
    email: str | None = None
    custom: str = field(default="", name="X-Mailin-custom")
    reason: str | None = None
    ts_event: float | None = None
    ts_epoch: float | None = None  # Unix milliseconds; the other times depend on the time zone of the account.


async def _read(received: HookRequest, secret: str, fetch: Fetch) -> HookPayload:
    require_password(received, secret)
    reports, opt_outs = [], []
    for event in decode_events(received.body, _Event, "Brevo"):
        message_id = links.read_message_id(event.custom)
        if message_id is None:
            continue
        if event.event == "unsubscribed":
            opt_outs.append(ProviderOptOut(message_id, f"left:{message_id}:{event.ts_event}", event.email))
        elif event.event in _REPORTS:
            kind, cause = _REPORTS[event.event]
            smtp, enhanced = find_codes(event.reason)
            reports.append(
                DeliveryReport(
                    message_id, kind, "brevo", (event.reason or "").strip(), smtp, enhanced or cause, event.email,
                    f"{event.event}:{message_id}", to_milliseconds((event.ts_epoch or 0) / 1000),
                )
            )  # fmt: skip
    return HookPayload(tuple(reports), tuple(opt_outs))


PROVIDER = Provider("brevo", lambda: config.current().email.hooks.brevo, _read)
