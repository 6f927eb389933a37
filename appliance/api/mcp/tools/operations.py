"""Tools for the rest of the API: search its operations, and call one. Only what an API key may do is offered."""

import re
from collections.abc import Sequence
from functools import cache
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from appliance.accounts.access import Credential
from appliance.api.endpoints import Route
from appliance.api.in_process import is_callable
from appliance.api.mcp.tools.base import (
    Json,
    Tool,
    ToolCall,
    ToolFailed,
    ToolOutput,
    ToolResult,
    build_schema,
    find_denial,
)
from appliance.api.routes import ROUTES

_MAX_SEARCH_CHARACTERS, _MAX_PATH_CHARACTERS, _MAX_FOUND = 200, 500, 15
# Schemas of more results would not fit into the answer.
_MAX_WITH_SCHEMAS = 3
_PATH_PARAMETER = re.compile(r"\{\w+\}")


class ApiSearch(Struct, forbid_unknown_fields=True):
    """What to look for."""

    query: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=_MAX_SEARCH_CHARACTERS,
            description="words such as `suppress an address`, or the name of an operation for its schemas",
        ),
    ]


class Operation(Struct, omit_defaults=True):
    """An operation of the API."""

    operation: str
    method: str
    path: str
    summary: str
    scope: str
    description: str = ""
    query: Annotated[Json, Meta(description="JSON Schema of the query")] = {}
    body: Annotated[Json, Meta(description="JSON Schema of the body")] = {}


class FoundOperations(ToolOutput, kw_only=True, omit_defaults=True):
    """The operations that fit best, the best first; the first ones with the schemas of their query and body."""

    operations: list[Operation]


def _list_routes(credential: Credential) -> list[Route]:
    return [route for route in ROUTES if is_callable(route) and find_denial(credential, route) is None]


def _describe(route: Route) -> str:
    lines = (route.handler.__doc__ or "").strip().split("\n")[1:]
    return " ".join(line.strip() for line in lines if line.strip())


@cache
def _list_words(operation_id: str) -> tuple[str, str]:
    """Return name, path and summary of an operation as one text, and its description, in lower case."""
    route = next(route for route in ROUTES if route.operation_id == operation_id)
    return f"{operation_id} {route.path} {route.summary} {route.method}".lower(), _describe(route).lower()


def _rate(route: Route, words: Sequence[str]) -> int:
    """Return how well an operation fits words: its name, path and summary count more than its description."""
    main, rest = _list_words(route.operation_id)
    return sum(3 if word in main else 1 if word in rest else 0 for word in words)


async def _search(call: ToolCall, wanted: ApiSearch) -> ToolResult:
    routes = _list_routes(call.credential)
    exact = [route for route in routes if route.operation_id.lower() == wanted.query.strip().lower()]
    words = [word.rstrip("s") or word for word in re.findall(r"\w+", wanted.query.lower()) if len(word) > 1]
    rated = sorted(((_rate(route, words), route) for route in routes), key=lambda entry: -entry[0])
    matches = exact or [route for points, route in rated if points > 0][:_MAX_FOUND]
    operations = []
    for index, route in enumerate(matches):
        operation = Operation(
            route.operation_id, route.method, route.path, route.summary, route.scope, _describe(route)
        )  # fmt: skip
        if index < _MAX_WITH_SCHEMAS:
            operation.query = build_schema(route.query_type) if route.query_type is not None else {}
            operation.body = build_schema(route.body_type) if route.body_type is not None else {}
        operations.append(operation)
    cut = ["Only the first operations have schemas; search for the name of another one to get its own."]
    value = FoundOperations(operations=operations, cut=cut if len(matches) > _MAX_WITH_SCHEMAS else [])
    return ToolResult(f"{len(operations)} operations.", value)


class ApiCallInput(Struct, forbid_unknown_fields=True):
    """One call of an operation that api_search names."""

    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
    path: Annotated[
        str,
        Meta(
            max_length=_MAX_PATH_CHARACTERS,
            pattern="^/[A-Za-z0-9_./-]+$",
            description="path below /v1/my with ids in it, such as /lists/7",
        ),
    ]
    query: Annotated[dict[str, str | int | float | bool], Meta(max_length=50)] | UnsetType = UNSET
    body: Annotated[Json, Meta(description="JSON body")] | UnsetType = UNSET
    idempotency_key: (
        Annotated[
            str, Meta(max_length=200, description="of your choice: repeating a call with it has no second effect")
        ]
        | UnsetType
    ) = UNSET


class ApiOutput(ToolOutput, kw_only=True, omit_defaults=True):
    """The response of the API."""

    status: int
    value: Annotated[Any, Meta(description="JSON of the response")] = None
    total: Annotated[int, Meta(description="entries of the whole list")] | None = None
    next_page: int | None = None
    ignored: Annotated[list[str], Meta(description="keys of the body that were ignored")] = []


def _find_route(method: str, path: str) -> Route | None:
    """Return the route of a call, or None. A path without parameters comes before one with."""
    matches = [
        route
        for route in ROUTES
        if route.method == method and re.fullmatch(_PATH_PARAMETER.sub("[^/]+", route.path.replace(".", r"\.")), path)
    ]
    return min(matches, key=lambda route: route.path.count("{"), default=None)


async def _call_operation(call: ToolCall, wanted: ApiCallInput) -> ToolResult:
    route = _find_route(wanted.method, wanted.path)
    if route is None:
        raise ToolFailed(f"There is no {wanted.method} {wanted.path}; find the operation with api_search.")
    if not is_callable(route):
        raise ToolFailed(f"{route.operation_id} is not available here: it needs a file, or a person who has signed in.")
    reply = await call.call(
        wanted.method,
        wanted.path,
        dict(wanted.query) if isinstance(wanted.query, dict) else {},
        wanted.body if isinstance(wanted.body, dict) else None,
        wanted.idempotency_key if isinstance(wanted.idempotency_key, str) else None,
    )
    total, next_page = reply.headers.get("x-total-count"), reply.headers.get("x-next-page")
    value = ApiOutput(
        status=reply.status,
        value=reply.value,
        total=int(total) if total else None,
        next_page=int(next_page) if next_page else None,
        ignored=[name for name in reply.headers.get("x-ignored-fields", "").split(", ") if name],
    )
    return ToolResult(f"{route.operation_id} answered {reply.status}.", value)


TOOLS = (
    Tool(
        "api_search",
        "Search the API",
        "Find operations of the API by words, with the schemas of their query and body. Only operations that this key "
        "may "
        "call are named.",
        ApiSearch,
        FoundOperations,
        _search,
    ),
    Tool(
        "api_call",
        "Call the API",
        "Call an operation of the API that no other tool covers, with the permissions of this key. Prefer the other "
        "tools; "
        "find the operation with api_search.",
        ApiCallInput,
        ApiOutput,
        _call_operation,
        is_read_only=False,
        is_destructive=True,
        is_idempotent=False,
        reaches_outside=True,
    ),
)
