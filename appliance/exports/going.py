"""Files that are being exported right now, and how far they are: known to this process, and told in a file of the data
directory to whoever looks at it from outside.
"""

import contextlib
import itertools
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec

from appliance.core import clock
from appliance.core.counters import Gauge

_FILE = "exports.json"
_RUNNING = Gauge("exports_running", "Files that are being exported.")


class Going(msgspec.Struct):
    """A file that is being sent: whose, what, how many rows of how many, and since when (milliseconds)."""

    account_id: int
    name: str
    rows: int
    total: int
    begun_at: int


class _Told(msgspec.Struct):
    process: int
    exports: list[Going]


_going: dict[int, Going] = {}
_numbers = itertools.count()
_lock = threading.Lock()
_RUNNING.follow(lambda: [((), len(_going))])
_is_told = False


def watched(account_id: int, name: str, total: int, pieces: Iterator[bytes], lines: bool = False) -> Iterator[bytes]:
    """Yield what is sent as it is made, and note meanwhile how many rows that is; CSV has a head unless `lines`."""
    number, end = next(_numbers), b"\n" if lines else b"\r\n"
    here = Going(account_id, name, 0, total, clock.now_ms())
    seen = 0 if lines else -1
    with _lock:
        _going[number] = here
    try:
        for piece in pieces:
            seen += piece.count(end)
            here.rows = max(0, seen)
            yield piece
    finally:
        with _lock:
            del _going[number]


def tell(directory: Path) -> None:
    """Bring the file up to date, once a second; there is none while nothing is exported, nor on a disk that is full."""
    global _is_told
    with _lock:
        found = [*_going.values()]
    if not found and not _is_told:
        return
    with contextlib.suppress(OSError):
        if found:
            new = directory / f"{_FILE}.new"
            handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(handle, "wb") as file:
                file.write(msgspec.json.encode(_Told(os.getpid(), found)))
            new.replace(directory / _FILE)
        else:
            (directory / _FILE).unlink(missing_ok=True)
    _is_told = bool(found)


def told(directory: Path, process: int) -> list[Going]:
    """Return what a process told; a file that another one left says nothing."""
    try:
        found = msgspec.json.decode((directory / _FILE).read_bytes(), type=_Told)
    except (OSError, msgspec.DecodeError):
        return []
    return found.exports if found.process == process else []
