"""What people changed of a flow that is live, before they publish it; for programs the flow is the same as before."""

from typing import Any

from appliance.flows import triggers
from appliance.storage.models import Flow, Trigger
from appliance.storage.work import writing


def of(flow: Flow) -> dict[str, Any]:
    """Return the changes of a flow that nobody has published yet; without any, what is live."""
    if flow.draft is not None:
        return dict(flow.draft)
    start = triggers.of(Trigger.get(Trigger.flow == flow.id))
    return {
        "steps": flow.steps, "last_action": flow.last_action, "goal": flow.goal,
        "trigger": {**start._asdict(), "data": dict(start.data)},
    }  # fmt: skip


def keep(flow: Flow, draft: dict[str, Any] | None) -> None:
    """Keep changes that wait to be published, or none."""
    writing()
    flow.draft = draft
    flow.save(only=[Flow.draft])
