"""Warm-up of a sending domain: daily quotas that grow after good days."""

from typing import Any

import pytest

from appliance.sending.messages import senders
from appliance.sending.messages.senders import DAILY_CAPS, WarmUpDay
from appliance.sending.workers.email_rate_limits import WarmUpQuota
from appliance.sending.workers.rate_limits import AFTER_CHANGE
from appliance.storage import transactions
from appliance.storage.database import rows
from tests.domain.home import Home

DAY = 86_400


def get_today(home: Home) -> WarmUpDay:
    """Return the warm-up day of a domain."""
    return transactions.write(senders.get_or_create_today, "bakery.example")


def count_sent(count: int) -> None:
    """Count this many messages as sent today."""
    transactions.write(senders.count_warm_up_sent, {("bakery.example", senders.get_day_number()): count})


def test_quotas_grow_after_good_days(home: Home) -> None:
    """After each fully used day the next quota of `DAILY_CAPS` follows, and after the last there is no limit."""
    caps = []
    for _ in range(len(DAILY_CAPS) + 2):
        caps.append(get_today(home).cap)
        count_sent(caps[-1] or 50_000)
        home.advance(DAY)
    assert caps == [*DAILY_CAPS, 0, 0]


@pytest.mark.parametrize(
    ("counts", "step"),
    [
        ({"accepted": 60}, 2), ({"accepted": 59}, 1), ({"accepted": 98, "hard": 2}, 1),
        ({"accepted": 98, "hard": 1}, 2),
        ({"accepted": 100, "refused": 6}, 1), ({"accepted": 100, "refused": 4}, 2),
        ({"accepted": 100, "complaints": 1}, 1), ({"accepted": 0}, 1),
    ],
)  # fmt: skip
def test_conditions_for_the_next_step(counts: dict[str, int], step: int) -> None:
    """At least 60% used, less than 2% hard bounces, few policy rejections and, on small days, no complaint."""
    previous = WarmUpDay("bakery.example", 100, 1, 100, **{"accepted": 0, **counts})
    assert senders.get_next_step(previous, 101) == step


def test_large_days_allow_some_complaints() -> None:
    """Fewer than one complaint in a thousand is accepted."""
    fields: dict[str, Any] = {"domain": "b", "day": 1, "step": 12, "cap": 20_000, "accepted": 20_000}
    assert senders.get_next_step(WarmUpDay(**fields, complaints=19), 2) == 13
    assert senders.get_next_step(WarmUpDay(**fields, complaints=20), 2) == 12


def test_a_long_pause_restarts_the_warm_up() -> None:
    """The last day of use counts for 30 days; after that the warm-up starts again."""
    previous = WarmUpDay("bakery.example", 100, 3, 400, 400)
    assert [senders.get_next_step(previous, day) for day in (101, 107, 130, 131)] == [4, 4, 4, 0]


def test_a_warm_up_day_is_created_once(home: Home) -> None:
    """The count of an existing day is kept; another domain has a day of its own."""
    assert get_today(home).accepted == 0
    count_sent(7)
    assert (get_today(home).accepted, get_today(home).cap) == (7, 50)
    assert transactions.write(senders.get_or_create_today, "other.example").accepted == 0
    assert len(rows("SELECT 1 FROM warm_up_day")) == 2


@pytest.mark.parametrize(
    ("accepted", "remaining", "days"), [(50, 100, 1), (50, 101, 2), (0, 50, None), (50, 30_000, 11), (50, 100_000, 13)]
)
def test_estimate_end(accepted: int, remaining: int, days: int | None) -> None:
    """The estimate follows the plan as if every day were good."""
    end = senders.estimate_end(WarmUpDay("b", 1000, 0, 50, accepted), remaining)
    assert end == (None if days is None else (1000 + days) * DAY * 1000)


def test_a_used_up_quota_waits_for_midnight(home: Home) -> None:
    """Messages in progress count until they end; then the quota is full, and a past day's quota never opens."""
    quota = WarmUpQuota(get_today(home))
    for _ in range(50):
        assert quota.allowed_at(5.0) == 5.0
        quota.take(5.0)
    assert quota.allowed_at(5.0) == AFTER_CHANGE and not quota.is_full()
    for _ in range(50):
        quota.count_sent()
        quota.end(True)
    assert quota.is_full() and 5.0 < quota.allowed_at(5.0) <= 5.0 + DAY
    home.advance(DAY)
    assert quota.is_over() and quota.allowed_at(5.0) == AFTER_CHANGE
