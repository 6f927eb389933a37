"""Housekeeping: expired rows and files are deleted in small transactions, and nothing else."""

import os
import tempfile
import threading
import time
from pathlib import Path

import pytest

from appliance.accounts import request_limits
from appliance.content import media
from appliance.core import clock
from appliance.jobs import housekeeping
from appliance.sending.messages import capture_inbox
from appliance.storage import transactions
from appliance.storage.database import run, scalar
from tests.domain.home import Home

DAY = 86_400_000
# Per table: columns (the last one sets the age), values, and the days that a row is kept
TABLES = {
    "idempotency": ("account_id, path, key, payload_hash, resource_id, created_at", "1, '/x', {n}, 'p', 1, {at}", 7),
    "captured_message": (
        "account_id, channel, mail_from, rcpt_to, size, source, received_at",
        "1, 'email', 'a@x', 'b@x', 5, 'words', {at}", 90,
    ),
    "confirmation": (
        "account_id, purpose, kind, value, key, person, list_ids, created_at",
        "1, 'form', 'email', 'a@x', 'a@x', '{{}}', '[]', {at}", 30,
    ),
    "bulk_action": (
        "account_id, user_id, action, argument, evidence, state, contact_count, changed, skipped, created_at, "
        "updated_at, ended_at",
        "1, 1, 'tag', '', '{{}}', 'done', 1, 1, '{{}}', 0, 0, {at}", 1,
    ),
}  # fmt: skip


def insert_rows(table: str, count: int, timestamp: int) -> None:
    """Insert rows of the same age."""
    columns, values, _ = TABLES[table]

    def insert() -> None:
        for number in range(count):
            key = f"'{timestamp}-{number}'"
            run(f"INSERT INTO {table} ({columns}) VALUES ({values.format(n=key, at=timestamp)})")

    transactions.write(insert)


@pytest.fixture
def batch_sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets the number of rows deleted in each transaction."""
    sizes: list[int] = []

    def count_deletions(sweep: housekeeping.Sweep) -> housekeeping.Sweep:
        def delete_and_count(ids: list[int]) -> int:
            sizes.append(len(ids))
            return sweep.delete(ids)

        return sweep._replace(delete=delete_and_count)

    monkeypatch.setattr(housekeeping, "SWEEPS", tuple(map(count_deletions, housekeeping.SWEEPS)))
    return sizes


@pytest.mark.parametrize("table", TABLES)
def test_expired_rows_are_deleted_in_batches(home: Home, batch_sizes: list[int], table: str) -> None:
    """All rows older than their limit are deleted, at most 200 in a transaction; younger ones stay."""
    now, max_age = clock.now_ms(), TABLES[table][2] * DAY
    insert_rows(table, 450, now - max_age - 60_000)
    insert_rows(table, 5, now - max_age + 60_000)
    housekeeping.delete_expired(threading.Event())
    assert scalar(f"SELECT count(*) FROM {table}") == 5
    assert sum(batch_sizes) >= 450 and max(batch_sizes) <= 200
    batch_sizes.clear()
    housekeeping.delete_expired(threading.Event())
    assert batch_sizes == []


def test_a_cleared_inbox_is_deleted_in_batches(home: Home, batch_sizes: list[int]) -> None:
    """Clearing hides the messages at once; housekeeping deletes them later, in batches of 20."""
    insert_rows("captured_message", 450, clock.now_ms())
    assert transactions.write(capture_inbox.clear, 1) == 450
    assert (
        scalar("SELECT count(*) FROM captured_message"),
        capture_inbox.list_captured(1).total,
        capture_inbox.has_cleared(),
    ) == (
        450,
        0,
        True,
    )
    insert_rows("captured_message", 5, clock.now_ms())
    housekeeping.delete_expired(threading.Event())
    assert (
        scalar("SELECT count(*) FROM captured_message"),
        capture_inbox.list_captured(1).total,
        capture_inbox.has_cleared(),
    ) == (
        5,
        5,
        False,
    )
    assert sum(batch_sizes) == 450 and max(batch_sizes) == 20


def test_parts_of_a_bulk_action_are_deleted_first(home: Home, batch_sizes: list[int]) -> None:
    """All parts are deleted in batches of 20, and the bulk action too."""
    insert_rows("bulk_action", 1, clock.now_ms() - 2 * DAY)
    part_rows = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 90) SELECT 1, '[1,2,3]', 1 FROM n"
    transactions.write(run, f"INSERT INTO bulk_action_part (bulk_action_id, contact_ids, done) {part_rows}")
    housekeeping.delete_expired(threading.Event())
    assert (scalar("SELECT count(*) FROM bulk_action_part"), scalar("SELECT count(*) FROM bulk_action")) == (0, 0)
    assert max(batch_sizes) == 20


def test_an_expired_idempotency_key_can_be_reused(home: Home) -> None:
    """A request with an expired key runs anew and does not delete other expired keys."""
    insert_rows("idempotency", 300, clock.now_ms() - 8 * DAY)
    key = scalar("SELECT key FROM idempotency LIMIT 1")

    def run_request(payload: str) -> request_limits.OnceResult:
        return transactions.write(request_limits.run_once, 1, "/x", key, payload, lambda: 42)

    assert run_request("another") == (42, False)
    assert run_request("another") == (42, True)
    assert scalar("SELECT count(*) FROM idempotency") == 300


def test_housekeeping_stops_with_the_service(home: Home, batch_sizes: list[int]) -> None:
    """With the stop event set nothing is deleted."""
    insert_rows("idempotency", 300, clock.now_ms() - 8 * DAY)
    stopping = threading.Event()
    stopping.set()
    housekeeping.delete_expired(stopping)
    assert batch_sizes == []


def test_old_upload_directories_are_deleted(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Upload directories older than a day are deleted; newer ones and those of other programs stay."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    old, new, other = (
        tmp_path / name for name in (f"{media.UPLOAD_DIR_PREFIX}old", f"{media.UPLOAD_DIR_PREFIX}new", "somebody-else")
    )
    for directory in (old, new, other):
        directory.mkdir()
        (directory / "file").write_text("x")
    for directory in (old, other):
        os.utime(directory, (time.time() - 100_000,) * 2)
    housekeeping.delete_expired(threading.Event())
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == [new.name, other.name]
