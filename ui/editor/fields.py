"""A section as fields: each from what its kind declares, grouped as people look for them."""

import json
from typing import Any, NamedTuple

from msgspec import Struct

from appliance.content.designs import colours, document
from appliance.content.designs.document import Entry
from appliance.content.designs.kind import COMMON, STYLES, Kind
from appliance.content.designs.props import Prop
from appliance.content.designs.theme import THEME, Theme
from appliance.content.templates import places
from appliance.content.templates.editing import DETAILS

FONTS = ("Arial", "Helvetica", "Verdana", "Tahoma", "Trebuchet MS", "Georgia", "Times New Roman", "Courier New")
_STYLE_NAMES = ("inner_padding", "padding", "stack_on_phone", "play_badge", "columns", "preset", "width", "height")
_VISIBLE = ("hide_on", "show_if", "name")
_WORDS = {
    "none": "None", "phone": "Phones", "desktop": "Computers", "center": "Centre", "centered": "Centred",
    "colour": "Colour", "1:1": "1 : 1", "1:2": "1 : 2", "2:1": "2 : 1", "1:1:1": "1 : 1 : 1",
    "1:1:1:1": "1 : 1 : 1 : 1",
    "theme:brand": "Brand", "theme:text": "Text", "theme:bg": "Page", "fit": "Fit", "full": "Full",
}  # fmt: skip
_LEVELS = {"1": "Large", "2": "Medium", "3": "Small"}
_SEGMENTED = 26


class Field(Struct):
    """A field of the inspector."""

    path: str
    kind: str
    label: str
    value: str = ""
    seen: str = ""
    help: str = ""
    hint: str = ""
    unit: str = ""
    least: float = 0
    most: float = 0
    options: list[tuple[str, str]] = []
    is_segmented: bool = False
    shown: str = ""  # of a colour: what it is in the mail
    alt: str = ""  # of a picture: the path of the words for those who do not see it
    entries: list["Entries"] = []
    can_add: bool = False
    can_remove: bool = False
    name: str = ""

    @property
    def id(self) -> str:
        """Return the id of its element."""
        return "f-" + self.path.replace(".", "-").replace("_", "-")

    @property
    def error(self) -> str:
        """Return the id of where its error stands."""
        return "e" + self.id[1:]


class Entries(Struct):
    """One entry of a list: its number, its fields, and the sections in it if it is a column."""

    at: int
    title: str
    fields: list[Field]


class Group(NamedTuple):
    """Fields that belong together."""

    title: str
    fields: list[Field]


def groups(entry: Entry, theme: Theme) -> list[Group]:
    """Return the fields of a section, grouped Content, Style, Visibility; none for a kind that nobody knows."""
    kind = entry.section.kind
    if kind is None:
        return []
    content: list[Field] = []
    style: list[Field] = []
    visible: list[Field] = []
    for prop in kind.all_props():
        is_common = prop in COMMON
        if prop.name in _VISIBLE and is_common:
            into = visible
        elif prop.kind in ("colour", "choice", "number") or (prop.name in _STYLE_NAMES and prop.kind != "items"):
            into = style
        else:
            into = content
        into += _fields(prop, "props", entry, kind, theme)
    for prop in STYLES:
        # Where a section is one piece, its own property of that name is its ground
        if not (kind.whole and prop.name in {one.name for one in kind.props}):
            style += _fields(prop, "styles", entry, kind, theme)
    found = (Group("Content", content), Group("Style", style), Group("Visibility", visible))
    return [one for one in found if one.fields]


def _fields(prop: Prop, root: str, entry: Entry, kind: Kind, theme: Theme) -> list[Field]:
    if root == "styles" and prop.name == "padding":
        return [_side(name, entry, kind) for name in places.SIDES]
    if prop.kind == "sections" or (
        kind.name == "divider" and prop.name == "padding" and not prop.of(entry.section.props)
    ):
        return []
    path = f"{root}.{prop.name}"
    if prop.kind == "items":
        return [_items(prop, path, entry, kind, theme)]
    if prop.kind == "group":
        inner = [_field(one, f"{path}.{one.name}", entry, kind, theme) for one in prop.fields]
        for one in inner:
            one.label = f"{prop.label}: {one.label.lower()}"
        return inner
    return [_field(prop, path, entry, kind, theme)]


def _side(name: str, entry: Entry, kind: Kind) -> Field:
    found = places.place(f"styles.padding.{name}", kind)
    value = places.value_of(found, entry.raw)
    standard = {"top": kind.padding[0], "bottom": kind.padding[2], "sides": kind.padding[1]}[name]
    label = {"top": "Above", "bottom": "Below", "sides": "Sides"}[name]
    return Field(
        found.path, "number", label, "" if value is None else str(value), places.digest(value), hint=str(standard),
        unit="px", most=96, name="space",
    )  # fmt: skip


def _items(prop: Prop, path: str, entry: Entry, kind: Kind, theme: Theme) -> Field:
    found = prop.of(entry.section.props)
    found = found if isinstance(found, list) else []
    made = []
    for at, one in enumerate(found[: int(prop.most)]):
        fields = [
            _field(inner, f"{path}.{at}.{inner.name}", entry, kind, theme)
            for inner in prop.fields if isinstance(one, dict) and inner.kind not in ("sections", "group")
        ]  # fmt: skip
        made.append(Entries(at, f"{_singular(prop.label)} {at + 1}", fields))
    return Field(
        path, "columns" if prop.name == "columns" else "items", prop.label, entries=made, name=prop.name,
        can_add=len(found) < prop.most, can_remove=len(found) > prop.least,
    )  # fmt: skip


def _singular(label: str) -> str:
    return {"Entries": "Entry", "Pictures": "Picture"}.get(label, label.removesuffix("s"))


def _field(prop: Prop, path: str, entry: Entry, kind: Kind, theme: Theme) -> Field:
    value = places.value_of(places.place(path, kind), entry.raw)
    made = made_of(prop, path, value, theme)
    if prop.kind == "image":
        names = [one.path for one in _words_for(path, entry, kind)]
        made.alt = names[0] if names else ""
    return made


def _words_for(path: str, entry: Entry, kind: Kind) -> list[places.Place]:
    """Return the place of the words that stand for a picture, if its kind has one."""
    before = path.rpartition(".")[0]
    name = "logo_alt" if path.endswith("logo_url") else "caption" if path.endswith("thumbnail") else "alt"
    declared = {one.name for one in kind.props} | {inner.name for one in kind.props for inner in one.fields}
    return [places.place(f"{before}.{name}", kind)] if name in declared else []


def made_of(prop: Prop, path: str, value: Any, theme: Theme) -> Field:
    """Return a property with what a document has for it as a field."""
    made = Field(path, prop.kind, prop.label, _text(prop, value), places.digest(value), prop.help, name=prop.name)
    if prop.default is not None and prop.kind in ("line", "text", "number", "url"):
        made.hint = f"{prop.default:g}" if isinstance(prop.default, int | float) else str(prop.default)
    if prop.kind == "number":
        made.least, made.most, made.unit = prop.least, prop.most, prop.unit
        made.hint = made.hint or (f"{theme.radius}" if prop.name == "border_radius" else "Auto")
    elif prop.kind in ("url", "image"):
        made.hint = "https://"
    elif prop.kind == "choice":
        said = [(one, _LEVELS.get(one) if prop.name == "level" else None) for one in prop.options]
        made.options = [(one, words or _WORDS.get(one) or one.capitalize()) for one, words in said]
        if prop.name == "hide_on":
            made.options[0] = ("none", "Nowhere")
        if prop.default is None:
            made.options.insert(0, ("", "Usual"))
        made.value = made.value or str(prop.default or "")
        made.is_segmented = sum(len(words) + 2 for _, words in made.options) <= _SEGMENTED
    elif prop.kind == "colour":
        made.options = [("", "As the theme"), ("theme:brand", "Brand"), ("theme:text", "Text"), ("theme:bg", "Page")]
        light = theme.light
        usual = {"background_color": light.brand if path.startswith("props") else light.card, "color": light.text,
                 "text_color": light.on_brand}  # fmt: skip
        made.shown = theme.colour(made.value, usual.get(prop.name, light.text))
    return made


def _text(prop: Prop, value: Any) -> str:
    if value is None:
        return "on" if prop.kind == "flag" and prop.default else ""
    if prop.kind == "flag":
        return "on" if value is True or str(value).lower() in ("true", "yes", "1") else ""
    if prop.kind == "number" and isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value:g}"
    return value if isinstance(value, str) else json.dumps(value)


def themed(design: dict[str, Any], theme: Theme) -> list[Field]:
    """Return the fields of a design's theme."""
    made = []
    for prop in THEME:
        value = prop.of(design.get("theme"))
        field = made_of(prop, f"theme.{prop.name}", value, theme)
        if prop.kind == "colour":
            field.options = [("", "As the brand")]
            shown = {"brand_color": theme.light.brand, "text_color": theme.light.text, "bg_color": theme.light.page}
            field.shown = shown[prop.name]
        elif prop.name.startswith("font"):
            field.kind = "choice"
            field.options = [("", "As the brand"), *((one, one) for one in FONTS)]
            if field.value and field.value not in FONTS:
                field.options.append((field.value, field.value))
            field.is_segmented = False
        elif prop.kind == "choice":
            field.options[0] = ("", "As the brand")
            field.is_segmented = False
        made.append(field)
    return made


def contrasts(theme: Theme) -> list[tuple[str, str, bool]]:
    """Return the pairs of colours that are read in a mail: what, how well (1 to 21), whether well enough."""
    light = theme.light
    pairs = (
        ("Text on its ground", light.text, light.card), ("Links", light.link, light.card),
        ("Words on buttons", light.on_brand, light.brand), ("Small print on the page", light.muted, light.page),
        ("Text at night", theme.dark.text, theme.dark.card),
    )  # fmt: skip
    return [(words, f"{found:.1f}", found >= 4.5) for words, one, other in pairs
            for found in [colours.contrast(one, other)]]  # fmt: skip


def emails(row: Any) -> dict[str, Field]:
    """Return what stands beside the sections, by name."""
    return {
        name: Field(f"email.{name}", "line", "", getattr(row, name) or "", places.digest(getattr(row, name)), name=name)
        for name in DETAILS
    }


def columns_of(entry: Entry, found: list[Entry]) -> list[list[Entry]]:
    """Return the sections within columns, column by column."""
    made: list[list[Entry]] = [[] for _ in document.columns(entry.raw)]
    for one in found:
        if one.parent == entry.key:
            made[one.column].append(one)
    return made
