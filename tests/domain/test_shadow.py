"""What is only pretended is written beside the real database, by whatever way, and is gone afterwards."""

import hashlib
import threading
from pathlib import Path

import apsw
import pytest

from appliance.audience import lists
from appliance.audience.lists import ListCreate
from appliance.core import signals
from appliance.events import log
from appliance.events.log import NewEvent
from appliance.storage import transactions
from appliance.storage.database import connection, fetch_one, rows, run, scalar
from appliance.storage.models import Account, Contact, ContactList, Event
from appliance.storage.sandbox import ALL_ROWS, NO_ROWS, TableRows, WriteOutsideSandbox, is_active, sandbox
from tests.domain.home import Home

PEOPLE = ("contact", "channel", "consent", "membership", "contact_list", "event", "contact_search", "list_opt_out",
          "opt_out")  # fmt: skip


def dumped(directory: Path) -> tuple[str, list[str]]:
    """Return all that a database holds, as SQL, and a hash of its file and its log."""
    here = apsw.Connection(str(directory / "campanero.db"), flags=apsw.SQLITE_OPEN_READONLY)
    text: list[str] = []
    for name, sql in here.execute("SELECT name, sql FROM sqlite_schema ORDER BY name").fetchall():
        text.append(f"{name} {sql}")
        if sql and sql.startswith("CREATE TABLE"):
            text += [repr(row) for row in here.execute(f"SELECT * FROM {name}").fetchall()]
    here.close()
    files = [(directory / f"campanero.db{end}") for end in ("", "-wal")]
    return hashlib.sha256(b"".join(one.read_bytes() for one in files if one.exists())).hexdigest(), text


def test_raw_and_peewee_writes_go_beside_and_leave_nothing(home: Home) -> None:
    """Rows are changed and made inside as anywhere, and not a byte of the file has changed afterwards."""
    ann = home.contact("ann@example.org", first_name="Ann")
    home.contact("bob@example.org")
    news = home.list_of(ann.id)
    before = dumped(home.directory)
    with sandbox(
        {**dict.fromkeys(PEOPLE, NO_ROWS), "contact": TableRows("id = :one", {"one": ann.id}), "contact_list": ALL_ROWS}
    ):
        assert is_active()
        assert [row.email_sent_count for row in Contact.select()] == [0]
        transactions.write(run, "UPDATE contact SET first_name = 'Anna' WHERE id = ?", (ann.id,))
        assert Contact.get_by_id(ann.id).first_name == "Anna"
        transactions.write(Contact.update(last_name="Lee").where(Contact.id == ann.id).execute)
        assert fetch_one("SELECT first_name, last_name FROM contact") == ("Anna", "Lee")
        made = home.contact("cyd@example.org")
        more = transactions.write(lists.create, home.account_id, ListCreate(name="More", contact_ids=[made.id]))
        assert made.id > 1 << 47 and more.id > 1 << 47
        assert {row.id for row in ContactList.select()} == {news.id, more.id}
        assert rows("SELECT contact_id FROM membership") == [(made.id,)]
        assert Account.get_by_id(home.account_id).name == "Acme"  # what lies in no shadow is the real one
    assert dumped(home.directory) == before
    assert not is_active() and Contact.get_by_id(ann.id).first_name == "Ann"


def test_a_table_without_a_shadow_is_never_written(home: Home) -> None:
    """Whoever writes where nothing lies before the real table is refused, raw or by Peewee."""
    ann = home.contact("ann@example.org")
    before = dumped(home.directory)
    for write in (
        lambda: run("UPDATE contact SET first_name = 'x'"),
        lambda: Contact.update(first_name="x").where(Contact.id == ann.id).execute(),
        lambda: run("UPDATE main.event SET data = '{}'"),
        lambda: run("DROP TABLE main.event"),
    ):
        with pytest.raises(WriteOutsideSandbox), sandbox({"event": NO_ROWS}):
            transactions.write(write)
        assert connection().readonly("main") is False
    assert dumped(home.directory) == before


def test_nothing_follows_and_nobody_is_woken(home: Home) -> None:
    """What a verb wants done after its commit is dropped, no bell is heard, and no other thread gets a write."""
    heard: list[str] = []
    signals.register_handler("flows", lambda: heard.append("flows"))
    with sandbox({"event": NO_ROWS}):
        transactions.write(log.record, NewEvent(home.account_id, "cart_add"))
        signals.wake("flows")
        assert scalar("SELECT count(*) FROM event") == 1
        for hand_over in (transactions.submit, transactions.submit_essential, transactions.run_outside_transaction):
            with pytest.raises(RuntimeError, match="simulation"):
                hand_over(run, "DELETE FROM event")
    assert heard == []
    signals.wake("flows")
    assert heard == ["flows"]


def test_a_verb_that_fails_leaves_nothing_in_the_shadow(home: Home) -> None:
    """A pretended verb is whole or not at all, and the next one goes on."""

    def fail() -> None:
        log.record(NewEvent(home.account_id, "cart_add"))
        raise ValueError("no")

    with sandbox({"event": NO_ROWS}):
        with pytest.raises(ValueError):
            transactions.write(fail)
        assert not transactions.is_in_write_transaction()
        transactions.write(log.record, NewEvent(home.account_id, "cart_remove"))
        assert [row.event for row in Event.select()] == ["cart_remove"]
        with pytest.raises(RuntimeError, match="another"):
            transactions.write(lambda: transactions.write(fail))


def test_others_see_nothing_and_the_pretended_moment_stands_still(home: Home) -> None:
    """Another thread reads and writes the real rows meanwhile; inside, none of that is seen."""
    home.contact("ann@example.org")
    seen: list[int] = []

    def other() -> None:
        seen.append(scalar("SELECT count(*) FROM contact"))
        transactions.write(run, "UPDATE contact SET first_name = 'Real'")

    with sandbox({"event": NO_ROWS, "contact": ALL_ROWS}):
        transactions.write(run, "DELETE FROM contact")
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert rows("SELECT id FROM contact") == []
        assert rows("SELECT first_name FROM main.contact") == [(None,)]
    assert seen == [1] and rows("SELECT first_name FROM contact") == [("Real",)]


def test_a_shadow_has_the_columns_and_indexes_of_its_table(home: Home) -> None:
    """Statements that name an index, and rows that a unique index refuses, are what they are outside."""
    with sandbox(dict.fromkeys((*PEOPLE, "run"), NO_ROWS)):
        for kind, name in (("index", "event_of_name"), ("index", "run_live"), ("table", "membership")):
            assert fetch_one("SELECT 1 FROM temp.sqlite_schema WHERE type = ? AND name = ?", (kind, name))
        asked = "FROM sqlite_schema WHERE type = 'index' AND tbl_name = 'event' AND sql NOT NULL"
        assert scalar(f"SELECT count(*) {asked.replace('sqlite_schema', 'temp.sqlite_schema')}") == scalar(
            f"SELECT count(*) {asked.replace('sqlite_schema', 'main.sqlite_schema')}"
        )
        assert rows("SELECT 1 FROM event e INDEXED BY event_of_name WHERE account_id = 1 AND event = 'x'") == []


def test_what_is_made_twice_has_other_ids(home: Home) -> None:
    """Two rehearsals invent no row with the same id, so that nothing remembered of one is taken for the other's."""
    made = []
    for _ in range(2):
        with sandbox({"event": NO_ROWS}):
            transactions.write(log.record, NewEvent(home.account_id, "cart_add"))
            made.append(scalar("SELECT id FROM event"))
    assert made[0] != made[1]


def test_a_shadow_lies_over_the_real_database_alone(home: Home) -> None:
    """Shadows are not stacked, and none is begun where the real database is being written."""
    with sandbox({"event": NO_ROWS}), pytest.raises(RuntimeError), sandbox({"event": NO_ROWS}):
        pass

    def verb() -> None:
        with sandbox({"event": NO_ROWS}):
            pass

    with pytest.raises(RuntimeError):
        transactions.write(verb)
    assert not is_active()
