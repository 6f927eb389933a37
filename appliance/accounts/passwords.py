"""Passwords as Argon2id hashes, and signed tokens that become invalid when the password changes."""

import asyncio
import base64
import hashlib
import hmac
from concurrent.futures import ThreadPoolExecutor
from functools import cache

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from appliance.accounts import members
from appliance.core import clock, crypto
from appliance.core.errors import Invalid, RateLimitExceeded
from appliance.core.i18n import gettext
from appliance.storage.models import User

MIN_CHARACTERS, MAX_CHARACTERS = 10, 1024
# Each verification takes 19 MiB of memory and occupies a core for tens of milliseconds.
_MAX_CONCURRENT = 2
_MAX_WAITING = 60

_waiting = 0


@cache
def _hasher() -> PasswordHasher:
    # The second of the parameter sets that OWASP recommends: 19 MiB, t=2, p=1.
    return PasswordHasher(time_cost=2, memory_cost=19_456, parallelism=1)


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_MAX_CONCURRENT, thread_name_prefix="password")


def check_length(password: str, field: str = "password") -> None:
    """Raise Invalid for `field` if a password is too short or too long; the characters are not restricted."""
    if len(password) < MIN_CHARACTERS:
        raise Invalid({field: [gettext("is too short (minimum is %(limit)s characters)", limit=MIN_CHARACTERS)]})
    if len(password) > MAX_CHARACTERS:
        raise Invalid({field: [gettext("is too long (maximum is %(limit)s characters)", limit=MAX_CHARACTERS)]})


def hash_password(password: str) -> str:
    """Return the Argon2id hash of a password.

    This is slow on purpose: call it neither on the event loop nor on the writer thread.
    """
    return _hasher().hash(_bytes(password))


def matches(password_hash: str, password: str) -> bool:
    """Return whether a password matches a hash; a malformed hash matches none."""
    try:
        return _hasher().verify(password_hash, _bytes(password))
    except (VerificationError, InvalidHashError):
        return False


async def verify(password_hash: str | None, password: str) -> bool:
    """Return whether a password matches a hash; for a hash of None, return False after the time of a verification.

    Runs on a thread pool of `_MAX_CONCURRENT` threads, so that sign-ins do not slow down other requests. Raises
    RateLimitExceeded if `_MAX_WAITING` verifications are running or waiting.
    """
    global _waiting
    if _waiting >= _MAX_WAITING:
        raise RateLimitExceeded(gettext("Too many sign-ins at once."), retry_after=2)
    _waiting += 1
    try:
        return await asyncio.get_running_loop().run_in_executor(_pool(), _check, password_hash, password)
    finally:
        _waiting -= 1


def _check(password_hash: str | None, password: str) -> bool:
    # A longer password is always wrong, and hashing megabytes would take measurably longer.
    limited = password[:MAX_CHARACTERS]
    is_match = matches(password_hash or _dummy_hash(), limited)
    return is_match and password_hash is not None and limited == password


@cache
def _dummy_hash() -> str:
    return hash_password("the password of no user")


def _bytes(password: str) -> bytes:
    # Half of a surrogate pair cannot be encoded as UTF-8, but it is a wrong password like any other.
    return password.encode("utf-8", "surrogatepass")


# Signed tokens for one user and one purpose: a MAC over user id, expiry, password hash and second factor.
#
# Nothing is stored. A token becomes invalid when it expires, and as soon as the user's password or second factor
# changes, so that a link to choose a new password works only once.

_MAX_TOKEN_CHARACTERS = 80


def create_token(purpose: str, user: User, until_ms: int) -> str:
    """Return a token that identifies a user for one purpose; it expires at `until_ms`, rounded down to a second."""
    body = user.id.to_bytes(6, "big") + (until_ms // 1000).to_bytes(6, "big")
    return base64.urlsafe_b64encode(body + _mac(purpose, body, user)).decode().rstrip("=")


def find_token_user(purpose: str, text: str) -> User | None:
    """Return the user of a valid token for this purpose, with the account that a sign-in opens, else None.

    The result is None for a person who may enter no account, too.
    """
    if len(text) > _MAX_TOKEN_CHARACTERS or not text.isascii():
        return None
    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        return None
    body, mac = raw[:12], raw[12:]
    if len(raw) != 44 or int.from_bytes(body[6:], "big") * 1000 <= clock.now_ms():
        return None
    user = User.get_or_none(User.id == int.from_bytes(body[:6], "big"))
    if user is None or not hmac.compare_digest(_mac(purpose, body, user), mac):
        return None
    return user if members.bind_entry(user).member is not None else None


def _mac(purpose: str, body: bytes, user: User) -> bytes:
    mac = hashlib.blake2b(body, key=crypto.derive_key(f"pass:{purpose}"), digest_size=32)
    mac.update(hashlib.sha256(user.password_hash.encode()).digest())
    mac.update(hashlib.sha256((user.otp_secret or "").encode()).digest())
    mac.update(user.passkey_count.to_bytes(2, "big"))
    return mac.digest()
