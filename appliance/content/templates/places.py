"""Where in a design a value stands, by a path such as `props.items.0.title`; and what somebody typed as that value."""

import hashlib
import json
import re
from typing import Any, NamedTuple

from appliance.content.designs import colours, document, normal, props
from appliance.content.designs.document import Entry
from appliance.content.designs.kind import STYLES, Kind
from appliance.content.designs.props import Prop
from appliance.content.designs.theme import THEME
from appliance.core.errors import Invalid, NotFound

_PATH = re.compile(r"(props|styles|theme)\.([a-z_]+)(?:\.(\d{1,3}))?(?:\.([a-z_]+))?\Z")
SIDES = ("top", "bottom", "sides")
_SPACE = re.compile(r"-?\d+(?:\.\d+)?(?:px)?\Z")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?\Z")
_MAX_SPACE = 96


class Place(NamedTuple):
    """One value of a design: what it may be, and how its document is reached: a root, a name, an index, a name."""

    path: str
    prop: Prop
    root: str
    name: str
    number: int | None
    inner: str
    owner: Prop
    kind: Kind | None

    @property
    def words(self) -> str:
        """Return what this is called in a label of the history."""
        what = self.owner.label if self.prop is self.owner else f"{self.owner.label}, {_low(self.prop.label)}"
        return _low(what)


def _low(text: str) -> str:
    return text[:1].lower() + text[1:] if text[1:2].islower() else text


def digest(value: Any) -> str:
    """Return a few letters that stand for a value: to say what somebody had before them."""
    text = json.dumps(value, sort_keys=True).encode()
    return hashlib.blake2b(text, digest_size=6).hexdigest()


def place(path: str, kind: Kind | None) -> Place:
    """Read a path; raises NotFound where no such value is declared. `kind` is that of the section, or None."""
    found = _PATH.match(path)
    if found is None:
        raise NotFound
    root, name, index, inner = found[1], found[2], found[3], found[4] or ""
    declared = THEME if root == "theme" else STYLES if root == "styles" else kind.all_props() if kind else ()
    owner = next((one for one in declared if one.name == name), None)
    if owner is None or (root != "theme" and kind is None):
        raise NotFound
    number = int(index) if index is not None else None
    if root == "styles" and name == "padding":
        if number is not None or inner not in ("", *SIDES):
            raise NotFound
        return Place(path, owner, root, name, None, inner, owner, kind)
    wants_index, wants_inner = owner.kind == "items", owner.kind in ("items", "group")
    if (number is not None) != wants_index or bool(inner) != wants_inner:
        raise NotFound
    prop = next((one for one in owner.fields if one.name == inner), None) if inner else owner
    if prop is None or prop.kind == "sections" or (number is not None and number >= owner.most):
        raise NotFound
    return Place(path, prop, root, name, number, inner, owner, kind)


def value_of(here: Place, holder: dict[str, Any]) -> Any:
    """Return what a section, or a design for its theme, has at a place; None where it says nothing."""
    values = _values(here, holder)
    if here.inner in SIDES and here.name == "padding":
        return side(values.get("padding"), here.inner)
    if here.name == here.prop.name and here.number is None and not here.inner:
        return here.prop.of(values)
    return here.prop.of(_inside(here, values))


def _values(here: Place, holder: dict[str, Any]) -> dict[str, Any]:
    found = holder.get(here.root)
    found = dict(found) if isinstance(found, dict) else {}
    return document.section(holder, "").props if here.root == "props" else found


def _inside(here: Place, values: dict[str, Any]) -> Any:
    found = here.owner.of(values)
    if here.number is not None:
        return found[here.number] if isinstance(found, list) and here.number < len(found) else None
    return {here.owner.fields[0].name: found} if isinstance(found, str) else found


def put(here: Place, holder: dict[str, Any], value: Any) -> None:
    """Write a value into a section, or into a design for its theme; None takes it out. Raises NotFound past a list."""
    own = holder.get(here.root)
    if not isinstance(own, dict):
        own = holder[here.root] = {}
    if here.name == "padding" and here.root == "styles":
        value = _padded(own.get("padding"), here, value)
        _set(own, here.owner, value)
    elif here.number is None and not here.inner:
        _set(own, here.prop, value)
    else:
        within = _inside(here, _values(here, holder))
        if here.number is not None and not isinstance(within, dict):
            raise NotFound
        within = dict(within) if isinstance(within, dict) else {}
        _set(within, here.prop, value)
        if here.number is None:
            _set(own, here.owner, within or None)
        else:
            found = list(here.owner.of(_values(here, holder)))
            found[here.number] = within
            _set(own, here.owner, found)


def _set(values: dict[str, Any], prop: Prop, value: Any) -> None:
    # What it was called by an older name goes with it, or it would come back where this is empty
    for alias in (*prop.aliases, *(alias for alias, name in document.ALIASES if name == prop.name)):
        values.pop(alias, None)
    if prop.name in ("href", "src"):
        values.pop("url", None)
    if value is None:
        values.pop(prop.name, None)
    else:
        values[prop.name] = value


def sides(raw: Any, kind: Kind | None) -> tuple[int, int, int, int]:
    """Return top, right, bottom and left of a padding as it is written, else those of the kind."""
    words = str(raw).split() if isinstance(raw, str | int | float) and not isinstance(raw, bool) else []
    if not 1 <= len(words) <= 4 or not all(_SPACE.match(word) for word in words):
        return kind.padding if kind is not None else (12, 32, 12, 32)
    sizes = [max(0, min(_MAX_SPACE, round(float(word.removesuffix("px"))))) for word in words]
    top, right, bottom, left = (sizes * 4)[:4] if len(sizes) < 3 else [*sizes, sizes[1]][:4]
    return top, right, bottom, left


def side(raw: Any, name: str) -> int | None:
    """Return one side of a padding as it is written; None where nothing is."""
    if raw is None or raw == "":
        return None
    top, right, bottom, _ = sides(raw, None)
    return {"top": top, "bottom": bottom, "sides": right}[name]


def _padded(raw: Any, here: Place, value: Any) -> str | None:
    if not here.inner:
        return str(value) if value is not None else None
    top, right, bottom, left = sides(raw, here.kind)
    if value is None:
        standard = here.kind.padding if here.kind is not None else (12, 32, 12, 32)
        value = {"top": standard[0], "bottom": standard[2], "sides": standard[1]}[here.inner]
    if here.inner == "sides":
        right = left = value
    top, bottom = (value if here.inner == "top" else top), (value if here.inner == "bottom" else bottom)
    if here.kind is not None and (top, right, bottom, left) == here.kind.padding:
        return None
    return f"{top}px {right}px {bottom}px" if right == left else f"{top}px {right}px {bottom}px {left}px"


def read(here: Place, typed: str) -> Any:
    """Return what somebody typed as a value, None for nothing; raises Invalid at the path for what it cannot be."""
    prop = here.prop
    if here.name == "padding" and here.inner in SIDES:
        return _number(here, typed, 0, _MAX_SPACE)
    if not typed.strip():
        return None
    if prop.kind == "number":
        return _number(here, typed, prop.least, prop.most)
    if prop.kind == "flag":
        return typed.lower() in ("true", "on", "yes", "1")
    if prop.kind == "choice" and typed not in prop.options:
        raise Invalid({here.path: ["is not included in the list"]})
    if prop.kind == "colour":
        return _colour(here, typed)
    if prop.kind in ("url", "image"):
        typed = typed.strip()
        schemes = props.SCHEMES if prop.kind == "url" else props.SCHEMES[:2]
        if not typed.startswith("{") and props.address(typed, schemes, lambda text: False) is None:
            raise Invalid({here.path: ["is invalid"]})
    if prop.kind == "filters":
        return _filters(here, typed)
    found: list[str] = []
    props.faults(prop, typed, here.path, lambda path, words: found.append(words))
    if found:
        raise Invalid({here.path: found})
    return normal.rich(typed) if prop.kind == "rich" else typed


def _number(here: Place, typed: str, least: float, most: float) -> int | float | None:
    typed = typed.strip().replace(",", ".").removesuffix("px").removesuffix("%").strip()
    if not typed:
        return None
    value = float(typed) if _NUMBER.match(typed) else None
    if value is None or not least <= value <= most:
        raise Invalid({here.path: [f"must be between {least:g} and {most:g}"]})
    return int(value) if value == int(value) else value


def _colour(here: Place, typed: str) -> str:
    typed = typed.strip()
    if re.fullmatch(r"[0-9a-fA-F]{6}|[0-9a-fA-F]{3}", typed):
        typed = f"#{typed}"
    if not colours.is_colour(typed):
        raise Invalid({here.path: ["is no colour"]})
    return typed.lower()


def _filters(here: Place, typed: str) -> list[Any] | None:
    try:
        found = json.loads(typed)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, list):
        raise Invalid({here.path: ["is invalid"]})
    return found or None


def holder_of(entry: Entry | None, design: dict[str, Any], here: Place) -> dict[str, Any]:
    """Return what holds a place: the section's own document, or the design for its theme."""
    return design if here.root == "theme" or entry is None else entry.raw
