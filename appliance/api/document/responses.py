"""Answers, headers and parameters that many operations share: each written once, under `components`."""

from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from appliance.api.declare import Route
from appliance.core.fields import PageQuery, declared

# What is refused, and how that is told: the shape of every answer of status 400 and above, its codes and reasons.

Code = Literal[
    "bad_request", "invalid_json", "unauthorized", "invalid_credentials", "otp_required", "forbidden", "not_found",
    "method_not_allowed", "idempotency_conflict", "conflict", "payload_too_large", "unsupported_media_type",
    "validation_error", "rate_limited", "internal_error", "storage_unavailable", "unavailable",
]  # fmt: skip


class Blocked(Struct):
    """One thing that keeps something from being sent."""

    code: Annotated[str, Meta(description="one of the reasons of a refusal; the first blocker's is the `reason`")]
    message: Annotated[str, Meta(description="what is not in order, in words")]
    field: Annotated[str, Meta(description="the field that it is about, as a path; empty if it is about none")]


class Error(Struct, rename={"from_": "from"}):
    """Every answer of status 400 or above.

    The first four keys are always there; `validation_errors` at every 422, where they name all that is wrong at once.
    The others belong to single codes and reasons.
    """

    error: Annotated[Literal[True], Meta(extra_json_schema={"type": "boolean"})]
    code: Annotated[Code, Meta(description="what went wrong, for programs")]
    message: Annotated[str, Meta(description="what went wrong, for people")]
    request_id: Annotated[str, Meta(description="the same as in the header `X-Request-Id`")]
    validation_errors: Annotated[
        dict[str, list[str]],
        Meta(
            description="what is wrong, by its field: a name as it was sent, or a path as `steps[1].yes[0].subject`; "
            "`base` where no field is to blame"
        ),
    ] | UnsetType = UNSET  # fmt: skip
    reason: Annotated[
        str,
        Meta(
            description="why a 422 says no although each field is well formed; of a 429 the limit that was reached: "
            "`burst` (at once) or `minute`; more may follow"
        ),
    ] | UnsetType = UNSET  # fmt: skip
    hint: Annotated[str, Meta(description="where more is said about it")] | UnsetType = UNSET
    required_scope: Annotated[
        str, Meta(description="403: the scope that the credential lacks, one that a key can have")
    ] | UnsetType = UNSET  # fmt: skip
    required_role: Annotated[
        Literal["owner", "admin", "editor", "author", "viewer"],
        Meta(description="403: no scope is enough; the least role whose sign-in may do it"),
    ] | UnsetType = UNSET  # fmt: skip
    blockers: Annotated[
        list[Blocked], Meta(description="everything that keeps it from being sent, the most important first")
    ] | UnsetType = UNSET  # fmt: skip
    status: Annotated[str, Meta(description="`campaign_locked`: the status that it has")] | UnsetType = UNSET
    from_: Annotated[str, Meta(description="`invalid_transition`: the status that it has")] | UnsetType = UNSET
    to: Annotated[str, Meta(description="`invalid_transition`: the status that was asked for")] | UnsetType = UNSET
    allowed: Annotated[
        list[str], Meta(description="`invalid_transition`: the statuses that it may get")
    ] | UnsetType = UNSET  # fmt: skip
    action: Annotated[
        str, Meta(description="`invalid_transition`: the action that was asked for, by the last part of its path")
    ] | UnsetType = UNSET  # fmt: skip
    allowed_actions: Annotated[
        list[str], Meta(description="`invalid_transition` of an action: the actions that it takes now")
    ] | UnsetType = UNSET  # fmt: skip
    limit: Annotated[int, Meta(description="429: how many requests that limit allows")] | UnsetType = UNSET
    message_id: Annotated[int, Meta(description="`recipient_suppressed`: the message that was kept as skipped")] | (
        UnsetType
    ) = UNSET
    skip_reason: Annotated[str, Meta(description="`recipient_suppressed`: why it is skipped")] | UnsetType = UNSET
    used_by: Annotated[
        list[dict[str, Any]], Meta(description="`in_use`: what needs it, each by its id and name")
    ] | UnsetType = UNSET  # fmt: skip
    updated_at: Annotated[
        str, Meta(description="`conflict`: when it was changed since", extra_json_schema={"format": "date-time"})
    ] | UnsetType = UNSET  # fmt: skip


class Refusal(NamedTuple):
    """One way in which a request is refused: when, and a body as an example."""

    when: str
    body: dict[str, Any]


class Status(NamedTuple):
    """One status: its name under `components.responses`, when it is answered, and its refusals by code or reason."""

    name: str
    when: str
    refusals: dict[str, Refusal]
    headers: tuple[str, ...] = ()


def _one(code: Code, when: str, message: str, **more: Any) -> dict[str, Refusal]:
    body = {"error": True, "code": code, "message": message, "request_id": "8f14e45fceea167a", **more}
    return {str(more.get("reason", code)): Refusal(when, body)}


def _invalid(reason: str, when: str, field: str, words: str, **more: Any) -> dict[str, Refusal]:
    """Describe a 422 whose fields are well formed and which a rule forbids."""
    message = words if field == "base" else f"{field} {words}"
    return _one("validation_error", when, message, reason=reason, validation_errors={field: [words]}, **more)


def _blocked(reason: str, when: str, field: str, words: str) -> dict[str, Refusal]:
    blockers = [{"code": reason, "message": words, "field": field}]
    return _invalid(reason, when, field, words, blockers=blockers)


_WRONG = {"email": ["is invalid"], "steps[1].yes[0].subject": ["is too long (maximum is 998 characters)"]}
# The reasons of a 422, in the order in which blockers are told
REASONS: dict[str, Refusal] = {
    **_blocked(
        "audience_required", "a send without list, segment or confirmed \"all\"",
        "trigger_attributes.contact_list_id", "choose who it is for",
    ),
    **_blocked(
        "confirmation_required", "a send to all, or to a segment without filters, that is not confirmed",
        "trigger_attributes.data", "confirm that everybody gets it",
    ),
    **_blocked("content_required", "no subject or no content", "template_attributes.subject", "can't be blank"),
    **_blocked(
        "sender_not_ready",
        "no usable From; on a real transport also a domain that is not verified, or a brand without a postal address",
        "template_attributes.from_email", "is of a domain that is not verified",
    ),
    **_blocked(
        "approval_required", "approval is on, and was not given or was refused", "base", "somebody has to approve it"
    ),
    **_blocked(
        "preflight_failed", "any other blocker: a text that does not render, a section of an unknown kind",
        "template_attributes.body", "does not render",
    ),
    **_invalid(
        "campaign_locked",
        "content, audience, channel or time were to change after the lock; or a completed campaign was to be sent",
        "base", "is locked: duplicate it to change it", status="completed",
    ),
    **_one(
        "validation_error", "a change of state that there is not", "A draft campaign cannot be resumed. "
        "Send it instead.", reason="invalid_transition", validation_errors={"status": ["must be paused"]},
        action="resume", allowed_actions=["send"], **{"from": "draft", "to": "active", "allowed": ["active"]},
    ),
    **_invalid(
        "recipient_suppressed", "a single message to one who may not get it; its row is kept as `skipped`", "to",
        "may not be written to", message_id=991, skip_reason="suppressed_hard_bounce",
    ),
    **_invalid(
        "transactional_disabled", "the account's switch for transactional messages is off", "base",
        "single messages are switched off",
    ),
    **_invalid(
        "in_use", "the thing is needed by an active flow or an armed campaign", "base", "is in use",
        used_by=[{"campaign_id": 12, "name": "Spring"}],
    ),
}  # fmt: skip
_LATE = "repeat the request after `Retry-After` seconds; nothing was done"

STATUSES: dict[int, Status] = {
    400: Status(
        "InvalidJson", "Not JSON", {
            **_one("invalid_json", "the body is not JSON (`NaN` is none), no object, or too deep",
                   "the body is not JSON"),
            **_one("bad_request", "the request cannot be read at all", "the request cannot be read"),
        },
    ),
    401: Status(
        "Unauthorized", "Missing or invalid credential", _one(
            "unauthorized", "the credential is missing, malformed, unknown, revoked or over: one answer for all",
            "a valid API key is needed",
        ), ("WWW-Authenticate",),
    ),
    403: Status(
        "Forbidden", "The credential does not reach this", _one(
            "forbidden", "a scope or a role is missing", "This API key does not have the contacts:write scope.",
            required_scope="contacts:write",
        ),
    ),
    404: Status(
        "NotFound", "Not found",
        _one("not_found", "no such path, or no such thing in this account", "there is nothing here"),
    ),
    405: Status(
        "MethodNotAllowed", "The path does not take that method",
        _one("method_not_allowed", "the path takes others, named in `Allow`", "this path does not take that method"),
        ("Allow",),
    ),
    409: Status(
        "Conflict", "Conflict", {
            **_one("conflict", "it was changed since the `updated_at` that was sent",
                   "it was changed by somebody else since it was read", updated_at="2026-11-20T09:30:00.000Z"),
            **_one("idempotency_conflict", "the same `Idempotency-Key` came with another payload before",
                   "this Idempotency-Key was used for another request"),
        },
    ),
    413: Status(
        "PayloadTooLarge", "The body is too large",
        _one("payload_too_large", "JSON over 2 MiB, an import over 200 MiB, an upload over 5 MiB",
             "the body is too large"),
    ),
    415: Status(
        "UnsupportedMediaType", "Wrong media type", _one(
            "unsupported_media_type", "another Content-Type than the one asked for, or a Content-Encoding",
            "send the body as application/json",
        ),
    ),
    422: Status(
        "ValidationError", "Validation error", {
            **_one("validation_error", "fields are wrong: all of them are named at once",
                   "email is invalid; steps[1].yes[0].subject is too long (maximum is 998 characters)",
                   validation_errors=_WRONG),
            **REASONS,
        }, ("X-Ignored-Fields",),
    ),
    429: Status(
        "RateLimited", "Rate limited",
        _one("rate_limited", "more requests than the rate allows; come back after `Retry-After` seconds",
             "At most 300 of these requests may come at once.", reason="burst", limit=300), ("Retry-After",),
    ),
    500: Status(
        "InternalError", "Internal error", _one("internal_error", "a fault of ours", "something went wrong on our side")
    ),
    503: Status(
        "Unavailable", "Not available now", {
            **_one("storage_unavailable", f"the database cannot be written: {_LATE}", "the disk is full"),
            **_one("unavailable", f"the service is ending or busy with something: {_LATE}",
                   "the service cannot answer now"),
        }, ("Retry-After",),
    ),
}  # fmt: skip


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
