"""The web interface: pages rendered on the server, parts of which are replaced with HTMX."""

from importlib import import_module
from typing import Any

from sanic import Blueprint, Sanic

from ui import guard, pages, static_files


def mount(app: Sanic[Any, Any]) -> None:
    """Add every page and the static files to an app; pages get the origin check and the security headers of `guard`."""
    static_files.mount(app)
    group = Blueprint.group(*(import_module(f"ui.pages.{name}").pages for name in pages.NAMES))
    group.middleware(guard.reject_cross_origin, "request")  # type: ignore[no-untyped-call]  # untyped in the library
    group.middleware(guard.add_headers, "response")  # type: ignore[no-untyped-call]  # untyped in the library
    app.blueprint(group)
