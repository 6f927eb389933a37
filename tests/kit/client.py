"""A small HTTP client that checks every response of /v1 against the OpenAPI document of the service."""

import contextlib
import http.client
import json
import select
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit

from tests.kit.contract import Contract
from tests.kit.fork_server import fork_server

_contract: Contract | None = None
_loading = threading.Lock()


@dataclass(frozen=True)
class Response:
    """An HTTP response."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def text(self) -> str:
        """Return the body as text."""
        return self.body.decode("utf-8")

    @property
    def json(self) -> Any:
        """Return the body parsed as JSON. Raises AssertionError if it is not JSON."""
        try:
            return json.loads(self.body)
        except ValueError:
            raise AssertionError(f"not JSON, status {self.status}: {self.body[:500]!r}") from None

    def expect(self, status: int) -> Any:
        """Return the JSON body, or None if it is empty. Raises AssertionError for another status."""
        if self.status != status:
            raise AssertionError(f"status {self.status}, not {status}: {self.body[:2000].decode(errors='replace')}")
        return self.json if self.body else None


def _was_closed(connection: http.client.HTTPConnection) -> bool:
    """Return whether the server has closed an idle connection, as it does after a minute."""
    return connection.sock is None or bool(select.select([connection.sock], [], [], 0)[0])


class Client:
    """Sends requests to one server with one key; `validate=False` turns off the check against the OpenAPI document."""

    def __init__(self, url: str, key: str | None = None, *, validate: bool = True, keep_alive: bool = False):
        self.url, self.key, self.validate, self.keep_alive = url, key, validate, keep_alive
        self.host = urlsplit(url).netloc
        self._thread_local = threading.local()

    # -- requests -------------------------------------------------------------------------------------------------

    def get(self, path: str, **query: Any) -> Response:
        """Send a GET with a query."""
        return self.send("GET", path, query=query)

    def post(self, path: str, body: Any = None, headers: Mapping[str, str] | None = None, **query: Any) -> Response:
        """Send a POST with a JSON body, by default `{}`."""
        return self.send("POST", path, {} if body is None else body, headers, query)

    def patch(self, path: str, body: Any = None, headers: Mapping[str, str] | None = None, **query: Any) -> Response:
        """Send a PATCH with a JSON body, by default `{}`."""
        return self.send("PATCH", path, {} if body is None else body, headers, query)

    def put(self, path: str, body: Any = None, headers: Mapping[str, str] | None = None, **query: Any) -> Response:
        """Send a PUT with a JSON body, by default `{}`."""
        return self.send("PUT", path, {} if body is None else body, headers, query)

    def delete(self, path: str, body: Any = None, **query: Any) -> Response:
        """Send a DELETE, with a JSON body if one is given."""
        return self.send("DELETE", path, body, None, query)

    def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, Any] | None = None,
    ) -> Response:
        """Send a JSON body with the API key; a `path` like `/contacts` means `/v1/my/contacts`."""
        path = path if path.startswith(("/v1/", "/openapi", "/healthz", "/readyz", "/metrics")) else "/v1/my" + path
        if query:
            path += "?" + urlencode(query, doseq=True)
        sent = {"Content-Type": "application/json"} if body is not None else {}
        if self.key:
            sent["Authorization"] = f"Bearer {self.key}"
        data = None if body is None else json.dumps(body).encode()
        return self.request(method, path, data, sent | dict(headers or {}))

    def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        validate: bool | None = None,
    ) -> Response:
        """Send exactly these bytes and headers, without the API key."""
        response = self._exchange(method, path, body, dict(headers or {}))
        if (self.validate if validate is None else validate) and path.startswith("/v1"):
            self.contract().check(method, path, response.status, response.headers, response.body)
        return response

    def _connect(self) -> http.client.HTTPConnection:
        if self.url.startswith("https://"):
            # Certificates of test servers are self-signed, so none is verified
            any_certificate = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            any_certificate.check_hostname, any_certificate.verify_mode = False, ssl.CERT_NONE
            return http.client.HTTPSConnection(self.host, timeout=60, context=any_certificate)
        return http.client.HTTPConnection(self.host, timeout=60)

    def _exchange(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> Response:
        # A new connection for each request by default, so that no POST is repeated on a lost connection
        connection = getattr(self._thread_local, "connection", None) if self.keep_alive else None
        if connection is None or _was_closed(connection):
            connection = self._connect()
        try:
            with contextlib.suppress(BrokenPipeError):
                # The server may refuse a request before its body was sent; the response follows.
                connection.request(method, path, body, headers)
            reply = connection.getresponse()
            response = Response(reply.status, reply.headers, reply.read())
        except BaseException:
            self._thread_local.connection = None
            connection.close()
            raise
        if self.keep_alive:
            self._thread_local.connection = connection
        else:
            connection.close()
        return response

    # -- helpers --------------------------------------------------------------------------------------------------

    def contract(self) -> Contract:
        """Return the OpenAPI document of the service, as the fork server has it: without the time for reading YAML."""
        global _contract
        with _loading:
            if _contract is None:
                _contract = Contract(fork_server().read_openapi())
            return _contract

    def all(self, path: str, **query: Any) -> list[Any]:
        """Return all rows of a list endpoint, page by page."""
        rows: list[Any] = []
        for number in range(1, 100_000):
            page = self.get(path, page=number, limit=100, **query)
            rows += page.expect(200)
            if number >= int(page.headers["X-Total-Pages"]):
                break
        return rows

    def wait(self, path: str, condition: Callable[[Any], bool], timeout: float = 90, **query: Any) -> Any:
        """Repeat a GET until the JSON body satisfies a condition, and return the body."""
        started_at = time.monotonic()
        while True:
            body = self.get(path, **query).expect(200)
            if condition(body):
                return body
            waited = time.monotonic() - started_at
            if waited > timeout:
                raise AssertionError(f"{path} did not become so within {timeout} s; it is {json.dumps(body)[:3000]}")
            # What takes longer is looked at less often, because each look takes the processors 10 ms
            time.sleep(min(max(0.03, waited / 10), 0.2))
