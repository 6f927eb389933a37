"""Passwords as Argon2id hashes."""

import asyncio
import base64
import hashlib
import hmac
from concurrent.futures import ThreadPoolExecutor
from functools import cache

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from appliance.core import clock, tokens
from appliance.core.errors import Invalid, TooMany
from appliance.storage.models import User

MIN_CHARACTERS, MAX_CHARACTERS = 10, 1024
# Looked at together: each takes 19 MiB and a core for tens of milliseconds, and the service has other things to do
_AT_ONCE = 2
_MAX_WAITING = 60

_waiting = 0


@cache
def _hasher() -> PasswordHasher:

    return PasswordHasher(time_cost=2, memory_cost=19_456, parallelism=1)  # OWASP's second choice: 19 MiB, t=2, p=1


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="password")


def check_length(password: str, field: str = "password") -> None:
    """Raise Invalid for a password that is too short or too long; there are no rules of composition."""
    if len(password) < MIN_CHARACTERS:
        raise Invalid({field: [f"is too short (minimum is {MIN_CHARACTERS} characters)"]})
    if len(password) > MAX_CHARACTERS:
        raise Invalid({field: [f"is too long (maximum is {MAX_CHARACTERS} characters)"]})


def make(password: str) -> str:
    """Hash a password; takes tens of milliseconds on purpose, so never on the loop or the writer."""
    return _hasher().hash(_bytes(password))


def holds(password_hash: str, password: str) -> bool:
    """Return whether a password belongs to a hash."""

    try:
        return _hasher().verify(password_hash, _bytes(password))
    except (VerificationError, InvalidHashError):
        return False


async def check(password_hash: str | None, password: str) -> bool:
    """Return whether a password belongs to a hash; without one it takes the same time.

    On threads of its own, few together: who signs in keeps nobody from reading. Raises TooMany where too many wait.
    """
    global _waiting
    if _waiting >= _MAX_WAITING:
        raise TooMany("too many sign-ins at once", retry_after=2)
    _waiting += 1
    try:
        return await asyncio.get_running_loop().run_in_executor(_pool(), _check, password_hash, password)
    finally:
        _waiting -= 1


def _check(password_hash: str | None, password: str) -> bool:
    # Nobody's password is longer, and to hash megabytes would take longer than for the others
    given = password[:MAX_CHARACTERS]
    found = holds(password_hash or _nobody(), given)
    return found and password_hash is not None and given == password


@cache
def _nobody() -> str:
    return make("nobody has this password")


def _bytes(password: str) -> bytes:
    # Half a surrogate pair is no text, but a wrong password like any other
    return password.encode("utf-8", "surrogatepass")


# Short-lived passes for one person and one purpose: a MAC over who, until when, and their sign-in as it is now.
#
# Nothing of them is stored. Each ends by itself, and as soon as password or second factor of the person changes: a
# link to choose a new password is good for one change, whoever finds it afterwards.

_LONG = 80


def make_pass(purpose: str, user: User, until_ms: int) -> str:
    """Make a pass of a purpose for somebody; whoever has it is taken for them there."""
    body = user.id.to_bytes(6, "big") + (until_ms // 1000).to_bytes(6, "big")
    return base64.urlsafe_b64encode(body + _mac(purpose, body, user)).decode().rstrip("=")


def pass_holder(purpose: str, text: str) -> User | None:
    """Return whose pass it is, if it is one of ours for this purpose and of now; None for all else."""
    if len(text) > _LONG or not text.isascii():
        return None
    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        return None
    body, mac = raw[:12], raw[12:]
    if len(raw) != 44 or int.from_bytes(body[6:], "big") * 1000 <= clock.now_ms():
        return None
    user = User.get_or_none(User.id == int.from_bytes(body[:6], "big"), User.disabled_at.is_null())
    return user if user is not None and hmac.compare_digest(_mac(purpose, body, user), mac) else None


def _mac(purpose: str, body: bytes, user: User) -> bytes:
    made = hashlib.blake2b(body, key=tokens.derive(f"pass:{purpose}"), digest_size=32)
    made.update(hashlib.sha256(user.password_hash.encode()).digest())
    made.update(hashlib.sha256((user.otp_secret or "").encode()).digest())
    return made.digest()
