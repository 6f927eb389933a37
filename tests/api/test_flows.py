"""Flows over the API: made, listed, changed, moved, approved of, deleted (docs/decisions.md#12)."""

from typing import Any

import pytest

from tests.kit.client import Client

STARTS = {"event": "order_paid"}
LETTER = {"subject": "Thank you", "body": "<p>Thank <a href='https://example.org/x'>you</a></p>"}


def draft(api: Client, *steps: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Make a flow that could go live."""
    return api.post("/flows", {"trigger": STARTS, "steps": list(steps or (LETTER,)), **more}).expect(201)


def at(flow: dict[str, Any], verb: str = "") -> str:
    """Return the path of a flow."""
    return f"/flows/{flow['id']}{'/' + verb if verb else ''}"


def test_a_flow_of_nothing(api: Client) -> None:
    """Nothing is needed to begin: a name, a trigger that nobody meets, no steps."""
    flow = api.post("/flows", {}).expect(201)
    assert (flow["name"], flow["status"], flow["approval_state"]) == ("Untitled flow", "draft", "pending_review")
    assert flow["trigger"] == {"event": "manual", "segment_id": None, "contact_list_id": None, "data": {}}
    assert (flow["steps"], flow["templates"], flow["goal"], flow["sent_count"]) == ([], [], None, 0)
    assert {flow["stats"][name] for name in ("entered", "active", "completed", "exited", "audience")} == {0}
    assert api.get(at(flow)).expect(200) == flow
    found = api.post(at(flow, "activate")).expect(422)
    assert found["validation_errors"] == {
        "steps": ["can't be blank"], "trigger.event": ["names no event that starts it: `manual` is none"],
    }  # fmt: skip
    assert found["reason"] == "content_required"
    assert [one["field"] for one in found["blockers"]] == ["steps", "trigger.event"]


def test_flows_are_found(api: Client) -> None:
    """By status, with its alias, by the event that starts them, by name; newest first; never those of campaigns."""
    api.post("/campaigns", {"name": "Autumn findme"}).expect(201)
    one = draft(api, name="First findme", trigger={"event": "found_one"})
    two = draft(api, name="Second Findme", status="active")
    assert [row["id"] for row in api.get("/flows", search="FINDME").expect(200)] == [two["id"], one["id"]]
    assert [row["id"] for row in api.get("/flows", search="findme", status="live").expect(200)] == [two["id"]]
    assert [row["id"] for row in api.get("/flows", event="found_one").expect(200)] == [one["id"]]
    assert api.get("/flows", status="nothing").expect(422)["validation_errors"] == {
        "status": ["is not included in the list"]
    }
    assert api.get("/flows", search="findme", limit=1).headers["X-Total-Count"] == "2"


def test_a_life(api: Client) -> None:
    """Draft, active, paused, active, archived, draft again; all else is no transition and says what is."""
    flow = draft(api)
    for verb, status in (("activate", "active"), ("pause", "paused"), ("activate", "active"), ("archive", "archived")):
        assert api.post(at(flow, verb)).expect(200)["status"] == status
    refused = api.post(at(flow, "activate")).expect(422)
    assert refused["reason"] == "invalid_transition" and refused["allowed"] == ["draft"]
    assert (refused["from"], refused["to"]) == ("archived", "active")
    again = api.patch(at(flow), {"status": "draft"}).expect(200)
    assert (again["status"], again["paused_at"]) == ("draft", None)
    assert api.patch(at(flow), {"status": "draft"}).status == 200
    assert api.post(at(flow, "pause")).expect(422)["reason"] == "invalid_transition"
    assert api.patch(at(flow), {"status": "live"}).expect(200)["status"] == "active"
    assert api.post(at(flow, "activate")).expect(422)["allowed"] == ["paused", "archived"]


def test_a_version_is_made_when_something_changes(api: Client) -> None:
    """Going live fixes steps and words; a pause changes nothing of them, an edit of a live flow does."""
    flow = draft(api, LETTER, {"duration": 5}, status="active")
    assert (flow["version"], flow["approval_state"]) == (1, "approved")
    api.post(at(flow, "pause")).expect(200)
    assert api.post(at(flow, "activate")).expect(200)["version"] == 1
    assert api.patch(at(flow), {"goal": "order_shipped", "data": {"note": 1}}).expect(200)["version"] == 1
    longer = [flow["steps"][0], {**flow["steps"][1], "duration": 9}]
    assert api.patch(at(flow), {"steps": longer}).expect(200)["version"] == 2
    # Also when its words are edited by themselves
    template = flow["templates"][0]["id"]
    api.patch(f"/templates/{template}", {"subject": "Many thanks"}).expect(200)
    changed = api.get(at(flow)).expect(200)
    assert (changed["version"], changed["steps"][0]["subject"]) == (3, "Many thanks")
    assert changed["updated_at"] > flow["updated_at"] and changed["status"] == "active"


def test_a_live_flow_cannot_be_broken(api: Client) -> None:
    """What could not go live is not put into what is: steps and words stay as they were, and the path says why."""
    flow = draft(api, status="active")
    step = flow["steps"][0]
    found = api.patch(at(flow), {"steps": [{"duration": 5}, {**step, "subject": None}]}).expect(422)
    assert (found["reason"], found["validation_errors"]) == (
        "content_required", {"steps[1].subject": ["write a subject"]},
    )  # fmt: skip
    assert api.patch(at(flow), {"trigger": {"event": "manual"}}).expect(422)["reason"] == "preflight_failed"
    assert api.patch(f"/templates/{step['template_id']}", {"subject": ""}).expect(422)["validation_errors"] == {
        "subject": ["write a subject"]
    }
    assert api.get(at(flow)).expect(200) == flow
    # Paused it may be worked on
    assert api.patch(at(flow), {"status": "paused", "steps": []}).expect(200)["steps"] == []
    assert api.post(at(flow, "activate")).expect(422)["reason"] == "content_required"


def test_what_keeps_a_flow_from_going_live(api: Client) -> None:
    """Everything is told at once, with the field where it can be mended; the first one's code is the reason."""
    news = api.post("/lists", {"name": "Gone soon"}).expect(201)["id"]
    unknown = {"sections": [{"type": "carousel", "props": {}, "styles": {}}], "theme": {}}
    flow = draft(
        api,
        {"type": "list_add", "contact_list_id": news},
        {"type": "email", "preheader": "p"},
        {"filters": [{"name": "contact_list", "predicate": "eq", "value": news}], "yes": [{"type": "sms"}]},
        {"subject": "x", "design": unknown},
        trigger={"event": "segment_enter"},
    )
    api.delete(f"/lists/{news}").expect(200)
    found = api.post(at(flow, "activate")).expect(422)
    assert found["validation_errors"] == {
        "steps[0].contact_list_id": ["must exist"],
        "steps[1].subject": ["write a subject"],
        "steps[1].body": ["write the message"],
        "steps[2].filters[0].value": ["must exist"],
        "steps[2].yes[0].body": ["write the message"],
        "steps[3].design.sections[0]": ["unknown section kind: carousel"],
        "trigger.segment_id": ["can't be blank: people come into a segment or leave it"],
    }
    codes = [one["code"] for one in found["blockers"]]
    assert codes == ["content_required"] * 3 + ["preflight_failed"] * 4 and found["reason"] == codes[0]
    assert api.get(at(flow)).expect(200)["version"] == 0


def test_triggers_are_read_strictly(api: Client) -> None:
    """An unknown key would change who gets mail; absent ones keep, null clears; a segment alone means entering it."""
    segment = api.post("/segments", {"name": "Buyers"}).expect(201)["id"]
    flow = api.post("/flows", {"trigger": {"segment_id": segment}}).expect(201)
    assert (flow["trigger"]["event"], flow["trigger"]["segment_id"]) == ("segment_enter", segment)
    kept = api.patch(at(flow), {"trigger": {"data": {"frequency": "every_time"}}}).expect(200)["trigger"]
    assert kept == {**flow["trigger"], "data": {"frequency": "every_time"}}
    cleared = api.patch(at(flow), {"trigger": None}).expect(200)["trigger"]
    assert cleared == {"event": "manual", "segment_id": None, "contact_list_id": None, "data": {}}
    assert api.patch(at(flow), {"trigger": []}).expect(422)["validation_errors"] == {"trigger": ["is invalid"]}
    other = api.post("/flows", {}).expect(201)
    assert api.patch(at(other), {"trigger": {"segment_id": segment}}).expect(200)["trigger"]["event"] == "segment_enter"
    wrong = {"event": "Nope", "segment_id": 987654321, "data": {"frequency": "never"}, "list_id": 1}
    assert api.patch(at(flow), {"trigger": wrong, "steps": [{}]}).expect(422)["validation_errors"].keys() >= {
        "trigger.event", "trigger.list_id", "steps[0]",
    }  # fmt: skip
    assert api.post("/flows", {"trigger": {"segment_id": 987654321}}).expect(422)["validation_errors"] == {
        "trigger.segment_id": ["must exist"]
    }
    for nonsense in ([], "", 0, False):
        assert api.patch(at(flow), {"trigger": nonsense}).expect(422)["validation_errors"] == {
            "trigger": ["is invalid"]
        }


def test_a_condition_on_what_is_gone_keeps_a_flow_from_going_live(api: Client) -> None:
    """A segment may be deleted while no live flow needs it; who goes live with it later is told where it is missing."""
    segment = api.post("/segments", {"name": "Passing"}).expect(201)["id"]
    where = [{"name": "contact_segment", "predicate": "eq", "value": segment}]
    flow = draft(api, trigger={"event": "order_paid", "data": {"where": where}})
    api.delete(f"/segments/{segment}").expect(200)
    refused = api.post(at(flow, "activate")).expect(422)
    assert (refused["reason"], refused["validation_errors"]) == (
        "preflight_failed", {"trigger.data.where[0].value": ["must exist"]},
    )  # fmt: skip


def test_quiet_hours_are_two_times_of_the_day(api: Client) -> None:
    """What a flow keeps beside its steps is its owner's; its quiet hours have to be readable."""
    flow = draft(api, data={"quiet_hours": {"from": "21:00", "to": "08:00"}, "note": "mine"})
    assert flow["data"]["note"] == "mine"
    for wrong in ("night", {"from": "21:00"}, {"from": "25:00", "to": "08:00"}):
        found = api.patch(at(flow), {"data": {"quiet_hours": wrong}, "trigger": {"x": 1}}).expect(422)
        assert found["validation_errors"]["data.quiet_hours"] == ["is invalid"] and "trigger.x" in str(found)


def test_all_faults_are_told_at_once(api: Client) -> None:
    """What is wrong with a name is told beside what is wrong deep inside of steps, trigger and data."""
    wrong = {"name": " ", "goal": 5, "steps": [{"duration": "x"}], "trigger": {"event": "A"},
             "data": {"quiet_hours": "x"}}  # fmt: skip
    paths = {"name", "goal", "steps[0].duration", "trigger.event", "data.quiet_hours"}
    assert set(api.post("/flows", wrong).expect(422)["validation_errors"]) == paths
    flow = draft(api)
    assert set(api.patch(at(flow), wrong).expect(422)["validation_errors"]) == paths
    assert api.patch("/flows/987654321", wrong).status == 404


def test_a_change_that_was_overtaken(api: Client) -> None:
    """An edit of something older than what is stored is a conflict, if it says what it had before it."""
    flow = draft(api)
    api.patch(at(flow), {"name": "Second", "updated_at": flow["updated_at"]}).expect(200)
    late = api.patch(at(flow), {"name": "Third", "updated_at": flow["updated_at"]}).expect(409)
    assert late["code"] == "conflict" and api.get(at(flow)).json["name"] == "Second"


def test_deletion(api: Client) -> None:
    """A deleted flow is answered as it was, then never was; those inside leave, nobody finds its templates."""
    person = api.post("/contacts", {"email": "inside@example.org"}).expect(201)["id"]
    flow = draft(api, {"duration": 999}, {**LETTER, "subject": "Deleted words"}, trigger={"event": "inside_event"},
                 status="active")  # fmt: skip
    api.post("/events", {"event": "inside_event", "contact_id": person}).expect(201)
    live = api.wait(at(flow), lambda row: row["stats"]["active"] == 1)
    gone = api.delete(at(flow)).expect(200)
    assert (gone["status"], gone["stats"], gone["steps"]) == ("active", live["stats"], flow["steps"])
    for answer in (api.get(at(flow)), api.patch(at(flow), {}), api.delete(at(flow)), api.post(at(flow, "activate"))):
        assert answer.status == 404
    assert api.get("/templates", search="Deleted words").expect(200) == []
    (left,) = api.get("/events", event="flow_exit", contact_id=person).expect(200)
    assert left["data"]["reason"] == "flow_deleted" and left["data"]["flow_id"] == flow["id"]


def test_archiving_asks_what_becomes_of_those_inside(api: Client) -> None:
    """They stay where they are, or leave where that is said."""
    people = [api.post("/contacts", {"email": f"aside{n}@example.org"}).expect(201)["id"] for n in range(2)]
    flow = draft(api, {"duration": 999}, trigger={"event": "aside_event"}, status="active")
    for person in people:
        api.post("/events", {"event": "aside_event", "contact_id": person}).expect(201)
    api.wait(at(flow), lambda row: row["stats"]["active"] == 2)
    assert api.post(at(flow, "archive"), {}).expect(200)["stats"]["active"] == 2
    api.patch(at(flow), {"status": "draft"}).expect(200)
    api.post(at(flow, "archive")).expect(200)
    # From any status, also from where it is
    shut = api.post(at(flow, "archive"), {"take_out": True}).expect(200)
    assert (shut["stats"]["active"], shut["stats"]["exited"]) == (0, 2)


@pytest.mark.parametrize("key", ["welcome", "win_back", "birthday", "after_event"])
def test_flows_to_begin_from(api: Client, key: str) -> None:
    """Each of the four makes a whole draft; all it can lack is the segment that only its owner knows."""
    starter = next(one for one in api.get("/flows/starters").expect(200)["starters"] if one["key"] == key)
    flow = api.post("/flows", {"starter": key}).expect(201)
    assert flow["name"] == starter["name"] and flow["status"] == "draft" and flow["templates"]
    assert flow["trigger"]["event"] == starter["trigger"]["event"]
    own = api.post("/flows", {"starter": key, "name": "Mine", "steps": []}).expect(201)
    assert (own["name"], own["steps"], own["trigger"]) == ("Mine", [], flow["trigger"])
    if key == "win_back":
        segment = api.post("/segments", {"name": "Quiet"}).expect(201)["id"]
        api.patch(at(flow), {"trigger": {"segment_id": segment}}).expect(200)
    assert api.post(at(flow, "activate")).expect(200)["status"] == "active"


def test_an_unknown_starter(api: Client) -> None:
    """It is named as what is wrong."""
    assert api.post("/flows", {"starter": "nothing"}).expect(422)["validation_errors"] == {
        "starter": ["is not included in the list"]
    }


def test_the_spec_names_every_kind(api: Client) -> None:
    """Kinds with their fields, events with their words, limits: what a builder needs."""
    spec = api.get("/flows/spec").expect(200)
    assert [kind["type"] for kind in spec["steps"]] == [
        "email", "sms", "wait", "split", "emit_event", "list_add", "list_remove", "contact_update", "exit",
    ]  # fmt: skip
    assert spec["limits"] == {"steps": 200, "depth": 10, "wait_seconds": 31_622_400}
    assert {"list_add", "order_paid", "date_reached"} <= {one["name"] for one in spec["events"]}
