"""Goals of flows: events that complete runs."""

from appliance.storage import transactions
from appliance.storage.database import run
from tests.domain.flows_home import live_flow, process_events, record_event, runs
from tests.domain.home import Home


def test_a_quiet_goal_event_completes_earlier_runs(home: Home) -> None:
    """A quiet goal event starts no run, but completes runs that began before it, and no later ones."""
    flow = live_flow(home, {"event": "checkout"}, goal="order_paid")
    other_flow = live_flow(home, {"event": "order_paid"})
    contact_ids = [home.contact(f"{name}@example.org").id for name in ("anna", "ben")]
    for contact_id in contact_ids:
        record_event(home, "checkout", contact_id)
    process_events()
    transactions.write(run, "UPDATE run SET created_at = created_at + 60000 WHERE contact_id = ?", (contact_ids[1],))
    for contact_id in contact_ids:
        record_event(home, "order_paid", contact_id, quiet=True)
    process_events()
    assert runs(flow) == [(contact_ids[0], "completed", "goal"), (contact_ids[1], "live", None)]
    assert runs(other_flow) == []
