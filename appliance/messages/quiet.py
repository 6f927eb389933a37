"""Quiet hours: from one time of the day to another nothing of a kind is sent; it waits until they end."""

import re
from datetime import UTC, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

_TIME = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])")


def fault(hours: Any) -> str | None:
    """Say what is wrong with quiet hours as they are written, `{"from": "21:00", "to": "08:00"}`, or None."""
    return None if hours is None or _read(hours) is not None else "is invalid"


def until(hours: Any, zone: str, now: int) -> int | None:
    """Answer when the quiet hours end in which a moment lies (ms), by the clocks of a time zone; None if in none."""
    found = _read(hours)
    if found is None:
        return None
    begin, end = found
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
