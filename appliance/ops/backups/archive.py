"""The file of a backup: a gzipped tar of the database as of one moment, what lies beside it, and what vouches for both.

First comes `campanero-backup.json`, so that a look at the beginning says what it is; last `SHA256SUMS`, so that a file
that was cut short is not taken for a whole one. Names are ours alone: nothing else is ever unpacked.
"""

import gzip
import hashlib
import io
import os
import re
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Annotated, Protocol

import msgspec

from appliance.ops.backups.placing import FOLDERS
from appliance.storage.journal import Mark

MANIFEST, DATABASE, SUMS, KEY = "campanero-backup.json", "campanero.db", "SHA256SUMS", "secret.key"
FORMAT = 1
# Of the folders up to eight levels, none of them a step up or to the same
_STEP = r"/(?!\.{1,2}(?:/|$))[A-Za-z0-9._-]{1,200}"
_NAMES = re.compile(rf"(?:{DATABASE}|optouts\.jsonl|{KEY}|(?:{'|'.join(FOLDERS)})(?:{_STEP}){{1,8}})")
# Far above what seven days of imports leave, each with a handful of files
MAX_FILES = 100_000
_MAX_MANIFEST_BYTES = 65_536
# The year 9999, beyond which a moment has no date
_MAX_MOMENT = 253_402_300_799_999
_MAX_HEADER_BYTES = 65_536
# That much is left free on the disk, whatever a backup holds
_SPARE_BYTES = 16 * 1_048_576
_DATABASE_BEGINNING = b"SQLite format 3\0"
_CHUNK = 1 << 20
# The first level costs a third of the sixth, and leaves a database a tenth larger
_LEVEL = 1


class Damaged(Exception):
    """The file is no backup of ours, or not a whole one."""


class Manifest(msgspec.Struct):
    """What a backup says of itself."""

    format: int
    version: str  # of the program that took it
    schema: int
    taken_at: Annotated[int, msgspec.Meta(ge=0, le=_MAX_MOMENT)]  # milliseconds
    key: str  # a fingerprint of the key file that belongs to it
    with_key: bool
    journal: Mark | None  # where the journal of refusals stood before the moment of the backup


def is_packed(name: str) -> bool:
    """Return whether a backup packs and unpacks a file of this name; files of others are left out."""
    return bool(_NAMES.fullmatch(name))


class Source(Protocol):
    """What is packed: reads are all that is asked of it."""

    def read(self, size: int, /) -> bytes:
        """Return the next bytes, no more than so many."""
        ...


class Writer:
    """Writes a backup file, one member after the other."""

    def __init__(self, tar: tarfile.TarFile) -> None:
        self._tar, self._sums = tar, ""

    def add(self, name: str, file: Source, size: int) -> None:
        """Add a file as it is now, no more than `size` of it: one may grow meanwhile."""
        hashing = _Hashing(file)
        info = tarfile.TarInfo(name)
        info.size, info.mode = size, 0o600
        self._tar.addfile(info, hashing)  # type: ignore[arg-type]  # reads are all it asks of a file
        self._sums += _sum_line(hashing.digest(), name)

    def note(self, name: str, content: bytes) -> None:
        """Add what is known already."""
        self.add(name, io.BytesIO(content), len(content))

    def end(self) -> None:
        """Vouch for all of it."""
        content = self._sums.encode()
        info = tarfile.TarInfo(SUMS)
        info.size, info.mode = len(content), 0o600
        self._tar.addfile(info, io.BytesIO(content))


class _Hashing:
    def __init__(self, file: Source) -> None:
        self._file, self._hash = file, hashlib.sha256()

    def read(self, size: int, /) -> bytes:
        content = self._file.read(size)
        self._hash.update(content)
        return content

    def digest(self) -> str:
        return self._hash.hexdigest()


@contextmanager
def writing(file: IO[bytes], manifest: Manifest) -> Iterator[Writer]:
    """Write a backup into an open file; it is whole once the block has ended without an error."""
    with (
        gzip.GzipFile(filename="", fileobj=file, mode="wb", compresslevel=_LEVEL, mtime=0) as packed,
        tarfile.TarFile(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT, copybufsize=_CHUNK) as tar,
    ):
        writer = Writer(tar)
        writer.note(MANIFEST, msgspec.json.format(msgspec.json.encode(manifest)))
        yield writer
        writer.end()


def manifest_of(path: Path) -> Manifest:
    """Return what a backup says of itself; raises Damaged."""
    with _reading(path) as reader:
        return _manifest(reader)[0]


def unpack(path: Path, into: Path) -> Manifest:
    """Unpack a backup into an empty directory and return its manifest; raises Damaged unless all of it is whole.

    What it says of its own size is held against the room there is before it is believed.
    """
    with _reading(path) as reader:
        manifest, content = _manifest(reader)
        sums = {MANIFEST: hashlib.sha256(content).hexdigest()}
        while (member := reader.next()) is not None:
            if member.name == SUMS:
                _check_sums(reader, member, sums)
                break
            if not is_packed(member.name):
                raise Damaged(f"{path} is no backup of ours: it holds {member.name[:200]!r}")
            if member.name in sums:
                raise Damaged(f"{path} is no backup of ours: it holds {member.name!r} twice")
            if len(sums) > MAX_FILES:
                raise Damaged(f"{path} is no backup of ours: it holds more than {MAX_FILES:,} files")
            _must_fit(path, member.size, into)
            sums[member.name] = _unpack_member(reader, member, into)
        else:
            raise Damaged(f"{path} is cut short")
    if DATABASE not in sums:
        raise Damaged(f"{path} holds no database")
    return manifest


class _Reader:
    """Reads the members of a backup; what is no plain file is refused, and what lies between members is bounded."""

    def __init__(self, path: Path, packed: Source) -> None:
        self.path = path
        self._bounded = _Bounded(path, packed)
        self._tar = tarfile.open(fileobj=self._bounded, mode="r|", bufsize=_CHUNK)  # type: ignore[call-overload]  # noqa: SIM115 - it ends with its stream

    def next(self) -> tarfile.TarInfo | None:
        """Return the next member, None at the end."""
        # Names and sizes of all sorts are read into memory, however long they say they are
        self._bounded.allow(_MAX_HEADER_BYTES)
        member: tarfile.TarInfo | None = self._tar.next()
        if member is not None:
            if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or member.issparse():
                raise Damaged(f"{self.path} is no backup of ours: {member.name[:200]!r} is no plain file")
            self._bounded.allow(member.size)
        return member

    def file(self, member: tarfile.TarInfo) -> IO[bytes]:
        """Return the content of a member."""
        file: IO[bytes] | None = self._tar.extractfile(member)
        assert file is not None, "a plain file"
        return file

    def content(self, member: tarfile.TarInfo, most: int) -> bytes:
        """Return the whole content of a small member; raises Damaged where it is larger than that."""
        if member.size > most:
            raise Damaged(f"{self.path} is no backup of ours: {member.name} has {member.size:,} bytes")
        return self.file(member).read(most)


class _Bounded:
    """A stream that yields no more than was allowed."""

    def __init__(self, path: Path, packed: Source) -> None:
        self._path, self._packed = path, packed
        self._left = _CHUNK  # tarfile reads ahead by so much

    def allow(self, size: int) -> None:
        """Allow that many bytes more."""
        self._left += size

    def read(self, size: int, /) -> bytes:
        """Return the next bytes; raises Damaged once there are more than were allowed."""
        content = self._packed.read(size)
        self._left -= len(content)
        if self._left < 0:
            raise Damaged(f"{self._path} is no backup of ours: a header in it is too long")
        return content


@contextmanager
def _reading(path: Path) -> Iterator[_Reader]:
    try:
        with gzip.open(path) as packed:
            yield _Reader(path, packed)
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise Damaged(f"{path} cannot be read as a backup: {error}") from None


def _manifest(reader: _Reader) -> tuple[Manifest, bytes]:
    member = reader.next()
    if member is None or member.name != MANIFEST:
        raise Damaged(f"{reader.path} is no backup of ours")
    content = reader.content(member, _MAX_MANIFEST_BYTES)
    try:
        manifest = msgspec.json.decode(content, type=Manifest)
    except msgspec.MsgspecError as error:
        raise Damaged(f"{reader.path} is no backup of ours: {error}") from None
    if manifest.format > FORMAT:
        raise Damaged(f"{reader.path} was written by a newer program ({manifest.version[:40]}): use that one")
    return manifest, content


def _must_fit(path: Path, size: int, into: Path) -> None:
    disk = os.statvfs(into)
    free = disk.f_bavail * disk.f_frsize - _SPARE_BYTES
    if size > free:
        raise Damaged(f"{path} needs {size / 1e6:,.0f} MB on {into.parent}, where {max(0, free) / 1e6:,.0f} MB are "
                      "free: make room first")  # fmt: skip


def _unpack_member(reader: _Reader, member: tarfile.TarInfo, into: Path) -> str:
    path = into / member.name
    file, found = reader.file(member), hashlib.sha256()
    try:
        for folder in reversed(path.relative_to(into).parents[:-1]):
            (into / folder).mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except (FileExistsError, NotADirectoryError):
        raise Damaged(f"{reader.path} is no backup of ours: {member.name!r} is in the way of another file") from None
    with os.fdopen(descriptor, "wb") as target:
        while content := file.read(_CHUNK):
            # Before a small file of zeros becomes a large one
            if member.name == DATABASE and not target.tell() and not content.startswith(_DATABASE_BEGINNING):
                raise Damaged(f"{reader.path} is no backup of ours: {DATABASE} in it is no database")
            found.update(content)
            target.write(content)
    if not member.size and member.name == DATABASE:
        raise Damaged(f"{reader.path} is no backup of ours: {DATABASE} in it is empty")
    return found.hexdigest()


def _check_sums(reader: _Reader, member: tarfile.TarInfo, sums: dict[str, str]) -> None:
    """Raise Damaged unless all members are what was written; this list cannot be longer than they make it."""
    longest = sum(len(_sum_line(checksum, name)) for name, checksum in sums.items())
    content = reader.content(member, longest).decode("utf-8", "replace")
    told = {name: found for found, _, name in (line.partition("  ") for line in content.splitlines())}
    if told != sums:
        wrong = next((name for name in (*told, *sums) if told.get(name) != sums.get(name)), SUMS)
        raise Damaged(f"{reader.path} is damaged: {wrong[:200]} is not what was written")


def _sum_line(checksum: str, name: str) -> str:
    return f"{checksum}  {name}\n"
