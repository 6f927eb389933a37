"""Amounts of events, as experiments compare them, and what a contact usually pays."""

from appliance.core import clock
from appliance.experiments.evidence import TypicalAmount
from appliance.storage.database import fetch_one

# Amounts are compared between a millionth and a billion, because any number may be sent as an amount and the squares of
# others may be too large, or too small, for a float.
_MIN_AMOUNT, _MAX_AMOUNT = 1e-6, 1e9
CLAMPED_AMOUNT = f"iif(abs(amount) < {_MIN_AMOUNT}, 0.0, max(-{_MAX_AMOUNT}, min({_MAX_AMOUNT}, amount)))"
# What an order is expected to be if the account has no earlier ones: any value is valid (`TypicalAmount`).
DEFAULT_TYPICAL = TypicalAmount(50.0, 5_000.0)
# Below this mean, orders and refunds have cancelled out.
_MIN_TYPICAL = 1e-6
_MAX_EARLIER_EVENTS = 10_000
_EARLIER_PERIOD_MS = 90 * clock.DAY_MS
_EARLIER_AMOUNTS = (
    "SELECT avg(amount), avg(amount * amount) FROM (SELECT total(amount) AS amount FROM (SELECT contact_id, "
    f"{CLAMPED_AMOUNT} AS amount FROM event WHERE account_id = ? AND event = ? "
    "AND created_at >= ? AND contact_id NOT NULL AND test = 0 ORDER BY created_at DESC LIMIT ?) GROUP BY contact_id)"
)


def find_typical_amount(account_id: int, event: str) -> TypicalAmount:
    """Return what a contact paid by events with a name in the last 90 days; without any, `DEFAULT_TYPICAL`."""
    since = clock.now_ms() - _EARLIER_PERIOD_MS
    row = fetch_one(_EARLIER_AMOUNTS, (account_id, event, since, _MAX_EARLIER_EVENTS))
    if row is None or row[0] is None or row[0] < _MIN_TYPICAL:
        return DEFAULT_TYPICAL
    return TypicalAmount(*row)
