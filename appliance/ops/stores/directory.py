"""A store in a directory, which should be on another disk or a mounted share."""

import errno
import fcntl
import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO
from urllib.parse import SplitResult, unquote

from appliance.core import data_dir
from appliance.ops.stores import base
from appliance.ops.stores.base import ObjectInfo, Throttle

_LOCK_FILE = ".campanero-store.lock"


def open_store(url: SplitResult, throttle: Throttle) -> "DirectoryStore":
    """Return the store of `file:///PATH`. Raises StoreError unless the URL has an absolute path and no host."""
    path = unquote(url.path)
    if url.netloc not in ("", "localhost") or not path.startswith("/") or path == "/" or "\0" in path:
        raise base.StoreError(f"{url.geturl()} must have the form file:///PATH, with an absolute path")
    return DirectoryStore(Path(path), throttle)


class DirectoryStore:
    """A store whose objects are files. It does not create its directory, so that an unmounted disk is an error."""

    def __init__(self, root: Path, throttle: Throttle) -> None:
        self.root, self._throttle = root, throttle

    @property
    def url(self) -> str:
        """Return `file:///PATH`."""
        return self.root.as_uri()

    def put(self, key: str, source: BinaryIO, size: int, sha256: bytes) -> None:
        """Write a file, read it back from the disk, and move it to its place. See `Store.put`."""
        path = self._path(key)
        with _translated(f"{path} cannot be written"):
            self._require_root()
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with _replacing(path) as file:
                source.seek(0)
                while chunk := source.read(base.CHUNK_BYTES):
                    self._throttle.wait(len(chunk))
                    file.write(chunk)
                file.flush()
                os.fsync(file.fileno())
                if _hash_from_disk(file) != sha256:
                    raise base.Damaged(f"{path} was written, but reading it back gave other bytes")

    @contextmanager
    def open(self, key: str) -> Iterator[base.Readable]:
        """Yield the open file of an object. See `Store.open`."""
        path = self._path(key)
        with _translated(f"{path} cannot be read"):
            self._require_root()
            file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb")
        with file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise base.Damaged(f"{path} is not a regular file")
            yield _File(path, file)

    def head(self, key: str) -> ObjectInfo | None:
        """Return the description of a file. See `Store.head`."""
        path = self._path(key)
        with _translated(f"{path} cannot be read"):
            self._require_root()
            return _describe(key, path)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Yield the files below a folder. See `Store.list`."""
        return base.limit_count(self._walk(prefix), self.url)

    def _walk(self, prefix: str) -> Iterator[ObjectInfo]:
        folder = self._path(prefix.rstrip("/")) if prefix else self.root
        with _translated(f"{folder} cannot be read"):
            self._require_root()
            for parent, folders, names in os.walk(folder, onerror=_raise_unless_missing):
                folders.sort()
                for name in names:
                    path = Path(parent) / name
                    key = path.relative_to(self.root).as_posix()
                    if base.is_key(key) and (info := _describe(key, path)):
                        yield info

    def delete(self, key: str) -> None:
        """Delete a file, and its folder if that is empty. See `Store.delete`."""
        path = self._path(key)
        with _translated(f"{path} cannot be deleted"):
            self._require_root()
            path.unlink(missing_ok=True)
            try:
                path.parent.rmdir()
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT, errno.EBUSY, errno.EACCES):
                    raise

    def fetch(self, key: str) -> tuple[bytes, str] | None:
        """Return the content and the etag of a small file. See `Store.fetch`."""
        try:
            with self.open(key) as stream:
                assert isinstance(stream, _File), stream
                return stream.read(base.MAX_SMALL_BYTES), stream.etag()
        except base.Missing:
            self._require_root()
            return None

    def put_if(self, key: str, body: bytes, etag: str | None) -> str:
        """Replace a small file under a lock of the directory. See `Store.put_if`."""
        path = self._path(key)
        with _translated(f"{path} cannot be written"):
            self._require_root()
            lock = os.open(self.root / _LOCK_FILE, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX)
                current = _describe(key, path)
                if (current.etag if current else None) != etag:
                    raise base.Conflict(str(path))
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                with _replacing(path) as file:
                    file.write(body)
                written = _describe(key, path)
                assert written is not None, path
                return written.etag
            finally:
                os.close(lock)

    def discard_unfinished(self) -> int:
        """Do nothing: `put` removes the unfinished files in the folders that it writes to."""
        return 0

    def close(self) -> None:
        """Do nothing: nothing stays open."""

    def _path(self, key: str) -> Path:
        return self.root / base.require_key(key)

    def _require_root(self) -> None:
        if not self.root.is_dir():
            raise base.Missing(f"{self.root} is not a directory: create it, or mount its disk")


class _File:
    """The open file of an object, whose errors are raised as StoreErrors."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self._path, self._file = path, file

    def read(self, size: int, /) -> bytes:
        with _translated(f"{self._path} cannot be read"):
            return self._file.read(size)

    def etag(self) -> str:
        return _etag(os.fstat(self._file.fileno()))


@contextmanager
def _replacing(path: Path) -> Iterator[BinaryIO]:
    """Yield an unfinished file that replaces `path` after the block, once it is on disk; an error deletes it."""
    data_dir.remove_unfinished_files(path.parent)
    part = path.with_name(f"{data_dir.PART_PREFIX}{os.urandom(8).hex()}{data_dir.PART_SUFFIX}")
    descriptor = os.open(part, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
    try:
        with os.fdopen(descriptor, "w+b") as file:
            try:
                # `remove_unfinished_files` skips locked files, because they are being written.
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno not in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS):
                    raise  # A file system without locks has no other process that removes the file.
            yield file
            file.flush()
            os.fsync(file.fileno())
            part.replace(path)
            data_dir.sync_to_disk(path.parent)
    finally:
        part.unlink(missing_ok=True)


def _hash_from_disk(file: BinaryIO) -> bytes:
    """Return the SHA-256 of an open file, read from the disk and not from the cache, if the system permits that."""
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    file.seek(0)
    digest = hashlib.sha256()
    while chunk := file.read(base.CHUNK_BYTES):
        digest.update(chunk)
    return digest.digest()


def _describe(key: str, path: Path) -> ObjectInfo | None:
    try:
        status = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    return ObjectInfo(key, status.st_size, status.st_mtime_ns // 1_000_000, _etag(status))


def _etag(status: os.stat_result) -> str:
    """Return an etag from the status of a file; it identifies the content, as files are only replaced whole."""
    return f"{status.st_ino:x}-{status.st_mtime_ns:x}-{status.st_size:x}"


def _raise_unless_missing(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


@contextmanager
def _translated(words: str) -> Iterator[None]:
    """Raise an OSError of the block as the matching StoreError, whose message begins with `words`."""
    try:
        yield
    except FileNotFoundError as error:
        raise base.Missing(f"{words}: {error.strerror}") from None
    except OSError as error:
        kinds: dict[int | None, type[base.StoreError]] = {
            errno.ENOSPC: base.StoreFull, errno.EDQUOT: base.StoreFull, errno.EFBIG: base.StoreFull,
            errno.EACCES: base.Refused, errno.EPERM: base.Refused, errno.EROFS: base.Refused,
            errno.ELOOP: base.Damaged,
        }  # fmt: skip
        raise kinds.get(error.errno, base.Unreachable)(f"{words}: {error.strerror}") from None
