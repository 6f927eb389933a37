"""The writer: the one thread that changes the database, and the thread that copies its log into the database.

A write is a function that changes the database. It runs on the writer thread inside a SAVEPOINT. Queued writes share
one COMMIT, so that `synchronous=FULL` costs one fsync for all of them. A write that fails is rolled back alone; if the
COMMIT fails, all its writes fail and nothing is written. The writer does not wait for more writes: a batch consists of
the writes that are in the queue while the batch runs.
"""

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import apsw
import peewee

from appliance.core import limited_process, logs
from appliance.storage import disk_guard
from appliance.storage.database import checkpoint, close_database, connection, is_log_replicated, write_state
from appliance.storage.disk_guard import StorageError, to_storage_error
from appliance.storage.models.campaigns import ZONE_TRIGGERS

T = TypeVar("T")
log = logging.getLogger("campanero.writer")
_MAX_WAL_PAGES = 2_000  # 8 MB
# With Litestream, which checkpoints by itself; a longer log means that it does not run. 256 MB
_MAX_REPLICATED_WAL_PAGES = 65_536
_CHECKPOINT_RETRY_SECONDS = 1.0
# A batch is committed after this many writes or seconds, so that no caller waits long for the writes of others.
_MAX_WRITES = 200
_MAX_SECONDS = 0.02
_WRITER_CACHE_KB = 4_000  # large enough that a large transaction writes each changed page only once, at its end
_NEEDS_TRIGGERS = (
    "SELECT EXISTS (SELECT 1 FROM main.sqlite_schema WHERE name = 'contact_zone') "
    "AND NOT EXISTS (SELECT 1 FROM temp.sqlite_schema WHERE type = 'trigger' AND tbl_name = 'contact')"
)


def install_triggers(handle: Any) -> None:
    """Create the triggers of an apsw connection that writes, unless it has them or its database is too old for them.

    They are temporary, so that a database from another place has none.
    """
    if handle.execute(_NEEDS_TRIGGERS).fetchall() == [(1,)]:
        for statement in ZONE_TRIGGERS:
            handle.execute(statement).fetchall()


class Checkpointer:
    """A thread that copies the write-ahead log into the database each time the log has grown to `_MAX_WAL_PAGES`.

    Syncing a growing log takes several times as long as syncing a log that is overwritten, because the file system must
    record its size. SQLite overwrites the log from its start only once the whole log has been copied and no write came
    in between. So this thread copies most of the log while the writer works, and the writer thread copies the rest
    between transactions: `between` runs a function on the writer thread outside of a transaction.

    With Litestream, the log is left to it until it has grown to `_MAX_REPLICATED_WAL_PAGES`.
    """

    def __init__(self, between: Callable[[Callable[[], None]], None]) -> None:
        self._between = between
        self._is_replicated = is_log_replicated()
        self._due, self._ending = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="checkpointer", daemon=True)
        self._thread.start()

    def watch(self, writing_connection: Any) -> None:
        """Wake the checkpointing thread when a commit on a connection leaves too many pages in the log.

        This replaces SQLite's automatic checkpoints on the connection.
        """
        writing_connection.set_wal_hook(self._request_checkpoint)

    def _request_checkpoint(self, connection: Any, name: str, pages: int) -> int:
        if pages >= (_MAX_REPLICATED_WAL_PAGES if self._is_replicated else _MAX_WAL_PAGES):
            self._due.set()
        return 0

    def _run(self) -> None:
        errors = logs.RepeatedErrors(log, "storage: checkpoint failed")
        while not self._ending.is_set():
            self._due.wait()
            self._due.clear()
            if self._ending.is_set():
                break
            try:
                checkpoint()
                self._between(checkpoint)
            except (apsw.Error, peewee.PeeweeException, StorageError) as error:
                # A long log loses no data, and the writer reports problems of the disk.
                log.debug("storage: checkpoint failed: %s", error)
                self._ending.wait(_CHECKPOINT_RETRY_SECONDS)
            except Exception as error:
                # The thread must continue, because without it the log would grow without limit.
                errors.log(error)
                self._ending.wait(_CHECKPOINT_RETRY_SECONDS)
        close_database()

    def close(self) -> None:
        """Ask the thread to end, and wait for it."""
        self._ending.set()
        self._due.set()
        self._thread.join()


class _Job:
    __slots__ = ("after", "alone", "function", "future", "is_essential", "lines", "may_forbid", "value")

    def __init__(
        self, function: Callable[[], Any], alone: bool = False, is_essential: bool = False, may_forbid: bool = True
    ) -> None:
        self.function, self.alone, self.is_essential, self.may_forbid = function, alone, is_essential, may_forbid
        self.future: Future[Any] = Future()
        self.after: list[Callable[[], None]] = []
        self.lines: list[bytes] = []
        self.value: Any = None


class Writer:
    """The writer thread; `before_commit` gets the journal lines of each batch just before its commit.

    `before_write` is called before each write that may forbid a message, in the same savepoint: it brings the ledger up
    to date with what the sender has logged. `permission_revision` grows before each commit that contains such a write,
    for example an opt-out or a pause. A sender that read it before it claimed a message checks the message again if it
    has grown since.
    """

    def __init__(
        self,
        before_commit: Callable[[list[bytes]], None] = lambda lines: None,
        before_write: Callable[[], None] = lambda: None,
    ) -> None:
        self.permission_revision = 0
        self._before_commit, self._before_write = before_commit, before_write
        self._queue: SimpleQueue[_Job | None] = SimpleQueue()
        self._ended = False
        self._watched: Any = None
        self._checkpointer = Checkpointer(lambda function: self.submit(function, alone=True).result())
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)
        self._thread.start()

    def submit(
        self, function: Callable[[], T], alone: bool = False, is_essential: bool = False, may_forbid: bool = True
    ) -> "Future[T]":
        """Queue a write and return a future, which gets the value of the write once its changes are on disk.

        With `alone` the function runs outside of a transaction. With `is_essential` the write runs even if the disk is
        full. Without `may_forbid`, `permission_revision` stays as it is and `before_write` is not called: use this for
        a write that can forbid no claimed message and reads nothing that the sender logs. The future gets a
        StorageError if the storage fails, or else the exception of the write.
        """
        job = _Job(function, alone, is_essential, may_forbid)
        self._queue.put(job)
        if self._ended:
            self._refuse_late()  # The thread may have ended before the write was queued.
        return job.future

    def close(self) -> None:
        """Run the writes that are queued so far, end the thread and its checkpointer, and wait for both."""
        self._queue.put(None)
        self._thread.join()
        # Now every function that the checkpointer queued has run or failed, so the checkpointer can end.
        self._checkpointer.close()

    def _run(self) -> None:
        with limited_process.forbid_waiting():
            self._run_jobs()

    def _run_jobs(self) -> None:
        try:
            job = self._queue.get()
            while job is not None:
                following = None
                try:
                    if job.alone:
                        self._run_alone(job)
                    else:
                        following = self._run_batch(job)
                except Exception:
                    # The thread must continue, or all later writes would wait forever.
                    log.exception("storage: a batch of writes failed")
                job = following or self._queue.get()
        finally:
            self._ended = True
            self._refuse_late()
            close_database()

    def _refuse_late(self) -> None:
        """Fail all writes in the queue with StorageError, because the thread that would run them has ended."""
        while True:
            try:
                job = self._queue.get_nowait()
            except Empty:
                return
            if job is not None and job.future.set_running_or_notify_cancel():
                job.future.set_exception(StorageError("the service is shutting down"))

    def _open_connection(self) -> Any:
        """Return the connection of the writer thread; for a new connection set the cache size and watch the log."""
        handle = connection()
        if handle is not self._watched:
            install_triggers(handle)
            handle.execute(f"PRAGMA cache_size = -{_WRITER_CACHE_KB}").fetchall()
            self._checkpointer.watch(handle)
            self._watched = handle
        return handle

    def _run_alone(self, job: _Job) -> None:
        if not job.future.set_running_or_notify_cancel():
            return
        try:
            self._open_connection()
            job.future.set_result(job.function())
        except BaseException as error:
            job.future.set_exception(to_storage_error(error) or error)

    def _run_batch(self, job: _Job | None) -> _Job | None:
        """Run a job and the jobs queued behind it in one transaction, up to `_MAX_WRITES` or `_MAX_SECONDS`.

        Returns the job that ended the batch because it must run alone, or None.
        """
        finished: list[_Job] = []
        stop, following = False, None
        try:
            handle = self._open_connection()
            handle.execute("BEGIN IMMEDIATE")
        except Exception as error:
            disk_guard.note_failure(error)
            if to_storage_error(error) is None:
                self._forget_connection()  # The storage did not fail, so the connection is broken.
            self._refuse_all(job, StorageError(f"the database cannot be written: {error}"))
            return None
        until = time.monotonic() + _MAX_SECONDS
        try:
            while job is not None:
                self._run_write(handle, job, finished)
                if len(finished) >= _MAX_WRITES or time.monotonic() > until or self._queue.empty():
                    break
                job = self._queue.get()
                stop = job is None
                if job is not None and job.alone:
                    following = job
                    break
            self._commit(handle, finished)
        except Exception as error:
            self._give_up(finished if job is None or job is following else [*finished, job], error)
        if stop:
            self._queue.put(None)
        return following

    def _give_up(self, batch: list[_Job], error: Exception) -> None:
        """Fail the unfinished jobs of a batch with StorageError, and roll back by closing the connection."""
        log.error("storage: a batch of writes failed", exc_info=error)
        disk_guard.note_failure(error)
        for job in batch:
            if not job.future.done():
                job.future.set_exception(StorageError(f"the database cannot be written: {error}"))
        self._forget_connection()

    def _forget_connection(self) -> None:
        """Close the writer's connection, which rolls back its transaction; the next batch opens a new connection."""
        self._watched = None
        try:
            close_database()
        except Exception:
            log.exception("storage: closing the connection of the writer failed")

    def _refuse_all(self, job: _Job | None, error: StorageError) -> None:
        """Fail a job and all queued jobs with an error; otherwise each would wait for the busy timeout and fail too."""
        while True:
            if job is None:
                self._queue.put(None)
                return
            if job.future.set_running_or_notify_cancel():
                job.future.set_exception(error)
            if self._queue.empty():
                return
            job = self._queue.get()

    def _run_write(self, handle: Any, job: _Job, finished: list[_Job]) -> None:
        # A write whose future was cancelled is not run; from here on it cannot be cancelled.
        if not job.future.set_running_or_notify_cancel():
            return
        if not handle.in_transaction or (disk_guard.is_disk_full() and not job.is_essential):
            # If an error has ended the transaction of this batch, a savepoint would begin and commit a new one.
            job.future.set_exception(StorageError(disk_guard.write_blocker() or "the database cannot be written"))
            return
        write_state.is_writing, write_state.callbacks, write_state.journal_lines = True, job.after, job.lines
        try:
            handle.execute("SAVEPOINT write")
            if job.may_forbid:
                self._before_write()
            job.value = job.function()
            handle.execute("RELEASE write")
        except BaseException as error:
            try:
                self._roll_back(handle)
            finally:
                disk_guard.note_failure(error)
                job.future.set_exception(to_storage_error(error) or error)
        else:
            finished.append(job)
        finally:
            write_state.is_writing, write_state.callbacks, write_state.journal_lines = False, None, None

    @staticmethod
    def _roll_back(handle: Any) -> None:
        """Roll back the current write, or the whole transaction if that fails."""
        try:
            if handle.in_transaction:
                handle.execute("ROLLBACK TO write")
                handle.execute("RELEASE write")
        except apsw.Error:
            if handle.in_transaction:
                handle.execute("ROLLBACK")

    def _commit(self, handle: Any, finished: list[_Job]) -> None:
        try:
            if not handle.in_transaction:
                raise apsw.Error("the transaction was ended by an error")
            disk_guard.require_files_in_place()
            self._before_commit([line for job in finished for line in job.lines])
            if any(job.may_forbid for job in finished):
                # This comes before the commit, because a caller that learns of the commit must see the new number.
                self.permission_revision += 1
            handle.execute("COMMIT")
        except (apsw.Error, OSError) as error:
            disk_guard.note_failure(error)
            for job in finished:
                job.future.set_exception(
                    StorageError(f"the database cannot be written: {getattr(error, 'strerror', None) or error}")
                )
            if handle.in_transaction:
                handle.execute("ROLLBACK")
            return
        if finished:
            disk_guard.note_success()
        for job in finished:
            job.future.set_result(job.value)
            for function in job.after:
                try:
                    function()
                except Exception:
                    log.exception("storage: a function after a commit failed; the pulse will find the rows")
