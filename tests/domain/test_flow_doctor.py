"""The doctor's checks of flows: correct counters are ok, and each kind of damage is reported."""

from pathlib import Path

import pytest

from appliance.core import data_dir
from appliance.flows import run_ends, versions
from appliance.ops import doctor
from appliance.ops.doctor import checks
from appliance.storage import transactions
from appliance.storage.database import run as execute
from appliance.storage.models import Flow
from tests.domain import flow_rows
from tests.domain.home import Home

STEPS = [{"id": 1, "type": "wait", "duration": 60}]


def create_flow_with_runs(home: Home) -> Flow:
    """Create a flow with a live run, an exited run and a test run."""
    flow = flow_rows.insert_flow(home, steps=STEPS)
    transactions.write(versions.write_plan, flow.id, 1, versions.compile_steps(STEPS), {})
    first_id, second_id = home.contact("one@example.org").id, home.contact("two@example.org").id
    flow_rows.insert_run(home, flow, first_id)
    exited_run = flow_rows.insert_run(home, flow, second_id)
    transactions.write(run_ends.end_runs, [exited_run.id], "exited", "taken_out", 5)
    test_run = flow_rows.insert_run(home, flow, second_id, test=True)
    transactions.write(run_ends.end_runs, [test_run.id], "completed", None, 5)
    return flow


def flow_findings(home: Home) -> list[str]:
    """Return level and text of the findings about flow counters."""
    return [f"{finding.level}: {finding.words}" for finding in doctor.check_flow_counts(home.directory, None)]


DAMAGE = {
    "UPDATE flow SET entered_count = 9": "fail: flow 1: the counter of entered runs is 9, but there are 2",
    "UPDATE flow SET exited_count = 0": "fail: flow 1: the counter of exited runs is 0, but there are 1",
    "UPDATE run SET due_at = NULL": "fail: flow 1: 1 runs have no time at which they continue",
    "UPDATE run SET contact_id = NULL": "fail: flow 1: 1 runs belong to deleted contacts",
    "DELETE FROM step": "fail: flow 1: 1 runs are in a step that their flow version does not have",
    "UPDATE step_visit SET action_id = 2": "fail: flow 1: 1 runs are counted in a different step than they are in",
    "UPDATE step_visit SET outcome = NULL": "fail: flow 1: 2 contacts are counted in a step that they have left",
}


def test_correct_counters_are_ok(home: Home) -> None:
    """Test runs are not counted; the doctor can check one account only."""
    create_flow_with_runs(home)
    assert flow_findings(home) == ["ok: the counters of 1 flow are correct"]
    assert next(doctor.check_flow_counts(home.directory, 99)).words == "the counters of 0 flows are correct"


@pytest.mark.parametrize("damage", DAMAGE)
def test_each_inconsistency_is_reported(damage: str, home: Home) -> None:
    """Each damage is reported with its flow and number."""
    create_flow_with_runs(home)
    transactions.write(execute, damage)
    assert flow_findings(home) == [DAMAGE[damage]]


def test_stuck_runs_are_reported_while_the_service_runs(home: Home) -> None:
    """Overdue runs and unprocessed events are warned of if the service runs and the flow is active."""
    create_flow_with_runs(home)
    transactions.write(execute, "UPDATE run SET due_at = 5, updated_at = 5")
    transactions.write(execute, "INSERT INTO cursor (name, event_id) VALUES ('flows', 1)")
    home.advance(3600)

    def warnings(directory: Path) -> list[str]:
        findings = [*doctor.check_flow_runs(directory, None), *checks.check_event_cursors(directory)]
        return [finding.words.partition(" for ")[0] for finding in findings if finding.level == "warn"]

    assert warnings(home.directory) == []
    with data_dir.lock(home.directory):
        first, second = warnings(home.directory)
        assert first == "flow 1: 1 run has been due"
        assert second.startswith("flows has not processed ")
        transactions.write(execute, "UPDATE flow SET status = 'paused'")
        transactions.write(execute, "UPDATE cursor SET event_id = (SELECT max(id) FROM event)")
        assert warnings(home.directory) == []


def test_a_cursor_beyond_the_event_log_fails(home: Home) -> None:
    """A cursor beyond the last event, as after a restore of an older database, is reported."""
    create_flow_with_runs(home)
    transactions.write(execute, "INSERT INTO cursor (name, event_id) VALUES ('flows', 1000)")
    (finding,) = checks.check_event_cursors(home.directory)
    assert finding.level == "fail" and finding.words.startswith("flows is at event 1000")
