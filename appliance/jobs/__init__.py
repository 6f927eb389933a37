"""Background jobs as Huey tasks, which run on wake-ups; each job processes all due rows of its tables.

It is harmless if a task runs twice, or not at all. Two parts of Huey are replaced. Its memory storage is polled, which
would delay every send by up to the polling interval; `BlockingMemoryStorage` wakes its readers instead. Its `lock_task`
makes a second run of a task fail, but here a wake-up during a run must cause another run; `Jobs` queues at most one
more run of each job.
"""

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

import apsw
from huey import Huey
from huey.consumer import Consumer

from appliance.accounts import access, settings
from appliance.audience import bulk_actions, mirrors, suppressions, time_zones
from appliance.audience.segments import query_plan
from appliance.campaigns import (
    audience_snapshot,
    experiment,
    links,
    occurrences,
    preflight,
    rehearsal,
    send,
    send_times,
    states,
)
from appliance.campaigns.audience_snapshot import BatchRunner
from appliance.campaigns.ledger_check import LedgerChecker
from appliance.core import clock, limited_process, logs, signals
from appliance.core.errors import Unavailable
from appliance.core.limited_process import WouldWait
from appliance.events import log as retention
from appliance.exports import streaming
from appliance.flows import (
    date_events,
    engine,
    enrollment,
    event_waits,
    lifecycle,
    replays,
    request_queue,
    segment_events,
    split_results,
    split_tests,
    triggers,
)
from appliance.flows.engine import FlowWorker
from appliance.flows.request_worker import FlowRequestWorker
from appliance.imports import erasing
from appliance.imports import store as imports
from appliance.imports.job import Importer
from appliance.jobs import housekeeping, owner_notices
from appliance.jobs.memory_storage import BlockingMemoryStorage
from appliance.ops import litestream, updates
from appliance.ops.backups import create as backups
from appliance.ops.copy_jobs import notices, schedule
from appliance.ops.metrics import JobMetrics
from appliance.sending.domains import store
from appliance.sending.messages import capture_inbox, oauth_grants, sms_rules
from appliance.sending.workers.email_sender import EmailSender
from appliance.sending.workers.sms_sender import SmsSender
from appliance.settings import config
from appliance.storage import disk_guard, transactions
from appliance.storage.database import checkpoint, close_database, rows
from appliance.storage.disk_guard import StorageError, to_storage_error
from appliance.tracking import hits
from appliance.tracking.hits import HitJudge
from appliance.webhooks import queue as webhook_queue
from appliance.webhooks import worker
from appliance.webhooks.worker import WebhookWorker

log = logging.getLogger("campanero.jobs")
_MINUTE_MS = 60_000
_checkpoint_guard = litestream.CheckpointGuard()
_heartbeat_timer = litestream.HeartbeatTimer()
_HOUR_MS = 3600 * 1000
# The minimum time in seconds from the start or the end of a run to the start of the next one. Every commit of a sender
# wakes the job `flows`, and every single message wakes the job `outbox`: without a pause, that would slow down sending
# and SMTP submission (docs/decisions.md#19).
_PAUSE_SECONDS = {"flows": 0.04, "outbox": 0.02}


class Jobs:
    """The background jobs of this process. Each handles the wake-ups (`signals.wake`) of its name."""

    def __init__(self, process: str) -> None:
        self.process = process
        self.huey = Huey("campanero", storage_class=BlockingMemoryStorage, results=False)
        self.email_sender = EmailSender(process)
        self.sms_sender = SmsSender(process)
        self.importer = Importer()
        self.audience_runner = BatchRunner()
        self.hit_judge = HitJudge()
        self.flow_worker = FlowWorker(
            (
                date_events.check_dates,
                enrollment.process_events,
                event_waits.catch_up,
                engine.advance_due_runs,
                lifecycle.settle_messages,
            )
        )
        self.ledger_checker = LedgerChecker(process)
        self.webhook_worker = WebhookWorker()
        self.request_worker = FlowRequestWorker()
        self._email_lock = threading.Lock()
        # `renew` holds `_renew_lock`, perhaps for minutes. `_senders_lock` is held only while senders are replaced or
        # stopped, so that no new sender starts after `stop`.
        self._renew_lock, self._senders_lock = threading.Lock(), threading.Lock()
        self._is_stopping = False
        self._preflight_slots, self._starts_lock = threading.Semaphore(rehearsal.MAX_CONCURRENT), threading.Lock()
        self._domains_lock = threading.Lock()
        self._links_lock = threading.Lock()
        self._consents_lock = threading.Lock()
        self._replays_lock = threading.Lock()
        self._zones_lock = threading.Lock()
        self._last_cleanup_ms = self._last_experiments_ms = 0
        self._queued: set[str] = set()
        self._paused: set[str] = set()
        self._last_run_at: dict[str, float] = {}
        self._queued_lock = threading.Lock()
        self._metrics = JobMetrics(lambda: self._queued.copy())
        jobs_by_name = {
            "outbox": self.send_due_email, "campaigns": self.advance_campaigns, "imports": self.importer.run,
            "segments": refresh_segments, "cleanup": self.delete_expired, "preflights": self.run_preflights,
            "mirrors": mirrors.refresh_ordinary_mirrors, "slow_mirrors": mirrors.refresh_slow_mirrors,
            "audiences": self.audience_runner.run, "domains": self.check_domains, "hits": self.hit_judge.run,
            "flows": self.advance_flows, "webhooks": self.webhook_worker.run, "quiet_hours": self.recheck_quiet_hours,
            "bulk_actions": self.run_bulk_actions, "links": self.check_links, "backups": self.back_up,
            "starts": self.start_campaigns, "consents": self.keep_consents,
            "experiments": self.advance_experiments, "requests": self.request_worker.run,
            "replays": self.run_replays, "updates": updates.check_if_due, "copies": self.copy_elsewhere,
            "limits": owner_notices.report_limits, "zones": self.store_zones,
        }  # fmt: skip
        for name, function in jobs_by_name.items():
            self._register(name, function)

    def _register(self, name: str, function: Callable[[], None]) -> None:
        errors = logs.RepeatedErrors(log, f"jobs: run failed job={name}")

        def run() -> None:
            self._pause(name)
            with self._queued_lock:
                self._queued.discard(name)
            self._last_run_at[name] = time.monotonic()
            try:
                with self._metrics.track_run(name):
                    function()
            except Exception as error:
                errors.log(disk_guard.to_storage_error(error) or error)
            self._last_run_at[name] = time.monotonic()

        task = self.huey.task(name=name)(run)

        def enqueue() -> None:
            # One waiting task of a name is enough, because it processes all due rows when it runs. `_queued` may
            # contain a name that is no longer waiting, because Huey's queue was flushed; then Huey has no pending
            # task.
            with self._queued_lock:
                if name in self._paused or (name in self._queued and self.huey.pending_count()):
                    return
                self._queued.add(name)
            task()

        signals.register_handler(name, enqueue)
        self._metrics.register(name)

    def _pause(self, name: str) -> None:
        """Sleep until the minimum time since the job's last run began or ended has passed (`_PAUSE_SECONDS`).

        Wake-ups during the sleep are ignored, because the run that follows processes all due rows. Returns at once if
        another thread is sleeping for the job.
        """
        seconds = self._last_run_at.get(name, 0.0) + _PAUSE_SECONDS.get(name, 0.0) - time.monotonic()
        if seconds <= 0:
            return
        with self._queued_lock:
            if name in self._paused:
                return
            self._paused.add(name)
        time.sleep(seconds)
        with self._queued_lock:
            self._paused.discard(name)

    def send_due_email(self) -> None:
        """Send due email until none is left, then advance the campaigns; also wake the SMS sender if SMS are due.

        Returns at once if no email is due, or if another thread is sending: then its idle workers are woken.
        """
        if self.sms_sender.is_due():
            self.sms_sender.wake()
        if not self.email_sender.is_due():
            return
        if not self._email_lock.acquire(blocking=False):
            self.email_sender.wake()
            return
        try:
            self.email_sender.drain()
        finally:
            self._email_lock.release()
        self.advance_campaigns()

    def renew(self) -> None:
        """Replace the email and SMS senders with new ones that read the current configuration.

        The old senders first finish the messages that they have claimed, however long a server takes to reply, so that
        nothing is sent twice or becomes uncertain. The senders are not replaced if the process is stopping.
        """
        with self._renew_lock:
            self.email_sender.retire()
            self.sms_sender.retire()
            # SMS first: a request ends within `sms.request_timeout`, while a mail server may take ten minutes.
            self.sms_sender.join()
            with self._senders_lock:
                self.sms_sender = self.sms_sender if self._is_stopping else SmsSender(self.process)
            with self._email_lock, self._senders_lock:
                self.email_sender = self.email_sender if self._is_stopping else EmailSender(self.process)
        signals.wake("outbox")

    def stop(self) -> None:
        """Ask all jobs to stop, and return without waiting.

        SMTP transactions and requests in progress are cancelled after `_STOP_SECONDS` of `sender.py`.
        """
        with self._senders_lock:
            self._is_stopping = True
            self.email_sender.stop()
            self.sms_sender.stop()
        for job in (self.importer, self.audience_runner, self.hit_judge, self.flow_worker):
            job.stopping.set()
        self.webhook_worker.stop()
        self.request_worker.stop()

    def advance_flows(self) -> None:
        """Advance flows; also wake the job `webhooks` if a webhook is enabled, as there may be new events."""
        if webhook_queue.has_webhooks():
            signals.wake("webhooks")
        self.flow_worker.work()

    def _run_once(
        self, lock: "threading.Lock | threading.Semaphore", function: Callable[[threading.Event], None]
    ) -> None:
        if not lock.acquire(blocking=False):
            return
        try:
            function(self.importer.stopping)
        finally:
            lock.release()

    def run_preflights(self) -> None:
        """Render drafts for each of their recipients, as preflights have requested (`campaigns.rehearsal`).

        Returns at once if `rehearsal.MAX_CONCURRENT` runs are active, because these process new requests, too.
        """
        self._run_once(self._preflight_slots, rehearsal.run_pending)

    def check_links(self) -> None:
        """Check the links of the drafts for which a check was requested.

        The job may wait long for responses. Returns at once if another run is active, because it processes new
        requests, too.
        """
        self._run_once(self._links_lock, links.run_pending_checks)

    def check_domains(self) -> None:
        """Check the DNS records of the sending domains whose next check is due.

        The job may wait long for responses. Returns at once if another run is active.
        """
        self._run_once(self._domains_lock, store.run_due_checks)

    def keep_consents(self) -> None:
        """Refresh the OAuth consent of the mailbox that sends if it was not used lately, and warn if it ends soon."""
        self._run_once(self._consents_lock, lambda _: oauth_grants.keep_alive())

    def back_up(self) -> None:
        """Create the scheduled backup."""
        backups.run_scheduled_backup(self.importer.stopping)

    def copy_elsewhere(self) -> None:
        """Run the due copies to another machine and the due test restores, and report problems to the owners."""
        notices.check()
        schedule.run_due(self.importer.stopping)
        notices.check()

    def recheck_quiet_hours(self) -> None:
        """Make SMS that wait for the end of quiet hours due, because the quiet hours were changed."""
        sms_rules.recheck_held_messages()
        signals.wake("outbox")

    def run_replays(self) -> None:
        """Run the replays of flows that wait, each in a child process; return at once if another thread runs them."""
        self._run_once(self._replays_lock, replays.run_pending)

    def run_bulk_actions(self) -> None:
        """Run the bulk actions that are due."""
        bulk_actions.run_due(self.importer.stopping)

    def store_zones(self) -> None:
        """Compute the changed time zones of contacts; return at once if another thread computes them."""
        self._run_once(self._zones_lock, time_zones.fill)

    def delete_expired(self) -> None:
        """Delete all expired data: rows, message payloads, webhook deliveries, events, and ignored entries into flows.

        Also remove erased contacts from stored imports.
        """
        housekeeping.delete_expired(self.importer.stopping)
        housekeeping.prune_erased_and_finished()
        retention.delete_expired(self.importer.stopping)
        triggers.prune_ignored_runs(self.importer.stopping)
        while not self.importer.stopping.is_set() and transactions.write(request_queue.prune_expired):
            pass

    def advance_campaigns(self) -> None:
        """Start, release, pause or complete each campaign for which this is due.

        Scheduled campaigns start at their time, and campaigns with a hold are released when it has ended. Campaigns are
        paused by auto-pause, or if the transport keeps rejecting their messages, and completed when they have no open
        messages.
        """
        is_any_left = False
        for account_id, campaign_id in send.list_due():
            with limited_process.forbid_waiting():
                is_any_left |= not self._start(account_id, campaign_id)
        if is_any_left:
            signals.wake("starts")
        transactions.write(send.release_held_campaigns)
        for breaker in (self.email_sender.breaker, self.sms_sender.breaker):
            request = breaker.get_pause_request()
            if request.providers or request.campaigns:
                transactions.write(states.pause_rejected, request.providers, request.campaigns)
                breaker.confirm_pause(request)
        for account_id, campaign_id in states.list_auto_pause_candidates():
            transactions.write(states.check_auto_pause, account_id, campaign_id)
        transactions.write(states.complete_finished)
        self.ledger_checker.check_changed()

    def advance_experiments(self) -> None:
        """Decide the due tests of campaigns and flows, and assign the next batches of tests with Thompson sampling."""
        split_results.decide_running()
        for campaign_id in experiment.list_running():
            try:
                step = experiment.find_next_step(campaign_id)
                if step is not None:
                    transactions.write(experiment.take_step, step)
            except Exception as error:
                storage_error = disk_guard.to_storage_error(error)
                if storage_error is not None:
                    raise storage_error from error
                # One failing test must not keep the others from being decided.
                log.exception("experiments: deciding failed campaign=%s", campaign_id)

    def start_campaigns(self) -> None:
        """Start the due campaigns whose HTML must be sanitized first, which may take many seconds each.

        The accounts take turns. Returns at once if another run is active, because it also starts new campaigns.
        """
        self._run_once(self._starts_lock, self._start_in_turns)

    def _start_in_turns(self, stopping: threading.Event) -> None:
        turns: dict[int, int] = {}  # the number of campaigns of each account that were tried
        tried: set[int] = set()
        while not stopping.is_set():
            due = [row for row in send.list_due() if row[1] not in tried]
            if not due:
                return
            account_id, campaign_id = min(due, key=lambda row: turns.get(row[0], 0))
            turns[account_id] = turns.get(account_id, 0) + 1
            tried.add(campaign_id)
            self._start(account_id, campaign_id)

    @staticmethod
    def _start(account_id: int, campaign_id: int) -> bool:
        """Start a scheduled campaign; return False if it cannot be started now and remains due.

        After an unexpected error the campaign is paused until a user resumes it, so that it does not block other
        campaigns. Raises StorageError.
        """
        try:
            with limited_process.charge_account(account_id):
                prepared = preflight.prepare_send(account_id, campaign_id)
            transactions.write(occurrences.start_due, account_id, campaign_id, prepared)
        except StorageError:
            raise
        except WouldWait:
            return False
        except Unavailable as error:
            # For example, its HTML cannot be sanitized now. The other campaigns do not wait for that.
            log.info("campaigns: start put off campaign=%s: %s", campaign_id, error)
            transactions.write(send.pause_if_late, account_id, campaign_id)
            return False
        except Exception:
            log.exception("campaigns: start failed campaign=%s", campaign_id)
            transactions.write(states.pause_failed, account_id, campaign_id)
        return True

    def _is_minute_over(self) -> bool:
        """Return whether a minute has passed since this function last returned True."""
        now = clock.now_ms()
        if abs(now - self._last_experiments_ms) < _MINUTE_MS:
            return False
        self._last_experiments_ms = now
        return True

    def _wake_cleanup_if_due(self) -> bool:
        """Wake the hourly jobs if an hour has passed since they were woken last; return whether they were woken."""
        now = clock.now_ms()
        if abs(now - self._last_cleanup_ms) < _HOUR_MS:
            return False
        self._last_cleanup_ms = now
        for name in ("cleanup", "consents", "updates", "limits", "zones"):
            signals.wake(name)
        return True

    @staticmethod
    def _check_storage() -> None:
        """Measure the free disk space and checkpoint the database. Raises Unavailable if the database is not writable.

        If the last write failed, one row is written first, so that sending resumes even if nothing else is written.
        """
        disk_guard.measure()
        if disk_guard.write_blocker() is not None:
            transactions.write(settings.write_heartbeat)
        try:
            if _checkpoint_guard.should_checkpoint(Path(config.current().data_dir) / "campanero.db"):
                checkpoint()
        except apsw.Error as error:
            disk_guard.note_failure(error)
            raise disk_guard.to_storage_error(error) or error from None

    def pulse(self) -> None:
        """Wake the jobs that have due rows. Called once a second, so a lost wake-up delays a job by a second at most.

        Also lift expired suppressions and store when API keys were last used. Once a minute, while a campaign is sent
        by local time, store that the service is running (`send_times.list_overdue`).
        """
        self._check_storage()
        if _heartbeat_timer.is_due():
            transactions.submit_record(settings.write_heartbeat)
        if suppressions.has_expired():
            transactions.write(suppressions.expire)
        if last_uses := access.collect_last_uses():
            transactions.write(access.write_last_uses, last_uses)
        if self.email_sender.is_due():
            signals.wake("outbox")
        elif self.sms_sender.is_due():
            self.sms_sender.wake()
        if rows("SELECT 1 FROM campaign WHERE phase IN ('scheduled', 'holding', 'sending') LIMIT 1"):
            signals.wake("campaigns")
        if audience_snapshot.is_due():
            signals.wake("audiences")
        if self._is_minute_over():
            _do_each_minute()
        if imports.is_due() or self._wake_cleanup_if_due():
            signals.wake("imports")
        if erasing.has_pending_erasures() or capture_inbox.has_cleared():
            signals.wake("cleanup")
        if store.has_due_checks():
            signals.wake("domains")
        if segment_events.is_segment_check_due():
            signals.wake("segments")
        has_ordinary_mirrors, has_slow_mirrors = mirrors.find_stale_mirrors()
        if has_ordinary_mirrors:
            signals.wake("mirrors")
        if has_slow_mirrors:
            signals.wake("slow_mirrors")
        if hits.has_due_hits():
            signals.wake("hits")
        if any(
            is_due()
            for is_due in (
                date_events.is_date_check_due,
                enrollment.is_due,
                event_waits.is_catch_up_due,
                engine.is_due,
                lifecycle.is_settling_due,
            )
        ):
            signals.wake("flows")
        if worker.has_work():
            signals.wake("webhooks")
        if request_queue.has_due():
            signals.wake("requests")
        for name, is_due in (
            ("bulk_actions", bulk_actions.is_due), ("replays", replays.is_due), ("backups", backups.is_due),
            ("copies", schedule.is_due),
        ):  # fmt: skip
            if is_due():
                signals.wake(name)


def _do_each_minute() -> None:
    signals.wake("copies")  # reports problems to the owners
    if experiment.has_running() or split_tests.has_running():
        signals.wake("experiments")
    if time_zones.is_due():
        signals.wake("zones")
    if send_times.is_any_sending():
        transactions.write(settings.write_heartbeat)


def refresh_segments() -> None:
    """Record which contacts entered or left segments, and maintain the filter indexes."""
    segment_events.check_segments()
    query_plan.maintain_indexes()


_pulse_log = logging.getLogger("campanero.pulse")

# Each of these may occupy a thread for a long time: sending, imports, audience snapshots, flows, webhooks, requests of
# flows, a backup, a copy, starts of campaigns, link checks, a replay, segments, time zones, mirrors and slow mirrors.
# Preflights may occupy `rehearsal.MAX_CONCURRENT` threads. The remaining two threads run all other jobs.
_WORKERS = 17 + rehearsal.MAX_CONCURRENT


# A pulse may wait for a lock on the database, but one that takes longer than this counts as stuck.
_MAX_PULSE_SECONDS = 60.0


class _InProcess(Consumer):  # type: ignore[misc]  # Huey has no type annotations
    def _set_signal_handlers(self) -> None:
        """Install no signal handlers, because the server handles the signals of this process."""


class BackgroundWork:
    """The background jobs of this process and their threads.

    `process` is an id of the process, which marks the rows that it claims.
    """

    def __init__(self, process: str) -> None:
        self.jobs = Jobs(process)
        self._consumer = _InProcess(
            self.jobs.huey, workers=_WORKERS, periodic=False, shutdown_timeout=27, check_worker_health=False
        )
        self._errors = logs.RepeatedErrors(_pulse_log, "pulse: run failed")
        self._ending = threading.Event()
        self._beaten = time.monotonic()
        self._pulse = threading.Thread(target=self._beat, name="pulse", daemon=True)

    def start(self) -> None:
        """Start the worker threads and the pulse."""
        schedule.recover(Path(config.current().data_dir))
        self._consumer.start()
        self._pulse.start()

    def _beat(self) -> None:
        # The first pulse runs at once, because rows that an earlier process left may be due.
        while not self._ending.is_set():
            try:
                self.jobs.pulse()
                self._beaten = time.monotonic()
                streaming.write_progress(Path(config.current().data_dir))
            except Unavailable as error:
                _pulse_log.debug("pulse: skipped: %s", error)  # the storage package logs the reason
            except Exception as error:
                self._errors.log(to_storage_error(error) or error)
            self._ending.wait(1.0)
        close_database()

    def is_running(self) -> bool:
        """Return whether all threads are alive and the last pulse is less than `_MAX_PULSE_SECONDS` ago."""
        workers = [thread for _, thread in self._consumer.worker_threads]
        is_late = time.monotonic() > self._beaten + _MAX_PULSE_SECONDS
        return not (self._ending.is_set() or is_late) and all(thread.is_alive() for thread in (*workers, self._pulse))

    def renew(self) -> None:
        """Start a thread that replaces the email and SMS senders, so that they read the current configuration."""
        threading.Thread(target=self.jobs.renew, name="renewing").start()

    def stop(self) -> None:
        """Stop all jobs and wait for their threads; SMTP transactions in progress have 22 s to finish (`Jobs.stop`)."""
        signals.clear_handlers()
        self._ending.set()
        self.jobs.stop()
        self._consumer.stop_flag.set()
        self.jobs.huey.storage.wake_all()
        self._consumer.stop(graceful=True)
        self.jobs.sms_sender.join(27)
        self._pulse.join(5)
