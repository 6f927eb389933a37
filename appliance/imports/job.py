"""The import worker: stage each file, then check or apply it chunk by chunk.

The database stores the progress of each import, so that after a crash the next process continues after the last
committed chunk. A file may be staged again, but no row is applied twice. A dry run is checked again from the beginning.

The imports of several accounts are processed in turns, so that none waits for the large file of another account.
"""

import itertools
import logging
import shutil
import threading
import time
from collections import Counter
from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from appliance.accounts import limits
from appliance.audience.contacts import statuses
from appliance.core import clock, crypto
from appliance.core.errors import Conflict, Unavailable
from appliance.core.executable import run_child
from appliance.core.i18n import gettext_noop
from appliance.events import log as events
from appliance.events.log import NewEvent
from appliance.imports import file_reader, removal, row_writer, staging, store
from appliance.imports.chunk import Chunk, Outcome, SuppressionChunk
from appliance.imports.contact_rows import DryRunState
from appliance.imports.file_reader import StagingTask
from appliance.imports.people import Person
from appliance.imports.results import StateCounter
from appliance.imports.row_writer import ImportPlan
from appliance.imports.staging import StagingFile
from appliance.storage import database, transactions
from appliance.storage.database import fetch_one, rows, run, scalar
from appliance.storage.models import Import
from appliance.storage.transactions import require_write_transaction

_pack = msgspec.msgpack.Encoder().encode
_CHUNK_CLASSES: dict[str, Any] = {"contacts": Chunk, "suppressions": SuppressionChunk}


class ChunkRange(NamedTuple):
    """The positions (after, last] of a chunk in the staging file, and the contacts that were inserted in bulk.

    These contacts have the `inserted_count` ids from `first_id` on.
    """

    after: int
    last: int
    first_id: int
    inserted_count: int


class Cancelled(Exception):
    """Raised if the import was cancelled or deleted."""


def build_plan(job: Import) -> ImportPlan:
    """Return the options of an import in the form that chunks need."""
    options = store.get_options(job)
    return ImportPlan(
        job.id, job.filename, job.account_id, job.actor, options.consent_source, tuple(dict.fromkeys(options.list_ids)),
        options.opt_in, options.opt_in if options.opt_in_phone is None else options.opt_in_phone,
        options.on_conflict == "skip", options.trigger_flows,
    )  # fmt: skip


def start_phase(import_id: int, phase: str) -> Import:
    """Start a phase of an import and return the import; raises Cancelled."""
    require_write_transaction()
    _raise_if_cancelled(import_id)
    run(
        "UPDATE import SET status = 'processing', phase = ?, updated_at = ? WHERE id = ?",
        (phase, clock.now_ms(), import_id),
    )
    return Import.get_by_id(import_id)


def clear_outcomes(import_id: int, limit: int = 200) -> bool:
    """Reset the totals of an import, delete the outcomes of up to `limit` chunks, and return whether any remain."""
    require_write_transaction()
    run(
        "DELETE FROM import_chunk WHERE id IN (SELECT id FROM import_chunk WHERE import_job_id = ? LIMIT ?)",
        (import_id, limit),
    )
    run(
        "UPDATE import SET total = 0, processed = 0, created = 0, updated = 0, skipped = 0, failed = 0, warnings = 0, "
        "arriving = '{}', cursor = '[]' WHERE id = ?",
        (import_id,),
    )
    return fetch_one("SELECT 1 FROM import_chunk WHERE import_job_id = ? LIMIT 1", (import_id,)) is not None


def record_rows_read(import_id: int, count: int) -> None:
    """Store the number of rows that were read so far. Raises Cancelled if the import was cancelled."""
    require_write_transaction()
    _raise_if_cancelled(import_id)
    run("UPDATE import SET total = ?, updated_at = ? WHERE id = ?", (count, clock.now_ms(), import_id))


def record_staged(import_id: int, total: int, failed: int, formats: dict[str, dict[str, Any]]) -> Import:
    """Store the totals of staging, start the phase `applying`, and return the import; raises Cancelled.

    `formats` describes each column, by its name (see `file_reader._describe_columns`).
    """
    require_write_transaction()
    _raise_if_cancelled(import_id)
    run(
        "UPDATE import SET phase = 'applying', total = ?, failed = ?, processed = ?, updated_at = ? WHERE id = ?",
        (total, failed, failed, clock.now_ms(), import_id),
    )
    job = Import.get_by_id(import_id)
    job.columns = [{**column, **formats.get(column["name"], {})} for column in job.columns]
    run("UPDATE import SET columns = ? WHERE id = ?", (msgspec.json.encode(job.columns).decode(), import_id))
    return job


def apply_chunk(plan: ImportPlan, resource: str, after: int, last: int, arriving: StateCounter) -> None:
    """Apply the rows at the positions (after, last] of the attached staging file.

    The outcomes and the progress of the import are stored in the same transaction. The states of contacts are added to
    `arriving`. Raises Cancelled, or Conflict (`account_limit`) if the account has no room for another contact; a chunk
    that begins below the limit may exceed it.
    """
    require_write_transaction()
    _raise_if_cancelled(plan.import_id)
    if resource == "contacts":
        limits.require_contacts(plan.account_id)
    now = clock.now_ms()
    inserted = (
        row_writer.insert_in_bulk(plan, after, last, now) if resource == "contacts" else row_writer.clear_bulk_rows(now)
    )
    other_people = staging.fetch_attached_people(after, last) if inserted.number < last - after else []
    with events.in_batch(plan.batch):
        chunk = _CHUNK_CLASSES[resource](plan, other_people, inserted)
    outcomes = arriving.follow(chunk.outcomes)
    state_changes = arriving.changes(outcomes)
    if inserted.number:
        state_changes["subscribed" if plan.opt_in else "unsubscribed:not_opted_in"] += inserted.number
    chunk_range = ChunkRange(after, last, inserted.first, inserted.number)
    _insert_chunk(
        plan.import_id,
        chunk_range,
        outcomes,
        chunk.before.encode(),
        chunk.warned + row_writer.count_warned(inserted),
        state_changes,
    )
    arriving.take(outcomes)
    created_count = inserted.number + sum(outcome.result == "created" for outcome in outcomes)
    limits.note_contacts(plan.account_id, created_count)


class ChunkCheck(NamedTuple):
    """The outcomes of a chunk in a dry run, and the number of created or updated lines with warnings."""

    outcomes: list[Outcome]
    warned: int


def check_chunk(plan: ImportPlan, resource: str, people: list[Person], memory: DryRunState) -> ChunkCheck:
    """Return the outcomes that a chunk would have, without writing; `memory` has the effects of the previous chunks."""
    chunk = _CHUNK_CLASSES[resource](plan, people, memory=memory)
    return ChunkCheck(chunk.outcomes, chunk.warned)


def record_check(import_id: int, chunk_range: ChunkRange, chunk_check: ChunkCheck, arriving: StateCounter) -> None:
    """Store the outcomes of a chunk of a dry run; raises Cancelled.

    Contact ids from `chunk_range.first_id` on are left out, because these contacts do not exist.
    """
    require_write_transaction()
    _raise_if_cancelled(import_id)
    outcomes = arriving.follow(chunk_check.outcomes)
    state_changes = arriving.changes(outcomes)
    stored_outcomes = [
        outcome._replace(contact_id=None) if (outcome.contact_id or 0) >= chunk_range.first_id else outcome
        for outcome in outcomes
    ]
    _insert_chunk(import_id, chunk_range, stored_outcomes, None, chunk_check.warned, state_changes)
    arriving.take(outcomes)


def _raise_if_cancelled(import_id: int) -> None:
    row = fetch_one("SELECT cancel_asked_at FROM import WHERE id = ?", (import_id,))
    if row is None or row[0] is not None:
        raise Cancelled


def _insert_chunk(
    import_id: int, chunk_range: ChunkRange, outcomes: list[Outcome], snapshot: bytes | None, warned: int,
    changes: Counter[str],
) -> None:  # fmt: skip
    counts = {"created": chunk_range.inserted_count, "updated": 0, "skipped": 0, "failed": 0}
    for outcome in outcomes:
        counts[outcome.result] += 1
    now = clock.now_ms()
    run(
        "INSERT INTO import_chunk (import_job_id, number, outcomes, before, created_at) VALUES (?, ?, ?, ?, ?)",
        (
            import_id,
            chunk_range.last,
            _pack([tuple(chunk_range), [tuple(stored) for stored in outcomes]]),
            snapshot,
            now,
        ),
    )
    arriving = Counter(msgspec.json.decode(scalar("SELECT arriving FROM import WHERE id = ?", (import_id,)) or "{}"))
    arriving.update(changes)
    run(
        "UPDATE import SET created = created + ?, updated = updated + ?, skipped = skipped + ?, failed = failed + ?, "
        "processed = processed + ?, warnings = warnings + ?, arriving = ?, cursor = ?, updated_at = ? WHERE id = ?",
        (
            *counts.values(), chunk_range.last - chunk_range.after, warned, msgspec.json.encode(arriving).decode(),
            msgspec.json.encode([chunk_range.last]).decode(), now, import_id,
        ),
    )  # fmt: skip


def finish_import(import_id: int, status: str, error: str | None = None) -> None:
    """Finish an import with a status, and an error if it failed.

    If it wrote rows, allow an undo for 24 hours, and record one event in place of an event for each contact.
    """
    require_write_transaction()
    now = clock.now_ms()
    job = Import.get_or_none(Import.id == import_id)
    if job is None:
        return
    has_written = not job.dry_run and job.phase == "applying"
    run(
        "UPDATE import SET status = ?, phase = NULL, error = ?, completed_at = ?, undo_until = ?, updated_at = ? "
        "WHERE id = ?",
        (status, error, now, now + store.UNDO_MS if has_written else None, now, import_id),
    )
    if has_written and (job.created or job.updated):
        counts = {name: getattr(job, name) for name in ("created", "updated", "skipped", "failed")}
        data = {"import_id": job.id, "resource": job.resource, "status": status, "actor": job.actor, **counts}
        events.record(NewEvent(job.account_id, "import_completed", None, data, f"import:{job.id}", job.filename))
    statuses.forget_counts(job.account_id)


log = logging.getLogger("campanero.imports")

_MAX_CHUNK_ROWS, _MIN_CHUNK_ROWS = 1000, 25
# The processor time that a chunk should take. If this share of its wall-clock time is more, that counts instead: on a
# busy machine most of the time is spent waiting, and smaller chunks would only write the same pages more often.
_CHUNK_SECONDS, _MIN_SHARE_OF_CLOCK = 0.02, 1 / 4
# The first chunk is small, because it is unknown how long its rows take.
_FIRST_CHUNK_ROWS = 100
# A file up to this size is read in this process, because starting a child process takes longer.
_MAX_IN_PROCESS_BYTES = 131_072
# How many imports of larger files may be in progress at a time: each has a child process, and a dry run keeps the
# contacts of the file in memory.
_MAX_LARGE_IMPORTS = 2
_TURN_SECONDS = 0.3
# The pause before child processes are asked again whether they have finished
_POLL_SECONDS = 0.1
# A younger file may be an upload whose request is not finished, so it is not deleted.
_MIN_FILE_AGE_SECONDS = 3600


# The steps of an import. After each step the generator yields whether the import only waits for its child process.
_Steps = Generator[bool, None, None]


class _OpenImport(NamedTuple):
    """An import in progress."""

    steps: _Steps
    is_large: bool


class Importer:
    """The import worker; each process has one. Set `stopping` to stop it after the current chunk.

    It has one thread, because there is one writer, and works on one import of each account at a time, in turns of
    `_TURN_SECONDS`. The next turn goes to the account whose last turn is the longest ago. While an import waits for the
    child process that reads its file, the others continue.
    """

    def __init__(self) -> None:
        self.stopping = threading.Event()
        self._busy = threading.Lock()
        self._open: dict[int, _OpenImport] = {}  # by account id
        self._turns = itertools.count(1)
        self._last_turns: dict[int, int] = {}  # the number of the last turn by account id
        self._attached_id: int | None = None  # the import whose staging file is attached

    def run(self) -> None:
        """Process imports and undos until none is left, then delete expired files.

        Return at once if another call is running. Raises Unavailable if the database cannot be written; the next call
        continues.
        """
        if not self._busy.acquire(blocking=False):
            return
        try:
            while not self.stopping.is_set():
                self._open_next()
                if not self._open:
                    break
                turns = [self._take_turn(account_id) for account_id in sorted(self._open, key=self._find_last_turn)]
                if all(turns):
                    self.stopping.wait(_POLL_SECONDS)
            if not self.stopping.is_set():
                delete_expired_files()
        finally:
            self._close_all()
            self._busy.release()

    def _find_last_turn(self, account_id: int) -> int:
        return self._last_turns.get(account_id, 0)

    def _open_next(self) -> None:
        """Open the next import of each account that has no open import.

        At most `_MAX_LARGE_IMPORTS` imports of more than `_MAX_IN_PROCESS_BYTES` are open at a time, in all accounts
        together; undoing an import does not count.
        """
        # With min(), SQLite returns the other columns of the row with the minimum: one in progress first, then the
        # oldest.
        next_rows = rows(
            "SELECT account_id, id, phase IS NOT 'undoing' AND bytes > ?, min((status = 'pending') * (1 << 60) + id) "
            "FROM import WHERE status = 'processing' OR phase = 'undoing' OR status = 'pending' GROUP BY account_id",
            (_MAX_IN_PROCESS_BYTES,),
        )
        large_count = sum(work.is_large for work in self._open.values())
        for account_id, import_id, is_large, _ in sorted(next_rows, key=lambda row: self._find_last_turn(row[0])):
            if account_id not in self._open and not (is_large and large_count >= _MAX_LARGE_IMPORTS):
                self._open[account_id] = _OpenImport(self._work(Import.get_by_id(import_id)), bool(is_large))
                large_count += is_large

    def _take_turn(self, account_id: int) -> bool:
        """Work on the import of an account for `_TURN_SECONDS`; return whether it only waits for its child process."""
        ends_at = time.monotonic() + _TURN_SECONDS
        self._last_turns[account_id] = next(self._turns)
        for is_waiting in self._open[account_id].steps:
            if is_waiting or self.stopping.is_set() or time.monotonic() > ends_at:
                return is_waiting
        del self._open[account_id]
        return False

    def _close_all(self) -> None:
        """End the child processes of all open imports and close their files."""
        with ExitStack() as stack:
            for work in self._open.values():
                stack.callback(work.steps.close)
        self._open.clear()

    def _work(self, job: Import) -> _Steps:
        try:
            if job.phase == "undoing":
                for _ in removal.undo_in_batches(job):
                    yield False
                return
            home = store.import_directory(job.id)
            resumed = job.phase == "applying" and not job.dry_run and (home / "staging.db").exists()
            if not resumed:
                job = yield from self._read(job, home)
            yield from self._apply(job, home)
            transactions.write(finish_import, job.id, "complete")
        except Cancelled:
            transactions.write(finish_import, job.id, "cancelled")
        except Unavailable:
            raise
        except Conflict as reached:
            transactions.write(finish_import, job.id, "failed", str(reached))
        except file_reader.UnreadableFile as fault:
            transactions.write(finish_import, job.id, "failed", str(fault))
        except Exception:
            log.exception("imports: import failed import=%s", job.id)
            transactions.write(
                finish_import, job.id, "failed", gettext_noop("something went wrong in Campanero; the log says what")
            )

    def _read(self, job: Import, home: Path) -> Generator[bool, None, Import]:
        """Write the staging file and return the import; raises Cancelled or UnreadableFile."""
        transactions.write(start_phase, job.id, "staging")
        while transactions.write(clear_outcomes, job.id):
            yield False
        targets = {column["name"]: column["target"] for column in job.columns} if job.format == "csv" else {}
        options = store.get_options(job)
        country = options.default_country if isinstance(options.default_country, str) else None
        task = StagingTask(
            str(home / "upload"), str(home / "staging.db"), job.resource, {**targets, **options.map},
            crypto.loaded_key(), country, options.date_order, options.decimal_mark, options.column_types,
            options.opt_in_unstated,
        )  # fmt: skip
        if job.bytes <= _MAX_IN_PROCESS_BYTES:
            totals = file_reader.stage_file(task, lambda count: None)
        else:
            totals = yield from _stage_in_child(job.id, task)
        return transactions.write(record_staged, job.id, totals["total"], totals["failed"], totals["columns"])

    def _apply(self, job: Import, home: Path) -> _Steps:
        """Apply or check all chunks after the cursor."""
        plan = build_plan(job)
        staged = StagingFile(home / "staging.db")
        try:
            for _ in self._apply_chunks(plan, job, staged, home / "staging.db"):
                yield False
        finally:
            staged.close()
            if self._attached_id == job.id:
                self._attached_id = None
                if not transactions.is_stopped():
                    transactions.run_outside_transaction(staging.detach_staging)

    def _apply_chunks(self, plan: ImportPlan, job: Import, staged: StagingFile, path: Path) -> _Steps:
        """Apply or check chunks as `_apply` does; the size of a chunk depends on the duration of the previous one."""
        position, count, size = (job.cursor or [0])[0], staged.count(), _FIRST_CHUNK_ROWS
        arriving, memory, next_id = StateCounter(job.id), DryRunState(), database.last_id("contact") + 1
        while position < count:
            last = min(position + size, count)
            if job.dry_run:
                chunk_check = check_chunk(plan, job.resource, staged.fetch_people(position, last), memory)
                time.sleep(0.0005)  # A check never waits, so without a pause requests would be slow.
                transactions.write(
                    record_check, plan.import_id, ChunkRange(position, last, next_id, 0), chunk_check, arriving
                )
            else:
                if self._attached_id != job.id:
                    transactions.run_outside_transaction(staging.attach_staging, path)
                    self._attached_id = job.id
                size = _next_size(
                    transactions.write(_apply_timed, plan, job.resource, position, last, arriving), last - position
                )
            position = last
            yield False


def _stage_in_child(import_id: int, task: StagingTask) -> Generator[bool, None, dict[str, Any]]:
    """Stage a file in a child process and return the totals; raises Cancelled or UnreadableFile."""
    with run_child("read-import", task, wait_seconds=0) as messages:
        while "done" not in (message := next(messages)):
            if message:
                transactions.write(record_rows_read, import_id, message["rows"])
            else:
                _raise_if_cancelled(import_id)
            yield True
    if "unreadable" in message["done"]:
        raise file_reader.UnreadableFile(message["done"]["unreadable"])
    return dict(message["done"])


def _next_size(seconds: float, row_count: int) -> int:
    """Return the number of rows for the next chunk, so that it costs about `_CHUNK_SECONDS` (see `_apply_timed`)."""
    return max(_MIN_CHUNK_ROWS, min(_MAX_CHUNK_ROWS, int(row_count * min(2.0, _CHUNK_SECONDS / max(seconds, 0.001)))))


def _apply_timed(plan: ImportPlan, resource: str, after: int, last: int, arriving: StateCounter) -> float:
    """Apply a chunk and return its cost in seconds.

    That is its processor time, or `_MIN_SHARE_OF_CLOCK` of the wall-clock time if that is more.
    """
    started_at, cpu_started_at = time.perf_counter(), time.thread_time()
    apply_chunk(plan, resource, after, last, arriving)
    return max(time.thread_time() - cpu_started_at, (time.perf_counter() - started_at) * _MIN_SHARE_OF_CLOCK)


def delete_expired_files() -> None:
    """Delete the files of deleted imports, of finished ones after `store.RETENTION_MS`, and abandoned uploads."""
    for home in store.import_directory().iterdir():
        number = home.name if home.name.isdecimal() else "0"
        row = fetch_one("SELECT status, coalesce(completed_at, created_at) FROM import WHERE id = ?", (number,))
        is_expired = row is None or (row[0] not in store.OPEN_STATUSES and row[1] < clock.now_ms() - store.RETENTION_MS)
        try:
            if is_expired and home.stat().st_mtime < time.time() - _MIN_FILE_AGE_SECONDS:
                shutil.rmtree(home, ignore_errors=True) if home.is_dir() else home.unlink()
        except FileNotFoundError:
            continue  # The upload was moved into the directory of its import.
