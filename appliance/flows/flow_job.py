"""Whoever rings `flows` gets this: events become runs, due runs go on, until nothing is left to do."""

import logging
import threading
from collections.abc import Callable

from appliance.db.disk_guard import storage_error
from appliance.errors import Unavailable

log = logging.getLogger("campanero.flows")

# Each takes one bite of its work, in transactions of its own, and says whether it found any
Bite = Callable[[], bool]


class Tender:
    """Works on flows in one thread at a time; a ring meanwhile is answered by the one at work."""

    def __init__(self, bites: tuple[Bite, ...]) -> None:
        self.stopping = threading.Event()
        self._bites = bites
        self._working = threading.Lock()
        self._rung = threading.Event()

    def tend(self) -> None:
        """Work until there is nothing to do, or the process ends."""
        self._rung.set()
        while self._rung.is_set() and self._working.acquire(blocking=False):
            try:
                self._rung.clear()
                self._all()
            finally:
                self._working.release()

    def _all(self) -> None:
        able = list(self._bites)
        while not self.stopping.is_set():
            # Every kind of work gets its bite in each round, so that none waits for the end of another
            found = [self._bite(bite, able) for bite in self._bites if bite in able]
            if not any(found):
                return

    @staticmethod
    def _bite(bite: Bite, able: list[Bite]) -> bool:
        """Take a bite; a kind of work that breaks is left alone until somebody rings again."""
        try:
            return bite()
        except Exception as error:
            if isinstance(error, Unavailable) or storage_error(error) is not None:
                raise
            log.exception("a part of the work on flows cannot go on")
            able.remove(bite)
            return False
