"""Readers of filter values: each answers the value as its predicate uses it, or notes the fault and answers None."""

import math
import re
from datetime import date, datetime, timedelta
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from appliance.audience.filters.scope import Asked
from appliance.core import clock

MAX_IN = 500
MAX_TEXT = 1000
MAX_DAYS = 36_500
_MAX_ID = 2**63 - 1
_UNWRITABLE = re.compile("[\x00\ud800-\udfff]")
_DAY = re.compile(r"^\d{4}-\d\d-\d\d$", re.ASCII)


class Span(NamedTuple):
    """A moment or a day, as milliseconds: from `start` up to, not including, `end`."""

    start: int
    end: int


def text(raw: Any, asked: Asked, below: str = "", whole: bool = True) -> str | None:
    """Read a text to compare with; addresses take their normal form."""
    if raw is None or raw == "":
        return asked.fault("can't be blank", below)
    if not isinstance(raw, str) or _UNWRITABLE.search(raw):
        return asked.fault("is invalid", below)
    if len(raw) > MAX_TEXT:
        return asked.fault(f"is too long (maximum is {MAX_TEXT} characters)", below)
    field = asked.field
    if field.choices and raw.lower() not in field.choices:
        return asked.fault("is not included in the list", below)
    return field.normal(raw, whole) if field.normal else raw


def part(raw: Any, asked: Asked) -> str | None:
    """Read a part of a text."""
    found = text(raw, asked, whole=False)
    return asked.fault("can't be blank") if found == "" else found


def number(raw: Any, asked: Asked, below: str = "") -> float | int | None:
    """Read a number that SQLite can hold."""
    if raw is None:
        return asked.fault("can't be blank", below)
    if isinstance(raw, bool) or not isinstance(raw, int | float):
        return asked.fault("is not a number", below)
    good = abs(raw) <= _MAX_ID if isinstance(raw, int) else math.isfinite(raw)
    return raw if good else asked.fault("is invalid", below)


def identity(raw: Any, asked: Asked, below: str = "") -> int | None:
    """Read the id of something of this account."""
    if raw is None:
        return asked.fault("can't be blank", below)
    if isinstance(raw, bool) or not isinstance(raw, int):
        return asked.fault("is not a number", below)
    exists = asked.scope.exists
    if not 1 <= raw <= _MAX_ID or (exists is not None and not exists(asked.field.of, raw)):
        return asked.fault("must exist", below)
    return raw


def json_value(raw: Any, asked: Asked, below: str = "") -> Any:
    """Read a text, a number or a boolean to find in custom data."""
    if isinstance(raw, bool):
        return raw
    return number(raw, asked, below) if isinstance(raw, int | float) else text(raw, asked, below)


def boolean(raw: Any, asked: Asked, below: str = "") -> bool | None:
    """Read true or false."""
    if raw is None:
        return asked.fault("can't be blank", below)
    return raw if isinstance(raw, bool) else asked.fault("is invalid", below)


def flag(raw: Any, asked: Asked) -> bool:
    """Read the value of a predicate that needs none; false turns it round."""
    if raw is not None and not isinstance(raw, bool):
        asked.fault("is invalid")
    return raw is not False


def span(raw: Any, asked: Asked, below: str = "") -> Span | None:
    """Read a date-time with offset, or a bare date as that whole day in the account's time zone."""
    if raw is None or raw == "":
        return asked.fault("can't be blank", below)
    try:
        if isinstance(raw, str) and _DAY.match(raw):
            return _day(date.fromisoformat(raw), asked.scope.zone)
        moment = clock.parse(raw)
    except (ValueError, TypeError, OverflowError, OSError):
        return asked.fault("is invalid", below)
    return Span(moment, moment + 1)


def day(raw: Any, asked: Asked) -> Span | None:
    """Read the day, in the account's time zone, that a date or a date-time falls on."""
    found = span(raw, asked)
    if found is None or _DAY.match(str(raw)):
        return found
    try:
        return _day(datetime.fromtimestamp(found.start // 1000, ZoneInfo(asked.scope.zone)).date(), asked.scope.zone)
    except (ValueError, OverflowError, OSError):
        return asked.fault("is invalid")


def _day(wanted: date, zone: str) -> Span:
    if not 1 < wanted.year < 9999:
        raise ValueError("in some time zone it begins or ends in a year that is none")
    edges = [
        int(datetime(one.year, one.month, one.day, tzinfo=ZoneInfo(zone)).timestamp() * 1000)
        for one in (wanted, wanted + timedelta(days=1))
    ]
    return Span(edges[0], edges[1])


def days(raw: Any, asked: Asked, below: str = "") -> int | None:
    """Read a number of days back from now."""
    if raw is None:
        return asked.fault("can't be blank", below)
    if isinstance(raw, bool) or not isinstance(raw, int):
        return asked.fault("is not a number", below)
    if raw < 1:
        return asked.fault("must be greater than or equal to 1", below)
    return raw if raw <= MAX_DAYS else asked.fault(f"must be less than or equal to {MAX_DAYS}", below)


def many(reader: Any) -> Any:
    """Make a reader of up to 500 values out of a reader of one."""

    def read(raw: Any, asked: Asked) -> list[Any] | None:
        if raw is None or raw == []:
            return asked.fault("can't be blank")
        if not isinstance(raw, list):
            return asked.fault("is invalid")
        if len(raw) > MAX_IN:
            return asked.fault(f"is too long (maximum is {MAX_IN} entries)")
        return [reader(item, asked, f"[{index}]") for index, item in enumerate(raw)]

    return read


def pair(reader: Any) -> Any:
    """Make a reader of `[from, to]` out of a reader of one value."""

    def read(raw: Any, asked: Asked) -> list[Any] | None:
        if raw is None or raw == []:
            return asked.fault("can't be blank")
        if not isinstance(raw, list) or len(raw) != 2:
            return asked.fault("is invalid")
        found = [reader(item, asked, f"[{index}]") for index, item in enumerate(raw)]
        if found[0] is not None and found[1] is not None and isinstance(found[0], str) != isinstance(found[1], str):
            return asked.fault("is invalid")
        return found

    return read


def bound(raw: Any, asked: Asked, below: str = "") -> Any:
    """Read an edge in custom data: a number, or a text (dates written as ISO 8601 order as text)."""
    if isinstance(raw, bool):
        return asked.fault("is invalid", below)
    return json_value(raw, asked, below)
