"""What the doctor says of flows: nothing while the books hold, and of each kind of damage where it is."""

from pathlib import Path

import pytest

from appliance.core import data_dir
from appliance.flows import run_ends, versions
from appliance.ops.doctor import accounts
from appliance.storage import transactions
from appliance.storage.database import run as execute
from appliance.storage.models import Flow
from tests.domain import flow_rows
from tests.domain.home import Home

STEPS = [{"id": 1, "type": "wait", "duration": 60}]


def flow_with_people(home: Home) -> Flow:
    """Make a flow with somebody inside, somebody who left, a test and an ignored trigger."""
    flow = flow_rows.flow(home, steps=STEPS)
    transactions.write(versions.write_plan, flow.id, 1, versions.compile_steps(STEPS), {})
    one, two = home.contact("one@example.org").id, home.contact("two@example.org").id
    flow_rows.run(home, flow, one)
    left = flow_rows.run(home, flow, two)
    transactions.write(run_ends.end_runs, [left.id], "exited", "taken_out", 5)
    test = flow_rows.run(home, flow, two, test=True)
    transactions.write(run_ends.end_runs, [test.id], "completed", None, 5)
    return flow


def said(home: Home) -> list[str]:
    """Return what the books say of flows, with its level."""
    return [f"{line.level}: {line.words}" for line in accounts.check_flow_counts(home.directory, None)]


DAMAGE = {
    "UPDATE flow SET entered_count = 9": "fail: flow 1: the counter of entered runs is 9, but there are 2",
    "UPDATE flow SET exited_count = 0": "fail: flow 1: the counter of exited runs is 0, but there are 1",
    "UPDATE run SET due_at = NULL": "fail: flow 1: 1 runs have no time at which they continue",
    "UPDATE run SET contact_id = NULL": "fail: flow 1: 1 runs belong to deleted contacts",
    "DELETE FROM step": "fail: flow 1: 1 runs are in a step that their flow version does not have",
    "UPDATE step_visit SET action_id = 2": "fail: flow 1: 1 runs are counted in a different step than they are in",
    "UPDATE step_visit SET outcome = NULL": "fail: flow 1: 2 contacts are counted in a step that they have left",
}


def test_books_that_hold(home: Home) -> None:
    """Tests and ignored triggers are counted nowhere."""
    flow_with_people(home)
    assert said(home) == ["ok: the counters of 1 flow are correct"]
    assert next(accounts.check_flow_counts(home.directory, 99)).words == "the counters of 0 flows are correct"


@pytest.mark.parametrize("damage", DAMAGE)
def test_each_damage_is_named(damage: str, home: Home) -> None:
    """With the flow that has it, and how many."""
    flow_with_people(home)
    transactions.write(execute, damage)
    assert said(home) == [DAMAGE[damage]]


def test_who_does_not_move_is_seen_while_the_service_runs(home: Home) -> None:
    """Runs that were due long ago, and events that nobody looked at; without a service nobody is expected to."""
    flow_with_people(home)
    transactions.write(execute, "UPDATE run SET due_at = 5, updated_at = 5")
    transactions.write(execute, "INSERT INTO cursor (name, event_id) VALUES ('flows', 1)")
    home.advance(3600)

    def warned(directory: Path) -> list[str]:
        lines = [*accounts.check_flow_runs(directory, None), *accounts.check_event_cursors(directory)]
        return [line.words.partition(" for ")[0] for line in lines if line.level == "warn"]

    assert warned(home.directory) == []
    with data_dir.lock(home.directory):
        first, second = warned(home.directory)
        assert first == "flow 1: 1 runs have been due"
        assert second.startswith("flows has not processed ")
        transactions.write(execute, "UPDATE flow SET status = 'paused'")
        transactions.write(execute, "UPDATE cursor SET event_id = (SELECT max(id) FROM event)")
        assert warned(home.directory) == []


def test_a_cursor_before_its_log_is_damage(home: Home) -> None:
    """A log that ends before what was read was put back from an older day."""
    flow_with_people(home)
    transactions.write(execute, "INSERT INTO cursor (name, event_id) VALUES ('flows', 1000)")
    (line,) = accounts.check_event_cursors(home.directory)
    assert line.level == "fail" and line.words.startswith("flows is at event 1000")
