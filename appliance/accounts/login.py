"""Sign-in with password and second factor, for pages and the API; `passkey_login.py` is for passkeys.

An unknown address, a disabled user and a wrong password cannot be distinguished: the error, the time taken and the
limit of attempts are the same (T14 in docs/threats.md).
"""

import base64
import binascii
import hashlib
import hmac
import logging
import secrets
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, urlencode

from appliance.accounts import audit, members, passkeys, passwords, request_limits, sessions, users
from appliance.accounts.audit import Actor
from appliance.core import clock, crypto
from appliance.core.errors import Invalid, NotFound, Refused, Unavailable
from appliance.core.i18n import gettext
from appliance.storage.models import User
from appliance.storage.transactions import commit, fetch, require_write_transaction, submit

# The second factor is a TOTP code or a recovery code: RFC 6238 (TOTP) over RFC 4226 (HOTP) with SHA-1, 30 seconds and 6
# digits, which every authenticator app supports. The codes of the previous and the next period are accepted too
# (RFC 6238, section 5.2). No code is accepted twice.

PERIOD_SECONDS, DIGITS = 30, 6
ISSUER = "Campanero"
_SECRET_BYTES = 20  # RFC 4226, section 4: 160 bits are recommended
_RECOVERY_CODES = 10
# The characters of recovery codes, without those that look alike in handwriting.
_LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"


def generate_otp_key() -> str:
    """Return a new random TOTP key in base32, the form that authenticator apps accept."""
    return base64.b32encode(secrets.token_bytes(_SECRET_BYTES)).decode()


def otp_link(key: str, email: str) -> str:
    """Return the `otpauth:` URI of a TOTP key, for a QR code."""
    parameters = {"secret": key, "issuer": ISSUER, "algorithm": "SHA1", "digits": DIGITS, "period": PERIOD_SECONDS}
    return f"otpauth://totp/{quote(ISSUER)}:{quote(email)}?{urlencode(parameters)}"


def otp_code(key: str, step: int) -> str:
    """Return the code of a time step, which is the Unix time divided by `PERIOD_SECONDS` (RFC 4226, section 5.3)."""
    mac = hmac.digest(base64.b32decode(key), step.to_bytes(8, "big"), hashlib.sha1)
    offset = mac[-1] & 15
    number = int.from_bytes(mac[offset : offset + 4], "big") & 0x7FFF_FFFF
    return f"{number % 10**DIGITS:0{DIGITS}}"


def find_otp_step(key: str, code: str, after: int | None = None) -> int | None:
    """Return the time step (previous, current or next) whose code was entered, or None for a wrong or used code.

    Spaces in the code are ignored. The codes of steps up to and including `after` count as used.
    """
    digits = "".join(code.split())
    now = clock.now_ms() // 1000 // PERIOD_SECONDS
    matching_step = None
    for step in (now - 1, now, now + 1):
        # All three steps are compared, so that the time taken does not reveal which one matched.
        if hmac.compare_digest(otp_code(key, step).encode(), digits.encode("utf-8", "replace")):
            matching_step = step
    return matching_step if matching_step is not None and (after is None or matching_step > after) else None


def is_otp_key(key: str) -> bool:
    """Return whether a text is base32 for a TOTP key of the right length."""
    try:
        return len(base64.b32decode(key)) == _SECRET_BYTES
    except (binascii.Error, ValueError):
        return False


def has_otp(user: User) -> bool:
    """Return whether a user has set up an authenticator app."""
    return user.otp_secret is not None


def has_second_factor(user: User) -> bool:
    """Return whether the password of a user is not enough: with an authenticator app, or with a passkey."""
    return has_otp(user) or user.passkey_count > 0


def use_code(user_id: int, code: str) -> bool:
    """Use up a TOTP or recovery code of a user; return False, without a change, if the code is not valid."""
    require_write_transaction()
    user = User.get_by_id(user_id)
    key = _decrypt_otp_key(user)
    step = find_otp_step(key, code, user.otp_step) if key is not None else None
    if step is not None:
        user.otp_step = step
    elif (code_hash := _hash_recovery_code(user_id, code)) in user.otp_codes:
        user.otp_codes = [known_hash for known_hash in user.otp_codes if known_hash != code_hash]
    else:
        return False
    user.save(only=["otp_step", "otp_codes"])
    return True


def store_second_factor(user: User, key: str, step: int) -> list[str]:
    """Enable the second factor with a new key, and return new recovery codes, which are stored only as hashes.

    `step` is the time step whose code has just been used; codes of this step and of earlier steps are no longer
    accepted.
    """
    require_write_transaction()
    sealed = crypto.seal(crypto.derive_key("otp"), f"user:{user.id}", key.encode())
    user.otp_secret, user.otp_step = base64.b64encode(sealed).decode(), step
    user.save(only=["otp_secret", "otp_step"])
    return store_recovery_codes(user)


def store_recovery_codes(user: User) -> list[str]:
    """Replace the recovery codes of a user and return the new ones, which are stored only as hashes."""
    require_write_transaction()
    codes = [
        "-".join("".join(secrets.choice(_LETTERS) for _ in range(5)) for _ in range(2)) for _ in range(_RECOVERY_CODES)
    ]
    user.otp_codes = [_hash_recovery_code(user.id, code) for code in codes]
    user.save(only=["otp_codes"])
    return codes


def renew_recovery_codes(user_id: int, by: Actor) -> list[str]:
    """Replace the recovery codes of a user who has a second factor, and return the new ones; raises Invalid.

    The caller must have verified the user's identity.
    """
    require_write_transaction()
    user = User.get_by_id(user_id)
    if not has_second_factor(user):
        raise Invalid({"base": [gettext("has no second factor")]})
    members.record_for_person(by, user.id, "otp_codes")
    return store_recovery_codes(user)


def clear_second_factor(user: User) -> None:
    """Delete the TOTP key of a user, and the recovery codes unless the user has passkeys."""
    require_write_transaction()
    user.otp_secret, user.otp_step = None, None
    user.otp_codes = user.otp_codes if user.passkey_count else []
    user.save(only=["otp_secret", "otp_step", "otp_codes"])


def _decrypt_otp_key(user: User) -> str | None:
    """Return the TOTP key of a user; None if the user has none or it was encrypted with another installation's key."""
    sealed = base64.b64decode(user.otp_secret) if user.otp_secret else b""
    plain = crypto.unseal(crypto.derive_key("otp"), f"user:{user.id}", sealed)
    return plain.decode() if plain is not None else None


def _hash_recovery_code(user_id: int, code: str) -> str:
    plain = "".join(letter for letter in code.lower() if letter.isalnum())
    message = f"{user_id}:{plain}".encode("utf-8", "replace")
    return hashlib.blake2b(message, key=crypto.derive_key("recovery code"), digest_size=20).hexdigest()


def enable_second_factor(user_id: int, key: str, code: str, session_id: int | None, by: Actor) -> list[str]:
    """Enable the second factor with a new key and its current code, and return the recovery codes.

    The recovery codes are stored only as hashes. All sessions of the user end except `session_id`. Raises Invalid for a
    wrong code, or if an authenticator app is set up already.
    """
    require_write_transaction()
    user = User.get_by_id(user_id)
    if has_otp(user):
        raise Invalid({"base": [gettext("is enabled already")]})
    step = find_otp_step(key, code) if is_otp_key(key) else None
    if step is None:
        raise Invalid({"otp": [gettext("is invalid")]})
    codes = store_second_factor(user, key, step)
    sessions.delete_all(user.id, session_id)
    members.record_for_person(by, user.id, "otp_on")
    return codes


def disable_otp(user_id: int, session_id: int | None, by: Actor) -> User:
    """Remove the authenticator app of a user, and end all of the user's sessions except `session_id`.

    Passkeys stay. The caller must have verified the user's identity.
    """
    require_write_transaction()
    user = User.get_by_id(user_id)
    clear_second_factor(user)
    sessions.delete_all(user.id, session_id)
    members.record_for_person(by, user.id, "otp_off")
    return user


def disable_second_factor(user_id: int, by: Actor) -> User:
    """Remove the authenticator app and all passkeys of a user, so that the password is enough, and end all sessions.

    The caller must have verified the user's identity.
    """
    require_write_transaction()
    user = User.get_by_id(user_id)
    passkeys.delete_all(user, by)
    return disable_otp(user.id, None, by)


def reset_second_factor(by: Actor, user_id: int) -> User:
    """Remove the authenticator app and the passkeys of a team member who lost them, and end all of their sessions.

    Raises NotFound for an unknown user, and NotAllowed if the actor may not manage the user, or if the person is in
    another account, too. Raises Invalid for the actor's own second factor, because a stolen session must not be able to
    disable it without password and code.
    """
    require_write_transaction()
    user = users.get_managed(by, user_id)
    if user.id == by.user_id:
        raise Invalid({"otp": [gettext("is your own; disable it with password and code")]})
    members.require_sole_account(user)
    return disable_second_factor(user.id, by)


log = logging.getLogger("campanero")
# The maximum time between entering the password and entering the code.
_CODE_TIMEOUT_MS = 10 * 60 * 1000
SECOND_FACTOR_PURPOSE = "second factor"
# The same after a provider, which proves no password and opens other accounts (`sessions.may_open`).
PROVIDER_FACTOR_PURPOSE = "second factor after a provider"
# Failed sign-ins of one user are recorded in the audit log at most once in this time.
_RECORD_INTERVAL_MS = 60_000

_recorded_at: dict[str, int] = {}


class InvalidCredentials(Refused):
    """The email address, password or code is wrong; the error does not say which."""

    code = "invalid_credentials"


class CodeRequired(Refused):
    """Email address and password are right, but a code is required.

    The second request sends `token` with the code, instead of address and password.
    """

    code = "otp_required"

    def __init__(self, token: str) -> None:
        super().__init__(gettext("A code of the second factor is required."))
        self.token = token


class PasswordSignInOff(Refused):
    """Address and password are right, but the user's accounts allow only other ways to sign in."""

    code = "password_sign_in_off"


def _require_password_sign_in(user: User) -> None:
    if not any(row.account.password_sign_in for row in members.list_of(user.id)):
        raise PasswordSignInOff(
            gettext("Your account does not allow passwords. Sign in with your company’s account instead.")
        )


async def sign_in(email: str, password: str, code: str | None, ip: str, *, is_linking: bool = False) -> User:
    """Return the user who signs in with address and password, and a code if a second factor is enabled.

    With `is_linking`, the password proves who links an identity of a provider, so accounts need not allow passwords.
    Raises InvalidCredentials if address, password or code is wrong, PasswordSignInOff if no account of the user allows
    passwords, CodeRequired if the code is missing, and RateLimitExceeded after too many failed attempts.
    """
    name = request_limits.email_key(email)
    with request_limits.limit_attempt(name, request_limits.client_key(ip)) as attempt:
        user = await fetch(users.find_by_email, email)
        may_enter = user is not None and user.member is not None
        holds = await passwords.verify(user.password_hash if may_enter and user is not None else None, password)
        if user is None or not holds:
            attempt.fail()
            record_failure(user, ip)
            raise InvalidCredentials(gettext("Email address or password is wrong."))
        if not is_linking:
            await fetch(_require_password_sign_in, user)
        if has_second_factor(user):
            if not code:
                raise CodeRequired(create_code_token(user))
            await _require_code(attempt, user, code, ip)
    request_limits.clear_failures(name)
    return user


def create_code_token(user: User, purpose: str = SECOND_FACTOR_PURPOSE) -> str:
    """Return the token of CodeRequired for a user who has proved everything but the second factor."""
    return passwords.create_token(purpose, user, clock.now_ms() + _CODE_TIMEOUT_MS)


def find_code_user(token: str) -> User | None:
    """Return the user of a token whose second factor is needed, after the password or a provider.

    Returns None if the token is invalid or has expired.
    """
    user = passwords.find_token_user(SECOND_FACTOR_PURPOSE, token)
    return user if user is not None else passwords.find_token_user(PROVIDER_FACTOR_PURPOSE, token)


async def sign_in_with_code(
    token: str, code: str, ip: str, *, is_linking: bool = False, purpose: str = SECOND_FACTOR_PURPOSE
) -> User | None:
    """Return the user who signs in with a code after the password; None if `token` is invalid or has expired.

    `token` is the token of CodeRequired, for this `purpose`; `is_linking` as for `sign_in`. Raises InvalidCredentials
    for a wrong or used code, PasswordSignInOff, and RateLimitExceeded after too many failed attempts.
    """
    user = await fetch(passwords.find_token_user, purpose, token)
    if user is None:
        return None
    if not is_linking:
        await fetch(_require_password_sign_in, user)
    name = request_limits.email_key(user.email)
    with request_limits.limit_attempt(name, request_limits.client_key(ip)) as attempt:
        await _require_code(attempt, user, code, ip)
    request_limits.clear_failures(name)
    return user


async def find_wrong_proofs(user: User, password: str, code: str | None, ip: str) -> list[str]:
    """Check the password and code with which a signed-in user confirms their identity, and return which one is wrong.

    The result is empty, `["password"]` or `["otp"]`; the code is checked, and used up, only if the password is right
    and `code` is not None. A failure counts against the limit of sign-in attempts, so that an unattended browser cannot
    be used for guessing. Raises RateLimitExceeded after too many failed attempts.
    """
    with request_limits.limit_attempt(request_limits.email_key(user.email), request_limits.client_key(ip)) as attempt:
        wrong = [] if await passwords.verify(user.password_hash, password) else ["password"]
        if not wrong and code is not None and not await commit(use_code, user.id, code):
            wrong = ["otp"]
        if wrong:
            attempt.fail()
            record_failure(user, ip)
    return wrong


def require_unchanged(user: User) -> None:
    """Raise InvalidCredentials if password, second factor or access of a user changed after `user` was read.

    A person who may no longer enter any account has lost access.

    Call it in the transaction that acts on a verified password or code. The verification takes time, and a change in
    the meantime ends only the sessions that exist by then.
    """
    require_write_transaction()
    current = User.get_by_id(user.id)
    verified = user.password_hash, user.otp_secret, user.passkey_count
    current_values = current.password_hash, current.otp_secret, current.passkey_count
    if not members.list_of(user.id) or current_values != verified:
        raise InvalidCredentials(gettext("Email address or password is wrong."))


def create_browser_session(
    user: User, ip: str | None, user_agent: str | None, device_token: str | None = None,
    method: sessions.Method = "password", identity_id: int | None = None,
) -> str:  # fmt: skip
    """Create a browser session for a user who has signed in, and return its cookie; raises as `require_unchanged`.

    `identity_id` is the identity at an OpenID Connect provider that the user has signed in with. If it was removed or
    its provider disabled meanwhile, InvalidCredentials is raised.
    """
    require_unchanged(user)
    try:
        return sessions.create_browser_session(user.id, ip, user_agent, device_token, method, identity_id)
    except NotFound:
        raise InvalidCredentials(gettext("This account is no longer linked. Sign in again.")) from None


def issue_token(
    user: User, ip: str | None, user_agent: str | None, method: sessions.Method = "password"
) -> sessions.IssuedToken:
    """Create a session for a program that has signed in, and return its token; raises as `require_unchanged`."""
    require_unchanged(user)
    return sessions.issue_token(user, ip, user_agent, method)


async def _require_code(attempt: request_limits.Attempt, user: User, code: str, ip: str) -> None:
    if not await commit(use_code, user.id, code):
        attempt.fail()
        record_failure(user, ip)
        raise InvalidCredentials(gettext("The code is wrong or was used before."))


def record_failure(user: User | None, ip: str) -> None:
    """Record a failed sign-in in the audit logs of the user's accounts, without waiting for the write.

    Nothing is recorded for an unknown user (None), or within `_RECORD_INTERVAL_MS` of the last entry about the user.
    """
    if user is not None:
        _record_once(
            f"user:{user.id}", members.record_for_person, Actor(audit.SYSTEM, ip), user.id, "login_failed"
        )  # fmt: skip


def record_provider_failure(account_id: int, provider_id: int, ip: str) -> None:
    """Record a failed sign-in with a provider in the audit log of its account, as `record_failure` does for a user."""
    subject = f"provider:{provider_id}"
    _record_once(subject, audit.insert_entry, account_id, audit.SYSTEM, "login_failed", subject, None, ip)


def _record_once(subject: str, function: Callable[..., None], *args: Any) -> None:
    now = clock.now_ms()
    if abs(now - _recorded_at.get(subject, 0)) < _RECORD_INTERVAL_MS:
        return
    _recorded_at[subject] = now
    try:
        submit(function, *args)
    except Unavailable as error:
        log.info("login: failed sign-in not recorded subject=%s: %s", subject, error)
