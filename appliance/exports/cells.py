"""Cells and lines of CSV that no spreadsheet takes for a formula, and that the import reads back to what they were."""

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec

# What begins a formula, in full width too, with the quotes that are before it already
_FORMULA = re.compile(r"'*[=+\-@\t\r\n＝＋－＠]")
_PHONE = re.compile(r"\+[1-9]\d{6,14}\Z")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d{0,14})(?:\.\d{1,9})?\Z")
_SPACES = " \t\r\n\u00a0\u2007\u202f\ufeff\u200b"
_encode = msgspec.json.Encoder().encode


def guarded(text: str) -> str:
    """Put a quote before a text that a spreadsheet would run."""
    return f"'{text}" if _FORMULA.match(text) else text


def phone(text: str | None) -> str:
    """Write a phone number, whose plus is no formula; anything else is guarded like all other text."""
    return "" if text is None else text if _PHONE.match(text) else guarded(text)


def cell(value: Any) -> str:
    """Write a value as text: nothing, text, number, truth value, or JSON for what has parts."""
    if value is None:
        return ""
    if isinstance(value, str):
        return guarded(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return guarded(repr(value))
    return json(value)


def json(value: Any) -> str:
    """Write a value as JSON."""
    return _encode(value).decode()


def line(cells: Iterable[str]) -> str:
    """Write a line of cells, each in quotes."""
    return (
        ",".join([f'"{text}"' if '"' not in text else '"' + text.replace('"', '""') + '"' for text in cells]) + "\r\n"
    )


def is_plain(value: Any) -> bool:
    """Return whether a value of custom data is the same again when its cell is read without knowing its type."""
    if isinstance(value, str):
        if not value or value[0] in _SPACES or value[-1] in _SPACES or value in ("true", "false"):
            return False
        return not _NUMBER.match(value) and "\0" not in value
    if isinstance(value, bool):
        return True
    if isinstance(value, int | float):
        text = repr(value)
        return bool(_NUMBER.match(text)) and text not in ("-0", "-0.0")
    return False


def moment(ms: int | None) -> str | None:
    """Write a stored time as the interface shows it."""
    if ms is None:
        return None
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")[:-6] + "Z"
