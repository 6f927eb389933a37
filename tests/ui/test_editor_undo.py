"""Undo and redo in the editor: one history since the first content, with keys that work while writing."""

import re
from typing import Any

import pytest
from playwright.sync_api import FrameLocator, Page, expect

from tests.kit.client import Client
from tests.kit.editor import DESIGN, create_template, get_design, get_section_props, wait_until_saved
from tests.kit.sampling import full_only, sampled
from tests.ui.conftest import shared_editor_page as page

__all__ = ["page"]


def campaign(api: Client, **content: Any) -> Any:
    """Create a campaign and return it."""
    request = {"name": "Spring"} | ({"template_attributes": content} if content else {})
    return api.post("/campaigns", request).expect(201)


def from_template(page: Page, api: Client) -> tuple[str, int]:
    """Create a campaign from a template, by the editor's menu."""
    page.goto(f"/templates/{create_template(api)}/edit")
    page.get_by_role("button", name="More").click()
    page.get_by_role("button", name="Use in a campaign").click()
    page.wait_for_url(re.compile(r"/campaigns/\d+"))
    return editor_of_campaign(api, int(re.findall(r"/campaigns/(\d+)", page.url)[0]))


def from_starter(page: Page, api: Client) -> tuple[str, int]:
    """Choose a starter for an empty campaign."""
    number = campaign(api)["id"]
    page.goto(f"/campaigns/{number}/template")
    page.locator(
        "button[name=starter][value=newsletter], form:has([name=starter][value=newsletter]) button"
    ).first.click()
    expect(page.locator(".toast")).to_contain_text("Template applied.")
    return editor_of_campaign(api, number)


def from_api(page: Page, api: Client) -> tuple[str, int]:
    """Create a campaign with its content in one request."""
    return editor_of_campaign(api, campaign(api, subject="S", design=DESIGN)["id"])


def from_copy(page: Page, api: Client) -> tuple[str, int]:
    """Duplicate a campaign with content."""
    other = campaign(api, subject="S", design=DESIGN)["id"]
    return editor_of_campaign(api, api.post(f"/campaigns/{other}/duplicate").expect(201)["id"])


def from_two_requests(page: Page, api: Client) -> tuple[str, int]:
    """Create an empty template, then send its design."""
    template_id = int(api.post("/templates", {"name": "Letter"}).expect(201)["id"])
    api.patch(f"/templates/{template_id}", {"design": DESIGN}).expect(200)
    return f"/templates/{template_id}/edit", template_id


def editor_of_campaign(api: Client, number: int) -> tuple[str, int]:
    """Return the URL of a campaign's editor, and its template id."""
    return f"/campaigns/{number}/content", int(api.get(f"/campaigns/{number}").expect(200)["templates"][0]["id"])


@pytest.mark.parametrize(
    "create_email",
    sampled([from_template, from_starter, from_api, from_copy, from_two_requests], [from_template]),
)
def test_undo_ends_at_the_first_content(create_email: Any, page: Page, api: Client) -> None:
    """Undo is disabled at first; after an edit one undo leads back to the first content and no further."""
    url, template_id = create_email(page, api)
    first_design = get_design(api, template_id)
    assert first_design["sections"]
    page.goto(url)
    expect(page.locator("#undo")).to_be_disabled()
    page.locator("#list li a").first.click()
    page.locator("#act-duplicate").click()
    wait_until_saved(page)
    page.locator("#undo").click()
    wait_until_saved(page)
    assert get_design(api, template_id) == first_design
    expect(page.locator("#undo")).to_be_disabled()
    page.reload()
    expect(page.locator("#undo")).to_be_disabled()
    page.locator("#redo").click()
    wait_until_saved(page)
    assert len(get_design(api, template_id)["sections"]) == len(first_design["sections"]) + 1


def test_undoing_the_first_section(page: Page, api: Client) -> None:
    """Undo of the first section leaves an empty email, to which a section can be added."""
    template_id = create_template(api, design={"sections": []})
    page.goto(f"/templates/{template_id}/edit")
    page.get_by_role("tab", name="Add").click()
    page.get_by_role("button", name="Heading", exact=True).click()
    wait_until_saved(page)
    page.locator("#undo").click()
    wait_until_saved(page)
    assert get_design(api, template_id)["sections"] == []
    page.get_by_role("button", name="Button", exact=True).click()
    wait_until_saved(page)
    assert [section_row["type"] for section_row in get_design(api, template_id)["sections"]] == ["button"]


@pytest.mark.full
def test_undoing_the_choice_of_a_starter(page: Page, api: Client) -> None:
    """The toast after choosing a starter restores the empty content."""
    _, template_id = from_starter(page, api)
    page.locator(".toast").get_by_role("button", name="Undo").click()
    expect(page.locator(".toast")).to_contain_text("Previous content restored.")
    assert not get_design(api, template_id).get("sections")


@pytest.mark.full
def test_undo_stops_at_the_design_that_replaced_other_content(page: Page, api: Client) -> None:
    """A design chosen over HTML or another design is where the editor's undo ends; the history has what was before."""
    number = campaign(api, subject="S", body="<p>Written by hand</p>")["id"]
    page.goto(f"/campaigns/{number}/template")
    page.locator(
        "button[name=starter][value=newsletter], form:has([name=starter][value=newsletter]) button"
    ).first.click()
    expect(page.locator(".toast")).to_contain_text("Template applied.")
    where, template_id = editor_of_campaign(api, number)
    begun = get_design(api, template_id)
    page.goto(where)
    expect(page.locator("#list li").first).to_be_visible()
    expect(page.locator("#undo")).to_be_disabled()
    page.keyboard.press("Control+z")
    expect(page.locator("#say")).to_have_text("There is nothing to undo.")
    assert get_design(api, template_id) == begun and begun["sections"]
    page.goto(f"/templates/{template_id}/history")
    expect(page.locator("main")).to_contain_text("Content of")


def open_editor(page: Page, api: Client) -> tuple[int, FrameLocator]:
    """Open a new email in the editor and return its id and canvas, once its scripts run."""
    template_id = create_template(api)
    page.goto(f"/templates/{template_id}/edit")
    frame = page.frame_locator("#canvas")
    expect(frame.locator("html[style*=color-scheme]")).to_be_attached()
    expect(page.locator("#stage[data-have*=',']")).to_be_attached()
    return template_id, frame


@pytest.mark.parametrize(("undo", "redo"), [("Control+z", "Control+Shift+Z"), full_only("Meta+z", "Control+y")])
def test_undo_while_writing_in_the_canvas(page: Page, api: Client, undo: str, redo: str) -> None:
    """The undo keys revert typed text and keep the focus; redo brings it back."""
    template_id, frame = open_editor(page, api)
    frame.get_by_role("heading", name="Hello").click()
    writing = frame.locator("h1[data-writing]")
    expect(writing).to_be_focused()
    page.keyboard.type(" there")
    page.keyboard.press(undo)
    expect(writing).to_have_text("Hello")
    expect(writing).to_be_focused()
    wait_until_saved(page)
    assert get_section_props(api, template_id, "title")["text"] == "Hello"
    page.keyboard.press(redo)
    expect(writing).to_have_text("Hello there")
    wait_until_saved(page)
    assert get_section_props(api, template_id, "title")["text"] == "Hello there"
    page.keyboard.press(undo)
    expect(writing).to_have_text("Hello")
    expect(writing).to_be_focused()
    page.keyboard.type(" again")
    page.keyboard.press("Escape")
    expect(frame.get_by_role("heading", name="Hello again")).to_be_visible()
    wait_until_saved(page)
    assert get_section_props(api, template_id, "title")["text"] == "Hello again"
    page.keyboard.press(undo)
    expect(frame.get_by_role("heading", name="Hello", exact=True)).to_be_visible()
    wait_until_saved(page)
    assert get_section_props(api, template_id, "title")["text"] == "Hello"


@pytest.mark.full
def test_undo_of_rich_text_in_the_canvas(page: Page, api: Client) -> None:
    """Ctrl Z reverts what was typed in a rich text."""
    template_id, frame = open_editor(page, api)
    frame.get_by_text("Words", exact=True).click()
    writing = frame.locator("[data-writing]")
    expect(writing).to_be_focused()
    page.keyboard.type(" and more")
    wait_until_saved(page)
    expect(page.locator("#undo")).to_be_enabled()
    page.keyboard.press("Control+z")
    expect(writing).to_have_text("Words")
    wait_until_saved(page)
    assert get_section_props(api, template_id, "words")["content"] == "<p>Words</p>"


@pytest.mark.full
def test_undo_in_a_field_keeps_the_focus(page: Page, api: Client) -> None:
    """Each edit is undone with the focus in the field, however fast the keys follow."""
    template_id, frame = open_editor(page, api)
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
    wait_until_saved(page)
    page.get_by_role("textbox", name="Link").fill("https://example.org/new")
    page.keyboard.press("Control+z")
    page.keyboard.press("Control+z")
    page.keyboard.press("Control+z")
    page.keyboard.press("Control+z")
    wait_until_saved(page)
    assert get_section_props(api, template_id, "press") == DESIGN["sections"][3]["props"]
    expect(page.locator("#undo")).to_be_disabled()
    expect(page.get_by_role("textbox", name="Link")).to_be_focused()
    expect(page.locator("#say")).to_have_text("There is nothing to undo.")
    expect(page.locator("#saved")).to_contain_text("Saved")
    for _ in range(3):
        page.keyboard.press("Control+Shift+Z")
    wait_until_saved(page)
    expect(page.get_by_role("textbox", name="Link")).to_have_value("https://example.org/new")
    assert get_section_props(api, template_id, "press")["text"] == "Read it all"


@pytest.mark.full
def test_undo_discards_an_invalid_value_first(page: Page, api: Client) -> None:
    """Undo replaces an invalid, unsaved value by the stored one and reverts nothing else."""
    template_id, _ = open_editor(page, api)
    page.locator("#o-press").click()
    page.get_by_label("Text", exact=True).fill("Read it all")
    wait_until_saved(page)
    link = page.get_by_role("textbox", name="Link")
    link.fill("no link")
    expect(page.locator("#inspector .err")).to_have_count(1)
    page.keyboard.press("Control+z")
    expect(link).to_have_value("https://example.org")
    expect(link).to_be_focused()
    expect(page.locator("#inspector .err")).to_have_count(0)
    assert get_section_props(api, template_id, "press")["text"] == "Read it all"


@pytest.mark.full
def test_the_undo_toast_disappears_after_another_edit(page: Page, api: Client) -> None:
    """The toast that offers to undo a removal disappears with the next edit."""
    template_id, _ = open_editor(page, api)
    page.locator("#o-words").click()
    page.locator("#act-remove").click()
    expect(page.locator(".toast")).to_contain_text("Text removed.")
    page.locator("#o-press").click()
    page.get_by_label("Text", exact=True).fill("Read it all")
    wait_until_saved(page)
    expect(page.locator(".toast")).to_have_count(0)
    assert get_section_props(api, template_id, "press")["text"] == "Read it all"
