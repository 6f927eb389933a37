"""Promote a machine that follows another one, at the request of an operator: from then on it sends.

1. The lease is claimed for the next epoch, so that the former machine stops at its next renewal. After the duration of
   its lease the former machine has certainly stopped, and the claim is released: the service of this machine, once it
   starts, takes it without waiting again. Nothing sends until then.
2. The changes that the former machine had copied are applied. Without a lease, only the operator knows that it is off;
   the promotion is refused if changes still arrive.
3. Following ends. The copy is checked, and messages that may have been sent since its last change are held
   (`holding.py`).
4. The copy becomes the database of this machine.

An interrupted promotion is continued by the next one. `source.json` has what must not be lost between them: the former
lease, which the claim replaces, and the report, once the copy is ready to become the database.
"""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from os import kill
from pathlib import Path
from typing import NamedTuple

import apsw
import msgspec
import peewee
from msgspec import structs

from appliance.audience.segments import query_plan
from appliance.core import clock, crypto, data_dir
from appliance.core.errors import NotFound
from appliance.ops import litestream, stores
from appliance.ops.backups import replay
from appliance.ops.fencing import mirror
from appliance.ops.fencing import record as records
from appliance.ops.fencing.record import FetchedLease, LeaseRecord, Node
from appliance.ops.standby import holding, place
from appliance.ops.standby.holding import Held
from appliance.ops.standby.place import Source, StandbyFailed
from appliance.ops.stores.base import Conflict, Store, StoreError
from appliance.settings import config
from appliance.storage import database as sql
from appliance.storage import disk_guard, journal, migrations, transactions
from appliance.storage.database import close_database, open_database
from appliance.storage.journal import JournalLine

_QUIET_SECONDS = 3.0  # nothing more arrives after this time without a change
# A machine without a lease counts as off if nothing arrives for this long: it would have written two heartbeats.
_OFF_SECONDS = 2 * litestream.HEARTBEAT_SECONDS + 2
_MAX_ARRIVAL_SECONDS = 60.0
_END_SECONDS = 30.0  # campanero follow ends Litestream and fetches the last files, each in ten seconds at most
_BUSY_MS = 5_000
_MAX_FAULTS, _MAX_REASON_CHARACTERS = 3, 200
_MAX_ATTEMPTS = 50
# Refusals from this long before the last heartbeat on are replayed, too, because the journal is copied separately.
_JOURNAL_MARGIN_MS = 60_000

_NO_LEASE = "no lease is set up (lease.store), so nothing would keep the other machine from sending"

Report = Callable[[str], None]


class Promotion(NamedTuple):
    """The result of a promotion."""

    epoch: int | None  # None without a lease
    heartbeat_ms: int | None  # the last time of the former machine that has arrived, by its clock
    held: Held


def promote(directory: Path, is_other_off: bool, report: Report) -> list[str]:
    """Promote the machine with this data directory, and return the lines of the final report for the operator.

    Raises StandbyFailed; the call can then be repeated. `is_other_off` says that the operator has switched the other
    machine off; it is required without a lease, and refused with one. `report` is called with a line for each step.
    """
    _load_source(directory)  # before the folder is locked, which only a machine that follows another one has
    with place.lock_promotion(directory):
        source = _load_source(directory)
        if source.report is not None and (directory / place.DATABASE).exists():
            # A promotion was killed after its last step, before it deleted the folder.
            place.remove_folder(directory)
            return source.report
        return _promote(directory, source, is_other_off, report)


def _load_source(directory: Path) -> Source:
    source = place.load_source(directory)
    if source is None:
        raise StandbyFailed(f"{directory} follows no other machine: see campanero follow")
    return source


def _promote(directory: Path, source: Source, is_other_off: bool, report: Report) -> list[str]:
    """Do the steps of the module's description in their order. What can be refused is, before the lease is claimed."""
    has_lease = bool(config.current().lease.store)
    if has_lease and is_other_off:
        raise StandbyFailed("a lease is set up, which stops the other machine: leave out --old-machine-is-off")
    if not has_lease and not is_other_off:
        raise StandbyFailed(
            f"{_NO_LEASE}. If you have made sure that it is off and will not start again: --old-machine-is-off"
        )
    place.require_no_database(directory)
    _require_usable_copy(directory)
    epoch = _take_lease(directory, source, report) if has_lease else None
    _wait_for_rest(directory, report)
    if not has_lease:
        _require_silence(directory, report)
        # An earlier attempt may have stored a lease. The other machine has continued since, so that lease may lack
        # blocks.
        source.lease = None
        place.save_source(directory, source)
    _end_following(directory)
    with data_dir.lock(directory):
        return _install(directory, source, epoch, report)


def take_back(directory: Path, report: Report) -> int:
    """Claim the lease for a machine that has the current data but not the lease, and return the epoch.

    Call it while the service is stopped, if the operator has decided that the other machine has no newer data that
    matters. Raises StandbyFailed.
    """
    crypto.load_key(directory)
    return _claim(directory, lambda former: None, report)


def _require_usable_copy(directory: Path) -> None:
    """Raise StandbyFailed unless there is a complete copy that belongs to the key of this directory.

    This is checked before anything is changed. If the copy has foreign triggers or views, the other machine continues
    to send.
    """
    database = place.find_database(directory)
    if database is None:
        raise StandbyFailed("the copy of the database is not complete yet: wait until campanero follow says ready")
    try:
        migrations.check_key(directory, migrations.inspect_database(database))
        handle = apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            handle.set_busy_timeout(_BUSY_MS)
            _reject_objects(migrations.find_foreign_objects(handle, with_indexes=True))
        finally:
            handle.close()
    except (migrations.UnusableDatabase, apsw.Error) as error:
        raise StandbyFailed(f"the copy cannot be used: {error}") from None


def _reject_objects(names: list[str]) -> None:
    """Raise StandbyFailed if there are triggers or views of another writer of the replica; `names` has theirs."""
    if names:
        raise StandbyFailed(
            f"the copy cannot be used: it has triggers or views that are not ours: {', '.join(names[:3])}"
        )


def _require_own_schema() -> None:
    """Migrate the open copy. Raises StandbyFailed for foreign triggers and views, or if it lacks tables or columns."""
    query_plan.drop_indexes()  # the service creates them and their triggers again
    _reject_objects(migrations.find_foreign_objects(sql.connection()))
    migrations.migrate()
    if missing := migrations.find_missing_columns():
        raise StandbyFailed(f"the copy cannot be used: it lacks {', '.join(missing[:5])}")


def _take_lease(directory: Path, source: Source, report: Report) -> int:
    """Claim the lease, and store the former one in `source`, from which `holding` knows what may have left."""

    def remember(former: LeaseRecord | None) -> None:
        # The latest lease counts: the lease that a failed attempt has stored may have been renewed since.
        source.lease = former
        place.save_source(directory, source)

    return _claim(directory, remember, report)


def _claim(directory: Path, remember: Callable[[LeaseRecord | None], None], report: Report) -> int:
    """Write the lease of the next epoch for this machine, wait until the former holder has stopped, and release it.

    Return the epoch. `remember` gets the former lease before it is replaced, and None if there is none. It is not
    called if this machine has replaced it before, in an attempt that was interrupted; the wait is then repeated, unless
    that attempt has ended it. Raises StandbyFailed.
    """
    settings = config.current()
    if not settings.lease.store:
        raise StandbyFailed(_NO_LEASE)
    try:
        store = stores.open_store(settings.lease.store, settings.copies)
        try:
            claim = _write_claim(store, directory, remember, report)
            if claim.wait_seconds:
                report(f"waiting {claim.wait_seconds} s, until the former machine has stopped in any case")
                time.sleep(claim.wait_seconds)
            _release(store, claim.lease)
            return claim.lease.record.epoch
        finally:
            store.close()
    except StoreError as error:
        raise StandbyFailed(f"the lease cannot be taken: {error}") from None


class _Claim(NamedTuple):
    """The lease that names this machine, and how long to wait until no other process sends with a former one."""

    lease: FetchedLease
    wait_seconds: int


def _release(store: Store, claim: FetchedLease) -> None:
    """Release the lease of this machine, so that its service takes it without waiting for its duration again.

    Call it after the wait: a released lease says that no machine sends. Raises StoreError, and Conflict if another
    machine has taken the lease meanwhile.
    """
    if not claim.record.is_released:
        records.put_lease(store, records.renew(claim.record, is_released=True), claim.etag)


def _write_claim(
    store: Store, directory: Path, remember: Callable[[LeaseRecord | None], None], report: Report
) -> _Claim:
    """Write the lease of the next epoch for this machine, unless an interrupted attempt has. Raises StoreError.

    The former holder may write the lease many times a second while it sends, so up to `_MAX_ATTEMPTS` attempts are
    made.
    """
    node, seconds = records.load_node(directory), config.current().lease.seconds
    for attempt in range(_MAX_ATTEMPTS):
        fetched = records.fetch_lease(store)
        former, etag = fetched if fetched is not None else (None, None)
        if fetched is not None and _is_own_claim(fetched.record, node):
            report("the lease was taken before")
            _save_epoch(directory, node, fetched.record.epoch)
            return _Claim(fetched, _count_wait(fetched.record))
        remember(former)
        # The object may be missing, or may be an earlier one than this machine has seen.
        epoch = max(node.epoch, max(former.epoch if former is not None else 0, node.seen_epoch) + 1)
        claim = records.claim(former or records.make_first(node, seconds), structs.replace(node, epoch=epoch), seconds)
        try:
            new = FetchedLease(claim, records.put_lease(store, claim, etag))
        except Conflict:
            if attempt == _MAX_ATTEMPTS - 1:
                raise
            continue
        _save_epoch(directory, node, epoch)
        report(f"the lease was taken, epoch {epoch}")
        # If the lease is missing, the store may have lost the lease of a machine that still sends.
        return _Claim(new, _count_wait(former) if former is not None else seconds)
    raise AssertionError("the last attempt returns or raises")


def _is_own_claim(record: LeaseRecord, node: Node) -> bool:
    """Return whether an interrupted promotion of this machine has written the lease, and no process has taken it."""
    return record.node == node.node and not record.holder and record.epoch > node.seen_epoch


def _count_wait(lease: LeaseRecord) -> int:
    """Return the seconds after which no process sends with a lease, nor with those before it.

    A claim has at least the seconds of the lease that it replaced, so this is right for an own claim, too.
    """
    return 0 if lease.is_released else lease.seconds


def _save_epoch(directory: Path, node: Node, epoch: int) -> None:
    """Store the epoch of the written lease. Before it is written, a failed attempt would let the service take it."""
    if epoch > node.epoch:
        node.epoch = epoch
        records.save_node(directory, node)


def _wait_for_rest(directory: Path, report: Report) -> None:
    """Wait until the changes that the former machine had copied have arrived, for `_MAX_ARRIVAL_SECONDS` at most."""
    if data_dir.find_service_pid(directory) is None:
        report("warning: campanero follow is not running, so what was copied since it ended is not applied")
        return
    report("waiting for the last changes")
    end = time.monotonic() + _MAX_ARRIVAL_SECONDS
    last, since = -1, time.monotonic()
    while time.monotonic() < min(end, since + _QUIET_SECONDS):
        number = _read_transaction(directory)
        if number != last:
            last, since = number, time.monotonic()
        time.sleep(0.1)


def _read_transaction(directory: Path) -> int:
    """Return the number of the last transaction of the other machine that has arrived."""
    database = place.find_database(directory)
    return place.read_transaction(database) if database is not None else 0


def _require_silence(directory: Path, report: Report) -> None:
    """Raise StandbyFailed if a change of the other machine arrives within `_OFF_SECONDS`: then it is not off.

    If campanero follow does not run, no change can arrive, and the word of the operator is all there is.
    """
    if data_dir.find_service_pid(directory) is None:
        return
    report(f"watching for {_OFF_SECONDS:.0f} s whether the other machine still writes")
    number, end = _read_transaction(directory), time.monotonic() + _OFF_SECONDS
    while time.monotonic() < end:
        if _read_transaction(directory) > number:
            raise StandbyFailed("the other machine is not off: a change of it has just arrived. Switch it off first")
        time.sleep(0.1)


def _end_following(directory: Path) -> None:
    """End the process `campanero follow`, and wait for it. Raises StandbyFailed if it does not end."""
    end = time.monotonic() + _END_SECONDS
    process_id = data_dir.find_service_pid(directory)
    if process_id is not None:
        with suppress(ProcessLookupError):
            kill(process_id, signal.SIGTERM)
    while data_dir.find_service_pid(directory) is not None:
        if time.monotonic() > end:
            raise StandbyFailed("campanero follow does not end: stop it, and repeat this")
        time.sleep(0.1)


def _install(directory: Path, source: Source, epoch: int | None, report: Report) -> list[str]:
    """Check the copy, hold the messages that may have been sent, and make it the database of this machine.

    Return the final report. `epoch` is that of the lease, or None without one. A kill at any place leaves a state that
    the next call continues.
    """
    target = directory / place.DATABASE
    database = place.find_database(directory)
    if database is None:
        raise StandbyFailed(f"{directory / place.FOLDER} has no copy of the database")
    crypto.load_key(directory)
    heartbeat = place.read_heartbeat(database)
    source.is_promoting = True
    place.save_source(directory, source)
    mirror.install(directory / place.FOLDER / place.FILES, directory)
    try:
        migrations.check_key(directory, migrations.inspect_database(database))
        open_database(database)
        journal.open_journal(directory)
        with _translate_invalid_values(directory):
            _require_own_schema()
            report("checking the database")
            if damage := sql.integrity_check(_MAX_FAULTS):
                raise StandbyFailed(f"the copy is damaged: {'; '.join(damage)}. {_advise(directory)}")
            held = transactions.write(_hold, directory, source, heartbeat)
            since = (heartbeat or 0) - _JOURNAL_MARGIN_MS
            lines = journal.read_since(directory / journal.JOURNAL_FILE, None, since)
            replay.replay_journal(line for line in lines if isinstance(line, JournalLine))
            held = held._replace(messages=holding.count_held())
            transactions.write(holding.record_promotion, epoch, held)
            sql.truncate_wal()
    finally:
        close_database()
    data_dir.sync_to_disk(database)
    litestream.forget_state(target)
    source.report = describe(Promotion(epoch, heartbeat, held))
    place.save_source(directory, source)
    database.replace(target)
    data_dir.sync_to_disk(directory)
    place.remove_folder(directory)
    return source.report


@contextmanager
def _translate_invalid_values(directory: Path) -> Iterator[None]:
    """Raise StandbyFailed for an error of the block that a value in the copy causes, which the service never writes.

    Others may write to the replica, so any column may have any value. Errors of the disk are raised as they are.
    """
    try:
        yield
    except (
        apsw.Error, peewee.PeeweeException, peewee.DoesNotExist, msgspec.MsgspecError, NotFound, ValueError, TypeError,
        LookupError,
    ) as error:  # fmt: skip
        if disk_guard.to_storage_error(error) is not None:
            raise
        reason = " ".join(str(error).split())[:_MAX_REASON_CHARACTERS]
        words = f"a value in it is not valid ({type(error).__name__}: {reason})"
        raise StandbyFailed(f"the copy cannot be used: {words}. {_advise(directory)}") from error


def _advise(directory: Path) -> str:
    """Return what the operator can do with a copy that cannot be used, although the lease was taken."""
    return (
        f"Remove {directory / place.FOLDER}, and follow again or restore a backup. If the other machine is in order, "
        "take the lease back there: see “Go back” in the guide “A second machine that is ready”"
    )


def _hold(directory: Path, source: Source, heartbeat_ms: int | None) -> Held:
    """Hold what may have been sent; the result also has the campaigns and flows that an interrupted attempt paused.

    They are stored before the commit, because a repeated attempt finds them paused and would not list them.
    """
    held = holding.hold(source.lease, heartbeat_ms)
    source.paused_campaigns += [campaign for campaign in held.campaigns if campaign not in source.paused_campaigns]
    source.paused_flows += [flow for flow in held.flows if flow not in source.paused_flows]
    place.save_source(directory, source)
    return held._replace(campaigns=source.paused_campaigns, flows=source.paused_flows)


def describe(promotion: Promotion) -> list[str]:
    """Return the lines of a report for the operator who promoted this machine."""
    held = promotion.held
    moment = clock.iso(promotion.heartbeat_ms) if promotion.heartbeat_ms is not None else "an unknown time"
    epoch = "without a lease" if promotion.epoch is None else f"epoch {promotion.epoch}"
    lines = [f"Promoted, {epoch}. The data is that of {moment} by the clock of the former machine."]
    if promotion.epoch is None:
        lines += [
            "Nothing keeps the former machine from sending if it starts again: disable its service before.",
            "Attachments, unfinished imports and the last opt-outs were not copied: see the guide.",
            "Nothing says what may have left since, so all due messages are held.",
        ]
    elif not held.is_exact:
        lines.append("It is too old to tell what may have left since, so all due messages are held.")
    lines.append(f"Messages that may have left since, held until you decide: {held.message_count}.")
    for campaign in held.messages:
        name = f"campaign {campaign.campaign_id}, {campaign.name or 'without a name'}" if campaign.campaign_id else (
            "messages of flows and single messages"
        )  # fmt: skip
        lines.append(f"  account {campaign.account_id}: {name}: {campaign.message_count}")
    lines += [f"  campaign {number}, {name}: paused, it may have been started" for number, name in held.campaigns]
    lines += [f"  flow {number}, {name}: paused, steps of it may have been taken" for number, name in held.flows]
    lines.append("Start the service. Held messages are the unconfirmed ones of each campaign: send them again or not.")
    return lines
