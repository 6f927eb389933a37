"""Which background jobs are queued and running, and how often each failed."""

import threading
from collections import Counter as Tally
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

from appliance.counted import Counter, Gauge, Labels
from appliance.errors import Unavailable

_JOBS = Gauge("jobs", "Background work by its kind: how much waits for a thread, and how much runs.", ("job", "state"))
_FAILURES = Counter("job_failures_total", "Background work that broke off for a fault, by its kind.", ("job",))


class RunningJobs:
    """The background work of one process, as it stands."""

    def __init__(self, waiting: Callable[[], Collection[str]]) -> None:
        self._waiting = waiting
        self._running: Tally[str] = Tally()
        self._names: set[str] = set()
        self._lock = threading.Lock()
        _JOBS.follow(self._stands)

    def know(self, name: str) -> None:
        """Tell of a kind of work also while there is none of it."""
        self._names.add(name)

    @contextmanager
    def at_work(self, name: str) -> Iterator[None]:
        """Count as running meanwhile; storage that cannot be written is no fault of the work."""
        with self._lock:
            self._running[name] += 1
        try:
            yield
        except Unavailable:
            raise
        except Exception:
            _FAILURES.add(name)
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
