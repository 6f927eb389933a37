"""Mistakes on the command line: a wrong directory, invalid numbers and bytes, and files put into the data directory."""

import io
import json
import os
import shutil
import tarfile
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from appliance.core import data_dir
from tests.conftest import FreshServer
from tests.kit.server import READY, Server

PASSWORD = "correct horse battery\n"


@pytest.mark.parametrize(
    "command",
    [("recount",), ("key", "create", "k"), ("account", "add", "More"), ("user", "add", "--email", "new@example.com")],
)
def test_commands_create_no_installation(command: tuple[str, ...], fresh_server: FreshServer) -> None:
    """Where `--data` does not exist the command fails and creates nothing."""
    server = fresh_server(start=False, set_up=False)
    error = server.cli(*command, stdin=PASSWORD, expect=1).stderr
    assert "contains no installation" in error and error.count("\n") == 1
    assert not server.data.exists()


@pytest.mark.parametrize("command", ["status", "serve"])
def test_commands_on_a_machine_that_follows(command: str, fresh_server: FreshServer) -> None:
    """It has no database of its own yet: it is said what it is, while `campanero follow` runs, too."""
    server = fresh_server(start=False, set_up=False)
    (server.data / "standby").mkdir(parents=True)
    (server.data / "standby" / "source.json").write_text('{"source": "s3://bucket/campanero/replica"}')
    with data_dir.lock(server.data):
        error = server.cli(command, expect=1).stderr
    assert "follows another machine" in error and "campanero doctor" in error and error.count("\n") == 1


@pytest.mark.parametrize("command", [("serve",), ("setup", "--email", "new@example.com")])
def test_a_directory_that_others_can_read_is_rejected(command: tuple[str, ...], fresh_server: FreshServer) -> None:
    """A directory such as a home or a website is rejected before its permissions are changed."""
    server = fresh_server(start=False, set_up=False)
    website = server.data / "www"
    website.mkdir(parents=True)
    for path in (server.data, website):
        path.chmod(0o755)
    assert (
        "contains www, which other users can access"
        in server.cli(*command, stdin=PASSWORD, expect=1, timeout=20).stderr
    )
    assert [path.stat().st_mode & 0o777 for path in (server.data, website)] == [0o755, 0o755]
    assert [path.name for path in server.data.iterdir()] == ["www"]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("reserve", "a directory"), ("optouts.jsonl", "a directory"), ("optouts.jsonl", "a named pipe"),
        ("imports", "a file"), ("backups", "a file"), ("attachments", "a broken link"),
        ("optouts.jsonl", "a broken link"),
        ("serve.lock", "a named pipe"), (".restoring", "a named pipe"),
    ],
)  # fmt: skip
def test_a_wrong_kind_of_file_is_rejected(
    name: str, kind: str, fresh_server: FreshServer
) -> None:  # fmt: skip
    """A folder in place of a file, or the reverse, is reported with its path in one line, and nothing is changed."""
    server = fresh_server(start=False)
    path = server.data / name
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    {
        "a directory": path.mkdir,
        "a named pipe": lambda: os.mkfifo(path),
        "a file": lambda: path.write_text("mine"),
        "a broken link": lambda: path.symlink_to("/nonexistent/disk"),
    }[kind]()
    wanted = "a file" if name in ("reserve", "optouts.jsonl", "serve.lock") else "a folder"
    if path.exists():
        path.chmod(0o700)
    sentence = f"{path} is {kind}, but Campanero needs {wanted} with this name: move it away"
    for command in (("serve",), ("setup", "--email", "new@example.com")):
        assert server.cli(*command, stdin=PASSWORD, expect=1, timeout=20).stderr == f"campanero: {sentence}\n"
    report = server.cli("doctor", expect=1, timeout=20)
    assert f"fail  data directory: {sentence}" in report.stdout and report.stderr == ""
    assert {"a directory": path.is_dir, "a named pipe": path.is_fifo, "a file": path.is_file,
            "a broken link": path.is_symlink}[kind]()  # fmt: skip
    assert sentence in server.cli("backup", str(server.home / "copy.tar.gz"), expect=1, timeout=20).stderr


def test_a_journal_of_opt_outs_that_cannot_be_written_is_refused_at_the_start(fresh_server: FreshServer) -> None:
    """A service that looks ready would answer every opt-out with 503."""
    server = fresh_server(start=False)
    path, read_only = server.data / "optouts.jsonl", Path("/sys/kernel/uevent_seqnum")
    if not read_only.exists():
        pytest.skip("needs a file that root cannot write either")
    path.unlink(missing_ok=True)
    path.symlink_to(read_only)
    assert server.cli("serve", expect=1, timeout=20).stderr.endswith(f": {path}\n")
    assert f"fail  data directory: {path} cannot be written: " in server.cli("doctor", expect=1).stdout


def test_an_empty_database_beside_a_key_is_told_in_a_right_sentence(fresh_server: FreshServer) -> None:
    """One file that is left shows that the installation is not new; several show it."""
    server = fresh_server(start=False)
    (server.data / "campanero.db").write_bytes(b"")
    for name in ("campanero.db-wal", "campanero.db-shm"):
        (server.data / name).unlink(missing_ok=True)
    sentence = "beside it shows that this is not a new installation"
    assert f"secret.key {sentence}" in server.cli("serve", expect=1, timeout=20).stderr
    (server.data / "optouts.jsonl").write_text("{}\n")
    assert f"secret.key, optouts.jsonl {sentence.replace('shows', 'show')}" in server.cli("serve", expect=1).stderr


def test_port_0_is_replaced_by_a_free_port(fresh_server: FreshServer) -> None:
    """The line that says where the service is ready has the port on which it answers."""
    server = fresh_server(start=False)
    server.port = 0
    with server.start():
        url = server.wait_for_line(READY)[1]
        assert not url.endswith(":0")
        assert server.data.joinpath("serve.lock").read_text().splitlines()[1] == url.removeprefix("http://")
        with urllib.request.urlopen(f"{url}/healthz", timeout=10) as response:
            assert response.status == 200


@pytest.mark.parametrize("number", ["0", "-1", "9" * 30])
def test_an_invalid_account_id_exits_with_2(number: str, server: Server) -> None:
    """Zero, negative and too large account ids are usage errors."""
    for command in (("key", "create", "k"), ("user", "add", "--email", "new@example.com"), ("doctor",)):
        assert "must be the id of an account" in server.cli(*command, f"--account={number}", expect=2).stderr


def test_the_doctor_of_a_missing_account_fails(server: Server) -> None:
    """`doctor --account` of an unknown account fails."""
    assert "fail  account: account 77 does not exist" in server.cli("doctor", "--account", "77", expect=1).stdout


def test_arguments_that_are_not_utf_8_exit_with_2(server: Server) -> None:
    """Bytes of another encoding are rejected in one line."""
    for command in (("account", "add", "\udcff"), ("check", "--config", "\udcff")):
        error = server.cli(*command, expect=2).stderr
        assert "UTF-8" in error and error.count("\n") == 1


def test_a_deeply_nested_configuration_is_rejected(fresh_server: FreshServer) -> None:
    """A deeply nested configuration file is rejected in one line."""
    server = fresh_server(start=False, set_up=False, config=f"listen = {'[' * 5000}{']' * 5000}\n")
    error = server.cli("check", expect=1).stderr
    assert "nested too deeply" in error and error.count("\n") == 1


def test_unexpected_files_do_not_break_a_backup(fresh_server: FreshServer, tmp_path: Path) -> None:
    """A file that a restore would reject is left out of the backup."""
    server = fresh_server(start=False)
    (server.data / "imports").mkdir(exist_ok=True)
    (server.data / "imports" / "my list~.csv").write_text("email\n")
    backup = tmp_path / "kept.tar.gz"
    server.cli("backup", str(backup))
    server.cli("restore", str(backup), "--force")


def _with_changed_manifest(source: Path, target: Path, **values: Any) -> None:
    with tarfile.open(source) as old, tarfile.open(target, "w:gz") as new:
        for member in old:
            file = old.extractfile(member)
            assert file is not None
            content = file.read()
            if member.name == "campanero-backup.json":
                content = json.dumps({**json.loads(content), **values}).encode()
                member.size = len(content)
            new.addfile(member, io.BytesIO(content))


@pytest.mark.parametrize("moment", [-1, 10**18, 2**70])
def test_a_backup_with_an_invalid_time_is_rejected(moment: int, fresh_server: FreshServer, tmp_path: Path) -> None:
    """A backup whose `taken_at` is not a valid time is rejected in one line."""
    server = fresh_server(start=False)
    server.cli("backup", str(tmp_path / "kept.tar.gz"))
    _with_changed_manifest(tmp_path / "kept.tar.gz", tmp_path / "odd.tar.gz", taken_at=moment)
    error = server.cli("restore", str(tmp_path / "odd.tar.gz"), "--force", expect=1).stderr
    assert "is not a Campanero backup" in error and error.count("\n") == 1


def test_control_characters_of_a_backup_are_not_printed(fresh_server: FreshServer, tmp_path: Path) -> None:
    """The error about a backup with control characters in its version does not contain them."""
    server = fresh_server(start=False)
    server.cli("backup", str(tmp_path / "kept.tar.gz"))
    _with_changed_manifest(tmp_path / "kept.tar.gz", tmp_path / "odd.tar.gz", format=99, version="\x1b[2J")
    error = server.cli("restore", str(tmp_path / "odd.tar.gz"), "--force", expect=1).stderr
    assert "or a newer one" in error and "\x1b" not in error


def test_a_restore_says_what_is_not_a_backup(fresh_server: FreshServer, tmp_path: Path) -> None:
    """A folder, a pipe and a device are named as such, and not opened."""
    server, pipe = fresh_server(start=False), tmp_path / "pipe"
    os.mkfifo(pipe)
    places = {tmp_path: "is a directory", pipe: "is a named pipe", Path("/dev/zero"): "is a device"}
    for path, words in {**places, tmp_path / "none": "does not exist"}.items():
        assert f"{path} {words}" in server.cli("restore", str(path), "--force", expect=1, timeout=20).stderr


def test_a_restore_after_a_killed_one_applies_its_journal(fresh_server: FreshServer, tmp_path: Path) -> None:
    """A journal that a killed restore left in `.restoring` is applied by the next restore."""
    server = fresh_server()
    api = server.client(validate=False)
    contact_id = api.post("/contacts", {"email": "leaves@example.org"}).expect(201)["id"]
    backup = tmp_path / "kept.tar.gz"
    server.cli("backup", str(backup))
    api.patch(f"/contacts/{contact_id}", {"subscribed_email": False}).expect(200)
    server.stop()
    left_over = server.data / ".restoring"
    left_over.mkdir()
    (left_over / "ready").touch()
    shutil.move(server.data / "optouts.jsonl", left_over / "optouts.jsonl")
    assert "1 opt outs" in server.cli("restore", str(backup), "--force").stdout


@pytest.mark.parametrize("command", [("--data", ""), ("--config", ""), ("--data", " ")])
def test_an_empty_path_exits_with_2(command: tuple[str, str], server: Server) -> None:
    """An empty `--data` or `--config`, as from an unset variable, does not select the default."""
    assert f"argument {command[0]}: must not be empty" in server.cli("check", *command, expect=2).stderr


def test_a_configuration_that_is_not_a_file(fresh_server: FreshServer, tmp_path: Path) -> None:
    """A directory, a pipe, a symlink loop and a missing file are each reported in one line, without waiting."""
    server = fresh_server(start=False, set_up=False)
    kinds = {"folder": "is a directory", "pipe": "is not a file", "loop": "Too many levels", "nothing": "no such file"}
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for name, reason in kinds.items():
        error = server.cli("check", "--config", str(tmp_path / name), expect=1, timeout=20).stderr
        assert f"{name}: {reason}" in error and error.count("\n") == 1
    server.data.mkdir()
    (server.data / "campanero.toml").mkdir()
    assert "campanero.toml: is a directory" in server.cli("check", expect=1).stderr


def test_names_have_the_limits_of_the_api(server: Server) -> None:
    """Names of keys and accounts that are too long or blank are rejected."""
    for command in (("key", "create"), ("account", "add")):
        assert "name is too long (maximum is 255 characters)" in server.cli(*command, "x" * 256, expect=1).stderr
        assert "name can't be blank" in server.cli(*command, " ", expect=1).stderr


def test_an_account_is_not_added_before_set_up(fresh_server: FreshServer) -> None:
    """`account add` fails until `setup` has created the first account."""
    server = fresh_server(set_up=False)
    assert "set up the installation first" in server.cli("account", "add", "More", expect=1).stderr
    server.cli("setup", "--email", "new@example.com", stdin=PASSWORD)
    assert server.cli("account", "add", "More").stdout == "2\n"
    server.stop()
