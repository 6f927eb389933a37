"""In-memory storage of Huey tasks, with readers that sleep until there is one."""

import threading

from huey.storage import MemoryStorage


class WakeStorage(MemoryStorage):  # type: ignore[misc]  # its library has no types
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
            task: bytes | None = super().dequeue()
            return task

    def wake_all(self) -> None:
        """Let every reader look up, because the process is ending."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
