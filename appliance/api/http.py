"""Parsing of API requests and writing of JSON responses, including the error body of docs/decisions.md#3."""

import asyncio
import json as stdlib_json
import logging
import secrets
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple
from urllib.parse import quote

import msgspec
from msgspec import Struct
from sanic import HTTPResponse, Request
from sanic.exceptions import (
    MethodNotAllowed,
    NotFound,
    PayloadTooLarge,
    SanicException,
    ServiceUnavailable,
)
from sanic_routing.exceptions import BaseException as RoutingException

from appliance.accounts import request_limits
from appliance.api.endpoints import ApiRequest, Route
from appliance.core import errors, i18n, uploads, validation
from appliance.core.errors import Invalid
from appliance.exports.streaming import AccessEnded, end_without_access
from appliance.settings import config
from appliance.storage import disk_guard
from appliance.storage.database import Page
from appliance.storage.transactions import scan_chunk

log = logging.getLogger("campanero.api")
_encoder = msgspec.json.Encoder()
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
_UNESCAPED = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) not in "%,")
# The limits of the names in a header. An escaped character takes up to twelve bytes.
_MAX_NAME_CHARACTERS, _MAX_NAMES_BYTES = 300, 4000

_STATUS_BY_ERROR: tuple[tuple[type[Exception], int], ...] = (
    (errors.NotFound, 404),
    (errors.Invalid, 422),
    (errors.NotAllowed, 403),
    (errors.Conflict, 409),
    (errors.RateLimitExceeded, 429),
    (errors.Unavailable, 503),
)
# The guide has a heading for every error code, to which the `hint` of an error links.
_ERROR_GUIDE_PATH = "/docs/guides/errors-and-limits"
_DEFAULT_MESSAGES = {
    "not_found": "Not found.",
    "forbidden": "This credential does not have access.",
    "unauthorized": "A valid API key is required.",
    "method_not_allowed": "This path does not support the method.",
    "payload_too_large": "The request body is too large.",
    "internal_error": "Internal error.",
}


class ApiError(Exception):
    """An error response of the API layer, for example for a missing credential, a wrong content type or invalid JSON.

    `headers` are added to the response, and `extra` are further keys of its body.
    """

    def __init__(self, status: int, code: str, message: str = "", headers: dict[str, str] | None = None,
                 **extra: Any) -> None:  # fmt: skip
        super().__init__(message or code)
        self.status = status
        self.code = code
        self.message = message or _DEFAULT_MESSAGES.get(code, code)
        self.headers = headers or {}
        self.extra = extra


def get_request_id(request: Request) -> str:
    """Return the id of the request, generating it on the first call."""
    if not hasattr(request.ctx, "request_id"):
        request.ctx.request_id = secrets.token_hex(8)
    return str(request.ctx.request_id)


def log_context(request: Request) -> dict[str, str]:
    """Return the fields that identify a request in structured log entries: `request_id`, `method` and `path`."""
    return {"request_id": get_request_id(request), "method": request.method, "path": request.path}


def json_response(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> HTTPResponse:
    """Return a response with the value encoded as JSON.

    A half of a surrogate pair, which a request can contain and its error repeat, becomes a question mark.
    """
    try:
        content = _encoder.encode(value)
    except UnicodeEncodeError:
        content = stdlib_json.dumps(msgspec.to_builtins(value), ensure_ascii=False).encode("utf-8", "replace")
    return HTTPResponse(content, status, headers, content_type="application/json")


async def media_response(
    request: Request,
    account_id: int,
    kind: str,
    value: Any,
    status: int,
    headers: dict[str, str],
    has_access: Callable[[], bool],
) -> HTTPResponse | None:
    """Return a response of the content type `kind`, or stream it and return None if the value is an iterator of bytes.

    An error before the first chunk is raised. A later error is logged, and the connection is aborted, which tells the
    client that the response is incomplete. The same happens once `has_access` returns False, which means that the
    credential was revoked.
    """
    content_type = f"{kind}; charset=utf-8" if kind.startswith("text/") else kind
    if isinstance(value, bytes | str):
        return HTTPResponse(value, status, headers, content_type=content_type)
    chunks = end_without_access(value, has_access)
    chunk = await scan_chunk(account_id, next, chunks, None)
    response = await request.respond(status=status, headers=headers, content_type=content_type)
    try:
        while chunk is not None:
            if chunk:
                await response.send(chunk)
            chunk = await scan_chunk(account_id, next, chunks, None)
    except Exception as error:
        level, exc_info = (logging.INFO, False) if isinstance(error, AccessEnded) else (logging.ERROR, True)
        log.log(
            level,
            "api: response aborted request_id=%s path=%s: %s",
            get_request_id(request),
            request.path,
            error,
            exc_info=exc_info,
            extra=log_context(request),
        )
        if request.transport is not None:
            request.transport.abort()  # type: ignore[attr-defined]  # Sanic annotates the base class
        return None
    await response.eof()
    return None


def join_names(names: Iterable[str]) -> str:
    """Return names as one header value, separated by commas.

    Commas, percent signs and all characters that are not printable ASCII (RFC 9110, section 5.5) are percent-encoded
    as UTF-8. A name is cut to `_MAX_NAME_CHARACTERS`. Names beyond `_MAX_NAMES_BYTES` in total are left out.
    """
    encoded_names, length = [], 0
    for name in dict.fromkeys(names):
        encoded_name = quote(name[:_MAX_NAME_CHARACTERS].encode("utf-8", "surrogatepass"), safe=_UNESCAPED)
        length += len(encoded_name) + 2
        if length > _MAX_NAMES_BYTES:
            break
        encoded_names.append(encoded_name)
    return ", ".join(encoded_names)


def page_headers(page: Page) -> dict[str, str]:
    """Return the headers `X-Total-Count`, `X-Total-Pages`, `X-Page-Number`, `X-Next-Page` and `X-Prev-Page` of a list.

    The last two are left out if there is no such page.
    """
    headers = {
        "X-Total-Count": str(page.total),
        "X-Total-Pages": str(page.pages),
        "X-Page-Number": str(page.page),
    }
    if page.page < page.pages:
        headers["X-Next-Page"] = str(page.page + 1)
    if 1 < page.page <= page.pages + 1:
        headers["X-Prev-Page"] = str(page.page - 1)
    return headers


class DescribedError(NamedTuple):
    """An exception as the client gets it: status, code, message, further keys of the body, and headers."""

    status: int
    code: str
    message: str
    extra: dict[str, Any]
    headers: dict[str, str]


def describe_error(request: Request, error: Exception) -> DescribedError:
    """Return status, message and headers of the response to any exception. An error with status 500 is logged."""
    status, code, message, extra, headers = _describe_error(error)
    if status == 405:
        # Sanic lists the methods in no particular order, so they are sorted here.
        methods = headers["Allow"].split(", ") if "Allow" in headers else [*_find_allowed_methods(request)]
        headers["Allow"] = ", ".join(sorted(methods, key=(*_METHODS, *methods).index))
    if status == 500:
        log.exception(
            "api: request failed request_id=%s path=%s",
            get_request_id(request),
            request.path,
            exc_info=error,
            extra=log_context(request),
        )
    return DescribedError(status, code, message, extra, headers)


def error_response(request: Request, error: Exception) -> HTTPResponse:
    """Return the error response for any exception (docs/decisions.md#3). An error with status 500 is logged."""
    status, code, message, extra, headers = describe_error(request, error)
    hint = f"{config.base_url(config.current())}{_ERROR_GUIDE_PATH}#{code}"
    body = {
        "error": True,
        "code": code,
        "message": message,
        "request_id": get_request_id(request),
        "hint": hint,
        **extra,
    }
    if status == 422 and hasattr(request.ctx, "ignored") and request.ctx.ignored:
        headers["X-Ignored-Fields"] = join_names(request.ctx.ignored)
    return json_response(body, status, headers)


def _find_allowed_methods(request: Request) -> Iterator[str]:
    """Yield the methods that the path of a request supports.

    They are determined here because Sanic reports them only for paths that do not end in an id.
    """
    for method in _METHODS:
        try:
            request.app.router.resolve(path=request.path, method=method)
        except (NotFound, MethodNotAllowed, RoutingException):
            continue
        yield method


def _describe_error(error: Exception) -> tuple[int, str, str, dict[str, Any], dict[str, str]]:
    if isinstance(error, ApiError):
        return error.status, error.code, error.message, error.extra, error.headers
    if isinstance(error, errors.Refused):
        return _describe_refusal(error)
    if isinstance(error, NotFound):
        return 404, "not_found", _DEFAULT_MESSAGES["not_found"], {}, {}
    if isinstance(error, MethodNotAllowed):
        return 405, "method_not_allowed", _DEFAULT_MESSAGES["method_not_allowed"], {}, dict(error.headers or {})
    if isinstance(error, PayloadTooLarge):
        return 413, "payload_too_large", _DEFAULT_MESSAGES["payload_too_large"], {}, {}
    if isinstance(error, ServiceUnavailable):
        return 503, "unavailable", "The service is temporarily unavailable.", {}, {"Retry-After": "5"}
    if isinstance(error, SanicException) and error.status_code in (408, 417):
        return error.status_code, "bad_request", "The request is incomplete.", {}, {}
    if isinstance(error, SanicException) and error.status_code == 431:
        return 431, "bad_request", str(error), {}, {}
    if isinstance(error, SanicException) and 400 <= error.status_code < 500:
        return 400, "bad_request", "The request is malformed.", {}, {}
    storage_error = disk_guard.to_storage_error(error)
    if storage_error is not None:
        return _describe_refusal(storage_error)
    return 500, "internal_error", _DEFAULT_MESSAGES["internal_error"], {}, {}


def _describe_refusal(error: errors.Refused) -> tuple[int, str, str, dict[str, Any], dict[str, str]]:
    status = next(number for kind, number in _STATUS_BY_ERROR if isinstance(error, kind))
    own_message = error.message if error.message != error.code else ""
    if own_message and not isinstance(error, errors.Invalid):  # that of Invalid begins with a field's name
        own_message = i18n.to_sentence(own_message)
    message = own_message or _DEFAULT_MESSAGES.get(error.code, error.code)
    extra = dict(error.extra)
    headers = {}
    if isinstance(error, errors.Invalid):
        extra["validation_errors"] = error.fields
        if error.reason:
            extra["reason"] = error.reason
    if isinstance(error, errors.RateLimitExceeded | errors.Unavailable):
        headers["Retry-After"] = str(error.retry_after)
    return status, error.code, message, extra, headers


# Requests are checked in the order of docs/decisions.md#3: size, type, JSON, id, fields.


class EmptyRequest(Struct):
    """The body or query of an endpoint that takes none, so that every key is unknown."""


# Bodies with files take several times their size in memory while they are handled, so that is done one at a time.
_large_bodies = asyncio.Semaphore(1)
_SPOOL_BYTES = 1_048_576


@asynccontextmanager
async def receive_large_body(request: Request, max_bytes: int) -> AsyncIterator[None]:
    """Receive the body of a request as `request.body`, for the `async with` block that handles it.

    A body of more than `limits.body_bytes` is written to a temporary file while it arrives, so that slow clients need
    no memory. Raises ApiError 413 for more than `max_bytes`, and StorageError if the disk has little space.
    """
    stream: Any = request.stream
    length = request.headers.get("content-length") or "0"
    if length.isdecimal() and int(length) > max_bytes:
        raise ApiError(413, "payload_too_large")
    pieces, size, spooled = bytearray(), 0, None
    try:
        while piece := await stream.read():
            size += len(piece)
            if size > max_bytes:
                raise ApiError(413, "payload_too_large")
            pieces += piece
            if size > config.current().limits.body_bytes and len(pieces) >= _SPOOL_BYTES:
                disk_guard.require_space()
                # The file has no name, so a killed process leaves none behind.
                spooled = spooled or tempfile.TemporaryFile(dir=config.current().data_dir)  # noqa: SIM115 - closed below
                await asyncio.to_thread(spooled.write, pieces)
                pieces = bytearray()
        if spooled is None:
            request.body = bytes(pieces)
            yield
            return
        async with _large_bodies:
            request.body = await asyncio.to_thread(_read_spooled, spooled, bytes(pieces))
            yield
    finally:
        if spooled is not None:
            spooled.close()


def _read_spooled(spooled: IO[bytes], rest: bytes) -> bytes:
    spooled.write(rest)
    spooled.seek(0)
    return spooled.read()


def require_small_rest(size: int) -> None:
    """Raise ApiError 413 if the rest of a body, without its files, has more than `limits.body_bytes`."""
    if size > config.current().limits.body_bytes:
        raise ApiError(413, "payload_too_large")


_decoder = msgspec.json.Decoder()
_MAX_DIGITS = 300


def parse_body(request: Request, route: Route) -> Any:
    """Return the JSON object of a request's body, or None for a GET request or a multipart form.

    Returns `{}` for an empty body that is optional. Raises ApiError for a wrong content type or invalid JSON.
    """
    if route.form_type is not None or route.method == "GET":
        return None
    if not request.body and not route.body_required:
        return {}
    return parse_json_object(request, request.body)


def parse_json_object(request: Request, content: bytes) -> dict[str, Any]:
    """Return the content of a request as a JSON object; raises ApiError as `parse_json`, and for any other value."""
    raw = parse_json(request, content)
    if not isinstance(raw, dict):
        raise ApiError(400, "invalid_json", "The body must be a JSON object.")
    return raw


def parse_json(request: Request, content: bytes) -> Any:
    """Return the content of a request as a JSON value.

    Raises ApiError for a wrong content type, a Content-Encoding, too many values, and JSON that is invalid or nested
    too deeply.
    """
    kind = (request.headers.get("content-type") or "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise ApiError(415, "unsupported_media_type", "Send the body as application/json.")
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise ApiError(415, "unsupported_media_type", "Send the body without a Content-Encoding.")
    if validation.has_too_many_values(content):
        message = f"The request body has too many values (maximum is {validation.MAX_JSON_VALUES})."
        raise ApiError(413, "payload_too_large", message)
    try:
        raw = _decoder.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raw = _parse_with_standard_decoder(content)
    if validation.is_too_deep(raw):
        raise ApiError(400, "invalid_json", "The body is nested too deeply.")
    return raw


def _parse_with_standard_decoder(content: bytes) -> Any:
    """Return the value of JSON that msgspec rejects because of lone surrogates or very large numbers.

    Validation then reports these as errors of their fields. Raises ApiError for any other invalid JSON.
    """

    def reject_constant(constant: str) -> Any:
        raise ValueError(constant)

    def parse_integer(digits: str) -> int | float:
        return int(digits) if len(digits) <= _MAX_DIGITS else float("inf")

    try:
        return stdlib_json.loads(content.decode("utf-8"), parse_constant=reject_constant, parse_int=parse_integer)
    except (ValueError, RecursionError):
        raise ApiError(400, "invalid_json", "The body is not valid JSON.") from None


def parse_query(request: Request, kind: type[Struct] | None) -> validation.PartialRead:
    """Return the parsed query string of a request with its errors; `kind` is the Struct of its parameters, or None.

    An unknown parameter is an error, so that a misspelt filter never returns everything, and so that `dry_run` changes
    nothing at an endpoint that does not support dry runs.
    """
    kind = kind or EmptyRequest
    # Parameters without a value are kept: an empty filter is ignored, but an empty page or limit is an error.
    raw = {name: values[0] for name, values in request.get_args(keep_blank_values=True).items()}
    parsed = validation.read_partial(kind, raw, loose=True)
    for name in parsed.ignored:
        parsed.faults.add(name, "is not a known parameter")
    return parsed


def parse_id(text: str) -> int:
    """Return an id from the path as an integer.

    Raises ApiError 404 if the text is not a decimal number of up to 18 digits.
    """
    if not (text.isascii() and text.isdecimal() and len(text) <= 18):
        raise ApiError(404, "not_found")
    return int(text)


def get_idempotency_key(request: Request, body: Any = None) -> str | None:
    """Return the Idempotency-Key header, or else `idempotency_key` of the body, or None.

    Raises Invalid if the header is not a valid key, or if header and body have different keys.
    """
    key = request.headers.get("idempotency-key")
    if key is not None:
        request_limits.validate_idempotency_key(key)
    body_key = getattr(body, "idempotency_key", None)
    if not isinstance(body_key, str) or not body_key:
        return key
    if key not in (None, body_key):
        raise Invalid({"idempotency_key": ["must match the Idempotency-Key header"]})
    return body_key


async def receive_file(request: ApiRequest, target: Path, max_bytes: int, noun: str) -> uploads.Form:
    """Write the multipart field `file` of a request to the path `target` while it arrives, and return the form.

    `noun` begins the sentence of an error about the file, such as `An import`. Raises ApiError: 413 for more than
    `max_bytes`, 415 for a wrong content type, and 400 for a malformed form.
    """
    stream: Any = request.http.stream
    try:
        form = await uploads.receive(request.http.headers, stream, target, max_bytes)
    except uploads.TooLarge:
        raise ApiError(413, "payload_too_large", f"{noun} may have at most {max_bytes} bytes.") from None
    except uploads.NotAForm:
        message = "Send the file as multipart/form-data without a Content-Encoding."
        raise ApiError(415, "unsupported_media_type", message) from None
    except uploads.MalformedForm as error:
        raise ApiError(400, "invalid_json", f"The form cannot be parsed: {error}") from None
    return form
