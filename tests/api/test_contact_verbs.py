"""Contacts over the API: tags, timeline, evidence, export, merging, erasing (docs/decisions.md#9)."""

import time
from typing import Any

import apsw
import pytest

from tests.conftest import FreshServer
from tests.kit.client import Client
from tests.kit.server import Server


def create_contact(api: Client, email: str, **body: Any) -> Any:
    """Create a contact."""
    return api.post("/contacts", {"email": email, **body}).expect(201)


def contact_events(api: Client, contact: Any) -> list[tuple[str, Any]]:
    """Return a contact's events with their data, oldest first."""
    return [(row["event"], row["data"]) for row in reversed(api.get("/events", contact_id=contact["id"]).expect(200))]


def send_campaign(api: Client, name: str, *contacts: Any) -> int:
    """Send a campaign to these contacts and return its id once it is completed."""
    people = api.post("/lists", {"name": name, "contact_ids": [contact["id"] for contact in contacts]}).expect(201)[
        "id"
    ]
    campaign = api.post("/campaigns", {"name": name}).expect(201)["id"]
    content = {"subject": "Hello {{ contact.first_name }}", "body": "<p>For {{ contact.email }}</p>"}
    order = {"trigger_attributes": {"contact_list_id": people}, "template_attributes": content}
    api.post(f"/campaigns/{campaign}/send", order).expect(200)
    api.wait(f"/campaigns/{campaign}", lambda row: row["status"] == "completed")
    return int(campaign)


# -- tags and data -----------------------------------------------------------------------------------------------------


def test_tag_changes_are_events(api: Client) -> None:
    """Each added or removed tag is an event, compared without case; each change is one `contact_update`."""
    created = create_contact(api, "tags@example.org", data={"tags": ["VIP", "new"]})
    api.patch(f"/contacts/{created['id']}", {"data_merge": {"tags": ["vip", "old"]}}).expect(200)
    results = [(name, data.get("tag")) for name, data in contact_events(api, created) if name.startswith("tag_")]
    assert results == [("tag_add", "VIP"), ("tag_add", "new"), ("tag_add", "old"), ("tag_remove", "new")]
    changes = [data["fields"] for name, data in contact_events(api, created) if name == "contact_update"]
    assert changes == [["data"]]
    api.patch(f"/contacts/{created['id']}", {"first_name": "T", "email": "tags2@example.org"}).expect(200)
    changes = [data["fields"] for name, data in contact_events(api, created) if name == "contact_update"]
    assert changes == [["data"], ["first_name", "channels"]]
    api.patch(f"/contacts/{created['id']}", {"first_name": "T"}).expect(200)
    assert len([name for name, _ in contact_events(api, created) if name == "contact_update"]) == 2


@pytest.mark.parametrize(
    ("tags", "where"),
    [("VIP", ".tags"), ({"a": 1}, ".tags"), (["x"] * 101, ".tags"), (["ok", 5], ".tags[1]"), ([" "], ".tags[0]"),
     (["ok", "x" * 65], ".tags[1]"), ([["a"]], ".tags[0]"), ([None], ".tags[0]")],
)  # fmt: skip
def test_invalid_tags_are_rejected(tags: Any, where: str, api: Client) -> None:
    """Tags are an array of at most 100 texts of at most 64 characters; any other value is an error at its path."""
    contact = api.post("/contacts", {"email": "bounds@example.org"}).json
    for error in (
        api.post("/contacts", {"email": "bounds@example.org", "data": {"tags": tags}}),
        api.patch(f"/contacts/{contact['id']}", {"data": {"tags": tags}}),
    ):
        assert set(error.expect(422)["validation_errors"]) == {"data" + where}
    merged = api.patch(f"/contacts/{contact['id']}", {"data_merge": {"tags": tags}})
    if isinstance(tags, dict):
        assert merged.status == 422
    else:
        assert set(merged.expect(422)["validation_errors"]) == {"data_merge" + where}


def test_the_largest_valid_tags(api: Client) -> None:
    """A hundred tags of 64 characters are valid; null removes all."""
    tags = [f"{number:064}" for number in range(100)]
    created = create_contact(api, "full@example.org", data={"tags": tags})
    assert created["data"]["tags"] == tags
    assert api.patch(f"/contacts/{created['id']}", {"data": {"tags": None, "a": 1}}).expect(200)["data"] == {"a": 1}


# -- timeline, evidence, export ----------------------------------------------------------------------------------------


def test_the_timeline_has_events_and_messages(api: Client) -> None:
    """The timeline has all events and messages of a contact, newest first, in pages."""
    created = create_contact(api, "line@example.org")
    sent = api.post("/messages", {"to": "line@example.org", "subject": "Hi", "body": "<p>Hi</p>"}).expect(201)
    api.wait(f"/messages/{sent['id']}", lambda row: row["status"] == "sent")
    path = f"/contacts/{created['id']}/timeline"
    whole = api.get(path).expect(200)
    assert {(row["type"], (row["event"] or {}).get("event")) for row in whole} == {
        ("event", "contact_add"), ("event", "opt_in"), ("event", "email_sent"), ("message", None),
    }  # fmt: skip
    times = [row["created_at"] for row in whole]
    assert times == sorted(times, reverse=True)
    assert [row["message"]["id"] for row in whole if row["type"] == "message"] == [sent["id"]]
    assert api.all(path) == whole
    second = api.get(path, limit=3, page=2)
    assert second.json == whole[3:] and second.headers["X-Total-Count"] == "4"
    assert api.get("/contacts/999999/timeline").status == 404


def test_list_the_consent_evidence(api: Client) -> None:
    """Every change of consent is a row with actor, source and address, newest first."""
    created = create_contact(api, "evidence@example.org", opt_in=False)
    api.patch(f"/contacts/{created['id']}", {"subscribed_email": True}).expect(200)
    api.patch(f"/contacts/{created['id']}", {"opt_in": False}).expect(200)
    out, into = api.get(f"/contacts/{created['id']}/consents").expect(200)
    assert (into["act"], out["act"], out["by"], out["source"]) == ("opt_in", "opt_out", "operator", "api")
    assert out["actor"].startswith("key:") and out["ip"] == "127.0.0.0" and out["address"] == "evidence@example.org"
    assert api.get("/contacts/999999/consents").status == 404


def test_export_a_contact(api: Client) -> None:
    """The export has the contact, lists, evidence, suppressions, messages with their texts, and events."""
    people = api.post("/lists", {"name": "Dossier"}).expect(201)["id"]
    created = create_contact(api, "dossier@example.org", list_ids=[people],
                             data={"tags": ["a"], "time_zone": "Asia/Tokyo"})  # fmt: skip
    api.post("/messages", {"to": "dossier@example.org", "subject": "Receipt", "body": "<p>Paid</p>"}).expect(201)
    api.post("/suppressions", {"address": "dossier@example.org", "note": "n"}).expect(201)
    response = api.get(f"/contacts/{created['id']}/export")
    whole = response.expect(200)
    assert response.headers["Content-Disposition"] == f'attachment; filename="contact-{created["id"]}.json"'
    assert whole["contact"]["id"] == created["id"] and whole["lists"] == [{"id": people, "name": "Dossier"}]
    assert [row["act"] for row in whole["consents"]] == ["suppressed", "opt_in"]
    assert [row["note"] for row in whole["suppressions"]] == ["n"]
    assert (whole["time_zone"], whole["click_hours"]) == ("Asia/Tokyo", [])
    assert whole["message_texts"][0]["body"] == "<p>Paid</p>" and len(whole["messages"]) == 1
    assert {row["event"] for row in whole["events"]} >= {"contact_add", "list_add", "tag_add", "opt_in"}
    assert api.get("/contacts/999999/export").status == 404


# -- merge -------------------------------------------------------------------------------------------------------------


def test_merge_two_contacts(api: Client) -> None:
    """Channels, data, lists, messages and events are united; the first contact's values win, the second is deleted."""
    contact = create_contact(api, "m1@example.org", first_name="Mia", data={"a": 1, "tags": ["x"]})
    two = create_contact(api, "m2@example.org", first_name="M", last_name="Muster", phone="+4915112349999",
                 data={"a": 2, "b": 3, "tags": ["X", "y"]}, tracking="none")  # fmt: skip
    both = api.post("/lists", {"name": "Both", "contact_ids": [contact["id"], two["id"]]}).expect(201)["id"]
    only = api.post("/lists", {"name": "Only two", "contact_ids": [two["id"]]}).expect(201)["id"]
    campaign = send_campaign(api, "To both", contact, two)
    sent = api.post("/messages", {"to": "m2@example.org", "subject": "Hi", "body": "<p>Hi</p>"}).expect(201)
    api.wait(f"/messages/{sent['id']}", lambda row: row["status"] == "sent")

    merged = api.post(f"/contacts/{contact['id']}/merge", {"contact_id": two["id"]}).expect(200)

    assert (merged["first_name"], merged["last_name"], merged["tracking"]) == ("Mia", "Muster", "none")
    assert merged["data"] == {"a": 1, "b": 3, "tags": ["x", "y"]}
    assert [row["value"] for row in merged["channels"]] == ["m1@example.org", "m2@example.org", "+4915112349999"]
    assert {both, only} < set(merged["list_ids"])
    assert api.get(f"/lists/{both}").json["contacts_count"] == api.get(f"/lists/{only}").json["contacts_count"] == 1
    assert api.get(f"/contacts/{two['id']}").status == 404
    assert [row["id"] for row in api.get("/contacts", search="muster").json] == [contact["id"]]
    assert api.get(f"/messages/{sent['id']}").json["contact_id"] == contact["id"]
    assert api.get(f"/campaigns/{campaign}").json["stats"]["sent"] == 2
    name, data = contact_events(api, contact)[-1]
    assert (name, data["merged_contact_id"]) == ("contact_merge", two["id"])
    assert len([name for name, _ in contact_events(api, contact) if name == "contact_add"]) == 2


@pytest.mark.parametrize("first", [True, False], ids=["into the one", "into the other"])
def test_a_merge_keeps_the_stricter_consent(first: bool, api: Client) -> None:
    """If one of two merged contacts has opted out of a channel, the result is opted out of it."""
    out = create_contact(api, f"out-{first}@example.org", phone=f"+49151123488{int(first)}0")
    inside = create_contact(api, f"in-{first}@example.org")
    api.patch(f"/contacts/{out['id']}", {"subscribed_email": False}).expect(200)
    source, two = (out, inside) if first else (inside, out)
    merged = api.post(f"/contacts/{source['id']}/merge", {"contact_id": two["id"]}).expect(200)
    assert (merged["subscribed_email"], merged["subscribed_phone"]) == (False, True)
    evidence = api.get(f"/contacts/{source['id']}/consents").json[0]
    assert (evidence["source"], evidence["act"], evidence["by"]) == ("merge", "opt_out", "operator")


def test_invalid_merges_are_rejected(api: Client) -> None:
    """A merge with itself, an unknown contact, or too much data is rejected and changes nothing."""
    contact = create_contact(api, "cannot@example.org", data={"a": "x" * 20_000})
    two = create_contact(api, "cannot2@example.org", data={"b": "x" * 20_000})
    path = f"/contacts/{contact['id']}/merge"
    assert api.post(path, {"contact_id": contact["id"]}).expect(422)["validation_errors"] == {
        "contact_id": ["is invalid"]
    }
    assert api.post(path, {"contact_id": 999999}).expect(422)["validation_errors"] == {"contact_id": ["must exist"]}
    assert api.post(path, {}).expect(422)["validation_errors"] == {"contact_id": ["can't be blank"]}
    assert set(api.post(path, {"contact_id": two["id"]}).expect(422)["validation_errors"]) == {"data"}
    assert api.post("/contacts/999999/merge", {"contact_id": two["id"]}).status == 404
    assert api.get(f"/contacts/{two['id']}").json == {key: two[key] for key in two if key != "kept_opt_out"}


# -- erase -------------------------------------------------------------------------------------------------------------

NAMES = ("erasmus", "rotterdam", "+4915112347777", "4915112347777")


def dump_database(server: Server) -> str:
    """Return every value of every table of the database as one text, without the search index."""
    with apsw.Connection(str(server.data / "campanero.db")) as database:
        named = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'contact_search%'"
        tables = [row[0] for row in database.execute(named).fetchall()]
        return "\n".join(str(row) for table in tables for row in database.execute(f"SELECT * FROM {table}").fetchall())


def test_erase_a_contact(fresh_server: FreshServer) -> None:
    """After an erasure no table contains the name or address; counts stay, and hashes suppress the addresses."""
    server = fresh_server()
    api = server.client()
    created = create_contact(
        api, "Erasmus@rotterdam.example", first_name="Erasmus", last_name="Rotterdam", phone="+4915112347777",
        data={"city": "Rotterdam"},
    )  # fmt: skip
    other = create_contact(api, "other@example.org")
    campaign = send_campaign(api, "News", created, other)
    single = {"to": "erasmus@rotterdam.example", "subject": "For Erasmus", "body": "<p>Erasmus</p>",
              "tags": {"who": "Erasmus"}, "data": {"name": "Rotterdam"}}  # fmt: skip
    sent = api.post("/messages", single).expect(201)
    api.wait(f"/messages/{sent['id']}", lambda row: row["status"] == "sent")
    waiting = api.post("/messages", single | {"send_at": "2100-01-01T00:00:00Z"}).expect(201)
    api.post("/suppressions", {"address": "erasmus@rotterdam.example", "note": "Erasmus asked"}).expect(201)
    api.post("/events", {"event": "checkout", "contact_id": created["id"], "data": {"name": "Erasmus"}}).expect(201)
    before = api.get(f"/campaigns/{campaign}").json["stats"]
    assert all(name in dump_database(server).casefold() for name in ("erasmus", "rotterdam"))

    gone = api.delete(f"/contacts/{created['id']}", erase="true").expect(200)

    assert gone["first_name"] == "Erasmus"
    end = time.monotonic() + 10
    # Data in imports and the search index is removed soon after the response
    while (left := [name for name in NAMES if name in dump_database(server).casefold()]) and time.monotonic() < end:
        time.sleep(0.1)
    assert left == []
    assert api.get(f"/contacts/{created['id']}").status == 404
    assert api.get("/contacts", search="erasmus").json == []
    assert api.get(f"/campaigns/{campaign}").json["stats"] == before
    ended = api.get(f"/messages/{waiting['id']}").expect(200)
    assert (ended["status"], ended["skip_reason"], ended["to"]) == ("skipped", "contact_deleted", None)
    assert api.get(f"/messages/{sent['id']}").expect(200)["to"] is None
    for row in api.get("/messages", campaign_id=campaign).json:
        api.get(f"/messages/{row['id']}").expect(200)
    assert {(row["reason"], row["address"], row["channel"]) for row in api.get("/suppressions").json} == {
        ("erased", None, "email"), ("erased", None, "sms"), ("manual", None, "email"),
    }  # fmt: skip


def test_an_erased_address_stays_suppressed(api: Client) -> None:
    """A new contact with the address is suppressed and opted out; lifting the suppression leaves the opt-out."""
    created = create_contact(api, "again@example.org")
    api.delete(f"/contacts/{created['id']}", erase="true").expect(200)
    back = api.post("/contacts", {"email": "again@example.org", "opt_in": True}).expect(201)
    channel = back["channels"][0]
    assert (channel["subscribed"], channel["suppression_reason"], back["kept_opt_out"]) == (
        False, "erased", ["again@example.org"],
    )  # fmt: skip
    error = api.post("/messages", {"to": "again@example.org", "subject": "s", "body": "b"}).expect(422)
    assert error["skip_reason"] == "suppressed_erased"
    number = api.get("/suppressions", address="again@example.org").json[0]["id"]
    api.delete(f"/suppressions/{number}", reason="wants to come back").expect(200)
    channel = api.get(f"/contacts/{back['id']}").json["channels"][0]
    assert (channel["subscribed"], channel["suppression_reason"], channel["opted_out_by"]) == (False, None, "recipient")
    now = api.post("/contacts", {"email": "again@example.org", "opt_in": True}).expect(200)
    assert now["channels"][0]["subscribed"] is True


def test_a_plain_delete_does_not_erase(api: Client) -> None:
    """Without `erase` no address is suppressed."""
    created = create_contact(api, "plain@example.org")
    api.delete(f"/contacts/{created['id']}", erase="false").expect(200)
    back = create_contact(api, "plain@example.org")
    assert back["sendable_email"] is True
    assert api.delete(f"/contacts/{back['id']}", erase="maybe").status == 422
    assert api.delete(f"/contacts/{created['id']}", erase="maybe").expect(404)["message"]
