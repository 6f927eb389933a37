"""What all campaigns of an account together change: its control group, compared with the contacts who got campaigns.

Both groups are the contacts of the campaigns that left out the control group, each counted from its first of them in
the period. A contact who was left out once is in the control group. As for a holdout, an event counts whether or not
its contact opened or clicked before (docs/decisions.md#22).
"""

from msgspec import Struct

from appliance.core import clock
from appliance.core.cache import CostAwareCache
from appliance.experiments.decision import ConfidenceInterval
from appliance.experiments.evidence import Counts
from appliance.experiments.holdout import measure_holdout, to_interval
from appliance.storage.database import rows

PERIOD_DAYS = 90

_GROUPS = (
    "WITH compared AS MATERIALIZED (SELECT c.id, c.started_at AS at FROM campaign c WHERE c.account_id = :account "
    "AND c.test = 0 AND c.started_at >= :since AND EXISTS (SELECT 1 FROM message m WHERE m.campaign_id = c.id "
    "AND m.skip_reason = 'control_group')), "
    "member AS MATERIALIZED (SELECT m.contact_id AS id, min(c.at) AS at, "
    "max(coalesce(m.skip_reason = 'control_group', 0)) AS held FROM compared c "
    "JOIN message m INDEXED BY message_campaign_contact ON m.campaign_id = c.id WHERE m.contact_id NOT NULL "
    "AND (m.skip_reason = 'control_group' OR m.status NOT IN ('skipped', 'cancelled')) GROUP BY 1) "
)
_COUNT_MEMBERS = f"{_GROUPS} SELECT held, count(*), (SELECT count(*) FROM compared) FROM member GROUP BY 1"
_COUNT_CONVERTED = (
    f"{_GROUPS} SELECT held, count(DISTINCT e.contact_id) FROM event e INDEXED BY event_of_name "
    "JOIN member ON member.id = e.contact_id AND e.created_at >= member.at WHERE e.account_id = :account "
    "AND e.event = :event AND e.created_at >= :since AND e.test = 0 GROUP BY 1"
)


class ControlFigures(Struct):
    """The conversions of both groups in the last `PERIOD_DAYS` days; rates are shares (0.01 is one percent).

    `people` is the number of conversions that the campaigns caused.
    """

    campaigns: int
    recipients: int
    converted: int
    held_out: int
    held_out_converted: int
    difference: ConfidenceInterval
    people: ConfidenceInterval


# Reads all messages of the campaigns of the period.
_cache: CostAwareCache[ControlFigures] = CostAwareCache(min_cost_seconds=0.03)


def measure(account_id: int, event: str) -> ControlFigures:
    """Return the figures of the account's control group for an event."""
    return _cache.get((account_id, event), lambda: _measure(account_id, event))


def _measure(account_id: int, event: str) -> ControlFigures:
    values = {"account": account_id, "event": event, "since": clock.now_ms() - PERIOD_DAYS * clock.DAY_MS}
    members = {held: (number, campaigns) for held, number, campaigns in rows(_COUNT_MEMBERS, values)}
    converted = dict(rows(_COUNT_CONVERTED, values))
    treated, held_out = (
        # A contact may have been added between the two queries.
        Counts(max(members.get(held, (0, 0))[0], converted.get(held, 0)), converted.get(held, 0))
        for held in (0, 1)
    )
    result = measure_holdout(treated, held_out)
    return ControlFigures(
        max((campaigns for _, campaigns in members.values()), default=0), treated.recipients, treated.converted,
        held_out.recipients, held_out.converted, to_interval(result.difference), to_interval(result.people),
    )  # fmt: skip
