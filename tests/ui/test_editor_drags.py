"""Dragging in the editor with the mouse: however a drag ends, it leaves no trace and the editor still works."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.kit.browser import Problems, new_page, save_screenshot, sign_in
from tests.kit.client import Client
from tests.kit.editor import create_template, expect_order, get_design, running_editor, wait_until_saved
from tests.kit.sampling import sampled
from tests.kit.server import Server

Point = tuple[float, float]
DRAG_TRACES = "[data-drag], .dragging, .drag-label, .drop-line"
# The poll of every 20 seconds: who else is here, and what they changed
PRESENCE_POLL = """() => editor.send(
  `${editor.url}/presence`, () => new URLSearchParams({ revision: editor.rev() }), null, true)"""
# The release is not seen by the page, as if another window took it
SWALLOW_POINTER_UP = (
    "() => addEventListener('pointerup', (event) => event.stopImmediatePropagation(), { capture: true, once: true })"
)


@pytest.fixture(scope="module")
def page(browser: Browser, server: Server) -> Iterator[Page]:
    """A signed-in page, shared by the tests of this module."""
    with running_editor(browser, server, motion=True) as open_editor:
        yield open_editor


def heading(key: str, text: str) -> dict[str, Any]:
    """Return a heading section."""
    return {"id": key, "type": "heading", "props": {"text": text}}


def sections() -> list[dict[str, Any]]:
    """Return three headings and two columns, one of which has a heading."""
    columns = {"columns": [{"sections": [heading("inner", "Inner")]}, {"sections": []}]}
    return [heading("first", "First"), heading("second", "Second"), heading("third", "Third"),
            {"id": "pair", "type": "columns", "props": columns}]  # fmt: skip


class Email(NamedTuple):
    """An email that is open in the editor."""

    page: Page
    api: Client
    id: int

    def types(self) -> list[str]:
        """Return the kinds of the stored sections."""
        return [section["type"] for section in get_design(self.api, self.id)["sections"]]

    def tile(self, kind: str) -> Point:
        """Return the centre of a tile of the palette."""
        return center(self.page, f".tile-add[data-kind={kind}]")

    def in_canvas(self, text: str, x: float = 400, y: float = 4) -> Point:
        """Return a point in the canvas, relative to the upper left corner of a heading."""
        self.page.wait_for_timeout(300)  # the canvas scrolls smoothly to the selected section
        box = self.page.frame_locator("#canvas").get_by_role("heading", name=text, exact=True).bounding_box()
        assert box is not None
        return box["x"] + x, box["y"] + y


def center(page: Page, selector: str) -> Point:
    """Return the centre of an element."""
    box = page.locator(selector).bounding_box()
    assert box is not None
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def open_editor(page: Page, api: Client, design: Any = None, tab: str = "Add") -> Email:
    """Open a new email in the editor at a tab."""
    template_id = create_template(api, design={"sections": sections() if design is None else design})
    page.goto(f"/templates/{template_id}/edit")
    expect(page.frame_locator("#canvas").locator("html[style*=color-scheme]")).to_be_attached()
    expect(page.locator("#stage[data-have*=',']")).to_be_attached()
    page.get_by_role("tab", name=tab).click()
    expect(page.get_by_role("tabpanel", name=tab)).to_be_visible()
    wait_until_saved(page)
    return Email(page, api, template_id)


def drag(page: Page, *points: Point, steps: int = 12, pause_ms: int = 0) -> None:
    """Press at the first point and move over the others, without releasing."""
    (x, y), *rest = points
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 5, y + 5, steps=2)
    for to in rest:
        for at in range(1, steps + 1):
            page.mouse.move(x + (to[0] - x) * at / steps, y + (to[1] - y) * at / steps)
            if pause_ms:
                page.wait_for_timeout(pause_ms)
        x, y = to


def drop(page: Page, *points: Point, **options: Any) -> None:
    """Drag over the points and release at the last one."""
    drag(page, *points, **options)
    page.mouse.up()


def check_editor_works(email: Email) -> None:
    """Check that no trace of a drag is left, and that sections can be selected, edited and added."""
    page, frame = email.page, email.page.frame_locator("#canvas")
    expect(page.locator(DRAG_TRACES)).to_have_count(0)
    expect(frame.locator("html[data-held]")).to_have_count(0)
    wait_until_saved(page)
    before = email.types()
    x, y = email.in_canvas("First", 20, 14)
    page.mouse.click(x, y)
    expect(page.locator("#o-first")).to_have_attribute("aria-current", "true")
    expect(frame.locator("h2[data-writing]")).to_be_focused()
    page.keyboard.press("End")
    page.keyboard.type("!")
    page.keyboard.press("Escape")
    expect(page.locator("#o-first")).to_contain_text("!")
    wait_until_saved(page)
    page.get_by_role("tab", name="Add").click()
    page.get_by_role("button", name="Spacer", exact=True).click()
    expect(page.locator("#list li[data-kind=spacer]")).to_have_count(before.count("spacer") + 1)
    wait_until_saved(page)


def settled_box(element: Locator) -> Any:
    """Return the bounding box of an element once it no longer moves."""
    box = element.bounding_box()
    for _ in range(100):
        element.page.wait_for_timeout(150)
        if box == (box := element.bounding_box()):
            break
    assert box is not None
    return box


def undo(email: Email) -> None:
    """Click the undo button."""
    email.page.locator("#undo").click()
    wait_until_saved(email.page)


@pytest.mark.parametrize("x", sampled([420, 500, 640], [640]))
def test_a_tile_lands_at_the_line_that_is_shown(page: Page, api: Client, x: int) -> None:
    """At 1280 pixels nothing covers the canvas while a tile is dragged, so the drop line is in it from edge to edge."""
    page.set_viewport_size({"width": 1280, "height": 800})
    email = open_editor(page, api, [heading(f"k{at}", f"Number {at}") for at in range(6)])
    y = email.in_canvas("Number 4")[1]
    drag(page, email.tile("divider"), (x, y), steps=20, pause_ms=10)
    page.wait_for_timeout(200)
    expect(page.locator(".drop-line")).to_be_hidden()
    save_screenshot(page, "canvas-drop-line")
    page.mouse.up()
    expect(page.locator("#list li")).to_have_count(7)
    wait_until_saved(page)
    assert email.types() == [*["heading"] * 4, "divider", *["heading"] * 2]
    page.set_viewport_size({"width": 1360, "height": 800})


@pytest.mark.full
def test_a_tile_lands_in_the_canvas_under_a_message(page: Page, api: Client) -> None:
    """A message over the canvas does not swallow a tile that is dropped on it."""
    email = open_editor(page, api)
    target = email.in_canvas("Second")
    page.evaluate(
        """([x, y]) => {
          const toast = Object.assign(document.createElement("div"), { id: "cover" });
          toast.style = `position: fixed; left: ${x - 40}px; top: ${y - 40}px; width: 80px; height: 80px; z-index: 99`;
          document.body.append(toast);
        }""",
        target,
    )
    drop(page, email.tile("divider"), target)
    expect(page.locator("#list li")).to_have_count(6)
    wait_until_saved(page)
    assert email.types() == ["heading", "divider", "heading", "heading", "columns"]
    page.evaluate("document.getElementById('cover').remove()")


@pytest.mark.full
def test_a_slow_drag_across_the_canvas(page: Page, api: Client) -> None:
    """A slow drag ends where it is released in the canvas, and one undo removes the new section."""
    email = open_editor(page, api)
    before = get_design(api, email.id)
    tile, target = email.tile("divider"), email.in_canvas("Second")
    drag(page, tile, (360, 200), (420, target[1]), target, steps=14, pause_ms=45)
    expect(page.frame_locator("#canvas").locator("html")).to_be_attached()
    page.mouse.up()
    expect(page.locator("#list li")).to_have_count(6)
    wait_until_saved(page)
    assert email.types() == ["heading", "divider", "heading", "heading", "columns"]
    undo(email)
    assert get_design(api, email.id) == before
    check_editor_works(email)


@pytest.mark.full
def test_drags_along_any_path(page: Page, api: Client) -> None:
    """Fast, over every edge, or out of the window and back: a tile is added where it is released."""
    email = open_editor(page, api)
    target = email.in_canvas("Second")
    paths: list[list[Point]] = [
        [target],
        [(300, 300), (250, 310), (430, 320), (280, 300), (600, 60), (600, 30), (1200, 300), target],
        [(600, 300), (600, -80), (-50, 200), (700, 900), target],
        [target],
    ]
    for count, path in enumerate(paths, 1):
        target = path[-1] = email.in_canvas("Second")
        drop(page, email.tile("divider"), *path, steps=3 if count == 1 else 8)
        expect(page.locator("#list li")).to_have_count(5 + count)
        wait_until_saved(page)
        assert email.types() == ["heading", *["divider"] * count, "heading", "heading", "columns"]
    check_editor_works(email)


def test_dropping_in_a_column_and_in_the_outline(page: Page, api: Client) -> None:
    """A tile is added to an empty column of the canvas, and before a line of the outline."""
    email = open_editor(page, api)
    empty = page.frame_locator("#canvas").get_by_text("Empty column").bounding_box()
    assert empty is not None
    drop(page, email.tile("button"), (empty["x"] + 60, empty["y"] + 20))
    expect(page.locator("#list li")).to_have_count(6)
    wait_until_saved(page)
    columns = get_design(api, email.id)["sections"][3]["props"]["columns"]
    assert [[section["type"] for section in column["sections"]] for column in columns] == [["heading"], ["button"]]
    drag(page, email.tile("divider"), center(page, "#tab-outline"))
    second = page.locator("li[data-key=second] .row").bounding_box()
    assert second is not None
    page.mouse.move(second["x"] + 40, second["y"] + 6, steps=5)
    expect(page.locator(".drop-line")).to_be_visible()
    page.mouse.up()
    expect(page.locator("#list li")).to_have_count(7)
    expect(page.get_by_role("tabpanel", name="Add")).to_be_visible()
    wait_until_saved(page)
    assert email.types() == ["heading", "divider", "heading", "heading", "columns"]
    check_editor_works(email)


@pytest.mark.full
@pytest.mark.parametrize(
    "how", sampled(["Escape", "outside", "window", "blur", "unseen", "rail"], ["Escape", "outside", "unseen"])
)
def test_a_cancelled_drag_leaves_no_trace(page: Page, api: Client, how: str) -> None:
    """Escape, a release outside, a lost focus or an unseen release adds nothing."""
    email = open_editor(page, api)
    before = get_design(api, email.id)
    tile, target = email.tile("divider"), email.in_canvas("Second")
    drag(page, tile, (420, 300), target)
    expect(page.locator(".drag-label")).to_have_text("Divider")
    if how == "Escape":
        page.keyboard.press("Escape")
        expect(page.locator(DRAG_TRACES)).to_have_count(0)
    elif how == "outside":
        page.mouse.move(1250, 400, steps=6)
    elif how == "window":
        page.mouse.move(700, -60, steps=6)
    elif how == "blur":
        page.evaluate("dispatchEvent(new Event('blur'))")
    elif how == "unseen":
        page.evaluate(SWALLOW_POINTER_UP)
    else:
        page.mouse.move(*tile, steps=6)
    page.mouse.up()
    page.mouse.move(target[0] - 40, target[1] + 30, steps=3)
    wait_until_saved(page)
    expect(page.locator(DRAG_TRACES)).to_have_count(0)
    assert get_design(api, email.id) == before
    check_editor_works(email)


@pytest.mark.full
def test_updates_during_a_drag(page: Page, api: Client) -> None:
    """A save and another user's change during a drag are applied, and the tile is added to the new state."""
    email = open_editor(page, api)
    page.frame_locator("#canvas").get_by_role("heading", name="First").click()
    field = page.locator("#inspector").get_by_label("Text", exact=True)
    field.fill("First, late")
    target = email.in_canvas("Third")
    drag(page, email.tile("divider"), (420, 300), target)
    expect(page.locator("#o-first")).to_contain_text("First, late")
    design = get_design(api, email.id)
    del design["sections"][1]
    api.patch(f"/templates/{email.id}", {"design": design}).expect(200)
    page.evaluate(PRESENCE_POLL)
    expect(page.locator("#list li")).to_have_count(4)
    target = email.in_canvas("Third")
    page.mouse.move(*target, steps=4)
    page.mouse.up()
    expect(page.locator("#list li")).to_have_count(5)
    wait_until_saved(page)
    assert [section.get("id") for section in get_design(api, email.id)["sections"]][0::2] == ["first", "third"]
    assert email.types() == ["heading", "divider", "heading", "columns"]
    expect(page.locator(DRAG_TRACES)).to_have_count(0)


def test_dragging_lines_of_the_outline(page: Page, api: Client) -> None:
    """Lines move by grip or name, also during a redraw; a release at the same place changes nothing."""
    email = open_editor(page, api, tab="Sections")
    grip, second = center(page, "li[data-key=third] .grip"), center(page, "li[data-key=second] > .row")
    drag(page, grip, (second[0], second[1] - 6))
    page.evaluate("document.getElementById('list').replaceWith(document.getElementById('list').cloneNode(true))")
    page.mouse.move(second[0], second[1] - 8, steps=2)
    page.mouse.up()
    expect(page.locator("#list > .lines > li").nth(1)).to_have_attribute("data-key", "third")
    wait_until_saved(page)
    page.locator("#o-first").click()
    wait_until_saved(page)
    revision = page.locator("#editor").get_attribute("data-rev")
    drop(page, center(page, "#o-third"), (120, 400), center(page, "#o-third"))
    wait_until_saved(page)
    assert page.locator("#editor").get_attribute("data-rev") == revision
    expect(page.locator("#o-third")).not_to_have_attribute("aria-current", "true")
    inner = center(page, "li[data-key=inner] .row")
    drop(page, center(page, "#o-first"), (inner[0], inner[1] - 5))
    expect(page.locator("li[data-key=pair] li")).to_have_count(2)
    wait_until_saved(page)
    expect_order(page, "third", "second", "pair", "first", "inner")
    drop(page, center(page, "#o-second"), email.in_canvas("Third", 200, 2))
    expect(page.locator("#list > .lines > li").first).to_have_attribute("data-key", "second")
    wait_until_saved(page)
    undo(email)
    expect_order(page, "third", "second", "pair", "first", "inner")
    check_editor_works(email)


@pytest.mark.parametrize("how", sampled(["drop", "Escape", "removed", "unseen", "far"], []))
def test_dragging_a_section_in_the_canvas(page: Page, api: Client, how: str) -> None:
    """A section moves where it is released; Escape, a removed section or an unseen release cancels the drag."""
    email = open_editor(page, api, tab="Sections")
    before = get_design(api, email.id)
    drag(page, email.in_canvas("Third", 8, 8), email.in_canvas("First", 40, 2))
    expect(page.frame_locator("#canvas").locator("html[data-held]")).to_have_count(1)
    if how == "Escape":
        page.keyboard.press("Escape")
    elif how == "far":
        page.mouse.move(1200, 300, steps=4)
    elif how == "removed":
        before["sections"].pop(2)
        api.patch(f"/templates/{email.id}", {"design": before}).expect(200)
        page.evaluate(PRESENCE_POLL)
        expect(page.frame_locator("#canvas").get_by_role("heading", name="Third")).to_have_count(0)
    elif how == "unseen":
        page.frame_locator("#canvas").locator("html").evaluate(SWALLOW_POINTER_UP)
    page.mouse.up()
    page.mouse.move(*email.in_canvas("First", 60, 10), steps=4)
    if how == "drop":
        expect(page.locator("#list li").first).to_have_attribute("data-key", "third")
        wait_until_saved(page)
        undo(email)
    wait_until_saved(page)
    assert get_design(api, email.id) == before
    check_editor_works(email)


@pytest.mark.full
def test_autoscroll_during_a_drag(page: Page, api: Client) -> None:
    """The canvas, and then the outline, scrolls while the pointer is held at its lower edge."""
    email = open_editor(page, api, [heading(f"k{at}", f"Number {at}") for at in range(40)])
    frame = page.frame_locator("#canvas")
    last = frame.get_by_role("heading", name="Number 39")
    drag(page, email.tile("divider"), (700, 400), (900, 780))
    expect(last).to_be_in_viewport(ratio=1)
    box = settled_box(last)
    page.mouse.move(900, box["y"] + box["height"] + 4, steps=3)
    page.mouse.up()
    expect(page.locator("#list li")).to_have_count(41)
    wait_until_saved(page)
    assert email.types()[-1] == "divider"
    drag(page, email.tile("divider"), center(page, "#tab-outline"), (140, 770))
    expect(page.locator("#o-k39")).to_be_in_viewport()
    page.keyboard.press("Escape")
    page.mouse.up()
    expect(page.locator(DRAG_TRACES)).to_have_count(0)


@pytest.mark.full
def test_dropping_in_the_phone_preview(page: Page, api: Client) -> None:
    """A tile is added at the right place in the narrow canvas."""
    email = open_editor(page, api)
    page.get_by_role("button", name="Mobile").click()
    expect(page.locator("#canvas")).to_have_css("width", "375px")
    drop(page, email.tile("divider"), (340, 320), email.in_canvas("Third", 120, 3))
    expect(page.locator("#list li")).to_have_count(6)
    wait_until_saved(page)
    assert email.types() == ["heading", "heading", "divider", "heading", "columns"]
    check_editor_works(email)


def test_clicking_a_tile_adds_a_section(page: Page, api: Client) -> None:
    """A slightly moving click adds the section after the selected one, announces it and leaves the palette open."""
    email = open_editor(page, api)
    page.frame_locator("#canvas").get_by_role("heading", name="First").click()
    for count, kind in enumerate(("divider", "button"), 6):
        x, y = email.tile(kind)
        page.mouse.move(x, y)
        page.mouse.down()
        page.mouse.move(x + 3, y + 2)
        page.mouse.up()
        expect(page.locator("#list li")).to_have_count(count)
        wait_until_saved(page)
        expect(page.get_by_role("tab", name="Add")).to_have_attribute("aria-selected", "true")
        expect(page.locator("#palette")).to_be_visible()
    assert email.types()[:3] == ["heading", "divider", "button"]
    expect(page.locator("#inspect-title")).to_contain_text("Button")
    expect(page.locator("#say")).to_have_text("Button added after Divider")
    page.get_by_role("button", name="Spacer", exact=True).focus()
    page.keyboard.press("Enter")
    expect(page.locator("#say")).to_have_text("Spacer added after Button")
    expect(page.get_by_role("button", name="Spacer", exact=True)).to_be_focused()
    page.locator("#undo").click()
    wait_until_saved(page)
    assert email.types()[:4] == ["heading", "divider", "button", "heading"]


@pytest.mark.full
def test_an_empty_email_opens_where_sections_are_added(page: Page, api: Client) -> None:
    """The tab “Add” is open and stays open while sections are added; an email with sections opens on its sections."""
    template_id = create_template(api, design={"sections": []})
    page.goto(f"/templates/{template_id}/edit")
    for count, kind in enumerate(("Text", "Button"), 1):
        expect(page.get_by_role("tab", name="Add")).to_have_attribute("aria-selected", "true")
        page.get_by_role("button", name=kind, exact=True).click()
        expect(page.locator("#list li")).to_have_count(count)
        expect(page.get_by_role("tabpanel", name="Add")).to_be_visible()
    wait_until_saved(page)
    page.reload()
    expect(page.get_by_role("tabpanel", name="Sections")).to_be_visible()


@pytest.mark.full
def test_adding_a_section_on_a_phone(browser: Browser, server: Server, api: Client) -> None:
    """After adding a section its fields are shown, and the palette is still open behind them."""
    template_id = create_template(api, design={"sections": sections()})
    problems = Problems()
    page = sign_in(new_page(browser, server.url, problems, width=375))
    page.goto(f"/templates/{template_id}/edit")
    page.wait_for_load_state("networkidle")
    page.get_by_role("tab", name="Add").click()
    page.get_by_role("button", name="Button", exact=True).click()
    expect(page.locator("#inspect-title")).to_contain_text("Button")
    expect(page.locator("#inspect-title")).to_be_visible()
    page.get_by_role("navigation", name="Editor panels").get_by_role("button", name="Sections").click()
    expect(page.locator("#palette")).to_be_visible()
    page.context.close()
    assert not problems.found
