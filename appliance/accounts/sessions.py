"""Sign-ins that hold: of browsers by a cookie, of programs by a JWT."""

import secrets
from typing import Literal

from appliance.accounts import audit
from appliance.accounts.acting import By
from appliance.core import clock, tokens
from appliance.core.errors import NotFound
from appliance.core.fields import PageQuery
from appliance.core.pagination import Page, paginate
from appliance.storage.models import Account, Session, User
from appliance.storage.work import writing

IDLE_MS = 12 * 3600 * 1000
MAX_SESSION_MS = 30 * 24 * 3600 * 1000
# The time of last use is written at most this often
_TOUCH_MS = 5 * 60 * 1000

Kind = Literal["browser", "token"]


def begin(user_id: int, ip: str | None, user_agent: str | None) -> str:
    """Sign a person in and answer the cookie's value; a fresh one every time."""
    token = secrets.token_urlsafe(32)
    keep(user_id, token, "browser", ip, user_agent)
    return token


def keep(user_id: int, secret: str, kind: Kind, ip: str | None, user_agent: str | None) -> Session:
    """Note a sign-in under the digest of its secret."""
    writing()
    now = clock.now_ms()
    session = Session.create(
        token_digest=tokens.digest(secret), kind=kind, user=user_id, ip=ip,
        user_agent=(user_agent or "")[:400] or None, created_at=now, last_seen_at=now, expires_at=now + IDLE_MS,
    )  # fmt: skip
    User.update(last_login_at=now).where(User.id == user_id).execute()
    _note(session, "login", ip)
    return session


def old(most: int) -> list[int]:
    """Return some sign-ins that are over."""
    return [row.id for row in Session.select(Session.id).where(Session.expires_at < clock.now_ms()).limit(most)]


def forget(some: list[int]) -> int:
    """Drop them, with the addresses and programs that they name."""
    writing()
    return int(Session.delete().where(Session.id.in_(some), Session.expires_at < clock.now_ms()).execute())


def find(token: str) -> Session | None:
    """Return the live session of a cookie with its user and account, or None."""
    found: Session | None = (
        Session.select(Session, User, Account)
        .join(User)
        .join(Account)
        .where(
            Session.token_digest == tokens.digest(token), Session.kind == "browser",
            Session.expires_at > clock.now_ms(), User.disabled_at.is_null(),
        )
        .first()
    )  # fmt: skip
    return found


def needs_touch(session: Session) -> bool:
    """Return whether the time of last use is old enough to be written again."""
    return is_old(session.last_seen_at)


def is_old(last_seen_at: int) -> bool:
    """Return whether a time of last use is old enough to be written again."""
    return clock.now_ms() - last_seen_at > _TOUCH_MS


def touch(session_id: int) -> None:
    """Note that a session is used; a browser's lives 12 hours from now, at most 30 days from sign-in, a token's not."""
    writing()
    now = clock.now_ms()
    session = Session.get_or_none(Session.id == session_id)
    if session is not None:
        session.last_seen_at = now
        if session.kind == "browser":
            session.expires_at = min(now + IDLE_MS, session.created_at + MAX_SESSION_MS)
        session.save()


def end(token: str) -> None:
    """Sign out; the cookie opens nothing any more."""
    writing()
    found = Session.get_or_none(Session.token_digest == tokens.digest(token), Session.kind == "browser")
    if found is not None:
        leave(found)


def leave(session: Session) -> None:
    """End a sign-in by its own wish."""
    writing()
    session.delete_instance()
    _note(session, "logout", session.ip)


def of_user(user_id: int) -> list[Session]:
    """Return the sign-ins of somebody that hold, the one used last first."""
    found = Session.select().where(Session.user == user_id, Session.expires_at > clock.now_ms())
    return list(found.order_by(Session.last_seen_at.desc(), Session.id.desc()))


def page(user_id: int, query: PageQuery) -> Page:
    """List the sign-ins of somebody that hold, newest first."""
    found = Session.select().where(Session.user == user_id, Session.expires_at > clock.now_ms())
    return paginate(found.order_by(Session.created_at.desc(), Session.id.desc()), query.page, query.size())


def get(user_id: int, session_id: int) -> Session:
    """Return a sign-in of somebody; raises NotFound."""
    found = Session.get_or_none(
        Session.user == user_id, Session.id == session_id, Session.expires_at > clock.now_ms()
    )  # fmt: skip
    if found is None:
        raise NotFound
    return found


def close(user_id: int, session_id: int, by: By) -> Session:
    """End one sign-in of somebody from elsewhere; raises NotFound."""
    writing()
    found = get(user_id, session_id)
    found.delete_instance()
    _note(found, "session_end", by.ip, by.actor)
    return found


def close_all(user_id: int, but: int | None, by: By) -> int:
    """End every sign-in of somebody, except one; returns how many those were."""
    writing()
    others = [one for one in of_user(user_id) if one.id != but]
    for one in others:
        close(user_id, one.id, by)
    return len(others)


def drop_all(user_id: int, but: int | None = None) -> None:
    """End every sign-in of somebody whose password, second factor or access changes, except one."""
    writing()
    Session.delete().where(Session.user == user_id, Session.id != (but or 0)).execute()


def _note(session: Session, act: str, ip: str | None, actor: str | None = None) -> None:
    person = f"user:{session.user_id}"
    account_id = User.get_by_id(session.user_id).account_id
    audit.record(account_id, actor or person, act, person, {"session_id": session.id, "kind": session.kind}, ip)
