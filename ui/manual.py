"""The guides: written as Markdown, drawn in our look, with the addresses of this installation in their examples."""

import re
from functools import cache
from html import escape, unescape
from typing import Any, NamedTuple

from appliance.core import assets

# In this order they are listed, under these headings
GUIDES = (
    ("Begin", ("send-your-first-mail", "connect-a-relay", "verify-a-domain")),
    ("Work with people", ("import", "flows", "webhooks")),
    ("Programs", ("authentication", "errors-and-limits")),
    ("Run it", ("install", "https", "watch", "security", "backup", "how-far")),
)
# The address that examples are written with
_WRITTEN = "http://127.0.0.1:8080"
# What stands above a block of code, by its language
_CAPTIONS = {
    "sh": "Shell",
    "python": "Python",
    "json": "Answer",
    "toml": "campanero.toml",
    "yaml": "Prometheus",
    "text": "",
    "nginx": "nginx",
    "caddy": "Caddyfile",
}


class Guide(NamedTuple):
    """One guide: its name in addresses, its title, what it is for, its text, and its headings (id, words)."""

    name: str
    title: str
    lead: str
    body: str
    parts: tuple[tuple[str, str], ...]


def names() -> tuple[str, ...]:
    """Return the names of all guides, in their order."""
    return tuple(name for _, some in GUIDES for name in some)


def listed(base: str) -> list[tuple[str, list[Guide]]]:
    """Return all guides below their headings."""
    return [(title, [read(name, base) for name in some]) for title, some in GUIDES]


@cache
def read(name: str, base: str) -> Guide:
    """Return a guide whose examples speak to this address; a name that is none raises KeyError."""
    if name not in names():
        raise KeyError(name)
    text = assets.path("ui", "guides", f"{name}.md").read_text(encoding="utf-8")
    title, lead, rest = (part.strip() for part in text.split("\n\n", 2))
    markdown = _markdown()
    drawn = markdown.render(rest).replace(_WRITTEN, escape(base))
    parts = re.findall(r'<h2 id="([^"]+)">(.*?)</h2>', drawn)
    return Guide(name, title.removeprefix("# "), lead, drawn, tuple((one, _plain(words)) for one, words in parts))


def slug(words: str) -> str:
    """Return what a heading is called in addresses."""
    return re.sub(r"[^a-z0-9_]+", "-", words.lower()).strip("-")


def _plain(words: str) -> str:
    return unescape(re.sub(r"<[^>]+>", "", words))


@cache
def _markdown() -> Any:
    """Return the one reader of Markdown: HTML in it is text, so that a guide cannot break the page policy."""
    from markdown_it import MarkdownIt

    made = MarkdownIt("commonmark", {"html": False}).enable("table")
    made.add_render_rule("fence", _fence)
    made.add_render_rule("heading_open", _heading)
    made.add_render_rule("table_open", lambda *_: '<div class="wide"><table>\n')
    made.add_render_rule("table_close", lambda *_: "</table></div>\n")
    return made


def _heading(_: Any, tokens: Any, at: int, *__: Any) -> str:
    return f'<{tokens[at].tag} id="{slug(tokens[at + 1].content)}">'


def _fence(_: Any, tokens: Any, at: int, *__: Any) -> str:
    """Draw a block of code: what it is, a button that copies it, and the code; `run` marks what tests execute."""
    language, *marks = (tokens[at].info or "text").split()
    code = escape(tokens[at].content.rstrip("\n"))
    caption = "curl" if language == "sh" and "curl " in code else _CAPTIONS[language]
    button = f'<button class="btn sm ghost" type="button" data-copy="{code}"><span data-label>Copy</span></button>'
    ran = f" data-{marks[0]}" if marks else ""
    return (
        f'<figure class="code"><figcaption>{caption}{button if language != "json" else ""}</figcaption>'
        f'<pre><code class="language-{language}"{ran}>{code}</code></pre></figure>\n'
    )
