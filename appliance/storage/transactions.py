"""Run all writes on one thread, and reads, public pages, rendering and scans on small pools of threads.

Writes do no rendering, parsing or network access: callers read and prepare first, and hand the prepared values to
`commit`. `storage/writer.py` describes how writes share a commit.
"""

import asyncio
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from functools import partial
from typing import Any, TypeVar

import apsw
import peewee

from appliance.core import i18n
from appliance.core.errors import RateLimitExceeded
from appliance.core.i18n import gettext, gettext_noop
from appliance.core.limited_process import charge_account
from appliance.storage import journal, masking
from appliance.storage.database import close_database, connection, database, write_state
from appliance.storage.disk_guard import StorageError, to_storage_error
from appliance.storage.writer import Writer, install_triggers

T = TypeVar("T")

_writer: Writer | None = None
_readers: ThreadPoolExecutor | None = None
_public_readers: ThreadPoolExecutor | None = None
_renderers: ThreadPoolExecutor | None = None
_scanners: ThreadPoolExecutor | None = None
_render_queues: weakref.WeakValueDictionary[int, "_AccountQueue"] = weakref.WeakValueDictionary()
_scan_queues: weakref.WeakValueDictionary[int, "_AccountQueue"] = weakref.WeakValueDictionary()
RENDER_THREADS = SCAN_THREADS = 2
_has_ended = False  # whether the writer was stopped; after that no other thread may write


def start(readers: int = 2, before_write: Callable[[], None] = lambda: None) -> None:
    """Start the writer thread and the pools, unless they run; each of the two reader pools has `readers` threads.

    `before_write` is called before each write that may forbid a message (see `Writer`).
    """
    global _writer, _readers, _public_readers, _renderers, _scanners, _has_ended
    if _writer is None:
        _writer, _has_ended = Writer(journal.flush, before_write), False
        _readers = ThreadPoolExecutor(readers, thread_name_prefix="reader")
        _public_readers = ThreadPoolExecutor(readers, thread_name_prefix="public-reader")
        _renderers = ThreadPoolExecutor(RENDER_THREADS, thread_name_prefix="renderer")
        _scanners = ThreadPoolExecutor(SCAN_THREADS, thread_name_prefix="scanner")


def stop() -> None:
    """Run the queued writes and end all threads; later writes raise StorageError until `start` is called again."""
    global _writer, _readers, _public_readers, _renderers, _scanners, _has_ended
    writer, pools = _writer, (_readers, _public_readers, _renderers, _scanners)
    _has_ended = _has_ended or writer is not None
    _writer = _readers = _public_readers = _renderers = _scanners = None
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

    The errors of a write are in the language of its caller. Raises StorageError if there is no writer, RuntimeError in
    a sandbox.
    """
    job = partial(function, *arguments, **named)
    language = i18n.get_language()
    if language != i18n.DEFAULT_LANGUAGE:
        job = partial(_run_in_language, language, job)
    return _current_writer().submit(job)


def _run_in_language(language: str, function: Callable[[], T]) -> T:
    with i18n.use_language(language):
        return function()


def submit_essential(function: Callable[..., T], *arguments: Any) -> "Future[T]":
    """Queue a write that records what has already happened; on a full disk it uses the space of the reserve file.

    Raises the errors of `submit`.
    """
    return _current_writer().submit(partial(function, *arguments), is_essential=True)


def submit_record(function: Callable[..., T], *arguments: Any, is_essential: bool = False) -> "Future[T]":
    """Queue a write that cannot forbid a claimed message, such as the records of the sender and of clicks.

    With `is_essential` it is like a write of `submit_essential`. Raises the errors of `submit`.
    """
    return _current_writer().submit(partial(function, *arguments), is_essential=is_essential, may_forbid=False)


def get_permission_revision() -> int:
    """Return a number that grows before each commit that may forbid the sending of a claimed message (see `Writer`).

    Raises the errors of `submit`.
    """
    return _current_writer().permission_revision


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
    install_triggers(handle)
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
    """Read all data of this thread in the block from one state of the database."""
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
    return await _fetch(_readers, partial(_run_reading, function, arguments, named))


async def fetch_public(function: Callable[..., T], *arguments: Any, **named: Any) -> T:
    """Run a function as `fetch` does, on a separate pool for recipients' pages and health checks.

    They never wait for what the users of an account read.
    """
    return await _fetch(_public_readers, partial(_run_reading, function, arguments, named))


async def _fetch(pool: ThreadPoolExecutor | None, function: Callable[[], T]) -> T:
    if pool is None:
        raise StorageError("the service is shutting down")
    return await asyncio.get_running_loop().run_in_executor(pool, copy_context().run, function)


# The kinds of functions of one account, in the order in which they get the renderer pool or (the last two) the scanner
# pool. Chunks of downloads wait in one line with the scans, so that neither delays the other for long.
_SEND, _EDIT, _PREVIEW, _VIEW, _SCAN, _CHUNK = range(6)
MAX_WAITING_PREVIEWS, MAX_WAITING_VIEWS, MAX_WAITING_SCANS = 4, 100, 100
# How many functions of a kind may wait, and the error for a further one. The other kinds have no limit here, because a
# rate limit counts their requests.
_LIMITS = {
    _PREVIEW: (MAX_WAITING_PREVIEWS, gettext_noop("Too many previews are waiting.")),
    _VIEW: (MAX_WAITING_VIEWS, gettext_noop("Too many messages are waiting to be shown.")),
    _SCAN: (MAX_WAITING_SCANS, gettext_noop("Too many searches and counts are waiting.")),
}
_RETRY_SECONDS = 2


class _AccountQueue:
    """The turns of one account on a pool: one function at a time, in order of priority and arrival."""

    def __init__(self) -> None:
        self._is_taken = False
        self._waiting: tuple[deque[asyncio.Future[None]], ...] = tuple(deque() for _ in range(_SCAN + 1))

    async def take_turn(self, priority: int) -> None:
        """Wait for the turn; raises RateLimitExceeded if as many functions of this kind wait as `_LIMITS` allows."""
        if not self._is_taken:
            self._is_taken = True
            return
        waiting = self._waiting[min(priority, _SCAN)]
        if priority in _LIMITS and len(waiting) >= _LIMITS[priority][0]:
            raise RateLimitExceeded(gettext(_LIMITS[priority][1]), _RETRY_SECONDS)
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
    """Run a function as `render` does, for content to be sent.

    It runs before all waiting functions of the account. Raises the errors of `render_for`.
    """
    return await _render(_SEND, account_id, lambda: _run_reading(function, (account_id, *arguments), {}))


async def render_preview(function: Callable[..., T], account_id: int, *arguments: Any) -> T:
    """Run a function as `render` does, for a preview: after all waiting functions of the account.

    Raises RateLimitExceeded if `MAX_WAITING_PREVIEWS` previews of the account are waiting.
    """
    return await _render(_PREVIEW, account_id, lambda: _run_reading(function, (account_id, *arguments), {}))


async def render_view(account_id: int, function: Callable[..., T], *arguments: Any) -> T:
    """Run a function as `render_for` does, but after all others of the account: for a message that a recipient views.

    Raises RateLimitExceeded if `MAX_WAITING_VIEWS` of them are waiting.
    """
    return await _render(_VIEW, account_id, lambda: _run_reading(function, arguments, {}))


async def scan(function: Callable[..., T], account_id: int, *arguments: Any, **named: Any) -> T:
    """Run a function as `scan_for` does, with the account id as its first argument."""
    return await scan_for(account_id, function, account_id, *arguments, **named)


async def scan_for(account_id: int, function: Callable[..., T], *arguments: Any, **named: Any) -> T:
    """Run a function that may read all contacts or events of an account on the scanner pool and return its value.

    With filters of its users' choice this can take seconds. The scanner pool is separate from the reader pool, and runs
    one function at a time for each account, so that an account delays neither other reads nor the scans of other
    accounts. Raises RateLimitExceeded if `MAX_WAITING_SCANS` functions of the account are waiting, StorageError if the
    storage fails, or after `stop`.
    """
    run = partial(_run_reading, function, arguments, named)
    return await _run_in_turn(_scan_queues, _SCAN, account_id, run, lambda: _scanners)


async def scan_chunk(account_id: int, function: Callable[..., T], *arguments: Any) -> T:
    """Run a function as `scan_for` does, but without its limit, for the parts of a download that has begun."""
    run = partial(_run_reading, function, arguments, {})
    return await _run_in_turn(_scan_queues, _CHUNK, account_id, run, lambda: _scanners)


async def _render(priority: int, account_id: int, function: Callable[[], T]) -> T:
    return await _run_in_turn(_render_queues, priority, account_id, function, lambda: _renderers)


async def _run_in_turn(
    queues: weakref.WeakValueDictionary[int, _AccountQueue],
    priority: int,
    account_id: int,
    function: Callable[[], T],
    get_pool: Callable[[], ThreadPoolExecutor | None],
) -> T:
    """Run a function on a pool when it is the turn of its account; the pool may end while the function waits."""
    queue = queues.get(account_id)
    if queue is None:
        queue = queues[account_id] = _AccountQueue()
    await queue.take_turn(priority)
    try:
        pool = get_pool()
        if pool is None:
            raise StorageError("the service is shutting down")
        run = partial(_run_charged, account_id, function)
        running = asyncio.get_running_loop().run_in_executor(pool, copy_context().run, run)
    except BaseException:
        queue.pass_turn()
        raise
    running.add_done_callback(partial(_end_turn, queue))
    # The thread finishes its work even if the client disconnects, and only then is it the turn of the next function.
    return await asyncio.shield(running)


def _run_charged(account_id: int, function: Callable[[], T]) -> T:
    with charge_account(account_id):
        return function()


def _end_turn(queue: _AccountQueue, done: "asyncio.Future[Any]") -> None:
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
    with masking.masked_connection():
        return _run_on_connection(function, arguments, named)


def _run_on_connection(function: Callable[..., T], arguments: tuple[Any, ...], named: dict[str, Any]) -> T:
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
