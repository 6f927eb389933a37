"""How contacts enter flows, over HTTP against the running service and its clock."""

import http.client
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import apsw

from tests.kit.client import Client
from tests.kit.clock import TestClock
from tests.kit.server import Server
from tests.kit.shared_clock import clock, server

__all__ = ["clock", "server"]
WAIT = [{"duration": 30 * 86_400}]


def create_active_flow(api: Client, trigger: dict[str, Any], **more: Any) -> int:
    """Create an active flow and return its id."""
    body = {"name": "Hello", "trigger": trigger, "steps": WAIT, "status": "active", **more}
    return int(api.post("/flows", body).expect(201)["id"])


def wait_for_entries(api: Client, flow: int, people: int) -> None:
    """Wait until a flow has this number of entries, and check that it has no more."""
    result = api.wait(f"/flows/{flow}", lambda row: row["stats"]["entered"] >= people)
    assert result["stats"]["entered"] == people


def wait_until_processed(api: Client, contact: int) -> None:
    """Wait until all earlier events have been processed, by means of a later event."""
    name = f"marker_{contact}"
    marker = create_active_flow(api, {"event": name})
    api.post("/events", {"event": name, "contact_id": contact}).expect(201)
    wait_for_entries(api, marker, 1)


def create_contact(api: Client, name: str, **more: Any) -> int:
    """Create a contact and return its id."""
    return int(api.post("/contacts", {"email": f"{name}@example.org", **more}).expect(201)["id"])


def test_events_start_flows(api: Client) -> None:
    """An event, a list and a new contact each start a flow once; its counters and events show it."""
    news = api.post("/lists", {"name": "News"}).expect(201)["id"]
    bought = create_active_flow(api, {"event": "order_paid", "data": {"where": [
        {"name": "event.total", "predicate": "gteq", "value": 100}]}})  # fmt: skip
    joined = create_active_flow(api, {"event": "list_add", "contact_list_id": news})
    added = create_active_flow(api, {"event": "contact_add"}, goal="order_paid")
    anna, ben = create_contact(api, "anna", list_ids=[news]), create_contact(api, "ben")
    for total in (99, 100, 101):
        api.post("/events", {"event": "order_paid", "contact_id": anna, "data": {"total": total}}).expect(201)
    wait_until_processed(api, ben)
    wait_for_entries(api, bought, 1)
    wait_for_entries(api, joined, 1)
    wait_for_entries(api, added, 2)
    row = api.get(f"/flows/{bought}").json
    assert (row["triggered_count"], row["last_triggered_at"] is not None) == (1, True)
    events = {name: api.get("/events", event=name, contact_id=anna).json for name in ("flow_enter", "flow_goal")}
    assert {event["data"]["flow_id"] for event in events["flow_enter"]} == {bought, joined, added}
    assert [event["data"]["flow_id"] for event in events["flow_goal"]] == [added]
    assert api.get(f"/flows/{added}").json["stats"]["completed"] == 1


def test_enroll_existing_contacts(api: Client, server: Server) -> None:
    """Contacts are enrolled by hand once each, with the scope to send, and only into an active flow."""
    cleo, dora = create_contact(api, "cleo"), create_contact(api, "dora", first_name="Dora")
    flow = create_active_flow(api, {"event": "list_add"})
    path = f"/flows/{flow}/enroll"
    assert api.post(path, {"contact_ids": [cleo]}).expect(200) == {
        "enrolled": 1, "already_inside": 0, "frequency": 0, "held_out": 0, "control_group": 0,
    }  # fmt: skip
    filters = [{"name": "contact_first_name", "predicate": "eq", "value": "Dora"}]
    some = api.post("/segments", {"name": "Doras", "filters": filters}).expect(201)["id"]
    assert api.post(path, {"segment_id": some}).expect(200)["enrolled"] == 1
    assert api.post(path, {"contact_ids": [cleo, dora, dora]}).expect(200)["already_inside"] == 2
    everybody = api.post("/segments", {"name": "All"}).expect(201)["id"]
    error = api.post(path, {"segment_id": everybody}).expect(422)
    assert (error["reason"], error["blockers"][0]["field"]) == ("confirmation_required", "confirm_send_to_all")
    writer = server.client(server.new_key("writer", "--scope", "flows:write"))
    assert writer.post(path, {"contact_ids": [cleo]}).expect(403)["required_scope"] == "campaigns:send"
    api.post(f"/flows/{flow}/pause").expect(200)
    assert api.post(path, {"contact_ids": [cleo]}).expect(422)["validation_errors"] == {"base": ["is not active"]}
    assert api.delete(f"/segments/{some}").status == 200


def wait_until_watched(server: Server, segment: int) -> None:
    """Wait until the current members of a segment are recorded."""
    end = time.monotonic() + 30
    while (
        not (definition := select_one(server, "SELECT definition FROM segment_watch WHERE segment_id = ?", segment))
        or not definition[0]
    ):
        assert time.monotonic() < end, "the segment is not watched"
        time.sleep(0.05)


def select_one(server: Server, sql: str, *parameters: Any) -> Any:
    """Return the first row of a query on the database of the server."""
    database = apsw.Connection(str(server.data / "campanero.db"), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return next(iter(database.execute(sql, parameters).fetchall()), None)
    finally:
        database.close()


def test_entering_a_segment_starts_a_flow(api: Client, server: Server, clock: TestClock) -> None:
    """A contact that matches after activation enters within a minute; the used segment cannot be deleted."""
    filters = [{"name": "contact_tag", "predicate": "eq", "value": "vip"}]
    vips = api.post("/segments", {"name": "VIPs", "filters": filters}).expect(201)["id"]
    create_contact(api, "early", data={"tags": ["vip"]})
    emil = create_contact(api, "emil")
    flow = create_active_flow(api, {"segment_id": vips})
    assert api.get(f"/flows/{flow}").json["trigger"]["event"] == "segment_enter"
    wait_until_watched(server, vips)
    api.patch(f"/contacts/{emil}", {"data": {"tags": ["vip"]}}).expect(200)
    clock.advance(61)
    wait_for_entries(api, flow, 1)
    assert [row["contact_id"] for row in api.get("/events", event="segment_enter").json] == [emil]
    used = api.delete(f"/segments/{vips}").expect(422)
    assert used["used_by"] == [{"flow_id": flow, "name": "Hello"}]


def test_a_birthday_starts_a_flow_at_its_hour(api: Client, clock: TestClock) -> None:
    """The flow starts on the date at the set hour, for the right contact only."""
    api.patch("/account", {"time_zone": "UTC"}).expect(200)
    tomorrow = datetime.fromtimestamp(clock.now(), UTC).replace(hour=12, minute=0, second=0) + timedelta(days=1)
    flow = create_active_flow(
        api, {"event": "date_reached", "data": {"path": "birthday", "yearly": True, "at": "12:00"}}
    )
    fay = create_contact(api, "fay", data={"birthday": f"1988-{tomorrow:%m-%d}"})
    gus = create_contact(api, "gus", data={"birthday": f"1988-{tomorrow + timedelta(days=1):%m-%d}"})
    wait_until_processed(api, gus)
    clock.advance(tomorrow.timestamp() - clock.now() - 60)
    wait_until_processed(api, fay)
    assert api.get(f"/flows/{flow}").json["stats"]["entered"] == 0
    clock.advance(60)
    wait_for_entries(api, flow, 1)
    assert [row["contact_id"] for row in api.get("/events", event="date_reached").json] == [fay]


def test_a_kill_loses_and_repeats_no_event(api: Client, server: Server) -> None:
    """Each acknowledged event is processed exactly once, whenever the process is killed."""
    flow = create_active_flow(api, {"event": "kept_event"})
    people = [create_contact(api, f"kept{number}") for number in range(5)]
    acknowledged = 0
    for _ in range(2):
        killer = threading.Thread(target=server.kill)
        for number in range(60):
            try:
                response = api.post("/events", {"event": "kept_event", "contact_id": people[number % 5]})
            except (OSError, http.client.HTTPException):
                break
            acknowledged += response.status == 201
            if number == 30:
                killer.start()
        killer.join()
        server.restart()
    wait_until_processed(api, people[0])
    kept = select_one(server, "SELECT count(*), count(DISTINCT event_id) FROM run WHERE flow_id = ?", flow)
    events = select_one(server, "SELECT count(*) FROM event WHERE event = 'kept_event'")
    assert kept == (events[0], events[0]) and events[0] >= acknowledged >= 60
    assert api.get(f"/flows/{flow}").json["stats"]["entered"] == 5
