"""Writes dates and amounts in the language of a message, from the CLDR data of Babel."""

import re
from datetime import date, datetime
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from babel import Locale

_DIRECTIVE = re.compile(r"%([-_^#]?)([a-zA-Z%])")
# The CLDR patterns of the strftime directives that are words. Beside a day, the month has the form that dates have,
# else the form that stands alone: "8 czerwca 1964", but "czerwiec 1964".
_WORDS = {"B": "MMMM", "b": "MMM", "h": "MMM", "A": "EEEE", "a": "EEE", "p": "a"}
_WORDS_ALONE = {"B": "LLLL", "b": "LLL", "h": "LLL"}
_DAYS_OF_MONTH = ("d", "e")


@lru_cache(64)
def _find_locale(tag: str) -> "Locale":
    """Return the locale of a language tag; of its language, if it has no such region; else English.

    English without a region has the dates of most countries, not of the US.
    """
    from babel import Locale, UnknownLocaleError  # 30 ms that a service with English emails alone does not need

    for name in (tag.replace("-", "_"), re.split("[-_]", tag)[0]):
        try:
            return Locale.parse("en_GB" if name == "en" else name)
        except (ValueError, UnknownLocaleError):
            continue
    return Locale.parse("en_GB")


def format_day(day: date, language: str) -> str:
    """Return a date with the name of its month: `31 December 2026` for `en`, `31. Dezember 2026` for `de`."""
    from babel.dates import format_date

    return format_date(day, "long", locale=_find_locale(language))


def translate_format(moment: datetime, form: str, language: str) -> str:
    """Return a strftime format with the names of months and days of this moment in place of their directives."""
    from babel.dates import format_datetime

    has_day = any(match[2] in _DAYS_OF_MONTH for match in _DIRECTIVE.finditer(form))
    patterns = _WORDS if has_day else _WORDS | _WORDS_ALONE

    def replace(match: re.Match[str]) -> str:
        pattern = patterns.get(match[2])
        if pattern is None:
            return match[0]
        word = format_datetime(moment, pattern, locale=_find_locale(language)).replace("%", "%%")
        return word.upper() if match[1] == "^" else word

    return _DIRECTIVE.sub(replace, form)


def format_amount(amount: float, language: str) -> str:
    """Return an amount with two decimals: `1,234.50` for `en`, `1.234,50` for `de`."""
    from babel.numbers import format_decimal

    return format_decimal(amount, "#,##0.00", locale=_find_locale(language))
