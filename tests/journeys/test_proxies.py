"""Behind nginx and Caddy, each configured exactly as the guide says: all that people and programs do goes through.

With `--full`: the proxies come from Debian's packages.
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
from tests.kit.browser import Problems, new_page, sign_in
from tests.kit.client import Client
from tests.kit.emails import design_of, make, settled
from tests.kit.https import trusting
from tests.kit.patience import soon
from tests.kit.proxies import Proxy
from tests.kit.server import EMAIL, Server
from tests.kit.uploads import done, form, upload


class Ground(NamedTuple):
    """A proxy, the server behind it, a client that asks through it, and what a browser has to trust."""

    proxy: Proxy
    server: Server
    api: Client
    trust: ssl.SSLContext


def example(server: Server, language: str) -> str:
    """Return the example of the guide as it is served."""
    page = Client(server.url).request("GET", "/docs/guides/https").text
    (found,) = [one.text for one in guides.blocks(page) if one.language == language]
    return found


@pytest.fixture(scope="module", params=["nginx", "caddy"])
def ground(request: pytest.FixtureRequest, full: bool) -> Iterator[Ground]:
    """The service behind a proxy, as the guide has it."""
    if not full:
        pytest.skip("runs with --full")
    if proxies.find(request.param) is None:
        pytest.skip(f"{request.param} is not installed, and apt-get cannot fetch it")
    pair = certificates.self_signed()
    with Server(env={"CAMPANERO_NETWORK__TRUSTED_PROXIES": "127.0.0.1"}).set_up() as server:
        with Proxy(request.param, example(server, request.param), server.port, pair) as proxy:
            server.stop()
            server.env["CAMPANERO_BASE_URL"] = proxy.url
            server.start()
            yield Ground(proxy, server, Client(proxy.url, server.key), trusting(pair))
        assert "Traceback" not in server.output


def through(ground: Ground, source: str = "127.0.0.1") -> http.client.HTTPSConnection:
    """Return a connection to the proxy, from an address of this machine."""
    return http.client.HTTPSConnection(
        "127.0.0.1", ground.proxy.port, timeout=soon(10), context=ground.trust, source_address=(source, 0)
    )


def rows(count: int, size: int) -> bytes:
    """Return a file of people, each line about `size` bytes."""
    words = "x" * (size - 40)
    return b"email,about\n" + b"".join(b"p%d@example.org,%s\n" % (one, words.encode()) for one in range(count))


def test_a_large_import_goes_through(ground: Ground) -> None:
    """Nearly 200 MB are taken and read; more than that is refused by the service, in its own words."""
    file = rows(6_500, 30_000)
    assert 190_000_000 < len(file) < 200_000_000
    found = done(ground.api, upload(ground.api, file, dry_run=True, opt_in=True), timeout=300)
    assert (found["status"], found["total"]) == ("complete", 6_500)
    try:
        refused = upload(ground.api, file + b"x" * 18_000_000)
    except OSError:
        # Who sends on after an answer is cut off by Caddy
        assert ground.proxy.name == "caddy"
    else:
        assert (refused.status, refused.json["code"]) == (413, "payload_too_large"), refused.text
    ground.api.get("/imports").expect(200)


def test_connections_are_kept(ground: Ground) -> None:
    """Two hundred requests on one connection; a write after a minute's rest, when the service has ended its side."""
    headers = {"Authorization": f"Bearer {ground.server.key}", "Content-Type": "application/json"}
    with closing(through(ground)) as connection:
        connection.connect()
        kept = connection.sock
        for number in range(200):
            body = json.dumps({"email": f"kept{number}@example.org"})
            connection.request("POST", "/v1/my/contacts", body, headers)
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 201 and connection.sock is kept
        time.sleep(61)
        for number in range(20):
            connection.request("POST", "/v1/my/contacts", json.dumps({"email": f"late{number}@example.org"}), headers)
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 201


def test_slow_clients_hold_up_nobody(ground: Ground) -> None:
    """Two hundred who send a byte now and then, half of them in a file; who asks meanwhile is answered at once."""
    body, kind = form(rows(10, 200), resource="contacts", options="{}")
    head = (
        f"POST /v1/my/imports HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {ground.server.key}\r\n"
        f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode()
    slow = [
        ground.trust.wrap_socket(
            socket.create_connection(("127.0.0.1", ground.proxy.port)), server_hostname="127.0.0.1"
        )
        for _ in range(200)
    ]
    for number, one in enumerate(slow):
        one.sendall((head + body)[: 60 if number % 2 else len(head) + 100])
    ending = threading.Event()

    def trickle() -> None:
        at = len(head) + 100
        while not ending.wait(0.5):
            for one in slow[::2]:
                one.sendall(body[at - len(head) : at - len(head) + 1])
            at += 1

    thread = threading.Thread(target=trickle)
    thread.start()
    try:
        for _ in range(50):
            begun = time.monotonic()
            ground.api.get("/contacts").expect(200)
            assert time.monotonic() - begun < soon(1)
    finally:
        ending.set()
        thread.join()
        for one in slow:
            one.close()


@pytest.mark.parametrize(("size", "status"), [(4_000, 401), (7_900, 401), (20_000, 401), (60_000, None)])
def test_large_heads(ground: Ground, size: int, status: int | None) -> None:
    """A long credential is refused as a wrong one; what is beyond all bounds is refused by one of both."""
    with closing(through(ground)) as connection:
        connection.request("GET", "/v1/my/contacts", headers={"Authorization": f"Bearer {'x' * size}"})
        answer = connection.getresponse()
        answer.read()
    assert answer.status == status if status else answer.status in (400, 431, 494)
    ground.api.get("/contacts").expect(200)


def test_whoever_asks_is_known(ground: Ground) -> None:
    """The audit and the limits know the client and not the proxy; whom a stranger names in front is nobody."""
    with closing(through(ground, "127.0.9.2")) as connection:
        for number in range(12):
            lies = {"X-Forwarded-For": f"203.0.113.{number}", "X-Real-IP": "203.0.113.9"}
            lies |= {"X-Forwarded-Host": "evil.example", "Forwarded": "for=203.0.113.9;host=evil.example"}
            site = {"Origin": ground.proxy.url, "Content-Type": "application/x-www-form-urlencoded"}
            email = EMAIL if number < 3 else f"stranger{number}@example.org"
            connection.request("POST", "/login", f"email={email}&password=wrong+wrong+wrong", lies | site)
            answer = connection.getresponse()
            assert "evil.example" not in answer.read().decode() + str(answer.headers)
    assert answer.status == 429, "ten of one client, whatever it says of itself"
    with closing(apsw.Connection(str(ground.server.data / "campanero.db"))) as book:
        assert book.execute("SELECT DISTINCT ip FROM audit WHERE action = 'login_failed'").get == "127.0.9.2"


def test_the_editor_works(ground: Ground, browser: Browser, browser_problems: Problems) -> None:
    """Sign in, change a template, upload nothing foreign: no error on the console, and it is kept."""
    direct = ground.server.client()
    one = make(direct)
    page = new_page(browser, ground.proxy.url, browser_problems)
    sign_in(page)
    (cookie,) = [one for one in page.context.cookies() if one["name"].endswith("campanero")]
    assert cookie["name"] == "__Host-campanero" and cookie["secure"]
    page.goto(f"/templates/{one}/edit")
    page.locator("#o-press").click()
    page.get_by_label("Text", exact=True).fill("Through the proxy")
    settled(page)
    expect(page.locator("#saved")).to_contain_text("Saved")
    expect(page.frame_locator("#canvas").get_by_text("Through the proxy")).to_be_visible()
    assert "Through the proxy" in json.dumps(design_of(direct, one))
    page.context.close()
    assert not browser_problems.found


def test_plain_requests_are_led_to_https(ground: Ground) -> None:
    """Port 80 leads to the same address over https, where the example has such a door."""
    with closing(http.client.HTTPConnection("127.0.0.1", ground.proxy.plain_port, timeout=soon(5))) as connection:
        try:
            connection.request("GET", "/u/x?y=1", headers={"Host": "127.0.0.1"})
        except ConnectionRefusedError:
            pytest.skip("Caddy does that by itself, on a port that tests may not have")
        answer = connection.getresponse()
    assert (answer.status, answer.headers["Location"]) == (301, "https://127.0.0.1/u/x?y=1")
