"""Send raw bytes to a server and read the response, over a connection that is reused if possible."""

import contextlib
import http.client
import socket
from typing import NamedTuple


class RawResponse(NamedTuple):
    """A response: status, headers and body."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes


class RawConnection:
    """A keep-alive connection to a port of this machine; use it as a context manager."""

    def __init__(self, port: int, timeout: float = 8) -> None:
        self._port, self._timeout = port, timeout
        self._socket: socket.socket | None = None

    def request(self, request: bytes, method: str = "GET") -> RawResponse:
        """Send a request and return its response; a kept connection that the server closed is opened again."""
        is_reused = self._socket is not None
        try:
            return self._request(request, method)
        except (ConnectionError, http.client.RemoteDisconnected):
            self.close()
            if not is_reused:
                raise
            return self._request(request, method)

    def _request(self, request: bytes, method: str) -> RawResponse:
        if self._socket is None:
            self._socket = socket.create_connection(("127.0.0.1", self._port), timeout=self._timeout)
        self._socket.sendall(request)
        response = http.client.HTTPResponse(self._socket, method=method)
        try:
            response.begin()
            raw_response = RawResponse(response.status, response.headers, response.read())
        finally:
            response.close()
        if response.will_close:
            self.close()
        return raw_response

    def close(self) -> None:
        """Close the connection if there is one."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def __enter__(self) -> "RawConnection":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def exchange_bytes(port: int, sent: bytes, timeout: float = 10) -> bytes:
    """Send bytes on a new connection; return all received bytes until the server closes it or the timeout passes."""
    received = bytearray()
    with socket.create_connection(("127.0.0.1", port), timeout=timeout) as link:
        link.sendall(sent)
        with contextlib.suppress(TimeoutError, ConnectionError):
            while piece := link.recv(65_536):
                received += piece
    return bytes(received)
