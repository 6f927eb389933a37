"""The writer: writes share a commit, fail alone, and are stored completely or not at all."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from functools import partial
from typing import Any

import pytest

from appliance.core.errors import Refused, Unavailable
from appliance.storage import transactions
from appliance.storage.database import close_database, connection, rows, run, scalar
from tests.domain.home import Home

PATIENCE = 20


class VerbFailed(Exception):
    """The error that writes of these tests raise."""


@pytest.fixture
def writer(home: Home) -> Iterator[Home]:
    """A database with a running writer thread and a table to write to."""
    run("CREATE TABLE note (text TEXT UNIQUE, load BLOB)")
    close_database()
    transactions.start()
    yield home
    transactions.stop()


def insert_note(text: str, load: int = 0) -> str:
    """Insert a row, as a write does."""
    transactions.require_write_transaction()
    run("INSERT INTO note VALUES (?, zeroblob(?))", (text, load))
    return text


def list_notes() -> list[str]:
    """Return the stored texts."""
    return [row[0] for row in rows("SELECT text FROM note ORDER BY rowid")]


def submit_together(*writes: Callable[[], Any]) -> list["Future[Any]"]:
    """Submit writes so that the writer commits them together, and return their futures."""
    started, may_end = threading.Event(), threading.Event()

    def wait_for_release() -> None:
        started.set()
        assert may_end.wait(PATIENCE)

    blocker = transactions.submit(wait_for_release)
    assert started.wait(PATIENCE)
    futures = [transactions.submit(write) for write in writes]
    may_end.set()
    wait([blocker, *futures], PATIENCE)
    return futures


def get_result(future: "Future[Any]") -> str:
    """Return a write's value as text, or the name of its error."""
    try:
        return str(future.result(PATIENCE))
    except Exception as error:
        return type(error).__name__


def test_a_write_is_committed_before_it_returns(writer: Home) -> None:
    """The row of a write is visible when `write` returns."""
    assert transactions.write(insert_note, "a") == "a"
    assert list_notes() == ["a"]


@pytest.mark.parametrize("index", range(5))
def test_a_failing_verb_rolls_back_alone(index: int, writer: Home) -> None:
    """A write that fails undoes its own changes, but not those of the others in the same commit."""

    def fail() -> None:
        insert_note("half")
        raise VerbFailed

    writes: list[Callable[[], Any]] = [partial(insert_note, text) for text in "wxyz"]
    writes.insert(index, fail)
    futures = submit_together(*writes)
    assert [get_result(future) for future in futures] == [*"wxyz"[:index], "VerbFailed", *"wxyz"[index:]]
    assert list_notes() == list("wxyz")


def test_a_constraint_error_fails_its_verb_only(writer: Home) -> None:
    """A constraint error is raised to its write and not reported as a storage error."""
    futures = submit_together(lambda: insert_note("a"), lambda: insert_note("a"), lambda: insert_note("b"))
    results = [get_result(future) for future in futures]
    assert (results[0], results[2]) == ("a", "b") and results[1] not in ("a", "StorageError")
    assert list_notes() == ["a", "b"]


def test_errors_are_raised_unchanged(writer: Home) -> None:
    """An error raised in a write reaches the caller as the same object."""
    error = Refused("no")

    def raise_error() -> None:
        raise error

    with pytest.raises(Refused) as caught:
        transactions.write(raise_error)
    assert caught.value is error


def test_after_commit_runs_for_committed_verbs_only(writer: Home) -> None:
    """`after_commit` runs in order, once the rows are visible to other connections."""
    calls: list[tuple[str, list[str]]] = []

    def succeed(text: str) -> None:
        insert_note(text)
        transactions.after_commit(lambda: calls.append((text, _list_notes_in_another_thread())))

    def fail() -> None:
        succeed("bad")
        raise VerbFailed

    futures = submit_together(lambda: succeed("a"), fail, lambda: succeed("b"))
    assert [get_result(future) for future in futures] == ["None", "VerbFailed", "None"]
    transactions.write(lambda: None)
    assert calls == [("a", ["a", "b"]), ("b", ["a", "b"])]


def _list_notes_in_another_thread() -> list[str]:
    """Return the stored texts as another connection sees them."""
    result: list[str] = []

    def read() -> None:
        result.extend(list_notes())
        close_database()

    thread = threading.Thread(target=read)
    thread.start()
    thread.join(PATIENCE)
    return result


@pytest.mark.parametrize(
    "call",
    [transactions.require_write_transaction, lambda: transactions.after_commit(lambda: None), lambda: insert_note("x")],
)
def test_writing_outside_a_verb_raises(call: Callable[[], object], writer: Home) -> None:
    """A write or `after_commit` outside a write raises RuntimeError and writes nothing, on any thread."""
    with pytest.raises(RuntimeError, match="write"):
        call()
    caught: list[BaseException] = []

    def call_in_thread() -> None:
        try:
            call()
        except RuntimeError as error:
            caught.append(error)
        close_database()

    thread = threading.Thread(target=call_in_thread)
    thread.start()
    thread.join(PATIENCE)
    assert len(caught) == 1 and list_notes() == []


def test_many_threads_write_at_once(writer: Home) -> None:
    """Each write runs once and failed ones leave nothing, so that a counter in the table is exact."""
    run("INSERT INTO note VALUES ('0', NULL)")
    close_database()

    def increment() -> int:
        run("UPDATE note SET text = text + 1")
        return int(scalar("SELECT text FROM note"))

    results: list[int] = []
    failures: list[str] = []

    def thread(number: int) -> None:
        for attempt in range(25):
            if (number + attempt) % 5 == 0:
                failures.append(get_result(transactions.submit(lambda: (increment(), 1 / 0))))
            else:
                results.append(transactions.write(increment))

    threads = [threading.Thread(target=thread, args=(number,)) for number in range(16)]
    for worker in threads:
        worker.start()
    for worker in threads:
        worker.join(PATIENCE)
    assert sorted(results) == list(range(1, 321)) and failures == ["ZeroDivisionError"] * 80
    assert list_notes() == ["320"]


def test_a_failed_commit_fails_all_its_verbs(writer: Home) -> None:
    """Each write raises Unavailable, nothing is stored and no after_commit runs; later writes succeed."""
    calls: list[str] = []
    transactions.write(run, "CREATE TABLE child (parent TEXT REFERENCES note (text) DEFERRABLE INITIALLY DEFERRED)")

    def insert(text: str) -> None:
        insert_note(text)
        transactions.after_commit(lambda: calls.append(text))

    futures = submit_together(
        lambda: insert("a"), lambda: run("INSERT INTO child VALUES ('nobody')"), lambda: insert("b")
    )
    for future in futures:
        with pytest.raises(Unavailable) as caught:
            future.result(PATIENCE)
        assert caught.value.code == "storage_unavailable"
    assert list_notes() == [] and calls == [] and scalar("SELECT count(*) FROM child") == 0
    assert transactions.write(insert_note, "c") == "c" and list_notes() == ["c"]


def test_a_full_disk_is_temporary(writer: Home) -> None:
    """On a full disk a write raises Unavailable and leaves nothing; with space again it succeeds."""
    transactions.write(insert_note, "before")
    transactions.write(lambda: rows(f"PRAGMA max_page_count = {scalar('PRAGMA page_count')}"))
    for _ in range(2):
        with pytest.raises(Unavailable):
            transactions.write(insert_note, "big", 5_000_000)
    assert list_notes() == ["before"]
    transactions.write(lambda: rows("PRAGMA max_page_count = 1000000"))
    assert transactions.write(insert_note, "big", 5_000_000) == "big"
    assert list_notes() == ["before", "big"] and scalar("PRAGMA integrity_check") == "ok"


def test_a_locked_database_is_temporary(writer: Home) -> None:
    """While another connection has the lock writes raise Unavailable and reads work; then writes work again."""
    transactions.write(lambda: rows("PRAGMA busy_timeout = 50"))
    connection().execute("BEGIN IMMEDIATE")
    with pytest.raises(Unavailable):
        transactions.write(insert_note, "a")
    assert list_notes() == []
    connection().execute("ROLLBACK")
    assert transactions.write(insert_note, "b") == "b" and list_notes() == ["b"]


def test_queued_verbs_share_a_commit(writer: Home) -> None:
    """Twenty queued writes are stored by at most five commits."""
    counts: list[int] = []

    def insert(text: str) -> None:
        insert_note(text)
        transactions.after_commit(lambda: counts.append(len(_list_notes_in_another_thread())))

    for future in submit_together(*(partial(insert, str(number)) for number in range(20))):
        future.result(PATIENCE)
    transactions.write(lambda: None)
    assert len(counts) == 20 and counts[-1] == 20 and len(set(counts)) <= 5


def test_stopping_completes_queued_verbs(writer: Home) -> None:
    """All queued writes are stored; later ones raise Unavailable."""
    futures = [transactions.submit(insert_note, str(number)) for number in range(50)]
    transactions.stop()
    assert [future.result(PATIENCE) for future in futures] == [str(number) for number in range(50)]
    assert len(list_notes()) == 50
    with pytest.raises(Unavailable):
        transactions.submit(insert_note, "late")


def test_a_cancelled_verb_does_not_run(writer: Home) -> None:
    """A write cancelled before its turn writes nothing; the next one runs."""
    started, may_end = threading.Event(), threading.Event()
    blocker = transactions.submit(lambda: (started.set(), may_end.wait(PATIENCE)))
    assert started.wait(PATIENCE)
    cancelled, other = transactions.submit(insert_note, "cancelled"), transactions.submit(insert_note, "kept")
    assert cancelled.cancel()
    may_end.set()
    blocker.result(PATIENCE)
    assert other.result(PATIENCE) == "kept" and list_notes() == ["kept"]


def test_reads_and_writes_on_the_event_loop(writer: Home) -> None:
    """A fetch sees what an earlier commit stored."""

    async def use() -> list[list[str]]:
        await transactions.commit(insert_note, "a")
        after_first = await transactions.fetch(list_notes)
        await asyncio.gather(*(transactions.commit(insert_note, text) for text in "bcd"))
        return [after_first, sorted(await transactions.fetch(list_notes))]

    assert asyncio.run(use()) == [["a"], ["a", "b", "c", "d"]]


def test_writes_without_a_writer_thread(home: Home) -> None:
    """On the command line a write runs in the calling thread, completely or not at all, followed by after_commit."""
    run("CREATE TABLE note (text TEXT UNIQUE, load BLOB)")
    calls: list[str] = []

    def insert(text: str, fail: bool) -> None:
        insert_note(text)
        transactions.after_commit(lambda: calls.append(text))
        if fail:
            raise VerbFailed

    transactions.write(insert, "a", False)
    with pytest.raises(VerbFailed):
        transactions.write(insert, "b", True)
    assert list_notes() == ["a"] == calls
