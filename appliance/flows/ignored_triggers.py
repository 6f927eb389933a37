"""Forgets the triggers that started nothing, as old as events may be: somebody inside may set one off every minute."""

import threading

from appliance import clock, config
from appliance.db import work
from appliance.db.dialect.hints import by_index
from appliance.db.open import rows, run
from appliance.db.work import writing
from appliance.errors import Unavailable

_CHUNK = 400
_PAUSE_SECONDS = 0.005
_OLD = (
    f"DELETE FROM run WHERE id IN (SELECT id FROM run {by_index('run_ended')} WHERE flow_id = ? AND status = 'ignored' "
    f"AND created_at < ? LIMIT {_CHUNK})"
)


def tend(stopping: threading.Event) -> None:
    """Delete what is older than `events.keep`, if that is bounded; in small transactions that let others go first."""
    seconds = config.seconds(config.current().events.keep)
    if not seconds:
        return
    before = clock.now_ms() - int(seconds * 1000)
    for (flow_id,) in rows("SELECT id FROM flow WHERE hidden = 0"):
        try:
            while not stopping.is_set() and work.write(_drop, flow_id, before) == _CHUNK:
                stopping.wait(_PAUSE_SECONDS)
        except Unavailable:
            if work.is_stopped():
                return
            raise


def _drop(flow_id: int, before: int) -> int:
    writing()
    return run(_OLD, (flow_id, before))
