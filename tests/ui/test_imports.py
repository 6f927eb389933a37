"""Importing contacts in the browser, from upload to undo: nothing is written before the check."""

import re
import time
from pathlib import Path
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.api.test_threats_pages import Visitor
from tests.kit import axe
from tests.kit.browser import choose_option, new_scriptless_context, sign_in
from tests.kit.client import Client
from tests.kit.html_forms import get_form_fields
from tests.kit.server import EMAIL, Server
from tests.kit.timeouts import extend_timeout
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


def test_errors_of_file_and_columns(browser_page: Page, file: Path, tmp_path: Path) -> None:
    """An empty file, a missing address column and a field used twice are errors at their place; input is kept."""
    page = browser_page
    page.goto("/contacts/imports/new")
    empty = tmp_path / "empty.csv"
    empty.write_text(" \n")
    page.get_by_label("Drop a CSV file here").set_input_files(empty)
    page.get_by_role("button", name="Continue").click()
    expect(page.locator("#f-file-err")).to_contain_text("The file is empty")
    upload_file(page, file)
    page.get_by_label("Source of these contacts").fill("The fair in May")
    page.get_by_role("combobox", name="E-Mail").select_option("")
    page.get_by_role("button", name="Check file").click()
    expect(page.get_by_role("alert")).to_contain_text("Select the column with the email addresses")
    assert axe.find_violations_in_light_and_dark(page) == []
    page.get_by_role("combobox", name="E-Mail").select_option("email")
    page.get_by_role("combobox", name="Ort").select_option("first_name")
    page.get_by_role("button", name="Check file").click()
    expect(page.get_by_text("“Vorname” is already mapped to this field")).to_be_visible()
    expect(page.get_by_label("Source of these contacts")).to_have_value("The fair in May")
    page.get_by_role("button", name="Discard").click()
    expect(page.locator(".toast")).to_contain_text("customers.csv was discarded")


def test_importing_suppressions_without_javascript(
    browser: Browser, server: Server, api: Client, tmp_path: Path
) -> None:
    """Suppressions are imported with plain forms, and the list of imports shows the result."""
    path = tmp_path / "blocked.csv"
    path.write_text("address,why\nno@example.org,they asked\n")
    context = new_scriptless_context(browser, server.url)
    page = sign_in(context.new_page())
    page.goto("/contacts/imports/new")
    page.get_by_label("Drop a CSV file here").set_input_files(path)
    page.get_by_label("Suppression list").check()
    page.get_by_role("button", name="Continue").click()
    page.get_by_role("combobox", name="why").select_option("note")
    page.get_by_role("button", name="Check file").click()
    page.wait_for_load_state()
    import_id = int(re.findall(r"\d+", page.url)[-1])
    api.wait(f"/imports/{import_id}", lambda import_row: import_row["status"] == "complete")
    page.goto(f"/contacts/imports/{import_id}")
    page.get_by_role("button", name="Import 1 address").click()
    api.wait(
        f"/imports/{import_id}", lambda import_row: import_row["status"] == "complete" and not import_row["dry_run"]
    )
    page.goto("/contacts/imports")
    expect(page.get_by_role("row").filter(has_text="blocked.csv")).to_contain_text("Imported")
    assert api.get("/suppressions", address="no@example.org").json[0]["note"] == "they asked"
    context.close()


def test_repeated_and_hostile_imports(browser_page: Page, api: Client, tmp_path: Path) -> None:
    """A repeated start imports once; hostile names are text, and invalid files show an error or the columns."""
    page = browser_page
    odd = tmp_path / "<img src=x onerror=alert(1)>.csv"
    odd.write_text("<script>alert(1)</script>,email\n=1+1,odd@example.org\n")
    upload_file(page, odd)
    expect(page.get_by_role("heading", level=1)).to_have_text(odd.name)
    page.get_by_label("Source of these contacts").fill("{{ 7 * 7 }}")
    page.get_by_role("radio", name="Subscribe: they agreed").check()
    page.get_by_role("button", name="Check file").click()
    expect(page.get_by_role("heading", name="What this import will do")).to_be_visible()
    headers = {"Sec-Fetch-Site": "same-origin"}
    import_url = page.url
    responses = [page.request.post(f"{import_url}/apply", headers=headers) for _ in range(2)]
    assert [response.status for response in responses] == [200, 200]
    page.goto(import_url)
    expect(page.get_by_role("heading", name="Import results")).to_be_visible()
    assert len(api.get("/contacts", search="odd@").json) == 1
    for action in ("apply", "discard", "stop"):
        assert page.request.post(f"{import_url}/{action}", headers=headers).status in (200, 422), action
    assert len(api.get("/contacts", search="odd@").json) == 1
    for name, content in (("a.csv", b"\x00\xff\xfe\x00" * 50), ("b.xlsx", b"PK\x03\x04" + bytes(300)), ("c.csv", b"")):
        (tmp_path / name).write_bytes(content)
        page.goto("/contacts/imports/new")
        page.get_by_label("Drop a CSV file here").set_input_files(tmp_path / name)
        page.get_by_role("button", name="Continue").click()
        expect(page.locator("#f-file-err, #columns")).to_be_visible()
        assert name != "b.xlsx" or "save it as CSV" in page.locator("#f-file-err").inner_text()


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


def test_the_check_of_a_messy_file(
    browser_page: Page, api: Client, tmp_path: Path
) -> None:  # fmt: skip
    """The check counts contacts by status, lists dropped values, and asks for the order of dates."""
    api.patch("/account", {"time_zone": "Europe/London"}).expect(200)
    page, path = browser_page, tmp_path / "messy.csv"
    path.write_text(MESSY)
    upload_file(page, path)
    label = "Country of phone numbers without a country code"
    expect(page.locator("#f-default-country")).to_have_value("GB")
    choose_option(page, label, "do not import")
    # The label of a choice is read in full, however narrow its field is
    assert page.locator("#f-default-country-find > span").evaluate("span => span.scrollWidth <= span.clientWidth")
    page.get_by_label("Source of these contacts").fill("The shop")
    expect(page.get_by_role("radio", name="Save numbers without subscribing")).to_be_hidden()
    page.get_by_role("radio", name="Subscribe: they agreed to receive messages").check()
    page.get_by_role("button", name="Check file").click()
    expect(page.get_by_text("Select whether the phone numbers are subscribed to SMS.")).to_be_visible()
    page.get_by_role("radio", name="Save numbers without subscribing").check()
    assert axe.find_violations_in_light_and_dark(page) == []
    page.get_by_role("button", name="Check file").click()
    expect(page.get_by_text("2 rows will be imported without some of their values")).to_be_visible()
    page.get_by_role("link", name="Edit settings").click()
    names = page.locator("#f-default-country option").all_inner_texts()
    assert "Kosovo" in names and [name for name in names if len(name) == 2] == []
    choose_option(page, label, "united kingdom")
    page.get_by_role("button", name="Check file").click()
    expect(page.get_by_text("2 rows have neither yes nor no in status.")).to_be_visible()
    page.get_by_role("link", name="Edit settings").click()
    page.get_by_role("radio", name="Subscribe them: they agreed").check()
    page.get_by_role("button", name="Check file").click()
    stats = page.get_by_label("Contacts by status after the import")
    for status, number in (("Subscribed", 2), ("Unsubscribed", 1), ("Suppressed", 1)):
        expect(stats.locator("div").filter(has=page.get_by_text(status, exact=True))).to_contain_text(str(number))
    expect(page.get_by_text("1 contact is not subscribed: unsubscribed in the file (1).")).to_be_visible()
    page.get_by_text("1 contact unsubscribed").click()
    expect(page.get_by_role("cell", name="m2@example.org")).to_be_visible()
    expect(page.get_by_text("Dates in joined can be read in two ways")).to_be_visible()
    assert axe.find_violations_in_light_and_dark(page) == []
    page.get_by_role("button", name="Day first: 3 April").click()
    expect(page.get_by_text("Dates in joined can be read in two ways")).to_be_hidden()
    page.get_by_text("1 row will be imported without some of its values").click()
    expect(page.get_by_text("phone: Ask Bob (is not a phone number)")).to_be_visible()
    with page.expect_download() as download:
        page.get_by_role("link", name="Download these rows").first.click()
    assert len(Path(download.value.path()).read_text().splitlines()) == 2
    page.get_by_role("button", name="Import 4 contacts").click()
    expect(page.get_by_role("heading", name="Import results")).to_be_visible()
    contacts = {contact_row["channels"][0]["value"]: contact_row for contact_row in api.all("/contacts")}
    assert contacts["m1@example.org"]["data"] == {"joined": "2026-04-03"}
    assert [contact_row["value"] for contact_row in contacts["m1@example.org"]["channels"]] == [
        "m1@example.org",
        "+442079460001",
    ]


def test_lost_email_addresses_are_listed_first(
    browser_page: Page, api: Client, tmp_path: Path
) -> None:  # fmt: skip
    """Rows that lose their email address are listed before rows that lose other values."""
    page, path = browser_page, tmp_path / "lost.csv"
    rows = [f"k{number}@example.org,n/a?,Germany" for number in range(12)]
    path.write_text("email,phone,country\n" + "\n".join(rows) + "\nann@@example.org,+441632960011,Mars\n")
    upload_file(page, path)
    page.get_by_label("Source of these contacts").fill("The shop")
    page.get_by_role("radio", name="Subscribe: they agreed to receive messages").check()
    page.get_by_role("radio", name="Subscribe to SMS").check()
    page.get_by_role("button", name="Check file").click()
    lost, others = (
        page.get_by_text("1 row will be imported without its email address"),
        page.get_by_text("12 rows will be imported"),
    )
    expect(lost).to_be_visible()
    page.goto(page.url)  # a fresh page, without the updates that followed the check
    order = page.locator("details.worth summary").all_inner_texts()
    assert (
        "1 row will be imported without its email address" in order[0]
        and "12 rows will be imported without" in order[1]
    )
    lost.click()
    expect(page.get_by_role("row", name="+441632960011")).to_contain_text("ann@@example.org")
    others.click()
    expect(page.get_by_role("row", name="+441632960011")).to_have_count(1)
    assert axe.find_violations_in_light_and_dark(page) == []
    page.get_by_role("button", name="Import 13 contacts").click()
    expect(page.get_by_text("1 row was imported without its email address")).to_be_visible()
    [contact] = [row for row in api.all("/contacts") if row["channels"][0]["value"] == "k3@example.org"]
    assert contact["country_code"] == "DE"
    page.goto(f"/contacts/{contact['id']}/edit")
    choose_option(page, "Country", "France")
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".toast")).to_contain_text("Saved")
    assert api.get(f"/contacts/{contact['id']}").json["country_code"] == "FR"


def test_rows_that_lose_other_values(
    browser_page: Page, tmp_path: Path
) -> None:  # fmt: skip
    """Only a row whose sole email address is invalid is listed as losing it; other rows list their lost values.

    A further address is not lost: it is listed with the values that are kept in another field.
    """
    page, path = browser_page, tmp_path / "kept.csv"
    path.write_text(
        "email,phone\nphone@kept.example,Ask Bob\nfirst@kept.example; second@kept.example,\n"
        "broken@@kept.example,+441632960012\n"
    )
    upload_file(page, path)
    page.get_by_label("Source of these contacts").fill("The shop")
    page.get_by_role("radio", name="Subscribe: they agreed to receive messages").check()
    page.get_by_role("radio", name="Subscribe to SMS").check()
    page.get_by_role("button", name="Check file").click()
    for lost, others in (
        ("1 row will be imported without its email address", "1 row will be imported without some of its values"),
        ("1 row was imported without its email address", "1 row was imported without some of its values"),
    ):
        page.get_by_text(lost).click()
        page.get_by_text(others).click()
        lost_rows = page.locator("details.worth").filter(has_text=lost).locator("tbody tr")
        expect(lost_rows).to_have_count(1)
        expect(lost_rows).to_contain_text("broken@@kept.example")
        other_rows = page.locator("details.worth").filter(has_text=others).locator("tbody tr")
        expect(other_rows).to_have_count(1)
        expect(other_rows.nth(0)).to_contain_text("phone@kept.example")
        expect(other_rows.nth(0)).to_contain_text("Phone: Ask Bob (is not a phone number)")
        kept = "1 row has dates or numbers kept as text, or values moved to another field"
        page.get_by_text(kept).click()
        kept_rows = page.locator("details.worth").filter(has_text=kept).locator("tbody tr")
        expect(kept_rows).to_have_count(1)
        expect(kept_rows).to_contain_text("first@kept.example")
        if "will be" in lost:
            page.get_by_role("button", name="Import 3 contacts").click()
            expect(page.get_by_role("heading", name="Import results")).to_be_visible()
            page.goto(page.url)


def figures(page: Page) -> dict[str, str]:
    """Return the figures of a check or import, by label."""
    stats = page.locator("dl.stats").first.locator(".stat")
    return dict(text.split("\n")[:2] for text in stats.all_inner_texts())


def test_repeated_rows_are_counted_separately(
    browser_page: Page, api: Client, tmp_path: Path
) -> None:  # fmt: skip
    """Check, result and list count repeats of a contact apart from updates; the upload keeps its time."""
    page, path = browser_page, tmp_path / "repeats.csv"
    api.post("/contacts", {"email": "old@again.example"}).expect(201)
    path.write_text("email\nold@again.example\nnew@again.example\nNEW@again.example\nnew@again.example\n")
    upload_file(page, path)
    import_id = int(re.findall(r"\d+", page.url)[-1])
    uploaded = api.get(f"/imports/{import_id}").json["created_at"]
    page.get_by_label("Source of these contacts").fill("The shop")
    page.get_by_role("radio", name="Subscribe: they agreed").check()
    page.get_by_role("button", name="Check file").click()
    expect(page.get_by_role("heading", name="What this import will do")).to_be_visible()
    assert figures(page) == {"New": "1", "To update": "1", "Duplicates": "2", "To skip": "0", "Problems": "0"}
    page.get_by_role("button", name="Import 2 contacts").click()
    expect(page.get_by_role("status").first).to_contain_text(
        "1 contact imported. 1 row updated an existing contact. 2 rows repeated a contact in the file."
    )
    assert figures(page) == {"New": "1", "Updated": "1", "Duplicates": "2", "Skipped": "0", "Problems": "0"}
    page.get_by_role("button", name="Undo import").click()
    expect(page.get_by_role("dialog")).to_contain_text(
        "1 new contact will be removed. 1 updated contact will be restored."
    )
    assert api.get(f"/imports/{import_id}").json["created_at"] == uploaded
    page.goto("/contacts/imports")
    cells = page.get_by_role("row").filter(has_text="repeats.csv").locator("td.num").all_inner_texts()
    assert cells == ["1", "1", "0", "0"]
    page.goto(f"/contacts/imports/{import_id}")
    page.get_by_role("button", name="Undo import").click()
    page.get_by_role("dialog").get_by_role("button", name="Undo import").click()
    expect(page.get_by_role("status")).to_contain_text(
        "1 new contact was removed. 1 updated contact was restored. All contacts were reverted."
    )


def test_the_columns_show_how_full_names_are_split_before_the_import(
    browser_page: Page, api: Client, tmp_path: Path
) -> None:  # fmt: skip
    """Three names of the file, those with a comma, a title or several words first, and the contacts get these names."""
    page, path = browser_page, tmp_path / "names.csv"
    names = ("Ines Groß", "Tom Bauer", "Uwe Klein", "Kühn, Grace", "Dr. Anna Weiß", "Käthe van der Berg")
    rows = "".join(f"n{number}@split.example;{name};Bath\n" for number, name in enumerate(names))
    path.write_text(f"email;name;town\n{rows}")
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
    assert axe.find_violations_in_light_and_dark(page) == []
    page.get_by_role("combobox", name="name").select_option("last_name")
    expect(examples.first).to_be_hidden()
    page.get_by_role("combobox", name="name").select_option("name")
    expect(page.get_by_role("row", name="town").locator(".splits")).to_be_hidden()
    page.get_by_label("Source of these contacts").fill("The shop")
    page.get_by_role("radio", name="Subscribe: they agreed").check()
    page.get_by_role("button", name="Check file").click()
    page.get_by_role("button", name="Import 6 contacts").click()
    expect(page.get_by_role("heading", name="Import results")).to_be_visible()
    people = {contact["channels"][0]["value"][:2]: contact for contact in api.all("/contacts")}
    assert [(people[n]["first_name"], people[n]["last_name"]) for n in ("n0", "n3", "n4", "n5")] == [
        ("Ines", "Groß"), ("Grace", "Kühn"), ("Anna", "Weiß"), ("Käthe", "van der Berg"),
    ]  # fmt: skip
    assert people["n4"]["data"] == {"town": "Bath", "name_title": "Dr."} and people["n3"]["data"] == {"town": "Bath"}


def checked(page: Page, file: Path, *, subscribe: bool = True, sms: bool = True) -> None:
    """Hand in a file and answer its questions with plain requests, and open its check.

    The pages of the file and of its columns are used in the tests that call `upload_file`.
    """
    headers = {"Sec-Fetch-Site": "same-origin"}
    content = {"name": file.name, "mimeType": "text/csv", "buffer": file.read_bytes()}
    columns = page.request.post(
        "/contacts/imports", headers=headers, multipart={"resource": "contacts", "file": content}
    )
    form = re.search(r'<form[^>]* id="columns".*?</form>', columns.text(), re.S)
    assert form is not None, columns.text()
    fields = get_form_fields(form[0]) | {"consent_source": ["The shop"], "opt_in": ["yes" if subscribe else "no"]}
    if ["phone"] in fields.values():
        fields["opt_in_phone"] = ["yes" if sms else "no"]
    headers |= {"Content-Type": "application/x-www-form-urlencoded"}
    answer = page.request.post(columns.url, headers=headers, data=urlencode(fields, doseq=True))
    end = time.monotonic() + extend_timeout(20)
    while CHECK_TITLE not in answer.text():
        assert answer.status == 200 and time.monotonic() < end, answer.text()
        page.wait_for_timeout(50)
        answer = page.request.get(columns.url)
    page.goto(columns.url)
    expect(page.get_by_role("heading", name=CHECK_TITLE)).to_be_visible()


def imported(page: Page) -> None:
    """Import a file that was checked, and come to its results."""
    page.get_by_role("button", name=re.compile("^(Import|Update) [0-9]+ contact")).click()
    expect(page.get_by_role("heading", name="Import results")).to_be_visible()
    page.goto(page.url)


def listed(page: Page, title: str) -> list[str]:
    """Open a list of rows below a check or result, and return its rows, their cells separated by bars."""
    details = page.locator("details.worth").filter(has=page.get_by_role("heading", name=title, exact=True))
    details.locator("summary").click()
    rows = details.locator("tbody tr").all()
    return [" | ".join(row.locator("td").all_inner_texts()) for row in rows]


def downloaded(page: Page, title: str) -> list[str]:
    """Return the lines that the link of an open list of rows downloads, without the header."""
    details = page.locator("details.worth").filter(has=page.get_by_role("heading", name=title, exact=True))
    with page.expect_download() as coming:
        details.get_by_role("link").click()
    return Path(coming.value.path()).read_text().splitlines()[1:]


def test_the_undo_dialog_counts_what_will_be_removed(
    browser_page: Page, api: Client, tmp_path: Path
) -> None:  # fmt: skip
    """A contact that was changed since the import is not in the number to be removed, and named as staying."""
    page, path = browser_page, tmp_path / "undo.csv"
    path.write_text("email,town\nu1@undone.example,Bath\nu2@undone.example,Bath\nu2@undone.example,York\n")
    checked(page, path)
    imported(page)
    [changed] = api.get("/contacts", search="u1@undone.example").json
    api.patch(f"/contacts/{changed['id']}", {"first_name": "Ann"}).expect(200)
    page.goto(page.url)
    page.get_by_role("button", name="Undo import").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text(
        "1 new contact will be removed. 1 contact stays: changed or used since then (1). Lists are kept"
    )
    dialog.get_by_role("button", name="Undo import").click()
    expect(page.get_by_role("status")).to_contain_text(
        "1 new contact was removed. 1 contact was not reverted: changed or used since then (1)."
    )


def test_an_error_of_the_columns_page_goes_when_its_field_is_filled(browser_page: Page, file: Path) -> None:
    """The red text beside a field, and the mark for screen readers, stay no longer than the field is empty."""
    page = browser_page
    upload_file(page, file)
    source, choice = (
        page.get_by_label("Source of these contacts"),
        page.get_by_text("Select whether these contacts"),
    )
    source.fill("")  # the source of the last import with the same columns is proposed
    page.get_by_role("button", name="Check file").click()
    expect(choice).to_be_visible()
    expect(source).to_have_attribute("aria-invalid", "true")
    source.fill("The fair")
    page.get_by_role("radio", name="Add without subscribing").check()
    expect(page.locator(".err")).to_have_count(0)
    expect(source).not_to_have_attribute("aria-invalid", "true")
    expect(page.get_by_role("group", name="Subscription status")).not_to_have_attribute(
        "aria-describedby", re.compile(".")
    )
    assert axe.find_violations_in_light_and_dark(page) == []


def test_the_last_mapping_of_the_same_columns_is_proposed(browser_page: Page, api: Client, tmp_path: Path) -> None:
    """A second file with the same columns is mapped as the first was, with its source; consent is asked again."""
    page, path = browser_page, tmp_path / "again.csv"
    path.write_text("E-Mail;Vor- und Nachname;Tel;Ort\nd1@again2.example;Käthe Kollwitz;0171 5556677;Bonn\n")
    upload_file(page, path)
    expect(page.get_by_role("combobox", name="Vor- und Nachname")).to_have_value("name")
    expect(page.get_by_text("Numbers such as 0171 5556677 get the country code of this country.")).to_be_visible()
    page.get_by_label("Name of the custom field for Ort").fill("City")
    page.get_by_role("combobox", name="Tel").select_option("own-text")
    page.get_by_label("Source of these contacts").fill("The shop in Bonn")
    page.get_by_role("radio", name="Add without subscribing").check()
    page.get_by_role("button", name="Check file").click()
    expect(page.get_by_role("heading", name="What this import will do")).to_be_visible()
    upload_file(page, path)
    expect(page.get_by_text("Mapped as in your last import of these columns.")).to_be_visible()
    expect(page.get_by_label("Name of the custom field for Ort")).to_have_value("City")
    expect(page.get_by_role("combobox", name="Tel")).to_have_value("own-text")
    expect(page.get_by_label("Source of these contacts")).to_have_value("The shop in Bonn")
    expect(page.get_by_role("radio", name="Add without subscribing")).not_to_be_checked()


def test_empty_columns_are_not_imported_unless_selected(browser_page: Page, tmp_path: Path) -> None:
    """A column without values is left out, and the check names its values if later rows have some; dates are known."""
    page, path = browser_page, tmp_path / "empty.csv"
    lines = [f"e{number}@empty.example,{number % 28 + 1}/11/2025,{'late' if number > 150 else ''},"
             for number in range(160)]  # fmt: skip
    path.write_text("Email,Signup date,Unnamed: 2,Unnamed: 3\n" + "\n".join(lines) + "\n")
    upload_file(page, path)
    expect(page.get_by_text("Empty columns are not imported.")).to_be_visible()
    expect(page.get_by_role("combobox", name="Signup date")).to_have_value("opt_in_at")
    for name in ("Unnamed: 2", "Unnamed: 3"):
        expect(page.get_by_role("combobox", name=name)).to_have_value("")
    checked(page, path)
    remark = "Unnamed: 2 is not imported, because its first rows are empty, but 9 rows below have a value."
    expect(page.get_by_text(remark)).to_be_visible()
    expect(page.get_by_text("Unnamed: 3")).to_have_count(0)
    page.get_by_role("link", name="Edit settings").first.click()
    page.get_by_role("combobox", name="Unnamed: 2").select_option("own")
    page.get_by_role("button", name="Check file").click()
    expect(page.get_by_role("heading", name=CHECK_TITLE)).to_be_visible()
    expect(page.get_by_text("Unnamed: 2")).to_have_count(0)


CONSENTS = (
    "E-Mail;Tel.;Newsletter?\nc1@consent.example;+49 30 1234567;ja\nc2@consent.example;+49 30 1234568;nein\n"
    "c3@consent.example;+49 30 1234569;\nc4@consent.example;;weiß nicht\n"
)  # fmt: skip


def test_consent_to_email_subscribes_no_phone_number_and_an_empty_cell_nobody(
    browser_page: Page, api: Client, tmp_path: Path
) -> None:  # fmt: skip
    """One page asks all about consent: email, SMS, and rows with neither yes nor no, while a column has consent."""
    page, path = browser_page, tmp_path / "consents.csv"
    path.write_text(CONSENTS)
    upload_file(page, path)
    column = page.get_by_role("combobox", name="Newsletter?")
    expect(column).to_have_value("subscribed_email")
    unstated = page.get_by_role("group", name="Rows without a status")
    expect(unstated).to_be_hidden()
    page.get_by_role("radio", name="Subscribe: they agreed").check()
    expect(unstated.get_by_role("radio", name="Do not subscribe them")).to_be_checked()
    column.select_option("")
    expect(unstated).to_be_hidden()
    page.get_by_role("button", name="Discard").click()
    checked(page, path, sms=True)
    expect(page.get_by_text("1 contact is subscribed to SMS.")).to_be_visible()
    page.get_by_role("button", name="Discard").click()
    checked(page, path, sms=False)
    expect(page.get_by_text("Phone numbers are saved, but not subscribed to SMS.")).to_be_visible()
    silent = page.get_by_role("listitem").filter(has_text="2 rows have neither yes nor no in Newsletter?.")
    expect(silent).to_contain_text("These contacts are added without subscribing them.")
    assert axe.find_violations_in_light_and_dark(page) == []
    subscribed = page.get_by_label("Contacts by status after the import").locator("div").first
    expect(subscribed).to_contain_text("1")
    page.get_by_role("link", name="Edit settings").click()
    unstated.get_by_role("radio", name="Subscribe them: they agreed").check()
    page.get_by_role("button", name="Check file").click()
    expect(silent).to_contain_text("These contacts are subscribed, as you selected.")
    expect(subscribed).to_contain_text("3")
    page.get_by_role("link", name="Edit settings").click()
    expect(unstated.get_by_role("radio", name="Subscribe them: they agreed")).to_be_checked()
    unstated.get_by_role("radio", name="Do not subscribe them").check()
    page.get_by_role("button", name="Check file").click()
    expect(silent).to_contain_text("These contacts are added without subscribing them.")
    page.goto(page.url)
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
    browser_page: Page, api: Client, tmp_path: Path
) -> None:  # fmt: skip
    """Amounts become numbers, and a person can keep them as text, choose a decimal mark, or skip values with words."""
    page, path = browser_page, tmp_path / "amounts.csv"
    path.write_text(AMOUNTS)
    checked(page, path)
    expect(page.get_by_text("Umsatz is read as a number: 1.234,50 € becomes 1234.5.")).to_be_visible()
    expect(page.get_by_text("Bestellungen is read as a number: 1.234 becomes 1234.")).to_be_visible()
    expect(page.get_by_text("Preis is kept as text, which segments cannot compare as numbers: 1 value")).to_be_visible()
    assert axe.find_violations_in_light_and_dark(page) == []
    page.get_by_role("button", name="Import the others as numbers").click()
    expect(page.get_by_text("Preis is read as a number: 12,50 becomes 12.5.")).to_be_visible()
    reading = page.get_by_role("listitem").filter(has_text="Bestellungen is read")
    reading.get_by_role("button", name="Keep as text").click()
    expect(page.get_by_text("Bestellungen is kept as text, as you selected.")).to_be_visible()
    page.get_by_role("link", name="Edit settings").click()
    expect(page.get_by_role("combobox", name="Bestellungen")).to_have_value("own-text")
    expect(page.get_by_role("combobox", name="Preis")).to_have_value("own-number")
    expect(page.get_by_label("Name of the custom field for Preis")).to_be_visible()
    page.get_by_role("button", name="Check file").click()
    expect(page.get_by_text("Bestellungen is kept as text, as you selected.")).to_be_visible()
    imported(page)
    people = {row["channels"][0]["value"][:2]: row["data"] for row in api.all("/contacts", search="amounts.example")}
    assert people == {
        "a1": {"umsatz": 1234.5, "bestellungen": "1.234", "preis": "auf Anfrage", "plz": "01067"},
        "a2": {"umsatz": 89.9, "bestellungen": "2.010", "preis": 12.5, "plz": "10115"},
        "a3": {"umsatz": 2010, "bestellungen": "3.100", "preis": 9.9, "plz": "20095"},
    }
    filters = [{"name": "data.umsatz", "predicate": "gt", "value": 100}]
    assert api.post("/segments/count", {"filters": filters}).expect(200)["count"] == 2


def test_the_check_asks_for_the_decimal_mark_of_ambiguous_numbers(
    browser_page: Page, api: Client, tmp_path: Path
) -> None:  # fmt: skip
    """Where neither the values nor the country show the decimal mark, the check asks, and reads as it is told."""
    api.patch("/account", {"time_zone": "UTC"}).expect(200)
    page, path = browser_page, tmp_path / "either.csv"
    path.write_text('email,visits\nb1@either.example,"1,234"\nb2@either.example,"2,010"\n')
    checked(page, path)
    expect(page.get_by_text("Numbers in visits are ambiguous")).to_be_visible()
    assert axe.find_violations_in_light_and_dark(page) == []
    page.get_by_role("button", name="Point: 1,234.50").click()
    expect(page.get_by_text("visits is read as a number: 1,234 becomes 1234.")).to_be_visible()
    imported(page)
    assert {row["data"]["visits"] for row in api.all("/contacts", search="either.example")} == {1234, 2010}


def numbers_of(lines: list[str]) -> list[int]:
    """Return the line numbers of downloaded lines."""
    return [int(line.partition(",")[0]) for line in lines]


def test_a_row_that_is_skipped_is_listed_with_its_reason(browser_page: Page, api: Client, tmp_path: Path) -> None:
    """An unreadable email address and the phone number of another contact: skipped, not imported without its email.

    Rows with problems are shown with the separator of the file.
    """
    api.post("/contacts", {"email": "ann@skip.example", "phone": "+14155550141"}).expect(201)
    page, path = browser_page, tmp_path / "skip.csv"
    path.write_text('email;phone;town\nkeine-email;+14155550141;Bath\nbob@skip.example;;Bath\nbad;;"York; Ouse"\n')
    checked(page, path)
    why = "Email: keine-email (is not an email address); its phone number belongs to another contact."
    for skipped, problems in (
        ("1 row will be skipped", "1 row has a problem and will not be imported"),
        ("1 row was skipped", "1 row was not imported"),
    ):
        assert listed(page, skipped) == [f"2 | +14155550141 | {why}"]
        assert [line[:10] for line in downloaded(page, skipped)] == ["2,skipped,"]
        expect(page.get_by_role("heading", name="its email address")).to_have_count(0)
        assert listed(page, problems) == ['4 | bad;;"York; Ouse" | Email is invalid: bad.']
        assert axe.find_violations_in_light_and_dark(page) == []
        if "will" in skipped:
            imported(page)
    assert figures(page)["Skipped"] == "1"


def test_contacts_added_without_subscribing_are_called_not_subscribed(
    browser_page: Page, api: Client, tmp_path: Path
) -> None:  # fmt: skip
    """They never subscribed; only who unsubscribed, in the file or before, is called unsubscribed."""
    left = api.post("/contacts", {"email": "left@never.example"}).expect(201)
    api.patch(f"/contacts/{left['id']}", {"subscribed_email": False}).expect(200)
    page, path = browser_page, tmp_path / "never.csv"
    path.write_text(
        "email,status,phone\none@never.example,,+14155550142\ntwo@never.example,,\nout@never.example,unsubscribed,\n"
        "left@never.example,,\n"
    )
    checked(page, path, subscribe=False)
    stats = page.get_by_label("Contacts by status after the import").locator(".stat")
    never, out = "2 contacts not subscribed", "2 contacts unsubscribed"
    for is_done in (False, True):
        assert stats.all_inner_texts() == ["Subscribed\n0", "Not subscribed\n2", "Unsubscribed\n2", "Suppressed\n0"]
        assert listed(page, out) == [
            "4 | out@never.example | Unsubscribed in the file.", "5 | left@never.example | Unsubscribed before.",
        ]  # fmt: skip
        assert "2 | one@never.example | Not subscribed by this import." in listed(page, never)
        assert (numbers_of(downloaded(page, never)), numbers_of(downloaded(page, out))) == ([2, 3], [4, 5])
        if not is_done:
            imported(page)


def test_values_left_out_and_dates_kept_as_text_are_two_lists(
    browser_page: Page, api: Client, tmp_path: Path
) -> None:  # fmt: skip
    """A row with both is in both; a date with a year of two digits is read, and never lies in the future."""
    page, path = browser_page, tmp_path / "dates.csv"
    path.write_text(
        "email;phone;born\nd1@text.example;;31.12.79\nd2@text.example;Ask Bob;1.2.03\nd3@text.example;;in May\n"
        "d4@text.example;Ask Eve;unknown\nd5@text.example;;03.04.1985\nd6@text.example;;05.06.99\n"
    )
    checked(page, path)
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
            imported(page)
    people = [contact for contact in api.all("/contacts") if "@text.example" in contact["channels"][0]["value"]]
    born = {person["channels"][0]["value"][:2]: person["data"]["born"] for person in people}
    assert born == {
        "d1": "1979-12-31", "d2": "2003-02-01", "d3": "in May", "d4": "unknown", "d5": "1985-04-03", "d6": "1999-06-05",
    }  # fmt: skip


def test_the_question_about_dates_comes_before_the_button_that_imports(browser_page: Page, tmp_path: Path) -> None:
    """Dates with years of two digits are asked about like others, above everything else of the check."""
    page, path = browser_page, tmp_path / "order.csv"
    path.write_text("email,born\na@order.example,03/04/85\nb@order.example,05/06/91\n")
    checked(page, path)
    question = page.get_by_role("button", name="Day first: 3 April")
    asked, imports = question.bounding_box(), page.get_by_role("button", name="Import 2 contacts").bounding_box()
    title = page.get_by_role("heading", name="What this import will do").bounding_box()
    assert asked and imports and title and asked["y"] < title["y"] < imports["y"]
    question.click()
    expect(question).to_be_hidden()
    expect(page.get_by_text("No problems, no duplicates, no role-based addresses.")).to_be_visible()


def test_contacts_who_can_get_only_sms_are_counted_apart(browser_page: Page, api: Client, tmp_path: Path) -> None:
    """A subscribed contact with only a phone number is not among those who can get email."""
    page, path = browser_page, tmp_path / "sms.csv"
    path.write_text("email,phone\na@sms.example,\nb@sms.example,+14155550143\n,+14155550144\n")
    sentence = "Of the 3 subscribed contacts, 2 can get email; 1 has no email address and can only get SMS."
    checked(page, path)
    expect(page.get_by_text(sentence)).to_be_visible()
    imported(page)
    expect(page.get_by_text(sentence)).to_be_visible()
    number = int(re.findall(r"\d+", page.url)[-1])
    assert api.get(f"/imports/{number}").json["arriving"] == {
        "subscribed": 3, "unsubscribed": 0, "suppressed": 0, "reasons": {},
    }  # fmt: skip
    assert {row["state"] for row in import_results(api, number)} == {"subscribed"}


def test_repeated_and_role_based_addresses_can_be_downloaded(browser_page: Page, tmp_path: Path) -> None:
    """All of them, also those beyond the first eight that the page shows."""
    page, path = browser_page, tmp_path / "many.csv"
    addresses = [f"r{number}@many.example" for number in range(10)] * 2
    addresses += [f"{name}@many.example" for name in ("info", "sales", "office", "Team")]
    path.write_text("email\n" + "".join(f"{address}\n" for address in addresses))
    checked(page, path)
    repeats, roles = "10 rows repeat an address", "4 role-based addresses (info@, sales@ …)"
    assert len(listed(page, repeats)) == 8
    assert numbers_of(downloaded(page, repeats)) == list(range(12, 22))
    assert len(listed(page, roles)) == 4
    assert numbers_of(downloaded(page, roles)) == list(range(22, 26))
    imported(page)
    listed(page, repeats)
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


def test_the_check_tells_apart_why_contacts_are_not_subscribed(
    browser_page: Page, api: Client, shop_file: Path
) -> None:  # fmt: skip
    """A no, no answer and no email address are counted apart; odd values and lines are shown at once."""
    page = browser_page
    upload_file(page, shop_file)
    expect(page.get_by_role("combobox", name="Nom")).to_have_value("name")
    expect(page.get_by_text("First name: Hélène · Last name: Girard")).to_be_visible()
    page.get_by_role("button", name="Discard").click()
    checked(page, shop_file, sms=False)
    banner = page.get_by_role("listitem").filter(has_text="2 rows have neither yes nor no in Newsletter.")
    expect(banner).to_contain_text("1 contact is not subscribed for this reason. The other rows repeat a contact")
    reasons = (
        "unsubscribed in the file (1), neither yes nor no in the file (1) and no email address, and not subscribed "
    )
    expect(page.get_by_text(f"3 contacts are not subscribed: {reasons}to SMS (1).")).to_be_visible()
    assert listed(page, "2 contacts not subscribed") == [
        "5 | c4@shop.example | Neither yes nor no in the file.",
        "6 | +33612345678 | No email address, and not subscribed to SMS.",
        "7 | C4@shop.example | Neither yes nor no in the file.",
    ]
    expect(page.get_by_text(re.compile("and .+ more"))).to_have_count(0)
    assert listed(page, "1 contact unsubscribed") == ["4 | c3@shop.example | Unsubscribed in the file."]
    expect(page.get_by_text("1 value is not a number: “offert”.")).to_be_visible()
    assert listed(page, OTHER_ENCODING) == ["3 | Zoé Guérin · c2@shop.example"]
    listed(page, "1 row will be imported without its email address: the address is invalid")
    expect(page.get_by_text("this import does not subscribe them to SMS.")).to_be_visible()
    assert axe.find_violations_in_light_and_dark(page) == []
    imported(page)
    assert listed(page, OTHER_ENCODING) == ["3 | Zoé Guérin · c2@shop.example"]
    checked(page, shop_file, sms=False)
    page.get_by_role("button", name="Update 5 contacts").click()
    expect(page.get_by_text("5 rows updated existing contacts. 1 row repeated a contact in the file.")).to_be_visible()
    page.goto("/templates/merge")
    expect(page.locator("[data-label='N° client']")).to_be_attached()


def test_the_page_of_a_contact_shows_a_no_of_a_file_and_the_undo(
    browser_page: Page, api: Client, shop_file: Path
) -> None:  # fmt: skip
    """The state and its newest evidence agree after an import, and after its undo."""
    # Other tests import the same file, so this one has addresses of its own.
    shop_file.write_bytes(shop_file.read_bytes().replace(b"shop.example", b"undo.example"))
    known = {name: api.post("/contacts", {"email": f"{name}@undo.example", "opt_in": False}).json["id"]
             for name in ("c1", "c3")}  # fmt: skip
    page = browser_page
    checked(page, shop_file, sms=False)
    imported(page)
    done = page.url
    page.goto(f"/contacts/{known['c3']}")
    card = page.locator("#consent .address")
    expect(card).to_contain_text(re.compile("Unsubscribed · today .* · by owner · import, line 4 of clients\\.csv"))
    page.goto(f"/contacts/{known['c1']}")
    expect(card).to_contain_text("Subscribed · today")
    page.goto(done)
    page.get_by_role("button", name="Undo import").click()
    page.get_by_role("dialog").get_by_role("button", name="Undo import").click()
    expect(page.get_by_role("status")).to_contain_text("Undone today")
    for name in known:
        page.goto(f"/contacts/{known[name]}")
        expect(card).to_contain_text("Not subscribed")
        evidence = card.locator("p").first
        expect(evidence).to_contain_text(
            re.compile("^\\s*Import undone · today .* · by owner · previous subscription restored")
        )
