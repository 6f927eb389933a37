"""Asks the provider that the operator chose, over connections that are kept open.

Whoever asks learns whether the question has begun to leave: a message of which nothing was written may be handed over
again, any other may have been taken. No redirect is followed, no proxy is known, and an answer is bounded.

The connections are httpcore's, those under httpx, but not its pool: for each request that looks through all the others,
which leaves 500 to 900 requests a second of the 4,000 that sixteen connections carry.
"""

import asyncio
import ssl
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from appliance.core.errors import Uncertain, Unreachable
from appliance.sending.delivery import causes
from appliance.settings import config
from appliance.settings.config import seconds

if TYPE_CHECKING:
    import httpcore

    from appliance.sending.delivery import bounded


_CONNECT_SECONDS = 10.0
# Servers close what is idle after five seconds or more: we do it earlier, so that nothing is posted into the void
_IDLE_SECONDS = 4.0
# Of an answer, with its headers: a page of a hundred messages is a fifth of it
_MAX_BYTES = 1_048_576


class Answer(NamedTuple):
    """What came back; header names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class _Kept(NamedTuple):
    connection: "httpcore.AsyncHTTPConnection"
    backend: "bounded.Backend"


class _Pool:
    """The connections of one loop that wait for a question, by scheme and place."""

    def __init__(self) -> None:
        self._idle: dict[tuple[bytes, bytes, int], list[_Kept]] = {}

    async def take(self, url: "httpcore.URL") -> _Kept:
        """Return a connection that is still good, the one used last, or one that is not open yet."""
        import httpcore

        from appliance.sending.delivery import bounded

        idle = self._idle.get(_place(url), [])
        while idle:
            kept = idle.pop()
            if kept.connection.is_available() and not kept.connection.has_expired():
                kept.backend.has_written = False
                return kept
            await kept.connection.aclose()
        backend = bounded.Backend(_MAX_BYTES)
        connection = httpcore.AsyncHTTPConnection(
            url.origin, _trusted() if url.scheme == b"https" else None, _IDLE_SECONDS, network_backend=backend
        )
        return _Kept(connection, backend)

    def back(self, url: "httpcore.URL", kept: _Kept) -> None:
        """Keep a connection for the next question, if it was left clean."""
        if kept.connection.is_idle():
            self._idle.setdefault(_place(url), []).append(kept)

    async def close(self) -> None:
        """Close what waits."""
        idle, self._idle = self._idle, {}
        for kept in (each for several in idle.values() for each in several):
            await kept.connection.aclose()


_pools: WeakKeyDictionary[asyncio.AbstractEventLoop, _Pool] = WeakKeyDictionary()


def _place(url: "httpcore.URL") -> tuple[bytes, bytes, int]:
    return url.scheme, url.host, url.origin.port


async def ask(method: str, url: str, headers: Mapping[str, str], content: bytes = b"") -> Answer:
    """Ask once; raises Unreachable if nothing of the question was written, else Uncertain."""
    import httpcore

    target = httpcore.URL(url)
    named = {
        "Host": urlsplit(url).netloc.rpartition("@")[2], "User-Agent": "Campanero", "Accept": "application/json",
        "Accept-Encoding": "identity", "Content-Length": str(len(content)), **headers,
    }  # fmt: skip
    if method == "GET":
        del named["Content-Length"]
    limit = seconds(config.current().sms.request_timeout)
    request = httpcore.Request(
        method, target, headers=[(name.encode(), value.encode()) for name, value in named.items()], content=content,
        extensions={"timeout": {"connect": min(_CONNECT_SECONDS, limit)}},
    )  # fmt: skip
    return await _asked(target, request, limit)


async def _asked(url: "httpcore.URL", request: "httpcore.Request", limit: float) -> Answer:
    import httpcore

    pool = _pools.setdefault(asyncio.get_running_loop(), _Pool())
    while True:
        kept = await pool.take(url)
        is_used = kept.connection.is_idle()
        try:
            async with asyncio.timeout(limit):
                answer = await kept.connection.handle_async_request(request)
                body = await answer.aread()
                await answer.aclose()
        except (OSError, TimeoutError, httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError,
                httpcore.ConnectionNotAvailable) as error:  # fmt: skip
            place, words = url.origin, _words(error)
            if kept.backend.has_written:
                raise Uncertain(f"{place}: {words}") from None
            if not is_used:
                raise Unreachable(f"{place} cannot be reached: {words}") from None
        else:
            if kept.backend.has_written:
                pool.back(url, kept)
                headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in answer.headers}
                return Answer(answer.status, headers, body)
        # What came stood there before this question left, so it answers none of ours: nothing more is read from there
        await kept.connection.aclose()


def _words(error: Exception) -> str:
    """Return what became of a connection, as far as the libraries tell."""
    return causes.of(error).words


async def reach(url: str) -> None:
    """Open a connection to a place, encrypted where that is asked for, and close it; raises Unreachable."""
    import httpcore

    from appliance.sending.delivery import bounded

    target, backend = httpcore.URL(url), bounded.Backend(_MAX_BYTES)
    host = target.host.decode()
    try:
        stream = await backend.connect_tcp(host, target.origin.port, _CONNECT_SECONDS)
        if target.scheme == b"https":
            stream = await stream.start_tls(_trusted(), host, _CONNECT_SECONDS)
        await stream.aclose()
    except (OSError, httpcore.NetworkError, httpcore.TimeoutException) as error:
        raise Unreachable(f"{target.origin} cannot be reached: {_words(error)}") from None


async def close() -> None:
    """Close the connections of this loop; what is asked afterwards opens new ones."""
    pool = _pools.pop(asyncio.get_running_loop(), None)
    if pool is not None:
        await pool.close()


@cache
def _trusted() -> ssl.SSLContext:
    """Trust whom this machine trusts, so that a gateway of one's own may have a certificate of one's own."""
    import httpx

    context = httpx.create_ssl_context(trust_env=False)
    context.load_default_certs()
    return context
