"""Restoring into a data directory whose folders are links, mount points or on another disk (P11)."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import FreshServer
from tests.kit.server import Server

FOLDERS = ("imports", "attachments", "audiences")


@pytest.fixture
def other_disk() -> Iterator[Path]:
    """A directory in memory, which is another file system than those of the tests."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        yield Path(name)


def create_installation(server: Server) -> tuple[Path, str]:
    """Send a message with a file, create a backup, suppress an address after it; return the backup and the file."""
    api = server.client()
    server.set_postal_address()
    api.post("/messages", {"to": "a@example.org", "subject": "x", "body": "y",
                           "attachments": [{"filename": "a.txt", "content": "aGVsbG8="}]}).expect(201)  # fmt: skip
    backup = server.home / "backup.tar.gz"
    server.cli("backup", str(backup))
    api.post("/suppressions", {"address": "later@example.org"}).expect(201)
    server.stop()
    (file,) = [path for path in (server.data / "attachments").rglob("*") if path.is_file()]
    return backup, str(file.relative_to(server.data))


def check_restored(server: Server, file: str) -> None:
    """Check that the file is in place, and that the journal was kept and replayed."""
    assert (server.data / file).read_bytes() == b"hello"
    assert not (server.data / ".restoring").exists()
    server.start()
    assert [row["reason"] for row in server.client().get("/suppressions").expect(200)] == ["manual"]
    assert '"suppressed"' in (server.data / "optouts.jsonl").read_text()
    assert server.cli("doctor", expect=None).returncode == 0
    server.stop()


@pytest.mark.parametrize("is_other_disk", [False, True], ids=["same disk", "other disk"])
def test_folders_may_be_links(fresh_server: FreshServer, other_disk: Path, is_other_disk: bool) -> None:
    """The content of a linked folder is replaced, and the link stays."""
    server = fresh_server()
    backup, file = create_installation(server)
    place = other_disk if is_other_disk else server.home / "volume"
    for name in FOLDERS:
        path = server.data / name
        if path.exists():
            shutil.move(path, place / name)
        (place / name).mkdir(mode=0o700, parents=True, exist_ok=True)
        path.symlink_to(place / name)
    (place / "attachments" / "newer.txt").write_text("newer than the backup")
    server.cli("restore", str(backup), "--force")
    assert all((server.data / name).is_symlink() for name in FOLDERS)
    assert not (place / "attachments" / "newer.txt").exists()
    check_restored(server, file)


def test_a_folder_may_be_a_mount_point(fresh_server: FreshServer, other_disk: Path) -> None:
    """The content of a mounted folder, such as a volume of a container, is replaced."""
    server = fresh_server()
    backup, file = create_installation(server)
    folder = server.data / "attachments"
    # A mount namespace of its own, so that nothing stays mounted.
    command = ["unshare", "--mount", "--map-root-user"] if os.getuid() else ["unshare", "--mount"]
    if subprocess.run([*command, "mount", "--bind", other_disk, folder], capture_output=True).returncode:
        pytest.skip("this system does not allow mounts")
    words = [*server._command("restore", str(backup), "--force")]
    script = 'mount --bind "$1" "$2" && shift 2 && "$@"'
    restored = subprocess.run(
        [*command, "sh", "-c", script, "sh", other_disk, folder, *words],
        env=server.env, cwd=server.home, capture_output=True, text=True,
    )  # fmt: skip
    assert restored.returncode == 0, restored.stderr
    shutil.rmtree(folder)
    shutil.copytree(other_disk, folder)
    check_restored(server, file)


@pytest.mark.parametrize("is_emptied", [False, True])
def test_an_interrupted_restore_continues(fresh_server: FreshServer, is_emptied: bool) -> None:
    """A start moves the rest of the files of a restore that ended after it had replaced the database."""
    server = fresh_server()
    _, file = create_installation(server)
    staging = server.data / ".restoring"
    folder = staging / ("attachments.moving" if is_emptied else "attachments")
    staging.mkdir(mode=0o700)
    (staging / "ready").touch()
    if is_emptied:
        folder.mkdir()
        (folder / "last.txt").write_text("not moved yet")
    else:
        shutil.move(server.data / "attachments", folder)
        (server.data / "attachments").mkdir()
        (server.data / "attachments" / "old.txt").write_text("of the previous data")
        (folder / "last.txt").write_text("not moved yet")
    server.start()
    assert sorted(path.name for path in (server.data / "attachments").glob("*.txt")) == ["last.txt"]
    server.stop()
    check_restored(server, file)


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("attachments", "."),
        ("attachments", ".."),
        ("attachments", "backups"),
        ("imports", "backups/imports"),
        ("imports", "attachments"),
        (".restoring", "backups"),
    ],
)
def test_a_restore_empties_no_other_folder(fresh_server: FreshServer, name: str, target: str) -> None:
    """A folder that leads to other data of the installation is refused, and nothing is changed."""
    server = fresh_server()
    backup, _ = create_installation(server)
    (server.data / "backups" / "imports").mkdir(parents=True, exist_ok=True)
    (server.data / "backups" / "mine.tar.gz").write_text("mine")
    shutil.rmtree(server.data / name, ignore_errors=True)
    (server.data / name).symlink_to(server.data / target)
    before = _list_sizes(server.data)
    refused = server.cli("restore", str(backup), "--force", expect=None)
    assert refused.returncode == 1 and str(server.data / name) in refused.stderr
    assert _list_sizes(server.data) == before


def _list_sizes(directory: Path) -> dict[Path, int]:
    files = (path for path in directory.rglob("*") if path.is_file() and path.name != "serve.lock")
    return {path: path.stat().st_size for path in files}
