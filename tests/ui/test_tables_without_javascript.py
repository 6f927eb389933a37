"""List pages without JavaScript: search, order, pagination, chips and bulk actions."""

import re
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.kit.browser import new_scriptless_context, sign_in
from tests.kit.client import Client
from tests.kit.sampling import every_nth
from tests.kit.server import Server

ROWS = 53
UNIQUE_NAME = "Quincy"
DELETED_NAME = "Zebra"


class ListPage(NamedTuple):
    """A list page, the selector of its rows, and the name of its search field."""

    path: str
    rows: str = "tbody a.name"
    field: str = "search"


PAGES = [
    ListPage("/campaigns"),
    ListPage("/flows"),
    ListPage("/templates", "li.tile a.name"),
    ListPage("/contacts"),
    ListPage("/lists"),
    ListPage("/segments"),
    ListPage("/forms"),
    ListPage("/contacts/suppressions"),
    ListPage("/activity", "ol.timeline a.link[href^='/contacts/']", "who"),
    ListPage("/inbox", "#rows ul.list a"),
]
CHOSEN = {"/campaigns", "/flows", "/templates", "/contacts", "/lists", "/segments"}


@pytest.fixture(scope="module", autouse=True)
def rows_of_each_kind(server: Server, api: Client) -> None:
    """More rows of each kind than fit on a page, one with a unique name and one to delete."""
    rule = [{"name": "contact_first_name", "predicate": "eq", "value": "x"}]
    server.set_postal_address()
    for name in (UNIQUE_NAME, DELETED_NAME, *(f"Thing {number:02}" for number in range(2, ROWS))):
        address = f"{name.lower().replace(' ', '-')}@example.org"
        api.post("/contacts", {"first_name": name, "email": address, "opt_in": True}).expect(201)
        api.post("/campaigns", {"name": name}).expect(201)
        api.post("/flows", {"name": name}).expect(201)
        api.post("/templates", {"name": name, "subject": name}).expect(201)
        api.post("/lists", {"name": name}).expect(201)
        api.post("/segments", {"name": name, "filters": rule}).expect(201)
        api.post("/forms", {"name": name}).expect(201)
        api.post("/suppressions", {"address": f"no-{address}"}).expect(201)
        api.post("/messages", {"channel": "email", "to": address, "subject": name, "body": "Hello"}).expect(201)


@pytest.fixture(scope="module")
def no_js_page(browser: Browser, server: Server) -> Iterator[Page]:
    """A page signed in as the owner, without JavaScript."""
    context = new_scriptless_context(browser, server.url)
    yield sign_in(context.new_page())
    context.close()


def total(page: Page) -> int:
    """Return the total number of rows that the page shows."""
    status = page.locator(".pager [role=status]").inner_text().replace(",", "")
    return int(re.findall(r"\d+", status)[-1])


@pytest.mark.parametrize("list_page", PAGES, ids=lambda list_page: list_page.path)
def test_pagination_shows_each_row_once(no_js_page: Page, list_page: ListPage) -> None:
    """All pages together show as many rows as the total, none of them twice."""
    no_js_page.goto(list_page.path)
    row_count, seen, pages = total(no_js_page), [], 1
    assert row_count >= ROWS
    seen += _ids(no_js_page.locator(list_page.rows))
    while (next_link := no_js_page.get_by_role("link", name="Next")).count():
        next_link.click()
        no_js_page.wait_for_load_state()
        pages += 1
        seen += _ids(no_js_page.locator(list_page.rows))
    assert pages > 1
    assert len(seen) == row_count
    assert list_page.field == "who" or len(set(seen)) == row_count
    no_js_page.get_by_role("link", name="Previous").click()
    no_js_page.wait_for_load_state()
    assert len(_ids(no_js_page.locator(list_page.rows))) > 0


def _ids(rows: Locator) -> list[str]:
    hrefs: list[str] = rows.evaluate_all("all => all.map((each) => each.href)")
    return hrefs


@pytest.mark.parametrize("list_page", every_nth(PAGES, 2), ids=lambda list_page: list_page.path)
def test_searching(no_js_page: Page, list_page: ListPage) -> None:
    """A search finds the matching row; without a match the page says so and offers to clear the search."""
    no_js_page.goto(list_page.path)
    box = no_js_page.locator(f"main input[name={list_page.field}]")
    box.fill("quinc")
    box.press("Enter")
    no_js_page.wait_for_load_state()
    rows = no_js_page.locator(list_page.rows)
    assert rows.count() == total(no_js_page) >= 1
    assert all(UNIQUE_NAME.lower() in row_text.lower() for row_text in rows.all_inner_texts())
    no_js_page.goto(list_page.path)
    box = no_js_page.locator(f"main input[name={list_page.field}]")
    box.fill("nobody-has-this")
    box.press("Enter")
    expect(no_js_page.get_by_role("main")).to_contain_text("nobody-has-this")
    no_js_page.get_by_role("link", name=re.compile("Clear search|Show all|Show everybody")).first.click()
    assert total(no_js_page) >= ROWS


@pytest.mark.parametrize("list_page", every_nth(PAGES, 2, 1), ids=lambda list_page: list_page.path)
def test_chip_counts(no_js_page: Page, list_page: ListPage) -> None:
    """Each chip links to as many rows as its number, and is marked as current there."""
    no_js_page.goto(list_page.path)
    chips = no_js_page.locator("main .chips a.chip").evaluate_all(
        "all => all.map((each) => [each.innerText, each.href])"
    )
    for label, address in chips:
        chip_label, number = _chip(label)
        no_js_page.goto(address)
        assert chip_label in no_js_page.locator("main .chips a[aria-current=true]").first.inner_text()
        if number is not None:
            assert (total(no_js_page) if no_js_page.locator(".pager").count() else 0) == number


def _chip(label: str) -> tuple[str, int | None]:
    chip_label, _, number = label.strip().replace(",", "").partition("\n")
    match = re.fullmatch(r"(.+?)\s+(\d+)", chip_label)
    return (match[1], int(match[2])) if match else (chip_label, int(number) if number.strip().isdigit() else None)


@pytest.mark.parametrize("list_page", every_nth(PAGES, 2), ids=lambda list_page: list_page.path)
def test_sorting_by_headings(no_js_page: Page, list_page: ListPage) -> None:
    """Column headings are links that sort, ascending and descending in turn."""
    no_js_page.goto(list_page.path)
    names = no_js_page.locator("thead th[aria-sort] a").all_inner_texts()[:1]
    directions = [_ordered_by(no_js_page, name) for name in names * 2]
    assert sorted(directions) == ["ascending", "descending"][: len(directions)]


def _ordered_by(page: Page, name: str) -> str:
    page.locator("thead th[aria-sort]").get_by_role("link", name=name, exact=True).click()
    heading = page.locator("thead th:not([aria-sort=none])[aria-sort]")
    expect(heading).to_contain_text(name)
    return heading.get_attribute("aria-sort") or ""


@pytest.mark.parametrize(
    "list_page", [list_page for list_page in PAGES if list_page.path in CHOSEN], ids=lambda list_page: list_page.path
)
def test_deleting_a_selected_row(no_js_page: Page, list_page: ListPage) -> None:
    """A selected row is deleted, after a confirmation where it cannot be undone, and no other row is."""
    no_js_page.goto(list_page.path)
    before = total(no_js_page)
    no_js_page.goto(f"{list_page.path}?search={DELETED_NAME}")
    no_js_page.get_by_label(f"Select {DELETED_NAME}").check()
    no_js_page.locator(".bulk").get_by_role("button", name="Delete").click()
    if (
        confirm := no_js_page.locator("main form.asks, main form").get_by_role("button", name=re.compile("^Delete"))
    ).count():
        confirm.first.click()
    expect(no_js_page.locator(".toast")).to_contain_text("deleted")
    no_js_page.goto(list_page.path)
    assert total(no_js_page) == before - 1
    no_js_page.goto(f"{list_page.path}?search={DELETED_NAME}")
    expect(no_js_page.locator(list_page.rows)).to_have_count(0)
