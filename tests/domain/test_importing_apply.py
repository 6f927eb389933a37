"""A file that was only checked is applied without being handed in again, as if it had been from the first."""

import os
from pathlib import Path
from typing import Any

import pytest

from appliance.audience import lists
from appliance.audience.contacts import removal
from appliance.audience.lists import ListCreate
from appliance.audience.segments import store as segments
from appliance.audience.segments.store import SegmentCreate
from appliance.core import validation
from appliance.core.errors import Invalid, NotFound
from appliance.imports import results, store
from appliance.imports.job import Importer
from appliance.imports.store import ImportOptions, Upload
from appliance.sending.messages import transactional
from appliance.storage import transactions
from appliance.storage.database import rows, run
from appliance.storage.models import Channel, Contact, ContactList, Import
from tests.domain.home import Home

FILE = "email,first_name,town\none@example.org,One,Bath\ntwo@example.org,Two,York\nbad,x,\n"


def checked(home: Home, text: str = FILE, **options: Any) -> Import:
    """Hand in a file to be checked, and wait until it is."""
    path = home.directory / "incoming"
    path.write_text(text)
    upload = Upload(str(path), "people.csv", len(text), "contacts", ImportOptions(**options), True)
    made = transactions.write(store.create, home.account_id, upload, store.preview(upload), "user:1")
    return worked(made.id)


def worked(import_id: int) -> Import:
    """Let the job do all that waits."""
    if transactions.is_stopped():
        transactions.start()
    Importer().run()
    return Import.get_by_id(import_id)


def applied(home: Home, import_id: int, **options: Any) -> Import:
    """Apply a file that was checked, and wait until it is."""
    upload, seen = store.preview_again(home.account_id, import_id, ImportOptions(**options))
    transactions.write(store.apply, home.account_id, import_id, upload, seen, "user:2")
    return worked(import_id)


def told(home: Home, import_id: int) -> list[str]:
    """Return the results of an import, line by line."""
    return b"".join(results.stream_results(home.account_id, import_id)).decode().splitlines()[1:]


def test_what_was_checked_is_applied(home: Home) -> None:
    """The numbers are those of the check, the outcomes those of the writing, and nothing of the check is left."""
    job = checked(home)
    assert (job.created, job.failed, Contact.select().count()) == (2, 1, 0)
    done = applied(home, job.id, map={"town": "source"}, consent_source="the fair")
    assert (done.status, done.dry_run, done.total, done.created, done.failed) == ("complete", False, 3, 2, 1)
    people = {one.first_name: one for one in Contact.select()}
    assert {name: one.source for name, one in people.items()} == {"One": "Bath", "Two": "York"}
    assert [column["target"] for column in done.columns] == ["email", "first_name", "source"]
    lines = told(home, job.id)
    assert [line.split(",")[1] for line in lines] == ["created", "created", "failed"]
    assert {int(line.split(",")[4]) for line in lines[:2]} == {one.id for one in people.values()}
    assert rows("SELECT count(*) FROM import_chunk") == [(1,)]
    assert rows("SELECT DISTINCT actor, text FROM consent") == [("user:2", "the fair")]


def test_a_check_makes_no_lists(home: Home) -> None:
    """Lists that only the rows name are made by the applying, each once, in whichever letters rows name it."""
    text = 'email,lists\none@example.org,"News, Fair"\ntwo@example.org,news\n'
    job = checked(home, text, map={"lists": "lists"})
    assert (job.status, rows("SELECT name FROM contact_list")) == ("complete", [])
    assert applied(home, job.id, map={"lists": "lists"}).created == 2
    assert rows("SELECT name_key, contacts_count FROM contact_list ORDER BY 1") == [("fair", 1), ("news", 2)]


def test_who_was_written_to_or_put_further_stays(home: Home) -> None:
    """Taking an import back removes those it made, but for whom something else was done with since."""
    text = "email\n" + "".join(f"{name}@example.org\n" for name in ("plain", "written", "listed", "changed", "moved"))
    job = applied(home, checked(home, text).id)
    ids = {one.value.partition("@")[0]: one.contact_id for one in Channel.select()}
    body = {"to": "written@example.org", "subject": "Hi", "body": "<p>x</p>"}
    transactions.write(transactional.queue_message, home.account_id, validation.read(transactional.MessageWrite, body))
    home.list_of(ids["listed"])
    home.advance(1)
    home.patch(ids["changed"], first_name="Anna")
    home.leave("moved@example.org")
    transactions.write(store.undo, home.account_id, job.id)

    done = worked(job.id)
    assert done.phase == "undone"
    assert {one.id for one in Contact.select()} == set(ids.values()) - {ids["plain"]}
    assert done.left_in_place == {"messaged": 1, "in_another_list": 1, "changed": 2}


def test_what_happens_by_itself_keeps_nobody_from_being_taken_back(home: Home) -> None:
    """A list that mirrors a segment takes everybody, and a campaign skips who is unsubscribed: nobody did anything."""
    kept = home.contact("kept@example.org").id
    segment = transactions.write(segments.create, home.account_id, SegmentCreate(name="All", filters=[]))
    mirror = transactions.write(lists.create, home.account_id, ListCreate("Mirror", segment_id=segment.id))
    group = home.list_of(name="Fair")
    text = "email,status\n" + "".join(f"m{number}@example.org,\n" for number in range(60)) + "skipped@example.org,out\n"
    job = applied(home, checked(home, text, list_ids=[group.id]).id, list_ids=[group.id])
    lists.refresh_mirror(mirror.id)
    assert lists.get(home.account_id, mirror.id).contacts_count == 62
    skipped = Channel.get(Channel.key == "skipped@example.org").contact_id
    body = {"to": "skipped@example.org", "subject": "Hi", "body": "<p>x</p>"}
    sent = transactions.write(
        transactional.queue_message, home.account_id, validation.read(transactional.MessageWrite, body)
    )
    transactions.write(run, "UPDATE message SET status = 'skipped' WHERE contact_id = ?", (skipped,))
    transactions.write(store.undo, home.account_id, job.id)

    done = worked(job.id)
    assert sent and (done.phase, done.restored, done.left_in_place) == ("undone", 61, {})
    assert [one.id for one in Contact.select()] == [kept]
    assert [lists.get(home.account_id, one.id).contacts_count for one in (mirror, group)] == [1, 0]


def test_what_an_import_said_of_addresses_is_taken_back(home: Home) -> None:
    """An opt-out that it lifted is remembered again; an address that it added goes, unless it was written to since."""
    left = home.contact("left@example.org").id
    home.patch(left, subscribed_email=False)
    transactions.write(removal.delete, home.account_id, left)
    remembered = rows("SELECT kind, address_hash, by, created_at FROM opt_out")
    for number in ("+14155550101", "+14155550102"):
        home.upsert(phone=number)
    text = "email,phone\nleft@example.org,\nsent@example.org,+14155550101\nnew@example.org,+14155550102\n"
    job = applied(home, checked(home, text, opt_in=True).id, opt_in=True)
    assert (job.created, job.updated, len(remembered), rows("SELECT * FROM opt_out")) == (1, 2, 1, [])
    transactions.write(run, "UPDATE channel SET sent_count = 1 WHERE key = 'sent@example.org'")
    transactions.write(store.undo, home.account_id, job.id)

    assert worked(job.id).phase == "undone"
    assert rows("SELECT kind, address_hash, by, created_at FROM opt_out") == remembered
    kept = {"+14155550101", "+14155550102", "sent@example.org"}
    assert {one.value for one in Channel.select()} == kept


def test_results_are_safe_to_open_and_say_why_they_are_gone(home: Home) -> None:
    """What would be a formula has a quote before it, a number of a phone has none; after a week there are no lines."""
    job = checked(home, "phone\n+14155550101\n=1+1\n+44 no number\n")
    assert [line.split(",")[3] for line in told(home, job.id)] == ["+14155550101", "'=1+1", "'+44 no number"]
    home.advance(8 * 86_400)
    (store.import_directory(job.id) / "staging.db").unlink()
    with pytest.raises(NotFound, match="kept for 7 days"):
        told(home, job.id)


def test_a_file_is_on_disk_before_it_is_spoken_of(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """The upload before its import is there, the staging file before its people are: with the way to each."""
    synced: list[tuple[int, Any]] = []
    real = os.fsync

    def watched(handle: int) -> None:
        real(handle)
        synced.append((os.fstat(handle).st_ino, rows("SELECT phase FROM import")))

    monkeypatch.setattr(os, "fsync", watched)
    place = store.import_directory(checked(home).id)
    upload, staging = ((place / name).stat().st_ino for name in ("upload", "staging.db"))
    home_of, all_of = place.stat().st_ino, place.parent.stat().st_ino

    assert [one for one, _ in synced] == [upload, home_of, all_of, staging, home_of]
    assert synced[0][1] == [] and [said for _, said in synced[3:]] == [[("staging",)]] * 2


def test_its_day_begins_with_the_applying(home: Home) -> None:
    """Checked two days ago, applied now: it can be undone for a day from now, and then leaves nobody."""
    job = checked(home)
    assert job.undo_until is None
    home.advance(2 * 86_400)
    done = applied(home, job.id)
    assert done.undo_until == done.completed_at + store.UNDO_MS
    home.advance(86_000)
    transactions.write(store.undo, home.account_id, job.id)
    assert worked(job.id).phase == "undone" and Contact.select().count() == 0


def test_an_upload_keeps_its_time_and_its_results_are_kept_from_their_completion(home: Home) -> None:
    """Applied five days after the upload, the results are kept for seven days from then."""
    job = checked(home)
    home.advance(5 * 86_400)
    done = applied(home, job.id)
    assert done.created_at == job.created_at < done.completed_at
    home.advance(6 * 86_400)
    worked(job.id)
    assert len(told(home, job.id)) == 3
    home.advance(2 * 86_400)
    for path in (directory := store.import_directory(job.id), *directory.iterdir()):
        os.utime(path, (0, 0))
    worked(job.id)
    with pytest.raises(NotFound, match="kept for 7 days"):
        told(home, job.id)


def test_people_who_came_meanwhile_count(home: Home) -> None:
    """The check is no promise: whoever was added since is updated."""
    job = checked(home)
    home.contact("one@example.org", first_name="Before")
    done = applied(home, job.id)
    assert (done.created, done.updated) == (1, 1)
    assert {one.first_name for one in Contact.select()} == {"One", "Two"}


def test_what_cannot_be_applied(home: Home) -> None:
    """Twice, of another account, with columns that are not there, without lists, or without its file."""
    job = checked(home)
    with pytest.raises(NotFound):
        store.preview_again(home.account_id + 1, job.id, ImportOptions())
    with pytest.raises(Invalid) as fault:
        store.preview_again(home.account_id, job.id, ImportOptions(map={"nope": "source"}))
    assert fault.value.fields == {"options.map.nope": ["must exist"]}
    with pytest.raises(Invalid) as fault:
        store.preview_again(home.account_id, job.id, ImportOptions(map={"email": ""}))
    assert fault.value.fields == {"file": ["has no column of addresses"]}
    with pytest.raises(Invalid) as fault:
        applied(home, job.id, list_ids=[99])
    assert set(fault.value.fields) == {"options.list_ids"}
    assert applied(home, job.id).created == 2
    with pytest.raises(Invalid) as fault:
        applied(home, job.id)
    assert fault.value.reason == "invalid_transition"
    other = checked(home)
    Path(store.import_directory(other.id) / "upload").unlink()
    with pytest.raises(Invalid, match="hand it in again"):
        applied(home, other.id)
    assert Contact.select().count() == 2


def held(home: Home, text: str) -> Import:
    """Hand in a file of which nobody has said yet what its columns are."""
    path = home.directory / "incoming"
    path.write_text(text)
    upload = Upload(str(path), "people.csv", len(text), "contacts", ImportOptions(), True)
    return transactions.write(
        store.create_unmapped, home.account_id, upload, store.preview(upload, mapped=False), "user:1"
    )


def check(home: Home, import_id: int, **options: Any) -> Import:
    """Check a file with what is said of it now, and wait until that is done."""
    upload, seen = store.preview_again(home.account_id, import_id, ImportOptions(**options))
    transactions.write(store.check, home.account_id, import_id, upload, seen, "user:1")
    return worked(import_id)


def test_a_file_waits_until_its_columns_are_known(home: Home) -> None:
    """A file without a column that looks like addresses is kept; it is read once somebody has said which one is."""
    job = held(home, "Who,Where\nAnn,ann@example.org\n")
    assert worked(job.id).phase == "mapping"
    with pytest.raises(Invalid):
        check(home, job.id)
    done = check(home, job.id, map={"Who": "first_name", "Where": "email"})
    assert (done.status, done.dry_run, done.phase, done.created) == ("complete", True, None, 1)
    assert check(home, job.id, map={"Who": "", "Where": "email"}).created == 1
    assert applied(home, job.id, map={"Who": "", "Where": "email"}).created == 1
    assert [one.first_name for one in Contact.select()] == [None]


def test_a_list_that_is_named_is_made_when_it_is_needed(home: Home) -> None:
    """A check makes no list; the import makes the one that is missing and finds the one that is there."""
    there = transactions.write(lists.create, home.account_id, ListCreate("Fair"))
    job = held(home, FILE)
    assert check(home, job.id, list_names=["FAIR", "Spring"]).created == 2
    assert [one.name for one in ContactList.select()] == ["Fair"]
    applied(home, job.id, list_names=["FAIR", "Spring"])
    assert sorted(one.name for one in ContactList.select()) == ["Fair", "Spring"]
    assert lists.get(home.account_id, there.id).contacts_count == 2


def test_what_is_worth_a_look_is_told(home: Home) -> None:
    """Wrong rows, doubles and addresses of roles are counted with their lines, and who left before stays out."""
    home.upsert(email="left@example.org", opt_in=True)
    home.leave("left@example.org")
    text = "email\nann@example.org\nInfo@example.org\nANN@example.org\nbad\nleft@example.org\ninfo@example.org\n"
    job = checked(home, text)
    seen = results.review_file(store.import_directory(job.id) / "staging.db")
    assert (seen.faults.number, seen.faults.first[0][0]) == (1, 5)
    assert seen.doubles == (2, [(4, "ANN@example.org", "2"), (7, "info@example.org", "3")])
    assert seen.roles == (1, [(3, "Info@example.org", "")])
    gathering = results.OutcomeReviewer(job.id)
    assert not gathering.more()
    told = gathering.told(job, store.import_directory(job.id) / "staging.db")
    assert (told.kept, told.unsubscribed) == (1, (1, [(6, "left@example.org", "before")]))


def test_what_wrote_nothing_can_be_forgotten(home: Home) -> None:
    """A file that was held or checked goes with all that was kept of it; what was applied, or runs, does not."""
    job = checked(home)
    transactions.write(store.discard, home.account_id, job.id)
    transactions.run_outside_transaction(list)  # what follows a commit is done
    assert (Import.select().count(), rows("SELECT count(*) FROM import_chunk")) == (0, [(0,)])
    assert not store.import_directory(job.id).exists()
    applied_one = checked(home)
    applied(home, applied_one.id)
    with pytest.raises(Invalid):
        transactions.write(store.discard, home.account_id, applied_one.id)
    with pytest.raises(NotFound):
        transactions.write(store.discard, home.account_id + 1, applied_one.id)
