"""`/hooks/resend`: Resend's webhooks, signed by Svix (resend.com/docs, "Verify Webhooks Requests", "Event Types").

The signature is an HMAC over the id, the time and the raw body, like those of our own webhooks (docs/decisions.md#13).
Resend replaces the Message-ID, so our messages have their id in the tag `campanero`, which comes back in each event.
"""

from typing import Any

from msgspec import Struct

from appliance.core import crypto
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
    parse_time,
    parse_timestamp,
    require_fresh,
)
from appliance.sending.messages import links
from appliance.settings import config

# The cause of a bounce by its `subType` ("Email Bounces"), which has the names of Amazon SES.
_BOUNCE_CAUSES = {
    "NoEmail": "5.1.1",
    "Suppressed": "5.2.1",
    "OnAccountSuppressionList": "5.2.1",
    "MailboxFull": "4.2.2",
    "MessageTooLarge": "5.3.4",
    "ContentRejected": "5.7.1",
    "AttachmentRejected": "5.7.1",
}


class _Details(Struct, frozen=True, rename="camel"):
    type: str | None = None
    sub_type: str | None = None
    message: str | None = None
    reason: str | None = None


class _Header(Struct, frozen=True):
    name: str = ""
    value: str = ""


class _Data(Struct, frozen=True):
    to: list[str] = []
    message_id: str | None = None
    tags: dict[str, Any] | list[_Header] | None = None
    headers: list[_Header] | None = None
    bounce: _Details | None = None
    failed: _Details | None = None
    suppressed: _Details | None = None


class _Body(Struct, frozen=True):
    type: str = ""
    created_at: str = ""
    data: _Data = _Data()


async def _read(received: HookRequest, secret: str, fetch: Fetch) -> HookPayload:
    event_id, timestamp = received.headers.get("svix-id", ""), received.headers.get("svix-timestamp", "")
    signature = received.headers.get("svix-signature", "")
    if not event_id or not crypto.has_valid_signature(secret, event_id, timestamp, received.body, signature):
        raise invalid_signature()
    require_fresh(parse_timestamp(timestamp))
    body = decode_json(received.body, _Body)
    message_id = _message_id_of(body.data)
    report = _to_report(message_id, event_id, body) if message_id is not None else None
    return HookPayload((report,) if report else ())


def _message_id_of(data: _Data) -> int | None:
    """Return the id of our message from the tag, or from the Message-ID if Resend reports it, or None."""
    tags = data.tags if isinstance(data.tags, dict) else {tag.name: tag.value for tag in data.tags or []}
    message_ids = [header.value for header in data.headers or [] if header.name.lower() == "message-id"]
    values = (str(tags.get("campanero") or ""), *message_ids, data.message_id or "")
    return next(filter(None, map(links.read_message_id, values)), None)


def _to_report(message_id: int, event_id: str, body: _Body) -> DeliveryReport | None:
    kind: ReportKind
    text, cause = "", None
    match body.type:
        case "email.delivered":
            kind = "delivered"
        case "email.complained":
            kind = "complained"
        case "email.bounced":
            bounce = body.data.bounce or _Details()
            kind = "bounced" if bounce.type == "Permanent" else "soft_bounced"
            text, cause = join_texts(bounce.message) or join_texts(bounce.type, bounce.sub_type), bounce.sub_type
        case "email.suppressed":
            suppressed = body.data.suppressed or _Details()
            kind, text, cause = "bounced", join_texts(suppressed.message), "Suppressed"
        case "email.failed":
            failed = body.data.failed or _Details()
            return DeliveryReport(message_id, "bounced", "resend", join_texts(failed.reason), None, "5.3.5",
                                  _recipient_of(body.data), event_id, parse_time(body.created_at))  # fmt: skip
        case _:
            return None
    smtp, enhanced = find_codes(text)
    return DeliveryReport(
        message_id, kind, "resend", text, smtp, enhanced or _BOUNCE_CAUSES.get(cause or ""), _recipient_of(body.data),
        event_id, parse_time(body.created_at),
    )  # fmt: skip


def _recipient_of(data: _Data) -> str | None:
    """Return the recipient, or None if the event names none or several; each of our messages has one."""
    return data.to[0] if len(data.to) == 1 else None


PROVIDER = Provider("resend", lambda: config.current().email.hooks.resend, _read)
