"""The canvas by mouse and keyboard: selecting, dragging, previews; and fields with merge tags and pictures."""

import re
from typing import Any

import pytest
from playwright.sync_api import FrameLocator, Locator, Page, expect

from tests.kit import axe
from tests.kit.browser import save_screenshot
from tests.kit.client import Client
from tests.kit.editor import expect_order
from tests.kit.pictures import encode_image, photo
from tests.kit.sampling import full_only

TEXT = {"id": "t", "type": "text", "props": {"content": "<p>Hello {{ first_name }}, how are you?</p>"}}


@pytest.fixture(scope="module", autouse=True)
def people(api: Client) -> None:
    """A contact with a name, and one without."""
    api.post("/contacts", {"email": "mara@example.org", "first_name": "Mara", "last_name": "Lind"}).expect(201)
    api.post("/contacts", {"email": "nobody@example.org", "data": {"town": "Bath"}}).expect(201)


def heading(key: str, text: str) -> dict[str, Any]:
    """Return a heading section."""
    return {"id": key, "type": "heading", "props": {"text": text}}


def make(api: Client, *sections: dict[str, Any], **fields: Any) -> int:
    """Create a template of sections and return its id."""
    request = {"name": "Letter", "subject": "News", "design": {"sections": list(sections)}, **fields}
    return int(api.post("/templates", request).expect(201)["id"])


def get_sections(api: Client, template: int) -> Any:
    """Return the stored sections."""
    return api.get(f"/templates/{template}").expect(200)["design"]["sections"]


def open_editor(page: Page, template: int) -> FrameLocator:
    """Open the editor and return its canvas, once its scripts run."""
    page.goto(f"/templates/{template}/edit")
    frame = page.frame_locator("#canvas")
    expect(frame.locator("html[style*=color-scheme]")).to_be_attached()
    return frame


def wait_for_property(page: Page, api: Client, template: int, name: str, pattern: re.Pattern[str]) -> str:
    """Wait until a property of the first section matches, and return it."""
    expect(page.locator("#editor:not([data-busy])")).to_have_count(1)
    value = ""
    for _ in range(100):
        value = str(get_sections(api, template)[0]["props"].get(name))
        if pattern.search(value):
            return value
        page.wait_for_timeout(50)
    raise AssertionError(f"{name} is {value!r}")


def drag(page: Page, from_: Locator, to: Locator, below: float) -> None:
    """Drag from one element of the canvas to `below` pixels under the top of another."""
    start_box, end_box = from_.bounding_box(), to.bounding_box()
    assert start_box is not None and end_box is not None
    page.mouse.move(start_box["x"] + 8, start_box["y"] + 8)
    page.mouse.down()
    page.mouse.move(start_box["x"] + 20, start_box["y"] + 30, steps=3)
    page.mouse.move(end_box["x"] + 30, end_box["y"] + below, steps=4)
    page.mouse.up()


@pytest.mark.full
def test_an_edit_replaces_only_its_row(browser_page: Page, api: Client) -> None:
    """Typed text appears in the canvas without a reload, and elements of other rows stay the same."""
    page = browser_page
    frame = open_editor(page, make(api, heading("a", "First"), heading("b", "Second")))
    frame.get_by_role("heading", name="First").evaluate("node => { node.kept = true }")
    frame.get_by_role("heading", name="Second").click()
    field = page.locator("#inspector, .right").get_by_label("Text", exact=True)
    expect(field).to_have_text("Second")
    requested_urls: list[str] = []
    page.on("request", lambda request: requested_urls.append(request.url))
    field.fill("Second thoughts")
    expect(frame.get_by_role("heading", name="Second thoughts")).to_be_visible()
    expect(page.locator("#editor:not([data-busy])")).to_have_count(1)
    # The response to the save contains the changed row
    assert [url for url in requested_urls if "/rows" in url] == [] and any(
        "/sections/b" in url for url in requested_urls
    )
    assert frame.get_by_role("heading", name="First").evaluate("node => node.kept") is True
    save_screenshot(page, "canvas")
    assert axe.find_violations_in_light_and_dark(page) == []


def test_dragging_a_section_in_the_canvas(browser_page: Page, api: Client) -> None:
    """Sections are dragged between rows and into a column."""
    page = browser_page
    columns = {"id": "c", "type": "columns", "props": {"columns": [{"sections": [heading("in", "Inner")]}, {}]}}
    template_id = make(api, heading("a", "First"), heading("b", "Second"), columns)
    frame = open_editor(page, template_id)
    first, second = (frame.get_by_role("heading", name=name) for name in ("First", "Second"))
    drag(page, second, first, 2)
    expect_order(page, "b", "a", "c", "in")
    drag(page, first, frame.get_by_role("heading", name="Inner"), 2)
    expect_order(page, "b", "c", "a", "in")
    stored = get_sections(api, template_id)
    assert [section["id"] for section in stored] == ["b", "c"]
    assert [section["id"] for section in stored[1]["props"]["columns"][0]["sections"]] == ["a", "in"]


@pytest.mark.full
def test_the_tools_of_the_selected_section_wait_for_the_pointer(browser_page: Page, api: Client) -> None:
    """The pointer comes to the handle of the selected section over the one above it, and moves the selected one."""
    page = browser_page
    # The tools are in a closed shadow tree; opened, their places can be read
    page.add_init_script(
        "{ const attach = Element.prototype.attachShadow;"
        " Element.prototype.attachShadow = function () { return attach.call(this, { mode: 'open' }); }; }"
    )
    frame = open_editor(page, make(api, heading("a", "First"), heading("b", "Second"), heading("c", "Third")))
    expect(page.locator("#stage[data-have*=',']")).to_be_attached()
    first, third = (frame.get_by_role("heading", name=name).bounding_box() for name in ("First", "Third"))
    assert first is not None and third is not None
    frame.get_by_role("heading", name="Second").click()
    expect(page.locator("#o-b")).to_have_attribute("aria-current", "true")
    tools, handle = frame.locator(".tools"), frame.locator("[data-act=drag]")
    place, target = tools.bounding_box(), handle.bounding_box()
    assert place is not None and target is not None
    page.mouse.move(first["x"] + 200, first["y"] + 2, steps=6)
    expect(frame.locator(".tag")).to_have_text("Heading")
    assert tools.bounding_box() == place
    save_screenshot(page, "canvas-tools-of-selected")
    page.mouse.move(target["x"] + 12, target["y"] + 12, steps=12)
    assert tools.bounding_box() == place
    page.mouse.down()
    page.mouse.move(third["x"] + 60, third["y"] + third["height"] + 8, steps=10)
    page.mouse.up()
    expect_order(page, "a", "c", "b")


@pytest.mark.full
def test_dropping_a_new_section(browser_page: Page, api: Client) -> None:
    """A tile of the palette is inserted where it is dropped in the canvas."""
    page = browser_page
    page.emulate_media(reduced_motion="reduce")
    template_id = make(api, heading("a", "First"), heading("b", "Second"))
    frame = open_editor(page, template_id)
    page.get_by_role("tab", name="Add").click()
    tile, second = page.locator(".tile-add[data-kind=divider]"), frame.get_by_role("heading", name="Second")
    tile_box, target_box = tile.bounding_box(), second.bounding_box()
    assert tile_box is not None and target_box is not None
    page.mouse.move(tile_box["x"] + 20, tile_box["y"] + 12)
    page.mouse.down()
    page.mouse.move(tile_box["x"] + 30, tile_box["y"] + 16, steps=3)
    page.mouse.move(target_box["x"] + 40, target_box["y"] + 2, steps=6)
    page.mouse.up()
    expect(page.locator("#list li")).to_have_count(3)
    assert [section["type"] for section in get_sections(api, template_id)] == ["heading", "divider", "heading"]
    page.emulate_media(reduced_motion="no-preference")


@pytest.mark.full
def test_editor_shortcuts_in_the_canvas(browser_page: Page, api: Client) -> None:
    """Alt and an arrow move the selected section, Ctrl D duplicates it, Ctrl Z undoes."""
    page = browser_page
    template_id = make(api, heading("a", "First"), heading("b", "Second"))
    frame = open_editor(page, template_id)
    frame.get_by_role("heading", name="Second").click()
    expect(page.locator("#o-b")).to_have_attribute("aria-current", "true")
    page.keyboard.press("Alt+ArrowUp")
    expect_order(page, "b", "a")
    page.keyboard.press("Control+d")
    expect(page.locator("#list li")).to_have_count(3)
    page.keyboard.press("Control+z")
    expect_order(page, "b", "a")


@pytest.mark.full
def test_preview_modes(browser_page: Page, api: Client) -> None:
    """The canvas shows desktop and phone width, dark mode as designed, and forced dark mode."""
    page = browser_page
    frame = open_editor(page, make(api, heading("a", "First")))
    background = "node => getComputedStyle(node).backgroundColor"
    light = frame.locator("body").evaluate(background)
    page.get_by_role("button", name="Mobile").click()
    expect(page.locator("#canvas")).to_have_css("width", "375px")
    page.emulate_media(color_scheme="dark")
    assert frame.locator("body").evaluate(background) == light
    page.get_by_role("button", name="Dark", exact=True).click()
    expect(page.locator("#canvas")).to_have_css("width", "640px")
    expect(frame.locator("html[style*='color-scheme: dark']")).to_be_attached()
    dark = frame.locator("body").evaluate(background)
    assert dark != light
    page.get_by_role("button", name="Inverted").click()
    expect(frame.locator("html[data-forced]")).to_be_attached()
    assert frame.locator("body").evaluate(background) == light
    page.get_by_role("button", name="Desktop").click()
    expect(page.get_by_role("button", name="Inverted")).to_be_hidden()
    page.emulate_media(color_scheme="light")


def test_preview_as_a_contact(browser_page: Page, api: Client) -> None:
    """A contact is found by name, and one without a first name is offered."""
    page = browser_page
    frame = open_editor(page, make(api, TEXT))
    expect(frame.get_by_text("Hello Anna, how are you?")).to_be_visible()
    page.get_by_role("button", name=re.compile("Preview as Sample contact")).click()
    page.get_by_label("Search contacts").fill("lind")
    page.locator("#as-people").get_by_role("button", name=re.compile("Mara Lind")).click()
    expect(frame.get_by_text("Hello Mara, how are you?")).to_be_visible()
    page.get_by_role("button", name=re.compile("Preview as Mara Lind")).click()
    page.get_by_label("Search contacts").fill("")
    page.get_by_role("button", name=re.compile("Contact without a first name")).click()
    expect(frame.get_by_text("Hello , how are you?")).to_be_visible()


def test_merge_tags_and_fallbacks(browser_page: Page, api: Client) -> None:
    """Two braces open the picker; contacts without a value are counted, and a fallback can be set."""
    page = browser_page
    template_id = make(api, heading("a", "First"))
    open_editor(page, template_id).get_by_role("heading", name="First").click()
    field = page.locator("#inspector, .right").get_by_label("Text", exact=True)
    field.click()
    page.keyboard.press("End")
    page.keyboard.type(", {{")
    search = page.get_by_label("Search merge tags")
    expect(search).to_be_focused()
    assert axe.find_violations_in_light_and_dark(page) == []
    search.fill("last name")
    search.press("Enter")
    chip = field.locator(".merge")
    expect(chip).to_have_text("Last name")
    expect(page.get_by_text(re.compile("have no value. Add a fallback|has a value. Add a fallback"))).to_be_visible()
    chip.click()
    page.get_by_role("textbox", name="Fallback").fill("friend")
    page.keyboard.press("Enter")
    expect(chip).to_have_text("Last name ▸ friend")
    expect(page.get_by_text("Add a fallback")).to_be_hidden()
    page.keyboard.press("End")
    page.keyboard.type(" {{ nothing.known }}!")
    expect(page.get_by_text("This merge tag is unknown")).to_be_visible()
    text = wait_for_property(page, api, template_id, "text", re.compile("!$"))
    assert text == 'First, {{ last_name | default: "friend" }} {{ nothing.known }}!'


PASTE = """(node, html) => {
  const data = new DataTransfer();
  data.setData("text/html", html);
  node.focus();
  getSelection().selectAllChildren(node);
  node.dispatchEvent(new ClipboardEvent("paste", { clipboardData: data, bubbles: true, cancelable: true }));
}"""


def test_pasted_html_is_sanitized(browser_page: Page, api: Client) -> None:
    """Of pasted HTML text, emphasis, links and lists stay; scripts, images and classes are removed."""
    page = browser_page
    template_id = make(api, TEXT)
    open_editor(page, template_id).get_by_text("Hello Anna").click()
    field = page.locator("#inspector, .right").get_by_label("Text", exact=True)
    expect(field.locator(".merge")).to_have_text("First name")
    html = (
        "<div class=x onclick=alert(1)><h2>Big</h2><p>One <b>two</b> <a href='https://example.com/?a=1&b=2' style=x>"
        "three</a><a href='javascript:alert(1)'>four</a><script>alert(2)</script><img src=x onerror=alert(3)></p>"
        "<ul><li><p>five {{ email }}</p></li></ul></div>"
    )
    field.evaluate(PASTE, html)
    page.keyboard.press("Control+End")
    page.get_by_role("button", name="Insert merge tag").last.click()
    page.get_by_role("button", name=re.compile("Unsubscribe link")).click()
    content = wait_for_property(page, api, template_id, "content", re.compile("unsubscribe_url"))
    assert content.startswith(
        '<p>Big</p><p>One <strong>two</strong> <a href="https://example.com/?a=1&amp;b=2">three</a>'
    )
    assert "<li>five {{ email }}" in content and '<a href="{{ unsubscribe_url }}">Unsubscribe</a>' in content
    assert not re.search("alert|class|img|style|javascript", content)


@pytest.mark.full
def test_choosing_a_picture(browser_page: Page, api: Client) -> None:
    """A picture is uploaded, resized and used with its alt text; an SVG is rejected with the reason."""
    page = browser_page
    template_id = make(api, {"id": "p", "type": "image", "props": {}})
    frame = open_editor(page, template_id)
    page.locator("#list").get_by_text("Image").first.click()
    page.get_by_role("button", name="Select image").first.click()
    file_input = page.locator("#pictures-file")
    file_input.set_input_files({"name": "logo.svg", "mimeType": "image/svg+xml", "buffer": b"<svg xmlns='x'></svg>"})
    expect(page.locator("#media-one")).to_contain_text("SVG, which email apps do not show")
    expect(page.get_by_text("Uploading")).to_be_hidden()
    file_input.set_input_files(
        {"name": "hills.png", "mimeType": "image/png", "buffer": encode_image(photo(1700, 40), "PNG")}
    )
    expect(page.get_by_text("This image is 1700 × 40")).to_be_visible()
    page.get_by_role("button", name="Reduce size").click()
    expect(page.locator("#media-one")).to_contain_text("1440 × ")
    page.locator("#media-alt").fill("Hills in the morning")
    save_screenshot(page, "pictures-drawer")
    assert axe.find_violations_in_light_and_dark(page) == []
    page.get_by_role("button", name="Use image").click()
    expect(frame.get_by_role("img", name="Hills in the morning")).to_be_visible()
    expect(page.locator(".right .picfield img").first).to_be_visible()
    assert "/m/" in wait_for_property(page, api, template_id, "src", re.compile("/m/"))
    assert wait_for_property(page, api, template_id, "alt", re.compile("Hills")) == "Hills in the morning"


@pytest.mark.parametrize("way", ["enter", full_only("outside")])
def test_the_words_of_a_picture_are_kept(browser_page: Page, api: Client, way: str) -> None:
    """Enter in the words takes the picture as the button does; a click beside the drawer does not lose them."""
    page = browser_page
    template = make(api, {"id": "p", "type": "image", "props": {}})
    frame = open_editor(page, template)
    page.locator("#list").get_by_text("Image").first.click()
    page.get_by_role("button", name="Select image").first.click()
    picture = {"name": "mill.png", "mimeType": "image/png", "buffer": encode_image(photo(300, 40), "PNG")}
    page.locator("#pictures-file").set_input_files(picture)
    page.locator("#media-alt").fill("The mill")
    if way == "enter":
        page.locator("#media-alt").press("Enter")
    else:
        page.mouse.click(20, 300)
    expect(page.locator("#pictures")).to_be_hidden()
    expect(frame.get_by_role("img", name="The mill")).to_be_visible()
    assert "/m/" in wait_for_property(page, api, template, "src", re.compile("/m/"))
    assert wait_for_property(page, api, template, "alt", re.compile("mill")) == "The mill"
