"""Goals of flows: what ends the runs of those who came there."""

from appliance.storage import transactions
from appliance.storage.database import run
from tests.domain.flows_home import happen, live_flow, runs, take_in
from tests.domain.home import Home


def test_a_goal_that_is_told_late_ends_the_runs_it_came_after(home: Home) -> None:
    """It starts nothing, but nobody is reminded of what they did long ago; what was before they came in is no goal."""
    flow = live_flow(home, {"event": "checkout"}, goal="order_paid")
    same = live_flow(home, {"event": "order_paid"})
    people = [home.contact(f"{name}@example.org").id for name in ("anna", "ben")]
    for person in people:
        happen(home, "checkout", person)
    take_in()
    transactions.write(run, "UPDATE run SET created_at = created_at + 60000 WHERE contact_id = ?", (people[1],))
    for person in people:
        happen(home, "order_paid", person, quiet=True)
    take_in()
    assert runs(flow) == [(people[0], "completed", "goal"), (people[1], "live", None)]
    assert runs(same) == []
