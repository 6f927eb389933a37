"""Menus open where they were asked for."""

import itertools

import pytest
from playwright.sync_api import Page

from tests.kit.client import Client

NAMES = itertools.count(1)


@pytest.mark.parametrize("width", [1280, 375])
def test_a_menu_opens_at_its_button(browser_page: Page, api: Client, width: int) -> None:
    """It stands below its button, on the side where there is room, and is all on the screen."""
    made = api.post("/lists", {"name": f"Menus {next(NAMES)}"}).expect(201)
    browser_page.set_viewport_size({"width": width, "height": 800})
    browser_page.goto(f"/lists/{made['id']}")
    button = browser_page.get_by_role("button", name="More actions")
    button.click()
    menu = browser_page.locator("#list-menu").bounding_box()
    at = button.bounding_box()

    assert menu is not None and at is not None
    assert 0 <= menu["y"] - at["y"] - at["height"] < 12
    edges = (menu["x"] - at["x"], menu["x"] + menu["width"] - at["x"] - at["width"])
    assert min(abs(edge) for edge in edges) < 8, "one side of it stands where a side of the button does"
    assert menu["x"] >= 0 and menu["x"] + menu["width"] <= width and menu["y"] + menu["height"] <= 800
