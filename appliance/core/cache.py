"""A cache for expensive counts: an entry expires after a multiple of the time that it took to compute.

`cachetools` is used where entries expire after a fixed time. This cache exists because a count takes longer in a larger
account: a count that took 5 ms is repeated after 0.1 s, and a count that took 2 s after 40 s. Concurrent callers of one
key wait for a single computation.
"""

import threading
import time
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class CostAwareCache(Generic[T]):
    """Computed values by key, for use by any thread.

    A value expires after `cost_factor` times the seconds that it took to compute, but not before `min_age_seconds`. A
    value that took less than `min_cost_seconds` of processor time is not stored. At `max_entries` the cache is emptied.
    """

    def __init__(
        self, min_age_seconds: float = 0.0, cost_factor: int = 20, max_entries: int = 200, min_cost_seconds: float = 0.0
    ) -> None:
        self._min_age_seconds, self._cost_factor = min_age_seconds, cost_factor
        self._max_entries, self._min_cost_seconds = max_entries, min_cost_seconds
        self._lock = threading.Lock()
        self._entries: dict[Hashable, tuple[float, T]] = {}
        self._key_locks: dict[Hashable, threading.Lock] = {}

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the cached value of a key, or compute it with `make`. Only one thread computes a key at a time."""
        with self._lock:
            entry = self._entries.get(key)
            key_lock = self._key_locks.setdefault(key, threading.Lock())
        if entry is not None and time.monotonic() < entry[0]:
            return entry[1]
        with key_lock:
            with self._lock:
                entry = self._entries.get(key)
            if entry is not None and time.monotonic() < entry[0]:
                return entry[1]
            return self._compute(key, make)

    def _compute(self, key: Hashable, make: Callable[[], T]) -> T:
        started_at, processor_seconds = time.monotonic(), time.thread_time()
        value = make()
        ended_at = time.monotonic()
        if time.thread_time() - processor_seconds < self._min_cost_seconds:
            return value
        with self._lock:
            if len(self._entries) >= self._max_entries:
                self._entries.clear()
                self._key_locks.clear()
            self._entries[key] = (
                ended_at + max(self._min_age_seconds, self._cost_factor * (ended_at - started_at)),
                value,
            )
        return value

    def peek(self, key: Hashable) -> T | None:
        """Return the cached value of a key, even an expired value, or None if the key has no value."""
        with self._lock:
            entry = self._entries.get(key)
        return entry[1] if entry is not None else None

    def invalidate(self, key: Hashable) -> None:
        """Remove a key, so that the next `get` computes its value."""
        with self._lock:
            self._entries.pop(key, None)
