"""Entry into flows: events after the cursor against triggers and goals, once each."""

import threading
from typing import Any

import pytest

from appliance.flows import enrollment, event_effects, triggers
from appliance.storage import transactions
from appliance.storage.database import close_database, rows, run, scalar
from appliance.storage.models import Flow, Trigger
from tests.domain.flows_home import end_runs, live_flow, process_events, record_event, runs
from tests.domain.home import Home


@pytest.fixture
def contact_ids(home: Home) -> list[int]:
    """Return the ids of three contacts."""
    return [home.contact(f"{name}@example.org").id for name in ("anna", "ben", "cleo")]


def test_an_event_starts_one_run(home: Home, contact_ids: list[int]) -> None:
    """A matching event starts one run with its data; counters, `flow_enter` and the cursor follow."""
    flow = live_flow(home, {"event": "order_paid"})
    event = record_event(home, "order_paid", contact_ids[0], {"total": 12})
    record_event(home, "order_paid", None)
    record_event(home, "checkout", contact_ids[1])
    process_events()
    process_events()
    assert runs(flow) == [(contact_ids[0], "live", None)]
    run_rows = rows("SELECT event_id, event_data, action_id, due_at NOT NULL, version, chain_depth FROM run")
    assert run_rows == [(event, '{"total":12}', 1, 1, 1, 0)]
    row, trigger = Flow.get_by_id(flow), Trigger.get(Trigger.flow == flow)
    assert (row.entered_count, trigger.triggered_count, trigger.last_triggered_at is not None) == (1, 1, True)
    enter_events = rows("SELECT contact_id, chain_depth, data ->> '$.flow_id', resource_uid FROM event "
                "WHERE event = 'flow_enter'")  # fmt: skip
    assert enter_events == [(contact_ids[0], 1, flow, f"flow:{flow}")]
    assert enrollment.get_cursor() == scalar("SELECT max(id) FROM event") and not enrollment.is_due()


def test_earlier_and_quiet_events_start_no_runs(home: Home, contact_ids: list[int]) -> None:
    """Events before the flow went live and quiet events start no runs."""
    record_event(home, "order_paid", contact_ids[0])
    flow = live_flow(home, {"event": "order_paid"})
    record_event(home, "order_paid", contact_ids[1], quiet=True)
    process_events()
    assert runs(flow) == []


@pytest.mark.parametrize("status", ["draft", "paused", "archived"])
def test_an_inactive_flow_is_not_entered(home: Home, contact_ids: list[int], status: str) -> None:
    """Events during a pause start no runs, also after the flow is active again."""
    flow = live_flow(home, {"event": "order_paid"})
    transactions.write(run, "UPDATE flow SET status = ? WHERE id = ?", (status, flow))
    record_event(home, "order_paid", contact_ids[0])
    process_events()
    transactions.write(run, "UPDATE flow SET status = 'active' WHERE id = ?", (flow,))
    process_events()
    assert runs(flow) == []


def test_a_trigger_list_limits_entry(home: Home, contact_ids: list[int]) -> None:
    """`list_add` of another list starts nothing; other events start runs of the list's members only."""
    news_id, other_id = home.list_of(name="news").id, home.list_of(contact_ids[2], name="other").id
    list_flow = live_flow(home, {"event": "list_add", "contact_list_id": news_id})
    order_flow = live_flow(home, {"event": "order_paid", "contact_list_id": other_id})
    home.patch(contact_ids[0], list_ids=[news_id])
    home.patch(contact_ids[1], list_ids=[other_id])
    for contact_id in contact_ids:
        record_event(home, "order_paid", contact_id)
    process_events()
    assert runs(list_flow) == [(contact_ids[0], "live", None)]
    assert [row[0] for row in runs(order_flow)] == contact_ids[1:]


def test_frequency_limits_reentry(home: Home, contact_ids: list[int]) -> None:
    """Runs started while inside, a second time or too soon are ignored with a reason; after the gap a run starts."""
    once = live_flow(home, {"event": "list_add"})
    always = live_flow(home, {"event": "order_paid"})
    gap = live_flow(home, {"event": "order_paid", "data": {"frequency": {"min_gap_seconds": 3600}}})
    for _ in range(2):
        record_event(home, "list_add", contact_ids[0])
        record_event(home, "order_paid", contact_ids[0])
    process_events()
    end_runs(once)
    end_runs(always)
    end_runs(gap)
    for _ in range(2):
        record_event(home, "list_add", contact_ids[0])
        record_event(home, "order_paid", contact_ids[0])
        process_events()
        home.advance(3601)
    expected_reasons = [
        ["already_inside", "frequency", "frequency"], ["already_inside", None, "already_inside"],
        ["already_inside", "frequency", None],
    ]  # fmt: skip
    for flow, expected in zip((once, always, gap), expected_reasons, strict=True):
        assert [row[2] for row in runs(flow)] == [None, *expected]
    assert Flow.get_by_id(always).entered_count == 2


def test_test_events_start_separate_test_runs(home: Home, contact_ids: list[int]) -> None:
    """Test runs are not counted, do not affect the frequency, and may repeat."""
    flow = live_flow(home, {"event": "order_paid", "data": {"frequency": "once"}})
    for _ in range(2):
        record_event(home, "order_paid", contact_ids[0], test=True)
        process_events()
        end_runs(flow)
    record_event(home, "order_paid", contact_ids[0])
    process_events()
    assert rows("SELECT status, test FROM run ORDER BY id") == [("completed", 1), ("completed", 1), ("live", 0)]
    assert Flow.get_by_id(flow).entered_count == 1
    assert rows("SELECT test FROM event WHERE event = 'flow_enter' ORDER BY id") == [(1,), (1,), (0,)]


def test_a_test_flow_accepts_only_test_events(home: Home, contact_ids: list[int]) -> None:
    """A flow activated with a test key starts runs for test events only."""
    flow = live_flow(home, {"event": "order_paid"})
    transactions.write(run, "UPDATE flow SET test = 1 WHERE id = ?", (flow,))
    record_event(home, "order_paid", contact_ids[0])
    record_event(home, "order_paid", contact_ids[1], test=True)
    process_events()
    assert runs(flow) == [(contact_ids[1], "live", None)]


def test_chain_depth_and_own_messages_limit_entry(home: Home, contact_ids: list[int]) -> None:
    """Events at depth 5 are ignored with a reason; events of the flow's own messages or by machines start nothing."""
    flow = live_flow(home, {"event": "email_clicked"})
    record_event(home, "email_clicked", contact_ids[0], chain_depth=5)
    record_event(home, "email_clicked", contact_ids[1], {"flow_id": flow})
    record_event(home, "email_clicked", contact_ids[1], {"verdict": "machine"})
    record_event(home, "email_clicked", contact_ids[2], {"flow_id": flow + 1}, chain_depth=4)
    process_events()
    assert sorted(runs(flow)) == [(contact_ids[0], "ignored", "depth"), (contact_ids[2], "live", None)]


@pytest.mark.parametrize(
    ("data", "event", "is_match"),
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
def test_trigger_conditions(
    home: Home, data: dict[str, Any], event: dict[str, Any], is_match: bool
) -> None:  # fmt: skip
    """Filters on event and contact, keywords and tags decide whether a run starts."""
    contact_id = home.contact("anna@example.org", first_name="Anna", data={"tags": ["VIP"]}).id
    flow = live_flow(home, {"event": "message", "data": data})
    record_event(home, "message", contact_id, event)
    process_events()
    assert runs(flow) == ([(contact_id, "live", None)] if is_match else [])


def test_tag_add_compares_the_added_tag(home: Home) -> None:
    """The trigger's tag is compared with the added tag, ignoring case."""
    flow = live_flow(home, {"event": "tag_add", "data": {"tag": "vip"}})
    contact_id = home.contact("anna@example.org", data={"tags": ["new"]}).id
    process_events()
    assert runs(flow) == []
    home.patch(contact_id, data_merge={"tags": ["new", "VIP"]})
    process_events()
    assert runs(flow) == [(contact_id, "live", None)]


def test_a_trigger_segment_is_checked_at_entry(home: Home, contact_ids: list[int]) -> None:
    """Only contacts who are in the segment at entry start runs."""
    from appliance.audience.segments import store
    from appliance.audience.segments.store import SegmentCreate
    from appliance.core import validation

    body = {"name": "S", "filters": [{"name": "first_name", "predicate": "eq", "value": "Anna"}]}
    segment_id = transactions.write(store.create, home.account_id, validation.read(SegmentCreate, body)).id
    flow = live_flow(home, {"event": "order_paid", "segment_id": segment_id})
    home.patch(contact_ids[0], first_name="Anna")
    for contact_id in contact_ids:
        record_event(home, "order_paid", contact_id)
    process_events()
    assert runs(flow) == [(contact_ids[0], "live", None)]


def test_a_goal_completes_earlier_runs(home: Home, contact_ids: list[int]) -> None:
    """A goal event completes runs that began before it, also in a paused flow; a test event does not."""
    flow = live_flow(home, {"event": "checkout"}, goal="order_paid")
    other_flow = live_flow(home, {"event": "order_paid"}, goal="order_paid")
    record_event(home, "order_paid", contact_ids[1])
    for contact_id in contact_ids[:2]:
        record_event(home, "checkout", contact_id)
    record_event(home, "order_paid", contact_ids[0])
    record_event(home, "order_paid", contact_ids[1], test=True)
    process_events()
    assert runs(flow) == [(contact_ids[0], "completed", "goal"), (contact_ids[1], "live", None)]
    assert runs(other_flow)[:2] == [(contact_ids[1], "live", None), (contact_ids[0], "live", None)]
    transactions.write(run, "UPDATE flow SET status = 'paused' WHERE id = ?", (flow,))
    record_event(home, "order_paid", contact_ids[1])
    process_events()
    assert runs(flow)[1] == (contact_ids[1], "completed", "goal")
    assert scalar("SELECT count(*) FROM event WHERE event = 'flow_goal' AND data ->> '$.flow_id' = ?", (flow,)) == 2


def test_events_are_processed_in_order_in_batches(home: Home, contact_ids: list[int]) -> None:
    """Events beyond a batch are each processed once, and a deleted contact does not stop the others."""
    flow = live_flow(home, {"event": "order_paid"})
    deleted_id = home.contact("gone@example.org").id
    record_event(home, "order_paid", deleted_id)
    for _ in range(3):
        for contact_id in contact_ids:
            record_event(home, "order_paid", contact_id)
    transactions.write(run, "DELETE FROM contact WHERE id = ?", (deleted_id,))
    limits_before = (event_effects.MAX_EVENTS, enrollment._MAX_EFFECTS)
    event_effects.MAX_EVENTS, enrollment._MAX_EFFECTS = 4, 2
    try:
        process_events()
    finally:
        event_effects.MAX_EVENTS, enrollment._MAX_EFFECTS = limits_before
    assert [row[:2] for row in runs(flow)] == [
        *((number, "live") for number in contact_ids), *((number, "ignored") for number in contact_ids * 2)
    ]  # fmt: skip


def test_large_events_are_processed_in_small_batches(home: Home, contact_ids: list[int]) -> None:
    """Batches are cut by the size of event data, so that no transaction writes much."""
    for _ in range(2):
        live_flow(home, {"event": "order_paid", "data": {"frequency": "every_time"}})
    live_flow(home, {"event": "started"}, goal="order_paid")
    for number in range(10):
        record_event(home, "order_paid", contact_ids[number % 3], {"basket": "x" * (60_000 if number else 600_000)})
    cursor, newest = enrollment.get_cursor(), scalar("SELECT max(id) FROM event")
    flows = event_effects.load_live_flows()
    events = event_effects.fetch_events(cursor, newest, {"order_paid"})
    effects = sorted(
        event_effects.list_effects(events, flows, event_effects.load_goals())[0],
        key=lambda effect: (effect.event.id, effect.kind, effect.flow_id),
    )
    batches = list(enrollment._split_into_batches(effects, newest))
    assert [len({effect.event.id for effect in batch}) for batch, _ in batches] == [1, 4, 4, 1]
    assert [effect for batch, _ in batches for effect in batch] == effects and batches[-1][1] == newest


def test_events_recorded_during_processing_count_once(home: Home, contact_ids: list[int]) -> None:
    """Events recorded while others are processed each give exactly one run."""
    flow = live_flow(home, {"event": "order_paid"})
    transactions.start()

    def post() -> None:
        for number in range(400):
            record_event(home, "order_paid", contact_ids[number % 3])
        close_database()

    thread = threading.Thread(target=post)
    thread.start()
    while thread.is_alive():
        process_events()
    thread.join()
    process_events()
    assert scalar("SELECT count(*) FROM run WHERE flow_id = ?", (flow,)) == 400
    assert scalar("SELECT count(DISTINCT event_id) FROM run") == 400


def test_a_broken_flow_does_not_stop_others(home: Home, contact_ids: list[int]) -> None:
    """Flows with broken triggers start nothing; other flows process the events, and the cursor moves on."""
    broken_frequency = live_flow(home, {"event": "order_paid", "data": {"frequency": {"min_gap_seconds": 1}}})
    broken_filters = live_flow(home, {"event": "order_paid"})
    other_flow = live_flow(home, {"event": "order_paid"}, goal="checkout")
    transactions.write(run, "UPDATE trigger SET data = '{\"frequency\": {}}' WHERE flow_id = ?", (broken_frequency,))
    transactions.write(run, "UPDATE trigger SET data = '{\"where\": [1]}' WHERE flow_id = ?", (broken_filters,))
    record_event(home, "order_paid", contact_ids[0])
    last = record_event(home, "checkout", contact_ids[0])
    process_events()
    assert (runs(broken_frequency), runs(broken_filters)) == ([], [])
    assert runs(other_flow) == [(contact_ids[0], "completed", "goal")]
    assert enrollment.get_cursor() >= last


def test_ignored_runs_are_pruned_with_old_events(home: Home, contact_ids: list[int]) -> None:
    """Ignored runs older than `events.keep` are deleted if it is set; other runs stay."""
    flow = live_flow(home, {"event": "order_paid"})
    for _ in range(3):
        record_event(home, "order_paid", contact_ids[0])
    process_events()
    home.advance(40 * 86_400)
    record_event(home, "order_paid", contact_ids[0])
    process_events()
    triggers.prune_ignored_runs(threading.Event())
    assert [row[1] for row in runs(flow)] == ["live", "ignored", "ignored", "ignored"]
    home.configure(events__keep="30d")
    triggers.prune_ignored_runs(threading.Event())
    assert [row[1] for row in runs(flow)] == ["live", "ignored"]
