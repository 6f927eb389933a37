"""A store in a directory, which should be on another disk or a mounted share."""

import errno
import fcntl
import hashlib
import os
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO
from urllib.parse import SplitResult, unquote

from appliance.core import data_dir
from appliance.ops.stores import base
from appliance.ops.stores.base import ObjectInfo, Throttle

_LOCK_FILE = ".campanero-store.lock"
# A write under the lock takes milliseconds; on a share whose server does not answer it may take seconds.
_MAX_LOCK_SECONDS, _LOCK_PAUSE_SECONDS = 10.0, 0.005


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
        with (
            _translated(f"{path} cannot be written"),
            self._locate(key, creates=True) as located,
            _replacing(located) as file,
        ):
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
        with _translated(f"{path} cannot be read"), self._locate(key) as located:
            file = os.fdopen(os.open(located, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb")
        with file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise base.Damaged(f"{path} is not a regular file")
            yield _File(path, file)

    def head(self, key: str) -> ObjectInfo | None:
        """Return the description of a file. See `Store.head`."""
        path = self._path(key)
        with _translated(f"{path} cannot be read"):
            self._require_root()
            try:
                with self._locate(key) as located:
                    return _describe(key, located)
            except FileNotFoundError:
                return None

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Yield the files below a folder. See `Store.list`."""
        return base.limit_count(self._walk(prefix), self.url)

    def _walk(self, prefix: str) -> Iterator[ObjectInfo]:
        start = prefix.rstrip("/")
        folder = self._path(start) if prefix else self.root
        with _translated(f"{folder} cannot be read"), ExitStack() as stack:
            self._require_root()
            try:
                descriptor = stack.enter_context(self._open_folder(start.split("/") if prefix else []))
            except FileNotFoundError:
                return
            for parent, folders, names, parent_descriptor in os.fwalk(
                ".", onerror=_raise_unless_missing, dir_fd=descriptor
            ):
                parts = [part for part in (*start.split("/"), *parent.split("/")[1:]) if part]
                # Others may have nested folders more deeply than a key can be, and than this walk can follow.
                folders[:] = sorted(name for name in folders if base.is_key("/".join((*parts, name, "x"))))
                for name in names:
                    key = "/".join((*parts, name))
                    if base.is_key(key) and (info := _describe(key, name, parent_descriptor)):
                        yield info

    def delete(self, key: str) -> None:
        """Delete a file, and its folder if that is empty. See `Store.delete`."""
        path, folder = self._path(key), key.rpartition("/")[0]
        with _translated(f"{path} cannot be deleted"):
            self._require_root()
            try:
                with self._locate(key) as located:
                    located.unlink(missing_ok=True)
            except FileNotFoundError:
                return
            try:
                if folder:
                    with self._locate(folder) as located:
                        located.rmdir()
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
        with _translated(f"{path} cannot be written"), self._locate(key, creates=True) as located, self._lock():
            current = _describe(key, located)
            if (current.etag if current else None) != etag:
                raise base.Conflict(str(path))
            with _replacing(located) as file:
                file.write(body)
            written = _describe(key, located)
            assert written is not None, path
            return written.etag

    def discard_unfinished(self) -> int:
        """Do nothing: `put` removes the unfinished files in the folders that it writes to."""
        return 0

    def close(self) -> None:
        """Do nothing: nothing stays open."""

    def _path(self, key: str) -> Path:
        """Return the path of an object for messages; it is opened by `_locate`."""
        return self.root / base.require_key(key)

    @contextmanager
    def _locate(self, key: str, *, creates: bool = False) -> Iterator[Path]:
        """Yield a path of the object of a key, in its folder, which is held open. Raises OSError and Damaged.

        Others may write to the directory. A link in it must not lead to other files of this machine, so the folders
        of a key are opened one after the other. With `creates`, missing ones are created.
        """
        self._require_root()
        *folders, name = base.require_key(key).split("/")
        with self._open_folder(folders, creates=creates) as descriptor:
            yield Path(f"/proc/self/fd/{descriptor}") / name

    @contextmanager
    def _open_folder(self, names: Sequence[str], *, creates: bool = False) -> Iterator[int]:
        """Yield a descriptor of the folder with these names below the root, of which none may be a link."""
        descriptor = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            for name in names:
                if creates:
                    with suppress(FileExistsError):
                        os.mkdir(name, 0o700, dir_fd=descriptor)
                try:
                    child = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=descriptor)
                except OSError as error:
                    if error.errno in (errno.ENOTDIR, errno.ELOOP):
                        path = self.root / "/".join(names)
                        raise base.Damaged(f"{path} cannot be used: {name} is a link or a file, not a folder") from None
                    raise
                os.close(descriptor)
                descriptor = child
            yield descriptor
        finally:
            os.close(descriptor)

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """Hold the lock of the directory. Raises Unreachable if another process has it for `_MAX_LOCK_SECONDS`."""
        lock, end = os.open(self.root / _LOCK_FILE, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600), time.monotonic()
        end += _MAX_LOCK_SECONDS
        try:
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > end:
                        raise base.Unreachable(f"{self.root / _LOCK_FILE} stays locked by another process") from None
                    time.sleep(_LOCK_PAUSE_SECONDS)
            yield
        finally:
            os.close(lock)

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


def _describe(key: str, path: Path | str, folder: int | None = None) -> ObjectInfo | None:
    """Return the description of a file, or None if there is none; `path` may be relative to an open folder."""
    try:
        status = os.stat(path, dir_fd=folder, follow_symlinks=False)
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
