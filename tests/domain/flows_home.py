"""Helpers that insert live flows and process events within this process."""

from typing import Any

from appliance.core import clock
from appliance.core.errors import Faults
from appliance.events import log
from appliance.events.log import NewEvent
from appliance.flows import enrollment, triggers, versions
from appliance.storage import transactions
from appliance.storage.database import rows
from appliance.storage.models import Flow, Step, Trigger
from tests.domain.home import Home


def live_flow(home: Home, trigger: dict[str, Any], *, goal: str | None = None, name: str = "Hello") -> int:
    """Insert an active flow with one step, a wait of a day, and return its id."""

    def make() -> int:
        now = clock.now_ms()
        faults = Faults()
        start = triggers.parse_trigger(home.account_id, trigger, faults)
        faults.check()
        flow = Flow.create(
            account=home.account_id, name=name, status="active", version=1, goal=goal, last_action=1,
            steps=[{"id": 1, "type": "wait", "duration": 86_400}], created_at=now, updated_at=now,
        )  # fmt: skip
        Trigger.create(
            account=home.account_id, flow=flow, event=start.event, segment=start.segment_id,
            contact_list=start.contact_list_id, data=start.data, created_at=now, updated_at=now,
        )  # fmt: skip
        versions.write_plan(flow.id, 1, versions.compile_steps(flow.steps), {})
        triggers.restart_listening(flow.id)
        return int(flow.id)

    return transactions.write(make)


def record_event(
    home: Home, event: str, contact_id: int | None, data: dict[str, Any] | None = None, **more: Any
) -> int:
    """Record an event and return its id."""

    def write() -> int:
        log.record(NewEvent(home.account_id, event, contact_id, data or {}, **more))
        return int(rows("SELECT max(id) FROM event")[0][0])

    return transactions.write(write)


def process_events() -> None:
    """Process all events that the flow engine has not processed yet."""
    enrollment._cursor_written_at = 0.0
    while enrollment.process_events():
        pass


def runs(flow_id: int) -> list[tuple[int, str, str | None]]:
    """Return the runs of a flow in order of creation: contact, status, exit reason."""
    return rows("SELECT contact_id, status, exit_reason FROM run WHERE flow_id = ? ORDER BY id", (flow_id,))


def end_runs(flow_id: int) -> None:
    """Mark all live runs of a flow as completed."""
    transactions.write(
        lambda: (
            rows("UPDATE run SET status = 'completed', due_at = NULL WHERE flow_id = ? AND status = 'live'",
                 (flow_id,)),
            Step.select().count(),
        )
    )  # fmt: skip
