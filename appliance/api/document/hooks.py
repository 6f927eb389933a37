"""Where providers of one's own tell what became of messages: signed as webhooks are (docs/decisions.md#15)."""

from typing import Any

from appliance.api.document.responses import error, headers

_JSON = "application/json"
_REFUSALS = (400, 403, 404, 405, 413, 422, 500, 503)
_SIGNED = (
    "Open where a secret is set, else 404. Signed as standardwebhooks.com says, as our webhooks are: what is not, or "
    "was signed over five minutes ago, is 403. Each fact counts once, and a status never goes back."
)
_RECEIVED = {"type": "integer", "description": "how many facts were in it"}


def paths(signed: list[dict[str, Any]]) -> dict[str, Any]:
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
        "description": f"{words} {_SIGNED}",
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
