"""Somebody who brings mail to the appliance's own listener, politely or not."""

import contextlib
import re
import smtplib
import socket
from dataclasses import dataclass


@dataclass(frozen=True)
class Post:
    """The listener of a server."""

    port: int

    @property
    def env(self) -> dict[str, str]:
        """Return the environment that makes a server listen here."""
        return {"CAMPANERO_INBOUND__LISTEN": f"127.0.0.1:{self.port}"}

    def connect(self) -> smtplib.SMTP:
        """Return a conversation that was greeted."""
        return smtplib.SMTP("127.0.0.1", self.port, local_hostname="mx.example.net", timeout=60)

    def bring(self, raw: bytes, *to: str, sender: str = "", times: int = 1) -> list[int]:
        """Bring a mail, several times in one conversation; returns the last code of each, none where it was cut off."""
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

    def say(self, *pieces: bytes, timeout: float = 5) -> str:
        """Say exactly these bytes, each after an answer to the one before, and return all that was answered."""
        answers = []
        with socket.create_connection(("127.0.0.1", self.port), timeout=timeout) as here:
            for piece in (b"", *pieces):
                try:
                    here.sendall(piece)
                    answers.append(_reply(here))
                except OSError:
                    break
        return "".join(answers)


def _reply(here: socket.socket) -> str:
    """Read one reply to its last line, or what there is when the other side hangs up."""
    said = ""
    while not re.search(r"^\d{3} .*\r\n\Z", said, re.MULTILINE) and (more := here.recv(65536)):
        said += more.decode("utf-8", "replace")
    return said
