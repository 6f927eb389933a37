"""Generated HTTP/1.1 requests whose end two parsers could see at different places (T20).

`frame` is a second, strict reading of RFC 9112. Whatever it rejects, the service must reject too and close the
connection; whatever both accept must end where it says, so that the requests behind it are read as requests.
"""

import random
import re
import socket
from collections.abc import Iterator
from contextlib import suppress

from tests.kit.sampling import examples
from tests.kit.server import Server

SERVER_ENV = {"CAMPANERO_LIMITS__REQUESTS_PER_MINUTE": "0"}  # no limit
COUNT = examples(200, full=20_000)
_NAME, _VALUE = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"), re.compile(rb"[^\x00\r\n]*")
_HOST = re.compile(rb"[A-Za-z0-9.-]+(:[0-9]{0,5})?")
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})(;[\t\x20-\x7f]*)?")
_KNOWN_LINES = (b"Content-Type: application/json",)
_LENGTHS = (
    b"Content-Length: %d", b"content-length:%d", b"Content-Length: \t%d \t", b"Content-Length: 0%d",
    b"Content-Length: +%d", b"Content-Length: %d, %d", b"Content-Length : %d", b"Content-Length:\x0b%d",
    b"Content-Length: %d\x0c", b"Content-Length: 0x%x", b"Content-Length: %d.0", b"Content-Length: -%d",
    b"\xef\xbb\xbfContent-Length: %d", b"Content_Length: %d", b"Content-Length: \xc2\xb9%d",
    b"X: y\rContent-Length: %d", b"X: y\nContent-Length: %d", b"X: y\r\n Content-Length: %d",
    b"Content-Length\x00: %d", b"Content-Length: %d;",
    b"Content-Length: %d\x00", b"Content-Length:\r\n %d", b"Content-Length %d",
)  # fmt: skip
_CODINGS = (
    b"Transfer-Encoding: chunked", b"transfer-encoding:CHUNKED", b"Transfer-Encoding: \tchunked\t",
    b"Transfer-Encoding: chunked, chunked", b"Transfer-Encoding: gzip, chunked", b"Transfer-Encoding: xchunked",
    b"Transfer-Encoding : chunked", b"Transfer-Encoding: chunked;q=1", b'Transfer-Encoding: "chunked"',
    b"Transfer-Encoding:\x0bchunked", b"Transfer-Encoding: chunked\x00", b"Transfer-Encoding: identity",
    b"Transfer-Encoding:\r\n chunked", b"X: y\rTransfer-Encoding: chunked", b"X: y\nTransfer-Encoding: chunked",
    b"Transfer_Encoding: chunked", b"Transfer-Encoding: ", b"Transfer-Encoding: chunked,", b"TE: chunked",
    b"Transfer-Encoding: identity\r\nTransfer-Encoding: chunked",
)  # fmt: skip
_OTHERS = (
    b"Host: y", b"Host: x", b"Host:", b"Expect: 100-continue", b"Connection: keep-alive", b"Connection: close, x",
    b"Connection: Content-Length", b"Connection: Transfer-Encoding", b"Upgrade: h2c", b"Trailer: Content-Length",
    b" Content-Length: 0", b"X" * 300 + b": y", b"X: " + b"\xff" * 20, b": y", b"X", b"X Y: z", b"(: y", b"X: \x7f",
    b"Content-Encoding: identity",
)  # fmt: skip
_FIRST_LINES = (
    b"POST /v1/my/lists HTTP/1.1", b"POST  /v1/my/lists HTTP/1.1", b"POST /v1/my/lists HTTP/1.0",
    b"POST /v1/my/lists HTTP/1.1 ", b"POST\t/v1/my/lists HTTP/1.1", b"POST /v1/my/lists HTTP/1.2",
    b"POST /v1/my/lists HTTP/2.0", b"POST /v1/my/lists http/1.1", b"POST /v1/my/lists", b"GET /v1/my/lists HTTP/1.1",
    b"POST http://x/v1/my/lists HTTP/1.1", b"POST /v1/my/lists\x00 HTTP/1.1", b"HEAD /v1/my/lists HTTP/1.1",
    b"\r\nPOST /v1/my/lists HTTP/1.1", b"POST /v1/my/lists HTTP/1.1\r", b"OPTIONS * HTTP/1.1",
    b"POST /v1/my/lists?\rX HTTP/1.1",
)  # fmt: skip
_FIRST = re.compile(rb"(GET|HEAD|POST|OPTIONS) [!-~]+ HTTP/1\.([01])")
_LINE_ENDS = (b"\r\n",) * 12 + (b"\n", b"\r", b"\r\r\n", b"\n\r", b"\x00\r\n")
_SIZES = (
    b"%x", b"%X", b"0%x", b"%x;a=b", b"%x;", b"0x%x", b"+%x", b"-%x", b" %x", b"%x ", b"%x\t", b"%x\x00", b"%x;a\n",
    b"%x\r", b"", b"%x,", b"00000000000000000%x", b"%x;a=\x7f",
)  # fmt: skip


def frame(request: bytes) -> int | None:
    """Return where a request ends, or None if RFC 9112 or a careful server would not accept it."""
    head, blank, body = request.partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    first = _FIRST.fullmatch(lines[0])
    if not blank or first is None:
        return None
    fields: dict[bytes, list[bytes]] = {}
    for line in lines[1:]:
        name, colon, value = line.partition(b":")
        if not colon or _NAME.fullmatch(name) is None or _VALUE.fullmatch(value) is None:
            return None
        fields.setdefault(name.lower(), []).append(value.strip(b"\t "))
    lengths, codings, hosts = (fields.get(name, []) for name in (b"content-length", b"transfer-encoding", b"host"))
    if len(hosts) != 1 or _HOST.fullmatch(hosts[0]) is None or (lengths and codings):
        return None
    begun = len(head) + 4
    if codings:
        size = _measure_chunks(body)
        is_valid = [coding.lower() for coding in codings] == [b"chunked"] and first[2] == b"1" and size is not None
        return begun + (size or 0) if is_valid else None
    if not lengths:
        return begun
    is_valid = len(lengths) == 1 and re.fullmatch(rb"[0-9]{1,18}", lengths[0]) is not None
    return begun + int(lengths[0]) if is_valid and int(lengths[0]) <= len(body) else None


def _measure_chunks(body: bytes) -> int | None:
    """Return the length of a chunked body without trailers, or None."""
    place = 0
    while True:
        end = body.find(b"\r\n", place)
        match = _SIZE.fullmatch(body[place:end]) if end >= 0 else None
        if match is None:
            return None
        size, place = int(match[1], 16), end + 2
        if body[place + size : place + size + 2] != b"\r\n":
            return None
        place += size + 2
        if size == 0:
            return place


def _head(key: str, first: bytes, lines: list[bytes], end: bytes = b"\r\n") -> bytes:
    known = [b"Host: x", f"Authorization: Bearer {key}".encode(), *_KNOWN_LINES]
    return end.join([first, *known, *lines]) + end + end


def build_request(rng: random.Random, key: str, number: int) -> bytes:
    """Return a request that would create the list `outer <number>`, with a few lines as no client writes them."""
    body = b'{"name":"outer %d"}' % number
    lines: list[bytes] = []
    is_chunked = rng.random() < 0.5
    if is_chunked:
        lines.append(rng.choice(_CODINGS) if rng.random() < 0.5 else _CODINGS[0])
        body = _chunk(rng, body)
    if not is_chunked or rng.random() < 0.2:
        template = rng.choice(_LENGTHS) if rng.random() < 0.5 else _LENGTHS[0]
        length = len(body) + rng.choice((0, 0, 0, 0, 1, -1, -5, 10))
        lines.append(template.replace(b"%d", b"%d" % length).replace(b"%x", b"%x" % length))
    lines += rng.sample(_OTHERS, rng.choice((0, 0, 1, 2)))
    rng.shuffle(lines)
    first = rng.choice(_FIRST_LINES) if rng.random() < 0.2 else _FIRST_LINES[0]
    end = rng.choice(_LINE_ENDS) if rng.random() < 0.3 else b"\r\n"
    return _head(key, first, lines, end) + body


def _chunk(rng: random.Random, body: bytes) -> bytes:
    """Return a body in one or two chunks, at times with sizes and ends that are not exact."""
    cut = rng.choice((len(body), rng.randrange(1, len(body))))
    pieces, is_exact = [piece for piece in (body[:cut], body[cut:]) if piece], rng.random() < 0.5
    encoded = b""
    for piece in pieces:
        size = _SIZES[0] if is_exact else rng.choice(_SIZES)
        length = len(piece) + (0 if is_exact else rng.choice((0, 0, 0, 1, -1)))
        encoded += size.replace(b"%x", b"%x" % length).replace(b"%X", b"%X" % length)
        encoded += (b"\r\n" if is_exact else rng.choice(_LINE_ENDS)) + piece
        encoded += b"\r\n" if is_exact else rng.choice(_LINE_ENDS)
    ends = (b"0\r\n\r\n",) if is_exact else (b"0\r\n\r\n", b"0\r\n", b"00\r\n\r\n", b"0\n\n", b"0\r\nX: y\r\n\r\n", b"")
    return encoded + rng.choice(ends)


def exchange(port: int, sent: bytes) -> bytes:
    """Send bytes and return what the service replies until it closes the connection or waits for more."""
    received = bytearray()
    with socket.create_connection(("127.0.0.1", port), timeout=5) as link:
        link.sendall(sent)
        link.settimeout(1.0)
        with suppress(TimeoutError, ConnectionError):
            while piece := link.recv(65_536):
                received += piece
                link.settimeout(0.4)
    return bytes(received)


def parse_statuses(replies: bytes) -> list[int]:
    """Return the status of each final response."""
    statuses = [int(status) for status in re.findall(rb"HTTP/1\.1 ([0-9]{3}) ", replies)]
    return [status for status in statuses if status >= 200]


def list_names(server: Server) -> Iterator[str]:
    """Yield the names of all lists."""
    yield from (row["name"] for row in server.client().all("/lists"))


def test_generated_requests_end_where_the_standard_says(server: Server) -> None:
    """No request is read from the body of another, and none of a connection after a request that is ambiguous."""
    rng, accepted = random.Random(9_112), set[int]()
    for number in range(COUNT):
        outer = build_request(rng, server.key, number)
        inner_body = b'{"name":"inner %d"}' % number
        inner = _head(server.key, _FIRST_LINES[0], [b"Content-Length: %d" % len(inner_body), b"Connection: close"])
        sent = outer + inner + inner_body
        replies = exchange(server.port, sent)
        statuses = parse_statuses(replies)
        assert all(status < 500 or status in (501, 505) for status in statuses), (sent, replies)
        assert len(statuses) <= 2, (sent, replies)
        end = frame(sent)
        if len(statuses) == 2:
            # Blank lines between requests are allowed (section 2.2), and the last request must be read as it was sent.
            assert end is not None, (sent, replies)
            accepted.add(number)
            assert (sent[end:].lstrip(b"\r\n") == inner + inner_body) or statuses[1] >= 400, (sent, replies)
    names = set(list_names(server))
    assert {int(name.removeprefix("inner ")) for name in names if name.startswith("inner ")} <= accepted
    assert len(accepted) > COUNT // 20


def test_the_reading_of_the_standard_is_strict() -> None:
    """The second reading accepts plain requests and rejects what `tests/api/test_http_reading.py` lists."""
    plain = _head("k", _FIRST_LINES[0], [b"Content-Length: 2"]) + b"{}"
    assert frame(plain) == len(plain) == frame(plain + b"x")
    chunked = _head("k", _FIRST_LINES[0], [b"Transfer-Encoding: chunked"]) + b"2;a=b\r\n{}\r\n0\r\n\r\n"
    assert frame(chunked) == len(chunked)
    for line in (b"Content-Length: +2", b"Content-Length: 2, 2", b"X: y\nContent-Length: 2", b"Host: y"):
        assert frame(_head("k", _FIRST_LINES[0], [line, b"Content-Length: 2"]) + b"{}") is None, line
