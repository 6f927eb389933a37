"""The built-in capture server: a real SMTP server on loopback, so that a new installation can send without a relay.

There is no such server for SMS; their capture provider stores them directly.
"""

import asyncio
from typing import TYPE_CHECKING, Any

from appliance.core.errors import Temporary, Unavailable
from appliance.sending.delivery import providers
from appliance.sending.messages import capture_inbox
from appliance.sending.sms.gsm import Text
from appliance.sending.sms.providers import capture
from appliance.storage.work import call, commit

if TYPE_CHECKING:
    from aiosmtpd.smtp import SMTP, Envelope, Session


class _Inbox:
    async def handle_RCPT(
        self, server: "SMTP", session: "Session", envelope: "Envelope", address: str, options: list[str]
    ) -> str:
        if envelope.rcpt_tos:
            return "452 4.5.3 one recipient a message"
        envelope.rcpt_tos.append(address)
        return "250 2.1.5 OK"

    async def handle_DATA(self, server: "SMTP", session: "Session", envelope: "Envelope") -> str:
        content: Any = envelope.original_content or envelope.content
        try:
            reading = await call(capture_inbox.read, content)
            if reading is None:
                return "550 5.7.1 only this installation's own messages are kept here"
            recipient = envelope.rcpt_tos[0]
            number = await commit(capture_inbox.store, reading, envelope.mail_from or "", recipient, content)
        except Unavailable:
            return "451 4.3.0 the inbox cannot be written now"
        return f"250 2.0.0 kept as {number}"


async def _keep(text: Text) -> int:
    try:
        return await commit(capture_inbox.keep, text)
    except Unavailable:
        raise Temporary("the inbox cannot be written now") from None


def _conversation() -> "SMTP":
    from aiosmtpd.smtp import SMTP

    return SMTP(
        _Inbox(), hostname="localhost", ident="Campanero capture", data_size_limit=50_000_000, enable_SMTPUTF8=True,
        loop=asyncio.get_running_loop(),
    )  # fmt: skip


class CaptureServer:
    """The listener, on a free loopback port."""

    def __init__(self) -> None:
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen, and tell the capture transport where."""
        self._server = await asyncio.get_running_loop().create_server(_conversation, "127.0.0.1", 0)
        providers.capture_at(self._server.sockets[0].getsockname()[1])
        capture.keep_with(_keep)

    async def stop(self) -> None:
        """Take no new connections."""
        if self._server is not None:
            self._server.close()
            providers.capture_at(None)
            capture.keep_with(None)
