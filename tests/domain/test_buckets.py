"""Buckets of requests: never more than was agreed, never less, and none is kept that says nothing."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.accounts import rate_limits
from appliance.accounts.rate_limits import TokenBuckets
from appliance.core import clock
from appliance.settings.schema import Limits


class Time:
    """The service's clock, put to a moment by the test; its own ticking is a fraction of what is asked about."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(clock, "monotonic", lambda: self.now)


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    """A clock that stands."""
    return Time(monkeypatch)


def took(buckets_: TokenBuckets, limits: Limits, who: str = "key:1", most: int = 100_000) -> int:
    """Take until there is nothing left; returns how many there were."""
    for number in range(most):
        level = buckets_.take(who, "requests", limits)
        assert level is not None
        if level.retry_after:
            return number
    return most


@pytest.mark.parametrize(
    ("rate", "minute", "burst"),
    [("requests", 3000, 300), ("messages", 12000, 1200), ("sends", 120, 60), ("renders", 600, 60)],
)
def test_the_agreed_numbers(rate: rate_limits.RequestClass, minute: int, burst: int) -> None:
    """Out of the box a minute and a burst of each class are what was agreed (docs/decisions.md#4)."""
    assert (rate_limits.rate_per_minute(rate, Limits()), rate_limits.burst_size(rate, minute)) == (minute, burst)


def test_a_burst_and_then_one_by_one(time: Time) -> None:
    """What may come at once comes at once; then one for each part of a minute; the numbers say so each time."""
    limits, held = Limits(requests_per_minute=60), TokenBuckets()
    seen = [held.take("key:1", "requests", limits) for _ in range(7)]
    assert [level.remaining for level in seen if level] == [5, 4, 3, 2, 1, 0, 0]
    assert [level.reset for level in seen if level] == [1, 2, 3, 4, 5, 6, 6]
    assert [level.retry_after for level in seen if level] == [0] * 6 + [1]
    time.now += 0.9
    assert took(held, limits) == 0
    time.now += 0.1
    assert took(held, limits) == 1
    time.now += 3600
    assert took(held, limits) == 6


def test_which_limit_was_reached(time: Time) -> None:
    """As many as may come at once within moments, or as many as a minute allows within one; a pause begins anew."""
    limits, held = Limits(requests_per_minute=60), TokenBuckets()

    def refused() -> rate_limits.BucketLevel:
        took(held, limits)
        level = held.take("key:1", "requests", limits)
        assert level is not None and level.retry_after == 1
        return level

    assert (refused().exceeded, refused().burst, refused().limit) == ("burst", 6, 60)
    for _ in range(53):
        time.now += 1
        assert refused().exceeded == "burst"
    time.now += 1
    assert refused().exceeded == "minute"
    time.now += 6
    assert refused().exceeded == "burst"


def test_credentials_and_classes_are_apart(time: Time) -> None:
    """What one has used up is nobody else's, and of one class alone."""
    limits, held = Limits(requests_per_minute=60), TokenBuckets()
    assert took(held, limits, "key:1") == took(held, limits, "user:1") == 6
    level = held.take("key:1", "sends", limits)
    assert level is not None and level.remaining == 59


def test_off_is_off(time: Time) -> None:
    """With 0 nothing is counted and nothing is said."""
    assert TokenBuckets().take("key:1", "requests", Limits(requests_per_minute=0)) is None


def test_those_that_are_full_are_forgotten(time: Time, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many credentials ask, only those are kept that are not full again."""
    monkeypatch.setattr(rate_limits, "_MAX_BUCKETS", 100)
    limits, held = Limits(requests_per_minute=60), TokenBuckets()
    for number in range(1000):
        held.take(f"key:{number}", "requests", limits)
        time.now += 0.5
    assert len(held._used) <= 201
    assert took(held, limits, "key:1") == 6 and took(held, limits, "key:999") == 5


@given(
    st.integers(1, 5000),
    st.lists(st.floats(0, 5, allow_nan=False), min_size=1, max_size=150),
)
def test_never_more_and_never_less(minute: int, pauses: list[float]) -> None:
    """Over any stretch of time: at most a burst and what the minutes bring, and always one when it was promised."""
    limits, held, now = Limits(requests_per_minute=minute), TokenBuckets(), 0.0
    original, clock.monotonic = clock.monotonic, lambda: now
    try:
        taken, promised = [], None
        for pause in pauses:
            now += pause
            level = held.take("key:1", "requests", limits)
            assert level is not None and 0 <= level.remaining <= rate_limits.burst_size("requests", minute)
            assert level.reset <= math.ceil(rate_limits.burst_size("requests", minute) * 60 / minute)
            if not level.retry_after:
                taken.append(now)
                promised = None
            else:
                assert promised is None or now < promised
                promised = min(promised or math.inf, now + level.retry_after)
        for first, begin in enumerate(taken):
            for last in range(first, len(taken)):
                brought = (taken[last] - begin) * minute / 60 + rate_limits.burst_size("requests", minute)
                assert last - first + 1 <= brought + 1e-3
    finally:
        clock.monotonic = original
