"""The whole mail around the sections: MJML to HTML, and what mail programs need that MJML does not know.

Outlook draws with Word and ignores most of CSS (`mrml` writes tables for it), Gmail keeps one style block, Apple Mail
and Outlook.com have dark modes of their own.
"""

import re
from functools import cache
from html import escape
from typing import Any

import mrml

from appliance.content.designs.theme import Palette, Theme

_BREAK = 480
# Right to left by script (ISO 639-1 codes of languages written so)
_RIGHT_TO_LEFT = ("ar", "fa", "he", "ur", "yi", "ps", "sd", "ug", "dv")
# What stands around the rows of a column, to find them again
_BEGIN, _END = "qcolumnbegins", "qcolumnends"


def is_right_to_left(locale: str) -> bool:
    """Return whether a language is written from right to left."""
    return locale[:2].lower() in _RIGHT_TO_LEFT and not locale[2:3].isalpha()


def wrap_html(mjml: str, theme: Theme, locale: str) -> str:
    """Return the whole mail of sections in MJML, with some of the page above and below."""
    language = re.sub(r"[^A-Za-z0-9\-]", "", locale)[:35] or "en"
    direction = "rtl" if is_right_to_left(locale) else "ltr"
    space = (
        '<mj-section css-class="c-page h-phone"><mj-column><mj-spacer height="24px" padding="0" /></mj-column>'
        "</mj-section>"
    )
    made = _convert(f"{space}{mjml}{space}", theme, direction, f' lang="{language}" dir="{direction}"')
    head = (
        '<head><meta charset="utf-8"><meta name="color-scheme" content="light dark">'
        '<meta name="supported-color-schemes" content="light dark"><meta name="x-apple-disable-message-reformatting">'
        '<meta name="format-detection" content="telephone=no,date=no,address=no,email=no,url=no">'
    )
    made = made.replace("<head>", head, 1).replace("<body ", '<body id="body" class="c-page" ', 1)
    return made.replace(
        "</head>", f"<style>{_css(theme, direction)}</style><style>{_dark_css(theme)}</style></head>", 1
    )


@cache
def _options() -> tuple[Any, Any]:

    return mrml.ParserOptions(), mrml.RenderOptions(fonts={})  # its default links to fonts of a third party


def _convert(mjml: str, theme: Theme, direction: str, attributes: str = "") -> str:
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
        f'</mj-attributes><mj-breakpoint width="{_BREAK}px" /></mj-head>'
        f'<mj-body width="{theme.width}px" background-color="{light.page}" css-class="c-page">{mjml}</mj-body></mjml>'
    )

    made: str = mrml.to_html(source, *_options()).content
    # What only Outlook reads ends and begins again between sections; once is enough
    return made.replace("<![endif]--><!--[if mso | IE]>", "")


def table(mjml: str, theme: Theme, direction: str = "ltr") -> str:
    """Return the content of one column as a table, for where MJML takes no columns: within a cell."""
    if not mjml.strip():
        return ""
    column = f"<mj-column><mj-raw>{_BEGIN}</mj-raw>{mjml}<mj-raw>{_END}</mj-raw></mj-column>"
    made = _convert(f"<mj-section>{column}</mj-section>", theme, direction)
    rows = made.partition(_BEGIN)[2].partition(_END)[0]
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
        f"@media only screen and (max-width:{_BREAK - 1}px){{{phone}}}"
    )


def _dark_css(theme: Theme) -> str:
    """Return the block of its own for dark modes: programs that cannot read a part of a block drop it whole."""
    shown = ".d-light{display:none!important}.d-dark{display:block!important}"
    # Outlook.com and its apps recolour on their own and mark what they changed
    outlook = _dark(theme.dark, "[data-ogsc] ")
    return f"@media (prefers-color-scheme:dark){{{_dark(theme.dark, '')}{shown}}}{outlook}"


def _dark(palette: Palette, before: str) -> str:
    def rule(selectors: str, declarations: str) -> str:
        listed = ",".join(before + one for one in selectors.split(","))
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
