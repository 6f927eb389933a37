"""A provider of SMS for tests: the process of `sms_provider`, what it took, what it is to do wrong, what it tells.

For example::

    with FakeSms(tmp_path) as sms:
        server = fresh_server(env=sms.env)  # or env=sms.env_http: the generic way
        sms.refuse(21211, "+15550001*")
        sms.accept_then_reset(times=1)
        [one] = sms.wait_for(1)
        assert sms.report(one, "delivered").status == 200
        sms.write(server.url, "+15551230001", "STOP")
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
from tests.kit.sms_postman import receipt
from tests.kit.sms_rules import Scripts
from tests.kit.sms_shapes import Sms
from tests.kit.sms_signing import Post, generic, twilio_form

__all__ = ["Answered", "FakeSms", "Sms", "post"]
SID, TOKEN, SECRET, NUMBER = "AC" + "0" * 32, "a-token-of-twilio", "whsec_c2VjcmV0LW9mLXRoZS1raXQ=", "+15550009999"


class Answered(NamedTuple):
    """What a hook answered."""

    status: int
    headers: dict[str, str]
    body: bytes


def post(request: Post) -> Answered:
    """Send a request to a hook."""
    parts = urlsplit(request.url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=30)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    try:
        connection.request("POST", target, request.body, request.headers)
        answer = connection.getresponse()
        return Answered(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
    finally:
        connection.close()


class FakeSms(Scripts):
    """The process: `up()`, `down()`, and what it does from now on; use as a context manager."""

    def __init__(self, directory: Path, clock: TestClock | None = None) -> None:
        self.port, self._clock = free_port(), clock
        self.log, self._told = directory / f"sms-{self.port}", directory / f"told-{self.port}"
        self.log.touch()
        self._told.touch()
        self._process: subprocess.Popen[bytes] | None = None
        self._read, self._kept = 0, list[Sms]()
        self.url = f"http://127.0.0.1:{self.port}"

    @property
    def env(self) -> dict[str, str]:
        """The environment of a server that sends through it as through Twilio."""
        return {
            "CAMPANERO_SMS__TRANSPORT": "twilio", "CAMPANERO_SMS__TWILIO__BASE_URL": self.url,
            "CAMPANERO_SMS__TWILIO__ACCOUNT_SID": SID, "CAMPANERO_SMS__TWILIO__AUTH_TOKEN": TOKEN,
            "CAMPANERO_SMS__TWILIO__FROM": NUMBER,
        }  # fmt: skip

    @property
    def env_http(self) -> dict[str, str]:
        """The environment of a server that sends through it the generic way."""
        return {
            "CAMPANERO_SMS__TRANSPORT": "http", "CAMPANERO_SMS__HTTP__URL": f"{self.url}/send",
            "CAMPANERO_SMS__HTTP__SECRET": SECRET,
        }  # fmt: skip

    # -- life -----------------------------------------------------------------------------------------------------

    def up(self) -> Self:
        """Listen, always on the same port; what was taken before is known."""
        command = [sys.executable, "-m", "tests.kit.sms_provider", "--log", str(self.log), "--told", str(self._told),
                   "--port", str(self.port), "--sid", SID, "--token", TOKEN, "--secret", SECRET]  # fmt: skip
        command += ["--clock", str(self._clock.path)] if self._clock else []
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        assert self._process.stdout.readline().strip() == str(self.port).encode()
        return self

    def down(self) -> None:
        """Die, so that nobody listens any more; what it was told to do wrong is forgotten."""
        assert self._process is not None
        self._process.kill()
        self._process.communicate()
        self._process = None

    def __enter__(self) -> Self:
        return self.up()

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self.down()

    # -- what it does wrong, beside the words of Scripts ------------------------------------------------------------

    def _set(self, rule: dict[str, Any]) -> None:
        self.control(rules=[rule])

    def control(self, **said: Any) -> dict[str, Any]:
        """Tell the process something, and learn how things stand: requests, connections, gates."""
        answer = post(Post(f"{self.url}/control", {}, json.dumps(said).encode()))
        found: dict[str, Any] = json.loads(answer.body)
        return found

    def behave(self) -> None:
        """Do nothing wrong from now on."""
        self.control(forget=True)

    def release(self, gate: str) -> None:
        """Let everything through a gate of `hold`, now and later."""
        self.control(release=gate)

    def wait_reached(self, gate: str, count: int = 1, timeout: float = 90) -> None:
        """Wait until so many requests stand at a gate."""
        self._until(lambda: self.control()["reached"].get(gate, 0) >= count, f"{count} at {gate}", timeout)

    def tells(self, *statuses: str, **plan: Any) -> None:
        """Tell these statuses of every message from now on by itself; `plan` as `sms_postman` has it."""
        self.control(tell={"statuses": statuses, **plan} if statuses else None)

    def wait_told(self, timeout: float = 60) -> list[dict[str, Any]]:
        """Wait until it has told everything it wanted to, and return that, with the status of each answer."""
        self._until(lambda: self.control()["to_tell"] == 0, "everything to be told", timeout)
        return [json.loads(line) for line in self._told.read_text().splitlines()]

    # -- what it took -----------------------------------------------------------------------------------------------

    @property
    def accepted(self) -> list[Sms]:
        """All that it took, ever, in its order."""
        with self.log.open("rb") as file:
            file.seek(self._read)
            new = file.read()
        whole = new[: new.rfind(b"\n") + 1]
        self._read += len(whole)
        self._kept += [Sms(**json.loads(line)) for line in whole.splitlines()]
        return list(self._kept)

    def to(self, number: str) -> list[Sms]:
        """Return what it took for a number."""
        return [one for one in self.accepted if one.to == number]

    def wait_for(self, count: int, timeout: float = 90) -> list[Sms]:
        """Wait until it has taken so many, and return all."""
        self._until(lambda: len(self.accepted) >= count, f"{count} SMS", timeout)
        return self.accepted

    def wait(self, true: Callable[[list[Sms]], bool], timeout: float = 90) -> list[Sms]:
        """Wait until what it took satisfies a condition, and return it."""
        self._until(lambda: true(self.accepted), "what it took", timeout)
        return self.accepted

    def _until(self, true: Callable[[], bool], what: str, timeout: float) -> None:
        end = time.monotonic() + timeout
        while not true():
            if time.monotonic() > end:
                raise AssertionError(f"waited {timeout} s for {what}; taken: {self.accepted[-10:]}")
            time.sleep(0.02)

    # -- what it tells ------------------------------------------------------------------------------------------------

    def now(self) -> float:
        """Return the time that its signatures are made at."""
        return self._clock.now() if self._clock else time.time()

    def receipt(self, sms: Sms, status: str, code: int | None = None) -> Post:
        """Make the signed request that tells what became of a message; send it with `post`."""
        return receipt(TOKEN, SECRET, sms, status, code, self.now())

    def report(self, sms: Sms, status: str, code: int | None = None) -> Answered:
        """Return what became of a message."""
        self.control(sid=sms.sid, status=status, code=code)
        return post(self.receipt(sms, status, code))

    def writing(
        self, base_url: str, sender: str, body: str, to: str = NUMBER, *, sid: str | None = None, **more: str
    ) -> Post:
        """Make the signed request that brings what somebody wrote; `OptOutType="STOP"` where it answered itself."""
        sid = sid or "SM" + secrets.token_hex(16)
        fields = {
            "ToCountry": "US", "SmsMessageSid": sid, "NumMedia": "0", "SmsSid": sid, "SmsStatus": "received",
            "Body": body, "To": to, "NumSegments": "1", "MessageSid": sid, "AccountSid": SID, "From": sender,
            "ApiVersion": "2010-04-01", **more,
        }  # fmt: skip
        return twilio_form(TOKEN, f"{base_url}/hooks/twilio/message", fields)

    def write(self, base_url: str, sender: str, body: str, to: str = NUMBER, **more: Any) -> Answered:
        """Bring what somebody wrote, as Twilio does."""
        return post(self.writing(base_url, sender, body, to, **more))

    def writing_http(self, base_url: str, sender: str, body: str, to: str = NUMBER, *, sid: str | None = None) -> Post:
        """Make the request that brings what somebody wrote, the generic way."""
        said = {"type": "message", "id": sid or secrets.token_hex(16), "from": sender, "to": to, "body": body}
        return generic(SECRET, f"{base_url}/hooks/sms", said, self.now())

    def write_http(self, base_url: str, sender: str, body: str, to: str = NUMBER, **more: Any) -> Answered:
        """Bring what somebody wrote, the generic way."""
        return post(self.writing_http(base_url, sender, body, to, **more))
