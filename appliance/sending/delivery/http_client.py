"""HTTP requests to providers of email and SMS over pooled connections, and the reading of their responses.

The client keeps connections to a provider open. Its errors show whether anything of the request was written: if not,
the message may be sent again; otherwise the provider may have accepted it. Redirects are not followed, proxies are not
used, and the size of a response is limited.

The client uses httpcore's connections but not its connection pool, with or without the trace extension: for each
request the pool searches all other requests, so that it carries 500 to 900 requests a second over sixteen connections
instead of 4,000.
"""

import asyncio
import ipaddress
import re
import ssl
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

import msgspec

from appliance.core import clock
from appliance.core.errors import ConnectionFailed, Uncertain
from appliance.sending.delivery import connection_errors

if TYPE_CHECKING:
    import httpcore

    from appliance.sending.delivery import limited_http


_CONNECT_TIMEOUT_SECONDS = 10.0
# Servers close idle connections after five seconds or more. Idle connections are closed before that here, so that no
# request is written to a connection that the server has just closed.
_IDLE_SECONDS = 4.0
# The limit for a response with its headers; a listing of a hundred SMS takes a fifth of this.
_MAX_RESPONSE_BYTES = 1_048_576


class HttpRequest(NamedTuple):
    """An HTTP request with its own headers; `fetch` adds those that every request has."""

    method: str
    url: str
    headers: Mapping[str, str]
    content: bytes = b""


class HttpResponse(NamedTuple):
    """An HTTP response; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class _PooledConnection(NamedTuple):
    connection: "httpcore.AsyncHTTPConnection"
    backend: "limited_http.LimitedBackend"


class _Pool:
    """The pool of idle connections of one event loop, by scheme, host and port."""

    def __init__(self) -> None:
        self._idle: dict[tuple[bytes, bytes, int], list[_PooledConnection]] = {}

    async def take(self, url: "httpcore.URL") -> _PooledConnection:
        """Remove and return the most recently used idle connection, or create one that is not open yet.

        Idle connections that have expired or that the server has closed are closed.
        """
        import httpcore

        from appliance.sending.delivery import limited_http

        idle = self._idle.get(_pool_key(url), [])
        while idle:
            pooled = idle.pop()
            if pooled.connection.is_available() and not pooled.connection.has_expired():
                pooled.backend.has_written = False
                return pooled
            await pooled.connection.aclose()
        backend = limited_http.LimitedBackend(_MAX_RESPONSE_BYTES)
        connection = httpcore.AsyncHTTPConnection(
            url.origin, _ssl_context() if url.scheme == b"https" else None, _IDLE_SECONDS, network_backend=backend
        )
        return _PooledConnection(connection, backend)

    def put_back(self, url: "httpcore.URL", pooled: _PooledConnection) -> None:
        """Add a connection to the pool for the next request, if its response was read completely."""
        if pooled.connection.is_idle():
            self._idle.setdefault(_pool_key(url), []).append(pooled)

    async def close(self) -> None:
        """Close all idle connections."""
        idle, self._idle = self._idle, {}
        for pooled in (connection for connections in idle.values() for connection in connections):
            await pooled.connection.aclose()


_pools: WeakKeyDictionary[asyncio.AbstractEventLoop, _Pool] = WeakKeyDictionary()


def _pool_key(url: "httpcore.URL") -> tuple[bytes, bytes, int]:
    return url.scheme, url.host, url.origin.port


async def fetch(
    request: HttpRequest, timeout: float, before_write: Callable[[], None] | None = None
) -> HttpResponse:  # fmt: skip
    """Send one HTTP request and return the response, whatever its status, within `timeout` seconds.

    `before_write` is called once the connection is open, right before the request is written: opening it may take
    seconds. Raises ConnectionFailed if the request failed before anything of it was written, else Uncertain, or the
    error of `before_write`.
    """
    import httpcore

    target = httpcore.URL(request.url)
    fields = {
        "Host": urlsplit(request.url).netloc.rpartition("@")[2], "User-Agent": "Campanero",
        "Accept": "application/json", "Accept-Encoding": "identity", "Content-Length": str(len(request.content)),
        **request.headers,
    }  # fmt: skip
    if request.method == "GET":
        del fields["Content-Length"]
    core_request = httpcore.Request(
        request.method, target, headers=[(name.encode(), value.encode()) for name, value in fields.items()],
        content=request.content, extensions={"timeout": {"connect": min(_CONNECT_TIMEOUT_SECONDS, timeout)}},
    )  # fmt: skip
    return await _send_request(target, core_request, timeout, before_write)


async def _send_request(
    url: "httpcore.URL", request: "httpcore.Request", limit: float, before_write: Callable[[], None] | None
) -> HttpResponse:
    import httpcore

    pool = _pools.setdefault(asyncio.get_running_loop(), _Pool())
    while True:
        pooled = await pool.take(url)
        pooled.backend.before_write = before_write
        is_used = pooled.connection.is_idle()
        try:
            async with asyncio.timeout(limit):
                response = await pooled.connection.handle_async_request(request)
                body = await response.aread()
                await response.aclose()
        except (OSError, TimeoutError, httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError,
                httpcore.ConnectionNotAvailable) as error:  # fmt: skip
            server, reason = url.origin, _describe_error(error)
            if pooled.backend.has_written:
                raise Uncertain(f"{server}: {reason}") from None
            if not is_used:
                raise ConnectionFailed(f"{server} cannot be reached: {reason}") from None
        else:
            if pooled.backend.has_written:
                pool.put_back(url, pooled)
                headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers}
                return HttpResponse(response.status, headers, body)
        # The response arrived before this request was written, so it belongs to another one, or the idle connection was
        # closed by the server. The connection is closed, and another one is tried.
        await pooled.connection.aclose()


def _describe_error(error: Exception) -> str:
    """Return the cause of a connection error as text for people."""
    return connection_errors.explain_failure(error).message


async def check_connection(url: str) -> None:
    """Open a connection to the server of a URL, with TLS for https, and close it again.

    Raises ConnectionFailed if it cannot be opened.
    """
    import httpcore

    from appliance.sending.delivery import limited_http

    target, backend = httpcore.URL(url), limited_http.LimitedBackend(_MAX_RESPONSE_BYTES)
    host = target.host.decode()
    try:
        stream = await backend.connect_tcp(host, target.origin.port, _CONNECT_TIMEOUT_SECONDS)
        if target.scheme == b"https":
            stream = await stream.start_tls(_ssl_context(), host, _CONNECT_TIMEOUT_SECONDS)
        await stream.aclose()
    except (OSError, httpcore.NetworkError, httpcore.TimeoutException) as error:
        raise ConnectionFailed(f"{target.origin} cannot be reached: {_describe_error(error)}") from None


async def close_connections() -> None:
    """Close the idle connections of this event loop; later requests open new ones."""
    pool = _pools.pop(asyncio.get_running_loop(), None)
    if pool is not None:
        await pool.close()


@cache
def _ssl_context() -> ssl.SSLContext:
    """Return a TLS context that also trusts this machine's certificate authorities, for an operator's own gateway."""
    import httpx

    context = httpx.create_ssl_context(trust_env=False)
    context.load_default_certs()
    return context


# The reading of responses, and the checking of URLs.

_ID = re.compile(r"[!-~]{1,255}")
CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_MAX_WAIT_SECONDS = 3600.0
_MAX_TEXT_CHARACTERS = 1_000


def parse_id(value: Any) -> str | None:
    """Return a provider's message id as text, or None if it is invalid.

    A valid id is an integer, or 1 to 255 printable ASCII characters without spaces.
    """
    text = str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
    return text if _ID.fullmatch(text) else None


def is_token(value: str) -> bool:
    """Return whether a text can be a token in a header or a form: printable ASCII characters without spaces."""
    return re.fullmatch(r"[!-~]{1,8192}", value) is not None


def clean_text(value: Any, max_characters: int = _MAX_TEXT_CHARACTERS) -> str:
    """Return a provider's text on one line without control characters, truncated to `max_characters`; "" for None."""
    return " ".join(CONTROL_CHARACTERS.sub("", str(value)).split())[:max_characters] if value is not None else ""


def decode_response(response: HttpResponse) -> dict[str, Any]:
    """Return the JSON object of a response, or an empty dict if the response is anything else."""
    try:
        decoded = msgspec.json.decode(response.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return decoded if isinstance(decoded, dict) else {}


def excerpt(response: HttpResponse) -> str:
    """Return up to 200 characters of an unexpected response, for an error message."""
    return clean_text(response.body[:400].decode("utf-8", "replace"), 200)


def parse_retry_after(response: HttpResponse) -> float:
    """Return the wait in seconds that a response's Retry-After header (a number or a date) asks for, from 1 to 3600.

    Without a valid header it is 1.
    """
    value = response.headers.get("retry-after", "").strip()
    if value.isascii() and value.isdecimal():
        seconds = float(value[:9])
    else:
        until, now = (clock.parse_http_date(text) for text in (value, response.headers.get("date", "")))
        seconds = 1.0 if until is None or now is None else (until - now) / 1000
    return min(max(seconds, 1.0), _MAX_WAIT_SECONDS)


@lru_cache(64)
def is_public_url(url: str) -> bool:
    """Return whether the host of a URL looks as if it is reachable from the internet; no DNS query is made."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_global
    except ValueError:
        return "." in host and not host.endswith((".local", ".localhost", ".internal", ".test", ".invalid"))


def find_url_fault(url: str) -> str | None:
    """Return what is wrong with a provider's URL, as a predicate to put after the URL, or None if it is valid."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "cannot be read"
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc or port == 0:
        return "is not an http(s) address"
    return (
        None
        if re.fullmatch(r"[!-~]+", url) and not parts.fragment
        else "must consist of ASCII characters without spaces and #"
    )


def unencrypted_warnings(setting: str, url: str) -> list[str]:
    """Return a list with a warning if requests to the public URL in a setting are not encrypted, else an empty list."""
    is_unencrypted = url.startswith("http://") and is_public_url(url)
    return [f"{setting}: {url} is not https: recipients and texts are sent unencrypted"] if is_unencrypted else []
