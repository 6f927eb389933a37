"""Quiet hours by time zone: an SMS campaign reaches each recipient in the daytime of its own time zone."""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from tests.conftest import FreshServer
from tests.kit.client import Client
from tests.kit.clock import TestClock
from tests.kit.fake_sms import FakeSms

NIGHT = {"from": "21:00", "to": "08:00"}
# In Boston DST begins in this night
START = "2027-03-14T06:00:00+00:00"
# Time zone by phone number, and further fields of the contact
PEOPLE: dict[str, tuple[str, dict[str, Any]]] = {
    "+4915112345678": ("Europe/Berlin", {}),
    "+16175550123": ("America/New_York", {}),
    "+819012345678": ("Asia/Tokyo", {}),
    "+18085550123": ("Pacific/Honolulu", {}),
    "+5511961234567": ("America/Sao_Paulo", {}),
    "+16175550124": ("Asia/Kolkata", {"data": {"time_zone": "Asia/Kolkata"}}),
    "+80012345678": ("Europe/London", {}),  # no country: the account's time zone
}
BERLIN_NUMBERS = [f"+49151555{last:05}" for last in range(40)]


def local_time(moment: str, zone: str) -> datetime:
    """Return the local time in a zone."""
    return datetime.fromisoformat(moment.replace("Z", "+00:00")).astimezone(ZoneInfo(zone))


def wait_until_settled(api: Client, clock: TestClock) -> list[dict[str, Any]]:
    """Wait until no message can change before the clock advances, and return all messages."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        messages = api.get("/messages", limit=100).expect(200)
        now = datetime.fromtimestamp(clock.now(), UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        open_messages = [message for message in messages if message["status"] in ("queued", "sending")]
        overdue = [message for message in messages if message["status"] == "held" and message["next_attempt_at"] <= now]
        if messages and not open_messages and not overdue:
            return list(messages)
        time.sleep(0.05)
    raise AssertionError([message["status"] for message in messages])


def advance_until(api: Client, clock: TestClock, ready: Callable[[list[dict[str, Any]]], bool]) -> list[dict[str, Any]]:
    """Advance the clock from one end of quiet hours to the next until `ready`, and return the messages."""
    for _ in range(12):
        rows = wait_until_settled(api, clock)
        held_until = [row["next_attempt_at"] for row in rows if row["status"] == "held"]
        if ready(rows) or not held_until:
            return rows
        first = datetime.fromisoformat(min(held_until).replace("Z", "+00:00"))
        clock.advance(max(0.0, first.timestamp() - clock.now()) + 61)
    raise AssertionError("it takes too long")


def send(api: Client, name: str, people: list[int]) -> int:
    """Send a campaign to these contacts and return its id."""
    list_id = api.post("/lists", {"name": name, "contact_ids": people}).expect(201)["id"]
    request = {"name": name, "channel": "sms", "trigger_attributes": {"contact_list_id": list_id},
             "template_attributes": {"body": f"{name} is here. Reply STOP to leave"}}  # fmt: skip
    campaign: int = api.post("/campaigns", request).expect(201)["id"]
    api.post(f"/campaigns/{campaign}/send").expect(200)
    return campaign


def test_quiet_hours_by_time_zone(fresh_server: FreshServer, fake_sms: FakeSms, clock: TestClock) -> None:
    """Recipients in daytime get it at once, others when their quiet hours end; a transactional SMS is never held."""
    clock.advance(datetime.fromisoformat(START).timestamp() - clock.now())
    server = fresh_server(env=fake_sms.env, clock=clock)
    api = server.client()
    api.patch("/account", {"sms_quiet_hours": NIGHT, "time_zone": "Europe/London"}).expect(200)
    contact_ids = [
        api.post("/contacts", {"phone": number} | body).expect(201)["id"] for number, (_, body) in PEOPLE.items()
    ]
    contact_ids += [api.post("/contacts", {"phone": number}).expect(201)["id"] for number in BERLIN_NUMBERS]
    campaign = send(api, "Spring", contact_ids)

    wait_until_settled(api, clock)
    assert {sms.to for sms in fake_sms.accepted} == {"+819012345678", "+18085550123", "+16175550124"}
    code_row = api.post("/messages", {"channel": "sms", "to": "+16175550199", "body": "Your code is 1234"}).expect(201)
    fake_sms.wait(lambda taken: any(sms.to == "+16175550199" for sms in taken))
    offer = {"channel": "sms", "to": "+16175550123", "body": "Only today. STOP", "transactional": False}
    offer_row = api.post("/messages", offer).expect(201)
    rows = {sms["id"]: sms for sms in wait_until_settled(api, clock)}
    assert (rows[code_row["id"]]["status"], rows[offer_row["id"]]["status"]) == ("sent", "held")
    waiting = sorted(sms["next_attempt_at"] for sms in rows.values() if sms["to"] in BERLIN_NUMBERS)
    assert (
        len(waiting) == len(BERLIN_NUMBERS)
        and waiting[0] >= "2027-03-14T07:00:00"
        and waiting[-1] < "2027-03-14T07:01:00"
    )
    assert len({sms[:19] for sms in waiting}) >= 20  # spread over different seconds

    rows = {
        sms["id"]: sms
        for sms in advance_until(api, clock, lambda rows_found: all(sms["status"] == "sent" for sms in rows_found))
    }
    del rows[code_row["id"]]
    for sms in rows.values():
        zone = PEOPLE.get(sms["to"], ("Europe/Berlin", {}))[0]
        assert 8 <= local_time(sms["sent_at"], zone).hour < 21, (sms["to"], zone, sms["sent_at"])
        assert sms["attempts"] == 1
    assert sorted(sms.to for sms in fake_sms.accepted) == sorted(
        [*PEOPLE, *BERLIN_NUMBERS, "+16175550199", "+16175550123"],
    )  # fmt: skip
    wait_for("completed", lambda: api.get(f"/campaigns/{campaign}").expect(200)["phase"])
    check_removed_quiet_hours(api, fake_sms, clock)


def check_removed_quiet_hours(api: Client, fake_sms: FakeSms, clock: TestClock) -> None:
    """Removing the account's quiet hours releases held messages at once."""
    before = len(fake_sms.accepted)
    # All day except for a minute
    now = datetime.fromtimestamp(clock.now(), ZoneInfo("Europe/Berlin"))
    begin, end = (f"{(now + timedelta(minutes=away)):%H:%M}" for away in (-60, -61))
    api.patch("/account", {"sms_quiet_hours": {"from": begin, "to": end}}).expect(200)
    campaign = send(api, "Summer", [api.get("/contacts", search=BERLIN_NUMBERS[0]).expect(200)[0]["id"]])
    [row] = wait_for_status(api, campaign, "held")
    assert row["next_attempt_at"] > row["created_at"] and len(fake_sms.accepted) == before
    api.patch("/account", {"sms_quiet_hours": None}).expect(200)
    assert fake_sms.wait_for(before + 1)[-1].to == BERLIN_NUMBERS[0]
    wait_for_status(api, campaign, "sent")


def wait_for_status(api: Client, campaign: int, status: str) -> list[dict[str, Any]]:
    """Wait until the first message of a campaign has a status, and return all."""
    wait_for(status, lambda: api.get("/messages", campaign_id=campaign).expect(200)[0]["status"])
    return list(api.get("/messages", campaign_id=campaign).expect(200))


def wait_for(wanted: str, current: Callable[[], str], seconds: float = 30) -> None:
    """Wait until a value is as wanted."""
    end = time.monotonic() + seconds
    while (last := current()) != wanted:
        assert time.monotonic() < end, last
        time.sleep(0.05)
