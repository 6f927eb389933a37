"""A role with masked contact data: no page and no endpoint shows who a contact is (docs/decisions.md#34)."""

import re
from typing import Any, NamedTuple

import pytest

from tests.api.test_threats_pages import Visitor
from tests.kit.api_users import user_client
from tests.kit.client import Client
from tests.kit.openapi_document import OpenApiDocument
from tests.kit.routes import page_routes
from tests.kit.server import EMAIL as OWNER
from tests.kit.server import PASSWORD, Server
from tests.kit.tenants import Tenant
from tests.kit.uploads import upload, wait_for_import

# What only the contact has: names, the parts of the address, the phone number in each form, and custom data
SECRETS = re.compile(r"quillon|zwetschge|leaky|4155553217|415[\s.)-]+555[\s.-]+3217|zebulonius", re.IGNORECASE)
EMAIL, PHONE = "quillon.zwetschge@leaky.example", "+14155553217"
READS = [f"{area}:read" for area in ("contacts", "campaigns", "flows", "templates", "events", "messages", "domains")]
DRAFTS = ["campaigns:write", "flows:write", "templates:write"]


class World(NamedTuple):
    """An account with a contact, and clients of the owner and of a user with a masked role."""

    tenant: Tenant
    owner: Client
    masked: Client
    owner_pages: Visitor
    masked_pages: Visitor


@pytest.fixture(scope="module")
def world(server: Server, api: Client) -> World:
    """Return an account in which the contact is in everything that can hold a contact."""
    tenant = Tenant(api).create_objects("alpha")
    ids = tenant.object_ids
    owner = user_client(server)
    role = {"name": "Agency", "scopes": READS + DRAFTS, "contact_data": "masked"}
    role_id = owner.post("/roles", role).expect(201)["id"]
    user = {"email": "agency@example.org", "role": str(role_id), "password": PASSWORD}
    owner.post("/users", user).expect(201)
    details = {
        "email": EMAIL, "phone": PHONE, "first_name": "Quillon", "last_name": "Zwetschge", "list_ids": [ids["lists"]],
        "data": {"nickname": "Zebulonius", "tags": ["vip"], "customer": 14155553217},
    }  # fmt: skip
    contact = api.post("/contacts", details).expect(201)
    ids["contacts"], ids["channels"] = contact["id"], contact["channels"][0]["id"]
    _send_everything(api, ids)
    return World(
        tenant, owner, user_client(server, "agency@example.org"), Visitor(server, OWNER),
        Visitor(server, "agency@example.org"),
    )  # fmt: skip


def _send_everything(api: Client, ids: dict[str, int]) -> None:
    """Send messages to the contact in each way, record events, and store what names the contact elsewhere."""
    greeting = {"subject": "Hello {{ contact.first_name }}", "body": "<p>Dear {{ contact.last_name }}</p>"}
    message: dict[str, Any] = {"to": EMAIL, "subject": "Quillon, your order", "body": "<p>Zwetschge</p>"}
    message["attachments"] = [{"filename": "zwetschge.txt", "content": "eA=="}]
    ids["messages"] = api.post("/messages", message).expect(201)["id"]
    sms = api.post("/messages", {"channel": "sms", "to": PHONE, "body": "Hello Quillon"}).expect(201)["id"]
    for number in (ids["messages"], sms):
        api.wait(f"/messages/{number}", lambda row: row["status"] == "sent")
    [captured] = api.get("/capture", message_id=sms).expect(200)
    api.post(f"/capture/{captured['id']}/simulate", {"action": "reply", "text": "Quillon here"}).expect(200)
    ids["incoming"] = api.get("/incoming").expect(200)[0]["id"]
    ids["capture"] = api.get("/capture", message_id=ids["messages"]).expect(200)[0]["id"]
    event = {"event": "alpha_order", "contact_id": ids["contacts"], "data": {"ship_to": "Zwetschge", "note": PHONE}}
    ids["events"] = api.post("/events", event).expect(201)["id"]
    filters = [{"name": "contact_first_name", "predicate": "eq", "value": "Quillon"}]
    ids["segments"] = api.post("/segments", {"name": "By name", "filters": filters}).expect(201)["id"]
    branch = {"filters": filters, "yes": [greeting]}
    ids["branched"] = api.post("/flows", {"name": "By name", "steps": [branch, greeting]}).expect(201)["id"]
    flow = {"name": "Welcome", "trigger": {"event": "alpha_order"}, "status": "active",
            "steps": [greeting, {"duration": 31_622_400}]}  # fmt: skip
    ids["flows"] = api.post("/flows", flow).expect(201)["id"]
    api.post("/events", event).expect(201)
    runs = api.wait(f"/flows/{ids['flows']}/runs", lambda rows: len(rows) == 1, step=2, outcome="waiting")
    ids["runs"] = runs[0]["id"]
    campaign = {
        "name": "News",
        "trigger_attributes": {"contact_list_id": ids["lists"]},
        "template_attributes": greeting,
    }
    ids["campaigns"] = api.post("/campaigns", campaign).expect(201)["id"]
    api.post("/suppressions", {"address": "zwetschge.out@leaky.example", "note": "asked by Quillon"}).expect(201)
    ids["suppressions"] = api.get("/suppressions").expect(200)[0]["id"]
    ids["imports"] = wait_for_import(api, upload(api, "email,first_name\nother@leaky.example,Quillon\n"))["id"]
    api.wait("/lists", lambda rows: not any(row["stale"] for row in rows))


def _read_endpoints(world: World, client: Client) -> dict[str, Any]:
    """Return the responses of all GET endpoints by path."""
    responses = {}
    for operation in OpenApiDocument(world.tenant.api).operations():
        if operation.method != "GET":
            continue
        path = world.tenant.path(operation) if operation.has_id else operation.path
        query = {"contact_id": world.tenant.object_ids["contacts"]} if path.endswith("/explain") else {}
        responses[path] = client.get(path, **query)
    return responses


def _read_pages(world: World, visitor: Visitor, step: int = 1) -> dict[str, Any]:
    """Return the responses of every `step`-th page by path."""
    ids, responses = world.tenant.object_ids, {}
    nouns = {
        "contact_id": "contacts", "campaign_id": "campaigns", "flow_id": "flows", "list_id": "lists",
        "message_id": "messages", "run_id": "runs", "segment_id": "segments", "template_id": "templates",
        "import_id": "imports", "suppression_id": "suppressions", "captured_id": "capture", "form_id": "forms",
        "webhook_id": "webhooks", "domain_id": "domains", "proposal_id": "proposals",
    }  # fmt: skip
    words = {"of": "contacts", "language": "de", "side": "1"}
    paths = [path for method, path in page_routes() if method == "GET"]
    for path in [path for path in paths if not path.startswith(("/docs", "/settings/doctor"))][::step]:

        def fill(match: re.Match[str]) -> str:
            return str(ids[nouns[match[1]]] if match[1] in nouns else words.get(match[1], "1"))

        target = re.sub(r"<(\w+):\w+>", fill, path)
        responses[target] = visitor.send("GET", target)
    return responses


def _read_text(response: Any) -> str:
    """Return the body of a response, with each byte of a picture as a character."""
    return str(response.body.decode("utf-8", "replace"))


def _find_leaks(responses: dict[str, Any]) -> dict[str, str]:
    """Return what shows the contact, by path, with the text around it."""
    matches = {path: SECRETS.search(_read_text(response)) for path, response in responses.items()}
    return {
        path: match.string[max(0, match.start() - 80) : match.end() + 80]
        for path, match in matches.items()
        if match is not None
    }


def test_no_endpoint_shows_a_masked_contact(world: World) -> None:
    """Read as the owner, who sees the contact in many places and fills the caches, then with the masked role."""
    full = _read_endpoints(world, world.owner)
    assert len(_find_leaks(full)) >= 20, sorted(_find_leaks(full))
    responses = _read_endpoints(world, world.masked)
    assert _find_leaks(responses) == {}
    statuses = {path: response.status for path, response in responses.items()}
    assert {path for path, status in statuses.items() if status not in (full[path].status, 403)} == set()
    closed = {path.removeprefix("/v1/my") for path, status in statuses.items() if status == 403}
    assert {"/exports/contacts.csv", "/capture", "/imports"} <= closed
    assert statuses["/v1/my/contacts"] == 200


def test_no_page_shows_a_masked_contact(world: World, full: bool) -> None:
    """Read every second page as the owner, with `--full` every one, and then every page with the masked role."""
    by_owner = _read_pages(world, world.owner_pages, 1 if full else 2)
    assert len(_find_leaks(by_owner)) >= (15 if full else 7), sorted(_find_leaks(by_owner))
    responses = _read_pages(world, world.masked_pages)
    assert _find_leaks(responses) == {}
    closed = re.compile("/inbox|/contacts/imports|/contacts/[0-9]+/(conversation|messages|edit|delete|merge)|/exports"
                        "|.*/(html|files|export|file)|/settings/(content|webhooks|team|roles|keys|audit|sending/|accounts|backups|sign-in)|/welcome|.*/new"
                        "|.*/edit$|.*/add$|.*/replay$|/forms/preview|.*/winner|.*/reschedule")  # fmt: skip
    for path, response in responses.items():
        if path.startswith("/settings/you/sessions/") or path not in by_owner:
            continue  # the session is the owner's
        allowed = {by_owner[path].status, 403} if closed.match(path) else {by_owner[path].status}
        assert response.status in allowed, (path, response.status, by_owner[path].status)
    for path in ("/", "/contacts", f"/contacts/{world.tenant.object_ids['contacts']}", "/activity", "/outbox"):
        assert responses[path].status == 200, path
    assert "masked.invalid" in responses["/contacts"].text
    branched = world.masked_pages.send("GET", f"/flows/{world.tenant.object_ids['branched']}")
    assert branched.status == 200 and not SECRETS.search(branched.text)
