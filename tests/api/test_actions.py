"""Actions such as pause or retry: errors in the wrong state, and the request bodies that they accept."""

from typing import Any

import pytest

from appliance.api.routes import ROUTES
from tests.kit.client import Client
from tests.kit.openapi_document import OpenApiDocument
from tests.kit.tenants import MISSING_ID, Tenant

# The allowed actions by status; all others are rejected
CAMPAIGN = {"draft": ["send"], "paused": ["send", "resume", "cancel"], "completed": []}
FLOW = {"draft": ["activate", "archive"], "active": ["pause", "archive"], "paused": ["activate", "archive"]}
NOTHING = [route for route in ROUTES if route.method != "GET" and route.body_type is None and route.form_type is None]


def campaign_in(api: Client, status: str) -> int:
    """Create a campaign with a status and return its id; a hold keeps it from being sent."""
    number = int(api.post("/lists", {"name": f"For {status}"}).expect(201)["id"])
    api.post("/contacts", {"email": f"{status}@example.org", "list_ids": [number]})
    campaign_id = api.post("/campaigns", {"name": "x", "trigger_attributes": {"contact_list_id": number},
                                   "template_attributes": {"subject": "x", "body": "x"}}).expect(201)["id"]  # fmt: skip
    if status != "draft":
        api.post(f"/campaigns/{campaign_id}/send", {"hold_seconds": 3600}).expect(200)
        api.post(f"/campaigns/{campaign_id}/{'pause' if status == 'paused' else 'cancel'}").expect(200)
    return int(campaign_id)


@pytest.mark.parametrize("status", CAMPAIGN)
def test_a_rejected_campaign_action_lists_allowed_ones(api: Client, status: str) -> None:
    """The error names the requested action and the allowed ones, and an allowed one succeeds."""
    path = f"/campaigns/{campaign_in(api, status)}"
    for action, needs in (("pause", ["active"]), ("resume", ["paused"]), ("cancel", ["active", "paused"])):
        if action in CAMPAIGN[status]:
            continue
        error = api.post(f"{path}/{action}").expect(422)
        assert (error["reason"], error["from"], error["action"]) == ("invalid_transition", status, action)
        assert error["allowed_actions"] == CAMPAIGN[status]
        assert error["validation_errors"] == {"status": [f"must be {' or '.join(needs)}"]}
        assert "cannot change" not in error["message"]
    # An allowed action succeeds
    if CAMPAIGN[status]:
        api.post(f"{path}/{CAMPAIGN[status][-1]}").expect(200)


def test_the_error_suggests_the_right_action(api: Client) -> None:
    """Resuming a draft suggests to send it, and cancelling a draft suggests to delete it."""
    draft = api.post("/campaigns", {"name": "x"}).expect(201)["id"]
    error = api.post(f"/campaigns/{draft}/resume").expect(422)
    assert error["message"] == "A campaign with the status draft cannot be resumed. Send it instead."
    assert (error["to"], error["allowed"], error["allowed_actions"]) == ("active", ["active"], ["send"])
    error = api.post(f"/campaigns/{draft}/cancel").expect(422)
    assert error["message"] == "A campaign with the status draft cannot be cancelled. Delete it instead."


def test_a_rejected_flow_action_lists_allowed_ones(api: Client) -> None:
    """In every status the other actions are rejected with the list of allowed ones."""
    flow = {"name": "x", "trigger": {"event": "x"}, "steps": [{"duration": 5}]}
    path = f"/flows/{api.post('/flows', flow).expect(201)['id']}"
    for status, move in (("draft", "activate"), ("active", "pause"), ("paused", "archive")):
        for action in {"activate", "pause"} - set(FLOW[status]):
            error = api.post(f"{path}/{action}").expect(422)
            assert (error["from"], error["action"], error["allowed_actions"]) == (status, action, FLOW[status])
            assert error["message"].startswith(f"A flow with the status {status} cannot be ")
        api.post(f"{path}/{move}").expect(200)
    error = api.post(f"{path}/activate").expect(422)
    assert (error["allowed"], error["allowed_actions"]) == (["draft"], [])
    assert error["message"].startswith("A flow with the status archived cannot be activated. Make it a draft first")


def test_a_sent_message_accepts_no_action(mine: Tenant) -> None:
    """A sent message cannot be retried, cancelled or assumed sent."""
    for action, done in (("retry", "sent again"), ("cancel", "cancelled"), ("assume_sent", "counted as sent")):
        error = mine.api.post(f"/messages/{mine.object_ids['messages']}/{action}").expect(422)
        assert error["message"] == f"A message with the status sent cannot be {done}."
        assert (error["reason"], error["action"], error["allowed"]) == ("invalid_transition", action, [])


def test_ended_imports_and_runs_reject_actions(mine: Tenant) -> None:
    """A complete import cannot be cancelled, and an exited run cannot be moved on."""
    error = mine.api.post(f"/imports/{mine.object_ids['imports']}/cancel").expect(422)
    assert error["message"] == "An import with the status complete cannot be cancelled."
    path = f"/flows/{mine.object_ids['flows']}/runs/{mine.object_ids['runs']}"
    mine.api.post(f"{path}/take_out").expect(200)
    error = mine.api.post(f"{path}/move_on").expect(422)
    assert (error["message"], error["action"]) == (
        "A flow run with the status exited cannot be moved to the next step.",
        "move_on",
    )


@pytest.mark.parametrize("route", NOTHING, ids=lambda route: f"{route.method} {route.path}")
def test_actions_without_a_body_reject_invalid_bodies(route: Any, mine: Tenant) -> None:
    """A body that is no JSON object is rejected before the object is looked up."""
    path = "/v1/my" + route.path.replace("{id}", str(MISSING_ID))
    headers = {"Authorization": f"Bearer {mine.api.key}"}
    if route.scope in ("admin", "self"):
        pytest.skip("no key reaches it: it is refused for that")
    typed = headers | {"Content-Type": "application/json"}
    for body, kind, code in ((b"x", typed, "invalid_json"), (b"[]", typed, "invalid_json"),
                             (b"{}", headers | {"Content-Type": "text/plain"}, "unsupported_media_type")):  # fmt: skip
        response = mine.api.request(route.method, path, body, kind)
        assert response.json["code"] == code, response.text


def test_ignored_keys_of_actions_are_reported(api: Client) -> None:
    """An action without a body lists all keys in `X-Ignored-Fields`, whether it succeeds or fails."""
    draft = api.post("/campaigns", {"name": "x"}).expect(201)["id"]
    done = api.post(f"/campaigns/{draft}/approve", {"note": "good", "by": 1})
    assert (done.status, done.headers["X-Ignored-Fields"]) == (200, "note, by")
    assert "X-Ignored-Fields" not in api.post(f"/campaigns/{draft}/approve", {}).headers
    response = api.post(f"/campaigns/{draft}/pause", {"reason": "x"})
    assert (response.status, response.headers["X-Ignored-Fields"]) == (422, "reason")


@pytest.mark.parametrize(
    ("path", "body", "ignored"),
    [
        ("/contacts", {"email": 5, "colour": "red", "channels_attributes": [{"value": 5, "size": 1}]},
         "channels_attributes[0].size, colour"),
        ("/messages", {"channel": "sms", "to": "x", "body": "x", "subject": "x"}, "subject"),
        ("/messages", {"channel": "sms", "to": 5, "body": "x", "subject": "x", "shiny": 1}, "shiny, subject"),
        ("/lists", {"name": "", "zz": 1}, "zz"),
    ],
)  # fmt: skip
def test_errors_also_report_ignored_keys(
    api: Client, path: str, body: dict[str, Any], ignored: str
) -> None:  # fmt: skip
    """A 422 response lists the unknown keys in `X-Ignored-Fields` too."""
    response = api.post(path, body)
    assert (response.status, response.headers["X-Ignored-Fields"]) == (422, ignored)


def test_duplicate_a_campaign_under_a_name(api: Client) -> None:
    """The name is validated; without one it is the name of the campaign with "(copy)"."""
    path = f"/campaigns/{api.post('/campaigns', {'name': 'Spring'}).expect(201)['id']}/duplicate"
    assert api.post(path, {"name": "Summer"}).expect(201)["name"] == "Summer"
    assert api.post(path).expect(201)["name"] == "Spring (copy)"
    assert api.post(path, {}).expect(201)["name"] == "Spring (copy)"
    for name in ("", None, 5, "x" * 256, "a\nb"):
        assert set(api.post(path, {"name": name}).expect(422)["validation_errors"]) == {"name"}, name


@pytest.mark.parametrize(
    ("path", "body"),
    [("/messages", {"to": "ann@example.org", "subject": "x", "body": "x"}),
     ("/events", {"event": "opened_door", "contact_email": "alpha@example.org"})],
)  # fmt: skip
def test_different_idempotency_keys_are_rejected(mine: Tenant, path: str, body: dict[str, Any]) -> None:
    """The key in the body must equal the Idempotency-Key header."""
    key = f"key of {path}"
    error = mine.api.post(path, {**body, "idempotency_key": key}, {"Idempotency-Key": "another"}).expect(422)
    assert error["validation_errors"] == {"idempotency_key": ["must match the Idempotency-Key header"]}
    # Reported together with other errors
    error = mine.api.post(path, {**body, "data": 5, "idempotency_key": key}, {"Idempotency-Key": "another"}).expect(422)
    assert set(error["validation_errors"]) == {"idempotency_key", "data"}
    first = mine.api.post(path, {**body, "idempotency_key": key}, {"Idempotency-Key": key}).expect(201)["id"]
    again = mine.api.post(path, body, {"Idempotency-Key": key})
    assert (again.status, again.json["id"]) == (200, first)


def test_openapi_lists_body_errors_of_actions(mine: Tenant) -> None:
    """For each action without a body the document lists the errors of an invalid body."""
    asked = {f"{route.method} /v1/my{route.path}" for route in NOTHING}
    for operation in OpenApiDocument(mine.api).operations():
        if f"{operation.method} {operation.path}" in asked:
            assert {"400", "413", "415", "422"} <= set(operation.description["responses"]), operation
