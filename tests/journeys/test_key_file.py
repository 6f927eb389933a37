"""`secret.key` and its database belong together: neither works with another, and a lost key is not recreated."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from tests.conftest import FreshServer
from tests.kit.server import Server, free_port

OTHER = "ab" * 32 + "\n"
COMMANDS = {
    "serve": (), "user": ("add", "--email", "new@example.com"), "key": ("create", "more"), "account": ("add", "More"),
    "recount": (), "backup": ("copy.tar.gz",), "setup": ("--email", "new@example.com"),
}  # fmt: skip


def _lose(key: Path) -> None:
    key.unlink()


def _replace(key: Path) -> None:
    key.write_text(OTHER)


def _cut(key: Path) -> None:
    key.write_text(key.read_text()[:40])


def _empty(key: Path) -> None:
    key.write_bytes(b"")


def _garble(key: Path) -> None:
    key.write_bytes(bytes(range(256)))


def _directory(key: Path) -> None:
    key.unlink()
    key.mkdir()


def _pipe(key: Path) -> None:
    key.unlink()
    os.mkfifo(key)


def _device(key: Path) -> None:
    key.unlink()
    key.symlink_to("/dev/zero")


def _loop(key: Path) -> None:
    key.unlink()
    key.symlink_to(key)


def error_line(server: Server, *command: str) -> str:
    """Run a command that must fail with one line, and return the line."""
    options = ("--listen", f"127.0.0.1:{free_port()}") if command == ("serve",) else ()
    result = server.cli(*command, *options, stdin="a long password\n", expect=1, timeout=20)
    assert result.stderr.count("\n") == 1 and result.stderr.startswith("campanero: "), result.stderr
    return result.stderr


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("damage", [_lose, _replace])
def test_no_command_uses_a_database_without_its_own_key(
    damage: Callable[[Path], None], command: str, fresh_server: FreshServer
) -> None:
    """Each command exits with 1 and one line of advice; no key is created, and nothing is written."""
    server = fresh_server(start=False)
    key = server.data / "secret.key"
    own = key.read_bytes()
    damage(key)
    before = key.read_bytes() if key.exists() else None
    error = error_line(server, command, *COMMANDS[command])

    assert "secret.key" in error and "restore" in error
    assert ("missing" in error) == (before is None) and ("another installation" in error) == (before is not None)
    assert (key.read_bytes() if key.exists() else None) == before
    assert not (server.home / "copy.tar.gz").exists()
    key.write_bytes(own)
    server.start()
    server.stop()


@pytest.mark.parametrize("damage", [_cut, _empty, _garble, _directory, _pipe, _device, _loop])
def test_invalid_key_files_are_rejected(damage: Callable[[Path], None], fresh_server: FreshServer) -> None:
    """Each invalid key, also a pipe or a device, is rejected at once in one line; the doctor fails."""
    server = fresh_server(start=False)
    key = server.data / "secret.key"
    damage(key)
    assert str(key) in error_line(server, "serve")
    assert str(key) in error_line(server, "backup", "copy.tar.gz")
    report = server.cli("doctor", expect=1, timeout=20)
    assert f"fail  key file: {key} " in report.stdout and report.stderr == ""


@pytest.mark.parametrize("end", ["", "\n", "\r\n", " \n\n"])
def test_whitespace_after_the_key_is_ignored(end: str, fresh_server: FreshServer) -> None:
    """Whitespace at the end of the key file is ignored."""
    server = fresh_server(start=False)
    key = server.data / "secret.key"
    key.write_text(key.read_text().strip() + end)
    server.new_key("more")


def test_the_doctor_distinguishes_a_missing_key_from_a_wrong_one(fresh_server: FreshServer) -> None:
    """The doctor reports which of the two it is, and creates no key."""
    server = fresh_server(start=False)
    key = server.data / "secret.key"
    key.write_text(OTHER)
    assert "fail  key file: " in (report := server.cli("doctor", expect=1).stdout) and "another installation" in report
    key.unlink()
    assert "secret.key is missing" in server.cli("doctor", expect=1).stdout
    assert not key.exists()


def test_the_database_contains_no_part_of_the_key(fresh_server: FreshServer) -> None:
    """The database has a 64-bit keyed hash of the key, and not the key itself."""
    server = fresh_server(start=False)
    key = server.data.joinpath("secret.key").read_text().strip()
    connection = apsw.Connection(str(server.data / "campanero.db"))
    [(stored,)] = connection.execute("SELECT key_fingerprint FROM installation").fetchall()
    connection.close()
    assert len(stored) == 16 and stored not in key
    content = b"".join(path.read_bytes() for path in server.data.glob("campanero.db*"))
    assert key.encode() not in content and bytes.fromhex(key) not in content


def test_an_upgrade_binds_the_database_to_its_key(fresh_server: FreshServer) -> None:
    """A database of an older version is upgraded only with its key, which is required from then on."""
    server = fresh_server(start=False)
    connection = apsw.Connection(str(server.data / "campanero.db"))
    connection.execute(
        "DROP TABLE installation; DROP TABLE send_log; PRAGMA application_id = 0; PRAGMA user_version = 2"
    )
    connection.close()
    key = server.data / "secret.key"
    own = key.read_bytes()
    key.unlink()
    assert "is missing" in error_line(server, "serve")
    assert "is missing" in error_line(server, "key", "create", "more")
    key.write_bytes(own)
    server.new_key("more")
    key.write_text(OTHER)
    assert "another installation" in error_line(server, "serve")


@pytest.mark.parametrize("turn", range(8))
def test_a_killed_first_start_can_be_repeated(fresh_server: FreshServer, turn: int) -> None:
    """After a kill at any moment of the first start, the next start succeeds."""
    server = fresh_server(start=False, set_up=False)
    process = server.begin("serve", "--listen", f"127.0.0.1:{server.port}")
    end = time.monotonic() + 30
    while not server.data.exists():
        assert time.monotonic() < end
        time.sleep(0.001)
    time.sleep(0.006 * turn)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    server.start()
    server.stop()


def test_a_failed_restore_leaves_no_key(fresh_server: FreshServer, tmp_path: Path) -> None:
    """A restore into a new directory keeps the key of the backup only if it succeeds."""
    server = fresh_server(start=False)
    backup = tmp_path / "whole.tar.gz"
    server.cli("backup", str(backup), "--with-key")
    truncated = tmp_path / "cut.tar.gz"
    truncated.write_bytes(backup.read_bytes()[:-2000])
    other = fresh_server(start=False, set_up=False)
    error_line(other, "restore", str(truncated))
    assert not (other.data / "secret.key").exists()
    other.cli("restore", str(backup))
    assert (other.data / "secret.key").read_bytes() == (server.data / "secret.key").read_bytes()
    other.start()
    other.stop()
