"""The position of menus."""

import itertools

import pytest
from playwright.sync_api import Page

from tests.kit.client import Client
from tests.kit.sampling import full_only

NAMES = itertools.count(1)


@pytest.mark.parametrize("width", [full_only(1280), 375])
def test_a_menu_opens_at_its_button(browser_page: Page, api: Client, width: int) -> None:
    """A menu opens below its button, aligned with one of its sides, and within the screen."""
    new_list = api.post("/lists", {"name": f"Menus {next(NAMES)}"}).expect(201)
    browser_page.set_viewport_size({"width": width, "height": 800})
    browser_page.goto(f"/lists/{new_list['id']}")
    button = browser_page.get_by_role("button", name="More actions")
    button.click()
    menu = browser_page.locator("#list-menu").bounding_box()
    button_box = button.bounding_box()

    assert menu is not None and button_box is not None
    assert 0 <= menu["y"] - button_box["y"] - button_box["height"] < 12
    edges = (menu["x"] - button_box["x"], menu["x"] + menu["width"] - button_box["x"] - button_box["width"])
    assert min(abs(edge) for edge in edges) < 8, "the menu is aligned with neither side of its button"
    assert menu["x"] >= 0 and menu["x"] + menu["width"] <= width and menu["y"] + menu["height"] <= 800
