"""The suppression list pages: searching, adding and lifting suppressions."""

import re

from playwright.sync_api import Page, expect

from tests.api.test_threats_pages import Visitor
from tests.kit.client import Client
from tests.kit.server import PASSWORD, Server


def test_adding_and_lifting_a_suppression(browser_page: Page, api: Client) -> None:
    """An address is suppressed with a note, found by a part of it, and lifted with a reason."""
    page = browser_page
    contact = api.post("/contacts", {"email": "never@example.org", "first_name": "Nora"}).expect(201)
    page.goto("/contacts")
    page.get_by_role("link", name="Suppression list").click()
    expect(page.get_by_role("heading", name="No suppressed addresses")).to_be_visible()

    page.get_by_role("link", name="Add address").first.click()
    page.get_by_label("Email or phone").fill("no address")
    page.get_by_label("Note").fill("Asked on the phone, 3 May")
    page.get_by_role("button", name="Suppress address").click()
    expect(page.locator("#f-address-err")).to_be_visible()
    page.get_by_label("Email or phone").fill("Never@example.org")
    page.get_by_role("button", name="Suppress address").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Never@example.org")
    expect(page.get_by_text("Subscribed", exact=True)).to_be_visible()
    expect(page.get_by_text("Added to the suppression list")).to_be_visible()
    assert api.get(f"/contacts/{contact['id']}").expect(200)["channels"][0]["suppression_reason"] == "manual"

    for number in range(8):
        reason = ("hard_bounce", "complaint", "soft_bounce")[number % 3]
        body = {"address": f"p{number}@example.net", "reason": reason, "diagnostic": "550 5.1.1 no such user here"}
        api.post("/suppressions", body).expect(201)
    page.goto("/contacts/suppressions")
    expect(page.get_by_role("row")).to_have_count(10)
    page.get_by_role("link", name="Spam complaint").click()
    expect(page.get_by_role("row")).to_have_count(4)
    page.get_by_role("link", name="All 9").click()
    page.get_by_label("Search addresses").fill("ever@EXAM")
    expect(page.get_by_role("row")).to_have_count(2)
    page.get_by_role("link", name="Never@example.org").click()
    page.get_by_label("Reason").fill(" ")
    page.get_by_role("button", name="Remove from list").click()
    expect(page.locator("#f-reason-err")).to_be_visible()
    page.get_by_label("Reason").fill("They wrote to us")
    page.get_by_role("button", name="Remove from list").click()
    expect(page).to_have_url(re.compile("/contacts/suppressions$"))
    expect(
        page.get_by_text("Removed from the suppression list. Messages are sent to this address again.")
    ).to_be_visible()
    [lifted, *_] = api.get(f"/contacts/{contact['id']}/consents").expect(200)
    assert (lifted["act"], lifted["source"]) == ("lifted", "ui")
    assert lifted["data"] == {"reason": "manual", "note": "They wrote to us"}


def test_temporary_and_erased_suppressions(browser_page: Page, api: Client) -> None:
    """A manual suppression may expire; an erased address is not shown, but found by search."""
    page = browser_page
    page.goto("/contacts/suppressions/new")
    page.get_by_label("Email or phone").fill("holiday@example.org")
    page.get_by_label("Expires").fill("2001-01-01")
    page.get_by_role("button", name="Suppress address").click()
    expect(page.locator("#f-until-err")).to_be_visible()
    page.get_by_label("Expires").fill("2199-12-31")
    page.get_by_role("button", name="Suppress address").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("holiday@example.org")
    [row] = api.get("/suppressions", address="holiday@example.org").expect(200)
    assert row["expires_at"].startswith("2199-12-31")

    erased = api.post("/contacts", {"email": "forget@example.org"}).expect(201)
    api.delete(f"/contacts/{erased['id']}", erase="true").expect(200)
    page.goto("/contacts/suppressions?search=forget@example.org")
    page.get_by_role("link", name="Deleted address").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Deleted address")
    expect(page.get_by_text("The contact stays unsubscribed until they subscribe again.")).to_be_visible()
    page.goto("/contacts/suppressions?search=nobody-at-all")
    expect(page.get_by_role("heading", name="No results for “nobody-at-all”")).to_be_visible()


def test_a_viewer_cannot_lift_a_suppression(api: Client, server: Server) -> None:
    """A viewer sees the reason, has no form, and gets a 403."""
    suppression_id = api.post("/suppressions", {"address": "watched@example.org"}).expect(201)["id"]
    server.cli("user", "add", "--email", "viewer@example.org", "--role", "viewer", stdin=f"{PASSWORD}\n")
    viewer = Visitor(server, "viewer@example.org")
    response = viewer.send("GET", f"/contacts/suppressions/{suppression_id}")
    assert response.status == 200 and "Remove from suppression list" not in response.text
    for path in ("/contacts/suppressions", f"/contacts/suppressions/{suppression_id}/lift"):
        assert viewer.send("POST", path, {"address": "a@example.org", "reason": "manual"}).status == 403
    assert api.get("/suppressions", address="watched@example.org").expect(200)[0]["id"] == suppression_id
