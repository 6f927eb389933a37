"""A receiver of webhooks: a process of its own that checks every signature, and fails, hangs or dies when told to.

It trusts nothing of the appliance's: the check is written after standardwebhooks.com.
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


def signed_by(secret: str, headers: dict[str, str], body: bytes) -> bool:
    """Return whether one of the signatures of a request is of a secret."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    content = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    wanted = "v1," + base64.b64encode(hmac.new(key, content, hashlib.sha256).digest()).decode()
    return any(hmac.compare_digest(one, wanted) for one in headers["webhook-signature"].split(" "))


class Arrived:
    """One request as it came."""

    def __init__(self, line: str) -> None:
        said = json.loads(line)
        self.path: str = said["path"]
        self.headers: dict[str, str] = said["headers"]
        self.body = base64.b64decode(said["body"])
        self.answered: int = said["answered"]

    @property
    def name(self) -> str:
        """The id of the message, the same for each attempt."""
        return self.headers["webhook-id"]

    @property
    def event(self) -> dict[str, Any]:
        """The event it brought."""
        found: dict[str, Any] = json.loads(self.body)
        return found


class Receiver:
    """The process: `up()`, `down()`, and how it answers from now on by `mood`; use as a context manager."""

    def __init__(self, directory: Path) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/hook"
        self._log, self._mood = directory / f"arrived-{self.port}", directory / f"mood-{self.port}"
        self._log.touch()
        self._process: subprocess.Popen[bytes] | None = None
        self.mood()

    def mood(self, status: int = 200, text: str = "", seconds: float = 0, **headers: str) -> None:
        """Answer with this from now on, after so many seconds."""
        fresh = self._mood.with_suffix(".new")
        fresh.write_text(json.dumps({"status": status, "text": text, "seconds": seconds, "headers": headers}))
        fresh.replace(self._mood)

    def up(self) -> Self:
        """Listen."""
        command = [sys.executable, "-m", "tests.kit.receiver", str(self.port), str(self._log), str(self._mood)]
        self._process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n"
        return self

    def down(self) -> None:
        """Die, so that nobody listens any more."""
        assert self._process is not None
        self._process.kill()
        self._process.communicate()
        self._process = None

    @property
    def arrived(self) -> list[Arrived]:
        """All that came, ever, in the order in which it was answered."""
        return [Arrived(line) for line in self._log.read_text().splitlines()]

    def wait(self, true: Callable[[list[Arrived]], bool], timeout: float = 90) -> list[Arrived]:
        """Wait until what came satisfies a condition, and return it."""
        end = time.monotonic() + timeout
        while not true(found := self.arrived):
            if time.monotonic() > end:
                raise AssertionError(f"it did not come so far: {[(one.event, one.answered) for one in found][-20:]}")
            time.sleep(0.02)
        return found

    def __enter__(self) -> Self:
        return self.up()

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self.down()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    log_file: Path
    mood_file: Path

    def do_POST(self) -> None:
        mood = json.loads(self.mood_file.read_text())
        length = int(self.headers["Content-Length"])
        body = self.rfile.read(length)
        if len(body) < length:
            self.close_connection = True  # who was killed in the middle of asking has not asked
            return
        time.sleep(mood["seconds"])
        said = {
            "path": self.path, "headers": {name.lower(): value for name, value in self.headers.items()},
            "body": base64.b64encode(body).decode(), "answered": mood["status"],
        }  # fmt: skip
        # Short lines of a file opened to append are written whole, by whichever thread; before the answer, so that what
        # we said yes to is never missing here
        with self.log_file.open("a") as file:
            file.write(json.dumps(said) + "\n")
        self.send_response(mood["status"])
        for name, value in mood["headers"].items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(mood["text"].encode())))
        self.end_headers()
        self.wfile.write(mood["text"].encode())

    def log_message(self, *_: Any) -> None:
        pass


class _Quiet(ThreadingHTTPServer):
    request_queue_size = 128
    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        """Whoever asks may go before the answer."""


if __name__ == "__main__":
    _Handler.log_file, _Handler.mood_file = Path(sys.argv[2]), Path(sys.argv[3])
    with _Quiet(("127.0.0.1", int(sys.argv[1])), _Handler) as listening:
        print("ready", flush=True)
        listening.serve_forever(0.02)
