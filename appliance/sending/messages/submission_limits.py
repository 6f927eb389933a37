"""Count the recipients that each API key has sent to by SMTP within an hour, so that a hacked site is stopped.

The counts are kept in memory, and read from the stored emails at the first submission with a key after a start.
"""

import threading
from collections import deque

from appliance.core import clock
from appliance.core.errors import RateLimitExceeded
from appliance.core.i18n import gettext
from appliance.storage.database import rows
from appliance.storage.transactions import require_write_transaction

WINDOW_MS, _MINUTE_MS = 60 * 60 * 1000, 60_000
_lock = threading.Lock()
# By key: the minutes with submissions, and the number of recipients in each.
_minutes: dict[int, deque[tuple[int, int]]] = {}


def check(key_id: int, limit: int, count: int) -> None:
    """Raise RateLimitExceeded if `count` more recipients exceed the limit of a key; 0 means no limit."""
    with _lock:
        _check(key_id, limit, count)


def take(key_id: int, limit: int, count: int) -> None:
    """Count the recipients of an email that is being queued. Raises RateLimitExceeded, without counting, as `check`."""
    require_write_transaction()
    with _lock:
        if key_id not in _minutes:
            _minutes[key_id] = deque(_read(key_id))
        _check(key_id, limit, count)
        minute, minutes = clock.now_ms() // _MINUTE_MS, _minutes[key_id]
        if minutes and minutes[-1][0] == minute:
            count += minutes.pop()[1]
        minutes.append((minute, count))


def forget() -> None:
    """Forget all counts; for tests, which open several databases in one process."""
    with _lock:
        _minutes.clear()


def _check(key_id: int, limit: int, count: int) -> None:
    minutes = _minutes.get(key_id)
    if not limit or minutes is None:
        return
    now = clock.now_ms()
    while minutes and not now - WINDOW_MS < (minutes[0][0] + 1) * _MINUTE_MS <= now + _MINUTE_MS:
        minutes.popleft()
    if sum(number for _, number in minutes) + count > limit:
        end_ms = (minutes[0][0] + 1) * _MINUTE_MS + WINDOW_MS if minutes else now + WINDOW_MS
        raise RateLimitExceeded(gettext("Too many recipients within an hour."), max(1, (end_ms - now) // 1000))


def _read(key_id: int) -> list[tuple[int, int]]:
    return rows(
        f"SELECT created_at / {_MINUTE_MS}, sum(recipient_count) FROM raw_message WHERE api_key_id = ? "
        "AND created_at > ? GROUP BY 1 ORDER BY 1",
        (key_id, clock.now_ms() - WINDOW_MS),
    )
