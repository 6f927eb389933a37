"""Base class of the rate limits of a channel; only messages that are not claimed yet wait for them.

Which limits apply to a message is decided by `email_rate_limits` and `sms_rate_limits`.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from typing import Protocol

from appliance.core import clock
from appliance.core.rate_limit import HOUR, NEVER, Limit, RateLimiter
from appliance.core.send_status import Full
from appliance.sending.messages.ledger import Claim
from appliance.sending.messages.warm_up import Day
from appliance.sending.workers.adaptive_throttle import AdaptiveThrottle

ALL = "*"


class Limited(Protocol):
    """One limit."""

    name: str

    def opens_at(self, now: float, /) -> float:
        """Return when the next message may go; NEVER if something has to end first."""

    def take(self, now: float, /) -> None:
        """Count a message that goes now."""

    def end(self, used: bool, /) -> None:
        """Count a message as done; one that did not go used nothing up."""


# Messages of a limited group that are made ready, for each that may go at a time or in a second
AHEAD = 2
_SOON_SECONDS = 5.0


class RateLimits(ABC):
    """The limits of one channel; used on one event loop, and only read elsewhere."""

    def __init__(self, everybody: Limit, is_free: bool) -> None:
        self.everybody = RateLimiter(ALL, everybody)
        self.is_timed = any(everybody)
        self.is_free = is_free
        self._going: dict[int, list[Limited]] = {}

    @abstractmethod
    def _kept_to(self, claim: Claim, sender: str) -> list[Limited]:
        """Return the limits that a message keeps to."""

    @abstractmethod
    def _limits(self) -> Iterable[Limited]:
        """Return all limits."""

    @abstractmethod
    def _limited(self) -> Iterable[tuple[str, RateLimiter | AdaptiveThrottle]]:
        """Return the limits of groups of which no more is made ready than will go soon, with their names."""

    @abstractmethod
    def closed(self) -> tuple[str, ...]:
        """Return the ways out that get nothing for a while."""

    def named(self, sender: str) -> str | None:
        """Return the name of a sender's limit, where a campaign waits that has enough made ready for it."""
        return None

    def lacks_quota(self, claim: Claim, sender: str) -> str | None:
        """Return the domain of which nobody knows yet what it may send today; None if that is known, or any number."""
        return None

    def allot(self, day: Day) -> None:
        """Keep to what a domain may send today, where the channel knows such a limit; from any thread."""
        return

    # -- what goes ------------------------------------------------------------------------------------------------

    def admit(self, claim: Claim, sender: str) -> Limited | None:
        """Let a message go, and count it; or answer what it waits for."""
        if self.is_free:
            return None
        kept_to = self._kept_to(claim, sender)
        now = clock.steady()
        for one in kept_to:
            if one.opens_at(now) > now:
                return one
        for one in kept_to:
            one.take(now)
        if kept_to:
            self._going[claim.id] = kept_to
        return None

    def still_admits(self, claim: Claim, sender: str) -> bool:
        """Return whether a message that was let go may do so now, for it may be that nothing was kept to then."""
        return self.is_free or claim.id in self._going or self.admit(claim, sender) is None

    def is_unlimited(self, claim: Claim, sender: str) -> bool:
        """Return whether a message may be made to follow another one, for it keeps to nothing."""
        return self.is_free or not self._kept_to(claim, sender)

    def end(self, number: int, used: bool = True) -> None:
        """Count a message as done, or as one that did not go after all."""
        if self._going:
            for one in self._going.pop(number, ()):
                one.end(used)

    # -- what there is room for -----------------------------------------------------------------------------------

    def room(self, waiting: Mapping[str, Collection[object]]) -> dict[str, int]:
        """Return how many more of each limited group should be made ready, beside those that wait already."""
        now = clock.steady()
        found: dict[str, int] = {}
        for group, one in self._limited():
            at = one.opens_at(now)
            closed = at != NEVER and at > now + _SOON_SECONDS
            left = 0 if closed else max(0, _most_ahead(one) - len(waiting.get(group, ())))
            found[group] = min(found.get(group, left), left)
        return found

    def most_ahead(self, usual: int) -> int:
        """Return how many messages to make ready where everybody keeps to a rate."""
        rate = self.everybody.limit.per_second
        return min(usual, max(AHEAD, int(AHEAD * rate))) if rate else usual

    def opens_at(self, names: Collection[str], others: bool) -> float:
        """Return when something may go on that waits for one of these names, or, if there are `others`, for all."""
        now = clock.steady()
        at = dict.fromkeys(names, now)
        everybody = now
        for one in self._limits():
            if one.name == ALL:
                everybody = max(everybody, one.opens_at(now))
            elif one.name in at:
                at[one.name] = max(at[one.name], one.opens_at(now))
        return max(everybody, now if others else min(at.values(), default=now))

    # -- what is known --------------------------------------------------------------------------------------------

    @property
    def counts_hours(self) -> bool:
        """Whether a limit of an hour is kept, so that what went before this process counts too."""
        return any(one.limit.per_hour for one in self._limits() if isinstance(one, RateLimiter))

    def remember(self, found: Iterable[tuple[int, str, str | None, str]]) -> None:
        """Count what was handed over in the last hour: (when, provider, sender, recipient), the oldest first."""
        steady, now = clock.steady(), clock.now_ms()
        for sent_at, provider, sender, recipient in found:
            at = steady - (now - sent_at) / 1000
            if at > steady - HOUR:
                for one in self._counting(provider, sender or "", recipient or ""):
                    one.remember(at)

    @abstractmethod
    def _counting(self, provider: str, sender: str, recipient: str) -> Iterable[RateLimiter]:
        """Return the limits of the settings that a message keeps to."""

    def full(self) -> tuple[Full, ...]:
        """Return which limits of an hour are used up."""
        steady, now = clock.steady(), clock.now_ms()
        hours = [(one, one.hour_opens_at(steady)) for one in self._limits() if isinstance(one, RateLimiter)]
        return tuple(
            Full(one.name, one.limit.per_hour, now + int((at - steady) * 1000)) for one, at in hours if at > steady
        )


def _most_ahead(one: RateLimiter | AdaptiveThrottle) -> int:
    if isinstance(one, AdaptiveThrottle):
        return AHEAD * one.most
    return max(AHEAD, AHEAD * one.limit.connections, int(AHEAD * one.limit.per_second))
