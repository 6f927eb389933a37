"""Refuses HTTP/1.1 requests that two programs could read in two ways, before Sanic reads them.

Sanic 25.12 reads more than RFC 9112 allows: chunk sizes such as `0x0d`, any two bytes where CRLF ends a chunk, lengths
in digits of other scripts, two Host lines. Where a proxy in front reads such a request otherwise, the rest of it may be
taken for another request (request smuggling). What is refused gets 400 and the connection ends, so nothing that
follows is read. A request that stalls or trickles in gets 408 (RFC 9110, section 15.5.9), so that nobody holds many
connections with a few bytes. Everything else is left to Sanic.
"""

import asyncio
import re
from contextlib import suppress

from sanic.exceptions import BadRequest, BadURL
from sanic.http.constants import Stage
from sanic.http.http1 import HTTP_CONTINUE, Http
from sanic.server.protocols.http_protocol import HttpProtocol

from appliance import config

# Of a chunk's line with its extensions, which nobody uses
MAX_CHUNK_LINE_BYTES = 256
# As Apache's mod_reqtimeout has it, so that a large body may be slow and nobody holds a connection by single bytes
MIN_BODY_BYTES_PER_SECOND = 500
_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_HOST = rb"(?:\[[0-9A-Fa-f:.]+\]|[0-9A-Za-z!$&'()*+,;=._~%-]+)(?::[0-9]{0,5})?"
# RFC 9112, sections 3 (request line), 3.2 (target, Host), 5 (no space before a colon, no line that goes on with the
# next), 6.1 (chunked alone) and 6.2 (one length); each line ends in CRLF, which nothing else holds (section 2.2)
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
# RFC 9112, section 7.1: after the CRLF that ends what came before, a size in hexadecimal digits
_CHUNK_LINE = re.compile(rb"\r\n[0-9A-Fa-f]{1,16}(?:;[^\r\n\0]*)?")


class RequestTooSlow(BadRequest):
    """A request that did not arrive in time. A BadRequest, after which Sanic gives up what is left of a body."""

    status_code = 408


class StrictHttp(Http):
    """The requests of one connection."""

    __slots__ = ("_began", "_received_before")
    protocol: "StrictProtocol"

    def deadline(self, now: float) -> float | None:
        """Return by when more of a request must arrive, in seconds of the event loop; None between two requests."""
        protocol = self.protocol
        if self.stage is Stage.REQUEST:
            return self._began + protocol.patience
        if not self.request_body:
            return None
        earned = (protocol.received - self._received_before) / MIN_BODY_BYTES_PER_SECOND
        return min(now, self._began + earned) + protocol.patience

    async def http1_request_header(self) -> None:
        """Read the head of a request; raises BadRequest."""
        self._began = asyncio.get_running_loop().time()
        self._received_before = self.protocol.received - len(self.recv_buffer)
        buffer, searched = self.recv_buffer, 0
        while (end := buffer.find(b"\r\n\r\n", searched)) < 0 and len(buffer) < self.HEADER_MAX_SIZE:
            if _LONE_LINE_FEED.search(buffer, searched):
                # Its sender may wait for an answer to what has no end here
                raise BadRequest("Bad Request")
            searched = max(0, len(buffer) - 3)
            await self._receive_more()
        # What is too long has its own answer there
        if 0 <= end < self.HEADER_MAX_SIZE and not _is_sound(buffer, end):
            raise BadRequest("Bad Request")
        await super().http1_request_header()  # type: ignore[no-untyped-call]  # untyped in the library

    async def read(self) -> bytes | None:
        """Return the next piece of a body, or None at its end; raises BadRequest and PayloadTooLarge."""
        if self.request_body == "chunked" and self.request_bytes_left == 0:  # type: ignore[comparison-overlap]  # it is
            await self._check_chunk_line()
        piece: bytes | None = await super().read()
        return piece

    async def _check_chunk_line(self) -> None:
        if self.expecting_continue:
            self.expecting_continue = False
            await self._send(HTTP_CONTINUE)
        buffer = self.recv_buffer
        while (end := buffer.find(b"\r\n", 2)) < 0 and len(buffer) <= MAX_CHUNK_LINE_BYTES:
            await self._receive_more()
        if not 0 <= end <= MAX_CHUNK_LINE_BYTES or not _CHUNK_LINE.fullmatch(buffer, 0, end):
            self.keep_alive = False
            raise BadRequest("Bad chunked encoding")

    def create_empty_request(self) -> None:
        """Stand in for a request that could not be read, also where its URL is the reason."""
        with suppress(BadURL):
            super().create_empty_request()
            return
        self.url = None
        super().create_empty_request()

    async def head_response_ignored(self, data: bytes, end_stream: bool) -> None:  # type: ignore[override]  # async
        """Drop the body of an answer to HEAD; Sanic awaits this function and did not declare it `async`."""
        super().head_response_ignored(data, end_stream)


class StrictProtocol(HttpProtocol):
    """A connection whose requests are read strictly; `patience` is `limits.request_timeout` in seconds."""

    HTTP_CLASS = StrictHttp
    __slots__ = ("patience", "received")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin a connection."""
        self.received = 0
        self.patience = config.seconds(self.app.ctx.config.limits.request_timeout)
        super().connection_made(transport)  # type: ignore[no-untyped-call]  # untyped in the library

    def data_received(self, data: bytes) -> None:
        """Take bytes in."""
        self.received += len(data)
        super().data_received(data)

    async def receive_more(self) -> None:
        """Wait for more bytes; raises RequestTooSlow."""
        http: StrictHttp = self._http
        try:
            async with asyncio.timeout_at(http.deadline(asyncio.get_running_loop().time())):
                await super().receive_more()  # type: ignore[no-untyped-call]  # untyped in the library
        except TimeoutError:
            http.keep_alive = False
            raise RequestTooSlow("Request Timeout") from None


def _is_sound(buffer: bytearray, end: int) -> bool:
    """Return whether a head may be read: its lines, one Host (HTTP/1.0: at most one), no chunks in HTTP/1.0."""
    if not _HEAD.fullmatch(buffer, 0, end):
        return False
    hosts = sum(1 for _ in _HOST_LINE.finditer(buffer, 0, end))
    if buffer[: buffer.find(b"\r\n", 0, end + 2)].endswith(b"1.0"):
        return hosts <= 1 and not _CODING_LINE.search(buffer, 0, end)
    return hosts == 1
