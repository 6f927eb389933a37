"""HTTP connections to a store that end if the other side sends or accepts data too slowly.

Each received byte restarts the timeouts of httpx, so a server that sends single bytes would block a thread for days.
"""

import ssl
import time
from collections.abc import Iterable
from typing import Any

import httpcore
import httpx

# The rate of each direction is checked after this number of seconds of waiting, and must then be at least the minimum.
SLOW_SECONDS = 120.0
MIN_BYTES_PER_SECOND = 1_024


def open_client(timeout: httpx.Timeout) -> httpx.Client:
    """Return a client whose connections end with ReadTimeout or WriteTimeout if they are too slow for too long.

    It uses no proxy, and does not follow redirects: a request signed for one host must not be sent to another.
    """
    context = httpx.create_ssl_context(trust_env=False)
    transport = httpx.HTTPTransport(verify=context, trust_env=False)
    transport._pool = httpcore.ConnectionPool(
        ssl_context=context, keepalive_expiry=5.0, network_backend=_MinSpeedBackend()
    )
    return httpx.Client(transport=transport, timeout=timeout, follow_redirects=False, trust_env=False)


class _Throughput:
    """The bytes transferred in one direction and the time that they took, since the rate was last checked."""

    def __init__(self) -> None:
        self._seconds, self._bytes = 0.0, 0

    def is_too_slow(self, seconds: float, byte_count: int) -> bool:
        """Add bytes that took `seconds`, and return whether the rate is too low."""
        self._seconds, self._bytes = self._seconds + seconds, self._bytes + byte_count
        if self._seconds < SLOW_SECONDS:
            return False
        is_slow = self._bytes < self._seconds * MIN_BYTES_PER_SECOND
        self.reset()
        return is_slow

    def reset(self) -> None:
        """Restart the count, as for a new request."""
        self._seconds, self._bytes = 0.0, 0


class _MinSpeedStream(httpcore.NetworkStream):
    """A connection that measures how fast the other side sends and accepts data; idle times do not count."""

    def __init__(self, stream: httpcore.NetworkStream) -> None:
        self._stream = stream
        self._reads, self._writes = _Throughput(), _Throughput()

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        started_at = time.monotonic()
        content = self._stream.read(max_bytes, timeout)
        if self._reads.is_too_slow(time.monotonic() - started_at, len(content)):
            raise httpcore.ReadTimeout(f"less than {MIN_BYTES_PER_SECOND:,} bytes a second arrived")
        return content

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._reads.reset()
        started_at = time.monotonic()
        self._stream.write(buffer, timeout)
        if self._writes.is_too_slow(time.monotonic() - started_at, len(buffer)):
            raise httpcore.WriteTimeout(f"less than {MIN_BYTES_PER_SECOND:,} bytes a second were taken")

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        return _MinSpeedStream(self._stream.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class _MinSpeedBackend(httpcore.NetworkBackend):
    """A network backend whose connections are `_MinSpeedStream`s."""

    def __init__(self) -> None:
        self._backend = httpcore.SyncBackend()

    def connect_tcp(
        self, host: str, port: int, timeout: float | None = None, local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:  # fmt: skip
        return _MinSpeedStream(self._backend.connect_tcp(host, port, timeout, local_address, socket_options))
