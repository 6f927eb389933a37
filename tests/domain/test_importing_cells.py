"""What the cells of a row say together: addresses, values, times, and who has left."""

import json
from pathlib import Path
from typing import Any

import pytest

from appliance.core import clock, crypto
from appliance.imports import cells
from appliance.imports.staging import Person, PersonReader


@pytest.fixture(autouse=True, scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Load a key: addresses are remembered by keyed hashes."""
    crypto.create_key(Path(tmp_path_factory.mktemp("key")))


def person(**row: Any) -> Person:
    """Read a row whose columns go where their names say; `__2` makes a second column for the same."""
    return PersonReader(list(row), [name.partition("__")[0].replace("-", ".") for name in row]).person(
        2, list(row.values())
    )


def data(found: Person) -> Any:
    """Return a person's custom data."""
    return json.loads(found.data) if found.data else None


def test_the_first_of_several_addresses_counts() -> None:
    """The others are kept as data, where nobody is found by them."""
    found = person(email="ann@example.org", email__2="two@example.org", phone="+14155550101", phone__2="+14155550102")

    assert found.value == "ann@example.org"
    assert data(found) == {"other_email": "two@example.org", "other_phone": "+14155550102"}
    assert [one.value for one in found.given()] == ["ann@example.org", "+14155550101"]


@pytest.mark.parametrize(
    ("cell", "value"),
    [("7", 7), ("-7", -7), ("0", 0), ("1.5", 1.5), ("true", True), ("false", False), ("007", "007"), ("-0", "-0"),
     ("1e3", "1e3"), ("+7", "+7"), ("TRUE", "TRUE"), ("1234567890123456", "1234567890123456"), ("1.", "1."),
     ("-", "-")],
)  # fmt: skip
def test_only_what_is_written_as_a_number_is_one(cell: str, value: Any) -> None:
    """A leading zero or plus, an exponent, a zero below zero, too many digits: that stays the text that it is."""
    assert cells.parse_typed(cell) == value and type(cells.parse_typed(cell)) is type(value)


def test_a_column_is_stronger_than_the_one_with_all_data() -> None:
    """In whichever order they come."""
    row = {"email": "a@example.org", "data-city": "Bath"}

    assert data(person(**row, data='{"city": "York", "plan": "pro"}')) == {"city": "Bath", "plan": "pro"}
    assert data(person(data='{"city": "York"}', **row)) == {"city": "Bath"}


def test_a_time_that_cannot_be_loses_no_opt_out() -> None:
    """What is no time or has not come yet is none, the opt-out stays; a time that could be read stays too."""
    soon = "2999-01-01"
    for time in (soon, "yesterday", "0000-00-00 00:00:00", "1969-12-31"):
        found = person(email="a@example.org", unsubscribed="yes", opt_out_at=time)
        assert (found.consent, found.opt_out_at) == ("out", None)
    assert cells.parse_past_time("1970-01-01T00:00:01") == 1000
    assert cells.parse_past_time("1970-01-01T01:00:01+01:00") == 1000
    assert cells.parse_past_time(soon) is None and clock.now_ms() > 1000
    found = person(email="a@example.org", unsubscribed="2020-05-01 10:00:00", opt_out_at="unknown")
    assert (found.consent, found.opt_out_at) == ("out", cells.parse_past_time("2020-05-01 10:00:00"))


def test_who_left_left_with_every_address() -> None:
    """What a row says without saying for which address holds for its phone too; a column of the phone's own counts."""
    row = {"email": "a@example.org", "phone": "+14155550101"}

    assert [one.consent for one in person(**row, unsubscribed="yes").given()] == ["out", "out"]
    assert [one.consent for one in person(**row, status="unconfirmed").given()] == ["off", "off"]
    assert [one.consent for one in person(**row, subscribed_email="yes").given()] == ["in", None]
    told = person(**row, subscribed_email="yes", subscribed_phone="no").given()
    assert [one.consent for one in told] == ["in", "off"]


@pytest.mark.parametrize(
    ("cell", "code"),
    [
        ("de", "DE"), ("uk", "GB"), ("UK", "GB"), ("Germany", "DE"), ("Deutschland", "DE"), ("Allemagne", "DE"),
        ("Österreich", "AT"), ("OESTERREICH", None), ("Osterreich", "AT"), ("United Kingdom", "GB"), ("España", "ES"),
        ("Brasil", "BR"), ("Polska", "PL"), ("England", "GB"), ("USA", "US"), ("Mars", None), ("DEU", None),
    ],
)  # fmt: skip
def test_a_country_is_read_by_its_name(cell: str, code: str | None) -> None:
    """By two letters, or by its name in the languages of most files; anything else is left out and told."""
    row: dict[str, Any] = {}
    cells.CELL_READERS["country_code"](row, {}, cell, "country_code")
    assert row.get("country_code") == code
    assert row.get("warnings", []) == ([] if code else [("country_code", cell, "is not a country")])
