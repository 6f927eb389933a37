"""Custom data of a contact as form rows of name, type and value."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from ui import formats
from ui.forms import Form, edit_conflicts, parse_number

FIELD_NAMES = ("data_key", "data_kind", "data_value")
VALUE_KINDS = (("text", "Text"), ("number", "Number"), ("yes", "Yes or no"), ("json", "List or more"))
_YES, _NO = ("yes", "true", "1"), ("no", "false", "0", "")
MAX_FIELDS = 200


class DataRow(NamedTuple):
    """One row of the form: the name of the field, its kind (of `VALUE_KINDS`) and its value as text."""

    key: str
    kind: str
    value: str


def build_rows(data: dict[str, Any]) -> list[DataRow]:
    """Return the rows of a contact's custom data, without the tags, which are edited elsewhere."""
    return [DataRow(key, *_format_value(value)) for key, value in data.items() if key != "tags"]


def _format_value(value: Any) -> tuple[str, str]:
    if isinstance(value, bool):
        return "yes", "yes" if value else "no"
    if isinstance(value, int | float):
        return "number", formats.plain_number(value)
    if isinstance(value, str):
        return "text", value
    return "json", msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def read_rows(form: Form) -> list[DataRow]:
    """Return the posted rows, at most MAX_FIELDS, without the row whose Remove button was pressed."""
    drop = form["drop"]
    return [row for index, row in enumerate(_read_all_rows(form)) if str(index) != drop]


def _read_all_rows(form: Form) -> list[DataRow]:
    columns = zip(*(form.getlist(name) for name in FIELD_NAMES), strict=False)
    return [DataRow(key.strip(), kind, value.strip()) for key, kind, value in columns][:MAX_FIELDS]


class CustomDataParts(edit_conflicts.FormParts):
    """The parts of a contact form, for edit conflicts.

    Each custom data field is a separate part, with a key such as `data.size`.
    """

    _PREFIX = "data."

    def keys(self, form: Form, now: Form) -> list[str]:
        """Return the keys of plain parts and custom fields, stored or posted.

        A form that does not show the custom data has no keys for custom fields.
        """
        rows = [*_read_all_rows(now), *_read_all_rows(form)] if "data_shown" in form.values else []
        return super().keys(form, now) + list(dict.fromkeys(self._PREFIX + row.key for row in rows if row.key))

    def all_keys(self, now: Form) -> list[str]:
        """Return the keys of all plain parts and of the stored custom fields."""
        return [*super().all_keys(now), *(self._PREFIX + row.key for row in _read_all_rows(now))]

    def label(self, key: str) -> str:
        """Return the label of a part; for a custom field its name."""
        return key.removeprefix(self._PREFIX)

    def value(self, form: Form, key: str) -> Any:
        """Return the value of a part; for a custom field a list of its [kind, text], empty without the field."""
        if not key.startswith(self._PREFIX):
            return super().value(form, key)
        return [[row.kind, row.value] for row in _read_all_rows(form) if row.key == self.label(key)]

    def describe(self, form: Form, key: str, names: Mapping[str, str]) -> str:
        """Return the value of a part as text for the user."""
        if not key.startswith(self._PREFIX):
            return super().describe(form, key, names)
        return next((row.value or "empty" for row in _read_all_rows(form) if row.key == self.label(key)), "nothing")

    def take_stored(self, form: Form, key: str, now: Form) -> None:
        """Replace the value of a part in the form with the stored value.

        A stored custom field takes the place of its row; a field that is no longer stored loses its row.
        """
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
    """Parse rows to custom data, and add errors to the form at `data-<row index>`.

    Rows without name and value are ignored.
    """
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
        try:
            return parse_number(row.value)
        except ValueError:
            form.add_error(where, "Write a number, like 1250, 89.90 or 89,90.")
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
