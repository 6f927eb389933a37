"""Rate limits of SMS: in all and by sender, from the settings and from what the provider asks for.

A sender that is asked to wait waits alone. A provider that leaves outcomes unknown repeatedly gets one message at a
time until it answers, so that few messages end up in doubt.
"""

import random

from appliance.core import clock, rate_limit
from appliance.core.errors import DeliveryError, Throttled, Uncertain, Unreachable
from appliance.core.rate_limit import NEVER, Limit, RateLimiter
from appliance.core.send_status import SendStatus, Spared
from appliance.sending.messages.ledger import Claim
from appliance.sending.messages.sms_senders import limit_of
from appliance.sending.workers.adaptive_throttle import AdaptiveThrottle
from appliance.sending.workers.rate_limits import ALL, Limited, RateLimits
from appliance.settings.schema import Sms

# Messages in a row that come into doubt before nothing goes for a while
MAX_DOUBTS = 3
# First pause of a sender that is asked for less without saying for how long; it doubles while that is no help
_PAUSE_SECONDS = 1.0


class _Probe:
    """A provider that is tried: one message at a time, then twice as many with each that is answered."""

    name = ALL

    def __init__(self) -> None:
        self.most, self.in_use = 1, 0

    def opens_at(self, now: float) -> float:
        """Return when the next message may go; NEVER if one of those at work has to end first."""
        return NEVER if self.in_use >= self.most else now

    def take(self, _: float) -> None:
        """Count a message that goes now."""
        self.in_use += 1

    def end(self, _used: bool) -> None:
        """Count a message as done."""
        self.in_use -= 1


class SmsRateLimits(RateLimits):
    """The limits of SMS in one process; used on one event loop, and only read elsewhere."""

    def __init__(self, sms: Sms) -> None:
        super().__init__(Limit(sms.rate_per_second), is_free=False)
        self._provider, self._usual = sms.transport, sms.connections
        self._senders = {
            f"from {name}": RateLimiter(f"from {name}", limit)
            for name, limit in map(rate_limit.read, sms.sender_limits)
        }
        self._has_limits = bool(self.is_timed or self._senders)
        self._slow: dict[str, AdaptiveThrottle] = {}
        self._doubts = 0
        self._probe: _Probe | None = None
        self._look()

    def _look(self) -> None:
        self.is_free = not (self._has_limits or self._slow or self._probe)

    def closed(self) -> tuple[str, ...]:
        """Return no way out: each sender waits alone."""
        return ()

    def _kept_to(self, claim: Claim, sender: str) -> list[Limited]:
        # What the settings and the provider say is not about tests that stay here
        if claim.provider != self._provider:
            return []
        name = limit_of(sender)
        found: list[Limited | None] = [self._slow.get(name), self._senders.get(name), self._probe]
        found += [self.everybody] if self.is_timed else []
        return [one for one in found if one is not None]

    def _limits(self) -> list[Limited]:
        known: list[Limited] = [self.everybody, *self._senders.values(), *self._slow.values()]
        return [*known, self._probe] if self._probe is not None else known

    def _limited(self) -> list[tuple[str, RateLimiter | AdaptiveThrottle]]:
        return [*self._senders.items(), *self._slow.items()]

    def _counting(self, provider: str, sender: str, recipient: str) -> list[RateLimiter]:
        own = self._senders.get(limit_of(sender))
        return [self.everybody, *([own] if own else [])] if provider == self._provider else []

    # -- what is answered -----------------------------------------------------------------------------------------

    def heard(self, claim: Claim, sender: str, error: DeliveryError | None) -> DeliveryError | None:
        """Learn from an answer; one that asks for less comes back with the time to try again."""
        if claim.provider != self._provider:
            return error
        if not isinstance(error, Uncertain | Unreachable):
            self._answered()
        if isinstance(error, Throttled):
            return self._throttled(limit_of(sender), error)
        name = limit_of(sender)
        slow = self._slow.get(name) if error is None else None
        if slow is not None and slow.accepted(clock.steady()):
            del self._slow[name]
            self._look()
        return error

    def _throttled(self, name: str, error: Throttled) -> Throttled:
        now = clock.steady()
        slow = self._slow.get(name)
        if slow is None:
            slow = self._slow[name] = AdaptiveThrottle(name, self._usual, _PAUSE_SECONDS)
            self.is_free = False
        slow.refused(now, error.text, silence=False)
        slow.until = max(slow.until, now + error.seconds)
        wait = max(slow.until - now, 1.0) * random.uniform(1.0, 1.1)
        return Throttled(error.text, wait, error.smtp, error.enhanced)

    def doubted(self) -> bool:
        """Count a message that came into doubt; returns whether the provider is to be left alone for a while."""
        self._doubts += 1
        if self._doubts < MAX_DOUBTS and self._probe is None:
            return False
        if self._probe is None:
            self._probe = _Probe()
        self._probe.most = 1
        self._look()
        return True

    def _answered(self) -> None:
        self._doubts = 0
        if self._probe is None:
            return
        self._probe.most *= 2
        if self._probe.most >= self._usual:
            self._probe = None
            self._look()

    # -- what is known --------------------------------------------------------------------------------------------

    def standing(self) -> SendStatus:
        """Return which senders are spared, and which limits of an hour are used up."""
        steady, now = clock.steady(), clock.now_ms()
        spared = (
            Spared(self._provider, name, one.words, one.since,
                   now + int((one.until - steady) * 1000) if one.until > steady else None, one.most)
            for name, one in [*self._slow.items()]
        )  # fmt: skip
        return SendStatus(spared=tuple(spared), full=self.full())
