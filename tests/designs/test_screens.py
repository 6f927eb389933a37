"""Emails in a browser, on desktop and phone screens, in light and dark mode."""

from collections.abc import Iterator
from typing import Any, NamedTuple

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


class Shown(NamedTuple):
    """What a browser shows of an email: its width by that of the screen, and the colours of its texts by theme."""

    widths: dict[int, int]
    text_colors: dict[str, list[list[str]]]


@pytest.fixture(scope="module")
def screen(browser: Browser) -> Iterator[Page]:
    """A page that loads nothing, in which all emails are shown one after the other."""
    context = browser.new_context(offline=True)
    yield context.new_page()
    context.close()


@pytest.fixture(scope="module")
def shown(screen: Page) -> dict[str, Shown]:
    """Every email as it is shown, by name; each is loaded once."""
    return {name: _show(screen, document) for name, document in EVERY.items()}


def _show(page: Page, document: dict[str, Any]) -> Shown:
    text_colors = {"light": _evaluate(page, document, 640, _TEXT_COLORS)}
    page.emulate_media(color_scheme="dark")
    text_colors["dark"] = page.evaluate(_TEXT_COLORS)
    page.emulate_media(color_scheme="light")
    widths = {}
    for width in (640, 375, 320):
        page.set_viewport_size({"width": width, "height": 600})
        widths[width] = page.evaluate("() => document.documentElement.scrollWidth")
    return Shown(widths, text_colors)


def _evaluate(page: Page, document: dict[str, Any], width: int, script: str) -> Any:
    page.set_viewport_size({"width": width, "height": 600})
    page.set_content(render_design(document, LOOK).html)
    return page.evaluate(script)


@pytest.mark.parametrize("width", [640, 375, 320])
def test_no_horizontal_scrolling(shown: dict[str, Shown], width: int) -> None:
    """No kind of section is wider than the screen of a desktop, a phone or a small phone."""
    assert {name: email.widths[width] for name, email in shown.items() if email.widths[width] > width} == {}


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
    return [(position[0], position[1]) for position in _evaluate(screen, {"sections": [outer]}, width, script)]


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


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_contrast(shown: dict[str, Shown], theme: str) -> None:
    """All text has a contrast of 4.5 to its background colour, in light and dark mode, without images."""
    for name, email in shown.items():
        for text, color, background in email.text_colors[theme]:
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
        desktop = _evaluate(screen, document, 640, "() => document.body.innerText")
        phone = _evaluate(screen, document, 375, "() => document.body.innerText")

        assert "not on phones" in desktop
        assert "not on desks" not in desktop
        assert "not on phones" not in phone
        assert "not on desks" in phone
