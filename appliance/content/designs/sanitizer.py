"""Sanitize HTML by allow-lists: rich texts, fragments, style rules and pasted documents (docs/threats.md, T03).

The parser follows the HTML standard, as browsers do (section 13.2), and a few kilobytes of hostile HTML can take it
hours and all memory. So HTML that is not small is sanitized in a child process (`limited_process`), and HTML that
exceeds the limits there becomes plain paragraphs.
"""

import contextlib
import logging
import re
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from hashlib import blake2b
from html import escape
from typing import Literal, NamedTuple

import css_inline
import msgspec
import nh3
from cachetools import LRUCache, cached
from msgspec import Struct

from appliance.content.designs import markup
from appliance.content.designs.markup import Tokens
from appliance.content.designs.merge_limits import MAX_OUTPUT_BYTES
from appliance.core import limited_process
from appliance.core.i18n import gettext_noop
from appliance.core.limited_process import LimitedProcess, LimitExceeded

log = logging.getLogger("campanero.designs")

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
# An image may also be a file of the same message (RFC 2392).
_IMAGE_SCHEMES = _SCHEMES | {"cid"}
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
    if value.strip()[:4].lower() == "cid:" and (tag, name) != ("img", "src"):
        return None
    if name == "background" and not value.lower().startswith(("http://", "https://")):
        return None
    return value


def clean_text(html: str) -> str:
    """Return sanitized rich text: paragraphs, emphasis, links and lists.

    HTML that is too complex becomes plain paragraphs. Raises Unavailable if it cannot be sanitized now.
    """
    return _clean(Task("text", html))


def _sanitize_text(html: str) -> str:
    return nh3.clean(
        html, tags=_TEXT_TAGS, attributes=_TEXT_ATTRIBUTES, url_schemes=_SCHEMES, link_rel=None,
        attribute_filter=_filter_attribute,
        filter_style_properties={"color", "text-align", "font-weight", "font-style"},
    )  # fmt: skip


def clean_fragment(html: str) -> str:
    """Return a sanitized HTML fragment, with tables, pictures and styles allowed.

    HTML that is too complex becomes plain paragraphs. Raises Unavailable if it cannot be sanitized now.
    """
    return _clean(Task("fragment", html))


def _sanitize_fragment(html: str, comments: bool = False) -> str:
    """Return a sanitized fragment. `comments` keeps the comments; the caller must check them."""
    return nh3.clean(
        html, tags=_TAGS, attributes=_ATTRIBUTES, url_schemes=_IMAGE_SCHEMES, link_rel=None,
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
    tokens = Tokens(html)
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
# screens and dark mode stay in the head. Nothing is read from files or the network. Any input gives an email.

# Style sheets: separating rules that can be inlined from rules that only work in the head.

_CSS_COMMENT = re.compile(r"/\*.*?(?:\*/|\Z)|<!--|-->", re.DOTALL)
# A statement that a brace interrupts is invalid. The pattern matches up to the brace, so that the text is read only
# once.
_STATEMENT = re.compile(r"@(?:charset|import|namespace)\b[^;{}]*+(;|\Z)?", re.IGNORECASE)
# Selectors that cannot be inlined: pseudo-classes, attributes, and hacks for certain mail clients.
_ONLY_IN_HEAD = re.compile(r":|\[|\.ExternalClass|^\s*u\s*\+")
_KEPT_AT_RULES = ("@media", "@supports")
_MAX_CHARACTERS = 100_000


class StyleSheet(NamedTuple):
    """The rules to inline and the rules to keep in the head."""

    inline_rules: str
    head_rules: str


def read_style_sheet(css: str) -> StyleSheet:
    """Read a style sheet; rules that are not closed, or that load a resource or run code, are left out.

    At most `_MAX_CHARACTERS` are read.
    """
    write: list[str] = []
    keep: list[str] = []
    css = _CSS_COMMENT.sub(" ", css[:_MAX_CHARACTERS])
    css = _STATEMENT.sub(lambda match: match[0] if match[1] is None else "", css)
    for selector, block in _iterate_rules(css):
        rule = clean_css(selector + block).strip()
        if not rule:
            continue
        if selector.startswith("@"):
            if selector.lower().startswith(_KEPT_AT_RULES):
                keep.append(rule)
        elif _ONLY_IN_HEAD.search(selector):
            keep.append(rule)
        else:
            write.append(rule)
    return StyleSheet("\n".join(write), "\n".join(keep))


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
        condition = _CONDITION.match(comment)
        if condition is None or len(comment) > _MAX_CONDITIONAL_CHARACTERS or "--" in condition[1]:
            return False
        first, *pieces = condition[1].split("<")
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

    `locale` is the language if the document has no valid `lang`. The rules of a document that is too complex stay in
    its head; if it is too complex even then, it becomes plain paragraphs. Raises Unavailable if it cannot be sanitized
    now.
    """
    html = html.encode("utf-8", "replace").decode().replace("\x00", "")
    has_rules = _STYLE.search(html) is not None
    if _is_small(html) and not has_rules:
        return _sanitize_document(html, locale)
    cleaned = _run_in_child(Task("document", html, locale))
    if cleaned is None and has_rules:
        cleaned = _run_in_child(Task("document", html, locale, inlines=False))
    if cleaned is None:
        tokens = Tokens()
        cleaned = tokens.restore_html(_to_plain_paragraphs(tokens.protect(html)))
    return cleaned


def _sanitize_document(html: str, locale: str, inlines: bool = True) -> str:
    """Return a pasted document as `clean_document` does; without `inlines`, all rules stay in its head."""
    tokens = Tokens()
    comments = ConditionalComments(tokens)
    source = comments.extract(_STYLE.sub(_uncomment_style, tokens.protect(html)))
    if not any(pattern.search(source) for pattern in (_HTML, _BODY, _HEAD, _STYLE)):
        return tokens.restore_html(comments.restore(_sanitize_fragment(source, comments=True)))
    parts = _split_document(source)
    body = _clean_body(parts, inlines)
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


def _clean_body(parts: _DocumentParts, inlines: bool) -> _CleanBody:
    """Sanitize the body, inline the style rules, and sanitize the result again.

    The rules are not inlined if inlining fails, or without `inlines`.
    """
    attributes, content = _clean_attributes(parts.body), _sanitize_fragment(parts.content, comments=True)
    rules = parts.sheet.inline_rules
    if not rules or not inlines:
        return _CleanBody(attributes, content, not rules)
    inliner = css_inline.CSSInliner(keep_at_rules=True, load_remote_stylesheets=False, extra_css=rules)
    try:
        inlined = inliner.inline(f"<html><head></head><body{attributes}>{content}</body></html>")
    except css_inline.InlineError:
        return _CleanBody(attributes, content, False)
    match, end = _BODY_TAG.search(inlined), inlined.rfind("</body>")
    if match is None or end < match.end():
        return _CleanBody(attributes, content, False)
    inlined_content = _sanitize_fragment(inlined[match.end() : end], comments=True)
    return _CleanBody(_clean_attributes(match[1]), inlined_content, True)


def _clean_attributes(attributes: str) -> str:
    match = _TABLE_TAG.match(_sanitize_fragment(f"<table {attributes}></table>"))
    return match[1] if match else ""


# The child process, which sanitizes all HTML that is not small.

# Small HTML, as rich texts are, is sanitized without the child: at worst it takes 20 ms and 2 MB.
_MAX_SMALL_CHARACTERS, _MAX_SMALL_TAGS = 5_000, 100
# The limit of processor time: a constant and a rate, each about twenty times what real emails take. Others wait
# meanwhile, so it does not grow further: a megabyte takes 0.2 s.
_MAX_TEXT_SECONDS, _MAX_DOCUMENT_SECONDS, _MAX_SECONDS_PER_CHARACTER, _MAX_SECONDS = 0.05, 0.5, 2e-6, 2.0
_MAX_MEMORY_BYTES = 384 * 1024 * 1024
# A character of the source becomes at most five ("&amp;"); the rest is for inlined rules. A longer email is not sent.
_MAX_RESULT_PER_CHARACTER, _MAX_RESULT_CHARACTERS = 5, MAX_OUTPUT_BYTES
_MAX_CACHED_CHARACTERS = 8 * 1024 * 1024
# A design with more parts than this that are too complex is not meant for people, and each ends a child.
_MAX_REFUSED_PARTS = 5


class Task(Struct):
    """HTML to sanitize in the child process: rich text, a fragment, or a document.

    With `inlines`, the style rules of a document are written into the `style` attributes of its elements.
    """

    kind: Literal["text", "fragment", "document"]
    html: str
    locale: str = "en"
    inlines: bool = True


_process = LimitedProcess("sanitize-html", gettext_noop("HTML cannot be processed now; try again in a moment."))
# How many more parts of the design that this thread renders may be too complex (`limit_refused_parts`).
_allowed_refusals: ContextVar[list[int] | None] = ContextVar("allowed_refusals", default=None)


def _is_small(html: str) -> bool:
    return len(html) <= _MAX_SMALL_CHARACTERS and html.count("<") <= _MAX_SMALL_TAGS


def _to_plain_paragraphs(html: str) -> str:
    # The merge tags are tokens; what looks like one was written with character references.
    return markup.plain_text_to_html(markup.html_to_text(html))


@contextlib.contextmanager
def limit_refused_parts() -> Iterator[None]:
    """In a `with` block, treat HTML that is not small as too complex once `_MAX_REFUSED_PARTS` parts were."""
    token = _allowed_refusals.set([_MAX_REFUSED_PARTS])
    try:
        yield
    finally:
        _allowed_refusals.reset(token)


def _clean(task: Task) -> str:
    result = _run_task(task) if _is_small(task.html) else _run_in_child(task)
    return _to_plain_paragraphs(task.html) if result is None else result


def _run_in_child(task: Task) -> str | None:
    """Return the result of a task, or None if its HTML is too complex. Raises Unavailable."""
    allowed = _allowed_refusals.get()
    if allowed is not None and not allowed[0]:
        return None
    result = _fetch_result(task)
    if result is None and allowed is not None:
        allowed[0] -= 1
    return result


def _hash_task(task: Task) -> bytes:
    return blake2b(msgspec.msgpack.encode(task), digest_size=16).digest()


# Each render of a design sanitizes all its parts again, even when only one has changed, or one is too complex.
@cached(
    LRUCache(_MAX_CACHED_CHARACTERS, getsizeof=lambda result: 100 + len(result or "")),
    key=_hash_task,
    lock=threading.Lock(),
)
def _fetch_result(task: Task) -> str | None:
    try:
        result: str | None = _process.run(task, str | None)
    except LimitExceeded as error:
        log.info("designs: HTML of %s characters exceeded a limit: %s", len(task.html), error)
        return None
    return result


def main() -> int:
    """In the child process, run tasks until the service ends."""
    return limited_process.serve(Task, _run_task, _get_max_seconds, _MAX_MEMORY_BYTES)


def _get_max_seconds(task: Task) -> float:
    base = _MAX_DOCUMENT_SECONDS if task.kind == "document" else _MAX_TEXT_SECONDS
    return min(base + len(task.html) * _MAX_SECONDS_PER_CHARACTER, _MAX_SECONDS)


def _run_task(task: Task) -> str | None:
    """Return the sanitized HTML of a task, or None if it is too long."""
    if task.kind == "text":
        result = _sanitize_text(task.html)
    elif task.kind == "fragment":
        result = _sanitize_fragment(task.html)
    else:
        result = _sanitize_document(task.html, task.locale, task.inlines)
    limit = _MAX_RESULT_CHARACTERS + len(task.html) * _MAX_RESULT_PER_CHARACTER
    return result if len(result) <= limit else None
