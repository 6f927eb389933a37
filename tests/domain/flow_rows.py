"""Flows and runs put down as rows, for tests of what is read from them and of what ends them."""

from typing import Any

from appliance.core import clock
from appliance.storage import transactions
from appliance.storage.models import Flow, Run, StepVisit, Trigger
from tests.domain.home import Home


def flow(home: Home, name: str = "Welcome", **fields: Any) -> Flow:
    """Make an active flow."""

    def make() -> Flow:
        now = clock.now_ms()
        made = Flow.create(
            account=home.account_id, name=name, **{"status": "active", "version": 1, **fields}, created_at=now,
            updated_at=now,
        )  # fmt: skip
        Trigger.create(account=home.account_id, flow=made, event="tag_add", created_at=now, updated_at=now)
        return made

    return transactions.write(make)


def run(home: Home, in_flow: Flow, contact_id: int | None, step: int = 1, **fields: Any) -> Run:
    """Let somebody wait in a step of a flow, and count them as the runner does."""

    def make() -> Run:
        now = clock.now_ms()
        made = Run.create(
            account=home.account_id, flow=in_flow, version=1, contact=contact_id, action_id=step,
            **{"due_at": now + 86_400_000, "event_data": {"sku": "A-1"}, **fields}, created_at=now, updated_at=now,
        )  # fmt: skip
        passage = StepVisit.create(run=made, flow=in_flow, action_id=step, test=made.test, entered_at=now)
        Run.update(step_visit_id=passage.id).where(Run.id == made.id).execute()
        if not made.test:
            Flow.update(entered_count=Flow.entered_count + 1).where(Flow.id == in_flow.id).execute()
        return made

    return transactions.write(make)
