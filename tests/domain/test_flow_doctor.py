"""What the doctor says of flows: nothing while the books hold, and of each kind of damage where it is."""

from pathlib import Path

import pytest

from appliance.core import data_dir
from appliance.flows import document, run_ends
from appliance.ops.doctor import automations
from appliance.storage import work
from appliance.storage.models import Flow
from appliance.storage.open import run as execute
from tests.domain import flow_rows
from tests.domain.home import Home

STEPS = [{"id": 1, "type": "wait", "duration": 60}]


def flow_with_people(home: Home) -> Flow:
    """Make a flow with somebody inside, somebody who left, a test and an ignored trigger."""
    flow = flow_rows.flow(home, steps=STEPS)
    work.write(document.write_plan, flow.id, 1, document.compiled(STEPS), {})
    one, two = home.contact("one@example.org").id, home.contact("two@example.org").id
    flow_rows.run(home, flow, one)
    left = flow_rows.run(home, flow, two)
    work.write(run_ends.end, [left.id], "exited", "taken_out", 5)
    test = flow_rows.run(home, flow, two, test=True)
    work.write(run_ends.end, [test.id], "completed", None, 5)
    return flow


def said(home: Home) -> list[str]:
    """Return what the books say of flows, with its level."""
    return [f"{line.level}: {line.words}" for line in automations.books(home.directory, None)]


DAMAGE = {
    "UPDATE flow SET entered_count = 9": "fail: flow 1: 9 entered are counted, and 2 runs say so",
    "UPDATE flow SET exited_count = 0": "fail: flow 1: 0 exited are counted, and 1 runs say so",
    "UPDATE run SET due_at = NULL": "fail: flow 1: 1 runs have no time at which they go on",
    "UPDATE run SET contact_id = NULL": "fail: flow 1: 1 runs are of people who are gone",
    "DELETE FROM step": "fail: flow 1: 1 runs stand in a step that their version does not have",
    "UPDATE passage SET action_id = 2": "fail: flow 1: 1 runs are counted in another step than they stand in",
    "UPDATE passage SET outcome = NULL": "fail: flow 1: 2 people are counted in a step that they have left",
}


def test_books_that_hold(home: Home) -> None:
    """Tests and ignored triggers are counted nowhere."""
    flow_with_people(home)
    assert said(home) == ["ok: 1 flow balances"]
    assert next(automations.books(home.directory, 99)).words == "0 flows balance"


@pytest.mark.parametrize("damage", DAMAGE)
def test_each_damage_is_named(damage: str, home: Home) -> None:
    """With the flow that has it, and how many."""
    flow_with_people(home)
    work.write(execute, damage)
    assert said(home) == [DAMAGE[damage]]


def test_who_does_not_move_is_seen_while_the_service_runs(home: Home) -> None:
    """Runs that were due long ago, and events that nobody looked at; without a service nobody is expected to."""
    flow_with_people(home)
    work.write(execute, "UPDATE run SET due_at = 5, updated_at = 5")
    work.write(execute, "INSERT INTO cursor (name, event_id) VALUES ('flows', 1)")
    home.advance(3600)

    def warned(directory: Path) -> list[str]:
        lines = [*automations.moving(directory, None), *automations.cursors(directory)]
        return [line.words.partition(" since ")[0] for line in lines if line.level == "warn"]

    assert warned(home.directory) == []
    with data_dir.locked(home.directory):
        first, second = warned(home.directory)
        assert first == "flow 1: 1 runs are due"
        assert second.startswith("flows has not looked at ")
        work.write(execute, "UPDATE flow SET status = 'paused'")
        work.write(execute, "UPDATE cursor SET event_id = (SELECT max(id) FROM event)")
        assert warned(home.directory) == []


def test_a_cursor_before_its_log_is_damage(home: Home) -> None:
    """A log that ends before what was read was put back from an older day."""
    flow_with_people(home)
    work.write(execute, "INSERT INTO cursor (name, event_id) VALUES ('flows', 1000)")
    (line,) = automations.cursors(home.directory)
    assert line.level == "fail" and line.words.startswith("flows stands at event 1000")
