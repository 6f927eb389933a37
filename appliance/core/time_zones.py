"""Time zones of phone numbers and countries, and the moment of a local time in a time zone.

A local time is written `2026-12-01T09:00`, without an offset.
"""

import hashlib
import re
from collections.abc import Iterable
from datetime import UTC, date, datetime, time, timedelta
from functools import cache, lru_cache
from zoneinfo import ZoneInfo, available_timezones

from appliance.core import addresses, clock

# Zones are the same for a contact if their clocks agree at this many moments in the next year.
_COMPARED_MOMENTS = 24
_BETWEEN_COMPARED = timedelta(days=365) / _COMPARED_MOMENTS
_MAX_CACHED_BLOCKS = 200_000
# In North America the area code decides, except where an area has several zones; then the exchange code decides too.
_AREA_CODE_CHARACTERS = len("+1NPA")
_MAX_CALLING_CODE_DIGITS = 3
_LOCAL_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}")
# The pattern of a local time in the API. It has a 29 February only in leap years.
_YEAR = r"(19[7-9][0-9]|[2-8][0-9]{3}|9[0-8][0-9]{2}|99[0-8][0-9]|999[0-8])"
_LEAP_YEAR = r"(19(7[26]|[89][26]|8[048])|2[0-9](0[48]|[2468][048]|[13579][26]))"
_MONTH_AND_DAY = (
    r"((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))"
)
LOCAL_TIME_SCHEMA = rf"^({_YEAR}-{_MONTH_AND_DAY}|{_LEAP_YEAR}-02-29)T([01][0-9]|2[0-3]):[0-5][0-9]$"


def choose_common_zone(names: Iterable[str]) -> str | None:
    """Return the first of several time zones if their clocks agree for the next year, or None.

    The zones of Germany have a result, because both have the same rules; those of the United States have none.
    """
    return _choose_common_zone(tuple(names), _get_day())


def _get_day() -> int:
    """Return the number of the day, at which results that depend on the rules of the next year are computed again."""
    return clock.now_ms() // clock.DAY_MS


@lru_cache(4_096)
def _choose_common_zone(names: tuple[str, ...], day: int) -> str | None:
    zones = [zone for name in names if (zone := clock.find_time_zone(name)) is not None]
    if len(zones) < len(names) or not zones:
        return None
    start = datetime.fromtimestamp(day * clock.DAY_MS / 1000, UTC)
    for number in range(_COMPARED_MOMENTS if len(zones) > 1 else 0):
        moment = start + number * _BETWEEN_COMPARED
        if len({moment.astimezone(zone).utcoffset() for zone in zones}) > 1:
            return None
    return names[0]


def find_country_zone(country: str | None) -> str | None:
    """Return the time zone of a country by its two-letter code, or None if it is unknown or its clocks differ."""
    return choose_common_zone(clock.time_zones_of_country(country)) if country else None


# The zones of phone numbers. `addresses.inspect_number` takes a tenth of a millisecond for a number that it has not
# seen, which is too long for an audience of a million. So a calling code of one country with one clock decides alone,
# and of other numbers the result is cached for a block of them.


class _PhoneZones:
    """The zones by calling code and by block of numbers, computed on a day; None for a block without a single zone."""

    def __init__(self, day: int) -> None:
        self.day = day
        self.by_code = _find_calling_code_zones()
        self.by_block: dict[str, str | None] = {}


_phone_zones: _PhoneZones | None = None


def find_phone_zone(number: str) -> str | None:
    """Return the time zone of a phone number in E.164, or None if it is unknown or its clocks differ.

    A number of a whole country, such as most mobile numbers, has the zones of that country.
    """
    known = _phone_zones or _start_phone_zones()
    # Most calling codes have two digits, and none is the beginning of another one.
    by_code = known.by_code
    zone = by_code.get(number[1:3]) or by_code.get(number[1:4]) or by_code.get(number[1:2])
    if zone is not None:
        return zone
    block = _get_block(number)
    if block in known.by_block:
        return known.by_block[block]
    # The rules of the next year change slowly, so only unknown blocks make them be read again.
    if known.day != _get_day() or len(known.by_block) > _MAX_CACHED_BLOCKS:
        known = _start_phone_zones()
    info = addresses.inspect_number(number)
    zone = choose_common_zone(info.zones)
    if info.type != "unknown":  # a number that does not exist decides nothing for its neighbours
        known.by_block[block] = zone
    return zone


def _start_phone_zones() -> _PhoneZones:
    global _phone_zones
    _phone_zones = _PhoneZones(_get_day())
    return _phone_zones


def _get_block(number: str) -> str:
    """Return the beginning of a number that decides its time zone.

    This is the number without its last four digits; in North America the area code, unless its area has several zones.
    """
    if number.startswith("+1") and number[1:_AREA_CODE_CHARACTERS] not in _list_split_area_codes():
        return number[:_AREA_CODE_CHARACTERS]
    return number[: -addresses.BLOCK_DIGITS]


@cache
def _list_split_area_codes() -> frozenset[str]:
    """Return the area codes of North America, as `1NPA`, whose exchange codes have entries in the table of zones."""
    from phonenumbers.tzdata import TIMEZONE_DATA

    length = _AREA_CODE_CHARACTERS - 1
    return frozenset(prefix[:length] for prefix in TIMEZONE_DATA if prefix[0] == "1" and len(prefix) > length)


def _find_calling_code_zones() -> dict[str, str]:
    """Return the time zone by calling code, for the codes of a single country in which all clocks agree."""
    from phonenumbers import COUNTRY_CODE_TO_REGION_CODE
    from phonenumbers.tzdata import TIMEZONE_DATA

    names: dict[str, set[str]] = {}
    for prefix, zone_names in TIMEZONE_DATA.items():
        for end in range(1, _MAX_CALLING_CODE_DIGITS + 1):
            names.setdefault(prefix[:end], set()).update(zone_names)
    zones = {}
    for code, regions in COUNTRY_CODE_TO_REGION_CODE.items():
        zone = choose_common_zone(sorted(names.get(str(code), ()))) if len(regions) == 1 else None
        if zone is not None:
            zones[str(code)] = zone
    return zones


def fingerprint_rules() -> str:
    """Return a text that changes when phone numbers, countries or names may have other time zones than before."""
    return _fingerprint_rules(_get_day())


@lru_cache(1)
def _fingerprint_rules(day: int) -> str:
    import phonenumbers
    from phonenumbers.tzdata import TIMEZONE_DATA

    countries = sorted(clock.country_names())
    areas = sorted({tuple(names) for names in TIMEZONE_DATA.values()})
    rules = (
        phonenumbers.__version__, sorted(list_zones()),
        [find_country_zone(country) for country in countries],
        [(names, _choose_common_zone(names, day)) for names in areas],
    )  # fmt: skip
    return hashlib.blake2b(repr(rules).encode(), digest_size=8).hexdigest()


# Local times.


@cache
def list_zones() -> frozenset[str]:
    """Return the names of all time zones."""
    return frozenset(name for name in available_timezones() if clock.find_time_zone(name) is not None)


def find_named_zone(name: object) -> str | None:
    """Return the name of a time zone without spaces at its ends, or None for any other value."""
    stripped = name.strip(" ") if isinstance(name, str) else ""
    return stripped if stripped in list_zones() else None


def get_zone(name: str) -> ZoneInfo:
    """Return the time zone with a name that is known to exist."""
    return ZoneInfo(name)


def parse_local_time(text: str) -> datetime:
    """Parse a local time such as `2026-12-01T09:00`.

    Raises ValueError for another text, and for a time before 1970 or after 9998.
    """
    local = datetime.fromisoformat(text) if _LOCAL_TIME.fullmatch(text) else None
    if local is None or not 1970 <= local.year <= 9998:
        raise ValueError("a local time must be written 2026-12-01T09:00")
    return local


def replace_hour(local_time: str, hour: int) -> str:
    """Return a local time such as `2026-12-01T09:00` at another hour of its day."""
    return f"{local_time[:11]}{hour:02}{local_time[13:]}"


def find_moment(local: datetime, zone: ZoneInfo) -> int:
    """Return the Unix milliseconds of a local time without offset in a time zone.

    A time that the clocks skip is the first moment after the gap, and one that comes twice counts the first time.
    """
    early, late = (local.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
    if late >= early:
        return int(early.timestamp()) * 1000
    # In a gap, `fold=0` has the offset of before and so lies after it, and `fold=1` lies before it (PEP 495).
    before, after = int(late.timestamp()), int(early.timestamp())
    offset = _get_offset(after, zone)
    while after - before > 1:
        middle = (before + after) // 2
        if _get_offset(middle, zone) == offset:
            after = middle
        else:
            before = middle
    return after * 1000


def _get_offset(second: int, zone: ZoneInfo) -> timedelta | None:
    return datetime.fromtimestamp(second, zone).utcoffset()


def find_next_moment(start: int, local: datetime, zone: ZoneInfo) -> int:
    """Return the first moment from `start` (Unix milliseconds) on at which it is the time of day of `local` in a zone.

    The result is not before `local` itself.
    """
    day = max(local.date(), datetime.fromtimestamp(start / 1000, zone).date() - timedelta(days=1))
    while (moment := find_moment(_at(day, local.time()), zone)) < start:
        day += timedelta(days=1)
    return moment


def _at(day: date, time_of_day: time) -> datetime:
    return datetime.combine(day, time_of_day)


@lru_cache(256)
def find_first_and_last(local_time: str) -> tuple[int, int]:
    """Return the first and the last moment at which clocks of any time zone show `local_time`, in Unix milliseconds."""
    local = parse_local_time(local_time)
    moments = [find_moment(local, ZoneInfo(name)) for name in list_zones()]
    return min(moments), max(moments)
