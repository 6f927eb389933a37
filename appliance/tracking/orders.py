"""Orders, events with an amount: those that follow a click, and what a contact usually pays.

An order is an event that the account's own programs submitted. It follows a click if its contact clicked in a message
within the account's attribution window before it, as in the report of a campaign. Clicks of machines and test messages
do not count.
"""

import json
from collections.abc import Sequence
from typing import NamedTuple

from appliance.core import clock
from appliance.core.cache import CostAwareCache
from appliance.experiments.evidence import TypicalAmount
from appliance.storage.database import fetch_one, rows

_IS_ORDER = "e.amount IS NOT NULL AND e.generated = 0 AND e.test = 0"
# An order after several clicks is one order.
_ORDERS_OF_FLOWS = (
    "SELECT flow, count(*), total(amount) FROM (SELECT DISTINCT m.flow_id AS flow, e.id, e.amount "
    "FROM message m INDEXED BY message_of_flow CROSS JOIN event e INDEXED BY event_of_contact "
    "ON e.contact_id = m.contact_id AND e.created_at >= m.clicked_at AND e.created_at < m.clicked_at + ? "
    "WHERE m.run_id IS NOT NULL AND m.flow_id IN (SELECT value FROM json_each(?)) AND m.clicked_at IS NOT NULL "
    f"AND m.test = 0 AND {_IS_ORDER}) GROUP BY 1"
)
_ORDERS_AFTER_EMAILS = (
    "SELECT count(*), total(amount) FROM (SELECT DISTINCT e.id, e.amount "
    "FROM event k INDEXED BY event_of_name CROSS JOIN event e INDEXED BY event_of_contact "
    "ON e.contact_id = k.contact_id AND e.created_at >= k.created_at AND e.created_at < k.created_at + :window "
    "WHERE k.account_id = :account AND k.event = 'email_clicked' AND k.created_at >= :since - :window AND k.test = 0 "
    "AND k.generated = 1 AND json_extract(k.data, '$.verdict') IS NOT 'machine' AND e.created_at >= :since "
    f"AND {_IS_ORDER})"
)
# Amounts are compared between a millionth and a billion, because any number may be sent as an amount and the squares of
# others may be too large, or too small, for a float.
_MIN_AMOUNT, _MAX_AMOUNT = 1e-6, 1e9
CLAMPED_AMOUNT = f"iif(abs(amount) < {_MIN_AMOUNT}, 0.0, max(-{_MAX_AMOUNT}, min({_MAX_AMOUNT}, amount)))"
# The expected amounts if the account has no earlier orders; any value gives valid decisions (`TypicalAmount`).
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


class OrderTotals(NamedTuple):
    """A number of orders, and the sum of their amounts."""

    number: int
    amount: float


NO_ORDERS = OrderTotals(0, 0.0)
_flow_cache: CostAwareCache[dict[int, OrderTotals]] = CostAwareCache(min_age_seconds=5, min_cost_seconds=0.005)
_account_cache: CostAwareCache[OrderTotals] = CostAwareCache(min_age_seconds=30, min_cost_seconds=0.005)


def count_by_flow(flow_ids: Sequence[int], window_days: int) -> dict[int, OrderTotals]:
    """Return the orders less than `window_days` days after a click in a message of each flow, for flows with orders.

    A count that takes long is cached.
    """
    values = (window_days * clock.DAY_MS, json.dumps(sorted(flow_ids)))

    def count() -> dict[int, OrderTotals]:
        return {row[0]: OrderTotals(*row[1:]) for row in rows(_ORDERS_OF_FLOWS, values)}

    return _flow_cache.get(values, count)


def count_after_emails(account_id: int, days: int, window_days: int) -> OrderTotals:
    """Return the orders of the last `days` days that came less than `window_days` days after a click in an email.

    A count that takes long is cached.
    """

    def count() -> OrderTotals:
        since = clock.now_ms() - days * clock.DAY_MS
        values = {"account": account_id, "since": since, "window": window_days * clock.DAY_MS}
        row = fetch_one(_ORDERS_AFTER_EMAILS, values)
        return OrderTotals(*row) if row is not None else NO_ORDERS

    return _account_cache.get((account_id, days, window_days), count)


def find_typical_amount(account_id: int, event: str) -> TypicalAmount:
    """Return the mean amount (and mean square) of a contact's events of this name in the last 90 days.

    Only the newest `_MAX_EARLIER_EVENTS` are read. Returns `DEFAULT_TYPICAL` if there are none, or their mean is about
    0 or negative.
    """
    since = clock.now_ms() - _EARLIER_PERIOD_MS
    row = fetch_one(_EARLIER_AMOUNTS, (account_id, event, since, _MAX_EARLIER_EVENTS))
    if row is None or row[0] is None or row[0] < _MIN_TYPICAL:
        return DEFAULT_TYPICAL
    return TypicalAmount(*row)
