"""How a person's way through a flow is answered."""

from typing import Any, Literal

from msgspec import Struct

from appliance import clock
from appliance.api.shapes import Json, Moment
from appliance.flows import people
from appliance.flows.people import Passed, RunStatus
from appliance.tables import Run


class FlowRun(Struct):
    """One person's way through a flow; `step_id` is where they stand, or where it ended."""

    id: int
    account_id: int
    flow_id: int
    flow_name: str
    version: int
    contact_id: int | None
    status: RunStatus
    exit_reason: str | None
    step_id: int | None
    event_id: int | None
    chain_depth: int
    test: bool
    due_at: Moment | None
    ended_at: Moment | None
    created_at: Moment
    updated_at: Moment


class RunStep(Struct):
    """A step that a run came to; without an outcome it waits there. `summary` is what the step did then."""

    step_id: int
    type: str
    summary: str
    outcome: Literal["on", "yes", "no", "skipped", "exited"] | None
    reason: str | None
    message_id: int | None
    message_status: str | None
    entered_at: Moment
    left_at: Moment | None


class FlowRunDetail(FlowRun):
    """A run with what started it and the steps it came to, first to last.

    `event_data` is empty for a credential without `events:read`.
    """

    event_data: Json
    history: list[RunStep]


def shaped(row: Run) -> FlowRun:
    """Shape a run."""
    return FlowRun(**_fields(row))


def _fields(row: Run) -> dict[str, Any]:
    moments = {name: clock.iso(getattr(row, name)) for name in ("due_at", "ended_at", "created_at", "updated_at")}
    plain = ("id", "account_id", "flow_id", "flow_name", "version", "contact_id", "status", "exit_reason", "event_id",
             "chain_depth", "test")  # fmt: skip
    return {**{name: getattr(row, name) for name in plain}, **moments, "step_id": row.action_id}


def _step(passed: Passed) -> RunStep:
    row = passed.passage
    outcome: Any = row.outcome
    return RunStep(
        row.action_id, passed.type, passed.summary, outcome, row.reason, passed.message_id, passed.message_status,
        str(clock.iso(row.entered_at)), clock.iso(row.left_at),
    )  # fmt: skip


def detailed(row: Run) -> FlowRunDetail:
    """Shape a run with its history."""
    return FlowRunDetail(
        **_fields(row), event_data=row.event_data, history=[_step(passed) for passed in people.history(row)]
    )
