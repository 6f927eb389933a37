"""Token buckets of API requests: limits are exact, and full buckets are removed."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.accounts import request_limits
from appliance.accounts.request_limits import TokenBuckets
from appliance.core import clock
from appliance.settings.schema import Limits


class ManualClock:
    """A clock that the test sets; it replaces `clock.monotonic`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(clock, "monotonic", lambda: self.now)


@pytest.fixture
def manual_clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    """A clock that moves only when the test sets it."""
    return ManualClock(monkeypatch)


def count_taken(buckets: TokenBuckets, limits: Limits, credential: str = "key:1", maximum: int = 100_000) -> int:
    """Take tokens until none is left or `maximum` is reached, and return their number."""
    for number in range(maximum):
        level = buckets.take(credential, "requests", limits)
        assert level is not None
        if level.retry_after:
            return number
    return maximum


@pytest.mark.parametrize(
    ("rate", "minute", "burst"),
    [("requests", 3000, 300), ("messages", 12000, 1200), ("sends", 120, 60), ("renders", 600, 60)],
)
def test_default_rates_and_bursts(rate: request_limits.RequestClass, minute: int, burst: int) -> None:
    """The default rate per minute and burst of each class are those of docs/decisions.md#4."""
    assert (request_limits.rate_per_minute(rate, Limits()), request_limits.burst_size(rate, minute)) == (minute, burst)


def test_a_burst_then_the_steady_rate(manual_clock: ManualClock) -> None:
    """The burst is available at once, then one token per interval; remaining, reset and retry_after agree with it."""
    limits, buckets = Limits(requests_per_minute=60), TokenBuckets()
    levels = [buckets.take("key:1", "requests", limits) for _ in range(7)]
    assert [level.remaining for level in levels if level] == [5, 4, 3, 2, 1, 0, 0]
    assert [level.reset for level in levels if level] == [1, 2, 3, 4, 5, 6, 6]
    assert [level.retry_after for level in levels if level] == [0] * 6 + [1]
    manual_clock.now += 0.9
    assert count_taken(buckets, limits) == 0
    manual_clock.now += 0.1
    assert count_taken(buckets, limits) == 1
    manual_clock.now += 3600
    assert count_taken(buckets, limits) == 6


def test_the_exceeded_limit_is_named(manual_clock: ManualClock) -> None:
    """`exceeded` is the burst limit, or the minute limit once a minute's worth was taken."""
    limits, buckets = Limits(requests_per_minute=60), TokenBuckets()

    def exhaust() -> request_limits.BucketLevel:
        count_taken(buckets, limits)
        level = buckets.take("key:1", "requests", limits)
        assert level is not None and level.retry_after == 1
        return level

    assert (exhaust().exceeded, exhaust().burst, exhaust().limit) == ("burst", 6, 60)
    for _ in range(53):
        manual_clock.now += 1
        assert exhaust().exceeded == "burst"
    manual_clock.now += 1
    assert exhaust().exceeded == "minute"
    manual_clock.now += 6
    assert exhaust().exceeded == "burst"


def test_credentials_and_classes_have_separate_buckets(manual_clock: ManualClock) -> None:
    """Requests of one credential or class leave the others' buckets unchanged."""
    limits, buckets = Limits(requests_per_minute=60), TokenBuckets()
    assert count_taken(buckets, limits, "key:1") == count_taken(buckets, limits, "user:1") == 6
    level = buckets.take("key:1", "sends", limits)
    assert level is not None and level.remaining == 59


def test_zero_turns_a_limit_off(manual_clock: ManualClock) -> None:
    """With a limit of 0 there is no bucket."""
    assert TokenBuckets().take("key:1", "requests", Limits(requests_per_minute=0)) is None


def test_full_buckets_are_removed(manual_clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Buckets that are full again are removed, so that few are stored for any number of credentials."""
    monkeypatch.setattr(request_limits, "_MAX_BUCKETS", 100)
    limits, buckets = Limits(requests_per_minute=60), TokenBuckets()
    for number in range(1000):
        buckets.take(f"key:{number}", "requests", limits)
        manual_clock.now += 0.5
    assert len(buckets._used) <= 201
    assert count_taken(buckets, limits, "key:1") == 6 and count_taken(buckets, limits, "key:999") == 5


@given(
    st.integers(1, 5000),
    st.lists(st.floats(0, 5, allow_nan=False), min_size=1, max_size=150),
)
def test_buckets_allow_exactly_the_configured_rate(minute: int, pauses: list[float]) -> None:
    """Any period allows at most a burst plus the rate, and a request after retry_after succeeds."""
    limits, buckets, now = Limits(requests_per_minute=minute), TokenBuckets(), 0.0
    original, clock.monotonic = clock.monotonic, lambda: now
    try:
        taken_at, promised = [], None
        for pause in pauses:
            now += pause
            level = buckets.take("key:1", "requests", limits)
            assert level is not None and 0 <= level.remaining <= request_limits.burst_size("requests", minute)
            assert level.reset <= math.ceil(request_limits.burst_size("requests", minute) * 60 / minute)
            if not level.retry_after:
                taken_at.append(now)
                promised = None
            else:
                assert promised is None or now < promised
                promised = min(promised or math.inf, now + level.retry_after)
        for first, begin in enumerate(taken_at):
            for last in range(first, len(taken_at)):
                allowed = (taken_at[last] - begin) * minute / 60 + request_limits.burst_size("requests", minute)
                assert last - first + 1 <= allowed + 1e-3
    finally:
        clock.monotonic = original
