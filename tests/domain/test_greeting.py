"""How an SMTP conversation begins: where it leads, under which name, and what MAIL says of the message."""

import asyncio
import socket
import threading
import time

import pytest

from appliance.core.errors import ClientRejected
from appliance.sending.delivery import smtp_connect
from appliance.sending.delivery.smtp_client import Envelope, Server, envelope_commands
from tests.kit.smtp import SmtpServer


@pytest.mark.parametrize("host", ["smtp..example.org", ".example.org", "x" * 64 + ".example.org", "a\0b.example.org"])
@pytest.mark.parametrize("tls", ["none", "starttls", "tls"])
def test_a_name_that_no_host_can_have_is_our_fault(host: str, tls: str) -> None:
    """What cannot even be asked of a name server is said with the name, and blames no recipient."""
    with pytest.raises(ClientRejected) as caught:
        asyncio.run(smtp_connect.open_connection(Server(host, 25, tls, connect_timeout=3)))
    assert repr(host) in caught.value.text and "not a valid host name" in caught.value.text


def connections(smtp: SmtpServer, count: int, helo: str = "") -> float:
    """Open conversations at the same moment, and answer for how long the loop stood still at most."""
    longest = 0.0

    async def watch() -> None:
        nonlocal longest
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.01)
            longest = max(longest, time.monotonic() - before)

    async def run() -> None:
        watching = asyncio.create_task(watch())
        server = Server("127.0.0.1", smtp.port, "none", helo=helo, connect_timeout=5)
        for dialogue in await asyncio.gather(*(smtp_connect.open_connection(server) for _ in range(count))):
            await dialogue.close()
        watching.cancel()

    asyncio.run(run())
    return longest


def test_the_own_name_is_asked_for_once_and_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the name server is, the loop goes on; whoever greets later has the name. A set one is just said."""
    asked: list[int] = []

    def slow() -> str:
        asked.append(threading.get_ident())
        time.sleep(3)
        return "slow.example"

    monkeypatch.setattr(socket, "getfqdn", slow)
    monkeypatch.setattr(smtp_connect, "_own_hostname", "")
    with SmtpServer() as smtp:
        connections(smtp, 1, "set.example")
        assert asked == []
        assert connections(smtp, 3) < 2
        connections(smtp, 2)
        said = [one.line for one in smtp.log if one.phase == "ehlo"]
    assert len(asked) == 1 and asked[0] != threading.get_ident()
    assert said == ["EHLO set.example"] + ["EHLO slow.example"] * 5


@pytest.mark.parametrize(
    ("recipient", "offers", "words"),
    [
        ("jörg@example.org", {"SMTPUTF8": "", "8BITMIME": ""}, ["SMTPUTF8", "BODY=8BITMIME"]),
        ("jörg@example.org", {"SMTPUTF8": ""}, ["SMTPUTF8"]),
        ("joerg@example.org", {"SMTPUTF8": "", "8BITMIME": ""}, []),
        ("joerg@bücher.example", {"SMTPUTF8": "", "8BITMIME": ""}, []),
    ],
)
def test_eight_bits_are_announced_where_there_are_some(
    recipient: str, offers: dict[str, str], words: list[str]
) -> None:
    """A message with addresses outside of ASCII says so of its body too (RFC 6531, 3.1); no other does."""
    mail, _, _ = envelope_commands(Envelope("a@example.com", recipient, b"x\r\n"), offers)
    assert mail.decode().split()[2:] == words


def test_a_server_takes_what_is_announced() -> None:
    """An address outside of ASCII goes through a whole conversation, with both words."""
    with SmtpServer() as smtp:

        async def run() -> None:
            dialogue = await smtp_connect.open_connection(
                Server("127.0.0.1", smtp.port, "none", helo="x", connect_timeout=5)
            )
            one = Envelope("a@example.com", "jörg@example.org", b"To: j\xc3\xb6rg@example.org\r\n\r\nx\r\n")
            opened = dialogue.open_envelope(one)
            await dialogue.wait_until_ready(opened)
            await dialogue.deliver(one)
            await dialogue.close()

        asyncio.run(run())
        (message,) = smtp.wait_for(1).messages
    assert message.to == "jörg@example.org" and {"SMTPUTF8", "BODY=8BITMIME"} <= set(message.mail_params)
