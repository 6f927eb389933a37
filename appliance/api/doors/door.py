"""Doors: endpoints in the form of another service's API, which send through the one intake of messages.

A door reads the fields of its service and writes the service's responses and errors. Credentials, scopes, rate limits,
idempotency keys and the rules for messages are those of the API. A field that is not supported is an error, unless
leaving it out changes nothing that the recipient gets: then the response header `X-Ignored-Fields` names it
(docs/decisions.md#7).
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from email.utils import getaddresses
from typing import Any, NamedTuple
from uuid import UUID

from msgspec import structs
from sanic import HTTPResponse, Request

from appliance.accounts import request_limits
from appliance.accounts.access import Credential
from appliance.accounts.request_limits import RequestClass
from appliance.api import auth, http, message_intake, rate_limits
from appliance.api.endpoints import ApiRequest
from appliance.api.http import ApiError, DescribedError
from appliance.api.message_intake import Sending
from appliance.core import validation
from appliance.core.errors import Faults, Invalid
from appliance.sending.messages import attachments, message_request, transactional
from appliance.sending.messages.attachments import AttachmentWrite, StoredFile
from appliance.sending.messages.foreign_content import ForeignContent
from appliance.sending.messages.message_request import MessageRequest
from appliance.storage.models import Message
from appliance.storage.transactions import commit, fetch

# A body may have all files of a message in base64, and this much beside them.
MAX_BODY_BYTES = message_intake.LARGE_BODY.max_bytes
# The messages of a batch that are queued at a time; they share a transaction, for which other accounts wait.
BATCH_WRITES = 25
# The limits of an address with its name, and of the texts of all messages that are queued as a whole, in characters.
MAX_ADDRESS_CHARACTERS, MAX_COPIED_CHARACTERS = 320, 25_000_000
# The limits of entries in an object of texts, of the characters of all its names and values, and of custom headers.
MAX_TEXTS, MAX_TEXTS_CHARACTERS, MAX_HEADERS = 100, 32_768, 20

Handler = Callable[..., Awaitable[HTTPResponse]]


class DoorRoute(NamedTuple):
    """One endpoint of a door: its handler gets the request and the parameters of the path by name.

    `path` is a path of Sanic. A route with `max_bytes` reads a body of up to so many bytes, any other none.
    """

    method: str
    path: str
    handler: Handler
    scope: str
    rate: RequestClass = "requests"
    max_bytes: int = 0


class Door(NamedTuple):
    """A door: its name, its routes, where it finds the API key, and how it writes errors.

    `owns` returns whether the errors of a path without a route are those of the door.
    """

    name: str
    routes: tuple[DoorRoute, ...]
    read_token: Callable[[Request], str]
    write_error: Callable[[DescribedError], HTTPResponse]
    owns: Callable[[str], bool]


async def admit(door: Door, route: DoorRoute, request: Request) -> Credential:
    """Authenticate a request, check its rate limit and its scope, and return its credential.

    Raises ApiError 401 or 403, or RateLimitExceeded.
    """
    credential = await auth.authenticate_token(door.read_token(request))
    rate_limits.take(request, credential, route.rate)
    auth.require_scope(credential, route.scope)
    return credential


def build_handler(door: Door, route: DoorRoute) -> Callable[..., Awaitable[HTTPResponse]]:
    """Return the function that serves a route of a door."""

    async def handle(request: Request, **parameters: str) -> HTTPResponse:
        credential = await admit(door, route, request)
        api_request = ApiRequest(request, credential, 0, None, None, None, ignored_keys=[])
        if not route.max_bytes:
            return _add_ignored(await route.handler(api_request, **parameters), api_request)
        async with http.receive_large_body(request, route.max_bytes):
            return _add_ignored(await route.handler(api_request, **parameters), api_request)

    return handle


def _add_ignored(response: HTTPResponse, request: ApiRequest) -> HTTPResponse:
    if request.ignored_keys:
        response.headers["X-Ignored-Fields"] = http.join_names(request.ignored_keys)
    return response


class FileKeys(NamedTuple):
    """The service's names of the attached files of a message, and of the content of one in base64."""

    files: str
    content: str


async def _read_json(request: ApiRequest, keys: FileKeys) -> Any:
    """Return the JSON of a body; raises ApiError as `http.parse_json`, and 413 if it is too large without its files."""
    size = len(request.http.body)

    def parse() -> tuple[Any, int]:
        raw = http.parse_json(request.http, request.http.body)
        messages = raw if isinstance(raw, list) else [raw]
        return raw, sum(_count_content(message, keys) for message in messages)

    raw, content_size = await asyncio.to_thread(parse)
    request.http.body = b""  # the parsed values are enough
    http.require_small_rest(size - content_size)
    return raw


def _count_content(raw: Any, keys: FileKeys) -> int:
    """Return the number of characters of the attached files of a message in base64."""
    files = raw.get(keys.files) if isinstance(raw, dict) else None
    contents = [file.get(keys.content) for file in files if isinstance(file, dict)] if isinstance(files, list) else []
    return sum(len(content) for content in contents if isinstance(content, str))


async def read_json_object(request: ApiRequest, keys: FileKeys) -> dict[str, Any]:
    """Return the JSON object of a body; raises ApiError as `_read_json`, and for any other value."""
    raw = await _read_json(request, keys)
    if not isinstance(raw, dict):
        raise ApiError(400, "invalid_json", "The body must be a JSON object.")
    return raw


async def read_json_list(request: ApiRequest, keys: FileKeys, limit: int) -> list[Any]:
    """Return the JSON list of a body, of at most `limit` messages; each counts in the rate limit.

    Raises ApiError as `_read_json`, and for any other value, and Invalid.
    """
    raw = await _read_json(request, keys)
    if not isinstance(raw, list):
        raise ApiError(400, "invalid_json", "The body must be a JSON list.")
    if len(raw) > limit:
        raise Invalid({"base": [f"A batch may have {limit} messages."]})
    charge(request, len(raw))
    return raw


# What all doors that take JSON have in common: fields are read by tables, so that every field is accounted for.


class Field(NamedTuple):
    """How a field of another service's message becomes one of ours.

    `name` is our field. `read` converts the value, or adds an error at the path of the field and returns None.
    """

    name: str
    read: Callable[[Any, str, Faults], Any]


class Ignored(NamedTuple):
    """A field that is ignored, because it changes nothing that the recipient gets; the guide states the `reason`."""

    reason: str


class Refused(NamedTuple):
    """A field that is an error if it has a value; `reason` completes the sentence "FIELD …"."""

    reason: str


Fields = Mapping[str, Field | Ignored | Refused]


def read_fields(
    raw: Mapping[str, Any], fields: Fields, faults: Faults, path: str = ""
) -> tuple[dict[str, Any], list[str]]:
    """Return our fields of a message, and the names of those that were ignored.

    `path` is put before the names of fields in errors. A field that is neither in `fields` nor empty is an error.
    """
    ours: dict[str, Any] = {}
    ignored: list[str] = []
    for key, value in raw.items():
        rule = fields.get(key)
        if value is None or value == "":
            continue
        if isinstance(rule, Field):
            converted = rule.read(value, f"{path}{key}", faults)
            if converted is not None:
                ours[rule.name] = converted
        elif isinstance(rule, Ignored):
            ignored.append(f"{path}{key}")
        elif rule is None or value not in ([], {}, False):
            faults.add(f"{path}{key}", rule.reason if rule is not None else "is not a known field")
    return ours, ignored


def keep(value: Any, path: str, faults: Faults) -> Any:
    """Return a value unchanged; `message_intake` reports an invalid value at our field."""
    return value


def read_address_list(
    value: Any, path: str, faults: Faults, limit: int = message_request.MAX_RECIPIENTS
) -> list[str] | None:
    """Return the addresses of a text such as `Ana <ana@example.com>, b@example.com`, or of a list of such texts.

    Names are left out: the headers of messages show addresses only. Returns None after adding an error at `path` for
    another type, for a text that cannot be parsed, and if the texts are too many or too long for `limit` addresses.
    """
    texts = value if isinstance(value, list) else [value]
    if not all(isinstance(text, str) for text in texts):
        faults.add(path, "is invalid")
        return None
    if len(texts) > limit or sum(map(len, texts)) > limit * MAX_ADDRESS_CHARACTERS:
        faults.add(path, f"is too long (maximum is {limit} recipients)")
        return None
    recipients: list[str] = []
    for text in texts:
        if not any(char in text for char in '<,("'):
            recipients.append(text.strip())
            continue
        try:
            recipients += [address for _, address in getaddresses([text]) if address] or [text]
        except (ValueError, IndexError, RecursionError):
            # Comments in parentheses may be nested, and are parsed by recursion.
            faults.add(path, "is invalid")
            return None
    return recipients


def read_one_address(value: Any, path: str, faults: Faults) -> str | None:
    """Return the one address of a text, or None after adding an error, such as for several addresses."""
    addresses = read_address_list(value, path, faults)
    if addresses is None:
        return None
    if len(addresses) != 1:
        faults.add(path, "must have one address")
        return None
    return addresses[0]


def read_texts(value: Any, path: str, faults: Faults) -> dict[str, str] | None:
    """Return an object of texts or numbers with all values as texts.

    Returns None after adding an error, such as for more than `MAX_TEXTS` entries.
    """
    return _read_texts(value, path, faults, MAX_TEXTS)


def read_headers(value: Any, path: str, faults: Faults) -> dict[str, str] | None:
    """Return an object of custom headers; None after adding an error, such as for over `MAX_HEADERS` entries."""
    return _read_texts(value, path, faults, MAX_HEADERS)


def _read_texts(value: Any, path: str, faults: Faults, limit: int) -> dict[str, str] | None:
    if not isinstance(value, dict):
        faults.add(path, "must be an object of texts")
        return None
    if not _fits(value, path, faults, limit):
        return None
    if not all(isinstance(item, str | int | float | bool) for item in value.values()):
        faults.add(path, "must be an object of texts")
        return None
    texts = {key: item if isinstance(item, str) else str(item).lower() for key, item in value.items()}
    if sum(map(len, texts)) + sum(map(len, texts.values())) > MAX_TEXTS_CHARACTERS:
        faults.add(path, f"is too long (maximum is {MAX_TEXTS_CHARACTERS} characters)")
        return None
    return texts


def _fits(value: Any, path: str, faults: Faults, limit: int) -> bool:
    """Return whether a list or object has at most `limit` entries; add an error if not."""
    if len(value) > limit:
        faults.add(path, f"is too long (maximum is {limit} entries)")
    return len(value) <= limit


def read_pairs(name_key: str, value_key: str, limit: int = MAX_TEXTS) -> Callable[[Any, str, Faults], Any]:
    """Return a reader of a list of at most `limit` objects with a name and a text, as an object: {name: text}."""

    def read(value: Any, path: str, faults: Faults) -> dict[str, str] | None:
        if not isinstance(value, list):
            faults.add(path, f"must be a list of {name_key} and {value_key}")
            return None
        if not _fits(value, path, faults, limit):
            return None
        pairs: dict[str, str] = {}
        for index, pair in enumerate(value):
            name, text = (pair.get(name_key), pair.get(value_key)) if isinstance(pair, dict) else (None, None)
            if isinstance(name, str) and isinstance(text, str):
                pairs[name] = text
            else:
                faults.add(f"{path}[{index}]", f"must have a {name_key} and a {value_key}")
        return pairs

    return read


def read_files(names: Mapping[str, str], optional: Collection[str] = ()) -> Callable[[Any, str, Faults], Any]:
    """Return a reader of a list of attached files; `names` has our key for each of the service's.

    Keys in `optional` are ignored, any other unknown key is an error.
    """

    def read(value: Any, path: str, faults: Faults) -> Any:
        if not isinstance(value, list):
            faults.add(path, "must be a list")
            return None
        if not _fits(value, path, faults, attachments.MAX_FILES):
            return None
        files = []
        for index, raw in enumerate(value):
            if not isinstance(raw, dict):
                faults.add(f"{path}[{index}]", "must be an object")
                continue
            file = {}
            for key, item in raw.items():
                if key in names:
                    file[names[key]] = item
                elif key not in optional and item not in (None, ""):
                    faults.add(f"{path}[{index}].{key}", "is not a known field")
            files.append(file)
        return files

    return read


# The fields of a message whose texts are templates
_TEXTS = ("subject", "html", "text", "from")


class DoorMessage(NamedTuple):
    """A message as a door read it: the fields of a `MessageRequest` as JSON values, and the errors of the rest.

    `names` has the service's name of each of our fields, for errors. `key` is the idempotency key, which is stored for
    `path`. `content` converts texts with placeholders, which `values` replace; it is None for texts without
    placeholders.
    """

    raw: dict[str, Any]
    faults: Faults
    names: Mapping[str, str]
    path: str
    key: str | None = None
    content: ForeignContent | None = None
    values: Mapping[str, str] = {}


def convert_texts(raw: dict[str, Any], content: ForeignContent, faults: Faults, names: Mapping[str, str]) -> None:
    """Make the texts of a message templates; those that would be too long are left out, with an error."""
    for name in _TEXTS:
        if isinstance(raw.get(name), str):
            try:
                raw[name] = content.convert(raw[name])
            except ValueError as error:
                del raw[name]
                faults.add(names.get(name, name), str(error))


def _make_literal(message: DoorMessage) -> None:
    """Make the texts of a message templates in which only its own placeholders are merge tags."""
    raw, content = message.raw, message.content or ForeignContent()
    convert_texts(raw, content, message.faults, message.names)
    if data := content.get_data(message.values):
        raw["data"] = data


def set_tags(raw: dict[str, Any]) -> None:
    """Set the tags of a message from its `tag_names` and `variables`, the same for all doors."""
    names, variables = raw.pop("tag_names", None), raw.pop("variables", None)
    if names or variables:
        raw["tags"] = {"tags": names or [], "variables": variables or {}}


def split_recipients(raw: dict[str, Any], to: list[str] | None, faults: Faults, field: str) -> None:
    """Set the first recipient in `to` as `to` of a message, and the others as `other_to`.

    Without recipients, an error is added at `field`, unless it has one because the recipients could not be read.
    """
    if to:
        raw["to"], raw["other_to"] = to[0], to[1:]
    elif to is not None or field not in faults.fields:
        faults.add(field, "can't be blank")


class ReadMessage(NamedTuple):
    """A message of a door without errors, ready to be queued."""

    door: DoorMessage
    body: MessageRequest


class SharedFiles(NamedTuple):
    """The attached files of several messages of one request, which are decoded and stored once, with their errors."""

    files: list[AttachmentWrite]
    faults: Faults


def _read_shared_files(messages: Sequence[DoorMessage]) -> SharedFiles | None:
    """Return the files of messages that all have the same list of files, None if each has its own or none has any."""
    files = messages[0].raw.get("attachments") if messages else None
    if not files or any(message.raw.get("attachments") is not files for message in messages):
        return None
    read = validation.read_partial(MessageRequest, {"attachments": files})
    faults = Faults()
    faults.merge({path: texts for path, texts in read.faults.fields.items() if path.startswith("attachments")})
    return SharedFiles(message_request.list_attachments(read.value), faults)


def _convert(message: DoorMessage, shared: SharedFiles | None) -> validation.PartialRead:
    _make_literal(message)
    if shared is None:
        return validation.read_partial(MessageRequest, message.raw)
    raw = {name: value for name, value in message.raw.items() if name != "attachments"}
    read = validation.read_partial(MessageRequest, raw)
    read.faults.merge(shared.faults.fields)
    return read._replace(value=structs.replace(read.value, attachments=shared.files))


async def read_message(
    request: ApiRequest, message: DoorMessage, shared_files: SharedFiles | None = None
) -> ReadMessage:
    """Return a message that was checked; raises Invalid with all errors by the service's names.

    Each recipient counts as a request in the rate limit, as in the API. The state of the account, such as its sender,
    is checked only when the message is queued.
    """
    copies = [message.raw.get(name) for name in ("other_to", "cc", "bcc")]
    charge(request, 1 + sum(len(addresses) for addresses in copies if isinstance(addresses, list)))
    read = await asyncio.to_thread(_convert, message, shared_files)
    faults = Faults()
    faults.merge(message.faults.fields)
    faults.merge(rename_fields(read.faults.fields, message.names))
    single = request._replace(body=read.value, parse_result=read, ignored_keys=[])
    faults.merge(rename_fields(await message_intake.validate_message(single), message.names))
    if faults.fields:
        raise Invalid(drop_consequences(faults.fields, message.names))
    return ReadMessage(message, read.value)


async def queue(
    request: ApiRequest, message: ReadMessage, is_test: bool = False, files: Sequence[StoredFile] | None = None
) -> Message:
    """Queue a message and return the row of its first recipient, even if no recipient may get it.

    The status of the row, and later events, say whether a recipient may get it.

    With `is_test`, it goes to the test inbox, as with a test key. `files` are as in `Sending`. Raises Invalid, Conflict
    and Unavailable.
    """
    if is_test:
        request = request._replace(credential=request.credential._replace(is_test=True))
    door = message.door
    try:
        sent = await message_intake.queue(request, Sending(message.body, door.raw, door.key, door.path, files))
    except Invalid as error:
        raise Invalid(rename_fields(error.fields, door.names), error.reason) from None
    return sent.row


class Batch(NamedTuple):
    """Messages of one request that are queued if all are valid.

    `path` is what an idempotency key of the request belongs to, and `payload` the JSON values of the messages.
    """

    messages: Sequence[DoorMessage]
    path: str
    payload: Sequence[Any]


async def queue_all(
    request: ApiRequest, batch: Batch, describe: Callable[[int], str], is_dry_run: bool = False
) -> list[int]:
    """Queue messages of which either all or none are valid, and return their ids.

    Raises Invalid with the errors of all messages, each after `describe(index)`, or if all texts together exceed
    `MAX_COPIED_CHARACTERS`. Raises Conflict if the idempotency key was used for another batch. With `is_dry_run`
    nothing is queued. Files that all messages have are in memory and stored once.

    After a broken connection or an error 500 or 503, a repeat with the same key queues those that are missing.
    """
    messages = batch.messages
    shared_files = await asyncio.to_thread(_read_shared_files, messages)
    read: list[ReadMessage] = []
    faults = Faults()
    size = 0
    for index, message in enumerate(messages):
        try:
            checked = await read_message(request, message, shared_files)
            size += sum(len(message.raw.get(name) or "") for name in _TEXTS)
            if size > MAX_COPIED_CHARACTERS:
                text = f"The texts of all messages are too long (maximum is {MAX_COPIED_CHARACTERS} characters)."
                raise Invalid({"base": [text]})
            if not request.credential.is_test:
                await fetch(transactional.check_sender, request.account_id, checked.body)
            read.append(checked)
        except Invalid as error:
            fields = rename_fields(error.fields, message.names)
            faults.merge({f"{describe(index)}{path}": texts for path, texts in fields.items()})
    faults.check()
    if is_dry_run:
        return []
    await claim_key(request, batch)
    if shared_files is None:
        return [int((await queue(request, message)).id) for message in read]
    async with message_intake.store_files(shared_files.files) as files:
        return [int((await queue(request, message, files=files)).id) for message in read]


async def claim_key(request: ApiRequest, batch: Batch) -> None:
    """Store the idempotency key of a batch, if it has one; raises Conflict if it was used for another batch."""
    if (key := batch.messages[0].key if batch.messages else None) is None:
        return
    payload = await asyncio.to_thread(attachments.hash_contents, batch.payload)
    args = (request.account_id, batch.path, key, payload, lambda: 1, request.credential.is_test)
    await commit(request_limits.run_once, *args)


def charge(request: ApiRequest, count: int) -> None:
    """Count a batch as `count` requests in the rate limit, of which the first is counted already.

    Each message of a batch counts, and each recipient of a message.
    """
    if count > 1:
        rate_limits.charge(request.http, request.credential, "messages", count - 1)


# The id of a message in services whose ids are UUIDs; the last digits are our id.


def write_id(message_id: int) -> str:
    """Return the id of a message as a UUID."""
    return str(UUID(int=message_id))


def read_id(text: str) -> int:
    """Return the id of a message that `write_id` wrote, 0 for any other text."""
    try:
        number = UUID(text).int
    except ValueError:
        return 0
    return number if number < 10**18 else 0


def drop_consequences(fields: Mapping[str, list[str]], names: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the errors of a message without those that follow from others.

    A field that cannot be read counts as missing, and a message without a readable text as one without content.
    """
    texts = {names.get(name, name) for name in ("html", "text")}
    kept: dict[str, list[str]] = {}
    for path, messages in fields.items():
        others = [message for message in messages if message != "can't be blank"]
        is_consequence = path in texts and not others and any(name in fields for name in texts - {path})
        if not is_consequence:
            kept[path] = others or messages
    return kept


def rename_fields(fields: Mapping[str, list[str]], names: Mapping[str, str]) -> dict[str, list[str]]:
    """Return errors with the service's names of our fields: `cc[1]` becomes `Cc[1]` with {"cc": "Cc"}.

    The value of `headers.` in `names` is the prefix of custom headers.
    """
    renamed: dict[str, list[str]] = {}
    for path, texts in fields.items():
        end = next((index for index, char in enumerate(path) if char in ".["), len(path))
        if path.startswith("headers.") and "headers." in names:
            name = names["headers."] + path.removeprefix("headers.")
        else:
            name = names.get(path[:end], path[:end]) + path[end:]
        renamed.setdefault(name, []).extend(texts)
    return renamed


def describe_faults(fields: Mapping[str, Iterable[str]]) -> str:
    """Return all errors as one text, for services whose errors are one: `to is invalid; subject can't be blank`."""
    parts = [text if path == "base" else f"{path} {text}" for path, texts in fields.items() for text in texts]
    return "; ".join(parts)


def describe_error(error: DescribedError) -> str:
    """Return the text of an error with all faults of fields."""
    faults = error.extra.get("validation_errors")
    return describe_faults(faults) if faults else error.message
