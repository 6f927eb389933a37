"""Quiet hours: from one time of the day to another nothing of a kind is sent; it waits until they end."""

import re
from datetime import UTC, datetime, time, timedelta
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo

_MINUTE_MS, _HOUR_MS, _QUIET_DAY_MS = 60_000, 3_600_000, 86_400_000
_TIME = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])")


def fault(hours: Any) -> str | None:
    """Return what is wrong with quiet hours as they are written, `{"from": "21:00", "to": "08:00"}`, or None."""
    return None if hours is None or _read(hours) is not None else "is invalid"


def until(hours: Any, zone: str, now: int) -> int | None:
    """Return when the quiet hours end in which a moment lies (ms), by the clocks of a time zone; None if in none."""
    return until_all(hours, (zone,), now)


def until_all(hours: Any, zones: tuple[str, ...], now: int) -> int | None:
    """Return when it is quiet in none of some time zones (ms); None if that is so at this moment.

    Where no moment of the next two days suits all of them, it is when it is quiet in the fewest.
    """
    found = _read(hours)
    if found is None:
        return None
    # Clocks and their changes keep to minutes
    end = _free_at(*found, zones, now // _MINUTE_MS)
    return None if end is None else max(end, now + 1)


@lru_cache(20_000)
def _free_at(begin: time, end: time, zones: tuple[str, ...], minute: int) -> int | None:
    now = at = minute * _MINUTE_MS
    while at <= now + 2 * _QUIET_DAY_MS:
        ends = [found for zone in zones if (found := _end(begin, end, zone, at)) is not None]
        if not ends:
            return at if at > now else None
        at = max(*ends, at + _MINUTE_MS)
    return _least_bad(begin, end, zones, now)


def _least_bad(begin: time, end: time, zones: tuple[str, ...], now: int) -> int | None:
    moments = {now}
    for hour in range(24):
        ends = (_end(begin, end, zone, now + hour * _HOUR_MS) for zone in zones)
        moments.update(found for found in ends if found is not None)
    best = min(sorted(moments), key=lambda at: sum(_end(begin, end, zone, at) is not None for zone in zones))
    return best if best > now else None


def _end(begin: time, end: time, zone: str, now: int) -> int | None:
    local = datetime.fromtimestamp(now / 1000, ZoneInfo(zone))
    if not (begin <= local.time() < end if begin < end else local.time() >= begin or local.time() < end):
        return None
    # Of an hour that comes twice the one that it is
    last = datetime.combine(local.date(), end, local.tzinfo).replace(fold=local.fold)
    if last.replace(tzinfo=None) <= local.replace(tzinfo=None):
        last = datetime.combine(local.date() + timedelta(days=1), end, local.tzinfo)
    # An hour that a change of the clocks leaves out ends when it would have
    return max(int(last.astimezone(UTC).timestamp() * 1000), now + 1)


def _read(hours: Any) -> tuple[time, time] | None:
    if not isinstance(hours, dict):
        return None
    read = [_TIME.fullmatch(str(hours.get(name))) for name in ("from", "to")]
    times = [time(int(one[1]), int(one[2])) for one in read if one is not None]
    return (times[0], times[1]) if len(times) == 2 and times[0] != times[1] else None
