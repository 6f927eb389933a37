"""Sanitize HTML by allow-lists: rich texts, fragments, style rules and pasted documents (docs/threats.md, T03)."""

import re
from collections import Counter
from collections.abc import Iterator
from html import escape
from typing import NamedTuple

import css_inline
import nh3

from appliance.content.designs import complexity, markup
from appliance.content.designs.markup import Tokens

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
# The allowed CSS properties: none of them loads a resource, runs code, or places an element over other content.
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
_CSS_URL = re.compile(r"url\s*\(|expression\s*\(|@import|\\|behavior\s*:|-moz-binding", re.IGNORECASE)


def _filter_attribute(tag: str, name: str, value: str) -> str | None:
    if name == "style" and _CSS_URL.search(value):
        return None
    if name == "background" and not value.lower().startswith(("http://", "https://")):
        return None
    return value


def _to_plain_paragraphs(html: str) -> str:
    # The merge tags are tokens; what looks like one was written with character references.
    return markup.plain_text_to_html(markup.html_to_text(html))


def clean_text(html: str) -> str:
    """Return sanitized rich text: paragraphs, emphasis, links and lists.

    HTML that is too complex becomes plain paragraphs.
    """
    if complexity.is_too_complex(html):
        return _to_plain_paragraphs(html)

    return nh3.clean(
        html, tags=_TEXT_TAGS, attributes=_TEXT_ATTRIBUTES, url_schemes=_SCHEMES, link_rel=None,
        attribute_filter=_filter_attribute,
        filter_style_properties={"color", "text-align", "font-weight", "font-style"},
    )  # fmt: skip


def clean_fragment(html: str, comments: bool = False) -> str:
    """Return a sanitized HTML fragment, with tables, pictures and styles allowed.

    HTML that is too complex becomes plain paragraphs. `comments` keeps the comments; the caller must check them.
    """
    if complexity.is_too_complex(html):
        return _to_plain_paragraphs(html)

    return nh3.clean(
        html, tags=_TAGS, attributes=_ATTRIBUTES, url_schemes=_SCHEMES, link_rel=None,
        attribute_filter=_filter_attribute,
        filter_style_properties=_STYLES, strip_comments=not comments,
    )  # fmt: skip


def clean_css(text: str) -> str:
    """Return style rules without those that load a resource or run code; empty if the braces are unbalanced."""
    rules = [part for part in re.split(r"(?<=\})", text.replace("<", "")) if not _CSS_URL.search(part)]
    cleaned = "".join(rules)
    return cleaned if cleaned.count("{") == cleaned.count("}") else ""


# Browsers write the same rich text differently; it is stored in one form.

_SYNONYMS = {"b": "strong", "i": "em"}
_SYNONYM_TAG = re.compile(r"<(/?)(b|i)(?=[\s>])")
_INLINE_TAG = re.compile(r"</(strong|em|u|s|span|sub|sup|code)>|<(strong|em|u|s|span|sub|sup|code)(?:\s[^<>]*)?>")
_EMPTY_PARAGRAPH = re.compile(r"<p>(?:\s|&nbsp;|<br>)*+</p>\s*+")


def normalize_rich_text(html: str) -> str:
    """Return rich text in its stored form, with merge tags unchanged; text without HTML is returned as it is.

    Sanitizes, replaces `b` and `i` with `strong` and `em`, and removes empty elements and trailing empty paragraphs. A
    repeated call changes nothing.
    """
    tokens = Tokens()
    text = tokens.protect(html)
    if not markup.is_html(text):
        return html
    normalized = _SYNONYM_TAG.sub(lambda match: f"<{match[1]}{_SYNONYMS[match[2]]}", clean_text(text))
    normalized = _strip_trailing_paragraphs(_remove_empty_elements(normalized))
    return tokens.restore(tokens.escape_braces(normalized))


def _remove_empty_elements(html: str) -> str:
    """Return sanitized HTML without inline elements that are empty or only have empty elements in them."""
    pieces: list[tuple[str, str | None]] = []  # HTML, and the tag name if it is a start tag
    position = 0
    for match in _INLINE_TAG.finditer(html):
        if position < match.start():
            pieces.append((html[position : match.start()], None))
        position = match.end()
        if match[1] and pieces and pieces[-1][1] == match[1]:
            pieces.pop()
        else:
            pieces.append((match[0], match[2]))
    return "".join(piece for piece, _ in pieces) + html[position:]


def _strip_trailing_paragraphs(html: str) -> str:
    """Return HTML without the empty paragraphs at its end."""
    start = end = 0
    for match in _EMPTY_PARAGRAPH.finditer(html):
        if match.start() != end:
            start = match.start()
        end = match.end()
    return html[:start] if end == len(html) else html


# Pasted documents: sanitized, with their style rules inlined and their merge tags unchanged.
#
# Some mail clients drop style blocks, so rules are written into the `style` attributes of elements. Rules for small
# screens and dark mode stay in the head. Nothing is read from files or the network. Any input gives an email, in
# bounded time.

# Style sheets: separating rules that can be inlined from rules that only work in the head.

_CSS_COMMENT = re.compile(r"/\*.*?(?:\*/|\Z)|<!--|-->", re.DOTALL)
# A statement that a brace interrupts is none. The pattern matches up to the brace, so that the text is read only once.
_STATEMENT = re.compile(r"@(?:charset|import|namespace)\b[^;{}]*+(;|\Z)?", re.IGNORECASE)
# Selectors that cannot be inlined: pseudo-classes, attributes, and hacks for certain mail clients.
_ONLY_IN_HEAD = re.compile(r":|\[|\.ExternalClass|^\s*u\s*\+")
_KEPT_AT_RULES = ("@media", "@supports")
# The time to match a selector grows with its parts; no email needs a longer one.
_MAX_SELECTOR_CHARACTERS = 300
_MAX_CHARACTERS = 100_000


class StyleSheet(NamedTuple):
    """The rules to inline, the rules to keep in the head, and the number of selectors of the rules to inline."""

    inline_rules: str
    head_rules: str
    selectors: int


def read_style_sheet(css: str) -> StyleSheet:
    """Read a style sheet; rules that are not closed, or that load a resource or run code, are left out.

    At most `_MAX_CHARACTERS` are read.
    """
    write: list[str] = []
    keep: list[str] = []
    selectors = 0
    css = _CSS_COMMENT.sub(" ", css[:_MAX_CHARACTERS])
    css = _STATEMENT.sub(lambda match: match[0] if match[1] is None else "", css)
    for selector, block in _iterate_rules(css):
        rule = clean_css(selector + block).strip()
        if not rule or len(selector) > _MAX_SELECTOR_CHARACTERS * 20:
            continue
        if selector.startswith("@"):
            if selector.lower().startswith(_KEPT_AT_RULES):
                keep.append(rule)
        elif _ONLY_IN_HEAD.search(selector) or any(
            len(selector_part) > _MAX_SELECTOR_CHARACTERS for selector_part in selector.split(",")
        ):
            keep.append(rule)
        else:
            write.append(rule)
            selectors += selector.count(",") + 1
    return StyleSheet("\n".join(write), "\n".join(keep), selectors)


def _iterate_rules(css: str) -> Iterator[tuple[str, str]]:
    """Yield each top-level rule as its selectors and its block with braces; a rule that is not closed is left out."""
    depth = start = block_start = 0
    for match in re.finditer(r"[{}]", css):
        if match[0] == "{":
            if not depth:
                block_start = match.start()
            depth += 1
        elif depth:
            depth -= 1
            if not depth:
                yield css[start:block_start].strip(), css[block_start : match.end()]
                start = match.end()
        else:
            start = match.end()


# Conditional comments for Outlook (`<!--[if mso]>`) are kept if they contain only layout elements.
#
# They often contain only the start or end tags of tables, which an HTML parser cannot sanitize, so each tag is checked
# separately.

_CONDITIONAL_COMMENT = re.compile(r"<!--(.*?)(?:-->|\Z)", re.DOTALL)
_CONDITION = re.compile(r"\[if [a-zA-Z0-9 .|&()!]{1,60}\]>(.*)<!\[endif\]\Z", re.DOTALL)
# The comments that begin and end content for all clients other than Outlook.
_CONDITION_HALF = re.compile(r"\[if !mso[a-zA-Z0-9 .|&()!]{0,40}\]><!(?:-- ?)?|<!\[endif\]", re.DOTALL)
_CONDITIONAL_TAG = re.compile(
    r"/?((?:[vow]:)?[a-zA-Z][a-zA-Z0-9]*)((?:\s+[a-zA-Z][a-zA-Z:-]*=(?:\"[^\"<>]*\"|'[^'<>]*'))*)\s*/?>[^<>]*"
)
_ATTRIBUTE = re.compile(r"\s([a-zA-Z][a-zA-Z:-]*)=(?:\"([^\"]*)\"|'([^']*)')")
_CONDITIONAL_NAMES = {
    "table", "tbody", "tr", "td", "center", "div", "p", "br", "span", "a", "b", "i", "strong", "font", "img", "xml",
    "v:rect", "v:roundrect", "v:fill", "v:textbox", "v:image", "v:stroke", "v:shape", "v:oval", "v:background",
    "w:anchorlock", "o:officedocumentsettings", "o:allowpng", "o:pixelsperinch", "o:lock",
}  # fmt: skip
_HARMFUL = re.compile(r"script:|expression\s*\(|url\s*\(|@import|\\|behavior|binding|data:", re.IGNORECASE)
_SAFE_ADDRESS = re.compile(r"\s*(?:https?:|mailto:|tel:|#|\Z)", re.IGNORECASE)
_MAX_CONDITIONAL_CHARACTERS = 5_000


class ConditionalComments:
    """The conditional comments of a document, which are replaced with tokens while the rest is sanitized.

    Call `extract` before sanitizing and `restore` after it.
    """

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._words: set[str] = set()

    def extract(self, html: str) -> str:
        """Replace each conditional comment for layout with a comment that holds a token; remove all other comments."""
        return _CONDITIONAL_COMMENT.sub(self._token, html)

    def _token(self, match: re.Match[str]) -> str:
        if not self._is_layout(match[1]):
            return ""
        word = self._tokens.keep_html(match[1])
        self._words.add(word)
        return f"<!--{word}-->"

    def restore(self, html: str) -> str:
        """Return sanitized HTML without comments other than those that `extract` kept; their texts are still tokens."""
        return _CONDITIONAL_COMMENT.sub(lambda match: match[0] if match[1] in self._words else "", html)

    def _is_layout(self, comment: str) -> bool:
        if _CONDITION_HALF.fullmatch(comment):
            return True
        asks = _CONDITION.match(comment)
        if asks is None or len(comment) > _MAX_CONDITIONAL_CHARACTERS or "--" in asks[1]:
            return False
        first, *pieces = asks[1].split("<")
        return ">" not in first and all(self._is_harmless(piece) for piece in pieces)

    def _is_harmless(self, piece: str) -> bool:
        match = _CONDITIONAL_TAG.fullmatch(piece)
        if match is None or match[1].lower() not in _CONDITIONAL_NAMES:
            return False
        for attribute in _ATTRIBUTE.finditer(match[2]):
            name, value = attribute[1].lower(), attribute[2] if attribute[2] is not None else attribute[3]
            if name.startswith("on") or (_HARMFUL.search(value) and not name.startswith("xmlns")):
                return False
            if name in ("href", "src") and not (_SAFE_ADDRESS.match(value) or self._tokens.starts(value)):
                return False
        return True


_STYLE = re.compile(r"<style\b[^<>]*>(.*?)(?:</style\s*>|\Z)", re.IGNORECASE | re.DOTALL)
_TITLE = re.compile(r"<title\b[^<>]*>([^<]*)(?:</title\s*>)?", re.IGNORECASE)
_HTML = re.compile(r"<html\b([^<>]*)>", re.IGNORECASE)
_BODY = re.compile(r"<body\b([^<>]*)>", re.IGNORECASE)
_HEAD = re.compile(r"<head\b[^<>]*>(.*?)(?:</head\s*>|(?=<body\b)|\Z)", re.IGNORECASE | re.DOTALL)
_BODY_TAG = re.compile(r"<body([^<>]*)>")
_LANGUAGE = re.compile(r"[A-Za-z0-9\-]{1,35}")
# The attributes of a body are sanitized as those of a table, which may have the same attributes.
_TABLE_TAG = re.compile(r"<table([^<>]*)>")
# The limit of elements times selectors; beyond it the rules are not inlined and stay in the head.
_MAX_MATCHES = 1_000_000
# The approximate limit of inlined styles. Gmail clips an email at a fortieth of this length.
_MAX_WRITTEN_CHARACTERS = 4_000_000
_NAME = re.compile(r"[\w-]+")
# The inliner compares each declaration with all properties that its element has so far. No email has that many.
_MAX_PROPERTIES = 250
_DECLARATION_END = re.compile(r"[;{}]")


class _DocumentParts(NamedTuple):
    """The parts of a pasted document, not yet sanitized."""

    root: str  # the attributes of the html element
    title: str
    body: str  # the attributes of the body element
    conditions: str  # the conditional comments of the head, for Outlook
    content: str
    sheet: StyleSheet


class _CleanBody(NamedTuple):
    """A sanitized body: its attributes, its content, and whether no style rules are left to inline."""

    attributes: str
    content: str
    is_inlined: bool


def clean_document(html: str, locale: str = "en") -> str:
    """Return a pasted document as a sanitized HTML document; a fragment without style rules stays a fragment.

    `locale` is the language if the document has no valid `lang`.
    """
    html = html.encode("utf-8", "replace").decode().replace("\x00", "")
    tokens = Tokens()
    comments = ConditionalComments(tokens)
    source = comments.extract(_STYLE.sub(_uncomment_style, tokens.protect(html)))
    if not any(pattern.search(source) for pattern in (_HTML, _BODY, _HEAD, _STYLE)):
        return tokens.restore_html(comments.restore(clean_fragment(source, comments=True)))
    parts = _split_document(source)
    body = _clean_body(parts)
    rules = parts.sheet.head_rules if body.is_inlined else f"{parts.sheet.inline_rules}\n{parts.sheet.head_rules}"
    head = (f"<title>{escape(parts.title)}</title>" if parts.title else "") + parts.conditions
    head += f"<style>{tokens.separate_braces(rules)}</style>" if rules.strip() else ""
    return tokens.restore_html(
        f"<!doctype html>\n<html{_html_attributes(parts.root, locale)}>\n"
        '<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f"{head}</head>\n<body{body.attributes}>{comments.restore(body.content)}</body>\n</html>\n"
    )


def _uncomment_style(match: re.Match[str]) -> str:
    # Old documents put style rules in comments, to hide them from browsers without CSS.
    return match[0].replace("<!--", "").replace("-->", "")


def _split_document(html: str) -> _DocumentParts:
    sheet = read_style_sheet("\n".join(match[1] for match in _STYLE.finditer(html)))
    html = _STYLE.sub("", html)
    root, body, head = _HTML.search(html), _BODY.search(html), _HEAD.search(html)
    title = _TITLE.search(html)
    content = html[body.end() :] if body else _HEAD.sub("", html)
    return _DocumentParts(
        root[1] if root else "", " ".join(markup.html_to_text(title[1]).split()) if title else "",
        body[1] if body else "", "".join(markup.find_comments(head[1])) if head else "", _TITLE.sub("", content), sheet,
    )  # fmt: skip


def _html_attributes(attributes: str, locale: str) -> str:
    language = markup.get_attribute(attributes, "lang")
    direction = markup.get_attribute(attributes, "dir").lower()
    language_code = language if _LANGUAGE.fullmatch(language) else locale
    return f' lang="{escape(language_code)}"' + (f' dir="{direction}"' if direction in ("ltr", "rtl") else "")


def _clean_body(parts: _DocumentParts) -> _CleanBody:
    """Sanitize the body, inline the style rules, and sanitize the result again.

    The rules are not inlined if that would take too long or make the email too long, or if inlining fails.
    """
    attributes, content = _clean_attributes(parts.body), clean_fragment(parts.content, comments=True)
    sheet = parts.sheet
    if (
        not sheet.inline_rules
        or content.count("<") * sheet.selectors > _MAX_MATCHES
        or _count_properties(sheet.inline_rules) > _MAX_PROPERTIES
        or _exceeds_written_limit(sheet, content)
    ):
        return _CleanBody(attributes, content, not sheet.inline_rules)
    inliner = css_inline.CSSInliner(keep_at_rules=True, load_remote_stylesheets=False, extra_css=sheet.inline_rules)
    try:
        inlined = inliner.inline(f"<html><head></head><body{attributes}>{content}</body></html>")
    except css_inline.InlineError:
        return _CleanBody(attributes, content, False)
    match, end = _BODY_TAG.search(inlined), inlined.rfind("</body>")
    if match is None or end < match.end():
        return _CleanBody(attributes, content, False)
    inlined_content = clean_fragment(inlined[match.end() : end], comments=True)
    return _CleanBody(_clean_attributes(match[1]), inlined_content, True)


def _count_properties(rules: str) -> int:
    """Return the number of different properties in style rules; a selector counts as one, too, if it has a colon."""
    return len({part.partition(":")[0].strip() for part in _DECLARATION_END.split(rules) if ":" in part})


def _exceeds_written_limit(sheet: StyleSheet, content: str) -> bool:
    """Return whether inlined rules would exceed `_MAX_WRITTEN_CHARACTERS`.

    The estimate assumes that a rule matches every occurrence of the last class, id or tag of its selector.
    """
    name_counts = Counter(_NAME.findall(content.lower()))  # selectors may name elements in any case
    element_count, characters = content.count("<"), 0
    for selectors, block in _iterate_rules(sheet.inline_rules):
        for selector in selectors.split(","):
            names = _NAME.findall(selector.lower())
            characters += len(block) * (
                element_count if not names or selector.rstrip().endswith("*") else name_counts[names[-1]]
            )
        if characters > _MAX_WRITTEN_CHARACTERS:
            return True
    return False


def _clean_attributes(attributes: str) -> str:
    match = _TABLE_TAG.match(clean_fragment(f"<table {attributes}></table>"))
    return match[1] if match else ""
