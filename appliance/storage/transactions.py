"""Runs reads on a small pool of threads and all writes on one thread.

A function that writes (a verb) runs on the writer thread inside a SAVEPOINT. Queued verbs share one COMMIT, so that
`synchronous=FULL` costs one fsync for all of them; a verb that fails is rolled back alone; if the COMMIT fails, all of
them fail and nothing was written. There is no timer: a batch is all verbs that are queued when the thread is free.
Rendering, parsing and network access never happen in a verb.
"""

import asyncio
import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import apsw
import peewee

from appliance.storage import disk_guard, journal
from appliance.storage.database import checkpoint, close_database, connection, database, write_state
from appliance.storage.disk_guard import StorageError, to_storage_error

T = TypeVar("T")
log = logging.getLogger("campanero.writer")
_MAX_WAL_PAGES = 2_000  # 8 MB
_CHECKPOINT_RETRY_SECONDS = 1.0
# A batch stops growing after this many verbs or seconds, so that no caller waits long for others.
_MAX_VERBS = 200
_MAX_SECONDS = 0.02
_WRITER_CACHE_KB = 4_000  # so that a large transaction writes each changed page once, at its end


class Checkpointer:
    """A thread that copies the write-ahead log into the database in small portions.

    A growing log costs several times as much to sync as one that is overwritten, because the file system has to record
    its size. The log is overwritten from the start only after all of it was copied while nothing is written. So most of
    it is copied on this thread beside the writer, and the rest on the writer's own thread: `between` runs a function
    there, outside of transactions.
    """

    def __init__(self, between: Callable[[Callable[[], None]], None]) -> None:
        self._between = between
        self._due, self._ending = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="checkpointer", daemon=True)
        self._thread.start()

    def watch(self, writing_connection: Any) -> None:
        """Watch the commits of a connection; this turns SQLite's automatic checkpoint off."""
        writing_connection.set_wal_hook(self._written)

    def _written(self, connection: Any, name: str, pages: int) -> int:
        if pages >= _MAX_WAL_PAGES:
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
                # A long log loses nothing, and the writer reports trouble of the disk.
                log.debug("storage: checkpoint failed: %s", error)
                self._ending.wait(_CHECKPOINT_RETRY_SECONDS)
            except Exception:
                # Without this thread the log would grow without end.
                log.exception("storage: checkpoint failed")
                self._ending.wait(_CHECKPOINT_RETRY_SECONDS)
        close_database()

    def close(self) -> None:
        """End the thread."""
        self._ending.set()
        self._due.set()
        self._thread.join()


class _Job:
    __slots__ = ("after", "alone", "function", "future", "is_essential", "lines", "value")

    def __init__(self, function: Callable[[], Any], alone: bool = False, is_essential: bool = False) -> None:
        self.function, self.alone, self.is_essential = function, alone, is_essential
        self.future: Future[Any] = Future()
        self.after: list[Callable[[], None]] = []
        self.lines: list[bytes] = []
        self.value: Any = None


class Writer:
    """The one thread of the process that writes."""

    def __init__(self, before_commit: Callable[[list[bytes]], None] = lambda lines: None) -> None:
        self._before_commit = before_commit
        self._queue: SimpleQueue[_Job | None] = SimpleQueue()
        self._ended = False
        self._watched: Any = None
        self._checkpointer = Checkpointer(lambda function: self.submit(function, alone=True).result())
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)
        self._thread.start()

    def submit(self, function: Callable[[], T], alone: bool = False, is_essential: bool = False) -> "Future[T]":
        """Queue a verb and return a future of its value, which is set once it is on disk.

        A verb that runs `alone` gets no transaction; an `is_essential` one is tried on a full disk too.
        """
        job = _Job(function, alone, is_essential)
        self._queue.put(job)
        if self._ended:
            self._refuse_late()  # the thread may have ended before the verb was queued
        return job.future

    def close(self) -> None:
        """Run the queued verbs and end the thread."""
        self._queue.put(None)
        self._thread.join()
        # After the thread has ended, every function that the checkpointer waits for there has run or was refused.
        self._checkpointer.close()

    def _run(self) -> None:
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
                    # The thread must go on, or all later writes would wait forever.
                    log.exception("storage: a batch of writes failed")
                job = following or self._queue.get()
        finally:
            self._ended = True
            self._refuse_late()
            close_database()

    def _refuse_late(self) -> None:
        """Fail the verbs that were queued after the end, because nothing would run them."""
        while True:
            try:
                job = self._queue.get_nowait()
            except Empty:
                return
            if job is not None and job.future.set_running_or_notify_cancel():
                job.future.set_exception(StorageError("the service is shutting down"))

    def _open_connection(self) -> Any:
        """Return this thread's connection, opened if needed and watched by the checkpointer."""
        handle = connection()
        if handle is not self._watched:
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
        """Run the queued jobs in one transaction; return the next job if it must run alone."""
        finished: list[_Job] = []
        stop, following = False, None
        try:
            handle = self._open_connection()
            handle.execute("BEGIN IMMEDIATE")
        except Exception as error:
            disk_guard.note_failure(error)
            if to_storage_error(error) is None:
                self._forget_connection()  # the connection itself is broken
            self._refuse_all(job, StorageError(f"the database cannot be written: {error}"))
            return None
        until = time.monotonic() + _MAX_SECONDS
        try:
            while job is not None:
                self._run_verb(handle, job, finished)
                if len(finished) >= _MAX_VERBS or time.monotonic() > until or self._queue.empty():
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
        """Fail the jobs of a broken batch that have no result yet, and roll back by closing the connection."""
        log.error("storage: a batch of writes failed", exc_info=error)
        disk_guard.note_failure(error)
        for job in batch:
            if not job.future.done():
                job.future.set_exception(StorageError(f"the database cannot be written: {error}"))
        self._forget_connection()

    def _forget_connection(self) -> None:
        """Close this thread's connection, which rolls back its transaction; the next batch opens another."""
        self._watched = None
        try:
            close_database()
        except Exception:
            log.exception("storage: closing the connection of the writer failed")

    def _refuse_all(self, job: _Job | None, error: StorageError) -> None:
        """Fail a verb and all queued ones, which would only wait as long for the same error."""
        while True:
            if job is None:
                self._queue.put(None)
                return
            if job.future.set_running_or_notify_cancel():
                job.future.set_exception(error)
            if self._queue.empty():
                return
            job = self._queue.get()

    def _run_verb(self, handle: Any, job: _Job, finished: list[_Job]) -> None:
        # A verb that was cancelled before it began is not run; once begun it cannot be cancelled.
        if not job.future.set_running_or_notify_cancel():
            return
        if not handle.in_transaction or (disk_guard.is_disk_full() and not job.is_essential):
            # An error ended the transaction of this batch; a savepoint would now begin and commit one of its own.
            job.future.set_exception(StorageError(disk_guard.write_blocker() or "the database cannot be written"))
            return
        write_state.is_writing, write_state.callbacks, write_state.journal_lines = True, job.after, job.lines
        try:
            handle.execute("SAVEPOINT verb")
            job.value = job.function()
            handle.execute("RELEASE verb")
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
        """Roll back one verb, or the whole transaction where that is impossible."""
        try:
            if handle.in_transaction:
                handle.execute("ROLLBACK TO verb")
                handle.execute("RELEASE verb")
        except apsw.Error:
            if handle.in_transaction:
                handle.execute("ROLLBACK")

    def _commit(self, handle: Any, finished: list[_Job]) -> None:
        try:
            if not handle.in_transaction:
                raise apsw.Error("the transaction was ended by an error")
            disk_guard.require_files_in_place()
            self._before_commit([line for job in finished for line in job.lines])
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


_writer: Writer | None = None
_readers: ThreadPoolExecutor | None = None
_renderers: ThreadPoolExecutor | None = None
_render_locks: weakref.WeakValueDictionary[int, asyncio.Lock] = weakref.WeakValueDictionary()
RENDER_THREADS = 2
_has_ended = False  # the writer was stopped, and no other thread may write


def start(readers: int = 2) -> None:
    """Start the writer thread and the pools of readers and renderers of this process."""
    global _writer, _readers, _renderers, _has_ended
    if _writer is None:
        _writer, _has_ended = Writer(journal.flush), False
        _readers = ThreadPoolExecutor(readers, thread_name_prefix="reader")
        _renderers = ThreadPoolExecutor(RENDER_THREADS, thread_name_prefix="renderer")


def stop() -> None:
    """Finish queued writes and end all threads; this process writes no more."""
    global _writer, _readers, _renderers, _has_ended
    writer, pools = _writer, (_readers, _renderers)
    _has_ended = _has_ended or writer is not None
    _writer = _readers = _renderers = None
    if writer is not None:
        writer.close()
    for pool in pools:
        if pool is not None:
            pool.shutdown()


def is_stopped() -> bool:
    """Return whether the writer of this process has ended, after which nothing is stored."""
    return _writer is None


def submit(function: Callable[..., T], *arguments: Any, **named: Any) -> "Future[T]":
    """Queue a writing verb from any thread and return its future."""
    return _current_writer().submit(lambda: function(*arguments, **named))


def submit_essential(function: Callable[..., T], *arguments: Any) -> "Future[T]":
    """Queue a verb that writes what has already happened; on a full disk it uses the reserve."""
    return _current_writer().submit(lambda: function(*arguments), is_essential=True)


def _current_writer() -> Writer:
    if write_state.is_sandboxed:
        raise RuntimeError("a simulation must not queue writes")
    if _writer is None:
        raise StorageError("the service is shutting down")
    return _writer


def write(function: Callable[..., T], *arguments: Any, **named: Any) -> T:
    """Run a writing verb and wait until it is on disk; for threads and commands, never on the event loop.

    Without a writer thread (on the command line) it runs on this thread; after the writer has ended it raises
    StorageError. In a sandbox it also runs here, and functions registered with `after_commit` are dropped.
    """
    if write_state.is_sandboxed:
        with _sandboxed_transaction():
            return function(*arguments, **named)
    if _writer is not None or _has_ended:
        return submit(function, *arguments, **named).result()
    with transaction() as after:
        value = function(*arguments, **named)
    for follow in after:
        follow()
    return value


@contextmanager
def transaction() -> Iterator[list[Callable[[], None]]]:
    """Hold the write lock on this thread; only for processes without a writer thread (the command line)."""
    handle = connection()
    callbacks: list[Callable[[], None]] = []
    lines: list[bytes] = []
    handle.execute("BEGIN IMMEDIATE")
    write_state.is_writing, write_state.callbacks, write_state.journal_lines = True, callbacks, lines
    try:
        yield callbacks
        journal.flush(lines)
        handle.execute("COMMIT")
    except BaseException:
        if handle.in_transaction:
            handle.execute("ROLLBACK")
        raise
    finally:
        write_state.is_writing, write_state.callbacks, write_state.journal_lines = False, None, None


@contextmanager
def _sandboxed_transaction() -> Iterator[None]:
    """Run a writing verb in a sandbox, where a failing verb is rolled back too."""
    if write_state.is_writing:
        raise RuntimeError("a writing verb must not wait for another")
    handle = connection()
    handle.execute("SAVEPOINT verb")
    write_state.is_writing, write_state.callbacks = True, []
    try:
        yield
    except BaseException:
        handle.execute("ROLLBACK TO verb")
        raise
    finally:
        write_state.is_writing, write_state.callbacks = False, None
        handle.execute("RELEASE verb")


def require_write_transaction() -> None:
    """Raise RuntimeError unless this thread runs a writing verb; called by verbs."""
    if not write_state.is_writing:
        raise RuntimeError("a writing verb runs through commit() or write()")


def is_in_write_transaction() -> bool:
    """Return whether this thread runs a writing verb, where nothing may take long."""
    return write_state.is_writing


@contextmanager
def snapshot() -> Iterator[None]:
    """Let all reads inside the block see one state of the database."""
    handle = connection()
    handle.execute("SAVEPOINT moment")
    try:
        yield
    finally:
        handle.execute("RELEASE moment")


def after_commit(function: Callable[[], None]) -> None:
    """Call a function once the running verb is on disk; it is dropped if the verb fails."""
    require_write_transaction()
    assert write_state.callbacks is not None
    write_state.callbacks.append(function)


def run_outside_transaction(function: Callable[..., T], *arguments: Any) -> T:
    """Run a function on the writing connection outside of a transaction, as ATTACH requires, and wait for it."""
    if _writer is None and not _has_ended and not write_state.is_sandboxed:
        return function(*arguments)
    return _current_writer().submit(lambda: function(*arguments), alone=True).result()


async def fetch(function: Callable[..., T], *arguments: Any, **named: Any) -> T:
    """Run a reading function on the reader pool."""
    if _readers is None:
        raise StorageError("the service is shutting down")
    return await asyncio.get_running_loop().run_in_executor(_readers, lambda: _run_reading(function, arguments, named))


async def render(function: Callable[..., T], account_id: int, *arguments: Any, **named: Any) -> T:
    """Run a function that parses or renders templates and takes the account id first, as `render_for` does."""
    return await render_for(account_id, function, account_id, *arguments, **named)


async def render_for(account_id: int, function: Callable[..., T], *arguments: Any, **named: Any) -> T:
    """Run a function that parses or renders templates of an account, beside the reader pool.

    It may take seconds for a body of a megabyte. One function at a time runs for each account, so that one account
    delays neither the reads nor the rendering of others.
    """
    if _renderers is None:
        raise StorageError("the service is shutting down")
    lock = _render_locks.setdefault(account_id, asyncio.Lock())
    async with lock:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(_renderers, lambda: _run_reading(function, arguments, named))


def fetch_inline(function: Callable[..., T], *arguments: Any) -> T:
    """Run a reading function on the event loop itself: only lookups by key of a handful of rows.

    It blocks the loop, but handing over to the pool and back would take longer.
    """
    if _readers is None:
        raise StorageError("the service is shutting down")
    return _run_reading(function, arguments, {})


def _run_reading(function: Callable[..., T], arguments: tuple[Any, ...], named: dict[str, Any]) -> T:
    try:
        return function(*arguments, **named)
    except Exception as error:
        _close_if_reading()
        if isinstance(error, apsw.Error | peewee.PeeweeException):
            raise to_storage_error(error) or error from error
        raise


def _close_if_reading() -> None:
    """Close this thread's connection if an exception interrupted a statement in the middle of its rows.

    The statement would keep its snapshot as long as the exception is referenced, and this thread would read outdated
    rows until then.
    """
    if not database.is_closed() and connection().txn_state() != apsw.SQLITE_TXN_NONE:
        close_database()


async def commit(function: Callable[..., T], *arguments: Any, **named: Any) -> T:
    """Run a writing verb on the writer thread and return its value when it is on disk."""
    return await asyncio.wrap_future(submit(function, *arguments, **named))
