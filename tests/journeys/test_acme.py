"""Certificates from an ACME CA: first issuance, renewal, refusals and kills, with the real Pebble."""

import http.client
import re
import smtplib
import socket
import ssl
from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.conftest import FreshServer
from tests.kit.clock import TestClock
from tests.kit.https_clients import served_certificate, wait_until
from tests.kit.pebble import Pebble, skip_without_pebble
from tests.kit.server import free_port
from tests.kit.timeouts import extend_timeout

ISSUED = r"certificates: issued names=(\S+) days_left=(\d+)"


@pytest.fixture(autouse=True)
def _needs_pebble() -> None:
    skip_without_pebble()


class World:
    """A service that gets its certificate from a Pebble, and the ports of both."""

    def __init__(self, fresh_server: FreshServer, clock: TestClock | None = None, **pebble: int) -> None:
        self.http_port, self.smtp_port = free_port(), free_port()
        self.server = fresh_server(start=False, clock=clock)
        self.pebble = Pebble(http_port=self.http_port, tls_port=self.server.port, **pebble)
        self.server.env |= self.pebble.env | {
            "CAMPANERO_TLS__CERTIFICATE": "auto",
            "CAMPANERO_BASE_URL": f"https://localhost:{self.server.port}",
            "CAMPANERO_INBOUND__LISTEN": f"127.0.0.1:{self.smtp_port}",
            "CAMPANERO_INBOUND__TLS_CERTIFICATE": "auto",
        }

    def wait_for_certificate(self) -> str:
        """Wait for an issued certificate and return its names."""
        return self.server.wait_for_line(ISSUED, extend_timeout(20))[1]

    def is_trusted(self) -> bool:
        """Return whether a browser that trusts the CA opens the sign-in page."""
        context = self.pebble.trust()
        connection = http.client.HTTPSConnection(
            "localhost", self.server.port, timeout=extend_timeout(5), context=context
        )
        with closing(connection):
            try:
                connection.request("GET", "/login")
            except ssl.SSLCertVerificationError:
                return False
            return connection.getresponse().status == 200

    def smtp_certificate(self) -> bytes:
        """Return the certificate (DER) that the inbound listener shows after STARTTLS."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with smtplib.SMTP("localhost", self.smtp_port, timeout=extend_timeout(5)) as mail:
            mail.starttls(context=context)
            assert isinstance(mail.sock, ssl.SSLSocket)
            return mail.sock.getpeercert(binary_form=True) or b""

    def fetch_plain(self, path: str, method: str = "GET") -> http.client.HTTPResponse:
        """Send a request to the listener of plain http."""
        with closing(http.client.HTTPConnection("127.0.0.1", self.http_port, timeout=extend_timeout(5))) as connection:
            connection.request(method, path)
            response = connection.getresponse()
            response.read()
            return response


@pytest.fixture
def world(fresh_server: FreshServer, clock: TestClock) -> Iterator[World]:
    """Yield a service that is not started and a running CA with certificates of 90 days."""
    created = World(fresh_server, clock)
    with created.pebble:
        yield created


def test_all_listeners_get_a_certificate_without_restart(world: World) -> None:
    """The first answers come with a self-signed certificate; then web and SMTP serve the one of the CA."""
    world.server.start()
    assert world.wait_for_certificate() == "localhost"
    wait_until(world.is_trusted)
    der = ssl.PEM_cert_to_DER_cert(served_certificate(world.server).decode())
    wait_until(lambda: world.smtp_certificate() == der)
    report = world.server.cli("doctor", expect=None).stdout
    assert re.search(r"ok    tls\.certificate: valid for 89 days; renewed at \d{4}-\d\d-\d\dT", report)
    assert re.search(r"ok    inbound\.tls_certificate: valid for 89 days; renewed at", report)
    assert f"ok    acme.http_listen: 127.0.0.1:{world.http_port} answers; the CA connects to port 80" in report
    assert "Traceback" not in world.server.output


def test_the_http_listener_redirects_only_to_the_base_url(world: World) -> None:
    """Unknown tokens are 404, other paths go to the base URL, whatever host they name, and nothing else is answered."""
    world.server.start()
    world.wait_for_certificate()
    base = f"https://localhost:{world.server.port}"
    for path, target in (
        ("/", "/"), ("/login?a=b", "/login?a=b"), ("//evil.example/x", "/evil.example/x"),
        ("http://evil.example/x", "/x"), ("/.well-known/other", "/.well-known/other"),
    ):  # fmt: skip
        response = world.fetch_plain(path)
        assert (response.status, response.headers["Location"]) == (301, base + target), path
    for path in ("", "unknown", "../x", "%2e", "a" * 600):
        assert world.fetch_plain(f"/.well-known/acme-challenge/{path}").status == 404
    assert world.fetch_plain("/login", "POST").status == 405
    token = "QzwVhFS3cNpDN0T_xoV5MA"
    assert world.fetch_plain(f"/.well-known/acme-challenge/{token}").getheader("Content-Type") is None
    for request in (b"GET / HTTP/1.1\r\n\r\n", b"GET /a b HTTP/1.1\r\nHost: x\r\n\r\n", b"rubbish\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", world.http_port), extend_timeout(5)) as plain:
            plain.sendall(request)
            assert plain.recv(100).startswith(b"HTTP/1.1 400 "), request
    with socket.create_connection(("127.0.0.1", world.http_port), extend_timeout(5)) as plain:
        plain.sendall(b"GET /" + b"a" * 9_000)
        assert plain.recv(100).startswith(b"HTTP/1.1 431 ")


def test_tls_alpn_alone(world: World) -> None:
    """Without the http listener, the https port answers the CA, and clients meanwhile get the normal certificate."""
    world.server.env["CAMPANERO_ACME__HTTP_LISTEN"] = ""
    world.server.start()
    world.wait_for_certificate()
    wait_until(world.is_trusted)
    assert "by=tls-alpn-01" in world.server.output
