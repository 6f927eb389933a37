"""The text part of a mail whose author wrote only HTML: readable, links kept, no markup."""

import re
from html.parser import HTMLParser

_BLOCKS = {
    "p", "div", "section", "article", "header", "footer", "table", "tr", "ul", "ol", "h1", "h2", "h3", "h4", "h5", "h6",
    "blockquote", "pre", "hr", "figure",
}  # fmt: skip
_HIDDEN = {"head", "style", "script", "title", "template"}
_VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self.hidden = 0
        self.links: list[tuple[str, int]] = []
        self.numbers: list[int | None] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag in _HIDDEN:
            self.hidden += 1
            return
        given = dict(attributes)
        if tag == "br":
            self.parts.append("\n")
        elif tag in _BLOCKS:
            self.parts.append("\n\n" if tag not in ("tr", "div") else "\n")
        if tag == "hr":
            self.parts.append("----\n\n")
        elif tag in ("ul", "ol"):
            self.numbers.append(1 if tag == "ol" else None)
        elif tag == "li":
            self._item()
        elif tag == "a":
            self.links.append((given.get("href") or "", len(self.parts)))
        elif tag == "img" and given.get("alt"):
            self.parts.append(f"[{given['alt']}]")
        elif tag == "td":
            self.parts.append(" ")

    def _item(self) -> None:
        number = self.numbers[-1] if self.numbers else None
        self.parts.append("\n- " if number is None else f"\n{number}. ")
        if number is not None:
            self.numbers[-1] = number + 1

    def handle_endtag(self, tag: str) -> None:
        if tag in _HIDDEN:
            self.hidden = max(0, self.hidden - 1)
        elif tag == "a" and self.links:
            href, start = self.links.pop()
            words = "".join(self.parts[start:]).strip()
            if href and not href.startswith("#") and href.removeprefix("mailto:") != words:
                self.parts.append(f" ({href})" if words else href)
        elif tag in ("ul", "ol"):
            if self.numbers:
                self.numbers.pop()
            self.parts.append("\n\n")
        elif tag in _BLOCKS and tag not in _VOID:
            self.parts.append("\n\n" if tag not in ("tr", "div") else "\n")

    def handle_data(self, data: str) -> None:
        if not self.hidden:
            self.parts.append(re.sub(r"\s+", " ", data))


def from_html(html: str) -> str:
    """Write HTML as text."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    text = "".join(reader.parts).replace("\xa0", " ")
    text = re.sub(r"[ \t]*\n[ \t]*", "\n", text)
    text = re.sub(r"[ \t]{2,}", " ", text)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def is_html(body: str) -> bool:
    """Say whether a body is HTML; a body without any tag is paragraphs of text (decisions, section 11)."""
    return re.search(r"<[a-zA-Z!/][^>]*>", body) is not None


def escape(text: str) -> str:
    """Escape text for HTML, its merge tags left as they are."""
    parts = re.split(r"(\{\{.*?\}\}|\{%.*?%\})", text, flags=re.DOTALL)
    return "".join(
        part if index % 2 else part.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        for index, part in enumerate(parts)
    )


def to_html(text: str) -> str:
    """Write paragraphs of text as HTML, its merge tags untouched."""
    escaped = escape(text)
    paragraphs = re.split(r"\n[ \t]*\n", escaped.replace("\r\n", "\n").strip("\n"))
    return "\n".join(f"<p>{paragraph.replace(chr(10), '<br>' + chr(10))}</p>" for paragraph in paragraphs)
