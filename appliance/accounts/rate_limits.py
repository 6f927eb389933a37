"""Slows guessing down: so many failed sign-ins in a quarter of an hour, for an address and for a client.

Kept in memory: a restart forgives, and nothing a stranger types is stored. Over the limit even the right password is
refused (docs/decisions.md#4). An attempt counts from its begin: who guesses a hundred times at once has ten guesses.
"""

import math
import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, NamedTuple

from appliance.core import addresses, client_ip, clock
from appliance.core.errors import TooMany
from appliance.settings import config
from appliance.settings.schema import Limits

WINDOW_MS = 15 * 60 * 1000
# What is remembered at once; the one that was quiet the longest is forgotten first
_MAX_NAMES = 20_000

_lock = threading.Lock()
_failed: OrderedDict[str, deque[int]] = OrderedDict()
_open: Counter[str] = Counter()


class Attempt:
    """One attempt that is being looked at."""

    is_wrong = False

    def wrong(self) -> None:
        """Say that it failed, so that it counts for a quarter of an hour."""
        self.is_wrong = True


def of_address(email: str) -> str:
    """Return the name under which attempts on a mailbox count, whatever way its address is written."""
    try:
        return f"email:{addresses.email(email).key}"
    except ValueError:
        return f"email:{addresses.lower(email.strip())[:254]}"


def of_client(ip: str) -> str:
    """Return the name under which attempts of a client count; of IPv6 that is its line."""
    return f"client:{client_ip.household(ip)}"


@contextmanager
def attempt(*names: str) -> Iterator[Attempt]:
    """Hold a place for one attempt while it is looked at; raises TooMany if any of these has none left."""
    _reserve(names)
    one = Attempt()
    try:
        yield one
    finally:
        with _lock:
            _settle(names, one.is_wrong)


def succeeded(*names: str) -> None:
    """Forget the failures of an address whose owner has come in."""
    with _lock:
        for name in names:
            _failed.pop(name, None)


def _reserve(names: tuple[str, ...]) -> None:
    limit, now = config.current().limits.login_attempts, clock.now_ms()
    with _lock:
        for name in names:
            times = _failed.get(name, deque())
            while times and not now - WINDOW_MS < times[0] <= now:
                times.popleft()
            if len(times) >= limit:
                wait = (times[0] + WINDOW_MS - now) // 1000 + 1
                raise TooMany("too many failed attempts", retry_after=max(1, wait))
            if len(times) + _open[name] >= limit:
                raise TooMany("too many attempts at once", retry_after=1)
        _open.update(names)


def _settle(names: tuple[str, ...], is_wrong: bool) -> None:
    now = clock.now_ms()
    for name in names:
        _open[name] -= 1
        if _open[name] <= 0:
            del _open[name]
        if is_wrong:
            _failed.setdefault(name, deque(maxlen=1000)).append(now)
            _failed.move_to_end(name)
    while len(_failed) > _MAX_NAMES:
        _failed.popitem(last=False)


# How much a credential may ask of the service: token buckets (docs/decisions.md#4, Requests a minute per
# credential).
#
# They live in memory: a restart fills them, and a credential that is not known has none, for it gets a 401 before.

Rate = Literal["requests", "messages", "sends", "renders"]

# What may come at once, as a part of what may come in a minute
_BURST = {"sends": 2}
_USUAL_BURST = 10
_MAX_KEPT = 10_000


class Level(NamedTuple):
    """How a bucket stands: what it takes in a minute, what it takes at once, in how many seconds it is full again.

    Over the rate nothing is taken: `retry_after` says in how many seconds the next request is, and `exceeded` which
    limit was reached: as many as may come at once came at once, or as many as may come in a minute came in one.
    """

    limit: int
    remaining: int
    reset: int
    retry_after: int = 0
    exceeded: Literal["burst", "minute"] | None = None
    burst: int = 0

    @property
    def headers(self) -> dict[str, str]:
        """Return what an answer says of it."""
        return {
            "RateLimit-Limit": str(self.limit), "RateLimit-Remaining": str(self.remaining),
            "RateLimit-Reset": str(self.reset),
        }  # fmt: skip


class _Use(NamedTuple):
    """When a bucket will be full again, and since when it is not."""

    full_at: float
    since: float


class Buckets:
    """The buckets of all credentials, by class of request; asked by the server's loop alone, so nothing locks."""

    def __init__(self) -> None:
        # One that is full needs no entry
        self._used: dict[tuple[str, str], _Use] = {}
        self._most = _MAX_KEPT

    def take(self, who: str, rate: Rate, limits: Limits) -> Level | None:
        """Take one request out of a credential's bucket, if there is one in it; None where the limit is off."""
        minute = per_minute(rate, limits)
        if minute == 0:
            return None
        now, each = clock.steady(), 60 / minute
        most = burst(rate, minute)
        # The clock of a test may have been turned back
        use = self._used.get((who, rate))
        use = use if use is not None and use.full_at > now else _Use(now, now)
        full_at = min(use.full_at, now + most * each)
        over = full_at + each - now - most * each
        if over > 1e-9:
            taken = most + (now - use.since) / each
            exceeded: Literal["burst", "minute"] = "minute" if taken >= minute else "burst"
            return Level(minute, 0, math.ceil(full_at - now), max(1, math.ceil(over)), exceeded, most)
        full_at += each
        self._used[who, rate] = _Use(full_at, min(use.since, now))
        if len(self._used) > self._most:
            self._forget(now)
        return Level(minute, int(most - (full_at - now) / each + 1e-6), math.ceil(full_at - now))

    def _forget(self, now: float) -> None:
        """Forget those that are full; what is left is in use, so look again only when there are twice as many."""
        self._used = {name: use for name, use in self._used.items() if use.full_at > now}
        self._most = max(_MAX_KEPT, 2 * len(self._used))


def per_minute(rate: Rate, limits: Limits) -> int:
    """Return what a class takes in a minute; 0: as much as comes."""
    number: int = getattr(limits, f"{rate}_per_minute")
    return number


def burst(rate: Rate, minute: int) -> int:
    """Return how many of a class may come at once: a tenth of a minute's, of sends a half."""
    return max(1, minute // _BURST.get(rate, _USUAL_BURST))
