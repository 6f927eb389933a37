"""Requests to hosts named by others: never to private addresses, and limited in size and time (T28, T29)."""

import asyncio
import json
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from appliance.sending.delivery import safe_http
from appliance.sending.delivery.safe_http import HttpResponse, RequestFailed
from appliance.settings import config
from tests.kit.certificates import self_signed
from tests.kit.dns import DnsServer

PRIVATE = [
    "127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1",
    "240.0.0.1", "255.255.255.255", "198.18.0.1", "192.0.2.1", "192.88.99.1", "192.0.0.192",
    "168.63.129.16", "::", "::1", "::7f00:1",
    "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "64:ff9b:1::1", "2002:7f00:1::", "2001:0:1::1",
    "fe80::1%eth0", "fc00::1", "fec0::1", "ff02::1", "2001:db8::1", "2606:4700::5efe:a00:1", "fe80::5efe:7f00:1", "x",
]  # fmt: skip
PUBLIC = ["8.8.8.8", "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::", "2606:4700:4700::1111"]
# Spellings of this machine's address, and invalid URLs
SPELLINGS = [
    "http://127.0.0.1:{port}/", "http://127.1:{port}/", "http://0x7f000001:{port}/", "http://2130706433:{port}/",
    "http://localhost:{port}/", "http://[::1]:{port}/", "http://[::ffff:127.0.0.1]:{port}/",
    "http://[64:ff9b::7f00:1]:{port}/", "http://a@127.0.0.1:{port}/", "http://a:b@8.8.8.8:{port}/", "http://0:{port}/",
    "https://127.0.0.1:{port}/", "ftp://127.0.0.1:{port}/", "file:///etc/passwd", "gopher://127.0.0.1:{port}/",
    "http://", "nonsense", "http://127.0.0.1\n:{port}/",
]  # fmt: skip


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.server.requests.append((self.path, dict(self.headers)))  # type: ignore[attr-defined]  # set by the fixture
        self.server.callers.append(self.client_address)  # type: ignore[attr-defined]  # set by the fixture
        status, body = (302, b"") if self.path == "/away" else (200, b"x" * 5000)
        self.send_response(status)
        self.send_header("Location", "/there")
        self.send_header("Set-Cookie", f"seen{len(self.server.requests)}=yes; Max-Age=9999")  # type: ignore[attr-defined]  # set by the fixture
        self.send_header("Content-Length", "999999" if self.path == "/endless" else str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        if self.path == "/endless":
            threading.Event().wait(1)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def web() -> Iterator[ThreadingHTTPServer]:
    """A web server on this machine that records the requests and the addresses of its clients."""
    server = _start_web("127.0.0.1", 0)
    yield server
    server.shutdown()
    server.server_close()


def _start_web(host: str, port: int) -> Any:
    server = ThreadingHTTPServer((host, port), _Handler)
    server.daemon_threads = True
    server.requests, server.callers = [], []  # type: ignore[attr-defined]  # the handler only has access to its server
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    return server


_connections: list[tuple[str, int]] | None = None


@contextmanager
def recorded_connections() -> Iterator[list[tuple[str, int]]]:
    """Record the addresses that this process connects to."""
    global _connections
    if _connections is None:
        sys.addaudithook(_record_connection)
    _connections = recorded = []
    yield recorded
    _connections = []


def _record_connection(event: str, args: tuple[Any, ...]) -> None:
    if event == "socket.connect" and _connections is not None and isinstance(args[1], tuple):
        _connections.append(args[1][:2])


@pytest.fixture
def send_request(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., HttpResponse]]:
    """A function that requests a URL. `allowed` are private hosts that may be requested, `servers` the DNS servers."""

    def send(url: str, *, allowed: tuple[str, ...] = (), servers: tuple[str, ...] = (), **options: Any) -> HttpResponse:
        settings = {"network.allow_private_hosts": list(allowed), "network.dns_servers": list(servers)}
        monkeypatch.setattr(config, "_current", config.load(settings, {}).config)
        return asyncio.run(safe_http.request("GET", url, **options))

    yield send
    safe_http._ssl_context.cache_clear()


def test_is_public() -> None:
    """Addresses of this machine or of local networks are not public, in whatever notation."""
    assert [address for address in PRIVATE if safe_http.is_public(address)] == []
    assert [address for address in PUBLIC if not safe_http.is_public(address)] == []


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_no_spelling_reaches_this_machine(spelling: str, send_request: Callable[..., HttpResponse], web: Any,
                                          monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    """No spelling opens a connection, and an open port gives the same error as a closed one."""
    monkeypatch.setattr(safe_http, "_ALLOWED_PORTS", (80, 443, web.server_port, 9))
    errors = []
    for port in (web.server_port, 9):
        with pytest.raises(RequestFailed) as error_info:
            send_request(spelling.format(port=port))
        errors.append(str(error_info.value))
    assert web.requests == [] and errors[0] == errors[1]


def test_other_ports_are_rejected(send_request: Callable[..., HttpResponse]) -> None:
    """A public host is only requested on the ports of HTTP and HTTPS."""
    with pytest.raises(RequestFailed):
        send_request("http://8.8.8.8:25/")


def test_a_private_host_can_be_allowed(send_request: Callable[..., HttpResponse], web: Any) -> None:
    """An allowed host is requested on any port; redirects are not followed, and other hosts stay rejected."""
    url = f"http://localhost:{web.server_port}"
    assert send_request(f"{url}/here", allowed=("localhost",)).body == b"x" * 5000
    assert send_request(f"{url}/away", allowed=("localhost",)).status == 302
    assert [path for path, _ in web.requests] == ["/here", "/away"]
    assert web.requests[0][1]["Host"] == f"localhost:{web.server_port}"
    with pytest.raises(RequestFailed):
        send_request(f"{url}/here", allowed=("otherhost",))


@pytest.mark.parametrize(("path", "options"), [("/", {"max_bytes": 4999}), ("/endless", {"timeout_seconds": 0.3})])
def test_large_and_slow_responses_are_rejected(
    path: str, options: dict[str, Any], send_request: Callable[..., HttpResponse], web: Any
) -> None:
    """A response beyond `max_bytes` or `timeout_seconds` raises RequestFailed."""
    with pytest.raises(RequestFailed):
        send_request(f"http://localhost:{web.server_port}{path}", allowed=("localhost",), **options)


@pytest.mark.parametrize(
    ("records", "kind"),
    [(("127.0.0.1",), "A"), (("8.8.8.8", "127.0.0.1"), "A"), (("::1",), "AAAA"), (("::ffff:7f00:1",), "AAAA"),
     (("64:ff9b::7f00:1",), "AAAA"), (("169.254.169.254",), "A"), ((), "TXT")],
)  # fmt: skip
def test_names_with_private_addresses_are_rejected(
    records: tuple[str, ...],
    kind: str,
    send_request: Callable[..., HttpResponse],
    web: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A name with a private address is not requested, and is resolved only once."""
    monkeypatch.setattr(safe_http, "_ALLOWED_PORTS", (80, 443, web.server_port))
    with DnsServer() as dns:
        dns.set("rebound.example", kind, *records or ("text",))
        with pytest.raises(RequestFailed):
            send_request(f"http://rebound.example:{web.server_port}/", servers=(dns.address,))
        with pytest.raises(RequestFailed):
            send_request(f"http://nowhere.example:{web.server_port}/", servers=(dns.address,))
        assert sorted(question[:2] for question in dns.queries[:2]) == [
            ("rebound.example.", "A"), ("rebound.example.", "AAAA"),
        ]  # fmt: skip
        assert len(dns.queries) == 4 and web.requests == []


@pytest.mark.parametrize("is_pooled", [False, True])
def test_a_name_that_flips_is_requested_at_the_address_that_was_checked(
    is_pooled: bool, web: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each request looks a name up once and connects to that answer, never to the answer of a later look-up (T29)."""
    other = _start_web("127.0.0.2", web.server_port)
    with DnsServer() as dns:
        settings = {"network.allow_private_hosts": ["flips.example"], "network.dns_servers": [dns.address]}
        monkeypatch.setattr(config, "_current", config.load(settings, {}).config)
        dns.set_sequence("flips.example", "A", ("127.0.0.2",), ("127.0.0.1",), ("127.0.0.2",))

        async def send_requests() -> list[tuple[int, int]]:
            pool, counts = safe_http.ConnectionPool() if is_pooled else None, []
            for _ in range(3):
                await safe_http.request("GET", f"http://flips.example:{web.server_port}/here", pool=pool)
                counts.append((len(other.requests), len(web.requests)))
            if pool is not None:
                await pool.close()
            return counts

        assert asyncio.run(send_requests()) == [(1, 0), (1, 1), (2, 1)]
        assert [question[1] for question in dns.queries if question[1] == "A"] == ["A"] * 3
    other.shutdown()
    other.server_close()


def test_a_name_that_flips_to_a_private_address_is_not_followed_there(
    send_request: Callable[..., HttpResponse], web: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a public answer was checked, the private one that the name then has is not connected to (T29)."""
    monkeypatch.setattr(safe_http, "_ALLOWED_PORTS", (80, 443, web.server_port))
    with DnsServer() as dns, recorded_connections() as addresses:
        dns.set_sequence("rebound.example", "A", ("8.8.8.8",), ("127.0.0.1",))
        with pytest.raises(RequestFailed):
            send_request(f"http://rebound.example:{web.server_port}/", servers=(dns.address,), timeout_seconds=0.5)
        assert [address for address in addresses if address[1] == web.server_port] == [("8.8.8.8", web.server_port)]
        with pytest.raises(RequestFailed):
            send_request(f"http://rebound.example:{web.server_port}/", servers=(dns.address,), timeout_seconds=0.5)
        assert len([address for address in addresses if address[1] == web.server_port]) == 1 and web.requests == []


def test_pooled_connections_are_checked_each_time(web: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection is reused only for its own name, and not once the name is no longer allowed (T29)."""
    with DnsServer() as dns:
        for name in ("inside.example", "beside.example"):
            dns.set(name, "A", "127.0.0.1")
        settings = {"network.allow_private_hosts": ["inside.example", "beside.example"],
                    "network.dns_servers": [dns.address]}  # fmt: skip
        monkeypatch.setattr(config, "_current", config.load(settings, {}).config)

        async def send_requests() -> list[HttpResponse]:
            pool = safe_http.ConnectionPool()
            responses = [
                await safe_http.request("GET", f"http://{name}:{web.server_port}/here", pool=pool)
                for name in ("inside.example", "inside.example", "beside.example")
            ]
            monkeypatch.setattr(
                config, "_current", config.load({**settings, "network.allow_private_hosts": []}, {}).config
            )
            with pytest.raises(RequestFailed):
                await safe_http.request("GET", f"http://inside.example:{web.server_port}/here", pool=pool)
            await pool.close()
            return responses

        assert [response.status for response in asyncio.run(send_requests())] == [200] * 3
    assert [headers["Host"].partition(":")[0] for _, headers in web.requests] == ["inside.example"] * 2 + [
        "beside.example"
    ]
    assert len(set(web.callers[:2])) == 1 and len(set(web.callers)) == 2


def test_cookies_are_not_sent_back(web: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cookie that a response sets is not sent with the next request."""
    settings = {"network.allow_private_hosts": ["127.0.0.1"]}
    monkeypatch.setattr(config, "_current", config.load(settings, {}).config)

    async def send_requests() -> None:
        pool = safe_http.ConnectionPool()
        for _ in range(3):
            await safe_http.request("GET", f"http://127.0.0.1:{web.server_port}/here", pool=pool)
        await pool.close()

    asyncio.run(send_requests())
    assert ["Cookie" in headers for _, headers in web.requests] == [False] * 3


def test_unresolved_names_do_not_block_others(web: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """While 40 names wait for a DNS reply, another one is resolved and requested."""
    slow = [f"slow{number}.example" for number in range(40)]
    with DnsServer() as dns:
        dns.set("inside.example", "A", "127.0.0.1")
        for name in slow:
            dns.silence(name)
        settings = {"network.allow_private_hosts": ["inside.example"], "network.dns_servers": [dns.address]}
        monkeypatch.setattr(config, "_current", config.load(settings, {}).config)

        async def send_requests() -> int:
            waiting = [asyncio.create_task(safe_http.request("GET", f"http://{name}/")) for name in slow]
            await asyncio.sleep(0)
            response = await safe_http.request("GET", f"http://inside.example:{web.server_port}/here")
            assert not any(task.done() for task in waiting)
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
            return response.status

        # Not `asyncio.run`, which would wait for the threads that resolve the slow names
        loop = asyncio.new_event_loop()
        assert loop.run_until_complete(send_requests()) == 200
        loop.close()


def test_interim_responses_count_against_the_size_limit(
    send_request: Callable[..., HttpResponse], caplog: pytest.LogCaptureFixture
) -> None:
    """A server that sends 102 responses without end is cut off by bytes, before the timeout."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listener.accept()
        with connection, suppress(OSError):
            while True:
                connection.sendall(b"HTTP/1.1 102 Processing\r\n\r\n" * 100)

    threading.Thread(target=serve, daemon=True).start()
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
    with caplog.at_level("INFO", "campanero.http"), pytest.raises(RequestFailed):
        send_request(url, allowed=("127.0.0.1",), max_bytes=1_000, timeout_seconds=10)
    listener.close()
    assert "the response has more than" in caplog.text


def test_a_long_response_can_be_truncated(send_request: Callable[..., HttpResponse], web: Any) -> None:
    """With `truncate` the first `max_bytes` are returned."""
    assert (
        send_request(f"http://localhost:{web.server_port}/", allowed=("localhost",), max_bytes=10, truncate=True).body
        == b"x" * 10
    )


def test_configured_dns_servers_are_used(send_request: Callable[..., HttpResponse], web: Any) -> None:
    """A name is resolved by the configured DNS servers and requested with its own `Host` header."""
    with DnsServer() as dns:
        dns.set("inside.example", "A", "127.0.0.1")
        url = f"http://inside.example:{web.server_port}/here"
        assert send_request(url, allowed=("inside.example",), servers=(dns.address,)).status == 200
        assert (
            send_request(
                url.replace("inside.example", "localhost"), allowed=("localhost",), servers=(dns.address,)
            ).status
            == 200
        )
    assert web.requests[0][1]["Host"] == f"inside.example:{web.server_port}"


def test_certificates_are_checked_for_the_name(send_request: Callable[..., HttpResponse], web: Any, tmp_path: Path,
                                     monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    """Although the connection goes to a checked address, the certificate must match the host's name."""
    certificate = self_signed()
    (tmp_path / "ca.pem").write_bytes(certificate.certificate)
    web.socket = certificate.context().wrap_socket(web.socket, server_side=True)
    hosts = {"127.0.0.1": web.server_port, "sns.example.org": web.server_port}
    (tmp_path / "hosts").write_text(json.dumps({"ca": str(tmp_path / "ca.pem"), "hosts": hosts}))
    monkeypatch.setenv("CAMPANERO_TEST_HOSTS", str(tmp_path / "hosts"))
    safe_http._ssl_context.cache_clear()
    assert send_request("https://127.0.0.1/").status == 200
    with pytest.raises(RequestFailed):
        send_request("https://sns.example.org/")
    assert [path for path, _ in web.requests] == ["/"]
