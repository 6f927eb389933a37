"""The editor of an email in a browser: what is typed is kept, every step has a way back, all of it by keyboard too."""

import copy
import json
import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.kit import axe
from tests.kit.browser import Problems, new_page, shoot, sign_in
from tests.kit.client import Client
from tests.kit.emails import DESIGN, at_work, design_of, drag, expect_order, make, settled
from tests.kit.server import Server


@pytest.fixture
def opened(browser: Browser, server: Server) -> Iterator[Page]:
    """A page of somebody who is signed in."""
    with at_work(browser, server) as page:
        yield page


def test_what_is_typed_is_kept_and_seen(opened: Page, api: Client) -> None:
    """A field is saved by itself; the canvas shows it, the outline tells it, nothing unknown is lost."""
    one = make(api)
    opened.goto(f"/templates/{one}/edit")
    opened.locator("#o-press").click()
    opened.get_by_label("Text", exact=True).fill("Read it all")
    settled(opened)
    expect(opened.locator("#saved")).to_contain_text("Saved")
    expect(opened.locator("#o-press")).to_contain_text("Read it all")
    expect(opened.frame_locator("#canvas").get_by_text("Read it all")).to_be_visible()
    opened.get_by_role("textbox", name="Link").fill("no link")
    expect(opened.locator("#inspector .err")).to_have_text("Start the link with https://")
    expect(opened.get_by_role("textbox", name="Link")).to_have_attribute("aria-invalid", "true")
    expect(opened.get_by_role("textbox", name="Link")).to_have_value("no link")
    opened.get_by_role("textbox", name="Link").fill("https://example.org/all")
    settled(opened)
    expect(opened.locator("#inspector .err")).to_have_count(0)
    opened.get_by_text("Outline", exact=True).click()
    opened.get_by_label("Name of this template").fill("A better name")
    settled(opened)
    shoot(opened, "editor-light")
    expected = copy.deepcopy(DESIGN)
    expected["sections"][3]["props"] |= {"text": "Read it all", "href": "https://example.org/all", "style": "outline"}

    assert design_of(api, one) == expected
    assert api.get(f"/templates/{one}").expect(200)["name"] == "A better name"


def test_ten_edits_ten_undos_ten_redos(opened: Page, api: Client) -> None:
    """Back to the first document and forward to the last one, by the keyboard."""
    one = make(api)
    opened.goto(f"/templates/{one}/edit")
    first = design_of(api, one)
    opened.locator("#o-words").click()
    for act in ("act-duplicate", "act-down", "act-duplicate", "act-up", "act-remove") * 2:
        opened.locator(f"#{act}").click()
        settled(opened)
    last = design_of(api, one)
    assert last != first
    opened.locator("#o-").focus()
    for _ in range(10):
        opened.keyboard.press("Control+z")
        settled(opened)
    assert design_of(api, one) == first
    expect(opened.locator("#undo")).to_be_disabled()
    for _ in range(10):
        opened.locator("#redo").click()
        settled(opened)
    assert design_of(api, one) == last


def test_sections_by_the_keyboard_alone(opened: Page, api: Client) -> None:
    """Choose, move, duplicate, remove, take back, add and write without a mouse; each is announced."""
    one = make(api)
    opened.goto(f"/templates/{one}/edit")
    opened.locator("#o-").focus()
    for _ in range(4):
        opened.keyboard.press("ArrowDown")
    settled(opened)
    expect(opened.locator("#o-press")).to_be_focused()
    opened.keyboard.press("Alt+ArrowUp")
    expect(opened.locator("#say")).to_have_text("Button moved to 3 of 5")
    expect(opened.locator("#o-press")).to_be_focused()
    expect_order(opened, "title", "odd", "press", "words", "foot")
    opened.keyboard.press("Control+d")
    settled(opened)
    expect(opened.locator("#list li")).to_have_count(6)
    opened.keyboard.press("Delete")
    settled(opened)
    expect(opened.locator(".toast")).to_contain_text("Button is removed.")
    expect(opened.locator("#list li")).to_have_count(5)
    opened.locator(".toast").get_by_role("button", name="Undo").click()
    settled(opened)
    expect(opened.locator("#list li")).to_have_count(6)
    opened.locator("#o-words").focus()
    opened.keyboard.press("Enter")
    settled(opened)
    expect(opened.locator("#inspector :focus")).to_have_count(1)
    opened.keyboard.press("Escape")
    expect(opened.locator("#o-words")).to_be_focused()
    opened.keyboard.press("a")
    expect(opened.locator("#palette button").first).to_be_focused()
    opened.keyboard.press("Enter")
    settled(opened)
    assert [each["type"] for each in design_of(api, one)["sections"]].count("heading") == 2


def test_dragging_in_the_outline_and_from_the_palette(opened: Page, api: Client) -> None:
    """A grip moves a section; a tile dropped on the outline stands where it was dropped."""
    one = make(api)
    opened.emulate_media(reduced_motion="reduce")
    opened.goto(f"/templates/{one}/edit")
    opened.wait_for_load_state("networkidle")
    drag(opened, "li[data-key=press] .grip", "li[data-key=words] .grip")
    settled(opened)
    expect(opened.locator("#list li").nth(2)).to_have_attribute("data-key", "press")
    opened.get_by_role("tab", name="Add").click()
    drag(opened, ".tile-add[data-kind=divider]", "li[data-key=words] .row")
    expect(opened.locator("#list li")).to_have_count(6)
    settled(opened)
    assert sorted(each["type"] for each in design_of(api, one)["sections"]).count("divider") == 1


def test_columns_hold_sections_and_lists_hold_entries(opened: Page, api: Client) -> None:
    """A column is filled from the inspector; entries are added, moved and taken out."""
    one = make(api, design={"sections": []})
    opened.goto(f"/templates/{one}/edit")
    shoot(opened, "editor-empty")
    opened.get_by_role("tab", name="Add").click()
    opened.get_by_role("button", name="Columns").click()
    settled(opened)
    opened.get_by_role("button", name="Add a section to column 2").click()
    opened.get_by_role("button", name="Button", exact=True).click()
    settled(opened)
    columns = design_of(api, one)["sections"][0]["props"]["columns"]
    assert [[each["type"] for each in column["sections"]] for column in columns] == [["text"], ["text", "button"]]
    opened.get_by_role("tab", name="Sections").click()
    opened.locator("#o-").click()
    opened.get_by_role("tab", name="Add").click()
    opened.get_by_role("button", name="List", exact=True).click()
    settled(opened)
    opened.locator("#inspector").get_by_role("button", name="Add", exact=True).click()
    settled(opened)
    expect(opened.locator("#inspector .entry")).to_have_count(4)
    opened.locator("#inspector .entry summary").first.click()
    opened.locator("#inspector .entry").first.get_by_role("button", name=re.compile("^Move .* down")).click()
    settled(opened)
    items = design_of(api, one)["sections"][1]["props"]["items"]
    assert [each.get("title") for each in items] == ["Second", "First", "Third", None]
    shoot(opened, "editor-columns")


def test_theme_details_history_and_a_test(opened: Page, api: Client) -> None:
    """Colours with how well they are read; subject with the inbox; an old state is brought back; a test is sent."""
    one = make(api)
    opened.goto(f"/templates/{one}/edit")
    opened.get_by_role("tab", name="Theme").click()
    opened.get_by_role("button", name="Moss").click()
    settled(opened)
    assert design_of(api, one)["theme"]["brand_color"] == "#3d6b35"
    expect(opened.locator("#contrasts li")).to_have_count(5)
    opened.get_by_label("Buttons", exact=True).select_option(label="Pill")
    settled(opened)
    expect(opened.frame_locator("#canvas").get_by_role("link", name="Press")).to_have_css("border-radius", "40px")
    opened.get_by_role("button", name="Use brand").click()
    settled(opened)
    assert design_of(api, one)["theme"] == {}
    opened.get_by_label("Subject").fill("A subject of nine words that all phones can show")
    settled(opened)
    expect(opened.locator("#inboxrow")).to_contain_text("A subject of nine words")
    expect(opened.locator("[data-count]").first).to_have_text("48")
    opened.get_by_label("Address people see").fill("nobody")
    expect(opened.locator("#inspector .err")).to_have_text("Write an address like name@example.com.")
    opened.get_by_role("button", name="More").click()
    opened.get_by_role("link", name="History").click()
    drawer = opened.locator("#drawer")
    expect(drawer.locator("li").first).to_contain_text("Subject changed")
    expect(drawer.locator("li").nth(1)).to_contain_text("Theme: as the brand")
    shoot(opened, "editor-history")
    drawer.get_by_role("button", name="Restore").nth(1).click()
    settled(opened)
    expect(drawer).not_to_be_visible()
    row = api.get(f"/templates/{one}").expect(200)
    assert (row["subject"], row["design"]["theme"]["brand_color"]) == ("S", "#3d6b35")
    opened.get_by_role("button", name="Send test").first.click()
    opened.locator("#f-emails").fill("not an address")
    opened.locator("#send-test .primary").click()
    expect(opened.locator("#send-test .err")).to_contain_text("are no addresses")
    opened.locator("#f-emails").fill("good@example.org")
    opened.locator("#send-test .primary").click()
    expect(opened.locator(".toast")).to_contain_text("A test is on its way to good@example.org.")
    assert [each["to"] for each in api.get("/messages", source_type="test").expect(200)] == ["good@example.org"]


def test_it_can_be_used_by_everybody(opened: Page, api: Client) -> None:
    """axe finds nothing in light and dark, whatever is open."""
    one = make(api, "Everybody", json.loads(json.dumps(DESIGN)))
    for address in ("", "?s=press", "?s=odd"):
        opened.goto(f"/templates/{one}/edit{address}")
        opened.wait_for_load_state("networkidle")
        assert axe.faults_in_both_looks(opened) == [], address
    for tab in ("Add", "Theme"):
        opened.get_by_role("tab", name=tab).click()
        assert axe.faults_in_both_looks(opened) == [], tab


@pytest.mark.parametrize("width", [320, 375])
def test_one_thing_at_a_time_on_a_phone(width: int, browser: Browser, server: Server, api: Client) -> None:
    """The outline, then the fields, then the email; nothing scrolls sideways."""
    one = make(api, f"Phone {width}")
    problems = Problems()
    page = sign_in(new_page(browser, server.url, problems, width=width, dark=width == 375))
    page.goto(f"/templates/{one}/edit")
    page.wait_for_load_state("networkidle")
    shoot(page, f"editor-{width}-outline")
    expect(page.locator("#inspector")).not_to_be_visible()
    page.locator("#o-title").click()
    expect(page.get_by_label("Text", exact=True)).to_be_visible()
    expect(page.locator("#outline")).not_to_be_visible()
    shoot(page, f"editor-{width}-fields")
    page.get_by_label("Text", exact=True).fill("From a phone")
    settled(page)
    page.get_by_role("navigation", name="Parts of the editor").get_by_role("button", name="Preview").click()
    expect(page.frame_locator("#canvas").locator("h1")).to_have_text("From a phone")
    shoot(page, f"editor-{width}-preview")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.context.close()
    assert not problems.found
