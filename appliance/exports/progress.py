"""Count the rows of running exports, and write the counts to a file in the data directory for other processes."""

import contextlib
import itertools
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec

from appliance.core import clock
from appliance.core.metrics import Gauge

_FILE = "exports.json"
_RUNNING_GAUGE = Gauge("exports_running", "Files that are being exported.")


class ExportProgress(msgspec.Struct):
    """A running export.

    `rows` is the number of rows exported so far, `total` the number of all rows, and `begun_at` the start in Unix
    milliseconds.
    """

    account_id: int
    name: str
    rows: int
    total: int
    begun_at: int


class _ProgressFile(msgspec.Struct):
    process: int
    exports: list[ExportProgress]


_running: dict[int, ExportProgress] = {}
_numbers = itertools.count()
_lock = threading.Lock()
_RUNNING_GAUGE.set_function(lambda: [((), len(_running))])
_is_file_written = False


def track_progress(
    account_id: int, name: str, total: int, pieces: Iterator[bytes], lines: bool = False
) -> Iterator[bytes]:
    """Yield the pieces of an export and count their rows. They are JSON lines with `lines`, else CSV with a header."""
    number, end = next(_numbers), b"\n" if lines else b"\r\n"
    progress = ExportProgress(account_id, name, 0, total, clock.now_ms())
    line_count = 0 if lines else -1
    with _lock:
        _running[number] = progress
    try:
        for piece in pieces:
            line_count += piece.count(end)
            progress.rows = max(0, line_count)
            yield piece
    finally:
        with _lock:
            del _running[number]


def write_progress(directory: Path) -> None:
    """Write the progress file, or delete it if no export is running. Ignore OSError, as from a full disk."""
    global _is_file_written
    with _lock:
        running = [*_running.values()]
    if not running and not _is_file_written:
        return
    with contextlib.suppress(OSError):
        if running:
            new = directory / f"{_FILE}.new"
            handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(handle, "wb") as file:
                file.write(msgspec.json.encode(_ProgressFile(os.getpid(), running)))
            new.replace(directory / _FILE)
        else:
            (directory / _FILE).unlink(missing_ok=True)
    _is_file_written = bool(running)


def read_progress(directory: Path, process: int) -> list[ExportProgress]:
    """Return the running exports of a process id, or [] if the file is missing, unreadable or of another process."""
    try:
        file = msgspec.json.decode((directory / _FILE).read_bytes(), type=_ProgressFile)
    except (OSError, msgspec.DecodeError):
        return []
    return file.exports if file.process == process else []
