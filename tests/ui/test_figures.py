"""The report page: what people did, and each number leads to the people it counts."""

from typing import Any

from playwright.sync_api import Page

from tests.api.test_reports import address, report
from tests.api.test_reports import sent as sent
from tests.kit.server import Server


def test_numbers_lead_to_people(browser_page: Page, sent: Any) -> None:
    """Clicks, links, mailboxes and problems are on the page, and each opens the list of its people."""
    for card, link, whom in (
        ("#reading", "people?clicked=people", "click"), ("#reading", "people?unsubscribed=true", "unsubscribe"),
        ("#links", "people?link=", "click"), ("#domains", "people?domain=firm", "quiet"),
        ("#problems", "people?problem=", ""),
    ):  # fmt: skip
        browser_page.goto(f"/campaigns/{sent['id']}")
        browser_page.locator(f"{card} a[href*='{link}']").first.click()
        browser_page.get_by_role("heading", name="Every person").wait_for()
        assert link in browser_page.url
        assert browser_page.locator("tbody tr").count() == 1
        assert not whom or address(whom) in browser_page.locator("tbody").inner_text()
        assert browser_page.locator(".tools .tag").inner_text()


def test_a_filter_that_is_none_shows_everybody(browser_page: Page, sent: Any) -> None:
    """An address somebody typed wrongly is no error browser_page."""
    browser_page.goto(f"/campaigns/{sent['id']}/people?opened=maybe")

    assert browser_page.url.endswith("/people")
    assert browser_page.locator("tbody tr").count() == 8


def test_what_is_counted_is_what_the_api_says(browser_page: Page, sent: Any, server: Server) -> None:
    """The page has no numbers of its own."""
    found = report(server.client(), sent)
    browser_page.goto(f"/campaigns/{sent['id']}")
    shown = browser_page.locator("#reading dd a").all_inner_texts()

    assert shown == [str(found[name]["people"]["count"]) for name in ("clicks", "opens")] + [
        str(found[name]["count"]) for name in ("unsubscribes", "complaints", "bounces")
    ]
