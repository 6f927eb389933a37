"""Mails in a real browser, on a desk and on a phone, in light and in dark."""

from typing import Any

import pytest
from playwright.sync_api import Browser

from appliance.content.designs.render import render_design
from tests.designs.samples import EVERY, LOOK

_WORDS = """() => [...document.querySelectorAll('body *')]
  .filter(e => [...e.childNodes].some(one => one.nodeType === 3 && one.data.trim()) && e.checkVisibility())
  .map(e => {
    let ground = e, found = 'rgba(0, 0, 0, 0)';
    while (ground && (found = getComputedStyle(ground).backgroundColor) === 'rgba(0, 0, 0, 0)')
      ground = ground.parentElement;
    return [e.innerText.slice(0, 30), getComputedStyle(e).color, found];
  })"""  # fmt: skip


def _shown(browser: Browser, document: dict[str, Any], width: int, dark: bool, script: str) -> Any:
    context = browser.new_context(viewport={"width": width, "height": 600}, color_scheme="dark" if dark else "light")
    page = context.new_page()
    page.route("**/*", lambda route: route.abort())
    page.set_content(render_design(document, LOOK).html)
    found = page.evaluate(script)
    context.close()
    return found


@pytest.mark.parametrize("width", [640, 375, 320])
def test_nothing_is_wider_than_the_screen(browser: Browser, width: int) -> None:
    """No kind of section makes a reader scroll sideways, on a desk, a phone or a small phone."""
    for name, document in EVERY.items():
        assert _shown(browser, document, width, False, "() => document.documentElement.scrollWidth") <= width, name


def _words(*texts: str) -> list[dict[str, Any]]:
    return [{"type": "text", "props": {"content": text}} for text in texts]


def _tops(browser: Browser, width: int, stack: bool) -> list[tuple[float, float]]:
    inner = {"type": "columns", "props": {"stack_on_phone": stack, "columns": [
        {"sections": _words("inner left")}, {"sections": _words("inner right")}]}}  # fmt: skip
    outer = {"type": "columns", "props": {"stack_on_phone": stack, "columns": [
        {"sections": _words("left")}, {"sections": [*_words("right"), inner]}]}}  # fmt: skip
    script = """() => ['left', 'right', 'inner left', 'inner right'].map(words => {
      const found = [...document.querySelectorAll('p')].find(one => one.innerText === words).getBoundingClientRect();
      return [found.top, found.left]; })"""
    return [(one[0], one[1]) for one in _shown(browser, {"sections": [outer]}, width, False, script)]


def test_columns_are_beside_each_other_on_a_desk_and_below_each_other_on_a_phone(browser: Browser) -> None:
    """Both levels of columns stack under 480 pixels, and all of them begin at the same edge; unless told not to."""
    left, right, inner_left, inner_right = _tops(browser, 640, True)
    assert left[0] == right[0]
    assert inner_left[0] == inner_right[0]

    left, right, inner_left, inner_right = _tops(browser, 375, True)
    assert left[0] < right[0] < inner_left[0] < inner_right[0]
    assert len({one[1] for one in (left, right, inner_left, inner_right)}) == 1

    left, right, inner_left, inner_right = _tops(browser, 375, False)
    assert left[0] == right[0]
    assert inner_left[0] == inner_right[0]


def _luminance(colour: str) -> float:
    parts = [float(one) / 255 for one in colour[colour.index("(") + 1 : -1].split(",")[:3]]
    linear = [one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_words_can_be_read_on_what_is_behind_them(browser: Browser, dark: bool) -> None:
    """Every word has a contrast of 4.5 to the colour behind it, in light and in dark, pictures blocked."""
    for name, document in EVERY.items():
        for words, ink, ground in _shown(browser, document, 640, dark, _WORDS):
            light, deep = sorted((_luminance(ink), _luminance(ground)), reverse=True)
            if not ground.startswith("rgba"):
                assert (light + 0.05) / (deep + 0.05) >= 4.45, f"{name}: {words} {ink} on {ground}"


def test_sections_hide_where_they_are_told_to(browser: Browser) -> None:
    """`hide_on` leaves a section out on a phone, or on a desk; within a column too."""
    sections = [
        {"type": "text", "props": {"content": "not on phones", "hide_on": "phone"}},
        {"type": "text", "props": {"content": "not on desks", "hide_on": "desktop"}},
    ]
    columns = {"type": "columns", "props": {"columns": [{"sections": sections}, {"sections": _words("both")}]}}
    for document in ({"sections": sections}, {"sections": [columns]}):
        desk = _shown(browser, document, 640, False, "() => document.body.innerText")
        phone = _shown(browser, document, 375, False, "() => document.body.innerText")

        assert "not on phones" in desk
        assert "not on desks" not in desk
        assert "not on phones" not in phone
        assert "not on desks" in phone
