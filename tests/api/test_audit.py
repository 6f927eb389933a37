"""The audit over the API: one row for each act that counts, with who and from where, and nothing that tells secrets."""

import json
from typing import Any

import pytest

from tests.kit.api_users import user_client
from tests.kit.client import Client
from tests.kit.server import Server
from tests.kit.tenants import Tenant

WORD = "canary"


@pytest.fixture(scope="module")
def owner(server: Server) -> Client:
    """The first owner, signed in."""
    return user_client(server)


@pytest.fixture(scope="module")
def things(server: Server) -> dict[str, int]:
    """One of everything, made with a key."""
    return Tenant(server.client()).create_objects(WORD).object_ids


def newest(owner: Client, **query: Any) -> dict[str, Any]:
    """Return the newest row of the audit."""
    return dict(owner.get("/audit", limit=1, **query).expect(200)[0])


def test_every_act_leaves_its_row(server: Server, owner: Client, things: dict[str, int]) -> None:
    """What goes out, ends, is settled or leaves the house is noted with the key that did it, and once."""
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
        answer = api.send(method, path, body)
        assert answer.status == 200, (method, path, answer.text)
        row = newest(owner)
        assert (row["action"], row["subject"], row["actor"], row["ip"]) == (action, subject, "key:1", "127.0.0.1"), path
        assert row["id"] == before + 1 and row["actor_name"] == "test"


def test_how_much_left_is_told(server: Server, owner: Client) -> None:
    """Of each file how many rows there were: what a key or a person took along can be told afterwards."""
    api = server.client()
    for number in range(3):
        api.post("/contacts", {"email": f"counted{number}@example.org", "first_name": "Counted"}).expect(201)
    one = api.get("/contacts", search="counted1").expect(200)[0]["id"]
    flow = api.post("/flows", {"name": "Empty"}).expect(201)["id"]
    for path, file, filters, rows in (
        ("/exports/contacts.csv?search=counted&bom=true", "contacts.csv", ["search"], 3),
        ("/exports/contacts.jsonl?search=counted1", "contacts.jsonl", ["search"], 1),
        ("/exports/events.csv?event=nothing_such", "events.csv", ["event"], 0),
        ("/exports/messages.jsonl?to=nobody%40example.org", "messages.jsonl", ["to"], 0),
        (f"/contacts/{one}/export", f"contact-{one}.json", [], 1),
        (f"/flows/{flow}/runs.csv", f"flow-{flow}.csv", [], 0),
    ):
        assert api.send("GET", path).status == 200, path
        assert newest(owner, action="export")["data"] == {"file": file, "filters": filters, "rows": rows}, path


def test_what_is_refused_leaves_no_row(server: Server, owner: Client, things: dict[str, int]) -> None:
    """An act that did not happen is not told of."""
    before, api = newest(owner), server.client()
    for method, path in (("DELETE", "/lists/4711"), ("POST", "/campaigns/4711/send"), ("GET", "/contacts/4711/export")):
        assert api.send(method, path, {} if method == "POST" else None).status == 404
    assert api.put("/brand", {"brand_color": "blue"}).status == 422
    assert newest(owner) == before


def test_no_row_tells_of_a_person_or_a_secret(server: Server, owner: Client, things: dict[str, int]) -> None:
    """Neither an address nor a name of anybody, no value of a filter, no key, no secret of a webhook."""
    said = json.dumps([row["data"] for row in owner.all("/audit")])
    assert "canary.example" in said  # of a domain and a webhook the name is kept
    for secret in ("@", "whsec_", "camp_", "eyJ", "search=", f'"{WORD}"', *map(str, (server.key,))):
        assert secret not in said, secret


def test_it_is_narrowed_and_nobody_writes_it(server: Server, owner: Client) -> None:
    """Filters by who, what, on what and when; an unknown one is refused, and so is every write."""
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


def test_the_command_line_is_somebody_too(server: Server, owner: Client) -> None:
    """Keys and people that are made on the machine are noted as its doing."""
    server.new_key("machine", "--scope", "read")
    assert newest(owner, actor="cli", action="key_create")["data"] == {"name": "machine", "scope": "read"}
    assert newest(owner, actor="cli")["ip"] is None
