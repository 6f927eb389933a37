"""What happens to a message that is being sent when its contact is deleted, erased or merged."""

from collections.abc import Callable

import pytest

from appliance.audience.contacts import removal, store
from appliance.core.errors import Deferred, DeliveryError, RateLimited, RecipientRejected, Uncertain
from appliance.sending.messages import queue_reader
from appliance.sending.messages.ledger import Outcome
from appliance.storage import transactions
from appliance.storage.database import rows, run, scalar
from appliance.storage.models import Message
from tests.domain.home import BY_API, Home, record_and_claim
from tests.domain.test_outcomes import claim_next, finish

REMOVALS: dict[str, Callable[[Home, int, int], None]] = {
    "delete": lambda home, first, two: transactions.write(removal.delete, home.account_id, first) and None,
    "erase": lambda home, first, two: transactions.write(removal.erase, home.account_id, first, BY_API) and None,
    "merge": lambda home, first, two: transactions.write(removal.merge, home.account_id, two, first, BY_API) and None,
}


@pytest.mark.parametrize("removal_name", REMOVALS)
@pytest.mark.parametrize(
    ("kind", "status"),
    [("accepted", "sent"), ("permanent", "failed"), ("temporary", "queued"), ("uncertain", "queued")],
)
def test_a_claimed_message_keeps_its_outcome(kind: str, status: str, removal_name: str, home: Home) -> None:
    """The outcome is stored, for the surviving contact after a merge; a removed contact gets no retry."""
    contact_id, other_id = home.contact("one@example.org").id, home.contact("two@example.org").id
    home.send(home.campaign(home.list_of(contact_id).id))
    ledger_row = claim_next()
    REMOVALS[removal_name](home, contact_id, other_id)
    row = finish(ledger_row, kind)
    assert (row.status, row.contact_id) == (status, other_id if removal_name == "merge" else None)
    assert removal_name != "erase" or (row.recipient, row.recipient_key, row.subject) == (None, None, None)
    home.advance(1000)
    retried_row = claim_next()
    if status == "queued" and removal_name == "merge":
        assert retried_row is not None and retried_row.contact_id == other_id
    else:
        assert retried_row is None
    if status == "queued" and removal_name != "merge":
        row = Message.get_by_id(row.id)
        # A message that may have been accepted is never marked as skipped
        expected = ("uncertain", None) if kind == "uncertain" else ("skipped", "contact_deleted")
        assert (row.status, row.skip_reason) == expected
    assert rows("PRAGMA foreign_key_check") == []


@pytest.mark.parametrize("in_doubt", ["resend", "hold"])
@pytest.mark.parametrize("error", [RecipientRejected, Deferred, RateLimited, Uncertain])
def test_a_reply_does_not_restore_an_erased_address(error: type[DeliveryError], in_doubt: str, home: Home) -> None:
    """If a contact is erased while a message is being sent, no table keeps the address from the server's reply."""
    home.configure(email__in_doubt=in_doubt)
    contact_id = home.contact("one@example.org").id
    home.send(home.campaign(home.list_of(contact_id).id))
    ledger_row = claim_next()
    transactions.write(removal.erase, home.account_id, contact_id, BY_API)
    text = "550 5.1.1 <one@example.org>: no such user"
    delivery_error = RateLimited(text, 60, 451, "4.7.0") if error is RateLimited else error(text, 550, "5.1.1")
    record_and_claim(Outcome(ledger_row, delivery_error), False)
    # The table `erasure` is for other programs that keep files; they delete its rows
    tables = [row[0] for row in rows("SELECT name FROM sqlite_master WHERE type = 'table' AND name <> 'erasure'")]
    tables_with_address = [table for table in tables if "one@example" in repr(rows(f"SELECT * FROM [{table}]"))]
    assert tables_with_address == []
    assert rows("SELECT reason, address FROM suppression") == [("erased", None)]


def test_merged_contacts_get_a_campaign_once(home: Home) -> None:
    """Of two queued messages of one campaign for merged contacts, one is sent and one skipped."""
    first_id, second_id = home.contact("one@example.org").id, home.contact("two@example.org").id
    campaign = home.send(home.campaign(home.list_of(first_id, second_id).id))
    transactions.write(removal.merge, home.account_id, second_id, first_id, BY_API)
    assert finish(claim_next(), "accepted").contact_id == second_id
    assert claim_next() is None
    rows_by_status = {row.status: row for row in Message.select().where(Message.campaign == campaign.id)}
    assert set(rows_by_status) == {"sent", "skipped"} and rows_by_status["skipped"].skip_reason == "contact_deleted"


def test_a_merge_keeps_the_sent_message(home: Home) -> None:
    """If one of two merged contacts was sent the campaign, that message belongs to the surviving contact."""
    first_id, second_id = home.contact("one@example.org").id, home.contact("two@example.org", opt_in=False).id
    home.send(home.campaign(home.list_of(first_id, second_id).id))
    assert finish(claim_next(), "accepted").contact_id == first_id
    transactions.write(removal.merge, home.account_id, second_id, first_id, BY_API)
    statuses = [row.status for row in Message.select().where(Message.contact == second_id)]
    assert statuses == ["sent"] and not queue_reader.has_due()


def test_a_merge_keeps_list_opt_outs_of_both(home: Home) -> None:
    """A list opt-out of either contact removes the merged contact from the list, and counts follow."""
    first_id, second_id = home.contact("one@example.org").id, home.contact("two@example.org").id
    opted_out_list, other_list = (
        home.list_of(second_id, name="left").id,
        home.list_of(first_id, second_id, name="kept").id,
    )
    transactions.write(run, "INSERT INTO list_opt_out VALUES (?, ?, 1)", (opted_out_list, first_id))
    merged = transactions.write(removal.merge, home.account_id, second_id, first_id, BY_API)
    assert merged.list_ids == [other_list]
    counts = dict(rows("SELECT id, contacts_count FROM contact_list"))
    assert counts == {opted_out_list: 0, other_list: 1}
    assert scalar("SELECT count(*) FROM list_opt_out WHERE contact_id = ?", (second_id,)) == 1


def test_erasure_covers_messages_without_a_contact(home: Home) -> None:
    """A message from before the contact existed loses recipient, subject and body."""
    from appliance.core import validation as fields
    from appliance.sending.messages import transactional
    from appliance.sending.messages.transactional import MessageWrite

    body = {"to": "one@example.org", "subject": "For one", "body": "<p>one</p>"}
    message_id = transactions.write(transactional.queue_message, home.account_id, fields.read(MessageWrite, body)).id
    contact = home.contact("one@example.org")
    transactions.write(removal.delete, home.account_id, contact.id)
    recreated = home.contact("one@example.org")
    transactions.write(removal.erase, home.account_id, recreated.id, BY_API)
    row = Message.get_by_id(message_id)
    assert (row.recipient, row.recipient_key, row.subject, row.status) == (None, None, None, "skipped")
    assert rows("SELECT body FROM message_content") == [(None,)]
    assert store.find_by_words(home.account_id, "one").total == 0


def queue_test_send(home: Home, contact_id: int, to: str = "colleague@example.org") -> Message:
    """Queue a test send with a contact's values, and return its message."""
    from appliance.content.templates import store as templates
    from appliance.content.templates import validation
    from appliance.core import validation as fields
    from appliance.sending.messages import test_sends

    template_body = fields.read(validation.TemplateWrite, {"subject": "S", "body": "<p>{{ contact.first_name }}</p>"})
    template = transactions.write(templates.create, home.account_id, template_body)
    body = fields.read(test_sends.TestRequest, {"email": to, "contact_id": contact_id})
    transactions.write(test_sends.send, home.account_id, template.id, body, True)
    return Message.get(Message.template == template.id)


def test_erasure_skips_test_sends_with_the_contacts_values(home: Home) -> None:
    """A queued test send is skipped; one being sent is not retried and loses recipient and subject."""
    contact_id = home.contact("one@example.org", first_name="Uno").id
    claimed = queue_test_send(home, contact_id)
    ledger_row = claim_next()
    waiting = queue_test_send(home, contact_id)
    transactions.write(removal.erase, home.account_id, contact_id, BY_API)
    assert (Message.get_by_id(waiting.id).status, Message.get_by_id(waiting.id).recipient) == (
        "skipped", "colleague@example.org",
    )  # fmt: skip
    row = finish(ledger_row, "temporary")
    assert (row.id, row.recipient, row.subject) == (claimed.id, None, None)
    home.advance(1000)
    assert claim_next() is None and Message.get_by_id(claimed.id).status == "skipped"


def test_erasure_covers_test_sends_to_the_contact(home: Home) -> None:
    """A test send to a contact with another's values loses its values, then its recipient, as each is erased."""
    first_id, second_id, colleague_id = (home.contact(f"{name}@example.org").id for name in ("one", "two", "colleague"))
    row = queue_test_send(home, first_id)
    transactions.write(removal.merge, home.account_id, second_id, first_id, BY_API)
    transactions.write(removal.erase, home.account_id, second_id, BY_API)
    assert rows("SELECT body, shown_as FROM message_content") == [(None, None)]
    assert Message.get_by_id(row.id).recipient == "colleague@example.org"
    transactions.write(removal.erase, home.account_id, colleague_id, BY_API)
    assert Message.get_by_id(row.id).recipient is None


def test_erasure_covers_test_sends_to_a_former_address(home: Home) -> None:
    """A test send to the contact's former address loses its recipient and is skipped."""
    contact_id = home.contact("one@example.org").id
    row = queue_test_send(home, contact_id, "one@example.org")
    home.patch(contact_id, email="uno@example.org")
    transactions.write(removal.erase, home.account_id, contact_id, BY_API)
    erased = Message.get_by_id(row.id)
    assert (erased.recipient, erased.recipient_key, erased.status) == (None, None, "skipped")


def test_secure_delete_is_on_only_during_an_erasure(home: Home) -> None:
    """PRAGMA secure_delete is 1 within the erasure's transaction and 2 before and after it."""
    before = scalar("PRAGMA secure_delete")
    during: list[int] = []

    def erase_and_read_pragma() -> None:
        removal.erase(home.account_id, contact_id, BY_API)
        during.append(scalar("PRAGMA secure_delete"))

    contact_id = home.contact("one@example.org").id
    transactions.write(erase_and_read_pragma)

    assert (before, during, scalar("PRAGMA secure_delete")) == (2, [1], 2)
