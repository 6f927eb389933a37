"""The one writer: verbs share a commit, fail alone, and never leave a half of anything."""

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


class Broken(Exception):
    """What a verb of these tests fails with."""


@pytest.fixture
def writer(home: Home) -> Iterator[Home]:
    """An installation with its writer thread running and a table to write to."""
    run("CREATE TABLE note (text TEXT UNIQUE, load BLOB)")
    close_database()
    transactions.start()
    yield home
    transactions.stop()


def note(text: str, load: int = 0) -> str:
    """Write one row, as a verb does."""
    transactions.require_write_transaction()
    run("INSERT INTO note VALUES (?, zeroblob(?))", (text, load))
    return text


def notes() -> list[str]:
    """Return what is stored."""
    return [row[0] for row in rows("SELECT text FROM note ORDER BY rowid")]


def together(*verbs: Callable[[], Any]) -> list["Future[Any]"]:
    """Submit verbs so that the writer finds them all waiting and puts them into one commit."""
    begun, go = threading.Event(), threading.Event()

    def hold() -> None:
        begun.set()
        assert go.wait(PATIENCE)

    held = transactions.submit(hold)
    assert begun.wait(PATIENCE)
    found = [transactions.submit(verb) for verb in verbs]
    go.set()
    wait([held, *found], PATIENCE)
    return found


def ended(future: "Future[Any]") -> str:
    """Return how a verb ended: its value, or the name of its error."""
    try:
        return str(future.result(PATIENCE))
    except Exception as error:
        return type(error).__name__


def test_a_value_is_stored_before_it_is_answered(writer: Home) -> None:
    """What a verb answers is on disk for every other connection by then."""
    assert transactions.write(note, "a") == "a"
    assert notes() == ["a"]


@pytest.mark.parametrize("place", range(5))
def test_a_failing_verb_rolls_back_alone(place: int, writer: Home) -> None:
    """A verb that fails half-way takes back its own writes and nothing of its neighbours' in the same commit."""

    def fail() -> None:
        note("half")
        raise Broken

    verbs: list[Callable[[], Any]] = [partial(note, text) for text in "wxyz"]
    verbs.insert(place, fail)
    found = together(*verbs)
    assert [ended(future) for future in found] == [*"wxyz"[:place], "Broken", *"wxyz"[place:]]
    assert notes() == list("wxyz")


def test_a_constraint_is_the_verbs_own_fault(writer: Home) -> None:
    """A breach of a constraint fails its verb alone, and is no trouble of the storage."""
    found = together(lambda: note("a"), lambda: note("a"), lambda: note("b"))
    results = [ended(future) for future in found]
    assert (results[0], results[2]) == ("a", "b") and results[1] not in ("a", "StorageError")
    assert notes() == ["a", "b"]


def test_refusals_come_back_as_they_are(writer: Home) -> None:
    """A refusal raised in a verb reaches who asked as the same object."""
    error = Refused("no")

    def refuse() -> None:
        raise error

    with pytest.raises(Refused) as caught:
        transactions.write(refuse)
    assert caught.value is error


def test_what_follows_a_commit_follows_only_it(writer: Home) -> None:
    """`after_commit` runs once the verb is visible to others, in order, and never for a verb that failed."""
    seen: list[tuple[str, list[str]]] = []

    def good(text: str) -> None:
        note(text)
        transactions.after_commit(lambda: seen.append((text, _elsewhere())))

    def bad() -> None:
        good("bad")
        raise Broken

    found = together(lambda: good("a"), bad, lambda: good("b"))
    assert [ended(future) for future in found] == ["None", "Broken", "None"]
    transactions.write(lambda: None)
    assert seen == [("a", ["a", "b"]), ("b", ["a", "b"])]


def _elsewhere() -> list[str]:
    """Read on another thread, and so on another connection."""
    found: list[str] = []

    def read() -> None:
        found.extend(notes())
        close_database()

    thread = threading.Thread(target=read)
    thread.start()
    thread.join(PATIENCE)
    return found


@pytest.mark.parametrize(
    "outside",
    [transactions.require_write_transaction, lambda: transactions.after_commit(lambda: None), lambda: note("x")],
)
def test_writing_outside_a_verb_is_refused(outside: Callable[[], object], writer: Home) -> None:
    """A verb called on its own, from any thread, is an error and writes nothing; so is after_commit."""
    with pytest.raises(RuntimeError, match="verb"):
        outside()
    caught: list[BaseException] = []

    def elsewhere() -> None:
        try:
            outside()
        except RuntimeError as error:
            caught.append(error)
        close_database()

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join(PATIENCE)
    assert len(caught) == 1 and notes() == []


def test_many_threads(writer: Home) -> None:
    """Verbs of many threads each happen once, those that fail not at all, and counting in the table loses nothing."""
    run("INSERT INTO note VALUES ('0', NULL)")
    close_database()

    def count() -> int:
        run("UPDATE note SET text = text + 1")
        return int(scalar("SELECT text FROM note"))

    answers: list[int] = []
    failures: list[str] = []

    def thread(number: int) -> None:
        for turn in range(25):
            if (number + turn) % 5 == 0:
                failures.append(ended(transactions.submit(lambda: (count(), 1 / 0))))
            else:
                answers.append(transactions.write(count))

    threads = [threading.Thread(target=thread, args=(number,)) for number in range(16)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(PATIENCE)
    assert sorted(answers) == list(range(1, 321)) and failures == ["ZeroDivisionError"] * 80
    assert notes() == ["320"]


def test_a_commit_that_fails_fails_all_who_waited(writer: Home) -> None:
    """If the commit is refused, nobody in it is told yes, nothing is stored, no after_commit runs; then it works."""
    seen: list[str] = []
    transactions.write(run, "CREATE TABLE child (parent TEXT REFERENCES note (text) DEFERRABLE INITIALLY DEFERRED)")

    def good(text: str) -> None:
        note(text)
        transactions.after_commit(lambda: seen.append(text))

    found = together(lambda: good("a"), lambda: run("INSERT INTO child VALUES ('nobody')"), lambda: good("b"))
    for future in found:
        with pytest.raises(Unavailable) as caught:
            future.result(PATIENCE)
        assert caught.value.code == "storage_unavailable"
    assert notes() == [] and seen == [] and scalar("SELECT count(*) FROM child") == 0
    assert transactions.write(note, "c") == "c" and notes() == ["c"]


def test_a_full_disk_fails_and_passes(writer: Home) -> None:
    """On a full disk a write is Unavailable and leaves nothing; with room again the same write succeeds, unaided."""
    transactions.write(note, "before")
    transactions.write(lambda: rows(f"PRAGMA max_page_count = {scalar('PRAGMA page_count')}"))
    for _ in range(2):
        with pytest.raises(Unavailable):
            transactions.write(note, "big", 5_000_000)
    assert notes() == ["before"]
    transactions.write(lambda: rows("PRAGMA max_page_count = 1000000"))
    assert transactions.write(note, "big", 5_000_000) == "big"
    assert notes() == ["before", "big"] and scalar("PRAGMA integrity_check") == "ok"


def test_a_lock_of_another_process_is_unavailable(writer: Home) -> None:
    """While somebody else holds the database, writes are Unavailable and reads go on; afterwards writes go on too."""
    transactions.write(lambda: rows("PRAGMA busy_timeout = 50"))
    connection().execute("BEGIN IMMEDIATE")
    with pytest.raises(Unavailable):
        transactions.write(note, "a")
    assert notes() == []
    connection().execute("ROLLBACK")
    assert transactions.write(note, "b") == "b" and notes() == ["b"]


def test_verbs_that_wait_share_a_commit(writer: Home) -> None:
    """Verbs that are queued when the thread comes round are stored by few commits, each seen whole or not at all."""
    seen: list[int] = []

    def watched(text: str) -> None:
        note(text)
        transactions.after_commit(lambda: seen.append(len(_elsewhere())))

    for future in together(*(partial(watched, str(number)) for number in range(20))):
        future.result(PATIENCE)
    transactions.write(lambda: None)
    assert len(seen) == 20 and seen[-1] == 20 and len(set(seen)) <= 5


def test_stopping_finishes_what_is_queued(writer: Home) -> None:
    """Stopping stores what was queued, and then refuses what comes later as Unavailable."""
    found = [transactions.submit(note, str(number)) for number in range(50)]
    transactions.stop()
    assert [future.result(PATIENCE) for future in found] == [str(number) for number in range(50)]
    assert len(notes()) == 50
    with pytest.raises(Unavailable):
        transactions.submit(note, "late")


def test_a_verb_that_nobody_waits_for_any_more_does_not_run(writer: Home) -> None:
    """A verb cancelled before its turn writes nothing, and its neighbours go on."""
    begun, go = threading.Event(), threading.Event()
    held = transactions.submit(lambda: (begun.set(), go.wait(PATIENCE)))
    assert begun.wait(PATIENCE)
    cancelled, kept = transactions.submit(note, "cancelled"), transactions.submit(note, "kept")
    assert cancelled.cancel()
    go.set()
    held.result(PATIENCE)
    assert kept.result(PATIENCE) == "kept" and notes() == ["kept"]


def test_reads_and_writes_of_the_loop(writer: Home) -> None:
    """On the loop, commit writes and call reads; what a commit answered, a later call sees."""

    async def use() -> list[list[str]]:
        await transactions.commit(note, "a")
        first = await transactions.fetch(notes)
        await asyncio.gather(*(transactions.commit(note, text) for text in "bcd"))
        return [first, sorted(await transactions.fetch(notes))]

    assert asyncio.run(use()) == [["a"], ["a", "b", "c", "d"]]


def test_a_process_without_writer_writes_in_place(home: Home) -> None:
    """Without a writer thread (the command line) a verb runs here, whole or not at all, and after_commit follows it."""
    run("CREATE TABLE note (text TEXT UNIQUE, load BLOB)")
    seen: list[str] = []

    def both(text: str, fail: bool) -> None:
        note(text)
        transactions.after_commit(lambda: seen.append(text))
        if fail:
            raise Broken

    transactions.write(both, "a", False)
    with pytest.raises(Broken):
        transactions.write(both, "b", True)
    assert notes() == ["a"] == seen
