"""What changes between reading an event and doing what it means: people become others', flows begin anew."""

import pytest

from appliance.audience.consent import Evidence
from appliance.audience.contacts import removal
from appliance.flows import enrollment, triggers
from appliance.storage import transactions
from appliance.storage.database import run
from tests.domain.flows_home import happen, live_flow, runs, take_in
from tests.domain.home import Home


@pytest.fixture
def people(home: Home) -> list[int]:
    """Two people."""
    return [home.contact(f"{name}@example.org").id for name in ("anna", "ben")]


def test_who_is_merged_while_their_events_are_looked_at_enters(home: Home, people: list[int]) -> None:
    """Between reading an event and doing what it means its person may be merged: it is the other's, start and goal."""
    flow = live_flow(home, {"event": "order_paid"})
    bought = live_flow(home, {"event": "started"}, goal="order_paid")
    happen(home, "started", people[1])
    take_in()
    event = happen(home, "order_paid", people[1])
    began, flows, goals = enrollment.get_cursor(), enrollment._load_live_flows(), enrollment._load_goals()
    acts = list(enrollment._list_effects(enrollment._fetch_events(began, event, {"order_paid"}), flows, goals))
    transactions.write(removal.merge, home.account_id, people[0], people[1], Evidence("api"))
    assert transactions.write(enrollment._apply_batch, began, event, acts)
    assert runs(flow) == [(people[0], "live", None)]
    assert runs(bought) == [(people[0], "completed", "goal")]


def test_a_goal_that_was_changed_meanwhile_ends_nobody(home: Home, people: list[int]) -> None:
    """Between reading an event and doing what it means somebody may have chosen another goal, or none."""
    flow = live_flow(home, {"event": "started"}, goal="order_paid")
    happen(home, "started", people[0])
    take_in()
    event = happen(home, "order_paid", people[0])
    began = enrollment.get_cursor()
    acts = list(
        enrollment._list_effects(
            enrollment._fetch_events(began, event, {"order_paid"}),
            enrollment._load_live_flows(),
            enrollment._load_goals(),
        )
    )
    transactions.write(run, "UPDATE flow SET goal = NULL WHERE id = ?", (flow,))
    assert acts and transactions.write(enrollment._apply_batch, began, event, acts)
    assert runs(flow) == [(people[0], "live", None)]


def test_a_trigger_that_was_changed_meanwhile_lets_nobody_in(home: Home, people: list[int]) -> None:
    """Between reading an event and doing what it means the flow may have begun anew, with another trigger."""
    flow = live_flow(home, {"event": "order_paid"})
    event = happen(home, "order_paid", people[0])
    began = enrollment.get_cursor()
    acts = list(
        enrollment._list_effects(
            enrollment._fetch_events(began, event, {"order_paid"}), enrollment._load_live_flows(), []
        )
    )
    transactions.write(run, "UPDATE trigger SET event = 'checkout' WHERE flow_id = ?", (flow,))
    transactions.write(triggers.restart_listening, flow)
    assert acts and transactions.write(enrollment._apply_batch, began, event, acts)
    assert runs(flow) == []
