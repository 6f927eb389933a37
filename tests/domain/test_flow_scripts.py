"""Scripts that are kept with a flow are its tests: they pass, or say what came in place of what was expected."""

from typing import Any

import pytest

from appliance.core.errors import Invalid
from appliance.flows import simulation_bulk, store
from appliance.storage.models import Flow
from tests.domain.flows_rehearsed import DAY, START, changed, clicked, written
from tests.domain.home import Home

MAIL = {"subject": "Welcome {{ contact.first_name }}", "body": "<p>Hello you</p>"}
STEPS = [MAIL, {"duration": DAY}, {"filters": [clicked()], "yes": [{"type": "exit"}], "no": [{"duration": 60}]}]
CLICKS: dict[str, Any] = {
    "name": "Who clicks leaves", "start_at": START, "events": [{"event": "email_clicked", "step": 1, "after": 60}],
    "expect": [
        {"step": 1, "outcome": "on", "subject": "welcome alex", "text": "hello you"}, {"step": 3, "outcome": "yes"},
        {"step": 5, "outcome": "not_reached"}, {"end": "exited", "reason": "exit_step"},
    ],
}  # fmt: skip


def played(home: Home, flow: Flow) -> list[simulation_bulk.ScriptResult]:
    """Play the scripts of a flow as it is stored."""
    return simulation_bulk.run_scripts(store.get(home.account_id, flow.id))


def test_a_script_passes_while_all_is_as_expected(home: Home) -> None:
    """Outcomes, words of messages and the end are held against the rehearsal."""
    (found,) = played(home, written(home, STEPS, data={"scripts": [CLICKS]}))
    assert (found.name, found.passed, found.expected, found.failures) == ("Who clicks leaves", True, 4, [])
    assert found.end.startswith("Left Tue 4 Mar 2031")


def test_what_an_edit_breaks_is_said_with_what_was_found(home: Home) -> None:
    """Each expectation that does not come says what came."""
    flow = written(home, STEPS, data={"scripts": [{**CLICKS, "events": []}, {**CLICKS, "name": "Other"}]})
    fails, passes = played(home, flow)
    assert passes.passed and not fails.passed
    assert [words.partition(":")[0] for words in fails.failures] == [
        "step 3 should be left with yes", "step 5 should not be reached", "it should end exited",
    ]  # fmt: skip
    assert "found: never" in fails.failures[0]
    changed(home, flow, steps=[{**MAIL, "id": 1, "subject": "Good day"}, {"duration": 60}])
    (_, edited) = played(home, flow)
    assert not edited.passed and edited.failures[0].startswith("the subject of step 1 should have “welcome alex”")
    assert "step 3 was not reached" in edited.failures


def test_a_script_whose_person_or_step_is_gone_fails(home: Home) -> None:
    """It is told as a failure of that script, not of the request."""
    flow = written(home, STEPS, data={"scripts": [{**CLICKS, "contact_id": 4711}, CLICKS]})
    gone, fine = played(home, flow)
    assert gone.failures == ["contact_id must exist"] and fine.passed
    changed(home, flow, steps=[{"duration": 60}])
    assert played(home, flow)[1].failures == ["events[0].step must exist"]


@pytest.mark.parametrize(
    ("script", "path"),
    [
        ("no", "data.scripts[0]"), ({}, "data.scripts[0].name"), ({"name": 5}, "data.scripts[0].name"),
        ({"name": "a", "events": [{"event": "Bad"}]}, "data.scripts[0].events[0].event"),
        ({"name": "a", "expect": [{}]}, "data.scripts[0].expect[0]"),
        ({"name": "a", "expect": [{"step": 1, "outcome": "maybe"}]}, "data.scripts[0].expect[0].outcome"),
        ({"name": "a", "expect": [{"end": "exited", "subject": "x"}]}, "data.scripts[0].expect[0]"),
    ],
)  # fmt: skip
def test_a_script_that_is_none_is_refused_when_it_is_saved(home: Home, script: Any, path: str) -> None:
    """Faults are told at their path within the flow's data, and the flow is not changed."""
    with pytest.raises(Invalid) as refused:
        written(home, STEPS, data={"scripts": [script]})
    assert list(refused.value.fields) == [path]
    with pytest.raises(Invalid):
        written(home, STEPS, data={"scripts": [CLICKS] * 21})
