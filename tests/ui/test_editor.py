"""The email editor in a browser: autosave, undo, keyboard, dragging, theme, history and tests."""

import copy
import json
import re

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.kit import axe
from tests.kit.browser import Problems, new_page, save_screenshot, sign_in
from tests.kit.client import Client
from tests.kit.editor import DESIGN, create_template, drag, expect_order, get_design, wait_until_saved
from tests.kit.sampling import full_only, thin_out
from tests.kit.server import Server


def test_typed_text_is_saved_and_shown(editor_page: Page, api: Client) -> None:
    """A field is saved by itself and shown in canvas and outline; invalid links show an error."""
    template_id = create_template(api)
    editor_page.goto(f"/templates/{template_id}/edit")
    editor_page.locator("#o-press").click()
    editor_page.get_by_label("Text", exact=True).fill("Read it all")
    wait_until_saved(editor_page)
    expect(editor_page.locator("#saved")).to_contain_text("Saved")
    expect(editor_page.locator("#o-press")).to_contain_text("Read it all")
    expect(editor_page.frame_locator("#canvas").get_by_text("Read it all")).to_be_visible()
    editor_page.get_by_role("textbox", name="Link").fill("no link")
    expect(editor_page.locator("#inspector .err")).to_have_text("The link must start with https://")
    expect(editor_page.get_by_role("textbox", name="Link")).to_have_attribute("aria-invalid", "true")
    expect(editor_page.get_by_role("textbox", name="Link")).to_have_value("no link")
    editor_page.get_by_role("textbox", name="Link").fill("https://example.org/all")
    wait_until_saved(editor_page)
    expect(editor_page.locator("#inspector .err")).to_have_count(0)
    editor_page.get_by_text("Outline", exact=True).click()
    editor_page.get_by_label("Template name").fill("A better name")
    wait_until_saved(editor_page)
    save_screenshot(editor_page, "editor-light")
    expected = copy.deepcopy(DESIGN)
    expected["sections"][3]["props"] |= {"text": "Read it all", "href": "https://example.org/all", "style": "outline"}

    assert get_design(api, template_id) == expected
    assert api.get(f"/templates/{template_id}").expect(200)["name"] == "A better name"


def test_undo_and_redo(editor_page: Page, api: Client) -> None:
    """As many undos as edits lead back to the first document, and as many redos to the last one."""
    template_id = create_template(api)
    editor_page.goto(f"/templates/{template_id}/edit")
    first = get_design(api, template_id)
    editor_page.locator("#o-words").click()
    actions = ("act-duplicate", "act-down", "act-duplicate", "act-up", "act-remove")
    for action in actions:
        editor_page.locator(f"#{action}").click()
        wait_until_saved(editor_page)
    last = get_design(api, template_id)
    assert last != first
    editor_page.locator("#o-").focus()
    for _ in actions:
        editor_page.keyboard.press("Control+z")
        wait_until_saved(editor_page)
    assert get_design(api, template_id) == first
    expect(editor_page.locator("#undo")).to_be_disabled()
    for _ in actions:
        editor_page.locator("#redo").click()
        wait_until_saved(editor_page)
    assert get_design(api, template_id) == last


def test_editing_sections_by_keyboard(editor_page: Page, api: Client) -> None:
    """Sections are selected, moved, duplicated, removed, restored, added and edited without a mouse."""
    template_id = create_template(api)
    editor_page.goto(f"/templates/{template_id}/edit")
    editor_page.locator("#o-").focus()
    for _ in range(4):
        editor_page.keyboard.press("ArrowDown")
    wait_until_saved(editor_page)
    expect(editor_page.locator("#o-press")).to_be_focused()
    editor_page.keyboard.press("Alt+ArrowUp")
    expect(editor_page.locator("#say")).to_have_text("Button moved to 3 of 5")
    expect(editor_page.locator("#o-press")).to_be_focused()
    expect_order(editor_page, "title", "odd", "press", "words", "foot")
    editor_page.keyboard.press("Control+d")
    wait_until_saved(editor_page)
    expect(editor_page.locator("#list li")).to_have_count(6)
    editor_page.keyboard.press("Delete")
    wait_until_saved(editor_page)
    expect(editor_page.locator(".toast")).to_contain_text("Button removed.")
    expect(editor_page.locator("#list li")).to_have_count(5)
    editor_page.locator(".toast").get_by_role("button", name="Undo").click()
    wait_until_saved(editor_page)
    expect(editor_page.locator("#list li")).to_have_count(6)
    editor_page.locator("#o-words").focus()
    editor_page.keyboard.press("Enter")
    wait_until_saved(editor_page)
    expect(editor_page.locator("#inspector :focus")).to_have_count(1)
    editor_page.keyboard.press("Escape")
    expect(editor_page.locator("#o-words")).to_be_focused()
    editor_page.keyboard.press("a")
    expect(editor_page.locator("#palette button").first).to_be_focused()
    editor_page.keyboard.press("Enter")
    wait_until_saved(editor_page)
    assert [section["type"] for section in get_design(api, template_id)["sections"]].count("heading") == 2


@pytest.mark.full
def test_dragging_in_the_outline(editor_page: Page, api: Client) -> None:
    """A grip moves a section; a tile that comes over the tab of the outline is dropped there."""
    template_id = create_template(api)
    editor_page.emulate_media(reduced_motion="reduce")
    editor_page.goto(f"/templates/{template_id}/edit")
    editor_page.wait_for_load_state("networkidle")
    drag(editor_page, "li[data-key=press] .grip", "li[data-key=words] .grip")
    wait_until_saved(editor_page)
    expect(editor_page.locator("#list li").nth(2)).to_have_attribute("data-key", "press")
    editor_page.get_by_role("tab", name="Add").click()
    drag(editor_page, ".tile-add[data-kind=divider]", "li[data-key=words] .row", over="#tab-outline")
    expect(editor_page.locator("#list li")).to_have_count(6)
    wait_until_saved(editor_page)
    assert sorted(section["type"] for section in get_design(api, template_id)["sections"]).count("divider") == 1


def test_columns_and_list_entries(editor_page: Page, api: Client) -> None:
    """Sections are added to a column; entries of a list are added and moved."""
    template_id = create_template(api, design={"sections": []})
    editor_page.goto(f"/templates/{template_id}/edit")
    save_screenshot(editor_page, "editor-empty")
    editor_page.get_by_role("tab", name="Add").click()
    editor_page.get_by_role("button", name="Columns").click()
    wait_until_saved(editor_page)
    editor_page.get_by_role("button", name="Add a section to column 2").click()
    editor_page.get_by_role("button", name="Button", exact=True).click()
    wait_until_saved(editor_page)
    columns = get_design(api, template_id)["sections"][0]["props"]["columns"]
    assert [[each["type"] for each in column["sections"]] for column in columns] == [["text"], ["text", "button"]]
    editor_page.get_by_role("tab", name="Sections").click()
    editor_page.locator("#o-").click()
    editor_page.get_by_role("tab", name="Add").click()
    editor_page.get_by_role("button", name="List", exact=True).click()
    wait_until_saved(editor_page)
    editor_page.locator("#inspector").get_by_role("button", name="Add", exact=True).click()
    wait_until_saved(editor_page)
    expect(editor_page.locator("#inspector .entry")).to_have_count(4)
    editor_page.locator("#inspector .entry summary").first.click()
    editor_page.locator("#inspector .entry").first.get_by_role("button", name=re.compile("^Move .* down")).click()
    wait_until_saved(editor_page)
    items = get_design(api, template_id)["sections"][1]["props"]["items"]
    assert [each.get("title") for each in items] == ["Second item", "First item", "Third item", None]
    save_screenshot(editor_page, "editor-columns")


@pytest.mark.full
def test_theme_history_and_test_emails(editor_page: Page, api: Client) -> None:
    """The theme shows contrasts, the subject its inbox line; an old revision is restored, and a test is sent."""
    template_id = create_template(api)
    editor_page.goto(f"/templates/{template_id}/edit")
    editor_page.get_by_role("tab", name="Theme").click()
    editor_page.get_by_role("button", name="Moss").click()
    wait_until_saved(editor_page)
    assert get_design(api, template_id)["theme"]["brand_color"] == "#3d6b35"
    expect(editor_page.locator("#contrasts li")).to_have_count(5)
    editor_page.get_by_label("Button shape", exact=True).select_option(label="Pill")
    wait_until_saved(editor_page)
    expect(editor_page.frame_locator("#canvas").get_by_role("link", name="Press")).to_have_css("border-radius", "40px")
    editor_page.get_by_role("button", name="Reset to brand").click()
    wait_until_saved(editor_page)
    assert get_design(api, template_id)["theme"] == {}
    editor_page.get_by_label("Subject").fill("A subject of nine words that all phones can show")
    wait_until_saved(editor_page)
    expect(editor_page.locator("#inboxrow")).to_contain_text("A subject of nine words")
    expect(editor_page.locator("[data-count]").first).to_have_text("48")
    editor_page.get_by_label("From address").fill("nobody")
    expect(editor_page.locator("#inspector .err")).to_have_text("Enter an email address like name@example.com.")
    editor_page.get_by_role("button", name="More").click()
    editor_page.get_by_role("link", name="History").click()
    drawer = editor_page.locator("#drawer")
    expect(drawer.locator("li").first).to_contain_text("Subject changed")
    expect(drawer.locator("li").nth(1)).to_contain_text("Theme reset to the brand")
    save_screenshot(editor_page, "editor-history")
    drawer.get_by_role("button", name="Restore").nth(1).click()
    wait_until_saved(editor_page)
    expect(drawer).not_to_be_visible()
    row = api.get(f"/templates/{template_id}").expect(200)
    assert (row["subject"], row["design"]["theme"]["brand_color"]) == ("S", "#3d6b35")
    editor_page.get_by_role("button", name="Send test").first.click()
    editor_page.locator("#f-emails").fill("not an address")
    editor_page.locator("#send-test .primary").click()
    expect(editor_page.locator("#send-test .err")).to_contain_text("are not valid addresses")
    editor_page.locator("#f-emails").fill("good@example.org")
    editor_page.locator("#send-test .primary").click()
    expect(editor_page.locator(".toast")).to_contain_text("Sending a test to good@example.org.")
    assert [message["to"] for message in api.get("/messages", source_type="test").expect(200)] == ["good@example.org"]


def test_the_editor_is_accessible(editor_page: Page, api: Client) -> None:
    """axe finds no faults with a section and the theme open, and in either theme and whatever is open with `--full`."""
    template_id = create_template(api, "Everybody", json.loads(json.dumps(DESIGN)))
    for address in thin_out(("?s=press", "", "?s=odd"), 3):
        editor_page.goto(f"/templates/{template_id}/edit{address}")
        editor_page.wait_for_load_state("networkidle")
        assert axe.find_violations_in_light_and_dark(editor_page) == [], address
    for tab in thin_out(("Theme", "Add"), 2):
        editor_page.get_by_role("tab", name=tab).click()
        assert axe.find_violations_in_light_and_dark(editor_page) == [], tab


@pytest.mark.parametrize("width", [320, full_only(375)])
def test_the_editor_on_a_phone(width: int, browser: Browser, server: Server, api: Client) -> None:
    """A phone shows outline, fields or preview, and nothing scrolls sideways."""
    template_id = create_template(api, f"Phone {width}")
    problems = Problems()
    page = sign_in(new_page(browser, server.url, problems, width=width, dark=width == 375))
    page.goto(f"/templates/{template_id}/edit")
    page.wait_for_load_state("networkidle")
    save_screenshot(page, f"editor-{width}-outline")
    expect(page.locator("#inspector")).not_to_be_visible()
    page.locator("#o-title").click()
    expect(page.get_by_label("Text", exact=True)).to_be_visible()
    expect(page.locator("#outline")).not_to_be_visible()
    save_screenshot(page, f"editor-{width}-fields")
    page.get_by_label("Text", exact=True).fill("From a phone")
    wait_until_saved(page)
    page.get_by_role("navigation", name="Editor panels").get_by_role("button", name="Preview").click()
    expect(page.frame_locator("#canvas").locator("h1")).to_have_text("From a phone")
    save_screenshot(page, f"editor-{width}-preview")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.context.close()
    assert not problems.found


@pytest.mark.full
def test_platforms_of_social_links_are_chosen(editor_page: Page, api: Client) -> None:
    """A platform is chosen with the keyboard, and its icon shown; names of other sites in a design are kept."""
    links = [{"platform": "Our archive", "url": "https://a.example"}, {"platform": "Twitter", "url": "https://x.com/a"}]
    design = {"sections": [{"id": "s", "type": "social", "props": {"links": links}}]}
    template_id = create_template(api, design=design)
    editor_page.goto(f"/templates/{template_id}/edit?s=s")
    platforms = editor_page.get_by_label("Platform")
    expect(platforms.nth(0)).to_have_value("Our archive")
    expect(platforms.nth(1)).to_have_value("x")
    names = platforms.nth(1).locator("option").all_inner_texts()
    assert len(names) == 23 and {"Bluesky", "Website", "Detect from the link"} < set(names)
    assert "Our archive" not in names
    platforms.nth(0).press_sequentially("Blues")
    wait_until_saved(editor_page)
    expect(editor_page.locator("#f-props-links-0-platform")).to_have_value("bluesky")
    links[0]["platform"] = "bluesky"
    assert get_design(api, template_id)["sections"][0]["props"]["links"] == links
    expect(editor_page.frame_locator("#canvas").get_by_role("link", name="Bluesky")).to_be_visible()
