"""`secret.key` and the database belong together: neither is used with another, and a lost key is never made anew."""

import os
import signal
import subprocess
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


def _exchange(key: Path) -> None:
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


def refused(server: Server, *words: str) -> str:
    """Run a command that must be refused with one line, and return it."""
    options = ("--listen", f"127.0.0.1:{free_port()}") if words == ("serve",) else ()
    done = server.cli(*words, *options, stdin="a long password\n", expect=1, timeout=20)
    assert done.stderr.count("\n") == 1 and done.stderr.startswith("campanero: "), done.stderr
    return done.stderr


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("harm", [_lose, _exchange])
def test_no_command_uses_a_database_without_its_own_key(
    harm: Callable[[Path], None], command: str, fresh_server: FreshServer
) -> None:
    """Each ends with exit 1 and one line that says what to do; no key is made, and nothing is written."""
    server = fresh_server(start=False)
    key = server.data / "secret.key"
    own = key.read_bytes()
    harm(key)
    before = key.read_bytes() if key.exists() else None
    words = refused(server, command, *COMMANDS[command])

    assert "secret.key" in words and "restore" in words
    assert ("missing" in words) == (before is None) and ("another installation" in words) == (before is not None)
    assert (key.read_bytes() if key.exists() else None) == before
    assert not (server.home / "copy.tar.gz").exists()
    key.write_bytes(own)
    server.start()
    server.stop()


@pytest.mark.parametrize("harm", [_cut, _empty, _garble, _directory, _pipe, _device, _loop])
def test_whatever_stands_in_the_place_of_the_key_is_refused(
    harm: Callable[[Path], None], fresh_server: FreshServer
) -> None:
    """One line, at once: a pipe or device is not read for ever; the doctor says it too."""
    server = fresh_server(start=False)
    key = server.data / "secret.key"
    harm(key)
    assert str(key) in refused(server, "serve")
    assert str(key) in refused(server, "backup", "copy.tar.gz")
    told = server.cli("doctor", expect=1, timeout=20)
    assert "fail  key file: " in told.stdout and told.stderr == ""


@pytest.mark.parametrize("end", ["", "\n", "\r\n", " \n\n"])
def test_an_editor_may_have_touched_the_end_of_the_key(end: str, fresh_server: FreshServer) -> None:
    """White space behind the key changes nothing."""
    server = fresh_server(start=False)
    key = server.data / "secret.key"
    key.write_text(key.read_text().strip() + end)
    server.new_key("more")


def test_the_doctor_tells_a_missing_key_from_another(fresh_server: FreshServer) -> None:
    """It changes nothing, whatever it finds."""
    server = fresh_server(start=False)
    key = server.data / "secret.key"
    key.write_text(OTHER)
    assert "fail  key file: " in (told := server.cli("doctor", expect=1).stdout) and "another installation" in told
    key.unlink()
    assert "secret.key is missing" in server.cli("doctor", expect=1).stdout
    assert not key.exists()


def test_the_fingerprint_tells_nothing_of_the_key(fresh_server: FreshServer) -> None:
    """The database holds 64 bits of a keyed hash, and neither the key nor a part of it."""
    server = fresh_server(start=False)
    key = server.data.joinpath("secret.key").read_text().strip()
    here = apsw.Connection(str(server.data / "campanero.db"))
    [(stored,)] = here.execute("SELECT key_fingerprint FROM installation").fetchall()
    here.close()
    assert len(stored) == 16 and stored not in key
    content = b"".join(path.read_bytes() for path in server.data.glob("campanero.db*"))
    assert key.encode() not in content and bytes.fromhex(key) not in content


def test_a_database_of_an_older_version_is_bound_to_its_key_once(fresh_server: FreshServer) -> None:
    """Without its key it is not upgraded; with it, the key counts from then on."""
    server = fresh_server(start=False)
    here = apsw.Connection(str(server.data / "campanero.db"))
    here.execute("DROP TABLE installation; PRAGMA application_id = 0; PRAGMA user_version = 2")
    here.close()
    key = server.data / "secret.key"
    own = key.read_bytes()
    key.unlink()
    assert "is missing" in refused(server, "serve")
    assert "is missing" in refused(server, "key", "create", "more")
    key.write_bytes(own)
    server.new_key("more")
    key.write_text(OTHER)
    assert "another installation" in refused(server, "serve")


@pytest.mark.parametrize("turn", range(8))
def test_a_first_start_that_is_killed_is_begun_again(fresh_server: FreshServer, turn: int) -> None:
    """At whatever moment: what it left is not taken for an installation that lost its database or its key."""
    server = fresh_server(start=False, set_up=False)
    starting = subprocess.Popen(
        server._command("serve", "--listen", f"127.0.0.1:{server.port}"), env=server.env, cwd=server.home,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    end = time.monotonic() + 30
    while not server.data.exists():
        assert time.monotonic() < end
        time.sleep(0.001)
    time.sleep(0.006 * turn)
    os.killpg(starting.pid, signal.SIGKILL)
    starting.wait()
    server.start()
    server.stop()


def test_a_failed_restoration_leaves_no_key_behind(fresh_server: FreshServer, tmp_path: Path) -> None:
    """A new directory takes the key out of a backup only together with its database."""
    server = fresh_server(start=False)
    whole = tmp_path / "whole.tar.gz"
    server.cli("backup", str(whole), "--with-key")
    cut = tmp_path / "cut.tar.gz"
    cut.write_bytes(whole.read_bytes()[:-2000])
    other = fresh_server(start=False, set_up=False)
    refused(other, "restore", str(cut))
    assert not (other.data / "secret.key").exists()
    other.cli("restore", str(whole))
    assert (other.data / "secret.key").read_bytes() == (server.data / "secret.key").read_bytes()
    other.start()
    other.stop()
