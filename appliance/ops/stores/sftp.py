"""A store on an SFTP server, in a directory of its user.

Sources: draft-ietf-secsh-filexfer-02 (SFTP version 3), and section 4.4 of "PROTOCOL" of OpenSSH.
The server has no checksums, so an upload is read back before it gets its name. It has no conditional writes either.
"""

import asyncio
import hashlib
import stat
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar
from urllib.parse import SplitResult, unquote

from appliance.core import clock
from appliance.ops.stores import base
from appliance.ops.stores.base import ObjectInfo, Throttle
from appliance.settings.copies import Copies

if TYPE_CHECKING:
    import asyncssh

T = TypeVar("T")
_PORT = 22
_CONNECT_SECONDS = 20
# A server that keeps the connection open but answers no request for this long is disconnected.
STALL_SECONDS = 120.0
_CHUNK_BYTES = 1 << 18
_PART_PREFIX = ".campanero-part-"
_UNFINISHED_AFTER_MS = 7 * clock.DAY_MS
_MAX_DEPTH = 8
# `FX_NO_SPACE_ON_FILESYSTEM` and `FX_QUOTA_EXCEEDED` of later protocol versions; OpenSSH reports both as FX_FAILURE.
_NO_SPACE, _QUOTA = 14, 15


def open_store(url: SplitResult, settings: Copies, throttle: Throttle) -> "SftpStore":
    """Return the store of `sftp://USER@HOST[:PORT]/PATH`. Raises StoreError if the URL or the settings are incomplete.

    The path is absolute; `/~/PATH` is relative to the home directory of the user.
    """
    path = unquote(url.path)
    if not url.hostname or not url.username or len(path) < 2 or "\0" in path:
        raise base.StoreError(f"{url.geturl()} must have the form sftp://USER@HOST/PATH")
    sftp = settings.sftp
    if not sftp.host_key or not (sftp.key_file or sftp.private_key or sftp.password):
        raise base.Refused(
            "copies.sftp.host_key, and a key_file, a private_key or a password, are required for an SFTP server"
        )
    return SftpStore(url, path.rstrip("/").removeprefix("/~/"), settings, throttle)


class SftpStore:
    """A store below a directory, which must exist. Its connection runs on an event loop in a thread of its own."""

    def __init__(self, url: SplitResult, root: str, settings: Copies, throttle: Throttle) -> None:
        self.url = url.geturl().rstrip("/")
        self._host, self._port = url.hostname or "", url.port or _PORT
        self._user, self._root = unquote(url.username or ""), root
        self._settings, self._throttle = settings.sftp, throttle
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._connection: asyncssh.SSHClientConnection | None = None
        self._client: asyncssh.SFTPClient | None = None
        self._running_count = 0  # coroutines of `_run` that have not ended
        self._watch: asyncio.TimerHandle | None = None
        self._stall_at, self._is_stalled = 0.0, False

    def put(self, key: str, source: BinaryIO, size: int, sha256: bytes) -> None:
        """Upload a file under another name, read it back, and rename it. See `Store.put`."""
        path = self._path(key)
        self._run(self._put(path, source, sha256))

    async def _put(self, path: str, source: BinaryIO, sha256: bytes) -> None:
        client = await self._get_client()
        folder, _, name = path.rpartition("/")
        await self._make_folders(client, folder)
        # The temporary name depends only on the key, so that the next attempt replaces the file of an interrupted one.
        part = f"{folder}/{_PART_PREFIX}{name}"
        try:
            source.seek(0)
            async with client.open(part, "wb") as file:
                while chunk := source.read(_CHUNK_BYTES):
                    await asyncio.to_thread(self._throttle.wait, len(chunk))
                    self._note_progress()
                    await file.write(chunk)
                with suppress(Exception):  # An extension of OpenSSH that other servers lack
                    await file.fsync()
            digest = hashlib.sha256()
            async with client.open(part, "rb") as file:
                while chunk := await _read_file(file, _CHUNK_BYTES):
                    self._note_progress()
                    digest.update(chunk)
            if digest.digest() != sha256:
                raise base.Damaged(f"{path} was uploaded, but reading it back gave other bytes")
            try:
                await client.posix_rename(part, path)
            except asyncssh_module().SFTPOpUnsupported:
                # Such a server does not rename onto an existing file.
                with suppress(asyncssh_module().SFTPNoSuchFile):
                    await client.remove(path)
                await client.rename(part, path)
        except BaseException:
            with suppress(Exception):  # The error that is raised says what is wrong.
                await client.remove(part)
            raise

    @contextmanager
    def open(self, key: str) -> Iterator[base.Readable]:
        """Yield a stream of a file. See `Store.open`."""
        file = self._run(self._open(self._path(key)))
        try:
            yield _Stream(self, file, self._throttle)
        finally:
            with suppress(base.StoreError):  # The content was read; what closing says changes nothing.
                self._run(file.close())

    async def _open(self, path: str) -> "asyncssh.SFTPClientFile":
        client = await self._get_client()
        attributes = await client.lstat(path)
        if not stat.S_ISREG(attributes.permissions or 0):
            raise base.Damaged(f"{path} is not a regular file")
        return await client.open(path, "rb")

    def head(self, key: str) -> ObjectInfo | None:
        """Return the description of a file. See `Store.head`."""
        path = self._path(key)

        async def describe() -> ObjectInfo | None:
            client = await self._get_client()
            try:
                return _describe(key, await client.lstat(path))
            except asyncssh_module().SFTPNoSuchFile:
                return None

        return self._run(describe())

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Yield the files below a folder. See `Store.list`."""
        if prefix:
            self._path(prefix.rstrip("/"))

        async def walk() -> tuple[ObjectInfo, ...]:
            client, infos = await self._get_client(), list[ObjectInfo]()
            await client.stat(self._root)
            async for info in self._walk(client, prefix.rstrip("/"), 0):
                self._require_few(len(infos))
                infos.append(info)
            return tuple(infos)

        yield from self._run(walk())

    def _require_few(self, count: int) -> None:
        if count >= base.MAX_OBJECTS:
            raise base.too_many_objects(self.url)

    async def _read_folder(self, client: "asyncssh.SFTPClient", path: str) -> "tuple[asyncssh.SFTPName, ...]":
        """Return the entries of a directory. Raises StoreError if there are more than a store may have."""
        entries = list["asyncssh.SFTPName"]()
        async for entry in client.scandir(path):
            self._note_progress()
            if entry.filename not in (".", ".."):
                self._require_few(len(entries))
                entries.append(entry)
        return tuple(entries)

    async def _walk(self, client: "asyncssh.SFTPClient", prefix: str, depth: int) -> Any:
        path = f"{self._root}/{prefix}".rstrip("/")
        try:
            entries = await self._read_folder(client, path)
        except asyncssh_module().SFTPNoSuchFile:
            return
        for entry in entries:
            key = f"{prefix}/{entry.filename!s}".lstrip("/")
            if not base.is_key(key):
                continue
            mode = entry.attrs.permissions or 0
            if stat.S_ISDIR(mode) and depth < _MAX_DEPTH:
                async for info in self._walk(client, key, depth + 1):
                    yield info
            elif info := _describe(key, entry.attrs):
                yield info

    def delete(self, key: str) -> None:
        """Delete a file, and its folder if that is empty. See `Store.delete`."""
        path = self._path(key)

        async def remove() -> None:
            client = await self._get_client()
            with suppress(asyncssh_module().SFTPNoSuchFile):
                await client.remove(path)
            folder = path.rpartition("/")[0]
            if folder != self._root:
                with suppress(asyncssh_module().SFTPError):  # It is not empty.
                    await client.rmdir(folder)

        self._run(remove())

    def fetch(self, key: str) -> tuple[bytes, str] | None:
        """Return a small file and its etag. See `Store.fetch`."""
        try:
            with self.open(key) as stream:
                assert isinstance(stream, _Stream), stream
                return stream.read(base.MAX_SMALL_BYTES), stream.etag()
        except base.Missing:
            return None

    def put_if(self, key: str, body: bytes, etag: str | None) -> str:
        """Raise NotSupported: SFTP has no conditional write."""
        raise base.NotSupported("an SFTP server has no conditional writes: use a bucket for that")

    def discard_unfinished(self) -> int:
        """Delete the unfinished uploads that were not continued for a week. See `Store.discard_unfinished`."""

        async def discard(prefix: str, depth: int) -> int:
            client, count = await self._get_client(), 0
            path = f"{self._root}/{prefix}".rstrip("/")
            for entry in await self._read_folder(client, path):
                name, mode = str(entry.filename), entry.attrs.permissions or 0
                if stat.S_ISDIR(mode) and base.is_key(name) and depth < _MAX_DEPTH:
                    count += await discard(f"{prefix}/{name}".lstrip("/"), depth + 1)
                elif (
                    name.startswith(_PART_PREFIX)
                    and (entry.attrs.mtime or 0) * 1000 < clock.now_ms() - _UNFINISHED_AFTER_MS
                ):
                    await client.remove(f"{path}/{name}")
                    count += 1
            return count

        return self._run(discard("", 0))

    def close(self) -> None:
        """Close the connection, and end its thread."""
        with self._lock:
            loop, self._loop = self._loop, None
        if loop is not None:
            asyncio.run_coroutine_threadsafe(self._disconnect(), loop).result()
            loop.call_soon_threadsafe(loop.stop)

    async def _disconnect(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
        if self._connection is not None:
            self._connection.abort()
            await self._connection.wait_closed()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _path(self, key: str) -> str:
        return f"{self._root}/{base.require_key(key)}"

    async def _make_folders(self, client: "asyncssh.SFTPClient", folder: str) -> None:
        """Create the folders of an object. The directory of the store itself is never created."""
        await client.stat(self._root)
        path = self._root
        for name in folder.removeprefix(self._root).strip("/").split("/"):
            if name:
                path = f"{path}/{name}"
                with suppress(asyncssh_module().SFTPFailure, asyncssh_module().SFTPFileAlreadyExists):  # It exists.
                    await client.mkdir(path)

    async def _get_client(self) -> "asyncssh.SFTPClient":
        """Return the connected client; connect again if the connection is broken."""
        if self._client is not None and self._connection is not None and not self._connection.is_closed():
            return self._client
        asyncssh = asyncssh_module()
        self._connection = await asyncssh.connect(
            self._host, self._port, username=self._user, client_keys=self._client_keys(), config=None,
            password=self._settings.password or None, known_hosts=self._known_hosts(), agent_path=None,
            connect_timeout=_CONNECT_SECONDS, login_timeout=_CONNECT_SECONDS, keepalive_interval=15,
            preferred_auth="publickey,password",
        )  # fmt: skip
        self._is_stalled = False
        self._note_progress()
        self._client = await self._connection.start_sftp_client()
        return self._client

    def _client_keys(self) -> Any:
        asyncssh = asyncssh_module()
        settings = self._settings
        if settings.private_key:
            try:
                return [asyncssh.import_private_key(settings.private_key)]
            except asyncssh.KeyImportError as error:
                raise base.Refused(f"copies.sftp.private_key is not a usable private key: {error}") from None
        # With None, asyncssh would try the keys in the home directory of the service's user.
        return [settings.key_file] if settings.key_file else []

    def _known_hosts(self) -> Any:
        asyncssh = asyncssh_module()
        try:
            key = asyncssh.import_public_key(" ".join(self._settings.host_key.split()[-2:]))
        except asyncssh.KeyImportError as error:
            raise base.Refused(f"copies.sftp.host_key is not a public key of a server: {error}") from None
        return [key], [], []

    def _run(self, work: "Coroutine[Any, Any, T]") -> T:
        """Run a coroutine on the thread of the connection, and return its result. Raises StoreError."""
        loop = self._start_loop()
        future = asyncio.run_coroutine_threadsafe(self._run_watched(work), loop)
        asyncssh = asyncssh_module()
        where = f"{self._host}"
        try:
            return future.result()
        except (asyncssh.SFTPNoSuchFile, asyncssh.SFTPNoSuchPath) as error:
            raise base.Missing(f"{where}: {self._root} or the object in it does not exist ({error.reason})") from None
        except asyncssh.SFTPPermissionDenied as error:
            raise base.Refused(f"{where}: the server does not permit this ({error.reason})") from None
        except (asyncssh.SFTPConnectionLost, asyncssh.SFTPNoConnection) as error:
            raise base.Unreachable(f"{where}: the connection broke off ({self._explain(error.reason)})") from None
        except asyncssh.SFTPError as error:
            kind = (
                base.StoreFull
                if error.code in (_NO_SPACE, _QUOTA) or "space" in error.reason.lower()
                else base.StoreError
            )
            raise kind(f"{where}: {error.reason}") from None
        except asyncssh.HostKeyNotVerifiable as error:
            raise base.Refused(f"{where} has a host key other than copies.sftp.host_key: {error.reason}") from None
        except asyncssh.PermissionDenied as error:
            raise base.Refused(f"{where} did not accept the login of {self._user}: {error.reason}") from None
        except asyncssh.KeyImportError as error:
            raise base.Refused(f"{self._settings.key_file} is not a usable private key: {error}") from None
        except (TimeoutError, asyncssh.Error, OSError) as error:
            if isinstance(error, OSError) and error.filename == self._settings.key_file:
                raise base.Refused(f"{self._settings.key_file} cannot be read: {error.strerror}") from None
            raise base.Unreachable(f"{where} cannot be reached: {self._explain(str(error))}") from None

    def _explain(self, reason: str) -> str:
        """Return why the connection broke: the reason of the library, or that this machine ended it."""
        return f"no answer for {STALL_SECONDS:g} s" if self._is_stalled else reason

    async def _run_watched(self, work: "Coroutine[Any, Any, T]") -> T:
        """Await `work`; the connection is aborted if the server answers nothing for `STALL_SECONDS`."""
        self._running_count += 1
        self._note_progress()
        if self._watch is None:
            self._watch_requests()
        try:
            return await work
        finally:
            self._running_count -= 1

    def _note_progress(self) -> None:
        """Restart the time limit for the next answer of the server."""
        self._stall_at = asyncio.get_running_loop().time() + STALL_SECONDS

    def _watch_requests(self) -> None:
        """Abort the connection if a request has waited too long; check again later while there are requests."""
        loop = asyncio.get_running_loop()
        self._watch = None
        if not self._running_count:
            return
        if loop.time() >= self._stall_at and self._connection is not None:
            # The aborted connection ends the requests with an error. Cancelled requests would wait again, to close
            # their files.
            self._is_stalled = True
            self._connection.abort()
            self._note_progress()
        self._watch = loop.call_at(max(self._stall_at, loop.time() + 0.2), self._watch_requests)

    def _start_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=_run_loop, args=(self._loop,), name="sftp", daemon=True).start()
            return self._loop


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()


class _Stream:
    """The open file of an object."""

    def __init__(self, store: SftpStore, file: "asyncssh.SFTPClientFile", throttle: Throttle) -> None:
        self._store, self._file, self._throttle = store, file, throttle

    def read(self, size: int, /) -> bytes:
        content = self._store._run(_read_file(self._file, min(size, base.CHUNK_BYTES)))
        self._throttle.wait(len(content))
        return content

    def etag(self) -> str:
        return _etag(self._store._run(self._file.stat()))


async def _read_file(file: "asyncssh.SFTPClientFile", size: int) -> bytes:
    content = await file.read(size)
    assert isinstance(content, bytes), "a file without an encoding"
    return content


def _describe(key: str, attributes: "asyncssh.SFTPAttrs") -> ObjectInfo | None:
    if not stat.S_ISREG(attributes.permissions or 0):
        return None
    return ObjectInfo(key, attributes.size or 0, (attributes.mtime or 0) * 1000, _etag(attributes))


def _etag(attributes: "asyncssh.SFTPAttrs") -> str:
    return f"{attributes.mtime or 0:x}-{attributes.size or 0:x}"


def asyncssh_module() -> Any:
    """Return the module asyncssh, imported at its first use because that takes a third of a second."""
    import asyncssh

    return asyncssh
