"""Copy the files beside the database to the store of the lease, for a machine that follows this one.

Litestream copies only the database, which also contains the pictures. Attachments, uploaded imports, pending audiences
and the journal are files. They are sealed with the installation's key, which both machines have, so the store only
reveals their number and sizes. An encrypted copy of all data (`[copies]`) cannot replace this: it would be hours old,
and only a private key that this machine does not have can read it.

A file is stored in pieces, each an object `files/NAME`, whose name is a keyed hash of path, position, size and version.
A piece never changes: a file that grows, such as the journal, gets a new last piece, and a compacted journal gets new
pieces.
"""

import hashlib
import hmac
import io
import logging
import os
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from appliance.core import crypto, data_dir, untrusted_json
from appliance.ops import stores
from appliance.ops.stores.base import Store, StoreError
from appliance.settings import config
from appliance.storage import journal, send_lease

log = logging.getLogger("campanero.lease")
FOLDERS, JOURNAL = ("attachments", "imports", "audiences"), journal.JOURNAL_FILE
PREFIX = "files/"
_PIECE_BYTES = 4 << 20
_INTERVAL_SECONDS, _LIST_SECONDS = 2.0, 600.0
_LABEL = "standby file"
_MAX_HEADER_BYTES = 2_000
_MAX_SEALED_BYTES = _PIECE_BYTES + _MAX_HEADER_BYTES + 1_000
_PATH = rf"^({re.escape(JOURNAL)}|({'|'.join(FOLDERS)})(/(?!\.)[A-Za-z0-9._-]{{1,200}}){{1,8}})\Z"


class InvalidPiece(StoreError):
    """An object is not a piece of a file of this installation."""


class _Header(msgspec.Struct):
    """The header of a piece: the path of its file in the data directory, and its position in the file."""

    path: Annotated[str, Meta(pattern=_PATH)]
    offset: Annotated[int, Meta(ge=0)]


class _Piece(NamedTuple):
    path: Path
    header: _Header
    size: int


class Mirror:
    """A thread that copies new files to the store of the lease, and deletes the pieces of deleted files there."""

    def __init__(self, store: Store, directory: Path) -> None:
        self._store, self._directory = store, directory
        self._stored: set[str] = set()
        self._list_at = 0.0  # when the pieces in the store are to be listed, on the monotonic clock
        self._stopping = threading.Event()
        self._logged = ""
        self._thread = threading.Thread(target=self._run, name="mirror", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Ask the thread to end, and wait up to 5 seconds for it."""
        self._stopping.set()
        self._thread.join(5)

    def _run(self) -> None:
        while not self._stopping.wait(_INTERVAL_SECONDS):
            error_text = ""
            try:
                if send_lease.is_held():  # else another machine stores its own files
                    self.copy()
            except (StoreError, OSError) as error:
                error_text = str(error)
            except Exception:
                log.exception("lease: copying files failed")
            if error_text != self._logged:
                self._logged = error_text
                log.warning("lease: files are %s", f"not copied: {error_text}" if error_text else "copied again")
        self._store.close()

    def copy(self) -> None:
        """Store the pieces that the store lacks, and delete those without a file. Raises StoreError and OSError.

        They are listed again from time to time: a rule of the bucket, or another writer, may have deleted some.
        """
        if time.monotonic() >= self._list_at:
            self._stored = {info.key for info in self._store.list(PREFIX)}
            self._list_at = time.monotonic() + _LIST_SECONDS
        pieces = dict(list_pieces(self._directory))
        for key in pieces.keys() - self._stored:
            if self._stopping.is_set():
                return
            try:
                content = _read(pieces[key])
            except FileNotFoundError:
                continue  # It was deleted meanwhile.
            sealed = _seal(key, pieces[key].header, content)
            self._store.put(key, io.BytesIO(sealed), len(sealed), hashlib.sha256(sealed).digest())
            self._stored.add(key)
        for key in self._stored - pieces.keys():
            self._store.delete(key)
            self._stored.discard(key)


def open_mirror(directory: Path) -> Mirror | None:
    """Return the mirror of a data directory, or None without a lease store or Litestream. Raises StoreError."""
    settings = config.current()
    if not (settings.lease.store and settings.litestream.socket):
        return None
    return Mirror(stores.open_store(settings.lease.store, settings.copies), directory)


def list_pieces(directory: Path) -> Iterator[tuple[str, _Piece]]:
    """Yield the pieces of the files in a data directory with their keys; unfinished files are left out."""
    for path in _list_files(directory):
        try:
            status = path.stat()
        except FileNotFoundError:
            continue
        name = path.relative_to(directory).as_posix()
        # The journal only grows until it is compacted, so a full piece of it does not change.
        version = _read_journal_id(path) if name == JOURNAL else f"{status.st_size} {status.st_mtime_ns}"
        for offset in range(0, status.st_size, _PIECE_BYTES):
            size = min(_PIECE_BYTES, status.st_size - offset)
            identity = f"{name}\0{offset}\0{size}\0{version}".encode()
            digest = hmac.digest(crypto.derive_key("standby file names"), identity, "sha256").hex()[:40]
            yield PREFIX + digest, _Piece(path, _Header(name, offset), size)


def _read_journal_id(path: Path) -> str:
    """Return the id in the first line of the journal; a compaction changes it. Return "" for an empty journal."""
    with path.open("rb") as file:
        header = journal.read_header(file)
    return header.line.journal if header is not None else ""


def _list_files(directory: Path) -> Iterator[Path]:
    if (directory / JOURNAL).is_file():
        yield directory / JOURNAL
    for folder in FOLDERS:
        for path in sorted((directory / folder).rglob("*")):
            if path.is_file() and not any(part.startswith(".") for part in path.relative_to(directory).parts):
                yield path


def _read(piece: _Piece) -> bytes:
    with piece.path.open("rb") as file:
        file.seek(piece.header.offset)
        return file.read(piece.size)


def _seal(key: str, header: _Header, content: bytes) -> bytes:
    return crypto.seal(crypto.derive_key(_LABEL), key, msgspec.json.encode(header) + b"\n" + content)


class _Fetched(NamedTuple):
    """A fetched piece: the path of its file, and the end of the piece in that file in bytes."""

    path: str
    end: int


class MirrorReader:
    """Fetches new pieces into a folder, and deletes the files there that no longer have a piece."""

    def __init__(self, store: Store, folder: Path) -> None:
        self._store, self._folder = store, folder
        self._fetched: dict[str, _Fetched] = {}
        self._uncut: set[str] = set()  # paths of files whose pieces have changed
        self._invalid: dict[str, tuple[str, str]] = {}  # the etag of an invalid piece, and what is wrong with it

    def fetch(self) -> int:
        """Fetch the new pieces, and return the number of all pieces. Raises StoreError and OSError.

        An invalid piece does not prevent the fetching of the others; the first StoreError is raised at the end. It is
        not downloaded again until it is replaced.
        """
        infos = {info.key: info for info in self._store.list(PREFIX)}
        errors: list[StoreError] = []
        self._invalid = {key: invalid for key, invalid in self._invalid.items() if key in infos}
        new = [infos[key] for key in infos.keys() - self._fetched.keys()]
        # A later piece at the same place of a file replaces an earlier one that is not deleted yet.
        for info in sorted(new, key=lambda info: (info.modified_ms, info.size)):
            try:
                etag, reason = self._invalid.get(info.key, ("", ""))
                if reason and etag == info.etag:
                    raise InvalidPiece(reason)
                fetched = self._fetched[info.key] = self._write(info.key, self._download(info.key))
                self._uncut.add(fetched.path)
            except InvalidPiece as error:
                self._invalid[info.key] = (info.etag, str(error))
                errors.append(error)
            except StoreError as error:
                errors.append(error)
        self._uncut |= {self._fetched.pop(key).path for key in self._fetched.keys() - infos.keys()}
        # A valid piece that could not be downloaded may be the end of a file.
        if all(isinstance(error, InvalidPiece) for error in errors):
            for path in list(self._uncut):
                self._cut(path)
                self._uncut.discard(path)
        if errors:
            raise errors[0]
        return len(infos)

    def _cut(self, path: str) -> None:
        """Truncate a file at the end of its last piece, as for a compacted journal; delete it if it has no piece."""
        end = max((fetched.end for fetched in self._fetched.values() if fetched.path == path), default=None)
        target = self._folder / path
        if end is None:
            target.unlink(missing_ok=True)
        elif target.stat().st_size > end:
            os.truncate(target, end)

    def _download(self, key: str) -> bytes:
        """Return the bytes of a piece. Raises InvalidPiece if it is larger than a piece can be."""
        sealed = b""
        with self._store.open(key) as stream:
            while chunk := stream.read(_MAX_SEALED_BYTES + 1 - len(sealed)):
                sealed += chunk
                if len(sealed) > _MAX_SEALED_BYTES:
                    raise InvalidPiece(f"{key} is larger than a piece")
        return sealed

    def _write(self, key: str, sealed: bytes) -> _Fetched:
        """Write a piece to its position in its file. Raises InvalidPiece if it was changed or has another key.

        Only who has the key can seal a piece, but the header is checked all the same.
        """
        plain = crypto.unseal(crypto.derive_key(_LABEL), key, sealed)
        if plain is None:
            raise InvalidPiece(f"{key} was changed in the storage, or belongs to another key")
        try:
            end = plain.index(b"\n", 0, _MAX_HEADER_BYTES)
            header = untrusted_json.decode(plain[:end], _Header, _MAX_HEADER_BYTES)
        except ValueError as error:
            raise InvalidPiece(f"{key} has no valid header: {error}") from None
        target = self._folder / header.path
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with os.fdopen(os.open(target, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600), "r+b") as file:
            file.seek(header.offset)
            file.write(plain[end + 1 :])
        return _Fetched(header.path, header.offset + len(plain) - end - 1)

    def close(self) -> None:
        """Close the store."""
        self._store.close()


def install(folder: Path, directory: Path) -> None:
    """Move the fetched files of a folder to their places in a data directory; an interrupted call can be repeated."""
    for path in sorted(folder.rglob("*")) if folder.is_dir() else []:
        if path.is_file():
            target = directory / path.relative_to(folder)
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            data_dir.sync_to_disk(path)
            path.replace(target)
            data_dir.sync_to_disk(target.parent)
