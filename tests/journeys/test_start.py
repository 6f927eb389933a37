"""The start: what it leaves for later is not loaded, and who comes first finds everything working."""

import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from appliance import later
from tests.kit.server import READY, Server, free_port

# Imported by the library of the server, and never used: the executable has none of them
NEVER = {"html5tagger", "tracerite", "websockets"}
# None of them is needed before somebody asks for a page or a message leaves; together they are a third of a start
LATER = {
    "PIL", "aiosmtpd", "attr", "babel", "cryptography", "css_inline", "dateutil", "dns", "email_validator", "httpx",
    "jinja2", "jwt", "liquid", "markdown_it", "mrml", "nh3", "phonenumbers", "pytz", "segno", "tomllib", "ua_parser",
    "yaml",
}  # fmt: skip
_LOADED = re.compile(r"import time:[^|]+\|[^|]+\| *(\w+)")


def test_a_command_loads_little(tmp_path: Path) -> None:
    """`campanero version` loads nothing that only mails, pages and pictures need, nor the library of the server."""
    command = [sys.executable, "-P", "-X", "importtime", "-m", "appliance", "version"]
    done = subprocess.run(command, env=Server().env, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    loaded = set(_LOADED.findall(done.stderr))
    assert "argparse" in loaded
    assert not loaded & (NEVER | LATER | {"sanic", "huey"})


def test_a_start_loads_what_it_needs(tmp_path: Path) -> None:
    """Until it says that it is ready, `campanero serve` has loaded none of it."""
    command = [sys.executable, "-P", "-X", "importtime", "-m", "appliance", "serve", "--data", str(tmp_path / "data")]
    command += ["--listen", f"127.0.0.1:{free_port()}"]
    loaded = set()
    with subprocess.Popen(
        command, env=Server().env, cwd=tmp_path, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        # One pipe for both, so that what was loaded before stands before
        for line in process.stdout or ():
            if READY.search(line):
                break
            loaded.update(_LOADED.findall(line))
        process.terminate()
        rest = process.stdout.read() if process.stdout else ""
    assert process.returncode == 0, rest
    assert "sanic" in loaded
    assert not loaded & (NEVER | LATER)


def test_what_is_loaded_later_can_be_loaded() -> None:
    """Every name of the list is a module: one that is renamed would be missed by nobody but the first who waits."""
    command = [sys.executable, "-c", f"for name in {later.MODULES!r}: __import__(name)"]
    done = subprocess.run(command, env=Server().env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_requests_become_as_quick_as_the_library_makes_them() -> None:
    """What the start leaves out of the server's own code is done later: no request tells of steps nobody listens to."""
    look = (
        "from appliance import routing, server; from appliance.settings import Config; from sanic import Sanic;"
        "app = server.build(Config()); told = lambda: 'dispatch' in Sanic.handle_request.__code__.co_names;"
        "before = told(); routing.catch_up(app); print(app.config.TOUCHUP, before, told())"
    )
    done = subprocess.run([sys.executable, "-c", look], env=Server().env, capture_output=True, text=True, timeout=120)
    assert (done.stdout.split(), done.stderr) == (["False", "True", "False"], "")


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
