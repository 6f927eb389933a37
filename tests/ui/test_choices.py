"""Long choices: time zones, countries, filter fields and goals are searched, and work without JavaScript."""

import re

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.kit.axe import find_violations_in_light_and_dark
from tests.kit.browser import Problems, choose_option, new_page, sign_in
from tests.kit.client import Client
from tests.kit.scriptless_browser import ScriptlessBrowser
from tests.kit.server import Server


@pytest.fixture(scope="module")
def page(browser: Browser, server: Server, api: Client) -> Page:
    """A page signed in as the owner of an account with an event of its own."""
    # The names of events are cached from the first page that shows them.
    contact = api.post("/contacts", {"email": "g@example.org"}).expect(201)["id"]
    assert api.post("/events", {"event": "course_finished", "contact_id": contact}).status < 300
    return sign_in(new_page(browser, server.url, Problems()))


def search(page: Page, typed: str) -> list[str]:
    """Return the options that the open finder shows for a text."""
    page.get_by_role("combobox", name="Search options").fill(typed)
    return page.locator("#finder [role=option]").all_inner_texts()


def test_time_zones(page: Page, api: Client) -> None:
    """Regions have cities and present offsets; cities, countries and old names are found, whatever their accents."""
    page.goto("/settings")
    page.get_by_text("Time zone", exact=True).click()
    button = page.get_by_role("button", name="Time zone:")
    expect(button).to_be_focused()
    button.press("Enter")
    for typed in ("VIÉNNA", "austria"):
        results = search(page, typed)
        assert re.fullmatch(r"\(UTC\+0[12]:00\) Berlin, Vienna, Zurich", results[0]), typed
        assert re.fullmatch(r"\(UTC\+0[12]:00\) Vienna, Austria", results[1]), typed
    assert search(page, "Asia/Calcutta")[0] == "(UTC+05:30) Kolkata, Colombo"
    assert search(page, "nowhere") == []
    page.keyboard.press("Escape")
    choose_option(page, "Time zone", "vaduz")
    expect(button).to_have_text(re.compile(r"\(UTC\+0[12]:00\) Vaduz, Liechtenstein"))
    page.get_by_role("button", name="Save").first.click()
    expect(page.locator(".toast")).to_contain_text("Saved")
    assert api.get("/account").json["time_zone"] == "Europe/Vaduz"


def test_time_zones_in_another_language_and_without_javascript(api: Client) -> None:
    """The cities are named in the language of the user, in a plain select that has every zone."""
    text = ScriptlessBrowser(api).get("/settings", **{"Accept-Language": "de"})
    regions = re.findall(r'<option value="Europe/Berlin"[^>]*>([^<]+)</option>', text)
    assert [re.sub(r"^\(UTC\+0[12]:00\) ", "", name) for name in regions] == ["Berlin, Wien, Zürich"]
    assert len(set(re.findall(r'<option value="[A-Z]\w+/[^"]+"', text))) > 400
    assert ">Deutschland</option>" in text


def test_a_zone_that_is_not_listed_stays(api: Client) -> None:
    """A stored alias is the selected option, so that saving does not change it."""
    api.patch("/account", {"time_zone": "Asia/Calcutta"}).expect(200)
    assert '<option value="Asia/Calcutta" selected' in ScriptlessBrowser(api).get("/settings")
    api.patch("/account", {"time_zone": "Europe/London"}).expect(200)


def test_an_unknown_zone_of_any_length_is_an_error(api: Client) -> None:
    """The page comes back with the error at its field, also for a name that is longer than a file's may be."""
    for zone in ("Europe/Nowhere", "Europe", "9" * 300):
        answer = ScriptlessBrowser(api).submit("/settings", name="Acme", time_zone=zone)
        assert answer.status == 422, zone
        assert re.search(r'id="f-time-zone-err">.*<span>\w', answer.text), zone


@pytest.mark.full
def test_countries_in_a_segment(page: Page, api: Client) -> None:
    """Countries are chosen by name, one or several, and the sentence names them; the filter stores their codes."""
    api.post("/contacts", {"email": "a@example.org", "country_code": "DE"}).expect(201)
    page.goto("/segments/new")
    page.get_by_label("Name", exact=True).fill("Abroad")
    rule = page.locator("[data-rule]").first
    choose_option(page, "Field", "about the contact country")
    rule.get_by_label("Comparison").select_option("in")
    for typed, name in (("germ", "Germany"), ("franc", "France")):
        choose_option(page, "Add a value", typed)
        expect(rule.get_by_role("checkbox", name=name)).to_be_checked()
    expect(page.locator(".sentence")).to_have_text("Country is one of Germany or France.")
    assert find_violations_in_light_and_dark(page) == []
    page.set_viewport_size({"width": 320, "height": 700})
    assert page.evaluate("document.documentElement.scrollWidth") <= 320
    page.set_viewport_size({"width": 1280, "height": 800})
    page.get_by_role("button", name="Create segment").click()
    page.wait_for_url(re.compile(r"/segments/\d+"))
    [segment] = [row for row in api.all("/segments") if row["name"] == "Abroad"]
    assert segment["filters"] == [{"name": "contact_country", "predicate": "in", "value": ["DE", "FR"]}]


def test_fields_of_segments_are_grouped(page: Page) -> None:
    """Every field that filters offer is in a group of its own subject; the finder searches groups too."""
    page.goto("/segments/new")
    groups = page.locator(".rule select[data-find]").first.evaluate(
        "(one) => [...one.querySelectorAll('optgroup')].map((group) => [group.label, group.children.length])"
    )
    names = [name for name, _ in groups]
    assert names == [
        "About the contact", "Subscriptions", "Lists, segments and flows", "Custom fields",
        "Events: how often, in which period", "Engagement: which campaign", "Engagement: number in total",
        "Engagement: when last",
    ]  # fmt: skip
    page.get_by_role("button", name="Field:").click()
    assert "Reason for suppression" in search(page, "subscriptions")
    options = search(page, "engagement open")
    for label in ("Opened a specific campaign", "Number of emails opened", "Date of the last email open"):
        assert label in options


@pytest.mark.full
def test_a_goal_is_chosen(page: Page, api: Client) -> None:
    """A goal is one of the known events or of the account's own, or a new name, which then is in the list."""
    trigger = {"event": "contact_add"}
    flow = api.post("/flows", {"name": "G", "trigger": trigger, "steps": [{"duration": 60}]}).expect(201)["id"]
    page.goto(f"/flows/{flow}")
    goal = page.locator("#f-goal")
    assert "Course finished" in goal.locator("optgroup[label='Your events'] option").all_inner_texts()
    goal.select_option("order_paid")
    api.wait(f"/flows/{flow}", lambda row: row["goal"] == "order_paid")
    expect(page.locator("#tree")).to_contain_text("goal: placed an order (paid)")
    goal.select_option("other")
    name = page.get_by_label("Name of the goal’s event")
    name.fill("Became")
    page.wait_for_timeout(700)  # a pause while typing does not take the field away
    name.press_sequentially(" reader")
    name.press("Tab")
    api.wait(f"/flows/{flow}", lambda row: row["goal"] == "became_reader")
    expect(goal).to_have_value("became_reader")
    page.locator("#f-event").select_option("course_finished")
    api.wait(f"/flows/{flow}", lambda row: row["trigger"]["event"] == "course_finished")
    goal.select_option("")
    api.wait(f"/flows/{flow}", lambda row: row["goal"] is None)
