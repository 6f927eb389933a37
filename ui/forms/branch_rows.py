"""The rows in a step's form for its branches: each has inputs, and the key of its branch if that is stored.

There is one empty row more than there are branches, so that a branch can be added without a script. A row that was
emptied removes its branch.
"""

import csv
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from appliance.core.i18n import gettext_noop
from appliance.experiments.assignment import MAX_VARIANTS
from appliance.flows.branches import LISTED_KEY
from appliance.flows.steps import random_split, split_value
from ui.forms import Form

_MIN_ROWS = 2
_ITEM_PATH = re.compile(rf"{LISTED_KEY}\[(\d+)\](?:\.(\w+))?")


class RowInput(NamedTuple):
    """An input of a row; its label is a text for `gettext` with the number of the branch.

    `head` is the marked title of its column, where a row has several inputs.
    """

    name: str
    label: str
    head: str = ""
    is_optional: bool = False
    mode: str = ""
    max_characters: int = 0


class RowFields(NamedTuple):
    """The inputs of the rows of a field type, and the functions that convert a stored item to them and back.

    `format` returns the values of the inputs by name, and `parse` the item.
    A row counts as a branch if its input `main` is filled.
    """

    inputs: tuple[RowInput, ...]
    main: str
    max_rows: int
    format: Callable[[Mapping[str, Any]], dict[str, str]]
    parse: Callable[[Mapping[str, str]], dict[str, Any]]

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the inputs of a row."""
        return tuple(row_input.name for row_input in self.inputs)


def _format_texts(item: Mapping[str, Any]) -> dict[str, str]:
    """Return the values of a branch, separated by commas; a value with a comma is in quotation marks."""
    return {"values": ", ".join(_quote(text) for text in item["values"])}


def _quote(text: str) -> str:
    escaped = text.replace('"', '""')
    return f'"{escaped}"' if "," in text or '"' in text else text


def _parse_texts(values: Mapping[str, str]) -> dict[str, Any]:
    texts = next(csv.reader([values["values"].replace("\n", " ")], skipinitialspace=True), [])
    return {"values": [text.strip() for text in texts if text.strip()]}


def _format_share(item: Mapping[str, Any]) -> dict[str, str]:
    return {"name": item["name"], "share": str(item["share"])}


def _parse_share(values: Mapping[str, str]) -> dict[str, Any]:
    text = values["share"].removesuffix("%").strip()
    return {"name": values["name"] or None, "share": int(text) if text.isdecimal() and len(text) < 6 else text or None}


BRANCH_FIELDS = {
    "branch_values": RowFields(
        (RowInput("values", gettext_noop("Values of branch %(number)s"), max_characters=4_000),), "values",
        split_value.MAX_BRANCHES, _format_texts, _parse_texts,
    ),
    "branch_shares": RowFields(
        (
            RowInput(
                "name", gettext_noop("Name of branch %(number)s"), gettext_noop("Name"), is_optional=True,
                max_characters=random_split.MAX_NAME_CHARACTERS,
            ),
            RowInput(
                "share", gettext_noop("Share of branch %(number)s in percent"), gettext_noop("Percent"), mode="numeric",
                max_characters=3,
            ),
        ),
        "share", MAX_VARIANTS, _format_share, _parse_share,
    ),
}  # fmt: skip


def build_values(kind: str, items: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the form values of the branches of a stored step."""
    fields = BRANCH_FIELDS[kind]
    values = dict.fromkeys(list_names(kind), "")
    for index, item in enumerate(items[: fields.max_rows]):
        values[_name(index, "key")] = item["key"]
        values |= {_name(index, name): text for name, text in fields.format(item).items()}
    return values


def list_names(kind: str) -> tuple[str, ...]:
    """Return the names of all inputs of all rows."""
    fields = BRANCH_FIELDS[kind]
    return tuple(_name(index, name) for index in range(fields.max_rows) for name in ("key", *fields.names))


def list_rows(form: Form, kind: str) -> list[int]:
    """Return the numbers of the rows to show: those with an entry, and one that is empty."""
    fields = BRANCH_FIELDS[kind]
    filled = [index for index in range(fields.max_rows) if any(form[_name(index, name)] for name in fields.names)]
    return list(range(min(max(_MIN_ROWS, filled[-1] + 2 if filled else 0), fields.max_rows)))


def read_values(form: Form, kind: str) -> list[dict[str, Any]]:
    """Return the branches of a form, as sent to the API; rows of the form are moved up to fill empty ones."""
    fields = BRANCH_FIELDS[kind]
    rows = [{name: form[_name(index, name)] for name in ("key", *fields.names)} for index in range(fields.max_rows)]
    # A new row with a name only is kept, so that its missing entry is an error.
    rows = [row for row in rows if row[fields.main] or (not row["key"] and any(row.values()))]
    form.values |= dict.fromkeys(list_names(kind), "")
    for index, row in enumerate(rows):
        form.values |= {_name(index, name): text for name, text in row.items()}
    return [{"key": row["key"] or None, **fields.parse(row)} for row in rows]


def find_name(form: Form, path: str) -> str | None:
    """Return the name of the input that an error at a path of a step concerns, or None if it is about no row."""
    match = _ITEM_PATH.match(path)
    if match is None:
        names = (_name(0, fields.main) for fields in BRANCH_FIELDS.values() if path == LISTED_KEY)
        return next((name for name in names if name in form.values), None)
    names = (_name(int(match[1]), name) for name in (match[2] or "", *(each.main for each in BRANCH_FIELDS.values())))
    return next((name for name in names if name in form.values), None)


def _name(index: int, name: str) -> str:
    return f"{LISTED_KEY}_{index}_{name}"
