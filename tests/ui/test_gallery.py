"""The template gallery: starters, files, archiving, copies and deletion."""

import json
from pathlib import Path

import pytest
from playwright.sync_api import FilePayload, Page, expect

from tests.kit import axe
from tests.kit.browser import save_screenshot
from tests.kit.client import Client
from tests.kit.html_page import HtmlPage, text_of
from tests.kit.scriptless_browser import ScriptlessBrowser
from tests.kit.server import PASSWORD, Server

DESIGN = {"sections": [{"type": "heading", "props": {"text": "Hello {{ contact.first_name }}"}}], "theme": {}}


def open_card_menu(page: Page, name: str) -> object:
    """Open the menu of a template's card and return it."""
    page.get_by_role("button", name=f"More actions for {name}").click()
    return page.locator(".menu:popover-open")


def test_an_empty_gallery_offers_starters(browser_page: Page, api: Client, tmp_path: Path) -> None:
    """Without templates the page shows six starters and an empty one, which begins with a footer."""
    page = browser_page
    page.goto("/templates")
    expect(page.locator(".tile iframe")).to_have_count(6)
    expect(page.get_by_role("button", name="Start blank")).to_be_visible()
    save_screenshot(page, "templates-none")
    # The buttons of a row are at one height, also where a text above one of them wraps.
    page.locator(".tile .body p").nth(1).evaluate("text => text.append(' More words.'.repeat(20))")
    bottoms = [
        tile.locator(".body").bounding_box()["y"] + tile.locator(".body").bounding_box()["height"]  # type: ignore[index]  # visible
        - button.bounding_box()["y"]  # type: ignore[index]  # visible
        for tile in page.locator(".tile").all()[:3] for button in tile.get_by_role("button").all()
    ]  # fmt: skip
    assert max(bottoms) - min(bottoms) < 1, bottoms
    assert axe.find_violations_in_light_and_dark(page) == []
    page.get_by_role("button", name="Start blank").click()
    page.wait_for_url("**/edit")
    template = api.get("/templates").expect(200)[0]
    assert [section["type"] for section in template["design"]["sections"]] == ["footer"]


@pytest.mark.full
def test_archiving_and_restoring(browser_page: Page, api: Client) -> None:
    """An archived template disappears from lists, and the toast or its card restores it unchanged."""
    page = browser_page
    template_id = api.post("/templates", {"name": "Winter", "design": DESIGN}).expect(201)["id"]
    page.goto("/templates")
    open_card_menu(page, "Winter").get_by_role("button", name="Archive").click()
    expect(page.locator(".toast")).to_contain_text("“Winter” archived")
    expect(page.get_by_role("link", name="Winter")).to_have_count(0)
    assert template_id not in [row["id"] for row in api.get("/templates").expect(200)]
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_role("link", name="Winter")).to_be_visible()
    open_card_menu(page, "Winter").get_by_role("button", name="Archive").click()
    page.get_by_role("link", name="Archived 1").click()
    expect(page.get_by_role("link", name="Winter")).to_be_visible()
    assert axe.find_violations_in_light_and_dark(page) == []
    open_card_menu(page, "Winter").get_by_role("button", name="Restore").click()
    expect(page.locator(".toast")).to_contain_text("“Winter” restored")
    assert (
        api.get(f"/templates/{template_id}").expect(200)["design"]["sections"][0]["props"]
        == DESIGN["sections"][0]["props"]
    )


@pytest.mark.full
def test_duplicating_and_deleting(browser_page: Page, api: Client) -> None:
    """A card duplicates its template; deleting asks with its name, and the safe choice has the focus."""
    page = browser_page
    template_id = api.post("/templates", {"name": "Autumn", "design": DESIGN}).expect(201)["id"]
    page.goto("/templates")
    open_card_menu(page, "Autumn").get_by_role("button", name="Duplicate").click()
    page.wait_for_url("**/edit")
    assert api.get("/templates", search="Autumn (copy)").expect(200)[0]["design"]["sections"]
    page.goto("/templates")
    page.get_by_role("button", name="More actions for Autumn", exact=True).click()
    page.locator(".menu:popover-open").get_by_role("button", name="Delete").click()
    expect(page.get_by_role("heading", name="Delete “Autumn”?")).to_be_visible()
    expect(page.get_by_role("link", name="Cancel")).to_be_focused()
    page.get_by_role("button", name="Delete template").click()
    expect(page.locator(".toast")).to_contain_text("“Autumn” deleted")
    api.get(f"/templates/{template_id}").expect(404)


def test_importing_a_file(browser_page: Page, user: ScriptlessBrowser, api: Client) -> None:
    """A design, an exported template and an HTML file become templates, named after the file or its name field."""
    exported = {"name": "Spring", "subject": "New shoes", "design": DESIGN, "id": 77, "updated_at": "2026-01-01"}
    for name, content in (("two.json", json.dumps(exported)), ("Three.html", "<p>Dear {{ email }}</p>")):
        page = HtmlPage(user, "/templates/new")
        page.attach("File", name, content.encode())
        assert page.press("Import template").path.partition("?")[0].endswith("/edit")
    file: FilePayload = {"name": "One.json", "mimeType": "text/plain", "buffer": json.dumps(DESIGN).encode()}
    browser_page.goto("/templates/new")
    browser_page.set_input_files("#f-file", file)
    browser_page.get_by_role("button", name="Import template").click()
    browser_page.wait_for_url("**/edit")
    templates = {row["name"]: row for row in api.get("/templates").expect(200)}
    assert templates["One"]["design"]["sections"][0]["type"] == "heading"
    assert (templates["Spring"]["subject"], len(templates["Spring"]["design"]["sections"])) == ("New shoes", 1)
    assert templates["Three"]["body"] == "<p>Dear {{ email }}</p>"


@pytest.mark.full
def test_invalid_files_are_rejected(browser_page: Page, user: ScriptlessBrowser) -> None:
    """Broken JSON, other JSON, binary and deeply nested files show an error at the field."""
    page, broken = browser_page, b'{"sections": ['
    page.goto("/templates/new")
    page.set_input_files("#f-file", {"name": "x.json", "mimeType": "application/json", "buffer": broken})
    page.get_by_role("button", name="Import template").click()
    expect(page.locator("#f-file-err")).to_contain_text("is not JSON")
    assert axe.find_violations_in_light_and_dark(page) == []
    form = HtmlPage(user, "/templates/new")
    for content, message in (
        (broken, "is not JSON"), (b'{"a": 1}', "has no design"), (b"[1]", "has no design"),
        (b"\xff\xd8\xff\xe0\x00\x10", "is not text"), (b" ", "is empty"),
        (b'{"a":' * 300 + b"1" + b"}" * 300, "has no design"),
        (b'{"sections": [{"type": "button", "props": {"href": {}}}]}', "props.href is invalid"),
    ):  # fmt: skip
        form.attach("File", "x.json", content)
        response, _ = form.send("Import template")
        assert response.status == 422
        assert message in text_of(HtmlPage(user, form.path, response.text).one("#f-file-err"))


def test_a_viewer_sees_no_actions(server: Server, api: Client) -> None:
    """A viewer sees the cards and no button that would be rejected."""
    api.post("/templates", {"name": "Winter", "design": DESIGN}).expect(201)
    server.cli("user", "add", "--email", "v@example.org", "--role", "viewer", stdin=f"{PASSWORD}\n")
    page = HtmlPage(ScriptlessBrowser(api, "v@example.org"), "/templates")
    assert page.named("button", "More actions for Winter") and page.named("a", "New template") == []
    assert page.all("main .menu")
    assert [button for button in page.all("main .menu button") if "data-copy" not in button.attrib] == []
