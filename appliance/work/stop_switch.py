"""Whether sending is stopped: the process is ending, a person stopped it, or the storage cannot be written."""

import threading
import time

from appliance.db import disk_guard
from appliance.work.circuit_breaker import CircuitBreaker

# A file that stops everything is looked for this often, and again before each message
_STOP_FILE_SECONDS = 0.25


class StopSwitch:
    """Asked by everybody who sends."""

    def __init__(self) -> None:
        self.stopping = threading.Event()
        self._stop_seen = (0.0, False)

    def __call__(self) -> bool:
        """Say so."""
        now = time.monotonic()
        if now > self._stop_seen[0] + _STOP_FILE_SECONDS:
            self._stop_seen = (now, CircuitBreaker.is_stopped())
        return self._stop_seen[1] or self.stopping.is_set() or disk_guard.trouble() is not None
