"""Every route of the service, read from its router."""

import json
from functools import cache

from tests.kit.fork_server import LIST_ROUTES, fork_server
from tests.kit.server import ROOT


@cache
def _routes() -> list[tuple[str, str, list[str]]]:
    process = fork_server().run([LIST_ROUTES], {}, ROOT, "", 120)
    assert process.returncode == 0, process.stderr
    return [(name, path, methods) for name, path, methods in json.loads(process.stdout)]


def list_routes() -> list[tuple[str, list[str]]]:
    """Return path and methods of every route of the service."""
    return [(path, methods) for _, path, methods in _routes()]


def page_routes() -> list[tuple[str, str]]:
    """Return every (method, path) of the web interface."""
    return sorted((method, path) for name, path, methods in _routes() for method in methods if ".ui_" in name)
