"""Messages made ready ahead of the conversations that carry them: read and rendered in a thread of their own.

What is ready here is in nobody's hand yet: nothing of it is marked, and a process that dies has promised nothing.
"""

import asyncio
import logging
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from appliance import clock
from appliance.db.open import close_database
from appliance.designs import render
from appliance.designs.merge import MergeError
from appliance.errors import Permanent
from appliance.messages import outbox, repeats
from appliance.messages.ledger import Claim, Outcome, Prepared
from appliance.messages.prepare import Workshop
from appliance.work.gate import Gate

log = logging.getLogger("campanero.sender")
# What waited longer is read again, so that it says what is true by now
_STALE_SECONDS = 5.0


class Ready(NamedTuple):
    """A message that can be handed over, or that cannot be made: then `fault` is what became of it."""

    claim: Claim
    prepared: Prepared | None
    fault: Outcome | None = None
    since: float = 0.0


class Feeder:
    """Keeps some messages ready; used on one event loop."""

    def __init__(self, gate: Gate, ahead: int) -> None:
        self._gate, self._ahead = gate, ahead
        self._ready: deque[Ready] = deque()
        self._taken: set[int] = set()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="composer")
        self._thread.submit(render.warm)
        self._workshop = Workshop()
        self._filling: asyncio.Task[None] | None = None
        self.dry = False

    async def take(self) -> Ready | None:
        """Answer the next message; None if nothing is due."""
        while (found := self.poll()) is None:
            if self.dry and self._filling is None:
                return None
            await self._fill()
        return found

    def poll(self) -> Ready | None:
        """Answer the next message if one is ready at this moment, and see to more."""
        found = self._next()
        if len(self._ready) < self._ahead // 2 and self._filling is None and not self.dry:
            self._start()
        return found

    def _next(self) -> Ready | None:
        closed, held = (self._gate.closed(), self._gate.held()) if self._ready else ((), ())
        oldest = asyncio.get_running_loop().time() - _STALE_SECONDS
        while self._ready:
            found = self._ready.popleft()
            claim = found.claim
            if claim.provider not in closed and claim.campaign_id not in held and found.since > oldest:
                return found
            self.done(claim.id)
            self.dry = False
        return None

    def put_back(self, ready: Ready) -> None:
        """Take a message back that nobody could hand over; it is the next one again."""
        self._ready.appendleft(ready)

    def done(self, number: int) -> None:
        """Forget a message that is in nobody's hand: the ledger alone says what is to be done with it."""
        self._taken.discard(number)

    def more(self) -> None:
        """Look again: there may be something due by now."""
        if self.dry:
            self._workshop = Workshop()  # what it keeps was true when sending began
        self.dry = False

    async def _fill(self) -> None:
        if self._filling is None:
            self._start()
        assert self._filling is not None
        await asyncio.shield(self._filling)

    def _start(self) -> None:
        self._filling = asyncio.create_task(self._filled())

    async def _filled(self) -> None:
        try:
            made = await asyncio.get_running_loop().run_in_executor(
                self._thread, self._make, frozenset(self._taken), self._gate.closed(), self._gate.held()
            )
            self._taken.update(one.claim.id for one in made)
            now = asyncio.get_running_loop().time()
            self._ready.extend(one._replace(since=now) for one in made)
            self.dry = not made
        finally:
            self._filling = None

    def _make(self, taken: frozenset[int], closed: tuple[str, ...], held: tuple[int, ...]) -> list[Ready]:
        now = clock.now_ms()
        found = outbox.candidates(self._ahead, taken, closed, held)
        self._workshop.fetch(found)
        # A message has the Date of its first attempt, so that a repeat is the same message
        return [self._one(row._replace(dated_at=row.dated_at or now)) for row in found]

    def _one(self, claim: Claim) -> Ready:
        try:
            prepared = (repeats.load(claim.id) if claim.doubts else None) or self._workshop.prepare(claim)
            return Ready(claim._replace(digest=repeats.digest(prepared)), prepared)
        except (MergeError, ValueError) as error:
            words = error.words() if isinstance(error, MergeError) else str(error)
        except Exception as error:
            # Whatever is wrong with this one, the others go out
            log.exception("message %s cannot be made", claim.id)
            words = f"{type(error).__name__}: {error}"
        return Ready(claim, None, Outcome(claim, Permanent(words), skip_reason="render_error"))

    def close(self) -> None:
        """End the thread."""
        self._thread.submit(close_database)
        self._thread.shutdown()
