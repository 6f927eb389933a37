"""The table of contacts in a browser: search, sorting, selection and bulk actions."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.kit import axe
from tests.kit.browser import Problems, new_page, new_scriptless_context, sign_in
from tests.kit.client import Client
from tests.kit.server import Server

CONTACTS = 620


@pytest.fixture(scope="module", autouse=True)
def sample_contacts(server: Server, api: Client) -> None:
    """61 contacts, every other one subscribed, and two lists."""
    for name in ("Newsletter", "Workshop"):
        api.post("/lists", {"name": name}).expect(201)
    for number in range(61):
        fields = {"first_name": f"Person {number:02}", "email": f"p{number}@example.com", "opt_in": number % 2 == 0}
        api.post("/contacts", fields).expect(201)


@pytest.fixture(scope="module")
def page(browser: Browser, server: Server) -> Iterator[Page]:
    """A page signed in as the owner; the module fails on any console error."""
    problems = Problems()
    opened = sign_in(new_page(browser, server.url, problems, width=1360))
    yield opened
    opened.context.close()
    assert not problems.found


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
    expect(page.locator(".toast")).to_contain_text("31 contacts added to Workshop.")
    assert len(api.all("/contacts", list_id=2)) == 31
    assert all(contact["subscribed_email"] for contact in api.all("/contacts", list_id=2))
    page.get_by_role("button", name="Undo").click()
    expect(page.locator(".toast")).to_contain_text("31 contacts removed from Workshop.")
    assert api.get("/lists/2").json["contacts_count"] == 0


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
    for expected in ("Tag vip added to 2 contacts.", "Tag vip added to 1 contact. 2 skipped: already tagged."):
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
    for number in range(CONTACTS - 61):
        api.post("/contacts", {"email": f"crowd{number}@example.com"}).expect(201)
    page.goto("/contacts")
    page.locator("td.choose input").first.check()
    page.get_by_label(re.compile("^All ")).check()
    page.get_by_role("button", name="Tag", exact=True).click()
    page.get_by_label("Tag", exact=True).fill("crowd")
    page.get_by_role("button", name="Add tag").click()
    page.goto("/lists")
    expect(page.locator(".toast")).to_contain_text(re.compile("Tag crowd added to"), timeout=20_000)
    expect(page.locator(".toast progress")).to_have_count(0)
    assert len(api.all("/contacts", tag="crowd")) == api.get("/account").json["counts"]["contacts"]


def test_the_table_without_javascript(browser: Browser, server: Server, api: Client) -> None:
    """Search, filters, sorting, selection and deletion work with plain links and forms."""
    context = new_scriptless_context(browser, server.url)
    page = sign_in(context.new_page())
    page.goto("/contacts")
    page.get_by_role("link", name=re.compile("^Not subscribed")).click()
    page.get_by_role("link", name="Contact", exact=True).click()
    page.get_by_label("Select Person 01").check()
    page.get_by_role("button", name="Delete", exact=True).click()
    expect(page.locator("form.asks h2")).to_have_text("Delete 1 contact?")
    page.get_by_role("button", name="Delete 1 contact").click()
    expect(page.locator(".toast")).to_contain_text("1 contact deleted.")
    assert api.all("/contacts", search="Person 01") == []
    context.close()


def test_selected_rows_are_accessible(page: Page) -> None:
    """axe finds no faults while rows are selected, in either theme."""
    page.goto("/contacts")
    page.locator("td.choose input").first.check()
    assert axe.find_violations_in_light_and_dark(page) == []


def test_filtering_the_table_by_rules(page: Page, api: Client) -> None:
    """Rules filter the table, are shown as a sentence, and can be saved as a segment."""
    page.goto("/contacts?show=subscribed")
    page.get_by_role("link", name="Filter", exact=True).click()
    page.goto(
        "/contacts/filter?show=subscribed&filters="
        "%5B%7B%22name%22%3A%22contact_first_name%22%2C%22predicate%22%3A%22end%22%2C%22value%22%3A%220%22%7D%5D"
    )
    expect(page.locator(".sentence")).to_contain_text("ends with")
    page.get_by_role("button", name="Apply filter").last.click()
    expect(page.locator(".chip.on")).to_contain_text("ends with")
    assert all(name.endswith("0") for name in rows(page))
    page.get_by_role("link", name="Filter", exact=True).click()
    page.get_by_label("Segment name").fill("Tens")
    page.get_by_role("button", name="Save as segment").click()
    expect(page.locator(".chip.on")).to_contain_text("Segment: Tens")
    assert api.all("/segments")[0]["name"] == "Tens"


def test_the_tabs_show_each_contact_once(page: Page, api: Client) -> None:
    """Each contact is under one tab, whose number is that of its rows; a phone number counts if there is no email."""
    number = api.post("/contacts", {"email": "left@tabs.example"}).expect(201)["id"]
    api.patch(f"/contacts/{number}", {"subscribed_email": False}).expect(200)
    api.post("/contacts", {"email": "bounced@tabs.example"}).expect(201)
    api.post("/suppressions", {"address": "bounced@tabs.example", "channel": "email"}).expect(201)
    api.post("/contacts", {"first_name": "Texts", "phone": "+442079460018"}).expect(201)
    page.goto("/contacts?limit=100")
    tabs = page.get_by_role("navigation", name="Filter")
    numbers = {}
    for name in ("All", "Subscribed", "Unsubscribed", "Not subscribed", "Suppressed"):
        tab = tabs.get_by_role("link", name=re.compile(f"^{name}"))
        numbers[name] = int(tab.locator(".n").inner_text())
        tab.click()
        expect(tab).to_have_attribute("aria-current", "true")
        expect(page.locator("tbody tr")).to_have_count(min(numbers[name], 100))
        if name != "All":
            assert set(page.locator("tbody tr td .pill").all_inner_texts()) == {name}
    assert (numbers["Unsubscribed"], numbers["Suppressed"]) == (1, 1)
    assert numbers.pop("All") == sum(numbers.values())
    page.goto("/contacts?show=subscribed&search=Texts")
    expect(page.locator("tbody tr")).to_have_count(1)
    export = page.get_by_role("link", name="Export contacts").get_attribute("href")
    assert export is not None
    page.goto(export)
    expect(page.get_by_role("group", name="Filters")).to_contain_text("Subscribed")
