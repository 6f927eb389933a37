"""Inspect phone numbers: country, type, validity, and possible time zones.

Numbers reserved for fiction (+44 7700 900123) count as possible, but their type is `unknown`.
"""

from functools import cache, lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, NamedTuple

from appliance.core import clock

if TYPE_CHECKING:
    from phonenumbers import PhoneNumber


# Time zones and names of countries are read from the tables of the tzdata package.


def time_zones_of_country(code: str | None) -> tuple[str, ...]:
    """Return the time zones of a country by its two-letter code (ISO 3166), or an empty tuple if it is unknown."""
    return _time_zones_by_country().get((code or "").upper(), ())


def country_of_time_zone(zone: str) -> str | None:
    """Return the two-letter code of the country of a time zone, or None if it has no country, such as UTC."""
    return next((code for code, zones in _time_zones_by_country().items() if zone in zones), None)


@cache
def country_names() -> dict[str, str]:
    """Return the English names of all countries by their two-letter codes (ISO 3166)."""
    lines = (files("tzdata") / "zoneinfo" / "iso3166.tab").read_text("utf-8").splitlines()
    return dict(line.split("\t")[:2] for line in lines if line and not line.startswith("#"))


@cache
def _time_zones_by_country() -> dict[str, tuple[str, ...]]:
    zones_by_country: dict[str, list[str]] = {}
    for line in (files("tzdata") / "zoneinfo" / "zone.tab").read_text("utf-8").splitlines():
        if line and not line.startswith("#"):
            code, _, zone = line.split("\t")[:3]
            zones_by_country.setdefault(code, []).append(zone)
    return {code: tuple(names) for code, names in zones_by_country.items()}


# Our names of the values of PhoneNumberType in the phonenumbers library.
_TYPES = {
    0: "fixed", 1: "mobile", 2: "fixed_or_mobile", 3: "toll_free", 4: "premium", 5: "shared_cost", 6: "voip",
    7: "personal", 8: "pager", 9: "uan", 10: "voicemail",
}  # fmt: skip
# Types of numbers whose owners are paid for calls and messages to them.
PREMIUM_TYPES = ("premium", "shared_cost")
_UNKNOWN_ZONE = "Etc/Unknown"
# The number of last digits in which the numbers of a block differ; fraudsters rent whole blocks for SMS pumping.
_BLOCK_DIGITS = 4


class NumberInfo(NamedTuple):
    """The properties of a phone number.

    `country` is a two-letter code, or None if the number belongs to no country. `type` is `unknown` or one of
    `mobile`, `fixed`, `fixed_or_mobile`, `toll_free`, `premium`, `shared_cost`, `voip`, `personal`, `pager`, `uan` and
    `voicemail`. `is_possible` means that the number has a valid length and can be dialled from abroad. `zones` are all
    time zones in which the number may be, usually one; the tuple is empty if they are unknown.
    """

    country: str | None
    type: str
    is_possible: bool
    zones: tuple[str, ...]
    prefix: str  # the number without its last four digits, which all numbers of a block share


@lru_cache(40_000)
def inspect_number(number: str) -> NumberInfo:
    """Return the properties of a number in E.164, from a cache; an unreadable number is not possible and has no
    country.
    """
    import phonenumbers

    prefix = number[:-_BLOCK_DIGITS]
    try:
        parsed = phonenumbers.parse(number)
    except phonenumbers.NumberParseException:
        return NumberInfo(None, "unknown", False, (), prefix)
    code = parsed.country_code or 0
    region = phonenumbers.region_code_for_number(parsed) or phonenumbers.region_code_for_country_code(code)
    # The region of numbers without a country (+800, +883) is written in digits.
    country = region if region and region.isalpha() and region != "ZZ" else None
    kind = phonenumbers.number_type(parsed)
    # A number that can only be dialled locally is not possible either, because it has no international form.
    length = phonenumbers.is_possible_number_with_reason(parsed)
    is_possible = length == phonenumbers.ValidationResult.IS_POSSIBLE
    return NumberInfo(country, _TYPES.get(kind, "unknown"), is_possible, _time_zones(parsed, kind, country), prefix)


@lru_cache(1_000)
def _existing_zones(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the time zones that exist on this system; the cache shares equal results, which saves memory."""
    return tuple(name for name in names if name != _UNKNOWN_ZONE and clock.find_time_zone(name))


def _time_zones(parsed: "PhoneNumber", kind: int, country: str | None) -> tuple[str, ...]:
    from phonenumbers import is_number_geographical, region_codes_for_country_code, timezone

    is_somewhere = _TYPES.get(kind) is not None and is_number_geographical(parsed)
    if not is_somewhere and len(region_codes_for_country_code(parsed.country_code or 0)) > 1:
        # Several countries share this calling code (+1, +7, +44), and the library would return the time zones of all of
        # them for a mobile or toll-free number. Only those of the number's own country are used.
        zones = time_zones_of_country(country)
        if zones:
            return _existing_zones(zones)
    if _TYPES.get(kind) is None:
        return _existing_zones(timezone.time_zones_for_geographical_number(parsed))
    return _existing_zones(timezone.time_zones_for_number(parsed))
