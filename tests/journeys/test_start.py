"""The start: commands import little, and the first concurrent requests all succeed."""

import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.kit.server import Server

# Heavy libraries that only the service needs
_HEAVY = {"PIL", "aiosmtpd", "babel", "httpx", "liquid", "mrml", "nh3", "phonenumbers", "sanic", "huey"}
_LOADED = re.compile(r"import time:[^|]+\|[^|]+\| *(\w+)")


def test_a_command_imports_no_heavy_libraries(tmp_path: Path) -> None:
    """`campanero version` runs without the libraries that only the service needs."""
    command = [sys.executable, "-P", "-X", "importtime", "-m", "appliance", "version"]
    result = subprocess.run(command, env=Server().env, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    loaded = set(_LOADED.findall(result.stderr))
    assert "argparse" in loaded
    assert not loaded & _HEAVY


def test_the_first_concurrent_requests() -> None:
    """Right after the start, simultaneous requests for pages, a domain, the API document and messages succeed."""
    with Server(cold=True).set_up() as server:
        message = {"to": "anna@example.org", "subject": "Hi {{ data.name }}", "body": "<p>Hi</p>", "data": {"name": 1}}
        requests: list[tuple[int, str, str, Any]] = [
            (200, "GET", "/login", None),
            (404, "GET", "/unsubscribe/none", None),
            (200, "GET", "/openapi.yaml", None),
            (200, "GET", "/templates/spec", None),
            (201, "POST", "/domains", {"domain": {"name": "example.org"}}),
            *[(201, "POST", "/messages", message)] * 3,
        ]
        pages = ("/login", "/unsubscribe/none", "/openapi.yaml")
        barrier = threading.Barrier(len(requests))

        def send(status: int, method: str, path: str, body: Any) -> None:
            api = server.client(validate=False)
            barrier.wait(60)
            response = api.request(method, path) if path in pages else api.send(method, path, body)
            assert response.status == status, f"{method} {path}: {response.status}\n{server.output}"

        with ThreadPoolExecutor(len(requests)) as pool:
            list(pool.map(send, *zip(*requests, strict=True)))
        rows = server.client().wait("/messages", lambda rows: [r["status"] for r in rows] == ["sent"] * 3)
        assert {row["to"] for row in rows} == {"anna@example.org"}
        assert "cannot be loaded" not in server.output
        server.stop()
