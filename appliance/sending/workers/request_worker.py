"""Send messages as requests to a provider: claim a message, write its request, and store its outcome.

A claim is on disk before its request is written, and no message is claimed ahead: the outcome of a message and the
claim of the next are stored in one commit, between their requests. A connection may take seconds to open, so a claimed
message is checked again right before its request is written, if any write since then may forbid it
(docs/promises.md#p4).
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Generic

from appliance.core.errors import (
    ClientRejected,
    ConnectionFailed,
    DeliveryError,
    MailUnauthenticated,
    Postponed,
    RateLimited,
    SenderRejected,
    Unavailable,
    Uncertain,
)
from appliance.sending.messages import queue
from appliance.sending.messages.ledger import LedgerRow, Outcome, OutgoingMessage
from appliance.sending.messages.retries import STOPPED_WHILE_SENDING
from appliance.sending.workers.renderer import RenderedMessage
from appliance.sending.workers.sender import Limits, WorkerContext
from appliance.storage import transactions

log = logging.getLogger("campanero.sender")


class _Withdrawn(Postponed):
    """A claimed message that may no longer be sent; nothing of its request was written."""


class RequestWorker(ABC, Generic[Limits]):
    """A worker that sends one message at a time as a request, and passes the outcomes to the outcome writer."""

    def __init__(self, context: WorkerContext[Limits]) -> None:
        self._context = context
        self._pending_outcome: Outcome | None = None  # the outcome of the last message, not stored yet

    async def store_pending_outcome(self) -> None:
        """Store the outcome of the last message, unless it is stored already."""
        if self._pending_outcome is not None:
            await self._write(None)

    async def _write(self, row: LedgerRow | None) -> bool:
        """Store the outcome of the last message, if any, and claim the given one; return whether it was claimed."""
        outcome, self._pending_outcome = self._pending_outcome, None
        try:
            writing = self._context.outcome_writer.write(outcome, row)
            return await (writing if row is None else self._context.outcome_writer.wait_for_claim(row, writing))
        finally:
            if outcome is not None and outcome.prepared is not None:
                self._finish(outcome.row)

    async def process(self, ready: RenderedMessage) -> None:
        """Claim a message and send it; the caller then calls `release` of the ready queue."""
        prepared, is_claimed = ready.prepared, False
        try:
            revision = transactions.get_permission_revision()
            is_claimed = await self._write(ready.row)
        finally:
            self._context.ready_queue.finish_claim(ready.row, is_claimed)
        if not is_claimed:
            return
        # The message is claimed, so from here on it always gets an outcome.
        self._pending_outcome = outcome = ready.failure or Outcome(ready.row)
        if prepared is None:
            if isinstance(outcome.error, SenderRejected):
                # Any other failure of rendering says nothing about sender and provider, so it resets no counts.
                self._context.breaker.record_answer(ready.row, outcome.error)
            return
        outcome.sender, outcome.prepared = prepared.sender, prepared
        self._begin(ready.row)
        if self._context.stop_switch.is_halted():
            outcome.error = Postponed("all sending is stopped", 0)
            self._context.breaker.cancel_probe(ready.row)
            return
        outcome.error = Uncertain(STOPPED_WHILE_SENDING)  # stays if this task is cancelled
        outcome.error = await self._send(prepared, outcome, revision)
        if isinstance(outcome.error, _Withdrawn):
            self._context.breaker.cancel_probe(ready.row)
            return  # it is queued again, and the next attempt to claim it records why it may not be sent
        self._handle_answer(outcome, prepared.sender)
        if isinstance(outcome.error, ConnectionFailed) or (
            isinstance(outcome.error, ClientRejected)
            and not isinstance(outcome.error, SenderRejected | MailUnauthenticated)
        ):
            self._context.breaker.handle_connection_failure(ready.row.provider, outcome.error)
        if isinstance(outcome.error, ConnectionFailed | ClientRejected | RateLimited):
            unavailable = self._context.breaker.get_unavailable_providers()
            outcome.falls_over = self._context.limits.falls_over(ready.row, unavailable)

    async def _send(self, prepared: OutgoingMessage, outcome: Outcome, revision: int) -> DeliveryError | None:
        """Send a message claimed at a permission revision; return None if the provider accepted it, else the error."""
        try:
            await self._transmit(prepared, outcome, lambda: self._check_again(outcome.row, revision))
        except DeliveryError as error:
            return error
        except Exception as error:
            log.exception("%s: outcome of message %s is unknown", outcome.row.channel, outcome.row.id)
            return Uncertain(f"{type(error).__name__}: {error}")
        return None

    def _check_again(self, row: LedgerRow, revision: int) -> None:
        """Raise _Withdrawn if a message that was claimed at a permission revision may no longer be sent."""
        try:
            has_changed = transactions.get_permission_revision() != revision
            is_allowed = not has_changed or transactions.fetch_inline(queue.is_still_allowed, row.id)
        except Unavailable as error:
            raise _Withdrawn(str(error), 0) from error
        if not is_allowed or self._context.stop_switch.is_blocked():
            raise _Withdrawn("it was claimed and not sent", 0)

    @abstractmethod
    async def _transmit(self, prepared: OutgoingMessage, outcome: Outcome, check: Callable[[], None]) -> None:
        """Send a message to its provider, and write the provider's id of the accepted message into the outcome.

        `check` is to be called right before anything of the request is written; its error is to be raised. Raises
        DeliveryError if the message was not accepted, or may not have been.
        """

    @abstractmethod
    def _handle_answer(self, outcome: Outcome, sender: str) -> None:
        """Update limits and circuit breaker from the error of an outcome, and write a more exact error into it."""

    def _begin(self, row: LedgerRow) -> None:
        """Record that a message is being sent, for a channel that counts these."""
        return

    def _finish(self, row: LedgerRow) -> None:
        """Record that the outcome of a message is stored, for a channel that counts messages being sent."""
        return
