"""HTTP connections that limit the number of bytes read for each request.

httpx limits neither the number nor the size of the informational responses (1xx) before a response, so without this
limit a server could send them without end.
"""

import ssl
from collections.abc import Callable, Iterable
from typing import Any

import httpcore
import httpx


def build_limited_client(context: ssl.SSLContext, idle_seconds: float, max_bytes: int) -> httpx.AsyncClient:
    """Return a client that follows no redirects, uses no proxy, and fails once a response exceeds `max_bytes`.

    `max_bytes` includes the headers. Idle connections are closed after `idle_seconds`.
    """
    transport = httpx.AsyncHTTPTransport(verify=context, trust_env=False)
    transport._pool = httpcore.AsyncConnectionPool(
        ssl_context=context,
        max_connections=None,
        keepalive_expiry=idle_seconds,
        network_backend=LimitedBackend(max_bytes),
    )
    return httpx.AsyncClient(transport=transport, trust_env=False, follow_redirects=False)


class _LimitedStream(httpcore.AsyncNetworkStream):
    """A connection that raises `httpcore.ReadError` after more than `max_bytes` were read for the current request.

    Writes are collected and sent together at the first read of the response, because separate writes of the head and
    the body would be two packets.
    """

    def __init__(self, stream: httpcore.AsyncNetworkStream, max_bytes: int, backend: "LimitedBackend") -> None:
        self._stream, self._max_bytes, self._backend, self._read_bytes = stream, max_bytes, backend, 0
        self._request_parts: list[bytes] = []

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        if self._request_parts:
            if self._backend.before_write is not None:
                self._backend.before_write()
            request = b"".join(self._request_parts)
            self._request_parts.clear()
            self._read_bytes = 0
            self._backend.has_written = True
            await self._stream.write(request, timeout)
        if self._read_bytes > self._max_bytes:
            raise httpcore.ReadError(f"the response has more than {self._max_bytes} bytes")
        data = await self._stream.read(max_bytes, timeout)
        self._read_bytes += len(data)
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._request_parts.append(buffer)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.AsyncNetworkStream:
        stream = await self._stream.start_tls(ssl_context, server_hostname, timeout)
        return _LimitedStream(stream, self._max_bytes, self._backend)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class LimitedBackend(httpcore.AsyncNetworkBackend):
    """A network backend whose connections are limited to `max_bytes` for each request.

    `before_write` is called before a request is sent, and may raise an error instead. `has_written` becomes True just
    before any of its connections sends a request for the first time.
    """

    before_write: Callable[[], None] | None = None

    def __init__(self, max_bytes: int) -> None:
        self._backend, self._max_bytes = httpcore.AnyIOBackend(), max_bytes
        self.has_written = False

    async def connect_tcp(
        self, host: str, port: int, timeout: float | None = None, local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:  # fmt: skip
        """Open a limited TCP connection."""
        stream = await self._backend.connect_tcp(host, port, timeout, local_address, socket_options)
        return _LimitedStream(stream, self._max_bytes, self)

    async def sleep(self, seconds: float) -> None:
        """Sleep; httpcore calls this between attempts to connect."""
        await self._backend.sleep(seconds)
