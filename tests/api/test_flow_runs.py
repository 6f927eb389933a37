"""Who is inside a flow, over the API: the report, the people behind its numbers, and those who are moved by hand."""

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
    """A live flow that people are let into by hand, and wait in."""
    body = {"name": "Wait", "trigger": {"event": "tag_add", "data": {"tag": "nobody"}}, "steps": STEPS}
    return api.post("/flows", {**body, "status": "active"}).expect(201)["id"]


def enter(api: Client, flow: int, *names: str, **fields: Any) -> list[int]:
    """Let people in, wait until they stand in the first step, and answer their runs in the order of their names."""
    emails = [f"{name}{flow}@example.org" for name in names]
    people = [api.post("/contacts", {"email": email, **fields}).expect(201)["id"] for email in emails]
    api.post(f"/flows/{flow}/enroll", {"contact_ids": people}).expect(200)
    runs = [standing(api, flow, 1, person) for person in people]
    return [run["id"] for run in runs]


def standing(api: Client, flow: int, step: int, person: int) -> dict[str, Any]:
    """Wait until somebody stands in a step, and answer their run."""
    query = {"step": step, "outcome": "waiting", "contact_id": person}
    return api.wait(f"/flows/{flow}/runs", lambda rows: len(rows) == 1, **query)[0]


def step(report: dict[str, Any], number: int) -> dict[str, Any]:
    """Return a step of a report."""
    return next(one for one in report["steps"] if one["id"] == number)


def lists(api: Client, number: dict[str, Any]) -> list[int]:
    """Follow a number to its people, and answer their runs; it counts as many."""
    answer = api.get(number["people"])
    assert int(answer.headers["X-Total-Count"]) == number["count"], number
    return [row["id"] for row in answer.expect(200)]


def test_a_person_is_followed_through_a_flow(server: Server, api: Client, flow: int) -> None:
    """In the list, in the report and in their own history, from the step they wait in to the end, moved by hand."""
    (run,) = enter(api, flow, "ada", data={"tags": ["vip"]})
    path = f"/flows/{flow}"
    waiting = step(api.get(f"{path}/report").expect(200), 1)
    assert lists(api, waiting["waiting_now"]) == [run] and waiting["summary"].startswith("Wait 366 days")
    shown = api.get(f"{path}/runs/{run}").expect(200)
    assert (shown["status"], shown["step_id"], len(shown["history"])) == ("live", 1, 1)
    assert shown["history"][0]["outcome"] is None and shown["due_at"] > "2027"

    api.post(f"{path}/runs/{run}/move_on").expect(200)
    [told] = user_client(server).get("/audit", subject=f"run:{run}").expect(200)
    assert (told["action"], told["actor"], told["ip"]) == ("flow_run_move_on", "key:1", "127.0.0.1")
    ended = api.wait(f"{path}/runs/{run}", lambda row: row["status"] == "completed")
    assert [(one["type"], one["outcome"]) for one in ended["history"]] == [
        ("wait", "on"), ("split", "yes"), ("email", "on")
    ]  # fmt: skip
    message = ended["history"][2]["message_id"]
    api.wait(f"/messages/{message}", lambda row: row["status"] in ("sent", "delivered"))
    report = api.get(f"{path}/report", range="7d").expect(200)
    split, mail = step(report, 2), step(report, 3)
    assert (split["yes"]["count"], split["no"]["count"], mail["path"]) == (1, 0, "steps[1].yes[0]")
    assert lists(api, mail["messages"]["accepted"]) == lists(api, report["runs"]["completed"]) == [run]
    stats = api.get(path).expect(200)["stats"]
    assert (stats["entered"], stats["active"], stats["completed"], stats["exited"]) == (1, 0, 1, 0)
    assert (stats["audience"], stats["accepted"]) == (1, 1)
    assert [row["id"] for row in api.get("/messages", flow_id=flow, test="false").expect(200)] == [message]


def test_each_number_leads_to_its_people(api: Client, flow: int) -> None:
    """Whichever it is, the list has as many as it says, and pages as every list."""
    runs = enter(api, flow, "a", "b", "c")
    api.post(f"/flows/{flow}/runs/{runs[0]}/move_on").expect(200)
    api.post(f"/flows/{flow}/runs/{runs[1]}/take_out").expect(200)
    standing(api, flow, 4, api.get(f"/flows/{flow}/runs/{runs[0]}").json["contact_id"])
    report = api.get(f"/flows/{flow}/report").expect(200)
    assert lists(api, step(report, 1)["entered"]) == runs[::-1]
    assert lists(api, step(report, 4)["waiting"]) == [runs[0]] == lists(api, step(report, 2)["no"])
    (reason,) = step(report, 1)["left"]["reasons"]
    assert reason["reason"] == "taken_out" and lists(api, reason) == [runs[1]]
    assert lists(api, report["runs"]["active"]) == [runs[2], runs[0]]
    page = api.get(f"/flows/{flow}/runs", limit=2, page=2)
    assert [row["id"] for row in page.json] == [runs[0]] and page.headers["X-Total-Count"] == "3"
    query = urlsplit(step(report, 1)["waiting"]["people"]).query
    assert "step=1" in query and "test=false" in query


def test_many_are_moved_at_once(api: Client, flow: int) -> None:
    """All who wait in a step, or those named; who is not there any more is named."""
    runs = enter(api, flow, "d", "e", "f")
    path = f"/flows/{flow}/runs"
    assert api.post(f"{path}/take_out", {"run_ids": [runs[0], 99999]}).expect(200) == {
        "changed": 1, "unchanged": [99999]
    }  # fmt: skip
    assert api.post(f"{path}/take_out", {"run_ids": [runs[0]]}).expect(200) == {"changed": 0, "unchanged": [runs[0]]}
    assert api.post(f"{path}/move_on", {"step": 1}).expect(200) == {"changed": 2, "unchanged": []}
    api.wait(path, lambda rows: len(rows) == 2, step=4, outcome="waiting")
    assert api.post(f"{path}/move_on", {"step": 1}).expect(200)["changed"] == 0
    faults = api.post(f"{path}/move_on", {}).expect(422)["validation_errors"]
    assert faults == {"run_ids": ["can't be blank"]}
    assert api.post(f"{path}/move_on", {"run_ids": [], "step": 1}).status == 422
    assert api.post(f"{path}/move_on", {"run_ids": ["x"]}).expect(422)["validation_errors"].keys() == {"run_ids[0]"}


def test_who_has_left_is_not_moved(api: Client, flow: int) -> None:
    """An ended run says what it is; a run of another flow, or none, was never here."""
    (run,) = enter(api, flow, "g")
    path = f"/flows/{flow}/runs/{run}"
    assert api.post(f"{path}/take_out").expect(200)["exit_reason"] == "taken_out"
    for act in ("take_out", "move_on"):
        refused = api.post(f"{path}/{act}").expect(422)
        assert (refused["reason"], refused["from"]) == ("invalid_transition", "exited")
    other = api.post("/flows", {"name": "Other"}).expect(201)["id"]
    for gone in (f"/flows/{other}/runs/{run}", f"/flows/{flow}/runs/99999", f"/flows/99999/runs/{run}"):
        assert api.get(gone).status == api.post(f"{gone}/take_out").status == 404
    assert api.get(f"/flows/{flow}/runs/take_out").status in (404, 405)


def test_what_is_asked_wrongly_is_422(api: Client, flow: int) -> None:
    """Filters that do not go together, words that are none, and keys that nobody knows."""
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


def test_a_person_knows_their_flows(api: Client, flow: int) -> None:
    """The flows that a contact is in and was in, in their own list, timeline and export; deleted, they leave."""
    (run,) = enter(api, flow, "h")
    person = api.get(f"/flows/{flow}/runs/{run}").json["contact_id"]
    path = f"/contacts/{person}"
    (mine,) = api.get(f"{path}/runs", status="live").expect(200)
    assert (mine["id"], mine["flow_id"], mine["flow_name"]) == (run, flow, "Wait")
    (kept,) = api.get(f"{path}/export").expect(200)["flow_runs"]
    assert kept["history"][0]["type"] == "wait"
    told = [row["event"]["event"] for row in api.all(f"{path}/timeline") if row["type"] == "event"]
    assert "flow_enter" in told
    assert api.get("/contacts/99999/runs").status == 404
    api.delete(path).expect(200)
    ended = api.get(f"/flows/{flow}/runs/{run}").expect(200)
    assert (ended["status"], ended["exit_reason"], ended["contact_id"]) == ("exited", "contact_deleted", None)
    assert api.get(f"/flows/{flow}").json["stats"]["exited"] == 1


def test_a_key_that_only_reads_moves_nobody(api: Client, server: Server, flow: int) -> None:
    """It sees the report and the runs; names are for who may read contacts, and moving is for who may write."""
    (run,) = enter(api, flow, "i")
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


def test_what_an_event_said_is_for_who_may_read_events(api: Client, server: Server) -> None:
    """A key for flows alone sees who is where, and nothing of what their event brought along."""
    body = {"trigger": {"event": "told_us"}, "steps": [{"duration": LONG}], "status": "active"}
    told = api.post("/flows", body).expect(201)["id"]
    person = api.post("/contacts", {"email": "teller@example.org"}).expect(201)["id"]
    api.post("/events", {"event": "told_us", "contact_id": person, "data": {"said": "a secret"}}).expect(201)
    path = f"/flows/{told}/runs/{standing(api, told, 1, person)['id']}"
    flows_only = server.client(server.new_key("flows only", "--scope", "flows:read"))
    both = server.client(server.new_key("both", "--scope", "flows:read,events:read"))
    assert flows_only.get(path).expect(200) == {**api.get(path).expect(200), "event_data": {}}
    assert both.get(path).expect(200)["event_data"] == {"said": "a secret"}


def test_a_test_key_moves_only_tests(api: Client, server: Server, flow: int) -> None:
    """What is real it sees and leaves alone: one is refused, of many the real ones stay as they are."""
    (run,) = enter(api, flow, "j")
    tester = server.client(server.new_key("tester", "--test"))
    path = f"/flows/{flow}/runs"
    assert tester.post(f"{path}/{run}/take_out").expect(403)["code"] == "forbidden"
    assert tester.post(f"{path}/move_on", {"step": 1}).expect(200) == {"changed": 0, "unchanged": []}
    assert tester.post(f"{path}/take_out", {"run_ids": [run]}).expect(200) == {"changed": 0, "unchanged": [run]}
    assert api.get(f"{path}/{run}").json["status"] == "live"


def test_who_is_moved_on_in_a_paused_flow_goes_on_with_it(api: Client, flow: int) -> None:
    """The pause holds everybody in place; afterwards who was moved goes on, and nobody else."""
    first, second = enter(api, flow, "k", "l")
    path = f"/flows/{flow}"
    api.post(f"{path}/pause").expect(200)
    due = api.post(f"{path}/runs/{first}/move_on").expect(200)["due_at"]
    assert api.post(f"{path}/runs/{first}/move_on").expect(200)["due_at"] == due
    assert api.get(f"{path}/runs/{first}").json["step_id"] == 1
    api.post(f"{path}/activate").expect(200)
    api.wait(f"{path}/runs/{first}", lambda row: row["step_id"] == 4 and row["status"] == "live")
    assert api.get(f"{path}/runs/{second}").json["step_id"] == 1
