"""Passwords as Argon2id hashes."""

from functools import cache
from typing import TYPE_CHECKING

from appliance.errors import Invalid

if TYPE_CHECKING:
    from argon2 import PasswordHasher

SHORTEST, LONGEST = 10, 1024


@cache
def _hasher() -> "PasswordHasher":
    from argon2 import PasswordHasher

    return PasswordHasher(time_cost=2, memory_cost=19_456, parallelism=1)  # OWASP's second choice: 19 MiB, t=2, p=1


def check_length(password: str, field: str = "password") -> None:
    """Raise Invalid for a password that is too short or too long; there are no rules of composition."""
    if len(password) < SHORTEST:
        raise Invalid({field: [f"is too short (minimum is {SHORTEST} characters)"]})
    if len(password) > LONGEST:
        raise Invalid({field: [f"is too long (maximum is {LONGEST} characters)"]})


def make(password: str) -> str:
    """Hash a password; takes tens of milliseconds on purpose, so never on the loop or the writer."""
    return _hasher().hash(password)


def holds(password_hash: str, password: str) -> bool:
    """Say whether a password belongs to a hash."""
    from argon2.exceptions import InvalidHashError, VerificationError

    try:
        return _hasher().verify(password_hash, password)
    except (VerificationError, InvalidHashError):
        return False


@cache
def _nobody() -> str:
    return make("nobody has this password")


def waste(password: str) -> None:
    """Take the time of a check, so that an unknown address is not told from a wrong password."""
    holds(_nobody(), password)
