"""Convert values of filters and of custom data to texts of form fields, and back: numbers, days, lists and JSON."""

import json
from collections.abc import Mapping
from datetime import date
from typing import Any, NamedTuple

import msgspec

from appliance.audience.filters import fields
from appliance.audience.filters.fields import FilterPlace
from appliance.audience.filters.predicates import PREDICATES_BY_TYPE
from appliance.audience.segments import suggestions
from appliance.core.i18n import gettext, gettext_noop
from ui import formats, forms
from ui.forms import Form, parse_number

# Kinds of value with several values, one a line or a checkbox.
MULTI_VALUE_KINDS = ("texts", "values", "ids")
EXACT = "exact"


def value_kind(type_: str, predicate: str) -> str:
    """Return the kind of value that a predicate takes, such as `days` or `pair`; empty for unknown predicates."""
    if type_ == "history":
        return "event" if predicate in ("performed", "not_performed") else ""
    if type_ == "group":
        return "filters" if predicate in ("any", "all", "none") else ""
    row = PREDICATES_BY_TYPE.get(type_, {}).get(predicate)
    if row is None:
        return ""
    # The predicate "between" takes two numbers; the others of the kind "numbers" accept any count.
    if row[0].key == "between":
        return "pair"
    return "many numbers" if row[0].value_kind == "numbers" else row[0].value_kind


def is_complete(kind: str, values: list[str]) -> bool:
    """Return whether a rule has enough values for a kind: two for `pair`, none for `flag`, one for others."""
    if kind in ("flag", ""):
        return kind == "flag"
    if kind == "pair":
        return len([value for value in values if value.strip()]) == 2
    return any(value.strip() for value in values)


def clean_values(row: Any) -> list[str]:
    """Return the posted values of a row without white space at their ends; a multi-value kind has one value a line.

    Values that are shown as JSON (`EXACT`) keep their white space.
    """
    if row["kind"] == EXACT:
        return [line for text in row.values for line in text.split("\n") if line.strip()]
    if row["as"] in (*MULTI_VALUE_KINDS, "many numbers"):
        lines = [line.strip() for text in row.values for line in text.split("\n")]
        return list(dict.fromkeys(line for line in lines if line))
    return [text.strip() for text in row.values]


def keep_compatible(before: str, now: str, values: list[str]) -> list[str]:
    """Return the values if they suit the kind `now` as well as the kind `before`, else an empty list.

    Call this when the user selects another predicate of the same field.
    """
    texts, ids = ("text", "texts", "value", "values"), ("id", "ids")
    numbers, times = ("number", "many numbers", "pair"), ("time", "pair")
    for compatible in (texts, ids, numbers, times, ("value", "values", "pair")):
        if before in compatible and now in compatible:
            return values
    return []


def parse_value(row: Any) -> Any:
    """Return the filter value of a row.

    Text that cannot be parsed is returned as it is, so that validation reports it.
    """
    kind, texts = row.value_kind, row.values
    first = texts[0] if texts else ""
    if kind == "flag":
        return True
    if row["kind"] == EXACT:
        read = [_parse_json(text) for text in texts]
        return read if kind in (*MULTI_VALUE_KINDS, "pair", "many numbers") else next(iter(read), "")
    if kind in ("number", "days"):
        return _parse_number(first)
    if kind == "many numbers" or (kind == "pair" and row.type == "number"):
        return [_parse_number(text) for text in texts]
    if kind == "id":
        return _parse_id(first)
    if kind == "ids":
        return [_parse_id(text) for text in texts]
    if kind == "boolean":
        return {"true": True, "false": False}.get(first, first)
    if kind == "value":
        return _parse_typed(first, row["kind"])
    if row.type == "json" and kind in ("values", "pair"):
        return [_parse_typed(text, row["kind"]) for text in texts]
    return texts if kind in ("texts", "pair") else first


def set_value(row: Any, raw: Any) -> None:
    """Set the values of a row, and if needed its predicate and `extra["kind"]`, from a stored filter value."""
    field = fields.find_field(row.name, FilterPlace.SPLIT, "x")
    names = PREDICATES_BY_TYPE.get(field.type, {}) if field else {}
    if row.value_kind == "flag":
        test, negative = names[row.predicate]
        if raw is False and test.opposite:
            row.predicate = test.key if negative else test.opposite
        return
    values = raw if isinstance(raw, list) else [raw]
    if field is not None and field.type == "json":
        row.extra["kind"] = _json_kind(values)
    elif any(
        isinstance(item_value, str) and (item_value != item_value.strip() or "\n" in item_value or "\r" in item_value)
        for item_value in values
    ):
        row.extra["kind"] = EXACT
    row.values = [_format_value(item_value, row["kind"]) for item_value in values]


def _json_kind(values: list[Any]) -> str:
    """Return the type of custom data values, one of the kinds of a row.

    Values of several types, and text with surrounding spaces or line breaks, are shown as JSON (EXACT).
    """
    if all(isinstance(value, bool) for value in values):
        return "boolean"
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return "number"
    if all(
        isinstance(value, str) and value == value.strip() and "\n" not in value and "\r" not in value
        for value in values
    ):
        return "date" if values and all(suggestions.DATE_PATTERN.fullmatch(value) for value in values) else "text"
    return EXACT


def _format_value(value: Any, kind: str) -> str:
    if kind == EXACT or value is None:
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, bool):
        return "true" if value else "false"
    return formats.plain_number(value) if isinstance(value, float) else str(value)


def _parse_json(text: str) -> Any:
    try:
        data = json.loads(text)
    except ValueError:
        return text
    return data if isinstance(data, str | int | float | bool) else text


def _parse_typed(text: str, kind: str) -> Any:
    if kind == "number":
        return _parse_number(text)
    if kind == "boolean":
        return {"true": True, "yes": True, "false": False, "no": False}.get(text.lower(), text)
    return text


def _parse_number(text: str) -> Any:
    try:
        return parse_number(text)
    except ValueError:
        return text


def _parse_id(text: str) -> Any:
    return int(text) if text.isdecimal() and len(text) < 19 else text


def parse_history(row: Any) -> dict[str, Any]:
    """Return the conditions of a history rule on the number and time of events, as the API represents them."""
    often, times = row["often"] or "least", _parse_number(row["times"] or "1")
    condition: dict[str, Any] = {"at_least": times}
    if often == "most":
        condition = {"at_least": 0, "at_most": times}
    elif often == "exactly":
        condition["at_most"] = times
    elif often == "between":
        condition["at_most"] = _parse_number(row["times_to"] or row["times"] or "1")
    if row["when"] == "days":
        condition["within_days"] = _parse_number(row["days"] or "30")
    elif row["when"] == "both":
        condition |= {"within_days": _parse_number(row["days"] or "30"), "since": row["since"]}
    elif row["when"] == "since":
        condition["since"] = row["since"]
    elif row["when"] == "start":
        condition["since"] = "flow_start"
    return condition | ({"include_machine": True} if row["machine"] == "yes" else {})


def format_history(raw: dict[str, Any]) -> dict[str, str]:
    """Return the `extra` fields of a row for the stored conditions on the number and time of events."""
    minimum, limit = raw.get("at_least"), raw.get("at_most")
    minimum = 1 if minimum is None else minimum
    values = {"often": "least", "times": str(minimum)}
    if limit is not None:
        values |= {"often": "exactly" if limit == minimum else "most" if minimum == 0 else "between",
                  "times": str(limit if minimum == 0 else minimum), "times_to": str(limit)}  # fmt: skip
    within, since = raw.get("within_days"), raw.get("since")
    if since is not None:
        values |= {"when": "start" if since == "flow_start" else "since", "since": str(since)}
    if within is not None:
        values |= {"when": "days" if since is None else "both", "days": str(within)}
    return values | ({"machine": "yes"} if raw.get("include_machine") else {})


# The custom data of a contact is edited in rows of name, kind and value.

FIELD_NAMES = ("data_key", "data_kind", "data_value")
VALUE_KINDS = (
    ("text", gettext_noop("Text")), ("number", gettext_noop("Number")), ("date", gettext_noop("Date")),
    ("yes", gettext_noop("Yes or no")), ("json", gettext_noop("List or object (JSON)")),
)  # fmt: skip
_YES, _NO = ("yes", "true", "1"), ("no", "false", "0", "")
MAX_FIELDS = 200


class DataRow(NamedTuple):
    """One row of the form: the name of the field, its kind (of `VALUE_KINDS`) and its value as text."""

    key: str
    kind: str
    value: str


def build_rows(data: dict[str, Any]) -> list[DataRow]:
    """Return the rows of a contact's custom data, without the tags, which are edited elsewhere."""
    return [DataRow(key, *_format_custom_value(value)) for key, value in data.items() if key != "tags"]


def is_date(text: str) -> bool:
    """Return whether a text is a day that exists, as a date field posts it: `2026-11-14`."""
    if suggestions.DATE_PATTERN.fullmatch(text) is None:
        return False
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _format_custom_value(value: Any) -> tuple[str, str]:
    if isinstance(value, bool):
        return "yes", "yes" if value else "no"
    if isinstance(value, int | float):
        return "number", formats.plain_number(value)
    if isinstance(value, str):
        return "date" if is_date(value) else "text", value
    return "json", msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def read_rows(form: Form) -> list[DataRow]:
    """Return the posted rows, at most MAX_FIELDS, without the row whose Remove button was pressed."""
    drop = form["drop"]
    return [row for index, row in enumerate(_read_all_rows(form)) if str(index) != drop]


def _read_all_rows(form: Form) -> list[DataRow]:
    columns = zip(*(form.getlist(name) for name in FIELD_NAMES), strict=False)
    return [DataRow(key.strip(), kind, value.strip()) for key, kind, value in columns][:MAX_FIELDS]


class CustomDataParts(forms.FormParts):
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
        return key.removeprefix(self._PREFIX) if key.startswith(self._PREFIX) else super().label(key)

    def value(self, form: Form, key: str) -> Any:
        """Return the value of a part; for a custom field a list of its [kind, text], empty without the field."""
        if not key.startswith(self._PREFIX):
            return super().value(form, key)
        return [[row.kind, row.value] for row in _read_all_rows(form) if row.key == self.label(key)]

    def describe(self, form: Form, key: str, names: Mapping[str, str]) -> str:
        """Return the value of a part of the form as text, for the message about an edit conflict."""
        if not key.startswith(self._PREFIX):
            return super().describe(form, key, names)
        rows = [row for row in _read_all_rows(form) if row.key == self.label(key)]
        return (rows[0].value or gettext("empty")) if rows else gettext("nothing")

    def take_stored(self, form: Form, key: str, stored: Form) -> None:
        """Replace the value of a part in the form with the stored value.

        A stored custom field takes the place of its row; a field that is no longer stored loses its row.
        """
        if not key.startswith(self._PREFIX):
            return super().take_stored(form, key, stored)
        name, rows = self.label(key), _read_all_rows(form)
        stored_rows = [row for row in _read_all_rows(stored) if row.key == name]
        at = next((at for at, row in enumerate(rows) if row.key == name), len(rows))
        rows = [*rows[:at], *stored_rows, *(row for row in rows[at:] if row.key != name)]
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
            form.add_error(where, gettext("Enter a name."))
        elif row.key.casefold() == "tags":
            form.add_error(where, gettext("Edit tags on the page of the contact."))
        elif row.key in data:
            form.add_error(where, gettext("This name is already in use."))
        else:
            data[row.key] = _parse_custom_value(form, where, row)
    return data


def _parse_custom_value(form: Form, where: str, row: DataRow) -> Any:
    if row.kind == "number":
        try:
            return parse_number(row.value)
        except ValueError:
            form.add_error(where, gettext("Enter a number, like 1250, 89.90 or 89,90."))
    elif row.kind == "yes":
        if row.value.casefold() in (*_YES, *_NO):
            return row.value.casefold() in _YES
        form.add_error(where, gettext("Enter yes or no."))
    elif row.kind == "date":
        if row.value and not is_date(row.value):
            form.add_error(where, gettext("Select a date."))
    elif row.kind == "json":
        try:
            return msgspec.json.decode(row.value)
        except msgspec.DecodeError:
            form.add_error(where, gettext('Enter valid JSON, like ["red", "blue"] or {"size": 42}.'))
    return row.value
