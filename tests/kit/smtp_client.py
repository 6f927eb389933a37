"""An SMTP client that sends mail to the appliance, correctly or with protocol errors."""

import contextlib
import re
import smtplib
import socket
from dataclasses import dataclass


@dataclass(frozen=True)
class SmtpClient:
    """Sends mail to the SMTP port of a server under test."""

    port: int

    @property
    def env(self) -> dict[str, str]:
        """Return the environment of a server that listens on this port."""
        return {"CAMPANERO_INBOUND__LISTEN": f"127.0.0.1:{self.port}"}

    def connect(self) -> smtplib.SMTP:
        """Return a new connection that has received the greeting."""
        return smtplib.SMTP("127.0.0.1", self.port, local_hostname="mx.example.net", timeout=60)

    def deliver(self, raw: bytes, *to: str, sender: str = "", times: int = 1) -> list[int]:
        """Send a mail `times` times on one connection; return the final reply code of each, fewer if it is closed."""
        codes = []
        cut = (smtplib.SMTPServerDisconnected, smtplib.SMTPConnectError, ConnectionError)
        with contextlib.suppress(*cut), self.connect() as smtp:
            smtp.ehlo()
            for _ in range(times):
                codes.append(self._send_once(smtp, raw, to, sender))
        return codes

    @staticmethod
    def _send_once(smtp: smtplib.SMTP, raw: bytes, to: tuple[str, ...], sender: str) -> int:
        smtp.docmd("MAIL", f"FROM:<{sender}>")
        rcpt_codes = [smtp.docmd("RCPT", f"TO:<{recipient}>")[0] for recipient in to]
        if 250 not in rcpt_codes:
            smtp.docmd("RSET")
            return rcpt_codes[0]
        smtp.docmd("DATA")
        body = b"".join(b"." + line if line.startswith(b".") else line for line in raw.splitlines(keepends=True))
        smtp.send(body + (b"" if body.endswith(b"\r\n") else b"\r\n") + b".\r\n")
        return smtp.getreply()[0]

    def send_raw(self, *pieces: bytes, timeout: float = 5) -> str:
        """Send exactly these bytes, each after the reply to the one before, and return all replies."""
        replies = []
        with socket.create_connection(("127.0.0.1", self.port), timeout=timeout) as connection:
            for piece in (b"", *pieces):
                try:
                    connection.sendall(piece)
                    replies.append(_reply(connection))
                except OSError:
                    break
        return "".join(replies)


def _reply(connection: socket.socket) -> str:
    """Read a reply up to its last line, or up to the end of the connection."""
    text = ""
    while not re.search(r"^\d{3} .*\r\n\Z", text, re.MULTILINE) and (more := connection.recv(65536)):
        text += more.decode("utf-8", "replace")
    return text
