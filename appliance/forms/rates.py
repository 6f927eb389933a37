"""How often a stranger may do something, counted in memory: a restart forgives, and nothing they sent is kept."""

import threading
from collections import OrderedDict, deque

from appliance import clock
from appliance.errors import TooMany

MINUTE_MS, HOUR_MS = 60_000, 3_600_000
# Names remembered at once; the one that was quiet the longest is forgotten first
_MAX_KEYS = 50_000

_lock = threading.Lock()
_seen: OrderedDict[str, deque[int]] = OrderedDict()


def take(name: str, most: int, window_ms: int) -> int:
    """Count one more under a name, unless that were too many: then answer the seconds to wait, else 0."""
    now = clock.now_ms()
    with _lock:
        times = _seen.setdefault(name, deque())
        _seen.move_to_end(name)
        while times and not now - window_ms < times[0] <= now:
            times.popleft()
        if len(times) >= most:
            return max(1, (times[0] + window_ms - now) // 1000 + 1)
        times.append(now)
        while len(_seen) > _MAX_KEYS:
            _seen.popitem(last=False)
    return 0


def check(name: str, most: int, window_ms: int = MINUTE_MS) -> None:
    """Count one more under a name; raises TooMany."""
    wait = take(name, most, window_ms)
    if wait:
        raise TooMany("too many attempts", retry_after=wait)
