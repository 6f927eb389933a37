"""Adaptive throttle: what a recipient group gets after its servers asked for less.

The group pauses, then gets half as many connections, and slower rates if that does not help. It recovers step by step:
one step for each window without a refusal (`WINDOW_SECONDS`), or for enough messages accepted in a row.
"""

from appliance.core import clock
from appliance.core.rate_limit import NEVER

WINDOW_SECONDS = 20.0
SILENCE_SECONDS = 600.0
_ENOUGH, _ENOUGH_SLOWLY = 50, 5
_MIN_GAP, _MAX_GAP = 0.5, 60.0


class AdaptiveThrottle:
    """One group that is spared; used on one event loop, times are those of `clock.steady`."""

    def __init__(self, name: str, usual: int, pause: float, first: int | None = None) -> None:
        self.name = name
        self.since = clock.now_ms()
        self._usual = usual
        self.most = usual if first is None else first
        self.until = 0.0
        self.words = ""
        self.in_use = 0
        self._pause = pause
        self._level = 0
        self._gap = 0.0
        self._next = 0.0
        self._window: float | None = None  # since when all is taken, and how many were
        self._taken = 0

    def refused(self, now: float, words: str, silence: bool) -> None:
        """Give less from now on; what had been on its way when a pause began says nothing new."""
        if not self.words:
            self.since = clock.now_ms()
        self.words = words
        if silence:
            self.most, self._gap, self.until = 1, 0.0, now + SILENCE_SECONDS
        elif now >= self.until:
            self._level += 1
            if self.most == 1:
                self._gap = min(_MAX_GAP, max(_MIN_GAP, self._gap * 2))
            self.most = max(1, self.most // 2)
            self.until = now + min(SILENCE_SECONDS, self._pause * 2 ** (self._level - 1))
        self._window = None

    def accepted(self, now: float) -> bool:
        """Note that one was taken; returns whether the group may have everything again."""
        if now < self.until:
            return False
        if self._window is None:
            self._window, self._taken = now, 0
        self._taken += 1
        if now >= self._window + WINDOW_SECONDS or self._taken > (_ENOUGH_SLOWLY if self._gap else _ENOUGH):
            self._window, self._taken = now, 0
            self._level = max(0, self._level - 1)
            if self._gap:
                self._gap = self._gap / 2 if self._gap > _MIN_GAP else 0.0
            else:
                self.most = min(self._usual, self.most + 1)
        return self.most >= self._usual and not self._gap

    def opens_at(self, now: float) -> float:
        """Return when the next message may go; NEVER if one of those at work has to end first."""
        if now < self.until:
            return self.until
        return NEVER if self.in_use >= self.most else self._next

    def take(self, now: float) -> None:
        """Count a message that goes now."""
        self.in_use += 1
        self._next = now + self._gap

    def end(self, used: bool) -> None:
        """Count a message as done; one that did not go leaves its turn to the next."""
        self.in_use -= 1
        if not used:
            self._next = 0.0
