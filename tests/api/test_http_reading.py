"""Requests that two HTTP parsers could read differently are rejected, and no byte after them is read (RFC 9112)."""

import json
import os
import random
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from tests.kit.raw_http import exchange_bytes
from tests.kit.server import Server
from tests.kit.uploads import multipart_form

MIB = 1_048_576
BODY = b'{"name":"outer"}'
SIZE = b"%x" % len(BODY)
NEXT = b"GET /v1/my/lists HTTP/1.1\r\nHost: x\r\n\r\n"


def head(
    server: Server, *lines: bytes, first: bytes = b"POST /v1/my/lists HTTP/1.1", host: bytes = b"Host: x"
) -> bytes:
    """Return the headers of a request that would create a list."""
    known = [f"Authorization: Bearer {server.key}".encode(), b"Content-Type: application/json"]
    return b"\r\n".join([first, *filter(None, [host]), *known, *lines]) + b"\r\n\r\n"


def chunked(server: Server, body: bytes) -> bytes:
    """Return a request with a body that is already encoded in chunks."""
    return head(server, b"Transfer-Encoding: chunked") + body


def count_lists(server: Server) -> int:
    """Return the number of lists."""
    return int(server.client().get("/lists").headers["X-Total-Count"])


def check_rejected(server: Server, request: bytes) -> None:
    """Check that a request gets a JSON 400 without effect, and that the rest of its connection is never read."""
    before = count_lists(server)
    inner = head(server, b"Content-Length: 19") + b'{"name":"smuggled"}'
    response = exchange_bytes(server.port, request + inner + NEXT)

    assert response.startswith(b"HTTP/1.1 400 "), response[:300]
    assert (response.count(b"HTTP/1.1 "), b"connection: close" in response.lower()) == (1, True), response
    assert json.loads(response.partition(b"\r\n\r\n")[2])["code"] == "bad_request"
    assert count_lists(server) == before


SIZES = {
    "a prefix": b"0x" + SIZE, "a mark inside": b"1_0", "a plus": b"+" + SIZE, "a minus": b"-1",
    "a space before": b" " + SIZE,
    "a space after": SIZE + b" ", "a tab after": SIZE + b"\t", "nothing": b"", "no digits": b"x",
    "a digit of another script": "1٠".encode(), "a digit of full width": "１0".encode(), "17 digits": b"0" * 15 + SIZE,
    "only an extension": b";a=b", "a long extension": SIZE + b";" + b"a" * 300,
    "an extension with a NUL": SIZE + b";a\0",
    "an extension with a return": SIZE + b";a\rb", "an extension with a line feed": SIZE + b";a\nb",
    "a comma": SIZE + b",",
}  # fmt: skip


@pytest.mark.parametrize("size", SIZES)
def test_invalid_chunk_sizes_are_rejected(server: Server, size: str) -> None:
    """A size is one to sixteen hexadecimal digits, with an extension of bounded length (section 7.1)."""
    check_rejected(server, chunked(server, SIZES[size] + b"\r\n" + BODY + b"\r\n0\r\n\r\n"))


CHUNKS = {
    "data not followed by CRLF": SIZE + b"\r\n" + BODY + b"XX0\r\n\r\n",
    "data followed by a lone line feed": SIZE + b"\r\n" + BODY + b"\n0\r\n\r\n",
    "two line feeds": SIZE + b"\r\n" + BODY + b"\n\n0\r\n\r\n",
    "a size ended by a lone line feed": SIZE + b"\n" + BODY + b"\r\n0\r\n\r\n",
    "data longer than its size": b"2\r\n" + BODY + b"\r\n0\r\n\r\n",
    "a trailer": SIZE + b"\r\n" + BODY + b"\r\n0\r\nX-One: two\r\n\r\n",
    "a long trailer": SIZE + b"\r\n" + BODY + b"\r\n0\r\n" + b"X-One: two\r\n" * 5000 + b"\r\n",
    "no end": SIZE + b"\r\n" + BODY + b"\r\n0\r\nGET / HTTP/1.1\r\n\r\n",
    "an end of other bytes": SIZE + b"\r\n" + BODY + b"\r\n0XX\r\n\r\n",
}  # fmt: skip


@pytest.mark.parametrize("body", CHUNKS)
def test_invalid_chunks_are_rejected(server: Server, body: str) -> None:
    """Each chunk and line must end in CRLF; trailers are rejected."""
    check_rejected(server, chunked(server, CHUNKS[body]))


LENGTHS = {
    "a digit of another script": "1٦".encode(), "a digit of full width": "１６".encode(), "a plus": b"+16",
    "a minus": b"-16", "a mark inside": b"1_6", "a list": b"16, 16", "nothing": b"", "a space inside": b"1 6",
    "a fraction": b"16.0", "hexadecimal": b"0x10", "a vertical tab before": b"\x0b16", "a form feed after": b"16\x0c",
    "a space without break": b"\xa016", "a next line": b"\xc2\x8516", "101 digits": b"0" * 99 + b"16",
}  # fmt: skip


@pytest.mark.parametrize("length", LENGTHS)
def test_invalid_lengths_are_rejected(server: Server, length: str) -> None:
    """Content-Length is digits, with spaces and tabs around at most (section 6.2)."""
    check_rejected(server, head(server, b"Content-Length: " + LENGTHS[length]) + BODY)


LINES: dict[str, Callable[[Server], bytes]] = {
    "length and chunks": lambda server: head(server, b"Content-Length: 16", b"Transfer-Encoding: chunked") + BODY,
    "two lengths": lambda server: head(server, b"Content-Length: 16", b"Content-Length: 17") + BODY,
    "the same length twice": lambda server: head(server, b"Content-Length: 16", b"Content-Length: 16") + BODY,
    "chunks twice": lambda server: head(server, b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked") + BODY,
    "packed chunks": lambda server: head(server, b"Transfer-Encoding: gzip, chunked") + BODY,
    "another coding": lambda server: head(server, b"Transfer-Encoding: identity") + BODY,
    "chunks with a tab before": lambda server: head(server, b"Transfer-Encoding: \x0bchunked") + BODY,
    "chunks in HTTP/1.0": lambda server: head(
        server, b"Transfer-Encoding: chunked", first=b"POST /v1/my/lists HTTP/1.0"
    ) + SIZE + b"\r\n" + BODY + b"\r\n0\r\n\r\n",
    "two hosts": lambda server: head(server, b"Host: y", b"Content-Length: 16") + BODY,
    "the same host twice": lambda server: head(server, b"hOST: x", b"Content-Length: 16") + BODY,
    "no host": lambda server: head(server, b"Content-Length: 16", host=b"") + BODY,
    "two hosts in HTTP/1.0": lambda server: head(
        server, b"Host: y", b"Content-Length: 16", first=b"POST /v1/my/lists HTTP/1.0"
    ) + BODY,
    "a line that goes on": lambda server: head(server, b"X-One: two\r\n three", b"Content-Length: 16") + BODY,
    "a line that begins with a tab": lambda server: head(server, b"\tX-One: two", b"Content-Length: 16") + BODY,
    "a space before the colon": lambda server: head(server, b"Content-Length : 16") + BODY,
    "a lone return": lambda server: head(server, b"X-One: two\rX: y", b"Content-Length: 16") + BODY,
    "a lone line feed": lambda server: head(server, b"X-One: two\nX: y", b"Content-Length: 16") + BODY,
    "a NUL": lambda server: head(server, b"X-One: \0", b"Content-Length: 16") + BODY,
    "no colon": lambda server: head(server, b"X-One", b"Content-Length: 16") + BODY,
    "no name": lambda server: head(server, b": x", b"Content-Length: 16") + BODY,
    "a space in a name": lambda server: head(server, b"X One: x", b"Content-Length: 16") + BODY,
    "another letter in a name": lambda server: head(server, b"X-\xc3\xa9: x", b"Content-Length: 16") + BODY,
    "lone line feeds alone": lambda server: head(server).replace(b"\r\n", b"\n"),
}  # fmt: skip


@pytest.mark.parametrize("line", LINES)
def test_ambiguous_headers_are_rejected(server: Server, line: str) -> None:
    """A request has one length or chunks, one Host, and each header on one line (sections 2.2, 3.2, 5, 6)."""
    check_rejected(server, LINES[line](server))


@pytest.mark.parametrize(
    "host",
    [b"", b"a b", b"a/b", b"user@x", b"x:port", b"x:123456", b"x,y z", b"[::1", b"x\xc3\xa9", b"x#y", b"x?y", b"<x>"],
)
def test_invalid_hosts_are_rejected(server: Server, host: bytes) -> None:
    """Host is a name or address and optionally a port (section 3.2)."""
    check_rejected(server, head(server, b"Content-Length: 16", host=b"Host: " + host) + BODY)


@pytest.mark.parametrize(
    "first",
    [
        b"POST  /v1/my/lists HTTP/1.1", b"POST /v1/my/lists  HTTP/1.1", b" POST /v1/my/lists HTTP/1.1",
        b"POST\t/v1/my/lists HTTP/1.1", b"P(ST /v1/my/lists HTTP/1.1", b"P\xc3\x96ST /v1/my/lists HTTP/1.1",
        b"POST /v1/my/lists HTTP/1.2", b"POST /v1/my/lists HTTP/2.0", b"POST /v1/my/lists http/1.1",
        b"POST /v1/my/lists HTTP/1.1 ", b"POST /v1/my/lists", b"POST /v1/my/li\tsts HTTP/1.1",
        b"POST /v1/my/lists\x7f HTTP/1.1", b"POST v1/my/lists HTTP/1.1", b"POST http://x HTTP/1.1",
        b"POST http://a b/v1/my/lists HTTP/1.1", b"CONNECT x:80 HTTP/1.1",
        b"POST http://y/v1/my/lists HTTP/1.1", b"POST http://x:81/v1/my/lists HTTP/1.1",
        b"POST https://x:80/v1/my/lists HTTP/1.1", b"POST HTTP://x.example/v1/my/lists HTTP/1.1",
    ],
)  # fmt: skip
def test_invalid_request_lines_are_rejected(server: Server, first: bytes) -> None:
    """A request line is a token, a target and HTTP/1.0 or HTTP/1.1, separated by one space (section 3).

    A target with a host has that of the Host line, so that no program takes another one for that of the request.
    """
    before = count_lists(server)
    response = exchange_bytes(server.port, head(server, b"Content-Length: 16", first=first) + BODY + NEXT)

    assert response.startswith(b"HTTP/1.1 400 ") and response.count(b"HTTP/1.1 ") == 1, response[:300]
    assert count_lists(server) == before


def test_valid_variants_are_accepted(server: Server) -> None:
    """Spaces around a length, chunk extensions, absolute targets, HTTP/1.0 without Host and pipelining are accepted."""
    before = count_lists(server)
    good = [
        head(server, b"Content-Length: \t16 \t") + BODY,
        head(server, b"content-LENGTH:16", host=b"host:\t[::1]:8080") + BODY,
        head(server, b"Content-Length: 16", first=b"POST http://X:80/v1/my/lists HTTP/1.1") + BODY,
        head(server, b"Content-Length: 16", first=b"POST HTTPS://x/v1/my/lists HTTP/1.1", host=b"Host: x:443") + BODY,
        head(server, b"Content-Length: 16", first=b"POST /v1/my/lists HTTP/1.0", host=b"") + BODY,
        chunked(server, SIZE + b";a=b;c=\"d\"\r\n" + BODY + b"\r\n0;x\r\n\r\n"),
        chunked(server, b"000" + SIZE.upper() + b"\r\n" + BODY + b"\r\n00\r\n\r\n"),
        head(server, b"Transfer-Encoding: chunked", b"Expect: 100-continue") + SIZE + b"\r\n" + BODY + b"\r\n0\r\n\r\n",
        chunked(server, b"".join(b"1\r\n%c\r\n" % byte for byte in BODY) + b"0\r\n\r\n"),
    ]  # fmt: skip
    for number, request in enumerate(good):
        named = request.replace(b"outer", b"a%04d" % number)
        response = exchange_bytes(
            server.port, named.replace(b"Host: x", b"Connection: close\r\nHost: x", 1), timeout=1.5
        )
        assert b"HTTP/1.1 201 " in response, (request, response[:300])
    assert count_lists(server) == before + len(good)
    two = chunked(server, SIZE + b"\r\n" + BODY.replace(b"outer", b"first") + b"\r\n0\r\n\r\n")
    two += head(server, b"Connection: close", b"Content-Length: 16") + BODY.replace(b"outer", b"secon")
    assert exchange_bytes(server.port, two).count(b"HTTP/1.1 201 ") == 2


def test_a_large_chunked_upload(server: Server) -> None:
    """An import of 20 MiB in chunks of many sizes is accepted."""
    line = b"somebody@example.org,x\n"
    content = b"email,first_name\n" + line * (20 * MIB // len(line))
    body, kind = multipart_form(content)
    top = head(server, b"Transfer-Encoding: chunked", b"Connection: close", first=b"POST /v1/my/imports HTTP/1.1")
    pieces, at, size = bytearray(top.replace(b"application/json", kind.encode())), 0, 1
    while at < len(body):
        part = body[at : at + size]
        pieces += b"%x\r\n%s\r\n" % (len(part), part)
        at, size = at + len(part), size * 3 % 200_003 + 1
    response = exchange_bytes(server.port, bytes(pieces) + b"0\r\n\r\n", timeout=60)

    assert response.startswith(b"HTTP/1.1 201 "), response[:500]


def test_head_of_a_streamed_response(server: Server) -> None:
    """It has no body, the connection stays open, and the log has no traceback."""
    first = head(server, first=b"HEAD /v1/my/exports/contacts.csv HTTP/1.1")
    response = exchange_bytes(
        server.port, first + head(server, b"Connection: close", first=b"GET /v1/my/lists HTTP/1.1")
    )

    assert response.count(b"HTTP/1.1 200 ") == 2, response
    assert "Traceback" not in server.output


def test_random_bytes_cause_no_server_error(server: Server, full: bool) -> None:
    """Random changes of valid requests get a response below 500 or none, and the log has no traceback."""
    chance = random.Random(9112)
    sound = [chunked(server, SIZE + b";a=b\r\n" + BODY + b"\r\n0\r\n\r\n"), head(server, b"Content-Length: 16") + BODY]
    started_at = time.monotonic()
    while time.monotonic() < started_at + (60 if full else 1):
        request = bytearray(chance.choice(sound))
        for _ in range(chance.randint(1, 4)):
            at = chance.randrange(len(request))
            request[at : at + chance.randint(0, 2)] = chance.choice(
                [os.urandom(1), b"\r\n", b"\n", b"\0", b" ", b":", b"\t", b"0", b"", b"\r\n\r\n"]
            )
        response = exchange_bytes(server.port, bytes(request), timeout=0.05)
        assert not response.startswith(b"HTTP/1.1 5"), (bytes(request), response)
    assert "Traceback" not in server.output


@pytest.fixture(scope="module")
def impatient_server() -> Iterator[Server]:
    """Yield a server with a request timeout of one second."""
    with Server(env={"CAMPANERO_LIMITS__REQUEST_TIMEOUT": "1s"}).set_up() as running:
        yield running
        running.stop()


def send_slowly(port: int, begin: bytes, rest: bytes, pause: float, seconds: float = 20) -> tuple[bytes, float]:
    """Send the beginning at once and the rest byte by byte; return the received bytes and the duration in seconds."""
    began = time.monotonic()
    received = bytearray()
    with socket.create_connection(("127.0.0.1", port), timeout=seconds) as link:
        link.sendall(begin)
        with suppress(ConnectionError, TimeoutError):
            for byte in rest:
                link.settimeout(pause)
                with suppress(TimeoutError):
                    received += link.recv(65_536)
                    break
                link.sendall(bytes([byte]))
            link.settimeout(seconds)
            while piece := link.recv(65_536):
                received += piece
    return bytes(received), time.monotonic() - began


@pytest.mark.parametrize(
    ("begin", "rest", "status"),
    [
        (b"POST /v1/my/lists", b"", 408),
        (b"POST /v1/my/lists", b"1" * 100, 408),
        (b"POST /v1/my/uploads", b"1" * 100, 408),
        # Rejected before the body was read: the rest of the body is not waited for either
        (b"POST /v1/my/nothing", b"1" * 100, 404),
        (b"POST /login", b"1" * 100, 403),
    ],
)
def test_a_slow_body_times_out(impatient_server: Server, begin: bytes, rest: bytes, status: int) -> None:
    """A body that stops or comes byte by byte gets a 408, or the error it already had, and the connection ends."""
    kind = b"multipart/form-data; boundary=x" if b"uploads" in begin else b"application/json"
    lines = [
        begin + b" HTTP/1.1",
        b"Host: x",
        f"Authorization: Bearer {impatient_server.key}".encode(),
        b"Content-Type: " + kind,
    ]
    start = b"\r\n".join([*lines, b"Content-Length: 1000", b"", b'{"name": '])
    before = count_lists(impatient_server)
    response, seconds = send_slowly(impatient_server.port, start, rest, 0.1)
    assert int(response.split(b" ")[1]) == status, response
    assert 0.5 < seconds < 6, seconds
    if status == 408:
        assert json.loads(response.partition(b"\r\n\r\n")[2])["message"] == "The request is incomplete."
    assert count_lists(impatient_server) == before


def test_slow_headers_time_out(impatient_server: Server) -> None:
    """Headers that come byte by byte have no more time than headers that stop."""
    response, seconds = send_slowly(
        impatient_server.port, b"GET /v1/my/lists HTTP/1.1\r\nHost: x\r\nX-A: ", b"a" * 100, 0.1
    )
    assert response.startswith(b"HTTP/1.1 408 "), response
    assert 0.5 < seconds < 6, seconds


@pytest.mark.full
def test_a_slow_upload_succeeds(impatient_server: Server) -> None:
    """A large body that keeps coming may take many times the timeout."""
    before = count_lists(impatient_server)
    body = b'{"name": "' + b"x" * 200 + b'"}' + b" " * 20_000
    request = head(impatient_server, f"Content-Length: {len(body)}".encode())
    with socket.create_connection(("127.0.0.1", impatient_server.port), timeout=10) as link:
        link.sendall(request)
        for start in range(0, len(body), 2_000):
            link.sendall(body[start : start + 2_000])
            time.sleep(0.4)
        assert link.recv(65_536).startswith(b"HTTP/1.1 201 ")
    assert count_lists(impatient_server) == before + 1
