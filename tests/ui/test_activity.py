"""The activity page: filters by kind, contact and day, and exports."""

import csv
import io
import json
import re
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.kit import axe
from tests.kit.browser import new_scriptless_context, save_screenshot, sign_in
from tests.kit.client import Client
from tests.kit.readers import Reader
from tests.kit.server import Server
from tests.kit.uploads import upload, wait_for_import


@pytest.fixture(scope="module", autouse=True)
def events(server: Server, api: Client) -> None:
    """Two contacts with the same name, an event with hostile data, and a test event."""
    api.post("/lists", {"name": "Newsletter"}).expect(201)
    for number in (1, 2):
        body = {"first_name": "Anna", "last_name": f"Kurz{number}", "email": f"a{number}@example.org", "list_ids": [1]}
        api.post("/contacts", body).expect(201)
    order_paid = {"event": "order_paid", "contact_id": 1, "amount": 42.5, "data": {"items": "<b>x</b>", "verdict": [1]}}
    api.post("/events", order_paid).expect(201)
    api.post("/events", {"event": "table_booked", "contact_id": 2, "test": True}).expect(201)


def test_activity_filters(browser_page: Page) -> None:
    """Events are filtered by kind, by contact (chosen among several matches), by days, and with or without tests."""
    page = browser_page
    page.goto("/activity")
    rows = page.locator("#rows .timeline li:has(.ic)")
    expect(rows.first).to_contain_text("Order paid")
    rows.first.get_by_text("Details").click()
    expect(rows.first).to_contain_text("<b>x</b>")
    assert axe.find_violations_in_light_and_dark(page) == []
    page.get_by_label("Include test events").check()
    expect(rows.first).to_contain_text("Table booked")
    page.get_by_label("Event type").select_option("order_paid")
    expect(rows).to_have_count(1)
    expect(page).to_have_url(re.compile("event=order_paid.*tests=yes"))
    page.get_by_label("Event type").select_option("")
    page.get_by_role("searchbox", name="Contact").fill("kurz")
    page.get_by_role("searchbox", name="Contact").press("Enter")
    page.locator(".which").get_by_role("link", name="Anna Kurz1").click()
    expect(page.get_by_role("link", name="Remove the filter: Anna Kurz1")).to_be_visible()
    expect(rows.filter(has_not_text="Anna Kurz1")).to_have_count(0)
    page.get_by_label("From", exact=True).fill("2020-01-01")
    page.get_by_label("to", exact=True).fill("2020-01-02")
    expect(page.get_by_text("No matching events")).to_be_visible()
    export = page.locator("#export")
    expect(export).to_have_attribute(
        "href", re.compile("contact_id=1&created_after=2020-01-01&created_before=2020-01-03")
    )
    expect(export).to_be_hidden()  # there is nothing to export


def test_an_export_has_the_filters_of_the_page(browser_page: Page) -> None:
    """The export has the page's filters, shows its count, and stops polling at its end."""
    page = browser_page
    page.goto("/activity?event=order_paid")
    page.get_by_role("link", name="Export").click()
    expect(page.locator(".stat")).to_contain_text("1 event")
    assert axe.find_violations_in_light_and_dark(page) == []
    page.get_by_role("link", name="Remove the filter: Order paid").click()
    expect(page.locator(".stat")).not_to_contain_text("1 event")
    page.go_back()
    page.get_by_label("JSON Lines").check()
    with page.expect_download() as coming:
        page.get_by_role("button", name="Download").click()
    [line] = Path(coming.value.path()).read_text().splitlines()
    assert json.loads(line)["event"] == "order_paid" and coming.value.suggested_filename == "events.jsonl"
    expect(page.locator("#progress")).to_contain_text("The file is complete: 1 event.")
    assert page.locator("#progress").get_attribute("hx-trigger") is None


def test_a_contact_export_has_the_filters_of_the_table(browser_page: Page) -> None:
    """Search, chips and rules of the table select the exported contacts."""
    page = browser_page
    rules = json.dumps([{"name": "contact_last_name", "predicate": "eq", "value": "Kurz2"}])
    page.goto("/contacts?" + urlencode({"show": "subscribed", "filters": rules}))
    page.get_by_role("link", name="Export these contacts").click()
    expect(page.locator(".stat")).to_contain_text("1 contact")
    chips = page.get_by_role("group", name="Filters")
    expect(chips).to_contain_text("Subscribed")
    expect(chips).to_contain_text("Kurz2")
    page.get_by_label("JSON Lines").check()
    with page.expect_download() as coming:
        page.get_by_role("button", name="Download").click()
    [line] = Path(coming.value.path()).read_text().splitlines()
    assert json.loads(line)["last_name"] == "Kurz2"
    chips.get_by_role("link").last.click()
    expect(page.locator(".stat")).to_contain_text("2 contacts")


def test_a_contact_export_without_javascript(browser: Browser, server: Server) -> None:
    """A form downloads the contacts of a list as CSV with a byte order mark; invalid filters are rejected."""
    context = new_scriptless_context(browser, server.url)
    page = sign_in(context.new_page())
    page.goto("/exports/contacts?list_id=1&search=kurz2&page=3")
    with page.expect_download() as coming:
        page.get_by_role("button", name="Download").click()
    content = Path(coming.value.path()).read_bytes()
    assert content.startswith(b"\xef\xbb\xbf")
    [row] = csv.DictReader(io.StringIO(content.decode("utf-8-sig"), newline=""))
    assert (row["email"], row["lists"]) == ("a2@example.org", '["Newsletter"]')
    for path, status in (
        ("/exports/contacts?serach=kurz", 422), ("/exports/contacts/file?serach=kurz", 422), ("/exports/secrets", 404),
        ("/exports/contacts/file?format=exe", 404), ("/exports/contacts?list_id=99", 422),
        ("/exports/events?created_after=soon", 422), ("/exports/contacts?show=nobody", 422),
        ("/exports/contacts?filters=%5B%7B%7D%5D", 422), ("/exports/contacts/file?filters=x", 422),
    ):  # fmt: skip
        assert page.request.get(path).status == status, path
    context.close()


def test_the_replies_page_says_where_email_replies_go(browser_page: Page, api: Client) -> None:
    """The page has replies by SMS; those to emails go to the reply address, and a simulated one is linked."""
    page = browser_page
    api.patch("/account", {"email_reply_to": "laden@bakery.example"}).expect(200)
    page.goto("/activity/answers")
    note = page.locator(".banner", has_text="Email replies")
    expect(note).to_contain_text("laden@bakery.example")
    expect(note).not_to_contain_text("simulated")
    expect(page.get_by_text("No SMS replies yet")).to_be_visible()
    sent = api.post("/messages", {"to": "a1@example.org", "subject": "Receipt", "body": "<p>Thanks</p>"}).expect(201)
    captured = api.wait("/capture", bool, message_id=sent["id"])[0]["id"]
    api.post(f"/capture/{captured}/simulate", {"action": "reply"}).expect(200)
    page.reload()
    note.get_by_role("link", name="View 1 simulated email reply").click()
    expect(page.locator("#rows")).to_contain_text("Replied")


def test_home_marks_clicks_by_machines(browser_page: Page, server: Server, api: Client) -> None:
    """A click by a machine carries the same mark on Home as in Activity, and messages sent are explained."""
    link = '<p><a href="https://example.com/a">Bread</a></p>'
    content = {"subject": "Letter", "body": link}
    campaign = api.post("/campaigns", {"name": "Scanned", "template_attributes": content}).expect(201)["id"]
    api.post(f"/campaigns/{campaign}/send", {"trigger_attributes": {"contact_list_id": 1}}).expect(200)
    api.wait(f"/campaigns/{campaign}", lambda row: row["status"] == "completed")
    captured = api.get("/capture", limit=100).expect(200)
    source = next(row for row in captured if row["subject"] == "Letter")
    text = api.get(f"/capture/{source['id']}").expect(200)["html"]
    path = urlsplit(re.findall(r'href="([^"]+)"[^>]*>Bread', text)[0]).path
    Reader(server).get(path, "HEAD")
    api.wait("/events", bool, event="email_clicked")
    for path in ("/activity", "/"):
        browser_page.goto(path)
        row = browser_page.locator(".timeline li", has_text="Clicked a link").first
        expect(row).to_contain_text("automated")
    stat = browser_page.locator("dl.stat", has_text="Messages sent")
    expect(stat).to_contain_text("campaigns, flows, confirmation emails and transactional messages")


def test_imports_and_bulk_actions_are_one_line(browser_page: Page, api: Client) -> None:
    """The events of an import or bulk action are one line, which leads to them and to the import."""
    page = browser_page
    numbers = [*range(60), 7]  # a row that repeats a contact of the file updates none
    file = "\n".join(["email", *(f"import{number}@example.org" for number in numbers)])
    wait_for_import(api, upload(api, file, "customers.csv", list_ids=[1], opt_in=True))
    page.goto("/contacts?search=import1")
    page.get_by_label("Select all rows").check()
    page.get_by_role("button", name="Tag", exact=True).click()
    page.locator("#tag-name").fill("vip")
    page.get_by_role("button", name="Add tag").click()
    expect(page.locator(".toast")).to_contain_text("Tag vip added to 11 contacts.")
    page.goto("/activity")
    rows = page.locator("#rows .timeline li:has(.ic)")
    expect(rows.filter(has_text="Import customers.csv: 60 contacts added by")).to_have_count(1)
    expect(rows.filter(has_text="customers.csv")).not_to_contain_text("updated")
    expect(rows.first).to_contain_text("Tag vip added to 11 contacts.")
    expect(rows.filter(has_text="import1")).to_have_count(0)
    assert axe.find_violations_in_light_and_dark(page) == []
    page.goto("/")
    expect(page.get_by_text("Import customers.csv: 60 contacts added by")).to_be_visible()
    page.goto("/activity")
    rows.filter(has_text="customers.csv").get_by_role("link", name="Show events").click()
    expect(page.locator(".pager")).to_contain_text("of 120")
    page.get_by_role("link", name="Remove the filter: Import").click()
    page.get_by_role("link", name="Import customers.csv").click()
    expect(page).to_have_url(re.compile(r"/contacts/imports/\d+$"))
    page.goto("/activity?event=contact_add")
    expect(page.locator(".pager")).to_contain_text("of 62")


def test_skipped_contacts_of_a_campaign_are_one_line(browser_page: Page, api: Client) -> None:
    """The line of the campaign's start has their number and reasons, and leads to the list of them."""
    page = browser_page
    list_id = api.post("/lists", {"name": "Guests"}).expect(201)["id"]
    for number in range(5):
        contact = {"email": f"guest{number}@example.org", "list_ids": [list_id], "opt_in": number == 0}
        api.post("/contacts", contact).expect(201)
    content = {"subject": "Menu", "body": "<p>Soup</p>"}
    campaign = api.post("/campaigns", {"name": "Spring menu", "template_attributes": content}).expect(201)["id"]
    api.post(f"/campaigns/{campaign}/send", {"trigger_attributes": {"contact_list_id": list_id}}).expect(200)
    api.wait(f"/campaigns/{campaign}", lambda row: row["status"] == "completed")
    page.goto("/activity")
    rows = page.locator("#rows .timeline li:has(.ic)")
    line = rows.filter(has_text="Campaign Spring menu started")
    expect(line).to_contain_text("4 contacts skipped: not subscribed")
    expect(rows.filter(has_text="Email skipped")).to_have_count(0)
    assert axe.find_violations_in_light_and_dark(page) == []
    page.goto("/")
    expect(page.get_by_text("4 contacts skipped: not subscribed")).to_be_visible()
    page.goto("/activity?event=email_skipped")
    expect(rows).to_have_count(4)
    page.goto("/activity")
    save_screenshot(page, "activity-skipped")
    line.get_by_role("link", name="Show skipped contacts").click()
    expect(page).to_have_url(re.compile(rf"/campaigns/{campaign}/people\?status=skipped$"))
    expect(page.locator("tbody tr")).to_have_count(4)


def test_events_name_their_email_and_channel(browser_page: Page, api: Client) -> None:
    """A sent email is named by its subject if no campaign names it; a subscription names its channel."""
    page = browser_page
    contact = {"email": "cara@example.org", "phone": "+4915112345678", "opt_in": True}
    contact["subscribed_phone"] = contact["subscribed_email"] = True
    api.post("/contacts", contact).expect(201)
    receipt = {"to": "cara@example.org", "subject": "Your table on Friday", "body": "<p>See you</p>"}
    message = api.post("/messages", receipt).expect(201)["id"]
    api.wait("/events", bool, event="email_sent", resource_uid=f"message:{message}")
    page.goto("/activity?who=cara@example.org")
    rows = page.locator("#rows .timeline li:has(.ic)")
    expect(rows.filter(has_text=re.compile("Subscribed · Email"))).to_have_count(1)
    expect(rows.filter(has_text=re.compile("Subscribed · SMS"))).to_have_count(1)
    sent = rows.filter(has_text="Email sent")
    expect(sent).to_contain_text("Your table on Friday")
    sent.get_by_role("link", name="Your table on Friday").click()
    expect(page).to_have_url(re.compile(rf"/outbox/{message}$"))
    page.goto("/activity?who=cara@example.org")
    sent.get_by_role("link").first.click()
    expect(page.locator(".timeline li", has_text="Email sent")).to_contain_text("Your table on Friday")
