"""The test inbox: simulating opens, clicks, bounces and replies, with their real effects."""

import re
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.api.test_threats_pages import Visitor
from tests.kit import axe
from tests.kit.client import Client
from tests.kit.forms import create_form, submit_form
from tests.kit.html_page import HtmlPage, text_of
from tests.kit.scriptless_browser import ScriptlessBrowser
from tests.kit.server import PASSWORD, Server

LINKED = "<p><a href='https://example.com/'>Read</a></p>"


def captured(api: Client, address: str, **fields: Any) -> tuple[Any, int]:
    """Send a message to a new contact; return it and its id in the inbox."""
    api.post("/contacts", {"email": address}).expect(201)
    message = api.post("/messages", {"to": address, "subject": "News", "body": LINKED, **fields}).expect(201)
    [row] = api.wait("/capture", bool, message_id=message["id"])
    return message, row["id"]


def simulate(user: ScriptlessBrowser, number: int, action: str) -> HtmlPage:
    """Open a message in the inbox, simulate an event, and return the page then."""
    page = HtmlPage(user, f"/inbox/{number}").press(action)
    assert page.path.partition("?")[0] == f"/inbox/{number}"
    return page


def test_simulated_events_of_an_email(user: ScriptlessBrowser, api: Client) -> None:
    """A simulated click and bounce change message and contact, and are confirmed on the page."""
    message, number = captured(api, "ann@example.org", transactional=False)
    assert "Click recorded." in simulate(user, number, "Click a link").text
    page = simulate(user, number, "Hard bounce")
    assert "Hard bounce recorded: the address does not exist." in page.text
    updated = api.get(f"/messages/{message['id']}").expect(200)
    assert updated["status"] == "bounced" and updated["clicked_at"] is not None
    assert api.get("/suppressions", address="ann@example.org").expect(200)[0]["reason"] == "hard_bounce"


def test_a_click_needs_a_tracked_link(user: ScriptlessBrowser, api: Client) -> None:
    """In a message without tracked links the click button is disabled."""
    message, number = captured(api, "bob@example.org")
    page = HtmlPage(user, f"/inbox/{number}")
    [button] = page.named("button", "Click a link")
    assert "disabled" in button.attrib and page.has("#no-links", "no links that are tracked")
    assert api.get(f"/messages/{message['id']}").expect(200)["clicked_at"] is None


@pytest.mark.full
def test_the_confirmation_link_of_a_sign_up_can_be_followed(
    browser_page: Page, user: ScriptlessBrowser, server: Server
) -> None:
    """A button opens the confirmation page; the email itself links to it too, and confirming there subscribes."""
    form = create_form(server, "Twice")
    api = server.client()
    api.patch(f"/lists/{form['list_ids'][0]}", {"double_opt_in": True, "public": True}).expect(200)
    assert submit_form(server, form, email="double@example.org").status < 300
    [row] = api.wait("/capture", bool, search="double@example.org")
    page = browser_page
    page.goto(f"/inbox/{row['id']}")
    button = page.get_by_role("link", name="Open confirmation link")
    address = button.get_attribute("href")
    assert address == page.frame_locator("#mail iframe").locator("a[href*='/d/']").first.get_attribute("href")
    with page.expect_popup() as popup:
        button.click()
    popup.value.get_by_role("button").click()
    expect(popup.value.get_by_role("heading", level=1)).to_contain_text("subscribed")
    popup.value.close()


def test_an_sms_in_the_inbox(browser_page: Page, user: ScriptlessBrowser, api: Client) -> None:
    """An SMS is shown with its parts; replies, receipts and STOP can be simulated."""
    page, number = browser_page, "+15550300001"
    api.post("/contacts", {"phone": number}).expect(201)
    message = api.post("/messages", {"channel": "sms", "to": number, "body": "Doors open at “8” <b>pm</b>"}).expect(201)
    [row] = api.wait("/capture", bool, message_id=message["id"])
    page.goto("/inbox")
    line = page.get_by_role("listitem").filter(has_text=number)
    expect(line).to_contain_text("SMS without a sender")
    line.get_by_role("link").click()
    expect(page.get_by_role("heading", name=f"SMS to {number}")).to_be_visible()
    expect(page.locator(".bubble")).to_contain_text("Doors open at “8” <b>pm</b>")
    expect(page.get_by_text("1 part · 27 characters · UCS-2")).to_contain_text("UCS-2 because of ““”")
    page.get_by_label("Reply as the recipient").fill("Thanks <i>!</i>")
    page.get_by_role("button", name="Send reply").click()
    expect(page.locator(".bubble.mine")).to_contain_text("Thanks <i>!</i>")
    assert "Delivery recorded." in simulate(user, row["id"], "Deliver").text
    assert len(simulate(user, row["id"], "Reply STOP").all(".bubble.mine")) == 2
    assert api.get(f"/messages/{message['id']}").expect(200)["status"] == "delivered"
    assert api.get("/suppressions", address=number).expect(200)[0]["reason"] == "stop_keyword"
    timeline = text_of(HtmlPage(user, f"/contacts/{message['contact_id']}").one(".timeline"))
    assert re.search("Replied by SMS ?Thanks <i>!</i>", timeline)


@pytest.mark.full
def test_choosing_the_clicked_link(browser_page: Page, api: Client) -> None:
    """Of several links one is chosen by its URL, and the event appears beside the message."""
    page = browser_page
    body = "<p><a href='https://example.com/one'>One</a> <a href='https://example.com/two'>Two</a></p>"
    message, number = captured(api, "eve@example.org", transactional=False, body=body)
    page.goto(f"/inbox/{number}")
    page.get_by_role("button", name="Click a link").click()
    page.get_by_role("button", name="example.com/two").click()
    expect(page.locator(".plays .status-text")).to_contain_text("Click recorded.")
    page.get_by_role("navigation", name="View").get_by_role("link", name="Activity").click()
    expect(page.locator(".timeline")).to_contain_text("https://example.com/two")
    assert axe.find_violations_in_light_and_dark(page) == []
    [event] = api.get("/events", event="email_clicked", contact_id=message["contact_id"]).expect(200)
    assert event["resource_url"] == "https://example.com/two"


@pytest.mark.full
def test_inbox_filters(browser_page: Page, api: Client) -> None:
    """The list is filtered by channel and search, also on a phone."""
    page = browser_page
    captured(api, "sift@example.org")
    page.goto("/inbox")
    page.get_by_role("link", name="SMS", exact=True).click()
    expect(page.locator("#rows")).not_to_contain_text("sift@example.org")
    page.get_by_role("link", name="Email", exact=True).first.click()
    page.get_by_label("Search messages").fill("sift")
    expect(page.locator("#rows li")).to_have_count(1)
    expect(page).to_have_url(re.compile("search=sift.*channel=email|channel=email.*search=sift"))
    page.set_viewport_size({"width": 320, "height": 700})
    page.locator("#rows li a").click()
    expect(page.get_by_role("link", name="Back to the list")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 320


def test_inbox_updates_and_shortcuts(browser_page: Page, api: Client) -> None:
    """New messages appear on top without moving the focus; j and k move it."""
    page = browser_page
    first, second = (captured(api, f"{name}@keys.example")[1] for name in ("one", "two"))
    page.goto("/inbox?search=keys.example")
    page.keyboard.press("j")
    expect(page.locator(f"#c-{second}")).to_be_focused()
    page.keyboard.press("j")
    third = captured(api, "three@keys.example")[1]
    expect(page.locator(".mail .list > li").first.locator(f"#c-{third}")).to_be_visible()
    expect(page.locator(f"#c-{first}")).to_be_focused()
    page.keyboard.press("k")
    page.keyboard.press("Enter")
    expect(page.locator(".mail .read header")).to_contain_text("two@keys.example")
    page.goto("/activity")
    page.keyboard.press("j")
    expect(page.locator(".timeline > li a, .timeline > li summary").first).to_be_focused()


def test_emptying_the_inbox(browser_page: Page, api: Client, server: Server) -> None:
    """Only owners and admins may empty the inbox; an author can simulate events."""
    number = captured(api, "kept@example.org")[1]
    server.cli("user", "add", "--email", "author@example.org", "--role", "author", stdin=PASSWORD + "\n")
    author = Visitor(server, "author@example.org")
    shown = author.send("GET", f"/inbox/{number}").text
    assert "Open email</button>" in shown and "/inbox/clear" not in shown
    page = browser_page
    page.goto("/inbox")
    page.get_by_role("button", name="Empty inbox").click()
    page.get_by_role("dialog").get_by_role("button", name="Empty inbox").click()
    expect(page.locator(".toast").last).to_contain_text("Test inbox emptied.")
    expect(page.get_by_role("heading", name="No messages yet")).to_be_visible()
