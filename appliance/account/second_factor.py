"""Switching the second factor on and off: by oneself, by who looks after the team, and on the machine."""

from appliance.account import audit, otp, sessions, team
from appliance.account.acting import By
from appliance.db.work import writing
from appliance.errors import Invalid
from appliance.tables import User


def switch_on(user_id: int, key: str, typed: str, session_id: int | None, by: By) -> list[str]:
    """Give somebody a key whose code they typed, and answer recovery codes, for the only time.

    Every other sign-in of theirs ends. Raises Invalid where the code is not of that key, or there is one already.
    """
    writing()
    user = User.get_by_id(user_id)
    if otp.is_on(user):
        raise Invalid({"base": ["is on already"]})
    step = otp.step_of(key, typed) if otp.is_key(key) else None
    if step is None:
        raise Invalid({"otp": ["is invalid"]})
    codes = otp.put(user, key, step)
    sessions.drop_all(user.id, session_id)
    audit.note(by, user.account_id, "otp_on", f"user:{user.id}")
    return codes


def switch_off(user_id: int, session_id: int | None, by: By) -> User:
    """Take the second factor from somebody who has proved who they are; every other sign-in of theirs ends."""
    writing()
    user = User.get_by_id(user_id)
    otp.drop(user)
    sessions.drop_all(user.id, session_id)
    audit.note(by, user.account_id, "otp_off", f"user:{user.id}")
    return user


def take_away(by: By, user_id: int) -> User:
    """Take the second factor from a member who lost it; raises NotFound, or NotAllowed as all of the team does.

    Raises Invalid for one's own: a browser or token that somebody else got hold of is no way past password and code.
    """
    writing()
    found = team.ruled(by, user_id)
    if found.id == by.user_id:
        raise Invalid({"otp": ["is your own: it is switched off with password and code"]})
    return switch_off(found.id, None, by)
