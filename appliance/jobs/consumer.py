"""Starts and stops the worker threads, and looks for due rows once a second (the pulse)."""

import logging
import threading
import time
from pathlib import Path

from huey.consumer import Consumer

from appliance.core import signals
from appliance.core.errors import Unavailable
from appliance.exports import progress
from appliance.jobs.tasks import Jobs
from appliance.settings import config
from appliance.storage.database import close_database

log = logging.getLogger("campanero.pulse")

# Sending, imports, audience snapshots, flows, webhooks and a backup may each occupy a thread for long; two do the rest.
_WORKERS = 8


# A pulse may wait for a lock on the database, but not this long.
_MAX_PULSE_SECONDS = 60.0


class _InProcess(Consumer):  # type: ignore[misc]  # its library has no types
    def _set_signal_handlers(self) -> None:
        """Install nothing: the server handles the signals of this process."""


class BackgroundWork:
    """The background jobs of this process, started and stopped together."""

    def __init__(self, process: str) -> None:
        self.jobs = Jobs(process)
        self._consumer = _InProcess(
            self.jobs.huey, workers=_WORKERS, periodic=False, shutdown_timeout=27, check_worker_health=False
        )
        self._ending = threading.Event()
        self._beaten = time.monotonic()
        self._pulse = threading.Thread(target=self._beat, name="pulse", daemon=True)

    def start(self) -> None:
        """Start workers and pulse."""
        self._consumer.start()
        self._pulse.start()

    def _beat(self) -> None:
        # The first pulse runs at once, because rows of an earlier process may be due.
        while not self._ending.is_set():
            try:
                self.jobs.pulse()
                self._beaten = time.monotonic()
                progress.write_progress(Path(config.current().data_dir))
            except Unavailable as error:
                log.debug("pulse: skipped: %s", error)  # the storage has logged the reason
            except Exception:
                log.exception("pulse: run failed")
            self._ending.wait(1.0)
        close_database()

    def is_running(self) -> bool:
        """Return whether all threads are alive and the pulse is not late."""
        workers = [thread for _, thread in self._consumer.worker_threads]
        is_late = time.monotonic() > self._beaten + _MAX_PULSE_SECONDS
        return not (self._ending.is_set() or is_late) and all(thread.is_alive() for thread in (*workers, self._pulse))

    def renew(self) -> None:
        """Replace the senders by new ones with the present configuration; returns at once."""
        threading.Thread(target=self.jobs.renew, name="renewing").start()

    def stop(self) -> None:
        """Stop all jobs; open SMTP transactions may finish within 30 s."""
        signals.clear_handlers()
        self._ending.set()
        self.jobs.stop()
        self._consumer.stop_flag.set()
        self.jobs.huey.storage.wake_all()
        self._consumer.stop(graceful=True)
        self.jobs.sms_sender.join(27)
        self._pulse.join(5)
