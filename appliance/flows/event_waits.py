"""Runs that wait for an event of their contact (`wait_until`): which events end which waits.

An event counts if it was recorded after the run reached the step, is not the one that started the run, and matches the
filters of the step. Processing a new event makes the run due, in the transaction that moves the cursor of the events;
the step itself decides again when the run goes on, so that a run whose time is over is treated alike.
"""

import json
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from appliance.audience.filters import compiler
from appliance.audience.filters.fields import Binder, Compiled
from appliance.core import clock, signals
from appliance.flows import triggers
from appliance.flows.triggers import EVENT_ALIAS, MACHINE_EVENT_SQL
from appliance.storage.database import connection, fetch_one, rows, write_state
from appliance.storage.transactions import after_commit, require_write_transaction

KIND = "wait_until"
_MAX_KNOWN_FLOWS = 10_000
_SELECT_LIVE_FLOWS = (
    "SELECT id, account_id, version FROM flow WHERE status = 'active' AND hidden = 0 AND deleted_at IS NULL"
)
_SELECT_WAITS = (
    "SELECT action_id, version, data FROM step WHERE flow_id = ? AND kind = 'wait_until' "
    "AND json_extract(data, '$.until') = 'event'"
)
_HAS_WAITING_RUN = "SELECT 1 FROM step_visit WHERE flow_id = ? AND action_id = ? AND outcome IS NULL LIMIT 1"
# An imported event counts from when it happened, because it may be years old when it is recorded.
_IS_LATER = (
    f"CASE WHEN {EVENT_ALIAS}.quiet THEN {EVENT_ALIAS}.created_at ELSE {EVENT_ALIAS}.updated_at END >= v.entered_at "
    f"AND {EVENT_ALIAS}.id > coalesce(r.event_id, 0) AND {EVENT_ALIAS}.test = r.test"
)
_SELECT_RUNS_BY_EVENT = (
    f"SELECT {EVENT_ALIAS}.id, r.id FROM json_each(:events) one CROSS JOIN event {EVENT_ALIAS} "
    f"ON {EVENT_ALIAS}.id = one.value CROSS JOIN run r ON r.contact_id = {EVENT_ALIAS}.contact_id "
    "AND r.flow_id = :flow AND r.status = 'live' AND r.action_id = :step AND r.version = :version "
    "CROSS JOIN step_visit v ON v.id = r.step_visit_id CROSS JOIN contact c ON c.id = r.contact_id "
    f"WHERE {_IS_LATER} AND {{condition}}"
)
_SELECT_RUNS_WITH_EVENT = (
    "SELECT r.id FROM {runs} CROSS JOIN step_visit v ON v.id = r.step_visit_id "
    "CROSS JOIN contact c ON c.id = r.contact_id WHERE {where} AND EXISTS (SELECT 1 FROM event "
    f"{EVENT_ALIAS} WHERE {EVENT_ALIAS}.contact_id = r.contact_id AND {_IS_LATER} AND {{condition}})"
)
_WAKE_RUNS = (
    "UPDATE run SET due_at = ?2, updated_at = ?2 WHERE id IN (SELECT value FROM json_each(?1)) AND status = 'live' "
    "AND due_at > ?2"
)


class EventWait(NamedTuple):
    """A step of a version of a flow that waits for an event; `filters` are those that the event must match."""

    account_id: int
    flow_id: int
    action_id: int
    version: int
    event: str
    filters: list[Any]


# The waits of the flows by (flow id, version): published versions never change.
_known_waits: dict[tuple[int, int], list[EventWait]] = {}
_known_lock = threading.Lock()


def list_waits() -> list[EventWait]:
    """Return the steps of active flows at which runs wait for an event."""
    return [
        wait
        for flow_id, account_id, version in rows(_SELECT_LIVE_FLOWS)
        for wait in _load_waits(account_id, flow_id, version)
        if rows(_HAS_WAITING_RUN, (flow_id, wait.action_id))
    ]


def _load_waits(account_id: int, flow_id: int, version: int) -> list[EventWait]:
    """Return the waits of all versions of a flow up to its current one, from the cache if they are there."""
    if write_state.is_sandboxed:
        return _read_waits(account_id, flow_id)  # A sandbox may lack steps, so its waits must not be cached.
    key = (flow_id, version)
    with _known_lock:
        known_waits = _known_waits.get(key)
    if known_waits is None:
        known_waits = _read_waits(account_id, flow_id)
        with _known_lock:
            if len(_known_waits) >= _MAX_KNOWN_FLOWS:
                _known_waits.clear()
            _known_waits[key] = known_waits
    return known_waits


def _read_waits(account_id: int, flow_id: int) -> list[EventWait]:
    waits = []
    for action_id, version, data in rows(_SELECT_WAITS, (flow_id,)):
        props = msgspec.json.decode(data)
        waits.append(EventWait(account_id, flow_id, action_id, version, props["event_name"], props["filters"]))
    return waits


def match_events(wait: EventWait, event_ids: Sequence[int]) -> list[tuple[int, int]]:
    """Return (event id, run id) for each of the events that ends the wait of a run."""
    condition = _compile_condition(wait.account_id, wait.event, wait.filters)
    values = {
        **condition.parameters, "events": json.dumps(list(event_ids)), "flow": wait.flow_id, "step": wait.action_id,
        "version": wait.version,
    }  # fmt: skip
    return rows(_SELECT_RUNS_BY_EVENT.format(condition=condition.sql), values)


def find_runs_with_event(account_id: int, event: str, filters: list[Any], run_ids: Sequence[int]) -> set[int]:
    """Return those of the waiting runs whose contact has had the event since the run reached its step."""
    condition = _compile_condition(account_id, event, filters)
    runs = "json_each(:runs) one CROSS JOIN run r ON r.id = one.value"
    sql = _SELECT_RUNS_WITH_EVENT.format(runs=runs, where="1", condition=condition.sql)
    return {row[0] for row in rows(sql, {**condition.parameters, "runs": json.dumps(list(run_ids))})}


def end_waits(flow_id: int, event_ids: Sequence[int]) -> None:
    """Make the runs of a flow due whose wait the events end."""
    require_write_transaction()
    row = fetch_one(f"{_SELECT_LIVE_FLOWS} AND id = ?", (flow_id,))
    waits = _load_waits(row[1], row[0], row[2]) if row is not None else ()
    _wake_runs(sorted({run_id for wait in waits for _, run_id in match_events(wait, event_ids)}))


def catch_up(account_id: int, flow_id: int) -> None:
    """Make the runs of a flow due that waited for an event which came while the flow was not active."""
    require_write_transaction()
    for wait in _read_waits(account_id, flow_id):
        condition = _compile_condition(wait.account_id, wait.event, wait.filters)
        where = "r.flow_id = :flow AND r.status = 'live' AND r.action_id = :step AND r.version = :version"
        sql = _SELECT_RUNS_WITH_EVENT.format(runs="run r", where=where, condition=condition.sql)
        values = {**condition.parameters, "flow": flow_id, "step": wait.action_id, "version": wait.version}
        _wake_runs([row[0] for row in rows(sql, values)])


def _wake_runs(run_ids: list[int]) -> None:
    if run_ids:
        connection().execute(_WAKE_RUNS, (json.dumps(run_ids), clock.now_ms())).fetchall()
        after_commit(lambda: signals.wake("flows"))


def _compile_condition(account_id: int, event: str, filters: list[Any]) -> Compiled:
    """Return the SQL condition that an event has the name and, like its contact `c`, matches the filters."""
    scope = triggers.get_condition_scope(account_id)
    binder = Binder("w_", scope)
    named = (
        f"{EVENT_ALIAS}.account_id = {binder.add(account_id)} AND {EVENT_ALIAS}.event = {binder.add(event)} "
        f"AND {MACHINE_EVENT_SQL.format(EVENT_ALIAS)} IS NOT TRUE"
    )
    matching = compiler.compile_filters(compiler.parse_filters(filters, scope), scope, "wf")
    return Compiled(f"{named} AND ({matching.sql})", binder.values | matching.parameters)
