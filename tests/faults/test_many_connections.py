"""Clients that open connections and send nothing do not stop sending: descriptors are reserved for it (T20)."""

import resource
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from tests.conftest import FreshServer
from tests.kit import certificates
from tests.kit.certificates import Certificate
from tests.kit.client import Client
from tests.kit.https_clients import CertificateFiles, connect, fetch, trust_only, wait_until
from tests.kit.recipients import create_campaign, create_list, send_campaign, wait_until_completed
from tests.kit.sampling import full_only
from tests.kit.smtp import SmtpServer

# Half of them are for clients and the about 75 files of the service itself, half of those for handshakes.
MAX_FILES = 400


@contextmanager
def waiting_connections(port: int, count: int, sent: bytes) -> Iterator[None]:
    """Open connections and send only the beginning of a request over each of them."""
    with ExitStack() as stack:
        for _ in range(count):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=5))
            connection.sendall(sent)
        yield


def wait_until_accepting(api: Client, path: str) -> None:
    """Wait until the service has noticed that the connections are closed, and refuses no new one."""
    deadline = time.monotonic() + 10
    while api.get(path).status == 503:
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize("sent", [full_only(b""), b"GET / HTTP/1.1\r\n"], ids=["nothing", "half"])
def test_waiting_connections_do_not_stop_a_send(
    sent: bytes, fresh_server: FreshServer, smtp_server: SmtpServer
) -> None:
    """With more connections than open files, a campaign that needs new SMTP connections is sent to its end."""
    server = fresh_server(relay=smtp_server.port, env={"CAMPANERO_EMAIL__MESSAGES_PER_CONNECTION": "5"})
    api = server.client(validate=False)
    server.set_postal_address()
    list_id = create_list(api, 150)
    resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (MAX_FILES, MAX_FILES))
    gate = smtp_server.rules.hold("body")
    path = send_campaign(api, list_id)
    gate.wait_reached()
    with waiting_connections(server.port, MAX_FILES + 50, sent):
        gate.release()
        smtp_server.wait_for(150, timeout=20)
    wait_until_accepting(api, path)
    assert wait_until_completed(api, path)["stats"]["sent"] == 150
    server.stop()


# The header of a TLS record with a ClientHello of 512 bytes that never come
HALF_HELLO = b"\x16\x03\x01\x02\x00\x01"


@pytest.fixture(scope="module")
def certificate() -> Certificate:
    """The certificate of an https service."""
    return certificates.self_signed()


@pytest.fixture
def https_env(certificate: Certificate, tmp_path: Path) -> dict[str, str]:
    """Return the settings of a service with this certificate."""
    files = CertificateFiles(tmp_path)
    files.write(certificate)
    return files.env


@pytest.mark.full
@pytest.mark.parametrize("sent", [full_only(b""), HALF_HELLO], ids=["nothing", "half"])
def test_waiting_handshakes_do_not_stop_a_send(
    sent: bytes,
    fresh_server: FreshServer,
    smtp_server: SmtpServer,
    certificate: Certificate,
    https_env: dict[str, str],
) -> None:
    """With 1,000 unfinished TLS handshakes, a campaign is sent to its end and other clients are answered."""
    server = fresh_server(relay=smtp_server.port, env={"CAMPANERO_EMAIL__MESSAGES_PER_CONNECTION": "5"})
    server.set_postal_address()
    api = server.client(validate=False)
    path = create_campaign(api, create_list(api, 150))
    server.stop()
    server.env |= https_env
    server.start()
    trusted = trust_only(certificate)
    headers = {"Authorization": f"Bearer {api.key}", "Content-Type": "application/json"}
    gate = smtp_server.rules.hold("body")
    with closing(connect(server, trusted)) as early:
        early.request("POST", f"/v1/my{path}/send", b"{}", headers)
        response = early.getresponse()
        assert response.status == 200, response.read()
        response.read()
        gate.wait_reached()
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (MAX_FILES, MAX_FILES))
        with waiting_connections(server.port, 1_000, sent):
            assert fetch(server, trusted).status == 200
            gate.release()
            smtp_server.wait_for(150, timeout=20)
            early.request("GET", "/login")
            assert early.getresponse().status == 200
            assert fetch(server, trusted).status == 200
    server.wait_for_line("handshakes are ended")
    server.stop()


@pytest.mark.full
def test_an_unfinished_handshake_ends_after_ten_seconds(
    fresh_server: FreshServer, certificate: Certificate, https_env: dict[str, str]
) -> None:
    """A client that sends nothing, or single bytes of a handshake, is disconnected; others keep their connection."""
    server = fresh_server(set_up=False, env=https_env)
    with closing(connect(server, trust_only(certificate))) as patient, ExitStack() as stack:
        patient.request("GET", "/login")
        patient.getresponse().read()
        started = time.monotonic()
        waiting = [stack.enter_context(socket.create_connection(("127.0.0.1", server.port))) for _ in range(2)]
        for sent in HALF_HELLO:
            waiting[1].sendall(bytes([sent]))
            time.sleep(0.5)
        for connection in waiting:
            connection.settimeout(30)
            assert connection.recv(100) == b""
        assert 8 < time.monotonic() - started < 30
        patient.request("GET", "/login")
        assert patient.getresponse().status == 200
    server.stop()


def test_a_connection_above_the_limit_gets_503(fresh_server: FreshServer) -> None:
    """It is refused at once, and the service accepts connections again when the others are gone."""
    server = fresh_server()
    resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (MAX_FILES, MAX_FILES))
    with waiting_connections(server.port, MAX_FILES, b""), socket.create_connection(("127.0.0.1", server.port)) as late:
        late.settimeout(5)
        assert late.recv(1_000).startswith(b"HTTP/1.1 503 ")
    server.wait_for_line("connections are refused")
    # The service may not have closed all of the others yet.
    api = server.client(validate=False)
    wait_until(lambda: api.get("/account").status == 200)
    server.stop()


def test_the_service_raises_its_limit_of_open_files(fresh_server: FreshServer) -> None:
    """A service that is started with few open files raises the limit as far as it may."""
    server = fresh_server(start=False, cold=True)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1_024, before[1]))
    try:
        server.start()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert resource.prlimit(server.pid, resource.RLIMIT_NOFILE)[0] == min(65_536, before[1])
    server.stop()
