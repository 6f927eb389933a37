"""The web interface: pages for people, rendered on the server and refreshed in parts."""

from typing import Any

from sanic import Sanic

from ui import files, guard
from ui.pages import BLUEPRINTS


def mount(app: Sanic[Any, Any]) -> None:
    """Register every page, the static files and the page policy on an app whose `ctx.config` is set."""
    files.mount(app)
    for blueprint in BLUEPRINTS:
        guard.protect(blueprint)
        app.blueprint(blueprint)
