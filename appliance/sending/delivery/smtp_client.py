"""Speak SMTP as a client, with pipelining (RFC 2920).

A message and the envelope of the next one are sent together, so that a message costs one round trip. The class of
an error tells the phase in which it happened: before the final dot, a broken connection means that nothing was
accepted; after it, acceptance cannot be known (RFC 1047). A connection is used by one task at a time.
"""

import asyncio
import contextlib
import re
from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

from appliance.core import addresses
from appliance.core.errors import (
    ClientRejected,
    ConnectionFailed,
    Deferred,
    DeliveryError,
    MailUnauthenticated,
    RecipientRejected,
    SenderRejected,
    Uncertain,
)
from appliance.sending.delivery import bounce_classes

# Replies: strict parsing (RFC 5321, section 4.2), and the errors that they mean for delivery.

# RFC 5321, 4.5.3.1.5 allows 512 octets; longer lines are accepted, endless ones are not
MAX_REPLY_LINE_BYTES = 4_096
MAX_REPLY_LINES = 200
_LINE = re.compile(rb"([2-5][0-9]{2})([ -]?)(.*)", re.DOTALL)
_ENHANCED = re.compile(r"([245]\.\d{1,3}\.\d{1,3})\b")


class MalformedReply(Exception):
    """The server sent something that is not an SMTP reply."""


class Reply(NamedTuple):
    """A reply: its code, and its lines as one text without the codes."""

    code: int
    text: str

    @property
    def is_good(self) -> bool:
        """Return whether the code is 2xx."""
        return 200 <= self.code < 300

    @property
    def enhanced_code(self) -> str | None:
        """Return the enhanced status code (RFC 3463) at the start of the text, or None."""
        match = _ENHANCED.match(self.text)
        return match[1] if match else None

    def describe(self) -> str:
        """Return code and text of the reply."""
        return f"{self.code} {self.text}".strip()


class ReplyParser:
    """An incremental parser, which takes bytes as they arrive and returns complete replies."""

    def __init__(self) -> None:
        self._rest = b""
        self._lines: list[bytes] = []
        self._code = 0

    def clear(self) -> None:
        """Drop the bytes received so far: those from before the TLS handshake are not trusted (CVE-2011-0411)."""
        self._rest, self._lines, self._code = b"", [], 0

    def feed(self, data: bytes) -> list[Reply]:
        """Parse the next bytes and return the replies that are complete. Raises MalformedReply."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > MAX_REPLY_LINE_BYTES:
            raise MalformedReply("a reply line is too long")
        replies = []
        for line in lines:
            reply = self._line(line.removesuffix(b"\r"))
            if reply is not None:
                replies.append(reply)
        return replies

    def _line(self, line: bytes) -> Reply | None:
        parts = _LINE.fullmatch(line)
        if parts is None or len(line) > MAX_REPLY_LINE_BYTES or (not parts[2] and parts[3]):
            raise MalformedReply(f"not a reply: {line[:80].decode('utf-8', 'replace')!r}")
        code = int(parts[1])
        if self._lines and code != self._code:
            raise MalformedReply(f"a reply with two codes: {self._code} and {code}")
        self._code = code
        self._lines.append(parts[3])
        if len(self._lines) > MAX_REPLY_LINES:
            raise MalformedReply("a reply with too many lines")
        if parts[2] == b"-":
            return None
        text = b"\n".join(self._lines).decode("utf-8", "replace")
        self._lines = []
        return Reply(code, text)


def connection_error(reply: Reply) -> DeliveryError:
    """Return the error of a rejection before any recipient was named: it is always about this client."""
    kind = ClientRejected if reply.code >= 500 else Deferred if reply.code == 450 else ConnectionFailed
    return kind(reply.describe(), reply.code, reply.enhanced_code)


def sender_error(reply: Reply) -> DeliveryError:
    """Return the error of a rejected MAIL command: 5xx is about the sender, 421 about the connection."""
    kind = SenderRejected if reply.code >= 500 else ConnectionFailed if reply.code == 421 else Deferred
    return kind(reply.describe(), reply.code, reply.enhanced_code)


def message_error(reply: Reply) -> DeliveryError:
    """Return the error of a rejected recipient or message; a rejection that names our DNS counts against neither."""
    kind: type[DeliveryError] = RecipientRejected if reply.code >= 500 else Deferred
    if bounce_classes.classify(reply.code, reply.enhanced_code, reply.text) is bounce_classes.AUTHENTICATION:
        kind = MailUnauthenticated
    return kind(reply.describe(), reply.code, reply.enhanced_code)


# Envelopes and servers.


class Envelope(NamedTuple):
    """A finished message with its two envelope addresses, as ASCII or, if the next hop accepts it, UTF-8."""

    mail_from: str
    rcpt_to: str
    content: bytes
    is_stuffed: bool = False  # no line begins with a dot


class Server(NamedTuple):
    """A server to connect to; timeouts in seconds."""

    host: str
    port: int
    tls: str  # none, offered, starttls, tls
    username: str = ""
    password: str = ""
    helo: str = ""
    connect_timeout: float = 30.0
    command_timeout: float = 300.0
    reply_timeout: float = 600.0
    max_messages: int = 100
    address: str = ""  # the IP address if known, so that the name is not resolved again


def dot_stuff(content: bytes) -> bytes:
    """Escape lines that begin with a dot, for DATA (RFC 5321, 4.5.2)."""
    if content.startswith(b"."):
        content = b"." + content
    if b"\n." in content:
        content = content.replace(b"\n.", b"\n..")
    return content if content.endswith(b"\r\n") else content + b"\r\n"


def envelope_commands(envelope: Envelope, extensions: Mapping[str, str]) -> tuple[bytes, bytes, bytes]:
    """Return MAIL, RCPT and DATA for a server with these extensions.

    Raises RecipientRejected if the server cannot accept the addresses or the size.
    """
    sender = addresses.to_ascii(envelope.mail_from) or envelope.mail_from
    recipient = addresses.to_ascii(envelope.rcpt_to) or envelope.rcpt_to
    mail_command = [f"MAIL FROM:<{sender}>"]
    if not (sender + recipient).isascii():
        if "SMTPUTF8" not in extensions:
            raise RecipientRejected("the next hop does not accept this address (no SMTPUTF8)", 553, "5.6.7")
        mail_command.append("SMTPUTF8")
        if "8BITMIME" in extensions:
            mail_command.append("BODY=8BITMIME")  # the message's headers contain these addresses as UTF-8
    if "SIZE" in extensions:
        size = len(envelope.content)
        limit = extensions["SIZE"]
        if limit.isdigit() and 0 < int(limit) < size:
            raise RecipientRejected(f"the next hop accepts at most {limit} bytes", 552, "5.3.4")
        mail_command.append(f"SIZE={size}")
    return f"{' '.join(mail_command)}\r\n".encode(), f"RCPT TO:<{recipient}>\r\n".encode(), b"DATA\r\n"


# Outcomes of a dialogue besides replies.


class MessageRejected(Exception):
    """A message was rejected after its data; `next_envelope` is already opened behind it, or None."""

    def __init__(self, error: DeliveryError, next_envelope: "OpenedEnvelope | None") -> None:
        super().__init__(str(error))
        self.error, self.next_envelope = error, next_envelope


class ConnectionLost(Exception):
    """The connection ended; the text says how."""


class ReplyTimeout(ConnectionLost):
    """The server did not reply in time."""


class EncryptionFailed(Exception):
    """The server offers encryption that failed; the text says why."""


class OpenedEnvelope(NamedTuple):
    """An envelope whose commands were sent, with the replies that it waits for; nothing of its message was sent."""

    envelope: Envelope
    mail: "asyncio.Future[Reply]"
    rcpt: "asyncio.Future[Reply] | None"
    data: "asyncio.Future[Reply] | None"


# The connection: it sends bytes, matches replies to commands by their order, and limits every wait. `SmtpClient` below
# adds the commands of a message.

_QUIT_TIMEOUT_SECONDS = 2.0


class SmtpProtocol(asyncio.Protocol):
    """A connection to one SMTP server, after its greeting."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.extensions: dict[str, str] = {}
        self.sent_count = 0
        self._transport: asyncio.Transport | None = None
        self._parser = ReplyParser()
        self._pending_replies: deque[asyncio.Future[Reply]] = deque()
        self._banner: Reply | None = None
        self.error: ConnectionLost | None = None
        self._is_buffer_full = False
        self._buffer_drained: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._deadline = self._timeout_seconds = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take over the connection, again after it became encrypted."""
        # The transports of other event loops are not of asyncio's classes
        self._transport = cast(asyncio.Transport, transport)
        # Writing pauses at the first byte that the system does not accept, which shows what left this machine
        self._transport.set_write_buffer_limits(high=0)

    def data_received(self, data: bytes) -> None:
        """Set the results of the waiting commands, in their order."""
        try:
            replies = self._parser.feed(data)
        except MalformedReply as error:
            self.fail(ConnectionLost(str(error)))
            return
        for reply in replies:
            while self._pending_replies and self._pending_replies[0].done():
                self._pending_replies.popleft()
            if self._pending_replies:
                self._banner = self._banner or reply
                self._pending_replies.popleft().set_result(reply)
            elif self._banner is None and not self.extensions:
                self._banner = reply  # the greeting answers no command
            else:
                # An unsolicited 421, or a reply that would be mistaken for the reply to the next command
                self.fail(ConnectionLost(f"unexpected reply: {reply.describe()}"))
                return

    def connection_lost(self, error: Exception | None) -> None:
        """Fail all waiting futures."""
        self.fail(ConnectionLost(str(error) if error else "the server closed the connection"))

    def pause_writing(self) -> None:
        """Remember that the send buffer is not empty."""
        self._is_buffer_full = True

    def resume_writing(self) -> None:
        """Remember that the send buffer is empty."""
        self._is_buffer_full = False
        if self._buffer_drained is not None and not self._buffer_drained.done():
            self._buffer_drained.set_result(None)

    def fail(self, error: ConnectionLost) -> None:
        """Close the connection and fail all waiting futures with the error; an earlier error is kept."""
        if self.error is None:
            self.error = error
        waiting: list[asyncio.Future[Any]] = [*self._pending_replies]
        self._pending_replies.clear()
        if self._buffer_drained is not None:
            waiting.append(self._buffer_drained)
        for future in waiting:
            if not future.done():
                future.set_exception(self.error)
                future.exception()
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._transport.abort()

    def is_open(self) -> bool:
        """Return whether another message may be sent over this connection."""
        return self.error is None and self.sent_count < self.server.max_messages

    @property
    def encryption(self) -> str:
        """Return the TLS version, such as `TLSv1.3`, or `none`."""
        tls = None if self._transport is None else self._transport.get_extra_info("ssl_object")
        return str(tls.version()) if tls is not None else "none"

    async def read_banner(self) -> Reply:
        """Return the greeting of the server. Raises ConnectionLost."""
        if self._banner is not None and self.error is None:
            return self._banner
        reply: Reply = await self.wait_for(self.next_reply())
        return reply

    def next_reply(self) -> "asyncio.Future[Reply]":
        """Return a future of the next reply, which raises ConnectionLost."""
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        if self.error is not None:
            future.set_exception(self.error)
            future.exception()  # marks the exception as retrieved, since not every caller awaits the future
        else:
            self._pending_replies.append(future)
        return future

    def write(self, data: bytes) -> None:
        """Send bytes; errors are raised where the reply is awaited."""
        if self._transport is not None and self.error is None:
            self._transport.write(data)

    async def send_command(self, line: str, seconds: float | None = None) -> Reply:
        """Send a command and return its reply. Raises ConnectionLost."""
        self.write(f"{line}\r\n".encode())
        reply: Reply = await self.wait_for(self.next_reply(), seconds)
        return reply

    async def wait_for(self, future: "asyncio.Future[Any]", seconds: float | None = None) -> Any:
        """Wait for a future up to the timeout of this server. Raises ConnectionLost."""
        if future.done():
            return future.result()
        loop = asyncio.get_running_loop()
        self._timeout_seconds = self.server.command_timeout if seconds is None else seconds
        self._deadline = loop.time() + self._timeout_seconds
        # One timer per connection, which is set again if it fired early: a timer per wait costs as much as a message
        if self._timer is None or self._timer.when() > self._deadline:
            self._set_timer(loop)
        return await future

    def _set_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_at(self._deadline, self._handle_timeout, loop)

    def _handle_timeout(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        if not self._pending_replies and self._buffer_drained is None:
            return
        if loop.time() < self._deadline:
            self._set_timer(loop)
        else:
            self.fail(ReplyTimeout(f"no reply within {self._timeout_seconds:g} s"))

    async def encrypt(self, context: Any) -> None:
        """Start TLS and drop bytes received before the handshake. Raises OSError or ssl.SSLError."""
        assert self._transport is not None
        self._parser.clear()
        transport = await asyncio.get_running_loop().start_tls(
            self._transport, self, context, server_hostname=self.server.host,
            ssl_handshake_timeout=self.server.connect_timeout,
        )  # fmt: skip
        if transport is None:
            raise OSError("the connection ended during the handshake")
        self.connection_made(transport)

    async def drain(self) -> None:
        """Wait until all bytes were sent. Raises Deferred if the connection breaks before."""
        if not self._is_buffer_full:
            return
        self._buffer_drained = asyncio.get_running_loop().create_future()
        try:
            await self.wait_for(self._buffer_drained, self.server.reply_timeout)
        except ConnectionLost as error:
            raise Deferred(f"connection lost before the message was sent: {error}") from None
        finally:
            self._buffer_drained = None

    def abort(self) -> None:
        """Close the connection without QUIT: the server drops an unfinished message."""
        self.fail(ConnectionLost("aborted"))

    async def close(self) -> None:
        """Send QUIT and close the connection, whatever the reply."""
        if self.error is None:
            with contextlib.suppress(ConnectionLost):
                await self.send_command("QUIT", _QUIT_TIMEOUT_SECONDS)
        self.fail(ConnectionLost("closed"))


# A smaller message is written together with the commands behind it, because the system accepts this much at once
# (`smtp_connect`). Of a larger write it would be unknown whether the final dot has left, so it is written alone
_MAX_SINGLE_WRITE_BYTES = 16_000


class SmtpClient(SmtpProtocol):
    """A client that sends one message after the other over one connection."""

    def open_envelope(self, envelope: Envelope) -> OpenedEnvelope:
        """Send the commands of an envelope; `wait_until_ready` waits for the replies.

        Raises RecipientRejected for an envelope that this server cannot accept.
        """
        commands = envelope_commands(envelope, self.extensions)
        if "PIPELINING" not in self.extensions:
            self.write(commands[0])
            return OpenedEnvelope(envelope, self.next_reply(), None, None)
        self.write(b"".join(commands))
        return self._expect_replies(envelope)

    async def wait_until_ready(self, opened: OpenedEnvelope) -> None:
        """Wait until the server asks for the message. Raises Deferred, RecipientRejected or SenderRejected.

        ConnectionFailed means that this connection accepts no more messages.
        """
        try:
            if opened.rcpt is None or opened.data is None:
                await self._open_step_by_step(opened)
            else:
                await self._open_pipelined(opened)
        except ConnectionLost as error:
            # This message may be the reason why the server closed the connection, so the attempt counts
            raise Deferred(f"connection lost before the message was sent: {error}") from None

    async def _open_step_by_step(self, opened: OpenedEnvelope) -> None:
        _, rcpt, data = envelope_commands(opened.envelope, self.extensions)
        reply = await self.wait_for(opened.mail)
        if not reply.is_good:
            await self._reset_and_raise(reply, sender_error(reply))
        self.write(rcpt)
        reply = await self.wait_for(self.next_reply())
        if not reply.is_good:
            await self._reset_and_raise(reply, message_error(reply))
        self.write(data)
        reply = await self.wait_for(self.next_reply())
        if reply.code != 354:
            await self._reset_and_raise(reply, message_error(reply if reply.code >= 400 else reply._replace(code=451)))

    async def _open_pipelined(self, opened: OpenedEnvelope) -> None:
        assert opened.rcpt is not None and opened.data is not None
        mail = await self.wait_for(opened.mail)
        rcpt = mail if mail.code == 421 else await self.wait_for(opened.rcpt)
        if rcpt.code == 421:  # no reply follows it
            await self._reset_and_raise(rcpt, sender_error(mail) if rcpt is mail else message_error(rcpt))
        data = await self.wait_for(opened.data)
        if mail.is_good and rcpt.is_good and data.code == 354:
            return
        if data.code == 354:
            # The server accepted DATA without recipients: it must reject the empty message it gets (RFC 2920, 3.1)
            self.write(b".\r\n")
            await self.wait_for(self.next_reply())
        if not mail.is_good:
            await self._reset_and_raise(mail, sender_error(mail))
        if not rcpt.is_good:
            await self._reset_and_raise(rcpt, message_error(rcpt))
        await self._reset_and_raise(data, message_error(data if data.code >= 400 else data._replace(code=451)))

    async def _reset_and_raise(self, reply: Reply, error: Exception) -> None:
        """Reset the session for the next envelope, then raise the error."""
        if reply.code == 421:
            self.fail(ConnectionLost(reply.describe()))
        else:
            with contextlib.suppress(ConnectionLost):
                reset_reply = await self.send_command("RSET")
                if not reset_reply.is_good:
                    self.fail(ConnectionLost(reset_reply.describe()))
        raise error

    async def deliver(
        self, envelope: Envelope, next_envelope: Envelope | None = None
    ) -> tuple[Reply, OpenedEnvelope | None]:
        """Send the message of the opened envelope, and pipeline the next envelope behind it if the server allows that.

        Returns the reply of acceptance, and the next envelope if it was opened. Raises MessageRejected with the error
        of the server's reply, Deferred if the final dot did not leave this machine, or Uncertain if it did and no reply
        came.
        """
        if self.error is not None:
            raise Deferred(f"connection lost before the message was sent: {self.error}")
        content = envelope.content if envelope.is_stuffed else dot_stuff(envelope.content)
        final = self.next_reply()
        opened = None
        next_commands = self._get_next_commands(next_envelope)
        is_alone = not next_commands or len(content) >= _MAX_SINGLE_WRITE_BYTES
        self.write(b"".join((content, b".\r\n", b"" if is_alone else next_commands)))
        if is_alone:
            await self.drain()
        if is_alone and next_commands:
            self.write(next_commands)
        if next_envelope is not None and next_commands:
            opened = self._expect_replies(next_envelope)
        try:
            reply = await self.wait_for(final, self.server.reply_timeout)
        except ConnectionLost as error:
            raise Uncertain(f"no reply after the message was sent: {error}") from None
        self.sent_count += 1
        if reply.code == 421:
            self.fail(ConnectionLost(reply.describe()))
        if reply.is_good:
            return reply, opened
        raise MessageRejected(message_error(reply), opened)

    def _get_next_commands(self, next_envelope: Envelope | None) -> bytes:
        """Return the commands that may follow a message (RFC 2920, 3.1), or nothing."""
        if (
            next_envelope is None
            or "PIPELINING" not in self.extensions
            or self.sent_count + 1 >= self.server.max_messages
        ):
            return b""
        try:
            return b"".join(envelope_commands(next_envelope, self.extensions))
        except RecipientRejected:
            return b""  # the error is raised again when that envelope is opened alone

    def _expect_replies(self, envelope: Envelope) -> OpenedEnvelope:
        return OpenedEnvelope(envelope, self.next_reply(), self.next_reply(), self.next_reply())
