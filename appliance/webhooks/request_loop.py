"""A loop that makes due HTTP requests, several at a time, on one thread at a time; subclasses define the requests.

The outcomes are written in one transaction for all requests that finished together. Requests that are cut off when the
process ends are repeated by the next one.
"""

import asyncio
import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

from appliance.core import clock
from appliance.sending.delivery.safe_http import ConnectionPool
from appliance.storage import disk_guard, send_lease, transactions

log = logging.getLogger("campanero.webhooks")

Job = TypeVar("Job")
Result = TypeVar("Result")
# The time that requests in flight have to finish when the process ends.
_GRACE_SECONDS = 2.0
_MAX_PAUSE_MS = clock.DAY_MS


class RequestLoop(ABC, Generic[Job, Result]):
    """A loop over due requests (`Job`) and their outcomes (`Result`); call `run` when there may be work."""

    def __init__(self) -> None:
        self.stopping = threading.Event()
        self._lock = threading.Lock()
        self._is_requested = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wakeup = asyncio.Event()
        # All runs share one event loop, because closing a loop would wait for slow name resolutions in its threads.
        self._runner = asyncio.Runner()

    @abstractmethod
    def has_work(self) -> bool:
        """Return whether anything is due; called without the event loop."""

    @abstractmethod
    async def prepare(self) -> bool:
        """Do a part of the work for which no request is made; return whether there may be more of it."""

    @abstractmethod
    def choose(self, in_flight: list[Job]) -> list[Job]:
        """Return the requests to start now, in addition to those in flight."""

    @abstractmethod
    async def attempt(self, job: Job, pool: ConnectionPool) -> Result:
        """Make a request once, and return its outcome."""

    @abstractmethod
    def note_finished(self, job: Job, outcome: Result | None) -> None:
        """Store what the next `choose` needs to know about a finished request; None means an internal error."""

    @abstractmethod
    async def record(self, finished: list[tuple[Job, Result | None]]) -> None:
        """Write outcomes; None is an internal error, which was logged. Raises Unavailable if they cannot be stored."""

    def run(self) -> None:
        """Make requests until none is due or `stop` is called.

        If another thread is running the loop, make that thread look for due requests again, and return at once.
        """
        self._is_requested.set()
        self.wake()
        while self._is_requested.is_set() and self._lock.acquire(blocking=False):
            try:
                self._is_requested.clear()
                if self.has_work():
                    self._runner.run(self._make_requests())
            finally:
                self._lock.release()

    def stop(self) -> None:
        """Ask the loop to stop for good, and return at once.

        `run` then starts no request, gives those in flight `_GRACE_SECONDS` to finish, and returns.
        """
        self.stopping.set()
        self.wake()

    def wake(self) -> None:
        """Make a running loop look for due requests again; may be called from any thread."""
        loop = self._loop
        if loop is not None:
            try:
                loop.call_soon_threadsafe(self._wakeup.set)
            except RuntimeError:
                pass  # the run has just ended; `run` looks for work again

    async def _make_requests(self) -> None:
        self._loop, self._wakeup = asyncio.get_running_loop(), asyncio.Event()
        in_flight: dict[asyncio.Task[Result], Job] = {}
        pool = ConnectionPool()
        try:
            while not self.stopping.is_set() and disk_guard.write_blocker() is None and send_lease.is_held():
                self._wakeup.clear()
                has_more = await self.prepare()
                for job in self.choose(list(in_flight.values())):
                    in_flight[asyncio.create_task(self.attempt(job, pool))] = job
                if in_flight:
                    await self._record_finished(in_flight, wait=not has_more)
                elif not has_more:
                    return
        finally:
            self._loop = None
            await self._finish_in_flight(in_flight)
            await pool.close()

    async def _record_finished(self, in_flight: "dict[asyncio.Task[Result], Job]", wait: bool) -> None:
        """Record the finished requests; with `wait`, first wait until a request finishes or `wake` is called."""
        wakeup = asyncio.create_task(self._wakeup.wait())
        await asyncio.wait({*in_flight, wakeup}, timeout=None if wait else 0, return_when=asyncio.FIRST_COMPLETED)
        wakeup.cancel()
        await self._take_out(in_flight, [task for task in in_flight if task.done()])

    async def _finish_in_flight(self, in_flight: "dict[asyncio.Task[Result], Job]") -> None:
        """Wait up to `_GRACE_SECONDS` for requests in flight and record their outcomes; cancel the others."""
        if not in_flight:
            return
        finished, late = await asyncio.wait(in_flight, timeout=_GRACE_SECONDS)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        await self._take_out(in_flight, list(finished))

    async def _take_out(
        self, in_flight: "dict[asyncio.Task[Result], Job]", finished: "list[asyncio.Task[Result]]"
    ) -> None:
        """Remove finished tasks from `in_flight`, and record their outcomes."""
        outcomes: list[tuple[Job, Result | None]] = []
        for task in finished:
            job, outcome = in_flight.pop(task), None
            try:
                outcome = task.result()
            except Exception:
                log.exception("webhooks: request failed request=%s", job)
            self.note_finished(job, outcome)
            outcomes.append((job, outcome))
        if outcomes:
            await self.record(outcomes)


async def commit(write: Callable[[], bool]) -> bool:
    """Run a write in a transaction, without blocking the event loop, and return its result."""
    return await asyncio.wrap_future(transactions.submit(write))


def parse_retry_after(headers: Mapping[str, str]) -> int:
    """Return the delay of a Retry-After header in ms, at most `_MAX_PAUSE_MS`; 0 if it is absent or a date."""
    text = headers.get("retry-after", "")
    return min(int(text) * 1000, _MAX_PAUSE_MS) if text.isascii() and text.isdecimal() and len(text) < 9 else 0
