"""Replies to a contact by SMS: sent unchanged, once, and not after a STOP."""

import pytest

from appliance.core.errors import Invalid, NotFound
from appliance.inbound import sms_conversations
from appliance.storage import transactions
from appliance.storage.models import Message, MessageContent
from tests.domain.home import Home
from tests.domain.talk import ANN, OURS, receive_sms


def send_reply(home: Home, contact_id: int, text: str, form_id: str | None = None) -> Message:
    """Send a reply to a contact."""
    return transactions.write(sms_conversations.send_reply, home.account_id, contact_id, text, form_id)


def test_a_reply_is_sent_unchanged(home: Home, ann: int) -> None:
    """Merge syntax in the text is not rendered, and the reply is in the conversation."""
    message = send_reply(home, ann, "We open at 8 {{ contact.first_name }} {% if %}")
    assert (message.recipient, message.sender, message.transactional, message.status) == (ANN, OURS, True, "queued")
    [entry] = sms_conversations.list_conversation(home.account_id, ann).rows
    assert entry.body == "We open at 8 {{ contact.first_name }} {% if %}"


def test_a_form_sends_a_reply_once(home: Home, ann: int) -> None:
    """The same text from the same form is one message; another text or form is another message."""
    first_message = send_reply(home, ann, "Yes", "form-1")
    assert send_reply(home, ann, "Yes", "form-1").id == first_message.id
    assert send_reply(home, ann, "No", "form-1").id != first_message.id
    assert send_reply(home, ann, "Yes", "form-2").id != first_message.id
    assert MessageContent.select().count() == 3


@pytest.mark.parametrize("text", ["", "  \n ", "x" * 1601])
def test_empty_and_too_long_replies_are_rejected(home: Home, ann: int, text: str) -> None:
    """The error is at `text`, and nothing is stored."""
    with pytest.raises(Invalid) as error_info:
        send_reply(home, ann, text)
    assert set(error_info.value.fields) == {"text"}
    assert Message.select().count() == 0


def test_no_reply_after_a_stop(home: Home, ann: int) -> None:
    """After STOP a reply is rejected and not stored; an unsubscribed contact can get one."""
    channel = home.channel(ANN)
    home.patch(ann, channels_attributes=[{"id": channel.id, "subscribed": False}])
    assert send_reply(home, ann, "Of course").status == "queued"
    receive_sms("STOP")
    count_before = Message.select().count()
    with pytest.raises(Invalid) as error_info:
        send_reply(home, ann, "Are you sure?")
    assert error_info.value.reason == "recipient_suppressed"
    assert Message.select().count() == count_before


def test_replies_need_a_number_of_the_account(home: Home) -> None:
    """A contact without a phone number raises Invalid, one of another account NotFound."""
    contact_id = home.upsert(email="bob@example.org").contact.id
    with pytest.raises(Invalid):
        send_reply(home, contact_id, "Hello")
    with pytest.raises(NotFound):
        transactions.write(sms_conversations.send_reply, home.account_id + 1, contact_id, "Hello")
