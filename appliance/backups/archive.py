"""The file of a backup: a gzipped tar of the database as of one moment, what lies beside it, and what vouches for both.

First comes `campanero-backup.json`, so that a look at the beginning says what it is; last `SHA256SUMS`, so that a file
that was cut short is not taken for a whole one. Names are ours alone: nothing else is ever unpacked.
"""

import gzip
import hashlib
import io
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Protocol

import msgspec

from appliance.backups.placing import FOLDERS
from appliance.db.journal import Mark
from appliance.patterns import late

MANIFEST, DATABASE, SUMS, KEY = "campanero-backup.json", "campanero.db", "SHA256SUMS", "secret.key"
FORMAT = 1
_NAMES = late(rf"(?:{DATABASE}|optouts\.jsonl|{KEY}|(?:{'|'.join(FOLDERS)})/[A-Za-z0-9._/-]{{1,200}})")
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
    taken_at: int  # milliseconds
    key: str  # a fingerprint of the key file that belongs to it
    with_key: bool
    journal: Mark | None  # where the journal of refusals stood before the moment of the backup


class Source(Protocol):
    """What is packed: reads are all that is asked of it."""

    def read(self, size: int, /) -> bytes:
        """Answer the next bytes, no more than so many."""
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
        self._sums += f"{hashing.digest()}  {name}\n"

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
    """Answer what a backup says of itself; raises Damaged."""
    with _reading(path) as tar:
        return _manifest(tar, path)


def unpack(path: Path, into: Path) -> Manifest:
    """Unpack a backup into an empty directory and answer its manifest; raises Damaged unless all of it is whole."""
    sums: dict[str, str] = {}
    with _reading(path) as tar:
        manifest = _manifest(tar, path)
        while (member := tar.next()) is not None:
            if member.name == SUMS:
                _vouched(tar, member, sums, path)
                break
            if not member.isreg() or not _NAMES.fullmatch(member.name) or ".." in member.name:
                raise Damaged(f"{path} is no backup of ours: it holds {member.name!r}")
            sums[member.name] = _unpacked(tar, member, into)
        else:
            raise Damaged(f"{path} is cut short")
    if DATABASE not in sums:
        raise Damaged(f"{path} holds no database")
    return manifest


@contextmanager
def _reading(path: Path) -> Iterator[tarfile.TarFile]:
    try:
        with tarfile.open(path, "r|gz", bufsize=_CHUNK) as tar:
            yield tar
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise Damaged(f"{path} cannot be read as a backup: {error}") from None


def _manifest(tar: tarfile.TarFile, path: Path) -> Manifest:
    member = tar.next()
    file = tar.extractfile(member) if member is not None and member.name == MANIFEST else None
    if file is None:
        raise Damaged(f"{path} is no backup of ours")
    try:
        manifest = msgspec.json.decode(file.read(_CHUNK), type=Manifest)
    except msgspec.MsgspecError as error:
        raise Damaged(f"{path} is no backup of ours: {error}") from None
    if manifest.format > FORMAT:
        raise Damaged(f"{path} was written by a newer program ({manifest.version}): use that one")
    return manifest


def _unpacked(tar: tarfile.TarFile, member: tarfile.TarInfo, into: Path) -> str:
    path = into / member.name
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    file, found = tar.extractfile(member), hashlib.sha256()
    assert file is not None, "a regular file"
    with path.open("xb") as target:
        path.chmod(0o600)
        while content := file.read(_CHUNK):
            found.update(content)
            target.write(content)
    return found.hexdigest()


def _vouched(tar: tarfile.TarFile, member: tarfile.TarInfo, sums: dict[str, str], path: Path) -> None:
    file = tar.extractfile(member)
    content = file.read().decode("utf-8", "replace") if file is not None else ""
    told = {name: found for found, _, name in (line.partition("  ") for line in content.splitlines())}
    told.pop(MANIFEST, None)
    if told != sums:
        wrong = next((name for name in (*told, *sums) if told.get(name) != sums.get(name)), SUMS)
        raise Damaged(f"{path} is damaged: {wrong} is not what was written")
