"""Limits on what the conditions of flows may cost, so that one flow does not hold up other flows and accounts.

A condition may count the events of a contact, so its cost grows with what the account has recorded. The cost is counted
in steps of SQLite's virtual machine. It is also counted in processor time of the thread, because a single step may read
a long text. A busy machine changes neither. The figures are in docs/decisions.md#12.
"""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import apsw

from appliance.accounts import audit
from appliance.core import clock, signals
from appliance.core.errors import Invalid
from appliance.core.i18n import gettext
from appliance.events import log as events
from appliance.events.log import NewEvent
from appliance.storage.database import connection
from appliance.storage.models import Flow
from appliance.storage.transactions import after_commit, require_write_transaction

log = logging.getLogger("campanero.flows")


class Cost(NamedTuple):
    """A cost: `steps` of SQLite's virtual machine, and `seconds` of processor time."""

    steps: int
    seconds: float

    def minus(self, other: "Cost") -> "Cost":
        """Return what is left of this cost after another one."""
        return Cost(self.steps - other.steps, self.seconds - other.seconds)

    def plus(self, other: "Cost") -> "Cost":
        """Return the sum of this cost and another one."""
        return Cost(self.steps + other.steps, self.seconds + other.seconds)


_NOTHING = Cost(0, 0.0)
# For one flow, and for all flows of an account, in a batch of events. As a measure: five conditions on 200 events of
# each contact, for 1,000 events of 1,000 contacts, cost 11,400,000 steps and less than half a second.
MAX_FLOW = Cost(60_000_000, 5.0)
MAX_ACCOUNT = Cost(120_000_000, 10.0)
# For one statement in a write transaction, for which all requests wait: about a quarter of a second.
MAX_WRITE = Cost(6_000_000, 0.25)
# For the check of a segment in all contacts of an account, which has a thread of its own: about as long as a count.
MAX_SEGMENT = Cost(500_000_000, 20.0)
# What each statement may cost even if the account has used up its budget, so that simple flows are not paused for the
# sake of a costly one.
_MIN_STATEMENT = Cost(1_000_000, 0.05)
# How many times a statement is interrupted at most to measure its cost, and the steps between two measurements.
_MEASUREMENTS, _MAX_INTERVAL = 1_200, 50_000


class ConditionsTooSlow(Invalid):
    """The conditions of a flow cost more than they may."""

    def __init__(self) -> None:
        super().__init__({"filters": [gettext("takes too long to check: use fewer conditions on events")]})


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
        limit = self._find_limit(flow_id)
        meter = _Meter(limit)
        db = connection()
        db.set_progress_handler(meter.measure, meter.interval, id=meter)
        try:
            yield
        except apsw.InterruptError:
            if not meter.is_exceeded:
                raise
            raise ConditionsTooSlow from None
        finally:
            db.set_progress_handler(None, id=meter)
            self._used[flow_id] = self._used.get(flow_id, _NOTHING).plus(meter.cost())

    def _find_limit(self, flow_id: int) -> Cost:
        total = _NOTHING
        for cost in self._used.values():
            total = total.plus(cost)
        of_flow, of_account = self._single.minus(self._used.get(flow_id, _NOTHING)), self._total.minus(total)
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


class _Meter:
    """The measured cost of a statement; `measure` is called each time it has made `interval` steps."""

    def __init__(self, limit: Cost) -> None:
        self.is_exceeded = False
        self.interval = min(max(limit.steps // _MEASUREMENTS, 1_000), _MAX_INTERVAL)
        self._limit, self._steps, self._started_at = limit, 0, time.thread_time()

    def measure(self) -> bool:
        """Return whether the statement must be interrupted, because it has cost more than it may."""
        self._steps += self.interval
        cost = self.cost()
        self.is_exceeded = cost.steps > self._limit.steps or cost.seconds > self._limit.seconds
        return self.is_exceeded

    def cost(self) -> Cost:
        """Return the cost so far."""
        return Cost(self._steps, time.thread_time() - self._started_at)
