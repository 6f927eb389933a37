"""Campaigns over the API: drafts, blockers, states (docs/decisions.md#6)."""

from typing import Any

import pytest

from tests.kit.client import Client

CONTENT = {"subject": "Hello {{ first_name }}", "body": "<p>Hi</p>"}


def list_with_contacts(api: Client, name: str, people: int = 1) -> int:
    """Create a list with some contacts and return its id."""
    number: int = api.post("/lists", {"name": name}).expect(201)["id"]
    for index in range(people):
        api.post("/contacts", {"email": f"{name.lower().replace(' ', '-')}-{index}@example.org", "list_ids": [number]})
    return number


def create_draft(api: Client, **body: Any) -> dict[str, Any]:
    """Create a draft campaign and return it."""
    campaign: dict[str, Any] = api.post("/campaigns", {"name": "Draft", **body}).expect(201)
    return campaign


def test_a_new_campaign_is_a_complete_draft(api: Client) -> None:
    """A new campaign has an empty trigger and an empty template."""
    created = create_draft(api)

    assert (created["status"], created["phase"], created["approval_state"], created["channel"]) == (
        "draft", "draft", "pending_review", "email",
    )  # fmt: skip
    assert created["trigger"]["event"] == "manual"
    assert (created["trigger"]["segment_id"], created["trigger"]["contact_list_id"]) == (None, None)
    assert created["template"]["design"] == {"sections": [], "theme": {}}
    assert (created["template"]["subject"], created["template"]["body"]) == (None, None)
    assert created["templates"] == [created["template"]]
    assert (created["editable"], created["data"], created["scheduled_at"]) == (True, {}, None)
    assert set(created["stats"].values()) == {0}


@pytest.mark.parametrize(
    ("body", "field", "message"),
    [
        ({}, "name", "can't be blank"),
        ({"name": ""}, "name", "can't be blank"),
        ({"name": "x" * 256}, "name", "is too long (maximum is 255 characters)"),
        ({"name": "x", "channel": "fax"}, "channel", "is not included in the list"),
        ({"name": "x", "scheduled_at": "2026-11-20T10:00:00"}, "scheduled_at", "is invalid"),
        ({"name": "x", "trigger_attributes": {"contact_list_id": 987654}},
         "trigger_attributes.contact_list_id", "must exist"),
        ({"name": "x", "trigger_attributes": {"segment_id": 987654}}, "trigger_attributes.segment_id", "must exist"),
        ({"name": "x", "trigger_attributes": {"list": 1}}, "trigger_attributes.list", "is not a known field"),
        ({"name": "x", "trigger_attributes": {"data": {"exclude_contact_list_ids": [987654]}}},
         "trigger_attributes.data.exclude_contact_list_ids[0]", "must exist"),
        ({"name": "x", "template_attributes": {"from_email": "nope"}}, "template_attributes.from_email", "is invalid"),
        ({"name": "x", "template_attributes": {"subject": "a\r\nBcc: x"}}, "template_attributes.subject", "is invalid"),
    ],
)  # fmt: skip
def test_invalid_campaigns_are_rejected(api: Client, body: dict[str, Any], field: str, message: str) -> None:
    """Each error is reported at its path."""
    assert api.post("/campaigns", body).expect(422)["validation_errors"] == {field: [message]}


def test_an_invalid_merge_tag_is_reported_with_its_line(api: Client) -> None:
    """The error of an invalid merge tag names its line."""
    body = {"subject": "Hi {{ first_name", "body": "<p>\n{% if x %}no end</p>", "from_name": "{{ a | nope }}"}
    error = api.post("/campaigns", {"name": "x", "template_attributes": body}).expect(422)["validation_errors"]

    assert set(error) == {f"template_attributes.{name}" for name in body}
    assert "line 1" in error["template_attributes.subject"][0]
    assert "unknown filter 'nope'" in error["template_attributes.from_name"][0]


def test_patch_keeps_absent_fields_of_a_draft(api: Client) -> None:
    """A PATCH keeps absent fields, and with an old `updated_at` it is a conflict."""
    created = create_draft(api, template_attributes=CONTENT)
    path = f"/campaigns/{created['id']}"
    edited = api.patch(path, {"name": "New name", "template_attributes": {"preheader": "Soon"}}).expect(200)
    stale = api.patch(path, {"name": "Late", "updated_at": created["updated_at"]})

    assert (edited["name"], edited["template"]["subject"], edited["template"]["preheader"]) == (
        "New name", CONTENT["subject"], "Soon",
    )  # fmt: skip
    assert edited["template"]["variables"].keys() == {"first_name"}
    assert (stale.status, stale.json["code"]) == (409, "conflict")
    assert api.patch(path, {"name": "In time", "updated_at": edited["updated_at"]}).status == 200


@pytest.mark.parametrize(
    ("attributes", "reason", "fields"),
    [
        ({}, "audience_required", {"trigger_attributes.contact_list_id", "template_attributes.subject",
                                   "template_attributes.body"}),
        ({"template_attributes": CONTENT}, "audience_required", {"trigger_attributes.contact_list_id"}),
        ({"template_attributes": CONTENT, "trigger_attributes": {"data": {"audience_type": "all_contacts"}}},
         "confirmation_required", {"confirm_send_to_all"}),
    ],
)  # fmt: skip
def test_a_rejected_send_lists_all_blockers(
    api: Client, attributes: dict[str, Any], reason: str, fields: set[str]
) -> None:
    """The first blocker is the reason, all of them are listed, and the campaign stays an unchanged draft."""
    created = create_draft(api)
    error = api.post(f"/campaigns/{created['id']}/send", attributes).expect(422)
    after = api.get(f"/campaigns/{created['id']}").json

    assert error["reason"] == reason == error["blockers"][0]["code"]
    assert set(error["validation_errors"]) == fields == {blocker["field"] for blocker in error["blockers"]}
    assert (after["status"], after["template"]["subject"]) == ("draft", None)
    assert api.get("/messages", campaign_id=created["id"]).json == []


def test_content_is_required(api: Client) -> None:
    """A send with an audience and without content is rejected with `content_required`."""
    created = create_draft(api)
    send = {"trigger_attributes": {"contact_list_id": list_with_contacts(api, "No words")}}

    assert api.post(f"/campaigns/{created['id']}/send", send).expect(422)["reason"] == "content_required"


def test_unknown_section_types_block_a_send(api: Client) -> None:
    """A design with a section of an unknown type cannot be sent."""
    created = create_draft(api, template_attributes={"subject": "x", "design": {"sections": [{"type": "hologram"}]}},
                 trigger_attributes={"contact_list_id": list_with_contacts(api, "Sections")})  # fmt: skip
    error = api.post(f"/campaigns/{created['id']}/send").expect(422)

    assert error["reason"] == "preflight_failed"
    assert "hologram" in error["validation_errors"]["template_attributes.design.sections[0]"][0]


def test_preflight_lists_the_blockers_of_a_send(api: Client) -> None:
    """Preflight has the same blockers as the send, and warnings and counts."""
    created = create_draft(
        api, template_attributes={"subject": "Hi", "body": "<p>{{ contact.nick }} {{ nobody.knows }}</p>"}
    )
    empty = api.get(f"/campaigns/{created['id']}/preflight").expect(200)
    error = api.post(f"/campaigns/{created['id']}/send").expect(422)
    group = list_with_contacts(api, "Preflight", 3)
    api.patch(f"/campaigns/{created['id']}", {"trigger_attributes": {"contact_list_id": group}}).expect(200)
    ready = api.get(f"/campaigns/{created['id']}/preflight").expect(200)

    assert (empty["ok"], empty["blockers"]) == (False, error["blockers"])
    assert (ready["ok"], ready["blockers"]) == (True, [])
    assert (ready["facts"]["audience"], ready["facts"]["sendable"]) == (3, 3)
    codes = {warning["code"] for warning in ready["warnings"]}
    assert {"postal_address", "preheader_missing", "unknown_merge_tag"} <= codes
    assert any("nobody.knows" in warning["message"] for warning in ready["warnings"])


def test_send_a_campaign_to_completion(api: Client) -> None:
    """The response shows `active`; later the counts add up to the audience, and events are recorded."""
    group = list_with_contacts(api, "Sending", 3)
    out = api.post("/contacts", {"email": "out@example.org", "opt_in": False, "list_ids": [group]}).json
    api.post("/contacts", {"first_name": "No address", "list_ids": [group]})
    created = create_draft(api)
    body = {"trigger_attributes": {"contact_list_id": group}, "template_attributes": CONTENT}
    sent = api.post(f"/campaigns/{created['id']}/send", body).expect(200)
    done = api.wait(f"/campaigns/{created['id']}", lambda row: row["status"] == "completed")

    assert (sent["status"], sent["audience_count"], sent["approval_state"]) == ("active", 5, "approved")
    assert done["stats"] | {"audience": 5, "sent": 3, "skipped": 2, "accepted": 3, "pending": 0} == done["stats"]
    assert (done["sent_count"], done["phase"]) == (3, "completed")
    rows = api.get("/messages", campaign_id=created["id"]).json
    assert {row["skip_reason"] for row in rows if row["status"] == "skipped"} == {"no_consent", "no_channel"}
    assert [row["skip_reason"] for row in rows if row["contact_id"] == out["id"]] == ["no_consent"]
    names = {row["event"] for row in api.get("/events", resource_uid=f"campaign:{created['id']}").json}
    assert names == {"campaign_started", "campaign_completed"}
    skipped = api.get("/events", event="email_skipped", contact_id=out["id"]).json
    assert [event["data"]["reason"] for event in skipped] == ["no_consent"]


def test_a_sent_campaign_is_locked(api: Client) -> None:
    """Content and audience are fixed and it cannot be sent again.

    Its name can change, and deleting it keeps messages.
    """
    created = create_draft(
        api, template_attributes=CONTENT, trigger_attributes={"contact_list_id": list_with_contacts(api, "Locked")}
    )
    path = f"/campaigns/{created['id']}"
    api.post(f"{path}/send").expect(200)
    api.wait(path, lambda row: row["status"] == "completed")

    for body in ({"template_attributes": {"subject": "x"}}, {"trigger_attributes": {"contact_list_id": None}},
                 {"channel": "sms"}, {"scheduled_at": "2099-01-01T00:00:00Z"}):  # fmt: skip
        error = api.patch(path, body).expect(422)
        assert (error["reason"], error["status"]) == ("campaign_locked", "completed"), body
    assert api.patch(path, {"name": "Renamed"}).expect(200)["name"] == "Renamed"
    assert api.post(f"{path}/send").expect(422)["reason"] == "campaign_locked"
    assert (
        api.patch(f"/templates/{created['template']['id']}", {"subject": "x"}).expect(422)["reason"]
        == "campaign_locked"
    )
    assert api.delete(path).expect(200)["status"] == "completed"
    assert api.get(path).status == 404
    assert len(api.get("/messages", campaign_id=created["id"]).json) == 1


def test_invalid_campaign_transitions_are_rejected(api: Client) -> None:
    """`invalid_transition` names the status and the allowed ones."""
    path = f"/campaigns/{create_draft(api)['id']}"
    for verb in ("pause", "resume", "cancel"):
        error = api.post(f"{path}/{verb}").expect(422)
        assert (error["reason"], error["from"], error["allowed"]) == ("invalid_transition", "draft", ["active"])
    assert api.patch(path, {"status": "paused"}).expect(422)["reason"] == "invalid_transition"
    assert api.patch(path, {"status": "scheduled"}).expect(422)["validation_errors"] == {
        "scheduled_at": ["must be in the future"]
    }


def test_schedule_and_unschedule_a_campaign(api: Client) -> None:
    """A scheduled campaign can be edited; clearing the time makes it a draft again."""
    group = list_with_contacts(api, "Armed")
    created = create_draft(api, template_attributes=CONTENT, trigger_attributes={"contact_list_id": group},
                 scheduled_at="2099-01-01T09:00:00+01:00")  # fmt: skip
    path = f"/campaigns/{created['id']}"
    armed = api.post(f"{path}/send").expect(200)
    edited = api.patch(path, {"template_attributes": {"subject": "Later"}}).expect(200)
    listed = api.get("/campaigns", status="scheduled").json
    disarmed = api.patch(path, {"scheduled_at": None}).expect(200)

    assert (armed["status"], armed["phase"], armed["scheduled_at"]) == (
        "active",
        "scheduled",
        "2099-01-01T08:00:00.000Z",
    )
    assert (edited["phase"], edited["template"]["subject"]) == ("scheduled", "Later")
    assert created["id"] in [row["id"] for row in listed]
    assert (disarmed["status"], disarmed["phase"], disarmed["scheduled_at"]) == ("draft", "draft", None)
    assert api.get("/messages", campaign_id=created["id"]).json == []


def test_a_held_send_can_be_undone(api: Client) -> None:
    """While a send is held, no message is sent and it can be undone completely."""
    created = create_draft(
        api, template_attributes=CONTENT, trigger_attributes={"contact_list_id": list_with_contacts(api, "Held", 2)}
    )
    path = f"/campaigns/{created['id']}"
    held = api.post(f"{path}/send", {"hold_seconds": 60}).expect(200)
    rows = api.get("/messages", campaign_id=created["id"]).json
    undone = api.patch(path, {"status": "draft"}).expect(200)

    assert (held["phase"], held["stats"]["pending"]) == ("holding", 2)
    assert {row["status"] for row in rows} == {"held"}
    assert (undone["status"], undone["audience_count"], undone["editable"]) == ("draft", 0, True)
    assert api.get("/messages", campaign_id=created["id"]).json == []
    assert api.post(f"{path}/send").expect(200)["audience_count"] == 2


def test_a_confirmation_is_true_or_false(api: Client) -> None:
    """Another value in the trigger is an error at its field."""
    for value in ({}, "yes", 1, None):
        body = {"name": "All", "trigger_attributes": {"data": {"confirm_send_to_all": value}}}
        errors = api.post("/campaigns", body).expect(422)["validation_errors"]
        assert errors == {"trigger_attributes.data.confirm_send_to_all": ["must be true or false"]}, value


def test_sending_to_all_contacts_needs_confirmation(api: Client) -> None:
    """All contacts are an audience only with `confirm_send_to_all`, and never instead of a deleted list."""
    created = create_draft(
        api, template_attributes=CONTENT, trigger_attributes={"data": {"audience_type": "all_contacts"}}
    )
    path = f"/campaigns/{created['id']}"
    assert api.post(f"{path}/send").expect(422)["reason"] == "confirmation_required"
    sent = api.post(f"{path}/send", {"confirm_send_to_all": True, "hold_seconds": 600}).expect(200)

    assert sent["audience_count"] == int(api.get("/contacts").headers["X-Total-Count"])
    api.post(f"{path}/cancel").expect(200)

    # docs/decisions.md#6: the body of the send suffices, but not for a campaign whose list was deleted
    alone = f"/campaigns/{create_draft(api, template_attributes=CONTENT)['id']}"
    assert api.post(f"{alone}/send").expect(422)["reason"] == "audience_required"
    sent = api.post(f"{alone}/send", {"confirm_send_to_all": True, "hold_seconds": 600}).expect(200)
    assert sent["audience_count"] == int(api.get("/contacts").headers["X-Total-Count"])
    api.post(f"{alone}/cancel").expect(200)
    lost = list_with_contacts(api, "Lost", 1)
    robbed_draft = create_draft(api, template_attributes=CONTENT, trigger_attributes={"contact_list_id": lost})
    robbed = f"/campaigns/{robbed_draft['id']}"
    api.delete(f"/lists/{lost}").expect(200)
    assert api.post(f"{robbed}/send", {"confirm_send_to_all": True}).expect(422)["reason"] == "audience_required"


def test_lists_are_united_and_excluded(api: Client) -> None:
    """Each contact of several lists gets one message, and those of excluded lists get none."""
    first, two, without = (
        list_with_contacts(api, "Union one", 2),
        list_with_contacts(api, "Union two", 2),
        list_with_contacts(api, "Without", 1),
    )
    person = api.get("/contacts", list_id=first).json[0]["id"]
    api.patch(f"/contacts/{person}", {"list_ids": [first, two]})
    api.patch(f"/lists/{without}", {"contact_ids": [api.get("/contacts", list_id=two).json[-1]["id"]]}).expect(200)
    created = create_draft(api, template_attributes=CONTENT, trigger_attributes={
        "contact_list_id": first,
        "data": {"contact_list_ids": [two], "exclude_contact_list_ids": [without]}})  # fmt: skip
    sent = api.post(f"/campaigns/{created['id']}/send", {"hold_seconds": 600}).expect(200)

    assert sent["audience_count"] == 3
    api.post(f"/campaigns/{created['id']}/cancel").expect(200)
