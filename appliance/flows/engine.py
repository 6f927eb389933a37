"""The engine: it advances due runs from step to step.

The effects of a step are written in the transaction that moves the run. So a step is executed exactly once even if the
process dies: either its effects and the move are on disk, or neither is and the run is still due. Runs that wait are
not in memory.
"""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby

import apsw
import msgspec

from appliance.audience.segments.condition_budget import ConditionsTooSlow, get_spent
from appliance.core import clock
from appliance.core.errors import Unavailable
from appliance.events import log as events
from appliance.flows import entry_caps, run_ends, versions
from appliance.flows.condition_limits import TOO_COSTLY, count_costly_contact, has_spent_share
from appliance.flows.steps import BY_TYPE
from appliance.flows.steps.base import (
    NO_RULES,
    ActiveRun,
    Node,
    SimulationRules,
    StepContext,
    StepResult,
    leave,
)
from appliance.flows.versions import Plan
from appliance.storage import transactions
from appliance.storage.database import connection, fetch_one, rows
from appliance.storage.disk_guard import to_storage_error
from appliance.storage.transactions import require_write_transaction

# Simulations use the same executor; it depends only on rows, this thread's connection and the clock.

log = logging.getLogger("campanero.flows")
# Called after each step with each run and its result; simulations use it to report what happened.
StepObserver = Callable[[Node, ActiveRun, StepResult], None]

_INSERT_CLOSED_VISIT = (
    "INSERT INTO step_visit (run_id, flow_id, action_id, test, entered_at, left_at, outcome, reason) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)
_CLOSE_VISIT = "UPDATE step_visit SET left_at = ?, outcome = ?, reason = ? WHERE id = ?"
_INSERT_OPEN_VISIT = (
    "INSERT INTO step_visit (run_id, flow_id, action_id, test, entered_at) VALUES (?, ?, ?, ?, ?) RETURNING id"
)
_MOVE_RUN = "UPDATE run SET action_id = ?, step_visit_id = ?, due_at = ?, updated_at = ? WHERE id = ?"
_SET_LAST_STEP = "UPDATE run SET action_id = ? WHERE id = ?"


class StepExecutor:
    """Executes runs of one version of a flow, until each waits or has ended.

    Call `execute` once, then `save` in the same transaction. With `ends_costly`, a run ends at a step whose conditions
    cost too much for this run, if no other run is evaluated together with it.
    """

    def __init__(
        self, plan: Plan, context: StepContext, observer: StepObserver | None = None, ends_costly: bool = False
    ) -> None:
        self._plan, self._context, self._observer, self._ends_costly = plan, context, observer, ends_costly
        self._pending: dict[int, list[ActiveRun]] = {}  # by step id: runs to execute now
        self._closed_visits: list[tuple[object, ...]] = []
        self._left_visits: list[tuple[object, ...]] = []
        self._waiting_runs: list[ActiveRun] = []
        self._ended_runs: dict[tuple[run_ends.EndStatus, str | None], list[ActiveRun]] = {}

    def execute(self, runs: Sequence[ActiveRun], until: float | None = None) -> None:
        """Advance runs until each waits or has ended, or `time.perf_counter()` is past `until`."""
        require_write_transaction()
        for run in runs:
            self._place_at(run, run.action_id)
        # Steps lead to later steps of the document, so one pass executes each step once for all runs that reach it.
        # Only a jump back needs another pass, and each loop contains a wait.
        while self._pending:
            for node in self._plan.nodes.values():
                arrived = self._pending.pop(node.id, None)
                if arrived is None:
                    continue
                for run, result in self._execute_step(node, arrived, until):
                    self._apply_result(node, run, result)
                if not self._pending or _is_past(until):
                    return

    def save(self) -> None:
        """Write the current step of each run, the visits of steps that runs left, and the runs that ended."""
        require_write_transaction()
        db, now = connection(), self._context.now
        db.executemany(_CLOSE_VISIT, self._left_visits)
        db.executemany(_INSERT_CLOSED_VISIT, self._closed_visits)
        entering = [run for run in self._waiting_runs if run.step_visit_id is None]
        visit_rows = db.executemany(
            _INSERT_OPEN_VISIT, [(run.id, run.flow_id, run.action_id, run.test, run.arrived_at) for run in entering]
        )
        for run, (step_visit_id,) in zip(entering, visit_rows.fetchall(), strict=True):
            run.step_visit_id = step_visit_id
        postponed = [run for runs in self._pending.values() for run in runs]
        db.executemany(
            _MOVE_RUN,
            [(run.action_id, run.step_visit_id, run.due_at, now, run.id) for run in [*self._waiting_runs, *postponed]],
        )
        for (status, reason), runs in self._ended_runs.items():
            db.executemany(_SET_LAST_STEP, [(run.action_id, run.id) for run in runs])
            run_ends.end_runs([run.id for run in runs], status, reason, now)

    def _place_at(self, run: ActiveRun, action_id: int | None) -> None:
        """Add a run to those that are to be executed at a step.

        End the run instead if `action_id` is None or unknown, or if the contact was deleted.
        """
        if action_id is None:
            self._finish(run, "completed", None)
        elif run.contact_id is None:
            run.action_id = action_id
            self._finish(run, "exited", "contact_deleted")
        elif action_id not in self._plan.nodes:
            log.error("flows: run is at an unknown step run=%s flow=%s step=%s", run.id, run.flow_id, action_id)
            self._finish(run, "exited", "failed")
        else:
            run.action_id = action_id
            self._pending.setdefault(action_id, []).append(run)

    def _finish(self, run: ActiveRun, status: run_ends.EndStatus, reason: str | None) -> None:
        self._ended_runs.setdefault((status, reason), []).append(run)

    def _apply_result(self, node: Node, run: ActiveRun, result: StepResult) -> None:
        if self._observer is not None:
            self._observer(node, run, result)
        now = self._context.get_time(run)
        if result.to == "wait" and result.until > now:
            run.arrived_at, run.due_at = now, result.until
            self._waiting_runs.append(run)
            return
        outcome = result.outcome or "on"
        if run.step_visit_id is not None:
            self._left_visits.append((now, outcome, result.reason, run.step_visit_id))
            run.step_visit_id = None
        else:
            self._closed_visits.append((run.id, run.flow_id, node.id, run.test, now, now, outcome, result.reason))
        run.due_at = now
        if result.to == "exit":
            self._finish(run, "exited", result.reason)
        else:
            self._place_at(run, node.branches.get(result.to, node.next))

    def _execute_step(
        self, node: Node, runs: list[ActiveRun], until: float | None
    ) -> list[tuple[ActiveRun, StepResult]]:
        """Execute a step for all runs at it, and return (run, result) for each.

        Runs are grouped by chain depth and test flag, because an event that the step records is one deeper in the chain
        than the event that started the run. Runs that are not executed until the time `until` are postponed and have no
        result.
        """
        runs.sort(key=_get_chain)
        results: list[tuple[ActiveRun, StepResult]] = []
        for (depth, test), chain_runs in groupby(runs, key=_get_chain):
            together = list(chain_runs)
            size = BY_TYPE[node.kind].batch_size or len(together)
            # The chain depth applies only to events that this thread records in this block.
            with events.at_chain_depth(depth + 1, test):
                for start in range(0, len(together), size):
                    if start and _is_past(until):
                        self._postpone(node, together[start:])
                        break
                    part = together[start : start + size]
                    try:
                        results += self._execute_part(node, part, until)
                    except ConditionsTooSlow:
                        if self._ends_costly and len(part) == 1:
                            results.append((part[0], leave(TOO_COSTLY)))
                            continue
                        if len(part) <= _MIN_BATCH_SIZE:
                            raise
                        results += self._execute_small_parts(node, part, until)
        return results

    def _execute_part(
        self, node: Node, part: list[ActiveRun], until: float | None
    ) -> Iterable[tuple[ActiveRun, StepResult]]:
        results = _try_step(node, part, self._context)
        return zip(part, results, strict=True) if results else self._execute_one_by_one(node, part, until)

    def _execute_small_parts(
        self, node: Node, runs: list[ActiveRun], until: float | None
    ) -> list[tuple[ActiveRun, StepResult]]:
        """Execute a step for a few runs at a time, after its conditions cost too much for all runs together.

        Runs that are not executed until the time `until` are postponed. Raises ConditionsTooSlow if a few runs cost too
        much.
        """
        results: list[tuple[ActiveRun, StepResult]] = []
        for start in range(0, len(runs), _MIN_BATCH_SIZE):
            if start and _is_past(until):
                self._postpone(node, runs[start:])
                break
            results += self._execute_part(node, runs[start : start + _MIN_BATCH_SIZE], until)
        return results

    def _postpone(self, node: Node, runs: list[ActiveRun]) -> None:
        """Leave runs at a step, so that the next transaction executes it."""
        self._pending[node.id] = runs + self._pending.get(node.id, [])

    def _execute_one_by_one(
        self, node: Node, runs: list[ActiveRun], until: float | None
    ) -> Iterator[tuple[ActiveRun, StepResult]]:
        """Execute a step for each run separately after it failed for all together, so that only failing runs end.

        Yields (run, result). This takes longer, so runs that are not executed until the time `until` are postponed.
        """
        for index, run in enumerate(runs):
            if index and _is_past(until):
                return self._postpone(node, runs[index:])
            results = _try_step(node, [run], self._context)
            if not results:
                log.error("flows: run failed run=%s flow=%s step=%s", run.id, run.flow_id, node.id)
            yield run, results[0] if results else leave("failed")


def _get_chain(run: ActiveRun) -> tuple[int, bool]:
    return run.chain_depth, bool(run.test)


def _is_past(until: float | None) -> bool:
    return until is not None and time.perf_counter() > until


def _try_step(node: Node, runs: list[ActiveRun], context: StepContext) -> list[StepResult]:
    """Execute a step for runs in a savepoint and return a result for each; if it fails, change nothing and return [].

    Raises ConditionsTooSlow, storage errors, and any error that has ended the transaction.
    """
    try:
        with _savepoint():
            results = BY_TYPE[node.kind].run(node, runs, context)
            if len(results) != len(runs):
                raise RuntimeError(f"{len(results)} results for {len(runs)} runs")
            return results
    except ConditionsTooSlow:
        raise  # The transaction is rolled back; then the runs advance one at a time.
    except Exception as error:
        if to_storage_error(error) is not None or not connection().in_transaction:
            raise  # The storage failed, not a run, so the whole transaction must be repeated.
        log.warning("flows: step failed step=%s flow=%s runs=%s", node.id, context.flow_id, len(runs), exc_info=error)
        return []


@contextmanager
def _savepoint() -> Iterator[None]:
    db = connection()
    db.execute("SAVEPOINT step")
    try:
        yield
    except BaseException:
        _roll_back(db)
        raise
    db.execute("RELEASE step")


def _roll_back(db: apsw.Connection) -> None:
    if db.in_transaction:
        db.execute("ROLLBACK TO step")
        db.execute("RELEASE step")


# The seconds that one transaction should, and at most may, occupy the writer, for which all requests wait.
_TARGET_SECONDS = 0.012
_MAX_SECONDS = 0.02
_MIN_BATCH_SIZE, _FIRST_BATCH_SIZE, _MAX_BATCH_SIZE = 10, 50, 500
_MAX_KNOWN_FLOWS = 1_000
# The time for the flows of one account before the flows of other accounts have their turn.
_MAX_ACCOUNT_SECONDS = 0.5
_SELECT_ACTIVE_FLOWS = (
    "SELECT id, account_id, name, drop_before FROM flow WHERE {where} AND status = 'active' AND deleted_at IS NULL"
)
_HAS_DUE_RUN = "EXISTS (SELECT 1 FROM run r WHERE r.flow_id = flow.id AND r.status = 'live' AND r.due_at <= ?)"
_RUN_COLUMNS = (
    "id, account_id, flow_id, version, contact_id, event_id, event_data, chain_depth, test, created_at, action_id, "
    "step_visit_id, due_at"
)
_SELECT_DUE_RUNS = (
    f"SELECT {_RUN_COLUMNS} FROM run WHERE flow_id = ? AND status = 'live' AND due_at <= ? ORDER BY due_at, id LIMIT ?"
)
_SELECT_RUNS_BY_ID = f"SELECT {_RUN_COLUMNS} FROM run WHERE id IN (SELECT value FROM json_each(?)) AND +status = 'live'"
_decode = msgspec.json.Decoder(dict).decode


class _BatchSizes:
    """The number of runs of each flow in one transaction, adapted so that the transaction takes `_TARGET_SECONDS`."""

    def __init__(self) -> None:
        self._runs: dict[int, int] = {}

    def get(self, flow_id: int) -> int:
        """Return the number of runs for the next batch of a flow."""
        return self._runs.get(flow_id, _FIRST_BATCH_SIZE)

    def record(self, flow_id: int, run_count: int, seconds: float) -> None:
        """Adapt the size after a batch that took `seconds`; a batch that was not full can only reduce it."""
        size = self.get(flow_id)
        if seconds <= _TARGET_SECONDS and run_count < size:
            return
        if len(self._runs) >= _MAX_KNOWN_FLOWS:
            self._runs.clear()
        fitting = int(run_count * _TARGET_SECONDS / max(seconds, 0.0005))
        self._runs[flow_id] = min(max(fitting, size // 4, _MIN_BATCH_SIZE), size * 2, _MAX_BATCH_SIZE)


_batch_sizes = _BatchSizes()
# When the runs of a flow were last advanced (`time.monotonic`), by flow id.
_last_turns: dict[int, float] = {}


def advance_due_runs() -> bool:
    """Advance one batch of due runs of each flow; return whether any flow had due runs.

    A flow that fails is logged, and the next call tries it again. If the conditions of a flow cost too much even for a
    few runs, its runs advance one at a time. After `_MAX_ACCOUNT_SECONDS`, the remaining flows of an account wait for
    the next call, which begins with them. Raises Unavailable if the database cannot be written.
    """
    has_advanced = False
    used: Counter[int] = Counter()  # microseconds by account
    due_flows = list_due_flows()
    for flow_id, account_id in sorted(due_flows, key=lambda flow: (_last_turns.get(flow[0], 0.0), flow[0])):
        if used[account_id] > _MAX_ACCOUNT_SECONDS * 1e6:
            has_advanced = True
            continue
        started_at = _last_turns[flow_id] = time.monotonic()
        try:
            has_advanced |= _advance_due_runs_of(flow_id)
        except Unavailable:
            raise
        except Exception:
            # The transaction was rolled back. Other flows continue; the next call tries this one again.
            log.exception("flows: advancing runs failed flow=%s", flow_id)
        used[account_id] += round((time.monotonic() - started_at) * 1e6)
    if len(_last_turns) > _MAX_KNOWN_FLOWS + len(due_flows):
        _last_turns.clear()
    return has_advanced


def _advance_due_runs_of(flow_id: int) -> bool:
    try:
        run_count, seconds = transactions.write(advance_flow, flow_id, _batch_sizes.get(flow_id))
    except ConditionsTooSlow:
        # The transaction was rolled back. The number of runs that cost too much together now advance one at a time.
        until = time.monotonic() + _MAX_ACCOUNT_SECONDS
        for index in range(_MIN_BATCH_SIZE):
            if (index and time.monotonic() > until) or not transactions.write(_advance_single, flow_id):
                break
        return True
    _batch_sizes.record(flow_id, run_count, seconds)
    return True


def _advance_single(flow_id: int) -> bool:
    """Advance the first due run of a flow; return whether another due run may follow.

    The run ends if the conditions of a step cost too much for it. If they cost more than `MAX_SHARE`, its contact is
    counted as costly, which may pause the flow.
    """
    require_write_transaction()
    spent, now = get_spent(), clock.now_ms()
    flow = fetch_one(_SELECT_ACTIVE_FLOWS.format(where="id = ?"), (flow_id,))
    due = fetch_one(_SELECT_DUE_RUNS, (flow_id, now, 1))
    if flow is None or due is None:
        return False
    run_count, _ = advance_flow(flow_id, 1, ends_costly=True)
    contact_id = ActiveRun(*due).contact_id
    if contact_id is not None and has_spent_share(spent):
        count_costly_contact(flow_id, contact_id)
    return bool(run_count)


def list_due_flows() -> list[tuple[int, int]]:
    """Return (id, account id) of the active flows that have due runs."""
    return [
        row[:2] for row in rows(_SELECT_ACTIVE_FLOWS.format(where=f"hidden = 0 AND {_HAS_DUE_RUN}"), (clock.now_ms(),))
    ]


def is_due() -> bool:
    """Return whether a run of an active flow is due."""
    return bool(
        rows(_SELECT_ACTIVE_FLOWS.format(where=f"hidden = 0 AND {_HAS_DUE_RUN}") + " LIMIT 1", (clock.now_ms(),))
    )


def advance_flow(flow_id: int, limit: int, ends_costly: bool = False) -> tuple[int, float]:
    """Advance up to `limit` due runs of a flow; return (number of runs, duration in seconds).

    Runs that were due before `drop_before` of the flow are ended instead, and runs without a place within the limit of
    entries an hour are postponed. `ends_costly` is as in `StepExecutor`. Returns (0, 0.0) if the flow is not active.
    """
    require_write_transaction()
    started, now = time.perf_counter(), clock.now_ms()
    flow = fetch_one(_SELECT_ACTIVE_FLOWS.format(where="id = ?"), (flow_id,))
    if flow is None:
        return 0, 0.0
    runs = [ActiveRun(*row) for row in rows(_SELECT_DUE_RUNS, (flow_id, now, limit))]
    drop_before = flow[3] or 0
    late = [run.id for run in runs if run.due_at < drop_before]
    run_ends.end_runs(late, "exited", "overdue_on_resume", now)
    gate = entry_caps.EntryGate(flow_id, now)
    on_time = gate.admit([run for run in runs if run.due_at >= drop_before])
    _execute_runs(on_time, flow[2], now, None, started + _MAX_SECONDS, ends_costly=ends_costly)
    gate.save()
    return len(runs), time.perf_counter() - started


def advance_runs(
    run_ids: Iterable[int], flow_name: str, plan: Plan, observer: StepObserver | None = None,
    rules: SimulationRules = NO_RULES,
) -> None:  # fmt: skip
    """Advance live runs of one version of a flow, whatever the flow's status and their due times; for simulations."""
    require_write_transaction()
    runs = [ActiveRun(*row) for row in rows(_SELECT_RUNS_BY_ID, (msgspec.json.encode(list(run_ids)).decode(),))]
    _execute_runs(runs, flow_name, clock.now_ms(), observer, None, plan, rules)


def _execute_runs(
    runs: list[ActiveRun],
    flow_name: str,
    now: int,
    observer: StepObserver | None,
    until: float | None,
    plan: Plan | None = None,
    rules: SimulationRules = NO_RULES,
    ends_costly: bool = False,
) -> None:
    by_version: dict[int, list[ActiveRun]] = {}
    unreadable = [run.id for run in runs if not _decode_event_data(run)]
    run_ends.end_runs(unreadable, "exited", "failed", now)
    for run in runs:
        if isinstance(run.event_data, dict):
            by_version.setdefault(run.version, []).append(run)
    for version, version_runs in by_version.items():
        first = version_runs[0]
        version_plan = plan or versions.load_plan(first.flow_id, version)
        context = StepContext(
            first.account_id, first.flow_id, flow_name, version, now, Counter(), version_plan.repeats, rules
        )
        executor = StepExecutor(version_plan, context, observer, ends_costly)
        executor.execute(version_runs, until)
        executor.save()


def _decode_event_data(run: ActiveRun) -> bool:
    """Decode the data of the event that started a run, in place; return False if it is not valid JSON."""
    try:
        run.event_data = _decode(run.event_data or "{}")  # type: ignore[arg-type]  # as stored
    except (msgspec.DecodeError, UnicodeDecodeError):
        log.exception("flows: event data is unreadable run=%s", run.id)
        return False
    return True


# The worker of the background job `flows`, which turns events into runs and advances due runs.

# A function that does one batch of work in transactions of its own and returns whether there was any.
WorkUnit = Callable[[], bool]


class FlowWorker:
    """The worker that runs all units of work, in one thread at a time; set `stopping` to stop it.

    If `work` is called while another thread is working, that thread does another round instead.
    """

    def __init__(self, units: tuple[WorkUnit, ...]) -> None:
        self.stopping = threading.Event()
        self._units = units
        self._working = threading.Lock()
        self._woken = threading.Event()

    def work(self) -> None:
        """Run the units until none has work left or `stopping` is set; raises Unavailable and storage errors."""
        self._woken.set()
        while self._woken.is_set() and self._working.acquire(blocking=False):
            try:
                self._woken.clear()
                self._run_rounds()
            finally:
                self._working.release()

    def _run_rounds(self) -> None:
        active = list(self._units)
        while not self.stopping.is_set():
            # Each unit gets one batch in each round, so that none waits until another is done.
            worked = [self._run_unit(unit, active) for unit in self._units if unit in active]
            if not any(worked):
                return

    @staticmethod
    def _run_unit(unit: WorkUnit, active: list[WorkUnit]) -> bool:
        """Run one batch of a unit. A unit that fails is logged, and skipped until the next call of `work`."""
        try:
            return unit()
        except Exception as error:
            if isinstance(error, Unavailable) or to_storage_error(error) is not None:
                raise
            log.exception("flows: work unit failed")
            active.remove(unit)
            return False
