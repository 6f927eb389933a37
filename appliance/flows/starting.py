"""Starts runs, in the transaction of whatever lets people in; what a flow does not take twice is kept as ignored."""

import json
from collections.abc import Sequence
from typing import NamedTuple

from appliance import clock
from appliance.db.dialect.documents import among
from appliance.db.open import connection, rows, run, scalar
from appliance.db.work import after_commit, writing
from appliance.events import log
from appliance.events.log import Happened
from appliance.work import wake_ups

# At this depth of a chain an event is recorded but starts nothing
MAX_CHAIN_DEPTH = 5
INSIDE, FREQUENCY, DEPTH = "already_inside", "frequency", "depth"

# Not by the plans that are kept: this version may not be committed yet
_FIRST = "SELECT action_id FROM step WHERE flow_id = ? AND version = ? ORDER BY position LIMIT 1"
_RUN = (
    "INSERT INTO run (account_id, flow_id, version, contact_id, event_id, event_data, status, exit_reason, action_id, "
    "due_at, chain_depth, test, ended_at, created_at, updated_at) "
    "SELECT ?1, ?2, ?3, c.id, ?5, coalesce((SELECT data FROM event WHERE id = ?5), '{}'), 'live', NULL, ?8, ?9, ?6, "
    "?7, NULL, ?9, ?9 FROM contact c WHERE c.id = ?4 AND c.account_id = ?1 "
    "RETURNING id, contact_id, chain_depth, test"
)
_IGNORED = (
    "INSERT INTO run (account_id, flow_id, version, contact_id, event_id, event_data, status, exit_reason, "
    "chain_depth, test, ended_at, created_at, updated_at) "
    "SELECT ?1, ?2, ?3, c.id, ?5, '{}', 'ignored', ?8, ?6, ?7, ?9, ?9, ?9 "
    "FROM contact c WHERE c.id = ?4 AND c.account_id = ?1"
)


class Open(NamedTuple):
    """An active flow that takes people in."""

    account_id: int
    flow_id: int
    name: str
    version: int
    frequency: str | int
    test: bool = False  # it went live with a test key, so that it takes in nobody but tests


class Arrival(NamedTuple):
    """Somebody at the door of a flow, and the event that brought them; none if they are enrolled."""

    contact_id: int
    event_id: int | None = None
    depth: int = 0
    test: bool = False


class Started(NamedTuple):
    """What became of those who came: how many began, and how many were ignored for which reason."""

    number: int
    ignored: dict[str, int]


def start(flow: Open, arrivals: Sequence[Arrival]) -> Started:
    """Start a run for everybody who came, in their order, unless they are inside, were there, or come from too deep.

    One live run for each person and flow; a test stands beside what is real, and is not limited by how often.
    """
    writing()
    now = clock.now_ms()
    arrivals = [one for one in arrivals if one.test or not flow.test]
    taken, refused = _sorted(flow, arrivals, now)
    first = scalar(_FIRST, (flow.flow_id, flow.version)) if taken else None
    common = (flow.account_id, flow.flow_id, flow.version)
    here = connection()
    began = here.executemany(
        _RUN, [(*common, one.contact_id, one.event_id, one.depth, one.test, first, now) for one in taken]
    ).fetchall()
    here.executemany(
        _IGNORED,
        [(*common, one.contact_id, one.event_id, one.depth, one.test, reason, now) for one, reason in refused
         if one.event_id is not None],
    ).fetchall()  # fmt: skip
    if began:
        _tell(flow, began, now)
    ignored: dict[str, int] = {}
    for _, reason in refused:
        ignored[reason] = ignored.get(reason, 0) + 1
    return Started(len(began), ignored)


def _sorted(flow: Open, arrivals: Sequence[Arrival], now: int) -> tuple[list[Arrival], list[tuple[Arrival, str]]]:
    """Return who starts, and who does not and why; each of them stands in the way of those who come after."""
    people = json.dumps(sorted({one.contact_id for one in arrivals}))
    inside = {
        (row[0], bool(row[1]))
        for row in rows(
            f"SELECT contact_id, test FROM run WHERE contact_id {among('?')} AND flow_id = ? AND status = 'live'",
            (people, flow.flow_id),
        )
    }
    last: dict[int, int] = {}
    if flow.frequency != "every_time":
        last = dict(
            rows(
                f"SELECT contact_id, max(created_at) FROM run WHERE contact_id {among('?')} "
                "AND flow_id = ? AND status IN ('live', 'completed', 'exited') AND test = 0 GROUP BY contact_id",
                (people, flow.flow_id),
            )
        )
    taken: list[Arrival] = []
    refused: list[tuple[Arrival, str]] = []
    for one in arrivals:
        reason = _reason(flow.frequency, one, (one.contact_id, one.test) in inside, last.get(one.contact_id), now)
        if reason is not None:
            refused.append((one, reason))
            continue
        taken.append(one)
        inside.add((one.contact_id, one.test))
        if not one.test:
            last[one.contact_id] = now
    return taken, refused


def _reason(frequency: str | int, one: Arrival, is_inside: bool, last: int | None, now: int) -> str | None:
    if one.depth >= MAX_CHAIN_DEPTH:
        return DEPTH
    if is_inside:
        return INSIDE
    if one.test or last is None or frequency == "every_time":
        return None
    if frequency == "once" or now - last < int(frequency) * 1000:
        return FREQUENCY
    return None


def _tell(flow: Open, began: Sequence[tuple[int, int, int, int]], now: int) -> None:
    real = sum(1 for row in began if not row[3])
    run("UPDATE flow SET entered_count = entered_count + ? WHERE id = ?", (real, flow.flow_id))
    run(
        "UPDATE trigger SET triggered_count = triggered_count + ?, last_triggered_at = ? WHERE flow_id = ?",
        (real, now, flow.flow_id),
    )
    log.record_many(
        [
            Happened(
                flow.account_id, "flow_enter", contact_id, {"flow_id": flow.flow_id, "run_id": run_id},
                resource_uid=f"flow:{flow.flow_id}", resource_name=flow.name, test=bool(test), chain_depth=depth + 1,
            )
            for run_id, contact_id, depth, test in began
        ]
    )  # fmt: skip
    after_commit(lambda: wake_ups.ring("flows"))
