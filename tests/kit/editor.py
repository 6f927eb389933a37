"""The email editor in tests: pages, stored designs, and drag and drop."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, Page, expect

from tests.kit.browser import Problems, lent_page, reuse_session
from tests.kit.client import Client
from tests.kit.server import Server

DESIGN: dict[str, Any] = {
    "sections": [
        {"id": "title", "type": "heading", "props": {"text": "Hello", "level": "1"}},
        {"id": "odd", "type": "hologram", "props": {"depth": {"cm": [3, 4]}}, "extra": "kept"},
        {"id": "words", "type": "text", "props": {"content": "<p>Words</p>", "unknown": True}},
        {"id": "press", "type": "button", "props": {"text": "Press", "href": "https://example.org"}},
        {"id": "foot", "type": "footer", "props": {}},
    ],
    "theme": {"brand_color": "#0f617d"}, "more": [1],
}  # fmt: skip


@contextmanager
def running_editor(browser: Browser, server: Server, *, motion: bool = False) -> Iterator[Page]:
    """Open a page as a signed-in user, with animations if asked; unexpected console errors fail the test."""
    problems = Problems()
    problems.allow("Blocked script execution in .*/preview")
    problems.allow("status of (404|409|503)|ERR_INTERNET_DISCONNECTED")
    with lent_page(browser, server.url, problems, width=1360, motion=motion) as page:
        yield reuse_session(page, server)
    assert problems.found == [], problems.found


def create_template(api: Client, name: str = "Letter", design: Any = DESIGN) -> int:
    """Create a template with a design and return its id."""
    body = {"name": name, "subject": "S", "design": copy.deepcopy(design)}
    return int(api.post("/templates", body).expect(201)["id"])


def get_design(api: Client, template_id: int) -> Any:
    """Return the stored design of a template."""
    return api.get(f"/templates/{template_id}").expect(200)["design"]


def get_section_props(api: Client, template_id: int, section_id: str) -> dict[str, Any]:
    """Return the stored properties of a section of a template."""
    section = next(section for section in get_design(api, template_id)["sections"] if section["id"] == section_id)
    return dict(section["props"])


def wait_until_saved(page: Page) -> None:
    """Wait until the editor has saved all changes."""
    # `expect` would look again after 100, 250, 500 and 1,000 ms, and at each frame this would draw frames
    page.wait_for_function("() => document.querySelector('#editor:not([data-busy])')", polling=25)


def expect_order(page: Page, *keys: str) -> None:
    """Wait until the outline lists these sections in this order. Raises AssertionError on timeout."""
    rows = page.locator("#list li")
    expect(rows).to_have_count(len(keys))
    for at, key in enumerate(keys):
        expect(rows.nth(at)).to_have_attribute("data-key", key)


def drag(page: Page, source: str, target: str, over: str = "") -> None:
    """Drag an element over the upper half of another one and drop it, at human speed; on the way over a third one."""
    start = page.locator(source).bounding_box()
    assert start is not None
    page.mouse.move(start["x"] + 12, start["y"] + 18)
    page.mouse.down()
    page.mouse.move(start["x"] + 14, start["y"] + 8, steps=3)
    if over:
        between = page.locator(over).bounding_box()
        assert between is not None
        page.mouse.move(between["x"] + 12, between["y"] + 12, steps=8)
    end = page.locator(target).bounding_box()
    assert end is not None
    page.mouse.move(end["x"] + 14, end["y"] + end["height"] * 0.6, steps=12)
    page.mouse.move(end["x"] + 14, end["y"] + 4, steps=6)
    page.mouse.up()
