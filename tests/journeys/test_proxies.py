"""Behind nginx and Caddy, configured as the guide says, everything works.

Runs with `--full`: the proxies come from Debian packages.
"""

import http.client
import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from typing import NamedTuple

import apsw
import pytest
from playwright.sync_api import Browser, expect

from tests.kit import certificates, guides, proxies
from tests.kit.browser import Problems, new_page, sign_in_by_form
from tests.kit.client import Client
from tests.kit.editor import create_template, get_design, wait_until_saved
from tests.kit.https_clients import trust_only
from tests.kit.proxies import Proxy
from tests.kit.server import EMAIL, Server
from tests.kit.timeouts import extend_timeout
from tests.kit.uploads import multipart_form, upload, wait_for_import


class Ground(NamedTuple):
    """A proxy, the server behind it, a client through it, and the TLS context of clients."""

    proxy: Proxy
    server: Server
    api: Client
    trust: ssl.SSLContext


def example(server: Server, language: str) -> str:
    """Return the example of the guide as it is served."""
    page = Client(server.url).request("GET", "/docs/guides/https").text
    (text,) = [block.text for block in guides.blocks(page) if block.language == language]
    return text


@pytest.fixture(scope="module", params=["nginx", "caddy"])
def ground(request: pytest.FixtureRequest, full: bool) -> Iterator[Ground]:
    """The service behind a proxy, configured as the guide says."""
    if not full:
        pytest.skip("runs with --full")
    if proxies.find_proxy(request.param) is None:
        pytest.skip(f"{request.param} is not installed, and apt-get cannot fetch it")
    pair = certificates.self_signed()
    with Server(env={"CAMPANERO_NETWORK__TRUSTED_PROXIES": "127.0.0.1"}).set_up() as server:
        with Proxy(request.param, example(server, request.param), server.port, pair) as proxy:
            server.stop()
            server.env["CAMPANERO_BASE_URL"] = proxy.url
            server.start()
            yield Ground(proxy, server, Client(proxy.url, server.key), trust_only(pair))
        assert "Traceback" not in server.output


def connect_through(ground: Ground, source: str = "127.0.0.1") -> http.client.HTTPSConnection:
    """Return a connection to the proxy from an address of this machine."""
    return http.client.HTTPSConnection(
        "127.0.0.1", ground.proxy.port, timeout=extend_timeout(10), context=ground.trust, source_address=(source, 0)
    )


def csv_file(count: int, size: int) -> bytes:
    """Return a CSV file of contacts, each row about `size` bytes."""
    padding = "x" * (size - 40)
    return b"email,about\n" + b"".join(b"p%d@example.org,%s\n" % (number, padding.encode()) for number in range(count))


def test_a_large_import(ground: Ground) -> None:
    """A file of nearly 200 MB is imported; a larger one is rejected by the service."""
    file = csv_file(6_500, 30_000)
    assert 190_000_000 < len(file) < 200_000_000
    job = wait_for_import(ground.api, upload(ground.api, file, dry_run=True, opt_in=True), timeout=300)
    assert (job["status"], job["total"]) == ("complete", 6_500)
    try:
        rejection = upload(ground.api, file + b"x" * 18_000_000)
    except OSError:
        # Caddy disconnects clients that continue to send after the response
        assert ground.proxy.name == "caddy"
    else:
        assert (rejection.status, rejection.json["code"]) == (413, "payload_too_large"), rejection.text
    ground.api.get("/imports").expect(200)


def test_kept_connections(ground: Ground) -> None:
    """Two hundred requests use one connection, and writes succeed after the service has closed its side."""
    headers = {"Authorization": f"Bearer {ground.server.key}", "Content-Type": "application/json"}
    with closing(connect_through(ground)) as connection:
        connection.connect()
        socket_before = connection.sock
        for number in range(200):
            body = json.dumps({"email": f"kept{number}@example.org"})
            connection.request("POST", "/v1/my/contacts", body, headers)
            response = connection.getresponse()
            response.read()
            assert response.status == 201 and connection.sock is socket_before
        time.sleep(61)
        for number in range(20):
            connection.request("POST", "/v1/my/contacts", json.dumps({"email": f"late{number}@example.org"}), headers)
            response = connection.getresponse()
            response.read()
            assert response.status == 201


def test_slow_clients_delay_no_other(ground: Ground) -> None:
    """While two hundred clients send a byte now and then, other requests are fast."""
    body, content_type = multipart_form(csv_file(10, 200), resource="contacts", options="{}")
    head = (
        f"POST /v1/my/imports HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {ground.server.key}\r\n"
        f"Content-Type: {content_type}\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode()
    slow_clients = [
        ground.trust.wrap_socket(
            socket.create_connection(("127.0.0.1", ground.proxy.port)), server_hostname="127.0.0.1"
        )
        for _ in range(200)
    ]
    for number, slow_client in enumerate(slow_clients):
        slow_client.sendall((head + body)[: 60 if number % 2 else len(head) + 100])
    ending = threading.Event()

    def trickle() -> None:
        at = len(head) + 100
        while not ending.wait(0.5):
            for slow_client in slow_clients[::2]:
                slow_client.sendall(body[at - len(head) : at - len(head) + 1])
            at += 1

    thread = threading.Thread(target=trickle)
    thread.start()
    try:
        for _ in range(50):
            started = time.monotonic()
            ground.api.get("/contacts").expect(200)
            assert time.monotonic() - started < extend_timeout(1)
    finally:
        ending.set()
        thread.join()
        for slow_client in slow_clients:
            slow_client.close()


@pytest.mark.parametrize(("size", "status"), [(4_000, 401), (7_900, 401), (20_000, 401), (60_000, None)])
def test_large_request_headers(ground: Ground, size: int, status: int | None) -> None:
    """A long credential is rejected as a wrong one; a much longer one by the proxy or the service."""
    with closing(connect_through(ground)) as connection:
        connection.request("GET", "/v1/my/contacts", headers={"Authorization": f"Bearer {'x' * size}"})
        response = connection.getresponse()
        response.read()
    assert response.status == status if status else response.status in (400, 431, 494)
    ground.api.get("/contacts").expect(200)


def test_the_client_address(ground: Ground) -> None:
    """Audit log and limits use the client's address; forwarding headers that the client sends are ignored."""
    with closing(connect_through(ground, "127.0.9.2")) as connection:
        for number in range(12):
            forged_headers = {"X-Forwarded-For": f"203.0.113.{number}", "X-Real-IP": "203.0.113.9"}
            forged_headers |= {"X-Forwarded-Host": "evil.example", "Forwarded": "for=203.0.113.9;host=evil.example"}
            form_headers = {"Origin": ground.proxy.url, "Content-Type": "application/x-www-form-urlencoded"}
            email = EMAIL if number < 3 else f"stranger{number}@example.org"
            connection.request(
                "POST", "/login", f"email={email}&password=wrong+wrong+wrong", forged_headers | form_headers
            )
            response = connection.getresponse()
            assert "evil.example" not in response.read().decode() + str(response.headers)
    assert response.status == 429, "the limit of ten counts the client, whatever headers it sends"
    with closing(apsw.Connection(str(ground.server.data / "campanero.db"))) as connection_to_database:
        assert (
            connection_to_database.execute("SELECT DISTINCT ip FROM audit WHERE action = 'login_failed'").get
            == "127.0.9.2"
        )


def test_the_editor_works(ground: Ground, browser: Browser, browser_problems: Problems) -> None:
    """Signing in and editing a template work without console errors, and the change is saved."""
    direct = ground.server.client()
    template_id = create_template(direct)
    page = new_page(browser, ground.proxy.url, browser_problems)
    sign_in_by_form(page)
    (cookie,) = [template_id for template_id in page.context.cookies() if template_id["name"].endswith("campanero")]
    assert cookie["name"] == "__Host-campanero" and cookie["secure"]
    page.goto(f"/templates/{template_id}/edit")
    page.locator("#o-press").click()
    page.get_by_label("Text", exact=True).fill("Through the proxy")
    wait_until_saved(page)
    expect(page.locator("#saved")).to_contain_text("Saved")
    expect(page.frame_locator("#canvas").get_by_text("Through the proxy")).to_be_visible()
    assert "Through the proxy" in json.dumps(get_design(direct, template_id))
    page.context.close()
    assert not browser_problems.found


def test_http_redirects_to_https(ground: Ground) -> None:
    """A plain request to the proxy is redirected to the same path over https."""
    with closing(
        http.client.HTTPConnection("127.0.0.1", ground.proxy.plain_port, timeout=extend_timeout(5))
    ) as connection:
        try:
            connection.request("GET", "/u/x?y=1", headers={"Host": "127.0.0.1"})
        except ConnectionRefusedError:
            pytest.skip("Caddy does that by itself, on a port that tests may not have")
        response = connection.getresponse()
    assert (response.status, response.headers["Location"]) == (301, "https://127.0.0.1/u/x?y=1")
