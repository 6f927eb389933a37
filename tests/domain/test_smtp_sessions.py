"""How long an SMTP session may last that delivers nothing, over real connections."""

import asyncio
from typing import ClassVar

import pytest
from aiosmtpd.handlers import Sink

from appliance.inbound.smtp_sessions import ConnectionLimiter, SmtpSession
from appliance.inbound.submission import SubmissionSession

MESSAGE = (b"MAIL FROM:<a@b.example>", b"RCPT TO:<c@d.example>", b"DATA")


class ShortSession(SmtpSession):
    """A session that must begin within part of a second, and may last after that."""

    limits: ClassVar = SmtpSession.limits._replace(start_seconds=0.3)


class ShortMessageSession(SmtpSession):
    """A session that must deliver each message within part of a second, and may begin late."""

    limits: ClassVar = SmtpSession.limits._replace(message_seconds=0.3)


async def measure(session_class: type[SmtpSession], first: list[bytes], repeated: bytes) -> tuple[float, bytes]:
    """Return after how many seconds a session ends that repeats a command, and its last reply."""
    loop, limiter = asyncio.get_running_loop(), ConnectionLimiter()
    listening = await loop.create_server(lambda: session_class(Sink(), limiter, "mx.example.org", None), "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*listening.sockets[0].getsockname())
    begun, reply = loop.time(), await reader.readline()
    for command in (b"HELO x", *first):
        writer.write(command + b"\r\n")
        reply = await reader.readline()
    while reply and not reply.startswith(b"421") and loop.time() < begun + 5:
        writer.write(repeated + b"\r\n")
        reply = await reader.readline()
        await asyncio.sleep(0.02)
    lasted = loop.time() - begun
    writer.close()
    listening.close()
    return lasted, reply


@pytest.mark.parametrize(
    ("session_class", "first", "repeated"),
    [
        (ShortSession, [], b"NOOP"),
        (ShortSession, [], b"MAIL x"),
        (ShortSession, [], b"DATA"),
        (ShortMessageSession, [MESSAGE[0]], b"NOOP"),
        (ShortMessageSession, [], MESSAGE[0]),
        (ShortMessageSession, [*MESSAGE, b"\r\n."], b"DATA"),
    ],
)
def test_a_session_that_delivers_nothing_ends(
    session_class: type[SmtpSession], first: list[bytes], repeated: bytes
) -> None:
    """No command but those that bring a message makes a session longer, so that nobody keeps all of them (T35)."""
    lasted, reply = asyncio.run(measure(session_class, first, repeated))
    assert reply.startswith(b"421 4.4.2") and lasted >= 0.25


def test_the_time_of_a_session() -> None:
    """A stranger has a minute to sign in or begin a message; a program that signed in may wait for its next one."""
    assert (SmtpSession.limits.start_seconds, SmtpSession.limits.message_seconds) == (60, 600)
    assert (SubmissionSession.limits.start_seconds, SubmissionSession.limits.message_seconds) == (60, None)
