"""The text part of a mail whose author wrote only HTML: readable, links kept, no markup."""

import re
from html import unescape

from appliance.content.designs import tags
from appliance.content.designs.tags import Tokens

_BLOCKS = {
    "p", "div", "section", "article", "header", "footer", "table", "tr", "ul", "ol", "h1", "h2", "h3", "h4", "h5", "h6",
    "blockquote", "pre", "hr", "figure",
}  # fmt: skip
_HIDDEN = {"head", "style", "script", "title", "template"}
_MAX_TAG_CHARACTERS = 4_000
# Follows a hidden preview text, so that no inbox shows the beginning of the mail behind it
FILLER = "&#847;&zwnj;&nbsp;"
# How much of a mail is read for its line in an inbox, and how long that line is at most
INBOX_CHARACTERS, INBOX_LINE = 100_000, 140
_TAG = re.compile(r"<(/?)([a-zA-Z!?][a-zA-Z0-9]*)([^<>]*)>")
_ATTRIBUTE = re.compile(r"([a-zA-Z-]{1,40})\s{0,9}=\s{0,9}(\"[^\"]*\"|'[^']*'|[^\s\"'>]+)")


class _Writer:
    """Collects text while the tags of a document go by."""

    def __init__(self, keeps_links: bool = True) -> None:
        self.parts: list[str] = []
        self.keeps_links = keeps_links
        self.hidden = 0
        self.link: tuple[str, int] | None = None
        self.numbers: list[int | None] = []

    def open(self, tag: str, attributes: str) -> None:
        if tag in _HIDDEN:
            self.hidden += 1
        elif tag == "br":
            self.parts.append("\n")
        elif tag == "hr":
            self.parts.append("\n\n----\n\n" if self.keeps_links else "\n")
        elif tag in _BLOCKS:
            self.parts.append("\n\n" if tag not in ("tr", "div") else "\n")
            if tag in ("ul", "ol"):
                self.numbers.append(1 if tag == "ol" else None)
        elif tag == "li":
            self._item()
        elif tag == "a":
            # A link in a link is none: the one before has ended without saying so
            self.link = (attribute(attributes, "href"), len(self.parts))
        elif tag == "img":
            words = attribute(attributes, "alt")
            brackets = f"[{words}]" if self.keeps_links else words
            self.parts.append(brackets if words else "")
        elif tag in ("td", "th"):
            self.parts.append(" ")

    def _item(self) -> None:
        number = self.numbers[-1] if self.numbers else None
        self.parts.append("\n- " if number is None else f"\n{number}. ")
        if number is not None:
            self.numbers[-1] = number + 1

    def close(self, tag: str) -> None:
        if tag in _HIDDEN:
            self.hidden = max(0, self.hidden - 1)
        elif tag == "a" and self.link is not None:
            (href, start), self.link = self.link, None
            words = "".join(self.parts[start:]).strip()
            if self.keeps_links and href and not href.startswith("#") and href.removeprefix("mailto:") != words:
                self.parts.append(f" ({href})" if words else href)
        elif tag in _BLOCKS and tag != "hr":
            if tag in ("ul", "ol") and self.numbers:
                self.numbers.pop()
            self.parts.append("\n\n" if tag not in ("tr", "div") else "\n")

    def text(self, words: str) -> None:
        if not self.hidden and words:
            self.parts.append(re.sub(r"\s+", " ", unescape(words)))


def attribute(attributes: str, name: str) -> str:
    """Return the value of an attribute inside a tag, or nothing."""
    for found in _ATTRIBUTE.finditer(attributes[:_MAX_TAG_CHARACTERS]):
        if found[1].lower() == name:
            return unescape(found[2].strip("\"'")).strip()
    return ""


def _read(html: str, writer: _Writer) -> None:
    """Walk a document once, in linear time whatever it is made of; the standard parser does not promise that."""
    position = 0
    while True:
        begin = html.find("<", position)
        writer.text(html[position : begin if begin >= 0 else len(html)])
        if begin < 0:
            return
        if html.startswith("<!--", begin):
            end = html.find("-->", begin + 4)
            if end < 0:
                return
            position = end + 3
            continue
        found = _TAG.match(html, begin)
        if found is None:
            writer.text("<")
            position = begin + 1
            continue
        position = found.end()
        tag = found[2].lower()
        if found[1]:
            writer.close(tag)
        else:
            writer.open(tag, found[3])


def from_html(html: str) -> str:
    """Write HTML as text."""
    writer = _Writer()
    _read(html, writer)
    text = "".join(writer.parts).replace("\xa0", " ")
    text = re.sub(r"[ \t]+", " ", text)
    text = re.sub(r" ?\n ?", "\n", text)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def inbox_line(html: str) -> str:
    """Return what an inbox shows after the subject of a mail: its first words, the hidden preview text before others.

    Filler that keeps the rest of the mail out of sight ends it.
    """
    writer = _Writer(keeps_links=False)
    # The first of it is enough; a mail may be large
    _read(html.partition(FILLER)[0][:INBOX_CHARACTERS], writer)
    words = " ".join("".join(writer.parts).replace("\u200c", " ").split())
    return words if len(words) <= INBOX_LINE else words[:INBOX_LINE].rstrip()


def from_template(html: str) -> str:
    """Write HTML as text with its merge tags intact, whatever they hold."""
    if "{" not in html:
        return from_html(tags.clean(html))
    tokens = Tokens()
    return str(tokens.restore(from_html(tokens.protect(html))))


def is_html(body: str) -> bool:
    """Return whether a body is HTML; a body without any tag is paragraphs of text (docs/decisions.md#11)."""
    # Stopping at the next "<" keeps this linear whatever the body is made of
    return re.search(r"<[a-zA-Z!/][^<>]*>", body) is not None


def escape(text: str) -> str:
    """Escape text for HTML, its merge tags left as they are."""
    parts = tags.split(text)
    return "".join(
        part if index % 2 else part.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        for index, part in enumerate(parts)
    )


def to_html(text: str) -> str:
    """Write paragraphs of text as HTML, its merge tags untouched."""
    escaped = escape(text)
    paragraphs = re.split(r"\n[ \t]*\n", escaped.replace("\r\n", "\n").strip("\n"))
    return "\n".join(f"<p>{paragraph.replace(chr(10), '<br>' + chr(10))}</p>" for paragraph in paragraphs)
