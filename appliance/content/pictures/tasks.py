"""What the service and the child process that decodes pictures say to each other: a length, then MessagePack."""

import socket
import struct
import time

import msgspec
from msgspec import Struct

_LENGTH = struct.Struct(">I")


class Remake(Struct, tag="remake"):
    """Make a picture that emails can show of an uploaded file."""

    content: bytes
    full_size: bool = False


class Shrink(Struct, tag="shrink"):
    """Make a thumbnail of one of our pictures, at most so many pixels wide and high."""

    content: bytes
    side: int


class FindColours(Struct, tag="find-colours"):
    """Find the colours that a picture is known by."""

    content: bytes


class Answer(Struct):
    """What became of a task: its result, or why the picture cannot be used (`unusable`).

    `is_exhausted`: memory ran out, what is left of it is in pieces, and the next picture needs a fresh process.
    """

    unusable: str = ""
    is_exhausted: bool = False
    result: msgspec.Raw = msgspec.Raw(b"\xc0")  # nil


Task = Remake | Shrink | FindColours


def send(connection: socket.socket, message: bytes) -> None:
    """Send one message, within the timeout of the socket."""
    connection.sendall(_LENGTH.pack(len(message)) + message)


def receive(connection: socket.socket, deadline: float | None = None) -> bytes:
    """Return the next message; raises EOFError at the end, TimeoutError past the deadline (`time.monotonic`)."""
    (length,) = _LENGTH.unpack(_exactly(connection, _LENGTH.size, deadline))
    return bytes(_exactly(connection, length, deadline))


def _exactly(connection: socket.socket, length: int, deadline: float | None) -> bytearray:
    received = bytearray(length)
    view, place = memoryview(received), 0
    while place < length:
        if deadline is not None:
            connection.settimeout(max(0.001, deadline - time.monotonic()))
        count = connection.recv_into(view[place:])
        if not count:
            raise EOFError
        place += count
    return received
