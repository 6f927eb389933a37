"""SMTP worker for direct delivery: the recipient's servers are looked up for each message."""

import asyncio
from collections.abc import Callable

from appliance.delivery.dialogue import Dialogue
from appliance.delivery.groups import domain_of
from appliance.delivery.routing import DIRECT
from appliance.errors import DeliveryError, SenderRefused
from appliance.messages.ledger import Outcome
from appliance.work.circuit_breaker import CircuitBreaker
from appliance.work.email_rate_limits import EmailRateLimits
from appliance.work.mx_connections import Found, MxConnections
from appliance.work.outcome_writer import OutcomeWriter
from appliance.work.ready_queue import ReadyQueue
from appliance.work.rendering import RenderedMessage
from appliance.work.smtp_worker import SmtpWorker


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
