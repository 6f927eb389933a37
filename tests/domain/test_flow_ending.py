"""How runs end: once, with all counters, by any cause."""

from collections.abc import Callable

import pytest

from appliance.audience.contacts import removal
from appliance.core import clock
from appliance.flows import run_ends
from appliance.imports import store as imports
from appliance.storage import transactions
from appliance.storage.database import rows
from appliance.storage.models import Contact, Event, Flow, Run, StepVisit
from tests.domain import flow_rows
from tests.domain.home import BY_API, Home
from tests.domain.test_importing_apply import apply_import, create_checked_import, run_importer

REMOVALS: dict[str, Callable[[Home, int], object]] = {
    "delete": lambda home, contact_id: transactions.write(removal.delete, home.account_id, contact_id),
    "erase": lambda home, contact_id: transactions.write(removal.erase, home.account_id, contact_id, BY_API),
}


def flow_counts(flow: Flow) -> tuple[int, int, int]:
    """Return the counters of a flow: entered, completed, exited."""
    row = Flow.get_by_id(flow.id)
    return row.entered_count, row.completed_count, row.exited_count


def events_named(name: str) -> list[Event]:
    """Return the events with a name, oldest first."""
    return list(Event.select().where(Event.event == name).order_by(Event.id))


def test_a_run_ends_only_once(home: Home) -> None:
    """Run, step visit, counters and one event record the end; a second end changes nothing."""
    flow = flow_rows.insert_flow(home)
    ended_run = flow_rows.insert_run(home, flow, home.contact("one@example.org").id, chain_depth=2)
    test_run = flow_rows.insert_run(home, flow, home.contact("two@example.org").id, test=True)
    now = clock.now_ms()
    assert transactions.write(run_ends.end_runs, [ended_run.id, test_run.id, 99], "exited", "taken_out", now) == [
        ended_run.id,
        test_run.id,
    ]
    assert transactions.write(run_ends.end_runs, [ended_run.id], "completed", None, now + 1) == []
    row = Run.get_by_id(ended_run.id)
    assert (row.status, row.exit_reason, row.due_at, row.step_visit_id) == ("exited", "taken_out", None, None)
    assert (row.ended_at, row.action_id) == (now, 1)
    step_visit = StepVisit.get(StepVisit.run == ended_run)
    assert (step_visit.outcome, step_visit.reason, step_visit.left_at) == ("exited", "taken_out", now)
    assert flow_counts(flow) == (1, 0, 1)
    assert [(event.data, event.chain_depth, event.test) for event in events_named("flow_exit")] == [
        (
            {"flow_id": flow.id, "run_id": ended_run.id, "step_id": 1, "status": "exited", "reason": "taken_out"},
            3,
            False,
        ),
        ({"flow_id": flow.id, "run_id": test_run.id, "step_id": 1, "status": "exited", "reason": "taken_out"}, 1, True),
    ]


def test_ending_a_run_keeps_the_last_steps_outcome(home: Home) -> None:
    """A step visit that already has an outcome keeps it when its run ends."""
    flow = flow_rows.insert_flow(home)
    run = flow_rows.insert_run(home, flow, home.contact("one@example.org").id)
    transactions.write(lambda: StepVisit.update(outcome="no", left_at=5).where(StepVisit.run == run).execute())
    transactions.write(run_ends.end_runs, [run.id], "completed", None, clock.now_ms())
    assert [(visit.outcome, visit.reason, visit.left_at) for visit in StepVisit.select()] == [("no", None, 5)]
    assert flow_counts(flow) == (1, 1, 0)


def test_a_goal_completes_a_run(home: Home) -> None:
    """A run at its goal is completed with reason `goal`, and both events are recorded."""
    flow = flow_rows.insert_flow(home, goal="order_paid")
    run = flow_rows.insert_run(home, flow, home.contact("one@example.org").id)
    assert transactions.write(run_ends.complete_runs_at_goal, [run.id], "order_paid", clock.now_ms()) == [run.id]
    row = Run.get_by_id(run.id)
    assert (row.status, row.exit_reason) == ("completed", "goal")
    assert flow_counts(flow) == (1, 1, 0)
    assert [event.data["goal"] for event in events_named("flow_goal")] == ["order_paid"]
    assert [event.data["status"] for event in events_named("flow_exit")] == ["completed"]


@pytest.mark.parametrize("removal_name", REMOVALS)
def test_removing_a_contact_ends_its_runs(removal_name: str, home: Home) -> None:
    """Live runs end, event data of all runs is cleared, and the event has no contact."""
    flow, other = flow_rows.insert_flow(home), flow_rows.insert_flow(home, "Win-back")
    contact_id = home.contact("one@example.org").id
    flow_rows.insert_run(home, flow, contact_id, event_data={"name": "Ada"})
    flow_rows.insert_run(home, other, contact_id, status="completed", event_data={"name": "Ada"})
    REMOVALS[removal_name](home, contact_id)
    runs = [(row.status, row.exit_reason, row.contact_id, row.event_data) for row in Run.select().order_by(Run.id)]
    assert runs == [("exited", "contact_deleted", None, {}), ("completed", None, None, {})]
    assert [event.contact_id for event in events_named("flow_exit")] == [None]
    assert flow_counts(flow) == (1, 0, 1)
    assert rows("PRAGMA foreign_key_check") == []


def test_undoing_an_import_ends_the_runs_of_its_contacts(home: Home) -> None:
    """Contacts deleted by the undo of an import leave their flows."""
    job = apply_import(home, create_checked_import(home, "email\none@example.org\n").id)
    flow = flow_rows.insert_flow(home)
    run = flow_rows.insert_run(home, flow, Contact.get().id)
    transactions.write(imports.undo, home.account_id, job.id)
    assert run_importer(job.id).phase == "undone" and Contact.select().count() == 0
    row = Run.get_by_id(run.id)
    assert (row.status, row.exit_reason, row.event_data) == ("exited", "contact_deleted", {})
    assert flow_counts(flow) == (1, 0, 1)


def test_a_merge_keeps_one_run_in_each_flow(home: Home) -> None:
    """If both contacts are in a flow, the run of the merged one exits; its runs in other flows move to the survivor."""
    shared_flow, other_flow = flow_rows.insert_flow(home), flow_rows.insert_flow(home, "Alone")
    survivor_id, merged_id = home.contact("one@example.org").id, home.contact("two@example.org").id
    survivor_run, merged_run = (
        flow_rows.insert_run(home, shared_flow, survivor_id),
        flow_rows.insert_run(home, shared_flow, merged_id),
    )
    moved_run, test_run = (
        flow_rows.insert_run(home, other_flow, merged_id),
        flow_rows.insert_run(home, shared_flow, merged_id, test=True),
    )
    transactions.write(removal.merge, home.account_id, survivor_id, merged_id, BY_API)
    runs = {row.id: (row.status, row.exit_reason, row.contact_id) for row in Run.select()}
    assert runs == {
        survivor_run.id: ("live", None, survivor_id),
        merged_run.id: ("exited", "contact_merged", survivor_id),
        moved_run.id: ("live", None, survivor_id),
        test_run.id: ("live", None, survivor_id),
    }
    assert flow_counts(shared_flow) == (2, 0, 1)
    assert [(event.data["run_id"], event.contact_id) for event in events_named("flow_exit")] == [
        (merged_run.id, survivor_id)
    ]
