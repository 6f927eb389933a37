"""The web interface: pages for people, rendered on the server and refreshed in parts."""

import asyncio
import threading
from typing import Any

from sanic import Sanic

from appliance import loading
from appliance.routing import promise
from ui import declared, files

# The pages that are answered where no page is: what went wrong, and that the service ends
fault, stopping = (loading.handler("ui.guard", name) for name in ("fault", "stopping"))
# Until then a start is over, and so is a service that was only started for a moment
_SETTLED_SECONDS = 5.0


def mount(app: Sanic[Any, Any]) -> None:
    """Add every page, under the page policy, and the static files to an app whose `ctx.config` is set."""
    files.mount(app)
    promise(app, declared.routes())
    app.after_server_start(_warm)


async def _warm(_: "Sanic[Any, Any]") -> None:
    reading = threading.Thread(target=_read, name="templates", daemon=True)
    asyncio.get_running_loop().call_later(_SETTLED_SECONDS, reading.start)


def _read() -> None:
    from ui import view

    view.warm()
