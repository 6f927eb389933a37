"""Flows made and driven inside of one process: the rows as they are once a flow is live."""

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
    """Make an active flow of one long wait, and answer its id."""

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


def happen(home: Home, event: str, contact_id: int | None, data: dict[str, Any] | None = None, **more: Any) -> int:
    """Record an event and answer its id."""

    def verb() -> int:
        log.record(NewEvent(home.account_id, event, contact_id, data or {}, **more))
        return int(rows("SELECT max(id) FROM event")[0][0])

    return transactions.write(verb)


def take_in() -> None:
    """Look at every event that nobody has looked at."""
    enrollment._cursor_written_at = 0.0
    while enrollment.process_events():
        pass


def runs(flow_id: int) -> list[tuple[int, str, str | None]]:
    """Return who was let in and who was not: contact, status, reason; in their order."""
    return rows("SELECT contact_id, status, exit_reason FROM run WHERE flow_id = ? ORDER BY id", (flow_id,))


def end_runs(flow_id: int) -> None:
    """Let everybody have gone through."""
    transactions.write(
        lambda: (
            rows("UPDATE run SET status = 'completed', due_at = NULL WHERE flow_id = ? AND status = 'live'",
                 (flow_id,)),
            Step.select().count(),
        )
    )  # fmt: skip
