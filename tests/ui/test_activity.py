"""What happened, sifted by kind, person and day, and taken away as a file."""

import csv
import io
import json
import re
from pathlib import Path
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.kit import axe
from tests.kit.browser import sign_in
from tests.kit.client import Client
from tests.kit.server import Server


@pytest.fixture(scope="module", autouse=True)
def happened(server: Server, api: Client) -> None:
    """Two people of one name, an event of a client with hostile words in it, and a test."""
    api.post("/lists", {"name": "Newsletter"}).expect(201)
    for number in (1, 2):
        body = {"first_name": "Anna", "last_name": f"Kurz{number}", "email": f"a{number}@example.org", "list_ids": [1]}
        api.post("/contacts", body).expect(201)
    paid = {"event": "order_paid", "contact_id": 1, "amount": 42.5, "data": {"items": "<b>x</b>", "verdict": [1]}}
    api.post("/events", paid).expect(201)
    api.post("/events", {"event": "table_booked", "contact_id": 2, "test": True}).expect(201)


def test_the_stream_is_sifted(browser_page: Page) -> None:
    """A kind, a person who is asked about where several are meant, days, and tests only when they are wanted."""
    page = browser_page
    page.goto("/activity")
    rows = page.locator("#rows .timeline li:has(.ic)")
    expect(rows.first).to_contain_text("Order paid")
    rows.first.get_by_text("Details").click()
    expect(rows.first).to_contain_text("<b>x</b>")
    assert axe.faults_in_both_looks(page) == []
    page.get_by_label("With tests").check()
    expect(rows.first).to_contain_text("Table booked")
    page.get_by_label("Kind of event").select_option("order_paid")
    expect(rows).to_have_count(1)
    expect(page).to_have_url(re.compile("event=order_paid.*tests=yes"))
    page.get_by_label("Kind of event").select_option("")
    page.get_by_role("searchbox", name="Person").fill("kurz")
    page.get_by_role("searchbox", name="Person").press("Enter")
    page.locator(".which").get_by_role("link", name="Anna Kurz1").click()
    expect(page.get_by_role("link", name="Everybody, not only Anna Kurz1")).to_be_visible()
    expect(rows.filter(has_not_text="Anna Kurz1")).to_have_count(0)
    page.get_by_label("From", exact=True).fill("2020-01-01")
    page.get_by_label("to", exact=True).fill("2020-01-02")
    expect(page.get_by_text("None of these yet")).to_be_visible()
    expect(page.get_by_role("link", name="Export")).to_have_attribute(
        "href", re.compile("contact_id=1&created_after=2020-01-01&created_before=2020-01-03")
    )


def test_what_is_shown_is_what_is_exported(browser_page: Page) -> None:
    """The export begins with the filters of the list, says how many that is, and ends its own asking."""
    page = browser_page
    page.goto("/activity?event=order_paid")
    page.get_by_role("link", name="Export").click()
    expect(page.locator(".stat")).to_contain_text("1 event")
    assert axe.faults_in_both_looks(page) == []
    page.get_by_role("link", name="Without the filter Order paid").click()
    expect(page.locator(".stat")).not_to_contain_text("1 event")
    page.go_back()
    page.get_by_label("JSON lines").check()
    with page.expect_download() as coming:
        page.get_by_role("button", name="Download").click()
    [line] = Path(coming.value.path()).read_text().splitlines()
    assert json.loads(line)["event"] == "order_paid" and coming.value.suggested_filename == "events.jsonl"
    expect(page.locator("#progress")).to_contain_text("1 event in the file")
    assert page.locator("#progress").get_attribute("hx-trigger") is None


def test_people_are_exported_as_their_table_shows_them(browser_page: Page) -> None:
    """Search, chips and rules of the table come along, stand in words, and decide who is in the file."""
    page = browser_page
    rules = json.dumps([{"name": "contact_last_name", "predicate": "eq", "value": "Kurz2"}])
    page.goto("/contacts?" + urlencode({"show": "subscribed", "filters": rules}))
    page.get_by_role("link", name="Export these").click()
    expect(page.locator(".stat")).to_contain_text("1 contact")
    chips = page.get_by_role("group", name="Filters")
    expect(chips).to_contain_text("Subscribed")
    expect(chips).to_contain_text("Kurz2")
    page.get_by_label("JSON lines").check()
    with page.expect_download() as coming:
        page.get_by_role("button", name="Download").click()
    [line] = Path(coming.value.path()).read_text().splitlines()
    assert json.loads(line)["last_name"] == "Kurz2"
    chips.get_by_role("link").last.click()
    expect(page.locator(".stat")).to_contain_text("2 contacts")


def test_people_are_exported_without_a_script(browser: Browser, server: Server) -> None:
    """A plain form downloads the people of a list as Excel wants them; a filter that is none is refused."""
    context = browser.new_context(base_url=server.url, java_script_enabled=False)
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
