"""Huey's worker threads inside this process, and the once-a-second check for rows that are due."""

import logging
import threading
import time
from pathlib import Path

from huey.consumer import Consumer

from appliance.core import wake_ups
from appliance.core.errors import Unavailable
from appliance.exports import going
from appliance.jobs.tasks import Jobs
from appliance.settings import config
from appliance.storage.open import close_database

log = logging.getLogger("campanero.pulse")

# One drains the outbox, one reads imports, one writes audiences, one takes people through flows, one tells webhooks and
# one waits for a backup for as long as that takes, the others tend the rest
_WORKERS = 8


# A pulse may wait for a lock on the database, but not that long
_BEAT_LOST_SECONDS = 60.0


class _InProcess(Consumer):  # type: ignore[misc]  # its library has no types
    def _set_signal_handlers(self) -> None:
        """Leave the process's signals to the server."""


class Works:
    """Everything that runs beside requests, started and stopped together."""

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
        # The first beat comes at once: what an earlier process left is due now
        while not self._ending.is_set():
            try:
                self.jobs.pulse()
                self._beaten = time.monotonic()
                going.tell(Path(config.current().data_dir))
            except Unavailable as error:
                log.debug("the pulse waits: %s", error)  # said once already, by the storage
            except Exception:
                log.exception("the pulse missed a beat")
            self._ending.wait(1.0)
        close_database()

    def is_running(self) -> bool:
        """Return whether work is done: its threads live, and the pulse rings for what is due."""
        workers = [thread for _, thread in self._consumer.worker_threads]
        is_late = time.monotonic() > self._beaten + _BEAT_LOST_SECONDS
        return not (self._ending.is_set() or is_late) and all(one.is_alive() for one in (*workers, self._pulse))

    def renew(self) -> None:
        """Let what is on its way end, and send by the present configuration from then on; returns at once."""
        threading.Thread(target=self.jobs.renew, name="renewing").start()

    def stop(self) -> None:
        """Let open SMTP transactions finish (30 s at most), start nothing new."""
        wake_ups.silence()
        self._ending.set()
        self.jobs.stop()
        self._consumer.stop_flag.set()
        self.jobs.huey.storage.wake_all()
        self._consumer.stop(graceful=True)
        self.jobs.texter.join(27)
        self._pulse.join(5)
