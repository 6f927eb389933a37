"""How sending stands in one line, for a corner of every page: cheap enough to be asked for with each of them."""

from typing import Any, Literal, NamedTuple

from appliance.core import clock, data_dir, send_status
from appliance.core.rested import Rested
from appliance.settings import config
from appliance.storage import disk_guard
from appliance.storage.open import fetch_one, rows, scalar

_OPEN = "status IN ('queued', 'held') AND due_at IS NOT NULL"
_LIVE = (
    "SELECT id, channel FROM campaign WHERE account_id = ? AND deleted_at IS NULL AND phase IN ('holding', 'sending')"
)


class Glance(NamedTuple):
    """The state, how many wait, of those how many could go now, and until when nothing goes if that is known.

    `text` is the reason in the words of what stops it; `per_hour` is the limit of mail (0: none).
    """

    state: Literal["idle", "busy", "waiting", "stopped"]
    waiting: int = 0
    due: int = 0
    until: int | None = None
    text: str | None = None
    per_hour: int = 0


_known: Rested[Glance] = Rested(least=1.5)


def of(account_id: int) -> Glance:
    """Return how an account's sending stands, at most a moment ago."""
    return _known.get(account_id, lambda: look(account_id))


def look(account_id: int) -> Glance:
    """Return how an account's sending stands now."""
    here = config.current()
    per_hour = here.email.rate_per_hour
    waiting, due, in_hand, first = _queue(account_id)
    stopped = _stopped(account_id)
    if stopped is not None:
        return Glance("stopped", waiting, due, None, stopped, per_hour)
    if not waiting and not in_hand:
        return Glance("idle", per_hour=per_hour)
    shut = _shut(here)
    if due and shut is not None and not in_hand:
        return Glance("waiting", waiting, due, shut[0], shut[1], per_hour)
    if due or in_hand:
        return Glance("busy", waiting, due, per_hour=per_hour)
    return Glance("waiting", waiting, due, first, per_hour=per_hour)


def _stopped(account_id: int) -> str | None:
    found = fetch_one("SELECT sending_stopped, stop_reason FROM account WHERE id = ?", (account_id,))
    if found is not None and found[0]:
        return str(found[1] or "stopped by a person")
    if data_dir.is_stopped(config.current().data_dir):
        return "a file STOP in the data directory"
    return disk_guard.trouble()


def _shut(here: Any) -> tuple[int, str] | None:
    """Return until when nothing goes, and why: a server that does not answer, or a limit that is used up."""
    ways = {"email": here.email.transport, "sms": here.sms.transport}
    found: list[tuple[int, str]] = []
    for channel, transport in ways.items():
        now = send_status.now(channel)
        found += [(one.until, one.text) for one in now.closed if one.provider == transport]
        found += [(one.until, f"limit of {one.per_hour} an hour") for one in now.full if one.name == "*"]
    return min(found, default=None)


def _queue(account_id: int) -> tuple[int, int, int, int | None]:
    """Count what waits, what of it is due, and what is in hand; and when the first of it may go."""
    sources: list[tuple[str, tuple[Any, ...]]] = [
        ("campaign_id = ? AND channel = ? AND run_id IS NULL", row) for row in rows(_LIVE, (account_id,))
    ]
    for channel in ("email", "sms"):
        sources.append(
            (
                "campaign_id IS NULL AND channel = ? AND run_id IS NULL AND +account_id = ?",
                (channel, account_id),
            )
        )
        sources.append(("channel = ? AND run_id IS NOT NULL AND account_id = ?", (channel, account_id)))
    now, waiting, due, first = clock.now_ms(), 0, 0, []
    for where, values in sources:
        sql = (
            f"SELECT count(*), count(*) FILTER (WHERE due_at <= ?), min(due_at) FROM message WHERE {where} AND {_OPEN}"
        )
        [(count, ready, soonest)] = rows(sql, (now, *values))
        waiting, due = waiting + count, due + int(ready)
        first += [] if soonest is None else [soonest]
    # Few are in hand at once, and those of all campaigns stand together
    in_hand = (
        "SELECT count(*) FROM message WHERE campaign_id IS NOT DISTINCT FROM ? AND status = 'sending' "
        "AND +account_id = ?"
    )
    numbers = [row[0] for row in rows(_LIVE, (account_id,))]
    return (
        waiting,
        due,
        sum(int(scalar(in_hand, (one, account_id))) for one in (None, *numbers)),
        min(first, default=None),
    )
