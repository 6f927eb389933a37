"""A scheduled campaign whose segment has nobody, or everybody, at its time (P8, docs/decisions.md#8)."""

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
    """A client of a server with two people that sends through the kit's relay and lives by the test's clock."""
    client = fresh_server(relay=smtp_server.port, clock=clock).client()
    for name in ("one", "two"):
        client.post("/contacts", {"email": f"{name}@example.org"}).expect(201)
    return client


def armed(api: Client, clock: TestClock, filters: list[dict[str, Any]], **confirmed: Any) -> tuple[str, int]:
    """Arm a campaign to a segment for an hour from now, and answer its path and the segment."""
    segment = api.post("/segments", {"name": "Whom", "filters": filters}).expect(201)["id"]
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(clock.now() + 3600))
    content = {"subject": "s", "body": "b", "from_email": "a@b.example"}
    made = api.post("/campaigns", {
        "name": "Timed", "scheduled_at": when, "trigger_attributes": {"segment_id": segment},
        "template_attributes": content,
    }).expect(201)  # fmt: skip
    path = f"/campaigns/{made['id']}"
    assert api.post(f"{path}/send", confirmed).expect(200)["phase"] == "scheduled"
    return path, segment


def test_a_segment_of_nobody_is_sent_to_nobody(api: Client, smtp_server: SmtpServer, clock: TestClock) -> None:
    """A segment that matches nobody when the time comes completes at once, with an audience of none."""
    path, _ = armed(api, clock, NOBODY)
    clock.advance(hours=1, seconds=5)
    done = api.wait(path, lambda row: row["status"] == "completed")
    assert (done["audience_count"], done["stats"]["sent"], smtp_server.messages) == (0, 0, [])
    assert api.get("/messages", campaign_id=int(path.split("/")[-1])).json == []


def test_who_comes_into_the_segment_in_time_is_sent_to(api: Client, smtp_server: SmtpServer, clock: TestClock) -> None:
    """The segment of the moment it fires counts, though it had nobody when the campaign was armed."""
    path, _ = armed(api, clock, NOBODY)
    api.post("/contacts", {"email": "nobody@example.org"}).expect(201)
    clock.advance(hours=1, seconds=5)
    done = api.wait(path, lambda row: row["status"] == "completed")
    assert (done["audience_count"], len(smtp_server.messages)) == (1, 1)


def test_a_segment_that_lost_its_filters_is_not_everybody(
    api: Client, smtp_server: SmtpServer, clock: TestClock
) -> None:
    """Filters taken away after the campaign was armed pause it: nobody ever confirmed that all people get it."""
    path, segment = armed(api, clock, NOBODY)
    api.patch(f"/segments/{segment}", {"filters": []}).expect(200)
    clock.advance(hours=1, seconds=5)
    paused = api.wait(path, lambda row: row["status"] == "paused")
    assert (paused["pause_reason"], smtp_server.messages) == ("confirmation_required", [])


def test_everybody_confirmed_when_armed_is_everybody(api: Client, smtp_server: SmtpServer, clock: TestClock) -> None:
    """A segment without filters, confirmed when the campaign was armed, needs no second confirmation at its time."""
    path, _ = armed(api, clock, [], confirm_send_to_all=True)
    clock.advance(hours=1, seconds=5)
    done = api.wait(path, lambda row: row["status"] == "completed")
    assert (done["audience_count"], len(smtp_server.messages)) == (2, 2)
