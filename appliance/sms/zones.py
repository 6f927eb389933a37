"""Time zones and names of countries, from the tables that come with the time zone data."""

from functools import cache, lru_cache
from importlib.resources import files
from zoneinfo import ZoneInfo

# No name of a zone is half as long
_MAX_CHARACTERS = 64


def of_country(code: str | None) -> tuple[str, ...]:
    """Return the time zones of a country by its two letters; none for one that is not known."""
    return _countries().get((code or "").upper(), ())


def country_of(zone: str) -> str | None:
    """Return the country that a time zone belongs to, by two letters; None for UTC and zones of no country."""
    return next((code for code, zones in _countries().items() if zone in zones), None)


@cache
def names() -> dict[str, str]:
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
