"""TLS of our own: pages and API over https, a certificate that is renewed under traffic, and ends that are clean."""

import http.client
import smtplib
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.conftest import FreshServer
from tests.kit import certificates
from tests.kit.certificates import Certificate
from tests.kit.https import Files, ask, connect, shown, trusting, wait_until
from tests.kit.patience import soon
from tests.kit.server import EMAIL, PASSWORD, Server, free_port


@pytest.fixture(scope="module")
def first() -> Certificate:
    """The certificate that is there at the start."""
    return certificates.self_signed()


@pytest.fixture(scope="module")
def second() -> Certificate:
    """The one that takes its place."""
    return certificates.self_signed()


@pytest.fixture
def files(tmp_path: Path, first: Certificate) -> Files:
    """Both files, holding the first pair."""
    made = Files(tmp_path)
    made.write(first)
    return made


def test_everything_follows_from_the_certificate(fresh_server: FreshServer, files: Files, first: Certificate) -> None:
    """Links, cookies and the word that it is ready are https; doctor says how long it is good and finds the door."""
    server = fresh_server(start=False, set_up=False, env=files.env)
    server.start()
    assert server.setup_link.startswith(f"https://127.0.0.1:{server.port}/setup/")
    server.stop()

    server.set_up().start()
    with closing(connect(server, trusting(first))) as connection:
        body = f"email={EMAIL}&password={PASSWORD.replace(' ', '+')}"
        site = {"Origin": f"https://127.0.0.1:{server.port}", "Content-Type": "application/x-www-form-urlencoded"}
        connection.request("POST", "/login", body, site)
        answer = connection.getresponse()
        cookie = next(line for line in answer.headers.get_all("Set-Cookie") or [] if "campanero=" in line)
        assert cookie.startswith("__Host-campanero=") and "; Secure" in cookie
        # A browser would refuse whatever else is developed on this machine
        assert "Strict-Transport-Security" not in answer.headers

    told = server.cli("doctor", "--seed", expect=None).stdout
    assert "warn  tls.certificate: valid for 1 days; replace it with a new one" in told
    assert f"ok    listen: 127.0.0.1:{server.port} answers" in told
    assert "seed one-click: the link leads to https://127.0.0.1" in told and "the service answers" in told


@pytest.mark.parametrize("own", [True, False])
def test_browsers_stay_with_https(fresh_server: FreshServer, files: Files, first: Certificate, own: bool) -> None:
    """With an address of ours that is https, by our certificate or a proxy's, browsers are told to come by it alone."""
    env = {"CAMPANERO_BASE_URL": "https://mail.example.com"} | (files.env if own else {})
    server = fresh_server(env=env)
    door = connect(server, trusting(first)) if own else http.client.HTTPConnection("127.0.0.1", server.port)
    with closing(door):
        for path in ("/login", "/v1/my/contacts", "/u/nothing"):
            door.request("GET", path)
            answer = door.getresponse()
            answer.read()
            assert answer.headers["Strict-Transport-Security"] == "max-age=31536000", path


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_only_sound_encryption(fresh_server: FreshServer, files: Files, first: Certificate) -> None:
    """TLS 1.2 and 1.3 with keys made anew and nothing older or weaker; HTTP/1.1 is what is spoken."""
    server = fresh_server(set_up=False, env=files.env)

    def handshake(low: ssl.TLSVersion, ciphers: str = "ALL:@SECLEVEL=0") -> tuple[str | None, str, str | None]:
        context = trusting(first)
        context.set_ciphers(ciphers)
        context.minimum_version = context.maximum_version = low
        context.set_alpn_protocols(["h2", "http/1.1"])
        with (
            socket.create_connection(("127.0.0.1", server.port), soon(5)) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1") as safe,
        ):
            return safe.version(), (safe.cipher() or ("",))[0], safe.selected_alpn_protocol()

    assert handshake(ssl.TLSVersion.TLSv1_3)[0::2] == ("TLSv1.3", "http/1.1")
    version, cipher, protocol = handshake(ssl.TLSVersion.TLSv1_2)
    assert (version, protocol) == ("TLSv1.2", "http/1.1") and cipher.startswith("ECDHE") and "GCM" in cipher
    with pytest.raises((ssl.SSLError, ConnectionError)):
        handshake(ssl.TLSVersion.TLSv1_1)
    for weak in ("ECDHE+SHA256:!AESGCM:!CHACHA20", "kRSA", "DHE"):
        with pytest.raises((ssl.SSLError, ConnectionError)):
            handshake(ssl.TLSVersion.TLSv1_2, f"{weak}:@SECLEVEL=0")


def test_who_speaks_no_tls_and_who_is_slow(fresh_server: FreshServer, files: Files, first: Certificate) -> None:
    """A plain request ends at once and without a word in the log; handshakes that never end hold up nobody."""
    server = fresh_server(set_up=False, env=files.env)
    stuck = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(200)]
    for one in stuck[100:]:
        one.sendall(b"\x16\x03\x01\x02\x00\x01")
    assert ask(server, trusting(first)).status == 200

    for words in (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"EHLO x\r\n", b"\0" * 4000):
        with socket.create_connection(("127.0.0.1", server.port), soon(5)) as plain:
            plain.sendall(words)
            # An alert of TLS, or nothing; then the end
            said = plain.recv(100)
            assert not said or (said[0] == 21 and plain.recv(100) == b"")
    assert ask(server, trusting(first)).status == 200
    assert "Traceback" not in server.output and "error" not in server.output
    server.stop()
    for one in stuck:
        one.close()


def test_doctor_looks_at_the_certificate(fresh_server: FreshServer, files: Files, tmp_path: Path) -> None:
    """Good for long is fine; one of another name, or that is not the one which is shown, is warned about."""
    files.write(certificates.self_signed(days=90))
    server = fresh_server(env=files.env)
    assert "ok    tls.certificate: valid for 89 days" in server.cli("doctor", expect=None).stdout
    other = Files(tmp_path / "other")
    server.env |= other.env
    for pair, words in (
        (certificates.self_signed(days=90), "but the service uses a different one"),
        (certificates.self_signed("a.example", days=90), "but issued for a.example: browsers reject it at 127.0.0.1"),
    ):
        other.write(pair)
        assert f"warn  tls.certificate: valid for 89 days, {words}" in server.cli("doctor", expect=None).stdout


def locked(pair: Certificate, directory: Path) -> bytes:
    """Return the key of a pair as one that asks for a passphrase."""
    (directory / "plain.pem").write_bytes(pair.key)
    command = ["openssl", "pkey", "-in", "plain.pem", "-aes256", "-passout", "pass:secret"]
    return subprocess.run(command, cwd=directory, check=True, capture_output=True).stdout


def test_what_cannot_be_shown_is_said_at_the_start(
    fresh_server: FreshServer, files: Files, first: Certificate, second: Certificate, tmp_path: Path
) -> None:
    """Another's key, an end that is past, a key with a passphrase, rubbish, nothing: one line, from doctor too."""
    over = certificates.expired(first)
    for certificate, key, words in (
        (first.certificate, second.key, "cert.pem does not belong to its key"),
        (over.certificate, over.key, "it expired on 2020-01-02"),
        (first.certificate, locked(first, tmp_path), "its key is encrypted with a passphrase"),
        (b"rubbish", first.key, "cert.pem is not a certificate"),
        (first.certificate, b"", "cert.pem is not a certificate"),
    ):
        files.write(Certificate(certificate, key))
        server = fresh_server(start=False, env=files.env)
        done = server.cli("serve", "--listen", f"127.0.0.1:{server.port}", expect=1)
        assert done.stderr.count("\n") == 1 and "tls.certificate: " in done.stderr and words in done.stderr
        told = server.cli("doctor", expect=1).stdout
        assert any(line.startswith("fail  tls.certificate: ") and words in line for line in told.splitlines()), told
    files.key.unlink()
    assert f"tls.key: no file '{files.key}'" in server.cli("check", expect=1).stderr


class Traffic:
    """People who ask all the time, on connections that they keep and on fresh ones; `faults` is what went wrong."""

    def __init__(self, server: Server, context: ssl.SSLContext) -> None:
        self._server, self._context = server, context
        self._ending = threading.Event()
        self.answers, self.faults = 0, list[str]()
        self._threads = [threading.Thread(target=self._ask, args=(keep,)) for keep in (True, True, False)]

    def __enter__(self) -> "Traffic":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join()

    def _ask(self, keep: bool) -> None:
        connection = connect(self._server, self._context)
        while not self._ending.is_set():
            try:
                connection.request("GET", "/login")
                answer = connection.getresponse()
                answer.read()
                self.answers += answer.status == 200
            except (OSError, http.client.HTTPException) as error:
                self.faults.append(repr(error))
            if not keep:
                connection.close()
        connection.close()


@pytest.fixture
def busy(fresh_server: FreshServer, files: Files, first: Certificate, second: Certificate) -> Iterator[Server]:
    """A server that is asked all the time by people who trust both certificates; each of them is answered."""
    inbound = {"LISTEN": f"127.0.0.1:{free_port()}", "TLS_CERTIFICATE": files.certificate, "TLS_KEY": files.key}
    env = {f"CAMPANERO_INBOUND__{name}": str(value) for name, value in inbound.items()}
    server = fresh_server(env=files.env | env)
    with Traffic(server, trusting(first, second)) as traffic:
        yield server
    assert traffic.faults == [] and traffic.answers > 10


def over_mail(server: Server, trusted: Certificate) -> None:
    """Greet the door for mail that comes back, encrypted with a certificate that has to be this one."""
    _, _, port = server.env["CAMPANERO_INBOUND__LISTEN"].rpartition(":")
    with smtplib.SMTP("127.0.0.1", int(port), timeout=soon(5)) as mail:
        mail.starttls(context=trusting(trusted))
        assert mail.noop()[0] == 250


def test_a_renewed_certificate_is_shown_without_a_restart(
    busy: Server, files: Files, first: Certificate, second: Certificate
) -> None:
    """Half a file or half a pair changes nothing and is said; both doors show the whole one, and nobody is lost."""
    over_mail(busy, first)
    before = shown(busy)
    files.certificate.write_bytes(second.certificate[: len(second.certificate) // 2])
    busy.wait_for_line("still serving the previous certificate: .*cert.pem is not a certificate", soon(10))
    files.certificate.write_bytes(second.certificate)
    busy.wait_for_line("still serving the previous certificate: .*cert.pem does not belong to its key", soon(10))
    assert shown(busy) == before == first.certificate.strip()
    told = busy.cli("doctor", expect=1).stdout
    assert "fail  tls.certificate: " in told and "does not belong to its key" in told

    files.key.write_bytes(second.key)
    busy.wait_for_line(r"certificates: reloaded setting=tls\.certificate days_left=\d+", soon(10))
    assert shown(busy) == second.certificate.strip()
    busy.wait_for_line(r"certificates: reloaded setting=inbound\.tls_certificate", soon(10))
    over_mail(busy, second)
    over = certificates.expired(second)
    files.certificate.write_bytes(over.certificate)
    busy.wait_for_line("still serving the previous certificate: tls.certificate: .*it expired on 2020-01-02", soon(10))
    assert shown(busy) == second.certificate.strip()
    assert busy.output.count("does not belong to its key") <= 2, "each door says it once at most"
    assert "Traceback" not in busy.output


def test_a_link_that_is_turned_over_counts_as_a_change(
    fresh_server: FreshServer, files: Files, first: Certificate, second: Certificate, tmp_path: Path
) -> None:
    """As certbot does it: one file with certificate and key, behind a link that leads elsewhere from now on."""
    for name, pair in (("one", first), ("two", second)):
        (tmp_path / name).write_bytes(pair.certificate + pair.key)
    link = tmp_path / "live.pem"
    link.symlink_to(tmp_path / "one")
    server = fresh_server(set_up=False, env={"CAMPANERO_TLS__CERTIFICATE": str(link)})
    assert ask(server, trusting(first)).status == 200
    (tmp_path / "fresh").symlink_to(tmp_path / "two")
    (tmp_path / "fresh").replace(link)
    wait_until(lambda: shown(server) == second.certificate.strip())
    assert ask(server, trusting(second)).status == 200
