"""The test restore of the newest copy: it is fetched, decrypted, unpacked and checked in a scratch directory.

It checks what a real restore needs: the keys of this machine read the copy; its checksums and signature are valid; the
database is not damaged and has as many rows as the manifest says; and the counters of its campaigns agree with their
ledger rows. The directory is always removed. The test does not start without enough disk space.
"""

import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import apsw
import peewee

from appliance.campaigns import ledger_check, store
from appliance.core.errors import Unavailable
from appliance.ops.backups.archive import DATABASE
from appliance.ops.copies import catalog, fetch, keys, local
from appliance.ops.copies.catalog import CopyEntry
from appliance.ops.copies.fetch import DamagedCopy
from appliance.ops.copies.manifest import CopyManifest
from appliance.ops.copy_jobs.history import ProofResult
from appliance.ops.copy_jobs.schedule import SCRATCH_DIRECTORY
from appliance.ops.stores import open_store
from appliance.ops.stores.base import Damaged, Missing, Store
from appliance.settings.copies import Copies
from appliance.storage import database, disk_guard
from appliance.storage.database import close_database, open_database, rows, scalar
from appliance.storage.migrations import SchemaTooNew, migrate
from appliance.storage.models import Campaign

# The tables whose row counts the page shows, in this order, if the manifest has them.
COUNTED_TABLES = ("contact", "campaign", "flow", "template", "message", "event")
# SQLite limits its memory to this amount, so that a large database needs no more.
_MAX_SQLITE_BYTES = 256 * 1_048_576
# Duplicate addresses are searched only in campaigns of up to this many contacts, because the query sorts them.
_MAX_SORTED = 100_000
_MAX_DAMAGE = 3
_DISK_MARGIN = 1.1

ReportProgress = Callable[[str, float], None]


class ProofFailed(Exception):
    """The newest copy could not be restored; `code` names the kind of failure, the message is the reason.

    `tested` has the columns `copy`, `taken_at` and `size` of the history, as far as they are known.
    """

    def __init__(self, code: str, message: str, tested: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code, self.tested = code, tested or {}


def prove_newest(directory: Path, copies: Copies, report: ReportProgress) -> ProofResult:
    """Restore the newest copy of the installation in `directory` into a scratch directory, check it, and describe it.

    Raises ProofFailed if the copy is missing, damaged, incomplete or too large for the disk, or if older copies are
    damaged. Raises StoreError for another failure of the store. The scratch directory is removed in any case.
    """
    with closing(open_store(copies.store, copies)) as source:
        report("looking for the newest copy", 0.0)
        entries = catalog.list_copies(source, keys.catalog_reader())
        state = local.read_state(directory / local.FOLDER, source.url)
        manifest = _find_newest(entries, state.newest)
        tested = {"copy": manifest.id, "taken_at": manifest.taken_at, "size": manifest.size}
        identities = local.proof_keys(directory, manifest)
        if identities is None:
            raise ProofFailed("no_key", "this machine has no key for the newest copy", tested)
        _require_space(directory, manifest, tested)
        with _make_scratch(directory / SCRATCH_DIRECTORY) as scratch:
            try:
                fetch.fetch_copy(source, manifest, scratch, identities, report)
            except (DamagedCopy, Damaged, Missing) as error:
                local.mark_newest_damaged(directory / local.FOLDER, source.url)
                raise ProofFailed("damaged", str(error), tested) from None
            counts = _check_database(scratch / DATABASE, manifest, report, tested)
        if faults := _find_older_faults(source, entries, state):
            raise ProofFailed("older", "; ".join(faults[:_MAX_DAMAGE]), tested)
    return ProofResult(manifest.id, manifest.taken_at, manifest.size, counts)


def _find_newest(entries: list[CopyEntry], newest_id: str | None) -> CopyManifest:
    """Return the manifest of the copy that this machine made last, or else of the newest one in the store."""
    if newest_id is None:
        entry = next(iter(entries), None)
    else:
        entry = next((entry for entry in entries if entry.id == newest_id), None)
    if entry is None:
        name = f"the newest copy {newest_id}" if newest_id else "a copy of this installation"
        raise ProofFailed("missing", f"{name} is missing from the storage")
    if entry.manifest is None:
        raise ProofFailed("damaged", entry.fault, {"copy": entry.id, "taken_at": entry.taken_at})
    return entry.manifest


def _find_older_faults(source: Store, entries: list[CopyEntry], state: local.State) -> list[str]:
    """Return sentences about problems with the other copies in the store that a listing of its objects shows."""
    lost = catalog.find_lost_objects(source, entries)
    return [*catalog.find_faults(entries, state), *(f"{key} is missing or has another size" for key in lost)]


@contextmanager
def _make_scratch(scratch: Path) -> Iterator[Path]:
    shutil.rmtree(scratch, ignore_errors=True)  # of a process that was killed
    scratch.mkdir(mode=0o700)
    try:
        yield scratch
    finally:
        close_database()
        shutil.rmtree(scratch, ignore_errors=True)


def _require_space(directory: Path, manifest: CopyManifest, tested: dict[str, Any]) -> None:
    """Raise ProofFailed if restoring the copy would leave so little disk space that sending stops."""
    free, min_free = disk_guard.measure_free_space(directory)
    unpacked = manifest.page_size * manifest.page_count + sum(file.size for file in manifest.files)
    needed = int(unpacked * _DISK_MARGIN)
    if free - min_free < needed:
        free_mb = max(0, free - min_free) / 1e6
        text = f"the test needs {needed / 1e6:,.0f} MB on the disk, where {free_mb:,.0f} MB can be used"
        raise ProofFailed("no_space", text, tested)


def _check_database(
    path: Path, manifest: CopyManifest, report: ReportProgress, tested: dict[str, Any]
) -> dict[str, int]:
    """Check the restored database and return the counts of `COUNTED_TABLES`. Raises ProofFailed."""
    report("checking the database", 0.0)
    apsw.softheaplimit(_MAX_SQLITE_BYTES)
    try:
        open_database(path)
        if damage := database.integrity_check(_MAX_DAMAGE):
            raise ProofFailed("damaged", f"the database is damaged: {'; '.join(damage)}", tested)
        counts = {table: int(scalar(f'SELECT count(*) FROM "{table}"')) for table in manifest.counts}
        different = [
            f"{counts[table]} instead of {expected} rows in {table}"
            for table, expected in manifest.counts.items()
            if counts[table] != expected
        ]
        if different:
            raise ProofFailed("incomplete", f"rows are missing: {'; '.join(different)}", tested)
        migrate()  # The copy may be of a version before the last upgrade.
        if faults := list(_check_books(report)):
            raise ProofFailed("books", f"the books do not add up: {'; '.join(faults[:_MAX_DAMAGE])}", tested)
    except SchemaTooNew as error:
        raise ProofFailed("too_new", str(error), tested) from None
    except (apsw.Error, peewee.PeeweeException, Unavailable) as error:
        cause = disk_guard.to_storage_error(error) or error
        code = "no_space" if isinstance(error, apsw.FullError) else "damaged"
        raise ProofFailed(code, f"the database cannot be read: {cause}", tested) from None
    return {table: counts[table] for table in COUNTED_TABLES if table in counts}


def _check_books(report: ReportProgress) -> Iterator[str]:
    """Yield each difference between a campaign's counters and its ledger rows, for all campaigns in the database."""
    campaign_ids = [row[0] for row in rows("SELECT id FROM campaign WHERE started_at NOT NULL ORDER BY id")]
    for number, campaign_id in enumerate(campaign_ids):
        report("checking the books", number / len(campaign_ids))
        campaign: Campaign | None = store.find_with_sums(campaign_id)
        if campaign is None:
            continue
        faults = ledger_check.check_quickly(campaign)
        for batch in ledger_check.check_thoroughly(campaign, None, _MAX_SORTED):
            faults += batch
        yield from (f"campaign {campaign_id}: {fault}" for fault in faults)
