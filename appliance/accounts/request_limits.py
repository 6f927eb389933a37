"""Limits of requests (docs/decisions.md#4): rates of sign-ins and API requests, and idempotency keys.

Sign-ins: at most `limits.login_attempts` failures within 15 minutes for each email address and for each client. At the
limit, even the right password is refused. An attempt that is still being verified counts too, so that concurrent
guesses cannot exceed the limit.

API requests: a token bucket for each credential and class of request. Both limits are kept in memory: a restart resets
them.

Idempotency keys: for 7 days, a repeated request with the same key gets the first response.
"""

import hashlib
import json
import math
import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

from appliance.core import addresses, clock
from appliance.core.errors import Conflict, Invalid, RateLimitExceeded
from appliance.core.i18n import gettext
from appliance.settings import config
from appliance.settings.schema import Limits
from appliance.storage.database import rows, run
from appliance.storage.models import Idempotency
from appliance.storage.transactions import require_write_transaction

FAILURE_WINDOW_MS = 15 * 60 * 1000
# Above this number of counters, those with the oldest last failure are deleted.
_MAX_COUNTERS = 20_000
_MAX_EMAIL_CHARACTERS = 254

_lock = threading.Lock()
_failures: OrderedDict[str, deque[int]] = OrderedDict()
_running: Counter[str] = Counter()


class Attempt:
    """A sign-in attempt while it is being verified; it counts as successful unless `fail` is called."""

    has_failed = False

    def fail(self) -> None:
        """Mark the attempt as failed, so that it counts for 15 minutes."""
        self.has_failed = True


def email_key(email: str) -> str:
    """Return the counter name of an email address; spellings that differ only in case share a counter."""
    try:
        return f"email:{addresses.parse_email(email).key}"
    except ValueError:
        # A longer text is not an address, and composing megabytes takes seconds (T22 in docs/threats.md).
        return f"email:{addresses.lowercase(email.strip()[:_MAX_EMAIL_CHARACTERS])[:_MAX_EMAIL_CHARACTERS]}"


def client_key(ip: str) -> str:
    """Return the counter name of a client IP address; IPv6 addresses of one network share a counter."""
    return f"client:{addresses.client_network(ip)}"


@contextmanager
def limit_attempt(*names: str) -> Iterator[Attempt]:
    """Count a sign-in attempt on the named counters while it is verified in the `with` block.

    Afterwards only a failed attempt still counts. Raises RateLimitExceeded if a counter is at its limit.
    """
    _reserve(names)
    attempt = Attempt()
    try:
        yield attempt
    finally:
        with _lock:
            _settle(names, attempt.has_failed)


def record_failure(*names: str) -> int:
    """Record a failed attempt on the named counters, and return the largest number of failures within 15 minutes."""
    now = clock.now_ms()
    with _lock:
        for name in names:
            _running[name] += 1  # `_settle` subtracts it again.
        _settle(names, is_wrong=True)
        return max(sum(now - FAILURE_WINDOW_MS < at <= now for at in _failures[name]) for name in names)


def clear_failures(*names: str) -> None:
    """Delete the failures on the named counters, after a successful sign-in."""
    with _lock:
        for name in names:
            _failures.pop(name, None)


def _reserve(names: tuple[str, ...]) -> None:
    limit, now = config.current().limits.login_attempts, clock.now_ms()
    with _lock:
        for name in names:
            times = _failures.get(name, deque())
            while times and not now - FAILURE_WINDOW_MS < times[0] <= now:
                times.popleft()
            if len(times) >= limit:
                wait = (times[0] + FAILURE_WINDOW_MS - now) // 1000 + 1
                raise RateLimitExceeded(gettext("Too many failed attempts."), retry_after=max(1, wait))
            if len(times) + _running[name] >= limit:
                raise RateLimitExceeded(gettext("Too many attempts at once."), retry_after=1)
        _running.update(names)


def _settle(names: tuple[str, ...], is_wrong: bool) -> None:
    now = clock.now_ms()
    for name in names:
        _running[name] -= 1
        if _running[name] <= 0:
            del _running[name]
        if is_wrong:
            _failures.setdefault(name, deque(maxlen=1000)).append(now)
            _failures.move_to_end(name)
    while len(_failures) > _MAX_COUNTERS:
        _failures.popitem(last=False)


RequestClass = Literal["requests", "messages", "sends", "renders"]

# The burst size is the rate per minute divided by this number.
_BURST_DIVISORS = {"sends": 2}
_DEFAULT_BURST_DIVISOR = 10
_MAX_BUCKETS = 10_000
# The largest number of entries of a batch, which may take more tokens than are left (`TokenBuckets.charge`).
MAX_CHARGE = 500


class BucketLevel(NamedTuple):
    """The state of a token bucket after a request.

    `limit` is the rate per minute, `remaining` the number of tokens left, `reset` the seconds until the bucket is full.
    For a refused request, `retry_after` is the seconds to wait, `exceeded` the limit that was reached, and `burst` the
    burst size.
    """

    limit: int
    remaining: int
    reset: int
    retry_after: int = 0
    exceeded: Literal["burst", "minute"] | None = None
    burst: int = 0

    @property
    def headers(self) -> dict[str, str]:
        """The `RateLimit-*` headers of a response."""
        return {
            "RateLimit-Limit": str(self.limit), "RateLimit-Remaining": str(self.remaining),
            "RateLimit-Reset": str(self.reset),
        }  # fmt: skip


class _Use(NamedTuple):
    """When a bucket will be full again, and since when it has not been full, in seconds of `clock.monotonic`."""

    full_at: float
    since: float


class TokenBuckets:
    """The token buckets of all credentials; there is no lock, so use them on the event loop only."""

    def __init__(self) -> None:
        # The use of each bucket by credential and class of request. A full bucket needs no entry.
        self._used: dict[tuple[str, str], _Use] = {}
        self._max_entries = _MAX_BUCKETS

    def take(self, credential: str, rate: RequestClass, limits: Limits) -> BucketLevel | None:
        """Take a token for a request and return the state of the bucket; None if the class of request is not limited.

        If no token is left, the state has `exceeded` and `retry_after`, and the request must be refused.
        """
        minute = rate_per_minute(rate, limits)
        if minute == 0:
            return None
        now, seconds_each = clock.monotonic(), 60 / minute
        burst = burst_size(rate, minute)
        # The two `min` below matter only when a test has set the clock back.
        use = self._used.get((credential, rate))
        use = use if use is not None and use.full_at > now else _Use(now, now)
        full_at = min(use.full_at, now + (burst + MAX_CHARGE) * seconds_each)
        excess = full_at + seconds_each - now - burst * seconds_each
        if excess > 1e-9:
            taken_count = burst + (now - use.since) / seconds_each
            exceeded: Literal["burst", "minute"] = "minute" if taken_count >= minute else "burst"
            return BucketLevel(minute, 0, math.ceil(full_at - now), max(1, math.ceil(excess)), exceeded, burst)
        full_at += seconds_each
        self._used[credential, rate] = _Use(full_at, min(use.since, now))
        if len(self._used) > self._max_entries:
            self._forget(now)
        return BucketLevel(minute, int(burst - (full_at - now) / seconds_each + 1e-6), math.ceil(full_at - now))

    def charge(self, credential: str, rate: RequestClass, limits: Limits, count: int) -> BucketLevel | None:
        """Remove up to `MAX_CHARGE` more tokens for an admitted request, and return the state of the bucket.

        If fewer tokens are left, the bucket goes into debt, and later requests wait. None means that the class of
        request is not limited.
        """
        minute = rate_per_minute(rate, limits)
        if minute == 0:
            return None
        now, seconds_each, burst = clock.monotonic(), 60 / minute, burst_size(rate, minute)
        use = self._used.get((credential, rate), _Use(now, now))
        full_at = max(now, use.full_at) + max(0, min(count, MAX_CHARGE)) * seconds_each
        self._used[credential, rate] = _Use(full_at, min(use.since, now))
        remaining = max(0, int(burst - (full_at - now) / seconds_each + 1e-6))
        return BucketLevel(minute, remaining, math.ceil(full_at - now))

    def _forget(self, now: float) -> None:
        """Delete the entries of full buckets.

        The next deletion is due when the number of entries has doubled, but not below `_MAX_BUCKETS`.
        """
        self._used = {name: use for name, use in self._used.items() if use.full_at > now}
        self._max_entries = max(_MAX_BUCKETS, 2 * len(self._used))


def rate_per_minute(rate: RequestClass, limits: Limits) -> int:
    """Return how many requests of the class `rate` are allowed per minute; 0 means no limit."""
    number: int = getattr(limits, f"{rate}_per_minute")
    return number


def burst_size(rate: RequestClass, minute: int) -> int:
    """Return how many requests of the class `rate` may be made at once, at least 1.

    The burst is half of the requests allowed per minute (`minute`) for sends, else a tenth.
    """
    return max(1, minute // _BURST_DIVISORS.get(rate, _DEFAULT_BURST_DIVISOR))


RETENTION_MS = 7 * clock.DAY_MS


class OnceResult(NamedTuple):
    """The id of the created resource (0 for none), and whether an earlier request with the same key created it."""

    resource_id: int
    is_replay: bool


def hash_payload(payload: Any) -> str:
    """Return the SHA-256 of a payload as hex; the order of its keys does not matter."""
    # The standard encoder accepts what msgspec rejects, such as half of a surrogate pair in a field that is ignored.
    text = json.dumps(payload, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def validate_idempotency_key(key: str, field: str = "Idempotency-Key") -> None:
    """Raise Invalid for `field` unless the key has 1 to 255 characters, all printable."""
    if not (1 <= len(key) <= 255 and key.isprintable()):
        raise Invalid({field: [gettext("is invalid")]})


def run_once(
    account_id: int, path: str, key: str | None, payload: Any, function: Callable[[], int | None], test: bool = False
) -> OnceResult:
    """Call `function` once for a key and return the id that it created; a repeat returns the stored id instead.

    With `key=None`, `function` is always called. If `function` returns None, nothing was created: nothing is stored,
    and `resource_id` is 0. The same key may be used again for another path, and by test requests. A key expires after
    `RETENTION_MS`. Raises Conflict if the key was used with another payload.

    The key is stored in the same transaction as the changes of `function`, so a failed request can be repeated.
    """
    require_write_transaction()
    if key is None:
        return OnceResult(function() or 0, False)
    path += "?test" if test else ""
    payload_hash, now = hash_payload(payload), clock.now_ms()
    row = Idempotency.get_or_none(Idempotency.account == account_id, Idempotency.path == path, Idempotency.key == key)
    if row is not None and row.created_at < now - RETENTION_MS:
        row.delete_instance()
        row = None
    if row is not None:
        if row.payload_hash != payload_hash:
            raise Conflict(gettext("This Idempotency-Key was used for another request."), code="idempotency_conflict")
        return OnceResult(int(row.resource_id), True)
    resource_id = function()
    if resource_id is None:
        return OnceResult(0, False)
    Idempotency.create(
        account=account_id, path=path, key=key, payload_hash=payload_hash, resource_id=resource_id, created_at=now
    )
    return OnceResult(resource_id, False)


def find_expired_keys(limit: int) -> list[int]:
    """Return the ids of up to `limit` rows older than `RETENTION_MS`."""
    expired = rows("SELECT id FROM idempotency WHERE created_at < ? LIMIT ?", (clock.now_ms() - RETENTION_MS, limit))
    return [row[0] for row in expired]


def delete_expired_keys(ids: list[int]) -> int:
    """Delete the rows with these ids and return their number.

    A background job deletes them in batches, so that no request waits while a day's rows are deleted.
    """
    require_write_transaction()
    return run(f"DELETE FROM idempotency WHERE id IN ({','.join(map(str, ids))})")
