"""The way from nothing to the first person: a one-time link that only the terminal shows."""

import hmac

from appliance.accounts import users
from appliance.core import tokens


def setup_token() -> str | None:
    """Return the secret of the set-up link, or None once there is a user.

    It is derived from the installation's key, so that a restart prints the same link and nothing need be stored.
    """
    if users.has_users():
        return None
    return tokens.derive("set-up").hex()[:32]


def check_setup(token: str) -> bool:
    """Return whether a set-up link may still be used."""
    wanted = setup_token()
    return wanted is not None and hmac.compare_digest(wanted, token)
