"""The queue of background jobs: Huey's memory storage, whose readers sleep until a task is queued."""

import threading

from huey.storage import MemoryStorage


class BlockingMemoryStorage(MemoryStorage):  # type: ignore[misc]  # Huey has no type annotations
    """Huey's memory storage, with readers that sleep until a task is queued."""

    blocking = True

    def __init__(self, *arguments: object, **named: object) -> None:
        """Create an empty storage; the arguments are those of Huey's MemoryStorage."""
        super().__init__(*arguments, **named)
        self._changed = threading.Condition(self._lock)
        self._closed = False

    def enqueue(self, data: bytes, priority: float | None = None) -> None:
        """Queue a task and wake one reader."""
        with self._changed:
            super().enqueue(data, priority)
            self._changed.notify()

    def dequeue(self) -> bytes | None:
        """Return the next task, waiting up to a second for a task; None if none arrives."""
        with self._changed:
            if not self._queue and not self._closed:
                self._changed.wait(1.0)
            task: bytes | None = super().dequeue()
            return task

    def wake_all(self) -> None:
        """Wake all readers, and let later calls of `dequeue` return without waiting, because the process is ending."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
