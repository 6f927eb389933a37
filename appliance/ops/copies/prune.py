"""Retention: decide which copies are kept, and delete the others with the objects that no kept copy needs."""

from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from appliance.ops import stores
from appliance.ops.copies import catalog, keys, local
from appliance.ops.copies import manifest as manifests
from appliance.ops.copies.catalog import CopyEntry
from appliance.ops.copies.create import CopyFailed
from appliance.ops.copies.manifest import BLOBS, COPIES, CopyManifest
from appliance.ops.stores.base import Store, StoreError
from appliance.settings.copies import Copies


class PruneResult(NamedTuple):
    """The ids of the deleted copies, and the number of other deleted objects."""

    deleted: list[str]
    orphan_count: int


def prune_copies(directory: Path, settings: Copies) -> PruneResult:
    """Delete the copies that the settings do not keep, and objects that belong to no copy. The key must be loaded.

    Only copies with our signature are deleted. Files are not deleted while one of our copies cannot be read, because it
    may need them. Raises CopyFailed.
    """
    try:
        with local.lock(directory) as folder, closing(stores.open_store(settings.store, settings)) as store:
            entries = catalog.list_copies(store, keys.catalog_reader())
            usable = [entry for entry in entries if entry.manifest is not None]
            kept_ids = choose_kept([entry.manifest for entry in usable if entry.manifest], settings)
            # A differential copy is deleted before its base.
            surplus = [entry for entry in usable if entry.id not in kept_ids]
            surplus.sort(key=lambda entry: entry.manifest is not None and entry.manifest.kind == "full")
            for entry in surplus:
                assert entry.manifest is not None, entry
                # Without its manifest a copy does not exist. If a kill leaves other objects of it, `_delete_orphans`
                # deletes them.
                store.delete(manifests.manifest_key(entry.id))
                for ref in entry.manifest.segments:
                    store.delete(ref.key)
            rest = [entry for entry in entries if entry.id in kept_ids or entry.manifest is None]
            orphan_count = _delete_orphans(store, folder, rest)
            return PruneResult([entry.id for entry in surplus], orphan_count + store.discard_unfinished())
    except (StoreError, local.CopyInProgress) as error:
        raise CopyFailed(str(error)) from error


def choose_kept(copies: list[CopyManifest], settings: Copies) -> set[str]:
    """Return the ids of the copies that are kept.

    These are the newest copy; the last copy of each of the last `keep_days` days (in UTC), `keep_weeks` weeks and
    `keep_months` months that have one; and the full copies on which these build. The current time is not used, so a
    wrong clock deletes nothing.
    """
    newest_first = sorted(copies, key=lambda copy: copy.sequence, reverse=True)
    copies_to_keep = {copy.id for copy in newest_first[:1]}
    periods: tuple[tuple[int, Callable[[datetime], object]], ...] = (
        (settings.keep_days, lambda moment: moment.date()),
        (settings.keep_weeks, lambda moment: moment.isocalendar()[:2]),
        (settings.keep_months, lambda moment: (moment.year, moment.month)),
    )
    for count, name_period in periods:
        last_by_period: dict[object, str] = {}
        for copy in newest_first:
            last_by_period.setdefault(name_period(datetime.fromtimestamp(copy.taken_at / 1000, UTC)), copy.id)
        copies_to_keep.update(list(last_by_period.values())[:count])
    return copies_to_keep | {copy.base for copy in copies if copy.id in copies_to_keep and copy.base is not None}


def _delete_orphans(store: Store, folder: Path, entries: list[CopyEntry]) -> int:
    """Delete the objects that belong neither to one of `entries` nor to the copy in the spool; return their number.

    Objects that are newer than the newest manifest are not deleted: they may belong to a copy that another machine is
    making.
    """
    newest = max((entry for entry in entries if entry.manifest), key=lambda entry: entry.id, default=None)
    newest_info = store.head(manifests.manifest_key(newest.id)) if newest else None
    if newest_info is None:
        return 0
    spool = local.read_spool(folder)
    ids = {entry.id for entry in entries} | ({spool.plan.copy_id} if spool else set())
    count = 0
    for info in list(store.list(COPIES)):
        copy_id = manifests.copy_id_of(info.key)
        if copy_id is not None and copy_id not in ids and info.modified_ms < newest_info.modified_ms:
            store.delete(info.key)
            count += 1
    if any(entry.manifest is None and entry.signer is None for entry in entries):
        return count  # A copy of ours that cannot be read may need any file.
    needed = {file.blob.key for entry in entries if entry.manifest for file in entry.manifest.files}
    if spool is not None:
        needed |= set(spool.plan.state.blobs)
    for info in list(store.list(BLOBS)):
        if info.key not in needed and info.modified_ms < newest_info.modified_ms:
            store.delete(info.key)
            count += 1
    return count
