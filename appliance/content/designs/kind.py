"""Section kinds: how their properties are declared, validated and read, and the view that their templates render."""

import re
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any, Literal, NamedTuple

from msgspec import Struct

from appliance.content.designs import markup, merge, sanitizer
from appliance.content.designs.theme import (
    BUTTON_RADII,
    DEFAULT_WIDTH,
    MAX_WIDTH,
    MIN_WIDTH,
    Look,
    Theme,
    contrast_ratio,
    ensure_contrast,
    is_colour,
    mix_colours,
    readable_colour,
    render_table,
)
from appliance.core import recipient_texts
from appliance.core.i18n import gettext, gettext_noop

# A property is declared once, for validation, `/templates/spec`, the editor and rendering.
#
# `validate_value` refuses values that must not be stored. `read_value` is lenient: it accepts values such as `"24px"`
# or an address without `https://`. It replaces an unusable value with the default and adds advice, so that a document
# is not refused because of a detail.

PropKind = Literal[
    "line", "text", "rich", "html", "url", "image", "colour", "number", "choice", "flag", "items", "group", "sections",
    "filters",
]  # fmt: skip
_MAX_CHARACTERS = {"line": 1_000, "text": 10_000, "rich": 200_000, "html": 200_000, "url": 2_000, "image": 2_000}
_NUMBER = re.compile(r"\s*(-?\d+(?:\.\d+)?)\s*+(?:(?:px|%)\s*+)?\Z")
_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.\-]*):")
# The allowed schemes of links. Addresses of pictures may only have the first two.
SCHEMES = ("http", "https", "mailto", "tel", "sms")
_BARE_HOST = re.compile(r"[A-Za-z0-9.-]+\.[A-Za-z]{2,}(?:[/?#:]|\Z)")


class Finding(NamedTuple):
    """A piece of advice about a section: its code, its English text, and the values of the text.

    The value `property` is the label of a property, which is translated with the text.
    """

    code: str
    text: str
    values: Mapping[str, str] = {}

    @property
    def message(self) -> str:
        """Return the advice in the language of this request."""
        labels = {name: gettext(value) for name, value in self.values.items() if name == "property"}
        return gettext(self.text, **{**self.values, **labels})


# A callback that takes advice about a value.
Note = Callable[[Finding], None]


class Prop(Struct, frozen=True, kw_only=True):
    """The declaration of one property of a section.

    `minimum` and `maximum` are the limits of a number, or of the number of entries in a list. `fields` are the
    properties of a group or list entry. `options` are the values of a choice; a text may have them, too, as the values
    that the editor offers, besides any other text.
    """

    name: str
    kind: PropKind
    label: str
    default: Any = None
    help: str = ""
    options: tuple[str, ...] = ()
    minimum: float = 0
    maximum: float = 0
    unit: str = ""
    fields: tuple["Prop", ...] = ()
    aliases: tuple[str, ...] = ()
    # Whether an unchanged default text counts as a placeholder (`placeholders.find_placeholders`): "own" always does, a
    # "title" except in the emails of ready-made flows, a "label" such as "Learn more" never.
    wording: Literal["own", "title", "label"] = "own"
    # Whether a text is one that people read, or a link, so that it may differ by language (`translations`).
    is_translatable: bool = True

    @property
    def is_text(self) -> bool:
        """Return whether the value is a text with merge tags; addresses are such texts, too."""
        return self.kind in _MAX_CHARACTERS

    def describe(self) -> dict[str, Any]:
        """Return the declaration as `/templates/spec` shows it; empty entries are left out."""
        spec: dict[str, Any] = {"name": self.name, "kind": self.kind, "label": self.label, "default": self.default}
        if self.kind in ("number", "items", "sections"):
            spec |= {"minimum": self.minimum, "maximum": self.maximum}
        if self.is_text:
            spec["max_length"] = _MAX_CHARACTERS[self.kind]
        for name, value in (("help", self.help), ("unit", self.unit), ("options", list(self.options)),
                            ("aliases", list(self.aliases)),
                            ("fields", [field.describe() for field in self.fields])):  # fmt: skip
            if value:
                spec[name] = value
        return spec

    def get_value(self, values: Any) -> Any:
        """Return the first value under the property's name or an alias that is not None.

        None means that there is no such value, or `values` is not a dict.
        """
        if not isinstance(values, dict):
            return None
        return next((values[name] for name in (self.name, *self.aliases) if values.get(name) is not None), None)


def line(name: str, label: str, default: str | None = None, **more: Any) -> Prop:
    """Declare a single-line text with merge tags."""
    return Prop(name=name, kind="line", label=label, default=default, **more)


def text(name: str, label: str, default: str | None = None, **more: Any) -> Prop:
    """Declare a multi-line text with merge tags."""
    return Prop(name=name, kind="text", label=label, default=default, **more)


def rich(name: str, label: str, default: str | None = None, **more: Any) -> Prop:
    """Declare rich text (paragraphs, emphasis, links and lists as HTML) with merge tags."""
    return Prop(name=name, kind="rich", label=label, default=default, **more)


def url(name: str, label: str, **more: Any) -> Prop:
    """Declare a link address."""
    return Prop(name=name, kind="url", label=label, **more)


def image(name: str, label: str, **more: Any) -> Prop:
    """Declare the address of a picture."""
    return Prop(name=name, kind="image", label=label, **more)


def colour(name: str, label: str, default: str | None = None, **more: Any) -> Prop:
    """Declare a colour; a default of None means the colour of the theme."""
    return Prop(name=name, kind="colour", label=label, default=default, **more)


def number(name: str, label: str, default: float | None, minimum: float, maximum: float, **more: Any) -> Prop:
    """Declare a number within limits; the unit is pixels unless `unit` is given."""
    return Prop(name=name, kind="number", label=label, default=default, minimum=minimum, maximum=maximum,
                **{"unit": "px", **more})  # fmt: skip


def choice(name: str, label: str, *options: str, **more: Any) -> Prop:
    """Declare a choice; the first option is the default unless `default` is given."""
    return Prop(name=name, kind="choice", label=label, options=options, **{"default": options[0], **more})


def flag(name: str, label: str, default: bool = False, **more: Any) -> Prop:
    """Declare a boolean."""
    return Prop(name=name, kind="flag", label=label, default=default, **more)


def items(name: str, label: str, fields: tuple[Prop, ...], maximum: int, minimum: int = 0, **more: Any) -> Prop:
    """Declare a list of entries that each have the given fields; `minimum` and `maximum` limit their number."""
    return Prop(
        name=name, kind="items", label=label, fields=fields, minimum=minimum, maximum=maximum, default=[], **more
    )


def group(name: str, label: str, fields: tuple[Prop, ...], **more: Any) -> Prop:
    """Declare a property that consists of several fields, such as the text and link of a button."""
    return Prop(name=name, kind="group", label=label, fields=fields, **more)


def validate_value(prop: Prop, value: Any, path: str, add: Callable[[str, str], None]) -> None:
    """Validate the value of a property and call `add(path, message)` for every error.

    The values of sections in columns and of filters are not validated here.
    """
    if value is None or prop.kind in ("sections", "filters"):
        return
    if prop.kind == "items":
        _validate_list(prop, value, path, add)
    elif prop.kind == "group":
        if isinstance(value, dict | str):
            _validate_fields(prop.fields, _to_group(prop, value), path, add)
        else:
            add(path, gettext("is invalid"))
    elif isinstance(value, dict | list):
        add(path, gettext("is invalid"))
    elif isinstance(value, str):
        _validate_text(prop, value, path, add)


def _validate_list(prop: Prop, value: Any, path: str, add: Callable[[str, str], None]) -> None:
    if not isinstance(value, list):
        add(path, gettext("is invalid"))
        return
    if len(value) > prop.maximum:
        add(path, gettext("is too long (maximum is %(limit)s entries)", limit=f"{prop.maximum:g}"))
    for index, entry in enumerate(value[: int(prop.maximum)]):
        if isinstance(entry, dict):
            _validate_fields(prop.fields, entry, f"{path}[{index}]", add)
        elif entry is not None:
            add(f"{path}[{index}]", gettext("is invalid"))


def _validate_fields(
    fields: tuple[Prop, ...], values: dict[str, Any], path: str, add: Callable[[str, str], None]
) -> None:
    for field in fields:
        validate_value(field, field.get_value(values), f"{path}.{field.name}", add)


def _to_group(prop: Prop, value: Any) -> Any:
    """Return the value of a group as a dict; a string becomes the value of its first field."""
    return {prop.fields[0].name: value} if isinstance(value, str) else value


def _validate_text(prop: Prop, value: str, path: str, add: Callable[[str, str], None]) -> None:
    max_characters = _MAX_CHARACTERS.get(prop.kind, 1_000)
    if len(value) > max_characters:
        add(path, gettext("is too long (maximum is %(limit)s characters)", limit=max_characters))
        return
    error = merge.find_error(value, "url" if prop.kind in ("url", "image") else "html")
    if error:
        add(path, error)
    elif prop.kind in ("url", "image") and not value.lstrip().startswith("{"):
        scheme = _SCHEME.match(value.strip())
        allowed = SCHEMES if prop.kind == "url" else SCHEMES[:2]
        if scheme is not None and scheme[1].lower() not in allowed and not _BARE_HOST.match(value.strip()):
            add(path, gettext("is invalid"))


def read_value(prop: Prop, value: Any, note: Note, is_tag: Callable[[str], bool]) -> Any:
    """Return a value in the form that templates use, or the default if it is missing or unusable.

    An unusable value is reported to `note`, except an invalid list or group. `is_tag` tests whether a text begins with
    the token of a merge tag; tokens replace all merge tags before rendering.
    """
    if value is None or value == "":
        return prop.default
    if prop.kind == "items":
        items = value[: int(prop.maximum)] if isinstance(value, list) else []
        return [read_values(prop.fields, entry, note, is_tag) for entry in items if isinstance(entry, dict)]
    if prop.kind == "group":
        return read_values(prop.fields, _to_group(prop, value), note, is_tag) if isinstance(value, dict | str) else None
    if prop.kind in ("sections", "filters"):
        return value if isinstance(value, list) else prop.default
    read = _READERS[prop.kind](prop, value, is_tag)
    if read is None:
        shown_value = value if isinstance(value, str | int | float) else type(value).__name__
        text = gettext_noop("%(property)s: “%(value)s” cannot be used here")
        note(Finding("section", text, {"property": prop.label, "value": str(shown_value)[:60]}))
        return prop.default
    return read


def read_values(
    fields: tuple[Prop, ...], values: dict[str, Any], note: Note, is_tag: Callable[[str], bool]
) -> SimpleNamespace:
    """Return a namespace with the value of each property (`read_value`) as an attribute."""
    return SimpleNamespace(**{field.name: read_value(field, field.get_value(values), note, is_tag) for field in fields})


def _read_text(prop: Prop, value: Any, is_tag: Callable[[str], bool]) -> str | None:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    text_value = str(value)
    return text_value if len(text_value) <= _MAX_CHARACTERS[prop.kind] else None


def _read_address(prop: Prop, value: Any, is_tag: Callable[[str], bool]) -> str | None:
    if not isinstance(value, str) or len(value) > _MAX_CHARACTERS[prop.kind]:
        return None
    return normalize_address(value, SCHEMES if prop.kind == "url" else SCHEMES[:2], is_tag)


def normalize_address(value: str, schemes: tuple[str, ...], is_tag: Callable[[str], bool]) -> str | None:
    """Return an address with a scheme of `schemes`, or None for any other text.

    A host without a scheme gets `https://`. A merge tag at the beginning is allowed, and `#anchor` if `schemes` are the
    schemes of links. Line ends and outer white space are removed.
    """
    # Some text editors insert line ends into long addresses.
    address = "".join(value.split("\n")).strip()
    if is_tag(address) or (address.startswith("#") and schemes == SCHEMES):
        return address
    scheme = _SCHEME.match(address)
    if _BARE_HOST.match(address):
        return f"https://{address}"
    if address.startswith("//"):
        return f"https:{address}"
    return address if scheme is not None and scheme[1].lower() in schemes else None


def _read_colour(prop: Prop, value: Any, is_tag: Callable[[str], bool]) -> str | None:
    return value.strip() if isinstance(value, str) and is_colour(value) else None


def _read_number(prop: Prop, value: Any, is_tag: Callable[[str], bool]) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        if value.strip().lower() == "pill":
            return prop.maximum
        match = _NUMBER.match(value)
        value = float(match[1]) if match else None
    if not isinstance(value, int | float) or not prop.minimum <= value <= prop.maximum:
        return None
    return int(value) if value == int(value) else float(value)


def _read_choice(prop: Prop, value: Any, is_tag: Callable[[str], bool]) -> str | None:
    word = str(value).strip().lower()
    # Accept American spellings and the words of other products.
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


# The properties that sections of every kind have (docs/decisions.md#11).
COMMON = (
    choice("align", gettext_noop("Alignment"), "left", "center", "right", default=None),
    choice("hide_on", gettext_noop("Hide on"), "none", "phone", "desktop"),
    Prop(name="show_if", kind="filters", label=gettext_noop("Show only to"), help=gettext_noop("Segment filters.")),
    line("name", gettext_noop("Section name")),
)
THEME = (
    colour("brand_color", gettext_noop("Brand colour"), help=gettext_noop("Buttons, links and symbols.")),
    colour("text_color", gettext_noop("Text colour")),
    colour("bg_color", gettext_noop("Background colour"), help=gettext_noop("Around the sections.")),
    line("font_heading", gettext_noop("Heading font")),
    line("font_body", gettext_noop("Body font")),
    choice("button_shape", gettext_noop("Button shape"), *BUTTON_RADII, default=None),
    image("logo_url", gettext_noop("Logo")),
    number("width", gettext_noop("Width"), DEFAULT_WIDTH, MIN_WIDTH, MAX_WIDTH),
)
STYLES = (
    Prop(name="background_color", kind="colour", label=gettext_noop("Background")),
    Prop(
        name="padding",
        kind="line",
        label=gettext_noop("Padding"),
        help=gettext_noop("One to four pixel values, 0 to 96."),
    ),
)


_PIXEL_SIZES = re.compile(r"\d{1,3}(?:\.\d+)?(?:px)?(?:\s+\d{1,3}(?:\.\d+)?(?:px)?){0,3}\Z")
# The last match is a tag that is not closed, so that its text is read only once.
_RICH_TAG = re.compile(r"<(p|ul|ol|li|a)\b((?:\s[^>]*)?)(>|\Z)")
_RICH_STYLES = {
    "p": "margin:0 0 14px", "ul": "margin:0 0 14px;padding:0 0 0 22px", "ol": "margin:0 0 14px;padding:0 0 0 24px",
    "li": "margin:0 0 6px", "a": "text-decoration:underline",
}  # fmt: skip


class View:
    """A section as its template reads it: `props` has every property with its default; colours and sizes are resolved.

    `width` is in pixels. `is_nested` means that the section is in a column. `keep` replaces HTML with a token, so that
    MJML does not process it. `render_inner` renders the sections of a column, given the raw list of sections, the width
    in pixels and the path of the list.
    """

    def __init__(
        self, props: SimpleNamespace, theme: Theme, look: Look, keep: Callable[[str], str],
        render_inner: "Callable[[list[Any], float, str], InnerContent]", width: float, is_nested: bool,
    ) -> None:  # fmt: skip
        self.props, self.theme, self.look, self.keep, self.render_inner = props, theme, look, keep, render_inner
        self.width, self.is_nested = width, is_nested
        self.is_rtl = False
        # The language of the message, in which dates are written; set by `render`.
        self.locale = "en"
        # The texts of the product in the language of the message (`core/recipient_texts.py`); set by `render`.
        self.texts: Mapping[str, str] = recipient_texts.get_texts("en")
        # The HTML attribute `lang` of these texts if their language is not that of the message, else empty.
        self.texts_lang = ""
        # Whether the background is that of the page instead of that of cards, in light and dark mode.
        self.is_on_page = False
        # Whether the surrounding table cell already has the section's background and padding.
        self.is_boxed = False
        self.padding: tuple[int, int, int, int] = (0, 0, 0, 0)
        self.background: str | None = None
        self.classes: list[str] = []
        self.path = ""
        # Returns whether a text contains merge tags; set by `render`.
        self.has_tags: Callable[[str], bool] = lambda text: False
        # Returns a text of the product with its merge tags protected; set by `render`.
        self.protect: Callable[[str], str] = lambda text: text
        # Rendered content that the HTML and the text both need; only the columns use it.
        self.cache: Any = None

    @property
    def cell_padding(self) -> str:
        """Return the padding of a table cell as CSS, with at most 10 pixels above and below.

        It is zero unless the section is in a column and the surrounding cell does not have the padding already.
        """
        if not self.is_nested or self.is_boxed:
            return "0"
        top, _, bottom, _ = self.padding
        return f"{min(top, 10)}px 0 {min(bottom, 10)}px"

    @property
    def background_colour(self) -> str:
        """Return the colour behind the text: the section's background, else the colour of the page or of cards."""
        return self.background or (self.theme.light.page if self.is_on_page else self.theme.light.card)

    @property
    def surface_class(self) -> str:
        """Return the CSS class of the background in dark mode; empty if the author chose the background."""
        return self.colour_class("page" if self.is_on_page else "card")

    @property
    def text_colour(self) -> str:
        """Return the theme's text colour if it is readable on the background, else white or nearly black."""
        return readable_colour(self.background_colour, self.theme.light.text)

    @property
    def muted_colour(self) -> str:
        """Return the colour of secondary text, readable on the background."""
        if self.background is None:
            return self.theme.light.muted
        return ensure_contrast(mix_colours(self.text_colour, self.background_colour, 0.3), self.background_colour)

    @property
    def content_width(self) -> float:
        """Return the width of the content in pixels, without the horizontal padding; at least 40."""
        padding = 0 if self.is_nested and not self.is_boxed else self.padding[1] + self.padding[3]
        return max(self.width - padding, 40)

    def align_or(self, default: str) -> str:
        """Return the alignment of the section, or else the default.

        The default "left" means the side on which text begins: the right side for languages written from right to left.
        """
        return str(self.props.align or (self.start_side if default == "left" else default))

    @property
    def start_side(self) -> str:
        """Return the side on which text begins, "left" or "right"."""
        return "right" if self.is_rtl else "left"

    def table(self, mjml: str) -> str:
        """Return the MJML content of a column as an HTML table, for cells in which MJML allows no columns."""
        return render_table(mjml, self.theme, "rtl" if self.is_rtl else "ltr")

    def resolve_colour(self, value: str | None, fallback: str) -> str:
        """Return a colour, such as `red` or `theme:brand`, as `#rrggbb`; the fallback if it is empty or invalid."""
        return self.theme.colour(value, fallback)

    def text_colour_on(self, background: str) -> str:
        """Return white or nearly black, whichever has more contrast on the background."""
        return readable_colour(background)

    def colour_class(self, name: str, value: Any = None) -> str:
        """Return the CSS class `c-<name>` by which dark mode changes a colour.

        It is empty if the author chose the colour (`value`) or the background, which dark mode does not change.
        """
        return f"c-{name}" if value is None and self.background is None else ""

    def to_sizes(self, value: str | None, default: str) -> str:
        """Return one to four sizes in pixels as CSS, each at most 96.

        A missing or malformed value gives the default.
        """
        if value is None or not _PIXEL_SIZES.match(str(value).strip()):
            return default
        return " ".join(f"{min(96.0, float(word.removesuffix('px'))):g}px" for word in str(value).split())

    def rich_html(self, html: str | None) -> str:
        """Return rich or plain text as sanitized HTML with explicit margins and link colours, "" for no text."""
        if not html:
            return ""
        cleaned = sanitizer.clean_text(html if markup.is_html(html) else markup.text_to_html(html))
        cleaned = _RICH_TAG.sub(self._styled, cleaned)
        # Remove the margin of the last paragraph, because the padding of the section follows.
        last = cleaned.rfind("margin:0 0 14px")
        if last >= 0 and not cleaned[last:].partition(">")[2].partition("</")[2].partition(">")[2].strip():
            cleaned = f"{cleaned[:last]}margin:0{cleaned[last + 15 :]}"
        return cleaned

    def inline_html(self, html: str | None) -> str:
        """Return rich text as sanitized HTML, without the paragraph element if there is only one paragraph."""
        cleaned = self.rich_html(html)
        inner = cleaned.removeprefix('<p style="margin:0">').removesuffix("</p>")
        return cleaned if "<p" in inner else inner

    def _styled(self, match: "re.Match[str]") -> str:
        tag, attributes = match[1], match[2]
        if not match[3]:
            return match[0]
        style = _RICH_STYLES[tag] + (f";color:{self.link_colour}" if tag == "a" else "")
        if ' style="' in attributes:
            styled = attributes.replace(' style="', f' style="{style};', 1)
            return f"<{tag}{styled}>"
        target = ' target="_blank"' if tag == "a" else ""
        return f'<{tag}{attributes} style="{style}"{target}>'

    @property
    def accent_colour(self) -> str:
        """Return the brand colour, or the text colour if the brand colour is hard to see on the background.

        The limit is a contrast ratio of 1.6.
        """
        brand = self.theme.light.brand
        return brand if contrast_ratio(brand, self.background_colour) >= 1.6 else self.text_colour

    @property
    def link_colour(self) -> str:
        """Return the colour of links: the brand colour, with enough contrast on the background."""
        return ensure_contrast(self.theme.light.brand, self.background_colour)

    def plain_text(self, html: str | None) -> str:
        """Return rich or plain text as plain text without outer white space; "" for None."""
        if not html:
            return ""
        return markup.html_to_text(html if markup.is_html(html) else markup.text_to_html(html)).strip()


class InnerContent(NamedTuple):
    """The rendered sections of a column, as MJML and as plain text."""

    mjml: str
    text: str


class Kind(NamedTuple):
    """A kind of section; its template is `sections/<name>.mjml`.

    The template renders the content of one column, or complete `mj-section` elements if `is_whole`. `is_in_columns`
    means that columns may contain the kind, `is_on_page` that its default background is the page's. `padding` is in
    pixels: top, right, bottom, left. `icon` is the name of a symbol in `static/icons.svg`. `text` returns the plain
    text of a section. `matches` recognises a section without a type by its properties.
    """

    name: str
    label: str
    icon: str
    props: tuple[Prop, ...]
    text: Callable[[View], str]
    is_whole: bool = False
    is_in_columns: bool = False
    is_on_page: bool = False
    padding: tuple[int, int, int, int] = (12, 32, 12, 32)
    # Yields advice about a section.
    advise: Callable[[View], Iterator[Finding]] = lambda view: iter(())
    matches: Callable[[dict[str, Any]], bool] = lambda props: False
    # Recognises a section by less specific properties, if no kind's `matches` did.
    matches_loosely: Callable[[dict[str, Any]], bool] = lambda props: False
    # The properties of a section that the editor adds, where the defaults would leave it empty.
    initial_props: dict[str, Any] = {}

    def all_props(self) -> tuple[Prop, ...]:
        """Return the kind's own properties, then the common ones.

        A common property is left out if the kind declares one with the same name, such as the `name` of a product.
        """
        own_names = {prop.name for prop in self.props}
        return (*self.props, *(prop for prop in COMMON if prop.name not in own_names))

    def describe(self) -> dict[str, Any]:
        """Return the declaration as `/templates/spec` shows it."""
        return {
            "type": self.name, "label": self.label, "icon": self.icon, "in_columns": self.is_in_columns,
            "props": [prop.describe() for prop in self.all_props()], "styles": [style.describe() for style in STYLES],
            "defaults": {prop.name: prop.default for prop in self.all_props() if prop.default is not None},
            "padding": list(self.padding),
        }  # fmt: skip
