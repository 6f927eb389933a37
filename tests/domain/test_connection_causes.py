"""Why a mail server could not be used: each cause in words of its own, with host and port and what to do."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from appliance.core.errors import DeliveryError
from appliance.sending.delivery import smtp_connect
from appliance.sending.delivery.smtp_client import Server

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def replies(*lines: str) -> Talk:
    """Let a server say these lines, the first unasked and each further one after a line of the client's."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for index, line in enumerate(lines):
            if index and not await reader.readline():
                break
            writer.write(f"{line}\r\n".encode())
        await writer.drain()
        await reader.read()
        writer.close()

    return talk


async def hangs_up(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """End every connection at once."""
    writer.close()


async def says_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Take a connection and never speak."""
    await reader.read()
    writer.close()


def failed(talk: Talk | None, **more: Any) -> tuple[DeliveryError, int]:
    """Return why a conversation with a server failed, and its port; without `talk` nothing listens there."""

    async def run() -> tuple[DeliveryError, int]:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = int(free.getsockname()[1])
        running = await asyncio.start_server(talk, "127.0.0.1", port) if talk is not None else None
        try:
            await smtp_connect.open_connection(
                Server(more.pop("host", "127.0.0.1"), port, more.pop("tls", "none"), **more)
            )
        except DeliveryError as error:
            return error, port
        finally:
            if running is not None:
                running.close()
        raise AssertionError("it was connected")

    return asyncio.run(run())


LOGIN = {"username": "ana", "password": "wrong"}


@pytest.mark.parametrize(
    ("talk", "more", "cause", "words", "help"),
    [
        (None, {}, "refused",
         "127.0.0.1:{port} cannot be reached: connection refused, nothing is listening on this port",
         "server is running"),
        (None, {"host": "nobody.invalid"}, "unknown_name",
         "nobody.invalid:{port} cannot be reached: DNS does not know this host name", "spelling"),
        (hangs_up, {}, "closed", "127.0.0.1:{port} cannot be reached: the server closed the connection", ""),
        (says_nothing, {"command_timeout": 0.2}, "timed_out", "127.0.0.1:{port} cannot be reached: no reply within",
         "firewall"),
        (replies("220 hi"), {"tls": "tls"}, "tls",
         "TLS with 127.0.0.1:{port} failed: the server does not speak TLS on this port", "587"),
        (replies("421 4.3.2 try later"), {}, "busy", "421 4.3.2 try later", "try again"),
        (replies("554 5.7.1 you are listed"), {}, "rejected", "554 5.7.1 you are listed", "its answer"),
        (replies("220 hi", "250-hi\r\n250 AUTH PLAIN", "535 5.7.8 bad credentials"), LOGIN, "login",
         "535 5.7.8 bad credentials", "user name and password"),
    ],
)  # fmt: skip
def test_each_cause_has_words_of_its_own(talk: Talk | None, more: Any, cause: str, words: str, help: str) -> None:
    """A refused connection is not a rejected login: host, port, what happened, and what to do about it."""
    error, port = failed(talk, **more)
    assert error.cause == cause and error.text.startswith(words.format(port=port))
    assert help in error.help
