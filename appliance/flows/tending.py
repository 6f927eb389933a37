"""Whoever rings `flows` gets this: events become runs, due runs go on, until nothing is left to do."""

import threading
from collections.abc import Callable

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
        while not self.stopping.is_set():
            # Every kind of work gets its bite in each round, so that none waits for the end of another
            found = [bite() for bite in self._bites]
            if not any(found):
                return
