"""JSON Web Tokens for people: HS256, twelve hours, and good only as long as the sign-in that stands behind them.

A token is a row of `session`, found by the digest of its `jti`: signing out, a new password or second factor, and
shutting somebody out delete the row, and the token is worthless at the next request. So no list of revoked tokens is
kept, and a token that was forged by whoever learnt the key still has no row.

RFC 7519 (JWT), RFC 8725 section 3.1 and 3.2 (one algorithm, of ours and not of the token's choosing).
"""

import hashlib
import re
import secrets
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, NamedTuple

from appliance.accounts import roles, sessions
from appliance.accounts.keys import Credential
from appliance.core import clock, tokens
from appliance.storage.models import User
from appliance.storage.open import fetch_one
from appliance.storage.work import writing

if TYPE_CHECKING:
    from jwt.types import Options


_ALGORITHM = "HS256"
# Signatures that were found good, by the digest of key and token: a token is asked with many times, and to check it
# costs more than all else of a small request. What may change of it, its sign-in and its time, is looked at each time
_MAX_KEPT = 2_000
_good: "OrderedDict[str, dict[str, Any]]" = OrderedDict()
_lock = threading.Lock()
# RFC 7515, section 7.1 and 2: base64url without padding
_COMPACT = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
_REQUIRED = ("sub", "acc", "aud", "jti", "iat", "exp")
# Moments are compared below, with the service's own clock
_OPTIONS: "Options" = {
    "require": list(_REQUIRED), "verify_exp": False, "verify_nbf": False, "verify_iat": False, "verify_aud": True,
}  # fmt: skip


class Issued(NamedTuple):
    """A token as it is handed out, once, and when it ends (milliseconds)."""

    token: str
    expires_at: int


class Found(NamedTuple):
    """Who a token belongs to, and its sign-in."""

    credential: Credential
    is_stale: bool  # the time of last use wants to be written


def issue(user: User, ip: str | None, user_agent: str | None) -> Issued:
    """Sign a program in for somebody and answer its token, the only time it is ever seen."""
    import jwt

    writing()
    jti = secrets.token_urlsafe(24)
    session = sessions.keep(user.id, jti, "token", ip, user_agent)
    claims = {
        "sub": str(user.id), "acc": user.account_id, "aud": audience(), "jti": jti,
        "iat": session.created_at // 1000, "exp": session.expires_at // 1000,
    }  # fmt: skip
    return Issued(jwt.encode(claims, _key(), _ALGORITHM), session.expires_at // 1000 * 1000)


def find(token: str) -> Found | None:
    """Return who a token belongs to, or None: forged, expired, of another installation, or ended."""
    claims = _claims(token)
    if claims is None:
        return None
    row = fetch_one(
        "SELECT s.id, s.last_seen_at, u.id, u.account_id, u.role FROM session s JOIN user u ON u.id = s.user_id "
        "WHERE s.token_digest = ? AND s.kind = 'token' AND s.expires_at > ? AND u.disabled_at IS NULL",
        (tokens.digest(claims["jti"]), clock.now_ms()),
    )
    if row is None or (str(row[2]), row[3]) != (claims["sub"], claims["acc"]):
        return None
    who = Credential(row[3], roles.scopes(row[4]), False, f"user:{row[2]}", row[2], row[4], row[0])
    return Found(who, sessions.is_old(row[1]))


def audience() -> str:
    """Return what tokens of this installation are for; whatever its address is, it stays the same."""
    return tokens.derive("jwt audience").hex()[:32]


def _key() -> bytes:
    return tokens.derive("jwt")


def _claims(token: str) -> dict[str, Any] | None:
    """Read a token that is ours and of now, or answer None."""
    claims = _signed(token)
    if claims is None:
        return None
    now = clock.now_ms() // 1000
    begins = [claims[name] for name in ("iat", "nbf") if name in claims]
    # A clock that was set back by a minute is nobody's fault
    good = claims["exp"] > now and all(moment <= now + 60 for moment in begins)
    return claims if good else None


def _signed(token: str) -> dict[str, Any] | None:
    """Read a token that was signed here, whenever it is good, or answer None.

    It is remembered by a digest, so that how near a guess is to a token that was seen cannot be timed.
    """
    key = _key()
    name = hashlib.blake2b(token.encode("utf-8", "surrogateescape"), key=key, digest_size=32).hexdigest()
    with _lock:
        if (found := _good.get(name)) is not None:
            _good.move_to_end(name)
            return found
    claims = _decoded(token, key)
    if claims is not None:
        with _lock:
            _good[name] = claims
            while len(_good) > _MAX_KEPT:
                _good.popitem(last=False)
    return claims


def _decoded(token: str, key: bytes) -> dict[str, Any] | None:
    """Check the signature of a token and the kinds of its claims; None for what is not ours."""
    import jwt

    if not _COMPACT.fullmatch(token):
        return None
    try:
        claims: dict[str, Any] = jwt.decode(
            token, key, algorithms=[_ALGORITHM], audience=audience(), options=_OPTIONS
        )  # fmt: skip
    except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
        return None
    moments = [claims[name] for name in ("iat", "nbf", "exp") if name in claims]
    sound = all(type(moment) is int for moment in moments) and isinstance(claims["jti"], str)
    return claims if sound else None
