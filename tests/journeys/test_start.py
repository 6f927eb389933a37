"""The start: a command loads little, and who comes first finds everything working."""

import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.kit.server import Server

# Heavy libraries that pages, pictures and mails need
_HEAVY = {"PIL", "aiosmtpd", "babel", "httpx", "liquid", "mrml", "nh3", "phonenumbers", "sanic", "huey"}
_LOADED = re.compile(r"import time:[^|]+\|[^|]+\| *(\w+)")


def test_a_command_loads_little(tmp_path: Path) -> None:
    """`campanero version` answers without the libraries that only the service needs."""
    command = [sys.executable, "-P", "-X", "importtime", "-m", "appliance", "version"]
    done = subprocess.run(command, env=Server().env, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    loaded = set(_LOADED.findall(done.stderr))
    assert "argparse" in loaded
    assert not loaded & _HEAVY


def test_who_comes_first() -> None:
    """All at once, as soon as it is ready: pages, a domain and its keys, the document, messages and their mails."""
    with Server(cold=True).set_up() as server:
        message = {"to": "anna@example.org", "subject": "Hi {{ data.name }}", "body": "<p>Hi</p>", "data": {"name": 1}}
        asked: list[tuple[int, str, str, Any]] = [
            (200, "GET", "/login", None),
            (404, "GET", "/unsubscribe/none", None),
            (200, "GET", "/openapi.yaml", None),
            (200, "GET", "/templates/spec", None),
            (201, "POST", "/domains", {"domain": {"name": "example.org"}}),
            *[(201, "POST", "/messages", message)] * 3,
        ]
        pages = ("/login", "/unsubscribe/none", "/openapi.yaml")
        together = threading.Barrier(len(asked))

        def ask(status: int, method: str, path: str, body: Any) -> None:
            api = server.client(validate=False)
            together.wait(60)
            answer = api.request(method, path) if path in pages else api.send(method, path, body)
            assert answer.status == status, f"{method} {path}: {answer.status}\n{server.output}"

        with ThreadPoolExecutor(len(asked)) as pool:
            list(pool.map(ask, *zip(*asked, strict=True)))
        rows = server.client().wait("/messages", lambda rows: [r["status"] for r in rows] == ["sent"] * 3)
        assert {row["to"] for row in rows} == {"anna@example.org"}
        assert "cannot be loaded" not in server.output
        server.stop()
