"""What a cell of a file says: trimmed, checked, and understood whatever product wrote it."""

import re
import unicodedata
from collections.abc import Callable
from datetime import date, datetime, time
from functools import cache
from typing import Any, Literal, NamedTuple

import msgspec
from babel import Locale

MAX_TAGS = 100
_BREAKS = re.compile(r"[ \t\r\n\v\f\u0085\u2028\u2029]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
SPACES = " \t\r\n\u00a0\u2007\u202f\ufeff\u200b"
# A cell that neither begins nor ends with one of these is clean
EDGES = frozenset(SPACES + "'")
# What our export puts before a cell that a spreadsheet would take for a formula
_ESCAPED = re.compile(r"'+[=+\-@\t\r\n＝＋－＠]")
_TYPED = frozenset("-0123456789tf")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d{0,14})(?:\.\d{1,9})?\Z")
_SEPARATORS = re.compile(r"[,;|]")
# Words are compared as `word_of` writes them, without accents
NO = frozenset(
    ("", "0", "no", "n", "false", "f", "off", "none", "null", "never", "nein", "non", "falsch", "faux", "falso",
     "nie", "jamais", "nunca", "✗", "✘")
)  # fmt: skip
YES = frozenset(
    ("1", "yes", "y", "true", "t", "on", "x", "ja", "j", "oui", "si", "s", "wahr", "vrai", "verdadero", "ok", "✓", "✔")
)  # fmt: skip
# How other products, in four languages, call what we know; the gravest of a row counts
STATES = {
    "unsubscribed": "out", "unsubscribe": "out", "opted_out": "out", "optout": "out", "abgemeldet": "out",
    "abbestellt": "out", "ausgetragen": "out", "desinscrit": "out", "desinscrite": "out", "desabonne": "out",
    "desabonnee": "out", "baja": "out", "dado_de_baja": "out", "desuscrito": "out", "cancelado": "out",
    "inactive": "off", "disabled": "off", "unconfirmed": "off", "pending": "off", "transactional": "off",
    "non_subscribed": "off", "nonsubscribed": "off", "not_subscribed": "off", "never_subscribed": "off",
    "archived": "off", "deleted": "off", "redacted": "off", "invited": "off", "inaktiv": "off", "unbestatigt": "off",
    "unbestaetigt": "off", "ausstehend": "off", "inactif": "off", "en_attente": "off",
    "non_inscrit": "off", "non_confirme": "off", "inactivo": "off", "pendiente": "off", "no_suscrito": "off",
    "blocklisted": "manual", "blacklisted": "manual", "blocked": "manual", "manual": "manual", "suppressed": "manual",
    "gesperrt": "manual", "bloque": "manual", "bloqueado": "manual",
    "cleaned": "hard_bounce", "bounced": "hard_bounce", "bounce": "hard_bounce", "hard_bounce": "hard_bounce",
    "unreachable": "hard_bounce", "invalid": "hard_bounce", "unzustellbar": "hard_bounce", "rebotado": "hard_bounce",
    "soft_bounce": "soft_bounce", "stop_keyword": "out", "erased": "manual",
    "complained": "complaint", "complaint": "complaint", "spam": "complaint", "abuse": "complaint",
}  # fmt: skip
SUBSCRIBED = frozenset(
    ("subscribed", "active", "enabled", "confirmed", "opted_in", "optin", "single_opt_in", "double_opt_in", "aktiv",
     "angemeldet", "abonniert", "bestatigt", "bestaetigt", "inscrit", "inscrite", "abonne", "abonnee", "actif",
     "confirme", "suscrito", "activo", "alta", "confirmado")
)  # fmt: skip
# What stands for nothing in any column, exactly as exports and people write it; none of these is a name
_BLANKS = """
    - -- --- – — − _ ? ?? ??? . .. ... / // n/a N/A n.a. N.A. n/a. #N/A #NA #NV #VALUE! #WERT! #VALEUR! #¡VALOR! #REF!
    #BEZUG! #NAME? #NOM? #¿NOMBRE? #DIV/0! #NULL! null NULL (null) <null> [null] \\N (none) (blank) (empty) (leer)
    undefined k.A. k.a. K.A. n/d N/D s/o S/O 0000-00-00
"""
BLANKS = frozenset((*_BLANKS.split(), "k. A.", "k. a.", "0000-00-00 00:00:00"))
# Beside these, in columns where no such word is a value
_BLANK_WORDS = """
    na n.a nil none nan unknown empty blank missing keine keiner keines leer unbekannt aucun aucune inconnu vide ninguno
    ninguna desconocido vacio
"""
_NOTHING = frozenset(
    (*_BLANK_WORDS.split(), "not provided", "not given", "no phone", "no email", "keine angabe", "keine angaben",
     "nicht angegeben", "non renseigne", "non renseignee", "sin datos", "sin dato", "no disponible")
)  # fmt: skip
_WITHOUT_WORDS = frozenset(("email", "phone", "country_code"))
REASONS = ("manual", "hard_bounce", "soft_bounce", "complaint")


class Bad(Exception):
    """A record that cannot be a person; its text is the reason."""


def clean(cell: str) -> str:
    """Take away spaces of every kind, and the mark that our export puts before what looks like a formula."""
    cell = cell.strip(SPACES)
    return cell[1:] if cell.startswith("'") and _ESCAPED.match(cell) else cell


def unaccented(text: str) -> str:
    """Return a text in lower case and without accents, as words are compared."""
    if not text.isascii():
        text = "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
    return text.lower()


def word_of(cell: Any) -> str:
    """Return a cell as a word that can be compared."""
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    return unaccented(str(cell).strip()).replace(" ", "_").replace("-", "_")


def is_blank(cell: str, target: str) -> bool:
    """Whether a cell stands for nothing: the usual empties, and in columns of addresses also `none` or a zero."""
    if cell in BLANKS:
        return True
    if target not in _WITHOUT_WORDS:
        return False
    folded = unaccented(cell.strip(" '\""))
    if not folded or folded in _NOTHING:
        # The two letters of Namibia
        return not (target == "country_code" and folded == "na")
    return target == "phone" and not folded.strip("0 .-/()")


def leave_out(row: dict[str, Any], target: str, cell: Any, reason: str) -> None:
    """Note that a value was not taken, or not as what it was meant for, and why; the rest of the row goes on."""
    row.setdefault("warnings", []).append((target, str(cell)[:100], reason))


def typed(cell: str) -> Any:
    """Read a cell without a type: what is written exactly as a number or a truth value is one."""
    if cell[0] not in _TYPED:
        return cell
    if cell in ("true", "false"):
        return cell == "true"
    if _NUMBER.match(cell) and cell != "-0":
        return float(cell) if "." in cell else int(cell)
    return cell


def _line(row: dict[str, Any], data: dict[str, Any], cell: Any, target: str) -> None:
    text = str(cell)
    if not text.isprintable():
        text = _BREAKS.sub(" ", text).strip()
    if len(text) > 255:
        leave_out(row, target, text, "is too long (maximum is 255 characters)")
    elif not text.isprintable() and _CONTROL.search(text):
        leave_out(row, target, text, "contains control characters")
    elif text:
        row[target] = text


def _address(row: dict[str, Any], data: dict[str, Any], cell: Any, target: str) -> None:
    """Gather what several columns say; the first that can be read counts."""
    row.setdefault(target, []).append(str(cell))


def _name(row: dict[str, Any], data: dict[str, Any], cell: Any, target: str) -> None:
    first, _, last = str(cell).strip().partition(" ")
    for name, text in (("first_name", first), ("last_name", last.strip())):
        if text and name not in row:
            _line(row, data, text, name)


# Languages in which the name of a country is understood; the executable holds the data of these
COUNTRY_LANGUAGES = ("en", "de", "fr", "es", "it", "pt", "nl", "pl")
# What people write that CLDR does not have
_MORE_COUNTRIES = {
    "uk": "GB", "u.k.": "GB", "england": "GB", "scotland": "GB", "wales": "GB", "great britain": "GB", "holland": "NL",
    "usa": "US", "u.s.a.": "US", "united states of america": "US", "brd": "DE",
}  # fmt: skip


@cache
def _countries() -> dict[str, str]:
    """Return the two letters of each country by its names in COUNTRY_LANGUAGES, without accents."""

    names = {
        unaccented(name): code
        for language in COUNTRY_LANGUAGES
        for code, name in Locale(language).territories.items()
        if len(code) == 2 and code.isalpha() and code not in ("EU", "EZ", "UN", "ZZ", "XA", "XB")
    }
    return names | _MORE_COUNTRIES


def _country_code(row: dict[str, Any], data: dict[str, Any], cell: Any, target: str) -> None:
    text = str(cell).strip()
    if len(text) == 2 and text.isascii() and text.isalpha() and text.upper() != "UK":
        row[target] = text.upper()
    elif code := _countries().get(unaccented(text)):
        row[target] = code
    else:
        leave_out(row, target, cell, "is not a country")


def _tracking(row: dict[str, Any], data: dict[str, Any], cell: Any, target: str) -> None:
    if cell in ("full", "aggregate", "none"):
        row[target] = cell
    else:
        leave_out(row, target, cell, "is not full, aggregate or none")


def _tags(row: dict[str, Any], data: dict[str, Any], cell: Any, target: str) -> None:
    parts = cell if isinstance(cell, list) else split(str(cell))
    tags = list(dict.fromkeys(text for part in parts if (text := str(part).strip(SPACES))))
    for tag in tags:
        if len(tag) > 64:
            leave_out(row, target, tag, "is too long (maximum is 64 characters)")
    short = [tag for tag in tags if len(tag) <= 64]
    for tag in short[MAX_TAGS:]:
        leave_out(row, target, tag, f"is one too many (maximum is {MAX_TAGS} tags)")
    if short:
        data["tags"] = short[:MAX_TAGS]


def split(text: str) -> list[Any]:
    """Take apart a cell of several words: a JSON list, or words between commas, semicolons or bars."""
    if text.startswith("["):
        try:
            found = msgspec.json.decode(text)
        except msgspec.DecodeError:
            found = None
        if isinstance(found, list):
            return found
    return [part.strip(SPACES + "\"'") for part in _SEPARATORS.split(text)]


def _json_data(row: dict[str, Any], data: dict[str, Any], cell: Any, target: str) -> None:
    try:
        values = cell if isinstance(cell, dict) else msgspec.json.decode(str(cell))
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        values = None
    if not isinstance(values, dict):
        leave_out(row, target, cell, "is not a JSON object")
        return
    for key, value in values.items():
        data.setdefault(key, value)


def _verified(row: dict[str, Any], data: dict[str, Any], cell: Any, target: str) -> None:
    row["verified"] = int(word_of(cell) in YES or word_of(cell) == "verified")


def _reason(row: dict[str, Any], data: dict[str, Any], cell: Any, target: str) -> None:
    """Read why an address is suppressed; one that must not be written to is not lost for want of a known reason."""
    word = word_of(cell)
    reason = STATES.get(word, word)
    if reason == "out":
        reason = "manual"
    if reason in REASONS:
        row["reason"] = reason
    else:
        leave_out(row, target, cell, "is not a known reason; kept as manual")


# Reads a cell into the row or its custom data, for a target; what cannot be read is left out and noted
Read = Callable[[dict[str, Any], dict[str, Any], Any, str], None]
READ: dict[str, Read] = {
    "email": _address, "phone": _address, "name": _name, "first_name": _line, "last_name": _line, "source": _line,
    "country_code": _country_code, "tracking": _tracking, "tags": _tags, "data": _json_data, "verified": _verified,
    "reason": _reason, "note": _line,
}  # fmt: skip


# Dates in the forms people write, read column by column: one value alone, `03/04/2026`, may be two days.
#
# What segments, merge tags and flows understand is ISO 8601; a column whose order no value decides stays as it is
# written until somebody says which comes first.

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


def read_date(text: str) -> Written | None:
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
        written = read_date(text)
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
    written = read_date(text)
    if written is None:
        return None, "is not a date"
    if written.is_clear:
        return written.day_first, None
    if verdict in ("ambiguous", "mixed", "clear"):
        return None, "may be day or month first"
    iso = written.month_first if verdict == "mdy" else written.day_first
    return iso, None if iso else "is not a date in the order of this column"
