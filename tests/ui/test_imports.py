"""Importing contacts by their pages, from upload to undo: nothing is written before the check.

What scripts, styles or assistive technology need is tested in Chromium, everything else with plain forms.
"""

import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from xml.etree.ElementTree import Element

import pytest
from playwright.sync_api import Page, expect

from appliance.core import addresses
from tests.api.test_threats_pages import Visitor
from tests.kit import axe
from tests.kit.browser import choose_option
from tests.kit.client import Client
from tests.kit.html_page import HtmlPage, select, text_of
from tests.kit.scriptless_browser import ScriptlessBrowser
from tests.kit.server import EMAIL, Server
from tests.kit.uploads import import_results, upload, wait_for_import

FILE = (
    "E-Mail;Vorname;Ort;Kunde seit\nann@example.org;Ann;Bath;2024-05-01\nInfo@shop.example;;York;\n"
    "bad;x;y;\nANN@example.org;Anna;Bath;\n<b>x</b>@example.org;<i>I</i>;;\n"
)  # fmt: skip

CHECK_TITLE = "What this import will do"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A CSV file as Excel writes it: semicolons and a byte order mark."""
    path = tmp_path / "customers.csv"
    path.write_bytes(b"\xef\xbb\xbf" + FILE.encode())
    return path


def upload_file(page: Page, file: Path) -> None:
    """Upload a file and open its columns page."""
    page.goto("/contacts/imports/new")
    page.get_by_label("Drop a CSV file here").set_input_files(file)
    page.get_by_role("button", name="Continue").click()
    expect(page.get_by_role("heading", name="Columns")).to_be_visible()


def at_columns(user: ScriptlessBrowser, file: Path) -> HtmlPage:
    """Upload a file and return the page of its columns, or the form with an error."""
    page = HtmlPage(user, "/contacts/imports/new")
    page.attach("Drop a CSV file here", file.name, file.read_bytes())
    return page.press("Continue")


def checked(user: ScriptlessBrowser, file: Path, *, subscribe: bool = True, sms: bool = True) -> HtmlPage:
    """Upload a file, answer the questions of its columns, and return its check."""
    page = at_columns(user, file)
    page.fill("Source of these contacts", "The shop")
    page.check("Subscribe: they agreed" if subscribe else "Add without subscribing")
    if any(select(field, "option[value=phone][selected]") for field in page.all("#columns td select")):
        page.check("Subscribe to SMS" if sms else "Save numbers without subscribing")
    return check_again(page)


def check_again(page: HtmlPage) -> HtmlPage:
    """Press the button of the columns page, and return the check."""
    return page.press("Check file").reload_until(CHECK_TITLE)


def imported(page: HtmlPage) -> HtmlPage:
    """Import a file that was checked, and return its results."""
    [button] = [each for each in page.all("button") if re.match("(Import|Update) [0-9]+ contact", text_of(each))]
    return page.press(button).reload_until("Import results")


def details_of(page: HtmlPage, title: str) -> Element:
    """Return the folded list of rows with a heading."""
    [details] = [each for each in page.all("details.worth") if text_of(select(each, "h3")[0]) == title]
    return details


def listed(page: HtmlPage, title: str) -> list[str]:
    """Return the rows of a list below a check or result, their cells separated by bars."""
    rows = select(details_of(page, title), "tbody tr")
    return [" | ".join(text_of(cell) for cell in select(row, "td")) for row in rows]


def downloaded(page: HtmlPage, title: str) -> list[str]:
    """Return the lines that the link of a list of rows downloads, without the header."""
    [link] = select(details_of(page, title), "a[href]")
    return page.user.get(link.attrib["href"]).splitlines()[1:]


def figures(page: HtmlPage, stats: str = "dl.stats") -> dict[str, str]:
    """Return the figures of the first statistics that match a selector, by label."""
    [first, *_] = page.all(stats)
    return {text_of(stat[0]): text_of(stat[1]) for stat in select(first, ".stat")}


def data_by_contact(api: Client, search: str) -> dict[str, Any]:
    """Return the data of the contacts that a search finds, by the first two characters of their addresses."""
    return {row["channels"][0]["value"][:2]: row["data"] for row in api.all("/contacts", search=search)}


def test_import_and_undo(browser_page: Page, api: Client, file: Path) -> None:
    """Columns are guessed and changed, the check writes nothing, and the import can be undone."""
    page = browser_page
    upload_file(page, file)
    expect(page.get_by_role("combobox", name="E-Mail")).to_have_value("email")
    expect(page.get_by_role("combobox", name="Vorname")).to_have_value("first_name")
    expect(page.get_by_role("row", name="Ort")).to_contain_text("York")
    page.get_by_label("Name of the custom field for Ort").fill("city")
    page.get_by_role("combobox", name="Kunde seit").select_option("")
    expect(page.get_by_label("Name of the custom field for Kunde seit")).to_be_hidden()
    page.get_by_role("button", name="Check file").click()
    expect(page.get_by_label("Source of these contacts")).to_be_focused()
    expect(page.get_by_label("Name of the custom field for Ort")).to_have_value("city")
    page.get_by_label("Source of these contacts").fill("The fair in May")
    # No choice is preselected, so that consent is a decision
    expect(page.get_by_role("radio", name="Subscribe: they agreed")).not_to_be_checked()
    page.get_by_role("button", name="Check file").click()
    expect(page.get_by_text("Select whether these contacts are subscribed.")).to_be_visible()
    page.get_by_role("radio", name="Subscribe: they agreed").check()
    page.get_by_label("Add all contacts to a list").fill("Fair")
    page.get_by_role("button", name="Check file").click()
    expect(page.get_by_role("heading", name="What this import will do")).to_be_visible()
    lefts = page.locator("dl.stats .stat").evaluate_all("all => all.map(one => one.getBoundingClientRect().left)")
    assert len(lefts) > 6 and lefts[-3:] == lefts[:3]  # both rows of numbers have the same columns
    assert api.get("/contacts").json == [] and api.get("/lists").json == []
    for summary in ("2 rows have problems", "1 row repeats an address", "1 role-based address"):
        page.get_by_text(summary).click()
    expect(page.get_by_text("on line 2")).to_be_visible()
    assert axe.find_violations_in_light_and_dark(page) == []
    with page.expect_download() as download:
        page.get_by_role("link", name="Download these rows with their problems").click()
    lines = Path(download.value.path()).read_text().splitlines()
    assert len(lines) == 3 and "email is invalid: bad" in lines[1]
    page.get_by_role("button", name="Import 2 contacts").click()
    expect(page.get_by_text("2 contacts imported")).to_be_visible()
    contacts = {contact_row["channels"][0]["value"]: contact_row for contact_row in api.all("/contacts")}
    assert contacts["ann@example.org"]["data"] == {"city": "Bath"} and contacts["ann@example.org"]["subscribed_email"]
    assert api.get("/lists").json[0]["contacts_count"] == 2
    page.get_by_role("button", name="Undo import").click()
    expect(page.get_by_role("button", name="Keep import")).to_be_focused()
    page.get_by_role("dialog").get_by_role("button", name="Undo import").click()
    expect(page.get_by_role("status")).to_contain_text("2 new contacts were removed. All contacts were reverted.")
    assert api.get("/contacts").json == []


def test_errors_of_file_and_columns(user: ScriptlessBrowser, file: Path, tmp_path: Path) -> None:
    """An empty file, a missing address column and a field used twice are errors at their place; input is kept."""
    empty = tmp_path / "empty.csv"
    empty.write_text(" \n")
    assert "The file is empty" in text_of(at_columns(user, empty).one("#f-file-err"))
    page = at_columns(user, file)
    page.fill("Source of these contacts", "The fair in May")
    page.fill("E-Mail", "")
    page = page.press("Check file")
    assert "Select the column with the email addresses" in text_of(page.one("[role=alert]"))
    page.fill("E-Mail", "email")
    page.fill("Ort", "first_name")
    page = page.press("Check file")
    assert page.has(".err", "“Vorname” is already mapped to this field")
    assert page.value("Source of these contacts") == "The fair in May"
    page = page.press("Discard")
    assert page.has(".toast", "“customers.csv” was discarded")


@pytest.mark.full
def test_an_error_of_the_columns_page_goes_when_its_field_is_filled(browser_page: Page, tmp_path: Path) -> None:
    """The red text beside a field, and the mark for screen readers, stay no longer than the field is empty.

    The hostile name of the file is text in the form, too.
    """
    page, file = browser_page, tmp_path / "<img src=x onerror=alert(1)>.csv"
    file.write_text(FILE)
    upload_file(page, file)
    expect(page.get_by_role("heading", level=1)).to_have_text(file.name)
    source, choice = (
        page.get_by_label("Source of these contacts"),
        page.locator("#f-opt-in-err").get_by_text("Select whether these contacts"),
    )
    source.fill("")  # the source of the last import with the same columns is proposed
    page.get_by_role("combobox", name="E-Mail").select_option("")
    page.get_by_role("button", name="Check file").click()
    expect(choice).to_be_visible()
    expect(page.locator("#f-columns")).to_contain_text("Select the column with the email addresses")
    expect(source).to_have_attribute("aria-invalid", "true")
    assert axe.find_violations_in_light_and_dark(page) == []
    page.get_by_role("combobox", name="E-Mail").select_option("email")
    source.fill("The fair")
    page.get_by_role("radio", name="Add without subscribing").check()
    expect(page.locator(".err")).to_have_count(0)
    expect(source).not_to_have_attribute("aria-invalid", "true")
    expect(page.get_by_role("group", name="Subscription status")).not_to_have_attribute(
        "aria-describedby", re.compile(".")
    )
    assert axe.find_violations_in_light_and_dark(page) == []


def test_importing_suppressions(user: ScriptlessBrowser, api: Client, tmp_path: Path) -> None:
    """Suppressions are imported with plain forms, and the list of imports shows the result."""
    path = tmp_path / "blocked.csv"
    path.write_text("address,why\nno@example.org,they asked\n")
    page = HtmlPage(user, "/contacts/imports/new")
    page.attach("Drop a CSV file here", path.name, path.read_bytes())
    page.check("Suppression list")
    page = page.press("Continue")
    page.fill("why", "note")
    page = page.press("Check file").reload_until("Import 1 address")
    page = page.press("Import 1 address").reload_until("Import results")
    assert "Imported" in text_of(HtmlPage(user, "/contacts/imports").one("tr", "blocked.csv"))
    assert api.get("/suppressions", address="no@example.org").json[0]["note"] == "they asked"


def test_repeated_and_hostile_imports(user: ScriptlessBrowser, api: Client, tmp_path: Path) -> None:
    """A repeated start imports once; hostile names are text, and invalid files show an error or the columns."""
    odd = tmp_path / "<img src=x onerror=alert(1)>.csv"
    odd.write_text("<script>alert(1)</script>,email\n=1+1,odd@example.org\n")
    page = at_columns(user, odd)
    assert page.title == odd.name and "<script>alert(1)</script>" in page.text
    assert page.all("img") == [] and page.all("script[src]") == page.all("script")
    page.fill("Source of these contacts", "{{ 7 * 7 }}")
    page.check("Subscribe: they agreed")
    page = check_again(page)
    for _ in range(2):
        assert user.submit(f"{page.path}/apply").status == 303
    assert "{{ 7 * 7 }}" in page.reload_until("Import results").text
    assert len(api.get("/contacts", search="odd@").json) == 1
    for action in ("apply", "discard", "stop"):
        assert user.submit(f"{page.path}/{action}").status in (303, 422), action
    assert len(api.get("/contacts", search="odd@").json) == 1
    workbook = b"PK\x03\x04[Content_Types].xml" + bytes(300)
    for name, content in (("a.csv", b"\x00\xff\xfe\x00" * 50), ("b.xlsx", workbook), ("c.csv", b"")):
        (tmp_path / name).write_bytes(content)
        page = at_columns(user, tmp_path / name)
        assert page.all("#f-file-err, #columns"), name
        assert name != "b.xlsx" or "save it as CSV" in text_of(page.one("#f-file-err"))


def test_partial_responses_of_the_import_page(server: Server, api: Client) -> None:
    """An htmx request for part of the page gets that part with its errors."""
    import_id = wait_for_import(api, upload(api, "email\nann@example.org\n"))["id"]
    owner = Visitor(server, EMAIL)
    for target in ("main", "job"):
        headers = {"Cookie": owner.cookie, "Sec-Fetch-Site": "same-origin", "HX-Request": "true"}
        headers |= {"HX-Target": f"div#{target}", "Content-Type": "application/x-www-form-urlencoded"}
        response = owner.api.request("POST", f"/contacts/imports/{import_id}", b"source=", headers)
        assert (
            response.status == 422
            and "<html" not in response.text
            and f"/contacts/imports/{import_id}" in response.text
        )


MESSY = (
    "email;phone;status;joined\nm1@example.org;020 7946 0001;;03/04/2026\nm2@example.org;n/a;unsubscribed;\n"
    "m3@example.org;Ask Bob;;05/04/2026\nm4@example.org;;bounced;\n;Total;;\n"
)  # fmt: skip


def test_the_check_of_a_messy_file(browser_page: Page, user: ScriptlessBrowser, api: Client, tmp_path: Path) -> None:
    """The check counts contacts by status, lists dropped values, and asks for the order of dates."""
    api.patch("/account", {"time_zone": "Europe/London"}).expect(200)
    path = tmp_path / "messy.csv"
    path.write_text(MESSY)
    upload_file(browser_page, path)
    label = "Country of phone numbers without a country code"
    expect(browser_page.locator("#f-default-country")).to_have_value("GB")
    choose_option(browser_page, label, "do not import")
    # The label of a choice is read in full, however narrow its field is
    find = browser_page.locator("#f-default-country-find > span")
    assert find.evaluate("span => span.scrollWidth <= span.clientWidth")
    browser_page.get_by_label("Source of these contacts").fill("The shop")
    expect(browser_page.get_by_role("radio", name="Save numbers without subscribing")).to_be_hidden()
    browser_page.get_by_role("radio", name="Subscribe: they agreed to receive messages").check()
    browser_page.get_by_role("button", name="Check file").click()
    expect(browser_page.get_by_text("Select whether the phone numbers are subscribed to SMS.")).to_be_visible()
    browser_page.get_by_role("radio", name="Save numbers without subscribing").check()
    assert axe.find_violations_in_light_and_dark(browser_page) == []
    browser_page.get_by_role("button", name="Check file").click()
    expect(browser_page.get_by_text("2 rows will be imported without some of their values")).to_be_visible()
    page = HtmlPage(user, urlsplit(browser_page.url).path).follow("Edit settings")
    names = page.texts("#f-default-country option")
    assert "Kosovo" in names and [name for name in names if len(name) == 2] == []
    page.fill(label, "United Kingdom (+44)" if "United Kingdom (+44)" in names else "GB")
    page = check_again(page)
    assert "2 rows have neither yes nor no in “status”." in page.text
    page = page.follow("Edit settings")
    page.check("Subscribe them: they agreed")
    page = check_again(page)
    arriving = figures(page, "dl[aria-label='Contacts by status after the import']")
    assert arriving == {"Subscribed": "2", "Unsubscribed": "1", "Suppressed": "1"}
    assert "1 contact will be imported as unsubscribed: unsubscribed in the file." in page.text
    assert "not subscribed: " not in page.text
    assert "m2@example.org" in listed(page, "1 contact unsubscribed")[0]
    assert "Dates in “joined” can be read in two ways" in page.text
    page = page.press("Day first: 3 April").reload_until(CHECK_TITLE)
    assert "Dates in “joined” can be read in two ways" not in page.text
    title = "1 row will be imported without some of its values"
    assert "Phone: Ask Bob (is not a phone number)" in listed(page, title)[0]
    assert len(downloaded(page, title)) == 1
    imported(page)
    contacts = {contact_row["channels"][0]["value"]: contact_row for contact_row in api.all("/contacts")}
    assert contacts["m1@example.org"]["data"] == {"joined": "2026-04-03"}
    assert [contact_row["value"] for contact_row in contacts["m1@example.org"]["channels"]] == [
        "m1@example.org",
        "+442079460001",
    ]


def test_lost_email_addresses_are_listed_first(user: ScriptlessBrowser, api: Client, tmp_path: Path) -> None:
    """Rows that lose their email address are listed before rows that lose other values."""
    path = tmp_path / "lost.csv"
    rows = [f"k{number}@example.org,n/a?,Germany" for number in range(12)]
    path.write_text("email,phone,country\n" + "\n".join(rows) + "\nann@@example.org,+441632960011,Mars\n")
    page = checked(user, path)
    lost, others, *_ = page.texts("details.worth summary")
    assert "1 row will be imported without its email address" in lost
    assert "12 rows will be imported without" in others
    assert [row.split(" | ")[1] for row in listed(page, lost)] == ["+441632960011"]
    assert "ann@@example.org" in listed(page, lost)[0]
    assert not [row for row in listed(page, others) if "+441632960011" in row]
    page = imported(page)
    assert "1 row was imported without its email address" in page.text
    [contact] = [row for row in api.all("/contacts") if row["channels"][0]["value"] == "k3@example.org"]
    assert contact["country_code"] == "DE"
    page = HtmlPage(user, f"/contacts/{contact['id']}/edit")
    page.fill("Country", "France")
    assert page.press("Save").has(".toast", "Saved")
    assert api.get(f"/contacts/{contact['id']}").json["country_code"] == "FR"


def test_rows_that_lose_other_values(user: ScriptlessBrowser, tmp_path: Path) -> None:
    """Only a row whose sole email address is invalid is listed as losing it; other rows list their lost values.

    A further address is not lost: it is listed with the values that are kept in another field.
    """
    path = tmp_path / "kept.csv"
    path.write_text(
        "email,phone\nphone@kept.example,Ask Bob\nfirst@kept.example; second@kept.example,\n"
        "broken@@kept.example,+441632960012\n"
    )
    page = checked(user, path)
    for verb in ("will be", "was"):
        [lost] = [each for each in page.texts("details.worth h3") if f"1 row {verb} imported without its email" in each]
        [lost_row] = listed(page, lost)
        assert "broken@@kept.example" in lost_row
        [other_row] = listed(page, f"1 row {verb} imported without some of its values")
        assert "phone@kept.example" in other_row and "Phone: Ask Bob (is not a phone number)" in other_row
        [kept_row] = listed(page, "1 row has dates or numbers kept as text, or values moved to another field")
        assert "first@kept.example" in kept_row
        if verb == "will be":
            page = imported(page)


def test_repeated_rows_are_counted_separately(user: ScriptlessBrowser, api: Client, tmp_path: Path) -> None:
    """Check, result and list count repeats of a contact apart from updates; the upload keeps its time."""
    path = tmp_path / "repeats.csv"
    api.post("/contacts", {"email": "old@again.example"}).expect(201)
    path.write_text("email\nold@again.example\nnew@again.example\nNEW@again.example\nnew@again.example\n")
    page = at_columns(user, path)
    import_id = int(re.findall(r"\d+", page.path)[-1])
    uploaded = api.get(f"/imports/{import_id}").json["created_at"]
    page.fill("Source of these contacts", "The shop")
    page.check("Subscribe: they agreed")
    page = check_again(page)
    assert figures(page) == {"New": "1", "To update": "1", "Duplicates": "2", "To skip": "0", "Problems": "0"}
    page = imported(page)
    assert page.has(
        "[role=status]",
        "1 contact imported. 1 row updated an existing contact. 2 rows repeated a contact in the file.",
    )
    assert figures(page) == {"New": "1", "Updated": "1", "Duplicates": "2", "Skipped": "0", "Problems": "0"}
    assert page.has("dialog", "1 new contact will be removed. 1 updated contact will be restored.")
    assert api.get(f"/imports/{import_id}").json["created_at"] == uploaded
    row = HtmlPage(user, "/contacts/imports").one("tr", "repeats.csv")
    assert [text_of(cell) for cell in select(row, "td.num")] == ["1", "1", "0", "0"]
    page = undone(page)
    assert page.has(
        "[role=status]",
        "1 new contact was removed. 1 updated contact was restored. All contacts were reverted.",
    )


def undone(page: HtmlPage) -> HtmlPage:
    """Undo an import by the dialog of its results, and return the page then."""
    [button] = select(page.one("dialog#undo"), "form button.danger")
    return page.press(button).reload_until("Undone")


@pytest.mark.full
def test_the_columns_show_how_full_names_are_split_before_the_import(
    browser_page: Page, user: ScriptlessBrowser, api: Client, tmp_path: Path
) -> None:
    """Three names of the file, those with a comma, a title or several words first, and the contacts get these names.

    The page asks about rows without a status as long as a column has consent and contacts are subscribed.
    """
    page, path = browser_page, tmp_path / "names.csv"
    names = ("Ines Groß", "Tom Bauer", "Uwe Klein", "Kühn, Grace", "Dr. Anna Weiß", "Käthe van der Berg")
    rows = "".join(f"n{number}@split.example;{name};Bath;ja\n" for number, name in enumerate(names))
    path.write_text(f"email;name;town;Newsletter?\n{rows}")
    upload_file(page, path)
    examples = page.locator("tr", has=page.get_by_role("combobox", name="name")).locator(".splits li")
    expect(examples).to_have_text(
        [
            "Kühn, Grace First name: Grace · Last name: Kühn",
            "Dr. Anna Weiß First name: Anna · Last name: Weiß · Title: Dr.",
            "Käthe van der Berg First name: Käthe · Last name: van der Berg",
        ]
    )
    expect(examples.first).to_be_visible()
    page.get_by_role("combobox", name="name").select_option("last_name")
    expect(examples.first).to_be_hidden()
    page.get_by_role("combobox", name="name").select_option("name")
    expect(page.get_by_role("row", name="town").locator(".splits")).to_be_hidden()
    column = page.get_by_role("combobox", name="Newsletter?")
    expect(column).to_have_value("subscribed_email")
    unstated = page.get_by_role("group", name="Rows without a status")
    expect(unstated).to_be_hidden()
    page.get_by_role("radio", name="Subscribe: they agreed").check()
    expect(unstated.get_by_role("radio", name="Do not subscribe them")).to_be_checked()
    expect(examples.first).to_be_visible()
    assert axe.find_violations_in_light_and_dark(page) == []
    column.select_option("")
    expect(unstated).to_be_hidden()
    imported(checked(user, path))
    people = {contact["channels"][0]["value"][:2]: contact for contact in api.all("/contacts", search="split.example")}
    assert [(people[n]["first_name"], people[n]["last_name"]) for n in ("n0", "n3", "n4", "n5")] == [
        ("Ines", "Groß"), ("Grace", "Kühn"), ("Anna", "Weiß"), ("Käthe", "van der Berg"),
    ]  # fmt: skip
    assert people["n4"]["data"] == {"town": "Bath", "name_title": "Dr."} and people["n3"]["data"] == {"town": "Bath"}


def test_the_check_lists_addresses_that_may_have_typos(user: ScriptlessBrowser, api: Client, tmp_path: Path) -> None:
    """The check suggests the domain of a large provider; the addresses are imported as they are."""
    path = tmp_path / "typos.csv"
    path.write_text("email\nann@gmail.con\nbob@hotmial.com\neve@typos.example\nANN@gmail.con\n")
    page = checked(user, path)
    title = "2 addresses may have typos"
    assert [row.split(" | ")[-2:] for row in listed(page, title)] == [
        ["ann@gmail.con", "ann@gmail.com"], ["bob@hotmial.com", "bob@hotmail.com"],
    ]  # fmt: skip
    assert numbers_of(downloaded(page, title)) == [2, 3] and "No problems" not in page.text
    imported(page)
    assert api.get("/contacts", search="ann@gmail.con").json[0]["channels"][0]["subscribed"]


def test_day_numbers_of_a_spreadsheet_become_dates_in_a_column_of_dates(
    browser_page: Page, user: ScriptlessBrowser, api: Client, tmp_path: Path
) -> None:
    """A birthday of 31412 is proposed as a date; the columns page shows the date, and the check says how it is read."""
    page, path = browser_page, tmp_path / "days.csv"
    path.write_text("email;birthday;points\nd1@days.example;31412;45123\nd2@days.example;30000;7\n")
    upload_file(page, path)
    dates = page.get_by_role("row", name="birthday").locator(".dates")
    type_ = page.get_by_role("combobox", name="birthday")
    expect(type_).to_have_value("own-date")
    type_.select_option("Custom field")
    expect(dates).to_be_hidden()
    type_.select_option("Custom field (date)")
    expect(dates.locator("li")).to_have_text([re.compile("31412 .*1985"), re.compile("30000 .*1982")])
    expect(dates.locator("li").first).to_be_visible()
    assert axe.find_violations_in_light_and_dark(page) == []
    columns = at_columns(user, path)
    columns.fill("Source of these contacts", "The shop")
    columns.check("Add without subscribing")
    assert (columns.value("birthday"), columns.value("points")) == ("own-date", "own")
    check = columns.press("Check file").reload_until(CHECK_TITLE)
    assert "birthday is read as a date: 31412 becomes" in check.text and "1985" in check.text
    imported(check)
    data = data_by_contact(api, "days.example")
    assert data == {"d1": {"birthday": "1985-12-31", "points": 45123}, "d2": {"birthday": "1982-02-18", "points": 7}}


def test_the_undo_dialog_counts_what_will_be_removed(user: ScriptlessBrowser, api: Client, tmp_path: Path) -> None:
    """A contact that was changed since the import is not in the number to be removed, and named as staying."""
    path = tmp_path / "undo.csv"
    path.write_text("email,town\nu1@undone.example,Bath\nu2@undone.example,Bath\nu2@undone.example,York\n")
    page = imported(checked(user, path))
    [changed] = api.get("/contacts", search="u1@undone.example").json
    api.patch(f"/contacts/{changed['id']}", {"first_name": "Ann"}).expect(200)
    page = page.reload()
    assert page.has(
        "dialog#undo", "1 new contact will be removed. 1 contact stays: changed or used since then. Lists are kept"
    )
    assert undone(page).has(
        "[role=status]", "1 new contact was removed. 1 contact was not reverted: changed or used since then."
    )


def test_the_example_of_a_phone_number_is_of_the_country_of_the_file(user: ScriptlessBrowser, tmp_path: Path) -> None:
    """Without a number in local form, the example is a number of the country that the others are from."""
    path = tmp_path / "british.csv"
    path.write_text("Email,Phone\nb1@british.example,+44 20 7946 0018\n")
    example = addresses.example_phone("GB")
    assert f"Numbers such as {example} get the country code of this country." in at_columns(user, path).text


def test_the_last_mapping_of_the_same_columns_is_proposed(user: ScriptlessBrowser, tmp_path: Path) -> None:
    """A second file with the same columns is mapped as the first was, with its source; consent is asked again."""
    path = tmp_path / "again.csv"
    path.write_text("E-Mail;Vor- und Nachname;Tel;Ort\nd1@again2.example;Käthe Kollwitz;0171 5556677;Bonn\n")
    page = at_columns(user, path)
    assert page.value("Vor- und Nachname") == "name"
    assert "Numbers such as 0171 5556677 get the country code of this country." in page.text
    page.fill("Name of the custom field for Ort", "City")
    page.fill("Tel", "own-text")
    page.fill("Source of these contacts", "The shop in Bonn")
    page.check("Add without subscribing")
    check_again(page)
    page = at_columns(user, path)
    assert "Mapped as in your last import of these columns." in page.text
    assert page.value("Name of the custom field for Ort") == "City"
    assert page.value("Tel") == "own-text"
    assert page.value("Source of these contacts") == "The shop in Bonn"
    assert not page.is_checked("Add without subscribing")


def test_empty_columns_are_not_imported_unless_selected(user: ScriptlessBrowser, tmp_path: Path) -> None:
    """A column without values is left out, and the check names its values if later rows have some; dates are known."""
    path = tmp_path / "empty.csv"
    lines = [f"e{number}@empty.example,{number % 28 + 1}/11/2025,{'late' if number > 150 else ''},"
             for number in range(160)]  # fmt: skip
    path.write_text("Email,Signup date,Unnamed: 2,Unnamed: 3\n" + "\n".join(lines) + "\n")
    page = at_columns(user, path)
    assert "Empty columns are not imported." in page.text
    values = [page.value(name) for name in ("Signup date", "Unnamed: 2", "Unnamed: 3")]
    assert values == ["opt_in_at", "", ""]
    page = checked(user, path)
    remark = "Unnamed: 2 is not imported, because its first rows are empty, but 9 rows below have a value."
    assert remark in page.text and "Unnamed: 3" not in page.text
    page = page.follow("Edit settings")
    page.fill("Unnamed: 2", "own")
    assert "Unnamed: 2" not in check_again(page).text


CONSENTS = (
    "E-Mail;Tel.;Newsletter?\nc1@consent.example;+49 30 1234567;ja\nc2@consent.example;+49 30 1234568;nein\n"
    "c3@consent.example;+49 30 1234569;\nc4@consent.example;;weiß nicht\n"
)  # fmt: skip


def test_consent_to_email_subscribes_no_phone_number_and_an_empty_cell_nobody(
    user: ScriptlessBrowser, api: Client, tmp_path: Path
) -> None:
    """One page asks all about consent: email, SMS, and rows with neither yes nor no, while a column has consent."""
    path = tmp_path / "consents.csv"
    path.write_text(CONSENTS)
    page = checked(user, path, sms=True)
    assert "1 contact is subscribed to SMS." in page.text
    page.press("Discard import")
    page = checked(user, path, sms=False)
    assert "Phone numbers are saved, but not subscribed to SMS." in page.text
    unstated, arriving = "2 rows have neither yes nor no in “Newsletter?”.", "dl[aria-label^='Contacts by status']"
    for subscribed, outcome, choice in (
        ("1", "These contacts are added without subscribing them.", "Subscribe them: they agreed"),
        ("3", "These contacts are subscribed, as you selected.", "Do not subscribe them"),
    ):
        assert outcome in text_of(page.one("main li", unstated))
        assert figures(page, arriving)["Subscribed"] == subscribed
        page = page.follow("Edit settings")
        assert not page.is_checked(choice)
        page.check(choice)
        page = check_again(page)
    assert "These contacts are added without subscribing them." in text_of(page.one("main li", unstated))
    imported(page)
    people = {row["channels"][0]["value"][:2]: row for row in api.all("/contacts", search="consent.example")}
    assert {name: (row["subscribed_email"], row["subscribed_phone"]) for name, row in people.items()} == {
        "c1": (True, False), "c2": (False, False), "c3": (False, False), "c4": (False, False),
    }  # fmt: skip


AMOUNTS = (
    "E-Mail;Umsatz;Bestellungen;Preis;PLZ\n"
    "a1@amounts.example;1.234,50 €;1.234;auf Anfrage;01067\na2@amounts.example;89,90;2.010;12,50;10115\n"
    "a3@amounts.example;2.010,00;3.100;9,90;20095\n"
)  # fmt: skip


def test_the_check_says_how_amounts_are_read_and_can_keep_them_as_text(
    user: ScriptlessBrowser, api: Client, tmp_path: Path
) -> None:
    """Amounts become numbers, and a person can keep them as text, choose a decimal mark, or skip values with words."""
    path = tmp_path / "amounts.csv"
    path.write_text(AMOUNTS)
    page = checked(user, path)
    assert "Umsatz is read as a number: 1.234,50 € becomes 1234.5." in page.text
    assert "Bestellungen is read as a number: 1.234 becomes 1234." in page.text
    assert "Preis is kept as text, which segments cannot compare as numbers: 1 value" in page.text
    page = page.press("Import the others as numbers").reload_until("Preis is read as a number: 12,50 becomes 12.5.")
    [button] = select(page.one("main li", "Bestellungen is read"), "button")
    assert text_of(button) == "Keep as text"
    page = page.press(button).reload_until("Bestellungen is kept as text, as you selected.")
    page = page.follow("Edit settings")
    assert (page.value("Bestellungen"), page.value("Preis")) == ("own-text", "own-number")
    assert page.field("Name of the custom field for Preis") is not None
    page = check_again(page)
    assert "Bestellungen is kept as text, as you selected." in page.text
    imported(page)
    assert data_by_contact(api, "amounts.example") == {
        "a1": {"umsatz": 1234.5, "bestellungen": "1.234", "preis": "auf Anfrage", "plz": "01067"},
        "a2": {"umsatz": 89.9, "bestellungen": "2.010", "preis": 12.5, "plz": "10115"},
        "a3": {"umsatz": 2010, "bestellungen": "3.100", "preis": 9.9, "plz": "20095"},
    }
    filters = [{"name": "data.umsatz", "predicate": "gt", "value": 100}]
    assert api.post("/segments/count", {"filters": filters}).expect(200)["count"] == 2


def test_the_check_asks_for_the_decimal_mark_of_ambiguous_numbers(
    user: ScriptlessBrowser, api: Client, tmp_path: Path
) -> None:
    """Where neither the values nor the country show the decimal mark, the check asks, and reads as it is told."""
    api.patch("/account", {"time_zone": "UTC"}).expect(200)
    path = tmp_path / "either.csv"
    path.write_text('email,visits\nb1@either.example,"1,234"\nb2@either.example,"2,010"\n')
    page = checked(user, path)
    assert "Numbers in “visits” are ambiguous" in page.text
    page = page.press("Point: 1,234.50").reload_until("visits is read as a number: 1,234 becomes 1234.")
    imported(page)
    assert {data["visits"] for data in data_by_contact(api, "either.example").values()} == {1234, 2010}


def numbers_of(lines: list[str]) -> list[int]:
    """Return the line numbers of downloaded lines."""
    return [int(line.partition(",")[0]) for line in lines]


def test_a_row_that_is_skipped_is_listed_with_its_reason(user: ScriptlessBrowser, api: Client, tmp_path: Path) -> None:
    """An unreadable email address and the phone number of another contact: skipped, not imported without its email.

    Rows with problems are shown with the separator of the file.
    """
    api.post("/contacts", {"email": "ann@skip.example", "phone": "+14155550141"}).expect(201)
    path = tmp_path / "skip.csv"
    path.write_text('email;phone;town\nkeine-email;+14155550141;Bath\nbob@skip.example;;Bath\nbad;;"York; Ouse"\n')
    page = checked(user, path)
    why = "Email: keine-email (is not an email address); its phone number belongs to another contact."
    for skipped, problems in (
        ("1 row will be skipped", "1 row has a problem and will not be imported"),
        ("1 row was skipped", "1 row was not imported"),
    ):
        assert listed(page, skipped) == [f"2 | +14155550141 | {why}"]
        assert [line[:10] for line in downloaded(page, skipped)] == ["2,skipped,"]
        assert not page.has("h3", "its email address")
        assert listed(page, problems) == ['4 | bad;;"York; Ouse" | Email is invalid: bad.']
        if "will" in skipped:
            page = imported(page)
    assert figures(page)["Skipped"] == "1"


def test_contacts_added_without_subscribing_are_called_not_subscribed(
    user: ScriptlessBrowser, api: Client, tmp_path: Path
) -> None:
    """They never subscribed; only who unsubscribed, in the file or before, is called unsubscribed."""
    left = api.post("/contacts", {"email": "left@never.example"}).expect(201)
    api.patch(f"/contacts/{left['id']}", {"subscribed_email": False}).expect(200)
    path = tmp_path / "never.csv"
    path.write_text(
        "email,status,phone\none@never.example,,+14155550142\ntwo@never.example,,\nout@never.example,unsubscribed,\n"
        "left@never.example,,\n"
    )
    page = checked(user, path, subscribe=False)
    never, out = "2 contacts not subscribed", "2 contacts unsubscribed"
    for is_done in (False, True):
        assert figures(page, "dl[aria-label='Contacts by status after the import']") == {
            "Subscribed": "0", "Not subscribed": "2", "Unsubscribed": "2", "Suppressed": "0",
        }  # fmt: skip
        assert listed(page, out) == [
            "4 | out@never.example | Unsubscribed in the file.", "5 | left@never.example | Unsubscribed before.",
        ]  # fmt: skip
        assert "2 | one@never.example | Not subscribed by this import." in listed(page, never)
        assert (numbers_of(downloaded(page, never)), numbers_of(downloaded(page, out))) == ([2, 3], [4, 5])
        if not is_done:
            page = imported(page)


def test_values_left_out_and_dates_kept_as_text_are_two_lists(
    user: ScriptlessBrowser, api: Client, tmp_path: Path
) -> None:
    """A row with both is in both; a date with a year of two digits is read, and never lies in the future."""
    path = tmp_path / "dates.csv"
    path.write_text(
        "email;phone;born\nd1@text.example;;31.12.79\nd2@text.example;Ask Bob;1.2.03\nd3@text.example;;in May\n"
        "d4@text.example;Ask Eve;unknown\nd5@text.example;;03.04.1985\nd6@text.example;;05.06.99\n"
    )
    page = checked(user, path)
    kept = "2 rows have dates or numbers kept as text, or values moved to another field"
    for verb in ("will be", "were"):
        left_out = f"2 rows {verb} imported without some of their values"
        assert listed(page, left_out) == [
            "3 | d2@text.example | Phone: Ask Bob (is not a phone number)",
            "5 | d4@text.example | Phone: Ask Eve (is not a phone number)",
        ]
        assert listed(page, kept) == [
            "4 | d3@text.example | Born: in May (is not a date; kept as text)",
            "5 | d4@text.example | Born: unknown (is not a date; kept as text)",
        ]
        assert (numbers_of(downloaded(page, left_out)), numbers_of(downloaded(page, kept))) == ([3, 5], [4, 5])
        if verb == "will be":
            page = imported(page)
    assert {name: data["born"] for name, data in data_by_contact(api, "text.example").items()} == {
        "d1": "1979-12-31", "d2": "2003-02-01", "d3": "in May", "d4": "unknown", "d5": "1985-04-03", "d6": "1999-06-05",
    }  # fmt: skip


def test_contacts_who_can_get_only_sms_are_counted_apart(user: ScriptlessBrowser, api: Client, tmp_path: Path) -> None:
    """A subscribed contact with only a phone number is not among those who can get email."""
    path = tmp_path / "sms.csv"
    path.write_text("email,phone\na@sms.example,\nb@sms.example,+14155550143\n,+14155550144\n")
    sentence = "Of the 3 subscribed contacts, 2 can get email; 1 has no email address and can only get SMS."
    page = checked(user, path)
    assert sentence in page.text
    page = imported(page)
    assert sentence in page.text
    number = int(re.findall(r"\d+", page.path)[-1])
    assert api.get(f"/imports/{number}").json["arriving"] == {
        "subscribed": 3, "unsubscribed": 0, "suppressed": 0, "reasons": {},
    }  # fmt: skip
    assert {row["state"] for row in import_results(api, number)} == {"subscribed"}


def test_repeated_and_role_based_addresses_can_be_downloaded(user: ScriptlessBrowser, tmp_path: Path) -> None:
    """All of them, also those beyond the first eight that the page shows."""
    path = tmp_path / "many.csv"
    addresses = [f"r{number}@many.example" for number in range(10)] * 2
    addresses += [f"{name}@many.example" for name in ("info", "sales", "office", "Team")]
    path.write_text("email\n" + "".join(f"{address}\n" for address in addresses))
    page = checked(user, path)
    repeats, roles = "10 rows repeat an address", "4 role-based addresses (info@, sales@ …)"
    assert len(listed(page, repeats)) == 8
    assert numbers_of(downloaded(page, repeats)) == list(range(12, 22))
    assert len(listed(page, roles)) == 4
    assert numbers_of(downloaded(page, roles)) == list(range(22, 26))
    page = imported(page)
    assert len(listed(page, repeats)) == 8
    assert numbers_of(downloaded(page, repeats)) == list(range(12, 22))


SHOP_ROWS = (
    "N° client;Nom;E-mail;Téléphone;Total achats;Newsletter\n"
    "C1;Girard, Hélène;c1@shop.example;;1 052,74 €;oui\nC2;Guérin, Zoé;c2@shop.example;;562,03 €;oui\n"
    "C3;O'Brien, Théo;c3@shop.example;;offert;non\nC4;Caron, Anaïs;c4@shop.example;;89,00 €;\n"
    "C5;Noël, Léa;sans e-mail;+33 6 12 34 56 78;10,00 €;oui\nC4;Caron, Anaïs;C4@shop.example;;89,00 €;\n"
)
OTHER_ENCODING = "1 line has another encoding than the rest of the file"


@pytest.fixture
def shop_file(tmp_path: Path) -> Path:
    """A file of a shop in Windows-1252, in which one row is UTF-8."""
    path = tmp_path / "clients.csv"
    lines = [line.encode("utf-8" if "C2" in line else "cp1252") for line in SHOP_ROWS.splitlines(keepends=True)]
    path.write_bytes(b"".join(lines))
    return path


def test_the_check_tells_apart_why_contacts_are_not_subscribed(user: ScriptlessBrowser, shop_file: Path) -> None:
    """A no, no answer and no email address are counted apart; odd values and lines are shown at once."""
    page = at_columns(user, shop_file)
    assert page.value("Nom") == "name"
    assert "First name: Hélène · Last name: Girard" in page.text
    page.press("Discard")
    page = checked(user, shop_file, sms=False)
    banner = text_of(page.one("main li", "2 rows have neither yes nor no in “Newsletter”."))
    assert "1 contact is not subscribed for this reason. The other rows repeat a contact" in banner
    reasons = "neither yes nor no in the file (1) and no email address, and not subscribed to SMS (1)"
    assert f"2 contacts are not subscribed: {reasons}." in page.text
    assert "1 contact will be imported as unsubscribed: unsubscribed in the file." in page.text
    assert listed(page, "2 contacts not subscribed") == [
        "5 | c4@shop.example | Neither yes nor no in the file.",
        "6 | +33612345678 | No email address, and not subscribed to SMS.",
        "7 | C4@shop.example | Neither yes nor no in the file.",
    ]
    assert not re.search("and .+ more", text_of(details_of(page, "2 contacts not subscribed")))
    assert listed(page, "1 contact unsubscribed") == ["4 | c3@shop.example | Unsubscribed in the file."]
    assert "1 value is not a number: “offert”." in page.text
    assert listed(page, OTHER_ENCODING) == ["3 | Zoé Guérin · c2@shop.example"]
    lost = details_of(page, "1 row will be imported without its email address: the address is invalid")
    assert "this import does not subscribe them to SMS." in text_of(lost)
    page = imported(page)
    assert listed(page, OTHER_ENCODING) == ["3 | Zoé Guérin · c2@shop.example"]
    page = checked(user, shop_file, sms=False)
    page = page.press("Update 5 contacts").reload_until("Import results")
    assert "5 rows updated existing contacts. 1 row repeated a contact in the file." in page.text
    assert HtmlPage(user, "/templates/merge").all("[data-label='N° client']")


def test_the_page_of_a_contact_shows_a_no_of_a_file_and_the_undo(
    user: ScriptlessBrowser, api: Client, shop_file: Path
) -> None:
    """The state and its newest evidence agree after an import, and after its undo."""
    # Other tests import the same file, so this one has addresses of its own.
    shop_file.write_bytes(shop_file.read_bytes().replace(b"shop.example", b"undo.example"))
    known = {name: api.post("/contacts", {"email": f"{name}@undo.example", "opt_in": False}).json["id"]
             for name in ("c1", "c3")}  # fmt: skip
    page = imported(checked(user, shop_file, sms=False))
    cards = {name: HtmlPage(user, f"/contacts/{known[name]}").one("#consent .address") for name in known}
    assert re.search(r"Unsubscribed · today .* · by owner · import, line 4 of clients\.csv", text_of(cards["c3"]))
    assert "Subscribed · today" in text_of(cards["c1"])
    assert undone(page).has("[role=status]", "Undone today")
    for name in known:
        card = HtmlPage(user, f"/contacts/{known[name]}").one("#consent .address")
        assert "Not subscribed" in text_of(card)
        evidence = text_of(select(card, "p")[0])
        assert re.match("Import undone · today .* · by owner · previous subscription restored", evidence)


EVERYTHING = (
    "email;phone;name;status;joined;visits;price;Straße\n"
    "e1@every.example;+441632960021;Änn Hill;yes;03/04/2026;1,234;9;Bath\n"
    "e2@every.example;n/a?;Bob Moor;no;05/06/2026;2,010;on request;Bath\n"
    "info@every.example;;Zoé Guérin;;07/08/2026;3,100;12;Bath\n"
    "e1@every.example;;Änn Hill;yes;03/04/2026;1,234;9;York\n"
    "broken@@every.example;+441632960022;Cleo Dale;yes;01/02/2026;1,000;1;Bath\n"
    "e4@every.example;;Dee Fell;yes;in May;4,200;8;Bath\n"
    "lost;+14155550149;Eve Tor;yes;;;;\nbad;;;;;;;\n"
)


@pytest.mark.full
def test_all_that_a_check_lists_is_accessible(
    browser_page: Page, user: ScriptlessBrowser, api: Client, tmp_path: Path
) -> None:
    """With a question, a reading and a list of each kind axe finds no faults in the check and in the results.

    The questions come before everything else of the check.
    """
    api.patch("/account", {"time_zone": "UTC"}).expect(200)
    api.post("/contacts", {"email": "other@every.example", "phone": "+14155550149"}).expect(201)
    page, path = browser_page, tmp_path / "everything.csv"
    path.write_bytes(b"".join(
        line.encode("utf-8" if "Zoé" in line else "cp1252") for line in EVERYTHING.splitlines(keepends=True)
    ))  # fmt: skip
    check = checked(user, path, sms=False)
    page.goto(check.path)
    dates, numbers = (page.get_by_role("button", name=name) for name in ("Day first: 3 April", "Point: 1,234.50"))
    title = page.get_by_role("heading", name=CHECK_TITLE)
    imports = page.get_by_role("button", name=re.compile("^Import .* contacts"))
    tops = [each.evaluate("each => each.getBoundingClientRect().top") for each in (dates, numbers, title, imports)]
    assert tops == sorted(tops)
    lists = page.locator("details.worth")
    for summary in lists.locator("summary").all():
        summary.click()
    expect(lists.locator("table")).to_have_count(10)
    assert axe.find_violations_in_light_and_dark(page) == []
    dates.click()
    expect(dates).to_be_hidden()
    numbers.click()
    expect(page.get_by_text("visits is read as a number: 1,234 becomes 1234.")).to_be_visible()
    assert axe.find_violations_in_light_and_dark(page) == []
    page.goto(imported(HtmlPage(user, check.path)).path)
    for summary in lists.locator("summary").all():
        summary.click()
    expect(lists.locator("table")).to_have_count(9)
    assert axe.find_violations_in_light_and_dark(page) == []


def test_the_first_question_without_an_answer_gets_the_focus(browser_page: Page, tmp_path: Path) -> None:
    """A question with radio buttons does too: its error would be below the fold, and the button seem to do nothing."""
    file = tmp_path / "phones.csv"
    file.write_text("Email,Mobile\nann@example.org,+447700900123\n", encoding="utf-8")
    upload_file(browser_page, file)
    browser_page.get_by_label("Source of these contacts").fill("The shop")
    browser_page.get_by_label("Subscribe: they agreed to receive messages").check()
    browser_page.get_by_role("button", name="Check file").click()
    question = browser_page.get_by_role("group", name="Phone numbers")
    expect(question).to_contain_text("Select whether the phone numbers are subscribed to SMS.")
    expect(question.get_by_label("Subscribe to SMS")).to_be_focused()
    expect(question.get_by_label("Subscribe to SMS")).to_be_in_viewport()
