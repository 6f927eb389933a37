"""Somebody of the account answers a person by SMS: in their own words, once, and never past a STOP."""

import pytest

from appliance.core.errors import Invalid, NotFound
from appliance.inbound import sms_conversations
from appliance.storage import transactions
from appliance.storage.models import Message, MessageContent
from tests.domain.home import Home
from tests.domain.talk import ANN, OURS, hear


def say(home: Home, contact_id: int, text: str, once: str | None = None) -> Message:
    """Write to somebody."""
    return transactions.write(sms_conversations.send_reply, home.account_id, contact_id, text, once)


def test_what_is_written_is_what_is_said(home: Home, ann: int) -> None:
    """The words go out as they are, merge language and all, and stand in the conversation."""
    made = say(home, ann, "We open at 8 {{ contact.first_name }} {% if %}")
    assert (made.recipient, made.sender, made.transactional, made.status) == (ANN, OURS, True, "queued")
    [line] = sms_conversations.list_conversation(home.account_id, ann).rows
    assert line.body == "We open at 8 {{ contact.first_name }} {% if %}"


def test_a_second_click_sends_nothing(home: Home, ann: int) -> None:
    """The same words of the same form are one message; other words, or another form, are another."""
    first = say(home, ann, "Yes", "form-1")
    assert say(home, ann, "Yes", "form-1").id == first.id
    assert say(home, ann, "No", "form-1").id != first.id
    assert say(home, ann, "Yes", "form-2").id != first.id
    assert MessageContent.select().count() == 3


@pytest.mark.parametrize("text", ["", "  \n ", "x" * 1601])
def test_words_that_are_none_or_too_many_are_refused(home: Home, ann: int, text: str) -> None:
    """Nothing is written for an empty text, or one that no SMS holds."""
    with pytest.raises(Invalid) as refused:
        say(home, ann, text)
    assert set(refused.value.fields) == {"text"}
    assert Message.select().count() == 0


def test_a_stop_beats_an_answer(home: Home, ann: int) -> None:
    """After STOP nothing can be written, and no row is left of the try; an unsubscribed number may be answered."""
    channel = home.channel(ANN)
    home.patch(ann, channels_attributes=[{"id": channel.id, "subscribed": False}])
    assert say(home, ann, "Of course").status == "queued"
    hear("STOP")
    before = Message.select().count()
    with pytest.raises(Invalid) as refused:
        say(home, ann, "Are you sure?")
    assert refused.value.reason == "recipient_suppressed"
    assert Message.select().count() == before


def test_nobody_else_is_written_to(home: Home) -> None:
    """A person without a number has none, and another account's person is not there."""
    bob = home.upsert(email="bob@example.org").contact.id
    with pytest.raises(Invalid):
        say(home, bob, "Hello")
    with pytest.raises(NotFound):
        transactions.write(sms_conversations.send_reply, home.account_id + 1, bob, "Hello")
