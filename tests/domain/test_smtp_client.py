"""The SMTP client: pipelining, and the error class of each failure, against a configurable server."""

import asyncio
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.core.errors import (
    ClientRejected,
    ConnectionFailed,
    Deferred,
    RecipientRejected,
    SenderRejected,
    Uncertain,
)
from appliance.sending.delivery import smtp_connect
from appliance.sending.delivery.smtp_client import (
    MAX_REPLY_LINE_BYTES,
    Envelope,
    MalformedReply,
    MessageRejected,
    Reply,
    ReplyParser,
    Server,
    SmtpClient,
)
from tests.kit.smtp import SmtpServer

BODY = b"Subject: x\r\n\r\n.dot\r\nend\r\n"


def envelope(number: int, content: bytes = BODY) -> Envelope:
    """Return a message to the recipient with a number."""
    return Envelope("sender@example.com", f"person{number}@example.org", content)


def talk(port: int, conversation: Callable[[SmtpClient], Awaitable[Any]], **settings: Any) -> Any:
    """Connect to a port, run a conversation, and return its result."""

    async def run() -> Any:
        server = Server(
            "127.0.0.1",
            port,
            **{"tls": "none", "connect_timeout": 3, "command_timeout": 3, "reply_timeout": 3, **settings},
        )
        client = await smtp_connect.open_connection(server, _create_unverified_context)
        try:
            return await conversation(client)
        finally:
            await client.close()

    return asyncio.run(run())


def _create_unverified_context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


async def send(client: SmtpClient, count: int, content: bytes = BODY) -> list[Any]:
    """Send messages one after the other as a worker does, and return the reply or the error of each."""
    results: list[Any] = []
    opened = None
    for number in range(count):
        if not client.is_open():
            break
        try:
            opened = opened or client.open_envelope(envelope(number, content))
            await client.wait_until_ready(opened)
        except (Deferred, RecipientRejected, SenderRejected) as error:
            results.append(error)
            opened = None
            continue
        next_envelope = envelope(number + 1, content) if number + 1 < count else None
        opened = None
        try:
            reply, opened = await client.deliver(envelope(number, content), next_envelope)
            results.append(reply)
        except MessageRejected as rejection:
            results.append(rejection.error)
            opened = rejection.next_envelope
        except (Deferred, Uncertain) as error:
            results.append(error)
    return results


@pytest.mark.parametrize("pipelining", [True, False])
def test_messages_arrive_complete_and_in_order(pipelining: bool) -> None:
    """With and without PIPELINING, each message arrives with its own envelope, and leading dots are kept."""
    with SmtpServer(pipelining=pipelining) as smtp:
        results = talk(smtp.port, lambda client: send(client, 20))
        messages = smtp.wait_for(20).messages

    assert all(isinstance(message, Reply) and message.is_good for message in results) and len(results) == 20
    assert [message.to for message in messages] == [f"person{number}@example.org" for number in range(20)]
    assert {message.raw for message in messages} == {BODY}


def test_a_message_takes_one_round_trip(monkeypatch: pytest.MonkeyPatch) -> None:
    """The envelope of the next message is written together with each body."""
    with SmtpServer() as smtp:
        smtp.rules.delay("body", 0.02)
        written: list[str] = []

        async def conversation(client: SmtpClient) -> None:
            write = client.write

            def write_and_record(data: bytes) -> None:
                written.append(_first_and_last_word(data))
                write(data)

            monkeypatch.setattr(client, "write", write_and_record)
            await send(client, 5)

        talk(smtp.port, conversation)
    assert written == ["MAIL DATA"] + ["Subj DATA"] * 4 + ["Subj ."] + ["QUIT QUIT"]


def _first_and_last_word(data: bytes) -> str:
    return f"{data[:4].decode()} {data.split()[-1].decode()}"


REJECTIONS = [
    ("mail", 550, SenderRejected),
    ("mail", 451, Deferred),
    ("rcpt", 550, RecipientRejected),
    ("rcpt", 450, Deferred),
    ("data", 554, RecipientRejected),
    ("data", 451, Deferred),
    ("body", 554, RecipientRejected),
    ("body", 452, Deferred),
]


@pytest.mark.parametrize("pipelining", [True, False])
@pytest.mark.parametrize(("phase", "code", "error_class"), REJECTIONS)
def test_a_rejection_affects_only_its_message(phase: str, code: int, error_class: type, pipelining: bool) -> None:
    """One message is rejected in each phase; the others arrive on the same connection."""
    with SmtpServer(pipelining=pipelining) as smtp:
        smtp.rules.reject(phase, "person2@*" if phase != "mail" else "*", code=code, text="5.7.9 no", times=1)
        if phase == "mail":
            smtp.rules.reject(phase, code=250, text="2.1.0 ok", times=0)
        results = talk(smtp.port, lambda client: send(client, 5))
        arrived = {result.to for result in smtp.messages}
        connections = smtp.connections

    error_indexes = [index for index, result in enumerate(results) if not isinstance(result, Reply)]
    assert error_indexes == ([0] if phase == "mail" else [2])
    error = results[error_indexes[0]]
    assert type(error) is error_class and (error.smtp, error.enhanced) == (code, "5.7.9")
    assert len(arrived) == 4 and connections == 1


def test_a_connection_lost_before_the_dot_is_deferred() -> None:
    """If the connection breaks at RCPT, the message is deferred, not uncertain."""
    with SmtpServer() as smtp:
        smtp.rules.drop("rcpt", "person1@*")
        results = talk(smtp.port, lambda client: send(client, 3))

    assert [type(result) for result in results] == [Reply, Deferred]


def test_a_connection_lost_after_the_dot_is_uncertain() -> None:
    """If no reply follows the final dot, it is unknown whether the message was accepted."""
    with SmtpServer() as smtp:
        smtp.rules.drop("body", "person1@*")
        results = talk(smtp.port, lambda client: send(client, 3))
    assert [type(result) for result in results] == [Reply, Uncertain]


def test_a_silent_server_times_out() -> None:
    """A timeout before the final dot defers the message; one after it makes it uncertain."""
    for phase, error_class in (("rcpt", Deferred), ("body", Uncertain)):
        with SmtpServer() as smtp:
            smtp.rules.delay(phase, 30)
            (error,) = talk(smtp.port, lambda client: send(client, 1), command_timeout=0.3, reply_timeout=0.3)
        assert type(error) is error_class and "0.3 s" in error.text


@pytest.mark.parametrize("phase", ["rcpt", "body"])
def test_421_closes_the_connection(phase: str) -> None:
    """After a 421 to RCPT or to a body the message is deferred and no further one is sent on this connection."""
    with SmtpServer() as smtp:
        smtp.rules.reject(phase, "person1@*", code=421, text="4.7.0 too many")
        results = talk(smtp.port, lambda client: send(client, 4))
    assert [type(result) for result in results] == [Reply, Deferred] and results[1].smtp == 421


def test_a_connection_sends_at_most_max_messages() -> None:
    """The last message of a connection is not followed by another envelope."""
    with SmtpServer() as smtp:
        results = talk(smtp.port, lambda client: send(client, 9), max_messages=3)
        phases = [command.phase for command in smtp.log]
    assert len(results) == 3 and phases.count("mail") == 3


def test_unsupported_messages_are_rejected_before_sending() -> None:
    """A message over the announced SIZE, or an address that needs SMTPUTF8, is not sent."""
    with SmtpServer(size_limit=1000, smtputf8=False) as smtp:

        async def conversation(client: SmtpClient) -> None:
            with pytest.raises(RecipientRejected, match="at most 1000"):
                client.open_envelope(envelope(1, b"x" * 2000))
            with pytest.raises(RecipientRejected) as caught:
                client.open_envelope(Envelope("a@example.com", "jörg@example.org", BODY))
            assert caught.value.enhanced == "5.6.7"

        talk(smtp.port, conversation)
        assert "mail" not in [command.phase for command in smtp.log]


def test_tls_and_login() -> None:
    """STARTTLS and implicit TLS work with PLAIN login; a wrong password raises ClientRejected."""
    for server_options in ({"starttls": True}, {"tls": True}):
        with SmtpServer(users={"me": "pass"}, **server_options) as smtp:
            settings = {
                "tls": "starttls" if "starttls" in server_options else "tls",
                "username": "me",
                "password": "pass",
            }
            talk(smtp.port, lambda client: send(client, 2), **settings)
            assert [(message.tls, message.user) for message in smtp.wait_for(2).messages] == [(True, "me")] * 2
            with pytest.raises(ClientRejected):
                talk(smtp.port, lambda client: send(client, 1), **settings | {"password": "wrong"})


def test_required_tls_is_never_skipped() -> None:
    """Without the required STARTTLS, or with an untrusted certificate, the connection fails."""
    with SmtpServer() as smtp, pytest.raises(ClientRejected, match="STARTTLS"):
        talk(smtp.port, lambda client: send(client, 1), tls="starttls")
    with SmtpServer(tls=True) as smtp, pytest.raises(ClientRejected, match="TLS"):
        asyncio.run(smtp_connect.open_connection(Server("127.0.0.1", smtp.port, "tls", connect_timeout=3)))


@contextmanager
def serve_bytes(*chunks: bytes) -> Iterator[int]:
    """Listen on a port, send these bytes to the first client, and close when it does."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.settimeout(3)
                for chunk in chunks:
                    connection.sendall(chunk)
                while connection.recv(4096):
                    pass

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        thread.join(5)


@pytest.mark.parametrize(
    "greeting",
    [b"HTTP/1.1 200 OK\r\n\r\n", b"220-a\r\n250 b\r\n", b"220 " + b"x" * 9000, b"\xff\xfe\r\n", b"999 what\r\n",
     b"220 hello\r\n250 early\r\n250 more\r\n250 more\r\n"],
    ids=["http", "two codes", "endless", "binary", "no such code", "unasked"],
)  # fmt: skip
def test_a_server_that_does_not_speak_smtp_is_rejected(greeting: bytes) -> None:
    """Invalid greetings raise ConnectionFailed."""
    with serve_bytes(greeting) as port, pytest.raises(ConnectionFailed):
        talk(port, lambda client: send(client, 1), connect_timeout=2)


@given(st.lists(st.tuples(st.integers(200, 559), st.lists(st.text("ab c-", max_size=9), min_size=1, max_size=3)),
                max_size=5), st.data())  # fmt: skip
def test_replies_are_parsed_from_any_chunks(expected: list[tuple[int, list[str]]], data: st.DataObject) -> None:
    """Bytes in chunks of any size give the same replies."""
    raw = b""
    for code, lines in expected:
        for index, line in enumerate(lines):
            raw += f"{code}{' ' if index == len(lines) - 1 else '-'}{line}\r\n".encode()
    parser, replies = ReplyParser(), []
    while raw:
        size = data.draw(st.integers(1, len(raw)))
        replies += parser.feed(raw[:size])
        raw = raw[size:]

    assert replies == [Reply(code, "\n".join(lines)) for code, lines in expected]


def test_an_endless_reply_line_is_rejected() -> None:
    """A reply line longer than MAX_REPLY_LINE_BYTES raises MalformedReply."""
    parser = ReplyParser()
    with pytest.raises(MalformedReply):
        for _ in range(20):
            parser.feed(b"220 " + b"x" * (MAX_REPLY_LINE_BYTES // 2))
