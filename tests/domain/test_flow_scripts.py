"""Scripts stored with a flow, which are its tests: they pass, or report each unmet expectation."""

import re
from typing import Any

import pytest

from appliance.core.errors import Invalid
from appliance.flows import simulation, store
from appliance.storage.models import Flow
from tests.domain.flows_rehearsed import DAY, START, clicked_filter, create_flow, update_flow
from tests.domain.home import Home

EMAIL_STEP = {"subject": "Welcome {{ contact.first_name }}", "body": "<p>Hello you</p>"}
STEPS = [
    EMAIL_STEP,
    {"duration": DAY},
    {"filters": [clicked_filter()], "yes": [{"type": "exit"}], "no": [{"duration": 60}]},
]
CLICKS: dict[str, Any] = {
    "name": "Who clicks leaves", "start_at": START, "events": [{"event": "email_clicked", "step": 1, "after": 60}],
    "expect": [
        {"step": 1, "outcome": "on", "subject": "welcome alex", "text": "hello you"}, {"step": 3, "outcome": "yes"},
        {"step": 5, "outcome": "not_reached"}, {"end": "exited", "reason": "exit_step"},
    ],
}  # fmt: skip


def run_scripts(home: Home, flow: Flow) -> list[simulation.ScriptResult]:
    """Run the scripts of a flow as stored."""
    return simulation.run_scripts(store.get(home.account_id, flow.id))


def test_a_script_passes_if_all_expectations_are_met(home: Home) -> None:
    """Outcomes, texts of messages and the end are compared with the simulation."""
    (result,) = run_scripts(home, create_flow(home, STEPS, data={"scripts": [CLICKS]}))
    assert (result.name, result.passed, result.expected, result.failures) == ("Who clicks leaves", True, 4, [])
    assert result.end.startswith("Exits the flow at an exit step: Tue, 4 Mar 2031")


def test_a_failed_script_reports_each_unmet_expectation(home: Home) -> None:
    """Each failure names the expectation and what happened instead."""
    flow = create_flow(home, STEPS, data={"scripts": [{**CLICKS, "events": []}, {**CLICKS, "name": "Other"}]})
    failed, passed = run_scripts(home, flow)
    assert passed.passed and not failed.passed
    (split_failure, unreached_failure, end_failure) = failed.failures
    assert re.match(r"Branch “Clicked.*\?” should take “Yes”: Branch: No, .*found: never", split_failure), split_failure
    assert unreached_failure.startswith("“Wait 1 minute” should not be reached: Wait 1 minute")
    assert end_failure.startswith("the contact should exit early: ")
    update_flow(home, flow, steps=[{**EMAIL_STEP, "id": 1, "subject": "Good day"}, {"duration": 60}])
    (_, edited) = run_scripts(home, flow)
    assert not edited.passed and edited.failures[0].startswith(
        "the subject of Email “Good day” should contain “welcome alex”: "
    )
    assert "the step was deleted" in edited.failures


def test_a_script_with_a_deleted_contact_or_step_fails(home: Home) -> None:
    """The failure is reported for that script, and other scripts run."""
    flow = create_flow(home, STEPS, data={"scripts": [{**CLICKS, "contact_id": 4711}, CLICKS]})
    failed, passed = run_scripts(home, flow)
    assert failed.failures == ["the contact of this test was deleted"] and passed.passed
    update_flow(home, flow, steps=[{"duration": 60}])
    assert run_scripts(home, flow)[1].failures == ["a step that this test needs was deleted"]


def test_failures_name_equal_steps_by_what_is_before_them(home: Home) -> None:
    """A number would have to be counted on the page; the name says which of the equal waits is meant."""
    wait = {"duration": DAY}
    split = {"filters": [clicked_filter()], "yes": [wait], "no": [{"type": "exit"}]}
    expect = [{"step": step_id, "outcome": "skipped"} for step_id in range(1, 7)]
    script = {"name": "Waits", "start_at": START, "expect": expect}
    flow = create_flow(home, [wait, EMAIL_STEP, wait, split], data={"scripts": [script]})
    (result,) = run_scripts(home, flow)
    names = [re.split(r" (?:should be skipped|was not reached)", failure)[0] for failure in result.failures]
    email = "Email “Welcome [First name]”"
    assert names[:3] == ["“Wait 1 day” at the start", email, f"“Wait 1 day” after {email}"], names
    assert re.fullmatch(r"Branch “[^”]+\?”", names[3]), names
    assert names[4:] == [f"“Wait 1 day” on the path “Yes” of {names[3]}", "“Exit the flow”"], names


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
def test_an_invalid_script_is_rejected_on_save(home: Home, script: Any, path: str) -> None:
    """The error is reported at its path within `data`, also for too many scripts."""
    with pytest.raises(Invalid) as error_info:
        create_flow(home, STEPS, data={"scripts": [script]})
    assert list(error_info.value.fields) == [path]
    with pytest.raises(Invalid):
        create_flow(home, STEPS, data={"scripts": [CLICKS] * 21})
