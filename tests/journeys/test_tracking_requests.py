"""Requests for tracked links that are answered before Sanic get the same responses, and store the same hits."""

import re
import socket
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import apsw
import pytest

from appliance.core import crypto
from appliance.http.server import read_request
from appliance.sending.messages import links
from tests.kit.readers import ReceivedMail, parse_mail
from tests.kit.recipients import NO_RATE_LIMITS, create_list, send_campaign, wait_until_completed
from tests.kit.server import Server
from tests.kit.smtp import SmtpServer

HEADERS = b"Host: mail.example.org\r\nUser-Agent: Mozilla/5.0 (X11)\r\nAccept: */*\r\n"
# Requests that are answered before Sanic. `{c}` is the path of a tracked link, `{o}` that of the pixel.
USUAL = {
    "a click": b"GET {c} HTTP/1.1\r\n" + HEADERS + b"\r\n",
    "an open": b"GET {o} HTTP/1.1\r\n" + HEADERS + b"\r\n",
    "a referrer": b"GET {c} HTTP/1.1\r\n" + HEADERS + b"Referer: https://mail.example/inbox \r\n\r\n",
    "a prefetch": b"GET {c} HTTP/1.1\r\n" + HEADERS + b"Sec-Purpose: prefetch;prerender\r\n\r\n",
    "an older prefetch": b"GET {c} HTTP/1.1\r\n" + HEADERS + b"Purpose: prefetch\r\n\r\n",
    "two user agents": b"GET {c} HTTP/1.1\r\n" + HEADERS + b"USER-AGENT:second\r\n\r\n",
    "no user agent": b"GET {o} HTTP/1.1\r\nhost:x\r\n\r\n",
    "a long user agent": b"GET {o} HTTP/1.1\r\nHost: x\r\nUser-Agent: " + b"a" * 2_000 + b"\r\n\r\n",
    "a trusted proxy": b"GET {c} HTTP/1.1\r\n" + HEADERS + b"X-Forwarded-For: 192.0.2.9, 198.51.100.7\r\n\r\n",
    "two proxy lines": (
        b"GET {c} HTTP/1.1\r\n" + HEADERS + b"X-Forwarded-For: 192.0.2.9\r\nX-Forwarded-For: 127.0.0.1\r\n\r\n"
    ),
    "a kept connection": b"GET {c} HTTP/1.1\r\n" + HEADERS + b"Connection: Keep-Alive\r\n\r\n",
    "a link without a target": b"GET {no_target} HTTP/1.1\r\n" + HEADERS + b"\r\n",
    "a link of no message": b"GET {no_message} HTTP/1.1\r\n" + HEADERS + b"\r\n",
    "a pixel of no message": b"GET {no_pixel} HTTP/1.1\r\n" + HEADERS + b"\r\n",
}
# Requests that are left to Sanic.
UNUSUAL = {
    "a query": b"GET {c}?a=1 HTTP/1.1\r\n" + HEADERS + b"\r\n",
    "a slash": b"GET {c}/ HTTP/1.1\r\n" + HEADERS + b"\r\n",
    "an escape": b"GET {c}%20 HTTP/1.1\r\n" + HEADERS + b"\r\n",
    "a forged link": b"GET /c/AAAAAAAAAAAAAAAAAAA-1 HTTP/1.1\r\n" + HEADERS + b"\r\n",
    "a forged pixel": b"GET /o/AAAAAAAAAAAAAAAAAAA.gif HTTP/1.1\r\n" + HEADERS + b"\r\n",
    "HEAD": b"HEAD {c} HTTP/1.1\r\n" + HEADERS + b"\r\n",
    "POST": b"POST {c} HTTP/1.1\r\n" + HEADERS + b"Content-Length: 1\r\n\r\nx",
    "HTTP/1.0": b"GET {c} HTTP/1.0\r\n" + HEADERS + b"\r\n",
    "a last request": b"GET {c} HTTP/1.1\r\n" + HEADERS + b"Connection: close\r\n\r\n",
    "a body": b"GET {c} HTTP/1.1\r\n" + HEADERS + b"Content-Length: 2\r\n\r\nab",
    "an empty body": b"GET {c} HTTP/1.1\r\n" + HEADERS + b"Content-Length: 0\r\n\r\n",
    "chunks": b"GET {c} HTTP/1.1\r\n" + HEADERS + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "an expectation": b"GET {c} HTTP/1.1\r\n" + HEADERS + b"Expect: 100-continue\r\n\r\n",
    "a long head": b"GET {c} HTTP/1.1\r\n" + HEADERS + b"X-A: " + b"a" * 33_000 + b"\r\n\r\n",
    "no host": b"GET {c} HTTP/1.1\r\nUser-Agent: x\r\n\r\n",
    "two hosts": b"GET {c} HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    "a space before a colon": b"GET {c} HTTP/1.1\r\nHost : a\r\n\r\n",
    "a folded line": b"GET {c} HTTP/1.1\r\nHost: a\r\nX-A: b\r\n c\r\n\r\n",
    "a bare line feed": b"GET {c} HTTP/1.1\r\nHost: a\nX-A: b\r\n\r\n",
    "a NUL": b"GET {c} HTTP/1.1\r\nHost: a\r\nX-A: b\0\r\n\r\n",
    "letters outside ASCII": b"GET {c} HTTP/1.1\r\n" + HEADERS + "Referer: é\r\n\r\n".encode(),
    "a byte that is not UTF-8": b"GET {c} HTTP/1.1\r\n" + HEADERS + b"Referer: \xe9\r\n\r\n",
}  # fmt: skip
_REQUEST_ID = re.compile(rb"(?<=X-Request-Id: )[0-9a-f]{16}(?=\r\n)")
_NONCE = re.compile(rb"(?<=nonce[-=])[\"A-Za-z0-9_-]+")


class Recipient:
    """A service, a mail that it sent, and the paths of its links by the names in the requests."""

    def __init__(self, server: Server, mail: ReceivedMail) -> None:
        crypto.load_key(server.data)
        self.server = server
        self.paths = {
            "{c}": mail.tracked_paths[0],
            "{o}": mail.pixel_path,
            "{no_target}": mail.tracked_paths[0].rpartition("-")[0] + "-99",
            "{no_message}": f"/c/{links.build_click_token(999_999)}-1",
            "{no_pixel}": f"/o/{links.build_tracking_tokens(999_999)['open']}.gif",
        }

    def fill(self, template: bytes) -> bytes:
        """Return a request with the paths of this mail."""
        for name, path in self.paths.items():
            template = template.replace(name.encode(), path.encode())
        return template

    def connect(self) -> socket.socket:
        """Return a connection that the server is ready to read from."""
        connection = socket.create_connection(("127.0.0.1", self.server.port), timeout=8)
        time.sleep(0.02)
        return connection

    def open_database(self) -> apsw.Connection:
        """Return a connection to the database of the service."""
        database = apsw.Connection(str(self.server.data / "campanero.db"))
        database.set_busy_timeout(5_000)
        return database

    def take_hits(self) -> list[tuple[Any, ...]]:
        """Return the stored hits, without their times, since the last call."""
        with closing(self.open_database()) as database:
            rows = database.execute(
                "SELECT account_id, campaign_id, message_id, kind, number, method, ip, user_agent, referrer FROM hit "
                "ORDER BY id"
            ).fetchall()
            database.execute("DELETE FROM hit")
        return rows


@pytest.fixture(scope="module")
def recipient() -> Iterator[Recipient]:
    """A service that trusts its proxy, and a mail with tracked links."""
    env = NO_RATE_LIMITS | {"CAMPANERO_NETWORK__TRUSTED_PROXIES": "127.0.0.1"}
    with SmtpServer() as sink, Server(relay=sink.port, env=env).set_up() as server:
        api = server.set_postal_address().client()
        body = '<a href="https://shop.example/one?a=1&amp;b=%252">one</a>'
        wait_until_completed(api, send_campaign(api, create_list(api, 1, "Readers"), body=body))
        yield Recipient(server, parse_mail(sink.messages[0]))
        server.stop()


def receive(connection: socket.socket, count: int = 1) -> bytes:
    """Return what arrives until `count` responses are complete, the server closes, or nothing comes for a second."""
    received = b""
    connection.settimeout(1)
    while True:
        try:
            piece = connection.recv(65_536)
        except TimeoutError:
            return received
        received += piece
        if not piece or _count_complete(received) == count:
            return received


def _count_complete(received: bytes) -> int:
    count = 0
    while received:
        head, end, rest = received.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)\r\ncontent-length: (\d+)", head)
        size = int(length[1]) if length else 0
        if not end or len(rest) < size:
            break
        received, count = rest[size:], count + 1
    return count


def normalize(responses: bytes) -> bytes:
    """Return responses without what differs each time: ids of requests and nonces."""
    return _NONCE.sub(b"N", _REQUEST_ID.sub(b"ID", responses))


@pytest.mark.parametrize("name", [*USUAL, *UNUSUAL])
def test_request_gets_the_same_response_and_hit_whole_and_in_pieces(recipient: Recipient, name: str) -> None:
    """A request in two pieces is always left to Sanic, so its response and its hit are those to compare with."""
    request = recipient.fill((USUAL | UNUSUAL)[name])
    assert (read_request(request) is not None) == (name in USUAL)
    results = []
    for pieces in ((request,), (request[:7], request[7:])):
        recipient.take_hits()
        with recipient.connect() as connection:
            for piece in pieces:
                connection.sendall(piece)
                time.sleep(0.03)
            results.append((normalize(receive(connection)), recipient.take_hits()))

    assert results[0] == results[1]
    assert results[0][0].startswith(b"HTTP/1.1 ")


def test_pipelined_requests_are_answered_in_their_order(recipient: Recipient) -> None:
    """Requests in one piece, and requests that arrive while an earlier one waits for the database."""
    click, pixel = recipient.fill(USUAL["a click"]), recipient.fill(USUAL["an open"])
    other = b"GET /robots.txt HTTP/1.1\r\nHost: x\r\n\r\n"
    for pieces in ((click + pixel + other + click,), (click, pixel, other, click), (click, other + pixel, click)):
        with recipient.connect() as connection, closing(recipient.open_database()) as database:
            database.execute("BEGIN IMMEDIATE")
            for piece in pieces:
                connection.sendall(piece)
                time.sleep(0.02)
            database.execute("ROLLBACK")
            responses = receive(connection, 4)

        kinds = re.findall(rb"(?i)HTTP/1.1 (\d+) .*?\r\ncontent-type: ([^;\r]+)", responses, re.DOTALL)
        click_kind, pixel_kind, other_kind = (b"302", b"text/plain"), (b"200", b"image/gif"), (b"200", b"text/plain")
        order = {click: [click_kind], pixel: [pixel_kind], other: [other_kind], other + pixel: [other_kind, pixel_kind]}
        assert kinds == [
            kind for piece in pieces for kind in order.get(piece, [click_kind, pixel_kind, other_kind, click_kind])
        ]


def test_body_that_looks_like_a_click_is_not_answered(recipient: Recipient) -> None:
    """The rest of a body that Sanic still reads, because it refused the request, is not a request."""
    # With a name of its own: a hit of the test before may be stored while this one runs
    agent = "in the body"
    click = recipient.fill(USUAL["a click"]).replace(b"Mozilla/5.0 (X11)", agent.encode())
    with recipient.connect() as connection:
        connection.sendall(b"POST /u/x HTTP/1.1\r\nHost: x\r\nContent-Length: 3000000\r\n\r\n")
        time.sleep(0.2)
        for _ in range(5):
            connection.sendall(click)
            time.sleep(0.05)
        responses = receive(connection)

    assert responses.startswith(b"HTTP/1.1 413 ") and responses.count(b"HTTP/1.1 ") == 1
    assert agent.encode() in click and [hit for hit in recipient.take_hits() if hit[7] == agent] == []


def test_connection_that_ends_before_the_response_still_stores_the_hit(recipient: Recipient) -> None:
    """The click counts, and the server goes on."""
    recipient.take_hits()
    with recipient.connect() as connection:
        connection.sendall(recipient.fill(USUAL["a click"]))
    time.sleep(0.5)

    assert len(recipient.take_hits()) == 1
    with recipient.connect() as connection:
        connection.sendall(recipient.fill(USUAL["a click"]))
        assert receive(connection).startswith(b"HTTP/1.1 302 ")
