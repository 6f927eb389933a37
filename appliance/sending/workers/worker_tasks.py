"""Start the tasks in which the workers of a sender run, and let them finish when the service stops."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

# Time that open transactions and requests get to finish, so that a hanging one cannot delay the end of the service, and
# then the time in which cancelled workers store outcomes. Both fit into the 27 s for which `jobs.tasks` waits.
_STOP_SECONDS = 22.0
CANCEL_SECONDS = 2.0


class WorkerTasks:
    """The tasks of one run of a sender; used on one event loop, except `len`, which any thread may call.

    `run_worker` runs one worker until it finds no message. When the last worker ends, `wake_event` is set.
    """

    def __init__(self, run_worker: Callable[[], Coroutine[Any, Any, None]], wake_event: asyncio.Event) -> None:
        self._run_worker, self._wake_event = run_worker, wake_event
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        """Return the number of workers that have not ended."""
        return len(self._tasks)

    def start(self, count: int) -> None:
        """Start workers until `count` workers run."""
        for _ in range(count - len(self._tasks)):
            task = asyncio.create_task(self._run_worker())
            self._tasks.add(task)
            task.add_done_callback(self._end)

    def _end(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not self._tasks:
            self._wake_event.set()

    async def stop(self) -> None:
        """Wait until all workers have ended, and cancel those that take longer than `_STOP_SECONDS`.

        The next process decides about a message whose outcome was not stored (`retries.recover_interrupted`).
        """
        if not self._tasks:
            return
        _, late = await asyncio.wait({*self._tasks}, timeout=_STOP_SECONDS)
        for task in late:
            task.cancel()
        if late:
            # The cancelled workers store the outcomes that they know.
            await asyncio.wait(late, timeout=CANCEL_SECONDS)
