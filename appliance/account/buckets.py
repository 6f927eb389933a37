"""How much a credential may ask of the service: token buckets (decisions, section 4, Requests a minute per credential).

They live in memory: a restart fills them, and a credential that is not known has none, for it gets a 401 before.
"""

import math
from typing import Literal, NamedTuple

from appliance import clock
from appliance.settings import Limits

Rate = Literal["requests", "messages", "sends", "renders"]

# What may come at once, as a part of what may come in a minute
_BURST = {"sends": 2}
_USUAL_BURST = 10
_MOST_KEPT = 10_000


class Level(NamedTuple):
    """How a bucket stands: what it takes in a minute, what it takes at once, in how many seconds it is full again.

    Over the rate nothing is taken, and `retry_after` says in how many seconds the next request is.
    """

    limit: int
    remaining: int
    reset: int
    retry_after: int = 0

    @property
    def headers(self) -> dict[str, str]:
        """Answer what an answer says of it."""
        return {
            "RateLimit-Limit": str(self.limit), "RateLimit-Remaining": str(self.remaining),
            "RateLimit-Reset": str(self.reset),
        }  # fmt: skip


class Buckets:
    """The buckets of all credentials, by class of request; asked by the server's loop alone, so nothing locks."""

    def __init__(self) -> None:
        # When each will be full again: all that there is to know of one, and one that is full needs no entry
        self._full_at: dict[tuple[str, str], float] = {}
        self._most = _MOST_KEPT

    def take(self, who: str, rate: Rate, limits: Limits) -> Level | None:
        """Take one request out of a credential's bucket, if there is one in it; None where the limit is off."""
        minute = per_minute(rate, limits)
        if minute == 0:
            return None
        now, each = clock.steady(), 60 / minute
        most = burst(rate, minute)
        # The clock of a test may have been turned back
        full_at = min(max(self._full_at.get((who, rate), now), now), now + most * each)
        over = full_at + each - now - most * each
        if over > 1e-9:
            return Level(minute, 0, math.ceil(full_at - now), max(1, math.ceil(over)))
        self._full_at[who, rate] = full_at = full_at + each
        if len(self._full_at) > self._most:
            self._forget(now)
        return Level(minute, int(most - (full_at - now) / each + 1e-6), math.ceil(full_at - now))

    def _forget(self, now: float) -> None:
        """Forget those that are full; what is left is in use, so look again only when there are twice as many."""
        self._full_at = {name: full_at for name, full_at in self._full_at.items() if full_at > now}
        self._most = max(_MOST_KEPT, 2 * len(self._full_at))


def per_minute(rate: Rate, limits: Limits) -> int:
    """Answer what a class takes in a minute; 0: as much as comes."""
    number: int = getattr(limits, f"{rate}_per_minute")
    return number


def burst(rate: Rate, minute: int) -> int:
    """Answer how many of a class may come at once: a tenth of a minute's, of sends a half."""
    return max(1, minute // _BURST.get(rate, _USUAL_BURST))
