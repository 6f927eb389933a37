"""End runs: update their rows, record the events, and cancel their messages.

This module imports only events and storage, because deleting and merging contacts, in a lower layer, ends runs, too.
"""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from appliance.core import clock
from appliance.events import log
from appliance.events.log import NewEvent
from appliance.storage.database import connection, rows
from appliance.storage.models.message import CANCEL_OPEN
from appliance.storage.transactions import require_write_transaction

EndStatus = Literal["completed", "exited"]

# The plus before `r.status` keeps SQLite from scanning all live runs to find the given ones.
_SELECT_LIVE_RUNS = (
    "SELECT r.id, r.account_id, r.flow_id, f.name, r.contact_id, r.action_id, r.chain_depth, r.test "
    "FROM run r CROSS JOIN flow f ON f.id = r.flow_id "
    "WHERE r.id IN (SELECT value FROM json_each(?)) AND +r.status = 'live' ORDER BY r.id"
)
# Executed before `_END_RUNS`, which clears `step_visit_id`. It finds visits by run, because a run may have an open
# visit to which `step_visit_id` no longer points.
_CLOSE_VISITS = (
    "UPDATE step_visit SET left_at = ?2, outcome = 'exited', reason = ?3 WHERE run_id IN (SELECT value FROM "
    "json_each(?1)) AND outcome IS NULL"
)
# No run waits for these responses any more. Other requests, such as notifications, are still made.
_DELETE_REQUESTS = "DELETE FROM flow_request WHERE run_id IN (SELECT value FROM json_each(?)) AND awaited"
_DELETE_ALL_REQUESTS = (
    "DELETE FROM flow_request WHERE run_id IN (SELECT id FROM run WHERE contact_id IN (SELECT value FROM json_each(?)))"
)
_END_RUNS = (
    "UPDATE run SET status = ?2, exit_reason = ?3, step_visit_id = NULL, due_at = NULL, ended_at = ?4, updated_at = ?4 "
    "WHERE id IN (SELECT value FROM json_each(?1))"
)


class _LiveRun(NamedTuple):
    """A live run with the values that its events contain."""

    id: int
    account_id: int
    flow_id: int
    flow_name: str
    contact_id: int | None
    action_id: int | None
    chain_depth: int
    test: bool


def end_runs(run_ids: Sequence[int], status: EndStatus, reason: str | None, now: int) -> list[int]:
    """End the live runs among `run_ids` and return their ids; runs that have ended already are left out.

    The open visit of each run is closed with the reason, and the counters of the flow are updated. The event
    `flow_exit` is recorded, one deeper in the chain than the event that started the run. `now` is in Unix milliseconds.
    """
    return _end_runs(run_ids, status, reason, now, None)


def complete_runs_at_goal(run_ids: Sequence[int], goal: str, now: int) -> list[int]:
    """Complete the live runs among `run_ids`, because they reached the goal of their flow, and return their ids.

    Does what `end_runs` does, and records the event `flow_goal` before `flow_exit`.
    """
    return _end_runs(run_ids, "completed", "goal", now, goal)


def cancel_messages(run_ids: Sequence[int], now: int, keep_transactional: bool = False) -> None:
    """Cancel the queued and held messages of runs; with `keep_transactional`, transactional ones are still sent.

    A message whose earlier attempt may have been accepted becomes uncertain instead.
    """
    connection().execute(
        f"UPDATE message SET {CANCEL_OPEN}, updated_at = ?2 WHERE run_id IN (SELECT value FROM json_each(?1)) "
        "AND status IN ('queued', 'held') "
        "AND transactional <= ?3",
        (json.dumps(list(run_ids)), now, not keep_transactional),
    ).fetchall()


def end_runs_of_deleted_contacts(contact_ids: Sequence[int]) -> None:
    """End the runs of contacts that are about to be deleted, and clear contact and event data of all their runs.

    The recorded events do not name the contacts.
    """
    ids_json = json.dumps(list(contact_ids))
    live_runs = rows(
        "SELECT id FROM run WHERE contact_id IN (SELECT value FROM json_each(?)) AND status = 'live'", (ids_json,)
    )
    _end_runs([row[0] for row in live_runs], "exited", "contact_deleted", clock.now_ms(), None)
    # The bodies of requests contain personal data.
    connection().execute(_DELETE_ALL_REQUESTS, (ids_json,)).fetchall()
    connection().execute(
        "UPDATE run SET contact_id = NULL, event_data = '{}' WHERE contact_id IN (SELECT value FROM json_each(?))",
        (ids_json,),
    ).fetchall()


def end_runs_of_merged_contact(contact_id: int, other_id: int, now: int) -> None:
    """End the runs of contact `other_id`, which is merged into `contact_id`, in the flows that both are in.

    The runs of `contact_id` continue. The marketing messages of the ended runs are cancelled, because the other runs
    send the same ones; their transactional messages are still sent.
    """
    duplicates = rows(
        "SELECT other.id FROM run other JOIN run kept ON kept.flow_id = other.flow_id AND kept.test = other.test "
        "WHERE other.contact_id = ?2 AND other.status = 'live' AND kept.contact_id = ?1 AND kept.status = 'live'",
        (contact_id, other_id),
    )
    cancel_messages(
        end_runs([row[0] for row in duplicates], "exited", "contact_merged", now), now, keep_transactional=True
    )


def _end_runs(run_ids: Sequence[int], status: EndStatus, reason: str | None, now: int, goal: str | None) -> list[int]:
    require_write_transaction()
    if not run_ids:
        return []
    runs = [_LiveRun(*row) for row in rows(_SELECT_LIVE_RUNS, (json.dumps(list(run_ids)),))]
    if not runs:
        return []
    ended = [run.id for run in runs]
    ids_json, db = json.dumps(ended), connection()
    db.execute(_CLOSE_VISITS, (ids_json, now, reason or status)).fetchall()
    db.execute(_DELETE_REQUESTS, (ids_json,)).fetchall()
    db.execute(_END_RUNS, (ids_json, status, reason, now)).fetchall()
    counts = Counter(run.flow_id for run in runs if not run.test)
    db.executemany(
        f"UPDATE flow SET {status}_count = {status}_count + ? WHERE id = ?",
        [(number, flow_id) for flow_id, number in counts.items()],
    )
    new_events = []
    for run in runs:
        if goal is not None:
            new_events.append(_build_event(run, "flow_goal", {"goal": goal}))
        new_events.append(_build_event(run, "flow_exit", {"status": status, "reason": reason}))
    log.record_many(new_events)
    return ended


def _build_event(run: _LiveRun, event: str, data: dict[str, Any]) -> NewEvent:
    is_deleted = data.get("reason") == "contact_deleted"
    return NewEvent(
        run.account_id, event, None if is_deleted else run.contact_id,
        {"flow_id": run.flow_id, "run_id": run.id, "step_id": run.action_id, **data},
        resource_uid=f"flow:{run.flow_id}", resource_name=run.flow_name, test=bool(run.test),
        chain_depth=run.chain_depth + 1,
    )  # fmt: skip
