"""The page of a contact: consent, lists and tags, custom data, and merging."""

import re

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.kit import axe
from tests.kit.browser import Problems, choose_option, new_page, save_screenshot, sign_in
from tests.kit.client import Client
from tests.kit.server import Server
from tests.kit.uploads import upload, wait_for_import

DATA = {"city": "Bath", "vip": True, "visits": 14, "sizes": ["S", "M"], "home": {"zip": "BA1", "geo": {"lat": 51.4}}}


@pytest.fixture(scope="module")
def anna(api: Client) -> int:
    """A contact with consent and data of every kind, and a list that she is not in."""
    api.post("/lists", {"name": "Workshop"}).expect(201)
    body = {"first_name": "Anna", "last_name": "Kurz", "email": "anna@example.com", "data": DATA,
            "opt_in": True, "consent_source": "Signed at the market"}  # fmt: skip
    return int(api.post("/contacts", body).expect(201)["id"])


def test_consent_and_its_evidence(browser_page: Page, anna: int) -> None:
    """The page shows consent with its evidence, and an opt-out with who did it."""
    page = browser_page
    page.goto(f"/contacts/{anna}")
    card = page.locator("#consent")
    expect(card).to_contain_text("Subscribed · today")
    expect(card).to_contain_text("through the API")
    card.get_by_text("Consent history").click()
    expect(card.locator("q")).to_have_text("Signed at the market")
    card.get_by_role("button", name="Unsubscribe anna@example.com").click()
    expect(page.locator("#consent")).to_contain_text("Unsubscribed · today")
    expect(page.locator("#consent")).to_contain_text("by owner · in Campanero")
    page.get_by_role("navigation", name="Filter activity").get_by_role("link", name="Consent").click()
    expect(page.locator("#happened .timeline")).not_to_contain_text("Added")
    expect(page.locator("#happened .timeline")).to_contain_text("Unsubscribed")
    assert axe.find_violations_in_light_and_dark(page) == []


def test_lists_and_tags(browser_page: Page, api: Client, anna: int) -> None:
    """Lists and tags are added and removed on the page, with undo."""
    page = browser_page
    page.goto(f"/contacts/{anna}")
    page.get_by_label("New tag").fill("regular")
    page.get_by_label("New tag").press("Enter")
    expect(page.locator(".toast")).to_contain_text("Tag regular added to 1 contact.")
    page.get_by_role("button", name="Remove the tag regular").click()
    expect(page.get_by_text("No tags.")).to_be_visible()
    page.get_by_role("button", name="Undo").click()
    expect(page.locator(".held")).to_contain_text("regular")
    page.locator(".adds").first.get_by_role("button", name="Add").click()
    expect(page.get_by_role("button", name="Remove from Workshop")).to_be_visible()
    assert api.get(f"/contacts/{anna}").json["list_ids"] == [1]


def test_custom_data_keeps_its_types(browser_page: Page, api: Client, anna: int) -> None:
    """Booleans, numbers and nested values keep their types; an invalid value is an error at its row."""
    page = browser_page
    before = api.get(f"/contacts/{anna}").json["data"]
    page.goto(f"/contacts/{anna}/edit")
    page.get_by_role("button", name="Save").last.click()
    expect(page.locator(".toast")).to_contain_text("Saved.")
    assert api.get(f"/contacts/{anna}").json["data"] == before
    page.goto(f"/contacts/{anna}/edit")
    page.get_by_label("Value of visits").fill("many")
    page.get_by_label("Value of vip").select_option("no")
    page.get_by_role("button", name="Save").last.click()
    expect(page.get_by_label("Value of visits")).to_be_focused()
    expect(page.locator("#data .err")).to_contain_text("Enter a number")
    page.get_by_label("Value of visits").fill("15.5")
    keys = page.locator("#data input[name=data_key]")
    row_count = keys.count()
    page.get_by_role("button", name="Remove sizes").click()
    expect(keys).to_have_count(row_count - 1)
    page.get_by_role("button", name="Add field").click()
    expect(keys).to_have_count(row_count)
    page.locator("#data input[name=data_key]").last.fill("shoe")
    page.locator("#data [name=data_value]").last.fill("42")
    page.get_by_role("button", name="Save").last.click()
    expect(page.locator(".toast")).to_contain_text("Saved.")
    after = api.get(f"/contacts/{anna}").json["data"]
    expected = {**before, "vip": False, "visits": 15.5, "shoe": "42"}
    del expected["sizes"]
    assert after == expected


def test_numbers_with_a_decimal_comma(browser_page: Page, api: Client) -> None:
    """A number field reads 89,90 and 1.234,50, and refuses 1,234, which has two meanings; whole numbers have no .0."""
    page = browser_page
    data = {"revenue": 2010.0, "german": 1, "english": 1, "unclear": 1}
    person = api.post("/contacts", {"email": "comma@example.org", "data": data}).expect(201)["id"]
    page.goto(f"/contacts/{person}/edit")
    expect(page.get_by_label("Value of revenue")).to_have_value("2010")
    page.get_by_label("Value of revenue").fill("89,90")
    page.get_by_label("Value of german").fill("1.234,50")
    page.get_by_label("Value of english").fill("1.234")
    page.get_by_label("Value of unclear").fill("1,234")
    page.get_by_role("button", name="Save").last.click()
    expect(page.locator("#data .err")).to_have_text("Enter a number, like 1250, 89.90 or 89,90.")
    page.get_by_label("Value of unclear").fill("1234")
    page.get_by_role("button", name="Save").last.click()
    expect(page.locator(".toast")).to_contain_text("Saved.")
    stored = api.get(f"/contacts/{person}").json["data"]
    assert stored == {"revenue": 89.9, "german": 1234.5, "english": 1.234, "unclear": 1234}


def test_data_keeps_the_headings_of_its_file(browser_page: Page, api: Client) -> None:
    """Imported data is labelled with the heading of the file, other data with its key, which is found in the picker."""
    page = browser_page
    wait_for_import(api, upload(api, "E-Mail;Kd.-Nr.;umsatz\r\nheading@example.org;1000;5\r\n"))
    (person,) = api.get("/contacts", search="heading@example.org").json
    page.goto(f"/contacts/{person['id']}")
    expect(page.get_by_role("region", name="Custom fields").locator("dt")).to_have_text(["Kd.-Nr.", "Umsatz"])
    save_screenshot(page, "person-headings")
    page.goto("/segments/new")
    page.locator(".find").first.click()
    page.get_by_role("combobox", name="Search options").fill("kd_nr")
    page.keyboard.press("Enter")
    expect(page.locator(".find").first).to_have_text("Kd.-Nr.")


def test_a_phone_number_of_the_chosen_country(browser_page: Page, api: Client) -> None:
    """A number without a country code belongs to the country that is chosen in the form."""
    page = browser_page
    page.goto("/contacts/new")
    page.get_by_label("First name").fill("Greta")
    page.get_by_label("Phone").fill("0171 5556677")
    expect(page.get_by_text("a local number of the selected country")).to_be_visible()
    page.get_by_role("button", name="Add contact").click()
    expect(page.locator("#f-phone-err")).to_be_visible()
    choose_option(page, "Country", "germany")
    page.get_by_role("button", name="Add contact").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Greta")
    (greta,) = api.get("/contacts", search="Greta").json
    assert [channel["value"] for channel in greta["channels"]] == ["+491715556677"]


def test_merging_contacts(browser_page: Page, api: Client, anna: int) -> None:
    """A contact of the same name is suggested; after merging the stricter consent applies."""
    page = browser_page
    other = {"first_name": "anna", "last_name": "KURZ", "email": "ak@example.net", "opt_in": True}
    other_id = api.post("/contacts", other).expect(201)["id"]
    page.goto(f"/contacts/{anna}")
    page.get_by_role("link", name="ak@example.net").click()
    page.get_by_role("button", name="Merge contacts").click()
    expect(page.locator(".toast")).to_contain_text("Contacts merged into Anna Kurz.")
    assert api.get(f"/contacts/{other_id}").status == 404
    merged = api.get(f"/contacts/{anna}").json
    assert {channel["value"]: channel["subscribed"] for channel in merged["channels"]} == {
        "anna@example.com": False, "ak@example.net": False}  # fmt: skip


def test_a_taken_address_names_its_owner(browser_page: Page, api: Client, anna: int) -> None:
    """The error at a taken address names its contact and links to it."""
    contact_id = api.post("/contacts", {"first_name": "Bo <i>Berg</i>", "email": "bo@example.com"}).expect(201)["id"]
    browser_page.goto(f"/contacts/{contact_id}/edit")
    browser_page.get_by_label("Email").fill("ANNA@example.com")
    browser_page.get_by_label("Phone").fill("+44")
    browser_page.get_by_role("button", name="Save").last.click()
    expect(browser_page.locator("#f-phone-err")).to_contain_text("Enter the number with its country code")
    expect(browser_page.locator("#f-email-err")).to_contain_text("This email address already belongs to Anna Kurz.")
    browser_page.locator("#f-email-err").get_by_role("link", name="View contact").click()
    expect(browser_page.get_by_role("heading", level=1)).to_have_text("Anna Kurz")


def test_adding_a_contact_with_consent(browser_page: Page, api: Client) -> None:
    """Without the checkbox a new contact is unsubscribed; with it, evidence is required."""
    page = browser_page
    page.goto("/contacts/new")
    checkbox = page.get_by_label("This contact agreed to receive messages")
    expect(checkbox).not_to_be_checked()
    page.get_by_label("Email").fill("quiet@example.net")
    page.get_by_role("button", name="Add contact").click()
    expect(page.locator(".toast")).to_contain_text("quiet@example.net was added but is not subscribed")
    (quiet,) = api.get("/contacts", search="quiet@example.net").json
    assert not quiet["subscribed_email"]
    page.goto("/contacts/new")
    page.get_by_label("Email").fill("loud@example.net")
    languages = page.locator("#f-language option").all_text_contents()
    assert languages[:4] == ["Unknown", "English", "German", "Spanish"]
    choose_option(page, "Language", "Portuguese (Brazil)")
    checkbox.check()
    page.get_by_role("button", name="Add contact").click()
    expect(page.get_by_text("Enter how the contact agreed. It is stored as proof of consent.")).to_be_visible()
    expect(checkbox).to_be_checked()
    assert axe.find_violations_in_light_and_dark(page) == []
    page.get_by_label("Proof of consent").fill("Signed at the market")
    page.get_by_role("button", name="Add contact").click()
    expect(page.locator(".toast")).to_contain_text("loud@example.net was added and subscribed.")
    page.goto(f"/contacts/{api.get('/contacts', search='loud@example.net').json[0]['id']}")
    expect(page.locator(".timeline")).to_contain_text("Subscribed · Email")
    expect(page.locator("main .kv")).to_contain_text("Portuguese (Brazil)")
    (loud,) = api.get("/contacts", search="loud@example.net").json
    assert loud["language"] == "pt-BR"
    consents = api.get(f"/contacts/{loud['id']}/consents").json
    assert loud["subscribed_email"]
    assert [row["text"] for row in consents if row["act"] == "opt_in"] == ["Signed at the market"]


def test_dates_and_numbers_in_the_language_of_the_reader(
    browser: Browser, server: Server, api: Client, browser_page: Page
) -> None:
    """Custom fields keep their stored values, and are shown as readers write them; so is the time zone."""
    api.patch("/account", {"time_zone": "Europe/Berlin"}).expect(200)
    data = {"birthday": "1964-06-08", "revenue": 12345.67, "since": 1999, "seen": "2026-01-02T10:00:00Z"}
    contact = api.post("/contacts", {"email": "locale@example.com", "data": data}).expect(201)["id"]
    filters = [{"name": "contact_data.birthday", "predicate": "eq", "value": "1964-06-08"},
               {"name": "contact_data.revenue", "predicate": "gt", "value": 12345.5}]  # fmt: skip
    segment = api.post("/segments", {"name": "Born", "filters": filters}).expect(201)
    assert segment["sentence"] == "Birthday is 8 Jun 1964 and Revenue is over 12,345.5"
    problems = Problems()
    german = sign_in(new_page(browser, server.url, problems, locale="de"))
    for page, birthday, revenue, bound, seen, zone in (
        (browser_page, "8 Jun 1964", "12,345.67", "12,345.5", "2 Jan 2026, 11:00", "CET"),
        (german, "8. Juni 1964", "12.345,67", "12.345,5", "2. Jan. 2026, 11:00", "MEZ"),
    ):
        page.goto(f"/contacts/{contact}")
        for text in (birthday, revenue, "1999", seen):
            expect(page.locator("dl.kv dd", has_text=text).first).to_have_text(text)
        expect(page.locator("#happened time").first).to_have_attribute("title", re.compile(f"{zone}$|MESZ$|CEST$"))
        page.goto(f"/segments/{segment['id']}")
        expect(page.locator(".sentence")).to_contain_text(birthday)
        expect(page.locator(".sentence")).to_contain_text(bound)
        expect(page.locator("#sample tbody td", has_text=birthday)).to_have_count(1)
        expect(page.locator("#sample tbody td", has_text=revenue)).to_have_count(1)
    save_screenshot(german, "segment-german")
    german.context.close()
    assert problems.found == []
    assert api.get(f"/contacts/{contact}").expect(200)["data"] == data
