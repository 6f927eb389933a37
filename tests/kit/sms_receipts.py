"""Send signed status receipts of the SMS provider for tests, with repetitions and out of order if a plan says so.

A plan: `{"statuses": ["sent", "delivered"], "repeat": 1, "shuffled": false, "after": 0, "failed": 0, "code": 30003}`;
`after` is a delay in seconds, and `failed` the share of messages that end `undelivered` with the code.
"""

import asyncio
import json
import os
import random
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.kit.sms_messages import Sms
from tests.kit.sms_signing import Post, generic, twilio_form

_CONNECTIONS = 8


def receipt(token: str, secret: str, sms: Sms, status: str, code: int | None, now: float) -> Post:
    """Return the signed request that reports a status."""
    if sms.provider == "http":
        report = {"type": "status", "id": sms.sid, "status": status, "error": None if code is None else str(code)}
        return generic(secret, sms.callback, report, now)
    fields = {
        "SmsSid": sms.sid, "SmsStatus": status, "MessageStatus": status, "To": sms.to, "MessageSid": sms.sid,
        "AccountSid": sms.account, "From": sms.sender, "ApiVersion": "2010-04-01",
    }  # fmt: skip
    return twilio_form(token, sms.callback, fields | ({} if code is None else {"ErrorCode": str(code)}))


class ReceiptSender:
    """Sends receipts over keep-alive connections and logs the status of each response."""

    def __init__(self, token: str, secret: str, clock: Path | None, log: Path) -> None:
        self.token, self.secret, self.clock = token, secret, clock
        self.plan: dict[str, Any] | None = None
        self.waiting = 0
        self._log = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._queue: asyncio.Queue[tuple[float, Sms, str, int | None]] = asyncio.Queue()
        self._tasks: list[asyncio.Task[None]] = []

    def plan_receipts(self, sms: Sms) -> None:
        """Queue the receipts of a message according to the plan, if there is one and the message has a callback URL."""
        plan = self.plan
        if plan is None or not sms.callback:
            return
        receipts: list[tuple[str, int | None]] = [
            (status, None) for status in plan.get("statuses", ("sent", "delivered"))
        ]
        if random.random() < plan.get("failed", 0):
            receipts[-1] = ("undelivered", plan.get("code", 30003))
        receipts *= plan.get("repeat", 1)
        if plan.get("shuffled"):
            random.shuffle(receipts)
        if not self._tasks:
            self._tasks = [asyncio.ensure_future(self._send_planned()) for _ in range(_CONNECTIONS)]
        for status, code in receipts:
            self.waiting += 1
            self._queue.put_nowait((time.monotonic() + plan.get("after", 0), sms, status, code))

    async def _send_planned(self) -> None:
        where, reader, writer = "", None, None
        while True:
            due, sms, status, code = await self._queue.get()
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            sms.status, sms.code = status, code
            status_code = 0
            for _ in range(2):
                post = receipt(self.token, self.secret, sms, status, code, self._now())
                place = urlsplit(post.url).netloc
                try:
                    if writer is None or reader is None or where != place:
                        host, _, port = place.partition(":")
                        where, (reader, writer) = place, await asyncio.open_connection(host, int(port or 80))
                    status_code = await _post(post, reader, writer)
                    break
                except (OSError, ValueError, asyncio.IncompleteReadError):
                    reader = writer = None
            line = {"sid": sms.sid, "status": status, "code": code, "answered": status_code}
            os.write(self._log, json.dumps(line).encode() + b"\n")
            self.waiting -= 1

    def _now(self) -> float:
        return time.time() + (float(self.clock.read_text()) if self.clock else 0)


async def _post(post: Post, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> int:
    parts = urlsplit(post.url)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    headers = {"Host": parts.netloc, **post.headers, "Content-Length": str(len(post.body))}
    lines = [f"POST {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + post.body)
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    length = head.partition("\r\ncontent-length:")[2].partition("\r\n")[0]
    await reader.readexactly(int(length or 0))
    return int(head.split(" ")[1])
