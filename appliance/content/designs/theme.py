"""The appearance of an email: colours and fonts from document, brand and defaults, and the HTML around the sections."""

import re
from collections.abc import Mapping
from functools import cache, lru_cache
from html import escape
from typing import Any, NamedTuple

import mrml

from appliance.core.i18n import DEFAULT_LANGUAGE

# Colours of documents, and their contrast.

_HEX = re.compile(r"#[0-9a-fA-F]{6}\Z")
_SHORT_HEX = re.compile(r"#[0-9a-fA-F]{3}\Z")
_THEME_COLOURS = ("theme:brand", "theme:text", "theme:bg")


@lru_cache(maxsize=512)
def parse_colour(value: str) -> str | None:
    """Return a colour as `#rrggbb` from three or six hex digits or a CSS name, else None."""
    text = value.strip().lower()
    if _HEX.match(text):
        return text
    if _SHORT_HEX.match(text):
        return "#" + "".join(digit * 2 for digit in text[1:])
    from PIL import ImageColor

    if not text.isalpha():
        return None
    named = ImageColor.colormap.get(text)
    return named if isinstance(named, str) else None


def is_colour(value: str) -> bool:
    """Return whether a document may use a value as a colour; `theme:` names are allowed (docs/decisions.md#11)."""
    return value.strip().lower() in _THEME_COLOURS or parse_colour(value) is not None


def to_rgb(colour: str) -> tuple[int, int, int]:
    """Return red, green and blue of `#rrggbb`, each 0 to 255."""
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


@lru_cache(maxsize=512)
def luminance(colour: str) -> float:
    """Return the relative luminance of `#rrggbb`, from 0 (black) to 1 (white), as WCAG 2.2 defines it."""
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
              for part in (part / 255 for part in to_rgb(colour))]  # fmt: skip
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast_ratio(colour: str, other_colour: str) -> float:
    """Return the contrast ratio of two colours, from 1 to 21, as WCAG 2.2 defines it."""
    light, dark = sorted((luminance(colour), luminance(other_colour)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def mix_colours(colour: str, other_colour: str, share: float) -> str:
    """Return a mixture of two colours; `share` is the share of the second colour, from 0 to 1."""
    mixed = (round(a + (b - a) * share) for a, b in zip(to_rgb(colour), to_rgb(other_colour), strict=True))
    return "#" + "".join(f"{part:02x}" for part in mixed)


def readable_colour(background: str, preferred: str | None = None) -> str:
    """Return the preferred colour if its contrast on the background is at least 4.5.

    Otherwise return white or nearly black, whichever has more contrast.
    """
    if preferred is not None and contrast_ratio(preferred, background) >= 4.5:
        return preferred
    return max(("#ffffff", "#16181d"), key=lambda colour: contrast_ratio(colour, background))


def ensure_contrast(colour: str, background: str, ratio: float = 4.5) -> str:
    """Mix a colour with white or black, in steps of 5 %, until its contrast on the background is at least `ratio`.

    Return white or black if no mixture has that contrast.
    """
    target = max(("#ffffff", "#000000"), key=lambda end_colour: contrast_ratio(end_colour, background))
    for step in range(21):
        mixed = mix_colours(colour, target, step / 20)
        if contrast_ratio(mixed, background) >= ratio:
            return mixed
    return target


_FAMILY = re.compile(r"[A-Za-z0-9][A-Za-z0-9 \-]{0,60}\Z")
_WIDTH = re.compile(r"\d{1,6}(?:\.\d*)?\Z", re.ASCII)
_SERIF = ("georgia", "times", "times new roman", "palatino", "garamond", "cambria", "merriweather", "playfair display")
_MONO = ("courier", "courier new", "menlo", "monaco", "consolas")
# The default fonts of the common systems; clients use the first one that is installed.
SANS_STACK = "-apple-system, 'Segoe UI', Roboto, Helvetica, Arial, sans-serif"
# The font families offered in the editor: widely installed, or similar to their fallback.
FONTS = ("Arial", "Georgia", "Helvetica", "Tahoma", "Times New Roman", "Trebuchet MS", "Verdana", "Courier New")
DEFAULT_WIDTH, MIN_WIDTH, MAX_WIDTH = 600, 480, 720
# The radius of buttons by shape, in pixels.
BUTTON_RADII = {"rounded": 8, "square": 0, "pill": 40}


class Look(NamedTuple):
    """The parts of a brand that an email shows.

    `icons_url` is the address of the directory of the icons of social links; without it they are badges with letters.
    `locale` is the language of the account, in which ready-made emails are written.
    `theme`, `header` and `footer` are the brand's default properties for the theme, the header section and the footer
    section.
    """

    company_name: str = ""
    physical_address: str | None = None
    brand_color: str | None = None
    text_color: str | None = None
    bg_color: str | None = None
    font_heading: str | None = None
    font_body: str | None = None
    logo_url: str | None = None
    links: tuple[tuple[str, str], ...] = ()  # pairs of (platform or title, address)
    theme: Mapping[str, Any] = {}
    header: Mapping[str, Any] = {}
    footer: Mapping[str, Any] = {}
    icons_url: str | None = None
    locale: str = DEFAULT_LANGUAGE


class Palette(NamedTuple):
    """The colours of an email by purpose, each as `#rrggbb`."""

    page: str
    card: str
    text: str
    muted: str
    line: str
    brand: str
    on_brand: str
    link: str  # the brand colour with enough contrast for text


# The colours if neither document nor brand sets them.
DEFAULT_COLOURS = {"brand_color": "#3355dd", "text_color": "#22252b", "bg_color": "#f4f4f1"}


class Theme(NamedTuple):
    """A resolved theme: light and dark colours, CSS font stacks, and the address of the logo or None.

    `width` is the width of the email and `radius` the corner radius of buttons, both in pixels.
    """

    light: Palette
    dark: Palette
    font_body: str
    font_heading: str
    logo_url: str | None
    width: int
    radius: int

    def colour(self, value: str | None, fallback: str) -> str:
        """Return a colour of a document, such as a CSS name or `theme:brand`, as `#rrggbb` of the light palette.

        An empty or invalid value gives the fallback.
        """
        if not value:
            return fallback
        named = {"theme:brand": self.light.brand, "theme:text": self.light.text, "theme:bg": self.light.page}
        return named.get(value.strip().lower()) or parse_colour(value) or fallback


def resolve_theme(own_theme: Mapping[str, Any], look: Look) -> Theme:
    """Return the resolved theme of a document whose `theme` is `own_theme`.

    Each value is the first one of: the document's theme, the brand's theme, the brand's other fields, the default.
    Invalid colours and widths are skipped.
    """
    layers: tuple[Mapping[str, Any], ...] = (own_theme, look.theme, look._asdict())

    def first(name: str) -> str | None:
        return next((text for layer in layers if isinstance(text := layer.get(name), str) and text.strip()), None)

    def find_colour(name: str, fallback: str) -> str:
        parsed = (parse_colour(text) for layer in layers if isinstance(text := layer.get(name), str))
        return next((colour for colour in parsed if colour is not None), fallback)

    light = _light_palette(*(find_colour(name, plain) for name, plain in DEFAULT_COLOURS.items()))
    widths = (_clamp_width(layer.get("width")) for layer in layers)
    width = next((width for width in widths if width is not None), DEFAULT_WIDTH)
    body = font_stack(first("font_body"))
    return Theme(
        light, _dark_palette(light), body, font_stack(first("font_heading")) if first("font_heading") else body,
        first("logo_url"), width, BUTTON_RADII.get(first("button_shape") or "", BUTTON_RADII["rounded"]),
    )  # fmt: skip


def _clamp_width(value: Any) -> int | None:
    """Return a width in pixels within `MIN_WIDTH` and `MAX_WIDTH`, or None if the value is not a number."""
    text = str(value).strip().lower().removesuffix("px") if not isinstance(value, bool) else ""
    return max(MIN_WIDTH, min(MAX_WIDTH, int(text.partition(".")[0]))) if _WIDTH.match(text) else None


def _light_palette(brand: str, text: str, page: str) -> Palette:
    card = "#ffffff" if luminance(page) > 0.4 else mix_colours(page, "#ffffff", 0.08)
    text = text if contrast_ratio(text, card) >= 4.5 else readable_colour(card)
    # Secondary text appears on cards, and in the footer directly on the page.
    muted = ensure_contrast(ensure_contrast(mix_colours(text, card, 0.35), card), page)
    return Palette(
        page, card, text, muted, mix_colours(text, card, 0.85), brand, readable_colour(brand),
        ensure_contrast(brand, card),
    )  # fmt: skip


def _dark_palette(light: Palette) -> Palette:
    page, card = "#15171a", "#1e2125"
    brand = ensure_contrast(light.brand, card, 3.0)
    return Palette(page, card, "#ecebe8", "#a9adb3", "#3a3e44", brand, readable_colour(brand),
                   ensure_contrast(brand, card))  # fmt: skip


def font_stack(name: str | None) -> str:
    """Return a CSS font stack: a font family and a similar fallback, or the system fonts if the name is malformed."""
    first = (name or "").split(",")[0].strip().strip("'\"")
    if not _FAMILY.match(first):
        return SANS_STACK
    lowered = first.lower()
    fallback = (
        "Georgia, serif" if lowered in _SERIF else "Menlo, Consolas, monospace" if lowered in _MONO else SANS_STACK
    )
    return f"'{first}', {fallback}" if " " in first else f"{first}, {fallback}"


# The HTML document around the sections: conversion from MJML, and the styles that mail clients need in addition.
#
# Outlook for Windows renders with Word and ignores most CSS, so `mrml` writes tables for it. Gmail keeps one style
# block. Apple Mail and Outlook.com have different dark modes.

_BREAKPOINT_PIXELS = 480
# The ISO 639-1 codes of languages written from right to left.
_RIGHT_TO_LEFT_LANGUAGES = ("ar", "fa", "he", "ur", "yi", "ps", "sd", "ug", "dv")
# The texts by which `render_table` finds the rows of a column in the HTML.
_ROWS_BEGIN, _ROWS_END = "qcolumnbegins", "qcolumnends"


def is_right_to_left(locale: str) -> bool:
    """Return whether the language of a locale, such as `ar` or `he-IL`, is written from right to left."""
    return locale[:2].lower() in _RIGHT_TO_LEFT_LANGUAGES and not locale[2:3].isalpha()


def wrap_html(mjml: str, theme: Theme, locale: str) -> str:
    """Convert the MJML of the sections to a complete HTML document, with a margin above and below the sections."""
    language = re.sub(r"[^A-Za-z0-9\-]", "", locale)[:35] or "en"
    direction = "rtl" if is_right_to_left(locale) else "ltr"
    space = (
        '<mj-section css-class="c-page h-phone"><mj-column><mj-spacer height="24px" padding="0" /></mj-column>'
        "</mj-section>"
    )
    html = _mjml_to_html(f"{space}{mjml}{space}", theme, direction, f' lang="{language}" dir="{direction}"')
    head = (
        '<head><meta charset="utf-8"><meta name="color-scheme" content="light dark">'
        '<meta name="supported-color-schemes" content="light dark"><meta name="x-apple-disable-message-reformatting">'
        '<meta name="format-detection" content="telephone=no,date=no,address=no,email=no,url=no">'
    )
    html = html.replace("<head>", head, 1).replace("<body ", '<body id="body" class="c-page" ', 1)
    return html.replace(
        "</head>", f"<style>{_css(theme, direction)}</style><style>{_dark_css(theme)}</style></head>", 1
    )


@cache
def _mrml_options() -> tuple[Any, Any]:

    return mrml.ParserOptions(), mrml.RenderOptions(fonts={})  # by default, mrml links to fonts of a third party


def _mjml_to_html(mjml: str, theme: Theme, direction: str, attributes: str = "") -> str:
    light, fonts = theme.light, escape(theme.font_body)
    start = "right" if direction == "rtl" else "left"
    source = (
        f"<mjml{attributes}><mj-head><mj-attributes>"
        f'<mj-all font-family="{fonts}" />'
        f'<mj-text padding="0" font-size="16px" line-height="1.6" align="{start}" color="{light.text}" />'
        f'<mj-section padding="0" direction="{direction}" /><mj-column padding="0" direction="{direction}" />'
        '<mj-image padding="0" />'
        f'<mj-button padding="0" font-size="16px" font-weight="600" line-height="1.2" background-color="{light.brand}" '
        f'color="{light.on_brand}" inner-padding="14px 28px" />'
        f'</mj-attributes><mj-breakpoint width="{_BREAKPOINT_PIXELS}px" /></mj-head>'
        f'<mj-body width="{theme.width}px" background-color="{light.page}" css-class="c-page">{mjml}</mj-body></mjml>'
    )

    html: str = mrml.to_html(source, *_mrml_options()).content
    # Join two conditional comments for Outlook where the second begins immediately after the first.
    return html.replace("<![endif]--><!--[if mso | IE]>", "")


def render_table(mjml: str, theme: Theme, direction: str = "ltr") -> str:
    """Convert the MJML content of a column to an HTML table; "" for empty content.

    It is for cells in which MJML allows no columns.
    """
    if not mjml.strip():
        return ""
    column = f"<mj-column><mj-raw>{_ROWS_BEGIN}</mj-raw>{mjml}<mj-raw>{_ROWS_END}</mj-raw></mj-column>"
    html = _mjml_to_html(f"<mj-section>{column}</mj-section>", theme, direction)
    rows = html.partition(_ROWS_BEGIN)[2].partition(_ROWS_END)[0]
    return f'<table border="0" cellpadding="0" cellspacing="0" role="presentation" width="100%">{rows}</table>'


def _css(theme: Theme, direction: str) -> str:
    light, start = theme.light, "right" if direction == "rtl" else "left"
    phone = (
        ".h-phone{display:none!important;max-height:0!important;overflow:hidden!important}"
        ".h-desktop{display:block!important}tr.h-desktop{display:table-row!important}"
        ".c-stack{display:block!important;width:100%!important;padding-left:0!important;padding-right:0!important}"
        ".c-half{width:50%!important;max-width:50%!important}"
        ".c-pad>table>tbody>tr>td{padding-left:20px!important;padding-right:20px!important}"
        ".c-col>table>tbody>tr>td{padding-left:0!important;padding-right:0!important}"
        ".c-top{padding-top:18px!important}.c-title div{font-size:28px!important;line-height:1.2!important}"
        f".c-below{{padding-top:10px!important}}.c-below div{{text-align:{start}!important}}"
    )
    return (
        ":root{color-scheme:light dark;supported-color-schemes:light dark}"
        f".c-text a{{color:{light.link}}}.c-muted a{{color:inherit}}"
        ".h-desktop{display:none;mso-hide:all}.d-dark{display:none;mso-hide:all}"
        "u+#body a{color:inherit}"
        f"@media only screen and (max-width:{_BREAKPOINT_PIXELS - 1}px){{{phone}}}"
    )


def _dark_css(theme: Theme) -> str:
    """Return the style block for dark mode.

    Dark mode has a separate style block, because clients drop a whole style block if they cannot parse a part of it.
    """
    image_rules = ".d-light{display:none!important}.d-dark{display:block!important}"
    # Outlook.com and its apps change colours in dark mode, and mark the changed elements with `data-ogsc`.
    outlook = _dark_rules(theme.dark, "[data-ogsc] ")
    return f"@media (prefers-color-scheme:dark){{{_dark_rules(theme.dark, '')}{image_rules}}}{outlook}"


def _dark_rules(palette: Palette, prefix: str) -> str:
    def rule(selectors: str, declarations: str) -> str:
        listed = ",".join(prefix + selector for selector in selectors.split(","))
        return f"{listed}{{{declarations}}}"

    return "".join(
        (
            rule(".c-page,.c-page>table", f"background:{palette.page}!important"),
            rule(".c-card,.c-card>table,.c-card td.c-card", f"background:{palette.card}!important"),
            rule(".c-text,.c-text div,.c-text p,.c-text h1,.c-text h2,.c-text h3,.c-text li,.c-text td",
                 f"color:{palette.text}!important"),
            rule(".c-text a", f"color:{palette.link}!important"),
            rule(".c-text a.c-plain", f"color:{palette.text}!important"),
            rule(".c-muted,.c-muted div,.c-muted p,.c-muted a,.c-text .c-muted,.c-text .c-muted p",
                 f"color:{palette.muted}!important"),
            rule(".c-line,.c-line p,.c-text td.c-line", f"border-color:{palette.line}!important"),
            rule(".c-text .c-brand", f"color:{palette.link}!important"),
            rule(".c-text td.c-edge", f"border-color:{palette.brand}!important"),
            rule(".c-button td,.c-button a", f"background:{palette.brand}!important;"
                                             f"color:{palette.on_brand}!important"),
            rule(".c-outline td", f"background:transparent!important;border-color:{palette.link}!important"),
            rule(".c-outline a", f"background:transparent!important;color:{palette.link}!important"),
            rule(".c-text td.c-ink", f"background:{palette.text}!important"),
            rule(".c-text td.c-ink span", f"color:{palette.card}!important"),
            rule(".c-text td.c-ring", f"border-color:{palette.muted}!important"),
            rule(".c-text td.c-ring span", f"color:{palette.text}!important"),
            rule("td.c-bar", f"background:{palette.line}!important"),
        )
    )  # fmt: skip
