"""HTTPS of the server itself: its certificate files, and clients that trust given certificates."""

import http.client
import ssl
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from tests.kit.certificates import Certificate
from tests.kit.server import Server
from tests.kit.timeouts import extend_timeout


class CertificateFiles:
    """A certificate and its key as files, and the settings that name them."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(exist_ok=True)
        self.certificate, self.key = directory / "cert.pem", directory / "key.pem"
        self.env = {"CAMPANERO_TLS__CERTIFICATE": str(self.certificate), "CAMPANERO_TLS__KEY": str(self.key)}

    def write(self, pair: Certificate) -> None:
        """Write a key pair into the files, the certificate first."""
        self.certificate.write_bytes(pair.certificate)
        self.key.write_bytes(pair.key)


def trust_only(*pairs: Certificate) -> ssl.SSLContext:
    """Return an SSL context that trusts only these certificates."""
    return ssl.create_default_context(cadata="".join(certificate.certificate.decode() for certificate in pairs))


def connect(server: Server, context: ssl.SSLContext) -> http.client.HTTPSConnection:
    """Return an HTTPS connection to the server, which connects with its first request."""
    return http.client.HTTPSConnection("127.0.0.1", server.port, timeout=extend_timeout(5), context=context)


def fetch(server: Server, context: ssl.SSLContext, path: str = "/login") -> http.client.HTTPResponse:
    """Send a request on a new connection and return the whole response."""
    with closing(connect(server, context)) as connection:
        connection.request("GET", path)
        response = connection.getresponse()
        response.read()
        return response


def served_certificate(server: Server) -> bytes:
    """Return the certificate that a new connection gets, as PEM."""
    return ssl.get_server_certificate(("127.0.0.1", server.port), timeout=extend_timeout(5)).strip().encode()


def wait_until(condition: Callable[[], bool], seconds: float = 10) -> None:
    """Wait until a condition is true. Raises AssertionError on timeout."""
    end = time.monotonic() + extend_timeout(seconds)
    while not condition():
        assert time.monotonic() < end, "it never came to that"
        time.sleep(0.05)
