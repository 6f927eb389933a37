"""The interface of SMS providers, the HTTP client to reach them, and what they share."""

import asyncio
import ipaddress
import json
import re
import ssl
from abc import ABC, abstractmethod
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar
from urllib.parse import parse_qs, urlsplit
from weakref import WeakKeyDictionary

import msgspec

from appliance.core import clock, crypto
from appliance.core.errors import ConnectionFailed, LookupUnsupported, NotAllowed, NotFound, Uncertain
from appliance.sending.delivery import connection_errors
from appliance.sending.sms.error_codes import HookContents, HookRequest
from appliance.sending.sms.segments import AcceptedSms, OutgoingSms
from appliance.settings import config
from appliance.settings.config import parse_seconds
from appliance.settings.schema import Sms

# Requests to the provider that the operator chose, over connections that stay open. The caller learns whether the
# request has begun to leave: a message of which nothing was written may be sent again, any other may have been
# accepted. Redirects and proxies are not followed, and the size of a response is limited.
#
# The connections are httpcore's, but not its pool, also with its trace extension: for each request the pool searches
# all other requests, which leaves 500 to 900 requests a second of the 4,000 that sixteen connections carry.

if TYPE_CHECKING:
    import httpcore

    from appliance.sending.delivery import limited_http


_CONNECT_TIMEOUT_SECONDS = 10.0
# Servers close idle connections after five seconds or more; closing them earlier means that no request is written to a
# connection that the server has just closed
_IDLE_SECONDS = 4.0
# A response with its headers; a page of a hundred messages takes a fifth of this
_MAX_RESPONSE_BYTES = 1_048_576


class HttpResponse(NamedTuple):
    """A response; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class _PooledConnection(NamedTuple):
    connection: "httpcore.AsyncHTTPConnection"
    backend: "limited_http.LimitedBackend"


class _Pool:
    """The idle connections of one event loop, by scheme, host and port."""

    def __init__(self) -> None:
        self._idle: dict[tuple[bytes, bytes, int], list[_PooledConnection]] = {}

    async def take(self, url: "httpcore.URL") -> _PooledConnection:
        """Return the usable connection that was used last, or a new one that is not open yet."""
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
        """Keep a connection for the next request, if its last one is complete."""
        if pooled.connection.is_idle():
            self._idle.setdefault(_pool_key(url), []).append(pooled)

    async def close(self) -> None:
        """Close the idle connections."""
        idle, self._idle = self._idle, {}
        for pooled in (connection for connections in idle.values() for connection in connections):
            await pooled.connection.aclose()


_pools: WeakKeyDictionary[asyncio.AbstractEventLoop, _Pool] = WeakKeyDictionary()


def _pool_key(url: "httpcore.URL") -> tuple[bytes, bytes, int]:
    return url.scheme, url.host, url.origin.port


async def fetch(method: str, url: str, headers: Mapping[str, str], content: bytes = b"") -> HttpResponse:
    """Send one request. Raises ConnectionFailed if nothing of it was written, or else Uncertain."""
    import httpcore

    target = httpcore.URL(url)
    fields = {
        "Host": urlsplit(url).netloc.rpartition("@")[2], "User-Agent": "Campanero", "Accept": "application/json",
        "Accept-Encoding": "identity", "Content-Length": str(len(content)), **headers,
    }  # fmt: skip
    if method == "GET":
        del fields["Content-Length"]
    limit = parse_seconds(config.current().sms.request_timeout)
    request = httpcore.Request(
        method, target, headers=[(name.encode(), value.encode()) for name, value in fields.items()], content=content,
        extensions={"timeout": {"connect": min(_CONNECT_TIMEOUT_SECONDS, limit)}},
    )  # fmt: skip
    return await _send_request(target, request, limit)


async def _send_request(url: "httpcore.URL", request: "httpcore.Request", limit: float) -> HttpResponse:
    import httpcore

    pool = _pools.setdefault(asyncio.get_running_loop(), _Pool())
    while True:
        pooled = await pool.take(url)
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
        # The response arrived before this request was written, so it answers another one: the connection is closed
        await pooled.connection.aclose()


def _describe_error(error: Exception) -> str:
    """Return the cause of a connection error as text."""
    return connection_errors.explain_failure(error).message


async def check_connection(url: str) -> None:
    """Open a connection to a URL, encrypted for https, and close it. Raises ConnectionFailed."""
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
    """Close the connections of this event loop; later requests open new ones."""
    pool = _pools.pop(asyncio.get_running_loop(), None)
    if pool is not None:
        await pool.close()


@cache
def _ssl_context() -> ssl.SSLContext:
    """Return a context with the certificates of this machine, so that a gateway may use its own authority."""
    import httpx

    context = httpx.create_ssl_context(trust_env=False)
    context.load_default_certs()
    return context


T = TypeVar("T")

# The statuses of providers in our terms; every status before the SMS has left means only that it was accepted
STATUS_OF_PROVIDER = {
    "accepted": "sent", "scheduled": "sent", "queued": "sent", "sending": "sent", "sent": "sent",
    "delivered": "delivered", "read": "delivered", "undelivered": "undelivered", "bounced": "undelivered",
    "failed": "failed", "canceled": "failed", "cancelled": "failed", "rejected": "failed", "expired": "undelivered",
}  # fmt: skip
_PURPOSE = "sms receipt"
_ID = re.compile(r"[!-~]{1,255}")
_CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_MAX_WAIT_SECONDS = 3600.0
_MAX_TEXT_CHARACTERS, _MAX_BODY_CHARACTERS = 1_000, 20_000


def invalid_signature() -> NotAllowed:
    """Return the error for all requests without a valid signature."""
    return NotAllowed("the signature of this request is missing, wrong or too old")


def parse_id(value: Any) -> str | None:
    """Return a provider's id of a message, or None if it is invalid."""
    text = str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
    return text if _ID.fullmatch(text) else None


def clean_text(value: Any, max_characters: int = _MAX_TEXT_CHARACTERS) -> str:
    """Return text of a provider in one line, without control characters."""
    return " ".join(_CONTROL_CHARACTERS.sub("", str(value)).split())[:max_characters] if value is not None else ""


def clean_body(body: str) -> str:
    """Return the body of an incoming SMS without control characters."""
    return _CONTROL_CHARACTERS.sub("", body)[:_MAX_BODY_CHARACTERS]


def decode_hook(body: bytes, type_: type[T]) -> T:
    """Decode the JSON of a webhook request. Raises ValueError.

    An incomplete character, of a text that was cut in the middle of an emoji, is read as `?`, so that no STOP is lost.
    """
    try:
        return msgspec.json.decode(body, type=type_)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        repaired = json.dumps(json.loads(body.decode("utf-8", "replace")), ensure_ascii=False)
        return msgspec.json.decode(repaired.encode("utf-8", "replace"), type=type_)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(str(error)) from None


def decode_response(response: HttpResponse) -> dict[str, Any]:
    """Return the object of a JSON response, or an empty dict."""
    try:
        decoded = msgspec.json.decode(response.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return decoded if isinstance(decoded, dict) else {}


def excerpt(response: HttpResponse) -> str:
    """Return the beginning of a response that is not in the expected form."""
    return clean_text(response.body[:400].decode("utf-8", "replace"), 200)


def parse_retry_after(response: HttpResponse) -> float:
    """Return the seconds of Retry-After, given as a number or as a date: at least one, at most an hour."""
    value = response.headers.get("retry-after", "").strip()
    if value.isascii() and value.isdecimal():
        seconds = float(value[:9])
    else:
        try:
            seconds = (
                parsedate_to_datetime(value) - parsedate_to_datetime(response.headers.get("date", ""))
            ).total_seconds()
        except (ValueError, TypeError):
            seconds = 1.0
    return min(max(seconds, 1.0), _MAX_WAIT_SECONDS)


def build_callback_url(path: str, message_id: int, provider_url: str) -> str:
    """Return our URL for receipts of a message, or an empty string if `theirs`, a public server, cannot call it."""
    base = config.base_url(config.current())
    if not _is_public_url(base) and _is_public_url(provider_url):
        return ""
    return f"{base}{path}?m={crypto.sign_token(_PURPOSE, message_id)}"


def message_id_of_url(url: str) -> int | None:
    """Return the message id in a callback URL of ours, or None."""
    tokens = parse_qs(urlsplit(url).query).get("m", [""])
    return crypto.read_token(_PURPOSE, tokens[0])


@lru_cache(64)
def _is_public_url(url: str) -> bool:
    """Return whether the host of a URL may be reachable from the internet."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_global
    except ValueError:
        return "." in host and not host.endswith((".local", ".localhost", ".internal", ".test", ".invalid"))


def find_url_fault(url: str) -> str | None:
    """Return the fault of a provider's URL, or None."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "cannot be read"
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc or port == 0:
        return "is not an http(s) address"
    return None if re.fullmatch(r"[!-~]+", url) and not parts.fragment else "may hold no spaces, no # and no umlauts"


def unencrypted_warnings(setting: str, url: str) -> list[str]:
    """Return a warning if requests to a public URL would not be encrypted."""
    is_unencrypted = url.startswith("http://") and _is_public_url(url)
    return (
        [f"{setting}: {url} is not https: who is written to, and what, can be read on the way"]
        if is_unencrypted
        else []
    )


def signing_time() -> float:
    """Return the time for signatures."""
    return clock.now()


# The interface of a provider.


class Provider(ABC):
    """The interface of an SMS provider, without state; a new one is one file and one line in `PROVIDERS`."""

    name: ClassVar[str]
    can_look_up: ClassVar[bool] = False
    is_idempotent: ClassVar[bool] = False  # a message that is sent repeatedly is accepted once
    chooses_sender: ClassVar[bool] = False  # if the message names none
    hooks: ClassVar[tuple[str, ...]] = ()  # the paths of its webhooks under /hooks/, "twilio/status"

    @abstractmethod
    def find_setting_faults(self, sms: Sms | None = None) -> list[tuple[str, str]]:
        """Return the missing or invalid settings, by default of the current ones, as (name of the setting, fault)."""

    @abstractmethod
    async def send(self, text: OutgoingSms) -> AcceptedSms:
        """Send a message once.

        Raises RecipientRejected, ClientRejected (login) or SenderRejected (sender, registration), RateLimited (with the
        seconds to wait), Deferred, ConnectionFailed (no part of the request was written), or Uncertain: it may have
        been accepted. `enhanced` is the equivalent code of RFC 3463 if there is one, `smtp` the HTTP status, and the
        text begins with the provider's own code.
        """

    async def find_accepted(self, text: OutgoingSms, since: int) -> tuple[AcceptedSms, ...]:
        """Return the same messages that the provider accepted at `since` (ms) or later, oldest first.

        Messages with equal recipient, sender and body are the same; the ledger decides which of them is this one.
        Raises DeliveryError if the look-up fails now, or LookupUnsupported if the provider lists no messages.
        """
        raise LookupUnsupported("it lists no messages")

    async def check_login(self) -> str:
        """Check the login without sending, and return the result as text. Raises DeliveryError."""
        return "is always there"

    def list_warnings(self) -> list[str]:
        """Return warnings about settings that are valid but not recommended."""
        return []

    def get_webhook_secret(self) -> str:
        """Return the secret of the webhooks, or an empty string to close them (404)."""
        return ""

    def parse_hook(self, hook: str, received: HookRequest) -> HookContents:
        """Parse a webhook request. Raises NotAllowed if it is forged or too old, Invalid, or NotFound."""
        raise NotFound

    def build_callback_url(self, message_id: int) -> str:
        """Return the URL for receipts of a message, or an empty string."""
        return ""
