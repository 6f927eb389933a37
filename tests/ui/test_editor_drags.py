"""Dragging in the editor with a real mouse: however a drag goes and ends, the canvas lives and no mark of it stays."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.kit.browser import Problems, new_page, sign_in
from tests.kit.client import Client
from tests.kit.emails import at_work, design_of, expect_order, make, settled
from tests.kit.server import Server

Point = tuple[float, float]
MARKS = "[data-drag], .dragging, .drag-label, .drop-line"
# What the page asks every 20 seconds: who else is here, and what they changed
BEAT = """() => editor.send(
  `${editor.here}/presence`, () => new URLSearchParams({ revision: editor.rev() }), null, true)"""
# The button is let go unheard, as where another window takes it
DEAF = "() => addEventListener('pointerup', (event) => event.stopImmediatePropagation(), { capture: true, once: true })"


@pytest.fixture(scope="module")
def page(browser: Browser, server: Server) -> Iterator[Page]:
    """A page of somebody who is signed in, shared by the tests of this module."""
    with at_work(browser, server) as opened:
        yield opened


def heading(key: str, text: str) -> dict[str, Any]:
    """Return a heading."""
    return {"id": key, "type": "heading", "props": {"text": text}}


def sections() -> list[dict[str, Any]]:
    """Return three headings and two columns, one of them with a heading."""
    columns = {"columns": [{"sections": [heading("inner", "Inner")]}, {"sections": []}]}
    return [heading("first", "First"), heading("second", "Second"), heading("third", "Third"),
            {"id": "pair", "type": "columns", "props": columns}]  # fmt: skip


class Email(NamedTuple):
    """An email that is open in the editor."""

    page: Page
    api: Client
    id: int

    def types(self) -> list[str]:
        """Return the kinds of the sections as they are stored."""
        return [one["type"] for one in design_of(self.api, self.id)["sections"]]

    def tile(self, kind: str) -> Point:
        """Return the middle of a tile of the palette."""
        return middle(self.page, f".tile-add[data-kind={kind}]")

    def in_canvas(self, text: str, x: float = 400, y: float = 4) -> Point:
        """Return a place in the canvas: so far right of and below the upper left corner of a heading."""
        self.page.wait_for_timeout(300)  # the canvas scrolls smoothly to what was chosen
        box = self.page.frame_locator("#canvas").get_by_role("heading", name=text, exact=True).bounding_box()
        assert box is not None
        return box["x"] + x, box["y"] + y


def middle(page: Page, selector: str) -> Point:
    """Return the middle of an element."""
    box = page.locator(selector).bounding_box()
    assert box is not None
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def opened(page: Page, api: Client, design: Any = None, tab: str = "Add") -> Email:
    """Open a new email in the editor at a tab of its rail."""
    one = make(api, design={"sections": sections() if design is None else design})
    page.goto(f"/templates/{one}/edit")
    expect(page.frame_locator("#canvas").locator("html[style*=color-scheme]")).to_be_attached()
    expect(page.locator("#stage[data-have*=',']")).to_be_attached()
    page.get_by_role("tab", name=tab).click()
    expect(page.get_by_role("tabpanel", name=tab)).to_be_visible()
    settled(page)
    return Email(page, api, one)


def drag(page: Page, *points: Point, steps: int = 12, pause_ms: int = 0) -> None:
    """Press at the first point and move over the others; the button stays down."""
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
    """Drag over the points and let go at the last one."""
    drag(page, *points, **options)
    page.mouse.up()


def lives(email: Email) -> None:
    """Check that nothing of a drag is left, and that sections are chosen, written and added as before."""
    page, frame = email.page, email.page.frame_locator("#canvas")
    expect(page.locator(MARKS)).to_have_count(0)
    expect(frame.locator("html[data-held]")).to_have_count(0)
    settled(page)
    before = email.types()
    x, y = email.in_canvas("First", 20, 14)
    page.mouse.click(x, y)
    expect(page.locator("#o-first")).to_have_attribute("aria-current", "true")
    page.mouse.dblclick(x, y)
    expect(frame.locator("h2[data-writing]")).to_be_focused()
    page.keyboard.type("!")
    page.keyboard.press("Escape")
    expect(page.locator("#o-first")).to_contain_text("!")
    settled(page)
    page.get_by_role("tab", name="Add").click()
    page.get_by_role("button", name="Space", exact=True).click()
    expect(page.locator("#list li[data-kind=spacer]")).to_have_count(before.count("spacer") + 1)
    settled(page)


def still(thing: Locator) -> Any:
    """Return where something is once it no longer moves."""
    box = thing.bounding_box()
    for _ in range(100):
        thing.page.wait_for_timeout(150)
        if box == (box := thing.bounding_box()):
            break
    assert box is not None
    return box


def undo(email: Email) -> None:
    """Take the last step back by its button."""
    email.page.locator("#undo").click()
    settled(email.page)


def test_a_tile_crosses_the_outline_slowly_and_lands_in_the_canvas(page: Page, api: Client) -> None:
    """Two seconds over the outline that lies there; one undo takes back what was dropped and nothing else."""
    email = opened(page, api)
    before = design_of(api, email.id)
    tile, place = email.tile("divider"), email.in_canvas("Second")
    drag(page, tile, (360, 200), (420, place[1]), place, steps=14, pause_ms=45)
    expect(page.frame_locator("#canvas").locator("html")).to_be_attached()
    page.mouse.up()
    expect(page.locator("#list li")).to_have_count(6)
    settled(page)
    assert email.types() == ["heading", "divider", "heading", "heading", "columns"]
    undo(email)
    assert design_of(api, email.id) == before
    lives(email)


def test_a_tile_takes_any_path_to_the_canvas(page: Page, api: Client) -> None:
    """Fast; to and fro over every edge; out of the window and back; twice in a row; each lands where it is let go."""
    email = opened(page, api)
    place = email.in_canvas("Second")
    paths: list[list[Point]] = [
        [place],
        [(300, 300), (250, 310), (430, 320), (280, 300), (600, 60), (600, 30), (1200, 300), place],
        [(600, 300), (600, -80), (-50, 200), (700, 900), place],
        [place],
    ]
    for at, path in enumerate(paths, 1):
        place = path[-1] = email.in_canvas("Second")
        drop(page, email.tile("divider"), *path, steps=3 if at == 1 else 8)
        expect(page.locator("#list li")).to_have_count(5 + at)
        settled(page)
        assert email.types() == ["heading", *["divider"] * at, "heading", "heading", "columns"]
    lives(email)


def test_a_tile_lands_in_a_column_and_in_the_outline(page: Page, api: Client) -> None:
    """In the canvas within an empty column; in the outline before the line that it is let go over."""
    email = opened(page, api)
    empty = page.frame_locator("#canvas").get_by_text("Empty column").bounding_box()
    assert empty is not None
    drop(page, email.tile("button"), (empty["x"] + 60, empty["y"] + 20))
    expect(page.locator("#list li")).to_have_count(6)
    settled(page)
    columns = design_of(api, email.id)["sections"][3]["props"]["columns"]
    assert [[one["type"] for one in column["sections"]] for column in columns] == [["heading"], ["button"]]
    drag(page, email.tile("divider"), (340, 300))
    second = page.locator("li[data-key=second] .row").bounding_box()
    assert second is not None
    page.mouse.move(second["x"] + 40, second["y"] + 6, steps=5)
    expect(page.locator(".drop-line")).to_be_visible()
    page.mouse.up()
    expect(page.locator("#list li")).to_have_count(7)
    settled(page)
    assert email.types() == ["heading", "divider", "heading", "heading", "columns"]
    lives(email)


@pytest.mark.parametrize("how", ["Escape", "outside", "window", "blur", "unseen", "rail"])
def test_a_drag_that_is_given_up_leaves_nothing(page: Page, api: Client, how: str) -> None:
    """By Escape, let go over nothing, outside of the window, by leaving the window, or unseen by the page."""
    email = opened(page, api)
    before = design_of(api, email.id)
    tile, place = email.tile("divider"), email.in_canvas("Second")
    drag(page, tile, (420, 300), place)
    expect(page.locator(".drag-label")).to_have_text("Divider")
    if how == "Escape":
        page.keyboard.press("Escape")
        expect(page.locator(MARKS)).to_have_count(0)
    elif how == "outside":
        page.mouse.move(1250, 400, steps=6)
    elif how == "window":
        page.mouse.move(700, -60, steps=6)
    elif how == "blur":
        page.evaluate("dispatchEvent(new Event('blur'))")
    elif how == "unseen":
        page.evaluate(DEAF)
    else:
        page.mouse.move(*tile, steps=6)
    page.mouse.up()
    page.mouse.move(place[0] - 40, place[1] + 30, steps=3)
    settled(page)
    expect(page.locator(MARKS)).to_have_count(0)
    assert design_of(api, email.id) == before
    lives(email)


def test_what_arrives_in_the_middle_of_a_drag_does_it_no_harm(page: Page, api: Client) -> None:
    """A save is answered and somebody else changes the email while a tile is held; it lands among what is there."""
    email = opened(page, api)
    page.frame_locator("#canvas").get_by_role("heading", name="First").click()
    field = page.locator("#inspector").get_by_label("Text", exact=True)
    field.fill("First, late")
    place = email.in_canvas("Third")
    drag(page, email.tile("divider"), (420, 300), place)
    expect(page.locator("#o-first")).to_contain_text("First, late")
    design = design_of(api, email.id)
    del design["sections"][1]
    api.patch(f"/templates/{email.id}", {"design": design}).expect(200)
    page.evaluate(BEAT)
    expect(page.locator("#list li")).to_have_count(4)
    place = email.in_canvas("Third")
    page.mouse.move(*place, steps=4)
    page.mouse.up()
    expect(page.locator("#list li")).to_have_count(5)
    settled(page)
    assert [one.get("id") for one in design_of(api, email.id)["sections"]][0::2] == ["first", "third"]
    assert email.types() == ["heading", "divider", "heading", "columns"]
    expect(page.locator(MARKS)).to_have_count(0)


def test_lines_are_dragged_in_the_outline_and_onto_the_canvas(page: Page, api: Client) -> None:
    """By their grip or their name, also while the list is drawn anew; letting go where it was changes nothing."""
    email = opened(page, api, tab="Sections")
    grip, second = middle(page, "li[data-key=third] .grip"), middle(page, "li[data-key=second] > .row")
    drag(page, grip, (second[0], second[1] - 6))
    page.evaluate("document.getElementById('list').replaceWith(document.getElementById('list').cloneNode(true))")
    page.mouse.move(second[0], second[1] - 8, steps=2)
    page.mouse.up()
    expect(page.locator("#list > .lines > li").nth(1)).to_have_attribute("data-key", "third")
    settled(page)
    page.locator("#o-first").click()
    settled(page)
    revision = page.locator("#editor").get_attribute("data-rev")
    drop(page, middle(page, "#o-third"), (120, 400), middle(page, "#o-third"))
    settled(page)
    assert page.locator("#editor").get_attribute("data-rev") == revision
    expect(page.locator("#o-third")).not_to_have_attribute("aria-current", "true")
    inner = middle(page, "li[data-key=inner] .row")
    drop(page, middle(page, "#o-first"), (inner[0], inner[1] - 5))
    expect(page.locator("li[data-key=pair] li")).to_have_count(2)
    settled(page)
    expect_order(page, "third", "second", "pair", "first", "inner")
    drop(page, middle(page, "#o-second"), email.in_canvas("Third", 200, 2))
    expect(page.locator("#list > .lines > li").first).to_have_attribute("data-key", "second")
    settled(page)
    undo(email)
    expect_order(page, "third", "second", "pair", "first", "inner")
    lives(email)


@pytest.mark.parametrize("how", ["drop", "Escape", "removed", "unseen", "far"])
def test_a_section_is_dragged_in_the_canvas(page: Page, api: Client, how: str) -> None:
    """It moves where it is let go; Escape, a section that is gone by then and a button let go unseen end it."""
    email = opened(page, api, tab="Sections")
    before = design_of(api, email.id)
    drag(page, email.in_canvas("Third", 8, 8), email.in_canvas("First", 40, 2))
    expect(page.frame_locator("#canvas").locator("html[data-held]")).to_have_count(1)
    if how == "Escape":
        page.keyboard.press("Escape")
    elif how == "far":
        page.mouse.move(1200, 300, steps=4)
    elif how == "removed":
        before["sections"].pop(2)
        api.patch(f"/templates/{email.id}", {"design": before}).expect(200)
        page.evaluate(BEAT)
        expect(page.frame_locator("#canvas").get_by_role("heading", name="Third")).to_have_count(0)
    elif how == "unseen":
        page.frame_locator("#canvas").locator("html").evaluate(DEAF)
    page.mouse.up()
    page.mouse.move(*email.in_canvas("First", 60, 10), steps=4)
    if how == "drop":
        expect(page.locator("#list li").first).to_have_attribute("data-key", "third")
        settled(page)
        undo(email)
    settled(page)
    assert design_of(api, email.id) == before
    lives(email)


def test_a_long_email_scrolls_while_something_is_held_at_its_edge(page: Page, api: Client) -> None:
    """The pointer rests at the lower edge of the canvas until the end comes into sight, then at that of the outline."""
    email = opened(page, api, [heading(f"k{at}", f"Number {at}") for at in range(40)])
    frame = page.frame_locator("#canvas")
    last = frame.get_by_role("heading", name="Number 39")
    drag(page, email.tile("divider"), (700, 400), (900, 780))
    expect(last).to_be_in_viewport(ratio=1)
    box = still(last)
    page.mouse.move(900, box["y"] + box["height"] + 4, steps=3)
    page.mouse.up()
    expect(page.locator("#list li")).to_have_count(41)
    settled(page)
    assert email.types()[-1] == "divider"
    drag(page, email.tile("divider"), (340, 300), (340, 770))
    expect(page.locator("#o-k39")).to_be_in_viewport()
    page.keyboard.press("Escape")
    page.mouse.up()
    expect(page.locator(MARKS)).to_have_count(0)


def test_a_tile_lands_in_an_email_as_wide_as_a_phone(page: Page, api: Client) -> None:
    """The canvas is narrower, and scrolled."""
    email = opened(page, api)
    page.get_by_role("button", name="Phone").click()
    expect(page.locator("#canvas")).to_have_css("width", "375px")
    drop(page, email.tile("divider"), (340, 320), email.in_canvas("Third", 120, 3))
    expect(page.locator("#list li")).to_have_count(6)
    settled(page)
    assert email.types() == ["heading", "heading", "divider", "heading", "columns"]
    lives(email)


def test_a_click_on_a_tile_is_a_click(page: Page, api: Client) -> None:
    """A hand that trembles a little adds; the rail stays for the next one, and what was added is chosen and told."""
    email = opened(page, api)
    page.frame_locator("#canvas").get_by_role("heading", name="First").click()
    for count, kind in enumerate(("divider", "button"), 6):
        x, y = email.tile(kind)
        page.mouse.move(x, y)
        page.mouse.down()
        page.mouse.move(x + 3, y + 2)
        page.mouse.up()
        expect(page.locator("#list li")).to_have_count(count)
        settled(page)
        expect(page.get_by_role("tab", name="Add")).to_have_attribute("aria-selected", "true")
        expect(page.locator("#palette")).to_be_visible()
    assert email.types()[:3] == ["heading", "divider", "button"]
    expect(page.locator("#inspect-title")).to_contain_text("Button")
    expect(page.locator("#say")).to_have_text("Button added after Divider")
    page.get_by_role("button", name="Space", exact=True).focus()
    page.keyboard.press("Enter")
    expect(page.locator("#say")).to_have_text("Space added after Button")
    expect(page.get_by_role("button", name="Space", exact=True)).to_be_focused()
    page.locator("#undo").click()
    settled(page)
    assert email.types()[:4] == ["heading", "divider", "button", "heading"]


def test_a_phone_shows_what_was_added(browser: Browser, server: Server, api: Client) -> None:
    """The fields of the new section come; the rail still offers the next one when somebody goes back to it."""
    one = make(api, design={"sections": sections()})
    problems = Problems()
    page = sign_in(new_page(browser, server.url, problems, width=375))
    page.goto(f"/templates/{one}/edit")
    page.wait_for_load_state("networkidle")
    page.get_by_role("tab", name="Add").click()
    page.get_by_role("button", name="Button", exact=True).click()
    expect(page.locator("#inspect-title")).to_contain_text("Button")
    expect(page.locator("#inspect-title")).to_be_visible()
    page.get_by_role("navigation", name="Parts of the editor").get_by_role("button", name="Sections").click()
    expect(page.locator("#palette")).to_be_visible()
    page.context.close()
    assert not problems.found
