"""Replays over the API: start, progress, result, file, cancellation and permissions; nothing is written or sent."""

import time
from typing import Any

import apsw
import pytest

from tests.conftest import FreshServer
from tests.kit.client import Client
from tests.kit.server import Server

MAIL = {"subject": "Your cart", "body": "<p>x</p>"}
STEPS = [{"duration": 3_600}, MAIL, {"type": "random_split", "branches": [
    {"share": 50, "steps": [{"subject": "A", "body": "<p>x</p>"}]}, {"share": 50, "steps": []},
]}]  # fmt: skip
COUNTED = ("/events", "/messages", "/contacts")


def write_past(api: Client, name: str, contacts: int, order_days: int = 8) -> None:
    """Record a cart of each of so many contacts nine days ago, and later orders of every second one."""
    now = time.time()
    for number in range(contacts):
        contact = {"email": f"{name}{number}@example.org", "first_name": "=Ann", "opt_in": True}
        contact_id = api.post("/contacts", contact).expect(201)["id"]
        for event, days in ((name, 9), *((("paid", order_days),) if number % 2 else ())):
            at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now - days * 86_400 - number * 60))
            body = {"event": event, "contact_id": contact_id, "created_at": at, "amount": 40.0}
            api.post("/events", body).expect(201)


def create_flow(api: Client, name: str, **body: Any) -> int:
    """Create a flow that the event of this name starts."""
    flow = {"name": name, "trigger": {"event": name}, "steps": STEPS, **body}
    return int(api.post("/flows", flow).expect(201)["id"])


def wait_for_replay(api: Client, flow_id: int) -> Any:
    """Wait until the replay of a flow has ended and return it."""
    return api.wait(f"/flows/{flow_id}/replay", lambda row: row["state"] not in ("waiting", "running"), 120)


def test_a_replay_compares_steps_with_the_live_version(api: Client) -> None:
    """The result counts messages, people and orders of both; the file has each contact; nothing else changes."""
    write_past(api, "filled", 4)
    flow_id = create_flow(api, "filled", status="active")
    assert api.get(f"/flows/{flow_id}/replay").expect(200)["state"] == "none"
    counts = {path: api.get(path).headers["X-Total-Count"] for path in COUNTED}
    steps = [*api.get(f"/flows/{flow_id}").expect(200)["steps"][:2], MAIL]
    started = api.post(f"/flows/{flow_id}/replay", {"days": 30, "steps": steps, "sms_price": 0.05})
    assert started.expect(202)["state"] == "waiting"
    replay = wait_for_replay(api, flow_id)
    result = replay["result"]
    assert (replay["state"], replay["progress"], replay["error"]) == ("complete", 1.0, None)
    assert (result["matching"], result["replayed"], result["is_changed"]) == (4, 4, True)
    assert (result["draft"]["entered"], result["draft"]["emails"], result["draft"]["people"]) == (4, 8, 4)
    assert result["live"]["entered"] == 4 and 4 <= result["live"]["emails"] <= 8
    assert (result["orders"]["orders"], result["orders"]["amount"]) == (2, 80.0)
    assert (result["orders_gained"]["orders"], result["orders_lost"]["orders"]) == (0, 0)
    assert {warning["code"] for warning in result["warnings"]} >= {"imported", "event_late"}
    assert [(step["type"], step["draft"] is None, step["live"] is None) for step in result["steps"]][:3] == [
        ("wait", False, False), ("email", False, False), ("email", False, True),
    ]  # fmt: skip
    assert {path: api.get(path).headers["X-Total-Count"] for path in COUNTED} == counts
    assert api.get(f"/flows/{flow_id}").expect(200)["stats"]["entered"] == 0
    lines = api.get(f"/flows/{flow_id}/replay.csv").text.splitlines()
    assert lines[0].split(",")[0] == '"contact_id"' and len(lines) >= 9
    assert all('"\'=Ann"' in line for line in lines[1:])


def test_orders_count_within_the_attribution_window(api: Client) -> None:
    """An order nearly four days after a message counts if the account's window has four days, and not if it has three.

    A result that is there stays as it was counted.
    """
    write_past(api, "windowed", 4, order_days=5)
    flow_id = create_flow(api, "windowed", steps=[{"duration": 3_600}, MAIL])
    try:
        for days, order_count in ((3, 0), (4, 2)):
            api.patch("/account", {"attribution_days": days}).expect(200)
            api.post(f"/flows/{flow_id}/replay", {"days": 30}).expect(202)
            result = wait_for_replay(api, flow_id)["result"]
            assert (result["order_days"], result["orders"]["orders"]) == (days, order_count)
    finally:
        api.patch("/account", {"attribution_days": 7}).expect(200)
    assert wait_for_replay(api, flow_id)["result"]["order_days"] == 4


def test_the_same_seed_and_events_give_the_same_result(api: Client) -> None:
    """Two replays with one seed are equal to the last byte; with another seed the split is drawn again."""
    write_past(api, "seeded", 12)
    flow_id = create_flow(api, "seeded")
    until = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    results, files = [], []
    for seed in (5, 5, 6):
        api.post(f"/flows/{flow_id}/replay", {"seed": seed, "until": until}).expect(202)
        results.append(wait_for_replay(api, flow_id)["result"])
        files.append(api.get(f"/flows/{flow_id}/replay.csv").body)
    assert results[0] == results[1] and files[0] == files[1]
    assert files[0] != files[2]


def test_a_running_replay_refuses_another_and_can_be_cancelled(api: Client) -> None:
    """The second start is a conflict; after the cancellation a new one may start."""
    flow_id = create_flow(api, "cancelled")
    api.post(f"/flows/{flow_id}/replay").expect(202)
    assert api.post(f"/flows/{flow_id}/replay").expect(409)["code"] == "conflict"
    assert api.delete(f"/flows/{flow_id}/replay").expect(200)["state"] == "cancelled"
    assert api.get(f"/flows/{flow_id}/replay.csv").body.count(b"\n") == 1
    api.post(f"/flows/{flow_id}/replay").expect(202)
    assert wait_for_replay(api, flow_id)["state"] == "complete"
    assert api.delete(f"/flows/{flow_id}/replay").expect(200)["state"] == "complete"


def test_a_flow_without_a_trigger_or_steps_is_refused(api: Client) -> None:
    """All errors come at once, and nothing is started."""
    flow_id = api.post("/flows", {"name": "Empty"}).expect(201)["id"]
    error = api.post(f"/flows/{flow_id}/replay", {"days": 91, "until": "2040-01-01T00:00:00Z"}).expect(422)
    assert error["validation_errors"].keys() == {"days", "until"}
    error = api.post(f"/flows/{flow_id}/replay").expect(422)
    assert error["validation_errors"].keys() == {"trigger.event", "steps"}
    assert api.get(f"/flows/{flow_id}/replay").expect(200)["state"] == "none"


@pytest.mark.parametrize("missing", ["contacts:read", "events:read", "flows:write"])
def test_a_replay_needs_the_scopes_of_what_it_shows(server: Server, api: Client, missing: str) -> None:
    """A key that may not read contacts or events gets neither result nor file."""
    flow_id = create_flow(api, "scoped")
    scopes = {"flows:read", "flows:write", "contacts:read", "events:read"} - {missing}
    other = server.client(server.new_key(missing, "--scope", ",".join(sorted(scopes))))
    assert other.post(f"/flows/{flow_id}/replay").expect(403)["required_scope"] == missing
    if missing != "flows:write":
        other.get(f"/flows/{flow_id}/replay").expect(403)
        other.get(f"/flows/{flow_id}/replay.csv").expect(403)


def test_a_replay_begins_again_after_a_kill(fresh_server: FreshServer) -> None:
    """A kill amid a replay leaves nothing half: the next start runs it from its beginning."""
    server = fresh_server()
    api = server.client(validate=False)
    write_past(api, "killed", 3)
    flow_id = create_flow(api, "killed")
    api.post(f"/flows/{flow_id}/replay").expect(202)
    api.wait(f"/flows/{flow_id}/replay", lambda row: row["state"] == "running", 30)
    server.kill()
    server.start()
    replay = wait_for_replay(server.client(validate=False), flow_id)
    assert (replay["state"], replay["result"]["draft"]["entered"]) == ("complete", 3)


def test_a_result_has_no_secrets(api: Client) -> None:
    """The steps of a result have neither secrets nor what they were encrypted to."""
    step = {"type": "http_request", "url": "https://shop.example/x", "secret_headers": {"Authorization": "hush-hush"},
            "signed": True, "signing_secret": "whsec_c2VjcmV0IHNlY3JldA=="}  # fmt: skip
    slack = {"type": "notify", "via": "slack", "slack_url": "https://hooks.slack.com/services/T0/B0/hush"}
    flow_id = create_flow(api, "sealed", steps=[step, slack])
    api.post(f"/flows/{flow_id}/replay").expect(202)
    replay = wait_for_replay(api, flow_id)
    assert replay["state"] == "complete"
    for shown in replay["result"]["steps"]:
        assert shown["props"].keys().isdisjoint(("secret_headers", "signing_secret", "slack_url")), shown


def test_the_replay_of_a_deleted_flow_ends(fresh_server: FreshServer) -> None:
    """It is not begun again and again, and another one is run.

    The replays of this test are programs, not forked, and so is the rehearsal of a preflight.
    """
    server = fresh_server(cold=True)
    api = server.client()
    write_past(api, "gone", 2)
    campaign = api.post("/campaigns", {
        "name": "All", "trigger_attributes": {"segment_id": api.post("/segments", {"name": "All"}).json["id"]},
        "template_attributes": {"subject": "Hi", "body": "<p>{{ contact.first_name }}</p>"},
    }).expect(201)  # fmt: skip
    deleted, other = create_flow(api, "gone"), create_flow(api, "stays")
    api.post(f"/flows/{deleted}/replay").expect(202)
    api.delete(f"/flows/{deleted}").expect(200)
    api.post(f"/flows/{other}/replay").expect(202)
    assert wait_for_replay(api, other)["state"] == "complete"
    preflight = f"/campaigns/{campaign['id']}/preflight"
    rehearsal = api.wait(preflight, lambda row: row["facts"]["rehearsal"]["status"] in ("complete", "failed"))["facts"]
    assert (rehearsal["rehearsal"]["status"], rehearsal["rehearsal"]["done"]) == ("complete", 2)
    database = apsw.Connection(str(server.data / "campanero.db"))
    assert "running" not in (states := [row[0] for row in database.execute("SELECT state FROM flow_replay")]), states
    assert "waiting" not in states
    database.close()
