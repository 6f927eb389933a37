"""Registration of the API's routes with the server, and the steps of every request from authentication to response."""

import asyncio
import re
from collections.abc import Callable, Coroutine, Sequence
from functools import cache
from typing import Any

import msgspec
from msgspec import UNSET, Struct
from sanic import Blueprint, HTTPResponse, Request, Sanic
from sanic.exceptions import PayloadTooLarge

from appliance.accounts import access, agents
from appliance.accounts.access import Credential
from appliance.api import auth, doors, endpoints, http, oauth, openapi, rate_limits
from appliance.api.endpoints import ApiRequest, ApiResponse, Route
from appliance.api.routes import METRICS_PATH, ROUTES, SERVICE_ROUTES, add_health_routes
from appliance.audience.filters import personal
from appliance.core import aliases, validation
from appliance.core.errors import Faults, Invalid, Refused
from appliance.storage import disk_guard, masking
from appliance.storage.database import fetch_one
from appliance.storage.transactions import fetch, fetch_inline


@cache
def _list_reference_fields(kind: type[Struct]) -> tuple[tuple[str, str], ...]:
    """Return (field, table) for each field of a query Struct that is an id of another object, such as `ContactId`."""
    return tuple(
        (info.name, table)
        for info in validation.declared_fields(kind)
        if (table := validation.meta_extras(info.type).get("table"))
    )


async def find_unknown_ids(account_id: int, query: Any) -> dict[str, list[str]]:
    """Return an error by field for each id in a query that does not exist in the account.

    A deleted object whose row is kept for its messages counts as existing, so that its messages can be listed.
    """
    kind: type[Struct] = type(query)
    references = [(name, table, getattr(query, name)) for name, table in _list_reference_fields(kind)]
    references = [(name, table, object_id) for name, table, object_id in references if object_id is not UNSET]
    return await fetch(_build_reference_faults, account_id, references) if references else {}


def _build_reference_faults(account_id: int, references: list[tuple[str, str, int]]) -> dict[str, list[str]]:
    return {
        name: ["must exist"]
        for name, table, object_id in references
        if fetch_one(f"SELECT 1 FROM {table} WHERE account_id = ? AND id = ?", (account_id, object_id)) is None
    }


BASE_PATH = "/v1/my"
API_VERSION = "1.0"
# Unknown API versions are included, because a client that requests one expects a JSON error.
_PATHS = re.compile(r"/(?:v[0-9]+(?:/.*)?|compat(?:/.*)?|mcp|openapi\.yaml|healthz|readyz|metrics)", re.DOTALL)
# A larger body is parsed and checked in a thread: 2 MB with 100,000 values take up to 0.2 s.
_MAX_INLINE_BYTES = 65_536


def owns_path(path: str) -> bool:
    """Return whether a path belongs to the API, whose errors are JSON and not HTML."""
    return _PATHS.fullmatch(path) is not None or oauth.owns_path(path)


def mount(app: "Sanic[Any, Any]") -> None:
    """Add all endpoints of the API to the server. HEAD is supported wherever GET is (RFC 9110, section 9.3.2)."""
    app.ctx.published = openapi.build_document
    blueprint = Blueprint("api")
    for base, base_routes in ((BASE_PATH, ROUTES), ("", SERVICE_ROUTES)):
        for route in base_routes:
            _add_route(blueprint, base, route)
    for path in endpoints.LOGIN_PATHS:
        blueprint.add_route(auth.log_in, path, ["POST"], name=f"enter{_route_name(path)}", error_format="json")
    for path in endpoints.LOGOUT_PATHS:
        blueprint.add_route(auth.log_out, path, ["DELETE"], name=f"leave{_route_name(path)}", error_format="json")
    blueprint.add_route(_get_openapi, "/openapi.yaml", ["GET", "HEAD"], error_format="text")
    add_health_routes(blueprint)
    oauth.mount(blueprint)
    app.blueprint(blueprint)
    doors.mount(app)


def _add_route(blueprint: Blueprint, base: str, route: Route) -> None:
    path = base + route.path.replace("{id}", "<number:str>").replace(f"{{{route.inner_id_name}}}", "<inner:str>")
    path = path.replace("{language}", "<language:str>")
    methods = ["GET", "HEAD"] if route.method == "GET" else [route.method]
    name = f"{route.method.lower()}{_route_name(route.path)}"
    # The handler of a multipart form reads the body as a stream, and a large body is read only of a known client.
    streams = route.form_type is not None or route.large_body is not None
    blueprint.add_route(
        _build_handler(route), path, methods, name=name, stream=streams, error_format="json", ctx_route=route
    )  # fmt: skip


def _route_name(path: str) -> str:
    return path.translate(str.maketrans("/.-", "___", "{}"))


def _build_handler(route: Route) -> Callable[..., Coroutine[Any, Any, HTTPResponse | None]]:
    async def handle(request: Request, number: str = "0", inner: str = "0", language: str = "") -> HTTPResponse | None:
        credential = await _admit(request, route)
        with masking.masked(credential.is_masked):
            if route.large_body is None:
                return await answer(request, credential, number, inner, language)
            async with http.receive_large_body(request, route.large_body.max_bytes):
                return await answer(request, credential, number, inner, language)

    async def answer(
        request: Request, credential: Credential, number: str, inner: str, language: str
    ) -> HTTPResponse | None:
        if route.form_type is not None:
            disk_guard.require_writable()
        if route.form_type is None and len(request.body) > _MAX_INLINE_BYTES:
            raw, body = await asyncio.to_thread(_read_body, request, route)
        else:
            raw, body = _read_body(request, route)
        personal.require_allowed(raw)
        object_id, inner_id = http.parse_id(number), http.parse_id(inner)
        faults = Faults()
        query = http.parse_query(request, route.query_type)
        faults.merge(query.faults.fields)
        faults.merge(await find_unknown_ids(credential.account_id, query.value))
        api_request = ApiRequest(
            request, credential, object_id, None, query.value if route.query_type else None, raw, inner_id,
            language=language,
        )  # fmt: skip
        if body is not None:
            faults.merge(body.faults.fields)
            request.ctx.ignored = body.ignored
            api_request = api_request._replace(
                body=body.value if route.body_type else None, parse_result=body, ignored_keys=body.ignored
            )
        if route.large_body is not None and (count := route.large_body.count_requests(raw)) > 1:
            rate_limits.charge(request, credential, route.rate, count - 1)
        if route.idempotent:
            faults.collect(http.get_idempotency_key, request, api_request.body)
        if faults.fields:
            # A missing object is reported before errors of fields.
            await _require_existing(route, ApiRequest(request, credential, object_id, None, None, None))
            if route.validate is not None:
                faults.merge(await route.validate(api_request))
            faults.check()
        try:
            response = await route.handler(api_request)
        except Invalid as error:
            raise aliases.name_as_sent(error, body.aliases if body is not None else {}) from error
        return await _render(request, route, credential, response, api_request.ignored_keys)

    return handle


async def _render(
    request: Request, route: Route, credential: Credential, response: ApiResponse, ignored_keys: Sequence[str]
) -> HTTPResponse | None:
    """Return the response of a handler as JSON or as the media type of its route.

    Returns None if the response was a stream, which has been sent already.
    """
    headers = dict(response.headers)
    if ignored_keys:
        headers["X-Ignored-Fields"] = http.join_names(ignored_keys)
    status = response.status or route.status
    if route.media is not None:
        content_type = response.media or route.media
        return await http.media_response(
            request, credential.account_id, content_type, response.value, status, headers,
            lambda: auth.has_access(request, credential),
        )  # fmt: skip
    value = personal.hide_values(msgspec.to_builtins(response.value)) if credential.is_masked else response.value
    return http.json_response(value, status, headers)


def _read_body(request: Request, route: Route) -> tuple[Any, validation.PartialRead | None]:
    """Return the JSON of a request's body and the parsed body; both are None for a request without a JSON body.

    Raises the errors of `http.parse_body`.
    """
    size = len(request.body)
    if route.large_body is not None and b'"content"' not in request.body:
        http.require_small_rest(size)
    raw = http.parse_body(request, route)
    if route.large_body is not None:
        http.require_small_rest(size - route.large_body.count_content(raw))
        request.body = b""  # the parsed values are enough
    return raw, validation.read_partial(route.body_type or http.EmptyRequest, raw) if raw is not None else None


async def _admit(request: Request, route: Route) -> Credential:
    """Authenticate a request, check its rate limit and its scope, in this order, and return its credential.

    The responses to an authenticated request have the scopes and the rate limit as headers, errors included. An act of
    an agent counts in its limit. Raises ApiError 401 or 403, or RateLimitExceeded (docs/decisions.md#3).
    """
    if route.path == METRICS_PATH:
        credential = await auth.authenticate_scraper(request)
    else:
        credential = await auth.authenticate(request, agents=True)
    request.ctx.scopes = access.describe_scopes(credential.scopes)
    rate_limits.take(request, credential, route.rate)
    auth.require_route_access(credential, route)
    if credential.is_agent and route.is_agent_act:
        fetch_inline(agents.take_act, credential.account_id, credential.actor)
    return credential


async def handle_error(request: Request, error: Exception) -> HTTPResponse:
    """Return the response for an error of a request (docs/decisions.md#3).

    The server rejects a body that is too large before the request is authenticated. This function then authenticates
    the client; if that fails, the client gets the error of the authentication (401, 403 or 429) instead of 413.
    """
    response = await doors.handle_error(request, error)
    return response if response is not None else await handle_api_error(request, error)


async def handle_api_error(request: Request, error: Exception) -> HTTPResponse:
    """Return the response for an error of a request of the API itself, as `handle_error`."""
    route = getattr(request.route.ctx, "route", None) if request.route else None
    if isinstance(error, PayloadTooLarge) and route is not None:
        try:
            await _admit(request, route)
        except (http.ApiError, Refused) as error_of_admission:
            error = error_of_admission
    return http.error_response(request, error)


async def _require_existing(route: Route, api_request: ApiRequest) -> None:
    """Call the GET handler of the object in the path, which raises NotFound if the object does not exist."""
    path = route.path.partition("{id}")[0] + "{id}"
    for candidate in ROUTES:
        if route.has_id and candidate.method == "GET" and candidate.path == path:
            await candidate.handler(api_request)


async def _get_openapi(request: Request) -> HTTPResponse:
    # The document is the same for all clients, so that proxies may cache it.
    headers = {"Cache-Control": "max-age=300", "Vary": "Accept-Encoding", "X-Api-Version": API_VERSION}
    document = openapi.render_yaml()
    if "gzip" in request.headers.get("accept-encoding", ""):
        document, headers["Content-Encoding"] = openapi.render_gzip(), "gzip"
    return HTTPResponse(document, headers=headers, content_type="application/yaml; charset=utf-8")
