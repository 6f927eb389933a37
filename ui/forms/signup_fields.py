"""The rows of a sign-up form's settings: one row for each field, added, removed and moved without saving.

Each row has a number, and its values are form fields such as `label-3`; the order of the hidden fields `row` is the
order of the rows.
"""

import re
import unicodedata
from collections.abc import Mapping
from typing import Any, NamedTuple

from appliance.core.i18n import gettext, gettext_noop
from appliance.forms.fields import CHOICE_TYPES, CONTACT_FIELDS, MAX_FIELDS, Field
from ui.forms import Form, edit_conflicts, is_message

CONTACT_LABELS = {
    "email": gettext_noop("Email address"), "phone": gettext_noop("Phone number"),
    "first_name": gettext_noop("First name"), "last_name": gettext_noop("Last name"),
    "language": gettext_noop("Language"),
}  # fmt: skip
TYPE_LABELS = {
    "text": gettext_noop("Short text"), "textarea": gettext_noop("Long text"), "select": gettext_noop("Dropdown"),
    "radio": gettext_noop("Single choice"), "checkboxes": gettext_noop("Checkboxes"),
    "checkbox": gettext_noop("Yes or no"), "date": gettext_noop("Date"), "number": gettext_noop("Number"),
    "hidden": gettext_noop("Hidden value"),
}  # fmt: skip
# The part of an error path, and the form field of the row that shows the error.
_ERROR_PLACES = {
    "label": "label", "help": "help", "placeholder": "placeholder", "options": "options", "value": "value",
    "query_parameter": "query",
}  # fmt: skip
_ERROR_PATH = re.compile(r"fields\[(\d+)\](?:\.(\w+))?")
_KEY_PREFIX = "data."


class FieldRow(NamedTuple):
    """A row: its number, the name of a contact field or an empty text, its type and its title."""

    number: int
    name: str
    type: str
    title: str


def set_fields(form: Form, fields: list[Field]) -> None:
    """Set the rows of a form from the fields of a sign-up form."""
    form.lists["row"] = []
    for field in fields:
        number = _add_row(form, field.name if field.key is None else field.type)
        values = {
            "label": field.label, "key": field.key, "required": "yes" if field.required else "",
            "options": "\n".join(field.options), "help": field.help, "placeholder": field.placeholder,
            "value": field.value, "query": field.query_parameter,
        }  # fmt: skip
        form.values |= {f"{name}-{number}": value or "" for name, value in values.items()}


def _add_row(form: Form, kind: str) -> int:
    """Add an empty row of a contact field or type, and return its number."""
    number = max((row.number for row in list_rows(form)), default=0) + 1
    form.lists["row"] = [*form.getlist("row"), str(number)]
    form.values[f"name-{number}"] = kind if kind in CONTACT_FIELDS else ""
    form.values[f"type-{number}"] = "text" if kind in CONTACT_FIELDS else kind
    return number


def list_rows(form: Form) -> list[FieldRow]:
    """Return the rows of a form in order, at most MAX_FIELDS; rows with unknown names or types are left out."""
    rows = []
    for number in dict.fromkeys(form.ids("row")):
        name, type_ = form[f"name-{number}"], form[f"type-{number}"]
        if name in CONTACT_LABELS:
            rows.append(FieldRow(number, name, "text", form[f"label-{number}"] or gettext(CONTACT_LABELS[name])))
        elif type_ in TYPE_LABELS:
            key_words = form[f"key-{number}"].replace("_", " ").capitalize()
            title = form[f"label-{number}"] or key_words or gettext(TYPE_LABELS[type_])
            rows.append(FieldRow(number, "", type_, title))
    return rows[:MAX_FIELDS]


def list_addable(form: Form) -> list[tuple[str, str]]:
    """Return the (kind, label) of the rows that can be added; a contact field can be added once."""
    rows = list_rows(form)
    if len(rows) >= MAX_FIELDS:
        return []
    names = {row.name for row in rows}
    return [(name, label) for name, label in CONTACT_LABELS.items() if name not in names] + list(TYPE_LABELS.items())


def apply_action(form: Form) -> int | None:
    """Apply the pressed button of the rows (`add:date`, `remove:3`, `up:3`, `down:3`), and return the changed row."""
    verb, _, argument = form.values.pop("act", "").partition(":")
    if verb == "add":
        return _add_row(form, argument) if argument in dict(list_addable(form)) else None
    numbers = [str(row.number) for row in list_rows(form)]
    if argument not in numbers:
        return None
    at = numbers.index(argument)
    numbers.pop(at)
    if verb != "remove":
        numbers.insert(max(0, at - 1) if verb == "up" else at + 1, argument)
    form.lists["row"] = numbers
    return int(argument)


def read_fields(form: Form) -> list[dict[str, Any]]:
    """Return the fields of the rows, as the API takes them."""
    return [_read_row(form, row) for row in list_rows(form)]


def _read_row(form: Form, row: FieldRow) -> dict[str, Any]:
    def text(name: str) -> str | None:
        return form[f"{name}-{row.number}"] or None

    is_hidden = row.type == "hidden"
    field: dict[str, Any] = {
        "name": row.name or _KEY_PREFIX + (_clean_key(text("key") or "") or _derive_key(text("label") or "", row)),
        "label": text("label"), "required": bool(text("required")) and not is_hidden, "type": row.type,
        "help": None if is_hidden else text("help"), "placeholder": None if is_hidden else text("placeholder"),
    }  # fmt: skip
    if row.type in CHOICE_TYPES:
        lines = (line.strip() for line in (text("options") or "").splitlines())
        field["options"] = [line for line in lines if line]
    if is_hidden:
        field |= {"value": text("value"), "query_parameter": text("query")}
    return field


def _clean_key(text: str) -> str:
    return text.removeprefix(_KEY_PREFIX).replace(" ", "_")


def _derive_key(label: str, row: FieldRow) -> str:
    """Return the key of a field without one: its label in plain letters, else its number."""
    plain = unicodedata.normalize("NFKD", label).encode("ascii", "ignore").decode().lower()
    key = re.sub(r"[^a-z0-9]+", "_", plain).strip("_")[:64]
    return key if key[:1].isalpha() else f"field_{row.number}"


def add_field_errors(form: Form, paths: Mapping[str, list[str]]) -> None:
    """Add the errors at paths such as `fields[2].options` to the rows of the form."""
    rows = list_rows(form)
    for path, messages in paths.items():
        match = _ERROR_PATH.match(path)
        if match is None or int(match[1]) >= len(rows):
            form.add_error("fields", gettext("Use at most %(limit)s fields.", limit=MAX_FIELDS))
            continue
        row = rows[int(match[1])]
        place = _ERROR_PLACES.get(match[2] or "", "label" if row.name else "key")
        form.add_error(f"{place}-{row.number}", _error_sentence(place, messages[0]))


def _error_sentence(place: str, message: str) -> str:
    if place == "key":
        return gettext("Use only letters, digits and _, and each name once.")
    if place == "options":
        is_blank = is_message(message, gettext_noop("can't be blank"))
        return (
            gettext("Enter at least one option.")
            if is_blank
            else gettext("Enter up to 50 different options of at most 100 characters, one per line.")
        )
    if place == "value":
        return gettext("Enter a value of at most 255 characters, or a URL parameter.")
    if place == "query":
        return gettext("Use only letters, digits, dots, hyphens and _.")
    return gettext("Use at most 255 characters, without line breaks.")


class SignupFormParts(edit_conflicts.FormParts):
    """The parts of the settings of a sign-up form; its fields are one part."""

    FIELDS = gettext_noop("Fields")

    def value(self, form: Form, key: str) -> Any:
        """Return the value of a part: the fields as the API takes them, else the sorted values."""
        return read_fields(form) if key == self.FIELDS else super().value(form, key)

    def take_stored(self, form: Form, key: str, now: Form) -> None:
        """Replace the value of a part in the form with the stored value."""
        if key != self.FIELDS:
            return super().take_stored(form, key, now)
        for number in form.ids("row"):
            for name in [name for name in form.values if name.endswith(f"-{number}")]:
                del form.values[name]
        form.lists["row"] = now.getlist("row")
        for number in form.ids("row"):
            form.values |= {name: value for name, value in now.values.items() if name.endswith(f"-{number}")}
        return None

    def describe(self, form: Form, key: str, known: Mapping[str, str]) -> str:
        """Return the value of a part as text for the user; of the fields, their titles."""
        if key != self.FIELDS:
            return super().describe(form, key, known)
        return ", ".join(row.title for row in list_rows(form)) or gettext("nothing")
