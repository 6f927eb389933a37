"""Requests of a command to a Campanero, by the transport of the Python client: retries, idempotency keys and pages.

The server may be hostile, or not the intended one. So redirects are not followed, which keeps the key from other hosts;
compressed responses are refused; and a response that is read into memory has a maximum size.
"""

import math
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import httpx

from appliance import VERSION
from appliance.remote.errors import UNREACHABLE, CommandError, ServiceError, UsageError
from appliance.remote.profiles import Profile
from campanero_client._transport import Page, Paginator, Transport
from campanero_client.errors import ApiError, CampaneroError, ConnectionFailed

API_PATH = "/v1/my"
MAX_RESPONSE_BYTES = 64 * 1024 * 1024
# The objects of a list that a command keeps, or in which it searches.
MAX_ROWS = 20_000
DEFAULT_RETRIES = 3
TIMEOUT_SECONDS = 30.0
Result = TypeVar("Result")


class _LimitedStream(httpx.SyncByteStream):
    """The content of a response. Reading more than `get_limit()` bytes raises CommandError."""

    def __init__(self, stream: httpx.SyncByteStream, get_limit: Callable[[], float]) -> None:
        self._stream, self._get_limit = stream, get_limit

    def __iter__(self) -> Iterator[bytes]:
        size = 0
        for chunk in self._stream:
            size += len(chunk)
            if size > self._get_limit():
                raise CommandError(f"the response is larger than {MAX_RESPONSE_BYTES // 1024**2} MiB")
            yield chunk

    def close(self) -> None:
        """Close the connection."""
        self._stream.close()


class Connection:
    """Sends the requests of a command with the key of a profile.

    Errors are raised as CommandError: ServiceError for an error response, exit code UNREACHABLE if there is no
    connection.
    """

    def __init__(self, profile: Profile, retries: int = DEFAULT_RETRIES) -> None:
        self.url = profile.url
        self._max_bytes: float = MAX_RESPONSE_BYTES
        http = httpx.Client(
            verify=_verification(profile.url), timeout=TIMEOUT_SECONDS, follow_redirects=False,
            headers={"Accept-Encoding": "identity"}, event_hooks={"response": [self._guard_response]},
        )  # fmt: skip
        try:
            self._transport = Transport(
                profile.url, profile.key, max_retries=retries, user_agent=f"campanero/{VERSION}", http_client=http
            )
        except ValueError as error:
            raise UsageError(str(error)) from None

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Return a response; see `locate` for the path and `Transport.request` for the options."""
        return self._guarded(lambda: self._transport.request(method, locate(path), **options))

    def call(self, method: str, path: str, **options: Any) -> Any:
        """Return the JSON of a response, or None if it has no content."""
        return _parse_json(self.request(method, path, **options))

    def pages(self, path: str, query: dict[str, Any], is_streamed: bool = False) -> Iterator[Page[Any]]:
        """Yield the pages of a list, each requested when it is needed.

        Raises CommandError for a list that does not end: a page leads back to an earlier one, or on without objects, or
        there are more than `MAX_ROWS` objects, unless `is_streamed`, for a command that prints each page at once.
        """
        count = 0
        pages = Paginator[Any](self._transport, locate(path), query).pages()
        while True:
            page = self._guarded(lambda: next(pages, None))
            if page is None:
                return
            count += len(page.items)
            if count > MAX_ROWS and not is_streamed:
                raise CommandError(f"{self.url} gave a list of more than {MAX_ROWS} objects")
            yield page
            if not page.items and page.next_number is not None:
                raise CommandError(f"{self.url} gave an invalid response: a list without objects goes on")

    @contextmanager
    def stream(
        self, path: str, query: dict[str, Any] | None = None
    ) -> Iterator[tuple[httpx.Response, Iterator[bytes]]]:
        """Yield the response to a GET and an iterator of its content as it arrives; the size is not limited."""
        with self._errors(), self._transport.stream(locate(path), query=query) as response:
            self._max_bytes = math.inf
            try:
                yield response, response.iter_bytes()
            finally:
                self._max_bytes = MAX_RESPONSE_BYTES

    def _guard_response(self, response: httpx.Response) -> None:
        if response.headers.get("content-encoding", "identity") != "identity":
            # A few compressed bytes could become gigabytes, and the request did not ask for compression.
            raise CommandError("the response is compressed")
        assert isinstance(response.stream, httpx.SyncByteStream)
        response.stream = _LimitedStream(response.stream, lambda: self._max_bytes)

    def _guarded(self, send: Callable[[], Result]) -> Result:
        with self._errors():
            return send()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except ApiError as error:
            raise ServiceError(error, self.url) from error
        except (ConnectionFailed, httpx.TransportError) as error:
            raise CommandError(f"{self.url} cannot be reached: {error}", UNREACHABLE) from None
        except (CampaneroError, httpx.InvalidURL, ValueError, RecursionError) as error:
            raise CommandError(f"{self.url} gave an invalid response: {error}") from None


def _verification(url: str) -> Any:
    """Return the TLS context; for http without the system's CA certificates, which take 30 ms to read."""
    return ssl.create_default_context() if url.startswith("https:") else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def _parse_json(response: httpx.Response) -> Any:
    if not response.content:
        return None
    try:
        return response.json()
    except (ValueError, RecursionError):
        raise CommandError(f"{response.url.host} gave an invalid response: it is not JSON") from None


def locate(path: str) -> str:
    """Return the absolute path of an endpoint, which is given absolute or below `/v1/my`. Raises UsageError.

    `/account` and `account` become `/v1/my/account`; paths outside of the API, such as `/healthz`, are unchanged.
    """
    text = path if path.startswith("/") else f"/{path}"
    steps = text.partition("?")[0].split("/")
    if "\\" in text or not text.isprintable() or " " in text or "#" in text or text.startswith("//"):
        raise UsageError(f"{path} is not a path such as /campaigns/7")
    if {".", ".."} & {step.lower().replace("%2e", ".") for step in steps} or "://" in text:
        raise UsageError(f"{path} is not a path such as /campaigns/7")
    if steps[1] in ("v1", "m", "openapi.yaml", "healthz", "readyz", "metrics"):
        return text
    return API_PATH + text
