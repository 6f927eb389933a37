"""Start and stop the worker threads, and look for due rows once a second (the pulse)."""

import logging
import threading
import time
from pathlib import Path

from huey.consumer import Consumer

from appliance.core import logs, signals
from appliance.core.errors import Unavailable
from appliance.exports import progress
from appliance.jobs.tasks import Jobs
from appliance.settings import config
from appliance.storage.database import close_database
from appliance.storage.disk_guard import to_storage_error

log = logging.getLogger("campanero.pulse")

# Sending, imports, audience snapshots, flows, webhooks and a backup may each occupy a thread for a long time. The
# remaining two threads run all other jobs.
_WORKERS = 8


# A pulse may wait for a lock on the database, but a pulse that takes longer than this counts as stuck.
_MAX_PULSE_SECONDS = 60.0


class _InProcess(Consumer):  # type: ignore[misc]  # Huey has no type annotations
    def _set_signal_handlers(self) -> None:
        """Install no signal handlers, because the server handles the signals of this process."""


class BackgroundWork:
    """The background jobs of this process and their threads.

    `process` is an id that marks the rows that the process claims.
    """

    def __init__(self, process: str) -> None:
        self.jobs = Jobs(process)
        self._consumer = _InProcess(
            self.jobs.huey, workers=_WORKERS, periodic=False, shutdown_timeout=27, check_worker_health=False
        )
        self._errors = logs.RepeatedErrors(log, "pulse: run failed")
        self._ending = threading.Event()
        self._beaten = time.monotonic()
        self._pulse = threading.Thread(target=self._beat, name="pulse", daemon=True)

    def start(self) -> None:
        """Start the worker threads and the pulse."""
        self._consumer.start()
        self._pulse.start()

    def _beat(self) -> None:
        # The first pulse runs at once, because rows that an earlier process left may be due.
        while not self._ending.is_set():
            try:
                self.jobs.pulse()
                self._beaten = time.monotonic()
                progress.write_progress(Path(config.current().data_dir))
            except Unavailable as error:
                log.debug("pulse: skipped: %s", error)  # the storage package logs the reason
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
        """Replace the email and SMS senders with new senders, which read the current configuration; return at once."""
        threading.Thread(target=self.jobs.renew, name="renewing").start()

    def stop(self) -> None:
        """Stop all jobs and wait for their threads; SMTP transactions in progress may finish within 30 s."""
        signals.clear_handlers()
        self._ending.set()
        self.jobs.stop()
        self._consumer.stop_flag.set()
        self.jobs.huey.storage.wake_all()
        self._consumer.stop(graceful=True)
        self.jobs.sms_sender.join(27)
        self._pulse.join(5)
