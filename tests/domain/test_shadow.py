"""What is only pretended is written beside the real database, by whatever way, and is gone afterwards."""

import hashlib
import threading
from pathlib import Path

import apsw
import pytest

from appliance.audience.contacts import lists
from appliance.audience.contacts.lists import ListCreate
from appliance.core import wake_ups
from appliance.events import log
from appliance.events.log import Happened
from appliance.storage import work
from appliance.storage.models import Account, Contact, ContactList, Event
from appliance.storage.open import connection, fetch_one, rows, run, scalar
from appliance.storage.sandbox import ALL, NONE, Pretended, Rows, is_shadowed, shadowed
from tests.domain.home import Home

PEOPLE = ("contact", "channel", "consent", "membership", "contact_list", "event", "contact_search", "list_refusal",
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
    with shadowed({**dict.fromkeys(PEOPLE, NONE), "contact": Rows("id = :one", {"one": ann.id}), "contact_list": ALL}):
        assert is_shadowed()
        assert [row.email_sent_count for row in Contact.select()] == [0]
        work.write(run, "UPDATE contact SET first_name = 'Anna' WHERE id = ?", (ann.id,))
        assert Contact.get_by_id(ann.id).first_name == "Anna"
        work.write(Contact.update(last_name="Lee").where(Contact.id == ann.id).execute)
        assert fetch_one("SELECT first_name, last_name FROM contact") == ("Anna", "Lee")
        made = home.contact("cyd@example.org")
        more = work.write(lists.create, home.account_id, ListCreate(name="More", contact_ids=[made.id]))
        assert made.id > 1 << 47 and more.id > 1 << 47
        assert {row.id for row in ContactList.select()} == {news.id, more.id}
        assert rows("SELECT contact_id FROM membership") == [(made.id,)]
        assert Account.get_by_id(home.account_id).name == "Acme"  # what lies in no shadow is the real one
    assert dumped(home.directory) == before
    assert not is_shadowed() and Contact.get_by_id(ann.id).first_name == "Ann"


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
        with pytest.raises(Pretended), shadowed({"event": NONE}):
            work.write(write)
        assert connection().readonly("main") is False
    assert dumped(home.directory) == before


def test_nothing_follows_and_nobody_is_woken(home: Home) -> None:
    """What a verb wants done after its commit is dropped, no bell is heard, and no other thread gets a write."""
    heard: list[str] = []
    wake_ups.answer("flows", lambda: heard.append("flows"))
    with shadowed({"event": NONE}):
        work.write(log.record, Happened(home.account_id, "cart_add"))
        wake_ups.ring("flows")
        assert scalar("SELECT count(*) FROM event") == 1
        for hand_over in (work.submit, work.record, work.between):
            with pytest.raises(RuntimeError, match="pretended"):
                hand_over(run, "DELETE FROM event")
    assert heard == []
    wake_ups.ring("flows")
    assert heard == ["flows"]


def test_a_verb_that_fails_leaves_nothing_in_the_shadow(home: Home) -> None:
    """A pretended verb is whole or not at all, and the next one goes on."""

    def fail() -> None:
        log.record(Happened(home.account_id, "cart_add"))
        raise ValueError("no")

    with shadowed({"event": NONE}):
        with pytest.raises(ValueError):
            work.write(fail)
        assert not work.is_writing()
        work.write(log.record, Happened(home.account_id, "cart_remove"))
        assert [row.event for row in Event.select()] == ["cart_remove"]
        with pytest.raises(RuntimeError, match="another"):
            work.write(lambda: work.write(fail))


def test_others_see_nothing_and_the_pretended_moment_stands_still(home: Home) -> None:
    """Another thread reads and writes the real rows meanwhile; inside, none of that is seen."""
    home.contact("ann@example.org")
    seen: list[int] = []

    def other() -> None:
        seen.append(scalar("SELECT count(*) FROM contact"))
        work.write(run, "UPDATE contact SET first_name = 'Real'")

    with shadowed({"event": NONE, "contact": ALL}):
        work.write(run, "DELETE FROM contact")
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert rows("SELECT id FROM contact") == []
        assert rows("SELECT first_name FROM main.contact") == [(None,)]
    assert seen == [1] and rows("SELECT first_name FROM contact") == [("Real",)]


def test_a_shadow_has_the_columns_and_indexes_of_its_table(home: Home) -> None:
    """Statements that name an index, and rows that a unique index refuses, are what they are outside."""
    with shadowed(dict.fromkeys((*PEOPLE, "run"), NONE)):
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
        with shadowed({"event": NONE}):
            work.write(log.record, Happened(home.account_id, "cart_add"))
            made.append(scalar("SELECT id FROM event"))
    assert made[0] != made[1]


def test_a_shadow_lies_over_the_real_database_alone(home: Home) -> None:
    """Shadows are not stacked, and none is begun where the real database is being written."""
    with shadowed({"event": NONE}), pytest.raises(RuntimeError), shadowed({"event": NONE}):
        pass

    def verb() -> None:
        with shadowed({"event": NONE}):
            pass

    with pytest.raises(RuntimeError):
        work.write(verb)
    assert not is_shadowed()
