"""A client that sends mail to the appliance's own SMTP listener, correctly or not."""

import contextlib
import re
import smtplib
import socket
from dataclasses import dataclass


@dataclass(frozen=True)
class SmtpClient:
    """The SMTP listener of a server."""

    port: int

    @property
    def env(self) -> dict[str, str]:
        """Return the environment with which a server listens here."""
        return {"CAMPANERO_INBOUND__LISTEN": f"127.0.0.1:{self.port}"}

    def connect(self) -> smtplib.SMTP:
        """Return a connection after its greeting."""
        return smtplib.SMTP("127.0.0.1", self.port, local_hostname="mx.example.net", timeout=60)

    def deliver(self, raw: bytes, *to: str, sender: str = "", times: int = 1) -> list[int]:
        """Send a mail several times on one connection; return the last code of each, fewer if it is cut off."""
        codes = []
        cut = (smtplib.SMTPServerDisconnected, smtplib.SMTPConnectError, ConnectionError)
        with contextlib.suppress(*cut), self.connect() as smtp:
            smtp.ehlo()
            for _ in range(times):
                codes.append(self._once(smtp, raw, to, sender))
        return codes

    @staticmethod
    def _once(smtp: smtplib.SMTP, raw: bytes, to: tuple[str, ...], sender: str) -> int:
        smtp.docmd("MAIL", f"FROM:<{sender}>")
        taken = [smtp.docmd("RCPT", f"TO:<{one}>")[0] for one in to]
        if 250 not in taken:
            smtp.docmd("RSET")
            return taken[0]
        smtp.docmd("DATA")
        body = b"".join(b"." + line if line.startswith(b".") else line for line in raw.splitlines(keepends=True))
        smtp.send(body + (b"" if body.endswith(b"\r\n") else b"\r\n") + b".\r\n")
        return smtp.getreply()[0]

    def send_raw(self, *pieces: bytes, timeout: float = 5) -> str:
        """Send exactly these bytes, each after the reply to the one before, and return all replies."""
        answers = []
        with socket.create_connection(("127.0.0.1", self.port), timeout=timeout) as connection:
            for piece in (b"", *pieces):
                try:
                    connection.sendall(piece)
                    answers.append(_reply(connection))
                except OSError:
                    break
        return "".join(answers)


def _reply(connection: socket.socket) -> str:
    """Read one reply to its last line, or the part before the connection ended."""
    text = ""
    while not re.search(r"^\d{3} .*\r\n\Z", text, re.MULTILINE) and (more := connection.recv(65536)):
        text += more.decode("utf-8", "replace")
    return text
