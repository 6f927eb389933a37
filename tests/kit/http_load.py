"""Send HTTP requests as fast as possible over keep-alive connections, for benchmarks."""

import asyncio
import json
import time
from collections.abc import Collection, Iterator
from typing import Any


def build_request(key: str, method: str, path: str, body: Any = None) -> bytes:
    """Return the bytes of a request with an API key."""
    content = b"" if body is None else json.dumps(body).encode()
    content_headers = "" if body is None else f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n"
    head = f"{method} /v1/my{path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n{content_headers}\r\n"
    return head.encode() + content


def format_percentiles(times: list[float]) -> str:
    """Return the median, the 95th percentile and the maximum of response times as text, in milliseconds."""
    sorted_times = sorted(times)
    p50, p95 = (sorted_times[int(len(sorted_times) * part)] * 1000 for part in (0.5, 0.95))
    return f"p50 {p50:6.1f}  p95 {p95:6.1f}  longest {sorted_times[-1] * 1000:6.1f} ms"


async def send_requests(
    port: int, requests: Iterator[bytes], connections: int, statuses: Collection[int] = (200, 201)
) -> tuple[float, list[float]]:
    """Send all requests over some connections; return the requests per second and the response times in seconds.

    Raises AssertionError for a response whose status is not in `statuses`.
    """
    loop, times = asyncio.get_running_loop(), list[float]()
    ends = [loop.create_future() for _ in range(connections)]
    started_at = time.perf_counter()
    for end in ends:
        await loop.create_connection(lambda end=end: _Connection(requests, statuses, times, end), "127.0.0.1", port)
    await asyncio.gather(*ends)
    return len(times) / (time.perf_counter() - started_at), times


class _Connection(asyncio.Protocol):
    """A keep-alive connection that sends the next request as soon as the last response is complete."""

    def __init__(
        self, requests: Iterator[bytes], statuses: Collection[int], times: list[float], ended: "asyncio.Future[None]"
    ) -> None:
        self._requests, self._statuses, self._times, self._ended = requests, statuses, times, ended
        self._seen, self._begun = b"", 0.0

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._next()

    def data_received(self, data: bytes) -> None:
        self._seen += data
        head, gap, body = self._seen.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)
        if not gap or len(body) < length:
            return
        if int(head[9:12]) not in self._statuses:
            self._ended.set_exception(AssertionError(self._seen[:500]))
            self._transport.close()
            return
        self._times.append(time.perf_counter() - self._begun)
        self._next()

    def connection_lost(self, error: Exception | None) -> None:
        if not self._ended.done():
            self._ended.set_result(None)

    def _next(self) -> None:
        self._seen = b""
        request = next(self._requests, None)
        if request is None:
            self._transport.close()
            return
        self._begun = time.perf_counter()
        self._transport.write(request)
