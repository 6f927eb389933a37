"""Receives a multipart form with one file in pieces: the file goes to disk, never into memory.

The `multipart` package would do the parsing, and 70 lines of limits, names and blocking writes would remain; this
parser is 60 lines more and one dependency less.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from functools import partial
from pathlib import Path
from typing import IO, NamedTuple, Protocol
from urllib.parse import unquote

_FIELD_BYTES = 65_536
_HEADER_BYTES = 8_192
_MAX_PARTS = 20
_BLOCK = 1_048_576
# What a form may hold beside its file
_BESIDE = 262_144
_NAME = re.compile(rb'[;\s]name="((?:[^"\\]|\\.)*)"', re.IGNORECASE)
_FILENAME = re.compile(rb'[;\s]filename="((?:[^"\\]|\\.)*)"', re.IGNORECASE)
_BOUNDARY = re.compile(r'boundary=(?:"([^"]{1,70})"|([^;,\s]{1,70}))', re.IGNORECASE)


class Source(Protocol):
    """Where a body comes from."""

    async def read(self) -> bytes | None:
        """Return the next piece, or None after the last."""


class OtherType(Exception):
    """The body says that it is something else than a form, or that it is packed."""


class TooLarge(Exception):
    """More came, or is announced, than is allowed."""


class Malformed(Exception):
    """The body is no form, or ends in the middle."""


class Form(NamedTuple):
    """A received form: the text fields by name, and the file's name (None if there was no file) and size."""

    texts: dict[str, str]
    filename: str | None
    size: int


def boundary(content_type: str) -> bytes | None:
    """Return the boundary that a Content-Type names, or None if it is no multipart form."""
    if content_type.partition(";")[0].strip().lower() != "multipart/form-data":
        return None
    match = _BOUNDARY.search(content_type)
    return (match[1] or match[2]).encode("latin-1", "replace") if match else None


async def receive(headers: Mapping[str, str], source: Source, target: Path, most: int) -> Form:
    """Read a form whose part `file` goes to `target`; raises TooLarge as soon as it is clear that it has over `most`.

    Raises OtherType for what is no form, Malformed for a broken one.
    """
    mark = boundary(headers.get("content-type") or "")
    length = headers.get("content-length") or "0"
    if length.isdecimal() and int(length) > most + _BESIDE:
        raise TooLarge
    if mark is None or headers.get("content-encoding", "identity").lower() != "identity":
        raise OtherType
    form = await _form(_Reader(_pieces(source), most + _BESIDE), mark, target)
    if form.size > most:
        raise TooLarge
    return form


async def _pieces(source: Source) -> AsyncIterator[bytes]:
    while piece := await source.read():
        yield piece


async def _form(reader: "_Reader", mark: bytes, target: Path) -> Form:
    texts: dict[str, str] = {}
    filename, size = None, 0
    await reader.until(b"--" + mark, _HEADER_BYTES)
    for _ in range(_MAX_PARTS):
        if await reader.take(2) == b"--":
            await reader.drain()
            return Form(texts, filename, size)
        head = await reader.until(b"\r\n\r\n", _HEADER_BYTES)
        name = _NAME.search(head)
        if name is None:
            raise Malformed("a part has no name")
        end = b"\r\n--" + mark
        if name[1] == b"file" and filename is None:
            filename = _filename(head)
            with target.open("wb") as file:
                size = await reader.copy(end, file)
        else:
            texts[name[1].decode("utf-8", "replace")] = _text(await reader.until(end, _FIELD_BYTES))
    raise Malformed("the form has too many parts")


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise Malformed("a text is not UTF-8") from None


def _filename(head: bytes) -> str:
    match = _FILENAME.search(head)
    text = unquote(match[1].decode("utf-8", "replace")) if match else ""
    text = "".join(char for char in text.replace("\\", "/").rpartition("/")[2] if char.isprintable())
    return text[:255]


class _Reader:
    """A stream with a little of it at hand; it counts what comes."""

    def __init__(self, pieces: AsyncIterator[bytes], limit: int) -> None:
        self._pieces = pieces
        self._left = limit
        self._have = bytearray()

    async def _more(self) -> None:
        piece = await anext(self._pieces, None)
        if piece is None:
            raise Malformed("the form ends in the middle")
        self._left -= len(piece)
        if self._left < 0:
            raise TooLarge
        self._have += piece

    async def drain(self) -> None:
        """Read and discard what follows the form."""
        async for piece in self._pieces:
            self._left -= len(piece)
            if self._left < 0:
                raise TooLarge

    async def take(self, count: int) -> bytes:
        while len(self._have) < count:
            await self._more()
        return self._cut(count)

    def _cut(self, count: int) -> bytes:
        found = bytes(self._have[:count])
        del self._have[:count]
        return found

    async def until(self, end: bytes, most: int) -> bytes:
        """Return what comes before `end`, and drop `end`."""
        while (place := self._have.find(end)) < 0:
            if len(self._have) > most + len(end):
                raise TooLarge
            await self._more()
        found = self._cut(place)
        self._cut(len(end))
        return found

    async def copy(self, end: bytes, file: IO[bytes]) -> int:
        """Write what comes before `end` to a file in large blocks, and drop `end`."""
        size = searched = 0
        while (place := self._have.find(end, searched)) < 0:
            searched = max(0, len(self._have) - len(end))
            if len(self._have) >= _BLOCK:
                block = self._cut(searched)
                size, searched = size + len(block), 0
                await _write(file, block)
            await self._more()
        block = self._cut(place)
        self._cut(len(end))
        await _write(file, block)
        return size + len(block)


async def _write(file: IO[bytes], block: bytes) -> None:
    await asyncio.get_running_loop().run_in_executor(None, partial(file.write, block))
