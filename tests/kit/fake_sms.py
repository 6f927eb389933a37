"""An SMS provider for tests: runs the process of `sms_provider`, sets its faults, and reads the messages it accepted.

For example::

    with FakeSms(tmp_path) as sms:
        server = fresh_server(env=sms.env)  # or env=sms.env_http for the generic provider
        sms.reject(21211, "+15550001*")
        sms.accept_then_reset(times=1)
        [message] = sms.wait_for(1)
        assert sms.send_receipt(message, "delivered").status == 200
        sms.send_incoming(server.url, "+15551230001", "STOP")
"""

import http.client
import json
import secrets
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

from tests.kit.clock import TestClock
from tests.kit.server import ROOT, free_port
from tests.kit.sms_messages import Sms
from tests.kit.sms_receipts import receipt
from tests.kit.sms_rules import RuleMethods
from tests.kit.sms_signing import Post, generic, twilio_form

__all__ = ["FakeSms", "Sms", "WebhookResponse", "post"]
SID, TOKEN, SECRET, NUMBER = "AC" + "0" * 32, "a-token-of-twilio", "whsec_c2VjcmV0LW9mLXRoZS1raXQ=", "+15550009999"


class WebhookResponse(NamedTuple):
    """The response of a webhook of the server under test."""

    status: int
    headers: dict[str, str]
    body: bytes


def post(request: Post) -> WebhookResponse:
    """Send a request to a webhook."""
    parts = urlsplit(request.url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=30)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    try:
        connection.request("POST", target, request.body, request.headers)
        reply = connection.getresponse()
        return WebhookResponse(reply.status, {name.lower(): value for name, value in reply.getheaders()}, reply.read())
    finally:
        connection.close()


class FakeSms(RuleMethods):
    """The provider process: `up()`, `down()`, and its faults; use it as a context manager."""

    def __init__(self, directory: Path, clock: TestClock | None = None) -> None:
        self.port, self._clock = free_port(), clock
        self.log, self._receipts_log = directory / f"sms-{self.port}", directory / f"told-{self.port}"
        self.log.touch()
        self._receipts_log.touch()
        self._process: subprocess.Popen[bytes] | None = None
        self._read, self._kept = 0, list[Sms]()
        self.url = f"http://127.0.0.1:{self.port}"

    @property
    def env(self) -> dict[str, str]:
        """The environment of a server whose transport `twilio` uses this provider."""
        return {
            "CAMPANERO_SMS__TRANSPORT": "twilio", "CAMPANERO_SMS__TWILIO__BASE_URL": self.url,
            "CAMPANERO_SMS__TWILIO__ACCOUNT_SID": SID, "CAMPANERO_SMS__TWILIO__AUTH_TOKEN": TOKEN,
            "CAMPANERO_SMS__TWILIO__FROM": NUMBER,
        }  # fmt: skip

    @property
    def env_http(self) -> dict[str, str]:
        """The environment of a server whose transport `http` uses this provider."""
        return {
            "CAMPANERO_SMS__TRANSPORT": "http", "CAMPANERO_SMS__HTTP__URL": f"{self.url}/send",
            "CAMPANERO_SMS__HTTP__SECRET": SECRET,
        }  # fmt: skip

    # -- the process ----------------------------------------------------------------------------------------------

    def up(self) -> Self:
        """Start the process, always on the same port; messages accepted before are still known."""
        command = [sys.executable, "-m", "tests.kit.sms_provider", "--log", str(self.log),
                   "--receipts-log", str(self._receipts_log), "--port", str(self.port), "--sid", SID,
                   "--token", TOKEN, "--secret", SECRET]  # fmt: skip
        command += ["--clock", str(self._clock.path)] if self._clock else []
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        assert self._process.stdout.readline().strip() == str(self.port).encode()
        return self

    def down(self) -> None:
        """Kill the process; its rules are lost."""
        assert self._process is not None
        self._process.kill()
        self._process.communicate()
        self._process = None

    def __enter__(self) -> Self:
        return self.up()

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self.down()

    # -- faults and receipts ----------------------------------------------------------------------------------------

    def _set(self, rule: dict[str, Any]) -> None:
        self.control(rules=[rule])

    def control(self, **command: Any) -> dict[str, Any]:
        """Send a command to the process and return its state: requests, connections, gates."""
        reply = post(Post(f"{self.url}/control", {}, json.dumps(command).encode()))
        state: dict[str, Any] = json.loads(reply.body)
        return state

    def clear_rules(self) -> None:
        """Remove all rules."""
        self.control(forget=True)

    def release(self, gate: str) -> None:
        """Open a gate of `hold` for waiting and future requests."""
        self.control(release=gate)

    def wait_reached(self, gate: str, count: int = 1, timeout: float = 90) -> None:
        """Wait until at least `count` requests have reached a gate."""
        self._until(lambda: self.control()["reached"].get(gate, 0) >= count, f"{count} at {gate}", timeout)

    def send_receipts_for_all(self, *statuses: str, **plan: Any) -> None:
        """Make the provider send receipts with these statuses for every message; `plan` as in `sms_receipts`."""
        self.control(tell={"statuses": statuses, **plan} if statuses else None)

    def wait_for_receipts(self, timeout: float = 60) -> list[dict[str, Any]]:
        """Wait until all planned receipts are sent, and return them with the status of each response."""
        self._until(lambda: self.control()["to_tell"] == 0, "everything to be told", timeout)
        return [json.loads(line) for line in self._receipts_log.read_text().splitlines()]

    # -- accepted messages ------------------------------------------------------------------------------------------

    @property
    def accepted(self) -> list[Sms]:
        """All messages that the provider has accepted, in order, including those before a restart."""
        with self.log.open("rb") as file:
            file.seek(self._read)
            new = file.read()
        whole = new[: new.rfind(b"\n") + 1]
        self._read += len(whole)
        self._kept += [Sms(**json.loads(line)) for line in whole.splitlines()]
        return list(self._kept)

    def to(self, number: str) -> list[Sms]:
        """Return the messages to a number."""
        return [sms for sms in self.accepted if sms.to == number]

    def wait_for(self, count: int, timeout: float = 90) -> list[Sms]:
        """Wait until at least `count` messages are accepted, and return all."""
        self._until(lambda: len(self.accepted) >= count, f"{count} SMS", timeout)
        return self.accepted

    def wait(self, condition: Callable[[list[Sms]], bool], timeout: float = 90) -> list[Sms]:
        """Wait until the accepted messages satisfy a condition, and return them."""
        self._until(lambda: condition(self.accepted), "what it took", timeout)
        return self.accepted

    def _until(self, condition: Callable[[], bool], what: str, timeout: float) -> None:
        end = time.monotonic() + timeout
        while not condition():
            if time.monotonic() > end:
                raise AssertionError(f"waited {timeout} s for {what}; taken: {self.accepted[-10:]}")
            time.sleep(0.02)

    # -- single receipts and incoming messages ------------------------------------------------------------------------

    def now(self) -> float:
        """Return the time that the provider signs with, in seconds since 1970."""
        return self._clock.now() if self._clock else time.time()

    def receipt(self, sms: Sms, status: str, code: int | None = None) -> Post:
        """Return a signed receipt for a message, to be sent with `post`."""
        return receipt(TOKEN, SECRET, sms, status, code, self.now())

    def send_receipt(self, sms: Sms, status: str, code: int | None = None) -> WebhookResponse:
        """Send a receipt for a message and return the response."""
        self.control(sid=sms.sid, status=status, code=code)
        return post(self.receipt(sms, status, code))

    def incoming_request(
        self, base_url: str, sender: str, body: str, to: str = NUMBER, *, sid: str | None = None, **more: str
    ) -> Post:
        """Return the signed request of an incoming SMS; `OptOutType="STOP"` if the provider handled it."""
        sid = sid or "SM" + secrets.token_hex(16)
        fields = {
            "ToCountry": "US", "SmsMessageSid": sid, "NumMedia": "0", "SmsSid": sid, "SmsStatus": "received",
            "Body": body, "To": to, "NumSegments": "1", "MessageSid": sid, "AccountSid": SID, "From": sender,
            "ApiVersion": "2010-04-01", **more,
        }  # fmt: skip
        return twilio_form(TOKEN, f"{base_url}/hooks/twilio/message", fields)

    def send_incoming(self, base_url: str, sender: str, body: str, to: str = NUMBER, **more: Any) -> WebhookResponse:
        """Send an incoming SMS as Twilio does."""
        return post(self.incoming_request(base_url, sender, body, to, **more))

    def incoming_http_request(
        self, base_url: str, sender: str, body: str, to: str = NUMBER, *, sid: str | None = None
    ) -> Post:
        """Return the request of an incoming SMS as the provider `http` sends it."""
        message = {"type": "message", "id": sid or secrets.token_hex(16), "from": sender, "to": to, "body": body}
        return generic(SECRET, f"{base_url}/hooks/sms", message, self.now())

    def send_incoming_http(
        self, base_url: str, sender: str, body: str, to: str = NUMBER, **more: Any
    ) -> WebhookResponse:
        """Send an incoming SMS as the provider `http` does."""
        return post(self.incoming_http_request(base_url, sender, body, to, **more))
