"""The published document (OpenAPI 3.1), made from the declarations that the endpoints run on."""

from functools import cache
from typing import Any

import msgspec
import yaml
from msgspec import NODEFAULT, UNSET, Struct
from msgspec.structs import fields as struct_fields

from appliance import VERSION, config
from appliance.api import public_forms, shapes
from appliance.api.declare import Route
from appliance.api.routes import ROUTES

_ERRORS = {
    400: "Not JSON", 401: "Missing or invalid credential", 403: "The credential does not reach this",
    404: "Not found", 409: "Conflict", 413: "The body is too large", 415: "Wrong media type",
    422: "Validation error", 429: "Rate limited", 500: "Internal error", 503: "Not available now",
}  # fmt: skip
_PAGE_HEADERS = {
    "X-Total-Count": "total number of records", "X-Total-Pages": "total number of pages",
    "X-Page-Number": "current page number", "X-Next-Page": "next page, if there is one",
    "X-Prev-Page": "previous page, if there is one",
}  # fmt: skip


class Error(Struct):
    """Every answer of status 400 or above."""

    error: bool
    code: str
    message: str
    request_id: str
    validation_errors: dict[str, list[str]] | msgspec.UnsetType = UNSET
    reason: str | msgspec.UnsetType = UNSET
    hint: str | msgspec.UnsetType = UNSET


@cache
def document() -> bytes:
    """Answer the document as YAML."""
    text: str = yaml.dump(build(), sort_keys=False, allow_unicode=True, width=120, Dumper=_dumper())
    return text.encode()


def _dumper() -> Any:
    base = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    return type("Dumper", (base,), {"ignore_aliases": lambda self, data: True})


def build() -> dict[str, Any]:
    """Answer the document as data."""
    named = (kind for route in ROUTES for kind in (route.returns, route.reads, route.form))
    types = {kind for kind in named if kind is not None} | {Error}
    _, components = msgspec.json.schema_components(
        sorted(types, key=lambda kind: kind.__name__), ref_template="#/components/schemas/{name}"
    )
    paths: dict[str, Any] = {}
    for route in ROUTES:
        paths.setdefault(f"/v1/my{route.path}", {})[route.method.lower()] = _operation(route)
    paths[public_forms.PATH] = {"post": _submit()}
    paths["/healthz"] = {"get": _healthz()}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Campanero", "version": VERSION, "description": "Email and SMS marketing, self-hosted."},
        "servers": [{"url": config.base_url(config.current())}],
        "security": [{"bearer": []}],
        "paths": paths,
        "webhooks": {"event": {"post": _told()}},
        "components": {
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer", "description": "an API key"}},
            "schemas": {name: _mend(schema) for name, schema in components.items()},
        },
    }


def _mend(schema: Any) -> Any:
    """Say of moments that they are text: inside they are whole numbers, on the wire they never are."""
    if isinstance(schema, list):
        return [_mend(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    mended = {key: _mend(value) for key, value in schema.items()}
    if mended.get("format") == "date-time":
        mended["type"] = "string"
    return mended


def _ref(kind: type[Struct]) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{kind.__name__}"}


def _operation(route: Route) -> dict[str, Any]:
    named = route.path.replace("{id}", "by_id").replace(f"{{{route.second_id}}}", f"by_{route.second_id}")
    words = named.strip("/").replace("/", "_").replace(".", "_")
    success = _success(route)
    operation: dict[str, Any] = {
        "operationId": f"{route.method.lower()}_{words}",
        "summary": route.summary.rstrip("."),
        "tags": [route.path.strip("/").partition("/")[0]],
        "description": f"Scope: `{route.scope}`.",
    }
    parameters = _parameters(route)
    if parameters:
        operation["parameters"] = parameters
    if route.reads is not None:
        operation["requestBody"] = {
            "required": route.body_required,
            "content": {"application/json": {"schema": _ref(route.reads)}},
        }
    if route.form is not None:
        operation["requestBody"] = {"required": True, "content": {"multipart/form-data": {"schema": _form(route.form)}}}
    operation["responses"] = {
        **{str(status): success for status in (route.status, *route.also)},
        **{str(status): _error(_ERRORS[status]) for status in _errors(route)},
    }
    return operation


def _bytes(kind: str) -> dict[str, Any]:
    is_text = kind.startswith("text/") or kind.endswith("jsonl")
    return {"type": "string"} if is_text else {"type": "string", "format": "binary"}


def _success(route: Route) -> dict[str, Any]:
    if route.media is not None:
        kinds = [kind for kind in (route.media, route.or_media) if kind is not None]
        return {"description": "Success", "content": {kind: {"schema": _bytes(kind)} for kind in kinds}}
    assert route.returns is not None
    schema = {"type": "array", "items": _ref(route.returns)} if route.many else _ref(route.returns)
    success: dict[str, Any] = {"description": "Success", "content": {"application/json": {"schema": schema}}}
    if route.many:
        success["headers"] = {
            name: {"description": text, "schema": {"type": "integer"}} for name, text in _PAGE_HEADERS.items()
        }
    return success


def _form(kind: type[Struct]) -> dict[str, Any]:
    """Describe a multipart body: one file, and the texts beside it."""
    file = {"type": "object", "properties": {"file": {"type": "string", "format": "binary"}}, "required": ["file"]}
    return {"allOf": [file, _ref(kind)]}


def _errors(route: Route) -> list[int]:
    found = [401, 403, 429, 500, 503]
    if route.has_id:
        found.append(404)
    if route.reads is not None or route.form is not None:
        found += [400, 413, 415]
    if route.reads is not None or route.query is not None or route.method == "POST":
        found.append(422)
    if route.method in ("DELETE",):
        found.append(422)
    if route.method == "PATCH" or route.idempotent:
        found.append(409)
    return sorted(set(found))


def _error(text: str) -> dict[str, Any]:
    return {"description": text, "content": {"application/json": {"schema": _ref(Error)}}}


def _parameters(route: Route) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for name in filter(None, ("id" if route.has_id else None, route.second_id)):
        found.append({"name": name, "in": "path", "required": True, "schema": {"type": "integer", "minimum": 1}})
    if route.idempotent:
        schema = {"type": "string", "minLength": 1, "maxLength": 255}
        found.append({"name": "Idempotency-Key", "in": "header", "required": False, "schema": schema})
    for info in struct_fields(route.query) if route.query is not None else ():
        schema = msgspec.json.schema(info.type)
        if info.default not in (NODEFAULT, UNSET):
            schema["default"] = info.default
        found.append({"name": info.encode_name, "in": "query", "required": False, "schema": schema})
    return found


def _submit() -> dict[str, Any]:
    """Describe how a form is submitted, by whoever has its public key."""
    text = {"type": "string"}
    asked = dict.fromkeys(("email", "phone", "first_name", "last_name", "website"), text)
    body = {"schema": {"type": "object", "properties": {**asked, "data": {"type": "object"}}}}
    accepted = {"type": "object", "properties": {"accepted": {"const": True}}, "required": ["accepted"]}
    kinds = ("application/json", "application/x-www-form-urlencoded")
    return {
        "operationId": "submit_form",
        "summary": "Submit a form",
        "tags": ["forms"],
        "description": "Needs no credential. The answer is the same whether an address is known or not. `website` "
        "stays empty. Pages of the form's `origins` may read the answer.",
        "security": [],
        "parameters": [{"name": "public_key", "in": "path", "required": True, "schema": text}],
        "requestBody": {"required": True, "content": dict.fromkeys(kinds, body)},
        "responses": {
            "202": {"description": "Accepted", "content": {"application/json": {"schema": accepted}}},
            "303": {"description": "To the form's `redirect_url`, from a form of a browser"},
            **{str(status): _error(_ERRORS[status]) for status in (400, 404, 413, 415, 422, 429, 500, 503)},
        },
    }


def _told() -> dict[str, Any]:
    """Describe what a webhook is sent; whoever listens answers."""
    names = {
        "webhook-id": "the same for every attempt of a delivery", "webhook-timestamp": "of this attempt, in seconds",
        "webhook-signature": "`v1,` and the base64 HMAC-SHA256 of `id.timestamp.body`; several, with spaces between",
    }  # fmt: skip
    return {
        "operationId": "event_happened",
        "summary": "An event that a webhook asked for",
        "description": "Signed as standardwebhooks.com says; the key is what follows `whsec_`, base64-decoded. "
        "Events may arrive more than once and in another order. What is not taken within 5 seconds is tried again "
        "after 30 s, 1, 2, 5, 15, 30 min, 1, 2, 6 and 24 h, later if `Retry-After` asks for it.",
        "security": [],
        "parameters": [
            {"name": name, "in": "header", "required": True, "description": text, "schema": {"type": "string"}}
            for name, text in names.items()
        ],
        "requestBody": {"required": True, "content": {"application/json": {"schema": _ref(shapes.Event)}}},
        "responses": {
            "2XX": {"description": "Taken"}, "410": {"description": "Gone for good: the webhook is switched off"},
            "default": {"description": "Not taken"},
        },
    }  # fmt: skip


def _healthz() -> dict[str, Any]:
    schema = {"type": "object", "properties": {"status": {"type": "string"}}, "required": ["status"]}
    return {
        "operationId": "get_healthz",
        "summary": "Say whether the service can read and write",
        "security": [],
        "responses": {
            "200": {"description": "It can", "content": {"application/json": {"schema": schema}}},
            "503": _error(_ERRORS[503]),
        },
    }
