"""Fetching a copy: its objects are verified against the signed manifest, decrypted, and written as a data directory."""

import hashlib
import io
import os
import tempfile
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO

from appliance.ops.backups import archive
from appliance.ops.backups.archive import DATABASE
from appliance.ops.copies import keys, pages
from appliance.ops.copies import manifest as manifests
from appliance.ops.copies.keys import ReadingKeys
from appliance.ops.copies.manifest import CopyManifest, FileRef, ObjectRef, UnusableManifest
from appliance.ops.stores import base
from appliance.ops.stores.base import Store

# A segment may be somewhat larger than `create.SEGMENT_BYTES`.
_MAX_SEGMENT_BYTES = 192 << 20
_RESERVED_BYTES = 16 << 20
# A file that was encrypted again has a header of another size: one line for each recipient, and a line of random
# length.
_MAX_HEADER_BYTES = 64 << 10
_SQLITE_HEADER = b"SQLite format 3\0"


class DamagedCopy(Exception):
    """The copy cannot be restored: an object is missing, was changed, or cannot be read with these keys."""


def fetch_copy(
    store: Store,
    manifest: CopyManifest,
    into: Path,
    reader: ReadingKeys,
    report_progress: Callable[[str, float], None] = lambda words, part: None,
    skip_lost_files: bool = False,
) -> list[str]:
    """Write the database, the key, the journal and the files of a copy into an empty directory.

    All contents are verified with the checksums of the manifest, which must come from `catalog.list_copies`. Returns
    the names of files that are missing or damaged in the store; without `skip_lost_files` these raise DamagedCopy.
    Raises StoreError if the store cannot be reached.
    """
    names = [file.name for file in manifest.files]
    if wrong := next((name for name in names if not archive.is_member_name(name) or name == DATABASE), None):
        raise DamagedCopy(f"{manifest.id} is not a copy of Campanero: it contains {wrong[:200]!r}")
    if len(set(names)) != len(names):
        raise DamagedCopy(f"{manifest.id} is not a copy of Campanero: it contains a file twice")
    size = manifest.page_size * manifest.page_count
    _require_space(into, size + sum(file.size for file in manifest.files) + 2 * _MAX_SEGMENT_BYTES)
    base_manifest = _read_base(store, manifest, reader)
    _fetch_database(store, manifest, base_manifest, into / DATABASE, reader, report_progress)
    lost = []
    for number, file in enumerate(manifest.files):
        report_progress("fetching files", number / len(manifest.files))
        try:
            _fetch_file(store, file, into, reader)
        except (DamagedCopy, base.Missing) as error:
            if not skip_lost_files or "/" not in file.name:
                raise DamagedCopy(f"{file.name}: {error}") from None
            (into / file.name).unlink(missing_ok=True)
            lost.append(file.name)
    return lost


def _require_space(into: Path, needed: int) -> None:
    disk = os.statvfs(into)
    free = disk.f_bavail * disk.f_frsize - _RESERVED_BYTES
    if free < needed:
        raise DamagedCopy(f"{into} has {max(0, free) / 1e6:,.0f} MB free, but the copy needs {needed / 1e6:,.0f} MB")


def _read_base(store: Store, manifest: CopyManifest, reader: ReadingKeys) -> CopyManifest | None:
    """Return the manifest of the full copy on which a differential copy builds, or None for a full copy."""
    if manifest.base is None:
        return None
    try:
        content = manifests.read_object(store, manifests.manifest_key(manifest.base))
        if hashlib.sha256(content).hexdigest() != manifest.base_sha256:
            raise DamagedCopy(f"the full copy {manifest.base} was replaced by another than {manifest.id} builds on")
        base_manifest = manifests.open_manifest(content, manifest.base, reader)
    except (base.Missing, UnusableManifest) as error:
        raise DamagedCopy(f"the full copy {manifest.base} that {manifest.id} builds on: {error}") from None
    if base_manifest.kind != "full" or base_manifest.page_size != manifest.page_size:
        raise DamagedCopy(f"{manifest.base} is not a full copy that {manifest.id} can build on")
    return base_manifest


def _fetch_database(
    store: Store,
    manifest: CopyManifest,
    base_manifest: CopyManifest | None,
    path: Path,
    reader: ReadingKeys,
    report_progress: Callable[[str, float], None],
) -> None:
    identities = keys.parse_identities(reader.identities)
    segments = [*(base_manifest.segments if base_manifest else []), *manifest.segments]
    # If the database has shrunk since the base, the pages after its end are cut off.
    max_pages = max(manifest.page_count, base_manifest.page_count if base_manifest else 0)
    total = sum(ref.size for ref in segments) or 1
    done = 0
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
    with os.fdopen(descriptor, "w+b") as file, ThreadPoolExecutor(1, thread_name_prefix="fetch") as pool:
        ahead: Future[BinaryIO] | None = None
        for number, ref in enumerate(segments):
            report_progress("fetching the database", done / total)
            encrypted = (ahead or pool.submit(_download, store, ref, path.parent)).result()
            rest = segments[number + 1 :]
            ahead = pool.submit(_download, store, rest[0], path.parent) if rest else None
            with encrypted:
                plain = io.BytesIO()
                _decrypt(encrypted, plain, identities, ref.key)
            plain.seek(0)
            try:
                pages.write_pages(plain, file, manifest.page_size, max_pages)
            except pages.DamagedSegment as error:
                raise DamagedCopy(f"{ref.key} is damaged: {error}") from None
            done += ref.size
        file.truncate(manifest.page_size * manifest.page_count)
        file.seek(0)
        digest = hashlib.sha256()
        while chunk := file.read(base.CHUNK_BYTES):
            digest.update(chunk)
        if digest.hexdigest() != manifest.database_sha256:
            raise DamagedCopy(f"the checksum of the database of {manifest.id} differs from its manifest")
        file.seek(0)
        if file.read(len(_SQLITE_HEADER)) != _SQLITE_HEADER:
            raise DamagedCopy(f"{manifest.id} contains no SQLite database")
        file.flush()
        os.fsync(file.fileno())


def _download(store: Store, ref: ObjectRef, folder: Path) -> BinaryIO:
    """Return an unnamed file with an object, whose checksum is verified. Raises DamagedCopy."""
    if ref.size > _MAX_SEGMENT_BYTES:
        raise DamagedCopy(f"{ref.key} is too large for a segment")
    target: Any = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - the caller closes it
    try:
        if _copy_object(store, ref, target) != ref.sha256:
            raise DamagedCopy(f"{ref.key} was changed in the storage: its checksum differs from the manifest")
    except base.Missing as error:
        target.close()
        raise DamagedCopy(f"{ref.key} is missing in the storage: {error}") from None
    except BaseException:
        target.close()
        raise
    target.seek(0)
    file: BinaryIO = target
    return file


def _copy_object(store: Store, ref: ObjectRef, target: BinaryIO, surplus_bytes: int = 0) -> str:
    """Write an object into a file, and return its SHA-256 as hex, or "" if its size differs from `ref.size`.

    Of a larger object, at least `surplus_bytes` beyond that size are written.
    """
    digest, size = hashlib.sha256(), 0
    with store.open(ref.key) as stream:
        while size <= ref.size + surplus_bytes and (chunk := stream.read(base.CHUNK_BYTES)):
            size += len(chunk)
            digest.update(chunk)
            target.write(chunk)
    return digest.hexdigest() if size == ref.size else ""


def _decrypt(source: Any, target: Any, identities: list[Any], name: str) -> None:
    import pyrage

    try:
        pyrage.decrypt_io(source, target, identities)
    except pyrage.DecryptError as error:
        raise DamagedCopy(f"{name} cannot be decrypted: {error}") from None
    except OSError as error:
        if error.errno is not None:
            raise
        # pyrage raises OSError without an errno for content whose authentication fails.
        raise DamagedCopy(f"{name} cannot be decrypted: {error}") from None


def _fetch_file(store: Store, file: FileRef, into: Path, reader: ReadingKeys) -> None:
    """Write a file of a copy, and verify its content.

    The checksum of the encrypted object is not verified: an object that was lost or damaged is encrypted again by a
    later copy, and then has other bytes.
    """
    path = into / file.name
    own = reader.by_object.get(file.blob.key)
    identities = keys.parse_identities([own] if own else reader.identities)
    with tempfile.TemporaryFile(dir=into) as encrypted:
        _copy_object(store, file.blob, encrypted, _MAX_HEADER_BYTES)
        encrypted.seek(0)
        for folder in reversed(path.relative_to(into).parents[:-1]):
            (into / folder).mkdir(mode=0o700, exist_ok=True)
        with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600), "w+b") as target:
            _decrypt(encrypted, target, identities, file.blob.key)
            if target.tell() != file.size:
                raise DamagedCopy(f"the size of {file.blob.key} differs from the manifest")
            target.seek(0)
            if hashlib.file_digest(target, "sha256").hexdigest() != file.sha256:
                raise DamagedCopy(f"the content of {file.blob.key} differs from the manifest")
