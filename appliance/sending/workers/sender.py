"""The sender of a channel: run workers on an event loop while messages are due, and let them finish at the end.

`email_sender.py` and `sms_sender.py` say what a worker does, and on which thread the loop runs.
"""

import asyncio
import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from appliance.core.errors import Unavailable
from appliance.sending.messages import delivery_status, queue_reader
from appliance.sending.messages.delivery_status import SendStatus
from appliance.sending.messages.queue_reader import LimitNames
from appliance.sending.workers.circuit_breaker import CircuitBreaker, StopSwitch
from appliance.sending.workers.outcome_writer import OutcomeWriter
from appliance.sending.workers.rate_limits import RateLimits
from appliance.sending.workers.ready_queue import ReadyQueue
from appliance.settings.config import parse_seconds

log = logging.getLogger("campanero.sender")
# In a shutdown, open transactions and requests get this time to finish, so that a hanging one cannot delay the end of
# the service; then cancelled workers get the second time to store outcomes, and the outcome writer gets it once more.
# With the QUIT of idle connections, all fits into the 27 s for which `appliance.jobs` waits.
_STOP_SECONDS = 20.0
_CANCEL_SECONDS = 2.0
# How often a sender that was retired looks whether the service is being shut down meanwhile.
_SHUTDOWN_CHECK_SECONDS = 0.2


Limits = TypeVar("Limits", bound=RateLimits)


@dataclass(frozen=True)
class WorkerContext(Generic[Limits]):
    """The objects that the workers of one event loop share, and the number of workers."""

    worker_count: int
    breaker: CircuitBreaker
    limits: Limits
    stop_switch: StopSwitch
    ready_queue: ReadyQueue
    outcome_writer: OutcomeWriter


class Sender(ABC, Generic[Limits]):
    """The sender of one channel in one process.

    Its limits and circuit breaker outlive the event loop; workers, connections and the ready queue do not. `name` is
    the component in log lines, and `process` the id of the process, which is stored with each claim.
    """

    def __init__(
        self, channel: str, name: str, process: str, probe_after: str, limits: Limits,
        is_replaceable: Callable[[str], bool] | None = None,
    ) -> None:  # fmt: skip
        self._channel, self._name, self._process = channel, name, process
        self.stop_switch = StopSwitch()
        self.stopping = self.stop_switch.stopping
        self._is_shutdown = threading.Event()
        self.breaker = CircuitBreaker(parse_seconds(probe_after), is_replaceable)
        self.limits = limits
        # `wake` sets both: `_woken` also while no event loop runs, `_wake_event` to wake the loop that runs.
        self._woken = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake_event: asyncio.Event | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        delivery_status.set_reporter(channel, self.get_status)

    @abstractmethod
    def _create_context(self) -> WorkerContext[Limits]:
        """Return the context that the workers of the running event loop share (`_build_context`)."""

    @abstractmethod
    async def _run_worker(self, context: WorkerContext[Limits]) -> None:
        """Run one worker until it finds no message."""

    def _build_context(
        self, worker_count: int, ready_count: int, batch_size: int, names: LimitNames | None = None
    ) -> WorkerContext[Limits]:
        """Return a context in which up to `ready_count` messages are rendered ahead (see also `OutcomeWriter`)."""
        ready_queue = ReadyQueue(self.breaker, self.limits, ready_count, self.stop_switch, self._channel, names)
        outcome_writer = OutcomeWriter(self._process, batch_size)
        return WorkerContext(worker_count, self.breaker, self.limits, self.stop_switch, ready_queue, outcome_writer)

    @abstractmethod
    async def _wait_for_wake_up(self) -> bool:
        """Return whether to look for messages again, after waiting for a wake-up; called when no message is due."""

    @abstractmethod
    async def _close_connections(self) -> None:
        """Close the connections that the workers share."""

    @abstractmethod
    def _count_connections(self) -> int:
        """Return the number of open connections (SMS: of workers); may be called from any thread."""

    def _cancel_waiting(self) -> None:
        """Cancel what workers wait for before they claim a message, because the loop ends."""
        return

    def is_due(self) -> bool:
        """Return whether a message is due whose provider is not paused, and sending is not stopped."""
        paused = self.limits.list_unread(self.breaker.get_paused_providers())
        return not self.stop_switch.is_halted() and queue_reader.has_due(paused, self._channel)

    def wake(self) -> None:
        """Make a running sender look for due messages again; may be called from any thread."""
        self._woken.set()
        loop, event = self._loop, self._wake_event
        if loop is not None and event is not None:
            try:
                loop.call_soon_threadsafe(event.set)
            except RuntimeError:
                log.debug("%s: wake ignored, sender has ended", self._name)

    def stop(self) -> None:
        """Shut down: start no new transactions or requests, and end the loop soon (`_STOP_SECONDS`).

        A transaction that has not ended by then is cancelled, so its message may be uncertain. A retired sender can be
        stopped too.
        """
        self._is_shutdown.set()
        self.retire()

    def retire(self) -> None:
        """Start no new transactions or requests, and let the loop end once the open ones have ended by themselves.

        Only attempts to connect are cancelled, so no message becomes uncertain; a slow server may take until its
        timeout.
        """
        self.stopping.set()
        self.wake()

    def get_status(self) -> SendStatus:
        """Return the state of the transports, limits and connections; may be called from any thread."""
        status = self.limits.get_status()
        paused = (*self.breaker.get_paused_transports(), *status.paused_transports)
        return status._replace(paused_transports=paused, connections=self._count_connections())

    async def _run(self) -> None:
        """Run workers on this event loop until `_wait_for_wake_up` returns False or the sender is stopped or retired.

        Then wait for the open transactions and close all connections. A wake-up starts workers in place of those that
        ended because they found no message.
        """
        self._loop, self._wake_event = asyncio.get_running_loop(), (wake_event := asyncio.Event())
        self._tasks = set()
        context = self._create_context()
        ready_queue, outcome_writer = context.ready_queue, context.outcome_writer
        try:
            await self.limits.count_past_hour(self._channel)
            while not self.stopping.is_set():
                wake_event.clear()
                self._woken.clear()
                ready_queue.refill()
                for _ in range(context.worker_count - len(self._tasks)):
                    self._start_worker(context, wake_event)
                await wake_event.wait()
                if not self._tasks and not self._woken.is_set() and not await self._wait_for_wake_up():
                    return
        finally:
            ready_queue.refill()  # wakes the workers that wait for a limit, so that they end
            self._cancel_waiting()
            await self._finish_workers()
            self._loop = self._wake_event = None
            try:
                # A shutdown does not wait for a database that cannot be written; the next start reads the log.
                flushing = asyncio.create_task(outcome_writer.flush())
                if not await self._wait_for({flushing}, _CANCEL_SECONDS):
                    flushing.result()
            finally:
                try:
                    await self._close_connections()
                finally:
                    await ready_queue.close()

    def _start_worker(self, context: WorkerContext[Limits], wake_event: asyncio.Event) -> None:
        """Start one worker; when the last one ends, `wake_event` is set."""

        def end(task: "asyncio.Task[None]") -> None:
            self._tasks.discard(task)
            if not self._tasks:
                wake_event.set()

        self._tasks.add(task := asyncio.create_task(self._run_logged(context)))
        task.add_done_callback(end)

    async def _run_logged(self, context: WorkerContext[Limits]) -> None:
        """Run one worker; its errors are logged, so that the other workers continue.

        While messages are due, `jobs.pulse` wakes the sender, which then starts a worker in its place.
        """
        try:
            await self._run_worker(context)
        except Unavailable as error:
            log.error("%s: sending stopped: %s", self._name, error)
        except Exception:
            log.exception("%s: worker failed", self._name)

    async def _finish_workers(self) -> None:
        """Wait until all workers have ended; in a shutdown, cancel those that take longer than `_STOP_SECONDS`.

        The next start of the service decides about a message whose outcome was then not stored
        (`retries.recover_interrupted`).
        """
        if await self._wait_for(self._tasks, _STOP_SECONDS) and self._tasks:
            # The cancelled workers store the outcomes that they know.
            await asyncio.wait({*self._tasks}, timeout=_CANCEL_SECONDS)

    async def _wait_for(self, tasks: Iterable["asyncio.Task[None]"], seconds: float) -> bool:
        """Wait until all tasks have ended; in a shutdown, cancel those that take longer than `seconds` more.

        Return whether tasks were cancelled.
        """
        late = {*tasks}
        while late and not self._is_shutdown.is_set():
            _, late = await asyncio.wait(late, timeout=_SHUTDOWN_CHECK_SECONDS)
        if late:
            _, late = await asyncio.wait(late, timeout=seconds)
        for task in late:
            task.cancel()
        return bool(late)
