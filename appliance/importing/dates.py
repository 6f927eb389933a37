"""Dates in the forms people write, read column by column: one value alone, `03/04/2026`, may be two days.

What segments, merge tags and flows understand is ISO 8601; a column whose order no value decides stays as it is written
until somebody says which comes first.
"""

import re
import unicodedata
from datetime import date, datetime, time
from typing import Literal, NamedTuple

Order = Literal["dmy", "mdy"]
# How a column is written: without any doubt, day first, month first, either of the two, or both in turn
Verdict = Literal["clear", "dmy", "mdy", "ambiguous", "mixed"]
# A column is one of dates if half of its first values are, and of all its values
_ENOUGH = 20
_MAX_CHARACTERS = 40
_TIME = r"(?:,?[t\s]\s*(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2})(?:[.,]\d{1,9})?)?\s*" \
        r"(?P<half>[ap]\.?m\.?)?\s*(?P<zone>z|utc|gmt|[+-]\d{2}:?\d{2})?)?"  # fmt: skip
_ISO = re.compile(r"\d{4}-\d{2}-\d{2}(?:[T ]|\Z)")
_YEAR_FIRST = re.compile(r"(?P<year>\d{4})([-/.])(?P<month>\d{1,2})\2(?P<day>\d{1,2})" + _TIME)
_YEAR_LAST = re.compile(
    r"(?P<first>\d{1,2})\s?(?P<mark>[./-])\s?(?P<last>\d{1,2})\s?(?P=mark)\s?(?P<year>\d{4})" + _TIME
)
_DAY_NAMED = re.compile(
    r"(?P<day>\d{1,2})(?:st|nd|rd|th|er|\.)?[\s-]+(?:de\s+)?(?P<name>[^\W\d_]{3,})\.?,?[\s-]+(?:de\s+)?(?P<year>\d{4})"
    + _TIME
)
_NAMED_DAY = re.compile(r"(?P<name>[^\W\d_]{3,})\.?\s+(?P<day>\d{1,2})(?:st|nd|rd|th)?,?\s+(?P<year>\d{4})" + _TIME)
_WEEKDAY = re.compile(r"[^\W\d_]{2,}\.?,\s+(?=[\w\d])")
_MONTHS = (
    "january januar janvier enero gennaio januari janeiro",
    "february februar fevrier febrero febbraio februari fevereiro",
    "march marz maerz mars marzo maart marco",
    "april avril abril aprile",
    "may mai mayo maggio mei maio",
    "june juni juin junio giugno junho",
    "july juli juillet julio luglio julho",
    "august aout agosto augustus",
    "september septembre septiembre settembre setembro",
    "october oktober octobre octubre ottobre outubro",
    "november novembre noviembre novembro",
    "december dezember decembre diciembre dicembre dezembro",
)


def _month(name: str) -> int | None:
    """Return the month that a word, or the beginning of one, names in one of seven languages; None if it is unclear."""
    folded = "".join(c for c in unicodedata.normalize("NFKD", name.casefold()) if not unicodedata.combining(c))
    months = {
        number for number, names in enumerate(_MONTHS, 1) if any(each.startswith(folded) for each in names.split())
    }
    return months.pop() if len(months) == 1 else None


class Written(NamedTuple):
    """A date in ISO 8601 by the order it is read in; None where it is no day in that order."""

    day_first: str | None
    month_first: str | None
    has_dots: bool = False

    @property
    def is_clear(self) -> bool:
        """Whether it is the same day in every order."""
        return self.day_first == self.month_first


def read(text: str) -> Written | None:
    """Read a date; None for what is none."""
    text = text.strip()
    if not 6 <= len(text) <= _MAX_CHARACTERS or not any(character.isdecimal() for character in text):
        return None
    if _ISO.match(text):
        return Written(text, text) if _is_iso(text) else None
    text = _WEEKDAY.sub("", text.casefold(), count=1)
    match = _YEAR_FIRST.fullmatch(text) or _YEAR_LAST.fullmatch(text)
    match = match or _DAY_NAMED.fullmatch(text) or _NAMED_DAY.fullmatch(text)
    if match is None:
        return None
    parts = match.groupdict()
    suffix, year = _suffix(parts), int(parts["year"])
    if suffix is None:
        return None
    if "first" in parts:
        first, second = int(parts["first"]), int(parts["last"])
        written = Written(
            _day(year, second, first, suffix), _day(year, first, second, suffix), parts["mark"] == "."
        )  # fmt: skip
    else:
        month = _month(parts["name"]) if "name" in parts else int(parts["month"])
        day = _day(year, month or 0, int(parts["day"]), suffix)
        written = Written(day, day)
    return written if written.day_first or written.month_first else None


def _is_iso(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _day(year: int, month: int, day: int, suffix: str) -> str | None:
    try:
        return f"{date(year, month, day).isoformat()}{suffix}" if 1000 <= year <= 2999 else None
    except ValueError:
        return None


def _suffix(parts: dict[str, str | None]) -> str | None:
    """Return the time of day and its offset as ISO 8601 writes them, "" without one; None for no time of any day."""
    if parts["hour"] is None or parts["minute"] is None:
        return ""
    hour, half = int(parts["hour"]), (parts["half"] or "").replace(".", "")
    if half and not 1 <= hour <= 12:
        return None
    if half:
        hour = hour % 12 + (12 if half == "pm" else 0)
    try:
        clock = time(hour, int(parts["minute"]), int(parts["second"] or 0))
    except ValueError:
        return None
    zone = (parts["zone"] or "").upper()
    if zone in ("Z", "UTC", "GMT"):
        zone = "Z"
    elif len(zone) == 5:
        zone = f"{zone[:3]}:{zone[3:]}"
    return f"T{clock.isoformat()}{zone}"


class Column:
    """What the values of a column tell of how its dates are written."""

    def __init__(self) -> None:
        self._filled = self._dates = 0
        self._day_first = self._month_first = self._either = self._has_dots = False

    def add(self, text: str) -> bool:
        """Look at a value that is not empty; returns whether the column may still be one of dates."""
        written = read(text)
        self._filled += 1
        if written is not None:
            self._dates += 1
            self._day_first |= written.month_first is None
            self._month_first |= written.day_first is None
            if written.day_first and written.month_first and not written.is_clear:
                # With dots nobody writes the month first, unless a value of the column shows it
                self._has_dots |= written.has_dots
                self._either |= not written.has_dots
        return self._filled < _ENOUGH or self._dates * 2 >= self._filled

    def verdict(self, asked: Order | None) -> Verdict | None:
        """Return how the column is written, where nothing in it tells in the order that was `asked`; None: no dates."""
        if self._dates * 2 < self._filled or not self._dates:
            return None
        if self._day_first and self._month_first:
            return "mixed"
        if self._month_first:
            return "mdy"
        if self._day_first or (self._has_dots and not self._either):
            return "dmy"
        return (asked or "ambiguous") if self._either else "clear"


def convert(text: str, verdict: Verdict) -> tuple[str | None, str | None]:
    """Return a value of a column of dates in ISO 8601, or None and why it stays as it is written."""
    written = read(text)
    if written is None:
        return None, "is not a date"
    if written.is_clear:
        return written.day_first, None
    if verdict in ("ambiguous", "mixed", "clear"):
        return None, "may be day or month first"
    iso = written.month_first if verdict == "mdy" else written.day_first
    return iso, None if iso else "is not a date in the order of this column"
