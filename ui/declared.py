"""What pages declare, written down when the executable is built, so that a start need not load them all.

A page's module is loaded when somebody first asks for one of its paths, or soon after the start (`appliance/later.py`).
From the sources nothing is written down, and all are loaded at once.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from importlib import import_module
from typing import Any

from sanic import Request
from sanic.response import HTTPResponse

from appliance import assets
from ui import pages
from ui.blueprint import Pages

FILE = "declared-pages"
Handler = Callable[..., Awaitable[HTTPResponse | None]]
# Of a route, what a blueprint is told of it besides path and name
_TOLD = ("methods", "strict_slashes", "stream", "ignore_body", "error_format")
_handlers: dict[str, Handler] = {}


def blueprints() -> tuple[Pages, ...]:
    """Answer the blueprints of all pages."""
    written = assets.written(FILE)
    if written is None:
        return tuple(_loaded(name) for name in pages.NAMES)
    return tuple(_written(*one) for one in written)


def table() -> list[tuple[Any, ...]]:
    """Answer what all pages declare, for `blueprints` of the executable."""
    return [_told(name, _loaded(name)) for name in pages.NAMES]


def _loaded(name: str) -> Pages:
    found: Pages = import_module(f"ui.pages.{name}").pages
    return found


def _told(module: str, blueprint: Pages) -> tuple[Any, ...]:
    routes = []
    for route in sorted(blueprint._future_routes, key=lambda one: one.name):
        told = {name: getattr(route, name) for name in _TOLD} | {"methods": sorted(route.methods or ())}
        routes.append((route.uri, route.name.removeprefix(f"{blueprint.name}."), told))
    return module, blueprint.name, blueprint.url_prefix, routes


def _written(module: str, name: str, prefix: str | None, routes: Iterable[tuple[str, str, dict[str, Any]]]) -> Pages:
    blueprint = Pages(name, url_prefix=prefix)
    for uri, short, told in routes:
        blueprint.route(uri, name=short, **told)(_awaiting(module, f"{name}.{short}"))
    return blueprint


def _awaiting(module: str, name: str) -> Handler:
    """Answer what stands for a handler until somebody asks for its page."""

    async def handle(request: Request, *arguments: Any, **values: Any) -> HTTPResponse | None:
        handler = _handlers.get(name)
        if handler is None:
            handler = await asyncio.get_running_loop().run_in_executor(None, _load, module, name)
        return await handler(request, *arguments, **values)

    return handle


def _load(module: str, name: str) -> Handler:
    for route in _loaded(module)._future_routes:
        handler: Any = route.handler  # which the library calls a text
        _handlers[route.name] = handler
    return _handlers[name]
