"""What stands beside the account's own endpoints: forms, hooks, health, this document, and what webhooks are told."""

from typing import Any

from appliance.api import service, shapes
from appliance.api.declare import Route
from appliance.api.document import examples, hooks, responses
from appliance.api.document.operations import operation, ref
from appliance.api.document.responses import EVERY, error, headers
from appliance.api.paths import SUBMIT

JSON = "application/json"
_TEXT = {"type": "string"}
_SIGNED = {
    "webhook-id": "the same for every attempt of a delivery", "webhook-timestamp": "of this attempt, in seconds",
    "webhook-signature": "`v1,` and the base64 HMAC-SHA256 of `id.timestamp.body`; several, with spaces between",
}  # fmt: skip


def paths() -> dict[str, Any]:
    """Return the paths that stand below no account's; most want no credential."""
    return {
        SUBMIT: {"post": _submit()},
        "/openapi.yaml": {"get": _document()},
        "/healthz": {"get": _healthz()},
        "/readyz": {"get": _readyz()},
        **{route.path: {"get": _of_service(route)} for route in service.ROUTES},
        **hooks.paths(_signed()),
    }


def _object(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


def _answers(text: str, schema: dict[str, Any], value: dict[str, Any]) -> dict[str, Any]:
    media = {"schema": schema, "examples": {"1": {"summary": text, "value": value}}}
    return {"description": text, "headers": headers(*EVERY), "content": {JSON: media}}


def _submit() -> dict[str, Any]:
    """Describe how a form is submitted, by whoever has its public key."""
    asked = {
        "email": "the address of whoever signs up; this or `phone`", "phone": "their number, as `+14155550123`",
        "first_name": "first name, where the form asks for it", "last_name": "last name, where the form asks for it",
        "website": "stays empty: no person sees it, and whoever fills it in is no person",
    }  # fmt: skip
    properties: dict[str, Any] = {name: {"type": "string", "description": text} for name, text in asked.items()}
    properties["data"] = {"type": "object", "description": "answers to the form's other fields, by their names"}
    accepted = {"const": True, "description": "that it was taken, which says nothing about the address"}
    body = {"schema": _object(**properties)}
    example = examples.of(f"POST {SUBMIT}")
    kinds = {JSON: {**body, "examples": example}, "application/x-www-form-urlencoded": body}
    return {
        "operationId": "submit_form",
        "summary": "Submit a form",
        "tags": ["forms"],
        "description": "Needs no credential. The answer is the same whether an address is known or not. `website` "
        "stays empty. Pages of the form's `origins` may read the answer.",
        "security": [],
        "parameters": [{
            "name": "public_key", "in": "path", "required": True, "description": "the form's `public_key`",
            "schema": _TEXT,
        }],
        "requestBody": {"required": True, "content": kinds},
        "responses": {
            "202": _answers("Accepted", _object(("accepted",), accepted=accepted), {"accepted": True}),
            "303": {"description": "To the form's `redirect_url`, from a form of a browser"},
            **{str(status): error(status) for status in (400, 404, 413, 415, 422, 429, 500, 503)},
        },
    }  # fmt: skip


def told() -> dict[str, Any]:
    """Describe what a webhook is sent; whoever listens answers."""
    return {
        "operationId": "event_happened",
        "summary": "An event that a webhook asked for",
        "tags": ["webhooks"],
        "description": "Signed as standardwebhooks.com says; the key is what follows `whsec_`, base64-decoded. "
        "Events may arrive more than once and in another order. What is not taken within 5 seconds is tried again "
        "after 30 s, 1, 2, 5, 15, 30 min, 1, 2, 6 and 24 h, later if `Retry-After` asks for it.",
        "security": [],
        "parameters": _signed(),
        "requestBody": {"required": True, "content": {JSON: {"schema": ref(shapes.Event)}}},
        "responses": {
            "2XX": {"description": "Taken"}, "410": {"description": "Gone for good: the webhook is switched off"},
            "default": {"description": "Not taken"},
        },
    }  # fmt: skip


def _signed() -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "header", "required": True, "description": text, "schema": _TEXT}
        for name, text in _SIGNED.items()
    ]


def _document() -> dict[str, Any]:
    answer = {"description": "OpenAPI 3.1", "content": {"application/yaml": {"schema": _TEXT}}}
    return {
        "operationId": "get_openapi",
        "summary": "Get this document",
        "tags": ["service"],
        "description": "Needs no credential.",
        "security": [],
        "responses": {"200": answer, "500": error(500), "503": error(503)},
    }


def _healthz() -> dict[str, Any]:
    status = {"const": "ok", "description": "`ok`, always"}
    return {
        "operationId": "get_healthz",
        "summary": "Say whether the service can read and write",
        "tags": ["service"],
        "description": "Needs no credential.",
        "security": [],
        "responses": {
            "200": _answers("It can", _object(("status",), status=status), {"status": "ok"}),
            "503": error(503),
        },
    }


def _readyz() -> dict[str, Any]:
    status = {"const": "ready", "description": "`ready`, always"}
    return {
        "operationId": "get_readyz",
        "summary": "Say whether the service answers requests and sends",
        "tags": ["service"],
        "description": "Needs no credential. 503 while it starts or ends, while nothing can be stored, and when its "
        "queue does not run; the message says which in one word.",
        "security": [],
        "responses": {
            "200": _answers("It does", _object(("status",), status=status), {"status": "ready"}),
            "503": error(503),
        },
    }


def _of_service(route: Route) -> dict[str, Any]:
    """Describe an endpoint that wants a credential and is no file to save."""
    found = operation(route)
    success = found["responses"]["200"]
    kept = responses.headers(*EVERY[:1], *responses.RATE)
    return {**found, "tags": ["service"], "responses": {**found["responses"], "200": {**success, "headers": kept}}}
