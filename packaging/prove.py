"""Tries a built executable as its first user would: prove.py FILE.

On a fresh directory it says its version, is set up, starts, takes a campaign over HTTP into its inbox, and ends well.
"""

import http.client
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

_MAX_WAIT_SECONDS = 120.0
_PASSWORD = "correct horse battery"
_FORM = {"Content-Type": "application/x-www-form-urlencoded", "Sec-Fetch-Site": "same-origin"}


class Failed(Exception):
    """The executable does not behave as expected."""


class Service:
    """The executable with a directory of its own."""

    def __init__(self, executable: Path, home: str) -> None:
        self._file, self._home = executable, home
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = int(probe.getsockname()[1])
        self._env = {"PATH": os.defpath, **{name: os.environ[name] for name in ("TMPDIR",) if name in os.environ}}
        self._key = ""

    def command(self, *arguments: str, stdin: str = "") -> str:
        """Run a command to its end and return its output."""
        line = [self._file, *arguments, "--data", f"{self._home}/data"]
        process = subprocess.run(line, input=stdin, env=self._env, cwd=self._home, capture_output=True, text=True)
        if process.returncode:
            raise Failed(f"{arguments[0]} ended with {process.returncode}: {process.stderr}")
        return process.stdout

    def start(self) -> tuple["subprocess.Popen[str]", float]:
        """Start the service; return its process and the seconds until it responded."""
        line = [self._file, "serve", "--data", f"{self._home}/data", "--listen", f"127.0.0.1:{self._port}"]
        started_at = time.monotonic()
        process = subprocess.Popen(line, env=self._env, cwd=self._home, stdout=subprocess.PIPE, text=True)
        while time.monotonic() < started_at + _MAX_WAIT_SECONDS and process.poll() is None:
            try:
                self.ask("GET", "/healthz")
                return process, time.monotonic() - started_at
            except OSError:
                time.sleep(0.02)
        process.kill()
        raise Failed("the service does not answer")

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, str, str]:
        """Send an HTTP request; return the status, the body and the cookie."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        login = {"Authorization": f"Bearer {self._key}", "Content-Type": "application/json"} if self._key else {}
        text = body if isinstance(body, str) or body is None else json.dumps(body)
        connection.request(method, path, text, {**login, **headers})
        answer = connection.getresponse()
        cookie = (answer.getheader("Set-Cookie") or "").partition(";")[0]
        return answer.status, answer.read().decode(), cookie

    def api(self, method: str, path: str, body: Any = None) -> Any:
        """Send an API request, which must succeed."""
        status, text, _ = self.ask(method, f"/v1/my{path}", body)
        if status // 100 != 2:
            raise Failed(f"{method} {path}: {status} {text}")
        return json.loads(text)

    def set_up(self) -> None:
        """Create the account, its owner and a key."""
        self.command("setup", "--email", "owner@example.com", "--name", "Bakery", stdin=f"{_PASSWORD}\n")
        self._key = self.command("key", "create", "proof").strip()

    def send(self) -> None:
        """Send one campaign to one contact and wait until it is completed."""
        people = self.api("POST", "/lists", {"name": "Friends"})["id"]
        self.api("POST", "/contacts", {"email": "anna@example.org", "first_name": "Anna", "list_ids": [people]})
        campaign = self.api("POST", "/campaigns", {"name": "Opening"})["id"]
        content = {"subject": "Hello {{ contact.first_name }}", "body": "<p>We open at eight.</p>"}
        order = {"trigger_attributes": {"contact_list_id": people}, "template_attributes": content}
        self.api("POST", f"/campaigns/{campaign}/send", order)
        end = time.monotonic() + _MAX_WAIT_SECONDS
        while (row := self.api("GET", f"/campaigns/{campaign}"))["status"] != "completed":
            if time.monotonic() > end:
                raise Failed(f"the campaign is not completed: {row}")
            time.sleep(0.05)
        if row["sent_count"] != 1:
            raise Failed(f"the campaign was completed and sent {row['sent_count']} messages")

    def inbox(self) -> str:
        """Sign in and return the text of the inbox page."""
        self._key = ""
        form = urlencode({"email": "owner@example.com", "password": _PASSWORD})
        _, _, cookie = self.ask("POST", "/login", form, **_FORM)
        status, page, _ = self.ask("GET", "/inbox", Cookie=cookie)
        if status != 200:
            raise Failed(f"the inbox answers {status}")
        return re.sub(r"<[^>]+>", " ", page)


def main(file: str) -> None:
    """Test the executable, and print the result."""
    executable = Path(file).resolve()
    with tempfile.TemporaryDirectory(prefix="campanero-proof-") as home:
        service = Service(executable, home)
        inside = json.loads(service.command("version", "--json"))
        service.set_up()
        process, seconds = service.start()
        try:
            service.send()
            page = service.inbox()
            if "Hello Anna" not in page or "anna@example.org" not in page:
                raise Failed("the message is not in the inbox")
            process.terminate()
            if code := process.wait(_MAX_WAIT_SECONDS):
                raise Failed(f"the service ended with {code}")
        finally:
            process.kill()
    print(
        f"campanero {inside['version']}, SQLite {inside['components']['sqlite']}: first answer after {seconds:.2f} s,"
    )
    print("one campaign sent into the inbox and found there, ended well")


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except Failed as failure:
        sys.exit(f"campanero: the executable is not sound: {failure}")
