"""Ends runs: what they are in the books, and what is told about it. Messages are taken back by whoever wants that.

It stands below those who delete and merge people, for they end runs too.
"""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from appliance.core import clock
from appliance.events import log
from appliance.events.log import Happened
from appliance.storage.open import connection, rows
from appliance.storage.work import writing

Ended = Literal["completed", "exited"]

# The plus keeps SQLite from reading all who are inside to find those that are named
_LIVE = (
    "SELECT r.id, r.account_id, r.flow_id, f.name, r.contact_id, r.action_id, r.chain_depth, r.test "
    "FROM run r CROSS JOIN flow f ON f.id = r.flow_id "
    "WHERE r.id IN (SELECT value FROM json_each(?)) AND +r.status = 'live' ORDER BY r.id"
)
# Before the runs let go of them; by the index of a run's passages, for one that has ended may have left its own open
_PASSAGES = (
    "UPDATE passage SET left_at = ?2, outcome = 'exited', reason = ?3 WHERE run_id IN (SELECT value FROM "
    "json_each(?1)) AND outcome IS NULL"
)
_RUNS = (
    "UPDATE run SET status = ?2, exit_reason = ?3, passage_id = NULL, due_at = NULL, ended_at = ?4, updated_at = ?4 "
    "WHERE id IN (SELECT value FROM json_each(?1))"
)


class _Run(NamedTuple):
    """A live run, as far as its end is told."""

    id: int
    account_id: int
    flow_id: int
    flow_name: str
    contact_id: int | None
    action_id: int | None
    chain_depth: int
    test: bool


def end(run_ids: Sequence[int], status: Ended, reason: str | None, now: int) -> list[int]:
    """End those of some runs that are live, and answer their ids; whoever ends a run twice ends it once.

    A step that the run still stands in counts as left for the reason (one that was closed before keeps its outcome),
    the flow's sums follow, and `flow_exit` is told one deeper in the chain than what started the run.
    """
    return _end(run_ids, status, reason, now, None)


def reach(run_ids: Sequence[int], goal: str, now: int) -> list[int]:
    """End those of some runs that are live because they reached the goal of their flow: `flow_goal`, then `flow_exit`.

    They are completed, with the reason `goal`; answers their ids.
    """
    return _end(run_ids, "completed", "goal", now, goal)


def take_back(run_ids: Sequence[int], now: int, but_service: bool = False) -> None:
    """Cancel what waits to leave of some runs, service messages too unless told; what may have left stays in doubt."""
    connection().execute(
        "UPDATE message SET status = CASE WHEN doubts > 0 THEN 'uncertain' ELSE 'cancelled' END, due_at = NULL, "
        "updated_at = ?2 WHERE run_id IN (SELECT value FROM json_each(?1)) AND status IN ('queued', 'held') "
        "AND transactional <= ?3",
        (json.dumps(list(run_ids)), now, not but_service),
    ).fetchall()


def people_gone(contact_ids: Sequence[int]) -> None:
    """End the runs of people who are about to be deleted, and let no run of theirs keep what started it.

    What is told of that names nobody any more.
    """
    people = json.dumps(list(contact_ids))
    live = rows(
        "SELECT id FROM run WHERE contact_id IN (SELECT value FROM json_each(?)) AND status = 'live'", (people,)
    )
    _end([row[0] for row in live], "exited", "contact_deleted", clock.now_ms(), None)
    connection().execute(
        "UPDATE run SET contact_id = NULL, event_data = '{}' WHERE contact_id IN (SELECT value FROM json_each(?))",
        (people,),
    ).fetchall()


def _end(run_ids: Sequence[int], status: Ended, reason: str | None, now: int, goal: str | None) -> list[int]:
    writing()
    if not run_ids:
        return []
    found = [_Run(*row) for row in rows(_LIVE, (json.dumps(list(run_ids)),))]
    if not found:
        return []
    ended = [one.id for one in found]
    ids, here = json.dumps(ended), connection()
    here.execute(_PASSAGES, (ids, now, reason or status)).fetchall()
    here.execute(_RUNS, (ids, status, reason, now)).fetchall()
    counts = Counter(one.flow_id for one in found if not one.test)
    here.executemany(
        f"UPDATE flow SET {status}_count = {status}_count + ? WHERE id = ?",
        [(number, flow_id) for flow_id, number in counts.items()],
    )
    told = []
    for one in found:
        if goal is not None:
            told.append(_told(one, "flow_goal", {"goal": goal}))
        told.append(_told(one, "flow_exit", {"status": status, "reason": reason}))
    log.record_many(told)
    return ended


def _told(one: _Run, event: str, more: dict[str, Any]) -> Happened:
    gone = more.get("reason") == "contact_deleted"
    return Happened(
        one.account_id, event, None if gone else one.contact_id,
        {"flow_id": one.flow_id, "run_id": one.id, "step_id": one.action_id, **more},
        resource_uid=f"flow:{one.flow_id}", resource_name=one.flow_name, test=bool(one.test),
        chain_depth=one.chain_depth + 1,
    )  # fmt: skip
