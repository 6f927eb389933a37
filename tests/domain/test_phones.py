"""What the phone of the inbox shows: the thread around the SMS that is looked at, with each of our senders apart."""

from appliance.inbound.conversations import receiving
from appliance.sending.messages import capture_inbox
from appliance.sending.sms.codes import Incoming
from appliance.sending.sms.gsm import Text
from appliance.storage import work
from appliance.storage.models import Captured
from appliance.storage.open import rows, run
from appliance.tracking import phones
from tests.domain.home import Home
from tests.domain.test_receipts import NUMBER, text


def keep(home: Home, body: str, sender: str = "Acme") -> Captured:
    """Keep an SMS a moment later than the one before."""
    home.advance(1)
    number = work.write(capture_inbox.keep, Text(text(home, sid=None), NUMBER, sender, body, ""))
    return capture_inbox.get(home.account_id, number)


def write(home: Home, body: str, to: str = "Acme") -> None:
    """Let the owner of the phone write something."""
    home.advance(1)
    work.write(receiving.receive, "capture", Incoming(None, NUMBER, to, body), account_id=home.account_id)


def shown(row: Captured) -> list[str]:
    """Return the words of a thread."""
    return [bubble.text for bubble in phones.thread(row)]


def test_a_thread_goes_to_and_fro(home: Home) -> None:
    """Ours and theirs stand in the order they came; another sender's thread is another one."""
    first = keep(home, "one")
    write(home, "two")
    keep(home, "elsewhere", "Other")
    write(home, "to the other", "Other")
    last = keep(home, "three ✓")
    assert shown(first) == shown(last) == ["one", "two", "three ✓"]
    assert [bubble.captured_id for bubble in phones.thread(first)] == [first.id, None, last.id]


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
    work.write(run, "UPDATE message SET recipient_key = NULL WHERE id = ?", (number,))
    assert work.write(capture_inbox.keep, Text(number, NUMBER, "Acme", "secret", "")) == 0
    assert rows("SELECT 1 FROM captured") == []
