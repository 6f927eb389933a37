"""The door for programs that speak the API of Postmark (postmarkapp.com/developer): single emails and batches of them.

An error response of Postmark has a number (`ErrorCode`) and a single text, so the text lists all errors.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from sanic import HTTPResponse, Request

from appliance.api import http
from appliance.api.doors import door as base
from appliance.api.doors.door import Door, DoorMessage, DoorRoute, Field, Fields, FileKeys, Ignored, Refused
from appliance.api.endpoints import ApiRequest
from appliance.api.http import DescribedError
from appliance.core import clock
from appliance.core.errors import Faults, Invalid

PATH = "/compat/postmark"
_KEYS = FileKeys("Attachments", "Content")
MAX_BATCH = 500
# Postmark's codes of errors: invalid request, inactive recipient, invalid token; and our statuses for the rest.
_INVALID, _INACTIVE, _UNAUTHORIZED, _RATE_LIMITED, _FAILED = 300, 406, 10, 429, 500


def _read_tag(value: Any, path: str, faults: Faults) -> list[str] | None:
    if not isinstance(value, str):
        faults.add(path, "is invalid")
        return None
    return [value]


def _read_files(value: Any, path: str, faults: Faults) -> Any:
    files = _FILES(value, path, faults)
    for file in files or ():
        if isinstance(file.get("content_id"), str):
            file["content_id"] = file["content_id"].removeprefix("cid:")
    return files


_FILES = base.read_files(
    {"Name": "filename", "Content": "content", "ContentType": "content_type", "ContentID": "content_id"},
    optional=("ContentLength",),
)


def _read_stream(value: Any, path: str, faults: Faults) -> None:
    """Add an error unless the message stream is the one of transactional messages; marketing is sent by campaigns."""
    if value != "outbound":
        faults.add(path, "must be outbound: send marketing as a campaign")


_TEMPLATE = Refused("is not supported: templates are those of this service, by POST /v1/my/messages")
_HEADERS = base.read_pairs("Name", "Value", base.MAX_HEADERS)
FIELDS: Fields = {
    "From": Field("from", base.keep), "To": Field("to", base.read_address_list),
    "Cc": Field("cc", base.read_address_list), "Bcc": Field("bcc", base.read_address_list),
    "Subject": Field("subject", base.keep), "HtmlBody": Field("html", base.keep), "TextBody": Field("text", base.keep),
    "ReplyTo": Field("reply_to", base.read_one_address), "Tag": Field("tag_names", _read_tag),
    "Metadata": Field("variables", base.read_texts), "Headers": Field("headers", _HEADERS),
    "Attachments": Field("attachments", _read_files), "TrackOpens": Field("tracks_opens", base.keep),
    "MessageStream": Field("stream", _read_stream),
    "TrackLinks": Ignored("clicks are counted in marketing only"),
    "InlineCss": Ignored("styles are always inlined"),
    "TemplateId": _TEMPLATE, "TemplateAlias": _TEMPLATE, "TemplateModel": _TEMPLATE,
}  # fmt: skip
_NAMES = {
    "from": "From", "to": "To", "other_to": "To", "cc": "Cc", "bcc": "Bcc", "subject": "Subject", "html": "HtmlBody",
    "body": "HtmlBody", "text": "TextBody", "reply_to": "ReplyTo", "headers": "Headers", "attachments": "Attachments",
    "tracks_opens": "TrackOpens", "tags": "Metadata",
}  # fmt: skip


def _read(request: ApiRequest, raw: Any, path: str, key: str | None) -> DoorMessage:
    faults = Faults()
    if not isinstance(raw, dict):
        raise Invalid({"base": ["The message must be a JSON object."]})
    ours, ignored = base.read_fields(raw, FIELDS, faults)
    request.ignored_keys.extend(name for name in ignored if name not in request.ignored_keys)
    to = ours.pop("to", None)
    base.split_recipients(ours, to, faults, "To")
    base.set_tags(ours)
    return DoorMessage(ours, faults, _NAMES, path, key)


async def send_email(request: ApiRequest) -> HTTPResponse:
    """Send an email: `POST /email`."""
    raw = await base.read_json_object(request, _KEYS)
    result, status = await _send_one(request, raw, f"{PATH}/email", http.get_idempotency_key(request.http))
    return http.json_response(result, status)


async def send_batch(request: ApiRequest) -> HTTPResponse:
    """Send up to 500 emails, each with a result of its own: `POST /email/batch`."""
    raw = await base.read_json_list(request, _KEYS, MAX_BATCH)
    key = http.get_idempotency_key(request.http)
    results: list[dict[str, Any]] = []
    for start in range(0, len(raw), base.BATCH_WRITES):
        part = raw[start : start + base.BATCH_WRITES]
        tasks = [
            _send_one(request, item, f"{PATH}/email/batch/{start + index}", key) for index, item in enumerate(part)
        ]
        results += [result for result, _ in await asyncio.gather(*tasks)]
    return http.json_response(results)


async def _send_one(request: ApiRequest, raw: Any, path: str, key: str | None) -> tuple[dict[str, Any], int]:
    """Return the result of one email, and its HTTP status; an unexpected error is logged and is the result, too."""
    try:
        message = await base.read_message(request, await asyncio.to_thread(_read, request, raw, path, key))
        row = await base.queue(request, message)
    except Exception as error:
        # An error is the result of this email only, because others of the batch may be queued already.
        described = http.describe_error(request.http, error)
        return _describe_error(described), 422 if described.status == 409 else described.status
    if row.status == "skipped" and not (message.body.cc or message.body.bcc or message.body.other_to):
        text = "You tried to send to a recipient that has been marked as inactive."
        return {"ErrorCode": _INACTIVE, "Message": f"{text} Inactive recipients: {row.recipient}"}, 422
    sent: Mapping[str, Any] = {
        "To": str(raw["To"]), "SubmittedAt": clock.iso(row.created_at), "MessageID": base.write_id(row.id),
        "ErrorCode": 0, "Message": "OK",
    }  # fmt: skip
    return dict(sent), 200


def _describe_error(error: DescribedError) -> dict[str, Any]:
    codes = {401: _UNAUTHORIZED, 429: _RATE_LIMITED}
    code = _FAILED if error.status >= 500 else codes.get(error.status, _INVALID)
    return {"ErrorCode": code, "Message": base.describe_error(error)}


def _write_error(error: DescribedError) -> HTTPResponse:
    return http.json_response(_describe_error(error), error.status)


def _read_token(request: Request) -> str:
    return str(request.headers.get("x-postmark-server-token", ""))


DOOR = Door(
    "postmark",
    (
        DoorRoute("POST", f"{PATH}/email", send_email, "messages:send", "messages", max_bytes=base.MAX_BODY_BYTES),
        DoorRoute(
            "POST", f"{PATH}/email/batch", send_batch, "messages:send", "messages", max_bytes=base.MAX_BODY_BYTES
        ),
    ),
    _read_token,
    _write_error,
    lambda path: path == PATH or path.startswith(f"{PATH}/"),
)
