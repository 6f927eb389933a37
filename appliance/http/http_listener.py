"""The listener for plain http (`acme.http_listen`): answers the CA's challenges and redirects browsers to https.

It serves nothing else, and reads one request of each connection. The redirect leads to the public address of an account
if the request names its host, else to `base_url`: never to a host that is not stored.
"""

import asyncio
import logging
import re
import socket
from collections.abc import Callable
from typing import NamedTuple, cast

from appliance.accounts.public_urls import HostTable
from appliance.certificates.challenges import HTTP_CONTENT_TYPE, HTTP_PATH, LiveChallenges
from appliance.core import addresses
from appliance.http.protocol import is_sound_head

log = logging.getLogger("campanero.certificates")
_MAX_HEAD_BYTES = 8_192
_TIMEOUT_SECONDS = 10.0
# The maximum numbers of open connections: in all, and of one client (`addresses.client_network`).
_MAX_CONNECTIONS, _MAX_CLIENT_CONNECTIONS = 200, 20
_REQUEST_LINE = re.compile(rb"(GET|HEAD) (?:http://[^/ ]+)?(/[!-~]*) HTTP/1\.[01]\r\n", re.IGNORECASE)
_HOST_LINE = re.compile(rb"(?i)\r\nhost:([^\r\n]*)")
_HEADERS = "Connection: close\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"


class Answer(NamedTuple):
    """A response: its status line, the headers beside `_HEADERS`, and its body."""

    status: str
    headers: dict[str, str] = {}
    body: bytes = b""


def answer_request(head: bytes, base_url: str, challenges: LiveChallenges) -> Answer:
    """Return the response to the head of a request, which ends in an empty line.

    Only GET and HEAD are redirected: a redirected POST would send its body a second time.
    """
    if not is_sound_head(head, len(head) - 4):
        return Answer("400 Bad Request")
    match = _REQUEST_LINE.match(head)
    if match is None:
        return Answer("405 Method Not Allowed", {"Allow": "GET, HEAD"})
    path = match[2].decode()
    if path.startswith(HTTP_PATH):
        response = challenges.find_response(path)
        if response is None:
            return Answer("404 Not Found")
        return Answer("200 OK", {"Content-Type": HTTP_CONTENT_TYPE}, response)
    # The path begins with a single slash, so that `//host` cannot become a host.
    return Answer("301 Moved Permanently", {"Location": f"{base_url}/{path.lstrip('/')}"})


def format_answer(answer: Answer, has_body: bool) -> bytes:
    """Return the bytes of a response; without its body for HEAD."""
    headers = "".join(f"{name}: {value}\r\n" for name, value in answer.headers.items())
    head = f"HTTP/1.1 {answer.status}\r\n{headers}Content-Length: {len(answer.body)}\r\n{_HEADERS}\r\n"
    return head.encode() + (answer.body if has_body else b"")


class _Connection(asyncio.Protocol):
    """A connection, which is closed after one response or after `_TIMEOUT_SECONDS`.

    `open_connections` contains the client network of each open connection, the oldest connection first.
    """

    def __init__(self, answer: Callable[[bytes], Answer], open_connections: dict["_Connection", str]) -> None:
        self._answer, self._open_connections = answer, open_connections
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the head of a request.

        If the client has too many open connections, the new connection is closed. If there are too many in all, the
        oldest is closed, so that one client cannot keep others out.
        """
        self._transport = cast(asyncio.Transport, transport)
        self._timer = asyncio.get_running_loop().call_later(_TIMEOUT_SECONDS, self._transport.abort)
        peer = transport.get_extra_info("peername")
        client = addresses.client_network(peer[0]) if peer else ""
        if sum(other == client for other in self._open_connections.values()) >= _MAX_CLIENT_CONNECTIONS:
            self._transport.abort()
            return
        if len(self._open_connections) >= _MAX_CONNECTIONS:
            oldest = next(iter(self._open_connections))
            del self._open_connections[oldest]
            oldest._transport.abort()
        self._open_connections[self] = client

    def data_received(self, data: bytes) -> None:
        """Respond once the head of the request is complete."""
        if self._transport.is_closing():
            return
        self._received += data
        end = self._received.find(b"\r\n\r\n")
        if end < 0 and len(self._received) < _MAX_HEAD_BYTES:
            return
        is_short = 0 <= end < _MAX_HEAD_BYTES
        answer = self._answer(self._received[: end + 4]) if is_short else Answer("431 Request Header Fields Too Large")
        self._transport.write(format_answer(answer, not self._received.startswith(b"HEAD ")))
        self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the connection from the open ones."""
        self._timer.cancel()
        self._open_connections.pop(self, None)


class HttpListener:
    """The listener for plain http. Call `bind` before the service starts, and `start` on its event loop."""

    def __init__(self, address: str, base_url: str, challenges: LiveChallenges, hosts: HostTable) -> None:
        self._address, self._base_url, self._challenges, self._hosts = address, base_url, challenges, hosts
        self._socket: socket.socket | None = None
        self._server: asyncio.AbstractServer | None = None
        self._connections: dict[_Connection, str] = {}

    @property
    def is_bound(self) -> bool:
        """Return whether the listener is bound to its port."""
        return self._socket is not None

    def bind(self) -> None:
        """Bind the configured address, if any. A failure is only logged, because the CA can use the https port, too."""
        if not self._address:
            return
        host, _, port = self._address.rpartition(":")
        host = host.strip("[]")
        is_v6 = ":" in host
        try:
            self._socket = socket.create_server(
                (host, int(port)),
                family=socket.AF_INET6 if is_v6 else socket.AF_INET,
                dualstack_ipv6=host == "::" and socket.has_dualstack_ipv6(),
            )
        except OSError as error:
            log.warning(
                "certificates: cannot listen on acme.http_listen=%s: %s; the CA must reach the https port",
                self._address, error.strerror,
            )  # fmt: skip

    async def start(self) -> None:
        """Accept connections on the bound port; without one, do nothing."""
        if self._socket is None:
            return

        def create_connection() -> _Connection:
            return _Connection(self._respond, self._connections)

        self._server = await asyncio.get_running_loop().create_server(create_connection, sock=self._socket, backlog=100)

    def _respond(self, head: bytes) -> Answer:
        match = _HOST_LINE.search(head)
        host = self._hosts.find(match[1].decode("latin-1")) if match else None
        return answer_request(head, self._base_url if host is None else host.url, self._challenges)

    def stop(self) -> None:
        """Stop accepting connections."""
        if self._server is not None:
            self._server.close()
