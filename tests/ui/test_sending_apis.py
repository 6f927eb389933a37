"""Email over an HTTP API in the browser: testing the key in the provider's words, and saving it."""

import pytest
from playwright.sync_api import Browser, expect

from tests.conftest import FreshServer
from tests.kit.axe import find_violations_in_light_and_dark
from tests.kit.browser import Problems, new_page, save_screenshot, sign_in
from tests.kit.email_apis import FakeEmailApi, responds
from tests.kit.sampling import thin_out
from tests.kit.server import Server


@pytest.mark.full
def test_connecting_an_http_api(browser: Browser, fresh_server: FreshServer, browser_problems: Problems) -> None:
    """Errors appear at their field or in the provider's words; the saved API is used by the next email."""
    with FakeEmailApi("postmark") as provider:
        server = fresh_server(env={"CAMPANERO_EMAIL__POSTMARK__BASE_URL": provider.url})
        page = sign_in(new_page(browser, server.url, browser_problems))
        page.goto("/settings/sending")
        page.get_by_text("Email service over HTTPS").click()
        page.get_by_role("radio", name="Amazon SES", exact=True).check()
        expect(page.get_by_label("Secret access key")).to_be_visible()
        page.get_by_role("radio", name="Mailgun", exact=True).check()
        page.get_by_label("Domain", exact=True).fill("not a domain")
        page.get_by_role("button", name="Test connection").click()
        error = page.locator("#f-email-mailgun-domain-err")
        expect(error).to_contain_text("Enter a domain, such as example.com.")
        # What is hidden now is neither checked nor saved
        page.get_by_role("radio", name="Postmark", exact=True).check()
        expect(page.get_by_label("Secret access key")).to_be_hidden()
        page.get_by_role("button", name="Test connection").click()
        expect(page.locator("#f-email-postmark-server-token-err")).to_contain_text("Server token is required")
        page.get_by_label("Server token").fill("wrong")
        page.get_by_role("button", name="Test connection").click()
        status = page.get_by_role("status").filter(has_text="Postmark rejected the login")
        expect(status.locator(".whole")).to_contain_text("Bad or missing Server API token.")
        save_screenshot(page, "sending-api-rejected")
        page.get_by_label("Server token").fill("postmark-token")
        provider.rules.append(responds(503, look_ups=True, times=1))
        page.get_by_role("button", name="Test connection").click()
        expect(page.get_by_role("status").filter(has_text="cannot be used with these settings")).to_be_visible()
        page.get_by_label("Server token").fill("postmark-token")
        page.get_by_role("button", name="Test connection").click()
        expect(page.get_by_text("The token of the server Bakery is accepted.")).to_be_visible()
        assert find_violations_in_light_and_dark(page) == []

        page.get_by_label("Server token").fill("postmark-token")
        page.get_by_label("Allowed sending domains").select_option("true")
        page.get_by_role("button", name="Save").first.click()
        expect(page.get_by_text("Saved. New settings apply to all messages sent from now on.")).to_be_visible()
        expect(page.locator("#email-way header .pill")).to_have_text("Live")
        expect(page.get_by_label("Server token")).to_have_value("")
        expect(page.get_by_label("Server token")).to_have_attribute("placeholder", "Saved. Type to replace it.")
        page.goto("/settings")
        expect(page.get_by_text("Postmark", exact=True)).to_be_visible()
        send_one(server, provider)
        page.goto("/settings/audit")
        expect(page.get_by_text("Postmark: Server token")).to_be_visible()
        page.goto("/welcome/mail")
        expect(page.get_by_role("radio", name="Postmark", exact=True)).to_be_checked()
        save_screenshot(page, "setup-api")
        for path in thin_out(("microsoft", "google"), 2):
            page.goto(f"/settings/sending/connect/{path}")
            assert find_violations_in_light_and_dark(page) == []
        page.get_by_label("Application (client) ID").fill("6731de76")
        page.get_by_role("button", name="Save").click()
        expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
        save_screenshot(page, "connect-mailbox")
        page.context.close()
    assert "postmark-token" not in server.output
    assert not browser_problems.found


def send_one(server: Server, provider: FakeEmailApi) -> None:
    """Send an email, which arrives at the provider."""
    body = {"to": "anna@crowd.example", "from_email": "ana@bakery.example", "subject": "Bread", "body": "<p>Fresh</p>"}
    server.client().post("/messages", body).expect(201)
    [email] = provider.wait_for(1)
    assert email.more["MessageStream"] == "outbound"
