"""HTML that was made elsewhere and pasted: cleaned, its styles written into its elements, its merge tags untouched.

Mail programs drop style blocks, so rules go where they apply; rules for small screens and dark mode stay in the head.
Nothing is read from files or the network. Whatever comes in, a mail comes out, in bounded time.
"""

import re
from html import escape
from typing import NamedTuple

import css_inline

from appliance.designs import cleaning, plaintext, sheets
from appliance.designs.conditional import Kept
from appliance.designs.sheets import Sheet
from appliance.designs.tags import Tokens

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
    sheet = sheets.read("\n".join(found[1] for found in _STYLE.finditer(html)))
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
    if not sheet.to_write or content.count("<") * sheet.selectors > _MAX_MATCHES:
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


def _attributes(given: str) -> str:
    found = _CARRIER.match(cleaning.fragment(f"<table {given}></table>"))
    return found[1] if found else ""
