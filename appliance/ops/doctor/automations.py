"""Flows: what they have counted held against their rows, and whether everybody inside can go on."""

from collections.abc import Iterator
from pathlib import Path

from appliance.core import clock
from appliance.ops.doctor import ground
from appliance.ops.doctor.findings import MAX_SHOWN, Line
from appliance.storage import sql
from appliance.storage.open import rows

_LATE_MS = 15 * 60_000
_MINE = "f.hidden = 0 AND f.account_id = coalesce(:account, f.account_id)"
_COUNTED = (
    "SELECT f.id, f.entered_count, f.completed_count, f.exited_count, coalesce(r.entered, 0), "
    "coalesce(r.completed, 0), coalesce(r.exited, 0) FROM flow f LEFT JOIN (SELECT flow_id, "
    "count(*) FILTER (WHERE status <> 'ignored') AS entered, count(*) FILTER (WHERE status = 'completed') "
    "AS completed, count(*) FILTER (WHERE status = 'exited') AS exited "
    f"FROM run INDEXED BY run_ended WHERE test = 0 GROUP BY flow_id) r ON r.flow_id = f.id WHERE {_MINE} "
    "ORDER BY f.id"
)
# By flow: runs that will never move, or of which it cannot be said where they are
_STUCK = {
    "have no time at which they go on": "r.due_at IS NULL",
    "are of people who are gone": "r.contact_id IS NULL",
    "stand in a step that their version does not have": (
        "r.action_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM step s WHERE s.flow_id = r.flow_id "
        "AND s.version = r.version AND s.action_id = r.action_id)"
    ),
    "are counted in another step than they stand in": (
        "r.passage_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM passage p WHERE p.id = r.passage_id "
        "AND p.run_id = r.id AND p.action_id = r.action_id AND p.outcome IS NULL)"
    ),
}
_LIVE = f"SELECT f.id, count(*) FROM flow f JOIN run r ON r.flow_id = f.id AND r.status = 'live' WHERE {_MINE} AND ("
_LEFT_OPEN = (
    "SELECT f.id, count(*) FROM flow f JOIN passage p ON p.flow_id = f.id JOIN run r ON r.id = p.run_id "
    f"WHERE {_MINE} AND p.outcome IS NULL AND (r.status <> 'live' OR r.passage_id IS DISTINCT FROM p.id) GROUP BY 1"
)
_LATE = (
    "SELECT f.id, count(*), min(r.due_at) FROM flow f JOIN run r ON r.flow_id = f.id AND r.status = 'live' "
    f"WHERE {_MINE} AND f.status = 'active' AND f.deleted_at IS NULL AND r.due_at <= :late AND r.updated_at <= :late "
    "GROUP BY 1"
)
_BEHIND = (
    "SELECT c.name, count(e.id), min(e.updated_at) FROM cursor c JOIN event e ON e.id > c.event_id "
    "WHERE e.updated_at <= ? GROUP BY 1 ORDER BY 1"
)
_AHEAD = "SELECT name, event_id FROM cursor WHERE event_id > ? ORDER BY name"


def books(_: Path, account_id: int | None) -> Iterator[Line]:
    """Hold the sums of every flow against its runs, and the steps of those inside against what they passed."""
    mine = {"account": account_id}
    found, flows = [], rows(_COUNTED, mine)
    for number, *counts in flows:
        for name, counted, there in zip(("entered", "completed", "exited"), counts[:3], counts[3:], strict=True):
            if counted != there:
                found.append(f"flow {number}: {counted} {name} are counted, and {there} runs say so")
    for words, condition in _STUCK.items():
        found += [
            f"flow {number}: {count} runs {words}" for number, count in rows(f"{_LIVE}{condition}) GROUP BY 1", mine)
        ]
    found += [
        f"flow {number}: {count} people are counted in a step that they have left"
        for number, count in rows(_LEFT_OPEN, mine)
    ]
    for words in found[:MAX_SHOWN]:
        yield Line("fail", "flows", words)
    if len(found) > MAX_SHOWN:
        yield Line("fail", "flows", f"{len(found) - MAX_SHOWN} more like these")
    if not found:
        yield Line("ok", "flows", "1 flow balances" if len(flows) == 1 else f"{len(flows)} flows balance")


def moving(directory: Path, account_id: int | None) -> Iterator[Line]:
    """Look for people who should have gone on; without a running service nobody moves."""
    if not ground.runs(directory):
        return
    now = clock.now_ms()
    for number, count, since in rows(_LATE, {"account": account_id, "late": now - _LATE_MS}):
        words = f"flow {number}: {count} runs are due since {(now - since) // 60_000} minutes and do not move"
        yield Line("warn", "flows", f"{words}; the log says why")


def cursors(directory: Path) -> Iterator[Line]:
    """Look whether those who follow the event log keep up with it."""
    now = clock.now_ms()
    last = sql.last_number("event")
    for name, place in rows(_AHEAD, (last,)):
        words = f"{name} stands at event {place}, and there were {last} only: the database is older than what was read"
        yield Line("fail", "events", words)
    if ground.runs(directory):
        for name, count, since in rows(_BEHIND, (now - _LATE_MS,)):
            words = f"{name} has not looked at {count} events since {(now - since) // 60_000} minutes"
            yield Line("warn", "events", f"{words}; the log says why")
