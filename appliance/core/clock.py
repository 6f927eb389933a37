"""The one clock: everything that asks for the time asks here, so that tests can let days pass."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from zoneinfo import ZoneInfo

_HOUR_MS = 3_600_000
# The last second of 9998, UTC: a day later has to be a moment in every time zone, and no year after 9999 is one
_LATEST = 253_370_764_799_000
_offset_file: Path | None = None
_offset_seen: tuple[int, float] = (0, 0.0)


def follow(path: str | None) -> None:
    """Take the offset (seconds, as text) from a file from now on; None returns to the machine's clock."""
    global _offset_file
    _offset_file = Path(path) if path else None


def _offset() -> float:
    global _offset_seen
    if _offset_file is None:
        return 0.0
    try:
        changed = _offset_file.stat().st_mtime_ns
    except FileNotFoundError:
        return _offset_seen[1]
    if changed != _offset_seen[0]:
        text = _offset_file.read_text().strip()
        _offset_seen = (changed, float(text) if text else _offset_seen[1])
    return _offset_seen[1]


class _Imagined(threading.local):
    """The moment at which this thread only pretends to be, in milliseconds."""

    at: int | None = None


_imagined = _Imagined()


@contextmanager
def imagined(ms: int) -> Iterator[None]:
    """Let this thread believe that it is another moment, for a rehearsal; nobody else notices."""
    before, _imagined.at = _imagined.at, ms
    try:
        yield
    finally:
        _imagined.at = before


def now() -> float:
    """Return the time as seconds since 1970 UTC."""
    return now_ms() / 1000 if _imagined.at is not None else time.time() + _offset()


def now_ms() -> int:
    """Return the time as whole milliseconds since 1970 UTC, the form in which every table stores it."""
    return int((time.time() + _offset()) * 1000) if _imagined.at is None else _imagined.at


def steady() -> float:
    """Return seconds that only go forward, whatever is done to the machine's clock; for pauses and rates."""
    return time.monotonic() + _offset()


def iso(ms: int | None) -> str | None:
    """Write a stored time as the interface shows it: UTC with milliseconds and Z (docs/decisions.md#1)."""
    if ms is None:
        return None
    hour, rest = divmod(ms, _HOUR_MS)
    return f"{_hour(hour)}{rest // 60_000:02d}:{rest % 60_000 / 1000:06.3f}Z"


@lru_cache(4096)
def _hour(number: int) -> str:
    """Return an hour since 1970 as its times begin; a page shows hundreds of times of a few."""
    return datetime.fromtimestamp(number * 3600, UTC).strftime("%Y-%m-%dT%H:")


def parse(text: str) -> int:
    """Read an ISO 8601 date-time that names its offset; ValueError for anything else, or for a year we cannot hold."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError("a time needs an offset")
    return _bounded(moment)


def _bounded(moment: datetime) -> int:
    """Return a moment in milliseconds; before 1970 and after 9998 nothing could be stored and shown again."""
    ms = int(moment.timestamp() * 1000)
    if not 0 <= ms <= _LATEST:
        raise ValueError("a time has to lie between 1970 and 9998")
    return ms


def parse_or_day(text: str, zone: str) -> int:
    """Read a date-time with offset, or a bare date as 00:00 in a time zone; ValueError otherwise."""
    if len(text) == 10:
        return _bounded(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)))
    # In a query string the plus of an offset often arrives as a space
    return parse(text.replace(" ", "+") if "T" in text else text)
