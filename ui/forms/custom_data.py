"""Custom data of a contact as rows of a form: name, type and value."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from ui.forms import Form, edit_conflicts

FIELD_NAMES = ("data_key", "data_kind", "data_value")
VALUE_KINDS = (("text", "Text"), ("number", "Number"), ("yes", "Yes or no"), ("json", "List or more"))
_YES, _NO = ("yes", "true", "1"), ("no", "false", "0", "")
MAX_FIELDS = 200


class DataRow(NamedTuple):
    """One row of the form."""

    key: str
    kind: str
    value: str


def build_rows(data: dict[str, Any]) -> list[DataRow]:
    """Return the rows of a contact's custom data; tags are edited elsewhere."""
    return [DataRow(key, *_format_value(value)) for key, value in data.items() if key != "tags"]


def _format_value(value: Any) -> tuple[str, str]:
    if isinstance(value, bool):
        return "yes", "yes" if value else "no"
    if isinstance(value, int | float):
        return "number", str(value)
    if isinstance(value, str):
        return "text", value
    return "json", msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def read_rows(form: Form) -> list[DataRow]:
    """Return the posted rows, without the one whose Remove button was pressed."""
    drop = form["drop"]
    return [row for index, row in enumerate(_read_all_rows(form)) if str(index) != drop]


def _read_all_rows(form: Form) -> list[DataRow]:
    columns = zip(*(form.getlist(name) for name in FIELD_NAMES), strict=False)
    return [DataRow(key.strip(), kind, value.strip()) for key, kind, value in columns][:MAX_FIELDS]


class CustomDataParts(edit_conflicts.FormParts):
    """The parts of a contact form: each key of custom data is a part."""

    _PREFIX = "data."

    def keys(self, form: Form, now: Form) -> list[str]:
        """Return the plain parts and every key; a form that does not show the data has no keys."""
        rows = [*_read_all_rows(now), *_read_all_rows(form)] if "data_shown" in form.values else []
        return super().keys(form, now) + list(dict.fromkeys(self._PREFIX + row.key for row in rows if row.key))

    def all_keys(self, now: Form) -> list[str]:
        """Return the plain parts and every key."""
        return [*super().all_keys(now), *(self._PREFIX + row.key for row in _read_all_rows(now))]

    def label(self, key: str) -> str:
        """Return the label of a part."""
        return key.removeprefix(self._PREFIX)

    def value(self, form: Form, key: str) -> Any:
        """Return the value of a part; of a custom field its kind and its text."""
        if not key.startswith(self._PREFIX):
            return super().value(form, key)
        return [[row.kind, row.value] for row in _read_all_rows(form) if row.key == self.label(key)]

    def describe(self, form: Form, key: str, names: Mapping[str, str]) -> str:
        """Return a part in words."""
        if not key.startswith(self._PREFIX):
            return super().describe(form, key, names)
        return next((row.value or "empty" for row in _read_all_rows(form) if row.key == self.label(key)), "nothing")

    def take_stored(self, form: Form, key: str, now: Form) -> None:
        """Replace a part of the form by the stored one; a custom field keeps its position."""
        if not key.startswith(self._PREFIX):
            return super().take_stored(form, key, now)
        name, rows = self.label(key), _read_all_rows(form)
        stored = [row for row in _read_all_rows(now) if row.key == name]
        at = next((at for at, row in enumerate(rows) if row.key == name), len(rows))
        rows = [*rows[:at], *stored, *(row for row in rows[at:] if row.key != name)]
        for field, column in zip(FIELD_NAMES, zip(*rows, strict=True) if rows else ((), (), ()), strict=True):
            form.lists[field] = list(column)
        return None


def parse_rows(form: Form, rows: list[DataRow]) -> dict[str, Any]:
    """Return the rows as data; errors are added as `data-N`."""
    data: dict[str, Any] = {}
    for index, row in enumerate(rows):
        if not row.key and not row.value:
            continue
        where = f"data-{index}"
        if not row.key:
            form.add_error(where, "Enter a name.")
        elif row.key.casefold() == "tags":
            form.add_error(where, "Edit tags on the contact's page.")
        elif row.key in data:
            form.add_error(where, "This name is already in use.")
        else:
            data[row.key] = _parse_value(form, where, row)
    return data


def _parse_value(form: Form, where: str, row: DataRow) -> Any:
    if row.kind == "number":
        text = row.value.replace("\u202f", "").replace(" ", "")
        try:
            return int(text) if text.lstrip("-").isdecimal() and len(text) < 19 else _parse_float(text)
        except ValueError:
            form.add_error(where, "Write a number, like 12 or 3.5.")
    elif row.kind == "yes":
        if row.value.casefold() in (*_YES, *_NO):
            return row.value.casefold() in _YES
        form.add_error(where, "Write yes or no.")
    elif row.kind == "json":
        try:
            return msgspec.json.decode(row.value)
        except msgspec.DecodeError:
            form.add_error(where, 'Write it as JSON, like ["red", "blue"] or {"size": 42}.')
    return row.value


def _parse_float(text: str) -> float:
    number = float(text)
    if number != number or abs(number) == float("inf"):
        raise ValueError(text)
    return number
