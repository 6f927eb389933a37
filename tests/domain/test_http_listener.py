"""The listener of plain http: connections that send nothing cannot keep others out."""

import asyncio
import socket
from collections.abc import Callable
from typing import Any

from appliance.accounts.public_urls import HostTable
from appliance.http import http_listener
from appliance.http.http_listener import HttpListener

BASE_URL = "https://mail.example"


class NoChallenges:
    """Challenges of which none is live."""

    def find_response(self, path: str) -> bytes | None:
        """Return None."""
        return None


def run_with_listener(test: Callable[[int], Any]) -> Any:
    """Run a function in a thread with the port of a listener, and return its value."""

    async def run() -> Any:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        listener = HttpListener(f"127.0.0.1:{port}", BASE_URL, NoChallenges(), HostTable())  # type: ignore[arg-type]  # no store
        listener.bind()
        await listener.start()
        try:
            return await asyncio.to_thread(test, port)
        finally:
            listener.stop()

    return asyncio.run(run())


def connect(port: int, client: str) -> socket.socket:
    """Return a connection from an address of the loopback network."""
    return socket.create_connection(("127.0.0.1", port), 5, (client, 0))


def ask(port: int, client: str) -> bytes:
    """Return the beginning of the response to a request, nothing if the connection was closed."""
    with connect(port, client) as connection:
        try:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            return connection.recv(12)
        except ConnectionError:
            return b""


def test_idle_connections_of_one_client_keep_nobody_else_out() -> None:
    """The client itself has to wait, others are answered."""

    def fill(port: int) -> tuple[bytes, bytes]:
        held = [connect(port, "127.0.0.2") for _ in range(http_listener._MAX_CLIENT_CONNECTIONS)]
        try:
            return ask(port, "127.0.0.2"), ask(port, "127.0.0.3")
        finally:
            for connection in held:
                connection.close()

    assert run_with_listener(fill) == (b"", b"HTTP/1.1 301")


def test_the_oldest_connection_makes_room_for_a_new_one() -> None:
    """Many clients that hold all connections do not keep out the CA."""

    def fill(port: int) -> tuple[bytes, bytes]:
        clients = http_listener._MAX_CONNECTIONS // http_listener._MAX_CLIENT_CONNECTIONS
        held = [
            connect(port, f"127.0.1.{client + 1}")
            for client in range(clients)
            for _ in range(http_listener._MAX_CLIENT_CONNECTIONS)
        ]
        try:
            answer = ask(port, "127.0.0.3")
            try:
                return answer, held[0].recv(1)
            except ConnectionError:
                return answer, b""
        finally:
            for connection in held:
                connection.close()

    assert run_with_listener(fill) == (b"HTTP/1.1 301", b"")
