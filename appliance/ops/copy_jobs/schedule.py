"""When copies and test restores are due, and the job that runs them, one at a time, in a child process.

The child process ends if the service ends. The delay after failures grows, also across restarts.
"""

import logging
import shutil
import threading
import time
from pathlib import Path
from typing import NamedTuple

import msgspec

from appliance.core import clock, crypto, executable, signals
from appliance.ops.copy_jobs import history, metrics, recovery
from appliance.ops.copy_jobs.history import CopyResult, Failure, Kind, Progress, ProofResult
from appliance.settings import config
from appliance.settings.copies import Copies
from appliance.settings.schema import Storage
from appliance.storage import send_lease, transactions
from appliance.storage.models import CopyRun

log = logging.getLogger("campanero.copies")

SCRATCH_DIRECTORY = ".proving"  # of a test restore, in the data directory
CHILD_WORD = "copy-child"  # the argument that starts the child process
_MINUTE_MS = 60_000
_HOUR_MS = 60 * _MINUTE_MS
# The delay after the first failure, which doubles with each further one up to the limit.
_FIRST_WAIT_MS: dict[Kind, int] = {"copy": 5 * _MINUTE_MS, "proof": _HOUR_MS}
_MAX_WAIT_MS: dict[Kind, int] = {"copy": 6 * _HOUR_MS, "proof": 24 * _HOUR_MS}
# A child without progress for this long is terminated. With a limited bandwidth, it may take twice the time that the
# largest object takes.
_MIN_STALL_SECONDS = 1_800.0
_LARGEST_OBJECT_MEGABITS = 550
_PROGRESS_SECONDS = 2.0
# The last good copy is too old after this multiple of the interval.
_LATE_FACTOR = 2


class ChildTask(msgspec.Struct):
    """The task of the child process: the kind of run, with the settings and the key."""

    kind: Kind
    data_dir: str
    copies: Copies
    storage: Storage
    key: bytes


class Schedule(NamedTuple):
    """When the next run of a kind is due.

    `next_at` is in milliseconds, or None if none is planned. `failure_count` is the number of failures in a row.
    """

    next_at: int | None
    failure_count: int


def is_set_up(copies: Copies) -> bool:
    """Return whether copies can be made: there is a store, and a key that can decrypt what is in it."""
    return bool(copies.store and (copies.recipients or recovery.is_set(_get_directory())))


def _get_directory() -> Path:
    return Path(config.current().data_dir)


def get_schedule(kind: Kind, copies: Copies) -> Schedule:
    """Return when the next run of a kind is due, from its history and the settings."""
    failure_count = history.count_failures(kind)
    every_ms = int(config.parse_seconds(copies.every if kind == "copy" else copies.prove_every) * 1000)
    if not is_set_up(copies) or not every_ms:
        return Schedule(None, failure_count)
    good, last = history.find_last(kind, "succeeded"), history.find_last(kind)
    if kind == "proof" and history.find_last("copy", "succeeded") is None:
        return Schedule(None, failure_count)
    due_at = 0 if good is None else int(good.started_at) + every_ms
    if failure_count and last is not None:
        due_at = max(due_at, int(last.ended_at) + _get_wait(kind, failure_count, last))
    return Schedule(due_at, failure_count)


def _get_wait(kind: Kind, failure_count: int, last: CopyRun) -> int:
    """Return the delay after a failure in milliseconds: 0 after a single interruption, such as a restart."""
    if last.state == history.INTERRUPTED and failure_count == 1:
        return 0
    return int(min(_FIRST_WAIT_MS[kind] << (failure_count - 1), _MAX_WAIT_MS[kind]))


class Lateness(NamedTuple):
    """The age of the data of the last good copy in milliseconds (None without one), and whether that is too old."""

    age: int | None
    is_late: bool


def measure_lateness(copies: Copies) -> Lateness:
    """Return the age of the last good copy; without one, copies are late since the first attempt."""
    snapshot = _take_snapshot(copies)
    age = None if snapshot.taken_at is None else max(0, clock.now_ms() - snapshot.taken_at)
    return Lateness(age, is_set_up(copies) and snapshot.is_late(clock.now_ms()))


def _get_late_after(copies: Copies) -> int:
    """Return the age in milliseconds at which the last good copy is too old; 0 without a schedule."""
    return int(_LATE_FACTOR * config.parse_seconds(copies.every) * 1000)


class _Plan(NamedTuple):
    """When each kind of run is due, in milliseconds. `key` are the values from which this was computed."""

    key: tuple[Copies, bool, int]
    due_at: dict[Kind, int | None]


class _Job:
    """The state of the job that is only in memory. `generation` grows with each change of the history."""

    def __init__(self) -> None:
        self.plan: _Plan | None = None
        self.generation = 0
        self.lock = threading.Lock()


_job = _Job()


def request(kind: Kind, actor: str | None) -> CopyRun:
    """Request a copy or a test restore, return its row, and wake the job after the commit. Call it in a write."""
    row = history.request(kind, actor)
    transactions.after_commit(_replan)
    return row


def _replan() -> None:
    _job.generation += 1
    signals.wake("copies")


def is_due() -> bool:
    """Return whether a copy or a test restore is due or requested. Reads the database only if something changed."""
    return _find_due() is not None


def _find_due() -> Kind | None:
    """Return which kind of run is due, or None.

    It is also None while this machine does not hold the lease, because the other machine then makes the copies.
    """
    if not send_lease.is_held():
        return None
    copies, plan = config.current().copies, _job.plan
    key = (copies, is_set_up(copies), _job.generation)
    if plan is None or plan.key != key:
        _job.plan = plan = _Plan(key, {kind: _compute_due_at(kind, copies) for kind in history.KINDS})
        metrics.show(_take_snapshot(copies) if is_set_up(copies) else None)
    now = clock.now_ms()
    return next((kind for kind, at in plan.due_at.items() if at is not None and at <= now), None)


def _compute_due_at(kind: Kind, copies: Copies) -> int | None:
    """Return when a kind of run is due, in milliseconds: at once if it was requested."""
    waiting = history.find_open(kind)
    return 0 if waiting is not None and is_set_up(copies) else get_schedule(kind, copies).next_at


def _take_snapshot(copies: Copies) -> metrics.Snapshot:
    good, proof = history.find_last("copy", "succeeded"), history.find_last("proof", "succeeded")
    last_proof = history.find_last("proof", "succeeded", "failed")
    return metrics.Snapshot(
        taken_at=None if good is None else good.taken_at, size=0 if good is None else good.size or 0,
        begun_at=history.find_first_started_at(),
        late_after_ms=_get_late_after(copies),
        failure_counts={kind: history.count_failures(kind) for kind in history.KINDS},
        is_proof_ok=None if last_proof is None else last_proof.state == "succeeded",
        proven_at=None if proof is None else proof.ended_at,
    )  # fmt: skip


def recover(directory: Path) -> None:
    """Clean up after a process that ended: mark its runs as interrupted, and delete the scratch directory."""
    shutil.rmtree(directory / SCRATCH_DIRECTORY, ignore_errors=True)
    if history.is_any_running() and transactions.write(history.close_interrupted):
        log.warning("copies: a copy or a test restore was interrupted by the end of the service")


def run_due(stopping: threading.Event) -> None:
    """Run the due copies and test restores, one after the other, until none is due or `stopping` is set.

    Returns at once if another thread runs them. Errors are stored and logged.
    """
    if not _job.lock.acquire(blocking=False):
        return
    try:
        while not stopping.is_set() and (kind := _find_due()) is not None:
            _run(kind, stopping)
            _job.generation += 1
    finally:
        _job.lock.release()


def _run(kind: Kind, stopping: threading.Event) -> None:
    directory = _get_directory()
    run_id = transactions.write(history.start, kind)
    started_at = time.monotonic()
    try:
        done = _run_child(kind, run_id, directory, stopping)
    except Exception as error:
        log.exception("copies: failed kind=%s", kind)
        done = {"error": {"code": "failed", "message": str(error)}}
    finally:
        if kind == "proof":
            shutil.rmtree(directory / SCRATCH_DIRECTORY, ignore_errors=True)
    if done is None:
        transactions.write(history.interrupt, run_id)
    elif "error" in done:
        failure = msgspec.convert(done["error"], Failure)
        transactions.write(history.fail, run_id, failure, done.get("tested"))
        log.error("copies: failed kind=%s code=%s error=%s", kind, failure.code, failure.message)
    else:
        result: CopyResult | ProofResult = (
            msgspec.convert(done, CopyResult) if kind == "copy" else msgspec.convert(done, ProofResult)
        )
        transactions.write(history.succeed, run_id, result)
        if isinstance(result, CopyResult) and result.prune_error:
            log.warning("copies: old copies could not be deleted error=%s", result.prune_error)
        log.info("copies: done kind=%s copy=%s bytes=%d seconds=%.1f", kind, result.name, result.size,
                 time.monotonic() - started_at)  # fmt: skip


def _run_child(kind: Kind, run_id: int, directory: Path, stopping: threading.Event) -> dict[str, object] | None:
    """Run a copy or a test restore in a child process, and return its result or error; None if the service stops."""
    task = ChildTask(kind, str(directory), config.current().copies, config.current().storage, crypto.loaded_key())
    stored_at, limit = 0.0, task.copies.megabits_per_second
    max_stall_seconds = max(_MIN_STALL_SECONDS, 2 * _LARGEST_OBJECT_MEGABITS / limit if limit else 0.0)
    changed_at, last = time.monotonic(), Progress("", 0.0)
    with executable.run_child(CHILD_WORD, task) as messages:
        for message in messages:
            if stopping.is_set():
                return None
            if "done" in message:
                return dict(message["done"])
            now = time.monotonic()
            if "step" in message:
                progress = Progress(message["step"], message["share"])
                changed_at, last = (now, progress) if progress != last else (changed_at, last)
                if now - stored_at >= _PROGRESS_SECONDS:
                    stored_at = now
                    transactions.write(history.store_progress, run_id, progress)
            if now - changed_at > max_stall_seconds:
                words = f"there was no progress for {max_stall_seconds / 60:.0f} minutes"
                return {"error": {"code": "stalled", "message": words}}
    return None
