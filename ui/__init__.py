"""The web interface: pages for people, rendered on the server and refreshed in parts."""

from importlib import import_module
from typing import Any

from sanic import Blueprint, Sanic

from ui import files, guard, pages


def mount(app: Sanic[Any, Any]) -> None:
    """Add every page, under the page policy, and the static files to an app whose `ctx.config` is set."""
    files.mount(app)
    group = Blueprint.group(*(import_module(f"ui.pages.{name}").pages for name in pages.NAMES))
    group.middleware(guard.refuse_foreign, "request")  # type: ignore[no-untyped-call]  # untyped in the library
    group.middleware(guard.add_headers, "response")  # type: ignore[no-untyped-call]  # untyped in the library
    app.blueprint(group)
