"""Messages are rendered in batches, each as it would be alone, with the content the campaign was sent with."""

import quopri

import pytest

from appliance.content import brand as brands
from appliance.content.designs import merge_limits
from appliance.content.designs.merge_limits import MergeError
from appliance.core import validation
from appliance.sending.messages.ledger import COLUMNS, LedgerRow
from appliance.sending.messages.prepare import MessagePreparer
from appliance.storage import transactions
from appliance.storage.database import rows, run
from appliance.storage.models import Message
from tests.domain.home import Home

BODY = (
    "{{ first_name | default: 'friend' }}|{{ contact.data.city }}|{{ contact.phone }}|{{ email }}|"
    "{{ brand.company_name }}"
)


def _send_campaign(home: Home, contact_count: int = 4, **template: str) -> list[LedgerRow]:
    """Send a campaign to contacts with some of the merged values, and return its ledger rows."""
    contacts = [
        home.contact(f"p{n}@example.org", **({"first_name": f"N{n}", "data": {"city": f"C{n}"}} if n % 2 else {}),
                     **({"phone": f"+4420794600{n:02}"} if n % 3 == 0 else {}))
        for n in range(contact_count)
    ]  # fmt: skip
    campaign = home.send(home.campaign(home.list_of(*(contact.id for contact in contacts)).id, body=BODY, **template))
    return [
        LedgerRow._make(row)._replace(first_attempt_at=1_780_000_000_000)
        for row in rows(f"SELECT {COLUMNS} FROM message WHERE campaign_id = ? ORDER BY id", (campaign.id,))
    ]


def test_prefetched_messages_equal_single_ones(home: Home) -> None:
    """With or without prefetching the same messages result, whatever values a contact has."""
    ledger_rows = _send_campaign(home, 9)
    batch, single = MessagePreparer(), MessagePreparer()
    batch.prefetch(ledger_rows)
    prepared = [batch.prepare(row) for row in ledger_rows]
    assert prepared == [single.prepare(row) for row in ledger_rows]
    bodies = [quopri.decodestring(message.envelope.content) for message in prepared]
    assert b"friend||+442079460000|p0@example.org|Acme" in bodies[0] and b"N1|C1||p1@example.org|Acme" in bodies[1]


def test_prefetching_two_campaigns_to_one_contact(home: Home) -> None:
    """Each message has the values its own campaign uses, in either order of the rows."""
    contact = home.contact("ann@example.org", phone="+442079460000")
    list_id = home.list_of(contact.id).id
    for name, body in (("A", "<p>{{ contact.phone }}|{{ email }}</p>"), ("B", "<p>Hi {{ email }}</p>")):
        home.send(home.campaign(list_id, name=name, body=body))
    ledger_rows = [
        LedgerRow._make(row)._replace(first_attempt_at=1_780_000_000_000)
        for row in rows(f"SELECT {COLUMNS} FROM message")
    ]
    for order in (ledger_rows, ledger_rows[::-1]):
        batch = MessagePreparer()
        batch.prefetch(order)
        assert [batch.prepare(ledger_row) for ledger_row in ledger_rows] == [
            MessagePreparer().prepare(ledger_row) for ledger_row in ledger_rows
        ]
    assert b"+442079460000|ann@" in quopri.decodestring(batch.prepare(ledger_rows[0]).envelope.content)


def test_a_damaged_contact_fails_alone(home: Home) -> None:
    """Of the prefetched messages only the one of the contact with invalid data fails."""
    ledger_rows = _send_campaign(home)
    transactions.write(run, "UPDATE contact SET data = '[1' WHERE id = ?", (ledger_rows[1].contact_id,))
    preparer = MessagePreparer()
    preparer.prefetch(ledger_rows)
    assert len([preparer.prepare(row) for row in ledger_rows if row is not ledger_rows[1]]) == 3
    with pytest.raises(ValueError):
        preparer.prepare(ledger_rows[1])


def test_a_sent_campaign_keeps_its_brand(home: Home) -> None:
    """Changes of account and brand after the send do not change the messages."""
    ledger_rows = _send_campaign(home)
    original = MessagePreparer().prepare(ledger_rows[0])
    change = validation.read(brands.BrandWrite, {"company_name": "Other Ltd", "physical_address": "2 Side St"})
    transactions.write(brands.update, home.account_id, change)
    transactions.write(run, "UPDATE account SET name = 'Other', email_from_name = 'Other', locale = 'de'")
    assert MessagePreparer().prepare(ledger_rows[0]) == original


def test_a_campaign_with_an_invalid_template_fails_alone(home: Home) -> None:
    """Messages of other campaigns prefetched with it are prepared."""
    good_rows = _send_campaign(home)
    bad_campaign = home.send(home.campaign(home.list_of(good_rows[0].contact_id, name="Other").id))
    transactions.write(
        run,
        "UPDATE template_revision SET document = json_set(document, '$.subject', '{{ broken') WHERE id = ?",
        (bad_campaign.content_id,),
    )
    (broken_row,) = (
        LedgerRow._make(row) for row in rows(f"SELECT {COLUMNS} FROM message WHERE campaign_id = ?", (bad_campaign.id,))
    )
    preparer = MessagePreparer()
    preparer.prefetch([broken_row, *good_rows])
    assert len([preparer.prepare(ledger_row) for ledger_row in good_rows]) == 4
    with pytest.raises(MergeError):
        preparer.prepare(broken_row)


def test_a_message_that_was_sent_can_be_shown(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Showing it may take longer than sending it, because the first rendering after its parsing is slow."""
    contact = home.contact("ann@example.org")
    body = "{% for i in (1..100) %}{% for j in (1..10) %}{% if i == 999 %}x{% endif %}{% endfor %}{% endfor %}Hi"
    home.send(home.campaign(home.list_of(contact.id).id, body=body))
    monkeypatch.setattr(merge_limits, "MAX_RENDER_SECONDS", 0.0)
    row = LedgerRow._make(rows(f"SELECT {COLUMNS} FROM message")[0])._replace(first_attempt_at=1_780_000_000_000)
    with pytest.raises(MergeError, match="to render"):
        MessagePreparer().prepare(row)
    assert "Hi" in MessagePreparer().fill_again(Message.get_by_id(row.id)).html
