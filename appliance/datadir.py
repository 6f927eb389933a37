"""The data directory: private, and used by one service at a time."""

import contextlib
import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

STOP_FILE = "STOP"
_LOCK = "serve.lock"
_LOCKS = Path("/proc/locks")


class InUse(Exception):
    """Another service runs on this data directory."""


def make(directory: Path) -> Path:
    """Make the directory with mode 0700 if it is not there, and answer it."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if directory.stat().st_uid == os.getuid() and directory.stat().st_mode & 0o077:
        directory.chmod(0o700)
    return directory


def settle(path: Path) -> None:
    """Bring a file to disk, or what a directory says of the files in it; without that a power cut may take it."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def is_stopped(directory: Path | str) -> bool:
    """Say whether a file `STOP` in the directory stops all sending; looked at before every message."""
    return os.path.lexists(f"{directory}/{STOP_FILE}")


def stopped_since(directory: Path | str) -> int | None:
    """Answer when that file was last written, in milliseconds; None if it is gone."""
    try:
        return os.lstat(f"{directory}/{STOP_FILE}").st_mtime_ns // 1_000_000
    except OSError:
        return None


@contextmanager
def locked(directory: Path, listen: str = "") -> Iterator[None]:
    """Hold the directory for this service; raises InUse at once if another has it. A kill releases it (P10).

    Whoever looks finds its process, and where it listens, which only its own command line may say.
    """
    descriptor = os.open(directory / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InUse(f"another service runs on {directory}") from None
        os.truncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n{listen}\n".encode())
        yield
    finally:
        os.close(descriptor)


def holder(directory: Path) -> int | None:
    """Answer the process of the service that runs on a directory; None if none does. It is not disturbed by that."""
    try:
        number = int((directory / _LOCK).read_text().partition("\n")[0])
        file = (directory / _LOCK).stat().st_ino
        os.kill(number, 0)
    except PermissionError:
        return number  # another user's
    except (OSError, ValueError):
        return None
    with contextlib.suppress(OSError):
        # The number may be another's by now, who holds locks of its own
        held = re.compile(rf" {number} [0-9a-f]+:[0-9a-f]+:{file} ")
        return number if held.search(_LOCKS.read_text()) else None
    return number


def listens(directory: Path) -> str:
    """Answer where the service listens, or did when it ran last; nothing if it never ran."""
    try:
        return (directory / _LOCK).read_text().partition("\n")[2].strip()
    except OSError:
        return ""
