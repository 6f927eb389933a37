"""SMS campaigns in the browser: the composer shows the text and its parts, and has no subject."""

import pytest
from playwright.sync_api import Page, expect

from tests.kit.browser import save_screenshot
from tests.kit.client import Client
from tests.kit.html_page import HtmlPage
from tests.kit.scriptless_browser import ScriptlessBrowser
from tests.kit.server import Server
from ui import formats


def test_the_composer_of_sms(user: ScriptlessBrowser, api: Client) -> None:
    """Composer and review show text, parts and sender; an SMS template sends tests to numbers."""
    api.patch("/account", {"sms_opt_out_hint": "STOP to leave", "sms_from": "+15005550006"}).expect(200)
    list_id = api.post("/lists", {"name": "Phones"}).expect(201)["id"]
    for index, name in enumerate(("Ann", "François")):
        body = {"phone": f"+1415555010{index}", "first_name": name, "list_ids": [list_id]}
        api.post("/contacts", body).expect(201)
    text = {"body": "Bakery: hi {{ first_name }}, <b>fresh</b>\nbread: https://bakery.example/menu?a=1&b=2 " + "x" * 60}
    request = {"name": "Bread", "channel": "sms", "template_attributes": text,
             "trigger_attributes": {"contact_list_id": list_id}}  # fmt: skip
    campaign_id = api.post("/campaigns", request).expect(201)["id"]
    page = HtmlPage(user, f"/campaigns/{campaign_id}?open=content").reload_until("4 parts for 2 contacts")

    assert page.has("#rehearsal", "4 parts for 2 contacts")
    assert page.has(".handset .bubble", "Bakery: hi Ann, <b>fresh</b>")
    assert page.has("#composer", "+15005550006") and not page.named("input, textarea", "Subject")
    page = HtmlPage(user, f"/campaigns/{campaign_id}/send")
    assert page.has("main", "Send to 2 contacts?") and page.has("main", "+15005550006")
    assert HtmlPage(user, "/campaigns").has("#rows", "SMS · Bakery: hi")
    # Without a contact that can receive it, there is nothing to send
    empty = api.post("/lists", {"name": "Empty"}).expect(201)["id"]
    api.patch(f"/campaigns/{campaign_id}", {"trigger_attributes": {"contact_list_id": empty}}).expect(200)
    assert HtmlPage(user, f"/campaigns/{campaign_id}").has("#checklist header", "No recipients")
    page = HtmlPage(user, f"/campaigns/{campaign_id}/send")
    assert page.has("h1, h2", "No contacts can receive it") and not page.all("button", "Send to")
    assert page.follow("Change recipients").is_checked("Empty")

    template_id = api.post("/templates", {"name": "Note", "channel": "sms", "body": "Bakery: open"}).expect(201)["id"]
    assert HtmlPage(user, "/templates").has("#rows", "Note")
    page = HtmlPage(user, f"/templates/{template_id}/edit")
    assert page.value("SMS text") == "Bakery: open"
    page.fill("To", "+1 500 555 0001, nobody")
    page = page.press("Send test")
    assert page.has("main", "nobody is not a valid address.")
    page.fill("To", "+1 500 555 0001")
    assert "Sending a test to +15005550001" in page.press("Send test").text


def test_a_link_without_its_scheme(
    browser_page: Page, user: ScriptlessBrowser, server: Server, api: Client
) -> None:  # fmt: skip
    """A link without https:// is named as not tracked, in the composer and the report; a button adds https://."""
    api.patch("/account", {"sms_opt_out_hint": "STOP to leave", "sms_from": "+15005550006"}).expect(200)
    list_id = api.post("/lists", {"name": "Menu"}).expect(201)["id"]
    api.post("/contacts", {"phone": "+14155550900", "list_ids": [list_id]}).expect(201)
    request = {"name": "Menu", "channel": "sms", "trigger_attributes": {"contact_list_id": list_id},
               "template_attributes": {"body": "Salt: see junipersalt.co.uk/menu. Tonight at 7.30!"}}  # fmt: skip
    first, second = (api.post("/campaigns", request).expect(201)["id"] for _ in range(2))
    api.post(f"/campaigns/{first}/send", {}).expect(200)
    api.wait(f"/campaigns/{first}", lambda row: row["status"] == "completed")
    why = "Clicks on junipersalt.co.uk/menu were not tracked, because https:// is missing."
    assert HtmlPage(user, f"/campaigns/{first}").has("section[aria-labelledby=most-title]", why)

    page = browser_page
    page.goto(f"{server.url}/campaigns/{second}?open=content")
    expect(page.locator("#bare-links")).to_contain_text("Clicks on junipersalt.co.uk/menu are not tracked")
    save_screenshot(page, "sms-bare-link")
    page.get_by_role("button", name="Add https://").click()
    expect(page.get_by_label("SMS text")).to_have_text("Salt: see https://junipersalt.co.uk/menu. Tonight at 7.30!")
    expect(page.locator("#bare-links")).to_have_count(0)


def test_writing_an_sms_campaign(browser_page: Page, server: Server, api: Client) -> None:
    """While writing, alphabet, non-GSM characters, parts of all recipients and the phone preview are shown."""
    api.patch("/account", {"sms_opt_out_hint": "STOP to leave", "sms_from": "+15005550006"}).expect(200)
    list_id = api.post("/lists", {"name": "Guests"}).expect(201)["id"]
    for index, name in enumerate(("Ann", "Bo", "Maximiliane")):
        body = {"phone": f"+1415555020{index}", "first_name": name, "list_ids": [list_id]}
        api.post("/contacts", body).expect(201)
    page = browser_page
    page.goto(f"{server.url}/campaigns")
    page.get_by_role("link", name="New SMS").click()
    page.get_by_label("Name").fill("Doors")
    page.get_by_role("button", name="Create campaign").click()
    page.get_by_label("Guests").check()
    expect(page.locator(".sums .total")).to_have_text("=3 contacts")
    page.locator("#card-content summary").first.click()
    text = page.get_by_label("SMS text")
    text.fill("Bakery: hi {{ first_name }}, " + "x" * 124)
    # The name Maximiliane needs a second part, which is known once all recipients are rendered
    expect(page.locator("#sms-meter")).to_contain_text("Standard characters (GSM-7)")
    parts = "2 contacts × 1 part, 1 contact × 2 parts = 4 parts"
    expect(page.locator("#sms-meter")).to_contain_text(parts, timeout=20_000)
    expect(page.locator(".handset .bubble")).to_contain_text("hi Ann, xxx")
    expect(page.locator(".handset .bubble")).to_contain_text("STOP to leave")
    text.fill("Bakery: it is fresh – until six")
    expect(page.locator("#sms-meter")).to_contain_text("Unicode characters (UCS-2)")
    expect(page.locator("#sms-meter")).to_contain_text("“–” is not a standard SMS character")
    page.get_by_role("link", name="Review and send").click()
    expect(page.get_by_role("dialog")).to_contain_text("Send to 3 contacts?")
    page.get_by_role("dialog").get_by_role("button", name="Send to 3 contacts").click()
    expect(page.get_by_role("button", name="Undo")).to_be_visible()


def test_an_audience_without_recipients_is_a_required_item(user: ScriptlessBrowser, api: Client) -> None:
    """An audience that nobody can get the SMS of prevents the send, so the checklist calls it required."""
    list_id = api.post("/lists", {"name": "Nobody"}).expect(201)["id"]
    request = {"name": "Empty", "channel": "sms", "template_attributes": {"body": "Bakery: hi, STOP to leave"},
               "trigger_attributes": {"contact_list_id": list_id}}  # fmt: skip
    campaign_id = api.post("/campaigns", request).expect(201)["id"]
    for path in ("", "/send"):
        page = HtmlPage(user, f"/campaigns/{campaign_id}{path}")
        headings = page.texts("h3.grouped")
        assert headings[0].startswith("Required")
        groups = page.text.partition("Required")[2].partition("Recommended")
        assert "No contact in this audience can receive it." in groups[0]
        assert "No contact in this audience can receive it." not in groups[2]


@pytest.mark.full
def test_long_words_on_a_phone(browser_page: Page, server: Server, api: Client) -> None:
    """Names and texts without spaces do not widen a page on a phone; a selected SMS is scrolled into view."""
    long_word = "Donaudampfschifffahrt" * 9
    list_id = api.post("/lists", {"name": long_word}).expect(201)["id"]
    contact_id = api.post(
        "/contacts", {"phone": "+14155550177", "first_name": long_word, "list_ids": [list_id]}
    ).expect(201)["id"]
    request = {"name": long_word, "channel": "sms", "template_attributes": {"body": long_word},
             "trigger_attributes": {"contact_list_id": list_id}}  # fmt: skip
    campaign_id = api.post("/campaigns", request).expect(201)["id"]
    for number in range(9):
        single = {"channel": "sms", "to": "+14155550177", "body": f"{number} {long_word}"}
        message_id = api.post("/messages", single).expect(201)["id"]
    [row] = api.wait("/capture", bool, message_id=message_id)
    page = browser_page
    page.set_viewport_size({"width": 375, "height": 800})
    pages = (
        "campaigns",
        f"campaigns/{campaign_id}?open=content",
        f"campaigns/{campaign_id}/send",
        f"contacts/{contact_id}",
        "inbox",
    )
    for path in (*pages, f"inbox/{row['id']}"):
        page.goto(f"{server.url}/{path}")
        assert page.evaluate("document.documentElement.scrollWidth") == 375, path
    expect(page.locator(".bubble[aria-current]")).to_be_in_viewport()


def test_uncapitalize() -> None:
    """The first letter becomes lower-case, except in words in capitals."""
    texts = ("Answered STOP", "SMS skipped", "No number that SMS go to", "")
    assert [formats.uncapitalize(text) for text in texts] == [
        "answered STOP", "SMS skipped", "no number that SMS go to", "",
    ]  # fmt: skip
