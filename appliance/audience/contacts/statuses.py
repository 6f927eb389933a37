"""The state of each contact (subscribed, unsubscribed, not subscribed, suppressed): condition, counts and changes.

Each contact is in one state, that of its email addresses, or of its phone numbers if it has no email address. Of
several addresses, one that is subscribed and not suppressed decides, then one that is suppressed, then one that is
opted out. Imports count the same states (`imports.chunk`).
"""

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from appliance.audience.segments import members
from appliance.core.cache import CostAwareCache
from appliance.storage.database import cached_rows, rows
from appliance.storage.transactions import after_commit

# The states by their rank, which is that of the contact's deciding address. Every email address ranks above all phone
# numbers: `& 3` of a rank is the state.
_STATUS_BY_RANK = ("not_subscribed", "unsubscribed", "suppressed", "subscribed")
_RANK_SQL = (
    "max((h.kind = 'email') * 4 + CASE WHEN h.suppression IS NOT NULL THEN 2 WHEN h.subscribed = 1 THEN 3 "
    "ELSE h.opted_out_by IS NOT NULL END)"
)
# The addresses of the contacts that can be in a state, where these are few, so that not all contacts are ranked
_CANDIDATES_SQL = {
    "unsubscribed": "NOT INDEXED WHERE account_id = :account AND opted_out_by IS NOT NULL",
    "suppressed": "WHERE account_id = :account AND kind IN ('email', 'phone') AND suppression IS NOT NULL",
}


def build_condition(status: str) -> str:
    """Return the SQL condition that a contact `c` of the account `:account` is in a state."""
    rank = f"coalesce((SELECT {_RANK_SQL} FROM channel h WHERE h.contact_id = c.id), 0) & 3"
    condition = f"{rank} = {_STATUS_BY_RANK.index(status)}"
    if status in _CANDIDATES_SQL:
        return f"c.id IN (SELECT contact_id FROM channel {_CANDIDATES_SQL[status]}) AND {condition}"
    return condition


class StatusCounts(NamedTuple):
    """Numbers of contacts: all, and those in each state, which add up to all."""

    total: int
    subscribed: int
    unsubscribed: int
    not_subscribed: int
    suppressed: int


# A count that takes less processor time than this, as up to some ten thousand contacts, is always current.
_MIN_CACHED_SECONDS = 0.03
# Numbers of (subscribed, suppressed, unsubscribed) contacts by account
_counts: CostAwareCache[tuple[int, int, int]] = CostAwareCache(min_cost_seconds=_MIN_CACHED_SECONDS)
# The index has the addresses of each contact together; sorting them takes twice as long.
_COUNTS_SQL = (
    "SELECT ifnull(sum(r.rank & 3 = 3), 0), ifnull(sum(r.rank & 3 = 2), 0), ifnull(sum(r.rank & 3 = 1), 0) "
    f"FROM (SELECT {_RANK_SQL} AS rank FROM channel h INDEXED BY channel_contact_id "
    "WHERE h.account_id = :account GROUP BY h.contact_id) r"
)


def count_contacts(account_id: int) -> StatusCounts:
    """Return the numbers of contacts of an account, cached until the next write.

    In a large account, the numbers by state are cached for longer, because they read all addresses: for 20 s at a
    million contacts. Bulk actions and imports end with `forget_counts`. Raises Invalid if counting takes too long.
    """
    total = members.count_contacts(account_id)
    subscribed, suppressed, unsubscribed = _counts.get(account_id, lambda: _count_by_status(account_id))
    # The cached numbers may include contacts that have been deleted since then.
    subscribed = min(total, subscribed)
    suppressed = min(total - subscribed, suppressed)
    unsubscribed = min(total - subscribed - suppressed, unsubscribed)
    # The rest includes the contacts without an address.
    return StatusCounts(total, subscribed, unsubscribed, total - subscribed - suppressed - unsubscribed, suppressed)


def _count_by_status(account_id: int) -> tuple[int, int, int]:
    """Return the numbers of subscribed, suppressed and unsubscribed contacts."""
    with members.time_limit():
        subscribed, suppressed, unsubscribed = cached_rows(_COUNTS_SQL, {"account": account_id})[0]
    return subscribed, suppressed, unsubscribed


def forget_counts(account_id: int) -> None:
    """Drop the cached numbers by state after the commit, so that users see what their action changed."""
    after_commit(lambda: _counts.invalidate(account_id))


# Periods begin at midnight in a time zone, and all offsets from UTC are multiples of 15 minutes.
_SLOT_MS = 900_000
_CHANGES_SQL = f"""
    WITH member AS MATERIALIZED (
        SELECT min(h.opt_in_at) AS joined_at, CASE WHEN max(h.subscribed) = 0 THEN max(h.opt_out_at) END AS left_at
        FROM channel h INDEXED BY channel_contact_id
        WHERE h.account_id = :account AND (h.kind = 'email' OR NOT EXISTS (
            SELECT 1 FROM channel e WHERE e.contact_id = h.contact_id AND e.kind = 'email'))
        GROUP BY h.contact_id HAVING max(h.opt_in_at) >= :since OR max(h.opt_out_at) >= :since)
    SELECT 0, joined_at / {_SLOT_MS}, count(*) FROM member WHERE joined_at >= :since GROUP BY 2
    UNION ALL
    SELECT 1, left_at / {_SLOT_MS}, count(*) FROM member WHERE left_at >= :since AND joined_at IS NOT NULL GROUP BY 2
"""


class StatusChanges(NamedTuple):
    """How many contacts became subscribed in each period, and how many were unsubscribed."""

    joined: list[int]
    left: list[int]


def count_changes(account_id: int, bounds: Sequence[int]) -> StatusChanges:
    """Return how many contacts became subscribed and were unsubscribed in each period.

    `bounds` are times in milliseconds at full quarters of an hour: each period lasts from one to the next. A contact's
    email addresses count, or its phone numbers if it has no email address. It is counted once as joined, and once as
    left if none of these addresses is subscribed. Deleted contacts are not counted. Reads all addresses: 1 s at a
    million contacts.
    """
    changes = StatusChanges([0] * (len(bounds) - 1), [0] * (len(bounds) - 1))
    for kind, slot, count in rows(_CHANGES_SQL, {"account": account_id, "since": bounds[0]}):
        period = bisect_right(bounds, slot * _SLOT_MS) - 1
        if period < len(bounds) - 1:
            changes[kind][period] += count
    return changes
