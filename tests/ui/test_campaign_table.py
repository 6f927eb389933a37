"""The table of campaigns: bulk actions and undo."""

import pytest
from playwright.sync_api import Page, expect

from tests.kit.client import Client
from tests.kit.html_page import HtmlPage
from tests.kit.scriptless_browser import ScriptlessBrowser


@pytest.mark.full
def test_bulk_actions_of_campaigns(browser_page: Page, api: Client) -> None:
    """Selected drafts are duplicated, deleted and restored; deleting a sent campaign asks first."""
    page = browser_page
    list_id = api.post("/lists", {"name": "Newsletter"}).expect(201)["id"]
    for number in range(8):
        api.post("/contacts", {"email": f"p{number}@example.com", "list_ids": [list_id]}).expect(201)
    for name in ("Bulk one", "Bulk two"):
        content = {"template_attributes": {"subject": name, "body": "<p>Hello</p>"},
                "trigger_attributes": {"contact_list_id": list_id}}  # fmt: skip
        api.post("/campaigns", {"name": name, **content}).expect(201)
    page.goto("/campaigns?search=Bulk")
    page.get_by_label("Select Bulk one").check()
    page.get_by_label("Select Bulk two").check()
    page.get_by_role("group", name="Bulk actions").get_by_role("button", name="Duplicate").click()
    expect(page.get_by_text("2 copies created as drafts.")).to_be_visible()
    page.goto("/campaigns?search=Bulk")
    expect(page.locator("tbody tr")).to_have_count(4)
    page.get_by_label("Select all rows").check()
    page.get_by_role("group", name="Bulk actions").get_by_role("button", name="Delete").click()
    expect(page.get_by_text("4 campaigns deleted.")).to_be_visible()
    page.locator(".toast").get_by_role("button", name="Undo").click()
    expect(page.get_by_text("4 campaigns restored.")).to_be_visible()
    assert len(api.get("/campaigns?search=Bulk").json) == 4
    campaign_id = api.get("/campaigns", search="Bulk one").json[-1]["id"]
    api.post(f"/campaigns/{campaign_id}/send").expect(200)
    api.wait("/campaigns", bool, search="Bulk one", phase="completed")
    page.goto("/campaigns?search=Bulk&phase=completed")
    page.get_by_role("button", name="More actions for Bulk one").click()
    page.get_by_role("button", name="Resend to non-openers").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Bulk one (resend)")
    expect(page.locator("#card-to summary")).to_contain_text("narrowed to Did not open Bulk one · 8 contacts")
    page.goto("/campaigns?search=Bulk&phase=completed")
    page.get_by_role("button", name="More actions for Bulk one").click()
    page.locator(".menu:popover-open").get_by_role("button", name="Delete").click()
    expect(page.get_by_role("dialog")).to_contain_text("Delete “Bulk one”?")
    page.get_by_role("dialog").get_by_role("link", name="Cancel").click()
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_a_campaign_to_a_list_or_a_segment(user: ScriptlessBrowser, api: Client) -> None:
    """The page of a list or segment leads to a new email that goes to it."""
    list_id = api.post("/lists", {"name": "Candle club"}).expect(201)["id"]
    api.post("/contacts", {"email": "wick@example.com", "opt_in": True, "list_ids": [list_id]}).expect(201)
    rules = [{"name": "contact_email", "predicate": "eq", "value": "wick@example.com"}]
    segment_id = api.post("/segments", {"name": "Wicks", "filters": rules}).expect(201)["id"]
    for path, name in ((f"/lists/{list_id}", "Candle club"), (f"/segments/{segment_id}", "Wicks")):
        page = HtmlPage(user, path).follow("New email")
        assert page.has("#campaign", name)
        assert page.press("Create campaign").has("#card-to summary", f"{name} · 1 contact")
