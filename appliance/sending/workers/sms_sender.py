"""Sends SMS that are due, with as many requests at a time as allowed, on an event loop of its own.

Connections to the provider stay open between messages. The loop sleeps until it is told that something may be due.
"""

import asyncio
import contextlib
import logging
import threading

from appliance.core import clock, send_status, wake_ups
from appliance.core.errors import Unavailable
from appliance.core.send_status import SendStatus
from appliance.sending.messages import queue, queue_order
from appliance.sending.messages.ledger import Claim
from appliance.sending.messages.sms_senders import limit_of, sender_to
from appliance.sending.sms import client, numbers
from appliance.sending.workers.circuit_breaker import CircuitBreaker, StopSwitch
from appliance.sending.workers.outcome_writer import OutcomeWriter
from appliance.sending.workers.ready_queue import ReadyQueue
from appliance.sending.workers.sms_rate_limits import SmsRateLimits
from appliance.sending.workers.sms_worker import Shared, SmsWorker
from appliance.settings import config
from appliance.settings.config import seconds
from appliance.storage.open import close_database, scalar

log = logging.getLogger("campanero.sender")
CHANNEL = "sms"
# Ready messages for each request at once; more would only wait
_AHEAD = 4
# A request that hangs longer than a stop may last does not keep the process from ending
_STOP_SECONDS = 22.0
_LAST_SECONDS = 2.0
_AGAIN_SECONDS = 1.0
# Connections that nothing leaves by for so long are closed
_IDLE_SECONDS = 10.0
_HOUR_MS = 3_600_000


class SmsSender:
    """The sender of SMS of one process; its thread begins with the first one that is due."""

    def __init__(self, process: str) -> None:
        self.process = process
        self.halted = StopSwitch()
        sms = config.current().sms
        self.gate = CircuitBreaker(seconds(sms.probe_after))
        self.pace = SmsRateLimits(sms)
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._look: asyncio.Event | None = None
        self._woken = threading.Event()
        self._at_work = 0
        self._remembers = not self.pace.counts_hours
        send_status.report(CHANNEL, self.standing)

    def is_due(self) -> bool:
        """Return whether an SMS may go now."""
        return not self.halted() and queue_order.is_due((*self.gate.closed(), *self.pace.closed()), CHANNEL)

    def wake(self) -> None:
        """Say that there may be more to send."""
        with self._lock:
            self._woken.set()
            if self._thread is None and not self.halted.stopping.is_set():
                self._thread = threading.Thread(target=self._live, name="texter")
                self._thread.start()
            if self._loop is not None and self._look is not None:
                self._loop.call_soon_threadsafe(self._look.set)

    def stop(self) -> None:
        """Let open requests finish and start nothing new."""
        self.halted.stopping.set()
        self.wake()

    def join(self, timeout: float) -> None:
        """Wait until all has ended."""
        if self._thread is not None:
            self._thread.join(timeout)

    def standing(self) -> SendStatus:
        """Return what is closed, spared or used up, and how many requests are open; from any thread."""
        return self.pace.standing()._replace(closed=self.gate.standing(), connections=self._at_work)

    def _live(self) -> None:
        while not self.halted.stopping.is_set():
            try:
                with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
                    runner.run(self._tend())
            except Exception:
                log.exception("the sender of SMS begins again")
                self.halted.stopping.wait(_AGAIN_SECONDS)
        close_database()

    async def _tend(self) -> None:
        places = config.current().sms.connections
        loop, look = asyncio.get_running_loop(), asyncio.Event()
        with self._lock:
            self._loop, self._look = loop, look
        feeder = ReadyQueue(self.gate, self.pace, places * _AHEAD, self.halted, CHANNEL, Senders())
        shared = Shared(self.gate, self.pace, feeder, OutcomeWriter(self.process), self.halted, places)
        tasks: set[asyncio.Task[None]] = set()
        try:
            await self._remember()
            while not self.halted.stopping.is_set():
                look.clear()
                self._woken.clear()
                feeder.more()
                for _ in range(places - len(tasks)):
                    self._begin(look, tasks, shared)
                # Places that found nothing have ended and stay so until somebody rings; the busy ones go on
                await look.wait()
                if not tasks and not self._woken.is_set():
                    wake_ups.ring("campaigns")  # one may be complete
                    await self._woken_up(look)
        finally:
            feeder.more()
            with self._lock:
                self._loop = self._look = None
            await _ended(tasks)
            # Where nothing can be written, the end of the service does not wait for it
            await shared.clerk.settled(_LAST_SECONDS if self.halted.stopping.is_set() else None)
            await client.close()
            await loop.run_in_executor(None, feeder.close)

    async def _woken_up(self, look: asyncio.Event) -> None:
        """Sleep until there may be more to send, after a while without a connection."""
        look.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_IDLE_SECONDS):
                while not self._woken.is_set():
                    await look.wait()
                    look.clear()
        if not self._woken.is_set():
            await client.close()
        while not self._woken.is_set():
            await look.wait()
            look.clear()

    async def _remember(self) -> None:
        """Count what left in the last hour before this process began, once, where a limit of an hour is kept."""
        if not self._remembers:
            since = clock.now_ms() - _HOUR_MS
            self.pace.remember(await asyncio.get_running_loop().run_in_executor(None, _handed_over, since))
            self._remembers = True

    def _begin(self, look: asyncio.Event, tasks: set["asyncio.Task[None]"], shared: Shared) -> None:
        def ended(task: "asyncio.Task[None]") -> None:
            tasks.discard(task)
            self._at_work = len(tasks)
            if not tasks:
                look.set()

        task = asyncio.create_task(_work(shared))
        tasks.add(task)
        self._at_work = len(tasks)
        task.add_done_callback(ended)


class Senders:
    """From whom SMS will be, before they are made ready: by that they keep to limits. Used by one thread."""

    def __init__(self) -> None:
        self._own: dict[int, tuple[float, str | None]] = {}

    def __call__(self, row: Claim) -> tuple[str, ...]:
        """Return the name of the limit of a row."""
        read_at, own = self._own.get(row.account_id, (float("-inf"), None))
        if clock.steady() > read_at + _AGAIN_SECONDS:
            own = scalar("SELECT sms_from FROM account WHERE id = ?", (row.account_id,))
            self._own[row.account_id] = (clock.steady(), own)
        return (limit_of(sender_to(own, numbers.look(row.recipient_key or "").country)),)


async def _work(shared: Shared) -> None:
    try:
        await SmsWorker(shared).run()
    except Unavailable as error:
        log.error("sending stops: %s", error)
    except Exception:
        log.exception("a sending place ended")


async def _ended(tasks: set["asyncio.Task[None]"]) -> None:
    """Let open requests finish; what hangs is left as it is and found in doubt by the next process."""
    if not tasks:
        return
    _, late = await asyncio.wait({*tasks}, timeout=_STOP_SECONDS)
    for task in late:
        task.cancel()
    if late:
        # What they know by then is stored
        await asyncio.wait(late, timeout=_LAST_SECONDS)


def _handed_over(since: int) -> list[tuple[int, str, str | None, str]]:
    try:
        return queue.handed_over(since, CHANNEL)
    finally:
        close_database()
