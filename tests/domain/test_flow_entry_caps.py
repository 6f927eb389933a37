"""The limit of entries an hour: who is over it enters later, in order, and nobody is lost."""

import random

import pytest

from appliance.core import clock
from appliance.flows import enrollment, entry_caps, runs, store, triggers
from appliance.flows.enrollment import Entrant, OpenFlow
from appliance.storage import transactions
from appliance.storage.database import rows, run, scalar
from appliance.storage.models import Flow
from tests.domain.home import Home
from tests.domain.test_flow_run import advance_until_idle, create_live_flow

HOUR_MS = 3_600_000


def test_entries_over_the_limit_begin_an_hour_later(home: Home) -> None:
    """Of seven entrants, three begin at once, three after an hour and one after two; a test run does not wait."""
    flow = create_live_flow(home, [{"id": 1, "type": "tag_add", "tag": "seen"}])
    set_limit(flow, 3)
    open_flow = OpenFlow(home.account_id, flow.id, "Hello", 1, "every_time", max_per_hour=3)
    contacts = [home.contact(f"p{index}@acme.test").id for index in range(8)]
    start = clock.now_ms()

    def enter(*entrants: Entrant) -> None:
        transactions.write(enrollment.start_runs, open_flow, entrants)

    enter(*[Entrant(number) for number in contacts[:4]])
    enter(*[Entrant(number) for number in contacts[4:7]], Entrant(contacts[7], test=True))
    hours = [((due - start) // HOUR_MS, test) for due, test in rows("SELECT due_at, test FROM run ORDER BY id")]
    assert hours == [(0, 0)] * 3 + [(1, 0)] * 3 + [(2, 0), (0, 1)]
    waiting = entry_caps.count_waiting(flow.id, clock.now_ms())
    assert waiting.number == 4 and waiting.last_at is not None and 0 <= waiting.last_at - start - 2 * HOUR_MS < 60_000

    completed = []
    for _ in range(3):
        advance_until_idle()
        completed.append(count_completed())
        home.advance(3601)
    assert completed == [3, 6, 7] and entry_caps.count_waiting(flow.id, clock.now_ms()).number == 0
    # Hours that have passed free their places.
    newcomer = home.contact("late@acme.test").id
    enter(Entrant(newcomer))
    assert rows("SELECT due_at <= ? FROM run WHERE contact_id = ?", (clock.now_ms(), newcomer)) == [(1,)]


def set_limit(flow: Flow, limit: int) -> None:
    """Set the limit of entries an hour of a flow."""
    sql = "UPDATE trigger SET data = json_set(data, '$.max_per_hour', ?) WHERE flow_id = ?"
    assert transactions.write(run, sql, (limit, flow.id)) == 1


def count_completed() -> int:
    """Return how many runs have completed, without tests."""
    return int(scalar("SELECT count(*) FROM run WHERE status = 'completed' AND test = 0"))


@pytest.mark.parametrize("change", ["limit", "all ended", "last ended"])
def test_places_are_free_again(change: str, home: Home) -> None:
    """After another limit, and after the end of those who waited, newcomers do not wait for hours that are empty."""
    flow = create_live_flow(home, [{"id": 1, "type": "tag_add", "tag": "seen"}])
    set_limit(flow, 1)
    open_flow = OpenFlow(home.account_id, flow.id, "Hello", 1, "every_time", max_per_hour=1)
    contacts = [home.contact(f"p{index}@acme.test").id for index in range(5)]
    start = clock.now_ms()
    transactions.write(enrollment.start_runs, open_flow, [Entrant(number) for number in contacts[:4]])
    advance_until_idle()
    if change == "limit":
        spec = triggers.TriggerSpec(event="tag_add", data={"max_per_hour": 10})
        assert transactions.write(store.set_trigger, flow, spec)
        open_flow = open_flow._replace(max_per_hour=10)
    else:
        first_due = start + (1 if change == "all ended" else 2) * HOUR_MS
        transactions.write(run, "UPDATE run SET status = 'exited' WHERE due_at >= ?", (first_due,))
    transactions.write(enrollment.start_runs, open_flow, [Entrant(contacts[4])])
    advance_until_idle()
    [(status, due)] = rows("SELECT status, due_at FROM run WHERE contact_id = ?", (contacts[4],))
    if change == "limit":
        assert status == "completed"
    else:
        assert (due - start) // HOUR_MS == (2 if change == "last ended" else 1)


@pytest.mark.parametrize("cause", ["pause", "outage"])
def test_a_backlog_begins_at_the_limit(cause: str, home: Home) -> None:
    """After hours without the engine, the runs of these hours do not begin together, and none waits for long."""
    flow = create_live_flow(home, [{"id": 1, "type": "tag_add", "tag": "seen"}])
    set_limit(flow, 10)
    open_flow = OpenFlow(home.account_id, flow.id, "Hello", 1, "every_time", max_per_hour=10)
    contacts = [home.contact(f"p{index}@acme.test").id for index in range(75)]
    transactions.write(enrollment.start_runs, open_flow, [Entrant(number) for number in contacts[:70]])
    advance_until_idle()
    if cause == "pause":
        transactions.write(run, "UPDATE flow SET status = 'paused'")
    home.advance(4 * 3600)
    transactions.write(run, "UPDATE flow SET status = 'active'")
    transactions.write(enrollment.start_runs, open_flow, [Entrant(number) for number in contacts[70:]])
    completed = []
    for _ in range(9):
        advance_until_idle()
        completed.append(count_completed())
        home.advance(3601)
    assert completed == [20, 30, 40, 50, 60, 70, 75, 75, 75]


def test_a_contact_who_may_enter_at_once_takes_a_place(home: Home) -> None:
    """Whoever a user lets move on begins before the limit allows it, and the others wait for an hour from then."""
    flow = create_live_flow(home, [{"id": 1, "type": "tag_add", "tag": "seen"}])
    set_limit(flow, 1)
    open_flow = OpenFlow(home.account_id, flow.id, "Hello", 1, "every_time", max_per_hour=1)
    contacts = [home.contact(f"p{index}@acme.test").id for index in range(3)]
    transactions.write(enrollment.start_runs, open_flow, [Entrant(number) for number in contacts])
    advance_until_idle()
    home.advance(1800)
    last_id = int(scalar("SELECT max(id) FROM run"))
    assert transactions.write(runs.act_on_runs, flow.id, [last_id], "move_on") == [last_id]
    advance_until_idle()
    assert count_completed() == 2 and rows("SELECT status FROM run WHERE id = ?", (last_id,)) == [("completed",)]
    home.advance(1801)
    advance_until_idle()
    assert count_completed() == 2
    home.advance(1801)
    advance_until_idle()
    assert count_completed() == 3


@pytest.mark.parametrize("limit", [1, 7, 40])
def test_no_hour_has_more_than_the_limit(limit: int, home: Home) -> None:
    """Whenever contacts enter, and the flow is paused, no 60 minutes have more beginnings than the limit allows."""
    flow = create_live_flow(home, [{"id": 1, "type": "tag_add", "tag": "seen"}])
    set_limit(flow, limit)
    open_flow = OpenFlow(home.account_id, flow.id, "Hello", 1, "every_time", max_per_hour=limit)
    contacts = [home.contact(f"p{index}@acme.test").id for index in range(4 * limit)]
    rng = random.Random(limit)
    while contacts or rows("SELECT 1 FROM run WHERE status = 'live'"):
        batch = [contacts.pop() for _ in range(min(len(contacts), rng.choice([0, 1, limit // 3, limit])))]
        transactions.write(enrollment.start_runs, open_flow, [Entrant(number) for number in batch])
        status = "paused" if rng.random() < 0.2 else "active"
        transactions.write(run, "UPDATE flow SET status = ?", (status,))
        advance_until_idle()
        home.advance(rng.choice([1, 60, 600, 1800]))
    begun = [row[0] for row in rows("SELECT entered_at FROM step_visit ORDER BY entered_at")]
    assert len(begun) == 4 * limit
    most = max(sum(start <= at < start + HOUR_MS for at in begun) for start in begun)
    assert most <= limit and begun[-1] - begun[0] < 8 * HOUR_MS
    assert len(scalar("SELECT entry_places FROM trigger")) < 10_000
