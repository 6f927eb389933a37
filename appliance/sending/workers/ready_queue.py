"""Queue of rendered messages, filled ahead of the workers by a thread of its own.

Nothing in it is claimed yet: if the process dies, these messages are simply rendered again.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from appliance.core import clock
from appliance.sending.messages import warm_up
from appliance.sending.messages.ledger import Claim
from appliance.sending.messages.queue_order import Line, Names
from appliance.sending.workers.circuit_breaker import CircuitBreaker
from appliance.sending.workers.rate_limits import ALL, RateLimits
from appliance.sending.workers.rendering import RenderedMessage, Renderer
from appliance.storage import work
from appliance.storage.open import close_database

# What waited longer is read again, so that it says what is true by now
_STALE_SECONDS = 5.0
# Nobody waits longer for a limit without looking what else there is
_LOOK_SECONDS = 5.0
_MIN_SECONDS = 0.001
# Nobody who comes meanwhile waits longer for what is being made ready; the rest of it is looked at again
_FILL_SECONDS = 0.25
# What was stepped over and could not be made ready though its group has room (its sender has none) is left for this
_BARREN_SECONDS = 1.0


class ReadyQueue:
    """Keeps some messages ready; used on one event loop."""

    def __init__(
        self, gate: CircuitBreaker, pace: RateLimits, ahead: int, is_halted: Callable[[], bool], channel: str = "email",
        names: Names | None = None,
    ) -> None:  # fmt: skip
        self._gate, self._pace, self._is_halted = gate, pace, is_halted
        self._ahead = pace.most_ahead(ahead)
        self._single: deque[RenderedMessage] = deque()
        self._ready: deque[RenderedMessage] = deque()
        self._aside: dict[str, deque[RenderedMessage]] = {}  # ready, and waiting for a limit of this name
        self._single_aside: dict[str, deque[RenderedMessage]] = {}
        self._taken: set[int] = set()
        self._senders: dict[int, str] = {}  # of campaigns
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="composer")
        self._maker = Renderer()
        self._line = Line(channel, names)
        self._parked: set[str] = set()  # groups of which rows were stepped over
        self._filling: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()
        self._stirred = asyncio.Event()
        self._asked = False
        self._barren_until = 0.0
        self.dry = False

    async def take(self) -> RenderedMessage | None:
        """Return the next message, once it may go; None if nothing is due."""
        found = None if self._is_halted() else self.poll()
        while found is None and not self._is_halted():
            if not self._waits_for_limits():
                # Whoever waits for the same goes on in the same round of the loop, and shares a commit
                if not await self._comes():
                    return None
                found = self.poll()
                continue
            async with self._turn:  # one after the other, so that a limit that opens wakes one place and not all
                if self._is_halted():
                    return None
                self._stirred.clear()
                found = self.poll()
                if found is None and self._waits_for_limits():
                    await self._opened()
        return found

    async def provider(self) -> str | None:
        """Return the transport of the next message, without taking it; None if nothing is due."""
        while not self._is_halted():
            for queue in self._queues():
                found = self._fresh(queue)
                if found is not None:
                    queue.appendleft(found)
                    return found.claim.provider
            self._see_to_more()
            if self._waits_for_limits():
                await self._opened()
            elif not await self._comes():
                return None
        return None

    def poll(self, behind: bool = False) -> RenderedMessage | None:
        """Return the next message if one may go at this moment, and see to more.

        One that shall follow `behind` another leaves later than it is answered, so it must not keep to any limit.
        """
        found = self._next(behind)
        self._see_to_more()
        return found

    def _queues(self) -> tuple[deque[RenderedMessage], ...]:
        return (self._single, *self._single_aside.values(), *self._aside.values(), self._ready)

    def _see_to_more(self) -> None:
        if self._filling is None and (self._asked or (len(self._ready) < self._ahead // 2 and self._finds_more())):
            self._asked = False
            self._filling = asyncio.create_task(self._filled())

    def _finds_more(self) -> bool:
        """Return whether there may be something to prepare: rows not read yet, or skipped ones that fit now."""
        if not self.dry or not self._parked:
            return not self.dry
        if self._is_barren() > 0:
            return False
        room = self._pace.room(self._aside)
        return any(room.get(group, 1) > 0 for group in self._parked)

    def _is_barren(self) -> float:
        """Return for how long skipped rows are not looked at again."""
        return self._barren_until - asyncio.get_running_loop().time()

    def _waits_for_limits(self) -> bool:
        """Return whether something is ready, or could be made ready, that may not go now."""
        return bool(self._ready or (self._filling is None and (self._parked or any(self._queues()))))

    async def _comes(self) -> bool:
        """Wait for what is being made ready; returns whether anything is."""
        if self._filling is None:
            return False
        await asyncio.shield(self._filling)
        return True

    def _next(self, behind: bool) -> RenderedMessage | None:
        for queue in self._queues():
            while queue:
                found = self._fresh(queue)
                if found is None:
                    break
                if found.prepared is None or self._pace.is_free:
                    return found
                sender = found.prepared.sender
                if behind and not self._pace.is_unlimited(found.claim, sender):
                    queue.appendleft(found)
                    return None
                blocked = self._pace.admit(found.claim, sender)
                if blocked is None:
                    if queue is not self._single and queue is not self._ready:
                        self.dry = False  # there is room for one more of those that wait for this limit
                    return found
                if blocked.name == ALL:
                    queue.appendleft(found)
                    return None
                if not self._set_aside(found, blocked.name, queue):
                    break
        return None

    def _fresh(self, queue: deque[RenderedMessage]) -> RenderedMessage | None:
        """Take the first of a queue that may still go; the others are read again when their time comes."""
        closed, held = self._gate.closed(), self._gate.held()
        oldest = asyncio.get_running_loop().time() - _STALE_SECONDS
        while queue:
            found = queue.popleft()
            claim = found.claim
            if claim.provider not in closed and claim.campaign_id not in held and found.since > oldest:
                return found
            self._leave(claim)
            self.dry = False
        return None

    def _set_aside(self, ready: RenderedMessage, name: str, queue: deque[RenderedMessage]) -> bool:
        """Keep a message that waits for a limit; returns whether the next of its queue may be looked at."""
        singly = ready.claim.is_single
        aside = (self._single_aside if singly else self._aside).setdefault(name, deque())
        if queue is aside:
            aside.appendleft(ready)
            return False
        if len(aside) < self._ahead:
            aside.append(ready)
        else:
            self._leave(ready.claim)
        return True

    def put_back(self, ready: RenderedMessage) -> None:
        """Take a message back that nobody could hand over; it is the next one again."""
        self._pace.end(ready.claim.id, used=False)
        (self._single if ready.claim.is_single else self._ready).appendleft(ready)
        self._stirred.set()

    def done(self, claim: Claim, marked: bool) -> None:
        """Forget a message whose mark was asked for: the ledger alone says what is to be done with it."""
        if marked:
            self._taken.discard(claim.id)
        else:
            self._pace.end(claim.id, used=False)
            self._leave(claim)
            self._stirred.set()

    def ended(self, claim: Claim) -> None:
        """Let the next go whom this one kept waiting."""
        self._pace.end(claim.id)
        self._stirred.set()

    def _leave(self, claim: Claim) -> None:
        self._taken.discard(claim.id)
        self._line.back(claim)

    def more(self) -> None:
        """Look again: there may be something due by now, and a single message goes before what is ready."""
        if self.dry:
            self._maker.forget()  # what it keeps was true when sending began
        self.dry, self._barren_until = False, 0.0
        self._asked = True
        self._stirred.set()

    async def _opened(self) -> None:
        """Wait until something may have changed: a limit opens, a message ended, or somebody wrote rows."""
        aside = [*self._aside.items(), *self._single_aside.items()]
        names = {name for name, queue in aside if queue}
        others, barren = bool(self._ready or self._single), self._is_barren() if self._parked else 0.0
        names |= self._parked if barren <= 0 else set()
        wait = self._pace.opens_at(names, others) - clock.steady() if names or others or barren <= 0 else barren
        wait = min(wait, barren) if barren > 0 else wait
        if wait > _LOOK_SECONDS:
            self.dry = False
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stirred.wait(), min(max(wait, _MIN_SECONDS), _LOOK_SECONDS))

    async def _filled(self) -> None:
        try:
            closed = (*self._gate.closed(), *self._pace.closed())
            room = None if self._pace.is_free else self._pace.room(self._aside)
            most = self._ahead if len(self._ready) < self._ahead // 2 else 0
            made = await asyncio.get_running_loop().run_in_executor(
                self._thread,
                self._make,
                most,
                frozenset(self._taken),
                closed,
                self._held(),
                room,
                len(self._single) + sum(map(len, self._single_aside.values())),
            )
            self._taken.update(one.claim.id for one in made)
            now = asyncio.get_running_loop().time()
            for one in made:
                self._keep(one._replace(since=now))
            self._parked = self._line.waiting()
            self.dry = not made and not self._line.has_more and most > 0
            in_vain = self.dry and any((room or {}).get(group, 1) > 0 for group in self._parked)
            self._barren_until = now + _BARREN_SECONDS if in_vain else 0.0
        finally:
            self._filling = None
            self._stirred.set()

    def _keep(self, ready: RenderedMessage) -> None:
        if ready.claim.is_single:
            self._single.append(ready)
            return
        self._ready.append(ready)
        campaign_id = ready.claim.campaign_id
        name = self._pace.named(ready.prepared.sender) if ready.prepared is not None else None
        if name is not None and campaign_id is not None:
            self._senders[campaign_id] = name

    def _held(self) -> tuple[int, ...]:
        """Return the campaigns of which no more is made ready now: enough of it waits for its sender's limit."""
        full = {name for name, queue in self._aside.items() if len(queue) >= self._ahead}
        return (*self._gate.held(), *(one for one, name in self._senders.items() if name in full))

    def _make(
        self, most: int, taken: frozenset[int], closed: tuple[str, ...], held: tuple[int, ...],
        room: dict[str, int] | None, waiting: int = 0,
    ) -> list[RenderedMessage]:  # fmt: skip
        now = clock.now_ms()
        found = self._line.candidates(
            most, taken, closed, held, room, max(0, self._ahead - waiting), self._maker.shares.used
        )
        # A message has the Date of its first attempt, so that a repeat is the same message
        made = self._maker.make([row._replace(dated_at=row.dated_at or now) for row in found], _FILL_SECONDS)
        if len(made) < len(found):
            ready = {one.claim.id for one in made}
            for row in found:
                if row.id not in ready:
                    self._line.back(row)
        for one in made:
            new = self._pace.lacks_quota(one.claim, one.prepared.sender) if one.prepared is not None else None
            if new is not None:
                self._pace.allot(work.write(warm_up.today, new))
        return made

    def close(self) -> None:
        """End the threads."""
        self._thread.submit(close_database)
        self._thread.shutdown()
        self._maker.close()
