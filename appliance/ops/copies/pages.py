"""The pages of a database in the segments of a copy, and the index that shows the next copy which pages have changed.

A segment is a sequence of blocks. Each block has the number of pages and the length of their compressed content (4
bytes each, big endian), the page numbers from 0 (4 bytes each), and the content, compressed with zlib.
"""

import hashlib
import os
import struct
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

from appliance.core import data_dir
from appliance.ops.stores.base import Readable

_BLOCK_PAGES = 256
_HEADER = struct.Struct(">II")
_COMPRESSION_LEVEL = 1
_THREADS = 2
_HASH_BYTES = 16
_SALT_BYTES = 32
_INDEX_HEADER = struct.Struct(f">8sI{_SALT_BYTES}s")
_INDEX_MAGIC = b"pages001"


class DamagedSegment(Exception):
    """The content of a segment is invalid."""


class PageIndex:
    """A salted 128-bit hash of each page of a database; that of a full copy shows which pages have changed since."""

    def __init__(self, page_size: int, salt: bytes, hashes: bytearray) -> None:
        self.page_size, self._salt, self._hashes = page_size, salt, hashes

    @classmethod
    def create(cls, page_size: int) -> "PageIndex":
        """Return an empty index."""
        return cls(page_size, os.urandom(_SALT_BYTES), bytearray())

    @classmethod
    def read(cls, path: Path) -> "PageIndex | None":
        """Return the index in a file, or None if there is none or it is damaged."""
        try:
            content = path.read_bytes()
            magic, page_size, salt = _INDEX_HEADER.unpack_from(content)
        except (FileNotFoundError, struct.error):
            return None
        body, checksum = content[_INDEX_HEADER.size : -32], content[-32:]
        if magic != _INDEX_MAGIC or hashlib.sha256(content[:-32]).digest() != checksum or len(body) % _HASH_BYTES:
            return None
        return cls(page_size, salt, bytearray(body))

    def write(self, path: Path) -> None:
        """Write the index into a file."""
        content = _INDEX_HEADER.pack(_INDEX_MAGIC, self.page_size, self._salt) + bytes(self._hashes)
        data_dir.replace_file(path, content + hashlib.sha256(content).digest())

    def make_hasher(self) -> Callable[[memoryview], bytes]:
        """Return a function that hashes a page with the salt of this index."""
        keyed = hashlib.blake2b(key=self._salt, digest_size=_HASH_BYTES)

        def hash_page(page: memoryview) -> bytes:
            digest = keyed.copy()
            digest.update(page)
            return digest.digest()

        return hash_page

    def append(self, page_hash: bytes) -> None:
        """Add the hash of the next page."""
        self._hashes += page_hash

    def get(self, number: int) -> bytes:
        """Return the hash of a page, or empty bytes for one beyond the end."""
        return bytes(self._hashes[number * _HASH_BYTES : (number + 1) * _HASH_BYTES])


class PageReader:
    """Reads the pages of a database file in blocks. `sha256` is valid once all blocks were read."""

    def __init__(self, file: BinaryIO, page_size: int, page_count: int, base_index: PageIndex | None) -> None:
        self._file, self._page_size, self._page_count, self._base = file, page_size, page_count, base_index
        self._digest = hashlib.sha256()
        self.index = PageIndex.create(page_size)
        self.changed_count = 0

    @property
    def sha256(self) -> str:
        """Return the SHA-256 of the file as hex."""
        return self._digest.hexdigest()

    def read_blocks(self, report: Callable[[float], None]) -> Iterator[bytes]:
        """Yield the blocks of the pages that differ from the base index, or of all pages without one, in order."""
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="compress") as pool:
            waiting = deque[Future[bytes]]()
            for numbers, content in self._gather(report):
                waiting.append(pool.submit(_encode_block, numbers, content))
                if len(waiting) > 2 * _THREADS:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()

    def _gather(self, report: Callable[[float], None]) -> Iterator[tuple[list[int], bytes]]:
        """Yield the numbers and contents of the pages of one block at a time: at most `_MAX_BLOCK_PAGES` pages."""
        hash_page = (self._base or self.index).make_hasher()
        size, numbers, pages = self._page_size, list[int](), list[bytes]()
        self._file.seek(0)
        for start in range(0, self._page_count, _BLOCK_PAGES):
            count = min(_BLOCK_PAGES, self._page_count - start)
            content = self._file.read(count * size)
            if len(content) != count * size:
                raise OSError("the copy of the database is shorter than its header says")
            self._digest.update(content)
            report(start / self._page_count)
            view = memoryview(content)
            hashes = [hash_page(view[at : at + size]) for at in range(0, len(content), size)]
            if self._base is None:
                self.index.append(b"".join(hashes))
                self.changed_count += count
                yield list(range(start, start + count)), content
                continue
            for number, page_hash in enumerate(hashes, start):
                if page_hash != self._base.get(number):
                    numbers.append(number)
                    pages.append(content[(number - start) * size : (number - start + 1) * size])
            if len(numbers) >= _BLOCK_PAGES:
                self.changed_count += len(numbers)
                yield numbers, b"".join(pages)
                numbers, pages = [], []
        if numbers:
            self.changed_count += len(numbers)
            yield numbers, b"".join(pages)


# Each read adds up to `_BLOCK_PAGES` changed pages to fewer than `_BLOCK_PAGES` that were collected before.
_MAX_BLOCK_PAGES = 2 * _BLOCK_PAGES


def _encode_block(numbers: list[int], content: bytes) -> bytes:
    packed = zlib.compress(content, _COMPRESSION_LEVEL)
    return _HEADER.pack(len(numbers), len(packed)) + struct.pack(f">{len(numbers)}I", *numbers) + packed


def write_pages(segment: Readable, file: BinaryIO, page_size: int, page_count: int) -> None:
    """Write the pages of a segment to their places in a database file of `page_count` pages. Raises DamagedSegment."""
    while header := _read_exactly(segment, _HEADER.size, at_end=True):
        count, packed_size = _HEADER.unpack(header)
        if not 0 < count <= _MAX_BLOCK_PAGES or packed_size > count * page_size + 65_536:
            raise DamagedSegment("a block has an impossible size")
        numbers = struct.unpack(f">{count}I", _read_exactly(segment, 4 * count))
        if any(number >= page_count for number in numbers):
            raise DamagedSegment("a page lies beyond the end of the database")
        try:
            decompressor = zlib.decompressobj()
            content = decompressor.decompress(_read_exactly(segment, packed_size), count * page_size)
        except zlib.error as error:
            raise DamagedSegment(f"a block cannot be decompressed: {error}") from None
        if len(content) != count * page_size or decompressor.unconsumed_tail:
            raise DamagedSegment("a block does not have the size that it states")
        if numbers[-1] - numbers[0] == count - 1 and list(numbers) == sorted(numbers):
            _write_at(file, numbers[0] * page_size, memoryview(content))
            continue
        for place, number in enumerate(numbers):
            _write_at(file, number * page_size, memoryview(content)[place * page_size : (place + 1) * page_size])


def _write_at(file: BinaryIO, position: int, content: memoryview) -> None:
    file.seek(position)
    file.write(content)


def _read_exactly(stream: Readable, size: int, at_end: bool = False) -> bytes:
    """Return the next `size` bytes; with `at_end`, b"" at the end of the stream. Raises DamagedSegment."""
    content = stream.read(size)
    while content and len(content) < size and (more := stream.read(size - len(content))):
        content += more
    if len(content) != size and (content or not at_end):
        raise DamagedSegment("it ends in the middle of a block")
    return content


def page_facts(file: BinaryIO) -> tuple[int, int]:
    """Return the page size and the number of pages of an open database file (sqlite.org/fileformat.html, 1.3)."""
    file.seek(16)
    size = struct.unpack(">H", file.read(2))[0]
    page_size = 65_536 if size == 1 else int(size)
    return page_size, os.fstat(file.fileno()).st_size // page_size
