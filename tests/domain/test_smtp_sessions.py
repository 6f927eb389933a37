"""Sessions of the SMTP listeners: what an unexpected error leaves behind."""

import smtplib
from typing import Any

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
    async def _serve(self) -> None:
        handler, limiter = _FailingHandler(), ConnectionLimiter()
        await self._accept(lambda: SmtpSession(handler, limiter, "localhost", None))


def test_an_unexpected_error_ends_only_its_message() -> None:
    """The next message on the same connection is accepted."""
    listener = _Listener("test")
    listener.sockets = [open_socket("test", "127.0.0.1:0")]
    port = listener.sockets[0].getsockname()[1]
    listener.start()
    try:
        with smtplib.SMTP("127.0.0.1", port, timeout=10) as client:
            client.ehlo()
            replies = [
                [client.mail("a@example.com")[0], client.rcpt("b@example.org")[0], client.data(b"Subject: S\r\n")[0]]
                for _ in range(2)
            ]
    finally:
        listener.stop()
    assert replies == [[250, 250, 451], [250, 250, 250]]
