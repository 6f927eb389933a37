"""One conversation of somebody who brings mail: the library's SMTP, with bounds on everything that can be too much.

Lines end in CRLF here and in nothing else: where two programs disagree about the end of a line, a second message can be
hidden in the first (CVE-2023-51764, CVE-2024-27305).
"""

import asyncio
import re
import ssl
from typing import Any

from aiosmtpd.smtp import SMTP

from appliance import clients
from appliance.inbound.crowd import Crowd

MAX_MESSAGE_BYTES = 1024 * 1024
MAX_RECIPIENTS = 10
IDLE_SECONDS = 60.0
# Who goes on after that has not come to deliver reports
_MAX_BYTES = 64 * MAX_MESSAGE_BYTES
_MAX_UNREAD = 3 * MAX_MESSAGE_BYTES
_MAX_LINE_BYTES = 65_536
# Of one message; nobody's report has more, and each costs time
_MAX_LINES = 40_000
_BARE = re.compile(rb"(?<!\r)\n|\r(?!\n)")
_CALLS = {"MAIL": 500, "RCPT": 1_000, "DATA": 500, "RSET": 500, "NOOP": 100, "*": 30}


class Session(SMTP):
    """The server's side of one conversation."""

    # Mail that comes back may have longer lines than mail may
    line_length_limit = _MAX_LINE_BYTES

    def __init__(self, handler: Any, crowd: Crowd, hostname: str, tls: ssl.SSLContext | None) -> None:
        super().__init__(
            handler, data_size_limit=MAX_MESSAGE_BYTES, enable_SMTPUTF8=True, hostname=hostname,
            ident="ESMTP Campanero", tls_context=tls, timeout=IDLE_SECONDS, auth_exclude_mechanism=["LOGIN", "PLAIN"],
            command_call_limit=_CALLS, loop=asyncio.get_running_loop(),
        )  # fmt: skip
        self._crowd = crowd
        self._address: str | None = None
        self._turned_away = False
        self._taken = self._unread = self._lines = 0
        self._in_message = False
        self._last = b""  # byte of what came before

    def connection_made(self, transport: Any) -> None:
        """Greet, or turn away who is one too many; called once more when the conversation is encrypted."""
        if self._address is None:
            # Of IPv6 one line has more addresses than there are places
            address = clients.household(str((transport.get_extra_info("peername") or ("?",))[0]))
            if not self._crowd.enter(address):
                self._turned_away = True
                transport.write(b"421 4.7.0 Too many connections, come again later\r\n")
                transport.close()
                return
            self._address = address
        super().connection_made(transport)

    def connection_lost(self, error: Exception | None) -> None:
        """Make room for the next."""
        if self._address is not None:
            self._crowd.leave(self._address)
            self._address = None
        if not self._turned_away:
            super().connection_lost(error)

    def eof_received(self) -> bool | None:
        """Nobody who was turned away is waited for."""
        return False if self._turned_away else super().eof_received()

    def data_received(self, data: bytes) -> None:
        """Take some bytes, within bounds; commands end in CRLF."""
        if self._turned_away:
            return
        self._taken += len(data)
        self._unread += len(data)
        self._lines += data.count(b"\n")
        if self._taken > _MAX_BYTES or self._unread > _MAX_UNREAD:
            self._end(b"421 4.7.0 That is too much\r\n")
        elif self._in_message and self._lines > _MAX_LINES:
            self._end(b"552 5.3.4 That is too much\r\n")
        elif not self._in_message and _is_bare(data, self._last):
            self._end(b"554 5.5.2 Lines end in CRLF\r\n")
        else:
            self._last = data[-1:]
            super().data_received(data)

    def _end(self, words: bytes) -> None:
        if self.transport is not None:
            transport: Any = self.transport
            transport.write(words)
            transport.close()

    async def smtp_DATA(self, arg: str) -> None:
        """Take a message; what is too much, is counted from here."""
        self._unread = self._lines = 0
        self._in_message = True
        try:
            await super().smtp_DATA(arg)
        finally:
            self._unread, self._in_message = 0, False

    async def smtp_AUTH(self, arg: str) -> None:
        """Refuse: nobody has an account here."""
        await self.push("502 5.5.1 Nobody logs in here")

    async def smtp_VRFY(self, arg: str) -> None:
        """Refuse: who is written to is nobody's business."""
        await self.push("252 2.5.1 Send and see")


def _is_bare(data: bytes, last: bytes) -> bool:
    """Return whether a piece of commands holds a CR or LF by itself; a CR at its end may still get its LF."""
    return _BARE.search((last + data if last == b"\r" else data).removesuffix(b"\r")) is not None


def is_bare(content: bytes) -> bool:
    """Return whether a message holds a CR or LF by itself."""
    return _BARE.search(content) is not None
