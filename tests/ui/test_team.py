"""API keys, users and limits of an account in the browser."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.kit.axe import find_violations_in_light_and_dark
from tests.kit.browser import Problems, new_page, sign_in
from tests.kit.html_page import HtmlPage, text_of
from tests.kit.scriptless_browser import ScriptlessBrowser
from tests.kit.server import PASSWORD, Server
from tests.ui.test_roles import request_page, session_cookie

TABS = ("", "/sending", "/domains", "/team", "/keys", "/audit", "/consent", "/data", "/doctor", "/you")


@pytest.fixture(scope="module")
def page(browser: Browser, server: Server) -> Iterator[Page]:
    """A page signed in as the owner; the module fails on any console error."""
    problems = Problems()
    opened = sign_in(new_page(browser, server.url, problems))
    yield opened
    opened.context.close()
    assert not problems.found


def test_creating_and_revoking_a_key(page: Page, server: Server) -> None:
    """A key is shown once, has the chosen scopes, and stops working when it is revoked."""
    page.goto("/settings/keys")
    page.get_by_role("button", name="Create key").click()
    expect(page.locator("#f-name-err")).to_be_visible()
    page.get_by_label("Name", exact=True).fill("Counter")
    page.get_by_text("Read only").click()
    page.get_by_role("button", name="Create key").click()
    key = page.get_by_label("API key", exact=True).input_value()
    assert f"Bearer {key}" in page.get_by_label("Test request").input_value()
    assert f'"{server.url}/v1/my/' in page.get_by_label("Test request").input_value()
    key_client = server.client(key)
    page.goto("/settings/keys")
    expect(page.locator("tbody tr").first.locator("[data-l='Last used']")).to_have_text("Never")
    assert key_client.get("/contacts").status == 200
    assert key_client.post("/lists", {"name": "x"}).status == 403
    page.goto("/settings/keys")
    assert key not in page.content()
    expect(page.locator("tbody tr").first.locator("[data-l='Last used']")).to_have_text("just now")
    expect(page.locator("tbody tr").first).to_contain_text(f"…{key[-4:]}")
    page.get_by_role("button", name="Revoke Counter").click()
    page.get_by_role("dialog").get_by_role("button", name="Revoke key").click()
    expect(page.locator(".toast")).to_contain_text("API key “Counter” revoked.")
    assert key_client.get("/contacts").status == 401


def test_inviting_and_disabling_a_user(page: Page, browser: Browser, server: Server) -> None:
    """The link of an invitation leads to name, password and language; disabling ends the sessions, with undo."""
    page.goto("/settings/team")
    page.get_by_role("button", name="Create invitation link").click()
    expect(page.locator("#f-email-err")).to_be_visible()
    page.get_by_label("Email").fill("ben@example.org")
    page.get_by_label("Author").check()
    page.get_by_role("button", name="Create invitation link").click()
    link = page.get_by_label("Invitation link", exact=True).input_value()
    expect(page.get_by_role("region", name="Open invitations")).to_contain_text("ben@example.org")
    assert find_violations_in_light_and_dark(page) == []
    problems, secret = Problems(), "a password of Ben"
    problems.allow("422")
    ben = new_page(browser, server.url, problems)
    ben.goto(link)
    ben.set_viewport_size({"width": 320, "height": 700})
    assert ben.evaluate("document.documentElement.scrollWidth") <= 320
    assert find_violations_in_light_and_dark(ben) == []
    ben.get_by_label("Your name").fill("ben")
    ben.get_by_role("button", name="Join the team").click()
    expect(ben.locator("#f-password-err")).to_contain_text("at least 10")
    expect(ben.get_by_label("Your name")).to_have_value("ben")
    ben.get_by_label("Password").fill(secret)
    ben.get_by_role("button", name="Join the team").click()
    expect(ben.get_by_role("heading", level=1)).to_contain_text("ben")
    ben.set_viewport_size({"width": 1280, "height": 800})
    ben.goto("/settings/you")
    ben.get_by_label("Current password").fill("wrong")
    ben.get_by_label("New password").fill("short")
    ben.get_by_role("button", name="Change password").click()
    expect(ben.locator("#f-old-password-err")).to_contain_text("not your current password")
    expect(ben.locator("#f-new-password-err")).to_contain_text("at least 10")
    ben.get_by_label("Current password").fill(secret)
    ben.get_by_label("New password").fill("long and memorable")
    ben.get_by_role("button", name="Change password").click()
    expect(ben.locator(".toast")).to_contain_text("Password changed.")
    assert request_page(server, "POST", "/login", email="ben@example.org", password=secret)[0] == 422
    page.goto("/settings/team")
    page.get_by_role("button", name="More actions for ben").click()
    page.get_by_role("button", name="Deactivate user").click()
    expect(page.locator(".toast")).to_contain_text("ben can no longer sign in")
    ben.goto("/campaigns")
    expect(ben.get_by_role("heading", level=1)).not_to_have_text("Campaigns")
    page.get_by_role("button", name="Undo").click()
    expect(page.locator(".toast")).to_contain_text("ben can sign in again")
    ben.context.close()
    assert problems.found == []


def test_the_last_owner_keeps_the_role(user: ScriptlessBrowser) -> None:
    """The role of the only owner is a text, and changing it is an error."""
    page = HtmlPage(user, "/settings/team")
    assert page.has("td", "The only owner") and not page.named("select", "Role of owner")
    response = user.submit("/settings/team/1/role", role="viewer")
    assert response.status == 422 and "needs an owner" in response.text


def test_an_editor_cannot_manage_team_and_keys(server: Server) -> None:
    """An editor gets a 403 for these pages and forms, but can change the own name."""
    server.cli("user", "add", "--email", "ed@example.org", "--role", "editor", stdin=PASSWORD + "\n")
    cookie = session_cookie(server, "ed@example.org")
    for method, path in (
        ("GET", "/team"), ("GET", "/keys"), ("GET", "/audit"),
        ("POST", "/team"), ("POST", "/keys"), ("POST", "/keys/1/revoke"),
        ("POST", "/team/1/role"), ("POST", "/team/1/close"), ("POST", "/team/1/password"), ("POST", "/consent"),
    ):  # fmt: skip
        assert request_page(server, method, f"/settings{path}", cookie, role="viewer", name="x")[0] == 403, path
    assert request_page(server, "POST", "/settings/you", cookie, name="Ed")[0] == 303


def test_frequency_cap_settings(user: ScriptlessBrowser) -> None:
    """Half a frequency cap is an error at its field and keeps the input; a complete one is saved."""
    page = HtmlPage(user, "/settings/consent")
    page.fill("Maximum messages per contact", "3")
    page.check("No IP address")
    page = page.press("Save")
    assert "both fields or neither" in text_of(page.one("#f-cap-days-err"))
    assert page.is_checked("No IP address")
    page.fill("Period (days)", "7")
    page = page.press("Save")
    assert page.has(".toast", "Saved") and page.value("Period (days)") == "7"


def test_opt_out_texts_in_other_languages(user: ScriptlessBrowser) -> None:
    """Each line is a language and its text; what is wrong is told with the language, and nothing is lost."""
    page, label = HtmlPage(user, "/settings/consent"), "Opt-out in other languages"
    for typed, error_text in (
        ("STOP zum Abmelden", "a language code, a colon and a text"), ("de STOP: x", "de STOP"), ("de: {{ x", "de: "),
    ):  # fmt: skip
        page.fill(label, typed)
        page = page.press("Save")
        assert error_text in text_of(page.one("#f-sms-opt-out-hints-err"))
        assert page.value(label) == typed
    page.fill(label, "de: STOP zum Abmelden\nPT_br: Responda SAIR")
    page = page.press("Save")
    assert page.has(".toast", "Saved")
    assert page.value(label).splitlines() == ["de: STOP zum Abmelden", "pt-BR: Responda SAIR"]


def test_tabs_of_the_settings(page: Page) -> None:
    """Each tab is marked on its page, which fits a phone."""
    page.set_viewport_size({"width": 320, "height": 700})
    for tab in TABS:
        page.goto(f"/settings{tab}")
        expect(page.locator('nav[aria-label="Settings"] [aria-current]')).to_have_count(1)
        assert page.evaluate("document.documentElement.scrollWidth") <= 320, tab
    page.set_viewport_size({"width": 1280, "height": 800})
