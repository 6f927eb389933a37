"""Messages of flows whose contact or flow changes while they are queued or being sent."""

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
from tests.domain.home import Home, record_and_claim
from tests.domain.test_flow_messages import create_email_flow, create_flow_with_messages
from tests.domain.test_flow_run import advance_until_idle, start_runs


def test_a_message_does_not_follow_an_address_to_its_new_owner(home: Home) -> None:
    """A transactional message whose contact gave up the address is skipped, not sent to its new owner."""
    flow = create_email_flow(home, transactional=True)
    ann, bob = home.contact("old@acme.test").id, home.contact("bob@acme.test").id
    start_runs(home, flow, ann, bob)
    advance_until_idle()
    home.patch(ann, email="new@acme.test")
    home.contact("old@acme.test", first_name="Somebody else")
    row = record_and_claim(None, want=True)
    assert row is not None and row.recipient == "bob@acme.test"
    assert rows("SELECT status, skip_reason FROM message") == [("skipped", "no_channel"), ("sending", None)]


@pytest.mark.parametrize("change", ["UPDATE flow SET deleted_at = 1", "UPDATE run SET exit_reason = 'taken_out'"])
def test_no_retry_after_a_run_is_removed(home: Home, change: str) -> None:
    """A deferred message is cancelled if its flow was deleted or its contact taken out meanwhile."""
    flow = create_email_flow(home)
    start_runs(home, flow, home.contact("ann@acme.test").id)
    advance_until_idle()
    row = record_and_claim(None, want=True)
    assert row is not None
    transactions.write(run, change)
    record_and_claim(Outcome(row, Deferred("full", 452, "4.2.2")), want=False)
    assert rows("SELECT status, due_at FROM message") == [("cancelled", None)]


def test_a_merge_cancels_marketing_of_the_ended_run(home: Home) -> None:
    """Marketing messages of ended runs are cancelled, also while being sent; transactional ones stay queued."""
    steps: list[dict[str, Any]] = [
        {"id": 1, "type": "email"}, {"id": 2, "type": "email", "transactional": True},
        {"id": 3, "type": "wait", "duration": 60},
    ]  # fmt: skip
    flow = create_flow_with_messages(home, steps)
    survivor_id, merged_id = home.contact("one@acme.test").id, home.contact("two@acme.test").id
    for contact_id in (merged_id, survivor_id):
        start_runs(home, flow, contact_id)
        advance_until_idle()
    row = record_and_claim(None, want=True)
    assert row is not None and row.contact_id == merged_id
    third_id = home.contact("three@acme.test").id
    start_runs(home, flow, third_id)
    advance_until_idle()
    transactions.write(removal.merge, home.account_id, survivor_id, merged_id, Evidence("api"))
    transactions.write(removal.merge, home.account_id, survivor_id, third_id, Evidence("api"))
    record_and_claim(Outcome(row, Deferred("full", 452, "4.2.2")), want=False)
    assert rows("SELECT recipient, transactional, status FROM message") == [
        ("two@acme.test", 0, "cancelled"), ("two@acme.test", 1, "queued"),
        ("one@acme.test", 0, "queued"), ("one@acme.test", 1, "queued"),
        ("three@acme.test", 0, "cancelled"), ("three@acme.test", 1, "queued"),
    ]  # fmt: skip


def test_no_retry_after_a_flow_is_archived(home: Home) -> None:
    """A deferred message of an archived flow is cancelled, also if its run was already completed."""
    flow = create_email_flow(home)
    start_runs(home, flow, home.contact("ann@acme.test").id)
    advance_until_idle()
    row = record_and_claim(None, want=True)
    assert row is not None and rows("SELECT status FROM run") == [("completed",)]
    transactions.write(lambda: Flow.update(status="archived", pending_end="flow_archived").execute())
    while lifecycle.settle_messages():
        pass
    record_and_claim(Outcome(row, Deferred("full", 452, "4.2.2")), want=False)
    assert rows("SELECT status, due_at FROM message") == [("cancelled", None)]
    assert lifecycle.is_settling_due() and lifecycle.settle_messages() and not lifecycle.settle_messages()
    assert rows("SELECT pending_end FROM flow") == [(None,)]


def test_reaching_the_goal_cancels_marketing_messages(home: Home) -> None:
    """Queued and deferred marketing messages are cancelled; transactional ones stay queued."""
    steps: list[dict[str, Any]] = [
        {"id": 1, "type": "email"}, {"id": 2, "type": "email"}, {"id": 3, "type": "email", "transactional": True},
        {"id": 4, "type": "wait", "duration": 60},
    ]  # fmt: skip
    flow = create_flow_with_messages(home, steps)
    transactions.write(run, "UPDATE flow SET goal = 'order_paid'")
    ann = home.contact("ann@acme.test").id
    start_runs(home, flow, ann)
    advance_until_idle()
    row = record_and_claim(None, want=True)
    assert row is not None
    transactions.write(log.record, NewEvent(home.account_id, "order_paid", ann))
    while enrollment.process_events():
        pass
    record_and_claim(Outcome(row, Deferred("full", 452, "4.2.2")), want=False)
    assert rows("SELECT status, exit_reason FROM run") == [("completed", "goal")]
    assert rows("SELECT step_id, status FROM message ORDER BY step_id") == [
        (1, "cancelled"), (2, "cancelled"), (3, "queued")
    ]  # fmt: skip
