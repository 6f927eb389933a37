"""What was too wide or too long for its place: nothing stands on something else, and nothing moves a page sideways."""

from typing import Any

import pytest
from playwright.sync_api import Browser, Page, ViewportSize

from tests.conftest import FreshServer
from tests.kit.browser import Problems, new_page, sign_in
from tests.kit.client import Client
from tests.kit.smtp import SmtpServer

LONG = "A name that is far too long for any card, table or menu in which it will ever have to stand"
PHONE: ViewportSize = {"width": 390, "height": 800}
# Runs in the page: texts that reach out of their own box, or into the next of the same kind
CLASHES = """(chosen) => [...document.querySelectorAll(chosen)].filter((one, at, all) => {
  const own = one.getBoundingClientRect(), next = all[at + 1]?.getBoundingClientRect();
  return one.scrollHeight > one.clientHeight + 1 || one.scrollWidth > one.clientWidth + 1
    || next && own.right > next.left + 1 && own.left < next.right && own.bottom > next.top + 1 && own.top < next.bottom;
}).map(one => one.innerText)"""


@pytest.fixture
def phone(browser_page: Page) -> Any:
    """The owner's browser on a phone."""
    browser_page.set_viewport_size(PHONE)
    yield browser_page
    browser_page.set_viewport_size({"width": 1280, "height": 800})


def test_choices_with_long_names_keep_apart(phone: Page, api: Client) -> None:
    """A name of three lines pushes down what follows it."""
    for number in range(6):
        api.post("/templates", {"name": f"{LONG} {number}", "subject": "News", "body": "<p>x</p>"}).expect(201)
    phone.goto("/campaigns/new")
    assert phone.locator(".picks .pick").count() == 7
    assert phone.evaluate(CLASHES, ".picks .pick") == []


def test_the_bar_of_the_documentation_fits(phone: Page) -> None:
    """Its name and its links stand beside each other."""
    phone.goto("/docs")
    assert phone.evaluate(CLASHES, ".bar > a") == []
    assert phone.evaluate(CLASHES, ".bar .clip") == []


def test_a_key_with_a_long_name_leaves_room_for_its_button(phone: Page) -> None:
    """What revokes a key does not stand on the key's name."""
    phone.goto("/settings/keys")
    phone.get_by_label("What uses it").fill(LONG)
    phone.get_by_role("button", name="Make key").click()
    phone.get_by_label("The key", exact=True).wait_for()
    row = phone.locator("tbody tr").filter(has_text=LONG)
    name, button = row.locator(".name").bounding_box(), row.get_by_role("button").bounding_box()
    assert name and button and name["x"] + name["width"] <= button["x"]


def test_the_source_of_a_message_keeps_to_the_page(
    browser: Browser, fresh_server: FreshServer, smtp_server: SmtpServer, browser_problems: Problems
) -> None:
    """Long lines of a message that was refused are broken, not the page."""
    smtp_server.rules.refuse("data", code=554, text="5.3.4 Message too big for this system")
    server = fresh_server(relay=smtp_server.port)
    api = server.client()
    letter = {"to": "one@example.org", "subject": "Your order", "body": f"<p>{'x' * 70}</p>"}
    number = api.post("/messages", letter).expect(201)["id"]
    api.wait(f"/messages/{number}", lambda row: row["status"] == "failed")
    page = sign_in(new_page(browser, server.url, browser_problems, width=PHONE["width"]))
    page.goto(f"/outbox/{number}?view=source")
    assert "x" * 60 in page.locator("pre").inner_text()
    assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    page.context.close()
    assert not browser_problems.found


@pytest.mark.parametrize("path", ["/contacts", "/campaigns", "/templates"])
def test_filter_chips_of_tables_are_all_visible_on_a_phone(phone: Page, api: Client, path: str) -> None:
    """No chip is cut off or lies under a button; the chips wrap into further lines."""
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
            apart_across = other["x"] >= box["x"] + box["width"] - 1 or box["x"] >= other["x"] + other["width"] - 1
            assert apart_across or abs(other["y"] - box["y"]) >= min(box["height"], other["height"]) - 1
