"""Who may touch the database, and when: reads on a small pool, all writing on one thread.

A verb that writes runs on the writer thread inside a SAVEPOINT. Verbs that wait together share one COMMIT, so that
`synchronous=FULL` costs one fsync for all of them; a verb that fails rolls back alone; a COMMIT that fails fails all
that waited, and none of them has happened. There is no timer: what is queued when the thread comes round is the batch.
Rendering, parsing and network never happen in a verb.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any, TypeVar

import apsw
import peewee

from appliance.db import storage
from appliance.db.keeper import LogKeeper
from appliance.db.open import close_database, connection
from appliance.db.storage import StorageError, storage_error

T = TypeVar("T")
log = logging.getLogger("campanero.writer")

# A batch stops growing after this many verbs or seconds, so that nobody waits long for a neighbour.
_MOST_VERBS = 200
_MOST_SECONDS = 0.02


class _State(threading.local):
    """What this thread is doing: inside a writing verb or not, and what follows its commit."""

    inside = False
    after: list[Callable[[], None]] | None = None


class _Job:
    __slots__ = ("after", "alone", "function", "future", "records", "value")

    def __init__(self, function: Callable[[], Any], alone: bool = False, records: bool = False) -> None:
        self.function, self.alone, self.records = function, alone, records
        self.future: Future[Any] = Future()
        self.after: list[Callable[[], None]] = []
        self.value: Any = None


_state = _State()
_writer: "Writer | None" = None
_readers: ThreadPoolExecutor | None = None


class Writer:
    """The one thread of the process that writes."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[_Job | None] = SimpleQueue()
        self._keeper = LogKeeper(lambda function: self.submit(function, alone=True).result())
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)
        self._thread.start()

    def submit(self, function: Callable[[], T], alone: bool = False, records: bool = False) -> "Future[T]":
        """Queue a verb; the future holds its value once it is on disk.

        One that is `alone` gets no transaction; one that `records` is tried on a full disk too.
        """
        job = _Job(function, alone, records)
        self._queue.put(job)
        return job.future

    def close(self) -> None:
        """Finish what is queued and end the thread."""
        self._keeper.close()
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        try:
            self._keeper.watch(connection())
            job = self._queue.get()
            while job is not None:
                following = None
                try:
                    following = self._alone(job) if job.alone else self._batch(job)
                except Exception:
                    # Whatever it was, the next who waits must find somebody here
                    log.exception("a batch of writes broke")
                job = following or self._queue.get()
        finally:
            close_database()

    @staticmethod
    def _alone(job: _Job) -> None:
        if not job.future.set_running_or_notify_cancel():
            return
        try:
            job.future.set_result(job.function())
        except BaseException as error:
            job.future.set_exception(storage_error(error) or error)

    def _batch(self, job: _Job | None) -> _Job | None:
        """Run what is queued in one transaction; answers the job behind it that must be alone, if one is."""
        done: list[_Job] = []
        stop, following = False, None
        try:
            here = connection()
            here.execute("BEGIN IMMEDIATE")
        except (apsw.Error, peewee.PeeweeException) as error:
            storage.failed(error)
            self._refuse_all(job, StorageError(f"the database cannot be written: {error}"))
            return None
        until = time.monotonic() + _MOST_SECONDS
        while job is not None:
            self._verb(here, job, done)
            if len(done) >= _MOST_VERBS or time.monotonic() > until or self._queue.empty():
                break
            job = self._queue.get()
            stop = job is None
            if job is not None and job.alone:
                following = job
                break
        self._commit(here, done)
        if stop:
            self._queue.put(None)
        return following

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
        if not here.in_transaction or (storage.is_full() and not job.records):
            # An error ended the transaction of this batch: a savepoint now would begin, and commit, one of its own
            job.future.set_exception(StorageError(storage.unwritable() or "the database cannot be written"))
            return
        _state.inside, _state.after = True, job.after
        try:
            here.execute("SAVEPOINT verb")
            job.value = job.function()
            here.execute("RELEASE verb")
        except BaseException as error:
            self._undo(here)
            storage.failed(error)
            job.future.set_exception(storage_error(error) or error)
        else:
            done.append(job)
        finally:
            _state.inside, _state.after = False, None

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
            here.execute("COMMIT")
        except apsw.Error as error:
            storage.failed(error)
            for job in done:
                job.future.set_exception(StorageError(f"the database cannot be written: {error}"))
            if here.in_transaction:
                here.execute("ROLLBACK")
            return
        if done:
            storage.wrote()
        for job in done:
            job.future.set_result(job.value)
            for function in job.after:
                try:
                    function()
                except Exception:
                    log.exception("what follows a commit failed; the pulse will find the rows")


def start(readers: int = 2) -> None:
    """Start the writer thread and the reader pool of this process."""
    global _writer, _readers
    if _writer is None:
        _writer = Writer()
        _readers = ThreadPoolExecutor(readers, thread_name_prefix="reader")


def stop() -> None:
    """Finish queued writes and end both."""
    global _writer, _readers
    writer, readers = _writer, _readers
    _writer = _readers = None
    if writer is not None:
        writer.close()
    if readers is not None:
        readers.shutdown()


def is_stopped() -> bool:
    """Say whether the writer of this process has ended; what is offered then is never stored."""
    return _writer is None


def submit(function: Callable[..., T], *arguments: Any, **named: Any) -> "Future[T]":
    """Queue a writing verb from any thread and answer its future."""
    if _writer is None:
        raise StorageError("the service is shutting down")
    return _writer.submit(lambda: function(*arguments, **named))


def record(function: Callable[..., T], *arguments: Any) -> "Future[T]":
    """Queue a verb that writes what has happened already: on a full disk it goes into the reserve."""
    if _writer is None:
        raise StorageError("the service is shutting down")
    return _writer.submit(lambda: function(*arguments), records=True)


def write(function: Callable[..., T], *arguments: Any, **named: Any) -> T:
    """Run a writing verb and wait until it is on disk; for threads and for the command line, never on the loop."""
    if _writer is not None:
        return submit(function, *arguments, **named).result()
    with transaction() as after:
        value = function(*arguments, **named)
    for follow in after:
        follow()
    return value


@contextmanager
def transaction() -> Iterator[list[Callable[[], None]]]:
    """Hold the write lock on this thread; only for processes without a writer thread (the command line)."""
    here = connection()
    after: list[Callable[[], None]] = []
    here.execute("BEGIN IMMEDIATE")
    _state.inside, _state.after = True, after
    try:
        yield after
        here.execute("COMMIT")
    except BaseException:
        if here.in_transaction:
            here.execute("ROLLBACK")
        raise
    finally:
        _state.inside, _state.after = False, None


def writing() -> None:
    """Raise unless this thread is inside a writing verb; called by verbs, so that none runs in the wrong place."""
    if not _state.inside:
        raise RuntimeError("a writing verb runs through commit() or write()")


def is_writing() -> bool:
    """Say whether this thread is inside a writing verb, where nothing may take long."""
    return _state.inside


@contextmanager
def snapshot() -> Iterator[None]:
    """Let all that is read inside be of one moment."""
    here = connection()
    here.execute("SAVEPOINT moment")
    try:
        yield
    finally:
        here.execute("RELEASE moment")


def after_commit(function: Callable[[], None]) -> None:
    """Call a function once the running verb is on disk; dropped if the verb fails."""
    writing()
    assert _state.after is not None
    _state.after.append(function)


def between(function: Callable[..., T], *arguments: Any) -> T:
    """Run on the writing connection what SQLite takes outside of a transaction only (ATTACH), and wait for it."""
    if _writer is None:
        return function(*arguments)
    return _writer.submit(lambda: function(*arguments), alone=True).result()


async def call(function: Callable[..., T], *arguments: Any, **named: Any) -> T:
    """Run a reading function on the reader pool."""
    if _readers is None:
        raise StorageError("the service is shutting down")
    return await asyncio.get_running_loop().run_in_executor(_readers, lambda: _read(function, arguments, named))


def _read(function: Callable[..., T], arguments: tuple[Any, ...], named: dict[str, Any]) -> T:
    try:
        return function(*arguments, **named)
    except (apsw.Error, peewee.PeeweeException) as error:
        raise storage_error(error) or error from error


async def commit(function: Callable[..., T], *arguments: Any, **named: Any) -> T:
    """Run a writing verb on the writer thread; answers when it is on disk."""
    return await asyncio.wrap_future(submit(function, *arguments, **named))
