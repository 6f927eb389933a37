"""Scheduled campaigns whose segment matches no contact or all contacts at their time (P8, docs/decisions.md#8)."""

import time
from typing import Any

import pytest

from tests.conftest import FreshServer
from tests.kit.client import Client
from tests.kit.clock import TestClock
from tests.kit.smtp import SmtpServer

NOBODY = [{"name": "email", "predicate": "eq", "value": "nobody@example.org"}]


@pytest.fixture
def api(fresh_server: FreshServer, smtp_server: SmtpServer, clock: TestClock) -> Client:
    """Return a client of a server with two contacts, an SMTP relay and the test's clock."""
    client = fresh_server(relay=smtp_server.port, clock=clock).client()
    for name in ("one", "two"):
        client.post("/contacts", {"email": f"{name}@example.org"}).expect(201)
    return client


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


def test_an_empty_segment_completes_at_once(api: Client, smtp_server: SmtpServer, clock: TestClock) -> None:
    """A campaign whose segment matches no contact completes with an audience of zero."""
    path, _ = schedule_campaign(api, clock, NOBODY)
    clock.advance(hours=1, seconds=5)
    done = api.wait(path, lambda row: row["status"] == "completed")
    assert (done["audience_count"], done["stats"]["sent"], smtp_server.messages) == (0, 0, [])
    assert api.get("/messages", campaign_id=int(path.split("/")[-1])).json == []


def test_the_segment_is_evaluated_at_the_time_of_the_send(
    api: Client, smtp_server: SmtpServer, clock: TestClock
) -> None:
    """A contact that matches after scheduling and before the send gets the message."""
    path, _ = schedule_campaign(api, clock, NOBODY)
    api.post("/contacts", {"email": "nobody@example.org"}).expect(201)
    clock.advance(hours=1, seconds=5)
    done = api.wait(path, lambda row: row["status"] == "completed")
    assert (done["audience_count"], len(smtp_server.messages)) == (1, 1)


def test_a_segment_without_filters_pauses_the_campaign(api: Client, smtp_server: SmtpServer, clock: TestClock) -> None:
    """If the filters are removed after scheduling, the campaign is paused instead of sent to all contacts."""
    path, segment = schedule_campaign(api, clock, NOBODY)
    api.patch(f"/segments/{segment}", {"filters": []}).expect(200)
    clock.advance(hours=1, seconds=5)
    paused = api.wait(path, lambda row: row["status"] == "paused")
    assert (paused["pause_reason"], smtp_server.messages) == ("confirmation_required", [])


def test_confirmation_counts_for_a_scheduled_send(api: Client, smtp_server: SmtpServer, clock: TestClock) -> None:
    """A segment without filters that was confirmed when scheduling is sent to all contacts."""
    path, _ = schedule_campaign(api, clock, [], confirm_send_to_all=True)
    clock.advance(hours=1, seconds=5)
    done = api.wait(path, lambda row: row["status"] == "completed")
    assert (done["audience_count"], len(smtp_server.messages)) == (2, 2)
