"""The table of contacts in a browser: search, sorting, selection and bulk actions."""

import json
import re
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Page, expect

from tests.kit import axe
from tests.kit.client import Client
from tests.kit.html_page import HtmlPage, text_of
from tests.kit.scriptless_browser import ScriptlessBrowser
from tests.kit.server import Server
from tests.kit.uploads import upload, wait_for_import

CONTACTS = 620


@pytest.fixture(scope="module", autouse=True)
def sample_contacts(server: Server, api: Client) -> None:
    """61 contacts, every other one subscribed, and two lists."""
    for name in ("Newsletter", "Workshop"):
        api.post("/lists", {"name": name}).expect(201)
    for number in range(61):
        fields = {"first_name": f"Person {number:02}", "email": f"p{number}@example.com", "opt_in": number % 2 == 0}
        api.post("/contacts", fields).expect(201)


def rows(page: Page) -> list[str]:
    """Return the names in the table."""
    return page.locator("tbody a.name").all_inner_texts()


def test_selecting_all_matching_contacts(page: Page, api: Client) -> None:
    """Selecting all that match acts on all contacts of the filter, and undo reverts it."""
    page.goto("/contacts?show=subscribed&limit=25")
    page.get_by_label("Select all rows on this page").check()
    expect(page.locator(".bulk .count")).to_have_text("25 selected")
    page.get_by_label("All 31 that match").check()
    expect(page.locator(".bulk .count")).to_have_text("31 selected")
    page.get_by_role("button", name="Add to list").click()
    page.locator("#to-list").get_by_role("button", name="Workshop").click()
    expect(page.locator(".toast")).to_contain_text("31 contacts added to “Workshop”.")
    assert len(api.all("/contacts", list_id=2)) == 31
    assert all(contact["subscribed_email"] for contact in api.all("/contacts", list_id=2))
    page.get_by_role("button", name="Undo").click()
    expect(page.locator(".toast")).to_contain_text("31 contacts removed from “Workshop”.")
    assert api.get("/lists/2").json["contacts_count"] == 0


@pytest.mark.full
def test_selecting_ranges_and_by_keys(page: Page) -> None:
    """Shift selects a range, j, k and x work, Escape clears; contacts that had the tag are reported as skipped."""
    page.goto("/contacts?limit=50&sort=name")
    boxes = page.locator("td.choose input")
    boxes.nth(1).click()
    boxes.nth(4).click(modifiers=["Shift"])
    expect(page.locator(".bulk .count")).to_have_text("4 selected")
    page.keyboard.press("Escape")
    expect(page.locator(".bulk")).to_be_hidden()
    page.locator("h1").click()
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("x")
    page.keyboard.press("j")
    page.keyboard.press("Shift+X")
    expect(page.locator(".bulk .count")).to_have_text("2 selected")
    for expected in ("Tag “vip” added to 2 contacts.", "Tag “vip” added to 1 contact. 2 skipped: already tagged."):
        page.get_by_role("button", name="Tag", exact=True).click()
        page.get_by_label("Tag", exact=True).fill("vip")
        page.get_by_label("Tag", exact=True).press("Enter")
        expect(page.locator(".toast")).to_contain_text(expected)
        for number in range(3):
            boxes.nth(number).check()
    page.goto("/contacts?tag=vip")
    assert len(rows(page)) == 3
    page.get_by_role("link", name="Remove the filter: Tag: vip").click()
    expect(page.get_by_role("status").first).to_contain_text("of 61")


def test_sorting_and_table_options(page: Page) -> None:
    """Headings sort in both directions; page size and density are remembered."""
    page.goto("/contacts")
    page.get_by_role("link", name="Contact", exact=True).click()
    expect(page.locator("th[aria-sort=ascending]")).to_contain_text("Contact")
    names = rows(page)
    assert len(names) > 1 and names == sorted(names)
    page.get_by_role("link", name="Contact", exact=True).click()
    expect(page.locator("th[aria-sort=descending]")).to_contain_text("Contact")
    page.get_by_role("button", name="Sorting and display").click()
    page.get_by_role("link", name="25", exact=True).click()
    page.get_by_role("button", name="Sorting and display").click()
    page.get_by_role("link", name="Compact").click()
    page.goto("/contacts")
    expect(page.locator("tbody tr")).to_have_count(25)
    assert page.locator("tbody tr").first.evaluate("row => row.offsetHeight") <= 42
    page.goto("/contacts?density=roomy&limit=50")
    assert page.locator("tbody tr").first.evaluate("row => row.offsetHeight") == 56


@pytest.mark.full
def test_a_search_without_matches(page: Page) -> None:
    """Without a match the table says so and offers to add the contact; result counts are announced."""
    page.goto("/contacts")
    page.get_by_label("Search contacts").press_sequentially("person 0")
    expect(page.locator(".pager [role=status]")).to_have_text("10 contacts")
    expect(page.get_by_label("Search contacts")).to_be_focused()
    page.get_by_label("Search contacts").fill("anna k")
    expect(page.locator("#rows")).to_contain_text("No results for “anna k”")
    page.get_by_role("link", name="Add “anna k”").click()
    expect(page.get_by_label("First name")).to_have_value("anna k")


def test_deleting_contacts_asks_with_their_number(page: Page, api: Client) -> None:
    """Deleting asks with the number, the safe choice focused; if the number has changed it asks again."""
    for number in range(3):
        api.post("/contacts", {"first_name": "Gone", "email": f"gone{number}@example.com"}).expect(201)
    page.goto("/contacts?search=gone&sort=name")
    for number in range(3):
        page.locator("td.choose input").nth(number).check()
    page.get_by_role("button", name="Delete", exact=True).click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Delete 3 contacts?")
    expect(dialog.get_by_role("link", name="Cancel")).to_be_focused()
    last = api.all("/contacts", search="gone")[0]["id"]
    api.delete(f"/contacts/{last}").expect(200)
    dialog.get_by_role("button", name="Delete 3 contacts").click()
    expect(dialog).to_contain_text("The selection now has 2 contacts.")
    dialog.get_by_role("button", name="Delete 2 contacts").click()
    expect(page.locator(".toast")).to_contain_text("2 contacts deleted.")
    assert api.all("/contacts", search="gone") == []


def test_a_large_bulk_action_runs_as_a_job(page: Page, api: Client) -> None:
    """Over 500 contacts are changed by a job, whose toast stays across pages and ends with the result."""
    file = "\n".join(["email", *(f"crowd{number}@example.com" for number in range(CONTACTS - 61))])
    wait_for_import(api, upload(api, file))
    page.goto("/contacts")
    page.locator("td.choose input").first.check()
    page.get_by_label(re.compile("^All ")).check()
    page.get_by_role("button", name="Tag", exact=True).click()
    page.get_by_label("Tag", exact=True).fill("crowd")
    page.get_by_role("button", name="Add tag").click()
    page.goto("/lists")
    expect(page.locator(".toast")).to_contain_text(re.compile("Tag “crowd” added to"), timeout=20_000)
    expect(page.locator(".toast progress")).to_have_count(0)
    assert len(api.all("/contacts", tag="crowd")) == api.get("/account").json["counts"]["contacts"]


def test_the_table_without_javascript(user: ScriptlessBrowser, api: Client) -> None:
    """Search, filters, sorting, selection and deletion work with plain links and forms."""
    page = HtmlPage(user, "/contacts").follow("Not subscribed")
    page = page.follow(page.one("thead a", "Contact"))
    page.check("Select Person 01")
    page = page.press("Delete")
    assert page.texts("form.dialog-body h2") == ["Delete 1 contact?"]
    page = page.press("Delete 1 contact")
    assert page.has(".toast", "1 contact deleted.")
    assert api.all("/contacts", search="Person 01") == []


def test_selected_rows_are_accessible(page: Page) -> None:
    """axe finds no faults while rows are selected, in either theme."""
    page.goto("/contacts")
    page.locator("td.choose input").first.check()
    assert axe.find_violations_in_light_and_dark(page) == []


def test_filtering_the_table_by_rules(user: ScriptlessBrowser, api: Client) -> None:
    """Rules filter the table, are shown as a sentence, and can be saved as a segment."""
    page = HtmlPage(user, "/contacts?show=subscribed")
    assert page.follow("Filter").path.startswith("/contacts/filter?show=subscribed")
    rule = [{"name": "contact_first_name", "predicate": "end", "value": "0"}]
    page = HtmlPage(user, "/contacts/filter?" + urlencode({"show": "subscribed", "filters": json.dumps(rule)}))
    assert "ends with" in text_of(page.one(".sentence"))
    page = page.press("Apply filter")
    assert page.has(".chip.on", "ends with")
    names = page.texts("tbody a.name")
    assert names and all(name.endswith("0") for name in names)
    page = page.follow("Filter")
    page.fill("Segment name", "Tens")
    page = page.press("Save as segment")
    assert page.has(".chip.on", "Segment: Tens")
    assert api.all("/segments")[0]["name"] == "Tens"
