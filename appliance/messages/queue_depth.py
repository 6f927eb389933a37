"""How deep the queue of a channel is: what is due, what waits for its time or for people, what is in hand.

Counted over the indexes of what is open, campaign by campaign. A million open messages take a third of a second, so
whoever asks often keeps the answer for a while.
"""

from typing import Any, NamedTuple

from appliance import clock
from appliance.db.dialect.hints import aside
from appliance.db.dialect.texts import larger
from appliance.db.open import one, rows, scalar

CHANNELS = ("email", "sms")
_OPEN = "status IN ('queued', 'held') AND due_at IS NOT NULL"
_LIVE = (
    "SELECT id, phase FROM campaign WHERE account_id = coalesce(?, account_id) AND channel = ? "
    "AND phase IN ('holding', 'sending', 'paused') AND deleted_at IS NULL"
)


class Depth(NamedTuple):
    """Messages by what they wait for, and for how long the oldest could have gone."""

    due: int = 0
    later: int = 0
    paused: int = 0  # of campaigns that wait for a person
    in_hand: int = 0
    oldest_seconds: float = 0.0


def of(channel: str, account_id: int | None = None) -> Depth:
    """Return how deep the queue of a channel is, for an account or for all."""
    now = clock.now_ms()
    live = rows(_LIVE, (account_id, channel))
    own = "" if account_id is None else f" AND {aside('account_id')} = ?"
    by_account = "" if account_id is None else " AND account_id = ?"
    mine = () if account_id is None else (account_id,)
    sources: list[tuple[str, tuple[Any, ...]]] = [
        (f"campaign_id IS NULL AND channel = ? AND run_id IS NULL{own}", (channel, *mine)),
        (f"channel = ? AND run_id IS NOT NULL{by_account}", (channel, *mine)),
    ]
    sources += [("campaign_id = ? AND channel = ? AND run_id IS NULL", (number, channel))
                for number, phase in live if phase != "paused"]  # fmt: skip
    due = later = 0
    oldest: list[int] = []
    for where, values in sources:
        waiting, ready = _counted(where, values, now)
        due, later = due + ready, later + waiting - ready
        # What may go at once has been waiting since it was written
        first = (
            f"SELECT {larger('due_at', 'created_at')} FROM message WHERE {where} AND {_OPEN} ORDER BY due_at, id "
            "LIMIT 1"
        )
        oldest += [row[0] for row in rows(first, values) if row[0] <= now]
    paused = sum(_paused(number) for number, phase in live if phase == "paused")
    in_hand = sum(_in_hand(number, channel, own, mine) for number in (None, *(number for number, _ in live)))
    return Depth(due, later, paused, in_hand, (now - min(oldest, default=now)) / 1000)


def _counted(where: str, values: tuple[Any, ...], now: int) -> tuple[int, int]:
    """Count what is open of a source, and what of it is due."""
    sql = f"SELECT count(*), count(*) FILTER (WHERE due_at <= ?) FROM message WHERE {where} AND {_OPEN}"
    waiting, ready = one(sql, (now, *values)) or (0, 0)
    return int(waiting), int(ready)


def _paused(campaign_id: int) -> int:
    sql = "SELECT count(*) FROM message WHERE campaign_id = ? AND status IN ('queued', 'held')"
    return int(scalar(sql, (campaign_id,)))


def _in_hand(campaign_id: int | None, channel: str, own: str, mine: tuple[int, ...]) -> int:
    """Count what is being handed over: never many, and what is no campaign's stands together."""
    sql = (
        "SELECT count(*) FROM message WHERE campaign_id IS NOT DISTINCT FROM ? AND status = 'sending' "
        f"AND {aside('channel')} = ?{own}"
    )
    return int(scalar(sql, (campaign_id, channel, *mine)))
