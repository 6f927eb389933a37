"""The door for programs that speak the API of Mailgun (documentation.mailgun.com), as far as Ghost uses it.

Ghost builds its URLs from the origin of `bulkEmail.mailgun.baseUrl`, so these paths are at the root. A request with
`recipient-variables` is an email to many recipients (`bulk_send`), any other a single message.
"""

import asyncio
import base64
import hashlib
import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple

import msgspec
from sanic import HTTPResponse, Request
from sanic.request import File

from appliance.accounts import request_limits
from appliance.api import http, posted_forms
from appliance.api.doors import door as base
from appliance.api.doors import mailgun_resources as resources
from appliance.api.doors.door import Door, DoorMessage, DoorRoute
from appliance.api.endpoints import ApiRequest
from appliance.api.http import ApiError, DescribedError
from appliance.core import clock, validation
from appliance.core.errors import Faults, Invalid
from appliance.sending.messages import attachments, bulk_send, transactional
from appliance.sending.messages.bulk_send import BulkRecipient
from appliance.sending.messages.foreign_content import ForeignContent
from appliance.sending.messages.message_request import MAX_HEADER_CHARACTERS, MAX_RECIPIENTS, MessageRequest
from appliance.settings import config
from appliance.storage.transactions import commit, fetch, render, render_send

_MAX_PARTS = bulk_send.MAX_RECIPIENTS + 200
_MAX_BYTES = base.MAX_BODY_BYTES + bulk_send.MAX_VALUES_BYTES
_PLACEHOLDER = re.compile(
    r"%recipient\.([^%\s]{1,100})%|%recipient(?:_email)?%|%(?:tag_|mailing_list_)?unsubscribe_url%"
)
_TAGS = {
    "%recipient%": "{{ email }}", "%recipient_email%": "{{ email }}",
    **dict.fromkeys(
        ("%unsubscribe_url%", "%tag_unsubscribe_url%", "%mailing_list_unsubscribe_url%"), "{{ unsubscribe_url }}"
    ),
}  # fmt: skip
# Addresses at which Mailgun takes opt-outs; the program that has the audience names its own link beside them.
_UNSUBSCRIBE_ADDRESS = re.compile(r"<(?:mailto:)?%(?:tag_)?unsubscribe_email%>")
# Our name of a field by that of Mailgun.
_FIELDS = {"from": "from", "subject": "subject", "html": "html", "text": "text"}
_NAMES = {
    "other_to": "to",
    "send_at": "o:deliverytime",
    "reply_to": "h:Reply-To",
    "attachments": "attachment",
    "body": "html",
    "headers.": "h:",
    "tags": "v:",
}
# Fields that are ignored, because they change nothing that the recipient gets (`ui/guides/other-apis.md`).
_IGNORED = frozenset((
    "h:sender", "h:message-id", "o:dkim", "o:secondary-dkim", "o:secondary-dkim-public", "o:skip-verification",
    "o:require-tls", "o:tracking-clicks", "o:sending-ip", "o:sending-ip-pool", "o:tracking-pixel-location-top",
    "o:archive-to", "o:suppress-headers",
))  # fmt: skip
_YES, _NO = ("yes", "true", "1", "htmlonly"), ("no", "false", "0")
MAX_TAGS, MAX_TAG_CHARACTERS = 10, 128


class _Form(NamedTuple):
    """The posted form of a message: the values of each field, and its files, inline ones with a content id."""

    fields: dict[str, list[str]]
    files: list[dict[str, Any]]

    def last(self, name: str) -> str | None:
        """Return the last value of a field, None if it has none."""
        values = [value for value in self.fields.get(name, ()) if value]
        return values[-1] if values else None


class _Posted(NamedTuple):
    """A message as it was posted, converted as far as its fields are readable."""

    raw: dict[str, Any]
    recipients: list[BulkRecipient] | None  # None for a single message
    faults: Faults
    is_test: bool
    key: str | None


async def create_message(request: ApiRequest, domain: str) -> HTTPResponse:
    """Send a message: `POST /v3/{domain}/messages`."""
    form = await asyncio.to_thread(_read_form, request.http)
    request.http.body = b""
    is_test = _read_switch(form.last("o:testmode") or "no") is True
    name = await fetch(resources.require_domain, request, domain, is_test)
    posted = await asyncio.to_thread(_read_message, request, form, name)
    if posted.recipients is None:
        path = f"/v3/{name}/messages"
        content = ForeignContent(_PLACEHOLDER, (), _TAGS)
        message = DoorMessage(posted.raw, posted.faults, _NAMES, path, posted.key, content)
        row = await base.queue(request, await base.read_message(request, message), posted.is_test)
        return _queued(f"m{row.id}@{name}")
    return _queued(f"b{await _send_bulk(request, posted, name)}@{name}")


def _queued(message_id: str) -> HTTPResponse:
    return http.json_response({"id": f"<{message_id}>", "message": "Queued. Thank you."})


async def _send_bulk(request: ApiRequest, posted: _Posted, domain: str) -> int:
    """Queue an email to many recipients and return the id of its content; raises Invalid with all errors."""
    assert posted.recipients is not None
    base.charge(request, len(posted.recipients))
    is_test = request.credential.is_test or posted.is_test
    can_read_contacts = request.credential.can_read_contacts
    faults = Faults()
    faults.merge(posted.faults.fields)
    read = await asyncio.to_thread(validation.read_partial, MessageRequest, posted.raw)
    checked = await asyncio.to_thread(bulk_send.check_recipients, posted.recipients, faults)
    faults.merge(base.rename_fields(read.faults.fields, _NAMES))
    message: MessageRequest = read.value
    if faults.fields:
        await _add_content_faults(request, message, faults)
        raise Invalid(base.drop_consequences(base.rename_fields(faults.fields, _NAMES), _NAMES))
    prepared = await render_send(transactional.prepare, request.account_id, message)
    files = await asyncio.to_thread(attachments.store, message.attachments) if message.attachments else []
    payload = _describe_payload(posted, files)

    def write() -> tuple[int, bool]:
        def run() -> int:
            return bulk_send.queue(request.account_id, message, checked, is_test, prepared, files, can_read_contacts)

        once = request_limits.run_once(request.account_id, f"/v3/{domain}/messages", posted.key, payload, run, is_test)
        return once.resource_id, once.is_replay

    is_stored = False
    try:
        bulk_id, is_replay = await commit(write)
        is_stored = not is_replay
    except Invalid as error:
        raise Invalid(base.rename_fields(error.fields, _NAMES), error.reason) from None
    finally:
        attachments.release(files)
        if files and not is_stored:
            await commit(attachments.delete_unreferenced, [file.sha256 for file in files])
    return bulk_id


async def _add_content_faults(request: ApiRequest, message: MessageRequest, faults: Faults) -> None:
    """Add the errors that the content of a message would have; its recipients were checked."""
    try:
        await render(transactional.validate, request.account_id, message)
    except Invalid as error:
        fields = {path: texts for path, texts in error.fields.items() if path not in {"to", *faults.fields}}
        faults.merge(base.rename_fields(fields, _NAMES))


def _describe_payload(posted: _Posted, files: list[Any]) -> Any:
    raw = {name: value for name, value in posted.raw.items() if name != "attachments"}
    return [raw, posted.recipients, [file.sha256 for file in files]]


# Reading the form.


def _read_form(request: Request) -> _Form:
    """Return the fields and files of a form. Raises ApiError 413 or 415, and the errors of `parse_form`."""
    kind = (request.headers.get("content-type") or "").partition(";")[0].strip().lower()
    if kind not in ("multipart/form-data", "application/x-www-form-urlencoded"):
        message = "Send the message as multipart/form-data or application/x-www-form-urlencoded."
        raise ApiError(415, "unsupported_media_type", message)
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise ApiError(415, "unsupported_media_type", "Send the body without a Content-Encoding.")
    form = posted_forms.parse_form(request.headers.get("content-type", ""), request.body, _MAX_PARTS)
    if not form.fields and not form.files:
        raise ApiError(400, "bad_request", "The body is not a complete form in UTF-8.")
    files = [_describe_file(name, file) for name in ("attachment", "inline") for file in form.files.get(name, ())]
    unknown = {name: ["is a file"] for name in form.files if name not in ("attachment", "inline")}
    size = sum(len(file["content"]) for file in files)
    if len(request.body) - size > _MAX_BYTES - base.MAX_BODY_BYTES + config.current().limits.body_bytes:
        raise ApiError(413, "payload_too_large")
    return _Form(form.fields | unknown, files)


def _describe_file(field: str, file: File) -> dict[str, Any]:
    content = base64.b64encode(file.body).decode()
    name = file.name or ""
    described = {"filename": name, "content": content}
    if "/" in file.type and not file.type.startswith(("multipart/", "message/")):
        described["content_type"] = file.type
    return described | ({"content_id": name.rpartition("/")[2]} if field == "inline" else {})


def _read_switch(text: str) -> bool | None:
    return True if text.lower() in _YES else False if text.lower() in _NO else None


def _read_message(request: ApiRequest, form: _Form, domain: str) -> _Posted:
    faults = Faults()
    raw: dict[str, Any] = {}
    tags: dict[str, Any] = {"domain": domain, "tags": form.fields.get("o:tag", []), "variables": {}}
    headers: dict[str, str] = {}
    switches: dict[str, bool] = {}
    for name, values in form.fields.items():
        value, lowered = next((text for text in reversed(values) if text), ""), name.lower()
        if not value:
            continue
        if name in _FIELDS:
            raw[_FIELDS[name]] = value
        elif lowered in _IGNORED:
            request.ignored_keys.append(name)
        elif name.startswith("v:"):
            tags["variables"][name[2:]] = value
        elif lowered == "h:reply-to":
            raw["reply_to"] = base.read_one_address(value, name, faults)
        elif name.startswith("h:"):
            headers[name[2:]] = value
        elif name in ("o:testmode", "o:tracking", "o:tracking-opens"):
            switches[name] = _read_switch(value) is True
            if _read_switch(value) is None:
                faults.add(name, "must be yes or no")
        elif name == "o:deliverytime":
            raw["send_at"] = _read_time(value, name, faults)
        elif name not in ("to", "cc", "bcc", "o:tag", "recipient-variables"):
            faults.add(name, "is not supported")
    for header in (name for name, text in headers.items() if any(tag in text for tag in _TAGS)):
        faults.add(f"h:{header}", "may have placeholders of recipient-variables only")
    _check_tags(tags, faults)
    if form.files:
        raw["attachments"] = form.files
    raw["tags"] = tags
    raw["tracks_opens"] = switches.get("o:tracking-opens", switches.get("o:tracking", False))
    if len(headers) > base.MAX_HEADERS:
        faults.add("h:", f"is too long (maximum is {base.MAX_HEADERS} headers)")
        headers = {}
    for header in [name for name, text in headers.items() if len(text) > MAX_HEADER_CHARACTERS]:
        faults.add(f"h:{header[:100]}", f"is too long (maximum is {MAX_HEADER_CHARACTERS} characters)")
        del headers[header]
    to = _read_recipients(form, "to", faults, bulk_send.MAX_RECIPIENTS)
    if not to and "to" not in faults.fields:
        faults.add("to", "can't be blank")
    key = faults.collect(http.get_idempotency_key, request.http)
    if form.last("recipient-variables") is None:
        raw |= {"headers": _clean_headers(headers)} if headers else {}
        raw |= {name: copies for name in ("cc", "bcc") if (copies := _read_recipients(form, name, faults))}
        base.split_recipients(raw, to or None, faults, "to")
        return _Posted(raw, None, faults, switches.get("o:testmode", False), key)
    for name in ("cc", "bcc"):
        if form.last(name):
            faults.add(name, "is not supported with recipient-variables, because each recipient gets a message alone")
    recipients = _read_bulk(form, raw, to, _clean_headers(headers), faults)
    if key is None and "email-id" in tags["variables"]:
        # A program that sends an id of its email repeats the same form only if it did not get the response.
        key = f"email-id:{_hash_form(form)}"
    return _Posted(raw, recipients, faults, switches.get("o:testmode", False), key)


def _check_tags(tags: dict[str, Any], faults: Faults) -> None:
    names = tags["tags"]
    if len(names) > MAX_TAGS or any(not name or len(name) > MAX_TAG_CHARACTERS for name in names):
        faults.add("o:tag", f"must be at most {MAX_TAGS} tags of 1 to {MAX_TAG_CHARACTERS} characters")


def _read_recipients(form: _Form, name: str, faults: Faults, limit: int = MAX_RECIPIENTS) -> list[str]:
    """Return the addresses of a field, which may be repeated, and have names and several addresses in one text."""
    texts = [text for text in form.fields.get(name, ()) if text.strip()]
    return base.read_address_list(texts, name, faults, limit) or []


def _read_time(value: str, name: str, faults: Faults) -> str | None:
    try:
        moment = parsedate_to_datetime(value)
        return None if moment.timestamp() * 1000 <= clock.now_ms() else clock.iso(int(moment.timestamp() * 1000))
    except (ValueError, OverflowError):
        faults.add(name, "must be a date as in RFC 2822, such as Fri, 14 Oct 2011 23:10:10 -0000")
        return None


def _clean_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return custom headers without the unsubscribe addresses of Mailgun, which nobody would read."""
    cleaned = dict(headers)
    for name, value in headers.items():
        if name.lower() == "list-unsubscribe":
            parts = [part for part in value.split(",") if not _UNSUBSCRIBE_ADDRESS.fullmatch(part.strip())]
            cleaned[name] = ",".join(parts).strip()
    return {name: value for name, value in cleaned.items() if value}


def _read_bulk(
    form: _Form, raw: dict[str, Any], to: list[str], headers: dict[str, str], faults: Faults
) -> list[BulkRecipient]:
    """Return the recipients with their values, and make the texts of the message templates."""
    variables = _read_variables(form.last("recipient-variables") or "", faults)
    names = {name for values in variables.values() for name in values}
    content = ForeignContent(_PLACEHOLDER, names, _TAGS)
    base.convert_texts(raw, content, faults, _NAMES)
    in_headers = {match[1] for text in headers.values() for match in _PLACEHOLDER.finditer(text) if match[1]}
    needed = content.used_names | (in_headers & names)
    recipients = []
    size = 0
    for index, address in enumerate(to):
        values = variables.get(address.lower(), {})
        missing = sorted(needed - set(values))
        if missing:
            faults.add(f"to[{index}]", f"has no value in recipient-variables for {', '.join(missing[:5])}")
        recipient = BulkRecipient(address, content.get_data(values), _fill(content, headers, values, faults))
        size += sum(len(text) for text in (*recipient.data.values(), *recipient.headers.values()))
        if size > bulk_send.MAX_VALUES_BYTES:
            faults.add("to", f"is too long (maximum is {bulk_send.MAX_VALUES_BYTES} bytes)")
            return []
        recipients.append(recipient)
    if recipients:
        # The intake checks the content with the values of the first recipient.
        raw |= {"to": to[0], "data": recipients[0].data}
    return recipients


def _fill(
    content: ForeignContent, headers: Mapping[str, str], values: Mapping[str, str], faults: Faults
) -> dict[str, str]:
    """Return the headers of one recipient; one that would be too long is left out, with an error."""
    filled: dict[str, str] = {}
    for name, text in headers.items():
        try:
            filled[name] = content.fill(text, values, MAX_HEADER_CHARACTERS)
        except ValueError as error:
            if f"h:{name}" not in faults.fields:
                faults.add(f"h:{name}", str(error))
    return filled


def _read_variables(text: str, faults: Faults) -> dict[str, dict[str, str]]:
    """Return the values of each recipient by address in lower case, as texts."""
    try:
        decoded = msgspec.json.decode(text.encode())
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        decoded = None
    if not isinstance(decoded, dict):
        faults.add("recipient-variables", "must be a JSON object with an object of values for each address")
        return {}
    if len(decoded) > bulk_send.MAX_RECIPIENTS:
        if "to" not in faults.fields:
            faults.add("recipient-variables", f"is too long (maximum is {bulk_send.MAX_RECIPIENTS} recipients)")
        return {}
    variables: dict[str, dict[str, str]] = {}
    for address, values in decoded.items():
        if not isinstance(values, dict) or any(isinstance(value, dict | list) for value in values.values()):
            faults.add("recipient-variables", f"must have an object of texts or numbers for {address[:254]}")
            continue
        texts = {name: _to_text(value) for name, value in values.items()}
        if sum(map(len, texts)) + sum(map(len, texts.values())) > bulk_send.MAX_RECIPIENT_BYTES:
            limit = bulk_send.MAX_RECIPIENT_BYTES
            faults.add("recipient-variables", f"has too long values for {address[:254]} (maximum is {limit} bytes)")
            texts = dict.fromkeys(texts, "")
        variables[address.lower()] = texts
    return variables


def _to_text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _hash_form(form: _Form) -> str:
    return hashlib.sha256(msgspec.json.encode((sorted(form.fields.items()), form.files))).hexdigest()


def _read_token(request: Request) -> str:
    """Return the API key of HTTP Basic authentication with the user `api` (RFC 7617), or "" without a readable one."""
    header = request.headers.getall("authorization", [])
    scheme, _, encoded = header[0].partition(" ") if len(header) == 1 else ("", "", "")
    if scheme.lower() != "basic":
        return ""
    try:
        user, _, password = base64.b64decode(encoded.strip(), validate=True).decode().partition(":")
    except ValueError:
        return ""
    return password if user == "api" else ""


def _write_error(error: DescribedError) -> HTTPResponse:
    status = 400 if error.status == 422 else error.status
    if status == 401:
        # Without a challenge for Basic, no browser asks for the key and sends it with forms of other sites (T16).
        return http.json_response({"message": "Forbidden"}, 401)
    body: dict[str, Any] = {"message": base.describe_error(error)}
    if errors := error.extra.get("validation_errors"):
        body["errors"] = errors
    return http.json_response(body, status)


_PATH = re.compile(r"/v3/[^/]+/(?:messages|events|bounces|complaints|unsubscribes)(?:/.*)?", re.DOTALL)


def _owns(path: str) -> bool:
    return _PATH.fullmatch(path) is not None


DOOR = Door(
    "mailgun",
    (
        DoorRoute(
            "POST", "/v3/<domain:str>/messages", create_message, "messages:send", "messages", max_bytes=_MAX_BYTES
        ),
        DoorRoute("GET", "/v3/<domain:str>/events", resources.list_events, "messages:read"),
        DoorRoute("GET", "/v3/<domain:str>/events/<page:str>", resources.list_events, "messages:read"),
        *(
            DoorRoute(method, f"/v3/<domain:str>/{kind}/<address:str>", build(kind), scope)
            for kind in ("bounces", "complaints", "unsubscribes")
            for method, build, scope in (
                ("GET", resources.build_getter, "contacts:read"),
                ("DELETE", resources.build_deleter, "contacts:write"),
            )
        ),
    ),
    _read_token,
    _write_error,
    _owns,
)
