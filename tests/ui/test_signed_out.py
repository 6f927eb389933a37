"""Being signed out, offline or rejected while working: typed text is kept, and the page says what happened."""

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.api.test_threats_pages import Visitor
from tests.kit.browser import Problems, new_page, sign_in
from tests.kit.client import Client
from tests.kit.server import EMAIL, PASSWORD, Server


@pytest.fixture(scope="module")
def contact(api: Client) -> int:
    """The id of a contact."""
    return int(api.post("/contacts", {"email": "a@example.org", "first_name": "Ann"}).expect(201)["id"])


def _sign_in_dialog(page: Page, stays: bool = False) -> None:
    """Sign in in the dialog over the page; with `stays`, another dialog is open afterwards."""
    box = page.get_by_role("dialog").filter(has_text="You were signed out")
    box.get_by_label("Email").fill(EMAIL)
    box.get_by_label("Password").fill(PASSWORD)
    box.get_by_label("Password").press("Enter")
    expect(page.get_by_text("You were signed out")).to_have_count(0)
    expect(page.get_by_role("dialog")).to_have_count(1 if stays else 0)


def _respond_500(route: Route) -> None:
    """Respond with the error page of a server fault."""
    headers = {"hx-retarget": "#dialog", "hx-reswap": "innerHTML", "content-type": "text/html"}
    body = "<div data-trouble><h2>Something broke</h2><button commandfor=dialog command=close>Back</button></div>"
    route.fulfill(status=500, headers=headers, body=body)


def test_typed_text_survives_errors_and_sign_in(server: Server, api: Client, contact: int, browser: Browser) -> None:
    """Forms, dialogs and the editor keep typed text while offline, after a server error and after signing in again."""
    campaign_id = api.post("/campaigns", {"name": "Letter"}).expect(201)["id"]
    design = {"sections": [{"id": "s1", "type": "heading", "props": {"text": "Hi"}}]}
    template_id = api.post("/templates", {"name": "T", "design": design}).expect(201)["id"]
    problems = Problems()
    problems.allow("ViewTransition|status of 401|ERR_INTERNET_DISCONNECTED|Failed to fetch|status of 500")
    page = sign_in(new_page(browser, server.url, problems))
    page.goto(f"/contacts/{contact}/edit")
    name, save = page.get_by_label("First name"), page.get_by_role("button", name="Save").first
    name.fill("Anna Maria")
    page.context.set_offline(True)
    save.click()
    expect(page.get_by_role("alert")).to_contain_text("No response from the server")
    page.context.set_offline(False)
    page.route(f"**/contacts/{contact}", _respond_500, times=1)
    save.click()
    page.get_by_role("dialog").get_by_text("Back").click()
    page.context.clear_cookies()
    save.click()
    _sign_in_dialog(page)
    expect(name).to_have_value("Anna Maria")
    save.click()
    page.wait_for_url(f"**/contacts/{contact}")
    assert api.get(f"/contacts/{contact}").json["first_name"] == "Anna Maria"

    page.goto(f"/campaigns/{campaign_id}?open=from")
    page.context.clear_cookies()
    page.get_by_label("Subject", exact=True).fill("Autumn")
    _sign_in_dialog(page)
    api.wait(f"/campaigns/{campaign_id}", lambda row: row["template"]["subject"] == "Autumn")
    page.get_by_role("link", name="Send test email").click()
    to, send = page.get_by_label("To", exact=True), page.get_by_role("button", name="Send test email")
    to.fill("ann@")
    page.route("**/test", _respond_500, times=1)
    send.click()
    page.get_by_role("dialog").get_by_text("Back").click()
    expect(to).to_have_value("ann@")
    expect(send).to_be_focused()
    page.context.clear_cookies()
    send.click()
    _sign_in_dialog(page, stays=True)
    expect(to).to_have_value("ann@")
    send.click()
    expect(page.get_by_role("dialog")).to_contain_text(
        "Invalid email addresses: ann@. Use the format name@example.com."
    )

    with page.expect_response("**/presence"):
        page.goto(f"/templates/{template_id}/edit?s=s1")
    page.context.clear_cookies()
    page.locator("#inspector").get_by_role("textbox").first.fill("Hello again")
    _sign_in_dialog(page)
    api.wait(f"/templates/{template_id}", lambda row: "Hello again" in str(row["design"]))
    page.context.close()
    assert problems.found == []


@pytest.mark.full
def test_the_sign_in_dialog_is_not_replaced(api: Client, server: Server, browser: Browser) -> None:
    """Further rejected requests do not replace the open dialog, and all changes are saved after signing in."""
    campaign_id = api.post("/campaigns", {"name": "Letter"}).expect(201)["id"]
    problems = Problems()
    problems.allow("ViewTransition|status of 401")
    page = sign_in(new_page(browser, server.url, problems))
    page.goto(f"/campaigns/{campaign_id}?open=from")
    page.context.clear_cookies()
    page.get_by_label("Subject", exact=True).fill("Autumn")
    box = page.get_by_role("dialog")
    box.get_by_label("Email").fill(EMAIL)
    with page.expect_response(lambda response: response.status == 401):
        page.locator("#card-from form").dispatch_event("change", {"bubbles": True})
    page.wait_for_timeout(200)
    expect(box.get_by_label("Email")).to_have_value(EMAIL)
    box.get_by_label("Password").fill("wrong horse battery")
    box.get_by_label("Password").press("Enter")
    expect(box.get_by_role("alert")).to_be_visible()
    box.get_by_label("Password").fill(PASSWORD)
    box.get_by_label("Password").press("Enter")
    expect(box).to_have_count(0)
    api.wait(f"/campaigns/{campaign_id}", lambda row: row["template"]["subject"] == "Autumn")
    expect(page.locator("#saved-text")).not_to_contain_text("Not")
    page.context.close()
    assert problems.found == []


@pytest.mark.full
def test_a_drawer_after_being_signed_out(api: Client, server: Server, browser: Browser) -> None:
    """A drawer's link opens the sign-in dialog, and works after signing in."""
    design = {"sections": [{"id": "s1", "type": "heading", "props": {"text": "Hi"}}]}
    template_id = api.post("/templates", {"name": "Drawn", "design": design}).expect(201)["id"]
    problems = Problems()
    problems.allow("ViewTransition|status of 401")
    page = sign_in(new_page(browser, server.url, problems))
    with page.expect_response("**/presence"):
        page.goto(f"/templates/{template_id}/edit?s=s1")
    page.context.clear_cookies()
    page.get_by_role("button", name="More").first.click()
    page.get_by_role("link", name="History").click()
    _sign_in_dialog(page)
    page.get_by_role("button", name="More").first.click()
    page.get_by_role("link", name="History").click()
    expect(page.locator("#drawer")).to_contain_text("History")
    page.context.close()
    assert problems.found == []


@pytest.mark.full
def test_the_merge_tag_menu_after_being_signed_out(api: Client, server: Server, browser: Browser) -> None:
    """The menu opens the sign-in dialog, and works after signing in."""
    campaign_id = api.post("/campaigns", {"name": "Letter"}).expect(201)["id"]
    problems = Problems()
    problems.allow("ViewTransition|status of 401")
    page = sign_in(new_page(browser, server.url, problems))
    page.goto(f"/campaigns/{campaign_id}?open=from")
    page.context.clear_cookies()
    pick = page.get_by_role("button", name="Insert merge tag").first
    pick.click()
    _sign_in_dialog(page)
    pick.click()
    expect(page.get_by_label("Search merge tags")).to_be_visible()
    page.context.close()
    assert problems.found == []


def test_a_form_is_restored_after_sign_in(server: Server, contact: int) -> None:
    """Without JavaScript a form's values are carried through the sign-in, except secrets; forged ones are ignored."""
    owner = Visitor(server, EMAIL)
    session, owner.cookie = owner.cookie, ""
    typed = {"first_name": 'Anna "M"', "list_ids": ["1", "2"], "smtp_password": "hush hush"}
    sign_in_page = owner.send("POST", f"/contacts/{contact}", typed)
    assert (
        sign_in_page.status == 401
        and "hush hush" not in sign_in_page.text
        and "You were signed out" in sign_in_page.text
    )
    text = '[["first_name","Anna \\"M\\""],["list_ids","1"],["list_ids","2"]]'
    form = {"email": EMAIL, "password": PASSWORD, "path": f"/contacts/{contact}", "typed": text, "next": "/contacts"}
    restored = owner.send("POST", "/login", form)
    assert restored.status == 200 and "set-cookie" in restored.headers
    assert f'action="/contacts/{contact}"' in restored.text and 'value="Anna &#34;M&#34;"' in restored.text
    assert restored.text.count('name="list_ids"') == 2
    for path, forged in (("https://x.example/", "[]"), ("//x.example", text), ("/contacts", '{"a":1}')):
        assert "x.example" not in owner.send("POST", "/login", form | {"path": path, "typed": forged}).text
    owner.cookie = session


def test_errors_of_partial_requests_open_a_dialog(server: Server) -> None:
    """An error of an htmx request is shown in the page's dialog."""
    owner = Visitor(server, EMAIL)
    headers = {"Cookie": owner.cookie, "Sec-Fetch-Site": "same-origin", "HX-Request": "true", "HX-Target": "form#x"}
    response = owner.api.request("POST", "/segments/987654321", b"", headers)
    assert (response.status, response.headers["hx-retarget"]) == (404, "#dialog")
    assert "It may have been deleted" in response.text and "<html" not in response.text


@pytest.mark.full
def test_the_banner_says_what_is_not_saved(api: Client, server: Server, browser: Browser) -> None:
    """While offline a banner says so and leaving warns; both end when the changes are saved."""
    campaign_id = api.post("/campaigns", {"name": "Letter"}).expect(201)["id"]
    problems = Problems()
    problems.allow("ViewTransition|ERR_INTERNET_DISCONNECTED|Failed to fetch")
    page = sign_in(new_page(browser, server.url, problems))
    page.goto(f"/campaigns/{campaign_id}?open=from")
    banner = page.locator("#connection")
    expect(banner).to_have_count(0)
    page.context.set_offline(True)
    expect(banner).to_contain_text("You are offline")
    page.get_by_label("Subject", exact=True).fill("Autumn")
    expect(page.locator("#saved-text")).to_contain_text("Not saved")
    blocked = "!dispatchEvent(new Event('beforeunload', { cancelable: true }))"
    assert page.evaluate(blocked)
    page.context.set_offline(False)
    expect(banner).to_have_count(0)
    api.wait(f"/campaigns/{campaign_id}", lambda row: row["template"]["subject"] == "Autumn")
    expect(page.locator("#saved-text")).not_to_contain_text("Not")
    assert not page.evaluate(blocked)

    page.goto("/settings/you")
    name = page.get_by_label("Name shown to your team")
    name.fill("Ana")
    page.context.set_offline(True)
    page.get_by_role("button", name="Save", exact=True).click()
    note = page.get_by_role("alert")
    expect(note).to_contain_text("No response from the server")
    expect(name).to_have_value("Ana")
    assert page.evaluate(blocked)
    page.context.set_offline(False)
    expect(note).to_contain_text("The connection is back", timeout=10_000)
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.locator(".toast")).to_contain_text("Saved")
    name.fill("owner")
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.locator(".toast")).to_contain_text("Saved")
    page.context.close()
    assert problems.found == []


def test_the_address_is_filled_in_when_the_session_has_ended(server: Server) -> None:
    """The sign-in page and dialog know the user's address until the user signs out; another browser does not."""
    client = Client(server.url, validate=False)
    form = {"Content-Type": "application/x-www-form-urlencoded", "Sec-Fetch-Site": "same-origin"}
    response = client.request("POST", "/login", f"email={EMAIL}&password={PASSWORD}".encode(), form)
    cookies = [value.partition(";")[0] for value in response.headers.get_all("Set-Cookie")]
    remembered = next(value for value in cookies if value.startswith("email="))
    shown = f'value="{EMAIL}"'
    assert shown in client.request("GET", "/login?next=/lists", headers={"Cookie": remembered}).text
    dialog = client.request("GET", "/lists", headers={"Cookie": remembered, "HX-Request": "true"})
    assert dialog.status == 401 and shown in dialog.text
    kept = client.request("POST", "/lists", b"name=Kept", form | {"Cookie": remembered})
    assert kept.status == 401 and shown in kept.text and "Kept" in kept.text
    assert shown not in client.request("GET", "/login").text
    bye = client.request("POST", "/logout", b"", form | {"Cookie": "; ".join(cookies)})
    assert any(value.startswith("email=;") or 'email="";' in value for value in bye.headers.get_all("Set-Cookie"))
