"""Which answers ask for less, who belongs together, and what limits and pauses come to over time."""

import random

import pytest

from appliance.core import rate_limit
from appliance.core.errors import ConnectionFailed, Deferred, DeliveryError, RecipientRejected
from appliance.core.rate_limit import HOUR, NEVER, RateLimit, RateLimiter
from appliance.sending.delivery import bounce_classes
from appliance.sending.delivery.mx_routes import get_address_group
from appliance.sending.workers.rate_limits import SILENCE_SECONDS, WINDOW_SECONDS, AdaptiveThrottle


def said(line: str, kind: type[DeliveryError] = Deferred) -> DeliveryError:
    """Return a refusal as a server says it."""
    code, _, text = line.partition(" ")
    enhanced = text.split(" ")[0]
    return kind(line, int(code), enhanced if enhanced.count(".") == 2 else None)


@pytest.mark.parametrize(
    ("line", "less"),
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
def test_what_asks_for_less(line: str, less: bool) -> None:
    """421 and 4.7.x do, and what names a rate; greylisting, full mailboxes and faults of our DNS mean one message."""
    assert bounce_classes.is_rate_limited(said(line)) is less


def test_a_refusal_for_good_never_asks_for_less() -> None:
    """A 5xx, a broken connection and an acceptance are what they are."""
    assert not bounce_classes.is_rate_limited(said("550 5.7.1 rate limit exceeded", RecipientRejected))
    assert not bounce_classes.is_rate_limited(Deferred("the connection broke: too many"))
    assert not bounce_classes.is_rate_limited(None)
    assert bounce_classes.is_rate_limited(
        said("421 4.7.0 busy", ConnectionFailed)
    ) and bounce_classes.limits_all_recipients(said("421 4.7.0 x", ConnectionFailed))


@pytest.mark.parametrize(
    ("address", "group"),
    [("a@gmail.com", "google"), ("a@GoogleMail.com", "google"), ("a@hotmail.fr", "microsoft"), ("a@ymail.com", "yahoo"),
     ("a@mac.com", "apple"), ("a@web.de", "gmx"), ("a@bakery.example", "bakery.example"), ("x@y@gmail.com", "google")],
)  # fmt: skip
def test_who_belongs_together(address: str, group: str) -> None:
    """Domains of a large provider are one group, any other domain is its own."""
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
def test_how_a_limit_is_written(entry: str, limit: RateLimit) -> None:
    """A name, then what is allowed, in words that a person reads back."""
    assert rate_limit.parse_limit(entry) == (entry.split(" ", maxsplit=1)[0].lower(), limit)


@pytest.mark.parametrize("rate", [0.5, 1, 3, 20, 500])
@pytest.mark.parametrize("seed", range(3))
def test_a_rate_is_even(rate: float, seed: int) -> None:
    """However late those come who take the turns: the rate is reached, and never twice of it in any second."""
    chance, kept = random.Random(seed), RateLimiter("x", RateLimit(rate))
    now, taken = 1000.0, []
    while now < 1000 + 60:
        now = max(now, kept.allowed_at(now))
        # Most come on time, a few after a pause of their own
        now += chance.random() * 0.002 if chance.random() < 0.98 else chance.random() * 3
        kept.take(now)
        taken.append(now)
    busiest = max(sum(at <= other < at + 1 for other in taken) for at in taken)
    assert busiest <= max(2 * rate, 1)
    on_time = RateLimiter("x", RateLimit(rate))
    now, count = 1000.0, 0
    while (now := max(now, on_time.allowed_at(now)) + 0.0005) < 1060:
        on_time.take(now)
        count += 1
    assert count >= 60 * rate * 0.95


def test_an_hour_is_any_sixty_minutes() -> None:
    """No sixty minutes hold more than allowed, what did not go after all is not counted, and what went before is."""
    kept = RateLimiter("x", RateLimit(per_hour=3))
    for at in (0.0, 100.0):
        kept.record(at)
    assert kept.allowed_at(200.0) <= 200.0
    kept.take(200.0)
    assert kept.allowed_at(300.0) == HOUR
    kept.end(used=False)
    assert kept.allowed_at(300.0) <= 300.0
    kept.take(300.0)
    assert kept.allowed_at(HOUR - 1) == HOUR and kept.allowed_at(HOUR) <= HOUR


def test_a_number_at_a_time() -> None:
    """The next one waits until one ends."""
    kept = RateLimiter("x", RateLimit(connections=2))
    kept.take(1.0)
    kept.take(1.0)
    assert kept.allowed_at(5.0) == NEVER
    kept.end(used=True)
    assert kept.allowed_at(5.0) <= 5.0


def test_a_group_gets_half_and_pauses_and_comes_back() -> None:
    """Each refusal after a pause halves what goes at a time and doubles the pause; each quiet while gives one back."""
    slow = AdaptiveThrottle("google", usual=8, pause=5)
    slow.record_refusal(0.0, "busy", silence=False)
    slow.record_refusal(0.1, "busy", silence=False)
    assert (slow.max_in_use, slow.paused_until, slow.allowed_at(1.0)) == (4, 5.0, 5.0)
    slow.record_refusal(5.0, "busy", silence=False)
    assert (slow.max_in_use, slow.paused_until) == (2, 15.0)
    now, steps = slow.paused_until, []
    while not slow.record_accepted(now := now + 1):
        steps.append(slow.max_in_use)
    assert slow.max_in_use == 8 and now - slow.paused_until >= 6 * WINDOW_SECONDS and sorted(steps) == steps


def test_a_group_that_has_one_left_is_slowed() -> None:
    """With one at a time refused again, the time between two grows, and shrinks first when it goes well."""
    slow = AdaptiveThrottle("google", usual=1, pause=5)
    for _ in range(4):
        slow.record_refusal(slow.paused_until, "busy", silence=False)
    now = slow.paused_until
    slow.take(now)
    slow.end(used=True)
    assert slow.allowed_at(now + 1) == now + 4.0
    assert slow.paused_until <= SILENCE_SECONDS * 4


def test_silence_lasts_ten_minutes_and_begins_with_one() -> None:
    """4.7.28: nothing for ten minutes, then one at a time, then one more for each quiet while."""
    slow = AdaptiveThrottle("google", usual=10, pause=5)
    slow.record_refusal(7.0, "4.7.28", silence=True)
    assert slow.allowed_at(8.0) == 607.0
    slow.take(607.0)
    assert slow.allowed_at(607.0) == NEVER
    assert not slow.record_accepted(608.0) and slow.max_in_use == 1
    assert not slow.record_accepted(608.0 + WINDOW_SECONDS) and slow.max_in_use == 2


def test_many_taken_in_a_row_end_the_slowness_sooner() -> None:
    """Where one after the other is taken, the pause between two goes first and within few, then more go at a time."""
    slow = AdaptiveThrottle("google", usual=3, pause=5)
    for _ in range(4):
        slow.record_refusal(slow.paused_until, "busy", silence=False)
    now, taken = slow.paused_until, 0
    while not slow.record_accepted(now := now + 0.01):
        taken += 1
    assert slow.max_in_use == 3 and 100 <= taken <= 150 and now < slow.paused_until + 5
