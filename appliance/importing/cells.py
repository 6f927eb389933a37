"""What a cell of a file says: trimmed, checked, and understood whatever product wrote it."""

import re
import unicodedata
from collections.abc import Callable
from functools import cache
from typing import Any

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
