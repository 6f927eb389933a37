"""A person's own data as rows of a form: a name, what kind of value it is, and the value as people write it."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from ui import together
from ui.forms import Form

NAMES = ("data_key", "data_kind", "data_value")
KINDS = (("text", "Text"), ("number", "Number"), ("yes", "Yes or no"), ("json", "List or more"))
_YES, _NO = ("yes", "true", "1"), ("no", "false", "0", "")
MAX_FIELDS = 200


class Row(NamedTuple):
    """One row of the form."""

    key: str
    kind: str
    value: str


def rows(data: dict[str, Any]) -> list[Row]:
    """Return the rows for what is kept of a person; tags have a place of their own."""
    return [Row(key, *_shown(value)) for key, value in data.items() if key != "tags"]


def _shown(value: Any) -> tuple[str, str]:
    if isinstance(value, bool):
        return "yes", "yes" if value else "no"
    if isinstance(value, int | float):
        return "number", str(value)
    if isinstance(value, str):
        return "text", value
    return "json", msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def posted(form: Form) -> list[Row]:
    """Return the rows that were posted, without the one that was taken out, and with one more if it was asked for."""
    drop = form["drop"]
    return [row for index, row in enumerate(_all(form)) if str(index) != drop]


def _all(form: Form) -> list[Row]:
    found = zip(*(form.all(name) for name in NAMES), strict=False)
    return [Row(key.strip(), kind, value.strip()) for key, kind, value in found][:MAX_FIELDS]


class Parts(together.Parts):
    """The parts of a form about a person: each name of their own data is one."""

    _MINE = "data."

    def keys(self, form: Form, now: Form) -> list[str]:
        """Return the plain parts and every name; of a form that does not show the data, none."""
        rows = [*_all(now), *_all(form)] if "data_shown" in form.values else []
        return super().keys(form, now) + list(dict.fromkeys(self._MINE + row.key for row in rows if row.key))

    def all(self, now: Form) -> list[str]:
        """Return the plain parts and every name."""
        return [*super().all(now), *(self._MINE + row.key for row in _all(now))]

    def label(self, key: str) -> str:
        """Return what people call a part."""
        return key.removeprefix(self._MINE)

    def value(self, form: Form, key: str) -> Any:
        """Return what a form says in a part; of a name its kind and its value."""
        if not key.startswith(self._MINE):
            return super().value(form, key)
        return [[row.kind, row.value] for row in _all(form) if row.key == self.label(key)]

    def words(self, form: Form, key: str, known: Mapping[str, str]) -> str:
        """Return what a part is."""
        if not key.startswith(self._MINE):
            return super().words(form, key, known)
        return next((row.value or "empty" for row in _all(form) if row.key == self.label(key)), "nothing")

    def take(self, form: Form, key: str, now: Form) -> None:
        """Let a part of the form say what is kept; a name stays in its place."""
        if not key.startswith(self._MINE):
            return super().take(form, key, now)
        name, rows = self.label(key), _all(form)
        kept = [row for row in _all(now) if row.key == name]
        at = next((at for at, row in enumerate(rows) if row.key == name), len(rows))
        rows = [*rows[:at], *kept, *(row for row in rows[at:] if row.key != name)]
        for field, column in zip(NAMES, zip(*rows, strict=True) if rows else ((), (), ()), strict=True):
            form.lists[field] = list(column)
        return None


def read(form: Form, found: list[Row]) -> dict[str, Any]:
    """Read the rows into data; what is wrong is noted at its row, as `data-N`."""
    data: dict[str, Any] = {}
    for index, row in enumerate(found):
        if not row.key and not row.value:
            continue
        where = f"data-{index}"
        if not row.key:
            form.wrong(where, "Say what this is.")
        elif row.key.casefold() == "tags":
            form.wrong(where, "Tags have a place of their own, on the page of the person.")
        elif row.key in data:
            form.wrong(where, "This name is there already.")
        else:
            data[row.key] = _value(form, where, row)
    return data


def _value(form: Form, where: str, row: Row) -> Any:
    if row.kind == "number":
        text = row.value.replace("\u202f", "").replace(" ", "")
        try:
            return int(text) if text.lstrip("-").isdecimal() and len(text) < 19 else _float(text)
        except ValueError:
            form.wrong(where, "Write a number, like 12 or 3.5.")
    elif row.kind == "yes":
        if row.value.casefold() in (*_YES, *_NO):
            return row.value.casefold() in _YES
        form.wrong(where, "Write yes or no.")
    elif row.kind == "json":
        try:
            return msgspec.json.decode(row.value)
        except msgspec.DecodeError:
            form.wrong(where, 'Write it as JSON, like ["red", "blue"] or {"size": 42}.')
    return row.value


def _float(text: str) -> float:
    found = float(text)
    if found != found or abs(found) == float("inf"):
        raise ValueError(text)
    return found
