"""Templates as cards: what to begin from, what a file makes, what is put away and comes back, what goes for good."""

import json
from pathlib import Path

from playwright.sync_api import Page, expect

from tests.conftest import FreshServer
from tests.kit import axe
from tests.kit.browser import Problems, new_page, shoot, sign_in
from tests.kit.client import Client

DESIGN = {"sections": [{"type": "heading", "props": {"text": "Hello {{ contact.first_name }}"}}], "theme": {}}


def card(page: Page, name: str) -> object:
    """Open the menu of a template's card."""
    page.get_by_role("button", name=f"More for {name}").click()
    return page.locator(".menu:popover-open")


def test_nobody_begins_before_an_empty_page(browser_page: Page, api: Client, tmp_path: Path) -> None:
    """Without a template the page itself shows the six designs and an empty one, which is begun with a footer."""
    page = browser_page
    page.goto("/templates")
    expect(page.locator(".tile iframe")).to_have_count(6)
    expect(page.get_by_role("button", name="Begin empty")).to_be_visible()
    shoot(page, "templates-none")
    assert axe.faults_in_both_looks(page) == []
    page.get_by_role("button", name="Begin empty").click()
    page.wait_for_url("**/edit")
    made = api.get("/templates").expect(200)[0]
    assert [one["type"] for one in made["design"]["sections"]] == ["footer"]


def test_what_is_archived_comes_back(browser_page: Page, api: Client) -> None:
    """A template that is put away is in no list, until its toast or its card brings it back, with all it was."""
    page = browser_page
    one = api.post("/templates", {"name": "Winter", "design": DESIGN}).expect(201)["id"]
    page.goto("/templates")
    card(page, "Winter").get_by_role("button", name="Archive").click()
    expect(page.locator(".toast")).to_contain_text("Winter is archived")
    expect(page.get_by_role("link", name="Winter")).to_have_count(0)
    assert one not in [row["id"] for row in api.get("/templates").expect(200)]
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_role("link", name="Winter")).to_be_visible()
    card(page, "Winter").get_by_role("button", name="Archive").click()
    page.get_by_role("link", name="Archived 1").click()
    expect(page.get_by_role("link", name="Winter")).to_be_visible()
    assert axe.faults_in_both_looks(page) == []
    card(page, "Winter").get_by_role("button", name="Bring back").click()
    expect(page.locator(".toast")).to_contain_text("Winter is back")
    assert api.get(f"/templates/{one}").expect(200)["design"]["sections"][0]["props"] == DESIGN["sections"][0]["props"]


def test_a_copy_and_the_end_of_a_template(browser_page: Page, api: Client) -> None:
    """A card makes a copy; deleting asks with the name of the template, and the safe button is the first."""
    page = browser_page
    one = api.post("/templates", {"name": "Autumn", "design": DESIGN}).expect(201)["id"]
    page.goto("/templates")
    card(page, "Autumn").get_by_role("button", name="Duplicate").click()
    page.wait_for_url("**/edit")
    assert api.get("/templates", search="Autumn (copy)").expect(200)[0]["design"]["sections"]
    page.goto("/templates")
    page.get_by_role("button", name="More for Autumn", exact=True).click()
    page.locator(".menu:popover-open").get_by_role("button", name="Delete").click()
    expect(page.get_by_role("heading", name="Delete Autumn?")).to_be_visible()
    expect(page.get_by_role("link", name="Keep")).to_be_focused()
    page.get_by_role("button", name="Delete template").click()
    expect(page.locator(".toast")).to_contain_text("Autumn is deleted")
    api.get(f"/templates/{one}").expect(404)


def test_a_file_becomes_a_template(browser_page: Page, api: Client) -> None:
    """A design of a script, a whole template as it was exported, and the HTML of an email; the file names it."""
    page = browser_page
    whole = {"name": "Spring", "subject": "New shoes", "design": DESIGN, "id": 77, "updated_at": "2026-01-01"}
    for name, content in (
        ("One.json", json.dumps(DESIGN)), ("two.json", json.dumps(whole)), ("Three.html", "<p>Dear {{ email }}</p>"),
    ):  # fmt: skip
        page.goto("/templates/new")
        page.set_input_files("#f-file", {"name": name, "mimeType": "text/plain", "buffer": content.encode()})
        page.get_by_role("button", name="Make a template of it").click()
        page.wait_for_url("**/edit")
    made = {row["name"]: row for row in api.get("/templates").expect(200)}
    assert made["One"]["design"]["sections"][0]["type"] == "heading"
    assert (made["Spring"]["subject"], len(made["Spring"]["design"]["sections"])) == ("New shoes", 1)
    assert made["Three"]["body"] == "<p>Dear {{ email }}</p>"


def test_a_file_that_is_none_is_told_why(browser_page: Page, browser_problems: Problems) -> None:
    """Broken JSON, something else, binary, too deep: each in words at the field."""
    page = browser_page
    wrong = (
        (b'{"sections": [', "is not JSON"), (b'{"a": 1}', "holds no design"), (b"[1]", "holds no design"),
        (b"\xff\xd8\xff\xe0\x00\x10", "is not text"), (b" ", "is empty"),
        (b'{"a":' * 300 + b"1" + b"}" * 300, "holds no design"),
        (b'{"sections": [{"type": "button", "props": {"href": {}}}]}', "props.href is invalid"),
    )  # fmt: skip
    for content, words in wrong:
        page.goto("/templates/new")
        page.set_input_files("#f-file", {"name": "x.json", "mimeType": "application/json", "buffer": content})
        page.get_by_role("button", name="Make a template of it").click()
        expect(page.locator("#f-file-err")).to_contain_text(words)
    assert axe.faults_in_both_looks(page) == []


def test_a_viewer_only_looks(fresh_server: FreshServer, browser_page: Page) -> None:
    """Who may not write sees the cards and no button that would be refused."""
    server = fresh_server()
    server.client().post("/templates", {"name": "Winter", "design": DESIGN}).expect(201)
    server.cli("user", "add", "--email", "v@example.org", "--role", "viewer", stdin="correct horse battery\n")
    browser = browser_page.context.browser
    assert browser is not None
    page = sign_in(new_page(browser, server.url, Problems()), "v@example.org")
    page.goto("/templates")
    expect(page.get_by_role("link", name="New template")).to_have_count(0)
    card(page, "Winter")
    expect(page.locator(".menu:popover-open button:not([data-copy])")).to_have_count(0)
    page.context.close()
