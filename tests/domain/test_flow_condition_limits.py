"""Conditions on events that cost too much: the run of a contact ends with a reason, or the flow of many is paused.

The limits are a tenth of the real ones, and count steps of SQLite only, so that a busy machine does not change them.
"""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from appliance.accounts import accounts
from appliance.audience.segments import store as segments
from appliance.audience.segments.condition_budget import ConditionsTooSlow, Cost, get_spent, limit_statement
from appliance.audience.segments.store import SegmentCreate
from appliance.core import clock
from appliance.core.errors import Invalid
from appliance.events import log
from appliance.events.log import NewEvent
from appliance.flows import (
    condition_limits,
    date_events,
    engine,
    enrollment,
    event_waits,
    report,
    segment_events,
    triggers,
)
from appliance.flows.condition_limits import Budget
from appliance.storage import transactions
from appliance.storage.database import rows, run, scalar
from appliance.storage.models import Flow
from tests.domain.flows_home import live_flow, process_events, record_event, runs
from tests.domain.home import Home
from tests.domain.test_flow_run import advance_until_idle, create_live_flow, recorded_events, start_runs, step_history

_COUNT = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) SELECT count(*) FROM n"
Filters = list[dict[str, Any]]
_NEVER = {"name": "event.never", "predicate": "eq", "value": 1}


@pytest.fixture(autouse=True)
def _small_limits(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("MAX_FLOW", "MAX_ACCOUNT", "MAX_WRITE", "MAX_SHARE", "_MIN_STATEMENT"):
        monkeypatch.setattr(condition_limits, name, Cost(getattr(condition_limits, name).steps // 10, 600.0))
    yield
    condition_limits._costly_contacts.clear()


def count_history(count: int, *more: dict[str, Any]) -> Filters:
    """Return filters of which one must hold: many that read all events `view` of a contact, and more."""
    seen = {"event": "view", "where": [{"name": "event.path", "predicate": "cont", "value": "zzz"}]}
    groups = [
        {
            "name": "group",
            "predicate": "any",
            "value": [{"name": "event", "predicate": "performed", "value": seen}] * 24,
        }
        for _ in range(count // 24)
    ]
    return [{"name": "group", "predicate": "any", "value": [*more, *groups]}]


def never_seen(count: int) -> Filters:
    """Return a filter that holds, and that reads all events `view` of a contact many times."""
    return [{"name": "group", "predicate": "none", "value": count_history(count)[0]["value"][0]["value"]}]


def record_views(home: Home, contact_id: int, count: int) -> list[int]:
    """Record events `view` of a contact and return their ids."""
    new_events = [NewEvent(home.account_id, "view", contact_id, {"path": "/"}) for _ in range(count)]
    transactions.write(log.record_many, new_events)
    return [row[0] for row in rows("SELECT id FROM event WHERE event = 'view' AND contact_id = ?", (contact_id,))]


def forget_views() -> None:
    """Delete the events `view`, so that conditions on them cost nothing."""
    transactions.write(run, "DELETE FROM event WHERE event = 'view'")


@contextmanager
def limit_steps(steps: int) -> Iterator[None]:
    """Assert that the conditions cost at most so many steps in a block; without limits, they cost far more."""
    spent = get_spent()
    yield
    assert get_spent().minus(spent).steps < steps


def assert_paused(flow_id: int) -> None:
    """Assert that the service paused a flow once, and that event, audit log and row have the reason."""
    flow = Flow.get_by_id(flow_id)
    assert (flow.status, flow.pause_reason, flow.paused_at is not None) == ("paused", "slow_conditions", True)
    recorded = rows("SELECT data, contact_id FROM event WHERE event = 'flow_paused' AND resource_uid = ?",
                    (f"flow:{flow_id}",))  # fmt: skip
    assert [(json.loads(data)["reason"], contact) for data, contact in recorded] == [("slow_conditions", None)]
    entries = rows("SELECT actor, action, data FROM audit WHERE subject = ?", (f"flow:{flow_id}",))
    assert [(actor, action, json.loads(data)["reason"]) for actor, action, data in entries] == [
        ("system", "flow_pause", "slow_conditions")
    ]  # fmt: skip


def assert_active(flow_id: int, *costly: int) -> None:
    """Assert that a flow is active, and that its only runs with the reason `too_costly` are of these contacts."""
    assert Flow.get_by_id(flow_id).status == "active"
    reasons = rows("SELECT contact_id FROM run WHERE flow_id = ? AND exit_reason = 'too_costly'", (flow_id,))
    assert [row[0] for row in reasons] == [*costly]


def resume(flow_id: int) -> None:
    """Activate a paused flow as `lifecycle.activate` does."""

    def activate() -> None:
        run("UPDATE flow SET status = 'active', paused_at = NULL, pause_reason = NULL WHERE id = ?", (flow_id,))
        triggers.restart_listening(flow_id)
        event_waits.start_catch_up(flow_id)

    transactions.write(activate)
    while event_waits.catch_up():
        pass


def test_a_condition_on_the_contact_is_checked_once_for_many_events(home: Home) -> None:
    """48 conditions that read 500 events cost little for 500 new events, in a trigger and in a wait."""
    contact_id = home.contact("ann@acme.test").id
    flow_id = live_flow(home, {"event": "go", "data": {"where": count_history(48)}})
    wait = {"id": 1, "type": "wait_until", "until": "event", "event_name": "view", "timeout": 86_400,
            "filters": count_history(48), "yes": [], "no": []}  # fmt: skip
    waiting = create_live_flow(home, [wait])
    run_ids = start_runs(home, waiting, contact_id)
    advance_until_idle()
    record_views(home, contact_id, 500)
    transactions.write(log.record_many, [NewEvent(home.account_id, "go", contact_id) for _ in range(500)])
    with limit_steps(6_000_000):
        process_events()
    assert runs(flow_id) == [] and step_history(run_ids[0]) == [(1, None, None)]
    assert [Flow.get_by_id(number).status for number in (flow_id, waiting.id)] == ["active", "active"]


def test_a_trigger_that_costs_too_much_for_one_contact_starts_for_others(home: Home) -> None:
    """The flow stays active; one ignored run of the contact has the reason; the events of others count."""
    contact_id, other_id = home.contact("ann@acme.test").id, home.contact("bob@acme.test").id
    flow_id = live_flow(home, {"event": "view", "data": {"where": count_history(48, _NEVER)}})
    second_id = live_flow(home, {"event": "view", "data": {"where": count_history(48, _NEVER)}})
    third_id = live_flow(home, {"event": "go"})
    record_views(home, contact_id, 500)
    record_event(home, "view", other_id, {"never": 1})
    record_event(home, "go", contact_id)
    newest = scalar("SELECT max(id) FROM event")
    with limit_steps(condition_limits.MAX_ACCOUNT.steps):
        process_events()
    assert enrollment.get_cursor() >= newest
    for number in (flow_id, second_id):
        assert_active(number, contact_id)
        assert sorted(runs(number)) == [(contact_id, "ignored", "too_costly"), (other_id, "live", None)]
    assert runs(third_id) == [(contact_id, "live", None)]
    forget_views()
    record_event(home, "view", contact_id, {"never": 1})
    process_events()
    assert (contact_id, "live", None) in runs(flow_id)


def record_many_histories(home: Home) -> None:
    """Record long histories of twelve contacts."""
    for index in range(12):
        record_views(home, home.contact(f"c{index}@acme.test").id, 80)


def test_a_trigger_that_costs_too_much_is_paused_and_others_start(home: Home) -> None:
    """The flow of another event starts in the same batch; after a fix the flow starts again, without old events."""
    contact_id = home.contact("ann@acme.test").id
    flow_id = live_flow(home, {"event": "view", "data": {"where": count_history(48, _NEVER)}})
    other_id = live_flow(home, {"event": "go"})
    record_many_histories(home)
    record_event(home, "go", contact_id)
    newest = scalar("SELECT max(id) FROM event")
    with limit_steps(condition_limits.MAX_ACCOUNT.steps):
        process_events()
    assert enrollment.get_cursor() >= newest
    assert_paused(flow_id)
    assert runs(other_id) == [(contact_id, "live", None)] and runs(flow_id) == []
    forget_views()
    resume(flow_id)
    record_event(home, "view", contact_id, {"never": 1})
    process_events()
    assert runs(flow_id) == [(contact_id, "live", None)]


def test_the_pause_is_stored_before_the_cursor_moves(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is killed in between pauses the flow once, and processes the event of the other flow once."""
    contact_id = home.contact("ann@acme.test").id
    flow_id = live_flow(home, {"event": "view", "data": {"where": count_history(48, _NEVER)}})
    other_id = live_flow(home, {"event": "go"})
    record_many_histories(home)
    record_event(home, "go", contact_id)
    with monkeypatch.context() as patch:
        patch.setattr(enrollment, "_apply_batch", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            enrollment.process_events()
    assert_paused(flow_id)
    assert enrollment.get_cursor() == 0 and runs(other_id) == []
    process_events()
    assert_paused(flow_id)
    assert runs(other_id) == [(contact_id, "live", None)]


def create_waiting(home: Home, event: str, filters: Filters, *contacts: int) -> tuple[Flow, list[int]]:
    """Return a flow whose runs wait for an event that matches filters, and the runs."""
    wait = {"id": 1, "type": "wait_until", "until": "event", "event_name": event, "timeout": 86_400,
            "filters": filters, "yes": [{"id": 2, "type": "exit"}], "no": []}  # fmt: skip
    flow = create_live_flow(home, [wait])
    run_ids = start_runs(home, flow, *contacts)
    advance_until_idle()
    return flow, run_ids


def test_a_wait_that_costs_too_much_for_one_contact_ends(home: Home) -> None:
    """The run of the contact ends with the reason, and the waits of others end by their event."""
    contact_id, other_id = home.contact("ann@acme.test").id, home.contact("bob@acme.test").id
    filters = count_history(48, {**_NEVER, "predicate": "gt"})
    flow, (run_id, other_run) = create_waiting(home, "view", filters, contact_id, other_id)
    record_views(home, contact_id, 500)
    record_event(home, "view", other_id, {"never": 2})
    process_events()
    advance_until_idle()
    assert_active(flow.id, contact_id)
    assert step_history(run_id) == [(1, "exited", "too_costly")]
    assert step_history(other_run) == [(1, "yes", None), (2, "exited", "exit_step")]


def test_a_wait_that_costs_too_much_stays_and_ends_after_the_flow_is_resumed(home: Home) -> None:
    """If many contacts cost too much, the event that matched before the pause ends the wait, once."""
    contacts = [home.contact(f"w{index}@acme.test").id for index in range(2)]
    flow, run_ids = create_waiting(home, "view", count_history(48, {**_NEVER, "predicate": "gt"}), *contacts)
    others = [home.contact(f"c{index}@acme.test").id for index in range(10)]
    start_runs(home, flow, *others)
    advance_until_idle()
    for other_id in others:
        record_views(home, other_id, 80)
    for contact_id in contacts:
        record_event(home, "view", contact_id, {"never": 2})
    process_events()
    assert_paused(flow.id)
    advance_until_idle()
    assert [step_history(run_id) for run_id in run_ids] == [[(1, None, None)]] * 2
    transactions.write(run, "DELETE FROM event WHERE event = 'view' AND data ->> '$.never' IS NULL")
    resume(flow.id)
    advance_until_idle()
    assert [step_history(run_id)[0] for run_id in run_ids] == [(1, "yes", None)] * 2


def test_a_wait_may_cost_little_in_the_writer(home: Home) -> None:
    """What the flow thread may match is checked again in the writer, where it may cost a tenth."""
    contact_id, cheap_id = home.contact("ann@acme.test").id, home.contact("bob@acme.test").id
    flow, (run_id, cheap_run) = create_waiting(home, "go", never_seen(24), contact_id, cheap_id)
    other_id = live_flow(home, {"event": "go"})
    record_views(home, contact_id, 3_000)
    for number in (contact_id, cheap_id):
        record_event(home, "go", number)
    process_events()
    advance_until_idle()
    assert_active(flow.id, contact_id)
    assert step_history(run_id) == [(1, "exited", "too_costly")] and len(runs(other_id)) == 2
    assert step_history(cheap_run)[0] == (1, "yes", None)


@pytest.mark.parametrize("contact_count", [3, 12])
def test_looking_for_events_of_a_pause_may_cost_little(home: Home, contact_count: int) -> None:
    """Runs of costly contacts end, and others go on; with many such contacts, the flow is paused again."""
    contacts = [home.contact(f"c{index}@acme.test").id for index in range(contact_count)]
    cheap_id = home.contact("ann@acme.test").id
    flow, run_ids = create_waiting(home, "go", never_seen(24), *contacts, cheap_id)
    transactions.write(run, "UPDATE flow SET status = 'paused' WHERE id = ?", (flow.id,))
    for contact_id in contacts:
        record_views(home, contact_id, 3_000)
    for contact_id in (*contacts, cheap_id):
        record_event(home, "go", contact_id)
    process_events()
    with limit_steps(40 * condition_limits.MAX_WRITE.steps):
        resume(flow.id)
    if contact_count > 10:
        assert_paused(flow.id)
        assert step_history(run_ids[-2]) == [(1, None, None)]
        forget_views()
        resume(flow.id)
        advance_until_idle()
        assert [step_history(run_id)[0] for run_id in run_ids[10:]] == [(1, "yes", None)] * 3
    else:
        advance_until_idle()
        assert_active(flow.id, *contacts)
        assert step_history(run_ids[-1])[0] == (1, "yes", None)


def test_a_due_wait_that_costs_too_much_ends(home: Home) -> None:
    """A wait whose time is over is checked in the writer, too; if that costs too much, the run goes neither way."""
    contact_id = home.contact("ann@acme.test").id
    flow, (run_id,) = create_waiting(home, "go", never_seen(24), contact_id)
    record_views(home, contact_id, 3_000)
    record_event(home, "go", contact_id)
    home.advance(86_401)
    advance_until_idle()
    assert_active(flow.id, contact_id)
    assert step_history(run_id) == [(1, "exited", "too_costly")]


def create_split(home: Home) -> Flow:
    """Return a flow of a step that emits an event and of a branch with costly conditions."""
    emit = {"id": 1, "type": "emit_event", "event_name": "before", "event_data": {}, "forward_event_data": False}
    split = {"id": 2, "type": "split", "filters": never_seen(24), "yes": [{"id": 3, "type": "exit"}], "no": []}
    return create_live_flow(home, [emit, split])


def test_a_split_that_costs_too_much_for_one_contact_ends_only_its_run(home: Home) -> None:
    """The runs of others, due before and after it, go on in the same flow; report and event have the reason."""
    contacts = [home.contact(f"c{index}@acme.test").id for index in range(15)]
    flow = create_split(home)
    record_views(home, contacts[7], 3_000)
    run_ids = start_runs(home, flow, *contacts)
    with limit_steps(40 * condition_limits.MAX_WRITE.steps):
        advance_until_idle()
    assert_active(flow.id, contacts[7])
    for index, run_id in enumerate(run_ids):
        if index == 7:
            assert step_history(run_id) == [(1, "on", None), (2, "exited", "too_costly")]
        else:
            assert step_history(run_id) == [(1, "on", None), (2, "yes", None), (3, "exited", "exit_step")]
    assert len(recorded_events("before")) == 15
    ends = rows("SELECT data FROM event WHERE event = 'flow_exit' AND contact_id = ?", (contacts[7],))
    assert [json.loads(data)["reason"] for (data,) in ends] == ["too_costly"]
    exited = report.build_report(flow).runs.exited
    assert ("too_costly", 1) in [(reason.reason, reason.count) for reason in exited.reasons]


def test_a_split_that_costs_too_much_for_many_contacts_is_paused(home: Home) -> None:
    """The runs that are left keep their step, and it is done once after the flow is resumed; other flows advance."""
    contacts = [home.contact(f"c{index}@acme.test").id for index in range(12)]
    flow, other = create_split(home), create_live_flow(home, [{"id": 1, "type": "exit"}])
    for contact_id in contacts:
        record_views(home, contact_id, 3_000)
    run_ids, (other_run,) = start_runs(home, flow, *contacts), start_runs(home, other, contacts[0])
    assert engine.advance_due_runs() and step_history(other_run) != []
    advance_until_idle()
    assert_paused(flow.id)
    assert [step_history(run_id) for run_id in run_ids[10:]] == [[], []]
    assert len(recorded_events("before")) == 10 and not engine.advance_due_runs()
    forget_views()
    resume(flow.id)
    advance_until_idle()
    for run_id in run_ids[10:]:
        assert step_history(run_id) == [(1, "on", None), (2, "yes", None), (3, "exited", "exit_step")]
    assert len(recorded_events("before")) == 12


def test_costly_contacts_count_for_an_hour(home: Home) -> None:
    """Nine in an hour and one more in the next do not pause a flow."""
    flow = create_split(home)
    for index in range(12):
        contact_id = home.contact(f"c{index}@acme.test").id
        record_views(home, contact_id, 3_000)
        start_runs(home, flow, contact_id)
        advance_until_idle()
        if index == 8:
            home.advance(3_601)
    assert Flow.get_by_id(flow.id).status == "active"


def test_one_account_with_many_costly_flows_gives_others_their_turn(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the flows of an account that have used their time, the next call advances those that had no turn."""
    monkeypatch.setattr(engine, "_MAX_ACCOUNT_SECONDS", 0.0)
    contact_id = home.contact("ann@acme.test").id
    flows = [create_live_flow(home, [{"id": 1, "type": "exit"}]) for _ in range(3)]
    own_account, home.account_id = home.account_id, transactions.write(lambda: int(accounts.create("Other").id))
    other = create_live_flow(home, [{"id": 1, "type": "exit"}])
    (other_run,) = start_runs(home, other, home.contact("bob@acme.test").id)
    home.account_id = own_account
    run_ids = [start_runs(home, flow, contact_id)[0] for flow in flows]
    for done in range(1, 4):
        assert engine.advance_due_runs()
        assert step_history(other_run) != []
        assert sum(bool(step_history(run_id)) for run_id in run_ids) == done
    assert not engine.advance_due_runs()


def test_many_runs_at_a_split_advance_a_few_at_a_time(home: Home) -> None:
    """A split that costs too much for 40 runs together, but not for ten, pauses nothing."""
    contacts = [home.contact(f"c{index}@acme.test").id for index in range(40)]
    split = {"id": 1, "type": "split", "filters": never_seen(24), "yes": [{"id": 2, "type": "exit"}], "no": []}
    flow = create_live_flow(home, [split])
    for contact_id in contacts:
        record_views(home, contact_id, 50)
    run_ids = start_runs(home, flow, *contacts)
    advance_until_idle()
    assert_active(flow.id)
    assert {tuple(step_history(run_id)) for run_id in run_ids} == {((1, "yes", None), (2, "exited", "exit_step"))}


@pytest.mark.parametrize("predicate", ["cont", "end"])
def test_a_long_text_is_looked_for_in_linear_time(home: Home, predicate: str) -> None:
    """A text that nearly matches at each of 31,000 places in 100 events takes little of the writer."""
    contact_id = home.contact("ann@acme.test").id
    near = {"name": "event.path", "predicate": predicate, "value": "A" * 999 + "b"}
    seen = {"name": "event", "predicate": "performed", "value": {"event": "view", "where": [near]}}
    split = {"id": 1, "type": "split", "filters": [seen], "yes": [{"id": 2, "type": "exit"}], "no": []}
    flow = create_live_flow(home, [split])
    new_events = [NewEvent(home.account_id, "view", contact_id, {"path": "a" * 31_000}) for _ in range(100)]
    transactions.write(log.record_many, new_events)
    started_at = time.thread_time()
    with limit_steps(condition_limits.MAX_WRITE.steps):
        (run_id,) = start_runs(home, flow, contact_id)
        advance_until_idle()
    assert time.thread_time() - started_at < 2
    assert step_history(run_id) == [(1, "no", None)]
    record_event(home, "view", contact_id, {"path": "x" + "a" * 999 + "B"})
    (run_id,) = start_runs(home, flow, contact_id)
    advance_until_idle()
    assert step_history(run_id)[0] == (1, "yes", None)


def create_segment(home: Home, filters: Filters) -> int:
    """Create a segment and return its id."""
    return int(transactions.write(segments.create, home.account_id, SegmentCreate(name="S", filters=filters)).id)


def test_a_date_trigger_whose_segment_costs_too_much_is_paused(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is paused only if the segment costs too much for a few contacts, too."""
    monkeypatch.setattr(date_events, "MAX_FLOW", condition_limits.MAX_WRITE)
    contact_id = home.contact("ann@acme.test").id
    transactions.write(run, "UPDATE account SET time_zone = 'UTC' WHERE id = ?", (home.account_id,))
    start = {"event": "date_reached", "data": {"path": "data.renewal", "at": str(clock.iso(clock.now_ms()))[11:16]}}
    flow_id = live_flow(home, {**start, "segment_id": create_segment(home, never_seen(24))})
    assert date_events.check_dates()
    home.advance(86_400)
    day = scalar("SELECT date(scanned ->> '$.day', '+1 day') FROM trigger WHERE flow_id = ?", (flow_id,))
    home.patch(contact_id, data={"renewal": day})
    record_views(home, contact_id, 3_000)
    assert date_events.check_dates() and Flow.get_by_id(flow_id).status == "active"
    assert date_events.check_dates() and not date_events.check_dates()
    assert_paused(flow_id)
    assert rows("SELECT 1 FROM event WHERE event = 'date_reached'") == []


def test_a_segment_that_costs_too_much_pauses_the_flows_that_it_starts(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The segments of other flows are checked in the same run."""
    monkeypatch.setattr(segment_events, "MAX_SEGMENT", condition_limits.MAX_WRITE)
    contact_id = home.contact("ann@acme.test").id
    flow_id = live_flow(home, {"event": "segment_enter", "segment_id": create_segment(home, never_seen(24))})
    named = create_segment(home, [{"name": "contact_first_name", "predicate": "eq", "value": "Ann"}])
    other_id = live_flow(home, {"event": "segment_enter", "segment_id": named})
    record_views(home, contact_id, 3_000)
    try:
        segment_events.check_segments()
        assert_paused(flow_id)
        assert rows("SELECT count(*) FROM segment_watch WHERE definition IS NOT NULL") == [(1,)]
        assert Flow.get_by_id(other_id).status == "active"
    finally:
        for memory in (segment_events._last_checks, segment_events._due_segments, segment_events._segment_retry_at):
            memory.clear()


def test_a_budget_is_shared_by_the_flows_of_an_account(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """A flow may cost less when others of its account have used the budget, but always a little."""
    monkeypatch.setattr(condition_limits, "_MIN_STATEMENT", Cost(1_000_000, 60.0))
    budget = Budget(Cost(5_000_000, 60.0), Cost(3_000_000, 60.0))
    with budget.charge(1):
        rows(_COUNT, (150_000,))
    with pytest.raises(ConditionsTooSlow), budget.charge(1):
        rows(_COUNT, (1_000_000,))
    with pytest.raises(ConditionsTooSlow), budget.charge(2):
        rows(_COUNT, (250_000,))
    with budget.charge(3):
        rows(_COUNT, (30_000,))
    with pytest.raises(Invalid), limit_statement(Cost(10**12, 0.1)):
        rows(_COUNT, (100_000_000,))
