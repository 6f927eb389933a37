"""Names that public clients of such services send are aliases of ours (docs/decisions.md#1)."""

from typing import Any

import pytest

from tests.kit.client import Client
from tests.kit.server import Server
from tests.rules import published

CONTENT = {"subject": "Sale", "body": "<p>Hi</p>"}


@pytest.fixture(scope="module")
def ids(api: Client) -> dict[str, int]:
    """Return the ids of two lists with one contact each, and of a segment that holds both."""
    ids_by_name = {name: api.post("/lists", {"name": name}).expect(201)["id"] for name in ("first", "second")}
    for name, list_id in ids_by_name.items():
        api.post("/contacts", {"email": f"{name}@example.org", "list_ids": [list_id]}).expect(201)
    ids_by_name["segment"] = api.post("/segments", {"name": "All"}).expect(201)["id"]
    return ids_by_name


def create(api: Client, **fields: Any) -> dict[str, Any]:
    """Create a campaign with content."""
    campaign: dict[str, Any] = api.post("/campaigns", {"name": "x", "template_attributes": CONTENT, **fields}).expect(
        201
    )
    return campaign


def test_the_audience_may_be_at_the_top_of_a_new_campaign(api: Client, ids: dict[str, int]) -> None:
    """All of its names end up in the trigger, beside what is there."""
    campaign = create(
        api, contact_list_id=ids["first"], segment_id=ids["segment"], contact_list_ids=[ids["second"]],
        exclude_contact_list_ids=[], trigger_attributes={"event": "manual"}, channelType="email",
    )  # fmt: skip
    trigger = campaign["trigger"]
    assert (trigger["contact_list_id"], trigger["segment_id"]) == (ids["first"], ids["segment"])
    assert trigger["data"] == {"contact_list_ids": [ids["second"]], "exclude_contact_list_ids": []}
    assert create(api, audience_type="all_contacts")["trigger"]["data"] == {"audience_type": "all_contacts"}


def test_a_send_with_lists_at_its_top_keeps_the_exclusions_of_the_draft(api: Client, ids: dict[str, int]) -> None:
    """An alias changes its own part of the audience; `trigger_attributes.data` still replaces all of it."""
    draft = create(api, exclude_contact_list_ids=[ids["second"]])
    path = f"/campaigns/{draft['id']}"
    sent = api.post(f"{path}/send", {"contact_list_ids": [ids["first"], ids["second"]]}).expect(200)
    assert sent["trigger"]["data"] == {
        "contact_list_ids": [ids["first"], ids["second"]], "exclude_contact_list_ids": [ids["second"]],
    }  # fmt: skip
    done = api.wait(path, lambda campaign: campaign["status"] == "completed")
    assert [row["to"] for row in api.get("/messages", campaign_id=draft["id"]).json] == ["first@example.org"]
    assert done["stats"]["sent"] == 1

    other = create(api, exclude_contact_list_ids=[ids["second"]])
    whole = {"contact_list_ids": [ids["first"]], "trigger_attributes": {"data": {}}}
    sent = api.post(f"/campaigns/{other['id']}/send", whole).expect(200)
    assert sent["trigger"]["data"] == {"contact_list_ids": [ids["first"]]}


def test_all_contacts_still_have_to_be_confirmed(api: Client) -> None:
    """`audience_type` alone sends to nobody."""
    campaign = create(api)
    error = api.post(f"/campaigns/{campaign['id']}/send", {"audience_type": "all_contacts"}).expect(422)
    assert error["reason"] == "confirmation_required"
    assert api.get(f"/campaigns/{campaign['id']}").json["status"] == "draft"


@pytest.mark.parametrize(
    ("alias", "value", "field", "other"),
    [
        ("contact_list_ids", [1], {"trigger_attributes": {"data": {"contact_list_ids": [2]}}}, "data.contact_list_ids"),
        ("segment_id", 1, {"trigger_attributes": {"segment_id": 2}}, "segment_id"),
        ("audience_type", "all_contacts", {"trigger_attributes": {"data": {"audience_type": None}}},
         "data.audience_type"),
        ("channelType", "sms", {"channel": "email"}, "channel"),
    ],
)  # fmt: skip
def test_an_alias_that_differs_from_its_field_is_an_error(
    api: Client, ids: dict[str, int], alias: str, value: Any, field: dict[str, Any], other: str
) -> None:
    """The error is at the alias and names the field; the same value twice is none."""
    error = api.post("/campaigns", {"name": "x", alias: value, **field}).expect(422)
    path = other if other == "channel" else f"trigger_attributes.{other}"
    assert error["validation_errors"][alias] == [f"must be the same as {path}, or absent"]


def test_errors_are_at_the_name_that_was_sent(api: Client, ids: dict[str, int]) -> None:
    """Those of the type, and those that the database knows, also beside each other."""
    body = {"name": "x", "contact_list_ids": [ids["first"], 987_654], "segment_id": 987_654}
    assert set(api.post("/campaigns", body).expect(422)["validation_errors"]) == {"contact_list_ids[1]", "segment_id"}
    body = {"segment_id": "x", "channelType": "fax", "contact_list_ids": 5}
    error = api.post("/campaigns", body).expect(422)
    assert set(error["validation_errors"]) == {"name", "segment_id", "channelType", "contact_list_ids"}
    assert "contact_list_ids" in error["message"] and "trigger_attributes" not in error["message"]


def test_an_alias_reaches_no_list_of_another_account(server: Server, api: Client, ids: dict[str, int]) -> None:
    """The ids of others do not exist, by whatever name they come."""
    account = server.cli("account", "add", "Other").stdout.strip()
    other = server.client(server.new_key("other", "--account", account))
    for name, value in (
        ("contact_list_id", ids["first"]), ("contact_list_ids", [ids["first"]]), ("segment_id", ids["segment"]),
        ("exclude_contact_list_ids", [ids["first"]]), ("exclude_segment_ids", [ids["segment"]]),
    ):  # fmt: skip
        error = other.post("/campaigns", {"name": "x", name: value}).expect(422)
        assert list(error["validation_errors"].values()) == [["must exist"]], name


def test_a_test_goes_to_a_list_of_addresses(api: Client) -> None:
    """`email` takes one address or up to five; beside `emails`, a list has to be the same."""
    path = f"/templates/{api.post('/templates', CONTENT).expect(201)['id']}/send_test"
    for email in ("a@example.org", ["a@example.org"], ["a@example.org", "b@example.org"]):
        done = api.post(path, {"email": email}).expect(200)
        assert [row["to"] for row in done["results"]] == ([email] if isinstance(email, str) else email)
    error = api.post(path, {"email": ["a@example.org", "nobody"]}).expect(422)
    assert error["validation_errors"] == {"email[1]": ["is invalid"]}
    error = api.post(path, {"email": ["a@example.org"], "emails": ["b@example.org"]}).expect(422)
    assert error["validation_errors"] == {"email": ["must be the same as emails, or absent"]}
    assert "email" in api.post(path, {"email": [f"{n}@example.org" for n in range(6)]}).expect(422)["validation_errors"]


def test_channel_type_of_messages_and_templates(api: Client) -> None:
    """`channelType` is `channel`, also in a batch."""
    template = api.post("/templates", {"body": "Hi", "channelType": "sms"}).expect(201)
    assert template["channel"] == "sms"
    message = {"to": "a@example.org", **CONTENT, "channelType": "email"}
    assert api.post("/messages", message).expect(201)["channel"] == "email"
    batch = api.post("/messages/batch", {"messages": [message, message | {"channelType": "fax"}]}).expect(200)
    assert "channelType" in str(batch), batch


def test_aliases_are_in_the_document() -> None:
    """Each is a deprecated property that names its field, or a list beside a text."""
    for name in ("POST /campaigns", "POST /campaigns/{id}/send"):
        schema = published.body(published.operation(name))
        assert schema is not None
        for alias in ("contact_list_ids", "segment_id", "audience_type"):
            assert schema["properties"][alias]["deprecated"] is True
            assert "alias of `trigger_attributes." in schema["properties"][alias]["description"]
            assert f"`{alias}` (use" not in schema["description"]
    test = published.body(published.operation("POST /templates/{id}/send_test"))
    assert test is not None and "array" in [part["type"] for part in test["properties"]["email"]["anyOf"]]


def test_events_have_every_filter_of_the_specification() -> None:
    """`GET /events` filters by name, contact, time, resource and test."""
    names = published.parameters(published.operation("GET /events"), "query")
    assert {"page", "limit", "event", "contact_id", "created_after", "created_before", "resource_uid", "resource_name",
            "test"} <= set(names)  # fmt: skip
