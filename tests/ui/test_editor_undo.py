"""Undo and redo in the editor: one history from the first content on, reached by keys wherever somebody writes."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, FrameLocator, Page, expect

from tests.kit.client import Client
from tests.kit.emails import DESIGN, at_work, design_of, make, section, settled
from tests.kit.server import Server


@pytest.fixture(scope="module")
def page(browser: Browser, server: Server) -> Iterator[Page]:
    """A page of somebody who is signed in, shared by the tests of this module."""
    with at_work(browser, server) as opened:
        yield opened


def campaign(api: Client, **content: Any) -> Any:
    """Make a campaign, and return it as the API answers it."""
    asked = {"name": "Spring"} | ({"template_attributes": content} if content else {})
    return api.post("/campaigns", asked).expect(201)


def from_template(page: Page, api: Client) -> tuple[str, int]:
    """Make a campaign from a template, by the menu of the editor."""
    page.goto(f"/templates/{make(api)}/edit")
    page.get_by_role("button", name="More").click()
    page.get_by_role("button", name="Use in a campaign").click()
    page.wait_for_url(re.compile(r"/campaigns/\d+"))
    return of_campaign(api, int(re.findall(r"/campaigns/(\d+)", page.url)[0]))


def from_starter(page: Page, api: Client) -> tuple[str, int]:
    """Choose one of our designs for a campaign that was empty."""
    number = campaign(api)["id"]
    page.goto(f"/campaigns/{number}/template")
    page.locator(
        "button[name=starter][value=newsletter], form:has([name=starter][value=newsletter]) button"
    ).first.click()
    expect(page.locator(".toast")).to_contain_text("It has its own copy now.")
    return of_campaign(api, number)


def from_api(page: Page, api: Client) -> tuple[str, int]:
    """Make a campaign with its content in one request."""
    return of_campaign(api, campaign(api, subject="S", design=DESIGN)["id"])


def from_copy(page: Page, api: Client) -> tuple[str, int]:
    """Duplicate a campaign that has content."""
    other = campaign(api, subject="S", design=DESIGN)["id"]
    return of_campaign(api, api.post(f"/campaigns/{other}/duplicate").expect(201)["id"])


def from_two_requests(page: Page, api: Client) -> tuple[str, int]:
    """Make an empty template, and send its design afterwards."""
    one = int(api.post("/templates", {"name": "Letter"}).expect(201)["id"])
    api.patch(f"/templates/{one}", {"design": DESIGN}).expect(200)
    return f"/templates/{one}/edit", one


def of_campaign(api: Client, number: int) -> tuple[str, int]:
    """Return where the content of a campaign is edited, and its template."""
    return f"/campaigns/{number}/content", int(api.get(f"/campaigns/{number}").expect(200)["templates"][0]["id"])


@pytest.mark.parametrize("way", [from_template, from_starter, from_api, from_copy, from_two_requests])
def test_undo_never_empties_what_an_email_began_with(way: Any, page: Page, api: Client) -> None:
    """There is nothing to undo at first; after an edit one step leads back to the content it began with."""
    where, one = way(page, api)
    begun = design_of(api, one)
    assert begun["sections"]
    page.goto(where)
    expect(page.locator("#undo")).to_be_disabled()
    page.locator("#list li a").first.click()
    page.locator("#act-duplicate").click()
    settled(page)
    page.locator("#undo").click()
    settled(page)
    assert design_of(api, one) == begun
    expect(page.locator("#undo")).to_be_disabled()
    page.reload()
    expect(page.locator("#undo")).to_be_disabled()
    page.locator("#redo").click()
    settled(page)
    assert len(design_of(api, one)["sections"]) == len(begun["sections"]) + 1


def test_the_first_section_of_an_empty_email_is_undone(page: Page, api: Client) -> None:
    """Who began with nothing comes back to nothing, and adds again where the section was that is gone."""
    one = make(api, design={"sections": []})
    page.goto(f"/templates/{one}/edit")
    page.get_by_role("tab", name="Add").click()
    page.get_by_role("button", name="Heading", exact=True).click()
    settled(page)
    page.locator("#undo").click()
    settled(page)
    assert design_of(api, one)["sections"] == []
    page.get_by_role("button", name="Button", exact=True).click()
    settled(page)
    assert [each["type"] for each in design_of(api, one)["sections"]] == ["button"]


def test_choosing_a_design_is_taken_back_by_its_message(page: Page, api: Client) -> None:
    """The message after it brings back that there was nothing, though the editor's undo does not."""
    _, one = from_starter(page, api)
    page.locator(".toast").get_by_role("button", name="Undo").click()
    expect(page.locator(".toast")).to_contain_text("The content from before is back.")
    assert not design_of(api, one).get("sections")


def opened(page: Page, api: Client) -> tuple[int, FrameLocator]:
    """Open an email in the editor, and wait until its canvas listens."""
    one = make(api)
    page.goto(f"/templates/{one}/edit")
    frame = page.frame_locator("#canvas")
    expect(frame.locator("html[style*=color-scheme]")).to_be_attached()
    expect(page.locator("#stage[data-have*=',']")).to_be_attached()
    return one, frame


@pytest.mark.parametrize(("undo", "redo"), [("Control+z", "Control+Shift+Z"), ("Meta+z", "Control+y")])
def test_what_is_typed_in_the_canvas_is_undone_there(page: Page, api: Client, undo: str, redo: str) -> None:
    """Ctrl Z takes back what was typed, and one goes on in the same text; redo brings it back."""
    one, frame = opened(page, api)
    frame.get_by_role("heading", name="Hello").dblclick()
    writing = frame.locator("h1[data-writing]")
    expect(writing).to_be_focused()
    page.keyboard.type(" there")
    page.keyboard.press(undo)
    expect(writing).to_have_text("Hello")
    expect(writing).to_be_focused()
    settled(page)
    assert section(api, one, "title")["text"] == "Hello"
    page.keyboard.press(redo)
    expect(writing).to_have_text("Hello there")
    settled(page)
    assert section(api, one, "title")["text"] == "Hello there"
    page.keyboard.press(undo)
    expect(writing).to_have_text("Hello")
    expect(writing).to_be_focused()
    page.keyboard.type(" again")
    page.keyboard.press("Escape")
    expect(frame.get_by_role("heading", name="Hello again")).to_be_visible()
    settled(page)
    assert section(api, one, "title")["text"] == "Hello again"
    page.keyboard.press(undo)
    expect(frame.get_by_role("heading", name="Hello", exact=True)).to_be_visible()
    settled(page)
    assert section(api, one, "title")["text"] == "Hello"


def test_a_rich_text_in_the_canvas_is_undone_there(page: Page, api: Client) -> None:
    """Also what was made bold, in steps of its own if there was a pause between."""
    one, frame = opened(page, api)
    frame.get_by_text("Words", exact=True).dblclick()
    writing = frame.locator("[data-writing]")
    expect(writing).to_be_focused()
    page.keyboard.type(" and more")
    settled(page)
    expect(page.locator("#undo")).to_be_enabled()
    page.keyboard.press("Control+z")
    expect(writing).to_have_text("Words")
    settled(page)
    assert section(api, one, "words")["content"] == "<p>Words</p>"


def test_undo_works_in_a_field_and_stays_in_it(page: Page, api: Client) -> None:
    """Typed in a field, or chosen: each step is taken back where the focus is, however quickly the keys follow."""
    one, frame = opened(page, api)
    page.locator("#o-press").click()
    field = page.get_by_label("Text", exact=True)
    field.fill("Read it all")
    page.keyboard.press("Control+z")
    expect(frame.get_by_role("link", name="Press", exact=True)).to_be_visible()
    expect(field).to_have_text("Press")
    expect(field).to_be_focused()
    page.keyboard.press("Control+y")
    expect(field).to_have_text("Read it all")
    expect(frame.get_by_role("link", name="Read it all")).to_be_visible()
    page.get_by_text("Outline", exact=True).click()
    settled(page)
    page.get_by_role("textbox", name="Link").fill("https://example.org/new")
    page.keyboard.press("Control+z")
    page.keyboard.press("Control+z")
    page.keyboard.press("Control+z")
    page.keyboard.press("Control+z")
    settled(page)
    assert section(api, one, "press") == DESIGN["sections"][3]["props"]
    expect(page.locator("#undo")).to_be_disabled()
    expect(page.get_by_role("textbox", name="Link")).to_be_focused()
    expect(page.locator("#say")).to_have_text("There is nothing to undo.")
    expect(page.locator("#saved")).to_contain_text("Saved")
    for _ in range(3):
        page.keyboard.press("Control+Shift+Z")
    settled(page)
    expect(page.get_by_role("textbox", name="Link")).to_have_value("https://example.org/new")
    assert section(api, one, "press")["text"] == "Read it all"


def test_what_was_refused_is_taken_back_first(page: Page, api: Client) -> None:
    """A value that cannot be kept is in no history: undo shows what is kept, and nothing else goes back."""
    one, _ = opened(page, api)
    page.locator("#o-press").click()
    page.get_by_label("Text", exact=True).fill("Read it all")
    settled(page)
    link = page.get_by_role("textbox", name="Link")
    link.fill("no link")
    expect(page.locator("#inspector .err")).to_have_count(1)
    page.keyboard.press("Control+z")
    expect(link).to_have_value("https://example.org")
    expect(link).to_be_focused()
    expect(page.locator("#inspector .err")).to_have_count(0)
    assert section(api, one, "press")["text"] == "Read it all"


def test_a_message_never_takes_back_another_step(page: Page, api: Client) -> None:
    """The offer to take a removal back goes as soon as something else is changed."""
    one, _ = opened(page, api)
    page.locator("#o-words").click()
    page.locator("#act-remove").click()
    expect(page.locator(".toast")).to_contain_text("Text is removed.")
    page.locator("#o-press").click()
    page.get_by_label("Text", exact=True).fill("Read it all")
    settled(page)
    expect(page.locator(".toast")).to_have_count(0)
    assert section(api, one, "press")["text"] == "Read it all"
