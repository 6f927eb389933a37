"""Limits on the cost of the conditions of flows, so that one flow does not delay other flows and accounts.

The cost is measured by `audience.segments.condition_budget`: steps of SQLite, and seconds of processor time. The
figures are in docs/decisions.md#12.
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


# The limits of one flow, and of all flows of an account, in a batch of events. For comparison: five conditions on 200
# events of each contact, for 1,000 events of 1,000 contacts, cost 11,400,000 steps and less than half a second.
MAX_FLOW = Cost(60_000_000, 5.0)
MAX_ACCOUNT = Cost(120_000_000, 10.0)
# The limit of the conditions in one write transaction, for which all requests wait: about a quarter of a second.
MAX_WRITE = Cost(6_000_000, 0.25)
# A tenth of `MAX_WRITE`. When ten runs together have exceeded `MAX_WRITE`, a contact that costs more than this when
# checked alone is counted as costly.
MAX_SHARE = Cost(MAX_WRITE.steps // 10, MAX_WRITE.seconds / 10)
# When this number of contacts has been costly in a flow within this time, the flow is paused; before, only the
# contacts' runs end.
MAX_COSTLY_CONTACTS, _COSTLY_SECONDS = 10, 3600.0
# The cost that each statement may have even if the account has used up its budget, so that simple flows are not paused
# because of a costly one.
_MIN_STATEMENT = Cost(1_000_000, 0.05)


class Budget:
    """The limits of the conditions of an account's flows together (`total`), and of each flow alone (`single`)."""

    def __init__(self, total: Cost | None = None, single: Cost | None = None) -> None:
        self._total, self._single = total or MAX_ACCOUNT, single or MAX_FLOW
        self._used: dict[int, Cost] = {}  # by flow id

    @contextmanager
    def charge(self, flow_id: int, part: int = 1) -> Iterator[None]:
        """Charge the SQL statement in the `with` block to a flow; raise ConditionsTooSlow if it costs too much.

        The statement may cost at most the limit of a flow divided by `part`. The block must not write, because an
        interrupted write would roll back the whole transaction. The limit applies only to the database connection of
        this thread.
        """
        spent = get_spent()
        try:
            with limit_statement(self._find_limit(flow_id, part)):
                yield
        finally:
            self._used[flow_id] = self._used.get(flow_id, NOTHING).plus(get_spent().minus(spent))

    def is_used_up(self, flow_id: int) -> bool:
        """Return whether the flow or the account has reached its limit."""
        left = self._find_rest(flow_id)
        return left.steps <= 0 or left.seconds <= 0

    def _find_rest(self, flow_id: int) -> Cost:
        total = NOTHING
        for cost in self._used.values():
            total = total.plus(cost)
        of_flow, of_account = self._single.minus(self._used.get(flow_id, NOTHING)), self._total.minus(total)
        return Cost(min(of_flow.steps, of_account.steps), min(of_flow.seconds, of_account.seconds))

    def _find_limit(self, flow_id: int, part: int) -> Cost:
        left = self._find_rest(flow_id)
        return Cost(
            max(min(left.steps, self._single.steps // part), _MIN_STATEMENT.steps),
            max(min(left.seconds, self._single.seconds / part), _MIN_STATEMENT.seconds),
        )


def write_budget() -> Budget:
    """Return the budget for conditions that are evaluated in one write transaction."""
    return Budget(MAX_WRITE, MAX_WRITE)


@contextmanager
def limit_write() -> Iterator[None]:
    """Limit the SQL statement in the `with` block to `MAX_WRITE`, as `Budget.charge` does."""
    with write_budget().charge(0):
        yield


def has_spent_share(before: Cost) -> bool:
    """Return whether this thread's conditions have cost more than `MAX_SHARE` since `get_spent` returned `before`."""
    return get_spent().minus(before).exceeds(MAX_SHARE)


# The reason of a run that ended, or did not start, because the conditions cost too much for its contact alone.
TOO_COSTLY = "too_costly"
# By flow id: its costly contacts, and when they were found (`clock.monotonic`).
_costly_contacts: dict[int, dict[int, float]] = {}


def count_costly_contact(flow_id: int, contact_id: int) -> None:
    """Count a contact for whom the conditions of a flow cost too much; pause the flow if there are many.

    A contact with a long history does not stop the flow of all others, but a flow must not check many such contacts.
    """
    require_write_transaction()
    now = clock.monotonic()
    known = _costly_contacts.pop(flow_id, {})
    recent = {number: at for number, at in known.items() if now - at < _COSTLY_SECONDS} | {contact_id: now}
    log.warning("flows: conditions cost too much flow=%s contact=%s", flow_id, contact_id)
    if len(recent) >= MAX_COSTLY_CONTACTS:
        pause_slow_flow(flow_id)
    else:
        _costly_contacts[flow_id] = recent


# The `pause_reason` of a flow that `pause_slow_flow` paused.
SLOW_CONDITIONS = "slow_conditions"


def pause_slow_flow(flow_id: int) -> None:
    """Pause an active flow whose conditions exceeded their limit; do nothing if it is not active.

    Its runs stay at their steps. The event `flow_paused` and an audit entry are recorded, both with the reason.
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
