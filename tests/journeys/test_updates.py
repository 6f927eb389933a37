"""The notice of a newer version: on Home and by `doctor`, once a day, and only if an address is set."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.conftest import FreshServer
from tests.kit.clock import TestClock
from tests.kit.server import Server


class Releases:
    """A server that answers with one release, and records the headers of each request."""

    def __init__(self) -> None:
        self.answer: Any = {"tag_name": "v9.1.0", "html_url": "https://forge.example/campanero/9.1.0"}
        self.requests: list[dict[str, str]] = []
        releases = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                releases.requests.append(dict(self.headers))
                body = json.dumps(releases.answer).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Write nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/latest"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Stop the server."""
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def releases() -> Iterator[Releases]:
    """A server of releases."""
    server = Releases()
    yield server
    server.close()


def _find_notice(server: Server) -> str | None:
    """Return what `doctor` says of a newer version, or None."""
    findings = json.loads(server.cli("doctor", "--json", expect=None).stdout)["findings"]
    return next((finding["words"] for finding in findings if finding["check"] == "version"), None)


def _wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)


def test_notice_of_a_new_version(fresh_server: FreshServer, releases: Releases, clock: TestClock) -> None:
    """A newer version is told once it is published; a preview, the same version and garbage are not."""
    env = {"CAMPANERO_UPDATES__URL": releases.url, "CAMPANERO_NETWORK__ALLOW_PRIVATE_HOSTS": "127.0.0.1"}
    server = fresh_server(env=env, clock=clock)
    _wait_until(lambda: len(releases.requests) == 1)
    _wait_until(lambda: _find_notice(server) is not None)
    assert "9.1.0 is available, this is 0.1.0" in (_find_notice(server) or "")
    assert "0.1.0" not in json.dumps(releases.requests)
    answers = ({"tag_name": "v9.2.0-rc1", "html_url": "https://forge.example/"}, ["garbage"],
               {"tag_name": "v9.3.0", "html_url": "javascript:alert(1)"},
               {"tag_name": "v9.3.0", "html_url": "https://[forge"})  # fmt: skip
    for answer in answers:
        releases.answer, before = answer, len(releases.requests)
        clock.advance(days=1, minutes=1)
        _wait_until(lambda before=before: len(releases.requests) > before)  # type: ignore[misc]  # bound at once
        assert "9.1.0" in (_find_notice(server) or "")
    assert "job=updates" not in server.output
    releases.answer = {"tag_name": "0.1.0", "html_url": "https://forge.example/0.1.0"}
    clock.advance(days=1, minutes=1)
    _wait_until(lambda: _find_notice(server) is None)


def test_no_request_without_an_address(fresh_server: FreshServer, releases: Releases) -> None:
    """By default nothing is requested, and nothing is told."""
    server = fresh_server()
    assert _find_notice(server) is None and releases.requests == []
