"""Emails in a browser, on desktop and phone screens, in light and dark mode."""

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from appliance.content.designs.render import render_design
from tests.designs.samples import EVERY, LOOK

_TEXT_COLORS = """() => [...document.querySelectorAll('body *')]
  .filter(e => [...e.childNodes].some(one => one.nodeType === 3 && one.data.trim()) && e.checkVisibility())
  .map(e => {
    let ground = e, found = 'rgba(0, 0, 0, 0)';
    while (ground && (found = getComputedStyle(ground).backgroundColor) === 'rgba(0, 0, 0, 0)')
      ground = ground.parentElement;
    return [e.innerText.slice(0, 30), getComputedStyle(e).color, found];
  })"""  # fmt: skip


@pytest.fixture(scope="module")
def screen(browser: Browser) -> Iterator[Page]:
    """A page that loads nothing, in which all emails are shown one after the other."""
    context = browser.new_context()
    page = context.new_page()
    page.route("**/*", lambda route: route.abort())
    yield page
    context.close()


def _evaluate(page: Page, document: dict[str, Any], width: int, dark: bool, script: str) -> Any:
    page.set_viewport_size({"width": width, "height": 600})
    page.emulate_media(color_scheme="dark" if dark else "light")
    page.set_content(render_design(document, LOOK).html)
    return page.evaluate(script)


@pytest.mark.parametrize("width", [640, 375, 320])
def test_no_horizontal_scrolling(screen: Page, width: int) -> None:
    """No kind of section is wider than the screen of a desktop, a phone or a small phone."""
    for name, document in EVERY.items():
        assert _evaluate(screen, document, width, False, "() => document.documentElement.scrollWidth") <= width, name


def _text_sections(*texts: str) -> list[dict[str, Any]]:
    return [{"type": "text", "props": {"content": text}} for text in texts]


def _tops(screen: Page, width: int, stack: bool) -> list[tuple[float, float]]:
    inner = {"type": "columns", "props": {"stack_on_phone": stack, "columns": [
        {"sections": _text_sections("inner left")}, {"sections": _text_sections("inner right")}]}}  # fmt: skip
    outer = {"type": "columns", "props": {"stack_on_phone": stack, "columns": [
        {"sections": _text_sections("left")}, {"sections": [*_text_sections("right"), inner]}]}}  # fmt: skip
    script = """() => ['left', 'right', 'inner left', 'inner right'].map(words => {
      const found = [...document.querySelectorAll('p')].find(one => one.innerText === words).getBoundingClientRect();
      return [found.top, found.left]; })"""
    return [(position[0], position[1]) for position in _evaluate(screen, {"sections": [outer]}, width, False, script)]


def test_columns_stack_on_phones(screen: Page) -> None:
    """Under 480 px both levels of columns stack at the same left edge, unless `stack_on_phone` is off."""
    left, right, inner_left, inner_right = _tops(screen, 640, True)
    assert left[0] == right[0]
    assert inner_left[0] == inner_right[0]

    left, right, inner_left, inner_right = _tops(screen, 375, True)
    assert left[0] < right[0] < inner_left[0] < inner_right[0]
    assert len({position[1] for position in (left, right, inner_left, inner_right)}) == 1

    left, right, inner_left, inner_right = _tops(screen, 375, False)
    assert left[0] == right[0]
    assert inner_left[0] == inner_right[0]


def _luminance(colour: str) -> float:
    parts = [float(part) / 255 for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_text_contrast(screen: Page, dark: bool) -> None:
    """All text has a contrast of 4.5 to its background colour, in light and dark mode, without images."""
    for name, document in EVERY.items():
        for text, color, background in _evaluate(screen, document, 640, dark, _TEXT_COLORS):
            light, deep = sorted((_luminance(color), _luminance(background)), reverse=True)
            if not background.startswith("rgba"):
                assert (light + 0.05) / (deep + 0.05) >= 4.45, f"{name}: {text} {color} on {background}"


def test_hide_on(screen: Page) -> None:
    """`hide_on` hides a section on phones or on desktops, also within a column."""
    sections = [
        {"type": "text", "props": {"content": "not on phones", "hide_on": "phone"}},
        {"type": "text", "props": {"content": "not on desks", "hide_on": "desktop"}},
    ]
    columns = {"type": "columns", "props": {"columns": [{"sections": sections}, {"sections": _text_sections("both")}]}}
    for document in ({"sections": sections}, {"sections": [columns]}):
        desktop = _evaluate(screen, document, 640, False, "() => document.body.innerText")
        phone = _evaluate(screen, document, 375, False, "() => document.body.innerText")

        assert "not on phones" in desktop
        assert "not on desks" not in desktop
        assert "not on phones" not in phone
        assert "not on desks" in phone
