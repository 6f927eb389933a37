"""SMTP worker: one connection to the relay, and the message it carries."""

import asyncio
import logging
import time
from collections.abc import Callable

from appliance.core.errors import DeliveryError, Later, Ours, Permanent, Temporary, Uncertain, Unreachable
from appliance.sending.delivery import providers
from appliance.sending.delivery.dialogue import Dialogue
from appliance.sending.delivery.offered import Opened, Refused
from appliance.sending.delivery.send import Envelope
from appliance.sending.messages import message_counters
from appliance.sending.messages.ledger import Outcome
from appliance.sending.workers.circuit_breaker import CircuitBreaker
from appliance.sending.workers.email_rate_limits import EmailRateLimits
from appliance.sending.workers.outcome_writer import OutcomeWriter
from appliance.sending.workers.ready_queue import ReadyQueue
from appliance.sending.workers.rendering import RenderedMessage

log = logging.getLogger("campanero.sender")
# A message that waits this long behind another, or for a connection, is left to whoever is free
_PATIENCE_SECONDS = 1.0
# Connections that nothing leaves by for so long are closed
_IDLE_SECONDS = 30.0


class SmtpWorker:
    """Takes messages to their outcomes, one after the other."""

    def __init__(
        self,
        gate: CircuitBreaker,
        pace: EmailRateLimits,
        feeder: ReadyQueue,
        clerk: OutcomeWriter,
        is_halted: Callable[[], bool],
    ) -> None:
        self._gate, self._pace, self._feeder, self._clerk = gate, pace, feeder, clerk
        self._is_halted = is_halted
        self._open: dict[str, Dialogue] = {}
        self._next: RenderedMessage | None = None  # the message that comes next, which nobody has marked yet
        self._offered: Opened | None = None  # its envelope, where that is on its way already
        self._goodbyes: set[asyncio.Future[None]] = set()
        self._known: Outcome | None = None  # what became of the last one, not stored yet
        self._lent_until = 0.0  # until when the next one may wait here; 0 while nothing is waited for
        self._timer: asyncio.TimerHandle | None = None

    @property
    def connections(self) -> int:
        """How many conversations are open here."""
        return len(self._open)

    async def run(self) -> None:
        """Work until nothing is due, or the service is ending."""
        try:
            while await self._found():
                await self._turn()
        finally:
            self._give_back()
            if self._timer is not None:
                self._timer.cancel()
            await self._store()

    async def _turn(self) -> None:
        """Take the message in hand to its outcome, if it still may go."""
        dialogue, closed = await self._connected()
        ready, self._next = self._next, None
        if ready is not None and not self._may_go(ready):
            # Its group asked for less since it was taken; an envelope cannot be taken back politely
            if self._offered is not None:
                self._drop(ready.claim.provider)
            self._feeder.put_back(ready)
        elif ready is not None:
            try:
                await self._one(ready, dialogue, closed)
            finally:
                self._feeder.ended(ready.claim)

    async def _found(self) -> bool:
        """See to a next message; returns whether there is one."""
        if self._next is None and not self._pace.is_timed and not self._is_halted():
            self._next = self._feeder.poll()
        if self._next is None:
            # Nothing that is known waits for what may take long
            await self._store()
            timer = asyncio.get_running_loop().call_later(_IDLE_SECONDS, self._part)
            try:
                # Where time is measured, it is the time of the message and not of the connection before it
                if not self._pace.is_timed or await self._is_connected():
                    self._next = await self._feeder.take()
            finally:
                timer.cancel()
        return self._next is not None

    async def _is_connected(self) -> bool:
        """Connect for the next message, whichever it will be; returns whether there is one."""
        while (provider := await self._feeder.provider()) is not None:
            try:
                await self._ahead(provider)
            except DeliveryError as error:
                log.debug("%s is closed for now: %s", provider, error)
            else:
                return True
        return False

    async def _ahead(self, provider: str) -> None:
        """Connect before it is known for whom."""
        await self._dialogue(provider)

    def _part(self) -> None:
        """Say goodbye where nothing was said for long: servers do not like to be kept waiting."""
        for provider in list(self._open):
            # Gone from here at once: a message that comes now gets a connection of its own
            self._goodbyes.add(task := asyncio.ensure_future(self._open.pop(provider).close()))
            task.add_done_callback(self._goodbyes.discard)

    def _may_go(self, ready: RenderedMessage) -> bool:
        return ready.prepared is None or self._pace.still_admits(ready.claim, ready.prepared.sender)

    async def _store(self) -> None:
        known, self._known = self._known, None
        if known is not None:
            await self._clerk.step(known, None)

    def _lend(self) -> None:
        """Begin to wait for the other side with the next message in hand, but not long: somebody else may be quicker.

        One timer looks again where it was early: one for each message costs as much as handing it over.
        """
        loop = asyncio.get_running_loop()
        self._lent_until = loop.time() + _PATIENCE_SECONDS
        if self._timer is None:
            self._timer = loop.call_at(self._lent_until, self._look)

    def _look(self) -> None:
        self._timer = None
        if self._lent_until <= 0:
            return
        loop = asyncio.get_running_loop()
        if loop.time() < self._lent_until:
            self._timer = loop.call_at(self._lent_until, self._look)
        else:
            self._give_back()

    def _give_back(self) -> None:
        ready, self._next = self._next, None
        if ready is not None:
            self._feeder.put_back(ready)

    async def _connected(self) -> tuple[Dialogue | None, DeliveryError | None]:
        """Connect before a message is marked, so that none waits in hand while a server is slow to greet."""
        if self._next is None or self._next.prepared is None:
            return None, None
        provider = self._next.claim.provider
        here = self._open.get(provider)
        if here is not None and here.is_open():
            return here, None
        await self._store()
        self._lend()
        try:
            return await self._dialogue(provider), None
        except DeliveryError as error:
            return None, error
        finally:
            self._lent_until = 0.0

    async def _one(self, ready: RenderedMessage, dialogue: Dialogue | None, closed: DeliveryError | None) -> None:
        """Take one message to its outcome; the next may be in hand by then, and its envelope on its way."""
        known, self._known = self._known, None
        marking = self._clerk.step(known, ready.claim)
        offered, self._offered = self._offered, None
        outcome, prepared = ready.fault or Outcome(ready.claim, closed), ready.prepared
        begun = time.monotonic()
        if dialogue is not None and prepared is not None:
            outcome.error = await self._asked(dialogue, prepared.envelope, offered, outcome)
            if isinstance(outcome.error, Unreachable) and dialogue.messages:
                # Another connection is another transaction: it is marked again for that, and looked at again
                outcome.error = Later("this connection has had enough", 0)
        marked = False
        try:
            marked = await marking
        except Exception:
            # The server asked for the message already: a QUIT now would be taken for its text
            self._drop(ready.claim.provider)
            raise
        finally:
            self._feeder.done(ready.claim, marked)
        if not marked:
            # It may not go out any more, and there is no polite way to say so after the server asked for it
            self._drop(ready.claim.provider)
            return
        # From here on something became of it, whatever happens
        self._known = outcome
        await self._through(ready, dialogue, outcome)
        if dialogue is not None and prepared is not None:
            message_counters.talked(ready.claim.provider, outcome.error, time.monotonic() - begun)

    async def _through(self, ready: RenderedMessage, dialogue: Dialogue | None, outcome: Outcome) -> None:
        """Hand over a message that is marked and asked for, and learn from what became of it."""
        prepared = ready.prepared
        if prepared is not None:
            outcome.subject, outcome.sender = prepared.subject, prepared.sender
            outcome.internet_message_id, outcome.prepared = prepared.internet_message_id, prepared
            if dialogue is not None and outcome.error is None and self._gate.is_stopped():
                # Somebody stopped all sending since it was marked; there is no polite way to take it back here either
                outcome.error = Later("all sending is stopped", 0)
                self._drop(ready.claim.provider)
            elif dialogue is not None and outcome.error is None:
                outcome.error = Uncertain("the service stopped while this message was in hand")
                await self._delivered(dialogue, prepared.envelope, outcome)
        if isinstance(outcome.error, Permanent) and outcome.error.enhanced == "5.6.7":
            outcome.skip_reason = "smtputf8_unsupported"
        if dialogue is not None:
            outcome.error = self._pace.heard(ready.claim, outcome.error)
        self._gate.answered(ready.claim, outcome.error)

    async def _asked(
        self, dialogue: Dialogue, envelope: Envelope, offered: Opened | None, outcome: Outcome
    ) -> DeliveryError | None:
        """Wait until the server asks for the message; answers why it does not."""
        try:
            await dialogue.ready(offered or dialogue.open(envelope))
        except DeliveryError as error:
            return error
        except asyncio.CancelledError:
            # The server still thinks about it when the service ends: it has nothing of the message
            outcome.error = Later("the service stopped before this message was handed over", 0)
            self._known = outcome
            raise
        except Exception as error:
            # A fault of ours before the dot; whatever is wrong with this one, the others go out
            log.exception("a message cannot be handed over")
            dialogue.abort()
            return Temporary(f"{type(error).__name__}: {error}")
        return None

    async def _delivered(self, dialogue: Dialogue, envelope: Envelope, outcome: Outcome) -> None:
        """Hand the message over, with the next envelope behind it if a message for the same way out is ready."""
        provider, behind = outcome.claim.provider, None
        if not self._pace.is_timed and not self._is_halted():
            self._next = self._feeder.poll(behind=True)
        if self._next is not None and self._next.prepared is not None and self._next.claim.provider == provider:
            behind = self._next.prepared.envelope
        self._lend()
        try:
            reply, self._offered = await dialogue.deliver(envelope, behind)
            outcome.reply, outcome.error = reply.text, None
        except Refused as refused:
            outcome.error, self._offered = refused.error, refused.opened
        except DeliveryError as error:
            outcome.error = error
        except Exception as error:
            log.exception("nobody knows whether message %s was taken", outcome.claim.id)
            outcome.error = Uncertain(f"{type(error).__name__}: {error}")
            dialogue.abort()
        finally:
            self._lent_until = 0.0
        if self._offered is not None and self._next is None:
            # Somebody else sends it by now, and it cannot be taken back politely
            self._drop(provider)

    async def _dialogue(self, provider: str) -> Dialogue:
        here = self._open.get(provider)
        if here is not None and here.is_open():
            return here
        self._offered = None
        await self._forget(provider)
        try:
            here = self._open[provider] = await providers.connect(provider)
        except Temporary as error:
            # Refused at the door for now: that is not a recipient's attempt
            closed = Unreachable(error.text, error.smtp, error.enhanced)
            self._gate.connecting_failed(provider, closed)
            raise closed from None
        except (Ours, Unreachable) as error:
            self._gate.connecting_failed(provider, error)
            raise
        return here

    def _drop(self, provider: str) -> None:
        self._offered = None
        here = self._open.pop(provider, None)
        if here is not None:
            here.abort()

    async def _forget(self, provider: str) -> None:
        here = self._open.pop(provider, None)
        if here is not None:
            await here.close()

    def abort(self) -> None:
        """Hang up wherever each conversation is."""
        for provider in list(self._open):
            self._drop(provider)

    async def close(self) -> None:
        """End this place's conversations."""
        self._offered = None
        self._part()
        if self._goodbyes:
            await asyncio.wait({*self._goodbyes})
