"""Checks of every page: policy, headings, labels, layout, and use without JavaScript."""

import itertools
import re
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, Response, ViewportSize, expect

from appliance.core.i18n import LANGUAGES
from tests.kit.axe import find_violations_in_light_and_dark
from tests.kit.browser import Problems, new_page, new_scriptless_context, sign_in
from tests.kit.client import Client
from tests.kit.html_page import HtmlPage
from tests.kit.pictures import encode_image, photo
from tests.kit.sampling import sampled
from tests.kit.scriptless_browser import ScriptlessBrowser
from tests.kit.server import Server
from tests.kit.uploads import upload_image

MARKUP_NAME = """<i onclick="x" style='y'>"'&{{ 7 * 7 }}"""
BODY = "<h1>Hello {{ first_name }}</h1><p style='color:red' onclick='x()'>News.<script>parent.x = 1</script></p>"
# The browser logs that it blocked scripts of an email, which is intended
BLOCKED = "Blocked script execution in .*(/preview|/html)"
PHONE: ViewportSize = {"width": 320, "height": 700}
DESK: ViewportSize = {"width": 1360, "height": 900}
LANGUAGE_TAGS = [code.replace("_", "-") for code in LANGUAGES]
# Runs in the page: collects faults for screen readers and strict policies
INSPECT = """() => ({
  title: document.title, lang: document.documentElement.lang,
  h1: document.querySelectorAll('h1').length,
  inline: document.querySelectorAll('[style], style, script:not([src], [type="application/json"])').length
    + [...document.querySelectorAll('*')].filter(e => e.getAttributeNames().some(n => n.startsWith('on'))).length,
  twice: [...document.querySelectorAll('[id]')].map(e => e.id).filter((id, at, all) => all.indexOf(id) !== at),
  nameless: [...document.querySelectorAll('input, select, textarea, button, a, iframe')].filter(e =>
    !e.matches('[type=hidden], [aria-hidden=true]') &&
    !(e.labels?.length || e.getAttribute('aria-label') || e.textContent.trim() || e.title)).map(e => e.outerHTML),
  lost: [...document.querySelectorAll('[for], [aria-describedby], [aria-labelledby], [popovertarget], [commandfor]')]
    .flatMap(e => ['for', 'aria-describedby', 'aria-labelledby', 'popovertarget', 'commandfor']
    .flatMap(n => (e.getAttribute(n) || '').split(' ').filter(Boolean))).filter(id => !document.getElementById(id)),
  icons: [...document.querySelectorAll('use')].map(e => e.getAttribute('href')),
  primary: document.querySelectorAll('main .btn.primary:not(dialog *)').length,
  links: [...document.querySelectorAll('a[href^="/"]:not([download])')].map(a => a.getAttribute('href')),
})"""


@pytest.fixture(scope="module", autouse=True)
def sample_data(server: Server, api: Client) -> None:
    """Sample data for every page."""
    fill(api)


def fill(api: Client) -> None:
    """Create contacts, lists, a template, a picture, and a draft, a scheduled and a completed campaign."""
    list_ids = [api.post("/lists", {"name": name}).expect(201)["id"] for name in ("Newsletter", "Workshop")]
    api.post(
        "/suppressions", {"address": "gone@example.com", "note": MARKUP_NAME, "diagnostic": MARKUP_NAME * 8}
    ).expect(201)
    for number in range(60):
        body = {
            "first_name": f"Person {number}",
            "email": f"p{number}@example.com",
            "list_ids": list_ids[: 1 + number % 2],
        }
        api.post("/contacts", body).expect(201)
    # Names with markup; the crawl finds any handler
    for path in ("/lists", "/templates", "/campaigns"):
        api.post(path, {"name": MARKUP_NAME}).expect(201)
    api.post(
        "/contacts",
        {"first_name": MARKUP_NAME, "last_name": MARKUP_NAME, "data": {MARKUP_NAME: MARKUP_NAME}, "source": "W" * 240},
    ).expect(201)
    upload_image(api, encode_image(photo(), "PNG")).expect(201)
    api.post("/domains", {"domain": {"name": "bäckerei.example"}}).expect(201)
    api.post("/templates", {"name": "Monthly", "subject": "News", "body": BODY}).expect(201)
    content = {
        "template_attributes": {"subject": "News", "body": BODY},
        "trigger_attributes": {"contact_list_id": list_ids[1]},
    }
    completed_id = api.post("/campaigns", {"name": "Done one", **content}).expect(201)["id"]
    api.post(f"/campaigns/{completed_id}/send").expect(200)
    flow = {"name": MARKUP_NAME, "starter": "welcome", "goal": MARKUP_NAME}
    api.post("/flows", flow).expect(201)
    api.post("/campaigns", {"name": "A draft", **content}).expect(201)
    scheduled_id = api.post("/campaigns", {"name": "Later", "scheduled_at": "2099-01-01T09:00:00Z", **content}).expect(
        201
    )["id"]
    api.post(f"/campaigns/{scheduled_id}/send").expect(200)
    for _ in range(200):
        if api.get(f"/campaigns/{completed_id}").expect(200)["status"] == "completed":
            return
        time.sleep(0.1)
    raise AssertionError("the campaign did not end")


@pytest.fixture(scope="module")
def page(browser: Browser, server: Server) -> Iterator[Page]:
    """A page signed in as the owner; the module fails on any console error."""
    problems = Problems()
    problems.allow(BLOCKED)
    opened = sign_in(new_page(browser, server.url, problems, width=1360))
    yield opened
    opened.context.close()
    assert not problems.found


@pytest.fixture
def no_js_page(browser: Browser, server: Server) -> Iterator[Page]:
    """A page signed in as the owner, without JavaScript."""
    context = new_scriptless_context(browser, server.url)
    yield sign_in(context.new_page())
    context.close()


def crawl(
    page: Page, first_language: int, inspect_response: Callable[[Response], dict[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Visit one page of each kind that links lead to, and return what was collected of each.

    Each page is opened in the language after that of the page before it, and the first in `first_language`.
    """
    # The second page of a table has what the first has, with a fifth of its rows
    waiting = ["/", "/contacts?page=2", "/lists/1?page=2", "/login?next=/", "/campaigns/3/send", "/contacts/61"]
    waiting += ["/inbox/1?view=headers", "/nowhere"]
    seen: dict[str, dict[str, Any]] = {}
    while waiting:
        path = waiting.pop(0)
        kind = re.sub(r"\d+|(?<=/guides/)[\w-]+", "1", re.split("[?#]", path)[0])
        if kind in seen or re.search(r"/(preview|html)$", path) or kind == "/docs/api/reference":
            continue
        tag = LANGUAGE_TAGS[(first_language + len(seen)) % len(LANGUAGE_TAGS)]
        page.context.set_extra_http_headers({"Accept-Language": tag})
        response = page.goto(path)
        assert response is not None
        seen[kind] = {"tag": tag} | page.evaluate(INSPECT) | inspect_response(response)
        waiting += seen[kind]["links"]
    return seen


@pytest.mark.parametrize("first_language", sampled(range(len(LANGUAGE_TAGS)), [0]))
def test_every_page(page: Page, browser: Browser, server: Server, first_language: int, full: bool) -> None:
    """Each page has a strict policy, a title, one heading, labels, unique ids and one primary button at most.

    It is accessible and does not scroll sideways on the smallest phone; most pages are measured in
    `test_made_up_languages`, with longer texts, and here with `--full`. The navigation is checked on the pages that it
    links to, because it is the same on those below them. Each page is checked in one of the languages in turn, and in
    all of them with `--full`. The sizes of targets and the contrast in dark mode are half of the work: they are
    checked on every sixth page, and on all of them with `--full`.
    """
    problems = Problems()
    problems.allow("404")
    problems.allow(BLOCKED)
    crawler = sign_in(new_page(browser, server.url, problems, width=1360))
    numbers = itertools.count()

    def inspect_response(response: Response) -> dict[str, Any]:
        in_navigation = crawler.locator(".side nav a").evaluate_all("links => links.map(link => link.pathname)")
        is_linked = urlsplit(response.url).path in in_navigation
        collected = {
            "status": response.status,
            "headers": response.headers,
            "axe": find_violations_in_light_and_dark(
                crawler, is_complete=full or next(numbers) % 6 == 0, with_navigation=is_linked
            ),
        }
        if full or re.match(r"/docs/|/login|/nowhere", urlsplit(response.url).path):
            crawler.set_viewport_size(PHONE)
            collected["on_phone"] = crawler.evaluate("document.documentElement.scrollWidth")
            crawler.set_viewport_size(DESK)
        return collected

    seen = crawl(crawler, first_language, inspect_response)
    sprite = crawler.request.get(next(iter(seen["/"]["icons"])).partition("#")[0]).text()
    symbols = set(re.findall(r'id="([^"]+)"', sprite))
    crawler.context.close()
    assert problems.found == []
    assert len(seen) >= 20, sorted(seen)
    assert {(kind, page_data["tag"]): page_data["axe"] for kind, page_data in seen.items() if page_data["axe"]} == {}
    assert {
        (kind, page_data["tag"]): page_data["on_phone"]
        for kind, page_data in seen.items()
        if page_data.get("on_phone", 0) > PHONE["width"]
    } == {}
    assert len([kind for kind, page_data in seen.items() if "on_phone" in page_data]) >= 3
    for kind, page_data in seen.items():
        assert page_data["status"] == (404 if kind == "/nowhere" else 200), kind
        assert page_data["lang"] == page_data["tag"], kind
        assert page_data["title"].endswith("· Campanero"), kind
        assert page_data["h1"] == 1, kind
        assert (page_data["inline"], page_data["twice"], page_data["nameless"], page_data["lost"]) == (0, [], [], []), (
            kind
        )
        assert {href.partition("#")[2] for href in page_data["icons"]} <= symbols, kind
        assert page_data["primary"] <= 1, kind
        policy = page_data["headers"]["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy, kind
        assert page_data["headers"]["x-content-type-options"] == "nosniff", kind
        assert page_data["headers"]["referrer-policy"] == "same-origin", kind
        assert page_data["headers"]["cache-control"] == "no-store", kind


def test_the_tab_bar_of_a_phone(page: Page) -> None:
    """The More menu links to pages that the bar has no space for."""
    page.set_viewport_size(PHONE)
    page.goto("/")
    page.get_by_role("button", name="More").click()
    page.get_by_role("link", name="Activity").last.click()
    expect(page).to_have_url(re.compile("/activity$"))
    page.set_viewport_size(DESK)


def test_a_rejected_form_keeps_its_values(page: Page) -> None:
    """A 422 returns the form with all values and the error at its field, which has the focus."""
    page.goto("/contacts/1/edit")
    page.get_by_label("First name").fill("Anna")
    page.get_by_label("Email").fill("not an address")
    page.get_by_label("Workshop").check()
    page.get_by_role("button", name="Save").click()
    field = page.get_by_label("Email")
    expect(field).to_have_attribute("aria-invalid", "true")
    expect(field).to_be_focused()
    expect(field).to_have_value("not an address")
    expect(page.get_by_label("First name")).to_have_value("Anna")
    expect(page.get_by_label("Workshop")).to_be_checked()
    described = field.get_attribute("aria-describedby") or ""
    expect(page.locator(f"#{described.split()[-1]}")).to_contain_text("Enter an email address like")
    field.fill("anna@example.com")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Anna")


@pytest.mark.full
def test_errors_in_the_composer(page: Page) -> None:
    """A card that cannot be saved shows why and keeps its values; the next valid value saves it."""
    page.goto("/campaigns/3?open=from")
    page.get_by_label("From address").fill("nonsense")
    expect(page.locator("#f-from-email-err")).to_contain_text("Enter an email address like")
    expect(page.locator("#saved")).to_contain_text("Not saved yet")
    page.get_by_label("From address").fill("ana@example.com")
    expect(page.locator("#f-from-email-err")).to_have_count(0)
    expect(page.locator("#saved")).to_contain_text(re.compile(r"Saved \d\d:\d\d"))
    page.locator("#card-when summary").click()
    page.get_by_text("Schedule for later").click()
    page.get_by_label("Date").fill("2020-01-01")
    expect(page.locator("#f-day-err")).to_contain_text("in the future")
    page.get_by_text("Send immediately").click()
    expect(page.locator("#f-day-err")).to_have_count(0)


def test_a_changed_audience_needs_a_new_confirmation(page: Page, api: Client) -> None:
    """If the audience changes while the dialog is open, nothing is sent and the new number must be confirmed."""
    page.goto("/campaigns/3")
    page.get_by_role("link", name="Review and send").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text(re.compile(r"Send to \d+ contacts\?"))
    number = int(re.findall(r"Send to (\d+) contacts\?", dialog.inner_text())[0])
    api.post("/contacts", {"email": "new@example.com", "list_ids": [2]}).expect(201)
    dialog.get_by_role("button", name=f"Send to {number} contacts").click()
    expect(dialog.get_by_role("alert")).to_contain_text(f"It now has {number + 1} contacts")
    expect(dialog.get_by_role("button", name=f"Send to {number + 1} contacts")).to_be_visible()
    assert api.get("/campaigns/3").expect(200)["status"] == "draft"
    dialog.get_by_role("link", name="Keep editing").click()
    expect(page.locator("#composer")).to_be_visible()


def test_a_scheduled_campaign_goes_back_to_draft(user: ScriptlessBrowser) -> None:
    """A scheduled campaign can become a draft again."""
    page = HtmlPage(user, "/campaigns/4")
    assert page.has("h2", "Scheduled for") and page.has("h2", "2099")
    assert page.press("Unschedule").all("#composer")


def test_pages_without_javascript(user: ScriptlessBrowser) -> None:
    """Search, adding, errors, undo, reports and emails work with plain links and forms."""
    page = HtmlPage(user, "/contacts")
    search = page.field("Search contacts")
    search.set("value", "p59@")
    assert len(page.press(search).all("tbody tr")) == 1
    page = HtmlPage(user, "/lists").follow("New list").press("Create list")
    assert page.texts("#f-name-err") == ["Enter a name for the list, for example Newsletter."]
    page.fill("Name", "Waiting list")
    page = page.press("Create list").follow("Add contacts")
    for box in page.all("input[name=contact_ids]"):
        if re.search("Person 5[89]", page.name_of(box)):
            box.set("checked", "")
    page = page.press("Add selected contacts")
    assert len(page.all("tbody tr")) == 2
    page.check("Select Person 59")
    page = page.press("Remove from list")
    assert len(page.all("tbody tr")) == 1
    assert len(page.press("Undo").all("tbody tr")) == 2
    assert HtmlPage(user, "/campaigns/2").has("main", "Sent to 30 contacts")
    assert HtmlPage(user, "/inbox/1").has("#mail .titled h2", "News")
    page = HtmlPage(user, "/campaigns/3?open=from")
    page.fill("Subject", "Without a script")
    assert page.press(page.all("#card-from button", "Save")[0]).has("#side", "Without a script")
    page = HtmlPage(user, "/settings")
    page.fill("Name", "")
    assert page.press("Save").texts("#f-name-err") == ["Enter an account name."]


def test_links_and_forms_work_in_a_browser_without_javascript(no_js_page: Page) -> None:
    """What a person needs is visible and can be clicked in Chromium without scripts."""
    no_js_page.goto("/contacts")
    no_js_page.get_by_label("Search contacts").fill("p59@")
    no_js_page.get_by_label("Search contacts").press("Enter")
    expect(no_js_page.locator("tbody tr")).to_have_count(1)
    no_js_page.get_by_label("Select Person 59").check()
    no_js_page.get_by_role("button", name="Delete", exact=True).click()
    expect(no_js_page.get_by_role("button", name="Delete 1 contact")).to_be_visible()
    no_js_page.goto("/campaigns/3?open=from")
    no_js_page.get_by_label("Subject").fill("Without a script, too")
    no_js_page.locator("#card-from").get_by_role("button", name="Save", exact=True).click()
    expect(no_js_page.locator("#side")).to_contain_text("Without a script, too")


def test_the_theme_is_rendered_by_the_server(page: Page) -> None:
    """The chosen theme is in the HTML, so that pages do not flash."""
    page.goto("/brand")
    page.get_by_role("button", name=re.compile("owner@example.com")).click()
    page.get_by_role("button", name="Dark").first.click()
    expect(page).to_have_url(re.compile("/brand$"))
    assert 'data-theme="dark"' in page.request.get("/brand").text()
    expect(page.locator("body")).to_have_css("color-scheme", "dark")
    page.get_by_role("button", name=re.compile("owner@example.com")).click()
    page.get_by_role("button", name="System default").first.click()
    expect(page.locator("html[data-theme]")).to_have_count(0)


def test_emails_are_sandboxed(page: Page) -> None:
    """Emails are shown under a policy with a sandbox and without scripts."""
    page.goto("/inbox/1")
    expect(page.frame_locator("#mail iframe").locator("h1")).to_contain_text("Hello Person")
    page.goto("/campaigns/3?open=content")
    expect(page.frame_locator("#card-content iframe").locator("h1")).to_contain_text("Hello")
    assert page.evaluate("window.x === undefined")
    response = page.request.get("/inbox/1/html")
    policy = response.headers["content-security-policy"]
    assert policy.startswith("sandbox allow-popups ")
    assert "script-src" not in policy and "default-src 'none'" in policy and "frame-ancestors 'self'" in policy
    assert page.request.get("/campaigns/2/preview").headers["content-security-policy"] == policy
    assert page.request.get("/templates/2/preview").headers["content-security-policy"] == policy
