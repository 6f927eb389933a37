"""Endpoints of users, API keys, the audit log, and the signed-in user with their sessions.

docs/decisions.md#2 and docs/decisions.md#5 define the roles, keys and rules.
"""

import asyncio
from typing import Annotated, Any, Literal, cast

from msgspec import UNSET, Meta, Struct, UnsetType

from appliance.accounts import access, audit, devices, login, passwords, request_limits, roles, sessions, users
from appliance.accounts.access import ADMIN_SCOPE, SELF_SCOPE, KeyWrite
from appliance.accounts.audit import AuditQuery
from appliance.accounts.users import Password, Role, UserPatch, UserQuery, UserWrite
from appliance.api import http
from appliance.api.endpoints import ApiRequest, ApiResponse, Routes, keep_faults_of_readable_fields, validator
from appliance.api.http import page_headers
from appliance.api.schemas import Moment
from appliance.core.clock import iso
from appliance.core.errors import Faults, Invalid
from appliance.core.validation import Name, PageQuery
from appliance.storage import models
from appliance.storage.transactions import commit, fetch, fetch_inline


class User(Struct):
    """A user of the account."""

    id: int
    account_id: int
    email: Annotated[
        str, Meta(description="email address that the user signs in with, in lower case; unique in the installation")
    ]
    name: Annotated[str, Meta(description="name shown to other users")]
    role: Annotated[
        Role,
        Meta(
            description="role of the user: viewers read, authors also write, editors also send, admins and "
            "owners may do everything, but only owners manage owners; the id of an own role (`/roles`) as a text"
        ),
    ]
    role_name: Annotated[str, Meta(description="name of an own role; the same as `role` for a built-in one")]
    otp: Annotated[bool, Meta(description="whether signing in requires a second factor")]
    disabled_at: Annotated[Moment, Meta(description="when the user was disabled; null if enabled")] | None
    last_login_at: Annotated[Moment, Meta(description="when the user last signed in; null for never")] | None
    created_at: Moment
    updated_at: Moment


class UserWithPassword(User):
    """A new user. A generated `password` is shown once; `password` is null if the request set the password."""

    password: Annotated[str, Meta(description="generated password; null if the request contained one")] | None


class ApiKey(Struct):
    """An API key without its secret; `hint` is its last four characters."""

    id: int
    account_id: int
    name: Annotated[str, Meta(description="name of the key, such as the program that uses it")]
    hint: Annotated[str, Meta(description="last four characters of the key")]
    scope: Annotated[
        str,
        Meta(
            description="`full`, `read`, `send`, `draft`, or a comma-separated list of scopes, such as "
            "`contacts:write,events:write`"
        ),
    ]
    test: Annotated[
        bool, Meta(description="true for a test key: everything that it sends is captured and counted nowhere")
    ]
    agent: Annotated[bool, Meta(description="true for the key of an AI agent, which reads, drafts and proposes")]
    created_by: (
        Annotated[
            int,
            Meta(
                description="id of the user who created the key; null if it was created on the command line or "
                "the user was deleted"
            ),
        ]
        | None
    )
    last_used_at: Annotated[Moment, Meta(description="when the key was last used; null for never")] | None
    smtp_count: Annotated[int, Meta(description="number of emails that SMTP submission accepted with the key")]
    smtp_last_at: Annotated[Moment, Meta(description="when the last one was accepted; null for never")] | None
    smtp_hourly_limit: Annotated[int, Meta(description="recipients of SMTP submission within an hour; 0: no limit")]
    created_at: Moment


class ApiKeyWithSecret(ApiKey):
    """A new API key. `key` is shown once."""

    key: Annotated[str, Meta(description="key to send after `Bearer`, shown in this response only")]


class AuditEntry(Struct):
    """An entry of the audit log: what an actor, such as `user:7`, did to a subject, such as `campaign:3`."""

    id: int
    account_id: int
    actor: Annotated[str, Meta(description="who did it: `user:7`, `key:3`, `cli`, `recipient`, or `system`")]
    actor_name: Annotated[str, Meta(description="name of the user or key; null if there is none")] | None
    action: Annotated[str, Meta(description="action, such as `campaign_send`")]
    subject: (
        Annotated[str, Meta(description="object of the action, such as `campaign:3`; null if there is none")] | None
    )
    data: Annotated[
        dict[str, Any], Meta(description="details of the action: names and numbers, never a secret or an address")
    ]
    ip: Annotated[str, Meta(description="full IP address; null if unknown")] | None
    created_at: Annotated[Moment, Meta(description="when the action happened")]


def _user_values(row: models.User) -> dict[str, Any]:
    return {
        "id": row.id, "account_id": row.account_id, "email": row.email, "name": row.name,
        "role": row.role, "role_name": fetch_inline(roles.describe_role, row.role),
        "otp": login.has_second_factor(row), "disabled_at": iso(row.disabled_at),
        "last_login_at": iso(row.last_login_at), "created_at": str(iso(row.member.created_at)),
        "updated_at": str(iso(max(row.updated_at, row.member.updated_at))),
    }  # fmt: skip


def serialize_user(row: models.User) -> User:
    """Return the API representation of a user."""
    return User(**_user_values(row))


def serialize_user_with_password(row: models.User, password: str | None) -> UserWithPassword:
    """Return the API representation of a new user; `password` is None unless the password was generated."""
    return UserWithPassword(**_user_values(row), password=password)


def _key_values(row: models.ApiKey) -> dict[str, Any]:
    return {
        "id": row.id, "account_id": row.account_id, "name": row.name, "hint": row.hint, "scope": row.scope,
        "test": row.test, "agent": row.agent, "created_by": row.created_by_id,
        "last_used_at": iso(access.last_used_at(row)),
        "smtp_count": row.smtp_count, "smtp_last_at": iso(row.smtp_last_at),
        "smtp_hourly_limit": access.get_hourly_limit(row.smtp_hourly_limit),
        "created_at": str(iso(row.created_at)),
    }  # fmt: skip


def serialize_key(row: models.ApiKey) -> ApiKey:
    """Return the API representation of an API key without its secret."""
    return ApiKey(**_key_values(row))


def serialize_key_with_secret(row: models.ApiKey, secret: str) -> ApiKeyWithSecret:
    """Return the API representation of a new API key with its secret."""
    return ApiKeyWithSecret(**_key_values(row), key=secret)


def serialize_audit_entry(row: models.Audit, names: dict[str, str]) -> AuditEntry:
    """Return the API representation of an audit log entry; `names` has the names of users and keys by actor."""
    return AuditEntry(
        row.id, row.account_id, row.actor, names.get(row.actor), row.action, row.subject, row.data, row.ip,
        str(iso(row.created_at)),
    )  # fmt: skip


ROUTES = Routes()
_USER_PATH = "/users/{id}"


@ROUTES.add("GET", "/users", scope=ADMIN_SCOPE, query_type=UserQuery, response_type=User, returns_list=True)
async def list_users(request: ApiRequest) -> ApiResponse:
    """List users, newest first."""
    page = await fetch(users.fetch_page, request.account_id, request.query)
    return ApiResponse([serialize_user(row) for row in page.rows], headers=page_headers(page))


@ROUTES.add("POST", "/users", scope=ADMIN_SCOPE, body_type=UserWrite, response_type=UserWithPassword, status=201,
            validate=validator(users.validate_new))  # fmt: skip
async def create_user(request: ApiRequest) -> ApiResponse:
    """Create a user. Without `password`, a password is generated and shown once.

    The email address must be unique in the whole installation.
    """
    request_body: UserWrite = request.body
    await fetch(users.validate_new, request.account_id, request_body)
    given_password = request_body.password if isinstance(request_body.password, str) else None
    secret = users.generate_password() if given_password is None else given_password
    name = request_body.name if isinstance(request_body.name, str) else None
    new_user = await asyncio.to_thread(users.prepare_user, request_body.email, secret, name)
    user = await commit(users.add_member, request.caller, new_user, request_body.role)
    return ApiResponse(serialize_user_with_password(user, secret if given_password is None else None))


@ROUTES.add("GET", _USER_PATH, scope=ADMIN_SCOPE, response_type=User)
async def get_user(request: ApiRequest) -> ApiResponse:
    """Get a user."""
    return ApiResponse(serialize_user(await fetch(users.get, request.account_id, request.id)))


async def _validate_user_update(request: ApiRequest) -> dict[str, list[str]]:
    try:
        await fetch(users.validate_update, request.caller, request.id, request.body)
    except Invalid as error:
        assert request.parse_result is not None  # The route has a body, so it was parsed.
        return keep_faults_of_readable_fields(request.parse_result, error)
    return {}


@ROUTES.add(
    "PATCH", _USER_PATH, scope=ADMIN_SCOPE, body_type=UserPatch, response_type=User, validate=_validate_user_update
)
async def update_user(request: ApiRequest) -> ApiResponse:
    """Update a user. `disabled`, a new password or removing the second factor ends all sessions of the user."""
    changes: UserPatch = request.body
    await fetch(users.validate_update, request.caller, request.id, changes)
    password_hash = None
    if isinstance(changes.password, str):
        password_hash = await asyncio.to_thread(passwords.hash_password, changes.password)

    def write() -> models.User:
        users.update(request.caller, request.id, changes, password_hash)
        if changes.otp is not UNSET:
            login.reset_second_factor(request.caller, request.id)
        return users.get(request.account_id, request.id)

    return ApiResponse(serialize_user(await commit(write)))


@ROUTES.add("DELETE", _USER_PATH, scope=ADMIN_SCOPE, response_type=User)
async def disable_user(request: ApiRequest) -> ApiResponse:
    """Disable a user. The user is kept for the audit log and can be enabled again.

    API keys that the user created keep working; `created_by` of `/api_keys` shows which those are.
    """
    return ApiResponse(serialize_user(await commit(users.disable, request.caller, request.id)))


# An API key can neither create nor revoke API keys (docs/decisions.md#2).


@ROUTES.add("GET", "/api_keys", scope=ADMIN_SCOPE, query_type=PageQuery, response_type=ApiKey, returns_list=True)
async def list_api_keys(request: ApiRequest) -> ApiResponse:
    """List active API keys, newest first."""
    page = await fetch(access.fetch_key_page, request.account_id, request.query)
    return ApiResponse([serialize_key(row) for row in page.rows], headers=page_headers(page))


@ROUTES.add(
    "POST", "/api_keys", scope=ADMIN_SCOPE, body_type=KeyWrite, response_type=ApiKeyWithSecret, status=201,
    validate=validator(access.validate_key),
)  # fmt: skip
async def create_api_key(request: ApiRequest) -> ApiResponse:
    """Create an API key. The key is shown once."""
    key, secret = await commit(access.create_key, request.account_id, request.body, request.caller)
    return ApiResponse(serialize_key_with_secret(key, secret))


@ROUTES.add("DELETE", "/api_keys/{id}", scope=ADMIN_SCOPE, response_type=ApiKey)
async def revoke_api_key(request: ApiRequest) -> ApiResponse:
    """Revoke an API key with immediate effect."""
    return ApiResponse(serialize_key(await commit(access.revoke_key, request.account_id, request.id, request.caller)))


@ROUTES.add("GET", "/audit", scope=ADMIN_SCOPE, query_type=AuditQuery, response_type=AuditEntry, returns_list=True)
async def list_audit_entries(request: ApiRequest) -> ApiResponse:
    """List audit log entries, newest first. Entries are permanent."""
    page = await fetch(audit.fetch_page, request.account_id, request.query)
    names = await fetch(audit.fetch_actor_names, request.account_id)
    return ApiResponse([serialize_audit_entry(row, names) for row in page.rows], headers=page_headers(page))


class CurrentUserPatch(Struct):
    """Changes to the signed-in user. A new `password` requires `current_password`."""

    name: Annotated[Name, Meta(description="name shown to other users")] | UnsetType = UNSET
    password: (
        Annotated[
            Password,
            Meta(description="new password of at least 10 characters; ends all your sessions, including this one"),
        ]
        | UnsetType
    ) = UNSET
    current_password: (
        Annotated[
            str,
            Meta(max_length=passwords.MAX_CHARACTERS),
            Meta(description="current password, required to change it"),
        ]
        | UnsetType
    ) = UNSET


def get_own_id(request: ApiRequest) -> int:
    """Return the id of the signed-in user. The credential is no API key, because no key has the scope `SELF_SCOPE`."""
    assert request.credential.user_id is not None
    return request.credential.user_id


@ROUTES.add("GET", "/user", scope=SELF_SCOPE, response_type=User)
async def get_own_user(request: ApiRequest) -> ApiResponse:
    """Get the signed-in user."""
    return ApiResponse(serialize_user(await fetch(users.get, request.account_id, get_own_id(request))))


async def _validate_own_update(request: ApiRequest) -> dict[str, list[str]]:
    user = await fetch(users.get, request.account_id, get_own_id(request))
    try:
        await _check_password(user, request.body)
    except Invalid as error:
        assert request.parse_result is not None  # The route has a body, so it was parsed.
        return keep_faults_of_readable_fields(request.parse_result, error)
    return {}


@ROUTES.add(
    "PATCH", "/user", scope=SELF_SCOPE, body_type=CurrentUserPatch, response_type=User, validate=_validate_own_update
)
async def update_own_user(request: ApiRequest) -> ApiResponse:
    """Update the signed-in user. A new password ends all sessions, including the current one."""
    changes: CurrentUserPatch = request.body
    user = await fetch(users.get, request.account_id, get_own_id(request))
    password_hash = await _hash_new_password(user, changes)

    def write() -> models.User:
        if isinstance(changes.name, str):
            users.rename(user.id, changes.name, request.caller.ip)
        if password_hash is not None:
            login.require_unchanged(user)
            users.change_password(user.id, password_hash, 0, request.caller.ip)
        return users.get(request.account_id, user.id)

    try:
        return ApiResponse(serialize_user(await commit(write)))
    except login.InvalidCredentials:
        # The password was changed by another request after it was verified.
        raise Invalid({"current_password": ["is incorrect"]}) from None


async def _hash_new_password(user: models.User, changes: CurrentUserPatch) -> str | None:
    """Return the hash of the new password, or None without a new password. Raises the errors of `_check_password`."""
    await _check_password(user, changes)
    return (
        await asyncio.to_thread(passwords.hash_password, changes.password)
        if isinstance(changes.password, str)
        else None
    )


async def _check_password(user: models.User, changes: CurrentUserPatch) -> None:
    """Raise Invalid for a new password of an invalid length, or for a missing or wrong current password.

    Raises RateLimitExceeded after too many wrong current passwords. Does nothing if the request has no new password.
    """
    if not isinstance(changes.password, str):
        return
    faults = Faults()
    try:
        passwords.check_length(changes.password)
    except Invalid as error:
        faults.merge(error.fields)
    if not isinstance(changes.current_password, str):
        faults.add("current_password", "can't be blank")
    elif not await is_own_password(user, changes.current_password):
        faults.add("current_password", "is incorrect")
    faults.check()


async def is_own_password(user: models.User, password: str) -> bool:
    """Return whether a signed-in user sent the right password; raises RateLimitExceeded after too many wrong ones."""
    name = f"own:{user.id}"
    with request_limits.limit_attempt(name) as attempt:
        if not await passwords.verify(user.password_hash, password):
            attempt.fail()
    if not attempt.has_failed:
        request_limits.clear_failures(name)
    return not attempt.has_failed


# A session is the sign-in of a browser (cookie) or of a program (JWT).


class UserSession(Struct):
    """An active session of a user: the sign-in of a browser or of a program."""

    id: int
    kind: Annotated[Literal["browser", "token"], Meta(description="`browser`, or `token` for a program")]
    current: Annotated[bool, Meta(description="whether it is the session of this request")]
    name: Annotated[str, Meta(description="name that the user gave the device; null if the user gave it none")] | None
    method: (
        Annotated[
            str,
            Meta(
                description="how the user signed in: `password`, `password_code`, `password_passkey`, `passkey` or "
                "`invitation`; null if the session began before this was recorded"
            ),
        ]
        | None
    )
    ip: Annotated[str, Meta(description="full IP address from which the user signed in; null if unknown")] | None
    last_ip: (
        Annotated[str, Meta(description="full IP address of the last use; null if it was not used since the sign-in")]
        | None
    )
    user_agent: Annotated[str, Meta(description="User-Agent header at sign-in")] | None
    last_seen_at: Annotated[Moment, Meta(description="when the session was last used, to within five minutes")]
    expires_at: Annotated[
        Moment, Meta(description="when the session expires; a browser session is extended by use, to 30 days at most")
    ]
    created_at: Annotated[Moment, Meta(description="when the user signed in")]


@ROUTES.add(
    "GET", "/user/sessions", scope=SELF_SCOPE, response_type=UserSession, returns_list=True, query_type=PageQuery
)
async def list_own_sessions(request: ApiRequest) -> ApiResponse:
    """List sessions of the signed-in user, newest first."""
    page = await fetch(sessions.fetch_page, get_own_id(request), request.query)
    rows = [_serialize_session(row, request) for row in page.rows]
    return ApiResponse(rows, headers=http.page_headers(page))


class UserSessionPatch(Struct):
    """The name of a session's device, which later sessions from the device have, too."""

    name: (
        Annotated[
            str,
            Meta(max_length=devices.MAX_NAME_CHARACTERS, extra={"line": True}),
            Meta(description="name of the device; null or empty to remove it"),
        ]
        | None
        | UnsetType
    ) = UNSET


@ROUTES.add(
    "PATCH", "/user/sessions/{id}", scope=SELF_SCOPE, body_type=UserSessionPatch, response_type=UserSession
)  # fmt: skip
async def rename_own_session(request: ApiRequest) -> ApiResponse:
    """Name the device of a session of the signed-in user."""
    changes, own_id = cast(UserSessionPatch, request.body), get_own_id(request)
    if changes.name is UNSET:
        row = await fetch(sessions.get, own_id, request.id)
    else:
        row = await commit(sessions.rename, own_id, request.id, changes.name or "", request.caller)
    return ApiResponse(_serialize_session(row, request))


@ROUTES.add("DELETE", "/user/sessions/{id}", scope=SELF_SCOPE, response_type=UserSession)
async def end_own_session(request: ApiRequest) -> ApiResponse:
    """End a session of the signed-in user. Its cookie or token becomes invalid."""
    return ApiResponse(
        _serialize_session(await commit(sessions.revoke, get_own_id(request), request.id, request.caller), request)
    )


def _serialize_session(row: models.Session, request: ApiRequest) -> UserSession:
    kind = cast(Literal["browser", "token"], row.kind)
    return UserSession(
        row.id, kind, row.id == request.credential.session_id, row.device.name if row.device is not None else None,
        row.method, row.ip, row.last_ip, row.user_agent,
        iso(row.last_seen_at) or "", iso(row.expires_at) or "", iso(row.created_at) or "",
    )  # fmt: skip
