"""The activity page: filters by kind, contact and day, and exports."""

import csv
import io
import json
import re
from pathlib import Path
from urllib.parse import urlencode, urlsplit
from xml.etree.ElementTree import Element

import pytest
from playwright.sync_api import Page, expect

from tests.kit import axe
from tests.kit.browser import save_screenshot
from tests.kit.client import Client
from tests.kit.html_page import HtmlPage, select, text_of
from tests.kit.readers import Reader
from tests.kit.scriptless_browser import ScriptlessBrowser
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
    expect(rows.first).to_contain_text("Placed an order (paid)")
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
    page.get_by_role("link", name="Remove the filter: Placed an order (paid)").click()
    expect(page.locator(".stat")).not_to_contain_text("1 event")
    page.go_back()
    page.get_by_label("JSON Lines").check()
    with page.expect_download() as coming:
        page.get_by_role("button", name="Download").click()
    [line] = Path(coming.value.path()).read_text().splitlines()
    assert json.loads(line)["event"] == "order_paid" and coming.value.suggested_filename == "events.jsonl"
    expect(page.locator("#progress")).to_contain_text("The file is complete: 1 event.")
    assert page.locator("#progress").get_attribute("hx-trigger") is None


def test_a_contact_export_has_the_filters_of_the_table(user: ScriptlessBrowser) -> None:
    """Search, chips and rules of the table select the exported contacts."""
    rules = json.dumps([{"name": "contact_last_name", "predicate": "eq", "value": "Kurz2"}])
    page = HtmlPage(user, "/contacts?" + urlencode({"show": "subscribed", "filters": rules}))
    page = page.follow("Export these contacts")
    assert page.has(".stat", "1 contact")
    chips = page.one("[role=group][aria-label=Filters]")
    assert "Subscribed" in text_of(chips) and "Kurz2" in text_of(chips)
    page.check("JSON Lines")
    [line] = page.send("Download")[0].text.splitlines()
    assert json.loads(line)["last_name"] == "Kurz2"
    assert page.follow(select(chips, "a")[-1]).has(".stat", "2 contacts")


def test_a_contact_export_without_javascript(user: ScriptlessBrowser) -> None:
    """A form downloads the contacts of a list as CSV with a byte order mark; invalid filters are rejected."""
    content = HtmlPage(user, "/exports/contacts?list_id=1&search=kurz2&page=3").send("Download")[0].body
    assert content.startswith(b"\xef\xbb\xbf")
    [row] = csv.DictReader(io.StringIO(content.decode("utf-8-sig"), newline=""))
    assert (row["email"], row["lists"]) == ("a2@example.org", '["Newsletter"]')
    for path, status in (
        ("/exports/contacts?serach=kurz", 422), ("/exports/contacts/file?serach=kurz", 422), ("/exports/secrets", 404),
        ("/exports/contacts/file?format=exe", 404), ("/exports/contacts?list_id=99", 422),
        ("/exports/events?created_after=soon", 422), ("/exports/contacts?show=nobody", 422),
        ("/exports/contacts?filters=%5B%7B%7D%5D", 422), ("/exports/contacts/file?filters=x", 422),
    ):  # fmt: skip
        assert user.status("GET", path) == status, path


def test_the_replies_page_says_where_email_replies_go(user: ScriptlessBrowser, api: Client) -> None:
    """The page has replies by SMS; those to emails go to the reply address, and a simulated one is linked."""
    api.patch("/account", {"email_reply_to": "laden@bakery.example"}).expect(200)
    page = HtmlPage(user, "/activity/answers")
    note = text_of(page.one(".banner", "Email replies"))
    assert "laden@bakery.example" in note and "simulated" not in note
    assert "No SMS replies yet" in page.text
    sent = api.post("/messages", {"to": "a1@example.org", "subject": "Receipt", "body": "<p>Thanks</p>"}).expect(201)
    captured = api.wait("/capture", bool, message_id=sent["id"])[0]["id"]
    api.post(f"/capture/{captured}/simulate", {"action": "reply"}).expect(200)
    assert page.reload().follow("View 1 simulated email reply").has("#rows", "Replied")


def test_home_marks_clicks_by_machines(user: ScriptlessBrowser, server: Server, api: Client) -> None:
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
        page = HtmlPage(user, path)
        [row, *_] = page.all(".timeline li", "Clicked a link")
        assert "automated" in text_of(row), path
    stat = text_of(page.one("dl.stat", "Messages sent"))
    assert "campaigns, flows, confirmation emails and transactional messages" in stat


def lines_of(page: HtmlPage, text: str = "") -> list[Element]:
    """Return the lines of the activity that have an icon and contain a text."""
    return [line for line in page.all("#rows .timeline li", text) if select(line, ".ic")]


def test_imports_and_bulk_actions_are_one_line(user: ScriptlessBrowser, api: Client) -> None:
    """The events of an import or bulk action are one line, which leads to them and to the import."""
    numbers = [*range(60), 7]  # a row that repeats a contact of the file updates none
    file = "\n".join(["email", *(f"import{number}@example.org" for number in numbers)])
    wait_for_import(api, upload(api, file, "customers.csv", list_ids=[1], opt_in=True))
    page = HtmlPage(user, "/contacts?search=import1")
    for box in page.all("td.choose input"):
        box.set("checked", "")
    page.one("#tag-name").set("value", "vip")
    assert page.press("Add tag").has(".toast", "Tag “vip” added to 11 contacts.")
    page = HtmlPage(user, "/activity")
    [imported] = lines_of(page, "Import customers.csv: 60 contacts added by")
    assert lines_of(page, "customers.csv") == [imported] and "updated" not in text_of(imported)
    assert "Tag “vip” added to 11 contacts." in text_of(lines_of(page)[0])
    assert lines_of(page, "import1") == []
    assert "Import customers.csv: 60 contacts added by" in HtmlPage(user, "/").text
    [link] = [link for link in select(imported, "a") if text_of(link) == "Show events"]
    page = page.follow(link)
    assert page.has(".pager", "of 120")
    page = page.follow("Remove the filter: Import").follow("Import customers.csv")
    assert re.search(r"/contacts/imports/\d+$", page.path)
    assert HtmlPage(user, "/activity?event=contact_add").has(".pager", "of 62")


def test_skipped_contacts_of_a_campaign_are_one_line(
    browser_page: Page, user: ScriptlessBrowser, api: Client
) -> None:  # fmt: skip
    """The line of the campaign's start has their number and reasons, and leads to the list of them.

    It is as accessible as those of imports and bulk actions beside it.
    """
    list_id = api.post("/lists", {"name": "Guests"}).expect(201)["id"]
    for number in range(5):
        contact = {"email": f"guest{number}@example.org", "list_ids": [list_id], "opt_in": number == 0}
        api.post("/contacts", contact).expect(201)
    content = {"subject": "Menu", "body": "<p>Soup</p>"}
    campaign = api.post("/campaigns", {"name": "Spring menu", "template_attributes": content}).expect(201)["id"]
    api.post(f"/campaigns/{campaign}/send", {"trigger_attributes": {"contact_list_id": list_id}}).expect(200)
    api.wait(f"/campaigns/{campaign}", lambda row: row["status"] == "completed")
    wait_for_import(api, upload(api, "email\nlate1@example.org\nlate2@example.org\n", "late.csv"))
    page = HtmlPage(user, "/activity")
    [line] = lines_of(page, "Campaign “Spring menu” started")
    assert "4 contacts skipped: not subscribed" in text_of(line)
    assert lines_of(page, "Email skipped") == [] and len(lines_of(page, "Import late.csv")) == 1
    assert "4 contacts skipped: not subscribed" in HtmlPage(user, "/").text
    assert len(lines_of(HtmlPage(user, "/activity?event=email_skipped"))) == 4
    [link] = [link for link in select(line, "a") if text_of(link) == "Show skipped contacts"]
    skipped = page.follow(link)
    assert skipped.path == f"/campaigns/{campaign}/people?status=skipped"
    assert len(skipped.all("tbody tr")) == 4
    browser_page.goto("/activity")
    save_screenshot(browser_page, "activity-skipped")
    assert axe.find_violations_in_light_and_dark(browser_page) == []


def test_events_name_their_email_and_channel(user: ScriptlessBrowser, api: Client) -> None:
    """A sent email is named by its subject if no campaign names it; a subscription names its channel."""
    contact = {"email": "cara@example.org", "phone": "+4915112345678", "opt_in": True}
    contact["subscribed_phone"] = contact["subscribed_email"] = True
    api.post("/contacts", contact).expect(201)
    receipt = {"to": "cara@example.org", "subject": "Your table on Friday", "body": "<p>See you</p>"}
    message = api.post("/messages", receipt).expect(201)["id"]
    api.wait("/events", bool, event="email_sent", resource_uid=f"message:{message}")
    page = HtmlPage(user, "/activity?who=cara@example.org")
    assert len(lines_of(page, "Subscribed · Email")) == len(lines_of(page, "Subscribed · SMS")) == 1
    [sent] = lines_of(page, "Email sent")
    contact_link, subject = select(sent, "a")
    assert text_of(subject) == "Your table on Friday"
    assert page.follow(subject).path == f"/outbox/{message}"
    [sent] = page.follow(contact_link).all(".timeline li", "Email sent")
    assert "Your table on Friday" in text_of(sent)
