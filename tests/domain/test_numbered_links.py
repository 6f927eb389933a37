"""The numbered links of a campaign, stored when it goes live, so that its report can count their clicks."""

from typing import Any

from appliance.accounts.audit import Actor
from appliance.campaigns import preflight, send, states
from appliance.campaigns.store import CampaignPatch
from appliance.content import brand
from appliance.core import clock, validation
from appliance.sending.messages import compose
from appliance.storage import transactions
from appliance.storage.database import rows
from appliance.storage.models import Campaign
from tests.domain.home import Home

BODY = (
    '<p><a href="https://example.org/?for={{ contact.first_name }}&amp;a=1">Read <b>more</b></a> '
    '<a href="https://example.org/b">Two</a> <a href="https://example.org/b">Again</a></p>'
)
WRITTEN = [
    (1, "https://example.org/?for={{ contact.first_name }}&a=1", "Read more"),
    (2, "https://example.org/b", "Two"),
    (3, "https://example.org/b", "Again"),
]


def fetch_links(campaign: Campaign) -> list[Any]:
    """Return number, URL and text of a campaign's stored links."""
    return rows("SELECT number, url, words FROM link WHERE campaign_id = ? ORDER BY number", (campaign.id,))


def create_draft(home: Home, body: str = BODY, name: str = "News") -> Campaign:
    """Create a campaign to one contact."""
    return home.campaign(home.list_of(home.contact("one@example.org").id, name=name).id, body=body)


def update(home: Home, campaign: Campaign, **body: Any) -> Campaign:
    """Update a campaign as the API does."""
    request = validation.read(CampaignPatch, body)
    return transactions.write(send.update, home.account_id, campaign.id, request, Actor("key:1"))


def test_links_are_stored_when_a_campaign_goes_live(home: Home) -> None:
    """The links are stored in reading order with unresolved merge tags, including the unsubscribe link."""
    campaign = create_draft(home)
    assert fetch_links(campaign) == []
    home.send(campaign)
    links = fetch_links(campaign)
    assert links[:3] == WRITTEN and links[3] == (4, "{{ unsubscribe_url }}", "Unsubscribe")
    template = rows("SELECT DISTINCT account_id, template_id FROM link")
    assert template == [(home.account_id, campaign.template_id)]


def test_stored_links_do_not_change(home: Home) -> None:
    """A later change of the brand or a second send leaves them as they are."""
    body = {"sections": [{"type": "header"}, {"type": "button", "props": {"text": "Go", "href": "https://e.test/"}}]}
    campaign = home.campaign(home.list_of(home.contact("one@example.org").id).id, body=None, design=body)
    home.send(campaign)
    stored = fetch_links(campaign)
    brand_links = [{"url": "https://example.org/new", "title": "New"}]
    transactions.write(brand.update, home.account_id, validation.read(brand.BrandWrite, {"links": brand_links}))
    home.send(campaign)
    assert fetch_links(campaign) == stored and (1, "https://e.test/", "Go") in stored


def test_links_are_deleted_when_a_send_is_undone(home: Home) -> None:
    """Returning to draft deletes the links; the next send stores those of the new body, each once."""
    campaign = create_draft(home)
    home.send(campaign, hold_seconds=60)
    assert fetch_links(campaign)[:3] == WRITTEN
    transactions.write(states.return_to_draft, home.account_id, campaign.id)
    assert fetch_links(campaign) == []
    update(home, campaign, template_attributes={"body": '<p><a href="https://example.org/c">C</a></p>'})
    home.send(campaign)
    assert [link[1:] for link in fetch_links(campaign)] == [
        ("https://example.org/c", "C"), ("{{ unsubscribe_url }}", "Unsubscribe"),
    ]  # fmt: skip


def test_a_scheduled_campaign_stores_links_when_it_starts(home: Home) -> None:
    """A scheduled campaign has no links before its start, then all 1,200; another campaign keeps its own."""
    other = create_draft(home)
    home.send(other)
    anchors = "".join(f'<a href="https://example.org/{number}">{number}</a> ' for number in range(1200))
    campaign = create_draft(home, f"<p>{anchors}</p>", "More news")
    update(home, campaign, scheduled_at=clock.iso(clock.now_ms() + 3_600_000))
    home.send(campaign)
    assert fetch_links(campaign) == []
    home.advance(3601)
    prepared = preflight.prepare_send(home.account_id, campaign.id)
    transactions.write(send.start_scheduled, home.account_id, campaign.id, prepared)
    assert [link[1] for link in fetch_links(campaign)][:1200] == [
        f"https://example.org/{number}" for number in range(1200)
    ]
    assert fetch_links(other)[:3] == WRITTEN


def test_links_are_stored_without_compiling_again(home: Home) -> None:
    """A send compiles the message once; the links come from that."""
    campaign = create_draft(home)
    compose.try_compile.cache_clear()
    home.send(campaign)
    assert compose.try_compile.cache_info().misses == 1
