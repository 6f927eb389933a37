"""List pages without JavaScript: search, order, pagination, chips and bulk actions.

What is visible without scripts is tested in Chromium, in `test_pages`.
"""

import re
from typing import NamedTuple
from xml.etree.ElementTree import Element

import pytest

from tests.kit.client import Client
from tests.kit.html_page import HtmlPage, text_of
from tests.kit.sampling import every_nth
from tests.kit.scriptless_browser import ScriptlessBrowser
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
def rows_of_each_kind(server: Server, api: Client, full: bool) -> None:
    """More rows of each kind than fit on a page, one with a unique name and one to delete.

    Without `--full` there are few rows of the kinds whose pages are only tested for deleting.
    """
    rule = [{"name": "contact_first_name", "predicate": "eq", "value": "x"}]
    server.set_postal_address()
    for name in (UNIQUE_NAME, DELETED_NAME, *(f"Thing {number:02}" for number in range(2, ROWS))):
        address = f"{name.lower().replace(' ', '-')}@example.org"
        api.post("/contacts", {"first_name": name, "email": address, "opt_in": True}).expect(201)
        api.post("/campaigns", {"name": name}).expect(201)
        api.post("/forms", {"name": name}).expect(201)
        if full or not name.startswith("Thing"):
            api.post("/flows", {"name": name}).expect(201)
            api.post("/templates", {"name": name, "subject": name}).expect(201)
            api.post("/lists", {"name": name}).expect(201)
            api.post("/segments", {"name": name, "filters": rule}).expect(201)
            api.post("/suppressions", {"address": f"no-{address}"}).expect(201)
        api.post("/messages", {"channel": "email", "to": address, "subject": name, "body": "Hello"}).expect(201)


@pytest.fixture(scope="module")
def user(rows_of_each_kind: None, api: Client) -> ScriptlessBrowser:
    """The owner, whose browser runs no scripts."""
    return ScriptlessBrowser(api)


def total(page: HtmlPage) -> int:
    """Return the total number of rows that the page shows."""
    status = text_of(page.one(".pager [role=status]")).replace(",", "")
    return int(re.findall(r"\d+", status)[-1])


@pytest.mark.parametrize("list_page", every_nth(PAGES, 3), ids=lambda list_page: list_page.path)
def test_pagination_shows_each_row_once(user: ScriptlessBrowser, list_page: ListPage) -> None:
    """All pages together show as many rows as the total, none of them twice."""
    page = HtmlPage(user, list_page.path)
    row_count, seen, pages = total(page), [], 1
    assert row_count >= ROWS
    seen += _ids(page, list_page)
    while page.named("a[href]", "Next"):
        page = page.follow("Next")
        pages += 1
        seen += _ids(page, list_page)
    assert pages > 1
    assert len(seen) == row_count
    assert list_page.field == "who" or len(set(seen)) == row_count
    assert len(_ids(page.follow("Previous"), list_page)) > 0


def _ids(page: HtmlPage, list_page: ListPage) -> list[str]:
    return [row.attrib["href"] for row in page.all(list_page.rows)]


@pytest.mark.parametrize("list_page", every_nth(PAGES, 3), ids=lambda list_page: list_page.path)
def test_searching(user: ScriptlessBrowser, list_page: ListPage) -> None:
    """A search finds the matching row; without a match the page says so and offers to clear the search."""
    page = _search(user, list_page, "quinc")
    rows = page.texts(list_page.rows)
    assert len(rows) == total(page) >= 1
    assert all(UNIQUE_NAME.lower() in row.lower() for row in rows)
    page = _search(user, list_page, "nobody-has-this")
    assert "nobody-has-this" in text_of(page.one("main"))
    [clear, *_] = [link for name in ("Clear search", "Show all", "Show everybody") for link in page.named("a", name)]
    assert total(page.follow(clear)) >= ROWS


def _search(user: ScriptlessBrowser, list_page: ListPage, words: str) -> HtmlPage:
    page = HtmlPage(user, list_page.path)
    box = page.one(f"main input[name={list_page.field}]")
    box.set("value", words)
    return page.press(box)


@pytest.mark.parametrize("list_page", every_nth(PAGES, 3), ids=lambda list_page: list_page.path)
def test_chip_counts(user: ScriptlessBrowser, list_page: ListPage) -> None:
    """Each chip links to as many rows as its number, and is marked as current there."""
    page = HtmlPage(user, list_page.path)
    for chip in page.all("main .chips a.chip"):
        label, number = _chip(chip)
        shown = page.follow(chip)
        assert label in shown.texts("main .chips a[aria-current=true]")[0]
        if number is not None:
            assert (total(shown) if shown.all(".pager") else 0) == number


def _chip(chip: Element) -> tuple[str, int | None]:
    """Return the label of a chip, and its number if it has one."""
    match = re.fullmatch(r"(.+?) ([\d,]+)", text_of(chip))
    return (match[1], int(match[2].replace(",", ""))) if match else (text_of(chip), None)


@pytest.mark.parametrize("list_page", every_nth(PAGES, 3), ids=lambda list_page: list_page.path)
def test_sorting_by_headings(user: ScriptlessBrowser, list_page: ListPage) -> None:
    """Column headings are links that sort, ascending and descending in turn."""
    page = HtmlPage(user, list_page.path)
    directions = []
    for name in page.texts("thead th[aria-sort] a")[:1] * 2:
        page = page.follow(next(link for link in page.all("thead th[aria-sort] a") if text_of(link) == name))
        [heading] = [cell for cell in page.all("thead th[aria-sort]") if cell.get("aria-sort") != "none"]
        assert name in text_of(heading)
        directions.append(heading.get("aria-sort"))
    assert sorted(directions) == ["ascending", "descending"][: len(directions)]


@pytest.mark.parametrize(
    "list_page", [list_page for list_page in PAGES if list_page.path in CHOSEN], ids=lambda list_page: list_page.path
)
def test_deleting_a_selected_row(user: ScriptlessBrowser, list_page: ListPage) -> None:
    """A selected row is deleted, after a confirmation where it cannot be undone, and no other row is."""
    before = total(HtmlPage(user, list_page.path))
    page = HtmlPage(user, f"{list_page.path}?search={DELETED_NAME}")
    page.field(f"Select {DELETED_NAME}").set("checked", "")
    [delete] = page.named(".bulk button", "Delete")
    page = page.press(delete)
    if not page.all(".toast"):
        [confirm, *_] = page.named("main form button", "Delete")
        page = page.press(confirm)
    assert "deleted" in text_of(page.one(".toast"))
    assert total(HtmlPage(user, list_page.path)) == before - 1
    assert not HtmlPage(user, f"{list_page.path}?search={DELETED_NAME}").all(list_page.rows)
