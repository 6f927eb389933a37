"""The links of a campaign, numbered once when it goes live, so that a report can say later which was clicked."""

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


def kept(campaign: Campaign) -> list[Any]:
    """Return the links of a campaign as they are stored."""
    return rows("SELECT number, url, words FROM link WHERE campaign_id = ? ORDER BY number", (campaign.id,))


def draft(home: Home, body: str = BODY, name: str = "News") -> Campaign:
    """Make a campaign to one person."""
    return home.campaign(home.list_of(home.contact("one@example.org").id, name=name).id, body=body)


def change(home: Home, campaign: Campaign, **body: Any) -> Campaign:
    """Change a campaign as the API does."""
    request = validation.read(CampaignPatch, body)
    return transactions.write(send.update, home.account_id, campaign.id, request, Actor("key:1"))


def test_links_are_written_when_it_goes_live(home: Home) -> None:
    """In the order of reading, with merge tags in place; the link to unsubscribe is one of them."""
    campaign = draft(home)
    assert kept(campaign) == []
    home.send(campaign)
    found = kept(campaign)
    assert found[:3] == WRITTEN and found[3] == (4, "{{ unsubscribe_url }}", "Unsubscribe")
    template = rows("SELECT DISTINCT account_id, template_id FROM link")
    assert template == [(home.account_id, campaign.template_id)]


def test_they_stay_what_they_were(home: Home) -> None:
    """What the brand becomes later changes no number of what was sent, neither does a second send."""
    body = {"sections": [{"type": "header"}, {"type": "button", "props": {"text": "Go", "href": "https://e.test/"}}]}
    campaign = home.campaign(home.list_of(home.contact("one@example.org").id).id, body=None, design=body)
    home.send(campaign)
    found = kept(campaign)
    links = [{"url": "https://example.org/new", "title": "New"}]
    transactions.write(brand.update, home.account_id, validation.read(brand.BrandWrite, {"links": links}))
    home.send(campaign)
    assert kept(campaign) == found and (1, "https://e.test/", "Go") in found


def test_a_draft_has_none_and_the_next_launch_writes_its_own(home: Home) -> None:
    """Taken back while it was held, the links go; sent again they are those of the new words, each once."""
    campaign = draft(home)
    home.send(campaign, hold_seconds=60)
    assert kept(campaign)[:3] == WRITTEN
    transactions.write(states.return_to_draft, home.account_id, campaign.id)
    assert kept(campaign) == []
    change(home, campaign, template_attributes={"body": '<p><a href="https://example.org/c">C</a></p>'})
    home.send(campaign)
    assert [one[1:] for one in kept(campaign)] == [
        ("https://example.org/c", "C"), ("{{ unsubscribe_url }}", "Unsubscribe"),
    ]  # fmt: skip


def test_an_armed_campaign_gets_them_at_its_time(home: Home) -> None:
    """Until then it may change; many links are no trouble, and of two campaigns each has its own."""
    other = draft(home)
    home.send(other)
    many = "".join(f'<a href="https://example.org/{number}">{number}</a> ' for number in range(1200))
    campaign = draft(home, f"<p>{many}</p>", "More news")
    change(home, campaign, scheduled_at=clock.iso(clock.now_ms() + 3_600_000))
    home.send(campaign)
    assert kept(campaign) == []
    home.advance(3601)
    prepared = preflight.prepare_send(home.account_id, campaign.id)
    transactions.write(send.start_scheduled, home.account_id, campaign.id, prepared)
    assert [one[1] for one in kept(campaign)][:1200] == [f"https://example.org/{number}" for number in range(1200)]
    assert kept(other)[:3] == WRITTEN


def test_nothing_is_compiled_for_them(home: Home) -> None:
    """The send has checked the message before; its links come out of that."""
    campaign = draft(home)
    compose.try_compile.cache_clear()
    home.send(campaign)
    assert compose.try_compile.cache_info().misses == 1
