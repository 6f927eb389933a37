"""Asking web servers that others named: never inside our own network, never for long (trust, T28, T29)."""

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
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
    "240.0.0.1", "255.255.255.255", "198.18.0.1", "192.0.2.1", "192.88.99.1", "::", "::1", "::7f00:1",
    "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "64:ff9b:1::1", "2002:7f00:1::", "2001:0:1::1",
    "fe80::1%eth0", "fc00::1", "fec0::1", "ff02::1", "2001:db8::1", "2606:4700::5efe:a00:1", "fe80::5efe:7f00:1", "x",
]  # fmt: skip
PUBLIC = ["8.8.8.8", "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::", "2606:4700:4700::1111"]
# Ways to write this machine, and addresses that are none
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
        self.server.asked.append((self.path, dict(self.headers)))  # type: ignore[attr-defined]  # set where the server is made
        self.server.callers.append(self.client_address)  # type: ignore[attr-defined]  # set where the server is made
        status, body = (302, b"") if self.path == "/away" else (200, b"x" * 5000)
        self.send_response(status)
        self.send_header("Location", "/there")
        self.send_header("Set-Cookie", f"seen{len(self.server.asked)}=yes; Max-Age=9999")  # type: ignore[attr-defined]  # set where the server is made
        self.send_header("Content-Length", "999999" if self.path == "/endless" else str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        if self.path == "/endless":
            threading.Event().wait(1)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def web() -> Iterator[ThreadingHTTPServer]:
    """A web server of this machine that remembers who asked."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    server.asked, server.callers = [], []  # type: ignore[attr-defined]  # a handler knows nothing but its server
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., HttpResponse]]:
    """Ask with the defaults of the configuration, or `allowed` hosts."""

    def run(url: str, *, allowed: tuple[str, ...] = (), servers: tuple[str, ...] = (), **options: Any) -> HttpResponse:
        settings = {"network.allow_private_hosts": list(allowed), "network.dns_servers": list(servers)}
        monkeypatch.setattr(config, "_current", config.load(settings, {}).config)
        return asyncio.run(safe_http.request("GET", url, **options))

    yield run
    safe_http._ssl_context.cache_clear()


def test_which_addresses_are_public() -> None:
    """Whatever leads to this machine or a local network is not public, however it is wrapped."""
    assert [address for address in PRIVATE if safe_http.is_public(address)] == []
    assert [address for address in PUBLIC if not safe_http.is_public(address)] == []


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_no_spelling_reaches_this_machine(spelling: str, ask: Callable[..., HttpResponse], web: Any,
                                          monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    """No way to write our own address opens a connection, and an open port is the same error as a closed one."""
    monkeypatch.setattr(safe_http, "_ALLOWED_PORTS", (80, 443, web.server_port, 9))
    said = []
    for port in (web.server_port, 9):
        with pytest.raises(RequestFailed) as refused:
            ask(spelling.format(port=port))
        said.append(str(refused.value))
    assert web.asked == [] and said[0] == said[1]


def test_only_ports_of_the_web(ask: Callable[..., HttpResponse]) -> None:
    """A public address is asked on the web's ports only."""
    with pytest.raises(RequestFailed):
        ask("http://8.8.8.8:25/")


def test_an_operator_may_name_a_host(ask: Callable[..., HttpResponse], web: Any) -> None:
    """A private host that stands in the configuration is asked, on any port, with its own name, and not redirected."""
    url = f"http://localhost:{web.server_port}"
    assert ask(f"{url}/here", allowed=("localhost",)).body == b"x" * 5000
    assert ask(f"{url}/away", allowed=("localhost",)).status == 302
    assert [path for path, _ in web.asked] == ["/here", "/away"]
    assert web.asked[0][1]["Host"] == f"localhost:{web.server_port}"
    with pytest.raises(RequestFailed):
        ask(f"{url}/here", allowed=("otherhost",))


@pytest.mark.parametrize(("path", "options"), [("/", {"max_bytes": 4999}), ("/endless", {"timeout_seconds": 0.3})])
def test_bounds(path: str, options: dict[str, Any], ask: Callable[..., HttpResponse], web: Any) -> None:
    """What is too large or too slow is not waited for."""
    with pytest.raises(RequestFailed):
        ask(f"http://localhost:{web.server_port}{path}", allowed=("localhost",), **options)


@pytest.mark.parametrize(
    ("records", "kind"),
    [(("127.0.0.1",), "A"), (("8.8.8.8", "127.0.0.1"), "A"), (("::1",), "AAAA"), (("::ffff:7f00:1",), "AAAA"),
     (("64:ff9b::7f00:1",), "AAAA"), (("169.254.169.254",), "A"), ((), "TXT")],
)  # fmt: skip
def test_no_name_leads_home(records: tuple[str, ...], kind: str, ask: Callable[..., HttpResponse], web: Any,
                            monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    """A name with an address of ours among its own is not asked, and asked for in DNS once: no second answer counts."""
    monkeypatch.setattr(safe_http, "_ALLOWED_PORTS", (80, 443, web.server_port))
    with DnsServer() as dns:
        dns.set("rebound.example", kind, *records or ("text",))
        with pytest.raises(RequestFailed):
            ask(f"http://rebound.example:{web.server_port}/", servers=(dns.address,))
        with pytest.raises(RequestFailed):
            ask(f"http://nowhere.example:{web.server_port}/", servers=(dns.address,))
        assert sorted(question[:2] for question in dns.questions[:2]) == [
            ("rebound.example.", "A"), ("rebound.example.", "AAAA"),
        ]  # fmt: skip
        assert len(dns.questions) == 4 and web.asked == []


def test_kept_connections_are_checked_each_time(web: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection is used again under its own name only, and not once its name leads where nobody may go (T29)."""
    with DnsServer() as dns:
        for name in ("inside.example", "beside.example"):
            dns.set(name, "A", "127.0.0.1")
        settings = {"network.allow_private_hosts": ["inside.example", "beside.example"],
                    "network.dns_servers": [dns.address]}  # fmt: skip
        monkeypatch.setattr(config, "_current", config.load(settings, {}).config)

        async def ask() -> list[HttpResponse]:
            kept = safe_http.ConnectionPool()
            found = [
                await safe_http.request("GET", f"http://{name}:{web.server_port}/here", pool=kept)
                for name in ("inside.example", "inside.example", "beside.example")
            ]
            monkeypatch.setattr(
                config, "_current", config.load({**settings, "network.allow_private_hosts": []}, {}).config
            )
            with pytest.raises(RequestFailed):
                await safe_http.request("GET", f"http://inside.example:{web.server_port}/here", pool=kept)
            await kept.close()
            return found

        assert [one.status for one in asyncio.run(ask())] == [200] * 3
    assert [said["Host"].partition(":")[0] for _, said in web.asked] == ["inside.example"] * 2 + ["beside.example"]
    assert len(set(web.callers[:2])) == 1 and len(set(web.callers)) == 2


def test_no_cookie_is_carried_to_the_next_question(web: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What one answer sets is not sent with the next question: nobody follows us, or makes our questions grow."""
    settings = {"network.allow_private_hosts": ["127.0.0.1"]}
    monkeypatch.setattr(config, "_current", config.load(settings, {}).config)

    async def ask() -> None:
        kept = safe_http.ConnectionPool()
        for _ in range(3):
            await safe_http.request("GET", f"http://127.0.0.1:{web.server_port}/here", pool=kept)
        await kept.close()

    asyncio.run(ask())
    assert ["Cookie" in said for _, said in web.asked] == [False] * 3


def test_names_that_never_answer_keep_no_other_waiting(web: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """While many names are waited for that no server answers, another is looked up and asked all the same."""
    slow = [f"slow{number}.example" for number in range(40)]
    with DnsServer() as dns:
        dns.set("inside.example", "A", "127.0.0.1")
        for name in slow:
            dns.silence(name)
        settings = {"network.allow_private_hosts": ["inside.example"], "network.dns_servers": [dns.address]}
        monkeypatch.setattr(config, "_current", config.load(settings, {}).config)

        async def ask() -> int:
            waiting = [asyncio.create_task(safe_http.request("GET", f"http://{name}/")) for name in slow]
            await asyncio.sleep(0)
            answer = await safe_http.request("GET", f"http://inside.example:{web.server_port}/here")
            assert not any(task.done() for task in waiting)
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
            return answer.status

        # Not `asyncio.run`, which would wait for the threads of those
        loop = asyncio.new_event_loop()
        assert loop.run_until_complete(ask()) == 200
        loop.close()


def test_answers_before_the_answer_come_to_an_end(
    ask: Callable[..., HttpResponse], caplog: pytest.LogCaptureFixture
) -> None:
    """Who says over and over that the answer is to come is left after so many bytes, not when the time is up."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        caller, _ = listening.accept()
        with caller, suppress(OSError):
            while True:
                caller.sendall(b"HTTP/1.1 102 Processing\r\n\r\n" * 100)

    threading.Thread(target=serve, daemon=True).start()
    url = f"http://127.0.0.1:{listening.getsockname()[1]}/"
    with caplog.at_level("INFO", "campanero.http"), pytest.raises(RequestFailed):
        ask(url, allowed=("127.0.0.1",), max_bytes=1_000, timeout_seconds=10)
    listening.close()
    assert "the response has more than" in caplog.text


def test_what_is_too_long_may_be_cut(ask: Callable[..., HttpResponse], web: Any) -> None:
    """Who needs only the beginning gets that."""
    assert (
        ask(f"http://localhost:{web.server_port}/", allowed=("localhost",), max_bytes=10, truncate=True).body
        == b"x" * 10
    )


def test_a_name_of_the_settings_is_found_there(ask: Callable[..., HttpResponse], web: Any) -> None:
    """The DNS servers of the settings are asked, and the answer comes from where they say, under the name's own."""
    with DnsServer() as dns:
        dns.set("inside.example", "A", "127.0.0.1")
        url = f"http://inside.example:{web.server_port}/here"
        assert ask(url, allowed=("inside.example",), servers=(dns.address,)).status == 200
        assert (
            ask(url.replace("inside.example", "localhost"), allowed=("localhost",), servers=(dns.address,)).status
            == 200
        )
    assert web.asked[0][1]["Host"] == f"inside.example:{web.server_port}"


def test_tls_is_checked_for_the_name(ask: Callable[..., HttpResponse], web: Any, tmp_path: Path,
                                     monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    """Connected to the address that was checked, the certificate must still be of the name; a stand-in no less."""
    made = self_signed()
    (tmp_path / "ca.pem").write_bytes(made.certificate)
    web.socket = made.context().wrap_socket(web.socket, server_side=True)
    hosts = {"127.0.0.1": web.server_port, "sns.example.org": web.server_port}
    (tmp_path / "hosts").write_text(json.dumps({"ca": str(tmp_path / "ca.pem"), "hosts": hosts}))
    monkeypatch.setenv("CAMPANERO_TEST_HOSTS", str(tmp_path / "hosts"))
    safe_http._ssl_context.cache_clear()
    assert ask("https://127.0.0.1/").status == 200
    with pytest.raises(RequestFailed):
        ask("https://sns.example.org/")
    assert [path for path, _ in web.asked] == ["/"]
