"""What stands beside the account's own endpoints: forms, hooks, health, this document, and what webhooks are told."""

from typing import Any

from appliance.api import service, shapes
from appliance.api.declare import SUBMIT, Route
from appliance.api.document import responses, samples
from appliance.api.document.operations import operation, ref
from appliance.api.document.responses import EVERY, error, headers

# Where providers of one's own tell what became of messages: signed as webhooks are (docs/decisions.md#15).

_JSON = "application/json"
_REFUSALS = (400, 403, 404, 405, 413, 422, 500, 503)
_SIGNED_HOOK = (
    "Open where a secret is set, else 404. Signed as standardwebhooks.com says, as our webhooks are: what is not, or "
    "was signed over five minutes ago, is 403. Each fact counts once, and a status never goes back."
)
_RECEIVED = {"type": "integer", "description": "how many facts were in it"}


def hook_paths(signed: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the hooks, which take the headers of a signature."""
    return {"/hooks/email": {"post": _email(signed)}, "/hooks/sms": {"post": _sms(signed)}}


def _text(words: str, *options: str) -> dict[str, Any]:
    return {"type": "string", "description": words} | ({"enum": list(options)} if options else {})


def _or_null(words: str, *kinds: str) -> dict[str, Any]:
    return {"type": [*(kinds or ("string",)), "null"], "description": words}


def _hook(
    name: str, summary: str, words: str, body: dict[str, Any], examples: dict[str, Any], signed: list[dict[str, Any]]
) -> dict[str, Any]:
    answer = {"type": "object", "properties": {"received": _RECEIVED}, "required": ["received"]}
    return {
        "operationId": name,
        "summary": summary,
        "tags": ["hooks"],
        "description": f"{words} {_SIGNED_HOOK}",
        "security": [],
        "parameters": signed,
        "requestBody": {"required": True, "content": {_JSON: {"schema": body, "examples": examples}}},
        "responses": {
            "200": {"description": "Written down", "headers": headers("X-Request-Id"),
                    "content": {_JSON: {"schema": answer, "examples": {"1": {"value": {"received": 1}}}}}},
            **{str(status): error(status) for status in _REFUSALS},
        },
    }  # fmt: skip


def _email(signed: list[dict[str, Any]]) -> dict[str, Any]:
    body = {
        "type": "object",
        "properties": {
            "type": _text("what happened", "delivered", "bounced", "soft_bounced", "complained"),
            "internet_message_id": _text("the Message-ID of the message"),
            "recipient": _text("the recipient of the message; what is told of anybody else is left out"),
            "diagnostic": _or_null("the words of the server, as `550 5.1.1 no such user`"),
        },
        "required": ["type", "internet_message_id", "recipient"],
    }
    value = {
        "type": "bounced", "internet_message_id": "<991.k3@news.example.com>", "recipient": "jane@example.org",
        "diagnostic": "550 5.1.1 unknown",
    }  # fmt: skip
    return _hook(
        "tell_email", "Tell what became of a mail", "For a relay of one's own.", body,
        {"1": {"summary": "A mail came back", "value": value}}, signed,
    )  # fmt: skip


def _sms(signed: list[dict[str, Any]]) -> dict[str, Any]:
    body = {
        "type": "object",
        "properties": {
            "type": _text(
                "`status`: what became of a message of ours; `message`: what somebody wrote", "status",
                          "message"),
            "id": _or_null("the name that it has where it is told", "string", "integer"),
            "status": _or_null("what became of it"),
            "from": _or_null("who wrote it", "string", "integer"),
            "to": _or_null("to whom", "string", "integer"),
            "body": _or_null("what they wrote"),
            "error": {"description": "why it did not arrive"},
            "answered": _or_null("the keyword that was acted on and answered before it was told"),
        },
        "required": ["type"],
    }  # fmt: skip
    written = {"type": "message", "id": "in-1", "from": "+14155550123", "to": "+15550009999", "body": "Thanks!"}
    examples = {
        "1": {"summary": "An SMS arrived", "value": {"type": "status", "id": "sms-991", "status": "delivered"}},
        "2": {"summary": "Somebody wrote", "value": written},
    }
    return _hook(
        "tell_sms", "Tell what became of an SMS, or what somebody wrote", "For the provider `http`.", body, examples,
        signed,
    )  # fmt: skip


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
        **hook_paths(_signed()),
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
    example = samples.examples_of(f"POST {SUBMIT}")
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
