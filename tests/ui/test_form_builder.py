"""The settings of sign-up forms: fields of every type, topics, preview, and the HTML on another website."""

import contextlib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from playwright.sync_api import Browser, Error, Page, Route, expect

from tests.kit.axe import find_violations_in_light_and_dark
from tests.kit.browser import Problems, new_page, save_screenshot
from tests.kit.forms import create_form, find_contact, get_link, request_as_visitor, wait_for_system_emails
from tests.kit.sampling import full_only
from tests.kit.server import Server

HOSTILE = "<img src=x onerror=alert(1)>\"'</style></textarea>"
FIELDS = [
    {"name": "email", "required": True},
    {"name": "data.note", "type": "textarea", "help": "Anything", "placeholder": "I like…"},
    {"name": "data.size", "type": "select", "options": ["S", "M"]},
    {"name": "data.drink", "type": "radio", "options": ["Filter", HOSTILE], "required": True, "label": HOSTILE},
    {"name": "data.days", "type": "checkboxes", "options": ["Mon", "Tue", "Wed"]},
    {"name": "data.pets", "type": "checkbox", "label": "I have a pet"},
    {"name": "data.birthday", "type": "date"},
    {"name": "data.children", "type": "number"},
    {"name": "data.origin", "type": "hidden", "value": "shop", "query_parameter": "utm_source"},
    {"name": "data.fixed", "type": "hidden", "value": "yes"},
]


@pytest.fixture
def other_site() -> Iterator[list[str]]:
    """A website on another origin: its URL, and the HTML of its page as the second item, which tests may set."""
    content = ["", ""]

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write(f"<!doctype html><html lang=en><title>Shop</title><h1>Shop</h1>{content[1]}".encode())

        def log_message(self, *args: object) -> None:
            """Log nothing."""

    site = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=site.serve_forever, daemon=True).start()
    content[0] = f"http://127.0.0.1:{site.server_port}/"
    yield content
    site.shutdown()
    site.server_close()


def test_a_field_that_was_added_is_named_next(browser_page: Page) -> None:
    """Its label has the focus, and not the title at the top of the page; the preview shows it without a label."""
    page = browser_page
    page.goto("/forms/new")
    expect(page.get_by_label("Title", exact=True)).to_be_focused()
    page.get_by_role("button", name="Add field").click()
    page.locator("#add-field").get_by_role("button", name="Dropdown").click()
    expect(page.locator("#field-3").get_by_label("Label")).to_be_focused()
    expect(page.locator("#field-3").get_by_label("Label")).to_be_in_viewport()
    page.keyboard.type("Favourite rose")
    page.locator("#field-3").get_by_role("button", name="Remove").click()
    expect(page.locator("#field-3")).to_have_count(0)
    expect(page.get_by_label("Title", exact=True)).not_to_be_focused()
    page.get_by_role("button", name="Add field").click()
    page.locator("#add-field").get_by_role("button", name="Dropdown").click()
    expect(page.frame_locator("#preview iframe").get_by_label("Dropdown")).to_be_visible()


def test_a_late_preview_is_replaced(browser_page: Page) -> None:
    """A preview of before a field was added, which arrives after it, does not stay."""
    page = browser_page
    late: list[Route] = []

    def hold_first(route: Route) -> None:
        late.append(route)
        if len(late) > 1:
            route.continue_()

    page.goto("/forms/new")
    page.route("**/forms/preview", hold_first)
    with page.expect_request("**/forms/preview"):
        page.get_by_label("Title", exact=True).fill("Roses")
    page.get_by_role("button", name="Add field").click()
    page.locator("#add-field").get_by_role("button", name="Dropdown").click()
    expect(page.frame_locator("#preview iframe").get_by_label("Dropdown")).to_be_visible()
    with contextlib.suppress(Error):  # the page has given the request up
        late[0].continue_()
    page.wait_for_timeout(1000)
    expect(page.frame_locator("#preview iframe").get_by_label("Dropdown")).to_be_visible()


def test_building_a_form(server: Server, browser_page: Page) -> None:
    """Fields of each type are added, ordered and checked; the preview follows; errors lose nothing."""
    page = browser_page
    api = server.client()
    topic = api.post("/lists", {"name": "Recipes", "public": True}).expect(201)
    api.post("/lists", {"name": "Internal"}).expect(201)
    page.goto("/forms/new")
    preview = page.frame_locator("#preview iframe")
    page.get_by_label("Internal name").fill("Club")
    page.locator("#f-title").fill("Join the club")
    expect(preview.get_by_role("heading", name="Join the club")).to_be_visible()
    for number, kind in enumerate(("Dropdown", "Checkboxes", "Date", "Hidden value"), start=3):
        page.get_by_role("button", name="Add field").click()
        page.locator("#add-field").get_by_role("button", name=kind, exact=True).click()
        expect(page.locator(f"#field-{number} details")).to_have_attribute("open", "")
        if kind != "Hidden value":
            page.locator(f"#field-{number}").get_by_label("Label").fill(kind.upper())
    page.locator("#field-6").get_by_label("Saved as").fill("utm source")
    page.locator("#field-5").get_by_label("Label").fill("")
    page.get_by_role("button", name="Create form").click()
    expect(page.locator("#field-5 .err")).to_have_text("Enter the label that visitors see.")
    page.locator("#field-5").get_by_label("Label").fill("DATE")
    page.get_by_role("group", name="Topics").get_by_role("checkbox", name="Recipes").check()
    expect(page.get_by_role("group", name="Topics").get_by_role("checkbox", name="Internal")).to_have_count(0)
    page.get_by_role("button", name="Create form").click()
    expect(page.locator(".err")).to_have_text(
        ["Enter at least one option."] * 2 + ["Enter a value of at most 255 characters, or a URL parameter."]
    )
    expect(page.locator("#field-3").get_by_label("Label")).to_have_value("DROPDOWN")
    page.locator("#field-3").get_by_label("Options").fill("Tea\nCoffee")
    page.locator("#field-4").get_by_label("Options").fill("Mon\nTue")
    page.locator("#field-6").get_by_label("URL parameter").fill("utm_source")
    expect(preview.get_by_label("DROPDOWN").locator("option")).to_have_text(["", "Tea", "Coffee"])
    expect(preview.get_by_label("Recipes")).not_to_be_checked()
    # The date moves up by button, the first name down by key
    page.get_by_role("button", name="Move up: DATE").click()
    expect(page.locator("[data-field] [name=row]").nth(3)).to_have_value("5")
    page.locator("#field-2 [data-grip]").focus()
    page.keyboard.press("ArrowDown")
    expect(page.locator("[data-moved]")).to_have_text("Field 3 of 6")
    page.locator("#preview").get_by_text("Dark").click()
    save_screenshot(page, "form-builder")
    page.locator("#preview").get_by_text("Mobile").click()
    expect(page.locator("#preview iframe")).to_have_css("max-width", "375px")
    assert find_violations_in_light_and_dark(page) == []
    page.get_by_role("button", name="Create form").click()
    expect(page.get_by_role("heading", name="Club", exact=True)).to_be_visible()
    (form,) = [row for row in api.get("/forms").expect(200) if row["name"] == "Club"]
    names = [field["name"] for field in form["fields"]]
    assert names == ["email", "data.dropdown", "first_name", "data.date", "data.checkboxes", "data.utm_source"]
    assert form["fields"][1]["options"] == ["Tea", "Coffee"] and form["topic_ids"] == [topic["id"]]
    page.get_by_role("button", name="More actions").click()
    page.get_by_role("button", name="Duplicate").click()
    expect(page.get_by_label("Internal name")).to_have_value("Club (copy)")
    copied = api.get("/forms", search="Club (copy)").expect(200)[0]
    assert copied["fields"] == form["fields"] and copied["public_key"] != form["public_key"]


@pytest.mark.full
def test_every_field_on_the_hosted_page(server: Server, browser: Browser, browser_problems: Problems) -> None:
    """All faults are shown at their fields, and the contact has typed values; fixed values cannot be replaced."""
    api = server.client()
    topics = [
        api.post("/lists", {"name": name, "public": True}).expect(201)["id"] for name in ("Deals", "Events", "Jobs")
    ]
    form = create_form(
        server, HOSTILE, fields=FIELDS, topic_ids=topics, topics_required=True, intro=HOSTILE, button_text=HOSTILE,
        thanks_title="Welcome aboard", thanks_text="See you soon",
    )  # fmt: skip
    page = new_page(browser, server.url, browser_problems, width=320)
    page.goto(f"/f/{form['public_key']}?utm_source=spring%00sale")
    assert page.evaluate("document.documentElement.scrollWidth") <= 320
    expect(page.locator("main img")).to_have_count(0)
    assert find_violations_in_light_and_dark(page) == []
    page.get_by_label("Email address").fill("all@example.org")
    page.get_by_label("Children").evaluate("one => { one.type = 'text'; one.value = 'two' }")
    page.get_by_label("Tue").check()
    page.wait_for_timeout(800)
    page.get_by_role("button").click()
    expect(page.locator(".wrong")).to_have_text(
        ["Please select one of the options.", "Please enter a number.", "Please select at least one option."]
    )
    expect(page.get_by_label("Tue")).to_be_checked()
    page.get_by_label("Note").fill("first\nsecond")
    page.get_by_label("Size").select_option("M")
    page.get_by_label(HOSTILE, exact=True).check()
    page.get_by_label("Mon").check()
    page.get_by_label("I have a pet").check()
    page.get_by_label("Birthday").fill("1990-02-28")
    page.get_by_label("Children").fill("2")
    page.get_by_label("Events").check()
    extra = "<input name=data.fixed value=no><input name=list_ids value=1>"
    page.evaluate("html => document.forms[0].insertAdjacentHTML('beforeend', html)", extra)
    page.get_by_role("button").click()
    expect(page.get_by_role("heading", name="Welcome aboard")).to_be_visible()
    expect(page.get_by_text("We’ve sent an email to")).to_be_visible()
    (email,) = wait_for_system_emails(server, "all@example.org")
    assert "Events" in email["text"] and "Deals" not in email["text"]
    page.goto(get_link(email))
    expect(page.get_by_text("Events")).to_be_visible()
    page.get_by_role("button", name="Yes, subscribe me").click()
    created = find_contact(server, "all@example.org")
    assert created is not None
    assert created["data"] == {
        "note": "first\nsecond", "size": "M", "drink": HOSTILE, "days": ["Mon", "Tue"], "pets": True,
        "birthday": "1990-02-28", "children": 2, "origin": "springsale", "fixed": "yes",
    }  # fmt: skip
    assert created["list_ids"] == sorted([*form["list_ids"], topics[1]])
    page.context.close()
    assert not browser_problems.found


@pytest.mark.parametrize("look", ["", full_only("plain")])
def test_the_html_on_another_website(
    look: str, server: Server, browser_page: Page, browser: Browser, browser_problems: Problems, other_site: list[str]
) -> None:
    """The HTML works on another origin, without scripts and requests, and hostile texts stay texts."""
    form = create_form(server, f"{HOSTILE} {look}", fields=FIELDS, double_opt_in=False, title=HOSTILE)
    browser_page.goto(f"/forms/{form['id']}?look={look}")
    assert find_violations_in_light_and_dark(browser_page) == []
    snippet = browser_page.get_by_label("HTML of the form").input_value()
    assert ("<style>" in snippet) == (look == "") and "<script" not in snippet and "<img" not in snippet
    other_site[1] = snippet
    page = new_page(browser, server.url, browser_problems, width=320)
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.goto(other_site[0])
    assert {url for url in requests if "favicon" not in url} == {other_site[0]}
    assert look == "plain" or page.evaluate("document.documentElement.scrollWidth") <= 320
    address = f"embed{look}@example.org"
    page.get_by_label("Email address").fill(address)
    page.get_by_label("Filter").check()
    page.get_by_label("Wed").check()
    save_screenshot(page, f"form-embed-{look or 'brand'}")
    page.locator("form button").click()
    expect(page.get_by_role("heading", name="Thank you")).to_be_visible()
    created = find_contact(server, address)
    assert created is not None
    assert created["data"] == {"drink": "Filter", "days": ["Wed"], "origin": "shop", "fixed": "yes"}
    page.context.close()
    assert not browser_problems.found


def test_errors_of_field_definitions(server: Server) -> None:
    """The API returns all errors of fields and topics at once, and accepts forms stored before fields had types."""
    api = server.client()
    private = api.post("/lists", {"name": "Private"}).expect(201)["id"]
    fields = [
        {"name": "email", "type": "date"}, {"name": "data.a", "type": "select"},
        {"name": "data.b", "type": "radio", "options": ["x", "x"]}, {"name": "data.c", "options": ["x"]},
        {"name": "data.d", "type": "hidden"}, {"name": "data.e", "type": "hidden", "query_parameter": "a b"},
        {"name": "data.f", "value": "x"}, {"name": "data.tags"},
    ]  # fmt: skip
    error = api.post("/forms", {"name": "Wrong", "fields": fields, "topic_ids": [private]}).expect(422)
    assert sorted(error["validation_errors"]) == [
        "fields[0].type", "fields[1].options", "fields[2].options", "fields[3].options", "fields[4].value",
        "fields[5].query_parameter", "fields[6].value", "fields[7]", "topic_ids",
    ]  # fmt: skip
    form = create_form(server, "Old", fields=["email", {"name": "data.city", "label": "Town"}])
    assert "Town" in request_as_visitor(server, "GET", f"/f/{form['public_key']}").text


def test_a_withdrawn_topic_and_a_foreign_list(server: Server) -> None:
    """Only public lists that the form offers can be chosen, whatever is submitted."""
    api = server.client()
    offered, withdrawn, foreign = (
        api.post("/lists", {"name": f"Topic {name}", "public": True}).expect(201)["id"] for name in "abc"
    )
    form = create_form(server, "Topics", double_opt_in=False, topic_ids=[offered, withdrawn], list_ids=[])
    api.patch(f"/lists/{withdrawn}", {"public": False}).expect(200)
    values = {"email": "topics@example.org", "topics": [offered, withdrawn, foreign]}
    server.client(None, validate=False).post(f"/v1/public/forms/{form['public_key']}", values).expect(202)
    created = find_contact(server, "topics@example.org")
    assert created is not None and created["list_ids"] == [offered]
