"""Errors of connections to mail servers: each has its cause, a text with host and port, and a help text."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from appliance.core.errors import DeliveryError
from appliance.sending.delivery import smtp_connect
from appliance.sending.delivery.smtp_client import Server

Conversation = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def reply_lines(*lines: str) -> Conversation:
    """Return a server that sends these lines: the first at once, each further one after a line of the client."""

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for index, line in enumerate(lines):
            if index and not await reader.readline():
                break
            writer.write(f"{line}\r\n".encode())
        await writer.drain()
        await reader.read()
        writer.close()

    return converse


async def hang_up(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Close the connection at once."""
    writer.close()


async def stay_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Accept a connection and send nothing."""
    await reader.read()
    writer.close()


def fail_to_connect(conversation: Conversation | None, **options: Any) -> tuple[DeliveryError, int]:
    """Return the error of connecting to a server, and its port; without `talk` no server listens there."""

    async def run() -> tuple[DeliveryError, int]:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = int(free.getsockname()[1])
        server = await asyncio.start_server(conversation, "127.0.0.1", port) if conversation is not None else None
        try:
            await smtp_connect.open_connection(
                Server(options.pop("host", "127.0.0.1"), port, options.pop("tls", "none"), **options)
            )
        except DeliveryError as error:
            return error, port
        finally:
            if server is not None:
                server.close()
        raise AssertionError("it was connected")

    return asyncio.run(run())


LOGIN = {"username": "ana", "password": "wrong"}


@pytest.mark.parametrize(
    ("conversation", "options", "cause", "text", "help"),
    [
        (None, {}, "refused",
         "127.0.0.1:{port} cannot be reached: connection refused, nothing is listening on this port",
         "server is running"),
        (None, {"host": "nobody.invalid"}, "unknown_name",
         "nobody.invalid:{port} cannot be reached: DNS does not know this host name", "spelling"),
        (hang_up, {}, "closed", "127.0.0.1:{port} cannot be reached: the server closed the connection", ""),
        (stay_silent, {"command_timeout": 0.2}, "timed_out", "127.0.0.1:{port} cannot be reached: no reply within",
         "firewall"),
        (reply_lines("220 hi"), {"tls": "tls"}, "tls",
         "TLS with 127.0.0.1:{port} failed: the server does not speak TLS on this port", "587"),
        (reply_lines("421 4.3.2 try later"), {}, "busy", "421 4.3.2 try later", "try again"),
        (reply_lines("554 5.7.1 you are listed"), {}, "rejected", "554 5.7.1 you are listed", "its answer"),
        (reply_lines("220 hi", "250-hi\r\n250 AUTH PLAIN", "535 5.7.8 bad credentials"), LOGIN, "login",
         "535 5.7.8 bad credentials", "user name and password"),
    ],
)  # fmt: skip
def test_each_connection_error_has_its_own_text(
    conversation: Conversation | None, options: Any, cause: str, text: str, help: str
) -> None:
    """Each failure gives its cause, a text with host, port and what happened, and a matching help text."""
    error, port = fail_to_connect(conversation, **options)
    assert error.cause == cause and error.text.startswith(text.format(port=port))
    assert help in error.help
