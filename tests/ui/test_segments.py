"""Segments in the browser: rules found by typing, counted as they change, and checked against contacts."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.conftest import FreshServer
from tests.kit.axe import find_violations_in_light_and_dark
from tests.kit.browser import Problems, choose_option, new_page, save_screenshot, sign_in
from tests.kit.client import Client
from tests.kit.html_page import HtmlPage, select, text_of
from tests.kit.scriptless_browser import ScriptlessBrowser
from tests.kit.server import PASSWORD, Server

CITIES = ("Berlin", "Wien", "Berlin", "Lyon")


@pytest.fixture(scope="module", autouse=True)
def sample_contacts(server: Server, api: Client) -> None:
    """Forty contacts in four cities, half of them in a list, some with orders."""
    list_id = api.post("/lists", {"name": "Newsletter"}).expect(201)["id"]
    for number in range(40):
        fields = {
            "first_name": f"Person {number}", "email": f"p{number}@example.com",
            "list_ids": [list_id] if number % 2 else [],
            "data": {"city": CITIES[number % 4], "orders": number, "<b>odd</b>": number % 3 == 0},
        }  # fmt: skip
        contact = api.post("/contacts", fields).expect(201)
        if number % 5 == 0:
            api.post("/events", {"event": "order_placed", "contact_id": contact["id"], "data": {"total": number}})


def choose_field(page: Page, rule: Locator, query: str) -> None:
    """Choose a field of a rule by typing, with the keyboard alone."""
    rule.locator(".find").first.focus()
    page.keyboard.press("Enter")
    page.get_by_role("combobox", name="Search options").fill(query)
    page.keyboard.press("Enter")


def total(page: Page) -> Locator:
    """Return the line with the number of contacts."""
    return page.locator("#f-total")


def test_building_a_segment(page: Page, api: Client) -> None:
    """Each change updates the sentence, the total and the count of each rule; the segment is saved."""
    page.goto("/segments/new")
    expect(total(page)).to_have_text("40 of 40 contacts")
    page.get_by_label("Name", exact=True).fill("Regulars in Berlin")
    first = page.locator("[data-rule]").first
    choose_field(page, first, "city")
    first.get_by_label("Value").fill("Berlin")
    expect(page.locator(".sentence")).to_have_text("City is “Berlin”.")
    expect(total(page)).to_have_text("20 of 40 contacts (50%)")
    expect(first.get_by_role("button", name="Berlin 20")).to_be_visible()
    page.get_by_role("button", name="Add condition").click()
    second = page.locator("[data-rule]").nth(1)
    expect(second.locator(".find")).to_be_focused()
    choose_field(page, second, "orders custom")
    second.get_by_label("Comparison").select_option("gteq")
    second.get_by_label("Value").fill("20")
    expect(total(page)).to_have_text("10 of 40 contacts (25%)")
    expect(first.locator(".tail")).to_contain_text("20")
    expect(second.locator(".tail")).to_contain_text("20")
    expect(page.locator("#sample tbody tr")).to_have_count(8)
    expect(page.locator("#sample tbody td[data-l=City]").first).to_have_text("Berlin")
    page.get_by_role("button", name="Create segment").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Regulars in Berlin")
    segment = api.get("/segments").expect(200)[0]
    assert segment["filters"] == [
        {"name": "contact_data.city", "predicate": "eq", "value": "Berlin"},
        {"name": "contact_data.orders", "predicate": "gteq", "value": 20},
    ]
    assert segment["contacts_count"] == 10


@pytest.fixture(scope="module")
def shop() -> Iterator[Server]:
    """A shop whose contacts have their revenue as text, what they paid as numbers, and a city.

    The segments are `Old rule` (paid is over the text "100") and `Letters` (revenue is over the text "100").
    """
    server = Server()
    server.set_up()
    server.start()
    api = server.client()
    cities = ("Berlin", "Berlin", "berlin", "Köln", "KÖLN")
    for number, revenue in enumerate(("1.234,50", "89,90", "99,99", "100,00", "2.010,00")):
        paid = float(revenue.replace(".", "").replace(",", "."))
        mixed = paid if number else revenue
        data = {"revenue": revenue, "paid": paid, "mixed": mixed, "city": cities[number]}
        contact = {"email": f"customer{number}@example.com", "data": data, "language": None if number else "sv",
                   "country_code": "AT"}  # fmt: skip
        api.post("/contacts", contact).expect(201)
    for name, field in (("Old rule", "paid"), ("Letters", "revenue")):
        rule = {"name": f"contact_data.{field}", "predicate": "gt", "value": "100"}
        api.post("/segments", {"name": name, "filters": [rule]}).expect(201)
    yield server
    server.close()


@pytest.fixture(scope="module")
def shop_user(shop: Server) -> ScriptlessBrowser:
    """The owner of the shop, whose browser runs no scripts."""
    return ScriptlessBrowser(shop.client())


@pytest.fixture(scope="module")
def shop_page(browser: Browser, shop: Server) -> Iterator[Page]:
    """A page of the shop, signed in as its owner; the module fails on any console error."""
    problems = Problems()
    opened = sign_in(new_page(browser, shop.url, problems, width=1360))
    yield opened
    opened.context.close()
    assert not problems.found


def page_of_rule(user: ScriptlessBrowser, shop: Server, name: str, value: Any) -> HtmlPage:
    """Return the page of a new segment of the shop with one rule."""
    rule = {"name": name, "predicate": "eq", "value": value}
    row = shop.client().post("/segments", {"name": f"{name} {value}", "filters": [rule]}).expect(201)
    return HtmlPage(user, f"/segments/{row['id']}")


@pytest.mark.full
def test_a_comparison_of_texts_says_so(shop_page: Page) -> None:
    """A comparison with stored texts shows at once in which type it compares, and that texts are not amounts."""
    page = shop_page
    page.goto("/segments/new")
    rule = page.locator("[data-rule]").first
    choose_field(page, rule, "revenue")
    rule.get_by_label("Comparison").select_option("gt")
    expect(rule.get_by_label("Value type")).to_have_value("text")
    rule.get_by_label("Value", exact=True).fill("100")
    expect(page.locator(".sentence")).to_have_text("Revenue is over “100” (compared as text).")
    expect(rule.locator(".mind")).to_contain_text("which sorts alphabetically")
    save_screenshot(page, "segments-compared-as-text")
    choose_field(page, rule, "mixed")
    expect(rule.get_by_label("Comparison")).to_have_value("eq")
    rule.get_by_label("Comparison").select_option("gt")
    expect(rule.get_by_label("Value type")).to_have_value("number")
    expect(rule.locator(".mind")).to_have_text("Some values of this field are text. This condition never matches them.")
    choose_field(page, rule, "paid")
    expect(rule.get_by_label("Comparison")).to_have_value("eq")
    rule.get_by_label("Comparison").select_option("gt")
    rule.get_by_label("Value", exact=True).fill("100")
    expect(page.locator(".sentence")).to_have_text("Paid is over 100.")
    expect(rule.get_by_label("Value type")).to_have_count(0)
    expect(rule.locator(".mind")).to_have_count(0)


@pytest.mark.full
def test_a_rule_of_another_type_is_corrected_with_one_click(shop_page: Page) -> None:
    """A stored rule that compares numbers as text matches nobody, says so, and is corrected by its button."""
    page = shop_page
    page.goto("/segments")
    page.get_by_role("link", name="Old rule", exact=True).click()
    expect(total(page)).to_contain_text("0 of 5 contacts")
    warning = page.locator(".mind")
    expect(warning).to_contain_text("This condition compares as text, but the values of this field are numbers.")
    assert find_violations_in_light_and_dark(page) == []
    save_screenshot(page, "segments-other-type")
    warning.get_by_role("button", name="Compare as a number").click()
    expect(total(page)).to_contain_text("2 of 5 contacts")
    expect(warning).to_have_count(0)
    expect(page.locator("#sample tbody")).to_contain_text("2010")
    expect(page.locator("#sample tbody")).not_to_contain_text("2010.0")


def test_the_composer_warns_of_a_rule_of_another_type(shop_user: ScriptlessBrowser) -> None:
    """The audience of a draft warns if a rule of its segment compares data as another type than it has."""
    page = HtmlPage(shop_user, "/campaigns/new").press("Create campaign")
    [option] = page.all("#f-segment option", "Old rule")
    option.set("selected", "")
    page = page.press(page.named("#card-to button", "Save")[0])
    assert "This condition compares as text, but the values of this field are numbers." in page.text


def test_suggested_values_ignore_case(shop_user: ScriptlessBrowser, shop: Server) -> None:
    """A chip counts the contacts that its rule matches, whatever the case, and is selected in any case."""
    page = page_of_rule(shop_user, shop, "contact_data.city", "berlin")
    berlin, cologne = page.all(".seen button")
    assert (text_of(berlin), berlin.get("class")) == ("Berlin 3", "merge on")
    assert re.fullmatch("(Köln|KÖLN) 2", text_of(cologne)) and cologne.get("class") == "merge"
    assert "3 of 5 contacts" in text_of(page.one("#f-total"))


def test_sample_contacts_show_names_of_codes(shop_user: ScriptlessBrowser, shop: Server) -> None:
    """A country and a status are shown by name, as in the condition."""
    page = page_of_rule(shop_user, shop, "contact_country", "AT")
    assert page.texts("#sample td[data-l=Country]")[0] == "Austria"
    page = page_of_rule(shop_user, shop, "contact_verification_status", "unverified")
    assert page.texts("#sample td[data-l=Country]") == []
    assert page.texts("#sample td[data-l='Address status']")[0] == "Not confirmed"


@pytest.mark.full
def test_a_language_is_chosen_by_its_name(shop_page: Page) -> None:
    """One or several languages are chosen by name, with or without a region."""
    page = shop_page
    page.goto("/segments/new")
    rule = page.locator("[data-rule]").first
    choose_field(page, rule, "language")
    choose_option(page, "Value", "Swedish")
    expect(page.locator(".sentence")).to_contain_text("Language is Swedish")
    expect(page.locator("#sample td[data-l=Language]")).to_have_text("Swedish")
    rule.get_by_label("Comparison").select_option("in")
    expect(rule.get_by_role("checkbox", name="Swedish")).to_be_checked()
    choose_option(page, "Add a value", "Portuguese (Brazil)")
    save_screenshot(page, "segments-languages")
    expect(page.locator(".sentence")).to_contain_text("Language is one of Swedish or Portuguese (Brazil)")


def test_the_field_of_enrichment_is_in_plain_words(shop_user: ScriptlessBrowser) -> None:
    """The picker says what it means that a contact is enriched."""
    [option, *_] = HtmlPage(shop_user, "/segments/new").texts("option[value=contact_enriched]")
    assert option == "Has data from an enrichment service"


@pytest.mark.full
def test_a_number_fits_on_a_phone(shop_page: Page) -> None:
    """On a phone the field of a number shows the number in full."""
    page = shop_page
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto("/segments/new")
    rule = page.locator("[data-rule]").first
    choose_field(page, rule, "paid")
    expect(rule.get_by_label("Comparison")).to_have_value("eq")
    rule.get_by_label("Comparison").select_option("gt")
    field = rule.get_by_label("Value", exact=True)
    field.fill("12500.50")
    expect(page.locator(".sentence")).to_have_text("Paid is over 12,500.5.")
    save_screenshot(page, "segments-phone")
    assert field.evaluate("field => field.clientWidth") >= 200
    page.set_viewport_size({"width": 1360, "height": 900})


def test_page_api_and_split_agree(user: ScriptlessBrowser, api: Client) -> None:
    """For contacts inside and outside, page, API and a flow's split give the same result."""
    filters = [
        {"name": "contact_data.city", "predicate": "in", "value": ["Berlin", "Lyon"]},
        {"name": "group", "predicate": "any", "value": [
            {"name": "event", "predicate": "performed", "value": {"event": "order_placed", "at_least": 1}},
            {"name": "contact_list", "predicate": "present", "value": True},
        ]},
    ]  # fmt: skip
    row = api.post("/segments", {"name": "Agreed", "filters": filters}).expect(201)
    split = {"type": "split", "filters": filters, "yes": [{"event_name": "said_yes"}], "no": []}
    flow = api.post("/flows", {"name": "Agreed", "trigger": {"event": "asked"}, "steps": [split]}).expect(201)
    page = HtmlPage(user, f"/segments/{row['id']}")
    assert f"{row['contacts_count']} of 40 contacts" in text_of(page.one("#f-total"))
    inside = [int(link.attrib["href"].rsplit("/", 1)[1]) for link in page.all("#sample a.person")]
    assert len(inside) == 8
    outside = [contact_row["id"] for contact_row in api.all("/contacts") if contact_row["data"]["city"] == "Wien"][:1]
    for contact_id in inside[:2] + outside:
        expected = contact_id in inside
        contact = api.get(f"/contacts/{contact_id}").expect(200)
        assert api.get(f"/segments/{row['id']}/explain", contact_id=contact_id).expect(200)["matches"] is expected
        page.fill("Name or address", contact["channels"][0]["value"])
        results = page.press(page.named("#check button", "Search")[0])
        [hit] = [each for each in results.all(".hits button") if text_of(each).endswith(contact["first_name"])]
        checked = results.press(hit)
        sentence = "is in this segment." if expected else "is not in this segment."
        assert checked.texts("#check [role=status]") == [f"{contact['first_name']} {sentence}"]
        assert len(select(checked.all("#check .answers")[0], "li")) >= 2
        simulation: Any = api.post(f"/flows/{flow['id']}/simulate", {"contact_id": contact_id}).expect(200)
        assert ("“Said yes”" in str(simulation)) is expected, simulation


def test_moving_and_grouping_rules(page: Page, api: Client) -> None:
    """Rules are moved by keys and mouse, duplicated, removed and grouped; moves are announced."""
    filters = [{"name": name, "predicate": "present", "value": True} for name in ("first_name", "email", "country")]
    row = api.post("/segments", {"name": "Moved", "filters": filters}).expect(201)
    page.goto(f"/segments/{row['id']}")
    rules = page.locator("#f-rules > .rules > li")
    rules.nth(2).locator("[data-grip]").focus()
    with page.expect_response("**/segments/rows"):
        page.keyboard.press("ArrowUp")
    page.wait_for_timeout(100)  # until the new rows are there, which must not remove the announcement
    expect(page.locator("[data-moved]")).to_have_text("Condition 2 of 3")
    expect(page.locator("#f-2 [data-grip]")).to_be_focused()
    rules.nth(0).get_by_role("button", name="More actions for this condition").click()
    page.get_by_role("button", name="Duplicate", exact=True).last.click()
    expect(rules).to_have_count(4)
    rules.nth(1).get_by_role("button", name="Remove condition").click()
    expect(rules).to_have_count(3)
    expect(rules.nth(1).locator(".find").first).to_be_focused()
    box, other = rules.nth(0).locator("[data-grip]").bounding_box(), rules.nth(2).bounding_box()
    assert box is not None and other is not None
    page.mouse.move(box["x"] + 8, box["y"] + 8)
    page.mouse.down()
    page.mouse.move(box["x"] + 8, other["y"] + other["height"] + 4, steps=8)
    page.mouse.up()
    page.get_by_role("button", name="Add group").click()
    expect(page.locator(".rule.group .rule")).to_have_count(2)
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.locator(".toast")).to_contain_text("Saved")
    saved_filters = api.get(f"/segments/{row['id']}").expect(200)["filters"]
    assert [rule["name"] for rule in saved_filters] == ["country", "email", "first_name"]


def test_an_incomplete_rule_is_an_error(user: ScriptlessBrowser) -> None:
    """Saving shows the error at the rule and keeps all input."""
    page = HtmlPage(user, "/segments/new")
    page.fill("Name", "Unfinished")
    page.one("#f-n0-name [value=contact_first_name]").set("selected", "")
    page = page.press("Add condition")
    page = page.press(page.named("button", "Remove condition")[-1]).press("Create segment")
    assert "This field is required" in text_of(page.one("[data-rule] .err"))
    assert page.value("Name") == "Unfinished"
    assert page.name_of(page.one("[data-rule] [aria-invalid=true]")).startswith("Value")


def test_segments_without_javascript(user: ScriptlessBrowser, api: Client) -> None:
    """Rules are added, chosen, removed and saved with plain buttons."""
    page = HtmlPage(user, "/segments/new")
    page.fill("Name", "Bare")
    page.one("#f-n0-name [value=contact_list]").set("selected", "")
    page = page.press("Add condition")
    [newsletter] = page.all("#f-n0-value option", "Newsletter")
    newsletter.set("selected", "")
    page = page.press(page.named("button", "Remove condition")[-1]).press("Create segment")
    assert page.texts(".sentence") == ["On the list “Newsletter”."]
    assert page.texts("#f-total") == ["20 of 40 contacts (50%)"]
    assert api.get("/segments").expect(200)[0]["contacts_count"] == 20


def test_deleting_a_segment(user: ScriptlessBrowser, api: Client) -> None:
    """Deleting can be undone; a segment in use is not deleted, and its uses are named."""
    row = api.post("/segments", {"name": "Short lived"}).expect(201)
    page = HtmlPage(user, f"/segments/{row['id']}").press("Delete")
    assert api.get(f"/segments/{row['id']}").status == 404
    page = page.press("Undo")
    assert page.title == "Short lived"
    segment_id = int(page.path.rsplit("/", 1)[1])
    api.post("/lists", {"name": "Its mirror", "segment_id": segment_id}).expect(201)
    page = page.reload()
    assert page.has(".banner", "used in 1 place")
    page = page.press("Delete")
    assert page.has("main", "Its mirror")
    assert api.get(f"/segments/{segment_id}").status == 200


def test_the_filter_builder_is_accessible(page: Page, api: Client) -> None:
    """With every kind of rule axe finds no faults in either theme, and nothing scrolls sideways at 320 px."""
    filters: list[dict[str, Any]] = [
        {"name": "contact_list", "predicate": "in", "value": [1]},
        {"name": "contact_data.city", "predicate": "in", "value": ["Berlin", "Wien"]},
        {"name": "contact_created_at", "predicate": "between", "value": ["2026-01-01", "2099-01-01T10:00:00Z"]},
        {"name": "contact_data.<b>odd</b>", "predicate": "eq", "value": True},
        {"name": "email_open_count", "predicate": "between", "value": [0, 5]},
        {"name": "group", "predicate": "none", "value": [
            {"name": "event", "predicate": "performed", "value": {
                "event": "order_placed", "at_least": 1, "at_most": 3, "within_days": 30, "since": "2026-01-01",
                "where": [{"name": "event.total", "predicate": "gt", "value": 1000}]}},
            {"name": "contact_verification_status", "predicate": "eq", "value": "suppressed"}]},
    ]  # fmt: skip
    row = api.post("/segments", {"name": "Everything", "filters": filters}).expect(201)
    page.goto(f"/segments/{row['id']}")
    expect(total(page)).to_contain_text("of 40 contacts")
    save_screenshot(page, "segment")
    assert find_violations_in_light_and_dark(page) == []
    page.set_viewport_size({"width": 320, "height": 700})
    assert page.evaluate("document.documentElement.scrollWidth") <= 320
    save_screenshot(page, "segment-phone")
    page.set_viewport_size({"width": 1360, "height": 900})
    page.goto("/segments")
    assert find_violations_in_light_and_dark(page) == []


def test_a_viewer_sees_no_save_buttons(browser: Browser, server: Server, api: Client) -> None:
    """A viewer can try rules, and has no button to save or delete."""
    row = api.post("/segments", {"name": "Seen"}).expect(201)
    server.cli("user", "add", "--email", "viewer@example.org", "--role", "viewer", stdin=PASSWORD + "\n")
    problems = Problems()
    page = sign_in(new_page(browser, server.url, problems), "viewer@example.org")
    page.goto(f"/segments/{row['id']}")
    expect(page.get_by_role("button", name=re.compile("^(Save|Delete|Duplicate)$"))).to_have_count(0)
    page.get_by_role("button", name="Add condition").click()
    expect(page.locator("[data-rule]")).to_have_count(1)
    page.context.close()
    assert problems.found == []


def test_a_viewer_tries_rules_without_javascript(server: Server, api: Client) -> None:
    """Each button of a viewer shows the page with changed rules, and saves nothing."""
    row = api.post("/segments", {"name": "Tried", "filters": []}).expect(201)
    server.cli("user", "add", "--email", "reader@example.org", "--role", "viewer", stdin=PASSWORD + "\n")
    page = HtmlPage(ScriptlessBrowser(api, "reader@example.org"), f"/segments/{row['id']}")
    page = page.press("Add condition")
    assert len(page.all("[data-rule]")) == 1
    page = page.press("Add group")
    assert len(page.all("[data-rule]")) > 2
    page = page.press("Search")
    assert len(page.all("[data-rule]")) > 2
    assert api.get(f"/segments/{row['id']}").expect(200)["filters"] == row["filters"]


def test_fields_are_found_by_the_words_of_marketers(page: Page) -> None:
    """The best match is chosen at once; an event of the account is not offered; "did not happen" needs no number."""
    page.goto("/segments/new")
    rule = page.locator("[data-rule]").first
    for typed, chosen in (("list", "List"), ("newsletter", "List"), ("opened", "Opened an email"),
                          ("bought", "Order placed")):  # fmt: skip
        choose_field(page, rule, typed)
        expect(rule.locator(".find").first).to_have_text(chosen)
    expect(page.locator("#f-n0-name option[value^='event:import_']")).to_have_count(0)
    # The row is drawn for the new event, whose comparison would else be chosen anew
    expect(rule.locator("[name='f.n0.was']")).to_have_value("event:order_placed")
    expect(rule.get_by_label("How often")).to_be_visible()
    rule.get_by_label("Comparison").select_option("not_performed")
    expect(rule.get_by_label("How often")).to_be_hidden()
    rule.get_by_label("When").select_option("days")
    rule.get_by_role("button", name="Filter by event data").click()
    condition = rule.locator("[data-rule]")
    choose_field(page, condition, "total")
    condition.get_by_label("Comparison").select_option("gt")
    condition.get_by_label("Value").fill("20")
    sentence = "“order placed”: never in the last 30 days where Total is over 20."
    expect(page.locator(".sentence")).to_have_text(sentence)
    choose_field(page, rule, "opened a specific")
    expect(condition).to_have_count(0)
    rule.get_by_label("Comparison").select_option("no campaign")
    expect(page.locator(".sentence")).to_have_text("Opened no campaign.")


@pytest.mark.full
def test_ready_made_segments(browser: Browser, fresh_server: FreshServer) -> None:
    """The empty page and the page of a new segment offer segments that open in the builder, named in its language."""
    server = fresh_server()
    api = server.client()
    user = ScriptlessBrowser(api)
    api.post("/contacts", {"email": "new@example.com", "opt_in": True}).expect(201)
    problems = Problems()
    page = sign_in(new_page(browser, server.url, problems))
    page.goto("/segments")
    tiles = page.locator(".tile")
    expect(tiles).to_have_count(4)
    assert find_violations_in_light_and_dark(page) == []
    save_screenshot(page, "segments-ready-made")
    tiles.filter(has_text="New in the last 30 days").get_by_role("button").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("New in the last 30 days")
    expect(page.locator(".sentence")).to_have_text("Date added is within the last 30 days.")
    expect(total(page)).to_have_text("1 of 1 contact")
    for name, sentence in (
        ("Engaged in the last 30 days", "Date of the last email open is within the last 30 days or "
         "date of the last email click is within the last 30 days."),
        ("Not engaged for 90 days", "Is subscribed to email: yes, date added is not within the last 90 days, date of "
         "the last email open is not within the last 90 days and date of the last email click is not within the last "
         "90 days."),
        ("Never opened", "Number of emails sent is at least 1, number of emails opened is at most 0 and number of "
         "emails clicked is at most 0."),
    ):  # fmt: skip
        segment_page = HtmlPage(user, "/segments/new").press(name)
        assert (segment_page.title, segment_page.texts(".sentence")) == (name, [sentence])
    page.goto("/segments/new")
    assert find_violations_in_light_and_dark(page) == []
    page.set_viewport_size({"width": 320, "height": 700})
    assert page.evaluate("document.documentElement.scrollWidth") <= 320
    save_screenshot(page, "segments-ready-made-phone")
    assert len(api.get("/segments").expect(200)) == 4
    page.context.close()
    assert problems.found == []
    assert len(HtmlPage(ScriptlessBrowser(api, language="de"), "/segments/new").all(".ready button")) == 4
