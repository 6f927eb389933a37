"""The jump box, single-key shortcuts, and switching them off."""

import re
from collections.abc import Iterator
from urllib.parse import quote_plus

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.kit.browser import Problems, lent_page, reuse_session, wait_until_scripts_listen
from tests.kit.client import Client
from tests.kit.html_page import HtmlPage
from tests.kit.scriptless_browser import ScriptlessBrowser
from tests.kit.server import Server


@pytest.fixture(scope="module", autouse=True)
def contacts_and_campaign(server: Server, api: Client) -> None:
    """Contacts and a campaign to jump to, one of them with markup as its name."""
    api.post("/contacts", {"first_name": "Anna", "last_name": "Kurz", "email": "anna@example.org"}).expect(201)
    api.post("/contacts", {"first_name": "<i id=x>Anna</i>", "email": "other@example.org"}).expect(201)
    words = {"subject": "A letter in autumn"}
    api.post("/campaigns", {"name": "October letter", "template_attributes": words}).expect(201)


@pytest.fixture
def page(browser: Browser, server: Server) -> Iterator[Page]:
    """A page signed in as the owner; the test fails on any console error."""
    problems = Problems()
    with lent_page(browser, server.url, problems) as opened:
        reuse_session(opened, server).goto("/")
        yield opened
    assert not problems.found


def test_jumping_by_keyboard(page: Page) -> None:
    """Ctrl K opens the box, letters search, arrows and Enter choose; Escape closes it."""
    page.keyboard.press("Control+k")
    box = page.get_by_role("dialog", name="Jump to")
    expect(box.get_by_role("link", name="Campaigns", exact=True)).to_be_visible()
    expect(box.get_by_role("link", name="October letter")).to_be_visible()
    page.keyboard.press("Escape")
    expect(box).to_be_hidden()
    page.keyboard.press("Control+k")
    page.keyboard.type("anna")
    expect(box.get_by_role("status")).to_have_text("2 results")
    expect(page.locator("#x")).to_have_count(0)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    expect(box.get_by_role("link", name="Anna Kurz")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1, name="Anna Kurz")).to_be_visible()


@pytest.mark.parametrize(
    ("words", "name", "path"),
    [
        ("letter october", "October letter", r"/campaigns/\d+"),
        ("autumn october", "October letter", r"/campaigns/\d+"),  # a word of the subject and one of the name
        ("bread fresh", "Fresh rye bread", r"/templates/\d+/edit"),
        ("new greet", "Greeting for new guests", r"/flows/\d+"),
        ("rome customers", "Customers in Rome", r"/segments/\d+"),
    ],
)
def test_any_words_of_a_name_find_it(words: str, name: str, path: str, user: ScriptlessBrowser, api: Client) -> None:
    """The jump box finds campaigns, templates, flows and segments by any words of their names, in any order."""
    if "Rome" in name:
        city = {"name": "contact_data.city", "predicate": "eq", "value": "Rome"}
        api.post("/segments", {"name": name, "filters": [city]}).expect(201)
    elif "bread" in name:
        api.post("/templates", {"name": name, "subject": "Bread"}).expect(201)
    elif "Greeting" in name:
        api.post("/flows", {"name": name}).expect(201)
    [link] = HtmlPage(user, f"/jump?q={quote_plus(words)}").named("main a", name)
    assert re.fullmatch(path, link.attrib["href"])


@pytest.mark.full
def test_the_jump_box_during_page_load(page: Page) -> None:
    """Ctrl K during the page load opens a complete box."""
    press = "new KeyboardEvent('keydown', {key: 'k', ctrlKey: true, bubbles: true, cancelable: true})"
    page.add_init_script(f"addEventListener('DOMContentLoaded', () => document.body.dispatchEvent({press}))")
    page.goto("/lists")
    box = page.get_by_role("dialog", name="Jump to")
    expect(box.get_by_role("link", name="Campaigns", exact=True)).to_be_visible()


def test_a_search_without_results(user: ScriptlessBrowser) -> None:
    """The box says that nothing was found, and offers to add an address as a contact."""
    assert "No results for “<i>nobody”." in HtmlPage(user, "/jump?q=%3Ci%3Enobody").text
    [link] = HtmlPage(user, "/jump?q=team").named("main a", "Settings: Team")
    assert link.attrib["href"] == "/settings/team"
    assert not HtmlPage(user, "/jump?q=letter").named("main a", "Untitled")
    page = HtmlPage(user, "/jump?q=nobody@example.org").follow("Add nobody@example.org")
    assert page.value("Email") == "nobody@example.org"


@pytest.mark.parametrize(
    ("search", "title"),
    [
        ("add con", "Add contact"),
        ("new contact", "Add contact"),
        ("campaign", "New email"),
        ("import", "Import contacts"),
        ("new list", "New list"),
        ("new segment", "New segment"),
        ("new form", "New form"),
        ("new flow", "New flow"),
        ("domains", "Settings: Domains"),
        ("calendar", "Settings: Tracking and consent"),
        ("approval", "Settings: General"),
    ],
)
def test_actions_in_the_jump_box(user: ScriptlessBrowser, search: str, title: str) -> None:
    """The jump box finds actions and settings pages by the usual words for them."""
    page = HtmlPage(user, f"/jump?q={quote_plus(search)}")
    [link] = [link for link in page.all("main a") if page.name_of(link) == title]
    assert page.follow(link).all("h1")


def test_enter_opens_the_result_of_the_typed_words(page: Page) -> None:
    """Enter before the results are there opens the first result of the words, not of an earlier search."""
    page.keyboard.press("Control+k")
    expect(page.get_by_role("dialog", name="Jump to").get_by_role("link", name="Campaigns", exact=True)).to_be_visible()
    page.keyboard.type("add contact")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1, name="Add contact")).to_be_visible()


@pytest.mark.full
def test_enter_without_results_keeps_the_box(page: Page) -> None:
    """Enter without a result keeps the box open, and words typed after it go to its field."""
    page.keyboard.press("Control+k")
    box = page.get_by_role("dialog", name="Jump to")
    page.keyboard.type("zzz")
    expect(box.get_by_text("No results for “zzz”.")).to_be_visible()
    page.keyboard.press("Enter")
    page.keyboard.type("c")
    expect(box.get_by_role("searchbox")).to_have_value("zzzc")
    expect(page).to_have_url(re.compile(r"/$"))


@pytest.mark.full
def test_the_page_of_the_jump_box_has_the_focus_in_its_field(page: Page) -> None:
    """The page /jump opens with the focus in its field, and Ctrl K brings the focus back to the field."""
    page.goto("/jump?q=anna")
    field = page.locator("main").get_by_role("searchbox")
    expect(field).to_be_focused()
    page.locator("main").get_by_role("link", name="Anna Kurz").focus()
    wait_until_scripts_listen(page)
    page.keyboard.press("Control+k")
    expect(field).to_be_focused()


@pytest.mark.full
def test_typed_words_are_no_shortcuts(page: Page) -> None:
    """The letters of a word typed outside of a field open no page; the letter C alone opens a new email."""
    page.evaluate("window.kept = true")
    for word in ("contact", "great"):
        page.keyboard.type(word, delay=60)
        page.wait_for_timeout(700)
    # A word goes on after the box closed.
    page.keyboard.press("Control+k")
    page.keyboard.type("inb", delay=60)
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    page.keyboard.type("oxc", delay=60)
    page.wait_for_timeout(700)
    expect(page.get_by_role("dialog", name="Jump to")).to_be_hidden()
    assert page.evaluate("window.kept")
    page.keyboard.press("c")
    expect(page.get_by_role("heading", level=1, name="New email")).to_be_visible()


def test_single_key_shortcuts(page: Page) -> None:
    """`g c` opens the campaigns except within a field; switched off, single keys do nothing, and Ctrl K still works."""
    page.keyboard.press("g")
    page.keyboard.press("c")
    expect(page.get_by_role("heading", level=1, name="Campaigns")).to_be_visible()
    page.get_by_role("searchbox").first.press_sequentially("g p")
    expect(page.get_by_role("heading", level=1, name="Campaigns")).to_be_visible()
    page.goto("/")
    page.keyboard.press("?")
    page.get_by_role("button", name="Turn off single-key shortcuts").click()
    expect(page.locator("body[data-keys=off]")).to_be_attached()
    wait_until_scripts_listen(page)
    page.keyboard.press("?")
    page.keyboard.press("Control+k")
    expect(page.get_by_role("dialog", name="Jump to")).to_be_visible()
    expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_hidden()
