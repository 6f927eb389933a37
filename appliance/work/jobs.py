"""What answers the bell: Huey tasks that look at the tables. A task may run twice or never without harm."""

import logging
import threading
from collections.abc import Callable

from huey import Huey
from huey.storage import MemoryStorage

from appliance.campaigns import send, states
from appliance.contacts import mirrors, suppress
from appliance.db import work
from appliance.db.open import rows
from appliance.errors import Unavailable
from appliance.importing import store as imports
from appliance.importing.job import Importer
from appliance.messages import outbox
from appliance.segments import indexes
from appliance.work import bell
from appliance.work.sender import Sender

log = logging.getLogger("campanero.jobs")


class WakeStorage(MemoryStorage):  # type: ignore[misc]
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
            return super().dequeue()  # type: ignore[no-any-return]

    def wake_all(self) -> None:
        """Let every reader look up, because the process is ending."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()


class Jobs:
    """The tasks of one process, bound to its bell."""

    def __init__(self, process: str) -> None:
        self.huey = Huey("campanero", storage_class=WakeStorage, results=False)
        self.sender = Sender(process)
        self.importer = Importer()
        self._draining = threading.Lock()
        self._again = threading.Event()
        self._queued: set[str] = set()
        self._queued_lock = threading.Lock()
        answers = {
            "outbox": self.drain_outbox, "campaigns": self.tend_campaigns, "imports": self.importer.tend,
            "segments": tend_segments,
        }  # fmt: skip
        for name, function in answers.items():
            self._answer(name, function)

    def _answer(self, name: str, function: Callable[[], None]) -> None:
        def run() -> None:
            with self._queued_lock:
                self._queued.discard(name)
            try:
                function()
            except Unavailable as error:
                log.error("%s: %s", name, error)

        task = self.huey.task(name=name)(run)

        def ring() -> None:
            # One waiting task of a name is enough: it looks at everything when it runs
            with self._queued_lock:
                if name in self._queued:
                    return
                self._queued.add(name)
            task()

        bell.answer(name, ring)

    def drain_outbox(self) -> None:
        """Send what is due; one drain at a time, and a ring meanwhile makes it look again."""
        self._again.set()
        if not self._draining.acquire(blocking=False):
            return
        try:
            while self._again.is_set() and not self.sender.stopping.is_set():
                self._again.clear()
                shut = self.sender.drain()
                if shut:
                    work.write(_pause_all, self.sender.fault)
        finally:
            self._draining.release()
        self.tend_campaigns()

    def tend_campaigns(self) -> None:
        """Start what is due, show what is released, complete what is done."""
        work.write(send.fire_due)
        work.write(send.release_held)
        work.write(states.settle)

    def pulse(self) -> None:
        """Ring for whatever is due; called once a second, so that a lost ring costs no more than that."""
        if suppress.is_due():
            work.write(suppress.expire)
        if outbox.is_due() and not self._draining.locked():
            bell.ring("outbox")
        if rows("SELECT 1 FROM campaign WHERE phase IN ('scheduled', 'holding', 'sending') LIMIT 1"):
            bell.ring("campaigns")
        if imports.is_due():
            bell.ring("imports")
        if mirrors.is_due():
            bell.ring("segments")


def tend_segments() -> None:
    """Populate the lists that mirror segments, and make the indexes that segments ask for."""
    mirrors.refresh_due()
    indexes.tend()


def _pause_all(words: str) -> None:
    """Pause every live campaign because the way out refuses us; a person looks and lets them go on."""
    from appliance.campaigns import store

    for account_id, campaign_id in rows("SELECT account_id, id FROM campaign WHERE phase IN ('sending', 'holding')"):
        campaign = store.get(account_id, campaign_id)
        campaign.data = {**campaign.data, "pause_detail": words}
        states.stop(campaign, "transport")
