"""Settings and clients for the SMTP submission of a server."""

import smtplib
import socket
import ssl
import tempfile
from functools import cache
from pathlib import Path
from typing import Self

from tests.kit.certificates import self_signed
from tests.kit.server import Server, free_port

KEY_NAME = "Shop"


@cache
def certificate_files() -> tuple[Path, Path]:
    """Return the files of a certificate for 127.0.0.1 and localhost, and of its key."""
    directory = Path(tempfile.mkdtemp(prefix="campanero-test-"))
    pair = self_signed("localhost")
    (directory / "cert.pem").write_bytes(pair.certificate)
    (directory / "key.pem").write_bytes(pair.key)
    return directory / "cert.pem", directory / "key.pem"


class Ports:
    """The two ports of SMTP submission, and the environment of a server that listens there."""

    def __init__(self) -> None:
        self.starttls, self.tls = free_port(), free_port()
        certificate, key = certificate_files()
        self.env = {
            "CAMPANERO_SUBMISSION__LISTEN": f"127.0.0.1:{self.starttls}",
            "CAMPANERO_SUBMISSION__LISTEN_TLS": f"127.0.0.1:{self.tls}",
            "CAMPANERO_SUBMISSION__TLS_CERTIFICATE": str(certificate),
            "CAMPANERO_SUBMISSION__TLS_KEY": str(key),
        }

    def connect(self, password: str, name: str = KEY_NAME, *, is_tls_first: bool = False) -> smtplib.SMTP:
        """Return a client that has signed in with an API key."""
        context = ssl.create_default_context(cafile=str(certificate_files()[0]))
        if is_tls_first:
            client: smtplib.SMTP = smtplib.SMTP_SSL("localhost", self.tls, context=context, timeout=30)
        else:
            client = smtplib.SMTP("localhost", self.starttls, timeout=30)
            client.starttls(context=context)
        client.login(name, password)
        return client


def create_key(server: Server, name: str = KEY_NAME, *options: str) -> str:
    """Return a new API key of the server that may send messages."""
    return server.cli("key", "create", name, "--scope", "send", *options).stdout.split()[-1]


class RawSession:
    """A connection on which a test writes bytes of its own; replies are read as text."""

    def __init__(self, port: int, source: str = "127.0.0.1") -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=10, source_address=(source, 0))
        self._received = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def start_tls(self) -> None:
        """Begin TLS, after STARTTLS or on a port that begins with it."""
        context = ssl.create_default_context(cafile=str(certificate_files()[0]))
        self.socket = context.wrap_socket(self.socket, server_hostname="localhost")

    def send(self, data: bytes) -> None:
        """Write bytes."""
        self.socket.sendall(data)

    def reply(self) -> str:
        """Return the next reply with all of its lines; an empty string if the connection was closed."""
        lines: list[str] = []
        while True:
            while b"\n" not in self._received:
                try:
                    piece = self.socket.recv(65_536)
                except ConnectionError:
                    piece = b""
                if not piece:
                    return "\n".join(lines)
                self._received += piece
            line, _, self._received = self._received.partition(b"\n")
            lines.append(line.decode(errors="replace").rstrip("\r"))
            if lines[-1][3:4] != "-":
                return "\n".join(lines)

    def ask(self, data: bytes) -> str:
        """Write bytes and return the next reply."""
        self.send(data)
        return self.reply()
