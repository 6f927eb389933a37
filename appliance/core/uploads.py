"""Receives a multipart form with one file as a stream; the file is written to disk and never held in memory.

With the `multipart` package 70 lines for limits, file names and blocking writes would remain; this parser needs 60
lines more and no dependency.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from functools import partial
from pathlib import Path
from typing import IO, NamedTuple, Protocol
from urllib.parse import unquote

_MAX_FIELD_BYTES = 65_536
_MAX_HEADER_BYTES = 8_192
_MAX_PARTS = 20
_BLOCK_BYTES = 1_048_576
# The maximum size of a form without its file.
_MAX_OTHER_BYTES = 262_144
_NAME = re.compile(rb'[;\s]name="((?:[^"\\]|\\.)*)"', re.IGNORECASE)
_FILENAME = re.compile(rb'[;\s]filename="((?:[^"\\]|\\.)*)"', re.IGNORECASE)
_BOUNDARY = re.compile(r'boundary=(?:"([^"]{1,70})"|([^;,\s]{1,70}))', re.IGNORECASE)


class Source(Protocol):
    """A request body that is read in pieces."""

    async def read(self) -> bytes | None:
        """Return the next piece, or None at the end of the body."""


class NotAForm(Exception):
    """The Content-Type is not multipart/form-data, or the body is compressed."""


class TooLarge(Exception):
    """The body, a field or a header exceeds its limit, or Content-Length announces a body over the limit."""


class MalformedForm(Exception):
    """The body is not a valid multipart form, is truncated, has too many parts, or has a text that is not UTF-8."""


class Form(NamedTuple):
    """A received form: its text fields by name, and the name and size in bytes of its file.

    `filename` is None if the form has no file.
    """

    texts: dict[str, str]
    filename: str | None
    size: int


def find_boundary(content_type: str) -> bytes | None:
    """Return the boundary in a Content-Type, or None if the type is not multipart/form-data or has no boundary."""
    if content_type.partition(";")[0].strip().lower() != "multipart/form-data":
        return None
    match = _BOUNDARY.search(content_type)
    return (match[1] or match[2]).encode("latin-1", "replace") if match else None


async def receive(headers: Mapping[str, str], source: Source, target: Path, max_bytes: int) -> Form:
    """Read a form and write its part `file` to `target`, which may remain incomplete after an error.

    Raises NotAForm, MalformedForm, or TooLarge if the file is larger than `max_bytes`. If Content-Length or the bytes
    received so far show the size, TooLarge is raised before the body is read completely.
    """
    boundary = find_boundary(headers.get("content-type") or "")
    length = headers.get("content-length") or "0"
    if length.isdecimal() and int(length) > max_bytes + _MAX_OTHER_BYTES:
        raise TooLarge
    if boundary is None or headers.get("content-encoding", "identity").lower() != "identity":
        raise NotAForm
    form = await _read_form(_Reader(_iterate_pieces(source), max_bytes + _MAX_OTHER_BYTES), boundary, target)
    if form.size > max_bytes:
        raise TooLarge
    return form


async def _iterate_pieces(source: Source) -> AsyncIterator[bytes]:
    while piece := await source.read():
        yield piece


async def _read_form(reader: "_Reader", boundary: bytes, target: Path) -> Form:
    texts: dict[str, str] = {}
    filename, size = None, 0
    await reader.read_until(b"--" + boundary, _MAX_HEADER_BYTES)
    for _ in range(_MAX_PARTS):
        if await reader.take(2) == b"--":
            await reader.drain()
            return Form(texts, filename, size)
        header = await reader.read_until(b"\r\n\r\n", _MAX_HEADER_BYTES)
        name = _NAME.search(header)
        if name is None:
            raise MalformedForm("a part has no name")
        end = b"\r\n--" + boundary
        if name[1] == b"file" and filename is None:
            filename = _parse_filename(header)
            with target.open("wb") as file:
                size = await reader.copy_until(end, file)
        else:
            texts[name[1].decode("utf-8", "replace")] = _decode_text(await reader.read_until(end, _MAX_FIELD_BYTES))
    raise MalformedForm("the form has too many parts")


def _decode_text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise MalformedForm("a text is not UTF-8") from None


def _parse_filename(header: bytes) -> str:
    match = _FILENAME.search(header)
    text = unquote(match[1].decode("utf-8", "replace")) if match else ""
    text = "".join(char for char in text.replace("\\", "/").rpartition("/")[2] if char.isprintable())
    return text[:255]


class _Reader:
    """A buffered reader of a request body of at most `limit` bytes.

    Its methods raise TooLarge beyond the limit. All except `drain` raise MalformedForm if the body ends too early.
    """

    def __init__(self, pieces: AsyncIterator[bytes], limit: int) -> None:
        self._pieces = pieces
        self._bytes_left = limit
        self._buffer = bytearray()

    async def _fill_buffer(self) -> None:
        piece = await anext(self._pieces, None)
        if piece is None:
            raise MalformedForm("the form is truncated")
        self._bytes_left -= len(piece)
        if self._bytes_left < 0:
            raise TooLarge
        self._buffer += piece

    async def drain(self) -> None:
        """Read and discard the rest of the body. Raises TooLarge."""
        async for piece in self._pieces:
            self._bytes_left -= len(piece)
            if self._bytes_left < 0:
                raise TooLarge

    async def take(self, count: int) -> bytes:
        while len(self._buffer) < count:
            await self._fill_buffer()
        return self._take_from_buffer(count)

    def _take_from_buffer(self, count: int) -> bytes:
        data = bytes(self._buffer[:count])
        del self._buffer[:count]
        return data

    async def read_until(self, end: bytes, max_bytes: int) -> bytes:
        """Return the bytes before `end`, and skip `end`. Raises TooLarge if `end` does not come within `max_bytes`."""
        while (place := self._buffer.find(end)) < 0:
            if len(self._buffer) > max_bytes + len(end):
                raise TooLarge
            await self._fill_buffer()
        data = self._take_from_buffer(place)
        self._take_from_buffer(len(end))
        return data

    async def copy_until(self, end: bytes, file: IO[bytes]) -> int:
        """Write the bytes before `end` to a file in large blocks, skip `end`, and return the number of those bytes."""
        size = searched = 0
        while (place := self._buffer.find(end, searched)) < 0:
            searched = max(0, len(self._buffer) - len(end))
            if len(self._buffer) >= _BLOCK_BYTES:
                block = self._take_from_buffer(searched)
                size, searched = size + len(block), 0
                await _write(file, block)
            await self._fill_buffer()
        block = self._take_from_buffer(place)
        self._take_from_buffer(len(end))
        await _write(file, block)
        return size + len(block)


async def _write(file: IO[bytes], block: bytes) -> None:
    await asyncio.get_running_loop().run_in_executor(None, partial(file.write, block))
