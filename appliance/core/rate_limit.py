"""Rate limits of sending: messages a second, an hour and at a time. Times are seconds of `clock.monotonic`."""

import re
from collections import deque
from typing import NamedTuple

HOUR = 3600.0
# A message that is late by up to this many seconds does not delay the next one. A longer delay is not made up for, to
# avoid bursts.
_SLACK = 0.1
_WORD = re.compile(r"(?<![0-9.])([0-9.]+)(/s|/h| connections?)")
NEVER = float("inf")


class RateLimit(NamedTuple):
    """A rate limit: messages a second (evenly spaced), messages in any 60 minutes, and messages at a time.

    0 means unlimited.
    """

    per_second: float = 0
    per_hour: int = 0
    connections: int = 0

    def describe(self) -> str:
        """Return the limit in words, such as "5 a second, 200 an hour"; an empty text without a limit."""
        parts = [f"{self.per_second:g} a second"] if self.per_second else []
        parts += [f"{self.per_hour} an hour"] if self.per_hour else []
        parts += [f"{self.connections} at a time"] if self.connections else []
        return ", ".join(parts)


def parse_limit(entry: str) -> tuple[str, RateLimit]:
    """Parse the limit in a setting, such as `example.org 5/s 200/h 2 connections`; return its name and the limit."""
    name, _, rates = entry.partition(" ")
    numbers_by_unit = {unit.strip()[:2]: float(number) for number, unit in _WORD.findall(rates)}
    return name.lower(), RateLimit(
        numbers_by_unit.get("/s", 0), int(numbers_by_unit.get("/h", 0)), int(numbers_by_unit.get("co", 0))
    )


class RateLimiter:
    """A rate limit and the messages that count towards it; times are seconds of `clock.monotonic`.

    Only the event loop of the senders may change a RateLimiter; other threads may read it.
    """

    def __init__(self, name: str, limit: RateLimit) -> None:
        self.name, self.limit = name, limit
        self.in_use = 0
        self._gap = 1 / limit.per_second if limit.per_second else 0.0
        self._next = 0.0
        self._hour: deque[float] = deque()

    def allowed_at(self, now: float) -> float:
        """Return the time from which the next message may be sent, or NEVER if a message in progress must end first."""
        if self.limit.connections and self.in_use >= self.limit.connections:
            return NEVER
        return max(self._next, self.hour_allowed_at(now))

    def hour_allowed_at(self, now: float) -> float:
        """Return when the hourly limit allows the next message; 0.0 if the limit allows a message now."""
        if not self.limit.per_hour:
            return 0.0
        # Other threads call this too, so expired entries are removed only where one is added.
        try:
            at = self._hour[-self.limit.per_hour] + HOUR
        except IndexError:  # fewer than the limit were sent
            return 0.0
        return at if at > now else 0.0

    def take(self, now: float) -> None:
        """Count a message whose sending begins now."""
        self.in_use += 1
        if self._gap:
            self._next = max(self._next, now - _SLACK) + self._gap
        if self.limit.per_hour:
            self.record(now)

    def end(self, used: bool) -> None:
        """Count a message as no longer in progress; if `used` is False, it was not sent and counts towards no limit."""
        self.in_use -= 1
        if not used:
            self._next -= self._gap
            if self._hour:
                self._hour.pop()

    def record(self, at: float) -> None:
        """Count a message sent at the time `at` for the hourly limit.

        Calls must be in order of time. At the start, messages that an earlier process sent are recorded too.
        """
        if self.limit.per_hour:
            self._hour.append(at)
            while self._hour[0] <= at - HOUR:
                self._hour.popleft()
