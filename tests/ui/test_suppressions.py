"""The pages of addresses that get no mail: looked up, added and lifted, with the evidence in sight."""

import re

from playwright.sync_api import Page, expect

from tests.api.test_threats_pages import Visitor
from tests.kit.client import Client
from tests.kit.server import PASSWORD, Server


def test_added_found_and_lifted(browser_page: Page, api: Client) -> None:
    """From the empty list: an address is added with a note, found by a part of it, and lifted for a reason."""
    page = browser_page
    person = api.post("/contacts", {"email": "never@example.org", "first_name": "Nora"}).expect(201)
    page.goto("/contacts")
    page.get_by_role("link", name="Do not send").click()
    expect(page.get_by_role("heading", name="Nobody is on this list")).to_be_visible()

    page.get_by_role("link", name="Add address").first.click()
    page.get_by_label("Email or phone").fill("no address")
    page.get_by_label("Note").fill("Asked on the phone, 3 May")
    page.get_by_role("button", name="Keep from getting mail").click()
    expect(page.locator("#f-address-err")).to_be_visible()
    page.get_by_label("Email or phone").fill("Never@example.org")
    page.get_by_role("button", name="Keep from getting mail").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Never@example.org")
    expect(page.get_by_text("Agreed to receive messages")).to_be_visible()
    expect(page.get_by_text("Put on this list")).to_be_visible()
    assert api.get(f"/contacts/{person['id']}").expect(200)["channels"][0]["suppression_reason"] == "manual"

    for number in range(8):
        reason = ("hard_bounce", "complaint", "soft_bounce")[number % 3]
        body = {"address": f"p{number}@example.net", "reason": reason, "diagnostic": "550 5.1.1 no such user here"}
        api.post("/suppressions", body).expect(201)
    page.goto("/contacts/suppressions")
    expect(page.get_by_role("row")).to_have_count(10)
    page.get_by_role("link", name="Called it spam").click()
    expect(page.get_by_role("row")).to_have_count(4)
    page.get_by_role("link", name="All 9").click()
    page.get_by_label("Search addresses").fill("ever@EXAM")
    expect(page.get_by_role("row")).to_have_count(2)
    page.get_by_role("link", name="Never@example.org").click()
    page.get_by_label("Why").fill(" ")
    page.get_by_role("button", name="Lift").click()
    expect(page.locator("#f-reason-err")).to_be_visible()
    page.get_by_label("Why").fill("They wrote to us")
    page.get_by_role("button", name="Lift").click()
    expect(page).to_have_url(re.compile("/contacts/suppressions$"))
    expect(page.get_by_text("Lifted. This address may get mail again.")).to_be_visible()
    [lifted, *_] = api.get(f"/contacts/{person['id']}/consents").expect(200)
    assert (lifted["act"], lifted["source"]) == ("lifted", "ui")
    assert lifted["data"] == {"reason": "manual", "note": "They wrote to us"}


def test_an_end_and_an_erased_one(browser_page: Page, api: Client) -> None:
    """A block by hand may end at a day; an erased address shows no address and is found by it."""
    page = browser_page
    page.goto("/contacts/suppressions/new")
    page.get_by_label("Email or phone").fill("holiday@example.org")
    page.get_by_label("Until").fill("2001-01-01")
    page.get_by_role("button", name="Keep from getting mail").click()
    expect(page.locator("#f-until-err")).to_be_visible()
    page.get_by_label("Until").fill("2199-12-31")
    page.get_by_role("button", name="Keep from getting mail").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("holiday@example.org")
    [row] = api.get("/suppressions", address="holiday@example.org").expect(200)
    assert row["expires_at"].startswith("2199-12-31")

    gone = api.post("/contacts", {"email": "forget@example.org"}).expect(201)
    api.delete(f"/contacts/{gone['id']}", erase="true").expect(200)
    page.goto("/contacts/suppressions?search=forget@example.org")
    page.get_by_role("link", name="Erased address").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Erased address")
    expect(page.get_by_text("They stay unsubscribed until they agree anew.")).to_be_visible()
    page.goto("/contacts/suppressions?search=nobody-at-all")
    expect(page.get_by_role("heading", name="No address matches")).to_be_visible()


def test_who_may_only_look(api: Client, server: Server) -> None:
    """A viewer sees why, and has nothing to lift it with."""
    made = api.post("/suppressions", {"address": "watched@example.org"}).expect(201)["id"]
    server.cli("user", "add", "--email", "viewer@example.org", "--role", "viewer", stdin=f"{PASSWORD}\n")
    viewer = Visitor(server, "viewer@example.org")
    shown = viewer.send("GET", f"/contacts/suppressions/{made}")
    assert shown.status == 200 and "Lift it" not in shown.text
    for path in ("/contacts/suppressions", f"/contacts/suppressions/{made}/lift"):
        assert viewer.send("POST", path, {"address": "a@example.org", "reason": "manual"}).status == 403
    assert api.get("/suppressions", address="watched@example.org").expect(200)[0]["id"] == made
