"""One rate limit and its use: messages a second (evenly), in any sixty minutes, and at a time."""

import re
from collections import deque
from typing import NamedTuple

HOUR = 3600.0
# Who comes late by this much keeps the beat; more is not made up for, so that there are no bursts
_SLACK = 0.1
_WORD = re.compile(r"([0-9.]+)(/s|/h| connections?)")
NEVER = float("inf")


class Limit(NamedTuple):
    """What is allowed; 0 is unlimited."""

    per_second: float = 0
    per_hour: int = 0
    connections: int = 0

    def words(self) -> str:
        """Say it for people."""
        parts = [f"{self.per_second:g} a second"] if self.per_second else []
        parts += [f"{self.per_hour} an hour"] if self.per_hour else []
        parts += [f"{self.connections} at a time"] if self.connections else []
        return ", ".join(parts)


def read(entry: str) -> tuple[str, Limit]:
    """Read a limit as settings write it: `example.org 5/s 200/h 2 connections`."""
    name, _, rest = entry.partition(" ")
    found = {unit.strip()[:2]: float(number) for number, unit in _WORD.findall(rest)}
    return name.lower(), Limit(found.get("/s", 0), int(found.get("/h", 0)), int(found.get("co", 0)))


class RateLimiter:
    """A limit that is being kept; used on one event loop, times are those of `clock.steady`."""

    def __init__(self, name: str, limit: Limit) -> None:
        self.name, self.limit = name, limit
        self.in_use = 0
        self._gap = 1 / limit.per_second if limit.per_second else 0.0
        self._next = 0.0
        self._hour: deque[float] = deque()

    def opens_at(self, now: float) -> float:
        """Return when the next message may go; NEVER if one of those at work has to end first."""
        if self.limit.connections and self.in_use >= self.limit.connections:
            return NEVER
        return max(self._next, self.hour_opens_at(now))

    def hour_opens_at(self, now: float) -> float:
        """Return when the limit of an hour lets the next message go."""
        if not self.limit.per_hour:
            return 0.0
        # Only read here, for other threads ask too; what is older than an hour falls out where one is added
        try:
            at = self._hour[-self.limit.per_hour] + HOUR
        except IndexError:  # so many have not gone
            return 0.0
        return at if at > now else 0.0

    def take(self, now: float) -> None:
        """Count a message that goes now."""
        self.in_use += 1
        if self._gap:
            self._next = max(self._next, now - _SLACK) + self._gap
        if self.limit.per_hour:
            self.remember(now)

    def end(self, used: bool) -> None:
        """Count a message as done; one that did not go used nothing up."""
        self.in_use -= 1
        if not used:
            self._next -= self._gap
            if self._hour:
                self._hour.pop()

    def remember(self, at: float) -> None:
        """Count a message that went before this process began; the oldest first."""
        if self.limit.per_hour:
            self._hour.append(at)
            while self._hour[0] <= at - HOUR:
                self._hour.popleft()
