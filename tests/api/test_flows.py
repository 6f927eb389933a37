"""Flows over the API: create, list, change, activate, approve and delete (docs/decisions.md#12)."""

from typing import Any

import pytest

from tests.kit.client import Client

STARTS = {"event": "order_paid"}
STARTERS = (
    "welcome", "onboarding", "lead_magnet", "cart", "browse", "after_event", "review", "replenishment",
    "failed_payment", "birthday", "event_reminder", "win_back", "re_permission", "sunset",
)  # fmt: skip
LETTER = {"subject": "Thank you", "body": "<p>Thank <a href='https://example.org/x'>you</a></p>"}


def create_flow(api: Client, *steps: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Create a flow that can be activated."""
    return api.post("/flows", {"trigger": STARTS, "steps": list(steps or (LETTER,)), **more}).expect(201)


def flow_path(flow: dict[str, Any], verb: str = "") -> str:
    """Return the path of a flow, or of an action on it."""
    return f"/flows/{flow['id']}{'/' + verb if verb else ''}"


def test_create_an_empty_flow(api: Client) -> None:
    """An empty body creates a draft with a default name and a manual trigger, which cannot be activated."""
    flow = api.post("/flows", {}).expect(201)
    assert (flow["name"], flow["status"], flow["approval_state"]) == ("Untitled flow", "draft", "pending_review")
    assert flow["trigger"] == {"event": "manual", "segment_id": None, "contact_list_id": None, "data": {}}
    assert (flow["steps"], flow["templates"], flow["goal"], flow["sent_count"]) == ([], [], None, 0)
    assert {flow["stats"][name] for name in ("entered", "active", "completed", "exited", "audience")} == {0}
    assert api.get(flow_path(flow)).expect(200) == flow
    error = api.post(flow_path(flow, "activate")).expect(422)
    assert error["validation_errors"] == {
        "steps": ["can't be blank"], "trigger.event": ["names no event that starts the flow: `manual` is none"],
    }  # fmt: skip
    assert error["reason"] == "content_required"
    assert [blocker["field"] for blocker in error["blockers"]] == ["steps", "trigger.event"]


def test_filter_the_list_of_flows(api: Client) -> None:
    """Flows are filtered by status, event and name, newest first, without the flows of campaigns."""
    api.post("/campaigns", {"name": "Autumn findme"}).expect(201)
    flow = create_flow(api, name="First findme", trigger={"event": "found_one"})
    two = create_flow(api, name="Second Findme", status="active")
    assert [row["id"] for row in api.get("/flows", search="FINDME").expect(200)] == [two["id"], flow["id"]]
    assert [row["id"] for row in api.get("/flows", search="findme", status="live").expect(200)] == [two["id"]]
    assert [row["id"] for row in api.get("/flows", event="found_one").expect(200)] == [flow["id"]]
    assert api.get("/flows", status="nothing").expect(422)["validation_errors"] == {
        "status": ["is not included in the list"]
    }
    assert api.get("/flows", search="findme", limit=1).headers["X-Total-Count"] == "2"


def test_flow_transitions(api: Client) -> None:
    """Valid transitions change the status; each other is `invalid_transition` with the allowed ones."""
    flow = create_flow(api)
    for verb, status in (("activate", "active"), ("pause", "paused"), ("activate", "active"), ("archive", "archived")):
        assert api.post(flow_path(flow, verb)).expect(200)["status"] == status
    error = api.post(flow_path(flow, "activate")).expect(422)
    assert error["reason"] == "invalid_transition" and error["allowed"] == ["draft"]
    assert (error["from"], error["to"]) == ("archived", "active")
    again = api.patch(flow_path(flow), {"status": "draft"}).expect(200)
    assert (again["status"], again["paused_at"]) == ("draft", None)
    assert api.patch(flow_path(flow), {"status": "draft"}).status == 200
    assert api.post(flow_path(flow, "pause")).expect(422)["reason"] == "invalid_transition"
    assert api.patch(flow_path(flow), {"status": "live"}).expect(200)["status"] == "active"
    assert api.post(flow_path(flow, "activate")).expect(422)["allowed"] == ["paused", "archived"]


def test_versions_of_a_flow(api: Client) -> None:
    """Activation and each change of an active flow's steps or content create a version; a pause does not."""
    flow = create_flow(api, LETTER, {"duration": 5}, status="active")
    assert (flow["version"], flow["approval_state"]) == (1, "approved")
    api.post(flow_path(flow, "pause")).expect(200)
    assert api.post(flow_path(flow, "activate")).expect(200)["version"] == 1
    assert api.patch(flow_path(flow), {"goal": "order_shipped", "data": {"note": 1}}).expect(200)["version"] == 1
    longer = [flow["steps"][0], {**flow["steps"][1], "duration": 9}]
    assert api.patch(flow_path(flow), {"steps": longer}).expect(200)["version"] == 2
    # Also when only a template is edited
    template = flow["templates"][0]["id"]
    api.patch(f"/templates/{template}", {"subject": "Many thanks"}).expect(200)
    changed = api.get(flow_path(flow)).expect(200)
    assert (changed["version"], changed["steps"][0]["subject"]) == (3, "Many thanks")
    assert changed["updated_at"] > flow["updated_at"] and changed["status"] == "active"


def test_invalid_edits_of_an_active_flow_are_rejected(api: Client) -> None:
    """An edit that could not be activated is rejected with its path, and the flow stays unchanged."""
    flow = create_flow(api, status="active")
    step = flow["steps"][0]
    error = api.patch(flow_path(flow), {"steps": [{"duration": 5}, {**step, "subject": None}]}).expect(422)
    assert (error["reason"], error["validation_errors"]) == (
        "content_required", {"steps[1].subject": ["write a subject"]},
    )  # fmt: skip
    assert api.patch(flow_path(flow), {"trigger": {"event": "manual"}}).expect(422)["reason"] == "preflight_failed"
    assert api.patch(f"/templates/{step['template_id']}", {"subject": ""}).expect(422)["validation_errors"] == {
        "subject": ["write a subject"]
    }
    assert api.get(flow_path(flow)).expect(200) == flow
    # A paused flow may be incomplete
    assert api.patch(flow_path(flow), {"status": "paused", "steps": []}).expect(200)["steps"] == []
    assert api.post(flow_path(flow, "activate")).expect(422)["reason"] == "content_required"


def test_blockers_of_an_activation(api: Client) -> None:
    """All blockers are reported at once with their fields, and the first one's code is the reason."""
    news = api.post("/lists", {"name": "Gone soon"}).expect(201)["id"]
    unknown = {"sections": [{"type": "carousel", "props": {}, "styles": {}}], "theme": {}}
    flow = create_flow(
        api,
        {"type": "list_add", "contact_list_id": news},
        {"type": "email", "preheader": "p"},
        {"filters": [{"name": "contact_list", "predicate": "eq", "value": news}], "yes": [{"type": "sms"}]},
        {"subject": "x", "design": unknown},
        trigger={"event": "segment_enter"},
    )
    api.delete(f"/lists/{news}").expect(200)
    error = api.post(flow_path(flow, "activate")).expect(422)
    assert error["validation_errors"] == {
        "steps[0].contact_list_id": ["must exist"],
        "steps[1].subject": ["write a subject"],
        "steps[1].body": ["write the message"],
        "steps[2].filters[0].value": ["must exist"],
        "steps[2].yes[0].body": ["write the message"],
        "steps[3].design.sections[0]": ["unknown section kind: carousel"],
        "trigger.segment_id": ["can't be blank: contacts enter a segment or leave it"],
    }
    codes = [blocker["code"] for blocker in error["blockers"]]
    assert codes == ["content_required"] * 3 + ["preflight_failed"] * 4 and error["reason"] == codes[0]
    assert api.get(flow_path(flow)).expect(200)["version"] == 0


def test_triggers_are_validated(api: Client) -> None:
    """Unknown keys are errors; absent keys stay, null clears; a segment alone means entering it."""
    segment = api.post("/segments", {"name": "Buyers"}).expect(201)["id"]
    flow = api.post("/flows", {"trigger": {"segment_id": segment}}).expect(201)
    assert (flow["trigger"]["event"], flow["trigger"]["segment_id"]) == ("segment_enter", segment)
    kept = api.patch(flow_path(flow), {"trigger": {"data": {"frequency": "every_time"}}}).expect(200)["trigger"]
    assert kept == {**flow["trigger"], "data": {"frequency": "every_time"}}
    cleared = api.patch(flow_path(flow), {"trigger": None}).expect(200)["trigger"]
    assert cleared == {"event": "manual", "segment_id": None, "contact_list_id": None, "data": {}}
    assert api.patch(flow_path(flow), {"trigger": []}).expect(422)["validation_errors"] == {"trigger": ["is invalid"]}
    other = api.post("/flows", {}).expect(201)
    assert (
        api.patch(flow_path(other), {"trigger": {"segment_id": segment}}).expect(200)["trigger"]["event"]
        == "segment_enter"
    )
    wrong = {"event": "Nope", "segment_id": 987654321, "data": {"frequency": "never"}, "list_id": 1}
    assert api.patch(flow_path(flow), {"trigger": wrong, "steps": [{}]}).expect(422)["validation_errors"].keys() >= {
        "trigger.event", "trigger.list_id", "steps[0]",
    }  # fmt: skip
    assert api.post("/flows", {"trigger": {"segment_id": 987654321}}).expect(422)["validation_errors"] == {
        "trigger.segment_id": ["must exist"]
    }
    for nonsense in ([], "", 0, False):
        assert api.patch(flow_path(flow), {"trigger": nonsense}).expect(422)["validation_errors"] == {
            "trigger": ["is invalid"]
        }


def test_a_deleted_segment_blocks_an_activation(api: Client) -> None:
    """A condition on a deleted segment is an error at its path when the flow is activated."""
    segment = api.post("/segments", {"name": "Passing"}).expect(201)["id"]
    where = [{"name": "contact_segment", "predicate": "eq", "value": segment}]
    flow = create_flow(api, trigger={"event": "order_paid", "data": {"where": where}})
    api.delete(f"/segments/{segment}").expect(200)
    error = api.post(flow_path(flow, "activate")).expect(422)
    assert (error["reason"], error["validation_errors"]) == (
        "preflight_failed", {"trigger.data.where[0].value": ["must exist"]},
    )  # fmt: skip


def test_quiet_hours_of_a_flow(api: Client) -> None:
    """Other data of a flow is stored as it is; invalid quiet hours are an error."""
    flow = create_flow(api, data={"quiet_hours": {"from": "21:00", "to": "08:00"}, "note": "mine"})
    assert flow["data"]["note"] == "mine"
    for wrong in ("night", {"from": "21:00"}, {"from": "25:00", "to": "08:00"}):
        error = api.patch(flow_path(flow), {"data": {"quiet_hours": wrong}, "trigger": {"x": 1}}).expect(422)
        assert error["validation_errors"]["data.quiet_hours"] == ["is invalid"] and "trigger.x" in str(error)


def test_all_flow_errors_are_reported_at_once(api: Client) -> None:
    """Errors of name, steps, trigger and data are reported together."""
    wrong = {"name": " ", "goal": 5, "steps": [{"duration": "x"}], "trigger": {"event": "A"},
             "data": {"quiet_hours": "x"}}  # fmt: skip
    paths = {"name", "goal", "steps[0].duration", "trigger.event", "data.quiet_hours"}
    assert set(api.post("/flows", wrong).expect(422)["validation_errors"]) == paths
    flow = create_flow(api)
    assert set(api.patch(flow_path(flow), wrong).expect(422)["validation_errors"]) == paths
    assert api.patch("/flows/987654321", wrong).status == 404


def test_an_edit_of_an_old_flow_is_a_conflict(api: Client) -> None:
    """A PATCH with an old `updated_at` is a conflict."""
    flow = create_flow(api)
    api.patch(flow_path(flow), {"name": "Second", "updated_at": flow["updated_at"]}).expect(200)
    late = api.patch(flow_path(flow), {"name": "Third", "updated_at": flow["updated_at"]}).expect(409)
    assert late["code"] == "conflict" and api.get(flow_path(flow)).json["name"] == "Second"


def test_delete_a_flow(api: Client) -> None:
    """DELETE returns the flow, which is then a 404; its runs end and its templates are hidden."""
    person = api.post("/contacts", {"email": "inside@example.org"}).expect(201)["id"]
    flow = create_flow(
        api, {"duration": 999}, {**LETTER, "subject": "Deleted words"}, trigger={"event": "inside_event"},
        status="active",
    )  # fmt: skip
    api.post("/events", {"event": "inside_event", "contact_id": person}).expect(201)
    live = api.wait(flow_path(flow), lambda row: row["stats"]["active"] == 1)
    gone = api.delete(flow_path(flow)).expect(200)
    assert (gone["status"], gone["stats"], gone["steps"]) == ("active", live["stats"], flow["steps"])
    for response in (
        api.get(flow_path(flow)),
        api.patch(flow_path(flow), {}),
        api.delete(flow_path(flow)),
        api.post(flow_path(flow, "activate")),
    ):
        assert response.status == 404
    assert api.get("/templates", search="Deleted words").expect(200) == []
    (left,) = api.get("/events", event="flow_exit", contact_id=person).expect(200)
    assert left["data"]["reason"] == "flow_deleted" and left["data"]["flow_id"] == flow["id"]


def test_archive_a_flow_with_runs(api: Client) -> None:
    """Runs stay in an archived flow, or end with `take_out`."""
    people = [api.post("/contacts", {"email": f"aside{n}@example.org"}).expect(201)["id"] for n in range(2)]
    flow = create_flow(api, {"duration": 999}, trigger={"event": "aside_event"}, status="active")
    for person in people:
        api.post("/events", {"event": "aside_event", "contact_id": person}).expect(201)
    api.wait(flow_path(flow), lambda row: row["stats"]["active"] == 2)
    assert api.post(flow_path(flow, "archive"), {}).expect(200)["stats"]["active"] == 2
    api.patch(flow_path(flow), {"status": "draft"}).expect(200)
    api.post(flow_path(flow, "archive")).expect(200)
    # An archived flow can be archived again
    shut = api.post(flow_path(flow, "archive"), {"take_out": True}).expect(200)
    assert (shut["stats"]["active"], shut["stats"]["exited"]) == (0, 2)


def test_the_birthday_starter_uses_the_field_of_the_contacts(api: Client) -> None:
    """The date is read from the custom field that the contacts have, whose name may be of another language."""
    api.post("/contacts", {"email": "anna@example.org", "data": {"geburtstag": "1980-05-01"}}).expect(201)
    trigger = api.post("/flows", {"starter": "birthday"}).expect(201)["trigger"]
    assert (trigger["data"]["path"], trigger["data"]["yearly"]) == ("data.geburtstag", True)


@pytest.mark.parametrize("key", STARTERS)
def test_flow_starters(api: Client, key: str) -> None:
    """Each starter creates a complete draft, which at most lacks a segment."""
    starter = next(starter for starter in api.get("/flows/starters").expect(200)["starters"] if starter["key"] == key)
    flow = api.post("/flows", {"starter": key}).expect(201)
    assert flow["name"] == starter["name"] and flow["status"] == "draft" and flow["templates"]
    assert flow["trigger"]["event"] == starter["trigger"]["event"]
    own = api.post("/flows", {"starter": key, "name": "Mine", "steps": []}).expect(201)
    assert (own["name"], own["steps"], own["trigger"]) == ("Mine", [], flow["trigger"])
    assert flow["data"] == starter["data"] and own["data"] == {}
    if key in ("win_back", "sunset", "re_permission"):
        segment = api.post("/segments", {"name": f"Quiet {key}"}).expect(201)["id"]
        api.patch(flow_path(flow), {"trigger": {"segment_id": segment}}).expect(200)
    assert api.post(flow_path(flow, "activate")).expect(200)["status"] == "active"


def test_an_unknown_starter(api: Client) -> None:
    """An unknown starter is an error at `starter`."""
    assert api.post("/flows", {"starter": "nothing"}).expect(422)["validation_errors"] == {
        "starter": ["is not included in the list"]
    }


def test_flow_spec(api: Client) -> None:
    """The specification lists step types, limits and events."""
    spec = api.get("/flows/spec").expect(200)
    assert [kind["type"] for kind in spec["steps"]] == [
        "email", "sms", "wait", "wait_until", "split", "split_value", "random_split", "emit_event", "list_add",
        "list_remove", "tag_add", "tag_remove", "contact_update", "unsubscribe", "notify", "http_request",
        "go_to", "exit",
    ]  # fmt: skip
    assert spec["limits"] == {"steps": 200, "depth": 10, "wait_seconds": 31_622_400}
    assert {"list_add", "order_paid", "date_reached"} <= {event["name"] for event in spec["events"]}


@pytest.mark.parametrize(("step", "key"), [
    ({"type": "wait_until", "until": ["mon"]}, "until"),
    ({"type": "wait_until", "until": {"time": 1}}, "until"),
    ({"type": "tag_add", "tag": "\ud800"}, "tag"),
    ({"type": "wait_until", "until": "event", "event_name": "a\ud800", "timeout": 60}, "event_name"),
    ({"type": "split_value", "field": "data.plan", "branches": [{"values": ["\ud800"], "steps": []}]}, "branches"),
])  # fmt: skip
def test_values_that_cannot_be_stored_are_faults_of_their_keys(api: Client, step: dict[str, Any], key: str) -> None:
    """A lone surrogate and a value of another type are told like any other fault."""
    faults = api.post("/flows", {"trigger": STARTS, "steps": [step]}).expect(422)["validation_errors"]
    assert [path for path in faults if path.startswith(f"steps[0].{key}")] == list(faults)
