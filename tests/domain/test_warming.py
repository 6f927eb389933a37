"""A sending domain's beginning: larger days after good ones, the same again after others, by the ledger's counts."""

from typing import Any

import pytest

from appliance.core.rate_limit import NEVER
from appliance.sending.messages import senders
from appliance.sending.messages.senders import DAILY_CAPS, WarmUpDay
from appliance.sending.workers.email_rate_limits import WarmUpQuota
from appliance.storage import transactions
from appliance.storage.database import rows
from tests.domain.home import Home

DAY = 86_400


def today(home: Home) -> WarmUpDay:
    """Return the day of a domain."""
    return transactions.write(senders.get_or_create_today, "bakery.example")


def spend(count: int) -> None:
    """Let so many be taken today."""
    transactions.write(senders.count_warm_up_sent, {"bakery.example": count})


def test_good_days_lead_through_the_plan(home: Home) -> None:
    """Each day that was used is followed by the next size; after the last there is no limit any more."""
    seen = []
    for _ in range(len(DAILY_CAPS) + 2):
        seen.append(today(home).cap)
        spend(seen[-1] or 50_000)
        home.advance(DAY)
    assert seen == [*DAILY_CAPS, 0, 0]


@pytest.mark.parametrize(
    ("counts", "step"),
    [
        ({"accepted": 60}, 2), ({"accepted": 59}, 1), ({"accepted": 98, "hard": 2}, 1),
        ({"accepted": 98, "hard": 1}, 2),
        ({"accepted": 100, "refused": 6}, 1), ({"accepted": 100, "refused": 4}, 2),
        ({"accepted": 100, "complaints": 1}, 1), ({"accepted": 0}, 1),
    ],
)  # fmt: skip
def test_what_a_larger_day_needs(counts: dict[str, int], step: int) -> None:
    """Six tenths used, fewer than 2 % in vain, than 5 % refused for what we are, and nobody of few complains."""
    before = WarmUpDay("bakery.example", 100, 1, 100, **{"accepted": 0, **counts})
    assert senders.get_next_step(before, 101) == step


def test_large_days_bear_some_complaints() -> None:
    """One in a thousand is too many, fewer are not."""
    kept: dict[str, Any] = {"domain": "b", "day": 1, "step": 12, "cap": 20_000, "accepted": 20_000}
    assert senders.get_next_step(WarmUpDay(**kept, complaints=19), 2) == 13
    assert senders.get_next_step(WarmUpDay(**kept, complaints=20), 2) == 12


def test_a_weekly_letter_goes_on_and_a_long_silence_begins_anew() -> None:
    """The last day of use counts, as long as somebody remembers it."""
    before = WarmUpDay("bakery.example", 100, 3, 400, 400)
    assert [senders.get_next_step(before, day) for day in (101, 107, 130, 131)] == [4, 4, 4, 0]


def test_a_day_is_the_same_however_often_it_is_asked(home: Home) -> None:
    """What was counted stays; another domain has a day of its own."""
    assert today(home).accepted == 0
    spend(7)
    assert (today(home).accepted, today(home).cap) == (7, 50)
    assert transactions.write(senders.get_or_create_today, "other.example").accepted == 0
    assert len(rows("SELECT 1 FROM warm_up_day")) == 2


@pytest.mark.parametrize(
    ("accepted", "left", "days"), [(50, 100, 1), (50, 101, 2), (0, 50, None), (50, 30_000, 11), (50, 100_000, 13)]
)
def test_when_it_may_be_done(accepted: int, left: int, days: int | None) -> None:
    """By the plan, if every day goes well."""
    found = senders.estimate_end(WarmUpDay("b", 1000, 0, 50, accepted), left)
    assert found == (None if days is None else (1000 + days) * DAY * 1000)


def test_a_quota_opens_with_its_next_day(home: Home) -> None:
    """What is at work may still be refused; once all went it waits for midnight, and a day that is over has none."""
    quota = WarmUpQuota(today(home))
    for _ in range(50):
        assert quota.allowed_at(5.0) == 5.0
        quota.take(5.0)
    assert quota.allowed_at(5.0) == NEVER and not quota.is_full()
    for _ in range(50):
        quota.count_sent()
        quota.end(True)
    assert quota.is_full() and 5.0 < quota.allowed_at(5.0) <= 5.0 + DAY
    home.advance(DAY)
    assert quota.is_over() and quota.allowed_at(5.0) == NEVER
