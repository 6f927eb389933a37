"""A cache for expensive counts: an entry expires after a multiple of the time that it took to compute.

`cachetools` serves where the age is fixed. This one is kept because the size of an account decides how long a count
takes: a count of 5 ms is repeated every 0.1 s, one of 2 s every 40 s, and callers of one key wait for one computation.
"""

import threading
import time
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class CostAwareCache(Generic[T]):
    """Values by key, kept for at least `min_age_seconds` and for `cost_factor` times what they took to compute.

    A value that took less than `min_cost_seconds` of processor time is never kept.
    """

    def __init__(
        self, min_age_seconds: float = 0.0, cost_factor: int = 20, max_entries: int = 200, min_cost_seconds: float = 0.0
    ) -> None:
        self._min_age_seconds, self._cost_factor = min_age_seconds, cost_factor
        self._max_entries, self._min_cost_seconds = max_entries, min_cost_seconds
        self._lock = threading.Lock()
        self._known: dict[Hashable, tuple[float, T]] = {}
        self._making: dict[Hashable, threading.Lock] = {}

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the value of a key, computed now unless a fresh one is cached; concurrent callers wait for it."""
        with self._lock:
            known = self._known.get(key)
            making = self._making.setdefault(key, threading.Lock())
        if known is not None and time.monotonic() < known[0]:
            return known[1]
        with making:
            with self._lock:
                known = self._known.get(key)
            if known is not None and time.monotonic() < known[0]:
                return known[1]
            return self._made(key, make)

    def _made(self, key: Hashable, make: Callable[[], T]) -> T:
        begun, work = time.monotonic(), time.thread_time()
        made = make()
        ended = time.monotonic()
        if time.thread_time() - work < self._min_cost_seconds:
            return made
        with self._lock:
            if len(self._known) >= self._max_entries:
                self._known.clear()
                self._making.clear()
            self._known[key] = ended + max(self._min_age_seconds, self._cost_factor * (ended - begun)), made
        return made

    def peek(self, key: Hashable) -> T | None:
        """Return the cached value of a key however old it is, or None."""
        with self._lock:
            known = self._known.get(key)
        return known[1] if known is not None else None

    def invalidate(self, key: Hashable) -> None:
        """Remove a key, so that its value is computed again."""
        with self._lock:
            self._known.pop(key, None)
