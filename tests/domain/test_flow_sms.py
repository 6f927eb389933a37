"""SMS in flows: requirements to go live, recipients, and simulation."""

import time

import msgspec
import pytest

from appliance.accounts.audit import Actor
from appliance.core import clock
from appliance.core.errors import Invalid
from appliance.flows import lifecycle, store
from appliance.sending.messages.prepare import MessagePreparer
from appliance.settings import config, schema
from appliance.storage import transactions
from appliance.storage.database import rows, run
from tests.domain import flows_home, sms_crowd
from tests.domain.flows_rehearsed import DAY, create_flow, simulate, simulate_bulk, step_entry
from tests.domain.home import Home
from tests.domain.sms_crowd import claim_all, record_accepted, use_sms_transport
from tests.domain.test_flow_run import advance_until_idle, start_runs
from tests.kit.timeouts import extend_timeout

GREETING_SMS = {"type": "sms", "body": "Hi {{ first_name }}, the {{ event.bread }} is ready"}
SHORT_SMS = {"type": "sms", "body": "Hi"}
QUIET_HOURS = '{"from": "21:00", "to": "08:00"}'


def test_a_simulation_shows_sms_text_and_segments(home: Home) -> None:
    """Merge tags are filled, the opt-out hint is appended, and no email fields are shown."""
    transactions.write(run, "UPDATE account SET sms_opt_out_hint = 'Reply STOP to end'")
    flow = create_flow(home, [GREETING_SMS, {"type": "sms", "body": "Ж" * 100, "transactional": True}])
    result = simulate(home, flow, event={"bread": "rye"}, contact={"phone": "+12025550150", "first_name": "Ann"})
    first, second = (entry.message for entry in result.timeline if entry.message is not None)
    assert first is not None and second is not None
    assert (first.channel, first.text, first.segments) == (
        "sms", "Hi Ann, the rye is ready Reply STOP to end", 1)  # fmt: skip
    assert (first.html, first.subject, first.sender, first.to) == (None, None, "Campanero", "+12025550150")
    assert (second.text, second.segments) == ("Ж" * 100, 2)
    assert "“Hi Ann, the rye is ready Reply STOP to end”" in result.text
    assert "SMS (2 parts): sent to +12025550150" in result.text
    assert rows("SELECT count(*) FROM message") == [(0,)]


def test_a_made_up_contact_has_a_phone(home: Home) -> None:
    """Without a contact the simulation still shows the SMS."""
    flow = create_flow(home, [{"type": "sms", "body": "Hi {{ first_name }}"}])
    result = simulate(home, flow)
    assert [entry.message.text for entry in result.timeline if entry.message] == ["Hi Alex"]


def test_skipped_sms_have_a_reason(home: Home) -> None:
    """A contact without phone or consent gets no SMS, with the reason."""
    flow = create_flow(home, [SHORT_SMS])
    result = simulate(home, flow, contact={"email": "ann@example.org"})
    assert (step_entry(result, 1).outcome, step_entry(result, 1).reason) == ("skipped", "no_channel")
    opted_out = home.upsert(phone="+12025550151", opt_in=False).contact
    result = simulate(home, flow, contact_id=opted_out.id)
    assert (step_entry(result, 1).outcome, step_entry(result, 1).reason) == ("skipped", "no_consent")


def test_a_simulation_applies_the_sms_rules(home: Home) -> None:
    """Quiet hours and allowed countries apply as in reality, and daily counts stay unchanged."""
    transactions.write(run, "UPDATE account SET sms_from = '+15550001111', sms_quiet_hours = ?", (QUIET_HOURS,))
    use_sms_transport(countries=["GB"], parts_per_day=5)
    flow = create_flow(home, [SHORT_SMS, {"type": "sms", "body": "Code", "transactional": True}])
    result = simulate(home, flow, start_at="2031-03-03T02:00:00Z", contact={"phone": "+447700900123"})
    sent = {entry.message.text: entry for entry in result.timeline if entry.message and entry.message.status == "sent"}
    assert clock.parse(sent["Code"].at) == clock.parse("2031-03-03T02:00:00Z")
    assert clock.parse("2031-03-03T08:00:00Z") <= clock.parse(sent["Hi"].at) <= clock.parse("2031-03-03T08:01:00Z")
    abroad = simulate(home, flow, contact={"phone": "+4917012345678"})
    assert {entry.message.skip_reason for entry in abroad.timeline if entry.message} == {"country_not_allowed"}
    assert rows("SELECT count(*) FROM sms_day") == [(0,)]


def test_a_monthly_opt_out_hint_is_simulated(home: Home) -> None:
    """The hint is on the first SMS, absent a day later, and present again after 40 days."""
    transactions.write(run, "UPDATE account SET sms_opt_out_hint = 'STOP ends'")
    config.set_current(msgspec.structs.replace(config.current(), sms=schema.Sms(opt_out_hint="monthly")))
    flow = create_flow(home, [SHORT_SMS, {"duration": DAY}, SHORT_SMS, {"duration": 40 * DAY}, SHORT_SMS])
    result = simulate(home, flow, contact={"phone": "+12025550152"}, until="2031-06-01T00:00:00Z")
    assert [entry.message.text for entry in result.timeline if entry.message] == ["Hi STOP ends", "Hi", "Hi STOP ends"]


def test_a_bulk_simulation_in_quiet_hours_is_fast(home: Home) -> None:
    """30 contacts are held over night and get their SMS in the morning, within a few seconds of simulation."""
    transactions.write(run, "UPDATE account SET sms_from = '+15550001111', sms_quiet_hours = ?", (QUIET_HOURS,))
    use_sms_transport()
    sms_crowd.advance_to(home, "2031-03-03T02:00:00Z")
    for number in range(30):
        contact_id = home.upsert(phone=f"+4477009001{number:02}").contact.id
        flows_home.record_event(home, "cart_add", contact_id)
    started_at = time.monotonic()
    result = simulate_bulk(home, create_flow(home, [SHORT_SMS, {"duration": DAY}, SHORT_SMS]))
    assert [(step.entered, step.sent, step.unsent) for step in result.steps if step.type == "sms"] == [(30, 30, 0)] * 2
    assert (result.completed, rows("SELECT count(*) FROM sms_day")) == (30, [(0,)])
    assert time.monotonic() - started_at < extend_timeout(3)


def test_a_flow_with_sms_needs_a_sender(home: Home) -> None:
    """Activation on a real transport is rejected without an SMS sender and works with one."""
    use_sms_transport()
    flow = create_flow(home, [SHORT_SMS])
    with pytest.raises(Invalid) as error_info:
        transactions.write(store.apply_action, home.account_id, flow.id, lifecycle.activate, Actor(can_approve=True))
    assert error_info.value.reason == "sender_not_ready" and "base" in error_info.value.fields
    transactions.write(run, "UPDATE account SET sms_from = 'Bakery'")
    assert (
        transactions.write(
            store.apply_action, home.account_id, flow.id, lifecycle.activate, Actor(can_approve=True)
        ).status
        == "active"
    )


def test_the_sms_sender_is_that_at_sending_time(home: Home) -> None:
    """A changed sender of the account applies to active flows too."""
    use_sms_transport()
    transactions.write(run, "UPDATE account SET sms_from = '+15550001111'")
    flow = create_flow(home, [{"type": "sms", "body": "Hi {{ first_name }}"}], status="active")
    start_runs(home, flow, home.upsert(phone="+447700900124", first_name="Ann").contact.id)
    advance_until_idle()
    transactions.write(run, "UPDATE account SET sms_from = '+15550002222'")
    (row,) = claim_all()
    prepared = MessagePreparer().prepare(row)
    assert (prepared.envelope.mail_from, prepared.envelope.rcpt_to, prepared.envelope.content) == (
        "+15550002222", "+447700900124", b"Hi Ann")  # fmt: skip
    record_accepted([row])
    assert rows("SELECT status, segments, sender, sent_at NOT NULL FROM message") == [("sent", 1, "+15550001111", 1)]
