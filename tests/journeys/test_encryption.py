"""TLS of the service itself: pages and API over https, renewal of the certificate, and clean ends of connections."""

import http.client
import smtplib
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.conftest import FreshServer
from tests.kit import certificates
from tests.kit.certificates import Certificate
from tests.kit.https_clients import CertificateFiles, connect, fetch, served_certificate, trust_only, wait_until
from tests.kit.server import EMAIL, PASSWORD, Server, free_port
from tests.kit.timeouts import extend_timeout


@pytest.fixture(scope="module")
def first() -> Certificate:
    """The certificate at the start."""
    return certificates.self_signed()


@pytest.fixture(scope="module")
def second() -> Certificate:
    """The certificate that replaces it."""
    return certificates.self_signed()


@pytest.fixture
def files(tmp_path: Path, first: Certificate) -> CertificateFiles:
    """The certificate and key files, with the first pair."""
    pair_files = CertificateFiles(tmp_path)
    pair_files.write(first)
    return pair_files


def test_a_certificate_enables_https(fresh_server: FreshServer, files: CertificateFiles, first: Certificate) -> None:
    """Links and cookies are for https; the doctor reports the validity and reaches the service."""
    server = fresh_server(start=False, set_up=False, env=files.env)
    server.start()
    assert server.setup_link.startswith(f"https://127.0.0.1:{server.port}/setup/")
    server.stop()

    server.set_up().start()
    with closing(connect(server, trust_only(first))) as connection:
        body = f"email={EMAIL}&password={PASSWORD.replace(' ', '+')}"
        headers = {"Origin": f"https://127.0.0.1:{server.port}", "Content-Type": "application/x-www-form-urlencoded"}
        connection.request("POST", "/login", body, headers)
        response = connection.getresponse()
        cookie = next(line for line in response.headers.get_all("Set-Cookie") or [] if "campanero=" in line)
        assert cookie.startswith("__Host-campanero=") and "; Secure" in cookie
        # A browser would apply it to everything on localhost
        assert "Strict-Transport-Security" not in response.headers

    report = server.cli("doctor", "--seed", expect=None).stdout
    assert "warn  tls.certificate: valid for 1 days; replace it with a new one" in report
    assert f"ok    listen: 127.0.0.1:{server.port} answers" in report
    assert "seed one-click: the link leads to https://127.0.0.1" in report and "the service answers" in report


@pytest.mark.parametrize("own", [True, False])
def test_hsts_header(fresh_server: FreshServer, files: CertificateFiles, first: Certificate, own: bool) -> None:
    """With an https base URL responses have `Strict-Transport-Security`, with our certificate or behind a proxy."""
    env = {"CAMPANERO_BASE_URL": "https://mail.example.com"} | (files.env if own else {})
    server = fresh_server(env=env)
    connection = connect(server, trust_only(first)) if own else http.client.HTTPConnection("127.0.0.1", server.port)
    with closing(connection):
        for path in ("/login", "/v1/my/contacts", "/u/nothing"):
            connection.request("GET", path)
            response = connection.getresponse()
            response.read()
            assert response.headers["Strict-Transport-Security"] == "max-age=31536000", path


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_tls_versions_and_ciphers(fresh_server: FreshServer, files: CertificateFiles, first: Certificate) -> None:
    """Only TLS 1.2 and 1.3 with forward secrecy are accepted, and HTTP/1.1 is negotiated."""
    server = fresh_server(set_up=False, env=files.env)

    def handshake(version: ssl.TLSVersion, ciphers: str = "ALL:@SECLEVEL=0") -> tuple[str | None, str, str | None]:
        context = trust_only(first)
        context.set_ciphers(ciphers)
        context.minimum_version = context.maximum_version = version
        context.set_alpn_protocols(["h2", "http/1.1"])
        with (
            socket.create_connection(("127.0.0.1", server.port), extend_timeout(5)) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1") as safe,
        ):
            return safe.version(), (safe.cipher() or ("",))[0], safe.selected_alpn_protocol()

    assert handshake(ssl.TLSVersion.TLSv1_3)[0::2] == ("TLSv1.3", "http/1.1")
    negotiated, cipher, protocol = handshake(ssl.TLSVersion.TLSv1_2)
    assert (negotiated, protocol) == ("TLSv1.2", "http/1.1") and cipher.startswith("ECDHE") and "GCM" in cipher
    with pytest.raises((ssl.SSLError, ConnectionError)):
        handshake(ssl.TLSVersion.TLSv1_1)
    for weak in ("ECDHE+SHA256:!AESGCM:!CHACHA20", "kRSA", "DHE"):
        with pytest.raises((ssl.SSLError, ConnectionError)):
            handshake(ssl.TLSVersion.TLSv1_2, f"{weak}:@SECLEVEL=0")


def test_plain_requests_and_slow_handshakes(
    fresh_server: FreshServer, files: CertificateFiles, first: Certificate
) -> None:
    """Plain requests end at once without a log entry; unfinished handshakes do not block other clients."""
    server = fresh_server(set_up=False, env=files.env)
    stuck = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(200)]
    for connection in stuck[100:]:
        connection.sendall(b"\x16\x03\x01\x02\x00\x01")
    assert fetch(server, trust_only(first)).status == 200

    for payload in (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"EHLO x\r\n", b"\0" * 4000):
        with socket.create_connection(("127.0.0.1", server.port), extend_timeout(5)) as plain:
            plain.sendall(payload)
            # A TLS alert or nothing, then the end
            reply = plain.recv(100)
            assert not reply or (reply[0] == 21 and plain.recv(100) == b"")
    assert fetch(server, trust_only(first)).status == 200
    assert "Traceback" not in server.output and "error" not in server.output
    server.stop()
    for connection in stuck:
        connection.close()


def test_the_doctor_checks_the_certificate(fresh_server: FreshServer, files: CertificateFiles, tmp_path: Path) -> None:
    """A valid certificate is ok; one for another name, or other than the one in use, is a warning."""
    files.write(certificates.self_signed(days=90))
    server = fresh_server(env=files.env)
    assert "ok    tls.certificate: valid for 89 days" in server.cli("doctor", expect=None).stdout
    other = CertificateFiles(tmp_path / "other")
    server.env |= other.env
    for pair, text in (
        (certificates.self_signed(days=90), "but the service uses a different one"),
        (certificates.self_signed("a.example", days=90), "but issued for a.example: browsers reject it at 127.0.0.1"),
    ):
        other.write(pair)
        assert f"warn  tls.certificate: valid for 89 days, {text}" in server.cli("doctor", expect=None).stdout


def encrypted_key(pair: Certificate, directory: Path) -> bytes:
    """Return the key of a pair, encrypted with a passphrase."""
    (directory / "plain.pem").write_bytes(pair.key)
    command = ["openssl", "pkey", "-in", "plain.pem", "-aes256", "-passout", "pass:secret"]
    return subprocess.run(command, cwd=directory, check=True, capture_output=True).stdout


def test_invalid_certificates_prevent_the_start(
    fresh_server: FreshServer, files: CertificateFiles, first: Certificate, second: Certificate, tmp_path: Path
) -> None:
    """A wrong, expired, encrypted or invalid pair is reported in one line, by `serve` and by the doctor."""
    expired = certificates.expired(first)
    for certificate, key, text in (
        (first.certificate, second.key, "cert.pem does not belong to its key"),
        (expired.certificate, expired.key, "it expired on 2020-01-02"),
        (first.certificate, encrypted_key(first, tmp_path), "its key is encrypted with a passphrase"),
        (b"rubbish", first.key, "cert.pem is not a certificate"),
        (first.certificate, b"", "cert.pem is not a certificate"),
    ):
        files.write(Certificate(certificate, key))
        server = fresh_server(start=False, env=files.env)
        result = server.cli("serve", "--listen", f"127.0.0.1:{server.port}", expect=1)
        assert result.stderr.count("\n") == 1 and "tls.certificate: " in result.stderr and text in result.stderr
        report = server.cli("doctor", expect=1).stdout
        assert any(line.startswith("fail  tls.certificate: ") and text in line for line in report.splitlines()), report
    files.key.unlink()
    assert f"tls.key: no file '{files.key}'" in server.cli("check", expect=1).stderr


class Clients:
    """Clients that send requests all the time, over kept and new connections; `faults` lists errors."""

    def __init__(self, server: Server, context: ssl.SSLContext) -> None:
        self._server, self._context = server, context
        self._ending = threading.Event()
        self.responses, self.faults = 0, list[str]()
        self._threads = [threading.Thread(target=self._run, args=(keep,)) for keep in (True, True, False)]

    def __enter__(self) -> "Clients":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join()

    def _run(self, keep: bool) -> None:
        connection = connect(self._server, self._context)
        while not self._ending.is_set():
            try:
                connection.request("GET", "/login")
                response = connection.getresponse()
                response.read()
                self.responses += response.status == 200
            except (OSError, http.client.HTTPException) as error:
                self.faults.append(repr(error))
            if not keep:
                connection.close()
        connection.close()


@pytest.fixture
def busy(
    fresh_server: FreshServer, files: CertificateFiles, first: Certificate, second: Certificate
) -> Iterator[Server]:
    """A server under traffic from clients that trust both certificates; at the end no request may have failed."""
    inbound = {"LISTEN": f"127.0.0.1:{free_port()}", "TLS_CERTIFICATE": files.certificate, "TLS_KEY": files.key}
    env = {f"CAMPANERO_INBOUND__{name}": str(value) for name, value in inbound.items()}
    server = fresh_server(env=files.env | env)
    with Clients(server, trust_only(first, second)) as traffic:
        yield server
    assert traffic.faults == [] and traffic.responses > 10


def check_smtp_certificate(server: Server, trusted: Certificate) -> None:
    """Connect to the inbound SMTP server with STARTTLS, trusting only this certificate."""
    _, _, port = server.env["CAMPANERO_INBOUND__LISTEN"].rpartition(":")
    with smtplib.SMTP("127.0.0.1", int(port), timeout=extend_timeout(5)) as mail:
        mail.starttls(context=trust_only(trusted))
        assert mail.noop()[0] == 250


def test_a_renewed_certificate_is_loaded_without_a_restart(
    busy: Server, files: CertificateFiles, first: Certificate, second: Certificate
) -> None:
    """An incomplete pair is logged and ignored; a complete one is used by HTTP and SMTP, and no request fails."""
    check_smtp_certificate(busy, first)
    before = served_certificate(busy)
    files.certificate.write_bytes(second.certificate[: len(second.certificate) // 2])
    busy.wait_for_line("still serving the previous certificate: .*cert.pem is not a certificate", extend_timeout(10))
    files.certificate.write_bytes(second.certificate)
    busy.wait_for_line(
        "still serving the previous certificate: .*cert.pem does not belong to its key", extend_timeout(10)
    )
    assert served_certificate(busy) == before == first.certificate.strip()
    report = busy.cli("doctor", expect=1).stdout
    assert "fail  tls.certificate: " in report and "does not belong to its key" in report

    files.key.write_bytes(second.key)
    busy.wait_for_line(r"certificates: reloaded setting=tls\.certificate days_left=\d+", extend_timeout(10))
    assert served_certificate(busy) == second.certificate.strip()
    busy.wait_for_line(r"certificates: reloaded setting=inbound\.tls_certificate", extend_timeout(10))
    check_smtp_certificate(busy, second)
    expired = certificates.expired(second)
    files.certificate.write_bytes(expired.certificate)
    busy.wait_for_line(
        "still serving the previous certificate: tls.certificate: .*it expired on 2020-01-02", extend_timeout(10)
    )
    assert served_certificate(busy) == second.certificate.strip()
    assert busy.output.count("does not belong to its key") <= 2, "each server logs it at most once"
    assert "Traceback" not in busy.output


def test_a_replaced_symlink_reloads_the_certificate(
    fresh_server: FreshServer, files: CertificateFiles, first: Certificate, second: Certificate, tmp_path: Path
) -> None:
    """A symlink that is switched to another file with certificate and key, like certbot does, reloads it."""
    for name, pair in (("one", first), ("two", second)):
        (tmp_path / name).write_bytes(pair.certificate + pair.key)
    link = tmp_path / "live.pem"
    link.symlink_to(tmp_path / "one")
    server = fresh_server(set_up=False, env={"CAMPANERO_TLS__CERTIFICATE": str(link)})
    assert fetch(server, trust_only(first)).status == 200
    (tmp_path / "fresh").symlink_to(tmp_path / "two")
    (tmp_path / "fresh").replace(link)
    wait_until(lambda: served_certificate(server) == second.certificate.strip())
    assert fetch(server, trust_only(second)).status == 200


@pytest.mark.full
def test_abandoned_starttls_handshakes_block_no_other_client(
    fresh_server: FreshServer, files: CertificateFiles, first: Certificate
) -> None:
    """A client that leaves or waits during the handshake of STARTTLS is forgotten; reports arrive afterwards."""
    port = free_port()
    inbound = {"LISTEN": f"127.0.0.1:{port}", "TLS_CERTIFICATE": files.certificate, "TLS_KEY": files.key}
    server = fresh_server(
        set_up=False, env={f"CAMPANERO_INBOUND__{name}": str(value) for name, value in inbound.items()}
    )

    def start_handshake() -> smtplib.SMTP:
        client = smtplib.SMTP("127.0.0.1", port, timeout=extend_timeout(5))
        client.ehlo()
        assert client.docmd("STARTTLS")[0] == 220
        return client

    for sent in (b"", b"\x16\x03\x01\x02\x00\x01", b"rubbish\r\n", b"") * 2:
        client = start_handshake()
        assert client.sock is not None
        client.sock.sendall(sent)
        client.close()
    # As many as one address may have open
    waiting = [start_handshake() for _ in range(5)]
    with socket.create_connection(("127.0.0.1", port), timeout=extend_timeout(5)) as late:
        assert late.recv(1_000).startswith(b"421 ")
    started = time.monotonic()
    for client in waiting:
        assert client.sock is not None
        client.sock.settimeout(30)
        assert client.sock.recv(100) == b""
    assert time.monotonic() - started < 30
    check_smtp_certificate(server, first)
    assert "Traceback" not in server.output
    server.stop()
