"""Build and run the HTTP server with its routes, its middleware and the services that start and stop with it.

The usual requests for tracked links and tracking pixels are answered without Sanic, which would take most of their
time. These are requests that arrive in one piece, alone, without a body and without unusual headers. Sanic handles
every other request, and sends every response except the redirect and the pixel. The responses equal those of
`public/clicks.py`, byte for byte (`tests/journeys/test_tracking_requests.py`).
"""

import asyncio
import gc
import logging
import re
import secrets
import signal
import sys
import time
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from sanic import HTTPResponse, Request, Sanic
from sanic.exceptions import PayloadTooLarge, SanicException, ServiceUnavailable
from sanic.headers import format_http1_response
from sanic.http.http1 import Http

import ui
from appliance import public
from appliance.accounts import settings, users
from appliance.accounts.public_urls import HostTable
from appliance.api import dispatch, doors, mcp
from appliance.api import http as api_http
from appliance.campaigns import send_times, states
from appliance.certificates import store
from appliance.certificates.challenges import HTTP_CONTENT_TYPE, LiveChallenges
from appliance.certificates.issuer import CertificateIssuer, ChallengeListeners
from appliance.core import crypto, executable, validation
from appliance.core.errors import Unavailable
from appliance.http.account_hosts import check_host, is_account_host, keep_fresh
from appliance.http.http_listener import HttpListener
from appliance.http.protocol import (
    MAX_HEAD_BYTES,
    FormRequest,
    Handshakes,
    SlashRouter,
    StrictProtocol,
    common_headers,
    find_client,
    is_sound_head,
    is_unread,
    path_of,
    raise_descriptor_limit,
    read_as_text,
    read_large_form,
)
from appliance.inbound import delivery_reports
from appliance.inbound.smtp_servers import CaptureServer, SmtpListener
from appliance.inbound.submission import SubmissionServer
from appliance.jobs import BackgroundWork, owner_notices
from appliance.ops import litestream, metrics
from appliance.ops.fencing import keeper, mirror
from appliance.public import clicks
from appliance.sending.messages import queue, retries
from appliance.sending.messages.links import LinkRequest, TrackedMessage
from appliance.settings import config as settings_config
from appliance.settings.schema import Config
from appliance.storage import disk_guard, transactions
from appliance.storage.database import close_database
from appliance.storage.disk_guard import DamageWatch
from ui import documentation, guard, static_files

log = logging.getLogger("campanero")

# By default Python switches threads every 5 ms: each database call of a request would wait that long for a thread that
# renders mail. A shorter interval costs nothing when idle.
_SWITCH_SECONDS = 0.0005
# Longest time that the shutdown waits for a database that cannot be written; a statement that waits for a lock adds ten
# seconds.
_MAX_STORAGE_WAIT_SECONDS = 14.0
# Interval at which the stop of Sanic is requested again until it begins.
_STOP_RETRY_SECONDS = 0.02
_QUALITY = re.compile(r"0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?")
_MAX_ACCEPT_ITEMS = 100
_MAX_DISCARDED_BYTES = 419_430_400  # twice the default size limit of an import file


def build(config: Config) -> "Sanic[Any, Any]":
    """Return the configured Sanic app with all routes and middleware; the services start with the server."""
    app = mount_routes()
    # `protocol.py` ends slow requests before; these timeouts only end a handler that does not respond.
    timeout_seconds = 60 + settings_config.parse_seconds(config.limits.request_timeout)
    app.config.update(
        REQUEST_MAX_SIZE=config.limits.body_bytes, REQUEST_TIMEOUT=timeout_seconds, RESPONSE_TIMEOUT=timeout_seconds
    )
    app.ctx.config = config
    app.ctx.stopping = app.ctx.warned = app.ctx.ready = False
    app.ctx.inbound, app.ctx.submission = SmtpListener(config), SubmissionServer(config)
    app.ctx.certificate, app.ctx.works = None, None
    app.ctx.handshakes = app.ctx.lease = app.ctx.mirror = None
    app.ctx.challenges, app.ctx.hosts = LiveChallenges(), HostTable()
    app.ctx.http_listener = app.ctx.issuer = None
    if store.uses_auto(config):
        base = settings_config.base_url(config)
        app.ctx.http_listener = HttpListener(config.acme.http_listen, base, app.ctx.challenges, app.ctx.hosts)
    app.ctx.process = secrets.token_hex(8)
    # For localhost, Strict-Transport-Security would also make browsers refuse http to other programs there.
    app.ctx.strict = (
        settings_config.is_https(config) and settings_config.base_host(config) not in settings_config.LOOPBACK
    )
    return app


def mount_routes() -> "Sanic[Any, Any]":
    """Return a Sanic app with all routes and middleware, which do not depend on the configuration."""
    app: Sanic[Any, Any] = Sanic("campanero", configure_logging=False, router=SlashRouter(), request_class=FormRequest)
    Http.HEADER_CEILING = MAX_HEAD_BYTES  # Sanic's default is half of that.
    app.config.update(
        REQUEST_MAX_HEADER_SIZE=MAX_HEAD_BYTES,
        GRACEFUL_SHUTDOWN_TIMEOUT=5.0,
        ACCESS_LOG=False,
        KEEP_ALIVE_TIMEOUT=60,
        FALLBACK_ERROR_FORMAT="text",
        OAS=False,
    )
    dispatch.mount(app)
    mcp.mount(app, documentation.list_guide_texts())
    public.mount(app)
    ui.mount(app)
    app.exception(Exception)(_handle_error)
    app.on_request(_set_start_time, priority=105)
    app.on_request(read_as_text, priority=104)
    app.on_request(check_host, priority=103)
    app.on_request(_set_client, priority=102)
    app.on_request(read_large_form, priority=101)
    app.on_request(_refuse_when_stopping, priority=100)
    app.on_request(_answer_challenge, priority=99)
    app.on_response(_add_headers)  # type: ignore[no-untyped-call]  # untyped in the library
    app.before_server_start(_start)
    app.after_server_start(_ready)
    app.before_server_stop(_drain)
    app.after_server_stop(_stop)
    return app


async def _set_start_time(request: Request) -> None:
    request.ctx.begun = time.monotonic()


async def _set_client(request: Request) -> None:
    """Set the IP address of the client as `request.ctx.client`."""
    forwarded = request.headers.getall("x-forwarded-for", [])
    request.ctx.client = find_client(request.app.ctx, request.ip, forwarded)


async def _refuse_when_stopping(request: Request) -> HTTPResponse | None:
    """Return a 503 response during shutdown, else None.

    Static files are still served, and so are requests of recipients, who would not repeat them.
    """
    path = path_of(request)
    if not request.app.ctx.stopping or public.owns_path(path) or static_files.is_static_path(path):
        return None
    if _speaks_json(path):
        refused = api_http.ApiError(503, "unavailable", "The service is shutting down.", {"Retry-After": "5"})
        response = await dispatch.handle_error(request, refused)
    else:
        response = await guard.render_stopping(request)
    response.headers["Connection"] = "close"
    return response


async def _answer_challenge(request: Request) -> HTTPResponse | None:
    """Return the response to a live HTTP-01 challenge (RFC 8555, 8.3), whose request a proxy passed on, else None."""
    content = request.app.ctx.challenges.find_response(path_of(request))
    return HTTPResponse(content, content_type=HTTP_CONTENT_TYPE) if content is not None else None


async def _add_headers(request: Request, response: HTTPResponse) -> None:
    response.headers.update(common_headers(api_http.get_request_id(request), request.app.ctx.strict))
    if started_at := getattr(request.ctx, "begun", 0.0):
        pattern = request.route.path if request.route is not None else None
        metrics.record_request(request.method, pattern, response.status, time.monotonic() - started_at)
    path = path_of(request)
    if path == "/v1" or path.startswith("/v1/"):
        response.headers["X-Api-Version"] = dispatch.API_VERSION
    if dispatch.owns_path(path) or getattr(request.ctx, "spoke_json", False):
        # Personal data must not be cached by proxies or browsers, and browsers must not guess its type.
        response.headers.setdefault("Cache-Control", "no-store")
        response.headers["X-Content-Type-Options"] = "nosniff"
        if scopes := getattr(request.ctx, "scopes", None):
            response.headers["X-Scopes"] = scopes
        if level := getattr(request.ctx, "level", None):
            response.headers.update(level.headers)


async def _handle_error(request: Request, error: Exception) -> HTTPResponse:
    """Return the error response in the form of the part that owns the path: API, recipients' pages or UI.

    A path without a route gets JSON if the client expects it.
    """
    path = path_of(request)
    if isinstance(error, PayloadTooLarge) and is_unread(request):
        error = SanicException("the headers are too large", status_code=431)
    is_too_large = isinstance(error, PayloadTooLarge) or (isinstance(error, api_http.ApiError) and error.status == 413)
    if is_too_large or _may_have_large_body(request):
        _discard_rest_of_body(request)
    if isinstance(error, OSError):
        # A file that cannot be written gets the same response as a database that cannot be written.
        storage_error = disk_guard.to_storage_error(error)
        error = (
            error
            if storage_error is None
            else storage_error
            if _speaks_json(path)
            else ServiceUnavailable(storage_error.message)
        )
    if _speaks_json(path) or (request.route is None and _wants_json(request, path) and not is_account_host(request)):
        request.ctx.spoke_json = True
        return await dispatch.handle_error(request, error)
    status = 503 if isinstance(error, Unavailable) else getattr(error, "status_code", None) or 500
    if status >= 500 and not isinstance(error, Unavailable):  # the storage package logs the reason of Unavailable
        template, context = "request %s %s failed", api_http.log_context(request)
        log.exception(template, context["request_id"], request.path, exc_info=error, extra=context)
    try:
        is_public = public.owns_path(path) or is_account_host(request)
        return public.error_page(status) if is_public else await guard.handle_exception(request, error)
    except Exception:
        # Sanic would respond with 500 without logging the error.
        log.exception("server: rendering the error page failed")
        return HTTPResponse(f"Error {status}\n", status, content_type="text/plain")


def _speaks_json(path: str) -> bool:
    return dispatch.owns_path(path) or public.owns_webhook_path(path)


def _wants_json(request: Request, path: str) -> bool:
    """Return whether the client of a path without a route expects JSON: its Accept header prefers JSON to HTML.

    For a path below `/api`, a header that does not name HTML is enough: the client is probably a program with a wrong
    base URL.
    """
    accept = request.headers.get("accept", "")
    json, html = _find_quality(accept, "application/json"), _find_quality(accept, "text/html")
    return json > html or (not html and (path == "/api" or path.startswith("/api/")))


def _find_quality(accept: str, media_type: str) -> float:
    """Return the quality that an Accept header gives to a media type it names (RFC 9110, 12.5.1), or 0 if it does not.

    Items that cannot be parsed, for which `request.accept` of Sanic raises exceptions, and those after the first
    `_MAX_ACCEPT_ITEMS` are ignored.
    """
    quality = 0.0
    for item in accept.split(",", _MAX_ACCEPT_ITEMS)[:_MAX_ACCEPT_ITEMS]:
        name, *parameters = (part.strip().lower() for part in item.split(";"))
        if name == media_type:
            weight = next((text[2:] for text in parameters if text.startswith("q=")), "1")
            quality = max(quality, float(weight) if _QUALITY.fullmatch(weight) else 0.0)
    return quality


def _may_have_large_body(request: Request) -> bool:
    """Return whether the endpoint of a request reads large bodies, so that an error may precede the end of the body."""
    route = getattr(request.route.ctx, "route", None) if request.route else None
    mounted = doors.find_route(request)
    return (route is not None and route.large_body is not None) or (mounted is not None and mounted.route.max_bytes > 0)


def _discard_rest_of_body(request: Request) -> None:
    """Let Sanic read and drop the rest of a body that is too large, so that the client gets a response, not a reset.

    A body of more than `_MAX_DISCARDED_BYTES` is not read.
    """
    stream: Any = request.stream
    if stream.request_bytes <= _MAX_DISCARDED_BYTES:
        stream.request_bytes = 0


async def _start(app: "Sanic[Any, Any]") -> None:
    sys.setswitchinterval(_SWITCH_SECONDS)
    validation.build_type_info()  # no other thread uses a Struct yet
    metrics.set_start_time()
    disk_guard.watch(app.ctx.config.data_dir)
    app.ctx.damage = DamageWatch()
    transactions.start(before_write=queue.settle_log)
    if not await transactions.fetch(queue.is_log_empty):
        await asyncio.wrap_future(transactions.submit_essential(queue.settle_log))
    if await transactions.fetch(retries.has_interrupted):
        interrupted = await transactions.fetch(retries.find_interrupted)
        uncertain_count = await asyncio.wrap_future(
            transactions.submit_essential(delivery_reports.recover_with_receipts, interrupted)
        )
        log.warning("server: %s messages were being sent when the service last stopped", uncertain_count)
    if await transactions.fetch(send_times.list_overdue):
        await asyncio.wrap_future(transactions.submit_essential(states.pause_overdue))
    await transactions.fetch(app.ctx.hosts.refresh)
    app.add_task(keep_fresh(app))


async def _start_background(app: "Sanic[Any, Any]") -> None:
    """Start what requests do not need: SMTP servers, certificate threads, lease, mirror and background jobs."""
    loop = asyncio.get_running_loop()
    app.ctx.capture = CaptureServer()
    await loop.run_in_executor(None, app.ctx.capture.start)
    await loop.run_in_executor(None, app.ctx.inbound.start)
    await loop.run_in_executor(None, app.ctx.submission.start)
    app.ctx.watch = crypto.CertificateWatcher(
        app.ctx.certificate, app.ctx.inbound.certificate, app.ctx.submission.certificate
    )
    app.ctx.watch.start()
    if app.ctx.http_listener is not None:
        await app.ctx.http_listener.start()
        listeners = ChallengeListeners(app.ctx.http_listener.is_bound, app.ctx.handshakes is not None)
        app.ctx.issuer = CertificateIssuer(
            app.ctx.config, app.ctx.challenges, listeners, owner_notices.report_certificate, app.ctx.hosts.list_names,
            app.ctx.certificate if app.ctx.config.tls.certificate == settings_config.AUTO else None,
        )  # fmt: skip
        app.ctx.issuer.start()
    if app.ctx.lease is not None:
        app.ctx.lease.start()
    if app.ctx.mirror is not None:
        app.ctx.mirror.start()
    works = BackgroundWork(app.ctx.process)
    await loop.run_in_executor(None, works.start)
    app.ctx.works = works


async def _ready(app: "Sanic[Any, Any]") -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        # Signal handlers of the event loop miss signals while the loop is not running; those of the interpreter do not.
        loop.remove_signal_handler(number)
        signal.signal(number, lambda *_: _on_signal(loop, app))
    app.ctx.damage.start()
    await _start_background(app)
    base = settings_config.base_url(app.ctx.config)
    # Objects of loaded modules are never freed, and each full garbage collection would stop all requests for a tenth of
    # a second to check them.
    gc.freeze()
    gc.enable()
    token = await transactions.fetch(users.setup_token)
    if token is not None:
        print(f"Open {base}/setup/{token} to set up; the link works once", flush=True)
    print(f"Campanero is ready on {settings_config.listen_url(app.ctx.config)}", flush=True)
    app.ctx.ready = True


def _on_signal(loop: asyncio.AbstractEventLoop, app: "Sanic[Any, Any]") -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(_request_stop, loop, app)


def _request_stop(loop: asyncio.AbstractEventLoop, app: "Sanic[Any, Any]") -> None:
    """Stop the server; repeat this until the shutdown begins, because Sanic ignores a stop during its start."""
    if app.ctx.stopping:
        return
    if app.ctx.ready:
        app.stop(terminate=False)
    loop.call_later(_STOP_RETRY_SECONDS, _request_stop, loop, app)


async def _drain(app: "Sanic[Any, Any]") -> None:
    """Begin the shutdown: refuse new requests with 503, stop the background jobs, and finish open SMTP transactions.

    It takes at most 30 s. If the database cannot be written for `_MAX_STORAGE_WAIT_SECONDS`, the writer is stopped, and
    outcomes that are not stored yet are left to the next process.
    """
    app.ctx.stopping = True
    # A program that got no reply to an email that it submitted sends it again; its Message-ID identifies the
    # repetition.
    await asyncio.get_running_loop().run_in_executor(None, app.ctx.submission.stop)
    started, loop = time.monotonic(), asyncio.get_running_loop()
    executable.kill_awaited_children()
    ending = loop.run_in_executor(None, app.ctx.works.stop)
    while not ending.done():
        await asyncio.wait({ending}, timeout=0.5)
        if time.monotonic() > started + _MAX_STORAGE_WAIT_SECONDS and disk_guard.write_blocker() is not None:
            # Until now, storing the outcomes of messages was retried. The next process decides about messages without a
            # stored outcome.
            await loop.run_in_executor(None, transactions.stop)
            break
    await ending
    if app.ctx.lease is not None:
        await loop.run_in_executor(None, app.ctx.lease.stop)
    if app.ctx.mirror is not None:
        await loop.run_in_executor(None, app.ctx.mirror.stop)
    log.info("server: sending stopped seconds=%.1f", time.monotonic() - started)


async def _stop(app: "Sanic[Any, Any]") -> None:
    app.ctx.watch.stop()
    if app.ctx.issuer is not None:
        app.ctx.http_listener.stop()
        await asyncio.get_running_loop().run_in_executor(None, app.ctx.issuer.stop)
    await asyncio.get_running_loop().run_in_executor(None, app.ctx.inbound.stop)
    await asyncio.get_running_loop().run_in_executor(None, app.ctx.capture.stop)
    await asyncio.get_running_loop().run_in_executor(None, app.ctx.damage.stop)
    await asyncio.get_running_loop().run_in_executor(None, transactions.stop)
    close_database()


def _write_heartbeat() -> None:
    """Write the heartbeat row if Litestream is used; from it a standby computes how far it is behind."""
    if litestream.is_used():
        transactions.submit_record(settings.write_heartbeat)


def serve(config: Config) -> None:
    """Run the service until SIGTERM or SIGINT. Raises OSError if an address or a certificate cannot be used."""
    host, _, port = config.listen.rpartition(":")
    raise_descriptor_limit()
    app = build(config)
    app.ctx.lease = keeper.open_keeper(Path(config.data_dir), _write_heartbeat)
    app.ctx.mirror = mirror.open_mirror(Path(config.data_dir))
    store.prepare(config)
    if app.ctx.http_listener is not None:
        app.ctx.http_listener.bind()
    app.ctx.inbound.bind()
    app.ctx.submission.bind()
    app.ctx.certificate = store.load_served(config, "tls.certificate", is_web=True)
    if app.ctx.certificate is not None:
        app.ctx.handshakes = Handshakes(app.ctx.certificate, app.ctx.challenges)
    app.run(
        host.strip("[]"), int(port), protocol=TrackingProtocol, single_process=True, access_log=False, motd=False,
        debug=False,
    )  # fmt: skip


_START = (b"GET /c/", b"GET /o/")
_END = b"\r\n\r\n"
_REQUEST_LINE = re.compile(rb"GET /([co])/([A-Za-z0-9_.-]+) HTTP/1\.1\r\n")
# Headers of a request that Sanic has to read.
_UNUSUAL_HEADERS = frozenset({"content-length", "transfer-encoding", "expect", "upgrade"})


class TrackingRequest(NamedTuple):
    """A request for a tracked link or pixel: its headers by lower-case name, and all values of X-Forwarded-For."""

    link: LinkRequest
    headers: dict[str, str]
    forwarded: list[str]


def read_request(data: bytes) -> TrackingRequest | None:
    """Return the request in some received bytes; None if Sanic must handle the request, or if its token is invalid."""
    end, match = len(data) - len(_END), _REQUEST_LINE.match(data)
    if match is None or data.find(_END) != end or end >= MAX_HEAD_BYTES or not data.isascii():
        return None
    if not is_sound_head(data, end):
        return None
    token = match[2].decode()
    link = clicks.read_link(token) if match[1] == b"c" else clicks.read_pixel(token)
    if link is None:
        return None
    headers: dict[str, str] = {}
    forwarded = []
    for line in data[match.end() : end].decode().split("\r\n"):
        name, _, value = line.partition(":")
        name, value = name.lower(), value.lstrip()
        if name in _UNUSUAL_HEADERS or (name == "connection" and value.lower() != "keep-alive"):
            return None
        if name == "x-forwarded-for":
            forwarded.append(value)
        headers.setdefault(name, value)
    return TrackingRequest(link, headers, forwarded)


class TrackingProtocol(StrictProtocol):
    """A connection that answers the usual requests for tracked links and pixels without Sanic (`read_request`)."""

    __slots__ = ("_is_answering",)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Initialize the state of the connection; `_http` is None until Sanic sets it."""
        self._is_answering, self._http = False, None
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Respond to a request for a tracked link or pixel, and pass everything else to Sanic."""
        if data.startswith(_START) and self._is_between_requests():
            request = read_request(data)
            if request is not None:
                self._begin(request, data)
                return
        super().data_received(data)

    def close_if_idle(self) -> bool:
        """Close the connection unless a request is being answered; return whether it was closed."""
        return False if self._is_answering else bool(super().close_if_idle())

    def _is_between_requests(self) -> bool:
        """Return whether Sanic has no request and no byte of a next one, and the response can be written at once."""
        if self.is_refused or self._http is None or self.recv_buffer or not self._can_write.is_set():
            return False
        # Sanic sets `request` to None only after it has read the whole body.
        return self._http.request is None

    def _begin(self, request: TrackingRequest, data: bytes) -> None:
        assert self.transport is not None and self.conn_info is not None  # set when the connection was made
        context, started_at = self.app.ctx, time.monotonic()
        self._time, self._is_answering = started_at, True
        # The next request waits until this one is answered.
        self.transport.pause_reading()
        client = find_client(context, self.conn_info.client_ip, request.forwarded)
        hit_request = clicks.build_hit_request(request.link, "GET", client, request.headers)
        host = context.hosts.find(request.headers.get("host"))
        account_id = None if host is None else host.account_id
        stored = clicks.get_recorder(context).record(request.link, hit_request, account_id)
        stored.add_done_callback(partial(self._answer, request.link, data, started_at))

    def _answer(
        self, link: LinkRequest, data: bytes, started_at: float, stored: "asyncio.Future[TrackedMessage | None]"
    ) -> None:
        """Send the redirect or the pixel. Without a message, or a URL for a link, Sanic gets the request instead."""
        self._is_answering = False
        message = stored.result() if stored.exception() is None else None
        if self.transport is None or self.transport.is_closing():
            return
        self.transport.resume_reading()
        if message is None or (link.number is not None and message.url is None):
            super().data_received(data)
            return
        request_id = secrets.token_hex(8).encode()
        if link.number is None:
            status, route = 200, "/o/<token:str>"
            response = _prepare_pixel(self.app.ctx.strict) % (request_id, clicks.PIXEL)
        else:
            status, route = 302, "/c/<token:str>"
            response = _prepare_redirect(self.app.ctx.strict) % (str(message.url).encode(), request_id)
        self.transport.write(response)
        self._time = time.monotonic()
        metrics.record_request("GET", route, status, self._time - started_at)


@cache
def _prepare_redirect(is_strict: bool) -> bytes:
    """Return the bytes of the response to a click, with `%b` for the URL, then `%b` for the id of the request."""
    return _prepare(clicks.redirect_response("%b"), is_strict)


@cache
def _prepare_pixel(is_strict: bool) -> bytes:
    """Return the bytes of the response to an open, with `%b` for the id of the request, then `%b` for the picture."""
    return _prepare(clicks.pixel_response(), is_strict) + b"%b"


def _prepare(response: HTTPResponse, is_strict: bool) -> bytes:
    """Return the head that Sanic would send for a response, with `%b` in place of the id of the request."""
    headers = common_headers("%b", is_strict) | {
        "content-length": str(len(response.body or b"")),
        "connection": "keep-alive",
    }
    response.headers.update(headers)
    return format_http1_response(response.status, response.processed_headers)
