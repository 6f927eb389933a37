"""Segments over the API: validation, counts, explanations, mirrors, audiences (docs/decisions.md#5 and #10)."""

import time
from typing import Any

import pytest

from tests.kit.client import Client


def leaf(name: str, predicate: str, *value: Any) -> dict[str, Any]:
    """Return a filter; without a value the key is left out."""
    return {"name": name, "predicate": predicate, **({"value": value[0]} if value else {})}


def wait_for(what: Any, seconds: float = 15) -> Any:
    """Wait until a function returns a true value, and return it."""
    end = time.monotonic() + seconds
    while not (result := what()) and time.monotonic() < end:
        time.sleep(0.1)
    assert result
    return result


@pytest.fixture(scope="module")
def contacts(api: Client) -> dict[str, Any]:
    """Return a list with three members, and the ids of six contacts."""
    news = api.post("/lists", {"name": "Newsletter"}).expect(201)["id"]
    people = [
        api.post("/contacts", {
            "email": f"crowd{n}@example.org", "first_name": "Ann" if n % 2 else "Bob", "list_ids": [news] * (n < 3),
            "data": {"plan": "pro" if n < 2 else "free", "orders": n, "tags": ["vip"] if n in (0, 5) else []},
        }).expect(201)["id"] for n in range(6)
    ]  # fmt: skip
    return {"list": news, "people": people}


def test_create_change_and_delete_a_segment(api: Client, contacts: dict[str, Any]) -> None:
    """The filters are returned as they were sent; a deleted segment is a 404."""
    filters = [leaf("list_id", "eq", contacts["list"]), leaf("first_name", "cont", "AN")]
    segment = api.post("/segments", {"name": " Anns ", "filters": filters}).expect(201)
    assert (segment["name"], segment["filters"], segment["contacts_count"]) == ("Anns", filters, 1)
    assert segment["sentence"] == "On the list “Newsletter” and first name contains “AN”"
    assert api.get(f"/segments/{segment['id']}").expect(200) == segment
    assert segment in api.get("/segments", search="ann").expect(200)
    assert api.get("/contacts", segment_id=segment["id"]).headers["X-Total-Count"] == "1"

    changed = api.patch(f"/segments/{segment['id']}", {"filters": filters[:1]}).expect(200)
    assert (changed["name"], changed["contacts_count"]) == ("Anns", 3) and changed["updated_at"] > segment["updated_at"]
    assert api.delete(f"/segments/{segment['id']}").expect(200)["contacts_count"] == 3
    assert api.get(f"/segments/{segment['id']}").status == 404 == api.patch(f"/segments/{segment['id']}", {}).status
    assert api.get("/contacts", segment_id=segment["id"]).expect(422)["validation_errors"] == {
        "segment_id": ["must exist"]
    }


def test_count_filters(api: Client, contacts: dict[str, Any]) -> None:
    """A count has a sample and the count of each row; no filters match all contacts."""
    result = api.post("/segments/count", {"filters": [
        leaf("contact_list", "eq", contacts["list"]), leaf("data.orders", "gteq", 1), leaf("tag", "not_cont", "VIP"),
    ]}).expect(200)  # fmt: skip
    everybody = int(api.get("/contacts").headers["X-Total-Count"])
    assert (result["count"], sorted(row["id"] for row in result["sample"])) == (2, contacts["people"][1:3])
    assert result["rows"] == [{"count": n, "estimated": False} for n in (3, 5, everybody - 2)]
    assert api.post("/segments/count", {"filters": []}).expect(200)["count"] == everybody
    assert api.post("/segments/count", {}).expect(422)["validation_errors"] == {"filters": ["can't be blank"]}


def test_explain_a_contact(api: Client, contacts: dict[str, Any]) -> None:
    """The explanation has for each row whether it matches, and the contact's own value."""
    api.post("/events", {"event": "order_paid", "contact_id": contacts["people"][0], "data": {"total": 12}}).expect(201)
    paid = {"event": "order_paid", "within_days": 30, "where": [leaf("event.total", "gt", 10)]}
    filters = [
        leaf("contact_list", "eq", contacts["list"]), leaf("data.plan", "eq", "Free"), leaf("event", "performed", paid),
        leaf("group", "any", [leaf("contact_country", "eq", "de"), leaf("contact_tag", "present")]),
    ]  # fmt: skip
    segment = api.post("/segments", {"name": "Why", "filters": filters}).expect(201)
    result = api.get(f"/segments/{segment['id']}/explain", contact_id=contacts["people"][0]).expect(200)
    assert result["matches"] is False
    assert [row["matches"] for row in result["rows"]] == [True, False, True, True]
    assert [row["matches"] for row in result["rows"][3]["rows"]] == [False, True]
    assert [result["rows"][n]["actual"] for n in (0, 1)] == [[contacts["list"]], "pro"]
    assert result["rows"][2]["actual"]["count"] == 1 and result["rows"][2]["actual"]["last_at"].endswith("Z")
    assert result["rows"][2]["sentence"].startswith("Placed an order (paid): at least once in the last 30 days")
    for query, message in (({}, "can't be blank"), ({"contact_id": 999_999}, "must exist")):
        assert api.get(f"/segments/{segment['id']}/explain", **query).expect(422)["validation_errors"] == {
            "contact_id": [message]
        }


def test_segment_spec(api: Client) -> None:
    """For each field and predicate of the specification a valid value is accepted."""
    spec = api.get("/segments/spec").expect(200)
    assert {"contact_first_name", "contact_tag", "contact_data.<path>", "event", "group"} <= {
        field["name"] for field in spec["fields"]
    }
    samples = {"text": "verified", "number": 1, "days": 3, "time": "2026-01-01", "boolean": True, "value": 1}
    for field in spec["fields"]:
        for predicate in spec["types"][field["type"]]:
            if field["choices"] and field["name"] != "contact_verification_status":
                continue
            if predicate["takes"] not in samples:
                continue
            asked = leaf(field["name"].replace("<path>", "x"), predicate["predicate"], samples[predicate["takes"]])
            api.post("/segments/count", {"filters": [asked]}).expect(200)


FAULTS: list[tuple[Any, dict[str, str]]] = [
    ("x", {"filters": "is invalid"}),
    ([7], {"filters[0]": "is invalid"}),
    ([{}], {"filters[0].name": "can't be blank", "filters[0].predicate": "can't be blank"}),
    ([{**leaf("email", "eq", "a"), "or": 1}], {"filters[0].or": "is not a known field"}),
    ([leaf("nobody", "eq", 1)], {"filters[0].name": "is not included in the list"}),
    ([leaf("event.total", "eq", 1)], {"filters[0].name": "is not included in the list"}),
    ([leaf("contact_created_at", "cont", "x")], {"filters[0].predicate": "is not included in the list"}),
    ([leaf("email", "eq", "a"), leaf("email_open_count", "gt", "3")], {"filters[1].value": "is not a number"}),
    ([leaf("first_name", "eq", {"a": 1})], {"filters[0].value": "is invalid"}),
    ([leaf("first_name", "eq")], {"filters[0].value": "can't be blank"}),
    ([leaf("first_name", "in", ["a", 3])], {"filters[0].value[1]": "is invalid"}),
    ([leaf("first_name", "in", ["a"] * 501)], {"filters[0].value": "is too long (maximum is 500 entries)"}),
    ([leaf("first_name", "eq", "a\x00b")], {"filters[0].value": "is invalid"}),
    ([leaf("first_name", "present", "yes")], {"filters[0].value": "is invalid"}),
    ([leaf("contact_verified", "eq", 1)], {"filters[0].value": "is invalid"}),
    ([leaf("contact_created_at", "gt", "2026-01-05T10:00:00")], {"filters[0].value": "is invalid"}),
    ([leaf("contact_created_at", "within_days", 0)], {"filters[0].value": "must be greater than or equal to 1"}),
    ([leaf("contact_created_at", "between", ["2026-01-05"])], {"filters[0].value": "is invalid"}),
    ([leaf("contact_list", "eq", 999_999)], {"filters[0].value": "must exist"}),
    ([leaf("campaign_opened", "in", [999_999])], {"filters[0].value[0]": "must exist"}),
    ([leaf("contact_verification_status", "eq", "x")], {"filters[0].value": "is not included in the list"}),
    ([leaf('data.a"b', "eq", 1)], {"filters[0].name": "is not included in the list"}),
    ([leaf("email", "eq", "a"), leaf("email", "eq", "b"), leaf("group", "any", [leaf("x", "eq", 1)])],
     {"filters[2].value[0].name": "is not included in the list"}),
    ([leaf("group", "any", [])], {"filters[0].value": "can't be blank"}),
    ([leaf("group", "any", [leaf("email", "present")] * 26)],
     {"filters[0].value": "is too long (maximum is 25 filters)"}),
    ([leaf("email", "present")] * 101, {"filters": "is too long (maximum is 100 filters)"}),
    ([leaf("event", "performed", {"event": "x", "at_least": -1, "foo": 1, "since": "flow_start"})],
     {"filters[0].value.at_least": "must be greater than or equal to 0", "filters[0].value.foo": "is not a known field",
      "filters[0].value.since": "is invalid"}),
    ([leaf("event", "performed", {"event": "x", "where": [leaf("email", "present")]})],
     {"filters[0].value.where[0].name": "is not included in the list"}),
]  # fmt: skip


@pytest.mark.parametrize(("filters", "faults"), FAULTS)
def test_invalid_filters_are_rejected(api: Client, filters: Any, faults: dict[str, str]) -> None:
    """Every error is reported at its path, when counting and when creating."""
    expected = {path: [message] for path, message in faults.items()}
    assert api.post("/segments/count", {"filters": filters}).expect(422)["validation_errors"] == expected
    assert api.post("/segments", {"name": "Wrong", "filters": filters}).expect(422)["validation_errors"] == expected


def test_nesting_and_circular_references(api: Client) -> None:
    """Five levels are allowed; a segment that refers to itself, also through others, is rejected."""

    def nested(levels: int) -> dict[str, Any]:
        return leaf("group", "all", [nested(levels - 1)]) if levels > 1 else leaf("email", "present")

    api.post("/segments/count", {"filters": [nested(5)]}).expect(200)
    path = "filters[0]" + ".value[0]" * 4 + ".value"
    assert api.post("/segments/count", {"filters": [nested(6)]}).expect(422)["validation_errors"] == {
        path: ["is nested too deeply (maximum is 5 levels)"]
    }
    assert api.post("/segments/count", {"filters": [nested(400)]}).status == 400
    first = api.post("/segments", {"name": "First"}).expect(201)["id"]
    second = api.post("/segments", {"name": "Second", "filters": [leaf("segment_id", "eq", first)]}).expect(201)["id"]
    circle = [leaf("email", "present"), leaf("group", "any", [leaf("contact_segment", "in", [second])])]
    assert api.patch(f"/segments/{first}", {"filters": circle}).expect(422)["validation_errors"] == {
        "filters[1].value[0].value[0]": ["refers back to this segment"]
    }
    error = api.delete(f"/segments/{first}").expect(422)
    assert (error["reason"], error["used_by"]) == ("in_use", [{"segment_id": second, "name": "Second"}])
    mirror = api.post("/lists", {"name": "Circle", "segment_id": second}).expect(201)["id"]
    assert api.patch(f"/segments/{first}", {"filters": [leaf("contact_list", "eq", mirror)]}).expect(422)[
        "validation_errors"
    ] == {"filters[0].value": ["refers back to this segment"]}


def test_a_list_mirrors_a_segment(api: Client, contacts: dict[str, Any]) -> None:
    """A mirror is stale until it has the members of the segment, follows changes, and has no members of its own."""
    segment = api.post("/segments", {"name": "Vips", "filters": [leaf("tag", "cont", "vip")]}).expect(201)["id"]
    contact_list = api.post("/lists", {"name": "Vip mirror", "segment_id": segment}).expect(201)
    path = f"/lists/{contact_list['id']}"
    assert (contact_list["segment_id"], contact_list["stale"], contact_list["last_populated_at"]) == (
        segment,
        True,
        None,
    )
    ready = wait_for(lambda: (state := api.get(path).json) and not state["stale"] and state)
    assert ready["contacts_count"] == 2 and ready["last_populated_at"]

    person = contacts["people"][3]
    api.patch(f"/contacts/{person}", {"data_merge": {"tags": ["VIP"]}}).expect(200)
    wait_for(lambda: contact_list["id"] in api.get(f"/contacts/{person}").json["list_ids"])
    assert api.get(path).json["contacts_count"] == 3
    for attempt in (
        api.post("/contacts", {"email": "new@example.org", "list_ids": [contact_list["id"]]}),
        api.post(f"{path}/contacts/bulk", {"add": [person]}),
        api.patch(path, {"contact_ids": [person]}),
        api.patch(path, {"contact_ids": [person], "segment_id": segment}),
    ):
        assert attempt.expect(422)["code"] == "validation_error"
    assert api.delete(f"/segments/{segment}").expect(422)["used_by"] == [
        {"list_id": contact_list["id"], "name": "Vip mirror"}
    ]

    frozen = api.patch(path, {"segment_id": None}).expect(200)
    assert (frozen["segment_id"], frozen["stale"], frozen["last_populated_at"]) == (None, False, None)
    assert frozen["contacts_count"] == 3
    api.delete(f"/segments/{segment}").expect(200)


def test_add_and_remove_list_members_in_bulk(api: Client, contacts: dict[str, Any]) -> None:
    """Members are given by id or address; unknown ones are returned."""
    contact_list_id = api.post("/lists", {"name": "Bulk"}).expect(201)["id"]
    path = f"/lists/{contact_list_id}/contacts/bulk"
    first, two = contacts["people"][:2]
    done = api.post(path, {"add": [first, "CROWD1@example.org", two, 999_999, "no one", "a@example.net"]}).expect(200)
    assert done == {"added": 2, "removed": 0, "unknown": [999_999, "no one", "a@example.net"], "kept_opt_out": []}
    assert api.post(path, {"add": [first], "remove": [two]}).expect(200)["removed"] == 1
    assert api.get(f"/lists/{contact_list_id}").json["contacts_count"] == 1
    assert api.post(path, {"add": "x", "remove": [True, 1.5]}).expect(422)["validation_errors"] == {
        "add": ["is invalid"],
        "remove[0]": ["is invalid"],
        "remove[1]": ["is invalid"],
    }
    assert api.post("/lists/999999/contacts/bulk", {"add": []}).status == 404


def create_campaign(api: Client, name: str, **trigger: Any) -> Any:
    """Create a draft with content for an audience."""
    return api.post("/campaigns", {
        "name": name, "trigger_attributes": trigger, "template_attributes": {"subject": "Hi", "body": "<p>Hi</p>"},
    }).expect(201)["id"]  # fmt: skip


def test_a_campaign_reaches_exactly_its_segment(api: Client, contacts: dict[str, Any]) -> None:
    """A segment alone, within a list, and without an excluded segment get exactly their contacts; it is then in use."""
    free = api.post("/segments", {"name": "Free", "filters": [leaf("data.plan", "eq", "free")]}).expect(201)["id"]
    anns = api.post("/segments", {"name": "Ann", "filters": [leaf("first_name", "eq", "ann")]}).expect(201)["id"]
    for name, people, trigger in (
        ("Alone", [2, 3, 4, 5], {"segment_id": free}),
        ("Both", [2], {"segment_id": free, "contact_list_id": contacts["list"]}),
        ("Less", [2, 4], {"segment_id": free, "data": {"exclude_segment_ids": [anns]}}),
    ):
        created = create_campaign(api, name, **trigger)
        facts = api.get(f"/campaigns/{created}/preflight")
        expected = facts.json["facts"]["sendable"] if facts.status == 200 else len(people)
        sent = api.post(f"/campaigns/{created}/send", {"hold_seconds": 60}).expect(200)
        result = api.get("/messages", campaign_id=created).expect(200)
        assert {row["contact_id"] for row in result} == {contacts["people"][n] for n in people}
        assert sent["audience_count"] == len(people) == expected
        error = api.delete(f"/segments/{free}").expect(422)
        assert {"campaign_id": created, "name": name} in error["used_by"]
        api.patch(f"/campaigns/{created}", {"status": "cancelled"}).expect(200)


def test_a_segment_of_all_needs_confirmation(api: Client, contacts: dict[str, Any]) -> None:
    """A send to a segment without filters needs `confirm_send_to_all`."""
    everybody = api.post("/segments", {"name": "All of them"}).expect(201)
    assert everybody["sentence"] == "All contacts"
    created = create_campaign(api, "All", segment_id=everybody["id"])
    assert api.post(f"/campaigns/{created}/send", {}).expect(422)["reason"] == "confirmation_required"
    sent = api.post(f"/campaigns/{created}/send", {"confirm_send_to_all": True, "hold_seconds": 60}).expect(200)
    assert sent["audience_count"] == int(api.get("/contacts").headers["X-Total-Count"])


def test_segments_from_starters(api: Client) -> None:
    """Each ready-made segment is listed, and creates an ordinary segment; own filters override those of the starter."""
    starters = api.get("/segments/starters").expect(200)["starters"]
    assert [starter["key"] for starter in starters] == ["engaged", "asleep", "new", "never_opened"]
    for starter in starters:
        segment = api.post("/segments", {"name": starter["name"], "starter": starter["key"]}).expect(201)
        assert (segment["name"], segment["filters"]) == (starter["name"], starter["filters"])
    own = [{"name": "contact_country", "predicate": "eq", "value": "DE"}]
    kept = api.post("/segments", {"name": "Own", "starter": "new", "filters": own}).expect(201)
    assert kept["filters"] == own
    wrong = {"starter": "nothing", "filters": [{"name": "x", "predicate": "eq", "value": 1}]}
    errors = api.post("/segments", {"name": "Wrong", **wrong}).expect(422)["validation_errors"]
    assert errors["starter"] == ["is not included in the list"] and len(errors) == 2, errors
    assert "starter" in api.post("/segments", {"name": "Empty", "starter": "nothing"}).expect(422)["validation_errors"]
