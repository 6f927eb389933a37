"""The contact that the editor previews and tests show, the caret beside merge tags, and the time of the last save."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.kit.browser import save_screenshot
from tests.kit.client import Client
from tests.kit.clock import TestClock
from tests.kit.editor import wait_until_saved
from tests.kit.server import Server
from tests.kit.smtp import SmtpServer
from tests.ui.composer_world import clock, draft, page, server, smtp
from tests.ui.test_canvas_mouse_and_keyboard import heading, make, open_editor

__all__ = ["clock", "page", "server", "smtp"]

GREETING = "Good day {{ contact.first_name | default: 'friend' }}"


@pytest.fixture(scope="module", autouse=True)
def born(server: Server) -> None:
    """Create a contact with a date before the first merge tag menu, whose fields are cached for half a minute."""
    data = {"birthday": "1964-06-08"}
    server.client().post("/contacts", {"email": "born@example.org", "data": data}).expect(201)


def find_person(page: Page, words: str) -> None:
    """Choose the first contact that the search of the preview finds, by keyboard alone."""
    page.locator("[popovertarget=as-menu]").click()
    expect(page.get_by_label("Search contacts")).to_be_focused()
    page.keyboard.type(words)
    page.keyboard.press("Enter")


def send_test(page: Page, smtp: SmtpServer, address: str) -> str:
    """Send a test from the editor to an address and return what arrived."""
    page.locator("#f-emails").fill(address)
    page.locator("#send-test .primary").click()
    expect(page.locator(".toast")).to_contain_text(f"Sending a test to {address}.")
    smtp.wait_until(lambda: any(message.to == address for message in smtp.messages), "the test")
    return next(message.text() or "" for message in smtp.messages if message.to == address)


def test_enter_takes_the_first_person_found(page: Page, api: Client) -> None:
    """Enter takes the first match as soon as it is found, and the next search starts empty."""
    frame = open_editor(page, make(api, heading("a", GREETING)))
    expect(frame.get_by_role("heading", name="Good day Anna")).to_be_visible()
    find_person(page, "ann7")
    expect(frame.get_by_role("heading", name="Good day Ann7")).to_be_visible()
    expect(page.locator("#as-menu")).to_be_hidden()
    page.locator("[popovertarget=as-menu]").click()
    expect(page.get_by_label("Search contacts")).to_have_value("")
    expect(page.locator("#as-people").get_by_text("Sample contact")).to_be_visible()
    page.keyboard.type("ann6")
    expect(page.locator("#as-people button")).to_have_count(1)
    page.keyboard.press("Enter")
    expect(frame.get_by_role("heading", name="Good day Ann6")).to_be_visible()
    # What is typed at once after the menu has opened is not lost
    page.keyboard.press("Escape")
    typed = page.evaluate("""() => {
      document.querySelector('[popovertarget=as-menu]').click();
      document.activeElement.value = 'a';
      return new Promise((resolve) => setTimeout(() => resolve(document.activeElement.value), 100));
    }""")
    assert typed == "a"


def test_a_test_shows_the_contact_of_the_preview(page: Page, api: Client, smtp: SmtpServer) -> None:
    """A test has the data of the previewed contact, which its dialog names; another choice shows the fallbacks."""
    frame = open_editor(page, make(api, heading("a", GREETING)))
    page.get_by_role("button", name="Send test").first.click()
    # One choice is not asked about
    expect(page.get_by_label("The contact with the test address, or sample data")).to_be_checked()
    expect(page.get_by_label("The contact with the test address, or sample data")).to_be_hidden()
    assert "Good day friend" in send_test(page, smtp, "before@bakery.example")
    find_person(page, "ann7")
    expect(frame.get_by_role("heading", name="Good day Ann7")).to_be_visible()
    page.get_by_role("button", name="Send test").first.click()
    expect(page.get_by_label("Ann7")).to_be_checked()
    save_screenshot(page, "editor-send-test")
    assert "Good day Ann7" in send_test(page, smtp, "with@bakery.example")
    page.get_by_role("button", name="Send test").first.click()
    page.get_by_label("The contact with the test address, or sample data").check()
    assert "Good day friend" in send_test(page, smtp, "without@bakery.example")


@pytest.mark.full
def test_the_caret_is_behind_a_changed_merge_tag(page: Page, api: Client) -> None:
    """After a change of a merge tag's fallback one types on behind the tag, after its removal in its place."""
    page.goto(f"/templates/{make(api, heading('a', 'Fresh bread'))}/edit?s=a")
    field = page.locator("#inspector").get_by_label("Text", exact=True)
    field.click()
    page.keyboard.press("Home")
    page.keyboard.type("{{")
    page.get_by_label("Search merge tags").fill("first name")
    page.keyboard.press("Enter")
    field.locator(".merge").click()
    page.get_by_role("textbox", name="Fallback").fill("you")
    page.keyboard.press("Enter")
    page.keyboard.type(" and all: ")
    expect(field).to_have_text(re.compile("First name ▸ you\u200b? and all: \u200b?Fresh bread"))
    field.locator(".merge").click()
    page.locator("#merge-chip").get_by_role("button", name="Remove").click()
    page.keyboard.type("You")
    expect(field).to_have_text(re.compile("^\u200b*You\u200b* and all: \u200b?Fresh bread"))


@pytest.mark.full
def test_a_date_is_inserted_with_its_format(page: Page, api: Client) -> None:
    """The menu of merge tags inserts a date of contacts so that it is written with the name of its month."""
    path = make(api, heading("a", "Fresh bread"))
    page.goto(f"/templates/{path}/edit?s=a")
    field = page.locator("#inspector").get_by_label("Text", exact=True)
    field.click()
    page.keyboard.press("End")
    page.keyboard.type("{{")
    page.get_by_label("Search merge tags").fill("8 June 1964")
    page.keyboard.press("Enter")
    expect(field.locator(".merge")).to_have_text("Birthday")
    field.locator(".merge").click()
    page.get_by_role("textbox", name="Fallback").fill("your day")
    page.keyboard.press("Enter")
    expect(field.locator(".merge")).to_have_text("Birthday ▸ your day")
    tag = '{{ contact.data.birthday | date | default: "your day" }}'
    expect(field.locator(".merge")).to_have_attribute("data-tag", tag)


@pytest.mark.full
def test_the_composer_shows_when_the_editor_saved(page: Page, api: Client, clock: TestClock) -> None:
    """The composer and the table of campaigns show the time of the last save, also of one in the editor."""
    sections = [{"id": "a", "type": "heading", "props": {"text": "First"}}]
    campaign_id = draft(api, "Saved when")
    template_id = api.get(f"/campaigns/{campaign_id}").expect(200)["template"]["id"]
    api.patch(f"/templates/{template_id}", {"body": None, "design": {"sections": sections}}).expect(200)
    page.goto(f"/campaigns/{campaign_id}")
    before = page.locator("#saved-text").inner_text()
    clock.advance(5 * 60)
    page.goto(f"/campaigns/{campaign_id}/content?s=a")
    page.locator("#inspector").get_by_label("Text", exact=True).fill("Second")
    wait_until_saved(page)
    saved = page.locator("#saved").inner_text()
    assert re.fullmatch(r"Saved \d\d:\d\d", saved) and saved != before
    page.get_by_role("link", name="Done").click()
    expect(page.locator("#saved-text")).to_have_text(saved)


def test_the_sample_follows_a_colour_without_its_sign(page: Page) -> None:
    """The sample email of the brand shows a colour that was typed without #, and the picker has it too."""
    page.goto("/brand")
    field = page.get_by_label("Brand colour", exact=True)
    field.fill("8a4b10")
    page.keyboard.press("Tab")
    expect(page.locator("#f-brand-color-well")).to_have_value("#8a4b10")
    button = page.frame_locator("#sample iframe").locator("a[style*='background']").first
    expect(button).to_have_css("background-color", "rgb(138, 75, 16)")
