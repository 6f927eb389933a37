"""A flow once more: a draft that does the same, with words of its own, and nobody in it."""

from appliance.accounts.acting import By
from appliance.core import clock
from appliance.flows import draft_edits, store, version_snapshot
from appliance.storage.models import Flow, Trigger
from appliance.storage.work import writing


def duplicate(account_id: int, flow_id: int, by: By) -> Flow:
    """Make a draft of what a flow does as people see it, with what they have not published yet; raises NotFound."""
    writing()
    drawn = draft_edits.of(account_id, flow_id)
    now, name = clock.now_ms(), f"{drawn.flow.name[:249]}, copy"
    made = Flow.create(
        account=account_id, name=name, goal=drawn.goal, data=drawn.flow.data, last_action=drawn.flow.last_action,
        edited_by=by.user_id, created_at=now, updated_at=now,
    )  # fmt: skip
    Trigger.create(account=account_id, flow=made, created_at=now, updated_at=now)
    made.steps = version_snapshot.place_words(
        account_id, made.id, [draft_edits.spoken(account_id, one) for one in drawn.steps], by.user_id
    )  # fmt: skip
    store.retrigger(made, drawn.start)
    return store.saved(made)
