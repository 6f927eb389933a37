"""Edit conflicts between two users of one form: the user decides only about parts that both changed.

A part that the user did not change takes over the stored value. The field `seen` of a form holds the digest of each
part when the form was opened; when the form is sent, its parts are compared with the stored ones. The buttons `mine`
and `theirs` name the part that the user decided about.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import wraps
from typing import Any, NamedTuple, TypeVar

import msgspec
from sanic.response import HTTPResponse

from appliance.content.templates.editing import hash_value
from ui.forms import Form

# A page that is being closed cannot show conflicts: it overwrites all parts.
EVERY_PART = "*"
_MAX_DESCRIPTION_CHARACTERS = 400
KnownNames = Mapping[str, Mapping[str, str]]
PageHandler = Callable[..., Awaitable[HTTPResponse]]
F = TypeVar("F", bound=Form)


class ChangedMeanwhile(Exception):
    """Raised when the stored values changed between the comparison and the write."""


class EditConflict(NamedTuple):
    """A part of a form that two users changed, with the stored value and the typed value in words."""

    key: str
    label: str
    theirs: str
    mine: str


class FormPart(NamedTuple):
    """Fields of a form that belong together; unchecked checkboxes are not sent."""

    label: str
    names: tuple[str, ...]
    is_checkbox: bool = False


class FormParts:
    """The parts of a form, for edit conflicts. Subclasses read parts that are not plain fields."""

    def __init__(self, *parts: FormPart) -> None:
        self._parts = {part.label: part for part in parts}

    def keys(self, form: Form, now: Form) -> list[str]:
        """Return the parts that the form has; a field that the form does not show is not sent."""
        return [
            key
            for key, part in self._parts.items()
            if part.is_checkbox or any(name in form.values for name in part.names)
        ]

    def label(self, key: str) -> str:
        """Return the label of a part."""
        return key

    def names(self, key: str) -> tuple[str, ...]:
        """Return the fields of a part."""
        return self._parts[key].names

    def value(self, form: Form, key: str) -> Any:
        """Return the value of a part, with its items sorted."""
        return [sorted(filter(None, self._values(form, name))) for name in self._parts[key].names]

    def take_stored(self, form: Form, key: str, now: Form) -> None:
        """Replace a part of the form by the stored one."""
        for name in self._parts[key].names:
            values = self._values(now, name)
            form.values[name], form.lists[name] = next(iter(values), ""), values

    def describe(self, form: Form, key: str, known: Mapping[str, str]) -> str:
        """Return a part in words; `known` maps ids to names."""
        labels = [known.get(value, value) for values in self.value(form, key) for value in values]
        return ", ".join(labels) or "nothing"

    def digests(self, now: Form) -> dict[str, str]:
        """Return the digest of every part."""
        return {key: hash_value(self.value(now, key)) for key in self.all_keys(now)}

    def all_keys(self, now: Form) -> Iterable[str]:
        """Return the keys of all parts."""
        return list(self._parts)

    @staticmethod
    def _values(form: Form, name: str) -> list[str]:
        values = form.lists.get(name, [])
        return [form[name]] if name in form.values and len(values) < 2 else [value.strip() for value in values]


def open_form(form: F, parts: FormParts) -> F:
    """Return a form that shows the stored values, with their digests in `seen`."""
    form.values["seen"] = _encode(parts.digests(form))
    return form


def merge_form(form: Form, parts: FormParts, stored: Form, known_names: KnownNames | None = None) -> None:
    """Merge a posted form with the stored values.

    Parts that the form did not change take over the stored value; parts that both changed are added to `conflicts`.
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
    """Run a function on the writer if the stored values are those the form was merged with; raises ChangedMeanwhile."""
    if parts.digests(now()) != form.stored_digests:
        raise ChangedMeanwhile
    return verb(*args)


def retry_on_change(function: PageHandler) -> PageHandler:
    """Repeat a handler when the stored values changed between its comparison and its write."""

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
