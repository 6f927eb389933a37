"""Who may not change settings sees what they are, in fields that nobody takes for ones to type into."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.kit import axe
from tests.kit.browser import Problems, new_page, shoot, sign_in
from tests.kit.server import PASSWORD, Server


@pytest.fixture(scope="module")
def author(browser: Browser, server: Server) -> Iterator[Page]:
    """Somebody who writes, signed in."""
    server.cli("user", "add", "--email", "author@example.org", "--role", "author", stdin=PASSWORD + "\n")
    problems = Problems()
    page = sign_in(new_page(browser, server.url, problems), "author@example.org")
    yield page
    page.context.close()
    assert problems.found == []


@pytest.mark.parametrize("path", ["/settings", "/settings/consent", "/settings/sending", "/brand"])
def test_nothing_there_looks_like_to_be_changed(author: Page, path: str) -> None:
    """Each field is off and drawn so, no button would be refused, and a line says who changes it; in both looks."""
    page = author
    page.goto(path)
    expect(page.locator("main .banner.info")).to_contain_text("Owners and admins")
    assert page.locator("main :is(input, select, textarea):not([type=hidden])").count() > 2
    assert page.locator("main :is(input, select, textarea):not([type=hidden]):enabled").count() == 0
    assert page.get_by_role("button", name="Save").count() == 0
    field = page.locator("main .input:visible").first
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)
        drawn = "getComputedStyle(one).backgroundColor"
        there = field.evaluate(f"one => [{drawn}, (one.closest('fieldset').disabled = false, {drawn})]")
        field.evaluate("one => { one.closest('fieldset').disabled = true; }")
        assert there[0] != there[1], (theme, there)
    page.emulate_media(color_scheme=None)
    assert axe.faults_in_both_looks(page) == []
    shoot(page, f"looked-at{path.replace('/', '-')}")
