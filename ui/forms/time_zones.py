"""The options of a time zone field: regions named by their cities in the language of the user, with present offsets."""

from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from appliance.core import clock, i18n
from appliance.core.i18n import gettext

# The time zones of each region. Selecting a region stores the first; its label names the cities of all.
REGIONS = tuple(
    tuple(line.split())
    for line in """
Pacific/Pago_Pago
Pacific/Honolulu
Pacific/Marquesas
America/Anchorage
America/Los_Angeles America/Vancouver America/Tijuana
America/Phoenix
America/Denver America/Edmonton
America/Mazatlan
America/Chicago America/Winnipeg
America/Mexico_City America/Monterrey
America/Regina
America/Guatemala America/Costa_Rica
America/New_York America/Toronto
America/Bogota America/Lima America/Panama
America/Havana
America/Caracas
America/Halifax Atlantic/Bermuda
America/La_Paz America/Puerto_Rico
America/Manaus
America/Santiago
America/Asuncion
America/St_Johns
America/Sao_Paulo America/Bahia
America/Argentina/Buenos_Aires
America/Montevideo
America/Nuuk
America/Noronha
Atlantic/Azores
Atlantic/Cape_Verde
Europe/London Europe/Dublin Europe/Lisbon
Atlantic/Reykjavik Africa/Abidjan Africa/Accra
Africa/Casablanca
Europe/Berlin Europe/Vienna Europe/Zurich
Europe/Paris Europe/Brussels Europe/Amsterdam
Europe/Madrid Europe/Rome
Europe/Warsaw Europe/Prague Europe/Budapest
Europe/Stockholm Europe/Copenhagen Europe/Oslo
Europe/Belgrade Europe/Zagreb Europe/Ljubljana
Africa/Lagos Africa/Algiers
Europe/Athens Europe/Bucharest Europe/Sofia
Europe/Helsinki Europe/Riga Europe/Tallinn Europe/Vilnius
Europe/Kyiv
Europe/Chisinau
Europe/Kaliningrad
Africa/Cairo
Asia/Jerusalem
Asia/Beirut
Africa/Johannesburg Africa/Maputo
Europe/Istanbul
Europe/Moscow Europe/Minsk
Asia/Riyadh Asia/Kuwait Asia/Baghdad
Africa/Nairobi
Asia/Tehran
Asia/Dubai Asia/Muscat
Asia/Baku Asia/Tbilisi Asia/Yerevan
Indian/Mauritius
Asia/Kabul
Asia/Karachi
Asia/Tashkent Asia/Almaty
Asia/Yekaterinburg
Asia/Kolkata Asia/Colombo
Asia/Kathmandu
Asia/Dhaka
Asia/Yangon
Asia/Bangkok Asia/Ho_Chi_Minh Asia/Jakarta
Asia/Novosibirsk
Asia/Shanghai Asia/Hong_Kong Asia/Taipei
Asia/Singapore Asia/Kuala_Lumpur Asia/Manila
Australia/Perth
Asia/Tokyo Asia/Seoul
Australia/Adelaide
Australia/Darwin
Australia/Sydney Australia/Melbourne
Australia/Brisbane
Australia/Hobart
Pacific/Guam Pacific/Port_Moresby
Asia/Vladivostok
Pacific/Noumea
Pacific/Auckland
Pacific/Fiji
Pacific/Tongatapu
Pacific/Kiritimati
""".strip().splitlines()
)
_HOUR_MS = 3_600_000
# A value, its label, and further words by which a search finds the option.
Option = tuple[str, str, str]


def time_zone_groups(chosen: str = "") -> list[tuple[str, list[Option]]]:
    """Return the options of a time zone field as (group, options): first the regions, then every other time zone.

    Both are sorted by their present offset from UTC; UTC itself is the first region. The time zone `chosen` is always
    an option: if it is in neither group, it is added before UTC.
    """
    regions, others = _load_options(i18n.get_language(), clock.now_ms() // _HOUR_MS)
    known = {value for value, _, _ in (*regions, *others)}
    unlisted = [(chosen, _label(_offset(chosen), chosen), "")] if chosen and chosen not in known else []
    return [(gettext("Regions"), [*unlisted, *regions]), (gettext("All time zones"), list(others))]


def describe_time_zone(name: str, at: int | None = None) -> str:
    """Return a time zone by its city and its offset at a time (ms), by default now: `Berlin (UTC+01:00)`."""
    if name == "UTC":
        return "UTC"
    return gettext("%(city)s (%(offset)s)", city=_city(name), offset=_format_offset(_offset(name, at)))


@lru_cache(maxsize=16)
def _load_options(language: str, hour: int) -> tuple[list[Option], list[Option]]:
    """Return the regions and the other time zones in a language, with the offsets of an hour since 1970."""
    from babel.core import get_global  # 30 ms that a service need not spend at its start

    with i18n.use_language(language):
        countries = i18n.get_locale().territories
        territories: Any = get_global("zone_territories")
        spellings: dict[str, list[str]] = {}
        for alias, name in get_global("zone_aliases").items():
            spellings.setdefault(name, []).append(alias)
        moment = datetime.fromtimestamp(hour * _HOUR_MS / 1000, UTC)
        zones = {name: zone for name in territories if (zone := clock.find_time_zone(name)) is not None}
        offsets = {name: moment.astimezone(zone).utcoffset() for name, zone in zones.items()}

        def list_search_words(name: str) -> str:
            return " ".join((name, *spellings.get(name, ()), countries.get(territories.get(name, ""), "")))

        regions = [
            (offsets[names[0]], ", ".join(map(_city, names)), names[0], " ".join(map(list_search_words, names)))
            for names in REGIONS
            if names[0] in offsets
        ]
        used = {names[0] for names in REGIONS}
        others = []
        for name in offsets:
            country = countries.get(territories[name], "")
            city = _city(name)
            label = f"{city}, {country}" if country and country != city else city
            if name not in used and not name.startswith("Etc/"):
                others.append((offsets[name], label, name, " ".join((name, *spellings.get(name, ())))))
        utc_names: Any = i18n.get_locale().time_zones.get("Etc/UTC", {})
        utc_option = ("UTC", _label(0, utc_names.get("long", {}).get("standard", "UTC")), "Etc/UTC GMT Etc/GMT")
        return [utc_option, *_sort(regions)], _sort(others)


def _sort(rows: list[tuple[Any, str, str, str]]) -> list[Option]:
    """Return the options of rows (offset, name, value, search words), sorted by offset and name."""
    ordered = sorted(rows, key=lambda row: (row[0], row[1]))
    return [(value, _label(int(offset.total_seconds()), name), search) for offset, name, value, search in ordered]


def _offset(name: str, at: int | None = None) -> int:
    """Return the offset of a time zone from UTC at a time (ms), by default now, in seconds; 0 for an unknown name."""
    moment = clock.now_ms() if at is None else at
    offset = datetime.fromtimestamp(moment / 1000, clock.find_time_zone(name) or UTC).utcoffset()
    return int(offset.total_seconds()) if offset else 0


def _format_offset(seconds: int) -> str:
    hours, minutes = divmod(abs(seconds) // 60, 60)
    return f"UTC{'-' if seconds < 0 else '+'}{hours:02}:{minutes:02}"


def _label(seconds: int, name: str) -> str:
    return f"({_format_offset(seconds)}) {name}"


def _city(name: str) -> str:
    """Return the name of a time zone's city in the current language."""
    names: Any = i18n.get_locale().time_zones.get(name, {})
    city = str(names.get("city") or name.rpartition("/")[2].replace("_", " "))
    return city.replace("\xad", "")  # German has soft hyphens in some names
