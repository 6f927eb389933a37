"""The limit of entries an hour of a flow: in any 60 minutes, at most this many runs begin.

A run is created when its trigger happens, so that none is lost. It is planned for the first time at which fewer runs
than the limit begin (`plan_beginnings`). The engine checks the limit again when a run is due (`EntryGate`): after a
pause of the flow or of the service, many runs are due together, and those beyond the limit are postponed. A run has
begun if it has visited a step.

A place is the beginning of a run, which counts towards the limit for 60 minutes. The trigger stores the places, in the
transactions that plan and begin runs. A change of the limit clears the planned ones (`store.set_trigger`), and so does
the end of the runs that waited for them.
"""

from collections import Counter, deque
from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeVar

import msgspec

from appliance.storage.database import connection, fetch_one, rows, run
from appliance.storage.transactions import require_write_transaction

MAX_ENTRIES = 1_000_000
_HOUR_MS = 3_600_000
# The maximum number of times in a stored list. If there are more, each two count as the later one. Entries that come
# together are only delayed by the hour, so this makes few of them wait, by less than a minute.
_MAX_MOMENTS = 120
_COUNT_WAITING = (
    "SELECT count(*), max(due_at) FROM run WHERE flow_id = ? AND status = 'live' AND due_at > ? "
    "AND step_visit_id IS NULL AND test = 0"
)
# SQLite reads the index `run_due` backwards from the last planned time; nearly always its first row matches.
_SELECT_LAST_WAITING = (
    "SELECT due_at FROM run WHERE flow_id = ? AND status = 'live' AND due_at > ? AND due_at <= ? "
    "AND step_visit_id IS NULL AND test = 0 ORDER BY due_at DESC LIMIT 1"
)
_SELECT_BEGUN = "SELECT DISTINCT run_id FROM step_visit WHERE run_id IN (SELECT value FROM json_each(?))"
_PUT_OFF = "UPDATE run SET due_at = ?, updated_at = ? WHERE id = ?"

# Times in ascending order, in Unix milliseconds, each with the number of runs that begin then.
_Moments = list[tuple[int, int]]


class _Places(msgspec.Struct, omit_defaults=True):
    """The places of a flow, each list in ascending order.

    `begun` are the runs that began in the last hour. `planned` are runs that got their time when they were created, and
    `put_off` those that were due, had no place and got a later time.
    """

    begun: _Moments = []
    planned: _Moments = []
    put_off: _Moments = []


_decode = msgspec.json.Decoder(_Places).decode


class WaitingEntries(NamedTuple):
    """The number of contacts whose run has not begun, and when the last of these begins (Unix ms), or None."""

    number: int
    last_at: int | None


def plan_beginnings(flow_id: int, max_per_hour: int, are_tests: Sequence[bool], now: int) -> list[int]:
    """Return the planned times at which runs begin, in Unix milliseconds, and store their places.

    `are_tests` has a flag for each run: tests begin at once and take no place. `max_per_hour` 0 means no limit. Other
    runs begin in order, after all runs that already wait, each at the first time at which fewer than `max_per_hour`
    runs have begun in the 60 minutes before.
    """
    require_write_transaction()
    count = len(are_tests) - sum(are_tests)
    if not max_per_hour or not count:
        return [now] * len(are_tests)
    places = _load(flow_id)
    places.planned = _forget_ended(flow_id, places.planned, max_per_hour, now)
    places.put_off = _forget_ended(flow_id, places.put_off, max_per_hour, now)
    moments = _find_moments(sorted(places.planned + places.put_off), max_per_hour, count, now)
    places.planned = _add(places.planned, moments, max_per_hour)
    _store(flow_id, places)
    planned = iter(moments)
    return [now if is_test else next(planned) for is_test in are_tests]


def clear_plan(entry_places: object) -> object:
    """Return the stored places of a flow without the planned and postponed ones, because the limit has changed."""
    return {"begun": entry_places["begun"]} if isinstance(entry_places, dict) and "begun" in entry_places else None


class _Run(Protocol):
    id: int
    step_visit_id: int | None
    test: bool
    started_at: int
    due_at: int


RunT = TypeVar("RunT", bound=_Run)


class EntryGate:
    """Admits due runs of a flow to begin, within the limit of entries an hour.

    Call `admit`, then execute the returned runs, then `save`, all in one transaction.
    """

    def __init__(self, flow_id: int, now: int) -> None:
        require_write_transaction()
        self._flow_id, self._now = flow_id, now
        row = fetch_one("SELECT data ->> '$.max_per_hour' FROM trigger WHERE flow_id = ?", (flow_id,))
        self._max_per_hour: int = (row[0] if row is not None else None) or 0
        self._admitted: list[int] = []

    def admit(self, runs: list[RunT]) -> list[RunT]:
        """Return the runs that may be executed, in their order; new runs without a place are postponed.

        A run that a user lets begin at once (`runs.act_on_runs`) is always admitted, and takes a place.
        """
        if not self._max_per_hour:
            return runs
        new_runs = [each for each in runs if each.step_visit_id is None and not each.test]
        begun_ids = _find_begun([each.id for each in new_runs])
        waiting = [each for each in new_runs if each.id not in begun_ids]
        if not waiting:
            return runs
        chosen_ids = [each.id for each in waiting if each.due_at < each.started_at]
        waiting_ids = [each.id for each in waiting if each.due_at >= each.started_at]
        places = _load(self._flow_id)
        taken = len(chosen_ids) + sum(count for _, count in _keep_last_hour(places.begun, self._now))
        free = max(0, self._max_per_hour - taken)
        self._admitted, late_ids = chosen_ids + waiting_ids[:free], waiting_ids[free:]
        if not late_ids:
            return runs
        self._put_off(late_ids, places)
        left_out = set(late_ids)
        return [each for each in runs if each.id not in left_out]

    def _put_off(self, run_ids: list[int], places: _Places) -> None:
        """Postpone runs to the next times with a free place; they come before runs that are planned for later."""
        waiting = _forget_ended(self._flow_id, places.put_off, self._max_per_hour, self._now)
        taken = _keep_last_hour(places.begun, self._now)
        if self._admitted:
            taken.append((self._now, len(self._admitted)))
        taken += [moment for moment in waiting if moment[0] > self._now]
        moments = _find_moments(taken, self._max_per_hour, len(run_ids), self._now)
        places.put_off = _add(waiting, moments, self._max_per_hour)
        _store(self._flow_id, places)
        values = [(moment, self._now, run_id) for moment, run_id in zip(moments, run_ids, strict=True)]
        connection().executemany(_PUT_OFF, values).fetchall()

    def save(self) -> None:
        """Record how many admitted runs have begun. The others are still due, and will be admitted again."""
        count = len(_find_begun(self._admitted))
        if count:
            places = _load(self._flow_id)
            begun = [*_keep_last_hour(places.begun, self._now), (self._now, count)]
            places.begun = begun if len(begun) <= _MAX_MOMENTS else _join(begun)
            _store(self._flow_id, places)


def _find_begun(run_ids: Sequence[int]) -> set[int]:
    """Return those of the runs that have begun, that is, have visited a step."""
    if not run_ids:
        return set()
    return {row[0] for row in rows(_SELECT_BEGUN, (msgspec.json.encode(run_ids).decode(),))}


def _find_moments(taken: _Moments, max_per_hour: int, count: int, now: int) -> list[int]:
    """Return the next `count` times with a free place, after all that are taken; `taken` is in ascending order.

    A place is free again 60 minutes after its run began, so only the last `max_per_hour` taken ones matter.
    """
    last = deque(_keep_last(taken, max_per_hour))
    total = sum(number for _, number in last)
    at = max(now, last[-1][0]) if last else now
    moments: list[int] = []
    for _ in range(count):
        if total < max_per_hour:
            total += 1
        else:
            oldest, number = last.popleft()
            if number > 1:
                last.appendleft((oldest, number - 1))
            at = max(at, oldest + _HOUR_MS)
        moments.append(at)
        last.append((at, 1))
    return moments


def _add(moments: _Moments, added: Sequence[int], max_per_hour: int) -> _Moments:
    """Return `moments` together with `added`, in ascending order, limited to the last `max_per_hour` runs."""
    counts = Counter(dict(moments))
    counts.update(added)
    result = _keep_last(sorted(counts.items()), max_per_hour)
    return result if len(result) <= _MAX_MOMENTS else _join(result)


def _join(moments: _Moments) -> _Moments:
    """Return the times with each two counted as the later one."""
    pairs = [moments[start : start + 2] for start in range(0, len(moments), 2)]
    return [(pair[-1][0], sum(count for _, count in pair)) for pair in pairs]


def _keep_last(moments: _Moments, total: int) -> _Moments:
    """Return the last times, with the number of their runs limited to `total`."""
    remaining: _Moments = []
    for at, count in reversed(moments):
        if total <= 0:
            break
        remaining.append((at, min(count, total)))
        total -= count
    return remaining[::-1]


def _keep_last_hour(moments: _Moments, now: int) -> _Moments:
    """Return the times in the last 60 minutes. Future times are left out, because the clock was set back since."""
    return [(at, count) for at, count in moments if now - _HOUR_MS < at <= now]


def _forget_ended(flow_id: int, moments: _Moments, max_per_hour: int, now: int) -> _Moments:
    """Return the times from 60 minutes ago on, without those after the last run that still waits."""
    recent = [(at, count) for at, count in moments if at > now - _HOUR_MS]
    if not recent or recent[-1][0] <= now:
        return recent
    row = fetch_one(_SELECT_LAST_WAITING, (flow_id, now, recent[-1][0]))
    last_at = row[0] if row is not None else now
    earlier = [(at, count) for at, count in recent if at <= last_at]
    # Only the last times are stored, so the number of runs that begin at this earlier time is unknown; assume the
    # maximum.
    return earlier if row is None or (earlier and earlier[-1][0] == last_at) else [(last_at, max_per_hour)]


def _load(flow_id: int) -> _Places:
    row = fetch_one("SELECT entry_places FROM trigger WHERE flow_id = ?", (flow_id,))
    # A stored list was written by an earlier version of the service.
    return _decode(row[0]) if row is not None and row[0] is not None and not row[0].startswith("[") else _Places()


def _store(flow_id: int, places: _Places) -> None:
    run("UPDATE trigger SET entry_places = ? WHERE flow_id = ?", (msgspec.json.encode(places).decode(), flow_id))


def count_waiting(flow_id: int, now: int) -> WaitingEntries:
    """Return how many runs of a flow have not begun because of the limit, and when the last one will."""
    row = fetch_one(_COUNT_WAITING, (flow_id, now))
    return WaitingEntries(0, None) if row is None else WaitingEntries(*row)
