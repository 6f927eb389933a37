"""Rate limits: replies that ask for less, recipient groups, and the limits and pauses that follow."""

import random

import pytest

from appliance.core.errors import ConnectionFailed, Deferred, DeliveryError, RecipientRejected
from appliance.sending.delivery import bounce_classes
from appliance.sending.delivery.mx_routes import get_address_group
from appliance.sending.workers.rate_limits import (
    AFTER_CHANGE,
    HOUR_SECONDS,
    LONG_PAUSE_SECONDS,
    WINDOW_SECONDS,
    AdaptiveThrottle,
    RateLimiter,
)
from appliance.settings.config import RateLimit, parse_limit


def build_error(line: str, kind: type[DeliveryError] = Deferred) -> DeliveryError:
    """Return the error of a server's reply."""
    code, _, text = line.partition(" ")
    enhanced = text.split(" ")[0]
    return kind(line, int(code), enhanced if enhanced.count(".") == 2 else None)


@pytest.mark.parametrize(
    ("line", "is_limited"),
    [
        ("421 4.7.0 [TSS04] Messages from 192.0.2.1 temporarily deferred", True),
        ("421 4.7.28 Gmail has detected an unusual rate of unsolicited mail", True),
        ("450 4.7.28 unusual rate", True),
        ("421 RP-001 The mail server exceeded the rate limit", True),
        ("421 too many connections", True),
        ("451 4.7.500 Server busy. Please try again later", True),
        ("451 4.7.650 The mail server has been temporarily rate limited", True),
        ("454 Throttling failure: Maximum sending rate exceeded", True),
        ("450 4.7.1 Error: too much mail from 192.0.2.1", True),
        ("451 4.7.1 Greylisting in action, please come back later", False),
        ("450 4.7.0 Greylisted", False),
        ("451 4.7.1 Try again later", False),
        ("450 4.2.0 Greylisted", False),
        ("450 4.2.1 The user you are trying to contact is receiving mail at a rate that", False),
        ("452 4.2.2 mailbox full: over quota", False),
        ("451 4.7.26 unauthenticated mail is rate limited", False),
        ("451 4.3.0 local error", False),
    ],
)
def test_is_rate_limited(line: str, is_limited: bool) -> None:
    """Replies about a rate are rate limits; greylisting, full mailboxes and authentication errors are not."""
    assert bounce_classes.is_rate_limited(build_error(line)) is is_limited


def test_other_errors_are_not_rate_limits() -> None:
    """Permanent rejections, lost connections and acceptance are not; a 421 at connecting limits all recipients."""
    assert not bounce_classes.is_rate_limited(build_error("550 5.7.1 rate limit exceeded", RecipientRejected))
    assert not bounce_classes.is_rate_limited(Deferred("the connection broke: too many"))
    assert not bounce_classes.is_rate_limited(None)
    assert bounce_classes.is_rate_limited(
        build_error("421 4.7.0 busy", ConnectionFailed)
    ) and bounce_classes.limits_all_recipients(build_error("421 4.7.0 x", ConnectionFailed))


@pytest.mark.parametrize(
    ("address", "group"),
    [("a@gmail.com", "google"), ("a@GoogleMail.com", "google"), ("a@hotmail.fr", "microsoft"), ("a@ymail.com", "yahoo"),
     ("a@mac.com", "apple"), ("a@web.de", "gmx"), ("a@bakery.example", "bakery.example"), ("x@y@gmail.com", "google")],
)  # fmt: skip
def test_recipient_groups(address: str, group: str) -> None:
    """Domains of a large provider are one group; any other domain is a group by itself."""
    assert get_address_group(address) == group


@pytest.mark.parametrize(
    ("entry", "limit"),
    [
        ("google 10/s 4 connections", RateLimit(10, 0, 4)),
        ("Example.org 0.5/s", RateLimit(0.5)),
        ("a.b 200/h", RateLimit(0, 200)),
        ("a.b 1 connection", RateLimit(0, 0, 1)),
        ("a.b 3/s 200/h 2 connections", RateLimit(3, 200, 2)),
    ],
)
def test_parse_limit(entry: str, limit: RateLimit) -> None:
    """A limit is a domain or group name followed by a rate, an hourly number and connections."""
    assert parse_limit(entry) == (entry.split(" ", maxsplit=1)[0].lower(), limit)


@pytest.mark.parametrize("rate", [0.5, 1, 3, 20, 500])
@pytest.mark.parametrize("seed", range(3))
def test_the_rate_is_even(rate: float, seed: int) -> None:
    """With delays at random no second gets more than twice the rate; without them at least 95% of it is used."""
    rng, limiter = random.Random(seed), RateLimiter("x", RateLimit(rate))
    now, times = 1000.0, []
    while now < 1000 + 60:
        now = max(now, limiter.allowed_at(now))
        # Most calls are on time, a few come after a delay
        now += rng.random() * 0.002 if rng.random() < 0.98 else rng.random() * 3
        limiter.take(now)
        times.append(now)
    busiest = max(sum(at <= later < at + 1 for later in times) for at in times)
    assert busiest <= max(2 * rate, 1)
    on_time = RateLimiter("x", RateLimit(rate))
    now, count = 1000.0, 0
    while (now := max(now, on_time.allowed_at(now)) + 0.0005) < 1060:
        on_time.take(now)
        count += 1
    assert count >= 60 * rate * 0.95


def test_the_hourly_limit_is_a_sliding_window() -> None:
    """Any 60 minutes have at most the allowed number; attempts that were not used do not count."""
    limiter = RateLimiter("x", RateLimit(per_hour=3))
    for at in (0.0, 100.0):
        limiter.record(at)
    assert limiter.allowed_at(200.0) <= 200.0
    limiter.take(200.0)
    assert limiter.allowed_at(300.0) == HOUR_SECONDS
    limiter.end(was_sent=False)
    assert limiter.allowed_at(300.0) <= 300.0
    limiter.take(300.0)
    assert limiter.allowed_at(HOUR_SECONDS - 1) == HOUR_SECONDS and limiter.allowed_at(HOUR_SECONDS) <= HOUR_SECONDS


def test_the_number_of_connections_is_limited() -> None:
    """The next connection is allowed when one ends."""
    limiter = RateLimiter("x", RateLimit(connections=2))
    limiter.take(1.0)
    limiter.take(1.0)
    assert limiter.allowed_at(5.0) == AFTER_CHANGE
    limiter.end(was_sent=True)
    assert limiter.allowed_at(5.0) <= 5.0


def test_a_throttle_halves_and_recovers() -> None:
    """Each refusal after a pause halves the number in use and doubles the pause; quiet time raises it step by step."""
    throttle = AdaptiveThrottle("google", usual=8, pause=5)
    throttle.slow_down(0.0, "busy", is_long=False)
    throttle.slow_down(0.1, "busy", is_long=False)
    assert (throttle.max_in_use, throttle.paused_until, throttle.allowed_at(1.0)) == (4, 5.0, 5.0)
    throttle.slow_down(5.0, "busy", is_long=False)
    assert (throttle.max_in_use, throttle.paused_until) == (2, 15.0)
    now, limits = throttle.paused_until, []
    while not throttle.record_accepted(now := now + 1):
        limits.append(throttle.max_in_use)
    assert throttle.max_in_use == 8 and now - throttle.paused_until >= 6 * WINDOW_SECONDS and sorted(limits) == limits


def test_a_throttle_at_one_message_adds_an_interval() -> None:
    """After four refusals with one message at a time, four seconds pass between two messages."""
    throttle = AdaptiveThrottle("google", usual=1, pause=5)
    for _ in range(4):
        throttle.slow_down(throttle.paused_until, "busy", is_long=False)
    now = throttle.paused_until
    throttle.take(now)
    throttle.end(was_sent=True)
    assert throttle.allowed_at(now + 1) == now + 4.0
    assert throttle.paused_until <= LONG_PAUSE_SECONDS * 4


def test_silence_lasts_ten_minutes() -> None:
    """After a 4.7.28 nothing is sent for ten minutes, then one message at a time, then one more per quiet window."""
    throttle = AdaptiveThrottle("google", usual=10, pause=5)
    throttle.slow_down(7.0, "4.7.28", is_long=True)
    assert throttle.allowed_at(8.0) == 607.0
    throttle.take(607.0)
    assert throttle.allowed_at(607.0) == AFTER_CHANGE
    assert not throttle.record_accepted(608.0) and throttle.max_in_use == 1
    assert not throttle.record_accepted(608.0 + WINDOW_SECONDS) and throttle.max_in_use == 2


def test_many_accepted_messages_end_the_throttle() -> None:
    """Some 100 accepted messages in a row end it before the quiet time is over."""
    throttle = AdaptiveThrottle("google", usual=3, pause=5)
    for _ in range(4):
        throttle.slow_down(throttle.paused_until, "busy", is_long=False)
    now, accepted_count = throttle.paused_until, 0
    while not throttle.record_accepted(now := now + 0.01):
        accepted_count += 1
    assert throttle.max_in_use == 3 and 100 <= accepted_count <= 150 and now < throttle.paused_until + 5


def test_the_fiftieth_accepted_message_recovers_a_step() -> None:
    """A throttled group gets one more connection after 50 accepted messages, and not before."""
    throttle = AdaptiveThrottle("google", usual=8, pause=5)
    throttle.slow_down(0.0, "slow down", is_long=False)
    for _ in range(49):
        throttle.record_accepted(6.0)
    assert throttle.max_in_use == 4
    throttle.record_accepted(6.0)
    assert throttle.max_in_use == 5
