"""The writer thread survives errors: every waiting write gets a result, and the next one is written."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

from appliance.storage import transactions
from appliance.storage.database import close_database, connection, run
from appliance.storage.disk_guard import StorageError
from appliance.storage.writer import Writer
from tests.domain.home import Home
from tests.domain.test_write_transactions import (
    PATIENCE,
    VerbFailed,
    get_result,
    insert_note,
    list_notes,
    submit_together,
)
from tests.kit.timeouts import extend_timeout

_MUCH = 12_000_000  # more bytes than the write-ahead log may have before a checkpoint


@pytest.fixture
def notes_home(home: Home) -> Home:
    """A database with a table to write to, whose writer is not started yet."""
    run("CREATE TABLE note (text TEXT UNIQUE, load BLOB)")
    close_database()
    return home


@contextmanager
def unopenable_database(directory: Path) -> Iterator[None]:
    """Prevent new connections to the database; open ones continue."""
    database_file, aside = directory / "campanero.db", directory / "aside.db"
    database_file.rename(aside)
    database_file.mkdir()
    try:
        yield
    finally:
        database_file.rmdir()
        aside.rename(database_file)


def count_wal_restarts(directory: Path) -> int:
    """Return how often the write-ahead log was restarted."""
    with (directory / "campanero.db-wal").open("rb") as log:
        return int.from_bytes(log.read(16)[12:], "big")


def wal_restarts(directory: Path) -> bool:
    """Return whether the long write-ahead log is checkpointed and restarted during further small writes."""
    restarts_before, deadline = count_wal_restarts(directory), time.monotonic() + PATIENCE
    while count_wal_restarts(directory) == restarts_before and time.monotonic() < deadline:
        transactions.write(run, "UPDATE note SET load = randomblob(20)")
        time.sleep(0.05)
    return count_wal_restarts(directory) != restarts_before


def test_a_database_that_cannot_be_opened_is_retried(notes_home: Home) -> None:
    """While the database cannot be opened writes raise StorageError at once; then the same writer writes."""
    with unopenable_database(notes_home.directory):
        transactions.start()
        assert [get_result(transactions.submit(insert_note, "a")) for _ in range(3)] == ["StorageError"] * 3
    assert transactions.submit(insert_note, "b", _MUCH).result(PATIENCE) == "b"
    assert wal_restarts(notes_home.directory) and list_notes() == ["b"]


def deny(*actions: int) -> None:
    """Make SQLite reject these kinds of statements on this connection."""
    connection().authorizer = lambda action, *_: apsw.SQLITE_DENY if action in actions else apsw.SQLITE_OK


def fail_without_rollback() -> None:
    """Insert a row, and fail where a rollback is impossible."""
    insert_note("half")
    deny(apsw.SQLITE_SAVEPOINT, apsw.SQLITE_TRANSACTION)
    raise VerbFailed


def prevent_commit() -> None:
    """Insert a row, and prevent COMMIT and ROLLBACK."""
    insert_note("half")
    deny(apsw.SQLITE_TRANSACTION)


def lose_connection() -> None:
    """Close the connection in the middle of a transaction."""
    close_database()


@pytest.mark.parametrize(
    ("break_batch", "error_name"),
    [
        (fail_without_rollback, "VerbFailed"),
        (prevent_commit, "StorageError"),
        (lose_connection, "ConnectionClosedError"),
    ],
)
def test_a_broken_batch_returns_errors_to_all(
    break_batch: Callable[[], None], error_name: str, notes_home: Home
) -> None:
    """Each write of the batch raises, none is stored, and the next write is written."""
    transactions.start()
    futures = submit_together(lambda: insert_note("a"), break_batch)
    next_verb = transactions.submit(insert_note, "b", _MUCH)
    assert [get_result(future) for future in futures] == ["StorageError", error_name]
    assert get_result(next_verb) == "b" and list_notes() == ["b"]
    assert wal_restarts(notes_home.directory), "the new connection must be checkpointed too"


def test_a_broken_batch_does_not_lose_a_separate_call(notes_home: Home) -> None:
    """A call outside of transactions that is queued after the broken batch is run."""
    transactions.start()
    started, may_end = threading.Event(), threading.Event()
    blocker = transactions.submit(lambda: (started.set(), may_end.wait(PATIENCE)))
    assert started.wait(PATIENCE)
    broken = transactions.submit(prevent_commit)
    results: list[str] = []
    thread = threading.Thread(
        target=lambda: results.append(transactions.run_outside_transaction(lambda: "alone")), daemon=True
    )
    thread.start()
    time.sleep(0.2)
    may_end.set()
    blocker.result(PATIENCE)
    assert get_result(broken) == "StorageError"
    thread.join(PATIENCE)
    assert results == ["alone"]


def test_verbs_after_the_end_are_rejected(notes_home: Home) -> None:
    """A write queued behind the end, or after it, raises StorageError."""
    writer = Writer()
    started, may_end = threading.Event(), threading.Event()
    blocker = writer.submit(lambda: (started.set(), may_end.wait(PATIENCE)), alone=True)
    assert started.wait(PATIENCE)
    closing = threading.Thread(target=writer.close)
    closing.start()
    time.sleep(0.2)
    queued = writer.submit(lambda: insert_note("behind"))
    may_end.set()
    blocker.result(PATIENCE)
    closing.join(PATIENCE)
    assert [get_result(queued), get_result(writer.submit(lambda: insert_note("after")))] == ["StorageError"] * 2
    assert list_notes() == []


@pytest.mark.parametrize(
    "write",
    [transactions.submit, transactions.submit_essential, transactions.write, transactions.run_outside_transaction],
)
def test_writes_after_stop_raise(write: Callable[..., Any], notes_home: Home) -> None:
    """Once the writer has stopped, each way of writing raises StorageError and runs nothing.

    A new start writes again.
    """
    transactions.start()
    transactions.stop()
    calls: list[str] = []
    with pytest.raises(StorageError):
        write(calls.append, "late")
    transactions.start()
    assert calls == [] and transactions.write(insert_note, "again") == "again"


def test_checkpoints_continue_after_a_failed_connection(notes_home: Home) -> None:
    """The checkpoint thread tries again, and the log is restarted once it has a connection."""
    transactions.start()
    transactions.write(insert_note, "a")
    with unopenable_database(notes_home.directory):
        transactions.write(insert_note, "b", _MUCH)
        time.sleep(0.5)
    assert wal_restarts(notes_home.directory)


def test_stopping_waits_for_a_lock_once(notes_home: Home) -> None:
    """With a write and a checkpoint waiting for another process's lock, stopping waits for one timeout."""
    transactions.start()
    transactions.write(run, "PRAGMA busy_timeout = 2000")
    other = apsw.Connection(str(notes_home.directory / "campanero.db"))
    waiting: list[Future[str]] = []

    def insert_much() -> None:
        insert_note("a", _MUCH)
        transactions.after_commit(lambda: other.execute("BEGIN IMMEDIATE"))
        transactions.after_commit(lambda: waiting.append(transactions.submit(insert_note, "b")))

    transactions.write(insert_much)
    time.sleep(0.5)
    started = time.monotonic()
    transactions.stop()
    seconds = time.monotonic() - started
    other.close()
    with pytest.raises(StorageError):
        waiting[0].result(0)
    assert seconds < extend_timeout(2) and list_notes() == ["a"]
