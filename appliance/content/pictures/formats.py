"""Picture formats: detection, limits checked before decoding, and the messages to the child process that decodes."""

import re
import socket
import struct
import time
from typing import Literal, NamedTuple

import msgspec
from msgspec import Struct

Format = Literal["PNG", "JPEG", "GIF", "WEBP"]
MAX_PIXELS = 25_000_000
# A long thin picture has few pixels, but scaling takes memory and time for each pixel of its longest side.
MAX_SIDE = 10_000
# Each scan of a progressive JPEG takes a few bytes and as long as decoding the whole; encoders write about ten.
MAX_SCANS = 50
# The WebP library holds every pixel three times while it decodes.
MAX_WEBP_PIXELS = 10_000_000
TOO_MANY_PIXELS = f"has too many pixels (maximum is {MAX_PIXELS:,})"
_ANIMATED, _EXTENDED, _LOSSLESS, _LOSSY = 0x02, b"VP8X", b"VP8L", b"VP8 "


class UnusablePicture(Exception):
    """A file that is no usable picture; the message follows the name of its field."""


class Picture(NamedTuple):
    """A picture as it is served."""

    content: bytes
    content_type: str
    width: int
    height: int


class WebPHeader(NamedTuple):
    """The header of a WebP file."""

    width: int
    height: int
    is_animated: bool
    is_lossless: bool


def detect_format(content: bytes) -> Format:
    """Return the format of a file; raises UnusablePicture for all but PNG, JPEG, GIF and WebP."""
    if content.startswith(b"\x89PNG\r\n\x1a\n"):
        return "PNG"
    if content.startswith(b"\xff\xd8\xff"):
        return "JPEG"
    if content.startswith((b"GIF87a", b"GIF89a")):
        return "GIF"
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "WEBP"
    if not content:
        raise UnusablePicture("is empty")
    if b"<svg" in content[:4096].lower():
        raise UnusablePicture("is an SVG, which mail programs do not show: export it as a PNG")
    if content[4:8] == b"ftyp" and content[8:12] in (b"heic", b"heix", b"mif1", b"msf1", b"hevc", b"avif"):
        raise UnusablePicture("is a HEIC or AVIF picture, which few mail programs show: export it as a JPEG")
    raise UnusablePicture("is not a PNG, JPEG, GIF or WebP picture")


def check_size(width: int, height: int, max_pixels: int = MAX_PIXELS, max_side: int = MAX_SIDE) -> None:
    """Raise UnusablePicture for a picture whose pixels would exhaust the memory."""
    if width < 1 or height < 1:
        raise UnusablePicture("is broken")
    if max(width, height) > max_side:
        raise UnusablePicture(f"is too wide or too high (maximum is {max_side:,} pixels on each side)")
    if width * height > max_pixels:
        raise UnusablePicture(
            TOO_MANY_PIXELS
            if max_pixels == MAX_PIXELS
            else f"has too many pixels (maximum is {max_pixels:,} in this format)"
        )


# Pillow reads the fill bytes before a marker (ITU T.81, B.1.1.2) one by one: 4 MB of them take four seconds. Cameras
# pad their notes with the same byte, so some of it is allowed.
MAX_FILL_BYTES = 131_072
_FILL = re.compile(rb"\xff{1024,}")


def check_jpeg(content: bytes) -> None:
    """Raise UnusablePicture for a JPEG that would be decoded many times over."""
    if content.count(b"\xff\xda") > MAX_SCANS:
        raise UnusablePicture(f"has too many scans (maximum is {MAX_SCANS}): save it as a JPEG again")
    if sum(len(run) for run in _FILL.findall(content)) > MAX_FILL_BYTES:
        raise UnusablePicture("is padded with fill bytes: save it as a JPEG again")


def check_png(content: bytes) -> None:
    """Raise UnusablePicture for a PNG of several colour profiles: each may unpack to a megabyte, and one is allowed."""
    profiles, place = 0, 8
    while place + 8 <= len(content):
        size, name = struct.unpack_from(">I4s", content, place)
        profiles += name == b"iCCP"
        place += 12 + size
    if profiles > 1:
        raise UnusablePicture("is broken")


def read_webp_header(content: bytes) -> WebPHeader:
    """Return the header of a WebP, since its library allocates all pixels before their number can be checked."""
    name, head = content[12:16], content[20:30]
    if len(head) < 10:
        raise UnusablePicture("is cut off")
    if name == _EXTENDED:
        width = int.from_bytes(head[4:7], "little") + 1
        height = int.from_bytes(head[7:10], "little") + 1
        return WebPHeader(width, height, bool(head[0] & _ANIMATED), _LOSSLESS in _webp_chunks(content))
    if name == _LOSSLESS and head[0] == 0x2F:
        bits = int.from_bytes(head[1:5], "little")
        return WebPHeader((bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1, False, True)
    if name == _LOSSY and head[3:6] == b"\x9d\x01\x2a":
        width, height = struct.unpack("<HH", head[6:10])
        return WebPHeader(width & 0x3FFF, height & 0x3FFF, False, False)
    raise UnusablePicture("is broken")


def _webp_chunks(content: bytes) -> list[bytes]:
    """Return the chunk names of a WebP."""
    names: list[bytes] = []
    place = 12
    while place + 8 <= len(content) and len(names) < 100:
        names.append(content[place : place + 4])
        size = int.from_bytes(content[place + 4 : place + 8], "little")
        place += 8 + size + size % 2
    return names


# The messages between the service and the child process: a length, then MessagePack.

_LENGTH = struct.Struct(">I")


class ConvertTask(Struct, tag="remake"):
    """Re-encode an uploaded picture for emails."""

    content: bytes
    full_size: bool = False


class ShrinkTask(Struct, tag="shrink"):
    """Make a thumbnail of one of our pictures; `side` is its maximum width and height in pixels."""

    content: bytes
    side: int


class FindColoursTask(Struct, tag="find-colours"):
    """Find the dominant colours of a picture."""

    content: bytes


class TaskResult(Struct):
    """The result of a task, or why the picture is unusable.

    `is_exhausted`: memory ran out and is fragmented, so the next picture needs a new process.
    """

    unusable: str = ""
    is_exhausted: bool = False
    result: msgspec.Raw = msgspec.Raw(b"\xc0")  # nil


Task = ConvertTask | ShrinkTask | FindColoursTask


def send_message(connection: socket.socket, message: bytes) -> None:
    """Send one message, within the timeout of the socket."""
    connection.sendall(_LENGTH.pack(len(message)) + message)


def receive_message(connection: socket.socket, deadline: float | None = None) -> bytes:
    """Return the next message; raises EOFError at the end, TimeoutError past the deadline (`time.monotonic`)."""
    (length,) = _LENGTH.unpack(_receive_exactly(connection, _LENGTH.size, deadline))
    return bytes(_receive_exactly(connection, length, deadline))


def _receive_exactly(connection: socket.socket, length: int, deadline: float | None) -> bytearray:
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
