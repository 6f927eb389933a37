"""By keys alone nobody is thrown off: whatever a page swaps, the focus stays, goes where it was meant to, or back."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.kit.browser import Problems, new_page, sign_in
from tests.kit.client import Client
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
    """One of each thing that is worked on, and people."""
    news = api.post("/lists", {"name": "News"}).expect(201)["id"]
    people = [
        api.post("/contacts", {"first_name": f"Person{n:02}", "email": f"p{n}@example.com", "opt_in": n % 2 == 0,
                               "phone": f"+1415555{n:04}"}).expect(201)["id"]
        for n in range(12)
    ]  # fmt: skip
    return {
        "list": news,
        "person": people[0],
        "template": api.post("/templates", {"name": "T", "design": DESIGN}).expect(201)["id"],
        "flow": api.post("/flows", {"name": "F", "trigger": {"event": "x"}, "steps": STEPS}).expect(201)["id"],
        "segment": api.post("/segments", {"name": "S", "filters": RULES}).expect(201)["id"],
        "campaign": api.post("/campaigns", {"name": "C"}).expect(201)["id"],
    }


@pytest.fixture(scope="module")
def page(browser: Browser, server: Server) -> Iterator[Page]:
    """The owner at one browser; any error on the console fails the module."""
    problems = Problems()
    problems.allow("Blocked script execution|Transition was aborted")
    opened = sign_in(new_page(browser, server.url, problems, width=1360))
    yield opened
    opened.context.close()
    assert not problems.found


def _press(one: Locator, key: str = "Enter") -> None:
    one.focus()
    one.press(key)


def _button(page: Page, name: str) -> Locator:
    return page.get_by_role("button", name=name, exact=True).first


def search(page: Page, ids: Ids) -> Locator:
    """Letters keep their place while the rows below change."""
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
    """A chip leads to the same page, and to itself there."""
    page.goto("/contacts")
    one = page.locator(".chips").get_by_role("link", name="Subscribed").first
    _press(one)
    page.wait_for_url(re.compile(r"show=subscribed"))
    return one


def heading(page: Page, ids: Ids) -> Locator:
    """A heading orders the rows and keeps the focus."""
    page.goto("/contacts")
    one = page.locator("thead").get_by_role("link").first
    _press(one)
    page.wait_for_url(re.compile(r"sort="))
    return one


def bulk(page: Page, ids: Ids, tag: str = "vip") -> Locator:
    """After an act for many one stands at the head of the rows."""
    page.goto("/contacts")
    _press(page.locator("td.choose input").first, "Space")
    _press(_button(page, "Tag"))
    page.locator("#tag-name").focus()
    page.keyboard.type(tag)
    page.keyboard.press("Enter")
    expect(page.locator(".toast")).to_contain_text(f"tagged {tag}")
    return page.locator("#rows :focus")


def taken_back(page: Page, ids: Ids) -> Locator:
    """Undo of a message leaves one in the page."""
    expect(bulk(page, ids, "guest").first).to_be_focused()
    _press(page.locator(".toast").get_by_role("button", name="Undo"))
    expect(page.locator(".toast")).to_contain_text("taken off")
    return page.locator("main :focus")


def question(page: Page, ids: Ids) -> Locator:
    """A question takes the focus and gives it back to who asked."""
    page.goto("/contacts")
    _press(page.locator("td.choose input").first, "Space")
    asks = _button(page, "Delete")
    _press(asks)
    expect(page.locator("#dialog :focus")).to_have_count(1)
    page.keyboard.press("Escape")
    return asks


def drawer(page: Page, ids: Ids) -> Locator:
    """What is opened from a link over the page leads back to it."""
    page.goto(f"/campaigns/{ids['campaign']}")
    opener = page.get_by_role("link", name="Send test")
    _press(opener)
    expect(page.locator("#dialog :focus")).to_have_count(1)
    page.keyboard.press("Escape")
    return opener


def card(page: Page, ids: Ids) -> Locator:
    """A box of a card that saves itself stays under the fingers."""
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


def moved(page: Page, ids: Ids) -> Locator:
    """A section that is moved by its button leaves the focus on that button."""
    _edit(page, ids, "two")
    one = page.locator("#inspector").get_by_role("button", name="Move up")
    _press(one)
    expect(page.locator("#say")).to_contain_text("moved to 1 of 3")
    _settled(page)
    _press(page.locator("#inspector").get_by_role("button", name="Move down"))
    expect(page.locator("#say")).to_contain_text("moved to 2 of 3")
    _settled(page)
    return page.locator("#inspector").get_by_role("button", name="Move down")


def doubled(page: Page, ids: Ids) -> Locator:
    """After a copy was made the button for it is still there."""
    _edit(page, ids, "three")
    many = page.locator("#list [data-select]").count()
    _press(page.locator("#inspector").get_by_role("button", name="Duplicate"))
    expect(page.locator("#list [data-select]")).to_have_count(many + 1)
    _settled(page)
    return page.locator("#inspector").get_by_role("button", name="Duplicate")


def removed(page: Page, ids: Ids, section: str = "one") -> Locator:
    """After a section was removed one stands on the one that is chosen then."""
    _edit(page, ids, section)
    _press(page.locator("#inspector").get_by_role("button", name="Remove"))
    expect(page.locator(".toast")).to_contain_text("is removed")
    _settled(page)
    return page.locator("#editor :focus")


def brought_back(page: Page, ids: Ids) -> Locator:
    """Undo of the editor's message leaves one in the editor."""
    removed(page, ids, "two")
    _press(page.locator(".toast").get_by_role("button", name="Undo"))
    expect(page.locator("#o-two")).to_have_count(1)
    _settled(page)
    return page.locator("#editor :focus")


def ruled(page: Page, ids: Ids) -> Locator:
    """A new rule is where one goes on."""
    page.goto(f"/segments/{ids['segment']}")
    rules = page.locator("[data-rule]")
    expect(rules).to_have_count(2)
    _press(page.locator("[data-filter] > .more").get_by_role("button").first)
    expect(rules).to_have_count(3)
    return rules.last.locator(".find:focus")


def unruled(page: Page, ids: Ids) -> Locator:
    """After a rule was taken out one stands on its neighbour."""
    page.goto(f"/segments/{ids['segment']}")
    rules = page.locator("[data-rule]")
    _press(rules.first.locator("[popovertarget]").last)
    _press(rules.first.get_by_role("button", name="Remove"))
    expect(rules).to_have_count(1)
    return rules.first.locator(":focus")


def stepped(page: Page, ids: Ids) -> Locator:
    """A step that was added is written at once."""
    page.goto(f"/flows/{ids['flow']}")
    many = page.locator("#tree .node").count()
    _press(page.locator(".plus").last)
    page.locator("#add-menu :focus").press("Enter")
    expect(page.locator("#tree .node")).to_have_count(many + 1)
    return page.locator("main :focus")


def unstepped(page: Page, ids: Ids) -> Locator:
    """A step that was removed leaves one in the flow."""
    page.goto(f"/flows/{ids['flow']}")
    nodes = page.locator("#tree .node")
    many = nodes.count()
    last = page.locator("#tree li[data-step] .node .n").last
    _press(last, "Delete")
    expect(nodes).to_have_count(many - 1)
    return page.locator("main :focus")


def restepped(page: Page, ids: Ids) -> Locator:
    """Undo in a flow leaves one in the flow."""
    page.goto(f"/flows/{ids['flow']}")
    nodes = page.locator("#tree .node")
    many = nodes.count()
    expect(unstepped(page, ids).first).to_be_focused()
    _press(page.locator(".toast").get_by_role("button", name="Undo"))
    expect(nodes).to_have_count(many)
    return page.locator("main :focus")


def refused(page: Page, ids: Ids) -> Locator:
    """A form that is refused leads to its first fault."""
    page.goto(f"/contacts/{ids['person']}/edit")
    field = page.locator("#f-email")
    page.get_by_label("First name").focus()
    field.fill("nobody")
    _press(_button(page, "Save"))
    expect(field).to_have_attribute("aria-invalid", "true")
    return field


def answered(page: Page, ids: Ids) -> Locator:
    """Whoever sent an answer can write the next."""
    page.goto(f"/contacts/{ids['person']}/conversation")
    page.locator("#say").focus()
    page.keyboard.type("We are open")
    _press(page.locator("#say-send"))
    expect(page.locator(".bubble.mine")).to_have_count(1)
    return page.locator("#conversation :focus")


def helped(page: Page, ids: Ids) -> Locator:
    """The list of keys closes to where one was."""
    page.goto("/contacts")
    link = page.locator("tbody a.name").first
    _press(link, "?")
    expect(page.locator("#keys")).to_be_visible()
    page.keyboard.press("Escape")
    return link


CASES = (
    search, chip, heading, bulk, taken_back, question, drawer, card, moved, doubled, removed, brought_back, ruled,
    unruled, stepped, unstepped, restepped, refused, answered, helped,
)  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_the_focus_is_never_lost(page: Page, ids: Ids, case: Callable[[Page, Any], Locator]) -> None:
    """Each case works by keys and returns what shall have the focus in the end; it is never the page itself."""
    where = case(page, ids)
    expect(where.first).to_be_focused()
    assert page.evaluate("document.activeElement !== document.body")
