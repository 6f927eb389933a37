"""Sends what is due: as many threads as there are SMTP transactions allowed, for as long as there is something to send.

Each thread has one message in hand at a time. Its outcome and the mark of the next share one commit, so between two
messages there is exactly one wait for the disk. An outcome that is known is kept until it is stored.
"""

import logging
import threading
import time

from appliance import config
from appliance.config import seconds
from appliance.db import work
from appliance.db.open import close_database
from appliance.errors import Unavailable
from appliance.messages import outbox
from appliance.messages.ledger import Outcome
from appliance.work.desk import Desk
from appliance.work.gate import Gate, Shut

log = logging.getLogger("campanero.sender")


class Sender:
    """The sending side of one process; `drain` runs in one thread at a time."""

    def __init__(self, process: str) -> None:
        self.process = process
        self.stopping = threading.Event()
        self.gate = Gate(seconds(config.current().email.probe_after))
        self._wake = threading.Event()
        self._lock = threading.Lock()
        rate = config.current().email.rate_per_second
        self._gap = 1 / rate if rate else 0.0
        self._next_place = 0.0

    def wake(self) -> None:
        """Say that there may be more to send; a running drain puts idle places to work."""
        self._wake.set()

    def drain(self) -> None:
        """Send until nothing is due. One slow conversation keeps its own thread, not the others."""
        places = config.current().email.connections
        threads: list[threading.Thread] = []
        self._wake.set()
        while True:
            threads = [thread for thread in threads if thread.is_alive()]
            if self._wake.is_set() and not self.stopping.is_set():
                self._wake.clear()
                for number in range(places - len(threads)):
                    # A conversation that hangs for longer than a stop may last does not keep the process from ending
                    thread = threading.Thread(target=self._work, name=f"sender-{number}", daemon=True)
                    thread.start()
                    threads.append(thread)
            if not threads:
                return
            threads[0].join(0.02)

    def shut(self) -> Shut:
        """Answer, once, what must be paused because the way out keeps refusing us."""
        return self.gate.take_shut()

    def _work(self) -> None:
        desk = Desk(self.gate)
        outcome: Outcome | None = None
        try:
            while True:
                if self._gap:
                    # With a limit the outcome is stored before the wait for the next place
                    if outcome is not None:
                        self._turn(outcome, want=False)
                        outcome = None
                    self._pace()
                if not self.stopping.is_set():
                    desk.open_usual()
                turn = self._turn(outcome, want=True)
                outcome = None
                if turn.claim is not None:
                    outcome = desk.handle(turn.claim)
                elif not turn.again:
                    return
        except Unavailable as error:
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

    def _turn(self, outcome: Outcome | None, want: bool) -> outbox.Turn:
        """Store an outcome and take the next message; what is known is offered again until it is stored."""
        while True:
            want = want and not self.stopping.is_set()
            try:
                return work.write(outbox.turn, outcome, self.process, want, self.gate.closed(), self.gate.held())
            except Unavailable:
                if outcome is None or work.is_stopped():
                    raise
                time.sleep(1)
