"""`scheduled_at` in the body of a send has the effect of a PATCH before the send (docs/decisions.md#1 and #6)."""

import time
from itertools import count
from typing import Any

import pytest

from tests.conftest import FreshServer
from tests.kit.client import Client
from tests.kit.clock import TestClock
from tests.kit.server import Server
from tests.kit.smtp import SmtpServer

HOUR = 3600
_NUMBERS = count()
CONTENT = {"subject": "Sale", "body": "<p>Hi</p>", "from_email": "ana@bakery.example"}


def in_seconds(seconds: float, now: float | None = None) -> str:
    """Return a time some seconds from now in the format of the API."""
    return time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime((now or time.time()) + seconds))


def create_campaign(api: Client, **body: Any) -> str:
    """Create a campaign to one contact and return its path."""
    contact_list = api.post("/lists", {"name": f"Timed {next(_NUMBERS)}"}).expect(201)["id"]
    api.post("/contacts", {"email": "t@example.org", "list_ids": [contact_list]})
    trigger = {"contact_list_id": contact_list}
    campaign = {"name": "Timed", "template_attributes": CONTENT, "trigger_attributes": trigger}
    return f"/campaigns/{api.post('/campaigns', campaign | body).expect(201)['id']}"


def messages_of(api: Client, path: str) -> list[Any]:
    """Return the messages of a campaign."""
    rows: list[Any] = api.get("/messages", campaign_id=path.rpartition("/")[2]).expect(200)
    return rows


def test_a_future_time_schedules_the_send(fresh_server: FreshServer, smtp_server: SmtpServer, clock: TestClock) -> None:
    """The response shows `scheduled`, and the message is sent once at that time."""
    server = fresh_server(relay=smtp_server.port, clock=clock)
    api, when = server.client(), in_seconds(HOUR, clock.now())
    path = create_campaign(api)
    sent = api.post(f"{path}/send", {"scheduled_at": when}).expect(200)
    time.sleep(1)
    assert (sent["status"], sent["phase"], sent["scheduled_at"]) == ("active", "scheduled", when)
    assert (messages_of(api, path), smtp_server.messages) == ([], [])
    clock.advance(HOUR + 5)
    api.wait(path, lambda row: row["status"] == "completed")
    assert len(smtp_server.messages) == 1


@pytest.mark.parametrize("when", ["past", None], ids=["past", "null"])
@pytest.mark.parametrize("stored", [None, HOUR], ids=["nothing-stored", "an-hour-stored"])
def test_a_past_time_or_null_sends_now(api: Client, when: str | None, stored: int | None) -> None:
    """The send starts at once, also if the campaign had a time."""
    path = create_campaign(api, scheduled_at=stored and in_seconds(stored))
    body = {"scheduled_at": when and in_seconds(-HOUR), "hold_seconds": 600}
    sent = api.post(f"{path}/send", body).expect(200)

    assert (sent["phase"], sent["scheduled_at"], sent["audience_count"]) == ("holding", body["scheduled_at"], 1)
    api.post(f"{path}/cancel").expect(200)


@pytest.mark.parametrize("wrong", ["tomorrow", "2027-01-01T10:00:00", 1_900_000_000, ["2027-01-01T10:00:00Z"], ""])
def test_an_invalid_time_is_rejected(api: Client, wrong: Any) -> None:
    """The error is reported together with others, and nothing is sent."""
    path = create_campaign(api)
    error = api.post(f"{path}/send", {"scheduled_at": wrong, "hold_seconds": -1}).expect(422)["validation_errors"]

    assert (set(error), error["scheduled_at"]) == ({"scheduled_at", "hold_seconds"}, ["is invalid"])
    assert (api.get(path).expect(200)["status"], messages_of(api, path)) == ("draft", [])


def test_reschedule_and_start_a_scheduled_campaign(api: Client) -> None:
    """Another future time moves it, the same changes nothing, null starts it; a started campaign is locked."""
    path, first, second = create_campaign(api), in_seconds(HOUR), in_seconds(2 * HOUR)
    api.post(f"{path}/send", {"scheduled_at": first}).expect(200)
    moved = api.post(f"{path}/send", {"scheduled_at": second}).expect(200)
    same = api.post(f"{path}/send", {"scheduled_at": second}).expect(200)
    plain = api.post(f"{path}/send").expect(200)
    assert {(campaign["phase"], campaign["scheduled_at"]) for campaign in (moved, same, plain)} == {
        ("scheduled", second)
    }
    assert api.get(path).expect(200)["scheduled_at"] == second

    started = api.post(f"{path}/send", {"scheduled_at": None, "hold_seconds": 600}).expect(200)
    assert (started["phase"], started["scheduled_at"], len(messages_of(api, path))) == ("holding", None, 1)
    # The time of a started campaign cannot change
    late = api.post(f"{path}/send", {"scheduled_at": first}).expect(422)
    assert (late["reason"], late["status"]) == ("campaign_locked", "active")
    assert api.post(f"{path}/send", {"scheduled_at": None}).expect(200)["phase"] == "holding"
    api.post(f"{path}/cancel").expect(200)
    assert api.post(f"{path}/send", {"scheduled_at": second}).expect(422)["reason"] == "campaign_locked"


def test_the_time_is_locked_before_the_send(fresh_server: FreshServer, clock: TestClock) -> None:
    """Five minutes before, the time can neither change nor be cleared; the same time is not an error."""
    api = fresh_server(clock=clock).client()
    path, when = create_campaign(api), in_seconds(HOUR, clock.now())
    api.post(f"{path}/send", {"scheduled_at": when}).expect(200)
    clock.advance(HOUR - 240)
    for other in (in_seconds(2 * HOUR, clock.now()), in_seconds(-HOUR, clock.now()), None):
        assert api.post(f"{path}/send", {"scheduled_at": other}).expect(422)["reason"] == "campaign_locked"
    assert api.post(f"{path}/send", {"scheduled_at": when}).expect(200)["phase"] == "scheduled"


@pytest.mark.parametrize(("hold", "phase"), [(60, "scheduled"), (2 * HOUR, "holding")])
def test_a_hold_with_a_scheduled_time(api: Client, hold: int, phase: str) -> None:
    """The later of hold and time decides the phase."""
    path = create_campaign(api)
    sent = api.post(f"{path}/send", {"scheduled_at": in_seconds(HOUR), "hold_seconds": hold}).expect(200)

    assert sent["phase"] == phase
    api.post(f"{path}/cancel").expect(200)


def test_a_blocked_send_is_not_scheduled(api: Client) -> None:
    """A rejected send stores nothing, not even the time."""
    path = f"/campaigns/{api.post('/campaigns', {'name': 'Empty'}).expect(201)['id']}"
    error = api.post(f"{path}/send", {"scheduled_at": in_seconds(HOUR)}).expect(422)

    assert error["reason"] == "audience_required"
    after = api.get(path).expect(200)
    assert (after["status"], after["scheduled_at"]) == ("draft", None)


def test_idempotency_key_of_a_scheduled_send(api: Client) -> None:
    """A repeat returns the campaign as it is now; another time with the same key is a conflict."""
    path, when = create_campaign(api), in_seconds(HOUR)
    key = {"Idempotency-Key": "spring-sale"}
    api.post(f"{path}/send", {"scheduled_at": when}, key).expect(200)
    api.patch(path, {"status": "draft"}).expect(200)
    again = api.post(f"{path}/send", {"scheduled_at": when}, key)

    assert (again.expect(200)["phase"], again.headers["Idempotent-Replayed"]) == ("draft", "true")
    other = api.post(f"{path}/send", {"scheduled_at": in_seconds(2 * HOUR)}, key)
    assert (other.status, other.json["code"]) == (409, "idempotency_conflict")


def test_scheduled_sends_with_approval_and_test_keys(server: Server, api: Client) -> None:
    """A test key cannot move a live campaign; a time needs no approval, and changed content does."""
    tester = server.client(server.new_key("tests", "--test"))
    path, when = create_campaign(api), in_seconds(HOUR)
    api.post(f"{path}/send", {"scheduled_at": when}).expect(200)
    assert tester.post(f"{path}/send", {"scheduled_at": None}).status == 403
    assert api.get(path).expect(200)["scheduled_at"] == when

    own = create_campaign(api)
    assert tester.post(f"{own}/send", {"scheduled_at": when}).expect(200)["phase"] == "scheduled"
    tester.post(f"{own}/send", {"scheduled_at": None, "hold_seconds": 0}).expect(200)
    api.wait(own, lambda row: row["status"] == "completed")
    assert [row["test"] for row in messages_of(api, own)] == [True]

    api.patch("/account", {"approval_required": True}).expect(200)
    try:
        writer = server.client(server.new_key("writer", "--scope", "campaigns:write,campaigns:send"))
        waiting = create_campaign(api)
        error = writer.post(f"{waiting}/send", {"scheduled_at": when}).expect(422)
        assert error["reason"] == "approval_required"
        api.post(f"{waiting}/approve").expect(200)
        assert writer.post(f"{waiting}/send", {"scheduled_at": when}).expect(200)["phase"] == "scheduled"
        assert writer.post(f"{waiting}/send", {"scheduled_at": in_seconds(2 * HOUR)}).expect(200)
        # Changed content needs approval again, also if the send would start at once
        changed = {"scheduled_at": None, "template_attributes": {"subject": "Other"}}
        assert writer.post(f"{waiting}/send", changed).expect(422)["reason"] == "approval_required"
        assert api.get(waiting).expect(200)["template"]["subject"] == "Sale"
    finally:
        api.patch("/account", {"approval_required": False}).expect(200)
