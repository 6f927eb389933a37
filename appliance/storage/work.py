"""Who may touch the database, and when: reads on a small pool, all writing on one thread.

A verb that writes runs on the writer thread inside a SAVEPOINT. Verbs that wait together share one COMMIT, so that
`synchronous=FULL` costs one fsync for all of them; a verb that fails rolls back alone; a COMMIT that fails fails all
that waited, and none of them has happened. There is no timer: what is queued when the thread comes round is the batch.
Rendering, parsing and network never happen in a verb.
"""

import asyncio
import logging
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

import apsw
import peewee

from appliance.storage import journal
from appliance.storage.disk_guard import StorageError, storage_error
from appliance.storage.open import close_database, connection, database
from appliance.storage.writer import Writer, state

T = TypeVar("T")
log = logging.getLogger("campanero.writer")

_writer: Writer | None = None
_readers: ThreadPoolExecutor | None = None
_renderers: ThreadPoolExecutor | None = None
_render_locks: weakref.WeakValueDictionary[int, asyncio.Lock] = weakref.WeakValueDictionary()
RENDER_THREADS = 2
_ended = False  # there was a writer: nobody writes past it


def start(readers: int = 2) -> None:
    """Start the writer thread and the pools of readers and of renderers of this process."""
    global _writer, _readers, _renderers, _ended
    if _writer is None:
        _writer, _ended = Writer(journal.keep), False
        _readers = ThreadPoolExecutor(readers, thread_name_prefix="reader")
        _renderers = ThreadPoolExecutor(RENDER_THREADS, thread_name_prefix="renderer")


def stop() -> None:
    """Finish queued writes and end all of them; this process writes no more."""
    global _writer, _readers, _renderers, _ended
    writer, pools = _writer, (_readers, _renderers)
    _ended = _ended or writer is not None
    _writer = _readers = _renderers = None
    if writer is not None:
        writer.close()
    for pool in pools:
        if pool is not None:
            pool.shutdown()


def is_stopped() -> bool:
    """Return whether the writer of this process has ended; what is offered then is never stored."""
    return _writer is None


def submit(function: Callable[..., T], *arguments: Any, **named: Any) -> "Future[T]":
    """Queue a writing verb from any thread and answer its future."""
    return _there().submit(lambda: function(*arguments, **named))


def record(function: Callable[..., T], *arguments: Any) -> "Future[T]":
    """Queue a verb that writes what has happened already: on a full disk it goes into the reserve."""
    return _there().submit(lambda: function(*arguments), records=True)


def _there() -> Writer:
    if state.pretends:
        raise RuntimeError("what is only pretended is handed to nobody who writes")
    here = _writer
    if here is None:
        raise StorageError("the service is shutting down")
    return here


def write(function: Callable[..., T], *arguments: Any, **named: Any) -> T:
    """Run a writing verb and wait until it is on disk; for threads and for the command line, never on the loop.

    Where there never was a writer it runs on this thread; whoever comes after its end is refused. What is only
    pretended (`shadow`) runs here too, and what shall follow its commit is dropped, for there is none.
    """
    if state.pretends:
        with _pretended():
            return function(*arguments, **named)
    if _writer is not None or _ended:
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
    lines: list[bytes] = []
    here.execute("BEGIN IMMEDIATE")
    state.inside, state.after, state.lines = True, after, lines
    try:
        yield after
        journal.keep(lines)
        here.execute("COMMIT")
    except BaseException:
        if here.in_transaction:
            here.execute("ROLLBACK")
        raise
    finally:
        state.inside, state.after, state.lines = False, None, None


@contextmanager
def _pretended() -> Iterator[None]:
    """Be inside a writing verb that writes into shadows; one that fails leaves nothing there either."""
    if state.inside:
        raise RuntimeError("a writing verb does not wait for another")
    here = connection()
    here.execute("SAVEPOINT verb")
    state.inside, state.after = True, []
    try:
        yield
    except BaseException:
        here.execute("ROLLBACK TO verb")
        raise
    finally:
        state.inside, state.after = False, None
        here.execute("RELEASE verb")


def writing() -> None:
    """Raise unless this thread is inside a writing verb; called by verbs, so that none runs in the wrong place."""
    if not state.inside:
        raise RuntimeError("a writing verb runs through commit() or write()")


def is_writing() -> bool:
    """Return whether this thread is inside a writing verb, where nothing may take long."""
    return state.inside


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
    assert state.after is not None
    state.after.append(function)


def between(function: Callable[..., T], *arguments: Any) -> T:
    """Run on the writing connection what SQLite takes outside of a transaction only (ATTACH), and wait for it."""
    if _writer is None and not _ended and not state.pretends:
        return function(*arguments)
    return _there().submit(lambda: function(*arguments), alone=True).result()


async def call(function: Callable[..., T], *arguments: Any, **named: Any) -> T:
    """Run a reading function on the reader pool."""
    if _readers is None:
        raise StorageError("the service is shutting down")
    return await asyncio.get_running_loop().run_in_executor(_readers, lambda: _read(function, arguments, named))


async def render(function: Callable[..., T], account_id: int, *arguments: Any, **named: Any) -> T:
    """Run a function of an account and more that parses or renders templates, as `render_for` does."""
    return await render_for(account_id, function, account_id, *arguments, **named)


async def render_for(account_id: int, function: Callable[..., T], *arguments: Any, **named: Any) -> T:
    """Run what parses or renders templates of an account, beside the reader pool.

    It may take seconds for a body of a megabyte. One at a time runs for each account, so that neither the reads of
    others nor what they render waits for all that one account asks for.
    """
    if _renderers is None:
        raise StorageError("the service is shutting down")
    lock = _render_locks.setdefault(account_id, asyncio.Lock())
    async with lock:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(_renderers, lambda: _read(function, arguments, named))


def glance(function: Callable[..., T], *arguments: Any) -> T:
    """Run a reading function at once, on the thread of the loop itself: only what keys find in a handful of rows.

    All others wait for it, but to hand it to the pool and its answer back takes longer than it does.
    """
    if _readers is None:
        raise StorageError("the service is shutting down")
    return _read(function, arguments, {})


def _read(function: Callable[..., T], arguments: tuple[Any, ...], named: dict[str, Any]) -> T:
    try:
        return function(*arguments, **named)
    except Exception as error:
        _let_go()
        if isinstance(error, apsw.Error | peewee.PeeweeException):
            raise storage_error(error) or error from error
        raise


def _let_go() -> None:
    """End what an exception cut off in the middle of its rows, by closing this thread's connection.

    Such a statement lives, and holds its snapshot, for as long as anybody knows the exception: all that this thread
    reads until then would be of that moment.
    """
    if not database.is_closed() and connection().txn_state() != apsw.SQLITE_TXN_NONE:
        close_database()


async def commit(function: Callable[..., T], *arguments: Any, **named: Any) -> T:
    """Run a writing verb on the writer thread; returns when it is on disk."""
    return await asyncio.wrap_future(submit(function, *arguments, **named))
