"""Sessions of the SMTP listeners: what an unexpected error leaves behind."""

import smtplib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from appliance.inbound.smtp_sessions import ConnectionLimiter, SmtpSession, ThreadedServer, open_socket


class _FailingHandler:
    """A handler that cannot take the first message."""

    messages = 0

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        self.messages += 1
        if self.messages == 1:
            raise RuntimeError("the handler is broken")
        return "250 2.0.0 OK"

    async def handle_exception(self, error: Exception) -> str:
        return "451 4.3.0 Internal error, try again later"


class _Listener(ThreadedServer):
    def __init__(self, limiter: ConnectionLimiter) -> None:
        super().__init__("test")
        self._limiter = limiter

    async def _serve(self) -> None:
        handler, limiter = _FailingHandler(), self._limiter
        await self._accept(lambda: SmtpSession(handler, limiter, "localhost", None))


@contextmanager
def listening(limiter: ConnectionLimiter) -> Iterator[int]:
    """Yield the port of a running listener."""
    listener = _Listener(limiter)
    listener.sockets = [open_socket("test", "127.0.0.1:0")]
    port: int = listener.sockets[0].getsockname()[1]
    listener.start()
    try:
        yield port
    finally:
        listener.stop()


def test_idle_clients_make_room() -> None:
    """If there are as many connections as may be, a new one replaces the oldest that has done nothing."""
    with listening(ConnectionLimiter(total=3, each=9)) as port, ExitStack() as stack:

        def connect() -> smtplib.SMTP:
            return stack.enter_context(smtplib.SMTP("127.0.0.1", port, timeout=10))

        working, oldest, younger, newest = connect(), connect(), connect(), None
        working.ehlo()
        assert working.mail("a@example.com")[0] == 250
        newest = connect()
        assert oldest.noop()[0] == 421 and younger.noop()[0] == 250
        for client in (younger, newest):
            client.ehlo()
            assert client.mail("a@example.com")[0] == 250
        with pytest.raises(smtplib.SMTPConnectError, match=r"4\.7\.0"):
            connect()
        assert working.rcpt("b@example.org")[0] == 250


def test_an_unexpected_error_ends_only_its_message() -> None:
    """The next message on the same connection is accepted."""
    with listening(ConnectionLimiter()) as port, smtplib.SMTP("127.0.0.1", port, timeout=10) as client:
        client.ehlo()
        replies = [
            [client.mail("a@example.com")[0], client.rcpt("b@example.org")[0], client.data(b"Subject: S\r\n")[0]]
            for _ in range(2)
        ]
    assert replies == [[250, 250, 451], [250, 250, 250]]
