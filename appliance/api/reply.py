"""Writes answers and errors of the API; the only translator of refusals on this side."""

import logging
import secrets
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import quote

import msgspec
from sanic import HTTPResponse, Request
from sanic.exceptions import (
    MethodNotAllowed,
    NotFound,
    PayloadTooLarge,
    SanicException,
    ServiceUnavailable,
)
from sanic_routing.exceptions import BaseException as RoutingException

from appliance.core import errors
from appliance.core.pagination import Page
from appliance.settings import config
from appliance.storage.work import call

log = logging.getLogger("campanero.api")
_encoder = msgspec.json.Encoder()
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
_AS_IT_IS = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) not in "%,")
# Each of them may take twelve bytes
_NAME_CHARACTERS, _NAMES_BYTES = 300, 4000

_STATUS: tuple[tuple[type[Exception], int], ...] = (
    (errors.NotFound, 404),
    (errors.Invalid, 422),
    (errors.NotAllowed, 403),
    (errors.Conflict, 409),
    (errors.TooMany, 429),
    (errors.Unavailable, 503),
)
# Every code has its heading there
_EXPLAINED = "/docs/guides/errors-and-limits"
_WORDS = {
    "not_found": "there is nothing here",
    "forbidden": "this credential does not reach that",
    "unauthorized": "a valid API key is needed",
    "method_not_allowed": "this path does not take that method",
    "payload_too_large": "the body is too large",
    "internal_error": "something went wrong on our side",
}


class Fault(Exception):
    """A refusal of the door itself: no credential, wrong type, no JSON."""

    def __init__(self, status: int, code: str, message: str = "", headers: dict[str, str] | None = None,
                 **extra: Any) -> None:  # fmt: skip
        super().__init__(message or code)
        self.status = status
        self.code = code
        self.message = message or _WORDS.get(code, code)
        self.headers = headers or {}
        self.extra = extra


def request_id(request: Request) -> str:
    """Return the id of this request, made once."""
    if not hasattr(request.ctx, "request_id"):
        request.ctx.request_id = secrets.token_hex(8)
    return str(request.ctx.request_id)


def about(request: Request) -> dict[str, str]:
    """Return what an entry of the log says of a request, for programs that read it."""
    return {"request_id": request_id(request), "method": request.method, "path": request.path}


def json(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> HTTPResponse:
    """Return a value as JSON."""
    return HTTPResponse(_encoder.encode(value), status, headers, content_type="application/json")


async def media(
    request: Request, kind: str, value: Any, status: int = 200, headers: dict[str, str] | None = None
) -> HTTPResponse | None:
    """Return bytes of another type, or stream an iterator of them; what fails before the first piece is a proper fault.

    A failure after it can only break the connection, which tells the client that the answer is not whole.
    """
    content_type = f"{kind}; charset=utf-8" if kind.startswith("text/") else kind
    if isinstance(value, bytes | str):
        return HTTPResponse(value, status, headers, content_type=content_type)
    pieces = iter(value)
    piece = await call(next, pieces, None)
    response = await request.respond(status=status, headers=headers, content_type=content_type)
    try:
        while piece is not None:
            if piece:
                await response.send(piece)
            piece = await call(next, pieces, None)
    except Exception:
        log.exception("request %s %s broke off", request_id(request), request.path, extra=about(request))
        if request.transport is not None:
            request.transport.abort()  # type: ignore[attr-defined]  # the library declares less than what it passes
        return None
    await response.eof()
    return None


def listed(names: Iterable[str]) -> str:
    """Write names into one header: what is not printable ASCII, and what would part or mean something, as %XX of UTF-8.

    Of very many the first are told (RFC 9110, section 5.5: a header is ASCII).
    """
    told, length = [], 0
    for name in dict.fromkeys(names):
        one = quote(name[:_NAME_CHARACTERS].encode("utf-8", "surrogatepass"), safe=_AS_IT_IS)
        length += len(one) + 2
        if length > _NAMES_BYTES:
            break
        told.append(one)
    return ", ".join(told)


def page_headers(page: Page) -> dict[str, str]:
    """Return the headers of a list (specification, Limits)."""
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


def fault(request: Request, error: Exception) -> HTTPResponse:
    """Return any exception as the error body of docs/decisions.md#3; only real bugs are logged with their trace."""
    status, code, message, extra, headers = _read(error)
    if status == 405:
        # The library tells them in no order
        told = headers["Allow"].split(", ") if "Allow" in headers else [*_methods(request)]
        headers["Allow"] = ", ".join(sorted(told, key=(*_METHODS, *told).index))
    if status == 500:
        log.exception("request %s %s failed", request_id(request), request.path, exc_info=error, extra=about(request))
    hint = f"{config.base_url(config.current())}{_EXPLAINED}#{code}"
    body = {"error": True, "code": code, "message": message, "request_id": request_id(request), "hint": hint, **extra}
    if status == 422 and hasattr(request.ctx, "ignored") and request.ctx.ignored:
        headers["X-Ignored-Fields"] = listed(request.ctx.ignored)
    return json(body, status, headers)


def _methods(request: Request) -> Iterator[str]:
    """Return the methods that a path takes; Sanic names them only where the path has no id at its end."""
    for method in _METHODS:
        try:
            request.app.router.resolve(path=request.path, method=method)
        except (NotFound, MethodNotAllowed, RoutingException):
            continue
        yield method


def _read(error: Exception) -> tuple[int, str, str, dict[str, Any], dict[str, str]]:
    if isinstance(error, Fault):
        return error.status, error.code, error.message, error.extra, error.headers
    if isinstance(error, errors.Refused):
        return _refused(error)
    if isinstance(error, NotFound):
        return 404, "not_found", _WORDS["not_found"], {}, {}
    if isinstance(error, MethodNotAllowed):
        return 405, "method_not_allowed", _WORDS["method_not_allowed"], {}, dict(error.headers or {})
    if isinstance(error, PayloadTooLarge):
        return 413, "payload_too_large", _WORDS["payload_too_large"], {}, {}
    if isinstance(error, ServiceUnavailable):
        return 503, "unavailable", "the service cannot answer now", {}, {"Retry-After": "5"}
    if isinstance(error, SanicException) and error.status_code in (408, 417):
        return error.status_code, "bad_request", "the request did not arrive whole", {}, {}
    if isinstance(error, SanicException) and error.status_code == 431:
        return 431, "bad_request", str(error), {}, {}
    if isinstance(error, SanicException) and 400 <= error.status_code < 500:
        return 400, "bad_request", "the request cannot be read", {}, {}
    return 500, "internal_error", _WORDS["internal_error"], {}, {}


def _refused(error: errors.Refused) -> tuple[int, str, str, dict[str, Any], dict[str, str]]:
    status = next(number for kind, number in _STATUS if isinstance(error, kind))
    said = error.message if error.message != error.code else ""
    message = said or _WORDS.get(error.code, error.code)
    extra = dict(error.extra)
    headers = {}
    if isinstance(error, errors.Invalid):
        extra["validation_errors"] = error.fields
        if error.reason:
            extra["reason"] = error.reason
    if isinstance(error, errors.TooMany | errors.Unavailable):
        headers["Retry-After"] = str(error.retry_after)
    return status, error.code, message, extra, headers
