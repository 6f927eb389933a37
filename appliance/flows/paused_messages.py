"""What of a flow waits outside of the line of messages while it is paused, and what ends where it is over.

It is over once it was deleted, or put aside without those inside (`closing` says why they leave). A few are ended with
what asked for it, more in short transactions; a process that dies is followed by one that goes on.

Nothing of a flow that is not active leaves (`outbox.mark`); here its rows are taken out of the way of all others, and
brought back when it goes on, some at a time, so that a pause is one word in one row whoever is inside.
"""

from appliance.core import clock, wake_ups
from appliance.flows import run_ends
from appliance.sending.messages.ledger import BY_FLOWS_AT_ONCE
from appliance.storage import work
from appliance.storage.open import fetch_one, rows, run
from appliance.storage.work import after_commit, writing

_AT_ONCE = 300
_OPEN = "m.run_id IS NOT NULL AND m.flow_id = {flow} AND m.status IN ('queued', 'held')"
_LIVE = "r.flow_id = {flow} AND r.status = 'live'"
_SOME = f"SELECT m.id FROM message m WHERE {_OPEN.format(flow=':flow')}"
_RESTING = (
    "flow.deleted_at IS NULL AND flow.status != 'active' "
    "AND EXISTS (SELECT 1 FROM message m WHERE {open} AND m.due_at <= :now)"
)
_WOKEN = (
    "flow.deleted_at IS NULL AND flow.status = 'active' "
    "AND EXISTS (SELECT 1 FROM message m WHERE {open} AND m.due_at IS NULL)"
)
# What is in hand may come back to be tried again; until then it is known that nobody wants it any more
_IN_HAND = (
    "EXISTS (SELECT 1 FROM message m WHERE m.run_id IS NOT NULL AND m.flow_id = flow.id AND m.status = 'sending')"
)
_OVER = (
    f"flow.closing IS NOT NULL AND NOT {_IN_HAND} OR (flow.closing IS NOT NULL OR flow.deleted_at IS NOT NULL) "
    "AND (EXISTS (SELECT 1 FROM message m WHERE {open}) OR EXISTS (SELECT 1 FROM run r WHERE {live}))"
)
# Nothing that was overdue at a resume is left. A clock that is set back later must not make anything look so
_CAUGHT_UP = (
    "flow.deleted_at IS NULL AND flow.status = 'active' AND flow.drop_before IS NOT NULL "
    "AND NOT EXISTS (SELECT 1 FROM run r WHERE {live} AND r.due_at < flow.drop_before) "
    "AND NOT EXISTS (SELECT 1 FROM message m WHERE {open} AND (m.due_at IS NULL "
    "OR max(m.due_at, m.created_at) < flow.drop_before))"
)
_RING = "SELECT id FROM flow WHERE hidden = 0 AND ({what})"


def settle() -> bool:
    """Take a bite of each: rows of flows that are over, that rest, that go on; says if there were any."""
    found = False
    for what, verb in ((_OVER, close_some), (_RESTING, put_away), (_WOKEN, bring_back), (_CAUGHT_UP, catch_up)):
        for flow_id in _flows(what):
            found = True
            work.write(verb, flow_id)
    return found


def is_due() -> bool:
    """Return whether a flow has rows that are not where they belong."""
    return any(_flows(what, "LIMIT 1") for what in (_OVER, _RESTING, _WOKEN, _CAUGHT_UP))


def put_away(flow_id: int) -> int:
    """Let some due messages of a flow that is not active wait outside of the line, as `held`; returns how many."""
    writing()
    return run(
        f"UPDATE message SET status = 'held', due_at = NULL, updated_at = :now WHERE id IN ({_SOME} "
        "AND m.due_at <= :now LIMIT :most) AND EXISTS (SELECT 1 FROM flow WHERE id = :flow AND status != 'active')",
        {"flow": flow_id, "now": clock.now_ms(), "most": _AT_ONCE},
    )


def bring_back(flow_id: int) -> int:
    """Let some messages of an active flow that wait outside of the line go on; returns how many."""
    writing()
    after_commit(lambda: wake_ups.ring("outbox"))
    return run(
        f"UPDATE message SET status = 'queued', due_at = :due, updated_at = :now WHERE id IN ({_SOME} "
        "AND m.due_at IS NULL LIMIT :most) AND EXISTS (SELECT 1 FROM flow WHERE id = :flow AND status = 'active')",
        {"flow": flow_id, "now": clock.now_ms(), "most": _AT_ONCE, "due": BY_FLOWS_AT_ONCE},
    )


def catch_up(flow_id: int) -> int:
    """Drop nothing more of an active flow for being overdue, once nothing is; returns how many flows that were."""
    writing()
    what = _CAUGHT_UP.format(open=_OPEN.format(flow="flow.id"), live=_LIVE.format(flow="flow.id"))
    return run(f"UPDATE flow SET drop_before = NULL WHERE id = ? AND {what}", (flow_id,))


def close_some(flow_id: int) -> bool:
    """End some runs and cancel some open messages of a flow that is over; says whether there were any.

    A message that may have arrived before stays in doubt.
    """
    writing()
    over = fetch_one(
        "SELECT CASE WHEN deleted_at IS NOT NULL THEN 'flow_deleted' ELSE closing END, closing FROM flow WHERE id = ?",
        (flow_id,),
    )
    if over is None or over[0] is None:
        return False
    now = clock.now_ms()
    inside = rows(f"SELECT r.id FROM run r WHERE {_LIVE.format(flow='?')} LIMIT ?", (flow_id, _AT_ONCE))
    ended = run_ends.end([row[0] for row in inside], "exited", over[0], now)
    cancelled = run(
        "UPDATE message SET status = CASE WHEN doubts > 0 THEN 'uncertain' ELSE 'cancelled' END, due_at = NULL, "
        f"updated_at = :now WHERE id IN ({_SOME} LIMIT :most)",
        {"flow": flow_id, "now": now, "most": _AT_ONCE},
    )
    found = bool(ended) or cancelled > 0
    if over[1] is not None and not found:
        run(f"UPDATE flow SET closing = NULL WHERE id = ? AND NOT {_IN_HAND}", (flow_id,))
    return found


def _flows(what: str, more: str = "") -> list[int]:
    condition = what.format(open=_OPEN.format(flow="flow.id"), live=_LIVE.format(flow="flow.id"))
    found = rows(f"{_RING.format(what=condition)} {more}", {"now": clock.now_ms()} if ":now" in condition else {})
    return [row[0] for row in found]
