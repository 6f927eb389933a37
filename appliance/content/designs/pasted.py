"""HTML that was made elsewhere and pasted: cleaned, its styles written into its elements, its merge tags untouched.

Mail programs drop style blocks, so rules go where they apply; rules for small screens and dark mode stay in the head.
Nothing is read from files or the network. Whatever comes in, a mail comes out, in bounded time.
"""

import re
from collections import Counter
from collections.abc import Iterator
from html import escape
from typing import NamedTuple

import css_inline

from appliance.content.designs import cleaning, plaintext
from appliance.content.designs.tags import Tokens

# Style sheets taken apart: rules that can stand in an element, and those that only work in the head.

_CSS_COMMENT = re.compile(r"/\*.*?(?:\*/|\Z)|<!--|-->", re.DOTALL)
_STATEMENT = re.compile(r"@(?:charset|import|namespace)\b[^;{}]*(?:;|\Z)", re.IGNORECASE)
# What a program marks or a pointer does, and what only some programs understand, cannot be written into an element
_ONLY_IN_HEAD = re.compile(r":|\[|\.ExternalClass|^\s*u\s*\+")
_KEPT = ("@media", "@supports")
# Enough for any mail; the time a selector takes grows with its parts
_MAX_SELECTOR_CHARACTERS = 300
_MAX_CHARACTERS = 100_000


class Sheet(NamedTuple):
    """Rules to write into elements, rules to keep in the head, and how many selectors the first ones have."""

    to_write: str
    to_keep: str
    selectors: int


def read_sheet(css: str) -> Sheet:
    """Take a sheet apart; what loads or runs something, and what does not end, is left out."""
    write: list[str] = []
    keep: list[str] = []
    selectors = 0
    for before, block in _rules(_STATEMENT.sub("", _CSS_COMMENT.sub(" ", css[:_MAX_CHARACTERS]))):
        rule = cleaning.css(before + block).strip()
        if not rule or len(before) > _MAX_SELECTOR_CHARACTERS * 20:
            continue
        if before.startswith("@"):
            if before.lower().startswith(_KEPT):
                keep.append(rule)
        elif _ONLY_IN_HEAD.search(before) or any(len(one) > _MAX_SELECTOR_CHARACTERS for one in before.split(",")):
            keep.append(rule)
        else:
            write.append(rule)
            selectors += before.count(",") + 1
    return Sheet("\n".join(write), "\n".join(keep), selectors)


def _rules(css: str) -> Iterator[tuple[str, str]]:
    """Yield what stands before each block, and the block."""
    depth = start = opened = 0
    for found in re.finditer(r"[{}]", css):
        if found[0] == "{":
            if not depth:
                opened = found.start()
            depth += 1
        elif depth:
            depth -= 1
            if not depth:
                yield css[start:opened].strip(), css[opened : found.end()]
                start = found.end()
        else:
            start = found.end()


# Comments that only Outlook reads (`<!--[if mso]>`): kept where they are nothing but layout, like all else dropped.
#
# They hold halves of tables, so no parser of HTML can clean them; each piece is looked at by itself instead.

_CONDITIONAL_COMMENT = re.compile(r"<!--(.*?)(?:-->|\Z)", re.DOTALL)
_ASKS = re.compile(r"\[if [a-zA-Z0-9 .|&()!]{1,60}\]>(.*)<!\[endif\]\Z", re.DOTALL)
# The two halves around what all others read
_HALVES = re.compile(r"\[if !mso[a-zA-Z0-9 .|&()!]{0,40}\]><!(?:-- ?)?|<!\[endif\]", re.DOTALL)
_PIECE = re.compile(
    r"/?((?:[vow]:)?[a-zA-Z][a-zA-Z0-9]*)((?:\s+[a-zA-Z][a-zA-Z:-]*=(?:\"[^\"<>]*\"|'[^'<>]*'))*)\s*/?>[^<>]*"
)
_ATTRIBUTE = re.compile(r"([a-zA-Z][a-zA-Z:-]*)=(?:\"([^\"]*)\"|'([^']*)')")
_NAMES = {
    "table", "tbody", "tr", "td", "center", "div", "p", "br", "span", "a", "b", "i", "strong", "font", "img", "xml",
    "v:rect", "v:roundrect", "v:fill", "v:textbox", "v:image", "v:stroke", "v:shape", "v:oval", "v:background",
    "w:anchorlock", "o:officedocumentsettings", "o:allowpng", "o:pixelsperinch", "o:lock",
}  # fmt: skip
_HARMFUL = re.compile(r"script:|expression\s*\(|url\s*\(|@import|\\|behavior|binding|data:", re.IGNORECASE)
_LEADS = re.compile(r"\s*(?:https?:|mailto:|tel:|#|\Z)", re.IGNORECASE)
_MAX_CONDITIONAL_CHARACTERS = 5_000


class Kept:
    """The comments of one document that stay, each under a word while the rest is cleaned."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._words: set[str] = set()

    def take(self, html: str) -> str:
        """Return HTML where the comments that stay hold only their word, and the others are gone."""
        return _CONDITIONAL_COMMENT.sub(self._word, html)

    def _word(self, found: re.Match[str]) -> str:
        if not self._is_layout(found[1]):
            return ""
        word = self._tokens.keep(found[1])
        self._words.add(word)
        return f"<!--{word}-->"

    def give(self, html: str) -> str:
        """Return cleaned HTML with the comments that stay, and no others."""
        return _CONDITIONAL_COMMENT.sub(lambda found: found[0] if found[1] in self._words else "", html)

    def _is_layout(self, comment: str) -> bool:
        if _HALVES.fullmatch(comment):
            return True
        asks = _ASKS.match(comment)
        if asks is None or len(comment) > _MAX_CONDITIONAL_CHARACTERS or "--" in asks[1]:
            return False
        first, *pieces = asks[1].split("<")
        return ">" not in first and all(self._is_harmless(piece) for piece in pieces)

    def _is_harmless(self, piece: str) -> bool:
        found = _PIECE.fullmatch(piece)
        if found is None or found[1].lower() not in _NAMES:
            return False
        for one in _ATTRIBUTE.finditer(found[2]):
            name, value = one[1].lower(), one[2] if one[2] is not None else one[3]
            if name.startswith("on") or (_HARMFUL.search(value) and not name.startswith("xmlns")):
                return False
            if name in ("href", "src") and not (_LEADS.match(value) or self._tokens.starts(value)):
                return False
        return True


_STYLE = re.compile(r"<style\b[^<>]*>(.*?)(?:</style\s*>|\Z)", re.IGNORECASE | re.DOTALL)
_TITLE = re.compile(r"<title\b[^<>]*>([^<]*)(?:</title\s*>)?", re.IGNORECASE)
_HTML = re.compile(r"<html\b([^<>]*)>", re.IGNORECASE)
_BODY = re.compile(r"<body\b([^<>]*)>", re.IGNORECASE)
_HEAD = re.compile(r"<head\b[^<>]*>(.*?)(?:</head\s*>|(?=<body\b)|\Z)", re.IGNORECASE | re.DOTALL)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_MADE = re.compile(r"<body([^<>]*)>(.*)</body>", re.DOTALL)
_WORD = re.compile(r"[A-Za-z0-9\-]{1,35}")
# Attributes of a body are cleaned as those of a table, which may have the same
_CARRIER = re.compile(r"<table([^<>]*)>")
# Elements times selectors: beyond it the rules stay in the head
_MAX_MATCHES = 1_000_000
# Of all that rules write into elements, about; a mail that Gmail shows whole has a tenth of a megabyte
_MAX_WRITTEN_CHARACTERS = 4_000_000
_NAME = re.compile(r"[\w-]+")


class _Parts(NamedTuple):
    """A document taken apart."""

    root: str  # attributes of its html element
    title: str
    body: str  # attributes of its body
    conditions: str  # what of its head only Outlook reads
    content: str
    sheet: Sheet


class _Made(NamedTuple):
    """A cleaned body: attributes, content, and whether its rules are written into its elements."""

    attributes: str
    content: str
    is_written: bool


def clean(html: str, locale: str = "en") -> str:
    """Return pasted HTML as a mail may have it: a whole document if it was one, else what stands within the body."""
    html = html.encode("utf-8", "replace").decode().replace("\x00", "")
    tokens = Tokens()
    kept = Kept(tokens)
    taken = kept.take(_STYLE.sub(_bare, tokens.protect(html)))
    if not any(found.search(taken) for found in (_HTML, _BODY, _HEAD, _STYLE)):
        return tokens.restore(kept.give(cleaning.fragment(taken, comments=True)))
    parts = _apart(taken)
    made = _made(parts)
    rules = parts.sheet.to_keep if made.is_written else f"{parts.sheet.to_write}\n{parts.sheet.to_keep}"
    head = (f"<title>{escape(parts.title)}</title>" if parts.title else "") + parts.conditions
    head += f"<style>{rules}</style>" if rules.strip() else ""
    return tokens.restore(
        f"<!doctype html>\n<html{_root(parts.root, locale)}>\n"
        '<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f"{head}</head>\n<body{made.attributes}>{kept.give(made.content)}</body>\n</html>\n"
    )


def _bare(found: re.Match[str]) -> str:
    # Sheets were once hidden in comments
    return found[0].replace("<!--", "").replace("-->", "")


def _apart(html: str) -> _Parts:
    sheet = read_sheet("\n".join(found[1] for found in _STYLE.finditer(html)))
    html = _STYLE.sub("", html)
    root, body, head = _HTML.search(html), _BODY.search(html), _HEAD.search(html)
    title = _TITLE.search(html)
    content = html[body.end() :] if body else _HEAD.sub("", html)
    return _Parts(
        root[1] if root else "", " ".join(plaintext.from_html(title[1]).split()) if title else "",
        body[1] if body else "", "".join(_COMMENT.findall(head[1])) if head else "", _TITLE.sub("", content), sheet,
    )  # fmt: skip


def _root(attributes: str, locale: str) -> str:
    language = plaintext.attribute(attributes, "lang")
    direction = plaintext.attribute(attributes, "dir").lower()
    said = language if _WORD.fullmatch(language) else locale
    return f' lang="{escape(said)}"' + (f' dir="{direction}"' if direction in ("ltr", "rtl") else "")


def _made(parts: _Parts) -> _Made:
    """Clean a body, write its rules into its elements, and clean what they have written."""
    attributes, content = _attributes(parts.body), cleaning.fragment(parts.content, comments=True)
    sheet = parts.sheet
    if not sheet.to_write or content.count("<") * sheet.selectors > _MAX_MATCHES or _is_too_much(sheet, content):
        return _Made(attributes, content, not sheet.to_write)
    inliner = css_inline.CSSInliner(keep_at_rules=True, load_remote_stylesheets=False, extra_css=sheet.to_write)
    try:
        written = inliner.inline(f"<html><head></head><body{attributes}>{content}</body></html>")
    except css_inline.InlineError:
        return _Made(attributes, content, False)
    found = _MADE.search(written)
    if found is None:
        return _Made(attributes, content, False)
    return _Made(_attributes(found[1]), cleaning.fragment(found[2], comments=True), True)


def _is_too_much(sheet: Sheet, content: str) -> bool:
    """Return whether the rules of a sheet, written into every element that they may be about, make a mail too long.

    A rule is about as many elements as name the last word of its selector: its class, its id or its tag.
    """
    named = Counter(_NAME.findall(content))
    every, written = content.count("<"), 0
    for before, block in _rules(sheet.to_write):
        for selector in before.split(","):
            names = _NAME.findall(selector)
            written += len(block) * (every if not names or selector.rstrip().endswith("*") else named[names[-1]])
        if written > _MAX_WRITTEN_CHARACTERS:
            return True
    return False


def _attributes(given: str) -> str:
    found = _CARRIER.match(cleaning.fragment(f"<table {given}></table>"))
    return found[1] if found else ""
