"""Imports that were checked first and then applied, and their results, undo and options."""

import os
from pathlib import Path
from typing import Any

import pytest

from appliance.audience import lists, mirrors
from appliance.audience.contacts import removal
from appliance.audience.lists import ListCreate
from appliance.audience.segments import store as segments
from appliance.audience.segments.store import SegmentCreate
from appliance.core import validation
from appliance.core.errors import Invalid, NotFound
from appliance.imports import job as job_module
from appliance.imports import outcome_counts, results, store
from appliance.imports import removal as import_removal
from appliance.imports.job import Importer
from appliance.imports.store import ImportOptions, Upload
from appliance.sending.messages import transactional
from appliance.storage import transactions
from appliance.storage.database import rows, run
from appliance.storage.models import Channel, Contact, ContactList, Import
from tests.domain.home import Home

FILE = "email,first_name,town\none@example.org,One,Bath\ntwo@example.org,Two,York\nbad,x,\n"


def create_checked_import(home: Home, text: str = FILE, resource: Any = "contacts", **options: Any) -> Import:
    """Create an import as a dry run, and run it."""
    path = home.directory / "incoming"
    path.write_text(text)
    upload = Upload(str(path), "people.csv", len(text), resource, ImportOptions(**options), True)
    import_job = transactions.write(store.create, home.account_id, upload, store.preview(upload), "user:1")
    return run_importer(import_job.id)


def run_importer(import_id: int) -> Import:
    """Run the importer until no work is left, and return the import."""
    if transactions.is_stopped():
        transactions.start()
    Importer().run()
    return Import.get_by_id(import_id)


def apply_import(home: Home, import_id: int, **options: Any) -> Import:
    """Apply a checked import, and run it."""
    upload, preview = store.preview_again(home.account_id, import_id, ImportOptions(**options))
    transactions.write(store.apply, home.account_id, import_id, upload, preview, "user:2")
    return run_importer(import_id)


def result_lines(home: Home, import_id: int) -> list[str]:
    """Return the lines of the results file, without its header."""
    return b"".join(results.stream_results(home.account_id, import_id)).decode().splitlines()[1:]


def test_a_checked_import_can_be_applied(home: Home) -> None:
    """The counts equal those of the check, results have contact ids, and the options of the check are replaced."""
    job = create_checked_import(home)
    assert (job.created, job.failed, Contact.select().count()) == (2, 1, 0)
    applied_job = apply_import(home, job.id, map={"town": "source"}, consent_source="the fair")
    assert (applied_job.status, applied_job.dry_run, applied_job.total, applied_job.created, applied_job.failed) == (
        "complete",
        False,
        3,
        2,
        1,
    )
    contacts = {contact.first_name: contact for contact in Contact.select()}
    assert {name: contact.source for name, contact in contacts.items()} == {"One": "Bath", "Two": "York"}
    assert [column["target"] for column in applied_job.columns] == ["email", "first_name", "source"]
    lines = result_lines(home, job.id)
    assert [line.split(",")[1] for line in lines] == ["created", "created", "failed"]
    assert {int(line.split(",")[4]) for line in lines[:2]} == {contact.id for contact in contacts.values()}
    assert rows("SELECT count(*) FROM import_chunk") == [(1,)]
    assert rows("SELECT DISTINCT actor, text FROM consent") == [("user:2", "the fair")]


def test_a_check_creates_no_lists(home: Home) -> None:
    """Lists named in rows are created when the import is applied, once for all spellings in upper or lower case."""
    text = 'email,lists\none@example.org,"News, Fair"\ntwo@example.org,news\n'
    job = create_checked_import(home, text, map={"lists": "lists"})
    assert (job.status, rows("SELECT name FROM contact_list")) == ("complete", [])
    assert apply_import(home, job.id, map={"lists": "lists"}).created == 2
    assert rows("SELECT name_key, contacts_count FROM contact_list ORDER BY 1") == [("fair", 1), ("news", 2)]


def test_undo_keeps_contacts_used_since(home: Home) -> None:
    """Undo deletes the import's contacts except those messaged, added to a list or changed since."""
    text = "email\n" + "".join(f"{name}@example.org\n" for name in ("plain", "written", "listed", "changed", "moved"))
    job = apply_import(home, create_checked_import(home, text).id)
    contact_ids = {row.value.partition("@")[0]: row.contact_id for row in Channel.select()}
    body = {"to": "written@example.org", "subject": "Hi", "body": "<p>x</p>"}
    transactions.write(transactional.queue_message, home.account_id, validation.read(transactional.MessageWrite, body))
    home.list_of(contact_ids["listed"])
    home.advance(1)
    home.patch(contact_ids["changed"], first_name="Anna")
    home.opt_out("moved@example.org")
    forecast = import_removal.forecast_undo(store.get(home.account_id, job.id))
    transactions.write(store.undo, home.account_id, job.id)

    undone_job = run_importer(job.id)
    assert undone_job.phase == "undone"
    assert {row.id for row in Contact.select()} == set(contact_ids.values()) - {contact_ids["plain"]}
    assert undone_job.left_in_place == {"messaged": 1, "in_another_list": 1, "changed": 2}
    assert forecast == (undone_job.removed, 0, undone_job.left_in_place)


def test_undo_ignores_mirrors_and_skipped_messages(home: Home) -> None:
    """Contacts that are only in a mirror, or have only a skipped message, are deleted by undo."""
    kept_id = home.contact("kept@example.org").id
    segment = transactions.write(segments.create, home.account_id, SegmentCreate(name="All", filters=[]))
    mirror = transactions.write(lists.create, home.account_id, ListCreate("Mirror", segment_id=segment.id))
    fair_list = home.list_of(name="Fair")
    text = "email,status\n" + "".join(f"m{number}@example.org,\n" for number in range(60)) + "skipped@example.org,out\n"
    job = apply_import(home, create_checked_import(home, text, list_ids=[fair_list.id]).id, list_ids=[fair_list.id])
    mirrors.refresh_mirror(mirror.id)
    assert lists.get(home.account_id, mirror.id).contacts_count == 62
    skipped = Channel.get(Channel.key == "skipped@example.org").contact_id
    body = {"to": "skipped@example.org", "subject": "Hi", "body": "<p>x</p>"}
    sent = transactions.write(
        transactional.queue_message, home.account_id, validation.read(transactional.MessageWrite, body)
    )
    transactions.write(run, "UPDATE message SET status = 'skipped' WHERE contact_id = ?", (skipped,))
    transactions.write(store.undo, home.account_id, job.id)

    undone_job = run_importer(job.id)
    assert sent and (undone_job.phase, undone_job.restored, undone_job.left_in_place) == ("undone", 61, {})
    assert [row.id for row in Contact.select()] == [kept_id]
    assert [lists.get(home.account_id, row.id).contacts_count for row in (mirror, fair_list)] == [1, 0]


def test_undo_restores_opt_outs_and_addresses(home: Home) -> None:
    """An opt-out that the import lifted is restored; added addresses go unless messaged since."""
    opted_out_id = home.contact("left@example.org").id
    home.patch(opted_out_id, subscribed_email=False)
    transactions.write(removal.delete, home.account_id, opted_out_id)
    opt_outs = rows("SELECT kind, address_hash, by, created_at FROM opt_out")
    for number in ("+14155550101", "+14155550102"):
        home.upsert(phone=number)
    text = "email,phone\nleft@example.org,\nsent@example.org,+14155550101\nnew@example.org,+14155550102\n"
    job = apply_import(home, create_checked_import(home, text, opt_in=True).id, opt_in=True)
    assert (job.created, job.updated, len(opt_outs), rows("SELECT * FROM opt_out")) == (1, 2, 1, [])
    transactions.write(run, "UPDATE channel SET sent_count = 1 WHERE key = 'sent@example.org'")
    transactions.write(store.undo, home.account_id, job.id)

    assert run_importer(job.id).phase == "undone"
    assert rows("SELECT kind, address_hash, by, created_at FROM opt_out") == opt_outs
    expected = {"+14155550101", "+14155550102", "sent@example.org"}
    assert {channel.value for channel in Channel.select()} == expected


def test_result_files_are_safe_and_expire(home: Home) -> None:
    """Formulas get a leading quote, phone numbers do not; without the staging file the results are not found."""
    job = create_checked_import(home, "phone\n+14155550101\n=1+1\n+44 no number\n")
    assert [line.split(",")[3] for line in result_lines(home, job.id)] == ["+14155550101", "'=1+1", "'+44 no number"]
    home.advance(8 * 86_400)
    (store.import_directory(job.id) / "staging.db").unlink()
    with pytest.raises(NotFound, match="kept for 7 days"):
        result_lines(home, job.id)


def test_import_files_are_synced_before_use(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Upload and staging file are synced with their directories before the database refers to them."""
    synced: list[tuple[int, Any]] = []
    fsync = os.fsync

    def recording_fsync(descriptor: int) -> None:
        fsync(descriptor)
        synced.append((os.fstat(descriptor).st_ino, rows("SELECT phase FROM import")))

    monkeypatch.setattr(os, "fsync", recording_fsync)
    directory = store.import_directory(create_checked_import(home).id)
    upload, staging = ((directory / name).stat().st_ino for name in ("upload", "staging.db"))
    directory_inode, parent_inode = directory.stat().st_ino, directory.parent.stat().st_ino

    assert [inode for inode, _ in synced] == [upload, directory_inode, parent_inode, staging, directory_inode]
    assert synced[0][1] == [] and [phases for _, phases in synced[3:]] == [[("staging",)]] * 2


def test_the_undo_period_starts_when_the_import_is_applied(home: Home) -> None:
    """An import applied two days after its check can be undone for a day from then."""
    job = create_checked_import(home)
    assert job.undo_until is None
    home.advance(2 * 86_400)
    applied_job = apply_import(home, job.id)
    assert applied_job.undo_until == applied_job.completed_at + store.UNDO_MS
    home.advance(86_000)
    transactions.write(store.undo, home.account_id, job.id)
    assert run_importer(job.id).phase == "undone" and Contact.select().count() == 0


def test_results_are_kept_for_seven_days_from_completion(home: Home) -> None:
    """The retention counts from the completion, not from the upload."""
    job = create_checked_import(home)
    home.advance(5 * 86_400)
    applied_job = apply_import(home, job.id)
    assert applied_job.created_at == job.created_at < applied_job.completed_at
    home.advance(6 * 86_400)
    run_importer(job.id)
    assert len(result_lines(home, job.id)) == 3
    home.advance(2 * 86_400)
    for path in (directory := store.import_directory(job.id), *directory.iterdir()):
        os.utime(path, (0, 0))
    run_importer(job.id)
    with pytest.raises(NotFound, match="kept for 7 days"):
        result_lines(home, job.id)


def test_contacts_added_after_the_check_are_updated(home: Home) -> None:
    """A contact created between check and import is updated, not created."""
    job = create_checked_import(home)
    home.contact("one@example.org", first_name="Before")
    applied_job = apply_import(home, job.id)
    assert (applied_job.created, applied_job.updated) == (1, 1)
    assert {contact.first_name for contact in Contact.select()} == {"One", "Two"}


def test_invalid_applications_are_rejected(home: Home) -> None:
    """Other accounts, unknown columns or lists, a second time or a missing upload are rejected."""
    job = create_checked_import(home)
    with pytest.raises(NotFound):
        store.preview_again(home.account_id + 1, job.id, ImportOptions())
    with pytest.raises(Invalid) as error_info:
        store.preview_again(home.account_id, job.id, ImportOptions(map={"nope": "source"}))
    assert error_info.value.fields == {"options.map.nope": ["must exist"]}
    with pytest.raises(Invalid) as error_info:
        store.preview_again(home.account_id, job.id, ImportOptions(map={"email": ""}))
    assert error_info.value.fields == {"file": ["has no column of addresses"]}
    with pytest.raises(Invalid) as error_info:
        apply_import(home, job.id, list_ids=[99])
    assert set(error_info.value.fields) == {"options.list_ids"}
    assert apply_import(home, job.id).created == 2
    with pytest.raises(Invalid) as error_info:
        apply_import(home, job.id)
    assert error_info.value.reason == "invalid_transition"
    other = create_checked_import(home)
    Path(store.import_directory(other.id) / "upload").unlink()
    with pytest.raises(Invalid, match="upload it again"):
        apply_import(home, other.id)
    assert Contact.select().count() == 2


def create_unmapped_import(home: Home, text: str) -> Import:
    """Create an import whose columns are not mapped yet."""
    path = home.directory / "incoming"
    path.write_text(text)
    upload = Upload(str(path), "people.csv", len(text), "contacts", ImportOptions(), True)
    return transactions.write(
        store.create_unmapped, home.account_id, upload, store.preview(upload, mapped=False), "user:1"
    )


def check_import(home: Home, import_id: int, **options: Any) -> Import:
    """Check an import with these options, and run it."""
    upload, preview = store.preview_again(home.account_id, import_id, ImportOptions(**options))
    transactions.write(store.check, home.account_id, import_id, upload, preview, "user:1")
    return run_importer(import_id)


def test_an_import_without_an_address_column_waits_for_a_mapping(home: Home) -> None:
    """The import is checked once a column is mapped to an address."""
    job = create_unmapped_import(home, "Who,Where\nAnn,ann@example.org\n")
    assert run_importer(job.id).phase == "mapping"
    with pytest.raises(Invalid):
        check_import(home, job.id)
    checked_job = check_import(home, job.id, map={"Who": "first_name", "Where": "email"})
    assert (checked_job.status, checked_job.dry_run, checked_job.phase, checked_job.created) == (
        "complete",
        True,
        None,
        1,
    )
    assert check_import(home, job.id, map={"Who": "", "Where": "email"}).created == 1
    assert apply_import(home, job.id, map={"Who": "", "Where": "email"}).created == 1
    assert [contact.first_name for contact in Contact.select()] == [None]


def test_named_lists_are_created_when_applied(home: Home) -> None:
    """A check creates no list; applying creates missing lists and uses existing ones."""
    existing = transactions.write(lists.create, home.account_id, ListCreate("Fair"))
    job = create_unmapped_import(home, FILE)
    assert check_import(home, job.id, list_names=["FAIR", "Spring"]).created == 2
    assert [contact_list.name for contact_list in ContactList.select()] == ["Fair"]
    apply_import(home, job.id, list_names=["FAIR", "Spring"])
    assert sorted(contact_list.name for contact_list in ContactList.select()) == ["Fair", "Spring"]
    assert lists.get(home.account_id, existing.id).contacts_count == 2


def test_the_review_of_a_checked_import(home: Home) -> None:
    """Invalid rows, duplicates and role addresses are listed with their lines; opted-out contacts are reported."""
    home.upsert(email="left@example.org", opt_in=True)
    home.opt_out("left@example.org")
    text = "email\nann@example.org\nInfo@example.org\nANN@example.org\nbad\nleft@example.org\ninfo@example.org\n"
    job = create_checked_import(home, text)
    review = results.review_file(store.import_directory(job.id) / "staging.db")
    assert (review.faults.number, review.faults.first[0][0]) == (1, 5)
    assert review.doubles == (2, [(4, "ANN@example.org", "2"), (7, "info@example.org", "3")])
    assert review.roles == (1, [(3, "Info@example.org", "")])
    reviewer = results.OutcomeReviewer(job.id)
    assert not reviewer.load_next()
    outcome_review = reviewer.build_review(job, store.import_directory(job.id) / "staging.db")
    assert (outcome_review.kept_opt_out_count, outcome_review.unsubscribed) == (
        1,
        (1, [(6, "left@example.org", "before")]),
    )


def test_a_checked_import_can_be_discarded(home: Home) -> None:
    """Discarding deletes its rows and files; an applied import cannot be discarded."""
    job = create_checked_import(home)
    transactions.write(store.discard, home.account_id, job.id)
    transactions.run_outside_transaction(list)  # wait for the callbacks of the commit
    assert (Import.select().count(), rows("SELECT count(*) FROM import_chunk")) == (0, [(0,)])
    assert not store.import_directory(job.id).exists()
    applied_one = create_checked_import(home)
    apply_import(home, applied_one.id)
    with pytest.raises(Invalid):
        transactions.write(store.discard, home.account_id, applied_one.id)
    with pytest.raises(NotFound):
        transactions.write(store.discard, home.account_id + 1, applied_one.id)


@pytest.mark.parametrize("chunk_rows", [2, 100])
def test_an_undo_counts_removed_and_restored_contacts_once(
    home: Home, monkeypatch: pytest.MonkeyPatch, chunk_rows: int
) -> None:  # fmt: skip
    """A contact of several rows counts once, and a new one never as restored, in whichever chunks its rows are.

    An update that changed nothing counts, too; one whose contact was deleted since does not.
    """
    monkeypatch.setattr(job_module, "_FIRST_CHUNK_ROWS", chunk_rows)
    monkeypatch.setattr(job_module, "_next_size", lambda seconds, row_count: chunk_rows)
    for number, name in enumerate(("old", "same", "gone")):
        home.upsert(email=f"{name}@example.org", phone=f"+1415555010{number}", first_name="Ada")
    text = "email,phone,name\n" + "".join(f"n{number}@example.org,,\n" for number in range(3))
    text += "old@example.org,,Bea\nsame@example.org,,Ada\ngone@example.org,,Eve\n"
    text += ",+14155550100,Cleo\nn1@example.org,,Nan\nn1@example.org,+14155550188,\n,+14155550188,Nora\n"
    job = apply_import(home, create_checked_import(home, text).id)
    assert (job.created, job.updated, outcome_counts.count_repeated(job)) == (3, 7, 4)
    gone = Channel.get(Channel.key == "gone@example.org").contact_id
    transactions.write(removal.delete, home.account_id, gone)
    transactions.write(store.undo, home.account_id, job.id)
    done = run_importer(job.id)
    assert (done.removed, done.restored, done.left_in_place) == (3, 5, {})
    assert sorted(contact.first_name for contact in Contact.select()) == ["Ada", "Ada"]


def test_an_undo_counts_the_addresses_that_are_no_longer_suppressed(home: Home) -> None:
    """An address that was suppressed before is not counted."""
    text = "email\none@example.org\ntwo@example.org\n"
    apply_import(home, create_checked_import(home, "email\none@example.org\n", resource="suppressions").id)
    job = apply_import(home, create_checked_import(home, text, resource="suppressions").id)
    transactions.write(store.undo, home.account_id, job.id)
    done = run_importer(job.id)
    assert (done.phase, done.removed, done.restored) == ("undone", 1, 1)
