"""The directory of backups that the service keeps itself: their names, and which of them may go."""

import calendar
import re
import stat
import time
from pathlib import Path
from typing import NamedTuple

FOLDER = "backups"
# What the service makes by its schedule; what others put there, and what an upgrade kept, is not its to delete
_OWN = re.compile(r"campanero-(\d{8}T\d{6}Z)\.tar\.gz")
_ANY = re.compile(r"[^.].*\.tar\.gz")
_STAMP = "%Y%m%dT%H%M%SZ"


class Kept(NamedTuple):
    """A backup that lies there."""

    path: Path
    made_at: int  # milliseconds
    size: int  # bytes
    is_own: bool  # made by the schedule, and deleted by it


def stamp(moment: int) -> str:
    """Return a moment as names of files say it, in UTC."""
    return time.strftime(_STAMP, time.gmtime(moment / 1000))


def name(moment: int) -> str:
    """Return the name of a scheduled backup."""
    return f"campanero-{stamp(moment)}.tar.gz"


def kept(directory: Path) -> list[Kept]:
    """List the backups of a data directory, newest first."""
    found = []
    for path in (directory / FOLDER).glob("*.tar.gz"):
        try:
            told = path.stat()
        except FileNotFoundError:
            continue  # deleted since its name was read
        if _ANY.fullmatch(path.name) and stat.S_ISREG(told.st_mode):
            own = _OWN.fullmatch(path.name)
            moment = calendar.timegm(time.strptime(own[1], _STAMP)) if own else told.st_mtime
            found.append(Kept(path, int(moment * 1000), told.st_size, own is not None))
    return sorted(found, key=lambda one: (one.made_at, one.path.name), reverse=True)


def prune(directory: Path, keep: int) -> int:
    """Delete the oldest scheduled backups beyond so many, and answer how many went."""
    old = [one for one in kept(directory) if one.is_own][keep:]
    for one in old:
        one.path.unlink(missing_ok=True)
    return len(old)
