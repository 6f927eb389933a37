"""Idle connections to recipients' mail servers, reused for the next message to the same servers."""

import asyncio
from collections import Counter
from typing import NamedTuple

from appliance.delivery.dialogue import Dialogue
from appliance.delivery.providers.direct import Way

# Servers part early from who says nothing; nobody gains by being parted from
_IDLE_SECONDS = 5.0
_MAX_IDLE = 50


class _Idle(NamedTuple):
    way: Way
    dialogue: Dialogue
    timer: asyncio.TimerHandle


class ConnectionPool:
    """Idle conversations, and how many are open to each group; used on one event loop."""

    def __init__(self) -> None:
        self._idle: list[_Idle] = []  # who came last stands last
        self._open: Counter[str] = Counter()  # by group: all but the idle ones, also while they begin and end
        self._goodbyes: dict[asyncio.Future[None], str] = {}

    @property
    def connections(self) -> int:
        """How many conversations wait here."""
        return len(self._idle)

    def take(self, way: Way) -> Dialogue | None:
        """Return an open conversation with these servers, if there is one."""
        for one in reversed(self._idle):
            if one.way.key == way.key:
                self._idle.remove(one)
                one.timer.cancel()
                if one.dialogue.is_open():
                    self._open[way.group] += 1
                    return one.dialogue
        return None

    async def opening(self, way: Way, most: int) -> None:
        """Make room for one more conversation with a group, of which there may be so many, and count it."""
        while True:
            idle = [one for one in self._idle if one.way.group == way.group]
            if len(idle) + self._open[way.group] < most:
                break
            if idle:
                self._part(idle[0])
            leaving = [task for task, group in self._goodbyes.items() if group == way.group]
            if not leaving:
                break
            await asyncio.wait(leaving, return_when=asyncio.FIRST_COMPLETED)
        self._open[way.group] += 1

    def closed(self, way: Way) -> None:
        """Forget a conversation that did not come about, or was hung up."""
        self._open[way.group] -= 1
        if self._open[way.group] <= 0:
            del self._open[way.group]

    def give(self, way: Way, dialogue: Dialogue) -> None:
        """Keep a conversation for the next message, for a while."""
        self.closed(way)
        if len(self._idle) >= _MAX_IDLE:
            self._part(self._idle[0])
        timer = asyncio.get_running_loop().call_later(_IDLE_SECONDS, self._late, dialogue)
        self._idle.append(_Idle(way, dialogue, timer))

    def spare(self, group: str) -> None:
        """End what is idle with a group that asked for less."""
        for one in [one for one in self._idle if one.way.group == group]:
            self._part(one)

    def _late(self, dialogue: Dialogue) -> None:
        for one in [one for one in self._idle if one.dialogue is dialogue]:
            self._part(one)

    def _part(self, one: _Idle) -> None:
        self._idle.remove(one)
        one.timer.cancel()
        self._open[one.way.group] += 1
        self.end(one.way, one.dialogue)

    def end(self, way: Way, dialogue: Dialogue) -> None:
        """Say goodbye while others go on; it is open until that is said."""
        task = asyncio.ensure_future(dialogue.close())
        self._goodbyes[task] = way.group

        def ended(_: "asyncio.Future[None]") -> None:
            del self._goodbyes[task]
            self.closed(way)

        task.add_done_callback(ended)

    async def close(self) -> None:
        """End all conversations."""
        for one in [*self._idle]:
            self._part(one)
        if self._goodbyes:
            await asyncio.wait({*self._goodbyes})
