"""Long names and narrow screens: nothing overlaps, and no page scrolls sideways."""

from typing import Any

import pytest
from playwright.sync_api import Browser, Page, ViewportSize, expect

from tests.conftest import FreshServer
from tests.kit.browser import Problems, new_page, save_screenshot, sign_in
from tests.kit.client import Client
from tests.kit.sampling import every_nth
from tests.kit.smtp import SmtpServer

LONG_NAME = "A name that is far too long for any card, table or menu in which it will ever have to stand"
PHONE: ViewportSize = {"width": 390, "height": 800}
# Runs in the page: elements that overflow their box or overlap the next of their kind
OVERLAPS = """(chosen) => [...document.querySelectorAll(chosen)].filter((one, at, all) => {
  const own = one.getBoundingClientRect(), next = all[at + 1]?.getBoundingClientRect();
  return one.scrollHeight > one.clientHeight + 1 || one.scrollWidth > one.clientWidth + 1
    || next && own.right > next.left + 1 && own.left < next.right && own.bottom > next.top + 1 && own.top < next.bottom;
}).map(one => one.innerText)"""


@pytest.fixture
def phone(browser_page: Page) -> Any:
    """The owner's page at phone size."""
    browser_page.set_viewport_size(PHONE)
    yield browser_page
    browser_page.set_viewport_size({"width": 1280, "height": 800})


def test_choices_with_long_names(phone: Page, api: Client) -> None:
    """A choice with a long name does not overlap the next one."""
    for number in range(6):
        api.post("/templates", {"name": f"{LONG_NAME} {number}", "subject": "News", "body": "<p>x</p>"}).expect(201)
    phone.goto("/campaigns/new")
    expect(phone.locator(".picks .pick")).to_have_count(7)
    assert phone.evaluate(OVERLAPS, ".picks .pick") == []


def test_the_bar_of_the_documentation(phone: Page) -> None:
    """The name and the links of the bar do not overlap."""
    phone.goto("/docs")
    assert phone.evaluate(OVERLAPS, ".bar > a") == []
    assert phone.evaluate(OVERLAPS, ".bar .clip") == []


def test_an_api_key_with_a_long_name(phone: Page) -> None:
    """The revoke button does not overlap the name of the key."""
    phone.goto("/settings/keys")
    phone.get_by_label("Name", exact=True).fill(LONG_NAME)
    phone.get_by_role("button", name="Create key").click()
    phone.get_by_label("API key", exact=True).wait_for()
    row = phone.locator("tbody tr").filter(has_text=LONG_NAME)
    name, button = row.locator(".name").bounding_box(), row.get_by_role("button").bounding_box()
    assert name and button and name["x"] + name["width"] <= button["x"]


def test_the_preview_of_the_editor_on_a_phone(phone: Page, api: Client) -> None:
    """The button Done is at the right edge, and the email is marked as shown at phone width, since it is."""
    section = {"id": "a", "type": "heading", "props": {"text": "Hello"}}
    request = {"name": "Letter", "subject": "News", "design": {"sections": [section]}}
    template_id = api.post("/templates", request).expect(201)["id"]
    phone.goto(f"/templates/{template_id}/edit")
    phone.locator(".tabbar").get_by_role("button", name="Preview").click()
    done = phone.get_by_role("link", name="Done").bounding_box()
    assert done is not None
    assert PHONE["width"] - 12 <= done["x"] + done["width"] <= PHONE["width"] - 4
    views = phone.get_by_role("group", name="Preview on")
    expect(views.get_by_role("button", name="Mobile")).to_have_attribute("aria-pressed", "true")
    expect(views.get_by_role("button", name="Desktop")).to_be_hidden()
    save_screenshot(phone, "editor-preview-phone")
    views.get_by_role("button", name="Dark").click()
    expect(views.get_by_role("button", name="Mobile")).to_have_attribute("aria-pressed", "false")
    views.get_by_role("button", name="Mobile").click()
    phone.set_viewport_size({"width": 1280, "height": 800})
    expect(views.get_by_role("button", name="Desktop")).to_be_visible()


@pytest.mark.full
def test_the_source_of_a_message(
    browser: Browser, fresh_server: FreshServer, smtp_server: SmtpServer, browser_problems: Problems
) -> None:
    """Long lines of the source are wrapped, and the page does not scroll sideways."""
    smtp_server.rules.reject("data", code=554, text="5.3.4 Message too big for this system")
    server = fresh_server(relay=smtp_server.port)
    api = server.client()
    message = {"to": "one@example.org", "subject": "Your order", "body": f"<p>{'x' * 70}</p>"}
    message_id = api.post("/messages", message).expect(201)["id"]
    api.wait(f"/messages/{message_id}", lambda row: row["status"] == "failed")
    page = sign_in(new_page(browser, server.url, browser_problems, width=PHONE["width"]))
    page.goto(f"/outbox/{message_id}?view=source")
    assert "x" * 60 in page.locator("pre").inner_text()
    assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    page.context.close()
    assert not browser_problems.found


@pytest.mark.parametrize("path", every_nth(["/contacts", "/campaigns", "/templates"], 3))
def test_filter_chips_of_tables_are_all_visible_on_a_phone(phone: Page, api: Client, path: str) -> None:
    """Chips wrap into further lines; none is cut off or covered."""
    content = {"subject": "News", "body": "<p>x</p>"}
    api.post("/contacts", {"email": f"chips{path[1:]}@example.org"}).expect(201)
    api.post("/templates", {"name": "Chips", **content}).expect(201)
    api.post("/campaigns", {"name": "Chips", "template_attributes": content}).expect(201)
    phone.goto(path)
    phone.locator("#filters .chips").wait_for(timeout=5_000)
    chips = [chip.bounding_box() for chip in phone.locator("#filters .chip").all()]
    boxes = [*chips, *(button.bounding_box() for button in phone.locator("#filters .end > *:visible").all())]
    strip = phone.locator("#filters .chips").bounding_box()
    assert chips and strip
    for number, box in enumerate(boxes):
        assert box and box["x"] >= 0 and box["x"] + box["width"] <= PHONE["width"]
        assert number >= len(chips) or box["x"] + box["width"] <= strip["x"] + strip["width"] + 1
        for other in boxes[number + 1 :]:
            assert other
            is_beside = other["x"] >= box["x"] + box["width"] - 1 or box["x"] >= other["x"] + other["width"] - 1
            assert is_beside or abs(other["y"] - box["y"]) >= min(box["height"], other["height"]) - 1


@pytest.mark.full
def test_a_notice_covers_nothing_to_press(browser_page: Page, api: Client) -> None:
    """After a segment was saved the notice lies over no button or field, at the desk and on a phone."""
    rule = [{"name": "data.visits", "predicate": "gt", "value": 10}]
    segment_id = api.post("/segments", {"name": "Frequent", "filters": rule}).expect(201)["id"]
    for width, height in ((1280, 640), (390, 800)):
        browser_page.set_viewport_size({"width": width, "height": height})
        browser_page.goto(f"/segments/{segment_id}")
        browser_page.get_by_role("button", name="Save", exact=True).click()
        expect(browser_page.locator(".toast[data-spot]")).to_contain_text("Saved")
        covered = browser_page.evaluate("""() => {
          const toast = document.querySelector(".toast").getBoundingClientRect();
          return [...document.querySelectorAll("main :is(.btn, button, input, select, textarea)")].filter((element) => {
            const box = element.checkVisibility() && element.getBoundingClientRect();
            return box && box.right > toast.left && box.left < toast.right
              && box.bottom > toast.top && box.top < toast.bottom;
          }).map((element) => element.outerHTML);
        }""")
        assert covered == [], width


def test_german_texts_fit(browser: Browser, fresh_server: FreshServer, smtp_server: SmtpServer) -> None:
    """Its long words leave no button or table wider than its card, and no button with a broken word."""
    server = fresh_server(relay=smtp_server.port)
    api = server.client()
    contact = api.post("/contacts", {"email": "ann@example.org", "first_name": "Ann"}).expect(201)
    problems = Problems()
    page = sign_in(new_page(browser, server.url, problems, locale="de-DE"))
    for path in ("/segments", "/flows/new"):
        page.goto(path)
        assert page.locator(".offer").count() > 3
        assert page.evaluate(OVERLAPS, ".offer .btn, .offer :is(h2, h3)") == []
    api.post("/flows", {"name": "Willkommen"}).expect(201)
    page.goto("/flows")
    assert page.locator(".listwrap").evaluate("card => card.scrollWidth - card.clientWidth") == 0
    page.set_viewport_size(PHONE)
    page.goto(f"/contacts/{contact['id']}")
    button = page.locator(".adds .btn").last
    assert button.evaluate("button => button.getClientRects()[0].height") <= 44
    page.goto("/")
    step = page.locator(".checklist li", has=page.get_by_role("link", name="Domain verifizieren"))
    text = step.locator("div").bounding_box()
    assert text and text["width"] >= 200
    page.context.close()
    assert not problems.found
