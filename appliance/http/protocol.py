"""Parse HTTP/1.1 requests and posted forms strictly: reject ambiguous, slow and large ones before Sanic handles them.

Sanic 25.12 accepts more than RFC 9112 allows: chunk sizes such as `0x0d`, any two bytes in place of the CRLF after a
chunk, lengths in digits of other scripts, and two Host lines. If a proxy parses such a request differently, the rest of
it may be taken for another request (request smuggling). A rejected request gets 400 and the connection is closed, so
that nothing after it is read. A request that stalls or arrives too slowly gets 408 (RFC 9110, 15.5.9), so that a client
cannot keep many connections open with a few bytes. TLS handshakes have a time limit, and few may be under way at once.
Connections are refused while they could use up the file descriptors of the process. Everything else is left to Sanic.
"""

import asyncio
import logging
import re
import resource
import time
from asyncio.sslproto import SSLProtocol
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, cast

from sanic import Request
from sanic.exceptions import BadRequest, BadURL, PayloadTooLarge
from sanic.http.constants import Stage
from sanic.http.http1 import HTTP_CONTINUE, Http
from sanic.request import RequestParameters
from sanic.router import Router
from sanic.server.protocols.http_protocol import HttpProtocol

from appliance import public
from appliance.api import dispatch
from appliance.api.posted_forms import PostedForm, parse_form
from appliance.certificates.challenges import TLS_HELLO_EXTENSION, LiveChallenges
from appliance.core import addresses
from appliance.core.crypto import ServedCertificate
from appliance.settings import config

log = logging.getLogger("campanero")

# Large enough for an API key that is far too long, so that the response is that for a wrong key, not for a large
# header.
MAX_HEAD_BYTES = 32_768
_LINE_BYTES = 8_192
# A browser that visited the service over https uses only https for a year.
_HSTS = "max-age=31536000"


async def read_as_text(request: Request) -> None:
    """Replace bytes in header values that are not valid UTF-8 with U+FFFD, because the database cannot store them."""
    if request.head.isascii():
        return
    decoded = [
        (name, value.encode("utf-8", "surrogateescape").decode("utf-8", "replace"))
        for name, value in request.headers.items()
    ]
    request.headers.clear()
    request.headers.extend(decoded)


def find_client(context: Any, peer: str, forwarded: list[str]) -> str:
    """Return the IP address of a client.

    `context` is `app.ctx`. `peer` is the address of the connection. `forwarded` are the X-Forwarded-For lines, which
    count only if `peer` is a trusted proxy. If no proxy is configured as trusted, the first request through one is
    logged.
    """
    trusted = context.config.network.trusted_proxies
    if forwarded and not (context.warned or trusted) and addresses.is_private_ip(peer):
        context.warned = True
        log.warning(
            "server: %s sends X-Forwarded-For and is not in network.trusted_proxies: all its visitors count as one "
            "client, for which forms send three confirmation emails an hour", peer,
        )  # fmt: skip
    return addresses.find_client_ip(peer, forwarded, trusted)


def common_headers(request_id: str, is_strict: bool) -> dict[str, str]:
    """Return the headers that every response has; `is_strict` adds Strict-Transport-Security (RFC 6797)."""
    return {"X-Request-Id": request_id} | ({"Strict-Transport-Security": _HSTS} if is_strict else {})


def is_unread(request: Request) -> bool:
    """Return whether the head of a request could not be parsed, so that Sanic created an empty request in its place."""
    return not request.head


def path_of(request: Request) -> str:
    """Return the path of a request without trailing slashes, from the raw bytes if the head could not be parsed."""
    if is_unread(request) and isinstance(request.stream, Http):
        line = bytes(request.stream.recv_buffer[:_LINE_BYTES]).split(b"\r\n", 1)[0].split(b" ")
        if len(line) > 1:
            return line[1].partition(b"?")[0].decode("latin-1").rstrip("/") or "/"
    return request.path.rstrip("/") or "/"


# The size line of a chunk, with its extensions, which no known client uses.
MAX_CHUNK_LINE_BYTES = 256
# Parsing very small chunks takes long for few bytes. From the first `_MAX_SMALL_CHUNKS` chunks on, the average size is
# limited.
_MAX_SMALL_CHUNKS = 1_000
_MIN_AVERAGE_CHUNK_BYTES = 16
# After this number of chunks, other requests get a turn, even if more chunks have arrived.
_CHUNKS_PER_TURN = 50
# As in Apache's mod_reqtimeout: a large body may take long, but must not arrive so slowly that it keeps a connection
# open.
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
_HOST_VALUE = re.compile(rb"(?i)\r\nhost:[ \t]*([^ \t\r]+)")
_ABSOLUTE_TARGET = re.compile(rb"[^ ]+ (https?)://([^/]+)", re.IGNORECASE)
_DEFAULT_PORTS = {b"http": b":80", b"https": b":443"}
_CODING_LINE = re.compile(rb"(?i)\r\ntransfer-encoding:")
# RFC 9112, section 7.1: the CRLF that ends the previous chunk or the head, then a size in hexadecimal digits
_CHUNK_LINE = re.compile(rb"\r\n[0-9A-Fa-f]{1,16}(?:;[^\r\n\0]*)?")


# Sending, the database and child processes need file descriptors, too. Without a limit, clients that open connections
# and send nothing would use up all descriptors, and sending would stop.
_MAX_DESCRIPTORS, _RESERVED_DESCRIPTORS = 8_192, 512
# The limit of the process is higher than the number of descriptors for clients, so that clients never reach it.
_MAX_OPEN_FILES = 65_536
# A handshake is a few kilobytes over at most three round trips.
HANDSHAKE_TIMEOUT_SECONDS = 10
_MAX_HANDSHAKES = 1_024
_HANDSHAKE_RECORD = 22  # RFC 8446, 5.1
_REFUSAL = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
_REFUSAL_LOG_SECONDS = 60.0
_next_refusal_log_at = _next_handshake_log_at = 0.0


def raise_descriptor_limit() -> None:
    """Raise the soft limit of open files to `_MAX_OPEN_FILES` if the hard limit allows it; often it is only 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = _MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(_MAX_OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


def _is_reserved(descriptor: int) -> bool:
    """Return whether the descriptor of a new connection is in the range reserved for other parts of the service.

    The system gives out the lowest free number, so a high number means that all lower ones are in use.
    """
    return descriptor >= _count_client_descriptors()


def _count_client_descriptors() -> int:
    """Return the number of descriptors that client connections may use."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = _MAX_DESCRIPTORS if soft == resource.RLIM_INFINITY else min(_MAX_DESCRIPTORS, soft)
    return limit - min(_RESERVED_DESCRIPTORS, limit // 2)


def _log_refusal(connection_count: int) -> None:
    global _next_refusal_log_at
    if time.monotonic() >= _next_refusal_log_at:
        _next_refusal_log_at = time.monotonic() + _REFUSAL_LOG_SECONDS
        log.warning("server: connections are refused, because too many are open connections=%s", connection_count)


class Handshakes:
    """The TLS handshakes in progress on the https listener. Use it only in the event loop of the server.

    This class runs TLS itself, because the event loop reports only finished handshakes. If too many are in progress,
    the oldest is aborted: a real client needs less than a second, so only clients that connect and send nothing are
    affected.
    """

    def __init__(self, certificate: ServedCertificate, challenges: LiveChallenges) -> None:
        self._certificate, self._challenges = certificate, challenges
        self._pending: dict[asyncio.Transport, None] = {}  # the oldest first

    def start(self, transport: asyncio.Transport, protocol: asyncio.Protocol) -> None:
        """Start the handshake of a new TCP connection; after it, `protocol` gets the encrypted connection."""
        if len(self._pending) >= min(_MAX_HANDSHAKES, _count_client_descriptors() // 2):
            oldest = next(iter(self._pending))
            del self._pending[oldest]
            oldest.abort()
            self._log_end()
        self._pending[transport] = None
        if self._challenges.has_tls:
            transport.set_protocol(_HelloReader(transport, partial(self._begin, transport, protocol), self._forget))
        else:
            self._begin(transport, protocol)

    def _begin(self, transport: asyncio.Transport, protocol: asyncio.Protocol, received: bytes = b"") -> None:
        """Start the handshake, of which the bytes `received` have arrived already.

        A CA that validates a host name by TLS-ALPN-01 gets the certificate of its challenge, and the connection is then
        closed.
        """
        context = self._certificate.context
        if TLS_HELLO_EXTENSION in received:
            context, protocol = self._challenges.tls_context(), _ClosingProtocol()
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        waiter.add_done_callback(lambda finished: self._finish(transport, finished))
        tls = SSLProtocol(
            loop, protocol, context, waiter, server_side=True, ssl_handshake_timeout=HANDSHAKE_TIMEOUT_SECONDS
        )
        transport.set_protocol(tls)
        tls.connection_made(transport)
        while received:
            buffer = tls.get_buffer(len(received))
            piece = received[: len(buffer)]
            buffer[: len(piece)] = piece
            tls.buffer_updated(len(piece))
            received = received[len(piece) :]

    def _forget(self, transport: asyncio.Transport) -> None:
        self._pending.pop(transport, None)

    def _finish(self, transport: asyncio.Transport, waiter: "asyncio.Future[None]") -> None:
        self._pending.pop(transport, None)
        if not waiter.cancelled():
            waiter.exception()  # A handshake that fails is not an error of the service, and its connection is closed.

    def _log_end(self) -> None:
        global _next_handshake_log_at
        if time.monotonic() >= _next_handshake_log_at:
            _next_handshake_log_at = time.monotonic() + _REFUSAL_LOG_SECONDS
            log.warning("server: the oldest TLS handshakes are ended, because too many are under way")


# The longest TLS record (RFC 8446, 5.1) with its header. A ClientHello is shorter.
_MAX_RECORD_BYTES, _RECORD_HEADER_BYTES = 16_384 + 5, 5


class _HelloReader(asyncio.Protocol):
    """Reads the first TLS record of a connection, from which the certificate is chosen while a challenge is live.

    `begin` gets the received bytes; `forget` is called if the connection ends earlier.
    """

    def __init__(
        self, transport: asyncio.Transport, begin: Callable[[bytes], None], forget: Callable[[asyncio.Transport], None]
    ) -> None:
        self._transport, self._begin, self._forget = transport, begin, forget
        self._received = b""
        self._timer = asyncio.get_running_loop().call_later(HANDSHAKE_TIMEOUT_SECONDS, transport.abort)

    def data_received(self, data: bytes) -> None:
        """Pass the bytes to `begin` once the whole record has arrived, or at once if they are not a TLS handshake."""
        self._received += data
        length = int.from_bytes(self._received[3:_RECORD_HEADER_BYTES], "big") + _RECORD_HEADER_BYTES
        is_short = len(self._received) < _RECORD_HEADER_BYTES or len(self._received) < min(length, _MAX_RECORD_BYTES)
        if is_short and self._received[0] == _HANDSHAKE_RECORD:
            return
        self._timer.cancel()
        # The transport chooses its way of reading by the type of its protocol, at the moment when it starts reading.
        self._transport.pause_reading()
        self._begin(self._received)
        self._transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the connection from the pending handshakes."""
        self._timer.cancel()
        self._forget(self._transport)


class _ClosingProtocol(asyncio.Protocol):
    """Closes a connection at once: a CA that validates over TLS sends nothing after the handshake (RFC 8737)."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


class RequestTooSlow(BadRequest):
    """A request that did not arrive in time (status 408).

    It is a BadRequest so that Sanic ignores the rest of the body.
    """

    status_code = 408


class StrictHttp(Http):
    """The requests of one connection, parsed strictly."""

    __slots__ = ("_chunk_count", "_received_before", "_started_at")
    protocol: "StrictProtocol"

    def deadline(self, now: float) -> float | None:
        """Return the time by which more bytes of a request must arrive; None if none are expected.

        Times are in seconds of the event loop's clock. The whole head must arrive within the timeout. A body gets one
        second more for each `MIN_BODY_BYTES_PER_SECOND` received bytes, but no pause may be longer than the timeout.
        """
        protocol = self.protocol
        if self.stage is Stage.REQUEST:
            return self._started_at + protocol.timeout_seconds
        if not self.request_body:
            return None
        earned = (protocol.received_bytes - self._received_before) / MIN_BODY_BYTES_PER_SECOND
        return min(now, self._started_at + earned) + protocol.timeout_seconds

    async def http1_request_header(self) -> None:
        """Read and check the head of a request. Raises BadRequest."""
        self._started_at = asyncio.get_running_loop().time()
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
        if 0 <= end < self.HEADER_MAX_SIZE and not is_sound_head(buffer, end):
            raise BadRequest("Bad Request")
        await super().http1_request_header()  # type: ignore[no-untyped-call]  # untyped in the library

    async def read(self) -> bytes | None:
        """Return the next piece of the body, or None at its end. Raises BadRequest or PayloadTooLarge."""
        if self.request_body == "chunked" and self.request_bytes_left == 0:  # type: ignore[comparison-overlap]  # Sanic's value for chunks
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
    """A connection whose requests are parsed strictly; `timeout_seconds` is the setting `limits.request_timeout`.

    With a certificate, `connection_made` is called twice: for the TCP connection, and after the TLS handshake for the
    encrypted one.
    """

    HTTP_CLASS = StrictHttp
    __slots__ = ("is_refused", "received_bytes", "timeout_seconds")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the TLS handshake or the first request of a new connection, or refuse the connection.

        A refused connection gets a 503 response on the http listener, and none on the https listener.
        """
        handshakes: Handshakes | None = self.app.ctx.handshakes
        is_encrypted = transport.get_extra_info("sslcontext") is not None
        self.is_refused = not is_encrypted and _is_reserved(transport.get_extra_info("socket").fileno())
        if self.is_refused:
            _log_refusal(len(self.connections))
            refused = cast(asyncio.Transport, transport)
            if handshakes is None:
                refused.write(_REFUSAL)
            refused.close()
            return
        if handshakes is not None and not is_encrypted:
            handshakes.start(cast(asyncio.Transport, transport), self)
            return
        self.received_bytes = 0
        self.timeout_seconds = config.parse_seconds(self.app.ctx.config.limits.request_timeout)
        super().connection_made(transport)  # type: ignore[no-untyped-call]  # untyped in the library

    def connection_lost(self, exc: Exception | None) -> None:
        """Clean up after a connection; a refused one has nothing to clean up."""
        if not self.is_refused:
            super().connection_lost(exc)  # type: ignore[no-untyped-call]  # untyped in the library

    def data_received(self, data: bytes) -> None:
        """Add to `received_bytes`, from which the body's deadline is computed, and pass the bytes to Sanic.

        The bytes of a refused connection are dropped.
        """
        if self.is_refused:
            return
        self.received_bytes += len(data)
        super().data_received(data)

    async def receive_more(self) -> None:
        """Wait for more bytes of a request. Raises RequestTooSlow after its deadline."""
        http: StrictHttp = self._http
        deadline = http.deadline(self.loop.time())
        if deadline is None:
            await super().receive_more()  # type: ignore[no-untyped-call]  # untyped in the library
            return
        try:
            async with asyncio.timeout_at(deadline):
                await super().receive_more()  # type: ignore[no-untyped-call]  # untyped in the library
        except TimeoutError:
            http.keep_alive = False
            raise RequestTooSlow("Request Timeout") from None


def is_sound_head(buffer: bytes | bytearray, end: int) -> bool:
    """Return whether the head in `buffer[:end]` is valid by RFC 9112, including the number of Host lines.

    HTTP/1.1 requires one Host line; HTTP/1.0 allows at most one, and no chunked body. A request target with a host
    needs a Host line with the same host: by section 3.2.2 the host of the target counts, but all code here reads the
    Host line.
    """
    if not _HEAD.fullmatch(buffer, 0, end) or not _names_one_host(buffer, end):
        return False
    hosts = sum(1 for _ in _HOST_LINE.finditer(buffer, 0, end))
    if buffer[: buffer.find(b"\r\n", 0, end + 2)].endswith(b"1.0"):
        return hosts <= 1 and not _CODING_LINE.search(buffer, 0, end)
    return hosts == 1


def _names_one_host(buffer: bytes | bytearray, end: int) -> bool:
    """Return whether the request target has no host, or the same host and port as the Host line."""
    target = _ABSOLUTE_TARGET.match(buffer, 0, end)
    if target is None:
        return True
    line, port = _HOST_VALUE.search(buffer, 0, end), _DEFAULT_PORTS[target[1].lower()]
    return line is not None and _normalize_host(line[1], port) == _normalize_host(target[2], port)


def _normalize_host(host: bytes, default_port: bytes) -> bytes:
    """Return a host with its port in lower case, without the default port of the scheme (RFC 3986, section 6.2.3)."""
    return host.lower().removesuffix(default_port).removesuffix(b":")


class SlashRouter(Router):
    """A router that removes all trailing slashes at once; Sanic's router calls itself once for each slash."""

    def resolve(self, path: str, **options: Any) -> Any:
        """Return the route, the handler and the parameters of a path, without regard to trailing slashes."""
        return super().resolve(path.rstrip("/") or "/", **options)


# A longer form is parsed in a thread: 2 MB of percent-encoded text take 0.2 s.
_MAX_INLINE_BYTES = 65_536


class FormRequest(Request):
    """A request that parses its posted form with `parse_form`, at most once."""

    __slots__ = ("_posted",)

    def get_form(self, keep_blank_values: bool = False) -> RequestParameters:
        """Return the fields of the form, without empty values unless `keep_blank_values`.

        Raises the exceptions of `parse_form`.
        """
        posted = self.parse_posted()
        fields = {
            name: filled_values
            for name, values in posted.fields.items()
            if (filled_values := [value for value in values if value or keep_blank_values])
        }
        self.parsed_form, self.parsed_files = RequestParameters(fields), RequestParameters(posted.files)
        return self.parsed_form

    def parse_posted(self) -> PostedForm:
        """Return the form of the body, from the cache after the first call. Raises the exceptions of `parse_form`."""
        if not hasattr(self, "_posted"):
            self._posted = parse_form(self.headers.get("content-type", ""), self.body)
        return self._posted


async def read_large_form(request: FormRequest) -> None:
    """Parse a form of more than `_MAX_INLINE_BYTES` in a thread before its handler runs; the API parses its own bodies.

    Raises PayloadTooLarge for such a form on a page for recipients, and the exceptions of `parse_form`.
    """
    path = path_of(request)
    if len(request.body) <= _MAX_INLINE_BYTES or dispatch.owns_path(path):
        return
    if public.owns_path(path):
        raise PayloadTooLarge("the form is too large")
    await asyncio.to_thread(request.parse_posted)
