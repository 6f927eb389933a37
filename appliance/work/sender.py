"""Sends what is due, for as long as there is something: as many conversations as are allowed, on one event loop.

Each conversation has one message in hand at a time. Its outcome and the mark of the next share one commit, and the
next envelope is on its way meanwhile; a body leaves only after its mark is on disk. An outcome that is known is kept
until it is stored.
"""

import asyncio
import logging
import threading
import time

from appliance import config
from appliance.config import seconds
from appliance.errors import Unavailable
from appliance.work.clerk import Clerk
from appliance.work.feeder import Feeder
from appliance.work.gate import Gate, Shut
from appliance.work.place import Place

log = logging.getLogger("campanero.sender")
# Ready messages for each conversation; more would only wait
_AHEAD = 4
# A conversation that hangs longer than a stop may last does not keep the process from ending
_STOP_SECONDS = 25.0


class Sender:
    """The sending side of one process; `drain` runs in one thread at a time."""

    def __init__(self, process: str) -> None:
        self.process = process
        self.stopping = threading.Event()
        self.gate = Gate(seconds(config.current().email.probe_after))
        self._woken = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._nudge: asyncio.Event | None = None
        rate = config.current().email.rate_per_second
        self._gap = 1 / rate if rate else 0.0
        self._next_turn = 0.0

    def wake(self) -> None:
        """Say that there may be more to send; a running drain puts idle places to work."""
        self._woken.set()
        loop, nudge = self._loop, self._nudge
        if loop is not None and nudge is not None:
            try:
                loop.call_soon_threadsafe(nudge.set)
            except RuntimeError:
                log.debug("the drain has just ended")

    def drain(self) -> None:
        """Send until nothing is due. One slow conversation keeps its own place, not the others."""
        while not self.stopping.is_set():
            self._woken.clear()
            asyncio.run(self._drain())
            if not self._woken.is_set():
                return

    def shut(self) -> Shut:
        """Answer, once, what must be paused because the way out keeps refusing us."""
        return self.gate.take_shut()

    async def _drain(self) -> None:
        places = config.current().email.connections
        self._loop, self._nudge = asyncio.get_running_loop(), asyncio.Event()
        feeder, clerk = Feeder(self.gate, places * _AHEAD), Clerk(self.process)
        tasks: set[asyncio.Task[None]] = set()
        watch = asyncio.create_task(self._watch())
        nudged = asyncio.create_task(self._nudge.wait())
        try:
            while True:
                if not self.stopping.is_set():
                    feeder.more()
                    for _ in range(places - len(tasks)):
                        tasks.add(asyncio.create_task(self._work(feeder, clerk)))
                done, _ = await asyncio.wait({*tasks, nudged, watch}, return_when=asyncio.FIRST_COMPLETED)
                tasks -= done
                if watch.done():
                    await self._stop(tasks)
                    return
                if nudged.done():
                    self._nudge.clear()
                    nudged = asyncio.create_task(self._nudge.wait())
                elif not tasks:
                    return
                elif feeder.dry:
                    # Idle places stay idle until there is a nudge; the busy ones go on
                    left, _ = await asyncio.wait({*tasks, nudged, watch}, return_when=asyncio.FIRST_COMPLETED)
                    tasks -= left
        finally:
            self._loop = self._nudge = None
            for task in (watch, nudged):
                task.cancel()
            await clerk.settled()
            await asyncio.get_running_loop().run_in_executor(None, feeder.close)

    async def _watch(self) -> None:
        while not self.stopping.is_set():
            await asyncio.sleep(0.05)

    async def _stop(self, tasks: set["asyncio.Task[None]"]) -> None:
        """Let open transactions finish; what hangs is left as it is and found in doubt by the next process."""
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=_STOP_SECONDS)
            for task in late:
                task.cancel()

    async def _work(self, feeder: Feeder, clerk: Clerk) -> None:
        place = Place(self.gate, feeder, clerk, self.stopping.is_set, self._turn if self._gap else None)
        try:
            await place.run()
        except Unavailable as error:
            log.error("sending stops: %s", error)
        except Exception:
            log.exception("a sending place ended")
        finally:
            await place.close()

    async def _turn(self) -> None:
        """Wait for this place's turn under `email.rate_per_second`."""
        until = self._next_turn = max(self._next_turn + self._gap, time.monotonic())
        while (left := until - time.monotonic()) > 0 and not self.stopping.is_set():
            await asyncio.sleep(min(left, 0.2))
