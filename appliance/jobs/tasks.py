"""Huey tasks, run on wake-ups: each looks at its tables. A task may run twice, or not at all, without harm."""

import logging
import threading
import time
from collections import Counter as Tally
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

import apsw
from huey import Huey
from huey.storage import MemoryStorage

from appliance.accounts import heartbeat, keys
from appliance.audience.contacts import bulk_actions, mirrors, suppress
from appliance.audience.segments import indexes
from appliance.campaigns import batches, link_check, preflight, rehearsal, send, states
from appliance.campaigns.batches import Large
from appliance.campaigns.ledger_check import Keeper
from appliance.core import clock, wake_ups
from appliance.core.counters import Counter, Gauge, Labels
from appliance.core.errors import Unavailable
from appliance.events import retention
from appliance.flows import date_triggers, enrollment, paused_messages, segment_events, triggers
from appliance.flows import run as runs
from appliance.flows.run import Tender
from appliance.imports import erase_rows
from appliance.imports import store as imports
from appliance.imports.job import Importer
from appliance.jobs import housekeeping
from appliance.ops.backups import take
from appliance.sending.domains import verify
from appliance.sending.messages import capture_inbox, queue, queue_order
from appliance.sending.workers.email_sender import EmailSender
from appliance.sending.workers.sms_sender import SmsSender
from appliance.storage import disk_guard, work
from appliance.storage.open import checkpoint, rows
from appliance.tracking import hit_verdicts
from appliance.tracking.hit_verdicts import Settler
from appliance.webhooks import fanout, teller
from appliance.webhooks.teller import Teller

# Which background jobs are queued and running, and how often each failed.

_JOBS = Gauge("jobs", "Background work by its kind: how much waits for a thread, and how much runs.", ("job", "state"))
_FAILURES = Counter("job_failures_total", "Background work that broke off for a fault, by its kind.", ("job",))


class RunningJobs:
    """The background work of one process, as it stands."""

    def __init__(self, waiting: Callable[[], Collection[str]]) -> None:
        self._waiting = waiting
        self._running: Tally[str] = Tally()
        self._names: set[str] = set()
        self._lock = threading.Lock()
        _JOBS.follow(self._stands)

    def know(self, name: str) -> None:
        """Tell of a kind of work also while there is none of it."""
        self._names.add(name)

    @contextmanager
    def at_work(self, name: str) -> Iterator[None]:
        """Count as running meanwhile; storage that cannot be written is no fault of the work."""
        with self._lock:
            self._running[name] += 1
        try:
            yield
        except Unavailable:
            raise
        except Exception:
            _FAILURES.add(name)
            raise
        finally:
            with self._lock:
                self._running[name] -= 1

    def _stands(self) -> Iterator[tuple[Labels, float]]:
        waiting = frozenset(self._waiting())
        with self._lock:
            running = dict(self._running)
        for name in self._names:
            yield (name, "waiting"), int(name in waiting)
            yield (name, "running"), running.get(name, 0)


# In-memory storage of Huey tasks, with readers that sleep until there is one.


class WakeStorage(MemoryStorage):  # type: ignore[misc]  # its library has no types
    """Huey's memory storage whose readers sleep until something is put in; nothing that matters lives here."""

    blocking = True

    def __init__(self, *arguments: object, **named: object) -> None:
        """Make an empty, open storage."""
        super().__init__(*arguments, **named)
        self._changed = threading.Condition(self._lock)
        self._closed = False

    def enqueue(self, data: bytes, priority: float | None = None) -> None:
        """Put a task in and wake one reader."""
        with self._changed:
            super().enqueue(data, priority)
            self._changed.notify()

    def dequeue(self) -> bytes | None:
        """Take a task, waiting up to a second for one."""
        with self._changed:
            if not self._queue and not self._closed:
                self._changed.wait(1.0)
            task: bytes | None = super().dequeue()
            return task

    def wake_all(self) -> None:
        """Let every reader look up, because the process is ending."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()


log = logging.getLogger("campanero.jobs")
_HOUR_MS = 3600 * 1000
# What is rung with every commit of a sender rests so long between two looks, so that sending is not spent on looking
_RESTS_SECONDS = {"flows": 0.04}
# A sender that is told to end has ended by then; requests that hang are ended before
_END_SECONDS = 27.0


class Jobs:
    """The tasks of one process, bound to its bell."""

    def __init__(self, process: str) -> None:
        self.process = process
        self.huey = Huey("campanero", storage_class=WakeStorage, results=False)
        self.sender = EmailSender(process)
        self.texter = SmsSender(process)
        self.importer = Importer()
        self.large = Large()
        self.settler = Settler()
        self.flows = Tender((date_triggers.look, enrollment.take_in, runs.advance, paused_messages.settle))
        self.keeper = Keeper(process)
        self.teller = Teller()
        self._draining = threading.Lock()
        self._renewing, self._swapping = threading.Lock(), threading.Lock()
        self._ending = False
        self._rehearsing = threading.Lock()
        self._verifying = threading.Lock()
        self._linking = threading.Lock()
        self._tidied = 0
        self._queued: set[str] = set()
        self._resting: set[str] = set()
        self._looked: dict[str, float] = {}
        self._queued_lock = threading.Lock()
        self._under_way = RunningJobs(lambda: self._queued.copy())
        answers = {
            "outbox": self.drain_outbox, "campaigns": self.tend_campaigns, "imports": self.importer.tend,
            "segments": tend_segments, "erasures": self.forget, "rehearsals": self.rehearse,
            "audiences": self.large.tend, "domains": self.check_domains, "hits": self.settler.tend,
            "flows": self.tend_flows, "webhooks": self.teller.tend, "nights": self.look_at_nights,
            "crowds": self.tend_crowds, "links": self.check_links, "backups": self.back_up,
        }  # fmt: skip
        for name, function in answers.items():
            self._answer(name, function)

    def _answer(self, name: str, function: Callable[[], None]) -> None:
        def run() -> None:
            self._rest(name)
            with self._queued_lock:
                self._queued.discard(name)
            try:
                with self._under_way.at_work(name):
                    function()
            except Unavailable as error:
                log.error("%s: %s", name, error)
            self._looked[name] = time.monotonic()

        task = self.huey.task(name=name)(run)

        def ring() -> None:
            # One waiting task of a name is enough: it looks at everything when it runs. With nothing in the bell none
            # waits, whatever became of it
            with self._queued_lock:
                if name in self._resting or (name in self._queued and self.huey.pending_count()):
                    return
                self._queued.add(name)
            task()

        wake_ups.answer(name, ring)
        self._under_way.know(name)

    def _rest(self, name: str) -> None:
        """Wait where it was looked a moment ago; whoever rings meanwhile is seen by the look that follows."""
        seconds = self._looked.get(name, 0.0) + _RESTS_SECONDS.get(name, 0.0) - time.monotonic()
        if seconds <= 0:
            return
        with self._queued_lock:
            if name in self._resting:
                return
            self._resting.add(name)
        time.sleep(seconds)
        with self._queued_lock:
            self._resting.discard(name)

    def drain_outbox(self) -> None:
        """Send what is due; one drain at a time, and a ring meanwhile puts idle places to work."""
        if self.texter.is_due():
            self.texter.wake()
        if not self._draining.acquire(blocking=False):
            self.sender.wake()
            return
        try:
            self.sender.drain()
        finally:
            self._draining.release()
        self.tend_campaigns()

    def renew(self) -> None:
        """Put senders that read the configuration anew in the place of those at work, once these have ended.

        What they had in hand is theirs to the end, so nothing is handed over twice and nothing is left in doubt.
        """
        with self._renewing:
            self.sender.stop()
            self.texter.stop()
            with self._draining, self._swapping:
                self.sender = self.sender if self._ending else EmailSender(self.process)
            self.texter.join(_END_SECONDS)
            with self._swapping:
                self.texter = self.texter if self._ending else SmsSender(self.process)
        wake_ups.ring("outbox")

    def stop(self) -> None:
        """Let open transactions and requests finish, and start nothing new."""
        with self._swapping:
            self._ending = True
            self.sender.stop()
            self.texter.stop()
        for one in (self.importer, self.large, self.settler, self.flows):
            one.stopping.set()
        self.teller.stop()

    def tend_flows(self) -> None:
        """Take people through flows; who rings for that wrote events, which webhooks may wait for too."""
        if fanout.is_listened_to():
            wake_ups.ring("webhooks")
        self.flows.tend()

    def _alone(self, lock: threading.Lock, tend: Callable[[threading.Event], None]) -> None:
        if not lock.acquire(blocking=False):
            return
        try:
            tend(self.importer.stopping)
        finally:
            lock.release()

    def rehearse(self) -> None:
        """Render drafts for everybody; one at a time, and a ring meanwhile is answered by the one at work."""
        self._alone(self._rehearsing, rehearsal.tend)

    def check_links(self) -> None:
        """Ask the links of drafts; one draft at a time, as each may wait long for its answers."""
        self._alone(self._linking, link_check.tend)

    def check_domains(self) -> None:
        """Ask DNS about domains that are due; one round at a time, as each may wait long for its answers."""
        self._alone(self._verifying, verify.tend)

    def back_up(self) -> None:
        """Make the backup that is due; one at a time."""
        take.tend(self.importer.stopping)

    def look_at_nights(self) -> None:
        """Let what waits for a morning be judged by the quiet hours as they are now."""
        queue.look_again()
        wake_ups.ring("outbox")

    def tend_crowds(self) -> None:
        """Do what was asked for many people at once."""
        bulk_actions.tend(self.importer.stopping)

    def forget(self) -> None:
        """Drop what is over and what is too old."""
        housekeeping.tend(self.importer.stopping)
        housekeeping.forget_what_is_over()
        retention.tend(self.importer.stopping)
        triggers.forget_ignored(self.importer.stopping)

    def tend_campaigns(self) -> None:
        """Start what is due, show what is released, pause what is refused, complete what is done."""
        for account_id, campaign_id in send.due():
            self._start(account_id, campaign_id)
        work.write(send.release_held)
        for gate in (self.sender.gate, self.texter.gate):
            shut = gate.shut()
            if shut.providers or shut.campaigns:
                work.write(states.stop_refused, shut.providers, shut.campaigns, shut.words)
                gate.paused(shut)
        for account_id, campaign_id in states.suspects():
            work.write(states.check_auto_pause, account_id, campaign_id)
        work.write(states.settle)
        self.keeper.look()

    @staticmethod
    def _start(account_id: int, campaign_id: int) -> None:
        """Start one armed campaign; one that cannot be started waits for a person and stops no other."""
        try:
            preflight.warm(account_id, campaign_id, None)
            work.write(send.fire, account_id, campaign_id)
        except Unavailable:
            raise
        except Exception:
            log.exception("campaign %s could not be started", campaign_id)
            work.write(states.stop_failed, account_id, campaign_id)

    def _hour_is_over(self) -> bool:
        """Say once an hour, and at the start, that it is time to look for what is kept too long."""
        now = clock.now_ms()
        if abs(now - self._tidied) < _HOUR_MS:
            return False
        self._tidied = now
        wake_ups.ring("erasures")
        return True

    @staticmethod
    def _tend_storage() -> None:
        """See how the storage is; what failed is tried again here, so that it goes on though nobody writes."""
        disk_guard.look()
        if disk_guard.unwritable() is not None:
            work.write(heartbeat.beat)
        try:
            checkpoint()
        except apsw.Error as error:
            disk_guard.failed(error)
            raise disk_guard.storage_error(error) or error from None

    def pulse(self) -> None:
        """Ring for whatever is due; called once a second, so that a lost ring costs no more than that."""
        self._tend_storage()
        if suppress.is_due():
            work.write(suppress.expire)
        if used := keys.unwritten():
            work.write(keys.note_used, used)
        if not self.sender.halted() and queue_order.is_due((*self.sender.gate.closed(), *self.sender.pace.closed())):
            wake_ups.ring("outbox")
        elif self.texter.is_due():
            self.texter.wake()
        if rows("SELECT 1 FROM campaign WHERE phase IN ('scheduled', 'holding', 'sending') LIMIT 1"):
            wake_ups.ring("campaigns")
        if batches.is_due():
            wake_ups.ring("audiences")
        if imports.is_due() or self._hour_is_over():
            wake_ups.ring("imports")
        if erase_rows.is_due() or capture_inbox.is_due():
            wake_ups.ring("erasures")
        if verify.is_due():
            wake_ups.ring("domains")
        if segment_events.is_due() | mirrors.is_due():
            wake_ups.ring("segments")
        if hit_verdicts.is_due():
            wake_ups.ring("hits")
        if any(one.is_due() for one in (date_triggers, enrollment, runs, paused_messages)):
            wake_ups.ring("flows")
        if teller.is_due():
            wake_ups.ring("webhooks")
        if bulk_actions.is_due():
            wake_ups.ring("crowds")
        if take.is_due():
            wake_ups.ring("backups")


def tend_segments() -> None:
    """Tell who came into segments and went, populate the lists that mirror them, make the indexes that they ask for."""
    segment_events.tend()
    mirrors.refresh_due()
    indexes.tend()
