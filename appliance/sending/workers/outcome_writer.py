"""Write outcomes and claims of many workers in one transaction (group commit).

Only one transaction is in progress at a time. Entries that arrive meanwhile share the next transaction, which begins
as soon as there are `batch_size` entries, or a millisecond after the first. A commit costs much more
than an entry, and this millisecond does not delay a message that is claimed ahead. Accepted emails are logged
(`messages/queue.py`) and settled some tenths of a second later, or by the next other write.
"""

import asyncio
import contextlib
import logging
from collections.abc import Generator
from concurrent.futures import Future
from typing import Any, NamedTuple

from appliance.core.errors import OutcomeLost, Postponed, RateLimited, Unavailable
from appliance.sending.messages import queue
from appliance.sending.messages.ledger import LedgerRow, Outcome
from appliance.storage import transactions

log = logging.getLogger("campanero.sender")
_RETRY_SECONDS = 1.0
_MAX_DELAY_SECONDS = 0.001
# Logged claims and acceptances are shown in the ledger after this time, or when there are this many.
_SETTLE_SECONDS = 0.1
_MAX_LOGGED = 500


class PendingWrite:
    """The pending write of an outcome and a claim.

    Await it to get whether the message is claimed; it raises the error of a failed write. A task that is cancelled
    while it waits does not cancel the write.
    """

    __slots__ = ("_error", "_is_claimed", "_waiters")

    def __init__(self) -> None:
        self._is_claimed: bool | None = None
        self._error: BaseException | None = None
        self._waiters: list[asyncio.Future[None]] = []

    def __await__(self) -> Generator[Any, None, bool]:
        """Wait for the end of the write."""
        if self._is_claimed is None:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            yield from waiter
        if self._error is not None:
            raise self._error
        return bool(self._is_claimed)

    def end(self, is_claimed: bool, error: BaseException | None = None) -> None:
        """Set whether the message is claimed, or the error to raise, and wake the tasks that await this write."""
        self._is_claimed, self._error = is_claimed, error
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)


class _Entry(NamedTuple):
    outcome: Outcome | None
    row_to_claim: LedgerRow | None
    writing: PendingWrite
    claim_error: BaseException | None = None  # why its claim failed, if the outcome is written alone because of that


def postpone(row: LedgerRow) -> Outcome:
    """Return the outcome of a message that was claimed and not sent."""
    return Outcome(row, Postponed("it was claimed and not sent", 0))


def _may_suppress(outcome: Outcome) -> bool:
    """Return whether recording an outcome may suppress the address of its recipient.

    A postponed message is only queued again, but one whose server asks for a lower rate may have expired.
    """
    return outcome.error is not None and (
        not isinstance(outcome.error, Postponed) or isinstance(outcome.error, RateLimited)
    )


class OutcomeWriter:
    """A buffer that passes outcomes and claims to the writer thread in batches; used on one event loop.

    A batch of `batch_size` entries begins at once; a smaller one waits up to `_MAX_DELAY_SECONDS` for more entries.
    `process` is the name of this process, which each claim stores.

    The writer is in one of four states:

    - idle: no entry waits, and `_is_busy` is False;
    - collecting: entries wait for more of them until `_delay` fires;
    - writing: a transaction is in progress, and entries wait in `_waiting` for the next;
    - interrupted: the storage is unavailable, and outcomes wait for `_RETRY_SECONDS`.

    `_is_busy` is True in all but the first. After a transaction the writer is writing again if there are enough entries
    or some to retry alone, else collecting or idle.
    """

    def __init__(self, process: str, batch_size: int) -> None:
        self._process, self._batch_size = process, batch_size
        self._waiting: list[_Entry] = []
        self._retried_alone: list[_Entry] = []  # entries of a failed batch, each in its own transaction
        self._is_busy = False
        self._delay: asyncio.TimerHandle | None = None
        self._logged = 0  # entries written since the log was settled; 0 means that it need not be settled
        self._settle_timer: asyncio.TimerHandle | None = None

    def write(self, outcome: Outcome | None, row_to_claim: LedgerRow | None) -> PendingWrite:
        """Write an outcome and claim a message; await the result, which is whether the message is claimed.

        The result is available once both are on disk; a message that is not claimed must not be sent. While the storage
        is unavailable, an outcome is retried until it is stored, and its claim is given up (result False). If the claim
        fails with another error, the outcome is stored without it; if the outcome fails, its message is set to
        `uncertain`. Awaiting raises Unavailable if there is only a claim or the service ends, or any other error of a
        claim.
        """
        loop = asyncio.get_running_loop()
        writing = PendingWrite()
        self._waiting.append(_Entry(outcome, row_to_claim, writing))
        if not self._is_busy:
            self._is_busy = True
            self._delay = loop.call_later(_MAX_DELAY_SECONDS, self._submit)
        if self._delay is not None and len(self._waiting) >= self._batch_size:
            self._delay.cancel()
            self._delay = None
            # Workers that are ready in the same iteration of the event loop join the batch.
            loop.call_soon(self._submit)
        return writing

    async def wait_for_claim(self, row: LedgerRow, claiming: PendingWrite) -> bool:
        """Return whether a message was claimed; `claiming` is from `write`.

        If the caller is cancelled meanwhile, a message that was claimed is postponed: nothing of it was sent, but
        without an outcome it would be in doubt after the next start.
        """
        try:
            return await claiming
        except asyncio.CancelledError:
            await self.give_up_claim(row, claiming)
            raise

    async def give_up_claim(self, row: LedgerRow, claiming: PendingWrite) -> bool:
        """Wait for a claim, postpone its message if it was claimed, and return whether it was.

        The outcome must not be written earlier, because the outcomes of a transaction are recorded before its claims.
        """
        try:
            was_claimed = await claiming
        except Exception as error:
            log.debug("sender: message %s was not claimed: %s", row.id, error)  # logged already
            return False
        if was_claimed:
            await self.write(postpone(row), None)
        return was_claimed

    async def flush(self) -> None:
        """Wait until all entries are written or the writer has stopped, then settle the log."""
        with contextlib.suppress(Unavailable):
            while self._is_busy and not transactions.is_stopped():
                await asyncio.sleep(0.02)
            settling = self._settle()
            if settling is not None:
                await asyncio.wrap_future(settling)

    def _settle(self) -> "Future[None] | None":
        """Settle the log if there may be anything in it; a failure is logged, and settling is tried again later."""
        if self._settle_timer is not None:
            self._settle_timer.cancel()
            self._settle_timer = None
        if not self._logged:
            return None
        loop = asyncio.get_running_loop()

        def done(finished: "Future[None]") -> None:
            if not finished.cancelled() and finished.exception() is not None:
                log.debug("sender: settling the log failed: %s", finished.exception())
                with contextlib.suppress(RuntimeError):  # the sender has ended; the next write settles the log
                    loop.call_soon_threadsafe(self._settle_later, _RETRY_SECONDS)

        try:
            settling = transactions.submit_record(queue.settle_log, is_essential=True)
        except Unavailable:
            return None  # the service ends; the next start settles the log
        self._logged = 0
        settling.add_done_callback(done)
        return settling

    def _settle_later(self, seconds: float) -> None:
        self._logged = self._logged or 1  # after a failure it is 0, although the log has rows
        if self._settle_timer is None:
            self._settle_timer = asyncio.get_running_loop().call_later(seconds, self._settle)

    def _note_logged(self, count: int) -> None:
        """Count entries that were written, and settle the log soon."""
        self._logged += count
        if self._logged >= _MAX_LOGGED:
            self._settle()
        else:
            self._settle_later(_SETTLE_SECONDS)

    def _submit_later(self) -> None:
        """Submit the next batch, or wait for more entries if there are few."""
        if self._retried_alone or not self._waiting or len(self._waiting) >= self._batch_size:
            self._submit()
        else:
            self._delay = asyncio.get_running_loop().call_later(_MAX_DELAY_SECONDS, self._submit)

    def _submit(self) -> None:
        self._delay = None
        if self._retried_alone:
            batch = [self._retried_alone.pop(0)]
        else:
            batch, self._waiting = self._waiting, []
        if not batch:
            self._is_busy = False
            return
        loop = asyncio.get_running_loop()
        outcomes = [entry.outcome for entry in batch if entry.outcome is not None]
        candidates = [entry.row_to_claim for entry in batch if entry.row_to_claim is not None]
        try:
            if any(_may_suppress(outcome) for outcome in outcomes):
                # A suppression would forbid messages to the same address that are claimed already.
                future = transactions.submit_essential(queue.record_and_claim, outcomes, candidates, self._process)
            else:
                future = transactions.submit_record(
                    queue.record_and_claim, outcomes, candidates, self._process, is_essential=bool(outcomes)
                )
        except Unavailable as error:
            self._handle_unavailable(batch, error)
            return

        def done(finished: "Future[set[int]]") -> None:
            loop.call_soon_threadsafe(self._finish, batch, finished)

        future.add_done_callback(done)

    def _finish(self, batch: list[_Entry], finished: "Future[set[int]]") -> None:
        error = finished.exception()
        if isinstance(error, Unavailable):
            self._handle_unavailable(batch, error)
            return
        if error is not None and len(batch) > 1:
            # The transaction was rolled back. Each entry is retried alone, so that one error does not fail the others.
            self._retried_alone += batch
        elif error is not None:
            [entry] = batch
            log.error("sender: storing an outcome or a claim failed", exc_info=error)
            if entry.outcome is not None and entry.row_to_claim is not None:
                # Without its outcome, a message that was accepted would be sent again after the next start.
                self._retried_alone.insert(0, entry._replace(row_to_claim=None, claim_error=error))
            elif entry.outcome is not None and not isinstance(entry.outcome.error, OutcomeLost):
                # Without any outcome, the message would stay `sending`, and be sent again after the next start.
                self._retried_alone.insert(0, entry._replace(outcome=queue.replace_lost(entry.outcome)))
            else:
                self._raise_to_callers(batch, error)
        else:
            claimed = finished.result()
            self._note_logged(len(batch))
            for entry in batch:
                if entry.claim_error is not None:
                    self._raise_to_callers([entry], entry.claim_error)
                else:
                    entry.writing.end(entry.row_to_claim is not None and entry.row_to_claim.id in claimed)
        self._submit_later()

    def _handle_unavailable(self, batch: list[_Entry], error: Exception) -> None:
        """Retry the outcomes of a batch later, without their claims, and fail the entries that have only a claim.

        If the writer has stopped, all entries fail. An entry fails with `error`.
        """
        retried = [entry._replace(row_to_claim=None) for entry in batch if entry.outcome is not None]
        failed = [entry for entry in batch if entry.outcome is None]
        if transactions.is_stopped():
            failed, retried = batch, []
        self._raise_to_callers(failed, error)
        self._waiting = retried + self._waiting
        log.debug("sender: waiting for the storage: %s", error)  # a debug line, because the storage logs the reason
        asyncio.get_running_loop().call_later(_RETRY_SECONDS, self._submit)

    @staticmethod
    def _raise_to_callers(batch: list[_Entry], error: BaseException) -> None:
        for entry in batch:
            entry.writing.end(False, error)
