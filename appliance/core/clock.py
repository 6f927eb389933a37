"""The clock of the whole program; tests and simulations can set it."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cache, lru_cache
from importlib.resources import files
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

DAY_MS = 86_400_000
_HOUR_MS = 3_600_000
# The last second of 9998 UTC: Python's last year is 9999, and the following day must be valid in every time zone.
MAX_TIME_MS = 253_370_764_799_000
# The longest name of a time zone is half as long.
_MAX_ZONE_CHARACTERS = 64
_offset_file: Path | None = None
_last_offset: tuple[int, float] = (0, 0.0)  # modification time of the file in ns, and its offset in seconds


def use_offset_file(path: str | None) -> None:
    """Add the number of seconds in a text file to the system clock from now on; None removes the offset.

    A changed file applies at once. While the file is missing or empty, the last offset applies.
    """
    global _offset_file
    _offset_file = Path(path) if path else None


def _offset() -> float:
    global _last_offset
    if _offset_file is None:
        return 0.0
    try:
        changed = _offset_file.stat().st_mtime_ns
    except FileNotFoundError:
        return _last_offset[1]
    if changed != _last_offset[0]:
        text = _offset_file.read_text().strip()
        _last_offset = (changed, float(text) if text else _last_offset[1])
    return _last_offset[1]


class _SimulatedTime(threading.local):
    """The simulated time of each thread in milliseconds; None is real time."""

    ms: int | None = None


_simulated = _SimulatedTime()


@contextmanager
def simulated_time(ms: int) -> Iterator[None]:
    """Make `now` and `now_ms` return a fixed time on this thread while the block runs, for simulations."""
    previous_ms, _simulated.ms = _simulated.ms, ms
    try:
        yield
    finally:
        _simulated.ms = previous_ms


def now() -> float:
    """Return the time in seconds since 1970 UTC."""
    return now_ms() / 1000 if _simulated.ms is not None else time.time() + _offset()


def now_ms() -> int:
    """Return the time in whole milliseconds since 1970 UTC, the unit of all times in the database."""
    return int((time.time() + _offset()) * 1000) if _simulated.ms is None else _simulated.ms


def monotonic() -> float:
    """Return seconds that do not go back when the system clock is set, for intervals and rates."""
    return time.monotonic() + _offset()


@lru_cache(4096)
def iso(ms: int | None) -> str | None:
    """Format a time in milliseconds for the API, in UTC with milliseconds and `Z`; return None for None.

    docs/decisions.md#1 defines the format. The texts are cached, because a page shows the same times many times: a
    contact and its channels are created, opted in and updated together.
    """
    if ms is None:
        return None
    hour, ms_of_hour = divmod(ms, _HOUR_MS)
    return f"{_format_hour(hour)}{ms_of_hour // 60_000:02d}:{ms_of_hour % 60_000 / 1000:06.3f}Z"


@lru_cache(4096)
def _format_hour(number: int) -> str:
    """Format the start of the hour `number` since 1970, up to its first colon.

    The text is cached, because the times on a page usually fall into few different hours.
    """
    return datetime.fromtimestamp(number * 3600, UTC).strftime("%Y-%m-%dT%H:")


def parse(text: str) -> int:
    """Parse an ISO 8601 date-time with offset to milliseconds.

    Raises ValueError if the text is invalid, has no offset, or is before 1970 or after 9998.
    """
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError("a time must have a UTC offset")
    return _to_ms(moment)


def parse_http_date(text: str) -> int | None:
    """Return the time of a Date or Retry-After header in milliseconds since 1970 UTC, None for any other text.

    Dates of RFC 9110, section 5.6.7, and other dates of RFC 5322 are accepted.
    """
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, TypeError, OverflowError):
        return None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def _to_ms(moment: datetime) -> int:
    """Return a time in milliseconds. Raises ValueError for a time before 1970 or after 9998."""
    ms = int(moment.timestamp() * 1000)
    if not 0 <= ms <= MAX_TIME_MS:
        raise ValueError("a time must be between 1970 and 9998")
    return ms


@lru_cache(1_000)
def find_time_zone(name: str) -> ZoneInfo | None:
    """Return the time zone with a name such as `Europe/Berlin`, or None if the name is unknown."""
    if not name or len(name) > _MAX_ZONE_CHARACTERS:
        return None
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):  # the name of a directory, or a path with `..`
        return None


def parse_day_or_time(text: str, zone: str) -> int:
    """Parse a date-time with offset, or a date (10 characters) as 00:00 in the time zone `zone`, to milliseconds.

    Raises ValueError as `parse` does.
    """
    if len(text) == 10:
        return _to_ms(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)))
    # In a query string the plus sign of an offset often arrives as a space.
    return parse(text.replace(" ", "+") if "T" in text else text)


# Time zones and names of countries are read from the tables of the tzdata package.


def time_zones_of_country(code: str | None) -> tuple[str, ...]:
    """Return the time zones of a country by its two-letter code (ISO 3166), or an empty tuple if it is unknown."""
    return _time_zones_by_country().get((code or "").upper(), ())


def country_of_time_zone(zone: str) -> str | None:
    """Return the two-letter code of the country of a time zone, or None if it has no country, such as UTC."""
    return next((code for code, zones in _time_zones_by_country().items() if zone in zones), None)


@cache
def country_names() -> dict[str, str]:
    """Return the English names of all countries by their two-letter codes (ISO 3166)."""
    lines = (files("tzdata") / "zoneinfo" / "iso3166.tab").read_text("utf-8").splitlines()
    return dict(line.split("\t")[:2] for line in lines if line and not line.startswith("#"))


@cache
def _time_zones_by_country() -> dict[str, tuple[str, ...]]:
    zones_by_country: dict[str, list[str]] = {}
    for line in (files("tzdata") / "zoneinfo" / "zone.tab").read_text("utf-8").splitlines():
        if line and not line.startswith("#"):
            code, _, zone = line.split("\t")[:3]
            zones_by_country.setdefault(code, []).append(zone)
    return {code: tuple(names) for code, names in zones_by_country.items()}
