"""An SMS provider as a separate process: `python -m tests.kit.sms_provider --log FILE`; prints its port.

It serves the API of Twilio under `/2010-04-01/` and the generic one at `/send`; tests control it at `/control`. Every
accepted message is logged before the response, so that a restarted process knows it.
"""

import argparse
import asyncio
import base64
import email.utils
import json
import os
import socket
import struct
import sys
import time
from contextlib import suppress
from dataclasses import asdict
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from tests.kit.sms_messages import Sms, error_json, message_json, page_json
from tests.kit.sms_receipts import ReceiptSender
from tests.kit.sms_rules import Rule
from tests.kit.sms_signing import generic_headers

_NO_RULE = Rule()
Response = tuple[int, Any, dict[str, str]]


class Provider:
    """The accepted messages and the rules of the provider; used on one event loop."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.sid, self.token, self.secret = options.sid, options.token, options.secret
        self.basic = "Basic " + base64.b64encode(f"{self.sid}:{self.token}".encode()).decode()
        self.taken: list[Sms] = [Sms(**json.loads(line)) for line in _lines(options.log)]
        self.by_sid = {sms.sid: sms for sms in self.taken}
        self.by_recipient: dict[str, list[Sms]] = {}
        for sms in self.taken:
            self.by_recipient.setdefault(sms.to, []).append(sms)
        self.rules: list[Rule] = []
        self.gates: dict[str, asyncio.Event] = {}
        self.reached: dict[str, int] = {}
        self.hidden: dict[str, float] = {}
        self.counters = {"send": 0, "look_up": 0, "open": 0, "peak": 0, "connections": 0}
        self.log = os.open(options.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self.receipt_sender = ReceiptSender(self.token, self.secret, options.clock, options.receipts_log)

    def rule(self, look_up: bool, to: str, sender: str) -> Rule:
        """Return the first rule that matches and count it as used, or return the empty rule."""
        for rule in self.rules:
            if rule.matches(look_up, to, sender):
                rule.used += 1
                return rule
        return _NO_RULE

    def take(self, sms: Sms, rule: Rule) -> None:
        """Store a message, also in the log, and queue its receipts."""
        if rule.first_status:
            sms.status, sms.code = rule.first_status, rule.code
        os.write(self.log, json.dumps(asdict(sms)).encode() + b"\n")
        self.taken.append(sms)
        self.by_sid[sms.sid] = sms
        self.by_recipient.setdefault(sms.to, []).append(sms)
        if rule.hidden:
            self.hidden[sms.sid] = time.time() + rule.hidden
        self.receipt_sender.plan_receipts(sms)

    async def wait(self, rule: Rule) -> None:
        """Wait for the delay and the gate of a rule."""
        if rule.delay:
            await asyncio.sleep(rule.delay)
        if rule.gate:
            self.reached[rule.gate] = self.reached.get(rule.gate, 0) + 1
            await self.gates.setdefault(rule.gate, asyncio.Event()).wait()

    # -- endpoints ------------------------------------------------------------------------------------------------

    async def respond(self, method: str, target: str, headers: dict[str, str], body: bytes) -> tuple[Rule, Response]:
        """Return the response to a request, and the rule that applies to it."""
        path, _, query = target.partition("?")
        if path == "/control":
            return _NO_RULE, (200, self._control(json.loads(body or b"{}")), {})
        if path == "/send" and method == "POST":
            return await self._generic(json.loads(body), headers, body)
        if not path.startswith("/2010-04-01/Accounts/"):
            return _NO_RULE, (404, error_json(20404, 404, f"no {path}"), {})
        if headers.get("authorization") != self.basic or path.split("/")[3].removesuffix(".json") != self.sid:
            return _NO_RULE, (401, error_json(20003, 401, "Authenticate"), {})
        if path.endswith("/Messages.json") and method == "POST":
            return await self._twilio(dict(parse_qsl(body.decode(), keep_blank_values=True)))
        if path.endswith("/Messages.json"):
            return await self._listing(target, dict(parse_qsl(query)))
        if path.endswith(f"/{self.sid}.json"):
            return _NO_RULE, (200, {"sid": self.sid, "status": "active", "type": "Full"}, {})
        sms = self.by_sid.get(path.rpartition("/")[2].removesuffix(".json"))
        return _NO_RULE, (200, message_json(sms), {}) if sms else (404, error_json(20404, 404, "not found"), {})

    async def _twilio(self, form: dict[str, str]) -> tuple[Rule, Response]:
        self.counters["send"] += 1
        sender = form.get("From") or form.get("MessagingServiceSid", "")
        for name, code in (("To", 21604), ("Body", 21602)):
            if not form.get(name):
                return _NO_RULE, (400, error_json(code, 400, f"{name} is required"), {})
        if not sender or len(form["Body"]) > 1600:
            return _NO_RULE, (400, error_json(21617 if sender else 21603, 400, "no sender, or too long a body"), {})
        sms = Sms.new("twilio", form["To"], sender, form["Body"], form.get("StatusCallback", ""), fields=form)
        sms.account = self.sid
        return await self._send(sms, lambda: (201, message_json(sms), {}))

    async def _generic(self, payload: dict[str, Any], headers: dict[str, str], body: bytes) -> tuple[Rule, Response]:
        self.counters["send"] += 1
        name, sent = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
        expected = generic_headers(self.secret, name, sent, body)["webhook-signature"]
        if expected not in headers.get("webhook-signature", "").split(" "):
            return _NO_RULE, (401, {"error": "wrong signature"}, {})
        sms = Sms.new("http", payload["to"], payload["from"], payload["body"], payload["callback_url"], fields=payload)
        return await self._send(sms, lambda: (200, {"id": sms.sid}, {}))

    async def _send(self, sms: Sms, taken: Any) -> tuple[Rule, Response]:
        rule = self.rule(False, sms.to, sms.sender)
        if rule is _NO_RULE or rule.accept or rule.cut:
            self.take(sms, rule)
            if rule is not _NO_RULE:
                await self.wait(rule)
        else:
            await self.wait(rule)
            if rule.status is None and not rule.reset:
                self.take(sms, rule)
        return rule, self._error_response(rule) if rule.status is not None else taken()

    def _error_response(self, rule: Rule) -> Response:
        status = rule.status or 500
        body = rule.raw if rule.raw or rule.code is None else error_json(rule.code, status, rule.text)
        return status, body, rule.headers or {}

    async def _listing(self, target: str, query: dict[str, str]) -> tuple[Rule, Response]:
        self.counters["look_up"] += 1
        rule = self.rule(True, query.get("To", ""), query.get("From", ""))
        await self.wait(rule)
        if rule.status is not None:
            return rule, self._error_response(rule)
        now = time.time()
        messages = self.by_recipient.get(query["To"], []) if "To" in query else self.taken
        visible = [
            message for message in messages if self.hidden.get(message.sid, 0) <= now and message.provider == "twilio"
        ]
        return rule, (200, page_json(visible, urlsplit(target).path, query), {})

    def _control(self, command: dict[str, Any]) -> dict[str, Any]:
        """Apply a command of a test, and return the state."""
        self.rules += [Rule(**rule) for rule in command.get("rules", ())]
        if command.get("forget"):
            self.rules.clear()
        if "release" in command:
            self.gates.setdefault(command["release"], asyncio.Event()).set()
        if "tell" in command:
            self.receipt_sender.plan = command["tell"]
        if "status" in command:
            sms = self.by_sid[command["sid"]]
            sms.status, sms.code = command["status"], command.get("code")
        return {
            **self.counters, "taken": len(self.taken), "reached": self.reached, "to_tell": self.receipt_sender.waiting,
            "used": [rule.used for rule in self.rules],
        }  # fmt: skip


class Connection(asyncio.Protocol):
    """A keep-alive connection that serves one request after the other."""

    def __init__(self, provider: Provider) -> None:
        self.provider, self.buffer, self.busy = provider, b"", False
        self.task: asyncio.Task[None] | None = None

    def connection_made(self, transport: Any) -> None:
        """Count the connection."""
        self.transport, counters = transport, self.provider.counters
        counters["connections"] += 1
        counters["open"] += 1
        counters["peak"] = max(counters["peak"], counters["open"])

    def connection_lost(self, error: Exception | None) -> None:
        """Count the end of the connection."""
        self.provider.counters["open"] -= 1

    def data_received(self, data: bytes) -> None:
        """Serve each complete request."""
        self.buffer += data
        if not self.busy:
            self._next()

    def _next(self) -> None:
        head, separator, rest = self.buffer.partition(b"\r\n\r\n")
        if not separator:
            return
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        length = int(headers.get("content-length", 0))
        if len(rest) < length:
            return
        self.buffer, self.busy = rest[length:], True
        method, target, _ = first.split(" ", 2)
        self.task = asyncio.ensure_future(self._serve(method, target, headers, rest[:length]))

    async def _serve(self, method: str, target: str, headers: dict[str, str], body: bytes) -> None:
        rule, (status, body_or_json, more) = await self.provider.respond(method, target, headers, body)
        if rule.reset:
            self._reset_connection()
            return
        content = (body_or_json if isinstance(body_or_json, str) else json.dumps(body_or_json)).encode()
        lines = [
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", f"Date: {email.utils.formatdate(usegmt=True)}",
            "Content-Type: application/json", f"Content-Length: {len(content)}",
        ]  # fmt: skip
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in more.items()]
        whole = "\r\n".join(lines).encode() + b"\r\n\r\n" + content
        if rule.cut:
            self.transport.write(whole[: len(whole) - len(content) // 2])
            asyncio.get_running_loop().call_later(0.05, self._reset_connection)
            return
        self.transport.write(whole)
        self.busy = False
        if headers.get("connection", "").lower() == "close":
            self.transport.close()
        self._next()

    def _reset_connection(self) -> None:
        """Reset the connection, as a crashed machine does."""
        with suppress(OSError):
            self.transport.get_extra_info("socket").setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
            )
        self.transport.abort()


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


async def serve(options: argparse.Namespace) -> None:
    """Serve until killed."""
    provider = Provider(options)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(provider), "127.0.0.1", options.port, backlog=512)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)  # ends when the parent process closes stdin


def main() -> None:
    """Read the command line and serve."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--receipts-log", type=Path, required=True)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--sid", default="AC" + "0" * 32)
    parser.add_argument("--token", default="token")
    parser.add_argument("--secret", default="secret")
    parser.add_argument("--clock", type=Path)
    asyncio.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
