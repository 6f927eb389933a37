"""Simulations over the API: the whole response, scripts that run on each edit, and permissions."""

from typing import Any

import httpx
import pytest

from tests.kit.client import Client
from tests.kit.server import Server
from tests.kit.uploads import upload, wait_for_import

MAIL = {"subject": "Welcome {{ contact.first_name }}", "body": '<p>Hi <a href="https://example.com/">there</a></p>'}
CLICKED = {"name": "event", "predicate": "performed", "value": {"event": "email_clicked", "since": "flow_start"}}
STEPS = [MAIL, {"duration": 3600}, {"filters": [CLICKED], "yes": [{"type": "exit"}], "no": [{"duration": 60}]}]
START = "2031-03-03T09:00:00Z"


@pytest.fixture
def flow(api: Client) -> int:
    """Return the id of a draft that a tag starts."""
    body = {"name": "Hello", "trigger": {"event": "tag_add"}, "steps": STEPS}
    return int(api.post("/flows", body).expect(201)["id"])


def test_simulate_one_contact(api: Client, flow: int) -> None:
    """The timeline has each step with outcome and reasons, also as text; nothing is stored."""
    ann = api.post("/contacts", {"email": "ann@example.org", "first_name": "Ann"}).expect(201)["id"]
    counted = {path: api.get(path).headers["X-Total-Count"] for path in ("/events", "/messages", "/contacts")}
    body = {"contact_id": ann, "start_at": START, "events": [{"event": "email_clicked", "step": 1, "after": 60}]}
    simulation = api.post(f"/flows/{flow}/simulate", body).expect(200)
    assert [(entry["kind"], entry["at"], entry["outcome"]) for entry in simulation["timeline"]] == [
        ("enter", "2031-03-03T09:00:00.000Z", None), ("step", "2031-03-03T09:00:00.000Z", "on"),
        ("step", "2031-03-03T09:00:00.000Z", "waits"), ("assumed", "2031-03-03T09:01:00.000Z", None),
        ("step", "2031-03-03T10:00:00.000Z", "yes"), ("step", "2031-03-03T10:00:00.000Z", "exited"),
    ]  # fmt: skip
    mail, branch = simulation["timeline"][1]["message"], simulation["timeline"][4]["filters"][0]
    assert (mail["to"], mail["subject"], mail["status"]) == ("ann@example.org", "Welcome Ann", "sent")
    assert branch["matches"] and branch["decided"] and branch["actual_text"] == "once, last Mon, 3 Mar 2031, 09:01"
    assert simulation["end"]["status"] == "exited" and "Branch: Yes" in simulation["text"]
    assert {path: api.get(path).headers["X-Total-Count"] for path in counted} == counted
    shown = api.get(f"/flows/{flow}").expect(200)
    assert (shown["status"], shown["stats"]["entered"], shown["version"]) == ("draft", 0, 0)
    # The link in a simulated email does not work
    link = next(word for word in mail["text"].split() if "/u/" in word)
    assert httpx.get(link).status_code == 404


def test_simulate_all_contacts(api: Client, flow: int) -> None:
    """The response counts the contacts in each step, also as text; no body is required."""
    for n in range(3):
        api.post("/contacts", {"email": f"tagged{n}@example.org", "data": {"tags": ["a"]}}).expect(201)
    simulation = api.post(f"/flows/{flow}/simulate_all").expect(200)
    assert (simulation["met"], simulation["rehearsed"], simulation["sampled"], simulation["completed"]) == (
        3,
        3,
        False,
        3,
    )
    assert [(step["path"], step["entered"], step["sent"]) for step in simulation["steps"]][:2] == [
        ("steps[0]", 3, 3), ("steps[1]", 3, 0),
    ]  # fmt: skip
    assert "Contacts that met the trigger: 3; simulated: 3." in simulation["text"]


def test_scripts_run_on_each_edit(api: Client, flow: int) -> None:
    """An edit returns which scripts pass, and so does the list of scripts."""
    script = {"name": "No click, no exit", "start_at": START, "expect": [{"step": 3, "outcome": "no"}]}
    fine = api.patch(f"/flows/{flow}", {"data": {"scripts": [script]}}).expect(200)
    assert fine["scripts"] == [
        {"name": "No click, no exit", "passed": True, "expected": 1, "failures": [],
         "end": "Completes the flow after its last step: Mon, 3 Mar 2031, 10:01."}
    ]  # fmt: skip
    turned = [{**step, "id": step["id"]} for step in fine["steps"]]
    turned[2]["filters"][0]["predicate"] = "not_performed"
    broken = api.patch(f"/flows/{flow}", {"steps": turned}).expect(200)["scripts"]
    assert [entry["passed"] for entry in broken] == [False] and "should take “No”" in broken[0]["failures"][0]
    listed = api.get(f"/flows/{flow}/scripts")
    assert listed.expect(200) == broken and listed.headers["X-Total-Count"] == "1"
    error = api.patch(f"/flows/{flow}", {"data": {"scripts": [{"expect": 5}]}}).expect(422)["validation_errors"]
    assert {name.partition("[0].")[2] for name in error} <= {"name", "expect"}


def test_invalid_simulations_are_rejected(api: Client, flow: int) -> None:
    """All errors are reported at their paths, and unknown keys in `X-Ignored-Fields`."""
    body: dict[str, Any] = {"contact_id": 10**6, "events": [{"event": "flow_enter"}, {"event": "x", "after": -1}]}
    assert set(api.post(f"/flows/{flow}/simulate", {"start_at": "soon", **body}).expect(422)["validation_errors"]) >= {
        "start_at"
    }
    response = api.post(f"/flows/{flow}/simulate", {"contact_id": 10**6, "events": body["events"][:1]})
    assert set(response.expect(422)["validation_errors"]) == {"contact_id", "events[0].event"}
    assert api.post(f"/flows/{flow}/simulate", {"when": 1}).headers["X-Ignored-Fields"] == "when"
    assert api.post(f"/flows/{10**6}/simulate", {}).status == 404


def test_simulating_contacts_needs_their_scope(api: Client, server: Server, flow: int) -> None:
    """Without `contacts:read` only an invented contact can be simulated."""
    flows_only = server.client(server.new_key("flows", "--scope", "flows:read"))
    ann = api.get("/contacts").expect(200)[0]["id"]
    assert flows_only.post(f"/flows/{flow}/simulate", {"contact": {"email": "x@example.org"}}).status == 200
    for path, body in (("simulate", {"contact_id": ann}), ("simulate_all", {})):
        error = flows_only.post(f"/flows/{flow}/{path}", body)
        assert error.expect(403)["required_scope"] == "contacts:read"
    api.patch(f"/flows/{flow}", {"data": {"scripts": [{"name": "Ann", "contact_id": ann}]}}).expect(200)
    assert flows_only.get(f"/flows/{flow}/scripts").expect(200)[0]["passed"] is False
    assert api.get(f"/flows/{flow}/scripts").expect(200)[0]["passed"] is True


def test_simulations_do_not_reveal_suppressions(api: Client, server: Server, flow: int) -> None:
    """Without `contacts:read` an invented contact's address does not show whether it is suppressed."""
    api.post("/suppressions", {"address": "bob@example.org", "reason": "manual"}).expect(201)
    body = {"contact": {"email": "bob@example.org", "opt_in": True}, "start_at": START}
    scripts = [{"name": "Bob", **body, "expect": [{"step": 1, "outcome": "skipped"}]}]
    api.patch(f"/flows/{flow}", {"data": {"scripts": scripts}}).expect(200)
    flows_only = server.client(server.new_key("guesser", "--scope", "flows:read"))
    for reader, learns in ((api, True), (flows_only, False)):
        result = reader.post(f"/flows/{flow}/simulate", body).expect(200)["timeline"][1]
        assert ("suppressed" in result["description"]) is learns
        assert reader.get(f"/flows/{flow}/scripts").expect(200)[0]["passed"] is learns


def test_simulate_all_ignores_imported_contacts(api: Client) -> None:
    """Contacts whose import started no flow did not meet the trigger."""
    list_id = api.post("/lists", {"name": "Imported"}).expect(201)["id"]
    body = {"name": "Joined", "trigger": {"event": "list_add", "contact_list_id": list_id}, "steps": STEPS}
    flow = api.post("/flows", body).expect(201)["id"]
    wait_for_import(api, upload(api, "email\nimported@example.org\n", list_ids=[list_id]))
    assert api.post(f"/flows/{flow}/simulate_all").expect(200)["met"] == 0
    api.post("/contacts", {"email": "joined@example.org", "list_ids": [list_id]}).expect(201)
    assert api.post(f"/flows/{flow}/simulate_all").expect(200)["met"] == 1
