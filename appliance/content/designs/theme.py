"""How a mail looks where its sections do not say: theme of the document over brand over what is built in."""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from appliance.content.designs import colours
from appliance.content.designs.props import Prop, choice, colour, image, line, number

_FAMILY = re.compile(r"[A-Za-z0-9][A-Za-z0-9 \-]{0,60}\Z")
_WIDTH = re.compile(r"\d{1,6}(?:\.\d*)?\Z", re.ASCII)
_SERIF = ("georgia", "times", "times new roman", "palatino", "garamond", "cambria", "merriweather", "playfair display")
_MONO = ("courier", "courier new", "menlo", "monaco", "consolas")
# What every machine has; the first that a reader's machine knows is used
SANS = "-apple-system, 'Segoe UI', Roboto, Helvetica, Arial, sans-serif"
# Families that readers' machines have, or that look well where they stand in: offered where a font is chosen
FONTS = ("Arial", "Georgia", "Helvetica", "Tahoma", "Times New Roman", "Trebuchet MS", "Verdana", "Courier New")
WIDTH, NARROWEST, WIDEST = 600, 480, 720
# How round buttons are, in pixels; who wants another number says it at the button
SHAPES = {"rounded": 8, "square": 0, "pill": 40}
THEME: tuple[Prop, ...] = (
    colour("brand_color", "Brand colour", help="buttons, links, signs"),
    colour("text_color", "Text colour"),
    colour("bg_color", "Page colour", help="around the sections"),
    line("font_heading", "Font of headings"),
    line("font_body", "Font of text"),
    choice("button_shape", "Buttons", *SHAPES, default=None),
    image("logo_url", "Logo"),
    number("width", "Width", WIDTH, NARROWEST, WIDEST),
)


class Look(NamedTuple):
    """What of a brand shows in a mail."""

    company_name: str = ""
    physical_address: str | None = None
    brand_color: str | None = None
    text_color: str | None = None
    bg_color: str | None = None
    font_heading: str | None = None
    font_body: str | None = None
    logo_url: str | None = None
    links: tuple[tuple[str, str], ...] = ()  # (platform or title, address)
    theme: Mapping[str, Any] = {}
    header: Mapping[str, Any] = {}
    footer: Mapping[str, Any] = {}


class Palette(NamedTuple):
    """Colours by what they are for, each `#rrggbb`."""

    page: str
    card: str
    text: str
    muted: str
    line: str
    brand: str
    on_brand: str
    link: str  # the brand's colour as words can have it


# The colours of a mail where neither it nor the brand has chosen
BUILT_IN = {"brand_color": "#3355dd", "text_color": "#22252b", "bg_color": "#f4f4f1"}


class Theme(NamedTuple):
    """A resolved theme: light and dark colours, font stacks, logo, width in pixels."""

    light: Palette
    dark: Palette
    font_body: str
    font_heading: str
    logo_url: str | None
    width: int
    radius: int

    def colour(self, value: str | None, fallback: str) -> str:
        """Resolve a colour of a document, `theme:` words included."""
        if not value:
            return fallback
        named = {"theme:brand": self.light.brand, "theme:text": self.light.text, "theme:bg": self.light.page}
        return named.get(value.strip().lower()) or colours.known(value) or fallback


def resolve(document: Mapping[str, Any], look: Look) -> Theme:
    """Return the theme of a document."""
    layers: tuple[Mapping[str, Any], ...] = (document, look.theme, look._asdict())

    def first(name: str) -> str | None:
        return next((one for layer in layers if isinstance(one := layer.get(name), str) and one.strip()), None)

    def colour(name: str, fallback: str) -> str:
        found = (colours.known(one) for layer in layers if isinstance(one := layer.get(name), str))
        return next((one for one in found if one is not None), fallback)

    light = _light(*(colour(name, plain) for name, plain in BUILT_IN.items()))
    width = next((found for layer in layers if (found := _pixels(layer.get("width"))) is not None), WIDTH)
    body = stack(first("font_body"))
    return Theme(
        light, _dark(light), body, stack(first("font_heading")) if first("font_heading") else body,
        first("logo_url"), width, SHAPES.get(first("button_shape") or "", SHAPES["rounded"]),
    )  # fmt: skip


def _pixels(value: Any) -> int | None:
    """Return a width as near to the one that a document wants as may be, or None if it wants none."""
    words = str(value).strip().lower().removesuffix("px") if not isinstance(value, bool) else ""
    return max(NARROWEST, min(WIDEST, int(words.partition(".")[0]))) if _WIDTH.match(words) else None


def _light(brand: str, text: str, page: str) -> Palette:
    card = "#ffffff" if colours.luminance(page) > 0.4 else colours.mix(page, "#ffffff", 0.08)
    text = text if colours.contrast(text, card) >= 4.5 else colours.readable_on(card)
    # Words that step back stand on cards, and in the footer on the page
    muted = colours.lifted(colours.lifted(colours.mix(text, card, 0.35), card), page)
    return Palette(
        page, card, text, muted, colours.mix(text, card, 0.85), brand, colours.readable_on(brand),
        colours.lifted(brand, card),
    )  # fmt: skip


def _dark(light: Palette) -> Palette:
    page, card = "#15171a", "#1e2125"
    brand = colours.lifted(light.brand, card, 3.0)
    return Palette(page, card, "#ecebe8", "#a9adb3", "#3a3e44", brand, colours.readable_on(brand),
                   colours.lifted(brand, card))  # fmt: skip


def stack(name: str | None) -> str:
    """Return a font stack for a family's name; anything that is no such name is the system's own."""
    first = (name or "").split(",")[0].strip().strip("'\"")
    if not _FAMILY.match(first):
        return SANS
    low = first.lower()
    rest = "Georgia, serif" if low in _SERIF else "Menlo, Consolas, monospace" if low in _MONO else SANS
    return f"'{first}', {rest}" if " " in first else f"{first}, {rest}"
