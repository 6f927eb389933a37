"""Rate limits of sending, and the state of sending in this process for pages and commands.

Senders provide the state (`set_reporter`); it is empty in a process that sends nothing. Times are milliseconds since
1970 UTC.
"""

import re
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple


class ClosedTransport(NamedTuple):
    """A transport that cannot be reached or that refused everything; it is tried again at `until`."""

    provider: str
    text: str
    since: int
    until: int


class ThrottledGroup(NamedTuple):
    """A recipient group that is sent less because its servers asked for it; nothing is sent before `until`."""

    provider: str
    group: str
    text: str
    since: int
    until: int | None
    connections: int


class ExhaustedLimit(NamedTuple):
    """An hourly limit that is used up: of all mail (`*`), `from` a domain, or to a recipient group."""

    name: str
    per_hour: int
    until: int


class WarmingDomain(NamedTuple):
    """A sending domain in warm-up: its day (`messages.warm_up`), and whether the quota of that day is used up."""

    day: Any
    is_full: bool


class SendStatus(NamedTuple):
    """The state of sending of one channel."""

    closed_transports: tuple[ClosedTransport, ...] = ()
    throttled_groups: tuple[ThrottledGroup, ...] = ()
    exhausted_limits: tuple[ExhaustedLimit, ...] = ()
    connections: int = 0
    warming_domains: tuple[WarmingDomain, ...] = ()


_reports: dict[str, Callable[[], SendStatus]] = {}


def set_reporter(channel: str, function: Callable[[], SendStatus]) -> None:
    """Set the function that returns the state of a channel; it is called on any thread."""
    _reports[channel] = function


def current(channel: str = "email") -> SendStatus:
    """Return the present state of sending of a channel."""
    return _reports[channel]() if channel in _reports else SendStatus()


HOUR = 3600.0
# Seconds by which a message may be late without delaying the next one; a longer delay is not caught up, to avoid
# bursts.
_SLACK = 0.1
_WORD = re.compile(r"([0-9.]+)(/s|/h| connections?)")
NEVER = float("inf")


class RateLimit(NamedTuple):
    """A rate limit: messages a second (evenly), in any sixty minutes, and at a time; 0 is unlimited."""

    per_second: float = 0
    per_hour: int = 0
    connections: int = 0

    def describe(self) -> str:
        """Return the limit in words for people."""
        parts = [f"{self.per_second:g} a second"] if self.per_second else []
        parts += [f"{self.per_hour} an hour"] if self.per_hour else []
        parts += [f"{self.connections} at a time"] if self.connections else []
        return ", ".join(parts)


def parse_limit(entry: str) -> tuple[str, RateLimit]:
    """Parse a limit as settings write it: `example.org 5/s 200/h 2 connections`."""
    name, _, rates = entry.partition(" ")
    numbers_by_unit = {unit.strip()[:2]: float(number) for number, unit in _WORD.findall(rates)}
    return name.lower(), RateLimit(
        numbers_by_unit.get("/s", 0), int(numbers_by_unit.get("/h", 0)), int(numbers_by_unit.get("co", 0))
    )


class RateLimiter:
    """A rate limit and its use, for one event loop; times are those of `clock.monotonic`."""

    def __init__(self, name: str, limit: RateLimit) -> None:
        self.name, self.limit = name, limit
        self.in_use = 0
        self._gap = 1 / limit.per_second if limit.per_second else 0.0
        self._next = 0.0
        self._hour: deque[float] = deque()

    def allowed_at(self, now: float) -> float:
        """Return when the next message may be sent; NEVER if a message in progress has to end first."""
        if self.limit.connections and self.in_use >= self.limit.connections:
            return NEVER
        return max(self._next, self.hour_allowed_at(now))

    def hour_allowed_at(self, now: float) -> float:
        """Return when the hourly limit allows the next message."""
        if not self.limit.per_hour:
            return 0.0
        # Other threads call this too, so nothing is removed here; entries expire when one is added.
        try:
            at = self._hour[-self.limit.per_hour] + HOUR
        except IndexError:  # fewer than the limit were sent
            return 0.0
        return at if at > now else 0.0

    def take(self, now: float) -> None:
        """Count a message that is sent now."""
        self.in_use += 1
        if self._gap:
            self._next = max(self._next, now - _SLACK) + self._gap
        if self.limit.per_hour:
            self.record(now)

    def end(self, used: bool) -> None:
        """Count a message as done; one that was not sent uses up no quota."""
        self.in_use -= 1
        if not used:
            self._next -= self._gap
            if self._hour:
                self._hour.pop()

    def record(self, at: float) -> None:
        """Count a message sent at a time for the hourly limit, oldest first; also those before this process began."""
        if self.limit.per_hour:
            self._hour.append(at)
            while self._hour[0] <= at - HOUR:
                self._hour.popleft()
