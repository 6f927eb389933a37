"""Texts that run scripts or load resources if a page treats them as markup, and a parser that detects it."""

import re
from html.parser import HTMLParser
from typing import Any

from tests.kit.client import Response

MARK = "xq7z"
PAYLOADS = (
    '"><svg/onload=alert(1)>', "<img src=x onerror=alert(1)>", "javascript:alert(1)",
    "</textarea></title><script>alert(1)</script>", '" hx-get="/x" hx-trigger="load',
    "' onfocus='alert(1)' autofocus='",
)  # fmt: skip
ALL_PAYLOADS = MARK + "".join(PAYLOADS)
ACTIVE_HTML = f"<p>Mail {MARK} <a href='{{{{ view_url }}}}'>view</a></p>" + "".join(PAYLOADS) + (
    '<iframe src="javascript:alert(1)"></iframe><form action="/x"><input autofocus onfocus="alert(1)"></form>'
    '<a href="javascript:alert(1)">x</a><meta http-equiv="refresh" content="0;url=/x"><base href="https://x.example/">'
    '<object data="/x"></object><style>@import "/x";</style><math><mtext></style><img src=x onerror=alert(1)>'
)  # fmt: skip
_SCHEMES = ("javascript", "vbscript", "data")
_ADDRESSES = ("href", "src", "action", "formaction", "data", "poster", "background")


class ActiveContentParser(HTMLParser):
    """Parses a page and records all active content: scripts, event handlers, script URLs, attributes of a payload."""

    def __init__(self, response: Response) -> None:
        super().__init__()
        self.active_content: list[str] = []
        self.links: set[str] = set()
        self.text = ""
        self.frames: list[dict[str, str | None]] = []
        self._raw = ""
        self.feed(response.text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Record active content, links, frames, and attribute values that contain the mark."""
        attributes = dict(attrs)
        self._raw = tag if tag in ("script", "style") else ""
        if tag in ("script", "object", "embed", "base", "math", "applet") and not (
            tag == "script" and (attributes.get("src") or "").startswith("/static/")
        ):
            self.active_content.append(f"<{tag}>")
        if tag == "iframe":
            self.frames.append(attributes)
        for name, value in attrs:
            value = (value or "").strip()
            scheme = re.sub(r"[\s\x00-\x20]", "", value.partition(":")[0]).lower()
            if name.startswith("on") or name == "srcdoc":
                self.active_content.append(f"{tag} {name}={value}")
            if name in _ADDRESSES and scheme in _SCHEMES and ":" in value and not value.startswith("data:image/"):
                self.active_content.append(f"{tag} {name}={value}")
            if name.startswith("hx-") and (value == "/x" or MARK in value):
                self.active_content.append(f"{tag} {name}={value}")
            if MARK in name:
                self.active_content.append(f"{tag} {name}")
            if name in ("src", "href", "data", "action") and value in ("/x", "https://x.example/"):
                self.active_content.append(f"{tag} {name}={value}")
            if name == "href" and tag == "a" and value.startswith("/"):
                self.links.add(value)
            if MARK in value:
                self.text += value

    def handle_endtag(self, tag: str) -> None:
        """End the raw text of a script or style."""
        self._raw = ""

    def handle_data(self, data: str) -> None:
        """Collect the visible text of the page."""
        if not self._raw:
            self.text += data


def hostile_design() -> dict[str, Any]:
    """Return a design with a payload in every text of every section kind, and unknown sections too."""
    names = ("text", "title", "subtitle", "content", "alt", "caption", "name", "code", "price", "author", "role",
             "wordmark_text", "logo_alt", "cta_text", "html", "unsubscribe_text", "color", "background_color", "note",
             "mystery")  # fmt: skip
    texts = dict.fromkeys(names, ALL_PAYLOADS) | {"content": ACTIVE_HTML, "html": ACTIVE_HTML}
    kinds = ("header", "hero", "heading", "text", "quote", "button", "image", "split", "product", "coupon", "video",
             "divider", "spacer", "footer", "html", "nobody_knows")  # fmt: skip
    sections: list[dict[str, Any]] = [
        {"type": kind, "props": {**texts, "src": "https://x.example/a.png"}, "styles": {"padding": ALL_PAYLOADS}}
        for kind in kinds
    ]
    items = [{**texts, "text": ACTIVE_HTML, "src": "https://x.example/a.png"}] * 2
    sections += [{"type": kind, "props": {"items": items}} for kind in ("list", "gallery", "product_grid")]
    inner = [{"sections": [{"type": "text", "props": {"content": ACTIVE_HTML}}]}] * 2
    sections.append({"type": "columns", "props": {"columns": inner}})
    return {
        "sections": sections,
        "theme": {"font_body": ALL_PAYLOADS, "brand_color": ALL_PAYLOADS, "logo_url": ALL_PAYLOADS},
    }
