"""What a backup says of itself is not believed; what it leaves on disk is private, and gone after a kill."""

import hashlib
import io
import os
import resource
import shutil
import signal
import subprocess
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest

from tests.conftest import FreshServer
from tests.kit.patience import soon
from tests.kit.recipients import crowd
from tests.kit.server import Server, free_port
from tests.kit.uploads import done, upload

MANIFEST, SUMS = "campanero-backup.json", "SHA256SUMS"
HUGE, MEMORY = 700_000_000, 600_000_000


class Zeros:
    """So many bytes of nothing."""

    def __init__(self, size: int) -> None:
        self._left = size

    def read(self, size: int) -> bytes:
        """Return the next of them."""
        size = min(size, self._left)
        self._left -= size
        return bytes(size)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, dict[str, bytes]]]:
    """An installation, and the members of its backup."""
    with Server().set_up() as server:
        server.stop()
        target = tmp_path_factory.mktemp("whole") / "whole.tar.gz"
        server.cli("backup", str(target))
        with tarfile.open(target) as tar:
            files = {member.name: file.read() for member in tar if (file := tar.extractfile(member)) is not None}
        yield server, files


def plain(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    """Add a member."""
    info = tarfile.TarInfo(name)
    info.size = len(content)
    tar.addfile(info, io.BytesIO(content))


def special(tar: tarfile.TarFile, name: str, kind: bytes, size: int = 0, link: str = "") -> None:
    """Add a member that is no plain file."""
    info = tarfile.TarInfo(name)
    info.type, info.size, info.linkname = kind, size, link
    tar.addfile(info, Zeros(size))  # type: ignore[arg-type]  # reads are all it asks of a file


def _long_sums(tar: tarfile.TarFile, files: dict[str, bytes]) -> None:
    _begin(tar, files)
    special(tar, SUMS, tarfile.REGTYPE, HUGE)


def _long_manifest(tar: tarfile.TarFile, files: dict[str, bytes]) -> None:
    special(tar, MANIFEST, tarfile.REGTYPE, HUGE)


def _long_header(tar: tarfile.TarFile, files: dict[str, bytes]) -> None:
    plain(tar, MANIFEST, files[MANIFEST])
    special(tar, "pax", tarfile.XHDTYPE, HUGE)


def _long_name(tar: tarfile.TarFile, files: dict[str, bytes]) -> None:
    special(tar, "././@LongLink", tarfile.GNUTYPE_LONGNAME, HUGE)


def _zeros(tar: tarfile.TarFile, files: dict[str, bytes]) -> None:
    plain(tar, MANIFEST, files[MANIFEST])
    special(tar, "campanero.db", tarfile.REGTYPE, 300_000_000)


def _more_than_the_disk(tar: tarfile.TarFile, files: dict[str, bytes]) -> None:
    plain(tar, MANIFEST, files[MANIFEST])
    info = tarfile.TarInfo("imports/1/upload")
    info.size = 1 << 50
    tar.fileobj.write(info.tobuf())  # type: ignore[union-attr]
    tar.fileobj.write(bytes(1 << 20))  # type: ignore[union-attr]


def _many_headers(tar: tarfile.TarFile, files: dict[str, bytes]) -> None:
    plain(tar, MANIFEST, files[MANIFEST])
    for _ in range(1_000):
        special(tar, "pax", tarfile.XHDTYPE, 10)


def _many(tar: tarfile.TarFile, files: dict[str, bytes]) -> None:
    _begin(tar, files)
    for number in range(100_001):
        plain(tar, f"imports/{number}", b"")


def _twice(tar: tarfile.TarFile, files: dict[str, bytes]) -> None:
    _begin(tar, files)
    _begin(tar, {"campanero.db": files["campanero.db"]})


def _in_the_way(tar: tarfile.TarFile, files: dict[str, bytes]) -> None:
    _begin(tar, files)
    plain(tar, "imports/1", b"")
    plain(tar, "imports/1/upload", b"")


def _other_manifest(tar: tarfile.TarFile, files: dict[str, bytes]) -> None:
    _begin(tar, files | {MANIFEST: files[MANIFEST].replace(b'"version": "', b'"version": "9')})
    plain(tar, SUMS, files[SUMS])


def _begin(tar: tarfile.TarFile, files: dict[str, bytes]) -> None:
    for name in files:
        if name != SUMS:
            plain(tar, name, files[name])


def _special(name: str, kind: bytes, size: int = 0) -> Callable[[tarfile.TarFile, dict[str, bytes]], None]:
    def add(tar: tarfile.TarFile, files: dict[str, bytes]) -> None:
        _begin(tar, files)
        special(tar, name, kind, size, "/etc/passwd")

    return add


def _member(name: str) -> Callable[[tarfile.TarFile, dict[str, bytes]], None]:
    def add(tar: tarfile.TarFile, files: dict[str, bytes]) -> None:
        _begin(tar, files)
        plain(tar, name, b"x")

    return add


ARCHIVES: dict[str, Callable[[tarfile.TarFile, dict[str, bytes]], None]] = {
    "long sums": _long_sums, "long manifest": _long_manifest, "long header": _long_header, "long name": _long_name,
    "zeros": _zeros, "more than the disk": _more_than_the_disk, "many headers": _many_headers,
    "many": _many, "twice": _twice,
    "in the way": _in_the_way, "other manifest": _other_manifest,
    "symlink": _special("imports/link", tarfile.SYMTYPE), "hard link": _special("imports/link", tarfile.LNKTYPE),
    "pipe": _special("imports/pipe", tarfile.FIFOTYPE), "device": _special("imports/null", tarfile.CHRTYPE),
    "sparse": _special("imports/sparse", tarfile.GNUTYPE_SPARSE), "folder": _special("imports/x", tarfile.DIRTYPE),
    "step up": _member("imports/../../up"), "here": _member("imports/./x"), "absolute": _member("/imports/x"),
    "empty step": _member("imports//x"), "other folder": _member("backups/x"), "own file": _member("campanero.toml"),
}  # fmt: skip


@pytest.mark.parametrize("case", ARCHIVES)
def test_an_archive_is_read_within_bounds(
    case: str, whole: tuple[Server, dict[str, bytes]], fresh_server: FreshServer, tmp_path: Path, full: bool
) -> None:
    """One line, little memory and little time; nothing is left of it."""
    if case == "many" and not full:
        pytest.skip("20 s for 100,000 files: with --full")
    bad = tmp_path / "bad.tar.gz"
    with tarfile.open(bad, "w:gz", compresslevel=1) as tar:
        ARCHIVES[case](tar, whole[1])
        if case == "more than the disk":
            tar.fileobj.flush()  # type: ignore[union-attr]
    other = fresh_server(start=False, set_up=False)
    other.data.mkdir()
    shutil.copyfile(whole[0].data / "secret.key", other.data / "secret.key")
    begun = time.monotonic()
    ended = subprocess.run(
        other._command("restore", str(bad)), env=other.env, cwd=other.home, text=True, capture_output=True, timeout=60,
        check=False, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY)),
    )  # fmt: skip
    assert ended.returncode == 1 and ended.stderr.count("\n") == 1 and str(bad) in ended.stderr, ended.stderr
    assert time.monotonic() - begun < soon(10)
    assert sorted(path.name for path in other.data.iterdir()) == ["secret.key", "serve.lock"]


def _database(change: Callable[[Path], None], content: bytes, tmp_path: Path) -> bytes:
    path = tmp_path / "inside.db"
    path.write_bytes(content)
    change(path)
    return path.read_bytes()


def _asked(sql: str) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        here = apsw.Connection(str(path))
        here.execute(sql).fetchall()
        here.close()

    return change


def _half(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _pages(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[4096 * 3 : 4096 * 6] = b"\xff" * (4096 * 3)
    path.write_bytes(content)


def _foreign(path: Path) -> None:
    path.unlink()
    _asked("CREATE TABLE song (id INTEGER); PRAGMA user_version = 3")(path)


@pytest.mark.parametrize(
    "change",
    [
        lambda path: path.write_bytes(b""), lambda path: path.write_text("hello" * 100), _half, _pages, _foreign,
        _asked("PRAGMA user_version = 2"), _asked("PRAGMA application_id = 7"),
        _asked("UPDATE installation SET key_fingerprint = '0123456789abcdef'"),
        _asked("CREATE TRIGGER go AFTER UPDATE ON account BEGIN UPDATE account SET sending_stopped = 0; END"),
        _asked("CREATE VIEW people AS SELECT 1"), _asked("DROP TABLE suppression"),
        _asked("ALTER TABLE contact DROP COLUMN source"),
    ],
    ids=["empty", "text", "half", "damaged", "foreign", "schema", "marked", "key", "trigger", "view", "table",
         "column"],
)  # fmt: skip
def test_a_backup_with_another_database_inside_is_refused(
    change: Callable[[Path], None], whole: tuple[Server, dict[str, bytes]], fresh_server: FreshServer, tmp_path: Path
) -> None:
    """Though its sums are right: one line, and neither database nor key is left in a new directory."""
    server, files = whole
    files = files | {"secret.key": (server.data / "secret.key").read_bytes()}
    files["campanero.db"] = _database(change, files["campanero.db"], tmp_path)
    del files[SUMS]
    sums = "".join(f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in files.items())
    bad = tmp_path / "bad.tar.gz"
    with tarfile.open(bad, "w:gz") as tar:
        _begin(tar, files)
        plain(tar, SUMS, sums.encode())
    other = fresh_server(start=False, set_up=False)
    line = other.cli("restore", str(bad), expect=1).stderr
    assert line.startswith("campanero: ") and line.count("\n") == 1, line
    assert [path.name for path in other.data.iterdir()] == ["serve.lock"]
    other.start()
    other.stop()


def _open_to_others(directory: Path) -> list[str]:
    return [str(path) for path in (directory, *directory.rglob("*")) if path.lstat().st_mode & 0o077]


def test_all_files_are_private_whatever_the_umask(fresh_server: FreshServer, tmp_path: Path) -> None:
    """In use, after a kill, and after a restoration: folders 0700, files 0600; older files are closed at the start."""
    before = os.umask(0)
    try:
        server = fresh_server(start=False, cold=True)
        (server.data / "imports").mkdir(mode=0o755)
        (server.data / "imports" / "7").mkdir(mode=0o755)
        (server.data / "imports" / "7" / "upload").write_text("from an older version")
        assert _open_to_others(server.data)
        server.start()
        api = server.client()
        made = done(api, upload(api, "email\nann@example.org\n"))
        one = api.post("/contacts", {"email": "leaves@example.org"}).expect(201)["id"]
        api.delete(f"/contacts/{one}?erase=true").expect(200)
        server.cli("backup", str(tmp_path / "copy.tar.gz"))
        assert _open_to_others(server.data) == []
        server.kill()
        assert _open_to_others(server.data) == []
        server.cli("restore", str(tmp_path / "copy.tar.gz"), "--force")
        assert (server.data / "imports" / str(made["id"])).is_dir()
        assert _open_to_others(server.data) == [] and (tmp_path / "copy.tar.gz").stat().st_mode & 0o777 == 0o600
    finally:
        os.umask(before)


@pytest.mark.parametrize("turn", range(5))
def test_a_backup_that_is_killed_leaves_nothing(
    turn: int, whole: tuple[Server, dict[str, bytes]], tmp_path: Path
) -> None:
    """Neither the file nor a part of it: an empty name at most, which the next removes."""
    server = whole[0]
    target = tmp_path / "copies" / "copy.tar.gz"
    target.parent.mkdir()
    doing = subprocess.Popen(
        server._command("backup", str(target)), env=server.env, cwd=server.home, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    # Once it has a file open there, whether that has a name or not
    end = time.monotonic() + soon(20)
    while doing.poll() is None and not _has_open(doing.pid, target.parent):
        assert time.monotonic() < end
    time.sleep(0.004 * turn)
    doing.send_signal(signal.SIGKILL)
    doing.wait()
    left = {path.name: path.stat().st_size for path in target.parent.iterdir()}
    assert all(size == 0 for name, size in left.items() if name != "copy.tar.gz"), left
    target.unlink(missing_ok=True)
    server.cli("backup", str(target))
    assert [path.name for path in target.parent.iterdir()] == ["copy.tar.gz"]


def _has_open(pid: int, directory: Path) -> bool:
    try:
        return any(str(link.readlink()).startswith(str(directory)) for link in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False


def test_the_directory_stays_taken_when_its_lock_file_is_removed(fresh_server: FreshServer) -> None:
    """A second service and a restoration are refused, and doctor and status still see the first."""
    server = fresh_server()
    kept = server.home / "kept.tar.gz"
    server.cli("backup", str(kept))
    (server.data / "serve.lock").unlink()
    for words in (("serve", "--listen", f"127.0.0.1:{free_port()}"), ("restore", str(kept), "--force")):
        assert "another service runs" in server.cli(*words, expect=1, timeout=20).stderr
    assert f"runs as process {server.pid}" in server.cli("doctor", expect=None).stdout
    crowd(server.client(), 10)
    server.stop()
