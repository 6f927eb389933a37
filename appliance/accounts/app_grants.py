"""Connected apps: programs that act for a user by OAuth 2.1, with authorization codes, access and refresh tokens.

Each connected app has its own API key of an agent (`AppGrant.api_key`), whose secret is discarded. So the app is in the
audit log by its name, has the limit of acts of an agent, and stops with all agents. The app's tokens are stored as
hashes and looked up at each request, so that an app ends at once. The scopes of a token are computed at each request:
those that the user granted, that an agent may have, and that the user's role has now.

docs/decisions.md#28-connected-apps; draft-ietf-oauth-v2-1; RFC 7636 (PKCE), 7009 (revocation), 8707 (resource).
"""

import base64
import hashlib
import hmac
import re
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from appliance.accounts import access, app_clients, audit, members
from appliance.accounts.access import Credential, KeyWrite
from appliance.accounts.app_clients import Client
from appliance.accounts.audit import Actor
from appliance.core import clock, crypto
from appliance.core.errors import NotFound
from appliance.settings import config
from appliance.settings.schema import Config
from appliance.storage.database import fetch_one, rows
from appliance.storage.models import ApiKey, AppCode, AppGrant, AppToken, User
from appliance.storage.transactions import require_write_transaction

ACCESS_PREFIX, REFRESH_PREFIX, CODE_PREFIX = "camp_app_", "camp_ref_", "camp_code_"
MCP_PATH = "/mcp"
CODE_MS = 120_000
ACCESS_TOKEN_MS = 3_600_000
# An app that is not used for this time has to be connected again.
REFRESH_TOKEN_MS = 30 * clock.DAY_MS
MAX_APPS_PER_USER = 50
MAX_STATE_CHARACTERS = 2_000
_USED_CODE_MS = clock.DAY_MS
_MAX_CONSENT_MS = 30 * 60 * 1000
_SECRET_CHARACTERS = 43  # of base62: 256 bits
_CHALLENGE = re.compile("[A-Za-z0-9_-]{43}")  # base64url of a SHA-256 (RFC 7636, section 4.2)
_VERIFIER = re.compile("[A-Za-z0-9._~-]{43,128}")
_CONSENT_PURPOSE = "connected app"
# The scope that a role must have for a scope that only agents have.
_ROLE_SCOPES = {"segments:write": "contacts:write", "proposals:write": "campaigns:write"}


class Refusal(NamedTuple):
    """Why a request is rejected: a code of RFC 6749, section 5.2, or RFC 8707, and a sentence for a developer.

    The refusal is returned and not raised, because the rejected request may have ended an app, and this must be
    committed.
    """

    error: str
    description: str


INVALID_GRANT = Refusal("invalid_grant", "The code or refresh token is invalid, has expired, or was used before.")
_INVALID_TARGET = Refusal("invalid_target", "The resource is not the one of the authorization request.")


class IssuedTokens(NamedTuple):
    """New tokens of an app, which are not stored and cannot be shown again."""

    access_token: str
    refresh_token: str
    expires_in: int  # seconds until the access token expires
    scope: str  # separated by spaces


class AuthorizationRequest(Struct, frozen=True):
    """A valid request of a program to be connected; the consent page keeps it in a sealed field."""

    client_id: str
    client_name: str
    client_host: str  # that of its metadata document; "" if it registered itself
    redirect_uri: str
    state: str | None
    challenge: str
    scopes: list[str]
    resource: str


class AuthorizationFault(NamedTuple):
    """Why an authorization request is rejected.

    With `is_returnable`, the error is returned to the program's redirect URI; else only the user sees it, because the
    redirect URI or the state of the request cannot be used.
    """

    error: str
    description: str
    is_returnable: bool


def is_available(settings: Config) -> bool:
    """Return whether programs can be connected: the base URL is https, or of this computer itself."""
    return config.is_https(settings) or config.base_host(settings) in config.LOOPBACK


def issuer(settings: Config) -> str:
    """Return the issuer identifier (RFC 8414), which is the base URL."""
    return config.base_url(settings)


def list_resources(settings: Config) -> tuple[str, str]:
    """Return the resources that tokens can be for: the Model Context Protocol, and the whole API including it."""
    base = config.base_url(settings)
    return base + MCP_PATH, base


def find_resource(stated: str | None, settings: Config) -> str | None:
    """Return the resource that a program names (RFC 8707), or None if it is not of this service.

    Without one it is that of the Model Context Protocol. The case of scheme and host and a final slash do not matter.
    """
    if stated is None:
        return list_resources(settings)[0]
    if len(stated) > app_clients.MAX_URL_CHARACTERS or "#" in stated:
        return None
    try:
        parts = urlsplit(stated)
    except ValueError:
        return None
    normal = parts._replace(scheme=parts.scheme.lower(), netloc=parts.netloc.lower()).geturl().removesuffix("/")
    return normal if normal in list_resources(settings) else None


def limit_scopes(scopes: set[str] | frozenset[str], role: str) -> list[str]:
    """Return those of `scopes` that an agent of a user with this role may have, sorted.

    A write scope includes the read scope of its area.
    """
    closed = scopes | {f"{scope[:-6]}:read" for scope in scopes if scope.endswith(":write")}
    granted = access.role_scopes(role)
    return sorted(scope for scope in closed & access.AGENT_SCOPES if _ROLE_SCOPES.get(scope, scope) in granted)


def read_authorization(
    client: Client, parameters: dict[str, str], role: str, settings: Config
) -> AuthorizationRequest | AuthorizationFault:
    """Return the request of a program in the parameters of the authorization endpoint, or why it is rejected.

    PKCE with S256 is required, and the redirect URI must be one of the program's. Scopes that are unknown or that an
    agent of a user with this role cannot have are left out; without `scope`, it asks for all.
    """
    redirect_uri = parameters.get("redirect_uri")
    if redirect_uri is None and len(client.redirect_uris) == 1:
        redirect_uri = client.redirect_uris[0]
    if redirect_uri is None or not app_clients.allows_redirect(client, redirect_uri):
        return AuthorizationFault("invalid_request", "The redirect_uri is not one of the app's.", False)
    state = parameters.get("state")
    if state is not None and len(state) > MAX_STATE_CHARACTERS:
        return AuthorizationFault("invalid_request", f"state has more than {MAX_STATE_CHARACTERS} characters.", False)
    if parameters.get("response_type") != "code":
        return AuthorizationFault("unsupported_response_type", "response_type must be code.", True)
    if parameters.get("response_mode", "query") != "query" or "request" in parameters or "request_uri" in parameters:
        return AuthorizationFault("invalid_request", "Only response_mode=query, without request objects.", True)
    challenge = parameters.get("code_challenge", "")
    if parameters.get("code_challenge_method") != "S256" or not _CHALLENGE.fullmatch(challenge):
        return AuthorizationFault("invalid_request", "PKCE with code_challenge_method=S256 is required.", True)
    resource = find_resource(parameters.get("resource"), settings)
    if resource is None:
        return AuthorizationFault("invalid_target", "The resource is not of this service.", True)
    requested = set(parameters["scope"].split()) if parameters.get("scope", "").strip() else set(access.AGENT_SCOPES)
    scopes = limit_scopes(requested, role)
    if not scopes:
        return AuthorizationFault("invalid_scope", "No scope that an agent of this user may have.", True)
    return AuthorizationRequest(
        client.client_id, client.name, client.host, redirect_uri, state, challenge, scopes, resource
    )


def seal_request(request: AuthorizationRequest, session_id: int, account_id: int) -> str:
    """Return a request as a text for a form; only this session can read or post it, and it cannot be changed.

    It is for the account that the page names: another one may be open when the form is posted.
    """
    content = msgspec.json.encode((clock.now_ms(), request))
    return base64.urlsafe_b64encode(crypto.seal(_consent_key(), f"{session_id} {account_id}", content)).decode()


def open_request(text: str, session_id: int, account_id: int) -> AuthorizationRequest | None:
    """Return the request of `seal_request`.

    None if it is of another session or account, changed, or older than 30 minutes.
    """
    try:
        content = crypto.unseal(_consent_key(), f"{session_id} {account_id}", base64.urlsafe_b64decode(text))
    except ValueError:
        return None
    if content is None:
        return None
    sealed_at, request = msgspec.json.decode(content, type=tuple[int, AuthorizationRequest])
    return request if 0 <= clock.now_ms() - sealed_at <= _MAX_CONSENT_MS else None


def _consent_key() -> bytes:
    return crypto.derive_key(_CONSENT_PURPOSE)


def count_apps(user_id: int) -> int:
    """Return how many apps a user has connected."""
    return int(_live_grants().where(AppGrant.user == user_id).count())


def issue_code(user: User, request: AuthorizationRequest, scopes: list[str]) -> str:
    """Return a new authorization code for a request that a user approved, with some of the scopes it asked for.

    The code is for the account that the user was loaded with. It works once, within `CODE_MS`. Nothing is connected
    before it is exchanged.
    """
    require_write_transaction()
    code = CODE_PREFIX + crypto.random_base62(_SECRET_CHARACTERS)
    AppCode.create(
        code_hash=crypto.hash_secret(code), user=user, account=user.account_id, client_id=request.client_id,
        client_name=request.client_name,
        redirect_uri=request.redirect_uri, challenge=request.challenge, scope=" ".join(scopes),
        resource=request.resource, expires_at=clock.now_ms() + CODE_MS,
    )  # fmt: skip
    return code


def is_known(secret: str) -> bool:
    """Return whether a code or token is stored, whatever its state: guesses are rejected without a write."""
    value = (crypto.hash_secret(secret),)
    return any(
        fetch_one(statement, value) is not None
        for statement in ("SELECT 1 FROM app_token WHERE token_hash = ?", "SELECT 1 FROM app_code WHERE code_hash = ?")
    )


def exchange_code(parameters: dict[str, str], ip: str, settings: Config) -> IssuedTokens | Refusal:
    """Connect the app of an authorization code and return its first tokens, or why the request is rejected.

    A code is used up by the first request with it, even if that is rejected. A second use ends the app that the first
    one connected (draft-ietf-oauth-v2-1, section 4.1.3).
    """
    require_write_transaction()
    code = AppCode.get_or_none(AppCode.code_hash == crypto.hash_secret(parameters.get("code", "")))
    if code is None:
        return INVALID_GRANT
    now = clock.now_ms()
    if code.used_at is not None:
        if code.grant is not None:
            _end(code.grant, Actor(f"key:{code.grant.api_key_id}", ip), "code_reuse")
        return INVALID_GRANT
    AppCode.update(used_at=now).where(AppCode.id == code.id).execute()
    user = members.find_active(code.account_id, code.user_id)
    if user is None or code.expires_at <= now or code.client_id != parameters.get("client_id"):
        return INVALID_GRANT
    if parameters.get("redirect_uri", code.redirect_uri) != code.redirect_uri:
        return Refusal("invalid_grant", "The redirect_uri is not the one of the authorization request.")
    if not _matches_challenge(parameters.get("code_verifier", ""), code.challenge):
        return Refusal("invalid_grant", "The code_verifier does not match.")
    if not _is_for(code.resource, parameters, settings):
        return _INVALID_TARGET
    scopes = limit_scopes(set(code.scope.split()), user.role)
    if not scopes:
        return INVALID_GRANT
    grant = _connect(code, user, scopes, ip)
    AppCode.update(grant=grant).where(AppCode.id == code.id).execute()
    return _issue_tokens(grant, scopes, None)


def _matches_challenge(verifier: str, challenge: str) -> bool:
    """Return whether a verifier belongs to a challenge (RFC 7636, section 4.6)."""
    if not _VERIFIER.fullmatch(verifier):
        return False
    digest = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=")
    return hmac.compare_digest(digest, challenge.encode())


def _is_for(resource: str, parameters: dict[str, str], settings: Config) -> bool:
    """Return whether a token request names the resource that it was granted for, or none (RFC 8707, section 2.2)."""
    if resource not in list_resources(settings):
        return False
    return "resource" not in parameters or find_resource(parameters["resource"], settings) == resource


def _connect(code: Any, user: User, scopes: list[str], ip: str) -> AppGrant:
    """Create the key and the grant of an app, and record that the user connected it."""
    by = Actor(f"user:{user.id}", ip, user.id, account_id=user.account_id)
    key, _ = access.create_key(user.account_id, KeyWrite(code.client_name, ",".join(scopes), agent=True), by)
    redirect_host = app_clients.describe_redirect(code.redirect_uri)
    grant = AppGrant.create(
        account=user.account_id, user=user, api_key=key, client_id=code.client_id, redirect_host=redirect_host,
        resource=code.resource, created_at=clock.now_ms(),
    )  # fmt: skip
    app_clients.mark_authorized(code.client_id)
    audit.record(by, user.account_id, "app_connect", f"key:{key.id}", {"name": key.name, "app": code.client_id[:200]})
    return grant


def _issue_tokens(grant: AppGrant, scopes: list[str], scope: str | None) -> IssuedTokens:
    """Store an access and a refresh token of an app and return them with the `scopes` of the access token.

    `scope` is what is stored with the access token: the scopes that the app asked for, or None for all of its grant.
    """
    now = clock.now_ms()
    access_token, refresh_token = (
        prefix + crypto.random_base62(_SECRET_CHARACTERS) for prefix in (ACCESS_PREFIX, REFRESH_PREFIX)
    )
    for token, kind, lifetime_ms in (
        (access_token, "access", ACCESS_TOKEN_MS), (refresh_token, "refresh", REFRESH_TOKEN_MS),
    ):  # fmt: skip
        AppToken.create(
            token_hash=crypto.hash_secret(token), grant=grant, kind=kind, scope=scope if kind == "access" else None,
            created_at=now, expires_at=now + lifetime_ms,
        )  # fmt: skip
    return IssuedTokens(access_token, refresh_token, ACCESS_TOKEN_MS // 1000, " ".join(scopes))


def refresh(parameters: dict[str, str], ip: str, settings: Config) -> IssuedTokens | Refusal:
    """Exchange a refresh token for new tokens, or return why the request is rejected.

    A refresh token works once. If it is used again, one of the two programs that used it has stolen it, so the app
    ends: its user has to connect it again (draft-ietf-oauth-v2-1, section 4.3.1).
    """
    require_write_transaction()
    token = AppToken.get_or_none(
        AppToken.token_hash == crypto.hash_secret(parameters.get("refresh_token", "")), AppToken.kind == "refresh"
    )
    if token is None:
        return INVALID_GRANT
    now, grant = clock.now_ms(), token.grant
    user = members.find_active(grant.account_id, grant.user_id)
    if grant.api_key.revoked_at is not None or user is None:
        return INVALID_GRANT
    if token.used_at is not None or grant.client_id != parameters.get("client_id"):
        _end(grant, Actor(f"key:{grant.api_key_id}", ip), "token_reuse")
        return INVALID_GRANT
    if token.expires_at <= now:
        return INVALID_GRANT
    if not _is_for(grant.resource, parameters, settings):
        return _INVALID_TARGET
    granted = limit_scopes(set(grant.api_key.scope.split(",")), user.role)
    requested = set(parameters.get("scope", "").split())
    if not requested <= set(granted) or not granted:
        return Refusal("invalid_scope", "The scope is more than the user has given.")
    AppToken.update(used_at=now).where(AppToken.id == token.id).execute()
    scopes = sorted(requested) or granted
    return _issue_tokens(grant, scopes, ",".join(scopes) if requested else None)


def find_credential(token: str, is_mcp: bool, settings: Config) -> Credential | None:
    """Return the credential of an access token that is valid here, or None; record the use of the app in memory.

    `is_mcp` is whether the request is for the Model Context Protocol. A token for another resource is not valid.
    """
    row = fetch_one(
        "SELECT k.id, k.account_id, k.scope, t.scope, g.user_id, m.role, g.resource FROM app_token t "
        "JOIN app_grant g ON g.id = t.grant_id JOIN api_key k ON k.id = g.api_key_id "
        "JOIN team_member m ON m.user_id = g.user_id AND m.account_id = g.account_id "
        "WHERE t.token_hash = ? AND t.kind = 'access' AND t.expires_at > ? AND k.revoked_at IS NULL "
        "AND m.disabled_at IS NULL AND (SELECT closed_at FROM account WHERE id = k.account_id) IS NULL",
        (crypto.hash_secret(token), clock.now_ms()),
    )
    if row is None:
        return None
    key_id, account_id, key_scope, token_scope, user_id, role, resource = row
    mcp, whole = list_resources(settings)
    if resource != whole and not (is_mcp and resource == mcp):
        return None
    access.note_use(key_id)
    scopes = frozenset(limit_scopes(set((token_scope or key_scope).split(",")), role))
    is_masked = access.get_rights(role).is_masked
    return Credential(
        account_id, scopes, False, f"key:{key_id}", key_creator_id=user_id, is_agent=True, is_masked=is_masked
    )


def revoke_token(token: str, client_id: str | None, ip: str) -> None:
    """End the app of an access or refresh token at its own request (RFC 7009); an unknown token changes nothing."""
    require_write_transaction()
    row = AppToken.get_or_none(AppToken.token_hash == crypto.hash_secret(token))
    if row is not None and client_id in (None, row.grant.client_id):
        _end(row.grant, Actor(f"key:{row.grant.api_key_id}", ip), "revoked_by_app")


Reason = Literal["code_reuse", "token_reuse", "revoked_by_app", "user", "password", "disabled", "expired"]


def _end(grant: Any, by: Actor, reason: Reason) -> None:
    """End an app: it is deleted with its tokens, and its key is revoked. Its name stays, for the audit log."""
    key: ApiKey = grant.api_key
    grant.delete_instance()
    if key.revoked_at is not None:
        return
    key.revoked_at = clock.now_ms()
    key.save(only=["revoked_at"])
    audit.record(by, grant.account_id, "app_disconnect", f"key:{key.id}", {"name": key.name, "reason": reason})


def _live_grants() -> Any:
    """Return a query of the apps that are connected, with their keys and users."""
    return (
        AppGrant.select(AppGrant, ApiKey, User)
        .join(ApiKey, on=(AppGrant.api_key == ApiKey.id))
        .join(User, on=(AppGrant.user == User.id))
        .where(ApiKey.revoked_at.is_null())
    )


def list_apps(account_id: int, user_id: int | None) -> list[Any]:
    """Return the connected apps of a user, or with None those of the whole account, newest first."""
    query = _live_grants().where(AppGrant.account == account_id)
    if user_id is not None:
        query = query.where(AppGrant.user == user_id)
    return list(query.order_by(AppGrant.id.desc()))


def disconnect(account_id: int, user_id: int | None, grant_id: int, by: Actor) -> str:
    """End an app of a user, or with None of any user of the account, and return its name; raises NotFound."""
    require_write_transaction()
    query = _live_grants().where(AppGrant.account == account_id, AppGrant.id == grant_id)
    grant = (query.where(AppGrant.user == user_id) if user_id is not None else query).first()
    if grant is None:
        raise NotFound
    _end(grant, by, "user")
    return str(grant.api_key.name)


def end_all(user_id: int, by: Actor, reason: Reason, account_id: int | None = None) -> None:
    """End all apps of a user, with `account_id` only those of an account, and delete the codes that wait.

    It is for a user who gets a new password, because the old one may have become known, or who is disabled.
    """
    require_write_transaction()
    codes = AppCode.delete().where(AppCode.user == user_id, AppCode.used_at.is_null())
    grants = _live_grants().where(AppGrant.user == user_id)
    if account_id is not None:
        codes, grants = codes.where(AppCode.account == account_id), grants.where(AppGrant.account == account_id)
    codes.execute()
    for grant in grants:
        _end(grant, by, reason)


def find_expired_codes(limit: int) -> list[int]:
    """Return the ids of up to `limit` codes that expired a day ago or earlier."""
    expired = rows("SELECT id FROM app_code WHERE expires_at < ? LIMIT ?", (clock.now_ms() - _USED_CODE_MS, limit))
    return [row[0] for row in expired]


def delete_codes(ids: list[int]) -> int:
    """Delete the codes with these ids, and return their number."""
    require_write_transaction()
    return int(AppCode.delete().where(AppCode.id.in_(ids)).execute())


def find_expired_tokens(limit: int) -> list[int]:
    """Return the ids of up to `limit` tokens that have expired."""
    return [row[0] for row in rows("SELECT id FROM app_token WHERE expires_at < ? LIMIT ?", (clock.now_ms(), limit))]


def delete_tokens(ids: list[int]) -> int:
    """Delete the expired tokens with these ids and end the apps that have none left; return the number of tokens."""
    require_write_transaction()
    expired = AppToken.select().where(AppToken.id.in_(ids), AppToken.expires_at < clock.now_ms())
    grants = {token.grant_id: token.grant for token in expired}
    count = int(AppToken.delete().where(AppToken.id.in_([token.id for token in expired])).execute())
    for grant in grants.values():
        if not AppToken.select().where(AppToken.grant == grant).exists():
            _end(grant, Actor(), "expired")
    return count
