"""Runs that wait for an event of their contact (`wait_until`): which events end which waits.

An event counts if it was recorded after the run reached the step, did not start the run, and matches the filters of the
step. Processing a new event makes the run due, in the transaction that moves the cursor of the events. The step then
checks again for the event, in the same way as for a run whose time is over.

While a flow is not active, its events are not matched. After it is resumed, `catch_up` searches for them, in batches of
its waiting runs. A run whose conditions cost too much ends, and the flow is paused if many do (`condition_limits`).
"""

import json
import logging
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from appliance.audience.filters.fields import Binder
from appliance.audience.segments.condition_budget import ConditionsTooSlow, get_spent
from appliance.core import clock, signals
from appliance.core.errors import Unavailable
from appliance.flows import run_ends, triggers
from appliance.flows.condition_limits import TOO_COSTLY, Budget, count_costly_contact, has_spent_share, write_budget
from appliance.flows.triggers import EVENT_ALIAS, MACHINE_EVENT_SQL, EventCondition
from appliance.storage import transactions
from appliance.storage.database import connection, fetch_one, rows, run, write_state
from appliance.storage.disk_guard import to_storage_error
from appliance.storage.transactions import after_commit, require_write_transaction

log = logging.getLogger("campanero.flows")

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
# The condition on the contact is evaluated once for each contact, as in `triggers.match_events`.
_SELECT_RUNS_BY_EVENT = (
    f"WITH matched AS MATERIALIZED (SELECT {EVENT_ALIAS}.id AS id, r.id AS run, c.id AS contact "
    f"FROM json_each(:events) one CROSS JOIN event {EVENT_ALIAS} ON {EVENT_ALIAS}.id = one.value "
    f"CROSS JOIN run r ON r.contact_id = {EVENT_ALIAS}.contact_id "
    "AND r.flow_id = :flow AND r.status = 'live' AND r.action_id = :step AND r.version = :version "
    "CROSS JOIN step_visit v ON v.id = r.step_visit_id CROSS JOIN contact c ON c.id = r.contact_id "
    f"WHERE {_IS_LATER} AND {{of_event}}), "
    "fitting AS MATERIALIZED (SELECT c.id AS id FROM (SELECT DISTINCT contact FROM matched) m "
    "CROSS JOIN contact c ON c.id = m.contact WHERE {of_contact}) "
    "SELECT id, run FROM matched WHERE contact IN (SELECT id FROM fitting)"
)
_SELECT_RUNS_WITH_EVENT = (
    "SELECT r.id FROM json_each(:runs) one CROSS JOIN run r ON r.id = one.value "
    "CROSS JOIN step_visit v ON v.id = r.step_visit_id CROSS JOIN contact c ON c.id = r.contact_id "
    f"WHERE CASE WHEN EXISTS (SELECT 1 FROM event {EVENT_ALIAS} WHERE {EVENT_ALIAS}.contact_id = r.contact_id "
    f"AND {_IS_LATER} AND {{of_event}}) THEN {{of_contact}} END"
)
_SELECT_LIVE_RUNS = (
    "SELECT id, action_id, version, due_at, contact_id FROM run WHERE flow_id = ? AND status = 'live' "
    "AND (due_at, id) > (?, ?) ORDER BY due_at, id LIMIT ?"
)
_SELECT_CATCHING_UP = (
    "SELECT id, account_id, waits_checked FROM flow WHERE status = 'active' AND hidden = 0 AND deleted_at IS NULL "
    "AND waits_checked IS NOT NULL"
)
# The number of runs to check in one transaction. If their conditions cost too much together, the next smaller number is
# tried.
_CATCH_UP_SIZES = (100, 10, 1)
_WAKE_RUNS = (
    "UPDATE run SET due_at = ?2, updated_at = ?2 WHERE id IN (SELECT value FROM json_each(?1)) AND status = 'live' "
    "AND due_at > ?2"
)


class EventWait(NamedTuple):
    """A step of a version of a flow that waits for an event matching `filters`."""

    account_id: int
    flow_id: int
    action_id: int
    version: int
    event: str
    filters: list[Any]


# The waits of flows by (flow id, version); they can be cached because published versions never change.
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
    """Return the waits of all versions of a flow up to its current one, from the cache if possible."""
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


def match_events(
    wait: EventWait, event_ids: Sequence[int], budget: Budget | None = None, part: int = 1
) -> list[tuple[int, int]]:
    """Return (event id, run id) for each event that ends the wait of a run.

    If matching fails, the error is logged and no event matches, so that one flow does not block others. Raises
    ConditionsTooSlow if it costs more than the budget allows, and storage errors.
    """
    try:
        condition = _compile_condition(wait.account_id, wait.event, wait.filters)
        values = {
            **condition.parameters, "events": json.dumps(list(event_ids)), "flow": wait.flow_id,
            "step": wait.action_id, "version": wait.version,
        }  # fmt: skip
        sql = _SELECT_RUNS_BY_EVENT.format(of_event=condition.of_event, of_contact=condition.of_contact)
        with (budget or Budget()).charge(wait.flow_id, part):
            return rows(sql, values)
    except Exception as error:
        if isinstance(error, ConditionsTooSlow) or to_storage_error(error) is not None:
            raise
        log.exception("flows: filters of a wait failed, no wait ends flow=%s step=%s", wait.flow_id, wait.action_id)
        return []


def find_runs_with_event(
    account_id: int, event: str, filters: list[Any], run_ids: Sequence[int], budget: Budget | None = None
) -> set[int]:
    """Return the waiting runs among `run_ids` whose contact has had the event since the run reached its step.

    Raises ConditionsTooSlow if it costs more than the budget of a write transaction allows.
    """
    condition = _compile_condition(account_id, event, filters)
    sql = _SELECT_RUNS_WITH_EVENT.format(of_event=condition.of_event, of_contact=condition.of_contact)
    with (budget or write_budget()).charge(0):
        return {row[0] for row in rows(sql, {**condition.parameters, "runs": json.dumps(list(run_ids))})}


def end_waits(flow_id: int, event_ids: Sequence[int], budget: Budget) -> None:
    """Make due the runs of a flow whose wait the events end. Raises ConditionsTooSlow as `match_events` does."""
    require_write_transaction()
    row = fetch_one(f"{_SELECT_LIVE_FLOWS} AND id = ?", (flow_id,))
    waits = _load_waits(row[1], row[0], row[2]) if row is not None else ()
    _wake_runs(sorted({run_id for wait in waits for _, run_id in match_events(wait, event_ids, budget)}))


def end_costly_runs(flow_id: int, contact_id: int, event: str) -> None:
    """End the runs of a contact that wait for an event, because the conditions of the wait cost too much for it."""
    require_write_transaction()
    row = fetch_one(f"{_SELECT_LIVE_FLOWS} AND id = ?", (flow_id,))
    waits = _load_waits(row[1], row[0], row[2]) if row is not None else ()
    places = {(wait.action_id, wait.version) for wait in waits if wait.event == event}
    run_rows = rows(
        "SELECT id, action_id, version FROM run WHERE contact_id = ? AND flow_id = ? AND status = 'live'",
        (contact_id, flow_id),
    )
    costly = [run_row[0] for run_row in run_rows if run_row[1:] in places]
    run_ends.end_runs(costly, "exited", TOO_COSTLY, clock.now_ms())


def start_catch_up(flow_id: int) -> None:
    """Make `catch_up` search for events that the waiting runs of a flow missed while the flow was not active."""
    require_write_transaction()
    if rows(_SELECT_WAITS, (flow_id,)):
        run("UPDATE flow SET waits_checked = ? WHERE id = ?", (json.dumps([clock.now_ms(), 0]), flow_id))


def is_catch_up_due() -> bool:
    """Return whether any flow is being searched by `catch_up`."""
    return bool(rows(f"{_SELECT_CATCHING_UP} LIMIT 1"))


def catch_up() -> bool:
    """For each resumed flow, make due the runs of the next batch whose event came during the pause.

    Return whether there was any flow to check. A run whose conditions cost too much ends; the flow is paused if many
    do. If checking a flow fails, that is logged, and the flow is checked no longer: a run also finds its event when its
    time is over. Raises Unavailable and storage errors.
    """
    flow_rows = rows(_SELECT_CATCHING_UP)
    for flow_id, account_id, checked in flow_rows:
        try:
            for size in _CATCH_UP_SIZES:
                try:
                    transactions.write(_catch_up_batch, account_id, flow_id, checked, size)
                    break
                except ConditionsTooSlow:
                    continue
        except Exception as error:
            if isinstance(error, Unavailable) or to_storage_error(error) is not None:
                raise
            log.exception("flows: looking for events of a pause failed flow=%s", flow_id)
            transactions.write(run, "UPDATE flow SET waits_checked = NULL WHERE id = ?", (flow_id,))
    return bool(flow_rows)


def _catch_up_batch(account_id: int, flow_id: int, checked: str, size: int) -> None:
    """Make due those of the next `size` live runs whose event came; do nothing if `waits_checked` has changed.

    `checked` is the expected `waits_checked` of the flow: the position after which the batch begins. Raises
    ConditionsTooSlow if the conditions cost too much; a single run ends instead.
    """
    require_write_transaction()
    if fetch_one(f"{_SELECT_CATCHING_UP} AND id = ? AND waits_checked = ?", (flow_id, checked)) is None:
        return
    run_rows = rows(_SELECT_LIVE_RUNS, (flow_id, *json.loads(checked), size))
    budget, waking, spent = write_budget(), set(), get_spent()
    for wait in _read_waits(account_id, flow_id) if run_rows else ():
        at_wait = [row[0] for row in run_rows if row[1:3] == (wait.action_id, wait.version)]
        try:
            if at_wait:
                waking |= find_runs_with_event(account_id, wait.event, wait.filters, at_wait, budget)
        except ConditionsTooSlow:
            if size > 1:
                raise
            run_ends.end_runs(at_wait, "exited", TOO_COSTLY, clock.now_ms())
    _wake_runs(sorted(waking))
    if size == 1 and run_rows and run_rows[0][4] and has_spent_share(spent):
        count_costly_contact(flow_id, run_rows[0][4])
    last = json.dumps([run_rows[-1][3], run_rows[-1][0]]) if len(run_rows) == size else None
    run("UPDATE flow SET waits_checked = ? WHERE id = ?", (last, flow_id))


def _wake_runs(run_ids: list[int]) -> None:
    if run_ids:
        connection().execute(_WAKE_RUNS, (json.dumps(run_ids), clock.now_ms())).fetchall()
        after_commit(lambda: signals.wake("flows"))


def _compile_condition(account_id: int, event: str, filters: list[Any]) -> EventCondition:
    """Return the SQL condition that an event has the name and, like its contact `c`, matches the filters."""
    scope = triggers.get_condition_scope(account_id)
    binder = Binder("w_", scope)
    named = (
        f"{EVENT_ALIAS}.account_id = {binder.add(account_id)} AND {EVENT_ALIAS}.event = {binder.add(event)} "
        f"AND {MACHINE_EVENT_SQL.format(EVENT_ALIAS)} IS NOT TRUE"
    )
    where = triggers.compile_where(filters, scope, "wf")
    return EventCondition(f"{named} AND {where.of_event}", where.of_contact, binder.values | where.parameters)
