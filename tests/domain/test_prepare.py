"""Messages are rendered in batches, each as it would be alone, with the content the campaign was sent with."""

import quopri

import pytest

from appliance.content import brand as brands
from appliance.content.designs import merge_limits
from appliance.content.designs.merge_limits import MergeError
from appliance.core import validation
from appliance.sending.messages.ledger import COLUMNS, Claim
from appliance.sending.messages.prepare import MessagePreparer
from appliance.storage import transactions
from appliance.storage.database import rows, run
from appliance.storage.models import Message
from tests.domain.home import Home

BODY = (
    "{{ first_name | default: 'friend' }}|{{ contact.data.city }}|{{ contact.phone }}|{{ email }}|"
    "{{ brand.company_name }}"
)


def _send_campaign(home: Home, contact_count: int = 4, **template: str) -> list[Claim]:
    """Send a campaign to contacts with some of the merged values, and return its claims."""
    contacts = [
        home.contact(f"p{n}@example.org", **({"first_name": f"N{n}", "data": {"city": f"C{n}"}} if n % 2 else {}),
                     **({"phone": f"+4420794600{n:02}"} if n % 3 == 0 else {}))
        for n in range(contact_count)
    ]  # fmt: skip
    campaign = home.send(home.campaign(home.list_of(*(contact.id for contact in contacts)).id, body=BODY, **template))
    return [
        Claim._make(row)._replace(first_attempt_at=1_780_000_000_000)
        for row in rows(f"SELECT {COLUMNS} FROM message WHERE campaign_id = ? ORDER BY id", (campaign.id,))
    ]


def test_prefetched_messages_equal_single_ones(home: Home) -> None:
    """With or without prefetching the same messages result, whatever values a contact has."""
    claims = _send_campaign(home, 9)
    batch, single = MessagePreparer(), MessagePreparer()
    batch.prefetch(claims)
    prepared = [batch.prepare(claim) for claim in claims]
    assert prepared == [single.prepare(claim) for claim in claims]
    bodies = [quopri.decodestring(message.envelope.content) for message in prepared]
    assert b"friend||+442079460000|p0@example.org|Acme" in bodies[0] and b"N1|C1||p1@example.org|Acme" in bodies[1]


def test_prefetching_two_campaigns_to_one_contact(home: Home) -> None:
    """Each message has the values its own campaign uses, in either order of the claims."""
    contact = home.contact("ann@example.org", phone="+442079460000")
    list_id = home.list_of(contact.id).id
    for name, body in (("A", "<p>{{ contact.phone }}|{{ email }}</p>"), ("B", "<p>Hi {{ email }}</p>")):
        home.send(home.campaign(list_id, name=name, body=body))
    claims = [
        Claim._make(row)._replace(first_attempt_at=1_780_000_000_000) for row in rows(f"SELECT {COLUMNS} FROM message")
    ]
    for order in (claims, claims[::-1]):
        batch = MessagePreparer()
        batch.prefetch(order)
        assert [batch.prepare(claim) for claim in claims] == [MessagePreparer().prepare(claim) for claim in claims]
    assert b"+442079460000|ann@" in quopri.decodestring(batch.prepare(claims[0]).envelope.content)


def test_a_damaged_contact_fails_alone(home: Home) -> None:
    """Of the prefetched messages only the one of the contact with invalid data fails."""
    claims = _send_campaign(home)
    transactions.write(run, "UPDATE contact SET data = '[1' WHERE id = ?", (claims[1].contact_id,))
    preparer = MessagePreparer()
    preparer.prefetch(claims)
    assert len([preparer.prepare(claim) for claim in claims if claim is not claims[1]]) == 3
    with pytest.raises(ValueError):
        preparer.prepare(claims[1])


def test_a_sent_campaign_keeps_its_brand(home: Home) -> None:
    """Changes of account and brand after the send do not change the messages."""
    claims = _send_campaign(home)
    original = MessagePreparer().prepare(claims[0])
    change = validation.read(brands.BrandWrite, {"company_name": "Other Ltd", "physical_address": "2 Side St"})
    transactions.write(brands.update, home.account_id, change)
    transactions.write(run, "UPDATE account SET name = 'Other', email_from_name = 'Other', locale = 'de'")
    assert MessagePreparer().prepare(claims[0]) == original


def test_a_campaign_with_an_invalid_template_fails_alone(home: Home) -> None:
    """Messages of other campaigns prefetched with it are prepared."""
    good_claims = _send_campaign(home)
    bad_campaign = home.send(home.campaign(home.list_of(good_claims[0].contact_id, name="Other").id))
    transactions.write(
        run,
        "UPDATE template_revision SET document = json_set(document, '$.subject', '{{ broken') WHERE id = ?",
        (bad_campaign.content_id,),
    )
    (broken_claim,) = (
        Claim._make(row) for row in rows(f"SELECT {COLUMNS} FROM message WHERE campaign_id = ?", (bad_campaign.id,))
    )
    preparer = MessagePreparer()
    preparer.prefetch([broken_claim, *good_claims])
    assert len([preparer.prepare(claim) for claim in good_claims]) == 4
    with pytest.raises(MergeError):
        preparer.prepare(broken_claim)


def test_a_message_that_was_sent_can_be_shown(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Showing it may take longer than sending it, because the first rendering after its parsing is slow."""
    contact = home.contact("ann@example.org")
    body = "{% for i in (1..100) %}{% for j in (1..10) %}{% if i == 999 %}x{% endif %}{% endfor %}{% endfor %}Hi"
    home.send(home.campaign(home.list_of(contact.id).id, body=body))
    monkeypatch.setattr(merge_limits, "MAX_RENDER_SECONDS", 0.0)
    claim = Claim._make(rows(f"SELECT {COLUMNS} FROM message")[0])._replace(first_attempt_at=1_780_000_000_000)
    with pytest.raises(MergeError, match="to render"):
        MessagePreparer().prepare(claim)
    assert "Hi" in MessagePreparer().fill_again(Message.get_by_id(claim.id)).html
