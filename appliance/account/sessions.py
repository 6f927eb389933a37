"""Signed-in browsers."""

import secrets

from appliance import clock, tokens
from appliance.db.work import writing
from appliance.tables import Account, Session, User

IDLE_MS = 12 * 3600 * 1000
LONGEST_MS = 30 * 24 * 3600 * 1000
# The time of last use is written at most this often
_TOUCH_MS = 5 * 60 * 1000


def begin(user_id: int, ip: str | None, user_agent: str | None) -> str:
    """Sign a person in and answer the cookie's value; a fresh one every time."""
    writing()
    token = secrets.token_urlsafe(32)
    now = clock.now_ms()
    Session.create(
        token_digest=tokens.digest(token), user=user_id, ip=ip, user_agent=(user_agent or "")[:400] or None,
        created_at=now, last_seen_at=now, expires_at=now + IDLE_MS,
    )  # fmt: skip
    User.update(last_login_at=now).where(User.id == user_id).execute()
    Session.delete().where(Session.expires_at < now).execute()
    return token


def find(token: str) -> Session | None:
    """Answer the live session of a cookie with its user and account, or None."""
    found: Session | None = (
        Session.select(Session, User, Account)
        .join(User)
        .join(Account)
        .where(
            Session.token_digest == tokens.digest(token), Session.expires_at > clock.now_ms(),
            User.disabled_at.is_null(),
        )
        .first()
    )  # fmt: skip
    return found


def needs_touch(session: Session) -> bool:
    """Say whether the time of last use is old enough to be written again."""
    return bool(clock.now_ms() - session.last_seen_at > _TOUCH_MS)


def touch(session_id: int) -> None:
    """Keep a session alive: 12 hours from now, at most 30 days from sign-in."""
    writing()
    now = clock.now_ms()
    session = Session.get_or_none(Session.id == session_id)
    if session is not None:
        session.last_seen_at = now
        session.expires_at = min(now + IDLE_MS, session.created_at + LONGEST_MS)
        session.save()


def end(token: str) -> None:
    """Sign out; the cookie opens nothing any more."""
    writing()
    Session.delete().where(Session.token_digest == tokens.digest(token)).execute()
