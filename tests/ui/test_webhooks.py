"""The webhooks pages: creation with a secret shown once, test deliveries, and the log."""

import re

from playwright.sync_api import Page, expect

from tests.kit import axe
from tests.kit.client import Client
from tests.kit.html_page import HtmlPage
from tests.kit.scriptless_browser import ScriptlessBrowser
from tests.kit.server import PASSWORD, Server
from tests.kit.webhook_receiver import Receiver

SERVER_ENV = {"CAMPANERO_NETWORK__ALLOW_PRIVATE_HOSTS": "127.0.0.1"}


def test_a_webhook_in_the_browser(browser_page: Page, api: Client, receiver: Receiver) -> None:
    """Errors appear at their fields, the secret is shown once, and deliveries are logged and can be repeated."""
    page = browser_page
    page.goto("/settings/webhooks")
    page.get_by_role("link", name="New webhook").click()
    page.get_by_role("textbox", name="URL").fill("ftp://nowhere")
    page.get_by_label("Selected events").check()
    page.get_by_label("Other custom events").fill("Order Paid")
    page.get_by_role("button", name="Create webhook").click()
    expect(page.locator("#f-url-err")).to_contain_text("Enter a public URL")
    expect(page.locator("#f-own-err")).to_contain_text("lowercase letters")
    page.get_by_role("textbox", name="URL").fill(receiver.url)
    page.get_by_label("Other custom events").fill("order_paid")
    page.get_by_role("checkbox", name="Email bounced email_bounced").check()
    page.get_by_role("button", name="Create webhook").click()
    expect(page.get_by_text(re.compile("^whsec_"))).to_be_visible()
    assert axe.find_violations_in_light_and_dark(page) == []
    page.reload()
    expect(page.get_by_text(re.compile("^whsec_"))).to_have_count(0)
    assert api.get("/webhooks").expect(200)[0]["events"] == ["email_bounced", "order_paid"]
    page.get_by_role("button", name="Send test event").click()
    expect(page.get_by_role("status").first).to_contain_text("Test event delivered: response 200")
    api.post("/events", {"event": "order_paid", "contact_email": "a@example.org", "create_contact": True}).expect(201)
    api.wait("/webhooks/1/deliveries", lambda rows: bool(rows) and rows[0]["status"] == "delivered")
    page.goto("/settings/webhooks/1")
    expect(page.get_by_role("row", name="Placed an order (paid)")).to_contain_text("Delivered")
    page.get_by_role("button", name="Resend “Placed an order (paid)”").click()
    expect(page.locator(".toast")).to_contain_text("Event queued again.")
    page.get_by_role("button", name="More actions").first.click()
    page.get_by_role("button", name="Turn off").click()
    expect(page.get_by_text("Off", exact=True)).to_be_visible()
    page.wait_for_load_state()
    page.set_viewport_size({"width": 320, "height": 700})
    assert page.evaluate("document.documentElement.scrollWidth") <= 320


def test_an_editor_sees_only_the_host_of_a_webhook(server: Server, api: Client) -> None:
    """An editor sees no path of the URL, which may be secret, and no buttons."""
    webhook = api.post("/webhooks", {"url": "https://shop.example/hook/s3cret"}).expect(201)
    server.cli("user", "add", "--email", "editor@example.org", "--role", "editor", stdin=PASSWORD + "\n")
    editor = ScriptlessBrowser(api, "editor@example.org")
    webhook_page = f"/settings/webhooks/{webhook['id']}"
    for path, status in (
        ("/settings/webhooks", 200),
        (webhook_page, 200),
        (f"{webhook_page}/edit", 403),
        ("/settings/webhooks/new", 403),
    ):
        response = editor.request("GET", path)
        assert response.status == status and "s3cret" not in response.text, path
    assert [each for each in HtmlPage(editor, webhook_page).all("main button") if "data-copy" not in each.attrib] == []
