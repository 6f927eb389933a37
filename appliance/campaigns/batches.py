"""Batch work on the message rows of large campaigns: writing a snapshot, and cancelling or deleting open rows.

Each batch is one short transaction, so that other writers do not wait long. Work that is left when the service stops
continues after the next start.
"""

import logging
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from appliance.campaigns import audience, audience_snapshot
from appliance.campaigns.audience_snapshot import SnapshotKey
from appliance.campaigns.store import MAX_AT_ONCE
from appliance.core import clock, signals
from appliance.core.errors import Unavailable
from appliance.storage import transactions
from appliance.storage.database import fetch_one, rows, run
from appliance.storage.disk_guard import to_storage_error
from appliance.storage.models import Campaign
from appliance.storage.transactions import after_commit, require_write_transaction

# Ending the rows of a campaign: open rows are cancelled if the campaign is cancelled or deleted, and all rows are
# deleted if its send is undone.
#
# The rows of a large campaign are ended in batches. No further message is sent once the phase has changed, which is
# before the response to the request; until its batch runs, a row counts as queued. The campaign stores the pending
# work, so that another process continues it if this one dies.

_LIMITED_IDS = "id IN (SELECT id FROM message WHERE campaign_id = ? {}LIMIT ?)"
_OPEN = "AND status IN ('queued', 'held') "
_CANCEL_MESSAGES = (
    "UPDATE message SET status = CASE WHEN uncertain_count > 0 THEN 'uncertain' ELSE 'cancelled' END, "
    "due_at = NULL, updated_at = ? WHERE "
)
_NO_LIMIT = -1


def cancel_messages(campaign: Campaign) -> None:
    """Cancel the queued and held messages of a campaign, in batches if it is large; the caller saves the campaign.

    A message whose earlier attempt may have been accepted becomes uncertain instead.
    """
    _begin_ending(campaign, "cancel")


def delete_messages(campaign: Campaign) -> None:
    """Delete all message rows of a campaign, in batches if it is large; the caller saves the campaign.

    Call it only if no message of the campaign was ever attempted.
    """
    _begin_ending(campaign, "undo")


def _begin_ending(campaign: Campaign, mode: str) -> None:
    require_write_transaction()
    # Members of the audience that have no row yet get none.
    campaign.pending_snapshot = None
    if campaign.pending_end is not None or campaign.audience_count > MAX_AT_ONCE:
        campaign.pending_end = campaign.pending_end or mode
        after_commit(lambda: signals.wake("audiences"))
    else:
        _end_messages(campaign.id, mode, _NO_LIMIT)


def end_batch(campaign_id: int, size: int) -> int:
    """Cancel or delete up to `size` rows of a campaign, as its `pending_end` says, and return their number.

    If no row is left, clear `pending_end` and return 0.
    """
    require_write_transaction()
    row = fetch_one("SELECT pending_end FROM campaign WHERE id = ? AND pending_end IS NOT NULL", (campaign_id,))
    ended = _end_messages(campaign_id, row[0], size) if row is not None else 0
    if not ended:
        run("UPDATE campaign SET pending_end = NULL WHERE id = ?", (campaign_id,))
    return ended


def _end_messages(campaign_id: int, mode: str, limit: int) -> int:
    if mode == "undo":
        return run(f"DELETE FROM message WHERE {_LIMITED_IDS.format('')}", (campaign_id, limit))
    return run(f"{_CANCEL_MESSAGES}{_LIMITED_IDS.format(_OPEN)}", (clock.now_ms(), campaign_id, limit))


# The worker that runs the batches, and the size of a batch.

T = TypeVar("T")
log = logging.getLogger("campanero.audiences")
_MIN_ROWS, _FIRST_ROWS, _MAX_ROWS = 50, 200, 10_000
# The processor time that a batch should take; on a busy machine its wall-clock time is several times as long.
_BATCH_SECONDS = 0.008
# A batch costs its processor time, or this share of its wall-clock time if that is more. Most wall-clock time is spent
# waiting for Python's global lock, which smaller batches would only make more frequent; a slow disk, however, must lead
# to smaller batches.
_MIN_SHARE_OF_CLOCK = 1 / 6
_PAUSE_SECONDS = 0.002
_START_DELAY_SECONDS = 0.1
# The interval between two wake-ups of the sender; one after each batch would cost more than the batch itself.
_SIGNAL_SECONDS = 0.2
_RETRY_SECONDS = 60.0
_UNFINISHED = "pending_snapshot IS NOT NULL OR pending_end IS NOT NULL"


def is_due() -> bool:
    """Return whether any campaign has a pending snapshot, or rows to cancel or delete."""
    return fetch_one(f"SELECT 1 FROM campaign WHERE {_UNFINISHED} LIMIT 1") is not None


class BatchRunner:
    """The worker that writes pending snapshots, and cancels or deletes rows, in batches; a process has one.

    Set `stopping` to stop it after the current batch.
    """

    def __init__(self) -> None:
        self.stopping = threading.Event()
        self._busy = threading.Lock()
        self._retry_at: dict[int, float] = {}

    def run(self) -> None:
        """Process all pending campaigns; return at once if another thread is already processing them.

        A campaign that failed is tried again by a call at least `_RETRY_SECONDS` later. Raises Unavailable if the
        service is stopping, and storage errors such as a full disk.
        """
        if not self._busy.acquire(blocking=False):
            return
        try:
            while not self.stopping.is_set() and (unfinished := self._find_next()) is not None:
                self._process(*unfinished)
            if not is_due():
                audience_snapshot.delete_orphans()
        finally:
            self._busy.release()

    def _find_next(self) -> tuple[int, bool] | None:
        """Return (id of the next pending campaign, whether its rows are to be ended rather than written), or None.

        Campaigns whose rows are to be ended come first; campaigns that failed recently are left out.
        """
        now = time.monotonic()
        campaigns = rows(
            f"SELECT id, pending_end IS NOT NULL FROM campaign WHERE {_UNFINISHED} ORDER BY pending_end IS NULL, id",
        )
        return next(((row[0], bool(row[1])) for row in campaigns if self._retry_at.get(row[0], 0.0) <= now), None)

    def _process(self, campaign_id: int, is_ending: bool) -> None:
        try:
            if is_ending:
                self._run_batches(end_batch, campaign_id)
            else:
                self._write_snapshot(campaign_id)
        except Unavailable:
            raise
        except Exception as error:
            storage_error = to_storage_error(error)
            if storage_error is not None:
                raise storage_error from error
            # One failing campaign must not block the others.
            log.exception("campaigns: writing messages failed campaign=%s", campaign_id)
            self._retry_at[campaign_id] = time.monotonic() + _RETRY_SECONDS

    def _write_snapshot(self, campaign_id: int) -> None:
        campaign = Campaign.get_by_id(campaign_id)
        state = audience_snapshot.get_state(campaign)
        if state is None:
            return
        key = SnapshotKey(campaign_id, campaign.started_at)
        if state.total is None or not audience_snapshot.get_path(key).exists():
            kind = audience.get_channel_kind(campaign)
            count = audience_snapshot.write_audience(key, state.audience, kind, state.last, self.stopping.is_set)
            transactions.write(audience_snapshot.record_list, key, count)
        transactions.run_outside_transaction(audience_snapshot.attach, key)
        try:
            self._run_batches(audience_snapshot.write_batch, key, "outbox")
        finally:
            if not transactions.is_stopped():
                transactions.run_outside_transaction(audience_snapshot.detach)

    def _run_batches(self, process_batch: Callable[[T, int], int], target: T, signal: str | None = None) -> None:
        """Call `process_batch(target, size)` on the writer until it returns 0 or the service stops.

        The size of a batch depends on the time that the previous one took. `signal` names the background job to wake up
        at intervals and at the end.
        """
        size, remaining, signalled_at = _FIRST_ROWS, 1, 0.0
        # The request that caused the work responds first.
        self.stopping.wait(_START_DELAY_SECONDS)
        while remaining and not self.stopping.is_set():
            remaining, cpu_seconds, seconds = transactions.write(_run_timed, process_batch, target, size)
            size = next_batch_size(size, cpu_seconds, seconds)
            if signal is not None and (not remaining or time.monotonic() > signalled_at + _SIGNAL_SECONDS):
                signals.wake(signal)
                signalled_at = time.monotonic()
            time.sleep(_PAUSE_SECONDS)


def next_batch_size(size: int, cpu_seconds: float, seconds: float) -> int:
    """Return the number of rows for the next batch, so that it takes `_BATCH_SECONDS`.

    `size`, `cpu_seconds` and `seconds` (wall-clock) are those of the previous batch. The next batch has at most twice
    as many rows, and between `_MIN_ROWS` and `_MAX_ROWS`.
    """
    cost = max(cpu_seconds, seconds * _MIN_SHARE_OF_CLOCK, 0.001)
    return max(_MIN_ROWS, min(_MAX_ROWS, int(size * min(2.0, _BATCH_SECONDS / cost))))


def _run_timed(process_batch: Callable[[T, int], int], target: T, size: int) -> tuple[int, float, float]:
    """Process one batch; return the result of `process_batch`, and its processor and wall-clock seconds."""
    started, cpu_started = time.perf_counter(), time.thread_time()
    remaining = process_batch(target, size)
    return remaining, time.thread_time() - cpu_started, time.perf_counter() - started
