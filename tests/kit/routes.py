"""Every route of the service, read from its router."""

import json
import subprocess
import sys
from functools import cache

from tests.kit.server import Server

_LIST = (
    "import json; from appliance.http import server; from appliance.settings.schema import Config;"
    "app = server.build(Config()); app.finalize();"
    "routes = [(route.name, '/' + route.path, sorted(route.methods)) for route in app.router.routes];"
    "print(json.dumps(routes))"
)


@cache
def _routes() -> list[tuple[str, str, list[str]]]:
    process = subprocess.run(
        [sys.executable, "-c", _LIST], env=Server().env, capture_output=True, text=True, timeout=120
    )
    assert process.returncode == 0, process.stderr
    return [(name, path, methods) for name, path, methods in json.loads(process.stdout)]


def list_routes() -> list[tuple[str, list[str]]]:
    """Return path and methods of every route of the service."""
    return [(path, methods) for _, path, methods in _routes()]


def page_routes() -> list[tuple[str, str]]:
    """Return every (method, path) of the web interface."""
    return sorted((method, path) for name, path, methods in _routes() for method in methods if ".ui_" in name)
