"""Calls of the API from inside the process, for doors that offer the API in another form, such as MCP.

A call runs the handler that serves the route over HTTP, with a request of its own. Authentication, rate limits, scopes,
validation, idempotency and the audit log are those of HTTP: a credential can do nothing here that it cannot do there.
"""

import json
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import msgspec
from sanic import HTTPResponse, Request
from sanic.compat import Header
from sanic.exceptions import MethodNotAllowed, NotFound

from appliance.accounts.access import ADMIN_SCOPE, SELF_SCOPE, Credential
from appliance.api import dispatch
from appliance.api.endpoints import Route
from appliance.api.http import ApiError

# The handlers of these methods read a body.
_METHODS_WITH_BODY = ("POST", "PUT", "PATCH", "DELETE")
# Sanic accepts no longer request target.
MAX_TARGET_BYTES = 32_768
_decoder = msgspec.json.Decoder()


class ApiCall(NamedTuple):
    """One call: the method, the path below `/v1/my`, the query, and the JSON of the body (None for an empty one).

    Parameters of the query that are None are left out.
    """

    method: str
    path: str
    query: dict[str, Any] = {}
    body: Any = None
    idempotency_key: str | None = None


class ApiReply(NamedTuple):
    """The response to a call: its HTTP status, its JSON, and its headers by lower-case name."""

    status: int
    value: Any
    headers: dict[str, str]

    @property
    def is_error(self) -> bool:
        """Return whether the call failed."""
        return self.status >= 400


class _BodyStream:
    """The stream of a body that is in memory, for handlers that read large bodies themselves."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    async def read(self) -> bytes | None:
        """Return the whole body, and None at the next call."""
        content, self._content = self._content, b""
        return content or None


def is_callable(route: Route) -> bool:
    """Return whether a route can be called in process: it takes and returns JSON, and an API key may have its scope."""
    return route.media is None and route.form_type is None and route.scope not in (ADMIN_SCOPE, SELF_SCOPE)


async def call_api(origin: Request, credential: Credential, call: ApiCall) -> ApiReply:
    """Return the response of the API to a call with the credential of the client that sent the request `origin`.

    The client's address is that of `origin`. An error is a reply with its status, never an exception. A route that does
    not take and return JSON, or that no API key may use, does not exist here.
    """
    request: Request | None = None
    try:
        request = _build_request(origin, credential, call)
        response = await _handle(request)
    except Exception as error:
        # The part of the service that answers over HTTP describes the error, and logs it if it is unexpected.
        response = await dispatch.handle_api_error(request or origin, error)
    level = getattr(request.ctx, "level", None) if request is not None else None
    if level is not None:
        origin.ctx.level = level
    headers = {name.lower(): str(value) for name, value in response.headers.items()}
    return ApiReply(response.status, _decoder.decode(response.body) if response.body else None, headers)


def _build_request(origin: Request, credential: Credential, call: ApiCall) -> Request:
    """Return the request of a call. Raises ApiError 400 for a target that is too long or not valid Unicode."""
    try:
        query = urlencode({name: _format(value) for name, value in call.query.items() if value is not None})
        path = quote(call.path, safe="/")
    except UnicodeEncodeError:
        raise ApiError(400, "bad_request", "The path and the query must not have lone surrogates.") from None
    target = f"{dispatch.BASE_PATH}{path}{'?' if query else ''}{query}".encode()
    if len(target) > MAX_TARGET_BYTES:
        raise ApiError(400, "bad_request", "The path and the query are too long.")
    headers = Header({"content-type": "application/json", "user-agent": origin.headers.get("user-agent", "")})
    if call.idempotency_key is not None:
        headers["idempotency-key"] = call.idempotency_key
    kind = type(origin)
    request: Request = kind(target, headers, "1.1", call.method, origin.transport, origin.app)
    request.ctx.client, request.ctx.credential = origin.ctx.client, credential
    request.conn_info = origin.conn_info
    content = _encode(call.body) if call.body is not None else b""
    request.body = content if call.method in _METHODS_WITH_BODY else b""
    request.stream = _BodyStream(request.body)  # type: ignore[assignment]  # has the one method that handlers call
    return request


def _encode(body: Any) -> bytes:
    """Return a body as JSON, even with lone surrogates and very large numbers, which validation refuses by field."""
    try:
        return msgspec.json.encode(body)
    except (UnicodeEncodeError, OverflowError):
        return json.dumps(body).encode()


def _format(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


async def _handle(request: Request) -> HTTPResponse:
    """Run the handler of a request's route.

    Raises the exceptions of the handler, NotFound without such a route, and ApiError 405 for another method.
    """
    try:
        sanic_route, handler, parameters = request.app.router.get(request.path, request.method, None)
    except MethodNotAllowed as error:
        raise ApiError(405, "method_not_allowed") from error
    route: Route | None = getattr(sanic_route.ctx, "route", None)
    if route is None or not is_callable(route) or not request.path.startswith(f"{dispatch.BASE_PATH}/"):
        raise NotFound("Not found.")
    request.route, request._match_info = sanic_route, parameters
    response: HTTPResponse | None = await handler(request, **parameters)
    assert response is not None  # only routes of media stream their response
    return response
