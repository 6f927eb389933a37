"""Mails read as a browser reads them: elements and attributes, not text that looks like them."""

import re
from html.parser import HTMLParser

FORBIDDEN = {"script", "form", "input", "button", "select", "textarea", "iframe", "frame", "frameset", "object",
             "embed", "applet", "base", "link", "svg", "math", "video", "audio", "template"}  # fmt: skip


class Mail(HTMLParser):
    """The elements of a mail in order, as (name, attributes); `styles` are the contents of its style blocks."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.styles: list[str] = []
        self.comments: list[str] = []
        self._in_style = False
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        self._in_style = tag == "style"

    def handle_endtag(self, tag: str) -> None:
        self._in_style = False

    def handle_data(self, data: str) -> None:
        if self._in_style:
            self.styles.append(data)

    def handle_comment(self, data: str) -> None:
        self.comments.append(data)

    def named(self, *names: str) -> list[dict[str, str]]:
        return [attributes for tag, attributes in self.elements if tag in names]


def dangers(html: str) -> list[str]:
    """Return everything in a mail that would run, ask, frame or load something."""
    mail = Mail(html)
    found = [f"<{tag}>" for tag, _ in mail.elements if tag in FORBIDDEN]
    for tag, attributes in mail.elements:
        for name, value in attributes.items():
            if name.startswith("on"):
                found.append(f"<{tag} {name}>")
            if name in ("href", "src", "background", "action") and _scheme(value) not in ALLOWED:
                found.append(f"<{tag} {name}={value[:40]!r}>")
            if name == "style" and re.search(_RUNS, _PICTURE.sub("", value), re.IGNORECASE):
                found.append(f"<{tag} style={value[:80]!r}>")
    # Outlook reads what others take for comments
    for comment in mail.comments:
        if comment.startswith("[if"):
            found += dangers(re.sub(r"^\[if[^\]]*\]>|<!\[endif\]$", "", comment))
    return found


# A picture of the web whose address cannot end before the bracket does
_PICTURE = re.compile(r"url\('https?://[^'()\\\s]*'\)")
_RUNS = r"expression\s*\(|javascript:|behavior\s*:|@import|url\s*\("
ALLOWED = ("http", "https", "mailto", "tel", "sms", "")


def _scheme(address: str) -> str:
    # As browsers do: control characters and spaces do not count
    plain = re.sub(r"[\x00-\x20]", "", address)
    found = re.match(r"([a-zA-Z][a-zA-Z0-9+.\-]*):", plain)
    return found[1].lower() if found else ""
