"""What the document says of signing in and out (docs/decisions.md#2)."""

from typing import Any

from appliance.api import login
from appliance.api.document.operations import ref, shown
from appliance.api.document.responses import EVERY, error, headers
from appliance.api.paths import LOGIN, LOGOUT

KINDS = {login.Login, login.SignedIn}
_JSON = "application/json"
_WHO = {"email": "ann@example.com", "password": "correct horse battery"}
_EXAMPLES = {
    "password": {"summary": "Sign in", "value": _WHO},
    "code": {
        "summary": "Sign in with a second factor, all of it within `user`",
        "value": {"user": {**_WHO, "otp": "123456"}},
    },
}


def paths() -> dict[str, Any]:
    """Return the paths; each has another name below `/v1/my`."""
    return {
        **{path: {"post": _login(number)} for number, path in enumerate(LOGIN)},
        **{path: {"delete": _logout(number)} for number, path in enumerate(LOGOUT)},
    }


def _login(number: int) -> dict[str, Any]:
    asked = ref(login.Login)
    nested = {"type": "object", "properties": {"user": asked}, "required": ["user"]}
    told = {"description": "`Bearer` and the token", "schema": {"type": "string"}}
    return {
        "operationId": "my_login" if number else "login",
        "summary": "Sign in and get a JWT",
        "tags": ["service"],
        "description": "Needs no credential. The token reaches what the role of the person reaches, for twelve hours; "
        "logging out, another password or second factor, and shutting the person out end it at once. 401 "
        "`invalid_credentials`: address, password or code are not right. 401 `otp_required`: they are, and the code "
        "of the second factor is missing. After ten failures in a quarter of an hour, for an address or a client, "
        "429, even if all is right." + (" Another name of `/v1/login`." if number else ""),
        "security": [],
        "requestBody": {
            "required": True, "content": {_JSON: {"schema": {"anyOf": [asked, nested]}, "examples": _EXAMPLES}},
        },
        "responses": {
            "200": {
                "description": "Signed in", "headers": {**headers(*EVERY), "Authorization": told},
                "content": {_JSON: {"schema": ref(login.SignedIn), "examples": shown(login.SignedIn)}},
            },
            **{str(status): error(status) for status in (400, 401, 413, 415, 422, 429, 500, 503)},
        },
    }  # fmt: skip


def _logout(number: int) -> dict[str, Any]:
    return {
        "operationId": "my_logout" if number else "logout",
        "summary": "End the JWT that asks",
        "tags": ["service"],
        "description": "The token opens nothing any more. A key is revoked instead: 403."
        + (" Another name of `/v1/logout`." if number else ""),
        "security": [{"jwt": []}],
        "responses": {
            "204": {"description": "Signed out", "headers": headers(*EVERY)},
            **{str(status): error(status) for status in (401, 403, 422, 429, 500, 503)},
        },
    }
