"""Tests to people nobody here knows: few an hour, so that nobody writes to the world by them (a list bomb)."""

from collections import deque
from typing import Any

from appliance import addresses, clock
from appliance.db.work import writing
from appliance.errors import TooMany
from appliance.tables import Account, Channel, User

MAX_AN_HOUR = 20
_HOUR_MS = 3_600_000
# By account, when tests went to strangers in the last hour; a restart forgets them
_sent: dict[int, deque[int]] = {}


def count(account: Account, recipients: list[addresses.Address]) -> None:
    """Count those of a test who are no contact, no tester and nobody of the team; raises TooMany past the bound."""
    writing()
    unknown = [one for one in recipients if not _is_known(account, one)]
    if not unknown:
        return
    now, times = clock.now_ms(), _sent.setdefault(account.id, deque())
    while times and times[0] <= now - _HOUR_MS:
        times.popleft()
    if len(times) + len(unknown) > MAX_AN_HOUR:
        words = f"at most {MAX_AN_HOUR} tests an hour go to addresses that are no contacts and nobody of the team"
        raise TooMany(words, max(1, -(-(times[0] + _HOUR_MS - now) // 1000)) if times else 3600)
    times.extend(now for _ in unknown)


def _is_known(account: Account, address: addresses.Address) -> bool:
    if address.kind == "email":
        team = [row.email for row in User.select(User.email).where(User.account == account.id)]
        known: list[Any] = [*team, *(account.test_email_recipients or ())]
        if address.key in {addresses.read("email", one).key for one in known}:
            return True
    return bool(
        Channel.select()
        .where(Channel.account == account.id, Channel.kind == address.kind, Channel.key == address.key)
        .exists()
    )
