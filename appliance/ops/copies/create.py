"""Creation of a copy: a snapshot of the database, encrypted into the spool, and uploaded from there.

The snapshot is made like that of a backup, so the service may write meanwhile. Once the spool is complete, an
interrupted copy is uploaded by the next call, without another snapshot. A copy exists if its manifest exists, which is
uploaded last; a kill before that leaves objects that `prune_copies` deletes.
"""

import hashlib
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, BinaryIO

import apsw

from appliance import VERSION
from appliance.core import clock, crypto, data_dir
from appliance.ops import stores
from appliance.ops.backups import archive
from appliance.ops.backups import create as backups
from appliance.ops.backups.archive import DATABASE, KEY
from appliance.ops.copies import catalog, keys, local, pages
from appliance.ops.copies import manifest as manifests
from appliance.ops.copies.local import BaseCopy, Blob, Plan, Spool, State, Upload
from appliance.ops.copies.manifest import BLOBS, CopyManifest, FileRef, ObjectRef
from appliance.ops.copies.pages import PageIndex, PageReader
from appliance.ops.stores.base import Store, StoreError
from appliance.settings import config
from appliance.settings.copies import Copies
from appliance.storage import journal

SEGMENT_BYTES = 64 << 20
# After a differential copy that is larger than this share of its base, the next copy is a full one.
_MAX_DIFFERENTIAL_PART = 0.5
# The tables whose rows are counted for the manifest.
COUNTED_TABLES = (
    "account", "user", "contact", "channel", "suppression", "contact_list", "segment", "template", "media", "campaign",
    "flow", "run", "message", "event",
)  # fmt: skip

ProgressCallback = Callable[[str, float], None]


class CopyFailed(Exception):
    """The copy could not be made; the message is the reason. `__cause__` is the StoreError if the store failed."""


def create_copy(
    directory: Path, settings: Copies, report_progress: ProgressCallback = lambda words, part: None
) -> CopyManifest:
    """Make a copy of a data directory in the store of the settings, and return its manifest. The key must be loaded.

    If an earlier call could not upload its copy, that copy is uploaded first. `report_progress` gets the name of the
    current step and its progress from 0 to 1. Raises CopyFailed.
    """
    try:
        with local.lock(directory) as folder, closing(stores.open_store(settings.store, settings)) as store:
            recipients = find_recipients(folder, settings)
            resume_upload(store, folder, recipients, report_progress)
            state = _read_state(folder, store)
            if is_damaged := local.is_newest_damaged(folder, store.url):
                state.base, state.blobs = None, {}
            base = _find_usable_base(store, folder, settings, state, recipients)
            try:
                spool, manifest = _Builder(directory, folder, settings, recipients, report_progress).build(
                    store, state, base
                )
            except BaseException:
                local.discard_spool(folder)
                raise
            upload(store, folder, spool, report_progress)
            if is_damaged:
                local.clear_damage_mark(folder)
            return manifest
    except (StoreError, keys.UnusableKey, local.CopyInProgress, backups.BackupFailed) as error:
        raise CopyFailed(str(error)) from error
    except apsw.Error as error:
        raise CopyFailed(f"the database cannot be read: {error}") from error
    except OSError as error:
        raise CopyFailed(f"{error.strerror}: {error.filename}" if error.strerror else str(error)) from error


def find_recipients(folder: Path, settings: Copies) -> list[str]:
    """Return the public keys to which copies are encrypted. Raises CopyFailed if there is none, or UnusableKey."""
    protected = keys.read_protected_key(folder)
    recipients = list(dict.fromkeys([*settings.recipients, *([protected[0]] if protected else [])]))
    if not recipients:
        raise CopyFailed(
            "nobody could read the copies: set a passphrase (campanero copies passphrase), or copies.recipients"
        )
    keys.parse_recipients(recipients)
    return recipients


def resume_upload(store: Store, folder: Path, recipients: list[str], report_progress: ProgressCallback) -> bool:
    """Upload the copy in the spool, and return whether this was done. Raises StoreError.

    A copy for another store, or for other recipients than those of the settings, is deleted instead.
    """
    spool = local.read_spool(folder)
    if spool is None:
        return False
    if spool.plan.store != store.url or spool.plan.recipients != recipients:
        local.discard_spool(folder)
        return False
    upload(store, folder, spool, report_progress)
    return True


def upload(store: Store, folder: Path, spool: Spool, report_progress: ProgressCallback) -> None:
    """Upload the objects that the store lacks, the manifest last, and make it the newest copy. Raises StoreError."""
    total = sum(item.ref.size for item in spool.plan.uploads) or 1
    done, uploaded = 0, local.list_uploaded(spool)
    for item in spool.plan.uploads:
        report_progress("uploading", done / total)
        present = store.head(item.ref.key)
        # An object of the same file that was encrypted differently has the same key, and may have the same size.
        is_own = item.ref.key in uploaded or not item.ref.key.startswith(BLOBS)
        if present is None or present.size != item.ref.size or not is_own:
            with (spool.path / item.file).open("rb") as file:
                store.put(item.ref.key, file, item.ref.size, bytes.fromhex(item.ref.sha256))
            local.note_uploaded(spool, item.ref.key)
        done += item.ref.size
    local.install(folder, spool)


def _read_state(folder: Path, store: Store) -> State:
    """Return the stored state of the copies in a store; without one, a state that continues its newest copy.

    Raises CopyFailed if the store has copies of another installation.
    """
    state = local.read_state(folder, store.url)
    if state.newest is not None:
        return state
    entries = catalog.list_copies(store, keys.catalog_reader())
    if foreign := next((entry for entry in entries if entry.signer is not None), None):
        raise CopyFailed(f"{store.url} has copies of another installation ({foreign.id}): choose another folder")
    newest = max((entry.manifest for entry in entries if entry.manifest), key=lambda m: m.sequence, default=None)
    if newest is not None:
        state.sequence, state.newest = newest.sequence, newest.id
    return state


def _find_usable_base(
    store: Store, folder: Path, settings: Copies, state: State, recipients: list[str]
) -> tuple[BaseCopy, PageIndex] | None:
    """Return the full copy on which a differential copy can build, with its page index, or None.

    It must be complete in the store, encrypted to the same recipients, and younger than the setting `full_every`.
    """
    base = state.base
    if base is None or base.recipients != recipients or base.id not in state.identities:
        return None
    full_every_ms = config.parse_seconds(settings.full_every) * 1000
    if not 0 <= clock.now_ms() - base.taken_at < full_every_ms:
        return None
    index = PageIndex.read(local.index_path(folder, base.id))
    sizes = {info.key: info.size for info in store.list(f"{manifests.COPIES}{base.id}/")}
    is_whole = manifests.manifest_key(base.id) in sizes and all(sizes.get(ref.key) == ref.size for ref in base.segments)
    return (base, index) if index is not None and is_whole and index.page_size == base.page_size else None


class _Builder:
    """Builds one copy in the spool."""

    def __init__(
        self,
        directory: Path,
        folder: Path,
        settings: Copies,
        recipients: list[str],
        report_progress: ProgressCallback,
    ) -> None:
        self._directory, self._folder, self._settings = directory, folder, settings
        self._recipients, self._report = recipients, report_progress
        self._spool = folder

    def build(self, store: Store, state: State, base: tuple[BaseCopy, PageIndex] | None) -> tuple[Spool, CopyManifest]:
        """Write a copy into the spool, and return the spool and the manifest. Raises BackupFailed or OSError."""
        source = self._directory / DATABASE
        if not source.exists():
            raise CopyFailed(f"{self._directory} contains no data")
        if wrong_kinds := data_dir.find_wrong_kinds(self._directory):
            raise CopyFailed(wrong_kinds[0])
        backups.require_usable_database(source)
        self._spool = local.begin_spool(self._folder)
        backups.require_space(source, self._folder)
        mark, taken_at = backups.find_journal_end(self._directory, source), clock.now_ms()
        copy_id, (identity, own_recipient) = manifests.create_id(taken_at, secrets.token_hex(6)), keys.create_identity()
        with backups.copy_database(source, self._folder, self._report) as copy:
            page_size, page_count = pages.page_facts(copy.file)
            if base is not None and base[0].page_size != page_size:
                base = None
            counts = _count_rows(copy.connection)
            reader = PageReader(copy.file, page_size, page_count, base[1] if base else None)
            segments = self._write_segments(copy_id, reader, own_recipient)
            schema = copy.schema
        files, blobs, blob_uploads = self._write_files(store, state)
        manifest = CopyManifest(
            manifests.FORMAT, copy_id, "differential" if base else "full", base[0].id if base else None,
            base[0].sha256 if base else None, state.sequence + 1, state.newest,
            config.parse_seconds(self._settings.every), VERSION, schema, taken_at, crypto.key_fingerprint(), mark,
            page_size, page_count, reader.sha256, [item.ref for item in segments], files, counts,
        )  # fmt: skip
        sealed = manifests.seal_manifest(manifest, [*self._recipients, keys.public_key(keys.catalog_identity())])
        manifest_upload = self._add_file("manifest", manifests.manifest_key(copy_id), sealed)
        if base is None:
            reader.index.write(self._spool / "pages")
            new_base: BaseCopy | None = BaseCopy(
                copy_id, manifest_upload.ref.sha256, manifest.segments, self._recipients, taken_at, page_size
            )  # fmt: skip
            identities = {copy_id: identity}
        else:
            base_size = sum(ref.size for ref in base[0].segments)
            is_last = manifest.size > base_size * _MAX_DIFFERENTIAL_PART
            new_base = None if is_last else base[0]
            identities = {copy_id: identity, base[0].id: state.identities[base[0].id]}
        new_state = State(
            store.url, state.sequence + 1, copy_id, manifest_upload.ref.sha256, new_base, identities, blobs
        )  # fmt: skip
        uploads = [*self._add_recovery_key(), *blob_uploads, *segments, manifest_upload]
        index_file = "pages" if base is None else None
        plan = Plan(copy_id, store.url, self._recipients, uploads, index_file, new_state)
        return local.finish_spool(self._spool, plan), manifest

    def _write_segments(self, copy_id: str, reader: PageReader, own_recipient: str) -> list[Upload]:
        blocks = _BlockStream(reader.read_blocks(lambda part: self._report("encrypting", part)))
        recipients = keys.parse_recipients([*self._recipients, own_recipient])
        uploads: list[Upload] = []
        while blocks.begin_segment():
            name = f"data-{len(uploads) + 1:05}"
            uploads.append(self._encrypt(name, f"{manifests.COPIES}{copy_id}/{name}", blocks, recipients))
        return uploads

    def _write_files(self, store: Store, state: State) -> tuple[list[FileRef], dict[str, Blob], list[Upload]]:
        """Return the files of the copy, the blobs of their contents by key, and the blobs to be uploaded.

        A file whose content the store already has is not encrypted again.
        """
        present = {info.key: info.size for info in store.list(BLOBS)} if state.blobs else {}
        known = {key: blob for key, blob in state.blobs.items() if present.get(key) == blob.ref.size}
        files, blobs, uploads = list[FileRef](), dict[str, Blob](), list[Upload]()
        paths = [self._directory / journal.JOURNAL_FILE, self._directory / KEY]
        for path in [*paths, *(path for path, _ in backups.list_files(self._directory))]:
            name = path.relative_to(self._directory).as_posix()
            if not archive.is_member_name(name):
                continue  # A restore would reject a copy that contains a file of this name.
            try:
                file = path.open("rb")
            except FileNotFoundError:
                continue  # The service deleted the file, or the installation has none.
            with file:
                size = os.fstat(file.fileno()).st_size
                sha256, key = _hash_content(file, size)
                blob = blobs.get(key) or known.get(key)
                if blob is None:
                    identity, recipient = keys.create_identity()
                    recipients = keys.parse_recipients([*self._recipients, recipient])
                    file.seek(0)
                    item = self._encrypt(f"blob-{len(uploads):07}", key, _Limited(file, size), recipients)
                    uploads.append(item)
                    blob = Blob(item.ref, identity)
                blobs[key] = blob
                files.append(FileRef(name, size, sha256, blob.ref))
        return files, blobs, uploads

    def _add_recovery_key(self) -> list[Upload]:
        protected = keys.read_protected_key(self._folder)
        return [self._add_file("recovery", keys.protected_key_name(protected[1]), protected[1])] if protected else []

    def _add_file(self, name: str, key: str, content: bytes) -> Upload:
        data_dir.replace_file(self._spool / name, content)
        return Upload(name, ObjectRef(key, len(content), hashlib.sha256(content).hexdigest()))

    def _encrypt(self, name: str, key: str, source: Any, recipients: list[Any]) -> Upload:
        """Encrypt a stream into a file of the spool, synced to disk. Raises OSError if reading or writing fails."""
        import pyrage

        descriptor = os.open(self._spool / name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            target = _HashingWriter(file)
            try:
                pyrage.encrypt_io(source, target, recipients)
            except pyrage.EncryptError as error:
                # The error contains the text of the read or write error, such as a full disk.
                raise OSError(f"{name} could not be encrypted: {error}") from None
            file.flush()
            os.fsync(file.fileno())
            return Upload(name, ObjectRef(key, target.size, target.sha256))


class _BlockStream:
    """A stream of blocks in segments: it ends after about `SEGMENT_BYTES`, and `begin_segment` starts the next one."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks, self._rest, self._size = blocks, memoryview(b""), 0

    def begin_segment(self) -> bool:
        """Begin the next segment, and return whether there is one."""
        self._size = 0
        return self._load()

    def read(self, size: int, /) -> bytes:
        """Return at most `size` further bytes of the segment, or none at its end."""
        if not self._rest and (self._size >= SEGMENT_BYTES or not self._load()):
            return b""
        content, self._rest = bytes(self._rest[:size]), self._rest[size:]
        return content

    def _load(self) -> bool:
        block = next(self._blocks, b"")
        self._rest = memoryview(block)
        self._size += len(block)
        return bool(block)


class _HashingWriter:
    """Writes to a file, and counts and hashes the written bytes."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._digest, self.size = file, hashlib.sha256(), 0

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()

    def write(self, content: bytes) -> int:
        self._digest.update(content)
        self.size += len(content)
        return self._file.write(content)

    def flush(self) -> None:
        self._file.flush()


class _Limited:
    """A stream of the first bytes of a file that may grow while it is read, such as the journal."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file, self._left = file, size

    def read(self, size: int, /) -> bytes:
        content = self._file.read(min(size, self._left))
        self._left -= len(content)
        return content


def _hash_content(file: BinaryIO, size: int) -> tuple[str, str]:
    """Return the SHA-256 of the first bytes of a file as hex, and the key of its object.

    The key is a keyed hash of the content, so that others who can read the store cannot test whether it has a certain
    file.
    """
    sha256, keyed = hashlib.sha256(), hashlib.blake2b(key=crypto.derive_key("copies blobs"), digest_size=32)
    stream = _Limited(file, size)
    while chunk := stream.read(1 << 20):
        sha256.update(chunk)
        keyed.update(chunk)
    return sha256.hexdigest(), f"{BLOBS}{keyed.hexdigest()[:2]}/{keyed.hexdigest()}"


def _count_rows(connection: apsw.Connection) -> dict[str, int]:
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    return {
        name: int(connection.execute(f'SELECT count(*) FROM "{name}"').get) for name in COUNTED_TABLES if name in tables
    }
