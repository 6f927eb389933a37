"""Messages of flows: a row for each run, who is skipped and why, what they say and when they may leave."""

from collections import Counter
from email import message_from_bytes, policy
from typing import Any

import pytest

from appliance.content.templates import store as templates
from appliance.content.templates.validation import TemplateWrite
from appliance.core import clock
from appliance.flows import lifecycle, versions
from appliance.sending.messages import queue, shared_content, sms_rules, transactional
from appliance.sending.messages.ledger import COLUMNS, Claim, Outcome
from appliance.sending.messages.prepare import MessagePreparer
from appliance.sending.messages.queue_reader import QueueReader, Source, get_source
from appliance.storage import transactions
from appliance.storage.database import rows, run, scalar
from appliance.storage.models import Flow, Template
from tests.domain.home import Home, turn
from tests.domain.test_flow_run import enter, live, passed, told, until_still

SAID = {
    "subject": "Hi {{ contact.first_name }}, {{ event.sku }}", "body": '<p><a href="https://acme.test/a">A</a></p>',
}  # fmt: skip


def flow_of(home: Home, steps: list[dict[str, Any]], **more: Any) -> Flow:
    """Make an active flow whose email steps are pinned as when it goes live."""
    flow = live(home, [], **more)

    def make() -> None:
        run("DELETE FROM step")
        messages = {}
        for step in steps:
            if step["type"] in ("email", "sms"):
                template = templates.create(home.account_id, TemplateWrite(**SAID), flow_id=flow.id)
                Template.update(action_id=step["id"]).where(Template.id == template.id).execute()
                step |= {"template_id": template.id, "transactional": step.get("transactional", False)}
                messages[step["id"]] = shared_content.pin_step(flow, template, step.get("transactional", False),
                                                   step["type"] == "email")  # fmt: skip
        Flow.update(steps=steps).execute()
        versions.write_plan(flow.id, 1, versions.compile_steps(steps), messages)

    transactions.write(make)
    return flow


def mail(home: Home, **more: Any) -> Flow:
    """Make a flow that sends one email."""
    return flow_of(home, [{"id": 1, "type": "email", **more}])


def claims() -> list[Claim]:
    """Return all rows of the ledger."""
    return [Claim._make(row) for row in rows(f"SELECT {COLUMNS} FROM message ORDER BY id")]


def test_a_message_for_each_run_or_a_reason_why_not(home: Home) -> None:
    """Whoever may be written to has an open row, the others a skipped one with its event; all of them go on."""
    flow = mail(home)
    may = home.contact("may@acme.test").id
    left = home.contact("left@acme.test").id
    home.leave("left@acme.test")
    bounced = home.contact("bounced@acme.test").id
    home.suppress("bounced@acme.test", "hard_bounce")
    phone_only = home.upsert(phone="+4917012345678").contact.id
    never = home.contact("never@acme.test", opt_in=False).id
    ids = enter(home, flow, may, left, bounced, phone_only, never, chain_depth=1)
    until_still()
    assert rows("SELECT contact_id, run_id, step_id, status, skip_reason, source_type, due_at FROM message") == [
        (may, ids[0], 1, "queued", None, "flow", 2), (left, ids[1], 1, "skipped", "unsubscribed", "flow", None),
        (bounced, ids[2], 1, "skipped", "suppressed_hard_bounce", "flow", None),
        (phone_only, ids[3], 1, "skipped", "no_channel", "flow", None),
        (never, ids[4], 1, "skipped", "no_consent", "flow", None),
    ]  # fmt: skip
    assert [passed(one) for one in ids] == [
        [(1, "on", None)], [(1, "skipped", "unsubscribed")], [(1, "skipped", "suppressed_hard_bounce")],
        [(1, "skipped", "no_channel")], [(1, "skipped", "no_consent")],
    ]  # fmt: skip
    assert told("email_skipped") == [(one, 2, 0) for one in (left, bounced, phone_only, never)]
    assert rows("SELECT DISTINCT status FROM run") == [("completed",)]


def test_what_somebody_asked_for_needs_no_consent(home: Home) -> None:
    """A transactional step goes to those who opted out too, and never to a suppressed address."""
    flow = mail(home, transactional=True)
    left = home.contact("left@acme.test").id
    home.leave("left@acme.test")
    bounced = home.contact("bounced@acme.test").id
    home.suppress("bounced@acme.test", "hard_bounce")
    enter(home, flow, left, bounced)
    until_still()
    assert rows("SELECT status, skip_reason, transactional FROM message") == [
        ("queued", None, 1), ("skipped", "suppressed_hard_bounce", 1)
    ]  # fmt: skip
    made = message_from_bytes(MessagePreparer().prepare(claims()[0]).envelope.content, policy=policy.default)
    assert made["List-Unsubscribe"] is None and made["Feedback-ID"] is None and made["List-Id"] is None
    assert made["Auto-Submitted"] == "auto-generated"
    assert "https://acme.test/a" in made.as_string()


def test_a_message_says_what_its_version_said(home: Home) -> None:
    """Merge tags know the person and the event that started the run; a later edit changes nothing of it."""
    flow = mail(home)
    ann = home.contact("ann@acme.test", first_name="Ann").id
    enter(home, flow, ann, event_data={"sku": "A-7"})
    until_still()
    template = Template.get()
    transactions.write(templates.update, home.account_id, template.id, TemplateWrite(subject="Later"))
    transactions.write(lambda: Flow.update(name="Later").execute())
    (claim,) = claims()
    workshop = MessagePreparer()
    workshop.prefetch([claim])
    made = message_from_bytes(workshop.prepare(claim).envelope.content, policy=policy.default)
    assert made["Subject"] == "Hi Ann, A-7" and made["To"] == "ann@acme.test"
    assert made["List-Unsubscribe-Post"] and made["List-Id"] and made["Auto-Submitted"] == "auto-generated"
    assert made["Feedback-ID"].endswith(":flow:campanero") and made["Precedence"] is None
    html = made.get_body(("html",)).get_content()  # type: ignore[union-attr]  # it has one
    assert "/c/" in html and "https://acme.test/a" not in html and "/o/" in html
    assert MessagePreparer().prepare(claim) == workshop.prepare(claim)


def test_events_of_a_message_stand_one_deeper_and_name_the_step(home: Home) -> None:
    """What becomes of a message stands one deeper in the chain than its run, and counts for its flow."""
    flow = mail(home)
    ann = home.contact("ann@acme.test").id
    enter(home, flow, ann, chain_depth=3)
    until_still()
    claim = turn(None, want=True)
    assert claim is not None
    turn(Outcome(claim, sender="a@acme.test"), want=False)
    assert told("email_sent") == [(ann, 4, 0)]
    assert scalar("SELECT json_extract(data, '$.step_id') FROM event WHERE event = 'email_sent'") == 1
    assert scalar("SELECT resource_name FROM event WHERE event = 'email_sent'") == "Welcome"
    assert scalar("SELECT sent_count FROM flow") == 1


def test_messages_stay_while_their_flow_is_paused(home: Home) -> None:
    """Nothing leaves of a flow that is paused, archived or deleted: it stands in no line, and may not be marked."""
    flow = mail(home)
    enter(home, flow, home.contact("ann@acme.test").id)
    until_still()
    (claim,) = QueueReader().fetch_candidates(5)
    for fields in ({"status": "paused"}, {"status": "archived"}, {"status": "active", "deleted_at": 1}):
        transactions.write(lambda found=fields: Flow.update(**found).execute())
        assert QueueReader().fetch_candidates(5) == []
        assert not transactions.write(queue.claim_one, claim, "p", claim, clock.now_ms())
    transactions.write(lambda: Flow.update(deleted_at=None).execute())
    assert turn(None, want=True) is not None


def test_quiet_hours_hold_marketing(home: Home) -> None:
    """In the quiet hours of a flow its marketing messages wait for their end; tests and service messages do not."""
    flow = mail(home)
    transactions.write(run, "UPDATE account SET time_zone = 'Europe/Berlin'")
    transactions.write(run, "UPDATE flow SET data = ?", ('{"quiet_hours": {"from": "21:00", "to": "08:00"}}',))
    home.advance(clock.parse("2030-01-05T22:30:00Z") / 1000 - clock.now())
    ann, bob = home.contact("ann@acme.test").id, home.contact("bob@acme.test").id
    enter(home, flow, ann)
    enter(home, flow, bob, test=True)
    until_still()
    assert rows("SELECT status, due_at, provider FROM message ORDER BY contact_id") == [
        ("held", clock.parse("2030-01-06T07:00:00Z"), "capture"), ("queued", 2, "capture")
    ]  # fmt: skip
    home.advance(9 * 3600)
    assert len(QueueReader().fetch_candidates(5)) == 2


def test_what_a_paused_flow_wanted_to_send_lies_outside_of_the_line(home: Home) -> None:
    """Its rows are held without a time until it goes on; what is only due later keeps its time."""
    flow = mail(home)
    enter(home, flow, *(home.contact(f"p{n}@acme.test").id for n in range(3)))
    until_still()
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
    assert rows("SELECT status, due_at FROM message") == [("queued", 2), ("queued", 2), ("queued", later)]


def test_a_resume_without_what_is_overdue_drops_those_messages(home: Home) -> None:
    """What was written before the moment is skipped with its reason; what came later goes out."""
    flow = mail(home)
    enter(home, flow, home.contact("old@acme.test").id)
    until_still()
    home.advance(100)
    moment = clock.now_ms()
    enter(home, flow, home.contact("new@acme.test").id)
    until_still()
    transactions.write(lambda: Flow.update(drop_before=moment).execute())
    assert not lifecycle.settle_messages()
    claim = turn(None, want=True)
    assert claim is not None and claim.recipient == "new@acme.test"
    assert rows("SELECT status, skip_reason FROM message") == [("skipped", "overdue_on_resume"), ("sending", None)]
    while lifecycle.settle_messages():
        pass
    assert rows("SELECT drop_before FROM flow") == [(None,)]


def test_nothing_of_a_deleted_flow_stays_open(home: Home) -> None:
    """What was in hand when it was deleted, and comes back, is cancelled; one that may have arrived stays in doubt."""
    flow = mail(home)
    enter(home, flow, *(home.contact(f"p{n}@acme.test").id for n in range(3)))
    until_still()
    transactions.write(run, "UPDATE message SET uncertain_count = 1 WHERE id = 2")
    transactions.write(lambda: Flow.update(deleted_at=clock.now_ms(), status="archived").execute())
    assert lifecycle.is_settling_due() and lifecycle.settle_messages() and not lifecycle.settle_messages()
    assert rows("SELECT status, due_at FROM message") == [("cancelled", None), ("uncertain", None), ("cancelled", None)]


def test_quiet_hours_that_began_since_hold_what_waits(home: Home) -> None:
    """A message that did not leave before the quiet hours waits for their end, and leaves then."""
    flow = mail(home)
    home.advance(clock.parse("2030-01-05T20:59:00Z") / 1000 - clock.now())
    transactions.write(run, "UPDATE flow SET data = ?", ('{"quiet_hours": {"from": "21:00", "to": "08:00"}}',))
    enter(home, flow, home.contact("ann@acme.test").id)
    until_still()
    home.advance(120)
    assert turn(None, want=True) is None
    assert rows("SELECT status, due_at FROM message") == [("held", clock.parse("2030-01-06T08:00:00Z"))]
    home.advance(11 * 3600)
    assert turn(None, want=True) is not None


@pytest.mark.parametrize(
    ("hours", "now", "end"),
    [
        ({"from": "21:00", "to": "08:00"}, "2030-01-05T20:00:00+01:00", None),
        ({"from": "21:00", "to": "08:00"}, "2030-01-05T21:00:00+01:00", "2030-01-06T08:00:00+01:00"),
        ({"from": "21:00", "to": "08:00"}, "2030-01-05T07:59:59+01:00", "2030-01-05T08:00:00+01:00"),
        ({"from": "21:00", "to": "08:00"}, "2030-01-05T08:00:00+01:00", None),
        ({"from": "12:00", "to": "13:30"}, "2030-07-05T12:10:00+02:00", "2030-07-05T13:30:00+02:00"),
        # An hour that is left out in spring, and one that comes twice in autumn
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
def test_quiet_hours_end(hours: Any, now: str, end: str | None) -> None:
    """Quiet hours go by the clocks on the wall, over midnight and over their changes; what cannot be read is none."""
    found = sms_rules.get_quiet_end(hours, "Europe/Berlin", clock.parse(now))
    assert found == (None if end is None else clock.parse(end))


def test_an_sms_waits_in_its_own_line(home: Home) -> None:
    """A step's SMS is for the first phone number that may be written to; who sends mail never takes it."""
    flow = flow_of(home, [{"id": 1, "type": "sms"}])
    (one,) = enter(home, flow, home.upsert(phone="+4917012345678", email="ann@acme.test").contact.id)
    until_still()
    assert rows("SELECT channel, recipient, status, skip_reason, sender, reply_to FROM message") == [
        ("sms", "+4917012345678", "queued", None, None, None)
    ]  # fmt: skip
    assert passed(one) == [(1, "on", None)]
    assert turn(None, want=True) is None


def test_service_messages_that_are_switched_off_stop_in_live_flows_too(home: Home) -> None:
    """What the account no longer sends is skipped, whenever the flow went live; all else it sends goes on."""
    flow = flow_of(home, [{"id": 1, "type": "email", "transactional": True}, {"id": 2, "type": "email"}])
    transactions.write(run, "UPDATE account SET transactional_allowed = 0")
    (one,) = enter(home, flow, home.contact("ann@acme.test").id)
    until_still()
    assert passed(one) == [(1, "skipped", "transactional_disabled"), (2, "on", None)]
    assert rows("SELECT status, skip_reason FROM message ORDER BY step_id") == [
        ("skipped", "transactional_disabled"), ("queued", None),
    ]  # fmt: skip


def test_what_flows_send_keeps_nobody_waiting(home: Home) -> None:
    """A single message goes before all that flows have to send, whenever it comes; campaigns have their turns."""
    flow = mail(home)
    people = [home.contact(f"p{n}@acme.test").id for n in range(60)]
    enter(home, flow, *people)
    until_still()
    home.send(home.campaign(home.list_of(*people).id))
    line, taken = QueueReader(), set[int]()
    for _ in range(3):
        found = line.fetch_candidates(10, taken)
        assert Counter(get_source(row) for row in found) == {
            Source("flow", home.account_id): 5,
            Source("campaign", 1): 5,
        }
        taken |= {row.id for row in found}
    order = transactional.MessageWrite(to="new@acme.test", subject="Code", body="1234")
    number = transactions.write(transactional.queue_message, home.account_id, order).id
    assert line.fetch_candidates(10, taken)[0].id == number
