"""What a cell of a file says: trimmed, checked, and understood whatever product wrote it."""

from collections.abc import Callable
from typing import Any

import msgspec

from appliance.patterns import late

_CONTROL = late(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
SPACES = " \t\r\n\u00a0\u2007\u202f\ufeff\u200b"
# A cell that neither begins nor ends with one of these is clean
EDGES = frozenset(SPACES + "'")
# What our export puts before a cell that a spreadsheet would take for a formula
_ESCAPED = late(r"'+[=+\-@\t\r\n＝＋－＠]")
_TYPED = frozenset("-0123456789tf")
_NUMBER = late(r"-?(?:0|[1-9]\d{0,14})(?:\.\d{1,9})?\Z")
_SEPARATORS = late(r"[,;|]")
NO = frozenset(("", "0", "no", "n", "false", "f", "off", "none", "null", "never", "nein", "non"))
YES = frozenset(("1", "yes", "y", "true", "t", "on", "x", "ja", "oui", "si"))
# How other products call what we know; the gravest of a row counts
STATES = {
    "unsubscribed": "out", "unsubscribe": "out", "opted_out": "out", "optout": "out", "inactive": "off",
    "disabled": "off", "unconfirmed": "off", "pending": "off", "transactional": "off", "non_subscribed": "off",
    "nonsubscribed": "off", "blocklisted": "manual", "blacklisted": "manual", "blocked": "manual", "manual": "manual",
    "suppressed": "manual", "cleaned": "hard_bounce", "bounced": "hard_bounce", "bounce": "hard_bounce",
    "hard_bounce": "hard_bounce", "unreachable": "hard_bounce", "invalid": "hard_bounce", "soft_bounce": "soft_bounce",
    "stop_keyword": "out", "erased": "manual",
    "complained": "complaint", "complaint": "complaint", "spam": "complaint", "abuse": "complaint",
}  # fmt: skip
REASONS = ("manual", "hard_bounce", "soft_bounce", "complaint")


class Bad(Exception):
    """A record that cannot be a person; its text is the reason."""


def clean(cell: str) -> str:
    """Take away spaces of every kind, and the mark that our export puts before what looks like a formula."""
    cell = cell.strip(SPACES)
    return cell[1:] if cell.startswith("'") and _ESCAPED.match(cell) else cell


def word_of(cell: Any) -> str:
    """Answer a cell as a word that can be compared."""
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    return str(cell).strip().lower().replace(" ", "_").replace("-", "_")


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
    if len(text) > 255:
        raise Bad(f"{target} is too long (maximum is 255 characters)")
    if not text.isprintable() and _CONTROL.search(text):
        raise Bad(f"{target} is invalid")
    row[target] = text


def _address(row: dict[str, Any], data: dict[str, Any], cell: Any, target: str) -> None:
    """Take the first of several columns that has one; a second number is kept, but nobody is found by it."""
    if target in row:
        data.setdefault(f"other_{target}", cell)
    else:
        row[target] = cell


def _name(row: dict[str, Any], data: dict[str, Any], cell: Any, target: str) -> None:
    first, _, last = str(cell).strip().partition(" ")
    for name, text in (("first_name", first), ("last_name", last.strip())):
        if text and name not in row:
            _line(row, data, text, name)


def _country_code(row: dict[str, Any], data: dict[str, Any], cell: Any, target: str) -> None:
    text = str(cell)
    if not (len(text) == 2 and text.isascii() and text.isalpha()):
        raise Bad("country_code is invalid")
    row[target] = text.upper()


def _tracking(row: dict[str, Any], data: dict[str, Any], cell: Any, target: str) -> None:
    if cell not in ("full", "aggregate", "none"):
        raise Bad("tracking is not included in the list")
    row[target] = cell


def _tags(row: dict[str, Any], data: dict[str, Any], cell: Any, target: str) -> None:
    parts = cell if isinstance(cell, list) else split(str(cell))
    found = list(dict.fromkeys(text for part in parts if (text := str(part).strip(SPACES))))
    if len(found) > 100 or any(len(text) > 64 for text in found):
        raise Bad("tags are too many or too long (maximum is 100 of 64 characters)")
    data["tags"] = found


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
        found = cell if isinstance(cell, dict) else msgspec.json.decode(str(cell))
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise Bad("data is not a JSON object")
    for key, value in found.items():
        data.setdefault(key, value)


def _verified(row: dict[str, Any], data: dict[str, Any], cell: Any, target: str) -> None:
    row["verified"] = int(word_of(cell) in YES or word_of(cell) == "verified")


def _reason(row: dict[str, Any], data: dict[str, Any], cell: Any, target: str) -> None:
    word = word_of(cell)
    row["reason"] = STATES.get(word, word)
    if row["reason"] == "out":
        row["reason"] = "manual"
    if row["reason"] not in REASONS:
        raise Bad("reason is not included in the list")


# Reads a cell into the row or its custom data, for a target; raises Bad
Read = Callable[[dict[str, Any], dict[str, Any], Any, str], None]
READ: dict[str, Read] = {
    "email": _address, "phone": _address, "name": _name, "first_name": _line, "last_name": _line, "source": _line,
    "country_code": _country_code, "tracking": _tracking, "tags": _tags, "data": _json_data, "verified": _verified,
    "reason": _reason, "note": _line,
}  # fmt: skip
