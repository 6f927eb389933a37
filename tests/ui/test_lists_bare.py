"""Every list page works without scripts: found by words, in order, page by page, by chips, and acted upon."""

import re
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.kit.browser import sign_in
from tests.kit.client import Client
from tests.kit.server import Server

MANY = 53
ODD = "Quincy"
SPARE = "Zebra"


class Listed(NamedTuple):
    """A list page, how its rows are found, and by what name its field of search goes."""

    path: str
    rows: str = "tbody a.name"
    field: str = "search"


PAGES = [
    Listed("/campaigns"),
    Listed("/flows"),
    Listed("/templates", "li.tile a.name"),
    Listed("/contacts"),
    Listed("/lists"),
    Listed("/segments"),
    Listed("/forms"),
    Listed("/contacts/suppressions"),
    Listed("/activity", "ol.timeline a.link", "who"),
    Listed("/inbox", "#rows ul.list a"),
]
CHOSEN = {"/campaigns", "/flows", "/templates", "/contacts", "/lists", "/segments"}


@pytest.fixture(scope="module", autouse=True)
def filled(server: Server, api: Client) -> None:
    """More of each kind than stand on a page, one of them with a name of its own, and one that nobody needs."""
    rule = [{"name": "contact_first_name", "predicate": "eq", "value": "x"}]
    server.give_address()
    for name in (ODD, SPARE, *(f"Thing {number:02}" for number in range(2, MANY))):
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
def bare(browser: Browser, server: Server) -> Iterator[Page]:
    """The owner at a browser that runs no scripts."""
    context = browser.new_context(base_url=server.url, java_script_enabled=False)
    yield sign_in(context.new_page())
    context.close()


def told(page: Page) -> int:
    """Return how many rows there are, by the words under the list."""
    words = page.locator(".pager [role=status]").inner_text().replace("\u202f", "")
    return int(re.findall(r"(\d+) \D+$", words)[0])


@pytest.mark.parametrize("one", PAGES, ids=lambda one: one.path)
def test_page_by_page_everything_is_there_once(bare: Page, one: Listed) -> None:
    """Next goes on to the end; together the pages show as many rows as are told of, none of them twice."""
    bare.goto(one.path)
    whole, seen, pages = told(bare), [], 1
    assert whole >= MANY
    seen += _ids(bare.locator(one.rows))
    while (following := bare.get_by_role("link", name="Next")).count():
        following.click()
        bare.wait_for_load_state()
        pages += 1
        seen += _ids(bare.locator(one.rows))
    assert pages > 1
    assert len(seen) == whole
    assert one.field == "who" or len(set(seen)) == whole
    bare.get_by_role("link", name="Previous").click()
    bare.wait_for_load_state()
    assert len(_ids(bare.locator(one.rows))) > 0


def _ids(rows: Locator) -> list[str]:
    found: list[str] = rows.evaluate_all("all => all.map((each) => each.href)")
    return found


@pytest.mark.parametrize("one", PAGES, ids=lambda one: one.path)
def test_words_and_enter_find(bare: Page, one: Listed) -> None:
    """What is typed and sent with Enter finds the one row that has it; what nobody has is told, with the way back."""
    bare.goto(one.path)
    box = bare.locator(f"main input[name={one.field}]")
    box.fill("quinc")
    box.press("Enter")
    bare.wait_for_load_state()
    found = bare.locator(one.rows)
    assert found.count() == told(bare) >= 1
    assert all(ODD.lower() in words.lower() for words in found.all_inner_texts())
    bare.goto(one.path)
    box = bare.locator(f"main input[name={one.field}]")
    box.fill("nobody-has-this")
    box.press("Enter")
    expect(bare.get_by_role("main")).to_contain_text("nobody-has-this")
    bare.get_by_role("link", name=re.compile("Clear search|Show all|Show everybody")).first.click()
    assert told(bare) >= MANY


@pytest.mark.parametrize("one", PAGES, ids=lambda one: one.path)
def test_chips_show_as_many_as_they_say(bare: Page, one: Listed) -> None:
    """Each chip is a link to as many rows as its number says, and is marked where one arrives."""
    bare.goto(one.path)
    chips = bare.locator("main .chips a.chip").evaluate_all("all => all.map((each) => [each.innerText, each.href])")
    for label, address in chips:
        words, number = _chip(label)
        bare.goto(address)
        assert words in bare.locator("main .chips a[aria-current=true]").first.inner_text()
        if number is not None:
            assert (told(bare) if bare.locator(".pager").count() else 0) == number


def _chip(label: str) -> tuple[str, int | None]:
    words, _, number = label.strip().replace("\u202f", "").partition("\n")
    found = re.fullmatch(r"(.+?)\s+(\d+)", words)
    return (found[1], int(found[2])) if found else (words, int(number) if number.strip().isdigit() else None)


@pytest.mark.parametrize("one", PAGES, ids=lambda one: one.path)
def test_headings_order(bare: Page, one: Listed) -> None:
    """Headings that order are links; the page says which way it is, and the other way at the second time."""
    bare.goto(one.path)
    names = bare.locator("thead th[aria-sort] a").all_inner_texts()[:1]
    ways = [_ordered_by(bare, name) for name in names * 2]
    assert sorted(ways) == ["ascending", "descending"][: len(ways)]


def _ordered_by(page: Page, name: str) -> str:
    page.locator("thead th[aria-sort]").get_by_role("link", name=name, exact=True).click()
    heading = page.locator("thead th:not([aria-sort=none])[aria-sort]")
    expect(heading).to_contain_text(name)
    return heading.get_attribute("aria-sort") or ""


@pytest.mark.parametrize("one", [one for one in PAGES if one.path in CHOSEN], ids=lambda one: one.path)
def test_a_chosen_row_is_deleted(bare: Page, one: Listed) -> None:
    """A row is chosen and deleted, asked first where it cannot come back; then it is gone, and nothing else is."""
    bare.goto(one.path)
    before = told(bare)
    bare.goto(f"{one.path}?search={SPARE}")
    bare.get_by_label(f"Choose {SPARE}").check()
    bare.locator(".bulk").get_by_role("button", name="Delete").click()
    if (sure := bare.locator("main form.asks, main form").get_by_role("button", name=re.compile("^Delete"))).count():
        sure.first.click()
    expect(bare.locator(".toast")).to_contain_text("deleted")
    bare.goto(one.path)
    assert told(bare) == before - 1
    bare.goto(f"{one.path}?search={SPARE}")
    assert bare.locator(one.rows).count() == 0
