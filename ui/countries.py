"""Countries as a person chooses one: for phone numbers that are written without their country code."""

from functools import cache

from appliance.core import addresses
from appliance.sending.sms import numbers

# Their numbers have a country of their own, which ISO 3166 has not
NAMES_BEYOND_ISO = {"AC": "Ascension Island", "TA": "Tristan da Cunha", "XK": "Kosovo"}


@cache
def names() -> tuple[tuple[str, str], ...]:
    """Return the countries that phone numbers belong to, as two letters and English name, by name."""
    known = NAMES_BEYOND_ISO | numbers.country_names()
    return tuple(sorted(((code, known.get(code, code)) for code in addresses.countries()), key=lambda one: one[1]))


def choices(none: str, chosen: str = "") -> list[tuple[str, str]]:
    """Return what a field offers; `none` is what it says for no country. What is `chosen` already is always offered."""
    known = names()
    beyond = [(chosen, chosen)] if chosen and chosen not in dict(known) else []
    return [("", none), *beyond, *known]
