"""Endpoints of messages and SMS conversations."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from appliance.accounts import audit, request_limits
from appliance.accounts.access import FULL_SCOPE
from appliance.api import message_intake, message_schemas
from appliance.api.endpoints import ApiRequest, ApiResponse, Routes, name_action
from appliance.api.http import ApiError, describe_error, get_idempotency_key, page_headers
from appliance.api.message_intake import LARGE_BODY, Sending, Sent, count_recipients
from appliance.api.message_schemas import MessageParts
from appliance.api.schemas import Moment
from appliance.content.designs.merge_limits import MergeError
from appliance.core import validation
from appliance.core.clock import iso
from appliance.core.errors import Conflict, Invalid, RateLimitExceeded
from appliance.core.validation import PageQuery
from appliance.events import log
from appliance.events.log import EventQuery
from appliance.inbound import sms_conversations
from appliance.inbound.sms_conversations import ConversationLine, IncomingKind, IncomingQuery, OptOutReview
from appliance.sending.messages import attachments, ledger, links, message_request, retries
from appliance.sending.messages.ledger import MessageQuery, Status
from appliance.sending.messages.message_request import MAX_BATCH, MessageBatch, MessageWrite
from appliance.sending.messages.prepare import MessagePreparer
from appliance.storage import models
from appliance.storage.models import Message
from appliance.storage.transactions import commit, fetch, render, render_for, scan

ROUTES = Routes()


async def serialize_readable(request: ApiRequest, messages: Sequence[Message]) -> list[message_schemas.Message]:
    """Return the API representation of messages.

    Without `contacts:read`, each subject is the submitted subject with its merge tags, not the rendered one.
    """
    if not request.credential.can_read_contacts:
        messages = await fetch(ledger.restore_submitted_subjects, messages)
    return [message_schemas.serialize_message(message) for message in messages]


@ROUTES.add(
    "GET", "/messages", scope="messages:read", agent_scope="messages:read",
    query_type=MessageQuery, response_type=message_schemas.Message,
    returns_list=True,
)  # fmt: skip
async def list_messages(request: ApiRequest) -> ApiResponse:
    """List messages of every kind and status, newest first."""
    page = await scan(ledger.list_messages, request.account_id, request.query)
    return ApiResponse(await serialize_readable(request, page.rows), headers=page_headers(page))


def _count_recipients_of_batch(raw: Any) -> int:
    messages = raw.get("messages") if isinstance(raw, dict) else None
    return sum(map(count_recipients, messages)) if isinstance(messages, list) else 1


async def _serialize_sent(request: ApiRequest, sent: Sent) -> message_schemas.SentMessage:
    if not request.credential.can_read_contacts:
        await fetch(ledger.restore_submitted_subjects, [sent.row])
    return message_schemas.serialize_sent_message(sent.row, sent.parts)


@ROUTES.add(
    "POST", "/messages", scope="messages:send", body_type=MessageWrite, response_type=message_schemas.SentMessage,
    status=201, other_statuses=(200,), idempotent=True, rate="messages", validate=message_intake.validate_message,
    large_body=LARGE_BODY,
)  # fmt: skip
async def create_message(request: ApiRequest) -> ApiResponse:
    """Send a single message.

    Each recipient of an email (`to`, `cc`, `bcc`) gets a message of its own, with its own id and outcome; a suppressed
    recipient gets none (`recipients`). If all recipients are suppressed, the response is 422 `recipient_suppressed`.
    In the rate limit, each recipient counts as a request.
    """
    body: MessageWrite = request.body
    request.ignored_keys.extend(message_request.list_ignored_fields(body))
    key = get_idempotency_key(request.http, body)
    sent = await message_intake.send(request, Sending(body, request.raw, key))
    message = await _serialize_sent(request, sent)
    return ApiResponse(message, 200, {"Idempotent-Replayed": "true"}) if sent.is_replay else ApiResponse(message)


class BatchResult(Struct):
    """The result of one message of a batch: the message, or the errors that a single request would have got."""

    status: Annotated[int, Meta(description="201: queued; 200: queued before; 409, 422, 429, 500, 503: not queued")]
    message: Annotated[message_schemas.SentMessage, Meta(description="the message; null if it was not queued")] | None
    code: Annotated[str, Meta(description="error code; null if the message was queued")] | None
    reason: Annotated[str, Meta(description="reason of the error, such as `recipient_suppressed`; often null")] | None
    errors: Annotated[dict[str, list[str]], Meta(description="errors by field; empty if the message was queued")]


class MessageBatchResult(Struct):
    """The results of a batch of messages."""

    queued: Annotated[int, Meta(description="number of messages that were queued, by this or an earlier request")]
    rejected: Annotated[int, Meta(description="number of messages that were not queued")]
    results: Annotated[list[BatchResult], Meta(description="a result for each message, in the order of the request")]


# The number of recipients whose messages are written in one transaction, for which other accounts wait; a message with
# more recipients is written as a whole.
_BATCH_WRITES = 25


def split_batch(raw_messages: Sequence[Any]) -> Iterator[tuple[int, Sequence[Any]]]:
    """Yield the messages of a batch in parts of at most `_BATCH_WRITES` recipients, each with its first index."""
    start = count = 0
    for index, raw in enumerate(raw_messages):
        recipient_count = count_recipients(raw)
        if index > start and count + recipient_count > _BATCH_WRITES:
            yield start, raw_messages[start:index]
            start, count = index, 0
        count += recipient_count
    if raw_messages:
        yield start, raw_messages[start:]


@ROUTES.add(
    "POST", "/messages/batch", scope="messages:send", body_type=MessageBatch, response_type=MessageBatchResult,
    idempotent=True, rate="messages", large_body=LARGE_BODY._replace(count_requests=_count_recipients_of_batch),
)  # fmt: skip
async def create_messages(request: ApiRequest) -> ApiResponse:
    """Send up to 500 messages, each with a result of its own.

    Every message that the response reports as queued is on disk. In the rate limit, each recipient counts as a request.
    After a broken connection, repeat the request with the same `Idempotency-Key`: messages that were queued are not
    queued again.
    """
    key = get_idempotency_key(request.http)
    raw_messages: list[Any] = request.body.messages
    if attachments.count_content({"messages": raw_messages}) > attachments.MAX_TOTAL_BYTES * 4 // 3 + 4 * MAX_BATCH:
        raise Invalid({"messages": [attachments.describe_total_limit()]})
    headers = {}
    if key is not None:
        payload = await asyncio.to_thread(attachments.hash_contents, raw_messages)
        once = await commit(
            request_limits.run_once, request.account_id, "/messages/batch", key, payload, lambda: 1,
            request.credential.is_test,
        )  # fmt: skip
        headers = {"Idempotent-Replayed": "true"} if once.is_replay else {}
    results: list[BatchResult] = []
    for start, part in split_batch(raw_messages):
        results += await asyncio.gather(
            *(_send_of_batch(request, start + index, raw, key) for index, raw in enumerate(part))
        )
    queued = sum(result.message is not None for result in results)
    return ApiResponse(MessageBatchResult(queued, len(results) - queued, results), headers=headers)


async def _send_of_batch(request: ApiRequest, index: int, raw: Any, key: str | None) -> BatchResult:
    """Send one message of a batch and return its result.

    The message is stored under its own idempotency key, or else under that of the batch with the index of the message.
    """
    read = await asyncio.to_thread(validation.read_partial, MessageWrite, raw)
    ignored = list(read.ignored)
    try:
        await message_intake.check(request._replace(ignored_keys=ignored), read)
        ignored += message_request.list_ignored_fields(read.value)
        own_key = message_request.get_text(read.value.idempotency_key)
        path = "/messages" if own_key or key is None else f"/messages/batch/{index}"
        sent = await message_intake.send(request, Sending(read.value, raw, own_key or key, path))
    except Invalid as error:
        return BatchResult(422, None, error.code, error.reason, error.fields)
    except Conflict as error:
        return BatchResult(409, None, error.code, None, {})
    except RateLimitExceeded as error:
        return BatchResult(429, None, error.code, None, {})
    except Exception as error:
        # Others of the batch may be queued, so that each has a result of its own.
        described = describe_error(request.http, error)
        return BatchResult(described.status, None, described.code, None, {})
    finally:
        request.ignored_keys.extend(f"messages[{index}].{name}" for name in ignored)
    return BatchResult(200 if sent.is_replay else 201, await _serialize_sent(request, sent), None, None, {})


@ROUTES.add("GET", "/messages/{id}", scope="messages:read", response_type=message_schemas.MessageDetail)
async def get_message(request: ApiRequest) -> ApiResponse:
    """Get a message with its content and events.

    Without the scope `contacts:read`, `html` and `text` of a message to a contact are null. Without `contacts:write`,
    links with which the recipient can change their preferences are replaced.
    """
    return ApiResponse(await fetch_detail(request, request.id))


async def fetch_detail(request: ApiRequest, message_id: int) -> message_schemas.MessageDetail:
    """Return a message with as much of its content as the credential may read. Raises NotFound."""
    can_read_contacts = request.credential.can_read_contacts
    show_links = str if request.credential.has_scope("contacts:write") else links.hide_recipient_links

    def read() -> message_schemas.MessageDetail:
        row = ledger.get(request.account_id, message_id)
        query = EventQuery(limit=100, resource_uid=f"message:{row.id}")
        events = list(log.list_events(request.account_id, query).rows)
        content = ledger.get_content(row)
        parts = MessageParts(ledger.list_copies(row), attachments.list_files(row.id))
        rendered: dict[str, Any] = {"html": None, "text": None, "headers": content.headers if content else {}}
        if not can_read_contacts:
            ledger.restore_submitted_subjects([row])
            if ledger.may_show_contact(row, content):
                return message_schemas.serialize_message_detail(row, rendered, events, parts)
        # A message that cannot be rendered has no content to return. That may be so after it was sent, too, because
        # conditions of its sections cost more when the contact has more events.
        with suppress(MergeError):
            filled = MessagePreparer().fill_again(row)
            html = show_links(filled.html) if row.channel == "email" else None
            rendered |= {"html": html, "text": show_links(filled.text)}
        return message_schemas.serialize_message_detail(row, rendered, events, parts)

    return await render_for(request.account_id, read)


def _add_decision(name: str, verb: Callable[[int, int, str], Message], summary: str) -> None:
    async def handler(request: ApiRequest) -> ApiResponse:
        if request.credential.is_test and not (await fetch(ledger.get, request.account_id, request.id)).test:
            raise ApiError(403, "forbidden", "A test key may act only on messages sent by test keys.")
        args = (request.caller, f"message_{name}", verb, request.account_id, request.id, request.actor)
        [message] = await serialize_readable(request, [await commit(audit.run_and_record, *args)])
        return ApiResponse(message)

    name_action(handler, name, "message", summary)
    ROUTES.add("POST", f"/messages/{{id}}/{name}", scope="messages:send", response_type=message_schemas.Message)(
        handler
    )


_add_decision("retry", retries.retry, "Retry a rejected or uncertain message.")
_add_decision("cancel", retries.cancel, "Cancel a queued message.")
_add_decision("assume_sent", retries.assume_sent, "Mark an uncertain message as sent.")


class IncomingMessage(Struct, rename={"from_": "from"}):
    """An incoming SMS.

    `answered_message_id` is the last message that was sent to the number before the SMS arrived, and
    `reply_message_id` is the automatic reply to the SMS.
    """

    id: int
    account_id: int
    contact_id: Annotated[int, Meta(description="id of the contact; null if there is none or it was deleted")] | None
    from_: Annotated[str, Meta(description="phone number of the sender; null once it is erased")] | None
    to: Annotated[str, Meta(description="number or sender name to which it was sent")] | None
    body: Annotated[str, Meta(description="text of the message")] | None
    kind: Annotated[IncomingKind, Meta(description="classification of the message")]
    keyword: Annotated[str, Meta(description="keyword with which the message begins")] | None
    opted_out: Annotated[bool, Meta(description="whether the message opted its sender out")]
    provider: Annotated[str, Meta(description="name of the provider")]
    provider_id: Annotated[str, Meta(description="id of the message at the provider")] | None
    answered_message_id: Annotated[int, Meta(description="id of the last message sent to this number before")] | None
    reply_message_id: Annotated[int, Meta(description="id of the automatic reply to a keyword")] | None
    seen_at: Annotated[Moment, Meta(description="when a user reviewed the message; null if none has")] | None
    test: bool
    created_at: Moment


class ConversationMessage(Struct, rename={"from_": "from"}):
    """An SMS of a conversation. `id` is the id of an Incoming (direction `in`) or of a Message (direction `out`)."""

    direction: Annotated[
        Literal["in", "out"], Meta(description="`in` for messages from the contact, `out` for messages to the contact")
    ]
    id: Annotated[int, Meta(description="id of the Incoming or the Message")]
    at: Annotated[Moment, Meta(description="when the message was sent or received")]
    from_: Annotated[str, Meta(description="sender")] | None
    to: Annotated[str, Meta(description="recipient")] | None
    body: Annotated[str, Meta(description="text of the message")] | None
    kind: (
        Annotated[IncomingKind, Meta(description="classification of the message; null for messages to the contact")]
        | None
    )
    keyword: Annotated[str, Meta(description="keyword with which the message begins")] | None
    status: Annotated[Status, Meta(description="status of the message; null for messages from the contact")] | None
    segments: int | None
    source_type: (
        Annotated[
            Literal["transactional", "campaign", "flow", "test", "system"],
            Meta(description="source of the message; null for messages from the contact"),
        ]
        | None
    )
    source_name: Annotated[str, Meta(description="name of the campaign or flow")] | None
    test: bool


def serialize_incoming(row: models.Incoming) -> IncomingMessage:
    """Return the API representation of an incoming SMS."""
    kind: Any = row.kind
    return IncomingMessage(
        row.id, row.account_id, row.contact_id, row.sender, row.recipient or None, row.body, kind, row.keyword,
        row.opted_out,
        row.provider, row.provider_id, row.answered_id, row.reply_id, iso(row.seen_at), row.test,
        str(iso(row.created_at)),
    )  # fmt: skip


def serialize_conversation_line(line: ConversationLine) -> ConversationMessage:
    """Return the API representation of an SMS in a conversation, which is either incoming or outgoing."""
    at, incoming, message = str(iso(line.at)), line.incoming, line.message
    if incoming is not None:
        kind: Any = incoming.kind
        return ConversationMessage(
            "in",
            incoming.id,
            at,
            incoming.sender,
            incoming.recipient or None,
            line.body,
            kind,
            incoming.keyword,
            None,
            None,
            None,
            None,
            incoming.test,
        )
    assert message is not None
    status: Any = message.status
    source: Any = message.source_type
    return ConversationMessage(
        "out",
        message.id,
        at,
        message.sender or None,
        message.recipient,
        line.body,
        None,
        None,
        status,
        message.segments,
        source,
        line.source_name,
        message.test,
    )


@ROUTES.add(
    "GET", "/contacts/{id}/conversation", scope="contacts:read", user_scope=FULL_SCOPE, query_type=PageQuery,
    response_type=ConversationMessage,
    returns_list=True,
)  # fmt: skip
async def list_contact_conversation(request: ApiRequest) -> ApiResponse:
    """List SMS exchanged with a contact, newest first."""
    page = await render(
        sms_conversations.list_conversation, request.account_id, request.id, request.query.page, request.query.size()
    )
    lines = sms_conversations.hide_links(page.rows) if not request.credential.has_scope("contacts:write") else page.rows
    return ApiResponse([serialize_conversation_line(line) for line in lines], headers=page_headers(page))


@ROUTES.add(
    "GET",
    "/incoming",
    scope="messages:read",
    query_type=IncomingQuery,
    response_type=IncomingMessage,
    returns_list=True,
)
async def list_incoming(request: ApiRequest) -> ApiResponse:
    """List incoming SMS, newest first, including those from unknown numbers."""
    page = await fetch(sms_conversations.list_incoming, request.account_id, request.query)
    return ApiResponse([serialize_incoming(row) for row in page.rows], headers=page_headers(page))


@ROUTES.add("GET", "/incoming/{id}", scope="messages:read", response_type=IncomingMessage)
async def get_incoming(request: ApiRequest) -> ApiResponse:
    """Get an incoming SMS."""
    return ApiResponse(serialize_incoming(await fetch(sms_conversations.get_incoming, request.account_id, request.id)))


@ROUTES.add(
    "POST", "/incoming/{id}/seen", scope="contacts:write", body_type=OptOutReview, response_type=IncomingMessage,
    body_required=False,
)  # fmt: skip
async def mark_incoming_seen(request: ApiRequest) -> ApiResponse:
    """Mark an incoming SMS as reviewed, and opt its sender out if `opt_out` is true."""
    row = await commit(sms_conversations.mark_seen, request.account_id, request.id, request.body, request.actor)
    return ApiResponse(serialize_incoming(row))
