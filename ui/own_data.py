"""A person's own data as rows of a form: a name, what kind of value it is, and the value as people write it."""

from typing import Any, NamedTuple

import msgspec

from ui.forms import Form

KINDS = (("text", "Text"), ("number", "Number"), ("yes", "Yes or no"), ("json", "List or more"))
_YES, _NO = ("yes", "true", "1"), ("no", "false", "0", "")
MOST = 200


class Row(NamedTuple):
    """One row of the form."""

    key: str
    kind: str
    value: str


def rows(data: dict[str, Any]) -> list[Row]:
    """Answer the rows for what is kept of a person; tags have a place of their own."""
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
    """Answer the rows that were posted, without the one that was taken out, and with one more if it was asked for."""
    parts = (form.all("data_key"), form.all("data_kind"), form.all("data_value"))
    found = [Row(key.strip(), kind, value.strip()) for key, kind, value in zip(*parts, strict=False)][:MOST]
    drop = form["drop"]
    return [row for index, row in enumerate(found) if str(index) != drop]


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
