"""Restoring hostile backups: nothing in a backup is trusted; its files are private, and a killed backup leaves none."""

import hashlib
import hmac
import io
import os
import re
import shutil
import signal
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest

from tests.conftest import FreshServer
from tests.kit.fork_server import MEMORY_VARIABLE
from tests.kit.recipients import create_list
from tests.kit.sampling import every_nth
from tests.kit.server import Server, free_port
from tests.kit.timeouts import extend_timeout
from tests.kit.uploads import upload, wait_for_import

MANIFEST, SUMS, SIGNATURE = "campanero-backup.json", "SHA256SUMS", "SHA256SUMS.hmac"
# The bytes that a hostile archive claims to have, and those by which a restore may grow
HUGE, MEMORY = 700_000_000, 400_000_000


class Zeros:
    """A file of `size` zero bytes."""

    def __init__(self, size: int) -> None:
        self._left = size

    def read(self, size: int) -> bytes:
        """Return the next zero bytes."""
        size = min(size, self._left)
        self._left -= size
        return bytes(size)


@pytest.fixture(scope="module")
def backup(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, dict[str, bytes]]]:
    """An installation, and the members of its backup by name."""
    with Server().set_up() as server:
        server.stop()
        target = tmp_path_factory.mktemp("whole") / "whole.tar.gz"
        server.cli("backup", str(target))
        with tarfile.open(target) as tar:
            files = {member.name: file.read() for member in tar if (file := tar.extractfile(member)) is not None}
        yield server, files


def add_file(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    """Add a regular member."""
    info = tarfile.TarInfo(name)
    info.size = len(content)
    tar.addfile(info, io.BytesIO(content))


def add_special(tar: tarfile.TarFile, name: str, kind: bytes, size: int = 0, link: str = "") -> None:
    """Add a member of another type than a regular file."""
    info = tarfile.TarInfo(name)
    info.type, info.size, info.linkname = kind, size, link
    tar.addfile(info, Zeros(size))  # type: ignore[arg-type]  # tarfile only calls read()


def _long_sums(tar: tarfile.TarFile, files: dict[str, bytes]) -> None:
    _add_all_but_sums(tar, files)
    add_special(tar, SUMS, tarfile.REGTYPE, HUGE)


def _long_manifest(tar: tarfile.TarFile, files: dict[str, bytes]) -> None:
    add_special(tar, MANIFEST, tarfile.REGTYPE, HUGE)


def _long_header(tar: tarfile.TarFile, files: dict[str, bytes]) -> None:
    add_file(tar, MANIFEST, files[MANIFEST])
    add_special(tar, "pax", tarfile.XHDTYPE, HUGE)


def _long_name(tar: tarfile.TarFile, files: dict[str, bytes]) -> None:
    add_special(tar, "././@LongLink", tarfile.GNUTYPE_LONGNAME, HUGE)


def _zeros(tar: tarfile.TarFile, files: dict[str, bytes]) -> None:
    add_file(tar, MANIFEST, files[MANIFEST])
    add_special(tar, "campanero.db", tarfile.REGTYPE, 300_000_000)


def _more_than_the_disk(tar: tarfile.TarFile, files: dict[str, bytes]) -> None:
    add_file(tar, MANIFEST, files[MANIFEST])
    info = tarfile.TarInfo("imports/1/upload")
    info.size = 1 << 50
    tar.fileobj.write(info.tobuf())  # type: ignore[union-attr]  # it was opened for writing
    tar.fileobj.write(bytes(1 << 20))  # type: ignore[union-attr]  # it was opened for writing


def _sparse_header(tar: tarfile.TarFile, files: dict[str, bytes]) -> None:
    add_file(tar, MANIFEST, files[MANIFEST])
    info = tarfile.TarInfo("imports/x")
    info.size, info.pax_headers = 1, {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "10"}
    tar.addfile(info, io.BytesIO(b"x"))


def _number_in_first_header(tar: tarfile.TarFile, files: dict[str, bytes]) -> None:
    info = tarfile.TarInfo(MANIFEST)
    info.pax_headers = {"GNU.sparse.size": "x"}
    tar.addfile(info)


def _long_number(tar: tarfile.TarFile, files: dict[str, bytes]) -> None:
    """Begin an extended header with a length that no machine can count to."""
    add_file(tar, MANIFEST, files[MANIFEST])
    content = f"{'9' * 20} size=5\n".encode()
    info = tarfile.TarInfo("pax")
    info.type, info.size = tarfile.XHDTYPE, len(content)
    tar.addfile(info, io.BytesIO(content))


def _manifest_in_another_encoding(tar: tarfile.TarFile, files: dict[str, bytes]) -> None:
    add_file(tar, MANIFEST, files[MANIFEST].replace(b'"version": "', b'"version": "\xff'))


def _many_headers(tar: tarfile.TarFile, files: dict[str, bytes]) -> None:
    add_file(tar, MANIFEST, files[MANIFEST])
    for _ in range(1_000):
        add_special(tar, "pax", tarfile.XHDTYPE, 10)


def _many(tar: tarfile.TarFile, files: dict[str, bytes]) -> None:
    _add_all_but_sums(tar, files)
    for number in range(100_001):
        add_file(tar, f"imports/{number}", b"")


def _twice(tar: tarfile.TarFile, files: dict[str, bytes]) -> None:
    _add_all_but_sums(tar, files)
    _add_all_but_sums(tar, {"campanero.db": files["campanero.db"]})


def _file_as_folder(tar: tarfile.TarFile, files: dict[str, bytes]) -> None:
    _add_all_but_sums(tar, files)
    add_file(tar, "imports/1", b"")
    add_file(tar, "imports/1/upload", b"")


def _other_manifest(tar: tarfile.TarFile, files: dict[str, bytes]) -> None:
    _add_all_but_sums(tar, files | {MANIFEST: files[MANIFEST].replace(b'"version": "', b'"version": "9')})
    add_file(tar, SUMS, files[SUMS])


def _add_all_but_sums(tar: tarfile.TarFile, files: dict[str, bytes]) -> None:
    for name in files:
        if name not in (SUMS, SIGNATURE):
            add_file(tar, name, files[name])


def write_backup(path: Path, files: dict[str, bytes], key: bytes) -> None:
    """Write a backup with these members and right checksums, signed with the content of a key file."""
    files = {name: content for name, content in files.items() if name not in (SUMS, SIGNATURE)}
    sums = "".join(f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in files.items()).encode()
    purpose_key = hashlib.blake2b(b"backup signature", key=bytes.fromhex(key.decode()), digest_size=32).digest()
    with tarfile.open(path, "w:gz", compresslevel=1) as tar:
        _add_all_but_sums(tar, files)
        add_file(tar, SUMS, sums)
        add_file(tar, SIGNATURE, hmac.digest(purpose_key, sums, "sha256").hex().encode())


def _special(name: str, kind: bytes, size: int = 0) -> Callable[[tarfile.TarFile, dict[str, bytes]], None]:
    def add(tar: tarfile.TarFile, files: dict[str, bytes]) -> None:
        _add_all_but_sums(tar, files)
        add_special(tar, name, kind, size, "/etc/passwd")

    return add


def _member(name: str) -> Callable[[tarfile.TarFile, dict[str, bytes]], None]:
    def add(tar: tarfile.TarFile, files: dict[str, bytes]) -> None:
        _add_all_but_sums(tar, files)
        add_file(tar, name, b"x")

    return add


ARCHIVES: dict[str, Callable[[tarfile.TarFile, dict[str, bytes]], None]] = {
    "long number": _long_number,
    "long sums": _long_sums, "long manifest": _long_manifest, "long header": _long_header, "long name": _long_name,
    "zeros": _zeros, "more than the disk": _more_than_the_disk, "many headers": _many_headers,
    "many": _many, "twice": _twice,
    "in the way": _file_as_folder, "other manifest": _other_manifest,
    "symlink": _special("imports/link", tarfile.SYMTYPE), "hard link": _special("imports/link", tarfile.LNKTYPE),
    "pipe": _special("imports/pipe", tarfile.FIFOTYPE), "device": _special("imports/null", tarfile.CHRTYPE),
    "sparse": _special("imports/sparse", tarfile.GNUTYPE_SPARSE), "sparse by header": _sparse_header,
    "number in the first header": _number_in_first_header, "folder": _special("imports/x", tarfile.DIRTYPE),
    "manifest in another encoding": _manifest_in_another_encoding,
    "step up": _member("imports/../../up"), "here": _member("imports/./x"), "absolute": _member("/imports/x"),
    "empty step": _member("imports//x"), "other folder": _member("backups/x"), "own file": _member("campanero.toml"),
}  # fmt: skip


@pytest.mark.parametrize("case", every_nth(ARCHIVES, 4))
def test_restoring_a_hostile_archive_is_bounded(
    case: str, backup: tuple[Server, dict[str, bytes]], fresh_server: FreshServer, tmp_path: Path, full: bool
) -> None:
    """The restore fails with one line, within bounds of memory and time, and leaves nothing behind."""
    if case == "many" and not full:
        pytest.skip("20 s for 100,000 files: with --full")
    bad = tmp_path / "bad.tar.gz"
    with tarfile.open(bad, "w:gz", compresslevel=1) as tar:
        ARCHIVES[case](tar, backup[1])
        if case == "more than the disk":
            tar.fileobj.flush()  # type: ignore[union-attr]  # it was opened for writing
    other = fresh_server(start=False, set_up=False)
    other.data.mkdir()
    shutil.copyfile(backup[0].data / "secret.key", other.data / "secret.key")
    started = time.monotonic()
    other.env[MEMORY_VARIABLE] = str(MEMORY)
    result = other.cli("restore", str(bad), expect=None, timeout=extend_timeout(60))
    assert result.returncode == 1 and result.stderr.count("\n") == 1 and str(bad) in result.stderr, result.stderr
    assert time.monotonic() - started < extend_timeout(10)
    assert sorted(path.name for path in other.data.iterdir()) == ["secret.key", "serve.lock"]


def _database(change: Callable[[Path], None], content: bytes, tmp_path: Path) -> bytes:
    path = tmp_path / "inside.db"
    path.write_bytes(content)
    change(path)
    return path.read_bytes()


def _after_sql(sql: str) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        connection = apsw.Connection(str(path))
        connection.execute(sql).fetchall()
        connection.close()

    return change


def _with_a_hidden_trigger(path: Path) -> None:
    """Store a trigger with a type in capitals, which SQLite accepts."""
    _after_sql("CREATE TRIGGER go AFTER UPDATE ON account BEGIN UPDATE account SET sending_stopped = 0; END")(path)
    connection = apsw.Connection(str(path))
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
    connection.execute("PRAGMA writable_schema = 1; UPDATE sqlite_schema SET type = 'TRIGGER' WHERE name = 'go'")
    connection.close()


def _cut_in_half(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _with_damaged_pages(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[4096 * 3 : 4096 * 6] = b"\xff" * (4096 * 3)
    path.write_bytes(content)


def _of_another_program(path: Path) -> None:
    path.unlink()
    _after_sql("CREATE TABLE song (id INTEGER); PRAGMA user_version = 3")(path)


@pytest.mark.parametrize(
    "change",
    [
        lambda path: path.write_bytes(b""), lambda path: path.write_text("hello" * 100), _cut_in_half,
        _with_damaged_pages, _of_another_program,
        _after_sql("PRAGMA user_version = 2"), _after_sql("PRAGMA application_id = 7"),
        _after_sql("UPDATE installation SET key_fingerprint = '0123456789abcdef'"),
        _after_sql("CREATE TRIGGER go AFTER UPDATE ON account BEGIN UPDATE account SET sending_stopped = 0; END"),
        _after_sql("CREATE VIEW people AS SELECT 1"), _after_sql("DROP TABLE suppression"),
        _after_sql("ALTER TABLE contact DROP COLUMN source"), _with_a_hidden_trigger,
    ],
    ids=["empty", "text", "half", "damaged", "foreign", "schema", "marked", "key", "trigger", "view", "table",
         "column", "hidden trigger"],
)  # fmt: skip
def test_a_backup_with_an_invalid_database_is_rejected(
    change: Callable[[Path], None], backup: tuple[Server, dict[str, bytes]], fresh_server: FreshServer, tmp_path: Path
) -> None:
    """Its checksums are right, yet the restore fails with one line and leaves neither database nor key."""
    server, files = backup
    key = (server.data / "secret.key").read_bytes()
    bad = tmp_path / "bad.tar.gz"
    database = _database(change, files["campanero.db"], tmp_path)
    write_backup(bad, files | {"secret.key": key, "campanero.db": database}, key)
    other = fresh_server(start=False, set_up=False)
    line = other.cli("restore", str(bad), expect=1).stderr
    assert line.startswith("campanero: ") and line.count("\n") == 1, line
    assert [path.name for path in other.data.iterdir()] == ["serve.lock"]
    other.start()
    other.stop()


def test_a_changed_backup_is_rejected(
    backup: tuple[Server, dict[str, bytes]], fresh_server: FreshServer, tmp_path: Path
) -> None:
    """Right checksums are not enough: without the key nobody can add, for example, an owner to a backup (T46)."""
    server, files = backup
    key = (server.data / "secret.key").read_bytes()
    change = _after_sql("UPDATE user SET email = 'mallory@example.org'")
    changed = files | {"campanero.db": _database(change, files["campanero.db"], tmp_path)}
    other = fresh_server(start=False, set_up=False)
    other.data.mkdir()
    (other.data / "secret.key").write_bytes(key)
    bad = tmp_path / "bad.tar.gz"
    for signature in (files[SIGNATURE], b"", b"0" * 64, b"\xff" * 64, b"0" * 65):
        write_backup(bad, changed, key)
        with tarfile.open(bad) as tar:
            sums = tar.extractfile(SUMS).read()  # type: ignore[union-attr]  # a regular member
        with tarfile.open(bad, "w:gz", compresslevel=1) as tar:
            _add_all_but_sums(tar, changed)
            add_file(tar, SUMS, sums)
            add_file(tar, SIGNATURE, signature)
        line = other.cli("restore", str(bad), expect=1).stderr
        assert line.count("\n") == 1 and re.search("was changed after it was created|has 65 bytes", line), line
    with tarfile.open(bad, "w:gz", compresslevel=1) as tar:
        _add_all_but_sums(tar, files)
        add_file(tar, SUMS, files[SUMS])
    assert "has no signature" in other.cli("restore", str(bad), expect=1).stderr
    assert sorted(path.name for path in other.data.iterdir()) == ["secret.key", "serve.lock"]
    write_backup(bad, files, key)
    other.cli("restore", str(bad))


def _accessible_to_others(directory: Path) -> list[str]:
    return [str(path) for path in (directory, *directory.rglob("*")) if path.lstat().st_mode & 0o077]


def test_all_files_are_private_whatever_the_umask(fresh_server: FreshServer, tmp_path: Path) -> None:
    """Folders are 0700 and files 0600: while running, after a kill and a restore, and if an older version made them."""
    before = os.umask(0)
    try:
        server = fresh_server(start=False, cold=True)
        (server.data / "imports").mkdir(mode=0o755)
        (server.data / "imports" / "7").mkdir(mode=0o755)
        (server.data / "imports" / "7" / "upload").write_text("from an older version")
        assert _accessible_to_others(server.data)
        server.start()
        api = server.client()
        job = wait_for_import(api, upload(api, "email\nann@example.org\n"))
        contact_id = api.post("/contacts", {"email": "leaves@example.org"}).expect(201)["id"]
        api.delete(f"/contacts/{contact_id}?erase=true").expect(200)
        server.cli("backup", str(tmp_path / "copy.tar.gz"))
        assert _accessible_to_others(server.data) == []
        server.kill()
        assert _accessible_to_others(server.data) == []
        server.cli("restore", str(tmp_path / "copy.tar.gz"), "--force")
        assert (server.data / "imports" / str(job["id"])).is_dir()
        assert _accessible_to_others(server.data) == [] and (tmp_path / "copy.tar.gz").stat().st_mode & 0o777 == 0o600
    finally:
        os.umask(before)


@pytest.mark.parametrize("turn", range(5))
def test_a_killed_backup_leaves_no_partial_file(
    turn: int, backup: tuple[Server, dict[str, bytes]], tmp_path: Path
) -> None:
    """A killed backup leaves at most an empty file, which the next backup removes."""
    server = backup[0]
    target = tmp_path / "copies" / "copy.tar.gz"
    target.parent.mkdir()
    process = server.begin("backup", str(target))
    # Kill it once it has a file open there, with or without a name
    end = time.monotonic() + extend_timeout(20)
    while process.poll() is None and not _has_open(process.pid, target.parent):
        assert time.monotonic() < end
    time.sleep(0.004 * turn)
    process.send_signal(signal.SIGKILL)
    process.wait()
    sizes = {path.name: path.stat().st_size for path in target.parent.iterdir()}
    assert all(size == 0 for name, size in sizes.items() if name != "copy.tar.gz"), sizes
    target.unlink(missing_ok=True)
    server.cli("backup", str(target))
    assert [path.name for path in target.parent.iterdir()] == ["copy.tar.gz"]


@pytest.mark.parametrize("kind", ["pipe", "folder", "link", *["file of another user"] * (os.getuid() == 0)])
def test_other_users_cannot_stop_a_backup(kind: str, backup: tuple[Server, dict[str, bytes]], tmp_path: Path) -> None:
    """What others put into a shared directory under the name of an unfinished file is neither opened nor removed."""
    place, kept = tmp_path / ".campanero-1-campanero.db.part", tmp_path / "kept"
    kept.write_bytes(b"kept")
    if kind == "pipe":
        os.mkfifo(place)
    elif kind == "folder":
        place.mkdir()
    elif kind == "link":
        place.symlink_to(kept)
    else:
        place.write_bytes(b"kept")
        os.chown(place, 65_534, 65_534)
    backup[0].cli("backup", str(tmp_path / "copy.tar.gz"), timeout=20)
    assert os.path.lexists(place) and kept.read_bytes() == b"kept"


def test_the_name_of_a_copy_cannot_be_guessed(backup: tuple[Server, dict[str, bytes]], tmp_path: Path) -> None:
    """A backup succeeds in a shared directory in which others took the names with the next process ids."""
    last_pid = int(Path("/proc/loadavg").read_text().split()[-1])
    for pid in range(last_pid, last_pid + 3_000):
        (tmp_path / f".campanero-{pid}-campanero.db.part").mkdir()
    backup[0].cli("backup", str(tmp_path / "copy.tar.gz"))


def _has_open(pid: int, directory: Path) -> bool:
    try:
        return any(str(link.readlink()).startswith(str(directory)) for link in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False


def test_the_lock_survives_removal_of_its_file(fresh_server: FreshServer) -> None:
    """A second service and a restore are still rejected, and `doctor` still sees the first service."""
    server = fresh_server()
    copy = server.home / "kept.tar.gz"
    server.cli("backup", str(copy))
    (server.data / "serve.lock").unlink()
    for command in (("serve", "--listen", f"127.0.0.1:{free_port()}"), ("restore", str(copy), "--force")):
        assert "another service runs" in server.cli(*command, expect=1, timeout=20).stderr
    assert f"runs as process {server.pid}" in server.cli("doctor", expect=None).stdout
    create_list(server.client(), 10)
    server.stop()
