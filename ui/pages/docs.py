"""The documentation pages: guides with their search, and the API reference. They are public, without account data."""

import re
from collections.abc import Iterator
from functools import cache, lru_cache
from typing import Any, NamedTuple

import msgspec
from sanic import Request
from sanic.response import HTTPResponse

from appliance.core import errors
from appliance.core.i18n import get_language
from appliance.settings import config
from ui import documentation, view
from ui.documentation import Part, SearchIndex, SearchResult
from ui.guard import public_page
from ui.session import Pages

pages = Pages("ui_docs", url_prefix="/docs")


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
    """Show the guides by group, or the results of a search of guides and operations."""
    q = (request.args.get("q") or "").strip()[:100]
    results = search_documentation(q, request.app.ctx.published) if q else []
    return _render_page(request, "docs/index.html", q=q, results=results)


def search_documentation(q: str, published: Any = None, **options: Any) -> list[SearchResult]:
    """Return the parts of guides, and of the operations of `published`, that match a search (`SearchIndex.search`).

    The guides are those in the language of the request.
    """
    return _build_index(config.base_url(config.current()), published, get_language()).search(q, **options)


@cache
def _build_index(base: str, published: Any, language: str) -> SearchIndex:
    groups = documentation.list_guides(base, language)
    parts = [part for _, guides in groups for guide in guides for part in guide.parts]
    for _, _, operations in _group_operations(published) if published else ():
        for operation in operations:
            call, summary = f"{operation.method} {operation.path}", operation.summary.replace("`", "")
            parts.append(Part("API", summary, f"/docs/api/reference#{operation.anchor}", call, "en"))
    return SearchIndex(parts, language)


@pages.get("/guides/<name:str>", name="guide")
@public_page
async def show_guide(request: Request, name: str) -> HTTPResponse:
    """Show a guide. Raises NotFound for an unknown name."""
    base = config.base_url(config.current())
    try:
        guide = documentation.load_guide(name, base, get_language())
    except KeyError:
        raise errors.NotFound from None
    before, after = documentation.find_neighbours(name, base, get_language())
    return _render_page(request, "docs/guide.html", guide=guide, before=before, after=after)


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
    """Return a script that defines the OpenAPI document, with the details of one operation (`?operation=` anchor).

    The reference is a sandboxed page with an opaque origin, so it cannot fetch the document as JSON. RapiDoc copies
    each schema to all places that refer to it, which takes up to a minute for the whole document.
    """
    build, anchor = request.app.ctx.published, request.args.get("operation") or ""
    known = {operation for operation, _ in _iterate_operations(_simplify_document(build))}
    script = _build_script(build, anchor if anchor in known else "")
    return HTTPResponse(script, content_type="text/javascript; charset=utf-8")


def _render_page(request: Request, template: str, **context: Any) -> HTTPResponse:
    guides = documentation.list_guides(config.base_url(config.current()), get_language())
    response = view.render(request, template, guides=guides, **{"q": "", **context})
    response.headers["x-robots-tag"] = "noindex"
    return response


@cache
def _simplify_document(build: Any) -> dict[str, Any]:
    document: dict[str, Any] = _simplify_schema(build())
    return document


@lru_cache(maxsize=16)
def _build_script(build: Any, anchor: str) -> bytes:
    """Return the script with the details of the operation with this anchor; of all others it has only the summary."""
    document = _simplify_document(build)
    part: dict[str, Any] = document | {kind: {} for kind in ("paths", "webhooks")}
    for operation_anchor, (kind, path, method, operation) in _iterate_operations(document):
        described = operation if operation_anchor == anchor else {
            "summary": operation["summary"], "tags": operation.get("tags", []), "responses": {},
        }  # fmt: skip
        shared = {name: value for name, value in document[kind][path].items() if name not in _METHODS}
        part[kind].setdefault(path, shared if operation_anchor == anchor else {})
        part[kind][path] |= {method: described} | (shared if operation_anchor == anchor else {})
    part["components"] = _select_components(part | {"components": None}, document["components"])
    return b"globalThis.published = " + msgspec.json.encode(part) + b";\n"


def _iterate_operations(document: dict[str, Any]) -> Iterator[tuple[str, tuple[str, str, str, dict[str, Any]]]]:
    """Yield each operation and webhook as (anchor, (`paths` or `webhooks`, path or name, method, operation))."""
    for kind in ("paths", "webhooks"):
        for path, methods in document.get(kind, {}).items():
            for method in _METHODS:
                if method in methods:
                    yield _operation_anchor(method, path), (kind, path, method, methods[method])


def _select_components(part: Any, components: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the components that a part of a document refers to, also through others, and all security schemes."""
    chosen: dict[str, dict[str, Any]] = {"securitySchemes": components.get("securitySchemes", {})}
    unread = [part]
    while unread:
        node = unread.pop()
        if isinstance(node, list):
            unread += node
        elif isinstance(node, dict):
            unread += node.values()
            kind, _, name = str(node.get("$ref", "")).removeprefix("#/components/").partition("/")
            if name and name not in chosen.setdefault(kind, {}):
                chosen[kind][name] = components[kind][name]
                unread.append(components[kind][name])
    return chosen


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
