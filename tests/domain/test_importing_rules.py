"""An import keeps to the same rules of consent as everything else, and resumes and undoes to the row."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.audience import consent
from appliance.audience.consent import Evidence
from appliance.core.validation import read
from appliance.imports import contact_rows, store
from appliance.imports import job as imports_job
from appliance.imports.contact_rows import ConsentState
from appliance.imports.job import Importer
from appliance.imports.store import ImportOptions, Upload
from appliance.storage import transactions
from appliance.storage.database import rows, run
from appliance.storage.models import Channel, Import
from tests.domain.home import Home

FILE = Evidence(source="import", actor="key:1")
REASONS = st.sampled_from([None, "manual", "hard_bounce", "soft_bounce", "complaint", "erased"])
STANDINGS = st.sampled_from([(True, None), (False, None), (False, "operator"), (False, "recipient")])


@given(STANDINGS, REASONS, st.booleans())
def test_the_rules_of_a_file_are_those_of_a_row(
    home: Home, standing: tuple[bool, str | None], suppression: str | None, wanted: bool
) -> None:
    """Whatever stands there, the quick rules and `consent.imported` come to the same."""
    subscribed, by = standing
    channel = home.channel("rule@example.org") if rows("SELECT 1 FROM channel") else None
    channel = channel or home.contact("rule@example.org").channels[0]
    channel.subscribed, channel.opted_out_by, channel.suppression = subscribed, by, suppression
    channel.opt_out_at = 5 if by else None
    transactions.write(channel.save)
    before = ConsentState(subscribed, by, channel.opt_out_at, channel.opt_in_at, suppression)
    found = contact_rows.decide_consent(1, before, None, wanted)
    kept = transactions.write(consent.apply_import_choice, channel, wanted, FILE)
    after = Channel.get_by_id(channel.id)

    assert (found.standing.subscribed, found.standing.opted_out_by, found.kept) == (
        after.subscribed, after.opted_out_by, kept,
    )  # fmt: skip


def hand_in(home: Home, content: str, **options: Any) -> Import:
    """Take a file as the API does; its job needs the writer thread, which the installation stops at its end."""
    transactions.start()
    path = store.import_directory() / "incoming"
    path.write_text(content)
    upload = Upload(str(path), "people.csv", len(content), "contacts", read(ImportOptions, options))
    return transactions.write(store.create, home.account_id, upload, store.preview(upload), "key:1")


def state(home: Home) -> list[list[tuple[Any, ...]]]:
    """Everything that an import may change, without ids and times that any write changes."""
    return [
        rows("SELECT id, first_name, last_name, data, country_code FROM contact ORDER BY id"),
        rows("SELECT contact_id, kind, key, subscribed, opted_out_by, suppression FROM channel ORDER BY id"),
        rows("SELECT contact_list_id, contact_id FROM membership ORDER BY 1, 2"),
        rows("SELECT id, contacts_count FROM contact_list ORDER BY id"),
        rows("SELECT kind, hex(address_hash), reason FROM suppression ORDER BY 1, 2, 3"),
        rows("SELECT kind, hex(address_hash), by FROM opt_out ORDER BY 1, 2"),
        rows("SELECT rowid FROM contact_search WHERE contact_search MATCH 'names: old' ORDER BY 1"),
    ]


FILES = "email,phone,first_name,x,status\n" + "".join(
    f"p{n % 40}@example.org,{f'+1415555{n:04d}' if n % 3 == 0 and n < 40 else ''},N{n},{n},"
    f"{['', '', 'unsubscribed', 'cleaned', 'disabled'][n % 5]}\n"
    for n in range(60)
)


def people(home: Home) -> None:
    """Make some people whom the file meets, in every standing."""
    for number in range(0, 40, 4):
        home.contact(f"p{number}@example.org", first_name="Old", data={"x": -1, "y": number})
    home.leave("p4@example.org")
    home.patch(home.contact("p8@example.org").id, opt_in=False)
    home.suppress("p12@example.org", "hard_bounce")
    home.suppress("nobody@example.org", "manual")


PLAIN = "email,first_name,last_name,source,country_code,tracking,verified,x,opt_in_at,lists\n" + "".join(
    f"Q{n}@Example.org,{'Ann' if n % 2 else ''},{'van Dam' if n % 3 else ''},{'fair' if n % 5 == 0 else ''},"
    f"{'DE' if n % 7 == 0 else ''},{'none' if n % 4 == 0 else ''},{'yes' if n % 6 == 0 else ''},{n},"
    f"{'2020-01-02' if n % 8 == 0 else ''},People\n"
    for n in range(50)
)
EVERYTHING = (
    "SELECT first_name, last_name, source, country_code, data, tracking FROM contact ORDER BY id",
    "SELECT contact_id, kind, value, key, subscribed, verified_at NOTNULL, opt_in_at = 1577923200000, opt_out_at, "
    "opted_out_by, suppression FROM channel ORDER BY contact_id",
    "SELECT contact_id, kind, hex(address_hash), act, by, source, actor, text, data FROM consent ORDER BY contact_id",
    "SELECT contact_id, event, data, resource_uid, resource_name, test, generated FROM event "
    "WHERE event <> 'list_create' ORDER BY contact_id, event",
    "SELECT contact_list_id, contact_id FROM membership ORDER BY 1, 2",
    "SELECT contacts_count FROM contact_list",
    "SELECT rowid FROM contact_search WHERE contact_search MATCH 'names: dam' ORDER BY 1",
    "SELECT rowid FROM contact_search WHERE contact_search MATCH 'email: q1*' ORDER BY 1",
)


@pytest.mark.parametrize("opt_in", [True, False])
def test_plain_people_come_to_the_same_as_with_every_detour(tmp_path: Path, opt_in: bool) -> None:
    """A row that names a list takes the way of all that is special; the same rows without are made by SQLite."""
    found = []
    for number, target in enumerate(("lists", "")):
        directory = tmp_path / str(number)
        directory.mkdir()
        (directory / "secret.key").write_text("ab" * 32)
        home = Home(directory)
        group = home.list_of(name="People")
        words = {"list_ids": [group.id], "opt_in": opt_in, "consent_source": "a fair", "trigger_flows": True}
        hand_in(home, PLAIN, map={"opt_in_at": "opt_in_at", "lists": target}, **words)
        Importer().run()
        packed = rows("SELECT outcomes FROM import_chunk")
        made = [msgspec.msgpack.decode(one)[0][3] for (one,) in packed]
        assert sum(made) == (0 if target else 50)
        found.append([rows(sql) for sql in EVERYTHING])
        home.close()

    assert found[0] == found[1]
    assert len(found[0][0]) == len(found[0][4]) == 50 and (len(found[0][2]) == 50) is opt_in


@pytest.mark.parametrize("stops", [1, 2, 3])
def test_an_import_that_was_cut_off_ends_as_an_undisturbed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stops: int
) -> None:
    """After any transaction the service may end; the next one goes on behind it."""
    found = []
    monkeypatch.setattr("appliance.imports.job._FIRST_CHUNK_ROWS", 7)
    monkeypatch.setattr("appliance.imports.job._MAX_CHUNK_ROWS", 7)
    monkeypatch.setattr("appliance.imports.job._MIN_CHUNK_ROWS", 7)
    for cut in (0, stops):
        directory = tmp_path / str(cut)
        directory.mkdir()
        (directory / "secret.key").write_text("ab" * 32)  # the same hashes in both
        home = Home(directory)
        people(home)
        group = home.list_of()
        job = hand_in(home, FILES, list_ids=[group.id])
        for _ in range(cut):
            halting = Importer()
            original = imports_job.apply_chunk

            def once(*given: Any, to: Importer = halting, do: Any = original) -> None:
                do(*given)
                to.stopping.set()

            monkeypatch.setattr(imports_job, "apply_chunk", once)
            halting.run()
            monkeypatch.setattr(imports_job, "apply_chunk", original)
            assert Import.get_by_id(job.id).status == "processing"
        Importer().run()
        done = Import.get_by_id(job.id)
        found.append([state(home), (done.status, done.created, done.updated, done.skipped, done.failed)])
        home.close()

    assert found[0] == found[1]
    assert found[0][1] == ("complete", 30, 30, 0, 0)


def test_undo_restores_everything(home: Home) -> None:
    """Nothing else happened since, so all is as it was: fields, addresses, consent, lists, suppressions, words."""
    people(home)
    group = home.list_of()
    before = state(home)
    job = hand_in(home, FILES, list_ids=[group.id])
    Importer().run()
    assert state(home) != before
    transactions.write(store.undo, home.account_id, job.id)
    Importer().run()

    assert Import.get_by_id(job.id).phase == "undone"
    assert state(home) == before


def test_a_cancelled_import_stops_before_its_next_transaction(home: Home) -> None:
    """What is asked to stop writes nothing more and is `cancelled`."""
    job = hand_in(home, FILES)
    transactions.write(run, "UPDATE import SET cancel_asked_at = 1 WHERE id = ?", (job.id,))
    Importer().run()

    assert Import.get_by_id(job.id).status == "cancelled"
    assert rows("SELECT count(*) FROM contact") == [(0,)]


def test_what_a_file_may_say_of_itself(home: Home) -> None:
    """A phone alone finds a person; the number of two people stays with the first, and the second comes without it."""
    file = "email,phone,first_name\na@example.org,+14155550001,A\n,+1 415 555 0001,B\nc@example.org,+14155550001,C\n"
    job = hand_in(home, file)
    Importer().run()
    done = Import.get_by_id(job.id)

    assert (done.created, done.updated, done.failed, done.warnings) == (2, 1, 0, 1)
    assert rows("SELECT first_name, country_code FROM contact ORDER BY id") == [("B", "US"), ("C", "US")]
    assert rows("SELECT count(*) FROM channel WHERE kind = 'phone'") == [(1,)]
