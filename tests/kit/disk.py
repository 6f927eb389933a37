"""Full disks and processes that cannot write, as far as the user who runs the tests can create them."""

import os
import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


class CannotMount(Exception):
    """This user may not mount a file system here."""


@contextmanager
def small_disk(at: Path, megabytes: int) -> Iterator[Path]:
    """Mount a memory file system of this size. Raises CannotMount if this user may not mount."""
    at.mkdir(parents=True, exist_ok=True)
    process = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=0700", "campanero-test", str(at)],
        capture_output=True, text=True,
    )  # fmt: skip
    if process.returncode:
        raise CannotMount(process.stderr.strip() or "mount failed")
    try:
        yield at
    finally:
        subprocess.run(["umount", "--lazy", str(at)], check=True, capture_output=True)


def fill_disk(directory: Path, leave: int = 0) -> Path:
    """Fill the disk of a directory except for some bytes; return the file to delete afterwards.

    An existing filler stays: without it a process that checks the disk would see free space for a moment.
    """
    filler = directory / "filler"
    with filler.open("ab") as file:
        while (free := free_bytes(directory) - leave) > 0:
            try:
                file.write(b"\0" * min(free, 1_048_576))
                file.flush()
            except OSError:
                break
    return filler


def free_bytes(directory: Path) -> int:
    """Return how many bytes an ordinary process can still write on the disk of a directory."""
    disk = os.statvfs(directory)
    return disk.f_bavail * disk.f_frsize


@contextmanager
def unwritable(pid: int) -> Iterator[None]:
    """Make every write of a running process to a file fail, as on a disk that became read-only."""
    before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        with suppress(ProcessLookupError):  # it may have ended
            resource.prlimit(pid, resource.RLIMIT_FSIZE, before)
