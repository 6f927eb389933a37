"""The reader of requests: all faults at once, under their paths, in words that never change."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.audience.contacts.store import ContactPatch, ContactQuery, ContactWrite
from appliance.campaigns.store import CampaignCreate, SendRequest
from appliance.content.brand import BrandWrite
from appliance.core import validation
from appliance.core.errors import Invalid
from appliance.core.validation import PageQuery

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


def faults(kind: type, body: Any, loose: bool = False) -> dict[str, list[str]]:
    """Return what is wrong with a body; empty if nothing is."""
    try:
        validation.read(kind, body, loose=loose)
    except Invalid as error:
        return error.fields
    return {}


def test_all_faults_come_at_once() -> None:
    """A body with a fault in every field is told every one of them, each under its path."""
    body = {
        "first_name": "x" * 256,
        "last_name": "a\nb",
        "email": "nope",
        "phone": "12",
        "source": 5,
        "country_code": "DEU",
        "list_ids": ["x", 0, 1, None],
        "data": [],
        "channels_attributes": [{"value": "a@example.org"}, {"value": 5}, {"id": 0, "kind": "fax"}, 7],
        "opt_in": "yes",
        "subscribed_email": "maybe",
        "tracking": "some",
    }
    assert faults(ContactWrite, body) == {
        "first_name": ["is too long (maximum is 255 characters)"],
        "last_name": ["is invalid"],
        "email": ["is invalid"],
        "phone": ["is invalid"],
        "source": ["is invalid"],
        "country_code": ["is invalid"],
        "list_ids[0]": ["is not a number"],
        "list_ids[1]": ["must be greater than or equal to 1"],
        "list_ids[3]": ["can't be blank"],
        "data": ["is invalid"],
        "channels_attributes[1].value": ["is invalid"],
        "channels_attributes[2].id": ["must be greater than or equal to 1"],
        "channels_attributes[2].kind": ["is not included in the list"],
        "channels_attributes[3]": ["is invalid"],
        "opt_in": ["is invalid"],
        "subscribed_email": ["is invalid"],
        "tracking": ["is not included in the list"],
    }


def test_nested_faults_carry_their_path() -> None:
    """Faults inside nested objects are named by the whole way to them."""
    body = {
        "name": " ",
        "channel": "fax",
        "scheduled_at": "2026-01-01T00:00:00",
        "trigger_attributes": {"contact_list_id": 0, "event": "Bad name", "list": 1},
        "template_attributes": {"subject": "x" * 999, "from_email": "x", "design": []},
    }
    assert faults(CampaignCreate, body) == {
        "name": ["can't be blank"],
        "channel": ["is not included in the list"],
        "scheduled_at": ["is invalid"],
        "trigger_attributes.contact_list_id": ["must be greater than or equal to 1"],
        "trigger_attributes.event": ["is invalid"],
        "trigger_attributes.list": ["is not a known field"],
        "template_attributes.subject": ["is too long (maximum is 998 characters)"],
        "template_attributes.from_email": ["is invalid"],
        "template_attributes.design": ["is invalid"],
    }


@pytest.mark.parametrize("body", [[], "x", 5, None, True, [{"name": "x"}]])
def test_what_is_no_object_is_told_at_base(body: Any) -> None:
    """A body that is no object has one fault, at `base`."""
    assert faults(CampaignCreate, body) == {"base": ["is invalid"]}


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (-1, "must be greater than or equal to 0"),
        (86_401, "must be less than or equal to 86400"),
        (1.5, "is not a number"),
        (True, "is not a number"),
        ("15", "is not a number"),
        (None, "can't be blank"),
    ],
)
def test_numbers_are_numbers(value: Any, words: str) -> None:
    """In JSON a number is a number: not text, not a boolean, not a fraction where it counts."""
    assert faults(SendRequest, {"hold_seconds": value}) == {"hold_seconds": [words]}


@pytest.mark.parametrize("name", ["first_name", "source"])
@pytest.mark.parametrize("evil", ["a\0", "\ud800", "a\nb", "a\rb", "a\x85b", "a\u2028b", "a\u2029b", "a\x0bb", "\x7f"])
def test_one_line_holds_no_controls(name: str, evil: str) -> None:
    """What ends up on one line or in a header holds no control character, separator or half character."""
    assert faults(ContactWrite, {name: evil}) == {name: ["is invalid"]}


@pytest.mark.parametrize("data", [{"a": "\ud800"}, {"a": "\0"}, {"a": ["\0"]}, {"\0": 1}])
def test_data_that_cannot_be_stored_is_refused(data: dict[str, Any]) -> None:
    """NUL and half characters are refused at any depth of free data."""
    assert faults(ContactWrite, {"data": data}) == {"data": ["is invalid"]}


def test_a_name_that_cannot_be_written_is_told_of() -> None:
    """A key or a pattern's text with half a character is a fault that an answer can hold."""
    said = {"trigger_attributes": {"\ud800": 1}}
    assert faults(CampaignCreate, {"name": "x", **said}) == {"trigger_attributes.?": ["is not a known field"]}
    said = {"trigger_attributes": {"event": "\ud800"}}
    assert faults(CampaignCreate, {"name": "x", **said}) == {"trigger_attributes.event": ["is invalid"]}


def test_limits_of_size_hold() -> None:
    """Data over 32 KiB and lists of ids over 500 are refused, just within they pass."""
    assert faults(ContactWrite, {"data": {"a": "x" * 33_000}}) == {"data": ["is too long (maximum is 32768 bytes)"]}
    assert faults(ContactWrite, {"list_ids": [1] * 501}) == {"list_ids": ["is too long (maximum is 500 entries)"]}
    assert faults(ContactWrite, {"data": {"a": "x" * 32_000}, "list_ids": [1] * 500}) == {}


@pytest.mark.parametrize(
    "text", ["2026-11-20", "2026-11-20T09:30:00", "tomorrow", "", "2026-13-01T00:00:00Z", 5, True, {}]
)
def test_a_time_needs_its_offset(text: Any) -> None:
    """A moment without an offset, or none at all, is invalid."""
    assert faults(CampaignCreate, {"name": "n", "scheduled_at": text}) == {"scheduled_at": ["is invalid"]}


@pytest.mark.parametrize(
    "text",
    ["2026-11-20T09:30:00Z", "2026-11-20T09:30:00.000Z", "2026-11-20T10:30:00+01:00", "2026-11-20T04:30:00-05:00"],
)
def test_any_offset_is_the_same_moment(text: str) -> None:
    """The same moment in any offset is the same number."""
    assert validation.read(CampaignCreate, {"name": "n", "scheduled_at": text}).scheduled_at == 1_795_167_000_000


def test_absent_and_null_differ() -> None:
    """Absent fields are not among the given ones; null is, as None."""
    assert validation.sent_fields(validation.read(ContactPatch, {"first_name": None, "last_name": "Lee"})) == {
        "first_name": None,
        "last_name": "Lee",
    }


def test_unknown_keys_are_ignored_and_named() -> None:
    """Keys nobody declared are left out and named with their path, also inside entries."""
    body = {"id": 7, "email": "a@example.org", "channels_attributes": [{"value": "b@example.org", "verified_at": "x"}]}
    value, ignored = validation.read_with_ignored(ContactWrite, body)
    assert value.email == "a@example.org"
    assert sorted(ignored) == ["channels_attributes[0].verified_at", "id"]


def test_values_are_normalised_while_read() -> None:
    """Addresses and countries come out in the form in which they are kept."""
    found = validation.read(
        ContactWrite, {"email": " Ann@EXAMPLE.org", "phone": "+1 (415) 555-0123", "country_code": "de"}
    )
    assert (found.email, found.phone, found.country_code) == ("Ann@example.org", "+14155550123", "DE")


def test_a_query_takes_numbers_as_text() -> None:
    """A query string's numbers and booleans are text; faults are told like those of a body."""
    found = validation.read(
        ContactQuery, {"page": "2", "limit": "10", "list_id": "7", "subscribed_email": "true"}, loose=True
    )
    assert (found.page, found.size(), found.list_id, found.subscribed_email) == (2, 10, 7, True)
    assert faults(ContactQuery, {"page": "0", "limit": "x", "subscribed_email": "maybe"}, loose=True) == {
        "page": ["must be greater than or equal to 1"],
        "limit": ["is not a number"],
        "subscribed_email": ["is invalid"],
    }


@pytest.mark.parametrize(
    ("query", "size"),
    [({}, 50), ({"limit": "7"}, 7), ({"per_page": "8"}, 8), ({"per": "9"}, 9), ({"limit": "101"}, 100),
     ({"per": "9", "limit": "7"}, 7), ({"per": "9", "per_page": "8"}, 8)],
)  # fmt: skip
def test_the_first_name_of_a_limit_wins(query: dict[str, str], size: int) -> None:
    """`limit`, `per_page`, `per`: the first present counts, 50 without any, 100 at most."""
    assert validation.read(PageQuery, query, loose=True).size() == size


@pytest.mark.parametrize("colour", ["#fff", "red", "#gggggg", "ffffff", "#ffffff;x", "#12345678"])
def test_a_colour_has_six_digits(colour: str) -> None:
    """A colour of the brand is a hash and six hexadecimal digits, nothing else."""
    assert faults(BrandWrite, {"brand_color": colour}) == {"brand_color": ["is invalid"]}


@given(body=JSON)
def test_any_json_is_read_or_told(body: Any) -> None:
    """Any JSON at all is read or refused with faults, never another error."""
    for kind in (ContactWrite, CampaignCreate, BrandWrite):
        assert all(messages for messages in faults(kind, body).values())


@given(
    entries=st.lists(
        st.dictionaries(st.sampled_from(["id", "value", "kind", "_destroy"]), JSON, max_size=3), max_size=4
    )
)
def test_any_entries_are_read_or_told(entries: list[dict[str, Any]]) -> None:
    """Whatever stands in nested entries, each fault names the entry it is in."""
    found = faults(ContactWrite, {"channels_attributes": entries})
    assert all(path.startswith("channels_attributes[") for path in found)
