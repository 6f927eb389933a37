"""The history of copies and test restores: requested, running and ended runs with their results.

Every attempt is a row of `copy_run`, so after a kill the interrupted run is known, and the delays after failures apply
across restarts.
"""

from typing import Any, Literal, NamedTuple

import msgspec

from appliance.core import clock
from appliance.storage.database import rows, run
from appliance.storage.models import CopyRun
from appliance.storage.transactions import require_write_transaction

Kind = Literal["copy", "proof"]
State = Literal["waiting", "running", "succeeded", "failed", "interrupted"]
KINDS: tuple[Kind, ...] = ("copy", "proof")
# The run ended because the process ended: by a kill, a power failure or a stop of the service.
INTERRUPTED: State = "interrupted"
_KEPT_RUNS = 500
# More failures than this do not change the delay before the next attempt.
_MAX_COUNTED_FAILURES = 30


class StoredCopy(msgspec.Struct):
    """A copy in the store, as listed after the last successful copy."""

    name: str
    taken_at: int  # milliseconds since 1970
    size: int  # bytes in the store
    is_full: bool  # False: only what has changed since the full copy before it


class CopyResult(msgspec.Struct):
    """The result of a successful copy."""

    name: str
    taken_at: int
    size: int
    is_full: bool
    copies: list[StoredCopy]  # all copies in the store after it, newest first
    prune_error: str = ""  # why copies that are not kept any longer could not be deleted


class ProofResult(msgspec.Struct):
    """The result of a successful test restore: the copy, and the row counts of its most important tables."""

    name: str
    taken_at: int
    size: int
    counts: dict[str, int]


class Failure(msgspec.Struct):
    """Why a copy or a test restore failed: a code for programs, and the text of the cause."""

    code: str
    message: str


class Progress(NamedTuple):
    """The current step of a run, and how much of that step is done, from 0 to 1."""

    step: str
    share: float


def request(kind: Kind, actor: str | None) -> CopyRun:
    """Store a waiting run and return its row; if a run of this kind is waiting or running already, return that one."""
    require_write_transaction()
    return find_open(kind) or CopyRun.create(
        kind=kind, state="waiting", requested_by=actor, started_at=clock.now_ms(), details={}
    )


def start(kind: Kind) -> int:
    """Store that a run has started, in the row of the waiting run if there is one, and return its id."""
    require_write_transaction()
    now = clock.now_ms()
    waiting = CopyRun.select().where(CopyRun.kind == kind, CopyRun.state == "waiting").first()
    if waiting is None:
        return int(CopyRun.create(kind=kind, state="running", started_at=now, details={}).id)
    run("UPDATE copy_run SET state = 'running', started_at = ? WHERE id = ?", (now, waiting.id))
    return int(waiting.id)


def store_progress(run_id: int, progress: Progress) -> None:
    """Store the progress of a running copy or test restore."""
    require_write_transaction()
    details = msgspec.json.encode({"step": progress.step, "share": round(progress.share, 3)}).decode()
    run("UPDATE copy_run SET details = ? WHERE id = ? AND state = 'running'", (details, run_id))


def succeed(run_id: int, result: CopyResult | ProofResult) -> None:
    """Store the result of a run that succeeded."""
    require_write_transaction()
    details = msgspec.to_builtins(result)
    fields = {key: details.pop(key) for key in ("name", "taken_at", "size")}
    row = CopyRun.get_by_id(run_id)
    row.state, row.ended_at, row.details = "succeeded", clock.now_ms(), details
    row.copy, row.taken_at, row.size = fields["name"], fields["taken_at"], fields["size"]
    row.save()
    _prune()


def fail(run_id: int, failure: Failure, details: dict[str, Any] | None = None) -> None:
    """Store why a run failed. `details` has the columns about the tested copy, as far as they are known."""
    require_write_transaction()
    row = CopyRun.get_by_id(run_id)
    row.state, row.ended_at, row.details = "failed", clock.now_ms(), {}
    row.error_code, row.error = failure.code, failure.message
    for name, value in (details or {}).items():
        setattr(row, name, value)
    row.save()
    _prune()


def interrupt(run_id: int) -> None:
    """Store that the stop of the service has ended a run."""
    require_write_transaction()
    run("UPDATE copy_run SET state = ?, ended_at = ?, details = '{}' WHERE id = ? AND state = 'running'",
        (INTERRUPTED, clock.now_ms(), run_id))  # fmt: skip


def is_any_running() -> bool:
    """Return whether a run is marked as running."""
    return bool(rows("SELECT 1 FROM copy_run WHERE state = 'running' LIMIT 1"))


def close_interrupted() -> int:
    """Mark the runs of an ended process as interrupted, and return their number. Call it once, at the start."""
    require_write_transaction()
    return run(
        "UPDATE copy_run SET state = ?, ended_at = ?, details = '{}' WHERE state = 'running'",
        (INTERRUPTED, clock.now_ms()),
    )


def _prune() -> None:
    run("DELETE FROM copy_run WHERE id <= (SELECT max(id) FROM copy_run) - ? AND id NOT IN "
        "(SELECT max(id) FROM copy_run WHERE state = 'succeeded' GROUP BY kind)", (_KEPT_RUNS,))  # fmt: skip


def withdraw_requests() -> None:
    """Delete the runs that wait, because copies were turned off."""
    require_write_transaction()
    run("DELETE FROM copy_run WHERE state = 'waiting'")


def find_open(kind: Kind) -> CopyRun | None:
    """Return the run of a kind that is waiting or running, or None."""
    row: CopyRun | None = (
        CopyRun.select()
        .where(CopyRun.kind == kind, CopyRun.state.in_(("waiting", "running")))
        .order_by(CopyRun.id.desc())
        .first()
    )
    return row


def find_last(kind: Kind, *states: State) -> CopyRun | None:
    """Return the newest run of a kind in one of the states, or None. Without `states`, all ended runs count."""
    ended = states or ("succeeded", "failed", INTERRUPTED)
    row: CopyRun | None = (
        CopyRun.select().where(CopyRun.kind == kind, CopyRun.state.in_(ended)).order_by(CopyRun.id.desc()).first()
    )
    return row


def count_failures(kind: Kind) -> int:
    """Return how many runs of a kind have failed or been interrupted since the last one that succeeded."""
    sql = (
        "SELECT count(*) FROM (SELECT 1 FROM copy_run WHERE kind = ?1 AND state IN ('failed', 'interrupted') "
        "AND id > coalesce((SELECT max(id) FROM copy_run WHERE kind = ?1 AND state = 'succeeded'), 0) LIMIT ?2)"
    )
    return int(rows(sql, (kind, _MAX_COUNTED_FAILURES))[0][0])


def find_first_started_at() -> int | None:
    """Return the start time of the oldest copy in the history, in milliseconds, or None without one."""
    return rows("SELECT min(started_at) FROM copy_run WHERE kind = 'copy'")[0][0]  # type: ignore[no-any-return]  # the driver returns Any


def list_runs(limit: int) -> list[CopyRun]:
    """Return up to `limit` copies and test restores, newest first."""
    return list(CopyRun.select().order_by(CopyRun.id.desc()).limit(limit))


def list_stored() -> list[StoredCopy]:
    """Return the copies in the store, newest first, as listed when the last copy was made successfully."""
    last = find_last("copy", "succeeded")
    return [] if last is None else msgspec.convert(last.details.get("copies", []), list[StoredCopy])


def get_progress(row: CopyRun) -> Progress:
    """Return the progress of a run; its step is empty while the run waits or has reported nothing."""
    return Progress(str(row.details.get("step", "")), float(row.details.get("share", 0.0)))
