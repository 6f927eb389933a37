"""One place in the sender: a conversation with the next hop, and the message it has in hand."""

import asyncio
from collections.abc import Awaitable, Callable

from appliance.delivery import providers
from appliance.delivery.dialogue import Dialogue, Opened, Refused
from appliance.errors import DeliveryError, Ours, Permanent, Temporary, Unreachable
from appliance.messages.ledger import Outcome
from appliance.work.clerk import Clerk
from appliance.work.feeder import Feeder, Ready
from appliance.work.gate import Gate


class Place:
    """Takes messages to their outcomes, one after the other; `turn` is awaited before each where there is a limit."""

    def __init__(
        self, gate: Gate, feeder: Feeder, clerk: Clerk, is_stopping: Callable[[], bool],
        turn: Callable[[], Awaitable[None]] | None,
    ) -> None:  # fmt: skip
        self._gate, self._feeder, self._clerk = gate, feeder, clerk
        self._is_stopping, self._turn = is_stopping, turn
        self._open: dict[str, Dialogue] = {}
        self._offered: Opened | None = None  # the envelope of the message that comes next
        self._known: Outcome | None = None  # what became of the last one, not stored yet

    async def run(self) -> None:
        """Work until nothing is due, or the service is ending."""
        ready: Ready | None = None
        while ready is not None or not self._is_stopping():
            if ready is None:
                if self._turn is not None or self._feeder.dry:
                    # Nothing that is known waits for what may take long
                    await self._store()
                if self._turn is not None:
                    await self._turn()
                ready = None if self._is_stopping() else await self._feeder.take()
                if ready is None:
                    break
            ready = await self._one(ready)
        await self._store()

    async def _store(self) -> None:
        known, self._known = self._known, None
        if known is not None:
            await self._clerk.step(known, None)
            self._feeder.done((known.claim.id,))

    async def _one(self, ready: Ready) -> Ready | None:
        """Take one message to its outcome; answers the next, whose envelope may be on its way already."""
        dialogue, closed = await self._connected(ready)
        known, self._known = self._known, None
        marking = self._clerk.step(known, ready.claim)
        if known is not None:
            self._feeder.done((known.claim.id,))
        outcome, following = await self._carried(ready, marking, dialogue, closed)
        if outcome is not None:
            self._gate.answered(ready.claim, outcome.error)
        else:
            self._feeder.done((ready.claim.id,))
        self._known = outcome
        return following

    async def _connected(self, ready: Ready) -> tuple[Dialogue | None, DeliveryError | None]:
        """Connect before a message is marked, so that none waits in hand while a server is slow to greet."""
        if ready.prepared is None:
            return None, None
        try:
            return await self._dialogue(ready.claim.provider), None
        except DeliveryError as error:
            await self._store()
            return None, error

    async def _carried(
        self, ready: Ready, marking: "asyncio.Future[bool]", dialogue: Dialogue | None, closed: DeliveryError | None
    ) -> tuple[Outcome | None, Ready | None]:
        prepared = ready.prepared
        if ready.fault is not None or prepared is None:
            return (ready.fault if await marking else None), None
        outcome = Outcome(
            ready.claim, closed, subject=prepared.filled.subject, sender=prepared.sender,
            internet_message_id=prepared.internet_message_id,
        )  # fmt: skip
        offered, self._offered = self._offered, None
        if dialogue is not None:
            try:
                await dialogue.ready(offered or dialogue.open(prepared.envelope))
            except DeliveryError as error:
                outcome.error = error
        if not await marking:
            # It may not go out any more, and there is no polite way to say so after the server asked for it
            self._drop(ready.claim.provider)
            return None, None
        following = None
        if dialogue is not None and outcome.error is None:
            following = await self._delivered(dialogue, ready, outcome)
        if isinstance(outcome.error, Permanent) and outcome.error.enhanced == "5.6.7":
            outcome.skip_reason = "smtputf8_unsupported"
        return outcome, following

    async def _delivered(self, dialogue: Dialogue, ready: Ready, outcome: Outcome) -> Ready | None:
        """Hand the message over, with the next envelope behind it if a message for the same way out is ready."""
        assert ready.prepared is not None
        following = behind = None
        if self._turn is None and not self._is_stopping():
            following = self._feeder.poll()
        if (
            following is not None
            and following.prepared is not None
            and following.claim.provider == ready.claim.provider
        ):
            behind = following.prepared.envelope
        try:
            reply, self._offered = await dialogue.deliver(ready.prepared.envelope.content, behind)
            outcome.reply = reply.text
        except Refused as refused:
            outcome.error, self._offered = refused.error, refused.opened
        except DeliveryError as error:
            outcome.error = error
        return following

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

    async def close(self) -> None:
        """End this place's conversations."""
        self._offered = None
        for provider in list(self._open):
            await self._forget(provider)
