"""The SMTP client against servers of others: aiosmtpd, and Postfix's own test server where it is installed."""

import os
import shutil
import subprocess
import time
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.handlers import Message

from appliance.sending.delivery.smtp_client import Reply
from tests.domain.test_dialogue import send, talk
from tests.kit.server import free_port

DOTS = b"Subject: x\r\n\r\n.\r\n..\r\n.dot at the start\r\n\r\nend"


class _Keeping(Message):
    """Keeps what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, str]] = []

    def handle_message(self, message: Any) -> None:
        """Keep recipient and text."""
        self.found.append((message["X-RcptTo"], message.get_payload()))


def test_messages_reach_aiosmtpd_whole() -> None:
    """Dots at the start of lines, a missing last line end and forty messages on one connection."""
    handler = _Keeping()
    controller = Controller(handler, hostname="127.0.0.1", port=free_port())
    controller.start()
    try:
        found = talk(controller.port, lambda dialogue: send(dialogue, 40, DOTS))
    finally:
        controller.stop()
    assert all(isinstance(one, Reply) and one.code == 250 for one in found)
    assert [to for to, _ in handler.found] == [f"person{number}@example.org" for number in range(40)]
    assert {text.replace("\r\n", "\n") for _, text in handler.found} == {".\n..\n.dot at the start\n\nend\n"}


@pytest.mark.skipif(shutil.which("smtp-sink") is None, reason="Postfix, of which smtp-sink is a part, is not installed")
@pytest.mark.parametrize("refuse", ["", "-r RCPT", "-q DATA", "-P"])
def test_messages_reach_postfix(refuse: str) -> None:
    """Everything arrives; refused, hung up on or without PIPELINING, each message has its own end and none hangs."""
    port = free_port()
    user = "root" if os.getuid() == 0 else os.environ["USER"]
    words = ["smtp-sink", "-u", user, *refuse.split(), f"127.0.0.1:{port}", "100"]
    process = subprocess.Popen(words)
    try:
        found = _when_ready(port, lambda dialogue: send(dialogue, 20, DOTS))
    finally:
        process.terminate()
        process.wait(10)
    good = [one for one in found if isinstance(one, Reply) and one.code == 250]
    assert len(good) == (20 if refuse in ("", "-P") else 0)
    assert len(found) == 20 or refuse == "-q DATA"


def _when_ready(port: int, conversation: Any) -> Any:
    end = time.monotonic() + 10
    while True:
        try:
            return talk(port, conversation)
        except Exception:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)
