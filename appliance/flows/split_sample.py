"""How many contacts the test of a random split needs, and how long it takes until they have come.

This is computed before the test and while it runs. The expected rate is that of the flow's runs in the last 90 days; if
there were too few, an assumption. The pace is that of the last 30 days, because the number of contacts varies more from
month to month than the share of those who convert.
"""

from typing import Annotated, Any

from msgspec import Meta, Struct

from appliance.core import clock
from appliance.experiments.sample_size import plan_by_amount, plan_by_rate
from appliance.flows import split_tests
from appliance.flows.branches import LISTED_KEY
from appliance.flows.split_results import CONVERSION_DAYS
from appliance.flows.triggers import MACHINE_EVENT_SQL
from appliance.storage.database import fetch_one
from appliance.tracking import orders

# The expected rates by metric, if there are too few earlier runs
_ASSUMED_RATES = {split_tests.CLICKS: 0.1, split_tests.EVENT: 0.02}
_PERIOD_MS, _PACE_PERIOD_MS = 90 * clock.DAY_MS, 30 * clock.DAY_MS
_PLANNED_LIFT = 0.2
_MIN_RUNS, _MAX_RUNS = 200, 5_000
# The maximum expected rate: a rate near 1 could not rise by 20 %.
_MAX_RATE = 0.8
_RECENT_RUNS = (
    "(SELECT id, contact_id, created_at FROM run WHERE flow_id = :flow AND test = 0 "
    "AND status IN ('live', 'completed', 'exited') AND created_at >= :since ORDER BY id DESC LIMIT :limit)"
)
_COUNT_CLICKED = (
    "SELECT count(*), total(EXISTS (SELECT 1 FROM message m WHERE m.run_id = r.id AND m.clicked_at NOT NULL)) "
    f"FROM {_RECENT_RUNS} r"
)
_COUNT_CONVERTED = (
    "SELECT count(*), total(EXISTS (SELECT 1 FROM event e INDEXED BY event_of_contact "
    "WHERE e.contact_id = r.contact_id AND e.event = :event AND e.created_at >= r.created_at "
    f"AND e.created_at < r.created_at + :window AND e.test = 0 AND {MACHINE_EVENT_SQL.format('e')} IS NOT TRUE)) "
    f"FROM {_RECENT_RUNS} r"
)
# The number of the last days, and when the first of all came: a new flow or step has fewer days.
_COUNT_ARRIVALS = (
    "SELECT count(*) FILTER (WHERE entered_at >= :since), min(entered_at) FROM step_visit "
    "WHERE flow_id = :flow AND action_id = :step AND test = 0"
)
_ENTRIES = "FROM run WHERE flow_id = :flow AND test = 0 AND status IN ('live', 'completed', 'exited')"
_COUNT_ENTRIES = (
    f"SELECT count(*), (SELECT created_at {_ENTRIES} ORDER BY created_at LIMIT 1) {_ENTRIES} AND created_at >= :since"
)


class SplitSample(Struct):
    """The size that a test needs to find a branch that is better by 20 % with a probability of 80 %."""

    variants: Annotated[int, Meta(description="number of branches that are compared")]
    rate: Annotated[float, Meta(description="expected rate of conversions")]
    is_measured: Annotated[bool, Meta(description="whether the rate is that of the last 90 days, not an assumption")]
    needed: Annotated[int, Meta(description="contacts that each branch needs; null if more than a billion")] | None
    per_day: Annotated[float, Meta(description="contacts a day who came to the step in the last 30 days, or the flow")]
    days: Annotated[int, Meta(description="days until the smallest branch has them; null without contacts")] | None


def estimate(account_id: int, flow_id: int, step: dict[str, Any]) -> SplitSample | None:
    """Return what the test of a step with these props needs, or None if it has no test."""
    metric = step.get("metric")
    if step["type"] != split_tests.KIND or metric not in split_tests.METRICS:
        return None
    shares = [item["share"] for item in step[LISTED_KEY] if item["share"]]
    if len(shares) < 2:
        return None
    measured = _measure_rate(flow_id, step)
    rate = min(measured or _ASSUMED_RATES[metric], _MAX_RATE)
    if metric == split_tests.EVENT and step.get("by_amount"):
        typical = orders.find_typical_amount(account_id, step["event_name"])
        needed = plan_by_amount(rate, typical, _PLANNED_LIFT, len(shares))
    else:
        needed = plan_by_rate(rate, _PLANNED_LIFT, len(shares))
    per_day = _measure_pace(flow_id, step)
    days = None
    if needed is not None and per_day:
        days = -int(-needed * sum(shares) // (min(shares) * per_day))
    return SplitSample(len(shares), rate, measured is not None, needed, round(per_day, 2), days)


def _measure_rate(flow_id: int, step: dict[str, Any]) -> float | None:
    """Return the share of the recent runs of a flow that converted, or None if there are few or none did."""
    values = {"flow": flow_id, "since": clock.now_ms() - _PERIOD_MS, "limit": _MAX_RUNS}
    if step["metric"] == split_tests.EVENT:
        row = fetch_one(
            _COUNT_CONVERTED,
            values | {"event": step["event_name"], "window": CONVERSION_DAYS * clock.DAY_MS},
        )
    else:
        row = fetch_one(_COUNT_CLICKED, values)
    runs, converted = row or (0, 0)
    return converted / runs if runs >= _MIN_RUNS and converted else None


def _measure_pace(flow_id: int, step: dict[str, Any]) -> float:
    """Return how many contacts a day reached the step in the last 30 days; if none did, how many entered the flow."""
    now = clock.now_ms()
    values = {"flow": flow_id, "since": now - _PACE_PERIOD_MS}
    for sql, more in ((_COUNT_ARRIVALS, {"step": step["id"]}), (_COUNT_ENTRIES, {})):
        count, first_at = fetch_one(sql, values | more) or (0, None)
        if count:
            return float(count * clock.DAY_MS / max(clock.DAY_MS, min(now - first_at, _PACE_PERIOD_MS)))
    return 0.0
