"""The allowed calendar of an account: days, hours and holidays that decide when marketing email may be sent.

Emails of campaigns and marketing emails of flows wait for the next allowed moment in their recipient's time zone, as
marketing SMS wait for the end of quiet hours (`sms_rules.py`). Transactional and single messages do not wait.
"""

from datetime import date, datetime, time, timedelta
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
from msgspec import Struct

from appliance.audience import time_zones as contact_zones
from appliance.core import time_zones
from appliance.sending.messages.ledger import LedgerRow
from appliance.storage.database import fetch_one, run

WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
MAX_HOLIDAYS = 200
# If no day within this many days is allowed, for example because all are entered as holidays, nothing is held.
_MAX_DAYS_AHEAD = 400
_MINUTE_MS = 60_000
_SELECT_CALENDAR = "SELECT marketing_calendar FROM account WHERE id = ? AND marketing_calendar NOT NULL"


class Calendar(Struct, frozen=True, rename={"from_": "from"}):
    """The stored calendar: codes of weekdays, times of the day (`24:00` is the end of the day), and dates."""

    days: tuple[str, ...]
    from_: str
    to: str
    holidays: tuple[str, ...] = ()


def parse(value: Any) -> Calendar:
    """Return the calendar of a value of `Account.marketing_calendar`."""
    return msgspec.convert(value, Calendar)


def find_next_allowed(calendar: Calendar, zone: str, now: int) -> int | None:
    """Return the next moment at which email may be sent in a time zone, or None if it may be sent now.

    Times are Unix milliseconds. Also None if no day of the next year is allowed.
    """
    # Calendars and changes of the clock are given in minutes, so results are cached by minute.
    moment = _find_next(calendar, zone, now // _MINUTE_MS)
    return None if moment is None else max(moment, now + 1)


@lru_cache(20_000)
def _find_next(calendar: Calendar, zone_name: str, minute: int) -> int | None:
    zone, now = ZoneInfo(zone_name), minute * _MINUTE_MS
    local = datetime.fromtimestamp(now / 1000, zone).replace(tzinfo=None)
    begin = time.fromisoformat(calendar.from_)
    if _is_allowed_day(calendar, local.date()) and local.time() >= begin and f"{local:%H:%M}" < calendar.to:
        return None
    for number in range(_MAX_DAYS_AHEAD):
        day = local.date() + timedelta(days=number)
        moment = time_zones.find_moment(datetime.combine(day, begin), zone)
        if _is_allowed_day(calendar, day) and moment > now:
            return moment
    return None


def _is_allowed_day(calendar: Calendar, day: date) -> bool:
    return WEEKDAYS[day.weekday()] in calendar.days and day.isoformat() not in calendar.holidays


def hold_if_required(row: LedgerRow, now: int) -> bool:
    """Hold an email of a campaign or flow that the calendar does not allow now, and return whether it was held."""
    if row.channel != "email" or row.transactional or row.test or (row.campaign_id is None and row.run_id is None):
        return False
    stored = fetch_one(_SELECT_CALENDAR, (row.account_id,))
    if stored is None or row.contact_id is None:
        return False
    zone = contact_zones.find_zones(row.account_id, [row.contact_id]).get(row.contact_id)
    moment = None if zone is None else find_next_allowed(parse(msgspec.json.decode(stored[0])), zone.zone.key, now)
    if moment is None:
        return False
    run("UPDATE message SET status = 'held', due_at = ?, updated_at = ? WHERE id = ?", (moment, now, row.id))
    return True
