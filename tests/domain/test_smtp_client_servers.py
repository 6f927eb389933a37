"""The SMTP client against other servers: aiosmtpd, and Postfix's smtp-sink where it is installed."""

import os
import shutil
import subprocess
import time
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.handlers import Message

from appliance.sending.delivery.smtp_client import Reply
from tests.domain.test_smtp_client import send, talk
from tests.kit.server import free_port

DOTS = b"Subject: x\r\n\r\n.\r\n..\r\n.dot at the start\r\n\r\nend"


class _RecordingHandler(Message):
    """A handler that records each message as (recipient, text)."""

    def __init__(self) -> None:
        super().__init__()
        self.received: list[tuple[str, str]] = []

    def handle_message(self, message: Any) -> None:
        """Record recipient and text."""
        self.received.append((message["X-RcptTo"], message.get_payload()))


def test_messages_reach_aiosmtpd_complete() -> None:
    """Leading dots and a missing last line end survive, for 40 messages on one connection."""
    handler = _RecordingHandler()
    controller = Controller(handler, hostname="127.0.0.1", port=free_port())
    controller.start()
    try:
        results = talk(controller.port, lambda client: send(client, 40, DOTS))
    finally:
        controller.stop()
    assert all(isinstance(result, Reply) and result.code == 250 for result in results)
    assert [recipient for recipient, _ in handler.received] == [f"person{number}@example.org" for number in range(40)]
    assert {text.replace("\r\n", "\n") for _, text in handler.received} == {".\n..\n.dot at the start\n\nend\n"}


@pytest.mark.skipif(shutil.which("smtp-sink") is None, reason="Postfix, of which smtp-sink is a part, is not installed")
@pytest.mark.parametrize("sink_option", ["", "-r RCPT", "-q DATA", "-P"])
def test_messages_reach_postfix(sink_option: str) -> None:
    """All messages arrive, with and without PIPELINING; if the server rejects or hangs up, each gets its own result."""
    port = free_port()
    user = "root" if os.getuid() == 0 else os.environ["USER"]
    command = ["smtp-sink", "-u", user, *sink_option.split(), f"127.0.0.1:{port}", "100"]
    process = subprocess.Popen(command)
    try:
        results = _talk_when_ready(port, lambda client: send(client, 20, DOTS))
    finally:
        process.terminate()
        process.wait(10)
    accepted = [result for result in results if isinstance(result, Reply) and result.code == 250]
    assert len(accepted) == (20 if sink_option in ("", "-P") else 0)
    assert len(results) == 20 or sink_option == "-q DATA"


def _talk_when_ready(port: int, conversation: Any) -> Any:
    end = time.monotonic() + 10
    while True:
        try:
            return talk(port, conversation)
        except Exception:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)
