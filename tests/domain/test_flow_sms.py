"""SMS of flows: what keeps them from going live, whom they reach, and what a rehearsal shows of them."""

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
from tests.domain.flows_rehearsed import DAY, rehearsed, told, with_all, written
from tests.domain.home import Home
from tests.domain.sms_crowd import accept, real, taken
from tests.domain.test_flow_run import enter, until_still
from tests.kit.patience import soon

TEXT = {"type": "sms", "body": "Hi {{ first_name }}, the {{ event.bread }} is ready"}
HI = {"type": "sms", "body": "Hi"}
NIGHT = '{"from": "21:00", "to": "08:00"}'


def test_a_rehearsal_shows_the_words_and_what_they_take(home: Home) -> None:
    """Text with values in place, hint and parts, nothing of mail; the page for people says it in full."""
    transactions.write(run, "UPDATE account SET sms_opt_out_hint = 'Reply STOP to end'")
    flow = written(home, [TEXT, {"type": "sms", "body": "Ж" * 100, "transactional": True}])
    found = rehearsed(home, flow, event={"bread": "rye"}, contact={"phone": "+12025550150", "first_name": "Ann"})
    first, second = (entry.message for entry in found.timeline if entry.message is not None)
    assert first is not None and second is not None
    assert (first.channel, first.text, first.segments) == (
        "sms", "Hi Ann, the rye is ready Reply STOP to end", 1)  # fmt: skip
    assert (first.html, first.subject, first.sender, first.to) == (None, None, "Campanero", "+12025550150")
    assert (second.text, second.segments) == ("Ж" * 100, 2)
    assert "“Hi Ann, the rye is ready Reply STOP to end”" in found.text
    assert "SMS of 2 parts goes to +12025550150" in found.text
    assert rows("SELECT count(*) FROM message") == [(0,)]


def test_somebody_made_up_has_a_phone_too(home: Home) -> None:
    """Without a person to rehearse with, an SMS still shows what it says."""
    flow = written(home, [{"type": "sms", "body": "Hi {{ first_name }}"}])
    found = rehearsed(home, flow)
    assert [entry.message.text for entry in found.timeline if entry.message] == ["Hi Alex"]


def test_who_has_no_phone_or_left_is_said(home: Home) -> None:
    """Why a step sends nothing is told as for mail."""
    flow = written(home, [HI])
    found = rehearsed(home, flow, contact={"email": "ann@example.org"})
    assert (told(found, 1).outcome, told(found, 1).reason) == ("skipped", "no_channel")
    left = home.upsert(phone="+12025550151", opt_in=False).contact
    found = rehearsed(home, flow, contact_id=left.id)
    assert (told(found, 1).outcome, told(found, 1).reason) == ("skipped", "no_consent")


def test_a_rehearsal_goes_by_the_rules_of_a_real_provider(home: Home) -> None:
    """Night, countries and paid parts hold as they will in reality, and nothing of it is counted."""
    transactions.write(run, "UPDATE account SET sms_from = '+15550001111', sms_quiet_hours = ?", (NIGHT,))
    real(countries=["GB"], parts_per_day=5)
    flow = written(home, [HI, {"type": "sms", "body": "Code", "transactional": True}])
    found = rehearsed(home, flow, start_at="2031-03-03T02:00:00Z", contact={"phone": "+447700900123"})
    sent = {entry.message.text: entry for entry in found.timeline if entry.message and entry.message.status == "sent"}
    assert clock.parse(sent["Code"].at) == clock.parse("2031-03-03T02:00:00Z")
    assert clock.parse("2031-03-03T08:00:00Z") <= clock.parse(sent["Hi"].at) <= clock.parse("2031-03-03T08:01:00Z")
    elsewhere = rehearsed(home, flow, contact={"phone": "+4917012345678"})
    assert {entry.message.skip_reason for entry in elsewhere.timeline if entry.message} == {"country_not_allowed"}
    assert rows("SELECT count(*) FROM sms_day") == [(0,)]


def test_a_hint_for_each_month_is_rehearsed_as_one(home: Home) -> None:
    """Where the way out is told once a month, the second SMS of a week does not tell it, and the third, later, does."""
    transactions.write(run, "UPDATE account SET sms_opt_out_hint = 'STOP ends'")
    config.set_current(msgspec.structs.replace(config.current(), sms=schema.Sms(opt_out_hint="monthly")))
    flow = written(home, [HI, {"duration": DAY}, HI, {"duration": 40 * DAY}, HI])
    found = rehearsed(home, flow, contact={"phone": "+12025550152"}, until="2031-06-01T00:00:00Z")
    assert [entry.message.text for entry in found.timeline if entry.message] == ["Hi STOP ends", "Hi", "Hi STOP ends"]


def test_everybody_in_one_night_is_rehearsed_too(home: Home) -> None:
    """With all who met the trigger the night holds each, and the morning lets them go, in a moment of the rehearsal."""
    transactions.write(run, "UPDATE account SET sms_from = '+15550001111', sms_quiet_hours = ?", (NIGHT,))
    real()
    sms_crowd.go_to(home, "2031-03-03T02:00:00Z")
    for last in range(30):
        person = home.upsert(phone=f"+4477009001{last:02}").contact.id
        flows_home.happen(home, "cart_add", person)
    begun = time.monotonic()
    found = with_all(home, written(home, [HI, {"duration": DAY}, HI]))
    assert [(one.entered, one.sent, one.unsent) for one in found.steps if one.type == "sms"] == [(30, 30, 0)] * 2
    assert (found.completed, rows("SELECT count(*) FROM sms_day")) == (30, [(0,)])
    assert time.monotonic() - begun < soon(3)


def test_without_a_sender_it_does_not_go_live(home: Home) -> None:
    """On a real transport a flow with an SMS wants somebody it is from; with an account's sender it goes live."""
    real()
    flow = written(home, [HI])
    with pytest.raises(Invalid) as refused:
        transactions.write(store.apply_action, home.account_id, flow.id, lifecycle.activate, Actor(can_approve=True))
    assert refused.value.reason == "sender_not_ready" and "base" in refused.value.fields
    transactions.write(run, "UPDATE account SET sms_from = 'Bakery'")
    assert (
        transactions.write(
            store.apply_action, home.account_id, flow.id, lifecycle.activate, Actor(can_approve=True)
        ).status
        == "active"
    )


def test_live_ones_are_from_whom_the_account_says_now(home: Home) -> None:
    """Who an SMS is from is looked at when it leaves: another number of the account serves flows long live too."""
    real()
    transactions.write(run, "UPDATE account SET sms_from = '+15550001111'")
    flow = written(home, [{"type": "sms", "body": "Hi {{ first_name }}"}], status="active")
    enter(home, flow, home.upsert(phone="+447700900124", first_name="Ann").contact.id)
    until_still()
    transactions.write(run, "UPDATE account SET sms_from = '+15550002222'")
    (claim,) = taken()
    made = MessagePreparer().prepare(claim)
    assert (made.envelope.mail_from, made.envelope.rcpt_to, made.envelope.content) == (
        "+15550002222", "+447700900124", b"Hi Ann")  # fmt: skip
    accept([claim])
    assert rows("SELECT status, segments, sender, sent_at NOT NULL FROM message") == [("sent", 1, "+15550001111", 1)]
