"""The report of a campaign in its tabs: each number leads to the contacts that it counts."""

import csv
import io
import re
import time
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from playwright.sync_api import Browser, Page, expect

from tests.api.test_reports import CONTENT, address_of, get_report
from tests.api.test_reports import sent_campaign as sent_campaign
from tests.conftest import FreshServer
from tests.kit.browser import Problems, new_page, sign_in
from tests.kit.client import Client
from tests.kit.clock import TestClock
from tests.kit.scriptless_browser import ScriptlessBrowser, notice_text
from tests.kit.server import Server


def test_report_numbers_link_to_contacts(browser_page: Page, sent_campaign: Any) -> None:
    """Numbers of each tab open the list of their contacts."""
    for tab, card, link, recipient in (
        ("", "#reading", "people?clicked=people", "click"), ("", "#reading", "people?unsubscribed=true", "unsubscribe"),
        ("/links", "#links", "people?link=", "click"), ("/domains", "#domains", "people?domain=firm", "quiet"),
        ("/problems", "#problems", "people?problem=", ""),
    ):  # fmt: skip
        browser_page.goto(f"/campaigns/{sent_campaign['id']}{tab}")
        browser_page.locator(f"{card} a[href*='{link}']").first.click()
        browser_page.locator("#people").wait_for()
        assert link in browser_page.url
        expect(browser_page.locator("#people tbody tr")).to_have_count(1)
        assert not recipient or address_of(recipient) in browser_page.locator("#people tbody").inner_text()
        assert browser_page.locator("#people .tools .tag").inner_text()


def test_an_invalid_filter_is_removed(browser_page: Page, sent_campaign: Any) -> None:
    """An invalid filter in the URL redirects to the unfiltered list."""
    browser_page.goto(f"/campaigns/{sent_campaign['id']}/people?opened=maybe")

    assert browser_page.url.endswith("/people")
    expect(browser_page.locator("#people tbody tr")).to_have_count(8)


def test_the_report_matches_the_api(browser_page: Page, sent_campaign: Any, server: Server) -> None:
    """The numbers on the page are those of the API's report."""
    api_report = get_report(server.client(), sent_campaign)
    browser_page.goto(f"/campaigns/{sent_campaign['id']}")
    shown = browser_page.locator("#reading dd > a").all_inner_texts()

    assert shown == [str(api_report[name]["people"]["count"]) for name in ("clicks", "opens")] + [
        str(api_report[name]["count"]) for name in ("unsubscribes", "complaints", "bounces")
    ]


def test_mailbox_providers_count_sent_messages_only(browser_page: Page, sent_campaign: Any) -> None:
    """Skipped contacts are in no number of the providers, and each number leads to as many recipients."""
    page = browser_page
    page.goto(f"/campaigns/{sent_campaign['id']}")
    counts = page.locator("section[aria-labelledby='places-title'] .barlist b").all_inner_texts()

    assert sum(map(int, counts)) == 7  # eight in the audience, one of them skipped
    page.locator("section[aria-labelledby='places-title'] .barlist a").first.click()
    expect(page.locator("#people tbody tr")).to_have_count(int(counts[0]))


def test_the_number_of_links_is_that_of_tracked_links(
    browser_page: Page, sent_campaign: Any, server: Server, api: Client
) -> None:
    """A message whose only links are opt-outs has no number on its tab, as its overview says; another has two."""
    page = browser_page
    page.goto(f"/campaigns/{sent_campaign['id']}")
    expect(page.get_by_role("navigation", name="Report").get_by_role("link", name="Links")).to_have_text("Links 2")
    content = {"subject": "Bare", "body": "<p><a href='{{ unsubscribe_url }}'>Unsubscribe</a></p>"}
    campaign_id = api.post("/campaigns", {"name": "Bare", "template_attributes": content}).expect(201)["id"]
    api.post(f"/campaigns/{campaign_id}/send", {"trigger_attributes": {"contact_list_id": 1}}).expect(200)
    api.wait(f"/campaigns/{campaign_id}", lambda row: row["status"] == "completed")
    assert get_report(api, {"id": campaign_id})["links"]
    page.goto(f"/campaigns/{campaign_id}")
    expect(
        page.get_by_text("This message has no trackable links: links to unsubscribe and the like are not counted.")
    ).to_be_visible()
    expect(page.get_by_role("navigation", name="Report").get_by_role("link", name="Links")).to_have_text("Links")


def test_the_inbox_of_a_campaign_shows_its_messages_only(browser_page: Page, sent_campaign: Any, api: Client) -> None:
    """The report leads to the captured messages of its campaign; a search stays among them, and all can be shown."""
    page = browser_page
    api.post("/contacts", {"email": "single@example.org"}).expect(201)
    single = api.post("/messages", {"to": "single@example.org", "subject": "Receipt", "body": "<p>Thanks</p>"})
    api.wait("/capture", bool, message_id=single.expect(201)["id"])
    page.goto(f"/campaigns/{sent_campaign['id']}")
    page.get_by_role("link", name="View in test inbox").click()
    expect(page.locator("#rows li")).to_have_count(7)
    expect(page.locator("#rows")).not_to_contain_text("single@example.org")
    page.get_by_label("Search messages").fill("example.org")
    expect(page.locator("#rows li")).to_have_count(4)
    page.locator("#rows li a").first.click()
    expect(page.locator(".mail .read header")).to_contain_text("Letter")
    expect(page.locator(".mail .box .tag")).to_contain_text("Letter")
    chip, cross = page.locator(".mail .box .tag").bounding_box(), page.locator(".mail .box .tag a").bounding_box()
    assert chip and cross and cross["y"] < chip["y"] + 8  # beside the name, not below it
    assert chip["height"] < 30
    page.get_by_role("link", name="Show all campaigns").click()
    expect(page.locator("#rows")).to_contain_text("single@example.org")


def test_the_click_map_matches_the_report(browser_page: Page, sent_campaign: Any, server: Server) -> None:
    """Each tracked link of the sent message is marked with its number and its count of contacts."""
    links = {link["words"]: link for link in get_report(server.client(), sent_campaign)["links"]}
    browser_page.goto(f"/campaigns/{sent_campaign['id']}/links")
    marks = browser_page.frame_locator("iframe").locator(".campanero-mark")
    expect(marks).to_have_count(2)
    for mark, link_text in zip(marks.all(), ("Spring", "Summer"), strict=True):
        mark_text = "".join(mark.inner_text().split())
        assert mark_text == f"{links[link_text]['number']}·{links[link_text]['clicked']['count']}"
        expect(mark.locator("xpath=..")).to_contain_text(link_text)


def test_charts_have_a_table(browser_page: Page, sent_campaign: Any) -> None:
    """A chart has a summary and can be shown as a table."""
    browser_page.goto(f"/campaigns/{sent_campaign['id']}")
    card = browser_page.locator("section", has=browser_page.locator("#when-title"))
    expect(card).to_contain_text("Half of the contacts who clicked")
    card.get_by_text("Show as table").click()
    cells = card.locator("tbody td").all_inner_texts()

    assert cells[1:] == ["1", "2"]
    assert "Clicks: 1. Opens: 2." in card.locator("svg title").first.inner_html()


def test_exporting_the_contacts_of_a_report(browser_page: Page, sent_campaign: Any) -> None:
    """The file has exactly the contacts that the page lists."""
    browser_page.goto(f"/campaigns/{sent_campaign['id']}/people?opened=people")
    with browser_page.expect_download() as download:
        browser_page.get_by_role("link", name="Export").click()
    rows = list(csv.DictReader(io.StringIO(download.value.path().read_text(encoding="utf-8-sig"))))

    assert download.value.suggested_filename == "campaign-1-recipients.csv"
    assert sorted(row["to"] for row in rows) == sorted([address_of("click"), address_of("open")])
    assert all(row["opened_at"] for row in rows)


def test_saving_a_segment_from_a_report(browser_page: Page, sent_campaign: Any, server: Server) -> None:
    """The saved segment has the same contacts as the report: who clicked a link, and who did not open."""
    api = server.client()
    link = next(row["number"] for row in get_report(api, sent_campaign)["links"] if row["words"] == "Spring")
    for query, name in ((f"link={link}", "Spring people"), ("opened=never", "Sleepers")):
        browser_page.goto(f"/campaigns/{sent_campaign['id']}/people?{query}")
        shown = browser_page.locator("#people tbody .name").all_inner_texts()
        browser_page.get_by_role("button", name="Save as segment").click()
        browser_page.locator("dialog[open]").get_by_label("Name", exact=True).fill(name)
        browser_page.get_by_role("button", name="Save segment").click()
        browser_page.wait_for_url("**/segments/*")
        segment = next(row for row in api.get("/segments").expect(200) if row["name"] == name)
        contacts = api.get("/contacts", segment_id=segment["id"], limit=100).expect(200)
        assert sorted(row["channels"][0]["value"] for row in contacts) == sorted(shown)


def test_saving_a_list_from_a_report(sent_campaign: Any, server: Server) -> None:
    """The contacts of a mailbox provider become a list; a taken name is an error, and undo empties the list."""
    api = server.client()
    paper = ScriptlessBrowser(api)
    list_url = f"/campaigns/{sent_campaign['id']}/list"
    page = paper.post(list_url, domain="firm.example", name="Firms")
    assert "added to Firms." in notice_text(page)
    new_list = api.get("/lists", search="Firms").expect(200)[0]
    assert new_list["contacts_count"] == 1
    rejected_page = paper.post(list_url, domain="firm.example", name="Firms")
    assert 'id="f-list-name-err"' in rejected_page and 'value="Firms"' in rejected_page
    paper.undo(page)
    assert api.get(f"/lists/{new_list['id']}").expect(200)["contacts_count"] == 0


def test_skipped_contacts_in_the_report(browser_page: Page, server: Server) -> None:
    """The heading of a completed campaign counts skipped contacts by reason."""
    api = server.client()
    list_id = api.post("/lists", {"name": "Partly unsubscribed"}).expect(201)["id"]
    for number in range(5):
        body = {"email": f"skip{number}@parts.example", "list_ids": [list_id], "subscribed_email": number > 2}
        contact_id = api.post("/contacts", body).expect(201)["id"]
        if number == 0:
            api.patch(f"/contacts/{contact_id}", {"subscribed_email": True}).expect(200)
            api.post("/suppressions", {"address": "skip0@parts.example", "channel": "email"}).expect(201)
    content = {"subject": "Parts", "body": "<p>Hello</p>", "from_email": "ana@example.com"}
    body = {"name": "In parts", "trigger_attributes": {"contact_list_id": list_id}, "template_attributes": content}
    campaign_id = api.post("/campaigns", body).expect(201)["id"]
    api.post(f"/campaigns/{campaign_id}/send").expect(200)
    api.wait(f"/campaigns/{campaign_id}", lambda row: row["phase"] == "completed", 60)
    browser_page.goto(f"/campaigns/{campaign_id}")
    expect(browser_page.locator("#progress-title")).to_have_text(
        "Sent to 2 contacts. 3 skipped: 2 not subscribed and 1 suppressed (added manually)"
    )
    browser_page.goto("/campaigns")
    row = browser_page.get_by_role("row").filter(has_text="In parts")
    expect(row.locator("td.num").first).to_have_text("2")


def test_rows_say_what_each_person_did(browser_page: Page, sent_campaign: Any, api: Client) -> None:
    """The row of a recipient has the reply, opt-out, complaint or bounce with its time; the report counts replies."""
    page, path = browser_page, f"/campaigns/{sent_campaign['id']}"
    captured = {row["to"]: row["id"] for row in api.get("/capture", limit=100).expect(200)}
    page.goto(path)
    expect(page.locator("#reading")).not_to_contain_text("Replies")
    api.post(f"/capture/{captured[address_of('quiet')]}/simulate", {"action": "reply"}).expect(200)
    api.post(f"/capture/{captured[address_of('click')]}/simulate", {"action": "reply"}).expect(200)
    page.goto(path)
    replied = page.locator("#reading dl", has_text="Replies")
    expect(replied.locator("dd > a")).to_have_text("2")
    replied.locator("dd > a").click()
    expect(page.locator("#people tbody tr")).to_have_count(2)
    page.goto(f"{path}/people")
    for name, words in (
        ("quiet", r"^Replied today \d\d:\d\d$"), ("unsubscribe", r"^Unsubscribed today \d\d:\d\d$"),
        ("complain", r"^Marked as spam today \d\d:\d\d"), ("bounce", r"^Bounced today \d\d:\d\d550 5.1.1"),
        ("click", r"^(Clicked|Replied) today \d\d:\d\d · (Clicked|Replied) today \d\d:\d\d$"),
        ("open", r"^Opened today \d\d:\d\d$"), ("left", "^Unsubscribed$"),
    ):  # fmt: skip
        row = page.locator("#people tbody tr").filter(has=page.get_by_text(address_of(name), exact=True))
        expect(row.locator("td").nth(2)).to_have_text(re.compile(words))


def test_the_chart_begins_at_the_send_in_the_time_zone_of_the_account(
    browser: Browser, fresh_server: FreshServer, browser_problems: Problems, clock: TestClock
) -> None:
    """A campaign sent at 07:59 in Berlin has its first hour from 07:59, also for a click three minutes later."""
    server = fresh_server(clock=clock)
    api = server.client()
    api.patch("/account", {"time_zone": "Europe/Berlin"}).expect(200)
    berlin = ZoneInfo("Europe/Berlin")
    sent_at = datetime.now(berlin).replace(hour=7, minute=59, second=5, microsecond=0) + timedelta(days=1)
    clock.set(sent_at.timestamp() - time.time())
    list_id = api.post("/lists", {"name": "Readers"}).expect(201)["id"]
    api.post("/contacts", {"email": "anna@example.org", "list_ids": [list_id]}).expect(201)
    campaign = api.post("/campaigns", {"name": "Letter", "template_attributes": CONTENT}).expect(201)
    api.post(f"/campaigns/{campaign['id']}/send", {"trigger_attributes": {"contact_list_id": list_id}}).expect(200)
    captured = api.wait("/capture", bool)[0]["id"]
    clock.advance(minutes=3)
    api.post(f"/capture/{captured}/simulate", {"action": "click"}).expect(200)
    page = sign_in(new_page(browser, server.url, browser_problems))
    page.goto(f"/campaigns/{campaign['id']}")
    card = page.locator("section", has=page.locator("#when-title"))
    expect(card.locator("p")).to_have_text(
        "Peak: today 07:59 (1 click). Half of the contacts who clicked did so within 4 minutes."
    )
    expect(card.locator(".axis span").first).to_have_text("07:59")
    card.get_by_text("Show as table").click()
    expect(card.locator("tbody td").first).to_have_text("today 07:59")
    page.goto("/activity")
    day = f"{sent_at:%Y-%m-%d}"
    expect(page.get_by_role("link", name="Today")).to_have_attribute("href", f"/activity?from={day}")
    page.context.close()
    assert not browser_problems.found
