"""Messages are made ready many at a time, each as it would be alone, and as its campaign was sent."""

import quopri

import pytest

from appliance.content import brand as brands
from appliance.content.designs.merge_limits import MergeError
from appliance.core import validation
from appliance.sending.messages.ledger import COLUMNS, Claim
from appliance.sending.messages.prepare import MessagePreparer
from appliance.storage import transactions
from appliance.storage.database import rows, run
from tests.domain.home import Home

BODY = (
    "{{ first_name | default: 'friend' }}|{{ contact.data.city }}|{{ contact.phone }}|{{ email }}|"
    "{{ brand.company_name }}"
)


def _sent(home: Home, people: int = 4, **template: str) -> list[Claim]:
    """Send a campaign to people who have some of what it says, and answer its rows."""
    made = [
        home.contact(f"p{n}@example.org", **({"first_name": f"N{n}", "data": {"city": f"C{n}"}} if n % 2 else {}),
                     **({"phone": f"+4420794600{n:02}"} if n % 3 == 0 else {}))
        for n in range(people)
    ]  # fmt: skip
    campaign = home.send(home.campaign(home.list_of(*(one.id for one in made)).id, body=BODY, **template))
    return [
        Claim._make(row)._replace(first_attempt_at=1_780_000_000_000)
        for row in rows(f"SELECT {COLUMNS} FROM message WHERE campaign_id = ? ORDER BY id", (campaign.id,))
    ]


def test_many_are_made_as_each_alone(home: Home) -> None:
    """Read together or one by one, the bytes are the same, whatever a person has or lacks."""
    claims = _sent(home, 9)
    together, alone = MessagePreparer(), MessagePreparer()
    together.prefetch(claims)
    made = [together.prepare(claim) for claim in claims]
    assert made == [alone.prepare(claim) for claim in claims]
    said = [quopri.decodestring(one.envelope.content) for one in made]
    assert b"friend||+442079460000|p0@example.org|Acme" in said[0] and b"N1|C1||p1@example.org|Acme" in said[1]


def test_two_campaigns_to_one_person_each_say_their_own(home: Home) -> None:
    """Made ready together, the one that says a phone number says it though the other does not."""
    person = home.contact("ann@example.org", phone="+442079460000")
    to = home.list_of(person.id).id
    for name, body in (("A", "<p>{{ contact.phone }}|{{ email }}</p>"), ("B", "<p>Hi {{ email }}</p>")):
        home.send(home.campaign(to, name=name, body=body))
    claims = [
        Claim._make(row)._replace(first_attempt_at=1_780_000_000_000) for row in rows(f"SELECT {COLUMNS} FROM message")
    ]
    for order in (claims, claims[::-1]):
        together = MessagePreparer()
        together.prefetch(order)
        assert [together.prepare(claim) for claim in claims] == [MessagePreparer().prepare(claim) for claim in claims]
    assert b"+442079460000|ann@" in quopri.decodestring(together.prepare(claims[0]).envelope.content)


def test_one_person_who_cannot_be_read_stops_nobody_else(home: Home) -> None:
    """Of those read together, one with damaged data fails alone; the others are made."""
    claims = _sent(home)
    transactions.write(run, "UPDATE contact SET data = '[1' WHERE id = ?", (claims[1].contact_id,))
    workshop = MessagePreparer()
    workshop.prefetch(claims)
    assert len([workshop.prepare(claim) for claim in claims if claim is not claims[1]]) == 3
    with pytest.raises(ValueError):
        workshop.prepare(claims[1])


def test_a_campaign_keeps_the_look_it_was_sent_with(home: Home) -> None:
    """What changes of account and brand after a send is for the next one: a repeat is the same bytes."""
    claims = _sent(home)
    before = MessagePreparer().prepare(claims[0])
    change = validation.read(brands.BrandWrite, {"company_name": "Other Ltd", "physical_address": "2 Side St"})
    transactions.write(brands.update, home.account_id, change)
    transactions.write(run, "UPDATE account SET name = 'Other', email_from_name = 'Other', locale = 'de'")
    assert MessagePreparer().prepare(claims[0]) == before


def test_a_campaign_that_cannot_be_compiled_stops_no_other(home: Home) -> None:
    """The rows of a damaged campaign fail one by one; those read together with them are made."""
    good = _sent(home)
    bad = home.send(home.campaign(home.list_of(good[0].contact_id, name="Other").id))
    transactions.write(
        run,
        "UPDATE template_revision SET document = json_set(document, '$.subject', '{{ broken') WHERE id = ?",
        (bad.content_id,),
    )
    (broken,) = (Claim._make(row) for row in rows(f"SELECT {COLUMNS} FROM message WHERE campaign_id = ?", (bad.id,)))
    workshop = MessagePreparer()
    workshop.prefetch([broken, *good])
    assert len([workshop.prepare(claim) for claim in good]) == 4
    with pytest.raises(MergeError):
        workshop.prepare(broken)
