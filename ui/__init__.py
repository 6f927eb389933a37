"""The web interface: pages for people, rendered on the server and refreshed in parts."""

import asyncio
import threading
from typing import Any

from sanic import Sanic

from appliance.routing import promise
from ui import declared, files, view

# Until then a start is over, and so is a service that was only started for a moment
_SETTLED_SECONDS = 5.0


def mount(app: Sanic[Any, Any]) -> None:
    """Register every page, the static files and the page policy on an app whose `ctx.config` is set."""
    files.mount(app)
    promise(app, declared.routes())
    app.after_server_start(_warm)


async def _warm(_: "Sanic[Any, Any]") -> None:
    reading = threading.Thread(target=view.warm, name="templates", daemon=True)
    asyncio.get_running_loop().call_later(_SETTLED_SECONDS, reading.start)
