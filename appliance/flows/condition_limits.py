"""Limits on what the conditions of flows may cost, so that one flow does not hold up other flows and accounts.

The cost is counted by `audience.segments.condition_budget`. The figures are in docs/decisions.md#12.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from appliance.accounts import audit
from appliance.audience.segments.condition_budget import NOTHING, Cost, get_spent, limit_statement
from appliance.core import clock, signals
from appliance.events import log as events
from appliance.events.log import NewEvent
from appliance.storage.models import Flow
from appliance.storage.transactions import after_commit, require_write_transaction

log = logging.getLogger("campanero.flows")


# For one flow, and for all flows of an account, in a batch of events. As a measure: five conditions on 200 events of
# each contact, for 1,000 events of 1,000 contacts, cost 11,400,000 steps and less than half a second.
MAX_FLOW = Cost(60_000_000, 5.0)
MAX_ACCOUNT = Cost(120_000_000, 10.0)
# For one statement in a write transaction, for which all requests wait: about a quarter of a second.
MAX_WRITE = Cost(6_000_000, 0.25)
# What each statement may cost even if the account has used up its budget, so that simple flows are not paused for the
# sake of a costly one.
_MIN_STATEMENT = Cost(1_000_000, 0.05)


class Budget:
    """What the conditions of an account's flows may cost together, and those of one flow alone."""

    def __init__(self, total: Cost = MAX_ACCOUNT, single: Cost = MAX_FLOW) -> None:
        self._total, self._single = total, single
        self._used: dict[int, Cost] = {}  # by flow id

    @contextmanager
    def charge(self, flow_id: int) -> Iterator[None]:
        """Charge the SQL statement in the `with` block to a flow; raise ConditionsTooSlow if it costs too much.

        The block must not write, because an interrupted write would roll back the whole transaction. The limit applies
        only to the database connection of this thread.
        """
        spent = get_spent()
        try:
            with limit_statement(self._find_limit(flow_id)):
                yield
        finally:
            self._used[flow_id] = self._used.get(flow_id, NOTHING).plus(get_spent().minus(spent))

    def _find_limit(self, flow_id: int) -> Cost:
        total = NOTHING
        for cost in self._used.values():
            total = total.plus(cost)
        of_flow, of_account = self._single.minus(self._used.get(flow_id, NOTHING)), self._total.minus(total)
        return Cost(
            max(min(of_flow.steps, of_account.steps), _MIN_STATEMENT.steps),
            max(min(of_flow.seconds, of_account.seconds), _MIN_STATEMENT.seconds),
        )


def write_budget() -> Budget:
    """Return the budget for conditions that are evaluated in one write transaction."""
    return Budget(MAX_WRITE, MAX_WRITE)


@contextmanager
def limit_write() -> Iterator[None]:
    """Limit one SQL statement in a write transaction to `MAX_WRITE`; raises ConditionsTooSlow, as `Budget.charge`."""
    with write_budget().charge(0):
        yield


# The `pause_reason` of a flow that `pause_slow_flow` paused.
SLOW_CONDITIONS = "slow_conditions"


def pause_slow_flow(flow_id: int) -> None:
    """Pause an active flow whose conditions cost more than they may; do nothing if it is not active.

    Its runs stay at their steps. Records the event `flow_paused` and an audit entry, both with the reason.
    """
    require_write_transaction()
    flow = Flow.get_or_none(Flow.id == flow_id, Flow.status == "active", Flow.deleted_at.is_null())
    if flow is None:
        return
    now = clock.now_ms()
    flow.status, flow.paused_at, flow.pause_reason = "paused", now, SLOW_CONDITIONS
    flow.updated_at = max(now, flow.updated_at + 1)
    flow.save(only=[Flow.status, Flow.paused_at, Flow.pause_reason, Flow.updated_at])
    data = {"name": flow.name, "reason": SLOW_CONDITIONS}
    audit.insert_entry(flow.account_id, audit.SYSTEM, "flow_pause", f"flow:{flow.id}", data)
    events.record(
        NewEvent(
            flow.account_id, "flow_paused", None, {"flow_id": flow.id, "reason": SLOW_CONDITIONS},
            resource_uid=f"flow:{flow.id}", resource_name=flow.name, test=flow.test,
        )
    )  # fmt: skip
    log.warning("flows: paused, its conditions cost too much flow=%s account=%s", flow.id, flow.account_id)
    after_commit(lambda: signals.wake("flows"))
