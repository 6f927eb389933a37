"""The editor of an email in a browser: what is typed is kept, every step has a way back, and two can write at once."""

import copy
import json
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.kit import axe
from tests.kit.browser import Problems, new_page, shoot, sign_in
from tests.kit.client import Client
from tests.kit.server import PASSWORD, Server

DESIGN: dict[str, Any] = {
    "sections": [
        {"id": "title", "type": "heading", "props": {"text": "Hello", "level": "1"}},
        {"id": "odd", "type": "hologram", "props": {"depth": {"cm": [3, 4]}}, "extra": "kept"},
        {"id": "words", "type": "text", "props": {"content": "<p>Words</p>", "unknown": True}},
        {"id": "press", "type": "button", "props": {"text": "Press", "href": "https://example.org"}},
        {"id": "foot", "type": "footer", "props": {}},
    ],
    "theme": {"brand_color": "#0f617d"}, "more": [1],
}  # fmt: skip


def make(api: Client, name: str = "Letter", design: Any = DESIGN) -> int:
    """Keep a template with a design."""
    asked = {"name": name, "subject": "S", "design": copy.deepcopy(design)}
    return int(api.post("/templates", asked).expect(201)["id"])


def design_of(api: Client, one: int) -> Any:
    """Return what is stored."""
    return api.get(f"/templates/{one}").expect(200)["design"]


def section(api: Client, one: int, ident: str) -> dict[str, Any]:
    """Return the properties of a section as they are stored."""
    found = next(each for each in design_of(api, one)["sections"] if each["id"] == ident)
    return dict(found["props"])


def settled(page: Page) -> None:
    """Wait until everything that was typed is kept."""
    expect(page.locator("#editor:not([data-busy])")).to_have_count(1)


def order(page: Page) -> list[str]:
    """Return the sections of the outline."""
    found = page.locator("#list li").evaluate_all("rows => rows.map(row => row.dataset.key)")
    return [str(one) for one in found]


def drag(page: Page, one: str, other: str) -> None:
    """Take hold of a thing and let it go over the upper half of another, as slowly as a hand does."""
    here = page.locator(one).bounding_box()
    assert here is not None
    page.mouse.move(here["x"] + 12, here["y"] + 18)
    page.mouse.down()
    page.mouse.move(here["x"] + 14, here["y"] + 8, steps=3)
    there = page.locator(other).bounding_box()
    assert there is not None
    page.mouse.move(there["x"] + 14, there["y"] + there["height"] * 0.6, steps=12)
    page.mouse.move(there["x"] + 14, there["y"] + 4, steps=6)
    page.mouse.up()


@pytest.fixture
def opened(browser: Browser, server: Server) -> Iterator[Page]:
    """A page of somebody who is signed in; anything wrong in its console fails the test."""
    problems = Problems()
    problems.allow("Blocked script execution in .*/preview")
    problems.allow("status of (409|503)|ERR_INTERNET_DISCONNECTED")
    page = sign_in(new_page(browser, server.url, problems, width=1360))
    yield page
    page.context.close()
    assert not problems.found


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


def test_leaving_in_the_middle_of_typing_loses_nothing(opened: Page, api: Client) -> None:
    """What was typed a moment ago is sent while the page goes."""
    one = make(api)
    opened.goto(f"/templates/{one}/edit?s=title")
    opened.get_by_label("Text", exact=True).fill("Typed and gone")
    opened.goto("/templates")
    end = time.monotonic() + 5
    while section(api, one, "title")["text"] != "Typed and gone":
        assert time.monotonic() < end


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


def test_two_write_at_once(browser: Browser, server: Server, opened: Page, api: Client) -> None:
    """Different sections both win; the same field tells both values, and keeps the typed one; who is here is seen."""
    one = make(api)
    server.cli("user", "add", "--email", "bea@example.org", stdin=PASSWORD + "\n")
    problems = Problems()
    problems.allow("status of 409")
    other = sign_in(new_page(browser, server.url, problems, width=1360), "bea@example.org")
    opened.goto(f"/templates/{one}/edit?s=press")
    other.goto(f"/templates/{one}/edit?s=title")
    other.get_by_label("Text", exact=True).fill("From Bea")
    settled(other)
    opened.get_by_label("Text", exact=True).fill("From me")
    settled(opened)
    assert (section(api, one, "title")["text"], section(api, one, "press")["text"]) == ("From Bea", "From me")
    other.goto(f"/templates/{one}/edit?s=press")
    other.get_by_label("Text", exact=True).fill("Bea again")
    settled(other)
    expect(other.locator("#state")).to_contain_text("also here")
    opened.get_by_label("Text", exact=True).fill("Mine again")
    expect(opened.locator(".clash")).to_contain_text("changed this at")
    expect(opened.locator(".clash")).to_contain_text("Bea again")
    expect(opened.get_by_label("Text", exact=True)).to_have_text("Mine again")
    shoot(opened, "editor-conflict")
    assert section(api, one, "press")["text"] == "Bea again"
    opened.get_by_role("button", name="Keep mine").click()
    settled(opened)
    expect(opened.locator(".clash")).to_have_count(0)
    assert section(api, one, "press")["text"] == "Mine again"
    other.get_by_label("Text", exact=True).fill("Bea once more")
    expect(other.locator(".clash")).to_contain_text("Mine again")
    other.get_by_role("button", name="Use theirs").click()
    expect(other.get_by_label("Text", exact=True)).to_have_text("Mine again")
    other.context.close()
    assert not problems.found


def test_without_a_line_it_is_tried_again(opened: Page, api: Client) -> None:
    """Offline is said; what was typed is kept as soon as the server is there again."""
    one = make(api)
    opened.goto(f"/templates/{one}/edit?s=title")
    opened.wait_for_load_state("networkidle")
    opened.context.set_offline(True)
    opened.get_by_label("Text", exact=True).fill("Written on a train")
    expect(opened.locator("#saved")).to_have_text("Not saved: offline, trying again")
    opened.context.set_offline(False)
    settled(opened)
    assert section(api, one, "title")["text"] == "Written on a train"


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
    assert order(opened) == ["title", "odd", "press", "words", "foot"]
    opened.keyboard.press("Control+d")
    settled(opened)
    assert len(order(opened)) == 6
    opened.keyboard.press("Delete")
    settled(opened)
    expect(opened.locator(".toast")).to_contain_text("Button is removed.")
    assert len(order(opened)) == 5
    opened.locator(".toast").get_by_role("button", name="Undo").click()
    settled(opened)
    assert len(order(opened)) == 6
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
    drag(opened, "li[data-key=press] .grip", "li[data-key=title] .grip")
    settled(opened)
    expect(opened.locator("#list li").first).to_have_attribute("data-key", "press")
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
    opened.get_by_role("button", name="Use brand").click()
    settled(opened)
    assert design_of(api, one)["theme"] == {}
    opened.get_by_label("Subject").fill("A subject of nine words that all phones can show")
    settled(opened)
    expect(opened.locator("#inboxrow")).to_contain_text("A subject of nine words")
    expect(opened.locator("[data-count]").first).to_have_text("48")
    opened.get_by_label("Sender", exact=False).nth(1).fill("nobody")
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


def test_a_campaign_has_a_copy_of_its_own_and_closes(opened: Page, api: Client) -> None:
    """It is edited by the same page under its own address, and only looked at once the campaign is on its way."""
    template = make(api)
    opened.goto(f"/templates/{template}/edit")
    opened.get_by_role("button", name="More").click()
    opened.get_by_role("button", name="Use in a campaign").click()
    opened.wait_for_url("**/campaigns/*")
    campaign = int(opened.url.rpartition("/")[2].partition("?")[0])
    opened.goto(f"/campaigns/{campaign}/content?s=title")
    opened.get_by_label("Text", exact=True).fill("Only here")
    settled(opened)
    mine = api.get(f"/campaigns/{campaign}").expect(200)["templates"][0]
    assert mine["design"]["sections"][0]["props"]["text"] == "Only here"
    assert section(api, template, "title")["text"] == "Hello"
    opened.goto(f"/templates/{mine['id']}/edit")
    assert opened.url.endswith(f"/campaigns/{campaign}/content")
    expect(opened.get_by_role("link", name="Done")).to_have_attribute("href", f"/campaigns/{campaign}")


def test_a_section_for_some_people_only(opened: Page, api: Client) -> None:
    """Rules are written in rows, told as a sentence, and taken away again."""
    design = copy.deepcopy(DESIGN)
    rule = {"name": "contact_first_name", "predicate": "eq", "value": "Bea"}
    design["sections"][3]["props"]["show_if"] = [rule]
    one = make(api, design=design)
    opened.goto(f"/templates/{one}/edit?s=title")
    expect(opened.get_by_role("link", name="Choose who")).to_be_visible()
    opened.locator("#o-press").click()
    opened.get_by_role("link", name="Change the rules").click()
    opened.locator("input[name$='.value']").fill("Ana")
    opened.get_by_role("button", name="Save").click()
    expect(opened.locator("#inspector")).to_contain_text("first name is “Ana”")
    assert section(api, one, "press")["show_if"] == [rule | {"value": "Ana"}]
    opened.get_by_role("button", name="Everybody").click()
    settled(opened)
    expect(opened.locator("#inspector")).to_contain_text("Everybody who gets this email.")
    assert "show_if" not in section(api, one, "press")


def test_who_may_only_look_changes_nothing(browser: Browser, server: Server, api: Client) -> None:
    """A viewer sees the email and its fields, and nothing that would be refused."""
    one = make(api, "Looked at")
    server.cli("user", "add", "--email", "viewer@example.org", "--role", "viewer", stdin=PASSWORD + "\n")
    problems = Problems()
    page = sign_in(new_page(browser, server.url, problems, width=1360), "viewer@example.org")
    page.goto(f"/templates/{one}/edit?s=press")
    expect(page.frame_locator("#canvas").get_by_text("Press")).to_be_visible()
    expect(page.locator("#inspector .banner")).to_contain_text("You may look at this email, not change it.")
    for name in ("Remove", "Undo", "Send test", "Duplicate", "Add"):
        expect(page.get_by_role("button", name=name, exact=True)).to_have_count(0)
    expect(page.locator("[name='props.href']")).to_be_disabled()
    page.locator("#o-title").focus()
    page.keyboard.press("Delete")
    page.keyboard.press("Control+d")
    assert design_of(api, one) == DESIGN
    page.context.close()
    assert not problems.found


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
