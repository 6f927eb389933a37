"""How many paid parts of SMS an account has used on a day of its own, and when the next one begins."""

from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from appliance.core import clock
from appliance.sending.messages.ledger import Outcome
from appliance.settings import config
from appliance.storage.open import connection, fetch_one, scalar
from appliance.storage.work import writing

_ADD = (
    "INSERT INTO sms_day (account_id, day, parts) VALUES (?, ?, ?) "
    "ON CONFLICT (account_id, day) DO UPDATE SET parts = parts + excluded.parts"
)


def accepted(found: Iterable[Outcome]) -> None:
    """Count the parts of SMS that a provider took; what stays in the inbox is paid by nobody."""
    writing()
    parts: Counter[int] = Counter()
    for outcome in found:
        if outcome.claim.provider != "capture":
            parts[outcome.claim.account_id] += (outcome.prepared.parts if outcome.prepared else None) or 1
    now = clock.now_ms()
    connection().executemany(_ADD, [(number, _day(_zone(number), now), count) for number, count in parts.items()])


def used(account_id: int, zone: str, now: int) -> int:
    """Return how many parts were used on the day of a moment, by the clocks of the account."""
    return int(scalar("SELECT parts FROM sms_day WHERE account_id = ? AND day = ?", (account_id, _day(zone, now))) or 0)


def full_until(account_id: int, zone: str, now: int) -> int | None:
    """Return when the next day begins, if all parts of this one are used up (ms); else None.

    What is on its way is not counted yet: a day ends with so many messages more at most as there are connections.
    """
    most = config.current().sms.parts_per_day
    if not most or used(account_id, zone, now) < most:
        return None
    local = datetime.fromtimestamp(now / 1000, ZoneInfo(zone))
    following = datetime.combine(local.date() + timedelta(days=1), datetime.min.time(), local.tzinfo)
    return max(int(following.timestamp() * 1000), now + 1)


def _zone(account_id: int) -> str:
    found = fetch_one("SELECT time_zone FROM account WHERE id = ?", (account_id,))
    return str(found[0]) if found else "UTC"


def _day(zone: str, now: int) -> int:
    return datetime.fromtimestamp(now / 1000, ZoneInfo(zone)).date().toordinal()
