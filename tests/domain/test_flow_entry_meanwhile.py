"""Changes between reading an event and applying its effects: merged contacts, changed goals and triggers."""

import pytest

from appliance.audience.consent import Evidence
from appliance.audience.contacts import removal
from appliance.flows import enrollment, event_effects, triggers
from appliance.storage import transactions
from appliance.storage.database import run
from tests.domain.flows_home import live_flow, process_events, record_event, runs
from tests.domain.home import Home


@pytest.fixture
def contact_ids(home: Home) -> list[int]:
    """Return the ids of two contacts."""
    return [home.contact(f"{name}@example.org").id for name in ("anna", "ben")]


def test_a_merge_during_processing_moves_the_effects(home: Home, contact_ids: list[int]) -> None:
    """If the contact is merged meanwhile, the surviving contact starts the run and reaches the goal."""
    flow = live_flow(home, {"event": "order_paid"})
    goal_flow = live_flow(home, {"event": "started"}, goal="order_paid")
    record_event(home, "started", contact_ids[1])
    process_events()
    event = record_event(home, "order_paid", contact_ids[1])
    cursor, flows, goals = enrollment.get_cursor(), event_effects.load_live_flows(), event_effects.load_goals()
    events = event_effects.fetch_events(cursor, event, {"order_paid"})
    effects, _ = event_effects.list_effects(events, flows, goals)
    transactions.write(removal.merge, home.account_id, contact_ids[0], contact_ids[1], Evidence("api"))
    assert transactions.write(enrollment._apply_batch, cursor, event, effects)
    assert runs(flow) == [(contact_ids[0], "live", None)]
    assert runs(goal_flow) == [(contact_ids[0], "completed", "goal")]


def test_a_goal_removed_during_processing_ends_no_run(home: Home, contact_ids: list[int]) -> None:
    """If the flow's goal is removed meanwhile, the run stays live."""
    flow = live_flow(home, {"event": "started"}, goal="order_paid")
    record_event(home, "started", contact_ids[0])
    process_events()
    event = record_event(home, "order_paid", contact_ids[0])
    cursor = enrollment.get_cursor()
    events = event_effects.fetch_events(cursor, event, {"order_paid"})
    effects, _ = event_effects.list_effects(events, event_effects.load_live_flows(), event_effects.load_goals())
    transactions.write(run, "UPDATE flow SET goal = NULL WHERE id = ?", (flow,))
    assert effects and transactions.write(enrollment._apply_batch, cursor, event, effects)
    assert runs(flow) == [(contact_ids[0], "live", None)]


def test_a_trigger_changed_during_processing_starts_no_run(home: Home, contact_ids: list[int]) -> None:
    """If the flow's trigger changes meanwhile, the old event starts no run."""
    flow = live_flow(home, {"event": "order_paid"})
    event = record_event(home, "order_paid", contact_ids[0])
    cursor = enrollment.get_cursor()
    events = event_effects.fetch_events(cursor, event, {"order_paid"})
    effects, _ = event_effects.list_effects(events, event_effects.load_live_flows(), [])
    transactions.write(run, "UPDATE trigger SET event = 'checkout' WHERE flow_id = ?", (flow,))
    transactions.write(triggers.restart_listening, flow)
    assert effects and transactions.write(enrollment._apply_batch, cursor, event, effects)
    assert runs(flow) == []
