"""Certificates from an ACME CA: first issuance, renewal, refusals and kills, with the real Pebble."""

import http.client
import re
import smtplib
import socket
import ssl
import tarfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import apsw
import pytest
from cryptography import x509

from tests.conftest import FreshServer
from tests.kit.clock import TestClock
from tests.kit.https_clients import served_certificate, wait_until
from tests.kit.pebble import EAB_KEY, EAB_KEY_ID, Front, Pebble, skip_without_pebble
from tests.kit.sampling import every_nth
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
        self.front = Front(self.pebble)
        self.server.env |= self.pebble.env | {
            "CAMPANERO_ACME__DIRECTORY": self.front.directory,
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

    def fetch_plain(self, path: str, method: str = "GET", host: str = "") -> http.client.HTTPResponse:
        """Send a request to the listener of plain http, which names a host."""
        with closing(http.client.HTTPConnection("127.0.0.1", self.http_port, timeout=extend_timeout(5))) as connection:
            connection.request(method, path, headers={"Host": host} if host else {})
            response = connection.getresponse()
            response.read()
            return response


@pytest.fixture
def world(fresh_server: FreshServer, clock: TestClock) -> Iterator[World]:
    """Yield a service that is not started and a running CA with certificates of 90 days."""
    created = World(fresh_server, clock)
    with created.pebble:
        created.front.start()
        yield created
        created.front.stop()


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


def show_certificate(port: int, name: str, protocols: list[str]) -> x509.Certificate:
    """Return the certificate that a client gets which asks for a name and offers these protocols (ALPN)."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if protocols:
        context.set_alpn_protocols(protocols)
    with (
        socket.create_connection(("127.0.0.1", port), extend_timeout(5)) as plain,
        context.wrap_socket(plain, server_hostname=name) as safe,
    ):
        return x509.load_der_x509_certificate(safe.getpeercert(binary_form=True) or b"")


def is_proof(certificate: x509.Certificate) -> bool:
    """Return whether a certificate is one of a TLS-ALPN-01 challenge (RFC 8737)."""
    return any(extension.oid.dotted_string == "1.3.6.1.5.5.7.1.31" for extension in certificate.extensions)


def test_tls_alpn_alone(world: World) -> None:
    """Without the http listener, the https port answers the CA, and clients meanwhile get the normal certificate."""
    world.server.env["CAMPANERO_ACME__HTTP_LISTEN"] = ""
    world.front.hold("/chalZ")
    world.server.start()
    assert world.front.held.wait(extend_timeout(20))
    port = world.server.port
    with socket.create_connection(("127.0.0.1", port)) as silent, socket.create_connection(("127.0.0.1", port)) as odd:
        silent.sendall(b"\x16\x03\x01\x02")
        odd.sendall(b"GET / HTTP/1.1\r\n\r\n")
        for protocols in ([], ["http/1.1"], ["h2", "acme-tls/1"]):
            assert not is_proof(show_certificate(port, "localhost", protocols))
        assert is_proof(show_certificate(port, "localhost", ["acme-tls/1"]))
        with pytest.raises((ssl.SSLError, ConnectionError)):
            show_certificate(port, "other.example", ["acme-tls/1"])
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        browser = http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=extend_timeout(5))
        with closing(browser):
            browser.request("GET", "/login", headers={"X-Long": "a" * 9_000})
            assert browser.getresponse().status == 200
    world.front.release()
    world.wait_for_certificate()
    wait_until(world.is_trusted)
    assert "by=tls-alpn-01" in world.server.output and "Traceback" not in world.server.output
    with pytest.raises((ssl.SSLError, AssertionError)):
        assert is_proof(show_certificate(port, "localhost", ["acme-tls/1"]))


def test_mail_certificate_behind_a_proxy(world: World) -> None:
    """If a proxy handles https, the web interface answers the CA's request that the proxy passes on."""
    env = world.server.env
    world.pebble = Pebble(http_port=world.server.port, tls_port=free_port())
    with world.pebble:
        env |= world.pebble.env | {"CAMPANERO_TLS__CERTIFICATE": "", "CAMPANERO_ACME__HTTP_LISTEN": ""}
        env["CAMPANERO_BASE_URL"] = "https://localhost"
        world.server.start()
        world.wait_for_certificate()
        wait_until(lambda: "Pebble" in x509.load_der_x509_certificate(world.smtp_certificate()).issuer.rfc4514_string())
        report = world.server.cli("doctor", expect=None).stdout
        assert "a proxy must pass on /.well-known/acme-challenge/ of localhost" in report
        path = "/.well-known/acme-challenge/abc"
        with closing(http.client.HTTPConnection("127.0.0.1", world.server.port, timeout=extend_timeout(5))) as plain:
            plain.request("GET", path)
            assert plain.getresponse().status == 404


FAILED = r"certificates: order failed .*attempt=(\d+) next_attempt=(\S+): (.*)"


def seconds_until(world: World, clock: TestClock, moment: str) -> float:
    """Return the seconds from now by the clock of the service until a time of its log."""
    return datetime.fromisoformat(moment).timestamp() - time.time() - clock.offset


def test_renewal_after_two_thirds_of_the_lifetime(world: World, clock: TestClock) -> None:
    """The certificate is renewed after 60 of 90 days and not before; all listeners take the new one."""
    world.server.start()
    world.wait_for_certificate()
    wait_until(world.is_trusted)
    first = served_certificate(world.server)
    clock.advance(days=59)
    time.sleep(3)
    assert world.front.requests["/order-plz"] == 1
    world.server.lines.clear()
    clock.advance(days=1, hours=1)
    world.wait_for_certificate()
    wait_until(lambda: served_certificate(world.server) != first)
    der = ssl.PEM_cert_to_DER_cert(served_certificate(world.server).decode())
    wait_until(lambda: world.smtp_certificate() == der)
    # By this clock the new certificate has 29 of 90 days left: it is due at once, but a CA limits copies in a week
    time.sleep(3)
    assert world.front.requests["/order-plz"] == 2
    assert world.front.requests["/sign-me-up"] == 1, "the account is kept"


@pytest.mark.full
def test_renewal_when_the_ca_suggests_it(world: World, clock: TestClock) -> None:
    """The window of renewal information (RFC 9773) decides; without an answer the lifetime does."""
    world.front.extra = {"renewalInfo": f"https://localhost:{world.front.port}/ari"}
    start, end = (datetime.fromtimestamp(time.time() + days * 86_400, UTC).isoformat() for days in (20, 21))
    window = {"suggestedWindow": {"start": start, "end": end}}
    world.front.answers["/ari"] = 200, {"Retry-After": "21600"}, window
    world.server.start()
    world.wait_for_certificate()
    wait_until(lambda: world.front.requests["/ari"] == 1)
    clock.advance(days=19)
    time.sleep(3)
    assert world.front.requests["/order-plz"] == 1
    clock.advance(days=2, hours=1)
    wait_until(lambda: world.front.requests["/order-plz"] == 2)


@pytest.mark.full
def test_account_that_the_ca_knows_otherwise(fresh_server: FreshServer, clock: TestClock) -> None:
    """A CA with accounts of its own gets its key (external account binding); without it the error names the setting."""
    world = World(fresh_server, clock, needs_account=True)
    with world.pebble:
        world.front.start()
        world.server.start()
        assert "set acme.eab_key_id and acme.eab_hmac_key" in world.server.wait_for_line(FAILED, extend_timeout(20))[3]
        world.server.stop()
        world.server.env |= {"CAMPANERO_ACME__EAB_KEY_ID": EAB_KEY_ID, "CAMPANERO_ACME__EAB_HMAC_KEY": EAB_KEY}
        world.server.start()
        world.wait_for_certificate()
        wait_until(world.is_trusted)
        assert EAB_KEY not in world.server.output
        world.front.stop()


@pytest.mark.full
def test_ca_that_is_down(world: World, clock: TestClock) -> None:
    """The service starts, serves a self-signed certificate, tries again later and later, and gets a certificate."""
    world.front.stop()
    world.server.start()
    waits = []
    for attempt in (1, 2, 3):
        match = world.server.wait_for_line(FAILED.replace(r"\d+", str(attempt)), extend_timeout(20))
        assert "cannot be reached" in match[3]
        waits.append(seconds_until(world, clock, match[2]))
        clock.advance(waits[-1] + 1)
    assert 50 < waits[0] < 70 < 110 < waits[1] < 140 < 220 < waits[2] < 270
    assert not world.is_trusted()
    report = world.server.cli("doctor", expect=1).stdout
    assert re.search(r"fail  tls\.certificate: the CA issued no certificate: .*cannot be reached.*next attempt", report)
    world.front.start()
    clock.advance(hours=1)
    world.wait_for_certificate()
    wait_until(world.is_trusted)


@pytest.mark.full
def test_rate_limit_of_the_ca(world: World, clock: TestClock) -> None:
    """Retry-After is kept, across a restart too, and the reason of the CA is shown."""
    problem = {"type": "urn:ietf:params:acme:error:rateLimited", "detail": "too many certificates already issued"}
    world.front.answers["/order-plz"] = 429, {"Retry-After": "7200"}, problem
    world.server.start()
    match = world.server.wait_for_line(FAILED, extend_timeout(20))
    assert match[3] == problem["detail"] and 7_100 < seconds_until(world, clock, match[2]) < 8_000
    world.server.restart()
    clock.advance(minutes=118)
    time.sleep(3)
    assert world.front.requests["/order-plz"] == 1
    del world.front.answers["/order-plz"]
    clock.advance(minutes=20)
    world.wait_for_certificate()


def test_names_that_cannot_be_proved(world: World, clock: TestClock) -> None:
    """A CA that reaches another program says so; the other challenge is tried next, after the wait."""
    with HTTPServer(("127.0.0.1", world.http_port), BaseHTTPRequestHandler) as other:
        threading.Thread(target=other.serve_forever, args=(0.05,), daemon=True).start()
        world.server.env["CAMPANERO_ACME__HTTP_LISTEN"] = f"127.0.0.1:{free_port()}"
        world.server.start()
        match = world.server.wait_for_line(FAILED, extend_timeout(20))
        assert match[3].startswith("localhost: ") and "by=http-01" in world.server.output
        assert 280 < seconds_until(world, clock, match[2]) < 340
        clock.advance(minutes=6)
        world.wait_for_certificate()
        assert "by=tls-alpn-01" in world.server.output
        other.shutdown()
    wait_until(world.is_trusted)


@pytest.mark.parametrize("path", every_nth(["/sign-me-up", "/order-plz", "/chalZ", "/finalize-order", "/certZ"], 5, 1))
def test_kill_within_an_order(world: World, clock: TestClock, path: str) -> None:
    """After a kill at any step the order goes on; a second one is begun only if the first was never answered."""
    world.front.hold(path)
    world.server.start()
    assert world.front.held.wait(extend_timeout(20))
    world.server.kill()
    world.front.release()
    clock.advance(minutes=2)
    world.server.start()
    world.wait_for_certificate()
    wait_until(world.is_trusted)
    # Nobody answered the CA's validation after the kill within a challenge, so that order may have become invalid
    assert world.front.requests["/order-plz"] <= (2 if path in ("/order-plz", "/chalZ") else 1)
    issued = world.pebble.log.count("Issued certificate serial")
    assert issued == 1, "the CA counts certificates of the same names"


@pytest.mark.full
def test_restore_keeps_account_and_certificate(world: World, tmp_path: Path) -> None:
    """A backup has them sealed; a restored installation serves the same certificate and orders none."""
    world.server.start()
    world.wait_for_certificate()
    wait_until(world.is_trusted)
    before = served_certificate(world.server)
    world.server.cli("backup", str(tmp_path / "backup.tar.gz"))
    world.server.stop()
    with tarfile.open(tmp_path / "backup.tar.gz") as archive:
        names = archive.getnames()
        contents = b"".join(file.read() for name in names if (file := archive.extractfile(name)))
    assert "certificates/acme.sealed" in names and "certificate.pem" not in names
    assert b"PRIVATE KEY" not in contents
    for path in (world.server.data / "certificates" / "acme.sealed", world.server.data / "certificate.pem"):
        assert path.stat().st_mode & 0o777 == 0o600
        path.unlink()
    world.server.cli("restore", str(tmp_path / "backup.tar.gz"), "--force")
    orders = world.front.requests["/order-plz"]
    world.server.start()
    assert served_certificate(world.server) == before
    time.sleep(3)
    assert world.front.requests["/order-plz"] == orders


@pytest.mark.full
def test_owner_is_told_before_the_certificate_expires(world: World, clock: TestClock) -> None:
    """If renewals fail until 14 days before the end, the owner gets one email with the reason."""
    world.server.start()
    world.wait_for_certificate()
    problem = {"type": "urn:ietf:params:acme:error:rejectedIdentifier", "detail": "policy forbids {{ the name }}"}
    world.front.answers["/order-plz"] = 403, {}, problem
    world.server.url = f"https://localhost:{world.server.port}"
    clock.advance(days=61)
    world.server.wait_for_line(FAILED, extend_timeout(20))
    report = world.server.cli("doctor", expect=None).stdout
    assert re.search(r"warn  tls\.certificate: valid for 28 days, but not renewed: policy forbids", report)
    clock.advance(days=16)
    world.server.wait_for_line(r"attempt=2 ", extend_timeout(20))
    clock.advance(days=1)
    world.server.wait_for_line(r"attempt=3 ", extend_timeout(20))
    time.sleep(3)
    database = apsw.Connection(str(world.server.data / "campanero.db"), flags=apsw.SQLITE_OPEN_READONLY)
    with closing(database):
        emails = database.execute(
            "SELECT c.data FROM message m JOIN message_content c ON c.message_id = m.id WHERE m.source_type = 'system'"
        ).fetchall()
    assert len(emails) == 1 and "policy forbids {{ the name }}" in emails[0][0]
    report = world.server.cli("doctor", expect=1).stdout
    assert re.search(r"fail  tls\.certificate: valid for 11 days, but not renewed", report)


def test_an_address_of_an_account_gets_a_certificate_of_its_own(fresh_server: FreshServer, clock: TestClock) -> None:
    """It is ordered with the account of the installation at the CA, and neither certificate names the other host."""
    host = "mail.south.example"
    world = World(fresh_server, clock, is_always_valid=True)
    base = f"https://{host}:{world.server.port}"
    world.server.cli("account", "address", "1", "--url", base)
    with world.pebble:
        world.front.start()
        world.server.start()

        def find_names(name: str) -> list[str]:
            shown = show_certificate(world.server.port, name, [])
            names = shown.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
            return names.get_values_for_type(x509.DNSName)

        wait_until(lambda: find_names(host) == [host])
        assert find_names("localhost") == find_names("other.example") == ["localhost"]
        assert world.front.requests["/sign-me-up"] == 1 and world.front.requests["/order-plz"] == 2
        assert world.fetch_plain("/u/x?y=1", host=host).headers["Location"] == f"{base}/u/x?y=1"
        assert [path.name for path in world.server.data.rglob("*.pem")] == ["certificate.pem"]
        world.front.stop()
