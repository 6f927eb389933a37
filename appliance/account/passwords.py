"""Passwords as Argon2id hashes."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import cache

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from appliance.errors import Invalid, TooMany

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
