"""A new password for somebody who forgot theirs: a mail with a link that is good for half an hour, and once.

The link is never in the database: it is made as the mail leaves (`masks`), and checked by what it says.
"""

from appliance.accounts import audit, passwords, users
from appliance.accounts.acting import By
from appliance.core import addresses
from appliance.sending.messages import secret_values, system
from appliance.sending.messages.system import Letter
from appliance.settings import config
from appliance.storage.models import User
from appliance.storage.work import writing

_LETTER = Letter(
    subject="Choose a new password",
    heading="Choose a new password",
    text="Somebody, most likely you, asked for a new password for {{ data.email }}. Until another one is chosen the "
    "old one stays.",
    button="Choose a new password",
    link="{{ data.link }}",
    note="The link works once, for 30 minutes. If you did not ask for it, there is nothing to do.",
)


def can_ask() -> bool:
    """Return whether mail reaches anybody at all; what is captured can be read by all who sign in."""
    return config.current().email.transport != "capture"


def ask(email: str, ip: str | None) -> None:
    """Write to whoever signs in with an address; nothing happens where nobody does."""
    writing()
    try:
        address = addresses.email(email)
    except ValueError:
        return
    user = User.get_or_none(User.email == address.key, User.disabled_at.is_null())
    if user is None or not can_ask():
        return
    # What is shown of the mail leads to the page where one asks
    shown = f"{config.base_url(config.current())}/forgot"
    system.put(user.account, addresses.email(user.email), None, _LETTER,
               {secret_values.KEY: user.id, "email": user.email, "link": shown})  # fmt: skip
    audit.record(user.account_id, audit.SYSTEM, "password_reset_asked", f"user:{user.id}", None, ip)


def holder(token: str) -> User | None:
    """Return whose link it is, or None where it is over, used, or none of ours."""
    return passwords.pass_holder(secret_values.RESET, token)


def choose(token: str, password_hash: str, ip: str | None) -> User | None:
    """Take the new password of whoever holds a link, which ends it and all their sign-ins; None as `holder`."""
    writing()
    user = holder(token)
    if user is None:
        return None
    by = By(f"user:{user.id}", ip, user.id)
    done = users.reset_password(user.id, password_hash, by)
    audit.note(by, user.account_id, "password_reset_done", f"user:{user.id}")
    return done
