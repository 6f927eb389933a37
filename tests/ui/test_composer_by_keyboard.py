"""Composing an email by keyboard alone, by users who may not send, and without JavaScript."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.kit.browser import Problems, new_page, new_scriptless_context, sign_in
from tests.kit.client import Client
from tests.kit.clock import TestClock
from tests.kit.server import PASSWORD, Server
from tests.kit.smtp import SmtpServer
from tests.ui.composer_world import clock, draft, page, recipients_of, server, smtp

__all__ = ["clock", "page", "server", "smtp"]


def _design_by_keyboard(page: Page, tab_to: Callable[[str], None]) -> None:
    """Add a heading and a footer in the editor by keyboard, write the heading, and return to the campaign."""
    page.wait_for_url("**/content")
    text = "Baked by keyboard"
    for kind in ("heading", "footer"):
        tab_to("#o-, #tab-palette")
        page.keyboard.press("a")
        expect(page.locator("#palette :focus")).to_be_visible()
        tab_to(f"#palette button[value={kind}]")
        page.keyboard.press("Enter")
        expect(page.locator(f"#outline li[data-kind={kind}]")).to_be_attached()
        if kind == "heading":
            tab_to("#inspector .ed")
            page.keyboard.press("Control+a")
            page.keyboard.type(text)
            expect(page.frame_locator("#canvas").get_by_role("heading", name=text)).to_be_visible()
    tab_to("a.primary[href*='/campaigns/']")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"/campaigns/\d+(\?.*)?$"))


def test_composing_by_keyboard(page: Page, api: Client, smtp: SmtpServer, clock: TestClock) -> None:
    """A campaign is created, designed, tested and sent without a mouse."""
    page.goto("/campaigns")
    page.keyboard.press("c")
    expect(page.get_by_label("Name")).to_be_focused()
    page.keyboard.type("By keyboard")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("By keyboard")

    def tab_to(target: str) -> None:
        for _ in range(60):
            page.keyboard.press("Tab")
            if page.evaluate("at => document.activeElement.matches(at)", target):
                return
        raise AssertionError(f"the keyboard does not reach {target}")

    tab_to("#list-picks input")
    page.keyboard.press("Space")
    expect(page.locator(".sums .total")).to_have_text("=8 contacts")
    tab_to("#card-from summary")
    page.keyboard.press("Enter")
    tab_to("#card-from .ed")
    page.keyboard.type("Typed")
    expect(page.locator("#side .mailrow")).to_contain_text("Typed")
    tab_to("#card-content > summary")
    page.keyboard.press("Enter")
    tab_to(".begins a[href$='/content']")
    page.keyboard.press("Enter")
    _design_by_keyboard(page, tab_to)
    expect(page.locator("#card-content summary").first).to_contain_text("2 sections")
    tab_to(".acts a[href$='/test']")
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog").get_by_role("button", name="Send test email")).to_be_visible()
    tab_to("dialog button.primary")
    page.keyboard.press("Enter")
    expect(page.get_by_text("Sending a test to")).to_be_visible()
    tab_to(".acts a[href$='/send']")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Send to 8 contacts?")).to_be_focused()
    tab_to("dialog button.primary")
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Undo")).to_be_visible()
    clock.advance(20)
    smtp.wait_until(lambda: len(recipients_of(smtp, "Typed")) == 8, "what was typed")
    tested = next(message for message in smtp.messages if message.subject == "[Test] Typed")
    sent = next(message for message in smtp.messages if message.subject == "Typed")
    assert all("Baked by keyboard" in (message.html() or "") for message in (tested, sent))


@pytest.mark.full
def test_users_who_may_not_send(browser: Browser, server: Server, api: Client) -> None:
    """An author edits and reviews, a viewer only reads; neither is offered to send."""
    campaign_id = draft(api, "Looked at")
    for role, may_write in (("author", True), ("viewer", False)):
        server.cli("user", "add", "--email", f"{role}@example.org", "--role", role, stdin=PASSWORD + "\n")
        problems = Problems()
        page = sign_in(new_page(browser, server.url, problems), f"{role}@example.org")
        page.goto(f"/campaigns/{campaign_id}?open=to")
        assert page.get_by_label("Workshop").is_enabled() == may_write
        assert (page.get_by_role("link", name="Send test email").count() == 1) == may_write
        page.get_by_role("link", name="Review", exact=True).click()
        expect(page.get_by_role("dialog")).to_contain_text("Ask a team member with permission to send")
        expect(page.get_by_role("dialog").get_by_role("button")).to_have_count(0)
        page.context.close()
        assert not problems.found


@pytest.mark.full
def test_composing_without_javascript(browser: Browser, server: Server, api: Client) -> None:
    """Each card is a form with a button; test and send are pages."""
    campaign_id = draft(api, "Plain")
    context = new_scriptless_context(browser, server.url)
    page = sign_in(context.new_page())
    page.goto(f"/campaigns/{campaign_id}?open=to")
    page.get_by_label("Workshop").check()
    page.locator("#card-to").get_by_role("button", name="Save").click()
    expect(page.locator("#card-to .sums")).to_contain_text("12 in Newsletter, Workshop")
    page.get_by_role("link", name="Send test email").click()
    page.get_by_label("To", exact=True).fill("plain@bakery.example")
    page.get_by_role("button", name="Send test email").click()
    expect(page.get_by_text("Sending a test to plain@bakery.example.")).to_be_visible()
    page.get_by_role("link", name="Review and send").click()
    page.get_by_role("button", name="Send to 11 contacts").click()
    assert api.get(f"/campaigns/{campaign_id}").json["phase"] == "holding"
    context.close()
