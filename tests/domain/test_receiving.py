"""What people write back over SMS: kept once, acted on, answered once (docs/decisions.md#15)."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.accounts import accounts
from appliance.audience import suppressions
from appliance.audience.contacts import removal
from appliance.audience.suppressions import SuppressionWrite
from appliance.inbound import incoming_sms
from appliance.sending.messages import queue
from appliance.sending.messages.ledger import COLUMNS, Claim
from appliance.sending.messages.prepare import MessagePreparer
from appliance.sending.sms import segments
from appliance.storage import transactions
from appliance.storage.database import rows
from appliance.storage.models import Account, Incoming, Message
from tests.domain.home import BY_API, Home
from tests.domain.talk import ANN, OURS, answers, events, hear, kept


def test_stop_opts_out_and_is_confirmed_once(home: Home, ann: int) -> None:
    """STOP ends all SMS to the number; one confirmation follows, and nothing to those that are sent after it."""
    for _ in range(3):
        assert hear("Stop!")
    channel = home.channel(ANN)
    assert (channel.subscribed, channel.opted_out_by, channel.suppression) == (False, "recipient", "stop_keyword")
    assert answers() == ["Acme: You are unsubscribed and will get no more messages. Reply START to get them again."]
    assert [(row.kind, row.keyword, row.contact_id) for row in kept()] == [("stop", "STOP", ann)] * 3
    assert ("opt_out", "recipient", "keyword", "recipient") in home.acts(ANN)
    assert [name for name, *_ in events("opt_out", "message", "keyword")] == ["opt_out"]


def test_an_answer_goes_out_though_they_left(home: Home, ann: int) -> None:
    """The confirmation is the one message that a STOP does not keep back; an operator's own word does."""
    hear("STOP")
    row = Message.get()
    assert (row.sender, row.recipient, row.source_type, row.transactional) == (OURS, ANN, "system", True)
    assert row.segments == 1
    claim = Claim._make(rows(f"SELECT {COLUMNS} FROM message WHERE id = ?", (row.id,))[0])
    assert transactions.write(queue.record_and_claim, [], [claim], "process") == {row.id}

    home.advance(3700)
    hear("HELP")
    transactions.write(suppressions.create, home.account_id, SuppressionWrite(ANN), BY_API)
    hear_again = Claim._make(rows(f"SELECT {COLUMNS} FROM message ORDER BY id DESC LIMIT 1")[0])
    assert transactions.write(queue.record_and_claim, [], [hear_again], "process") == set()
    assert Message.get_by_id(hear_again.id).skip_reason == "suppressed_manual"


def test_an_answer_is_from_the_number_that_was_written_to(home: Home, ann: int) -> None:
    """Where the account writes under a name that their country takes from nobody, the answer goes out all the same."""
    home.configure(sms__transport="twilio", sms__twilio__account_sid="AC1", sms__twilio__auth_token="t")
    transactions.write(lambda: Account.update(sms_from="Acme").execute())
    hear("STOP")
    claim = Claim._make(rows(f"SELECT {COLUMNS} FROM message")[0])
    assert MessagePreparer().prepare(claim).envelope[:2] == (OURS, ANN)
    assert transactions.write(queue.record_and_claim, [], [claim], "process") == {claim.id}


def test_a_stop_to_no_number_in_particular(home: Home, ann: int) -> None:
    """Where nobody says which number it came to, it is for whoever wrote last, not for an account without a sender."""
    home.configure(sms__transport="http", sms__http__url="http://127.0.0.1:9/", sms__http__secret="s")
    transactions.write(lambda: Account.update(sms_from=OURS).execute())
    other = transactions.write(lambda: accounts.create("Elsewhere").id)
    assert hear("STOP", to="")
    assert home.channel(ANN).suppression == "stop_keyword" and [row.account_id for row in kept()] == [home.account_id]
    claim = Claim._make(rows(f"SELECT {COLUMNS} FROM message")[0])
    assert claim.account_id != other and MessagePreparer().prepare(claim).envelope[:2] == (OURS, ANN)


def test_a_late_answer_is_none(home: Home, ann: int) -> None:
    """What could not go out within five minutes is not sent any more: whoever left is not reminded of it."""
    hear("STOP")
    home.advance(301)
    claim = Claim._make(rows(f"SELECT {COLUMNS} FROM message")[0])
    assert transactions.write(queue.record_and_claim, [], [claim], "process") == set()
    assert (Message.get().status, Message.get().skip_reason) == ("skipped", "too_late")


def test_what_the_provider_answered_is_not_answered_again(home: Home, ann: int) -> None:
    """STOP counts, in whatever words the provider knew it; the confirmation was sent by the provider."""
    hear("arrêter tout", answered="STOP")
    hear("?", answered="HELP")
    assert home.channel(ANN).suppression == "stop_keyword"
    assert (answers(), [row.kind for row in kept()]) == ([], ["stop", "help"])


def test_start_and_yes_bring_back(home: Home, ann: int) -> None:
    """START takes a STOP back with evidence; YES only after a STOP, before it is a message like others."""
    hear("YES")
    assert events("message") == [("message", ann, None)]
    for word in ("START", "yes"):
        hear("STOP")
        hear(word)
        channel = home.channel(ANN)
        assert (channel.subscribed, channel.suppression, channel.opted_out_by) == (True, None, None)
    said = [str(text).split(":")[1].split(".")[0] for text in answers()]
    assert said == [" You are unsubscribed and will get no more messages", " You are subscribed again"] * 2
    hear("START")
    assert len(answers()) == 4, "nothing has changed"


def test_help_is_answered_once_an_hour(home: Home, ann: int) -> None:
    """HELP names company and contact, also to who has left, and not more often than once an hour."""
    transactions.write(lambda: Account.update(email_reply_to="help@acme.example").execute())
    hear("STOP")
    hear("help")
    hear("INFO")
    assert len(answers()) == 2
    assert answers()[1] == (
        "Acme: news and offers by SMS, message frequency varies. Msg & data rates may apply. Help: help@acme.example. "
        "Reply STOP to unsubscribe."
    )
    home.advance(3601)
    hear("INFO")
    assert len(answers()) == 3


def test_refusals_in_other_words(home: Home, ann: int) -> None:
    """A clear one opts out as STOP does; one among other words is kept for a person, and is a message too."""
    hear("Please stop by tomorrow")
    assert home.channel(ANN).subscribed
    hear("please stop texting me")
    assert home.channel(ANN).suppression == "stop_keyword"
    assert [(row.kind, row.keyword) for row in kept()] == [("refusal", None), ("refusal", "please stop texting me")]
    assert (len(events("message")), len(answers())) == (1, 1)


def test_each_message_counts_once(home: Home, ann: int) -> None:
    """What a provider tells again is known, whatever happened between."""
    assert hear("hello", provider_id="SM1")
    assert not hear("hello", provider_id="SM1")
    assert hear("hello", provider_id="SM2")
    assert (len(kept()), len(events("message"))) == (2, 2)
    assert home.channel(ANN).verified_at is not None


def test_unknown_numbers_make_no_contact(home: Home, ann: int) -> None:
    """Their messages are kept, their STOP counts for the day they are a contact, and START takes it back."""
    other = "+14155550155"
    hear("hello", other)
    assert events("message") == [("message", None, None)]
    hear("STOP", other)
    assert home.upsert(phone=other).contact.channels[0].suppression == "stop_keyword"
    third = "+14155550156"
    hear("STOP", third)
    hear("START", third)
    assert home.upsert(phone=third).contact.channels[0].subscribed
    assert len(answers()) == 3
    hear("START", "+14155550157")
    assert len(answers()) == 3, "there is nothing to come back to"


def test_nobody_is_told_what_is_not_so(home: Home, ann: int) -> None:
    """Whoever was erased or has complained is heard, and stays out: START is not confirmed, HELP is answered."""
    transactions.write(removal.erase, home.account_id, ann, BY_API)
    bob = "+14155550102"
    home.upsert(phone=bob, opt_in=True)
    complaint = SuppressionWrite(bob, reason="complaint")
    transactions.write(suppressions.create, home.account_id, complaint, BY_API)
    for number in (ANN, bob):
        hear("STOP", number)
        hear("START", number)
        hear("HELP", number)
    assert [str(text)[6:12] for text in answers()] == ["You ar", "news a"] * 2
    assert sorted(rows("SELECT reason FROM suppression")) == [("complaint",), ("erased",)]
    assert not home.channel(bob).subscribed


@pytest.mark.parametrize("locale", ["en", "de-AT", "es_MX", "fr", "pt"])
@pytest.mark.parametrize("kind", ["stop", "start", "help"])
def test_answers_are_one_part_in_every_language(locale: str, kind: str) -> None:
    """What we say by ourselves is in letters of GSM-7 and one part long, with who we are and what helps."""
    said = incoming_sms.keyword_answer_text(kind, locale, "{Acme}", "help@acme.example")
    counted = segments.count_segments(said)
    assert (counted.parts, counted.alphabet) == (1, "GSM-7")
    assert said.startswith("{Acme}") and ("STOP" in said or kind == "stop")
    assert (
        incoming_sms.keyword_answer_text(kind, locale, "A", None)
        == incoming_sms.keyword_answer_text(kind, "en", "A", None)
    ) is (locale in ("en", "pt"))


def test_machines_are_kept_and_never_answered(home: Home, ann: int) -> None:
    """A short code or a name is no phone: STOP and HELP from there do nothing."""
    for sender in ("72727", "INFOSMS", "", "+1", "\ud800x\0"):
        hear("HELP", sender)
        hear("STOP", sender)
    assert answers() == []
    assert rows("SELECT count(*) FROM suppression") == [(0,)]
    assert len(kept()) == 10


def test_two_machines_come_to_an_end(home: Home, ann: int) -> None:
    """However often somebody leaves and comes back in a day, some answers are enough."""
    for _ in range(15):
        hear("STOP")
        hear("START")
    assert len(answers()) == 20
    assert home.channel(ANN).subscribed


@settings(max_examples=25)
@given(
    body=st.text(max_size=200), sender=st.text(max_size=40) | st.just(ANN), to=st.text(max_size=40), known=st.booleans()
)
def test_whatever_comes_is_kept(home: Home, body: str, sender: str, to: str, known: bool) -> None:
    """No text, number or name, however broken, keeps a message from being taken in, once."""
    before = Incoming.select().count()
    name = f"SM{before}" if known else None
    assert hear(body, sender, to, provider_id=name)
    assert hear(body, sender, to, provider_id=name) is (name is None)
    assert Incoming.select().count() == before + (1 if known else 2)
