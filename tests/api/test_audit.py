"""The audit log over the API: one row for each action, with actor and address, and without secrets."""

import json
from typing import Any

import pytest

from tests.kit.client import Client
from tests.kit.server import Server
from tests.kit.tenants import Tenant

WORD = "canary"


@pytest.fixture(scope="module")
def things(server: Server) -> dict[str, int]:
    """Return the ids of one object of every kind, created with an API key."""
    return Tenant(server.client()).create_objects(WORD).object_ids


def newest(owner: Client, **query: Any) -> dict[str, Any]:
    """Return the newest row of the audit log."""
    return dict(owner.get("/audit", limit=1, **query).expect(200)[0])


def test_each_action_is_logged_once(server: Server, owner: Client, things: dict[str, int]) -> None:
    """Each action adds one row with its name, subject, API key and address."""
    api = server.client()
    flow, campaign = f"/flows/{things['flows']}", f"/campaigns/{things['campaigns']}"
    content = {
        "template_attributes": {"subject": WORD, "body": "<p>x</p>"},
        "trigger_attributes": {"contact_list_id": things["lists"]},
    }
    second = api.post("/contacts", {"email": "second@example.org"}).expect(201)["id"]
    suppressed = f"/suppressions/{things['suppressions']}"
    acts: list[tuple[str, str, Any, str, str | None]] = [
        ("POST", f"{flow}/activate", None, "flow_activate", f"flow:{things['flows']}"),
        ("POST", f"{flow}/pause", None, "flow_pause", f"flow:{things['flows']}"),
        ("PATCH", flow, {"status": "active"}, "flow_activate", f"flow:{things['flows']}"),
        ("POST", f"{flow}/enroll", {"contact_ids": []}, "flow_enroll", f"flow:{things['flows']}"),
        ("POST", f"{flow}/archive", {}, "flow_archive", f"flow:{things['flows']}"),
        ("DELETE", flow, None, "flow_delete", f"flow:{things['flows']}"),
        ("POST", f"{campaign}/send", content, "campaign_send", f"campaign:{things['campaigns']}"),
        ("DELETE", campaign, None, "campaign_delete", f"campaign:{things['campaigns']}"),
        ("PATCH", "/account", {"locale": "de"}, "account_update", "account:1"),
        ("PUT", "/brand", {"tone": WORD}, "brand_update", "brand:1"),
        ("DELETE", suppressed, {"reason": "asked"}, "suppression_lift", f"suppression:{things['suppressions']}"),
        ("POST", f"/lists/{things['lists']}/contacts/bulk", {"add": []}, "contacts_bulk", f"list:{things['lists']}"),
        ("PATCH", f"/forms/{things['forms']}", {"name": "x"}, "form_update", f"form:{things['forms']}"),
        ("DELETE", f"/forms/{things['forms']}", None, "form_delete", f"form:{things['forms']}"),
        ("DELETE", f"/templates/{things['templates']}", None, "template_delete", f"template:{things['templates']}"),
        ("POST", f"/imports/{things['imports']}/undo", None, "import_undo", f"import:{things['imports']}"),
        ("GET", "/exports/contacts.csv?search=canary", None, "export", None),
        ("GET", f"/contacts/{second}/export", None, "export", None),
        ("POST", f"/contacts/{things['contacts']}/merge", {"contact_id": second}, "contact_merge",
         f"contact:{things['contacts']}"),
        ("DELETE", f"/contacts/{things['contacts']}?erase=true", None, "contact_erase",
         f"contact:{things['contacts']}"),
        ("DELETE", f"/segments/{things['segments']}", None, "segment_delete", f"segment:{things['segments']}"),
        ("DELETE", f"/webhooks/{things['webhooks']}", None, "webhook_delete", f"webhook:{things['webhooks']}"),
        ("DELETE", f"/domains/{things['domains']}", None, "domain_delete", f"domain:{things['domains']}"),
        ("DELETE", "/capture", None, "capture_clear", None),
    ]  # fmt: skip
    api.delete(f"/lists/{things['mirror']}").expect(200)
    api.patch(flow, {"trigger": {"event": "canary_event"}}).expect(200)
    for method, path, body, action, subject in acts:
        before = newest(owner)["id"]
        response = api.send(method, path, body)
        assert response.status == 200, (method, path, response.text)
        row = newest(owner)
        assert (row["action"], row["subject"], row["actor"], row["ip"]) == (action, subject, "key:1", "127.0.0.1"), path
        assert row["id"] == before + 1 and row["actor_name"] == "test"


def test_exports_log_their_number_of_rows(server: Server, owner: Client) -> None:
    """The row of an export has the file name, the names of the filters and the number of rows."""
    api = server.client()
    for number in range(3):
        api.post("/contacts", {"email": f"counted{number}@example.org", "first_name": "Counted"}).expect(201)
    contact_id = api.get("/contacts", search="counted1").expect(200)[0]["id"]
    flow = api.post("/flows", {"name": "Empty"}).expect(201)["id"]
    for path, file, filters, rows in (
        ("/exports/contacts.csv?search=counted&bom=true", "contacts.csv", ["search"], 3),
        ("/exports/contacts.jsonl?search=counted1", "contacts.jsonl", ["search"], 1),
        ("/exports/events.csv?event=nothing_such", "events.csv", ["event"], 0),
        ("/exports/messages.jsonl?to=nobody%40example.org", "messages.jsonl", ["to"], 0),
        (f"/contacts/{contact_id}/export", f"contact-{contact_id}.json", [], 1),
        (f"/flows/{flow}/runs.csv", f"flow-{flow}.csv", [], 0),
    ):
        assert api.send("GET", path).status == 200, path
        assert newest(owner, action="export")["data"] == {"file": file, "filters": filters, "rows": rows}, path


def test_failed_requests_are_not_logged(server: Server, owner: Client, things: dict[str, int]) -> None:
    """A 404 or 422 response adds no row."""
    before, api = newest(owner), server.client()
    for method, path in (("DELETE", "/lists/4711"), ("POST", "/campaigns/4711/send"), ("GET", "/contacts/4711/export")):
        assert api.send(method, path, {} if method == "POST" else None).status == 404
    assert api.put("/brand", {"brand_color": "blue"}).status == 422
    assert newest(owner) == before


def test_the_audit_log_contains_no_personal_data(server: Server, owner: Client, things: dict[str, int]) -> None:
    """No row contains an address, a filter value, a key or a secret; names of domains are kept."""
    result = json.dumps([row["data"] for row in owner.all("/audit")])
    assert "canary.example" in result  # of a domain and a webhook the name is kept
    for secret in ("@", "whsec_", "camp_", "eyJ", "search=", f'"{WORD}"', *map(str, (server.key,))):
        assert secret not in result, secret


def test_the_audit_log_is_filtered_and_read_only(server: Server, owner: Client) -> None:
    """It is filtered by actor, action, subject and time; an unknown filter is a 422, and each write a 405."""
    owner.post("/api_keys", {"name": "x"}).expect(201)
    row = newest(owner, action="key_create", actor="user:1")
    assert row["data"] == {"name": "x", "scope": "full"} and row["actor_name"] == "owner"
    assert newest(owner, subject=row["subject"]) == row
    assert newest(owner, created_after=row["created_at"])["id"] >= row["id"]
    assert owner.get("/audit", created_before="1999-01-01").expect(200) == []
    assert "created_after" in owner.get("/audit", created_after="soon").expect(422)["validation_errors"]
    assert "acter" in owner.get("/audit", acter="user:1").expect(422)["validation_errors"]
    for method in ("POST", "PATCH", "DELETE"):
        assert owner.send(method, "/audit").status == 405


def test_the_command_line_is_an_actor(server: Server, owner: Client) -> None:
    """Keys created on the command line are logged with the actor `cli`."""
    server.new_key("machine", "--scope", "read")
    assert newest(owner, actor="cli", action="key_create")["data"] == {"name": "machine", "scope": "read"}
    assert newest(owner, actor="cli")["ip"] is None
