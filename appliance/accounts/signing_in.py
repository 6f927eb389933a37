"""Whether somebody is who they say: address and password, and a second factor where they have one.

For pages and API alike. An address that nobody has, one of somebody who may sign in no more, and a wrong password are
the same to whoever asks: in words, in time, and in how often they may try (trust, T14).
"""

import logging

from appliance.accounts import audit, passwords, rate_limits, second_factor, users
from appliance.core import clock
from appliance.core.errors import Refused, Unavailable
from appliance.storage.models import User
from appliance.storage.work import call, commit, submit

log = logging.getLogger("campanero")
# Between password and code
_BETWEEN_MS = 10 * 60 * 1000
_STEP = "second factor"
# A name is told of failures once in that time
_TOLD_EVERY_MS = 60_000

_told: dict[int, int] = {}


class WrongSignIn(Refused):
    """Address, password or code are not right; which of them is nobody's business."""

    code = "invalid_credentials"


class CodeNeeded(Refused):
    """Address and password are right and a code is missing; `pass_` stands for them while it is typed."""

    code = "otp_required"

    def __init__(self, pass_: str) -> None:
        super().__init__("a code of the second factor is needed")
        self.pass_ = pass_


async def enter(email: str, password: str, code: str | None, ip: str) -> User:
    """Return who signs in; raises WrongSignIn, CodeNeeded, or TooMany."""
    name = rate_limits.of_address(email)
    with rate_limits.attempt(name, rate_limits.of_client(ip)) as one:
        user = await call(users.of_address, email)
        may_enter = user is not None and user.disabled_at is None
        holds = await passwords.check(user.password_hash if may_enter and user is not None else None, password)
        if user is None or not holds:
            one.wrong()
            _tell(user, ip)
            raise WrongSignIn("address and password do not belong together")
        if second_factor.is_on(user):
            if not code:
                raise CodeNeeded(passwords.make_pass(_STEP, user, clock.now_ms() + _BETWEEN_MS))
            await _check_code(one, user, code, ip)
    rate_limits.succeeded(name)
    return user


async def enter_code(pass_: str, code: str, ip: str) -> User | None:
    """Return who signs in by the code alone, having shown the password just now; None if that is too long ago.

    Raises WrongSignIn or TooMany.
    """
    user = await call(passwords.pass_holder, _STEP, pass_)
    if user is None:
        return None
    name = rate_limits.of_address(user.email)
    with rate_limits.attempt(name, rate_limits.of_client(ip)) as one:
        await _check_code(one, user, code, ip)
    rate_limits.succeeded(name)
    return user


async def prove(user: User, password: str, code: str | None, ip: str) -> list[str]:
    """Return what is not right of what somebody who is signed in says to show that it is still them.

    It counts as an attempt, so that a browser that was left open is no way to guess. A code that is right is used up.
    Raises TooMany.
    """
    with rate_limits.attempt(rate_limits.of_address(user.email), rate_limits.of_client(ip)) as one:
        wrong = [] if await passwords.check(user.password_hash, password) else ["password"]
        if not wrong and code is not None and not await commit(second_factor.use, user.id, code):
            wrong = ["otp"]
        if wrong:
            one.wrong()
            _tell(user, ip)
    return wrong


async def _check_code(one: rate_limits.Attempt, user: User, code: str, ip: str) -> None:
    if not await commit(second_factor.use, user.id, code):
        one.wrong()
        _tell(user, ip)
        raise WrongSignIn("this code is not right, or was used before")


def _tell(user: User | None, ip: str) -> None:
    """Note a failure in the audit of whoever it was about, without letting the answer wait for it."""
    now = clock.now_ms()
    if user is None or abs(now - _told.get(user.id, 0)) < _TOLD_EVERY_MS:
        return
    _told[user.id] = now
    subject = f"user:{user.id}"
    try:
        submit(audit.record, user.account_id, audit.SYSTEM, "login_failed", subject, None, ip)
    except Unavailable as gone:
        log.info("a failed sign-in of %s was not noted: %s", subject, gone)
