"""Respond to requests for tracked links and tracking pixels before Sanic, whose handling takes most of their time.

Only a plain GET request is handled here: it must arrive complete in one piece, without a body and without headers that
Sanic has to interpret. Every other request is left to Sanic, and so is every response except the redirect and the
pixel. The responses are those of `public/clicks.py`, byte for byte (`tests/api/test_tracking_requests.py`).
"""

import asyncio
import re
import secrets
import time
from functools import cache, partial
from typing import NamedTuple

from sanic import HTTPResponse
from sanic.headers import format_http1_response

from appliance.http.protocol import MAX_HEAD_BYTES, StrictProtocol, common_headers, find_client, is_sound_head
from appliance.ops import metrics
from appliance.public import clicks
from appliance.sending.messages.links import LinkRequest, TrackedMessage

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
    """A connection that responds to requests for tracked links and pixels itself, and leaves all others to Sanic."""

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
        """Return whether Sanic waits for a new request, has no byte of it yet, and can write its response at once."""
        if self.is_refused or self._http is None or self.recv_buffer or not self._can_write.is_set():
            return False
        # Sanic forgets a request only after it has read the whole body.
        return self._http.request is None

    def _begin(self, request: TrackingRequest, data: bytes) -> None:
        assert self.transport is not None and self.conn_info is not None  # set when the connection was made
        context, started_at = self.app.ctx, time.monotonic()
        self._time, self._is_answering = started_at, True
        # The next request waits until this one is answered.
        self.transport.pause_reading()
        client = find_client(context, self.conn_info.client_ip, request.forwarded)
        hit_request = clicks.build_hit_request(request.link, "GET", client, request.headers)
        stored = clicks.get_recorder(context).record(request.link, hit_request)
        stored.add_done_callback(partial(self._answer, request.link, data, started_at))

    def _answer(
        self, link: LinkRequest, data: bytes, started_at: float, stored: "asyncio.Future[TrackedMessage | None]"
    ) -> None:
        """Send the redirect or the pixel; without a target, Sanic gets the request and sends the page that says so."""
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
    """Return the response to a click, with `%b` for the URL and for the id of the request."""
    return _prepare(clicks.redirect_response("%b"), is_strict)


@cache
def _prepare_pixel(is_strict: bool) -> bytes:
    """Return the response to an open, with `%b` for the id of the request and for the picture."""
    return _prepare(clicks.pixel_response(), is_strict) + b"%b"


def _prepare(response: HTTPResponse, is_strict: bool) -> bytes:
    """Return the head that Sanic would send for a response, with `%b` for the id of the request."""
    headers = common_headers("%b", is_strict) | {
        "content-length": str(len(response.body or b"")),
        "connection": "keep-alive",
    }
    response.headers.update(headers)
    return format_http1_response(response.status, response.processed_headers)
