"""The one process: the only place that knows every door."""

import asyncio
import gc
import logging
import re
import secrets
import signal
import sys
import time
from contextlib import suppress
from typing import Any

from sanic import HTTPResponse, Request, Sanic
from sanic.exceptions import BadRequest, BadURL, PayloadTooLarge, SanicException, ServiceUnavailable
from sanic.http.constants import Stage
from sanic.http.http1 import HTTP_CONTINUE, Http
from sanic.router import Router
from sanic.server.protocols.http_protocol import HttpProtocol

import ui
from appliance.accounts import onboarding
from appliance.api import door as api
from appliance.api import reply
from appliance.core import certificates, client_ip
from appliance.inbound.capture import CaptureServer
from appliance.inbound.feedback import receipts
from appliance.inbound.smtp_listener import Listener
from appliance.jobs.consumer import Works
from appliance.ops.metrics import machine, scrape
from appliance.public import door as public
from appliance.sending.messages import crash_check, retry_bytes
from appliance.settings import config
from appliance.settings import config as configuration
from appliance.settings.schema import Config
from appliance.storage import disk_guard, work
from appliance.storage.disk_guard import DamageWatch
from appliance.storage.open import close_database
from ui import files, guard

# What a request's head says: its path and its headers; `http_reading` refuses the heads that are malformed.

# A credential that is far too long is refused as one that is wrong
HEAD_BYTES = 32_768
# A table of people with everybody chosen posts a few hundred
_MAX_FORM_FIELDS = 5_000
_LINE_BYTES = 8_192


async def read_as_text(request: Request) -> None:
    """Read what is no UTF-8 in a header as the sign for that: old programs send such names, and no row holds them."""
    if request.head.isascii():
        return
    said = [
        (name, value.encode("utf-8", "surrogateescape").decode("utf-8", "replace"))
        for name, value in request.headers.items()
    ]
    request.headers.clear()
    request.headers.extend(said)


def is_unread(request: Request) -> bool:
    """Return whether this stands for a request whose head could not be read: Sanic makes one up for its refusal."""
    return not request.head


def path_of(request: Request) -> str:
    """Return the path as the router reads it, without slashes at its end, also where a request could not be read."""
    if is_unread(request) and isinstance(request.stream, Http):
        line = bytes(request.stream.recv_buffer[:_LINE_BYTES]).split(b"\r\n", 1)[0].split(b" ")
        if len(line) > 1:
            return line[1].partition(b"?")[0].decode("latin-1").rstrip("/") or "/"
    return request.path.rstrip("/") or "/"


# Refuses HTTP/1.1 requests that two programs could read in two ways, before Sanic reads them.
#
# Sanic 25.12 reads more than RFC 9112 allows: chunk sizes such as `0x0d`, any two bytes where CRLF ends a chunk,
# lengths in digits of other scripts, two Host lines. Where a proxy in front reads such a request otherwise, the rest
# of it may be taken for another request (request smuggling). What is refused gets 400 and the connection ends, so
# nothing that follows is read. A request that stalls or trickles in gets 408 (RFC 9110, section 15.5.9), so that
# nobody holds many connections with a few bytes. Everything else is left to Sanic.

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


log = logging.getLogger("campanero")

# Python hands its lock over every 5 ms by default: each database call of a request would wait that long beside a
# thread that composes mail. This costs nothing when idle.
_SWITCH_SECONDS = 0.0005
# So long the end of the service waits for a database that cannot be written; who waits for a lock takes ten more
_WRITABLE_AGAIN_SECONDS = 14.0
# How often a signal is said again until the server heeds it
_BEAT_SECONDS = 0.02
# A browser that was here over https comes by nothing else for a year
_STRICT = "max-age=31536000"
_PAST_READING = 419_430_400  # twice an import


class SlashRouter(Router):
    """Drops all slashes at the end of a path at once: the library drops one a call, until Python gives up."""

    def resolve(self, path: str, **options: Any) -> Any:
        """Return the route of a path, its handler, and the values in the path, as the library does."""
        return super().resolve(path.rstrip("/") or "/", **options)


def build(config: Config) -> "Sanic[Any, Any]":
    """Make the server with every door; nothing is started yet."""
    app: Sanic[Any, Any] = Sanic("campanero", configure_logging=False, router=SlashRouter())
    Http.HEADER_CEILING = HEAD_BYTES  # the library takes no more than half of that, unless told
    app.config.update(
        REQUEST_MAX_SIZE=config.limits.body_bytes,
        REQUEST_MAX_HEADER_SIZE=HEAD_BYTES,
        GRACEFUL_SHUTDOWN_TIMEOUT=5.0,
        ACCESS_LOG=False,
        KEEP_ALIVE_TIMEOUT=60,
        # Slow requests end before (`http_reading`); what is left to these is a handler without an answer
        REQUEST_TIMEOUT=60 + configuration.seconds(config.limits.request_timeout),
        RESPONSE_TIMEOUT=60 + configuration.seconds(config.limits.request_timeout),
        FALLBACK_ERROR_FORMAT="text",
        OAS=False,
    )
    app.ctx.config = config
    app.ctx.stopping = app.ctx.warned = app.ctx.ready = False
    app.ctx.inbound, app.ctx.certificate, app.ctx.works = Listener(config), None, None
    app.ctx.process = secrets.token_hex(8)
    # Never of this machine's own name: a browser would refuse whatever else is developed there
    app.ctx.strict = configuration.is_https(config) and configuration.host(config) not in configuration.LOOPBACK
    api.mount(app)
    public.mount(app)
    ui.mount(app)
    app.exception(Exception)(_fault)
    app.on_request(_note_time, priority=104)
    app.on_request(read_as_text, priority=103)
    app.on_request(_note_client, priority=102)
    app.on_request(_refuse_many_fields, priority=101)
    app.on_request(_refuse_when_stopping, priority=100)
    app.on_response(_mark)  # type: ignore[no-untyped-call]  # untyped in the library
    app.before_server_start(_start)
    app.after_server_start(_ready)
    app.before_server_stop(_drain)
    app.after_server_stop(_stop)
    return app


async def _note_time(request: Request) -> None:
    request.ctx.begun = time.monotonic()


async def _note_client(request: Request) -> None:
    """Note where a request comes from, as every door has to take it: proxies that are trusted say for whom they ask."""
    forwarded, here = request.headers.getall("x-forwarded-for", []), request.app.ctx
    request.ctx.client = client_ip.address(request.ip, forwarded, here.config.network.trusted_proxies)
    if forwarded and not (here.warned or here.config.network.trusted_proxies) and client_ip.is_near(request.ip):
        here.warned = True
        log.warning(
            "%s asks for others and is not in network.trusted_proxies: all of them count as one client, "
            "whom forms send three confirmation mails an hour", request.ip,
        )  # fmt: skip


async def _refuse_many_fields(request: Request) -> None:
    """Raise 413 for a form with more fields than any page has: they are read on the loop, and anybody may send one."""
    kind = request.headers.get("content-type", "").strip().lower()
    if kind.startswith("application/x-www-form-urlencoded") and request.body.count(b"&") >= _MAX_FORM_FIELDS:
        raise PayloadTooLarge("the form has too many fields")


async def _refuse_when_stopping(request: Request) -> HTTPResponse | None:
    """Take nothing new while the service ends, but what recipients ask for: nobody repeats a refusal for them."""
    path = path_of(request)
    if not request.app.ctx.stopping or public.owns(path) or files.owns(path):
        return None
    if _speaks_json(path):
        refused = reply.Fault(503, "unavailable", "the service is shutting down", {"Retry-After": "5"})
        response = reply.fault(request, refused)
    else:
        response = await guard.stopping(request)
    response.headers["Connection"] = "close"
    return response


async def _mark(request: Request, response: HTTPResponse) -> None:
    response.headers["X-Request-Id"] = reply.request_id(request)
    if request.app.ctx.strict:
        response.headers["Strict-Transport-Security"] = _STRICT
    if begun := getattr(request.ctx, "begun", 0.0):
        pattern = request.route.path if request.route is not None else None
        scrape.note_request(request.method, pattern, response.status, time.monotonic() - begun)
    path = path_of(request)
    if path == "/v1" or path.startswith("/v1/"):
        response.headers["X-Api-Version"] = api.API_VERSION
    if api.owns(path) or getattr(request.ctx, "spoke_json", False):
        # What is said of somebody stays nowhere on its way, and is what its type says
        response.headers.setdefault("Cache-Control", "no-store")
        response.headers["X-Content-Type-Options"] = "nosniff"
        if level := getattr(request.ctx, "level", None):
            response.headers.update(level.headers)


async def _fault(request: Request, error: Exception) -> HTTPResponse:
    """Let the door that owns the path say what went wrong."""
    path = path_of(request)
    if isinstance(error, PayloadTooLarge) and is_unread(request):
        error = SanicException("the headers are too large", status_code=431)
    if isinstance(error, PayloadTooLarge) or (isinstance(error, reply.Fault) and error.status == 413):
        _let_the_rest_come(request)
    if isinstance(error, OSError):
        # A file that cannot be written is the same trouble as a row that cannot
        known = disk_guard.storage_error(error)
        error = error if known is None else known if _speaks_json(path) else ServiceUnavailable(known.message)
    if _speaks_json(path) or (request.route is None and _wants_json(request, path)):
        request.ctx.spoke_json = True
        return await api.fault(request, error)
    status = getattr(error, "status_code", None) or 500
    if status >= 500:
        words, about = "request %s %s failed", reply.about(request)
        log.exception(words, about["request_id"], request.path, exc_info=error, extra=about)
    try:
        return public.fault(status) if public.owns(path) else await guard.fault(request, error)
    except Exception:
        # The library would answer 500 without a word in the log
        log.exception("the page that says what went wrong cannot be made")
        return HTTPResponse(f"Error {status}\n", status, content_type="text/plain")


def _speaks_json(path: str) -> bool:
    return api.owns(path) or public.owns_hook(path)


def _wants_json(request: Request, path: str) -> bool:
    """Return whether whoever asks for a path that there is not reads JSON: a program, and no browser.

    Below `/api` it is a program that has the wrong base, unless it asks for HTML.
    """
    kind = request.accept.match("text/html", "application/json", accept_wildcards=False)
    return str(kind.mime) == "application/json" or (not kind and (path == "/api" or path.startswith("/api/")))


def _let_the_rest_come(request: Request) -> None:
    """Read past the end of what is too large, within reason: who only sends until then gets an answer, not a reset."""
    stream: Any = request.stream
    if stream.request_bytes <= _PAST_READING:
        stream.request_bytes = 0


async def _start(app: "Sanic[Any, Any]") -> None:
    sys.setswitchinterval(_SWITCH_SECONDS)
    machine.begin()
    disk_guard.watch(app.ctx.config.data_dir)
    app.ctx.damage = DamageWatch()
    work.start()
    if await work.call(crash_check.is_any):
        found = await work.call(retry_bytes.in_hand)
        doubtful = await asyncio.wrap_future(work.record(receipts.recover, found))
        log.warning("%s messages were in hand when the service last stopped", doubtful)


async def _begin(app: "Sanic[Any, Any]") -> None:
    """Begin what no request waits for: mail that comes in, and all that is done without being asked."""
    loop = asyncio.get_running_loop()
    app.ctx.capture = CaptureServer()
    await app.ctx.capture.start()
    await loop.run_in_executor(None, app.ctx.inbound.start)
    app.ctx.watch = certificates.Watch(app.ctx.certificate, app.ctx.inbound.certificate)
    app.ctx.watch.start()
    works = Works(app.ctx.process)
    await loop.run_in_executor(None, works.start)
    app.ctx.works = works


async def _ready(app: "Sanic[Any, Any]") -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        # Between two runs of the loop its own handlers hear nothing; the interpreter's keep a signal until then
        loop.remove_signal_handler(number)
        signal.signal(number, lambda *_: _told_to_end(loop, app))
    app.ctx.damage.start()
    await _begin(app)
    base = configuration.base_url(app.ctx.config)
    # What was loaded stays; to look through it for garbage would stop all requests for a tenth of a second
    gc.freeze()
    gc.enable()
    token = await work.call(onboarding.setup_token)
    if token is not None:
        print(f"Open {base}/setup/{token} to set up; the link works once", flush=True)
    print(f"Campanero is ready on {configuration.own_url(app.ctx.config)}", flush=True)
    app.ctx.ready = True


def _told_to_end(loop: asyncio.AbstractEventLoop, app: "Sanic[Any, Any]") -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(_end, loop, app)


def _end(loop: asyncio.AbstractEventLoop, app: "Sanic[Any, Any]") -> None:
    """Let the server stop, and see to it that it does: a loop that only runs its start to the end forgets to stop."""
    if app.ctx.stopping:
        return
    if app.ctx.ready:
        app.stop(terminate=False)
    loop.call_later(_BEAT_SECONDS, _end, loop, app)


async def _drain(app: "Sanic[Any, Any]") -> None:
    """New requests get 503 from here on; open SMTP transactions finish, at most 30 s."""
    app.ctx.stopping = True
    begun, loop = time.monotonic(), asyncio.get_running_loop()
    ending = loop.run_in_executor(None, app.ctx.works.stop)
    while not ending.done():
        await asyncio.wait({ending}, timeout=0.5)
        if time.monotonic() > begun + _WRITABLE_AGAIN_SECONDS and disk_guard.unwritable() is not None:
            # What has happened is offered until it is stored. From here on it is in doubt, for the next process
            await loop.run_in_executor(None, work.stop)
            break
    await ending
    log.info("stopped sending after %.1f s", time.monotonic() - begun)


async def _stop(app: "Sanic[Any, Any]") -> None:
    app.ctx.watch.stop()
    await asyncio.get_running_loop().run_in_executor(None, app.ctx.inbound.stop)
    await app.ctx.capture.stop()
    await asyncio.get_running_loop().run_in_executor(None, app.ctx.damage.stop)
    await asyncio.get_running_loop().run_in_executor(None, work.stop)
    close_database()


def serve(config: Config) -> None:
    """Run until SIGTERM or SIGINT; raises OSError if the address is taken."""
    host, _, port = config.listen.rpartition(":")
    app = build(config)
    app.ctx.inbound.bind()
    if config.tls.certificate:
        app.ctx.certificate = certificates.Shown("tls.certificate", config.tls.certificate, config.tls.key, web=True)
    app.run(
        host.strip("[]"), int(port), ssl=app.ctx.certificate and app.ctx.certificate.context,
        protocol=StrictProtocol, single_process=True, access_log=False, motd=False, debug=False,
    )  # fmt: skip
