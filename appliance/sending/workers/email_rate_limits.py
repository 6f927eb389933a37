"""Rate limits of email: messages a second and connections at a time, in all, by sending domain and by recipient group.

Settings give the limits; a group whose servers ask for less is slowed down on top (`adaptive_throttle`) and the others
go on. Only messages that are not claimed yet wait here.
"""

import random
from collections import deque

from appliance.core import clock, rate_limit
from appliance.core.errors import DeliveryError, Throttled
from appliance.core.rate_limit import NEVER, Limit, RateLimiter
from appliance.core.send_status import Beginning, Closed, SendStatus, Spared
from appliance.sending.delivery import rates, routing
from appliance.sending.delivery.groups import domain_of, group_of
from appliance.sending.delivery.routing import DIRECT
from appliance.sending.messages.ledger import Claim
from appliance.sending.messages.warm_up import Day
from appliance.sending.workers.adaptive_throttle import AdaptiveThrottle
from appliance.sending.workers.rate_limits import ALL, Limited, RateLimits
from appliance.settings.config import seconds
from appliance.settings.schema import Email

# What a new sending domain may still send today (`messages.warm_up`).


class WarmUpQuota:
    """One day of one domain; used on one event loop, times are those of `clock.steady`."""

    def __init__(self, day: Day) -> None:
        self.name = f"from {day.domain}"
        self.day = day
        self.used = day.accepted
        self.in_use = 0

    def is_over(self) -> bool:
        """Return whether the day is; what is left of it is worth nothing then."""
        return not self.day.over_at - 24 * 3600 * 1000 <= clock.now_ms() < self.day.over_at

    def is_full(self) -> bool:
        """Return whether all that may go today has gone."""
        return bool(self.day.cap) and self.used >= self.day.cap and not self.is_over()

    def opens_at(self, now: float) -> float:
        """Return when the next message may go; NEVER if it takes a new day or the end of one at work to know."""
        if self.is_over():
            return NEVER
        if not self.day.cap or self.used + self.in_use < self.day.cap:
            return now
        return NEVER if self.used < self.day.cap else now + (self.day.over_at - clock.now_ms()) / 1000

    def take(self, _: float) -> None:
        """Count a message that goes now."""
        self.in_use += 1

    def end(self, _used: bool) -> None:
        """Count a message as done, whatever became of it."""
        self.in_use -= 1

    def sent(self) -> None:
        """Count a message that was taken."""
        self.used += 1


class Counted:
    """The same for what is never held up: it counts, and nothing waits for it."""

    def __init__(self, quota: WarmUpQuota) -> None:
        self.name, self.quota = quota.name, quota
        self.take, self.end, self.sent = quota.take, quota.end, quota.sent

    @staticmethod
    def opens_at(now: float) -> float:
        """Return that it may go."""
        return now


# Groups that ask for less within a minute before the way out itself is spared
_MANY_GROUPS, _MANY_SECONDS = 3, 60.0
# Spared groups are forgotten from so many on, if nothing was heard of them for so long
_MANY_SPARED, _FORGOTTEN_SECONDS = 64, 1800.0
# Conversations that a group of recipients' servers begins with (D19); it gets more while all goes well
_FIRST = 4


class EmailRateLimits(RateLimits):
    """The limits of one process; used on one event loop, and only read elsewhere."""

    def __init__(self, email: Email) -> None:
        super().__init__(Limit(email.rate_per_second, email.rate_per_hour), is_free=False)
        self._provider = email.transport
        self._pause, self._usual = seconds(email.slow_down), email.connections
        self._senders = {
            name: RateLimiter(f"from {name}", limit) for name, limit in map(rate_limit.read, email.sender_limits)
        }
        self._groups = {
            group: RateLimiter(group, limit)
            for name, limit in map(rate_limit.read, email.recipient_limits) for group in (group_of(name),)
        }  # fmt: skip
        # One is left for the others, however large a group is
        self._most = min(email.direct.group_connections, max(1, email.connections - 1))
        self._first = min(_FIRST, self._most, max(1, email.connections // 2))
        self._slow: dict[tuple[str, str], AdaptiveThrottle] = {}
        self._asked: deque[tuple[float, str]] = deque(maxlen=100)
        self._has_limits = bool(self.is_timed or self._senders or self._groups)
        self._is_direct = self._provider == DIRECT
        self._begins = self._is_direct and email.direct.warm_up
        self._quotas: dict[str, WarmUpQuota] = {}  # by the domain that begins
        self.is_free = not self._has_limits and not self._is_direct

    # -- what goes ------------------------------------------------------------------------------------------------

    def lacks_quota(self, claim: Claim, sender: str) -> str | None:
        """Return the domain of which nobody knows yet what it may send today; None if that is known, or any number."""
        if not self._begins or claim.provider != DIRECT:
            return None
        domain = domain_of(sender)
        known = self._quotas.get(domain)
        return domain if known is None or known.is_over() else None

    def allot(self, day: Day) -> None:
        """Keep to what a domain may send today; from any thread."""
        self._quotas[day.domain] = WarmUpQuota(day)

    def named(self, sender: str) -> str:
        """Return the name of a sender's limit: that of its domain."""
        return f"from {domain_of(sender)}"

    def _kept_to(self, claim: Claim, sender: str) -> list[Limited]:
        names = routing.names_of(claim.provider, claim.recipient_key or "")
        found: list[Limited | None] = []
        if claim.provider == DIRECT:
            found.append(self._group(DIRECT, names[0]))
            quota = self._quotas.get(domain_of(sender)) if self._quotas else None
            if quota is not None:
                # A receipt does not wait for the next day because of a newsletter
                single = claim.transactional or (claim.campaign_id is None and claim.flow_id is None)
                found.append(Counted(quota) if single else quota)
        elif self._slow:
            found += [self._slow.get((claim.provider, ALL)), self._slow.get((claim.provider, names[0]))]
        # What the settings say is about the way out that they name, not about tests that stay here
        if self._has_limits and claim.provider == self._provider:
            found += [self._senders.get(domain_of(sender)), *map(self._groups.get, names)]
            found += [self.everybody] if self.is_timed else []
        return [one for one in found if one is not None]

    # -- what is answered -----------------------------------------------------------------------------------------

    def heard(self, claim: Claim, error: DeliveryError | None) -> DeliveryError | None:
        """Learn from an answer; one that asks for less comes back as Throttled, with the time to try again."""
        if error is None:
            for one in self._going.get(claim.id, ()) if self._quotas else ():
                if isinstance(one, WarmUpQuota | Counted):
                    one.sent()
            if self._slow:
                self._accepted(claim)
            return None
        if not rates.asks_for_less(error):
            return error
        now = clock.steady()
        # Who delivers to the recipients' servers is never spoken to by one for all
        means_all = claim.provider != DIRECT and rates.means_all(error)
        group = ALL if means_all else routing.group_of(claim.provider, claim.recipient_key or "")
        slow = self._spare(claim.provider, group, now, error)
        if claim.provider != DIRECT:
            self._asked.append((now, group))
        if len({name for at, name in self._asked if at > now - _MANY_SECONDS and name != ALL}) >= _MANY_GROUPS:
            self._spare(claim.provider, ALL, now, error)
            self._asked.clear()
        wait = max(slow.until - now, 1.0) * random.uniform(1.0, 1.1)
        return Throttled(error.text, wait, error.smtp, error.enhanced)

    def _spare(self, provider: str, group: str, now: float, error: DeliveryError) -> AdaptiveThrottle:
        slow = self._group(provider, group)
        slow.refused(now, error.text, rates.asks_for_silence(error))
        self.is_free = False
        return slow

    def _group(self, provider: str, group: str) -> AdaptiveThrottle:
        found = self._slow.get((provider, group))
        if found is not None:
            return found
        if len(self._slow) > _MANY_SPARED:
            # Of whom nothing was heard for long; what they ask for now they will say again
            long_ago = clock.steady() - _FORGOTTEN_SECONDS
            self._slow = {key: one for key, one in self._slow.items() if one.in_use or one.until > long_ago}
        if provider == DIRECT:
            made = AdaptiveThrottle(group, self._most, self._pause, self._first)
        else:
            made = AdaptiveThrottle(group, self._usual, self._pause)
        self._slow[provider, group] = made
        return made

    def most_to(self, group: str, domain: str) -> int:
        """Return how many conversations there may be with the servers of a group, for the mail of a domain."""
        limits = [one.limit.connections for one in map(self._groups.get, (group, domain)) if one is not None]
        return min(self._group(DIRECT, group).most, *(most for most in limits if most), self._most)

    def goes_to(self, claim: Claim) -> str | None:
        """Return the group as part of which a message was let go; None if it keeps to none."""
        return next((one.name for one in self._going.get(claim.id, ()) if isinstance(one, AdaptiveThrottle)), None)

    def pauses(self, group: str) -> bool:
        """Return whether nothing goes to the servers of a group for now."""
        slow = self._slow.get((DIRECT, group))
        return slow is not None and slow.until > clock.steady()

    def _accepted(self, claim: Claim) -> None:
        now = clock.steady()
        for group in (ALL, routing.group_of(claim.provider, claim.recipient_key or "")):
            slow = self._slow.get((claim.provider, group))
            if slow is not None and slow.accepted(now):
                if claim.provider == DIRECT:
                    slow.words = ""  # it is spared no more, and stays limited as every group is
                else:
                    del self._slow[claim.provider, group]
        self.is_free = not self._slow and not self._has_limits and not self._is_direct

    # -- what there is room for -----------------------------------------------------------------------------------

    def closed(self) -> tuple[str, ...]:
        """Return the ways out that get nothing for a while."""
        now = clock.steady()
        return tuple(provider for (provider, group), slow in [*self._slow.items()] if group == ALL and slow.until > now)

    def _limits(self) -> list[Limited]:
        known = [self.everybody, *self._senders.values(), *self._groups.values()]
        return [*known, *self._slow.values(), *self._quotas.values()]

    def _limited(self) -> list[tuple[str, RateLimiter | AdaptiveThrottle]]:
        slow = [(group, one) for (_, group), one in self._slow.items() if group != ALL]
        return [*self._groups.items(), *slow]

    def _counting(self, provider: str, sender: str, recipient: str) -> list[RateLimiter]:
        if provider != self._provider:
            return []
        groups = map(self._groups.get, routing.names_of(provider, recipient))
        return [one for one in (self.everybody, self._senders.get(domain_of(sender)), *groups) if one is not None]

    # -- what is known --------------------------------------------------------------------------------------------

    def standing(self) -> SendStatus:
        """Return which groups are spared, and which limits of an hour are used up."""
        steady, now = clock.steady(), clock.now_ms()

        def moment(at: float) -> int:
            return now + int((at - steady) * 1000)

        slow = [*self._slow.items()]
        return SendStatus(
            tuple(Closed(provider, one.words, one.since, moment(one.until))
                  for (provider, group), one in slow if group == ALL and one.until > steady),
            tuple(Spared(provider, group, one.words, one.since, moment(one.until) if one.until > steady else None,
                         one.most) for (provider, group), one in slow if one.words),
            self.full(),
            beginning=tuple(Beginning(one.day._replace(accepted=one.used), one.is_full())
                            for one in [*self._quotas.values()] if one.day.cap and not one.is_over()),
        )  # fmt: skip
