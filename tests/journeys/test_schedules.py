"""Schedules, holds and retries; days pass by the simulated clock (P8)."""

import time

import pytest

from tests.conftest import FreshServer
from tests.kit.clock import TestClock
from tests.kit.sampling import full_only
from tests.kit.server import Server
from tests.kit.smtp import SmtpServer


def schedule_campaign(server: Server, clock: TestClock, seconds: float) -> str:
    """Schedule a campaign `seconds` from now and return its path."""
    api = server.client()
    list_id = api.post("/lists", {"name": "Timed"}).json["id"]
    api.post("/contacts", {"email": "t@example.org", "list_ids": [list_id]})
    scheduled_at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(clock.now() + seconds))
    content = {"subject": "s", "body": "b", "from_email": "a@b.example"}
    body = {"name": "Timed", "scheduled_at": scheduled_at, "trigger_attributes": {"contact_list_id": list_id}}
    response = api.post("/campaigns", body | {"template_attributes": content})
    path = f"/campaigns/{response.expect(201)['id']}"
    assert api.post(f"{path}/send").expect(200)["phase"] == "scheduled"
    return path


def test_a_scheduled_campaign_starts_once(fresh_server: FreshServer, smtp_server: SmtpServer, clock: TestClock) -> None:
    """It starts at its time with the audience of that moment, and not again when the clock steps back."""
    server = fresh_server(relay=smtp_server.port, clock=clock)
    api = server.client()
    path = schedule_campaign(server, clock, 3 * 86_400)
    clock.advance(days=2)
    time.sleep(2)
    assert (api.get(path).json["phase"], smtp_server.messages) == ("scheduled", [])
    api.post("/contacts", {"email": "late-joiner@example.org", "list_ids": [api.get("/lists").json[0]["id"]]}).expect(
        201
    )
    clock.advance(days=1, seconds=5)
    completed = api.wait(path, lambda row: row["status"] == "completed")
    clock.advance(hours=-2)
    time.sleep(2)

    assert (completed["stats"]["sent"], len(smtp_server.messages)) == (2, 2)


@pytest.mark.parametrize(
    ("down", "status"), [({"hours": 5, "minutes": 55}, "completed"), ({"hours": 6, "minutes": 15}, "paused")]
)
def test_a_start_missed_during_downtime(
    down: dict[str, float], status: str, fresh_server: FreshServer, smtp_server: SmtpServer, clock: TestClock
) -> None:
    """Up to six hours late the campaign starts once when the service is back; later it is paused."""
    server = fresh_server(relay=smtp_server.port, clock=clock)
    path = schedule_campaign(server, clock, 300)
    server.kill()
    clock.advance(**down)
    api = server.start().client()
    api.wait(path, lambda row: row["status"] == status)
    server.kill()
    # Neither a restart nor a clock that steps back starts it again
    clock.advance(hours=-3)
    api = server.start().client()
    time.sleep(2)

    assert len(smtp_server.messages) == (status == "completed")
    assert api.get(path).expect(200)["pause_reason"] == (None if status == "completed" else "missed_start")


@pytest.mark.full
@pytest.mark.parametrize(("step", "status"), [full_only({"hours": 3}, "completed"), ({"days": 10}, "paused")])
def test_a_clock_step_over_the_scheduled_time(
    step: dict[str, float], status: str, fresh_server: FreshServer, smtp_server: SmtpServer, clock: TestClock
) -> None:
    """A step forward counts like downtime: started late once, or missed; further steps start nothing again."""
    server = fresh_server(relay=smtp_server.port, clock=clock)
    api = server.client()
    path = schedule_campaign(server, clock, 600)
    clock.advance(hours=-2)
    time.sleep(1.5)
    early = api.get(path).expect(200)["phase"]
    clock.advance(hours=2)
    clock.advance(**step)
    api.wait(path, lambda row: row["status"] == status)
    for hours in (-3, 3, -3, 3):
        clock.advance(hours=hours)
        time.sleep(1.2)

    assert (early, len(smtp_server.messages)) == ("scheduled", int(status == "completed"))


def test_a_clock_step_back_during_a_send(fresh_server: FreshServer, smtp_server: SmtpServer, clock: TestClock) -> None:
    """After a step of two hours back during a send, each recipient still gets the message once."""
    gate = smtp_server.rules.hold("body")
    server = fresh_server(relay=smtp_server.port, clock=clock)
    api = server.client()
    list_id = api.post("/lists", {"name": "Many"}).expect(201)["id"]
    for number in range(40):
        api.post("/contacts", {"email": f"p{number}@example.org", "list_ids": [list_id]}).expect(201)
    content = {"subject": "s", "body": "b", "from_email": "a@b.example"}
    campaign = api.post("/campaigns", {"name": "Many", "template_attributes": content}).expect(201)
    path = f"/campaigns/{campaign['id']}"
    api.post(f"{path}/send", {"trigger_attributes": {"contact_list_id": list_id}}).expect(200)
    gate.wait_reached()
    clock.advance(hours=-2)
    gate.release()
    completed = api.wait(path, lambda row: row["status"] == "completed", timeout=20)

    assert completed["stats"]["sent"] == 40
    assert len({message.to for message in smtp_server.messages}) == len(smtp_server.messages) == 40


@pytest.mark.parametrize(
    ("local", "instant"),
    [
        # Berlin: 02:30 does not exist on the first day, and comes twice on the second, in DST and after it
        ("2027-03-28T02:30:00+01:00", 1_806_197_400),
        full_only("2027-10-31T02:30:00+02:00", 1_824_942_600),
        full_only("2027-10-31T02:30:00+01:00", 1_824_946_200),
        # New York
        full_only("2027-03-14T02:30:00-05:00", 1_805_009_400),
        full_only("2027-11-07T01:30:00-04:00", 1_825_565_400),
    ],
)
def test_days_of_dst_changes(
    local: str, instant: int, fresh_server: FreshServer, smtp_server: SmtpServer, clock: TestClock
) -> None:
    """A time with its offset is one instant, also around DST changes: the campaign starts then, once."""
    clock.set(instant - 3600 - time.time())
    server = fresh_server(relay=smtp_server.port, clock=clock)
    api = server.client()
    path = schedule_campaign(server, clock, 1800)
    scheduled_at = api.patch(path, {"scheduled_at": local}).expect(200)["scheduled_at"]
    clock.set(instant - 3 - time.time())
    time.sleep(1.2)
    early = api.get(path).expect(200)["phase"]
    completed = api.wait(path, lambda row: row["status"] == "completed")
    clock.advance(hours=-1)
    clock.advance(hours=2)
    time.sleep(1.2)

    assert scheduled_at == time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(instant))
    assert (early, completed["stats"]["sent"], len(smtp_server.messages)) == ("scheduled", 1, 1)


def test_scheduled_content_locks_five_minutes_before(fresh_server: FreshServer, clock: TestClock) -> None:
    """Until five minutes before the start the content may change, afterwards only the name."""
    server = fresh_server(clock=clock)
    api = server.client()
    path = schedule_campaign(server, clock, 3600)
    assert api.patch(path, {"template_attributes": {"subject": "new"}}).status == 200
    clock.advance(minutes=56)

    assert api.get(path).json["editable"] is False
    assert api.patch(path, {"template_attributes": {"subject": "newer"}}).expect(422)["reason"] == "campaign_locked"
    assert api.patch(path, {"name": "Renamed"}).status == 200


def test_a_missed_start_can_be_resumed(fresh_server: FreshServer, smtp_server: SmtpServer, clock: TestClock) -> None:
    """After a downtime of seven hours the campaign is paused as `missed_start`, and can be resumed."""
    server = fresh_server(relay=smtp_server.port, clock=clock)
    path = schedule_campaign(server, clock, 600)
    server.stop()
    clock.advance(hours=7)
    api = server.restart().client()
    paused = api.wait(path, lambda row: row["status"] == "paused")

    assert (paused["pause_reason"], smtp_server.messages) == ("missed_start", [])
    assert api.post(f"{path}/resume").expect(200)["status"] == "active"
    assert api.wait(path, lambda row: row["status"] == "completed")["stats"]["sent"] == 1


def test_hold_seconds(fresh_server: FreshServer, smtp_server: SmtpServer, clock: TestClock) -> None:
    """With `hold_seconds` nothing is sent until the hold ends."""
    server = fresh_server(relay=smtp_server.port, clock=clock)
    api = server.client()
    path = schedule_campaign(server, clock, 86_400)
    api.patch(path, {"scheduled_at": None}).expect(200)
    assert api.post(f"{path}/send", {"hold_seconds": 900}).expect(200)["phase"] == "holding"
    time.sleep(1.5)
    assert smtp_server.messages == []
    clock.advance(minutes=16)

    assert api.wait(path, lambda row: row["status"] == "completed")["stats"]["sent"] == 1


def test_retries_end_after_three_days(fresh_server: FreshServer, smtp_server: SmtpServer, clock: TestClock) -> None:
    """A recipient whose server keeps replying 450 fails as `expired`, with the last reply (P6)."""
    smtp_server.rules.reject("rcpt", code=450, text="4.2.2 mailbox full")
    server = fresh_server(relay=smtp_server.port, clock=clock, env={"CAMPANERO_EMAIL__RETRY_AFTER": "3600"})
    api = server.client()
    path = schedule_campaign(server, clock, 60)
    clock.advance(minutes=2)
    api.wait(path, lambda row: row["phase"] == "sending")
    for attempt in range(1, 5):
        api.wait("/messages", lambda rows, least=attempt: rows[0]["attempts"] >= least)
        clock.advance(days=1)
    completed = api.wait(path, lambda row: row["status"] == "completed")
    row = api.get("/messages", campaign_id=completed["id"]).json[0]

    assert (row["status"], row["error"]["code"], row["error"]["enhanced"]) == ("failed", "expired", "4.2.2")
    assert row["attempts"] == len(smtp_server.phases("rcpt")) == 4
