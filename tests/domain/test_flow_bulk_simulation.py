"""Bulk simulation of a flow: its counts are those of a simulation with each contact."""

import threading

import pytest

from appliance.core.errors import Invalid, RateLimitExceeded
from appliance.flows import simulation_bulk
from tests.domain import flows_home
from tests.domain.flows_rehearsed import DAY, clicked_filter, create_flow, simulate, simulate_bulk, step_outcomes
from tests.domain.home import Home
from tests.domain.test_sandbox import dump_database

EMAIL = {"subject": "Hello", "body": "<p>Hi</p>"}


def test_bulk_counts_equal_single_simulations(home: Home) -> None:
    """Each contact who met the trigger counts once, at each step as in a single simulation; nothing is stored."""
    contacts = [home.contact(f"p{n}@example.org", data={"plan": "pro" if n % 3 == 0 else "free"}) for n in range(12)]
    home.opt_out("p0@example.org")
    where = {"where": [{"name": "event.total", "predicate": "gt", "value": 3}]}
    for n, item in enumerate(contacts):
        flows_home.record_event(home, "cart_add", item.id, {"total": n})
        flows_home.record_event(home, "cart_add", item.id, {"total": n, "again": True})
    pro = {"name": "contact_data.plan", "predicate": "eq", "value": "pro"}
    flow = create_flow(
        home, [EMAIL, {"duration": DAY}, {"filters": [pro], "yes": [{"type": "exit"}], "no": [{"event_name": "seen"}]}],
        {"event": "cart_add", "data": where},
    )  # fmt: skip
    before = dump_database(home.directory)
    result = simulate_bulk(home, flow)
    assert dump_database(home.directory) == before
    assert (result.met, result.rehearsed, result.sampled) == (8, 8, False)
    single_results = [
        step_outcomes(simulate(home, flow, contact_id=item.id, event={"total": n}))
        for n, item in enumerate(contacts)
        if n > 3
    ]
    split = next(item for item in result.steps if item.type == "split")
    assert (split.entered, split.yes, split.no) == (
        8, sum((3, "yes") in steps for steps in single_results), sum((3, "no") in steps for steps in single_results)
    ) == (8, 2, 6)  # fmt: skip
    assert [(item.path, item.entered, item.sent) for item in result.steps][:2] == [
        ("steps[0]", 8, 8),
        ("steps[1]", 8, 0),
    ]
    assert (result.completed, result.exited, result.live, result.reasons) == (6, 2, 0, {"exit_step": 2})
    assert "Contacts that met the trigger: 8;" in result.text and "Yes 2 (25%)" in result.text
    lines = result.text.splitlines()
    assert "Wait 1 day" in lines and "  Yes: Exit the flow" in lines, result.text


def test_events_that_start_no_flow_are_left_out(home: Home) -> None:
    """Contacts of an import without flows did not meet the trigger, as in a live flow."""
    live, imported = home.contact("live@example.org"), home.contact("imported@example.org")
    flows_home.record_event(home, "cart_add", live.id)
    flows_home.record_event(home, "cart_add", imported.id, quiet=True)
    assert simulate_bulk(home, create_flow(home, [EMAIL], {"event": "cart_add"})).met == 1


def test_assumed_events_apply_to_a_share_of_contacts(home: Home) -> None:
    """An event with a share happens to about that share of contacts, always the same ones, and can reach the goal."""
    contacts = [home.contact(f"p{n}@example.org") for n in range(40)]
    for item in contacts:
        flows_home.record_event(home, "cart_add", item.id)
    branch = {"filters": [clicked_filter()], "yes": [], "no": [{"type": "exit"}]}
    flow = create_flow(home, [EMAIL, {"duration": DAY}, branch], goal="order_paid")
    click = {"event": "email_clicked", "after": 60, "share": 0.5}
    result = simulate_bulk(home, flow, events=[click])
    split = next(item for item in result.steps if item.type == "split")
    assert 8 <= split.yes <= 32 and split.yes + split.no == 40
    assert simulate_bulk(home, flow, events=[click]).steps == result.steps
    result_with_goal = simulate_bulk(home, flow, events=[{"event": "order_paid", "after": 60}])
    assert result_with_goal.completed == 40 and result_with_goal.reasons == {"goal": 40}


def test_skipped_messages_are_counted_by_reason(home: Home) -> None:
    """Opted-out and suppressed contacts are counted as skipped, by reason."""
    for n in range(4):
        flows_home.record_event(home, "cart_add", home.contact(f"p{n}@example.org").id)
    home.opt_out("p0@example.org")
    home.suppress("p1@example.org", "hard_bounce")
    (email_step,) = simulate_bulk(home, create_flow(home, [EMAIL])).steps
    assert (email_step.entered, email_step.skipped, email_step.sent) == (4, 2, 2)
    assert email_step.reasons == {"unsubscribed": 1, "suppressed_hard_bounce": 1}


def test_a_bulk_simulation_samples_above_the_limit(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Above MAX_CONTACTS only a sample is simulated, with a note about it."""
    monkeypatch.setattr(simulation_bulk, "MAX_CONTACTS", 10)
    for n in range(30):
        flows_home.record_event(home, "cart_add", home.contact(f"p{n}@example.org").id)
    result = simulate_bulk(home, create_flow(home, [{"duration": 60}]))
    assert (result.met, result.rehearsed, result.sampled, result.completed) == (30, 10, True, 10)
    assert "10 of the 30" in result.notes[-1]


def test_bulk_simulation_without_contacts_or_while_another_runs(home: Home) -> None:
    """Without contacts there is only a note; while another bulk simulation runs, RateLimitExceeded is raised."""
    flow = create_flow(home, [{"duration": 60}])
    assert simulate_bulk(home, flow).notes == ["No contact met the trigger in this period."]
    assert simulate_bulk(home, create_flow(home, [{"duration": 60}], {"event": "manual"})).met == 0
    with simulation_bulk._bulk_lock, pytest.raises(RateLimitExceeded):
        simulate_bulk(home, flow)
    notes: list[str] = []
    thread = threading.Thread(target=lambda: notes.extend(simulate_bulk(home, flow).notes))
    thread.start()
    thread.join()
    assert notes == ["No contact met the trigger in this period."]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"days": 0}, "days"), ({"events": [{"event": "order_paid", "share": 2}]}, "events[0].share"),
        ({"events": [{"event": "order_paid"}] * 11}, "events"), ({"start_at": "2000-01-01T00:00:00Z"}, "start_at"),
        ({"events": [{"event": "email_opened", "step": 7}]}, "events[0].step"),
    ],
)  # fmt: skip
def test_invalid_bulk_simulations_are_rejected(home: Home, body: dict[str, object], field: str) -> None:
    """The error is reported at the field's path."""
    with pytest.raises(Invalid) as error_info:
        simulate_bulk(home, create_flow(home, [{"duration": 60}]), **body)
    assert list(error_info.value.fields) == [field]
