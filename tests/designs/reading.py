"""Emails parsed like a browser does: elements and attributes, not text that looks like them."""

import re
from html.parser import HTMLParser

FORBIDDEN = {"script", "form", "input", "button", "select", "textarea", "iframe", "frame", "frameset", "object",
             "embed", "applet", "base", "link", "svg", "math", "video", "audio", "template"}  # fmt: skip


class Mail(HTMLParser):
    """The elements of an email in order, as (name, attributes); `styles` are the contents of its style blocks."""

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
    """Return everything in an email that would execute, submit, frame or load something."""
    mail = Mail(html)
    problems = [f"<{tag}>" for tag, _ in mail.elements if tag in FORBIDDEN]
    for tag, attributes in mail.elements:
        for name, value in attributes.items():
            if name.startswith("on"):
                problems.append(f"<{tag} {name}>")
            if name in ("href", "src", "background", "action") and _scheme(value) not in ALLOWED:
                problems.append(f"<{tag} {name}={value[:40]!r}>")
            if name == "style" and re.search(_ACTIVE_CSS, _IMAGE_URL.sub("", value), re.IGNORECASE):
                problems.append(f"<{tag} style={value[:80]!r}>")
    # Outlook reads conditional comments
    for comment in mail.comments:
        if comment.startswith("[if"):
            problems += dangers(re.sub(r"^\[if[^\]]*\]>|<!\[endif\]$", "", comment))
    return problems


# An image URL that cannot end before its closing bracket
_IMAGE_URL = re.compile(r"url\('https?://[^'()\\\s]*'\)")
_ACTIVE_CSS = r"expression\s*\(|javascript:|behavior\s*:|@import|url\s*\("
ALLOWED = ("http", "https", "mailto", "tel", "sms", "")


def _scheme(address: str) -> str:
    # Browsers ignore control characters and spaces
    stripped = re.sub(r"[\x00-\x20]", "", address)
    match = re.match(r"([a-zA-Z][a-zA-Z0-9+.\-]*):", stripped)
    return match[1].lower() if match else ""
