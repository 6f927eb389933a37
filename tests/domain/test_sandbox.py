"""The sandbox: writes go to temporary copies of tables, and nothing of them remains."""

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
from appliance.storage.database import connection, fetch_one, rows, run, scalar, write_state
from appliance.storage.models import Account, Contact, ContactList, Event
from appliance.storage.sandbox import ALL_ROWS, NO_ROWS, TableRows, WriteOutsideSandbox, sandbox
from tests.domain.home import Home

CONTACT_TABLES = ("contact", "channel", "consent", "membership", "contact_list", "event", "contact_search",
                  "list_opt_out", "opt_out")  # fmt: skip


def dump_database(directory: Path) -> tuple[str, list[str]]:
    """Return a hash of the database file and its log, and all schema and rows as text."""
    reader = apsw.Connection(str(directory / "campanero.db"), flags=apsw.SQLITE_OPEN_READONLY)
    text: list[str] = []
    for name, sql in reader.execute("SELECT name, sql FROM sqlite_schema ORDER BY name").fetchall():
        text.append(f"{name} {sql}")
        if sql and sql.startswith("CREATE TABLE"):
            text += [repr(row) for row in reader.execute(f"SELECT * FROM {name}").fetchall()]
    reader.close()
    files = [(directory / f"campanero.db{suffix}") for suffix in ("", "-wal")]
    return hashlib.sha256(b"".join(path.read_bytes() for path in files if path.exists())).hexdigest(), text


def test_sandbox_writes_leave_no_trace(home: Home) -> None:
    """Rows can be read, changed and created inside; afterwards not a byte of the file has changed."""
    ann = home.contact("ann@example.org", first_name="Ann")
    home.contact("bob@example.org")
    news = home.list_of(ann.id)
    before = dump_database(home.directory)
    with sandbox(
        {
            **dict.fromkeys(CONTACT_TABLES, NO_ROWS),
            "contact": TableRows("id = :one", {"one": ann.id}),
            "contact_list": ALL_ROWS,
        }
    ):
        assert write_state.is_sandboxed
        assert [row.email_sent_count for row in Contact.select()] == [0]
        transactions.write(run, "UPDATE contact SET first_name = 'Anna' WHERE id = ?", (ann.id,))
        assert Contact.get_by_id(ann.id).first_name == "Anna"
        transactions.write(Contact.update(last_name="Lee").where(Contact.id == ann.id).execute)
        assert fetch_one("SELECT first_name, last_name FROM contact") == ("Anna", "Lee")
        contact = home.contact("cyd@example.org")
        contact_list = transactions.write(
            lists.create, home.account_id, ListCreate(name="More", contact_ids=[contact.id])
        )
        assert contact.id > 1 << 47 and contact_list.id > 1 << 47
        assert {row.id for row in ContactList.select()} == {news.id, contact_list.id}
        assert rows("SELECT contact_id FROM membership") == [(contact.id,)]
        assert Account.get_by_id(home.account_id).name == "Acme"  # a table outside the sandbox is the real one
    assert dump_database(home.directory) == before
    assert not write_state.is_sandboxed and Contact.get_by_id(ann.id).first_name == "Ann"


def test_tables_outside_the_sandbox_cannot_be_written(home: Home) -> None:
    """A write by SQL or Peewee raises WriteOutsideSandbox."""
    ann = home.contact("ann@example.org")
    before = dump_database(home.directory)
    for write in (
        lambda: run("UPDATE contact SET first_name = 'x'"),
        lambda: Contact.update(first_name="x").where(Contact.id == ann.id).execute(),
        lambda: run("UPDATE main.event SET data = '{}'"),
        lambda: run("DROP TABLE main.event"),
    ):
        with pytest.raises(WriteOutsideSandbox), sandbox({"event": NO_ROWS}):
            transactions.write(write)
        assert connection().readonly("main") is False
    assert dump_database(home.directory) == before


def test_no_side_effects_leave_the_sandbox(home: Home) -> None:
    """Actions after commit are dropped, no wake-up is delivered, and handing a write to another thread raises."""
    wake_ups: list[str] = []
    signals.register_handler("flows", lambda: wake_ups.append("flows"))
    with sandbox({"event": NO_ROWS}):
        transactions.write(log.record, NewEvent(home.account_id, "cart_add"))
        signals.wake("flows")
        assert scalar("SELECT count(*) FROM event") == 1
        for submit in (transactions.submit, transactions.submit_essential, transactions.run_outside_transaction):
            with pytest.raises(RuntimeError, match="simulation"):
                submit(run, "DELETE FROM event")
    assert wake_ups == []
    signals.wake("flows")
    assert wake_ups == ["flows"]


def test_a_failed_write_is_rolled_back_in_the_sandbox(home: Home) -> None:
    """The changes of a failed write are undone and the next one runs; a write inside another raises RuntimeError."""

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


def test_the_sandbox_is_isolated_from_other_threads(home: Home) -> None:
    """Another thread reads and writes the real rows; the sandbox does not see the writes."""
    home.contact("ann@example.org")
    counts: list[int] = []

    def change_contacts() -> None:
        counts.append(scalar("SELECT count(*) FROM contact"))
        transactions.write(run, "UPDATE contact SET first_name = 'Real'")

    with sandbox({"event": NO_ROWS, "contact": ALL_ROWS}):
        transactions.write(run, "DELETE FROM contact")
        thread = threading.Thread(target=change_contacts)
        thread.start()
        thread.join()
        assert rows("SELECT id FROM contact") == []
        assert rows("SELECT first_name FROM main.contact") == [(None,)]
    assert counts == [1] and rows("SELECT first_name FROM contact") == [("Real",)]


def test_sandbox_tables_have_the_indexes_of_the_originals(home: Home) -> None:
    """Statements that name an index work in the sandbox."""
    with sandbox(dict.fromkeys((*CONTACT_TABLES, "run"), NO_ROWS)):
        for kind, name in (("index", "event_of_name"), ("index", "run_live"), ("table", "membership")):
            assert fetch_one("SELECT 1 FROM temp.sqlite_schema WHERE type = ? AND name = ?", (kind, name))
        condition = "FROM sqlite_schema WHERE type = 'index' AND tbl_name = 'event' AND sql NOT NULL"
        assert scalar(f"SELECT count(*) {condition.replace('sqlite_schema', 'temp.sqlite_schema')}") == scalar(
            f"SELECT count(*) {condition.replace('sqlite_schema', 'main.sqlite_schema')}"
        )
        assert rows("SELECT 1 FROM event e INDEXED BY event_of_name WHERE account_id = 1 AND event = 'x'") == []


def test_sandboxes_use_different_ids(home: Home) -> None:
    """Rows created in two sandboxes have different ids."""
    ids = []
    for _ in range(2):
        with sandbox({"event": NO_ROWS}):
            transactions.write(log.record, NewEvent(home.account_id, "cart_add"))
            ids.append(scalar("SELECT id FROM event"))
    assert ids[0] != ids[1]


def test_sandboxes_cannot_be_nested(home: Home) -> None:
    """A sandbox cannot be opened in another one or in a write transaction."""
    with sandbox({"event": NO_ROWS}), pytest.raises(RuntimeError), sandbox({"event": NO_ROWS}):
        pass

    def open_sandbox() -> None:
        with sandbox({"event": NO_ROWS}):
            pass

    with pytest.raises(RuntimeError):
        transactions.write(open_sandbox)
    assert not write_state.is_sandboxed
