"""What is under way, as it stands in the tables: files of people, and acts for many."""

from typing import Any

from appliance.core import clock
from appliance.ops import status
from appliance.ops.status import Task
from appliance.storage import transactions
from appliance.storage.database import run
from appliance.storage.models import BulkAction, BulkActionPart, Import
from tests.domain.home import Home


def under_way(home: Home) -> list[Task]:
    """Return what a running service is said to do."""
    return status.collect_tasks(home.directory, 1)


def file(home: Home, **more: Any) -> int:
    """Make a file that was handed in."""
    base = {"account": home.account_id, "resource": "contacts", "status": "processing", "filename": "people.csv",
            "bytes": 9, "format": "csv", "actor": "key:1", "created_at": 1, "updated_at": 1}  # fmt: skip
    return int(transactions.write(Import.create, **(base | more)).id)


def test_files_are_told_by_how_far_they_are(home: Home) -> None:
    """One that waits, one that is read, one that is checked or written with its speed, and one that is taken back."""
    file(home, status="pending")
    file(home, phase="staging", total=5_000)
    number = file(home, phase="applying", total=1_000, processed=250)
    file(home, phase="applying", dry_run=True, total=10, processed=10)
    file(home, status="complete", phase="undoing", created=60, updated=20, restored=40)
    file(home, status="complete")
    chunk = "INSERT INTO import_chunk (import_job_id, number, outcomes, created_at) VALUES (?, 250, x'', ?)"
    transactions.write(run, chunk, (number, clock.now_ms()))
    home.advance(10)
    found = [(one.state, one.done, one.total) for one in under_way(home)]
    assert found == [("waiting", 0, None), ("reading", 0, None), ("writing", 250, 1_000), ("checking", 10, 10),
                     ("undoing", 40, 80)]  # fmt: skip
    assert under_way(home)[1].words == "5,000 lines read"
    written = under_way(home)[2]
    assert written.per_second is not None and 0 < written.per_second <= 25
    assert written.left_seconds == 750 / written.per_second
    assert status.collect_tasks(home.directory, None)[2].per_second is None


def test_acts_for_many_are_told_by_their_parts(home: Home) -> None:
    """An act for many people is as far as its parts are."""
    act = transactions.write(BulkAction.create, account=home.account_id, user_id=1, action="tag_add", contact_count=100,
                     created_at=1, updated_at=1)  # fmt: skip
    for done in (True, True, False, False):
        transactions.write(BulkActionPart.create, bulk_action=act, done=done)
    [found] = under_way(home)
    assert (found.kind, found.name, found.done, found.total) == ("act", "add a tag", 50, 100)
