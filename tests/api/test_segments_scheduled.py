"""Scheduled campaigns whose segment matches no contact or all contacts at their time (P8, docs/decisions.md#8)."""

import time
from typing import Any

from tests.conftest import FreshServer
from tests.kit.client import Client
from tests.kit.clock import TestClock
from tests.kit.smtp import SmtpServer


def filters_for(name: str) -> list[dict[str, Any]]:
    """Return filters that match one address."""
    return [{"name": "email", "predicate": "eq", "value": f"{name}@example.org"}]


def schedule_campaign(
    api: Client, clock: TestClock, filters: list[dict[str, Any]], **confirmed: Any
) -> tuple[str, int]:
    """Schedule a campaign to a segment for an hour from now; return its path and the id of the segment."""
    segment = api.post("/segments", {"name": "Whom", "filters": filters}).expect(201)["id"]
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(clock.now() + 3600))
    content = {"subject": "s", "body": "b", "from_email": "a@b.example"}
    campaign = api.post("/campaigns", {
        "name": "Timed", "scheduled_at": when, "trigger_attributes": {"segment_id": segment},
        "template_attributes": content,
    }).expect(201)  # fmt: skip
    path = f"/campaigns/{campaign['id']}"
    assert api.post(f"{path}/send", confirmed).expect(200)["phase"] == "scheduled"
    return path, segment


def test_the_segment_is_evaluated_at_the_time_of_the_send(
    fresh_server: FreshServer, smtp_server: SmtpServer, clock: TestClock
) -> None:
    """An audience of nobody completes, contacts that match by then get the message, and all contacts are confirmed.

    If the filters are removed after scheduling, the campaign is paused instead of sent to all contacts.
    """
    api = fresh_server(relay=smtp_server.port, clock=clock).client()
    for name in ("first", "second"):
        api.post("/contacts", {"email": f"{name}@example.org"}).expect(201)
    nobody, _ = schedule_campaign(api, clock, filters_for("nobody"))
    late, _ = schedule_campaign(api, clock, filters_for("late"))
    widened, segment = schedule_campaign(api, clock, filters_for("nobody"))
    everybody, _ = schedule_campaign(api, clock, [], confirm_send_to_all=True)
    api.post("/contacts", {"email": "late@example.org"}).expect(201)
    api.patch(f"/segments/{segment}", {"filters": []}).expect(200)
    clock.advance(hours=1, seconds=5)

    done = [api.wait(path, lambda row: row["status"] == "completed") for path in (nobody, late, everybody)]
    assert [(row["audience_count"], row["stats"]["sent"]) for row in done] == [(0, 0), (1, 1), (3, 3)]
    paused = api.wait(widened, lambda row: row["status"] == "paused")
    assert paused["pause_reason"] == "confirmation_required"
    for path in (nobody, widened):
        assert api.get("/messages", campaign_id=int(path.split("/")[-1])).json == []
    addresses = [f"{name}@example.org" for name in ("first", "late", "late", "second")]
    assert sorted(message.to for message in smtp_server.messages) == addresses
