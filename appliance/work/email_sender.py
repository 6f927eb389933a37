"""Sends email that is due, with as many connections as allowed, on one event loop.

Each connection carries one message at a time. The outcome of a message and the claim of the next share one commit. The
next envelope is sent meanwhile, but a body is sent only after its claim is on disk. A known outcome is kept until it is
stored.
"""

import asyncio
import logging
import threading

from appliance import clock, config
from appliance.config import seconds
from appliance.db.open import close_database
from appliance.delivery.routing import DIRECT
from appliance.errors import Unavailable
from appliance.messages import queue
from appliance.work import send_status
from appliance.work.circuit_breaker import CircuitBreaker
from appliance.work.direct_worker import DirectWorker
from appliance.work.email_rate_limits import EmailRateLimits
from appliance.work.mx_connections import MxConnections
from appliance.work.outcome_writer import OutcomeWriter
from appliance.work.ready_queue import ReadyQueue
from appliance.work.send_status import SendStatus
from appliance.work.stop_switch import StopSwitch
from appliance.work.unreachable_hosts import UnreachableHosts

log = logging.getLogger("campanero.sender")
# Ready messages for each conversation; more would only wait
_AHEAD = 4
# A conversation that hangs longer than a stop may last does not keep the process from ending
_STOP_SECONDS = 22.0
_LAST_SECONDS = 2.0
# Places for each conversation that may be under way, where most of them may be waiting for servers to answer
_WAITING = 8
_MAX_PLACES = 100
_HOUR_MS = 3_600_000


class EmailSender:
    """The sending side of one process; `drain` runs in one thread at a time."""

    def __init__(self, process: str) -> None:
        self.process = process
        self.halted = StopSwitch()
        self.stopping = self.halted.stopping
        self.gate = CircuitBreaker(seconds(config.current().email.probe_after))
        self._woken = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._look: asyncio.Event | None = None
        self.pace = EmailRateLimits(config.current().email)
        self.reach = UnreachableHosts()
        self._remembers = not self.pace.counts_hours
        self._places: set[DirectWorker] = set()
        self._destinations: MxConnections | None = None
        send_status.report("email", self.standing)

    def wake(self) -> None:
        """Say that there may be more to send; a running drain puts idle places to work."""
        self._woken.set()
        loop, look = self._loop, self._look
        if loop is not None and look is not None:
            try:
                loop.call_soon_threadsafe(look.set)
            except RuntimeError:
                log.debug("the drain has just ended")

    def drain(self) -> None:
        """Send until nothing is due. One slow conversation keeps its own place, not the others."""
        while not self.halted():
            with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
                runner.run(self._drain())
            if not self._woken.is_set():
                return

    def stop(self) -> None:
        """Let open transactions finish and start nothing new."""
        self.stopping.set()
        self.wake()

    def standing(self) -> SendStatus:
        """Return what is closed, spared or used up, and how many conversations are open; from any thread."""
        found = self.pace.standing()
        there = sum(place.connections for place in [*self._places])
        there += self._destinations.pool.connections if self._destinations is not None else 0
        return found._replace(closed=(*self.gate.standing(), *found.closed), connections=there)

    async def _drain(self) -> None:
        email = config.current().email
        places = min(email.connections * _WAITING, _MAX_PLACES) if email.transport == DIRECT else email.connections
        self._destinations = destinations = MxConnections(
            self.gate, self.pace, self.reach, asyncio.Semaphore(email.connections)
        )
        self._loop, self._look = asyncio.get_running_loop(), asyncio.Event()
        feeder, clerk = ReadyQueue(self.gate, self.pace, places * _AHEAD, self.halted), OutcomeWriter(self.process)
        tasks: set[asyncio.Task[None]] = set()
        try:
            await self._remember()
            while not self.stopping.is_set():
                self._look.clear()
                self._woken.clear()
                feeder.more()
                for _ in range(places - len(tasks)):
                    self._begin(self._look, tasks, feeder, clerk)
                # Places that found nothing have ended and stay so until somebody rings; the busy ones go on
                await self._look.wait()
                if not tasks and not self._woken.is_set():
                    return
            feeder.more()
            await self._stop(tasks)
        finally:
            self._loop = self._look = None
            await destinations.pool.close()
            # Where nothing can be written, the end of the service does not wait for it
            await clerk.settled(_LAST_SECONDS if self.stopping.is_set() else None)
            await asyncio.get_running_loop().run_in_executor(None, feeder.close)

    async def _remember(self) -> None:
        """Count what left in the last hour before this process began, once, where a limit of an hour is kept."""
        if not self._remembers:
            since = clock.now_ms() - _HOUR_MS
            self.pace.remember(await asyncio.get_running_loop().run_in_executor(None, _handed_over, since))
            self._remembers = True

    def _begin(
        self, look: asyncio.Event, tasks: set["asyncio.Task[None]"], feeder: ReadyQueue, clerk: OutcomeWriter
    ) -> None:
        def ended(task: "asyncio.Task[None]") -> None:
            tasks.discard(task)
            if not tasks:
                look.set()

        task = asyncio.create_task(self._work(feeder, clerk))
        tasks.add(task)
        task.add_done_callback(ended)

    async def _stop(self, tasks: set["asyncio.Task[None]"]) -> None:
        """Let open transactions finish; what hangs is left as it is and found in doubt by the next process."""
        for place in [*self._places]:
            place.hurry()
        if tasks:
            _, late = await asyncio.wait({*tasks}, timeout=_STOP_SECONDS)
            for task in late:
                task.cancel()
            if late:
                # What they know by then is stored
                await asyncio.wait(late, timeout=_LAST_SECONDS)

    async def _work(self, feeder: ReadyQueue, clerk: OutcomeWriter) -> None:
        assert self._destinations is not None
        place = DirectWorker(self.gate, self.pace, feeder, clerk, self.halted, self._destinations)
        self._places.add(place)
        try:
            await place.run()
        except Unavailable as error:
            log.error("sending stops: %s", error)
        except Exception:
            log.exception("a sending place ended")
        except asyncio.CancelledError:
            place.abort()
            raise
        finally:
            await place.close()
            self._places.discard(place)


def _handed_over(since: int) -> list[tuple[int, str, str | None, str]]:
    try:
        return queue.handed_over(since)
    finally:
        close_database()
