"""Authentication and authorization of API requests, and the log-in endpoints for JWTs (docs/decisions.md#2)."""

import math
import time
from contextlib import suppress
from typing import Annotated, Any

from msgspec import Meta, Struct
from sanic import HTTPResponse, Request

from appliance.accounts import access, app_grants, login, members, sessions
from appliance.accounts import agents as account_agents
from appliance.accounts.access import Credential
from appliance.api import http, oauth, schemas
from appliance.api.endpoints import ApiRequest, Route
from appliance.api.http import ApiError
from appliance.core import crypto, validation
from appliance.core.clock import iso
from appliance.core.errors import Invalid, NotFound, Unavailable
from appliance.core.validation import Id
from appliance.settings import config
from appliance.storage.models import User
from appliance.storage.transactions import commit, fetch, fetch_inline

# No issued API key or token is longer.
_MAX_TOKEN_CHARACTERS = 4096


# By the hash of the Authorization header: the credential of a request for metrics, and when the database confirmed it.
# Metrics show why a database cannot be read, so the endpoint accepts these credentials for a day without the database.
_scrapers: dict[str, tuple[Credential, float]] = {}
_MAX_SCRAPERS, _MAX_SCRAPER_SECONDS = 20, 86_400.0


async def authenticate_scraper(request: Request) -> Credential:
    """Return the credential of a request for metrics; raises as `authenticate`.

    While the database cannot be read, a credential that was confirmed within the last day is accepted without a check.
    """
    token_hash = crypto.hash_secret(request.headers.get("authorization", ""))
    try:
        credential = await authenticate(request)
    except ApiError:
        _scrapers.pop(token_hash, None)
        raise
    except Unavailable:
        last_credential, confirmed_at = _scrapers.get(token_hash, (None, -math.inf))
        if last_credential is None or time.monotonic() > confirmed_at + _MAX_SCRAPER_SECONDS:
            raise
        return last_credential
    if len(_scrapers) >= _MAX_SCRAPERS:
        _scrapers.clear()
    _scrapers[token_hash] = credential, time.monotonic()
    return credential


# The scopes that no API key has, each with the lowest role that has the scope and the error message for other
# credentials.
_SIGN_IN_ONLY = {
    access.ADMIN_SCOPE: ("admin", "Only a signed-in owner or admin may do this."),
    access.SELF_SCOPE: ("viewer", "Only a signed-in user may do this; an API key may not."),
}


async def authenticate(request: Request, agents: bool = False) -> Credential:
    """Return the credential of a request's API key or JWT, and record the use of a session.

    Without `agents`, the key of an agent gets 403, so that an endpoint is closed to agents unless it admits them. A
    call from inside the process (`in_process.py`) has the credential of the request that caused it.

    Raises 403 for the public key of a form. Any other missing or invalid credential raises the same 401 error, which
    does not say what is wrong.
    """
    credential: Credential | None = getattr(request.ctx, "credential", None)
    if credential is not None:
        return credential
    is_mcp, token = request.path.rstrip("/") == app_grants.MCP_PATH, read_bearer_token(request)
    try:
        return await authenticate_token(token, agents, is_mcp)
    except ApiError as error:
        if is_mcp and error.status == 401:
            scopes = sorted(access.AGENT_SCOPES)
            error.headers["WWW-Authenticate"] = oauth.challenge(app_grants.MCP_PATH, scopes, bool(token))
        raise


async def authenticate_token(token: str, agents: bool = False, is_mcp: bool = False) -> Credential:
    """Return the credential of an API key, a JWT or a connected app, and record its use; raises as `authenticate`.

    `is_mcp` is whether the request is for the Model Context Protocol; tokens of some apps are valid only there.
    """
    credential, is_stale = None, False
    if token and len(token) <= _MAX_TOKEN_CHARACTERS:
        credential, is_stale = fetch_inline(_find_credential, token, is_mcp)
    if credential is None:
        if token.startswith(access.PUBLIC_PREFIX):
            raise ApiError(403, "forbidden", "A public key gives access to its form only.")
        raise ApiError(401, "unauthorized", headers={"WWW-Authenticate": "Bearer"})
    if credential.is_agent:
        if not agents:
            raise closed_to_agents_error()
        if fetch_inline(account_agents.is_stopped, credential.account_id):
            raise ApiError(403, "forbidden", "All agents of this account are stopped.", reason="agents_stopped")
    if is_stale and credential.session_id is not None:
        # While the database cannot be written, the time of last use is not updated, but the request is still served.
        with suppress(Unavailable):
            await commit(sessions.touch, credential.session_id)
    return credential


def read_bearer_token(request: Request) -> str:
    """Return the token of the Authorization header, or an empty string."""
    header = request.headers.getall("authorization", [])
    scheme, _, token = header[0].partition(" ") if len(header) == 1 else ("", "", "")
    return token.strip() if scheme.lower() == "bearer" else ""


def has_access(request: Request, admitted: Credential) -> bool:
    """Return whether the credential of a request still has all rights that it was admitted with.

    All scopes are compared, because a handler may require more than the scope of its route. False too if contact data
    is masked for the credential now and was not when it was admitted.
    """
    current, _ = _find_credential(read_bearer_token(request), request.path.rstrip("/") == app_grants.MCP_PATH)
    if current is None or current.is_agent or current.account_id != admitted.account_id:
        return False
    return admitted.scopes <= current.scopes and (admitted.is_masked or not current.is_masked)


def _find_credential(token: str, is_mcp: bool) -> tuple[Credential | None, bool]:
    """Return the credential of an API key or token, and whether the time of last use of its session must be updated.

    The credential is None if the key or token is not valid.
    """
    if token.startswith(app_grants.ACCESS_PREFIX):
        return app_grants.find_credential(token, is_mcp, config.current()), False
    key = access.find_credential(token)
    if key is not None or token.count(".") != 2:
        return key, False
    session = sessions.find_by_token(token)
    return (session.credential, session.needs_touch) if session is not None else (None, False)


def require_route_access(credential: Credential, route: Route) -> None:
    """Raise a 403 error unless the credential has the scope of the route.

    A user whose role may not send also gets 403 if the route has `changes_sending`, and an API key if the route is for
    users. An agent gets 403 unless the route is open to agents, and needs its `agent_scope`.
    """
    if credential.is_agent:
        if route.agent_scope is None:
            raise closed_to_agents_error()
        require_scope(credential, route.agent_scope)
        return
    if route.users_only and credential.user_id is None:
        raise ApiError(403, "forbidden", _SIGN_IN_ONLY[access.SELF_SCOPE][1], required_role="editor")
    if not credential.has_scope(route.scope):
        if route.scope in _SIGN_IN_ONLY:
            role, message = _SIGN_IN_ONLY[route.scope]
            raise ApiError(403, "forbidden", message, required_role=role)
        raise missing_scope_error(credential, route.scope)
    if route.changes_sending and credential.role is not None and not credential.has_scope("campaigns:send"):
        raise missing_scope_error(credential, "campaigns:send")
    if route.user_scope is not None and credential.role is not None and route.user_scope not in credential.scopes:
        raise missing_scope_error(credential, route.user_scope)


def closed_to_agents_error() -> ApiError:
    """Return the 403 error for an agent at an endpoint that is closed to agents."""
    return ApiError(403, "forbidden", "This endpoint is closed to agents.", reason="closed_to_agents")


def require_scope(credential: Credential, scope: str) -> None:
    """Raise a 403 error unless the credential has the scope."""
    if not credential.has_scope(scope):
        raise missing_scope_error(credential, scope)


def require_contacts_scope(request: ApiRequest) -> None:
    """Raise a 403 error without the scope `contacts:read`, for a request whose response shows data of contacts.

    The same error is raised if contact data is masked for the credential, because the response could reveal it in
    another way.
    """
    require_scope(request.credential, "contacts:read")
    if request.credential.is_masked:
        raise ApiError(403, "forbidden", "Contact data is masked for this role.", required_scope=access.FULL_SCOPE)


def require_contacts_scope_of_test_key(request: ApiRequest) -> None:
    """Raise a 403 error for a test key without the scope `contacts:read`, for a request that sends to contacts.

    Messages of a test key are captured and not delivered, but their outcome (sent or skipped, number of SMS parts)
    depends on the contact's values. Without the scope, a key could read these values by repeated tests (T45 in
    docs/threats.md).
    """
    if request.credential.is_test:
        require_contacts_scope(request)


def require_access_to_named_contact(request: ApiRequest) -> None:
    """Raise a 403 error if the body has a `contact_id` and the credential lacks the scope `contacts:read`.

    For requests that render content with the contact's values (docs/decisions.md#2).
    """
    if request.body is not None and request.body.contact_id:
        require_contacts_scope(request)


def missing_scope_error(credential: Credential, scope: str) -> ApiError:
    """Return the 403 error for a missing scope."""
    role = credential.role
    subject = "This API key" if role is None else f"The role {role}" if role in access.ROLES else "Your role"
    return ApiError(403, "forbidden", f"{subject} does not have the {scope} scope.", required_scope=scope)


# The body of a log-in has an email address, a password and a code, which together take far fewer bytes.
_MAX_LOGIN_BYTES = 65_536


class Login(Struct):
    """The credentials of a user, at the top level or within `user`."""

    email: Annotated[str, Meta(max_length=254, extra={"filled": True}), Meta(description="email address")]
    password: Annotated[str, Meta(max_length=1024, extra={"filled": True}), Meta(description="password")]
    otp: (
        Annotated[
            str,
            Meta(max_length=64),
            Meta(description="code of the second factor or a recovery code; required if a second factor is set up"),
        ]
        | None
    ) = None
    account_id: (
        Annotated[
            Id,
            Meta(
                description="account that the token is for, if the user is in several; default: the one with the "
                "smallest id"
            ),
        ]
        | None
    ) = None


class LoginOfUser(Struct):
    """The credentials of a user, nested in the key `user`."""

    user: Login


class SignedInUser(Struct):
    """The user who signed in, to whom a new token belongs."""

    id: int
    email: Annotated[str, Meta(description="email address")]
    name: str
    role: Annotated[str, Meta(description="role of the user: a built-in name, or the id of an own role")]


class SignedIn(Struct):
    """A new JWT. It is shown once, here and in the `Authorization` header."""

    token: Annotated[str, Meta(description="JWT, shown in this response only")]
    expires_at: Annotated[schemas.Moment, Meta(description="when the token expires")]
    user: Annotated[SignedInUser, Meta(description="the user who signed in")]


async def log_in(request: Request) -> HTTPResponse:
    """Handle a log-in: return a new JWT for an email address, a password and, if required, a code.

    Raises ApiError 401 for wrong credentials or a missing code, 413 for a large body, and RateLimitExceeded after too
    many failures.
    """
    if len(request.body) > _MAX_LOGIN_BYTES:
        raise ApiError(413, "payload_too_large")
    credentials = _parse_login(http.parse_json_object(request, request.body))
    try:
        user = await login.sign_in(credentials.email, credentials.password, credentials.otp, request.ctx.client)
        user = await fetch(_bind_account, user, credentials.account_id)
        agent = request.headers.get("user-agent")
        method: sessions.Method = "password_code" if login.has_second_factor(user) else "password"
        issued = await commit(login.issue_token, user, request.ctx.client, agent, method)
    except (login.InvalidCredentials, login.CodeRequired, login.PasswordSignInOff) as error:
        raise ApiError(401, error.code, error.message, {"WWW-Authenticate": "Bearer"}) from None
    signed_in_user = SignedInUser(user.id, user.email, user.name, user.role)
    response = SignedIn(issued.token, iso(issued.expires_at) or "", signed_in_user)
    return http.json_response(response, 200, {"Authorization": f"Bearer {issued.token}", "Cache-Control": "no-store"})


def _bind_account(user: User, account_id: int | None) -> User:
    """Load the account that the token of a person is for; raises Invalid if the person may not sign in to it.

    The account that the person opens in a browser does not change that of a program.
    """
    rows = members.list_of(user.id)
    member = next((row for row in rows if account_id in (None, row.account_id)), None)
    if member is None:
        raise Invalid({"account_id": ["must exist"]})
    user.member = member
    return user


def _parse_login(raw: dict[str, Any]) -> Login:
    """Return the credentials, which may be nested in the key `user`. Raises Invalid with all errors."""
    if "user" in raw:
        return validation.read(LoginOfUser, raw).user
    return validation.read(Login, raw)


async def log_out(request: Request) -> HTTPResponse:
    """Handle a log-out: end the session of the request's JWT.

    Raises ApiError 401 without a valid credential, or if another request has ended the session meanwhile, and 403 for
    an API key, which has no session.
    """
    credential = await authenticate(request)
    if credential.session_id is None or credential.user_id is None:
        raise ApiError(403, "forbidden", "API keys have no session; revoke the key instead.", required_role="viewer")
    try:
        await commit(_end_session, credential.user_id, credential.session_id)
    except NotFound:
        # Another request ended the session after this one was authenticated.
        raise ApiError(401, "unauthorized", headers={"WWW-Authenticate": "Bearer"}) from None
    return HTTPResponse(b"", 204)


def _end_session(user_id: int, session_id: int) -> None:
    sessions.end(sessions.get(user_id, session_id))
