"""SMS worker: claims a message, hands it to the provider, and records the outcome.

The claim is on disk before the request is written. The outcome shares a commit with the claim of the next message.
"""

import logging
from collections import Counter, deque
from collections.abc import Callable

from appliance.core.errors import (
    DeliveryError,
    Later,
    Ours,
    SenderRefused,
    Temporary,
    Unauthenticated,
    Uncertain,
    Unreachable,
)
from appliance.sending.delivery import classes
from appliance.sending.messages import lookups
from appliance.sending.messages.ledger import Claim, Outcome, Prepared
from appliance.sending.sms import codes
from appliance.sending.sms.gsm import Accepted, Text
from appliance.sending.sms.providers import PROVIDERS
from appliance.sending.sms.providers.kind import Provider
from appliance.sending.workers.circuit_breaker import CircuitBreaker
from appliance.sending.workers.outcome_writer import OutcomeWriter
from appliance.sending.workers.ready_queue import ReadyQueue
from appliance.sending.workers.rendering import RenderedMessage
from appliance.sending.workers.sms_rate_limits import SmsRateLimits
from appliance.storage import work

log = logging.getLogger("campanero.sender")
_STOPPED = "the service stopped while this message was in hand"
_UNKNOWN = "the provider leaves us in doubt: {text}"
# Another message to the same number is at work: which of the two the provider has is known only once that one is done
_OTHER_SECONDS = 1.0


class Shared:
    """What the places of one sender share; used on one event loop."""

    def __init__(
        self,
        gate: CircuitBreaker,
        pace: SmsRateLimits,
        feeder: ReadyQueue,
        clerk: OutcomeWriter,
        is_halted: Callable[[], bool],
        places: int,
    ) -> None:
        self.gate, self.pace, self.feeder, self.clerk, self.is_halted = gate, pace, feeder, clerk, is_halted
        # Numbers to which something is being handed over, or of which it is not written down yet what became of that
        self.at_work: Counter[str] = Counter()
        # What is to be looked for, by some of the places alone: a provider that is slow to know keeps nobody waiting
        self.sought: deque[RenderedMessage] = deque()
        self.seekers, self.most_seekers = 0, max(1, places // 4)
        self.asked: set[str] = set()  # numbers that are asked for now: of two that are alike each finds another one

    def done(self, number: str) -> None:
        """Note that it is written down what became of a message to a number."""
        self.at_work[number] -= 1
        if not self.at_work[number]:
            del self.at_work[number]


class SmsWorker:
    """Takes messages to their outcomes, one after the other."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._known: Outcome | None = None  # what became of the last one, not stored yet

    async def run(self) -> None:
        """Work until nothing is due, or the service is ending."""
        feeder = self._shared.feeder
        try:
            while (ready := await self._next()) is not None:
                try:
                    await self._one(ready)
                finally:
                    feeder.ended(ready.claim)
        finally:
            await self._store()

    async def _next(self) -> RenderedMessage | None:
        found = None if self._shared.is_halted() else self._shared.feeder.poll()
        if found is None:
            # Nothing that is known waits for what may take long
            await self._store()
            found = await self._shared.feeder.take()
        return found

    async def _store(self) -> None:
        if self._known is not None:
            await self._step(None)

    async def _step(self, claim: Claim | None) -> bool:
        """Write what became of the last message, and mark the next."""
        known, self._known = self._known, None
        try:
            return await self._shared.clerk.step(known, claim)
        finally:
            if known is not None and known.prepared is not None:
                self._shared.done(known.claim.recipient_key)

    async def _one(self, ready: RenderedMessage) -> None:
        prepared = ready.prepared
        if prepared is not None and prepared.looked is not None:
            await self._look_for(ready)
            return
        marked = False
        try:
            marked = await self._step(ready.claim)
        finally:
            self._shared.feeder.done(ready.claim, marked)
        if not marked:
            return
        # From here on something became of it, whatever happens
        self._known = outcome = ready.fault or Outcome(ready.claim)
        if prepared is not None:
            outcome.sender, outcome.prepared = prepared.sender, prepared
            self._shared.at_work[ready.claim.recipient_key] += 1
            if self._shared.is_halted() or self._shared.gate.is_stopped():
                outcome.error = Later("all sending is stopped", 0)
            else:
                outcome.error = Uncertain(_STOPPED)
                await self._handed(prepared, outcome)
                self._learn(outcome, prepared.sender)
        if not isinstance(outcome.error, Uncertain):
            self._shared.gate.answered(ready.claim, outcome.error)

    async def _handed(self, prepared: Prepared, outcome: Outcome) -> None:
        """Hand a message over, once."""
        claim = outcome.claim
        provider = PROVIDERS.get(claim.provider)
        if provider is None:
            outcome.error = Ours(f"there is no provider {claim.provider} any more")
            return
        try:
            _see_to_settings(provider)
            accepted = await provider.send(text_of(claim, prepared))
            outcome.error, outcome.provider_id = None, accepted.provider_id
            outcome.first_status = accepted.status
        except DeliveryError as error:
            outcome.error = error
        except Exception as error:
            log.exception("nobody knows whether message %s was taken", claim.id)
            outcome.error = Uncertain(f"{type(error).__name__}: {error}")

    def _learn(self, outcome: Outcome, sender: str) -> None:
        claim, gate = outcome.claim, self._shared.gate
        error = self._shared.pace.heard(claim, sender, outcome.error)
        if isinstance(error, Ours) and codes.kind(error.text) is classes.UNREGISTERED:
            # This sender may not write to this country; others may, and this one elsewhere
            error = SenderRefused(error.text, error.smtp, error.enhanced)
        outcome.error = error
        if isinstance(error, Unreachable) or (
            isinstance(error, Ours) and not isinstance(error, SenderRefused | Unauthenticated)
        ):
            gate.connecting_failed(claim.provider, error)
        elif isinstance(error, Uncertain) and self._shared.pace.doubted():
            gate.connecting_failed(claim.provider, Unreachable(_UNKNOWN.format(text=error.text)))

    async def _look_for(self, ready: RenderedMessage) -> None:
        """See to it that a message is looked for, and all others meanwhile, if there is nobody yet to do so."""
        shared = self._shared
        shared.pace.end(ready.claim.id, used=False)  # nothing is handed over
        shared.sought.append(ready)
        if shared.seekers >= shared.most_seekers:
            return
        shared.seekers += 1
        try:
            await self._store()
            while shared.sought and not shared.is_halted():
                await self._seek(shared.sought.popleft())
        finally:
            shared.seekers -= 1
            while shared.sought and not shared.seekers:
                shared.feeder.done(shared.sought.popleft().claim, marked=False)

    async def _seek(self, ready: RenderedMessage) -> None:
        """Ask the provider for a message that it may have taken, and decide."""
        shared, claim, prepared = self._shared, ready.claim, ready.prepared
        assert prepared is not None
        number = claim.recipient_key
        try:
            if number in shared.asked or shared.at_work[number]:
                await work.commit(lookups.put_off, claim, Later("another one is at work", _OTHER_SECONDS))
                return
            shared.asked.add(number)
            try:
                found = await self._found(claim, prepared)
                if shared.at_work[number]:
                    found = Later("another one was handed over meanwhile", _OTHER_SECONDS)
                if isinstance(found, DeliveryError):
                    await work.commit(lookups.put_off, claim, found)
                else:
                    await work.commit(lookups.settle, claim, prepared, found)
            finally:
                shared.asked.discard(number)
        finally:
            shared.feeder.done(claim, marked=True)

    async def _found(self, claim: Claim, prepared: Prepared) -> tuple[Accepted, ...] | DeliveryError:
        try:
            _see_to_settings(PROVIDERS[claim.provider])
            return await PROVIDERS[claim.provider].find(text_of(claim, prepared), claim.dated_at or 0)
        except DeliveryError as error:
            if isinstance(error, Unreachable):
                self._shared.gate.connecting_failed(claim.provider, error)
            return error
        except Exception as error:
            log.exception("message %s cannot be looked for", claim.id)
            return Temporary(f"{type(error).__name__}: {error}")


def _see_to_settings(provider: Provider) -> None:
    """Ask nobody in whose settings something is missing: they may have been taken away while messages waited."""
    lacks = [f"{name}: {words}" for name, words in provider.lacks()]
    if lacks:
        raise Ours(f"{provider.name} is not set up any more: {'; '.join(lacks)}")


def text_of(claim: Claim, prepared: Prepared) -> Text:
    """Return a message as its provider is given it."""
    envelope = prepared.envelope
    url = PROVIDERS[claim.provider].callback_url(claim.id)
    return Text(claim.id, envelope.rcpt_to, prepared.sender, envelope.content.decode(), url)
