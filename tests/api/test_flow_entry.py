"""How people come into flows, over HTTP against the running process and its clock."""

import http.client
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import apsw
import pytest

from tests.kit.client import Client
from tests.kit.clock import TestClock
from tests.kit.server import Server

WAIT = [{"duration": 30 * 86_400}]


@pytest.fixture(scope="module")
def clock(tmp_path_factory: pytest.TempPathFactory) -> TestClock:
    """The clock of the process."""
    path: Path = tmp_path_factory.mktemp("entry") / "clock"
    return TestClock(path)


@pytest.fixture(scope="module")
def server(clock: TestClock) -> Iterator[Server]:
    """A server whose clock can be moved."""
    with Server(clock=clock).set_up() as running:
        yield running
        running.stop()


def live(api: Client, trigger: dict[str, Any], **more: Any) -> int:
    """Make a flow that is live, and return its id."""
    body = {"name": "Hello", "trigger": trigger, "steps": WAIT, "status": "active", **more}
    return int(api.post("/flows", body).expect(201)["id"])


def entered(api: Client, flow: int, people: int) -> None:
    """Wait until so many people are in a flow, and see that they are not more."""
    found = api.wait(f"/flows/{flow}", lambda row: row["stats"]["entered"] >= people)
    assert found["stats"]["entered"] == people


def settled(api: Client, contact: int) -> None:
    """Wait until everything that happened so far was looked at: an event behind it has had its effect."""
    name = f"marker_{contact}"
    marker = live(api, {"event": name})
    api.post("/events", {"event": name, "contact_id": contact}).expect(201)
    entered(api, marker, 1)


def person(api: Client, name: str, **more: Any) -> int:
    """Make somebody, and return their id."""
    return int(api.post("/contacts", {"email": f"{name}@example.org", **more}).expect(201)["id"])


def test_what_happens_starts_a_flow_and_is_counted(api: Client) -> None:
    """An event, a list and a new contact each bring people in, once; the flow says how many and when."""
    news = api.post("/lists", {"name": "News"}).expect(201)["id"]
    bought = live(api, {"event": "order_paid", "data": {"where": [
        {"name": "event.total", "predicate": "gteq", "value": 100}]}})  # fmt: skip
    joined = live(api, {"event": "list_add", "contact_list_id": news})
    added = live(api, {"event": "contact_add"}, goal="order_paid")
    anna, ben = person(api, "anna", list_ids=[news]), person(api, "ben")
    for total in (99, 100, 101):
        api.post("/events", {"event": "order_paid", "contact_id": anna, "data": {"total": total}}).expect(201)
    settled(api, ben)
    entered(api, bought, 1)
    entered(api, joined, 1)
    entered(api, added, 2)
    row = api.get(f"/flows/{bought}").json
    assert (row["triggered_count"], row["last_triggered_at"] is not None) == (1, True)
    told = {name: api.get("/events", event=name, contact_id=anna).json for name in ("flow_enter", "flow_goal")}
    assert {one["data"]["flow_id"] for one in told["flow_enter"]} == {bought, joined, added}
    assert [one["data"]["flow_id"] for one in told["flow_goal"]] == [added]
    assert api.get(f"/flows/{added}").json["stats"]["completed"] == 1


def test_people_from_before_are_enrolled(api: Client, server: Server) -> None:
    """Only by hand, by whoever may send; once each, and not into what stands still."""
    cleo, dora = person(api, "cleo"), person(api, "dora", first_name="Dora")
    flow = live(api, {"event": "list_add"})
    path = f"/flows/{flow}/enroll"
    assert api.post(path, {"contact_ids": [cleo]}).expect(200) == {"enrolled": 1, "already_inside": 0, "frequency": 0}
    filters = [{"name": "contact_first_name", "predicate": "eq", "value": "Dora"}]
    some = api.post("/segments", {"name": "Doras", "filters": filters}).expect(201)["id"]
    assert api.post(path, {"segment_id": some}).expect(200)["enrolled"] == 1
    assert api.post(path, {"contact_ids": [cleo, dora, dora]}).expect(200)["already_inside"] == 2
    everybody = api.post("/segments", {"name": "All"}).expect(201)["id"]
    refused = api.post(path, {"segment_id": everybody}).expect(422)
    assert (refused["reason"], refused["blockers"][0]["field"]) == ("confirmation_required", "confirm_send_to_all")
    writer = server.client(server.new_key("writer", "--scope", "flows:write"))
    assert writer.post(path, {"contact_ids": [cleo]}).expect(403)["required_scope"] == "campaigns:send"
    api.post(f"/flows/{flow}/pause").expect(200)
    assert api.post(path, {"contact_ids": [cleo]}).expect(422)["validation_errors"] == {"base": ["is not active"]}
    assert api.delete(f"/segments/{some}").status == 200


def watched(server: Server, segment: int) -> None:
    """Wait until those who are in a segment already are known, which nobody is told."""
    end = time.monotonic() + 30
    while (
        not (found := stored(server, "SELECT definition FROM segment_watch WHERE segment_id = ?", segment))
        or not found[0]
    ):
        assert time.monotonic() < end, "the segment is not watched"
        time.sleep(0.05)


def stored(server: Server, sql: str, *parameters: Any) -> Any:
    """Return the first row that a statement finds beside the running process."""
    database = apsw.Connection(str(server.data / "campanero.db"), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return next(iter(database.execute(sql, parameters).fetchall()), None)
    finally:
        database.close()


def test_a_segment_is_entered_within_a_minute(api: Client, server: Server, clock: TestClock) -> None:
    """Who comes into a segment after the flow went live enters; the segment cannot be deleted meanwhile."""
    filters = [{"name": "contact_tag", "predicate": "eq", "value": "vip"}]
    vips = api.post("/segments", {"name": "VIPs", "filters": filters}).expect(201)["id"]
    person(api, "early", data={"tags": ["vip"]})
    emil = person(api, "emil")
    flow = live(api, {"segment_id": vips})
    assert api.get(f"/flows/{flow}").json["trigger"]["event"] == "segment_enter"
    watched(server, vips)
    api.patch(f"/contacts/{emil}", {"data": {"tags": ["vip"]}}).expect(200)
    clock.advance(61)
    entered(api, flow, 1)
    assert [one["contact_id"] for one in api.get("/events", event="segment_enter").json] == [emil]
    used = api.delete(f"/segments/{vips}").expect(422)
    assert used["used_by"] == [{"flow_id": flow, "name": "Hello"}]


def test_a_birthday_comes_at_its_hour(api: Client, clock: TestClock) -> None:
    """The process tells of the date by itself once the hour has come, and of nobody else."""
    api.patch("/account", {"time_zone": "UTC"}).expect(200)
    tomorrow = datetime.fromtimestamp(clock.now(), UTC).replace(hour=12, minute=0, second=0) + timedelta(days=1)
    flow = live(api, {"event": "date_reached", "data": {"path": "birthday", "yearly": True, "at": "12:00"}})
    fay = person(api, "fay", data={"birthday": f"1988-{tomorrow:%m-%d}"})
    gus = person(api, "gus", data={"birthday": f"1988-{tomorrow + timedelta(days=1):%m-%d}"})
    settled(api, gus)
    clock.advance(tomorrow.timestamp() - clock.now() - 60)
    settled(api, fay)
    assert api.get(f"/flows/{flow}").json["stats"]["entered"] == 0
    clock.advance(60)
    entered(api, flow, 1)
    assert [one["contact_id"] for one in api.get("/events", event="date_reached").json] == [fay]


def test_a_kill_loses_no_event_and_counts_none_twice(api: Client, server: Server) -> None:
    """Each event that was answered has started a run or was ignored exactly once, wherever the process was killed."""
    flow = live(api, {"event": "kept_event"})
    people = [person(api, f"kept{number}") for number in range(5)]
    acknowledged = 0
    for _ in range(2):
        killer = threading.Thread(target=server.kill)
        for number in range(60):
            try:
                answer = api.post("/events", {"event": "kept_event", "contact_id": people[number % 5]})
            except (OSError, http.client.HTTPException):
                break
            acknowledged += answer.status == 201
            if number == 30:
                killer.start()
        killer.join()
        server.restart()
    settled(api, people[0])
    kept = stored(server, "SELECT count(*), count(DISTINCT event_id) FROM run WHERE flow_id = ?", flow)
    events = stored(server, "SELECT count(*) FROM event WHERE event = 'kept_event'")
    assert kept == (events[0], events[0]) and events[0] >= acknowledged >= 60
    assert api.get(f"/flows/{flow}").json["stats"]["entered"] == 5
