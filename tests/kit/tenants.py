"""An account with one object of every kind, and a second account that must not see any of it."""

import json
import re
from dataclasses import dataclass, field
from typing import Any

from tests.kit.client import Client, Response
from tests.kit.openapi_document import OpenApiDocument, Operation
from tests.kit.server import Server
from tests.kit.uploads import upload, wait_for_import

MISSING_ID = 987_654_321
# Fields that depend on the time of the request, or that background jobs change
_CHANGING_FIELDS = re.compile(
    rb'"(exported_at|since|checked_at|next_check_at|problem|last_minute|last_hour)":("[^"]*"|null|\d+),?'
)


@dataclass
class Tenant:
    """An account: its client, and the ids of its objects by the resource in their path, such as `contacts`."""

    api: Client
    object_ids: dict[str, int] = field(default_factory=dict)
    account: int = 1

    def create_objects(self, prefix: str) -> "Tenant":
        """Create one object of every kind; `prefix` is part of every name and address."""
        api, ids = self.api, self.object_ids
        ids["lists"] = api.post("/lists", {"name": f"{prefix} list"}).expect(201)["id"]
        new_contact = {"email": f"{prefix}@example.org", "first_name": prefix, "list_ids": [ids["lists"]]}
        contact = api.post("/contacts", new_contact).expect(201)
        ids["contacts"], ids["channels"] = contact["id"], contact["channels"][0]["id"]
        filters = [{"name": "contact_first_name", "predicate": "eq", "value": prefix}]
        ids["segments"] = api.post("/segments", {"name": f"{prefix} segment", "filters": filters}).expect(201)["id"]
        ids["mirror"] = api.post("/lists", {"name": f"{prefix} mirror", "segment_id": ids["segments"]}).json["id"]
        design = {"sections": [{"id": "title", "type": "heading", "props": {"text": prefix}}]}
        template = {"name": f"{prefix} template", "subject": prefix, "design": design}
        ids["templates"] = api.post("/templates", template).expect(201)["id"]
        translation = {"texts": {"subject": "Übersetzt"}}
        api.put(f"/templates/{ids['templates']}/translations/de", translation).expect(200)
        test = {"variants": [{}, {"subject": f"{prefix} b"}]}
        campaign = api.post("/campaigns", {"name": f"{prefix} campaign", "experiment": test}).expect(201)
        ids["campaigns"], ids["variants"] = campaign["id"], campaign["experiment"]["variants"][1]["id"]
        steps = [
            {"duration": 31_622_400}, {"subject": prefix, "body": "<p>x</p>"},
            {"type": "list_add", "contact_list_id": ids["lists"]},
            {"type": "random_split", "metric": "event", "event_name": f"{prefix}_order",
             "branches": [{"share": 50}, {"share": 50}]},
        ]  # fmt: skip
        flow = {
            "name": f"{prefix} flow",
            "goal": f"{prefix}_goal",
            "steps": steps,
            "trigger": {"event": f"{prefix}_event"},
        }
        ids["flows"] = api.post("/flows", {**flow, "status": "active"}).expect(201)["id"]
        message: dict[str, Any] = {"to": f"{prefix}@example.org", "subject": f"{prefix} letter", "body": "<p>x</p>"}
        message["attachments"] = [{"filename": f"{prefix}.txt", "content": "eA=="}]
        ids["messages"] = api.post("/messages", message).expect(201)["id"]
        api.wait(f"/messages/{ids['messages']}", lambda row: row["status"] == "sent")
        ids["capture"] = api.get("/capture", message_id=ids["messages"]).expect(200)[0]["id"]
        ids["incoming"] = self._receive_reply(prefix)
        webhook = {"url": f"https://{prefix}.example/hook", "events": [f"{prefix}_event"]}
        ids["webhooks"] = webhook_id = api.post("/webhooks", webhook).expect(201)["id"]
        event = {"event": f"{prefix}_event", "contact_id": ids["contacts"]}
        ids["events"] = api.post("/events", event).expect(201)["id"]
        flow = f"/flows/{ids['flows']}"
        ids["runs"] = api.wait(f"{flow}/runs", lambda rows: len(rows) == 1, step=1, outcome="waiting")[0]["id"]
        # A draft again, with no trigger event and one waiting run
        api.post(f"{flow}/archive").expect(200)
        api.patch(flow, {"status": "draft", "trigger": {"event": "manual"}}).expect(200)
        log = api.wait(f"/webhooks/{webhook_id}/deliveries", lambda rows: bool(rows) and rows[0]["attempts"] == 1)
        ids["deliveries"] = log[0]["id"]
        api.patch(f"/webhooks/{webhook_id}", {"enabled": False}).expect(200)  # so that no retry changes it
        ids["suppressions"] = api.post("/suppressions", {"address": f"{prefix}.out@example.org"}).expect(201)["id"]
        ids["domains"] = api.post("/domains", {"domain": {"name": f"{prefix}.example"}}).expect(201)["id"]
        form = {"name": f"{prefix} form", "list_ids": [ids["lists"]], "consent_text": f"{prefix} agrees"}
        ids["forms"] = api.post("/forms", form).expect(201)["id"]
        renaming = {"kind": "change_segment", "subject_id": ids["segments"], "changes": {"name": f"{prefix} proposed"}}
        ids["proposals"] = api.post("/proposals", renaming).expect(201)["id"]
        ids["imports"] = wait_for_import(api, upload(api, f"email\n{prefix}.imported@example.org\n"))["id"]
        api.wait("/lists", lambda rows: not any(row["stale"] for row in rows))  # also those of earlier objects
        return self

    def _receive_reply(self, prefix: str) -> int:
        """Simulate a reply to a sent SMS, and return the id of the incoming SMS."""
        number = f"+1415555{abs(hash(prefix)) % 10_000:04}"
        sent = self.api.post("/messages", {"channel": "sms", "to": number, "body": prefix}).expect(201)["id"]
        self.api.wait(f"/messages/{sent}", lambda row: row["status"] == "sent")
        [captured] = self.api.get("/capture", message_id=sent).expect(200)
        self.api.post(f"/capture/{captured['id']}/simulate", {"action": "reply", "text": f"{prefix} here"}).expect(200)
        return int(self.api.get("/incoming").expect(200)[0]["id"])

    def path(self, operation: Operation) -> str:
        """Return the path of an operation on an object of this account."""
        return operation.path_with_id(
            self.object_ids[operation.noun], self.object_ids[operation.nested_noun] if operation.nested_noun else None
        )

    def read_all(self) -> dict[str, bytes]:
        """Return the bodies of all GET operations on this account's objects by path, without fields that change."""
        responses = {}
        for operation in OpenApiDocument(self.api).operations():
            # Backups belong to the installation, and only its first account may read them.
            if operation.method != "GET" or operation.path.endswith(("/explain", "/backups")):
                continue
            path = self.path(operation) if operation.has_id else operation.path
            query = {"q": "a"} if operation.path.endswith("/search") else {}
            response = self.api.get(path, **query)
            assert response.status == 200, (path, response.text)
            responses[path] = _CHANGING_FIELDS.sub(b"", response.body)
        return responses


def two_tenants(server: Server) -> tuple[Tenant, Tenant]:
    """Return the first account with one object of every kind, and a second, empty account."""
    number = int(server.cli("account", "add", "Elsewhere").stdout)
    other_tenant = server.client(server.new_key("theirs", "--account", str(number)))
    return Tenant(server.client()).create_objects("alpha"), Tenant(other_tenant, account=number)


def comparable_response(response: Response, number: int) -> tuple[int, Any]:
    """Return status and body of a response without its request id, and with `number` in place of MISSING_ID."""
    text = response.text.replace(str(MISSING_ID), str(number))
    if response.headers.get("Content-Type") != "application/json":
        return response.status, text
    body = json.loads(text)
    if isinstance(body, dict):
        body.pop("request_id", None)
    return response.status, body
