"""Switching the second factor on and off: by oneself, by who looks after the team, and on the machine."""

import base64
import binascii
import hashlib
import hmac
import secrets
from urllib.parse import quote, urlencode

from appliance.accounts import audit, sessions, users
from appliance.accounts.acting import By
from appliance.core import clock, crypto, tokens
from appliance.core.errors import Invalid
from appliance.storage.models import User
from appliance.storage.work import writing

# The second factor: six digits that an authenticator app makes of a shared key and the time, or a recovery code.
#
# RFC 6238 (TOTP) over RFC 4226 (HOTP): SHA-1, 30 seconds, 6 digits, as every app reads them. A code of the half
# minute before or after counts too (RFC 6238, section 5.2), none counts twice.

PERIOD, DIGITS = 30, 6
ISSUER = "Campanero"
_SECRET_BYTES = 20  # RFC 4226, section 4: 160 bits are recommended
_CODES = 10
# Without what is mistaken for another when it was written down
_LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"


def new_key() -> str:
    """Make a key, as apps take it: base32."""
    return base64.b32encode(secrets.token_bytes(_SECRET_BYTES)).decode()


def link(key: str, email: str) -> str:
    """Return what a QR code says to an app."""
    asked = {"secret": key, "issuer": ISSUER, "algorithm": "SHA1", "digits": DIGITS, "period": PERIOD}
    return f"otpauth://totp/{quote(ISSUER)}:{quote(email)}?{urlencode(asked)}"


def code_at(key: str, step: int) -> str:
    """Return the code of a half minute (RFC 4226, section 5.3)."""
    mac = hmac.digest(base64.b32decode(key), step.to_bytes(8, "big"), hashlib.sha1)
    at = mac[-1] & 15
    number = int.from_bytes(mac[at : at + 4], "big") & 0x7FFF_FFFF
    return f"{number % 10**DIGITS:0{DIGITS}}"


def step_of(key: str, typed: str, after: int | None = None) -> int | None:
    """Return the half minute that a typed code belongs to, or None; up to `after` all codes are used up."""
    digits = "".join(typed.split())
    now = clock.now_ms() // 1000 // PERIOD
    found = None
    for step in (now - 1, now, now + 1):
        # All three are looked at, so that the time tells nothing
        if hmac.compare_digest(code_at(key, step).encode(), digits.encode("utf-8", "replace")):
            found = step
    return found if found is not None and (after is None or found > after) else None


def is_key(key: str) -> bool:
    """Return whether a text is a key as `new_key` makes it."""
    try:
        return len(base64.b32decode(key)) == _SECRET_BYTES
    except (binascii.Error, ValueError):
        return False


def is_on(user: User) -> bool:
    """Return whether somebody signs in with a second factor."""
    return user.otp_secret is not None


def use(user_id: int, typed: str) -> bool:
    """Take a code of somebody for good and say whether it was one: of their app, or one for recovery."""
    writing()
    user = User.get_by_id(user_id)
    key = _opened(user)
    step = step_of(key, typed, user.otp_step) if key is not None else None
    if step is not None:
        user.otp_step = step
    elif (given := _digest(user_id, typed)) in user.otp_codes:
        user.otp_codes = [one for one in user.otp_codes if one != given]
    else:
        return False
    user.save(only=["otp_step", "otp_codes"])
    return True


def put(user: User, key: str, step: int) -> list[str]:
    """Give somebody a key, of which the code of a half minute was shown; answers recovery codes, for the only time."""
    writing()
    codes = ["-".join("".join(secrets.choice(_LETTERS) for _ in range(5)) for _ in range(2)) for _ in range(_CODES)]
    sealed = crypto.seal(tokens.derive("otp"), f"user:{user.id}", key.encode())
    user.otp_secret, user.otp_step = base64.b64encode(sealed).decode(), step
    user.otp_codes = [_digest(user.id, code) for code in codes]
    user.save(only=["otp_secret", "otp_step", "otp_codes"])
    return codes


def drop(user: User) -> None:
    """Take the second factor from somebody."""
    writing()
    user.otp_secret, user.otp_step, user.otp_codes = None, None, []
    user.save(only=["otp_secret", "otp_step", "otp_codes"])


def _opened(user: User) -> str | None:
    """Return the key of somebody; one that was sealed with another installation's key opens nothing."""
    sealed = base64.b64decode(user.otp_secret) if user.otp_secret else b""
    plain = crypto.opened(tokens.derive("otp"), f"user:{user.id}", sealed)
    return plain.decode() if plain is not None else None


def _digest(user_id: int, code: str) -> str:
    plain = "".join(letter for letter in code.lower() if letter.isalnum())
    said = f"{user_id}:{plain}".encode("utf-8", "replace")
    return hashlib.blake2b(said, key=tokens.derive("recovery code"), digest_size=20).hexdigest()


def switch_on(user_id: int, key: str, typed: str, session_id: int | None, by: By) -> list[str]:
    """Give somebody a key whose code they typed, and answer recovery codes, for the only time.

    Every other sign-in of theirs ends. Raises Invalid where the code is not of that key, or there is one already.
    """
    writing()
    user = User.get_by_id(user_id)
    if is_on(user):
        raise Invalid({"base": ["is on already"]})
    step = step_of(key, typed) if is_key(key) else None
    if step is None:
        raise Invalid({"otp": ["is invalid"]})
    codes = put(user, key, step)
    sessions.drop_all(user.id, session_id)
    audit.note(by, user.account_id, "otp_on", f"user:{user.id}")
    return codes


def switch_off(user_id: int, session_id: int | None, by: By) -> User:
    """Take the second factor from somebody who has proved who they are; every other sign-in of theirs ends."""
    writing()
    user = User.get_by_id(user_id)
    drop(user)
    sessions.drop_all(user.id, session_id)
    audit.note(by, user.account_id, "otp_off", f"user:{user.id}")
    return user


def take_away(by: By, user_id: int) -> User:
    """Take the second factor from a member who lost it; raises NotFound, or NotAllowed as all of the team does.

    Raises Invalid for one's own: a browser or token that somebody else got hold of is no way past password and code.
    """
    writing()
    found = users.ruled(by, user_id)
    if found.id == by.user_id:
        raise Invalid({"otp": ["is your own: it is switched off with password and code"]})
    return switch_off(found.id, None, by)
