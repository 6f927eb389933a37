"""Works on the rows of large campaigns: writes those of an audience being frozen, ends those of one that is over.

Chunk by chunk, each a short transaction that others' wait little for; what is left when the service ends is done by
the next one.
"""

import logging
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from appliance.campaigns import audience, audience_file, audience_snapshot, closing
from appliance.campaigns.audience_file import Send
from appliance.core import wake_ups
from appliance.core.errors import Unavailable
from appliance.storage import work
from appliance.storage.disk_guard import storage_error
from appliance.storage.models import Campaign
from appliance.storage.open import fetch_one, rows

T = TypeVar("T")
log = logging.getLogger("campanero.audiences")
_MIN_ROWS, _FIRST_ROWS, _MAX_ROWS = 50, 200, 10_000
# The aim, in processor time; a busy machine makes it several times that
_CHUNK_SECONDS = 0.008
# Of the time on the clock only so much counts: most of it is waiting for Python's lock, which smaller chunks only make
# more frequent, but a slow disk counts too
_SHARE_OF_CLOCK = 1 / 6
_PAUSE_SECONDS = 0.002
_ANSWER_SECONDS = 0.1
# Between two rings for whoever works on the rows that were written; looking after each chunk would cost more than it
_RING_SECONDS = 0.2
_AGAIN_SECONDS = 60.0
_UNFINISHED = "freezing IS NOT NULL OR closing IS NOT NULL"


def is_due() -> bool:
    """Return whether there are rows to be written or ended."""
    return fetch_one(f"SELECT 1 FROM campaign WHERE {_UNFINISHED} LIMIT 1") is not None


class Large:
    """The one worker on large campaigns of a process."""

    def __init__(self) -> None:
        self.stopping = threading.Event()
        self._busy = threading.Lock()
        self._failed: dict[int, float] = {}

    def tend(self) -> None:
        """Work until nothing is left; a second call meanwhile does nothing."""
        if not self._busy.acquire(blocking=False):
            return
        try:
            while not self.stopping.is_set() and (found := self._next()) is not None:
                self._work(*found)
            if not is_due():
                audience_file.sweep()
        finally:
            self._busy.release()

    def _next(self) -> tuple[int, bool] | None:
        """Return the next campaign, and whether it is to be ended; those come first."""
        now = time.monotonic()
        found = rows(
            f"SELECT id, closing IS NOT NULL FROM campaign WHERE {_UNFINISHED} ORDER BY closing IS NULL, id",
        )
        return next(((one[0], bool(one[1])) for one in found if self._failed.get(one[0], 0.0) <= now), None)

    def _work(self, campaign_id: int, is_over: bool) -> None:
        try:
            if is_over:
                self._chunks(closing.chunk, campaign_id)
            else:
                self._freeze(campaign_id)
        except Unavailable:
            raise
        except Exception as error:
            trouble = storage_error(error)
            if trouble is not None:
                raise trouble from error
            # Others are not to wait for what cannot be done
            log.exception("the rows of campaign %s cannot be written", campaign_id)
            self._failed[campaign_id] = time.monotonic() + _AGAIN_SECONDS

    def _freeze(self, campaign_id: int) -> None:
        campaign = Campaign.get_by_id(campaign_id)
        found = audience_snapshot.state(campaign)
        if found is None:
            return
        send = Send(campaign_id, campaign.started_at)
        if found.total is None or not audience_file.path(send).exists():
            kind = audience.kind(campaign)
            count = audience_file.draw(send, found.people, kind, found.last, self.stopping.is_set)
            work.write(audience_snapshot.listed, send, count)
        work.between(audience_file.attach, send)
        try:
            self._chunks(audience_snapshot.chunk, send, "outbox")
        finally:
            if not work.is_stopped():
                work.between(audience_file.detach)

    def _chunks(self, verb: Callable[[T, int], int], of: T, rings: str | None = None) -> None:
        """Run a verb again and again, on as many rows as fit a short transaction, as the last one's time teaches."""
        size, left, rung = _FIRST_ROWS, 1, 0.0
        # Whoever asked for it is answered first
        self.stopping.wait(_ANSWER_SECONDS)
        while left and not self.stopping.is_set():
            left, worked, whole = work.write(_timed, verb, of, size)
            size = next_size(size, worked, whole)
            if rings is not None and (not left or time.monotonic() > rung + _RING_SECONDS):
                wake_ups.ring(rings)
                rung = time.monotonic()
            time.sleep(_PAUSE_SECONDS)


def next_size(size: int, worked: float, whole: float) -> int:
    """Return how many rows the next chunk is given, after one that took so many seconds of a processor and in all.

    At most twice as many as before.
    """
    counted = max(worked, whole * _SHARE_OF_CLOCK, 0.001)
    return max(_MIN_ROWS, min(_MAX_ROWS, int(size * min(2.0, _CHUNK_SECONDS / counted))))


def _timed(verb: Callable[[T, int], int], of: T, size: int) -> tuple[int, float, float]:
    """Run a verb on the writer; returns the rows that are left, the seconds its thread worked, and those in all."""
    begun, worked = time.perf_counter(), time.thread_time()
    left = verb(of, size)
    return left, time.thread_time() - worked, time.perf_counter() - begun
