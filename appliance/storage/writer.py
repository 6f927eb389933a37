"""The one thread that writes: what waits together shares a transaction, and each verb fails alone.

There is no timer: what is queued when the thread comes round is the batch.
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

from appliance.storage import disk_guard
from appliance.storage.disk_guard import StorageError, storage_error
from appliance.storage.open import checkpoint, close_database, connection

# Brings the write-ahead log home in small portions, so that it stays short and is written over again and again.
#
# A log that grows costs several times as much to sync as one that is written over: the file system has to note its
# size. It begins anew only when all of it is home and nobody writes. So most of it is brought home beside the
# writer, and what was written meanwhile, which is little, on the writer's own thread.

log = logging.getLogger("campanero.writer")
# Pages in the log; 8 MB
_MAX_PAGES = 2_000
_AGAIN_SECONDS = 1.0


class LogKeeper:
    """Watches the log of one writer; `between` runs a function on the writer's thread, outside of transactions."""

    def __init__(self, between: Callable[[Callable[[], None]], None]) -> None:
        self._between = between
        self._due, self._ending = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="log keeper", daemon=True)
        self._thread.start()

    def watch(self, writing_connection: Any) -> None:
        """Be told of every commit; SQLite's own checkpoint within some of them is off from here on."""
        writing_connection.set_wal_hook(self._written)

    def _written(self, connection: Any, name: str, pages: int) -> int:
        if pages >= _MAX_PAGES:
            self._due.set()
        return 0

    def _run(self) -> None:
        while not self._ending.is_set():
            self._due.wait()
            self._due.clear()
            if self._ending.is_set():
                break
            try:
                checkpoint()
                self._between(checkpoint)
            except (apsw.Error, peewee.PeeweeException, StorageError) as error:
                # Nothing is lost by a long log; where the disk is in trouble the writer says so
                log.debug("the log stays as it is: %s", error)
                self._ending.wait(_AGAIN_SECONDS)
            except Exception:
                # Without this thread the log would grow for ever
                log.exception("the log stays as it is")
                self._ending.wait(_AGAIN_SECONDS)
        close_database()

    def close(self) -> None:
        """End the thread."""
        self._ending.set()
        self._due.set()
        self._thread.join()


T = TypeVar("T")


# A batch stops growing after this many verbs or seconds, so that nobody waits long for a neighbour.
_MAX_VERBS = 200
_MAX_SECONDS = 0.02
# Kilobytes: what a large transaction changes is written once, at its end
_CACHE = 4_000


class State(threading.local):
    """What this thread is doing: inside a writing verb or not, and what follows its commit."""

    inside = False
    after: list[Callable[[], None]] | None = None
    lines: list[bytes] | None = None  # of the journal, written before that commit
    pretends = False  # it writes into shadows (`shadow`), on this very thread


class _Job:
    __slots__ = ("after", "alone", "function", "future", "lines", "records", "value")

    def __init__(self, function: Callable[[], Any], alone: bool = False, records: bool = False) -> None:
        self.function, self.alone, self.records = function, alone, records
        self.future: Future[Any] = Future()
        self.after: list[Callable[[], None]] = []
        self.lines: list[bytes] = []
        self.value: Any = None


state = State()


class Writer:
    """The one thread of the process that writes."""

    def __init__(self, before_commit: Callable[[list[bytes]], None] = lambda lines: None) -> None:
        self._before_commit = before_commit
        self._queue: SimpleQueue[_Job | None] = SimpleQueue()
        self._ended = False
        self._watched: Any = None
        self._keeper = LogKeeper(lambda function: self.submit(function, alone=True).result())
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)
        self._thread.start()

    def submit(self, function: Callable[[], T], alone: bool = False, records: bool = False) -> "Future[T]":
        """Queue a verb; the future holds its value once it is on disk.

        One that is `alone` gets no transaction; one that `records` is tried on a full disk too.
        """
        job = _Job(function, alone, records)
        self._queue.put(job)
        if self._ended:
            self._refuse_late()  # the thread may have looked for the last time before this one came
        return job.future

    def close(self) -> None:
        """Finish what is queued and end the thread."""
        self._queue.put(None)
        self._thread.join()
        # Not before the thread: what the keeper waits for there is done or refused by now, so nobody waits for it twice
        self._keeper.close()

    def _run(self) -> None:
        try:
            job = self._queue.get()
            while job is not None:
                following = None
                try:
                    if job.alone:
                        self._alone(job)
                    else:
                        following = self._batch(job)
                except Exception:
                    # Whatever it was, the next who waits must find somebody here
                    log.exception("a batch of writes broke")
                job = following or self._queue.get()
        finally:
            self._ended = True
            self._refuse_late()
            close_database()

    def _refuse_late(self) -> None:
        """Fail what was queued behind the end: nobody comes for it any more."""
        while True:
            try:
                job = self._queue.get_nowait()
            except Empty:
                return
            if job is not None and job.future.set_running_or_notify_cancel():
                job.future.set_exception(StorageError("the service is shutting down"))

    def _connected(self) -> Any:
        """Return this thread's connection, opened if need be, with the keeper of its log told of it."""
        here = connection()
        if here is not self._watched:
            here.execute(f"PRAGMA cache_size = -{_CACHE}").fetchall()
            self._keeper.watch(here)
            self._watched = here
        return here

    def _alone(self, job: _Job) -> None:
        if not job.future.set_running_or_notify_cancel():
            return
        try:
            self._connected()
            job.future.set_result(job.function())
        except BaseException as error:
            job.future.set_exception(storage_error(error) or error)

    def _batch(self, job: _Job | None) -> _Job | None:
        """Run what is queued in one transaction; returns the job behind it that must be alone, if one is."""
        done: list[_Job] = []
        stop, following = False, None
        try:
            here = self._connected()
            here.execute("BEGIN IMMEDIATE")
        except Exception as error:
            disk_guard.failed(error)
            if storage_error(error) is None:
                self._forget_connection()  # the fault is in the connection itself, and would stay there
            self._refuse_all(job, StorageError(f"the database cannot be written: {error}"))
            return None
        until = time.monotonic() + _MAX_SECONDS
        try:
            while job is not None:
                self._verb(here, job, done)
                if len(done) >= _MAX_VERBS or time.monotonic() > until or self._queue.empty():
                    break
                job = self._queue.get()
                stop = job is None
                if job is not None and job.alone:
                    following = job
                    break
            self._commit(here, done)
        except Exception as error:
            self._give_up(done if job is None or job is following else [*done, job], error)
        if stop:
            self._queue.put(None)
        return following

    def _give_up(self, batch: list[_Job], error: Exception) -> None:
        """Return whoever has no answer yet of a batch that broke; what is open of it is undone with its connection."""
        log.error("a batch of writes broke", exc_info=error)
        disk_guard.failed(error)
        for job in batch:
            if not job.future.done():
                job.future.set_exception(StorageError(f"the database cannot be written: {error}"))
        self._forget_connection()

    def _forget_connection(self) -> None:
        """Close this thread's connection, which undoes what it holds; the next batch opens another."""
        self._watched = None
        try:
            close_database()
        except Exception:
            log.exception("the connection of the writer could not be closed")

    def _refuse_all(self, job: _Job | None, error: StorageError) -> None:
        """Fail a verb and all that wait behind it: each would only wait as long again for the same answer."""
        while True:
            if job is None:
                self._queue.put(None)
                return
            if job.future.set_running_or_notify_cancel():
                job.future.set_exception(error)
            if self._queue.empty():
                return
            job = self._queue.get()

    def _verb(self, here: Any, job: _Job, done: list[_Job]) -> None:
        # Who stopped waiting before it began is not run at all; once begun it can no longer be cancelled
        if not job.future.set_running_or_notify_cancel():
            return
        if not here.in_transaction or (disk_guard.is_full() and not job.records):
            # An error ended the transaction of this batch: a savepoint now would begin, and commit, one of its own
            job.future.set_exception(StorageError(disk_guard.unwritable() or "the database cannot be written"))
            return
        state.inside, state.after, state.lines = True, job.after, job.lines
        try:
            here.execute("SAVEPOINT verb")
            job.value = job.function()
            here.execute("RELEASE verb")
        except BaseException as error:
            try:
                self._undo(here)
            finally:
                disk_guard.failed(error)
                job.future.set_exception(storage_error(error) or error)
        else:
            done.append(job)
        finally:
            state.inside, state.after, state.lines = False, None, None

    @staticmethod
    def _undo(here: Any) -> None:
        """Take back one verb; where that cannot be done, the whole transaction."""
        try:
            if here.in_transaction:
                here.execute("ROLLBACK TO verb")
                here.execute("RELEASE verb")
        except apsw.Error:
            if here.in_transaction:
                here.execute("ROLLBACK")

    def _commit(self, here: Any, done: list[_Job]) -> None:
        try:
            if not here.in_transaction:
                raise apsw.Error("the transaction was ended by an error")
            disk_guard.must_be_in_place()
            self._before_commit([line for job in done for line in job.lines])
            here.execute("COMMIT")
        except (apsw.Error, OSError) as error:
            disk_guard.failed(error)
            for job in done:
                job.future.set_exception(
                    StorageError(f"the database cannot be written: {getattr(error, 'strerror', None) or error}")
                )
            if here.in_transaction:
                here.execute("ROLLBACK")
            return
        if done:
            disk_guard.wrote()
        for job in done:
            job.future.set_result(job.value)
            for function in job.after:
                try:
                    function()
                except Exception:
                    log.exception("what follows a commit failed; the pulse will find the rows")
