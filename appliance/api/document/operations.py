"""One declared endpoint as an operation of the document."""

import re
from typing import Any

import msgspec
from msgspec import NODEFAULT, UNSET, Struct

from appliance.accounts.roles import RULE, SELF
from appliance.api.declare import Route
from appliance.api.document import responses, samples, words
from appliance.api.document.responses import error
from appliance.api.routes import ROUTES
from appliance.core.fields import MAX_INTEGER, declared

# What operations are called in the document.


def operation_id(route: Route) -> str:
    """Return the operationId of an endpoint."""
    named = route.path.replace("{id}", "by_id").replace(f"{{{route.second_id}}}", f"by_{route.second_id}")
    return f"{route.method.lower()}_{named.strip('/').replace('/', '_').replace('.', '_')}"


# Where an answer leads: from what was made or listed to every operation on it, and to the lists that can show its
# own.
#
# A program may follow them instead of putting paths together, and a test walks every thing along them.

_BODY, _FIRST, _ASKED = "$response.body#/id", "$response.body#/0/id", "$request.path.id"


def links_of(route: Route) -> dict[str, Any]:
    """Return the links of an operation's success."""
    if "id" not in getattr(route.returns, "__struct_fields__", ()):
        return {}
    if route.many:
        return _on(route, _FIRST) if not route.has_id else _within(route)
    if route.method == "POST" and route.status == 201 and not route.has_id:
        return {**_on(route, _BODY), **_listed(route), **_shown(route), **_submitted(route)}
    if route.method in ("PATCH", "PUT") and route.has_id:
        return dict(_link(one, id=_ASKED) for one in ROUTES if one.method == "GET" and one.path == route.path)
    return {}


def _link(route: Route, **parameters: str) -> tuple[str, dict[str, Any]]:
    name = operation_id(route)
    return name, {"operationId": name, "parameters": parameters}


def _on(route: Route, number: str) -> dict[str, Any]:
    """Lead to every operation on one thing."""
    paths = f"{route.path}/{{id}}"
    return dict(_link(one, id=number) for one in ROUTES if one.path.startswith(paths) and one.second_id is None)


def _within(route: Route) -> dict[str, Any]:
    """Lead from a list of what lies within a thing to every operation on that."""
    found = [one for one in ROUTES if one.second_id is not None and one.path.startswith(f"{route.path}/{{")]
    return dict(_link(one, id=_ASKED, **{str(one.second_id): _FIRST}) for one in found)


def _submitted(route: Route) -> dict[str, Any]:
    """Lead from a form to where people send it."""
    if "public_key" not in getattr(route.returns, "__struct_fields__", ()):
        return {}
    parameters = {"public_key": "$response.body#/public_key"}
    return {"submit_form": {"operationId": "submit_form", "parameters": parameters}}


def _listed(route: Route) -> dict[str, Any]:
    """Lead to the list that it stands in now."""
    return dict(_link(one) for one in ROUTES if (one.method, one.path) == ("GET", route.path) and one.many)


def _shown(route: Route) -> dict[str, Any]:
    """Lead to lists of other things that can be asked for what has to do with it, as the messages of a contact."""
    name = f"{route.path.strip('/').removesuffix('s')}_id"
    return dict(
        _link(one, **{name: _BODY})
        for one in ROUTES
        if one.many and not one.has_id and one.path != route.path and one.query is not None
        and name in {info.encode_name for info in declared(one.query)}
    )  # fmt: skip


# Scopes that no key has, and who does
_PEOPLE = {
    RULE: "Only for an owner or an admin who has logged in: no key reaches it.",
    SELF: "Only for somebody who has logged in: no key reaches it.",
}


def ref(kind: type[Struct]) -> dict[str, str]:
    """Refer to the schema of a Struct."""
    return {"$ref": f"#/components/schemas/{kind.__name__}"}


def shown(kind: type[Struct], many: bool = False) -> dict[str, Any]:
    """Refer to the example of a Struct, or of a list with one in it."""
    return {"1": {"$ref": f"#/components/examples/{'ListOf' if many else ''}{kind.__name__}"}}


def operation(route: Route) -> dict[str, Any]:
    """Describe an endpoint."""
    found: dict[str, Any] = {
        "operationId": operation_id(route),
        "summary": route.summary.rstrip("."),
        "tags": [noun(route)],
        "description": _description(route),
        "x-required-scope": route.scope,
        "x-rate": route.rate,
    }
    if route.scope in _PEOPLE:
        found["security"] = [{"jwt": []}]
    if parameters := _parameters(route):
        found["parameters"] = parameters
    if body := _body(route):
        found["requestBody"] = body
    found["responses"] = {
        **{str(status): _success(route, status) for status in (route.status, *route.also)},
        **{str(status): error(status) for status in _errors(route)},
    }
    return found


def noun(route: Route) -> str:
    """Return what an endpoint is about, by the first part of its path."""
    return route.path.strip("/").partition("/")[0]


def _description(route: Route) -> str:
    """Return what an endpoint promises beyond its first sentence, and who may use it."""
    promise = re.sub(r"\s*\n\s*", " ", (route.handler.__doc__ or "").strip().partition("\n")[2]).strip()
    scope = _PEOPLE.get(route.scope, f"Scope: `{route.scope}`.")
    return " ".join(filter(None, (promise, scope)))


def _body(route: Route) -> dict[str, Any]:
    if route.reads is not None:
        kind, schema, required = "application/json", ref(route.reads), route.body_required
    elif route.form is not None:
        kind, schema, required = "multipart/form-data", _form(route.form), True
    else:
        return {}
    media: dict[str, Any] = {"schema": schema}
    if shown := samples.examples_of(f"{route.method} {route.path}"):
        media["examples"] = shown
    return {"required": required, "content": {kind: media}}


def _form(kind: type[Struct]) -> dict[str, Any]:
    """Describe a multipart body: one file, and the texts beside it."""
    binary = {"type": "string", "format": "binary", "description": "the file"}
    return {"allOf": [{"type": "object", "properties": {"file": binary}, "required": ["file"]}, ref(kind)]}


def _bytes(kind: str) -> dict[str, Any]:
    is_text = kind.startswith("text/") or kind.endswith("jsonl")
    return {"type": "string"} if is_text else {"type": "string", "format": "binary"}


def _success(route: Route, status: int) -> dict[str, Any]:
    found: dict[str, Any] = {"description": _words_of(route, status), "headers": responses.of_success(route)}
    if route.media is not None:
        kinds = [kind for kind in (route.media, route.or_media) if kind is not None]
        return {**found, "content": {kind: {"schema": _bytes(kind)} for kind in kinds}}
    assert route.returns is not None
    schema = {"type": "array", "items": ref(route.returns)} if route.many else ref(route.returns)
    found["content"] = {"application/json": {"schema": schema, "examples": shown(route.returns, route.many)}}
    if status == route.status and (leads := links_of(route)):
        found["links"] = leads
    return found


def _words_of(route: Route, status: int) -> str:
    if status == 201:
        return "Created"
    return "It was there already" if route.status == 201 else "Success"


def _errors(route: Route) -> list[int]:
    found = {401, 403, 422, 429, 500, 503}
    if route.has_id:
        found.add(404)
    if route.method != "GET":
        found |= {400, 413, 415}
    if route.method == "PATCH" or route.idempotent:
        found.add(409)
    return sorted(found)


def _parameters(route: Route) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    if route.has_id:
        found.append(responses.parameter("id"))
    if route.second_id is not None:
        found.append({
            "name": route.second_id, "in": "path", "required": True,
            "description": f"the id of the {route.second_id.removesuffix('_id')} within it",
            "schema": {"type": "integer", "minimum": 1},
        })  # fmt: skip
    if route.idempotent:
        found.append(responses.parameter("Idempotency-Key"))
    if route.query is not None:
        found += [_query(route.query, info) for info in declared(route.query)]
    return found


def _query(kind: type[Struct], info: Any) -> dict[str, Any]:
    if responses.is_shared(kind, info.encode_name):
        return responses.parameter(info.encode_name)
    schema = msgspec.json.schema(info.type)
    if schema.get("type") == "integer":
        # What is asked for by a number is kept under one of so many bits
        schema = {"minimum": -MAX_INTEGER, "maximum": MAX_INTEGER} | schema
    if info.default not in (NODEFAULT, UNSET):
        schema["default"] = info.default
    name = info.encode_name
    said = schema.pop("description", None) or words.of_parameter(kind, name)
    found = {
        "name": name,
        "in": "query",
        "required": info.required,
        "description": said,
        "schema": schema,
    }
    return {name: value for name, value in found.items() if value is not None}
