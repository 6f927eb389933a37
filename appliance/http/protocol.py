"""Parse HTTP/1.1 requests strictly: reject ambiguous and slow ones before Sanic handles them.

Sanic 25.12 accepts more than RFC 9112 allows: chunk sizes such as `0x0d`, any two bytes in place of the CRLF after a
chunk, lengths in digits of other scripts, and two Host lines. If a proxy parses such a request differently, the rest of
it may be taken for another request (request smuggling). A rejected request gets 400 and the connection is closed, so
that nothing after it is read. A request that stalls or arrives too slowly gets 408 (RFC 9110, 15.5.9), so that a client
cannot keep many connections open with a few bytes. Everything else is left to Sanic.
"""

import asyncio
import re
from contextlib import suppress
from typing import Any

from sanic import Request
from sanic.exceptions import BadRequest, BadURL
from sanic.http.constants import Stage
from sanic.http.http1 import HTTP_CONTINUE, Http
from sanic.router import Router
from sanic.server.protocols.http_protocol import HttpProtocol

from appliance.settings import config

# Large enough that an API key that is far too long gets the response for a wrong key, not the one for a large header.
MAX_HEAD_BYTES = 32_768
_LINE_BYTES = 8_192


async def read_as_text(request: Request) -> None:
    """Replace bytes in header values that are not UTF-8: some old programs send them, and no row can store them."""
    if request.head.isascii():
        return
    decoded = [
        (name, value.encode("utf-8", "surrogateescape").decode("utf-8", "replace"))
        for name, value in request.headers.items()
    ]
    request.headers.clear()
    request.headers.extend(decoded)


def is_unread(request: Request) -> bool:
    """Return whether a request is the empty one that Sanic creates if the head of a request could not be parsed."""
    return not request.head


def path_of(request: Request) -> str:
    """Return the path of a request without trailing slashes, also if its head could not be parsed."""
    if is_unread(request) and isinstance(request.stream, Http):
        line = bytes(request.stream.recv_buffer[:_LINE_BYTES]).split(b"\r\n", 1)[0].split(b" ")
        if len(line) > 1:
            return line[1].partition(b"?")[0].decode("latin-1").rstrip("/") or "/"
    return request.path.rstrip("/") or "/"


# The size line of a chunk, with its extensions, which no known client uses.
MAX_CHUNK_LINE_BYTES = 256
# A body of very small chunks takes long to parse for its size. After the first chunks, their average size counts.
_MAX_SMALL_CHUNKS = 1_000
_MIN_AVERAGE_CHUNK_BYTES = 16
# The number of chunks after which other requests get a turn, even if more chunks have arrived.
_CHUNKS_PER_TURN = 50
# As in Apache's mod_reqtimeout: a large body may take long, but a client cannot keep a connection with single bytes.
MIN_BODY_BYTES_PER_SECOND = 500
_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_HOST = rb"(?:\[[0-9A-Fa-f:.]+\]|[0-9A-Za-z!$&'()*+,;=._~%-]+)(?::[0-9]{0,5})?"
# RFC 9112, sections 3 (request line), 3.2 (target, Host), 5 (no space before a colon, no folded lines), 6.1 (`chunked`
# as the only coding) and 6.2 (a single length); CR and LF occur only as the CRLF that ends a line (section 2.2)
_HEAD = re.compile(
    _TOKEN + rb" (?:/|(?i:https?)://" + _HOST + rb"/|\*(?= ))[!-~]* HTTP/1\.[01]"
    rb"(?:\r\n(?:"
    rb"(?i:host):[ \t]*" + _HOST + rb"[ \t]*"
    rb"|(?i:content-length):[ \t]*[0-9]{1,100}[ \t]*"
    rb"|(?i:transfer-encoding):[ \t]*chunked[ \t]*"
    rb"|(?!(?i:host|content-length|transfer-encoding):)" + _TOKEN + rb":[^\r\n\0]*+"
    rb"))*+"
)
_LONE_LINE_FEED = re.compile(rb"(?:^|[^\r])\n")
_HOST_LINE = re.compile(rb"(?i)\r\nhost:")
_CODING_LINE = re.compile(rb"(?i)\r\ntransfer-encoding:")
# RFC 9112, section 7.1: the CRLF that ends the previous chunk or the head, then a size in hexadecimal digits
_CHUNK_LINE = re.compile(rb"\r\n[0-9A-Fa-f]{1,16}(?:;[^\r\n\0]*)?")


class RequestTooSlow(BadRequest):
    """A request that did not arrive in time; as a BadRequest, it makes Sanic ignore the rest of the body."""

    status_code = 408


class StrictHttp(Http):
    """The requests of one connection, parsed strictly."""

    __slots__ = ("_began", "_chunk_count", "_received_before")
    protocol: "StrictProtocol"

    def deadline(self, now: float) -> float | None:
        """Return the time by which more bytes of a request must arrive; None if none are expected.

        Times are in seconds of the event loop. The whole head must arrive within the timeout; a body gets more time at
        `MIN_BODY_BYTES_PER_SECOND`, but never more than the timeout without any bytes.
        """
        protocol = self.protocol
        if self.stage is Stage.REQUEST:
            return self._began + protocol.timeout_seconds
        if not self.request_body:
            return None
        earned = (protocol.received_bytes - self._received_before) / MIN_BODY_BYTES_PER_SECOND
        return min(now, self._began + earned) + protocol.timeout_seconds

    async def http1_request_header(self) -> None:
        """Read and check the head of a request. Raises BadRequest."""
        self._began = asyncio.get_running_loop().time()
        self._chunk_count = 0
        self._received_before = self.protocol.received_bytes - len(self.recv_buffer)
        buffer, searched = self.recv_buffer, 0
        while (end := buffer.find(b"\r\n\r\n", searched)) < 0 and len(buffer) < self.HEADER_MAX_SIZE:
            if _LONE_LINE_FEED.search(buffer, searched):
                # The client may have sent the whole head with bare line feeds, and be waiting for the response.
                raise BadRequest("Bad Request")
            searched = max(0, len(buffer) - 3)
            await self._receive_more()
        # Sanic itself rejects a head that is too long.
        if 0 <= end < self.HEADER_MAX_SIZE and not _is_sound(buffer, end):
            raise BadRequest("Bad Request")
        await super().http1_request_header()  # type: ignore[no-untyped-call]  # untyped in the library

    async def read(self) -> bytes | None:
        """Return the next piece of the body, or None at its end. Raises BadRequest or PayloadTooLarge."""
        if self.request_body == "chunked" and self.request_bytes_left == 0:  # type: ignore[comparison-overlap]  # it is
            await self._check_chunk_line()
        piece: bytes | None = await super().read()
        return piece

    async def _check_chunk_line(self) -> None:
        if self.expecting_continue:
            self.expecting_continue = False
            await self._send(HTTP_CONTINUE)
        is_small = (self.request_bytes or 0) < self._chunk_count * _MIN_AVERAGE_CHUNK_BYTES
        self._chunk_count += 1
        if self._chunk_count % _CHUNKS_PER_TURN == 0:
            await asyncio.sleep(0)
        buffer = self.recv_buffer
        while (end := buffer.find(b"\r\n", 2)) < 0 and len(buffer) <= MAX_CHUNK_LINE_BYTES:
            await self._receive_more()
        is_valid = 0 <= end <= MAX_CHUNK_LINE_BYTES and _CHUNK_LINE.fullmatch(buffer, 0, end)
        if not is_valid or (is_small and self._chunk_count > _MAX_SMALL_CHUNKS):
            self.keep_alive = False
            raise BadRequest("Bad chunked encoding")

    def create_empty_request(self) -> None:
        """Create the empty request for a head that could not be parsed, even if its URL is invalid."""
        with suppress(BadURL):
            super().create_empty_request()
            return
        self.url = None
        super().create_empty_request()

    async def head_response_ignored(self, data: bytes, end_stream: bool) -> None:  # type: ignore[override]  # async
        """Drop the body of a response to HEAD; `async` because Sanic awaits it, although its own method is not."""
        super().head_response_ignored(data, end_stream)


class StrictProtocol(HttpProtocol):
    """A connection whose requests are parsed strictly; `timeout_seconds` is the setting `limits.request_timeout`."""

    HTTP_CLASS = StrictHttp
    __slots__ = ("received_bytes", "timeout_seconds")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Reset the byte count and read the timeout from the settings for a new connection."""
        self.received_bytes = 0
        self.timeout_seconds = config.parse_seconds(self.app.ctx.config.limits.request_timeout)
        super().connection_made(transport)  # type: ignore[no-untyped-call]  # untyped in the library

    def data_received(self, data: bytes) -> None:
        """Count and process received bytes."""
        self.received_bytes += len(data)
        super().data_received(data)

    async def receive_more(self) -> None:
        """Wait for more bytes of a request. Raises RequestTooSlow after its deadline."""
        http: StrictHttp = self._http
        try:
            async with asyncio.timeout_at(http.deadline(asyncio.get_running_loop().time())):
                await super().receive_more()  # type: ignore[no-untyped-call]  # untyped in the library
        except TimeoutError:
            http.keep_alive = False
            raise RequestTooSlow("Request Timeout") from None


def _is_sound(buffer: bytearray, end: int) -> bool:
    """Return whether the head in `buffer[:end]` is valid: its lines, and the number of Host lines.

    HTTP/1.1 requires one Host line; HTTP/1.0 allows at most one, and no chunked body.
    """
    if not _HEAD.fullmatch(buffer, 0, end):
        return False
    hosts = sum(1 for _ in _HOST_LINE.finditer(buffer, 0, end))
    if buffer[: buffer.find(b"\r\n", 0, end + 2)].endswith(b"1.0"):
        return hosts <= 1 and not _CODING_LINE.search(buffer, 0, end)
    return hosts == 1


class SlashRouter(Router):
    """A router that removes all trailing slashes at once; Sanic's router calls itself once for each slash."""

    def resolve(self, path: str, **options: Any) -> Any:
        """Return the route, the handler and the parameters of a path, without regard to trailing slashes."""
        return super().resolve(path.rstrip("/") or "/", **options)
