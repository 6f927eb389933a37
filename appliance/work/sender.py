"""Sends what is due: as many threads as there are SMTP transactions allowed, for as long as there is something to send.

Each thread has one message in hand at a time. Its outcome and the mark of the next share one commit, so between two
messages there is exactly one wait for the disk.
"""

import logging
import threading
import time

from appliance import config
from appliance.config import seconds
from appliance.db import work
from appliance.db.open import close_database
from appliance.delivery import providers
from appliance.delivery.send import Connection
from appliance.designs.merge import MergeError
from appliance.errors import DeliveryError, Ours, Permanent, Temporary, Unavailable, Unreachable
from appliance.messages import outbox
from appliance.messages.ledger import Claim, Outcome
from appliance.messages.prepare import Prepared, Workshop

log = logging.getLogger("campanero.sender")

# Refusals in a row that are our fault, before live campaigns pause (decisions, section 6, `transport`)
_MOST_OURS = 20


class Sender:
    """The sending side of one process; `drain` runs in one thread at a time."""

    def __init__(self, process: str) -> None:
        self.process = process
        self.stopping = threading.Event()
        self._lock = threading.Lock()
        self._ours = 0
        self._closed_until = 0.0
        self._last_fault = ""
        rate = config.current().email.rate_per_second
        self._gap = 1 / rate if rate else 0.0
        self._next_place = 0.0

    def drain(self) -> bool:
        """Send until nothing is due; answers whether the way out must be reported as shut (20 refusals of us)."""
        if time.monotonic() < self._closed_until:
            return False
        threads = [
            # A conversation that hangs for longer than a stop may last does not keep the process from ending
            threading.Thread(target=self._work, name=f"sender-{number}", daemon=True)
            for number in range(config.current().email.connections)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with self._lock:
            shut = self._ours >= _MOST_OURS
            if shut:
                self._ours = 0
        return shut

    @property
    def fault(self) -> str:
        """The last words of a next hop that would not have us."""
        return self._last_fault

    def _work(self) -> None:
        desk = _Desk(self)
        outcome: Outcome | None = None
        try:
            while True:
                if self._gap:
                    # With a limit the outcome is stored before the wait for the next place
                    if outcome is not None:
                        self._turn(outcome, want=False)
                        outcome = None
                    self._pace()
                turn = self._turn(outcome)
                outcome = None
                if turn.claim is not None:
                    outcome = desk.handle(turn.claim)
                elif not turn.again:
                    return
        except Unavailable as error:
            # Storage trouble: nothing new starts; the row stays marked and is decided at the next start
            log.error("sending stops: %s", error)
        except Exception:
            log.exception("a sending thread ended")
        finally:
            desk.close()
            close_database()

    def _pace(self) -> None:
        """Wait for this thread's place under `email.rate_per_second`."""
        with self._lock:
            now = time.monotonic()
            self._next_place = max(self._next_place + self._gap, now)
            wait = self._next_place - now
        self.stopping.wait(wait)

    def _turn(self, outcome: Outcome | None, want: bool = True) -> outbox.Turn:
        want = want and not self.stopping.is_set() and time.monotonic() >= self._closed_until
        for attempt in range(60):
            try:
                return work.write(outbox.turn, outcome, self.process, want)
            except Unavailable:
                # An outcome that is known must not be lost: keep at it for a minute before giving up
                if outcome is None or self.stopping.is_set() or attempt == 59:
                    raise
                time.sleep(1)
        raise AssertionError("unreachable")

    def note(self, error: DeliveryError | None) -> None:
        """Keep count of refusals of us, and stand back from a way out that is closed."""
        with self._lock:
            if isinstance(error, Ours | Unreachable):
                self._last_fault = error.text
            if isinstance(error, Ours):
                self._ours += 1
                if self._ours >= _MOST_OURS:
                    self._closed_until = time.monotonic() + seconds(config.current().email.probe_after)
            elif isinstance(error, Unreachable):
                self._closed_until = time.monotonic() + seconds(config.current().email.probe_after)
            else:
                self._ours = 0


class _Desk:
    """One thread's place: its connections and its workshop."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender
        self._workshop = Workshop()
        self._open: dict[str, Connection] = {}

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
        self._sender.note(outcome.error)
        return outcome

    def _connection(self, provider: str) -> Connection:
        here = self._open.get(provider)
        if here is not None and not here.is_open():
            here.close()
            here = None
        if here is None:
            try:
                here = providers.connect(provider)
            except Temporary as error:
                # Refused at the door for now: that is not this recipient's attempt
                raise Unreachable(error.text, error.smtp, error.enhanced) from None
            self._open[provider] = here
        return here

    def close(self) -> None:
        """End this thread's conversations."""
        for connection in self._open.values():
            connection.close()
        self._open.clear()
