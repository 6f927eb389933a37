"""Automatic backups, backups before an upgrade, and what the doctor reports about them."""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import apsw
import pytest

from benchmarks.bench_backup import grow
from tests.conftest import FreshServer
from tests.kit.clock import TestClock
from tests.kit.recipients import create_list
from tests.kit.server import Server
from tests.kit.timeouts import extend_timeout

DAILY = {"CAMPANERO_BACKUP__EVERY": "24h", "CAMPANERO_BACKUP__KEEP": "2"}


def backups(server: Server) -> list[str]:
    """Return the names of the automatic backups, oldest first."""
    return sorted(path.name for path in (server.data / "backups").glob("campanero-*"))


def wait_for_backups(server: Server, count: int) -> list[str]:
    """Wait until there are `count` backups and no partial file."""
    end = time.monotonic() + extend_timeout(10)
    while len(backups(server)) != count or list((server.data / "backups").glob(".*")):
        assert time.monotonic() < end, (backups(server), server.output)
        time.sleep(0.1)
    return backups(server)


def test_daily_backups_keep_the_newest(fresh_server: FreshServer, clock: TestClock) -> None:
    """The first backup comes after a day, then one a day; the oldest are deleted, and other files stay."""
    server = fresh_server(clock=clock, env=DAILY)
    time.sleep(1.5)
    assert backups(server) == []
    clock.advance(hours=25)
    first = wait_for_backups(server, 1)
    (server.data / "backups" / "mine.tar.gz").write_bytes(b"mine")
    server.restart()
    for _ in range(2):
        clock.advance(hours=25)
        end = time.monotonic() + extend_timeout(10)
        before = backups(server)
        while backups(server)[-1:] == before[-1:]:
            assert time.monotonic() < end, server.output
            time.sleep(0.1)
        wait_for_backups(server, 2)
    assert first[0] not in backups(server) and (server.data / "backups" / "mine.tar.gz").exists()
    server.stop()


def test_a_failed_backup_is_logged(fresh_server: FreshServer, clock: TestClock) -> None:
    """The log has the reason of a failed backup, and the service keeps running."""
    server = fresh_server(clock=clock, env=DAILY)
    (server.data / "backups").write_text("in the way")
    clock.advance(hours=25)
    server.wait_for_line("backups: failed error=File exists: .*backups")
    time.sleep(2.5)
    assert server.client().get("/account").status == 200
    server.stop()


@pytest.fixture
def first_schema(fresh_server: FreshServer, full: bool) -> Server:
    """A data directory of the first schema; with `--full`, one of two gigabytes."""
    server = fresh_server()
    api = server.client(validate=False)
    create_list(api, 300)
    server.stop()
    database = server.data / "campanero.db"
    if full:
        grow(database, 2_000, 300)
    _downgrade_to_first_schema(database)
    return server


def _downgrade_to_first_schema(database: Path) -> None:

    connection = apsw.Connection(str(database))
    connection.execute(
        "DROP TABLE restoration; DROP TABLE installation; DROP TABLE send_log; "
        "PRAGMA application_id = 0; PRAGMA user_version = 1"
    )
    connection.close()


def test_an_upgrade_makes_a_backup_first(first_schema: Server, tmp_path: Path, full: bool) -> None:
    """The start of a newer version backs up the old database and migrates it, also after kills during the start."""
    server, backup = first_schema, first_schema.data / "backups" / "before-schema-4.tar.gz"
    for turn in range(30 if full else 6):
        process = subprocess.Popen(
            server._command("serve", "--listen", f"127.0.0.1:{server.port}"), env=server.env, cwd=server.home,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        time.sleep(0.4 + 0.25 * turn)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    server.start(timeout=600)
    assert server.client().get("/account").expect(200)["counts"]["contacts"] == 300
    server.stop()
    assert backup.exists() and not list((server.data / "backups").glob(".*"))
    names = [path.name for path in (server.data / "backups").iterdir()]
    assert names == [backup.name]
    shutil.copyfile(backup, tmp_path / "old.tar.gz")
    server.cli("restore", str(tmp_path / "old.tar.gz"), "--force", timeout=600)
    server.start()
    assert server.client().get("/account").expect(200)["counts"]["contacts"] == 300
    server.stop()


def test_the_doctor_reports_missing_backups(fresh_server: FreshServer, clock: TestClock) -> None:
    """Disabled backups are ok; a backup that is two days overdue is a warning."""
    server = fresh_server(clock=clock, start=False)
    assert "backups: automatic backups are off" in server.cli("doctor", expect=None).stdout
    server.env |= DAILY
    assert "there is no backup yet" in server.cli("doctor", expect=None).stdout
    clock.advance(hours=49)
    assert "warn  backups: there is no backup yet" in server.cli("doctor", expect=None).stdout
    server.start()
    wait_for_backups(server, 1)
    assert "the last is 0 hours old" in server.cli("doctor", expect=None).stdout
    server.stop()
