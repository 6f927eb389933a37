"""Messages of flows whose person, or whose flow, became another while they waited or were in hand."""

from typing import Any

import pytest

from appliance.audience.consent import Evidence
from appliance.audience.contacts import removal
from appliance.core.errors import Deferred
from appliance.events import log
from appliance.events.log import NewEvent
from appliance.flows import enrollment, lifecycle
from appliance.sending.messages.ledger import Outcome
from appliance.storage import transactions
from appliance.storage.database import rows, run
from appliance.storage.models import Flow
from tests.domain.home import Home, turn
from tests.domain.test_flow_messages import flow_of, mail
from tests.domain.test_flow_run import enter, until_still


def test_what_somebody_asked_for_goes_to_nobody_else(home: Home) -> None:
    """A transactional message that waited while its person gave up the address never reaches who has it by then."""
    flow = mail(home, transactional=True)
    ann, bob = home.contact("old@acme.test").id, home.contact("bob@acme.test").id
    enter(home, flow, ann, bob)
    until_still()
    home.patch(ann, email="new@acme.test")
    home.contact("old@acme.test", first_name="Somebody else")
    claim = turn(None, want=True)
    assert claim is not None and claim.recipient == "bob@acme.test"
    assert rows("SELECT status, skip_reason FROM message") == [("skipped", "no_channel"), ("sending", None)]


@pytest.mark.parametrize("how", ["UPDATE flow SET deleted_at = 1", "UPDATE run SET exit_reason = 'taken_out'"])
def test_a_message_in_hand_is_not_tried_again_for_who_was_taken_out(home: Home, how: str) -> None:
    """A message that a server put off while its run was ended by a person is cancelled; others wait for their time."""
    flow = mail(home)
    enter(home, flow, home.contact("ann@acme.test").id)
    until_still()
    claim = turn(None, want=True)
    assert claim is not None
    transactions.write(run, how)
    turn(Outcome(claim, Deferred("full", 452, "4.2.2")), want=False)
    assert rows("SELECT status, due_at FROM message") == [("cancelled", None)]


def test_of_two_merged_people_the_way_that_goes_on_sends(home: Home) -> None:
    """What the way that ends was to send is cancelled, be it in hand; what somebody asked for still goes."""
    steps: list[dict[str, Any]] = [
        {"id": 1, "type": "email"}, {"id": 2, "type": "email", "transactional": True},
        {"id": 3, "type": "wait", "duration": 60},
    ]  # fmt: skip
    flow = flow_of(home, steps)
    stays, goes = home.contact("one@acme.test").id, home.contact("two@acme.test").id
    for person in (goes, stays):
        enter(home, flow, person)
        until_still()
    in_hand = turn(None, want=True)
    assert in_hand is not None and in_hand.contact_id == goes
    third = home.contact("three@acme.test").id
    enter(home, flow, third)
    until_still()
    transactions.write(removal.merge, home.account_id, stays, goes, Evidence("api"))
    transactions.write(removal.merge, home.account_id, stays, third, Evidence("api"))
    turn(Outcome(in_hand, Deferred("full", 452, "4.2.2")), want=False)
    assert rows("SELECT recipient, transactional, status FROM message") == [
        ("two@acme.test", 0, "cancelled"), ("two@acme.test", 1, "queued"),
        ("one@acme.test", 0, "queued"), ("one@acme.test", 1, "queued"),
        ("three@acme.test", 0, "cancelled"), ("three@acme.test", 1, "queued"),
    ]  # fmt: skip


def test_a_message_in_hand_of_a_flow_that_is_put_aside_is_not_tried_again(home: Home) -> None:
    """Also where its person had gone through already: it would leave when the flow goes live again, some day."""
    flow = mail(home)
    enter(home, flow, home.contact("ann@acme.test").id)
    until_still()
    claim = turn(None, want=True)
    assert claim is not None and rows("SELECT status FROM run") == [("completed",)]
    transactions.write(lambda: Flow.update(status="archived", pending_end="flow_archived").execute())
    while lifecycle.settle_messages():
        pass
    turn(Outcome(claim, Deferred("full", 452, "4.2.2")), want=False)
    assert rows("SELECT status, due_at FROM message") == [("cancelled", None)]
    assert lifecycle.is_settling_due() and lifecycle.settle_messages() and not lifecycle.settle_messages()
    assert rows("SELECT pending_end FROM flow") == [(None,)]


def test_nothing_that_waits_leaves_once_the_goal_is_reached(home: Home) -> None:
    """Marketing that waits, or comes back from a server, is cancelled; what somebody asked for still goes."""
    steps: list[dict[str, Any]] = [
        {"id": 1, "type": "email"}, {"id": 2, "type": "email"}, {"id": 3, "type": "email", "transactional": True},
        {"id": 4, "type": "wait", "duration": 60},
    ]  # fmt: skip
    flow = flow_of(home, steps)
    transactions.write(run, "UPDATE flow SET goal = 'order_paid'")
    ann = home.contact("ann@acme.test").id
    enter(home, flow, ann)
    until_still()
    in_hand = turn(None, want=True)
    assert in_hand is not None
    transactions.write(log.record, NewEvent(home.account_id, "order_paid", ann))
    while enrollment.process_events():
        pass
    turn(Outcome(in_hand, Deferred("full", 452, "4.2.2")), want=False)
    assert rows("SELECT status, exit_reason FROM run") == [("completed", "goal")]
    assert rows("SELECT step_id, status FROM message ORDER BY step_id") == [
        (1, "cancelled"), (2, "cancelled"), (3, "queued")
    ]  # fmt: skip
