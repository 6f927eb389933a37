"""The writer thread outlives what breaks around it: everybody who waits gets an answer, and the next is served."""

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
from appliance.storage.transactions import Writer
from tests.domain.home import Home
from tests.domain.test_work import PATIENCE, Broken, ended, note, notes, together
from tests.kit.patience import soon

_MUCH = 12_000_000  # more than the write-ahead log may hold before it is brought home


@pytest.fixture
def noted(home: Home) -> Home:
    """An installation with a table to write to; its writer is not started yet."""
    run("CREATE TABLE note (text TEXT UNIQUE, load BLOB)")
    close_database()
    return home


@contextmanager
def cannot_be_opened(directory: Path) -> Iterator[None]:
    """Keep everybody from opening the database; who has it open goes on."""
    database, aside = directory / "campanero.db", directory / "aside.db"
    database.rename(aside)
    database.mkdir()
    try:
        yield
    finally:
        database.rmdir()
        aside.rename(database)


def rounds(directory: Path) -> int:
    """Return how often the write-ahead log has begun anew."""
    with (directory / "campanero.db-wal").open("rb") as log:
        return int.from_bytes(log.read(16)[12:], "big")


def begins_anew(directory: Path) -> bool:
    """Return whether the write-ahead log, which is long, is brought home and begins anew while a little is written."""
    before, end = rounds(directory), time.monotonic() + PATIENCE
    while rounds(directory) == before and time.monotonic() < end:
        transactions.write(run, "UPDATE note SET load = randomblob(20)")
        time.sleep(0.05)
    return rounds(directory) != before


def test_a_database_that_cannot_be_opened_is_opened_later(noted: Home) -> None:
    """While there is no connection to be had each verb is refused at once; then the same writer writes, and tidies."""
    with cannot_be_opened(noted.directory):
        transactions.start()
        assert [ended(transactions.submit(note, "a")) for _ in range(3)] == ["StorageError"] * 3
    assert transactions.submit(note, "b", _MUCH).result(PATIENCE) == "b"
    assert begins_anew(noted.directory) and notes() == ["b"]


def deny(*actions: int) -> None:
    """Let SQLite refuse these kinds of statement on this connection from here on."""
    connection().authorizer = lambda action, *_: apsw.SQLITE_DENY if action in actions else apsw.SQLITE_OK


def no_way_back() -> None:
    """Write, and fail where nothing can be taken back."""
    note("half")
    deny(apsw.SQLITE_SAVEPOINT, apsw.SQLITE_TRANSACTION)
    raise Broken


def no_commit() -> None:
    """Write where neither COMMIT nor ROLLBACK is possible."""
    note("half")
    deny(apsw.SQLITE_TRANSACTION)


def no_connection() -> None:
    """Lose the connection in the middle."""
    close_database()


@pytest.mark.parametrize(
    ("breaking", "answer"),
    [(no_way_back, "Broken"), (no_commit, "StorageError"), (no_connection, "ConnectionClosedError")],
)
def test_a_batch_that_breaks_answers_everybody(breaking: Callable[[], None], answer: str, noted: Home) -> None:
    """Whatever breaks in a batch, each of it is told, none of it is stored, and what comes behind it is written."""
    transactions.start()
    found = together(lambda: note("a"), breaking)
    behind = transactions.submit(note, "b", _MUCH)
    assert [ended(future) for future in found] == ["StorageError", answer]
    assert ended(behind) == "b" and notes() == ["b"]
    assert begins_anew(noted.directory), "the new connection is watched as the first one was"


def test_a_broken_batch_loses_nobody_who_waits_to_be_alone(noted: Home) -> None:
    """Who must not share a transaction and stands behind a batch that breaks has its turn."""
    transactions.start()
    begun, go = threading.Event(), threading.Event()
    held = transactions.submit(lambda: (begun.set(), go.wait(PATIENCE)))
    assert begun.wait(PATIENCE)
    broken = transactions.submit(no_commit)
    answers: list[str] = []
    alone = threading.Thread(
        target=lambda: answers.append(transactions.run_outside_transaction(lambda: "alone")), daemon=True
    )
    alone.start()
    time.sleep(0.2)
    go.set()
    held.result(PATIENCE)
    assert ended(broken) == "StorageError"
    alone.join(PATIENCE)
    assert answers == ["alone"]


def test_what_comes_behind_the_end_is_refused(noted: Home) -> None:
    """A verb that is queued behind the end, or after it, is answered; nobody waits for a thread that is gone."""
    writer = Writer()
    begun, go = threading.Event(), threading.Event()
    held = writer.submit(lambda: (begun.set(), go.wait(PATIENCE)), alone=True)
    assert begun.wait(PATIENCE)
    closing = threading.Thread(target=writer.close)
    closing.start()
    time.sleep(0.2)
    behind = writer.submit(lambda: note("behind"))
    go.set()
    held.result(PATIENCE)
    closing.join(PATIENCE)
    assert [ended(behind), ended(writer.submit(lambda: note("after")))] == ["StorageError"] * 2
    assert notes() == []


@pytest.mark.parametrize(
    "how",
    [transactions.submit, transactions.submit_essential, transactions.write, transactions.run_outside_transaction],
)
def test_nobody_writes_past_a_writer_that_has_ended(how: Callable[..., Any], noted: Home) -> None:
    """Once the writer has ended no verb runs on a thread of its own either: each is refused at once, and none runs."""
    transactions.start()
    transactions.stop()
    seen: list[str] = []
    with pytest.raises(StorageError):
        how(seen.append, "late")
    transactions.start()
    assert seen == [] and transactions.write(note, "again") == "again"


def test_the_log_keeper_outlives_a_database_that_it_cannot_open(noted: Home) -> None:
    """Where the keeper of the log finds no connection it tries again; the log is brought home as soon as it has one."""
    transactions.start()
    transactions.write(note, "a")
    with cannot_be_opened(noted.directory):
        transactions.write(note, "b", _MUCH)
        time.sleep(0.5)
    assert begins_anew(noted.directory)


def test_stopping_waits_for_a_lock_once(noted: Home) -> None:
    """While another process has the database, with a verb and the keeper of the log waiting, stopping waits once."""
    transactions.start()
    transactions.write(run, "PRAGMA busy_timeout = 2000")
    other = apsw.Connection(str(noted.directory / "campanero.db"))
    waiting: list[Future[str]] = []

    def much() -> None:
        note("a", _MUCH)
        transactions.after_commit(lambda: other.execute("BEGIN IMMEDIATE"))
        transactions.after_commit(lambda: waiting.append(transactions.submit(note, "b")))

    transactions.write(much)
    time.sleep(0.5)
    begun = time.monotonic()
    transactions.stop()
    took = time.monotonic() - begun
    other.close()
    with pytest.raises(StorageError):
        waiting[0].result(0)
    assert took < soon(2) and notes() == ["a"]
