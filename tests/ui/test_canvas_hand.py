"""The canvas under a hand: chosen, dragged, seen as others get it; and its fields with merge tags and pictures."""

import re
from typing import Any

import pytest
from playwright.sync_api import FrameLocator, Locator, Page, expect

from tests.kit import axe
from tests.kit.browser import shoot
from tests.kit.client import Client
from tests.kit.emails import expect_order
from tests.kit.pictures import photo, saved

TEXT = {"id": "t", "type": "text", "props": {"content": "<p>Hello {{ first_name }}, how are you?</p>"}}


@pytest.fixture(scope="module", autouse=True)
def people(api: Client) -> None:
    """Somebody with a name, and somebody without."""
    api.post("/contacts", {"email": "mara@example.org", "first_name": "Mara", "last_name": "Lind"}).expect(201)
    api.post("/contacts", {"email": "nobody@example.org", "data": {"town": "Bath"}}).expect(201)


def heading(key: str, text: str) -> dict[str, Any]:
    """Return a heading."""
    return {"id": key, "type": "heading", "props": {"text": text}}


def make(api: Client, *sections: dict[str, Any], **more: Any) -> int:
    """Make a template of sections."""
    asked = {"name": "Letter", "subject": "News", "design": {"sections": list(sections)}, **more}
    return int(api.post("/templates", asked).expect(201)["id"])


def sections(api: Client, template: int) -> Any:
    """Return the sections as they are kept."""
    return api.get(f"/templates/{template}").expect(200)["design"]["sections"]


def opened(page: Page, template: int) -> FrameLocator:
    """Open the editor and answer its canvas, once it listens."""
    page.goto(f"/templates/{template}/edit")
    frame = page.frame_locator("#canvas")
    expect(frame.locator("html[style*=color-scheme]")).to_be_attached()
    return frame


def kept(page: Page, api: Client, template: int, name: str, wanted: re.Pattern[str]) -> str:
    """Wait until a property of the first section is kept as wanted, and answer it."""
    expect(page.locator("#editor:not([data-busy])")).to_have_count(1)
    said = ""
    for _ in range(100):
        said = str(sections(api, template)[0]["props"].get(name))
        if wanted.search(said):
            return said
        page.wait_for_timeout(50)
    raise AssertionError(f"{name} is {said!r}")


def drag(page: Page, from_: Locator, to: Locator, below: float) -> None:
    """Take hold of something in the canvas and let go of it so far below the top of something else."""
    one, other = from_.bounding_box(), to.bounding_box()
    assert one is not None and other is not None
    page.mouse.move(one["x"] + 8, one["y"] + 8)
    page.mouse.down()
    page.mouse.move(one["x"] + 20, one["y"] + 30, steps=3)
    page.mouse.move(other["x"] + 30, other["y"] + below, steps=4)
    page.mouse.up()


def test_an_edit_replaces_one_row(browser_page: Page, api: Client) -> None:
    """What is typed stands in the canvas without a reload: the other rows are the same elements as before."""
    page = browser_page
    frame = opened(page, make(api, heading("a", "First"), heading("b", "Second")))
    frame.get_by_role("heading", name="First").evaluate("node => { node.kept = true }")
    frame.get_by_role("heading", name="Second").click()
    field = page.locator("#inspector, .right").get_by_label("Text", exact=True)
    expect(field).to_have_text("Second")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    field.fill("Second thoughts")
    expect(frame.get_by_role("heading", name="Second thoughts")).to_be_visible()
    expect(page.locator("#editor:not([data-busy])")).to_have_count(1)
    # What changed comes with the answer of the save
    assert [url for url in asked if "/rows" in url] == [] and any("/sections/b" in url for url in asked)
    assert frame.get_by_role("heading", name="First").evaluate("node => node.kept") is True
    shoot(page, "canvas")
    assert axe.faults_in_both_looks(page) == []


def test_a_section_is_dragged_in_the_canvas(browser_page: Page, api: Client) -> None:
    """Among the rows, and into a column; the click that lets go chooses nothing else."""
    page = browser_page
    columns = {"id": "c", "type": "columns", "props": {"columns": [{"sections": [heading("in", "Inner")]}, {}]}}
    template = make(api, heading("a", "First"), heading("b", "Second"), columns)
    frame = opened(page, template)
    first, second = (frame.get_by_role("heading", name=name) for name in ("First", "Second"))
    drag(page, second, first, 2)
    expect_order(page, "b", "a", "c", "in")
    drag(page, first, frame.get_by_role("heading", name="Inner"), 2)
    expect_order(page, "b", "c", "a", "in")
    now = sections(api, template)
    assert [one["id"] for one in now] == ["b", "c"]
    assert [one["id"] for one in now[1]["props"]["columns"][0]["sections"]] == ["a", "in"]


def test_a_kind_is_dropped_from_the_palette(browser_page: Page, api: Client) -> None:
    """A tile that a hand lets go over the canvas stands where the line was, and nowhere else."""
    page = browser_page
    page.emulate_media(reduced_motion="reduce")
    template = make(api, heading("a", "First"), heading("b", "Second"))
    frame = opened(page, template)
    page.get_by_role("tab", name="Add").click()
    tile, second = page.locator(".tile-add[data-kind=divider]"), frame.get_by_role("heading", name="Second")
    here, there = tile.bounding_box(), second.bounding_box()
    assert here is not None and there is not None
    page.mouse.move(here["x"] + 20, here["y"] + 12)
    page.mouse.down()
    page.mouse.move(here["x"] + 30, here["y"] + 16, steps=3)
    # On the right, where the outline does not lie over the canvas
    page.mouse.move(there["x"] + 400, there["y"] + 2, steps=6)
    page.mouse.up()
    expect(page.locator("#list li")).to_have_count(3)
    assert [one["type"] for one in sections(api, template)] == ["heading", "divider", "heading"]
    page.emulate_media(reduced_motion="no-preference")


def test_keys_in_the_canvas_are_the_editor_s(browser_page: Page, api: Client) -> None:
    """Alt and an arrow move the chosen section, Ctrl D doubles it, Ctrl Z takes that back."""
    page = browser_page
    template = make(api, heading("a", "First"), heading("b", "Second"))
    frame = opened(page, template)
    frame.get_by_role("heading", name="Second").click()
    expect(page.locator("#o-b")).to_have_attribute("aria-current", "true")
    page.keyboard.press("Alt+ArrowUp")
    expect_order(page, "b", "a")
    page.keyboard.press("Control+d")
    expect(page.locator("#list li")).to_have_count(3)
    page.keyboard.press("Control+z")
    expect_order(page, "b", "a")


def test_it_is_looked_at_in_four_ways(browser_page: Page, api: Client) -> None:
    """Two widths; dark as its author chose, whatever the system says, and dark as programs force it."""
    page = browser_page
    frame = opened(page, make(api, heading("a", "First")))
    background = "node => getComputedStyle(node).backgroundColor"
    light = frame.locator("body").evaluate(background)
    page.get_by_role("button", name="Phone").click()
    expect(page.locator("#canvas")).to_have_css("width", "375px")
    page.emulate_media(color_scheme="dark")
    assert frame.locator("body").evaluate(background) == light
    page.get_by_role("button", name="Dark", exact=True).click()
    expect(page.locator("#canvas")).to_have_css("width", "640px")
    expect(frame.locator("html[style*='color-scheme: dark']")).to_be_attached()
    dark = frame.locator("body").evaluate(background)
    assert dark != light
    page.get_by_role("button", name="Forced").click()
    expect(frame.locator("html[data-forced]")).to_be_attached()
    assert frame.locator("body").evaluate(background) == light
    page.get_by_role("button", name="Desktop").click()
    expect(page.get_by_role("button", name="Forced")).to_be_hidden()
    page.emulate_media(color_scheme="light")


def test_it_is_shown_as_somebody_gets_it(browser_page: Page, api: Client) -> None:
    """People are found by their name; somebody without a first name is offered, because they are forgotten."""
    page = browser_page
    frame = opened(page, make(api, TEXT))
    expect(frame.get_by_text("Hello Anna, how are you?")).to_be_visible()
    page.get_by_role("button", name=re.compile("As Anna")).click()
    page.get_by_label("Find a person").fill("lind")
    page.locator("#as-people").get_by_role("button", name=re.compile("Mara Lind")).click()
    expect(frame.get_by_text("Hello Mara, how are you?")).to_be_visible()
    page.get_by_role("button", name=re.compile("As Mara Lind")).click()
    page.get_by_label("Find a person").fill("")
    page.get_by_role("button", name=re.compile("Without a first name")).click()
    expect(frame.get_by_text("Hello , how are you?")).to_be_visible()


def test_a_merge_tag_is_a_chip_with_a_fallback(browser_page: Page, api: Client) -> None:
    """Two braces open the picker; who has no name is counted beside the chip, and told something else."""
    page = browser_page
    template = make(api, heading("a", "First"))
    opened(page, template).get_by_role("heading", name="First").click()
    field = page.locator("#inspector, .right").get_by_label("Text", exact=True)
    field.click()
    page.keyboard.press("End")
    page.keyboard.type(", {{")
    search = page.get_by_label("Find a merge tag")
    expect(search).to_be_focused()
    assert axe.faults_in_both_looks(page) == []
    search.fill("last name")
    search.press("Enter")
    chip = field.locator(".merge")
    expect(chip).to_have_text("Last name")
    expect(page.get_by_text(re.compile("last name. Add a fallback"))).to_be_visible()
    chip.click()
    page.get_by_label("For people without it").fill("friend")
    page.keyboard.press("Enter")
    expect(chip).to_have_text("Last name ▸ friend")
    expect(page.get_by_text("Add a fallback")).to_be_hidden()
    page.keyboard.press("End")
    page.keyboard.type(" {{ nothing.known }}!")
    expect(page.get_by_text("Nobody knows this tag")).to_be_visible()
    said = kept(page, api, template, "text", re.compile("!$"))
    assert said == 'First, {{ last_name | default: "friend" }} {{ nothing.known }}!'


PASTE = """(node, html) => {
  const data = new DataTransfer();
  data.setData("text/html", html);
  node.focus();
  getSelection().selectAllChildren(node);
  node.dispatchEvent(new ClipboardEvent("paste", { clipboardData: data, bubbles: true, cancelable: true }));
}"""


def test_what_is_pasted_is_cut_down(browser_page: Page, api: Client) -> None:
    """Of a page from elsewhere words, emphasis, links and lists stay; scripts, pictures and classes do not."""
    page = browser_page
    template = make(api, TEXT)
    opened(page, template).get_by_text("Hello Anna").click()
    field = page.locator("#inspector, .right").get_by_label("Text", exact=True)
    expect(field.locator(".merge")).to_have_text("First name")
    html = (
        "<div class=x onclick=alert(1)><h2>Big</h2><p>One <b>two</b> <a href='https://example.com/?a=1&b=2' style=x>"
        "three</a><a href='javascript:alert(1)'>four</a><script>alert(2)</script><img src=x onerror=alert(3)></p>"
        "<ul><li><p>five {{ email }}</p></li></ul></div>"
    )
    field.evaluate(PASTE, html)
    page.keyboard.press("Control+End")
    page.get_by_role("button", name="Insert a merge tag").last.click()
    page.get_by_role("button", name=re.compile("Unsubscribe link")).click()
    said = kept(page, api, template, "content", re.compile("unsubscribe_url"))
    assert said.startswith('<p>Big</p><p>One <strong>two</strong> <a href="https://example.com/?a=1&amp;b=2">three</a>')
    assert "<li>five {{ email }}" in said and '<a href="{{ unsubscribe_url }}">Unsubscribe</a>' in said
    assert not re.search("alert|class|img|style|javascript", said)


def test_a_picture_comes_from_the_drawer(browser_page: Page, api: Client) -> None:
    """Uploaded and put in with what it shows; an SVG is refused with the reason, a large one is asked about."""
    page = browser_page
    template = make(api, {"id": "p", "type": "image", "props": {}})
    frame = opened(page, template)
    page.locator("#list").get_by_text(re.compile("Picture|Image")).first.click()
    page.get_by_role("button", name="Choose…").first.click()
    chosen = page.locator("#pictures-file")
    chosen.set_input_files({"name": "logo.svg", "mimeType": "image/svg+xml", "buffer": b"<svg xmlns='x'></svg>"})
    expect(page.locator("#media-one")).to_contain_text("SVG, which mail programs do not show")
    expect(page.get_by_text("Uploading")).to_be_hidden()
    chosen.set_input_files({"name": "hills.png", "mimeType": "image/png", "buffer": saved(photo(1700, 40), "PNG")})
    expect(page.get_by_text("This picture is 1700 × 40")).to_be_visible()
    page.get_by_role("button", name="Make it smaller").click()
    expect(page.locator("#media-one")).to_contain_text("1440 × ")
    page.locator("#media-alt").fill("Hills in the morning")
    shoot(page, "pictures-drawer")
    assert axe.faults_in_both_looks(page) == []
    page.get_by_role("button", name="Use this picture").click()
    expect(frame.get_by_role("img", name="Hills in the morning")).to_be_visible()
    expect(page.locator(".right .picfield img").first).to_be_visible()
    assert "/m/" in kept(page, api, template, "src", re.compile("/m/"))
    assert kept(page, api, template, "alt", re.compile("Hills")) == "Hills in the morning"
