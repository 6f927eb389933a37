"""What happens when its time comes (P8); days pass by the clock of the test."""

import time

import pytest

from tests.conftest import FreshServer
from tests.kit.clock import TestClock
from tests.kit.server import Server
from tests.kit.smtp import SmtpServer


def armed(server: Server, clock: TestClock, seconds: float) -> str:
    """Arm a campaign for so many seconds from now and answer its path."""
    api = server.client()
    group = api.post("/lists", {"name": "Timed"}).json["id"]
    api.post("/contacts", {"email": "t@example.org", "list_ids": [group]})
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(clock.now() + seconds))
    content = {"subject": "s", "body": "b", "from_email": "a@b.example"}
    body = {"name": "Timed", "scheduled_at": when, "trigger_attributes": {"contact_list_id": group}}
    made = api.post("/campaigns", body | {"template_attributes": content})
    path = f"/campaigns/{made.expect(201)['id']}"
    assert api.post(f"{path}/send").expect(200)["phase"] == "scheduled"
    return path


def test_a_campaign_fires_at_its_time_and_once(
    fresh_server: FreshServer, smtp_server: SmtpServer, clock: TestClock
) -> None:
    """Not before, and a clock that steps back does not fire it twice; the audience is that of the moment it fires."""
    server = fresh_server(relay=smtp_server.port, clock=clock)
    api = server.client()
    path = armed(server, clock, 3 * 86_400)
    clock.advance(days=2)
    time.sleep(2)
    assert (api.get(path).json["phase"], smtp_server.messages) == ("scheduled", [])
    api.post("/contacts", {"email": "late-joiner@example.org", "list_ids": [api.get("/lists").json[0]["id"]]}).expect(
        201
    )
    clock.advance(days=1, seconds=5)
    done = api.wait(path, lambda row: row["status"] == "completed")
    clock.advance(hours=-2)
    time.sleep(2)

    assert (done["stats"]["sent"], len(smtp_server.messages)) == (2, 2)


@pytest.mark.parametrize(
    ("down", "status"), [({"hours": 5, "minutes": 55}, "completed"), ({"hours": 6, "minutes": 15}, "paused")]
)
def test_down_time_over_the_moment(
    down: dict[str, float], status: str, fresh_server: FreshServer, smtp_server: SmtpServer, clock: TestClock
) -> None:
    """Up to six hours late it starts when the service is back, once; later it waits for a person."""
    server = fresh_server(relay=smtp_server.port, clock=clock)
    path = armed(server, clock, 300)
    server.kill()
    clock.advance(**down)
    api = server.start().client()
    api.wait(path, lambda row: row["status"] == status)
    server.kill()
    # Neither another start nor a clock that goes back starts it again
    clock.advance(hours=-3)
    api = server.start().client()
    time.sleep(2)

    assert len(smtp_server.messages) == (status == "completed")
    assert api.get(path).expect(200)["pause_reason"] == (None if status == "completed" else "missed_start")


@pytest.mark.parametrize(("step", "status"), [({"hours": 3}, "completed"), ({"days": 10}, "paused")])
def test_a_clock_that_jumps_over_the_moment(
    step: dict[str, float], status: str, fresh_server: FreshServer, smtp_server: SmtpServer, clock: TestClock
) -> None:
    """A step forward is as a down-time: started late once, or missed; stepping back and forth starts nothing twice."""
    server = fresh_server(relay=smtp_server.port, clock=clock)
    api = server.client()
    path = armed(server, clock, 600)
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


def test_a_clock_that_goes_back_stalls_nothing(
    fresh_server: FreshServer, smtp_server: SmtpServer, clock: TestClock
) -> None:
    """In the middle of a send it steps back two hours: what was due stays due, and everybody gets it once."""
    gate = smtp_server.rules.hold("body")
    server = fresh_server(relay=smtp_server.port, clock=clock)
    api = server.client()
    group = api.post("/lists", {"name": "Many"}).expect(201)["id"]
    for number in range(40):
        api.post("/contacts", {"email": f"p{number}@example.org", "list_ids": [group]}).expect(201)
    content = {"subject": "s", "body": "b", "from_email": "a@b.example"}
    made = api.post("/campaigns", {"name": "Many", "template_attributes": content}).expect(201)
    path = f"/campaigns/{made['id']}"
    api.post(f"{path}/send", {"trigger_attributes": {"contact_list_id": group}}).expect(200)
    gate.wait_reached()
    clock.advance(hours=-2)
    gate.release()
    done = api.wait(path, lambda row: row["status"] == "completed", timeout=20)

    assert done["stats"]["sent"] == 40
    assert len({message.to for message in smtp_server.messages}) == len(smtp_server.messages) == 40


@pytest.mark.parametrize(
    ("local", "instant"),
    [
        # Berlin: 02:30 does not exist on this day; 02:30 comes twice on that one, in summer time and again in winter's
        ("2027-03-28T02:30:00+01:00", 1_806_197_400),
        ("2027-10-31T02:30:00+02:00", 1_824_942_600),
        ("2027-10-31T02:30:00+01:00", 1_824_946_200),
        # New York
        ("2027-03-14T02:30:00-05:00", 1_805_009_400),
        ("2027-11-07T01:30:00-04:00", 1_825_565_400),
    ],
)
def test_days_on_which_clocks_are_changed(
    local: str, instant: int, fresh_server: FreshServer, smtp_server: SmtpServer, clock: TestClock
) -> None:
    """A time with its offset is one instant, whatever the calendar does around it: not before, and once."""
    clock.set(instant - 3600 - time.time())
    server = fresh_server(relay=smtp_server.port, clock=clock)
    api = server.client()
    path = armed(server, clock, 1800)
    armed_for = api.patch(path, {"scheduled_at": local}).expect(200)["scheduled_at"]
    clock.set(instant - 3 - time.time())
    time.sleep(1.2)
    early = api.get(path).expect(200)["phase"]
    done = api.wait(path, lambda row: row["status"] == "completed")
    clock.advance(hours=-1)
    clock.advance(hours=2)
    time.sleep(1.2)

    assert armed_for == time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(instant))
    assert (early, done["stats"]["sent"], len(smtp_server.messages)) == ("scheduled", 1, 1)


def test_scheduled_content_locks_five_minutes_before(fresh_server: FreshServer, clock: TestClock) -> None:
    """Until then it may change, after that only its name."""
    server = fresh_server(clock=clock)
    api = server.client()
    path = armed(server, clock, 3600)
    assert api.patch(path, {"template_attributes": {"subject": "new"}}).status == 200
    clock.advance(minutes=56)

    assert api.get(path).json["editable"] is False
    assert api.patch(path, {"template_attributes": {"subject": "newer"}}).expect(422)["reason"] == "campaign_locked"
    assert api.patch(path, {"name": "Renamed"}).status == 200


def test_a_start_missed_by_hours_waits_for_a_person(
    fresh_server: FreshServer, smtp_server: SmtpServer, clock: TestClock
) -> None:
    """After a long down-time nothing goes out by surprise."""
    server = fresh_server(relay=smtp_server.port, clock=clock)
    path = armed(server, clock, 600)
    server.stop()
    clock.advance(hours=7)
    api = server.restart().client()
    paused = api.wait(path, lambda row: row["status"] == "paused")

    assert (paused["pause_reason"], smtp_server.messages) == ("missed_start", [])
    assert api.post(f"{path}/resume").expect(200)["status"] == "active"
    assert api.wait(path, lambda row: row["status"] == "completed")["stats"]["sent"] == 1


def test_a_held_send_goes_when_the_hold_ends(
    fresh_server: FreshServer, smtp_server: SmtpServer, clock: TestClock
) -> None:
    """`hold_seconds` keeps everything back for that long."""
    server = fresh_server(relay=smtp_server.port, clock=clock)
    api = server.client()
    path = armed(server, clock, 86_400)
    api.patch(path, {"scheduled_at": None}).expect(200)
    assert api.post(f"{path}/send", {"hold_seconds": 900}).expect(200)["phase"] == "holding"
    time.sleep(1.5)
    assert smtp_server.messages == []
    clock.advance(minutes=16)

    assert api.wait(path, lambda row: row["status"] == "completed")["stats"]["sent"] == 1


def test_retries_end_after_three_days(fresh_server: FreshServer, smtp_server: SmtpServer, clock: TestClock) -> None:
    """A recipient whose server keeps saying `later` fails in the end, with its last words (P6)."""
    smtp_server.rules.refuse("rcpt", code=450, text="4.2.2 mailbox full")
    server = fresh_server(relay=smtp_server.port, clock=clock, env={"CAMPANERO_EMAIL__RETRY_AFTER": "3600"})
    api = server.client()
    path = armed(server, clock, 60)
    clock.advance(minutes=2)
    api.wait(path, lambda row: row["phase"] == "sending")
    for attempt in range(1, 5):
        api.wait("/messages", lambda rows, least=attempt: rows[0]["attempts"] >= least)
        clock.advance(days=1)
    done = api.wait(path, lambda row: row["status"] == "completed")
    row = api.get("/messages", campaign_id=done["id"]).json[0]

    assert (row["status"], row["error"]["code"], row["error"]["enhanced"]) == ("failed", "expired", "4.2.2")
    assert row["attempts"] == len(smtp_server.phases("rcpt")) == 4
