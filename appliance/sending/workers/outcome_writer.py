"""Group commit: write outcomes and claims of many workers in one transaction.

At most one transaction is in progress at a time. Entries that arrive meanwhile share the next one, so no timer is
needed.
"""

import asyncio
import contextlib
import logging
from concurrent.futures import Future
from typing import NamedTuple

from appliance.core.errors import Unavailable
from appliance.inbound import delivery_reports
from appliance.sending.messages.ledger import Claim, Outcome
from appliance.storage import transactions

log = logging.getLogger("campanero.sender")
_RETRY_SECONDS = 1.0


class _Pending(NamedTuple):
    outcome: Outcome | None
    claim: Claim | None
    future: "asyncio.Future[bool]"


class OutcomeWriter:
    """A buffer that passes outcomes and claims to the writer thread in batches; used on one event loop."""

    def __init__(self, process: str) -> None:
        self._process = process
        self._waiting: list[_Pending] = []
        self._retried_alone: list[_Pending] = []  # entries of a failed batch, each in its own transaction
        self._is_busy = False

    def write(self, outcome: Outcome | None, claim: Claim | None) -> "asyncio.Future[bool]":
        """Write an outcome and claim a message; return a future that tells whether the message is claimed.

        The future is done once both are on disk; a message that is not claimed must not be sent. While the storage is
        unavailable, an outcome is retried until it is stored, and its claim is given up. The future fails with
        Unavailable if there is only a claim or the service ends, and with any other error of the transaction.
        """
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Pending(outcome, claim, future))
        if not self._is_busy:
            self._is_busy = True
            # Workers that are ready in the same iteration of the event loop join the batch.
            asyncio.get_running_loop().call_soon(self._submit)
        return future

    async def flush(self, seconds: float | None = None) -> None:
        """Wait until all entries are written or the writer has stopped, for at most `seconds` if given."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._is_busy and not transactions.is_stopped():
                    await asyncio.sleep(0.02)

    def _submit(self) -> None:
        if self._retried_alone:
            batch = [self._retried_alone.pop(0)]
        else:
            batch, self._waiting = self._waiting, []
        if not batch:
            self._is_busy = False
            return
        loop = asyncio.get_running_loop()
        outcomes = [entry.outcome for entry in batch if entry.outcome is not None]
        claims = [entry.claim for entry in batch if entry.claim is not None]
        try:
            submit = transactions.submit_essential if outcomes else transactions.submit
            future = submit(delivery_reports.record_and_claim_with_receipts, outcomes, claims, self._process)
        except Unavailable as error:
            self._handle_unavailable(batch, error)
            return

        def done(finished: "Future[set[int]]") -> None:
            loop.call_soon_threadsafe(self._finish, batch, finished)

        future.add_done_callback(done)

    def _finish(self, batch: list[_Pending], finished: "Future[set[int]]") -> None:
        error = finished.exception()
        if isinstance(error, Unavailable):
            self._handle_unavailable(batch, error)
            return
        if error is not None and len(batch) > 1:
            # The transaction was rolled back. Each entry is retried alone, so that one error does not fail the others.
            self._retried_alone += batch
        elif error is not None:
            log.error("sender: storing an outcome failed", exc_info=error)
            self._raise_to_callers(batch, error)
        else:
            claimed = finished.result()
            for entry in batch:
                if not entry.future.done():
                    entry.future.set_result(entry.claim is not None and entry.claim.id in claimed)
        self._submit()

    def _handle_unavailable(self, batch: list[_Pending], error: Exception) -> None:
        """Retry the outcomes of a batch later, without their claims, and fail the entries that have only a claim.

        If the writer has stopped, all entries fail. An entry fails with `error`.
        """
        retried = [entry._replace(claim=None) for entry in batch if entry.outcome is not None]
        failed = [entry for entry in batch if entry.outcome is None]
        if transactions.is_stopped():
            failed, retried = batch, []
        self._raise_to_callers(failed, error)
        self._waiting = retried + self._waiting
        log.debug("sender: waiting for the storage: %s", error)  # a debug line, because the storage logs the reason
        asyncio.get_running_loop().call_later(_RETRY_SECONDS, self._submit)

    @staticmethod
    def _raise_to_callers(batch: list[_Pending], error: BaseException) -> None:
        for entry in batch:
            if not entry.future.done():
                entry.future.set_exception(error)
                entry.future.exception()
