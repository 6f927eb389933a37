"""The declaration of endpoints: a route with its scope, Structs and limits. `dispatch` serves the declared routes.

Validation and the OpenAPI document are derived from the same declarations.
"""

import re
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from msgspec import Struct
from sanic import Request

from appliance.accounts.access import Credential
from appliance.accounts.audit import Actor
from appliance.accounts.request_limits import RequestClass
from appliance.core.aliases import rename_path
from appliance.core.errors import Invalid
from appliance.core.validation import PartialRead
from appliance.storage.transactions import fetch


class ApiRequest(NamedTuple):
    """One authorized API request with its parsed body and query."""

    http: Request
    credential: Credential
    id: int  # the id in the path; 0 if the path has none
    body: Any  # the route's `body_type` with the valid fields; None if the route has no body
    query: Any  # the route's `query_type` with the valid parameters; None if the route has no parameters
    raw: Any  # the decoded JSON of the body
    inner_id: int = 0  # the second id of the path, such as `run_id` of `/flows/{id}/runs/{run_id}`
    parse_result: PartialRead | None = None  # the body with its errors; `body` is its value
    ignored_keys: list[str] = []  # unknown or read-only keys of the body; handlers may add more
    language: str = ""  # the language in the path, as the client wrote it; empty if the path has none

    @property
    def account_id(self) -> int:
        """The id of the credential's account."""
        return self.credential.account_id

    @property
    def actor(self) -> str:
        """The name of the user or API key in consent records and the audit log, such as `user:7`."""
        return self.credential.actor

    @property
    def caller(self) -> Actor:
        """The user or API key as an actor: its permissions, its IP address, and whether it is a test key."""
        credential = self.credential
        approves, sends = credential.has_scope("campaigns:approve"), credential.has_scope("campaigns:send")
        return Actor(
            credential.actor,
            self.http.ctx.client,
            credential.user_id,
            approves,
            credential.is_test,
            sends,
            credential.key_creator_id,
            credential.can_read_contacts,
            credential.is_agent,
            credential.account_id if credential.user_id is not None else None,
        )


class ApiResponse(NamedTuple):
    """The result of a handler: a Struct or a list of Structs; text, bytes or an iterator of bytes for `media` routes.

    Each step of an iterator runs separately on the scanner pool, so a query must not stay open between two steps.
    """

    value: Any
    status: int | None = None  # default: that of the route
    headers: dict[str, str] = {}
    media: str | None = None  # the content type, if it is the route's `alternative_media`


_INNER_ID_PATTERN = re.compile(r"\{(\w+_id)\}")

Handler = Callable[[ApiRequest], Awaitable[ApiResponse]]


class LargeBody(NamedTuple):
    """The limits of a JSON body that may contain files.

    The body has at most `max_bytes`, and without the characters that `count_content` finds in its JSON at most
    `limits.body_bytes`. In the rate limit, the body counts as `count_requests` of its JSON.
    """

    max_bytes: int
    count_content: Callable[[Any], int]
    count_requests: Callable[[Any], int]


class Route(NamedTuple):
    """One declared endpoint. `Routes.add` creates it."""

    method: str
    path: str  # below `/v1/my`, such as `/contacts/{id}`
    handler: Handler
    scope: str
    summary: str
    response_type: type[Struct] | None
    returns_list: bool
    status: int
    body_type: type[Struct] | None
    query_type: type[Struct] | None
    body_required: bool
    other_statuses: tuple[int, ...]  # further success statuses
    idempotent: bool
    media: str | None  # the content type of the response, if it is not JSON
    form_type: type[Struct] | None  # multipart: the fields beside `file`; the handler reads the body itself
    # If a field has an invalid type or value, this function is called for the errors that the handler would find, so
    # that one response lists all errors.
    validate: Callable[[ApiRequest], Awaitable[dict[str, list[str]]]] | None
    alternative_media: str | None = None
    rate: RequestClass = "requests"  # the rate limit that applies (docs/decisions.md#4)
    # True if the endpoint starts or stops sending although its scope is a write scope: roles that may not send, such as
    # authors, get 403.
    changes_sending: bool = False
    has_conflicts: bool = False  # True if the state of the object may forbid the request for now (409)
    large_body: LargeBody | None = None  # set if the body may be larger than `limits.body_bytes`
    # The scope that the key of an agent needs. Without one, the endpoint is closed to agents (docs/decisions.md#25).
    agent_scope: str | None = None
    users_only: bool = False  # True if only a signed-in user may make the request, never an API key
    # The right that a user needs besides the scope: `access.EXPORT_SCOPE` or `access.FULL_SCOPE`, which no key has.
    user_scope: str | None = None

    @property
    def is_agent_act(self) -> bool:
        """Return whether a request of an agent counts as an act: it is in the audit log, and in the limit of acts."""
        return self.agent_scope is not None and self.agent_scope.endswith(":write")

    @property
    def operation_id(self) -> str:
        """The handler's name in camel case, such as `listContacts`: the name of the method in generated clients."""
        first, *others = self.handler.__name__.split("_")
        return first + "".join(word.capitalize() for word in others)

    @property
    def has_id(self) -> bool:
        """Return whether the path contains `{id}`."""
        return "{id}" in self.path

    @property
    def has_language(self) -> bool:
        """Return whether the path contains `{language}`."""
        return "{language}" in self.path

    @property
    def inner_id_name(self) -> str | None:
        """The name of the second id of the path, such as `run_id` of `/flows/{id}/runs/{run_id}`, or None."""
        match = _INNER_ID_PATTERN.search(self.path)
        return match[1] if match else None


class Routes(list[Route]):
    """The endpoints of one module in the order of their declaration."""

    def add(
        self,
        method: str,
        path: str,
        *,
        scope: str,
        response_type: type[Struct] | None = None,
        returns_list: bool = False,
        status: int = 200,
        body_type: type[Struct] | None = None,
        query_type: type[Struct] | None = None,
        body_required: bool = True,
        other_statuses: tuple[int, ...] = (),
        idempotent: bool = False,
        media: str | None = None,
        form_type: type[Struct] | None = None,
        validate: Callable[[ApiRequest], Awaitable[dict[str, list[str]]]] | None = None,
        alternative_media: str | None = None,
        rate: RequestClass = "requests",
        changes_sending: bool = False,
        has_conflicts: bool = False,
        large_body: LargeBody | None = None,
        agent_scope: str | None = None,
        users_only: bool = False,
        user_scope: str | None = None,
    ) -> Callable[[Handler], Handler]:
        """Return a decorator that declares its handler as an endpoint below `/v1/my`.

        The parameters are the fields of `Route`. In the OpenAPI document, the handler's name is the `operationId`,
        which clients depend on; the first line of its docstring is the summary and the rest is the description.
        """

        def register(handler: Handler) -> Handler:
            summary = (handler.__doc__ or "").strip().splitlines()[0]
            self.append(
                Route(
                    method, path, handler, scope, summary, response_type, returns_list, status, body_type, query_type,
                    body_required and body_type is not None, other_statuses, idempotent, media, form_type, validate,
                    alternative_media, rate, changes_sending, has_conflicts, large_body, agent_scope, users_only,
                    user_scope,
                )
            )  # fmt: skip
            return handler

        return register


def name_action(handler: Handler, action: str, noun: str, summary: str) -> None:
    """Give the handler of an action its name and docstring: `ask_approval` of a `flow` is `ask_flow_approval`."""
    verb, *rest = action.split("_")
    handler.__name__, handler.__doc__ = "_".join((verb, noun, *rest)), summary


# If some fields of a request are invalid, the other fields are checked all the same, so that a response lists all
# errors (docs/decisions.md#3).

_BLANK_MESSAGE = "can't be blank"
Check = Callable[[int, Any, Any], Any]
Run = Callable[..., Awaitable[Any]]
_INDEX_PATTERN = re.compile(r"\[(\d+)\]")
# The end of a part of a path, such as both ends in `steps[1].subject`. Longer paths have a key of the client's choice.
_PART_END_PATTERN, _MAX_PATH_CHARACTERS = re.compile(r"[.\[]"), 1_000


def validator(
    check: Check,
    include_base: bool = False,
    either: tuple[str, ...] = (),
    run: Run = fetch,
    access: Callable[[ApiRequest], None] | None = None,
) -> Callable[[ApiRequest], Awaitable[dict[str, list[str]]]]:
    """Return a function for `Route.validate` that runs `check` on the valid part of a request.

    `check` takes the account id, the request body and the id of the path (None without one), and raises Invalid. The
    body is passed to `check` as if its invalid fields had not been sent. Errors of `check` about invalid fields are
    dropped, and so are errors about the request as a whole (`base`) unless `include_base` is set. `either` names keys
    of which a request needs one: if an invalid value was sent for one of them, the others are not reported as missing.
    `run` runs the check; a check that parses templates needs `render` or a similar function of `storage.transactions`.
    `access` is called before `check`, and raises a 403 error if the caller may not make this request.
    """

    async def validate(request: ApiRequest) -> dict[str, list[str]]:
        if access is not None:
            access(request)
        if request.body is None:
            return {}
        try:
            await run(check, request.account_id, request.body, request.id or None)
        except Invalid as error:
            assert request.parse_result is not None  # `body` is not None, so it was parsed.
            return keep_faults_of_readable_fields(request.parse_result, error, include_base, either)
        return {}

    return validate


def keep_faults_of_readable_fields(
    read: PartialRead, error: Invalid, include_base: bool = False, either: tuple[str, ...] = ()
) -> dict[str, list[str]]:  # fmt: skip
    """Return the errors of a check by their path in the request, without those at fields that could not be parsed.

    An error at a list whose invalid entries were removed is left out too, because the removal may be its only cause;
    errors at the remaining entries are returned. `read` is the parse result of the request, and `error` the exception
    of the check of its valid part. `include_base` and `either` have the meaning that `validator` describes.
    """
    invalid_paths = {*read.faults.fields, *([] if include_base else ["base"])}
    is_alternative_sent = not invalid_paths.isdisjoint(either)
    errors = {}
    for path, messages in error.fields.items():
        sent_path = rename_path(_path_in_request(path, read.kept_indexes), read.aliases)
        is_invalid = (
            sent_path in invalid_paths
            or sent_path in read.kept_indexes
            or any(
                sent_path[: end.start()] in invalid_paths
                for end in _PART_END_PATTERN.finditer(sent_path, 0, _MAX_PATH_CHARACTERS)
            )
        )
        if not is_invalid and not (is_alternative_sent and path in either and messages == [_BLANK_MESSAGE]):
            errors[sent_path] = messages
    return errors


def _path_in_request(path: str, kept_indexes: dict[str, list[int]]) -> str:
    """Return a path in the valid part of a request as a path in the original request.

    Invalid list entries were removed before the check, so the indexes differ. `kept_indexes` maps the path of a list to
    the original indexes of the remaining entries.
    """
    sent_path, end = "", 0
    for match in _INDEX_PATTERN.finditer(path):
        sent_path += path[end : match.start()]
        index, end = int(match[1]), match.end()
        sent_path += f"[{kept_indexes[sent_path][index] if sent_path in kept_indexes else index}]"
    return sent_path + path[end:]


# `Routes` does not declare the endpoints for log-in, log-out and form submission. These are their paths.

LOGIN_PATHS = ("/v1/login", "/v1/my/login")
LOGOUT_PATHS = ("/v1/logout", "/v1/my/logout")
FORM_SUBMISSION_PATH = "/v1/public/forms/{public_key}"
