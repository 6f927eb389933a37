"""What happens to a message in hand when its person is deleted, erased or merged meanwhile."""

from collections.abc import Callable

import pytest

from appliance.audience.contacts import removal, store
from appliance.core.errors import Deferred, DeliveryError, RateLimited, RecipientRejected, Uncertain
from appliance.sending.messages import queue_reader
from appliance.sending.messages.ledger import Outcome
from appliance.storage import transactions
from appliance.storage.database import rows, run, scalar
from appliance.storage.models import Message
from tests.domain.home import BY_API, Home, turn
from tests.domain.test_outcomes import finish, take

HOWS: dict[str, Callable[[Home, int, int], None]] = {
    "delete": lambda home, one, two: transactions.write(removal.delete, home.account_id, one) and None,
    "erase": lambda home, one, two: transactions.write(removal.erase, home.account_id, one, BY_API) and None,
    "merge": lambda home, one, two: transactions.write(removal.merge, home.account_id, two, one, BY_API) and None,
}


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize(
    ("kind", "status"),
    [("accepted", "sent"), ("permanent", "failed"), ("temporary", "queued"), ("uncertain", "queued")],
)
def test_a_message_in_hand_keeps_its_outcome(kind: str, status: str, how: str, home: Home) -> None:
    """Its outcome is stored, for whoever it belongs to now; who is gone is not written to again."""
    one, two = home.contact("one@example.org").id, home.contact("two@example.org").id
    home.send(home.campaign(home.list_of(one).id))
    claim = take()
    HOWS[how](home, one, two)
    row = finish(claim, kind)
    assert (row.status, row.contact_id) == (status, two if how == "merge" else None)
    assert how != "erase" or (row.recipient, row.recipient_key, row.subject) == (None, None, None)
    home.advance(1000)
    again = take()
    if status == "queued" and how == "merge":
        assert again is not None and again.contact_id == two
    else:
        assert again is None
    if status == "queued" and how != "merge":
        row = Message.get_by_id(row.id)
        # What may have been taken is never called `not attempted`
        expected = ("uncertain", None) if kind == "uncertain" else ("skipped", "contact_deleted")
        assert (row.status, row.skip_reason) == expected
    assert rows("PRAGMA foreign_key_check") == []


@pytest.mark.parametrize("in_doubt", ["resend", "hold"])
@pytest.mark.parametrize("error", [RecipientRejected, Deferred, RateLimited, Uncertain])
def test_the_words_of_the_other_side_do_not_bring_an_erased_address_back(
    error: type[DeliveryError], in_doubt: str, home: Home
) -> None:
    """Whatever answer names somebody who was erased while their message was in hand, nothing of it is kept."""
    home.configure(email__in_doubt=in_doubt)
    contact = home.contact("one@example.org").id
    home.send(home.campaign(home.list_of(contact).id))
    claim = take()
    transactions.write(removal.erase, home.account_id, contact, BY_API)
    text = "550 5.1.1 <one@example.org>: no such user"
    said = RateLimited(text, 60, 451, "4.7.0") if error is RateLimited else error(text, 550, "5.1.1")
    turn(Outcome(claim, said), False)
    # The note for those who keep files is taken away by them
    tables = [row[0] for row in rows("SELECT name FROM sqlite_master WHERE type = 'table' AND name <> 'erasure'")]
    named = [table for table in tables if "one@example" in repr(rows(f"SELECT * FROM [{table}]"))]
    assert named == []
    assert rows("SELECT reason, address FROM suppression") == [("erased", None)]


def test_merged_people_get_a_campaign_once(home: Home) -> None:
    """Of two messages of one campaign that wait for people who become one, one goes out, the other is skipped."""
    one, two = home.contact("one@example.org").id, home.contact("two@example.org").id
    campaign = home.send(home.campaign(home.list_of(one, two).id))
    transactions.write(removal.merge, home.account_id, two, one, BY_API)
    assert finish(take(), "accepted").contact_id == two
    assert take() is None
    found = {row.status: row for row in Message.select().where(Message.campaign == campaign.id)}
    assert set(found) == {"sent", "skipped"} and found["skipped"].skip_reason == "contact_deleted"


def test_the_message_that_counts_stays_with_the_merged(home: Home) -> None:
    """If only one of the two could be written to, that one's message is the person's."""
    one, two = home.contact("one@example.org").id, home.contact("two@example.org", opt_in=False).id
    home.send(home.campaign(home.list_of(one, two).id))
    assert finish(take(), "accepted").contact_id == one
    transactions.write(removal.merge, home.account_id, two, one, BY_API)
    mine = [row.status for row in Message.select().where(Message.contact == two)]
    assert mine == ["sent"] and not queue_reader.has_due()


def test_a_list_that_either_left_is_left(home: Home) -> None:
    """Strictest counts for lists too: a refusal of one of the two takes the person out, and the counts follow."""
    one, two = home.contact("one@example.org").id, home.contact("two@example.org").id
    left, kept = home.list_of(two, name="left").id, home.list_of(one, two, name="kept").id
    transactions.write(run, "INSERT INTO list_opt_out VALUES (?, ?, 1)", (left, one))
    merged = transactions.write(removal.merge, home.account_id, two, one, BY_API)
    assert merged.list_ids == [kept]
    counts = dict(rows("SELECT id, contacts_count FROM contact_list"))
    assert counts == {left: 0, kept: 1}
    assert scalar("SELECT count(*) FROM list_opt_out WHERE contact_id = ?", (two,)) == 1


def test_erasing_reaches_messages_to_an_address_that_was_nobodys(home: Home) -> None:
    """A message sent before there was a contact, or after an earlier one was deleted, names the person no more."""
    from appliance.core import validation as fields
    from appliance.sending.messages import transactional
    from appliance.sending.messages.transactional import MessageWrite

    body = {"to": "one@example.org", "subject": "For one", "body": "<p>one</p>"}
    first = transactions.write(transactional.queue_message, home.account_id, fields.read(MessageWrite, body)).id
    contact = home.contact("one@example.org")
    transactions.write(removal.delete, home.account_id, contact.id)
    again = home.contact("one@example.org")
    transactions.write(removal.erase, home.account_id, again.id, BY_API)
    row = Message.get_by_id(first)
    assert (row.recipient, row.recipient_key, row.subject, row.status) == (None, None, None, "skipped")
    assert rows("SELECT body FROM message_content") == [(None,)]
    assert store.find_by_words(home.account_id, "one").total == 0


def asked_for(home: Home, contact_id: int, to: str = "colleague@example.org") -> Message:
    """Ask for a test to a colleague with a contact's values; answer its row."""
    from appliance.content.templates import store as templates
    from appliance.content.templates import validation
    from appliance.core import validation as fields
    from appliance.sending.messages import test_sends

    said = fields.read(validation.TemplateWrite, {"subject": "S", "body": "<p>{{ contact.first_name }}</p>"})
    template = transactions.write(templates.create, home.account_id, said)
    body = fields.read(test_sends.TestRequest, {"email": to, "contact_id": contact_id})
    transactions.write(test_sends.send, home.account_id, template.id, body, True)
    return Message.get(Message.template == template.id)


def test_a_test_that_waits_is_not_sent_without_the_values_it_shows(home: Home) -> None:
    """It ends as skipped; one in hand ends with its attempt and is not tried again, and names nobody."""
    one = home.contact("one@example.org", first_name="Uno").id
    in_hand = asked_for(home, one)
    claim = take()
    waiting = asked_for(home, one)
    transactions.write(removal.erase, home.account_id, one, BY_API)
    assert (Message.get_by_id(waiting.id).status, Message.get_by_id(waiting.id).recipient) == (
        "skipped", "colleague@example.org",
    )  # fmt: skip
    row = finish(claim, "temporary")
    assert (row.id, row.recipient, row.subject) == (in_hand.id, None, None)
    home.advance(1000)
    assert take() is None and Message.get_by_id(in_hand.id).status == "skipped"


def test_a_colleague_who_is_erased_later_is_forgotten_too(home: Home) -> None:
    """That a test once showed somebody else hides nobody from their own erasure; nor does a merge."""
    one, two, colleague = (home.contact(f"{name}@example.org").id for name in ("one", "two", "colleague"))
    row = asked_for(home, one)
    transactions.write(removal.merge, home.account_id, two, one, BY_API)
    transactions.write(removal.erase, home.account_id, two, BY_API)
    assert rows("SELECT body, shown_as FROM message_content") == [(None, None)]
    assert Message.get_by_id(row.id).recipient == "colleague@example.org"
    transactions.write(removal.erase, home.account_id, colleague, BY_API)
    assert Message.get_by_id(row.id).recipient is None


def test_a_test_to_a_former_address_names_it_no_more(home: Home) -> None:
    """What went to the person themselves is theirs, though they have another address by now."""
    one = home.contact("one@example.org").id
    row = asked_for(home, one, "one@example.org")
    home.patch(one, email="uno@example.org")
    transactions.write(removal.erase, home.account_id, one, BY_API)
    again = Message.get_by_id(row.id)
    assert (again.recipient, again.recipient_key, again.status) == (None, None, "skipped")


def test_overwriting_ends_with_its_transaction(home: Home) -> None:
    """What is deleted is written over until the erasure is on disk; the writes after it go on as quickly as before."""
    usual = scalar("PRAGMA secure_delete")
    seen: list[int] = []

    def erased() -> None:
        removal.erase(home.account_id, one, BY_API)
        seen.append(scalar("PRAGMA secure_delete"))

    one = home.contact("one@example.org").id
    transactions.write(erased)

    assert (usual, seen, scalar("PRAGMA secure_delete")) == (2, [1], 2)
