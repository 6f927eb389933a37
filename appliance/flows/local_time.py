"""The time zone of a contact, with where it comes from, and the next moment of an hour of the day there."""

import json
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple
from zoneinfo import ZoneInfo

from appliance.core import addresses, clock
from appliance.flows.date_events import get_due_moment
from appliance.storage.database import rows, scalar

# Where a time zone comes from: the custom field `time_zone`, the phone number, the country, or the account's setting.
ZoneSource = Literal["data", "phone", "country", "account"]
WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_WEEK_DAYS = 7
_SELECT_PLACES = (
    "SELECT c.id, trim(json_extract(c.data, '$.time_zone')), c.country_code, (SELECT h.key FROM channel h "
    "WHERE h.contact_id = c.id AND h.kind = 'phone' ORDER BY h.subscribed DESC, h.id LIMIT 1) "
    "FROM contact c WHERE c.id IN (SELECT value FROM json_each(?))"
)


class LocalZone(NamedTuple):
    """The time zone of a contact, and where it comes from."""

    zone: ZoneInfo
    source: ZoneSource


def get_account_zone(account_id: int) -> LocalZone:
    """Return the time zone of an account."""
    return LocalZone(ZoneInfo(str(scalar("SELECT time_zone FROM account WHERE id = ?", (account_id,)))), "account")


def find_zones(account_id: int, contact_ids: Sequence[int]) -> dict[int, LocalZone]:
    """Return the time zone of each contact that exists, by id.

    It is the first that is known: the custom field `time_zone`, the zone of the phone number, the zone of the country,
    the account's. A number or a country with several zones, such as one of the United States without an area, decides
    nothing.
    """
    account_zone = get_account_zone(account_id)
    return {
        contact_id: _find_zone(zone_name, country, phone) or account_zone
        for contact_id, zone_name, country, phone in rows(_SELECT_PLACES, (json.dumps(list(contact_ids)),))
    }


def _find_zone(zone_name: Any, country: str | None, phone: str | None) -> LocalZone | None:
    if isinstance(zone_name, str) and (own_zone := clock.find_time_zone(zone_name)):
        return LocalZone(own_zone, "data")
    places: tuple[tuple[ZoneSource, tuple[str, ...]], ...] = (
        ("phone", addresses.inspect_number(phone).zones if phone else ()),
        ("country", clock.time_zones_of_country(country)),
    )
    for source, names in places:
        zone = clock.find_time_zone(names[0]) if len(names) == 1 else None
        if zone is not None:
            return LocalZone(zone, source)
    return None


def get_next_moment(now: int, time_of_day: str, weekdays: Collection[str], zone: ZoneInfo) -> int:
    """Return when it is `time_of_day` (`HH:MM`) next in a time zone, in Unix milliseconds; it may be `now`.

    `weekdays` limits the days, unless it is empty. The hour on the clock holds when daylight saving time begins or
    ends; an hour that the clock skips is an hour later on that day, and one that comes twice counts the first time.
    """
    today = datetime.fromtimestamp(now / 1000, zone).date()
    days = [today + timedelta(days=number) for number in range(_WEEK_DAYS + 1)]
    moments = [
        get_due_moment(day, time_of_day, zone) for day in days if not weekdays or WEEKDAYS[day.weekday()] in weekdays
    ]
    return next(moment for moment in moments if moment >= now)
