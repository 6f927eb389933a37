"""What a phone number tells: its country, its kind, whether a network can have it, and by which clocks it lives.

Numbers of exercises and films (+44 7700 900123) are valid by the form of a number alone; they are of no kind.
"""

from functools import cache, lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, NamedTuple
from zoneinfo import ZoneInfo

if TYPE_CHECKING:
    from phonenumbers import PhoneNumber


# Time zones and names of countries, from the tables that come with the time zone data.

# No name of a zone is half as long
_MAX_CHARACTERS = 64


def of_country(code: str | None) -> tuple[str, ...]:
    """Return the time zones of a country by its two letters; none for one that is not known."""
    return _countries().get((code or "").upper(), ())


def country_of(zone: str) -> str | None:
    """Return the country that a time zone belongs to, by two letters; None for UTC and zones of no country."""
    return next((code for code, zones in _countries().items() if zone in zones), None)


@cache
def country_names() -> dict[str, str]:
    """Return the English names of countries, by two letters."""
    lines = (files("tzdata") / "zoneinfo" / "iso3166.tab").read_text("utf-8").splitlines()
    return dict(line.split("\t")[:2] for line in lines if line and not line.startswith("#"))


def is_known(name: str) -> bool:
    """Return whether this is the name of a time zone, `Europe/Berlin`."""
    return len(name) <= _MAX_CHARACTERS and _exists(name)


@lru_cache(1_000)
def _exists(name: str) -> bool:
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # names of directories and what leads out of them
        return False
    return True


@cache
def _countries() -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for line in (files("tzdata") / "zoneinfo" / "zone.tab").read_text("utf-8").splitlines():
        if line and not line.startswith("#"):
            code, _, zone = line.split("\t")[:3]
            found.setdefault(code, []).append(zone)
    return {code: tuple(names) for code, names in found.items()}


# As phonenumbers numbers them (PhoneNumberType)
_TYPES = {
    0: "fixed", 1: "mobile", 2: "fixed_or_mobile", 3: "toll_free", 4: "premium", 5: "shared_cost", 6: "voip",
    7: "personal", 8: "pager", 9: "uan", 10: "voicemail",
}  # fmt: skip
# Who is called or written to there is paid for it
DEAR = ("premium", "shared_cost")
_UNKNOWN_ZONE = "Etc/Unknown"
# A pumped block of numbers differs in these
_LAST_DIGITS = 4


class Number(NamedTuple):
    """What a number tells.

    `type` is one of `mobile fixed fixed_or_mobile toll_free premium shared_cost voip personal pager uan voicemail
    unknown`; `country` None: it is of no country, or of none that exists. `zones` are all in which it may be, most
    likely one; none: the number does not say.
    """

    country: str | None
    type: str
    is_possible: bool
    zones: tuple[str, ...]
    prefix: str  # all numbers that differ in their last four digits


@lru_cache(40_000)
def look(number: str) -> Number:
    """Look at a number in E.164; one that cannot be read is not possible. What was found is kept."""
    import phonenumbers

    prefix = number[:-_LAST_DIGITS]
    try:
        parsed = phonenumbers.parse(number)
    except phonenumbers.NumberParseException:
        return Number(None, "unknown", False, (), prefix)
    code = parsed.country_code or 0
    region = phonenumbers.region_code_for_number(parsed) or phonenumbers.region_code_for_country_code(code)
    # Numbers of no country (+800, +883) have a region of digits
    country = region if region and region.isalpha() and region != "ZZ" else None
    kind = phonenumbers.number_type(parsed)
    # One that is dialled so within its town alone has no form for the world
    length = phonenumbers.is_possible_number_with_reason(parsed)
    is_possible = length == phonenumbers.ValidationResult.IS_POSSIBLE
    return Number(country, _TYPES.get(kind, "unknown"), is_possible, _zones(parsed, kind, country), prefix)


@lru_cache(1_000)
def _kept(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return zones that exist; the same ones are the same object, however many numbers are kept."""
    return tuple(name for name in names if name != _UNKNOWN_ZONE and is_known(name))


def _zones(parsed: "PhoneNumber", kind: int, country: str | None) -> tuple[str, ...]:
    from phonenumbers import is_number_geographical, region_codes_for_country_code, timezone

    is_somewhere = _TYPES.get(kind) is not None and is_number_geographical(parsed)
    if not is_somewhere and len(region_codes_for_country_code(parsed.country_code or 0)) > 1:
        # Mobile and free ones of a plan that countries share (+1, +7, +44): of its country alone, not of all of them
        found = of_country(country)
        if found:
            return _kept(found)
    if _TYPES.get(kind) is None:
        return _kept(timezone.time_zones_for_geographical_number(parsed))
    return _kept(timezone.time_zones_for_number(parsed))
