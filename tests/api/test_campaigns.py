"""Campaigns over the API: drafts, blockers, states (docs/decisions.md#6)."""

from typing import Any

import pytest

from tests.kit.client import Client

CONTENT = {"subject": "Hello {{ first_name }}", "body": "<p>Hi</p>"}


def audience(api: Client, name: str, people: int = 1) -> int:
    """Make a list with some people and answer its id."""
    number: int = api.post("/lists", {"name": name}).expect(201)["id"]
    for index in range(people):
        api.post("/contacts", {"email": f"{name.lower().replace(' ', '-')}-{index}@example.org", "list_ids": [number]})
    return number


def draft(api: Client, **body: Any) -> dict[str, Any]:
    """Make a draft."""
    made: dict[str, Any] = api.post("/campaigns", {"name": "Draft", **body}).expect(201)
    return made


def test_a_new_campaign_is_a_complete_draft(api: Client) -> None:
    """Trigger and template are there from the start, with nothing in them."""
    made = draft(api)

    assert (made["status"], made["phase"], made["approval_state"], made["channel"]) == (
        "draft", "draft", "pending_review", "email",
    )  # fmt: skip
    assert made["trigger"]["event"] == "manual"
    assert (made["trigger"]["segment_id"], made["trigger"]["contact_list_id"]) == (None, None)
    assert made["template"]["design"] == {"sections": [], "theme": {}}
    assert (made["template"]["subject"], made["template"]["body"]) == (None, None)
    assert made["templates"] == [made["template"]]
    assert (made["editable"], made["data"], made["scheduled_at"]) == (True, {}, None)
    assert set(made["stats"].values()) == {0}


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
def test_faults_of_a_campaign(api: Client, body: dict[str, Any], field: str, message: str) -> None:
    """Each fault stands under its path."""
    assert api.post("/campaigns", body).expect(422)["validation_errors"] == {field: [message]}


def test_a_broken_merge_tag_is_told_with_its_place(api: Client) -> None:
    """Line and column of a template's fault are in the message."""
    body = {"subject": "Hi {{ first_name", "body": "<p>\n{% if x %}no end</p>", "from_name": "{{ a | nope }}"}
    fault = api.post("/campaigns", {"name": "x", "template_attributes": body}).expect(422)["validation_errors"]

    assert set(fault) == {f"template_attributes.{name}" for name in body}
    assert "line 1" in fault["template_attributes.subject"][0]
    assert "unknown filter 'nope'" in fault["template_attributes.from_name"][0]


def test_editing_a_draft_keeps_what_is_absent(api: Client) -> None:
    """PATCH writes what is sent; the version guards against overwriting."""
    made = draft(api, template_attributes=CONTENT)
    path = f"/campaigns/{made['id']}"
    edited = api.patch(path, {"name": "New name", "template_attributes": {"preheader": "Soon"}}).expect(200)
    stale = api.patch(path, {"name": "Late", "updated_at": made["updated_at"]})

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
def test_a_send_that_is_not_ready_says_everything(
    api: Client, attributes: dict[str, Any], reason: str, fields: set[str]
) -> None:
    """The first blocker is the reason, all of them are listed, and the campaign stays a draft."""
    made = draft(api)
    fault = api.post(f"/campaigns/{made['id']}/send", attributes).expect(422)
    after = api.get(f"/campaigns/{made['id']}").json

    assert fault["reason"] == reason == fault["blockers"][0]["code"]
    assert set(fault["validation_errors"]) == fields == {one["field"] for one in fault["blockers"]}
    assert (after["status"], after["template"]["subject"]) == ("draft", None)
    assert api.get("/messages", campaign_id=made["id"]).json == []


def test_content_is_required(api: Client) -> None:
    """An audience without words is refused for its words."""
    made = draft(api)
    send = {"trigger_attributes": {"contact_list_id": audience(api, "No words")}}

    assert api.post(f"/campaigns/{made['id']}/send", send).expect(422)["reason"] == "content_required"


def test_sections_without_a_renderer_block(api: Client) -> None:
    """A design whose sections nobody can render never goes out empty."""
    made = draft(api, template_attributes={"subject": "x", "design": {"sections": [{"type": "hologram"}]}},
                 trigger_attributes={"contact_list_id": audience(api, "Sections")})  # fmt: skip
    fault = api.post(f"/campaigns/{made['id']}/send").expect(422)

    assert fault["reason"] == "preflight_failed"
    assert "hologram" in fault["validation_errors"]["template_attributes.design.sections[0]"][0]


def test_preflight_lists_what_the_send_would_refuse(api: Client) -> None:
    """The page and the refusal read one function; warnings and facts are advice."""
    made = draft(api, template_attributes={"subject": "Hi", "body": "<p>{{ contact.nick }} {{ nobody.knows }}</p>"})
    empty = api.get(f"/campaigns/{made['id']}/preflight").expect(200)
    refused = api.post(f"/campaigns/{made['id']}/send").expect(422)
    group = audience(api, "Preflight", 3)
    api.patch(f"/campaigns/{made['id']}", {"trigger_attributes": {"contact_list_id": group}}).expect(200)
    ready = api.get(f"/campaigns/{made['id']}/preflight").expect(200)

    assert (empty["ok"], empty["blockers"]) == (False, refused["blockers"])
    assert (ready["ok"], ready["blockers"]) == (True, [])
    assert (ready["facts"]["audience"], ready["facts"]["sendable"]) == (3, 3)
    codes = {one["code"] for one in ready["warnings"]}
    assert {"postal_address", "preheader_missing", "unknown_merge_tag"} <= codes
    assert any("nobody.knows" in one["message"] for one in ready["warnings"])


def test_sending_shows_active_and_ends_completed(api: Client) -> None:
    """The answer always shows `active`; the ledger then sums to what was frozen."""
    group = audience(api, "Sending", 3)
    out = api.post("/contacts", {"email": "out@example.org", "opt_in": False, "list_ids": [group]}).json
    api.post("/contacts", {"first_name": "No address", "list_ids": [group]})
    made = draft(api)
    body = {"trigger_attributes": {"contact_list_id": group}, "template_attributes": CONTENT}
    sent = api.post(f"/campaigns/{made['id']}/send", body).expect(200)
    done = api.wait(f"/campaigns/{made['id']}", lambda row: row["status"] == "completed")

    assert (sent["status"], sent["audience_count"], sent["approval_state"]) == ("active", 5, "approved")
    assert done["stats"] | {"audience": 5, "sent": 3, "skipped": 2, "accepted": 3, "pending": 0} == done["stats"]
    assert (done["sent_count"], done["phase"]) == (3, "completed")
    rows = api.get("/messages", campaign_id=made["id"]).json
    assert {row["skip_reason"] for row in rows if row["status"] == "skipped"} == {"no_consent", "no_channel"}
    assert [row["skip_reason"] for row in rows if row["contact_id"] == out["id"]] == ["no_consent"]
    names = {one["event"] for one in api.get("/events", resource_uid=f"campaign:{made['id']}").json}
    assert names == {"campaign_started", "campaign_completed"}
    skipped = api.get("/events", event="email_skipped", contact_id=out["id"]).json
    assert [one["data"]["reason"] for one in skipped] == ["no_consent"]


def test_a_sent_campaign_is_locked(api: Client) -> None:
    """Content and audience are fixed; the name may change; sending again is refused; deleting keeps the ledger."""
    made = draft(api, template_attributes=CONTENT, trigger_attributes={"contact_list_id": audience(api, "Locked")})
    path = f"/campaigns/{made['id']}"
    api.post(f"{path}/send").expect(200)
    api.wait(path, lambda row: row["status"] == "completed")

    for body in ({"template_attributes": {"subject": "x"}}, {"trigger_attributes": {"contact_list_id": None}},
                 {"channel": "sms"}, {"scheduled_at": "2099-01-01T00:00:00Z"}):  # fmt: skip
        fault = api.patch(path, body).expect(422)
        assert (fault["reason"], fault["status"]) == ("campaign_locked", "completed"), body
    assert api.patch(path, {"name": "Renamed"}).expect(200)["name"] == "Renamed"
    assert api.post(f"{path}/send").expect(422)["reason"] == "campaign_locked"
    assert (
        api.patch(f"/templates/{made['template']['id']}", {"subject": "x"}).expect(422)["reason"] == "campaign_locked"
    )
    assert api.delete(path).expect(200)["status"] == "completed"
    assert api.get(path).status == 404
    assert len(api.get("/messages", campaign_id=made["id"]).json) == 1


def test_transitions_that_do_not_exist_are_refused(api: Client) -> None:
    """`invalid_transition` names where it stands, where it may go."""
    path = f"/campaigns/{draft(api)['id']}"
    for verb in ("pause", "resume", "cancel"):
        fault = api.post(f"{path}/{verb}").expect(422)
        assert (fault["reason"], fault["from"], fault["allowed"]) == ("invalid_transition", "draft", ["active"])
    assert api.patch(path, {"status": "paused"}).expect(422)["reason"] == "invalid_transition"
    assert api.patch(path, {"status": "scheduled"}).expect(422)["validation_errors"] == {
        "scheduled_at": ["must be in the future"]
    }


def test_a_campaign_waits_for_its_time_and_can_be_disarmed(api: Client) -> None:
    """A future time arms; armed content may still change; taking the time away disarms."""
    group = audience(api, "Armed")
    made = draft(api, template_attributes=CONTENT, trigger_attributes={"contact_list_id": group},
                 scheduled_at="2099-01-01T09:00:00+01:00")  # fmt: skip
    path = f"/campaigns/{made['id']}"
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
    assert made["id"] in [row["id"] for row in listed]
    assert (disarmed["status"], disarmed["phase"], disarmed["scheduled_at"]) == ("draft", "draft", None)
    assert api.get("/messages", campaign_id=made["id"]).json == []


def test_a_hold_can_be_undone(api: Client) -> None:
    """While a send is held nothing leaves and it can be taken back whole."""
    made = draft(api, template_attributes=CONTENT, trigger_attributes={"contact_list_id": audience(api, "Held", 2)})
    path = f"/campaigns/{made['id']}"
    held = api.post(f"{path}/send", {"hold_seconds": 60}).expect(200)
    rows = api.get("/messages", campaign_id=made["id"]).json
    undone = api.patch(path, {"status": "draft"}).expect(200)

    assert (held["phase"], held["stats"]["pending"]) == ("holding", 2)
    assert {row["status"] for row in rows} == {"held"}
    assert (undone["status"], undone["audience_count"], undone["editable"]) == ("draft", 0, True)
    assert api.get("/messages", campaign_id=made["id"]).json == []
    assert api.post(f"{path}/send").expect(200)["audience_count"] == 2


def test_everybody_only_when_confirmed(api: Client) -> None:
    """All contacts need a word of confirmation in either place."""
    made = draft(api, template_attributes=CONTENT, trigger_attributes={"data": {"audience_type": "all_contacts"}})
    path = f"/campaigns/{made['id']}"
    assert api.post(f"{path}/send").expect(422)["reason"] == "confirmation_required"
    sent = api.post(f"{path}/send", {"confirm_send_to_all": True, "hold_seconds": 600}).expect(200)

    assert sent["audience_count"] == int(api.get("/contacts").headers["X-Total-Count"])
    api.post(f"{path}/cancel").expect(200)

    # Decisions, section 6: the send body alone says it too, but not of a campaign whose list is gone
    alone = f"/campaigns/{draft(api, template_attributes=CONTENT)['id']}"
    assert api.post(f"{alone}/send").expect(422)["reason"] == "audience_required"
    sent = api.post(f"{alone}/send", {"confirm_send_to_all": True, "hold_seconds": 600}).expect(200)
    assert sent["audience_count"] == int(api.get("/contacts").headers["X-Total-Count"])
    api.post(f"{alone}/cancel").expect(200)
    lost = audience(api, "Lost", 1)
    robbed = f"/campaigns/{draft(api, template_attributes=CONTENT, trigger_attributes={'contact_list_id': lost})['id']}"
    api.delete(f"/lists/{lost}").expect(200)
    assert api.post(f"{robbed}/send", {"confirm_send_to_all": True}).expect(422)["reason"] == "audience_required"


def test_exclusions_and_unions(api: Client) -> None:
    """Lists unite, excluded ones are taken away, nobody gets two."""
    one, two, without = audience(api, "Union one", 2), audience(api, "Union two", 2), audience(api, "Without", 1)
    person = api.get("/contacts", list_id=one).json[0]["id"]
    api.patch(f"/contacts/{person}", {"list_ids": [one, two]})
    api.patch(f"/lists/{without}", {"contact_ids": [api.get("/contacts", list_id=two).json[-1]["id"]]}).expect(200)
    made = draft(api, template_attributes=CONTENT, trigger_attributes={
        "contact_list_id": one,
        "data": {"contact_list_ids": [two], "exclude_contact_list_ids": [without]}})  # fmt: skip
    sent = api.post(f"/campaigns/{made['id']}/send", {"hold_seconds": 600}).expect(200)

    assert sent["audience_count"] == 3
    api.post(f"/campaigns/{made['id']}/cancel").expect(200)
