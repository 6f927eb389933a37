"""A message in doubt is repeated as the same bytes, or a person decides (docs/decisions.md#8, P3)."""

import pytest

from appliance.accounts.audit import Actor
from appliance.audience.contacts import removal
from appliance.campaigns import states
from appliance.core.errors import Deferred, Uncertain
from appliance.jobs import housekeeping
from appliance.sending.messages import queue, retries
from appliance.sending.messages.ledger import Claim, Outcome, PreparedMessage
from appliance.sending.messages.prepare import MessagePreparer
from appliance.sending.messages.queue_reader import QueueReader
from appliance.sending.workers import ready_queue
from appliance.storage import transactions
from appliance.storage.database import run, scalar
from appliance.storage.models import Message
from tests.domain.home import BY_API, Home, crash, turn


def _taken(home: Home, name: str = "Ann") -> tuple[Claim, PreparedMessage]:
    """Return a message in hand, and what is handed over."""
    contact = home.contact(f"{name.lower()}@example.org", first_name=name)
    home.send(home.campaign(home.list_of(contact.id, name=name).id, name, subject="For {{ first_name }}"))
    claim = turn(None, True)
    assert claim is not None
    return claim, MessagePreparer().prepare(claim)


@pytest.mark.parametrize("how", ["connection", "crash"])
def test_a_repeat_is_the_same_bytes(how: str, home: Home) -> None:
    """Whatever happens to the person between the attempts, the second one says what the first one said."""
    claim, handed_over = _taken(home)
    if how == "crash":
        assert crash() == 1
    else:
        turn(Outcome(claim, Uncertain("the connection broke"), prepared=handed_over), False)
    home.patch(claim.contact_id, first_name="Bea")
    row = Message.get_by_id(claim.id)
    assert (row.status, row.uncertain_count) == ("queued", 1)
    kept = retries.load_payload(claim.id)
    assert kept is not None and kept == handed_over
    assert b"Subject: For Ann\r\n" in kept.envelope.content


def test_what_cannot_be_the_same_is_not_repeated(home: Home) -> None:
    """Of a person who changed while their message was in hand of a process that died, nothing is sent by itself."""
    claim, _ = _taken(home)
    home.patch(claim.contact_id, first_name="Bea")
    assert crash() == 1
    row = Message.get_by_id(claim.id)
    assert (row.status, row.uncertain_count, row.attempts) == ("uncertain", 1, 1)
    assert "changed since" in row.error_text


@pytest.mark.parametrize("how", ["connection", "crash"])
def test_a_person_repeats_the_same_bytes(how: str, home: Home) -> None:
    """Held for a person, a message goes again as it may have arrived: at their first wish and at their second."""
    home.configure(email__in_doubt="hold")
    claim, handed_over = _taken(home)
    for name in ("Bea", "Cleo"):
        if how == "crash":
            assert crash() == 1
        else:
            turn(Outcome(claim, Uncertain("the connection broke"), prepared=handed_over), False)
        assert Message.get_by_id(claim.id).status == "uncertain"
        home.patch(claim.contact_id, first_name=name)
        transactions.write(retries.retry, home.account_id, claim.id, "user:1")
        again = turn(None, True)
        assert again is not None and retries.load_payload(again.id) == handed_over
        claim = again
    turn(Outcome(claim, subject="x", sender="a@b.example"), False)
    assert Message.get_by_id(claim.id).status == "sent" and scalar("SELECT count(*) FROM retry_payload") == 0


def test_what_a_person_counts_as_sent_is_not_kept(home: Home) -> None:
    """The bytes go with the decision that they will not be needed."""
    home.configure(email__in_doubt="hold")
    claim, handed_over = _taken(home)
    turn(Outcome(claim, Uncertain("the connection broke"), prepared=handed_over), False)
    assert scalar("SELECT count(*) FROM retry_payload") == 1
    transactions.write(retries.assume_sent, home.account_id, claim.id, "user:1")
    assert scalar("SELECT count(*) FROM retry_payload") == 0


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_what_could_not_be_made_is_in_no_doubt(is_cancelled: bool, home: Home) -> None:
    """A process that dies between the mark of such a message and the note why leaves it as it was: nothing left."""
    claim, _ = _taken(home)
    turn(Outcome(claim, Deferred("greylisted", 451, "4.7.1")), False)
    home.advance(1000)
    pinned = scalar("SELECT pinned FROM campaign WHERE id = ?", (claim.campaign_id,))
    transactions.write(run, "UPDATE campaign SET pinned = '{}' WHERE id = ?", (claim.campaign_id,))
    maker = ready_queue.Renderer()
    [ready] = maker.render(QueueReader().fetch_candidates(1))
    maker.close()
    assert ready.failure is not None and transactions.write(queue.record_and_claim, [], [ready.claim], "process") == {
        claim.id
    }
    transactions.write(run, "UPDATE campaign SET pinned = ? WHERE id = ?", (pinned, claim.campaign_id))
    if is_cancelled:
        transactions.write(states.cancel, home.account_id, claim.campaign_id, Actor("key:1"))
    assert crash() == 1
    row = Message.get_by_id(claim.id)
    assert (row.status, row.uncertain_count, row.attempts) == ("cancelled" if is_cancelled else "queued", 0, 1)


def test_a_message_that_cannot_be_made_again_keeps_nothing_from_beginning(home: Home) -> None:
    """Whatever is wrong with one message that was in hand, the service starts: that one is held, another repeated."""
    claim, _ = _taken(home)
    transactions.write(run, "UPDATE campaign SET pinned = '{}' WHERE id = ?", (claim.campaign_id,))
    other = home.contact("bob@example.org")
    home.send(home.campaign(home.list_of(other.id, name="Other").id, name="Other"))
    second = turn(None, True)
    assert second is not None and crash() == 2
    assert [Message.get_by_id(row.id).status for row in (claim, second)] == ["uncertain", "queued"]


@pytest.mark.parametrize("end", ["accepted", "second doubt", "erased"])
def test_the_bytes_are_kept_no_longer_than_they_are_needed(end: str, home: Home) -> None:
    """They go with acceptance and with erasure; a message in doubt keeps them for the person who decides.

    It stays in doubt whatever else becomes of it.
    """
    claim, handed_over = _taken(home)
    turn(Outcome(claim, Uncertain("the connection broke"), prepared=handed_over), False)
    if end == "erased":
        transactions.write(removal.erase, home.account_id, claim.contact_id, BY_API)
    else:
        again = turn(None, True)
        assert again is not None and again.uncertain_count == 1
        error = None if end == "accepted" else Uncertain("again")
        turn(Outcome(again, error, subject="x", sender="a@b.example", prepared=handed_over), False)
    assert scalar("SELECT count(*) FROM retry_payload") == (1 if end == "second doubt" else 0)
    assert Message.get_by_id(claim.id).status == ("sent" if end == "accepted" else "uncertain")


def test_the_bytes_of_a_cancelled_campaign_go(home: Home) -> None:
    """What is in doubt of a campaign that is over goes with what else is over; what may go again is kept."""
    home.configure(email__in_doubt="hold")
    over, live = _taken(home), _taken(home, "Bea")
    for claim, handed_over in (over, live):
        turn(Outcome(claim, Uncertain("the connection broke"), prepared=handed_over), False)
    housekeeping.prune_erased_and_finished()
    assert retries.load_payload(over[0].id) and retries.load_payload(live[0].id)
    assert over[0].campaign_id is not None
    transactions.write(states.cancel, home.account_id, over[0].campaign_id, Actor("user:1"))
    housekeeping.prune_erased_and_finished()
    assert retries.load_payload(over[0].id) is None and retries.load_payload(live[0].id) == live[1]
    assert Message.get_by_id(over[0].id).status == "uncertain"


def test_an_erased_person_leaves_no_bytes(home: Home) -> None:
    """Somebody erased while their message is in hand: the doubt that follows keeps nothing of them."""
    claim, handed_over = _taken(home)
    transactions.write(removal.erase, home.account_id, claim.contact_id, BY_API)
    turn(Outcome(claim, Uncertain("the connection broke"), prepared=handed_over), False)
    assert scalar("SELECT count(*) FROM retry_payload") == 0
