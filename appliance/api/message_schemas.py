"""Response Structs of messages, and functions that create them from rows of the database."""

from collections.abc import Iterable
from typing import Annotated, Any, Literal, NamedTuple

from msgspec import Meta, Struct

from appliance.api.schemas import Json, Moment, RecordedEvent, build_from_row, serialize_event
from appliance.core.clock import iso
from appliance.sending.messages.ledger import Status
from appliance.storage import models

# They are stored by `sending/messages/ledger.py` (`DeliveryError.kind`), `outcomes.py` beside it, and
# `inbound/delivery_reports.py`.
_ERROR_CODES = (
    "last failure of the message: `temporary`, `throttled` or `unreachable` (tried again); `client_rejected`, "
    "`sender_rejected` or `unauthenticated` (login, sender or authentication rejected); `refused` or `permanent` "
    "(recipient or message rejected), `expired` (retries ended), `returned` (bounced later), `uncertain` or `in_doubt` "
    "(reply lost)"
)


class MessageError(Struct):
    """The last error that a mail server or SMS provider reported for a message."""

    code: Annotated[str, Meta(description=_ERROR_CODES)]
    smtp: Annotated[int, Meta(description="SMTP reply code")] | None
    enhanced: Annotated[str, Meta(description="enhanced status code (RFC 3463)")] | None
    text: Annotated[str, Meta(description="response of the server")] | None


class Message(Struct, rename={"from_": "from"}):
    """An email or SMS to one address."""

    id: int
    account_id: int
    attempts: Annotated[int, Meta(description="number of attempts")]
    contact_id: Annotated[int, Meta(description="id of the contact; null if there is none or it was deleted")] | None
    campaign_id: Annotated[int, Meta(description="id of the campaign; null if there is none")] | None
    flow_id: Annotated[int, Meta(description="id of the flow; null if there is none")] | None
    step_id: Annotated[int, Meta(description="id of the flow step that sent the message; null if there is none")] | None
    template_id: (
        Annotated[
            int, Meta(description="id of the template of the message; null if its content was given in the request")
        ]
        | None
    )
    segments: int | None
    channel: Literal["email", "sms"]
    status: Annotated[
        Status,
        Meta(
            description="status: `queued`, `held` and `sending` are pending, all others final; a report or a retry may "
            "still change a final status"
        ),
    ]
    provider: Annotated[str, Meta(description="transport of the message")]
    source_type: Annotated[
        Literal["transactional", "campaign", "flow", "test", "system"],
        Meta(description="kind of source of the message"),
    ]
    to: Annotated[str, Meta(description="recipient; null once erased")] | None
    from_: Annotated[str, Meta(description="sender; null until the message is rendered")] | None
    reply_to: str | None
    subject: (
        Annotated[
            str,
            Meta(
                description="subject as sent, null for SMS; without the scope `contacts:read` as submitted, with its "
                "merge tags, and null for campaigns and flows"
            ),
        ]
        | None
    )
    skip_reason: (
        Annotated[
            str,
            Meta(
                description="why the message was skipped, such as `unsubscribed` or `suppressed_hard_bounce`; "
                "more may follow"
            ),
        ]
        | None
    )
    source_name: Annotated[str, Meta(description="name of the campaign or flow")] | None
    provider_id: Annotated[str, Meta(description="id of the message at the provider")] | None
    idempotency_key: Annotated[str, Meta(description="`Idempotency-Key` of the request")] | None
    internet_message_id: Annotated[str, Meta(description="Message-ID header")] | None
    transactional: Annotated[
        bool, Meta(description="whether the message is sent without consent, footer and tracking, as receipts are")
    ]
    test: bool
    tags: Annotated[Json, Meta(description="tags of the message")]
    error: Annotated[MessageError, Meta(description="last rejection; null if there is none")] | None
    next_attempt_at: Annotated[Moment, Meta(description="time of the next attempt; null if there is none")] | None
    sent_at: Annotated[Moment, Meta(description="when the message was sent")] | None
    delivered_at: Annotated[Moment, Meta(description="when the message was reported as delivered")] | None
    opened_at: Annotated[Moment, Meta(description="when a person first opened the message")] | None
    clicked_at: Annotated[Moment, Meta(description="when a person first clicked a link")] | None
    variant: (
        Annotated[
            int,
            Meta(
                description="number of the variant in the A/B test of its campaign; 0: waiting for the winner, -1: "
                "held out; null without a test"
            ),
        ]
        | None
    )
    bounced_at: Annotated[Moment, Meta(description="when the message was reported as undeliverable")] | None
    created_at: Moment
    updated_at: Moment


class MessageRecipient(Struct):
    """One recipient of a message to several recipients. Each of them has a message of its own, with its own outcome."""

    id: Annotated[int, Meta(description="id of the message to this recipient")]
    kind: Annotated[Literal["to", "cc", "bcc"], Meta(description="how the recipient was given")]
    address: Annotated[str, Meta(description="address of the recipient; null once erased")] | None
    status: Annotated[Status, Meta(description="status of the message to this recipient")]
    skip_reason: (
        Annotated[str, Meta(description="why the recipient gets no message, such as `suppressed_hard_bounce`")] | None
    )


class MessageAttachment(Struct):
    """A file that is attached to a message."""

    filename: Annotated[str, Meta(description="file name")]
    content_type: Annotated[str, Meta(description="MIME type")]
    content_id: Annotated[str, Meta(description="id of an inline image in the HTML; null for other files")] | None
    size: Annotated[int, Meta(description="size in bytes")]


class SentMessage(Message, rename={"from_": "from"}):
    """The message to the recipient `to` of a request, with all recipients of the request."""

    recipients: Annotated[list[MessageRecipient], Meta(description="all recipients, that of `to` first")]
    attachments: Annotated[list[MessageAttachment], Meta(description="attached files")]


class MessageDetail(SentMessage, rename={"from_": "from"}):
    """A message with its content and events, and all recipients of its request."""

    html: (
        Annotated[
            str,
            Meta(
                description="HTML content as sent; null for SMS, for messages that were never rendered, and, without "
                "the scope `contacts:read`, for messages to a contact"
            ),
        ]
        | None
    )
    text: (
        Annotated[
            str,
            Meta(
                description="plain text content as sent; null, without the scope `contacts:read`, for messages to a "
                "contact"
            ),
        ]
        | None
    )
    headers: Annotated[dict[str, str], Meta(description="custom headers")]
    events: Annotated[list[RecordedEvent], Meta(description="latest events of the message, newest first, at most 100")]


def _message_values(row: models.Message) -> dict[str, Any]:
    error = None
    if row.error_code is not None:
        error = MessageError(row.error_code, row.error_smtp, row.error_enhanced, row.error_text)
    is_open = row.status in ("queued", "held")
    return {
        "to": row.recipient, "from_": row.sender or None, "tags": row.tags or {}, "error": error,
        # A queued message without a due time belongs to a paused flow and waits until the flow is resumed.
        "next_attempt_at": iso(max(row.due_at, row.created_at)) if is_open and row.due_at is not None else None,
        "source_name": getattr(row, "source_name", None),
    }  # fmt: skip


def serialize_message(row: models.Message) -> Message:
    """Return the API representation of a message without its content."""
    return build_from_row(Message, row, **_message_values(row))


class MessageParts(NamedTuple):
    """The rows of all recipients of a message, and of its attached files."""

    copies: Iterable[models.Message]
    files: Iterable[models.Attachment]


def serialize_sent_message(row: models.Message, parts: MessageParts) -> SentMessage:
    """Return the API representation of a message with its recipients and attached files."""
    return build_from_row(SentMessage, row, **_serialize_parts(parts), **_message_values(row))


def _serialize_parts(parts: MessageParts) -> dict[str, Any]:
    attachments = [build_from_row(MessageAttachment, file) for file in parts.files]
    return {"recipients": _serialize_recipients(parts.copies), "attachments": attachments}


def _serialize_recipients(copies: Iterable[models.Message]) -> list[MessageRecipient]:
    statuses: list[tuple[models.Message, Any]] = [(copy, copy.status) for copy in copies]
    return [MessageRecipient(copy.id, copy.kind, copy.recipient, status, copy.skip_reason) for copy, status in statuses]


def serialize_message_detail(
    row: models.Message, content: Any, events: list[models.Event], parts: MessageParts
) -> MessageDetail:
    """Return the API representation of a message with its content, events, recipients and attached files.

    `content` has the keys `html`, `text` and `headers`.
    """
    return build_from_row(
        MessageDetail, row, html=content["html"], text=content["text"], headers=content["headers"],
        events=[serialize_event(event) for event in events], **_serialize_parts(parts), **_message_values(row),
    )  # fmt: skip
