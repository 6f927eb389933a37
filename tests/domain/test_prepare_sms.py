"""SMS are rendered in batches as emails are; the URL of a short link is resolved when it is followed."""

import re
from typing import Any

import pytest

from appliance.campaigns import content, store
from appliance.campaigns.store import CampaignCreate
from appliance.content.designs.merge_limits import MergeError
from appliance.core import validation
from appliance.sending.messages import retries
from appliance.sending.messages.ledger import COLUMNS, LedgerRow, Outcome
from appliance.sending.messages.links import LinkRequest, LinkResolver
from appliance.sending.messages.prepare import MessagePreparer
from appliance.sending.sms import segments
from appliance.storage import transactions
from appliance.storage.database import fetch_one, rows, run
from appliance.storage.models import Campaign, Message, MessageContent
from tests.domain.home import Home, record_and_claim
from tests.domain.test_flow_content import create_flow as make_flow
from tests.domain.test_flow_run import advance_until_idle, start_runs
from tests.domain.test_hits import build_hit, message_flags, record_hits

BODY = "{{ first_name | default: 'friend' }}|{{ contact.phone }}|{{ email }}|https://example.org/{{ contact.id }}/a"


def create_contacts(home: Home, count: int) -> list[int]:
    """Create contacts with phones, every other one with an email and a first name too."""
    return [
        home.upsert(phone=f"+4477009001{n:02}", **({"email": f"p{n}@x.org", "first_name": f"N{n}"} if n % 2 else {}))
        .contact.id
        for n in range(count)
    ]  # fmt: skip


def create_sms_campaign(home: Home, contact_ids: list[int], body: str = BODY, **fields: Any) -> Campaign:
    """Create a draft SMS campaign to these contacts."""
    request = {
        "name": "Spring", "channel": "sms", "template_attributes": {"body": body},
        "trigger_attributes": {
            "contact_list_id": home.list_of(*contact_ids, name=f"L{len(contact_ids)}{body[:9]}").id,
        },
        **fields,
    }  # fmt: skip
    return transactions.write(store.create, home.account_id, validation.read(CampaignCreate, request))


def fetch_open_rows(**where: Any) -> list[LedgerRow]:
    """Return the ledger rows of all queued and held messages."""
    return [
        LedgerRow._make(row)._replace(first_attempt_at=1_780_000_000_000)
        for row in rows(f"SELECT {COLUMNS} FROM message WHERE status IN ('queued', 'held') ORDER BY id")
    ]


def render_text(row: LedgerRow, preparer: MessagePreparer | None = None) -> str:
    """Return the text of an SMS."""
    return (preparer or MessagePreparer()).prepare(row).envelope.content.decode()


def create_single_sms(home: Home, body: str, phone: str = "+447700900100", **fields: Any) -> LedgerRow:
    """Create a transactional SMS and return its ledger row."""

    def create() -> int:
        channel = fetch_one("SELECT contact_id, key FROM channel WHERE value = ?", (phone,))
        row = Message.create(
            account=home.account_id, contact=channel[0] if channel else None, channel="sms", recipient=phone,
            recipient_key=phone, status="queued", source_type="transactional", provider="capture", due_at=0,
            created_at=1, updated_at=1, **{"transactional": True, **fields},
        )  # fmt: skip
        MessageContent.create(message=row, body=body, data={"code": "<1>"}, links=None)
        return int(row.id)

    message_id = transactions.write(create)
    return next(ledger_row for ledger_row in fetch_open_rows() if ledger_row.id == message_id)


def test_prefetched_sms_equal_single_ones(home: Home) -> None:
    """With or without prefetching the same SMS result, whatever values a contact has."""
    home.send(create_sms_campaign(home, create_contacts(home, 7)))
    ledger_rows = fetch_open_rows()
    batch = MessagePreparer()
    batch.prefetch(ledger_rows)
    prepared = [batch.prepare(item) for item in ledger_rows]
    assert prepared == [MessagePreparer().prepare(item) for item in ledger_rows]
    texts = [item.envelope.content.decode() for item in prepared]
    assert texts[0].startswith("friend|+447700900100||http") and texts[1].startswith("N1|+447700900101|p1@x.org|http")
    assert all("/c/" in text and "example.org" not in text for text in texts)
    assert [(item.envelope.rcpt_to, item.parts, item.subject) for item in prepared][2] == ("+447700900102", 1, "")
    assert {item.sender for item in prepared} == {"Campanero"}


def test_short_links_are_resolved_and_clicks_counted(home: Home) -> None:
    """A link resolves to its URL; a click is an `sms_clicked` event and leaves the email counts unchanged."""
    (contact_id,) = create_contacts(home, 1)
    home.send(create_sms_campaign(home, [contact_id]))
    ledger_row = record_and_claim(None, True, "sms")
    assert ledger_row is not None
    record_and_claim(Outcome(ledger_row, sender="Campanero"), False)
    home.advance(60)
    target = LinkResolver().resolve([LinkRequest(ledger_row.id, 1)])[LinkRequest(ledger_row.id, 1)]
    assert (target.url, target.channel) == (f"https://example.org/{contact_id}/a", "sms")
    record_hits(build_hit(ledger_row.id, 1))
    assert message_flags(ledger_row.id) == (0, 1)
    assert [row[0] for row in rows("SELECT event FROM event WHERE event GLOB '*_clicked'")] == ["sms_clicked"]
    assert fetch_one("SELECT email_open_count, email_click_count, last_interacted_at NOT NULL FROM contact") == (
        0,
        0,
        1,
    )
    assert fetch_one("SELECT verified_at NOT NULL FROM channel WHERE kind = 'phone'") == (1,)


def test_clicks_of_a_bot_are_not_counted(home: Home) -> None:
    """Several links followed within milliseconds reveal a bot: also its first click is no longer counted."""
    body = " ".join(f"https://example.org/{number}" for number in range(1, 5))
    home.send(create_sms_campaign(home, create_contacts(home, 1), body=body))
    row = record_and_claim(None, True, "sms")
    assert row is not None
    record_and_claim(Outcome(row, sender="Campanero"), False)
    home.advance(60)
    record_hits(build_hit(row.id, 1))
    assert message_flags(row.id) == (0, 1)
    record_hits(*(build_hit(row.id, number, after=number * 50) for number in (2, 3, 4)))
    assert message_flags(row.id) == (0, 0)
    assert rows("SELECT DISTINCT event, data ->> 'verdict' FROM event WHERE event GLOB '*_clicked'") == [
        ("sms_clicked", "machine")
    ]
    assert fetch_one("SELECT email_click_count, email_last_clicked_at, last_interacted_at FROM contact") == (
        0,
        None,
        None,
    )


def test_the_preview_equals_the_sent_sms(home: Home) -> None:
    """The text is the same apart from the tokens of its links, and as long."""
    transactions.write(run, "UPDATE account SET sms_opt_out_hint = '{{ brand.company_name }}: STOP to end'")
    (contact_id,) = create_contacts(home, 1)
    draft = create_sms_campaign(home, [contact_id], body=BODY + " {{ campaign.name }} {{ unsubscribe_url }}")
    preview_result = content.render_preview(home.account_id, draft.id)
    home.send(draft)
    sent_text = render_text(fetch_open_rows()[0])
    assert (
        len(sent_text) == len(preview_result["text"])
        and preview_result["sms"].segments == MessagePreparer().prepare(fetch_open_rows()[0]).parts
    )
    token_pattern = re.compile(r"/([cu])/[A-Za-z0-9_-]+")
    assert token_pattern.sub(r"/\1/", sent_text) == token_pattern.sub(r"/\1/", preview_result["text"])
    assert preview_result["contact"].id == contact_id and preview_result["from_email"] == "Campanero"


def test_contacts_without_tracking_get_links_without_counting(home: Home) -> None:
    """The short links of a contact without tracking lead to the URL, and a click is not stored."""
    (contact_id,) = create_contacts(home, 1)
    transactions.write(run, "UPDATE contact SET tracking = 'none'")
    home.send(create_sms_campaign(home, [contact_id]))
    row = record_and_claim(None, True, "sms")
    assert row is not None and "/c/" in render_text(row)
    record_and_claim(Outcome(row, sender="Campanero"), False)
    home.advance(60)
    assert build_hit(row.id, 1).message.url == f"https://example.org/{contact_id}/a"
    record_hits(build_hit(row.id, 1))
    assert rows("SELECT 1 FROM hit") == []


def test_a_campaign_without_tracking_keeps_its_urls(home: Home) -> None:
    """URLs are not shortened."""
    contact_ids = create_contacts(home, 1)
    home.send(create_sms_campaign(home, contact_ids, tracking=False))
    assert render_text(fetch_open_rows()[0]).endswith(f"https://example.org/{contact_ids[0]}/a")


def test_a_flow_sms_has_the_data_of_its_event(home: Home) -> None:
    """Marketing steps have short links and the opt-out hint, transactional ones neither."""
    transactions.write(run, "UPDATE account SET sms_opt_out_hint = 'STOP to end'")
    contact_ids = create_contacts(home, 1)
    body = "Order {{ event.sku }}: https://example.org/{{ event.sku }}"
    for transactional in (False, True):
        flow = make_flow(home, {"type": "sms", "body": body, "transactional": transactional})
        start_runs(home, flow, *contact_ids, event_data={"sku": "A<7>"})
    advance_until_idle()
    marketing, transactional_row = sorted(fetch_open_rows(), key=lambda row: row.transactional)
    marketing_text, transactional_text = render_text(marketing), render_text(transactional_row)
    assert marketing_text.startswith("Order A<7>: http://127.0.0.1:8080/c/") and marketing_text.endswith(
        "-1 STOP to end"
    )
    assert transactional_text == "Order A<7>: https://example.org/A<7>"
    message_id = marketing.id
    assert (
        LinkResolver().resolve([LinkRequest(message_id, 1)])[LinkRequest(message_id, 1)].url
        == "https://example.org/A%3C7%3E"
    )


def test_a_transactional_sms_has_its_own_data(home: Home) -> None:
    """A transactional SMS has raw values, its own sender, unchanged links and no opt-out hint."""
    transactions.write(run, "UPDATE account SET sms_opt_out_hint = 'STOP to end'")
    row = create_single_sms(home, "Code {{ data.code }} {{ contact.phone }} https://example.org/a", sender="Acme")
    prepared = MessagePreparer().prepare(row)
    assert prepared.envelope == ("Acme", "+447700900100", b"Code <1> +447700900100 https://example.org/a", False, False)
    assert (prepared.parts, prepared.has_opt_out_hint) == (1, False)
    filled = MessagePreparer().fill_again(Message.get_by_id(row.id))
    assert filled.text == prepared.envelope.content.decode() and "Code &lt;1&gt; +44" in filled.html


def test_a_monthly_opt_out_hint(home: Home) -> None:
    """The hint is added once in thirty days; each message is shown again as it was sent."""
    transactions.write(run, "UPDATE account SET sms_opt_out_hint = 'STOP to end'")
    home.configure(sms__opt_out_hint="monthly")
    contact_ids, texts, shown_texts = create_contacts(home, 1), [], []
    for days in (0, 1, 28, 2):
        home.advance(days * 86_400)
        home.send(create_sms_campaign(home, contact_ids, body=f"Day {days}"))
        row = record_and_claim(None, True, "sms")
        assert row is not None
        prepared = MessagePreparer().prepare(row)
        record_and_claim(Outcome(row, sender="Campanero", prepared=prepared), False)
        texts.append(prepared.envelope.content.decode())
        shown_texts.append(MessagePreparer().fill_again(Message.get_by_id(row.id)).text)
    assert texts == shown_texts == ["Day 0 STOP to end", "Day 1", "Day 28", "Day 2 STOP to end"]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("{{ contact.data.essay }}", "the text is empty"),
        ("{{ data.code }}" * 540, "the text is too long (maximum is 1600 characters)"),
        ("{{ data.code }}" * 520, "the text takes 11 parts (maximum is 10)"),
    ],
)
def test_an_sms_that_cannot_be_sent_raises(home: Home, body: str, reason: str) -> None:
    """An empty or too long text raises ValueError with the reason, an unsupported filter MergeError."""
    with pytest.raises(ValueError, match=reason.replace("(", r"\(").replace(")", r"\)")):
        MessagePreparer().prepare(create_single_sms(home, body))
    with pytest.raises(MergeError):
        MessagePreparer().prepare(create_single_sms(home, "{{ data.code | money }}"))


def test_an_interrupted_sms_is_rendered_again(home: Home) -> None:
    """`find_interrupted` returns a claimed SMS with its content and number of segments."""
    home.send(
        create_sms_campaign(
            home, create_contacts(home, 1), body="Grüße {{ first_name | default: 'Ж' }} https://example.org/a"
        )
    )
    row = record_and_claim(None, True, "sms")
    assert row is not None
    ((interrupted, prepared),) = retries.find_interrupted()
    assert interrupted.id == row.id and prepared is not None and prepared.parts == 1
    assert segments.count_segments(prepared.envelope.content.decode()).alphabet == "UCS-2"
