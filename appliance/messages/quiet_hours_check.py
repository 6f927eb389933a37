"""Looks again at SMS that wait for a morning, when an account says other quiet hours, or lives by other clocks.

Each is due at once and judged like any other: whose night it still is waits for its new end. Single messages keep
their time, for it may be one that a program asked for.
"""

from appliance import clock
from appliance.db import work
from appliance.db.open import rows, run, scalar
from appliance.db.work import writing
from appliance.messages.ledger import AGAIN_AT_ONCE

_SOME = 1_000
_LIVE = "SELECT id FROM campaign WHERE channel = 'sms' AND phase = 'sending'"
_OPEN = "status IN ('queued', 'held')"  # as the indexes of what is due have it
_WAITING = (
    "FROM message WHERE {whose} AND channel = 'sms' AND due_at > ?1 AND status = 'held' AND attempts = 0 "
    "AND updated_at <= ?1"
)


def look_again() -> None:
    """Let all that wait be looked at, some at a time; what is put back meanwhile is not looked at twice."""
    now = clock.now_ms()
    sources: list[tuple[str, tuple[int, ...]]] = [(f"run_id IS NOT NULL AND {_OPEN}", ())]
    sources += [(f"campaign_id = ?2 AND run_id IS NULL AND {_OPEN}", (row[0],)) for row in rows(_LIVE)]
    for whose, values in sources:
        waiting = _WAITING.format(whose=whose)
        count = int(scalar(f"SELECT count(*) {waiting}", (now, *values)))
        # So often at most, that a clock which steps back meanwhile keeps nobody here
        for _ in range(-(-count // _SOME)):
            work.write(_some, waiting, (now, *values))


def _some(waiting: str, values: tuple[int, ...]) -> None:
    writing()
    run(f"UPDATE message SET due_at = {AGAIN_AT_ONCE} WHERE id IN (SELECT id {waiting} LIMIT {_SOME})", values)
