"""The next moment of an hour of the day in a time zone."""

from collections.abc import Collection
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from appliance.flows.date_events import get_due_moment

WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_WEEK_DAYS = 7


def get_next_moment(now: int, time_of_day: str, weekdays: Collection[str], zone: ZoneInfo) -> int:
    """Return when it is `time_of_day` (`HH:MM`) next in a time zone, in Unix milliseconds; it may be `now`.

    `weekdays` limits the days, unless it is empty. The hour on the clock holds when daylight saving time begins or
    ends; an hour that the clock skips or repeats is decided as for campaigns (`time_zones.find_moment`).
    """
    today = datetime.fromtimestamp(now / 1000, zone).date()
    days = [today + timedelta(days=number) for number in range(_WEEK_DAYS + 1)]
    moments = [
        get_due_moment(day, time_of_day, zone) for day in days if not weekdays or WEEKDAYS[day.weekday()] in weekdays
    ]
    return next(moment for moment in moments if moment >= now)
