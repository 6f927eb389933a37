"""Who is signed out, offline or refused in the middle of something loses nothing that they typed, and is told why."""

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.api.test_threats_pages import Visitor
from tests.kit.browser import Problems, new_page, sign_in
from tests.kit.client import Client
from tests.kit.server import EMAIL, PASSWORD, Server


@pytest.fixture(scope="module")
def contact(api: Client) -> int:
    """Somebody who is being edited."""
    return int(api.post("/contacts", {"email": "a@example.org", "first_name": "Ann"}).expect(201)["id"])


def _back(page: Page, stays: bool = False) -> None:
    """Sign in in the dialog that stands over the page, and comes back where it asked for something before."""
    box = page.get_by_role("dialog").filter(has_text="You were signed out")
    box.get_by_label("Email").fill(EMAIL)
    box.get_by_label("Password").fill(PASSWORD)
    box.get_by_label("Password").press("Enter")
    expect(page.get_by_text("You were signed out")).to_have_count(0)
    expect(page.get_by_role("dialog")).to_have_count(1 if stays else 0)


def _break(route: Route) -> None:
    """Return as the server does in whose code something broke."""
    headers = {"hx-retarget": "#dialog", "hx-reswap": "innerHTML", "content-type": "text/html"}
    words = "<div data-trouble><h2>Something broke</h2><button commandfor=dialog command=close>Back</button></div>"
    route.fulfill(status=500, headers=headers, body=words)


def test_nothing_typed_is_lost(server: Server, api: Client, contact: int, browser: Browser) -> None:
    """Signed out: one signs in over the page, and goes on; offline and a server that broke are told on it."""
    campaign = api.post("/campaigns", {"name": "Letter"}).expect(201)["id"]
    design = {"sections": [{"id": "s1", "type": "heading", "props": {"text": "Hi"}}]}
    template = api.post("/templates", {"name": "T", "design": design}).expect(201)["id"]
    problems = Problems()
    problems.allow("ViewTransition|status of 401|ERR_INTERNET_DISCONNECTED|Failed to fetch|status of 500")
    page = sign_in(new_page(browser, server.url, problems))
    page.goto(f"/contacts/{contact}/edit")
    name, save = page.get_by_label("First name"), page.get_by_role("button", name="Save").first
    name.fill("Anna Maria")
    page.context.set_offline(True)
    save.click()
    expect(page.get_by_role("alert")).to_contain_text("No answer from the server")
    page.context.set_offline(False)
    page.route(f"**/contacts/{contact}", _break, times=1)
    save.click()
    page.get_by_role("dialog").get_by_text("Back").click()
    page.context.clear_cookies()
    save.click()
    _back(page)
    expect(name).to_have_value("Anna Maria")
    save.click()
    page.wait_for_url(f"**/contacts/{contact}")
    assert api.get(f"/contacts/{contact}").json["first_name"] == "Anna Maria"

    page.goto(f"/campaigns/{campaign}?open=from")
    page.context.clear_cookies()
    page.get_by_label("Subject", exact=True).fill("Autumn")
    _back(page)
    api.wait(f"/campaigns/{campaign}", lambda row: row["template"]["subject"] == "Autumn")
    page.get_by_role("link", name="Send test").click()
    to, send = page.get_by_label("To", exact=True), page.get_by_role("button", name="Send test")
    to.fill("ann@")
    page.route("**/test", _break, times=1)
    send.click()
    page.get_by_role("dialog").get_by_text("Back").click()
    expect(to).to_have_value("ann@")
    expect(send).to_be_focused()
    page.context.clear_cookies()
    send.click()
    _back(page, stays=True)
    expect(to).to_have_value("ann@")
    send.click()
    expect(page.get_by_role("dialog")).to_contain_text("ann@ is not an address")

    with page.expect_response("**/presence"):
        page.goto(f"/templates/{template}/edit?s=s1")
    page.context.clear_cookies()
    page.locator("#inspector").get_by_role("textbox").first.fill("Hello again")
    _back(page)
    api.wait(f"/templates/{template}", lambda row: "Hello again" in str(row["design"]))
    page.context.close()
    assert problems.found == []


def test_who_signs_in_is_not_asked_anew_meanwhile(api: Client, server: Server, browser: Browser) -> None:
    """What else is refused keeps its hands off the question somebody answers, and is saved with the rest afterwards."""
    campaign = api.post("/campaigns", {"name": "Letter"}).expect(201)["id"]
    problems = Problems()
    problems.allow("ViewTransition|status of 401")
    page = sign_in(new_page(browser, server.url, problems))
    page.goto(f"/campaigns/{campaign}?open=from")
    page.context.clear_cookies()
    page.get_by_label("Subject", exact=True).fill("Autumn")
    box = page.get_by_role("dialog")
    box.get_by_label("Email").fill(EMAIL)
    with page.expect_response(lambda answer: answer.status == 401):
        page.locator("#card-from form").dispatch_event("change", {"bubbles": True})
    page.wait_for_timeout(200)
    expect(box.get_by_label("Email")).to_have_value(EMAIL)
    box.get_by_label("Password").fill("wrong horse battery")
    box.get_by_label("Password").press("Enter")
    expect(box.get_by_role("alert")).to_be_visible()
    box.get_by_label("Password").fill(PASSWORD)
    box.get_by_label("Password").press("Enter")
    expect(box).to_have_count(0)
    api.wait(f"/campaigns/{campaign}", lambda row: row["template"]["subject"] == "Autumn")
    expect(page.locator("#saved-text")).not_to_contain_text("Not")
    page.context.close()
    assert problems.found == []


def test_the_drawer_waits_until_somebody_signed_in(api: Client, server: Server, browser: Browser) -> None:
    """The question is the page's own; the link works afterwards."""
    design = {"sections": [{"id": "s1", "type": "heading", "props": {"text": "Hi"}}]}
    template = api.post("/templates", {"name": "Drawn", "design": design}).expect(201)["id"]
    problems = Problems()
    problems.allow("ViewTransition|status of 401")
    page = sign_in(new_page(browser, server.url, problems))
    with page.expect_response("**/presence"):
        page.goto(f"/templates/{template}/edit?s=s1")
    page.context.clear_cookies()
    page.get_by_role("button", name="More").first.click()
    page.get_by_role("link", name="History").click()
    _back(page)
    page.get_by_role("button", name="More").first.click()
    page.get_by_role("link", name="History").click()
    expect(page.locator("#drawer")).to_contain_text("History")
    page.context.close()
    assert problems.found == []


def test_the_menu_of_merge_tags_asks_who_it_is(api: Client, server: Server, browser: Browser) -> None:
    """Nothing of the sign-in page lands in the page; signed in again, the menu opens."""
    campaign = api.post("/campaigns", {"name": "Letter"}).expect(201)["id"]
    problems = Problems()
    problems.allow("ViewTransition|status of 401")
    page = sign_in(new_page(browser, server.url, problems))
    page.goto(f"/campaigns/{campaign}?open=from")
    page.context.clear_cookies()
    pick = page.get_by_role("button", name="Insert a merge tag").first
    pick.click()
    _back(page)
    pick.click()
    expect(page.get_by_label("Find a merge tag")).to_be_visible()
    page.context.close()
    assert problems.found == []


def test_a_form_without_javascript_comes_back(server: Server, contact: int) -> None:
    """A plain form that was sent without a session is carried through sign-in, without what is secret in it."""
    owner = Visitor(server, EMAIL)
    good, owner.cookie = owner.cookie, ""
    typed = {"first_name": 'Anna "M"', "list_ids": ["1", "2"], "smtp_password": "hush hush"}
    asked = owner.send("POST", f"/contacts/{contact}", typed)
    assert asked.status == 401 and "hush hush" not in asked.text and "You were signed out" in asked.text
    text = '[["first_name","Anna \\"M\\""],["list_ids","1"],["list_ids","2"]]'
    form = {"email": EMAIL, "password": PASSWORD, "path": f"/contacts/{contact}", "typed": text, "next": "/contacts"}
    back = owner.send("POST", "/login", form)
    assert back.status == 200 and "set-cookie" in back.headers
    assert f'action="/contacts/{contact}"' in back.text and 'value="Anna &#34;M&#34;"' in back.text
    assert back.text.count('name="list_ids"') == 2
    for path, told in (("https://x.example/", "[]"), ("//x.example", text), ("/contacts", '{"a":1}')):
        assert "x.example" not in owner.send("POST", "/login", form | {"path": path, "typed": told}).text
    owner.cookie = good


def test_a_refusal_does_not_take_the_page_away(server: Server) -> None:
    """What a part cannot do is told in the page's dialog, in words."""
    owner = Visitor(server, EMAIL)
    headers = {"Cookie": owner.cookie, "Sec-Fetch-Site": "same-origin", "HX-Request": "true", "HX-Target": "form#x"}
    answer = owner.api.request("POST", "/segments/987654321", b"", headers)
    assert (answer.status, answer.headers["hx-retarget"]) == (404, "#dialog")
    assert "There is nothing here" in answer.text and "<html" not in answer.text
