"""The composer shows how far the rehearsal is, and who lacks what, without being asked again."""

from playwright.sync_api import Page, expect

from tests.kit.client import Client
from tests.kit.server import Server


def test_who_lacks_a_value_is_named(browser_page: Page, server: Server, api: Client) -> None:
    """The card fills itself; a name leads to the person; its own page tells the same."""
    group = api.post("/lists", {"name": "Rehearsed"}).expect(201)["id"]
    for address, name in (("ann@example.org", "Ann"), ("nameless@example.org", None)):
        api.post("/contacts", {"email": address, "first_name": name, "list_ids": [group]}).expect(201)
    body = {
        "name": "Spring", "trigger_attributes": {"contact_list_id": group},
        "template_attributes": {"subject": "Spring", "body": "<p>Hi {{ contact.first_name }}</p>"},
    }  # fmt: skip
    made = api.post("/campaigns", body).expect(201)["id"]
    page = browser_page
    page.goto(f"{server.url}/campaigns/{made}")
    card = page.locator("#rehearsal")

    expect(card).to_contain_text("First name is empty for 1 person", timeout=15_000)
    page.goto(f"{server.url}/campaigns/{made}/rehearsal")
    page.locator("#rehearsal").get_by_role("link", name="nameless@example.org").click()
    expect(page).to_have_url(f"{server.url}/contacts/2")
