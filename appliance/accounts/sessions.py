"""Sessions of browsers (with a cookie) and of programs (with a JSON Web Token).

A JSON Web Token belongs to a row of `session`, which is found by the hash of the token's `jti` claim. Signing out,
changing the password or second factor, and disabling a user delete the row, so that the token is refused at the next
request. Therefore no list of revoked tokens is needed, and a token forged with a stolen key is refused, because it has
no row.

RFC 7519 (JWT); RFC 8725, sections 3.1 and 3.2 (one algorithm, which the service chooses and not the token).
"""

import hashlib
import re
import secrets
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from peewee import JOIN

from appliance.accounts import access, audit, devices, members
from appliance.accounts.access import Credential
from appliance.accounts.audit import Actor
from appliance.core import clock, crypto
from appliance.core.errors import NotAllowed, NotFound
from appliance.core.i18n import gettext
from appliance.core.validation import PageQuery
from appliance.events import user_agents
from appliance.storage.database import Page, fetch_one, paginate
from appliance.storage.models import Account, Device, Identity, Session, TeamMember, User
from appliance.storage.transactions import require_write_transaction

IDLE_TIMEOUT_MS = 12 * 3600 * 1000
MAX_SESSION_MS = 30 * clock.DAY_MS
# The time of last use is written at most once in this time, so that a request seldom has to write.
_TOUCH_MS = 5 * 60 * 1000
FIRST_ACCOUNT = 1

SessionKind = Literal["browser", "token"]
# How a user signed in: by password alone, by password with a code or a passkey, by a passkey alone, by an invitation,
# or by an OpenID Connect provider, alone or with a code or passkey.
Method = Literal["password", "password_code", "password_passkey", "passkey", "invitation", "oidc", "oidc_second_factor"]


def create_browser_session(
    user_id: int, ip: str | None, user_agent: str | None, device_token: str | None = None,
    method: Method = "password", identity_id: int | None = None,
) -> str:  # fmt: skip
    """Create a browser session and return the value of its cookie, which is stored only as a hash.

    `device_token` is the cookie of the device; without it the device is a new one. Raises as `create`.
    """
    token = secrets.token_urlsafe(32)
    device = devices.read_or_create_token(device_token)
    create(user_id, token, "browser", ip, user_agent, None, device, method, identity_id)
    return token


def create(
    user_id: int, secret: str, kind: SessionKind, ip: str | None, user_agent: str | None,
    account_id: int | None = None, device_token: str | None = None, method: Method = "password",
    identity_id: int | None = None,
) -> Session:  # fmt: skip
    """Create a session that is found by the hash of `secret`, and record the sign-in in the audit log.

    The session opens the account with `account_id`, by default the one that the person opened last, among those that
    `may_open` allows. If the user signed in with an identity of a provider, `identity_id` names it, and the session
    ends when it is unlinked. `user_agent` is cut to 400 characters. The session ends after `IDLE_TIMEOUT_MS` if it is
    not extended. If the user has other devices and the one of the session is new, `devices.signed_in_on_new_device` is
    sent. Raises NotAllowed if the person may not enter the account, or any, and NotFound if the identity is not one of
    the person at an enabled provider.
    """
    require_write_transaction()
    now, person, user_agent = clock.now_ms(), User.get_by_id(user_id), user_agents.truncate_header(user_agent)
    identity = _use_identity(user_id, identity_id, now) if identity_id is not None else None
    user = _bind(person, account_id, method, identity)
    if user.member is None:
        raise NotAllowed(gettext("You are not a member of this account."))
    recognition = devices.recognize(user_id, device_token, user_agent, ip)
    session = Session.create(
        token_hash=crypto.hash_secret(secret), kind=kind, user=user_id, account=user.account_id, ip=ip,
        user_agent=user_agent, method=method, device=recognition.device, created_at=now, last_seen_at=now,
        expires_at=now + IDLE_TIMEOUT_MS, identity=identity,
    )  # fmt: skip
    # The account that a program signs in to does not change what the person's next browser session opens.
    opened = {"last_account": user.account_id} if kind == "browser" else {}
    User.update(last_login_at=now, **opened).where(User.id == user_id).execute()
    _record(session, "login", ip)
    if recognition.is_new and recognition.has_others:
        devices.signed_in_on_new_device.send(user, session)
    return session


def _use_identity(user_id: int, identity_id: int, now: int) -> Identity:
    """Store the use of an identity for a sign-in, and return it; raises NotFound."""
    identity: Identity | None = Identity.get_or_none(Identity.id == identity_id, Identity.user == user_id)
    if identity is None or not identity.provider.enabled:
        raise NotFound
    identity.last_used_at = now
    identity.save(only=["last_used_at"])
    return identity


def _bind(person: User, account_id: int | None, method: str, identity: Identity | None) -> User:
    """Load the account that a new session opens as `person.member`, None if it may open none."""
    rows = [row for row in members.list_of(person.id) if may_open(row.account, method, identity)]
    if account_id is not None:
        rows = [row for row in rows if row.account_id == account_id]
    person.member = next((row for row in rows if row.account_id == person.last_account_id), rows[0] if rows else None)
    return person


def may_open(account: Account, method: str | None, identity: Identity | None) -> bool:
    """Return whether a session that began with `method` may open an account that the person is a member of.

    A provider signs in to its own account, and a provider of the first account, whose owners run the installation, to
    all accounts. Otherwise a person who manages the provider of one account could sign in to others. A password opens
    only accounts that allow it. The method of sessions from before it was stored is None: they began with a password.
    """
    if identity is not None:
        return identity.provider.account_id in (FIRST_ACCOUNT, account.id)
    return account.password_sign_in or not (method or "password").startswith("password")


def find_expired(limit: int) -> list[int]:
    """Return the ids of up to `limit` expired sessions."""
    return [row.id for row in Session.select(Session.id).where(Session.expires_at < clock.now_ms()).limit(limit)]


def delete_expired(ids: list[int]) -> int:
    """Delete the given sessions that have expired, and return their number."""
    require_write_transaction()
    return int(Session.delete().where(Session.id.in_(ids), Session.expires_at < clock.now_ms()).execute())


def find_by_cookie(token: str) -> Session | None:
    """Return the session of a cookie value, with its user loaded together with the account that is open.

    Returns None if the session is unknown or expired, or if the user is disabled in the account.
    """
    session: Session | None = (
        Session.select(Session, User, TeamMember, Account)
        .join(User)
        .join(TeamMember, on=(TeamMember.user == User.id) & (TeamMember.account == Session.account), attr="member")
        .join(Account)
        .where(
            Session.token_hash == crypto.hash_secret(token), Session.kind == "browser",
            Session.expires_at > clock.now_ms(), TeamMember.disabled_at.is_null(), Account.closed_at.is_null(),
        )
        .first()
    )  # fmt: skip
    return session


def needs_touch(session: Session) -> bool:
    """Return whether the session's time of last use is more than `_TOUCH_MS` ago, so that `touch` should be called."""
    return is_touch_due(session.last_seen_at)


def is_touch_due(last_seen_at: int) -> bool:
    """Return whether a time of last use, in milliseconds, is more than `_TOUCH_MS` ago."""
    return clock.now_ms() - last_seen_at > _TOUCH_MS


def touch(session_id: int, ip: str | None = None) -> None:
    """Set a session's time of last use to now, and its last IP address; does nothing if the session has ended.

    A browser session is extended to 12 hours from now, but to at most 30 days after sign-in. The session of a token is
    not extended.
    """
    require_write_transaction()
    now = clock.now_ms()
    session = Session.get_or_none(Session.id == session_id)
    if session is not None:
        session.last_seen_at = now
        session.last_ip = ip or session.last_ip
        if session.kind == "browser":
            session.expires_at = min(now + IDLE_TIMEOUT_MS, session.created_at + MAX_SESSION_MS)
        session.save()


def end_by_cookie(token: str) -> None:
    """End the browser session of a cookie value, if there is one, and record the sign-out."""
    require_write_transaction()
    session = Session.get_or_none(Session.token_hash == crypto.hash_secret(token), Session.kind == "browser")
    if session is not None:
        end(session)


def end(session: Session) -> None:
    """End a session at the user's own request, and record the sign-out."""
    require_write_transaction()
    session.delete_instance()
    _record(session, "logout", session.ip)


def list_by_user(user_id: int) -> list[Session]:
    """Return all active sessions of a user with their devices, the most recently used first."""
    sessions = _select_active(user_id)
    return list(sessions.order_by(Session.last_seen_at.desc(), Session.id.desc()))


def fetch_page(user_id: int, query: PageQuery) -> Page:
    """Return a page of the active sessions of a user with their devices, newest first."""
    sessions = _select_active(user_id)
    return paginate(sessions.order_by(Session.created_at.desc(), Session.id.desc()), query.page, query.size())


def _select_active(user_id: int) -> Any:
    sessions = Session.select(Session, Device).join(Device, JOIN.LEFT_OUTER)
    return sessions.where(Session.user == user_id, Session.expires_at > clock.now_ms())


def get(user_id: int, session_id: int) -> Session:
    """Return an active session of a user with its device; raises NotFound."""
    session: Session | None = _select_active(user_id).where(Session.id == session_id).first()
    if session is None:
        raise NotFound
    return session


def rename(user_id: int, session_id: int, name: str, by: Actor) -> Session:
    """Name the device of a user's session, and return the session; raises NotFound, and as `devices.rename`."""
    session = get(user_id, session_id)
    devices.rename(session, name, by)
    return session


def revoke(user_id: int, session_id: int, by: Actor) -> Session:
    """End a session of a user from another session, and record who did it; raises NotFound.

    Its device is deleted, because another person may have it now.
    """
    require_write_transaction()
    session = get(user_id, session_id)
    session.delete_instance()
    Device.delete().where(Device.id == session.device_id).execute()
    _record(session, "session_end", by.ip, by.name)
    return session


def revoke_others(user_id: int, kept_id: int | None, by: Actor) -> int:
    """End all active sessions of a user except `kept_id`, each with an audit entry, and return their number."""
    require_write_transaction()
    sessions_to_end = [session for session in list_by_user(user_id) if session.id != kept_id]
    for session in sessions_to_end:
        revoke(user_id, session.id, by)
    return len(sessions_to_end)


def delete_all(user_id: int, kept_id: int | None = None) -> None:
    """End all sessions of a user except `kept_id`, without audit entries, and forget the devices of the others.

    Used after a change of password, second factor or access, which has its own entry.
    """
    require_write_transaction()
    current = Session.get_or_none(Session.user == user_id, Session.id == (kept_id or 0))
    devices.forget(user_id, current.device_id if current is not None else None)
    Session.delete().where(Session.user == user_id, Session.id != (kept_id or 0)).execute()


def delete_in_account(user_id: int, account_id: int) -> None:
    """End the sessions of a user that have an account open, without audit entries; those in other accounts stay."""
    require_write_transaction()
    Session.delete().where(Session.user == user_id, Session.account == account_id).execute()


def delete_of_account(account_id: int) -> None:
    """End all sessions that have an account open, without audit entries."""
    require_write_transaction()
    Session.delete().where(Session.account == account_id).execute()


def open_account(session_id: int, account_id: int, by: Actor) -> None:
    """Open another account of the person in a browser session, and record it in that account.

    Raises NotFound if the session has ended or the person may not enter the account, and NotAllowed if the account
    needs another way to sign in (`may_open`).
    """
    require_write_transaction()
    session = Session.get_or_none(Session.id == session_id, Session.kind == "browser")
    user = members.find_active(account_id, session.user_id) if session is not None else None
    if session is None or user is None:
        raise NotFound
    if not may_open(user.account, session.method, session.identity):
        raise NotAllowed(gettext("This account needs another way to sign in. Sign out, and choose it on the page."))
    Session.update(account=account_id).where(Session.id == session_id).execute()
    session.account_id = account_id
    User.update(last_account=account_id).where(User.id == session.user_id).execute()
    _record(session, "account_open", by.ip)


def _record(session: Session, action: str, ip: str | None, actor: str | None = None) -> None:
    person = f"user:{session.user_id}"
    data = {"session_id": session.id, "kind": session.kind}
    if action == "login":
        data["method"] = session.method
        if session.identity is not None:
            data["provider"] = session.identity.provider.name
    audit.insert_entry(session.account_id, actor or person, action, person, data, ip)


if TYPE_CHECKING:
    from jwt.types import Options


_ALGORITHM = "HS256"
# The claims of tokens with a valid signature, by a keyed hash of the token. They are cached because verifying a
# signature takes longer than the rest of a small request. Session and expiry are still checked at each request.
_MAX_CACHED = 2_000
_verified: "OrderedDict[str, dict[str, Any]]" = OrderedDict()
_lock = threading.Lock()
# Three parts in base64url without padding, separated by dots (RFC 7515, sections 2 and 7.1).
_COMPACT = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
_REQUIRED = ("sub", "acc", "aud", "jti", "iat", "exp")
# `_read_claims` compares the times itself, with the service's own clock.
_OPTIONS: "Options" = {
    "require": list(_REQUIRED), "verify_exp": False, "verify_nbf": False, "verify_iat": False, "verify_aud": True,
}  # fmt: skip


class IssuedToken(NamedTuple):
    """A new token, which is not stored and cannot be shown again, and its expiry in milliseconds."""

    token: str
    expires_at: int


class TokenSession(NamedTuple):
    """The credential that belongs to a token, and whether its session needs a write."""

    credential: Credential
    needs_touch: bool  # whether the time of last use should be written again


def issue_token(user: User, ip: str | None, user_agent: str | None, method: Method = "password") -> IssuedToken:
    """Create a session for a program and return its token; only a hash of the token's id is stored.

    The token is for the account that the user was loaded with, and for no other one.
    """
    import jwt

    require_write_transaction()
    jti = secrets.token_urlsafe(24)
    session = create(user.id, jti, "token", ip, user_agent, user.account_id, method=method)
    claims = {
        "sub": str(user.id), "acc": user.account_id, "aud": token_audience(), "jti": jti,
        "iat": session.created_at // 1000, "exp": session.expires_at // 1000,
    }  # fmt: skip
    return IssuedToken(jwt.encode(claims, _key(), _ALGORITHM), session.expires_at // 1000 * 1000)


def find_by_token(token: str) -> TokenSession | None:
    """Return the credential of a token, and whether its session needs a write.

    Returns None if the token is forged, expired or of another installation, if its session has ended, if the user is
    disabled, or if the account is closed.
    """
    claims = _read_claims(token)
    if claims is None:
        return None
    row = fetch_one(
        "SELECT s.id, s.last_seen_at, s.user_id, s.account_id, m.role FROM session s "
        "JOIN team_member m ON m.user_id = s.user_id AND m.account_id = s.account_id "
        "JOIN account a ON a.id = s.account_id "
        "WHERE s.token_hash = ? AND s.kind = 'token' AND s.expires_at > ? AND m.disabled_at IS NULL "
        "AND a.closed_at IS NULL",
        (crypto.hash_secret(claims["jti"]), clock.now_ms()),
    )
    if row is None or (str(row[2]), row[3]) != (claims["sub"], claims["acc"]):
        return None
    rights = access.get_rights(row[4])
    credential = Credential(
        row[3], rights.scopes, False, f"user:{row[2]}", row[2], row[4], row[0], is_masked=rights.is_masked
    )
    return TokenSession(credential, is_touch_due(row[1]))


def token_audience() -> str:
    """Return the `aud` claim of this installation's tokens, which does not depend on the installation's URL."""
    return crypto.derive_key("jwt audience").hex()[:32]


def _key() -> bytes:
    return crypto.derive_key("jwt")


def _read_claims(token: str) -> dict[str, Any] | None:
    """Return the claims of a token if its signature is valid and it is valid now, else None."""
    claims = _verify_cached(token)
    if claims is None:
        return None
    now = clock.now_ms() // 1000
    begins = [claims[name] for name in ("iat", "nbf") if name in claims]
    # Up to a minute in the future is allowed, because the clock may have been set back since the token was issued.
    is_valid = claims["exp"] > now and all(moment <= now + 60 for moment in begins)
    return claims if is_valid else None


def _verify_cached(token: str) -> dict[str, Any] | None:
    """Return the claims of a token, or None if its signature is invalid; the times in the claims are not checked.

    The cache is looked up by a keyed hash, so that timing does not reveal how close a guess is to a cached token.
    """
    key = _key()
    name = hashlib.blake2b(token.encode("utf-8", "surrogateescape"), key=key, digest_size=32).hexdigest()
    with _lock:
        if (cached := _verified.get(name)) is not None:
            _verified.move_to_end(name)
            return cached
    claims = _verify(token, key)
    if claims is not None:
        with _lock:
            _verified[name] = claims
            while len(_verified) > _MAX_CACHED:
                _verified.popitem(last=False)
    return claims


def _verify(token: str, key: bytes) -> dict[str, Any] | None:
    """Return the claims of a token if its signature and the types of its claims are valid, else None."""
    import jwt

    if not _COMPACT.fullmatch(token):
        return None
    try:
        claims: dict[str, Any] = jwt.decode(
            token, key, algorithms=[_ALGORITHM], audience=token_audience(), options=_OPTIONS
        )  # fmt: skip
    except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
        return None
    moments = [claims[name] for name in ("iat", "nbf", "exp") if name in claims]
    sound = all(type(moment) is int for moment in moments) and isinstance(claims["jti"], str)
    return claims if sound else None
