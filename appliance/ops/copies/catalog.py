"""List the copies in a store, and find unusable, replaced and deleted ones."""

import hashlib
from collections.abc import Iterable
from typing import NamedTuple

from appliance.core import clock
from appliance.ops.copies import manifest as manifests
from appliance.ops.copies.keys import ReadingKeys
from appliance.ops.copies.local import State
from appliance.ops.copies.manifest import COPIES, CopyManifest, ObjectRef, UnknownSigner, UnusableManifest
from appliance.ops.stores import base
from appliance.ops.stores.base import Store

# The limits for the listing of a store. A store that exceeds them also has files of other writers: retention keeps at
# most 4,500 manifests, and reading unusable manifests takes time.
MAX_MANIFESTS = 10_000
MAX_UNUSABLE_BYTES = 1 << 30


class CopyEntry(NamedTuple):
    """A copy in a store. `manifest` is None, and `fault` says why, if the copy cannot be used by this reader."""

    id: str
    taken_at: int  # milliseconds, by the id, which is signed with the manifest
    sha256: str  # of the manifest as it is stored
    manifest: CopyManifest | None
    fault: str
    signer: bytes | None  # the public key that signed the copy, if that is not trusted


_WRITTEN_BY_OTHERS = "others write to it; delete what is theirs, and give the storage to this installation alone"


def list_copies(store: Store, reader: ReadingKeys) -> list[CopyEntry]:
    """Return the copies in a store, newest first.

    Raises StoreError, also if the store has more than `MAX_MANIFESTS` manifests, or more than `MAX_UNUSABLE_BYTES` of
    unusable ones.
    """
    sizes = {copy_id: info.size for info in store.list(COPIES) if (copy_id := manifests.parse_manifest_key(info.key))}
    if len(sizes) > MAX_MANIFESTS:
        raise base.StoreError(f"{store.url} has more than {MAX_MANIFESTS:,} manifests of copies: {_WRITTEN_BY_OTHERS}")
    entries, unusable_bytes = [], 0
    for copy_id in sorted(sizes, reverse=True):
        entries.append(entry := _read_entry(store, copy_id, reader))
        unusable_bytes += 0 if entry.manifest else sizes[copy_id]
        if unusable_bytes > MAX_UNUSABLE_BYTES:
            size = f"{MAX_UNUSABLE_BYTES >> 20:,} MiB"
            raise base.StoreError(f"{store.url} has more than {size} of unusable manifests: {_WRITTEN_BY_OTHERS}")
    return sorted(entries, key=lambda entry: entry.manifest.sequence if entry.manifest else 0, reverse=True)


def _read_entry(store: Store, copy_id: str, reader: ReadingKeys) -> CopyEntry:
    taken_at = manifests.time_of(copy_id)
    assert taken_at is not None, copy_id  # `parse_manifest_key` returns no other id
    content = b""
    try:
        content = manifests.read_object(store, manifests.manifest_key(copy_id))
        manifest, fault, signer = manifests.open_manifest(content, copy_id, reader), "", None
    except UnknownSigner as error:
        manifest, fault, signer = None, str(error), error.signer
    except (UnusableManifest, base.Missing, base.Damaged) as error:
        manifest, fault, signer = None, str(error), None
    sha256 = hashlib.sha256(content).hexdigest()
    return CopyEntry(copy_id, manifest.taken_at if manifest else taken_at, sha256, manifest, fault, signer)


def find_faults(entries: list[CopyEntry], state: State | None = None) -> list[str]:
    """Return sentences about copies that cannot be used, and about copies that others have deleted or replaced.

    `state` is what this machine has stored about the store, or None if it did not make the copies. Everybody who may
    write to a store can delete its newest copies; that only shows in `state`, or in the age of the newest remaining
    copy.
    """
    faults = [entry.fault for entry in entries if entry.fault]
    usable = {entry.id: entry for entry in entries if entry.manifest}
    for entry in usable.values():
        assert entry.manifest is not None, entry
        base_id = entry.manifest.base
        if base_id is not None and base_id not in usable:
            faults.append(f"{entry.id} cannot be restored: the full copy {base_id} that it builds on is missing")
        elif base_id is not None and usable[base_id].sha256 != entry.manifest.base_sha256:
            faults.append(f"{entry.id} cannot be restored: the full copy {base_id} was replaced by another")
    if state is not None and state.newest is not None:
        newest = usable.get(state.newest)
        if newest is None:
            faults.append(f"the newest copy {state.newest} is missing: it was deleted by others than this machine")
        elif newest.sha256 != state.newest_sha256:
            faults.append(f"the newest copy {state.newest} was replaced by another")
    return faults


def describe_age(manifest: CopyManifest) -> str | None:
    """Return a warning if the newest copy of a store is much older than its interval, else None."""
    age_ms = clock.now_ms() - manifest.taken_at
    if not manifest.every_seconds or age_ms < 2 * manifest.every_seconds * 1000 + clock.DAY_MS // 24:
        return None
    return (
        f"the newest copy is {age_ms / clock.DAY_MS:.1f} days old, although one was made every "
        f"{manifest.every_seconds / 3600:g} hours: newer ones were deleted, or never made"
    )


def find_lost_objects(store: Store, entries: Iterable[CopyEntry]) -> list[str]:
    """Return the keys of objects of usable copies that are missing from the store, or have another size.

    The objects are not read. Raises StoreError.
    """
    sizes = {info.key: info.size for prefix in (COPIES, manifests.BLOBS) for info in store.list(prefix)}
    refs = collect_objects(entry.manifest for entry in entries if entry.manifest)
    return sorted(key for key, ref in refs.items() if sizes.get(key) != ref.size)


def collect_objects(copies: Iterable[CopyManifest]) -> dict[str, ObjectRef]:
    """Return the objects of copies by key; `copies` must be given newest first.

    If this machine has no identity for the object of a file, or the object was damaged, the file is encrypted again
    under the same key. Then the newest copy describes the object, and its content still fits the older copies.
    """
    refs: dict[str, ObjectRef] = {}
    for copy in copies:
        for ref in list_objects(copy):
            refs.setdefault(ref.key, ref)
    return refs


def list_objects(manifest: CopyManifest) -> list[ObjectRef]:
    """Return the objects of a copy: its segments and files, without its manifest and its base."""
    return [*manifest.segments, *(file.blob for file in manifest.files)]


def verify_objects(store: Store, manifest: CopyManifest, refs: dict[str, ObjectRef]) -> list[str]:
    """Read all objects of a copy, and return a sentence for each that is missing or was changed.

    `refs` are the objects of this copy and all newer ones (`collect_objects`). No private key is needed. Raises
    StoreError if the store cannot be reached.
    """
    faults = []
    for ref in {ref.key: refs[ref.key] for ref in list_objects(manifest)}.values():
        digest, size = hashlib.sha256(), 0
        try:
            with store.open(ref.key) as stream:
                while size <= ref.size and (chunk := stream.read(base.CHUNK_BYTES)):
                    size += len(chunk)
                    digest.update(chunk)
        except (base.Missing, base.Damaged) as error:
            faults.append(f"{ref.key}: {error}")
            continue
        if digest.hexdigest() != ref.sha256:
            faults.append(f"{ref.key} has other bytes than it was stored with")
    return faults
