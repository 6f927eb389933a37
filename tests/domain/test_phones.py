"""What the phone of the inbox shows: the thread around the SMS that is looked at, with each of our senders apart."""

from appliance.inbound import incoming_sms
from appliance.sending.messages import capture_inbox
from appliance.sending.sms.error_codes import IncomingSms
from appliance.sending.sms.segments import OutgoingSms
from appliance.storage import transactions
from appliance.storage.database import rows, run
from appliance.storage.models import CapturedMessage
from appliance.tracking import simulation
from tests.domain.home import Home
from tests.domain.test_receipts import NUMBER, text


def keep(home: Home, body: str, sender: str = "Acme") -> CapturedMessage:
    """Keep an SMS a moment later than the one before."""
    home.advance(1)
    number = transactions.write(capture_inbox.store_sms, OutgoingSms(text(home, sid=None), NUMBER, sender, body, ""))
    return capture_inbox.get(home.account_id, number)


def write(home: Home, body: str, to: str = "Acme") -> None:
    """Let the owner of the phone write something."""
    home.advance(1)
    transactions.write(
        incoming_sms.receive_sms, "capture", IncomingSms(None, NUMBER, to, body), account_id=home.account_id
    )


def shown(row: CapturedMessage) -> list[str]:
    """Return the words of a thread."""
    return [bubble.text for bubble in simulation.get_thread(row)]


def test_a_thread_goes_to_and_fro(home: Home) -> None:
    """Ours and theirs stand in the order they came; another sender's thread is another one."""
    first = keep(home, "one")
    write(home, "two")
    keep(home, "elsewhere", "Other")
    write(home, "to the other", "Other")
    last = keep(home, "three ✓")
    assert shown(first) == shown(last) == ["one", "two", "three ✓"]
    assert [bubble.captured_id for bubble in simulation.get_thread(first)] == [first.id, None, last.id]


def test_a_long_thread_shows_what_is_looked_at(home: Home) -> None:
    """However many came before and after, the one that is opened is there, with what was written around it."""
    kept = []
    for number in range(40):
        kept.append(keep(home, f"ours {number}"))
        write(home, f"theirs {number}")
    for row in (kept[0], kept[20], kept[39]):
        words = shown(row)
        number = kept.index(row)
        assert f"ours {number}" in words and f"theirs {number}" in words and len(words) <= 49
    assert shown(kept[0])[0] == "ours 0" and shown(kept[39])[-1] == "theirs 39"


def test_what_was_kept_of_somebody_erased(home: Home) -> None:
    """An SMS that was on its way when its person was erased is not kept."""
    number = text(home, "sending", None)
    transactions.write(run, "UPDATE message SET recipient_key = NULL WHERE id = ?", (number,))
    assert transactions.write(capture_inbox.store_sms, OutgoingSms(number, NUMBER, "Acme", "secret", "")) == 0
    assert rows("SELECT 1 FROM captured_message") == []
