"""Sign-in with a certified provider in Chromium: set up, joined, linked in the profile, and signed out of both."""

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.kit import axe
from tests.kit.browser import Problems, lent_page
from tests.kit.certified_provider import certified_provider
from tests.kit.oidc_provider import CLIENT_ID, CLIENT_SECRET
from tests.kit.server import PASSWORD, Server, free_port

SERVER_ENV = {"CAMPANERO_NETWORK__ALLOW_PRIVATE_HOSTS": "127.0.0.1"}


def replace_fonts(page: Page) -> None:
    """Replace the fonts that the pages of the provider load, so that no request leaves the machine."""
    page.route("https://fonts.googleapis.com/**", lambda route: route.fulfill(body="", content_type="text/css"))


def sign_in_there(page: Page, name: str) -> None:
    """Sign in at the provider, and consent."""
    page.get_by_placeholder("Enter any login").fill(name)
    page.get_by_placeholder("and password").fill("any")
    page.get_by_role("button", name="Sign-in").click()
    page.get_by_role("button", name="Continue").click()


@pytest.mark.full
def test_the_whole_way(browser: Browser, browser_page: Page, server: Server, browser_problems: Problems) -> None:
    """An owner adds the provider, a colleague joins and signs out, and the owner links and signs in with it."""
    page, port = browser_page, free_port()
    replace_fonts(page)
    page.goto("/settings/sign-in")
    page.get_by_role("link", name="Another provider").click()
    assert axe.find_violations(page) == []
    redirect_uri = page.get_by_label("Redirect URI").input_value()
    page.get_by_label("Name on the button").fill("Company")
    page.get_by_label("Issuer").fill(f"http://127.0.0.1:{port}")
    page.get_by_label("Client ID").fill(CLIENT_ID)
    page.get_by_label("Client secret").fill(CLIENT_SECRET)
    page.get_by_label("Domains").fill("bakery.example")
    page.get_by_role("button", name="Add provider").click()
    page.get_by_text("Provider added. Test it now.").wait_for()
    page.get_by_role("button", name="Test connection").click()
    page.get_by_text("cannot be reached").wait_for()
    with certified_provider(port, redirect_uri, f"{server.url}/login"):
        page.get_by_role("button", name="Test connection").click()
        page.get_by_text("The provider works").wait_for()
        assert axe.find_violations(page) == []
        with lent_page(browser, server.url, browser_problems) as colleague:
            replace_fonts(colleague)
            colleague.goto("/login?next=/contacts")
            assert axe.find_violations(colleague) == []
            colleague.get_by_role("link", name="Sign in with Company").click()
            sign_in_there(colleague, "ben")
            colleague.wait_for_url("**/contacts")
            colleague.goto("/settings/you")
            colleague.get_by_text("ben@bakery.example").first.wait_for()
            colleague.evaluate("document.querySelector('form[action=\"/logout\"]').requestSubmit()")
            colleague.get_by_role("link", name="Also sign out of Company").wait_for()
            assert axe.find_violations(colleague) == []
            colleague.get_by_role("link", name="Also sign out of Company").click()
            colleague.get_by_role("button", name="Yes, sign me out").click()
            colleague.wait_for_url("**/login")
        page.goto("/settings/you")
        page.get_by_role("link", name="Link Company").click()
        assert axe.find_violations(page) == []
        page.get_by_label("Your password").fill(PASSWORD)
        page.get_by_role("button", name="Continue").click()
        page.get_by_role("link", name="Continue to Company").click()
        sign_in_there(page, "ana")
        page.get_by_text("Company linked.").wait_for()
        expect(page.get_by_role("button", name="Unlink")).to_be_visible()
