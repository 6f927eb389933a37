"""An SMTP client with pipelining (RFC 2920).

A message and the envelope of the next one are sent together, so that a message costs one round trip. If the connection
breaks before the final dot of a message, nothing was accepted and Deferred is raised; after it, the message may have
been accepted and Uncertain is raised (RFC 1047). Only one task may use a connection at a time.
"""

import asyncio
import contextlib
import re
from collections import deque
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple, Protocol, cast

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
from appliance.core.i18n import gettext_stored
from appliance.sending.delivery import bounce_classes

# Replies are parsed strictly (RFC 5321, 4.2) and converted into errors of delivery.

# RFC 5321, 4.5.3.1.5 allows 512 octets; a server that sends longer lines is tolerated up to this limit
MAX_REPLY_LINE_BYTES, MAX_REPLY_LINES = 4_096, 200
_LINE = re.compile(rb"([2-5][0-9]{2})([ -]?)(.*)", re.DOTALL)
_LAST_LINE_STARTS = {b"%d " % code: code for code in range(200, 600)}
_ENHANCED = re.compile(r"([245]\.\d{1,3}\.\d{1,3})\b")


class MalformedReply(Exception):
    """The server sent bytes that are not an SMTP reply; the exception's text describes them."""


class Reply(NamedTuple):
    """A reply: its code, and the text of its lines joined by line breaks, without the codes."""

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
        """Return the code and the text of the reply as one string."""
        return f"{self.code} {self.text}".strip()


@lru_cache(maxsize=256)
def _parse_single_line(code: int, line: bytes) -> Reply:
    """Return a reply of one line; servers repeat most of them for each message."""
    return Reply(code, line[4:].decode("utf-8", "replace"))


class ReplyParser:
    """An incremental parser: `feed` accepts bytes as they arrive and returns the replies that are complete."""

    def __init__(self) -> None:
        self._rest = b""
        self._lines: list[bytes] = []
        self._code = 0

    def clear(self) -> None:
        """Drop incomplete replies; bytes from before the TLS handshake must not be trusted (CVE-2011-0411)."""
        self._rest, self._lines, self._code = b"", [], 0

    def feed(self, data: bytes) -> list[Reply]:
        """Parse the next bytes and return the replies that they complete; raises MalformedReply for anything else."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > MAX_REPLY_LINE_BYTES:
            raise MalformedReply("a reply line is too long")
        replies = []
        for line in lines:
            line = line.removesuffix(b"\r")
            code = _LAST_LINE_STARTS.get(line[:4])
            if code is not None and not self._lines and len(line) <= MAX_REPLY_LINE_BYTES:
                replies.append(_parse_single_line(code, line))
                continue
            reply = self._line(line)
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
    """Return the error for a rejection before MAIL, which is about this client and not about a message.

    It is ClientRejected for 5xx, Deferred for 450, else ConnectionFailed.
    """
    kind = ClientRejected if reply.code >= 500 else Deferred if reply.code == 450 else ConnectionFailed
    return kind(reply.describe(), reply.code, reply.enhanced_code)


def sender_error(reply: Reply) -> DeliveryError:
    """Return the error for a rejected MAIL command: SenderRejected for 5xx, ConnectionFailed for 421, else Deferred."""
    kind = SenderRejected if reply.code >= 500 else ConnectionFailed if reply.code == 421 else Deferred
    return kind(reply.describe(), reply.code, reply.enhanced_code)


def message_error(reply: Reply) -> DeliveryError:
    """Return the error for a rejected recipient or message: RecipientRejected for 5xx, else Deferred.

    A rejection because of our SPF, DKIM, DMARC or reverse DNS is MailUnauthenticated, whatever its code.
    """
    kind: type[DeliveryError] = RecipientRejected if reply.code >= 500 else Deferred
    if bounce_classes.classify(reply.code, reply.enhanced_code, reply.text) is bounce_classes.AUTHENTICATION:
        kind = MailUnauthenticated
    return kind(reply.describe(), reply.code, reply.enhanced_code)


# The messages to send, and the servers to connect to.


class Envelope(NamedTuple):
    """A finished message with its envelope addresses; an address is sent in ASCII form if it has one, else in UTF-8."""

    mail_from: str
    rcpt_to: str
    content: bytes
    is_stuffed: bool = False  # True if the content needs no dot-stuffing: it ends in CRLF and no line begins with a dot
    is_ascii: bool = False  # True if the content is known to be ASCII


class TokenSource(Protocol):
    """The access tokens for the login at a server."""

    async def get(self) -> str:
        """Return an access token. Raises ClientRejected or ConnectionFailed."""
        ...

    def discard(self) -> None:
        """Forget the last access token, because the server has rejected it."""
        ...


class Server(NamedTuple):
    """A server to connect to; the timeouts are in seconds.

    `max_messages` is the number of messages sent over one connection; an empty `helo` means the name of this machine.
    With `token_source`, the login is XOAUTH2 with the user name and an access token instead of the password.
    """

    host: str
    port: int
    tls: str  # `none`, `offered` (STARTTLS if the server offers it), `starttls` (required) or `tls` (from the start)
    username: str = ""
    password: str = ""
    helo: str = ""
    connect_timeout: float = 30.0
    command_timeout: float = 300.0
    reply_timeout: float = 600.0
    max_messages: int = 100
    address: str = ""  # the IP address if known, so that the name is not resolved again
    token_source: TokenSource | None = None


def dot_stuff(content: bytes) -> bytes:
    """Return a message with a dot put before each line that begins with one (RFC 5321, 4.5.2), ending in CRLF."""
    if content.startswith(b"."):
        content = b"." + content
    if b"\n." in content:
        content = content.replace(b"\n.", b"\n..")
    return content if content.endswith(b"\r\n") else content + b"\r\n"


def envelope_commands(envelope: Envelope, extensions: Mapping[str, str]) -> tuple[bytes, bytes, bytes]:
    """Return the commands MAIL, RCPT and DATA for a server with the given extensions.

    Raises RecipientRejected if the server supports neither the addresses nor an ASCII form of them, or if the message
    exceeds the size limit of the server.
    """
    sender = addresses.to_ascii(envelope.mail_from) or envelope.mail_from
    recipient = addresses.to_ascii(envelope.rcpt_to) or envelope.rcpt_to
    mail_command = [f"MAIL FROM:<{sender}>"]
    has_ascii_addresses = (sender + recipient).isascii()
    if not has_ascii_addresses:
        if "SMTPUTF8" not in extensions:
            raise RecipientRejected("the next hop does not accept this address (no SMTPUTF8)", 553, "5.6.7")
        mail_command.append("SMTPUTF8")
    if "8BITMIME" in extensions and not (has_ascii_addresses and (envelope.is_ascii or envelope.content.isascii())):
        mail_command.append("BODY=8BITMIME")  # with SMTPUTF8, the headers contain the addresses in UTF-8
    if "SIZE" in extensions:
        size, limit = len(envelope.content), extensions["SIZE"]
        if limit.isdigit() and 0 < int(limit) < size:
            raise RecipientRejected(f"the next hop accepts at most {limit} bytes", 552, "5.3.4")
        mail_command.append(f"SIZE={size}")
    return f"{' '.join(mail_command)}\r\n".encode(), f"RCPT TO:<{recipient}>\r\n".encode(), b"DATA\r\n"


# Exceptions of the client, and an envelope that was sent ahead.


class MessageRejected(Exception):
    """A message was rejected after its data.

    `next_envelope` is the envelope that was already sent behind the message, or None.
    """

    def __init__(self, error: DeliveryError, next_envelope: "OpenedEnvelope | None") -> None:
        super().__init__(str(error))
        self.error, self.next_envelope = error, next_envelope


class ConnectionLost(Exception):
    """The connection ended; the exception's text gives the reason."""


class ReplyTimeout(ConnectionLost):
    """The server did not reply in time."""


class EncryptionFailed(Exception):
    """The server offered STARTTLS, but the TLS handshake failed; the exception's text gives the reason."""


class OpenedEnvelope(NamedTuple):
    """An envelope in progress, with the futures of its replies; its message has not been sent.

    With pipelining, MAIL, RCPT and DATA have been sent. Without it only MAIL has been sent, and `rcpt` and `data` are
    None.
    """

    envelope: Envelope
    mail: "asyncio.Future[Reply]"
    rcpt: "asyncio.Future[Reply] | None"
    data: "asyncio.Future[Reply] | None"

    def is_accepted(self) -> bool:
        """Return whether all replies have arrived and are positive, so that the message can be sent without a wait."""
        if self.rcpt is None or self.data is None or not self.data.done() or self.data.exception():
            return False
        return self.mail.result().is_good and self.rcpt.result().is_good and self.data.result().code == 354


# The connection sends bytes, matches replies to commands by their order, and limits every wait. `SmtpClient` adds the
# commands of a message.

_QUIT_TIMEOUT_SECONDS = 2.0
_NO_REPLY = gettext_stored("no reply within %(seconds)s s")  # translated where it is shown


class SmtpProtocol(asyncio.Protocol):
    """A connection to an SMTP server.

    `extensions` are the EHLO extensions with their parameters, `sent_count` is the number of messages that got a reply,
    and `error` is set once the connection is closed.
    """

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
        """Store the transport, and make it pause writing as soon as bytes have to wait.

        Called for the new connection, and again for the encrypted one.
        """
        # Transports of other event loops are not instances of asyncio.Transport, so the type is not checked
        self._transport = cast(asyncio.Transport, transport)
        # Writing pauses at the first byte that the system does not accept, so that `drain` waits until all bytes left
        self._transport.set_write_buffer_limits(high=0)

    def data_received(self, data: bytes) -> None:
        """Parse bytes and give each reply to the oldest waiting command; fail on an unexpected or malformed reply."""
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
                self._banner = reply  # the greeting is not the reply to a command
            else:
                # It may be an unsolicited 421; in any case it would be mistaken for the reply to the next command
                self.fail(ConnectionLost(f"unexpected reply: {reply.describe()}"))
                return

    def connection_lost(self, error: Exception | None) -> None:
        """Fail all waiting futures with ConnectionLost."""
        self.fail(ConnectionLost(str(error) if error else "the server closed the connection"))

    def pause_writing(self) -> None:
        """Record that the system has not accepted all bytes yet."""
        self._is_buffer_full = True

    def resume_writing(self) -> None:
        """Record that the system accepted all bytes, and end the wait of `drain`."""
        self._is_buffer_full = False
        if self._buffer_drained is not None and not self._buffer_drained.done():
            self._buffer_drained.set_result(None)

    def fail(self, error: ConnectionLost) -> None:
        """Close the connection at once and fail all waiting futures with `error`, or an earlier call's error."""
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
        """Return whether the connection is not closed and carried fewer than `max_messages` messages."""
        return self.error is None and self.sent_count < self.server.max_messages

    @property
    def encryption(self) -> str:
        """Return the TLS version of the connection, such as `TLSv1.3`, or `none`."""
        tls = None if self._transport is None else self._transport.get_extra_info("ssl_object")
        return str(tls.version()) if tls is not None else "none"

    async def read_banner(self) -> Reply:
        """Wait for the greeting of the server and return it; raises ConnectionLost if none arrives."""
        if self._banner is not None and self.error is None:
            return self._banner
        reply: Reply = await self.wait_for(self.next_reply())
        return reply

    def next_reply(self) -> "asyncio.Future[Reply]":
        """Return a future of the reply to the next command; it fails with ConnectionLost if the connection ends."""
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        if self.error is not None:
            future.set_exception(self.error)
            future.exception()  # marks the exception as retrieved, since not every caller awaits the future
        else:
            self._pending_replies.append(future)
        return future

    def write(self, data: bytes) -> None:
        """Send bytes; if the connection is lost, the error is raised where the reply is awaited."""
        if self._transport is not None and self.error is None:
            self._transport.write(data)

    async def send_command(self, line: str, seconds: float | None = None) -> Reply:
        """Send a command and return its reply; raises ConnectionLost if none arrives."""
        self.write(f"{line}\r\n".encode())
        reply: Reply = await self.wait_for(self.next_reply(), seconds)
        return reply

    async def wait_for(self, future: "asyncio.Future[Any]", seconds: float | None = None) -> Any:
        """Wait for a future for `seconds`, by default the command timeout of the server.

        Raises ConnectionLost if the connection ends. A timeout closes the connection and raises ReplyTimeout.
        """
        if future.done():
            return future.result()
        loop = asyncio.get_running_loop()
        self._timeout_seconds = self.server.command_timeout if seconds is None else seconds
        self._deadline = loop.time() + self._timeout_seconds
        # A timer for each wait would cost as much as a message, so the connection has one, set again if it fires early
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
            self.fail(ReplyTimeout(_NO_REPLY % {"seconds": f"{self._timeout_seconds:g}"}))

    async def encrypt(self, context: Any) -> None:
        """Start TLS; bytes received before the handshake are dropped.

        Raises OSError (ssl.SSLError is a subclass), or ConnectionLost if the connection was lost before.
        """
        assert self._transport is not None
        if self.error is not None:
            # The server may have sent more than its reply to STARTTLS (`data_received`). A handshake on the aborted
            # transport does not fail in uvloop.
            raise self.error
        self._parser.clear()
        transport = await asyncio.get_running_loop().start_tls(
            self._transport, self, context, server_hostname=self.server.host,
            ssl_handshake_timeout=self.server.connect_timeout,
        )  # fmt: skip
        if transport is None:
            raise OSError("the connection ended during the handshake")
        self.connection_made(transport)

    async def drain(self) -> None:
        """Wait until the system accepted all bytes. Raises Deferred if the connection is lost before."""
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
        """Close the connection without QUIT, so that the server drops an unfinished message."""
        self.fail(ConnectionLost("aborted"))

    async def close(self) -> None:
        """Send QUIT, wait at most `_QUIT_TIMEOUT_SECONDS` for the reply, and close the connection."""
        if self.error is None:
            with contextlib.suppress(ConnectionLost):
                await self.send_command("QUIT", _QUIT_TIMEOUT_SECONDS)
        self.fail(ConnectionLost("closed"))


# A message smaller than this is written together with the next commands, because the system accepts this many bytes at
# once (`smtp_connect`). With a larger write it would be unknown whether the final dot has left, so a larger message is
# written alone
_MAX_SINGLE_WRITE_BYTES = 16_000


class SmtpClient(SmtpProtocol):
    """An SMTP client that sends messages one after the other over one connection."""

    def open_envelope(self, envelope: Envelope) -> OpenedEnvelope:
        """Send the commands of an envelope; without pipelining, send only MAIL.

        `wait_until_ready` waits for the replies. Raises RecipientRejected as `envelope_commands` does.
        """
        commands = envelope_commands(envelope, self.extensions)
        if "PIPELINING" not in self.extensions:
            self.write(commands[0])
            return OpenedEnvelope(envelope, self.next_reply(), None, None)
        self.write(b"".join(commands))
        return self._expect_replies(envelope)

    async def wait_until_ready(self, opened: OpenedEnvelope) -> None:
        """Wait until the server is ready for the message of an opened envelope.

        Raises the error of a rejection: SenderRejected, RecipientRejected, MailUnauthenticated, Deferred, or
        ConnectionFailed if the server accepts no more messages on this connection. Also raises Deferred if the
        connection breaks.
        """
        try:
            if opened.rcpt is None or opened.data is None:
                await self._open_step_by_step(opened)
            else:
                await self._open_pipelined(opened)
        except ConnectionLost as error:
            # The message itself may be the reason why the server closed the connection, so the attempt counts
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
        if rcpt.code == 421:  # the server closes the connection, so no other reply follows
            await self._reset_and_raise(rcpt, sender_error(mail) if rcpt is mail else message_error(rcpt))
        data = await self.wait_for(opened.data)
        if mail.is_good and rcpt.is_good and data.code == 354:
            return
        if data.code == 354:
            # The server accepted DATA without a recipient: it must reject the empty message sent here (RFC 2920, 3.1)
            self.write(b".\r\n")
            await self.wait_for(self.next_reply())
        if not mail.is_good:
            await self._reset_and_raise(mail, sender_error(mail))
        if not rcpt.is_good:
            await self._reset_and_raise(rcpt, message_error(rcpt))
        await self._reset_and_raise(data, message_error(data if data.code >= 400 else data._replace(code=451)))

    async def _reset_and_raise(self, reply: Reply, error: Exception) -> None:
        """Reset the session for the next envelope, or close it after a 421, then raise the error."""
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
        """Send the message of the opened envelope, with the commands of the next envelope behind it if possible.

        Returns the reply of acceptance, and the next envelope if its commands were sent, else None. Raises
        MessageRejected if the server rejects the message, Deferred if the final dot did not leave this machine, or
        Uncertain if it did and no reply came.
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
        """Return the commands of the next envelope to pipeline behind a message (RFC 2920, 3.1).

        The result is empty without pipelining or a next envelope, if the connection has no message left, or if the
        server cannot accept that envelope.
        """
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
