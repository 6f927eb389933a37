"""What sections are made of: each property declared once, for validation, errors, `/templates/spec`, editor and text.

A property has two readers. `fault` refuses what no document may hold, with the words of a field's error. `read` takes
what is there as a person meant it (`"24px"`, a missing `https://`), falls back to the default for the rest and says so
as advice: what a script wrote is kept and never lost over a detail.
"""

import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Literal

from msgspec import Struct

from appliance.content.designs import colours, merge

PropKind = Literal[
    "line", "text", "rich", "html", "url", "image", "colour", "number", "choice", "flag", "items", "group", "sections",
    "filters",
]  # fmt: skip
_MAX_CHARACTERS = {"line": 1_000, "text": 10_000, "rich": 200_000, "html": 200_000, "url": 2_000, "image": 2_000}
_NUMBER = re.compile(r"\s*(-?\d+(?:\.\d+)?)\s*(?:px|%)?\s*\Z")
_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.\-]*):")
# Where a link may lead; a picture only to the first two
SCHEMES = ("http", "https", "mailto", "tel", "sms")
_BARE_HOST = re.compile(r"[A-Za-z0-9.-]+\.[A-Za-z]{2,}(?:[/?#:]|\Z)")

# Notes advice about a value: what to say
Note = Callable[[str], None]


class Prop(Struct, frozen=True, kw_only=True):
    """A property: its name, what it holds, what it is called, and what it is where the document does not say."""

    name: str
    kind: PropKind
    label: str
    default: Any = None
    help: str = ""
    options: tuple[str, ...] = ()
    least: float = 0
    most: float = 0
    unit: str = ""
    fields: tuple["Prop", ...] = ()
    aliases: tuple[str, ...] = ()
    wanted: str = ""  # what to advise while it is empty
    # Of a text: what may be sent as a section or a starter brings it (`placeholders`). The author's own words are
    # replaced in both, a title only in an empty section, a label ("Learn more", "Unsubscribe") in neither.
    wording: Literal["own", "title", "label"] = "own"

    def spec(self) -> dict[str, Any]:
        """Return the declaration as `/templates/spec` shows it."""
        found: dict[str, Any] = {"name": self.name, "kind": self.kind, "label": self.label, "default": self.default}
        if self.kind in ("number", "items", "sections"):
            found |= {"minimum": self.least, "maximum": self.most}
        if self.kind in _MAX_CHARACTERS:
            found["max_length"] = _MAX_CHARACTERS[self.kind]
        for name, value in (("help", self.help), ("unit", self.unit), ("options", list(self.options)),
                            ("aliases", list(self.aliases)),
                            ("fields", [one.spec() for one in self.fields])):  # fmt: skip
            if value:
                found[name] = value
        return found

    def of(self, values: Any) -> Any:
        """Return what a document has under the property's name, or one of its older names."""
        if not isinstance(values, dict):
            return None
        return next((values[name] for name in (self.name, *self.aliases) if values.get(name) is not None), None)


def line(name: str, label: str, default: str | None = None, **more: Any) -> Prop:
    """Declare one line of text with merge tags."""
    return Prop(name=name, kind="line", label=label, default=default, **more)


def text(name: str, label: str, default: str | None = None, **more: Any) -> Prop:
    """Declare text of several lines with merge tags."""
    return Prop(name=name, kind="text", label=label, default=default, **more)


def rich(name: str, label: str, default: str | None = None, **more: Any) -> Prop:
    """Declare text with limited HTML and merge tags."""
    return Prop(name=name, kind="rich", label=label, default=default, **more)


def url(name: str, label: str, **more: Any) -> Prop:
    """Declare an address that a reader is led to."""
    return Prop(name=name, kind="url", label=label, **more)


def image(name: str, label: str, **more: Any) -> Prop:
    """Declare the address of a picture."""
    return Prop(name=name, kind="image", label=label, **more)


def colour(name: str, label: str, default: str | None = None, **more: Any) -> Prop:
    """Declare a colour; None leaves it to the theme."""
    return Prop(name=name, kind="colour", label=label, default=default, **more)


def number(name: str, label: str, default: float | None, least: float, most: float, **more: Any) -> Prop:
    """Declare a number within bounds, in pixels unless it says otherwise."""
    return Prop(name=name, kind="number", label=label, default=default, least=least, most=most,
                **{"unit": "px", **more})  # fmt: skip


def choice(name: str, label: str, *options: str, **more: Any) -> Prop:
    """Declare one of some words; the first is the default."""
    return Prop(name=name, kind="choice", label=label, options=options, **{"default": options[0], **more})


def flag(name: str, label: str, default: bool = False, **more: Any) -> Prop:
    """Declare a yes or no."""
    return Prop(name=name, kind="flag", label=label, default=default, **more)


def items(name: str, label: str, fields: tuple[Prop, ...], most: int, least: int = 0, **more: Any) -> Prop:
    """Declare a list of things of one make."""
    return Prop(name=name, kind="items", label=label, fields=fields, least=least, most=most, default=[], **more)


def group(name: str, label: str, fields: tuple[Prop, ...], **more: Any) -> Prop:
    """Declare some properties that belong together."""
    return Prop(name=name, kind="group", label=label, fields=fields, **more)


# -- what no document may hold -----------------------------------------------------------------------------------------


def faults(prop: Prop, value: Any, path: str, add: Callable[[str, str], None]) -> None:
    """Tell `add` (path, words) everything that no document may hold here."""
    if value is None or prop.kind in ("sections", "filters"):
        return
    if prop.kind == "items":
        _list_faults(prop, value, path, add)
    elif prop.kind == "group":
        if isinstance(value, dict | str):
            _each(prop.fields, _grouped(prop, value), path, add)
        else:
            add(path, "is invalid")
    elif isinstance(value, dict | list):
        add(path, "is invalid")
    elif isinstance(value, str):
        _text_faults(prop, value, path, add)


def _list_faults(prop: Prop, value: Any, path: str, add: Callable[[str, str], None]) -> None:
    if not isinstance(value, list):
        add(path, "is invalid")
        return
    if len(value) > prop.most:
        add(path, f"is too long (maximum is {prop.most:g} entries)")
    for index, one in enumerate(value[: int(prop.most)]):
        if isinstance(one, dict):
            _each(prop.fields, one, f"{path}[{index}]", add)
        elif one is not None:
            add(f"{path}[{index}]", "is invalid")


def _each(fields: tuple[Prop, ...], values: dict[str, Any], path: str, add: Callable[[str, str], None]) -> None:
    for one in fields:
        faults(one, one.of(values), f"{path}.{one.name}", add)


def _grouped(prop: Prop, value: Any) -> Any:
    """Return a group as such: one written as a text alone is its first field."""
    return {prop.fields[0].name: value} if isinstance(value, str) else value


def _text_faults(prop: Prop, value: str, path: str, add: Callable[[str, str], None]) -> None:
    longest = _MAX_CHARACTERS.get(prop.kind, 1_000)
    if len(value) > longest:
        add(path, f"is too long (maximum is {longest} characters)")
        return
    found = merge.fault(value, "url" if prop.kind in ("url", "image") else "html")
    if found:
        add(path, found)
    elif prop.kind in ("url", "image") and not value.lstrip().startswith("{"):
        scheme = _SCHEME.match(value.strip())
        allowed = SCHEMES if prop.kind == "url" else SCHEMES[:2]
        if scheme is not None and scheme[1].lower() not in allowed and not _BARE_HOST.match(value.strip()):
            add(path, "is invalid")


# -- what is meant -----------------------------------------------------------------------------------------------------


def read(prop: Prop, value: Any, note: Note, is_tag: Callable[[str], bool]) -> Any:
    """Return what a value means, or the default; `is_tag` says whether a text begins with a merge tag."""
    if value is None or value == "":
        if prop.wanted:
            note(prop.wanted)
        return prop.default
    if prop.kind == "items":
        return [read_all(prop.fields, one, note, is_tag) for one in value[: int(prop.most)] if isinstance(one, dict)] \
            if isinstance(value, list) else []  # fmt: skip
    if prop.kind == "group":
        return read_all(prop.fields, _grouped(prop, value), note, is_tag) if isinstance(value, dict | str) else None
    if prop.kind in ("sections", "filters"):
        return value if isinstance(value, list) else prop.default
    found = _READERS[prop.kind](prop, value, is_tag)
    if found is None:
        shown = value if isinstance(value, str | int | float) else type(value).__name__
        note(f"{prop.label}: {str(shown)[:60]!r} cannot be used here")
        return prop.default
    return found


def read_all(
    fields: tuple[Prop, ...], values: dict[str, Any], note: Note, is_tag: Callable[[str], bool]
) -> SimpleNamespace:
    """Read several properties; what is answered has an attribute for each."""
    return SimpleNamespace(**{one.name: read(one, one.of(values), note, is_tag) for one in fields})


def _read_text(prop: Prop, value: Any, is_tag: Callable[[str], bool]) -> str | None:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    words = str(value)
    return words if len(words) <= _MAX_CHARACTERS[prop.kind] else None


def _read_address(prop: Prop, value: Any, is_tag: Callable[[str], bool]) -> str | None:
    if not isinstance(value, str) or len(value) > _MAX_CHARACTERS[prop.kind]:
        return None
    return address(value, SCHEMES if prop.kind == "url" else SCHEMES[:2], is_tag)


def address(value: str, schemes: tuple[str, ...], is_tag: Callable[[str], bool]) -> str | None:
    """Return an address as it was meant, or None if it leads nowhere a mail may lead."""
    # A line end within an address is one that an editor broke
    found = "".join(value.split("\n")).strip()
    if is_tag(found) or (found.startswith("#") and schemes == SCHEMES):
        return found
    scheme = _SCHEME.match(found)
    if _BARE_HOST.match(found):
        return f"https://{found}"
    if found.startswith("//"):
        return f"https:{found}"
    return found if scheme is not None and scheme[1].lower() in schemes else None


def _read_colour(prop: Prop, value: Any, is_tag: Callable[[str], bool]) -> str | None:
    return value.strip() if isinstance(value, str) and colours.is_colour(value) else None


def _read_number(prop: Prop, value: Any, is_tag: Callable[[str], bool]) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        if value.strip().lower() == "pill":
            return prop.most
        found = _NUMBER.match(value)
        value = float(found[1]) if found else None
    if not isinstance(value, int | float) or not prop.least <= value <= prop.most:
        return None
    return int(value) if value == int(value) else float(value)


def _read_choice(prop: Prop, value: Any, is_tag: Callable[[str], bool]) -> str | None:
    word = str(value).strip().lower()
    # As other languages and products spell them
    word = {"color": "colour", "centre": "centered", "center": "centered", "yes": "true"}.get(word, word) \
        if word not in prop.options else word  # fmt: skip
    return word if word in prop.options else None


def _read_flag(prop: Prop, value: Any, is_tag: Callable[[str], bool]) -> bool | None:
    if isinstance(value, bool):
        return value
    return {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}.get(str(value).lower())


_READERS: dict[str, Callable[[Prop, Any, Callable[[str], bool]], Any]] = {
    "line": _read_text, "text": _read_text, "rich": _read_text, "html": _read_text, "url": _read_address,
    "image": _read_address, "colour": _read_colour, "number": _read_number, "choice": _read_choice,
    "flag": _read_flag,
}  # fmt: skip
