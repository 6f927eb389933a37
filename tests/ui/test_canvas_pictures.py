"""Pictures in the canvas, chosen and dropped; and the label of the selected section, which covers no text."""

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import FrameLocator, Locator, Page, Route, expect

from tests.kit import axe
from tests.kit.browser import save_screenshot
from tests.kit.client import Client
from tests.kit.editor import create_template, get_design, wait_until_saved
from tests.kit.pictures import encode_image, photo
from tests.kit.sampling import full_only
from tests.kit.uploads import upload_image
from tests.ui.conftest import shared_editor_page as page

__all__ = ["page"]
WORDS = "Words that stand close to the edge of their section, in as many lines as a narrow email needs for them all."


@pytest.fixture(scope="module")
def picture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A picture file to drop."""
    path = tmp_path_factory.mktemp("pictures") / "hills.png"
    path.write_bytes(encode_image(photo(300, 200), "PNG"))
    return path


def open_editor(page: Page, api: Client, *sections: dict[str, Any]) -> tuple[int, FrameLocator]:
    """Open a new email in the editor and return its id and canvas, once its scripts run."""
    template_id = create_template(api, design={"sections": list(sections)})
    page.goto(f"/templates/{template_id}/edit")
    frame = page.frame_locator("#canvas")
    expect(frame.locator("html[style*=color-scheme]")).to_be_attached()
    expect(page.locator("#stage[data-have*=',']")).to_be_attached()
    return template_id, frame


def text(key: str, **options: Any) -> dict[str, Any]:
    """Return a text section with little padding."""
    return {
        "id": key,
        "type": "text",
        "props": {"content": f"<p>{WORDS}</p>"},
        "styles": {"padding": "2px 4px"},
    } | options


def drop_file(page: Page, file: Path, at: Locator, below: float | None = None) -> None:
    """Drag a file from outside of the browser and drop it on an element."""
    box = at.bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] / 2, box["y"] + (box["height"] / 2 if below is None else below)
    session = page.context.new_cdp_session(page)
    data = {"items": [], "files": [str(file)], "dragOperationsMask": 1}
    for name in ("dragEnter", "dragOver", "dragOver", "drop"):
        session.send("Input.dispatchDragEvent", {"type": name, "x": x, "y": y, "data": data})
    session.detach()


@pytest.mark.full
def test_a_picture_without_alt_text_is_listed_by_its_file_name(page: Page, api: Client, picture: Path) -> None:
    """The outline names an uploaded picture by its file, one from elsewhere too, and never by an id."""
    uploaded = upload_image(api, encode_image(photo(30, 20), "PNG"), "hills.png").expect(201)["url"]
    sources = {
        "up": uploaded,
        "far": "https://example.com/pictures/coast.jpg?w=600",
        "odd": "https://example.com/dTOkLFhU3Ixyz",
    }
    page.route("https://example.com/**", lambda route: route.fulfill(path=picture))
    open_editor(page, api, *({"id": key, "type": "image", "props": {"src": src}} for key, src in sources.items()))
    for key, name in {"up": "hills.png", "far": "coast.jpg", "odd": "Image"}.items():
        expect(page.locator(f"#o-{key} .d")).to_have_text(name)
    page.unroute_all(behavior="wait")


def test_an_empty_picture_opens_the_drawer(page: Page, api: Client) -> None:
    """An empty picture is a large area that opens the drawer by click or Enter, also in columns and galleries."""
    columns = {"columns": [{"sections": [{"id": "in", "type": "image", "props": {}}]}, {"sections": []}]}
    gallery = {"id": "g", "type": "gallery", "props": {"items": [{}, {}]}}
    template_id, frame = open_editor(
        page, api, {"id": "p", "type": "image", "props": {}}, {"id": "c", "type": "columns", "props": columns}, gallery
    )
    areas = frame.get_by_text("Drop an image here or select one")
    expect(areas).to_have_count(3)
    for index in range(3):
        box = areas.nth(index).locator("xpath=..").bounding_box()
        assert box is not None
        assert box["height"] >= 120
    card = areas.first.locator("xpath=ancestor::div[contains(@class, 'c-card')]")
    expect(card).to_have_css("background-color", "rgb(255, 255, 255)")
    assert (card.bounding_box() or {})["width"] == 600
    drawer = page.locator("#pictures")
    close = drawer.get_by_role("button", name="Close")
    areas.first.click()
    close.click()
    expect(drawer).not_to_be_visible()
    wait_until_saved(page)
    page.locator("#canvas").focus()
    page.keyboard.press("Enter")
    close.click()
    expect(drawer).not_to_be_visible()
    page.locator("#o-g").click()
    wait_until_saved(page)
    areas.nth(2).click()
    expect(drawer).to_be_visible()
    expect(page.locator("#inspect-title")).to_contain_text("Gallery")
    close.click()
    save_screenshot(page, "canvas-empty-pictures")
    assert axe.find_violations_in_light_and_dark(page) == []
    # The sent email has neither the area nor a broken image
    sent = page.request.get(f"/templates/{template_id}/preview").text()
    assert "Drop an image" not in sent and "<img" not in sent


@pytest.mark.full
def test_social_links_without_a_link_say_so(page: Page, api: Client) -> None:
    """A section of social links shows a note until it has a link; the sent email has no note."""
    social = {"id": "s", "type": "social", "props": {}}
    template_id, frame = open_editor(page, api, text("t"), social)
    note = frame.get_by_text("No social links yet. Add them to this section, or to your brand.")
    expect(note).to_be_visible()
    assert "No social links" not in page.request.get(f"/templates/{template_id}/preview").text()
    page.locator("#o-s").click()
    wait_until_saved(page)
    page.get_by_role("button", name="Add", exact=True).last.click()
    page.get_by_role("textbox", name="Link").fill("https://instagram.com/bakery")
    expect(frame.get_by_role("link", name="Instagram")).to_be_visible()
    expect(note).to_have_count(0)


@pytest.mark.full
def test_late_images_leave_a_closed_drawer_closed(page: Page, api: Client) -> None:
    """The drawer stays closed when its images arrive after it was closed."""
    open_editor(page, api, {"id": "p", "type": "image", "props": {}})
    waiting: list[Route] = []
    page.route("**/templates/media", lambda route: waiting.append(route))
    page.locator("#o-p").click()
    page.get_by_role("button", name="Select image").first.click()
    drawer = page.locator("#pictures")
    drawer.get_by_role("button", name="Close").click()
    expect(drawer).not_to_be_visible()
    with page.expect_response("**/templates/media") as answer:
        waiting.pop().continue_()
    answer.value.finished()
    expect(page.locator("#media.stack")).to_be_attached()
    expect(drawer).not_to_be_visible()
    page.unroute_all(behavior="wait")


def test_dropping_a_file_on_a_picture(page: Page, api: Client, picture: Path) -> None:
    """The file is uploaded with its alt text and shown; a second drop opens the drawer with that text."""
    template_id, frame = open_editor(page, api, text("t"), {"id": "p", "type": "image", "props": {}})
    drop_file(page, picture, frame.get_by_text("Drop an image here"))
    expect(page.locator("#media-alt")).to_be_visible()
    page.locator("#media-alt").fill("Hills")
    page.get_by_role("button", name="Use image").click()
    expect(frame.get_by_role("img", name="Hills")).to_be_visible()
    wait_until_saved(page)
    props = get_design(api, template_id)["sections"][1]["props"]
    assert "/m/" in props["src"] and props["alt"] == "Hills"
    # The alt text of the drawer is also in the field, so that typing there extends it
    field = page.get_by_role("textbox", name="Alt text")
    expect(field).to_have_text("Hills")
    drop_file(page, picture, frame.get_by_role("img", name="Hills"))
    expect(page.locator("#pictures")).to_be_visible()
    expect(page.locator("#media-alt")).to_have_value("Hills")
    page.keyboard.press("Escape")
    assert len(get_design(api, template_id)["sections"]) == 2


PRESENCE_POLL = """
    editor.send(`${editor.url}/presence`, () => new URLSearchParams({ revision: editor.root.dataset.rev }), null, true)
"""


@pytest.mark.full
def test_the_presence_poll_keeps_typed_text(page: Page, api: Client, picture: Path) -> None:
    """The response to the presence poll does not clear text that is being typed in the drawer."""
    _, frame = open_editor(page, api, {"id": "p", "type": "image", "props": {}})
    drop_file(page, picture, frame.get_by_text("Drop an image here"))
    field = page.locator("#media-alt")
    expect(field).to_be_focused()
    expect(page.locator("#media li")).not_to_have_count(0)
    field.fill("Hills")
    page.evaluate(PRESENCE_POLL)
    expect(field).to_have_value("Hills")


@pytest.mark.full
def test_dropping_a_file_between_sections(page: Page, api: Client, picture: Path, tmp_path: Path) -> None:
    """A picture becomes a section where it is dropped; other files are rejected, and drops beside the email ignored."""
    template_id, frame = open_editor(page, api, text("a"), text("b"))
    drop_file(page, picture, frame.get_by_text(WORDS).nth(1), 2)
    expect(page.locator("#media-alt")).to_be_visible()
    page.get_by_role("button", name="Use image").click()
    wait_until_saved(page)
    kinds = [section["type"] for section in get_design(api, template_id)["sections"]]
    assert kinds == ["text", "image", "text"]
    pdf = tmp_path / "paper.pdf"
    pdf.write_bytes(b"%PDF-1.4")
    drop_file(page, pdf, frame.get_by_text(WORDS).first, 2)
    expect(page.locator("#saved")).to_have_text("Only images can be dropped here.")
    drop_file(page, picture, page.locator("#o-"))
    page.wait_for_timeout(200)
    assert page.url.endswith(f"/templates/{template_id}/edit") or f"/templates/{template_id}/edit?" in page.url
    assert [section["type"] for section in get_design(api, template_id)["sections"]] == kinds


# The labels that cover text of the email
COVERED = """(() => {
  const hit = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), range = new Range();
  for (let node; (node = walk.nextNode());) {
    if (!node.data.trim()) continue;
    range.selectNodeContents(node);
    for (const { left, top, width, height } of range.getClientRects())
      for (const part of window.labels) {
        const box = part.getBoundingClientRect();
        if (getComputedStyle(part).visibility === "hidden" || !box.width) continue;
        const wide = Math.min(box.right, left + width) - Math.max(box.left, left);
        if (wide > 0 && Math.min(box.bottom, top + height) - Math.max(box.top, top) > 0) hit.push(part.className);
      }
  }
  return hit;
})"""
# The labels are in a closed shadow tree, which this opens for the test
OPEN = """{
  const attach = Element.prototype.attachShadow;
  Element.prototype.attachShadow = function (how) {
    const tree = attach.call(this, { ...how, mode: "open" });
    window.shade = tree;
    return tree;
  };
  const find = () => [...(window.shade?.querySelectorAll(".over:not([hidden]) > .tag") || [])];
  Object.defineProperty(window, "labels", { get: find, configurable: true });
}"""


@pytest.mark.parametrize("look", [full_only(look) for look in ("Desktop", "Mobile", "Dark")])
def test_section_labels_cover_no_text(page: Page, api: Client, look: str) -> None:
    """No label covers text: at the top, in the middle, in a column, and with a long name."""
    page.context.add_init_script(OPEN)
    named = {"props": {"content": f"<p>{WORDS}</p>", "name": "A very long name that somebody gave to a section"}}
    columns = {"columns": [{"sections": [text("left")]}, {"sections": [text("right")]}]}
    heading = {"id": "h", "type": "heading", "props": {"text": "First"}, "styles": {"padding": "0px 32px"}}
    _, frame = open_editor(page, api, text("top"), heading, text("named", **named), text("low"),
                      {"id": "c", "type": "columns", "props": columns})  # fmt: skip
    page.get_by_role("button", name=look, exact=True).click()
    shown = 0
    for key in ("top", "h", "named", "low", "left", "right"):
        page.locator(f"#o-{key}").click()
        wait_until_saved(page)
        page.wait_for_timeout(350)
        body = frame.locator("html")
        assert body.evaluate(COVERED) == [], key
        shown += body.evaluate("() => labels.filter((one) => getComputedStyle(one).visibility !== 'hidden').length")
    assert shown >= 2


FRAMES = """() => {
  const edges = ({ top, bottom }) => [Math.round(top), Math.round(bottom)];
  const chosen = window.email.sections.find(({ id }) => id === "h7");
  return [window.email.box(chosen), ...["pick", "over", "hold"].map((name) =>
    window.shade.querySelector(`.${name}`).getBoundingClientRect())].map(edges);
}"""


@pytest.mark.full
def test_the_frame_fits_the_section_that_is_selected_after_a_removal(page: Page, api: Client) -> None:
    """Removing the last section of a long email, scrolled to its end, leaves frame and tools at the one before."""
    page.context.add_init_script(OPEN)
    headings = [{"id": f"h{at}", "type": "heading", "props": {"text": f"Number {at}"}} for at in range(8)]
    mixed = [section for heading in headings for section in (heading, text(f"t{heading['id']}"))]
    _, frame = open_editor(page, api, *mixed)
    page.locator("#o-th7").click()
    wait_until_saved(page)
    page.wait_for_timeout(700)  # the canvas scrolls smoothly to the selected section
    button = frame.locator("[data-act=remove]").bounding_box()
    assert button is not None
    page.mouse.move(button["x"] + 12, button["y"] + 12, steps=6)
    page.mouse.click(button["x"] + 12, button["y"] + 12)
    expect(page.locator("#o-h7")).to_have_attribute("aria-current", "true")
    wait_until_saved(page)
    page.wait_for_timeout(700)
    section, *frames = frame.locator("html").evaluate(FRAMES)
    assert frames == [section] * 3
    save_screenshot(page, "canvas-after-removal")


def test_the_place_of_a_picture_in_a_column_is_as_wide_as_the_column(page: Page, api: Client) -> None:
    """It begins and ends where the text above it does, as the picture will."""
    columns = [{"sections": [{"id": "words", "type": "text", "props": {"content": f"<p>{WORDS}</p>"}},
                             {"id": "blank", "type": "image", "props": {}}]}, {"sections": []}]  # fmt: skip
    _, frame = open_editor(page, api, {"id": "pair", "type": "columns", "props": {"columns": columns}})
    words, blank = frame.get_by_text(WORDS).bounding_box(), frame.locator("[data-empty]").bounding_box()
    assert words and blank
    assert abs(words["x"] - blank["x"]) < 1 and abs(words["width"] - blank["width"]) < 1
