"""Parsing of the cells of a row: addresses, custom data, times, consent, countries."""

import json
from pathlib import Path
from typing import Any

import pytest

from appliance.core import clock, crypto
from appliance.imports import cells
from appliance.imports.people import Person, PersonReader


@pytest.fixture(autouse=True, scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Create the secret key: opted-out addresses are stored as keyed hashes."""
    crypto.create_key(Path(tmp_path_factory.mktemp("key")))


def read_row(**row: Any) -> Person:
    """Read a row whose columns are named after their targets; `__2` makes a second column of the same target."""
    return PersonReader(list(row), [name.partition("__")[0].replace("-", ".") for name in row]).person(
        2, list(row.values())
    )


def custom_data(person: Person) -> Any:
    """Return the custom data of a row, or None."""
    return json.loads(person.data) if person.data else None


def test_further_addresses_become_custom_data() -> None:
    """The first email and phone of a row are its addresses; others are stored as custom data."""
    person = read_row(
        email="ann@example.org", email__2="two@example.org", phone="+14155550101", phone__2="+14155550102"
    )

    assert person.value == "ann@example.org"
    assert custom_data(person) == {"other_email": "two@example.org", "other_phone": "+14155550102"}
    assert [address.value for address in person.list_addresses()] == ["ann@example.org", "+14155550101"]


@pytest.mark.parametrize(
    ("cell", "value"),
    [("7", 7), ("-7", -7), ("0", 0), ("1.5", 1.5), ("true", True), ("false", False), ("007", "007"), ("-0", "-0"),
     ("1e3", "1e3"), ("+7", "+7"), ("TRUE", "TRUE"), ("1234567890123456", "1234567890123456"), ("1.", "1."),
     ("-", "-")],
)  # fmt: skip
def test_parse_typed_cells(cell: str, value: Any) -> None:
    """Canonical numbers and booleans are typed; leading zeros, signs, exponents and long numbers stay text."""
    assert cells.parse_typed(cell) == value and type(cells.parse_typed(cell)) is type(value)


def test_a_data_column_overrides_the_json_column() -> None:
    """In any order, a column for one key takes precedence over the JSON column for all data."""
    row = {"email": "a@example.org", "data-city": "Bath"}

    assert custom_data(read_row(**row, data='{"city": "York", "plan": "pro"}')) == {"city": "Bath", "plan": "pro"}
    assert custom_data(read_row(data='{"city": "York"}', **row)) == {"city": "Bath"}


def test_an_invalid_opt_out_time_keeps_the_opt_out() -> None:
    """Invalid or future times are ignored, and the opt-out remains."""
    future_date = "2999-01-01"
    for cell in (future_date, "yesterday", "0000-00-00 00:00:00", "1969-12-31"):
        person = read_row(email="a@example.org", unsubscribed="yes", opt_out_at=cell)
        assert (person.consent, person.opt_out_at) == ("out", None)
    assert cells.parse_past_time("1970-01-01T00:00:01") == 1000
    assert cells.parse_past_time("1970-01-01T01:00:01+01:00") == 1000
    assert cells.parse_past_time(future_date) is None and clock.now_ms() > 1000
    person = read_row(email="a@example.org", unsubscribed="2020-05-01 10:00:00", opt_out_at="unknown")
    assert (person.consent, person.opt_out_at) == ("out", cells.parse_past_time("2020-05-01 10:00:00"))


def test_consent_columns_apply_to_all_addresses() -> None:
    """Consent without an address kind applies to email and phone; a column of one kind applies to that kind."""
    row = {"email": "a@example.org", "phone": "+14155550101"}

    assert [address.consent for address in read_row(**row, unsubscribed="yes").list_addresses()] == ["out", "out"]
    assert [address.consent for address in read_row(**row, status="unconfirmed").list_addresses()] == ["off", "off"]
    assert [address.consent for address in read_row(**row, subscribed_email="yes").list_addresses()] == ["in", None]
    addresses = read_row(**row, subscribed_email="yes", subscribed_phone="no").list_addresses()
    assert [address.consent for address in addresses] == ["in", "no"]
    # A no to email is not an opt-out from SMS, and a placeholder is not an opt-out.
    assert [address.consent for address in read_row(**row, subscribed_email="no").list_addresses()] == ["no", "off"]
    assert read_row(email="a@example.org", subscribed_email="null").consent == "off"


def test_our_export_tells_an_opt_out_from_an_address_that_is_not_subscribed() -> None:
    """An opt-out by a user, also one that an imported file stated, is a no again; other addresses are just off."""
    channel = {"kind": "email", "value": "a@example.org", "subscribed": False}
    by = (None, "operator", "recipient")

    channels = [cells.parse_channels([{**channel, "opted_out_by": name}])[0] for name in by]
    assert [address.consent for address in channels] == ["off", "no", "out"]


@pytest.mark.parametrize(
    ("cell", "code"),
    [
        ("de", "DE"), ("uk", "GB"), ("UK", "GB"), ("Germany", "DE"), ("Deutschland", "DE"), ("Allemagne", "DE"),
        ("Österreich", "AT"), ("OESTERREICH", None), ("Osterreich", "AT"), ("United Kingdom", "GB"), ("España", "ES"),
        ("Brasil", "BR"), ("Polska", "PL"), ("England", "GB"), ("USA", "US"), ("Mars", None), ("DEU", None),
    ],
)  # fmt: skip
def test_country_codes_and_names(cell: str, code: str | None) -> None:
    """Two-letter codes and names in common languages are recognized; other values give a warning."""
    row: dict[str, Any] = {}
    cells.CELL_READERS["country_code"](row, {}, cell, "country_code")
    assert row.get("country_code") == code
    assert row.get("warnings", []) == ([] if code else [("country_code", cell, "is not a country")])


@pytest.mark.parametrize(
    ("cell", "tag"),
    [
        ("de", "de"), ("DE", "de"), ("de_AT", "de-AT"), ("pt-br", "pt-BR"), ("German", "de"), ("Deutsch", "de"),
        ("deutsch", "de"), ("Français", "fr"), ("anglais", "en"), ("日本語", "ja"), ("czeski", "cs"),
        ("Brazilian Portuguese", "pt-BR"), ("Klingonese", None), ("xx", None), ("1", None),
    ],
)  # fmt: skip
def test_language_codes_and_names(cell: str, tag: str | None) -> None:
    """Codes, and names in the languages of the product, are recognized; other values give a warning."""
    row: dict[str, Any] = {}
    cells.CELL_READERS["language"](row, {}, cell, "language")
    assert row.get("language") == tag
    assert row.get("warnings", []) == (
        [] if tag else [("language", cell, "must be a language code such as de or pt-BR")]
    )


def test_long_cells_of_languages_are_not_cached() -> None:
    """A long cell is not a language, and does not stay in memory (T21)."""
    cells._find_language.cache_clear()
    row: dict[str, Any] = {}
    cells.CELL_READERS["language"](row, {}, "x" * 1_000_000, "language")
    assert row == {"warnings": [("language", "x" * 100, "must be a language code such as de or pt-BR")]}
    assert cells._find_language.cache_info().currsize == 0
    assert all(len(name) <= cells._MAX_LANGUAGE_CHARACTERS for name in cells._language_names())


@pytest.mark.parametrize(
    ("cell", "first_name", "last_name", "title"),
    [
        ("Ann Low", "Ann", "Low", None), ("Kühn, Grace", "Grace", "Kühn", None), ("Käthe", "Käthe", None, None),
        ("Peter  Weiß ", "Peter", "Weiß", None), ("Kühn,", None, "Kühn", None), (", Grace", "Grace", None, None),
        ("Dr. Anna Weiß", "Anna", "Weiß", "Dr."), ("Dr.Anna Weiß", "Anna", "Weiß", "Dr."),
        ("Herr Prof. Dr. med. Max Kurz", "Max", "Kurz", "Herr Prof. Dr. med."),
        ("Dipl.-Ing. (FH) Max Kurz", "Max", "Kurz", "Dipl.-Ing. (FH)"), ("Dr.-Ing. Eva Low", "Eva", "Low", "Dr.-Ing."),
        ("Kühn, Dr. Grace", "Grace", "Kühn", "Dr."), ("Kurz, Max, MBA", "Max", "Kurz", "MBA"),
        ("Frau Weiß", None, "Weiß", "Frau"), ("Mr Low", None, "Low", "Mr"), ("Mrs. Jane Doe", "Jane", "Doe", "Mrs."),
        ("Herr und Frau Weiß", None, "Weiß", "Herr und Frau"), ("Dr.", None, None, "Dr."),
        ("Dr. Phil Kurz", "Phil", "Kurz", "Dr."), ("Drew Herrmann", "Drew", "Herrmann", None),
        ("van der Berg, Käthe", "Käthe", "van der Berg", None), ("Berg, Käthe van der", "Käthe", "van der Berg", None),
        ("Dr. Björn van der Berg", "Björn", "van der Berg", "Dr."), ("von Trapp", None, "von Trapp", None),
        ("Maria Anna de la Cruz", "Maria Anna", "de la Cruz", None), ("Luca di Marco", "Luca", "di Marco", None),
        ("Karl Freiherr von Stein", "Karl", "Freiherr von Stein", None), ("Van Morrison", "Van", "Morrison", None),
        ("John F. Kennedy", "John F.", "Kennedy", None), ("Smith, Jr., John", "John", "Smith Jr.", None),
        ("Juan García López", "Juan", "García López", None),
    ],
)  # fmt: skip
def test_a_full_name_is_split(cell: str, first_name: str | None, last_name: str | None, title: str | None) -> None:
    """A comma separates the last name; titles are neither name and go to a custom field; particles are the last name's.

    A first name and a last name in columns of their own are kept.
    """
    person = read_row(email="a@example.org", name=cell)
    assert (person.first_name, person.last_name, person.warnings) == (first_name, last_name, None)
    assert custom_data(person) == (None if title is None else {"name_title": title})
    person = read_row(email=f'"{cell}" <a@example.org>')
    assert (person.value, person.first_name, person.last_name) == ("a@example.org", first_name, last_name)
    person = read_row(email="a@example.org", first_name="Ada", last_name="Byron", name=cell)
    assert (person.first_name, person.last_name) == ("Ada", "Byron")


@pytest.mark.parametrize(
    "cell",
    ["Ohne", "keine", "None", "n/a", "N/a", "k.A.", "aucun", "Ninguno", "nessuna", "Geen", "brak", "Nenhum", "なし",
     "não informado", "nie podano"],
)  # fmt: skip
def test_words_for_no_country_are_empty(cell: str) -> None:
    """Such a word in any language of the interface is an empty value, not an unknown country; NA is Namibia."""
    person = read_row(email="a@example.org", country_code=cell)
    assert person.country_code is None and not person.warnings
    assert read_row(email="a@example.org", country_code="NA").country_code == "NA"


@pytest.mark.parametrize(
    ("cell", "number", "others"),
    [
        ("0151/37651911", "+4915137651911", None), ("0711/123456", "+49711123456", None),
        ("0171/2345678 / 030/123456", "+491712345678", "030/123456"),
        ("0171 2345678/030 123456", "+491712345678", "030 123456"),
        ("0171 2345678 / Anna", "+491712345678", "Anna"), ("0171/2345678; 030/123456", "+491712345678", "030/123456"),
        ("0151/3765191", None, None),
    ],
)  # fmt: skip
def test_a_slash_separates_only_whole_numbers(cell: str, number: str | None, others: str | None) -> None:
    """A slash stands inside of a number unless all parts are numbers; an invalid number is not cut into two."""
    reader = PersonReader(["email", "phone"], ["email", "phone"], "DE")
    person = reader.person(2, ["a@example.org", cell])
    assert [address.value for address in person.list_addresses()][1:] == ([number] if number else [])
    assert (custom_data(person) or {}).get("other_phone") == others
