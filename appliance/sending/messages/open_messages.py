"""The outbox: messages of an account, of every kind, that wait, are in hand, or need a person to look at them.

Each state is found by an index that holds little else, campaign by campaign and then all that belongs to none; nothing
is read of the many that went well.
"""

from heapq import merge
from itertools import islice
from typing import Any, Literal

from appliance.core.pagination import Page
from appliance.sending.messages import ledger
from appliance.storage.open import rows, scalar

State = Literal["waiting", "retrying", "sending", "failed", "uncertain"]
STATES: tuple[State, ...] = ("waiting", "retrying", "sending", "failed", "uncertain")
# Nobody reads so far into a queue; numbers say the rest
_FARTHEST = 5_000
_OPEN = "status IN ('queued', 'held') AND due_at IS NOT NULL"
_LIVE = (
    "SELECT id, channel, coalesce(hold_until, 0) FROM campaign WHERE account_id = ? AND deleted_at IS NULL "
    "AND phase IN ('holding', 'sending', 'paused')"
)
_BY_STATUS = (
    "FROM message m WHERE m.campaign_id IN (SELECT id FROM campaign WHERE account_id = ?1 AND deleted_at IS NULL) "
    "AND m.status = ?2",
    "FROM message m WHERE m.campaign_id IS NULL AND m.status = ?2 AND +m.account_id = ?1",
)
_Source = tuple[str, tuple[Any, ...]]


def counts(account_id: int) -> dict[State, int]:
    """Count the messages in each state."""
    waiting = [f"SELECT count(*) FROM message WHERE {where} AND {_OPEN}" for where, _ in _sources(account_id)]
    found: dict[State, int] = {"waiting": _sum(waiting, [values for _, values in _sources(account_id)])}
    again = _again(account_id)
    found["retrying"] = _sum(
        [f"SELECT count(*) FROM message WHERE {where} AND {_OPEN}" for where, _ in again], [one for _, one in again]
    )
    for status in ("sending", "failed", "uncertain"):
        found[status] = count(account_id, status)
    return found


def count(account_id: int, status: str) -> int:
    """Count the messages in one status."""
    return sum(int(scalar(f"SELECT count(*) {part}", (account_id, status))) for part in _BY_STATUS)


def page(account_id: int, state: State, page: int, limit: int, total: int) -> Page:
    """List the messages in a state, `total` as counted: what waits by when it may go, the first one first.

    All else is newest first.
    """
    offset = min((page - 1) * limit, _FARTHEST)
    if state in ("waiting", "retrying"):
        sources = _sources(account_id) if state == "waiting" else _again(account_id)
        sql = "SELECT due_at, id FROM message WHERE {} AND " + _OPEN + " ORDER BY due_at, id LIMIT ?"
        lines = [rows(sql.format(where), (*values, offset + limit)) for where, values in sources]
        ids = [row[1] for row in islice(merge(*lines), offset, offset + limit)]
    else:
        both = " UNION ALL ".join(f"SELECT m.id {part}" for part in _BY_STATUS)
        ids = [row[0] for row in rows(f"{both} ORDER BY 1 DESC LIMIT ?3 OFFSET ?4", (account_id, state, limit, offset))]
    known = {row.id: row for row in ledger.by_ids(ids)}
    return Page([known[number] for number in ids if number in known], total, page, limit)


def ids(account_id: int, state: Literal["failed", "uncertain"], before: int, limit: int) -> list[int]:
    """Return some messages in a state behind an id, newest first."""
    both = " UNION ALL ".join(f"SELECT m.id {part} AND m.id < ?4" for part in _BY_STATUS)
    return [row[0] for row in rows(f"{both} ORDER BY 1 DESC LIMIT ?3", (account_id, state, limit, before))]


def _sources(account_id: int) -> list[_Source]:
    """Return where waiting messages are found: each campaign that may go on, single ones, and those of flows."""
    found: list[_Source] = [
        ("campaign_id = ? AND channel = ? AND run_id IS NULL", (number, channel))
        for number, channel, _ in rows(_LIVE, (account_id,))
    ]
    for channel in ("email", "sms"):
        found.append(
            (
                "campaign_id IS NULL AND channel = ? AND run_id IS NULL AND +account_id = ?",
                (channel, account_id),
            )
        )
        found.append(("channel = ? AND run_id IS NOT NULL AND account_id = ?", (channel, account_id)))
    return found


def _again(account_id: int) -> list[_Source]:
    """Return where messages are found that were tried before; they are due later than what never was."""
    found: list[_Source] = [
        ("campaign_id = ? AND channel = ? AND run_id IS NULL AND due_at > ? AND attempts > 0", (number, channel, hold))
        for number, channel, hold in rows(_LIVE, (account_id,))
    ]
    single = "campaign_id IS NULL AND channel = ? AND run_id IS NULL AND +account_id = ? AND attempts > 0"
    of_flows = "channel = ? AND run_id IS NOT NULL AND account_id = ? AND attempts > 0"
    for channel in ("email", "sms"):
        found += [(single, (channel, account_id)), (of_flows, (channel, account_id))]
    return found


def _sum(statements: list[str], values: list[tuple[Any, ...]]) -> int:
    return sum(int(scalar(sql, one)) for sql, one in zip(statements, values, strict=True))
