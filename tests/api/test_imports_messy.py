"""Imports of files with typical faults: an unreadable value loses no contact, and the dry run predicts the result."""

from pathlib import Path
from typing import Any

import pytest

from tests.api.test_imports import get_contact, row_counts
from tests.kit.client import Client
from tests.kit.uploads import import_results, upload, wait_for_import


def results_by_address(api: Client, job: dict[str, Any]) -> dict[str, dict[str, str]]:
    """Return the results of an import by address."""
    return {row["address"]: row for row in import_results(api, job["id"])}


def test_an_unreadable_phone_loses_no_contact(api: Client) -> None:
    """A row with a valid email is imported without its invalid phone, with a warning."""
    phones = ["-", "n/a", "N/A", "#N/A", "none", "null", "0", "keine", "k.A.", "–", "?", ".", "' '", "07700 900003",
              "4.47701E+11", "Ask Bob", "12345", "0049 30 1234567", "+44 (0)20 7946 0018", "'+44 20 7946 0019",
              "tel:+442079460020", "+1 415 555 0101 / +1 415 555 0102"]  # fmt: skip
    file = "email;phone\n" + "".join(f"p{n}@messy.example;{phone}\n" for n, phone in enumerate(phones))
    job = wait_for_import(api, upload(api, file))

    assert row_counts(job) == (len(phones), len(phones), 0, 0, 0)
    lines = [results_by_address(api, job)[f"p{n}@messy.example"]["warnings"] for n in range(len(phones))]
    assert lines[:13] == [""] * 13
    assert lines[13] == "phone: 07700 900003 (has no country code)"
    assert "shortened by a spreadsheet" in lines[14] and "is not a phone number" in lines[15]
    assert lines[16] == "phone: 12345 (has no country code)"
    assert lines[21] == "phone: +1 415 555 0102 (is a further number; kept as other_phone)"
    assert job["warnings"] == sum(bool(line) for line in lines) == 5
    kept = {n: get_contact(api, f"p{n}@messy.example")["phone"] for n in (0, 13, 17, 18, 19, 20, 21)}
    assert kept == {0: None, 13: None, 17: "+49301234567", 18: "+442079460018", 19: "+442079460019",
                    20: "+442079460020", 21: "+14155550101"}  # fmt: skip


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_no_of_the_file_is_its_own_in_every_chunk(api: Client, dry_run: bool) -> None:
    """A later line of a contact that says nothing leaves the reason of an earlier one, also across chunks."""
    name = f"no{dry_run}".lower()
    lines = [f"{name}{index // 3}@three.example,{'' if index % 3 else 'yes'}" for index in range(1_500)]
    job = wait_for_import(api, upload(api, "\n".join(["email,unsubscribed", *lines]), dry_run=dry_run, opt_in=True))
    assert (job["arriving"]["subscribed"], job["arriving"]["reasons"]) == (0, {"file": 500})
    assert {row["state"] for row in import_results(api, job["id"])} == {"unsubscribed:file"}


def test_a_national_number_must_be_valid_in_its_country(api: Client) -> None:
    """Digits that no number of the country begins with are left out; with a country code the length is enough."""
    phones = {
        "0790 1234": None, "07700 900003": None, "0123 456 789": None, "0123": None, "0800 1111": "+448001111",
        "07911 123456": "+447911123456", "(020) 7946 0118": "+442079460118", "0044 790 1234": "+447901234",
        "+44 790 1235": "+447901235", "020 7946 0121 / 0790 1234": "+442079460121",
    }  # fmt: skip
    file = "email,phone\n" + "".join(f"v{index}@valid.example,{phone}\n" for index, phone in enumerate(phones))
    job = wait_for_import(api, upload(api, file, default_country="GB"))
    assert row_counts(job) == (len(phones), len(phones), 0, 0, 0)
    rows = results_by_address(api, job)
    for index, (phone, value) in enumerate(phones.items()):
        address = f"v{index}@valid.example"
        assert get_contact(api, address)["phone"] == value, phone
        fault = "is not a number in use" if index < 3 else "is too short or too long for a phone number"
        reason = "" if value else f"phone: {phone} ({fault} in the United Kingdom)"
        assert "/" in phone or rows[address]["warnings"] == reason


def test_the_default_country_of_phone_numbers(api: Client) -> None:
    """It is that of the account, unless the import names another or none; unknown countries are rejected."""
    file = "email,phone\ngb{n}@country.example,020 7946 000{n}\n"
    api.patch("/account", {"country_code": "gb"}).expect(200)
    assert api.get("/account").json["country_code"] == "GB"
    job = wait_for_import(api, upload(api, file.replace("{n}", "4")))
    assert (job["warnings"], job["options"]["default_country"]) == (0, "GB")
    assert get_contact(api, "gb4@country.example")["phone"] == "+442079460004"
    wait_for_import(api, upload(api, "email,phone\nus@country.example,(415) 555-0177\n", default_country="US"))
    assert get_contact(api, "us@country.example")["phone"] == "+14155550177"
    assert wait_for_import(api, upload(api, file.replace("{n}", "5"), default_country=None))["warnings"] == 1
    errors = upload(api, "email\n", default_country="XX").expect(422)["validation_errors"]
    assert errors == {"options.default_country": ["is not included in the list"]}
    errors = api.patch("/account", {"country_code": "XX"}).expect(422)["validation_errors"]
    assert errors == {"country_code": ["is not included in the list"]}
    api.patch("/account", {"country_code": None}).expect(200)


def test_unreadable_values_are_left_out(api: Client) -> None:
    """An invalid country, name, tag, JSON or status is left out with a warning, and the contact is imported."""
    rows = {
        "country": "country_code\nAtlantis", "code": "country_code\nQQ", "tongue": "language\nKlingon",
        "tag": "language\ntlh", "none": "language\nUnknown language", "uk": "country_code\nUK",
        "name": f"first_name\n{'x' * 300}",
        "lines": 'last_name\n"van\nDam"', "tags": f"tags\ngood,{'y' * 70}", "json": "data\n{broken",
        "status": "status\nGold member", "yesno": "subscribed\nperhaps", "tracking": "tracking\nmaybe",
    }  # fmt: skip
    for name, text in rows.items():
        header, _, cell = text.partition("\n")
        job = wait_for_import(api, upload(api, f"email;{header}\n{name}@left.example;{cell}\n"))
        assert (row_counts(job)[1], job["warnings"]) == (1, int(name not in ("uk", "lines"))), name
    assert get_contact(api, "uk@left.example")["country_code"] == "GB"
    assert get_contact(api, "lines@left.example")["last_name"] == "van Dam"
    assert get_contact(api, "tags@left.example")["data"]["tags"] == ["good"]


def test_formats_of_email_addresses(api: Client) -> None:
    """`mailto:`, display names, trailing punctuation, quotes and two addresses in a cell are understood."""
    cells = {
        "mailto:w1@words.example": "w1@words.example", "Ann Low <w2@words.example>": "w2@words.example",
        "w3@words.example,": "w3@words.example", "W4@Words.Example;": "W4@words.example",
        "'w5@words.example": "w5@words.example", "<w6@words.example>": "w6@words.example",
        "w7@words.example; w8@words.example": "w7@words.example", "\u200bw9@words.example ": "w9@words.example",
    }  # fmt: skip
    file = "email\n" + "".join(f'"{cell}"\n' for cell in cells) + "nobody at home\n"
    job = wait_for_import(api, upload(api, file, opt_in=False))

    assert row_counts(job) == (9, 8, 0, 0, 1) and job["warnings"] == 1
    for address in cells.values():
        get_contact(api, address)
    assert get_contact(api, "w2@words.example")["last_name"] == "Low"
    assert get_contact(api, "w7@words.example")["data"] == {"other_email": "w8@words.example"}
    result = wait_for_import(api, upload(api, "email,phone\nbad,+14155550155\n,07700 900003\n"))
    lines = import_results(api, result["id"])
    assert [line["result"] for line in lines] == ["created", "failed"]
    assert lines[0]["warnings"] == "email: bad (is not an email address)"
    assert lines[1]["reason"] == "phone has no country code: 07700 900003"


def test_date_formats_of_columns(api: Client) -> None:
    """A value over 12 decides the order of day and month for its column; otherwise dates stay text with a warning."""
    file = (
        "email;born;joined;us;seen;either;word\n"
        "d1@dates.example;23.11.2026;03/04/2026;11/23/2026;2026-11-23 10:00;03/04/2026;soon\n"
        "d2@dates.example;1.2.2026;23/04/2026;3/4/2026;23 Nov 2026;05/06/2026;later\n"
    )
    job = wait_for_import(api, upload(api, file))
    assert {column["name"]: column["dates"] for column in job["columns"]} == {
        "email": None, "born": "dmy", "joined": "dmy", "us": "mdy", "seen": "clear", "either": "ambiguous",
        "word": None,
    }  # fmt: skip
    first, second = (get_contact(api, f"d{n}@dates.example")["data"] for n in (1, 2))
    assert first == {"born": "2026-11-23", "joined": "2026-04-03", "us": "2026-11-23", "seen": "2026-11-23 10:00",
                     "either": "03/04/2026", "word": "soon"}  # fmt: skip
    assert (second["born"], second["us"], second["seen"]) == ("2026-02-01", "2026-03-04", "2026-11-23")
    assert job["warnings"] == 2
    assert (
        "either: 03/04/2026 (may be day or month first; kept as text)" in import_results(api, job["id"])[0]["warnings"]
    )
    filters = [{"name": "data.born", "predicate": "gt", "value": "2026-10-01"}]
    assert api.post("/segments/count", {"filters": filters}).expect(200)["count"] == 1
    job = wait_for_import(api, upload(api, file, date_order="mdy"))
    assert (job["warnings"], get_contact(api, "d1@dates.example")["data"]["either"]) == (0, "2026-03-04")
    assert get_contact(api, "d1@dates.example")["data"]["joined"] == "2026-04-03"


def test_dates_in_a_column_with_mixed_orders(api: Client) -> None:
    """Only ambiguous dates stay text, and are parsed once the order is given."""
    days = {"m1": "31.12.1985", "m2": "05/13/1991", "m3": "29/02/1984", "m4": "03/04/2024"}
    file = "email;born\n" + "".join(f"{name}@mixed.example;{day}\n" for name, day in days.items())
    job = wait_for_import(api, upload(api, file))
    assert [column["dates"] for column in job["columns"]] == [None, "mixed"]
    assert [get_contact(api, f"{name}@mixed.example")["data"]["born"] for name in days] == [
        "1985-12-31", "1991-05-13", "1984-02-29", "03/04/2024",
    ]  # fmt: skip
    assert job["warnings"] == 1
    wait_for_import(api, upload(api, file, date_order="dmy"))
    assert [get_contact(api, f"{name}@mixed.example")["data"]["born"] for name in ("m2", "m4")] == [
        "1991-05-13", "2024-04-03",
    ]  # fmt: skip


def test_columns_of_amounts_become_numbers(api: Client) -> None:
    """A column whose values are all amounts becomes numbers; ids, postcodes, phone numbers and words stay text."""
    columns = {
        "german": ("1.234,50 €", "89,90", 1234.5, 89.9), "english": ("1,234.50", "$5", 1234.5, 5),
        "swiss": ("CHF 1'234.50", "12.-", 1234.5, 12), "plain": ("12", "3.5", 12, 3.5),
        "thousands": ("2.010.000", "-1.234", 2010000, -1234), "spaced": ("12 345,50", "1 234", 12345.5, 1234),
        "customer": ("00123", "1234", "00123", "1234"), "postcode": ("01067", "10115", "01067", "10115"),
        "call": ("0171 5556677", "030 1234", "0171 5556677", "030 1234"), "siren": ("732 829 320", "12 345",
        "732 829 320", "12 345"), "words": ("12,50", "on request", "12,50", "on request"),
        "empty": ("k.A.", "9,90", None, 9.9),
    }  # fmt: skip
    rows = [["email", *columns]] + [
        [f"a{number}@amounts.example", *(values[number] for values in columns.values())] for number in (0, 1)
    ]
    job = wait_for_import(api, upload(api, "".join(";".join(map(str, row)) + "\n" for row in rows)))
    assert job["warnings"] == 0
    assert {column["name"]: column["numbers"] for column in job["columns"] if column["numbers"]} == {
        "german": ",", "english": ".", "swiss": ".", "thousands": ",", "spaced": ",", "empty": ",",
    }  # fmt: skip
    for number in (0, 1):
        data = get_contact(api, f"a{number}@amounts.example")["data"]
        assert data == {name: v for name, values in columns.items() if (v := values[2 + number]) is not None}


@pytest.mark.parametrize(
    ("delimiter", "options", "verdict", "data"),
    [
        (";", {"default_country": "DE"}, ",", [1234, 2010]),
        # A spreadsheet does not write a decimal comma into a file whose delimiter is a comma.
        (",", {"default_country": "DE"}, "ambiguous", [1.234, 2.01]),
        (";", {"default_country": "US"}, None, [1.234, 2.01]),
        (";", {"default_country": None}, "ambiguous", [1.234, 2.01]),
        (",", {"default_country": None, "decimal_mark": ","}, ",", [1234, 2010]),
        (";", {"default_country": "DE", "decimal_mark": "."}, None, [1.234, 2.01]),
        (";", {"default_country": "DE", "column_types": {"orders": "text"}}, None, ["1.234", "2.010"]),
    ],
    ids=str,
)  # fmt: skip
def test_numbers_that_can_be_read_in_two_ways(
    api: Client, delimiter: str, options: dict[str, Any], verdict: str | None, data: list[Any]
) -> None:
    """`1.234` is 1234 or 1.234 by the option, else by the country and the delimiter; else it stays as it was."""
    rows = [("email", "orders"), ("e0@either.example", "1.234"), ("e1@either.example", "2.010")]
    job = wait_for_import(api, upload(api, "".join(delimiter.join(row) + "\n" for row in rows), **options))
    assert job["columns"][1]["numbers"] == verdict and job["warnings"] == 0
    assert [get_contact(api, f"e{number}@either.example")["data"]["orders"] for number in (0, 1)] == data


def test_other_columns_show_the_decimal_mark_of_ambiguous_numbers(api: Client) -> None:
    """Another column of the file decides before the country; what no mark decides stays text with a warning."""
    file = "email;orders;price\nf0@either.example;1,234;9.99\nf1@either.example;12;1.5\n"
    wait_for_import(api, upload(api, file, default_country="DE"))
    assert get_contact(api, "f0@either.example")["data"] == {"orders": 1234, "price": 9.99}
    file = "email;orders\nf2@either.example;1,234\n"
    job = wait_for_import(api, upload(api, file, default_country=None))
    assert (job["columns"][1]["numbers"], job["warnings"]) == ("ambiguous", 1)
    assert "orders: 1,234 (may have a decimal comma" in import_results(api, job["id"])[0]["warnings"]
    file = "email;price\nf3@either.example;9,90\nf4@either.example;on request\n"
    job = wait_for_import(api, upload(api, file, column_types={"price": "number"}))
    assert get_contact(api, "f3@either.example")["data"] == {"price": 9.9}
    assert get_contact(api, "f4@either.example")["data"] == {"price": "on request"} and job["warnings"] == 1
    errors = upload(api, file, column_types={"cost": "text"}).expect(422)["validation_errors"]
    assert errors == {"options.column_types.cost": ["must exist"]}


@pytest.mark.parametrize(
    ("options", "data"),
    [
        ({}, [45123, 30000, 45123.5, "soon"]),
        ({"column_types": {"since": "date"}}, ["2023-07-16", "1982-02-18", "2023-07-16T12:00:00", "soon"]),
        ({"column_types": {"since": "text"}}, ["45123", "30000", "45123.5", "soon"]),
    ],
    ids=str,
)
def test_day_numbers_of_a_spreadsheet_are_dates_in_a_column_of_dates(
    api: Client, options: dict[str, Any], data: list[Any]
) -> None:
    """45123 is 16 July 2023 in a column of the type date and in times of consent, and a number in any other column."""
    cells = ("45123", "30000", "45123.5", "soon")
    rows = [f"d{number}@days.example,{cell},{cells[number % 2]}" for number, cell in enumerate(cells)]
    file = "email,since,opt-in date\n" + "".join(f"{row}\n" for row in rows)
    wait_for_import(api, upload(api, file, **options))
    contacts = [get_contact(api, f"d{number}@days.example") for number in range(len(cells))]
    assert [contact["data"]["since"] for contact in contacts] == data
    assert contacts[0]["channels"][0]["opt_in_at"].startswith("2023-07-16T00:00")


def test_a_column_of_dates_has_day_numbers_and_written_dates(api: Client) -> None:
    """A year is no day number, and a value that is no date stays text with a warning."""
    file = "email,born\nb0@born.example,31.12.1985\nb1@born.example,1985\nb2@born.example,31412\n"
    job = wait_for_import(api, upload(api, file, column_types={"born": "date"}))
    data = [get_contact(api, f"b{number}@born.example")["data"]["born"] for number in range(3)]
    assert data == ["1985-12-31", "1985", "1985-12-31"] and job["warnings"] == 1


def test_titles_totals_and_empty_lines(api: Client) -> None:
    """Column names are found below titles, empty lines are skipped, and a line with a total fails."""
    titles = "Customers 2026;;\nas of November;;\n\n"
    file = f"{titles}E-Mail-Adresse;Prénom;Téléphone\nt1@totals.example;Zoé;\n;;\n;;\nSum;1;\n"
    job = wait_for_import(api, upload(api, file))

    assert row_counts(job) == (2, 1, 0, 0, 1)
    assert get_contact(api, "t1@totals.example")["first_name"] == "Zoé"
    lines = import_results(api, job["id"])
    assert [(row["line"], row["result"]) for row in lines] == [("5", "created"), ("8", "failed")]


@pytest.mark.parametrize(
    ("header", "no", "yes"),
    [("Accepts Email Marketing", "no", "yes"), ("Newsletter", "nein", "ja"), ("Newsletter", "Non", "Oui"),
     ("Suscrito", "no", "sí"), ("Email Marketing Consent", "NEVER_SUBSCRIBED", "SUBSCRIBED"),
     ("Status", "Désinscrit", "Inscrit"), ("Status", "abgemeldet", "aktiv"), ("Newsletter-Status", "abgemeldet", "Ja"),
     ("Status", "baja", "alta"),
     ("Status", "Disiscritta", "Iscritta"), ("Status", "Descadastrado", "Ativo"), ("Newsletter", "não", "sim"),
     ("Status", "uitgeschreven", "Bevestigd"), ("Status", "Wypisana", "Aktywny"), ("Newsletter", "nie", "tak"),
     ("Status", "配信停止", "登録済み"), ("Newsletter", "いいえ", "はい")],
)  # fmt: skip
def test_consent_columns_in_several_languages(api: Client, header: str, no: str, yes: str) -> None:
    """Columns and values of consent are recognized in several languages."""
    name = f"{header}{no}".lower().encode().hex()[-40:]
    file = f"Email;{header}\nno.{name}@said.example;{no}\nyes.{name}@said.example;{yes}\n"
    job = wait_for_import(api, upload(api, file))

    assert (job["warnings"], job["arriving"]["subscribed"], job["arriving"]["unsubscribed"]) == (0, 1, 1)
    assert not get_contact(api, f"no.{name}@said.example")["subscribed_email"]
    assert get_contact(api, f"yes.{name}@said.example")["subscribed_email"]


def test_status_words_of_german_exports(api: Client) -> None:
    """German words for a cleaned, a blocked and a never subscribed address are statuses."""
    file = "Email;Status\nb@wort.example;Bereinigt\nu@wort.example;Ungültig\ns@wort.example;Unterdrückt\n"
    job = wait_for_import(api, upload(api, f"{file}n@wort.example;Nicht abonniert\n"))

    assert (job["warnings"], job["arriving"]["subscribed"]) == (0, 0)
    channels = {name: get_contact(api, f"{name}@wort.example")["channels"][0] for name in "busn"}
    assert {name: channel["suppression_reason"] for name, channel in channels.items()} == {
        "b": "hard_bounce", "u": "hard_bounce", "s": "manual", "n": None,
    }  # fmt: skip


def subscriptions(api: Client, name: str) -> tuple[bool, bool]:
    """Return whether a contact is subscribed to email and to SMS."""
    contact = get_contact(api, name)
    return contact["subscribed_email"], contact["subscribed_phone"]


def test_phone_numbers_are_opted_in_only_if_the_import_says_so(api: Client) -> None:
    """With `opt_in_phone` false, no phone number is subscribed, and what was subscribed before stays so."""
    api.post("/contacts", {"email": "old@sms.example", "phone": "+14155557171"}).expect(201)
    file = "email,phone,newsletter\nold@sms.example,+14155557171,yes\nnew@sms.example,+14155557172,yes\n"
    file += ",+14155557173,\n"
    job = wait_for_import(api, upload(api, file, opt_in_phone=False))
    assert job["options"]["opt_in_phone"] is False
    assert (subscriptions(api, "old@sms.example"), subscriptions(api, "new@sms.example")) == (
        (True, True),
        (True, False),
    )
    [only_phone] = api.get("/contacts", search="14155557173").json
    assert not only_phone["subscribed_phone"]
    assert job["arriving"]["reasons"] == {"sms_not_opted_in": 1}
    wait_for_import(api, upload(api, file))  # Without the option, `opt_in` is for both, as documented.
    assert subscriptions(api, "new@sms.example") == (True, True)


def test_rows_that_say_neither_yes_nor_no(api: Client) -> None:
    """With `opt_in_unstated` false, empty and unreadable cells subscribe nobody, and unsubscribe nobody either."""
    api.post("/contacts", {"email": "was@unstated.example"}).expect(201)
    cells = {"yes": "ja", "no": "nein", "blank": "", "was": "", "odd": "vielleicht", "status": ""}
    file = "email;phone;Newsletter;Status\n" + "".join(
        f"{name}@unstated.example;+1415556{number:04};{cell};{'active' if name == 'status' else ''}\n"
        for number, (name, cell) in enumerate(cells.items())
    )
    job = wait_for_import(api, upload(api, file, opt_in_unstated=False))
    assert {name: subscriptions(api, f"{name}@unstated.example") for name in cells} == {
        "yes": (True, True), "no": (False, False), "blank": (False, False), "was": (True, False),
        "odd": (False, False), "status": (True, True),
    }  # fmt: skip
    assert job["arriving"]["reasons"] == {"file": 1, "unstated": 2}
    assert [column["unstated"] for column in job["columns"]] == [0, 0, 3, 3]
    wait_for_import(api, upload(api, file))  # Without the option, only a no keeps somebody out, as documented.
    assert subscriptions(api, "blank@unstated.example") == (True, True)


def test_a_no_to_sms_is_kept_for_contacts_with_only_a_phone_number(api: Client) -> None:
    """The column of consent to SMS also counts in rows without an email address."""
    file = "email,phone,SMS opt in\n,+14155557181,no\n,+14155557182,yes\n,+14155557183,\n"
    wait_for_import(api, upload(api, file, opt_in_unstated=False))
    people = [api.get("/contacts", search=f"1415555718{number}").json[0] for number in (1, 2, 3)]
    assert [person["subscribed_phone"] for person in people] == [False, True, False]


def create_messy_file(api: Client) -> str:
    """Return a file with many kinds of rows, and create the contacts that it repeats."""
    for name in ("known", "left", "bounced"):
        api.post("/contacts", {"email": f"{name}@exact.example", "phone": f"+1415555{len(name):04}"}).expect(201)
    channel = get_contact(api, "left@exact.example")
    api.patch(f"/contacts/{channel['id']}", {"subscribed_email": False}).expect(200)
    wait_for_import(api, upload(api, "email,status\nleft2@exact.example,unsubscribed\n"))
    api.post("/suppressions", {"address": "bounced@exact.example", "reason": "hard_bounce"}).expect(201)
    lines = ["email,phone,status,born"]
    for number in range(260):
        status = {7: "unsubscribed", 11: "cleaned", 13: "gold"}.get(number % 17, "")
        # Several contacts share a phone number, far apart in the file
        phone = f"+1415556{number % 97:04}" if number % 5 == 0 else "07700 900003" if number % 5 == 1 else ""
        lines.append(f"e{number}@exact.example,{phone},{status},03/04/2026")
    lines += [f"E{number}@exact.example,,{'unsubscribed' if number % 2 else ''}," for number in range(90, 110)]
    lines += [",+14155560005,unsubscribed,", ",+14155569999,,", "known@exact.example,,unsubscribed,"]
    lines += [f"{name}@exact.example,,," for name in ("left", "left2", "bounced")] + ["nobody,,,"]
    return "\n".join(lines) + "\n"


COUNTED = ("total", "created", "updated", "skipped", "failed", "warnings", "arriving")


@pytest.mark.parametrize("options", [{}, {"on_conflict": "skip"}, {"opt_in": False}], ids=str)
def test_a_dry_run_predicts_the_import(tmp_path: Path, options: dict[str, Any]) -> None:
    """The dry run counts what the import then counts, and the contacts of the account agree."""
    from tests.kit.server import Server

    with Server().set_up() as server:
        api = server.client()
        file = create_messy_file(api)
        before = {row["id"]: row for row in api.all("/contacts")}
        check = wait_for_import(api, upload(api, file, dry_run=True, **options))
        assert {row["id"]: row for row in api.all("/contacts")} == before
        job = wait_for_import(api, upload(api, file, **options))

        assert {name: check[name] for name in COUNTED} == {name: job[name] for name in COUNTED}
        results, planned = import_results(api, job["id"]), import_results(api, check["id"])
        names = ("line", "result", "warnings", "state")
        assert [[row[name] for name in names] for row in planned] == [[row[name] for name in names] for row in results]
        ids = {int(row["contact_id"]) for row in results if row["result"] in ("created", "updated")}
        counted = {"subscribed": 0, "unsubscribed": 0, "suppressed": 0}
        for contact in api.all("/contacts"):
            if contact["id"] in ids:
                first = next(
                    (channel for channel in contact["channels"] if channel["kind"] == "email"), contact["channels"][0]
                )
                out = "subscribed" if first["subscribed"] else "unsubscribed"
                counted["suppressed" if first["suppression_reason"] else out] += 1
        assert counted == {name: job["arriving"][name] for name in counted}
        assert job["failed"] == 1 and job["warnings"] > 50
        assert sum(job["arriving"]["reasons"].values()) == counted["unsubscribed"] + counted["suppressed"]


def test_a_shared_phone_number_does_not_mix_contacts(api: Client) -> None:
    """A row without a readable email updates the contact of its phone number only if the names do not contradict."""
    file = (
        "email,phone,first_name,last_name\n"
        "heike@shared.example,+14155550171,Heike,Fuchs\n"
        "zwei@@shared.example,+14155550171,Oezlem,Loeffler\n"
        ",+14155550171,Bjoern,Jaeger\n"
        ",+14155550171,Heike Maria,FUCHS\n"
    )
    job = wait_for_import(api, upload(api, file))
    assert [line["result"] for line in import_results(api, job["id"])] == ["created", "skipped", "skipped", "updated"]
    reasons = [line["reason"] for line in import_results(api, job["id"])][1:3]
    assert reasons == ["its phone number belongs to another contact"] * 2
    heike = get_contact(api, "heike@shared.example")
    assert (heike["first_name"], heike["last_name"]) == ("Heike Maria", "FUCHS")


def test_an_address_with_a_space_is_invalid(api: Client) -> None:
    """`a b@…` is left out with a warning, and not imported as `b@…`."""
    file = "email,phone\na b@spaced.example,+14155550181\nAnn <ann@spaced.example>,\n"
    job = wait_for_import(api, upload(api, file))
    assert [line["result"] for line in import_results(api, job["id"])] == ["created", "created"]
    assert import_results(api, job["id"])[0]["warnings"] == "email: a b@spaced.example (is not an email address)"
    assert int(api.get("/contacts", search="b@spaced.example", limit=1).headers["X-Total-Count"]) == 0


def test_a_shared_phone_number_stays_with_the_first_line(api: Client) -> None:
    """Later contacts are imported without it, each with a warning, and the dry run says the same.

    Repeated lines of a contact are applied in order.
    """
    file = (
        "email,phone,first_name\n"
        "zoe@office.example,+14155550191,Zoe\n"
        "bob@office.example,+14155550191,Bob\n"
        "zoe@office.example,,Zoe Marie\n"
        "amy@office.example,+1 (415) 555-0191,Amy\n"
        "amy@office.example,+14155550192,Amy Lee\n"
        "kim@office.example,+14155550193,Kim\n"
    )
    check = wait_for_import(api, upload(api, file, dry_run=True))
    job = wait_for_import(api, upload(api, file))

    contacts = [get_contact(api, f"{name}@office.example") for name in ("zoe", "bob", "amy", "kim")]
    assert [contact["phone"] for contact in contacts] == ["+14155550191", None, "+14155550192", "+14155550193"]
    assert [contact["first_name"] for contact in contacts] == ["Zoe Marie", "Bob", "Amy Lee", "Kim"]
    for lines in (import_results(api, check["id"]), import_results(api, job["id"])):
        assert [line["result"] for line in lines] == ["created", "created", "updated", "created", "updated", "created"]
        warning = "phone: +14155550191 (belongs to another contact)"
        assert [line["warnings"] for line in lines] == ["", warning, "", warning, "", ""]
        assert [line["reason"] for line in lines] == [
            "", "", "the same address as line 2", "", "the same address as line 5", "",
        ]  # fmt: skip
    assert check["warnings"] == job["warnings"] == 2


def test_repeated_rows_are_counted(api: Client) -> None:
    """Rows with the email or phone of an earlier row are counted as `repeated`."""
    api.post("/contacts", {"email": "old@repeats.example"}).expect(201)
    file = (
        "email,phone\nold@repeats.example,\nOLD@repeats.example,\nnew@repeats.example,+14155550195\n"
        ",+14155550195\nnew@repeats.example,\nother@repeats.example,\nnobody,\n"
    )
    check = wait_for_import(api, upload(api, file, dry_run=True))
    job = wait_for_import(api, upload(api, file))
    for row in (check, job):
        assert (*row_counts(row), row["repeated"]) == (7, 2, 4, 0, 1, 3)
    again = wait_for_import(api, upload(api, file, on_conflict="skip"))
    assert (*row_counts(again), again["repeated"]) == (7, 0, 0, 6, 1, 0)
    addresses = "email\nstop@repeats.example\nstop@repeats.example\n"
    suppressed = wait_for_import(api, upload(api, addresses, resource="suppressions"))
    assert (*row_counts(suppressed), suppressed["repeated"]) == (2, 1, 0, 1, 0, 0)


def test_a_contact_has_a_limited_number_of_addresses(api: Client) -> None:
    """An import leaves further addresses out with a warning, and the API refuses them."""
    file = "email,phone\n" + "".join(f"ada@many.example,+141555502{number:02}\n" for number in range(52))
    check = wait_for_import(api, upload(api, file, dry_run=True))
    job = wait_for_import(api, upload(api, file))

    contact = get_contact(api, "ada@many.example")
    assert len(contact["channels"]) == 50
    for lines in (import_results(api, check["id"]), import_results(api, job["id"])):
        assert [line["result"] for line in lines] == ["created", *["updated"] * 51]
        assert [line["warnings"] for line in lines[48:]] == [
            "", *(f"phone: +141555502{number} (is one too many (maximum is 50 addresses))" for number in (49, 50, 51)),
        ]  # fmt: skip
    path = f"/contacts/{contact['id']}"
    refused = api.patch(path, {"channels_attributes": [{"value": "more@many.example"}]})
    assert refused.expect(422)["validation_errors"] == {
        "channels_attributes": ["is too long (maximum is 50 entries)"],
    }  # fmt: skip
    swap = [{"id": contact["channels"][-1]["id"], "_destroy": True}, {"value": "more@many.example"}]
    assert len(api.patch(path, {"channels_attributes": swap}).expect(200)["channels"]) == 50
    other = api.post("/contacts", {"email": "other@many.example"}).expect(201)
    assert api.post(f"{path}/merge", {"contact_id": other["id"]}).expect(422)["validation_errors"] == {
        "contact_id": ["has too many addresses for a merge (maximum is 50 together)"]
    }
