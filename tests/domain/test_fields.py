"""Validation of requests: all errors at once, under their paths, with fixed messages."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.audience.contacts.store import ContactPatch, ContactQuery, ContactWrite
from appliance.campaigns.store import CampaignCreate, SendRequest
from appliance.content.brand import BrandWrite
from appliance.core import validation
from appliance.core.errors import Faults, Invalid
from appliance.core.validation import PageQuery

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


def field_errors(struct: type, body: Any, loose: bool = False) -> dict[str, list[str]]:
    """Return the errors of a body by field path; empty if it is valid."""
    try:
        validation.read(struct, body, loose=loose)
    except Invalid as error:
        return error.fields
    return {}


def test_all_errors_are_reported_at_once() -> None:
    """A body with an error in every field gets all of them, each under its path."""
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
    assert field_errors(ContactWrite, body) == {
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


def test_nested_errors_have_full_paths() -> None:
    """Errors in nested objects are reported under the full path."""
    body = {
        "name": " ",
        "channel": "fax",
        "scheduled_at": "2026-01-01T00:00:00",
        "trigger_attributes": {"contact_list_id": 0, "event": "Bad name", "list": 1},
        "template_attributes": {"subject": "x" * 999, "from_email": "x", "design": []},
    }
    assert field_errors(CampaignCreate, body) == {
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
def test_a_body_that_is_not_an_object_has_an_error_at_base(body: Any) -> None:
    """A body that is not an object gives one error, at `base`."""
    assert field_errors(CampaignCreate, body) == {"base": ["is invalid"]}


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (-1, "must be greater than or equal to 0"),
        (86_401, "must be less than or equal to 86400"),
        (1.5, "is not a number"),
        (True, "is not a number"),
        ("15", "is not a number"),
        (None, "can't be blank"),
    ],
)
def test_invalid_integers_are_rejected(value: Any, error: str) -> None:
    """Text, booleans, fractions, null and values out of range are rejected."""
    assert field_errors(SendRequest, {"hold_seconds": value}) == {"hold_seconds": [error]}


@pytest.mark.parametrize("name", ["first_name", "source"])
@pytest.mark.parametrize("text", ["a\0", "\ud800", "a\nb", "a\rb", "a\x85b", "a\u2028b", "a\u2029b", "a\x0bb", "\x7f"])
def test_control_characters_are_rejected_in_single_line_text(name: str, text: str) -> None:
    """Names and sources may not contain control characters, line separators or lone surrogates."""
    assert field_errors(ContactWrite, {name: text}) == {name: ["is invalid"]}


@pytest.mark.parametrize("data", [{"a": "\ud800"}, {"a": "\0"}, {"a": ["\0"]}, {"\0": 1}])
def test_unstorable_custom_data_is_rejected(data: dict[str, Any]) -> None:
    """NUL and lone surrogates are rejected at any depth of custom data."""
    assert field_errors(ContactWrite, {"data": data}) == {"data": ["is invalid"]}


def test_an_unencodable_key_is_reported_with_a_placeholder() -> None:
    """A lone surrogate in a key appears as `?` in the error's path; in a value it is an invalid value."""
    attributes = {"trigger_attributes": {"\ud800": 1}}
    assert field_errors(CampaignCreate, {"name": "x", **attributes}) == {
        "trigger_attributes.?": ["is not a known field"]
    }
    attributes = {"trigger_attributes": {"event": "\ud800"}}
    assert field_errors(CampaignCreate, {"name": "x", **attributes}) == {"trigger_attributes.event": ["is invalid"]}


def test_size_limits() -> None:
    """Data over 32 KiB and more than 500 list ids are rejected; values just below pass."""
    assert field_errors(ContactWrite, {"data": {"a": "x" * 33_000}}) == {
        "data": ["is too long (maximum is 32768 bytes)"]
    }
    assert field_errors(ContactWrite, {"list_ids": [1] * 501}) == {"list_ids": ["is too long (maximum is 500 entries)"]}
    assert field_errors(ContactWrite, {"data": {"a": "x" * 32_000}, "list_ids": [1] * 500}) == {}


@pytest.mark.parametrize(
    "text", ["2026-11-20", "2026-11-20T09:30:00", "tomorrow", "", "2026-13-01T00:00:00Z", 5, True, {}]
)
def test_a_time_needs_an_offset(text: Any) -> None:
    """A date, a time without offset and anything else that is not a time are invalid."""
    assert field_errors(CampaignCreate, {"name": "n", "scheduled_at": text}) == {"scheduled_at": ["is invalid"]}


@pytest.mark.parametrize(
    "text",
    ["2026-11-20T09:30:00Z", "2026-11-20T09:30:00.000Z", "2026-11-20T10:30:00+01:00", "2026-11-20T04:30:00-05:00"],
)
def test_times_in_any_offset_are_equal(text: str) -> None:
    """The same time in any offset gives the same number of milliseconds."""
    assert validation.read(CampaignCreate, {"name": "n", "scheduled_at": text}).scheduled_at == 1_795_167_000_000


def test_absent_and_null_fields_differ() -> None:
    """`sent_fields` returns null fields as None, and no absent fields."""
    assert validation.sent_fields(validation.read(ContactPatch, {"first_name": None, "last_name": "Lee"})) == {
        "first_name": None,
        "last_name": "Lee",
    }


def test_unknown_keys_are_ignored_and_reported() -> None:
    """Unknown keys are ignored and returned with their paths, also those of nested entries."""
    body = {"id": 7, "email": "a@example.org", "channels_attributes": [{"value": "b@example.org", "verified_at": "x"}]}
    value, ignored = validation.read_with_ignored(ContactWrite, body)
    assert value.email == "a@example.org"
    assert sorted(ignored) == ["channels_attributes[0].verified_at", "id"]


def test_addresses_and_countries_are_normalized() -> None:
    """Email, phone and country are returned in their stored form."""
    contact = validation.read(
        ContactWrite, {"email": " Ann@EXAMPLE.org", "phone": "+1 (415) 555-0123", "country_code": "de"}
    )
    assert (contact.email, contact.phone, contact.country_code) == ("Ann@example.org", "+14155550123", "DE")


def test_query_strings_are_parsed_from_text() -> None:
    """Numbers and booleans of a query string are text; errors are those of a body."""
    query = validation.read(
        ContactQuery, {"page": "2", "limit": "10", "list_id": "7", "subscribed_email": "true"}, loose=True
    )
    assert (query.page, query.size(), query.list_id, query.subscribed_email) == (2, 10, 7, True)
    assert field_errors(ContactQuery, {"page": "0", "limit": "x", "subscribed_email": "maybe"}, loose=True) == {
        "page": ["must be greater than or equal to 1"],
        "limit": ["is not a number"],
        "subscribed_email": ["is invalid"],
    }


@pytest.mark.parametrize(
    ("query", "size"),
    [({}, 50), ({"limit": "7"}, 7), ({"per_page": "8"}, 8), ({"per": "9"}, 9), ({"limit": "101"}, 100),
     ({"per": "9", "limit": "7"}, 7), ({"per": "9", "per_page": "8"}, 8)],
)  # fmt: skip
def test_aliases_of_the_page_size(query: dict[str, str], size: int) -> None:
    """The first of `limit`, `per_page` and `per` counts; the default is 50 and the maximum 100."""
    assert validation.read(PageQuery, query, loose=True).size() == size


@pytest.mark.parametrize("colour", ["#fff", "red", "#gggggg", "ffffff", "#ffffff;x", "#12345678"])
def test_malformed_brand_colours_are_rejected(colour: str) -> None:
    """A brand colour is a hash sign and six hexadecimal digits."""
    assert field_errors(BrandWrite, {"brand_color": colour}) == {"brand_color": ["is invalid"]}


@given(body=JSON)
def test_any_json_is_valid_or_gives_field_errors(body: Any) -> None:
    """Any JSON body is accepted or gives field errors, never another exception."""
    for struct in (ContactWrite, CampaignCreate, BrandWrite):
        assert all(messages for messages in field_errors(struct, body).values())


@given(
    entries=st.lists(
        st.dictionaries(st.sampled_from(["id", "value", "kind", "_destroy"]), JSON, max_size=3), max_size=4
    )
)
def test_errors_of_entries_name_the_entry(entries: list[dict[str, Any]]) -> None:
    """Any nested entries are accepted or give errors whose paths name an entry."""
    errors = field_errors(ContactWrite, {"channels_attributes": entries})
    assert all(path.startswith("channels_attributes[") for path in errors)


def test_the_errors_of_very_many_fields_are_cut() -> None:
    """Every error of the longest list is reported; of more fields, those of the first 10,000 are."""
    faults = Faults()
    for index in range(10_001):
        faults.add(f"ids[{index}]", "is invalid")
    faults.add("ids[0]", "must exist")
    assert len(faults.fields) == 10_000
    assert (faults.fields["ids[0]"], faults.fields["ids[9999]"]) == (["is invalid", "must exist"], ["is invalid"])
