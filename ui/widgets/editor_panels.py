"""Build the data of the editor's panels: outline, palette, and the fields of a section, the theme and the details."""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from msgspec import Struct

from appliance.content.designs import document, markup
from appliance.content.designs.document import Entry
from appliance.content.designs.kind import COMMON, STYLES, THEME, Kind, Prop
from appliance.content.designs.merge import make_readable
from appliance.content.designs.sections import BY_NAME, social
from appliance.content.designs.theme import Theme, contrast_ratio
from appliance.content.templates import editing, placeholders
from appliance.content.templates.editing import DETAIL_FIELDS
from appliance.core.i18n import fold, get_decimal_mark, gettext, gettext_noop, ngettext, pgettext, translate_stored
from ui import formats

# The icon of a section whose kind is unknown.
_UNKNOWN_KIND_ICON = "box"
PALETTE = (
    (gettext_noop("Basics"), ("heading", "text", "button", "image", "list", "quote")),
    (gettext_noop("Layout"), ("columns", "split", "hero", "divider", "spacer")),
    (gettext_noop("Content"), ("product", "product_grid", "gallery", "coupon", "video")),
    (gettext_noop("Brand"), ("header", "social", "footer")),
    (gettext_noop("Advanced"), ("html",)),
)
_MAX_EXCERPT_CHARACTERS = 60
# The property of a section that is written in the canvas, by its kind.
_CANVAS_TEXT_PROPS = {"heading": "text", "button": "text", "text": "content"}
# Properties whose text can be the excerpt of a section, in order of preference.
_EXCERPT_PROPS = ("text", "title", "content", "name", "code", "caption", "wordmark_text", "alt")


class OutlineRow(Struct):
    """A section as a line of the outline; `columns` holds the sections nested in the section, column by column.

    `position` is counted from 1 among `sibling_count` siblings. If the section is hidden on a kind of device, `hidden`
    is a text that says so, else it is empty. `text` is the stored text, with merge tags, of a section whose text is
    edited in the canvas; for other sections it is None.
    """

    key: str
    label: str
    icon: str
    excerpt: str
    kind: str
    position: int
    sibling_count: int
    columns: list[list["OutlineRow"]] = []
    is_columns: bool = False
    hidden: str = ""
    text: str | None = None


class PaletteTile(Struct):
    """A section kind in the palette; `in_columns` says whether it is allowed in columns."""

    kind: str
    label: str
    icon: str
    in_columns: bool


def build_outline(rows: list[Entry], filenames: dict[str, str]) -> list[OutlineRow]:
    """Return the outline of a design; `rows` are all its sections in reading order.

    `filenames` maps the signed ids of the uploaded pictures that the design uses to their file names.
    """
    outline_rows: dict[str, OutlineRow] = {}
    roots: list[OutlineRow] = []
    for entry in rows:
        outline_rows[entry.key] = row = _build_row(entry, filenames)
        if not entry.parent:
            roots.append(row)
            continue
        parent = outline_rows[entry.parent]
        parent.columns[entry.column].append(row)
    return roots


def _build_row(entry: Entry, filenames: dict[str, str]) -> OutlineRow:
    kind = entry.section.kind
    is_columns = kind is not None and kind.name == "columns"
    sibling_count = len([sibling for sibling in entry.siblings if isinstance(sibling, dict)])
    excerpt = _section_excerpt(entry, filenames)
    return OutlineRow(
        entry.key, entry.label, kind_icon(kind), excerpt, kind.name if kind else "", entry.position + 1,
        sibling_count,
        [[] for _ in document.get_columns(entry.raw)] if is_columns else [], is_columns,
        _describe_hidden(entry.section.props.get("hide_on")),
        _canvas_text(entry),
    )  # fmt: skip


def _describe_hidden(device: Any) -> str:
    if device == "phone":
        return gettext("hidden on phones")
    return gettext("hidden on desktop") if device == "desktop" else ""


def _canvas_text(entry: Entry) -> str | None:
    kind = entry.section.kind
    text = entry.section.props.get(_CANVAS_TEXT_PROPS.get(kind.name, "")) if kind is not None else None
    return text if isinstance(text, str) else None


def kind_icon(kind: Kind | None) -> str:
    """Return the name of the icon of a section kind, or the name of the icon for unknown kinds."""
    return kind.icon if kind is not None else _UNKNOWN_KIND_ICON


def list_picture_names(rows: list[Entry]) -> set[str]:
    """Return the last path segments of the sections' pictures; for an uploaded picture, it is the signed id."""
    return {name for entry in rows if entry.section.kind is not None and (name := _picture_name(entry))}


def _picture_name(entry: Entry) -> str:
    source = entry.section.props.get("src") or entry.section.props.get("image_url")
    return source.rstrip("/").rpartition("/")[2].partition("?")[0] if isinstance(source, str) else ""


def _section_excerpt(entry: Entry, filenames: dict[str, str]) -> str:
    """Return a short text that identifies a section in the outline, usually the start of its content; may be empty."""
    kind, props = entry.section.kind, entry.section.props
    if kind is None:
        return entry.section.type[:_MAX_EXCERPT_CHARACTERS]
    if kind.name == "columns":
        return ngettext("%(num)s column", "%(num)s columns", len(document.get_columns(entry.raw)))
    if kind.name == "footer":
        return gettext("Address, unsubscribe link")
    if kind.name == "spacer":
        return f"{props.get('height') or 24} px"
    for name in _EXCERPT_PROPS:
        row = props.get(name)
        if isinstance(row, str) and (text := _plain_text(row)):
            return text
    items = props.get("items") or props.get("links")
    if isinstance(items, list) and items:
        if kind.name in ("social", "header"):
            return ngettext("%(num)s link", "%(num)s links", len(items))
        return ngettext("%(num)s item", "%(num)s items", len(items))
    if not (name := _picture_name(entry)):
        return ""
    # A name without an extension is an id, which does not say which picture it is
    return _plain_text(filenames.get(name) or (name if "." in name else gettext("Image")))


def _plain_text(html: str) -> str:
    text = markup.html_to_text(html[:2_000]) if "<" in html else html[:2_000]
    text = " ".join(make_readable(text).split())
    return text if len(text) <= _MAX_EXCERPT_CHARACTERS else f"{text[: _MAX_EXCERPT_CHARACTERS - 1].rstrip()}…"


def list_palette() -> list[tuple[str, list[PaletteTile]]]:
    """Return the tiles of all section kinds as (group, tiles).

    Kinds that `PALETTE` does not name are in its last group.
    """
    named = {name for _, names in PALETTE for name in names}
    groups = {group: [BY_NAME[name] for name in names] for group, names in PALETTE}
    groups[PALETTE[-1][0]] += [kind for name, kind in BY_NAME.items() if name not in named]
    return [
        (gettext(group), [PaletteTile(kind.name, gettext(kind.label), kind.icon, kind.is_in_columns) for kind in kinds])
        for group, kinds in groups.items()
    ]


def find_row(rows: list[OutlineRow], key: str) -> OutlineRow | None:
    """Return the line of the section with this key, also inside columns, or None."""
    for row in rows:
        if row.key == key:
            return row
        for column in row.columns:
            inner = find_row(column, key)
            if inner is not None:
                return inner
    return None


def describe_addition(rows: list[OutlineRow], key: str, column: int = 0) -> str:
    """Return the sentence that a section was added, such as `Text added after Heading`.

    `rows` are the sections of the email, or of the column with the number `column`. The sentence is empty if no section
    has the key.
    """
    keys = [row.key for row in rows]
    if key in keys:
        at = keys.index(key)
        label = rows[at].label
        if at:
            return gettext("%(section)s added after %(other)s", section=label, other=rows[at - 1].label)
        if column:
            return gettext("%(section)s added to column %(number)s", section=label, number=formats.number(column))
        return gettext("%(section)s added at the top", section=label)
    for row in rows:
        for number, inner_rows in enumerate(row.columns, 1):
            if find_row(inner_rows, key) is not None:
                return describe_addition(inner_rows, key, number)
    return ""


# Fields of a section, built from the properties of its kind.

FONTS = ("Arial", "Helvetica", "Verdana", "Tahoma", "Trebuchet MS", "Georgia", "Times New Roman", "Courier New")
_STYLE_FIELDS = ("inner_padding", "padding", "stack_on_phone", "play_badge", "columns", "preset", "width", "height")
# Texts without merge tags; the common properties have none, either.
_PLAIN_FIELDS = ("inner_padding", "expires_at", "padding")
# The padding of a button without one of its own, above and below, then left and right (`button.mjml`).
_INNER_PADDING = "14 28"
_VISIBILITY_FIELDS = ("hide_on", "show_if", "name")
_OPTION_LABELS = {
    "none": gettext_noop("None"), "phone": gettext_noop("Phones"), "desktop": gettext_noop("Desktop"),
    "left": gettext_noop("Left"), "center": gettext_noop("Centre"), "right": gettext_noop("Right"),
    "centered": gettext_noop("Centred"), "filled": gettext_noop("Filled"), "outline": gettext_noop("Outline"),
    "link": gettext_noop("Link"), "fit": gettext_noop("Fit"), "full": gettext_noop("Full"),
    "dashed": gettext_noop("Dashed"), "solid": gettext_noop("Solid"), "bullet": gettext_noop("Bullet"),
    "check": gettext_noop("Check mark"), "icon": gettext_noop("Symbol"),
    "colour": gettext_noop("Colour"), "ink": gettext_noop("Mono"), "rounded": gettext_noop("Rounded"),
    "square": gettext_noop("Square"), "pill": gettext_noop("Pill"),
    "1:1": "1 : 1", "1:2": "1 : 2", "2:1": "2 : 1", "1:1:1": "1 : 1 : 1", "1:1:1:1": "1 : 1 : 1 : 1",
}  # fmt: skip
# The properties with the alternative text of an image
_ALT_NAMES = ("alt", "logo_alt", "caption", "title")
_LEVEL_LABELS = {"1": gettext_noop("Large"), "2": gettext_noop("Medium"), "3": gettext_noop("Small")}
# The titles of the items of a list property, by the label of the property.
_ITEM_TITLES = {
    "Columns": gettext_noop("Column %(number)s"), "Images": gettext_noop("Image %(number)s"),
    "Links": gettext_noop("Link %(number)s"), "Products": gettext_noop("Product %(number)s"),
}  # fmt: skip
_ITEM_TITLE = gettext_noop("Item %(number)s")
_MAX_SEGMENTED_CHARACTERS = 26


class Field(Struct):
    """A field in the panel of a section, the theme or the details.

    `path` is the path of the field's value (`editing.parse_path`), and `value_hash` the hash of the value, by which
    conflicts are detected. `hint` is the placeholder text. For a list, `entries` are its items, and `can_add` and
    `can_remove` say whether items can be added and removed. A field with `is_plain` takes no merge tags.
    """

    path: str
    kind: str
    label: str
    value: str = ""
    value_hash: str = ""
    help: str = ""
    hint: str = ""
    unit: str = ""
    minimum: float = 0
    maximum: float = 0
    options: list[tuple[str, str]] = []
    is_segmented: bool = False
    displayed_color: str = ""  # the colour in the email, if the field is a colour
    alt_path: str = ""  # the path of the alternative text, if the field is an image
    entries: list["ItemFields"] = []
    can_add: bool = False
    can_remove: bool = False
    name: str = ""
    is_plain: bool = False

    @property
    def id(self) -> str:
        """Return the HTML id of the input element."""
        return "f-" + self.path.replace(".", "-").replace("_", "-")

    @property
    def error(self) -> str:
        """Return the HTML id of the element that shows the field's error."""
        return "e" + self.id[1:]


class ItemFields(Struct):
    """The fields of one item of a list property; `index` is its position from 0."""

    index: int
    title: str
    fields: list[Field]


class FieldGroup(NamedTuple):
    """A titled group of fields; `name` is `content`, `style` or `visibility`."""

    name: str
    title: str
    fields: list[Field]


def build_groups(entry: Entry, theme: Theme) -> list[FieldGroup]:
    """Return the fields of a section in the groups Content, Style and Visibility, without empty groups.

    A section of an unknown kind has no groups.
    """
    kind = entry.section.kind
    if kind is None:
        return []
    content: list[Field] = []
    style: list[Field] = []
    visible: list[Field] = []
    for prop in kind.all_props():
        is_common = prop in COMMON
        if prop.name in _VISIBILITY_FIELDS and is_common:
            into = visible
        elif prop.kind in ("colour", "choice", "number") or (prop.name in _STYLE_FIELDS and prop.kind != "items"):
            into = style
        else:
            into = content
        into += _build_prop_fields(prop, "props", entry, kind, theme)
    for prop in STYLES:
        # A section without an inner box has a property of this name itself, which is used instead.
        if not (kind.is_whole and prop.name in {prop.name for prop in kind.props}):
            style += _build_prop_fields(prop, "styles", entry, kind, theme)
    groups = (
        FieldGroup("content", gettext("Content"), content),
        FieldGroup("style", gettext("Style"), style),
        FieldGroup("visibility", gettext("Visibility"), visible),
    )
    return [group for group in groups if group.fields]


def find_fix_field(entry: Entry | None, groups: list[FieldGroup], code: str) -> Field | None:
    """Return the field that fixes a finding about a section, by the code of the finding.

    That is an empty link, picture or alternative text, or the first placeholder. For other codes, and if there is no
    such field, it is the first field of the section; None without a section.
    """
    fields = [
        inner
        for group in groups
        for field in group.fields
        for inner in (field, *(inner for item in field.entries for inner in item.fields))
        if inner.kind not in ("items", "columns", "filters")
    ]
    if entry is None or entry.section.kind is None or not fields:
        return None
    kind = entry.section.kind.name
    is_fix: dict[str, Callable[[Field], bool]] = {
        "link_missing": lambda field: field.kind == "url" and not field.value,
        "image_missing": lambda field: field.kind == "image" and not field.value,
        "alt_missing": lambda field: field.name in _ALT_NAMES and not field.value,
        "placeholder_link": lambda field: (
            field.kind in ("url", "rich", "html") and placeholders.has_placeholder_link(field.value)
        ),
        "placeholder_content": lambda field: (
            field.kind in ("line", "text", "rich")
            and placeholders.has_placeholder_text(kind, field.value or field.hint)
        ),
    }
    matches = [field for field in fields if is_fix[code](field)] if code in is_fix else []
    if code == "link_missing":
        # A product may have a link of its own, while its button has none.
        matches = [field for field in matches if ".button." in field.path] or matches
    return matches[0] if matches else fields[0]


def _build_prop_fields(prop: Prop, root: str, entry: Entry, kind: Kind, theme: Theme) -> list[Field]:
    if root == "styles" and prop.name == "padding":
        return [_build_padding_field(name, entry, kind) for name in editing.PADDING_SIDES]
    if prop.kind == "sections" or (
        kind.name == "divider" and prop.name == "padding" and not prop.get_value(entry.section.props)
    ):
        return []
    path = f"{root}.{prop.name}"
    if prop.kind == "items":
        return [_build_items_field(prop, path, entry, kind, theme)]
    if prop.kind == "group":
        inner = [_build_section_field(field, f"{path}.{field.name}", entry, kind, theme) for field in prop.fields]
        for field in inner:
            field.label = f"{gettext(prop.label)}: {formats.uncapitalize(field.label)}"
        return inner
    return [_build_section_field(prop, path, entry, kind, theme)]


def _build_padding_field(name: str, entry: Entry, kind: Kind) -> Field:
    place = editing.parse_path(f"styles.padding.{name}", kind)
    value = editing.get_value(place, entry.raw)
    standard = {"top": kind.padding[0], "bottom": kind.padding[2], "sides": kind.padding[1]}[name]
    label = {"top": gettext("Above"), "bottom": gettext("Below"), "sides": gettext("Sides")}[name]
    return Field(
        place.path, "number", label, "" if value is None else str(value), editing.hash_value(value),
        hint=str(standard),
        unit="px", maximum=96, name="space",
    )  # fmt: skip


def _build_items_field(prop: Prop, path: str, entry: Entry, kind: Kind, theme: Theme) -> Field:
    values = prop.get_value(entry.section.props)
    values = values if isinstance(values, list) else []
    items = []
    for index, item in enumerate(values[: int(prop.maximum)]):
        fields = [
            _build_section_field(inner, f"{path}.{index}.{inner.name}", entry, kind, theme)
            for inner in prop.fields if isinstance(item, dict) and inner.kind not in ("sections", "group")
        ]  # fmt: skip
        title = gettext(_ITEM_TITLES.get(prop.label, _ITEM_TITLE), number=formats.number(index + 1))
        items.append(ItemFields(index, title, fields))
    return Field(
        path, "columns" if prop.name == "columns" else "items", gettext(prop.label), entries=items,
        name=prop.name,
        can_add=len(values) < prop.maximum, can_remove=len(values) > prop.minimum,
    )  # fmt: skip


def _build_section_field(prop: Prop, path: str, entry: Entry, kind: Kind, theme: Theme) -> Field:
    value = editing.get_value(editing.parse_path(path, kind), entry.raw)
    field = build_field(prop, path, value, theme)
    if prop.kind == "image":
        names = [place.path for place in _find_alt_places(path, entry, kind)]
        field.alt_path = names[0] if names else ""
    return field


def _find_alt_places(path: str, entry: Entry, kind: Kind) -> list[editing.ValuePath]:
    """Return a list with the path of an image's alternative text, empty if the section kind has none."""
    before = path.rpartition(".")[0]
    name = "logo_alt" if path.endswith("logo_url") else "caption" if path.endswith("thumbnail") else "alt"
    declared = {prop.name for prop in kind.props} | {inner.name for prop in kind.props for inner in prop.fields}
    return [editing.parse_path(f"{before}.{name}", kind)] if name in declared else []


def build_field(prop: Prop, path: str, value: Any, theme: Theme) -> Field:
    """Return the field of a property with its current value and its options."""
    field = Field(
        path, prop.kind, gettext(prop.label), _format_value(prop, value), editing.hash_value(value),
        gettext(prop.help), name=prop.name, is_plain=prop in COMMON or prop.name in _PLAIN_FIELDS,
    )  # fmt: skip
    if prop.default is not None and prop.kind in ("line", "text", "number", "url"):
        is_number = isinstance(prop.default, int | float)
        field.hint = _write_number(prop.default) if is_number else translate_stored(str(prop.default))
    if prop.kind == "number":
        field.minimum, field.maximum, field.unit = prop.minimum, prop.maximum, prop.unit
        field.hint = field.hint or (f"{theme.radius}" if prop.name == "border_radius" else gettext("Auto"))
    elif prop.kind in ("url", "image"):
        field.hint = "https://"
    elif prop.name == "inner_padding":
        field.hint, field.unit = _INNER_PADDING, "px"
        field.help = gettext("Above and below, then left and right.")
    elif prop.kind == "choice":
        field.options = [(option, _name_option(prop.name, option)) for option in prop.options]
        if prop.default is None:
            field.options.insert(0, ("", gettext("Default")))
        field.value = field.value or str(prop.default or "")
        field.is_segmented = (
            sum(len(option_label) + 2 for _, option_label in field.options) <= _MAX_SEGMENTED_CHARACTERS
        )
    elif prop.options:
        # The text is the name of a platform, because `social` is the only section with such a text.
        field.kind, field.is_plain = "choice", True
        field.value = social.find_platform(field.value) or field.value
        field.options = [("", gettext("Detect from the link")), *_platform_options(field.value)]
    elif prop.kind == "colour":
        field.options = [
            ("", gettext("Theme default")), ("theme:brand", gettext("Brand")), ("theme:text", gettext("Text")),
            ("theme:bg", gettext("Background")),
        ]  # fmt: skip
        light = theme.light
        usual = {"background_color": light.brand if path.startswith("props") else light.card, "color": light.text,
                 "text_color": light.on_brand}  # fmt: skip
        field.displayed_color = theme.colour(field.value, usual.get(prop.name, light.text))
    return field


def _name_option(name: str, option: str) -> str:
    """Return the label of an option of a property."""
    if name == "hide_on" and option == "none":
        return pgettext("hide on no device", "None")
    if option == "number":
        return pgettext("in a sequence", "Number")
    labels = _LEVEL_LABELS if name == "level" else _OPTION_LABELS
    return gettext(labels.get(option, option))


def _platform_options(value: str) -> list[tuple[str, str]]:
    """Return the platforms that have an icon, as (value, label) sorted by label.

    A `value` that is no known platform follows them, so that the form keeps it.
    """
    names = {key: gettext(platform.name) for key, platform in social.PLATFORMS.items()}
    options = sorted(((key, names[key]) for key in social.OFFERED), key=lambda option: fold(option[1]))
    return [*options, (value, value)] if value and value not in names else options


def _format_value(prop: Prop, value: Any) -> str:
    if value is None:
        return "on" if prop.kind == "flag" and prop.default else ""
    if prop.kind == "flag":
        return "on" if value is True or str(value).lower() in ("true", "yes", "1") else ""
    if prop.kind == "number" and isinstance(value, int | float) and not isinstance(value, bool):
        return _write_number(value)
    return value if isinstance(value, str) else json.dumps(value)


def _write_number(value: float) -> str:
    """Return a number with the decimal mark of the page's language, which `editing` reads as well."""
    return f"{value:g}".replace(".", get_decimal_mark())


def build_theme_fields(design: dict[str, Any], theme: Theme) -> list[Field]:
    """Return the fields of a design's theme; a field without a value follows the brand."""
    fields = []
    for prop in THEME:
        value = prop.get_value(design.get("theme"))
        field = build_field(prop, f"theme.{prop.name}", value, theme)
        if prop.kind == "colour":
            field.options = [("", gettext("Brand default"))]
            swatches = {"brand_color": theme.light.brand, "text_color": theme.light.text, "bg_color": theme.light.page}
            field.displayed_color = swatches[prop.name]
        elif prop.name.startswith("font"):
            field.kind = "choice"
            field.options = [("", gettext("Brand default")), *((font, font) for font in FONTS)]
            if field.value and field.value not in FONTS:
                field.options.append((field.value, field.value))
            field.is_segmented = False
        elif prop.kind == "choice":
            field.options[0] = ("", gettext("Brand default"))
            field.is_segmented = False
        fields.append(field)
    return fields


def check_contrasts(theme: Theme) -> list[tuple[str, str, bool]]:
    """Return the colour pairs of an email's texts as (label, contrast as text, whether it is at least 4.5)."""
    light = theme.light
    pairs = (
        (gettext("Text on background"), light.text, light.card), (gettext("Links"), light.link, light.card),
        (gettext("Button text"), light.on_brand, light.brand), (gettext("Footer text"), light.muted, light.page),
        (gettext("Text in dark mode"), theme.dark.text, theme.dark.card),
    )  # fmt: skip
    return [(label, formats.number(round(ratio, 1)), ratio >= 4.5) for label, color, background in pairs
            for ratio in [contrast_ratio(color, background)]]  # fmt: skip


def build_detail_fields(row: Any) -> dict[str, Field]:
    """Return the fields of a template besides its design, by name (`editing.DETAIL_FIELDS`)."""
    return {
        name: Field(
            f"email.{name}", "line", "", getattr(row, name) or "", editing.hash_value(getattr(row, name)), name=name
        )
        for name in DETAIL_FIELDS
    }


def sections_by_column(entry: Entry, rows: list[Entry]) -> list[list[Entry]]:
    """Return the sections directly inside a columns section, column by column."""
    columns: list[list[Entry]] = [[] for _ in document.get_columns(entry.raw)]
    for inner in rows:
        if inner.parent == entry.key:
            columns[inner.column].append(inner)
    return columns
