"""The limit of entries an hour: who is over it enters in a later hour, in order, and nobody is lost."""

import pytest

from appliance.core import clock
from appliance.flows import enrollment, entry_caps, store, triggers
from appliance.flows.enrollment import Entrant, OpenFlow
from appliance.storage import transactions
from appliance.storage.database import rows, run
from tests.domain.home import Home
from tests.domain.test_flow_run import advance_until_idle, create_live_flow

HOUR_MS = 3_600_000


def test_entries_over_the_limit_begin_in_the_next_hours(home: Home) -> None:
    """Of seven entrants, three begin at once, three in the next hour and one after it; a test run does not wait."""
    flow = create_live_flow(home, [{"id": 1, "type": "tag_add", "tag": "seen"}])
    open_flow = OpenFlow(home.account_id, flow.id, "Hello", 1, "every_time", max_per_hour=3)
    contacts = [home.contact(f"p{index}@acme.test").id for index in range(8)]
    start = clock.now_ms()

    def enter(*entrants: Entrant) -> None:
        transactions.write(enrollment.start_runs, open_flow, entrants)

    enter(*[Entrant(number) for number in contacts[:4]])
    enter(*[Entrant(number) for number in contacts[4:7]], Entrant(contacts[7], test=True))
    hours = [
        (due // HOUR_MS - start // HOUR_MS, test) for due, test in rows("SELECT due_at, test FROM run ORDER BY id")
    ]
    assert hours == [(0, 0)] * 3 + [(1, 0)] * 3 + [(2, 0), (0, 1)]
    waiting = entry_caps.count_waiting(flow.id, clock.now_ms())
    assert waiting == (4, (start // HOUR_MS + 2) * HOUR_MS)

    completed = []
    for _ in range(3):
        advance_until_idle()
        completed.append(rows("SELECT count(*) FROM run WHERE status = 'completed' AND test = 0")[0][0])
        home.advance(3600)
    assert completed == [3, 6, 7] and entry_caps.count_waiting(flow.id, clock.now_ms()).number == 0
    # Hours that have passed free their places.
    newcomer = home.contact("late@acme.test").id
    enter(Entrant(newcomer))
    assert rows("SELECT due_at <= ? FROM run WHERE contact_id = ?", (clock.now_ms(), newcomer)) == [(1,)]


@pytest.mark.parametrize("change", ["limit", "all ended", "last ended"])
def test_places_are_free_again(change: str, home: Home) -> None:
    """After another limit, and after the end of those who waited, newcomers do not wait for hours that are empty."""
    flow = create_live_flow(home, [{"id": 1, "type": "tag_add", "tag": "seen"}])
    open_flow = OpenFlow(home.account_id, flow.id, "Hello", 1, "every_time", max_per_hour=1)
    contacts = [home.contact(f"p{index}@acme.test").id for index in range(5)]
    transactions.write(enrollment.start_runs, open_flow, [Entrant(number) for number in contacts[:4]])
    this_hour = clock.now_ms() // HOUR_MS
    if change == "limit":
        spec = triggers.TriggerSpec(event="tag_add", data={"max_per_hour": 10})
        assert transactions.write(store.set_trigger, flow, spec)
        open_flow = open_flow._replace(max_per_hour=10)
    else:
        first_due = (this_hour + (1 if change == "all ended" else 2)) * HOUR_MS
        transactions.write(run, "UPDATE run SET status = 'exited' WHERE due_at >= ?", (first_due,))
    transactions.write(enrollment.start_runs, open_flow, [Entrant(contacts[4])])
    due = rows("SELECT due_at FROM run WHERE contact_id = ?", (contacts[4],))[0][0]
    assert due // HOUR_MS - this_hour == (2 if change == "last ended" else 0)
