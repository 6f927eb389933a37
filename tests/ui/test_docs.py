"""The documentation: open, linked, readable with and without scripts; and the reference under its policy."""

import html
import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.kit.axe import faults
from tests.kit.browser import Problems, new_page, sign_in
from tests.kit.client import Client
from tests.kit.server import Server
from ui.pages import docs

PAGES = ("/docs", "/docs/api", *(f"/docs/guides/{name}" for name in docs.guide_names()))


@pytest.fixture(scope="module")
def visitor(server: Server) -> Client:
    """Somebody without a key or a cookie."""
    return Client(server.url)


@pytest.fixture
def phone(browser: Browser, server: Server) -> Iterator[Page]:
    """A small phone without JavaScript."""
    context = browser.new_context(
        base_url=server.url, java_script_enabled=False, viewport={"width": 320, "height": 700}
    )
    yield context.new_page()
    context.close()


def test_the_pages_are_open_and_hold_to_the_policy(visitor: Client) -> None:
    """Everybody reads them, search engines are asked to stay away, and nothing in them is inline."""
    for path in PAGES:
        answer = visitor.request("GET", path)
        assert (answer.status, answer.headers["x-robots-tag"]) == (200, "noindex"), path
        assert "unsafe" not in answer.headers["content-security-policy"], path
        assert not re.search(r"<style|<script(?! src=)| style=| on\w+=", answer.text), path
    assert visitor.request("GET", "/docs/guides/nothing").status == 404
    assert visitor.request("GET", "/docs/guides/..%2f..%2fview").status == 404


def test_links_within_lead_somewhere(visitor: Client) -> None:
    """Every link of every page leads to a page that is there, and to a heading that is on it."""
    read = {path: visitor.request("GET", path).text for path in PAGES}
    for path, text in read.items():
        links = {html.unescape(one) for one in re.findall(r'<a [^>]*href="([^"]+)"', text)}
        for link in sorted(one for one in links if one.startswith(("#", "/docs"))):
            where, _, spot = link.partition("#")
            if where != "/docs/api/reference":
                assert where in ("", *read), f"{path} -> {link}"
                assert not spot or f'id="{spot}"' in read[where or path], f"{path} -> {link}"


def test_every_guide_is_for_everybody(browser: Browser, server: Server, browser_problems: Problems) -> None:
    """No guide breaks WCAG 2.2 AA as far as a machine can tell, in light and in dark."""
    page = new_page(browser, server.url, browser_problems)
    for number, path in enumerate(PAGES):
        page.emulate_media(color_scheme="dark" if number % 2 else "light", reduced_motion="reduce")
        page.goto(path)
        assert faults(page) == [], path
    page.context.close()
    assert browser_problems.found == []


def test_guides_fit_a_small_phone(phone: Page) -> None:
    """At 320 pixels and without scripts nothing scrolls sideways: the widest things break into lines."""
    for path in PAGES:
        phone.goto(path)
        widest = phone.locator("body").bounding_box()
        last = phone.locator(".text").bounding_box()
        assert widest and last and widest["width"] <= 320 and last["width"] <= 320, path
        beyond = [box for one in phone.locator(".text table, .text pre").all() if (box := one.bounding_box())]
        assert all(box["x"] + box["width"] <= 320 for box in beyond), path


def test_the_product_leads_to_it(browser_page: Page) -> None:
    """The sidebar and the page of keys have a link; code is copied by its button."""
    browser_page.goto("/settings/keys")
    expect(browser_page.get_by_role("link", name="keys and scopes")).to_have_attribute(
        "href", "/docs/guides/authentication"
    )
    browser_page.get_by_role("link", name="Documentation").first.click()
    expect(browser_page.get_by_role("heading", level=1)).to_have_text("Documentation")
    browser_page.get_by_role("link", name="Send your first email").first.click()
    browser_page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    browser_page.get_by_role("button", name="Copy").first.click()
    assert browser_page.evaluate("navigator.clipboard.readText()").startswith("export KEY=")


def test_refusals_lead_to_what_explains_them(api: Client) -> None:
    """The hint of an error is the address of the guide, at the code."""
    for answer, code in ((api.get("/contacts/999999"), "not_found"), (api.post("/lists", {}), "validation_error")):
        where, _, spot = answer.json["hint"].partition("#")
        page = api.request("GET", where.removeprefix(f"http://{api.host}"))
        assert spot == code and f'<h3 id="{code}">' in page.text


def test_the_reference_draws_every_operation(browser: Browser, server: Server, browser_problems: Problems) -> None:
    """The renderer shows all of the document, without one complaint; and where somebody is signed in it has no origin,
    no cookie, no storage, and may ask nobody for anything."""
    page = sign_in(new_page(browser, server.url, browser_problems))
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto("/docs/api/reference#post-/v1/my/campaigns", wait_until="commit")
    shown = page.locator(".main-content")
    expect(shown.get_by_text("campaigns:write").first).to_be_visible(timeout=60_000)
    # A word out of several is a string, and what may be null says so in its own line
    expect(shown.locator("tr, .tr").filter(has_text="scheduled_at").first).to_contain_text("null")
    expect(shown).not_to_contain_text("missing-type-info")
    document = server.client().contract().document
    told = {(method, path) for path, methods in document["paths"].items() for method in methods}
    drawn = page.evaluate(
        "document.querySelector('rapi-doc').resolvedSpec.tags.flatMap(t => t.paths.map(p => [p.method, p.path]))"
    )
    assert {tuple(one) for one in drawn} == told | {("post", name) for name in document["webhooks"]}
    assert all(url.startswith(server.url + "/") for url in asked) and len(asked) < 12
    assert browser_problems.found == []
    browser_problems.allow("policy: connect-src|Content Security Policy|Refused to connect|Fetch API cannot load")
    tried = """async () => {
      const held = (act) => { try { return act() || 'nothing' } catch (error) { return error.name } };
      const asked = await fetch('/settings').then(() => 'answered', (error) => error.name);
      return [origin, held(() => document.cookie), held(() => localStorage.length), asked];
    }"""
    assert page.evaluate(tried) == ["null", "SecurityError", "SecurityError", "TypeError"]
    # Two landmarks of the renderer share a name, which nobody but its authors can change
    assert [one for one in faults(page) if not one.startswith("landmark-unique")] == []
    page.context.close()
    assert browser_problems.found == []
