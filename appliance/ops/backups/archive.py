"""The format of a backup file, and the replacement of the current data with restored data.

A backup is a gzipped tar. `campanero-backup.json` comes first, so that the start of the file identifies a backup;
`SHA256SUMS` and its signature come last, so that a truncated file is recognized. The signature is made with the
installation's key, which is not stored with the backups. Without the key, an attacker cannot change a backup so that it
is still accepted. A backup that contains a file whose name `is_member_name` does not allow is rejected.
"""

import errno
import gzip
import hashlib
import hmac
import io
import os
import re
import shutil
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Annotated, NamedTuple, Protocol

import msgspec

from appliance.core import crypto, untrusted_json
from appliance.core.data_dir import sync_to_disk
from appliance.core.untrusted_json import InvalidJson
from appliance.storage.journal import JournalPosition

STAGING_DIRECTORY = ".restoring"
LOG_SUFFIXES = ("-wal", "-shm")
_READY_MARKER, _DATABASE, _JOURNAL = "ready", "campanero.db", "optouts.jsonl"
# Directories of files that rows of the database refer to: uploaded imports, pending audience snapshots, and files that
# are attached to messages. `certificates` has the sealed account and certificate of an ACME CA.
FILE_DIRECTORIES = ("imports", "audiences", "attachments", "certificates")


def install_restored_data(directory: Path) -> None:
    """Replace the current data with the restored data in the staging directory.

    The write-ahead log of the current database is deleted, so call this only after a checkpoint. If the process is
    killed before the database file is replaced, the old data stays; if it is killed later, `finish_installation`
    completes the restore.
    """
    staging = directory / STAGING_DIRECTORY
    key = staging / crypto.KEY_FILE
    if key.exists() and not os.path.lexists(directory / crypto.KEY_FILE):
        sync_to_disk(key)
        key.rename(directory / crypto.KEY_FILE)
    for end in LOG_SUFFIXES:
        (directory / f"{_DATABASE}{end}").unlink(missing_ok=True)
    (staging / _READY_MARKER).touch()
    sync_to_disk(staging)
    (staging / _DATABASE).replace(directory / _DATABASE)
    sync_to_disk(directory)
    finish_installation(directory)


def is_installing(directory: Path) -> bool:
    """Return whether a restore has replaced the database, but not yet moved all other files into place."""
    staging = directory / STAGING_DIRECTORY
    return (staging / _READY_MARKER).exists() and not (staging / _DATABASE).exists()


def discard_staging(directory: Path) -> None:
    """Delete the staging directory, unless `finish_installation` needs it to complete a restore."""
    if not is_installing(directory):
        shutil.rmtree(directory / STAGING_DIRECTORY, ignore_errors=True)


def finish_installation(directory: Path) -> None:
    """Move the files that remain in the staging directory into place, and delete that directory.

    Call this at every start, with the directory locked. It completes a restore that was killed after it had replaced
    the database file. If the restore was killed before that, the old data is still in place, and the staging directory
    is only deleted. Raises OSError if a file cannot be moved; the next call continues.
    """
    if not is_installing(directory):
        discard_staging(directory)
        return
    staging = directory / STAGING_DIRECTORY
    # The journal comes first, because it protects people who opted out (P11).
    if (staging / _JOURNAL).exists():
        (staging / _JOURNAL).rename(directory / _JOURNAL)
    for name in FILE_DIRECTORIES:
        _replace_content(staging / name, directory / name)
    sync_to_disk(directory)
    shutil.rmtree(staging)


def find_shared_folder(directory: Path) -> str | None:
    """Return the name of a folder that a restore would empty although it contains other data, or None.

    A folder that is a symbolic link may lead to the data directory or the backups, or to the same place as another
    folder.
    """
    data, backups = directory.resolve(), (directory / "backups").resolve()
    links_first = sorted(FILE_DIRECTORIES, key=lambda name: not (directory / name).is_symlink())
    places = {name: (directory / name).resolve() for name in links_first}
    for name, place in places.items():
        others = [backups, *(other for key, other in places.items() if key != name)]
        if any(place == other or place in other.parents for other in (data, *others)):
            return name  # emptying it would delete the other
        if any(other in place.parents for other in others):
            return name  # it would be deleted with the other, or is among backups
    return None


def _replace_content(source: Path, target: Path) -> None:
    """Replace the content of the folder `target`, which may be a mount point or a link, with the content of `source`.

    Do nothing if neither `source` nor what an interrupted call left of it exists.
    """
    moving = source.with_name(f"{source.name}.moving")
    if source.exists():
        target.mkdir(mode=0o700, exist_ok=True)
        for entry in target.iterdir():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()
        # From here on, files were moved into the target, so a call after an interruption must not empty it again.
        source.rename(moving)
    if not moving.exists():
        return
    for entry in moving.iterdir():
        try:
            entry.rename(target / entry.name)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            _copy_to_device(entry, target / entry.name)
    sync_to_disk(target)
    moving.rmdir()


def _copy_to_device(source: Path, target: Path) -> None:
    """Copy a file or a folder to another file system, replacing what an interrupted copy left there."""
    if source.is_dir():
        target.mkdir(mode=0o700, exist_ok=True)
        for entry in source.iterdir():
            _copy_to_device(entry, target / entry.name)
        sync_to_disk(target)
        source.rmdir()
    else:
        shutil.copy2(source, target)
        sync_to_disk(target)
        source.unlink()


MANIFEST, DATABASE, SUMS, KEY = "campanero-backup.json", "campanero.db", "SHA256SUMS", "secret.key"
SIGNATURE = "SHA256SUMS.hmac"
FORMAT = 1
# One level of a path, neither `.` nor `..`. The path of a member has one to eight levels below its directory.
_PATH_STEP = r"/(?!\.{1,2}(?:/|$))[A-Za-z0-9._-]{1,200}"
_MEMBER_NAME = re.compile(
    rf"(?:{DATABASE}|optouts\.jsonl|{KEY}|(?:{'|'.join(FILE_DIRECTORIES)})(?:{_PATH_STEP}){{1,8}})"
)
# Uploaded imports are stored for seven days and attached files for thirty, so a data directory has fewer files than
# this. With so many files, their checksums take some hundred MB of memory.
MAX_FILES = 1_000_000
_MAX_MANIFEST_BYTES = 65_536
_SIGNATURE_BYTES = 64  # of hex
# The end of the year 9999, the last year that Python's datetime supports.
_MAX_TIME_MS = 253_402_300_799_999
_MAX_HEADER_BYTES = 65_536
# Unpacking always leaves this much disk space free.
_RESERVED_BYTES = 16 * 1_048_576
_SQLITE_HEADER = b"SQLite format 3\0"
_CHUNK_BYTES = 1 << 20
# Level 1 takes a third of the time of level 6 for a file that is a tenth larger.
_COMPRESSION_LEVEL = 1


class DamagedArchive(Exception):
    """The file is not a complete backup that this version can unpack; the message is the reason."""


class Manifest(msgspec.Struct):
    """The description of a backup, stored as the first member of its file."""

    format: int  # `FORMAT` of the version that created the backup
    version: str  # the version of Campanero that created the backup
    schema: int  # the schema version of the database
    taken_at: Annotated[int, msgspec.Meta(ge=0, le=_MAX_TIME_MS)]  # milliseconds since 1970
    key: str  # the fingerprint of the key file
    with_key: bool  # whether the backup contains the key file
    journal: JournalPosition | None  # the end of the journal before the database was copied, None without a journal


def is_member_name(name: str) -> bool:
    """Return whether a backup may contain a file of this name in addition to the manifest and the checksums."""
    return bool(_MEMBER_NAME.fullmatch(name))


class Readable(Protocol):
    """A stream of bytes with a `read` method."""

    def read(self, size: int, /) -> bytes:
        """Return at most `size` further bytes, or none at the end."""
        ...


class ArchiveWriter:
    """Writes the members of a backup file, and collects their checksums for the last members."""

    def __init__(self, tar: tarfile.TarFile) -> None:
        self._tar, self._sums = tar, ""

    def add(self, name: str, file: Readable, size: int) -> None:
        """Add the first `size` bytes of `file` as a member. The file may grow while it is read, but not shrink."""
        hashing = _HashingReader(file)
        info = tarfile.TarInfo(name)
        info.size, info.mode = size, 0o600
        self._tar.addfile(info, hashing)  # type: ignore[arg-type]  # tarfile only calls read()
        self._sums += _sum_line(hashing.digest(), name)

    def add_bytes(self, name: str, content: bytes) -> None:
        """Add a member with this content."""
        self.add(name, io.BytesIO(content), len(content))

    def finish(self) -> None:
        """Add the last members: a checksum for each member before them, and the signature of the checksums."""
        sums = self._sums.encode()
        self.add_bytes(SUMS, sums)
        self.add_bytes(SIGNATURE, _sign(sums).encode())


class _HashingReader:
    def __init__(self, file: Readable) -> None:
        self._file, self._hash = file, hashlib.sha256()

    def read(self, size: int, /) -> bytes:
        content = self._file.read(size)
        self._hash.update(content)
        return content

    def digest(self) -> str:
        return self._hash.hexdigest()


@contextmanager
def open_writer(file: IO[bytes], manifest: Manifest) -> Iterator[ArchiveWriter]:
    """Yield a writer for the members after the manifest. An error in the block leaves `file` incomplete."""
    with (
        gzip.GzipFile(filename="", fileobj=file, mode="wb", compresslevel=_COMPRESSION_LEVEL, mtime=0) as compressed,
        tarfile.TarFile(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT, copybufsize=_CHUNK_BYTES) as tar,
    ):
        writer = ArchiveWriter(tar)
        writer.add_bytes(MANIFEST, msgspec.json.format(msgspec.json.encode(manifest)))
        yield writer
        writer.finish()


def read_manifest(path: Path) -> Manifest:
    """Return the manifest of a backup without checking the rest of the file. Raises DamagedArchive or OSError."""
    with _open_reader(path) as reader:
        return _parse_manifest(reader)[0]


class SignedSums(NamedTuple):
    """The list of checksums of a backup, and its signature."""

    content: bytes
    signature: str


def unpack_archive(path: Path, into: Path) -> SignedSums:
    """Unpack a backup into an empty directory, verify its checksums, and return them for `require_signature`.

    Raises DamagedArchive if the backup is incomplete, contains an unexpected member, or needs more disk space than is
    free. The space is checked before each member, so members that fit may already have been unpacked.
    """
    with _open_reader(path) as reader:
        _, content = _parse_manifest(reader)
        sums = {MANIFEST: hashlib.sha256(content).hexdigest()}
        while (member := reader.next()) is not None:
            if member.name == SUMS:
                signed_sums = _read_signed_sums(reader, member, sums)
                break
            if not is_member_name(member.name):
                raise DamagedArchive(f"{path} is not a Campanero backup: it contains {member.name[:200]!r}")
            if member.name in sums:
                raise DamagedArchive(f"{path} is not a Campanero backup: it contains {member.name!r} twice")
            if len(sums) > MAX_FILES:
                raise DamagedArchive(f"{path} is not a Campanero backup: it contains more than {MAX_FILES:,} files")
            _require_space(path, member.size, into)
            sums[member.name] = _unpack_member(reader, member, into)
        else:
            raise DamagedArchive(f"{path} is incomplete")
    if DATABASE not in sums:
        raise DamagedArchive(f"{path} contains no database")
    return signed_sums


def require_signature(path: Path, sums: SignedSums) -> None:
    """Raise DamagedArchive if the checksums of the backup `path` were not signed with the loaded key."""
    if not hmac.compare_digest(_sign(sums.content).encode(), sums.signature.encode()):
        raise DamagedArchive(f"{path} was changed after it was created: its signature does not match {KEY}")


def _sign(sums: bytes) -> str:
    return hmac.digest(crypto.derive_key("backup signature"), sums, "sha256").hex()


class _ArchiveReader:
    """A reader of the members of a backup, which allows only regular files and headers up to `_MAX_HEADER_BYTES`."""

    def __init__(self, path: Path, source: Readable) -> None:
        self.path = path
        self._bounded = _BoundedStream(path, source)
        self._tar = tarfile.open(fileobj=self._bounded, mode="r|", bufsize=_CHUNK_BYTES)  # type: ignore[call-overload]  # noqa: SIM115 - closed with its stream

    def next(self) -> tarfile.TarInfo | None:
        """Return the next member, or None at the end. Raises DamagedArchive if the member is not a regular file."""
        # tarfile reads headers into memory without checking their declared length.
        self._bounded.allow(_MAX_HEADER_BYTES)
        member: tarfile.TarInfo | None = self._tar.next()
        if member is not None:
            if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or member.issparse():
                raise DamagedArchive(
                    f"{self.path} is not a Campanero backup: {member.name[:200]!r} is not a regular file"
                )
            self._bounded.allow(member.size)
        return member

    def file(self, member: tarfile.TarInfo) -> IO[bytes]:
        """Return a stream of the member's content. Read the stream before the next call of `next`."""
        file: IO[bytes] | None = self._tar.extractfile(member)
        assert file is not None, "a plain file"
        return file

    def content(self, member: tarfile.TarInfo, max_bytes: int) -> bytes:
        """Return the member's content. Raises DamagedArchive if the content is larger than `max_bytes`."""
        if member.size > max_bytes:
            raise DamagedArchive(f"{self.path} is not a Campanero backup: {member.name} has {member.size:,} bytes")
        return self.file(member).read(max_bytes)


class _BoundedStream:
    """A stream that raises DamagedArchive when more bytes are read than `allow` has permitted."""

    def __init__(self, path: Path, source: Readable) -> None:
        self._path, self._source = path, source
        self._left = _CHUNK_BYTES  # tarfile reads ahead by this amount

    def allow(self, size: int) -> None:
        """Allow reading `size` more bytes."""
        self._left += size

    def read(self, size: int, /) -> bytes:
        """Return at most `size` further bytes. Raises DamagedArchive if more were read in total than allowed."""
        content = self._source.read(size)
        self._left -= len(content)
        if self._left < 0:
            raise DamagedArchive(f"{self._path} is not a Campanero backup: a header in it is too long")
        return content


@contextmanager
def _open_reader(path: Path) -> Iterator[_ArchiveReader]:
    try:
        with gzip.open(path) as decompressed:
            yield _ArchiveReader(path, decompressed)
    except (
        tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, RecursionError, ValueError, OverflowError,
    ) as error:  # fmt: skip
        # RecursionError: tarfile calls itself once for each header that extends the next header.
        # ValueError, OverflowError: tarfile does not check the numbers in PAX headers, and a manifest may not be UTF-8.
        raise DamagedArchive(f"{path} cannot be read as a backup: {error}") from None


def _parse_manifest(reader: _ArchiveReader) -> tuple[Manifest, bytes]:
    member = reader.next()
    if member is None or member.name != MANIFEST:
        raise DamagedArchive(f"{reader.path} is not a Campanero backup")
    content = reader.content(member, _MAX_MANIFEST_BYTES)
    try:
        manifest = untrusted_json.decode(content, Manifest, _MAX_MANIFEST_BYTES)
    except InvalidJson as error:
        raise DamagedArchive(f"{reader.path} is not a Campanero backup: {error}") from None
    if manifest.format > FORMAT:
        raise DamagedArchive(
            f"{reader.path} was created by version {manifest.version[:40]}: use that version or a newer one"
        )
    return manifest, content


def _require_space(path: Path, size: int, into: Path) -> None:
    disk = os.statvfs(into)
    free = disk.f_bavail * disk.f_frsize - _RESERVED_BYTES
    if size > free:
        raise DamagedArchive(
            f"{path} needs {size / 1e6:,.0f} MB on {into.parent}, where {max(0, free) / 1e6:,.0f} MB are "
            "free: make room first"
        )


def _unpack_member(reader: _ArchiveReader, member: tarfile.TarInfo, into: Path) -> str:
    path = into / member.name
    file, digest = reader.file(member), hashlib.sha256()
    try:
        for folder in reversed(path.relative_to(into).parents[:-1]):
            (into / folder).mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except (FileExistsError, NotADirectoryError):
        raise DamagedArchive(
            f"{reader.path} is not a Campanero backup: {member.name!r} conflicts with another file"
        ) from None
    with os.fdopen(descriptor, "wb") as target:
        while content := file.read(_CHUNK_BYTES):
            # The header is checked before anything is written, so that a small archive cannot expand into a large file
            # that is not a database.
            if member.name == DATABASE and not target.tell() and not content.startswith(_SQLITE_HEADER):
                raise DamagedArchive(
                    f"{reader.path} is not a Campanero backup: {DATABASE} in it is not a SQLite database"
                )
            digest.update(content)
            target.write(content)
    if not member.size and member.name == DATABASE:
        raise DamagedArchive(f"{reader.path} is not a Campanero backup: {DATABASE} in it is empty")
    return digest.hexdigest()


def _read_signed_sums(reader: _ArchiveReader, member: tarfile.TarInfo, sums: dict[str, str]) -> SignedSums:
    """Return the checksums in `member`, and the signature in the member after it.

    `sums` are the correct checksums by member name; a longer list is not read. Raises DamagedArchive if the list
    differs from `sums`, or if there is no signature.
    """
    longest = sum(len(_sum_line(checksum, name)) for name, checksum in sums.items())
    content = reader.content(member, longest)
    lines = content.decode("utf-8", "replace").splitlines()
    listed_sums = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    if listed_sums != sums:
        mismatch = next((name for name in (*listed_sums, *sums) if listed_sums.get(name) != sums.get(name)), SUMS)
        raise DamagedArchive(f"{reader.path} is damaged: the checksum of {mismatch[:200]} does not match")
    last = reader.next()
    if last is None or last.name != SIGNATURE:
        raise DamagedArchive(f"{reader.path} is incomplete: it has no signature")
    return SignedSums(content, reader.content(last, _SIGNATURE_BYTES).decode("ascii", "replace"))


def _sum_line(checksum: str, name: str) -> str:
    return f"{checksum}  {name}\n"
