"""Answers, headers and parameters that many operations share: each written once, under `components`."""

from typing import Any

import msgspec

from appliance.api.declare import Route
from appliance.api.document.refusals import STATUSES, Status
from appliance.fields import PageQuery
from appliance.reader import declared

_TEXT, _NUMBER = {"type": "string"}, {"type": "integer", "minimum": 0}

_HEADERS: dict[str, tuple[str, dict[str, Any]]] = {
    "X-Request-Id": ("names this request, also in the log", _TEXT),
    "X-Api-Version": ("the version of this interface, as `1.0`", _TEXT),
    "RateLimit-Limit": ("how many requests a minute of this kind the credential has; absent: no limit", _NUMBER),
    "RateLimit-Remaining": ("how many of them may come at once now", _NUMBER),
    "RateLimit-Reset": ("in how many seconds as many as possible may come at once again", _NUMBER),
    "Retry-After": ("in how many seconds to come back", _NUMBER),
    "WWW-Authenticate": ("`Bearer`", _TEXT),
    "Allow": ("the methods that the path takes", _TEXT),
    "X-Ignored-Fields": (
        "keys of the body that are unknown or read-only and changed nothing, with commas between, percent-encoded "
        "where they are not ASCII; absent: there were none", _TEXT,
    ),
    "Idempotent-Replayed": ("`true` on the answer to a repeated request that was done before", {"const": "true"}),
    "Content-Disposition": ("the file name that a browser saves it under", _TEXT),
    "X-Total-Count": ("total number of records", _NUMBER),
    "X-Total-Pages": ("total number of pages", _NUMBER),
    "X-Page-Number": ("current page number", {"type": "integer", "minimum": 1}),
    "X-Next-Page": ("next page, if there is one", {"type": "integer", "minimum": 2}),
    "X-Prev-Page": ("previous page, if there is one", {"type": "integer", "minimum": 1}),
}  # fmt: skip
PAGING = ("X-Total-Count", "X-Total-Pages", "X-Page-Number", "X-Next-Page", "X-Prev-Page")
_SURELY = {"X-Total-Count", "X-Total-Pages", "X-Page-Number", "X-Request-Id"}
EVERY = ("X-Request-Id", "X-Api-Version")
RATE = ("RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset")
_PAGE_WORDS = {
    "page": "which page, the first one being 1",
    "limit": "how many to a page; over 100 counts as 100",
    "per_page": "the same as `limit`, which goes before it",
    "per": "the same as `limit`, which goes before it, as does `per_page`",
}


def headers(*names: str) -> dict[str, Any]:
    """Refer to headers by name."""
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}


def error(status: int) -> dict[str, str]:
    """Refer to a refusal by its status."""
    return {"$ref": f"#/components/responses/{STATUSES[status].name}"}


def parameter(name: str) -> dict[str, str]:
    """Refer to a shared parameter by its name in `components`."""
    return {"$ref": f"#/components/parameters/{name}"}


def is_shared(kind: type, name: str) -> bool:
    """Return whether a parameter of a query is one of those that every list takes."""
    return issubclass(kind, PageQuery) and name in _PAGE_WORDS


def of_success(route: Route) -> dict[str, Any]:
    """Refer to the headers of an operation's success."""
    found = [*EVERY, *RATE]
    if route.many:
        found += PAGING
    if route.method != "GET" and route.form is None:
        found.append("X-Ignored-Fields")
    if route.idempotent:
        found.append("Idempotent-Replayed")
    if route.media is not None:
        found.append("Content-Disposition")
    return headers(*found)


def all_headers() -> dict[str, Any]:
    """Return `components.headers`."""
    return {
        name: {"description": text, **({"required": True} if name in _SURELY else {}), "schema": schema}
        for name, (text, schema) in _HEADERS.items()
    }


def all_responses() -> dict[str, Any]:
    """Return `components.responses`: every refusal, with a body of each of its codes and reasons as an example."""
    return {kind.name: _response(status, kind) for status, kind in STATUSES.items()}


def _response(status: int, kind: Status) -> dict[str, Any]:
    examples = {
        name: {"summary": refusal.when, "value": refusal.body} for name, refusal in kind.refusals.items()
    }  # fmt: skip
    rates = () if status in (400, 401, 405, 500, 503) else RATE
    return {
        "description": kind.when,
        "headers": headers(*EVERY, *rates, *kind.headers),
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}, "examples": examples}},
    }


def all_parameters() -> dict[str, Any]:
    """Return `components.parameters`."""
    found: dict[str, Any] = {
        "id": {
            "name": "id", "in": "path", "required": True, "description": "the id of the thing",
            "schema": {"type": "integer", "minimum": 1},
        },
        "Idempotency-Key": {
            "name": "Idempotency-Key", "in": "header", "required": False,
            "description": "of your own making, 1 to 255 printable characters. The same key with the same payload "
            "does it once: within 7 days the answer is what came of it, with 200 and `Idempotent-Replayed: true`. "
            "With another payload it is 409.",
            "schema": {"type": "string", "minLength": 1, "maxLength": 255},
        },
    }  # fmt: skip
    for info in declared(PageQuery):
        schema = msgspec.json.schema(info.type)
        if info.name == "page":
            schema["default"] = info.default
        elif info.name == "limit":
            schema["default"] = PageQuery().size()
        found[info.name] = {
            "name": info.name, "in": "query", "required": False, "description": _PAGE_WORDS[info.name],
            "schema": schema,
        }  # fmt: skip
    return found
