"""The editor with several users, without a connection, in a campaign, and for viewers."""

import copy
import time

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.kit.browser import Problems, new_page, save_screenshot, sign_in
from tests.kit.client import Client
from tests.kit.editor import (
    DESIGN,
    create_template,
    expect_order,
    get_design,
    get_section_props,
    wait_until_saved,
)
from tests.kit.server import PASSWORD, Server
from tests.kit.timeouts import extend_timeout


def test_leaving_the_page_saves_typed_text(editor_page: Page, api: Client) -> None:
    """Text typed right before leaving the page is saved."""
    template_id = create_template(api)
    editor_page.goto(f"/templates/{template_id}/edit?s=title")
    editor_page.get_by_label("Text", exact=True).fill("Typed and gone")
    editor_page.goto("/templates")
    end = time.monotonic() + extend_timeout(5)
    while get_section_props(api, template_id, "title")["text"] != "Typed and gone":
        assert time.monotonic() < end


@pytest.mark.full
def test_text_is_saved_while_typing(editor_page: Page, api: Client) -> None:
    """Text that is typed without a pause is saved meanwhile: more than half of it by the last character."""
    template_id = create_template(api)
    text = "A sentence without a pause"
    editor_page.goto(f"/templates/{template_id}/edit?s=title")
    field = editor_page.get_by_label("Text", exact=True)
    field.fill("")
    field.press_sequentially(text, delay=50)
    saved_text = get_section_props(api, template_id, "title")["text"]
    assert text.startswith(saved_text) and len(saved_text) > len(text) / 2


def test_two_users_edit_at_once(browser: Browser, server: Server, editor_page: Page, api: Client) -> None:
    """Edits of different sections are both kept; a conflict in a field shows both values and asks."""
    template_id = create_template(api)
    server.cli("user", "add", "--email", "bea@example.org", stdin=PASSWORD + "\n")
    problems = Problems()
    problems.allow("status of 409")
    other = sign_in(new_page(browser, server.url, problems, width=1360), "bea@example.org")
    editor_page.goto(f"/templates/{template_id}/edit?s=press")
    other.goto(f"/templates/{template_id}/edit?s=title")
    other.get_by_label("Text", exact=True).fill("From Bea")
    wait_until_saved(other)
    editor_page.get_by_label("Text", exact=True).fill("From me")
    wait_until_saved(editor_page)
    assert (
        get_section_props(api, template_id, "title")["text"],
        get_section_props(api, template_id, "press")["text"],
    ) == (
        "From Bea",
        "From me",
    )
    other.goto(f"/templates/{template_id}/edit?s=press")
    other.get_by_label("Text", exact=True).fill("Bea again")
    wait_until_saved(other)
    expect(other.locator("#state")).to_contain_text("also editing")
    editor_page.get_by_label("Text", exact=True).fill("Mine again")
    expect(editor_page.locator(".clash")).to_contain_text("changed this at")
    expect(editor_page.locator(".clash")).to_contain_text("Bea again")
    expect(editor_page.get_by_label("Text", exact=True)).to_have_text("Mine again")
    save_screenshot(editor_page, "editor-conflict")
    assert get_section_props(api, template_id, "press")["text"] == "Bea again"
    editor_page.get_by_role("button", name="Keep mine").click()
    wait_until_saved(editor_page)
    expect(editor_page.locator(".clash")).to_have_count(0)
    assert get_section_props(api, template_id, "press")["text"] == "Mine again"
    other.get_by_role("textbox", name="Link").fill("no link")
    expect(other.locator("#inspector .err")).to_have_count(1)
    other.get_by_label("Text", exact=True).fill("Bea once more")
    expect(other.locator(".clash")).to_contain_text("Mine again")
    other.get_by_role("button", name="Use theirs").click()
    expect(other.get_by_label("Text", exact=True)).to_have_text("Mine again")
    expect(other.get_by_role("textbox", name="Link")).to_have_value("no link")
    expect(other.locator("#inspector .err")).to_have_count(1)
    other.get_by_label("Text", exact=True).fill("Bea at last")
    wait_until_saved(other)
    assert get_section_props(api, template_id, "press")["text"] == "Bea at last"
    other.context.close()
    assert not problems.found


@pytest.mark.full
def test_saving_is_retried_after_being_offline(editor_page: Page, api: Client) -> None:
    """Being offline is shown, and the text is saved once the server is reachable again."""
    template_id = create_template(api)
    editor_page.goto(f"/templates/{template_id}/edit?s=title")
    editor_page.wait_for_load_state("networkidle")
    editor_page.context.set_offline(True)
    editor_page.get_by_label("Text", exact=True).fill("Written on a train")
    expect(editor_page.locator("#saved")).to_have_text("Not saved: you are offline. Retrying…")
    editor_page.context.set_offline(False)
    wait_until_saved(editor_page)
    assert get_section_props(api, template_id, "title")["text"] == "Written on a train"


@pytest.mark.full
def test_editing_the_copy_of_a_campaign(editor_page: Page, api: Client) -> None:
    """A campaign's content is a copy that is edited under the campaign's URL."""
    template = create_template(api)
    editor_page.goto(f"/templates/{template}/edit")
    editor_page.get_by_role("button", name="More").click()
    editor_page.get_by_role("button", name="Use in a campaign").click()
    editor_page.wait_for_url("**/campaigns/*")
    campaign = int(editor_page.url.rpartition("/")[2].partition("?")[0])
    editor_page.goto(f"/campaigns/{campaign}/content?s=title")
    editor_page.get_by_label("Text", exact=True).fill("Only here")
    wait_until_saved(editor_page)
    campaign_template = api.get(f"/campaigns/{campaign}").expect(200)["templates"][0]
    assert campaign_template["design"]["sections"][0]["props"]["text"] == "Only here"
    assert get_section_props(api, template, "title")["text"] == "Hello"
    editor_page.goto(f"/templates/{campaign_template['id']}/edit")
    assert editor_page.url.endswith(f"/campaigns/{campaign}/content")
    expect(editor_page.get_by_role("link", name="Done")).to_have_attribute("href", f"/campaigns/{campaign}")


@pytest.mark.full
def test_editing_a_removed_section(editor_page: Page, api: Client) -> None:
    """Editing a section that another user removed says so and shows the current email; HTML content is a field."""
    template_id = create_template(api)
    editor_page.goto(f"/templates/{template_id}/edit?s=press")
    remaining = [section_row for section_row in DESIGN["sections"] if section_row["id"] != "press"]
    api.patch(f"/templates/{template_id}", {"design": {"sections": remaining}}).expect(200)
    editor_page.get_by_role("textbox", name="Link").fill("https://example.org/too-late")
    text = "Another user removed this section. You can restore it from the history."
    expect(editor_page.locator("#messages")).to_have_text(text)
    expect_order(editor_page, "title", "odd", "words", "foot")
    request = {"name": "By hand", "template_attributes": {"subject": "S", "body": "<p>Before</p>"}}
    campaign = api.post("/campaigns", request).expect(201)["id"]
    editor_page.goto(f"/campaigns/{campaign}/content")
    expect(editor_page.get_by_role("tab")).to_have_count(0)
    editor_page.get_by_label("HTML").fill("<p>After</p>")
    wait_until_saved(editor_page)
    expect(editor_page.frame_locator("#canvas").get_by_text("After")).to_be_visible()
    assert api.get(f"/campaigns/{campaign}").expect(200)["templates"][0]["body"] == "<p>After</p>"


@pytest.mark.full
def test_conditions_of_a_section(editor_page: Page, api: Client) -> None:
    """A section's rules are edited, shown as a sentence, and removed."""
    design = copy.deepcopy(DESIGN)
    rule = {"name": "contact_first_name", "predicate": "eq", "value": "Bea"}
    design["sections"][3]["props"]["show_if"] = [rule]
    template_id = create_template(api, design=design)
    editor_page.goto(f"/templates/{template_id}/edit?s=title")
    expect(editor_page.get_by_role("link", name="Set conditions")).to_be_visible()
    editor_page.locator("#o-press").click()
    editor_page.get_by_role("link", name="Edit conditions").click()
    editor_page.locator("input[name$='.value']").fill("Ana")
    editor_page.get_by_role("button", name="Save").click()
    expect(editor_page.locator("#inspector")).to_contain_text("First name is “Ana”")
    assert get_section_props(api, template_id, "press")["show_if"] == [rule | {"value": "Ana"}]
    editor_page.get_by_role("button", name="Show to all").click()
    wait_until_saved(editor_page)
    expect(editor_page.locator("#inspector")).to_contain_text("All recipients of this email.")
    assert "show_if" not in get_section_props(api, template_id, "press")


def test_a_viewer_cannot_edit(browser: Browser, server: Server, api: Client) -> None:
    """A viewer sees the email and its fields, no buttons, and shortcuts do nothing."""
    template_id = create_template(api, "Looked at")
    server.cli("user", "add", "--email", "viewer@example.org", "--role", "viewer", stdin=PASSWORD + "\n")
    problems = Problems()
    page = sign_in(new_page(browser, server.url, problems, width=1360), "viewer@example.org")
    page.goto(f"/templates/{template_id}/edit?s=press")
    expect(page.frame_locator("#canvas").get_by_text("Press")).to_be_visible()
    expect(page.locator("#inspector .banner")).to_contain_text("Your role can view this email, but not change it.")
    for name in ("Remove", "Undo", "Send test", "Duplicate", "Add"):
        expect(page.get_by_role("button", name=name, exact=True)).to_have_count(0)
    expect(page.locator("[name='props.href']")).to_be_disabled()
    page.locator("#o-title").focus()
    page.keyboard.press("Delete")
    page.keyboard.press("Control+d")
    assert get_design(api, template_id) == DESIGN
    page.context.close()
    assert not problems.found
