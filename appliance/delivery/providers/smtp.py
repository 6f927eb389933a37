"""SMTP: one message a transaction, every failure named by the phase it happened in.

Before the final dot a broken connection means that nothing was taken; after it, acceptance cannot be known (RFC 1047).
"""

import re
import smtplib
import socket
import ssl
from typing import NamedTuple

from appliance import addresses
from appliance.delivery.send import Envelope
from appliance.errors import DeliveryError, Ours, Permanent, SenderRefused, Temporary, Uncertain, Unreachable

_ENHANCED = re.compile(r"^([245]\.\d{1,3}\.\d{1,3})\b")


class Server(NamedTuple):
    """Where and how to connect; timeouts in seconds."""

    host: str
    port: int
    tls: str  # none, starttls, tls
    username: str = ""
    password: str = ""
    helo: str = ""
    connect_timeout: float = 30.0
    reply_timeout: float = 600.0
    most_messages: int = 100


class SmtpConnection:
    """One connection to one server."""

    def __init__(self, server: Server) -> None:
        """Connect, greet, encrypt and log in; raises Unreachable, Temporary or Ours."""
        self._server = server
        self._messages = 0
        self._smtp: smtplib.SMTP | None = None
        try:
            self._smtp = self._connect()
            if self._smtp.sock is not None:
                # Each write is a whole step of the conversation; waiting to fill a packet costs 40 ms a message
                self._smtp.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._greet(self._smtp)
        except ssl.SSLError as error:
            self.close()
            raise Ours(f"TLS with {server.host} failed: {error}") from None
        except (OSError, smtplib.SMTPServerDisconnected) as error:
            self.close()
            raise Unreachable(f"{server.host}:{server.port} cannot be reached: {error}") from None
        except DeliveryError:
            self.close()
            raise

    def _connect(self) -> smtplib.SMTP:
        server = self._server
        helo = server.helo or None
        try:
            if server.tls == "tls":
                return smtplib.SMTP_SSL(
                    server.host, server.port, helo, timeout=server.connect_timeout,
                    context=ssl.create_default_context(),
                )  # fmt: skip
            return smtplib.SMTP(server.host, server.port, helo, timeout=server.connect_timeout)
        except smtplib.SMTPConnectError as error:
            raise _ours(error.smtp_code, error.smtp_error) from None

    def _greet(self, smtp: smtplib.SMTP) -> None:
        server = self._server
        _expect(*smtp.ehlo())
        if server.tls == "starttls":
            if not smtp.has_extn("starttls"):
                raise Ours(f"{server.host} offers no STARTTLS; nothing was sent in clear text")
            _expect(*smtp.docmd("STARTTLS"))
            # What the server sent before the handshake is forgotten: it may have been injected (CVE-2011-0411)
            smtp.file = None
            assert smtp.sock is not None
            smtp.sock = ssl.create_default_context().wrap_socket(smtp.sock, server_hostname=server.host)
            smtp.helo_resp = smtp.ehlo_resp = None
            smtp.esmtp_features = {}
            smtp.does_esmtp = False
            _expect(*smtp.ehlo())
        if server.username:
            try:
                smtp.login(server.username, server.password)
            except smtplib.SMTPAuthenticationError as error:
                raise _ours(error.smtp_code, error.smtp_error) from None
            except smtplib.SMTPException as error:
                raise Ours(f"login is not possible: {error}") from None

    def hand_over(self, envelope: Envelope) -> str:
        """Hand one message over (RFC 5321, 3.3) and answer the reply's text."""
        smtp = self._smtp
        if smtp is None:
            raise Unreachable("the connection is closed")
        try:
            self._before_dot(smtp, envelope)
        except (OSError, smtplib.SMTPServerDisconnected) as error:
            self._drop()
            # It may be this very message that the other side cannot stand, so it costs an attempt and has an end
            raise Temporary(f"the connection broke before the message was handed over: {error}") from None
        code, text = self._after_dot(smtp)
        self._messages += 1
        if 200 <= code < 300:
            return text
        if code == 421:
            self._drop()
        raise _fault(code, text)

    def _before_dot(self, smtp: smtplib.SMTP, envelope: Envelope) -> None:
        sender = addresses.ascii_form(envelope.mail_from) or envelope.mail_from
        recipient = addresses.ascii_form(envelope.rcpt_to) or envelope.rcpt_to
        options = [] if (sender + recipient).isascii() else ["SMTPUTF8"]
        if options and not smtp.has_extn("smtputf8"):
            raise Permanent("the next hop does not take this address (no SMTPUTF8)", 553, "5.6.7")
        smtp.command_encoding = "utf-8" if options else "ascii"
        command = " ".join([f"FROM:<{sender}>", *options])
        self._step(smtp, *smtp.docmd("MAIL", command), ours=True)
        self._step(smtp, *smtp.docmd("RCPT", f"TO:<{recipient}>"))
        code, raw = smtp.docmd("DATA")
        if code != 354:
            self._step(smtp, code if code >= 400 else 451, raw)
        assert smtp.sock is not None
        # The dot travels in the last write: if that fails, the dot did not leave
        smtp.sock.sendall(stuffed(envelope.content) + b".\r\n")

    def _after_dot(self, smtp: smtplib.SMTP) -> tuple[int, str]:
        assert smtp.sock is not None
        try:
            smtp.sock.settimeout(self._server.reply_timeout)
            code, raw = smtp.getreply()
            smtp.sock.settimeout(self._server.connect_timeout)
        except (OSError, smtplib.SMTPServerDisconnected, smtplib.SMTPResponseException) as error:
            self._drop()
            raise Uncertain(f"no reply after the message was handed over: {error}") from None
        if code == -1:
            self._drop()
            raise Uncertain("the reply after the message could not be read")
        return code, raw.decode("utf-8", "replace")

    def _step(self, smtp: smtplib.SMTP, code: int, raw: bytes, ours: bool = False) -> None:
        if 200 <= code < 300:
            return
        text = raw.decode("utf-8", "replace")
        if code == 421 or code == -1:
            self._drop()
        else:
            self._reset(smtp)
        if ours and code >= 500:
            # About the sender it was given, so about whoever sends under that name and about nobody else
            raise SenderRefused(f"{code} {text}", code, _enhanced(text))
        raise _fault(code, text)

    def _reset(self, smtp: smtplib.SMTP) -> None:
        try:
            code, _ = smtp.docmd("RSET")
        except (OSError, smtplib.SMTPServerDisconnected):
            code = -1
        if code != 250:
            self._drop()

    def is_open(self) -> bool:
        """Say whether another message may follow here."""
        return self._smtp is not None and self._messages < self._server.most_messages

    def _drop(self) -> None:
        smtp, self._smtp = self._smtp, None
        if smtp is not None:
            smtp.close()

    def close(self) -> None:
        """Say QUIT and hang up; what the server thinks of it does not matter any more."""
        smtp, self._smtp = self._smtp, None
        if smtp is None:
            return
        try:
            if smtp.sock is not None:
                smtp.sock.settimeout(2)
            smtp.docmd("QUIT")
        except (OSError, smtplib.SMTPException):
            pass
        finally:
            smtp.close()


def stuffed(content: bytes) -> bytes:
    """Make content safe for DATA: a line that begins with a dot gets another (RFC 5321, 4.5.2)."""
    if content.startswith(b"."):
        content = b"." + content
    if b"\n." in content:
        content = content.replace(b"\n.", b"\n..")
    return content if content.endswith(b"\r\n") else content + b"\r\n"


def _expect(code: int, raw: bytes) -> None:
    if not 200 <= code < 300:
        raise _ours(code, raw)


def _enhanced(text: str) -> str | None:
    found = _ENHANCED.match(text)
    return found[1] if found else None


def _ours(code: int, raw: bytes | str) -> DeliveryError:
    """Name a refusal before any recipient was: it is about us, whatever its class."""
    text = raw.decode("utf-8", "replace") if isinstance(raw, bytes) else raw
    if code < 0:
        return Unreachable(text or "no answer")
    kind = Ours if code >= 500 else Temporary if code == 450 else Unreachable
    return kind(f"{code} {text}", code, _enhanced(text))


def _fault(code: int, text: str) -> DeliveryError:
    if code < 0:
        return Temporary(text or "the answer could not be read")
    kind = Permanent if code >= 500 else Temporary
    return kind(f"{code} {text}", code, _enhanced(text))
