"""The health check of public addresses of accounts, whose names may lead to servers of strangers."""

import socket
import threading
import time
from contextlib import suppress
from http.client import HTTPException

import pytest

from appliance.ops.doctor import account_addresses


def test_a_server_that_never_ends_its_response(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that sends a byte now and then does not hold the health check."""
    monkeypatch.setattr(account_addresses, "_MAX_RESPONSE_SECONDS", 0.3)
    done = threading.Event()

    def serve() -> None:
        client, _ = listener.accept()
        with client, suppress(OSError):
            client.sendall(b"HTTP/1.1 200 OK\r\nX: ")
            while not done.wait(0.05):
                client.sendall(b"a")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        timer = threading.Timer(10, done.set)
        timer.start()
        started = time.monotonic()
        try:
            with suppress(OSError, HTTPException):
                assert account_addresses._request(f"http://127.0.0.1:{listener.getsockname()[1]}", "/") == (b"", None)
            assert time.monotonic() - started < 8
        finally:
            done.set()
            timer.cancel()
            thread.join()
