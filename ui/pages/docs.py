"""The documentation: guides, and the interface for programs; open to everybody, for it says nothing of anybody."""

import re
from functools import cache
from typing import Any, NamedTuple

import msgspec
from sanic import Request
from sanic.response import HTTPResponse

from appliance.core import errors
from appliance.settings import config
from ui import manual, view
from ui.guard import open_page
from ui.session import Pages

pages = Pages("ui_docs", url_prefix="/docs")
_METHODS = ("get", "post", "put", "patch", "delete")
# The renderer is not ours and large: its page has no origin, so neither cookies nor storage nor our answers, it may
# ask nobody for anything, and runs what this service shipped alone. It places its parts by attributes; the one style
# it writes is allowed by its digest, which is another as soon as an attribute of `reference.html` is.
_RENDERER_STYLE = "sha256-1WVf2oS+ldTc3PHUH/UXTBJG9WvxL+dxkZjQ3Hy+aJk="
_RENDERER_POLICY = (
    f"sandbox allow-scripts; default-src 'none'; script-src 'self'; style-src 'self' '{_RENDERER_STYLE}'; "
    "style-src-attr 'unsafe-inline'; img-src 'self' data:; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)
# What is said by example, in which nothing is a schema; and the types without parts
_AS_SAID = frozenset({"example", "examples", "default", "enum", "const"})
_PLAIN = frozenset({"string", "integer", "number", "boolean"})


class Operation(NamedTuple):
    """One operation of the interface, in a list of them."""

    method: str
    path: str
    summary: str
    anchor: str


@pages.get("/", name="index", strict_slashes=False)
@open_page
async def index(request: Request) -> HTTPResponse:
    """All guides, with what each is for."""
    return _page(request, "docs/index.html")


@pages.get("/guides/<name:str>", name="guide")
@open_page
async def guide(request: Request, name: str) -> HTTPResponse:
    """One guide."""
    try:
        found = manual.read(name, config.base_url(config.current()))
    except KeyError:
        raise errors.NotFound from None
    return _page(request, "docs/guide.html", guide=found)


@pages.get("/api", name="api")
@open_page
async def api(request: Request) -> HTTPResponse:
    """Every operation, below what it is about; each leads into the reference."""
    return _page(request, "docs/api.html", groups=_operations(request.app.ctx.published))


@pages.get("/api/reference", name="reference")
@open_page
async def reference(request: Request) -> HTTPResponse:
    """The reference, drawn in the browser by RapiDoc from what `document.js` says."""
    answer = _page(request, "docs/reference.html")
    answer.headers["content-security-policy"] = _RENDERER_POLICY
    # A page without an origin cannot be alone with its own
    answer.headers["cross-origin-opener-policy"] = "unsafe-none"
    return answer


@pages.get("/api/document.js", name="document")
@open_page
async def document(request: Request) -> HTTPResponse:
    """The document as a script, because a page without an origin may read no other answer."""
    return HTTPResponse(_script(request.app.ctx.published), content_type="text/javascript; charset=utf-8")


def _page(request: Request, template: str, **context: Any) -> HTTPResponse:
    guides = manual.listed(config.base_url(config.current()))
    answer = view.whole(request, template, guides=guides, **context)
    answer.headers["x-robots-tag"] = "noindex"
    return answer


@cache
def _script(build: Any) -> bytes:
    return b"globalThis.published = " + msgspec.json.encode(_told(build())) + b";\n"


def _told(node: Any) -> Any:
    """Return a part of the document as RapiDoc draws it in one line: words with their type, and null as one more."""
    if isinstance(node, list):
        return [_told(one) for one in node]
    if not isinstance(node, dict):
        return node
    node = {key: one if key in _AS_SAID else _told(one) for key, one in node.items()}
    if isinstance(node.get("enum"), list) and "type" not in node:
        node["type"] = ["string", "null"] if None in node["enum"] else "string"
    match node.get("anyOf"):
        case [{"type": str(kind), **rest}, {"type": "null"}] if kind in _PLAIN:
            del node["anyOf"]
            return rest | node | {"type": [kind, "null"]}
    return node


@cache
def _operations(build: Any) -> list[tuple[str, str, list[Operation]]]:
    """Return the operations by their first tag: its name, what is said of it, and they."""
    said = build()
    about = {one["name"]: one.get("description", "") for one in said.get("tags", ())}
    groups: dict[str, list[Operation]] = {name: [] for name in about}
    for path, methods in said["paths"].items():
        for method in _METHODS:
            if method in methods:
                one = methods[method]
                tag = (one.get("tags") or ["service"])[0]
                groups.setdefault(tag, []).append(
                    Operation(method.upper(), path, one["summary"], _anchor(method, path))
                )
    return [(name, about.get(name, ""), some) for name, some in groups.items() if some]


def _anchor(method: str, path: str) -> str:
    """Return how RapiDoc calls an operation."""
    return re.sub(r"[\s#:?&={}]", "-", f"{method}-{path}")
