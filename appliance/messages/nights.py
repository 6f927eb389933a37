"""Looks again at SMS that wait for a morning, when an account says other quiet hours, or lives by other clocks.

Each is due at once and judged like any other: whose night it still is waits for its new end. Single messages keep
their time, for it may be one that a program asked for.
"""

from appliance import clock
from appliance.db import work
from appliance.db.open import rows, run
from appliance.db.work import writing
from appliance.messages.ledger import AGAIN_AT_ONCE

_SOME = 1_000
_LIVE = "SELECT id FROM campaign WHERE channel = 'sms' AND phase = 'sending'"
_AGAIN = (
    "UPDATE message SET due_at = {due} WHERE id IN (SELECT id FROM message WHERE {whose} AND channel = 'sms' "
    "AND due_at > ?1 AND status = 'held' AND attempts = 0 AND updated_at <= ?1 LIMIT {some})"
)


def look_again() -> None:
    """Let all that wait be looked at, some at a time; what is put back meanwhile is not looked at twice."""
    now = clock.now_ms()
    sources = [("run_id NOT NULL AND status IN ('queued', 'held')", ())]
    sources += [("campaign_id = ?2 AND run_id IS NULL AND status IN ('queued', 'held')", row) for row in rows(_LIVE)]
    for whose, values in sources:
        while work.write(_some, whose, (now, *values)) == _SOME:
            pass


def _some(whose: str, values: tuple[int, ...]) -> int:
    writing()
    return run(_AGAIN.format(whose=whose, due=AGAIN_AT_ONCE, some=_SOME), values)
