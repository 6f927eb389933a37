"""The documentation pages: public, linked, accessible; and the API reference with its policy."""

import html
import io
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from PIL import Image
from playwright.sync_api import Browser, Page, ViewportSize, expect

from tests.kit.axe import find_violations
from tests.kit.browser import Problems, new_page, sign_in
from tests.kit.client import Client
from tests.kit.html_page import HtmlPage, select, text_of
from tests.kit.sampling import thin_out
from tests.kit.scriptless_browser import ScriptlessBrowser
from tests.kit.server import Server
from ui import documentation

PAGES = ("/docs", "/docs/api", *(f"/docs/guides/{name}" for name in documentation.guide_names()))

HTTP = ("get", "post", "put", "patch", "delete")
DESK: ViewportSize = {"width": 1280, "height": 800}
SMALL_PHONE: ViewportSize = {"width": 320, "height": 700}
# Runs in the page: where it, its text, and each table and code in it end
RIGHT_EDGES = """() => [document.documentElement.scrollWidth,
  ...[...document.querySelectorAll('body, .text, .text table, .text pre')].map(e => e.getBoundingClientRect().right)]"""


@pytest.fixture(scope="module")
def visitor(server: Server) -> Client:
    """An anonymous client."""
    return Client(server.url)


@pytest.fixture
def no_js_phone(browser: Browser, server: Server) -> Iterator[Page]:
    """A small phone without JavaScript."""
    context = browser.new_context(base_url=server.url, java_script_enabled=False, viewport=SMALL_PHONE)
    yield context.new_page()
    context.close()


def test_documentation_pages_are_public(visitor: Client) -> None:
    """Each page is public, `noindex`, and has no inline styles or scripts; unknown guides return 404."""
    for path in PAGES:
        response = visitor.request("GET", path)
        assert (response.status, response.headers["x-robots-tag"]) == (200, "noindex"), path
        assert "unsafe" not in response.headers["content-security-policy"], path
        assert not re.search(r"<style|<script(?! src=)| style=| on\w+=", response.text), path
    assert visitor.request("GET", "/docs/guides/nothing").status == 404
    assert visitor.request("GET", "/docs/guides/..%2f..%2fview").status == 404


def test_internal_links_exist(visitor: Client) -> None:
    """Each link leads to an existing page and heading."""
    pages = {path: visitor.request("GET", path).text for path in PAGES}
    for path, text in pages.items():
        links = {html.unescape(link_address) for link_address in re.findall(r'<a [^>]*href="([^"]+)"', text)}
        for link in sorted(link_address for link_address in links if link_address.startswith(("#", "/docs"))):
            target, _, anchor = link.partition("#")
            if target != "/docs/api/reference":
                assert target in ("", *pages), f"{path} -> {link}"
                assert not anchor or f'id="{anchor}"' in pages[target or path], f"{path} -> {link}"


def test_guides_are_accessible_and_fit_a_small_phone(
    browser: Browser, server: Server, browser_problems: Problems, full: bool
) -> None:
    """axe finds no breach of WCAG 2.2 AA, alternating light and dark; at 320 pixels no page scrolls sideways.

    Every fourth page is opened, and axe checks every twelfth; with `--full` all of them: guides have the same elements
    in another order. The tests below read some of them on a phone without JavaScript.
    """
    page = new_page(browser, server.url, browser_problems)
    page.set_viewport_size(SMALL_PHONE)
    for number, path in enumerate(thin_out(PAGES, 4)):
        page.emulate_media(color_scheme="dark" if number % 2 else "light", reduced_motion="reduce")
        page.goto(path)
        right_edges = page.evaluate(RIGHT_EDGES)
        assert len(right_edges) >= 2 and max(right_edges) <= SMALL_PHONE["width"], path
        if full or number % 3 == 0:
            page.set_viewport_size(DESK)
            assert find_violations(page) == [], path
            page.set_viewport_size(SMALL_PHONE)
    page.context.close()
    assert browser_problems.found == []


def test_a_guide_fits_a_small_phone_without_javascript(no_js_phone: Page) -> None:
    """At 320 pixels and without JavaScript a guide with code and tables does not scroll sideways."""
    for path in ("/docs", "/docs/guides/webhooks"):
        no_js_phone.goto(path)
        assert max(no_js_phone.evaluate(RIGHT_EDGES)) <= SMALL_PHONE["width"], path


def test_pages_are_small(visitor: Client) -> None:
    """A page without its pictures has at most 60 KB, and loads the pictures when they come into view."""
    for path in PAGES:
        text = visitor.request("GET", path).text
        assert len(text.encode()) <= 60_000, path
        assert all('loading="lazy"' in image for image in re.findall(r"<img [^>]*>", text)), path
        assert not re.search(r'(?:src|href)="https?://(?!127)[^"]*\.(?:css|js|webp|png|svg)"', text), path


def test_pictures_of_a_guide_are_served(visitor: Client) -> None:
    """A picture is a WebP file that browsers keep for a year, with its size in the page."""
    text = visitor.request("GET", "/docs/guides/segments").text
    source, width, height = re.findall(
        r'<img class="shot" src="([^"]+)" alt="[^"]+" width="(\d+)" height="(\d+)"', text
    )[0]
    picture = visitor.request("GET", source, headers={"Accept-Encoding": "gzip"})
    assert picture.headers["content-type"] == "image/webp" and "content-encoding" not in picture.headers
    assert "immutable" in picture.headers["cache-control"]
    with Image.open(io.BytesIO(picture.body)) as image:
        assert abs(image.width - 1.5 * int(width)) <= 1 and abs(image.height - 1.5 * int(height)) <= 1


@pytest.mark.parametrize(("name", "language", "shown"), [
    ("sms", "de", "de"), ("sms", "pt-BR", "pt-BR"), ("sms", "en-GB", "en"), ("backup", "en-GB", "en"),
    ("backup", "de", "en"),
])  # fmt: skip
def test_guides_are_marked_with_their_language(visitor: Client, name: str, language: str, shown: str) -> None:
    """A guide for everyone is in the language of the interface; another says that it is in English only."""
    text = visitor.request("GET", f"/docs/guides/{name}", headers={"Accept-Language": language}).text
    assert f'<main class="text" id="main" tabindex="-1" lang="{shown}" dir="ltr">' in text
    assert (f'<p class="small muted" lang="{language}"' in text) == (shown == "en" and language != "en-GB")


def test_english_guides_are_marked_in_other_languages(visitor: Client) -> None:
    """The overview and the search name the language of each guide that is not in that of the reader."""
    mark = '<span class="tag" lang="de" dir="auto">Englisch</span>'
    english = [name for group in documentation.GROUPS[1:] for name in group.names]
    overview = visitor.request("GET", "/docs", headers={"Accept-Language": "de"}).text
    entries = re.findall(r'<li lang="(..)" dir="ltr"><a href="/docs/guides/([\w-]+)">(.*?)</a>', overview)
    assert [name for language, name, _ in entries if language == "en"] == english
    assert [name for _, name, entry in entries if mark in entry] == english
    assert mark in visitor.request("GET", "/docs?q=reverse+proxy", headers={"Accept-Language": "de"}).text
    assert 'class="tag"' not in visitor.request("GET", "/docs").text


@pytest.mark.parametrize("language", ["de", "ja"])
def test_guides_have_pictures_in_their_language(visitor: Client, language: str) -> None:
    """A translated guide shows the interface in its language, in the size of the English picture or a similar one."""
    text = visitor.request("GET", "/docs/guides/reports", headers={"Accept-Language": language}).text
    pictures = re.findall(r'<img class="shot" src="([^"]+)" alt="[^"]+" width="(\d+)"', text)
    assert pictures and all(f"/guides/{language}/" in source for source, _ in pictures)
    for source, width in pictures:
        with Image.open(io.BytesIO(visitor.request("GET", source).body)) as image:
            assert abs(image.width - 1.25 * int(width)) <= 1


def test_the_list_of_guides_shows_no_markdown(visitor: Client) -> None:
    """A description with code in it is plain text in the list."""
    page = visitor.request("GET", "/docs").text
    assert "utm_source=newsletter" in page
    assert "`" not in page


def test_searching_without_javascript(user: ScriptlessBrowser) -> None:
    """The results name the guide and the heading, mark the match, and lead to the heading."""
    page = HtmlPage(user, "/docs")
    search = page.field("Search the documentation")
    search.set("value", "quiet hours")
    results = page.press(search)
    [best, *_] = results.all(".results li")
    assert text_of(select(best, "b")[0]) == "Set quiet hours"
    assert re.fullmatch("quiet|hours", text_of(select(best, "mark")[0]), re.IGNORECASE)
    assert select(best, "a")[0].attrib["href"] == "/docs/guides/sms#set-quiet-hours"
    nothing = HtmlPage(user, "/docs?q=%3Cb%3Ezzzz")
    assert nothing.has("[role=status]", "No results for “<b>zzzz”")


def test_searching_while_typing(browser_page: Page) -> None:
    """Results appear with the letters, operations of the API among them; without letters the guides are back."""
    page = browser_page
    page.goto("/docs")
    field = page.get_by_label("Search the documentation")
    field.press_sequentially("erase contact")
    expect(page.locator(".results b").first).to_have_text("Erase a contact")
    expect(page).to_have_url(re.compile(r"q=erase"))
    assert find_violations(page) == []
    field.fill("Double-Opt-in")
    expect(page.locator(".results mark").first).to_have_text("double", ignore_case=True)
    field.fill("pause a campaign")
    expect(page.locator(".results a[href^='/docs/api/reference#post-']").first).to_be_visible()
    field.fill("")
    expect(page.get_by_role("heading", name="Running Campanero").first).to_be_visible()
    page.goto("/docs/guides/sms")
    page.get_by_label("Search the documentation").fill("dark mode")
    page.keyboard.press("Enter")
    expect(page.locator(".results a").first).to_have_attribute("href", "/docs/guides/email-editor")


def test_a_search_looks_at_each_word_of_the_index_once() -> None:
    """A search compares each word of the query with each different word of a part at most once, and reads few texts.

    The calls are counted, because the time depends on what else the machine does.
    """
    parts = [
        part for _, guides in documentation.list_guides("http://127.0.0.1") for guide in guides for part in guide.parts
    ]
    index = documentation.SearchIndex(parts)
    query = "how can I import contacts from a file and undo it"
    places = [text for part in parts for text in (part.title, part.heading, part.text)]
    word_count = sum(len(set(re.findall(r"\w+", text.lower().replace("-", "")))) for text in places)
    calls: Counter[str] = Counter()

    def count(frame: Any, event: str, function: Any) -> None:
        if event in ("call", "c_call"):
            calls[frame.f_code.co_name if event == "call" else function.__name__] += 1

    sys.setprofile(count)
    try:
        results = index.search(query)
    finally:
        sys.setprofile(None)
    assert results and calls["startswith"] <= len(documentation.list_stems(query)) * word_count, calls
    assert calls["make_excerpt"] == len(results) and calls["_count_words"] == 0, calls


def test_the_jump_box_finds_guides(user: ScriptlessBrowser) -> None:
    """The jump box lists headings of guides after everything else."""
    [link] = HtmlPage(user, "/jump?q=quiet+hours").named("#jump-found a", "Set quiet hours")
    assert link.attrib["href"] == "/docs/guides/sms#set-quiet-hours"
    assert "Send SMS" in text_of(link)


def test_pages_link_to_their_guide(browser_page: Page) -> None:
    """A page links to the guide of its subject, which opens beside it; so does the editor, and the menu on a phone."""
    page = browser_page
    page.goto("/segments/new")
    with page.expect_popup() as popup:
        page.get_by_role("link", name="Help with this page").first.click()
    expect(popup.value.get_by_role("heading", level=1)).to_have_text("Reach the right contacts with segments")
    popup.value.get_by_role("link", name="Collect sign-ups with forms").last.click()
    expect(popup.value.get_by_role("heading", level=1)).to_have_text("Collect sign-ups with forms")
    popup.value.close()
    page.set_viewport_size({"width": 360, "height": 740})
    page.goto("/settings/team")
    page.get_by_role("button", name="More", exact=True).click()
    help_link = page.locator("#more-menu").get_by_role("link", name="Help with this page")
    expect(help_link).to_have_attribute("href", "/docs/guides/team")


@pytest.mark.full
def test_links_to_the_documentation(browser_page: Page) -> None:
    """The sidebar and the page of API keys link to the documentation; a button copies code."""
    browser_page.goto("/settings/keys")
    expect(browser_page.get_by_role("link", name="keys and scopes")).to_have_attribute(
        "href", "/docs/guides/authentication"
    )
    browser_page.get_by_role("link", name="Documentation").first.click()
    expect(browser_page.get_by_role("heading", level=1)).to_have_text("Documentation")
    browser_page.get_by_role("link", name="Send your first email with the API").first.click()
    browser_page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    browser_page.get_by_role("button", name="Copy").first.click()
    assert browser_page.evaluate("navigator.clipboard.readText()").startswith("export KEY=")


def test_error_hints_link_to_the_guide(api: Client) -> None:
    """The hint of an error is the URL of its heading in the guide."""
    for response, code in ((api.get("/contacts/999999"), "not_found"), (api.post("/lists", {}), "validation_error")):
        guide_url, _, anchor = response.json["hint"].partition("#")
        page = api.request("GET", guide_url.removeprefix(f"http://{api.host}"))
        assert anchor == code and f'<h3 id="{code}">' in page.text


def test_each_operation_has_its_document(visitor: Client, server: Server) -> None:
    """The script of an operation has its details, those of all components that it refers to, and all summaries.

    Every fifth operation is looked at, and all of them with `--full`.
    """
    document = server.client().contract().document
    operations = [(path, method) for path, methods in document["paths"].items() for method in methods if method in HTTP]
    for path, method in thin_out(operations, 5):
        anchor = re.sub(r"[{}]", "-", f"{method}-{path}")
        script = visitor.request("GET", f"/docs/api/document.js?operation={quote(anchor)}").text
        part = json.loads(script.removeprefix("globalThis.published = ").removesuffix(";\n"))
        assert [*part["paths"]] == [*document["paths"]]
        assert part["paths"][path][method].keys() == document["paths"][path][method].keys(), anchor
        for kind, name in set(re.findall(r'"#/components/(\w+)/([^"]+)"', script)):
            assert name in part["components"][kind], (anchor, name)
        assert len(script) < 400_000


def test_the_api_reference_is_sandboxed(visitor: Client) -> None:
    """The policy of the reference has a sandbox without the origin of the service, and allows no connection."""
    policy = visitor.request("GET", "/docs/api/reference").headers["content-security-policy"]
    assert re.search(r"\bsandbox allow-", policy) and "allow-same-origin" not in policy, policy
    assert "connect-src" not in policy or "connect-src 'none'" in policy, policy
    assert "default-src 'none'" in policy, policy


@pytest.mark.full
def test_the_api_reference(browser: Browser, server: Server, browser_problems: Problems, full: bool) -> None:
    """The reference shows every operation without errors.

    Its sandbox has no origin, cookie or storage, and no network access, also for signed-in users. axe checks it with
    `--full`: it is drawn by a vendored script, and larger than any other page.
    """
    page = sign_in(new_page(browser, server.url, browser_problems))
    requested_urls: list[str] = []
    page.on("request", lambda request: requested_urls.append(request.url))
    page.goto("/docs/api/reference#post-/v1/my/campaigns", wait_until="commit")
    shown = page.locator(".main-content")
    expect(shown.get_by_text("campaigns:write").first).to_be_visible(timeout=60_000)
    # An enum is a string, and nullable fields say so
    expect(shown.locator("tr, .tr").filter(has_text="scheduled_at").first).to_contain_text("null")
    expect(shown).not_to_contain_text("missing-type-info")
    document = server.client().contract().document
    operations = {(method, path) for path, methods in document["paths"].items() for method in methods}
    drawn = page.evaluate(
        "document.querySelector('rapi-doc').resolvedSpec.tags.flatMap(t => t.paths.map(p => [p.method, p.path]))"
    )
    assert {tuple(operation) for operation in drawn} == operations | {("post", name) for name in document["webhooks"]}
    # The details of another operation are loaded when it is chosen, by its link or, with `--full`, by an address too
    page.locator("[data-content-id='patch-/v1/my/flows/-id-']").first.click()
    expect(shown.get_by_text("flows:write").first).to_be_visible(timeout=60_000)
    if full:
        page.goto("/docs/api/reference#get-/v1/my/contacts", wait_until="commit")
        expect(shown.get_by_text("contacts:read").first).to_be_visible(timeout=60_000)
    assert all(url.startswith(server.url + "/") for url in requested_urls) and len(requested_urls) < 12
    assert browser_problems.found == []
    browser_problems.allow("policy: connect-src|Content Security Policy|Refused to connect|Fetch API cannot load")
    script = """async () => {
      const held = (act) => { try { return act() || 'nothing' } catch (error) { return error.name } };
      const asked = await fetch('/settings').then(() => 'answered', (error) => error.name);
      return [origin, held(() => document.cookie), held(() => localStorage.length), asked];
    }"""
    assert page.evaluate(script) == ["null", "SecurityError", "SecurityError", "TypeError"]
    # Two landmarks of the renderer share a name, which we cannot change
    if full:
        assert [violation for violation in find_violations(page) if not violation.startswith("landmark-unique")] == []
    page.context.close()
    assert browser_problems.found == []
