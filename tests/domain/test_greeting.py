"""The start of an SMTP conversation: host name, EHLO name and MAIL parameters."""

import asyncio
import socket
import threading
import time

import pytest

from appliance.core.errors import ClientRejected
from appliance.sending.delivery import smtp_connect
from appliance.sending.delivery.smtp_client import Envelope, Server, envelope_commands
from tests.kit.sampling import every_nth
from tests.kit.smtp import SmtpServer


@pytest.mark.parametrize(
    ("host", "tls"),
    every_nth(
        [
            (host, tls) for tls in ("none", "starttls", "tls")
            for host in ("smtp..example.org", ".example.org", "x" * 64 + ".example.org", "a\0b.example.org")
        ],
        5,
    ),
)  # fmt: skip
def test_an_invalid_host_name_is_our_error(host: str, tls: str) -> None:
    """Connecting to an invalid host name raises ClientRejected with the name."""
    with pytest.raises(ClientRejected) as error_info:
        asyncio.run(smtp_connect.open_connection(Server(host, 25, tls, connect_timeout=3)))
    assert repr(host) in error_info.value.text and "not a valid host name" in error_info.value.text


def open_connections(smtp: SmtpServer, count: int, helo: str = "") -> float:
    """Open connections at the same time, and return the longest delay of the event loop in seconds."""
    longest = 0.0

    async def measure_delay() -> None:
        nonlocal longest
        while True:
            started_at = time.monotonic()
            await asyncio.sleep(0.01)
            longest = max(longest, time.monotonic() - started_at)

    async def run() -> None:
        watcher = asyncio.create_task(measure_delay())
        server = Server("127.0.0.1", smtp.port, "none", helo=helo, connect_timeout=5)
        for client in await asyncio.gather(*(smtp_connect.open_connection(server) for _ in range(count))):
            await client.close()
        watcher.cancel()

    asyncio.run(run())
    return longest


def test_the_own_host_name_is_looked_up_once_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow lookup does not block the event loop, and its result is reused; a configured name needs no lookup."""
    thread_ids: list[int] = []

    def slow_lookup() -> str:
        thread_ids.append(threading.get_ident())
        time.sleep(3)
        return "slow.example"

    monkeypatch.setattr(socket, "getfqdn", slow_lookup)
    monkeypatch.setattr(smtp_connect, "_own_hostname", "")
    with SmtpServer() as smtp:
        open_connections(smtp, 1, "set.example")
        assert thread_ids == []
        assert open_connections(smtp, 3) < 2
        open_connections(smtp, 2)
        ehlo_lines = [command.line for command in smtp.log if command.phase == "ehlo"]
    assert len(thread_ids) == 1 and thread_ids[0] != threading.get_ident()
    assert ehlo_lines == ["EHLO set.example"] + ["EHLO slow.example"] * 5


@pytest.mark.parametrize(
    ("recipient", "offers", "parameters"),
    [
        ("jörg@example.org", {"SMTPUTF8": "", "8BITMIME": ""}, ["SMTPUTF8", "BODY=8BITMIME"]),
        ("jörg@example.org", {"SMTPUTF8": ""}, ["SMTPUTF8"]),
        ("joerg@example.org", {"SMTPUTF8": "", "8BITMIME": ""}, []),
        ("joerg@bücher.example", {"SMTPUTF8": "", "8BITMIME": ""}, []),
    ],
)
def test_smtputf8_and_8bitmime_are_announced_when_needed(
    recipient: str, offers: dict[str, str], parameters: list[str]
) -> None:
    """Only a message with non-ASCII addresses has these MAIL parameters (RFC 6531, 3.1)."""
    mail_command, _, _ = envelope_commands(Envelope("a@example.com", recipient, b"x\r\n"), offers)
    assert mail_command.decode().split()[2:] == parameters


def test_a_message_to_a_non_ascii_address_is_delivered() -> None:
    """The server receives the address and both MAIL parameters."""
    with SmtpServer() as smtp:

        async def run() -> None:
            client = await smtp_connect.open_connection(
                Server("127.0.0.1", smtp.port, "none", helo="x", connect_timeout=5)
            )
            envelope = Envelope("a@example.com", "jörg@example.org", b"To: j\xc3\xb6rg@example.org\r\n\r\nx\r\n")
            opened = client.open_envelope(envelope)
            await client.wait_until_ready(opened)
            await client.deliver(envelope)
            await client.close()

        asyncio.run(run())
        (message,) = smtp.wait_for(1).messages
    assert message.to == "jörg@example.org" and {"SMTPUTF8", "BODY=8BITMIME"} <= set(message.mail_params)
