"""Messages of flows: one row for each run, skips with reasons, content, quiet hours and order."""

from collections import Counter
from email import message_from_bytes, policy
from typing import Any

import pytest

from appliance.content.templates import revisions
from appliance.content.templates import store as templates
from appliance.content.templates.validation import TemplateWrite
from appliance.core import clock
from appliance.flows import lifecycle, versions
from appliance.sending.messages import queue, shared_content, sms_rules, transactional
from appliance.sending.messages.ledger import COLUMNS, LedgerRow, Outcome
from appliance.sending.messages.prepare import MessagePreparer
from appliance.sending.messages.queue_reader import QueueReader, Source, get_source
from appliance.storage import transactions
from appliance.storage.database import rows, run, scalar
from appliance.storage.models import Flow, Template
from tests.domain.home import Home, record_and_claim
from tests.domain.test_flow_run import advance_until_idle, create_live_flow, recorded_events, start_runs, step_history

TEMPLATE_FIELDS = {
    "subject": "Hi {{ contact.first_name }}, {{ event.sku }}", "body": '<p><a href="https://acme.test/a">A</a></p>',
}  # fmt: skip


def pin_step(flow: Flow, template: Template, step: dict[str, Any]) -> dict[str, Any]:
    """Return the columns that a message step gets when its flow goes live."""
    defaults = shared_content.get_flow_defaults(flow)
    snapshot = shared_content.build_step_snapshot(defaults, template, step["transactional"])
    pinned = shared_content.add_step_links(template, snapshot, step["type"] == "email")
    revision = revisions.pin_current(template, "Live")
    return {"template": template.id, "content": revision.id, "pinned": pinned}


def create_flow_with_messages(home: Home, steps: list[dict[str, Any]], **more: Any) -> Flow:
    """Create an active flow whose messages are pinned as at publication."""
    flow = create_live_flow(home, [], **more)

    def insert() -> None:
        run("DELETE FROM step")
        messages = {}
        for step in steps:
            if step["type"] in ("email", "sms"):
                template = templates.create(home.account_id, TemplateWrite(**TEMPLATE_FIELDS), flow_id=flow.id)
                Template.update(action_id=step["id"]).where(Template.id == template.id).execute()
                step |= {"template_id": template.id, "transactional": step.get("transactional", False)}
                messages[step["id"]] = pin_step(flow, template, step)
        Flow.update(steps=steps).execute()
        versions.write_plan(flow.id, 1, versions.compile_steps(steps), messages)

    transactions.write(insert)
    return flow


def create_email_flow(home: Home, **more: Any) -> Flow:
    """Create a flow that sends one email."""
    return create_flow_with_messages(home, [{"id": 1, "type": "email", **more}])


def fetch_ledger_rows() -> list[LedgerRow]:
    """Return all rows of the ledger."""
    return [LedgerRow._make(row) for row in rows(f"SELECT {COLUMNS} FROM message ORDER BY id")]


def test_each_run_gets_a_message_or_a_skip_reason(home: Home) -> None:
    """Sendable contacts get a queued row, others a skipped row with its event; all runs go on."""
    flow = create_email_flow(home)
    sendable = home.contact("may@acme.test").id
    left = home.contact("left@acme.test").id
    home.opt_out("left@acme.test")
    bounced = home.contact("bounced@acme.test").id
    home.suppress("bounced@acme.test", "hard_bounce")
    phone_only = home.upsert(phone="+4917012345678").contact.id
    never_opted_in = home.contact("never@acme.test", opt_in=False).id
    runs = start_runs(home, flow, sendable, left, bounced, phone_only, never_opted_in, chain_depth=1)
    advance_until_idle()
    assert rows("SELECT contact_id, run_id, step_id, status, skip_reason, source_type, due_at FROM message") == [
        (sendable, runs[0], 1, "queued", None, "flow", 1), (left, runs[1], 1, "skipped", "unsubscribed", "flow", None),
        (bounced, runs[2], 1, "skipped", "suppressed_hard_bounce", "flow", None),
        (phone_only, runs[3], 1, "skipped", "no_channel", "flow", None),
        (never_opted_in, runs[4], 1, "skipped", "no_consent", "flow", None),
    ]  # fmt: skip
    assert [step_history(number) for number in runs] == [
        [(1, "on", None)], [(1, "skipped", "unsubscribed")], [(1, "skipped", "suppressed_hard_bounce")],
        [(1, "skipped", "no_channel")], [(1, "skipped", "no_consent")],
    ]  # fmt: skip
    assert recorded_events("email_skipped") == [
        (number, 2, 0) for number in (left, bounced, phone_only, never_opted_in)
    ]
    assert rows("SELECT DISTINCT status FROM run") == [("completed",)]


def test_a_transactional_step_needs_no_consent(home: Home) -> None:
    """Opted-out contacts get the message, without unsubscribe headers; suppressed addresses do not."""
    flow = create_email_flow(home, transactional=True)
    opted_out = home.contact("left@acme.test").id
    home.opt_out("left@acme.test")
    bounced = home.contact("bounced@acme.test").id
    home.suppress("bounced@acme.test", "hard_bounce")
    start_runs(home, flow, opted_out, bounced)
    advance_until_idle()
    assert rows("SELECT status, skip_reason, transactional FROM message") == [
        ("queued", None, 1), ("skipped", "suppressed_hard_bounce", 1)
    ]  # fmt: skip
    email = message_from_bytes(
        MessagePreparer().prepare(fetch_ledger_rows()[0]).envelope.content, policy=policy.default
    )
    assert email["List-Unsubscribe"] is None and email["Feedback-ID"] is None and email["List-Id"] is None
    assert email["Auto-Submitted"] == "auto-generated"
    assert "https://acme.test/a" in email.as_string()


def test_a_message_has_the_content_of_its_version(home: Home) -> None:
    """Merge tags have contact and trigger event; later edits of template and flow change nothing."""
    flow = create_email_flow(home)
    ann = home.contact("ann@acme.test", first_name="Ann").id
    start_runs(home, flow, ann, event_data={"sku": "A-7"})
    advance_until_idle()
    template = Template.get()
    transactions.write(templates.update, home.account_id, template.id, TemplateWrite(subject="Later"))
    transactions.write(lambda: Flow.update(name="Later").execute())
    (row,) = fetch_ledger_rows()
    preparer = MessagePreparer()
    preparer.prefetch([row])
    email = message_from_bytes(preparer.prepare(row).envelope.content, policy=policy.default)
    assert email["Subject"] == "Hi Ann, A-7" and email["To"] == "ann@acme.test"
    assert email["List-Unsubscribe-Post"] and email["List-Id"] and email["Auto-Submitted"] == "auto-generated"
    assert email["Feedback-ID"].endswith(":flow:campanero") and email["Precedence"] is None
    html = email.get_body(("html",)).get_content()  # type: ignore[union-attr]  # it has one
    assert "/c/" in html and "https://acme.test/a" not in html and "/o/" in html
    assert MessagePreparer().prepare(row) == preparer.prepare(row)


def test_email_sent_is_one_deeper_and_names_the_step(home: Home) -> None:
    """The event is one deeper in the chain than its run, has step and flow name, and counts for the flow."""
    flow = create_email_flow(home)
    ann = home.contact("ann@acme.test").id
    start_runs(home, flow, ann, chain_depth=3)
    advance_until_idle()
    row = record_and_claim(None, want=True)
    assert row is not None
    record_and_claim(Outcome(row, sender="a@acme.test"), want=False)
    assert recorded_events("email_sent") == [(ann, 4, 0)]
    assert scalar("SELECT json_extract(data, '$.step_id') FROM event WHERE event = 'email_sent'") == 1
    assert scalar("SELECT resource_name FROM event WHERE event = 'email_sent'") == "Welcome"
    assert scalar("SELECT sent_count FROM flow") == 1


def test_messages_of_an_inactive_flow_are_not_sent(home: Home) -> None:
    """Messages of a paused, archived or deleted flow are neither fetched nor claimed."""
    flow = create_email_flow(home)
    start_runs(home, flow, home.contact("ann@acme.test").id)
    advance_until_idle()
    (row,) = QueueReader().fetch_candidates(5)
    for fields in ({"status": "paused"}, {"status": "archived"}, {"status": "active", "deleted_at": 1}):
        transactions.write(lambda changes=fields: Flow.update(**changes).execute())
        assert QueueReader().fetch_candidates(5) == []
        assert not transactions.write(queue.claim_one, row, "p", row, clock.now_ms())
    transactions.write(lambda: Flow.update(deleted_at=None).execute())
    assert record_and_claim(None, want=True) is not None


def test_quiet_hours_hold_marketing_messages(home: Home) -> None:
    """In a flow's quiet hours marketing messages are held until their end; test messages are not."""
    flow = create_email_flow(home)
    transactions.write(run, "UPDATE account SET time_zone = 'Europe/Berlin'")
    transactions.write(run, "UPDATE flow SET data = ?", ('{"quiet_hours": {"from": "21:00", "to": "08:00"}}',))
    home.advance(clock.parse("2030-01-05T22:30:00Z") / 1000 - clock.now())
    ann, bob = home.contact("ann@acme.test").id, home.contact("bob@acme.test").id
    start_runs(home, flow, ann)
    start_runs(home, flow, bob, test=True)
    advance_until_idle()
    assert rows("SELECT status, due_at, provider FROM message ORDER BY contact_id") == [
        ("held", clock.parse("2030-01-06T07:00:00Z"), "capture"), ("queued", 1, "capture")
    ]  # fmt: skip
    home.advance(9 * 3600)
    assert len(QueueReader().fetch_candidates(5)) == 2


def test_messages_of_a_paused_flow_are_held_outside_the_queue(home: Home) -> None:
    """Due messages are held without a time until the flow resumes; messages due later keep their time."""
    flow = create_email_flow(home)
    start_runs(home, flow, *(home.contact(f"p{n}@acme.test").id for n in range(3)))
    advance_until_idle()
    later = clock.now_ms() + 3_600_000
    transactions.write(run, "UPDATE message SET due_at = ? WHERE id = 3", (later,))
    assert not lifecycle.is_settling_due() and not lifecycle.settle_messages()
    transactions.write(lambda: Flow.update(status="paused").execute())
    assert (
        lifecycle.is_settling_due()
        and lifecycle.settle_messages()
        and not lifecycle.is_settling_due()
        and not lifecycle.settle_messages()
    )
    assert rows("SELECT status, due_at FROM message") == [("held", None), ("held", None), ("queued", later)]
    transactions.write(lambda: Flow.update(status="active").execute())
    assert lifecycle.is_settling_due() and lifecycle.settle_messages() and not lifecycle.settle_messages()
    assert rows("SELECT status, due_at FROM message") == [("queued", 1), ("queued", 1), ("queued", later)]


def test_a_resume_can_drop_overdue_messages(home: Home) -> None:
    """Messages from before `drop_before` are skipped with a reason; later ones are sent."""
    flow = create_email_flow(home)
    start_runs(home, flow, home.contact("old@acme.test").id)
    advance_until_idle()
    home.advance(100)
    drop_before = clock.now_ms()
    start_runs(home, flow, home.contact("new@acme.test").id)
    advance_until_idle()
    transactions.write(lambda: Flow.update(drop_before=drop_before).execute())
    assert not lifecycle.settle_messages()
    row = record_and_claim(None, want=True)
    assert row is not None and row.recipient == "new@acme.test"
    assert rows("SELECT status, skip_reason FROM message") == [("skipped", "overdue_on_resume"), ("sending", None)]
    while lifecycle.settle_messages():
        pass
    assert rows("SELECT drop_before FROM flow") == [(None,)]


def test_messages_of_a_deleted_flow_are_cancelled(home: Home) -> None:
    """Open messages are cancelled; one that may have been accepted becomes uncertain."""
    flow = create_email_flow(home)
    start_runs(home, flow, *(home.contact(f"p{n}@acme.test").id for n in range(3)))
    advance_until_idle()
    transactions.write(run, "UPDATE message SET uncertain_count = 1 WHERE id = 2")
    transactions.write(lambda: Flow.update(deleted_at=clock.now_ms(), status="archived").execute())
    assert lifecycle.is_settling_due() and lifecycle.settle_messages() and not lifecycle.settle_messages()
    assert rows("SELECT status, due_at FROM message") == [("cancelled", None), ("uncertain", None), ("cancelled", None)]


def test_quiet_hours_hold_messages_queued_before(home: Home) -> None:
    """Messages not yet sent when quiet hours begin are held until their end."""
    flow = create_email_flow(home)
    home.advance(clock.parse("2030-01-05T20:59:00Z") / 1000 - clock.now())
    transactions.write(run, "UPDATE flow SET data = ?", ('{"quiet_hours": {"from": "21:00", "to": "08:00"}}',))
    start_runs(home, flow, home.contact("ann@acme.test").id)
    advance_until_idle()
    home.advance(120)
    assert record_and_claim(None, want=True) is None
    assert rows("SELECT status, due_at FROM message") == [("held", clock.parse("2030-01-06T08:00:00Z"))]
    home.advance(11 * 3600)
    assert record_and_claim(None, want=True) is not None


@pytest.mark.parametrize(
    ("hours", "now", "end"),
    [
        ({"from": "21:00", "to": "08:00"}, "2030-01-05T20:00:00+01:00", None),
        ({"from": "21:00", "to": "08:00"}, "2030-01-05T21:00:00+01:00", "2030-01-06T08:00:00+01:00"),
        ({"from": "21:00", "to": "08:00"}, "2030-01-05T07:59:59+01:00", "2030-01-05T08:00:00+01:00"),
        ({"from": "21:00", "to": "08:00"}, "2030-01-05T08:00:00+01:00", None),
        ({"from": "12:00", "to": "13:30"}, "2030-07-05T12:10:00+02:00", "2030-07-05T13:30:00+02:00"),
        # The hour skipped in spring and the hour repeated in autumn
        ({"from": "22:00", "to": "02:30"}, "2030-03-31T01:10:00+01:00", "2030-03-31T03:30:00+02:00"),
        ({"from": "22:00", "to": "06:00"}, "2030-10-27T02:10:00+01:00", "2030-10-27T06:00:00+01:00"),
        ({"from": "22:00", "to": "02:30"}, "2030-10-27T02:10:00+02:00", "2030-10-27T02:30:00+02:00"),
        ({"from": "22:00", "to": "02:30"}, "2030-10-27T02:10:00+01:00", "2030-10-27T02:30:00+01:00"),
        ({"from": "09:00", "to": "09:00"}, "2030-01-05T09:00:00+01:00", None),
        ({"from": "25:00", "to": "08:00"}, "2030-01-05T07:00:00+01:00", None),
        (["21:00", "08:00"], "2030-01-05T07:00:00+01:00", None),
        (None, "2030-01-05T07:00:00+01:00", None),
    ],
)
def test_get_quiet_end(hours: Any, now: str, end: str | None) -> None:
    """Quiet hours follow local time, over midnight and clock changes; invalid hours are ignored."""
    quiet_end = sms_rules.get_quiet_end(hours, "Europe/Berlin", clock.parse(now))
    assert quiet_end == (None if end is None else clock.parse(end))


def test_an_sms_step_queues_an_sms(home: Home) -> None:
    """The SMS goes to the contact's phone number, and the email sender does not claim it."""
    flow = create_flow_with_messages(home, [{"id": 1, "type": "sms"}])
    (run_id,) = start_runs(home, flow, home.upsert(phone="+4917012345678", email="ann@acme.test").contact.id)
    advance_until_idle()
    assert rows("SELECT channel, recipient, status, skip_reason, sender, reply_to FROM message") == [
        ("sms", "+4917012345678", "queued", None, None, None)
    ]  # fmt: skip
    assert step_history(run_id) == [(1, "on", None)]
    assert record_and_claim(None, want=True) is None


def test_disabling_transactional_messages_skips_them_in_flows(home: Home) -> None:
    """Transactional steps are skipped once the account disallows them; marketing steps go on."""
    flow = create_flow_with_messages(
        home, [{"id": 1, "type": "email", "transactional": True}, {"id": 2, "type": "email"}]
    )
    transactions.write(run, "UPDATE account SET transactional_allowed = 0")
    (run_id,) = start_runs(home, flow, home.contact("ann@acme.test").id)
    advance_until_idle()
    assert step_history(run_id) == [(1, "skipped", "transactional_disabled"), (2, "on", None)]
    assert rows("SELECT status, skip_reason FROM message ORDER BY step_id") == [
        ("skipped", "transactional_disabled"), ("queued", None),
    ]  # fmt: skip


def test_flow_messages_share_the_queue_fairly(home: Home) -> None:
    """Single messages come before those of flows; campaigns and flows take equal turns."""
    flow = create_email_flow(home)
    contact_ids = [home.contact(f"p{n}@acme.test").id for n in range(60)]
    start_runs(home, flow, *contact_ids)
    advance_until_idle()
    home.send(home.campaign(home.list_of(*contact_ids).id))
    reader, taken_ids = QueueReader(), set[int]()
    for _ in range(3):
        candidates = reader.fetch_candidates(10, taken_ids)
        assert Counter(get_source(row) for row in candidates) == {
            Source("flow", home.account_id): 5,
            Source("campaign", 1): 5,
        }
        taken_ids |= {row.id for row in candidates}
    single_message = transactional.MessageWrite(to="new@acme.test", subject="Code", body="1234")
    number = transactions.write(transactional.queue_message, home.account_id, single_message).id
    assert reader.fetch_candidates(10, taken_ids)[0].id == number
