"""An SMTP conversation: what goes out together, and what each fault is called, against a server that does as told."""

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
    """Return a message to somebody."""
    return Envelope("sender@example.com", f"person{number}@example.org", content)


def talk(port: int, conversation: Callable[[SmtpClient], Awaitable[Any]], **settings: Any) -> Any:
    """Hold a conversation and return what it returns."""

    async def run() -> Any:
        server = Server(
            "127.0.0.1",
            port,
            **{"tls": "none", "connect_timeout": 3, "command_timeout": 3, "reply_timeout": 3, **settings},
        )
        dialogue = await smtp_connect.open_connection(server, _trusting)
        try:
            return await conversation(dialogue)
        finally:
            await dialogue.close()

    return asyncio.run(run())


def _trusting() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


async def send(dialogue: SmtpClient, count: int, content: bytes = BODY) -> list[Any]:
    """Send messages one behind the other as the sender does; return the reply or the error of each."""
    found: list[Any] = []
    opened = None
    for number in range(count):
        if not dialogue.is_open():
            break
        try:
            opened = opened or dialogue.open_envelope(envelope(number, content))
            await dialogue.wait_until_ready(opened)
        except (Deferred, RecipientRejected, SenderRejected) as error:
            found.append(error)
            opened = None
            continue
        following = envelope(number + 1, content) if number + 1 < count else None
        opened = None
        try:
            reply, opened = await dialogue.deliver(envelope(number, content), following)
            found.append(reply)
        except MessageRejected as refused:
            found.append(refused.error)
            opened = refused.next_envelope
        except (Deferred, Uncertain) as error:
            found.append(error)
    return found


@pytest.mark.parametrize("pipelining", [True, False])
def test_messages_arrive_whole_and_in_order(pipelining: bool) -> None:
    """With or without PIPELINING, dots and all; each message has its own envelope."""
    with SmtpServer(pipelining=pipelining) as smtp:
        found = talk(smtp.port, lambda dialogue: send(dialogue, 20))
        messages = smtp.wait_for(20).messages

    assert all(isinstance(one, Reply) and one.is_good for one in found) and len(found) == 20
    assert [one.to for one in messages] == [f"person{number}@example.org" for number in range(20)]
    assert {one.raw for one in messages} == {BODY}


def test_a_message_costs_one_round_trip(monkeypatch: pytest.MonkeyPatch) -> None:
    """The envelope of the next leaves in one piece with each body, before its reply; nothing else is between them."""
    with SmtpServer() as smtp:
        smtp.rules.delay("body", 0.02)
        asked: list[str] = []

        async def conversation(dialogue: SmtpClient) -> None:
            write = dialogue.write

            def noted(data: bytes) -> None:
                asked.append(_ends(data))
                write(data)

            monkeypatch.setattr(dialogue, "write", noted)
            await send(dialogue, 5)

        talk(smtp.port, conversation)
    assert asked == ["MAIL DATA"] + ["Subj DATA"] * 4 + ["Subj ."] + ["QUIT QUIT"]


def _ends(data: bytes) -> str:
    return f"{data[:4].decode()} {data.split()[-1].decode()}"


REFUSALS = [
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
@pytest.mark.parametrize(("phase", "code", "kind"), REFUSALS)
def test_one_refusal_is_that_of_its_own_message(phase: str, code: int, kind: type, pipelining: bool) -> None:
    """The third is refused, in whatever phase; the others arrive on the same connection."""
    with SmtpServer(pipelining=pipelining) as smtp:
        smtp.rules.refuse(phase, "person2@*" if phase != "mail" else "*", code=code, text="5.7.9 no", times=1)
        if phase == "mail":
            smtp.rules.refuse(phase, code=250, text="2.1.0 ok", times=0)
        found = talk(smtp.port, lambda dialogue: send(dialogue, 5))
        arrived = {one.to for one in smtp.messages}
        connections = smtp.connections

    wrong = [index for index, one in enumerate(found) if not isinstance(one, Reply)]
    assert wrong == ([0] if phase == "mail" else [2])
    error = found[wrong[0]]
    assert type(error) is kind and (error.smtp, error.enhanced) == (code, "5.7.9")
    assert len(arrived) == 4 and connections == 1


def test_a_drop_before_the_dot_is_no_doubt() -> None:
    """Where the connection breaks at RCPT nothing was taken; that costs an attempt and no more."""
    with SmtpServer() as smtp:
        smtp.rules.drop("rcpt", "person1@*")
        found = talk(smtp.port, lambda dialogue: send(dialogue, 3))

    assert [type(one) for one in found] == [Reply, Deferred]


def test_a_drop_after_the_dot_is_a_doubt() -> None:
    """Where no answer follows the dot nobody knows; a server that stored it and one that did not look the same."""
    with SmtpServer() as smtp:
        smtp.rules.drop("body", "person1@*")
        found = talk(smtp.port, lambda dialogue: send(dialogue, 3))
    assert [type(one) for one in found] == [Reply, Uncertain]


def test_silence_ends() -> None:
    """A server that says nothing is left after the time of the phase: before the dot no doubt, after it one."""
    for phase, kind in (("rcpt", Deferred), ("body", Uncertain)):
        with SmtpServer() as smtp:
            smtp.rules.delay(phase, 30)
            (found,) = talk(smtp.port, lambda dialogue: send(dialogue, 1), command_timeout=0.3, reply_timeout=0.3)
        assert type(found) is kind and "0.3 s" in found.text


@pytest.mark.parametrize("phase", ["rcpt", "body"])
def test_421_closes_the_connection(phase: str) -> None:
    """After a 421, also as the answer to a message, no further one is tried here; it costs an attempt, and no doubt."""
    with SmtpServer() as smtp:
        smtp.rules.refuse(phase, "person1@*", code=421, text="4.7.0 too many")
        found = talk(smtp.port, lambda dialogue: send(dialogue, 4))
    assert [type(one) for one in found] == [Reply, Deferred] and found[1].smtp == 421


def test_a_connection_takes_as_many_as_agreed() -> None:
    """The last message of a connection has no envelope behind it."""
    with SmtpServer() as smtp:
        found = talk(smtp.port, lambda dialogue: send(dialogue, 9), max_messages=3)
        phases = [one.phase for one in smtp.log]
    assert len(found) == 3 and phases.count("mail") == 3


def test_what_the_server_cannot_take_is_said_before() -> None:
    """A message over the announced size, or an address that needs SMTPUTF8, never leaves."""
    with SmtpServer(size_limit=1000, smtputf8=False) as smtp:

        async def conversation(dialogue: SmtpClient) -> None:
            with pytest.raises(RecipientRejected, match="at most 1000"):
                dialogue.open_envelope(envelope(1, b"x" * 2000))
            with pytest.raises(RecipientRejected) as caught:
                dialogue.open_envelope(Envelope("a@example.com", "jörg@example.org", BODY))
            assert caught.value.enhanced == "5.6.7"

        talk(smtp.port, conversation)
        assert "mail" not in [one.phase for one in smtp.log]


def test_encryption_and_login() -> None:
    """STARTTLS and TLS from the first byte, logged in by PLAIN; a wrong password is our fault."""
    for how in ({"starttls": True}, {"tls": True}):
        with SmtpServer(users={"me": "pass"}, **how) as smtp:
            settings = {"tls": "starttls" if "starttls" in how else "tls", "username": "me", "password": "pass"}
            talk(smtp.port, lambda dialogue: send(dialogue, 2), **settings)
            assert [(one.tls, one.user) for one in smtp.wait_for(2).messages] == [(True, "me")] * 2
            with pytest.raises(ClientRejected):
                talk(smtp.port, lambda dialogue: send(dialogue, 1), **settings | {"password": "wrong"})


def test_nothing_is_said_in_clear_text() -> None:
    """Without STARTTLS where it is wanted there is no message; an untrusted certificate ends it too."""
    with SmtpServer() as smtp, pytest.raises(ClientRejected, match="STARTTLS"):
        talk(smtp.port, lambda dialogue: send(dialogue, 1), tls="starttls")
    with SmtpServer(tls=True) as smtp, pytest.raises(ClientRejected, match="TLS"):
        asyncio.run(smtp_connect.open_connection(Server("127.0.0.1", smtp.port, "tls", connect_timeout=3)))


@contextmanager
def saying(*chunks: bytes) -> Iterator[int]:
    """Listen on a port, say this to whoever comes, and hang up when they do."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            here, _ = listening.accept()
            with here:
                here.settimeout(3)
                for chunk in chunks:
                    here.sendall(chunk)
                while here.recv(4096):
                    pass

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listening.getsockname()[1]
        thread.join(5)


@pytest.mark.parametrize(
    "words",
    [b"HTTP/1.1 200 OK\r\n\r\n", b"220-a\r\n250 b\r\n", b"220 " + b"x" * 9000, b"\xff\xfe\r\n", b"999 what\r\n",
     b"220 hello\r\n250 early\r\n250 more\r\n250 more\r\n"],
    ids=["http", "two codes", "endless", "binary", "no such code", "unasked"],
)  # fmt: skip
def test_a_server_that_talks_nonsense_is_unreachable(words: bytes) -> None:
    """What is no SMTP ends the conversation with clear words, and quickly."""
    with saying(words) as port, pytest.raises(ConnectionFailed):
        talk(port, lambda dialogue: send(dialogue, 1), connect_timeout=2)


@given(st.lists(st.tuples(st.integers(200, 559), st.lists(st.text("ab c-", max_size=9), min_size=1, max_size=3)),
                max_size=5), st.data())  # fmt: skip
def test_replies_are_read_however_they_are_cut(said: list[tuple[int, list[str]]], data: st.DataObject) -> None:
    """Bytes that come in any pieces are the same replies."""
    raw = b""
    for code, lines in said:
        for index, line in enumerate(lines):
            raw += f"{code}{' ' if index == len(lines) - 1 else '-'}{line}\r\n".encode()
    replies, found = ReplyParser(), []
    while raw:
        size = data.draw(st.integers(1, len(raw)))
        found += replies.feed(raw[:size])
        raw = raw[size:]

    assert found == [Reply(code, "\n".join(lines)) for code, lines in said]


def test_a_line_without_end_is_refused() -> None:
    """Nobody fills our memory with one line."""
    replies = ReplyParser()
    with pytest.raises(MalformedReply):
        for _ in range(20):
            replies.feed(b"220 " + b"x" * (MAX_REPLY_LINE_BYTES // 2))
