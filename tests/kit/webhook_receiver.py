"""A receiver of webhooks as a separate process that can fail, hang or be killed; tests check the signatures.

It shares no code with the appliance: the check follows standardwebhooks.com.
"""

import base64
import hashlib
import hmac
import json
import subprocess
import sys
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

from tests.kit.server import ROOT, free_port


def is_signed_by(secret: str, headers: dict[str, str], body: bytes) -> bool:
    """Return whether one of the signatures of a request was made with a secret."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    content = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    expected = "v1," + base64.b64encode(hmac.new(key, content, hashlib.sha256).digest()).decode()
    return any(hmac.compare_digest(signature, expected) for signature in headers["webhook-signature"].split(" "))


class WebhookRequest:
    """A received request, with the status of its response."""

    def __init__(self, line: str) -> None:
        record = json.loads(line)
        self.method: str = record["method"]
        self.path: str = record["path"]
        self.headers: dict[str, str] = record["headers"]
        self.body = base64.b64decode(record["body"])
        self.response_status: int = record["answered"]

    @property
    def name(self) -> str:
        """The id of the delivery, the same for each attempt."""
        return self.headers["webhook-id"]

    @property
    def event(self) -> dict[str, Any]:
        """The event in the body of the request."""
        event: dict[str, Any] = json.loads(self.body)
        return event


class Receiver:
    """The receiver process: `up()`, `down()` and `respond_with()`; use it as a context manager."""

    def __init__(self, directory: Path) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/hook"
        self._log, self._response_file = directory / f"arrived-{self.port}", directory / f"mood-{self.port}"
        self._log.touch()
        self._process: subprocess.Popen[bytes] | None = None
        self.respond_with()

    def respond_with(self, status: int = 200, text: str = "", seconds: float = 0, **headers: str) -> None:
        """Respond like this to each request from now on, after a delay of `seconds`."""
        new_file = self._response_file.with_suffix(".new")
        new_file.write_text(json.dumps({"status": status, "text": text, "seconds": seconds, "headers": headers}))
        new_file.replace(self._response_file)

    def up(self) -> Self:
        """Start the process."""
        command = [
            sys.executable,
            "-m",
            "tests.kit.webhook_receiver",
            str(self.port),
            str(self._log),
            str(self._response_file),
        ]
        self._process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n"
        return self

    def down(self) -> None:
        """Kill the process."""
        assert self._process is not None
        self._process.kill()
        self._process.communicate()
        self._process = None

    @property
    def requests(self) -> list[WebhookRequest]:
        """All requests ever received, in the order of the responses."""
        return [WebhookRequest(line) for line in self._log.read_text().rpartition("\n")[0].splitlines()]

    def wait(self, condition: Callable[[list[WebhookRequest]], bool], timeout: float = 90) -> list[WebhookRequest]:
        """Wait until the received requests satisfy a condition, and return them."""
        end = time.monotonic() + timeout
        while not condition(requests := self.requests):
            if time.monotonic() > end:
                recent = [(request.event, request.response_status) for request in requests][-20:]
                raise AssertionError(f"the condition was not met within {timeout} s: {recent}")
            time.sleep(0.02)
        return requests

    def __enter__(self) -> Self:
        return self.up()

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self.down()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    log_file: Path
    response_file: Path

    def do_POST(self) -> None:
        response = json.loads(self.response_file.read_text())
        length = int(self.headers["Content-Length"] or 0)
        body = self.rfile.read(length)
        if len(body) < length:
            self.close_connection = True  # the client was killed in the middle of the request
            return
        time.sleep(response["seconds"])
        record = {
            "method": self.command, "path": self.path,
            "headers": {name.lower(): value for name, value in self.headers.items()},
            "body": base64.b64encode(body).decode(), "answered": response["status"],
        }  # fmt: skip
        # Logged before the response, so that no accepted request is missing; appending a short line is atomic
        with self.log_file.open("a") as file:
            file.write(json.dumps(record) + "\n")
        self.send_response(response["status"])
        for name, value in response["headers"].items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(response["text"].encode())))
        self.end_headers()
        self.wfile.write(response["text"].encode())

    do_PUT = do_GET = do_POST

    def log_message(self, *_: Any) -> None:
        pass


class _Quiet(ThreadingHTTPServer):
    request_queue_size = 128
    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        """Ignore clients that disconnect before the response."""


if __name__ == "__main__":
    _Handler.log_file, _Handler.response_file = Path(sys.argv[2]), Path(sys.argv[3])
    with _Quiet(("127.0.0.1", int(sys.argv[1])), _Handler) as listening:
        print("ready", flush=True)
        listening.serve_forever(0.02)
