"""Edit conflicts with two tabs: no text is lost, and the second user decides where both changed a field."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from playwright.sync_api import Browser, Locator, Page, Route, expect

from tests.kit import axe
from tests.kit.browser import Problems, lent_page, new_page, reuse_session
from tests.kit.client import Client
from tests.kit.html_page import HtmlPage
from tests.kit.sampling import every_nth
from tests.kit.scriptless_browser import ScriptlessBrowser
from tests.kit.server import Server


class Case(NamedTuple):
    """A form, two of its fields (`both` is changed in both tabs), and how the API returns their values."""

    path: str
    submit: str
    both: str
    other: str
    label: str
    reads: Callable[[Client], tuple[Any, Any]]


@pytest.fixture(scope="module")
def things(api: Client) -> dict[str, int]:
    """Ids of one object of each kind that has a form."""
    list_id = api.post("/lists", {"name": "News"}).expect(201)["id"]
    api.patch("/account", {"frequency_cap": {"messages": 3, "days": 7}}).expect(200)
    rule = [{"name": "first_name", "predicate": "eq", "value": "Ann"}]
    fields = {"email": "ann@example.org", "first_name": "Ann", "last_name": "Kurz", "data": {"city": "Bath"}}
    return {
        "contact": api.post("/contacts", fields).expect(201)["id"],
        "list": list_id,
        "segment": api.post("/segments", {"name": "Anns", "filters": rule}).expect(201)["id"],
        "form": api.post("/forms", {"name": "Sign up", "list_ids": [list_id]}).expect(201)["id"],
        "campaign": api.post("/campaigns", {"name": "Letter"}).expect(201)["id"],
    }


CASES = {
    "contact": Case(
        "/contacts/{contact}/edit", "Save", "First name", "Last name", "First name",
        lambda api: _two(api.get("/contacts", search="ann@example.org").expect(200)[0], "first_name", "last_name"),
    ),
    "own data": Case(
        "/contacts/{contact}/edit", "Save", "Value of City", "Country", "city",
        lambda api: ((row := api.get("/contacts", search="ann@example.org").expect(200)[0])["data"]["city"],
                     row["country_code"]),
    ),
    "brand": Case(
        "/brand", "Save", "Company name", "Industry", "Company name",
        lambda api: _two(api.get("/brand").expect(200), "company_name", "industry"),
    ),
    "settings": Case(
        "/settings", "Save", "From name", "Reply-to address", "From name",
        lambda api: _two(api.get("/account").expect(200), "email_from_name", "email_reply_to"),
    ),
    "consent": Case(
        "/settings/consent", "Save", "Opt-out text", "Maximum messages per contact",
        "Opt-out text",
        lambda api: ((row := api.get("/account").expect(200))["sms_opt_out_hint"],
                     str((row["frequency_cap"] or {}).get("messages"))),
    ),
}  # fmt: skip
# Values of the field that only the first tab changes
WORDS = {
    "Maximum messages per contact": ("5", "6"),
    "Country": ("FR", "DE"),
    "Reply-to address": ("a@bakery.example", "b@bakery.example"),
}


def _two(row: dict[str, Any], *names: str) -> tuple[Any, ...]:
    return tuple(row[name] for name in names)


def _field(page: Page, label: str) -> Locator:
    return page.get_by_label(label).and_(page.locator("input, textarea, select")).first


@pytest.fixture
def tabs(browser: Browser, server: Server) -> Iterator[tuple[Page, Page]]:
    """Two tabs of one user; responses with 409 are expected."""
    problems = Problems()
    problems.allow("status of 409")
    first = reuse_session(new_page(browser, server.url, problems), server)
    yield first, first.context.new_page()
    first.context.close()
    assert problems.found == []


@pytest.fixture
def second(browser: Browser, server: Server) -> Iterator[Page]:
    """The tab of a user whose first tab needs no scripts; responses with 409 are expected."""
    problems = Problems()
    problems.allow("status of 409")
    with lent_page(browser, server.url, problems) as page:
        yield reuse_session(page, server)
    assert problems.found == []


@pytest.mark.parametrize(
    ("name", "choice"), every_nth([(name, choice) for choice in ("Keep mine", "Use theirs") for name in CASES], 7)
)
def test_an_edit_conflict_asks_the_second_user(
    second: Page, user: ScriptlessBrowser, things: dict[str, int], api: Client, name: str, choice: str
) -> None:
    """The page shows both values and one button chooses; the field that only the first tab changed keeps its value."""
    case = CASES[name]
    path = case.path.format(**things)
    first = HtmlPage(user, path)
    second.goto(path)
    theirs = WORDS.get(case.other, (f"Theirs {choice}",))[0]
    first.fill(case.both, f"First {choice}")
    first.fill(case.other, theirs)
    assert first.press(case.submit).has(".toast", "Saved")

    _field(second, case.both).fill(f"Second {choice}")
    second.get_by_role("button", name=case.submit, exact=True).last.click()
    alert = second.get_by_role("alert")
    expect(alert).to_be_focused()
    conflict = alert.get_by_role("listitem")
    expect(conflict).to_have_count(1)
    expect(conflict).to_contain_text(f"{case.label}: theirs First {choice}, yours Second {choice}")
    assert axe.find_violations_in_light_and_dark(second) == []
    expect(_field(second, case.both)).to_have_value(f"Second {choice}")
    expect(_field(second, case.other)).to_have_value(theirs)
    # Enter in a field does not choose
    _field(second, case.both).press("Enter")
    expect(alert).to_be_focused()
    assert case.reads(api) == (f"First {choice}", theirs)
    conflict.get_by_role("button", name=choice).click()
    expect(second.locator(".toast")).to_contain_text("Saved")
    assert case.reads(api) == ((f"Second {choice}" if choice == "Keep mine" else f"First {choice}"), theirs)


def test_changes_of_different_fields_are_merged(tabs: tuple[Page, Page], things: dict[str, int], api: Client) -> None:
    """Changes of different fields of a form are both kept, also checkboxes, lists and custom data."""
    first, second = tabs
    for page in tabs:
        page.goto(f"/contacts/{things['contact']}/edit")
    first.get_by_label("News").check()
    first.get_by_role("button", name="Add field").click()
    first.get_by_role("group", name="New field").get_by_label("Name", exact=True).fill("size")
    first.get_by_label("Value of the new field").fill("42")
    first.get_by_role("button", name="Save", exact=True).last.click()
    expect(first.locator(".toast")).to_contain_text("Saved")
    second.get_by_label("Value of city").fill("Wells")
    second.get_by_role("button", name="Save", exact=True).last.click()
    expect(second.locator(".toast")).to_contain_text("Saved")
    row = api.get(f"/contacts/{things['contact']}").expect(200)
    assert (row["list_ids"], row["data"]) == ([things["list"]], {"city": "Wells", "size": "42"})


@pytest.mark.full
def test_a_conflict_of_segment_rules(second: Page, things: dict[str, int], api: Client) -> None:
    """Rules that both changed are shown as two sentences; a name that only one changed is kept."""
    path = f"/segments/{things['segment']}"
    second.goto(path)
    rule = [{"name": "first_name", "predicate": "eq", "value": "Bea"}]
    api.patch(path, {"name": "Beas", "filters": rule}).expect(200)
    second.locator("input[value=Ann]").fill("Cleo")
    second.get_by_role("button", name="Save", exact=True).last.click()
    alert = second.get_by_role("alert")
    expect(alert.get_by_role("listitem")).to_have_count(1)
    expect(alert).to_contain_text("Bea")
    expect(alert).to_contain_text("Cleo")
    expect(second.get_by_label("Name", exact=True)).to_have_value("Beas")
    alert.get_by_role("button", name="Use theirs").click()
    expect(second.locator(".toast")).to_contain_text("Saved")
    row = api.get(path).expect(200)
    assert (row["name"], row["filters"][0]["value"]) == ("Beas", "Bea")


def test_a_conflict_with_autosave(second: Page, things: dict[str, int], api: Client) -> None:
    """The user's own autosaves cause no conflict; another user's subject does, and their preview text is taken over."""
    path = f"/campaigns/{things['campaign']}"
    page = second
    page.goto(f"{path}?open=from")
    subject, preheader = page.get_by_label("Subject", exact=True), page.locator("#f-preheader")
    for text in ("One", "One two", "One two three"):
        subject.fill(text)
    api.wait(path, lambda row: row["template"]["subject"] == "One two three")
    expect(page.get_by_role("textbox", name="Subject")).to_have_count(1)
    api.patch(path, {"template_attributes": {"subject": "Theirs", "preheader": "Bread"}}).expect(200)
    subject.fill("Mine")
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("Subject: theirs Theirs, yours Mine")
    expect(page.locator("#saved-text")).to_contain_text("Not saved")
    expect(preheader).to_have_value("Bread")
    alert.get_by_role("button", name="Keep mine").click()
    api.wait(path, lambda row: row["template"]["subject"] == "Mine")
    expect(alert).to_have_count(0)
    assert api.get(path).expect(200)["template"]["preheader"] == "Bread"


@pytest.mark.full
def test_a_focused_field_takes_others_changes(second: Page, things: dict[str, int], api: Client) -> None:
    """A focused field that is not being edited shows others' changes; text being typed stays."""
    path = f"/campaigns/{things['campaign']}"
    page = second
    page.goto(f"{path}?open=from")
    name, reply_to = page.locator("#f-from-name"), page.locator("#f-reply-to")
    name.fill("Mine")
    expect(name).to_have_attribute("value", "Mine")
    api.patch(path, {"template_attributes": {"from_name": "Theirs"}}).expect(200)
    reply_to.fill("answers@bakery.example")
    name.focus()
    expect(name).to_have_value("Theirs")
    expect(name).to_be_focused()
    # Text typed during the request is not taken for the former value
    blocked_routes: list[Route] = []
    page.route("**/from", lambda route: route.continue_() if blocked_routes else blocked_routes.append(route))
    reply_to.fill("others@bakery.example")
    with page.expect_request("**/from"):
        name.focus()
    name.press("End")
    name.press_sequentially(" too")
    blocked_routes[0].continue_()
    expect(name).to_have_attribute("value", "Theirs too")
    expect(name).to_have_value("Theirs too")
    template = api.get(path).expect(200)["template"]
    assert (template["from_name"], template["reply_to"]) == ("Theirs too", "others@bakery.example")


def test_an_edit_conflict_without_javascript(api: Client, things: dict[str, int]) -> None:
    """A plain form gets a 409 for a conflict; one without the former values overwrites, like the API."""
    paper = ScriptlessBrowser(api)
    path = f"/lists/{things['list']}"
    page = paper.get(f"{path}/edit")
    seen = page.partition('name="seen" value="')[2].partition('"')[0].replace("&#34;", '"')
    assert seen
    api.patch(path, {"name": "Letters"}).expect(200)
    assert paper.status("POST", path, name="Post", seen=seen) == 409
    assert api.get(path).expect(200)["name"] == "Letters"
    assert paper.status("POST", path, name="News", seen=seen, public="yes") == 303
    row = api.get(path).expect(200)
    assert (row["name"], row["public"]) == ("Letters", True)
    assert paper.status("POST", path, name="Post", seen=seen, mine="Name") == 303
    assert paper.status("POST", path, name="News") == 303
    assert api.get(path).expect(200)["name"] == "News"


def test_lists_that_a_form_does_not_show_stay(api: Client) -> None:
    """Saving a contact removes no lists that its form had no space for."""
    ids = [api.post("/lists", {"name": f"L{n:03}"}).expect(201)["id"] for n in range(101)]
    contact_id = api.post("/contacts", {"email": "many@example.org", "list_ids": ids}).expect(201)["id"]
    paper = ScriptlessBrowser(api)
    page = paper.get(f"/contacts/{contact_id}/edit")
    offered = [list_id for list_id in ids if f'name="list_ids" value="{list_id}" checked' in page]
    assert len(offered) < len(ids)
    paper.post(f"/contacts/{contact_id}", first_name="Mo", email="many@example.org", list_ids=offered[1:])
    assert sorted(api.get(f"/contacts/{contact_id}").expect(200)["list_ids"]) == sorted(set(ids) - {offered[0]})
