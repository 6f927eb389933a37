"""Read posted forms, show validation errors as sentences at their fields, and ask about edit conflicts.

In an edit conflict two users have changed one form at the same time: only parts that both changed need a decision. A
part that the user did not change takes over the stored value. The field `seen` of a form holds a digest of each part
from when the form was opened; when the form is posted, the parts of the form and the stored parts are compared with
these digests. The values of the buttons `mine` and `theirs` name the part that the user decided about.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import date, datetime
from functools import wraps
from typing import Any, NamedTuple, Self, TypeVar
from zoneinfo import ZoneInfo

import msgspec
from sanic import Request
from sanic.response import HTTPResponse

from appliance.content.templates.editing import hash_value
from appliance.core import clock, errors, time_zones
from appliance.core.i18n import gettext, gettext_noop, ngettext, translate
from ui import formats

# Validation messages that pages replace with sentences of their own.
IS_INVALID, IS_TAKEN = gettext_noop("is invalid"), gettext_noop("has already been taken")
# Sentences for validation messages. Any other message is turned into a sentence by `formats.sentence`.
_SENTENCES = {
    gettext_noop("can't be blank"): gettext_noop("This field is required."),
    IS_INVALID: gettext_noop("This value is not valid. Check it for typos."),
    IS_TAKEN: gettext_noop("This is already in use. Enter another."),
    gettext_noop("must exist"): gettext_noop("This no longer exists. Select another."),
    gettext_noop("is not included in the list"): gettext_noop("Select one of the options."),
}

# Hints for invalid fields, by a part of the field's name.
_HINTS = {
    "email": gettext_noop("Enter an email address like name@example.com."),
    "reply_to": gettext_noop("Enter an email address like name@example.com."),
    "phone": gettext_noop("Enter the number with its country code, like +44 20 7946 0018."),
    "country": gettext_noop("Enter the two-letter country code, like GB."),
    "holidays": gettext_noop("Write dates like 2026-12-25, one per line."),
}
_TOO_SHORT = gettext_noop("is too short (minimum is %(limit)s characters)")
_TOO_LONG = gettext_noop("is too long (maximum is %(limit)s characters)")


class Form:
    """The values and errors of a form, from which a page shows the user's entries again.

    `values` has the first value of each field, stripped; `lists` has all values as posted. `errors` maps fields to
    sentences; the key `base` is shown above the form. `labels` has the labels of fields, for the list of errors.
    """

    def __init__(self, values: dict[str, str] | None = None, lists: dict[str, list[str]] | None = None) -> None:
        self.values = values or {}
        self.lists = lists or {}
        self.errors: dict[str, str] = {}
        self.labels: dict[str, str] = {}
        self._nameless_errors: set[str] = set()
        # `merge_form` sets the conflicts and the digests of the stored values.
        self.conflicts: list[Any] = []
        self.stored_digests: dict[str, str] = {}

    @classmethod
    def from_request(cls, request: Request) -> Self:
        """Return the form that a request posted; in `values` every line end is a single newline."""
        posted: dict[str, list[str]] = dict(request.get_form(keep_blank_values=True) or {})
        values = {
            name: values_of_field[0].replace("\r\n", "\n").strip()
            for name, values_of_field in posted.items()
            if values_of_field
        }
        return cls(values, posted)

    def __getitem__(self, name: str) -> str:
        return self.values.get(name, "")

    def getlist(self, name: str) -> list[str]:
        """Return every value of a field, such as one with several checkboxes, as posted."""
        return self.lists.get(name, [])

    def raw(self, name: str) -> str:
        """Return the first value of a field as posted, including spaces, for passwords."""
        return next(iter(self.getlist(name)), "")

    def ids(self, name: str) -> list[int]:
        """Return the ids among the values of a field; other values are dropped."""
        return [int(text) for text in self.getlist(name) if text.isdecimal() and len(text) < 19]

    def text(self, name: str) -> str | None:
        """Return the value of a field, or None if it is empty."""
        return self[name] or None

    def add_error(self, name: str, sentence: str) -> None:
        """Add an error to a field, unless the field has an error already."""
        self.errors.setdefault(name, sentence)

    def require(self, name: str, sentence: str) -> None:
        """Add an error to a field if the field is empty."""
        if not self[name]:
            self.add_error(name, sentence)

    def add_errors(self, error: errors.Invalid, names: dict[str, str] | None = None) -> "Form":
        """Add the errors of an Invalid to the fields of the form, and return the form.

        `names` maps error paths, or their last parts, to field names. Errors that match no field are added to `base`.
        """
        for path, messages in error.fields.items():
            last = path.rpartition(".")[2]
            field = (names or {}).get(path) or (names or {}).get(last) or (last if last in self.values else "base")
            if field != "base" and field not in self.errors:
                self._nameless_errors.add(field)
            self.add_error(
                field, error_sentence(messages[0], path) if field == "base" else _field_sentence(field, messages[0])
            )
        if not error.fields:
            self.add_error("base", error_sentence(error.message))
        return self

    def list_errors(self) -> list[tuple[str, str]]:
        """Return the (field, sentence) of each error in the order of the form's fields.

        A sentence that names no field, such as `Use at least 10 characters.`, has the field's label before it.
        """
        positions = {name: position for position, name in enumerate(self.values)}
        return [
            (name, gettext("%(label)s: %(value)s", label=self.labels[name], value=formats.uncapitalize(text)))
            if name in self._nameless_errors and name in self.labels
            else (name, text)
            for name, text in sorted(self.errors.items(), key=lambda item: positions.get(item[0], len(positions)))
        ]

    def moment(self, day: str, hour: str, zone: ZoneInfo) -> int | None:
        """Return the time of a date field and an hour field in a time zone, in milliseconds.

        An empty hour means 09:00. If the date or hour is invalid, add an error to the date field and return None.
        """
        try:
            local = datetime.fromisoformat(f"{self[day]}T{self[hour] or '09:00'}")
            clock.parse(local.replace(tzinfo=zone).isoformat())  # raises ValueError for a year that is out of range
            return time_zones.find_moment(local, zone)
        except (ValueError, OverflowError):
            self.add_error(day, gettext("Select a date."))
            return None


def is_message(message: str, text: str) -> bool:
    """Return whether a validation message is `text`, in English or in the language of the page."""
    return message in (text, gettext(text))


def has_message(error: errors.Invalid, field: str, text: str) -> bool:
    """Return whether an Invalid has the validation message `text` at a field."""
    return any(is_message(message, text) for message in error.fields.get(field, ()))


def _field_sentence(field: str, message: str) -> str:
    if is_message(message, IS_INVALID):
        hint = next((hint for name, hint in _HINTS.items() if name in field), None)
        if hint:
            return gettext(hint)
    return error_sentence(message)


def error_sentence(message: str, path: str = "") -> str:
    """Return a validation message as a sentence, which names `path` if it is given."""
    if limit := _find_limit(message, _TOO_SHORT):
        return ngettext("Use at least %(num)s character.", "Use at least %(num)s characters.", limit)
    if limit := _find_limit(message, _TOO_LONG):
        return ngettext("Use at most %(num)s character.", "Use at most %(num)s characters.", limit)
    known_sentence = next((sentence for text, sentence in _SENTENCES.items() if is_message(message, text)), None)
    if known_sentence and not path:
        return gettext(known_sentence)
    return formats.sentence(f"{path.replace('_', ' ').replace('.', ' ')} {message}")


def _find_limit(message: str, text: str) -> int:
    """Return the limit in a validation message that is `text`, in English or in the language of the page, else 0."""
    for known_text in (text, translate(text)):
        before, _, after = known_text.partition("%(limit)s")
        limit = message.removeprefix(before).removesuffix(after)
        if limit.isdecimal() and message == f"{before}{limit}{after}":
            return int(limit)
    return 0


def parse_int(text: str | None, default: int = 1, limit: int = 10**6) -> int:
    """Parse a number of up to 9 digits and clamp it to 1..`limit`; return `default` for any other text."""
    if not text or not text.isdecimal() or len(text) > 9:
        return default
    return max(1, min(int(text), limit))


def parse_id(text: str | None) -> int:
    """Parse an object id of up to 18 digits; return 0, which is not an object's id, for any other text.

    Unlike `parse_int`, it never clamps: another number would be the id of another object.
    """
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) <= 18 else 0


def parse_day(text: str | None) -> date | None:
    """Parse an ISO date; None if the date is invalid or not between the years 1970 and 9998."""
    try:
        date_ = date.fromisoformat(text or "")
    except ValueError:
        return None
    return date_ if 1970 <= date_.year < 9999 else None


# A whole number without or with spaces between its thousands; then with decimals or separators: 89.90, 89,90,
# 1.234,50, 1,234.50. A comma before exactly three digits is refused: 1,234 is read differently in different countries.
_WHOLE_NUMBER = re.compile(r"[+-]?\d{1,18}")
_COMMA_DECIMAL = re.compile(r"[+-]?(?:\d+,(?!\d{3}$)|\d{1,3}(?:\.\d{3})+,|0,)\d+")
_ENGLISH_THOUSANDS = re.compile(r"[+-]?\d{1,3}(?:,\d{3})+\.\d+")


def parse_number(text: str) -> int | float:
    """Parse a number as people write it, ignoring spaces: `1250`, `89.90`, `89,90`, `1.234,50` or `1,234.50`.

    `1.234` is read with a decimal point. Raises ValueError for `1,234`, which is ambiguous, and for any text that is
    not a finite number.
    """
    plain = re.sub(r"\s", "", text)
    if _WHOLE_NUMBER.fullmatch(plain):
        return int(plain)
    if _COMMA_DECIMAL.fullmatch(plain):
        plain = plain.replace(".", "").replace(",", ".")
    elif _ENGLISH_THOUSANDS.fullmatch(plain):
        plain = plain.replace(",", "")
    number = float(plain)
    if number != number or abs(number) == float("inf"):
        raise ValueError(text)
    return number


def list_params(request: Request, limit: int) -> tuple[dict[str, Any], str]:
    """Return the query parameters of a list page as (parameters, search text).

    The parameters are `page`, `limit` and, unless it is empty, `search`.
    """
    search = (request.args.get("search") or "").strip()[:254]
    raw: dict[str, Any] = {"page": parse_int(request.args.get("page")), "limit": limit}
    return raw | ({"search": search} if search else {}), search


def safe_path(text: str | None) -> str:
    """Return a path to redirect to, or `/` if it could lead to another site."""
    if not text or not text.startswith("/") or text.startswith(("//", "/\\")) or any(ord(c) < 33 for c in text):
        return "/"
    return text


# The value of `mine` with which a page that is being closed overwrites all parts, since it cannot show conflicts.
EVERY_PART = "*"
_MAX_DESCRIPTION_CHARACTERS = 400
KnownNames = Mapping[str, Mapping[str, str]]
PageHandler = Callable[..., Awaitable[HTTPResponse]]
F = TypeVar("F", bound=Form)


class ChangedMeanwhile(Exception):
    """The stored values changed between the comparison and the write."""


class EditConflict(NamedTuple):
    """A part of a form that two users changed: its key, its label, and both values as text.

    `theirs` is the stored value, `mine` the posted value.
    """

    key: str
    label: str
    theirs: str
    mine: str


class FormPart(NamedTuple):
    """Fields of a form that are compared together and share a label.

    `is_checkbox` means that a missing field means an unchecked box, not a form without the field.
    """

    label: str
    names: tuple[str, ...]
    is_checkbox: bool = False


class FormParts:
    """The parts of a form, by label. Subclasses handle parts that are not plain fields."""

    def __init__(self, *parts: FormPart) -> None:
        self._parts = {part.label: part for part in parts}

    def keys(self, form: Form, now: Form) -> list[str]:
        """Return the keys of the parts that a posted form contains. `now` is the form of the stored values."""
        return [
            key
            for key, part in self._parts.items()
            if part.is_checkbox or any(name in form.values for name in part.names)
        ]

    def label(self, key: str) -> str:
        """Return the label of a part, which for plain fields is its key in the language of the page."""
        return translate(key)

    def names(self, key: str) -> tuple[str, ...]:
        """Return the names of the fields of a part."""
        return self._parts[key].names

    def field_labels(self) -> dict[str, str]:
        """Return the label of the part of each field, in the language of the page."""
        return {name: translate(part.label) for part in self._parts.values() for name in part.names}

    def value(self, form: Form, key: str) -> Any:
        """Return the value of a part for comparison: for each field the sorted values."""
        return [sorted(filter(None, self._values(form, name))) for name in self._parts[key].names]

    def take_stored(self, form: Form, key: str, stored: Form) -> None:
        """Replace the value of a part in the form with the value in `stored`, the form of the stored values."""
        for name in self._parts[key].names:
            values = self._values(stored, name)
            form.values[name], form.lists[name] = next(iter(values), ""), values

    def describe(self, form: Form, key: str, known: Mapping[str, str]) -> str:
        """Return the value of a part as text for the user; `known` maps ids to names."""
        labels = [known.get(value, value) for values in self.value(form, key) for value in values]
        return ", ".join(labels) or gettext("nothing")

    def digests(self, now: Form) -> dict[str, str]:
        """Return the digest of the value of each part of the form, by the key of the part."""
        return {key: hash_value(self.value(now, key)) for key in self.all_keys(now)}

    def all_keys(self, now: Form) -> Iterable[str]:
        """Return the keys of all parts. `now` is the form of the stored values."""
        return list(self._parts)

    @staticmethod
    def _values(form: Form, name: str) -> list[str]:
        values = form.lists.get(name, [])
        return [form[name]] if name in form.values and len(values) < 2 else [value.strip() for value in values]


def open_form(form: F, parts: FormParts) -> F:
    """Set the field `seen` of a form that shows the stored values, and return the form."""
    form.values["seen"] = _encode(parts.digests(form))
    return form


def merge_form(form: Form, parts: FormParts, stored: Form, known_names: KnownNames | None = None) -> None:
    """Merge a posted form with the form of the stored values.

    Parts that the user did not change take over the stored value; parts that both users changed are added to
    `form.conflicts`. `known_names` maps keys of parts to names by id, for the texts of conflicts. A form without the
    field `seen` (see the docstring of this module) is not merged.
    """
    digests = parts.digests(stored)
    form.stored_digests, form.labels = digests, {**parts.field_labels(), **form.labels}
    opened_digests = _decode(form.values.get("seen"))
    theirs, mine = form.values.pop("theirs", ""), form.values.pop("mine", "")
    if opened_digests is None:
        return
    for key in parts.keys(form, stored):
        opened_digest, stored_digest, form_digest = (
            opened_digests.get(key, _empty_digest(parts, key)),
            hash_value(parts.value(stored, key)),
            hash_value(parts.value(form, key)),
        )
        if theirs == key or (stored_digest != opened_digest and form_digest == opened_digest):
            parts.take_stored(form, key, stored)
        elif stored_digest not in (opened_digest, form_digest) and mine not in (key, EVERY_PART):
            names = (known_names or {}).get(key, {})
            descriptions = (
                parts.describe(either, key, names)[:_MAX_DESCRIPTION_CHARACTERS] for either in (stored, form)
            )
            form.conflicts.append(EditConflict(key, parts.label(key), *descriptions))
            continue
        opened_digests[key] = stored_digest
    form.values["seen"] = _encode(opened_digests)


def write_if_unchanged(
    form: Form, parts: FormParts, now: Callable[[], Form], verb: Callable[..., Any], *args: Any
) -> Any:
    """Call `verb(*args)` if the stored values are still those that the form was merged with; return its result.

    `now` loads the form of the stored values. Call this in the write transaction. Raises ChangedMeanwhile if the
    stored values have changed.
    """
    if parts.digests(now()) != form.stored_digests:
        raise ChangedMeanwhile
    return verb(*args)


def retry_on_change(function: PageHandler) -> PageHandler:
    """Wrap a handler so that it runs again each time it raises ChangedMeanwhile."""

    @wraps(function)
    async def wrapped(*args: Any, **kwargs: Any) -> HTTPResponse:
        while True:
            try:
                return await function(*args, **kwargs)
            except ChangedMeanwhile:
                continue

    return wrapped


def _empty_digest(parts: FormParts, key: str) -> str:
    return hash_value(parts.value(Form(), key))


def _encode(marks: Mapping[str, str]) -> str:
    return msgspec.json.encode(marks).decode()


def _decode(text: str | None) -> dict[str, str] | None:
    try:
        return msgspec.json.decode(text or "", type=dict[str, str])
    except msgspec.DecodeError:
        return None
