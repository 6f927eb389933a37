"""The messages of API requests: validate them, store their files, and queue them once for an idempotency key."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, NamedTuple

from msgspec import UNSET, structs

from appliance.accounts import request_limits
from appliance.api.endpoints import ApiRequest, LargeBody, validator
from appliance.api.message_schemas import MessageParts
from appliance.core.errors import Faults
from appliance.core.validation import PartialRead
from appliance.sending.messages import attachments, ledger, message_request, transactional
from appliance.sending.messages.attachments import AttachmentWrite, StoredFile
from appliance.sending.messages.message_request import MessageWrite
from appliance.sending.messages.transactional import RecipientSuppressed
from appliance.storage.models import Message
from appliance.storage.transactions import commit, render, render_send


async def validate_message(request: ApiRequest) -> dict[str, list[str]]:
    """Return the errors that sending the message would find, by field.

    The fields that the channel of the message ignores are added to `request.ignored_keys`. If the channel is invalid,
    the message is checked as an email if its recipient contains `@`, else as an SMS.
    """
    body: MessageWrite = request.body
    if (
        request.parse_result is not None
        and "channel" in request.parse_result.faults.fields
        and isinstance(body.to, str)
    ):
        body = structs.replace(body, channel="email" if "@" in body.to else "sms")
    request.ignored_keys.extend(message_request.list_ignored_fields(body))
    check = partial(transactional.validate, can_read_contacts=request.credential.can_read_contacts)
    return await validator(check, run=render)(request._replace(body=body))


def count_recipients(raw: Any) -> int:
    """Return how many recipients a message in a request has, at least 1, whether or not they are valid."""
    copies = [raw.get(name) for name in ("cc", "bcc")] if isinstance(raw, dict) else []
    return 1 + sum(len(addresses) for addresses in copies if isinstance(addresses, list))


# A request may contain files in base64, which has four characters for three bytes, besides its other fields.
LARGE_BODY = LargeBody(
    attachments.MAX_TOTAL_BYTES * 4 // 3 + 4 * 1_048_576, attachments.count_content, count_recipients
)


class Sent(NamedTuple):
    """A message that was queued, with its recipients and files; `is_replay` if an earlier request had queued it.

    `refusal` is the error to raise if no recipient may get it.
    """

    row: Message
    parts: MessageParts
    is_replay: bool
    refusal: RecipientSuppressed | None


class Sending(NamedTuple):
    """One message to send: the request, its JSON, and the idempotency key with the path that it belongs to.

    `files` are its attached files if they are stored already, for several messages at once (`store_files`).
    """

    body: MessageWrite
    raw: dict[str, Any]
    key: str | None
    path: str = "/messages"
    files: Sequence[StoredFile] | None = None


@asynccontextmanager
async def store_files(files: Sequence[AttachmentWrite]) -> AsyncIterator[Sequence[StoredFile]]:
    """Store valid files for the messages that the block sends, and delete them again if no message needs them."""
    stored = await asyncio.to_thread(attachments.store, files)
    try:
        yield stored
    finally:
        attachments.release(stored)
        await commit(attachments.delete_unreferenced, [file.sha256 for file in stored])


async def send(request: ApiRequest, sending: Sending) -> Sent:
    """Queue a message as `queue`, and return it; raises RecipientSuppressed if no recipient may get it."""
    sent = await queue(request, sending)
    if sent.refusal is not None:
        raise sent.refusal
    return sent


async def queue(request: ApiRequest, sending: Sending) -> Sent:
    """Store the files of a message, queue it for each recipient, and return it, even if no recipient may get it.

    Raises the errors of `transactional.queue_message` and of `request_limits.run_once`.
    """
    body, is_test = sending.body, request.credential.is_test
    can_read_contacts = request.credential.can_read_contacts
    prepared = await render_send(transactional.prepare, request.account_id, body)
    attached = message_request.list_attachments(body)
    faults = Faults()
    attachments.find_faults(attached, faults)
    # The write reports the errors of invalid files together with all others.
    is_stored = bool(attached) and not faults.fields and body.channel == "email" and sending.files is None
    own_files = await asyncio.to_thread(attachments.store, attached) if is_stored else []
    files = own_files if sending.files is None else sending.files
    payload = {name: value for name, value in sending.raw.items() if name != "idempotency_key"}
    payload = attachments.describe_payload(payload, files) if attached else payload

    def write() -> Sent:
        messages: list[Message] = []
        refusal: RecipientSuppressed | None = None

        def run() -> int | None:
            nonlocal refusal
            args = (request.account_id, body, sending.key, is_test, prepared, can_read_contacts, files)
            messages.append(transactional.queue_message(*args))
            refusal = transactional.get_refusal(messages[0])
            # A message to a suppressed recipient is not stored under the key, so that a repeated request is checked
            # again.
            return None if refusal else int(messages[0].id)

        once = request_limits.run_once(request.account_id, sending.path, sending.key, payload, run, is_test)
        row = ledger.get(request.account_id, once.resource_id or messages[0].id)
        # Most messages have one recipient and no file, and need no further queries.
        copies = ledger.list_copies(row, is_single=not (body.cc or body.bcc))
        listed = attachments.list_files(row.id) if attached else []
        return Sent(row, MessageParts(copies, listed), once.is_replay, refusal)

    sent: Sent | None = None
    try:
        sent = await commit(write)
    finally:
        attachments.release(own_files)
        if own_files and (sent is None or sent.is_replay or sent.refusal is not None):
            await commit(attachments.delete_unreferenced, [file.sha256 for file in own_files])
    return sent


async def check(request: ApiRequest, read: PartialRead) -> None:
    """Raise Invalid with all errors of a message that was read and whose fields have errors; else do nothing.

    The errors that need the values of other fields are found by `send`. The ignored fields are added to
    `request.ignored_keys`.
    """
    if not read.faults.fields:
        return
    faults = Faults()
    faults.merge(read.faults.fields)
    if read.value is not UNSET:
        faults.merge(await validate_message(request._replace(body=read.value, parse_result=read)))
    faults.check()
