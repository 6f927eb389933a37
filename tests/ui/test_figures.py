"""The report in its tabs: what people did, and each number leads to the people it counts."""

import csv
import io
from typing import Any

from playwright.sync_api import Page, expect

from tests.api.test_reports import address, report
from tests.api.test_reports import sent as sent
from tests.kit.paper import Paper, toast
from tests.kit.server import Server


def test_numbers_lead_to_people(browser_page: Page, sent: Any) -> None:
    """Clicks, links, mailboxes and problems are on their tabs, and each opens the list of its people."""
    for tab, card, link, whom in (
        ("", "#reading", "people?clicked=people", "click"), ("", "#reading", "people?unsubscribed=true", "unsubscribe"),
        ("/links", "#links", "people?link=", "click"), ("/domains", "#domains", "people?domain=firm", "quiet"),
        ("/problems", "#problems", "people?problem=", ""),
    ):  # fmt: skip
        browser_page.goto(f"/campaigns/{sent['id']}{tab}")
        browser_page.locator(f"{card} a[href*='{link}']").first.click()
        browser_page.locator("#people").wait_for()
        assert link in browser_page.url
        assert browser_page.locator("#people tbody tr").count() == 1
        assert not whom or address(whom) in browser_page.locator("#people tbody").inner_text()
        assert browser_page.locator("#people .tools .tag").inner_text()


def test_a_filter_that_is_none_shows_everybody(browser_page: Page, sent: Any) -> None:
    """An address somebody typed wrongly is no error page."""
    browser_page.goto(f"/campaigns/{sent['id']}/people?opened=maybe")

    assert browser_page.url.endswith("/people")
    assert browser_page.locator("#people tbody tr").count() == 8


def test_what_is_counted_is_what_the_api_says(browser_page: Page, sent: Any, server: Server) -> None:
    """The page has no numbers of its own."""
    found = report(server.client(), sent)
    browser_page.goto(f"/campaigns/{sent['id']}")
    shown = browser_page.locator("#reading dd > a").all_inner_texts()

    assert shown == [str(found[name]["people"]["count"]) for name in ("clicks", "opens")] + [
        str(found[name]["count"]) for name in ("unsubscribes", "complaints", "bounces")
    ]


def test_the_map_says_what_the_table_says(browser_page: Page, sent: Any, server: Server) -> None:
    """On the message as it was sent each link has its number and its people; those that are not counted have none."""
    found = {one["words"]: one for one in report(server.client(), sent)["links"]}
    browser_page.goto(f"/campaigns/{sent['id']}/links")
    marks = browser_page.frame_locator("iframe").locator(".campanero-mark")
    expect(marks).to_have_count(2)
    for mark, words in zip(marks.all(), ("Spring", "Summer"), strict=True):
        said = "".join(mark.inner_text().split())
        assert said == f"{found[words]['number']}·{found[words]['clicked']['count']}"
        assert words in mark.locator("xpath=..").inner_text()


def test_a_chart_can_be_read_as_a_table(browser_page: Page, sent: Any) -> None:
    """What is drawn stands in words too, and begins with a sentence."""
    browser_page.goto(f"/campaigns/{sent['id']}")
    card = browser_page.locator("section", has=browser_page.locator("#when-title"))
    expect(card).to_contain_text("Most people clicked")
    card.get_by_text("Show as table").click()
    cells = card.locator("tbody td").all_inner_texts()

    assert cells[1:] == ["1", "2"]
    assert "1 clicked, 2 opened" in card.locator("svg title").first.inner_html()


def test_the_chosen_people_are_exported(browser_page: Page, sent: Any) -> None:
    """The file has exactly the people that the page shows."""
    browser_page.goto(f"/campaigns/{sent['id']}/people?opened=people")
    with browser_page.expect_download() as found:
        browser_page.get_by_role("link", name="Export").click()
    rows = list(csv.DictReader(io.StringIO(found.value.path().read_text(encoding="utf-8-sig"))))

    assert found.value.suggested_filename == "campaign-1-people.csv"
    assert sorted(row["to"] for row in rows) == sorted([address("click"), address("open")])
    assert all(row["opened_at"] for row in rows)


def test_who_did_something_is_kept_as_a_segment(browser_page: Page, sent: Any, server: Server) -> None:
    """The segment finds the same people as the report: who clicked a link, and who did not open."""
    api = server.client()
    link = next(one["number"] for one in report(api, sent)["links"] if one["words"] == "Spring")
    for query, name in ((f"link={link}", "Spring people"), ("opened=nobody", "Sleepers")):
        browser_page.goto(f"/campaigns/{sent['id']}/people?{query}")
        shown = browser_page.locator("#people tbody .name").all_inner_texts()
        browser_page.get_by_role("button", name="Save as segment").click()
        browser_page.locator("dialog[open]").get_by_label("Name", exact=True).fill(name)
        browser_page.get_by_role("button", name="Save segment").click()
        browser_page.wait_for_url("**/segments/*")
        made = next(one for one in api.get("/segments").expect(200) if one["name"] == name)
        people = api.get("/contacts", segment_id=made["id"], limit=100).expect(200)
        assert sorted(one["channels"][0]["value"] for one in people) == sorted(shown)


def test_people_that_no_segment_finds_become_a_list(sent: Any, server: Server) -> None:
    """Those of a mailbox are kept as they are now; a name that is taken is said at its field; undo empties the list."""
    api = server.client()
    paper = Paper(api)
    here = f"/campaigns/{sent['id']}/list"
    page = paper.post(here, domain="firm.example", name="Firms")
    assert "added to Firms." in toast(page)
    made = api.get("/lists", search="Firms").expect(200)[0]
    assert made["contacts_count"] == 1
    again = paper.post(here, domain="firm.example", name="Firms")
    assert 'id="f-list-name-err"' in again and 'value="Firms"' in again
    paper.undo(page)
    assert api.get(f"/lists/{made['id']}").expect(200)["contacts_count"] == 0


def test_a_finished_campaign_says_who_was_skipped_and_why(browser_page: Page, server: Server) -> None:
    """Nobody takes skipped contacts for missing: the heading counts them apart, and the list of campaigns likewise."""
    api = server.client()
    group = api.post("/lists", {"name": "Partly unsubscribed"}).expect(201)["id"]
    for number in range(5):
        body = {"email": f"skip{number}@parts.example", "list_ids": [group], "subscribed_email": number > 2}
        contact = api.post("/contacts", body).expect(201)["id"]
        if number == 0:
            api.patch(f"/contacts/{contact}", {"subscribed_email": True}).expect(200)
            api.post("/suppressions", {"address": "skip0@parts.example", "channel": "email"}).expect(201)
    content = {"subject": "Parts", "body": "<p>Hello</p>", "from_email": "ana@example.com"}
    body = {"name": "In parts", "trigger_attributes": {"contact_list_id": group}, "template_attributes": content}
    campaign = api.post("/campaigns", body).expect(201)["id"]
    api.post(f"/campaigns/{campaign}/send").expect(200)
    api.wait(f"/campaigns/{campaign}", lambda row: row["phase"] == "completed", 60)
    browser_page.goto(f"/campaigns/{campaign}")
    expect(browser_page.locator("#progress-title")).to_have_text(
        "Sent to 2 contacts. 3 skipped: 2 no consent on record, 1 on the do-not-send list (blocked by hand)"
    )
    browser_page.goto("/campaigns")
    row = browser_page.get_by_role("row").filter(has_text="In parts")
    expect(row.locator("td.num").first).to_have_text("2")
