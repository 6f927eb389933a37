"""Runs of a flow over the API: the report, the runs behind its numbers, and runs moved by hand."""

from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.kit.api_users import user_client
from tests.kit.client import Client
from tests.kit.server import Server

LONG = 31_622_400
STEPS: list[dict[str, Any]] = [
    {"type": "wait", "duration": LONG},
    {
        "filters": [{"name": "contact_tag", "predicate": "eq", "value": "vip"}],
        "yes": [{"subject": "Hello", "body": "<p>Hi</p>"}], "no": [{"duration": LONG}],
    },
]  # fmt: skip


@pytest.fixture
def flow(api: Client) -> int:
    """Return the id of an active flow that contacts enter by hand and in which they wait."""
    body = {"name": "Wait", "trigger": {"event": "tag_add", "data": {"tag": "nobody"}}, "steps": STEPS}
    return api.post("/flows", {**body, "status": "active"}).expect(201)["id"]


def enroll(api: Client, flow: int, *names: str, **fields: Any) -> list[int]:
    """Enroll contacts, wait until they are in the first step, and return their runs in the order of the names."""
    emails = [f"{name}{flow}@example.org" for name in names]
    people = [api.post("/contacts", {"email": email, **fields}).expect(201)["id"] for email in emails]
    api.post(f"/flows/{flow}/enroll", {"contact_ids": people}).expect(200)
    runs = [wait_for_run_in_step(api, flow, 1, person) for person in people]
    return [run["id"] for run in runs]


def wait_for_run_in_step(api: Client, flow: int, step: int, person: int) -> dict[str, Any]:
    """Wait until a contact waits in a step, and return the run."""
    query = {"step": step, "outcome": "waiting", "contact_id": person}
    return api.wait(f"/flows/{flow}/runs", lambda rows: len(rows) == 1, **query)[0]


def report_step(report: dict[str, Any], number: int) -> dict[str, Any]:
    """Return a step of a report."""
    return next(step for step in report["steps"] if step["id"] == number)


def run_ids_behind(api: Client, number: dict[str, Any]) -> list[int]:
    """Return the ids of the runs that a number of a report links to, which must be as many as the number."""
    response = api.get(number["people"])
    assert int(response.headers["X-Total-Count"]) == number["count"], number
    return [row["id"] for row in response.expect(200)]


def test_a_run_through_a_flow(server: Server, api: Client, flow: int) -> None:
    """List, report and history show a run from its waiting step to its end."""
    (run,) = enroll(api, flow, "ada", data={"tags": ["vip"]})
    path = f"/flows/{flow}"
    waiting = report_step(api.get(f"{path}/report").expect(200), 1)
    assert run_ids_behind(api, waiting["waiting_now"]) == [run] and waiting["summary"].startswith("Wait 366 days")
    shown = api.get(f"{path}/runs/{run}").expect(200)
    assert (shown["status"], shown["step_id"], len(shown["history"])) == ("live", 1, 1)
    assert shown["history"][0]["outcome"] is None and shown["due_at"] > "2027"

    api.post(f"{path}/runs/{run}/move_on").expect(200)
    [entry] = user_client(server).get("/audit", subject=f"run:{run}").expect(200)
    assert (entry["action"], entry["actor"], entry["ip"]) == ("flow_run_move_on", "key:1", "127.0.0.1")
    ended = api.wait(f"{path}/runs/{run}", lambda row: row["status"] == "completed")
    assert [(visit["type"], visit["outcome"]) for visit in ended["history"]] == [
        ("wait", "on"), ("split", "yes"), ("email", "on")
    ]  # fmt: skip
    message = ended["history"][2]["message_id"]
    api.wait(f"/messages/{message}", lambda row: row["status"] in ("sent", "delivered"))
    report = api.get(f"{path}/report", range="7d").expect(200)
    split, mail = report_step(report, 2), report_step(report, 3)
    assert (split["yes"]["count"], split["no"]["count"], mail["path"]) == (1, 0, "steps[1].yes[0]")
    assert (
        run_ids_behind(api, mail["messages"]["accepted"]) == run_ids_behind(api, report["runs"]["completed"]) == [run]
    )
    stats = api.get(path).expect(200)["stats"]
    assert (stats["entered"], stats["active"], stats["completed"], stats["exited"]) == (1, 0, 1, 0)
    assert (stats["audience"], stats["accepted"]) == (1, 1)
    assert [row["id"] for row in api.get("/messages", flow_id=flow, test="false").expect(200)] == [message]


def test_report_numbers_link_to_their_runs(api: Client, flow: int) -> None:
    """Each number of the report links to exactly as many runs, in pages."""
    runs = enroll(api, flow, "a", "b", "c")
    api.post(f"/flows/{flow}/runs/{runs[0]}/move_on").expect(200)
    api.post(f"/flows/{flow}/runs/{runs[1]}/take_out").expect(200)
    wait_for_run_in_step(api, flow, 4, api.get(f"/flows/{flow}/runs/{runs[0]}").json["contact_id"])
    report = api.get(f"/flows/{flow}/report").expect(200)
    assert run_ids_behind(api, report_step(report, 1)["entered"]) == runs[::-1]
    assert (
        run_ids_behind(api, report_step(report, 4)["waiting"])
        == [runs[0]]
        == run_ids_behind(api, report_step(report, 2)["no"])
    )
    (reason,) = report_step(report, 1)["left"]["reasons"]
    assert reason["reason"] == "taken_out" and run_ids_behind(api, reason) == [runs[1]]
    assert run_ids_behind(api, report["runs"]["active"]) == [runs[2], runs[0]]
    page = api.get(f"/flows/{flow}/runs", limit=2, page=2)
    assert [row["id"] for row in page.json] == [runs[0]] and page.headers["X-Total-Count"] == "3"
    query = urlsplit(report_step(report, 1)["waiting"]["people"]).query
    assert "step=1" in query and "test=false" in query


def test_move_runs_in_bulk(api: Client, flow: int) -> None:
    """All runs in a step or given runs are moved; those that were not are listed."""
    runs = enroll(api, flow, "d", "e", "f")
    path = f"/flows/{flow}/runs"
    assert api.post(f"{path}/take_out", {"run_ids": [runs[0], 99999]}).expect(200) == {
        "changed": 1, "unchanged": [99999]
    }  # fmt: skip
    assert api.post(f"{path}/take_out", {"run_ids": [runs[0]]}).expect(200) == {"changed": 0, "unchanged": [runs[0]]}
    assert api.post(f"{path}/move_on", {"step": 1}).expect(200) == {"changed": 2, "unchanged": []}
    api.wait(path, lambda rows: len(rows) == 2, step=4, outcome="waiting")
    assert api.post(f"{path}/move_on", {"step": 1}).expect(200)["changed"] == 0
    errors = api.post(f"{path}/move_on", {}).expect(422)["validation_errors"]
    assert errors == {"run_ids": ["can't be blank"]}
    assert api.post(f"{path}/move_on", {"run_ids": [], "step": 1}).status == 422
    assert api.post(f"{path}/move_on", {"run_ids": ["x"]}).expect(422)["validation_errors"].keys() == {"run_ids[0]"}


def test_ended_runs_cannot_be_moved(api: Client, flow: int) -> None:
    """Moving an ended run is an error; runs of another flow are a 404."""
    (run,) = enroll(api, flow, "g")
    path = f"/flows/{flow}/runs/{run}"
    assert api.post(f"{path}/take_out").expect(200)["exit_reason"] == "taken_out"
    for act in ("take_out", "move_on"):
        error = api.post(f"{path}/{act}").expect(422)
        assert (error["reason"], error["from"]) == ("invalid_transition", "exited")
    other = api.post("/flows", {"name": "Other"}).expect(201)["id"]
    for gone in (f"/flows/{other}/runs/{run}", f"/flows/{flow}/runs/99999", f"/flows/99999/runs/{run}"):
        assert api.get(gone).status == api.post(f"{gone}/take_out").status == 404
    assert api.get(f"/flows/{flow}/runs/take_out").status in (404, 405)


def test_invalid_run_filters_are_rejected(api: Client, flow: int) -> None:
    """Invalid, incompatible and unknown parameters are a 422."""
    path = f"/flows/{flow}/runs"
    for query, field in (
        ({"outcome": "waiting"}, "step"), ({"message": "any"}, "step"), ({"step": "x"}, "step"),
        ({"status": "x"}, "status"),
        ({"step": 1, "outcome": "x"}, "outcome"), ({"since": "soon"}, "since"), ({"steps": 1}, "steps"),
        ({"step": 1, "outcome": "on", "message": "any"}, "message"),
    ):  # fmt: skip
        assert list(api.get(path, **query).expect(422)["validation_errors"]) == [field], query
    assert list(api.get(f"/flows/{flow}/report", range="1d").expect(422)["validation_errors"]) == ["range"]
    assert api.get(path, step=10**17, status="live", since="2026-11-01").expect(200) == []


def test_runs_of_a_contact(api: Client, flow: int) -> None:
    """Runs are in the contact's list, timeline and export; deleting the contact ends them."""
    (run,) = enroll(api, flow, "h")
    person = api.get(f"/flows/{flow}/runs/{run}").json["contact_id"]
    path = f"/contacts/{person}"
    (mine,) = api.get(f"{path}/runs", status="live").expect(200)
    assert (mine["id"], mine["flow_id"], mine["flow_name"]) == (run, flow, "Wait")
    (kept,) = api.get(f"{path}/export").expect(200)["flow_runs"]
    assert kept["history"][0]["type"] == "wait"
    events = [row["event"]["event"] for row in api.all(f"{path}/timeline") if row["type"] == "event"]
    assert "flow_enter" in events
    assert api.get("/contacts/99999/runs").status == 404
    api.delete(path).expect(200)
    ended = api.get(f"/flows/{flow}/runs/{run}").expect(200)
    assert (ended["status"], ended["exit_reason"], ended["contact_id"]) == ("exited", "contact_deleted", None)
    assert api.get(f"/flows/{flow}").json["stats"]["exited"] == 1


def test_scopes_of_runs(api: Client, server: Server, flow: int) -> None:
    """Reading runs needs `flows:read`, exports also `contacts:read`, and moving `flows:write`."""
    (run,) = enroll(api, flow, "i")
    export = api.get(f"/flows/{flow}/runs.csv", step=1)
    assert export.text.splitlines()[1].startswith(f'"{run}","') and f'"i{flow}@example.org"' in export.text
    assert api.get(f"/flows/{flow}/runs.csv", outcome="on").expect(422)["validation_errors"].keys() == {"step"}
    assert len(api.get(f"/flows/{flow}/runs.csv", status="exited").text.splitlines()) == 1
    reader = server.client(server.new_key("reader", "--scope", "flows:read"))
    assert reader.get(f"/flows/{flow}/report").status == reader.get(f"/flows/{flow}/runs/{run}").status == 200
    assert reader.post(f"/flows/{flow}/runs/{run}/take_out").expect(403)["required_scope"] == "flows:write"
    assert reader.get(f"/flows/{flow}/runs.csv").expect(403)["required_scope"] == "contacts:read"
    for scopes, status in (("contacts:read", 403), ("contacts:read,flows:read", 200)):
        assert server.client(server.new_key("half", "--scope", scopes)).get(f"/flows/{flow}/runs.csv").status == status
    assert reader.post(f"/flows/{flow}/runs/move_on", {"step": 1}).status == 403


def test_event_data_of_runs_needs_the_events_scope(api: Client, server: Server) -> None:
    """Without `events:read` the event data of a run is empty."""
    body = {"trigger": {"event": "told_us"}, "steps": [{"duration": LONG}], "status": "active"}
    result = api.post("/flows", body).expect(201)["id"]
    person = api.post("/contacts", {"email": "teller@example.org"}).expect(201)["id"]
    api.post("/events", {"event": "told_us", "contact_id": person, "data": {"said": "a secret"}}).expect(201)
    path = f"/flows/{result}/runs/{wait_for_run_in_step(api, result, 1, person)['id']}"
    flows_only = server.client(server.new_key("flows only", "--scope", "flows:read"))
    both = server.client(server.new_key("both", "--scope", "flows:read,events:read"))
    assert flows_only.get(path).expect(200) == {**api.get(path).expect(200), "event_data": {}}
    assert both.get(path).expect(200)["event_data"] == {"said": "a secret"}


def test_a_test_key_moves_only_test_runs(api: Client, server: Server, flow: int) -> None:
    """A test key can read live runs, and cannot move them."""
    (run,) = enroll(api, flow, "j")
    tester = server.client(server.new_key("tester", "--test"))
    path = f"/flows/{flow}/runs"
    assert tester.post(f"{path}/{run}/take_out").expect(403)["code"] == "forbidden"
    assert tester.post(f"{path}/move_on", {"step": 1}).expect(200) == {"changed": 0, "unchanged": []}
    assert tester.post(f"{path}/take_out", {"run_ids": [run]}).expect(200) == {"changed": 0, "unchanged": [run]}
    assert api.get(f"{path}/{run}").json["status"] == "live"


def test_move_a_run_of_a_paused_flow(api: Client, flow: int) -> None:
    """A moved run continues after the flow is activated again; other runs keep waiting."""
    first, second = enroll(api, flow, "k", "l")
    path = f"/flows/{flow}"
    api.post(f"{path}/pause").expect(200)
    due = api.post(f"{path}/runs/{first}/move_on").expect(200)["due_at"]
    assert api.post(f"{path}/runs/{first}/move_on").expect(200)["due_at"] == due
    assert api.get(f"{path}/runs/{first}").json["step_id"] == 1
    api.post(f"{path}/activate").expect(200)
    api.wait(f"{path}/runs/{first}", lambda row: row["step_id"] == 4 and row["status"] == "live")
    assert api.get(f"{path}/runs/{second}").json["step_id"] == 1
