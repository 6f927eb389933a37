"""Ends what is inside a flow that is deleted, or archived without its people: runs and the messages still open.

A few are ended at once, more in short transactions; nothing of the flow leaves or moves meanwhile, for its status says
so. The flow names what is left to be done, so that a process that dies is followed by one that goes on.
"""

from appliance import clock
from appliance.db import work
from appliance.db.open import one, rows, run
from appliance.db.work import after_commit, writing
from appliance.flows import ending
from appliance.tables import Flow
from appliance.work import bell

# So many of each are ended with what asked for it
_AT_ONCE = 500
_CHUNK = 200
_CANCEL = (
    "UPDATE message SET status = iif(doubts > 0, 'uncertain', 'cancelled'), due_at = NULL, updated_at = ? WHERE id IN "
    "(SELECT id FROM message WHERE flow_id = ? AND run_id NOT NULL AND status IN ('queued', 'held') LIMIT ?)"
)


def begin(flow: Flow, reason: str) -> None:
    """End what is inside a flow, for a reason that its runs keep; the caller saves the flow."""
    writing()
    flow.closing = reason
    if not _end(flow.id, reason, _AT_ONCE):
        flow.closing = None
    else:
        after_commit(lambda: bell.ring("flows"))


def is_due() -> bool:
    """Say whether a flow is still being closed."""
    return one("SELECT 1 FROM flow WHERE closing NOT NULL LIMIT 1") is not None


def advance() -> bool:
    """End a bite of what is left inside flows that are over; says if there was any."""
    found = one("SELECT id FROM flow WHERE closing NOT NULL ORDER BY id LIMIT 1")
    if found is None:
        return False
    work.write(_chunk, found[0])
    return True


def _chunk(flow_id: int) -> None:
    writing()
    found = one("SELECT closing FROM flow WHERE id = ? AND closing NOT NULL", (flow_id,))
    if found is not None and not _end(flow_id, found[0], _CHUNK):
        run("UPDATE flow SET closing = NULL WHERE id = ?", (flow_id,))


def _end(flow_id: int, reason: str, most: int) -> bool:
    """End so many runs and messages; says whether there may be more."""
    now = clock.now_ms()
    live = rows("SELECT id FROM run WHERE flow_id = ? AND status = 'live' LIMIT ?", (flow_id, most))
    ending.end([row[0] for row in live], "exited", reason, now)
    cancelled = run(_CANCEL, (now, flow_id, most))
    return len(live) == most or cancelled == most
