"""The interface of SMS providers, their HTTP client, and the functions that they share."""

import asyncio
import ipaddress
import json
import re
import ssl
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
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

# The HTTP client keeps connections to the provider open. Its errors show whether anything of the request was written:
# if not, the message may be sent again; otherwise the provider may have accepted it. Redirects are not followed,
# proxies are not used, and the size of a response is limited.
#
# The client uses httpcore's connections but not its connection pool, with or without the trace extension: for each
# request the pool searches all other requests, so that it carries 500 to 900 requests a second over sixteen connections
# instead of 4,000.

if TYPE_CHECKING:
    import httpcore

    from appliance.sending.delivery import limited_http


_CONNECT_TIMEOUT_SECONDS = 10.0
# Servers close idle connections after five seconds or more. Idle connections are closed before that here, so that no
# request is written to a connection that the server has just closed.
_IDLE_SECONDS = 4.0
# The limit for a response with its headers; a listing of a hundred messages takes a fifth of this.
_MAX_RESPONSE_BYTES = 1_048_576


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
        """Take the most recently used idle connection out of the pool, or create one that is not open yet.

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
    method: str, url: str, headers: Mapping[str, str], content: bytes = b"",
    before_write: Callable[[], None] | None = None,
) -> HttpResponse:  # fmt: skip
    """Send one HTTP request and return the response, whatever its status.

    The time limit is `sms.request_timeout`. `before_write` is called once the connection is open, right before the
    request is written: opening it may take seconds. Raises ConnectionFailed if the request failed before anything of it
    was written, else Uncertain, or the error of `before_write`.
    """
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
    return await _send_request(target, request, limit, before_write)


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


T = TypeVar("T")

# The statuses of providers as our statuses (`error_codes.STATUSES`). All that come before delivery mean only that the
# provider accepted the SMS.
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
    """Return the error to raise for a webhook request without a valid signature, whatever is wrong with it."""
    return NotAllowed("the signature of this request is missing, wrong or too old")


def parse_id(value: Any) -> str | None:
    """Return a provider's message id as text, or None if it is invalid.

    A valid id is an integer, or 1 to 255 printable ASCII characters without spaces.
    """
    text = str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
    return text if _ID.fullmatch(text) else None


def clean_text(value: Any, max_characters: int = _MAX_TEXT_CHARACTERS) -> str:
    """Return a provider's text on one line without control characters, truncated to `max_characters`; "" for None."""
    return " ".join(_CONTROL_CHARACTERS.sub("", str(value)).split())[:max_characters] if value is not None else ""


def clean_body(body: str) -> str:
    """Return the text of an incoming SMS without control characters, truncated to `_MAX_BODY_CHARACTERS`.

    Line breaks are kept.
    """
    return _CONTROL_CHARACTERS.sub("", body)[:_MAX_BODY_CHARACTERS]


def decode_hook(body: bytes, type_: type[T]) -> T:
    """Decode the JSON of a webhook request into `type_`. Raises ValueError if that fails.

    Incomplete characters are replaced, because a text may have been cut in the middle of an emoji. Otherwise the
    request would be rejected, and an opt-out in it lost.
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
        try:
            seconds = (
                parsedate_to_datetime(value) - parsedate_to_datetime(response.headers.get("date", ""))
            ).total_seconds()
        except (ValueError, TypeError):
            seconds = 1.0
    return min(max(seconds, 1.0), _MAX_WAIT_SECONDS)


def build_callback_url(path: str, message_id: int, provider_url: str) -> str:
    """Return our URL with the path `path`, to which the provider sends receipts of a message.

    The result is an empty string if `provider_url` is public and our `base_url` is not, because the provider could not
    reach us.
    """
    base = config.base_url(config.current())
    if not _is_public_url(base) and _is_public_url(provider_url):
        return ""
    return f"{base}{path}?m={crypto.sign_token(_PURPOSE, message_id)}"


def message_id_of_url(url: str) -> int | None:
    """Return the message id in a URL of `build_callback_url`, or None if it contains no valid token."""
    tokens = parse_qs(urlsplit(url).query).get("m", [""])
    return crypto.read_token(_PURPOSE, tokens[0])


@lru_cache(64)
def _is_public_url(url: str) -> bool:
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
    is_unencrypted = url.startswith("http://") and _is_public_url(url)
    return [f"{setting}: {url} is not https: recipients and texts are sent unencrypted"] if is_unencrypted else []


def signing_time() -> float:
    """Return the time that signatures contain and are checked against, in seconds since 1970 UTC."""
    return clock.now()


# The interface of a provider.


class Provider(ABC):
    """The interface of an SMS provider. Implementations have no state and are registered in `PROVIDERS`."""

    name: ClassVar[str]
    can_look_up: ClassVar[bool] = False  # whether `find_accepted` works
    is_idempotent: ClassVar[bool] = False  # whether a message that is sent repeatedly is accepted only once
    chooses_sender: ClassVar[bool] = False  # whether it chooses a sender for a message without one
    hooks: ClassVar[tuple[str, ...]] = ()  # the paths of its webhooks under /hooks/, such as "twilio/status"

    @abstractmethod
    def find_setting_faults(self, sms: Sms | None = None) -> list[tuple[str, str]]:
        """Return (setting, fault) of each missing or invalid setting of this provider.

        `sms` are the settings to check, by default the current ones.
        """

    @abstractmethod
    async def send(self, text: OutgoingSms) -> AcceptedSms:
        """Send an SMS in one attempt; return the id that the provider gave it, and its first status.

        Calls `text.check` right before anything of the request is written. Raises RecipientRejected, ClientRejected
        (login), SenderRejected (sender, registration), RateLimited (with the seconds to wait), Deferred,
        ConnectionFailed (nothing of the request was written), or Uncertain (the SMS may have been accepted). In these
        errors, `enhanced` is the equivalent status code of RFC 3463 or None, `smtp` is the HTTP status, and the text
        begins with the provider's error code if there is one.
        """

    async def find_accepted(self, text: OutgoingSms, since: int) -> tuple[AcceptedSms, ...]:
        """Return the SMS that the provider accepted at `since` or later with the recipient, sender and body of `text`.

        They are in order of acceptance; `retries.settle_lookup` decides whether one of them is this message. `since` is
        in milliseconds since 1970 UTC. Raises LookupUnsupported if the provider lists no messages, or another
        DeliveryError if the lookup fails now.
        """
        raise LookupUnsupported("it lists no messages")

    async def check_login(self) -> str:
        """Check the login without sending an SMS, and return the result as a predicate, such as `accepts the login`.

        Raises DeliveryError if the login is rejected or the provider cannot be reached.
        """
        return "needs no login"

    def list_warnings(self) -> list[str]:
        """Return warnings about current settings that are valid but not recommended, by default none."""
        return []

    def get_webhook_secret(self) -> str:
        """Return the secret with which webhook requests are signed; if it is empty, the webhooks respond with 404."""
        return ""

    def parse_hook(self, hook: str, received: HookRequest) -> HookContents:
        """Verify and parse a request to the webhook with the path `hook` (one of `hooks`).

        Raises NotAllowed if the signature is invalid or too old, Invalid if the content is invalid, and NotFound if the
        provider has no webhooks.
        """
        raise NotFound

    def build_callback_url(self, message_id: int) -> str:
        """Return the URL where the provider posts receipts of a message, or an empty string if it sends none."""
        return ""
