"""The running tasks in the status: imports and bulk actions."""

from typing import Any

from appliance.core import clock
from appliance.ops import status
from appliance.ops.status import Task
from appliance.storage import transactions
from appliance.storage.database import run
from appliance.storage.models import BulkAction, BulkActionPart, Import
from tests.domain.home import Home


def list_tasks(home: Home) -> list[Task]:
    """Return the tasks of a running service."""
    return status.collect_tasks(home.directory, 1)


def create_import(home: Home, **fields: Any) -> int:
    """Create an import and return its id."""
    defaults = {"account": home.account_id, "resource": "contacts", "status": "processing", "filename": "people.csv",
            "bytes": 9, "format": "csv", "actor": "key:1", "created_at": 1, "updated_at": 1}  # fmt: skip
    return int(transactions.write(Import.create, **(defaults | fields)).id)


def test_imports_show_their_progress(home: Home) -> None:
    """Waiting, reading, checking, writing (with its rate) and undoing imports are listed, completed ones are not."""
    create_import(home, status="pending")
    create_import(home, phase="staging", total=5_000)
    import_id = create_import(home, phase="applying", total=1_000, processed=250)
    create_import(home, phase="applying", dry_run=True, total=10, processed=10)
    create_import(home, status="complete", phase="undoing", created=60, updated=20, restored=40)
    create_import(home, status="complete")
    chunk = "INSERT INTO import_chunk (import_job_id, number, outcomes, created_at) VALUES (?, 250, x'', ?)"
    transactions.write(run, chunk, (import_id, clock.now_ms()))
    home.advance(10)
    progress = [(task.state, task.done, task.total) for task in list_tasks(home)]
    assert progress == [("waiting", 0, None), ("reading", 0, None), ("writing", 250, 1_000), ("checking", 10, 10),
                     ("undoing", 40, 80)]  # fmt: skip
    assert list_tasks(home)[1].words == "5,000 lines read"
    applying = list_tasks(home)[2]
    assert applying.per_second is not None and 0 < applying.per_second <= 25
    assert applying.left_seconds == 750 / applying.per_second
    assert status.collect_tasks(home.directory, None)[2].per_second is None


def test_bulk_actions_show_their_progress(home: Home) -> None:
    """A bulk action's progress is the share of its parts that are done."""
    bulk_action = transactions.write(
        BulkAction.create,
        account=home.account_id,
        user_id=1,
        action="tag_add",
        contact_count=100,
        created_at=1,
        updated_at=1,
    )
    for done in (True, True, False, False):
        transactions.write(BulkActionPart.create, bulk_action=bulk_action, done=done)
    [task] = list_tasks(home)
    assert (task.kind, task.name, task.done, task.total) == ("act", "add a tag", 50, 100)
