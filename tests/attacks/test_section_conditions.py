"""One account whose sections have costly conditions on events must not delay the mail of another one (T11)."""

import time
from typing import Any

from tests.kit.client import Client
from tests.kit.server import Server

_MAX_SECONDS = 5  # without a limit, the message of the other account waited for 8 seconds
_TOO_SLOW = "takes too long to check which sections to show: use fewer conditions on events"


def test_costly_sections_of_one_account_delay_no_mail_of_another(server: Server, api: Client) -> None:
    """The costly message is skipped with the reason, which the preview names too."""
    account_id = server.cli("account", "add", "Elsewhere").stdout.strip()
    other = server.client(server.new_key("theirs", "--account", account_id))
    contact_id = other.post("/contacts", {"email": "ann@example.org"}).expect(201)["id"]
    batch = [{"event": "view", "contact_id": contact_id, "data": {"path": "/"}}] * 1_000
    for _ in range(5):
        other.post("/events/batch", {"events": batch}).expect(200)
    design = create_costly_design()
    template = {"name": "Costly", "subject": "S", "design": design}
    template_id = other.post("/templates", template).expect(201)["id"]
    costly = {"to": "ann@example.org", "template_id": template_id, "from_email": "a@example.com"}
    costly_ids = [other.post("/messages", costly).expect(201)["id"] for _ in range(3)]
    started_at = time.monotonic()
    mail = {"to": "bob@example.org", "subject": "S", "body": "<p>x</p>", "from_email": "a@example.com"}
    message_id = api.post("/messages", mail).expect(201)["id"]
    api.wait(f"/messages/{message_id}", lambda row: row["status"] == "sent", timeout=60)
    assert time.monotonic() - started_at < _MAX_SECONDS
    for costly_id in costly_ids:
        message = other.wait(f"/messages/{costly_id}", lambda row: row["status"] == "skipped", timeout=60)
        assert message["skip_reason"] == "render_error" and _TOO_SLOW in str(message)
    shown = other.post("/templates/preview", {"document": design, "contact_id": contact_id}).expect(422)
    assert shown["validation_errors"] == {"document": [_TOO_SLOW]}


def create_costly_design() -> dict[str, Any]:
    """Return a design of 20 sections, each with other conditions that read all events of a contact 20 times."""
    sections = []
    for section in range(20):
        seen = [
            {"name": "event", "predicate": "performed", "value": {"event": "view", "where": [
                {"name": "event.path", "predicate": "cont", "value": f"zzz{section}.{number}"}
            ]}}
            for number in range(20)
        ]  # fmt: skip
        show_if = [{"name": "group", "predicate": "any", "value": seen}]
        sections.append({"type": "text", "props": {"text": f"Hi {section}", "show_if": show_if}})
    return {"sections": sections}
