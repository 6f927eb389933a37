"""Commands by somebody who is in a hurry: a mistyped directory, numbers and bytes that are none, files put by hand."""

import io
import json
import os
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import FreshServer
from tests.kit.server import Server

PASSWORD = "correct horse battery\n"


@pytest.mark.parametrize(
    "words",
    [("recount",), ("key", "create", "k"), ("account", "add", "More"), ("user", "add", "--email", "new@example.com")],
)
def test_a_command_begins_no_installation(words: tuple[str, ...], fresh_server: FreshServer) -> None:
    """Where `--data` leads to nothing it says so, and leaves nothing."""
    server = fresh_server(start=False, set_up=False)
    refused = server.cli(*words, stdin=PASSWORD, expect=1).stderr
    assert "contains no installation" in refused and refused.count("\n") == 1
    assert not server.data.exists()


@pytest.mark.parametrize("words", [("serve",), ("setup", "--email", "new@example.com")])
def test_a_directory_of_others_stays_open_to_them(words: tuple[str, ...], fresh_server: FreshServer) -> None:
    """A home, or what a web server shows, is refused before anything in it is changed."""
    server = fresh_server(start=False, set_up=False)
    website = server.data / "www"
    website.mkdir(parents=True)
    for path in (server.data, website):
        path.chmod(0o755)
    assert (
        "contains www, which other users can access" in server.cli(*words, stdin=PASSWORD, expect=1, timeout=20).stderr
    )
    assert [path.stat().st_mode & 0o777 for path in (server.data, website)] == [0o755, 0o755]
    assert [path.name for path in server.data.iterdir()] == ["www"]


@pytest.mark.parametrize(("name", "kind"), [("reserve", "a directory"), ("imports", "a file"), ("backups", "a file")])
def test_commands_refuse_a_data_directory_with_a_wrong_kind_of_file(
    name: str, kind: str, fresh_server: FreshServer
) -> None:  # fmt: skip
    """A folder in place of a file, or a file in place of a folder: one line with its path, and nothing is changed."""
    server = fresh_server(start=False)
    path = server.data / name
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.mkdir() if kind == "a directory" else path.write_text("mine")
    wanted = "a file" if kind == "a directory" else "a folder"
    path.chmod(0o700)
    sentence = f"{path} is {kind}, but Campanero needs {wanted} with this name: move it away"
    for words in (("serve",), ("setup", "--email", "new@example.com")):
        assert server.cli(*words, stdin=PASSWORD, expect=1, timeout=20).stderr == f"campanero: {sentence}\n"
    report = server.cli("doctor", expect=1)
    assert f"fail  data directory: {sentence}\n" in report.stdout and report.stderr == ""
    assert path.is_dir() if kind == "a directory" else path.read_text() == "mine"


@pytest.mark.parametrize("number", ["0", "-1", "9" * 30])
def test_an_account_that_cannot_be_is_a_wrong_command_line(number: str, server: Server) -> None:
    """Also a number larger than the database has."""
    for words in (("key", "create", "k"), ("user", "add", "--email", "new@example.com"), ("doctor",)):
        assert "must be the id of an account" in server.cli(*words, f"--account={number}", expect=2).stderr


def test_the_doctor_of_an_account_that_is_not_there_fails(server: Server) -> None:
    """It does not say that all is well with it."""
    assert "fail  account: account 77 does not exist" in server.cli("doctor", "--account", "77", expect=1).stdout


def test_words_that_are_no_text_are_a_wrong_command_line(server: Server) -> None:
    """Bytes of another encoding are refused in a line."""
    for words in (("account", "add", "\udcff"), ("check", "--config", "\udcff")):
        refused = server.cli(*words, expect=2).stderr
        assert "UTF-8" in refused and refused.count("\n") == 1


def test_a_configuration_nested_without_end_is_refused(fresh_server: FreshServer) -> None:
    """In a line, as all that cannot be read."""
    server = fresh_server(start=False, set_up=False, config=f"listen = {'[' * 5000}{']' * 5000}\n")
    refused = server.cli("check", expect=1).stderr
    assert "nested too deeply" in refused and refused.count("\n") == 1


def test_files_put_by_hand_do_not_spoil_a_backup(fresh_server: FreshServer, tmp_path: Path) -> None:
    """What a restoration would refuse is not packed."""
    server = fresh_server(start=False)
    (server.data / "imports").mkdir(exist_ok=True)
    (server.data / "imports" / "my list~.csv").write_text("email\n")
    kept = tmp_path / "kept.tar.gz"
    server.cli("backup", str(kept))
    server.cli("restore", str(kept), "--force")


def _changed(source: Path, target: Path, **facts: Any) -> None:
    with tarfile.open(source) as old, tarfile.open(target, "w:gz") as new:
        for member in old:
            file = old.extractfile(member)
            assert file is not None
            content = file.read()
            if member.name == "campanero-backup.json":
                content = json.dumps({**json.loads(content), **facts}).encode()
                member.size = len(content)
            new.addfile(member, io.BytesIO(content))


@pytest.mark.parametrize("moment", [-1, 10**18, 2**70])
def test_a_backup_of_a_moment_without_a_date_is_refused(moment: int, fresh_server: FreshServer, tmp_path: Path) -> None:
    """In a line, before anything is unpacked."""
    server = fresh_server(start=False)
    server.cli("backup", str(tmp_path / "kept.tar.gz"))
    _changed(tmp_path / "kept.tar.gz", tmp_path / "odd.tar.gz", taken_at=moment)
    refused = server.cli("restore", str(tmp_path / "odd.tar.gz"), "--force", expect=1).stderr
    assert "is not a Campanero backup" in refused and refused.count("\n") == 1


def test_words_of_an_archive_do_not_steer_the_terminal(fresh_server: FreshServer, tmp_path: Path) -> None:
    """Control characters in them are not printed."""
    server = fresh_server(start=False)
    server.cli("backup", str(tmp_path / "kept.tar.gz"))
    _changed(tmp_path / "kept.tar.gz", tmp_path / "odd.tar.gz", format=99, version="\x1b[2J")
    refused = server.cli("restore", str(tmp_path / "odd.tar.gz"), "--force", expect=1).stderr
    assert "or a newer one" in refused and "\x1b" not in refused


def test_a_restoration_after_one_that_was_killed_keeps_its_journal(fresh_server: FreshServer, tmp_path: Path) -> None:
    """The journal that a kill left behind the rename still lies aside; the next restoration reads it first."""
    server = fresh_server()
    api = server.client(validate=False)
    person = api.post("/contacts", {"email": "leaves@example.org"}).expect(201)["id"]
    kept = tmp_path / "kept.tar.gz"
    server.cli("backup", str(kept))
    api.patch(f"/contacts/{person}", {"subscribed_email": False}).expect(200)
    server.stop()
    aside = server.data / ".restoring"
    aside.mkdir()
    (aside / "ready").touch()
    shutil.move(server.data / "optouts.jsonl", aside / "optouts.jsonl")
    assert "1 opt outs" in server.cli("restore", str(kept), "--force").stdout


@pytest.mark.parametrize("words", [("--data", ""), ("--config", ""), ("--data", " ")])
def test_an_empty_path_is_a_wrong_command_line(words: tuple[str, str], server: Server) -> None:
    """A variable that is not set in a script does not lead to the default directory."""
    assert f"argument {words[0]}: must not be empty" in server.cli("check", *words, expect=2).stderr


def test_a_configuration_that_is_no_file_is_called_what_it_is(fresh_server: FreshServer, tmp_path: Path) -> None:
    """A directory, a pipe that nobody writes to, a link to itself: one line, and nobody waits."""
    server = fresh_server(start=False, set_up=False)
    kinds = {"folder": "is a directory", "pipe": "is not a file", "loop": "Too many levels", "nothing": "no such file"}
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for name, words in kinds.items():
        refused = server.cli("check", "--config", str(tmp_path / name), expect=1, timeout=20).stderr
        assert f"{name}: {words}" in refused and refused.count("\n") == 1
    server.data.mkdir()
    (server.data / "campanero.toml").mkdir()
    assert "campanero.toml: is a directory" in server.cli("check", expect=1).stderr


def test_names_have_the_limits_of_the_api(server: Server) -> None:
    """A key or an account with a name that no page could show is refused."""
    for words in (("key", "create"), ("account", "add")):
        assert "name is too long (maximum is 255 characters)" in server.cli(*words, "x" * 256, expect=1).stderr
        assert "name can't be blank" in server.cli(*words, " ", expect=1).stderr


def test_no_account_is_added_before_the_first(fresh_server: FreshServer) -> None:
    """It would become the one that set-up makes."""
    server = fresh_server(set_up=False)
    assert "set up the installation first" in server.cli("account", "add", "More", expect=1).stderr
    server.cli("setup", "--email", "new@example.com", stdin=PASSWORD)
    assert server.cli("account", "add", "More").stdout == "2\n"
    server.stop()
