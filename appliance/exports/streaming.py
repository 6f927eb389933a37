"""Read large tables page by page, format CSV cells that spreadsheets do not run as formulas, and count exported rows.

An import reads every cell of an exported contact back to its original value. A download ends when its client loses
access. The counts of running exports are written to a file in the data directory for other processes.
"""

import contextlib
import itertools
import os
import re
import threading
import time
from array import array
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec

from appliance.core import clock
from appliance.core.metrics import Gauge
from appliance.storage.database import connection, rows

# Matches the beginning of a formula, even in full-width characters or after quotes that belong to the text.
_FORMULA = re.compile(r"'*[=+\-@\t\r\n＝＋－＠]")
_PHONE = re.compile(r"\+[1-9]\d{6,14}\Z")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d{0,14})(?:\.\d{1,9})?\Z")
_SPACES = " \t\r\n\u00a0\u2007\u202f\ufeff\u200b"
_encode_json = msgspec.json.Encoder().encode


def guard_formula(text: str) -> str:
    """Return a text, with an apostrophe before it if a spreadsheet would run it as a formula."""
    return f"'{text}" if _FORMULA.match(text) else text


def format_phone(text: str | None) -> str:
    """Return the CSV cell of a phone number, without an apostrophe before its plus; "" for None.

    Any other text is returned as `guard_formula` returns it.
    """
    return "" if text is None else text if _PHONE.match(text) else guard_formula(text)


def format_cell(value: Any) -> str:
    """Return the CSV cell of a value, not quoted: "" for None, guarded text, or JSON for a list or dict."""
    if value is None:
        return ""
    if isinstance(value, str):
        return guard_formula(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return guard_formula(repr(value))
    return format_json(value)


def format_json(value: Any) -> str:
    """Return the JSON of a value."""
    return _encode_json(value).decode()


def format_line(cells: Iterable[str]) -> str:
    """Return a CSV line that ends in CRLF, with all cells quoted."""
    return (
        ",".join([f'"{text}"' if '"' not in text else '"' + text.replace('"', '""') + '"' for text in cells]) + "\r\n"
    )


def survives_round_trip(value: Any) -> bool:
    """Return whether an import reads the CSV cell of a value of custom data back as the same value and type."""
    if isinstance(value, str):
        if not value or value[0] in _SPACES or value[-1] in _SPACES or value in ("true", "false"):
            return False
        return not _NUMBER.match(value) and "\0" not in value
    if isinstance(value, bool):
        return True
    if isinstance(value, int | float):
        text = repr(value)
        return bool(_NUMBER.match(text)) and text not in ("-0", "-0.0")
    return False


def format_time(ms: int | None) -> str | None:
    """Return a time (Unix milliseconds) in ISO 8601 in UTC as in the API, or None for None."""
    if ms is None:
        return None
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")[:-6] + "Z"


_RECHECK_SECONDS = 0.25
Chunk = TypeVar("Chunk", bytes, str, bytes | str)


class AccessEnded(Exception):
    """The credential of a running download was revoked, expired, or lost rights."""


def end_without_access(chunks: Iterable[Chunk], has_access: Callable[[], bool]) -> Iterator[Chunk]:
    """Yield the chunks of a download, and check before a chunk that its client still has access.

    The check reads the database, at most every `_RECHECK_SECONDS` (docs/threats.md#t12). Raises AccessEnded.
    """
    checked_at = time.monotonic()
    for chunk in chunks:
        if time.monotonic() - checked_at >= _RECHECK_SECONDS:
            if not has_access():
                raise AccessEnded("the credential of the download is no longer valid")
            checked_at = time.monotonic()
        yield chunk


_PAGE_SIZE = 400
_NEWEST_SAMPLE = 2000
_WINDOWS, _WINDOW_SIZE = 20, 100
_MAX_SECONDS = 0.2
_MAX_KEY = 2**62

Row = tuple[Any, ...]


class PagedRows(Protocol):
    """The rows of a query, read page by page, so that no read takes long."""

    def pages(self) -> Iterator[list[Row]]:
        """Yield pages of up to `_PAGE_SIZE` rows; each page is a separate read."""

    def sample(self) -> list[Row]:
        """Return some of the rows, to estimate from them what all rows contain."""


class KeysetRows(NamedTuple):
    """Rows in descending order of a unique number, such as the id.

    `sql` selects the rows with a smaller number than the parameter `cursor_parameter`; `key_index` is the index of the
    number in a row.
    """

    sql: str
    parameters: dict[str, Any]
    cursor_parameter: str
    key_index: int

    def pages(self) -> Iterator[list[Row]]:
        """Yield pages of up to `_PAGE_SIZE` rows; each page is a separate read."""
        last = _MAX_KEY
        while page := self._page(last, _PAGE_SIZE):
            yield page
            last = page[-1][self.key_index]

    def _page(self, last: int, size: int) -> list[Row]:
        return rows(f"{self.sql} LIMIT {size}", {**self.parameters, self.cursor_parameter: last})

    def sample(self) -> list[Row]:
        """Return the newest `_NEWEST_SAMPLE` rows and, within `_MAX_SECONDS`, up to `_WINDOWS` windows of older rows.

        The windows begin at equal distances of the unique number.
        """
        newest = self._page(_MAX_KEY, _NEWEST_SAMPLE)
        if len(newest) < _NEWEST_SAMPLE:
            return newest
        sampled = newest
        end = newest[-1][self.key_index]
        started = time.monotonic()
        for number in range(1, _WINDOWS + 1):
            # If few rows match the condition, a window takes long to read.
            if time.monotonic() - started > _MAX_SECONDS:
                break
            sampled = sampled + self._page(end * number // _WINDOWS, _WINDOW_SIZE)
        return sampled


class TimeOrderedRows(NamedTuple):
    """Rows in descending order of time and id.

    `sql` selects the rows before (`:at`, `:last`); `time_index` and `id_index` are the indexes of both in a row.
    """

    sql: str
    parameters: dict[str, Any]
    time_index: int
    id_index: int

    def pages(self) -> Iterator[list[Row]]:
        """Yield pages of up to `_PAGE_SIZE` rows; each page is a separate read."""
        at = last = _MAX_KEY
        while page := rows(f"{self.sql} LIMIT {_PAGE_SIZE}", {**self.parameters, "at": at, "last": last}):
            yield page
            at, last = page[-1][self.time_index], page[-1][self.id_index]

    def sample(self) -> list[Row]:
        """Return the newest `_NEWEST_SAMPLE` rows."""
        return rows(f"{self.sql} LIMIT {_NEWEST_SAMPLE}", {**self.parameters, "at": _MAX_KEY, "last": _MAX_KEY})


class IdListRows(NamedTuple):
    """Rows whose ids are all read first, for conditions that are too expensive to repeat for each page.

    `id_sql` selects the ids, which take eight bytes each in memory. `sql` selects the rows with the ids in place of
    `{ids}`.
    """

    id_sql: str
    parameters: dict[str, Any]
    sql: str

    def _read_ids(self) -> "array[int]":
        return array("q", (row[0] for row in connection().execute(self.id_sql, self.parameters)))

    def pages(self) -> Iterator[list[Row]]:
        """Yield pages of up to `_PAGE_SIZE` rows; each page is a separate read."""
        ids = self._read_ids()
        for start in range(0, len(ids), _PAGE_SIZE):
            # A page is empty if all its rows were deleted after the ids were read. Further pages may follow.
            if page := self._fetch_rows(ids[start : start + _PAGE_SIZE]):
                yield page

    def _fetch_rows(self, ids: "array[int]") -> list[Row]:
        return rows(self.sql.format(ids=",".join("?" * len(ids))), list(ids))

    def sample(self) -> list[Row]:
        """Return a few thousand rows at equal distances, or all rows if there are fewer."""
        ids = self._read_ids()
        sampled_ids = ids[:: max(1, len(ids) // (_NEWEST_SAMPLE * 2))]
        return [
            row
            for start in range(0, len(sampled_ids), _PAGE_SIZE)
            for row in self._fetch_rows(sampled_ids[start : start + _PAGE_SIZE])
        ]


_PROGRESS_FILE = "exports.json"
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
    """Yield the pieces of an export and count their rows, for the progress file.

    The pieces are JSON lines if `lines` is set, else CSV whose first line is a header.
    """
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
            new = directory / f"{_PROGRESS_FILE}.new"
            handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(handle, "wb") as file:
                file.write(msgspec.json.encode(_ProgressFile(os.getpid(), running)))
            new.replace(directory / _PROGRESS_FILE)
        else:
            (directory / _PROGRESS_FILE).unlink(missing_ok=True)
    _is_file_written = bool(running)


def read_progress(directory: Path, process: int) -> list[ExportProgress]:
    """Return the running exports of a process id, or [] if the file is missing, unreadable or of another process."""
    try:
        file = msgspec.json.decode((directory / _PROGRESS_FILE).read_bytes(), type=_ProgressFile)
    except (OSError, msgspec.DecodeError):
        return []
    return file.exports if file.process == process else []
