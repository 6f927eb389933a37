"""Insert flows and runs as rows, for tests of code that reads or ends them."""

from typing import Any

from appliance.core import clock
from appliance.storage import transactions
from appliance.storage.models import Flow, Run, StepVisit, Trigger
from tests.domain.home import Home


def insert_flow(home: Home, name: str = "Welcome", **fields: Any) -> Flow:
    """Insert an active flow with one trigger."""

    def make() -> Flow:
        now = clock.now_ms()
        flow_row = Flow.create(
            account=home.account_id, name=name, **{"status": "active", "version": 1, **fields}, created_at=now,
            updated_at=now,
        )  # fmt: skip
        Trigger.create(account=home.account_id, flow=flow_row, event="tag_add", created_at=now, updated_at=now)
        return flow_row

    return transactions.write(make)


def insert_run(home: Home, in_flow: Flow, contact_id: int | None, step: int = 1, **fields: Any) -> Run:
    """Insert a run that waits in a step, with its step visit, and count it as the engine does."""

    def make() -> Run:
        now = clock.now_ms()
        run_row = Run.create(
            account=home.account_id, flow=in_flow, version=1, contact=contact_id, action_id=step,
            **{"due_at": now + 86_400_000, "event_data": {"sku": "A-1"}, **fields}, created_at=now, updated_at=now,
        )  # fmt: skip
        step_visit = StepVisit.create(run=run_row, flow=in_flow, action_id=step, test=run_row.test, entered_at=now)
        Run.update(step_visit_id=step_visit.id).where(Run.id == run_row.id).execute()
        if not run_row.test:
            Flow.update(entered_count=Flow.entered_count + 1).where(Flow.id == in_flow.id).execute()
        return run_row

    return transactions.write(make)
