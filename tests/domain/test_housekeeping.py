"""What nobody needs any more goes by the bite, what is needed stays, and whoever writes is not kept waiting."""

import os
import tempfile
import threading
import time
from pathlib import Path

import pytest

from appliance.accounts import idempotency
from appliance.content import media
from appliance.core import clock
from appliance.jobs import housekeeping
from appliance.sending.messages import capture_inbox
from appliance.storage import transactions
from appliance.storage.database import run, scalar
from tests.domain.home import Home

DAY = 86_400_000
# Columns and values of a row of each kind, whose last column is the moment that its age is told by; and its time
KINDS = {
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


def fill(table: str, count: int, at: int) -> None:
    """Write rows of a kind that are all of one moment."""
    columns, values, _ = KINDS[table]

    def verb() -> None:
        for number in range(count):
            key = f"'{at}-{number}'"
            run(f"INSERT INTO {table} ({columns}) VALUES ({values.format(n=key, at=at)})")

    transactions.write(verb)


@pytest.fixture
def bites(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows each transaction of a sweep dropped."""
    taken: list[int] = []

    def counted(one: housekeeping.Sweep) -> housekeeping.Sweep:
        def drop(some: list[int]) -> int:
            taken.append(len(some))
            return one.delete(some)

        return one._replace(delete=drop)

    monkeypatch.setattr(housekeeping, "SWEEPS", tuple(map(counted, housekeeping.SWEEPS)))
    return taken


@pytest.mark.parametrize("table", KINDS)
def test_what_is_over_goes_by_the_bite(home: Home, bites: list[int], table: str) -> None:
    """All that is older than its time goes, a bounded number in a transaction; what is younger stays."""
    now, kept = clock.now_ms(), KINDS[table][2] * DAY
    fill(table, 450, now - kept - 60_000)
    fill(table, 5, now - kept + 60_000)
    housekeeping.delete_expired(threading.Event())
    assert scalar(f"SELECT count(*) FROM {table}") == 5
    assert sum(bites) >= 450 and max(bites) <= 200
    bites.clear()
    housekeeping.delete_expired(threading.Event())
    assert bites == []


def test_an_emptied_inbox_goes_by_the_bite(home: Home, bites: list[int]) -> None:
    """Whoever empties it writes one row; what was there is dropped beside others, whenever the service is killed."""
    fill("captured_message", 450, clock.now_ms())
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
    fill("captured_message", 5, clock.now_ms())
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
    assert sum(bites) == 450 and max(bites) == 20


def test_parts_go_before_their_act(home: Home, bites: list[int]) -> None:
    """An act on a million people has many parts; none of its transactions takes them all."""
    fill("bulk_action", 1, clock.now_ms() - 2 * DAY)
    many = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 90) SELECT 1, '[1,2,3]', 1 FROM n"
    transactions.write(run, f"INSERT INTO bulk_action_part (bulk_action_id, contact_ids, done) {many}")
    housekeeping.delete_expired(threading.Event())
    assert (scalar("SELECT count(*) FROM bulk_action_part"), scalar("SELECT count(*) FROM bulk_action")) == (0, 0)
    assert max(bites) == 20


def test_a_request_waits_for_nobodys_old_keys(home: Home) -> None:
    """A key that is a week old is as new, and its request drops no other: others do, by the bite."""
    fill("idempotency", 300, clock.now_ms() - 8 * DAY)
    key = scalar("SELECT key FROM idempotency LIMIT 1")

    def ask(payload: str) -> idempotency.OnceResult:
        return transactions.write(idempotency.run_once, 1, "/x", key, payload, lambda: 42)

    assert ask("another") == (42, False)
    assert ask("another") == (42, True)
    assert scalar("SELECT count(*) FROM idempotency") == 300


def test_it_ends_when_the_service_does(home: Home, bites: list[int]) -> None:
    """Told to stop it takes no further bite."""
    fill("idempotency", 300, clock.now_ms() - 8 * DAY)
    stopping = threading.Event()
    stopping.set()
    housekeeping.delete_expired(stopping)
    assert bites == []


def test_rooms_of_uploads_that_nobody_ends(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a kill left of an upload goes after a day; one that is under way stays, and so does whatever is not ours."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    old, new, other = (
        tmp_path / name for name in (f"{media.UPLOAD_DIR_PREFIX}old", f"{media.UPLOAD_DIR_PREFIX}new", "somebody-else")
    )
    for room in (old, new, other):
        room.mkdir()
        (room / "file").write_text("x")
    for room in (old, other):
        os.utime(room, (time.time() - 100_000,) * 2)
    housekeeping.delete_expired(threading.Event())
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == [new.name, other.name]
