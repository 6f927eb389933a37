"""Templates in the browser: starters, HTML, files, history, tests and previews."""

import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.kit.browser import Problems, new_page, save_screenshot, sign_in
from tests.kit.client import Client
from tests.kit.html_page import HtmlPage, text_of
from tests.kit.sampling import full_only
from tests.kit.scriptless_browser import ScriptlessBrowser
from tests.kit.server import EMAIL, Server

DESIGN = {"sections": [{"id": "a", "type": "heading", "props": {"text": "Hello {{ contact.first_name }}", "level": 1}},
                       {"id": "b", "type": "hologram", "beam": 3}], "theme": {"brand_color": "#0f617d"}}  # fmt: skip


@pytest.fixture
def page(browser_page: Page, browser_problems: Problems) -> Page:
    """A page signed in as the owner."""
    browser_problems.allow("Blocked script execution in .*/preview")
    return browser_page


def make(api: Client, name: str) -> int:
    """Create a template with a design and return its id."""
    body = {"name": name, "subject": "Hi {{ contact.first_name }}", "design": DESIGN}
    return int(api.post("/templates", body).expect(201)["id"])


def test_starting_from_a_starter(page: Page, api: Client) -> None:
    """Six starters are shown in the brand's colours, and the chosen one becomes a template."""
    api.put("/brand", {"brand_color": "#8a2be2", "company_name": "Harbour"}).expect(200)
    page.goto("/templates/new")
    pictures = page.locator(".tile iframe")
    expect(pictures).to_have_count(6)
    expect(pictures.nth(1).content_frame.locator("h1")).to_have_text("Something new is here")
    expect(pictures.nth(0).content_frame.get_by_text("Harbour").first).to_be_visible()
    save_screenshot(page, "templates-new")
    page.get_by_role("button", name="Start with Announcement").click()
    expect(page.get_by_label("Template name")).to_have_value("Announcement")
    expect(page.locator("[name='email.subject']")).to_have_value("Something new is here")
    expect(page.locator("#list li")).to_have_count(7)
    canvas = page.frame_locator("#canvas")
    expect(canvas.locator("h1")).to_have_text("Something new is here")
    save_screenshot(page, "templates-edit")
    template = api.get("/templates", search="Something new").expect(200)[0]
    assert template["design"]["sections"][0]["type"] == "header"


def test_previews_of_templates(page: Page, user: ScriptlessBrowser, api: Client) -> None:
    """Previews have merge tags filled in, for designs, HTML and in the gallery; empty ones say so."""
    design_id = make(api, "Shown")
    html_id = api.post("/templates", {"name": "Plain", "body": "<p>Dear {{ contact.first_name }}</p>"}).expect(201)[
        "id"
    ]
    page.goto(f"/templates/{design_id}/edit")
    expect(page.frame_locator("#canvas").locator("body")).to_contain_text("Hello Anna")
    page.goto(f"/templates/{html_id}/edit")
    expect(page.frame_locator("iframe.frame").locator("body")).to_contain_text("Dear Anna")
    [frame, *_] = HtmlPage(user, "/templates").all(".tile iframe")
    assert "Dear Anna" in HtmlPage(user, frame.attrib["src"]).text
    empty_id = api.post("/templates", {"name": "Empty"}).expect(201)["id"]
    assert HtmlPage(user, f"/templates/{empty_id}/edit").has("#list", "No sections yet")
    frame = HtmlPage(user, f"/templates/{empty_id}/edit?as=html").one("iframe.frame")
    assert "This email has no content yet" in HtmlPage(user, frame.attrib["src"]).text


def test_editing_an_html_template(user: ScriptlessBrowser, api: Client) -> None:
    """Name, subject, preview text and HTML are edited in a form beside the preview."""
    template_id = api.post("/templates", {"name": "Simple", "body": "<p>Before</p>"}).expect(201)["id"]
    page = HtmlPage(user, f"/templates/{template_id}/edit")
    page.fill("Subject", "Another subject")
    page.fill("Preview text", "Before you open it")
    page.fill("Content", "<p>After</p>")
    page = page.press("Save")
    assert page.has(".toast", "Saved")
    assert HtmlPage(user, page.one("iframe.frame").attrib["src"]).texts("p") == ["After"]
    row = api.get(f"/templates/{template_id}").expect(200)

    assert (row["subject"], row["preheader"], row["body"]) == ("Another subject", "Before you open it", "<p>After</p>")


def test_an_edit_conflict_of_an_html_template(user: ScriptlessBrowser, api: Client) -> None:
    """The conflict is shown with the user's values kept; saving again overwrites."""
    template_id = api.post("/templates", {"name": "Shared", "subject": "S", "body": "<p>Words</p>"}).expect(201)["id"]
    page = HtmlPage(user, f"/templates/{template_id}/edit")
    api.patch(f"/templates/{template_id}", {"subject": "From elsewhere"}).expect(200)
    page.fill("Subject", "Mine")
    page = page.press("Save")
    assert page.has("[role=alert]", "Another user changed the subject since you opened it.")
    assert page.value("Subject") == "Mine"
    assert page.press("Save").has(".toast", "Saved")
    assert api.get(f"/templates/{template_id}").expect(200)["subject"] == "Mine"


@pytest.mark.full
def test_downloading_and_uploading_a_design(page: Page, api: Client, tmp_path: Path) -> None:
    """The file has the same document; an invalid file is rejected with all errors, and nothing changes."""
    template_id = make(api, "Letter / June")
    page.goto(f"/templates/{template_id}/edit")
    page.get_by_role("button", name="More").click()
    with page.expect_download() as download:
        page.get_by_role("link", name="Download design").click()
    path = tmp_path / download.value.suggested_filename
    download.value.save_as(path)
    assert (path.name, json.loads(path.read_text())) == ("Letter-June.json", DESIGN)
    invalid_file = tmp_path / "bad.json"
    invalid_file.write_text(
        json.dumps({"sections": [{"type": "button", "props": {"text": "{{", "href": "javascript:x"}}]})
    )
    page.get_by_role("button", name="Upload design").click()
    page.get_by_label("Design file (JSON)").set_input_files(invalid_file)
    page.get_by_role("button", name="Replace design").click()
    expect(page.locator("#f-file-err")).to_contain_text("design.sections[0].props.href is invalid")
    expect(page.locator("#f-file-err")).to_contain_text("design.sections[0].props.text")
    save_screenshot(page, "templates-file-refused")
    assert api.get(f"/templates/{template_id}").expect(200)["design"] == DESIGN
    path.write_text(path.read_text().replace("Hello", "Good day"))
    page.get_by_label("Design file (JSON)").set_input_files(path)
    page.get_by_role("button", name="Replace design").click()
    expect(page.frame_locator("#canvas").locator("h1")).to_have_text("Good day Anna")
    page.get_by_role("button", name="More").click()
    page.get_by_role("button", name="Upload design").click()
    invalid_file.write_text("no json")
    page.get_by_label("Design file (JSON)").set_input_files(invalid_file)
    page.get_by_role("button", name="Replace design").click()
    expect(page.locator("#f-file-err")).to_contain_text("This file cannot be used: it is not JSON.")


def test_a_conflict_of_an_uploaded_design(user: ScriptlessBrowser, api: Client) -> None:
    """If the design has changed meanwhile the upload is rejected once; uploading again replaces it."""
    template_id = make(api, "Raced")
    page = HtmlPage(user, f"/templates/{template_id}/edit")
    theirs = json.loads(json.dumps(DESIGN).replace("Hello", "Servus"))
    api.patch(f"/templates/{template_id}", {"design": theirs}).expect(200)
    mine = json.dumps(DESIGN).replace("Hello", "Mine").encode()
    page.attach("Design file (JSON)", "mine.json", mine)
    page = page.press("Replace design")
    assert "Another user changed the design since you opened it." in text_of(page.one("#f-file-err"))
    assert api.get(f"/templates/{template_id}").expect(200)["design"] == theirs
    page.attach("Design file (JSON)", "mine.json", mine)
    page = page.press("Replace design")
    canvas = HtmlPage(user, page.one("#canvas").attrib["src"])
    assert "Mine Anna" in canvas.text
    assert "Mine" in json.dumps(api.get(f"/templates/{template_id}").expect(200)["design"])


def test_the_history_of_a_template(user: ScriptlessBrowser, api: Client) -> None:
    """Revisions are previewed, named and restored, with undo and redo."""
    template_id = make(api, "Past")
    changed = json.loads(json.dumps(DESIGN).replace("Hello", "Servus"))
    api.patch(f"/templates/{template_id}", {"design": changed}).expect(200)
    page = HtmlPage(user, f"/templates/{template_id}/history")
    first, _ = page.texts("tbody tr")
    assert "Changed design" in first and "Current" in first
    page = page.follow("1")
    assert HtmlPage(user, page.one("iframe.frame").attrib["src"]).texts("h1") == ["Hello Anna"]
    page.fill("Revision name", "The first words")
    page = page.press("Save name")
    assert "The first words" in page.texts("tbody tr")[-1]
    page = page.press("Restore this version")
    assert page.has(".toast", "All earlier revisions are still in the history.")
    assert len(page.all("tbody tr")) == 3
    assert api.get(f"/templates/{template_id}").expect(200)["design"] == DESIGN
    page = page.press("Undo")
    assert len(page.all("tbody tr")) == 4
    assert api.get(f"/templates/{template_id}").expect(200)["design"] == changed
    page = page.press("Redo")
    assert len(page.all("tbody tr")) == 5
    assert ["disabled" in button.attrib for button in page.named("button", "Redo")] == [True]


def test_duplicating_and_testing_an_html_template(user: ScriptlessBrowser, api: Client) -> None:
    """The copy is opened; a test goes to the user by default, and an invalid address is an error."""
    template_id = api.post("/templates", {"name": "Twice", "subject": "S", "body": "<p>Words</p>"}).expect(201)["id"]
    page = HtmlPage(user, f"/templates/{template_id}/edit").press("Duplicate")
    assert page.title == "Twice (copy)"
    page = page.press("Send test")
    assert page.has(".toast", f"Sending a test to {EMAIL}.")
    page.one("#f-emails").set("value", "good@example.org, nobody")
    page = page.press("Send test")
    assert "nobody is not a valid address." in text_of(page.one("#f-emails-err"))
    field = page.one("#f-emails")
    assert field.get("value") == "good@example.org, nobody"
    field.set("value", "good@example.org better@example.org")
    assert page.press("Send test").has(".toast", "good@example.org and better@example.org.")
    rows = api.get("/messages", source_type="test").expect(200)
    assert {row["to"] for row in rows} == {EMAIL, "good@example.org", "better@example.org"}
    assert all(row["subject"].startswith("[Test] ") for row in rows)


def test_templates_without_javascript(user: ScriptlessBrowser) -> None:
    """Starters, editing, duplicating a section and undo work with plain links and forms."""
    page = HtmlPage(user, "/templates/new").press("Start with Plain email")
    page.one("[name='email.subject']").set("value", "Without a script")
    page = page.press(page.all("#inspector button", "Save")[0])
    assert page.one("[name='email.subject']").get("value") == "Without a script"
    page = page.follow(page.all("#list a", "Text")[0])
    page = page.press(page.named("#inspector button", "Duplicate")[0])
    assert len(page.all("#list li")) == 4
    page = HtmlPage(user, page.path.replace("/edit", "/history").partition("?")[0]).press("Undo")
    assert len(page.all("tbody tr")) == 4


@pytest.mark.parametrize(("width", "dark"), [full_only(320, False), full_only(375, True), full_only(1280, True)])
def test_template_pages_fit_a_phone(width: int, dark: bool, browser: Browser, server: Server, api: Client) -> None:
    """Pages do not scroll sideways, have one heading and no inline styles or scripts, in light and dark."""
    template_id = make(api, f"Small {width}")
    problems = Problems()
    problems.allow("Blocked script execution in .*/preview")
    page = sign_in(new_page(browser, server.url, problems, width=width, dark=dark))
    for path, name in (("/templates", "list"), ("/templates/new", "new"), (f"/templates/{template_id}/edit", "edit"),
                       (f"/templates/{template_id}/history", "history")):  # fmt: skip
        page.goto(path)
        page.wait_for_load_state("networkidle")
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path
        expect(page.locator("h1")).to_have_count(1)
        assert page.evaluate("document.querySelectorAll('[style], style, script:not([src])').length") == 0
        save_screenshot(page, f"templates-{name}-{width}{'-dark' if dark else ''}")
    page.context.close()
    assert not problems.found
    assert re.search("/history$", path)
