"""Writing texts in the canvas with a real mouse and keyboard: caret, selection, and what never is typed into."""

import itertools
import re
from typing import Any

import pytest
from playwright.sync_api import FrameLocator, Locator, Page, expect

from tests.kit.browser import save_screenshot
from tests.kit.client import Client
from tests.kit.sampling import full_only, sampled
from tests.ui.test_canvas_mouse_and_keyboard import TEXT, get_sections, heading, make, open_editor, wait_for_property
from tests.ui.test_editor_drags import PRESENCE_POLL

# The point in the middle of some words of the canvas, or behind so many of their letters, in the pixels of its frame.
POINT = """(root, [word, letters]) => {
  const walk = document.createTreeWalker(root, NodeFilter.SHOW_TEXT), range = new Range();
  for (let node; (node = walk.nextNode());) {
    const at = node.data.indexOf(word);
    if (at < 0) continue;
    range.setStart(node, at);
    range.setEnd(node, at + word.length);
    const { left, top, width, height } = range.getBoundingClientRect();
    if (letters === null) return [left + width / 2, top + height / 2];
    range.setEnd(node, at + letters);
    return [range.getBoundingClientRect().right, top + height / 2];
  }
  return null;
}"""


def open_canvas(page: Page, template: int) -> FrameLocator:
    """Open the editor, and return its canvas once the texts of the email can be written in it."""
    frame = open_editor(page, template)
    expect(page.locator("#stage[data-have*=',']")).to_be_attached()
    return frame


def point_in(page: Page, frame: FrameLocator, word: str, letters: int | None = None) -> tuple[float, float]:
    """Return the middle of a word of the canvas, or the place behind so many of its letters."""
    point = frame.locator("body").evaluate(POINT, [word, letters])
    canvas = page.locator("#canvas").bounding_box()
    assert point is not None and canvas is not None
    return canvas["x"] + point[0], canvas["y"] + point[1]


def field(page: Page) -> Locator:
    """Return the field of the selected section's text beside the canvas."""
    return page.locator("#inspector").get_by_label("Text", exact=True)


def test_writing_in_the_canvas(browser_page: Page, api: Client) -> None:
    """After a click text is written in the canvas, field and outline follow, and merge tags stay tags."""
    page = browser_page
    template_id = make(api, TEXT, heading("a", "First"))
    frame = open_canvas(page, template_id)
    page.mouse.click(*point_in(page, frame, "First"))
    writing = frame.locator("h2[data-writing]")
    expect(writing).to_be_focused()
    writing.evaluate("node => { node.kept = true }")
    page.keyboard.press("End")
    page.keyboard.type(" of all")
    expect(field(page)).to_have_text("First of all")
    expect(page.locator("#o-a")).to_contain_text("First of all")
    assert writing.evaluate("node => node.kept") is True
    save_screenshot(page, "canvas-writing")
    page.keyboard.press("Escape")
    expect(writing).to_have_count(0)
    expect(frame.get_by_role("heading", name="First of all")).to_be_visible()
    page.mouse.click(*point_in(page, frame, "how are you"))
    expect(frame.locator("[data-writing] [data-tag]")).to_have_text("First name")
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    page.keyboard.type("Good ")
    page.keyboard.press("Control+b")
    page.keyboard.type("news")
    page.mouse.click(*point_in(page, frame, "First of all"))
    expect(frame.get_by_text("Hello Anna, how are you?")).to_be_visible()
    content = wait_for_property(page, api, template_id, "content", re.compile("news"))
    assert content == "<p>Hello {{ first_name }}, how are you?</p><p>Good <strong>news</strong></p>"
    assert get_sections(api, template_id)[1]["props"]["text"] == "First of all"


def test_the_first_click_puts_the_caret_where_it_was(browser_page: Page, api: Client) -> None:
    """One click into the middle of a heading selects its section, and letters typed at once go where the click was."""
    page = browser_page
    template = make(api, heading("a", "Bread of November"), TEXT)
    frame = open_canvas(page, template)
    page.mouse.click(*point_in(page, frame, "November", 4))
    page.keyboard.type("XYZ")
    expect(frame.locator("h2[data-writing]")).to_have_text("Bread of NoveXYZmber")
    expect(page.locator("#o-a")).to_have_attribute("aria-current", "true")
    expect(field(page)).to_have_text("Bread of NoveXYZmber")
    assert wait_for_property(page, api, template, "text", re.compile("XYZ")) == "Bread of NoveXYZmber"


@pytest.mark.parametrize(("word", "letters", "expected"), [
    full_only("Hello", 2, "<p>HeXllo {{ first_name }}, how are you?</p>"),
    ("are", 1, "<p>Hello {{ first_name }}, how aXre you?</p>"),
])  # fmt: skip
def test_the_caret_beside_a_merge_tag(browser_page: Page, api: Client, word: str, letters: int, expected: str) -> None:
    """The caret is at the letter that was clicked, though a merge tag is wider as a chip than as a value."""
    page = browser_page
    template = make(api, TEXT)
    frame = open_canvas(page, template)
    page.mouse.click(*point_in(page, frame, word, letters))
    page.keyboard.type("X")
    assert wait_for_property(page, api, template, "content", re.compile("X")) == expected


@pytest.mark.full
def test_end_then_a_space(browser_page: Page, api: Client) -> None:
    """After one click End leads to the end of the text, and a space that is typed first there is kept."""
    page = browser_page
    template = make(api, heading("a", "Bread of November"))
    frame = open_canvas(page, template)
    page.mouse.click(*point_in(page, frame, "Bread"))
    page.keyboard.press("End")
    page.keyboard.type(" and December")
    page.keyboard.press("Escape")
    assert wait_for_property(page, api, template, "text", re.compile("Dec")) == "Bread of November and December"
    expect(frame.get_by_role("heading", name="Bread of November and December")).to_be_visible()


@pytest.mark.parametrize(
    ("clicks", "expected", "chosen_before"),
    [(2, "Bread of X", False), full_only(3, "X", True), full_only(2, "Bread of X", True), full_only(3, "X", False)],
)
def test_double_and_triple_clicks(
    browser_page: Page, api: Client, clicks: int, expected: str, chosen_before: bool
) -> None:
    """A double click selects the word and a triple click the paragraph, also the first time; typing replaces it."""
    page = browser_page
    template = make(api, heading("a", "Bread of November"), heading("b", "Other"))
    frame = open_canvas(page, template)
    spot = point_in(page, frame, "November")
    if chosen_before:
        page.mouse.click(*spot)
        page.wait_for_timeout(700)
    page.mouse.click(*spot, click_count=clicks)
    page.keyboard.type("X")
    assert wait_for_property(page, api, template, "text", re.compile("X")) == expected


@pytest.mark.parametrize("section", [full_only(heading("a", "Bread of November")), full_only(TEXT)])
def test_ctrl_a_right_after_the_first_click(browser_page: Page, api: Client, section: dict[str, Any]) -> None:
    """Ctrl A right after the first click selects this text alone, and typing replaces all of it."""
    page = browser_page
    template = make(api, section, heading("b", "Other"))
    frame = open_canvas(page, template)
    page.mouse.click(*point_in(page, frame, "of" if section is not TEXT else "how"))
    page.keyboard.press("Control+a")
    page.keyboard.type("All new")
    page.keyboard.press("Escape")
    name = "text" if section is not TEXT else "content"
    text = wait_for_property(page, api, template, name, re.compile("new"))
    assert text.replace("<p>", "").replace("</p>", "") == "All new"
    assert get_sections(api, template)[1]["props"]["text"] == "Other"


@pytest.mark.full
def test_a_click_under_a_text_writes_in_it(browser_page: Page, api: Client) -> None:
    """Writing begins also by a click at the lower edge of a text: nothing there takes it, and no section is added."""
    page = browser_page
    template = make(api, {"id": "t", "type": "text", "props": {"content": "<p>Add your text here.</p>"}})
    frame = open_canvas(page, template)
    box = frame.get_by_text("Add your text here.").bounding_box()
    assert box is not None
    middle = box["x"] + box["width"] / 2
    page.mouse.move(middle, box["y"] + 4, steps=4)
    page.mouse.move(middle, box["y"] + box["height"] + 6, steps=4)
    page.mouse.click(middle, box["y"] + box["height"] + 6)
    page.keyboard.press("Control+a")
    page.keyboard.type("Hello, here are our breads.", delay=20)
    expect(page.locator("#list li")).to_have_count(1)
    expect(page.locator("#tab-outline")).to_have_attribute("aria-selected", "true")
    content = wait_for_property(page, api, template, "content", re.compile("breads"))
    assert content == "<p>Hello, here are our breads.</p>"


@pytest.mark.full
def test_words_typed_after_the_add_button(browser_page: Page, api: Client) -> None:
    """After a click on the round button of a section letters go on into the text, and press no entry of the palette."""
    page = browser_page
    template = make(api, heading("a", "First"), TEXT)
    frame = open_canvas(page, template)
    page.mouse.click(*point_in(page, frame, "First"))
    page.keyboard.press("Escape")
    x, y = point_in(page, frame, "how are")
    page.mouse.move(x, y, steps=4)
    edge = frame.locator("h2").evaluate("heading => heading.closest('td').getBoundingClientRect().bottom")
    canvas = page.locator("#canvas").bounding_box()
    assert canvas is not None
    save_screenshot(page, "canvas-add-buttons")
    # The round button is at the left end of the edge between both sections, of which the email has 600 pixels
    page.mouse.click(canvas["x"] + (canvas["width"] - 600) / 2 + 2, canvas["y"] + edge)
    expect(page.locator("#tab-palette")).to_have_attribute("aria-selected", "true")
    page.keyboard.type(" Hallo, hier sind alle Brote", delay=20)
    expect(page.locator("#list li")).to_have_count(2)
    text = wait_for_property(page, api, template, "text", re.compile("Brote"))
    assert text == "First Hallo, hier sind alle Brote"


@pytest.mark.full
def test_words_typed_outside_of_a_text(browser_page: Page, api: Client) -> None:
    """With nothing to write in, typed words add no section, and Ctrl A marks neither the editor nor the canvas."""
    page = browser_page
    template = make(api, {"id": "d", "type": "divider", "props": {}}, heading("a", "First"))
    frame = open_canvas(page, template)
    selected = "() => getSelection().toString().length"
    page.locator("#o-").focus()
    page.keyboard.press("Control+a")
    assert page.evaluate(selected) == 0
    canvas = page.locator("#canvas").bounding_box()
    assert canvas is not None
    page.mouse.click(canvas["x"] + 320, canvas["y"] + 500)
    page.keyboard.press("Control+a")
    assert page.evaluate(selected) == 0 and frame.locator("body").evaluate(selected) == 0
    page.keyboard.type("Da bin ich, hallo und an alle ", delay=20)
    page.keyboard.press("Enter")
    page.wait_for_timeout(300)
    expect(page.locator("#list li")).to_have_count(2)


@pytest.mark.full
def test_the_tools_of_a_text_that_is_written(browser_page: Page, api: Client) -> None:
    """Writing in a text shows the tools of its section and no round button; its shortcuts act on the section."""
    page = browser_page
    template = make(api, heading("a", "First"), heading("b", "Second"))
    frame = open_canvas(page, template)
    page.mouse.click(*point_in(page, frame, "Second"))
    page.keyboard.press("End")
    page.keyboard.type(" thoughts")
    save_screenshot(page, "canvas-writing-tools")
    page.keyboard.press("Control+d")
    expect(page.locator("#list li")).to_have_count(3)
    assert [section["props"]["text"] for section in get_sections(api, template)][1:] == ["Second thoughts"] * 2


def test_fast_clicks_from_text_to_text(browser_page: Page, api: Client) -> None:
    """Letters typed right after each of several clicks reach their own texts, however slow the server answers."""
    page = browser_page
    template = make(api, heading("a", "First"), heading("b", "Second"), heading("c", "Third"))
    frame = open_canvas(page, template)

    def answer_later(route: Any) -> None:
        page.wait_for_timeout(250)
        route.continue_()

    page.route("**/sections/*", answer_later)
    for name in ("First", "Second", "Third"):
        page.mouse.click(*point_in(page, frame, name))
        page.keyboard.press("Home")
        page.keyboard.type(f"{name[0]}-")
    page.keyboard.press("Escape")
    expect(page.locator("#editor:not([data-busy])")).to_have_count(1, timeout=15_000)
    page.unroute_all(behavior="wait")
    wait_for_property(page, api, template, "text", re.compile("F-First"))
    assert [section["props"]["text"] for section in get_sections(api, template)] == ["F-First", "S-Second", "T-Third"]


def test_leaving_a_text_unchanged_asks_for_nothing(browser_page: Page, api: Client) -> None:
    """A text that was only clicked into shows again what it showed, without a request for its row."""
    page = browser_page
    frame = open_canvas(page, make(api, TEXT, heading("a", "First")))
    requested: list[str] = []
    page.on("request", lambda request: requested.append(request.url))
    page.mouse.click(*point_in(page, frame, "Hello"))
    expect(frame.locator("[data-writing] [data-tag]")).to_have_count(1)
    page.keyboard.press("Escape")
    expect(frame.get_by_text("Hello Anna, how are you?")).to_be_visible()
    expect(page.locator("#editor:not([data-busy])")).to_have_count(1)
    assert [url for url in requested if "/rows" in url] == []


PRODUCT = {"id": "p", "type": "product", "props": {"title": "Rye loaf", "price": "4.20"}}
COLUMNS = {"id": "c", "type": "columns", "props": {"columns": [
    {"sections": [heading("l", "Left of both")]},
    {"sections": [{"id": "r", "type": "text", "props": {"content": "<p>Right of both</p>"}}]},
]}}  # fmt: skip
# What is written in, at which word; what is clicked then, at which word; where its text is stored and what it becomes
STEPS: dict[str, tuple[str, str, str, str]] = {
    "heading to text": ("November", "a", "baked", "t"),
    "text to heading": ("baked", "t", "November", "a"),
    "heading to product": ("November", "a", "Rye", "p"),
    "column to column": ("Left", "l", "Right", "r"),
}


def press_and_release(page: Page, x: float, y: float, held_ms: int = 90) -> None:
    """Move to a point and click there as a hand does: the button is down for a moment."""
    page.mouse.move(x, y, steps=6)
    page.mouse.down()
    page.wait_for_timeout(held_ms)
    page.mouse.up()


def texts_by_id(sections: list[dict[str, Any]]) -> dict[str, str]:
    """Return the texts of sections by section id, including those in columns, without paragraphs' tags."""
    texts = {}
    for section in sections:
        props = section["props"]
        texts[section["id"]] = re.sub("</?p>", "", str(props.get("text", props.get("content"))))
        for column in props.get("columns", []):
            texts |= texts_by_id(column.get("sections", []))
    return texts


@pytest.mark.parametrize(
    ("step", "pause_ms"),
    sampled(
        itertools.product(STEPS, (0, 300, 800, 2000)),
        [("heading to text", 800)],
    ),
)  # fmt: skip
def test_one_click_leads_from_a_written_text_to_the_next(
    browser_page: Page, api: Client, step: str, pause_ms: int
) -> None:
    """After typing and any pause, one click selects another section and puts the caret there; all typed is kept."""
    page = browser_page
    text = {"id": "t", "type": "text", "props": {"content": "<p>All of it baked on Friday</p>"}}
    template = make(api, heading("a", "Bread of November"), text, PRODUCT, COLUMNS)
    frame = open_canvas(page, template)
    from_word, from_id, to_word, to_id = STEPS[step]
    before = texts_by_id(get_sections(api, template))
    press_and_release(page, *point_in(page, frame, from_word, 2))
    page.keyboard.type("XYZ", delay=30)
    page.wait_for_timeout(pause_ms)
    press_and_release(page, *point_in(page, frame, to_word, 2))
    if to_id != "p":
        page.keyboard.type("12", delay=30)
        page.wait_for_timeout(900)
        page.keyboard.type("34", delay=30)
    expect(page.locator(f"#o-{to_id}")).to_have_attribute("aria-current", "true")
    expect(frame.locator("[data-writing]")).to_have_count(0 if to_id == "p" else 1)
    expect(page.locator("#editor:not([data-busy])")).to_have_count(1)
    expected = {**before, from_id: before[from_id].replace(from_word, f"{from_word[:2]}XYZ{from_word[2:]}")}
    if to_id != "p":
        expected[to_id] = before[to_id].replace(to_word, f"{to_word[:2]}1234{to_word[2:]}")
    assert texts_by_id(get_sections(api, template)) == expected


@pytest.mark.full
def test_a_click_while_the_whole_email_is_swapped(browser_page: Page, api: Client) -> None:
    """A save and another user's theme that arrive between press and release do not take the click away."""
    page = browser_page
    template = make(api, heading("a", "Bread of November"), heading("b", "Other"))
    frame = open_canvas(page, template)
    press_and_release(page, *point_in(page, frame, "November", 2))
    page.keyboard.type("XYZ", delay=30)
    page.mouse.move(*point_in(page, frame, "Other", 2), steps=6)
    page.mouse.down()
    page.wait_for_timeout(700)
    design = api.get(f"/templates/{template}").expect(200)["design"]
    assert design["sections"][0]["props"]["text"] == "Bread of NoXYZvember"
    api.patch(f"/templates/{template}", {"design": {**design, "theme": {"bg_color": "#ddeeff"}}}).expect(200)
    page.evaluate(PRESENCE_POLL)
    expect(page.locator("#editor:not([data-busy])")).to_have_count(1)
    page.mouse.up()
    page.keyboard.type("12", delay=30)
    page.wait_for_timeout(700)
    page.keyboard.type("34", delay=30)
    expect(page.locator("#o-b")).to_have_attribute("aria-current", "true")
    expect(page.locator("#editor:not([data-busy])")).to_have_count(1)
    assert texts_by_id(get_sections(api, template)) == {"a": "Bread of NoXYZvember", "b": "Ot1234her"}
    expect(frame.locator("body")).to_have_css("background-color", "rgb(221, 238, 255)")
