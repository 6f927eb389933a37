"""Holdout groups of flows: who does not enter, what is recorded of them, and what the flow changes."""

import random
from typing import Any

from appliance.flows import enrollment, holdouts, report, store, triggers
from appliance.flows.enrollment import Entrant, OpenFlow
from appliance.flows.holdouts import Holdout
from appliance.storage import transactions
from appliance.storage.database import rows, run
from appliance.storage.models import Flow
from tests.domain.flows_home import live_flow, process_events, record_event, runs
from tests.domain.home import Home

HELD: dict[str, Any] = {"event": "cart_add", "data": {"holdout": 0.3, "holdout_event": "order_paid"}}


def make_contacts(home: Home, number: int) -> list[int]:
    """Return the ids of new contacts."""
    return [home.contact(f"h{index}@acme.test").id for index in range(number)]


def test_a_stable_share_of_the_contacts_does_not_enter(home: Home) -> None:
    """The same contacts are held out at each trigger, and recorded once; others enter each time."""
    flow_id, contacts = live_flow(home, HELD), make_contacts(home, 100)
    for _ in range(2):
        for contact_id in contacts:
            record_event(home, "cart_add", contact_id)
        process_events()
    held_out = {contact for contact, status, reason in runs(flow_id) if (status, reason) == ("ignored", "held_out")}
    assert 15 <= len(held_out) <= 45
    assert held_out == set(holdouts.find_excluded(home.account_id, flow_id, Holdout(0.3), contacts))
    counts = dict(rows("SELECT exit_reason, count(*) FROM run WHERE status = 'ignored' GROUP BY 1"))
    assert counts == {"held_out": len(held_out), "already_inside": 100 - len(held_out)}
    more = set(holdouts.find_excluded(home.account_id, flow_id, Holdout(0.5), contacts))
    assert held_out < more, "a larger share only adds contacts"
    assert set(holdouts.find_excluded(home.account_id, flow_id + 1, Holdout(0.3), contacts)) != held_out


def test_enrolling_by_hand_and_tests(home: Home) -> None:
    """Contacts who are enrolled by hand are held out and recorded too; a test run is not."""
    flow_id, contacts = live_flow(home, HELD), make_contacts(home, 40)
    excluded = set(holdouts.find_excluded(home.account_id, flow_id, Holdout(0.3), contacts))
    result = transactions.write(enrollment.enroll, flow_id, contacts, False)
    assert result is not None and (result.enrolled, result.held_out) == (40 - len(excluded), len(excluded))
    assert {row[0] for row in runs(flow_id) if row[2] == "held_out"} == excluded
    tested = transactions.write(enrollment.enroll, flow_id, sorted(excluded), True)
    assert tested is not None and tested.enrolled == len(excluded)


def test_the_control_group_of_the_account_is_respected_if_asked_for(home: Home) -> None:
    """Its contacts do not enter, and are not counted as held out."""
    contacts = make_contacts(home, 60)
    account_id = home.account_id
    transactions.write(run, "UPDATE account SET control_share = 0.2, control_seed = 7 WHERE id = ?", (account_id,))
    for is_respected in (False, True):
        flow_id = live_flow(home, {"event": "cart_add", "data": {"respect_control_group": is_respected}})
        flow = enrollment.get_open_flow(flow_id)
        assert flow is not None
        result = transactions.write(enrollment.start_runs, flow, [Entrant(number) for number in contacts])
        controls = result.ignored.get("control_group", 0)
        assert (5 <= controls <= 20) is is_respected and result.started == 60 - controls
        assert "held_out" not in {row[2] for row in runs(flow_id)}


def test_the_effect_counts_each_contact_once_from_the_first_entry(home: Home) -> None:
    """Conversions count for 30 days after the first entry, of both groups alike."""
    flow_id, contacts = live_flow(home, HELD), make_contacts(home, 400)
    flow = OpenFlow(home.account_id, flow_id, "Hello", 1, "every_time", holdout=Holdout(0.3))
    record_event(home, "order_paid", contacts[0])  # before the entry
    home.advance(1)
    transactions.write(enrollment.start_runs, flow, [Entrant(number) for number in contacts])
    excluded = holdouts.find_excluded(home.account_id, flow_id, flow.holdout, contacts)
    home.advance(60)
    rng, converted = random.Random(5), {False: 0, True: 0}
    for contact_id in contacts:
        is_held = contact_id in excluded
        if rng.random() < (0.1 if is_held else 0.4):
            converted[is_held] += 1
            record_event(home, "order_paid", contact_id)
            record_event(home, "order_paid", contact_id)
    home.advance(31 * 86_400)
    record_event(home, "order_paid", next(number for number in contacts if number in excluded))
    figures = report.build_report(Flow.get_by_id(flow_id)).holdout
    assert figures is not None and figures.event == "order_paid"
    assert (figures.recipients, figures.held_out) == (400 - len(excluded), len(excluded))
    assert (figures.converted, figures.held_out_converted) == (converted[False], converted[True])
    low, high = figures.difference.low, figures.difference.high
    assert low is not None and high is not None and 0 < low < 0.3 < high
    assert figures.people.estimate == (figures.rate - figures.held_out_rate) * figures.recipients


def test_another_share_is_measured_anew(home: Home) -> None:
    """The goal is the event without another one; entries of before the change do not count."""
    flow_id, contacts = live_flow(home, {"event": "cart_add", "data": {"holdout": 0.5}}, goal="checkout"), None
    contacts = make_contacts(home, 20)
    transactions.write(enrollment.enroll, flow_id, contacts, False)
    flow = Flow.get_by_id(flow_id)
    figures = holdouts.measure(flow)
    assert figures is not None and (figures.event, figures.recipients + figures.held_out) == ("checkout", 20)
    home.advance(60)
    transactions.write(store.set_trigger, flow, triggers.TriggerSpec("cart_add", data={"holdout": 0.2}))
    figures = holdouts.measure(flow)
    assert figures is not None and figures.recipients + figures.held_out == 0 and figures.since is not None
    transactions.write(store.set_trigger, flow, triggers.TriggerSpec("cart_add", data={}))
    assert holdouts.measure(flow) is None


def test_held_out_entries_stay_when_others_are_pruned(home: Home) -> None:
    """They are what the effect is measured from."""
    flow_id, contacts = live_flow(home, HELD), make_contacts(home, 30)
    for _ in range(2):
        for contact_id in contacts:
            record_event(home, "cart_add", contact_id)
        process_events()
    held_out = sum(row[2] == "held_out" for row in runs(flow_id))
    home.advance(86_400)
    transactions.write(triggers._delete_ignored_runs, flow_id, 2**53)
    left = [row[2] for row in runs(flow_id) if row[1] == "ignored"]
    assert left == ["held_out"] * held_out
