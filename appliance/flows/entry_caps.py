"""The limit of entries an hour of a flow: when the runs that are over it begin, and how many wait for that.

A run is created when its trigger happens, so that none is lost, and begins in the first hour that has a place. The
trigger stores the hour that is being filled, in the transaction that creates the runs. A change of the limit
clears that hour (`store.set_trigger`), and so does the end of the runs that waited for it.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from appliance.storage.database import fetch_one, run
from appliance.storage.transactions import require_write_transaction

MAX_ENTRIES = 1_000_000
_HOUR_MS = 3_600_000
_COUNT_WAITING = (
    "SELECT count(*), max(due_at) FROM run WHERE flow_id = ? AND status = 'live' AND due_at > ? "
    "AND step_visit_id IS NULL AND test = 0"
)
# By the index `run_due`, from the hour that is being filled; nearly always its first row.
_SELECT_LAST_WAITING = (
    "SELECT due_at FROM run WHERE flow_id = ? AND status = 'live' AND due_at > ? AND due_at <= ? "
    "AND step_visit_id IS NULL AND test = 0 ORDER BY due_at DESC LIMIT 1"
)


class WaitingEntries(NamedTuple):
    """The number of contacts whose run has not begun, and when the last of them begins, in Unix milliseconds."""

    number: int
    last_at: int | None


def plan_beginnings(flow_id: int, max_per_hour: int, are_tests: Sequence[bool], now: int) -> list[int]:
    """Return when each run begins, in order, and store which places are taken; 0 allows any number an hour.

    `are_tests` says of each run whether it is a test: those begin at once and take no place. Hours are those of Unix
    time. Another run begins at once while the current hour has a place, else when its hour begins.
    """
    require_write_transaction()
    if not max_per_hour or all(are_tests):
        return [now] * len(are_tests)
    row = fetch_one("SELECT entry_places FROM trigger WHERE flow_id = ?", (flow_id,))
    hour, taken = msgspec.json.decode(row[0]) if row is not None and row[0] is not None else (0, 0)
    if hour > now // _HOUR_MS:
        last = fetch_one(_SELECT_LAST_WAITING, (flow_id, now, hour * _HOUR_MS))
        last_hour = last[0] // _HOUR_MS if last is not None else 0
        if last_hour < hour:
            # The runs that waited for later hours have ended.
            hour, taken = last_hour, max_per_hour
    if hour < now // _HOUR_MS:
        hour, taken = now // _HOUR_MS, 0
    moments = []
    for is_test in are_tests:
        if is_test:
            moments.append(now)
            continue
        if taken >= max_per_hour:
            hour, taken = hour + 1, 0
        taken += 1
        moments.append(max(now, hour * _HOUR_MS))
    places = msgspec.json.encode([hour, taken]).decode()
    run("UPDATE trigger SET entry_places = ? WHERE flow_id = ?", (places, flow_id))
    return moments


def count_waiting(flow_id: int, now: int) -> WaitingEntries:
    """Return how many runs of a flow have not begun, because of the limit."""
    row = fetch_one(_COUNT_WAITING, (flow_id, now))
    return WaitingEntries(0, None) if row is None else WaitingEntries(*row)
