"""Campaigns that somebody has to look at first: asked for, approved, rejected, and by whom (docs/decisions.md#6)."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.api.test_flow_rights import account_with
from tests.kit.client import Client
from tests.kit.server import Server

WRITER = "campaigns:write,campaigns:send,templates:write"


def at(campaign: dict[str, Any], verb: str = "") -> str:
    """Return the path of a campaign, or of a verb of it."""
    return f"/campaigns/{campaign['id']}{'/' if verb else ''}{verb}"


@pytest.fixture(scope="module")
def crowd(api: Client) -> int:
    """A list with somebody in it."""
    number = int(api.post("/lists", {"name": "Readers"}).expect(201)["id"])
    api.post("/contacts", {"email": "reader@example.org", "list_ids": [number]}).expect(201)
    return number


@pytest.fixture
def writer(server: Server) -> Iterator[Client]:
    """A client that may send and may not approve, of an account where somebody has to."""
    with account_with(server, "approval_required", 1):
        yield server.client(server.new_key("writer", "--scope", WRITER))


def draft(api: Client, crowd: int, **more: Any) -> Any:
    """Make a campaign that could be sent."""
    said = {"subject": "News", "body": "<p>Bread.</p>"}
    asked = {"name": "Letter", "trigger_attributes": {"contact_list_id": crowd}, "template_attributes": said, **more}
    return api.post("/campaigns", asked).expect(201)


def test_nothing_goes_out_until_somebody_approved(api: Client, writer: Client, crowd: int) -> None:
    """Send, arm and resume are refused with `approval_required`; after `/approve` whoever may send sends."""
    campaign = draft(writer, crowd)
    assert (campaign["approval_state"], campaign["approval_note"]) == ("pending_review", None)
    assert campaign["asked_at"] is None
    refused = writer.post(at(campaign, "send")).expect(422)
    assert refused["reason"] == "approval_required" and [one["code"] for one in refused["blockers"]] == [
        "approval_required"
    ]
    assert writer.patch(at(campaign), {"status": "active"}).expect(422)["reason"] == "approval_required"
    assert not writer.get(at(campaign, "preflight")).json["ok"] and api.get(at(campaign, "preflight")).json["ok"]
    assert writer.post(at(campaign, "approve")).expect(403)["required_scope"] == "campaigns:approve"
    assert writer.post(at(campaign, "reject")).expect(403)["required_scope"] == "campaigns:approve"
    assert api.post(at(campaign, "approve")).expect(200)["approval_state"] == "approved"
    assert writer.post(at(campaign, "send")).expect(200)["status"] == "active"
    for verb in ("approve", "reject", "ask_approval"):
        assert api.post(at(campaign, verb)).expect(422)["reason"] == "campaign_locked"


def test_who_may_approve_approves_by_sending(api: Client, writer: Client, crowd: int) -> None:
    """A key with `campaigns:approve` needs no other step."""
    campaign = draft(writer, crowd)
    sent = api.post(at(campaign, "send")).expect(200)
    assert (sent["status"], sent["approval_state"]) == ("active", "approved")


def test_what_was_rejected_needs_a_change(api: Client, writer: Client, crowd: int) -> None:
    """It says why; neither asking nor sending helps, whoever does it; an edit lets it be asked for again."""
    campaign = draft(writer, crowd)
    rejected = api.post(at(campaign, "reject"), {"note": " Say it shorter "}).expect(200)
    assert (rejected["approval_state"], rejected["approval_note"]) == ("rejected", "Say it shorter")
    assert api.post(at(campaign, "send")).expect(422)["reason"] == "approval_required"
    assert writer.post(at(campaign, "ask_approval")).expect(422)["reason"] == "approval_required"
    edited = writer.patch(at(campaign), {"template_attributes": {"subject": "Short"}}).expect(200)
    # The words of the refusal stay until it is asked for again
    assert (edited["approval_state"], edited["approval_note"]) == ("pending_review", "Say it shorter")
    asked = writer.post(at(campaign, "ask_approval")).expect(200)
    assert asked["approval_note"] is None and asked["asked_at"]
    assert asked["id"] in [row["id"] for row in api.get("/campaigns", asked=True).json]
    assert asked["id"] not in [row["id"] for row in api.get("/campaigns", approval_state="approved").json]
    approved = api.post(at(campaign, "approve")).expect(200)
    assert (approved["approval_state"], approved["asked_at"]) == ("approved", None)
    assert asked["id"] not in [row["id"] for row in api.get("/campaigns", asked=True).json]


def test_what_lacks_something_is_not_asked_about(api: Client, writer: Client) -> None:
    """Whoever approves sees what is ready, with all that is missing told to whom asks."""
    campaign = writer.post("/campaigns", {"name": "Empty"}).expect(201)
    found = writer.post(at(campaign, "ask_approval")).expect(422)
    assert {one["code"] for one in found["blockers"]} == {"audience_required", "content_required"}


def test_a_change_takes_the_approval_back(api: Client, writer: Client, crowd: int) -> None:
    """Of content or audience, by whatever way, also of one whose time is to come; a name is no content."""
    campaign = draft(writer, crowd, scheduled_at="2099-01-01T09:00:00Z")
    for change in (
        lambda: writer.patch(at(campaign), {"template_attributes": {"subject": "New"}}),
        lambda: writer.patch(at(campaign), {"trigger_attributes": {"data": {"exclude_contact_list_ids": []}}}),
        lambda: writer.patch(f"/templates/{campaign['template']['id']}", {"subject": "Newer"}),
    ):
        api.post(at(campaign, "approve")).expect(200)
        assert writer.patch(at(campaign), {"name": "Other"}).expect(200)["approval_state"] == "approved"
        assert writer.post(at(campaign, "send")).expect(200)["phase"] == "scheduled"
        change().expect(200)
        now = writer.get(at(campaign)).json
        assert (now["phase"], now["approval_state"]) == ("draft", "pending_review")
    api.post(at(campaign, "approve")).expect(200)
    writer.post(at(campaign, "send")).expect(200)
    # With the send of an armed one, too
    slipped = writer.post(at(campaign, "send"), {"template_attributes": {"subject": "Slipped in"}})
    assert slipped.expect(422)["reason"] == "approval_required"
    assert writer.get(at(campaign)).json["template"]["subject"] == "Newer"
    assert api.post(at(campaign, "reject")).expect(200)["phase"] == "draft"


def test_without_the_switch_nothing_waits(api: Client, server: Server, crowd: int) -> None:
    """Approval is not required by default, and then a send is one; the account says both switches."""
    sender = server.client(server.new_key("sender", "--scope", WRITER))
    assert sender.post(at(draft(sender, crowd), "send")).expect(200)["approval_state"] == "approved"
    assert not api.get("/account").json["approval_required"]
    both = {"approval_required": True, "approval_by_another": True}
    told = api.patch("/account", both).expect(200)
    assert {name: told[name] for name in both} == both
    api.patch("/account", dict.fromkeys(both, False)).expect(200)


def test_a_test_key_approves_of_nothing_real(server: Server, api: Client, crowd: int) -> None:
    """What a test key says of a campaign that goes to people does not count."""
    tests = server.client(server.new_key("tests", "--test"))
    campaign = draft(api, crowd)
    for verb in ("approve", "reject", "ask_approval"):
        assert tests.post(at(campaign, verb)).expect(403)["code"] == "forbidden"


WAYS = ["segment", "of a segment", "mirrored list", "exclusion", "other list", "excluded list"]


@pytest.mark.parametrize("way", WAYS)
def test_other_people_are_another_audience(way: str, api: Client, writer: Client, crowd: int) -> None:
    """Whoever changes the rules of a segment changes whom an approved campaign goes to: it waits for another look."""
    named = [{"name": "contact_first_name", "predicate": "eq", "value": "Ana"}]
    segment = api.post("/segments", {"name": f"By name, {way}", "filters": named}).expect(201)["id"]
    inside = [{"name": "segment_id", "predicate": "eq", "value": segment}]
    trigger: dict[str, Any] = {"segment_id": segment}
    if way == "of a segment":
        trigger = {"segment_id": api.post("/segments", {"name": "Outer", "filters": inside}).expect(201)["id"]}
    view = api.post("/lists", {"name": f"View, {way}", "segment_id": segment}).expect(201)["id"]
    if way == "mirrored list":
        trigger = {"contact_list_id": view}
    if way in ("other list", "excluded list"):
        name = "contact_list_ids" if way == "other list" else "exclude_contact_list_ids"
        trigger = {"contact_list_id": crowd, "data": {name: [view]}}
    if way == "exclusion":
        trigger = {"contact_list_id": crowd, "data": {"exclude_segment_ids": [segment]}}
    later = {"scheduled_at": "2099-01-01T10:00:00Z"}
    api.post("/contacts", {"email": "ana@example.org", "first_name": "Ana", "list_ids": [crowd]})
    campaign = draft(writer, crowd, trigger_attributes=trigger, **later)
    untouched = draft(writer, crowd, **later)
    for one in (campaign, untouched):
        api.post(at(one, "approve")).expect(200)
        assert writer.patch(at(one), {"status": "active"}).expect(200)["phase"] == "scheduled"

    api.patch(f"/segments/{segment}", {"name": "Another name", "filters": named}).expect(200)
    assert api.get(at(campaign)).json["phase"] == "scheduled"
    others = [{"name": "contact_first_name", "predicate": "not_eq", "value": "Ana"}]
    api.patch(f"/segments/{segment}", {"filters": others}).expect(200)
    found = [api.get(at(one)).json for one in (campaign, untouched)]
    assert [(one["phase"], one["approval_state"]) for one in found] == [
        ("draft", "pending_review"), ("scheduled", "approved"),
    ]  # fmt: skip
    assert writer.patch(at(campaign), {"status": "active"}).expect(422)["reason"] == "approval_required"
    for one in found:
        api.delete(at(one)).expect(200)


def test_a_list_that_becomes_a_view_is_another_audience(api: Client, writer: Client) -> None:
    """An approved campaign to a list waits for another look when the list is to show a segment."""
    number = api.post("/lists", {"name": "By hand"}).expect(201)["id"]
    segment = api.post("/segments", {"name": "Everybody", "filters": []}).expect(201)["id"]
    campaign = draft(writer, number)
    api.post(at(campaign, "approve")).expect(200)
    api.patch(f"/lists/{number}", {"name": "By my hand"}).expect(200)
    assert api.get(at(campaign)).json["approval_state"] == "approved"
    api.patch(f"/lists/{number}", {"segment_id": segment}).expect(200)
    assert api.get(at(campaign)).json["approval_state"] == "pending_review"
