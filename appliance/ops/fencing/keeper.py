"""The thread that takes, renews and releases the lease, and tells the senders whether they may send.

| The lease object                                    | What this process does                                       |
|-----------------------------------------------------|--------------------------------------------------------------|
| is missing                                          | creates it; if it once held the lease, only after waiting    |
| names this machine, in an epoch before one that     | sends nothing: the lease was taken from this machine, and an |
| another machine has held, or is missing since       | older object was put back in its place                       |
| names this machine, and is released                 | takes it                                                     |
| names this machine, and another process holds it    | takes it once it was not renewed for its duration            |
| names another machine, in a lower epoch             | takes it back, and waits for its duration before it sends    |
| names another machine, in any other epoch           | sends nothing; an operator decides (`campanero promote`)     |
| is held by this process                             | renews it, four times in its duration                        |
| cannot be read or written                           | sends until its duration is over, counted from the last      |
|                                                     | renewal that succeeded                                       |

The duration counts from before the request of a renewal, and a holder stops `_MARGIN_SECONDS` early. So the holder has
stopped before any other process may take the lease.
"""

import logging
import threading
from collections.abc import Callable
from pathlib import Path

from appliance.core import clock, crypto
from appliance.core.errors import ConfigError
from appliance.ops import stores
from appliance.ops.fencing import record as records
from appliance.ops.fencing.record import FetchedLease, LeaseRecord
from appliance.ops.stores.base import Conflict, Missing, Store, StoreError
from appliance.settings import config
from appliance.storage import send_lease

log = logging.getLogger("campanero.lease")
_RENEWALS = 4  # in the duration of the lease
_MARGIN_SECONDS = 2.0
# A block of message ids stays in the lease for this long after the last message of it was read. That is longer than a
# message stays with a sender, and longer than a copy of the database usually lags.
KEPT_SECONDS = 900
_STARTING = "this machine has not taken the lease yet"
_WAITING = "the process that held the lease ended without giving it back, so sending starts within %s s"
# The text does not name `campanero promote`: on the former machine, that would send from outdated data.
_NEXT_STEP = "see “Go back” in the guide “A second machine that is ready”"
_SUPERSEDED = f"another machine has taken the lease, so this one sends nothing; {_NEXT_STEP}"
_FENCED = f"another machine, %s, holds the lease, so this one sends nothing; {_NEXT_STEP}"


class LeaseKeeper:
    """The thread that takes, renews and releases the lease for this process."""

    def __init__(self, store: Store, directory: Path, seconds: int, note_renewal: Callable[[], None]) -> None:
        self._store, self._directory, self._seconds = store, directory, seconds
        self._note_renewal = note_renewal
        self._node = records.load_node(directory)
        self._holder = crypto.random_base62(16)
        self._mine: FetchedLease | None = None  # the lease as this process last wrote it, while it may hold it
        self._watched: tuple[str | None, float] | None = None  # the etag of another's lease, and since when it is that
        self._due, self._stopping = threading.Event(), threading.Event()
        self._logged: str | None = _STARTING
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)

    def start(self) -> None:
        """Forbid sending until the lease is taken, and start the thread."""
        send_lease.require(_STARTING, self._due.set)
        self._thread.start()

    def stop(self) -> None:
        """Release the lease if this process holds it. Call this when all senders have stopped."""
        self._stopping.set()
        self._due.set()
        self._thread.join(self._seconds)
        if self._thread.is_alive():
            return  # The store does not answer, and the lease ends by itself.
        send_lease.lose(_STARTING)
        try:
            if self._mine is not None:
                records.put_lease(self._store, records.renew(self._mine.record, is_released=True), self._mine.etag)
        except StoreError as error:
            log.warning("lease: not given back, so the next start waits %s s: %s", self._seconds, error)
        finally:
            self._store.close()

    def _run(self) -> None:
        interval, noted_at = self._seconds / _RENEWALS, 0.0
        while not self._stopping.is_set():
            self._due.clear()
            try:
                self._step()
            except StoreError as error:
                self._note_failure(error)
            except Exception:
                # The thread must continue; if the lease is not renewed, it expires.
                log.exception("lease: renewal failed")
            self._log_change()
            if send_lease.is_held() and send_lease.now() >= noted_at + interval:
                noted_at = send_lease.now()
                self._note_renewal()
            self._due.wait(interval)

    def _note_failure(self, error: StoreError) -> None:
        log.debug("lease: %s", error)
        send_lease.explain(f"the lease could not be renewed, because its storage fails: {error}")

    def _log_change(self) -> None:
        """Log when the lease is taken or lost, or when the reason why it cannot be taken changes."""
        reason = send_lease.find_blocker()
        if reason != self._logged:
            self._logged = reason
            if reason is None:
                log.warning("lease: held epoch=%s; sending allowed", self._node.epoch)
            else:
                log.error("lease: sending stopped: %s", reason)

    def _step(self) -> None:
        """Renew the lease, or take it if that is permitted. Raises StoreError."""
        if self._mine is not None:
            try:
                return self._write(self._mine.record, self._mine.etag)
            except (Conflict, Missing):
                # Another machine has taken the lease, the response to the last renewal was lost, or the store lost the
                # object.
                log.debug("lease: changed by another writer")
        fetched = records.fetch_lease(self._store)
        if fetched is None:
            return self._create()
        record = fetched.record
        if record.node == self._node.node:
            if self._is_superseded(record.epoch):
                self._mine = None
                return send_lease.lose(_SUPERSEDED)
            if record.holder == self._holder:
                return self._write(record, fetched.etag)
            self._mine = None
            return self._take(fetched)
        self._mine = self._watched = None
        if record.epoch > max(self._node.epoch, self._node.seen_epoch):
            self._node.seen_epoch = record.epoch
            records.save_node(self._directory, self._node)
        send_lease.lose(_FENCED % (record.host or record.node))
        if record.epoch < self._node.epoch:
            # The store has lost the lease of this machine, and another machine has created one with a lower epoch.
            records.put_lease(self._store, records.claim(record, self._node, self._seconds), fetched.etag)
        return None

    def _is_superseded(self, epoch: int) -> bool:
        """Return whether another machine held the lease in a later epoch than `epoch` and this machine's last one."""
        return self._node.seen_epoch > max(self._node.epoch, epoch)

    def _create(self) -> None:
        """Create the lease object. A machine that has held the lease waits until it was missing for its duration.

        If the store has lost the object, the machine that holds the lease creates it again in that time.
        """
        if self._mine is not None and send_lease.is_held():
            return self._write(self._mine.record, None)
        if self._is_superseded(0):
            return send_lease.lose(_SUPERSEDED)
        if self._node.epoch and not self._has_watched(None, self._seconds):
            return send_lease.lose(_WAITING % self._seconds)
        return self._write(records.make_first(self._node, self._seconds), None)

    def _take(self, fetched: FetchedLease) -> None:
        """Acquire the lease that names this machine: after its release, or if it was not renewed for its duration."""
        record = fetched.record
        if not record.is_released and not self._has_watched(fetched.etag, record.seconds):
            return send_lease.lose(_WAITING % record.seconds)
        send_lease.touch(records.to_blocks(record.blocks))  # a copy of the database may lack what left of them
        return self._write(record, fetched.etag, epoch=max(record.epoch, self._node.epoch))

    def _has_watched(self, etag: str | None, seconds: float) -> bool:
        """Return whether the lease object has had this etag (None: was missing) for `seconds`."""
        now = send_lease.now()
        if self._watched is None or self._watched[0] != etag:
            self._watched = (etag, now)
        return now >= self._watched[1] + seconds

    def _write(self, record: LeaseRecord, etag: str | None, epoch: int | None = None) -> None:
        """Write the lease with the blocks of ids that senders use or have requested, and permit sending.

        Raises StoreError, also Conflict if another machine has changed the lease.
        """
        started = send_lease.now()
        wanted = send_lease.list_wanted()
        send_lease.touch(wanted)
        ranges = records.to_ranges(send_lease.list_used(KEPT_SECONDS))
        new = records.renew(
            record, epoch=epoch or record.epoch, node=self._node.node, host=records.get_host(), holder=self._holder,
            seconds=self._seconds, is_released=False, renewed_at=clock.now_ms(), blocks=ranges,
            kept_seconds=KEPT_SECONDS,
        )  # fmt: skip
        if new.epoch > self._node.epoch:
            self._node.epoch = new.epoch
            records.save_node(self._directory, self._node)
        self._mine = FetchedLease(new, records.put_lease(self._store, new, etag))
        self._watched = None
        send_lease.extend(started + self._seconds - _MARGIN_SECONDS, records.to_blocks(ranges))
        if send_lease.list_wanted():
            self._due.set()  # wanted since this renewal began


def open_keeper(directory: Path, note_renewal: Callable[[], None]) -> LeaseKeeper | None:
    """Return the keeper of the configured lease, or None without one. Raises ConfigError for an unusable store.

    `note_renewal` is called on the keeper's thread while the lease is held, `_RENEWALS` times in its duration.
    """
    settings = config.current()
    if not settings.lease.store:
        return None
    try:
        store = stores.open_store(settings.lease.store, settings.copies)
        return LeaseKeeper(store, directory, settings.lease.seconds, note_renewal)
    except StoreError as error:
        raise ConfigError(f"lease.store: {error}") from None
