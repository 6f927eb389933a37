"""The HTTP transport of the client, once for threads and once for async code: retries, errors, files and pages.

`Transport.request` returns the response itself, `call` its JSON. Importing this module imports httpx and nothing of the
generated client, so programs that need no more, such as a command, start quickly.
"""

import os
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Generic, Self, TypeVar, overload

import httpx

from campanero_client._requests import (
    DEFAULT_MAX_RETRIES,
    DEFAULT_MAX_RETRY_SECONDS,
    DEFAULT_TIMEOUT_SECONDS,
    Attempts,
    Query,
    RequestBuilder,
    RetryPolicy,
    api_error,
    can_resend,
    connection_error,
    decode_json,
    header_number,
)
from campanero_client.errors import CampaneroError

T = TypeVar("T")
MAX_PAGE_SIZE = 100


class Page(Sequence[T]):
    """One page of a list: a sequence of its objects, with `number`, `pages` and `total` of the whole list."""

    def __init__(self, response: httpx.Response) -> None:
        self.items: list[T] = decode_json(response.content)
        self.number = header_number(response, "x-page-number") or 1
        self.pages = header_number(response, "x-total-pages") or 0
        self.total = header_number(response, "x-total-count") or 0
        self.next_number = header_number(response, "x-next-page")

    @overload
    def __getitem__(self, index: int) -> T: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[T]: ...

    def __getitem__(self, index: int | slice) -> T | Sequence[T]:
        return self.items[index]

    def __len__(self) -> int:
        return len(self.items)

    def __repr__(self) -> str:
        return f"<page {self.number} of {self.pages}, {self.total} objects in all>"


def _page_query(query: Query, number: int | None) -> dict[str, Any]:
    """Return the query of a page: by default the first, with as many objects as a page can have."""
    sizes = ("limit", "per_page", "per")
    size = {} if any(query.get(name) is not None for name in sizes) else {"limit": MAX_PAGE_SIZE}
    return {**query, **size, **({} if number is None else {"page": number})}


def _next_number(page: Page[T], number: int | None) -> int | None:
    """Return the number of the page after the page `number`, None for the first; None if it is the last.

    Raises CampaneroError if the service leads back, because the list would never end.
    """
    following = page.next_number
    if following is not None and following <= (number or 0):
        raise CampaneroError(f"the list leads back from page {number or 1} to page {following}")
    return following


class Paginator(Generic[T]):
    """All objects of a list. Iterating makes a request for each page when it is reached."""

    def __init__(self, transport: "Transport", path: str, query: Query) -> None:
        self._transport, self._path, self._query = transport, path, query

    def __iter__(self) -> Iterator[T]:
        for page in self.pages():
            yield from page.items

    def pages(self) -> Iterator[Page[T]]:
        """Yield the pages, from `page` of the query on, else from the first.

        Raises CampaneroError if a page leads back to an earlier one.
        """
        page: Page[T] = self.page()
        yield page
        number = _next_number(page, None)
        while number is not None:
            page = self.page(number)
            yield page
            number = _next_number(page, number)

    def page(self, number: int | None = None) -> Page[T]:
        """Return one page; its `total` is the number of objects on all pages."""
        return Page(self._transport.request("GET", self._path, query=_page_query(self._query, number)))


class AsyncPaginator(Generic[T]):
    """All objects of a list, for `async for`. Iterating makes a request for each page when it is reached."""

    def __init__(self, transport: "AsyncTransport", path: str, query: Query) -> None:
        self._transport, self._path, self._query = transport, path, query

    async def __aiter__(self) -> AsyncIterator[T]:
        async for page in self.pages():
            for item in page.items:
                yield item

    async def pages(self) -> AsyncIterator[Page[T]]:
        """Yield the pages, from `page` of the query on, else from the first.

        Raises CampaneroError if a page leads back to an earlier one.
        """
        page: Page[T] = await self.page()
        yield page
        number = _next_number(page, None)
        while number is not None:
            page = await self.page(number)
            yield page
            number = _next_number(page, number)

    async def page(self, number: int | None = None) -> Page[T]:
        """Return one page; its `total` is the number of objects on all pages."""
        return Page(await self._transport.request("GET", self._path, query=_page_query(self._query, number)))


class Download:
    """A file that the service makes, read while it arrives. Each method makes a request of its own.

    A file that arrives incomplete raises ConnectionFailed.
    """

    def __init__(self, transport: "Transport", path: str, query: Query) -> None:
        self._transport, self._path, self._query = transport, path, query

    def chunks(self) -> Iterator[bytes]:
        """Yield the content in chunks of any size."""
        with self._transport.stream(self._path, query=self._query) as response:
            yield from _guarded(response)

    def lines(self) -> Iterator[str]:
        r"""Yield the lines of a text with their line ends, as `csv.reader` expects them; only `\n` ends a line."""
        rest = b""
        for chunk in self.chunks():
            *lines, rest = (rest + chunk).split(b"\n")
            yield from (f"{line.decode()}\n" for line in lines)
        if rest:
            yield rest.decode()

    def records(self) -> Iterator[Any]:
        """Yield the objects of a file with one JSON object a line."""
        yield from (decode_json(line) for line in self.lines())

    def read(self) -> bytes:
        """Return the whole content."""
        return b"".join(self.chunks())

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the content to a file and return its path. The file is replaced once all of it has arrived."""
        target = Path(path)
        partial = target.with_name(f".{target.name}.{os.getpid()}.part")
        try:
            with partial.open("wb") as file:
                for chunk in self.chunks():
                    file.write(chunk)
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)
        return target


class AsyncDownload:
    """A file that the service makes, read while it arrives. Each method makes a request of its own.

    A file that arrives incomplete raises ConnectionFailed.
    """

    def __init__(self, transport: "AsyncTransport", path: str, query: Query) -> None:
        self._transport, self._path, self._query = transport, path, query

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the content in chunks of any size."""
        async with self._transport.stream(self._path, query=self._query) as response:
            try:
                async for chunk in response.aiter_bytes():
                    yield chunk
            except httpx.TransportError as error:
                raise connection_error(response.request, error) from error

    async def lines(self) -> AsyncIterator[str]:
        r"""Yield the lines of a text with their line ends; only `\n` ends a line."""
        rest = b""
        async for chunk in self.chunks():
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                yield f"{line.decode()}\n"
        if rest:
            yield rest.decode()

    async def records(self) -> AsyncIterator[Any]:
        """Yield the objects of a file with one JSON object a line."""
        async for line in self.lines():
            yield decode_json(line)

    async def read(self) -> bytes:
        """Return the whole content."""
        return b"".join([chunk async for chunk in self.chunks()])

    async def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the content to a file and return its path. The file is replaced once all of it has arrived."""
        target = Path(path)
        partial = target.with_name(f".{target.name}.{os.getpid()}.part")
        try:
            with partial.open("wb") as file:
                async for chunk in self.chunks():
                    file.write(chunk)
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)
        return target


def _guarded(response: httpx.Response) -> Iterator[bytes]:
    """Yield the content of a response. Raises ConnectionFailed if the connection breaks."""
    try:
        yield from response.iter_bytes()
    except httpx.TransportError as error:
        raise connection_error(response.request, error) from error


class Transport:
    """Sends requests to one service with one API key. Threads may share it.

    `url` is the address of the service, such as `https://mail.example.com`. `timeout` is the number of seconds for
    connecting, and for each part that is sent or received. `user_agent` stands before the client's own name.
    `http_client` is an httpx client of your own, for example with a proxy; closing it is up to you.
    """

    def __init__(
        self,
        url: str,
        key: str | None = None,
        *,
        timeout: float = DEFAULT_TIMEOUT_SECONDS,
        max_retries: int = DEFAULT_MAX_RETRIES,
        max_retry_seconds: float = DEFAULT_MAX_RETRY_SECONDS,
        user_agent: str | None = None,
        http_client: httpx.Client | None = None,
    ) -> None:
        self._builder = RequestBuilder(url, key, user_agent)
        self._policy = RetryPolicy(max_retries, max_retry_seconds)
        self._http = httpx.Client(timeout=timeout) if http_client is None else http_client
        self._is_own = http_client is None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Transport({self._builder.url!r})"

    def close(self) -> None:
        """Close all connections, unless they belong to an httpx client that was passed."""
        if self._is_own:
            self._http.close()

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        idempotency_key: str | None = None,
        data: Mapping[str, Any] | None = None,
        files: Mapping[str, Any] | None = None,
    ) -> httpx.Response:
        """Return the response to a request. Raises ApiError or ConnectionFailed.

        `path` is the whole path, such as `/v1/my/contacts`. `body` is sent as JSON, or `data` and `files` as the fields
        and files of a form, in the shapes of httpx.
        """
        request, is_repeatable = self._builder.build(
            self._http, method, path, query, body, headers, idempotency_key, data=data, files=files
        )
        return self._send(request, Attempts(self._policy, is_repeatable, can_resend(files)), is_stream=False)

    def call(self, method: str, path: str, *, query: Query | None = None, body: Any = None, **options: Any) -> Any:
        """Return the JSON of a response, or None if it has no content; parameters and errors as for `request`."""
        content = (self.request(method, path, query=query, body=body, **options)).content
        return decode_json(content) if content else None

    @contextmanager
    def stream(self, path: str, *, query: Query | None = None) -> Iterator[httpx.Response]:
        """Yield the response to a GET before its content arrives. Nothing is repeated once it has begun."""
        request, is_repeatable = self._builder.build(self._http, "GET", path, query, None, None, None)
        response = self._send(request, Attempts(self._policy, is_repeatable), is_stream=True)
        try:
            yield response
        finally:
            response.close()

    def _send(self, request: httpx.Request, attempts: Attempts, is_stream: bool) -> httpx.Response:
        while True:
            try:
                response = self._http.send(request, stream=is_stream)
                if response.status_code < 300:
                    return response
                if is_stream:
                    response.read()
                error: CampaneroError = api_error(response)
            except httpx.TransportError as cause:
                error = connection_error(request, cause)
            time.sleep(attempts.next_delay(error))


class AsyncTransport:
    """Sends requests to one service with one API key.

    `url` is the address of the service, such as `https://mail.example.com`. `timeout` is the number of seconds for
    connecting, and for each part that is sent or received. `user_agent` stands before the client's own name.
    `http_client` is an httpx client of your own, for example with a proxy; closing it is up to you.
    """

    def __init__(
        self,
        url: str,
        key: str | None = None,
        *,
        timeout: float = DEFAULT_TIMEOUT_SECONDS,
        max_retries: int = DEFAULT_MAX_RETRIES,
        max_retry_seconds: float = DEFAULT_MAX_RETRY_SECONDS,
        user_agent: str | None = None,
        http_client: httpx.AsyncClient | None = None,
    ) -> None:
        self._builder = RequestBuilder(url, key, user_agent)
        self._policy = RetryPolicy(max_retries, max_retry_seconds)
        self._http = httpx.AsyncClient(timeout=timeout) if http_client is None else http_client
        self._is_own = http_client is None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"AsyncTransport({self._builder.url!r})"

    async def close(self) -> None:
        """Close all connections, unless they belong to an httpx client that was passed."""
        if self._is_own:
            await self._http.aclose()

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        idempotency_key: str | None = None,
        data: Mapping[str, Any] | None = None,
        files: Mapping[str, Any] | None = None,
    ) -> httpx.Response:
        """Return the response to a request. Raises ApiError or ConnectionFailed.

        `path` is the whole path, such as `/v1/my/contacts`. `body` is sent as JSON, or `data` and `files` as the fields
        and files of a form, in the shapes of httpx.
        """
        request, is_repeatable = self._builder.build(
            self._http, method, path, query, body, headers, idempotency_key, data=data, files=files
        )
        return await self._send(request, Attempts(self._policy, is_repeatable, can_resend(files)), is_stream=False)

    async def call(
        self, method: str, path: str, *, query: Query | None = None, body: Any = None, **options: Any
    ) -> Any:
        """Return the JSON of a response, or None if it has no content; parameters and errors as for `request`."""
        content = (await self.request(method, path, query=query, body=body, **options)).content
        return decode_json(content) if content else None

    @asynccontextmanager
    async def stream(self, path: str, *, query: Query | None = None) -> AsyncIterator[httpx.Response]:
        """Yield the response to a GET before its content arrives. Nothing is repeated once it has begun."""
        request, is_repeatable = self._builder.build(self._http, "GET", path, query, None, None, None)
        response = await self._send(request, Attempts(self._policy, is_repeatable), is_stream=True)
        try:
            yield response
        finally:
            await response.aclose()

    async def _send(self, request: httpx.Request, attempts: Attempts, is_stream: bool) -> httpx.Response:
        while True:
            try:
                response = await self._http.send(request, stream=is_stream)
                if response.status_code < 300:
                    return response
                if is_stream:
                    await response.aread()
                error: CampaneroError = api_error(response)
            except httpx.TransportError as cause:
                error = connection_error(request, cause)
            await _sleep(attempts.next_delay(error))


async def _sleep(seconds: float) -> None:
    """Wait in the event loop that runs, which is that of asyncio or trio."""
    import anyio  # costs a tenth of a second, and programs without async code do without it

    await anyio.sleep(seconds)
