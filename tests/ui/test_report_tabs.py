"""The report of a campaign in its tabs: each number leads to the contacts that it counts."""

import csv
import io
import re
import time
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from playwright.sync_api import Page, expect

from tests.api.test_reports import CONTENT, address_of, get_report
from tests.api.test_reports import sent_campaign as sent_campaign
from tests.conftest import FreshServer
from tests.kit.client import Client
from tests.kit.clock import TestClock
from tests.kit.html_page import HtmlPage, select, text_of
from tests.kit.scriptless_browser import ScriptlessBrowser, notice_text
from tests.kit.server import Server
from ui.widgets import charts


def addresses(page: HtmlPage) -> list[str]:
    """Return the addresses of the listed recipients."""
    return page.texts("#people tbody .name")


def test_report_numbers_link_to_contacts(user: ScriptlessBrowser, sent_campaign: Any) -> None:
    """Numbers of each tab open the list of their contacts."""
    for tab, card, link, recipient in (
        ("", "#reading", "people?clicked=people", "click"), ("", "#reading", "people?unsubscribed=true", "unsubscribe"),
        ("/links", "#links", "people?link=", "click"), ("/domains", "#domains", "people?domain=firm", "quiet"),
        ("/problems", "#problems", "people?problem=", ""),
    ):  # fmt: skip
        page = HtmlPage(user, f"/campaigns/{sent_campaign['id']}{tab}")
        page = page.follow(page.all(f"{card} a[href*='{link}']")[0])
        assert link in page.path
        [row] = page.texts("#people tbody tr")
        assert not recipient or address_of(recipient) in row
        assert page.texts("#people .tools .tag")[0]


def test_an_invalid_filter_is_removed(user: ScriptlessBrowser, sent_campaign: Any) -> None:
    """An invalid filter in the URL redirects to the unfiltered list."""
    page = HtmlPage(user, f"/campaigns/{sent_campaign['id']}/people?opened=maybe")

    assert page.path.endswith("/people")
    assert len(page.all("#people tbody tr")) == 8


def test_explanations_of_problems_are_translated(user: ScriptlessBrowser, api: Client, sent_campaign: Any) -> None:
    """A German reader gets no English explanation of a bounce, although it is stored in English."""
    path = f"/campaigns/{sent_campaign['id']}/problems"
    german = ScriptlessBrowser(api, language="de")
    english_texts, german_texts = (HtmlPage(reader, path).texts(".trouble") for reader in (user, german))
    assert len(english_texts) == len(german_texts) > 0
    assert not set(english_texts) & set(german_texts)


def test_the_report_matches_the_api(user: ScriptlessBrowser, sent_campaign: Any, server: Server) -> None:
    """The numbers on the page are those of the API's report."""
    api_report = get_report(server.client(), sent_campaign)
    page = HtmlPage(user, f"/campaigns/{sent_campaign['id']}")
    shown = [text_of(number) for row in page.all("#reading dd") for number in row if number.tag == "a"]

    assert shown == [str(api_report[name]["people"]["count"]) for name in ("clicks", "opens")] + [
        str(api_report[name]["count"]) for name in ("unsubscribes", "complaints", "bounces")
    ]


def test_mailbox_providers_count_sent_messages_only(user: ScriptlessBrowser, sent_campaign: Any) -> None:
    """Skipped contacts are in no number of the providers, and each number leads to as many recipients."""
    page = HtmlPage(user, f"/campaigns/{sent_campaign['id']}")
    providers = "section[aria-labelledby='places-title'] .barlist"
    counts = [int(count) for count in page.texts(f"{providers} b")]

    assert sum(counts) == 7  # eight in the audience, one of them skipped
    page = page.follow(page.all(f"{providers} a")[0])
    assert len(page.all("#people tbody tr")) == counts[0]


def test_the_number_of_links_is_that_of_tracked_links(user: ScriptlessBrowser, sent_campaign: Any, api: Client) -> None:
    """A message whose only links are opt-outs has no number on its tab, as its overview says; another has two."""
    tab = "nav[aria-label=Report] a[href$='/links']"
    assert HtmlPage(user, f"/campaigns/{sent_campaign['id']}").texts(tab) == ["Links 2"]
    content = {"subject": "Bare", "body": "<p><a href='{{ unsubscribe_url }}'>Unsubscribe</a></p>"}
    campaign_id = api.post("/campaigns", {"name": "Bare", "template_attributes": content}).expect(201)["id"]
    api.post(f"/campaigns/{campaign_id}/send", {"trigger_attributes": {"contact_list_id": 1}}).expect(200)
    api.wait(f"/campaigns/{campaign_id}", lambda row: row["status"] == "completed")
    assert get_report(api, {"id": campaign_id})["links"]
    page = HtmlPage(user, f"/campaigns/{campaign_id}")
    assert "This message has no trackable links: links to unsubscribe and the like are not counted." in page.text
    assert page.texts(tab) == ["Links"]


@pytest.mark.full
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


def test_charts_have_a_table(user: ScriptlessBrowser, sent_campaign: Any) -> None:
    """A chart has a summary and can be shown as a table."""
    page = HtmlPage(user, f"/campaigns/{sent_campaign['id']}")
    card = page.one("section[aria-labelledby=when-title]")
    assert "Half of the contacts who clicked" in text_of(card)
    [details] = select(card, "details")
    assert "Show as table" in text_of(select(details, "summary")[0])
    assert [text_of(cell) for cell in select(details, "tbody td")][1:] == ["1", "2"]
    assert "Clicks: 1. Opens: 2." in text_of(select(card, "svg title")[0])


def test_exporting_the_contacts_of_a_report(user: ScriptlessBrowser, sent_campaign: Any) -> None:
    """The file has exactly the contacts that the page lists."""
    page = HtmlPage(user, f"/campaigns/{sent_campaign['id']}/people?opened=people")
    [link, *_] = page.named("a[href]", "Export")
    file = user.request("GET", link.attrib["href"])
    rows = list(csv.DictReader(io.StringIO(file.body.decode("utf-8-sig"))))

    assert 'filename="campaign-1-recipients.csv"' in file.headers["content-disposition"]
    assert sorted(row["to"] for row in rows) == sorted([address_of("click"), address_of("open")])
    assert all(row["opened_at"] for row in rows)


def test_saving_a_segment_from_a_report(
    browser_page: Page, user: ScriptlessBrowser, sent_campaign: Any, server: Server
) -> None:
    """The saved segment has the same contacts as the report: who clicked a link, and who did not open."""
    api = server.client()
    link = next(row["number"] for row in get_report(api, sent_campaign)["links"] if row["words"] == "Spring")
    for query, name in ((f"link={link}", "Spring people"), ("opened=never", "Sleepers")):
        page = HtmlPage(user, f"/campaigns/{sent_campaign['id']}/people?{query}")
        shown = addresses(page)
        if name == "Spring people":
            browser_page.goto(page.path)
            browser_page.get_by_role("button", name="Save as segment").click()
            browser_page.locator("dialog[open]").get_by_label("Name", exact=True).fill(name)
            browser_page.get_by_role("button", name="Save segment").click()
            browser_page.wait_for_url("**/segments/*")
        else:
            [button] = page.named("dialog button", "Save segment")
            [field] = [each for each in page.all("dialog input[name=name]") if each in page.form_of(button).iter()]
            field.set("value", name)
            assert re.search(r"/segments/\d+$", page.press(button).path)
        segment = next(row for row in api.get("/segments").expect(200) if row["name"] == name)
        contacts = api.get("/contacts", segment_id=segment["id"], limit=100).expect(200)
        assert sorted(row["channels"][0]["value"] for row in contacts) == sorted(shown)


def test_the_number_of_non_openers_is_the_same_everywhere(
    user: ScriptlessBrowser, sent_campaign: Any, server: Server
) -> None:
    """The offer to resend, the recipients who did not open, and the segment of the resend have the same number.

    A bounced message was not received, so it counts in none of them.
    """
    api, path = server.client(), f"/campaigns/{sent_campaign['id']}"
    assert api.get(f"{path}/recipients", status="bounced").expect(200)
    overview = HtmlPage(user, path)
    offer = re.search(
        r"(\d+) contacts? ha(?:s|ve) not opened", text_of(overview.one("section[aria-labelledby=next-title]"))
    )
    assert offer
    for name in ("opened", "clicked"):
        page = HtmlPage(user, f"{path}/people?{name}=never")
        [chip] = page.all(f".chips a[href$='{name}=never'] .n")
        assert len(addresses(page)) == int(text_of(chip)) > 0
    assert len(addresses(HtmlPage(user, f"{path}/people?opened=never"))) == int(offer[1])
    user.post(f"{path}/not-opened")
    segment = next(row for row in api.get("/segments").expect(200) if row["name"].startswith("Did not open"))
    assert len(api.get("/contacts", segment_id=segment["id"], limit=100).expect(200)) == int(offer[1])


def test_saving_a_list_from_a_report(user: ScriptlessBrowser, sent_campaign: Any, server: Server) -> None:
    """The contacts of a mailbox provider become a list; a taken name is an error, and undo empties the list."""
    api = server.client()
    list_url = f"/campaigns/{sent_campaign['id']}/list"
    page = user.post(list_url, domain="firm.example", name="Firms")
    assert "added to “Firms”." in notice_text(page)
    new_list = api.get("/lists", search="Firms").expect(200)[0]
    assert new_list["contacts_count"] == 1
    rejected_page = user.post(list_url, domain="firm.example", name="Firms")
    assert 'id="f-list-name-err"' in rejected_page and 'value="Firms"' in rejected_page
    user.undo(page)
    assert api.get(f"/lists/{new_list['id']}").expect(200)["contacts_count"] == 0


def test_skipped_contacts_in_the_report(user: ScriptlessBrowser, server: Server) -> None:
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
    assert HtmlPage(user, f"/campaigns/{campaign_id}").texts("#progress-title") == [
        "Sent to 2 contacts. 3 skipped: 2 not subscribed and 1 suppressed (added manually)"
    ]
    row = HtmlPage(user, "/campaigns").one("tbody tr", "In parts")
    assert text_of(select(row, "td.num")[0]) == "2"


def test_rows_say_what_each_person_did(user: ScriptlessBrowser, sent_campaign: Any, api: Client) -> None:
    """The row of a recipient has the reply, opt-out, complaint or bounce with its time; the report counts replies."""
    path = f"/campaigns/{sent_campaign['id']}"
    captured = {row["to"]: row["id"] for row in api.get("/capture", limit=100).expect(200)}
    assert not HtmlPage(user, path).has("#reading", "Replies")
    api.post(f"/capture/{captured[address_of('quiet')]}/simulate", {"action": "reply"}).expect(200)
    api.post(f"/capture/{captured[address_of('click')]}/simulate", {"action": "reply"}).expect(200)
    page = HtmlPage(user, path)
    [replied] = select(page.one("#reading dl", "Replies"), "dd a")
    assert text_of(replied) == "2"
    assert len(page.follow(replied).all("#people tbody tr")) == 2
    page = HtmlPage(user, f"{path}/people")
    for name, words in (
        ("quiet", r"^Replied today \d\d:\d\d$"), ("unsubscribe", r"^Unsubscribed today \d\d:\d\d$"),
        ("complain", r"^Marked as spam today \d\d:\d\d( · Unsubscribed today \d\d:\d\d)?$"),
        ("bounce", r"^Bounced today \d\d:\d\d550 5.1.1"),
        ("click", r"^(Clicked|Replied) today \d\d:\d\d · (Clicked|Replied) today \d\d:\d\d$"),
        ("open", r"^Opened today \d\d:\d\d$"), ("left", "^Unsubscribed$"),
    ):  # fmt: skip
        row = page.all("#people tbody tr")[addresses(page).index(address_of(name))]
        assert re.search(words, text_of(select(row, "td")[2])), name


def test_the_chart_begins_at_the_send_in_the_time_zone_of_the_account(
    fresh_server: FreshServer, clock: TestClock
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
    user = ScriptlessBrowser(api)
    card = HtmlPage(user, f"/campaigns/{campaign['id']}").one("section[aria-labelledby=when-title]")
    assert "Peak: today 07:59 (1 click). Half of the contacts who clicked did so within 4 minutes." in [
        text_of(each) for each in select(card, "p")
    ]
    assert text_of(select(card, ".axis span")[0]) == "07:59"
    assert text_of(select(card, "tbody td")[0]) == "today 07:59"
    [today] = HtmlPage(user, "/activity").named("main a", "Today")
    assert today.attrib["href"] == f"/activity?from={sent_at:%Y-%m-%d}"


def test_the_scale_of_a_chart_ends_near_its_largest_value() -> None:
    """At least two thirds of a chart are used; its end is a round number."""
    for limit in range(1, 3000):
        top = charts.scale_top(limit)
        assert limit <= top <= max(limit * 1.5, 1), (limit, top)
    assert [charts.scale_top(limit) for limit in (3, 7, 11, 101, 130, 201)] == [3, 8, 12, 120, 150, 250]
