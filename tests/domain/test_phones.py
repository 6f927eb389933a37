"""The simulated phone of the capture inbox: the thread around an SMS, separate for each sender."""

from appliance.inbound import incoming_sms, simulation
from appliance.sending.messages import capture_inbox
from appliance.sending.sms.error_codes import IncomingSms
from appliance.sending.sms.segments import OutgoingSms
from appliance.storage import transactions
from appliance.storage.database import rows, run
from appliance.storage.models import CapturedMessage
from tests.domain.home import Home
from tests.domain.test_receipts import NUMBER, create_sms


def store_sms(home: Home, body: str, sender: str = "Acme") -> CapturedMessage:
    """Store an outgoing SMS one second after the previous message."""
    home.advance(1)
    number = transactions.write(
        capture_inbox.store_sms, OutgoingSms(create_sms(home, sid=None), NUMBER, sender, body, "")
    )
    return capture_inbox.get(home.account_id, number)


def receive_sms(home: Home, body: str, to: str = "Acme") -> None:
    """Receive an SMS from the phone, one second after the previous message."""
    home.advance(1)
    transactions.write(
        incoming_sms.receive_sms, "capture", IncomingSms(None, NUMBER, to, body), account_id=home.account_id
    )


def thread_texts(row: CapturedMessage) -> list[str]:
    """Return the texts of the thread around an SMS."""
    return [bubble.text for bubble in simulation.get_thread(row)]


def test_a_thread_has_both_directions(home: Home) -> None:
    """Sent and received messages are in order; other senders have threads of their own."""
    first_sms = store_sms(home, "one")
    receive_sms(home, "two")
    store_sms(home, "elsewhere", "Other")
    receive_sms(home, "to the other", "Other")
    last_sms = store_sms(home, "three ✓")
    assert thread_texts(first_sms) == thread_texts(last_sms) == ["one", "two", "three ✓"]
    assert [bubble.captured_id for bubble in simulation.get_thread(first_sms)] == [first_sms.id, None, last_sms.id]


def test_a_long_thread_contains_the_opened_sms(home: Home) -> None:
    """Of a thread of 80 messages at most 49 around the opened one are shown."""
    stored = []
    for number in range(40):
        stored.append(store_sms(home, f"ours {number}"))
        receive_sms(home, f"theirs {number}")
    for row in (stored[0], stored[20], stored[39]):
        words = thread_texts(row)
        number = stored.index(row)
        assert f"ours {number}" in words and f"theirs {number}" in words and len(words) <= 49
    assert thread_texts(stored[0])[0] == "ours 0" and thread_texts(stored[39])[-1] == "theirs 39"


def test_an_sms_of_an_erased_contact_is_not_stored(home: Home) -> None:
    """An SMS that was being sent when its contact was erased is not stored in the inbox."""
    number = create_sms(home, "sending", None)
    transactions.write(run, "UPDATE message SET recipient_key = NULL WHERE id = ?", (number,))
    assert transactions.write(capture_inbox.store_sms, OutgoingSms(number, NUMBER, "Acme", "secret", "")) == 0
    assert rows("SELECT 1 FROM captured_message") == []
