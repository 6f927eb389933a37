"""The SMTP listener for returned mail, and the capture server of the built-in inbox.

The server through which programs submit mail is in `submission.py`.
"""

import asyncio
import logging
import re
from concurrent.futures import ThreadPoolExecutor
from email.errors import MessageError
from typing import Any, NamedTuple

from aiosmtpd.smtp import SMTP, Envelope, Session, TLSSetupException

from appliance.certificates import store
from appliance.core import crypto
from appliance.core.errors import Deferred, Unavailable
from appliance.inbound import bounce_mail
from appliance.inbound.delivery_reports import DeliveryReport
from appliance.inbound.smtp_sessions import (
    MAX_RECIPIENTS,
    ConnectionLimiter,
    SmtpSession,
    ThreadedServer,
    has_bare_line_ends,
    open_socket,
)
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

log = logging.getLogger("campanero.inbound")


class SmtpListener(ThreadedServer):
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
        self.certificate = store.load_served(self._settings, "inbound.tls_certificate")
        self.sockets = [open_socket("inbound.listen", self._settings.inbound.listen)]

    async def _serve(self) -> None:
        handler, name = InboundHandler(), config.get_mail_host(self._settings)
        tls = self.certificate.context if self.certificate is not None else None
        log.info("inbound: listening for returned mail address=%s", self._settings.inbound.listen)
        await self._accept(lambda: SmtpSession(handler, self.limiter, name, tls))
        handler.close()


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
        # A thread parses one mail at a time, so that a slow mail does not block the event loop.
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
        """Parse a message and record its reports and opt-outs; return the SMTP reply once they are on disk."""
        content = envelope.original_content or b""
        if has_bare_line_ends(content):
            return "554 5.6.0 Bare CR or LF is not allowed in a message"
        try:
            targets = [
                target
                for address in dict.fromkeys(envelope.rcpt_tos)
                if (target := await self._find_mailbox(address)) is not None
            ]
            reports = await self._parse_reports(
                content, [target.message_id for target in targets if target.unsubscribe_token is None]
            )
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

    async def _parse_reports(self, content: bytes, message_ids: list[int | None]) -> list[list[DeliveryReport]]:
        return await asyncio.get_running_loop().run_in_executor(
            self._reader, bounce_mail.parse_reports, content, *message_ids
        )

    async def handle_exception(self, error: Exception) -> str:
        """Log an unexpected error, and return a reply without details; a failed TLS handshake was already logged."""
        if not isinstance(error, TLSSetupException):
            log.error("inbound: session failed: %r", error)
        return "451 4.3.0 Internal error, try again later"


def _is_sending_domain(domain_name: str) -> bool:
    return fetch_one("SELECT 1 FROM sending_domain WHERE name = ? LIMIT 1", (domain_name,)) is not None


def _write_reports(reports: list[list[DeliveryReport]], tokens: list[str]) -> int:
    """Record the reports of a mail and the opt-outs of its unsubscribe tokens, in the running transaction.

    Return how many of them changed something.
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


_MAX_CAPTURED_BYTES = 50_000_000


class _CaptureSession(SMTP):
    """A session of the capture server. Programs may submit longer lines than RFC 5321 allows."""

    line_length_limit = _MAX_CAPTURED_BYTES

    async def handle_exception(self, error: Exception) -> str:
        """Log an unexpected error and end the message, so that the next one on the connection starts afresh."""
        log.error("capture: message failed: %r", error)
        self._set_post_data_state()  # type: ignore[no-untyped-call]  # aiosmtpd does not annotate it
        return "451 4.3.0 Internal error, try again later"


def _create_session() -> SMTP:
    return _CaptureSession(
        _CaptureHandler(),
        hostname="localhost",
        ident="Campanero capture",
        data_size_limit=_MAX_CAPTURED_BYTES,
        enable_SMTPUTF8=True,
        loop=asyncio.get_running_loop(),
    )


class CaptureServer(ThreadedServer):
    """The capture server for mail, and the inbox for captured SMS."""

    def __init__(self) -> None:
        super().__init__("capture")

    def start(self) -> None:
        """Listen on a free port of 127.0.0.1, and connect the capture transports for mail and SMS to the inbox."""
        self.sockets = [open_socket("capture", "127.0.0.1:0")]
        super().start()
        smtp_connect.set_capture_port(self.sockets[0].getsockname()[1])
        capture.set_inbox(_store_sms)

    def stop(self) -> None:
        """Stop accepting mail and SMS."""
        smtp_connect.set_capture_port(None)
        capture.set_inbox(None)
        super().stop()

    async def _serve(self) -> None:
        await self._accept(_create_session)
