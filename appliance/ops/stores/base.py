"""The protocol of stores, their errors, and the bandwidth limit of streams.

A store holds objects by key, as S3 does. Keys are relative paths of letters, digits, `.`, `_` and `-`; keys of another
form, which other programs may have written, are never listed.
"""

import re
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import BinaryIO, NamedTuple, Protocol

CHUNK_BYTES = 1 << 20
# The maximum size of an object for `fetch` and `put_if`.
MAX_SMALL_BYTES = 1 << 20
# A listing of more objects fails; otherwise anybody who may write to a store could fill the memory of its readers.
MAX_OBJECTS = 1_000_000
_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}(?:/[A-Za-z0-9][A-Za-z0-9._-]{0,199}){0,7}")


class StoreError(Exception):
    """The store could not do what was requested. The message says why, in the store's own words if it gave any."""


class Unreachable(StoreError):
    """The store did not answer, or answered that it is overloaded; a later attempt may succeed."""

    retry_after_seconds = 0.0  # the delay that the store has requested, or 0


class Refused(StoreError):
    """The store did not accept the credentials, or they do not permit the operation."""


class StoreFull(StoreError):
    """The store has no space left."""


class Missing(StoreError):
    """The object does not exist, or the bucket or directory of the store does not."""


class Damaged(StoreError):
    """The stored bytes differ from those that were sent."""


class Conflict(StoreError):
    """Another writer has changed the object since it was read. `name` is the object's key, or the server's name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name}: another writer has changed the object")


class NotSupported(StoreError):
    """This kind of store does not support the operation."""


class ObjectInfo(NamedTuple):
    """An object of a store. `etag` identifies its content in this store, and is what `put_if` compares."""

    key: str
    size: int  # in bytes
    modified_ms: int  # by the clock of the store
    etag: str


class Readable(Protocol):
    """A stream of bytes with a `read` method."""

    def read(self, size: int, /) -> bytes:
        """Return at most `size` further bytes, or none at the end."""
        ...


class Store(Protocol):
    """A place for objects. All methods raise StoreError, and may be called by several threads."""

    @property
    def url(self) -> str:
        """Return the URL of the store, which contains no secret."""
        ...

    def put(self, key: str, source: BinaryIO, size: int, sha256: bytes) -> None:
        """Store the `size` bytes of `source` under a key, replacing an existing object.

        `source` must be seekable, and `sha256` is the hash of its bytes. The object appears atomically, after the store
        has confirmed its content. Raises Damaged if the content was changed on its way.
        """
        ...

    def open(self, key: str) -> AbstractContextManager[Readable]:
        """Return a context manager of a stream of the object's content. Entering it raises Missing."""
        ...

    def head(self, key: str) -> ObjectInfo | None:
        """Return the description of an object, or None if there is none."""
        ...

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Yield the objects whose keys begin with `prefix`, which is empty or ends in a slash, in any order.

        Raises StoreError for more than `MAX_OBJECTS`.
        """
        ...

    def delete(self, key: str) -> None:
        """Delete an object; do nothing if there is none."""
        ...

    def fetch(self, key: str) -> tuple[bytes, str] | None:
        """Return the content of a small object and its etag, read together, or None if there is no object."""
        ...

    def put_if(self, key: str, body: bytes, etag: str | None) -> str:
        """Store a small object if its current etag is still `etag` (None: it must not exist), and return its new etag.

        Raises Conflict if the object has changed, and NotSupported if the store has no such operation.
        """
        ...

    def discard_unfinished(self) -> int:
        """Delete unfinished uploads that were not continued for a week, and return their number."""
        ...

    def close(self) -> None:
        """Close the connections."""
        ...


def is_key(text: str) -> bool:
    """Return whether a text is a valid key."""
    return bool(_KEY.fullmatch(text))


def require_key(key: str) -> str:
    """Return the key if it is valid. Raises ValueError."""
    if not is_key(key):
        raise ValueError(f"{key!r} is not the key of an object")
    return key


def limit_count(objects: Iterable[ObjectInfo], url: str) -> Iterator[ObjectInfo]:
    """Yield the objects of a listing of the store `url`. Raises StoreError after `MAX_OBJECTS`."""
    for count, info in enumerate(objects):
        if count >= MAX_OBJECTS:
            raise too_many_objects(url)
        yield info


def too_many_objects(url: str) -> StoreError:
    """Return the error for a listing of more than `MAX_OBJECTS`."""
    return StoreError(f"{url} has more than {MAX_OBJECTS:,} objects, more than copies need: do others write to it?")


class Throttle:
    """A limit of bytes per second, shared by the streams that it wraps; 0 means no limit."""

    def __init__(self, bytes_per_second: float) -> None:
        self._rate, self._free_at = bytes_per_second, 0.0

    def wait(self, size: int) -> None:
        """Sleep until `size` more bytes are within the limit."""
        if self._rate <= 0:
            return
        now = time.monotonic()
        self._free_at = max(self._free_at, now) + size / self._rate
        if self._free_at > now:
            time.sleep(self._free_at - now)
