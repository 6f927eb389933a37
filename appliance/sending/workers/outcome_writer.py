"""Group commit of outcomes: what is handed in during one transaction goes together into the next.

At most one transaction is under way. There is no timer.
"""

import asyncio
import contextlib
import logging
from concurrent.futures import Future
from typing import NamedTuple

from appliance.core.errors import Unavailable
from appliance.inbound.feedback import receipts
from appliance.sending.messages.ledger import Claim, Outcome
from appliance.storage import work

log = logging.getLogger("campanero.sender")
_AGAIN_SECONDS = 1.0


class _Handed(NamedTuple):
    outcome: Outcome | None
    claim: Claim | None
    answer: "asyncio.Future[bool]"


class OutcomeWriter:
    """Hands outcomes and marks to the writer; used on one event loop."""

    def __init__(self, process: str) -> None:
        self._process = process
        self._waiting: list[_Handed] = []
        self._apart: list[_Handed] = []  # of a batch that failed for a fault of one of them
        self._busy = False

    def step(self, outcome: Outcome | None, claim: Claim | None) -> "asyncio.Future[bool]":
        """Write an outcome and mark a message; answers, once both are on disk, whether the message may go out now.

        An outcome is offered until it is stored. Raises Unavailable for a mark alone, or when the service ends.
        """
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Handed(outcome, claim, answer))
        if not self._busy:
            self._busy = True
            # Whoever else is ready in this round of the loop comes along
            asyncio.get_running_loop().call_soon(self._hand_over)
        return answer

    async def settled(self, seconds: float | None = None) -> None:
        """Wait until all that is known is stored, or never will be; not longer than that, if it is said."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._busy and not work.is_stopped():
                    await asyncio.sleep(0.02)

    def _hand_over(self) -> None:
        if self._apart:
            batch = [self._apart.pop(0)]
        else:
            batch, self._waiting = self._waiting, []
        if not batch:
            self._busy = False
            return
        loop = asyncio.get_running_loop()
        found = [one.outcome for one in batch if one.outcome is not None]
        marks = [one.claim for one in batch if one.claim is not None]
        try:
            hand_in = work.record if found else work.submit
            future = hand_in(receipts.step, found, marks, self._process)
        except Unavailable as error:
            self._failed(batch, error)
            return

        def done(finished: "Future[set[int]]") -> None:
            loop.call_soon_threadsafe(self._answered, batch, finished)

        future.add_done_callback(done)

    def _answered(self, batch: list[_Handed], finished: "Future[set[int]]") -> None:
        error = finished.exception()
        if isinstance(error, Unavailable):
            self._failed(batch, error)
            return
        if error is not None and len(batch) > 1:
            # Nothing of it happened: a fault of one is not for its neighbours to bear
            self._apart += batch
        elif error is not None:
            log.error("what became of a message could not be written", exc_info=error)
            self._tell(batch, error)
        else:
            marked = finished.result()
            for one in batch:
                if not one.answer.done():
                    one.answer.set_result(one.claim is not None and one.claim.id in marked)
        self._hand_over()

    def _failed(self, batch: list[_Handed], error: Exception) -> None:
        """Tell those who only wanted a mark; what is known is kept and offered again."""
        kept = [one._replace(claim=None) for one in batch if one.outcome is not None]
        lost = [one for one in batch if one.outcome is None]
        if work.is_stopped():
            lost, kept = batch, []
        self._tell(lost, error)
        self._waiting = kept + self._waiting
        log.debug("sending waits: %s", error)  # said once already, by the storage
        asyncio.get_running_loop().call_later(_AGAIN_SECONDS, self._hand_over)

    @staticmethod
    def _tell(batch: list[_Handed], error: BaseException) -> None:
        for one in batch:
            if not one.answer.done():
                one.answer.set_exception(error)
                one.answer.exception()
