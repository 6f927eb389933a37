"""The parts of the OpenAPI document that many operations share: error responses, headers and parameters."""

from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from appliance.api.endpoints import Route
from appliance.core.validation import PageQuery, declared_fields

Code = Literal[
    "bad_request", "invalid_json", "unauthorized", "invalid_credentials", "otp_required", "password_sign_in_off",
    "forbidden", "not_found",
    "method_not_allowed", "idempotency_conflict", "conflict", "payload_too_large",
    "unsupported_media_type", "validation_error", "rate_limited", "internal_error", "storage_unavailable",
    "unavailable",
]  # fmt: skip


class SendBlocker(Struct):
    """A problem that prevents sending."""

    code: Annotated[str, Meta(description="reason code; that of the first blocker is the `reason`")]
    message: Annotated[str, Meta(description="explanation for people")]
    field: Annotated[str, Meta(description="path of the field; empty if there is none")]


class ErrorResponse(Struct, rename={"from_": "from"}):
    """The body of every response with status 400 or above.

    `error`, `code`, `message` and `request_id` are always present; `validation_errors` lists all errors of a 422. The
    other keys depend on the code and reason.
    """

    error: Annotated[
        Literal[True],
        Meta(extra_json_schema={"type": "boolean"}),
        Meta(description="always true"),
    ]
    code: Annotated[Code, Meta(description="error code for programs")]
    message: Annotated[str, Meta(description="explanation for people")]
    request_id: Annotated[str, Meta(description="same as in the header `X-Request-Id`")]
    validation_errors: Annotated[
        dict[str, list[str]],
        Meta(
            description="errors by field: a name as it was sent, or a path such as `steps[1].yes[0].subject`; "
            "`base` for errors of no single field"
        ),
    ] | UnsetType = UNSET  # fmt: skip
    reason: Annotated[
        str,
        Meta(
            description="reason of a 422 whose fields are all valid; for a 429, the limit that was reached: "
            "`burst` or `minute`; more may follow"
        ),
    ] | UnsetType = UNSET  # fmt: skip
    hint: Annotated[str, Meta(description="where to find more information")] | UnsetType = UNSET
    required_scope: Annotated[
        str, Meta(description="403: scope that the credential lacks and that a key can have")
    ] | UnsetType = UNSET  # fmt: skip
    required_role: Annotated[
        Literal["owner", "admin", "editor", "author", "viewer"],
        Meta(description="403: lowest role whose users may do it, if no scope is sufficient"),
    ] | UnsetType = UNSET  # fmt: skip
    blockers: Annotated[
        list[SendBlocker], Meta(description="problems that block sending, most important first")
    ] | UnsetType = UNSET  # fmt: skip
    status: Annotated[str, Meta(description="`campaign_locked`: current status")] | UnsetType = UNSET
    from_: Annotated[str, Meta(description="`invalid_transition`: current status")] | UnsetType = UNSET
    to: Annotated[str, Meta(description="`invalid_transition`: requested status")] | UnsetType = UNSET
    allowed: Annotated[
        list[str], Meta(description="`invalid_transition`: allowed statuses")
    ] | UnsetType = UNSET  # fmt: skip
    action: Annotated[
        str, Meta(description="`invalid_transition`: requested action, the last part of its path")
    ] | UnsetType = UNSET  # fmt: skip
    allowed_actions: Annotated[
        list[str], Meta(description="`invalid_transition` of an action: actions that are allowed now")
    ] | UnsetType = UNSET  # fmt: skip
    limit: Annotated[int, Meta(description="429: number of requests that the limit allows")] | UnsetType = UNSET
    message_id: Annotated[
        int, Meta(description="`recipient_suppressed`: id of the message, which is stored as skipped")
    ] | (UnsetType) = UNSET
    skip_reason: Annotated[str, Meta(description="`recipient_suppressed`: why the message is skipped")] | UnsetType = (
        UNSET
    )
    used_by: Annotated[
        list[dict[str, Any]],
        Meta(
            description="`in_use`: objects that use it, each with its id, such as `campaign_id`, and its `name`; "
            "of an image also the number of `messages`"
        ),
    ] | UnsetType = UNSET  # fmt: skip
    updated_at: Annotated[
        str, Meta(description="`conflict`: when the object was last changed", extra_json_schema={"format": "date-time"})
    ] | UnsetType = UNSET  # fmt: skip


class Refusal(NamedTuple):
    """A kind of error: `when` says in which case it is returned, `body` is an example."""

    when: str
    body: dict[str, Any]


class Status(NamedTuple):
    """An error status: its name in `components.responses`, its description (`when`), and its errors by code or reason.

    `headers` are the headers of the response in addition to the common headers.
    """

    name: str
    when: str
    refusals: dict[str, Refusal]
    headers: tuple[str, ...] = ()


def _refusal(code: Code, when: str, message: str, **more: Any) -> dict[str, Refusal]:
    body = {"error": True, "code": code, "message": message, "request_id": "8f14e45fceea167a", **more}
    return {str(more.get("reason", code)): Refusal(when, body)}


def _invalid(reason: str, when: str, field: str, text: str, **more: Any) -> dict[str, Refusal]:
    """Return a 422 error by its reason, for a request whose fields are valid but which breaks a rule.

    `when` describes that rule; `field` and `text` are the path and message of the error in the example.
    """
    message = text if field == "base" else f"{field} {text}"
    return _refusal("validation_error", when, message, reason=reason, validation_errors={field: [text]}, **more)


def _blocked(reason: str, when: str, field: str, text: str) -> dict[str, Refusal]:
    blockers = [{"code": reason, "message": text, "field": field}]
    return _invalid(reason, when, field, text, blockers=blockers)


_FIELD_ERRORS = {"email": ["is invalid"], "steps[1].yes[0].subject": ["is too long (maximum is 998 characters)"]}
# The reasons of a 422 error. Those of blockers come first, in the order in which blockers are reported.
REASONS: dict[str, Refusal] = {
    **_blocked(
        "audience_required", "the campaign has no list or segment, and sending to all contacts is not confirmed",
        "trigger_attributes.contact_list_id", "choose who it is for",
    ),
    **_blocked(
        "confirmation_required", "sending to all contacts, or to a segment without filters, is not confirmed",
        "trigger_attributes.data", "confirm that everybody gets it",
    ),
    **_blocked("content_required", "subject or content is missing", "template_attributes.subject", "can't be blank"),
    **_blocked(
        "sender_not_ready",
        "the sender is missing or invalid; with a real transport, its domain is not verified or the brand has no "
        "postal address",
        "template_attributes.from_email", "is of a domain that is not verified",
    ),
    **_blocked(
        "approval_required", "approval is required, but missing or rejected", "base", "it has to be approved first"
    ),
    **_blocked(
        "preflight_failed", "another blocker, such as content that does not render or a section of an unknown type",
        "template_attributes.body", "does not render",
    ),
    **_invalid(
        "campaign_locked",
        "content, audience, channel or time of a locked campaign cannot be changed; a completed one cannot be sent",
        "base", "this campaign is locked: duplicate it to change it", status="completed",
    ),
    **_refusal(
        "validation_error", "the action is not allowed in the current status", "A draft campaign cannot be resumed. "
        "Send it instead.", reason="invalid_transition", validation_errors={"status": ["must be paused"]},
        action="resume", allowed_actions=["send"], **{"from": "draft", "to": "active", "allowed": ["active"]},
    ),
    **_invalid(
        "recipient_suppressed", "the recipient of a single message is suppressed; it is stored as `skipped`", "to",
        "may not be written to", message_id=991, skip_reason="suppressed_hard_bounce",
    ),
    **_invalid(
        "transactional_disabled", "transactional messages are disabled in the account", "base",
        "single messages are disabled in this account",
    ),
    **_invalid(
        "in_use", "the object is used by an active flow or a scheduled campaign", "base", "is in use",
        used_by=[{"campaign_id": 12, "name": "Spring"}],
    ),
}  # fmt: skip
_RETRY_DESCRIPTION = "nothing was changed; repeat the request after `Retry-After` seconds"

STATUSES: dict[int, Status] = {
    400: Status(
        "InvalidJson",
        "Invalid JSON",
        {
            **_refusal(
                "invalid_json",
                "the body is not valid JSON (`NaN` is not allowed), not an object, or nested too deeply",
                "The body is not valid JSON.",
            ),
            **_refusal("bad_request", "the request is malformed", "The request is malformed."),
        },
    ),
    401: Status(
        "Unauthorized",
        "Missing or invalid credential",
        _refusal(
            "unauthorized",
            "the credential is missing, malformed, unknown, revoked or expired; the response does not say which",
            "A valid API key is required.",
        ),
        ("WWW-Authenticate",),
    ),
    403: Status(
        "Forbidden",
        "Missing scope or role",
        _refusal(
            "forbidden",
            "the credential lacks a scope or a role",
            "This API key does not have the contacts:write scope.",
            required_scope="contacts:write",
        ),
    ),
    404: Status(
        "NotFound",
        "Not found",
        _refusal("not_found", "the path or the object does not exist in this account", "Not found."),
    ),
    405: Status(
        "MethodNotAllowed",
        "Method not allowed",
        _refusal(
            "method_not_allowed",
            "the path supports only the methods in `Allow`",
            "This path does not support the method.",
        ),
        ("Allow",),
    ),
    409: Status(
        "Conflict",
        "Conflict",
        {
            **_refusal(
                "conflict",
                "the object was changed after the `updated_at` in the request, or an import is still being read",
                "The campaign was changed by another user since it was read.",
                updated_at="2026-11-20T09:30:00.000Z",
            ),
            **_refusal(
                "idempotency_conflict",
                "the `Idempotency-Key` was used before with a different payload",
                "This Idempotency-Key was used for another request.",
            ),
        },
    ),
    413: Status(
        "PayloadTooLarge",
        "Request body too large",
        _refusal(
            "payload_too_large",
            "by default JSON over 2 MiB or an import over 200 MiB; an upload over 5 MiB",
            "The request body is too large.",
        ),
    ),
    415: Status(
        "UnsupportedMediaType",
        "Wrong media type",
        _refusal(
            "unsupported_media_type",
            "the Content-Type is not the required one, or there is a Content-Encoding",
            "Send the body as application/json.",
        ),
    ),
    422: Status(
        "ValidationError",
        "Validation error",
        {
            **_refusal(
                "validation_error",
                "fields are invalid; all errors are listed at once",
                "email is invalid; steps[1].yes[0].subject is too long (maximum is 998 characters)",
                validation_errors=_FIELD_ERRORS,
            ),
            **REASONS,
        },
        ("X-Ignored-Fields",),
    ),
    429: Status(
        "RateLimited",
        "Rate limited",
        _refusal(
            "rate_limited",
            "there were too many requests; retry after `Retry-After` seconds",
            "At most 300 of these requests are allowed at once.",
            reason="burst",
            limit=300,
        ),
        ("Retry-After",),
    ),
    500: Status(
        "InternalError",
        "Internal error",
        _refusal("internal_error", "an unexpected error of the service", "Internal error."),
    ),
    503: Status(
        "Unavailable",
        "Service unavailable",
        {
            **_refusal(
                "storage_unavailable", f"the database cannot be written: {_RETRY_DESCRIPTION}", "the disk is full"
            ),
            **_refusal(
                "unavailable",
                f"the service is shutting down or busy: {_RETRY_DESCRIPTION}",
                "The service is temporarily unavailable.",
            ),
        },
        ("Retry-After",),
    ),
}


_TEXT, _NUMBER = {"type": "string"}, {"type": "integer", "minimum": 0}

_HEADERS: dict[str, tuple[str, dict[str, Any]]] = {
    "X-Request-Id": ("id of the request, also in the log", _TEXT),
    "X-Api-Version": ("version of the API, such as `1.0`", _TEXT),
    "RateLimit-Limit": ("number of requests of this kind per minute for the credential; absent if unlimited", _NUMBER),
    "RateLimit-Remaining": ("number of requests that can be made at once now", _NUMBER),
    "RateLimit-Reset": ("seconds until the full burst is available again", _NUMBER),
    "X-Scopes": ("scopes of the credential: `full`, `read`, `send`, `draft` or a comma-separated list", _TEXT),
    "Retry-After": ("seconds to wait before the next request", _NUMBER),
    "WWW-Authenticate": ("`Bearer`", _TEXT),
    "Allow": ("methods that the path supports", _TEXT),
    "X-Ignored-Fields": (
        "comma-separated keys of the body that are unknown or read-only and were ignored, percent-encoded if they are "
        "not ASCII; absent if there are none", _TEXT,
    ),
    "Idempotent-Replayed": ("`true` in the response to a repeated request", {"const": "true"}),
    "Content-Disposition": ("file name of the download", _TEXT),
    "X-Total-Count": ("total number of records", _NUMBER),
    "X-Total-Pages": ("total number of pages", _NUMBER),
    "X-Page-Number": ("current page number", {"type": "integer", "minimum": 1}),
    "X-Next-Page": ("next page, if there is one", {"type": "integer", "minimum": 2}),
    "X-Prev-Page": ("previous page, if there is one", {"type": "integer", "minimum": 1}),
}  # fmt: skip
PAGING_HEADERS = ("X-Total-Count", "X-Total-Pages", "X-Page-Number", "X-Next-Page", "X-Prev-Page")
_REQUIRED_HEADERS = {"X-Total-Count", "X-Total-Pages", "X-Page-Number", "X-Request-Id"}
COMMON_HEADERS = ("X-Request-Id", "X-Api-Version")
RATE_HEADERS = ("RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset")
# Of responses to an authenticated request
CREDENTIAL_HEADERS = ("X-Scopes", *RATE_HEADERS)
_PAGING_DESCRIPTIONS = {
    "page": "page number, starting at 1",
    "limit": "number of objects per page; above 100 counts as 100",
    "per_page": "same as `limit`, which takes precedence",
    "per": "same as `limit`; both `limit` and `per_page` take precedence",
}


def header_references(*names: str) -> dict[str, Any]:
    """Return references to the headers of `components.headers` with these names."""
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}


def error_reference(status: int) -> dict[str, str]:
    """Return a reference to the response of an error status in `components.responses`."""
    return {"$ref": f"#/components/responses/{STATUSES[status].name}"}


def parameter_reference(name: str) -> dict[str, str]:
    """Return a reference to a parameter in `components.parameters`."""
    return {"$ref": f"#/components/parameters/{name}"}


def is_paging_parameter(kind: type, name: str) -> bool:
    """Return whether a parameter of the query Struct `kind` is a paging parameter, which all lists share."""
    return issubclass(kind, PageQuery) and name in _PAGING_DESCRIPTIONS


def success_headers(route: Route) -> dict[str, Any]:
    """Return references to the headers of an endpoint's success response."""
    names = [*COMMON_HEADERS, *CREDENTIAL_HEADERS]
    if route.returns_list:
        names += PAGING_HEADERS
    if route.method != "GET" and route.form_type is None:
        names.append("X-Ignored-Fields")
    if route.idempotent:
        names.append("Idempotent-Replayed")
    if route.media is not None:
        names.append("Content-Disposition")
    return header_references(*names)


def build_headers() -> dict[str, Any]:
    """Return `components.headers`: every response header with its description and schema."""
    return {
        name: {"description": text, **({"required": True} if name in _REQUIRED_HEADERS else {}), "schema": schema}
        for name, (text, schema) in _HEADERS.items()
    }


def build_responses() -> dict[str, Any]:
    """Return `components.responses`: a response for each error status, with an example for each code and reason."""
    return {kind.name: _build_response(status, kind) for status, kind in STATUSES.items()}


def _build_response(status: int, kind: Status) -> dict[str, Any]:
    examples = {
        name: {"summary": refusal.when, "value": refusal.body} for name, refusal in kind.refusals.items()
    }  # fmt: skip
    rates = () if status in (400, 401, 405, 500, 503) else CREDENTIAL_HEADERS
    return {
        "description": kind.when,
        "headers": header_references(*COMMON_HEADERS, *rates, *kind.headers),
        "content": {
            "application/json": {"schema": {"$ref": "#/components/schemas/ErrorResponse"}, "examples": examples}
        },
    }


def build_parameters() -> dict[str, Any]:
    """Return `components.parameters`: the id in the path, the idempotency key, and the paging parameters."""
    parameters: dict[str, Any] = {
        "id": {
            "name": "id", "in": "path", "required": True, "description": "id of the object",
            "schema": {"type": "integer", "minimum": 1},
        },
        "Idempotency-Key": {
            "name": "Idempotency-Key", "in": "header", "required": False,
            "description": "unique key of the request, 1 to 255 printable characters. A request with the same key and "
            "payload within 7 days has no further effect and returns the first result with 200 and "
            "`Idempotent-Replayed: true`. With a different payload, the response is 409.",
            "schema": {"type": "string", "minLength": 1, "maxLength": 255},
        },
    }  # fmt: skip
    for info in declared_fields(PageQuery):
        schema = msgspec.json.schema(info.type)
        if info.name == "page":
            schema["default"] = info.default
        elif info.name == "limit":
            schema["default"] = PageQuery().size()
        parameters[info.name] = {
            "name": info.name, "in": "query", "required": False, "description": _PAGING_DESCRIPTIONS[info.name],
            "schema": schema,
        }  # fmt: skip
    return parameters
