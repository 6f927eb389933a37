"""Contacts over the API (docs/decisions.md#9)."""

import pytest

from tests.kit.client import Client, Response


def test_a_contact_is_created_with_its_channels(api: Client) -> None:
    """Addresses become subscribed channels, and the response has every field."""
    body = {
        "email": "Anna.Kurz@Example.org",
        "phone": "+49 (151) 123-45 67",
        "first_name": "Anna",
        "data": {"city": "Köln"},
    }
    contact = api.post("/contacts", body).expect(201)
    email, phone = contact["channels"]

    assert (email["value"], email["kind"], email["subscribed"]) == ("Anna.Kurz@example.org", "email", True)
    assert (phone["value"], phone["kind"]) == ("+491511234567", "phone")
    assert (contact["country_code"], contact["data"]) == ("DE", {"city": "Köln"})
    assert (contact["subscribed_email"], contact["subscribed_phone"], contact["sendable_email"]) == (True, True, True)
    assert (contact["verification_status"], contact["enrichment_status"], contact["kept_opt_out"]) == (
        "unverified", "not_enriched", [],
    )  # fmt: skip
    assert email["opt_in_at"].endswith("Z") and email["opt_out_at"] is None
    assert api.get(f"/contacts/{contact['id']}").expect(200)["uuid"] == contact["uuid"]


def test_a_known_address_updates_its_contact(api: Client) -> None:
    """The same address in another case is the same contact: status 200, fields are replaced, data and lists merged."""
    list_id = api.post("/lists", {"name": "Upsert one"}).expect(201)["id"]
    two = api.post("/lists", {"name": "Upsert two"}).expect(201)["id"]
    first = api.post(
        "/contacts", {"email": "up@example.org", "first_name": "Up", "data": {"a": 1}, "list_ids": [list_id]}
    )
    again = api.post("/contacts", {"email": "UP@EXAMPLE.ORG", "last_name": "Sert", "data": {"b": 2}, "list_ids": [two]})

    assert (first.status, again.status) == (201, 200)
    assert again.json["id"] == first.json["id"]
    assert (again.json["first_name"], again.json["last_name"]) == ("Up", "Sert")
    assert again.json["data"] == {"a": 1, "b": 2}
    assert again.json["list_ids"] == [list_id, two]


def test_addresses_of_two_contacts_are_an_error(api: Client) -> None:
    """An upsert never joins two contacts."""
    api.post("/contacts", {"email": "one@example.org"}).expect(201)
    api.post("/contacts", {"phone": "+4915112340001"}).expect(201)
    error = api.post("/contacts", {"email": "one@example.org", "phone": "+4915112340001"}).expect(422)

    assert error["validation_errors"] == {"phone": ["has already been taken"]}


def test_all_contact_errors_are_reported_at_once(api: Client) -> None:
    """The response has every error at its path, and nothing is written."""
    before = api.get("/contacts").headers["X-Total-Count"]
    error = api.post(
        "/contacts",
        {
            "email": "not an address", "phone": "12345", "first_name": "x" * 300, "last_name": "a\nb",
            "country_code": "DEU",
            "list_ids": [1, "x"], "data": [], "opt_in": "yes",
            "channels_attributes": [{"value": "also wrong@"}, {"subscribed": 1}],
        },
    ).expect(422)  # fmt: skip

    assert error["code"] == "validation_error"
    assert set(error["validation_errors"]) == {
        "email", "phone", "first_name", "last_name", "country_code", "list_ids[1]", "data", "opt_in",
        "channels_attributes[0].value", "channels_attributes[1].value", "channels_attributes[1].subscribed",
    }  # fmt: skip
    assert error["validation_errors"]["first_name"] == ["is too long (maximum is 255 characters)"]
    assert api.get("/contacts").headers["X-Total-Count"] == before


@pytest.mark.parametrize(
    "address",
    ['"a b"@example.org', "a@x>,<b@y.org", "a@example.org NOTIFY=SUCCESS", "-oQ/tmp@x", "a@[127.0.0.1]",
     "a@x.org\r\nRCPT TO:<b@y.org>", "a" * 300 + "@example.org", "root@localhost", "", "@example.org", "a@",
     "a@b@c.org"],
)  # fmt: skip
def test_invalid_addresses_are_rejected(api: Client, address: str) -> None:
    """An address that could change a route or an envelope is rejected (T08)."""
    response = api.post("/contacts", {"channels_attributes": [{"value": address, "kind": "email"}]})

    assert response.status == 422


@pytest.mark.parametrize(
    "address", ["zoë@example.org", "a@bücher.example", "user@sub.example.test", "o'brien+tag@example.org"]
)
def test_unusual_valid_addresses_are_accepted(api: Client, address: str) -> None:
    """International and reserved domains are valid."""
    assert api.post("/contacts", {"email": address}).expect(201)["channels"][0]["value"] == address


def test_a_contact_without_an_address(api: Client) -> None:
    """A contact may have a name only, and no channel."""
    contact = api.post("/contacts", {"first_name": "Nameless"}).expect(201)

    assert (contact["channels"], contact["sendable_email"]) == ([], False)


def test_patch_a_contact(api: Client) -> None:
    """An absent field stays, null clears, `data` is replaced, `data_merge` is merged (RFC 7396)."""
    contact = api.post(
        "/contacts", {"email": "patch@example.org", "first_name": "P", "data": {"a": 1, "b": {"c": 2}}}
    ).json
    path = f"/contacts/{contact['id']}"
    merged = api.patch(path, {"data_merge": {"b": {"c": None, "d": 3}}, "first_name": None}).expect(200)
    replaced = api.patch(path, {"data": {"z": 1}}).expect(200)

    assert (merged["data"], merged["first_name"]) == ({"a": 1, "b": {"d": 3}}, None)
    assert replaced["data"] == {"z": 1}
    assert replaced["channels"][0]["value"] == "patch@example.org"


def test_channels_are_added_edited_and_removed(api: Client) -> None:
    """`id` edits a channel, no `id` adds one, `_destroy` removes one, and an id of another contact is an error."""
    contact = api.post("/contacts", {"email": "ch@example.org"}).json
    path, first = f"/contacts/{contact['id']}", contact["channels"][0]["id"]
    other = api.post("/contacts", {"email": "other-ch@example.org"}).json["channels"][0]["id"]
    added = api.patch(path, {"channels_attributes": [{"value": "second@example.org", "subscribed": False}]}).expect(200)
    edited = api.patch(path, {"channels_attributes": [{"id": first, "value": "new@example.org"}]}).expect(200)
    removed = api.patch(path, {"channels_attributes": [{"id": first, "_destroy": True}]}).expect(200)
    foreign = api.patch(path, {"channels_attributes": [{"id": other, "subscribed": False}]}).expect(422)

    assert [(channel["value"], channel["subscribed"]) for channel in added["channels"]] == [
        ("ch@example.org", True), ("second@example.org", False),
    ]  # fmt: skip
    assert edited["channels"][0]["value"] == "new@example.org"
    assert [channel["value"] for channel in removed["channels"]] == ["second@example.org"]
    assert foreign["validation_errors"] == {"channels_attributes[0].id": ["must exist"]}


def test_entries_for_channels_are_applied_in_order(api: Client) -> None:
    """An address that an earlier entry removes or replaces can be added again; that of another channel is taken."""
    first, second = "order1@example.org", "order2@example.org"
    contact = api.post("/contacts", {"email": first, "channels_attributes": [{"value": second}]}).expect(201)
    path, (first_id, second_id) = f"/contacts/{contact['id']}", [channel["id"] for channel in contact["channels"]]

    def change(*entries: dict[str, object], **fields: object) -> Response:
        return api.patch(path, {"channels_attributes": list(entries), **fields})

    taken = change({"id": first_id, "value": second}).expect(422)
    moved = change({"id": first_id, "value": "order3@example.org"}, {"value": first}).expect(200)
    again = change({"id": second_id, "_destroy": True}, {"value": second}, opt_in=False).expect(200)
    gone = change({"id": first_id, "_destroy": True}, {"id": first_id, "value": first}).expect(422)

    assert taken["validation_errors"] == {"channels_attributes[0].value": ["has already been taken"]}
    assert {channel["value"] for channel in moved["channels"]} == {first, second, "order3@example.org"}
    assert second in {channel["value"] for channel in again["channels"] if channel["id"] != second_id}
    assert gone["validation_errors"] == {"channels_attributes[1].id": ["must exist"]}


def test_a_channel_keeps_its_kind(api: Client) -> None:
    """The address of a channel can be replaced only with first_id of the same kind."""
    contact = api.post("/contacts", {"email": "kind@example.org", "phone": "+14155550123"}).expect(201)
    ids = {channel["kind"]: channel["id"] for channel in contact["channels"]}
    entries = [
        {"id": ids["email"], "value": "+14155550124"}, {"id": ids["phone"], "value": "other-kind@example.org"},
        {"id": ids["phone"], "value": "third-kind@example.org", "kind": "email"},
    ]  # fmt: skip
    refused = api.patch(f"/contacts/{contact['id']}", {"channels_attributes": entries}).expect(422)
    assert list(refused["validation_errors"]) == [
        "channels_attributes[0].value", "channels_attributes[1].value", "channels_attributes[2].kind",
    ]  # fmt: skip


def test_an_address_belongs_to_one_contact(api: Client) -> None:
    """The address of another contact is an error, compared without case."""
    api.post("/contacts", {"email": "taken@example.org"}).expect(201)
    other = api.post("/contacts", {"email": "free@example.org"}).json["id"]

    assert api.patch(f"/contacts/{other}", {"email": "Taken@example.org"}).expect(422)["validation_errors"] == {
        "email": ["has already been taken"]
    }


def test_search_finds_prefixes_parts_and_digits(api: Client) -> None:
    """Names, parts of addresses and digits of phone numbers find contacts; search operators have no meaning."""
    fields = {"email": "quirin.vogel@seehof.example", "first_name": "Quirin", "last_name": "Vögel",
              "phone": "+498921098765"}  # fmt: skip
    contact = api.post("/contacts", fields).json
    for words in ("quir", "Vogel", "vög", "seehof", "quirin.vogel@see", "+49 8921 09", "quirin vogel"):
        assert contact["id"] in [row["id"] for row in api.get("/contacts", search=words).json], words
        assert contact["id"] in [row["id"] for row in api.get("/contacts/search", q=words).json], words
    for words in ("' OR 1=1--", 'a" OR b*', "NEAR(", "*", "AND OR (", '"', "quirin NOT vogel)", "-", "\x00"):
        assert api.get("/contacts", search=words).status in (200, 422), words
    assert api.get("/contacts/search", q=" ").status == 422
    assert api.get("/contacts/search").status == 422


def test_filters_of_the_contact_list(api: Client) -> None:
    """Each filter returns only the matching contacts."""
    list_id = api.post("/lists", {"name": "Filtered"}).json["id"]
    contact = api.post("/contacts", {"email": "filter@example.org", "source": "Fair", "list_ids": [list_id],
                                  "data": {"tags": ["VIP"]}}).json  # fmt: skip
    quiet = api.post("/contacts", {"email": "quiet@example.org", "opt_in": False, "source": "fair"}).json

    assert [row["id"] for row in api.get("/contacts", list_id=list_id).json] == [contact["id"]]
    assert [row["id"] for row in api.get("/contacts", tag="vip").json] == [contact["id"]]
    assert {row["id"] for row in api.get("/contacts", source="fair").json} == {contact["id"], quiet["id"]}
    assert [row["id"] for row in api.get("/contacts", source="fair", subscribed_email="false").json] == [quiet["id"]]
    api.post("/suppressions", {"address": "filter@example.org", "channel": "email"}).expect(201)
    assert [row["id"] for row in api.get("/contacts", source="fair", subscribed_email="true").json] == [contact["id"]]
    assert api.get("/contacts", source="fair", sendable_email="true").json == []
    assert {row["id"] for row in api.get("/contacts", source="fair", sendable_email="false").json} == {
        contact["id"], quiet["id"]
    }  # fmt: skip
    assert api.get("/contacts", created_after="2100-01-01").json == []
    assert contact["id"] in [
        row["id"] for row in api.get("/contacts", created_after=contact["created_at"], limit=100).json
    ]
    assert api.get("/contacts", list_id=424242).expect(422)["validation_errors"] == {"list_id": ["must exist"]}
    assert set(api.get("/contacts", created_after="x", updated_before="y").json["validation_errors"]) & {
        "created_after"
    }


def test_the_language_of_a_contact(api: Client) -> None:
    """The tag is stored in its usual form and filtered by with or without its region; another text is an error."""
    austrian = api.post("/contacts", {"email": "austrian@example.org", "language": "DE_at"}).expect(201)
    assert austrian["language"] == "de-AT"
    wrong = api.patch(f"/contacts/{austrian['id']}", {"language": "Germanic"}).expect(422)
    assert wrong["validation_errors"] == {"language": ["must be a language code such as de or pt-BR"]}
    for predicate, value in (("eq", "de"), ("eq", "DE-at"), ("in", ["fr", "de-AT"])):
        rules = [{"name": "language", "predicate": predicate, "value": value}]
        segment = api.post("/segments", {"name": f"German {value}", "filters": rules}).expect(201)
        assert [row["id"] for row in api.get("/contacts", segment_id=segment["id"]).expect(200)] == [austrian["id"]]
    swiss = api.post("/contacts", {"email": "swiss@example.org", "language": "de-CH"}).expect(201)
    merged = api.post(f"/contacts/{swiss['id']}/merge", {"contact_id": austrian["id"]}).expect(200)
    assert merged["language"] == "de-CH"
    austrian = merged
    assert api.patch(f"/contacts/{austrian['id']}", {"language": None}).expect(200)["language"] is None


def test_delete_a_contact(api: Client) -> None:
    """DELETE returns the contact, which is then a 404; a returning address keeps its opt-out."""
    contact = api.post("/contacts", {"email": "gone@example.org"}).json
    api.patch(f"/contacts/{contact['id']}", {"subscribed_email": False}).expect(200)
    assert api.delete(f"/contacts/{contact['id']}").expect(200)["id"] == contact["id"]
    assert api.get(f"/contacts/{contact['id']}").status == 404
    assert api.get("/contacts", search="gone@example.org").json == []
    back = api.post("/contacts", {"email": "gone@example.org", "opt_in": False}).expect(201)

    assert back["id"] > contact["id"]
    assert (back["channels"][0]["subscribed"], back["channels"][0]["opted_out_by"]) == (False, "operator")


def test_consent_source_is_stored_as_evidence(api: Client) -> None:
    """`consent_source` is stored with each opt-in of the request, and never opts in by itself."""
    words = "Shop till, 3 May: texts about offers, reply STOP to leave"
    number = api.post("/contacts", {"phone": "+34655000111", "consent_source": words}).expect(201)["id"]
    api.patch(f"/contacts/{number}", {"opt_in": True}).expect(200)
    api.patch(f"/contacts/{number}", {"opt_in": True, "consent_source": "again"}).expect(200)
    api.patch(f"/contacts/{number}", {"opt_in": False}).expect(200)
    api.patch(f"/contacts/{number}", {"first_name": "Ann", "consent_source": "a name"}).expect(200)
    results = [(consent["act"], consent["text"]) for consent in api.get(f"/contacts/{number}/consents").expect(200)]
    assert sorted(results, key=str) == sorted([("opt_in", words), ("opt_in", "again"), ("opt_out", None)], key=str)
    assert api.get(f"/contacts/{number}").expect(200)["subscribed_phone"] is False
    error = api.post("/contacts", {"phone": "+34655000112", "consent_source": "x" * 1001}).expect(422)
    assert list(error["validation_errors"]) == ["consent_source"]
