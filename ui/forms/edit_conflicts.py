"""Edit conflicts between users who change one form at the same time: only parts that both changed need a decision.

A part that the user did not change takes over the stored value. The field `seen` of a form holds a digest of each part
from when the form was opened; when the form is posted, the parts of the form and the stored parts are compared with
these digests. The values of the buttons `mine` and `theirs` name the part that the user decided about.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import wraps
from typing import Any, NamedTuple, TypeVar

import msgspec
from sanic.response import HTTPResponse

from appliance.content.templates.editing import hash_value
from appliance.core.i18n import gettext, translate
from ui.forms import Form

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

    def value(self, form: Form, key: str) -> Any:
        """Return the value of a part for comparison: for each field the sorted values."""
        return [sorted(filter(None, self._values(form, name))) for name in self._parts[key].names]

    def take_stored(self, form: Form, key: str, now: Form) -> None:
        """Replace the value of a part in the form with the value in `now`, the form of the stored values."""
        for name in self._parts[key].names:
            values = self._values(now, name)
            form.values[name], form.lists[name] = next(iter(values), ""), values

    def describe(self, form: Form, key: str, known: Mapping[str, str]) -> str:
        """Return the value of a part as text for the user; `known` maps ids to names."""
        labels = [known.get(value, value) for values in self.value(form, key) for value in values]
        return ", ".join(labels) or gettext("nothing")

    def digests(self, now: Form) -> dict[str, str]:
        """Return the digest of the value of each part, by key."""
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
    `form.conflicts`. `known_names` maps keys of parts to names by id, for the texts of conflicts. A form without `seen`
    is not merged.
    """
    digests = parts.digests(stored)
    form.stored_digests = digests
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
    """Wrap a handler so that it runs again if it raises ChangedMeanwhile."""

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
