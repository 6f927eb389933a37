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
# What tells the moment of the asking itself, or of one that comes by itself
_CHANGING_FIELDS = re.compile(rb'"(exported_at|since|checked_at|next_check_at|problem)":("[^"]*"|null),?')


@dataclass
class Tenant:
    """An account: its client, and the ids of its objects by the noun of their path."""

    api: Client
    object_ids: dict[str, int] = field(default_factory=dict)
    account: int = 1

    def create_objects(self, word: str) -> "Tenant":
        """Create one object of every kind; `word` is part of every name and address."""
        api, have = self.api, self.object_ids
        have["lists"] = api.post("/lists", {"name": f"{word} list"}).expect(201)["id"]
        person = {"email": f"{word}@example.org", "first_name": word, "list_ids": [have["lists"]]}
        contact = api.post("/contacts", person).expect(201)
        have["contacts"], have["channels"] = contact["id"], contact["channels"][0]["id"]
        filters = [{"name": "contact_first_name", "predicate": "eq", "value": word}]
        have["segments"] = api.post("/segments", {"name": f"{word} segment", "filters": filters}).expect(201)["id"]
        have["mirror"] = api.post("/lists", {"name": f"{word} mirror", "segment_id": have["segments"]}).json["id"]
        design = {"sections": [{"id": "title", "type": "heading", "props": {"text": word}}]}
        template = {"name": f"{word} template", "subject": word, "design": design}
        have["templates"] = api.post("/templates", template).expect(201)["id"]
        have["campaigns"] = api.post("/campaigns", {"name": f"{word} campaign"}).expect(201)["id"]
        steps = [
            {"duration": 31_622_400}, {"subject": word, "body": "<p>x</p>"},
            {"type": "list_add", "contact_list_id": have["lists"]},
        ]  # fmt: skip
        flow = {"name": f"{word} flow", "goal": f"{word}_goal", "steps": steps, "trigger": {"event": f"{word}_event"}}
        have["flows"] = api.post("/flows", {**flow, "status": "active"}).expect(201)["id"]
        letter = {"to": f"{word}@example.org", "subject": f"{word} letter", "body": "<p>x</p>"}
        have["messages"] = api.post("/messages", letter).expect(201)["id"]
        api.wait(f"/messages/{have['messages']}", lambda row: row["status"] == "sent")
        have["capture"] = api.get("/capture", message_id=have["messages"]).expect(200)[0]["id"]
        have["incoming"] = self._receive_reply(word)
        webhook = {"url": f"https://{word}.example/hook", "events": [f"{word}_event"]}
        have["webhooks"] = hook = api.post("/webhooks", webhook).expect(201)["id"]
        event = {"event": f"{word}_event", "contact_id": have["contacts"]}
        have["events"] = api.post("/events", event).expect(201)["id"]
        flow = f"/flows/{have['flows']}"
        have["runs"] = api.wait(f"{flow}/runs", lambda rows: len(rows) == 1, step=1, outcome="waiting")[0]["id"]
        # A draft again that nothing starts, with somebody inside
        api.post(f"{flow}/archive").expect(200)
        api.patch(flow, {"status": "draft", "trigger": {"event": "manual"}}).expect(200)
        log = api.wait(f"/webhooks/{hook}/deliveries", lambda rows: bool(rows) and rows[0]["attempts"] == 1)
        have["deliveries"] = log[0]["id"]
        api.patch(f"/webhooks/{hook}", {"enabled": False}).expect(200)  # so that nothing moves by itself
        have["suppressions"] = api.post("/suppressions", {"address": f"{word}.out@example.org"}).expect(201)["id"]
        have["domains"] = api.post("/domains", {"domain": {"name": f"{word}.example"}}).expect(201)["id"]
        form = {"name": f"{word} form", "list_ids": [have["lists"]], "consent_text": f"{word} agrees"}
        have["forms"] = api.post("/forms", form).expect(201)["id"]
        have["imports"] = wait_for_import(api, upload(api, f"email\n{word}.imported@example.org\n"))["id"]
        api.wait("/lists", lambda rows: not any(row["stale"] for row in rows))  # those of earlier things, too
        return self

    def _receive_reply(self, word: str) -> int:
        """Simulate a reply to one of our SMS, and return the incoming SMS."""
        number = f"+1415555{abs(hash(word)) % 10_000:04}"
        sent = self.api.post("/messages", {"channel": "sms", "to": number, "body": word}).expect(201)["id"]
        self.api.wait(f"/messages/{sent}", lambda row: row["status"] == "sent")
        [captured] = self.api.get("/capture", message_id=sent).expect(200)
        self.api.post(f"/capture/{captured['id']}/simulate", {"action": "reply", "text": f"{word} here"}).expect(200)
        return int(self.api.get("/incoming").expect(200)[0]["id"])

    def path(self, operation: Operation) -> str:
        """Return the path of an operation on an object of this account."""
        return operation.path_with_id(
            self.object_ids[operation.noun], self.object_ids[operation.nested_noun] if operation.nested_noun else None
        )

    def read_all(self) -> dict[str, bytes]:
        """Return the responses of all GET operations for this account's objects, as bytes."""
        responses = {}
        for operation in OpenApiDocument(self.api).operations():
            if operation.method != "GET" or operation.path.endswith("/explain"):
                continue
            path = self.path(operation) if operation.has_id else operation.path
            query = {"q": "a"} if operation.path.endswith("/search") else {}
            answer = self.api.get(path, **query)
            assert answer.status == 200, (path, answer.text)
            responses[path] = _CHANGING_FIELDS.sub(b"", answer.body)
        return responses


def two_tenants(server: Server) -> tuple[Tenant, Tenant]:
    """Return the first account with one object of every kind, and a second, empty account."""
    number = int(server.cli("account", "add", "Elsewhere").stdout)
    other_tenant = server.client(server.new_key("theirs", "--account", str(number)))
    return Tenant(server.client()).create_objects("alpha"), Tenant(other_tenant, account=number)


def comparable_response(answer: Response, number: int) -> tuple[int, Any]:
    """Return status and body of a response without its request id, and with `number` in place of NEVER."""
    text = answer.text.replace(str(MISSING_ID), str(number))
    if answer.headers.get("Content-Type") != "application/json":
        return answer.status, text
    body = json.loads(text)
    if isinstance(body, dict):
        body.pop("request_id", None)
    return answer.status, body
