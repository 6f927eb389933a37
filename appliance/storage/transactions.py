"""Runs reads on a small pool of threads and all writes on one thread.

A write is a function that changes the database. It runs on the writer thread inside a SAVEPOINT. Queued writes share
one COMMIT, so that `synchronous=FULL` costs one fsync for all of them. A write that fails is rolled back alone; if the
COMMIT fails, all its writes fail and nothing is written. The writer does not wait for more writes: a batch consists of
the writes that are in the queue while the batch runs. Writes do no rendering, parsing or network access.
"""

import asyncio
import logging
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import apsw
import peewee

from appliance.core import logs
from appliance.core.errors import RateLimitExceeded
from appliance.storage import disk_guard, journal
from appliance.storage.database import checkpoint, close_database, connection, database, write_state
from appliance.storage.disk_guard import StorageError, to_storage_error

T = TypeVar("T")
log = logging.getLogger("campanero.writer")
_MAX_WAL_PAGES = 2_000  # 8 MB
_CHECKPOINT_RETRY_SECONDS = 1.0
# A batch is committed after this many writes or seconds, so that no caller waits long for the writes of others.
_MAX_WRITES = 200
_MAX_SECONDS = 0.02
_WRITER_CACHE_KB = 4_000  # large enough that a large transaction writes each changed page only once, at its end


class Checkpointer:
    """A thread that copies the write-ahead log into the database each time the log has grown to `_MAX_WAL_PAGES`.

    Syncing a growing log takes several times as long as syncing a log that is overwritten, because the file system must
    record its size. SQLite overwrites the log from its start only once the whole log has been copied and no write came
    in between. So this thread copies most of the log while the writer works, and the writer thread copies the rest
    between transactions: `between` runs a function on the writer thread outside of a transaction.
    """

    def __init__(self, between: Callable[[Callable[[], None]], None]) -> None:
        self._between = between
        self._due, self._ending = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="checkpointer", daemon=True)
        self._thread.start()

    def watch(self, writing_connection: Any) -> None:
        """Wake the checkpointing thread when a commit on a connection leaves a long write-ahead log.

        This replaces SQLite's automatic checkpoints on the connection.
        """
        writing_connection.set_wal_hook(self._written)

    def _written(self, connection: Any, name: str, pages: int) -> int:
        if pages >= _MAX_WAL_PAGES:
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
    __slots__ = ("after", "alone", "function", "future", "is_essential", "lines", "value")

    def __init__(self, function: Callable[[], Any], alone: bool = False, is_essential: bool = False) -> None:
        self.function, self.alone, self.is_essential = function, alone, is_essential
        self.future: Future[Any] = Future()
        self.after: list[Callable[[], None]] = []
        self.lines: list[bytes] = []
        self.value: Any = None


class Writer:
    """The writer thread; `before_commit` gets the journal lines of each batch just before its commit."""

    def __init__(self, before_commit: Callable[[list[bytes]], None] = lambda lines: None) -> None:
        self._before_commit = before_commit
        self._queue: SimpleQueue[_Job | None] = SimpleQueue()
        self._ended = False
        self._watched: Any = None
        self._checkpointer = Checkpointer(lambda function: self.submit(function, alone=True).result())
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)
        self._thread.start()

    def submit(self, function: Callable[[], T], alone: bool = False, is_essential: bool = False) -> "Future[T]":
        """Queue a write and return a future, which gets the value of the write once its changes are on disk.

        With `alone` the function runs outside of a transaction. With `is_essential` the write runs even if the disk is
        full. The future gets a StorageError if the storage fails, or else the exception of the write.
        """
        job = _Job(function, alone, is_essential)
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
_render_queues: weakref.WeakValueDictionary[int, "_RenderQueue"] = weakref.WeakValueDictionary()
RENDER_THREADS = 2
_has_ended = False  # whether the writer was stopped; after that no other thread may write


def start(readers: int = 2) -> None:
    """Start the writer thread, `readers` reader threads and `RENDER_THREADS` renderer threads, unless they run."""
    global _writer, _readers, _renderers, _has_ended
    if _writer is None:
        _writer, _has_ended = Writer(journal.flush), False
        _readers = ThreadPoolExecutor(readers, thread_name_prefix="reader")
        _renderers = ThreadPoolExecutor(RENDER_THREADS, thread_name_prefix="renderer")


def stop() -> None:
    """Run the queued writes and end all threads; later writes raise StorageError until `start` is called again."""
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
    """Return whether this process has no writer thread, because it was stopped or never started."""
    return _writer is None


def submit(function: Callable[..., T], *arguments: Any, **named: Any) -> "Future[T]":
    """Queue a write for the writer, from any thread, and return the future of its value (see `Writer.submit`).

    Raises StorageError if there is no writer, RuntimeError in a sandbox.
    """
    return _current_writer().submit(lambda: function(*arguments, **named))


def submit_essential(function: Callable[..., T], *arguments: Any) -> "Future[T]":
    """Queue a write that records what has already happened; on a full disk it uses the space of the reserve file.

    Raises the errors of `submit`.
    """
    return _current_writer().submit(lambda: function(*arguments), is_essential=True)


def _current_writer() -> Writer:
    if write_state.is_sandboxed:
        raise RuntimeError("a simulation must not queue writes")
    if _writer is None:
        raise StorageError("the service is shutting down")
    return _writer


def write(function: Callable[..., T], *arguments: Any, **named: Any) -> T:
    """Run a write, wait until its changes are on disk, and return its value. Never call this on the event loop.

    Without a writer thread (on the command line) the write runs on this thread; after the writer was stopped the call
    raises StorageError. In a sandbox the write runs on this thread too, and functions of `after_commit` are dropped.
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
    """Run the block in a write transaction on this thread; only for processes without a writer thread.

    Yields the list of functions of `after_commit`, which the caller has to call after the block.
    """
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
    """Run the block as a write in a sandbox, rolled back if it raises. Raises RuntimeError inside another write."""
    if write_state.is_writing:
        raise RuntimeError("a write must not wait for another")
    handle = connection()
    handle.execute("SAVEPOINT write")
    write_state.is_writing, write_state.callbacks = True, []
    try:
        yield
    except BaseException:
        handle.execute("ROLLBACK TO write")
        raise
    finally:
        write_state.is_writing, write_state.callbacks = False, None
        handle.execute("RELEASE write")


def require_write_transaction() -> None:
    """Raise RuntimeError unless this thread runs a write; functions that must be part of a write call this first."""
    if not write_state.is_writing:
        raise RuntimeError("a write runs through commit() or write()")


def is_in_write_transaction() -> bool:
    """Return whether this thread runs a write, in which slow work must be avoided."""
    return write_state.is_writing


@contextmanager
def snapshot() -> Iterator[None]:
    """Let all reads of this thread in the block see one state of the database."""
    handle = connection()
    handle.execute("SAVEPOINT moment")
    try:
        yield
    finally:
        handle.execute("RELEASE moment")


def after_commit(function: Callable[[], None]) -> None:
    """Register a function to call after the commit of the current write, unless the write or the commit fails.

    Raises RuntimeError outside of a write.
    """
    require_write_transaction()
    assert write_state.callbacks is not None
    write_state.callbacks.append(function)


def run_outside_transaction(function: Callable[..., T], *arguments: Any) -> T:
    """Run a function on the writer thread outside of a transaction, as ATTACH requires, and return its value.

    Without a writer thread (on the command line) the function runs on this thread. Raises StorageError after the
    writer was stopped, RuntimeError in a sandbox.
    """
    if _writer is None and not _has_ended and not write_state.is_sandboxed:
        return function(*arguments)
    return _current_writer().submit(lambda: function(*arguments), alone=True).result()


async def fetch(function: Callable[..., T], *arguments: Any, **named: Any) -> T:
    """Run a reading function on the reader pool, with the context variables of the caller, and return its value.

    Raises StorageError if the storage fails, or after `stop`.
    """
    if _readers is None:
        raise StorageError("the service is shutting down")
    context = copy_context()
    return await asyncio.get_running_loop().run_in_executor(
        _readers, context.run, _run_reading, function, arguments, named
    )


# The order in which the functions of one account wait for the renderer pool.
_SEND, _EDIT, _PREVIEW = range(3)
MAX_WAITING_PREVIEWS = 4
_PREVIEW_RETRY_SECONDS = 2


class _RenderQueue:
    """The turns of one account on the renderer pool: one function at a time, in order of priority and arrival."""

    def __init__(self) -> None:
        self._is_taken = False
        self._waiting: tuple[deque[asyncio.Future[None]], ...] = (deque(), deque(), deque())

    async def take_turn(self, priority: int) -> None:
        """Wait for the turn; raises RateLimitExceeded if `MAX_WAITING_PREVIEWS` previews wait already."""
        if not self._is_taken:
            self._is_taken = True
            return
        waiting = self._waiting[priority]
        if priority == _PREVIEW and len(waiting) >= MAX_WAITING_PREVIEWS:
            raise RateLimitExceeded("Too many previews are waiting.", _PREVIEW_RETRY_SECONDS)
        turn = asyncio.get_running_loop().create_future()
        waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.pass_turn()  # The caller was cancelled after it got the turn.
            elif turn in waiting:
                waiting.remove(turn)
            raise

    def pass_turn(self) -> None:
        """Start the next waiting function by priority, or mark the turn as free."""
        for waiting in self._waiting:
            while waiting:
                turn = waiting.popleft()
                if not turn.done():
                    turn.set_result(None)
                    return
        self._is_taken = False


async def render(function: Callable[..., T], account_id: int, *arguments: Any, **named: Any) -> T:
    """Run a function as `render_for` does, with the account id as its first argument."""
    return await render_for(account_id, function, account_id, *arguments, **named)


async def render_for(account_id: int, function: Callable[..., T], *arguments: Any, **named: Any) -> T:
    """Run a function that parses or renders templates of an account on the renderer pool and return its value.

    Rendering a body of a megabyte can take seconds. The renderer pool is separate from the reader pool, and runs one
    function at a time for each account, so that an account delays neither reads nor the rendering of other accounts.
    Raises StorageError if the storage fails, or after `stop`.
    """
    return await _render(_EDIT, account_id, lambda: _run_reading(function, arguments, named))


async def render_send(function: Callable[..., T], account_id: int, *arguments: Any) -> T:
    """Run a function as `render` does, but before all others of the account that wait: for content to be sent."""
    return await _render(_SEND, account_id, lambda: _run_reading(function, (account_id, *arguments), {}))


async def render_preview(function: Callable[..., T], account_id: int, *arguments: Any) -> T:
    """Run a function as `render` does, but after all others of the account that wait: for a preview.

    Raises RateLimitExceeded if `MAX_WAITING_PREVIEWS` previews of the account are waiting.
    """
    return await _render(_PREVIEW, account_id, lambda: _run_reading(function, (account_id, *arguments), {}))


async def _render(priority: int, account_id: int, function: Callable[[], T]) -> T:
    queue = _render_queues.get(account_id)
    if queue is None:
        queue = _render_queues[account_id] = _RenderQueue()
    await queue.take_turn(priority)
    try:
        if _renderers is None:
            raise StorageError("the service is shutting down")
        running = asyncio.get_running_loop().run_in_executor(_renderers, copy_context().run, function)
    except BaseException:
        queue.pass_turn()
        raise
    running.add_done_callback(partial(_end_turn, queue))
    # The thread finishes its work even if the client disconnects, and only then is it the turn of the next function.
    return await asyncio.shield(running)


def _end_turn(queue: _RenderQueue, done: "asyncio.Future[Any]") -> None:
    queue.pass_turn()
    if not done.cancelled():
        done.exception()  # Marks the error as retrieved: if the client has disconnected, nothing else reads it.


def fetch_inline(function: Callable[..., T], *arguments: Any) -> T:
    """Run a reading function on the event loop and return its value; only for lookups of a few rows by key.

    The call blocks the loop, but for less time than passing it to the reader pool and back would take. Raises
    StorageError if the storage fails, or after `stop`.
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
    """Close the connection of this thread if an exception left a statement or transaction open.

    An interrupted statement keeps its snapshot as long as the exception is referenced, and until then this thread would
    read outdated rows.
    """
    if not database.is_closed() and connection().txn_state() != apsw.SQLITE_TXN_NONE:
        close_database()


async def commit(function: Callable[..., T], *arguments: Any, **named: Any) -> T:
    """Run a write on the writer thread and return its value once its changes are on disk.

    Raises StorageError if the storage fails or there is no writer, or else the exception of the write.
    """
    return await asyncio.wrap_future(submit(function, *arguments, **named))
