"""API keys, users and limits of an account in the browser."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.kit.axe import find_violations_in_light_and_dark
from tests.kit.browser import Problems, new_page, sign_in
from tests.kit.client import Client
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


def test_creating_and_revoking_a_key(user: ScriptlessBrowser, server: Server) -> None:
    """A key is shown once, has the chosen scopes, and stops working when it is revoked."""
    page = HtmlPage(user, "/settings/keys").press("Create key")
    assert page.all("#f-name-err")
    page.fill("Name", "Counter")
    page.check("Read only")
    page = page.press("Create key")
    key = page.value("API key")
    assert f"Bearer {key}" in page.value("Test request")
    assert f'"{server.url}/v1/my/' in page.value("Test request")
    key_client = server.client(key)
    page = HtmlPage(user, "/settings/keys")
    assert page.texts("tbody [data-l='Last used']")[0] == "Never"
    assert key_client.get("/contacts").status == 200
    assert key_client.post("/lists", {"name": "x"}).status == 403
    page = page.reload()
    assert key not in page.html
    assert page.texts("tbody [data-l='Last used']")[0] == "just now"
    assert f"…{key[-4:]}" in page.texts("tbody tr")[0]
    assert page.press("Revoke key").has(".toast", "API key “Counter” revoked.")
    assert key_client.get("/contacts").status == 401


def test_inviting_and_disabling_a_user(user: ScriptlessBrowser, browser: Browser, server: Server, api: Client) -> None:
    """The link of an invitation leads to name, password and language; disabling ends the sessions, with undo."""
    page = HtmlPage(user, "/settings/team").press("Create invitation link")
    assert page.all("#f-email-err")
    page.fill("Email", "ben@example.org")
    page.check("Author")
    page = page.press("Create invitation link")
    assert page.has("section", "ben@example.org")
    join(browser, server, page.value("Invitation link"))

    ben = ScriptlessBrowser(api, "ben@example.org")
    profile = HtmlPage(ben, "/settings/you")
    profile.fill("Current password", "wrong")
    profile.fill("New password", "short")
    profile = profile.press("Change password")
    assert "not your current password" in text_of(profile.one("#f-old-password-err"))
    assert "at least 10" in text_of(profile.one("#f-new-password-err"))
    profile.fill("Current password", PASSWORD)
    profile.fill("New password", "long and memorable")
    assert profile.press("Change password").has(".toast", "Password changed.")
    assert request_page(server, "POST", "/login", email="ben@example.org", password=PASSWORD)[0] == 422
    assert ben.status("GET", "/campaigns") == 200
    page = HtmlPage(user, "/settings/team").press("Deactivate user")
    assert page.has(".toast", "ben can no longer sign in")
    assert ben.status("GET", "/campaigns") == 303
    assert page.press("Undo").has(".toast", "ben can sign in again")


def join(browser: Browser, server: Server, link: str) -> None:
    """Accept an invitation on a small phone, with a password that is too short at first."""
    problems = Problems()
    problems.allow("422")
    page = new_page(browser, server.url, problems, width=320)
    page.goto(link)
    assert page.evaluate("document.documentElement.scrollWidth") <= 320
    assert find_violations_in_light_and_dark(page) == []
    page.get_by_label("Your name").fill("ben")
    page.get_by_role("button", name="Join the team").click()
    expect(page.locator("#f-password-err")).to_contain_text("at least 10")
    expect(page.get_by_label("Your name")).to_have_value("ben")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Join the team").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("ben")
    page.context.close()
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


@pytest.mark.full
def test_tabs_of_the_settings(page: Page) -> None:
    """Each tab is marked on its page, which fits a phone."""
    page.set_viewport_size({"width": 320, "height": 700})
    for tab in TABS:
        page.goto(f"/settings{tab}")
        expect(page.locator('nav[aria-label="Settings"] [aria-current]')).to_have_count(1)
        assert page.evaluate("document.documentElement.scrollWidth") <= 320, tab
    page.set_viewport_size({"width": 1280, "height": 800})
