"""Connections over which so much is read for each question and no more, whatever it is that comes.

The library bounds neither how many preliminary answers (1xx) precede one nor what they cost: of what never ends there
is nothing to be had by reading on.
"""

import ssl
from collections.abc import Iterable
from typing import Any

import httpcore
import httpx


def client(context: ssl.SSLContext, idle_seconds: float, most: int) -> httpx.AsyncClient:
    """Return a client that follows nobody, knows no proxy, and reads so many bytes between two questions."""
    transport = httpx.AsyncHTTPTransport(verify=context, trust_env=False)
    transport._pool = httpcore.AsyncConnectionPool(
        ssl_context=context, max_connections=None, keepalive_expiry=idle_seconds, network_backend=Backend(most)
    )
    return httpx.AsyncClient(transport=transport, trust_env=False, follow_redirects=False)


class _Stream(httpcore.AsyncNetworkStream):
    """What is sent begins a question; what is read since then is counted.

    A question leaves in one piece when its answer is waited for: head and body by themselves would be two packets.
    """

    def __init__(self, inner: httpcore.AsyncNetworkStream, most: int, backend: "Backend") -> None:
        self._inner, self._most, self._backend, self._read = inner, most, backend, 0
        self._question: list[bytes] = []

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        if self._question:
            whole = b"".join(self._question)
            self._question.clear()
            self._read = 0
            self._backend.has_written = True
            await self._inner.write(whole, timeout)
        if self._read > self._most:
            raise httpcore.ReadError(f"more than {self._most} bytes were answered")
        found = await self._inner.read(max_bytes, timeout)
        self._read += len(found)
        return found

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._question.append(buffer)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.AsyncNetworkStream:
        inner = await self._inner.start_tls(ssl_context, server_hostname, timeout)
        return _Stream(inner, self._most, self._backend)

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


class Backend(httpcore.AsyncNetworkBackend):
    """Opens such connections; `has_written` says that a question has begun to leave by one, until it is taken back."""

    def __init__(self, most: int) -> None:
        self._inner, self._most = httpcore.AnyIOBackend(), most
        self.has_written = False

    async def connect_tcp(
        self, host: str, port: int, timeout: float | None = None, local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:  # fmt: skip
        """Open one."""
        inner = await self._inner.connect_tcp(host, port, timeout, local_address, socket_options)
        return _Stream(inner, self._most, self)

    async def sleep(self, seconds: float) -> None:
        """Wait, as the library wants to between attempts."""
        await self._inner.sleep(seconds)
