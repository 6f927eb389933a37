"""The dates of a repeating campaign: days, weeks, months, daylight saving time, and their order."""

from datetime import UTC, date, datetime, time
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.campaigns import repeat_dates
from appliance.campaigns.repeat_dates import RepeatRule, list_dates
from appliance.core import time_zones

BERLIN, NEW_YORK, APIA = ZoneInfo("Europe/Berlin"), ZoneInfo("America/New_York"), ZoneInfo("Pacific/Apia")
MONDAY = datetime(2026, 11, 30, 12, tzinfo=UTC)


def read(moments: list[int], zone: ZoneInfo) -> list[str]:
    """Return moments as local times."""
    return [datetime.fromtimestamp(moment / 1000, zone).strftime("%Y-%m-%d %H:%M") for moment in moments]


def milliseconds(moment: datetime) -> int:
    """Return a moment in Unix milliseconds."""
    return round(moment.timestamp() * 1000)


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (RepeatRule("day", "09:00"), ["2026-12-01 09:00", "2026-12-02 09:00", "2026-12-03 09:00"]),
        (RepeatRule("day", "13:00"), ["2026-12-01 13:00", "2026-12-02 13:00", "2026-12-03 13:00"]),
        (RepeatRule("day", "13:01"), ["2026-11-30 13:01", "2026-12-01 13:01", "2026-12-02 13:01"]),
        (RepeatRule("week", "09:00", ("mon", "thu")), ["2026-12-03 09:00", "2026-12-07 09:00", "2026-12-10 09:00"]),
        (RepeatRule("month", "09:00", (), 31), ["2026-12-31 09:00", "2027-01-31 09:00", "2027-02-28 09:00"]),
        (RepeatRule("month", "18:30", (), 30), ["2026-11-30 18:30", "2026-12-30 18:30", "2027-01-30 18:30"]),
        (RepeatRule("month", "09:00", ("fri",), None, "last"),
         ["2026-12-25 09:00", "2027-01-29 09:00", "2027-02-26 09:00"]),
        (RepeatRule("month", "09:00", ("tue",), None, "first"),
         ["2026-12-01 09:00", "2027-01-05 09:00", "2027-02-02 09:00"]),
    ],
)  # fmt: skip
def test_next_dates(rule: RepeatRule, expected: list[str]) -> None:
    """They come after Monday, 30 November 2026, 13:00 in Berlin, and the moment itself is none of them."""
    assert read(list_dates(rule, milliseconds(MONDAY), BERLIN, 3), BERLIN) == expected


def test_the_end_is_the_last_date() -> None:
    """A date at the end counts; after it there is none."""
    rule, start = RepeatRule("day", "09:00"), milliseconds(MONDAY)
    end = list_dates(rule, start, BERLIN, 2)[-1]
    assert len(list_dates(rule, start, BERLIN, 9, end)) == 2 and len(list_dates(rule, start, BERLIN, 9, end - 1)) == 1
    assert list_dates(rule, end, BERLIN, 9, end) == []


@pytest.mark.parametrize(
    ("zone", "day", "at", "expected"),
    [
        (BERLIN, date(2027, 3, 28), "02:30", "2027-03-28 01:00"),  # 03:00 is the next minute that there is
        (BERLIN, date(2027, 3, 28), "02:00", "2027-03-28 01:00"),
        (BERLIN, date(2027, 3, 28), "03:00", "2027-03-28 01:00"),
        (BERLIN, date(2026, 10, 25), "02:30", "2026-10-25 00:30"),  # the first of two
        (NEW_YORK, date(2027, 3, 14), "02:15", "2027-03-14 07:00"),
        (NEW_YORK, date(2026, 11, 1), "01:30", "2026-11-01 05:30"),
        (APIA, date(2011, 12, 30), "09:00", "2011-12-30 10:00"),  # a day that was left out: the next midnight
    ],
)  # fmt: skip
def test_daylight_saving_time(zone: ZoneInfo, day: date, at: str, expected: str) -> None:
    """A skipped hour moves to the next minute, and a repeated one counts once, the first time."""
    moment = time_zones.find_moment(datetime.combine(day, time.fromisoformat(at)), zone)
    assert datetime.fromtimestamp(moment / 1000, UTC).strftime("%Y-%m-%d %H:%M") == expected


@pytest.mark.parametrize("hours", [("2027-03-27", "02:30"), ("2026-10-24", "02:30"), ("2026-10-24", "03:00")])
def test_each_day_has_one_date_over_a_change(hours: tuple[str, str]) -> None:
    """A daily campaign is sent once on the day of a change and on those around it."""
    start = datetime.fromisoformat(f"{hours[0]} 00:00").replace(tzinfo=BERLIN)
    dates = list_dates(RepeatRule("day", hours[1]), milliseconds(start), BERLIN, 4)
    days = [datetime.fromtimestamp(moment / 1000, BERLIN).date() for moment in dates]
    assert [(day - start.date()).days for day in days] == [0, 1, 2, 3]


_DAYS = st.sampled_from(repeat_dates.WEEKDAYS)
RULES = st.one_of(
    st.just(RepeatRule("day", "02:30")),
    st.tuples(st.sampled_from(["00:00", "02:15", "23:59"]), st.sets(_DAYS, min_size=1)).map(
        lambda values: RepeatRule("week", values[0], tuple(values[1]))
    ),
    st.integers(1, 31).map(lambda day: RepeatRule("month", "02:30", (), day)),
    st.tuples(_DAYS, st.sampled_from(repeat_dates.WEEKS)).map(
        lambda values: RepeatRule("month", "00:30", (values[0],), None, values[1])
    ),
)


@settings(max_examples=60, deadline=None)
@given(RULES, st.datetimes(datetime(2000, 1, 1), datetime(2060, 1, 1)), st.sampled_from([BERLIN, NEW_YORK, APIA]))
def test_dates_are_the_same_from_wherever_one_looks(rule: RepeatRule, start: datetime, zone: ZoneInfo) -> None:
    """They are ordered, each is the first after the one before, and each is on a day of the rule."""
    after = milliseconds(start.replace(tzinfo=UTC))
    dates = list_dates(rule, after, zone, 6)
    assert len(dates) == 6 and all(first < second for first, second in zip([after, *dates], dates, strict=False))
    assert [list_dates(rule, moment - 1, zone, 1)[0] for moment in dates] == dates
    assert [list_dates(rule, first, zone, 1)[0] for first in dates[:-1]] == dates[1:]
    if rule.weekdays and rule.at != "00:00":
        days = {repeat_dates.WEEKDAYS[datetime.fromtimestamp(item / 1000, zone).weekday()] for item in dates}
        assert days <= set(rule.weekdays) or zone is APIA
