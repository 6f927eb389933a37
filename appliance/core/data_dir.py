"""The data directory: private, and used by one service at a time."""

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
_RECORD = "serve.lock"
_LOCKS = Path("/proc/locks")
_OURS = (
    "campanero.db", "campanero.toml", "secret.key", "optouts.jsonl", "imports", "audiences", "backups", _RECORD,
)  # fmt: skip
# Unmistakable, for whatever is called so in any directory is removed
PART_PREFIX, PART_SUFFIX = ".campanero-", ".part"


class Foreign(Exception):
    """The directory belongs to something else."""


class InUse(Exception):
    """Another service runs on this data directory."""


def make(directory: Path) -> Path:
    """Make the directory with mode 0700 if it is not there, and return it; raises Foreign."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    _must_be_ours(directory)
    if directory.stat().st_uid == os.getuid() and directory.stat().st_mode & 0o077:
        directory.chmod(0o700)
    return directory


def _must_be_ours(directory: Path) -> None:
    """Raise Foreign where nothing is of Campanero, and a directory inside is used by others, as in a home."""
    if any((directory / name).exists() for name in _OURS):
        return
    for path in sorted(directory.iterdir()):
        facts = path.lstat()
        if stat.S_ISDIR(facts.st_mode) and facts.st_mode & 0o077 and facts.st_uid == os.getuid():
            raise Foreign(f"{directory} holds {path.name}, which others use, and nothing of Campanero: everything in a "
                          "data directory becomes private, so name one of its own")  # fmt: skip


def make_private(directory: Path) -> None:
    """Close to others what this user owns in the directory: files of older versions, or put there by hand."""
    for path in directory.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # a command beside this one has removed it
            facts = path.lstat()
            if facts.st_mode & 0o077 and facts.st_uid == os.getuid() and not stat.S_ISLNK(facts.st_mode):
                path.chmod(stat.S_IMODE(facts.st_mode) & 0o700)


def other_kind(path: Path) -> str:
    """Return what stands at a path in the place of a regular file, in words; nothing if it is one. Raises OSError.

    Asked before a file is opened: to open a pipe waits for ever, and a device may never end.
    """
    mode = path.stat().st_mode
    if stat.S_ISREG(mode):
        return ""
    kinds = {stat.S_ISDIR: "a directory", stat.S_ISFIFO: "a named pipe", stat.S_ISSOCK: "a socket"}
    return next((words for is_kind, words in kinds.items() if is_kind(mode)), "a device")


@contextmanager
def new_file(target: Path) -> Iterator[BinaryIO]:
    """Yield a private file that appears at `target` whole, when the block ends well, or not at all.

    Raises FileExistsError where something is there by then. A kill leaves nothing: the file has no name until then.
    File systems that know no such files (NFS, FAT) get one under a name that the next call in this directory removes.
    """
    sweep_parts(target.parent)
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
            settle(target.parent)
    finally:
        if part is not None:
            part.unlink(missing_ok=True)


def _link_unnamed(descriptor: int, target: Path) -> None:
    directory = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        # With a directory given Python calls linkat(2), which alone follows the link of /proc to the file
        os.link(f"/proc/self/fd/{descriptor}", target.name, dst_dir_fd=directory, follow_symlinks=True)
    finally:
        os.close(directory)


def sweep_parts(directory: Path) -> None:
    """Remove unfinished files that a kill left under a name; files still being written stay."""
    for path in directory.glob(f"{PART_PREFIX}*{PART_SUFFIX}"):
        with contextlib.suppress(FileNotFoundError, BlockingIOError), path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            path.unlink()


def settle(path: Path) -> None:
    """Bring a file to disk, or what a directory says of the files in it; without that a power cut may take it."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def is_stopped(directory: Path | str) -> bool:
    """Return whether a file `STOP` in the directory stops all sending; looked at before every message."""
    return os.path.lexists(f"{directory}/{STOP_FILE}")


def stopped_since(directory: Path | str) -> int | None:
    """Return when that file was last written, in milliseconds; None if it is gone."""
    try:
        return os.lstat(f"{directory}/{STOP_FILE}").st_mtime_ns // 1_000_000
    except OSError:
        return None


@contextmanager
def locked(directory: Path, listen: str = "") -> Iterator[None]:
    """Hold the directory for this service; raises InUse at once if another has it. A kill releases it (P10).

    The lock is on the directory itself, so that no file can be removed from under it. `serve.lock` only says who
    holds it and where that service listens.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InUse(f"another service runs on {directory}") from None
        record = os.open(directory / _RECORD, os.O_CREAT | os.O_RDWR | os.O_TRUNC, 0o600)
        try:
            os.write(record, f"{os.getpid()}\n{listen}\n".encode())
        finally:
            os.close(record)
        yield
    finally:
        os.close(descriptor)


def holder(directory: Path) -> int | None:
    """Return the process id of the service that runs on a directory, None if none does, without disturbing it."""
    recorded = _recorded_pid(directory)
    try:
        facts, locks = directory.stat(), _LOCKS.read_text()
    except OSError:
        return None
    device = f"{os.major(facts.st_dev):02x}:{os.minor(facts.st_dev):02x}"
    # Some file systems give locks another device number than files: who stands in the record needs the inode alone
    for pid, where in re.findall(rf" FLOCK .* WRITE (\d+) ([0-9a-f]+:[0-9a-f]+):{facts.st_ino} ", locks):
        if int(pid) == recorded or (where == device and int(pid) > 0):
            return int(pid)
    return None


def _recorded_pid(directory: Path) -> int | None:
    try:
        return int((directory / _RECORD).read_text().partition("\n")[0])
    except (OSError, ValueError):
        return None


def listens(directory: Path) -> str:
    """Return where the service listens, or did when it ran last; nothing if it never ran."""
    try:
        return (directory / _RECORD).read_text().partition("\n")[2].strip()
    except OSError:
        return ""
