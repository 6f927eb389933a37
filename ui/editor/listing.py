"""The outline and the palette: sections by name, picture and a few words of what is in them."""

from typing import Any

from msgspec import Struct

from appliance.content.designs import document, plaintext
from appliance.content.designs.document import Entry
from appliance.content.designs.kind import Kind
from appliance.content.designs.readable import readable
from appliance.content.designs.sections import BY_NAME

ICONS = {
    "header": "panel-top", "hero": "image-up", "heading": "heading", "text": "type", "image": "image",
    "split": "layout-list", "button": "mouse-pointer-click", "list": "list", "quote": "quote",
    "columns": "columns-2", "product": "shopping-bag", "product_grid": "layout-grid", "gallery": "images",
    "coupon": "ticket", "video": "square-play", "divider": "minus", "spacer": "move-vertical", "social": "share-2",
    "html": "code", "footer": "panel-bottom", "": "box",
}  # fmt: skip
PALETTE = (
    ("Basics", ("heading", "text", "button", "image", "list", "quote")),
    ("Layout", ("columns", "split", "hero", "divider", "spacer")),
    ("Content", ("product", "product_grid", "gallery", "coupon", "video")),
    ("Brand", ("header", "social", "footer")),
    ("Advanced", ("html",)),
)
_MAX_CHARACTERS = 60
# What says most about a section where its first words do not
_TELLING = ("text", "title", "content", "name", "code", "caption", "wordmark_text", "alt")


class Row(Struct):
    """A section as a line of the outline; `columns` holds those within it, column by column."""

    key: str
    label: str
    icon: str
    words: str
    kind: str
    position: int
    many: int
    columns: list[list["Row"]] = []
    is_columns: bool = False
    hidden: str = ""


class Tile(Struct):
    """A kind as the palette offers it."""

    kind: str
    label: str
    icon: str
    in_columns: bool


def rows(found: list[Entry]) -> list[Row]:
    """Return the outline of a design's sections."""
    made: dict[str, Row] = {}
    roots: list[Row] = []
    for one in found:
        made[one.key] = row = _row(one)
        if not one.parent:
            roots.append(row)
            continue
        around = made[one.parent]
        around.columns[one.column].append(row)
    return roots


def _row(one: Entry) -> Row:
    kind = one.section.kind
    is_columns = kind is not None and kind.name == "columns"
    many = len([each for each in one.siblings if isinstance(each, dict)])
    return Row(
        one.key, one.label, icon(kind), words(one), kind.name if kind else "", one.position + 1, many,
        [[] for _ in document.columns(one.raw)] if is_columns else [], is_columns,
        {"phone": "not on phones", "desktop": "not on computers"}.get(str(one.section.props.get("hide_on")), ""),
    )  # fmt: skip


def icon(kind: Kind | None) -> str:
    """Return the picture of a kind."""
    return ICONS.get(kind.name if kind is not None else "", ICONS[""])


def words(one: Entry) -> str:
    """Return a few words of what is in a section."""
    kind, props = one.section.kind, one.section.props
    if kind is None:
        return one.section.type[:_MAX_CHARACTERS]
    if kind.name == "columns":
        return _count(len(document.columns(one.raw)), "column")
    if kind.name == "footer":
        return "Address, unsubscribe"
    if kind.name == "spacer":
        return f"{props.get('height') or 24} px"
    for name in _TELLING:
        found = props.get(name)
        if isinstance(found, str) and (said := _plain(found)):
            return said
    items = props.get("items") or props.get("links")
    if isinstance(items, list) and items:
        return _count(len(items), "link" if kind.name in ("social", "header") else "entry")
    source = props.get("src") or props.get("image_url")
    return source.rstrip("/").rpartition("/")[2].partition("?")[0][:_MAX_CHARACTERS] if isinstance(source, str) else ""


def _count(number: int, one: str) -> str:
    many = "entries" if one == "entry" else f"{one}s"
    return f"{number} {one if number == 1 else many}"


def _plain(html: str) -> str:
    text = plaintext.from_html(html[:2_000]) if "<" in html else html[:2_000]
    text = " ".join(readable(text).split())
    return text if len(text) <= _MAX_CHARACTERS else f"{text[: _MAX_CHARACTERS - 1].rstrip()}…"


def palette() -> list[tuple[str, list[Tile]]]:
    """Return the kinds that can be added, in groups."""
    return [
        (group, [Tile(name, BY_NAME[name].label, ICONS[name], BY_NAME[name].in_columns) for name in names])
        for group, names in PALETTE
    ]


def spoken(row: Any) -> str:
    """Return where a section stands, for those who do not see it."""
    return f"{row.position} of {row.many}"


def find(found: list[Row], key: str) -> Row | None:
    """Return the line of a section."""
    for one in found:
        if one.key == key:
            return one
        for column in one.columns:
            inner = find(column, key)
            if inner is not None:
                return inner
    return None


def place(found: list[Row], key: str) -> str:
    """Return where a section stands, in words that follow a verb: after its neighbour, in a column, or at the top."""
    keys = [row.key for row in found]
    if key in keys:
        at = keys.index(key)
        return f"after {found[at - 1].label}" if at else "at the top"
    for row in found:
        for number, column in enumerate(row.columns, 1):
            if find(column, key) is None:
                continue
            inner = place(column, key)
            return f"to column {number}" if inner == "at the top" else inner
    return ""
