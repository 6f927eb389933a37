"""Incoming SMS: stored once, acted on, and answered once (docs/decisions.md#15)."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.accounts import accounts
from appliance.audience import suppressions
from appliance.audience.contacts import removal
from appliance.audience.suppressions import SuppressionWrite
from appliance.core import recipient_texts
from appliance.inbound import incoming_sms
from appliance.sending.messages import queue
from appliance.sending.messages.ledger import COLUMNS, LedgerRow
from appliance.sending.messages.prepare import MessagePreparer
from appliance.sending.sms import segments
from appliance.storage import transactions
from appliance.storage.database import rows
from appliance.storage.models import Account, Incoming, Message
from tests.domain.home import BY_API, Home
from tests.domain.talk import ANN, OURS, automatic_replies, events_named, receive_sms, stored_sms


def test_stop_opts_out_and_is_confirmed_once(home: Home, ann: int) -> None:
    """STOP ends all SMS to the number and is confirmed once; repeated ones are stored without another confirmation."""
    for _ in range(3):
        assert receive_sms("Stop!")
    channel = home.channel(ANN)
    assert (channel.subscribed, channel.opted_out_by, channel.suppression) == (False, "recipient", "stop_keyword")
    assert automatic_replies() == [
        "Acme: You are unsubscribed and will get no more messages. Reply START to get them again."
    ]
    assert [(row.kind, row.keyword, row.contact_id) for row in stored_sms()] == [("stop", "STOP", ann)] * 3
    assert ("opt_out", "recipient", "keyword", "recipient") in home.consent_rows(ANN)
    assert [name for name, *_ in events_named("opt_out", "message", "keyword")] == ["opt_out"]


def test_a_confirmation_is_sent_despite_the_opt_out(home: Home, ann: int) -> None:
    """The confirmation of STOP is sent although the number opted out; an operator's suppression stops replies."""
    receive_sms("STOP")
    row = Message.get()
    assert (row.sender, row.recipient, row.source_type, row.transactional) == (OURS, ANN, "system", True)
    assert row.segments == 1
    ledger_row = LedgerRow._make(rows(f"SELECT {COLUMNS} FROM message WHERE id = ?", (row.id,))[0])
    assert transactions.write(queue.claim, [ledger_row], "process") == {row.id}

    home.advance(3700)
    receive_sms("HELP")
    transactions.write(suppressions.create, home.account_id, SuppressionWrite(ANN), BY_API)
    help_row = LedgerRow._make(rows(f"SELECT {COLUMNS} FROM message ORDER BY id DESC LIMIT 1")[0])
    assert transactions.write(queue.claim, [help_row], "process") == set()
    assert Message.get_by_id(help_row.id).skip_reason == "suppressed_manual"


def test_a_reply_comes_from_the_number_that_was_addressed(home: Home, ann: int) -> None:
    """The reply comes from that number even if the account's sender name is not allowed in the recipient's country."""
    home.configure(sms__transport="twilio", sms__twilio__account_sid="AC1", sms__twilio__auth_token="t")
    transactions.write(lambda: Account.update(sms_from="Acme").execute())
    receive_sms("STOP")
    row = LedgerRow._make(rows(f"SELECT {COLUMNS} FROM message")[0])
    assert MessagePreparer().prepare(row).envelope[:2] == (OURS, ANN)
    assert transactions.write(queue.claim, [row], "process") == {row.id}


def test_a_stop_without_a_recipient_number(home: Home, ann: int) -> None:
    """Without a recipient number STOP belongs to the account with a sender, not to one without."""
    home.configure(sms__transport="http", sms__http__url="http://127.0.0.1:9/", sms__http__secret="s")
    transactions.write(lambda: Account.update(sms_from=OURS).execute())
    other_account = transactions.write(lambda: accounts.create("Elsewhere").id)
    assert receive_sms("STOP", to="")
    assert home.channel(ANN).suppression == "stop_keyword" and [row.account_id for row in stored_sms()] == [
        home.account_id
    ]
    ledger_row = LedgerRow._make(rows(f"SELECT {COLUMNS} FROM message")[0])
    assert ledger_row.account_id != other_account and MessagePreparer().prepare(ledger_row).envelope[:2] == (OURS, ANN)


def test_a_late_reply_is_skipped(home: Home, ann: int) -> None:
    """A reply that could not be sent within five minutes is skipped as too late."""
    receive_sms("STOP")
    home.advance(301)
    row = LedgerRow._make(rows(f"SELECT {COLUMNS} FROM message")[0])
    assert transactions.write(queue.claim, [row], "process") == set()
    assert (Message.get().status, Message.get().skip_reason) == ("skipped", "too_late")


def test_keywords_answered_by_the_provider_get_no_reply(home: Home, ann: int) -> None:
    """The keyword counts as the provider names it, but no reply is sent."""
    receive_sms("arrêter tout", answered="STOP")
    receive_sms("?", answered="HELP")
    assert home.channel(ANN).suppression == "stop_keyword"
    assert (automatic_replies(), [row.kind for row in stored_sms()]) == ([], ["stop", "help"])


def test_start_and_yes_opt_in_after_a_stop(home: Home, ann: int) -> None:
    """START and YES undo a STOP; without a STOP, YES is an ordinary message and START sends no reply."""
    receive_sms("YES")
    assert events_named("message") == [("message", ann, None)]
    for word in ("START", "yes"):
        receive_sms("STOP")
        receive_sms(word)
        channel = home.channel(ANN)
        assert (channel.subscribed, channel.suppression, channel.opted_out_by) == (True, None, None)
    replies = [str(text).split(":")[1].split(".")[0] for text in automatic_replies()]
    assert replies == [" You are unsubscribed and will get no more messages", " You are subscribed again"] * 2
    receive_sms("START")
    assert len(automatic_replies()) == 4, "START after START must not be answered"


def test_help_is_answered_once_an_hour(home: Home, ann: int) -> None:
    """HELP is answered with company and contact, also after a STOP, at most once an hour."""
    transactions.write(lambda: Account.update(email_reply_to="help@acme.example").execute())
    receive_sms("STOP")
    receive_sms("help")
    receive_sms("INFO")
    assert len(automatic_replies()) == 2
    assert automatic_replies()[1] == (
        "Acme: news and offers by SMS, message frequency varies. Msg & data rates may apply. Help: help@acme.example. "
        "Reply STOP to unsubscribe."
    )
    home.advance(3601)
    receive_sms("INFO")
    assert len(automatic_replies()) == 3


def test_refusals_without_a_keyword(home: Home, ann: int) -> None:
    """A clear refusal opts out as STOP does; an ambiguous one is stored for review and is a message too."""
    receive_sms("Please stop by tomorrow")
    assert home.channel(ANN).subscribed
    receive_sms("please stop texting me")
    assert home.channel(ANN).suppression == "stop_keyword"
    assert [(row.kind, row.keyword) for row in stored_sms()] == [
        ("refusal", None),
        ("refusal", "please stop texting me"),
    ]
    assert (len(events_named("message")), len(automatic_replies())) == (1, 1)


def test_an_incoming_message_is_stored_once(home: Home, ann: int) -> None:
    """A repeated provider id is ignored; a first message verifies the channel."""
    assert receive_sms("hello", provider_id="SM1")
    assert not receive_sms("hello", provider_id="SM1")
    assert receive_sms("hello", provider_id="SM2")
    assert (len(stored_sms()), len(events_named("message"))) == (2, 2)
    assert home.channel(ANN).verified_at is not None


def test_unknown_numbers_create_no_contact(home: Home, ann: int) -> None:
    """Messages of unknown numbers are stored; a STOP applies to a contact created later, until a START."""
    other = "+14155550155"
    receive_sms("hello", other)
    assert events_named("message") == [("message", None, None)]
    receive_sms("STOP", other)
    assert home.upsert(phone=other).contact.channels[0].suppression == "stop_keyword"
    third = "+14155550156"
    receive_sms("STOP", third)
    receive_sms("START", third)
    assert home.upsert(phone=third).contact.channels[0].subscribed
    assert len(automatic_replies()) == 3
    receive_sms("START", "+14155550157")
    assert len(automatic_replies()) == 3, "START without a STOP must not be answered"


def test_start_does_not_lift_an_erasure_or_complaint(home: Home, ann: int) -> None:
    """For an erased or complained number START is not confirmed and changes nothing; HELP is answered."""
    transactions.write(removal.erase, home.account_id, ann, BY_API)
    bob = "+14155550102"
    home.upsert(phone=bob, opt_in=True)
    complaint = SuppressionWrite(bob, reason="complaint")
    transactions.write(suppressions.create, home.account_id, complaint, BY_API)
    for number in (ANN, bob):
        receive_sms("STOP", number)
        receive_sms("START", number)
        receive_sms("HELP", number)
    assert [str(text)[6:12] for text in automatic_replies()] == ["You ar", "news a"] * 2
    assert sorted(rows("SELECT reason FROM suppression")) == [("complaint",), ("erased",)]
    assert not home.channel(bob).subscribed


@pytest.mark.parametrize("locale", ["en", "de-AT", "es_MX", "fr", "it", "nl", "pl", "pt", "sv"])
@pytest.mark.parametrize("kind", ["stop", "start", "help"])
def test_replies_fit_one_segment_in_every_language(locale: str, kind: str) -> None:
    """Automatic replies are one GSM-7 segment and name the company; languages without translation use English."""
    language = recipient_texts.language_of_locale(locale)
    text = incoming_sms.keyword_answer_text(kind, language, "{Acme}", "help@acme.example")
    count = segments.count_segments(text)
    assert (count.parts, count.alphabet) == (1, "GSM-7")
    assert text.startswith("{Acme}") and ("STOP" in text or kind == "stop")
    assert (
        incoming_sms.keyword_answer_text(kind, language, "A", None)
        == incoming_sms.keyword_answer_text(kind, "en", "A", None)
    ) is (locale in ("en", "sv"))


def test_senders_without_a_number_get_no_reply(home: Home, ann: int) -> None:
    """Messages from short codes and names are stored; STOP and HELP from there do nothing."""
    for sender in ("72727", "INFOSMS", "", "+1", "\ud800x\0"):
        receive_sms("HELP", sender)
        receive_sms("STOP", sender)
    assert automatic_replies() == []
    assert rows("SELECT count(*) FROM suppression") == [(0,)]
    assert len(stored_sms()) == 10


def test_replies_to_a_number_are_limited(home: Home, ann: int) -> None:
    """After 20 replies no more are sent for further STOP and START messages."""
    for _ in range(15):
        receive_sms("STOP")
        receive_sms("START")
    assert len(automatic_replies()) == 20
    assert home.channel(ANN).subscribed


@settings(max_examples=25)
@given(
    body=st.text(max_size=200),
    sender=st.text(max_size=40) | st.just(ANN),
    to=st.text(max_size=40),
    has_id=st.booleans(),
)
def test_any_incoming_message_is_stored(home: Home, body: str, sender: str, to: str, has_id: bool) -> None:
    """Any text, number or name is stored, and only once if it has a provider id."""
    count_before = Incoming.select().count()
    provider_id = f"SM{count_before}" if has_id else None
    assert receive_sms(body, sender, to, provider_id=provider_id)
    assert receive_sms(body, sender, to, provider_id=provider_id) is (provider_id is None)
    assert Incoming.select().count() == count_before + (1 if has_id else 2)
