"""The sessions and threads of all SMTP servers of the service, with limits for what clients send.

The servers are in `smtp_servers.py` (returned mail, and the built-in inbox) and `submission.py` (mail of programs).
"""

import asyncio
import logging
import re
import socket
import ssl
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

from aiosmtpd.smtp import SMTP, TLSSetupException

from appliance.core import addresses

log = logging.getLogger("campanero.smtp")

# The number of concurrent connections is limited, in all and for each client network.

MAX_CONNECTIONS, MAX_CONNECTIONS_PER_ADDRESS = 100, 5


class ConnectionLimiter:
    """A counter of open connections, in total and by address. Use it only in one event loop.

    At the total limit, a new connection replaces the oldest that has not begun to work (`begin`), so that idle clients
    do not keep others out. Without such a connection, the new one is refused.
    """

    def __init__(self, total: int = MAX_CONNECTIONS, each: int = MAX_CONNECTIONS_PER_ADDRESS) -> None:
        self._total, self._each = total, each
        self._of: Counter[str] = Counter()
        self._idle: dict[object, Callable[[], None]] = {}  # What ends each connection without work, the oldest first.

    def enter(self, address: str, connection: object, end: Callable[[], None]) -> bool:
        """Count a connection from an address, or return False if it exceeds a limit.

        `end` is a function that ends this connection to make room for another; it is called only before `begin`.
        """
        if self._of[address] >= self._each or (self._of.total() >= self._total and not self._idle):
            return False
        if self._of.total() >= self._total:
            self._idle.pop(next(iter(self._idle)))()
        self._of[address] += 1
        self._idle[connection] = end
        return True

    def begin(self, connection: object) -> None:
        """Mark a connection as working, so that no new connection replaces it."""
        self._idle.pop(connection, None)

    def leave(self, address: str, connection: object) -> None:
        """Count a connection from an address as closed."""
        self._idle.pop(connection, None)
        self._of[address] -= 1
        if self._of[address] <= 0:
            del self._of[address]

    @property
    def size(self) -> int:
        """Return the number of open connections."""
        return self._of.total()


class ThreadedServer:
    """An SMTP server on a thread with its own event loop, so that slow mail delays no HTTP request."""

    def __init__(self, thread_name: str) -> None:
        self._name = thread_name
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._ready = threading.Event()
        self.sockets: list[socket.socket] = []

    def start(self) -> None:
        """Start the thread, and return when the server accepts connections; do nothing if no socket is bound."""
        if not self.sockets:
            return
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._thread.start()
        self._ready.wait()

    def stop(self) -> None:
        """Stop the server, waiting up to 5 seconds. Clients that got no reply will send their mail again."""
        if self._thread is None or self._loop is None or self._stopping is None:
            return
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(5.0)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        raise NotImplementedError  # each subclass says with which sessions it calls `_accept`

    async def _accept(self, *create_sessions: Callable[[], SMTP]) -> None:
        """Accept connections until `stop` is called. For each socket there is a function that creates its sessions."""
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        servers = [
            await self._loop.create_server(create_session, sock=listening, backlog=200)
            for listening, create_session in zip(self.sockets, create_sessions, strict=True)
        ]
        self._ready.set()
        await self._stopping.wait()
        for server in servers:
            server.close()


def open_socket(setting: str, address: str) -> socket.socket:
    """Return a socket that listens at HOST:PORT; raises OSError with the name of the setting."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    try:
        return socket.create_server(
            (host, int(port)), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=200
        )
    except OSError as error:
        raise OSError(error.errno, f"{setting}: {address}: {error.strerror}") from None


# SMTP sessions are those of aiosmtpd, with limits for everything that a client sends.
#
# Lines must end in CRLF: if two programs disagree about the end of a line, a second message can be hidden in the first
# (CVE-2023-51764, CVE-2024-27305).

MAX_MESSAGE_BYTES = 1024 * 1024
MAX_RECIPIENTS = 10
HANDSHAKE_TIMEOUT_SECONDS = 10.0
_MAX_LINE_BYTES = 65_536
_BARE_LINE_END = re.compile(rb"(?<!\r)\n|\r(?!\n)")


class SessionLimits(NamedTuple):
    """The limits of one session.

    Bytes are limited for a message (`message_bytes`), for all data (`session_bytes`), and for data that was received
    but not processed (`unprocessed_bytes`). `commands` is the maximum number of each command, with `*` for all others.
    A session ends if it does not begin a message within `start_seconds`, or if a message takes more than
    `message_seconds` (None: no limit). Other commands, such as NOOP, extend neither time.
    """

    message_bytes: int
    session_bytes: int
    unprocessed_bytes: int
    message_lines: int
    idle_seconds: float
    commands: dict[str, int]
    start_seconds: float = 60.0
    message_seconds: float | None = 600.0


class SmtpSession(SMTP):
    """The server side of one SMTP session, with limits on connections, bytes, lines and time."""

    log_name = "inbound"
    # Returned mail may have longer lines than RFC 5321 allows.
    line_length_limit = _MAX_LINE_BYTES
    # No report has more lines than this, and each line takes time to parse. No client that delivers reports sends more
    # data.
    limits: ClassVar = SessionLimits(
        message_bytes=MAX_MESSAGE_BYTES, session_bytes=64 * MAX_MESSAGE_BYTES, unprocessed_bytes=3 * MAX_MESSAGE_BYTES,
        message_lines=40_000, idle_seconds=60.0,
        commands={"MAIL": 500, "RCPT": 1_000, "DATA": 500, "RSET": 500, "NOOP": 100, "*": 30},
    )  # fmt: skip

    def __init__(
        self, handler: Any, limiter: ConnectionLimiter, hostname: str, tls: ssl.SSLContext | None, **options: Any
    ) -> None:
        super().__init__(
            handler,
            data_size_limit=self.limits.message_bytes,
            enable_SMTPUTF8=True,
            hostname=hostname,
            ident="ESMTP Campanero",
            tls_context=tls,
            timeout=self.limits.idle_seconds,
            command_call_limit=self.limits.commands,
            loop=asyncio.get_running_loop(),
            **options,
        )
        self._limiter = limiter
        self._address: str | None = None
        self._turned_away = False
        self._received_bytes = self._unread = self._lines = 0
        self._in_message = self._has_begun = False
        self._last = b""  # The last byte of the previous data.
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Greet the client, or reject a connection over a limit. It is called again after STARTTLS."""
        if self._address is None:
            # Connections are counted by network, because one IPv6 subscriber has a large number of addresses.
            address = addresses.client_network(str((transport.get_extra_info("peername") or ("?",))[0]))
            if not self._limiter.enter(address, self, self._make_room):
                self._turned_away = True
                transport.write(b"421 4.7.0 Too many connections, try again later\r\n")
                transport.close()
                return
            self._address = address
            self._set_deadline(self.limits.start_seconds)
        super().connection_made(transport)

    def connection_lost(self, error: Exception | None) -> None:
        """Release the connection in the limiter."""
        if self._address is not None:
            self._limiter.leave(self._address, self)
            self._address = None
            self._set_deadline(None)
        if not self._turned_away:
            super().connection_lost(error)

    def eof_received(self) -> bool | None:
        """Close a rejected connection at once; for any other, do what aiosmtpd does."""
        return False if self._turned_away else super().eof_received()

    def data_received(self, data: bytes) -> None:
        """Process received bytes, or end the session if they exceed a limit or a command does not end in CRLF."""
        if self._turned_away:
            return
        self._received_bytes += len(data)
        self._unread += len(data)
        self._lines += data.count(b"\n")
        if self._received_bytes > self.limits.session_bytes or self._unread > self.limits.unprocessed_bytes:
            self.end(b"421 4.7.0 Too much data in one session\r\n")
        elif self._in_message and self._lines > self.limits.message_lines:
            self.end(b"552 5.3.4 The message has too many lines\r\n")
        elif not self._in_message and _has_bare_command_end(data, self._last):
            self.end(b"554 5.5.2 Lines end in CRLF\r\n")
        else:
            self._last = data[-1:]
            super().data_received(data)

    def begin_work(self) -> None:
        """Restart the time limit of a message at the first MAIL and after each message, and mark the work as begun."""
        if self._address is not None:
            self._limiter.begin(self)
            self._set_deadline(self.limits.message_seconds)

    def _make_room(self) -> None:
        if self.transport is not None:
            transport: Any = self.transport
            transport.write(b"421 4.7.0 Too many connections, try again later\r\n")
            transport.abort()  # Closing TLS would wait for the client.

    def _set_deadline(self, seconds: float | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = None
        if seconds is not None:
            self._deadline = asyncio.get_running_loop().call_later(
                seconds, self.end, b"421 4.4.2 The session takes too long\r\n"
            )

    def end(self, reply: bytes) -> None:
        """Write a reply and close the connection."""
        if self.transport is not None:
            transport: Any = self.transport
            transport.write(reply)
            transport.close()

    def _getaddr(self, arg: str) -> tuple[str | None, str | None]:
        """Return address and parameters of MAIL or RCPT; (None, None) if the address cannot be parsed.

        For some malformed addresses, such as `<@` and `<=@[`, Python's parser raises errors that aiosmtpd does not
        expect; it would then ask the client to try again.
        """
        try:
            address: tuple[str | None, str | None] = super()._getaddr(arg)
        except (IndexError, AttributeError, UnboundLocalError):
            return None, None
        return address

    async def smtp_MAIL(self, arg: str | None) -> None:
        """Begin a message; the first one of a session restarts its time limit."""
        await super().smtp_MAIL(arg)
        if not self._has_begun and self.envelope is not None and self.envelope.mail_from is not None:
            self._has_begun = True
            self.begin_work()

    async def smtp_DATA(self, arg: str) -> None:
        """Reset the counters of unread bytes and lines, then receive a message."""
        self._unread = self._lines = 0
        self._in_message = True
        is_message = self.envelope is not None and bool(self.envelope.rcpt_tos)
        try:
            await super().smtp_DATA(arg)
            if is_message:
                self.begin_work()
        except Exception:
            # aiosmtpd replies with the result of `handle_exception` but keeps the message, and would refuse the next
            # MAIL.
            self._set_post_data_state()  # type: ignore[no-untyped-call]  # untyped in the library
            raise
        finally:
            self._unread, self._in_message = 0, False

    async def smtp_STARTTLS(self, arg: str) -> None:
        """Start TLS. Raises TLSSetupException, which ends the session, if the handshake fails or takes too long."""
        if self.session is not None and self.session.ssl:
            await self.push("503 5.5.1 TLS is already active")  # RFC 3207, 4.2
            return
        try:
            async with asyncio.timeout(HANDSHAKE_TIMEOUT_SECONDS):
                await super().smtp_STARTTLS(arg)
        except (TimeoutError, TLSSetupException) as error:
            cause = error.__cause__ if isinstance(error, TLSSetupException) else error
            log.warning("%s: TLS failed client=%s: %s", self.log_name, self._address, _describe_tls_failure(cause))
            raise TLSSetupException from error

    async def smtp_AUTH(self, arg: str) -> None:
        """Reject AUTH, because the listener has no accounts."""
        await self.push("502 5.5.1 Authentication is not supported")

    async def smtp_VRFY(self, arg: str) -> None:
        """Reply with 252, because addresses are not verified (RFC 5321, 3.5.3)."""
        await self.push("252 2.5.1 Cannot verify the address, but will accept the message")


# The TLS alerts of clients (RFC 8446, 6.2) and other reasons of OpenSSL, by the names that it gives them.
_CERTIFICATE_ALERTS = ("UNKNOWN_CA", "BAD_CERTIFICATE", "CERTIFICATE_UNKNOWN", "CERTIFICATE_EXPIRED")
_VERSION_REASONS = ("UNSUPPORTED_PROTOCOL", "PROTOCOL_VERSION", "NO_SHARED_CIPHER", "HANDSHAKE_FAILURE")


def _describe_tls_failure(error: BaseException | None) -> str:
    """Return a description of why a TLS handshake failed, with OpenSSL's name of the reason in parentheses."""
    if isinstance(error, TimeoutError):
        return f"the client did not finish the handshake within {HANDSHAKE_TIMEOUT_SECONDS:.0f} s"
    reason = (getattr(error, "reason", None) or "").upper() if isinstance(error, ssl.SSLError) else ""
    if any(name in reason for name in _CERTIFICATE_ALERTS):
        return f"the client does not trust the certificate of this server ({reason})"
    if any(name in reason for name in _VERSION_REASONS):
        return f"the client offers no version or cipher of TLS that this server accepts ({reason})"
    if reason:
        return f"what the client sent is no TLS handshake, or a damaged one ({reason})"
    return "the client closed the connection during the handshake"


def _has_bare_command_end(data: bytes, last: bytes) -> bool:
    """Return whether received commands contain a bare CR or LF.

    `last` is the last byte of the previous data. A CR at the end is allowed, because its LF may follow in the next
    data.
    """
    return _BARE_LINE_END.search((last + data if last == b"\r" else data).removesuffix(b"\r")) is not None


def has_bare_line_ends(content: bytes) -> bool:
    """Return whether a message contains a bare CR or LF."""
    return _BARE_LINE_END.search(content) is not None
