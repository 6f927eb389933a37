"""The documentation pages: guides written in Markdown, and the API reference. They are public, without account data."""

import re
from functools import cache
from html import escape, unescape
from typing import Any, NamedTuple

import msgspec
from sanic import Request
from sanic.response import HTTPResponse

from appliance.core import errors, executable
from appliance.core.i18n import gettext_noop
from appliance.settings import config
from ui import view
from ui.guard import public_page
from ui.session import Pages

pages = Pages("ui_docs", url_prefix="/docs")


# The guides in their order, by heading. Headings are translated on the page; the guides are in English only.
GUIDES = (
    (gettext_noop("Get started"), ("send-your-first-mail", "connect-a-relay", "verify-a-domain")),
    (gettext_noop("Contacts and automation"), ("import", "flows", "webhooks")),
    (gettext_noop("Using the API"), ("authentication", "errors-and-limits")),
    (gettext_noop("Running Campanero"), ("install", "https", "watch", "security", "backup", "how-far")),
)
# The base URL in the examples, which is replaced by that of the installation.
_EXAMPLE_BASE_URL = "http://127.0.0.1:8080"
# The captions of code blocks, by language; they are part of the guides, which are in English only.
_CAPTIONS = {
    "sh": "Shell",
    "python": "Python",
    "json": "Response",
    "toml": "campanero.toml",
    "yaml": "Prometheus",
    "text": "",
    "nginx": "nginx",
    "caddy": "Caddyfile",
}


class Guide(NamedTuple):
    """A guide: its name in URLs, title, introduction and HTML body, and the (id, text) of each heading."""

    name: str
    title: str
    lead: str
    body: str
    parts: tuple[tuple[str, str], ...]


def guide_names() -> tuple[str, ...]:
    """Return the names of all guides, in order."""
    return tuple(name for _, group in GUIDES for name in group)


def list_guides(base: str) -> list[tuple[str, list[Guide]]]:
    """Return all guides as (heading, guides), with examples for this base URL."""
    return [(title, [load_guide(name, base) for name in group]) for title, group in GUIDES]


@cache
def load_guide(name: str, base: str) -> Guide:
    """Return a guide whose examples use this base URL. Raises KeyError for an unknown name."""
    if name not in guide_names():
        raise KeyError(name)
    text = executable.shipped_path("ui", "guides", f"{name}.md").read_text(encoding="utf-8")
    title, lead, body = (part.strip() for part in text.split("\n\n", 2))
    markdown = _markdown_renderer()
    draft = markdown.render(body).replace(_EXAMPLE_BASE_URL, escape(base))
    parts = re.findall(r'<h2 id="([^"]+)">(.*?)</h2>', draft)
    return Guide(
        name,
        title.removeprefix("# "),
        lead,
        draft,
        tuple((heading_id, _strip_tags(heading)) for heading_id, heading in parts),
    )


def slug(words: str) -> str:
    """Return the HTML id of a heading."""
    return re.sub(r"[^a-z0-9_]+", "-", words.lower()).strip("-")


def _strip_tags(words: str) -> str:
    return unescape(re.sub(r"<[^<>]+>", "", words))


@cache
def _markdown_renderer() -> Any:
    """Return the Markdown renderer. The renderer escapes HTML, so that guides cannot break the page's policy."""
    from markdown_it import MarkdownIt

    renderer = MarkdownIt("commonmark", {"html": False}).enable("table")
    renderer.add_render_rule("fence", _render_code)
    renderer.add_render_rule("heading_open", _render_heading)
    renderer.add_render_rule("table_open", lambda *_: '<div class="wide"><table>\n')
    renderer.add_render_rule("table_close", lambda *_: "</table></div>\n")
    return renderer


def _render_heading(_: Any, tokens: Any, at: int, *__: Any) -> str:
    return f'<{tokens[at].tag} id="{slug(tokens[at + 1].content)}">'


def _render_code(_: Any, tokens: Any, at: int, *__: Any) -> str:
    """Return the HTML of a code block with caption and copy button.

    A word after the language, such as `run`, becomes a data attribute by which tests find the code to execute.
    """
    language, *marks = (tokens[at].info or "text").split()
    code = escape(tokens[at].content.rstrip("\n"))
    caption = "curl" if language == "sh" and "curl " in code else _CAPTIONS[language]
    button = f'<button class="btn sm ghost" type="button" data-copy="{code}"><span data-label>Copy</span></button>'
    ran = f" data-{marks[0]}" if marks else ""
    return (
        f'<figure class="code"><figcaption>{caption}{button if language != "json" else ""}</figcaption>'
        f'<pre><code class="language-{language}"{ran}>{code}</code></pre></figure>\n'
    )


_METHODS = ("get", "post", "put", "patch", "delete")
# RapiDoc is a large third-party script. Its page therefore has no origin (no cookies, storage or API), may connect to
# nothing, and runs only scripts shipped with this service. RapiDoc sets styles by attributes; the one style element it
# writes is allowed by its digest, which changes with any attribute in `reference.html`.
_RENDERER_STYLE = "sha256-1WVf2oS+ldTc3PHUH/UXTBJG9WvxL+dxkZjQ3Hy+aJk="
_RENDERER_POLICY = (
    f"sandbox allow-scripts; default-src 'none'; script-src 'self'; style-src 'self' '{_RENDERER_STYLE}'; "
    "style-src-attr 'unsafe-inline'; img-src 'self' data:; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)
# Keys whose values are literals instead of schemas; below, the types without nested schemas.
_LITERAL_KEYS = frozenset({"example", "examples", "default", "enum", "const"})
_SIMPLE_TYPES = frozenset({"string", "integer", "number", "boolean"})


class Operation(NamedTuple):
    """One operation of the API; `anchor` is its anchor in the reference."""

    method: str
    path: str
    summary: str
    anchor: str


@pages.get("/", name="index", strict_slashes=False)
@public_page
async def index(request: Request) -> HTTPResponse:
    """Show the list of all guides."""
    return _render_page(request, "docs/index.html")


@pages.get("/guides/<name:str>", name="guide")
@public_page
async def show_guide(request: Request, name: str) -> HTTPResponse:
    """Show a guide. Raises NotFound for an unknown name."""
    try:
        guide = load_guide(name, config.base_url(config.current()))
    except KeyError:
        raise errors.NotFound from None
    return _render_page(request, "docs/guide.html", guide=guide)


@pages.get("/api", name="api")
@public_page
async def show_api(request: Request) -> HTTPResponse:
    """Show the operations of the API by tag, each linked to the reference."""
    return _render_page(request, "docs/api.html", groups=_group_operations(request.app.ctx.published))


@pages.get("/api/reference", name="reference")
@public_page
async def show_reference(request: Request) -> HTTPResponse:
    """Show the API reference, which RapiDoc renders in the browser from `document.js`."""
    response = _render_page(request, "docs/reference.html")
    response.headers["content-security-policy"] = _RENDERER_POLICY
    # A page with an opaque origin is not same-origin with itself.
    response.headers["cross-origin-opener-policy"] = "unsafe-none"
    return response


@pages.get("/api/document.js", name="document")
@public_page
async def show_document(request: Request) -> HTTPResponse:
    """Return a script that defines the OpenAPI document.

    The reference is a sandboxed page with an opaque origin, so it cannot fetch the document as JSON.
    """
    return HTTPResponse(_build_script(request.app.ctx.published), content_type="text/javascript; charset=utf-8")


def _render_page(request: Request, template: str, **context: Any) -> HTTPResponse:
    guides = list_guides(config.base_url(config.current()))
    response = view.render_whole(request, template, guides=guides, **context)
    response.headers["x-robots-tag"] = "noindex"
    return response


@cache
def _build_script(build: Any) -> bytes:
    return b"globalThis.published = " + msgspec.json.encode(_simplify_schema(build())) + b";\n"


def _simplify_schema(node: Any) -> Any:
    """Return a schema that RapiDoc shows in one line.

    An enum without a type gets a type, and a nullable simple type becomes a list of two types.
    """
    if isinstance(node, list):
        return [_simplify_schema(item) for item in node]
    if not isinstance(node, dict):
        return node
    node = {key: item if key in _LITERAL_KEYS else _simplify_schema(item) for key, item in node.items()}
    if isinstance(node.get("enum"), list) and "type" not in node:
        node["type"] = ["string", "null"] if None in node["enum"] else "string"
    match node.get("anyOf"):
        case [{"type": str(kind), **rest}, {"type": "null"}] if kind in _SIMPLE_TYPES:
            del node["anyOf"]
            return rest | node | {"type": [kind, "null"]}
    return node


@cache
def _group_operations(build: Any) -> list[tuple[str, str, list[Operation]]]:
    """Return the operations by their first tag, as (tag, description, operations)."""
    text = build()
    about = {operation["name"]: operation.get("description", "") for operation in text.get("tags", ())}
    groups: dict[str, list[Operation]] = {name: [] for name in about}
    for path, methods in text["paths"].items():
        for method in _METHODS:
            if method in methods:
                operation = methods[method]
                tag = (operation.get("tags") or ["service"])[0]
                groups.setdefault(tag, []).append(
                    Operation(method.upper(), path, operation["summary"], _operation_anchor(method, path))
                )
    return [(name, about.get(name, ""), group) for name, group in groups.items() if group]


def _operation_anchor(method: str, path: str) -> str:
    """Return the anchor that RapiDoc gives an operation in the reference."""
    return re.sub(r"[\s#:?&={}]", "-", f"{method}-{path}")
