"""The page of a contact: consent, lists and tags, custom data, and merging."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.kit import axe
from tests.kit.browser import choose_option
from tests.kit.client import Client
from tests.kit.html_page import HtmlPage, select, text_of
from tests.kit.scriptless_browser import ScriptlessBrowser
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
    expect(page.locator(".toast")).to_contain_text("Tag “regular” added to 1 contact.")
    page.get_by_role("button", name="Remove the tag regular").click()
    expect(page.get_by_text("No tags.")).to_be_visible()
    page.get_by_role("button", name="Undo").click()
    expect(page.locator(".held")).to_contain_text("regular")
    page.locator(".adds").first.get_by_role("button", name="Add").click()
    expect(page.get_by_role("button", name="Remove from Workshop")).to_be_visible()
    assert api.get(f"/contacts/{anna}").json["list_ids"] == [1]


@pytest.mark.full
def test_custom_data_keeps_its_types(
    browser_page: Page, user: ScriptlessBrowser, api: Client, anna: int
) -> None:  # fmt: skip
    """Booleans, numbers and nested values keep their types; an invalid value is an error at its row."""
    page = browser_page
    before = api.get(f"/contacts/{anna}").json["data"]
    assert HtmlPage(user, f"/contacts/{anna}/edit").press("Save").has(".toast", "Saved.")
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


def test_numbers_with_a_decimal_comma(user: ScriptlessBrowser, api: Client) -> None:
    """A number field reads 89,90 and 1.234,50, and refuses 1,234, which has two meanings; whole numbers have no .0."""
    data = {"revenue": 2010.0, "german": 1, "english": 1, "unclear": 1}
    person = api.post("/contacts", {"email": "comma@example.org", "data": data}).expect(201)["id"]
    page = HtmlPage(user, f"/contacts/{person}/edit")
    assert page.value("Value of Revenue") == "2010"
    for name, text in (("revenue", "89,90"), ("german", "1.234,50"), ("english", "1.234"), ("unclear", "1,234")):
        page.fill(f"Value of {name.capitalize()}", text)
    page = page.press("Save")
    assert page.texts("#data .err") == ["Enter a number, like 1250, 89.90 or 89,90."]
    page.fill("Value of Unclear", "1234")
    assert page.press("Save").has(".toast", "Saved.")
    stored = api.get(f"/contacts/{person}").json["data"]
    assert stored == {"revenue": 89.9, "german": 1234.5, "english": 1.234, "unclear": 1234}


def test_data_keeps_the_headings_of_its_file(user: ScriptlessBrowser, api: Client) -> None:
    """Imported data is labelled with the heading of the file, other data with its key, also in the fields of rules."""
    wait_for_import(api, upload(api, "E-Mail;Kd.-Nr.;umsatz\r\nheading@example.org;1000;5\r\n"))
    (person,) = api.get("/contacts", search="heading@example.org").json
    page = HtmlPage(user, f"/contacts/{person['id']}")
    card = page.one("section", "Custom fields")
    assert [text_of(term) for term in select(card, "dt")] == ["Kd.-Nr.", "Umsatz"]
    [option, *_] = HtmlPage(user, "/segments/new").all("option[value='data.kd_nr'], option[value='contact_data.kd_nr']")
    assert text_of(option) == "Kd.-Nr."


def test_a_phone_number_of_the_chosen_country(user: ScriptlessBrowser, api: Client) -> None:
    """A number without a country code belongs to the country that is chosen in the form."""
    page = HtmlPage(user, "/contacts/new")
    page.fill("First name", "Greta")
    page.fill("Phone", "0171 5556677")
    assert "a local number of the selected country" in page.text
    page = page.press("Add contact")
    assert page.all("#f-phone-err")
    page.fill("Country", "Germany")
    assert page.press("Add contact").title == "Greta"
    (greta,) = api.get("/contacts", search="Greta").json
    assert [channel["value"] for channel in greta["channels"]] == ["+491715556677"]


def test_a_typo_in_the_domain_of_an_address_gets_a_hint(
    browser_page: Page, user: ScriptlessBrowser, api: Client
) -> None:
    """The form asks at once, saves the address as it is, and the page of the contact asks again with a link."""
    page = browser_page
    page.goto("/contacts/new")
    email, hint = page.get_by_label("Email", exact=True), page.locator("#email-typo")
    email.fill("ann@gmail.con")
    email.press("Tab")
    expect(hint).to_have_text("Did you mean ann@gmail.com?")
    assert axe.find_violations_in_light_and_dark(page) == []
    email.fill("ann@gmail.com")
    email.press("Tab")
    expect(hint).to_be_empty()
    email.fill("ann@gmail.con")
    page.get_by_role("button", name="Add contact").click()
    expect(page.locator("#consent")).to_contain_text("Did you mean ann@gmail.com?")
    page.locator("#consent").get_by_role("link", name="Edit").click()
    expect(hint).to_have_text("Did you mean ann@gmail.com?")
    form = HtmlPage(user, "/contacts/new")
    form.fill("Email", "ann@example.org")
    assert "Did you mean" not in form.press("Add contact").text


def test_merging_contacts(user: ScriptlessBrowser, api: Client) -> None:
    """A contact of the same name is suggested; after merging the stricter consent applies."""
    body = {"first_name": "Mara", "last_name": "Lind", "email": "mara@example.com", "opt_in": True}
    mara_id = api.post("/contacts", body).expect(201)["id"]
    HtmlPage(user, f"/contacts/{mara_id}").press("Unsubscribe mara@example.com")
    other = {"first_name": "mara", "last_name": "LIND", "email": "ml@example.net", "opt_in": True}
    other_id = api.post("/contacts", other).expect(201)["id"]
    page = HtmlPage(user, f"/contacts/{mara_id}").follow("ml@example.net").press("Merge contacts")
    assert page.has(".toast", "Contacts merged into “Mara Lind”.")
    assert api.get(f"/contacts/{other_id}").status == 404
    merged = api.get(f"/contacts/{mara_id}").json
    assert {channel["value"]: channel["subscribed"] for channel in merged["channels"]} == {
        "mara@example.com": False, "ml@example.net": False}  # fmt: skip


def test_a_taken_address_names_its_owner(user: ScriptlessBrowser, api: Client, anna: int) -> None:
    """The error at a taken address names its contact and links to it."""
    contact_id = api.post("/contacts", {"first_name": "Bo <i>Berg</i>", "email": "bo@example.com"}).expect(201)["id"]
    page = HtmlPage(user, f"/contacts/{contact_id}/edit")
    page.fill("Email", "ANNA@example.com")
    page.fill("Phone", "+44")
    page = page.press("Save")
    assert "Enter the number with its country code" in text_of(page.one("#f-phone-err"))
    error = page.one("#f-email-err")
    assert "This email address already belongs to Anna Kurz." in text_of(error)
    [link] = select(error, "a[href]")
    assert (text_of(link), page.follow(link).title) == ("View contact", "Anna Kurz")


def test_adding_a_contact_with_consent(browser_page: Page, user: ScriptlessBrowser, api: Client) -> None:
    """Without the checkbox a new contact is unsubscribed; with it, evidence is required."""
    form = HtmlPage(user, "/contacts/new")
    assert not form.is_checked("This contact agreed to receive emails")
    assert form.texts("#f-language option")[:4] == ["Unknown", "English", "German", "Spanish"]
    form.fill("Email", "quiet@example.net")
    assert form.press("Add contact").has(".toast", "“quiet@example.net” was added but is not subscribed")
    (quiet,) = api.get("/contacts", search="quiet@example.net").json
    assert not quiet["subscribed_email"]
    page = browser_page
    page.goto("/contacts/new")
    checkbox = page.get_by_label("This contact agreed to receive emails")
    page.get_by_label("Email", exact=True).fill("loud@example.net")
    choose_option(page, "Language", "Portuguese (Brazil)")
    checkbox.check()
    page.get_by_role("button", name="Add contact").click()
    expect(page.get_by_text("Enter how the contact agreed. It is stored as proof of consent.")).to_be_visible()
    expect(checkbox).to_be_checked()
    assert axe.find_violations_in_light_and_dark(page) == []
    page.get_by_label("Proof of consent to emails").fill("Signed at the market")
    page.get_by_role("button", name="Add contact").click()
    expect(page.locator(".toast")).to_contain_text("“loud@example.net” was added and subscribed.")
    (loud,) = api.get("/contacts", search="loud@example.net").json
    shown = HtmlPage(user, f"/contacts/{loud['id']}")
    assert shown.has(".timeline", "Subscribed · Email")
    assert shown.has("main .kv", "Portuguese (Brazil)")
    assert loud["language"] == "pt-BR"
    consents = api.get(f"/contacts/{loud['id']}/consents").json
    assert loud["subscribed_email"]
    assert [row["text"] for row in consents if row["act"] == "opt_in"] == ["Signed at the market"]


def test_consent_is_given_for_each_channel(user: ScriptlessBrowser, api: Client) -> None:
    """A contact who agreed to emails gets no SMS; each channel that is opted in has its own proof."""
    address = {"email": "leni@example.net", "phone": "+4915112345671"}
    user.post("/contacts", **address, opt_in_email="yes", agreed_email="Fair in May")
    (leni,) = api.get("/contacts", search="leni@example.net").json
    assert (leni["subscribed_email"], leni["subscribed_phone"]) == (True, False)
    both = {"opt_in_email": "yes", "agreed_email": "Fair in May", "opt_in_phone": "yes", "agreed_phone": "By text"}
    user.post("/contacts", email="nils@example.net", phone="+4915112345672", **both)
    (nils,) = api.get("/contacts", search="nils@example.net").json
    rows = api.get(f"/contacts/{nils['id']}/consents").json
    assert {row["text"] for row in rows if row["act"] == "opt_in"} == {"Fair in May", "By text"}


def test_a_new_contact_shows_all_errors_in_order(user: ScriptlessBrowser, anna: int) -> None:
    """Missing proof does not hide a taken address and a wrong number; the summary has the order of the form."""
    page = HtmlPage(user, "/contacts/new")
    for label, value in (("Email", "anna@example.com"), ("Phone", "12")):
        page.fill(label, value)
    page.check("This contact agreed to receive emails")
    page = page.press("Add contact")
    assert [link.attrib["href"] for link in page.all(".banner.bad li a")] == [
        "#f-email", "#f-phone", "#f-agreed-email"
    ]  # fmt: skip


def test_a_date_is_edited_in_a_date_field(user: ScriptlessBrowser, api: Client) -> None:
    """A custom field with a date has a date field and stays text in the API; a text or a day that is none does not."""
    data = {"born": "1954-10-17", "never": "2026-02-30", "city": "Bath"}
    contact_id = api.post("/contacts", {"first_name": "Ida", "data": data}).expect(201)["id"]
    page = HtmlPage(user, f"/contacts/{contact_id}/edit")
    fields = page.all("input[name=data_value]")
    assert {field.attrib["value"]: field.get("type", "text") for field in fields} == {
        "1954-10-17": "date", "2026-02-30": "text", "Bath": "text"
    }  # fmt: skip
    page.press("Save")
    assert api.get(f"/contacts/{contact_id}").json["data"] == data


def test_dates_and_numbers_in_the_language_of_the_reader(api: Client) -> None:
    """Custom fields keep their stored values, and are shown as readers write them; so is the time zone."""
    api.patch("/account", {"time_zone": "Europe/Berlin"}).expect(200)
    data = {"birthday": "1964-06-08", "revenue": 12345.67, "since": 1999, "seen": "2026-01-02T10:00:00Z"}
    contact = api.post("/contacts", {"email": "locale@example.com", "data": data}).expect(201)["id"]
    filters = [{"name": "contact_data.birthday", "predicate": "eq", "value": "1964-06-08"},
               {"name": "contact_data.revenue", "predicate": "gt", "value": 12345.5}]  # fmt: skip
    segment = api.post("/segments", {"name": "Born", "filters": filters}).expect(201)
    assert segment["sentence"] == "Birthday is 8 Jun 1964 and Revenue is over 12,345.5"
    for language, birthday, revenue, bound, seen, zone in (
        ("en", "8 Jun 1964", "12,345.67", "12,345.5", "2 Jan 2026, 11:00", "CET"),
        ("de", "8. Juni 1964", "12.345,67", "12.345,5", "2. Jan. 2026, 11:00", "MEZ"),
    ):
        user = ScriptlessBrowser(api, language=language)
        page = HtmlPage(user, f"/contacts/{contact}")
        assert {birthday, revenue, "1999", seen} <= set(page.texts("dl.kv dd"))
        assert re.search(f"{zone}$|MESZ$|CEST$", page.all("#happened time")[0].attrib["title"])
        page = HtmlPage(user, f"/segments/{segment['id']}")
        sentence = text_of(page.one(".sentence"))
        assert birthday in sentence and bound in sentence
        cells = page.texts("#sample tbody td")
        assert (cells.count(birthday), cells.count(revenue)) == (1, 1)
    assert api.get(f"/contacts/{contact}").expect(200)["data"] == data
