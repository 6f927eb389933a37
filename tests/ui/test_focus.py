"""Keyboard focus: whatever a page replaces, the focus stays, moves where it should, or returns."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.kit.browser import Problems, new_page, sign_in
from tests.kit.client import Client
from tests.kit.sampling import every_nth
from tests.kit.server import Server

DESIGN = {"sections": [
    {"id": "one", "type": "heading", "props": {"text": "One"}},
    {"id": "two", "type": "text", "props": {"content": "<p>Two</p>"}},
    {"id": "three", "type": "button", "props": {"text": "Three", "href": "https://example.com"}},
]}  # fmt: skip
STEPS = [{"subject": "Hi", "body": "<p>Hi</p>"}, {"duration": 86_400}]
RULES = [{"name": "first_name", "predicate": "eq", "value": name} for name in ("Ann", "Bea")]
Ids = dict[str, int]


@pytest.fixture(scope="module")
def ids(api: Client) -> Ids:
    """Ids of one object of each kind, and contacts."""
    list_id = api.post("/lists", {"name": "News"}).expect(201)["id"]
    contact_ids = [
        api.post("/contacts", {"first_name": f"Person{n:02}", "email": f"p{n}@example.com", "opt_in": n % 2 == 0,
                               "phone": f"+1415555{n:04}"}).expect(201)["id"]
        for n in range(12)
    ]  # fmt: skip
    return {
        "list": list_id,
        "person": contact_ids[0],
        "template": api.post("/templates", {"name": "T", "design": DESIGN}).expect(201)["id"],
        "flow": api.post("/flows", {"name": "F", "trigger": {"event": "x"}, "steps": STEPS}).expect(201)["id"],
        "segment": api.post("/segments", {"name": "S", "filters": RULES}).expect(201)["id"],
        "campaign": api.post("/campaigns", {"name": "C"}).expect(201)["id"],
    }


@pytest.fixture(scope="module")
def page(browser: Browser, server: Server) -> Iterator[Page]:
    """A page signed in as the owner; the module fails on any console error."""
    problems = Problems()
    problems.allow("Blocked script execution|Transition was aborted")
    opened = sign_in(new_page(browser, server.url, problems, width=1360))
    yield opened
    opened.context.close()
    assert not problems.found


def _press(element: Locator, key: str = "Enter") -> None:
    element.focus()
    element.press(key)


def _button(page: Page, name: str) -> Locator:
    return page.get_by_role("button", name=name, exact=True).first


def search(page: Page, ids: Ids) -> Locator:
    """Typing in the search field keeps its caret while the rows change."""
    page.goto("/contacts")
    field = page.locator("#search")
    field.focus()
    page.keyboard.type("Person1")
    expect(page.locator("tbody a.name")).to_have_count(2)
    page.keyboard.press("ArrowLeft")
    page.keyboard.type("0")
    expect(page.locator("tbody a.name")).to_have_count(1)
    assert page.evaluate("document.activeElement.selectionStart") == len("Person0")
    return field


def chip(page: Page, ids: Ids) -> Locator:
    """A filter chip keeps the focus on the new page."""
    page.goto("/contacts")
    link = page.locator(".chips").get_by_role("link", name="Subscribed").first
    _press(link)
    page.wait_for_url(re.compile(r"show=subscribed"))
    return link


def heading(page: Page, ids: Ids) -> Locator:
    """A column heading sorts the rows and keeps the focus."""
    page.goto("/contacts")
    link = page.locator("thead").get_by_role("link").first
    _press(link)
    page.wait_for_url(re.compile(r"sort="))
    return link


def bulk(page: Page, ids: Ids, tag: str = "vip") -> Locator:
    """After a bulk action the focus is at the top of the rows."""
    page.goto("/contacts")
    _press(page.locator("td.choose input").first, "Space")
    _press(_button(page, "Tag"))
    page.locator("#tag-name").focus()
    page.keyboard.type(tag)
    page.keyboard.press("Enter")
    expect(page.locator(".toast")).to_contain_text(f"Tag “{tag}” added to 1 contact.")
    return page.locator("#rows :focus")


def undo_bulk(page: Page, ids: Ids) -> Locator:
    """After undo by the toast the focus is within the page."""
    expect(bulk(page, ids, "guest").first).to_be_focused()
    _press(page.locator(".toast").get_by_role("button", name="Undo"))
    expect(page.locator(".toast")).to_contain_text("Tag guest removed from 1 contact.")
    return page.locator("main :focus")


def question(page: Page, ids: Ids) -> Locator:
    """A confirmation dialog takes the focus, and Escape returns it to its button."""
    page.goto("/contacts")
    _press(page.locator("td.choose input").first, "Space")
    button = _button(page, "Delete")
    _press(button)
    expect(page.locator("#dialog :focus")).to_have_count(1)
    page.keyboard.press("Escape")
    return button


def drawer(page: Page, ids: Ids) -> Locator:
    """A dialog that a link opens returns the focus to the link."""
    page.goto(f"/campaigns/{ids['campaign']}")
    opener = page.get_by_role("link", name="Send test email")
    _press(opener)
    expect(page.locator("#dialog :focus")).to_have_count(1)
    page.keyboard.press("Escape")
    return opener


def card(page: Page, ids: Ids) -> Locator:
    """A checkbox of a card that saves itself keeps the focus."""
    page.goto(f"/campaigns/{ids['campaign']}?open=to")
    box = page.get_by_label("News")
    with page.expect_response(re.compile(r"/to$")):
        _press(box, "Space")
    expect(page.locator("#card-to .sums")).to_be_visible()
    return box


def _edit(page: Page, ids: Ids, section: str) -> None:
    with page.expect_response("**/presence"):
        page.goto(f"/templates/{ids['template']}/edit?s={section}")


def _settled(page: Page) -> None:
    expect(page.locator("#editor:not([data-busy])")).to_have_count(1)


def move_section(page: Page, ids: Ids) -> Locator:
    """Moving a section by its button keeps the focus on the button."""
    _edit(page, ids, "two")
    button = page.locator("#inspector").get_by_role("button", name="Move up")
    _press(button)
    expect(page.locator("#say")).to_contain_text("moved to 1 of 3")
    _settled(page)
    _press(page.locator("#inspector").get_by_role("button", name="Move down"))
    expect(page.locator("#say")).to_contain_text("moved to 2 of 3")
    _settled(page)
    return page.locator("#inspector").get_by_role("button", name="Move down")


def duplicate_section(page: Page, ids: Ids) -> Locator:
    """Duplicating a section keeps the focus on the button."""
    _edit(page, ids, "three")
    count = page.locator("#list [data-select]").count()
    _press(page.locator("#inspector").get_by_role("button", name="Duplicate"))
    expect(page.locator("#list [data-select]")).to_have_count(count + 1)
    _settled(page)
    return page.locator("#inspector").get_by_role("button", name="Duplicate")


def remove_section(page: Page, ids: Ids, section: str = "one") -> Locator:
    """After a section is removed the focus is within the editor."""
    _edit(page, ids, section)
    _press(page.locator("#inspector").get_by_role("button", name="Remove"))
    expect(page.locator(".toast")).to_contain_text("removed.")
    _settled(page)
    return page.locator("#editor :focus")


def undo_removal(page: Page, ids: Ids) -> Locator:
    """After undo by the editor's toast the focus is within the editor."""
    remove_section(page, ids, "two")
    _press(page.locator(".toast").get_by_role("button", name="Undo"))
    expect(page.locator("#o-two")).to_have_count(1)
    _settled(page)
    return page.locator("#editor :focus")


def add_rule(page: Page, ids: Ids) -> Locator:
    """A new rule gets the focus."""
    page.goto(f"/segments/{ids['segment']}")
    rules = page.locator("[data-rule]")
    expect(rules).to_have_count(2)
    _press(page.locator("[data-filter] > .more").get_by_role("button").first)
    expect(rules).to_have_count(3)
    return rules.last.locator(".find:focus")


def remove_rule(page: Page, ids: Ids) -> Locator:
    """After a rule is removed its neighbour gets the focus."""
    page.goto(f"/segments/{ids['segment']}")
    rules = page.locator("[data-rule]")
    _press(rules.first.locator("[popovertarget]").last)
    _press(rules.first.get_by_role("button", name="Remove"))
    expect(rules).to_have_count(1)
    return rules.first.locator(":focus")


def add_step(page: Page, ids: Ids) -> Locator:
    """A new step gets the focus."""
    page.goto(f"/flows/{ids['flow']}")
    count = page.locator("#tree .node").count()
    _press(page.locator(".plus").last)
    page.locator("#add-menu :focus").press("Enter")
    expect(page.locator("#tree .node")).to_have_count(count + 1)
    return page.locator("main :focus")


def remove_step(page: Page, ids: Ids) -> Locator:
    """After a step is removed the focus is within the flow."""
    page.goto(f"/flows/{ids['flow']}")
    nodes = page.locator("#tree .node")
    count = nodes.count()
    last = page.locator("#tree li[data-step] .node .n").last
    _press(last, "Delete")
    expect(nodes).to_have_count(count - 1)
    return page.locator("main :focus")


def undo_step_removal(page: Page, ids: Ids) -> Locator:
    """After undo in a flow the focus is within the flow."""
    page.goto(f"/flows/{ids['flow']}")
    nodes = page.locator("#tree .node")
    count = nodes.count()
    expect(remove_step(page, ids).first).to_be_focused()
    _press(page.locator(".toast").get_by_role("button", name="Undo"))
    expect(nodes).to_have_count(count)
    return page.locator("main :focus")


def invalid_form(page: Page, ids: Ids) -> Locator:
    """A rejected form focuses its first invalid field."""
    page.goto(f"/contacts/{ids['person']}/edit")
    field = page.locator("#f-email")
    page.get_by_label("First name").focus()
    field.fill("nobody")
    _press(_button(page, "Save"))
    expect(field).to_have_attribute("aria-invalid", "true")
    return field


def send_reply(page: Page, ids: Ids) -> Locator:
    """After a reply is sent the next one can be written."""
    page.goto(f"/contacts/{ids['person']}/conversation")
    page.locator("#say").focus()
    page.keyboard.type("We are open")
    _press(page.locator("#say-send"))
    expect(page.locator(".bubble.mine")).to_have_count(1)
    return page.locator("#conversation :focus")


def keyboard_help(page: Page, ids: Ids) -> Locator:
    """The list of shortcuts returns the focus when it closes."""
    page.goto("/contacts")
    link = page.locator("tbody a.name").first
    _press(link, "?")
    expect(page.locator("#keys")).to_be_visible()
    page.keyboard.press("Escape")
    return link


CASES = (
    search, chip, heading, bulk, undo_bulk, question, drawer, card, move_section, duplicate_section, remove_section,
    undo_removal, add_rule, remove_rule, add_step, remove_step, undo_step_removal, invalid_form, send_reply,
    keyboard_help,
)  # fmt: skip


@pytest.mark.parametrize("case", every_nth(CASES, 5), ids=lambda case: case.__name__)
def test_focus_after_an_action(page: Page, ids: Ids, case: Callable[[Page, Any], Locator]) -> None:
    """Each case acts by keyboard and returns the element that must have the focus; it is never the body."""
    expected = case(page, ids)
    expect(expected.first).to_be_focused()
    assert page.evaluate("document.activeElement !== document.body")
