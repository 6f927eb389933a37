"""HTML that people write, by allow-list: nothing that runs, asks, frames or loads styles from elsewhere (T03)."""

import re
from collections import Counter

import nh3

from appliance.content.designs import places, plaintext

_TEXT_TAGS = {"p", "br", "strong", "b", "em", "i", "u", "s", "a", "ul", "ol", "li", "span", "sub", "sup", "code"}
_TAGS = _TEXT_TAGS | {
    "div", "h1", "h2", "h3", "h4", "h5", "h6", "blockquote", "pre", "hr", "img", "table", "thead", "tbody", "tfoot",
    "tr", "td", "th", "caption", "center", "font", "small", "figure", "figcaption", "section", "header", "footer",
    "article", "dl", "dt", "dd",
}  # fmt: skip
_EVERYWHERE = {"style", "class", "title", "align", "dir", "lang", "role", "aria-label", "aria-hidden", "id"}
_ATTRIBUTES = {
    "*": _EVERYWHERE,
    "a": {"href", "target", "name"},
    "img": {"src", "alt", "width", "height", "border"},
    "table": {"width", "height", "cellpadding", "cellspacing", "border", "bgcolor", "background"},
    "tr": {"valign", "bgcolor", "height"},
    "td": {"width", "height", "valign", "bgcolor", "colspan", "rowspan", "background", "nowrap"},
    "th": {"width", "height", "valign", "bgcolor", "colspan", "rowspan", "background"},
    "font": {"color", "face", "size"},
    "ol": {"start", "type"}, "ul": {"type"}, "hr": {"width", "size", "color"},
}  # fmt: skip
_TEXT_ATTRIBUTES = {"a": {"href", "title"}, "span": {"style"}, "p": {"style"}}
_SCHEMES = {"http", "https", "mailto", "tel", "sms"}
# What of a style may stand in a mail: no loading, no expressions, nothing that lays itself over other things
_STYLES = {
    "background", "background-color", "border", "border-bottom", "border-collapse", "border-color", "border-left",
    "border-radius", "border-right", "border-spacing", "border-style", "border-top", "border-width", "color",
    "direction", "display", "font", "font-family", "font-size", "font-style", "font-weight", "height",
    "letter-spacing", "line-height", "list-style", "list-style-type", "margin", "margin-bottom", "margin-left",
    "margin-right", "margin-top", "max-width", "min-width", "mso-line-height-rule", "mso-padding-alt", "opacity",
    "overflow", "padding", "padding-bottom", "padding-left", "padding-right", "padding-top", "text-align",
    "text-decoration", "text-indent", "text-transform", "vertical-align", "white-space", "width", "word-break",
    "word-spacing",
}  # fmt: skip
_ELEMENT = re.compile(r"<(/?)([a-zA-Z][a-zA-Z0-9]*)")
# Elements without content, and those that the next of their kind ends
_ENDED_BY_OTHERS = {
    "br", "hr", "img", "p", "li", "tr", "td", "th", "dt", "dd", "tbody", "thead", "tfoot", "meta", "link", "col", "wbr",
}  # fmt: skip
_MAX_DEPTH = 250
_MAX_ATTRIBUTES = 200
_CSS_URL = re.compile(r"url\s*\(|expression\s*\(|@import|\\|behavior\s*:|-moz-binding", re.IGNORECASE)


def _attribute(tag: str, name: str, value: str) -> str | None:
    if name == "style" and _CSS_URL.search(value):
        return None
    if name == "background" and not value.lower().startswith(("http://", "https://")):
        return None
    return value


def _is_bomb(html: str) -> bool:
    """Return whether elements are deeper or have more attributes than in any mail: parsing time is quadratic."""
    if any(one.many > _MAX_ATTRIBUTES for one in places.elements(html)):
        return True
    depth, names = 0, Counter[str]()
    for found in _ELEMENT.finditer(html):
        name = found[2].lower()
        if name in _ENDED_BY_OTHERS:
            continue
        if not found[1]:
            names[name] += 1
            depth += 1
        elif names[name]:
            names[name] -= 1
            depth -= 1
        if depth > _MAX_DEPTH:
            return True
    return False


def _flat(html: str) -> str:
    return plaintext.to_html(plaintext.from_html(html))


def text(html: str) -> str:
    """Clean the limited HTML of a text: paragraphs, emphasis, links, lists."""
    if _is_bomb(html):
        return _flat(html)

    return nh3.clean(
        html, tags=_TEXT_TAGS, attributes=_TEXT_ATTRIBUTES, url_schemes=_SCHEMES, link_rel=None,
        attribute_filter=_attribute, filter_style_properties={"color", "text-align", "font-weight", "font-style"},
    )  # fmt: skip


def fragment(html: str, comments: bool = False) -> str:
    """Clean HTML of any kind that mails are made of; comments are kept only for who looks through them afterwards."""
    if _is_bomb(html):
        return _flat(html)

    return nh3.clean(
        html, tags=_TAGS, attributes=_ATTRIBUTES, url_schemes=_SCHEMES, link_rel=None, attribute_filter=_attribute,
        filter_style_properties=_STYLES, strip_comments=not comments,
    )  # fmt: skip


def css(text: str) -> str:
    """Clean rules of a style block: those that load or run something are left out whole."""
    kept = [part for part in re.split(r"(?<=\})", text.replace("<", "")) if not _CSS_URL.search(part)]
    found = "".join(kept)
    return found if found.count("{") == found.count("}") else ""
