"""Huey tasks, run on wake-ups: each processes the due rows of its tables.

A task may run twice, or not at all, without harm. Two things of Huey are not enough: its memory storage is polled, so
it would delay each send by up to the polling interval, so `BlockingMemoryStorage` wakes its readers; and `lock_task`
fails a second run, where here one queued run per name is enough and a later wake-up must still be seen.
"""

import collections
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

import apsw
from huey import Huey
from huey.storage import MemoryStorage

from appliance.accounts import access, settings
from appliance.audience import bulk_actions, lists, suppressions
from appliance.audience.segments import query_plan
from appliance.campaigns import batches, links, preflight, rehearsal, send, states
from appliance.campaigns.batches import BatchRunner
from appliance.campaigns.ledger_check import LedgerChecker
from appliance.core import clock, signals
from appliance.core.errors import Unavailable
from appliance.core.metrics import Counter, Gauge, Labels
from appliance.events import log as retention
from appliance.flows import derived_events, engine, enrollment, lifecycle, triggers
from appliance.flows.engine import FlowWorker
from appliance.imports import removal
from appliance.imports import store as imports
from appliance.imports.job import Importer
from appliance.jobs import housekeeping
from appliance.ops.backups import create
from appliance.sending.domains import store
from appliance.sending.messages import capture_inbox, queue, queue_reader
from appliance.sending.workers.email_sender import EmailSender
from appliance.sending.workers.sms_sender import SmsSender
from appliance.storage import disk_guard, transactions
from appliance.storage.database import checkpoint, rows
from appliance.tracking import hits
from appliance.tracking.hits import HitJudge
from appliance.webhooks import queue as webhook_queue
from appliance.webhooks import worker
from appliance.webhooks.worker import WebhookWorker

_JOBS = Gauge("jobs", "Background work by its kind: how much waits for a thread, and how much runs.", ("job", "state"))
_FAILURES = Counter("job_failures_total", "Background work that broke off for a fault, by its kind.", ("job",))


class JobMetrics:
    """The metrics of background jobs: how many are queued and running, and how often each failed."""

    def __init__(self, waiting: Callable[[], Collection[str]]) -> None:
        self._waiting = waiting
        self._running: collections.Counter[str] = collections.Counter()
        self._names: set[str] = set()
        self._lock = threading.Lock()
        _JOBS.set_function(self._stands)

    def know(self, name: str) -> None:
        """Show a job in the metrics even while it is idle."""
        self._names.add(name)

    @contextmanager
    def at_work(self, name: str) -> Iterator[None]:
        """Count a job as running during the block, and its failures except storage that cannot be written."""
        with self._lock:
            self._running[name] += 1
        try:
            yield
        except Unavailable:
            raise
        except Exception:
            _FAILURES.increment(name)
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


class BlockingMemoryStorage(MemoryStorage):  # type: ignore[misc]  # its library has no types
    """Huey's memory storage with readers that sleep until a task is queued; tasks carry no data."""

    blocking = True

    def __init__(self, *arguments: object, **named: object) -> None:
        """Create an empty storage."""
        super().__init__(*arguments, **named)
        self._changed = threading.Condition(self._lock)
        self._closed = False

    def enqueue(self, data: bytes, priority: float | None = None) -> None:
        """Queue a task and wake one reader."""
        with self._changed:
            super().enqueue(data, priority)
            self._changed.notify()

    def dequeue(self) -> bytes | None:
        """Return the next task, after waiting up to a second for one."""
        with self._changed:
            if not self._queue and not self._closed:
                self._changed.wait(1.0)
            task: bytes | None = super().dequeue()
            return task

    def wake_all(self) -> None:
        """Wake all readers, because the process is ending."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()


log = logging.getLogger("campanero.jobs")
_HOUR_MS = 3600 * 1000
# A job that every commit of a sender wakes pauses this long between two runs, so that sending keeps its time.
_RESTS_SECONDS = {"flows": 0.04}
# A sender that was asked to stop has stopped by then; hanging requests are ended earlier.
_END_SECONDS = 27.0


class Jobs:
    """The tasks of this process, registered as handlers of wake-ups."""

    def __init__(self, process: str) -> None:
        self.process = process
        self.huey = Huey("campanero", storage_class=BlockingMemoryStorage, results=False)
        self.sender = EmailSender(process)
        self.texter = SmsSender(process)
        self.importer = Importer()
        self.large = BatchRunner()
        self.settler = HitJudge()
        self.flows = FlowWorker(
            (
                derived_events.check_dates,
                enrollment.process_events,
                engine.advance_due_runs,
                lifecycle.settle_messages,
            )
        )
        self.keeper = LedgerChecker(process)
        self.teller = WebhookWorker()
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
        self._under_way = JobMetrics(lambda: self._queued.copy())
        answers = {
            "outbox": self.drain_outbox, "campaigns": self.tend_campaigns, "imports": self.importer.tend,
            "segments": refresh_segments, "erasures": self.forget, "rehearsals": self.rehearse,
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

        signals.register_handler(name, ring)
        self._under_way.know(name)

    def _rest(self, name: str) -> None:
        """Wait if the job ran a moment ago; wake-ups meanwhile are covered by the run that follows."""
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
        """Send due messages; one run at a time, and a wake-up meanwhile wakes idle workers."""
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
        """Replace the senders by new ones that read the configuration, once the old ones have ended.

        The old senders finish the messages they hold, so nothing is sent twice and nothing becomes uncertain.
        """
        with self._renewing:
            self.sender.stop()
            self.texter.stop()
            with self._draining, self._swapping:
                self.sender = self.sender if self._ending else EmailSender(self.process)
            self.texter.join(_END_SECONDS)
            with self._swapping:
                self.texter = self.texter if self._ending else SmsSender(self.process)
        signals.wake("outbox")

    def stop(self) -> None:
        """Stop all jobs; open transactions and requests may finish."""
        with self._swapping:
            self._ending = True
            self.sender.stop()
            self.texter.stop()
        for one in (self.importer, self.large, self.settler, self.flows):
            one.stopping.set()
        self.teller.stop()

    def tend_flows(self) -> None:
        """Advance flows, and wake webhooks, because the wake-up means that events were written."""
        if webhook_queue.has_webhooks():
            signals.wake("webhooks")
        self.flows.work()

    def _alone(self, lock: threading.Lock, tend: Callable[[threading.Event], None]) -> None:
        if not lock.acquire(blocking=False):
            return
        try:
            tend(self.importer.stopping)
        finally:
            lock.release()

    def rehearse(self) -> None:
        """Render drafts for all recipients; one run at a time, which also covers wake-ups meanwhile."""
        self._alone(self._rehearsing, rehearsal.run_pending)

    def check_links(self) -> None:
        """Check the links of drafts; one run at a time, as it may wait long for responses."""
        self._alone(self._linking, links.run_pending_checks)

    def check_domains(self) -> None:
        """Check the DNS records of due domains; one run at a time, as it may wait long for responses."""
        self._alone(self._verifying, store.run_due_checks)

    def back_up(self) -> None:
        """Make the backup that is due."""
        create.run_scheduled_backup(self.importer.stopping)

    def look_at_nights(self) -> None:
        """Check SMS that wait for the end of quiet hours again, after the quiet hours were changed."""
        queue.recheck_held_sms()
        signals.wake("outbox")

    def tend_crowds(self) -> None:
        """Run bulk actions."""
        bulk_actions.run_due(self.importer.stopping)

    def forget(self) -> None:
        """Delete expired rows and old events."""
        housekeeping.delete_expired(self.importer.stopping)
        housekeeping.prune_erased_and_finished()
        retention.delete_expired(self.importer.stopping)
        triggers.prune_ignored_runs(self.importer.stopping)

    def tend_campaigns(self) -> None:
        """Start due campaigns, release held ones, pause refused ones, and complete finished ones."""
        for account_id, campaign_id in send.list_due():
            self._start(account_id, campaign_id)
        transactions.write(send.release_held_campaigns)
        for gate in (self.sender.breaker, self.texter.breaker):
            shut = gate.get_open_circuit()
            if shut.providers or shut.campaigns:
                transactions.write(states.pause_rejected, shut.providers, shut.campaigns, shut.reason)
                gate.confirm_pause(shut)
        for account_id, campaign_id in states.list_auto_pause_candidates():
            transactions.write(states.check_auto_pause, account_id, campaign_id)
        transactions.write(states.complete_finished)
        self.keeper.look()

    @staticmethod
    def _start(account_id: int, campaign_id: int) -> None:
        """Start a scheduled campaign; one that fails waits for a person and does not stop others."""
        try:
            prepared = preflight.prepare_send(account_id, campaign_id)
            transactions.write(send.start_scheduled, account_id, campaign_id, prepared)
        except Unavailable:
            raise
        except Exception:
            log.exception("campaigns: start failed campaign=%s", campaign_id)
            transactions.write(states.pause_failed, account_id, campaign_id)

    def _hour_is_over(self) -> bool:
        """Return whether an hour has passed since the last cleanup, and wake the cleanup then."""
        now = clock.now_ms()
        if abs(now - self._tidied) < _HOUR_MS:
            return False
        self._tidied = now
        signals.wake("erasures")
        return True

    @staticmethod
    def _tend_storage() -> None:
        """Measure the storage, and retry a failed write here, so that sending resumes without other writes."""
        disk_guard.measure()
        if disk_guard.write_blocker() is not None:
            transactions.write(settings.write_heartbeat)
        try:
            checkpoint()
        except apsw.Error as error:
            disk_guard.note_failure(error)
            raise disk_guard.to_storage_error(error) or error from None

    def pulse(self) -> None:
        """Wake the jobs that have due rows; called once a second, so that a lost wake-up costs no more."""
        self._tend_storage()
        if suppressions.has_expired():
            transactions.write(suppressions.expire)
        if used := access.collect_last_uses():
            transactions.write(access.write_last_uses, used)
        if not self.sender.is_halted() and queue_reader.has_due(
            (*self.sender.breaker.get_closed_providers(), *self.sender.limits.get_closed_providers())
        ):
            signals.wake("outbox")
        elif self.texter.is_due():
            self.texter.wake()
        if rows("SELECT 1 FROM campaign WHERE phase IN ('scheduled', 'holding', 'sending') LIMIT 1"):
            signals.wake("campaigns")
        if batches.is_due():
            signals.wake("audiences")
        if imports.is_due() or self._hour_is_over():
            signals.wake("imports")
        if removal.has_pending_erasures() or capture_inbox.has_cleared():
            signals.wake("erasures")
        if store.has_due_checks():
            signals.wake("domains")
        if derived_events.is_segment_check_due() | lists.has_stale_mirrors():
            signals.wake("segments")
        if hits.has_due_hits():
            signals.wake("hits")
        if any(
            is_due()
            for is_due in (
                derived_events.is_date_check_due,
                enrollment.is_due,
                engine.is_due,
                lifecycle.is_settling_due,
            )
        ):
            signals.wake("flows")
        if worker.has_work():
            signals.wake("webhooks")
        if bulk_actions.is_due():
            signals.wake("crowds")
        if create.is_due():
            signals.wake("backups")


def refresh_segments() -> None:
    """Record changes of segments, refresh the lists that mirror them, and create the indexes they need."""
    derived_events.check_segments()
    lists.refresh_stale_mirrors()
    query_plan.maintain_indexes()
