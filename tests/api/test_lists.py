"""Lists over the API (docs/decisions.md#10)."""

import pytest

from tests.kit.client import Client


def test_lists_have_unique_names_and_exact_counts(api: Client) -> None:
    """Names are unique without case; counts follow members and their consent."""
    contact_list = api.post("/lists", {"name": " Friends "}).expect(201)
    people = [
        api.post("/contacts", {"email": f"f{n}@example.org", "opt_in": n != 2, "phone": phone}).json["id"]
        for n, phone in enumerate((None, "+12025550161", "+12025550162"))
    ]
    full = api.patch(f"/lists/{contact_list['id']}", {"contact_ids": people}).expect(200)
    fewer = api.patch(f"/lists/{contact_list['id']}", {"contact_ids": people[1:], "name": "Old friends"}).expect(200)

    assert contact_list["name"] == "Friends"
    assert api.post("/lists", {"name": "OLD FRIENDS"}).expect(422)["validation_errors"] == {
        "name": ["has already been taken"]
    }
    assert (full["contacts_count"], full["sendable_count"]) == (3, {"email": 2, "sms": 1})
    assert (fewer["contacts_count"], fewer["sendable_count"]) == (2, {"email": 1, "sms": 1})
    assert (contact_list["stale"], contact_list["last_populated_at"], contact_list["segment_id"]) == (False, None, None)


def test_invalid_lists_are_rejected(api: Client) -> None:
    """A name is required, members and segments must exist, and both together are an error."""
    assert api.post("/lists", {}).expect(422)["validation_errors"] == {"name": ["can't be blank"]}
    assert api.post("/lists", {"name": " "}).expect(422)["validation_errors"] == {"name": ["can't be blank"]}
    error = api.post("/lists", {"name": "Both", "contact_ids": [999999], "segment_id": 7}).expect(422)
    assert set(error["validation_errors"]) == {"contact_ids", "segment_id", "base"}
    assert "Both" not in [row["name"] for row in api.get("/lists").json]


def test_deleting_a_list_keeps_its_contacts(api: Client) -> None:
    """The list is deleted, and its contacts stay."""
    person = api.post("/contacts", {"email": "stays@example.org"}).json["id"]
    contact_list = api.post("/lists", {"name": "Short", "contact_ids": [person]}).expect(201)

    assert api.delete(f"/lists/{contact_list['id']}").expect(200)["contacts_count"] == 1
    assert api.get(f"/lists/{contact_list['id']}").status == 404
    assert api.get(f"/contacts/{person}").expect(200)["list_ids"] == []


def test_list_membership_changes_are_events(api: Client) -> None:
    """Adding to and removing from a list are recorded once each."""
    contact_list = api.post("/lists", {"name": "Eventful"}).json
    person = api.post("/contacts", {"email": "ev@example.org", "list_ids": [contact_list["id"]]}).json["id"]
    api.post("/contacts", {"email": "ev@example.org", "list_ids": [contact_list["id"]]}).expect(200)
    api.patch(f"/contacts/{person}", {"list_ids": []}).expect(200)
    events = api.get("/events", contact_id=person).json

    assert [event["event"] for event in events if event["event"].startswith("list_")] == ["list_remove", "list_add"]
    assert all(
        event["data"] == {"contact_list_id": contact_list["id"]}
        for event in events
        if event["event"].startswith("list_")
    )


def test_an_excluded_list_of_a_scheduled_campaign_is_in_use(api: Client) -> None:
    """It cannot be deleted; a draft whose excluded list was deleted cannot be sent."""
    list_id = api.post("/lists", {"name": "Everybody here"}).json["id"]
    without = api.post("/lists", {"name": "Not these"}).json["id"]
    api.post("/contacts", {"email": "excluded@example.org", "list_ids": [list_id, without]}).expect(201)
    trigger = {"contact_list_id": list_id, "data": {"exclude_contact_list_ids": [without]}}
    content = {"subject": "s", "body": "b"}
    body = {"name": "c", "trigger_attributes": trigger, "template_attributes": content}
    campaign = api.post("/campaigns", body | {"scheduled_at": "2099-01-01T00:00:00Z"}).expect(201)
    path = f"/campaigns/{campaign['id']}"
    api.post(f"{path}/send").expect(200)
    error = api.delete(f"/lists/{without}").expect(422)
    api.patch(path, {"status": "draft", "scheduled_at": None}).expect(200)
    api.delete(f"/lists/{without}").expect(200)
    blocked = api.post(f"{path}/send").expect(422)

    assert (error["reason"], error["used_by"][0]["campaign_id"]) == ("in_use", campaign["id"])
    assert blocked["reason"] == "audience_required"
    assert list(blocked["validation_errors"]) == ["trigger_attributes.data.exclude_contact_list_ids"]


def test_a_draft_whose_list_was_deleted_has_no_audience(api: Client) -> None:
    """It is not sent to all contacts instead."""
    list_id = api.post("/lists", {"name": "The only ones"}).json["id"]
    data = {"audience_type": "all_contacts", "confirm_send_to_all": True}
    body = {"name": "c", "trigger_attributes": {"contact_list_id": list_id, "data": data},
            "template_attributes": {"subject": "s", "body": "b"}}  # fmt: skip
    campaign_id = api.post("/campaigns", body).expect(201)["id"]
    api.delete(f"/lists/{list_id}").expect(200)

    assert api.get(f"/campaigns/{campaign_id}").expect(200)["trigger"]["data"] == {"audience_deleted": True}
    assert api.post(f"/campaigns/{campaign_id}/send").expect(422)["reason"] == "audience_required"


@pytest.mark.parametrize("deleted", ["lists", "segments"])
def test_the_rest_of_an_audience_is_not_sent_to(deleted: str, api: Client) -> None:
    """A draft for the members of a list in a segment is not for all of the other one when either is deleted (T38)."""
    filters = [{"name": "contact_first_name", "predicate": "eq", "value": "Nora"}]
    ids = {"lists": api.post("/lists", {"name": f"Few {deleted}"}).expect(201)["id"],
           "segments": api.post("/segments", {"name": deleted, "filters": filters}).expect(201)["id"]}  # fmt: skip
    api.post("/contacts", {"email": f"{deleted}@example.org", "first_name": "Nora"}).expect(201)
    api.post("/contacts", {"email": f"not.{deleted}@example.org", "list_ids": [ids["lists"]]}).expect(201)
    audience = {"contact_list_id": ids["lists"], "segment_id": ids["segments"]}
    body = {"name": "c", "trigger_attributes": audience, "template_attributes": {"subject": "s", "body": "b"}}
    path = f"/campaigns/{api.post('/campaigns', body).expect(201)['id']}"
    api.post(f"{path}/approve").expect(200)
    api.delete(f"/{deleted}/{ids[deleted]}").expect(200)
    error = api.post(f"{path}/send").expect(422)
    blockers = api.get(f"{path}/preflight").expect(200)["blockers"]
    left = "segment_id" if deleted == "lists" else "contact_list_id"
    chosen = api.patch(path, {"trigger_attributes": {left: audience[left]}}).expect(200)

    assert error["reason"] == blockers[0]["code"] == "audience_required"
    assert error["validation_errors"] == {
        "trigger_attributes.contact_list_id": ["a selected list or segment was deleted: select another"]
    }
    assert (chosen["trigger"]["data"], chosen["approval_state"]) == ({}, "pending_review")
    assert api.post(f"{path}/send").expect(200)["audience_count"] == 1


def test_a_list_in_the_filters_of_a_segment_stays(api: Client) -> None:
    """The segment of the contacts who are not on a list does not become one of all contacts (T38)."""
    list_id = api.post("/lists", {"name": "Left out"}).expect(201)["id"]
    outside = [{"name": "list_id", "predicate": "not_eq", "value": list_id}]
    others = api.post("/segments", {"name": "The others", "filters": outside}).expect(201)
    error = api.delete(f"/lists/{list_id}").expect(422)
    api.delete(f"/segments/{others['id']}").expect(200)

    assert (error["reason"], error["used_by"]) == ("in_use", [{"segment_id": others["id"], "name": "The others"}])
    assert api.delete(f"/lists/{list_id}").status == 200


def test_null_contact_ids_remove_no_members(api: Client) -> None:
    """`contact_ids: null` changes nothing; an empty array removes all."""
    person = api.post("/contacts", {"email": "kept@example.org"}).json["id"]
    contact_list = api.post("/lists", {"name": "Kept", "contact_ids": [person]}).expect(201)

    assert api.patch(f"/lists/{contact_list['id']}", {"contact_ids": None}).expect(200)["contacts_count"] == 1
    assert api.patch(f"/lists/{contact_list['id']}", {"contact_ids": []}).expect(200)["contacts_count"] == 0


def test_ids_beyond_64_bits(api: Client) -> None:
    """A too large id is a 422 or an empty result, and never a server error."""
    large = 10**20
    for path in (f"/contacts?list_id={large}", f"/messages?contact_id={large}", f"/events?contact_id={large}"):
        assert api.get(path).status == 422, path
    assert api.get("/contacts/search", q="n", page=10**17).json == []
    error = api.post("/campaigns", {"name": "x", "trigger_attributes": {"data": {"contact_list_ids": [2**63]}}})
    assert error.expect(422)["validation_errors"] == {"trigger_attributes.data.contact_list_ids[0]": ["must exist"]}
