"""The SMS conversation with a contact: replies, decisions about unclear texts, and the SMS counter."""

from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.kit import axe
from tests.kit.client import Client
from tests.kit.html_page import HtmlPage
from tests.kit.scriptless_browser import ScriptlessBrowser
from tests.kit.server import PASSWORD, Server


def contact_with_sms(api: Client, number: str) -> tuple[int, int]:
    """Create a contact that got an SMS; return its id and the id of the captured SMS."""
    contact_id = api.post("/contacts", {"first_name": "Anna", "phone": number, "opt_in": True}).expect(201)["id"]
    message = api.post("/messages", {"channel": "sms", "to": number, "body": "Come by until 6 pm."}).expect(201)
    [row] = api.wait("/capture", bool, message_id=message["id"])
    return contact_id, row["id"]


def receive_reply(api: Client, captured: int, text: str) -> None:
    """Simulate a reply of the contact."""
    api.post(f"/capture/{captured}/simulate", {"action": "reply", "text": text}).expect(200)


def conversation(api: Client, contact_id: int) -> list[Any]:
    """Return the conversation of a contact, newest first."""
    return list(api.get(f"/contacts/{contact_id}/conversation").expect(200))


def test_replying_in_a_conversation(browser_page: Page, api: Client) -> None:
    """Incoming and sent texts are shown together, and a reply is sent as typed, without merge tags."""
    page = browser_page
    contact_id, captured = contact_with_sms(api, "+14155550101")
    receive_reply(api, captured, "Is there <b>parking</b>?")
    page.goto(f"/contacts/{contact_id}/conversation")
    expect(page.locator(".bubble:not(.mine)")).to_contain_text("Is there <b>parking</b>?")
    page.get_by_role("button", name="Send SMS").click()
    expect(page.get_by_text("Enter a message.")).to_be_visible()
    page.get_by_label("Reply").fill("Yes, {{ behind }} the house.")
    page.get_by_role("button", name="Send SMS").click()
    assert axe.find_violations_in_light_and_dark(page) == []
    expect(page.locator(".bubble.mine").last).to_contain_text("Yes, {{ behind }} the house.")
    expect(page.get_by_label("Reply")).to_have_value("")
    [row] = api.wait("/capture", bool, search="the house")
    assert row["to"] == "+14155550101"


def test_deciding_about_an_unclear_reply(user: ScriptlessBrowser, api: Client) -> None:
    """A user may treat a possible refusal as a STOP, which suppresses the number and removes the form."""
    contact_id, captured = contact_with_sms(api, "+14155550102")
    receive_reply(api, captured, "I told your colleague to stop this already")
    page = HtmlPage(user, f"/contacts/{contact_id}/conversation").press("Unsubscribe from SMS")
    assert "This contact replied STOP" in page.text and not page.named("textarea", "Reply")
    assert api.get("/suppressions", address="+14155550102").expect(200)[0]["reason"] == "stop_keyword"


def test_conversations_without_javascript_and_for_viewers(user: ScriptlessBrowser, server: Server, api: Client) -> None:
    """The form works without JavaScript; a viewer reads the conversation and has no form."""
    contact_id, _ = contact_with_sms(api, "+14155550103")
    server.cli("user", "add", "--email", "viewer@example.org", "--role", "viewer", stdin=f"{PASSWORD}\n")
    page = HtmlPage(user, f"/contacts/{contact_id}/conversation")
    page.fill("Reply", "Without a script")
    page.press("Send SMS")
    assert conversation(api, contact_id)[0]["body"] == "Without a script"
    page = HtmlPage(ScriptlessBrowser(api, "viewer@example.org"), f"/contacts/{contact_id}/conversation")
    assert page.has("#conversation", "Without a script")
    assert page.all("#conversation form") == []


@pytest.mark.full
def test_the_list_of_replies(browser_page: Page, api: Client) -> None:
    """All replies are listed, and possible refusals wait there for a decision."""
    page = browser_page
    _, captured = contact_with_sms(api, "+14155550104")
    receive_reply(api, captured, "Lovely <i>thanks</i>")
    receive_reply(api, captured, "I told your colleague to stop this already")
    page.goto("/activity")
    page.get_by_role("link", name="SMS replies 1 to review").click()
    row = page.get_by_role("listitem").filter(has_text="I told your colleague")
    expect(row).to_be_visible()
    assert axe.find_violations_in_light_and_dark(page) == []
    row.get_by_role("button", name="Not an opt-out").click()
    expect(page.get_by_text("Nothing to review")).to_be_visible()
    page.get_by_role("link", name="Show all replies").click()
    expect(page.get_by_text("Lovely <i>thanks</i>")).to_be_visible()
    assert api.get("/suppressions", address="+14155550104").expect(200) == []


@pytest.mark.full
def test_the_sms_counter(browser_page: Page, api: Client) -> None:
    """Characters, parts and alphabet are shown while typing, and the first character outside GSM-7 is named."""
    page = browser_page
    contact_id, _ = contact_with_sms(api, "+14155550105")
    page.goto(f"/contacts/{contact_id}/conversation")
    box, meter = page.get_by_label("Reply"), page.locator("#sms-meter")
    expect(meter).to_contain_text("0 characters · 0 parts")
    box.press_sequentially("{{ x }} " + "a" * 153)
    expect(meter).to_contain_text("161 characters · 2 parts")
    expect(meter).to_contain_text("Standard characters (GSM-7)")
    box.fill("Crêpes → now")
    expect(meter).to_contain_text("12 characters · 1 part")
    expect(meter).to_contain_text("Unicode characters (UCS-2)")
    expect(meter).to_contain_text("“ê”")
    expect(box).to_be_focused()
    assert axe.find_violations_in_light_and_dark(page) == []
    page.goto(f"/contacts/{contact_id}")
    page.get_by_label("Reply").fill("Two words")
    expect(page.locator("#sms-meter")).to_contain_text("9 characters · 1 part")
    assert len(conversation(api, contact_id)) == 1
