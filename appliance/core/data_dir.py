"""The data directory, which only its user may access and only one service at a time may use."""

import contextlib
import errno
import fcntl
import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

STOP_FILE = "STOP"
_SERVICE_FILE = "serve.lock"
_PROC_LOCKS = Path("/proc/locks")
_OWN_NAMES = (
    "campanero.db", "campanero.toml", "secret.key", "optouts.jsonl", "imports", "audiences", "attachments", "backups",
    "certificates", "copies", _SERVICE_FILE,
)  # fmt: skip
_USED_FILES = ("secret.key", "optouts.jsonl")  # files that only a used installation contains
_STAGING_FOLDER = ".restoring"
_FOLDERS = ("imports", "audiences", "attachments", "backups", "certificates", "copies")
_FILES = ("reserve", "optouts.jsonl", _SERVICE_FILE)
# Files with these names are removed from every directory that `create_file` writes to, including directories of the
# operator, so the names must be distinctive.
PART_PREFIX, PART_SUFFIX = ".campanero-", ".part"


class ForeignDirectory(Exception):
    """The directory holds data of another program, or a file or folder of the wrong kind."""


class DirectoryInUse(Exception):
    """Another service runs on this data directory."""


def create(directory: Path) -> Path:
    """Create the data directory if it does not exist, set its mode to 0700, and return it.

    A directory of another user keeps its mode. Raises ForeignDirectory if the directory seems to belong to another
    program, or has a file or folder of the wrong kind.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    _require_own_directory(directory)
    _require_kinds(directory)
    if directory.stat().st_uid == os.getuid() and directory.stat().st_mode & 0o077:
        directory.chmod(0o700)
    return directory


def _require_own_directory(directory: Path) -> None:
    """Raise ForeignDirectory if a directory has none of `_OWN_NAMES`, but a subdirectory that other users can access.

    Such a directory may be a home directory: making everything in it private would break other programs.
    """
    if any((directory / name).exists() for name in _OWN_NAMES):
        return
    for path in sorted(directory.iterdir()):
        status = path.lstat()
        if stat.S_ISDIR(status.st_mode) and status.st_mode & 0o077 and status.st_uid == os.getuid():
            raise ForeignDirectory(
                f"{directory} is not a data directory of Campanero: it contains {path.name}, which other users can "
                "access. Everything in a data directory becomes private, so choose an empty directory"
            )


def _require_kinds(directory: Path) -> None:
    """Raise ForeignDirectory if a name of `_FOLDERS` is not a folder, or a name of `_FILES` is not a regular file."""
    if wrong_kinds := find_wrong_kinds(directory):
        raise ForeignDirectory(wrong_kinds[0])


def find_wrong_kinds(directory: Path) -> list[str]:
    """Return an error sentence for each path whose kind is wrong, such as a folder named `reserve`.

    Each existing name of `_FOLDERS` must be a folder, each of `_FILES` a regular file, or a link to one.
    """
    sentences = []
    for name in (*_FOLDERS, _STAGING_FOLDER, *_FILES):
        path = directory / name
        if not os.path.lexists(path):
            continue
        if not path.exists():
            kind = "a broken link"
        elif path.is_file():
            kind = "" if name in _FILES else "a file"
        else:
            kind = "" if path.is_dir() and name not in _FILES else irregular_kind(path)
        if kind:
            expected = "a file" if name in _FILES else "a folder"
            sentences.append(f"{path} is {kind}, but Campanero needs {expected} with this name: move it away")
    return sentences


def list_traces(directory: Path) -> list[str]:
    """Return the names of the existing files and non-empty folders that only a used installation contains.

    The database is not among them.
    """
    files = [name for name in _USED_FILES if (directory / name).exists()]
    return files + [name for name in _FOLDERS if any((directory / name).glob("*"))]


def make_private(directory: Path) -> None:
    """Remove the permissions of group and others from all files and folders of this user in the directory."""
    for path in directory.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # removed meanwhile by another process
            status = path.lstat()
            if status.st_mode & 0o077 and status.st_uid == os.getuid() and not stat.S_ISLNK(status.st_mode):
                path.chmod(stat.S_IMODE(status.st_mode) & 0o700)


def irregular_kind(path: Path) -> str:
    """Return "a directory", "a named pipe", "a socket" or "a device", or an empty string for a regular file.

    Check the kind before opening a file, because opening a pipe can block forever and reading a device may never end.
    Raises OSError if the path does not exist or cannot be examined.
    """
    mode = path.stat().st_mode
    if stat.S_ISREG(mode):
        return ""
    kinds = {stat.S_ISDIR: "a directory", stat.S_ISFIFO: "a named pipe", stat.S_ISSOCK: "a socket"}
    return next((words for is_kind, words in kinds.items() if is_kind(mode)), "a device")


@contextmanager
def create_file(target: Path) -> Iterator[BinaryIO]:
    """Yield an open file (mode 0600) that gets the name `target` after the block, once its content is on disk.

    If the block raises, no file is created. Raises FileExistsError if `target` exists when the block ends. Until then
    the file has no name, so a killed process leaves no file behind. File systems without unnamed files (NFS, FAT) need
    a temporary name; the next call in the same directory removes such files of killed processes.
    """
    remove_unfinished_files(target.parent)
    try:
        descriptor = os.open(target.parent, os.O_TMPFILE | os.O_RDWR, 0o600)
        part = None
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT):
            raise
        part = target.with_name(f"{PART_PREFIX}{os.getpid()}-{secrets.token_hex(4)}{PART_SUFFIX}")
        descriptor = os.open(part, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
    try:
        with os.fdopen(descriptor, "w+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield file
            file.flush()
            os.fsync(file.fileno())
            if part is not None:
                os.link(part, target)
            else:
                _link_unnamed(file.fileno(), target)
            sync_to_disk(target.parent)
    finally:
        if part is not None:
            part.unlink(missing_ok=True)


def replace_file(target: Path, content: bytes) -> None:
    """Write a small file with mode 0600 in place of what is there, so that a kill leaves the old or the new content."""
    remove_unfinished_files(target.parent)
    part = target.with_name(f"{PART_PREFIX}{os.getpid()}-{secrets.token_hex(4)}{PART_SUFFIX}")
    descriptor = os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            part.replace(target)
            sync_to_disk(target.parent)
    finally:
        part.unlink(missing_ok=True)


def _link_unnamed(descriptor: int, target: Path) -> None:
    directory = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        # With `dst_dir_fd` Python calls linkat(2), which can follow the link in /proc to the unnamed file; link(2)
        # cannot.
        os.link(f"/proc/self/fd/{descriptor}", target.name, dst_dir_fd=directory, follow_symlinks=True)
    finally:
        os.close(directory)


def remove_unfinished_files(directory: Path) -> None:
    """Remove the unfinished files that killed processes left; a file that is being written is locked and stays.

    The directory may be one that other users write to. Only regular files of this user are touched, because another
    user's pipe or folder with such a name would stop each backup.
    """
    for path in directory.glob(f"{PART_PREFIX}*{PART_SUFFIX}"):
        with contextlib.suppress(FileNotFoundError, BlockingIOError):
            status = path.lstat()
            if not stat.S_ISREG(status.st_mode) or status.st_uid != os.getuid():
                continue
            with path.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                path.unlink()


def sync_to_disk(path: Path) -> None:
    """Sync the content of a file, or the entries of a directory, to disk, so that it survives a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def has_stop_file(directory: Path | str) -> bool:
    """Return whether the directory contains the file `STOP`, which stops all sending.

    Senders call this before every message.
    """
    return os.path.lexists(f"{directory}/{STOP_FILE}")


def stop_file_time(directory: Path | str) -> int | None:
    """Return the modification time of the file `STOP` in milliseconds, or None if there is no such file."""
    try:
        return os.lstat(f"{directory}/{STOP_FILE}").st_mtime_ns // 1_000_000
    except OSError:
        return None


@contextmanager
def lock(directory: Path, listen: str = "") -> Iterator[None]:
    """Lock the data directory for this service while the block runs. Raises DirectoryInUse if another service has it.

    The kernel releases the lock when the process ends, even by a kill (P10). The directory itself is locked, because a
    lock file could be deleted. `serve.lock` only records the process id of the service and its listen address
    (`listen`).
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DirectoryInUse(f"another service runs on {directory}") from None
        record = os.open(directory / _SERVICE_FILE, os.O_CREAT | os.O_RDWR | os.O_TRUNC, 0o600)
        try:
            os.write(record, f"{os.getpid()}\n{listen}\n".encode())
        finally:
            os.close(record)
        yield
    finally:
        os.close(descriptor)


def find_service_pid(directory: Path) -> int | None:
    """Return the process id of the service that has locked a directory, or None.

    None means that no service has locked the directory, or that the locks of the system cannot be read.
    """
    recorded = _recorded_pid(directory)
    try:
        status, locks = directory.stat(), _PROC_LOCKS.read_text()
    except OSError:
        return None
    device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}"
    # Some file systems report another device number for locks than for files, so for the recorded process the inode is
    # enough.
    for pid, lock_device in re.findall(rf" FLOCK +[A-Z]+ +WRITE (\d+) ([0-9a-f]+:[0-9a-f]+):{status.st_ino} ", locks):
        if int(pid) == recorded or (lock_device == device and int(pid) > 0):
            return int(pid)
    return None


def _recorded_pid(directory: Path) -> int | None:
    try:
        return int(_read_service_file(directory).partition("\n")[0])
    except ValueError:
        return None


def read_listen_address(directory: Path) -> str:
    """Return the address on which the service listens or last listened, or an empty text."""
    return _read_service_file(directory).partition("\n")[2].strip()


def _read_service_file(directory: Path) -> str:
    path = directory / _SERVICE_FILE
    try:
        return "" if irregular_kind(path) else path.read_text()
    except (OSError, UnicodeDecodeError):
        return ""
