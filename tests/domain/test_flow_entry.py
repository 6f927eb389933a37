"""Who enters a flow: events behind the cursor against triggers and goals, once each."""

import threading
from typing import Any

import pytest

from appliance.flows import enrollment, triggers
from appliance.storage import transactions
from appliance.storage.database import close_database, rows, run, scalar
from appliance.storage.models import Flow, Trigger
from tests.domain.flows_home import end_runs, happen, live_flow, runs, take_in
from tests.domain.home import Home


@pytest.fixture
def people(home: Home) -> list[int]:
    """Three people."""
    return [home.contact(f"{name}@example.org").id for name in ("anna", "ben", "cleo")]


def test_an_event_starts_a_run_once_and_the_books_agree(home: Home, people: list[int]) -> None:
    """Who did something enters once, with the data of it; counts, `flow_enter` and the cursor follow."""
    flow = live_flow(home, {"event": "order_paid"})
    event = happen(home, "order_paid", people[0], {"total": 12})
    happen(home, "order_paid", None)
    happen(home, "checkout", people[1])
    take_in()
    take_in()
    assert runs(flow) == [(people[0], "live", None)]
    found = rows("SELECT event_id, event_data, action_id, due_at NOT NULL, version, chain_depth FROM run")
    assert found == [(event, '{"total":12}', 1, 1, 1, 0)]
    row, trigger = Flow.get_by_id(flow), Trigger.get(Trigger.flow == flow)
    assert (row.entered_count, trigger.triggered_count, trigger.last_triggered_at is not None) == (1, 1, True)
    told = rows("SELECT contact_id, chain_depth, data ->> '$.flow_id', resource_uid FROM event "
                "WHERE event = 'flow_enter'")  # fmt: skip
    assert told == [(people[0], 1, flow, f"flow:{flow}")]
    assert enrollment.get_cursor() == scalar("SELECT max(id) FROM event") and not enrollment.is_due()


def test_what_happened_before_it_went_live_starts_nothing(home: Home, people: list[int]) -> None:
    """Events that nobody looked at when a flow went live are of the time before; quiet ones never start anything."""
    happen(home, "order_paid", people[0])
    flow = live_flow(home, {"event": "order_paid"})
    happen(home, "order_paid", people[1], quiet=True)
    take_in()
    assert runs(flow) == []


@pytest.mark.parametrize("status", ["draft", "paused", "archived"])
def test_nobody_enters_a_flow_that_is_not_active(home: Home, people: list[int], status: str) -> None:
    """A flow that stands still takes nobody in, and those events are over when it goes on."""
    flow = live_flow(home, {"event": "order_paid"})
    transactions.write(run, "UPDATE flow SET status = ? WHERE id = ?", (status, flow))
    happen(home, "order_paid", people[0])
    take_in()
    transactions.write(run, "UPDATE flow SET status = 'active' WHERE id = ?", (flow,))
    take_in()
    assert runs(flow) == []


def test_a_list_limits_whoever_joins_and_leaves(home: Home, people: list[int]) -> None:
    """`list_add` of another list starts nothing; elsewhere the list says whose members are meant."""
    news, other = home.list_of(name="news").id, home.list_of(people[2], name="other").id
    joined = live_flow(home, {"event": "list_add", "contact_list_id": news})
    bought = live_flow(home, {"event": "order_paid", "contact_list_id": other})
    home.patch(people[0], list_ids=[news])
    home.patch(people[1], list_ids=[other])
    for person in people:
        happen(home, "order_paid", person)
    take_in()
    assert runs(joined) == [(people[0], "live", None)]
    assert [row[0] for row in runs(bought)] == people[1:]


def test_frequency_says_who_may_come_again(home: Home, people: list[int]) -> None:
    """Inside, once, or too soon: what starts nothing is kept with its reason; a gap that is over starts again."""
    once = live_flow(home, {"event": "list_add"})
    always = live_flow(home, {"event": "order_paid"})
    gap = live_flow(home, {"event": "order_paid", "data": {"frequency": {"min_gap_seconds": 3600}}})
    for _ in range(2):
        happen(home, "list_add", people[0])
        happen(home, "order_paid", people[0])
    take_in()
    end_runs(once)
    end_runs(always)
    end_runs(gap)
    for _ in range(2):
        happen(home, "list_add", people[0])
        happen(home, "order_paid", people[0])
        take_in()
        home.advance(3601)
    words = [
        ["already_inside", "frequency", "frequency"], ["already_inside", None, "already_inside"],
        ["already_inside", "frequency", None],
    ]  # fmt: skip
    for flow, expected in zip((once, always, gap), words, strict=True):
        assert [row[2] for row in runs(flow)] == [None, *expected]
    assert Flow.get_by_id(always).entered_count == 2


def test_a_test_runs_beside_what_is_real(home: Home, people: list[int]) -> None:
    """A test event starts a test run, counts nowhere, keeps nobody out, and may be repeated."""
    flow = live_flow(home, {"event": "order_paid", "data": {"frequency": "once"}})
    for _ in range(2):
        happen(home, "order_paid", people[0], test=True)
        take_in()
        end_runs(flow)
    happen(home, "order_paid", people[0])
    take_in()
    assert rows("SELECT status, test FROM run ORDER BY id") == [("completed", 1), ("completed", 1), ("live", 0)]
    assert Flow.get_by_id(flow).entered_count == 1
    assert rows("SELECT test FROM event WHERE event = 'flow_enter' ORDER BY id") == [(1,), (1,), (0,)]


def test_a_flow_of_a_test_key_takes_in_only_tests(home: Home, people: list[int]) -> None:
    """What went live with a test key does nothing to anybody for real."""
    flow = live_flow(home, {"event": "order_paid"})
    transactions.write(run, "UPDATE flow SET test = 1 WHERE id = ?", (flow,))
    happen(home, "order_paid", people[0])
    happen(home, "order_paid", people[1], test=True)
    take_in()
    assert runs(flow) == [(people[1], "live", None)]


def test_a_chain_ends_and_a_flow_does_not_start_itself(home: Home, people: list[int]) -> None:
    """At depth five an event starts nothing, which is kept; what tells of a flow's own message never starts it."""
    flow = live_flow(home, {"event": "email_clicked"})
    happen(home, "email_clicked", people[0], chain_depth=5)
    happen(home, "email_clicked", people[1], {"flow_id": flow})
    happen(home, "email_clicked", people[1], {"verdict": "machine"})
    happen(home, "email_clicked", people[2], {"flow_id": flow + 1}, chain_depth=4)
    take_in()
    assert sorted(runs(flow)) == [(people[0], "ignored", "depth"), (people[2], "live", None)]


@pytest.mark.parametrize(
    ("data", "event", "meant"),
    [
        ({"where": [{"name": "event.total", "predicate": "gt", "value": 50}]}, {"total": 51}, True),
        ({"where": [{"name": "event.total", "predicate": "gt", "value": 50}]}, {"total": "51"}, False),
        ({"where": [{"name": "contact_first_name", "predicate": "eq", "value": "ANNA"}]}, {}, True),
        ({"where": [{"name": "contact_first_name", "predicate": "eq", "value": "Ben"}]}, {}, False),
        ({"keywords": ["Rabatt", "jul fest"]}, {"text": " RABATT! bitte"}, True),
        ({"keywords": ["Rabatt", "jul fest"]}, {"text": "Jul Fest."}, True),
        ({"keywords": ["Rabatt"]}, {"text": "kein Rabatt"}, False),
        ({"keywords": ["Überraschung"]}, {"keyword": "überraschung"}, True),
        ({"tag": "vip"}, {}, True),
        ({"tag": "guest"}, {}, False),
    ],
)
def test_conditions_decide_who_enters(
    home: Home, data: dict[str, Any], event: dict[str, Any], meant: bool
) -> None:  # fmt: skip
    """Filters over the event and the person, keywords and tags must all hold."""
    person = home.contact("anna@example.org", first_name="Anna", data={"tags": ["VIP"]}).id
    flow = live_flow(home, {"event": "message", "data": data})
    happen(home, "message", person, event)
    take_in()
    assert runs(flow) == ([(person, "live", None)] if meant else [])


def test_a_tag_is_the_one_that_was_given(home: Home) -> None:
    """Of `tag_add` the tag is that of the event, whatever its letters."""
    flow = live_flow(home, {"event": "tag_add", "data": {"tag": "vip"}})
    person = home.contact("anna@example.org", data={"tags": ["new"]}).id
    take_in()
    assert runs(flow) == []
    home.patch(person, data_merge={"tags": ["new", "VIP"]})
    take_in()
    assert runs(flow) == [(person, "live", None)]


def test_a_segment_must_hold_when_somebody_enters(home: Home, people: list[int]) -> None:
    """The segment is asked at entry, as it is then."""
    from appliance.audience.segments import store
    from appliance.audience.segments.store import SegmentCreate
    from appliance.core import validation

    body = {"name": "S", "filters": [{"name": "first_name", "predicate": "eq", "value": "Anna"}]}
    segment = transactions.write(store.create, home.account_id, validation.read(SegmentCreate, body)).id
    flow = live_flow(home, {"event": "order_paid", "segment_id": segment})
    home.patch(people[0], first_name="Anna")
    for person in people:
        happen(home, "order_paid", person)
    take_in()
    assert runs(flow) == [(people[0], "live", None)]


def test_a_goal_ends_the_run_that_began_before(home: Home, people: list[int]) -> None:
    """What a flow aims at ends the run with `flow_goal`, of a paused flow too; the event that starts it does not."""
    flow = live_flow(home, {"event": "checkout"}, goal="order_paid")
    same = live_flow(home, {"event": "order_paid"}, goal="order_paid")
    happen(home, "order_paid", people[1])
    for person in people[:2]:
        happen(home, "checkout", person)
    happen(home, "order_paid", people[0])
    happen(home, "order_paid", people[1], test=True)
    take_in()
    assert runs(flow) == [(people[0], "completed", "goal"), (people[1], "live", None)]
    assert runs(same)[:2] == [(people[1], "live", None), (people[0], "live", None)]
    transactions.write(run, "UPDATE flow SET status = 'paused' WHERE id = ?", (flow,))
    happen(home, "order_paid", people[1])
    take_in()
    assert runs(flow)[1] == (people[1], "completed", "goal")
    assert scalar("SELECT count(*) FROM event WHERE event = 'flow_goal' AND data ->> '$.flow_id' = ?", (flow,)) == 2


def test_many_events_are_taken_in_order_whatever_the_chunk(home: Home, people: list[int]) -> None:
    """More events than a bite holds are each looked at once, and deleted people stop nothing."""
    flow = live_flow(home, {"event": "order_paid"})
    gone = home.contact("gone@example.org").id
    happen(home, "order_paid", gone)
    for _ in range(3):
        for person in people:
            happen(home, "order_paid", person)
    transactions.write(run, "DELETE FROM contact WHERE id = ?", (gone,))
    before = (enrollment._MAX_EVENTS, enrollment._MAX_EFFECTS)
    enrollment._MAX_EVENTS, enrollment._MAX_EFFECTS = 4, 2
    try:
        take_in()
    finally:
        enrollment._MAX_EVENTS, enrollment._MAX_EFFECTS = before
    assert [row[:2] for row in runs(flow)] == [
        *((person, "live") for person in people), *((person, "ignored") for person in people * 2)
    ]  # fmt: skip


def test_large_events_are_taken_in_few_at_a_time(home: Home, people: list[int]) -> None:
    """Each run keeps the data of its event: however large that is, no transaction writes much at once."""
    for _ in range(2):
        live_flow(home, {"event": "order_paid", "data": {"frequency": "every_time"}})
    live_flow(home, {"event": "started"}, goal="order_paid")
    for number in range(10):
        happen(home, "order_paid", people[number % 3], {"basket": "x" * (60_000 if number else 600_000)})
    began, newest, flows = enrollment.get_cursor(), scalar("SELECT max(id) FROM event"), enrollment._load_live_flows()
    found = enrollment._fetch_events(began, newest, {"order_paid"})
    acts = sorted(
        enrollment._list_effects(found, flows, enrollment._load_goals()),
        key=lambda act: (act.event.id, act.is_start, act.flow_id),
    )
    chunks = list(enrollment._split_into_batches(acts, newest))
    assert [len({act.event.id for act in chunk}) for chunk, _ in chunks] == [1, 4, 4, 1]
    assert [act for chunk, _ in chunks for act in chunk] == acts and chunks[-1][1] == newest


def test_events_that_come_meanwhile_count_once(home: Home, people: list[int]) -> None:
    """Whoever records events while others are looked at: each starts or is ignored exactly once."""
    flow = live_flow(home, {"event": "order_paid"})
    transactions.start()

    def post() -> None:
        for number in range(400):
            happen(home, "order_paid", people[number % 3])
        close_database()

    thread = threading.Thread(target=post)
    thread.start()
    while thread.is_alive():
        take_in()
    thread.join()
    take_in()
    assert scalar("SELECT count(*) FROM run WHERE flow_id = ?", (flow,)) == 400
    assert scalar("SELECT count(DISTINCT event_id) FROM run") == 400


def test_a_flow_that_cannot_take_people_in_stops_no_other(home: Home, people: list[int]) -> None:
    """Whatever is broken about one flow, the events are behind, and the others have had them."""
    broken = live_flow(home, {"event": "order_paid", "data": {"frequency": {"min_gap_seconds": 1}}})
    unread = live_flow(home, {"event": "order_paid"})
    whole = live_flow(home, {"event": "order_paid"}, goal="checkout")
    transactions.write(run, "UPDATE trigger SET data = '{\"frequency\": {}}' WHERE flow_id = ?", (broken,))
    transactions.write(run, "UPDATE trigger SET data = '{\"where\": [1]}' WHERE flow_id = ?", (unread,))
    happen(home, "order_paid", people[0])
    last = happen(home, "checkout", people[0])
    take_in()
    assert (runs(broken), runs(unread)) == ([], [])
    assert runs(whole) == [(people[0], "completed", "goal")]
    assert enrollment.get_cursor() >= last


def test_what_started_nothing_is_kept_as_long_as_events(home: Home, people: list[int]) -> None:
    """Triggers that were ignored go with the age of events, where that is bounded; those who were in stay."""
    flow = live_flow(home, {"event": "order_paid"})
    for _ in range(3):
        happen(home, "order_paid", people[0])
    take_in()
    home.advance(40 * 86_400)
    happen(home, "order_paid", people[0])
    take_in()
    triggers.prune_ignored_runs(threading.Event())
    assert [row[1] for row in runs(flow)] == ["live", "ignored", "ignored", "ignored"]
    home.configure(events__keep="30d")
    triggers.prune_ignored_runs(threading.Event())
    assert [row[1] for row in runs(flow)] == ["live", "ignored"]
