"""The dates of a repeating campaign: every day, on days of the week, or once a month, at an hour in a time zone."""

import calendar
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from itertools import islice, takewhile
from typing import Literal, NamedTuple
from zoneinfo import ZoneInfo

from appliance.core import time_zones

WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
WEEKS = ("first", "second", "third", "fourth", "last")
Weekday = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
Week = Literal["first", "second", "third", "fourth", "last"]
Every = Literal["day", "week", "month"]
# No date is later than this year, which datetime and time zones allow for.
_MAX_YEAR = 9_000


class RepeatRule(NamedTuple):
    """When a campaign repeats; `at` is `HH:MM`.

    A weekly rule has `weekdays`. A monthly rule has `day_of_month`, which is the last day in shorter months, or
    `week_of_month` with one weekday, such as the last Friday.
    """

    every: Every
    at: str
    weekdays: tuple[str, ...] = ()
    day_of_month: int | None = None
    week_of_month: str | None = None


def list_dates(rule: RepeatRule, after: int, zone: ZoneInfo, count: int, until: int | None = None) -> list[int]:
    """Return up to `count` dates after a time, and not after `until`; all are in Unix milliseconds."""
    dates = _iterate_dates(rule, after, zone)
    return list(islice(dates if until is None else takewhile(lambda moment: moment <= until, dates), count))


def _iterate_dates(rule: RepeatRule, after: int, zone: ZoneInfo) -> Iterator[int]:
    hour, minute = map(int, rule.at.split(":"))
    last = after
    # A day earlier, because an hour that the clock skips may move to the next day.
    start = datetime.fromtimestamp(after / 1000, zone).date() - timedelta(days=1)
    for day in _iterate_days(rule, start):
        moment = time_zones.find_moment(datetime.combine(day, time(hour, minute)), zone)
        if moment > last:
            yield moment
            last = moment


def _iterate_days(rule: RepeatRule, start: date) -> Iterator[date]:
    """Yield the days of a rule from `start` on."""
    if rule.every == "month":
        year, month = start.year, start.month
        while year < _MAX_YEAR:
            day = _get_day_of_month(rule, year, month)
            if day >= start:
                yield day
            year, month = (year, month + 1) if month < 12 else (year + 1, 1)
        return
    day = start
    while day.year < _MAX_YEAR:
        if not rule.weekdays or WEEKDAYS[day.weekday()] in rule.weekdays:
            yield day
        day += timedelta(days=1)


def _get_day_of_month(rule: RepeatRule, year: int, month: int) -> date:
    first_weekday, length = calendar.monthrange(year, month)
    if rule.week_of_month is None:
        return date(year, month, min(rule.day_of_month or 1, length))
    first = 1 + (WEEKDAYS.index(rule.weekdays[0]) - first_weekday) % 7
    days = range(first, length + 1, 7)
    return date(year, month, days[-1] if rule.week_of_month == "last" else days[WEEKS.index(rule.week_of_month)])
