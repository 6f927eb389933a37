"""Slows guessing down: so many failed sign-ins in a quarter of an hour, for an address and for a client.

Kept in memory: a restart forgives, and nothing a stranger types is stored. Over the limit even the right password is
refused (docs/decisions.md#4). An attempt counts from its begin: who guesses a hundred times at once has ten guesses.
"""

import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Iterator
from contextlib import contextmanager

from appliance import addresses, clients, clock, config
from appliance.errors import TooMany

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
    return f"client:{clients.household(ip)}"


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
