"""Sends email that is due, with as many connections as allowed, on one event loop.

Each connection carries one message at a time. The outcome of a message and the claim of the next share one commit. The
next envelope is sent meanwhile, but a body is sent only after its claim is on disk. A known outcome is kept until it is
stored.
"""

import asyncio
import logging
import threading
from collections.abc import Callable

from appliance.core import clock, send_status
from appliance.core.errors import DeliveryError, SenderRefused, Unavailable
from appliance.core.send_status import SendStatus
from appliance.sending.delivery.dialogue import Dialogue
from appliance.sending.delivery.groups import domain_of
from appliance.sending.delivery.routing import DIRECT
from appliance.sending.messages import queue
from appliance.sending.messages.ledger import Outcome
from appliance.sending.workers.circuit_breaker import CircuitBreaker, StopSwitch
from appliance.sending.workers.email_rate_limits import EmailRateLimits
from appliance.sending.workers.mx_connections import Found, MxConnections, UnreachableHosts
from appliance.sending.workers.outcome_writer import OutcomeWriter
from appliance.sending.workers.ready_queue import ReadyQueue
from appliance.sending.workers.rendering import RenderedMessage
from appliance.sending.workers.smtp_worker import SmtpWorker
from appliance.settings import config
from appliance.settings.config import seconds
from appliance.storage.open import close_database

# SMTP worker for direct delivery: the recipient's servers are looked up for each message.


class DirectWorker(SmtpWorker):
    """Looks up and connects with a message in hand that nobody has marked, so that a slow server costs a place only.

    Of the marked ones there are never more than there may be transactions, whatever the number of places (P3).
    """

    def __init__(
        self, gate: CircuitBreaker, pace: EmailRateLimits, feeder: ReadyQueue, clerk: OutcomeWriter,
        is_halted: Callable[[], bool], destinations: MxConnections,
    ) -> None:  # fmt: skip
        super().__init__(gate, pace, feeder, clerk, is_halted)
        self._destinations = destinations
        self._finding: asyncio.Task[Found] | None = None

    async def _turn(self) -> None:
        ready = self._next
        if ready is None or ready.prepared is None or ready.claim.provider != DIRECT:
            await super()._turn()
            return
        await self._store()
        self._next = None
        self._finding = asyncio.ensure_future(self._destinations.find(ready.claim))
        try:
            found = await self._finding
        except BaseException:
            self._feeder.done(ready.claim, marked=False)
            if self._finding.cancelled() and self._is_halted():
                return
            self._finding.cancel()
            raise
        finally:
            self._finding = None
        async with self._destinations.transactions:
            await self._handed(ready, found)

    def hurry(self) -> None:
        """Stop waiting for a server to answer: nothing new begins any more."""
        if self._finding is not None:
            self._finding.cancel()

    async def _handed(self, ready: RenderedMessage, found: Found) -> None:
        """Take a message to its outcome, and write that down: others may begin only then."""
        error: DeliveryError | None = None
        if found.dialogue is not None:
            self._open[DIRECT] = found.dialogue
        try:
            if found.elsewhere or self._is_halted() or (found.closed is None and not self._may_go(ready)):
                self._feeder.put_back(ready)
                return
            try:
                await self._one(ready, found.dialogue, found.closed)
                error = self._known.error if self._known is not None else None
                if error is None and self._known is not None:
                    self._destinations.reach.accepted(domain_of(ready.sender))
                await self._store()
            finally:
                self._feeder.ended(ready.claim)
        finally:
            dialogue = self._open.pop(DIRECT, None)
            if found.way is not None:
                self._destinations.done(found.way, dialogue, error)

    async def _through(self, ready: RenderedMessage, dialogue: Dialogue | None, outcome: Outcome) -> None:
        if ready.claim.provider == DIRECT:
            if isinstance(outcome.error, SenderRefused):
                outcome.error = self._destinations.refused(outcome.error, outcome.claim, ready.sender)
            if dialogue is not None:
                outcome.via = {"mx": dialogue.server.host, "tls": dialogue.encryption}
        await super()._through(ready, dialogue, outcome)

    async def _ahead(self, provider: str) -> None:
        if provider != DIRECT:
            await super()._ahead(provider)


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
