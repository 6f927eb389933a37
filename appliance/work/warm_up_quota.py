"""What a new sending domain may still send today (`messages.warm_up`)."""

from appliance import clock
from appliance.messages.warm_up import Day
from appliance.work.rate_limit import NEVER


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
