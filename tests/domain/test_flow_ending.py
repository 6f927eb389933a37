"""How a run ends: once, with all that counts it, whoever ends it."""

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
from tests.domain.test_importing_apply import applied, checked, worked

GONE: dict[str, Callable[[Home, int], object]] = {
    "delete": lambda home, one: transactions.write(removal.delete, home.account_id, one),
    "erase": lambda home, one: transactions.write(removal.erase, home.account_id, one, BY_API),
}


def counts(flow: Flow) -> tuple[int, int, int]:
    """Return what a flow has counted: entered, completed, exited."""
    row = Flow.get_by_id(flow.id)
    return row.entered_count, row.completed_count, row.exited_count


def told(name: str) -> list[Event]:
    """Return the events of a name, oldest first."""
    return list(Event.select().where(Event.event == name).order_by(Event.id))


def test_a_run_ends_once(home: Home) -> None:
    """Its row, its open passage, the sums of its flow and one event say so; a second end changes nothing."""
    flow = flow_rows.flow(home)
    one = flow_rows.run(home, flow, home.contact("one@example.org").id, chain_depth=2)
    test = flow_rows.run(home, flow, home.contact("two@example.org").id, test=True)
    now = clock.now_ms()
    assert transactions.write(run_ends.end_runs, [one.id, test.id, 99], "exited", "taken_out", now) == [one.id, test.id]
    assert transactions.write(run_ends.end_runs, [one.id], "completed", None, now + 1) == []
    row = Run.get_by_id(one.id)
    assert (row.status, row.exit_reason, row.due_at, row.step_visit_id) == ("exited", "taken_out", None, None)
    assert (row.ended_at, row.action_id) == (now, 1)
    passage = StepVisit.get(StepVisit.run == one)
    assert (passage.outcome, passage.reason, passage.left_at) == ("exited", "taken_out", now)
    assert counts(flow) == (1, 0, 1)
    assert [(event.data, event.chain_depth, event.test) for event in told("flow_exit")] == [
        ({"flow_id": flow.id, "run_id": one.id, "step_id": 1, "status": "exited", "reason": "taken_out"}, 3, False),
        ({"flow_id": flow.id, "run_id": test.id, "step_id": 1, "status": "exited", "reason": "taken_out"}, 1, True),
    ]


def test_what_a_step_said_of_itself_stays(home: Home) -> None:
    """A run that ends behind its last step leaves the outcome of that step alone."""
    flow = flow_rows.flow(home)
    run = flow_rows.run(home, flow, home.contact("one@example.org").id)
    transactions.write(lambda: StepVisit.update(outcome="no", left_at=5).where(StepVisit.run == run).execute())
    transactions.write(run_ends.end_runs, [run.id], "completed", None, clock.now_ms())
    assert [(one.outcome, one.reason, one.left_at) for one in StepVisit.select()] == [("no", None, 5)]
    assert counts(flow) == (1, 1, 0)


def test_a_goal_completes(home: Home) -> None:
    """Who reaches the goal has completed the flow, and both events say so."""
    flow = flow_rows.flow(home, goal="order_paid")
    run = flow_rows.run(home, flow, home.contact("one@example.org").id)
    assert transactions.write(run_ends.complete_runs_at_goal, [run.id], "order_paid", clock.now_ms()) == [run.id]
    row = Run.get_by_id(run.id)
    assert (row.status, row.exit_reason) == ("completed", "goal")
    assert counts(flow) == (1, 1, 0)
    assert [event.data["goal"] for event in told("flow_goal")] == ["order_paid"]
    assert [event.data["status"] for event in told("flow_exit")] == ["completed"]


@pytest.mark.parametrize("how", GONE)
def test_who_is_deleted_leaves_their_flows(how: str, home: Home) -> None:
    """Their runs end, nothing of what started any of them is kept, and the event names nobody."""
    flow, other = flow_rows.flow(home), flow_rows.flow(home, "Win back")
    contact = home.contact("one@example.org").id
    flow_rows.run(home, flow, contact, event_data={"name": "Ada"})
    flow_rows.run(home, other, contact, status="completed", event_data={"name": "Ada"})
    GONE[how](home, contact)
    found = [(row.status, row.exit_reason, row.contact_id, row.event_data) for row in Run.select().order_by(Run.id)]
    assert found == [("exited", "contact_deleted", None, {}), ("completed", None, None, {})]
    assert [event.contact_id for event in told("flow_exit")] == [None]
    assert counts(flow) == (1, 0, 1)
    assert rows("PRAGMA foreign_key_check") == []


def test_an_import_taken_back_takes_its_people_out_of_flows(home: Home) -> None:
    """Whoever it made and nobody wrote to is deleted as by hand."""
    job = applied(home, checked(home, "email\none@example.org\n").id)
    flow = flow_rows.flow(home)
    run = flow_rows.run(home, flow, Contact.get().id)
    transactions.write(imports.undo, home.account_id, job.id)
    assert worked(job.id).phase == "undone" and Contact.select().count() == 0
    row = Run.get_by_id(run.id)
    assert (row.status, row.exit_reason, row.event_data) == ("exited", "contact_deleted", {})
    assert counts(flow) == (1, 0, 1)


def test_of_two_merged_people_each_flow_keeps_one_way(home: Home) -> None:
    """A flow that both are in goes on with the run of whoever stays; a run of the other alone goes on as theirs."""
    both, alone = flow_rows.flow(home), flow_rows.flow(home, "Alone")
    stays, goes = home.contact("one@example.org").id, home.contact("two@example.org").id
    mine, theirs = flow_rows.run(home, both, stays), flow_rows.run(home, both, goes)
    moved, test = flow_rows.run(home, alone, goes), flow_rows.run(home, both, goes, test=True)
    transactions.write(removal.merge, home.account_id, stays, goes, BY_API)
    found = {row.id: (row.status, row.exit_reason, row.contact_id) for row in Run.select()}
    assert found == {
        mine.id: ("live", None, stays),
        theirs.id: ("exited", "contact_merged", stays),
        moved.id: ("live", None, stays),
        test.id: ("live", None, stays),
    }
    assert counts(both) == (2, 0, 1)
    assert [(event.data["run_id"], event.contact_id) for event in told("flow_exit")] == [(theirs.id, stays)]
