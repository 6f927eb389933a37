"""The SMTP servers of the service: the listener for returned mail, and the capture server of the built-in inbox."""

import asyncio
import logging
import re
import socket
import ssl
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from email.errors import MessageError
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from aiosmtpd.smtp import SMTP, Envelope, Session, TLSSetupException

from appliance.certificates import store
from appliance.core import addresses, crypto
from appliance.core.errors import Deferred, Unavailable
from appliance.inbound import bounce_mail
from appliance.inbound.delivery_reports import DeliveryReport
from appliance.sending.delivery import smtp_connect
from appliance.sending.messages import capture_inbox, links
from appliance.sending.sms.providers import capture
from appliance.sending.sms.segments import OutgoingSms
from appliance.settings import config
from appliance.settings.schema import Config
from appliance.storage import transactions
from appliance.storage.database import fetch_one
from appliance.storage.transactions import commit
from appliance.tracking import unsubscribes

# The number of concurrent connections is limited, in all and for each client network.

MAX_CONNECTIONS, MAX_CONNECTIONS_PER_ADDRESS = 100, 5


class ConnectionLimiter:
    """A counter of open connections, in total and by address. Use it only in one event loop."""

    def __init__(self) -> None:
        self._of: Counter[str] = Counter()

    def enter(self, address: str) -> bool:
        """Count a connection from an address, or return False if it exceeds a limit."""
        if self._of.total() >= MAX_CONNECTIONS or self._of[address] >= MAX_CONNECTIONS_PER_ADDRESS:
            return False
        self._of[address] += 1
        return True

    def leave(self, address: str) -> None:
        """Count a connection from an address as closed."""
        self._of[address] -= 1
        if self._of[address] <= 0:
            del self._of[address]

    @property
    def size(self) -> int:
        """Return the number of open connections."""
        return self._of.total()


log = logging.getLogger("campanero.inbound")


class _ThreadedServer:
    """An SMTP server on a thread with an event loop of its own, so that a mail of any form delays no HTTP request."""

    def __init__(self, thread_name: str) -> None:
        self._name = thread_name
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._ready = threading.Event()
        self._socket: socket.socket | None = None

    def start(self) -> None:
        """Start the thread, and return when it accepts mail; do nothing without a socket."""
        if self._socket is None:
            return
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._thread.start()
        self._ready.wait()

    def stop(self) -> None:
        """Stop the server, waiting up to 5 seconds. A client that got no reply will send its mail again."""
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

    async def _accept(self, create_session: Callable[[], SMTP]) -> None:
        """Accept connections until `stop` is called."""
        assert self._socket is not None
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        server = await self._loop.create_server(create_session, sock=self._socket, backlog=200)
        self._ready.set()
        await self._stopping.wait()
        server.close()


class SmtpListener(_ThreadedServer):
    """The SMTP listener for returned mail; it listens only if `inbound.listen` is set."""

    def __init__(self, settings: Config) -> None:
        super().__init__("inbound")
        self._settings = settings
        self.certificate: crypto.ServedCertificate | None = None
        self.limiter = ConnectionLimiter()

    def bind(self) -> None:
        """Load the certificate and bind the address, before `start`; raises OSError if one of them cannot be used."""
        if not self._settings.inbound.listen:
            return
        host, _, port = self._settings.inbound.listen.rpartition(":")
        host = host.strip("[]")
        self.certificate = store.load_served(self._settings, "inbound.tls_certificate")
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            self._socket = socket.create_server((host, int(port)), family=family, backlog=200)
        except OSError as error:
            raise OSError(error.errno, f"inbound.listen: {self._settings.inbound.listen}: {error.strerror}") from None

    async def _serve(self) -> None:
        name = self._settings.email.direct.helo or urlsplit(config.base_url(self._settings)).hostname or "localhost"
        handler, tls = InboundHandler(), self.certificate.context if self.certificate is not None else None
        log.info("inbound: listening for returned mail address=%s", self._settings.inbound.listen)
        await self._accept(lambda: SmtpSession(handler, self.limiter, name, tls))
        handler.close()


# SMTP sessions are those of aiosmtpd, with limits for everything that a client sends.
#
# Lines must end in CRLF: if two programs disagree about the end of a line, a second message can be hidden in the first
# (CVE-2023-51764, CVE-2024-27305).

MAX_MESSAGE_BYTES = 1024 * 1024
MAX_RECIPIENTS = 10
IDLE_TIMEOUT_SECONDS = 60.0
HANDSHAKE_TIMEOUT_SECONDS = 10.0
# The maximum number of bytes in one session, more than any client that delivers reports needs
_MAX_SESSION_BYTES = 64 * MAX_MESSAGE_BYTES
_MAX_UNPROCESSED_BYTES = 3 * MAX_MESSAGE_BYTES
_MAX_LINE_BYTES = 65_536
# The maximum number of lines in one message. No report has more, and each line takes time to parse.
_MAX_MESSAGE_LINES = 40_000
_BARE_LINE_END = re.compile(rb"(?<!\r)\n|\r(?!\n)")
_COMMAND_LIMITS = {"MAIL": 500, "RCPT": 1_000, "DATA": 500, "RSET": 500, "NOOP": 100, "*": 30}


class SmtpSession(SMTP):
    """The server side of one SMTP session, with limits on connections, bytes, lines and time."""

    # Returned mail may have longer lines than RFC 5321 allows.
    line_length_limit = _MAX_LINE_BYTES

    def __init__(self, handler: Any, limiter: ConnectionLimiter, hostname: str, tls: ssl.SSLContext | None) -> None:
        super().__init__(
            handler,
            data_size_limit=MAX_MESSAGE_BYTES,
            enable_SMTPUTF8=True,
            hostname=hostname,
            ident="ESMTP Campanero",
            tls_context=tls,
            timeout=IDLE_TIMEOUT_SECONDS,
            auth_exclude_mechanism=["LOGIN", "PLAIN"],
            command_call_limit=_COMMAND_LIMITS,
            loop=asyncio.get_running_loop(),
        )
        self._limiter = limiter
        self._address: str | None = None
        self._turned_away = False
        self._received_bytes = self._unread = self._lines = 0
        self._in_message = False
        self._last = b""  # The last byte of the previous data.

    def connection_made(self, transport: Any) -> None:
        """Greet the client, or reject a connection over a limit. It is called again after STARTTLS."""
        if self._address is None:
            # Connections are counted by network, because one IPv6 subscriber has a large number of addresses.
            address = addresses.client_network(str((transport.get_extra_info("peername") or ("?",))[0]))
            if not self._limiter.enter(address):
                self._turned_away = True
                transport.write(b"421 4.7.0 Too many connections, try again later\r\n")
                transport.close()
                return
            self._address = address
        super().connection_made(transport)

    def connection_lost(self, error: Exception | None) -> None:
        """Release the connection in the limiter."""
        if self._address is not None:
            self._limiter.leave(self._address)
            self._address = None
        if not self._turned_away:
            super().connection_lost(error)

    def eof_received(self) -> bool | None:
        """Close a rejected connection at once; else do what aiosmtpd does."""
        return False if self._turned_away else super().eof_received()

    def data_received(self, data: bytes) -> None:
        """Process received bytes, or end the session if they exceed a limit or a command does not end in CRLF."""
        if self._turned_away:
            return
        self._received_bytes += len(data)
        self._unread += len(data)
        self._lines += data.count(b"\n")
        if self._received_bytes > _MAX_SESSION_BYTES or self._unread > _MAX_UNPROCESSED_BYTES:
            self._end(b"421 4.7.0 Too much data in one session\r\n")
        elif self._in_message and self._lines > _MAX_MESSAGE_LINES:
            self._end(b"552 5.3.4 The message has too many lines\r\n")
        elif not self._in_message and _has_bare_command_end(data, self._last):
            self._end(b"554 5.5.2 Lines end in CRLF\r\n")
        else:
            self._last = data[-1:]
            super().data_received(data)

    def _end(self, reply: bytes) -> None:
        if self.transport is not None:
            transport: Any = self.transport
            transport.write(reply)
            transport.close()

    async def smtp_DATA(self, arg: str) -> None:
        """Reset the counters of unread bytes and lines, then receive a message."""
        self._unread = self._lines = 0
        self._in_message = True
        try:
            await super().smtp_DATA(arg)
        finally:
            self._unread, self._in_message = 0, False

    async def smtp_STARTTLS(self, arg: str) -> None:
        """Start TLS. Raises TLSSetupException, which ends the session, if the handshake takes too long."""
        try:
            async with asyncio.timeout(HANDSHAKE_TIMEOUT_SECONDS):
                await super().smtp_STARTTLS(arg)
        except TimeoutError as error:
            raise TLSSetupException from error

    async def smtp_AUTH(self, arg: str) -> None:
        """Reject AUTH, because the listener has no accounts."""
        await self.push("502 5.5.1 Authentication is not supported")

    async def smtp_VRFY(self, arg: str) -> None:
        """Reply with 252, because addresses are not verified (RFC 5321, 3.5.3)."""
        await self.push("252 2.5.1 Cannot verify the address, but will accept the message")


def _has_bare_command_end(data: bytes, last: bytes) -> bool:
    """Return whether received commands contain a bare CR or LF.

    `last` is the last byte of the previous data. A CR at the end is allowed, because its LF may follow in the next
    data.
    """
    return _BARE_LINE_END.search((last + data if last == b"\r" else data).removesuffix(b"\r")) is not None


def has_bare_line_ends(content: bytes) -> bool:
    """Return whether a message contains a bare CR or LF."""
    return _BARE_LINE_END.search(content) is not None


# Mail is accepted only for our return paths, feedback addresses and unsubscribe addresses. No mail is relayed.

_UNSUBSCRIBE = re.compile(r"unsubscribe\+([0-9a-f]{20,80})", re.IGNORECASE)
_FEEDBACK_NAMES = ("fbl", "feedback")
_RELAY_DENIED = "550 5.7.1 Relaying denied: only reports about mail of this service are accepted"


class Mailbox(NamedTuple):
    """An accepted recipient: a return path, an unsubscribe address, or a feedback address (both fields are None)."""

    message_id: int | None = None
    unsubscribe_token: str | None = None


class InboundHandler:
    """The aiosmtpd handler of all sessions of the listener, which accepts reports and unsubscribe mail."""

    def __init__(self) -> None:
        # A thread parses one mail at a time, so that a mail that takes long does not block the event loop.
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="inbound-reader")

    def close(self) -> None:
        """Stop parsing mail, without waiting for the mail that is being parsed."""
        self._reader.shutdown(wait=False, cancel_futures=True)

    async def handle_EHLO(
        self, server: SmtpSession, session: Any, envelope: Envelope, hostname: str, responses: list[str]
    ) -> list[str]:
        """Return the EHLO reply without the AUTH extension."""
        session.host_name = hostname
        return [line for line in responses if not line[4:].upper().startswith("AUTH")]

    async def handle_RCPT(
        self, server: SmtpSession, session: Any, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        """Accept up to `MAX_RECIPIENTS` return paths, unsubscribe addresses and feedback addresses of this service."""
        if len(envelope.rcpt_tos) >= MAX_RECIPIENTS:
            return "452 4.5.3 Too many recipients"
        try:
            target = await self._find_mailbox(address)
        except Unavailable:
            return "451 4.3.0 Try again later"
        if target is None:
            return _RELAY_DENIED
        envelope.rcpt_tos.append(address)
        return "250 2.1.5 OK"

    async def _find_mailbox(self, address: str) -> Mailbox | None:
        try:
            address.encode()
        except UnicodeEncodeError:  # Bytes that are not UTF-8, which the library escapes, are in no address of ours.
            return None
        local, _, host = address.rpartition("@")
        domain = host.lower().removeprefix("bounce.")
        if not local or domain == host.lower():
            return None
        message_id = links.read_return_path(local)
        if message_id is not None:
            return Mailbox(message_id)
        match = _UNSUBSCRIBE.fullmatch(local)
        if match:
            return Mailbox(None, match[1]) if crypto.read_hex_token(links.LEAVE, match[1], 16) is not None else None
        return (
            Mailbox()
            if local.lower() in _FEEDBACK_NAMES and await transactions.fetch(_is_sending_domain, domain)
            else None
        )

    async def handle_DATA(self, server: SmtpSession, session: Any, envelope: Envelope) -> str:
        """Parse a message, record its reports and opt-outs, and reply after they are on disk."""
        content = envelope.original_content or b""
        if has_bare_line_ends(content):
            return "554 5.6.0 Bare CR or LF is not allowed in a message"
        try:
            targets = [
                target for address in envelope.rcpt_tos if (target := await self._find_mailbox(address)) is not None
            ]
            reports: list[list[DeliveryReport]] = []
            for target in targets:
                if target.unsubscribe_token is None:
                    reports += await self._parse_reports(content, target.message_id)
            tokens = [target.unsubscribe_token for target in targets if target.unsubscribe_token is not None]
            changed = await transactions.commit(_write_reports, reports, tokens)
        except Unavailable as error:
            log.info("inbound: mail deferred: %s", error.message)
            return "451 4.3.0 Storage is unavailable, try again later"
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError, MessageError) as error:
            log.warning("inbound: returned mail cannot be read: %r", error)
            return "554 5.6.0 The message cannot be parsed"
        log.info("inbound: mail received bytes=%s reports=%s new=%s", len(content), len(reports), changed)
        return "250 2.0.0 OK"

    async def _parse_reports(self, content: bytes, message_id: int | None) -> list[list[DeliveryReport]]:
        return await asyncio.get_running_loop().run_in_executor(
            self._reader, bounce_mail.parse_reports, content, message_id
        )

    async def handle_exception(self, error: Exception) -> str:
        """Log an unexpected error, and reply without details about it."""
        log.error("inbound: session failed: %r", error)
        return "451 4.3.0 Internal error, try again later"


def _is_sending_domain(domain_name: str) -> bool:
    return fetch_one("SELECT 1 FROM sending_domain WHERE name = ? LIMIT 1", (domain_name,)) is not None


def _write_reports(reports: list[list[DeliveryReport]], tokens: list[str]) -> int:
    """Record the reports of a mail and the opt-outs of its unsubscribe tokens.

    Return how many of them changed something. Everything is recorded in the running transaction.
    """
    changed = bounce_mail.record_reports(reports)
    return changed + sum(unsubscribes.opt_out(token, "mailto") for token in tokens)


# The capture server is an SMTP server on the loopback address, so that a new installation can send without a relay.
#
# Captured SMS need no server, because the capture provider stores them directly.


class _CaptureHandler:
    async def handle_RCPT(
        self, server: "SMTP", session: "Session", envelope: "Envelope", address: str, options: list[str]
    ) -> str:
        if envelope.rcpt_tos:
            return "452 4.5.3 Only one recipient per message"
        envelope.rcpt_tos.append(address)
        return "250 2.1.5 OK"

    async def handle_DATA(self, server: "SMTP", session: "Session", envelope: "Envelope") -> str:
        content: Any = envelope.original_content or envelope.content
        # The thread of the capture server does nothing else, so it may parse the mail itself.
        sender, recipient, number = envelope.mail_from or "", envelope.rcpt_tos[0], None
        reading = capture_inbox.parse_mail(content, sender)
        if reading is not None:
            try:
                number = await commit(capture_inbox.store_mail, reading, sender, recipient, content)
            except Unavailable:
                return "451 4.3.0 The inbox cannot be written now"
        if number is None:
            return "550 5.7.1 Only messages of this installation are accepted"
        return f"250 2.0.0 Stored as {number}"


async def _store_sms(text: OutgoingSms) -> int:
    try:
        return await commit(capture_inbox.store_sms, text)
    except Unavailable:
        raise Deferred("the inbox cannot be written now") from None


def _create_session() -> SMTP:
    return SMTP(
        _CaptureHandler(),
        hostname="localhost",
        ident="Campanero capture",
        data_size_limit=50_000_000,
        enable_SMTPUTF8=True,
        loop=asyncio.get_running_loop(),
    )


class CaptureServer(_ThreadedServer):
    """The capture server for mail, and the inbox for captured SMS."""

    def __init__(self) -> None:
        super().__init__("capture")

    def start(self) -> None:
        """Listen on a free port of 127.0.0.1, and connect the capture transports for mail and SMS to the inbox."""
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=200)
        super().start()
        smtp_connect.set_capture_port(self._socket.getsockname()[1])
        capture.set_inbox(_store_sms)

    def stop(self) -> None:
        """Stop accepting mail and SMS."""
        smtp_connect.set_capture_port(None)
        capture.set_inbox(None)
        super().stop()

    async def _serve(self) -> None:
        await self._accept(_create_session)
