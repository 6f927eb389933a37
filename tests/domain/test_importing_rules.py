"""Imports follow the consent rules, resume after an interruption, and can be undone."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.audience.consent import Evidence
from appliance.audience.contacts import removal as contact_removal
from appliance.audience.contacts import statuses
from appliance.core import clock
from appliance.core.validation import read
from appliance.imports import contact_rows, outcome_counts, removal, store
from appliance.imports import job as imports_job
from appliance.imports.contact_rows import ConsentState
from appliance.imports.job import Importer
from appliance.imports.store import ImportOptions, Upload
from appliance.storage import transactions
from appliance.storage.database import rows, run
from appliance.storage.models import Import
from tests.domain.home import Home

EVIDENCE = Evidence(source="import", actor="key:1")
REASONS = st.sampled_from([None, "manual", "hard_bounce", "soft_bounce", "complaint", "erased"])
CONSENT_STATES = st.sampled_from([(True, None), (False, None), (False, "operator"), (False, "recipient")])


@given(CONSENT_STATES, REASONS, st.booleans())
def test_an_import_replaces_only_opt_outs_by_operators(
    consent_state: tuple[bool, str | None], suppression: str | None, wanted: bool
) -> None:
    """`opt_in: false` changes nothing. A complaint, an erasure or an opt-out by the recipient blocks an opt-in."""
    subscribed, opted_out_by = consent_state
    before = ConsentState(subscribed, opted_out_by, 5 if opted_out_by else None, None, suppression)
    decision = contact_rows.decide_consent(1, before, None, wanted)
    after = (decision.consent.subscribed, decision.consent.opted_out_by, decision.is_still_blocked)
    if not wanted:
        assert after == (subscribed, opted_out_by, False)
    elif suppression in ("complaint", "erased") or opted_out_by == "recipient":
        assert after == (subscribed, opted_out_by, True)
    else:
        assert after == (True, None, suppression is not None)


@pytest.mark.parametrize(
    ("acts", "is_refused"),
    [
        ([("opt_out", 1)], True),
        ([("opt_out", 1), ("opt_in", None)], False),
        ([("opt_out", 1), ("opt_in", 2)], False),
        ([("opt_out", 1), ("opt_in", 2), ("import_undone", 2)], True),
        ([("opt_out", 1), ("opt_out", 2), ("import_undone", 2)], True),
        ([("opt_out", 1), ("opt_out", 2), ("import_undone", 2), ("import_undone", 1)], False),
        ([("opt_out", 1), ("confirmed", None), ("opt_out", 3)], True),
    ],
)
def test_the_no_of_a_file_is_in_force_until_it_is_lifted_or_undone(
    acts: list[tuple[str, int | None]], is_refused: bool
) -> None:
    """An undo also restores the no that the undone import had lifted."""
    evidence = [(number, "email", b"hash", *act) for number, act in enumerate(acts)]

    assert contact_rows.find_refused_addresses(evidence) == ({("email", b"hash")} if is_refused else set())


def create_import(home: Home, content: str, **options: Any) -> Import:
    """Create an import as the API does; it starts the writer thread, which the importer needs."""
    transactions.start()
    path = store.import_directory() / "incoming"
    path.write_text(content)
    upload = Upload(str(path), "people.csv", len(content), "contacts", read(ImportOptions, options))
    return transactions.write(store.create, home.account_id, upload, store.preview(upload), "key:1")


def snapshot_tables(home: Home) -> list[list[tuple[Any, ...]]]:
    """Return all that an import may change, without volatile ids and times."""
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


def create_contacts(home: Home) -> None:
    """Create contacts in various consent states whom the file updates."""
    for number in range(0, 40, 4):
        home.contact(f"p{number}@example.org", first_name="Old", data={"x": -1, "y": number})
    home.opt_out("p4@example.org")
    home.patch(home.contact("p8@example.org").id, opt_in=False)
    home.suppress("p12@example.org", "hard_bounce")
    home.suppress("nobody@example.org", "manual")


PLAIN = "email,first_name,last_name,source,country_code,tracking,verified,x,opt_in_at,lists\n" + "".join(
    f"Q{n}@Example.org,{'Ann' if n % 2 else ''},{'van Dam' if n % 3 else ''},{'fair' if n % 5 == 0 else ''},"
    f"{'DE' if n % 7 == 0 else ''},{'none' if n % 4 == 0 else ''},{'yes' if n % 6 == 0 else ''},{n},"
    f"{'2020-01-02' if n % 8 == 0 else ''},People\n"
    for n in range(50)
)
QUERIES = (
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
def test_the_bulk_path_gives_the_same_rows(tmp_path: Path, opt_in: bool) -> None:
    """Rows inserted in bulk give the same result as rows with a list column, which are written one by one."""
    results = []
    for number, target in enumerate(("lists", "")):
        directory = tmp_path / str(number)
        directory.mkdir()
        (directory / "secret.key").write_text("ab" * 32)
        home = Home(directory)
        contact_list = home.list_of(name="People")
        options = {"list_ids": [contact_list.id], "opt_in": opt_in, "consent_source": "a fair", "trigger_flows": True}
        create_import(home, PLAIN, map={"opt_in_at": "opt_in_at", "lists": target}, **options)
        Importer().run()
        chunks = rows("SELECT outcomes FROM import_chunk")
        bulk_counts = [msgspec.msgpack.decode(chunk)[0][3] for (chunk,) in chunks]
        assert sum(bulk_counts) == (0 if target else 50)
        results.append([rows(sql) for sql in QUERIES])
        home.close()

    assert results[0] == results[1]
    assert len(results[0][0]) == len(results[0][4]) == 50 and (len(results[0][2]) == 50) is opt_in


@pytest.mark.parametrize("stops", [1, 2, 3])
def test_an_interrupted_import_gives_the_same_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stops: int
) -> None:
    """An import stopped after any transaction and resumed ends like an uninterrupted one."""
    results = []
    monkeypatch.setattr("appliance.imports.job._FIRST_CHUNK_ROWS", 7)
    monkeypatch.setattr("appliance.imports.job._MAX_CHUNK_ROWS", 7)
    monkeypatch.setattr("appliance.imports.job._MIN_CHUNK_ROWS", 7)
    for cut in (0, stops):
        directory = tmp_path / str(cut)
        directory.mkdir()
        (directory / "secret.key").write_text("ab" * 32)  # the same address hashes in both installations
        home = Home(directory)
        create_contacts(home)
        contact_list = home.list_of()
        job = create_import(home, FILES, list_ids=[contact_list.id])
        for _ in range(cut):
            importer = Importer()
            original = imports_job.apply_chunk

            def apply_and_stop(*arguments: Any, to: Importer = importer, do: Any = original) -> None:
                do(*arguments)
                to.stopping.set()

            monkeypatch.setattr(imports_job, "apply_chunk", apply_and_stop)
            importer.run()
            monkeypatch.setattr(imports_job, "apply_chunk", original)
            assert Import.get_by_id(job.id).status == "processing"
        Importer().run()
        finished_job = Import.get_by_id(job.id)
        results.append(
            [
                snapshot_tables(home),
                (
                    finished_job.status,
                    finished_job.created,
                    finished_job.updated,
                    finished_job.skipped,
                    finished_job.failed,
                ),
            ]
        )
        home.close()

    assert results[0] == results[1]
    assert results[0][1] == ("complete", 30, 30, 0, 0)


def test_undo_restores_the_state_before_the_import(home: Home) -> None:
    """Without other changes, contacts, addresses, consent, lists, suppressions and search are as before."""
    create_contacts(home)
    contact_list = home.list_of()
    before = snapshot_tables(home)
    job = create_import(home, FILES, list_ids=[contact_list.id])
    Importer().run()
    assert snapshot_tables(home) != before
    transactions.write(store.undo, home.account_id, job.id)
    Importer().run()

    assert Import.get_by_id(job.id).phase == "undone"
    assert snapshot_tables(home) == before


# Rows that change the same contacts two or three times: new ones (n), an opted-out one (out) and subscribed ones (in)
CHANGED_TWICE = """email,phone,first_name,newsletter,lists
n1@example.org,,A,,
n2@example.org,,A,,
out@example.org,,A,yes,
in1@example.org,,A,no,
in2@example.org,,A,no,
said@example.org,,A,no,
filler@example.org,,A,,
n1@example.org,+14155550001,B,no,Second
n2@example.org,+14155550002,B,no,Second
out@example.org,+14155550003,B,no,Second
in1@example.org,,B,yes,
in2@example.org,,B,no,Second
said@example.org,,B,yes,
"""


@pytest.mark.parametrize("has_stopped_clock", [False, True])
def test_an_undo_does_not_depend_on_the_chunks(
    has_stopped_clock: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Contacts, consent and evidence are the same after an undo, however the rows were cut into chunks.

    A new contact that stays keeps everything that the import wrote. Two chunks may be written in one millisecond.
    """
    if has_stopped_clock:
        monkeypatch.setattr(clock, "now_ms", lambda now=clock.now_ms(): now)
    results: list[list[Any]] = []
    for size in (100, 7, 1):
        for name in ("_FIRST_CHUNK_ROWS", "_MAX_CHUNK_ROWS", "_MIN_CHUNK_ROWS"):
            monkeypatch.setattr(f"appliance.imports.job.{name}", size)
        directory = tmp_path / str(size)
        directory.mkdir()
        (directory / "secret.key").write_text("ab" * 32)
        home = Home(directory)
        for name in ("in1", "in2"):
            home.contact(f"{name}@example.org", first_name="Old")
        for name in ("out", "said"):
            home.patch(home.contact(f"{name}@example.org", first_name="Old").id, opt_in=False)
        job = create_import(home, CHANGED_TWICE, opt_in=True, map={"lists": "lists"})
        Importer().run()
        assert rows("SELECT count(*) FROM import_chunk") == [(-(-13 // size),)]
        ((kept_id,),) = rows("SELECT contact_id FROM channel WHERE key = 'n2@example.org'")
        home.list_of(kept_id, name="Kept")
        forecast = removal.forecast_undo(Import.get_by_id(job.id))
        transactions.write(store.undo, home.account_id, job.id)
        Importer().run()
        undone = Import.get_by_id(job.id)
        results.append(
            [
                forecast,
                (undone.removed, undone.restored, undone.left_in_place),
                rows("SELECT first_name, data FROM contact ORDER BY id"),
                rows("SELECT key, subscribed, opted_out_by FROM channel ORDER BY key"),
                rows("SELECT name, count(*) FROM membership JOIN contact_list ON id = contact_list_id GROUP BY 1"),
                rows("SELECT kind, hex(address_hash), act, by FROM consent WHERE source = 'import' ORDER BY 2, 3, 4"),
            ]
        )
        home.close()

    for values in zip(*results, strict=True):
        assert values[1:] == values[:1] * 2
    _, counts, _, channels, members, evidence = results[0]
    assert counts == (2, 6, {"in_another_list": 1})
    assert channels == [
        ("+14155550002", 0, None),
        ("in1@example.org", 1, None),
        ("in2@example.org", 1, None),
        ("n2@example.org", 0, "operator"),
        ("out@example.org", 0, "operator"),
        ("said@example.org", 0, "operator"),
    ]
    assert members == [("Kept", 1), ("Second", 1)]
    undone_addresses = [(kind, hashed) for kind, hashed, act, _ in evidence if act == "import_undone"]
    assert len(undone_addresses) == len(set(undone_addresses)) == 4


@pytest.mark.parametrize("chunk_rows", [100, 1])
def test_the_no_of_a_new_contact_is_in_force_for_later_rows(
    home: Home, monkeypatch: pytest.MonkeyPatch, chunk_rows: int
) -> None:
    """A no of an earlier row is kept in the same chunk and in the next, which may run in another process.

    The address was opted out before its contact was deleted, so that the no changes nothing.
    """
    for name in ("_FIRST_CHUNK_ROWS", "_MAX_CHUNK_ROWS", "_MIN_CHUNK_ROWS"):
        monkeypatch.setattr(f"appliance.imports.job.{name}", chunk_rows)
    contact = home.contact("gone@example.org")
    home.patch(contact.id, opt_in=False)
    transactions.write(contact_removal.delete, home.account_id, contact.id)
    assert rows("SELECT by FROM opt_out") == [("operator",)]
    create_import(home, "email,newsletter\ngone@example.org,no\ngone@example.org,\n", opt_in=True)
    Importer().run()

    assert rows("SELECT subscribed, opted_out_by FROM channel WHERE key = 'gone@example.org'") == [(0, "operator")]
    acts = rows("SELECT act FROM consent WHERE source = 'import' AND contact_id NOT NULL")
    assert acts == [("opt_out",)]


def test_a_cancelled_import_writes_nothing_more(home: Home) -> None:
    """A cancellation before the first transaction ends the import as `cancelled` without contacts."""
    job = create_import(home, FILES)
    transactions.write(run, "UPDATE import SET cancel_asked_at = 1 WHERE id = ?", (job.id,))
    Importer().run()

    assert Import.get_by_id(job.id).status == "cancelled"
    assert rows("SELECT count(*) FROM contact") == [(0,)]


def test_the_table_counts_contacts_as_the_import_does(home: Home) -> None:
    """The numbers of the result, by state, are those of the table of contacts."""
    file = FILES + (
        "p70@example.org,,,,unsubscribed\np70@example.org,,,,subscribed\n,+14155550199,,,\n,+14155550198,,,disabled\n"
    )
    job = create_import(home, file, opt_in_phone=True)
    Importer().run()
    result = outcome_counts.count_page_states(Import.get_by_id(job.id))
    counts = statuses.count_contacts(home.account_id)

    assert all(result[name] for name in ("subscribed", "unsubscribed", "not_subscribed", "suppressed"))
    assert {**result, **counts._asdict()} == {**counts._asdict(), **result}
    assert outcome_counts.count_reasons(Import.get_by_id(job.id)).keys() & {"before", "file"} == {"file"}


def test_phone_rows_of_a_file_match_contacts(home: Home) -> None:
    """A row with a known phone updates its contact; a phone of another contact is dropped with a warning."""
    file = "email,phone,first_name\na@example.org,+14155550001,A\n,+1 415 555 0001,B\nc@example.org,+14155550001,C\n"
    job = create_import(home, file)
    Importer().run()
    finished_job = Import.get_by_id(job.id)

    assert (finished_job.created, finished_job.updated, finished_job.failed, finished_job.warnings) == (2, 1, 0, 1)
    assert rows("SELECT first_name, country_code FROM contact ORDER BY id") == [("B", "US"), ("C", "US")]
    assert rows("SELECT count(*) FROM channel WHERE kind = 'phone'") == [(1,)]
