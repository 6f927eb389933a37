"""Slows guessing down: so many failed sign-ins in a quarter of an hour, for an address and for a client.

Kept in memory: a restart forgives, and nothing a stranger types is stored. Over the limit even the right password is
refused (decisions, section 4).
"""

import threading
from collections import deque

from appliance import clock, config
from appliance.errors import TooMany

WINDOW_MS = 15 * 60 * 1000
# What is remembered at once; the oldest are forgotten first
_MOST_NAMES = 20_000

_lock = threading.Lock()
_failed: dict[str, deque[int]] = {}


def check(*names: str) -> None:
    """Raise TooMany if any of these (an address, a client) has failed too often."""
    limit, now = config.current().limits.login_attempts, clock.now_ms()
    with _lock:
        for name in names:
            times = _failed.get(name)
            while times and times[0] <= now - WINDOW_MS:
                times.popleft()
            if times and len(times) >= limit:
                wait = (times[0] + WINDOW_MS - now) // 1000 + 1
                raise TooMany("too many failed attempts", retry_after=max(1, int(wait)))


def failed(*names: str) -> None:
    """Note a failed attempt."""
    now = clock.now_ms()
    with _lock:
        for name in names:
            _failed.setdefault(name, deque(maxlen=1000)).append(now)
        while len(_failed) > _MOST_NAMES:
            _failed.pop(next(iter(_failed)))


def succeeded(*names: str) -> None:
    """Forget the failures of an address whose owner has come in."""
    with _lock:
        for name in names:
            _failed.pop(name, None)
