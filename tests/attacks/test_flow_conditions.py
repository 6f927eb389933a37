"""One account whose conditions on events cost much must not hold up the flows of another one (T11)."""

import time
from contextlib import closing
from typing import Any

import apsw

from tests.kit.client import Client
from tests.kit.scriptless_browser import ScriptlessBrowser
from tests.kit.server import Server

_MAX_SECONDS = 20  # without a limit it takes more than a minute


def test_costly_conditions_of_one_account_stop_only_its_own_flow(
    server: Server, api: Client, user: ScriptlessBrowser
) -> None:
    """A flow of another account starts within seconds; the owner reads why the costly one is paused."""
    account_id = server.cli("account", "add", "Elsewhere").stdout.strip()
    other = server.client(server.new_key("theirs", "--account", account_id))
    flow_id, victim_id = create_costly_flow(api), create_flow(other, "order")
    contact_ids = [api.post("/contacts", {"email": f"c{index}@example.org"}).expect(201)["id"] for index in range(12)]
    batch = [{"event": "view", "contact_id": number, "data": {"path": "/"}} for number in contact_ids] * 80
    api.post("/events/batch", {"events": batch}).expect(200)
    buyer_id = other.post("/contacts", {"email": "bob@example.org"}).expect(201)["id"]
    started_at = time.monotonic()
    other.post("/events", {"event": "order", "contact_id": buyer_id}).expect(201)
    other.wait(f"/flows/{victim_id}/runs", bool, timeout=60)
    assert time.monotonic() - started_at < _MAX_SECONDS
    flow = api.wait(f"/flows/{flow_id}", lambda row: row["status"] == "paused")
    assert flow["pause_reason"] == "slow_conditions" and flow["paused_at"]
    events = api.get("/events", event="flow_paused").expect(200)
    assert [event["data"] for event in events] == [{"flow_id": flow_id, "reason": "slow_conditions"}]
    assert "Checking its conditions on events took too long" in user.get(f"/flows/{flow_id}")
    assert "Flow paused" in user.get("/activity")
    assert api.post(f"/flows/{flow_id}/activate").expect(200)["pause_reason"] is None
    api.delete(f"/flows/{flow_id}").expect(200)  # The events of the next test would cost it as much again.


def test_a_long_history_of_one_contact_stops_only_its_own_run(
    server: Server, api: Client, user: ScriptlessBrowser
) -> None:
    """A key that may only record events cannot pause a flow; runs of others go on, and pages name the reason."""
    recorder = server.client(server.new_key("recorder", "--scope", "events:write"))
    seen = {"event": "view", "where": [{"name": "event.path", "predicate": "cont", "value": "zzz"}]}
    many = [{"name": "event", "predicate": "performed", "value": seen}] * 24
    filters = [
        {"name": "group", "predicate": "any", "value": many},
        {"name": "group", "predicate": "any", "value": many},
    ]
    split = {"filters": [{"name": "group", "predicate": "any", "value": filters}], "yes": [], "no": [{"type": "exit"}]}
    body = {"name": "Shop", "trigger": {"event": "order"}, "steps": [split], "status": "active"}
    flow_id = api.post("/flows", body).expect(201)["id"]
    costly_id, *others = [
        api.post("/contacts", {"email": f"h{index}@example.org"}).expect(201)["id"] for index in range(4)
    ]
    batch = [{"event": "view", "contact_id": costly_id, "data": {"path": "/"}}] * 1_000
    recorder.post("/events/batch", {"events": batch}).expect(200)
    double_events(server, costly_id, 3)  # to 8,000, as by eight batches
    for contact_id in (costly_id, *others):
        recorder.post("/events", {"event": "order", "contact_id": contact_id}).expect(201)
    runs = api.wait(
        f"/flows/{flow_id}/runs", lambda rows: [row["status"] for row in rows] == ["exited"] * 4, timeout=60
    )
    reasons = {row["contact_id"]: row["exit_reason"] for row in runs}
    assert reasons == {costly_id: "too_costly"} | dict.fromkeys(others, "exit_step")
    assert api.get(f"/flows/{flow_id}").expect(200)["status"] == "active"
    exited = api.get(f"/flows/{flow_id}/report").expect(200)["runs"]["exited"]
    assert ("too_costly", 1) in [(reason["reason"], reason["count"]) for reason in exited["reasons"]]
    reason = "the contact has too many events for the conditions"
    assert reason in user.get(f"/flows/{flow_id}/people?status=exited")
    assert reason in user.get("/activity?event=flow_exit").lower()


def double_events(server: Server, contact_id: int, times: int) -> None:
    """Copy the events of a contact in the database, so that it has twice as many, so many times."""
    with closing(apsw.Connection(str(server.data / "campanero.db"))) as database:
        database.set_busy_timeout(10_000)
        names = ", ".join(row[1] for row in database.execute("PRAGMA table_info(event)") if row[1] != "id")
        for _ in range(times):
            copies = f"INSERT INTO event ({names}) SELECT {names} FROM event WHERE contact_id = ?"
            database.execute(copies, (contact_id,))


def create_flow(client: Client, event: str, **data: Any) -> int:
    """Create an active flow that an event starts, and return its id."""
    body = {"trigger": {"event": event, "data": data}, "steps": [{"type": "exit"}], "status": "active"}
    return int(client.post("/flows", body).expect(201)["id"])


def create_costly_flow(client: Client) -> int:
    """Create a flow that checks for each event `view` 48 times all events `view` of its contact."""
    seen = {"event": "view", "where": [{"name": "event.path", "predicate": "cont", "value": "zzz"}]}
    many = {
        "name": "group", "predicate": "any", "value": [{"name": "event", "predicate": "performed", "value": seen}] * 24
    }  # fmt: skip
    never = {"name": "event.never", "predicate": "eq", "value": 1}
    return create_flow(client, "view", where=[{"name": "group", "predicate": "any", "value": [never, many, many]}])
