"""A promotion that is killed at any step, fails, or runs twice: the next call goes on, and nothing is lost or sent."""

import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from appliance.accounts import settings
from appliance.core import clock, crypto
from appliance.ops import stores
from appliance.ops.fencing import record as records
from appliance.ops.fencing.keeper import LeaseKeeper
from appliance.ops.fencing.record import LeaseRecord, Node
from appliance.ops.standby import place, promote
from appliance.ops.standby.commands import _require_followable
from appliance.ops.standby.place import Source, StandbyFailed
from appliance.ops.stores.base import Store
from appliance.settings.copies import Copies
from appliance.storage import transactions
from appliance.storage.database import close_database, open_database, rows, run, scalar
from tests.domain.home import Home
from tests.kit.step_kills import run_until_killed

_CHANGES = ("os.rename", "os.remove", "os.rmdir", "os.mkdir")


class Standby:
    """A data directory that follows the installation of `home`, and the store of their lease, which `one` has."""

    def __init__(self, home: Home, root: Path) -> None:
        self.directory, self.root = root / "second", root
        self.sleeps: list[float] = []
        (root / "store").mkdir()
        home.configure(lease__store=(root / "store").as_uri(), lease__seconds=6)
        self.store: Store = stores.open_store((root / "store").as_uri(), Copies())
        home.contact("a@acme.test")
        members = home.list_of(home.contact("a@acme.test").id, home.contact("b@acme.test").id)
        home.send(home.campaign(members.id, "Spring"))
        self.scheduled = home.campaign(members.id, "Summer").id
        transactions.write(
            run, "UPDATE campaign SET phase = 'scheduled', scheduled_at = 1 WHERE id = ?", (self.scheduled,)
        )
        transactions.write(settings.write_heartbeat)
        close_database()
        restore = self.directory / place.FOLDER / "1"
        restore.mkdir(parents=True, mode=0o700)
        shutil.copy(home.directory / place.DATABASE, restore)
        Path(f"{restore / place.DATABASE}-txid").write_text("0000000000000001")
        shutil.copy(home.directory / crypto.KEY_FILE, self.directory)
        place.save_source(self.directory, Source("file:///replica"))
        attachment = self.directory / place.FOLDER / place.FILES / "attachments" / "1" / "a.txt"
        attachment.parent.mkdir(parents=True)
        attachment.write_text("a")

    def put_lease(self, **changes: Any) -> LeaseRecord:
        """Store a lease of the other machine."""
        fetched = records.fetch_lease(self.store)
        values = {"holder": "p", "renewed_at": clock.now_ms(), "blocks": [(0, 9)], "kept_seconds": 900} | changes
        record = records.renew(records.make_first(Node("one", 1), 6), **values)
        records.put_lease(self.store, record, fetched.etag if fetched else None)
        return record

    def promote(self) -> list[str]:
        """Promote this machine."""
        try:
            return promote.promote(self.directory, False, lambda words: None)
        finally:
            close_database()


@pytest.fixture
def standby(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Standby]:
    """Yield a machine that follows another one; waits for the end of a lease are only recorded."""
    machine = Standby(home, tmp_path)
    monkeypatch.setattr(time, "sleep", machine.sleeps.append)
    yield machine


def _kill_at(step: int, action: Callable[[], object]) -> bool:
    """Run an action in a forked process that is killed at its change `step` of files or data; return if it ended."""
    return run_until_killed(lambda: _count_steps(step), action)


def _count_steps(step: int) -> None:
    steps = iter(range(1 << 30))

    def count() -> None:
        if next(steps) == step:
            os.kill(os.getpid(), signal.SIGKILL)

    def hook(event: str, _: object) -> None:
        if event in _CHANGES:
            count()

    def write(*arguments: Any) -> Any:
        result = former(*arguments)
        count()
        return result

    former = transactions.write
    transactions.write = write  # type: ignore[assignment]  # this process is killed or ends
    sys.addaudithook(hook)


def test_a_kill_at_each_step(standby: Standby, full: bool) -> None:
    """Whatever a killed promotion has done, the next one ends it, and its report names all that was held and paused."""
    standby.put_lease(is_released=True)
    before, store = standby.root / "before", standby.root / "store"
    shutil.copytree(standby.directory, before / "second")
    shutil.copytree(store, before / "store")
    expected = [line for line in standby.promote() if "that of" not in line]
    assert f"  campaign {standby.scheduled}, Summer: paused, it may have been started" in expected
    assert "Messages that may have left since, held until you decide: 2." in expected
    has_ended, ends = False, set[bool]()
    for step in range(0, 200, 1 if full else 3):
        for path in (standby.directory, store):
            shutil.rmtree(path)
            shutil.copytree(before / path.name, path)
        if has_ended := _kill_at(step, standby.promote):
            break
        ends.add((standby.directory / place.DATABASE).exists())
        if (standby.directory / place.FOLDER / place.SOURCE_FILE).exists():
            with pytest.raises(StandbyFailed):
                place.require_not_following(standby.directory)  # the service does not start
            lines = [line for line in standby.promote() if "that of" not in line]
            assert lines == expected, step
        _check_promoted(standby)
    assert has_ended and ends == {False, True} and step > 12


def _check_promoted(standby: Standby) -> None:
    assert not (standby.directory / place.FOLDER / place.SOURCE_FILE).exists()
    assert (standby.directory / "attachments" / "1" / "a.txt").read_text() == "a"
    open_database(standby.directory / place.DATABASE)
    try:
        assert scalar("PRAGMA integrity_check") == "ok"
        assert rows("SELECT status, count(*) FROM message GROUP BY 1") == [("uncertain", 2)]
        assert scalar("SELECT phase FROM campaign WHERE id = ?", (standby.scheduled,)) == "paused"
    finally:
        close_database()


def test_following_does_not_go_on_after_a_promotion(standby: Standby) -> None:
    """Its unit is still enabled: it must not say that the promoted database has to be moved away."""
    place.save_source(standby.directory, Source("file:///replica", is_promoting=True, report=["Promoted."]))
    (standby.directory / place.DATABASE).touch()
    with pytest.raises(StandbyFailed, match="campanero promote continues that"):
        _require_followable(standby.directory, "file:///replica")


def test_two_promotions_at_once(standby: Standby) -> None:
    """The second would end the first as if that were `campanero follow`."""
    standby.put_lease(is_released=True)
    with (
        place.lock_promotion(standby.directory),
        pytest.raises(StandbyFailed, match="another campanero promote is running"),
    ):
        standby.promote()
    assert standby.promote()[0].startswith("Promoted, epoch 2")


def test_a_repeated_promotion_waits_for_the_former_lease(standby: Standby) -> None:
    """The lease of the other machine may be longer than that of the settings here."""
    standby.put_lease(seconds=60)

    def fail(words: str) -> None:
        if words.startswith("waiting"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        promote.promote(standby.directory, False, fail)
    assert standby.promote()[0].startswith("Promoted, epoch 2")
    assert standby.sleeps == [60]


def test_a_failed_attempt_does_not_take_the_lease_later(standby: Standby) -> None:
    """The operator may have decided otherwise: the service of this machine must not take what it never had."""
    standby.put_lease()
    lock = standby.root / "store" / ".campanero-store.lock"
    lock.unlink()
    lock.mkdir()
    with pytest.raises(StandbyFailed, match="the lease cannot be taken"):
        promote.take_back(standby.directory, lambda words: None)
    lock.rmdir()
    keeper = LeaseKeeper(standby.store, standby.directory, 6, lambda: None)
    keeper._step()
    lease = records.fetch_lease(standby.store)
    assert lease is not None and (lease.record.node, lease.record.epoch) == ("one", 1)


def test_an_earlier_claim_of_this_machine_is_not_its_lease(standby: Standby) -> None:
    """Somebody has put back the claim of an earlier promotion, after another machine was promoted."""
    records.save_node(standby.directory, Node("two", epoch=2, seen_epoch=3))
    claim = records.claim(records.make_first(Node("one", 1), 6), Node("two", 2), 6)
    records.put_lease(standby.store, records.renew(claim, is_released=True), None)
    assert standby.promote()[0].startswith("Promoted, epoch 4")


@pytest.mark.parametrize("name", [place.DATABASE, f"{place.DATABASE}-wal"])
def test_a_former_database_or_its_log_is_in_the_way(name: str, standby: Standby) -> None:
    """SQLite would apply the log of a machine that was killed to the database that is promoted later."""
    standby.put_lease(is_released=True)
    (standby.directory / name).write_bytes(b"former")
    for action in (standby.promote, lambda: _require_followable(standby.directory, "file:///replica")):
        with pytest.raises(StandbyFailed, match=f"move {name} away first"):
            action()
    assert records.fetch_lease(standby.store).record.node == "one"  # type: ignore[union-attr]  # it is there


@pytest.mark.parametrize("value", ["'soon'", "x'00'", "NULL", "-1", "1 << 62", "1.5"])
def test_a_heartbeat_that_is_not_a_time(value: str, standby: Standby) -> None:
    """Who may write to the replica cannot end a promotion with it: all due messages are held."""
    database = standby.directory / place.FOLDER / "1" / place.DATABASE
    connection = apsw.Connection(str(database))
    connection.execute("PRAGMA ignore_check_constraints = 1")
    connection.execute(f"UPDATE OR IGNORE setting SET updated_at = {value} WHERE name = 'heartbeat'")
    if value == "NULL":
        connection.execute("DELETE FROM setting WHERE name = 'heartbeat'")
    connection.close()
    assert place.read_heartbeat(database) is None
    standby.put_lease(is_released=True)
    assert "The data is that of an unknown time" in standby.promote()[0]


def test_a_lost_bucket_changes_nothing(standby: Standby) -> None:
    """The promotion is refused in plain words, and the machine goes on following."""
    standby.put_lease()
    source = standby.directory / place.FOLDER / place.SOURCE_FILE
    before = source.read_bytes()
    (standby.root / "store").rename(standby.root / "unmounted")
    with pytest.raises(StandbyFailed, match=r"the lease cannot be taken: .* is not a directory: create it, or mount"):
        standby.promote()
    assert source.read_bytes() == before and records.load_node(standby.directory).epoch == 0
    _require_followable(standby.directory, "file:///replica")


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("trigger.data", "'text'"), ("template.name", "x'ff00'"), ("campaign.account_id", "x'ff00'"),
        ("campaign.template_id", "'text'"), ("campaign.updated_at", "x'ff00'"), ("campaign.content_id", "'text'"),
        ("contact_search_config.v", "'text'"),
    ],
)  # fmt: skip
def test_a_value_of_another_writer_of_the_replica(column: str, value: str, standby: Standby) -> None:
    """It ends the promotion in one line that says what to do, and not with the error of whatever reads it."""
    table, _, name = column.partition(".")
    connection = apsw.Connection(str(standby.directory / place.FOLDER / "1" / place.DATABASE))
    connection.execute("PRAGMA ignore_check_constraints = 1; PRAGMA foreign_keys = 0")
    connection.execute(f"UPDATE {table} SET {name} = {value}")
    connection.close()
    standby.put_lease(is_released=True)
    with pytest.raises(StandbyFailed, match=r"cannot be used: a value in it is not valid \(.*Remove .*Go back"):
        standby.promote()
