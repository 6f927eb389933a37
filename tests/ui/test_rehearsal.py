"""The preflight card of the composer updates itself and names contacts with missing values."""

import pytest
from playwright.sync_api import Page, expect

from tests.kit.client import Client
from tests.kit.server import Server


@pytest.mark.full
def test_contacts_with_missing_values_are_named(browser_page: Page, server: Server, api: Client) -> None:
    """The card fills itself, and its page links to the contact without a first name."""
    list_id = api.post("/lists", {"name": "Rehearsed"}).expect(201)["id"]
    for address, name in (("ann@example.org", "Ann"), ("nameless@example.org", None)):
        api.post("/contacts", {"email": address, "first_name": name, "list_ids": [list_id]}).expect(201)
    body = {
        "name": "Spring", "trigger_attributes": {"contact_list_id": list_id},
        "template_attributes": {"subject": "Spring", "body": "<p>Hi {{ contact.first_name }}</p>"},
    }  # fmt: skip
    campaign_id = api.post("/campaigns", body).expect(201)["id"]
    page = browser_page
    page.goto(f"{server.url}/campaigns/{campaign_id}")
    card = page.locator("#rehearsal")

    expect(card).to_contain_text("First name is empty for 1 contact", timeout=15_000)
    page.goto(f"{server.url}/campaigns/{campaign_id}/rehearsal")
    page.locator("#rehearsal").get_by_role("link", name="nameless@example.org").click()
    expect(page).to_have_url(f"{server.url}/contacts/2")
