"""SMS are made ready as mail is: many at a time, each as it would be alone, and found again when a link is followed."""

import re
from typing import Any

import pytest

from appliance.campaigns import preview, store
from appliance.campaigns.store import CampaignCreate
from appliance.content.designs.merge_limits import MergeError
from appliance.core import validation
from appliance.sending.messages import retries
from appliance.sending.messages.ledger import COLUMNS, Claim, Outcome
from appliance.sending.messages.links import LinkRequest, LinkResolver
from appliance.sending.messages.prepare import MessagePreparer
from appliance.sending.sms import segments
from appliance.storage import transactions
from appliance.storage.database import fetch_one, rows, run
from appliance.storage.models import Campaign, Message, MessageContent
from tests.domain.home import Home, turn
from tests.domain.test_flow_content import make as make_flow
from tests.domain.test_flow_run import enter, until_still
from tests.domain.test_hits import ask, marks, record

BODY = "{{ first_name | default: 'friend' }}|{{ contact.phone }}|{{ email }}|https://example.org/{{ contact.id }}/a"


def people(home: Home, count: int) -> list[int]:
    """Make people with phones, every other one with a name and a mail address."""
    return [
        home.upsert(phone=f"+4477009001{n:02}", **({"email": f"p{n}@x.org", "first_name": f"N{n}"} if n % 2 else {}))
        .contact.id
        for n in range(count)
    ]  # fmt: skip


def campaign(home: Home, ids: list[int], body: str = BODY, **more: Any) -> Campaign:
    """Make a draft for SMS to these people."""
    asked = {
        "name": "Spring", "channel": "sms", "template_attributes": {"body": body},
        "trigger_attributes": {"contact_list_id": home.list_of(*ids, name=f"L{len(ids)}{body[:9]}").id}, **more,
    }  # fmt: skip
    return transactions.write(store.create, home.account_id, validation.read(CampaignCreate, asked))


def claims(**where: Any) -> list[Claim]:
    """Return the open rows of the ledger."""
    return [
        Claim._make(row)._replace(first_attempt_at=1_780_000_000_000)
        for row in rows(f"SELECT {COLUMNS} FROM message WHERE status IN ('queued', 'held') ORDER BY id")
    ]


def said(claim: Claim, workshop: MessagePreparer | None = None) -> str:
    """Return what an SMS says."""
    return (workshop or MessagePreparer()).prepare(claim).envelope.content.decode()


def single(home: Home, body: str, phone: str = "+447700900100", **more: Any) -> Claim:
    """Put a single SMS into the ledger, as its door does."""

    def put() -> int:
        found = fetch_one("SELECT contact_id, key FROM channel WHERE value = ?", (phone,))
        row = Message.create(
            account=home.account_id, contact=found[0] if found else None, channel="sms", recipient=phone,
            recipient_key=phone, status="queued", source_type="transactional", provider="capture", due_at=0,
            created_at=1, updated_at=1, **{"transactional": True, **more},
        )  # fmt: skip
        MessageContent.create(message=row, body=body, data={"code": "<1>"}, links=None)
        return int(row.id)

    number = transactions.write(put)
    return next(claim for claim in claims() if claim.id == number)


def test_many_are_made_as_each_alone(home: Home) -> None:
    """Read together or one by one, the bytes are the same, whatever a person has or lacks."""
    home.send(campaign(home, people(home, 7)))
    found = claims()
    together = MessagePreparer()
    together.prefetch(found)
    made = [together.prepare(one) for one in found]
    assert made == [MessagePreparer().prepare(one) for one in found]
    texts = [one.envelope.content.decode() for one in made]
    assert texts[0].startswith("friend|+447700900100||http") and texts[1].startswith("N1|+447700900101|p1@x.org|http")
    assert all("/c/" in text and "example.org" not in text for text in texts)
    assert [(one.envelope.rcpt_to, one.parts, one.subject) for one in made][2] == ("+447700900102", 1, "")
    assert {one.sender for one in made} == {"Campanero"}


def test_links_lead_where_they_were_written_to(home: Home) -> None:
    """A link is filled in when it is followed; a click counts, tells of an SMS, and leaves the counts of mail alone."""
    (person,) = people(home, 1)
    home.send(campaign(home, [person]))
    claim = turn(None, True, "sms")
    assert claim is not None
    turn(Outcome(claim, sender="Campanero"), False)
    home.advance(60)
    found = LinkResolver().resolve([LinkRequest(claim.id, 1)])[LinkRequest(claim.id, 1)]
    assert (found.url, found.channel) == (f"https://example.org/{person}/a", "sms")
    record(ask(claim.id, 1))
    assert marks(claim.id) == (0, 1)
    assert [row[0] for row in rows("SELECT event FROM event WHERE event GLOB '*_clicked'")] == ["sms_clicked"]
    assert fetch_one("SELECT email_open_count, email_click_count, last_interacted_at NOT NULL FROM contact") == (
        0,
        0,
        1,
    )
    assert fetch_one("SELECT verified_at NOT NULL FROM channel WHERE kind = 'phone'") == (1,)


def test_clicks_of_a_machine_are_taken_back(home: Home) -> None:
    """Who follows every link at once is no reader: the first click is not theirs either, and no open was ever there."""
    body = " ".join(f"https://example.org/{n}" for n in range(1, 5))
    home.send(campaign(home, people(home, 1), body=body))
    claim = turn(None, True, "sms")
    assert claim is not None
    turn(Outcome(claim, sender="Campanero"), False)
    home.advance(60)
    record(ask(claim.id, 1))
    assert marks(claim.id) == (0, 1)
    record(*(ask(claim.id, n, after=n * 50) for n in (2, 3, 4)))
    assert marks(claim.id) == (0, 0)
    assert rows("SELECT DISTINCT event, data ->> 'verdict' FROM event WHERE event GLOB '*_clicked'") == [
        ("sms_clicked", "machine")
    ]
    assert fetch_one("SELECT email_click_count, email_last_clicked_at, last_interacted_at FROM contact") == (
        0,
        None,
        None,
    )


def test_what_a_preview_shows_is_what_leaves(home: Home) -> None:
    """Every word of it, with links of the same length: only whose they are differs."""
    transactions.write(run, "UPDATE account SET sms_opt_out_hint = '{{ brand.company_name }}: STOP to end'")
    (person,) = people(home, 1)
    made = campaign(home, [person], body=BODY + " {{ campaign.name }} {{ unsubscribe_url }}")
    shown = preview.render_preview(home.account_id, made.id)
    home.send(made)
    sent = said(claims()[0])
    assert len(sent) == len(shown["text"]) and shown["sms"].segments == MessagePreparer().prepare(claims()[0]).parts
    tokens = re.compile(r"/([cu])/[A-Za-z0-9_-]+")
    assert tokens.sub(r"/\1/", sent) == tokens.sub(r"/\1/", shown["text"])
    assert shown["contact"].id == person and shown["from_email"] == "Campanero"


def test_who_wants_not_to_be_counted_is_led_on_uncounted(home: Home) -> None:
    """Their link is as short as everybody's, and leaves no trace."""
    (person,) = people(home, 1)
    transactions.write(run, "UPDATE contact SET tracking = 'none'")
    home.send(campaign(home, [person]))
    claim = turn(None, True, "sms")
    assert claim is not None and "/c/" in said(claim)
    turn(Outcome(claim, sender="Campanero"), False)
    home.advance(60)
    assert ask(claim.id, 1).message.url == f"https://example.org/{person}/a"
    record(ask(claim.id, 1))
    assert rows("SELECT 1 FROM hit") == []


def test_a_campaign_that_counts_nothing_keeps_its_links(home: Home) -> None:
    """Without tracking the addresses are those that were written."""
    ids = people(home, 1)
    home.send(campaign(home, ids, tracking=False))
    assert said(claims()[0]).endswith(f"https://example.org/{ids[0]}/a")


def test_a_step_of_a_flow_says_what_its_event_brought(home: Home) -> None:
    """Marketing steps have short links and the hint, transactional ones neither."""
    transactions.write(run, "UPDATE account SET sms_opt_out_hint = 'STOP to end'")
    ids = people(home, 1)
    body = "Order {{ event.sku }}: https://example.org/{{ event.sku }}"
    for transactional in (False, True):
        flow = make_flow(home, {"type": "sms", "body": body, "transactional": transactional})
        enter(home, flow, *ids, event_data={"sku": "A<7>"})
    until_still()
    marketing, service = [said(claim) for claim in claims()]
    assert marketing.startswith("Order A<7>: http://127.0.0.1:8080/c/") and marketing.endswith("-1 STOP to end")
    assert service == "Order A<7>: https://example.org/A<7>"
    number = claims()[0].id
    assert (
        LinkResolver().resolve([LinkRequest(number, 1)])[LinkRequest(number, 1)].url == "https://example.org/A%3C7%3E"
    )


def test_a_single_one_says_what_it_was_given(home: Home) -> None:
    """Raw values, its own sender, its links as they are, nothing behind it; nobody's number gets the same."""
    transactions.write(run, "UPDATE account SET sms_opt_out_hint = 'STOP to end'")
    claim = single(home, "Code {{ data.code }} {{ contact.phone }} https://example.org/a", sender="Acme")
    made = MessagePreparer().prepare(claim)
    assert made.envelope == ("Acme", "+447700900100", b"Code <1> +447700900100 https://example.org/a", False)
    assert (made.parts, made.has_opt_out_hint) == (1, False)
    shown = MessagePreparer().fill_again(Message.get_by_id(claim.id))
    assert shown.text == made.envelope.content.decode() and "Code &lt;1&gt; +44" in shown.html


def test_a_hint_is_said_once_a_month_where_that_is_set(home: Home) -> None:
    """The first message says it, the next do not for thirty days; what was said is shown again as it was."""
    transactions.write(run, "UPDATE account SET sms_opt_out_hint = 'STOP to end'")
    home.configure(sms__opt_out_hint="monthly")
    ids, texts, shown = people(home, 1), [], []
    for days in (0, 1, 28, 2):
        home.advance(days * 86_400)
        home.send(campaign(home, ids, body=f"Day {days}"))
        claim = turn(None, True, "sms")
        assert claim is not None
        made = MessagePreparer().prepare(claim)
        turn(Outcome(claim, sender="Campanero", prepared=made), False)
        texts.append(made.envelope.content.decode())
        shown.append(MessagePreparer().fill_again(Message.get_by_id(claim.id)).text)
    assert texts == shown == ["Day 0 STOP to end", "Day 1", "Day 28", "Day 2 STOP to end"]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("{{ contact.data.essay }}", "it says nothing"),
        ("{{ data.code }}" * 540, "it is too long (maximum is 1600 characters)"),
        ("{{ data.code }}" * 520, "it takes 11 parts (maximum is 10)"),
    ],
)
def test_what_nobody_carries_is_not_made(home: Home, body: str, why: str) -> None:
    """It says why, in the words that its row will have."""
    with pytest.raises(ValueError, match=why.replace("(", r"\(").replace(")", r"\)")):
        MessagePreparer().prepare(single(home, body))
    with pytest.raises(MergeError):
        MessagePreparer().prepare(single(home, "{{ data.code | money }}"))


def test_a_message_in_hand_is_made_again_as_it_was(home: Home) -> None:
    """After a crash the same bytes are known, with the parts they cost."""
    home.send(campaign(home, people(home, 1), body="Grüße {{ first_name | default: 'Ж' }} https://example.org/a"))
    claim = turn(None, True, "sms")
    assert claim is not None
    ((found, made),) = retries.find_interrupted()
    assert found.id == claim.id and made is not None and made.parts == 1
    assert segments.count_segments(made.envelope.content.decode()).alphabet == "UCS-2"
