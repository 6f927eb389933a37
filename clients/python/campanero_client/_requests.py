"""What the two transports share: building a request, deciding about a retry, and reading a response."""

import json
import random
import re
import sys
import time
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import IO, Any, NamedTuple
from urllib.parse import quote, urlsplit

import httpx

from campanero_client._idempotency import IDEMPOTENT_POSTS
from campanero_client._version import VERSION
from campanero_client.errors import ApiError, CampaneroError, ConnectionFailed, error_of_status

DEFAULT_TIMEOUT_SECONDS = 30.0
DEFAULT_MAX_RETRIES = 4
DEFAULT_MAX_RETRY_SECONDS = 60.0
MAX_BACKOFF_SECONDS = 8.0
_FIRST_BACKOFF_SECONDS = 0.5
_MAX_JITTER = 0.25
_REPEATABLE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE"})
# The errors with which the service says that it has not carried out the request
_NOT_DONE_CODES = frozenset({"rate_limited", "storage_unavailable", "unavailable"})
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_NEVER_RETRIED = (httpx.UnsupportedProtocol, httpx.LocalProtocolError)
_KEY = re.compile(r"[!-~]+")

Query = Mapping[str, Any]
File = bytes | IO[bytes] | tuple[str, bytes | IO[bytes]]


class RetryPolicy(NamedTuple):
    """How often and how long a request is repeated: at most `max_retries` times, and for `max_seconds` in all."""

    max_retries: int
    max_seconds: float


class Attempts:
    """The attempts of one request.

    Repeated are requests that were not sent, and requests that the service has not carried out (429, and 503 with a
    code of the service). After a broken connection, or 502, 503 or 504 of a proxy, only requests are repeated that have
    no further effect when they arrive twice.
    """

    def __init__(self, policy: RetryPolicy, is_repeatable: bool, can_resend: bool = True) -> None:
        self._left = policy.max_retries if can_resend else 0
        self._deadline = time.monotonic() + policy.max_seconds
        self._is_repeatable = is_repeatable
        self._backoff = _FIRST_BACKOFF_SECONDS

    def next_delay(self, error: CampaneroError) -> float:
        """Return the seconds to wait before the next attempt. Raises the error if there is none."""
        if self._left <= 0 or not self._may_repeat(error):
            raise error
        retry_after = error.retry_after if isinstance(error, ApiError) else None
        if retry_after is None:
            delay = random.uniform(self._backoff / 2, self._backoff)
        else:
            delay = retry_after + random.uniform(0, _MAX_JITTER) * max(retry_after, _FIRST_BACKOFF_SECONDS)
        if time.monotonic() + delay > self._deadline:
            raise error
        self._left -= 1
        self._backoff = min(MAX_BACKOFF_SECONDS, self._backoff * 2)
        return delay

    def _may_repeat(self, error: CampaneroError) -> bool:
        if isinstance(error, ConnectionFailed):
            can_help = not isinstance(error.__cause__, _NEVER_RETRIED)
            return can_help and (self._is_repeatable or not error.was_sent)
        if not isinstance(error, ApiError):
            return False
        if error.status == 429 or (error.status == 503 and error.code in _NOT_DONE_CODES):
            return True
        return self._is_repeatable and error.status in (502, 503, 504)


class RequestBuilder:
    """Builds the requests to one service with one API key. The key is in no `repr` and no error."""

    def __init__(self, url: str, key: str | None, user_agent: str | None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise ValueError("url must be the address of the service, such as https://mail.example.com")
        if parts.username is not None:
            raise ValueError("url must not contain a user name or a password")
        self.url = url.rstrip("/")
        name = f"campanero-client/{VERSION} python/{sys.version_info[0]}.{sys.version_info[1]}"
        self.headers = {"User-Agent": f"{user_agent} {name}" if user_agent else name, "Accept": "*/*"}
        if key is not None:
            key = key.strip()
            if not _KEY.fullmatch(key):
                raise ValueError("key must be an API key: printable ASCII characters without spaces")
            self.headers["Authorization"] = f"Bearer {key}"

    def __repr__(self) -> str:
        return f"<{self.url}>"

    def build(
        self,
        http: httpx.Client | httpx.AsyncClient,
        method: str,
        path: str,
        query: Query | None,
        body: Any,
        headers: Mapping[str, str] | None,
        idempotency_key: str | None,
        **content: Any,
    ) -> tuple[httpx.Request, bool]:
        """Return a request, and whether it may be repeated without a further effect.

        `body` is sent as JSON unless it is None. A POST that the service carries out once for an Idempotency-Key gets
        a new key, unless it has one.
        """
        every = {**self.headers, **(headers or {})}
        is_repeatable = method in _REPEATABLE_METHODS
        if method == "POST" and IDEMPOTENT_POSTS.fullmatch(path):
            is_repeatable = True
            if not any(name.lower() == "idempotency-key" for name in headers or ()):
                own_key = body.get("idempotency_key") if isinstance(body, Mapping) else None
                every["Idempotency-Key"] = (
                    idempotency_key or (own_key if isinstance(own_key, str) else "") or _new_key()
                )
        if body is not None:
            content = {"content": encode_json(body)}
            every.setdefault("Content-Type", "application/json")
        parameters = encode_query(query) if query else None
        request = http.build_request(method, self.url + path, params=parameters, headers=every, **content)
        return request, is_repeatable


def _new_key() -> str:
    return str(uuid.uuid4())


def encode_json(value: Any) -> bytes:
    """Return a value as JSON. Raises ValueError for NaN and infinity, which JSON cannot express."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def decode_json(content: str | bytes) -> Any:
    """Return the value of a JSON text. Raises ValueError if it is not JSON, or nested too deeply."""
    try:
        return json.loads(content)
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None


def encode_query(query: Query) -> dict[str, str]:
    """Return the parameters as texts: booleans as `true` and `false`; parameters that are None are left out."""
    return {
        name: ("true" if value else "false") if isinstance(value, bool) else str(value)
        for name, value in query.items()
        if value is not None
    }


def path_segment(text: str) -> str:
    """Return a text as one segment of a path. Raises ValueError if it cannot be one."""
    if text in ("", ".", ".."):
        raise ValueError(f"{text!r} cannot be a part of a path")
    return quote(text, safe="")


def form_fields(fields: Mapping[str, Any]) -> dict[str, str]:
    """Return the fields of a form as texts: an object as JSON; fields that are None are left out."""
    texts = {name: encode_json(value).decode() for name, value in fields.items() if isinstance(value, Mapping | list)}
    return encode_query({**fields, **texts})


def parse_retry_after(value: str | None) -> float | None:
    """Return the seconds of a Retry-After header (RFC 9110, section 10.2.3), or None if there is no valid one."""
    if not value:
        return None
    if value.isascii() and value.isdecimal():
        return float(value)
    try:
        moment = parsedate_to_datetime(value)
    except (ValueError, OverflowError, TypeError):
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())


def api_error(response: httpx.Response) -> ApiError:
    """Return the exception of a response whose content was read; redirects are errors, because none is followed."""
    try:
        body = decode_json(response.content)
    except ValueError:
        body = {}
    retry_after = parse_retry_after(response.headers.get("retry-after"))
    kind = error_of_status(response.status_code)
    return kind(response.status_code, body if isinstance(body, dict) else {}, response.headers, retry_after)


def connection_error(request: httpx.Request, error: httpx.TransportError) -> ConnectionFailed:
    """Return the exception of a request without a complete response."""
    text = f"{request.method} {request.url.path}: {str(error) or type(error).__name__}"
    failure = ConnectionFailed(text, was_sent=not isinstance(error, _NOT_SENT))
    failure.__cause__ = error
    return failure


def can_resend(files: Mapping[str, Any] | None) -> bool:
    """Return whether all files of a multipart body can be read a second time."""
    for value in (files or {}).values():
        file = value[1] if isinstance(value, tuple) else value
        if hasattr(file, "read") and not (hasattr(file, "seekable") and file.seekable()):
            return False
    return True


def header_number(response: httpx.Response, name: str) -> int | None:
    """Return a header as an integer, or None if it is absent."""
    value = response.headers.get(name)
    return int(value) if value is not None and value.isdecimal() else None
