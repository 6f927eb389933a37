"""SMS over the night: a campaign at 06:00 UTC to people all over the world reaches each of them by their own day."""

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
# Of Boston this night has an hour less
START = "2027-03-14T06:00:00+00:00"
# Where they live, and what tells it
PEOPLE: dict[str, tuple[str, dict[str, Any]]] = {
    "+4915112345678": ("Europe/Berlin", {}),
    "+16175550123": ("America/New_York", {}),
    "+819012345678": ("Asia/Tokyo", {}),
    "+18085550123": ("Pacific/Honolulu", {}),
    "+5511961234567": ("America/Sao_Paulo", {}),
    "+16175550124": ("Asia/Kolkata", {"data": {"time_zone": "Asia/Kolkata"}}),
    "+80012345678": ("Europe/London", {}),  # nobody knows: by the account's clocks
}
CROWD = [f"+49151555{last:05}" for last in range(40)]


def local(at: str, zone: str) -> datetime:
    """Return what the clocks of a zone show at a moment."""
    return datetime.fromisoformat(at.replace("Z", "+00:00")).astimezone(ZoneInfo(zone))


def settle(api: Client, clock: TestClock) -> list[dict[str, Any]]:
    """Wait until nothing can move before the clock does; returns all rows."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        found = api.get("/messages", limit=100).expect(200)
        now = datetime.fromtimestamp(clock.now(), UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        moves = [one for one in found if one["status"] in ("queued", "sending")]
        late = [one for one in found if one["status"] == "held" and one["next_attempt_at"] <= now]
        if found and not moves and not late:
            return list(found)
        time.sleep(0.05)
    raise AssertionError([one["status"] for one in found])


def until(api: Client, clock: TestClock, ready: Callable[[list[dict[str, Any]]], bool]) -> list[dict[str, Any]]:
    """Go from one moment at which somebody's night ends to the next."""
    for _ in range(12):
        rows = settle(api, clock)
        held = [one["next_attempt_at"] for one in rows if one["status"] == "held"]
        if ready(rows) or not held:
            return rows
        first = datetime.fromisoformat(min(held).replace("Z", "+00:00"))
        clock.advance(max(0.0, first.timestamp() - clock.now()) + 61)
    raise AssertionError("it takes too long")


def send(api: Client, name: str, people: list[int]) -> int:
    """Send a campaign to these people, and answer its id."""
    group = api.post("/lists", {"name": name, "contact_ids": people}).expect(201)["id"]
    asked = {"name": name, "channel": "sms", "trigger_attributes": {"contact_list_id": group},
             "template_attributes": {"body": f"{name} is here. Reply STOP to leave"}}  # fmt: skip
    campaign: int = api.post("/campaigns", asked).expect(201)["id"]
    api.post(f"/campaigns/{campaign}/send").expect(200)
    return campaign


def test_a_campaign_wakes_nobody(fresh_server: FreshServer, fake_sms: FakeSms, clock: TestClock) -> None:
    """Who has day gets it at once, the others one after the other when their night is over; a code goes at any time."""
    clock.advance(datetime.fromisoformat(START).timestamp() - clock.now())
    server = fresh_server(env=fake_sms.env, clock=clock)
    api = server.client()
    api.patch("/account", {"sms_quiet_hours": NIGHT, "time_zone": "Europe/London"}).expect(200)
    people = [api.post("/contacts", {"phone": number} | body).expect(201)["id"] for number, (_, body) in PEOPLE.items()]
    people += [api.post("/contacts", {"phone": number}).expect(201)["id"] for number in CROWD]
    campaign = send(api, "Spring", people)

    settle(api, clock)
    assert {one.to for one in fake_sms.accepted} == {"+819012345678", "+18085550123", "+16175550124"}
    code = api.post("/messages", {"channel": "sms", "to": "+16175550199", "body": "Your code is 1234"}).expect(201)
    fake_sms.wait(lambda taken: any(one.to == "+16175550199" for one in taken))
    offer = {"channel": "sms", "to": "+16175550123", "body": "Only today. STOP", "transactional": False}
    late = api.post("/messages", offer).expect(201)
    rows = {one["id"]: one for one in settle(api, clock)}
    assert (rows[code["id"]]["status"], rows[late["id"]]["status"]) == ("sent", "held")
    waiting = sorted(one["next_attempt_at"] for one in rows.values() if one["to"] in CROWD)
    assert len(waiting) == len(CROWD) and waiting[0] >= "2027-03-14T07:00:00" and waiting[-1] < "2027-03-14T07:01:00"
    assert len({one[:19] for one in waiting}) >= 20  # in so many different seconds

    rows = {one["id"]: one for one in until(api, clock, lambda found: all(one["status"] == "sent" for one in found))}
    del rows[code["id"]]
    for one in rows.values():
        zone = PEOPLE.get(one["to"], ("Europe/Berlin", {}))[0]
        assert 8 <= local(one["sent_at"], zone).hour < 21, (one["to"], zone, one["sent_at"])
        assert one["attempts"] == 1
    assert sorted(one.to for one in fake_sms.accepted) == sorted(
        [*PEOPLE, *CROWD, "+16175550199", "+16175550123"],
    )  # fmt: skip
    wait_for("completed", lambda: api.get(f"/campaigns/{campaign}").expect(200)["phase"])
    hours_are_given_up(api, fake_sms, clock)


def hours_are_given_up(api: Client, fake_sms: FakeSms, clock: TestClock) -> None:
    """Whoever waits for a morning gets it as soon as the account has no quiet hours any more."""
    before = len(fake_sms.accepted)
    # All the day but for a minute
    now = datetime.fromtimestamp(clock.now(), ZoneInfo("Europe/Berlin"))
    begin, end = (f"{(now + timedelta(minutes=away)):%H:%M}" for away in (-60, -61))
    api.patch("/account", {"sms_quiet_hours": {"from": begin, "to": end}}).expect(200)
    campaign = send(api, "Summer", [api.get("/contacts", search=CROWD[0]).expect(200)[0]["id"]])
    [row] = wait_for_status(api, campaign, "held")
    assert row["next_attempt_at"] > row["created_at"] and len(fake_sms.accepted) == before
    api.patch("/account", {"sms_quiet_hours": None}).expect(200)
    assert fake_sms.wait_for(before + 1)[-1].to == CROWD[0]
    wait_for_status(api, campaign, "sent")


def wait_for_status(api: Client, campaign: int, status: str) -> list[dict[str, Any]]:
    """Wait until the first row of a campaign has a status, and answer all."""
    wait_for(status, lambda: api.get("/messages", campaign_id=campaign).expect(200)[0]["status"])
    return list(api.get("/messages", campaign_id=campaign).expect(200))


def wait_for(wanted: str, found: Callable[[], str], seconds: float = 30) -> None:
    """Wait until something is as it is wanted."""
    end = time.monotonic() + seconds
    while (last := found()) != wanted:
        assert time.monotonic() < end, last
        time.sleep(0.05)
