"""Settings as read-only pages for users who may not change them."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.kit import axe
from tests.kit.browser import Problems, new_page, save_screenshot, sign_in
from tests.kit.sampling import sampled
from tests.kit.server import PASSWORD, Server


@pytest.fixture(scope="module")
def author(browser: Browser, server: Server) -> Iterator[Page]:
    """A page signed in as an author."""
    server.cli("user", "add", "--email", "author@example.org", "--role", "author", stdin=PASSWORD + "\n")
    problems = Problems()
    page = sign_in(new_page(browser, server.url, problems), "author@example.org")
    yield page
    page.context.close()
    assert problems.found == []


@pytest.mark.full
@pytest.mark.parametrize(
    "path", sampled(["/settings", "/settings/consent", "/settings/sending", "/brand"], ["/settings", "/brand"])
)
def test_read_only_settings(author: Page, path: str) -> None:
    """Each field is disabled and looks so, there is no save button, and a banner says who may change it."""
    page = author
    page.goto(path)
    expect(page.locator("main .banner.info")).to_contain_text("owners and admins", ignore_case=True)
    assert page.locator("main :is(input, select, textarea):not([type=hidden])").count() > 2
    expect(page.locator("main :is(input, select, textarea):not([type=hidden]):enabled")).to_have_count(0)
    expect(page.get_by_role("button", name="Save")).to_have_count(0)
    field = page.locator("main .input:visible").first
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)
        background = "getComputedStyle(one).backgroundColor"
        colors = field.evaluate(f"one => [{background}, (one.closest('fieldset').disabled = false, {background})]")
        field.evaluate("one => { one.closest('fieldset').disabled = true; }")
        assert colors[0] != colors[1], (theme, colors)
    page.emulate_media(color_scheme=None)
    assert axe.find_violations_in_light_and_dark(page) == []
    save_screenshot(page, f"looked-at{path.replace('/', '-')}")
