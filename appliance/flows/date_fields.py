"""Where a date of a person stands, and on which days it comes round."""

from datetime import date, datetime, time, timedelta
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from appliance.audience.filters import fields
from appliance.audience.filters.scope import Binder

_DATA = ("contact_data.", "data.")
_DAY = timedelta(days=1)


class Source(NamedTuple):
    """The SQL over the contact `c` that answers a date: a text in their data, or a moment (ms) that we keep."""

    sql: str
    is_moment: bool


class Wanted(NamedTuple):
    """The day whose people are looked for, in the account's time zone; `yearly` ones come round each year."""

    day: date
    yearly: bool
    zone: ZoneInfo


def source(path: str) -> Source | None:
    """Return where the date of a path stands; None if there can be no such path."""
    known = fields.BY_NAME.get(path)
    if known is not None and known.type == "time" and known.operand.value.startswith("c."):
        return Source(known.operand.value, True)
    for prefix in _DATA:
        path = path.removeprefix(prefix)
    inside = fields.json_path(path)
    return None if inside is None else Source(f"json_extract(c.data, {inside})", False)


def moment(day: date, at: str, zone: ZoneInfo) -> int:
    """Return the moment (ms) at which a day's people are looked for: a time of day where the account is."""
    hour, minute = at.split(":")
    return int(datetime.combine(day, time(int(hour), int(minute)), zone).timestamp() * 1000)


def last_before(now: int, at: str, zone: ZoneInfo) -> date:
    """Return the last day whose moment is over."""
    today = datetime.fromtimestamp(now / 1000, zone).date()
    return today if moment(today, at, zone) <= now else today - _DAY


def possible(where: Source, wanted: Wanted, binder: Binder) -> str:
    """Return a condition that holds for everybody whose date comes round on a day, and for few others.

    A text that names an offset may belong to the day before or after in the account's time zone.
    """
    around = [wanted.day - _DAY, wanted.day, wanted.day + _DAY]
    if where.is_moment and not wanted.yearly:
        first, last = (datetime.combine(one, time(), wanted.zone) for one in (wanted.day, wanted.day + _DAY))
        bounds = [binder.add(int(one.timestamp() * 1000)) for one in (first, last)]
        return f"({where.sql} >= {bounds[0]} AND {where.sql} < {bounds[1]})"
    if not wanted.yearly:
        days = ", ".join(binder.add(one.isoformat()) for one in around)
        return f"substr({where.sql}, 1, 10) IN ({days})"
    ends = {f"{one:%m-%d}" for one in around}
    if "02-28" in ends or "03-01" in ends:
        ends.add("02-29")
    texts = ", ".join(binder.add(one) for one in sorted(ends))
    if where.is_moment:
        return f"strftime('%m-%d', {where.sql} / 1000, 'unixepoch') IN ({texts})"
    # Birthdays are also kept without a year: 05-12, or --05-12 as in address books
    return (
        f"(substr({where.sql}, 6, 5) IN ({texts}) OR {where.sql} IN ({texts}) "
        f"OR (substr({where.sql}, 1, 2) = '--' AND substr({where.sql}, 3) IN ({texts})))"
    )


def comes_round(value: Any, wanted: Wanted) -> bool:
    """Return whether a date comes round on a day: from itself on, of a moment that we keep from the next year on."""
    if isinstance(value, str) and wanted.yearly and len(value.removeprefix("--")) == 5:
        return _same_day(f"2000-{value.removeprefix('--')}", wanted.day)
    day = _day(value, wanted.zone)
    if day is None:
        return False
    if not wanted.yearly:
        return day == wanted.day
    if isinstance(value, int) and day.year >= wanted.day.year:
        return False
    return day <= wanted.day and _same_day(day.isoformat(), wanted.day)


def _same_day(text: str, wanted: date) -> bool:
    """Compare without the year; the 29th of February is the 28th where there is none."""
    month_day = text[5:]
    if month_day == "02-29" and not _is_leap(wanted.year):
        month_day = "02-28"
    return month_day == f"{wanted:%m-%d}"


def _is_leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def _day(value: Any, zone: ZoneInfo) -> date | None:
    try:
        if isinstance(value, int):
            return datetime.fromtimestamp(value / 1000, zone).date()
        if not isinstance(value, str):
            return None
        if len(value) == 10:
            return date.fromisoformat(value)
        found = datetime.fromisoformat(value)
    except (ValueError, OverflowError, OSError):
        return None
    return (found if found.tzinfo is None else found.astimezone(zone)).date()
