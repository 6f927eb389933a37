"""Two tabs at one form: no words are lost in silence, and whoever saves second is asked where both changed one."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from playwright.sync_api import Browser, Locator, Page, Route, expect

from tests.kit import axe
from tests.kit.browser import Problems, new_page, sign_in
from tests.kit.client import Client
from tests.kit.paper import Paper
from tests.kit.server import Server


class Case(NamedTuple):
    """A form, two of its fields, what is written into both by the second tab, and how the API reads them."""

    path: str
    submit: str
    both: str
    other: str
    label: str
    reads: Callable[[Client], tuple[Any, Any]]


@pytest.fixture(scope="module")
def things(api: Client) -> dict[str, int]:
    """One of each that has a form."""
    news = api.post("/lists", {"name": "News"}).expect(201)["id"]
    api.patch("/account", {"frequency_cap": {"messages": 3, "days": 7}}).expect(200)
    rule = [{"name": "first_name", "predicate": "eq", "value": "Ann"}]
    person = {"email": "ann@example.org", "first_name": "Ann", "last_name": "Kurz", "data": {"city": "Bath"}}
    return {
        "contact": api.post("/contacts", person).expect(201)["id"],
        "list": news,
        "segment": api.post("/segments", {"name": "Anns", "filters": rule}).expect(201)["id"],
        "form": api.post("/forms", {"name": "Sign up", "list_ids": [news]}).expect(201)["id"],
        "campaign": api.post("/campaigns", {"name": "Letter"}).expect(201)["id"],
    }


CASES = {
    "contact": Case(
        "/contacts/{contact}/edit", "Save", "First name", "Last name", "First name",
        lambda api: _two(api.get("/contacts", search="ann@example.org").expect(200)[0], "first_name", "last_name"),
    ),
    "own data": Case(
        "/contacts/{contact}/edit", "Save", "Value of city", "Country", "city",
        lambda api: ((row := api.get("/contacts", search="ann@example.org").expect(200)[0])["data"]["city"],
                     row["country_code"]),
    ),
    "brand": Case(
        "/brand", "Save", "Company", "Field", "Company",
        lambda api: _two(api.get("/brand").expect(200), "company_name", "industry"),
    ),
    "settings": Case(
        "/settings", "Save", "Name people see", "Answers go to", "Name people see",
        lambda api: _two(api.get("/account").expect(200), "email_from_name", "email_reply_to"),
    ),
    "consent": Case(
        "/settings/consent", "Save", "Words that say how to stop", "At most so many campaigns",
        "Words that say how to stop",
        lambda api: ((row := api.get("/account").expect(200))["sms_opt_out_hint"],
                     str((row["frequency_cap"] or {}).get("messages"))),
    ),
}  # fmt: skip
# What the first tab writes into both fields, and the second into the first of them
WORDS = {
    "At most so many campaigns": ("5", "6"),
    "Country": ("FR", "DE"),
    "Answers go to": ("a@bakery.example", "b@bakery.example"),
}


def _two(row: dict[str, Any], *names: str) -> tuple[Any, ...]:
    return tuple(row[name] for name in names)


def _field(page: Page, label: str) -> Locator:
    return page.get_by_label(label).and_(page.locator("input, textarea, select")).first


@pytest.fixture
def tabs(browser: Browser, server: Server) -> Iterator[tuple[Page, Page]]:
    """Two tabs of one person; that a form is answered 409 is what these tests are about."""
    problems = Problems()
    problems.allow("status of 409")
    first = sign_in(new_page(browser, server.url, problems))
    yield first, first.context.new_page()
    first.context.close()
    assert problems.found == []


@pytest.mark.parametrize("answer", ["Keep mine", "Use theirs"])
@pytest.mark.parametrize("name", CASES)
def test_the_second_who_saves_is_asked(
    tabs: tuple[Page, Page], things: dict[str, int], api: Client, name: str, answer: str
) -> None:
    """Both values stand side by side, one press decides; what only the first changed stays in any case."""
    case = CASES[name]
    for page in tabs:
        page.goto(case.path.format(**things))
    first, second = tabs
    theirs = WORDS.get(case.other, (f"Theirs {answer}",))[0]
    _field(first, case.both).fill(f"First {answer}")
    if case.other == "Country":
        _field(first, case.other).select_option(theirs)
    else:
        _field(first, case.other).fill(theirs)
    first.get_by_role("button", name=case.submit, exact=True).last.click()
    expect(first.locator(".toast")).to_contain_text("Saved")

    _field(second, case.both).fill(f"Second {answer}")
    second.get_by_role("button", name=case.submit, exact=True).last.click()
    told = second.get_by_role("alert")
    expect(told).to_be_focused()
    line = told.get_by_role("listitem")
    expect(line).to_have_count(1)
    expect(line).to_contain_text(f"{case.label}: theirs First {answer}, yours Second {answer}")
    assert axe.faults_in_both_looks(second) == []
    expect(_field(second, case.both)).to_have_value(f"Second {answer}")
    expect(_field(second, case.other)).to_have_value(theirs)
    # Enter in a field decides nothing
    _field(second, case.both).press("Enter")
    expect(told).to_be_focused()
    assert case.reads(api) == (f"First {answer}", theirs)
    line.get_by_role("button", name=answer).click()
    expect(second.locator(".toast")).to_contain_text("Saved")
    assert case.reads(api) == ((f"Second {answer}" if answer == "Keep mine" else f"First {answer}"), theirs)


def test_what_only_one_changed_needs_no_question(tabs: tuple[Page, Page], things: dict[str, int], api: Client) -> None:
    """Different fields of one form are both kept; boxes, lists and own data too."""
    first, second = tabs
    for page in tabs:
        page.goto(f"/contacts/{things['contact']}/edit")
    first.get_by_label("News").check()
    first.get_by_role("button", name="Add a value").click()
    first.get_by_role("group", name="New").get_by_label("Name", exact=True).fill("size")
    first.get_by_label("Value of the new name").fill("42")
    first.get_by_role("button", name="Save", exact=True).last.click()
    expect(first.locator(".toast")).to_contain_text("Saved")
    second.get_by_label("Value of city").fill("Wells")
    second.get_by_role("button", name="Save", exact=True).last.click()
    expect(second.locator(".toast")).to_contain_text("Saved")
    row = api.get(f"/contacts/{things['contact']}").expect(200)
    assert (row["list_ids"], row["data"]) == ([things["list"]], {"city": "Wells", "size": "42"})


def test_the_rules_of_a_segment_are_one_thing(tabs: tuple[Page, Page], things: dict[str, int], api: Client) -> None:
    """Two who change the rules are asked with both sentences; a name that only one changed is taken over."""
    second = tabs[1]
    path = f"/segments/{things['segment']}"
    for page in tabs:
        page.goto(path)
    rule = [{"name": "first_name", "predicate": "eq", "value": "Bea"}]
    api.patch(path, {"name": "Beas", "filters": rule}).expect(200)
    second.locator("input[value=Ann]").fill("Cleo")
    second.get_by_role("button", name="Save", exact=True).last.click()
    told = second.get_by_role("alert")
    expect(told.get_by_role("listitem")).to_have_count(1)
    expect(told).to_contain_text("Bea")
    expect(told).to_contain_text("Cleo")
    expect(second.get_by_label("Name", exact=True)).to_have_value("Beas")
    told.get_by_role("button", name="Use theirs").click()
    expect(second.locator(".toast")).to_contain_text("Saved")
    row = api.get(path).expect(200)
    assert (row["name"], row["filters"][0]["value"]) == ("Beas", "Bea")


def test_a_draft_that_saves_itself_asks_too(tabs: tuple[Page, Page], things: dict[str, int], api: Client) -> None:
    """One's own saves are no others'; somebody else's subject is asked about, their preview line is taken over."""
    path = f"/campaigns/{things['campaign']}"
    _, page = tabs
    page.goto(f"{path}?open=from")
    subject, line = page.get_by_label("Subject", exact=True), page.locator("#f-preheader")
    for words in ("One", "One two", "One two three"):
        subject.fill(words)
    api.wait(path, lambda row: row["template"]["subject"] == "One two three")
    expect(page.get_by_role("textbox", name="Subject")).to_have_count(1)
    api.patch(path, {"template_attributes": {"subject": "Theirs", "preheader": "Bread"}}).expect(200)
    subject.fill("Mine")
    told = page.get_by_role("alert")
    expect(told).to_contain_text("Subject: theirs Theirs, yours Mine")
    expect(page.locator("#saved-text")).to_contain_text("Not saved")
    expect(line).to_have_value("Bread")
    told.get_by_role("button", name="Keep mine").click()
    api.wait(path, lambda row: row["template"]["subject"] == "Mine")
    expect(told).to_have_count(0)
    assert api.get(path).expect(200)["template"]["preheader"] == "Bread"


def test_a_field_that_only_has_the_focus_takes_what_others_wrote(
    tabs: tuple[Page, Page], things: dict[str, int], api: Client
) -> None:
    """Written in once and left alone since, with the caret in it: others' words come; what is being written stays."""
    path = f"/campaigns/{things['campaign']}"
    _, page = tabs
    page.goto(f"{path}?open=from")
    name, answers = page.locator("#f-from-name"), page.locator("#f-reply-to")
    name.fill("Mine")
    expect(name).to_have_attribute("value", "Mine")
    api.patch(path, {"template_attributes": {"from_name": "Theirs"}}).expect(200)
    answers.fill("answers@bakery.example")
    name.focus()
    expect(name).to_have_value("Theirs")
    expect(name).to_be_focused()
    # What is written while the answer is on its way is not taken for what stood there
    held: list[Route] = []
    page.route("**/from", lambda route: route.continue_() if held else held.append(route))
    answers.fill("others@bakery.example")
    with page.expect_request("**/from"):
        name.focus()
    name.press("End")
    name.press_sequentially(" too")
    held[0].continue_()
    expect(name).to_have_attribute("value", "Theirs too")
    expect(name).to_have_value("Theirs too")
    kept = api.get(path).expect(200)["template"]
    assert (kept["from_name"], kept["reply_to"]) == ("Theirs too", "others@bakery.example")


def test_without_a_script_and_at_one_moment(api: Client, things: dict[str, int]) -> None:
    """A plain form is asked the same way; one that remembers nothing is kept as it is, as a program's is."""
    paper = Paper(api)
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


def test_lists_beyond_those_offered_stay(api: Client) -> None:
    """A form that has no room for a list does not take anybody out of it."""
    ids = [api.post("/lists", {"name": f"L{n:03}"}).expect(201)["id"] for n in range(101)]
    person = api.post("/contacts", {"email": "many@example.org", "list_ids": ids}).expect(201)["id"]
    paper = Paper(api)
    page = paper.get(f"/contacts/{person}/edit")
    offered = [one for one in ids if f'name="list_ids" value="{one}" checked' in page]
    assert len(offered) < len(ids)
    paper.post(f"/contacts/{person}", first_name="Mo", email="many@example.org", list_ids=offered[1:])
    assert sorted(api.get(f"/contacts/{person}").expect(200)["list_ids"]) == sorted(set(ids) - {offered[0]})
