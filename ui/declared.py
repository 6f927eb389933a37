"""What pages declare, written down when the executable is built, so that a start need not load them all.

A page's module is loaded when somebody first asks for one of its paths, or soon after the start (`appliance/later.py`).
From the sources nothing is written down, and all are loaded at once.
"""

from collections.abc import Awaitable, Callable, Iterator
from importlib import import_module
from typing import Any, NamedTuple

from sanic import Request
from sanic.response import HTTPResponse

from appliance import assets, loading
from appliance.routing import Promised, guards
from ui import pages
from ui.blueprint import Pages

FILE = "declared-pages"
Handler = Callable[..., Awaitable[HTTPResponse | None]]
_handlers: dict[str, Handler] = {}
# What each request for a page passes on its way in, and each page on its way out
_foreign, _headers = (loading.handler("ui.guard", name) for name in ("refuse_foreign", "add_headers"))


class Declared(NamedTuple):
    """What a page's module declares of one of its routes."""

    module: str
    name: str
    path: str
    methods: list[str]
    streams: bool
    ignore_body: bool
    error_format: str


def routes() -> Iterator[Promised]:
    """Return the routes of all pages, guarded."""
    written, guarded = assets.written(FILE), guards(_foreign, _headers)
    for one in table() if written is None else (Declared(*told) for told in written):
        yield Promised(
            one.path, one.name, one.methods, _awaiting(one.module, one.name), one.error_format, one.streams,
            one.ignore_body, guards=guarded,
        )  # fmt: skip


def table() -> list[Declared]:
    """Return what all pages declare, for `routes` of the executable."""
    return [one for name in pages.NAMES for one in _told(name, _loaded(name))]


def _loaded(name: str) -> Pages:
    found: Pages = import_module(f"ui.pages.{name}").pages
    return found


def _told(module: str, blueprint: Pages) -> Iterator[Declared]:
    for route in sorted(blueprint._future_routes, key=lambda one: one.name):
        path = "/" + f"{blueprint.url_prefix or ''}{route.uri}".strip("/")
        yield Declared(
            module, route.name, path, sorted(route.methods or ()), bool(route.stream), bool(route.ignore_body),
            route.error_format or "html",
        )  # fmt: skip


def _awaiting(module: str, name: str) -> Handler:
    """Return what stands for a handler until somebody asks for its page."""

    async def handle(request: Request, *arguments: Any, **values: Any) -> HTTPResponse | None:
        if name not in _handlers:
            await loading.once(module, _load, module)
        return await _handlers[name](request, *arguments, **values)

    return handle


def _load(module: str) -> None:
    for route in _loaded(module)._future_routes:
        handler: Any = route.handler  # which the library calls a text
        _handlers[route.name] = handler
