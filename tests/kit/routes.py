"""Every route of the service, as its router knows them."""

import json
import subprocess
import sys
from functools import cache

from tests.kit.server import Server

_TELL = (
    "import json; from appliance import server; from appliance.settings import Config;"
    "router = server.build(Config()).router;"
    "found = [('/' + one.path, one.methods) for one in router.routes];"
    "found += [(one.path, one.methods) for one in router._promised];"
    "print(json.dumps([[path, sorted(methods)] for path, methods in found]))"
)


@cache
def declared() -> list[tuple[str, list[str]]]:
    """Return path and methods of every route of the service."""
    done = subprocess.run([sys.executable, "-c", _TELL], env=Server().env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return [(path, methods) for path, methods in json.loads(done.stdout)]
