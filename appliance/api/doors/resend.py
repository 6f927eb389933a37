"""The door for programs that speak the API of Resend (resend.com/docs/api-reference): sending, batches, and one email.

A batch is queued as a whole or not at all, unless the header `x-batch-validation: permissive` asks for results of each.
"""

import asyncio
import base64
from typing import Any

from sanic import HTTPResponse, Request

from appliance.api import auth, http, messages
from appliance.api.doors import door as base
from appliance.api.doors.door import Batch, Door, DoorMessage, DoorRoute, Field, Fields, FileKeys, Refused
from appliance.api.endpoints import ApiRequest
from appliance.api.http import DescribedError
from appliance.core.errors import Faults

PATH = "/compat/resend"
_KEYS = FileKeys("attachments", "content")
MAX_BATCH = 100
_NAMES_BY_STATUS = {
    400: "validation_error", 401: "invalid_api_key", 403: "restricted_api_key", 404: "not_found",
    405: "method_not_allowed", 409: "invalid_idempotent_request", 413: "validation_error", 415: "validation_error",
    422: "validation_error", 429: "rate_limit_exceeded", 500: "internal_server_error",
    503: "internal_server_error",
}  # fmt: skip


def _read_files(value: Any, path: str, faults: Faults) -> Any:
    """Return attached files; the content is base64, or the bytes as a list, as clients in Node and Python write it."""
    files = _FILES(value, path, faults)
    for index, file in enumerate(files or ()):
        content = file.get("content")
        if isinstance(content, dict) and content.get("type") == "Buffer":
            content = content.get("data")
        if isinstance(content, list):
            try:
                file["content"] = base64.b64encode(bytes(content)).decode()
            except (TypeError, ValueError):
                faults.add(f"{path}[{index}].content", "is invalid")
    return files


_FILES = base.read_files({
    "filename": "filename", "content": "content", "content_type": "content_type", "contentType": "content_type",
    "content_id": "content_id", "contentId": "content_id", "inline_content_id": "content_id",
})  # fmt: skip
FIELDS: Fields = {
    "from": Field("from", base.keep), "to": Field("to", base.read_address_list),
    "cc": Field("cc", base.read_address_list), "bcc": Field("bcc", base.read_address_list),
    "subject": Field("subject", base.keep), "html": Field("html", base.keep), "text": Field("text", base.keep),
    "reply_to": Field("reply_to", base.read_one_address), "headers": Field("headers", base.keep),
    "attachments": Field("attachments", _read_files), "tags": Field("variables", base.read_pairs("name", "value")),
    "scheduled_at": Field("send_at", base.keep),
    "template": Refused("is not supported: templates are those of this service, by POST /v1/my/messages"),
    "topic_id": Refused("is not supported: send marketing as a campaign"),
}  # fmt: skip
_NAMES = {"other_to": "to", "send_at": "scheduled_at", "body": "html"}


def _read(request: ApiRequest, raw: dict[str, Any], path: str, key: str | None) -> DoorMessage:
    faults = Faults()
    ours, ignored = base.read_fields(raw, FIELDS, faults)
    request.ignored_keys.extend(ignored)
    base.split_recipients(ours, ours.pop("to", None), faults, "to")
    base.set_tags(ours)
    return DoorMessage(ours, faults, _NAMES, path, key)


async def send_email(request: ApiRequest) -> HTTPResponse:
    """Send an email: `POST /emails`."""
    raw = await base.read_json_object(request, _KEYS)
    key = http.get_idempotency_key(request.http)
    message = await asyncio.to_thread(_read, request, raw, f"{PATH}/emails", key)
    row = await base.queue(request, await base.read_message(request, message))
    return http.json_response({"id": base.write_id(row.id)})


async def send_batch(request: ApiRequest) -> HTTPResponse:
    """Send up to 100 emails: `POST /emails/batch`."""
    raw = await base.read_json_list(request, _KEYS, MAX_BATCH)
    key = http.get_idempotency_key(request.http)
    faults = Faults()
    for index in (index for index, item in enumerate(raw) if not isinstance(item, dict)):
        faults.add(f"emails[{index}]", "must be an object")
    faults.check()

    def read() -> list[DoorMessage]:
        return [_read(request, item, f"{PATH}/emails/batch/{index}", key) for index, item in enumerate(raw)]

    batch = Batch(await asyncio.to_thread(read), f"{PATH}/emails/batch", raw)
    if request.http.headers.get("x-batch-validation", "strict").lower() != "permissive":
        ids = await base.queue_all(request, batch, lambda index: f"emails[{index}].")
        return http.json_response({"data": [{"id": base.write_id(number)} for number in ids]})
    await base.claim_key(request, batch)
    data, errors = [], []
    for index, message in enumerate(batch.messages):
        try:
            row = await base.queue(request, await base.read_message(request, message))
            data.append({"id": base.write_id(row.id)})
        except Exception as error:
            # An error is the result of this email only; the others are queued.
            errors.append({"index": index, "message": base.describe_error(http.describe_error(request.http, error))})
    return http.json_response({"data": data, "errors": errors})


async def get_email(request: ApiRequest, number: str) -> HTTPResponse:
    """Return an email and its last event: `GET /emails/{id}`."""
    auth.require_scope(request.credential, "messages:read")
    detail = await messages.fetch_detail(request, base.read_id(number))
    addresses: dict[str, list[str]] = {"to": [], "cc": [], "bcc": []}
    for recipient in detail.recipients:
        if recipient.address:
            addresses[recipient.kind].append(recipient.address)
    return http.json_response({
        "object": "email", "id": base.write_id(detail.id), "from": detail.from_, "to": addresses["to"],
        "cc": addresses["cc"], "bcc": addresses["bcc"], "reply_to": [detail.reply_to] if detail.reply_to else [],
        "subject": detail.subject, "html": detail.html, "text": detail.text, "created_at": detail.created_at,
        "scheduled_at": detail.next_attempt_at if detail.status == "held" else None,
        "last_event": _LAST_EVENTS.get(detail.status, "queued"),
    })  # fmt: skip


# Resend's name of the last event of an email, by our status.
_LAST_EVENTS = {
    "queued": "queued", "sending": "queued", "held": "scheduled", "sent": "sent", "delivered": "delivered",
    "bounced": "bounced", "complained": "complained", "failed": "failed", "skipped": "suppressed",
    "cancelled": "canceled", "uncertain": "sent",
}  # fmt: skip


def _write_error(error: DescribedError) -> HTTPResponse:
    name = _NAMES_BY_STATUS.get(error.status, "application_error")
    body = {"statusCode": error.status, "name": name, "message": base.describe_error(error)}
    return http.json_response(body, error.status)


def _read_token(request: Request) -> str:
    return auth.read_bearer_token(request)


DOOR = Door(
    "resend",
    (
        DoorRoute("POST", f"{PATH}/emails", send_email, "messages:send", "messages", max_bytes=base.MAX_BODY_BYTES),
        DoorRoute(
            "POST", f"{PATH}/emails/batch", send_batch, "messages:send", "messages", max_bytes=base.MAX_BODY_BYTES
        ),
        DoorRoute("GET", f"{PATH}/emails/<number:str>", get_email, "messages:read"),
    ),
    _read_token,
    _write_error,
    lambda path: path == PATH or path.startswith(f"{PATH}/"),
)
