"""Two at one form: what others saved meanwhile stays where this form left it alone; what both changed is asked about.

A form carries in `seen` what each of its parts was when it was opened, as digests. When it is sent, its parts are laid
beside what is kept by now. Its buttons `mine` and `theirs` name the part about which somebody has decided.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import wraps
from typing import Any, NamedTuple, TypeVar

import msgspec
from sanic.response import HTTPResponse

from appliance.content.templates.places import digest
from ui.forms import Form

# A page that goes away decides for all of its parts, for there is nobody left to ask
ALL = "*"
_LONG = 400
Known = Mapping[str, Mapping[str, str]]
Page = Callable[..., Awaitable[HTTPResponse]]
F = TypeVar("F", bound=Form)


class Moved(Exception):
    """Somebody saved between the look at what is kept and the write."""


class Difference(NamedTuple):
    """What stands in the form and what is kept by now, in words."""

    key: str
    label: str
    theirs: str
    mine: str


class Part(NamedTuple):
    """Fields of a form that say one thing together; of boxes those that are not ticked are not sent."""

    label: str
    names: tuple[str, ...]
    is_ticked: bool = False


class Parts:
    """What a form says, part by part; whoever has more than plain fields says how those are read."""

    def __init__(self, *parts: Part) -> None:
        self._parts = {part.label: part for part in parts}

    def keys(self, form: Form, now: Form) -> list[str]:
        """Return which parts the form has; of a field that it does not show nothing was sent."""
        return [
            key for key, one in self._parts.items() if one.is_ticked or any(name in form.values for name in one.names)
        ]

    def label(self, key: str) -> str:
        """Return what people call a part."""
        return key

    def names(self, key: str) -> tuple[str, ...]:
        """Return the fields of a part."""
        return self._parts[key].names

    def value(self, form: Form, key: str) -> Any:
        """Return what a form says in a part, in an order of its own."""
        return [sorted(filter(None, self._of(form, name))) for name in self._parts[key].names]

    def take(self, form: Form, key: str, now: Form) -> None:
        """Let a part of the form say what is kept."""
        for name in self._parts[key].names:
            found = self._of(now, name)
            form.values[name], form.lists[name] = next(iter(found), ""), found

    def words(self, form: Form, key: str, known: Mapping[str, str]) -> str:
        """Return what a part is; `known` are names of what it chooses from."""
        found = [known.get(one, one) for values in self.value(form, key) for one in values]
        return ", ".join(found) or "nothing"

    def mark(self, now: Form) -> dict[str, str]:
        """Return what each part is, as a digest."""
        return {key: digest(self.value(now, key)) for key in self.all(now)}

    def all(self, now: Form) -> Iterable[str]:
        """Return all parts there are."""
        return list(self._parts)

    @staticmethod
    def _of(form: Form, name: str) -> list[str]:
        many = form.lists.get(name, [])
        return [form[name]] if name in form.values and len(many) < 2 else [one.strip() for one in many]


def opened(form: F, parts: Parts) -> F:
    """Return a form that shows what is kept, and remembers that."""
    form.values["seen"] = _written(parts.mark(form))
    return form


def meet(form: Form, parts: Parts, now: Form, known: Known | None = None) -> None:
    """Lay a form that was sent beside what is kept: take over what it left alone, note in `met` what both changed."""
    marks = parts.mark(now)
    form.stood = marks
    seen = _read(form.values.get("seen"))
    theirs, mine = form.values.pop("theirs", ""), form.values.pop("mine", "")
    if seen is None:
        return
    for key in parts.keys(form, now):
        was, there, here = (
            seen.get(key, _nothing(parts, key)),
            digest(parts.value(now, key)),
            digest(parts.value(form, key)),
        )
        if theirs == key or (there != was and here == was):
            parts.take(form, key, now)
        elif there not in (was, here) and mine not in (key, ALL):
            names = (known or {}).get(key, {})
            told = (parts.words(one, key, names)[:_LONG] for one in (now, form))
            form.met.append(Difference(key, parts.label(key), *told))
            continue
        seen[key] = there
    form.values["seen"] = _written(seen)


def still(form: Form, parts: Parts, now: Callable[[], Form], verb: Callable[..., Any], *args: Any) -> Any:
    """Do a verb on the writer if what is kept is what the form was laid beside; raises Moved."""
    if parts.mark(now()) != form.stood:
        raise Moved
    return verb(*args)


def meeting(function: Page) -> Page:
    """Look again where somebody saved between the look and the write."""

    @wraps(function)
    async def wrapped(*args: Any, **kwargs: Any) -> HTTPResponse:
        while True:
            try:
                return await function(*args, **kwargs)
            except Moved:
                continue

    return wrapped


def _nothing(parts: Parts, key: str) -> str:
    return digest(parts.value(Form(), key))


def _written(marks: Mapping[str, str]) -> str:
    return msgspec.json.encode(marks).decode()


def _read(text: str | None) -> dict[str, str] | None:
    try:
        return msgspec.json.decode(text or "", type=dict[str, str])
    except msgspec.DecodeError:
        return None
