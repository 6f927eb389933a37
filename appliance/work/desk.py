"""One sending thread's place: its open conversations and its workshop."""

import logging

from appliance import config
from appliance.delivery import providers
from appliance.delivery.send import Connection
from appliance.designs.merge import MergeError
from appliance.errors import DeliveryError, Ours, Permanent, Temporary, Unreachable
from appliance.messages.ledger import Claim, Outcome
from appliance.messages.prepare import Prepared, Workshop
from appliance.work.gate import Gate

log = logging.getLogger("campanero.sender")


class Desk:
    """Takes messages to their outcomes, one after the other."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._workshop = Workshop()
        self._open: dict[str, Connection] = {}

    def open_usual(self) -> None:
        """Connect before a message is taken in hand, so that none waits marked while a server is slow to greet."""
        provider = config.current().email.transport
        if provider not in self._gate.closed():
            try:
                self._connection(provider)
            except DeliveryError:
                log.debug("%s is closed for now", provider)

    def handle(self, claim: Claim) -> Outcome:
        """Take one message to its outcome; never raises for the message's sake."""
        try:
            prepared = self._workshop.prepare(claim)
        except (MergeError, ValueError) as error:
            words = error.words() if isinstance(error, MergeError) else str(error)
            return Outcome(claim, Permanent(words), skip_reason="render_error")
        except Exception as error:
            # Whatever is wrong with this one, the others go out
            log.exception("message %s cannot be made", claim.id)
            return Outcome(claim, Permanent(f"{type(error).__name__}: {error}"), skip_reason="render_error")
        return self._hand_over(claim, prepared)

    def _hand_over(self, claim: Claim, prepared: Prepared) -> Outcome:
        outcome = Outcome(
            claim, subject=prepared.filled.subject, sender=prepared.sender,
            internet_message_id=prepared.internet_message_id,
        )  # fmt: skip
        try:
            outcome.reply = self._connection(claim.provider).hand_over(prepared.envelope)
        except DeliveryError as error:
            outcome.error = error
            if isinstance(error, Permanent) and error.enhanced == "5.6.7":
                outcome.skip_reason = "smtputf8_unsupported"
        except Exception as error:
            # A fault of ours before the dot: what comes after it is turned into words where it happens
            log.exception("message %s cannot be handed over", claim.id)
            self._forget(claim.provider)
            outcome.error = Temporary(f"{type(error).__name__}: {error}")
        self._gate.answered(claim, outcome.error)
        return outcome

    def _connection(self, provider: str) -> Connection:
        here = self._open.get(provider)
        if here is not None and here.is_open():
            return here
        self._forget(provider)
        try:
            here = self._open[provider] = providers.connect(provider)
        except Temporary as error:
            # Refused at the door for now: that is not a recipient's attempt
            closed = Unreachable(error.text, error.smtp, error.enhanced)
            self._gate.connecting_failed(provider, closed)
            raise closed from None
        except (Ours, Unreachable) as error:
            self._gate.connecting_failed(provider, error)
            raise
        return here

    def _forget(self, provider: str) -> None:
        here = self._open.pop(provider, None)
        if here is not None:
            here.close()

    def close(self) -> None:
        """End this thread's conversations."""
        for provider in list(self._open):
            self._forget(provider)
